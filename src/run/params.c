/* params: what users read and write between steps: parameters and gradients by name, the learning
 * rate, reset. Uploads check every name, dtype and length before the first byte is written. Must
 * not know programs or files. */
#include "run/model.h"

#include <string.h>

int tg_model_param_count(const tg_model *model) { return model != NULL ? model->family->layout.count : 0; }

const char *tg_model_param_name(const tg_model *model, int i) {
    return model != NULL && i >= 0 && i < model->family->layout.count ? model->family->layout.entries[i].name : NULL;
}

static const char *params_name(const void *user, int64_t i) { return ((const tg_family *)user)->layout.entries[i].name; }

/* NULL for a parameter that was given */
static const char *params_missing_name(const void *user, int64_t i) {
    const tg_family *family = user;
    return family->seen[i] ? NULL : family->layout.entries[i].name;
}

/* The entry, or NULL with the known names in the error. */
static const tg_layout_entry *params_find(const tg_model *model, const char *call, const char *name) {
    const tg_family *family = model->family;
    char names[TG_NAMES_TEXT];
    if (name == NULL) {
        tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: a parameter's name is NULL", call);
        return NULL;
    }
    const tg_layout_entry *entry = tg_layout_find(&family->layout, name);
    if (entry == NULL)
        tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: unknown parameter %.200s (parameters: %s)", call, name,
                tg_names_text(names, sizeof names, params_name, family, family->layout.count));
    return entry;
}

static tg_status params_check_count(const tg_model *model, const char *call, const tg_layout_entry *entry, const void *data,
                                    int64_t count) {
    char shape[TG_SHAPE_TEXT];
    if (count != entry->count)
        return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: parameter %s%s has %lld elements, given %lld", call, entry->name,
                       tg_shape_text(entry->shape, shape, sizeof shape), (long long)entry->count, (long long)count);
    if (data == NULL)
        return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: the data of parameter %s is NULL", call, entry->name);
    return TG_OK;
}

tg_status tg_model_param_shape_at(tg_site site, const tg_model *model, const char *name, tg_shape *shape) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    const tg_layout_entry *entry = params_find(model, "param_shape", name);
    if (entry == NULL) return model->ctx->status;
    if (shape != NULL) *shape = entry->shape;
    return TG_OK;
}

tg_status tg_param_upload_at(tg_site site, tg_model *model, const char *name, const float *data, int64_t count) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    const tg_layout_entry *entry = params_find(model, "param_upload", name);
    if (entry == NULL) return model->ctx->status;
    tg_status status = params_check_count(model, "param_upload", entry, data, count);
    if (status != TG_OK) return status;
    return tg_family_write_parameters(model->family, entry->offset, data, count);
}

static tg_status params_read(tg_model *model, const char *call, int32_t slot, const char *name, float *data, int64_t count) {
    const tg_layout_entry *entry = params_find(model, call, name);
    if (entry == NULL) return model->ctx->status;
    tg_status status = params_check_count(model, call, entry, data, count);
    return status == TG_OK ? tg_family_read(model->family, slot, entry->offset, data, count) : status;
}

tg_status tg_param_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return params_read(model, "param_download", tg_family_find(model->family, "tg.parameters"), name, data, count);
}

tg_status tg_param_average_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    int32_t slot = tg_family_find(model->family, "tg.average");
    if (slot < 0)
        return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "param_average_download: the model keeps no average of its parameters (optimizer.average)");
    const tg_layout_entry *entry = params_find(model, "param_average_download", name);
    if (entry != NULL && entry->frozen) slot = tg_family_find(model->family, "tg.parameters");
    return entry != NULL ? params_read(model, "param_average_download", slot, name, data, count) : model->ctx->status;
}

tg_status tg_model_check_gradients(const tg_model *model) {
    if (!model->training) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "param_grad_download: a forward model has no gradients");
    if (!model->family->has_gradients) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "param_grad_download: no step has run yet");
    model->family->gradients_read = true;
    return TG_OK;
}

tg_status tg_param_grad_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    tg_status status = tg_model_check_gradients(model);
    if (status != TG_OK) return status;
    const tg_layout_entry *entry = params_find(model, "param_grad_download", name);
    if (entry == NULL) return model->ctx->status;
    status = params_check_count(model, "param_grad_download", entry, data, count);
    if (status != TG_OK) return status;
    int32_t slot = tg_family_find(model->family, "tg.gradients");
    if (slot >= 0) return tg_family_read(model->family, slot, entry->offset, data, count);
    memset(data, 0, (size_t)count * sizeof *data); /* every parameter is frozen */
    return TG_OK;
}

/* One of many: known, not given before, f32, right length. */
static tg_status params_check_feed(tg_model *model, const tg_feed *feed) {
    tg_family *family = model->family;
    const tg_layout_entry *entry = params_find(model, "params_upload", feed->name);
    if (entry == NULL) return model->ctx->status;
    if (family->seen[entry - family->layout.entries])
        return tg_fail(model->ctx, TG_ERROR_DUPLICATE, TG_SITE_NONE, "params_upload: parameter %s is given twice", feed->name);
    family->seen[entry - family->layout.entries] = 1;
    if (feed->dtype != TG_F32)
        return tg_fail(model->ctx, TG_ERROR_DTYPE, TG_SITE_NONE, "params_upload: parameter %s is f32, given %s", feed->name,
                       tg_dtype_name(feed->dtype));
    return params_check_count(model, "params_upload", entry, feed->data, feed->count);
}

static tg_status params_check_all(tg_model *model, const tg_feed *params, int n, bool partial) {
    tg_family *family = model->family;
    char names[TG_NAMES_TEXT];
    if (n < 0 || (params == NULL && n > 0))
        return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "params_upload: %d parameters at NULL", n);
    memset(family->seen, 0, (size_t)family->layout.count);
    for (int i = 0; i < n; i++) {
        tg_status status = params_check_feed(model, &params[i]);
        if (status != TG_OK) return status;
    }
    for (int i = 0; i < family->layout.count && !partial; i++)
        if (!family->seen[i])
            return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "params_upload: parameters not given: %s",
                           tg_names_text(names, sizeof names, params_missing_name, family, family->layout.count));
    return TG_OK;
}

tg_status tg_params_upload_at(tg_site site, tg_model *model, const tg_feed *params, int n, bool partial) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    tg_status status = params_check_all(model, params, n, partial);
    for (int i = 0; i < n && status == TG_OK; i++) {
        const tg_layout_entry *entry = tg_layout_find(&model->family->layout, params[i].name);
        status = tg_family_write_parameters(model->family, entry->offset, params[i].data, entry->count);
    }
    return status;
}

/* The entry of `from` that is the same parameter, or NULL. */
static const tg_layout_entry *params_twin(const tg_family *from, const tg_layout_entry *entry) {
    const tg_layout_entry *twin = tg_layout_find(&from->layout, entry->name);
    return twin != NULL && tg_shape_equal(twin->shape, entry->shape) ? twin : NULL;
}

/* Into values, laid out as `to` has them. */
static tg_status params_read_twins(const tg_model *to, const tg_model *from, float *values) {
    const int32_t slot = tg_family_find(from->family, "tg.parameters");
    for (int i = 0; i < to->family->layout.count; i++) {
        const tg_layout_entry *entry = &to->family->layout.entries[i], *twin = params_twin(from->family, entry);
        tg_status status = twin != NULL ? tg_family_read(from->family, slot, twin->offset, values + entry->offset, entry->count) : TG_OK;
        if (status == TG_OK) continue;
        if (to->ctx == from->ctx) return status;
        return tg_fail(to->ctx, status, TG_SITE_NONE, "params_carry: %s", tg_error_message(from->ctx));
    }
    return TG_OK;
}

static tg_status params_write_twins(tg_model *to, const tg_model *from, const float *values, int *count) {
    *count = 0;
    for (int i = 0; i < to->family->layout.count; i++) {
        const tg_layout_entry *entry = &to->family->layout.entries[i];
        if (params_twin(from->family, entry) == NULL) continue;
        tg_status status = tg_family_write_parameters(to->family, entry->offset, values + entry->offset, entry->count);
        if (status != TG_OK) return status;
        ++*count;
    }
    return TG_OK;
}

/* The slot of the same user state of `from`, or -1: its name, shape and dtype. */
static int32_t params_twin_state(const tg_family *from, const tg_family_state *state) {
    if (strncmp(state->name, "tg.", 3) == 0) return -1;
    const int32_t slot = tg_family_find(from, state->name);
    if (slot < 0) return -1;
    const tg_family_state *twin = &from->states.items[slot];
    return twin->dtype == state->dtype && tg_shape_equal(twin->shape, state->shape) ? slot : -1;
}

/* Bytes of all states with a word for each element, for all dtypes: so each state is aligned. */
static size_t params_state_bytes(const tg_family *family) {
    size_t bytes = 0;
    for (int64_t i = 0; i < family->states.count; i++) bytes += (size_t)family->states.items[i].count * TG_WORD_BYTES;
    return bytes;
}

/* Into `values`, one state after the other, also those that `from` lacks; or from there into
 * `to`. */
static tg_status params_move_states(tg_model *to, const tg_model *from, char *values, bool write) {
    for (int32_t slot = 0; slot < to->family->states.count; slot++) {
        const tg_family_state *state = &to->family->states.items[slot];
        const int32_t twin = params_twin_state(from->family, state);
        tg_status status = TG_OK;
        if (twin >= 0 && write) status = tg_family_write(to->family, slot, 0, values, state->count);
        else if (twin >= 0) status = tg_family_read(from->family, twin, 0, values, state->count);
        if (status != TG_OK && (write || to->ctx == from->ctx)) return status;
        if (status != TG_OK) return tg_fail(to->ctx, status, TG_SITE_NONE, "params_carry: %s", tg_error_message(from->ctx));
        values += (size_t)state->count * TG_WORD_BYTES;
    }
    return TG_OK;
}

tg_status tg_params_carry_at(tg_site site, tg_model *to, tg_model *from, int *count) {
    int carried = 0;
    if (to == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(to, site);
    if (from == NULL) return tg_fail(to->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "params_carry: from is NULL");
    tg_model_enter(from, site);
    const size_t state_bytes = params_state_bytes(to->family), bytes = state_bytes + (size_t)to->family->layout.total * sizeof(float);
    char *states = tg_alloc(to->ctx, bytes);
    if (states == NULL) return TG_ERROR_MEMORY;
    float *values = (float *)(void *)(states + state_bytes);
    tg_status status = params_read_twins(to, from, values);
    if (status == TG_OK) status = params_move_states(to, from, states, false);
    if (status == TG_OK) status = params_write_twins(to, from, values, &carried);
    if (status == TG_OK) status = params_move_states(to, from, states, true);
    if (status == TG_OK && count != NULL) *count = carried;
    tg_release(to->ctx, states, bytes);
    return status;
}

/* ---------------------------------------------------------------- reset, learning rate, steps */

/* The schedule in force (the optimiser's, or the one of tg_model_set_lr) begins again too. */
tg_status tg_model_reset_at(tg_site site, tg_model *model) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return tg_family_reset(model->family, TG_RESET_ALL);
}

/* Moments, step counter and gradients to 0, the schedule in force begins again; parameters and user
 * states stay. */
tg_status tg_model_reset_optimizer_at(tg_site site, tg_model *model) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return tg_family_reset(model->family, TG_RESET_OPTIMIZER);
}

tg_status tg_model_set_lr_at(tg_site site, tg_model *model, tg_lr lr) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    tg_family *family = model->family;
    int32_t slot = tg_family_find(family, "tg.lr");
    if (slot < 0) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "set_lr: the model was compiled without an optimizer");
    tg_status status = tg_lr_check(model->ctx, TG_SITE_NONE, "set_lr", lr);
    if (status != TG_OK) return status;
    float encoded[TG_LR_STATE];
    tg_lr_encode(lr, family->steps - family->skipped, encoded);
    status = tg_family_write(family, slot, 0, encoded, TG_LR_STATE);
    if (status != TG_OK) return status;
    tg_lr_encode(lr, family->snapshot_steps - family->snapshot_skipped,
                 encoded); /* a model that goes back to the snapshot begins the schedule there */
    tg_family_write_snapshot(family, slot, 0, encoded, TG_LR_STATE);
    return TG_OK;
}

int64_t tg_model_step_count(const tg_model *model) { return model != NULL ? model->family->steps : 0; }
