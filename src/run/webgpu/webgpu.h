/* webgpu: what tests and the model session may know of the WebGPU device beyond tg_executor:
 * opening it with a table of their own, and what it counts. Must not know the executor's
 * structs. */
#ifndef TG_WEBGPU_H
#define TG_WEBGPU_H
#include "tile/schedule.h"
#include "run/executor.h"
#include "run/webgpu/api.h"

/* Deterministic for a given program and device. `objects`, `buffers` and `buffer_bytes` count what
 * this model has made and not released. */
typedef struct tg_webgpu_counters {
    /* GPU objects alive: buffers, modules, bind groups, encoders, command buffers */
    int64_t objects;
    int64_t buffers;      /* of them buffers */
    int64_t buffer_bytes; /* their sizes */
    int64_t pipelines;    /* compute pipelines it uses: they belong to the GPU */
    /* of the last run */
    int64_t submissions, dispatches, copies, writes, maps;
    int64_t copy_bytes, write_bytes;
} tg_webgpu_counters;
const tg_webgpu_counters *tg_webgpu_count(const tg_device *device);
/* Of the GPU, which models share. */
typedef struct tg_webgpu_shared_counters {
    int64_t objects;      /* layouts and pipelines alive */
    int64_t pipelines;    /* of them pipelines, used or kept */
    int64_t unused;       /* of them kept for later models */
    int64_t unused_bytes; /* of their sources */
    int64_t made;         /* pipelines ever compiled */
} tg_webgpu_shared_counters;
tg_webgpu_shared_counters tg_webgpu_count_shared(tg_device *device);
bool tg_webgpu_same_gpu(const tg_device *a, const tg_device *b);
/* A submission that takes longer than this makes the next run's shorter; .25 s unless set. */
void tg_webgpu_set_slow(tg_device *device, double seconds);
/* Programs loaded from now on are laid out by this table, borrowed; NULL: by the printers'
 * rules. */
void tg_webgpu_set_schedules(tg_device *device, const tg_schedules *schedules);
/* The name by which tables know its adapter: name, vendor, architecture, backend, driver. "": not
 * known. */
const char *tg_webgpu_tuning_name(const tg_device *device);

/* ---- for timing an executable by itself */
int64_t tg_webgpu_now(void); /* ns */
/* Writes all of a buffer of the workspace or of a state, from the host, where bools are bytes. */
tg_status tg_webgpu_put(tg_device *device, tg_executable *executable, int32_t buffer, const void *data);
/* Runs the whole executable `times` times in one submission, with the memory as it is, and
 * waits. */
tg_status tg_webgpu_time(tg_device *device, tg_executable *executable, int times, double *seconds);

/* tg_webgpu_executor.open with a given table, copied. */
tg_status tg_webgpu_open_with(tg_context *ctx, const tg_webgpu_api *api, const tg_open_options *options, tg_device **out);
/* tg_adapters with a given table. */
tg_status tg_webgpu_adapters_with(tg_context *ctx, const tg_webgpu_api *api, tg_adapter_info *out, int capacity, int *count);

/* The library found at run time. If there is none, TG_ERROR_DEVICE with the linker's message. */
tg_status tg_webgpu_library(tg_context *ctx, tg_webgpu_api *api);
/* A table filled by name. TG_ERROR_DEVICE names the first required function that is missing;
 * `library` names the library in the message. */
tg_status tg_webgpu_fill(tg_context *ctx, void *(*procedure)(void *user, const char *name), void *user, const char *library,
                         tg_webgpu_api *api);
#endif
