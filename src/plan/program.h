/* program: everything a device needs to run one graph: buffers, kernels in order, what is fed and
 * what is read back. Plain data, made once, never changed. Owns liveness and placement. Knows
 * kernels; must not know devices. */
#ifndef TG_PROGRAM_H
#define TG_PROGRAM_H

#include "ir/dtype.h"
#include "ir/tables.h"
#include "kernel/device_model.h"
#include "kernel/kernel.h"

typedef enum tg_storage {
    TG_STORAGE_WORKSPACE, /* bytes [offset, offset + size) of the program's workspace */
    TG_STORAGE_INPUT,     /* program.inputs[slot] */
    /* elements of state `slot` of the model (graph states table), from byte `offset` */
    TG_STORAGE_STATE,
    TG_STORAGE_CONSTANT /* data */
} tg_storage;

typedef struct tg_buffer {
    tg_storage storage;
    /* of its elements as they are stored: see tg_program_element_bytes (in `data`:
     * tg_dtype_bytes) */
    tg_dtype dtype;
    int64_t count; /* elements */
    /* bytes, a multiple of 256 except of STATE; INPUT: in a block that holds all inputs; CONSTANT:
     * in a block of all constants */
    int64_t offset;
    int32_t slot;
    const void *data;
    const char *name; /* for messages; may be NULL */
    int32_t node;     /* graph node whose value it holds */
    /* kernels [first, last] between which it must hold its value; program outputs: last =
     * kernel_count */
    int32_t first, last;
} tg_buffer;

typedef struct tg_output {
    const char *name;
    int32_t buffer;
    tg_shape shape;
    tg_dtype dtype;
} tg_output;

/* An index check on a computed value: outputs[output] is an i32 scalar, non-zero when some index
 * was bad. */
typedef struct tg_computed_check {
    int32_t output;
    const char *op;
    tg_site site;
    int64_t lo, hi;
} tg_computed_check;
/* An index check on a fed value, made on the host before anything runs. */
typedef struct tg_feed_check {
    int32_t input;
    int64_t lo, hi;
    bool has_ignore;
    int32_t ignore;
    const char *op;
    tg_site site;
} tg_feed_check;

/* Kernels [first, first + count), started together.
 *   slices 0: side by side. None reads, overwrites or takes the place of what another of them
 *             touches, unless all only read it, or each writes other elements of it. A lone
 *             kernel is a launch of one.
 *   slices S: a chain. The kernels run in order, but slice by slice. Loop 0 of each kernel (an
 *             outer loop, E points, a multiple of S) is cut in S equal slices. Of what kernels of
 *             the chain store, slice s of a kernel reads only what slice s of an earlier kernel
 *             stored, and it stores only into slice s of the buffer: elements [s R, (s + 1) R) of
 *             S R. So S workgroups run through the chain without waiting for each other. Memory
 *             changes hands within a chain only between buffers of the same place, size and
 *             element size, whose accesses in the chain are all by slices.
 * A launch of several kernels binds blocks, not buffers: the workspace, the inputs, the constants,
 * a scratch, and each state it touches; together at most the device's max_arguments. */
typedef struct tg_launch {
    int32_t first, count, slices;
} tg_launch;

typedef struct tg_program {
    tg_arena arena;
    tg_buffer *buffers;
    int32_t buffer_count;
    tg_kernel *kernels;
    int32_t kernel_count;
    /* every kernel is in one, in order; where the device does not join, each is alone in its own */
    tg_launch *launches;
    int32_t launch_count;
    tg_input_info *inputs; /* names, shapes, dtypes; node ids as in the graph */
    int32_t input_count;
    tg_state_info *states; /* slot -> what it is */
    int32_t state_count;
    tg_output *outputs; /* [0] result; then captures; then check flags */
    int32_t output_count;
    int32_t capture_begin, capture_count;
    tg_computed_check *computed_checks;
    int32_t computed_check_count;
    tg_feed_check *feed_checks;
    int32_t feed_check_count;
    bool in_words; /* as the device has it */
    int64_t workspace_bytes;
    int64_t constant_bytes, input_bytes, state_bytes;
    /* of the blocks, gaps included; all but 0 are multiples of 256 */
    int64_t constant_block_bytes, input_block_bytes;
    int32_t node_count;
    double contraction_flops;
} tg_program;

/* Bytes of one element in a buffer on the device. */
static inline int64_t tg_program_element_bytes(const tg_program *program, tg_dtype dtype) {
    return program->in_words ? tg_dtype_device_bytes(dtype) : (int64_t)tg_dtype_bytes(dtype);
}

typedef struct tg_plan_options {
    const tg_device_model *device; /* what is planned for; borrowed for the call */
    bool no_fusion;
    bool captures; /* captures become outputs */
} tg_plan_options;

/* g has been through tg_flatten_params and tg_pass_run; nodes are appended to it. Returned: destroy
 * with tg_program_destroy. NULL recorded.
 * */
tg_program *tg_program_make(tg_graph *g, const tg_plan_options *options);
void tg_program_destroy(tg_program *program, tg_context *ctx);
int64_t tg_program_bytes(const tg_program *program); /* the program's own size */
int64_t tg_program_peak_bytes(const tg_program *program);
/* Independent check: overlapping live workspace ranges, reads before writes, state hazards, affine
 * accesses out of range, launches whose kernels must not run together. */
tg_status tg_program_check(const tg_program *program, tg_context *ctx);
/* plan: buffers, order */
void tg_program_print(const tg_program *program, tg_text_buffer *text);
/* kernel IR, readable */
void tg_program_print_kernels(const tg_program *program, tg_text_buffer *text);
#endif
