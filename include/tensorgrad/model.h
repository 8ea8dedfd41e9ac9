/* tensorgrad, model: compile a build function, train, run, read and save the result, inspect and
 * tune it. */
#ifndef TENSORGRAD_MODEL_H
#define TENSORGRAD_MODEL_H

#include "device.h"
#include "optim.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- models */

typedef struct tg_compile_options {
    /* none: a step computes loss and gradients and changes nothing except by writebacks */
    tg_optimizer optimizer;
    uint64_t seed; /* for the initial values and the random numbers */
    tg_device_kind device;
    /* CPU, 0 to 1024; 0: TENSORGRAD_THREADS, else the number of cores. Results do not depend on
     * it. */
    int threads;
    bool no_fusion; /* one kernel for each operation: slow, for comparison */
    /* Before each step, a program of its own looks at all values, forward and backward. Where the
     * loss or a gradient is not finite, the step fails with TG_ERROR_NOT_FINITE and changes
     * nothing, not even the count of steps. Message and call site are those of the first operation,
     * input, parameter or state that is worse than what it was made of: "step 3: exp[256, 64] made
     * inf, ...". Slow: for finding the cause. Steps are then not made ahead, and batches are not
     * drawn on the device. */
    bool check_finite;
    /* WebGPU: the adapter: "#0" as tg_adapters counts, or a part of its name, vendor or backend, in
     * any case. NULL or "": TENSORGRAD_ADAPTER, else the best. No match is TG_ERROR_DEVICE; the
     * message lists the adapters. */
    const char *adapter;
    /* the application's own; then `device` must not be CPU. NULL: the library opens one */
    const tg_webgpu_device *webgpu;
    tg_precision precision; /* siblings have that of their parent */
    /* Where F16 is in use, cotangents are computed times this, so that small ones do not vanish
     * among the halves, and gradients are divided by it; both are exact. A power of two from 1 to
     * 2^24; 0 means 4096, with which cotangents from 1.5e-8 to 16 keep eleven bits; TG_ZERO is
     * refused. */
    double loss_scale;
    /* For inputs with TG_ANY: the size with which the model is traced and compiled first. Give the
     * size of most calls. 0: 2.
     * The first call that feeds another size calls the build function again. So `build` and `user`
     * must live as long as the model, and must make the same parameters, states and inputs each
     * time. In one call all TG_ANY have the same size (else TG_ERROR_SHAPE). All sizes share
     * parameters, optimiser state, step counter and random numbers: a step does what it would do in
     * a model made for that size alone. The call that feeds a size reports its errors, and then
     * changes nothing. */
    int64_t any_size;
    /* how many other sizes stay compiled; 0: 8. The one not used for longest is dropped first; one
     * with data sets stays. */
    int max_sizes;
} tg_compile_options;

/* Traces, differentiates with respect to each unfrozen parameter, fuses, plans, initialises.
 * options may be NULL. A build function cannot compile or trace: TG_ERROR_TRACE. A call that feeds
 * a size for the first time compiles too. Returned: destroy with tg_model_destroy. NULL on error,
 * see tg_error(ctx). */
TG_API tg_model *tg_compile_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile(...) tg_compile_at(TG_SITE, __VA_ARGS__)
/* Forward only: the built tensor is the output, of any shape and dtype. Ignores the optimizer of
 * the options. */
TG_API tg_model *tg_compile_forward_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile_forward(...) tg_compile_forward_at(TG_SITE, __VA_ARGS__)
/* A forward graph that shares the parameters, states, threads, any_size and max_sizes of `parent`.
 * All its parameters must exist in the parent; it lists all parameters of the parent, used or not.
 * Its runs make no writebacks and draw new random numbers. Resets, uploads and loads through it act
 * on the shared values. It is destroyed with its parent; it may be destroyed earlier. */
TG_API tg_model *tg_compile_sibling_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_sibling(...) tg_compile_sibling_at(TG_SITE, __VA_ARGS__)
/* The same over the averages of the parent's parameters (tg_optimizer.average). Before the first
 * update an average equals its parameter. Frozen parameters have no average and are used as they
 * are. TG_ERROR_STATE for a parent that keeps no average. */
TG_API tg_model *tg_compile_average_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_average(...) tg_compile_average_at(TG_SITE, __VA_ARGS__)
/* Destroys siblings too. NULL is allowed. */
TG_API void tg_model_destroy(tg_model *model);
TG_API tg_context *tg_model_context(const tg_model *model);

/* One named input of a call: `count` elements of `dtype`. A bool is one byte, 0 or 1; another value
 * is TG_ERROR_ARGUMENT. `data` is only read, and only during the call. */
typedef struct tg_feed {
    const char *name;
    tg_dtype dtype;
    const void *data;
    int64_t count;
} tg_feed;
static inline tg_feed tg_feed_make_(const char *name, tg_dtype dtype, const void *data, int64_t count) {
    tg_feed f;
    f.name = name;
    f.dtype = dtype;
    f.data = data;
    f.count = count;
    return f;
}
static inline tg_feed tg_feed_f32(const char *name, const float *data, int64_t count) { return tg_feed_make_(name, TG_F32, data, count); }
static inline tg_feed tg_feed_i32(const char *name, const int32_t *data, int64_t count) { return tg_feed_make_(name, TG_I32, data, count); }
static inline tg_feed tg_feed_bool(const char *name, const uint8_t *data, int64_t count) {
    return tg_feed_make_(name, TG_BOOL, data, count);
}

/* One training step. *loss gets the loss (loss may be NULL). Allocates nothing.
 * A feed that is missing, unknown, given twice, or of the wrong size or dtype is an error, and so
 * is an index outside its table: then nothing changes. Fed indices are checked on the host; indices
 * that the model computes are checked by a small program that runs before the step.
 * A loss that is NaN or infinite gives TG_ERROR_NOT_FINITE after the step: *loss is written and the
 * update has been made. Where the optimizer clips by norm, normalizes or skips, a gradient that is
 * not finite gives it too; then *loss is NaN, though the loss was finite. Elsewhere such a gradient
 * makes parameters NaN or infinite, and the loss of the next step shows it.
 * With skip_non_finite, such a loss or gradient leaves parameters, moments, averages, accumulated
 * gradients, user states, and the optimizer's own count of steps with its schedule bit for bit as
 * they were, as if the step had not been. But the step counts in tg_model_step_count, its batch and
 * random numbers are used up, and tg_param_grad_download gives its gradients.
 * To find where a value came from, see check_finite of tg_compile_options. */
TG_API tg_status tg_step_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss);
#define tg_step(...) tg_step_at(TG_SITE, __VA_ARGS__)
/* As tg_step. *captures gets all captured tensors, as they were before the update. Returned:
 * destroy with tg_captures_destroy, before the context; they may outlive the model.
 * TG_ERROR_NOT_FINITE also returns them, except that of check_finite; on all other errors *captures
 * is NULL. The first call compiles a program of its own. */
TG_API tg_status tg_step_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures);
#define tg_step_captures(...) tg_step_captures_at(TG_SITE, __VA_ARGS__)
/* The built tensor (of a training model the loss), without update and writebacks. Each run draws
 * new random numbers. `capacity` counts elements of the output's dtype and must be at least the
 * size of the output. NaN and infinity are ordinary values here. Feeds and indices as in
 * tg_step. The first call on a training model compiles a program of its own; later calls
 * allocate nothing. */
TG_API tg_status tg_run_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity);
#define tg_run(...) tg_run_at(TG_SITE, __VA_ARGS__)
/* As tg_run and tg_step_captures. On an error *captures is NULL. */
TG_API tg_status tg_run_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity,
                                    tg_captures **captures);
#define tg_run_captures(...) tg_run_captures_at(TG_SITE, __VA_ARGS__)

/* ---- steps that the caller does not wait for. tg_step_async makes the checks of tg_step, and on
 * their errors changes nothing and sets *ticket to 0. Else it hands the step to the device, sets
 * *ticket to the number of the step (1, 2, ... in the life of a model) and returns. tg_wait reports
 * what the step itself finds: a loss that is not finite, a device that fails.
 * A device has at most three such steps: the fourth call waits for the first. The order of calls is
 * kept: each other call of the model or its siblings that needs the device waits for all steps
 * before it, and so does destroying.
 * The step is made in place, and is done when the call returns: on the CPU, for a model that
 * computes indices, and for a model with nothing to run. Allocates nothing once three steps have
 * been under way. */
typedef int64_t tg_ticket;
TG_API tg_status tg_step_async_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, tg_ticket *ticket);
#define tg_step_async(...) tg_step_async_at(TG_SITE, __VA_ARGS__)
/* Status and loss of the step, as tg_step gives them (loss may be NULL). A ticket may be waited for
 * again. The last TG_TICKETS steps are remembered; an older ticket, or one that was never given, is
 * TG_ERROR_NOT_FOUND. */
#define TG_TICKETS 256
TG_API tg_status tg_wait_at(tg_site site, tg_model *model, tg_ticket ticket, float *loss);
#define tg_wait(...) tg_wait_at(TG_SITE, __VA_ARGS__)
/* *done: tg_wait would return at once. */
TG_API tg_status tg_poll_at(tg_site site, tg_model *model, tg_ticket ticket, bool *done);
#define tg_poll(...) tg_poll_at(TG_SITE, __VA_ARGS__)

/* ---- many steps in one call, on data that is already there. A data set gives rows for inputs of a
 * training model: arrays[i] has `rows` rows of the input of that name. The first axis of that input
 * is the batch; all inputs listed have the same batch B. `rows` may be less than B. This call
 * checks names, dtypes, counts, bools and indices of all the data, and reports errors as tg_step
 * does for a batch. The data is copied. Returned: destroy with tg_dataset_destroy, before the
 * context; the model may be destroyed first. NULL on error. */
TG_API tg_dataset *tg_dataset_create_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows);
#define tg_dataset_create(...) tg_dataset_create_at(TG_SITE, __VA_ARGS__)
/* The same in batches of `batch` rows, for inputs whose first axis is TG_ANY. 0: the size with
 * which the model was compiled first. TG_ERROR_SHAPE for a model without TG_ANY whose batch is not
 * `batch`. */
TG_API tg_dataset *tg_dataset_create_batch_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch);
#define tg_dataset_create_batch(...) tg_dataset_create_batch_at(TG_SITE, __VA_ARGS__)
TG_API void tg_dataset_destroy(tg_dataset *dataset); /* NULL is allowed */

/* The rows of step t, with t the tg_model_step_count before it and i = 0 .. B - 1:
 *   RANDOM      row floor(r rows / 2^32), with r the first word of Philox 4x32-10 for the counter
 *               (i, t's low word, t's high word, 0x726F7773) and the key `seed`: with replacement,
 *               each row equally likely to within rows / 2^32
 *   SEQUENTIAL  row (t B + i) mod rows */
typedef enum tg_batch_order { TG_BATCH_RANDOM = 0, TG_BATCH_SEQUENTIAL = 1 } tg_batch_order;
/* step: tg_model_step_count after it. Return false to stop. May read the model, run it and run its
 * siblings. Must not train, recover or destroy the model, nor destroy the data set. */
typedef bool (*tg_progress_fn)(void *user, int64_t step, float loss);
#define TG_MOST_STEPS 4096 /* in one submission */
typedef struct tg_train_options {
    int64_t steps; /* how many to make, 0 or more */
    tg_batch_order order;
    uint64_t seed;        /* for the random order */
    const tg_feed *feeds; /* inputs that the data set does not list: the same in all steps */
    int feed_count;
    /* How many steps a GPU gets at a time, 1 .. TG_MOST_STEPS. 0: as many as take about 40 ms by
     * measurement, or one if a step takes a quarter of a second. The losses of a submission are
     * looked at when all its steps have been made, so training that ends early ends after the last
     * of them. The CPU looks after each step. */
    int64_t steps_per_submission;
    tg_progress_fn progress; /* called after each step, in order; NULL: no call */
    void *progress_user;
    double target_loss; /* [0: none; TG_ZERO: 0] ends once a loss is at most this; finite */
    int64_t patience;   /* [0: none] ends once the least loss is this many steps old */
    int reserved_;
} tg_train_options;
typedef enum tg_train_end {
    TG_TRAIN_ALL = 0,      /* all steps were made */
    TG_TRAIN_TARGET = 1,   /* target_loss */
    TG_TRAIN_PATIENCE = 2, /* patience */
    TG_TRAIN_STOPPED = 3,  /* progress returned false */
    TG_TRAIN_FAILED = 4    /* see the status */
} tg_train_end;
typedef struct tg_train_result {
    int64_t steps;    /* made by this call */
    tg_train_end end; /* why it ended */
    float loss, best; /* last and least loss; NaN when there was none */
} tg_train_result;
/* Calls tg_step options->steps times on batches that the device draws from the data set. The losses
 * are bit for bit those of tg_step with these rows. `losses` (NULL: not wanted) has room for all
 * steps and gets the losses of the steps made. Step counter, optimiser state and schedule go on
 * from earlier steps, and later steps go on from these. *result (NULL: not wanted) is written
 * whenever steps have begun, also on errors. Allocates nothing.
 * The data set must be this model's and on its device: make it anew after tg_model_recover.
 * TG_ERROR_STATE for a model without optimizer and writebacks. TG_ERROR_NOT_FINITE as in tg_step,
 * after the last step of the submission. A call that is refused changes nothing. */
TG_API tg_status tg_train_at(tg_site site, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses,
                             tg_train_result *result);
#define tg_train(...) tg_train_at(TG_SITE, __VA_ARGS__)

TG_API int tg_captures_count(const tg_captures *captures);
TG_API const char *tg_captures_name(const tg_captures *captures, int i);
TG_API bool tg_captures_has(const tg_captures *captures, const char *name);
/* Owned by captures. Without a capture of that name NULL and TG_ERROR_NOT_FOUND; the message lists
 * the names. shape and dtype may be NULL. */
TG_API const void *tg_captures_get_at(tg_site site, const tg_captures *captures, const char *name, tg_shape *shape, tg_dtype *dtype);
#define tg_captures_get(...) tg_captures_get_at(TG_SITE, __VA_ARGS__)
TG_API void tg_captures_destroy(tg_captures *captures);

TG_API int tg_model_param_count(const tg_model *model);
TG_API const char *tg_model_param_name(const tg_model *model, int i);
TG_API tg_status tg_model_param_shape_at(tg_site site, const tg_model *model, const char *name, tg_shape *shape);
#define tg_model_param_shape(...) tg_model_param_shape_at(TG_SITE, __VA_ARGS__)
/* One parameter by name; `count` must be its number of elements. */
TG_API tg_status tg_param_upload_at(tg_site site, tg_model *model, const char *name, const float *data, int64_t count);
#define tg_param_upload(...) tg_param_upload_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_param_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_download(...) tg_param_download_at(TG_SITE, __VA_ARGS__)
/* The average of a parameter, see tg_compile_average. */
TG_API tg_status tg_param_average_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_average_download(...) tg_param_average_download_at(TG_SITE, __VA_ARGS__)
/* The gradient of the last step, before clipping; zeros for a frozen parameter. TG_ERROR_STATE
 * before the first step, after a reset or a load, and for forward models. */
TG_API tg_status tg_param_grad_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_grad_download(...) tg_param_grad_download_at(TG_SITE, __VA_ARGS__)
/* Many parameters in one call. All names and lengths are checked before anything is written.
 * partial: names may be missing. */
TG_API tg_status tg_params_upload_at(tg_site site, tg_model *model, const tg_feed *params, int n, bool partial);
#define tg_params_upload(...) tg_params_upload_at(TG_SITE, __VA_ARGS__)
/* Puts the model `to` in the place of `from`: the parameters and user states of `to` that `from`
 * also has, by name and shape, get the values of `from`. *count (NULL: not wanted) gets the number
 * of these parameters. The two models may differ in device and context; errors are recorded on the
 * context of `to`. All is read before anything is written. */
TG_API tg_status tg_params_carry_at(tg_site site, tg_model *to, tg_model *from, int *count);
#define tg_params_carry(...) tg_params_carry_at(TG_SITE, __VA_ARGS__)

/* Back to the initial values (same seed, same values). Optimiser state, user states, random numbers
 * and step counter begin again. A schedule of tg_model_set_lr stays and begins again. */
TG_API tg_status tg_model_reset_at(tg_site site, tg_model *model);
#define tg_model_reset(...) tg_model_reset_at(TG_SITE, __VA_ARGS__)
/* Optimiser state and step counter begin again, the schedule as above. Parameters and user states
 * stay; random numbers go on. */
TG_API tg_status tg_model_reset_optimizer_at(tg_site site, tg_model *model);
#define tg_model_reset_optimizer(...) tg_model_reset_optimizer_at(TG_SITE, __VA_ARGS__)
/* Replaces the schedule; a decaying schedule begins now. It also governs decoupled decay.
 * TG_ERROR_STATE for a model without an optimizer. */
TG_API tg_status tg_model_set_lr_at(tg_site site, tg_model *model, tg_lr schedule);
#define tg_model_set_lr(...) tg_model_set_lr_at(TG_SITE, __VA_ARGS__)
TG_API int64_t tg_model_step_count(const tg_model *model);

/* A file in safetensors format: parameters and the model's own user states; for training models
 * also optimiser state, schedule, step counter, seed, and how far the random numbers of steps have
 * come. It is written to a temporary file that then replaces `path`, so a failed save leaves the
 * old file. `path` must not be a folder, device or pipe.
 * Load checks everything before it writes anything. Names must agree on both sides, and so must
 * dtypes and shapes. A forward model or a sibling takes from a training file its parameters and the
 * states that it has; these must be in the file; it ignores the rest. A training model takes from a
 * file without training state the parameters and the states that it has, and begins again with all
 * else. Gradients are not saved. If training state is loaded, later resets use the seed of the
 * file. */
TG_API tg_status tg_model_save_at(tg_site site, tg_model *model, const char *path);
#define tg_model_save(...) tg_model_save_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_model_load_at(tg_site site, tg_model *model, const char *path);
#define tg_model_load(...) tg_model_load_at(TG_SITE, __VA_ARGS__)

/* When a GPU is lost, the call that meets it and all later calls that need the device give
 * TG_ERROR_DEVICE_LOST. Recovering opens a device again and goes on from the last snapshot: all
 * parameters, states and the step count as they were after the last compile, reset, upload, load,
 * save or snapshot, whichever came last. (An upload refreshes the uploaded values and leaves the
 * rest of the snapshot as old as it is. A download of one parameter refreshes nothing: values of
 * different ages make no model.) TG_OK, and nothing done, for a device that is not lost;
 * TG_ERROR_STATE for an application's own device. On an error the model stays lost, and another try
 * is allowed. Siblings are recovered with their parent, through either handle. */
TG_API tg_status tg_model_recover_at(tg_site site, tg_model *model);
#define tg_model_recover(...) tg_model_recover_at(TG_SITE, __VA_ARGS__)
/* Copies to the host all that tg_model_recover puts back: one read of each state. Does nothing on
 * the CPU, which is never lost. */
TG_API tg_status tg_model_snapshot_at(tg_site site, tg_model *model);
#define tg_model_snapshot(...) tg_model_snapshot_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- inspection */

typedef struct tg_model_info {
    int64_t parameters; /* numbers that are trained */
    int nodes;          /* graph nodes after the passes */
    int kernels;
    /* of one step or run; on a GPU one may hold several kernels, and a large reduction takes
     * several */
    int dispatches;
    /* WebGPU: launches laid out as tg_model_tune found best on this adapter */
    int tuned;
    int64_t program_bytes; /* size of the program itself */
    /* parameters, gradients, optimiser state, inputs, constants, workspace */
    int64_t peak_bytes;
    int64_t workspace_bytes;
    double contraction_flops; /* of one step; 2 M K N for each contraction */
    /* "cpu (avx512, 2 threads)", "webgpu (NVIDIA H200, vulkan)"; owned by the model (a sibling's by
     * its parent) until it is recovered */
    const char *device;
    const char *adapter;    /* "avx512", "NVIDIA H200"; owned like device */
    tg_precision precision; /* in use: F32 where F16 was asked for but is not offered */
} tg_model_info;
/* For a model with TG_ANY, this call and those below tell of the size used last. */
TG_API tg_status tg_model_get_info_at(tg_site site, tg_model *model, tg_model_info *info);
#define tg_model_get_info(...) tg_model_get_info_at(TG_SITE, __VA_ARGS__)
TG_API tg_shape tg_model_output_shape(const tg_model *model);
TG_API tg_dtype tg_model_output_dtype(const tg_model *model);
typedef enum tg_text { TG_TEXT_IR = 0, TG_TEXT_KERNELS, TG_TEXT_PLAN, TG_TEXT_DOT, TG_TEXT_C, TG_TEXT_WGSL } tg_text;
/* Owned by the model, valid until the next tg_model_text or until the model is destroyed. NULL on
 * error. WGSL of a CPU model is for a device with the guaranteed limits.
 * TG_TEXT_C: a C11 file with void tg_emitted_run(void *const *buffers), which makes one step (of a
 * model that is not trained: one run). Its comments name the buffers to pass, where the parameters
 * are in them, which buffers hold results, and what each kernel reads and writes. It does not check
 * what is fed. */
TG_API const char *tg_model_text_at(tg_site site, tg_model *model, tg_text what);
#define tg_model_text(...) tg_model_text_at(TG_SITE, __VA_ARGS__)

/* The time of one kernel of the training step (of a model that is not trained: of the run). On a
 * GPU: of one launch, which may hold several kernels. */
typedef struct tg_kernel_time {
    /* the operations it fuses: "contract_add_relu"; of several kernels "contract_add, exp_sum".
     * Owned by the model, until the next tg_model_time_kernels */
    const char *name;
    /* "1024 | 256 | 64": rows, columns, summed; of a reduction: what stays | what is reduced; of
     * several kernels that of the one with the most work */
    char loops[64];
    int kernels;         /* of the launch; on the CPU 1 */
    int64_t workgroups;  /* of the launch's largest dispatch; on the CPU 0 */
    double flops;        /* of contractions 2 M K N each, and of attention; else 0 */
    double bytes;        /* of the arrays that it reads and of those that it writes, at least */
    double milliseconds; /* CPU: the least so far; GPU: the median so far, of at most 31 steps */
} tg_kernel_time;
/* Fills times[i] for the first `count` kernels (launches). There are at most tg_model_info.kernels
 * of them, and a times[i] beyond the last is left as it was. Their milliseconds are 0 before the
 * first step. From now on each step (tg_step, tg_run) times its kernels, until another call or the
 * end of the model; where inputs have TG_ANY, each step of the size used last. `times` is the
 * caller's and must live that long; NULL, with a count of 0, ends it. On the CPU it costs a step
 * about 50 ns for each kernel. On a GPU each launch waits for the one before, so that a step takes
 * longer, and steps of tg_step_async and tg_train are not timed. TG_ERROR_UNSUPPORTED where there is
 * no clock: a GPU without the feature timestamp-query, wgpu-native. TG_ERROR_ARGUMENT for a negative
 * count. */
TG_API tg_status tg_model_time_kernels_at(tg_site site, tg_model *model, tg_kernel_time *times, int count);
#define tg_model_time_kernels(...) tg_model_time_kernels_at(TG_SITE, __VA_ARGS__)

/* ---- tuning. The library has rules for laying out contractions, chains, and kernels side by side
 * on a GPU. The user's table overrides them. It is tensorgrad/tuning.txt in XDG_CACHE_HOME,
 *  /.cache or %LOCALAPPDATA%, or the file that TENSORGRAD_TUNING names ("off": no table). It is
 * read when a WebGPU device is opened, for that adapter and driver. A file that is not such a table
 * is ignored; this is logged. A schedule changes the order in which sums are added, so the last
 * bits of results may differ from those without it. The same table gives the same bits. */
typedef struct tg_tune_result { /* of one launch, or of all launches that are like it */
    /* "contract 1x4096x4096x4096 4k 4row short": its name in the table */
    const char *what;
    /* the schedule by the rules, and the fastest; equal where none is clearly faster */
    const char *usual, *best;
    double usual_us, best_us; /* microseconds, the least of several timings */
    /* schedules there are; schedules timed; faster ones with other results, which are not taken */
    int choices, tried, wrong;
    bool faster; /* `best` goes into the table */
} tg_tune_result;
typedef struct tg_tune_options {
    /* about how long it may take; up to 1e6; 0: 30 */
    double seconds;
    bool dry_run; /* write nothing */
    /* called after each; the texts are valid during the call */
    void (*report)(void *user, const tg_tune_result *result);
    void *user;
} tg_tune_options;
/* Times the schedules of the model's step (or run) on its WebGPU adapter, on a second device there.
 * Nothing in the model changes, but the memory is needed twice. A schedule that beats the rules by
 * 5 % and has the same results up to rounding is written to the table, for devices opened from then
 * on. Entries for the other launches of the model are removed; entries for other models stay. The
 * file is replaced as a whole, so two processes cannot spoil it. options may be NULL.
 * TG_ERROR_DEVICE: the model is on the CPU, or the second device failed. TG_ERROR_STATE: the table
 * is switched off. TG_ERROR_IO: it cannot be written. TG_ERROR_FORMAT: the file there is no table;
 * it is left alone. */
TG_API tg_status tg_model_tune_at(tg_site site, tg_model *model, const tg_tune_options *options);
#define tg_model_tune(...) tg_model_tune_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_MODEL_H */
