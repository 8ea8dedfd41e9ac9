/* model (private to src/run): a compiled model and its parts. A family is what a model shares with
 * its siblings: the device, the states on it, the parameters' layout. A variant is one loaded
 * program of a model: the training step, the forward run, each with or without captures; made when
 * first needed and kept. Nothing outside src/run includes this. */
#ifndef TG_MODEL_H
#define TG_MODEL_H

#include "ir/rules.h"
#include "optim/optim.h"
#include "run/executor.h"

#include <float.h>

/* One state on the device; its slot is its position in the family's list. */
typedef struct tg_family_state {
    const char *name;
    tg_shape shape;
    tg_dtype dtype;
    int64_t count;
    double value;
    void *snapshot; /* the snapshot's values, on the host; NULL where the device cannot be lost */
} tg_family_state;

/* Where runs draw their random numbers: a state like TG_RANDOM_STATE, which is of steps. So a run
 * between two steps leaves what the steps draw as it was. Shared by all models of a family. */
#define TG_RANDOM_RUNS "tg.random.runs"

#define TG_CHUNK_BYTES 16384 /* initial values are made and written in pieces of this size */

/* What a step tells of itself. */
typedef struct tg_step_end {
    float loss;
    bool bad_gradient; /* a gradient was not finite; the loss, which was, is NaN here */
    bool skipped;      /* nothing was changed */
} tg_step_end;
/* Instead of a loss: a gradient is not finite, though the loss is. For models whose optimiser
 * watches the gradients. */
#define TG_BAD_GRADIENT (-FLT_MAX)

/* Steps that are not waited for: ticket n is entry n % TG_TICKETS. */
typedef struct tg_ticket_entry {
    tg_status status;
    float loss; /* as the program gives it */
    tg_step_end end;
    const tg_model *model; /* under way */
    int64_t step;          /* its number in training */
    /* why the device failed it; NULL: it did not, or there was no memory to keep it in */
    char *message;
} tg_ticket_entry;
typedef struct tg_tickets {
    tg_ticket given, finished; /* the last ones; those between are under way, at most TG_FLIGHTS */
    tg_ticket_entry entries[TG_TICKETS];
} tg_tickets;

typedef struct tg_family {
    tg_context *ctx;
    tg_arena arena;
    const tg_executor *executor;
    tg_device *device;
    tg_open_options open;     /* how to open another, should this one be lost */
    tg_webgpu_device foreign; /* the application's own; open.foreign points here */
    tg_layout layout;
    const tg_graph *traced; /* the root model's: how its parameters begin */
    TG_LIST(tg_family_state) states;
    uint64_t seed;
    double loss_scale;   /* where halves are used */
    int64_t steps;       /* training steps since the start, skipped ones too */
    int64_t skipped;     /* of them; tg.step on the device has the others */
    bool gradients_read; /* somebody asked for them */
    /* a step has run since the start, the last reset and the last load */
    bool has_gradients;
    /* the device can be lost and may be opened again: there is a snapshot of every state */
    bool can_recover;
    int64_t snapshot_steps, snapshot_skipped; /* of the snapshot */
    bool snapshot_gradients;
    uint8_t *chunk;      /* TG_CHUNK_BYTES */
    uint8_t *seen;       /* layout.count: scratch of uploads */
    tg_tickets *tickets; /* NULL: none was ever given */
} tg_family;

typedef enum tg_variant_kind {
    TG_VARIANT_STEP,
    TG_VARIANT_STEP_CAPTURES,
    TG_VARIANT_RUN,
    TG_VARIANT_RUN_CAPTURES,
    /* nothing but the index checks on computed values: runs before a step, so that a bad index
     * changes nothing */
    TG_VARIANT_CHECK,
    /* the same before a run that draws random numbers: what it changes is where the next run's
     * begin */
    TG_VARIANT_RUN_CHECK,
    /* finds the first value that is not finite, and changes nothing: runs before a step that is
     * checked */
    TG_VARIANT_FINITE,
    TG_VARIANT_COUNT
} tg_variant_kind;

/* A value that may be the first that is not finite. */
typedef struct tg_suspect {
    const char *text; /* "exp[256, 64]" */
    tg_site site;
    bool leaf, backward;
} tg_suspect;

typedef struct tg_variant {
    tg_arena arena;
    tg_graph *graph; /* after the passes; the program points into it */
    tg_program *program;
    tg_executable *executable;
    int32_t *input_index; /* program input -> input of the traced graph */
    const void **inputs;  /* of the call in progress, as executor->run wants them */
    void **outputs;
    int32_t *flags; /* one per computed check */
    /* where the result goes when it must not be written before the flags are read; or NULL */
    void *result;
    size_t result_bytes;
    tg_suspect *suspects; /* of TG_VARIANT_FINITE */
    int64_t suspect_count;
} tg_variant;

struct tg_model {
    tg_context *ctx;
    tg_family *family;
    tg_model *root;   /* itself, unless a sibling */
    tg_model *next;   /* root: first sibling; sibling: the next one */
    tg_model *owner;  /* the model it is another size of (sizes.c); else itself */
    int64_t size;     /* the size of TG_ANY; 0: it has none */
    int64_t used;     /* by the owner's clock, when a call last had this size */
    bool timed;       /* its kernels are (tg_model_time_kernels) */
    tg_graph *traced; /* as built: before training nodes, flattening and passes */
    bool training;
    bool averaged; /* reads the averages of the parameters */
    bool no_fusion;
    bool check_finite;
    tg_optimizer optimizer;
    tg_variant *variants[TG_VARIANT_COUNT];
    tg_variant *lost[TG_VARIANT_COUNT]; /* while recovering: those on the lost device */
    tg_dataset *datasets;               /* whose model this is */
    bool trains;                        /* of a root: tg_train is running */
    tg_build_fn build;                  /* where there is TG_ANY: called for every size */
    void *user;
    int64_t any_size; /* of a root: as in tg_compile_options */
    int max_sizes;
    int64_t clock;              /* of an owner: calls so far */
    tg_model *last;             /* whose size the last call had that was not refused */
    const void **fed;           /* per traced input: data of the call in progress */
    tg_text_buffer text;        /* the last tg_model_text */
    tg_text_buffer timed_names; /* of tg_model_time_kernels */
};

struct tg_captures {
    tg_context *ctx;
    size_t bytes; /* of this block, data included */
    int count;
    struct {
        const char *name;
        tg_shape shape;
        tg_dtype dtype;
        void *data;
    } item[];
};

/* ---- every public call that reports a status begins with this: the last call's error is
 * forgotten, a trace's is not; errors that name no other line are at `site` from now on */
void tg_model_begin(tg_context *ctx, tg_site site);
/* The same of a call that needs the device: first, all steps that are under way end. */
void tg_model_enter(const tg_model *model, tg_site site);
void tg_tickets_settle(tg_family *family);
void tg_tickets_destroy(tg_family *family); /* settled before */
/* TG_ERROR_LIMIT: the counter of steps, an i32 on the device, is at its end. */
tg_status tg_model_check_room(const tg_model *model, const char *call);
/* loss: as the program gave it. */
tg_step_end tg_model_step_end(const tg_model *model, float loss);
/* A step has been made, or skipped: counts it. TG_OK, TG_ERROR_NOT_FINITE. */
tg_status tg_model_count_step(const tg_model *model, const tg_step_end *end);
tg_status tg_model_check_step(tg_context *ctx, int64_t step, const tg_step_end *end);
/* "a, b, c" of at most size - 1 bytes, "..." when cut; "none" for no names. name(user, i) may
 * return NULL: left out. */
typedef const char *(*tg_name_fn)(const void *user, int64_t i);
const char *tg_names_text(char *buffer, size_t size, tg_name_fn name, const void *user, int64_t count);
#define TG_NAMES_TEXT 1024

/* ---- tg_compile (training), tg_compile_forward and tg_compile_sibling of a graph as
 * tg_graph_write wrote it. Nothing in the bytes is trusted. */
tg_model *tg_compile_bytes(tg_context *ctx, const void *bytes, size_t size, const tg_compile_options *options, bool training);
tg_model *tg_compile_sibling_bytes(tg_model *parent, const void *bytes, size_t size, bool averaged);

/* One more size of a model that came from bytes, as a model of its own: for callers that choose the
 * sizes of calls themselves. */
tg_model *tg_compile_size_bytes(tg_model *owner, const void *bytes, size_t size);

/* Values `first` .. `first` + `count` - 1 that a parameter begins with. */
void tg_param_initial_values(const tg_param_info *param, uint64_t seed, int64_t first, int64_t count, float *out);

/* ---- sizes */
/* *model becomes the model of the size that a call feeds, compiled when it is new. Everything is
 * checked first that can be, so that a call that is refused costs no compiling. Nothing to do for a
 * model without TG_ANY. */
tg_status tg_sizes_choose(tg_model **model, const char *call, const tg_feed *feeds, int n);
tg_model *tg_sizes_get(tg_model *owner, int64_t size); /* NULL recorded */
/* a call has been made with this size; those too many go */
void tg_sizes_used(tg_model *model);
/* checks that it is the same model; traced is destroyed on an error */
tg_model *tg_sizes_add(tg_model *owner, tg_graph *traced);
/* the size that the last call had */
tg_model *tg_sizes_last(tg_model *model);
/* a model has been traced, maybe with TG_ANY */
void tg_sizes_begin(tg_model *model, tg_build_fn build, void *user);
tg_status tg_sizes_check_options(tg_context *ctx, const tg_compile_options *options);

/* A model of the owner's kind and family, compiled; traced is its own then, or destroyed. */
tg_model *tg_model_add_size(tg_model *owner, tg_graph *traced);

/* ---- family */
tg_family *tg_family_create(tg_context *ctx, const tg_compile_options *options, const tg_graph *traced);
void tg_family_destroy(tg_family *family); /* NULL is fine */
/* The device that the options and the environment ask for, into family->executor and
 * family->device. */
tg_status tg_family_open(tg_family *family, const tg_compile_options *options);
/* of contractions on the device at hand */
tg_precision tg_family_precision(const tg_family *family);
double tg_family_loss_scale(const tg_family *family);              /* 1 unless halves are used */
int32_t tg_family_find(const tg_family *family, const char *name); /* slot, -1: none */
/* The slot of a state of that name; made, and filled with its first value, when new. -1
 * recorded. */
int32_t tg_family_state_slot(tg_family *family, const tg_state_info *info);
/* The flat parameters, and the states the build function made: they exist whether or not a program
 * uses them. */
tg_status tg_family_make_states(tg_family *family);
/* Gives a state its first values. */
tg_status tg_family_fill(tg_family *family, int32_t slot);
/* Those from `count` on, which no program uses any more. */
void tg_family_forget_states(tg_family *family, int64_t count);
/* Names that begin with "tg." are those of training and must be as training makes them: bytes may
 * claim anything. */
tg_status tg_family_check_names(const tg_family *family, const tg_graph *g);
typedef enum tg_reset_kind { TG_RESET_OPTIMIZER, TG_RESET_OPTIMIZER_AND_USER, TG_RESET_ALL } tg_reset_kind;
tg_status tg_family_reset(tg_family *family, tg_reset_kind kind);
/* in elements */
tg_status tg_family_write(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count);
/* Elements of "tg.parameters"; until the first step their averages, if there are any, are the
 * same. */
tg_status tg_family_write_parameters(tg_family *family, int64_t first, const float *data, int64_t count);
tg_status tg_family_read(tg_family *family, int32_t slot, int64_t first, void *data, int64_t count);
/* The snapshot alone. Nothing where there is none. */
void tg_family_write_snapshot(tg_family *family, int32_t slot, int64_t first, const void *data, int64_t count);
/* Every state into the snapshot, which stays as it was on an error. */
tg_status tg_family_snapshot(tg_family *family);
/* From the snapshot where there is one, else from the device: right after tg_family_snapshot both
 * are the same. */
tg_status tg_family_read_snapshot(tg_family *family, int32_t slot, int64_t first, void *data, int64_t count);
/* Opens another device into *device and puts every state of the snapshot on it. On an error there
 * is no device. */
tg_status tg_family_open_again(tg_family *family, tg_device **device);

/* TG_ERROR_STATE unless there are gradients of a last step. */
tg_status tg_model_check_gradients(const tg_model *model);

/* ---- advice: warnings for the context's log */
void tg_advise_training(tg_graph *g);        /* a root that an optimiser trains has been compiled */
void tg_advise_steps(const tg_model *model); /* a step has been counted */

/* ---- variants */
/* made when first asked for; NULL recorded */
tg_variant *tg_model_variant(tg_model *model, tg_variant_kind kind);
/* The program of index checks that must pass before `main` may run, because it changes something;
 * NULL: none. */
tg_status tg_model_check_variant(tg_model *model, const tg_variant *main, bool is_step, tg_variant **out);
void tg_variant_destroy(const tg_family *family, tg_variant *variant); /* NULL is fine */

/* ---- what is not finite (finite.c) */
/* g: a step that ends with its gradients; nodes from `forward` on are the backward half. Its result
 * becomes a number that names the first suspect, and it writes nothing any more. Suspects and
 * scratch in `arena`, their texts in g's arena. */
tg_status tg_finite_append(tg_graph *g, int64_t forward, tg_arena *arena, tg_suspect **suspects, int64_t *count);
/* TG_OK: there is none */
tg_status tg_finite_tell(const tg_model *model, const tg_variant *variant, float found);

/* ---- feeds: all checks of one call, then model->fed is filled */
tg_status tg_feeds_check(tg_model *model, const char *call, const tg_feed *feeds, int n);
/* The size that feeds give TG_ANY: the same for all inputs. They are checked as tg_feeds_check does
 * for that size. */
tg_status tg_feeds_size(tg_model *model, const char *call, const tg_feed *feeds, int n, int64_t *size);
/* The variant's inputs from model->fed, and its checks on fed indices. */
tg_status tg_feeds_bind(tg_model *model, tg_variant *variant);
/* The same without the checks. */
void tg_feeds_place(const tg_model *model, tg_variant *variant);
/* One array for an input: its name, dtype, bools. `rows`: of these the batches are made; 0: it is a
 * batch itself. size: what TG_ANY stands for; 0: as traced. *input gets its number. */
tg_status tg_feeds_check_array(const tg_model *model, const char *call, const tg_feed *feed, int position, int64_t rows, int64_t size,
                               int64_t *input);
/* The checks of a variant on one input of the trace, over `count` values. */
tg_status tg_feeds_check_values(const tg_model *model, const tg_variant *variant, int64_t input, const void *values, int64_t count);
/* model->fed from feeds in addition to a data set, whose inputs get a pointer that must not be
 * read. */
tg_status tg_feeds_check_beside(tg_model *model, const tg_dataset *dataset, const tg_feed *feeds, int n);

/* ---- data sets */
typedef struct tg_dataset_array {
    const void *given; /* the caller's data, while the data set is made */
    void *rows;        /* a copy of it, where the host makes the batches; else NULL */
    void *batch;       /* room for one; NULL where rows is */
    int64_t row;       /* elements of one; 0: the data set does not list this input */
} tg_dataset_array;
struct tg_dataset {
    tg_context *ctx;
    tg_model *model; /* NULL: it was destroyed */
    tg_dataset *next;
    int64_t rows, batch;
    int64_t input_count;
    tg_dataset_array *arrays; /* per traced input */
    tg_feeder *feeder;        /* NULL: the host makes the batches */
    bool lost;                /* it was on a device that was lost */
    float losses[TG_MOST_STEPS];
};
/* The model's data sets leave its device: the model is destroyed, or its device was lost. */
void tg_datasets_leave(tg_model *model, bool destroyed);
/* The batch of that step into each array's `batch`. */
void tg_dataset_fill(const tg_dataset *dataset, const tg_draw *draw);

/* ---- captures: every block of it allocated, nothing filled; variant->outputs point into it */
tg_captures *tg_captures_make(tg_context *ctx, tg_variant *variant);

#endif
