/* adapters: the GPUs that a library offers: asks for them in every way there is, describes, sorts
 * and chooses them. Must not know devices beyond the instance.
 *
 * Features. Their numbers were rearranged once (core-features-and-limits from 18 to 1, all others
 * moved), so 3 is timestamp-query in one generation and depth32float-stencil8 in the next. A
 * library's generation is known from features that only the newer one numbers and from functions
 * that only one of them exports; if neither tells it, no feature is named or asked for.
 *
 * Dawn hides what it considers unsafe, or has seen a driver fail at, unless it is told otherwise:
 * subgroup matrices, and f16 on NVIDIA's Vulkan driver. Both are asked for if f16 is wanted;
 * whether a device then takes them is tested when it is open (open.c). */
#include "run/webgpu/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADAPTERS_TIMESTAMPS, ADAPTERS_SUBGROUPS, ADAPTERS_F16, ADAPTERS_MATRICES };
static const uint32_t adapters_older[WEBGPU_FEATURES] = {0x03, 0x11, 0x0A, 0x00050037};
static const uint32_t adapters_newer[WEBGPU_FEATURES] = {0x09, 0x12, 0x0B, 0x00050034};

const char *const tg_webgpu_f16_toggles[WEBGPU_F16_TOGGLES] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};

static bool adapters_lists(tg_wgpu_features features, uint32_t number) {
    for (size_t i = 0; i < features.count; ++i)
        if (features.items[i] == number) return true;
    return false;
}
/* The feature numbers of this library, or NULL. */
static const uint32_t *adapters_generation(const tg_webgpu_api *api, tg_wgpu_features features) {
    for (size_t i = 0; i < features.count; ++i)
        if (features.items[i] > 0x12 && features.items[i] < 0x40) return adapters_newer;
    if (api->get_instance_features != NULL) return adapters_newer;
    return api->get_instance_capabilities != NULL ? adapters_older : NULL;
}
/* Are passes timed as webgpu.h has it today? Dawns of both generations do so; wgpu-native counts in
 * ticks of its own. */
static bool adapters_times(const tg_webgpu_api *api, const uint32_t *numbers) {
    if (api->device_create_query_set == NULL || api->encoder_resolve_query_set == NULL) return false;
    if (api->query_set_destroy == NULL || api->query_set_release == NULL || api->device_poll != NULL) return false;
    return api->device_tick != NULL || numbers == adapters_newer;
}
static void adapters_read_features(const tg_webgpu_api *api, webgpu_adapter *adapter) {
    tg_wgpu_features features = {0, NULL};
    bool has[WEBGPU_FEATURES] = {false};
    api->adapter_get_features(adapter->handle, &features);
    const uint32_t *numbers = features.items != NULL ? adapters_generation(api, features) : NULL;
    for (int i = 0; numbers != NULL && i < (api->device_tick != NULL ? WEBGPU_FEATURES : ADAPTERS_MATRICES); ++i) {
        has[i] = adapters_lists(features, numbers[i]);
        if (has[i]) adapter->features[adapter->feature_count++] = numbers[i];
    }
    adapter->info.timestamps = has[ADAPTERS_TIMESTAMPS];
    adapter->times = has[ADAPTERS_TIMESTAMPS] && adapters_times(api, numbers);
    adapter->info.subgroups = has[ADAPTERS_SUBGROUPS];
    adapter->info.f16 = has[ADAPTERS_F16];
    adapter->info.subgroup_matrices = has[ADAPTERS_MATRICES];
    api->features_free_members(features);
}

/* ---- describing */

static const char *adapters_backend(uint32_t backend) {
    switch (backend) {
    case TG_WGPU_BACKEND_NULL: return "null";
    case TG_WGPU_BACKEND_D3D11: return "d3d11";
    case TG_WGPU_BACKEND_D3D12: return "d3d12";
    case TG_WGPU_BACKEND_METAL: return "metal";
    case TG_WGPU_BACKEND_VULKAN: return "vulkan";
    case TG_WGPU_BACKEND_OPENGL: return "opengl";
    case TG_WGPU_BACKEND_OPENGLES: return "opengles";
    default: return "other";
    }
}
static const char *adapters_type(uint32_t type) {
    switch (type) {
    case TG_WGPU_ADAPTER_DISCRETE: return "discrete";
    case TG_WGPU_ADAPTER_INTEGRATED: return "integrated";
    case TG_WGPU_ADAPTER_CPU: return "cpu";
    default: return "unknown";
    }
}
static int32_t adapters_count(uint32_t value) { return value > INT32_MAX ? INT32_MAX : (int32_t)value; }
static int64_t adapters_bytes(uint64_t value) { return value > INT64_MAX ? INT64_MAX : (int64_t)value; }

static void adapters_read_info(const tg_webgpu_api *api, webgpu_adapter *adapter) {
    tg_wgpu_adapter_info info;
    memset(&info, 0, sizeof info);
    if (api->adapter_get_info(adapter->handle, &info) != TG_WGPU_SUCCESS) return;
    tg_adapter_info *out = &adapter->info;
    tg_webgpu_copy_text(out->name, sizeof out->name, info.device);
    if (out->name[0] == '\0') tg_webgpu_copy_text(out->name, sizeof out->name, info.description);
    tg_webgpu_copy_text(out->vendor, sizeof out->vendor, info.vendor);
    if (out->name[0] == '\0') snprintf(out->name, sizeof out->name, "%s", out->vendor[0] != '\0' ? out->vendor : "unnamed");
    tg_webgpu_copy_text(out->architecture, sizeof out->architecture, info.architecture);
    snprintf(out->backend, sizeof out->backend, "%s", adapters_backend(info.backend));
    snprintf(out->type, sizeof out->type, "%s", adapters_type(info.type));
    out->subgroup_min = adapters_count(info.subgroup_min);
    out->subgroup_max = adapters_count(info.subgroup_max);
    tg_webgpu_copy_text(adapter->driver, sizeof adapter->driver, info.description);
    adapter->device_id = info.device_id;
    api->adapter_info_free_members(info);
}
void tg_webgpu_read_adapter(const webgpu_device *d, tg_wgpu_adapter handle, webgpu_adapter *out) {
    memset(out, 0, sizeof *out);
    memset(&out->limits, 0xFF, sizeof out->limits);
    out->handle = handle;
    out->limits.next = NULL;
    snprintf(out->info.name, sizeof out->info.name, "unnamed");
    adapters_read_info(&d->host->api, out);
    adapters_read_features(&d->host->api, out);
    if (d->host->api.adapter_get_limits(handle, &out->limits) != TG_WGPU_SUCCESS) return;
    out->info.max_buffer_bytes = adapters_bytes(out->limits.max_buffer_bytes);
    out->info.max_binding_bytes = adapters_bytes(out->limits.max_storage_binding_bytes);
    out->info.max_storage_buffers = adapters_count(out->limits.max_storage_buffers);
    out->info.max_workgroup_bytes = adapters_count(out->limits.max_workgroup_bytes);
    out->info.max_workgroup_invocations = adapters_count(out->limits.max_workgroup_invocations);
    out->info.max_workgroups = adapters_count(out->limits.max_workgroups);
}

/* ---- finding */

/* Takes over the handle; releases it if the adapter was seen before. */
static void adapters_add(webgpu_device *d, tg_wgpu_adapter handle) {
    webgpu_adapter *added = &d->adapters[d->adapter_count];
    if (handle == NULL) return;
    if (d->adapter_count == TG_WEBGPU_MAX_ADAPTERS) {
        d->host->api.adapter_release(handle);
        return;
    }
    tg_webgpu_read_adapter(d, handle, added);
    for (int i = 0; i < d->adapter_count; ++i) {
        const webgpu_adapter *other = &d->adapters[i];
        if (strcmp(other->info.name, added->info.name) == 0 && strcmp(other->info.backend, added->info.backend) == 0 &&
            strcmp(other->info.type, added->info.type) == 0 && other->device_id == added->device_id) {
            d->host->api.adapter_release(handle);
            return;
        }
    }
    d->adapter_count++;
}
static void adapters_on_adapter(uint32_t status, tg_wgpu_adapter adapter, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    tg_webgpu_answer(user, status, adapter, text);
}
static tg_status adapters_ask(webgpu_device *d, uint32_t power, uint32_t backend, bool fallback) {
    const tg_wgpu_dawn_toggles toggles = {
        .chain = {.type = TG_WGPU_STYPE_DAWN_TOGGLES}, .enabled_count = WEBGPU_F16_TOGGLES, .enabled = tg_webgpu_f16_toggles};
    const tg_wgpu_adapter_options options = {.next = d->host->dawn && d->wants_f16 ? &toggles.chain : NULL,
                                             .feature_level = TG_WGPU_LEVEL_CORE,
                                             .power = power,
                                             .force_fallback = fallback ? 1 : 0,
                                             .backend = backend};
    tg_webgpu_ask(&d->opening, &d->answers, d->text, sizeof d->text);
    d->host->api.instance_request_adapter(
        d->host->instance, &options,
        (tg_wgpu_adapter_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = adapters_on_adapter, .user = &d->opening});
    tg_status status = tg_webgpu_wait(d, &d->opening, "asking for an adapter");
    if (status == TG_OK && d->opening.status == TG_WGPU_SUCCESS) adapters_add(d, d->opening.object);
    return status;
}
static tg_status adapters_ask_all(webgpu_device *d) {
    static const uint32_t backends[] = {TG_WGPU_BACKEND_VULKAN, TG_WGPU_BACKEND_METAL,  TG_WGPU_BACKEND_D3D12,
                                        TG_WGPU_BACKEND_D3D11,  TG_WGPU_BACKEND_OPENGL, TG_WGPU_BACKEND_OPENGLES};
    tg_status status = adapters_ask(d, TG_WGPU_POWER_HIGH, TG_WGPU_BACKEND_UNDEFINED, false);
    /* drivers that are still being loaded have been seen to refuse the first request */
    if (status == TG_OK && d->adapter_count == 0) status = adapters_ask(d, TG_WGPU_POWER_UNDEFINED, TG_WGPU_BACKEND_UNDEFINED, false);
    if (status == TG_OK) status = adapters_ask(d, TG_WGPU_POWER_LOW, TG_WGPU_BACKEND_UNDEFINED, false);
    if (status == TG_OK) status = adapters_ask(d, TG_WGPU_POWER_UNDEFINED, TG_WGPU_BACKEND_UNDEFINED, true);
    for (size_t i = 0; status == TG_OK && i < sizeof backends / sizeof backends[0]; ++i)
        status = adapters_ask(d, TG_WGPU_POWER_HIGH, backends[i], false);
    return status;
}
static void adapters_enumerate(webgpu_device *d) {
    tg_wgpu_adapter handles[TG_WEBGPU_MAX_ADAPTERS] = {NULL};
    const size_t count = d->host->api.instance_enumerate_adapters(d->host->instance, NULL, NULL);
    /* then adapters are asked for one by one */
    if (count == 0 || count > TG_WEBGPU_MAX_ADAPTERS) return;
    (void)d->host->api.instance_enumerate_adapters(d->host->instance, NULL, handles);
    for (size_t i = 0; i < count; ++i) adapters_add(d, handles[i]);
}

bool tg_webgpu_executes(const tg_adapter_info *info) { return strcmp(info->backend, "null") != 0; }

/* Lower is better: real GPUs first, then backends meant for computing; adapters that execute
 * nothing last. */
static int adapters_rank(const webgpu_adapter *adapter) {
    const char *type = adapter->info.type, *backend = adapter->info.backend;
    if (!tg_webgpu_executes(&adapter->info)) return 16;
    int rank = strcmp(type, "discrete") == 0 ? 0 : strcmp(type, "integrated") == 0 ? 4 : strcmp(type, "cpu") == 0 ? 12 : 8;
    if (strcmp(backend, "d3d11") == 0 || strncmp(backend, "opengl", 6) == 0) rank += 2;
    return rank;
}
/* by insertion: of equals, those found first stay first */
static void adapters_sort(webgpu_device *d) {
    for (int i = 1; i < d->adapter_count; ++i) {
        const webgpu_adapter moved = d->adapters[i];
        int to = i;
        for (; to > 0 && adapters_rank(&d->adapters[to - 1]) > adapters_rank(&moved); --to) d->adapters[to] = d->adapters[to - 1];
        d->adapters[to] = moved;
    }
}
tg_status tg_webgpu_find_adapters(webgpu_device *d) {
    tg_status status = TG_OK;
    d->adapters = tg_alloc(d->ctx, sizeof(webgpu_adapter) * TG_WEBGPU_MAX_ADAPTERS);
    if (d->adapters == NULL) return TG_ERROR_MEMORY;
    if (d->host->wgpu_native && d->host->api.instance_enumerate_adapters != NULL) adapters_enumerate(d);
    if (d->adapter_count == 0) status = adapters_ask_all(d);
    adapters_sort(d);
    return status;
}
void tg_webgpu_drop_adapters(webgpu_device *d) {
    if (d->adapters == NULL) return;
    for (int i = 0; i < d->adapter_count; ++i) d->host->api.adapter_release(d->adapters[i].handle);
    tg_release(d->ctx, d->adapters, sizeof(webgpu_adapter) * TG_WEBGPU_MAX_ADAPTERS);
    d->adapters = NULL;
    d->adapter_count = 0;
}

/* ---- choosing */

static bool adapters_contains(const char *text, const char *part) {
    const size_t length = strlen(part);
    for (; *text != '\0'; ++text) {
        size_t i = 0;
        while (i < length && text[i] != '\0' && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) ++i;
        if (i == length) return true;
    }
    return length == 0;
}
static bool adapters_match(const webgpu_device *d, int number, const char *wanted) {
    const tg_adapter_info *info = &d->adapters[number].info;
    if (wanted[0] == '#') {
        char *end = NULL;
        const long asked = strtol(wanted + 1, &end, 10);
        return end != wanted + 1 && *end == '\0' && asked == number;
    }
    return adapters_contains(info->name, wanted) || adapters_contains(info->vendor, wanted) || adapters_contains(info->backend, wanted);
}
static const char *adapters_list(const webgpu_device *d, char *text, size_t room) {
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; i < d->adapter_count && length + 1 < room; ++i) {
        const tg_adapter_info *info = &d->adapters[i].info;
        const int more =
            snprintf(text + length, room - length, "%s#%d %s (%s, %s)", i > 0 ? "; " : "", i, info->name, info->type, info->backend);
        if (more > 0) length += (size_t)more;
    }
    return text;
}
static bool adapters_is_named(const tg_open_options *options) { return options->adapter != NULL && options->adapter[0] != '\0'; }

static bool adapters_fits(const webgpu_device *d, const tg_open_options *options, int number) {
    if (adapters_is_named(options)) return adapters_match(d, number, options->adapter);
    return tg_webgpu_executes(&d->adapters[number].info);
}
static bool adapters_is_software(const webgpu_device *d, int number) { return strcmp(d->adapters[number].info.type, "cpu") == 0; }

int tg_webgpu_next_adapter(const webgpu_device *d, const tg_open_options *options, int from) {
    for (int i = from; i < d->adapter_count; ++i)
        if (adapters_fits(d, options, i) && !(options->real_gpu && adapters_is_software(d, i))) return i;
    return -1;
}
tg_status tg_webgpu_no_adapter(webgpu_device *d, const tg_open_options *options) {
    char list[2048];
    if (d->adapter_count == 0) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the library offers no adapter");
    adapters_list(d, list, sizeof list);
    for (int i = 0; i < d->adapter_count; ++i)
        if (adapters_fits(d, options, i))
            return tg_fail(d->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "webgpu: no real GPU, only software adapters: %s", list);
    if (!adapters_is_named(options))
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no adapter that executes anything, only %s: is a driver installed?",
                       list);
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no adapter is called \"%s\": there are %s", options->adapter, list);
}
