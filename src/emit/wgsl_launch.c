/* wgsl_launch: a launch as stages: joined by the schedule of the tuning table or of our own rule,
 * or one kernel after another if its kernels do not fit together. Lists what a table may name.
 * Schedules are tile/launch.h's, joining is wgsl_join.c's. Must not print kernels. */
#include "emit/wgsl.h"

#include <string.h>

/* ---------------------------------------------------------------- one kernel after another */

static tg_status launch_alone(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out) {
    *out = (tg_wgsl_kernel){.stages = TG_NEW(arena, tg_wgsl_stage, launch->count * (int64_t)TG_WGSL_MAX_STAGES)};
    if (out->stages == NULL) return TG_ERROR_MEMORY;
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        tg_wgsl_kernel one;
        tg_status status = tg_emit_wgsl(program, k, limits, arena, &one);
        if (status != TG_OK) return status;
        if (one.scratch_bytes > out->scratch_bytes) out->scratch_bytes = one.scratch_bytes;
        out->tuned |= one.tuned;
        for (int32_t s = 0; s < one.stage_count; s++) {
            tg_wgsl_stage *stage = &out->stages[out->stage_count++];
            int32_t *bindings = TG_NEW(arena, int32_t, one.stages[s].binding_count + 1);
            if (bindings == NULL) return TG_ERROR_MEMORY;
            *stage = one.stages[s];
            for (int32_t b = 0; b < stage->binding_count; b++) {
                bindings[b] = stage->bindings[b];
                if (bindings[b] >= 0) bindings[b] = program->kernels[k].arguments[bindings[b]].buffer;
            }
            stage->bindings = bindings;
        }
    }
    return TG_OK;
}

/* Joined by the schedule of the tuning table, or of our own rule. TG_ERROR_LIMIT, nothing recorded:
 * it does not fit. */
static tg_status launch_try_joined(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, tg_arena *arena,
                                   tg_wgsl_kernel *out) {
    const tg_schedule *tuned = tg_tile_launch_find(program, launch, limits), own = tg_tile_launch_choose(launch, limits);
    tg_status status = TG_ERROR_LIMIT;
    if (tuned != NULL) {
        status = tg_wgsl_join(program, launch, limits, tuned, arena, out);
        out->tuned = 1;
        if (status != TG_ERROR_LIMIT) return status;
        tg_clear_error(arena->ctx);
    }
    status = tg_wgsl_join(program, launch, limits, &own, arena, out);
    out->tuned = 0;
    if (status == TG_ERROR_LIMIT) tg_clear_error(arena->ctx);
    return status;
}

tg_status tg_emit_wgsl_launch(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out) {
    const tg_launch *launch = &program->launches[index];
    if (launch->count > 1) {
        tg_status status = launch_try_joined(program, launch, limits, arena, out);
        if (status != TG_ERROR_LIMIT) return status;
    }
    return launch_alone(program, launch, limits, arena, out);
}

/* ---------------------------------------------------------------- what a table may name */

static tg_status launch_collect(tg_wgsl *w, const tg_launch *launch, tg_tile_candidates *candidates) {
    if (launch->count > 1) return tg_tile_launch_list(w->program, launch, w->limits, w->arena->ctx, candidates);
    w->kernel = &w->program->kernels[launch->first];
    return tg_wgsl_list_candidates(w, candidates);
}

/* The chosen one first, then the others by their expected cost. */
static tg_status launch_sort(tg_tile_candidates *candidates, tg_arena *arena, tg_wgsl_candidates *out) {
    tg_tile_sort_candidates(candidates);
    out->key = tg_arena_text(arena, candidates->key);
    out->items = TG_NEW(arena, tg_schedule, candidates->count + 1);
    if (out->key == NULL || out->items == NULL) return TG_ERROR_MEMORY;
    out->items[out->count++] = candidates->chosen;
    for (int64_t i = 0; i < candidates->count; i++)
        if (!tg_schedule_equal(&candidates->items[i].schedule, &candidates->chosen))
            out->items[out->count++] = candidates->items[i].schedule;
    return TG_OK;
}

tg_status tg_wgsl_find_candidates(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                                  tg_wgsl_candidates *out) {
    tg_tile_candidates candidates = {.count = 0};
    memset(out, 0, sizeof *out);
    tg_wgsl *w = tg_wgsl_open(program, limits, arena);
    if (w == NULL) return TG_ERROR_MEMORY;
    tg_status status = launch_collect(w, &program->launches[index], &candidates);
    if (status == TG_OK && candidates.count > 0) status = launch_sort(&candidates, arena, out);
    tg_tile_free_candidates(&candidates, arena->ctx);
    tg_wgsl_close(w);
    return status;
}

static void launch_text_stages(const tg_program *program, int32_t index, const tg_wgsl_kernel *printed, tg_text_buffer *text) {
    const tg_launch *launch = &program->launches[index];
    char name[32];
    for (int32_t s = 0; s < printed->stage_count; s++) {
        const tg_wgsl_stage *stage = &printed->stages[s];
        tg_text_add(text, "// launch %d (%s%s), stage %d of %d: %d x %d x %d workgroups; bound:", (int)index,
                    program->kernels[launch->first].name, launch->count > 1 ? ", ..." : "", (int)s + 1, (int)printed->stage_count,
                    (int)stage->groups[0], (int)stage->groups[1], (int)stage->groups[2]);
        for (int32_t b = 0; b < stage->binding_count; b++) {
            if (stage->bindings[b] < 0) tg_text_add(text, " %s", tg_wgsl_block_name(stage->bindings[b], name, sizeof name));
            else tg_text_add(text, " %d", (int)stage->bindings[b]);
        }
        tg_text_add(text, "\n%s\n", stage->source);
    }
}

tg_status tg_emit_wgsl_text(const tg_program *program, const tg_device_model *limits, tg_text_buffer *text) {
    tg_status status = TG_OK;
    for (int32_t i = 0; i < program->launch_count && status == TG_OK; i++) {
        tg_arena arena;
        tg_wgsl_kernel printed;
        tg_arena_init(&arena, text->ctx);
        status = tg_emit_wgsl_launch(program, i, limits, &arena, &printed);
        if (status == TG_OK) launch_text_stages(program, i, &printed, text);
        tg_arena_free(&arena);
    }
    return status != TG_OK || !text->failed ? status : TG_ERROR_MEMORY;
}
