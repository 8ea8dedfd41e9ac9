/* tensorgrad, model: compile a build function, train, run, read and save the result, inspect and tune it. */
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
    tg_optimizer optimizer; /* none: a step computes loss and gradients and changes nothing but writebacks */
    uint64_t seed;          /* of the initial values and of random numbers */
    tg_device_kind device;
    int threads;    /* CPU, 0 to 1024; 0: TENSORGRAD_THREADS, else the number of cores. Results do not depend on it. */
    bool no_fusion; /* one kernel per operation: slow, for comparison */
    /* Before every step a program of its own looks at all values, forward and back. Where loss or gradients are not finite, the step fails
     * with TG_ERROR_NOT_FINITE, nothing is changed (not even the count of steps), and message and call site are those of the first
     * operation, input, parameter or state that is worse than what it was made of: "step 3: exp[256, 64] made inf, ...". Slow: for
     * finding out. Then steps are not made ahead, nor batches on the device. */
    bool check_finite;
    /* WebGPU: which adapter: "#0" as tg_adapters counts, or a part of its name, vendor or backend, in any case. NULL or "":
     * TENSORGRAD_ADAPTER, else the best. None that fits is TG_ERROR_DEVICE, the adapters listed. */
    const char *adapter;
    const tg_webgpu_device *webgpu; /* the application's own; `device` must not be CPU. NULL: one is opened */
    tg_precision precision;         /* siblings have their parent's */
    /* With F16 in use, cotangents are computed times this, so that small ones do not vanish among the halves, and gradients are
     * divided by it: both exact. A power of two from 1 to 2^24; 0 means 4096, TG_ZERO is refused: cotangents from 1.5e-8 to 16 keep eleven
     * bits. */
    double loss_scale;
    /* Where inputs have TG_ANY: what it stands for when the model is traced and compiled first, the size that most calls have. 0: 2. The
     * build function is called again for every other size, when the first call feeds it: it and `user` must live as long as the model,
     * and must make the same parameters, states and inputs each time. All TG_ANY of one call are the same size (else TG_ERROR_SHAPE).
     * Parameters, optimiser state, step counter and random numbers are one for all sizes: a step is what it would be if the model
     * were made for that size alone. What is wrong with a size is said by the call that feeds it, and changes nothing. */
    int64_t any_size;
    int max_sizes; /* how many other sizes are kept compiled, the one not used for longest goes first; 0: 8. One with data sets stays. */
} tg_compile_options;

/* Traces, differentiates with respect to every unfrozen parameter, fuses, plans, initialises. options may be NULL. A build
 * function cannot compile or trace: TG_ERROR_TRACE. A call that feeds a size for the first time compiles too.
 * Returned: destroy with tg_model_destroy. NULL on error, see tg_error(ctx). */
TG_API tg_model *tg_compile_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile(...) tg_compile_at(TG_SITE, __VA_ARGS__)
/* Forward only: the built tensor is the output, any shape and dtype. The optimizer of the options is not looked at. */
TG_API tg_model *tg_compile_forward_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options);
#define tg_compile_forward(...) tg_compile_forward_at(TG_SITE, __VA_ARGS__)
/* A forward graph that shares `parent`'s parameters, states, threads, any_size and max_sizes. All its parameters must exist there; it lists
 * all of the parent's, used or not. Its runs make no writebacks. Destroyed with its parent at the latest; destroying it earlier is fine.
 * Resets, uploads and loads through it act on the shared values. Random numbers are drawn anew in each run. */
TG_API tg_model *tg_compile_sibling_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_sibling(...) tg_compile_sibling_at(TG_SITE, __VA_ARGS__)
/* The same over the averages of the parent's parameters (tg_optimizer.average), which until the first update are what the parameters
 * begin with; frozen parameters stand for themselves. A parent that keeps no average is TG_ERROR_STATE. */
TG_API tg_model *tg_compile_average_at(tg_site site, tg_model *parent, tg_build_fn build, void *user);
#define tg_compile_average(...) tg_compile_average_at(TG_SITE, __VA_ARGS__)
/* Cascades to siblings. NULL is fine. */
TG_API void tg_model_destroy(tg_model *model);
TG_API tg_context *tg_model_context(const tg_model *model);

/* One named input of a call. `count` elements of `dtype` (bool: one byte each, 0 or 1; more is TG_ERROR_ARGUMENT). `data` is only
 * read, and only during the call. */
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

/* One training step. *loss gets the loss (loss may be NULL). A missing, unknown, doubled or wrongly sized or typed feed,
 * or an index outside its table, is an error and changes nothing. Fed indices are checked on the host; indices that the model
 * computes by a small program that runs before the step. A loss that is NaN or infinite gives TG_ERROR_NOT_FINITE after the
 * step: *loss is written and the update has been made. Where the optimizer clips by norm, normalizes or skips, a gradient that is
 * not finite gives it too (*loss is NaN then, though the loss was finite); elsewhere such a gradient makes parameters NaN or infinite, and
 * the next step's loss tells. With skip_non_finite, for a loss or a gradient: parameters, moments, averages, accumulated gradients, the
 * optimizer's own count of steps with its schedule, and user states are as they were, bit for bit, as if the step had not been; but it
 * counts in tg_model_step_count, its batch and its random numbers are used up, and tg_param_grad_download gives its gradients.
 * Allocates nothing. See check_finite of tg_compile_options for where it came from. */
TG_API tg_status tg_step_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss);
#define tg_step(...) tg_step_at(TG_SITE, __VA_ARGS__)
/* As tg_step; *captures gets every captured tensor, as it was before the update. Returned: destroy with tg_captures_destroy,
 * before the context; it may outlive the model. Handed over on TG_ERROR_NOT_FINITE too, but of check_finite; on every other error *captures
 * is NULL.
 * The first call compiles a program of its own. */
TG_API tg_status tg_step_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures);
#define tg_step_captures(...) tg_step_captures_at(TG_SITE, __VA_ARGS__)
/* The built tensor (the loss of a training model), no update and no writebacks; random numbers are drawn anew. `capacity` is in elements
 * and must be at least the output's count; elements are of the output's dtype. NaN and infinity are values like any other. Feeds and
 * indices as in tg_step. The first call on a training model compiles a program of its own; later ones allocate nothing. */
TG_API tg_status tg_run_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity);
#define tg_run(...) tg_run_at(TG_SITE, __VA_ARGS__)
/* As tg_run and tg_step_captures; on an error *captures is NULL. */
TG_API tg_status tg_run_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity,
                                    tg_captures **captures);
#define tg_run_captures(...) tg_run_captures_at(TG_SITE, __VA_ARGS__)

/* ---- steps that are not waited for. tg_step_async checks as tg_step does, and fails as it does, nothing changed and *ticket 0; else it
 * hands the step to the device and returns, the number of the step in *ticket: 1, 2, ... of a model and its life. What the step itself
 * says (a loss that is not finite, a device that fails) is said by tg_wait. A device has three steps at most: the fourth call waits for
 * the first. The order of calls is kept; every other call of the model or its siblings that needs the device waits for all steps
 * before it, and so does destroying. In place, and done when it returns: on the CPU, of a model that computes indices, and where the
 * model has nothing to run. Allocates nothing once three steps have been under way. */
typedef int64_t tg_ticket;
TG_API tg_status tg_step_async_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, tg_ticket *ticket);
#define tg_step_async(...) tg_step_async_at(TG_SITE, __VA_ARGS__)
/* The step's status and loss, as tg_step gives them (loss may be NULL); a ticket may be waited for again. The last TG_TICKETS steps are
 * remembered: of older ones, and of tickets that were never given, TG_ERROR_NOT_FOUND. */
#define TG_TICKETS 256
TG_API tg_status tg_wait_at(tg_site site, tg_model *model, tg_ticket ticket, float *loss);
#define tg_wait(...) tg_wait_at(TG_SITE, __VA_ARGS__)
/* *done: tg_wait would not wait. */
TG_API tg_status tg_poll_at(tg_site site, tg_model *model, tg_ticket ticket, bool *done);
#define tg_poll(...) tg_poll_at(TG_SITE, __VA_ARGS__)

/* ---- many steps in one call, on data that is there. A data set gives rows for inputs of a training model: arrays[i] has `rows` rows of
 * the input of that name, whose first axis is the batch (all inputs listed have the same batch B; `rows` may be less). What is wrong
 * with names, dtypes, counts, bools and indices, anywhere in the data, is said here, as tg_step says it of a batch. The data is
 * copied. Returned: destroy with tg_dataset_destroy, before the context; the model may be destroyed first. NULL on error. */
TG_API tg_dataset *tg_dataset_create_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows);
#define tg_dataset_create(...) tg_dataset_create_at(TG_SITE, __VA_ARGS__)
/* The same in batches of `batch` rows, for inputs whose first axis is TG_ANY. 0: as the model was compiled first. Any other model:
 * TG_ERROR_SHAPE unless its batch is that. */
TG_API tg_dataset *tg_dataset_create_batch_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch);
#define tg_dataset_create_batch(...) tg_dataset_create_batch_at(TG_SITE, __VA_ARGS__)
TG_API void tg_dataset_destroy(tg_dataset *dataset); /* NULL is fine */

/* Which rows step t takes, t being tg_model_step_count before it, i = 0 .. B - 1:
 *   RANDOM      row floor(r rows / 2^32), with r the first word of Philox 4x32-10 for the counter (i, t's low word, t's high word,
 *               0x726F7773) and the key `seed`: with replacement, each row equally likely to within rows / 2^32
 *   SEQUENTIAL  row (t B + i) mod rows */
typedef enum tg_batch_order { TG_BATCH_RANDOM = 0, TG_BATCH_SEQUENTIAL = 1 } tg_batch_order;
/* step: tg_model_step_count after it. false: no more. May read the model or run it and its siblings; must not
 * train, recover or destroy it, nor destroy the data set. */
typedef bool (*tg_progress_fn)(void *user, int64_t step, float loss);
#define TG_MOST_STEPS 4096 /* of one submission */
typedef struct tg_train_options {
    int64_t steps; /* to make, 0 or more */
    tg_batch_order order;
    uint64_t seed;        /* of the random order */
    const tg_feed *feeds; /* inputs that the data set does not list: the same in every step */
    int feed_count;
    /* How many steps a GPU is given at a time, 1 .. TG_MOST_STEPS; 0: as many as take some 40 ms, by what was measured; and one
     * where a step takes a quarter of a second. Losses are looked at when they have been made; so what ends training early ends it
     * behind the last of them. The CPU looks after every one. */
    int64_t steps_per_submission;
    tg_progress_fn progress; /* after every step, in order; NULL: nobody asks */
    void *progress_user;
    double target_loss; /* [0: none; TG_ZERO: 0] end once a loss is no more than this; finite */
    int64_t patience;   /* [0: none] end once the least loss is so many steps old */
    int reserved_;
} tg_train_options;
typedef enum tg_train_end {
    TG_TRAIN_ALL = 0,      /* all steps were made */
    TG_TRAIN_TARGET = 1,   /* target_loss */
    TG_TRAIN_PATIENCE = 2, /* patience */
    TG_TRAIN_STOPPED = 3,  /* progress said so */
    TG_TRAIN_FAILED = 4    /* see the status */
} tg_train_end;
typedef struct tg_train_result {
    int64_t steps;    /* made by this call */
    tg_train_end end; /* why no more */
    float loss, best; /* the last, the least; NaN when there was none */
} tg_train_result;
/* tg_step, options->steps times, on batches drawn from the data set on the device: same losses, bit for bit, as tg_step with those rows.
 * losses (NULL: not wanted) has room for all steps and gets those of the steps made. Counter, optimiser state and schedule go on
 * from the steps before, and the steps after from these. *result (NULL: not wanted) is written whenever steps were begun, on errors
 * too. The data set must be this model's and on its device: after tg_model_recover it is made anew. TG_ERROR_STATE for a model that neither
 * has an optimizer nor writes anything back; TG_ERROR_NOT_FINITE as of tg_step, behind
 * the last step of its submission. What is refused changes nothing. Allocates nothing. */
TG_API tg_status tg_train_at(tg_site site, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses,
                             tg_train_result *result);
#define tg_train(...) tg_train_at(TG_SITE, __VA_ARGS__)

TG_API int tg_captures_count(const tg_captures *captures);
TG_API const char *tg_captures_name(const tg_captures *captures, int i);
TG_API bool tg_captures_has(const tg_captures *captures, const char *name);
/* Owned by captures. NULL and TG_ERROR_NOT_FOUND (known names listed) when there is none; shape, dtype may be NULL. */
TG_API const void *tg_captures_get_at(tg_site site, const tg_captures *captures, const char *name, tg_shape *shape, tg_dtype *dtype);
#define tg_captures_get(...) tg_captures_get_at(TG_SITE, __VA_ARGS__)
TG_API void tg_captures_destroy(tg_captures *captures);

TG_API int tg_model_param_count(const tg_model *model);
TG_API const char *tg_model_param_name(const tg_model *model, int i);
TG_API tg_status tg_model_param_shape_at(tg_site site, const tg_model *model, const char *name, tg_shape *shape);
#define tg_model_param_shape(...) tg_model_param_shape_at(TG_SITE, __VA_ARGS__)
/* One parameter by name; count must equal its element count. */
TG_API tg_status tg_param_upload_at(tg_site site, tg_model *model, const char *name, const float *data, int64_t count);
#define tg_param_upload(...) tg_param_upload_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_param_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_download(...) tg_param_download_at(TG_SITE, __VA_ARGS__)
/* Its average, see tg_compile_average. */
TG_API tg_status tg_param_average_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_average_download(...) tg_param_average_download_at(TG_SITE, __VA_ARGS__)
/* Gradient of the last step, before clipping; zeros for a frozen parameter. TG_ERROR_STATE before the first step, after a reset
 * or a load, and for forward models. */
TG_API tg_status tg_param_grad_download_at(tg_site site, tg_model *model, const char *name, float *data, int64_t count);
#define tg_param_grad_download(...) tg_param_grad_download_at(TG_SITE, __VA_ARGS__)
/* Many at once: every name and length is checked before anything is written. partial: names may be missing. */
TG_API tg_status tg_params_upload_at(tg_site site, tg_model *model, const tg_feed *params, int n, bool partial);
#define tg_params_upload(...) tg_params_upload_at(TG_SITE, __VA_ARGS__)
/* Puts a model in the place of another: the parameters and user states of `to` that `from` has too, by name and shape, get its values;
 * *count (NULL: not wanted) gets how many parameters. The two may differ in device and context; errors are recorded on `to`'s. All is read
 * before anything is written. */
TG_API tg_status tg_params_carry_at(tg_site site, tg_model *to, tg_model *from, int *count);
#define tg_params_carry(...) tg_params_carry_at(TG_SITE, __VA_ARGS__)

/* Initial values again (same seed, same values); optimiser state, user states, random numbers and step counter back to the start. A
 * schedule set by tg_model_set_lr stays in force and begins again. */
TG_API tg_status tg_model_reset_at(tg_site site, tg_model *model);
#define tg_model_reset(...) tg_model_reset_at(TG_SITE, __VA_ARGS__)
/* Optimiser state and step counter back to the start, the schedule as above; parameters and user states stay, random numbers go on. */
TG_API tg_status tg_model_reset_optimizer_at(tg_site site, tg_model *model);
#define tg_model_reset_optimizer(...) tg_model_reset_optimizer_at(TG_SITE, __VA_ARGS__)
/* Replaces the schedule; a decaying schedule begins at its start now. Governs decoupled decay too. TG_ERROR_STATE for a model
 * without an optimizer. */
TG_API tg_status tg_model_set_lr_at(tg_site site, tg_model *model, tg_lr schedule);
#define tg_model_set_lr(...) tg_model_set_lr_at(TG_SITE, __VA_ARGS__)
TG_API int64_t tg_model_step_count(const tg_model *model);

/* Parameters and the model's own user states (and, for training models, optimiser state, schedule, step counter, seed, where steps stand in
 * their random numbers) in safetensors format, written to a temporary file that then replaces `path` (which may not
 * be a folder, device or pipe): a failed save leaves the old file.
 * Load checks everything before it writes anything; names must agree on both sides, dtypes and shapes too. A training file into a forward
 * model or a sibling: its parameters and the states that the model has, which must be there; the rest is left out. A file without training
 * state into a training model: the parameters, the states that it has, and all else from the start. Gradients are not kept. Where training
 * state is loaded, the seed of later resets is the file's. */
TG_API tg_status tg_model_save_at(tg_site site, tg_model *model, const char *path);
#define tg_model_save(...) tg_model_save_at(TG_SITE, __VA_ARGS__)
TG_API tg_status tg_model_load_at(tg_site site, tg_model *model, const char *path);
#define tg_model_load(...) tg_model_load_at(TG_SITE, __VA_ARGS__)

/* Losing a GPU is TG_ERROR_DEVICE_LOST, from the call that meets it and from all calls that need the device after it. Recovering
 * opens a device again and goes on from the last snapshot: all parameters, states and the step count as they were after the
 * last compile, reset, upload, load, save or snapshot, whichever came last. (An upload touches the values uploaded and leaves the
 * rest of the snapshot as old as it is. A download of one parameter takes none: values of different ages make no model.)
 * TG_OK and nothing done for a device that is not lost; TG_ERROR_STATE for an application's own. On an error the model stays
 * lost, and another try is allowed. Siblings are recovered with their parent, through either handle. */
TG_API tg_status tg_model_recover_at(tg_site site, tg_model *model);
#define tg_model_recover(...) tg_model_recover_at(TG_SITE, __VA_ARGS__)
/* Takes a host copy of everything tg_model_recover puts back; one read of every state. Nothing on the CPU, which is never lost. */
TG_API tg_status tg_model_snapshot_at(tg_site site, tg_model *model);
#define tg_model_snapshot(...) tg_model_snapshot_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- inspection */

typedef struct tg_model_info {
    int64_t parameters; /* trained numbers */
    int nodes;          /* graph nodes after the passes */
    int kernels;
    int dispatches;        /* launches of one step or run: a GPU's hold several kernels; a large reduction is more than one */
    int tuned;             /* launches laid out as tg_model_tune found best on this adapter, WebGPU */
    int64_t program_bytes; /* the program's own size */
    int64_t peak_bytes;    /* parameters, gradients, optimiser state, inputs, constants, workspace */
    int64_t workspace_bytes;
    double contraction_flops; /* of one step: 2 M K N each */
    const char *device;       /* "cpu (avx512, 2 threads)", "webgpu (NVIDIA H200, vulkan)"; owned by the model, or by a sibling's
                                 parent, until it is recovered */
    const char *adapter;      /* "avx512", "NVIDIA H200"; as device */
    tg_precision precision;   /* in use: F32 where F16 was asked for and is not offered */
} tg_model_info;
/* Of a model with TG_ANY, what is told here and below is of the size used last. */
TG_API tg_status tg_model_get_info_at(tg_site site, tg_model *model, tg_model_info *info);
#define tg_model_get_info(...) tg_model_get_info_at(TG_SITE, __VA_ARGS__)
TG_API tg_shape tg_model_output_shape(const tg_model *model);
TG_API tg_dtype tg_model_output_dtype(const tg_model *model);
typedef enum tg_text { TG_TEXT_IR = 0, TG_TEXT_KERNELS, TG_TEXT_PLAN, TG_TEXT_DOT, TG_TEXT_C, TG_TEXT_WGSL } tg_text;
/* Owned by the model, valid until the next tg_model_text or its destruction. NULL on error. WGSL of a CPU model: for a device with
 * the guaranteed limits. TG_TEXT_C: a C11 file with void tg_emitted_run(void *const *buffers), which makes one step (one run of a model
 * that is not trained); its comments name the buffers to pass, where in them the parameters lie, which hold results, and what each kernel
 * reads and writes. It does not check what is fed. */
TG_API const char *tg_model_text_at(tg_site site, tg_model *model, tg_text what);
#define tg_model_text(...) tg_model_text_at(TG_SITE, __VA_ARGS__)

/* What a kernel of the training step (of the run of a model that is not trained) takes. */
typedef struct tg_kernel_time {
    const char *name;    /* the operations it fuses: "contract_add_relu"; owned by the model, until the next call */
    char loops[64];      /* "1024 | 256 | 64": rows, columns, summed; of a reduction, what stays | what is reduced */
    double flops;        /* of a contraction: 2 M K N; else 0 */
    double milliseconds; /* the least so far; 0 before the first step */
} tg_kernel_time;
/* Fills times[i] for the first `count` kernels (tg_model_info.kernels has their number) and from now on has each step time its
 * kernels, until another call or the model's end (where inputs have TG_ANY: steps of the size used last); `times` is the caller's and must
 * live that long. On the CPU only: elsewhere TG_ERROR_UNSUPPORTED. TG_ERROR_ARGUMENT for a negative count. A step gets slower by some 50 ns
 * a kernel. */
TG_API tg_status tg_model_time_kernels_at(tg_site site, tg_model *model, tg_kernel_time *times, int count);
#define tg_model_time_kernels(...) tg_model_time_kernels_at(TG_SITE, __VA_ARGS__)

/* ---- tuning. How contractions, chains and kernels side by side are laid out on a GPU follows from rules of ours unless the user's table
 * says otherwise: tensorgrad/tuning.txt in XDG_CACHE_HOME, ~/.cache or %LOCALAPPDATA%, or the file that TENSORGRAD_TUNING names ("off":
 * none). It is read when a WebGPU device is opened, for that adapter and driver; a file that is not such a table is ignored, which is
 * logged. A schedule changes the order in which sums are added, so results may differ in their last bits from those without it;
 * the same table gives the same bits. */
typedef struct tg_tune_result { /* of one launch, or of all that are like it */
    const char *what;           /* "contract 1x4096x4096x4096 4k 4row short": what the table knows it by */
    const char *usual, *best;   /* the schedule by our rules, and the fastest; the same where none is clearly faster */
    double usual_us, best_us;   /* microseconds, the least of several timings */
    int choices, tried, wrong;  /* schedules there are; those timed; of them faster ones with other results, which are not taken */
    bool faster;                /* `best` goes into the table */
} tg_tune_result;
typedef struct tg_tune_options {
    double seconds;                                           /* that it may take, about; up to 1e6; 0: 30 */
    bool dry_run;                                             /* store nothing */
    void (*report)(void *user, const tg_tune_result *result); /* after each; the texts are valid during the call */
    void *user;
} tg_tune_options;
/* Times the schedules of the model's step (or run) on its WebGPU adapter, on a second device there: neither parameters nor anything else
 * of the model changes, but there is need for its memory once more. What beats our rules by 5 % and has the same results up to
 * rounding is written to the table, for devices that are opened from then on; what the table says of the rest of the model is taken
 * out; what it says of others stays. The file is replaced as a whole, so that two processes cannot spoil it. options may be NULL.
 * TG_ERROR_DEVICE: the model is on the CPU, or the second device failed. TG_ERROR_STATE: the table is switched off. TG_ERROR_IO: it
 * cannot be written. TG_ERROR_FORMAT: the file there is no table; it is left alone. */
TG_API tg_status tg_model_tune_at(tg_site site, tg_model *model, const tg_tune_options *options);
#define tg_model_tune(...) tg_model_tune_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_MODEL_H */
