/* home: a native suite inside a WebAssembly module. Owns what the suites ask of a system that a module has not, and the executor of a
 * page's GPU for callers that wait: a run and a read suspend the module (JSPI) until JavaScript has the answer. Must not know any test.
 * web.c, compiled with its executor renamed to page_executor, does the rest. */
#include "dlfcn.h"
#include "run/web/web.h"

#include <stddef.h>

/* ---------------------------------------------------------------- what a module has not */

void *dlopen(const char *path, int flags) {
    (void)path, (void)flags;
    return NULL;
}
void *dlsym(void *handle, const char *name) {
    (void)handle, (void)name;
    return NULL;
}
char *dlerror(void) { return (char *)"no dlopen here"; }
int dlclose(void *handle) {
    (void)handle;
    return -1;
}
int system(const char *command) {
    (void)command;
    return -1;
}
char *mkdtemp(char *path) {
    (void)path;
    return NULL;
}

/* ---------------------------------------------------------------- the executor, waiting */

extern const tg_executor page_executor;
static tg_context *home_context;

/* Provided by web/test/suite.ts. 0: done; else the message has been printed. */
__attribute__((import_module("tg_test"), import_name("gpu_run"))) int32_t home_gpu_run(int32_t executable, const void *const *inputs,
                                                                                       void *const *outputs);
__attribute__((import_module("tg_test"), import_name("gpu_read_state"))) int32_t home_gpu_read_state(int32_t slot, int32_t first,
                                                                                                     void *data, int32_t count);

static tg_status home_status(int32_t failed) {
    return failed == 0 ? TG_OK : tg_fail(home_context, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: see above");
}

static tg_status home_open(tg_context *ctx, const tg_open_options *options, tg_device **out) {
    home_context = ctx;
    return page_executor.open(ctx, options, out);
}
static void home_close(tg_device *device) { page_executor.close(device); }
static bool home_is_lost(const tg_device *device) { return page_executor.is_lost(device); }
static const char *home_describe(const tg_device *device) { return page_executor.describe(device); }
static const tg_device_model *home_model(const tg_device *device) { return page_executor.model(device); }
static tg_status home_make_state(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count) {
    return page_executor.make_state(device, slot, name, dtype, count);
}
static tg_status home_write_state(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count) {
    return page_executor.write_state(device, slot, first, data, count);
}
static tg_status home_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count) {
    (void)device;
    return home_status(home_gpu_read_state(slot, (int32_t)first, data, (int32_t)count));
}
static tg_status home_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    return page_executor.load(device, program, state_slots, out);
}
static void home_unload(tg_device *device, tg_executable *executable) { page_executor.unload(device, executable); }
static int home_dispatches(const tg_executable *executable) { return page_executor.dispatches(executable); }
static tg_status home_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    (void)device;
    return home_status(home_gpu_run(tg_web_executable_number(executable), inputs, outputs));
}

const tg_executor tg_webgpu_executor = {
    .kind = "webgpu",
    .can_be_lost = true,
    .open = home_open,
    .is_lost = home_is_lost,
    .close = home_close,
    .describe = home_describe,
    .adapter = home_describe,
    .model = home_model,
    .wgsl = true,
    .make_state = home_make_state,
    .write_state = home_write_state,
    .read_state = home_read_state,
    .load = home_load,
    .unload = home_unload,
    .dispatches = home_dispatches,
    .run = home_run,
};
