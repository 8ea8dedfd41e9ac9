/* replay: from a program, a device's limits and the slots of its states to all that an executor
 * needs to run the program on a WebGPU device, as plain data: each launch printed once, equal
 * sources joined, each binding resolved to a part of a buffer, where inputs and outputs lie, sizes,
 * a data set's layout, how much goes into one submission. So the executors, native and a page's,
 * decide none of this, and give the same messages if a device is too small. Calls the printers.
 * Must not know WebGPU libraries or JavaScript. */
#ifndef TG_REPLAY_H
#define TG_REPLAY_H
#include "base/draw.h"
#include "kernel/device_model.h"
#include "run/executor.h"

/* What a device allows beyond what the printers need to know. */
typedef struct tg_replay_limits {
    const tg_device_model *model;                /* borrowed while a replay or a feeder is made */
    int64_t max_binding_bytes, max_buffer_bytes; /* maxStorageBufferBindingSize, maxBufferSize */
} tg_replay_limits;

/* The buffers of an executable, those of a feeder, then the states of the device. */
enum {
    TG_REPLAY_NOWHERE = -1,
    TG_REPLAY_WORKSPACE,
    TG_REPLAY_SCRATCH,
    TG_REPLAY_INPUTS,
    TG_REPLAY_CONSTANTS,
    TG_REPLAY_OWN, /* number of blocks of an executable */
    TG_REPLAY_DATA = TG_REPLAY_OWN,
    TG_REPLAY_CONTROL,
    TG_REPLAY_HISTORY,
    TG_REPLAY_BLOCKS,                   /* number of blocks with a feeder's */
    TG_REPLAY_STATES = TG_REPLAY_BLOCKS /* + the device's slot */
};
#define TG_REPLAY_ALIGN 256                                 /* of offsets that are bound */
extern const char *const tg_replay_names[TG_REPLAY_BLOCKS]; /* "the workspace", .., for messages */

/* Bytes [offset, offset + bytes) of a block or a state. bytes is a multiple of 4. */
typedef struct tg_replay_slice {
    int32_t block;
    int64_t offset, bytes;
} tg_replay_slice;

/* A module with entry point `main`. No two sources of a replay have the same text. */
typedef struct tg_replay_source {
    const char *text; /* NULL after tg_replay_drop_texts */
    size_t length;
    uint64_t hash; /* of text and binding_count */
    int32_t binding_count;
    const char *label; /* the kernel that needs it first, for messages */
} tg_replay_source;
tg_replay_source tg_replay_source_of(const char *text, size_t length, int32_t binding_count, const char *label);
/* text and binding_count */
bool tg_replay_same_source(const tg_replay_source *a, const tg_replay_source *b);

/* One dispatch. */
typedef struct tg_replay_stage {
    int32_t source;
    int32_t groups[3];
    int32_t binding_count;
    /* slices[i] is @group(0) @binding(i), a storage buffer, read_write */
    const tg_replay_slice *slices;
    /* the same in the printer's numbers (tg_wgsl_stage); NULL after tg_replay_drop_texts */
    const int32_t *bindings;
    const char *label; /* the first kernel of its launch */
    int32_t launch;    /* of the program */
} tg_replay_stage;

typedef struct tg_replay {
    tg_arena arena, texts;
    const tg_program *program;    /* borrowed */
    int64_t bytes[TG_REPLAY_OWN]; /* of the blocks; 0: nothing lies there */
    /* per program buffer: all of it. NOWHERE: no kernel touches it on the device */
    tg_replay_slice *places;
    /* per program input, in the block of inputs; -1: no kernel reads it, and it need not be sent */
    int64_t *input_offset;
    /* per program output, in a buffer of readback_bytes: multiples of 16, ascending */
    int64_t *readback_offset;
    int64_t readback_bytes;
    tg_replay_source *sources;
    int32_t source_count;
    tg_replay_stage *stages; /* in order */
    int32_t stage_count;
    int32_t tuned; /* launches that the table of schedules laid out */
} tg_replay;

/* program: made for a WebGPU device; state_slots[state of the program]: the device's slot. Cost:
 * that of printing all launches. Errors: TG_ERROR_MEMORY; TG_ERROR_LIMIT, whose message names the
 * buffer, the kernel and the limit. After an error, too, *out must be freed, and out->tuned says
 * whether the table took part. */
tg_status tg_replay_make(tg_context *ctx, const tg_program *program, const int32_t *state_slots, const tg_replay_limits *limits,
                         tg_replay *out);
/* Frees the texts of the sources, which are needed until pipelines are made. */
void tg_replay_drop_texts(tg_replay *replay);
void tg_replay_free(tg_replay *replay); /* zeroed is fine */
/* For each of the first `count` launches, the workgroups of its largest dispatch. */
void tg_replay_note_workgroups(const tg_replay *replay, tg_kernel_time *times, int32_t count);
/* The slice of an output that is read back. */
tg_replay_slice tg_replay_output(const tg_replay *replay, int32_t output);
#define TG_REPLAY_NAME 128
/* "W, 12 elements,": a state in messages. Returns text. */
const char *tg_replay_state_name(char text[TG_REPLAY_NAME], const char *name, int64_t count);
/* TG_ERROR_LIMIT for a buffer of more bytes than maxBufferSize. */
tg_status tg_replay_check_buffer(tg_context *ctx, int64_t max_buffer_bytes, const char *what, int64_t bytes);

/* ---- a data set on the device, and the kernel that draws the batch of a step from it
 * (emit/emit.h) */

typedef struct tg_replay_array {
    /* byte of the data where the rows begin, a multiple of 256; -1: no kernel reads the input, and
     * no rows are drawn for it */
    int64_t from;
    int64_t count; /* elements of all rows */
} tg_replay_array;
typedef struct tg_replay_feeder {
    tg_arena arena;
    tg_replay_array *arrays;         /* in the order of the options */
    bool *given;                     /* per program input: the data set has it, so it is not fed */
    int64_t bytes[TG_REPLAY_BLOCKS]; /* of the feeder's blocks */
    tg_replay_source draw;           /* the kernel that draws */
    int32_t groups[3];
    /* what it binds in one step and in the next: the two parts of control take turns */
    tg_replay_slice *turns[2];
    tg_replay_slice loss; /* of the step: one word */
} tg_replay_feeder;
/* Errors, and what to free: as for tg_replay_make. Keeps nothing of replay or options. The block of
 * inputs is bound even if it has no bytes. */
tg_status tg_replay_make_feeder(tg_context *ctx, const tg_replay *replay, const tg_feeder_options *options, const tg_replay_limits *limits,
                                tg_replay_feeder *out);
void tg_replay_free_feeder(tg_replay_feeder *feeder); /* zeroed is fine */

/* ---- pacing: how much goes into one submission. A submission that takes longer than `slow` makes
 * the next ones shorter, because a watchdog might end it or a page could not draw; on a fast device
 * they grow back. */

typedef struct tg_pace {
    int32_t stages;         /* dispatches of a run */
    int32_t per_submission; /* dispatches of a submission; `stages` unless they took too long */
    int64_t runs;           /* of the next submission of a feeder that may choose */
} tg_pace;
tg_pace tg_pace_make(int32_t stages);
/* The end of the submission that begins at dispatch `begin`. */
int32_t tg_pace_end(const tg_pace *pace, int32_t begin);
/* Reports that a submission of `dispatches` took `nanoseconds`. */
void tg_pace_took(tg_pace *pace, int32_t dispatches, int64_t nanoseconds, int64_t slow);
/* Runs of the next submission of a feeder: at most `most`, and that many if `exact`. A run that is
 * cut is alone in its submission. */
int64_t tg_pace_runs(const tg_pace *pace, int64_t most, bool exact);
/* Reports that such a submission of `count` runs took `nanoseconds`; the next one should take
 * `busy`. */
void tg_pace_ran(tg_pace *pace, int64_t count, int64_t nanoseconds, int64_t busy);
#endif
