/* executor: what a device must offer a model session. One device per model family (a model and its
 * siblings); it owns the state buffers. Knows programs, not graphs. Values cross this line as the
 * public API has them: bool is one byte. */
#ifndef TG_EXECUTOR_H
#define TG_EXECUTOR_H
#include "base/draw.h"
#include "plan/program.h"

typedef struct tg_device tg_device;
typedef struct tg_executable tg_executable;
typedef struct tg_feeder tg_feeder;

typedef struct tg_open_options {
    int threads; /* CPU */
    /* WebGPU: as tg_compile_options.adapter, the environment already looked at; NULL: the best */
    const char *adapter;
    const tg_webgpu_device *foreign; /* WebGPU: the application's own device, or NULL */
    /* WebGPU: contractions may round to halves where the device offers that */
    bool f16;
    /* WebGPU: refuse an adapter that is a CPU in disguise (TG_ERROR_NOT_FOUND) */
    bool real_gpu;
    /* WebGPU: on a device that no other model uses, before or after */
    bool alone;
} tg_open_options;

/* A data set for some inputs of an executable, all of whose inputs that are listed are batches of
 * `draw.batch` rows. */
typedef struct tg_feeder_array {
    int32_t input;    /* of the program */
    const void *data; /* draw.rows rows: copied */
    int64_t row;      /* elements of one */
} tg_feeder_array;
typedef struct tg_feeder_options {
    const tg_feeder_array *arrays;
    int32_t count;
    int64_t rows, batch;
} tg_feeder_options;
typedef struct tg_feeder_run {
    tg_draw draw;
    const void *const *inputs; /* of the inputs that no array is for; borrowed */
    int64_t most;              /* steps, 1 to TG_MOST_STEPS */
    /* this many; else at most, and so that the device is not busy for long */
    bool exact;
} tg_feeder_run;

typedef struct tg_executor {
    const char *kind; /* "cpu", "webgpu" */
    /* any call may answer TG_ERROR_DEVICE_LOST; from then on all do. close and unload still work */
    bool can_be_lost;
    bool wgsl; /* kernels are WGSL, printed for the device's model */
    /* the device answers later: run and read_state are refused; the user of run/call.h has programs
     * executed, reads states and takes snapshots */
    bool asynchronous;
    tg_status (*open)(tg_context *ctx, const tg_open_options *options, tg_device **out);
    bool (*is_lost)(const tg_device *device); /* where can_be_lost */
    /* NULL is fine; executables must be unloaded first */
    void (*close)(tg_device *device);
    /* "cpu (avx512, 2 threads)", "webgpu (NVIDIA H200, vulkan)" */
    const char *(*describe)(const tg_device *device);
    const char *(*adapter)(const tg_device *device);          /* "avx512", "NVIDIA H200" */
    const tg_device_model *(*model)(const tg_device *device); /* until the device is closed */
    /* Makes state `slot` of `count` zeros; `name` is for messages. Slots are the family's, numbered
     * by the session. */
    tg_status (*make_state)(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count);
    /* Elements [first, first + count). A write is ordered after the runs before it. */
    tg_status (*write_state)(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count);
    tg_status (*read_state)(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count);
    /* program is borrowed until unload. state_slots[program state] = the family's slot. Allocates
     * everything a run needs. */
    tg_status (*load)(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out);
    void (*unload)(tg_device *device, tg_executable *executable);
    int (*dispatches)(const tg_executable *executable); /* launches of one run */
    /* From now on run notes in times[i], i < count, the milliseconds of kernel i, or of launch i if
     * `wgsl`, whose workgroups it notes at once; times NULL: no more. NULL: where there is no clock.
     * TG_ERROR_UNSUPPORTED: the device has none. */
    tg_status (*time_kernels)(tg_device *device, tg_executable *executable, tg_kernel_time *times, int count);
    /* of them laid out by the user's table; NULL where there is none */
    int (*tuned)(const tg_executable *executable);
    /* inputs[i]: data of program.inputs[i], borrowed for the call. outputs[i]: where to copy
     * program.outputs[i], NULL: not wanted. No allocation. */
    tg_status (*run)(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs);
    /* Runs that nobody waits for; both NULL: there are none. start is as run, but returns when the
     * run is submitted. When collect says that the run is done, outputs[0] of the program, an f32
     * scalar, is in *result. At most TG_FLIGHTS are under way; then, and before anything else is
     * asked of the device, collect is called until none is. collect: of the oldest run; *done false
     * (only without wait): not yet. Its status is that of the run. Allocates nothing once each
     * flight has been used. */
    tg_status (*start)(tg_device *device, tg_executable *executable, const void *const *inputs, float *result);
    tg_status (*collect)(tg_device *device, bool wait, bool *done);
    /* Many runs in one submission; NULL: one at a time is as good. Batches are drawn on the device,
     * into the executable's inputs. Dropped before the executable is unloaded. run_feeder makes
     * *count steps, and losses[i] is outputs[0] of each. No allocation. */
    tg_status (*make_feeder)(tg_device *device, tg_executable *executable, const tg_feeder_options *options, tg_feeder **out);
    void (*drop_feeder)(tg_device *device, tg_feeder *feeder);
    tg_status (*run_feeder)(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count);
} tg_executor;

#define TG_FLIGHTS 3

extern const tg_executor tg_cpu_executor;
extern const tg_executor tg_webgpu_executor;
#endif
