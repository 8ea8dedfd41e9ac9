/* Host cost of a training step on WebGPU: both examples on Dawn's null backend, which validates and
 * records everything and runs nothing. So a step is what the processor does for it: inputs written,
 * encoded, submitted, waited for, read. The numbers that come back mean nothing. bench_host
 * [--steps N]: one JSON line for each example, or one that says why there is none. Needs
 * TENSORGRAD_WEBGPU_LIB or a library where tensorgrad looks for it. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "examples.h"
#include "run/webgpu/webgpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct host {
    tg_context *ctx;
    tg_webgpu_api api;
    tg_wgpu_instance instance;
    tg_wgpu_adapter adapter;
    tg_wgpu_device device;
    tg_wgpu_limits limits;
} host;

static double host_seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- a device of the null backend */

static void host_on_adapter(uint32_t status, tg_wgpu_adapter adapter, tg_wgpu_string text, void *user, void *more) {
    (void)text;
    (void)more;
    if (status == TG_WGPU_SUCCESS) ((host *)user)->adapter = adapter;
}
static void host_on_device(uint32_t status, tg_wgpu_device device, tg_wgpu_string text, void *user, void *more) {
    (void)text;
    (void)more;
    if (status == TG_WGPU_SUCCESS) ((host *)user)->device = device;
}
static void host_on_lost(const tg_wgpu_device *device, uint32_t reason, tg_wgpu_string text, void *user, void *more) {
    (void)device;
    (void)reason;
    (void)text;
    (void)user;
    (void)more;
}
static void host_on_error(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string text, void *user, void *more) {
    (void)device;
    (void)user;
    (void)more;
    fprintf(stderr, "error %u: %.*s\n", (unsigned)error, text.length == SIZE_MAX ? (int)strlen(text.data) : (int)text.length, text.data);
}
static void host_pump(host *h) {
    for (int i = 0; i < 1000; i++) h->api.instance_process_events(h->instance);
}
static const char *host_open(host *h) {
    if (tg_webgpu_library(h->ctx, &h->api) != TG_OK) return tg_error_message(h->ctx);
    h->instance = h->api.create_instance(NULL);
    if (h->instance == NULL) return "the library gives no instance";
    const tg_wgpu_adapter_options options = {.feature_level = TG_WGPU_LEVEL_CORE, .backend = TG_WGPU_BACKEND_NULL};
    h->api.instance_request_adapter(h->instance, &options,
                                    (tg_wgpu_adapter_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = host_on_adapter, .user = h});
    host_pump(h);
    if (h->adapter == NULL) return "the library has no null backend";
    memset(&h->limits, 0xFF, sizeof h->limits);
    h->limits.next = NULL;
    h->api.adapter_get_limits(h->adapter, &h->limits);
    const tg_wgpu_device_descriptor descriptor = {
        .label = {NULL, SIZE_MAX},
        .limits = &h->limits,
        .queue = {NULL, {NULL, SIZE_MAX}},
        .lost = {.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = host_on_lost, .user = h},
        .error = {.call = host_on_error, .user = h},
    };
    h->api.adapter_request_device(h->adapter, &descriptor,
                                  (tg_wgpu_device_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = host_on_device, .user = h});
    host_pump(h);
    return h->device == NULL ? "the null backend gives no device" : NULL;
}
static void host_close(host *h) {
    if (h->device != NULL) h->api.device_release(h->device);
    if (h->adapter != NULL) h->api.adapter_release(h->adapter);
    if (h->instance != NULL) h->api.instance_release(h->instance);
    tg_context_destroy(h->ctx);
}

/* ---- steps */

static int host_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static int64_t host_count(tg_shape shape) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}
static tg_status host_steps(tg_model *model, const tg_example *example, int steps, double *times) {
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
    void *arrays[TG_EXAMPLE_MAX_INPUTS] = {NULL};
    tg_status status = TG_OK;
    for (int i = 0; i < example->input_count; i++) {
        const tg_example_input *input = &example->inputs[i];
        const int64_t count = host_count(input->shape);
        arrays[i] = calloc((size_t)count, 4);
        feeds[i] = input->dtype == TG_I32 ? tg_feed_i32(input->name, arrays[i], count) : tg_feed_f32(input->name, arrays[i], count);
        if (arrays[i] == NULL) status = TG_ERROR_MEMORY;
    }
    if (status == TG_OK) example->fill_batch(1, 1, example->batch, arrays);
    /* the first ten are not counted */
    for (int step = -10; step < steps && status == TG_OK; step++) {
        float loss = 0;
        const double start = host_seconds();
        status = tg_step(model, feeds, example->input_count, &loss);
        if (step >= 0) times[step] = 1e3 * (host_seconds() - start);
    }
    for (int i = 0; i < example->input_count; i++) free(arrays[i]);
    return status;
}
static void host_bench(host *h, const tg_example *example, int steps) {
    const tg_webgpu_device own = {(void *)h->instance, (void *)h->device, NULL};
    const tg_compile_options options = {.optimizer = example->optimizer(), .seed = 1, .webgpu = &own};
    double *times = malloc((size_t)steps * sizeof *times);
    tg_model *model = tg_compile(h->ctx, example->build, NULL, &options);
    tg_model_info info;
    if (times == NULL || model == NULL || tg_model_get_info(model, &info) != TG_OK || host_steps(model, example, steps, times) != TG_OK) {
        printf("{\"workload\": \"%s\", \"missing\": \"%s\"}\n", example->name, tg_error_message(h->ctx));
        tg_clear_error(h->ctx);
    } else {
        qsort(times, (size_t)steps, sizeof *times, host_compare);
        printf("{\"workload\": \"%s\", \"device\": \"null\", \"steps\": %d, \"dispatches\": %d, \"peak_bytes\": %lld, \"ms_per_step\": "
               "%.6g, \"ms_min\": %.6g}\n",
               example->name, steps, info.dispatches, (long long)info.peak_bytes, times[steps / 2], times[0]);
    }
    tg_model_destroy(model);
    free(times);
}

int main(int argc, char **argv) {
    const int steps = argc == 3 && strcmp(argv[1], "--steps") == 0 ? atoi(argv[2]) : 1000;
    host h = {.ctx = tg_context_create(NULL)};
    if (h.ctx == NULL || steps < 1) return 1;
    const char *why = host_open(&h);
    if (why != NULL) {
        printf("{\"missing\": \"no null backend: ");
        for (; *why != '\0'; why++) putchar(*why == '"' || *why == '\\' || *why < ' ' ? ' ' : *why);
        printf("\"}\n");
    } else {
        host_bench(&h, tg_example_find("mlp-sin"), steps);
        host_bench(&h, tg_example_find("transformer-add"), steps);
    }
    host_close(&h);
    return 0;
}
