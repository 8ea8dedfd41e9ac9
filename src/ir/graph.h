/* graph: a trace as data. Nodes in the order they were made (inputs before users), and the tables
 * of parameters, inputs, states, captures and writebacks. Owns shape rules, verification, printing,
 * serialisation and the f64 reference interpreter. Must not know gradients, kernels or devices. */
#ifndef TG_GRAPH_H
#define TG_GRAPH_H

#include "ir/op.h"
#include "ir/tables.h"

/* Windows of `size` elements, `dilation` apart. The next window begins `stride` further on. */
typedef struct tg_window {
    int64_t size, stride, dilation;
} tg_window;
/* The number of elements from a window's first to its last, both included. */
static inline int64_t tg_window_span(tg_window w) { return (w.size - 1) * w.dilation + 1; }

typedef struct tg_attributes {
    uint32_t axes;              /* REDUCE, FLIP: bit i = axis i */
    int32_t axis;               /* IOTA, CONCAT, WINDOW, FOLD */
    int32_t perm[TG_MAX_RANK];  /* PERMUTE */
    int64_t start[TG_MAX_RANK]; /* SLICE, PAD */
    /* CONST without data: the number (i32 and bool too). RANDOM: the bound, 1 .. 2^31. ATTENTION*:
     * the factor of the scores */
    double value;
    /* CONST with data: shape's count elements (bool: bytes), in the graph's arena */
    const void *data;
    int32_t leaf;           /* INPUT, PARAM, STATE: position in its table */
    int32_t stream;         /* RANDOM: the stream that it draws from */
    const int64_t *offsets; /* PACK: one per input */
    tg_window window;       /* WINDOW, FOLD */
    bool causal;            /* ATTENTION*: query t sees keys 0 .. t */
} tg_attributes;

typedef struct tg_node {
    tg_op op;
    tg_dtype dtype;
    tg_shape shape;
    int32_t input_count;
    const int32_t *inputs; /* node ids, in the graph's arena */
    tg_attributes attr;
    const char *name; /* for messages: parameter, input, capture or scope name; may be NULL */
    tg_site site;     /* file lives in the graph's arena */
} tg_node;

/* What an optimiser says about a parameter. */
typedef struct tg_param_mark {
    bool grouped;        /* a parameter group has it */
    bool matrix;         /* Muon updates it as a matrix */
    bool frozen, plain;  /* as the group says */
    tg_choice decay;     /* as the group says; TG_DEFAULT: as declared */
    double rate;         /* factor of the learning rate, [1] */
    double weight_decay; /* [-1] negative: the optimiser's */
} tg_param_mark;
typedef struct tg_param_info {
    const char *name;
    tg_shape shape;
    tg_init init;       /* literal data lives in the arena */
    bool decay, frozen; /* as declared */
    tg_param_mark mark;
    int32_t node;
} tg_param_info;
typedef struct tg_capture_info {
    const char *name;
    int32_t node;
} tg_capture_info;
typedef struct tg_writeback_info {
    int32_t destination, source;
    tg_site site;
} tg_writeback_info; /* destination: PARAM or STATE node */
/* Each element of `node` (i32) must satisfy lo <= element < hi, or equal `ignore` if has_ignore.
 * Else TG_ERROR_INDEX, which names `op`. */
typedef struct tg_index_check {
    int32_t node;
    int64_t lo, hi;
    bool has_ignore;
    int32_t ignore;
    const char *op;
    tg_site site;
} tg_index_check;

struct tg_graph {
    tg_context *ctx;
    tg_alive alive; /* tensors point to the graph and may outlive it */
    tg_arena arena;
    tg_site current_site; /* given to nodes made by passes and gradients */
    /* messages name it instead of the primitive ("greater"); NULL: the primitive */
    const char *current_op;
    TG_LIST(tg_node) nodes; /* node 0 is poison */
    TG_LIST(tg_input_info) inputs;
    TG_LIST(tg_param_info) params;
    TG_LIST(tg_state_info) states;
    TG_LIST(tg_capture_info) captures;
    TG_LIST(tg_writeback_info) writebacks;
    TG_LIST(tg_index_check) checks;
    TG_LIST(const char *) scopes;
    int32_t result; /* the tensor that the build function returned; 0 before that */
    bool building;  /* its build function is running */
    int64_t size;   /* the size that TG_ANY means; 0: TG_ANY may not be used */
    /* What an optimiser that the build function appended knows about the step. Bools of rank 0: all
     * gradients are finite; they and the loss are finite, else nothing must be written. 0: nothing
     * computes it. Not in the serial form. */
    int32_t finite_gradients, finite_step;
};

tg_graph *tg_graph_create(tg_context *ctx);                  /* destroy: tg_graph_destroy */
const tg_node *tg_graph_node(const tg_graph *g, int32_t id); /* valid until the next node is made */

/* ---- making nodes. Each builder checks its inputs with the op's shape rule, records errors with
 * `g->current_site`, and returns the id; 0 on failure and when an input is 0. Builders fold nothing
 * and reuse nothing: passes do that. Exceptions, which keep traces readable: reshape, permute,
 * broadcast, slice, pad and cast that change nothing return their input. */
int32_t tg_node_make(tg_graph *g, tg_op op, tg_dtype dtype, tg_shape shape, const int32_t *inputs, int count, const tg_attributes *attr);
int32_t tg_ir_const(tg_graph *g, tg_shape shape, tg_dtype dtype, double value);
int32_t tg_ir_data(tg_graph *g, tg_shape shape, tg_dtype dtype, const void *data); /* copied */
int32_t tg_ir_iota(tg_graph *g, tg_shape shape, tg_dtype dtype, int axis);
int32_t tg_ir_unary(tg_graph *g, tg_op op, int32_t x);
/* BINARY, COMPARE, LOGICAL; broadcasts by inserting views */
int32_t tg_ir_binary(tg_graph *g, tg_op op, int32_t a, int32_t b);
int32_t tg_ir_select(tg_graph *g, int32_t c, int32_t a, int32_t b); /* broadcasts */
int32_t tg_ir_cast(tg_graph *g, int32_t x, tg_dtype dtype);
/* broadcasts */
int32_t tg_ir_random(tg_graph *g, int32_t index, int32_t key0, int32_t key1, int32_t stream, int64_t bound);
/* reduced dims become 1; axes 0 returns x (ARGMAX, ARGMIN: zeros) */
int32_t tg_ir_reduce(tg_graph *g, tg_op op, int32_t x, uint32_t axes);
int32_t tg_ir_reshape(tg_graph *g, int32_t x, tg_shape shape); /* -1 is not allowed here */
int32_t tg_ir_permute(tg_graph *g, int32_t x, const int32_t *perm);
/* rank may grow: inserts a reshape */
int32_t tg_ir_broadcast(tg_graph *g, int32_t x, tg_shape shape);
int32_t tg_ir_slice(tg_graph *g, int32_t x, const int64_t *start, tg_shape shape);
int32_t tg_ir_pad(tg_graph *g, int32_t x, const int64_t *before, tg_shape shape);
int32_t tg_ir_flip(tg_graph *g, int32_t x, uint32_t axes);
/* As many windows along `axis` as fit. */
int32_t tg_ir_window(tg_graph *g, int32_t x, int axis, tg_window window);
/* The adjoint of tg_ir_window: x [.. o .., k] added up to an axis of `length`. Windows that do not
 * overlap become views. */
int32_t tg_ir_fold(tg_graph *g, int32_t x, int axis, tg_window window, int64_t length);
int32_t tg_ir_concat(tg_graph *g, const int32_t *parts, int count, int axis);
int32_t tg_ir_pack(tg_graph *g, const int32_t *parts, const int64_t *offsets, int count, int64_t total);
/* both of rank 3, equal batch (no broadcasting) */
int32_t tg_ir_contract(tg_graph *g, int32_t a, int32_t b);
int32_t tg_ir_gather(tg_graph *g, int32_t table, int32_t indices);
int32_t tg_ir_scatter_add(tg_graph *g, int32_t indices, int32_t updates, int64_t rows);
int32_t tg_ir_input(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype);
int32_t tg_ir_param(tg_graph *g, const char *full_name, tg_shape shape, tg_init init, bool decay, bool frozen);
int32_t tg_ir_state(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value);
/* its node; 0 when there is none, and nothing is recorded */
int32_t tg_ir_find_state(const tg_graph *g, const char *name);
bool tg_ir_writeback(tg_graph *g, int32_t destination, int32_t source);
bool tg_ir_check_index(tg_graph *g, int32_t node, int64_t lo, int64_t hi, bool has_ignore, int32_t ignore, const char *op);

/* ---- random numbers (random.c). The state "tg.random", i32 [2], is the key of a run. Each run
 * that succeeds adds 1 to its first word, so no two runs draw the same numbers. */
#define TG_RANDOM_STATE "tg.random"
#define TG_RANDOM_WORDS 2
/* i32 of any shape, uniform in [0, bound), from a stream that no other draw of g uses. The first
 * draw makes the state and the writeback that advances it. */
int32_t tg_ir_draw(tg_graph *g, tg_shape shape, int64_t bound);

/* ---- convolutions, composed of the above (convolve.c). count: 1 or 2 axes.
 * x [N, G, C, in...], w [1 or N, G, O, C, taps...] -> [N, G, O, out...] */
int32_t tg_ir_convolve(tg_graph *g, int32_t x, int32_t w, const tg_window *windows, int count);
/* Its adjoint: y [N, G, O, out...] -> [N, G, C, in...], with the smallest `in` that the windows
 * allow. */
int32_t tg_ir_convolve_back(tg_graph *g, int32_t y, int32_t w, const tg_window *windows, int count);
/* The right operand of a contraction that tg_ir_convolve made. */
typedef struct tg_columns {
    int32_t source; /* [N, G, C, in...] */
    int count;
    tg_window window[2];
    /* zeros before the source along each axis, and the length with all padding; padding that is not
     * wanted itself is passed, because nobody reads its cotangent */
    int64_t before[2], whole[2];
} tg_columns;
/* Whether `operand` is one. A node whose stops[] has a bit of `stop` ends the search. */
bool tg_ir_find_columns(const tg_graph *g, int32_t operand, const uint8_t *stops, int stop, tg_columns *out);
/* The cotangent of the source from matrix [N G, O, C taps] and dy [N G, O, out]: a convolution.
 * Allowed only if each stride is 1. */
int32_t tg_ir_columns_back(tg_graph *g, int32_t matrix, int32_t dy, const tg_columns *columns);
/* floor(a / b) of two f32 that broadcast, right wherever f32 holds the result. No gradient. */
int32_t tg_ir_floor_quotient(tg_graph *g, int32_t a, int32_t b);

/* The broadcast of two shapes by NumPy's rule. false when they do not fit. */
bool tg_shape_broadcast(tg_shape a, tg_shape b, tg_shape *out);
/* Writes `x[256, 64]`, `l1.W[64, 10]` or `relu[256, 64]` into buffer; a dtype other than f32 is
 * appended. For messages. */
const char *tg_node_text(const tg_graph *g, int32_t id, char *buffer, size_t size);

/* ---- whole graphs */
/* TG_ERROR_INTERNAL naming the node that breaks a rule */
tg_status tg_graph_verify(const tg_graph *g);
void tg_graph_print(const tg_graph *g, tg_text_buffer *text);
void tg_graph_print_dot(const tg_graph *g, tg_text_buffer *text);
/* A copy that shares no memory with g, whose trace has ended. NULL: no memory, recorded. Returned: destroy
 * with tg_graph_destroy. Cost: one walk. */
tg_graph *tg_graph_clone(const tg_graph *g);
/* Portable little-endian bytes. Reading checks everything (fuzzed). */
tg_status tg_graph_write(const tg_graph *g, tg_text_buffer *bytes);
tg_graph *tg_graph_read(tg_context *ctx, const void *bytes, size_t size);

/* ---- the reference: all nodes in f64 (i32 and bool exact), one element at a time. The oracle of
 * all executors. */
typedef struct tg_reference tg_reference;
/* leaf_data[id] for INPUT, PARAM and STATE nodes: the node's elements as doubles. Returned: destroy
 * with tg_reference_destroy. */
tg_reference *tg_reference_run(const tg_graph *g, const double *const *leaf_data);
const double *tg_reference_value(const tg_reference *r, int32_t id);
void tg_reference_destroy(tg_reference *r);

#endif
