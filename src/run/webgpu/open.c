/* open: a device from the library's adapters, or an application's own; its limits; and closing it.
 * Environment, for tests and benchmarks: TENSORGRAD_WEBGPU_LIMITS=guaranteed asks for no more than
 * every WebGPU device has; TENSORGRAD_WEBGPU_TIMEOUT=seconds replaces the ten minutes after which a
 * wait is given up; TENSORGRAD_WEBGPU_TOGGLES=name,name switches Dawn's toggles on, which may
 * switch checks off. Must not know programs. */
#include "run/webgpu/device.h"

#include "emit/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_TOGGLES = 16, OPEN_PATIENCE_SECONDS = 600, OPEN_SLOW_NS = 250000000 };
#define OPEN_SECOND 1000000000

/* ---- limits */

static int32_t open_least(uint32_t a, uint32_t b) {
    const uint32_t least = a < b ? a : b;
    return least > INT32_MAX ? INT32_MAX : (int32_t)least;
}
static int64_t open_bytes(uint64_t a, uint64_t b) {
    const uint64_t least = a < b ? a : b;
    return least > INT64_MAX ? INT64_MAX : (int64_t)least;
}
static tg_status open_read_limits(webgpu_device *d) {
    memset(&d->gpu->raw, 0xFF, sizeof d->gpu->raw);
    d->gpu->raw.next = NULL;
    if (d->host->api.device_get_limits(d->gpu->device, &d->gpu->raw) != TG_WGPU_SUCCESS)
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device (%s) does not tell its limits", d->gpu->name);
    if (d->gpu->wish.guaranteed) {
        d->gpu->raw.max_storage_buffers = 8;
        d->gpu->raw.max_storage_binding_bytes = UINT64_C(128) << 20;
        d->gpu->raw.max_buffer_bytes = UINT64_C(256) << 20;
        d->gpu->raw.max_workgroup_bytes = 16384;
        d->gpu->raw.max_workgroup_invocations = d->gpu->raw.max_workgroup_x = 256;
        d->gpu->raw.max_workgroups = 65535;
    }
    const tg_wgpu_limits *raw = &d->gpu->raw;
    const int32_t bindings =
        open_least((uint32_t)open_least(raw->max_storage_buffers, raw->max_bindings_per_bind_group), TG_WEBGPU_MAX_BINDINGS);
    d->gpu->model = (tg_device_model){.max_arguments = bindings - 1, /* one is for scratch */
                                      .max_binding_bytes = open_bytes(raw->max_storage_binding_bytes, raw->max_buffer_bytes),
                                      .in_words = true,
                                      .joins = true,
                                      .invocations = open_least(raw->max_workgroup_invocations, raw->max_workgroup_x),
                                      .workgroup_bytes = open_least(raw->max_workgroup_bytes, INT32_MAX),
                                      .groups = open_least(raw->max_workgroups, INT32_MAX),
                                      .storage_buffers = bindings,
                                      .slow_barriers = d->gpu->software && !d->gpu->wish.guaranteed,
                                      .rates = &tg_h200_rates};
    if (bindings < 2 || raw->min_storage_offset_alignment > TG_WEBGPU_ALIGN)
        return tg_fail(d->ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "webgpu: the device (%s) is below what WebGPU guarantees", d->gpu->name);
    return TG_OK;
}

static void open_describe(webgpu_device *d, const webgpu_adapter *adapter) {
    snprintf(d->gpu->name, sizeof d->gpu->name, "%s", adapter->info.name);
    snprintf(d->gpu->description, sizeof d->gpu->description, "webgpu (%s, %s)", d->gpu->name, adapter->info.backend);
    d->gpu->software = strcmp(adapter->info.type, "cpu") == 0;
    d->gpu->executes = tg_webgpu_executes(&adapter->info);
    if (!d->gpu->executes) snprintf(d->gpu->description, sizeof d->gpu->description, "webgpu (%s, which executes nothing)", d->gpu->name);
    snprintf(d->gpu->tuning_name, sizeof d->gpu->tuning_name, "%s; %s; %s; %s; %s", adapter->info.name, adapter->info.vendor,
             adapter->info.architecture, adapter->info.backend, adapter->driver);
    for (char *c = d->gpu->tuning_name; *c != '\0'; ++c)
        if ((unsigned char)*c < ' ') *c = ' ';
    if (adapter->info.subgroup_min == adapter->info.subgroup_max) d->gpu->subgroup_size = adapter->info.subgroup_max;
}

/* ---- a device of our own */

static void open_on_device(uint32_t status, tg_wgpu_device device, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    tg_webgpu_answer(user, status, device, text);
}
static tg_status open_request(webgpu_device *d, const webgpu_adapter *adapter, bool limits, bool features, const tg_wgpu_chain *chain) {
    const tg_wgpu_device_descriptor descriptor = {
        .next = chain,
        .label = webgpu_string("tensorgrad"),
        .feature_count = features ? (size_t)adapter->feature_count : 0,
        .features = adapter->features,
        .limits = limits ? &adapter->limits : NULL,
        .queue = {NULL, webgpu_string(NULL)},
        .lost = {.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = tg_webgpu_on_lost, .user = d->gpu},
        .error = {.call = tg_webgpu_on_error, .user = d->gpu},
    };
    tg_webgpu_ask(&d->opening, &d->answers, d->text, sizeof d->text);
    d->gpu->answers.pending++;
    d->host->api.adapter_request_device(
        adapter->handle, &descriptor,
        (tg_wgpu_device_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = open_on_device, .user = &d->opening});
    tg_status status = tg_webgpu_wait(d, &d->opening, "asking for a device");
    if (d->opening.done && d->opening.status == TG_WGPU_SUCCESS) d->gpu->device = d->opening.object;
    return status;
}
/* Fills `names` from "one,two"; cuts up the text. */
static size_t open_toggles(char *text, const char **names) {
    size_t count = 0;
    while (*text != '\0' && count < OPEN_TOGGLES) {
        const size_t length = strcspn(text, ",");
        if (length > 0) names[count++] = text;
        text += length;
        if (*text == ',') *text++ = '\0';
    }
    return count;
}
/* Asks for all that the adapter has; if a driver refuses, again without features, then without
 * limits. */
static tg_status open_device(webgpu_device *d, const webgpu_adapter *adapter) {
    const char *names[OPEN_TOGGLES + WEBGPU_F16_TOGGLES];
    char text[TG_WEBGPU_WISH_TOGGLES];
    snprintf(text, sizeof text, "%s", d->host->dawn ? d->gpu->wish.toggles : "");
    size_t count = open_toggles(text, names);
    for (int i = 0; i < WEBGPU_F16_TOGGLES && d->host->dawn && d->wants_f16; ++i) names[count++] = tg_webgpu_f16_toggles[i];
    /* Dawn rounds times to 0.1 ms, so that a page cannot spy: nothing is to be hidden from a program */
    static const char *const rounding = "timestamp_quantization";
    const bool exact = d->host->dawn && adapter->times;
    const tg_wgpu_dawn_toggles chain = {.chain = {.type = TG_WGPU_STYPE_DAWN_TOGGLES},
                                        .enabled_count = count,
                                        .enabled = names,
                                        .disabled_count = exact ? 1 : 0,
                                        .disabled = &rounding};
    for (int attempt = 0; attempt < 3 && d->gpu->device == NULL; ++attempt) {
        tg_status status =
            open_request(d, adapter, attempt < 2 && !d->gpu->wish.guaranteed, attempt<1, count> 0 || exact ? &chain.chain : NULL);
        if (status != TG_OK) return status;
        d->gpu->times = adapter->times && attempt < 1;
    }
    if (d->gpu->device != NULL) return TG_OK;
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the adapter %s gives no device: %s", d->gpu->name, d->text);
}
/* ---- an application's device: borrowed. Its properties are known if the library tells its
 * adapter. */

static void open_foreign(webgpu_device *d, const tg_webgpu_device *foreign) {
    d->gpu->device = foreign->device;
    snprintf(d->gpu->name, sizeof d->gpu->name, "the application's device");
    snprintf(d->gpu->description, sizeof d->gpu->description, "webgpu (%s)", d->gpu->name);
    tg_wgpu_adapter handle = d->host->api.device_get_adapter != NULL ? d->host->api.device_get_adapter(d->gpu->device) : NULL;
    if (handle == NULL) return;
    webgpu_adapter adapter;
    tg_webgpu_read_adapter(d, handle, &adapter);
    d->host->api.adapter_release(handle);
    open_describe(d, &adapter);
    d->gpu->times = adapter.times && d->host->api.device_has_feature != NULL &&
                    d->host->api.device_has_feature(d->gpu->device, adapter.features[0]) != 0;
}

/* ---- what the device accepts */

/* A module and a pipeline; the layout is the module's own. */
static tg_status open_make(webgpu_device *d, const char *source) {
    const tg_wgpu_shader_source wgsl = {.chain = {.type = TG_WGPU_STYPE_WGSL}, .code = webgpu_string(source)};
    const tg_wgpu_shader_descriptor shader = {.next = &wgsl.chain, .label = webgpu_string("probe")};
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_wgpu_shader_module module = d->host->api.device_create_shader_module(d->gpu->device, &shader);
    const tg_wgpu_compute_pipeline_descriptor descriptor = {.label = webgpu_string("probe"),
                                                            .compute = {.module = module, .entry = webgpu_string("main")}};
    tg_wgpu_compute_pipeline pipeline = module != NULL ? d->host->api.device_create_compute_pipeline(d->gpu->device, &descriptor) : NULL;
    tg_status status = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "trying out a part of WGSL");
    if (status == TG_OK && pipeline == NULL) status = tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no pipeline");
    if (pipeline != NULL) d->host->api.compute_pipeline_release(pipeline);
    if (module != NULL) d->host->api.shader_module_release(module);
    return status;
}
/* Does the device make a pipeline of it? A device that refuses is no error; a lost one is. */
static tg_status open_try(webgpu_device *d, const char *source, bool *takes) {
    tg_status status = open_make(d, source);
    *takes = status == TG_OK;
    if (status != TG_ERROR_DEVICE || d->gpu->silent) return status;
    tg_clear_error(d->ctx);
    return tg_webgpu_alive(d);
}
/* Work for a software adapter is laid out without tiles, and only tiles use halves. */
static tg_status open_try_f16(webgpu_device *d) {
    bool matrices = false;
    if (!d->wants_f16 || d->gpu->model.slow_barriers) return TG_OK;
    tg_status status = open_try(d, tg_wgsl_f16_probe, &d->gpu->model.f16);
    if (status != TG_OK || !d->gpu->model.f16 || d->gpu->subgroup_size == 0 || d->gpu->wish.guaranteed) return status;
    status = open_try(d, tg_wgsl_matrix_probe, &matrices);
    if (matrices) d->gpu->model.matrix_subgroup = d->gpu->subgroup_size;
    return status;
}

/* ---- examining an open device */

static int64_t open_patience(void) {
    const char *text = getenv("TENSORGRAD_WEBGPU_TIMEOUT");
    const double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 1e6 ? (int64_t)(seconds * OPEN_SECOND) : (int64_t)OPEN_PATIENCE_SECONDS * OPEN_SECOND;
}
/* Finds out limits, the queue, what the device accepts, and that it computes. */
static tg_status open_examine(webgpu_device *d) {
    tg_status status = open_read_limits(d);
    if (status == TG_OK) status = open_try_f16(d);
    if (status != TG_OK) return status;
    d->gpu->queue = d->host->api.device_get_queue(d->gpu->device);
    if (d->gpu->queue == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device (%s) has no queue", d->gpu->name);
    return d->gpu->executes ? tg_webgpu_prove(d) : TG_OK;
}
static tg_status open_adapter(webgpu_device *d, const webgpu_adapter *adapter) {
    open_describe(d, adapter);
    tg_status status = open_device(d, adapter);
    return status == TG_OK ? open_examine(d) : status;
}
/* Puts another GPU in the place of one that failed, and logs the failure. If there is no memory for
 * another one, the failure stays the error. */
static tg_status open_pass_over(webgpu_device *d) {
    char line[TG_WEBGPU_LINE];
    webgpu_gpu *next = tg_webgpu_make_gpu(d->ctx, d->host);
    if (next == NULL) return TG_ERROR_MEMORY;
    next->wish = d->gpu->wish;
    next->alone = d->gpu->alone;
    tg_webgpu_leave(d);
    tg_webgpu_discard_gpu(d->gpu);
    tg_webgpu_enter(d);
    d->gpu = next;
    snprintf(line, sizeof line, "%.700s: the next adapter is tried", d->ctx->message);
    if (d->ctx->log != NULL) d->ctx->log(d->ctx->log_user, TG_LOG_WARNING, line);
    tg_clear_error(d->ctx);
    return TG_OK;
}
/* Opens the adapter that was asked for; with AUTO the first that is of use. */
static tg_status open_own(webgpu_device *d, const tg_open_options *options) {
    tg_status status = tg_webgpu_find_adapters(d);
    if (status != TG_OK) return status;
    int number = tg_webgpu_next_adapter(d, options, 0);
    if (number < 0) return tg_webgpu_no_adapter(d, options);
    status = open_adapter(d, &d->adapters[number]);
    while (status != TG_OK && status != TG_ERROR_MEMORY && options->real_gpu && !atomic_load(&d->gpu->silent)) {
        number = tg_webgpu_next_adapter(d, options, number + 1);
        if (number < 0 || open_pass_over(d) != TG_OK) break;
        status = open_adapter(d, &d->adapters[number]);
    }
    tg_webgpu_drop_adapters(d);
    return status;
}

/* What a model has of its own on an open GPU. */
static tg_status open_view(webgpu_device *d) {
    d->model = d->gpu->model;
    tg_status status = d->gpu->tuning_name[0] != '\0' ? tg_tuning_load(d->ctx, d->gpu->tuning_name, &d->tuning) : TG_OK;
    if (status != TG_OK) return status;
    if (d->tuning.table.count > 0) d->model.schedules = &d->tuning.table;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    status = tg_webgpu_make_buffer(d, 4, TG_WGPU_USAGE_COPY_SOURCE | TG_WGPU_USAGE_COPY_DESTINATION, "a fence", &d->fence_source);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, 4, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "a fence", &d->fence);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making a fence");
    return status != TG_OK ? status : scopes;
}
static tg_status open_first(webgpu_device *d, const tg_open_options *options) {
    tg_status status = TG_OK;
    if (options->foreign == NULL) {
        status = open_own(d, options);
    } else {
        open_foreign(d, options->foreign);
        status = open_examine(d);
    }
    if (status == TG_OK) status = open_view(d);
    if (status != TG_OK) return status;
    tg_webgpu_publish_gpu(d->gpu);
    tg_webgpu_join_gpu(d->gpu);
    d->joined = true;
    return TG_OK;
}
/* ---- the wish */

static tg_status open_wish(tg_context *ctx, const tg_open_options *options, webgpu_wish *wish, bool *alone) {
    const char *limits = getenv("TENSORGRAD_WEBGPU_LIMITS"), *toggles = getenv("TENSORGRAD_WEBGPU_TOGGLES");
    const char *adapter = options->adapter != NULL ? options->adapter : "";
    memset(wish, 0, sizeof *wish);
    wish->f16 = options->f16;
    wish->guaranteed = limits != NULL && strcmp(limits, "guaranteed") == 0;
    *alone = options->alone || strlen(adapter) >= sizeof wish->adapter;
    snprintf(wish->adapter, sizeof wish->adapter, "%s", adapter);
    if (toggles != NULL && strlen(toggles) >= sizeof wish->toggles)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "webgpu: TENSORGRAD_WEBGPU_TOGGLES is longer than %d characters",
                       TG_WEBGPU_WISH_TOGGLES - 1);
    snprintf(wish->toggles, sizeof wish->toggles, "%s", toggles != NULL ? toggles : "");
    return TG_OK;
}

/* ---- beginning and ending. All of it runs between tg_webgpu_share_begin and
 * tg_webgpu_share_end. */

static tg_status open_place(webgpu_device *d, const tg_webgpu_api *api, const tg_webgpu_device *foreign, webgpu_gpu *found) {
    tg_status status = tg_webgpu_take_host(d->ctx, api, foreign != NULL ? foreign->instance : NULL, found, &d->host);
    if (status != TG_OK) return status;
    d->gpu = found != NULL ? found : tg_webgpu_make_gpu(d->ctx, d->host);
    d->joined = found != NULL;
    if (found != NULL) tg_webgpu_join_gpu(found);
    if (d->gpu != NULL) return TG_OK;
    tg_webgpu_drop_host(d->host);
    return TG_ERROR_MEMORY;
}
/* On a host, with a GPU that was found, or with one that is not yet open. */
static tg_status open_begin(tg_context *ctx, const tg_webgpu_api *api, const tg_webgpu_device *foreign, webgpu_gpu *found,
                            webgpu_device **out) {
    webgpu_device *d = calloc(1, sizeof *d);
    if (d == NULL) return tg_fail_memory(ctx, sizeof *d);
    d->ctx = ctx;
    d->patience = open_patience();
    d->slow = OPEN_SLOW_NS;
    d->staging = tg_alloc(ctx, TG_WEBGPU_STAGING_BYTES);
    tg_status status = d->staging != NULL ? open_place(d, api, foreign, found) : TG_ERROR_MEMORY;
    if (status == TG_OK) {
        *out = d;
        return TG_OK;
    }
    if (d->staging != NULL) tg_release(ctx, d->staging, TG_WEBGPU_STAGING_BYTES);
    free(d);
    return status;
}
static void open_drop_view(webgpu_device *d) {
    for (int64_t s = 0; s < d->states.count; ++s) tg_webgpu_drop_buffer(d, &d->states.items[s].buffer);
    if (d->states.items != NULL) tg_release(d->ctx, d->states.items, (size_t)d->states.capacity * sizeof(webgpu_state));
    tg_webgpu_drop_buffer(d, &d->fence_source);
    tg_webgpu_drop_buffer(d, &d->fence);
    tg_webgpu_drop_buffer(d, &d->readback);
    tg_webgpu_drop_flights(d);
    tg_webgpu_drop_adapters(d);
    if (d->answers.pending > 0 && !atomic_load(&d->gpu->silent)) tg_webgpu_pump(d);
    tg_release(d->ctx, d->staging, TG_WEBGPU_STAGING_BYTES);
    tg_tuning_free(&d->tuning);
}
static void open_end(webgpu_device *d) {
    webgpu_host *host = d->host;
    webgpu_gpu *gpu = d->gpu;
    const bool joined = d->joined;
    tg_webgpu_enter(d);
    open_drop_view(d);
    if (atomic_load(&gpu->silent)) host->retired = true;
    tg_webgpu_leave(d);
    if (joined) tg_webgpu_leave_gpu(gpu);
    else tg_webgpu_discard_gpu(gpu);
    tg_webgpu_bury(host, &d->answers);
    tg_webgpu_drop_host(host);
}

/* ---- opening and closing */

static tg_status open_new(tg_context *ctx, const tg_webgpu_api *api, const tg_open_options *options, const webgpu_wish *wish, bool alone,
                          tg_device **out) {
    webgpu_device *d = NULL;
    tg_status status = open_begin(ctx, api, options->foreign, NULL, &d);
    if (status != TG_OK) return status;
    tg_webgpu_enter(d);
    d->gpu->wish = *wish;
    d->gpu->alone = alone;
    d->wants_f16 = options->f16;
    status = open_first(d, options);
    tg_webgpu_leave(d);
    if (status == TG_OK) *out = (tg_device *)(void *)d;
    else open_end(d);
    return status;
}
/* A GPU that was idle may have been lost, and nobody noticed: it is asked for something before it
 * is relied upon. */
static tg_status open_found(tg_context *ctx, const tg_webgpu_api *api, const tg_webgpu_device *foreign, webgpu_gpu *found, bool was_idle,
                            tg_device **out) {
    webgpu_device *d = NULL;
    tg_status status = open_begin(ctx, api, foreign, found, &d);
    if (status != TG_OK) return status;
    tg_webgpu_enter(d);
    status = open_view(d);
    if (status == TG_OK && was_idle) status = tg_webgpu_finish(d);
    tg_webgpu_leave(d);
    if (status == TG_OK) *out = (tg_device *)(void *)d;
    else open_end(d);
    return status;
}
static tg_status open_with(tg_context *ctx, const tg_webgpu_api *api, const tg_open_options *options, tg_device **out) {
    webgpu_wish wish;
    bool alone = false;
    const tg_wgpu_device foreign = options->foreign != NULL ? options->foreign->device : NULL;
    tg_status status = open_wish(ctx, options, &wish, &alone);
    if (status != TG_OK) return status;
    for (;;) {
        webgpu_gpu *found = alone && foreign == NULL ? NULL : tg_webgpu_find_gpu(api, &wish, options->real_gpu, foreign);
        if (found == NULL) return open_new(ctx, api, options, &wish, alone, out);
        const bool was_idle = atomic_load(&found->users) == 0;
        status = open_found(ctx, api, options->foreign, found, was_idle, out);
        if (status != TG_ERROR_DEVICE_LOST || !was_idle) return status;
        tg_clear_error(ctx); /* it is not found again */
    }
}
tg_status tg_webgpu_open_with(tg_context *ctx, const tg_webgpu_api *api, const tg_open_options *options, tg_device **out) {
    if (options->foreign != NULL && (options->foreign->instance == NULL || options->foreign->device == NULL))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "webgpu: the given device needs its WGPUInstance and its WGPUDevice");
    tg_webgpu_share_begin();
    tg_status status = open_with(ctx, api, options, out);
    tg_webgpu_share_end();
    return status;
}
void tg_webgpu_close(tg_device *device) {
    if (device == NULL) return;
    tg_webgpu_share_begin();
    open_end(webgpu_of(device));
    tg_webgpu_share_end();
}
static void *open_procedure(void *user, const char *name) {
    const tg_webgpu_device *foreign = user;
    return foreign->procedure(name);
}
tg_status tg_webgpu_open_found(tg_context *ctx, const tg_open_options *options, tg_device **out) {
    tg_webgpu_api api;
    tg_status status;
    if (options->foreign != NULL && options->foreign->procedure != NULL) {
        tg_webgpu_device foreign = *options->foreign;
        status = tg_webgpu_fill(ctx, open_procedure, &foreign, "the given procedure", &api);
    } else {
        status = tg_webgpu_library(ctx, &api);
    }
    return status == TG_OK ? tg_webgpu_open_with(ctx, &api, options, out) : status;
}

/* ---- listing */

tg_status tg_webgpu_adapters_with(tg_context *ctx, const tg_webgpu_api *api, tg_adapter_info *out, int capacity, int *count) {
    webgpu_device *d = NULL;
    tg_webgpu_share_begin();
    tg_status status = open_begin(ctx, api, NULL, NULL, &d);
    if (status == TG_OK) {
        tg_webgpu_enter(d);
        d->wants_f16 = true; /* lists what would be used with f16 */
        status = tg_webgpu_find_adapters(d);
        if (status == TG_OK) *count = d->adapter_count;
        for (int i = 0; status == TG_OK && i < d->adapter_count && i < capacity; ++i) out[i] = d->adapters[i].info;
        tg_webgpu_leave(d);
        open_end(d);
    }
    tg_webgpu_share_end();
    return status;
}
tg_status tg_adapters_at(tg_site site, tg_context *ctx, tg_adapter_info *out, int capacity, int *count) {
    if (ctx == NULL) return TG_ERROR_ARGUMENT;
    if (ctx->trace == NULL) tg_clear_error(ctx); /* a trace in progress keeps its first error */
    ctx->call_site = site;
    if (count == NULL || capacity < 0 || (out == NULL && capacity > 0))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "adapters: count is NULL, or capacity %d does not go with out", capacity);
    tg_webgpu_api api;
    if (tg_webgpu_library(ctx, &api) == TG_OK) return tg_webgpu_adapters_with(ctx, &api, out, capacity, count);
    if (ctx->log != NULL) ctx->log(ctx->log_user, TG_LOG_INFO, ctx->message);
    if (ctx->trace == NULL) tg_clear_error(ctx);
    *count = 0;
    return TG_OK;
}

#undef OPEN_SECOND
