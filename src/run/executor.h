/* executor: what a device must offer a model session. One device per model family (a model and its siblings); it owns the
 * state buffers. Knows programs, not graphs. Values cross this line as the public API has them: bool is one byte. */
#ifndef TG_EXECUTOR_H
#define TG_EXECUTOR_H
#include "emit/emit.h"
#include "plan/program.h"

typedef struct tg_device tg_device;
typedef struct tg_executable tg_executable;

typedef struct tg_open_options {
    int threads;                     /* CPU */
    const char *adapter;             /* WebGPU: as tg_compile_options.adapter, the environment already looked at; NULL: the best */
    const tg_webgpu_device *foreign; /* WebGPU: the application's own device, or NULL */
    bool real_gpu;                   /* WebGPU: refuse an adapter that is a CPU in disguise (TG_ERROR_NOT_FOUND) */
} tg_open_options;

typedef struct tg_executor {
    const char *kind;  /* "cpu", "webgpu" */
    bool can_be_lost;  /* any call may answer TG_ERROR_DEVICE_LOST; from then on all do. close and unload still work */
    bool asynchronous; /* the device answers later: run and read_state are refused, whoever drives run/call.h has programs executed,
                          reads states and takes snapshots */
    tg_status (*open)(tg_context *ctx, const tg_open_options *options, tg_device **out);
    bool (*is_lost)(const tg_device *device);         /* where can_be_lost */
    void (*close)(tg_device *device);                 /* NULL is fine; executables must be unloaded first */
    const char *(*describe)(const tg_device *device); /* "cpu (avx512, 2 threads)", "webgpu (NVIDIA H200, vulkan)" */
    const char *(*adapter)(const tg_device *device);  /* "avx512", "NVIDIA H200" */
    tg_limits (*limits)(const tg_device *device);
    const tg_wgsl_limits *(*wgsl_limits)(const tg_device *device); /* NULL where kernels are not WGSL */
    /* Makes state `slot` of `count` zeros; `name` is for messages. Slots are the family's, numbered by the session. */
    tg_status (*make_state)(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count);
    /* Elements [first, first + count). A write is ordered after the runs before it. */
    tg_status (*write_state)(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count);
    tg_status (*read_state)(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count);
    /* program is borrowed until unload. state_slots[program state] = the family's slot. Allocates everything a run needs. */
    tg_status (*load)(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out);
    void (*unload)(tg_device *device, tg_executable *executable);
    int (*dispatches)(const tg_executable *executable); /* launches of one run */
    /* From now on run notes the least milliseconds of kernel i in times[i], i < count. NULL: where kernels are not timed. */
    void (*time_kernels)(tg_executable *executable, tg_kernel_time *times, int count);
    int (*tuned)(const tg_executable *executable); /* of them laid out by the user's table; NULL where there is none */
    /* inputs[i]: data of program.inputs[i], borrowed for the call. outputs[i]: where to copy program.outputs[i], NULL: not
     * wanted. No allocation. */
    tg_status (*run)(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs);
} tg_executor;

extern const tg_executor tg_cpu_executor;
extern const tg_executor tg_webgpu_executor;
/* What every WebGPU device can bind. */
tg_limits tg_webgpu_guaranteed_limits(void);
#endif
