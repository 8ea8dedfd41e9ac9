/* family: the device of a model and its siblings, the states on it with their snapshot, and the values they begin with. States are known by
 * name; those of training are "tg.parameters", "tg.gradients", the optimiser's moments, "tg.step" and "tg.lr". Initial values depend on
 * seed, full parameter name and element index alone. Must not know programs or files. */
#include "run/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY_THREADS_MAX 1024
#define FAMILY_LOSS_SCALE 4096.0
#define FAMILY_LOSS_SCALE_MAX 16777216.0

/* ---------------------------------------------------------------- small things all of src/run uses */

void tg_model_begin(tg_context *ctx, tg_site site) {
    if (ctx->trace == NULL) tg_clear_error(ctx);
    ctx->call_site = site;
}

const char *tg_names_text(char *buffer, size_t size, tg_name_fn name, const void *user, int64_t count) {
    size_t used = 0;
    buffer[0] = '\0';
    for (int64_t i = 0; i < count; i++) {
        const char *text = name(user, i);
        if (text == NULL) continue;
        size_t length = strlen(text);
        if (used + length + 8 > size) {
            memcpy(buffer + used, used > 0 ? ", ..." : "...", used > 0 ? 6 : 4);
            return buffer;
        }
        if (used > 0) {
            memcpy(buffer + used, ", ", 2);
            used += 2;
        }
        memcpy(buffer + used, text, length + 1);
        used += length;
    }
    if (used == 0) memcpy(buffer, "none", 5);
    return buffer;
}

/* ---------------------------------------------------------------- opening the device */

static void family_log(const tg_context *ctx, const char *message) {
    if (ctx->log != NULL) ctx->log(ctx->log_user, TG_LOG_WARNING, message);
}

/* TENSORGRAD_THREADS as a number; 0: not set, or nonsense, which is logged. */
static int family_threads_from_environment(const tg_context *ctx) {
    const char *text = getenv("TENSORGRAD_THREADS");
    if (text == NULL || text[0] == '\0') return 0;
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno == 0 && *end == '\0' && value >= 1 && value <= FAMILY_THREADS_MAX) return (int)value;
    family_log(ctx, "TENSORGRAD_THREADS is not a whole number from 1 to 1024: ignored");
    return 0;
}

static tg_status family_threads(tg_context *ctx, int asked, int *threads) {
    if (asked < 0 || asked > FAMILY_THREADS_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: threads is %d, outside 0 .. %d", asked, FAMILY_THREADS_MAX);
    *threads = asked > 0 ? asked : family_threads_from_environment(ctx);
    if (*threads == 0) *threads = tg_cpu_count();
    return TG_OK;
}

/* TENSORGRAD_ADAPTER stands in for an adapter that was not named. Copied: a lost device is opened again long after the call. */
static tg_status family_keep_adapter(tg_family *family, const tg_compile_options *options) {
    const char *name = options->adapter != NULL && options->adapter[0] != '\0' ? options->adapter : getenv("TENSORGRAD_ADAPTER");
    if (name == NULL || name[0] == '\0') return TG_OK;
    family->open.adapter = tg_arena_text(&family->arena, name);
    return family->open.adapter != NULL ? TG_OK : TG_ERROR_MEMORY;
}

/* AUTO: a real GPU or the CPU; why there is none is not an error, but it is logged. */
static tg_status family_open_auto(tg_family *family, tg_open_options *open) {
    tg_context *ctx = family->ctx;
    char reason[512];
    open->real_gpu = true;
    family->executor = &tg_webgpu_executor;
    tg_status status = family->executor->open(ctx, open, &family->device);
    if (status == TG_OK || status == TG_ERROR_MEMORY) return status;
    snprintf(reason, sizeof reason, "no GPU, the CPU is used: %.400s", ctx->message);
    if (ctx->log != NULL) ctx->log(ctx->log_user, TG_LOG_INFO, reason);
    tg_clear_error(ctx);
    family->executor = &tg_cpu_executor;
    return family->executor->open(ctx, open, &family->device);
}

/* What is asked of contractions; what comes of it, the device says. */
static tg_status family_keep_precision(tg_family *family, const tg_compile_options *options) {
    const double scale = tg_value_or(options->loss_scale, FAMILY_LOSS_SCALE);
    int exponent = 0;
    if (options->precision != TG_PRECISION_F32 && options->precision != TG_PRECISION_F16)
        return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: there is no precision %d", (int)options->precision);
    if (!(scale >= 1.0 && scale <= FAMILY_LOSS_SCALE_MAX) || frexp(scale, &exponent) != 0.5)
        return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: loss_scale must be a power of two from 1 to 2^24, got %g",
                       scale);
    family->open.f16 = options->precision == TG_PRECISION_F16;
    family->loss_scale = scale;
    return TG_OK;
}

tg_precision tg_family_precision(const tg_family *family) {
    const tg_wgsl_limits *limits = family->executor->wgsl_limits(family->device);
    return limits != NULL && limits->f16 ? TG_PRECISION_F16 : TG_PRECISION_F32;
}

double tg_family_loss_scale(const tg_family *family) { return tg_family_precision(family) == TG_PRECISION_F16 ? family->loss_scale : 1.0; }

static void family_say_precision(const tg_family *family) {
    char text[320];
    if (!family->open.f16 || tg_family_precision(family) == TG_PRECISION_F16) return;
    snprintf(text, sizeof text, "precision f16 is not offered by %.200s: contractions stay f32",
             family->executor->describe(family->device));
    family_log(family->ctx, text);
}

static tg_status family_open(tg_family *family, const tg_compile_options *options) {
    tg_open_options *open = &family->open;
    tg_status status = family_threads(family->ctx, options->threads, &open->threads);
    if (status == TG_OK) status = family_keep_precision(family, options);
    if (status == TG_OK) status = family_keep_adapter(family, options);
    if (status != TG_OK) return status;
    if (options->webgpu != NULL) { /* the struct is the caller's for the call only; the handles stay */
        family->foreign = *options->webgpu;
        open->foreign = &family->foreign;
    }
    switch (options->device) {
    case TG_DEVICE_AUTO:
        if (options->webgpu == NULL) return family_open_auto(family, open);
        family->executor = &tg_webgpu_executor;
        break;
    case TG_DEVICE_CPU:
        if (options->webgpu != NULL)
            return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE,
                           "compile: a WebGPU device is given, but the device asked for is the CPU");
        family->executor = &tg_cpu_executor;
        break;
    case TG_DEVICE_WEBGPU: family->executor = &tg_webgpu_executor; break;
    default: return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: there is no device kind %d", (int)options->device);
    }
    return family->executor->open(family->ctx, open, &family->device);
}

/* ---------------------------------------------------------------- states */

int32_t tg_family_find(const tg_family *family, const char *name) {
    for (int64_t i = 0; i < family->states.count; i++)
        if (strcmp(family->states.items[i].name, name) == 0) return (int32_t)i;
    return -1;
}

tg_status tg_family_write(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count) {
    tg_status status = family->executor->write_state(family->device, slot, first, data, count);
    if (status == TG_OK) tg_family_keep(family, slot, first, data, count);
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

/* ---------------------------------------------------------------- the snapshot */

static size_t family_state_bytes(const tg_family_state *state) { return (size_t)state->count * tg_dtype_bytes(state->dtype); }

void tg_family_keep(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count) {
    const tg_family_state *state = &family->states.items[slot];
    const size_t item = tg_dtype_bytes(state->dtype);
    if (state->kept != NULL) memcpy((char *)state->kept + (size_t)first * item, data, (size_t)count * item);
}

static tg_status family_read_all(tg_family *family, void **copies) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        copies[slot] = tg_alloc(family->ctx, family_state_bytes(state));
        if (copies[slot] == NULL) return TG_ERROR_MEMORY;
        tg_status status = tg_family_read(family, slot, 0, copies[slot], state->count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* Read into new blocks first: a device that is lost half-way through leaves the old snapshot whole. */
tg_status tg_family_snapshot(tg_family *family) {
    if (!family->keeps || family->executor->asynchronous) return TG_OK;
    const size_t bytes = (size_t)(family->states.count + 1) * sizeof(void *);
    void **copies = tg_alloc(family->ctx, bytes);
    if (copies == NULL) return TG_ERROR_MEMORY;
    tg_status status = family_read_all(family, copies);
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        tg_family_state *state = &family->states.items[slot];
        void *unused = status == TG_OK ? state->kept : copies[slot];
        if (status == TG_OK) state->kept = copies[slot];
        if (unused != NULL) tg_release(family->ctx, unused, family_state_bytes(state));
    }
    tg_release(family->ctx, copies, bytes);
    if (status != TG_OK) return status;
    family->kept_steps = family->steps;
    family->kept_skipped = family->skipped;
    family->kept_gradients = family->has_gradients;
    return TG_OK;
}

tg_status tg_family_read_kept(tg_family *family, int32_t slot, int64_t first, void *data, int64_t count) {
    const tg_family_state *state = &family->states.items[slot];
    const size_t item = tg_dtype_bytes(state->dtype);
    if (state->kept == NULL) return tg_family_read(family, slot, first, data, count);
    memcpy(data, (const char *)state->kept + (size_t)first * item, (size_t)count * item);
    return TG_OK;
}

static tg_status family_restore_states(tg_family *family, tg_device *device) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        tg_status status = family->executor->make_state(device, slot, state->name, state->dtype, state->count);
        if (status == TG_OK) status = family->executor->write_state(device, slot, 0, state->kept, state->count);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

tg_status tg_family_open_again(tg_family *family, tg_device **device) {
    tg_device *opened = NULL;
    tg_status status = family->executor->open(family->ctx, &family->open, &opened);
    if (status != TG_OK) return status;
    status = family_restore_states(family, opened);
    if (status == TG_OK) *device = opened;
    else family->executor->close(opened);
    return status;
}

/* ---------------------------------------------------------------- initial values */

/* `stream` is the hash of the parameter's full name. Normal and uniform values are rounded to f32 once. */
static float family_initial_value(const tg_param_info *param, uint64_t seed, uint64_t stream, int64_t i) {
    double scale = param->init.scale, value;
    float rounded;
    switch (param->init.kind) {
    case TG_INIT_ZEROS: return 0.0f;
    case TG_INIT_ONES: return 1.0f;
    case TG_INIT_LITERAL: return param->init.data[i];
    case TG_INIT_UNIFORM:
        rounded = (float)((2.0 * tg_random_uniform(seed, stream, (uint64_t)i) - 1.0) * scale);
        return rounded < (float)scale ? rounded : nextafterf((float)scale, 0.0f); /* the upper end is open */
    case TG_INIT_KAIMING:
        value = tg_value_or(scale, sqrt(2.0)) / sqrt(param->shape.rank > 0 ? (double)param->shape.dim[0] : 1.0);
        return (float)(value * tg_random_normal(seed, stream, (uint64_t)i));
    case TG_INIT_RANDN: break;
    }
    return (float)(tg_value_or(scale, 0.02) * tg_random_normal(seed, stream, (uint64_t)i));
}

void tg_param_initial_values(const tg_param_info *param, uint64_t seed, int64_t first, int64_t count, float *out) {
    const uint64_t stream = tg_hash_text(0, param->name);
    for (int64_t i = 0; i < count; i++) out[i] = family_initial_value(param, seed, stream, first + i);
}

static tg_status family_fill_param(tg_family *family, int32_t slot, const tg_param_info *param, const tg_layout_entry *entry) {
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

static tg_status family_fill_params(tg_family *family, int32_t slot) {
    for (int64_t i = 0; i < family->traced->params.count; i++) {
        const tg_param_info *param = &family->traced->params.items[i];
        const tg_layout_entry *entry = tg_layout_find(&family->layout, param->name);
        if (entry == NULL) return TG_INTERNAL(family->ctx, "a parameter has no place in the layout");
        tg_status status = family_fill_param(family, slot, param, entry);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* The same number everywhere. */
static tg_status family_fill_value(tg_family *family, int32_t slot) {
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

static bool family_is_schedule(const tg_family_state *state) {
    return strcmp(state->name, "tg.lr") == 0 && state->dtype == TG_F32 && state->count == TG_LR_STATE;
}

/* A schedule that tg_model_set_lr put in place stays, and begins again. All zeros, the optimiser's own, need nothing. */
static tg_status family_restart_schedule(tg_family *family, int32_t slot) {
    float encoded[TG_LR_STATE];
    tg_status status = tg_family_read_kept(family, slot, 0, encoded, TG_LR_STATE);
    if (status != TG_OK || encoded[TG_LR_STATE - 1] == 0.0f) return status;
    encoded[TG_LR_STATE - 2] = 0.0f; /* start = 0, as tg_lr_encode writes it */
    encoded[TG_LR_STATE - 1] = 1.0f;
    return tg_family_write(family, slot, 0, encoded, TG_LR_STATE);
}

static bool family_is_random(const tg_family_state *state) {
    return (strcmp(state->name, TG_RANDOM_STATE) == 0 || strcmp(state->name, TG_RANDOM_RUNS) == 0) && state->dtype == TG_I32 &&
           state->count == TG_RANDOM_WORDS;
}

/* A key of random numbers is itself random bits of the seed: counting it up from step to step, as draws do, never meets what another
 * seed, however near, or the runs use. */
static tg_status family_fill_random(tg_family *family, int32_t slot) {
    const uint32_t counter[4] = {0, 0, 0, 1}, seed[2] = {(uint32_t)family->seed, (uint32_t)(family->seed >> 32)};
    uint32_t word[4];
    tg_philox(counter, seed, word);
    return tg_family_write(family, slot, 0, strcmp(family->states.items[slot].name, TG_RANDOM_STATE) == 0 ? word : word + 2,
                           TG_RANDOM_WORDS);
}

static tg_status family_fill(tg_family *family, int32_t slot) {
    const tg_family_state *state = &family->states.items[slot];
    if (family_is_random(state)) return family_fill_random(family, slot);
    if (strcmp(state->name, "tg.parameters") == 0 || strcmp(state->name, "tg.average") == 0) return family_fill_params(family, slot);
    if (family_is_schedule(state)) return family_restart_schedule(family, slot);
    return family_fill_value(family, slot);
}

tg_status tg_family_reset(tg_family *family, tg_reset_kind kind) {
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const char *name = family->states.items[slot].name;
        bool is_training = strncmp(name, "tg.", 3) == 0;
        /* the next update begins the average from the parameters that stay */
        bool is_parameters = strcmp(name, "tg.parameters") == 0 || strcmp(name, "tg.average") == 0;
        if (is_parameters && kind != TG_RESET_ALL) continue;
        if (kind == TG_RESET_OPTIMIZER && (!is_training || family_is_random(&family->states.items[slot]))) continue;
        tg_status status = family_fill(family, slot);
        if (status != TG_OK) return status;
    }
    family->steps = family->skipped = 0;
    family->has_gradients = false;
    /* what was not written is as it was trained; of a device that answers later it was read right before */
    if (kind != TG_RESET_ALL && !family->executor->asynchronous) return tg_family_snapshot(family);
    family->kept_steps = family->kept_skipped = 0;
    family->kept_gradients = false;
    return TG_OK;
}

/* ---------------------------------------------------------------- making states */

/* A state of the same name is the same state: it must look the same. */
static tg_status family_state_agrees(const tg_family *family, int32_t slot, const tg_state_info *info) {
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
    if (slot >= 0) return family_state_agrees(family, slot, info) == TG_OK ? slot : -1;
    tg_family_state state = {NULL, info->shape, info->dtype, tg_shape_count(info->shape), info->value, NULL};
    bool room;
    TG_LIST_ROOM(family, states, room);
    if (!room) return -1;
    state.name = tg_arena_text(&family->arena, info->name);
    if (state.name == NULL) return -1;
    slot = (int32_t)family->states.count;
    if (family->executor->make_state(family->device, slot, state.name, state.dtype, state.count) != TG_OK) return -1;
    if (family->keeps) {
        state.kept = tg_alloc(family->ctx, family_state_bytes(&state));
        if (state.kept == NULL) return -1;
    }
    family->states.items[family->states.count++] = state;
    if (family_fill(family, slot) == TG_OK) return slot;
    family->states.count--; /* one without its first value must not be found again */
    if (state.kept != NULL) tg_release(family->ctx, state.kept, family_state_bytes(&state));
    return -1;
}

void tg_family_forget_states(tg_family *family, int64_t count) {
    while (family->states.count > count) {
        const tg_family_state *state = &family->states.items[--family->states.count];
        if (state->kept != NULL) tg_release(family->ctx, state->kept, family_state_bytes(state));
    }
}

static bool family_is_flat(const char *name) {
    static const char *const flat[] = {"tg.parameters", "tg.gradients", "tg.m", "tg.v", "tg.accumulated", "tg.average"};
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++)
        if (strcmp(name, flat[i]) == 0) return true;
    return false;
}

static bool family_is_as_training_has_it(const tg_family *family, const tg_state_info *state) {
    tg_shape shape = TG_SCALAR;
    tg_dtype dtype = TG_I32;
    if (strcmp(state->name, TG_RANDOM_STATE) == 0) shape = TG_SHAPE(TG_RANDOM_WORDS);
    else if (strcmp(state->name, "tg.step") != 0) {
        dtype = TG_F32;
        if (strcmp(state->name, "tg.lr") == 0) shape = TG_SHAPE(TG_LR_STATE);
        else if (family_is_flat(state->name)) shape = TG_SHAPE(family->layout.total);
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
        if (strncmp(state->name, "tg.", 3) != 0 || family_is_as_training_has_it(family, state)) continue;
        return tg_fail(family->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "compile: state %.200s is none that training makes", state->name);
    }
    return TG_OK;
}

/* The flat parameters, and the states the build function made: they exist whether or not a program uses them. */
static tg_status family_make_states(tg_family *family) {
    tg_state_info flat = {"tg.parameters", tg_shape_make(1, &family->layout.total), TG_F32, 0.0, 0};
    if (tg_family_state_slot(family, &flat) < 0) return family->ctx->status;
    for (int64_t i = 0; i < family->traced->states.count; i++)
        if (tg_family_state_slot(family, &family->traced->states.items[i]) < 0) return family->ctx->status;
    return TG_OK;
}

/* ---------------------------------------------------------------- life */

static tg_status family_init(tg_family *family, const tg_compile_options *options) {
    tg_context *ctx = family->ctx;
    tg_status status = family_open(family, options);
    if (status != TG_OK) return status;
    family_say_precision(family);
    family->keeps = family->executor->can_be_lost && family->open.foreign == NULL;
    status = tg_layout_make(family->traced, &family->arena, &family->layout);
    if (status != TG_OK) return status;
    family->chunk = tg_alloc(ctx, TG_CHUNK_BYTES);
    family->seen = TG_NEW(&family->arena, uint8_t, family->layout.count + 1);
    if (family->chunk == NULL || family->seen == NULL) return TG_ERROR_MEMORY;
    status = tg_family_check_names(family, family->traced);
    return status == TG_OK ? family_make_states(family) : status;
}

tg_family *tg_family_create(tg_context *ctx, const tg_compile_options *options, const tg_graph *traced) {
    tg_family *family = tg_alloc(ctx, sizeof *family);
    if (family == NULL) return NULL;
    family->ctx = ctx;
    tg_arena_init(&family->arena, ctx);
    family->traced = traced;
    family->seed = options->seed;
    if (family_init(family, options) == TG_OK) return family;
    tg_family_destroy(family);
    return NULL;
}

void tg_family_destroy(tg_family *family) {
    if (family == NULL) return;
    tg_context *ctx = family->ctx;
    if (family->executor != NULL) family->executor->close(family->device);
    if (family->chunk != NULL) tg_release(ctx, family->chunk, TG_CHUNK_BYTES);
    tg_tickets_destroy(family);
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        if (state->kept != NULL) tg_release(ctx, state->kept, family_state_bytes(state));
    }
    if (family->states.items != NULL) tg_release(ctx, family->states.items, (size_t)family->states.capacity * sizeof *family->states.items);
    tg_arena_free(&family->arena);
    tg_release(ctx, family, sizeof *family);
}

#undef FAMILY_THREADS_MAX
#undef FAMILY_LOSS_SCALE
#undef FAMILY_LOSS_SCALE_MAX
