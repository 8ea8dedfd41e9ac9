/* states: the states of a family on its device, known by name, and the snapshot of them that
 * outlives a lost device. Those of training are "tg.parameters", "tg.gradients", the optimiser's
 * moments, "tg.step" and "tg.lr". Must not know programs or files. */
#include "run/model.h"

#include <string.h>

static size_t states_bytes(const tg_family_state *state) { return (size_t)state->count * tg_dtype_bytes(state->dtype); }

int32_t tg_family_find(const tg_family *family, const char *name) {
    for (int64_t i = 0; i < family->states.count; i++)
        if (strcmp(family->states.items[i].name, name) == 0) return (int32_t)i;
    return -1;
}

tg_status tg_family_write(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count) {
    tg_status status = family->executor->write_state(family->device, slot, first, data, count);
    if (status == TG_OK) tg_family_write_snapshot(family, slot, first, data, count);
    return status;
}

tg_status tg_family_write_parameters(tg_family *family, int64_t first, const float *data, int64_t count) {
    int32_t average = family->steps == family->skipped ? tg_family_find(family, "tg.average") : -1;
    tg_status status = tg_family_write(family, tg_family_find(family, "tg.parameters"), first, data, count);
    return status == TG_OK && average >= 0 ? tg_family_write(family, average, first, data, count) : status;
}

tg_status tg_family_read(tg_family *family, int32_t slot, int64_t first, void *data, int64_t count) {
    return family->executor->read_state(family->device, slot, first, data, count);
}

/* ---------------------------------------------------------------- making states */

/* A state of the same name is the same state: it must look the same. */
static tg_status states_agrees(const tg_family *family, int32_t slot, const tg_state_info *info) {
    const tg_family_state *state = &family->states.items[slot];
    char have[TG_SHAPE_TEXT], want[TG_SHAPE_TEXT];
    if (tg_shape_equal(state->shape, info->shape) && state->dtype == info->dtype) return TG_OK;
    return tg_fail(family->ctx, state->dtype == info->dtype ? TG_ERROR_SHAPE : TG_ERROR_DTYPE, TG_SITE_NONE,
                   "compile: state %s is %s%s here and %s%s in the model it belongs to", info->name, tg_dtype_name(info->dtype),
                   tg_shape_text(info->shape, want, sizeof want), tg_dtype_name(state->dtype),
                   tg_shape_text(state->shape, have, sizeof have));
}

int32_t tg_family_state_slot(tg_family *family, const tg_state_info *info) {
    int32_t slot = tg_family_find(family, info->name);
    if (slot >= 0) return states_agrees(family, slot, info) == TG_OK ? slot : -1;
    tg_family_state state = {NULL, info->shape, info->dtype, tg_shape_count(info->shape), info->value, NULL};
    bool room;
    TG_LIST_ROOM(family, states, room);
    if (!room) return -1;
    state.name = tg_arena_text(&family->arena, info->name);
    if (state.name == NULL) return -1;
    slot = (int32_t)family->states.count;
    if (family->executor->make_state(family->device, slot, state.name, state.dtype, state.count) != TG_OK) return -1;
    if (family->can_recover) {
        state.snapshot = tg_alloc(family->ctx, states_bytes(&state));
        if (state.snapshot == NULL) return -1;
    }
    family->states.items[family->states.count++] = state;
    if (tg_family_fill(family, slot) == TG_OK) return slot;
    family->states.count--; /* one without its first value must not be found again */
    if (state.snapshot != NULL) tg_release(family->ctx, state.snapshot, states_bytes(&state));
    return -1;
}

void tg_family_forget_states(tg_family *family, int64_t count) {
    while (family->states.count > count) {
        const tg_family_state *state = &family->states.items[--family->states.count];
        if (state->snapshot != NULL) tg_release(family->ctx, state->snapshot, states_bytes(state));
    }
}

static bool states_is_flat(const char *name) {
    static const char *const flat[] = {"tg.parameters", "tg.gradients", "tg.m", "tg.v", "tg.accumulated", "tg.average"};
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++)
        if (strcmp(name, flat[i]) == 0) return true;
    return false;
}

static bool states_is_as_training_has_it(const tg_family *family, const tg_state_info *state) {
    tg_shape shape = TG_SCALAR;
    tg_dtype dtype = TG_I32;
    if (strcmp(state->name, TG_RANDOM_STATE) == 0) shape = TG_SHAPE(TG_RANDOM_WORDS);
    else if (strcmp(state->name, "tg.step") != 0) {
        dtype = TG_F32;
        if (strcmp(state->name, "tg.lr") == 0) shape = TG_SHAPE(TG_LR_STATE);
        else if (states_is_flat(state->name)) shape = TG_SHAPE(family->layout.total);
        else return false;
    }
    return state->dtype == dtype && tg_shape_equal(state->shape, shape);
}

tg_status tg_family_check_names(const tg_family *family, const tg_graph *g) {
    for (int64_t i = 0; i < g->params.count; i++)
        if (strncmp(g->params.items[i].name, "tg.", 3) == 0)
            return tg_fail(family->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "compile: a parameter is called %.200s", g->params.items[i].name);
    for (int64_t i = 0; i < g->states.count; i++) {
        const tg_state_info *state = &g->states.items[i];
        if (strncmp(state->name, "tg.", 3) != 0 || states_is_as_training_has_it(family, state)) continue;
        return tg_fail(family->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "compile: state %.200s is none that training makes", state->name);
    }
    return TG_OK;
}

tg_status tg_family_make_states(tg_family *family) {
    tg_state_info flat = {"tg.parameters", tg_shape_make(1, &family->layout.total), TG_F32, 0.0, 0};
    if (tg_family_state_slot(family, &flat) < 0) return family->ctx->status;
    for (int64_t i = 0; i < family->traced->states.count; i++)
        if (tg_family_state_slot(family, &family->traced->states.items[i]) < 0) return family->ctx->status;
    return TG_OK;
}

/* ---------------------------------------------------------------- the snapshot */

void tg_family_write_snapshot(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count) {
    const tg_family_state *state = &family->states.items[slot];
    const size_t item = tg_dtype_bytes(state->dtype);
    if (state->snapshot != NULL) memcpy((char *)state->snapshot + (size_t)first * item, data, (size_t)count * item);
}

static tg_status states_read_all(tg_family *family, void **copies) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        copies[slot] = tg_alloc(family->ctx, states_bytes(state));
        if (copies[slot] == NULL) return TG_ERROR_MEMORY;
        tg_status status = tg_family_read(family, slot, 0, copies[slot], state->count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* Read into new blocks first: a device that is lost half-way through leaves the old snapshot
 * whole. */
tg_status tg_family_snapshot(tg_family *family) {
    if (!family->can_recover || family->executor->asynchronous) return TG_OK;
    const size_t bytes = (size_t)(family->states.count + 1) * sizeof(void *);
    void **copies = tg_alloc(family->ctx, bytes);
    if (copies == NULL) return TG_ERROR_MEMORY;
    tg_status status = states_read_all(family, copies);
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        tg_family_state *state = &family->states.items[slot];
        void *unused = status == TG_OK ? state->snapshot : copies[slot];
        if (status == TG_OK) state->snapshot = copies[slot];
        if (unused != NULL) tg_release(family->ctx, unused, states_bytes(state));
    }
    tg_release(family->ctx, copies, bytes);
    if (status != TG_OK) return status;
    family->snapshot_steps = family->steps;
    family->snapshot_skipped = family->skipped;
    family->snapshot_gradients = family->has_gradients;
    return TG_OK;
}

tg_status tg_family_read_snapshot(tg_family *family, int32_t slot, int64_t first, void *data, int64_t count) {
    const tg_family_state *state = &family->states.items[slot];
    const size_t item = tg_dtype_bytes(state->dtype);
    if (state->snapshot == NULL) return tg_family_read(family, slot, first, data, count);
    memcpy(data, (const char *)state->snapshot + (size_t)first * item, (size_t)count * item);
    return TG_OK;
}

static tg_status states_restore_states(tg_family *family, tg_device *device) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        tg_status status = family->executor->make_state(device, slot, state->name, state->dtype, state->count);
        if (status == TG_OK) status = family->executor->write_state(device, slot, 0, state->snapshot, state->count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

tg_status tg_family_open_again(tg_family *family, tg_device **device) {
    tg_device *opened = NULL;
    tg_status status = family->executor->open(family->ctx, &family->open, &opened);
    if (status != TG_OK) return status;
    status = states_restore_states(family, opened);
    if (status == TG_OK) *device = opened;
    else family->executor->close(opened);
    return status;
}
