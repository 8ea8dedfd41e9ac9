/* webgpu: the executor's table: each call holds the lock of the library it works with. Also answers
 * small questions about a device. Must not know how a call does its work. */
#include "run/webgpu/device.h"

static const char *webgpu_describe(const tg_device *device) { return webgpu_of_const(device)->gpu->description; }
static const char *webgpu_adapter_name(const tg_device *device) { return webgpu_of_const(device)->gpu->name; }
static bool webgpu_is_lost(const tg_device *device) {
    const webgpu_device *d = webgpu_of_const(device);
    return atomic_load(&d->gpu->silent) || tg_webgpu_is_lost(d);
}
static const tg_device_model *webgpu_model(const tg_device *device) { return &webgpu_of_const(device)->model; }

const tg_webgpu_counters *tg_webgpu_count(const tg_device *device) { return &webgpu_of_const(device)->count; }
tg_webgpu_shared_counters tg_webgpu_count_shared(tg_device *device) {
    tg_webgpu_enter(webgpu_of(device));
    const tg_webgpu_shared_counters count = webgpu_of(device)->gpu->count;
    tg_webgpu_leave(webgpu_of(device));
    return count;
}
bool tg_webgpu_same_gpu(const tg_device *a, const tg_device *b) { return webgpu_of_const(a)->gpu == webgpu_of_const(b)->gpu; }
void tg_webgpu_set_slow(tg_device *device, double seconds) { webgpu_of(device)->slow = (int64_t)(seconds * 1e9); }
void tg_webgpu_set_schedules(tg_device *device, const tg_schedules *schedules) { webgpu_of(device)->model.schedules = schedules; }
const char *tg_webgpu_tuning_name(const tg_device *device) { return webgpu_of_const(device)->gpu->tuning_name; }

/* ---- with the lock */

#define WEBGPU_LOCKED(call) \
  do { \
    tg_webgpu_enter(webgpu_of(device)); \
    const tg_status status_ = (call); \
    tg_webgpu_leave(webgpu_of(device)); \
    return status_; \
  } while (0)

static tg_status webgpu_make_state(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count) {
    WEBGPU_LOCKED(tg_webgpu_make_state(device, slot, name, dtype, count));
}
static tg_status webgpu_write_state(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count) {
    WEBGPU_LOCKED(tg_webgpu_write_state(device, slot, first, data, count));
}
static tg_status webgpu_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count) {
    WEBGPU_LOCKED(tg_webgpu_read_state(device, slot, first, data, count));
}
static tg_status webgpu_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    WEBGPU_LOCKED(tg_webgpu_load(device, program, state_slots, out));
}
static void webgpu_unload(tg_device *device, tg_executable *executable) {
    tg_webgpu_enter(webgpu_of(device));
    tg_webgpu_unload(device, executable);
    tg_webgpu_leave(webgpu_of(device));
}
static tg_status webgpu_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    WEBGPU_LOCKED(tg_webgpu_run(device, executable, inputs, outputs));
}
static tg_status webgpu_start(tg_device *device, tg_executable *executable, const void *const *inputs, float *result) {
    WEBGPU_LOCKED(tg_webgpu_start(device, executable, inputs, result));
}
static tg_status webgpu_collect(tg_device *device, bool wait, bool *done) { WEBGPU_LOCKED(tg_webgpu_collect(device, wait, done)); }
static tg_status webgpu_time_kernels(tg_device *device, tg_executable *executable, tg_kernel_time *times, int count) {
    WEBGPU_LOCKED(tg_webgpu_time_launches(webgpu_of(device), executable, times, count));
}
static tg_status webgpu_make_feeder(tg_device *device, tg_executable *executable, const tg_feeder_options *options, tg_feeder **out) {
    WEBGPU_LOCKED(tg_webgpu_make_feeder(device, executable, options, out));
}
static void webgpu_drop_feeder(tg_device *device, tg_feeder *feeder) {
    tg_webgpu_enter(webgpu_of(device));
    tg_webgpu_drop_feeder(device, feeder);
    tg_webgpu_leave(webgpu_of(device));
}
static tg_status webgpu_run_feeder(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count) {
    WEBGPU_LOCKED(tg_webgpu_run_feeder(device, feeder, run, losses, count));
}
tg_status tg_webgpu_put(tg_device *device, tg_executable *executable, int32_t buffer, const void *data) {
    WEBGPU_LOCKED(tg_webgpu_put_now(webgpu_of(device), executable, buffer, data));
}
tg_status tg_webgpu_time(tg_device *device, tg_executable *executable, int times, double *seconds) {
    WEBGPU_LOCKED(tg_webgpu_time_now(webgpu_of(device), executable, times, seconds));
}

#undef WEBGPU_LOCKED

const tg_executor tg_webgpu_executor = {
    .kind = "webgpu",
    .can_be_lost = true,
    .open = tg_webgpu_open_found,
    .close = tg_webgpu_close,
    .is_lost = webgpu_is_lost,
    .describe = webgpu_describe,
    .adapter = webgpu_adapter_name,
    .model = webgpu_model,
    .wgsl = true,
    .make_state = webgpu_make_state,
    .write_state = webgpu_write_state,
    .read_state = webgpu_read_state,
    .load = webgpu_load,
    .unload = webgpu_unload,
    .dispatches = tg_webgpu_dispatches,
    .tuned = tg_webgpu_tuned,
    .time_kernels = webgpu_time_kernels,
    .run = webgpu_run,
    .start = webgpu_start,
    .collect = webgpu_collect,
    .make_feeder = webgpu_make_feeder,
    .drop_feeder = webgpu_drop_feeder,
    .run_feeder = webgpu_run_feeder,
};
