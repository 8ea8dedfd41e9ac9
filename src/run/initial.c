/* initial: the values that states begin with, and again after a reset. A parameter's values depend
 * only on the seed, its full name and the element's index. Must not know programs or files. */
#include "run/model.h"

#include <math.h>
#include <string.h>

/* `stream` is the hash of the parameter's full name. Normal and uniform values are rounded to f32
 * once. */
static float initial_value(const tg_param_info *param, uint64_t seed, uint64_t stream, int64_t i) {
    double scale = param->init.scale, value;
    float rounded;
    switch (param->init.kind) {
    case TG_INIT_ZEROS: return 0.0f;
    case TG_INIT_ONES: return 1.0f;
    case TG_INIT_LITERAL: return param->init.data[i];
    case TG_INIT_UNIFORM:
        rounded = (float)((2.0 * tg_random_uniform(seed, stream, (uint64_t)i) - 1.0) * scale);
        /* the upper end is open */
        return rounded < (float)scale ? rounded : nextafterf((float)scale, 0.0f);
    case TG_INIT_KAIMING:
        value = tg_value_or(scale, sqrt(2.0)) / sqrt(param->shape.rank > 0 ? (double)param->shape.dim[0] : 1.0);
        return (float)(value * tg_random_normal(seed, stream, (uint64_t)i));
    case TG_INIT_RANDN: break;
    }
    return (float)(tg_value_or(scale, 0.02) * tg_random_normal(seed, stream, (uint64_t)i));
}

void tg_param_initial_values(const tg_param_info *param, uint64_t seed, int64_t first, int64_t count, float *out) {
    const uint64_t stream = tg_hash_text(0, param->name);
    for (int64_t i = 0; i < count; i++) out[i] = initial_value(param, seed, stream, first + i);
}

static tg_status initial_fill_param(tg_family *family, int32_t slot, const tg_param_info *param, const tg_layout_entry *entry) {
    float *chunk = (float *)(void *)family->chunk;
    const int64_t piece = TG_CHUNK_BYTES / (int64_t)sizeof(float);
    for (int64_t first = 0; first < entry->count; first += piece) {
        int64_t count = entry->count - first < piece ? entry->count - first : piece;
        tg_param_initial_values(param, family->seed, first, count, chunk);
        tg_status status = tg_family_write(family, slot, entry->offset + first, chunk, count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static tg_status initial_fill_params(tg_family *family, int32_t slot) {
    for (int64_t i = 0; i < family->traced->params.count; i++) {
        const tg_param_info *param = &family->traced->params.items[i];
        const tg_layout_entry *entry = tg_layout_find(&family->layout, param->name);
        if (entry == NULL) return TG_INTERNAL(family->ctx, "a parameter has no place in the layout");
        tg_status status = initial_fill_param(family, slot, param, entry);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* The same number everywhere. */
static tg_status initial_fill_value(tg_family *family, int32_t slot) {
    const tg_family_state *state = &family->states.items[slot];
    const int64_t piece = TG_CHUNK_BYTES / (int64_t)tg_dtype_bytes(state->dtype);
    for (int64_t i = 0; i < piece && i < state->count; i++) tg_dtype_put(state->dtype, family->chunk, i, state->value);
    for (int64_t first = 0; first < state->count; first += piece) {
        int64_t count = state->count - first < piece ? state->count - first : piece;
        tg_status status = tg_family_write(family, slot, first, family->chunk, count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static bool initial_is_schedule(const tg_family_state *state) {
    return strcmp(state->name, "tg.lr") == 0 && state->dtype == TG_F32 && state->count == TG_LR_STATE;
}

/* A schedule of tg_model_set_lr stays, and begins again. All zeros, the optimiser's own schedule,
 * need nothing. */
static tg_status initial_restart_schedule(tg_family *family, int32_t slot) {
    float encoded[TG_LR_STATE];
    tg_status status = tg_family_read_snapshot(family, slot, 0, encoded, TG_LR_STATE);
    if (status != TG_OK || encoded[TG_LR_STATE - 1] == 0.0f) return status;
    encoded[TG_LR_STATE - 2] = 0.0f; /* start = 0, as tg_lr_encode writes it */
    encoded[TG_LR_STATE - 1] = 1.0f;
    return tg_family_write(family, slot, 0, encoded, TG_LR_STATE);
}

static bool initial_is_random(const tg_family_state *state) {
    return (strcmp(state->name, TG_RANDOM_STATE) == 0 || strcmp(state->name, TG_RANDOM_RUNS) == 0) && state->dtype == TG_I32 &&
           state->count == TG_RANDOM_WORDS;
}

/* A key of random numbers is itself random bits of the seed. Draws count it up from step to step,
 * and it never meets the key of another seed, however near, or that of runs. */
static tg_status initial_fill_random(tg_family *family, int32_t slot) {
    const uint32_t counter[4] = {0, 0, 0, 1}, seed[2] = {(uint32_t)family->seed, (uint32_t)(family->seed >> 32)};
    uint32_t word[4];
    tg_philox(counter, seed, word);
    return tg_family_write(family, slot, 0, strcmp(family->states.items[slot].name, TG_RANDOM_STATE) == 0 ? word : word + 2,
                           TG_RANDOM_WORDS);
}

tg_status tg_family_fill(tg_family *family, int32_t slot) {
    const tg_family_state *state = &family->states.items[slot];
    if (initial_is_random(state)) return initial_fill_random(family, slot);
    if (strcmp(state->name, "tg.parameters") == 0 || strcmp(state->name, "tg.average") == 0) return initial_fill_params(family, slot);
    if (initial_is_schedule(state)) return initial_restart_schedule(family, slot);
    return initial_fill_value(family, slot);
}

tg_status tg_family_reset(tg_family *family, tg_reset_kind kind) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const char *name = family->states.items[slot].name;
        bool is_training = strncmp(name, "tg.", 3) == 0;
        /* the next update begins the average from the parameters that stay */
        bool is_parameters = strcmp(name, "tg.parameters") == 0 || strcmp(name, "tg.average") == 0;
        if (is_parameters && kind != TG_RESET_ALL) continue;
        if (kind == TG_RESET_OPTIMIZER && (!is_training || initial_is_random(&family->states.items[slot]))) continue;
        tg_status status = tg_family_fill(family, slot);
        if (status != TG_OK) return status;
    }
    family->steps = family->skipped = 0;
    family->has_gradients = false;
    /* what was not written is as trained; for a device that answers later it was read right
     * before */
    if (kind != TG_RESET_ALL && !family->executor->asynchronous) return tg_family_snapshot(family);
    family->snapshot_steps = family->snapshot_skipped = 0;
    family->snapshot_gradients = false;
    return TG_OK;
}
