/* launch: workgroup sizes and panels for launches of several kernels; lists of candidates. Must not
 * know languages. */
#include "tile/launch.h"

#include <stdio.h>
#include <stdlib.h>

#define LAUNCH_SIZE 256 /* invocations of a workgroup */
/* In a chain, where a workgroup has a multiprocessor to itself: 256 took 1.14 times as long on an
 * H200 for transformer-add, 1024 1.7 times. */
#define LAUNCH_CHAIN_SIZE 512
#define LAUNCH_PANEL 8 /* most rows of a panel */
/* Side by side: a kernel waits for memory about half of its time, in which another one runs.
 * Measurements agree. */
#define LAUNCH_OVERLAP 2
#define LAUNCH_SLOW_SIZE 64 /* where barriers are slow: kernels side by side have none */
#define LAUNCH_SLOW_CHAIN 4 /* and in a chain there is one between kernels */

int32_t tg_tile_workgroup_bytes(const tg_tile_room *room, bool vectors) {
    const int32_t all = room->device->workgroup_bytes;
    return room->frame.size == 0 ? all : all / (vectors ? 2 : 4);
}

/* ---------------------------------------------------------------- candidates */

tg_status tg_tile_add_candidate(tg_tile_candidates *candidates, tg_context *ctx, tg_schedule schedule, double cycles) {
    void *items = candidates->items;
    const bool room = tg_grow(ctx, &items, &candidates->capacity, candidates->count + 1, sizeof *candidates->items);
    candidates->items = items;
    if (!room) return TG_ERROR_MEMORY;
    candidates->items[candidates->count] = (tg_tile_candidate){schedule, cycles, candidates->count};
    candidates->count++;
    return TG_OK;
}

static int launch_compare_candidates(const void *a, const void *b) {
    const tg_tile_candidate *x = a, *y = b;
    if (x->cycles != y->cycles) return x->cycles < y->cycles ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

void tg_tile_sort_candidates(tg_tile_candidates *candidates) {
    if (candidates->count > 1) qsort(candidates->items, (size_t)candidates->count, sizeof *candidates->items, launch_compare_candidates);
}

void tg_tile_free_candidates(tg_tile_candidates *candidates, tg_context *ctx) {
    if (candidates->items != NULL) tg_release(ctx, candidates->items, (size_t)candidates->capacity * sizeof *candidates->items);
    *candidates = (tg_tile_candidates){.count = 0};
}

/* ---------------------------------------------------------------- launches of several kernels */

tg_schedule tg_tile_launch_choose(const tg_launch *launch, const tg_device_model *device) {
    const bool chain = launch->slices > 0;
    tg_schedule schedule = {.kind = chain ? TG_SCHEDULE_CHAIN : TG_SCHEDULE_BESIDE};
    if (chain) schedule.panel = LAUNCH_PANEL;
    else schedule.overlap = LAUNCH_OVERLAP;
    if (device->slow_barriers) schedule.size = chain ? LAUNCH_SLOW_CHAIN : LAUNCH_SLOW_SIZE;
    else if (chain && device->invocations >= LAUNCH_CHAIN_SIZE) schedule.size = LAUNCH_CHAIN_SIZE;
    else schedule.size = device->invocations < LAUNCH_SIZE ? device->invocations : LAUNCH_SIZE;
    return schedule;
}

/* Calls `visit` for each schedule that a table may give the launch, until it returns false. */
static void launch_each(const tg_launch *launch, const tg_device_model *device, bool (*visit)(void *, tg_schedule), void *user) {
    const bool chain = launch->slices > 0;
    if (device->slow_barriers) return;
    for (int32_t size = 128; size <= 1024 && size <= device->invocations; size *= 2)
        for (int32_t x = 1; x <= 16; x *= 2) {
            tg_schedule schedule = {.kind = chain ? TG_SCHEDULE_CHAIN : TG_SCHEDULE_BESIDE, .size = size};
            if (chain ? x < 4 : x > 8 || size > 256) continue;
            if (chain) schedule.panel = x;
            else schedule.overlap = x;
            if (!visit(user, schedule)) return;
        }
}

void tg_tile_launch_key(const tg_program *program, const tg_launch *launch, char key[TG_TILE_KEY]) {
    uint64_t hash = (uint64_t)launch->slices;
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = &program->kernels[k];
        const int32_t shape[4] = {(int32_t)kernel->kind, kernel->loop_count, kernel->outer_count, kernel->body_count};
        hash = tg_hash(hash, shape, sizeof shape);
        hash = tg_hash(hash, kernel->extent, sizeof kernel->extent[0] * (size_t)kernel->loop_count);
    }
    if (launch->slices > 0)
        snprintf(key, TG_TILE_KEY, "chain of %d kernels %d slices %08x", (int)launch->count, (int)launch->slices, (unsigned)(uint32_t)hash);
    else snprintf(key, TG_TILE_KEY, "%d kernels side by side %08x", (int)launch->count, (unsigned)(uint32_t)hash);
}

typedef struct launch_wish {
    const tg_schedule *wanted;
    bool found;
} launch_wish;
static bool launch_is_wanted(void *user, tg_schedule schedule) {
    launch_wish *wish = user;
    wish->found = tg_schedule_equal(&schedule, wish->wanted);
    return !wish->found;
}

const tg_schedule *tg_tile_launch_find(const tg_program *program, const tg_launch *launch, const tg_device_model *device) {
    char key[TG_TILE_KEY];
    if (device->schedules == NULL) return NULL;
    tg_tile_launch_key(program, launch, key);
    launch_wish wish = {tg_schedule_find(device->schedules, key), false};
    if (wish.wanted == NULL) return NULL;
    launch_each(launch, device, launch_is_wanted, &wish);
    return wish.found ? wish.wanted : NULL;
}

typedef struct launch_list {
    tg_tile_candidates *candidates;
    tg_context *ctx;
    tg_status status;
} launch_list;
static bool launch_list_one(void *user, tg_schedule schedule) {
    launch_list *list = user;
    list->status = tg_tile_add_candidate(list->candidates, list->ctx, schedule, 0.0);
    return list->status == TG_OK;
}

tg_status tg_tile_launch_list(const tg_program *program, const tg_launch *launch, const tg_device_model *device, tg_context *ctx,
                              tg_tile_candidates *candidates) {
    launch_list list = {candidates, ctx, TG_OK};
    tg_tile_launch_key(program, launch, candidates->key);
    candidates->chosen = tg_tile_launch_choose(launch, device);
    launch_each(launch, device, launch_list_one, &list);
    return list.status;
}

tg_tile_frame tg_tile_launch_frame(const tg_launch *launch, const tg_schedule *schedule) {
    /* the kernels of a chain take turns */
    const int32_t together = launch->slices > 0 ? launch->count : schedule->overlap;
    return (tg_tile_frame){
        .size = schedule->size, .slices = launch->slices, .share = (launch->count + together - 1) / together, .panel = schedule->panel};
}

#undef LAUNCH_SIZE
#undef LAUNCH_CHAIN_SIZE
#undef LAUNCH_PANEL
#undef LAUNCH_OVERLAP
#undef LAUNCH_SLOW_SIZE
#undef LAUNCH_SLOW_CHAIN
