/* open: a device from the library's adapters, or an application's own; its limits; and closing it. Environment, for tests and
 * benchmarks: TENSORGRAD_WEBGPU_LIMITS=guaranteed asks for no more than every WebGPU device has; TENSORGRAD_WEBGPU_TIMEOUT=seconds
 * replaces the ten minutes after which a wait is given up; TENSORGRAD_WEBGPU_TOGGLES=name,name switches Dawn's toggles on, which
 * may switch checks off. Must not know programs. */
#include "run/webgpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_TOGGLES = 16, OPEN_PATIENCE_SECONDS = 600, OPEN_SLOW_NS = 250000000 };
#define OPEN_SECOND 1000000000

tg_limits tg_webgpu_guaranteed_limits(void) {
    return (tg_limits){
        .max_arguments = 7, .max_binding_bytes = INT64_C(128) << 20, .bool_bytes = 4, .joins = true}; /* one is for scratch */
}

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
    memset(&d->raw, 0xFF, sizeof d->raw);
    d->raw.next = NULL;
    if (d->api.device_get_limits(d->device, &d->raw) != TG_WGPU_SUCCESS)
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device (%s) does not tell its limits", d->name);
    if (d->guaranteed) {
        d->raw.max_storage_buffers = 8;
        d->raw.max_storage_binding_bytes = UINT64_C(128) << 20;
        d->raw.max_buffer_bytes = UINT64_C(256) << 20;
        d->raw.max_workgroup_bytes = 16384;
        d->raw.max_workgroup_invocations = d->raw.max_workgroup_x = 256;
        d->raw.max_workgroups = 65535;
    }
    const tg_wgpu_limits *raw = &d->raw;
    const int32_t bindings =
        open_least((uint32_t)open_least(raw->max_storage_buffers, raw->max_bindings_per_bind_group), TG_WEBGPU_MAX_BINDINGS);
    d->limits = (tg_limits){.max_arguments = bindings - 1,
                            .max_binding_bytes = open_bytes(raw->max_storage_binding_bytes, raw->max_buffer_bytes),
                            .bool_bytes = 4,
                            .joins = true};
    d->wgsl = (tg_wgsl_limits){.invocations = open_least(raw->max_workgroup_invocations, raw->max_workgroup_x),
                               .workgroup_bytes = open_least(raw->max_workgroup_bytes, INT32_MAX),
                               .groups = open_least(raw->max_workgroups, INT32_MAX),
                               .storage_buffers = bindings,
                               .slow_barriers = d->software && !d->guaranteed};
    if (bindings < 2 || raw->min_storage_offset_alignment > TG_WEBGPU_ALIGN)
        return tg_fail(d->ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "webgpu: the device (%s) is below what WebGPU guarantees", d->name);
    return TG_OK;
}

static void open_describe(webgpu_device *d, const webgpu_adapter *adapter) {
    snprintf(d->name, sizeof d->name, "%s", adapter->info.name);
    snprintf(d->description, sizeof d->description, "webgpu (%s, %s)", d->name, adapter->info.backend);
    d->software = strcmp(adapter->info.type, "cpu") == 0;
    d->executes = tg_webgpu_executes(&adapter->info);
    if (!d->executes) snprintf(d->description, sizeof d->description, "webgpu (%s, which executes nothing)", d->name);
    snprintf(d->tuning_name, sizeof d->tuning_name, "%s; %s; %s; %s; %s", adapter->info.name, adapter->info.vendor,
             adapter->info.architecture, adapter->info.backend, adapter->driver);
    for (char *c = d->tuning_name; *c != '\0'; ++c)
        if ((unsigned char)*c < ' ') *c = ' ';
    if (adapter->info.subgroup_min == adapter->info.subgroup_max) d->subgroup_size = adapter->info.subgroup_max;
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
        .lost = {.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = tg_webgpu_on_lost, .user = d},
        .error = {.call = tg_webgpu_on_error, .user = d},
    };
    d->opening = (webgpu_request){.text = d->text, .room = sizeof d->text};
    d->api.adapter_request_device(
        adapter->handle, &descriptor,
        (tg_wgpu_device_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = open_on_device, .user = &d->opening});
    tg_status status = tg_webgpu_wait(d, &d->opening, "asking for a device");
    if (d->opening.done && d->opening.status == TG_WGPU_SUCCESS) d->device = d->opening.object;
    return status;
}
/* Fills `names` from "one,two"; text is cut up. */
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
/* All the adapter has; what a driver then refuses is asked for again without features, then without limits. */
static tg_status open_device(webgpu_device *d, const webgpu_adapter *adapter) {
    const char *toggles = getenv("TENSORGRAD_WEBGPU_TOGGLES"), *names[OPEN_TOGGLES + WEBGPU_F16_TOGGLES];
    char text[512];
    snprintf(text, sizeof text, "%s", toggles != NULL && d->dawn ? toggles : "");
    size_t count = open_toggles(text, names);
    for (int i = 0; i < WEBGPU_F16_TOGGLES && d->dawn && d->wants_f16; ++i) names[count++] = tg_webgpu_f16_toggles[i];
    const tg_wgpu_dawn_toggles chain = {.chain = {.type = TG_WGPU_STYPE_DAWN_TOGGLES}, .enabled_count = count, .enabled = names};
    for (int attempt = 0; attempt < 3 && d->device == NULL; ++attempt) {
        tg_status status = open_request(d, adapter, attempt < 2 && !d->guaranteed, attempt<1, chain.enabled_count> 0 ? &chain.chain : NULL);
        if (status != TG_OK) return status;
    }
    if (d->device != NULL) return TG_OK;
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the adapter %s gives no device: %s", d->name, d->text);
}
static tg_status open_own(webgpu_device *d, const tg_open_options *options) {
    const webgpu_adapter *adapter = NULL;
    tg_status status = tg_webgpu_find_adapters(d);
    if (status == TG_OK) status = tg_webgpu_choose(d, options, &adapter);
    if (status != TG_OK) return status;
    open_describe(d, adapter);
    status = open_device(d, adapter);
    tg_webgpu_drop_adapters(d);
    return status;
}

/* ---- an application's device: borrowed. What it is can be asked where the library tells. */

static void open_foreign(webgpu_device *d, const tg_webgpu_device *foreign) {
    d->device = foreign->device;
    snprintf(d->name, sizeof d->name, "the application's device");
    snprintf(d->description, sizeof d->description, "webgpu (%s)", d->name);
    tg_wgpu_adapter handle = d->api.device_get_adapter != NULL ? d->api.device_get_adapter(d->device) : NULL;
    if (handle == NULL) return;
    webgpu_adapter adapter;
    tg_webgpu_read_adapter(d, handle, &adapter);
    d->api.adapter_release(handle);
    open_describe(d, &adapter);
}

/* ---- what the device takes */

/* A module and a pipeline; the layout is whatever the module says. */
static tg_status open_make(webgpu_device *d, const char *source) {
    const tg_wgpu_shader_source wgsl = {.chain = {.type = TG_WGPU_STYPE_WGSL}, .code = webgpu_string(source)};
    const tg_wgpu_shader_descriptor shader = {.next = &wgsl.chain, .label = webgpu_string("probe")};
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_wgpu_shader_module module = d->api.device_create_shader_module(d->device, &shader);
    const tg_wgpu_compute_pipeline_descriptor descriptor = {.label = webgpu_string("probe"),
                                                            .compute = {.module = module, .entry = webgpu_string("main")}};
    tg_wgpu_compute_pipeline pipeline = module != NULL ? d->api.device_create_compute_pipeline(d->device, &descriptor) : NULL;
    tg_status status = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "trying out a part of WGSL");
    if (status == TG_OK && pipeline == NULL) status = tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no pipeline");
    if (pipeline != NULL) d->api.compute_pipeline_release(pipeline);
    if (module != NULL) d->api.shader_module_release(module);
    return status;
}
/* Whether the device makes a pipeline of it. A device that refuses is no error; one that is gone is. */
static tg_status open_try(webgpu_device *d, const char *source, bool *takes) {
    tg_status status = open_make(d, source);
    *takes = status == TG_OK;
    if (status != TG_ERROR_DEVICE || d->silent) return status;
    tg_clear_error(d->ctx);
    return tg_webgpu_alive(d);
}
/* Work for a software adapter is laid out without the tiles that halves are for. */
static tg_status open_try_f16(webgpu_device *d) {
    bool matrices = false;
    if (!d->wants_f16 || d->wgsl.slow_barriers) return TG_OK;
    tg_status status = open_try(d, tg_wgsl_f16_probe, &d->wgsl.f16);
    if (status != TG_OK || !d->wgsl.f16 || d->subgroup_size == 0 || d->guaranteed) return status;
    status = open_try(d, tg_wgsl_matrix_probe, &matrices);
    if (matrices) d->wgsl.matrix_subgroup = d->subgroup_size;
    return status;
}

/* ---- opening and closing */

static int64_t open_patience(void) {
    const char *text = getenv("TENSORGRAD_WEBGPU_TIMEOUT");
    const double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 1e6 ? (int64_t)(seconds * OPEN_SECOND) : (int64_t)OPEN_PATIENCE_SECONDS * OPEN_SECOND;
}
tg_status tg_webgpu_begin(tg_context *ctx, const tg_webgpu_api *api, webgpu_device **out) {
    webgpu_device *d = tg_alloc(ctx, sizeof *d);
    if (d == NULL) return TG_ERROR_MEMORY;
    const char *limits = getenv("TENSORGRAD_WEBGPU_LIMITS");
    d->ctx = ctx;
    d->api = *api;
    d->dawn = api->device_tick != NULL;
    d->wgpu_native = api->device_poll != NULL;
    d->old_layout_entry = d->wgpu_native && (api->get_version == NULL || api->get_version() >> 24 < 29);
    d->guaranteed = limits != NULL && strcmp(limits, "guaranteed") == 0;
    d->executes = true;
    d->patience = open_patience();
    d->slow = OPEN_SLOW_NS;
    snprintf(d->name, sizeof d->name, "not opened");
    d->staging = tg_alloc(ctx, TG_WEBGPU_STAGING_BYTES);
    if (d->staging == NULL) {
        tg_release(ctx, d, sizeof *d);
        return TG_ERROR_MEMORY;
    }
    *out = d;
    return TG_OK;
}
static tg_status open_instance(webgpu_device *d) {
    d->instance = d->api.create_instance(NULL);
    if (d->instance == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the library makes no instance");
    return TG_OK;
}
static tg_status open_parts(webgpu_device *d, const tg_open_options *options) {
    tg_status status = TG_OK;
    d->wants_f16 = options->f16;
    if (options->foreign != NULL) {
        d->foreign = true;
        d->instance = options->foreign->instance;
        open_foreign(d, options->foreign);
    } else {
        status = open_instance(d);
        if (status == TG_OK) status = open_own(d, options);
    }
    if (status == TG_OK) status = open_read_limits(d);
    if (status == TG_OK && d->tuning_name[0] != '\0') status = tg_tuning_load(d->ctx, d->tuning_name, &d->tuning);
    if (status == TG_OK) status = open_try_f16(d);
    if (status != TG_OK) return status;
    if (d->tuning.table.count > 0) d->wgsl.schedules = &d->tuning.table;
    d->queue = d->api.device_get_queue(d->device);
    if (d->queue == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device (%s) has no queue", d->name);
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    status = tg_webgpu_make_buffer(d, 4, TG_WGPU_USAGE_COPY_SOURCE | TG_WGPU_USAGE_COPY_DESTINATION, "a fence", &d->fence_source);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, 4, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "a fence", &d->fence);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making a fence");
    if (status == TG_OK) status = scopes;
    return status == TG_OK && d->executes ? tg_webgpu_prove(d) : status;
}
tg_status tg_webgpu_open_with(tg_context *ctx, const tg_webgpu_api *api, const tg_open_options *options, tg_device **out) {
    webgpu_device *d = NULL;
    if (options->foreign != NULL && (options->foreign->instance == NULL || options->foreign->device == NULL))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "webgpu: the given device needs its WGPUInstance and its WGPUDevice");
    tg_status status = tg_webgpu_begin(ctx, api, &d);
    if (status != TG_OK) return status;
    status = open_parts(d, options);
    if (status != TG_OK) {
        tg_webgpu_close((tg_device *)(void *)d);
        return status;
    }
    *out = (tg_device *)(void *)d;
    return TG_OK;
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

/* The library forgets requests once the instance is gone; until then their memory stays. An application's instance stays: a request
 * to it that was given up may still be answered, so what it would write to is left behind. */
static void open_forget(webgpu_device *d) {
    tg_context *ctx = d->ctx;
    if (d->foreign && d->silent) return;
    while (d->abandoned != NULL) {
        webgpu_abandoned *next = d->abandoned->next;
        tg_release(ctx, d->abandoned, d->abandoned->bytes);
        d->abandoned = next;
    }
    tg_release(ctx, d, sizeof *d);
}
void tg_webgpu_close(tg_device *device) {
    if (device == NULL) return;
    webgpu_device *d = webgpu_of(device);
    for (int64_t s = 0; s < d->states.count; ++s) tg_webgpu_drop_buffer(d, &d->states.items[s].buffer);
    if (d->states.items != NULL) tg_release(d->ctx, d->states.items, (size_t)d->states.capacity * sizeof(webgpu_state));
    tg_webgpu_drop_buffer(d, &d->fence_source);
    tg_webgpu_drop_buffer(d, &d->fence);
    tg_webgpu_drop_buffer(d, &d->readback);
    tg_webgpu_drop_flights(d);
    if (d->queue != NULL) d->api.queue_release(d->queue);
    if (d->device != NULL && !d->foreign) {
        d->api.device_destroy(d->device);
        d->api.device_release(d->device);
    }
    tg_webgpu_drop_adapters(d);
    if (d->instance != NULL && !d->foreign) d->api.instance_release(d->instance);
    tg_release(d->ctx, d->staging, TG_WEBGPU_STAGING_BYTES);
    tg_tuning_free(&d->tuning);
    open_forget(d);
}

/* ---- listing */

tg_status tg_webgpu_adapters_with(tg_context *ctx, const tg_webgpu_api *api, tg_adapter_info *out, int capacity, int *count) {
    webgpu_device *d = NULL;
    tg_status status = tg_webgpu_begin(ctx, api, &d);
    if (status != TG_OK) return status;
    d->wants_f16 = true; /* lists what would be used then */
    status = open_instance(d);
    if (status == TG_OK) status = tg_webgpu_find_adapters(d);
    if (status == TG_OK) {
        *count = d->adapter_count;
        for (int i = 0; i < d->adapter_count && i < capacity; ++i) out[i] = d->adapters[i].info;
    }
    tg_webgpu_close((tg_device *)(void *)d);
    return status;
}
tg_status tg_adapters(tg_context *ctx, tg_adapter_info *out, int capacity, int *count) {
    if (ctx == NULL) return TG_ERROR_ARGUMENT;
    if (ctx->trace == NULL) tg_clear_error(ctx); /* a trace in progress keeps its first error */
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
