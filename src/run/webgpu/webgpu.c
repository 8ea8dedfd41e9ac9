/* webgpu: the executor's table and the small questions it answers. */
#include "run/webgpu/device.h"

static const char *webgpu_describe(const tg_device *device) { return webgpu_of_const(device)->description; }
static const char *webgpu_adapter_name(const tg_device *device) { return webgpu_of_const(device)->name; }
static bool webgpu_is_lost(const tg_device *device) {
    const webgpu_device *d = webgpu_of_const(device);
    return d->silent || tg_webgpu_is_lost(d);
}
static tg_limits webgpu_limits(const tg_device *device) { return webgpu_of_const(device)->limits; }
static const tg_wgsl_limits *webgpu_wgsl_limits(const tg_device *device) { return &webgpu_of_const(device)->wgsl; }

const tg_webgpu_counters *tg_webgpu_count(const tg_device *device) { return &webgpu_of_const(device)->count; }
void tg_webgpu_set_slow(tg_device *device, double seconds) { webgpu_of(device)->slow = (int64_t)(seconds * 1e9); }
void tg_webgpu_set_schedules(tg_device *device, const tg_schedules *schedules) { webgpu_of(device)->wgsl.schedules = schedules; }
const char *tg_webgpu_tuning_name(const tg_device *device) { return webgpu_of_const(device)->tuning_name; }

const tg_executor tg_webgpu_executor = {
    .kind = "webgpu",
    .can_be_lost = true,
    .open = tg_webgpu_open_found,
    .close = tg_webgpu_close,
    .is_lost = webgpu_is_lost,
    .describe = webgpu_describe,
    .adapter = webgpu_adapter_name,
    .limits = webgpu_limits,
    .wgsl_limits = webgpu_wgsl_limits,
    .make_state = tg_webgpu_make_state,
    .write_state = tg_webgpu_write_state,
    .read_state = tg_webgpu_read_state,
    .load = tg_webgpu_load,
    .unload = tg_webgpu_unload,
    .dispatches = tg_webgpu_dispatches,
    .tuned = tg_webgpu_tuned,
    .run = tg_webgpu_run,
    .start = tg_webgpu_start,
    .collect = tg_webgpu_collect,
    .make_feeder = tg_webgpu_make_feeder,
    .drop_feeder = tg_webgpu_drop_feeder,
    .run_feeder = tg_webgpu_run_feeder,
};
