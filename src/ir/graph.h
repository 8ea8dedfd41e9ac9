/* graph: a trace as data. Nodes in the order they were made (inputs before users), the tables of
 * parameters, inputs, states, captures and writebacks. Owns shape rules, verification, printing,
 * serialisation and the f64 reference interpreter. Must not know gradients, kernels or devices. */
#ifndef TG_GRAPH_H
#define TG_GRAPH_H

#include "ir/op.h"
#include "ir/tables.h"

/* Windows of `size` elements `dilation` apart, the next one `step` further on. */
typedef struct tg_window {
    int64_t size, step, dilation;
} tg_window;
/* Elements from a window's first to its last, both counted. */
static inline int64_t tg_window_span(tg_window w) { return (w.size - 1) * w.dilation + 1; }

typedef struct tg_attributes {
    /* REDUCE, FLIP: bit i = axis i.  IOTA, CONCAT, WINDOW, FOLD: the axis itself */
    uint32_t axes;
    int32_t perm[TG_MAX_RANK];  /* PERMUTE */
    int64_t start[TG_MAX_RANK]; /* SLICE, PAD */
    /* CONST without data: the number (i32 and bool too).  RANDOM: the bound, 1 .. 2^31 */
    double value;
    /* CONST with data: shape's count elements (bool: bytes), in the graph's arena */
    const void *data;
    /* INPUT, PARAM, STATE: position in its table.  RANDOM: its stream */
    int32_t index;
    const int64_t *offsets; /* PACK: one per input */
    tg_window window;       /* WINDOW, FOLD */
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

/* What an optimiser says of a parameter. */
typedef struct tg_param_mark {
    bool grouped;        /* a parameter group has it */
    bool matrix;         /* Muon updates it as a matrix */
    bool frozen, plain;  /* of the group */
    tg_choice decay;     /* of the group; TG_DEFAULT: as declared */
    double rate;         /* factor of the learning rate, [1] */
    double weight_decay; /* [-1] under 0: the optimiser's */
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
/* lo <= every element of `node` (i32) < hi, or == ignore when has_ignore: else TG_ERROR_INDEX
 * naming `op`. */
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
    tg_alive alive; /* tensors point to the graph, and may outlive it */
    tg_arena arena;
    tg_site current_site; /* given to nodes made by passes and gradients */
    /* named by messages instead of the primitive ("greater"); NULL: the primitive */
    const char *current_op;
    TG_LIST(tg_node) nodes; /* node 0 is poison */
    TG_LIST(tg_input_info) inputs;
    TG_LIST(tg_param_info) params;
    TG_LIST(tg_state_info) states;
    TG_LIST(tg_capture_info) captures;
    TG_LIST(tg_writeback_info) writebacks;
    TG_LIST(tg_index_check) checks;
    TG_LIST(const char *) scopes;
    int32_t result; /* the built tensor; 0 before */
    bool building;  /* its build function is running */
    int64_t size;   /* the size of TG_ANY; 0: it may not be used */
    /* What an appended optimiser knows of the step, bools of rank 0: all gradients are finite;
     * the loss is too, else nothing must be written. 0: nothing is looked at. Not in the serial
     * form. */
    int32_t finite_gradients, finite_step;
};

tg_graph *tg_graph_create(tg_context *ctx);                  /* destroy: tg_graph_destroy */
const tg_node *tg_graph_node(const tg_graph *g, int32_t id); /* valid until the next node is made */

/* ---- making nodes. Each call checks its inputs with the op's shape rule, records errors with
 * `g->current_site`, and returns the id, or 0 (also when an input is 0). The builders fold no
 * constants and reuse no nodes; passes do that. Exceptions that keep graphs readable: an identity
 * reshape, permute, broadcast, slice, pad or cast returns its input. */
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
/* keeps dims as 1; axes 0 returns x (ARG*: zeros) */
int32_t tg_ir_reduce(tg_graph *g, tg_op op, int32_t x, uint32_t axes);
int32_t tg_ir_reshape(tg_graph *g, int32_t x, tg_shape shape); /* no -1 here */
int32_t tg_ir_permute(tg_graph *g, int32_t x, const int32_t *perm);
/* rank may grow: reshape inserted */
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
/* rank 3 both, equal batch (no broadcasting) */
int32_t tg_ir_contract(tg_graph *g, int32_t a, int32_t b);
int32_t tg_ir_gather(tg_graph *g, int32_t table, int32_t indices);
int32_t tg_ir_scatter_add(tg_graph *g, int32_t indices, int32_t updates, int64_t rows);
int32_t tg_ir_input(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype);
int32_t tg_ir_param(tg_graph *g, const char *full_name, tg_shape shape, tg_init init, bool decay, bool frozen);
int32_t tg_ir_state(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value);
/* its node; 0: there is none, and nothing is recorded */
int32_t tg_ir_find_state(const tg_graph *g, const char *name);
bool tg_ir_writeback(tg_graph *g, int32_t destination, int32_t source);
bool tg_ir_check_index(tg_graph *g, int32_t node, int64_t lo, int64_t hi, bool has_ignore, int32_t ignore, const char *op);

/* ---- random numbers (random.c). The state "tg.random", i32 [2], is the key of a run: each run
 * that succeeds adds 1 to its first word, so that no two runs draw the same. */
#define TG_RANDOM_STATE "tg.random"
#define TG_RANDOM_WORDS 2
/* i32 of any shape, uniform in [0, bound), from a stream that no other draw of g has. The first
 * draw makes the state and what advances it. */
int32_t tg_ir_draw(tg_graph *g, tg_shape shape, int64_t bound);

/* ---- convolutions, composed of the above (convolve.c). count: 1 or 2 axes.
 * x [N, G, C, in...], w [1 or N, G, O, C, taps...] -> [N, G, O, out...] */
int32_t tg_ir_convolve(tg_graph *g, int32_t x, int32_t w, const tg_window *windows, int count);
/* Its adjoint: y [N, G, O, out...] -> [N, G, C, in...], in as small as the windows allow. */
int32_t tg_ir_convolve_back(tg_graph *g, int32_t y, int32_t w, const tg_window *windows, int count);
/* The right operand of a contraction that tg_ir_convolve made. */
typedef struct tg_columns {
    int32_t source; /* [N, G, C, in...] */
    int count;
    tg_window window[2];
} tg_columns;
/* Is it one? Nodes on the way whose stops[] has a bit of `stop` do not pass. */
bool tg_ir_find_columns(const tg_graph *g, int32_t operand, const uint8_t *stops, int stop, tg_columns *out);
/* The cotangent of the source from matrix [N G, O, C taps] and dy [N G, O, out]: a convolution.
 * Only where every step is 1. */
int32_t tg_ir_columns_back(tg_graph *g, int32_t matrix, int32_t dy, const tg_columns *columns);
/* floor(a / b) of two f32 that broadcast, right wherever f32 holds it. No gradient. */
int32_t tg_ir_floor_quotient(tg_graph *g, int32_t a, int32_t b);

/* Broadcast of two shapes by NumPy's rule. false when they do not fit. */
bool tg_shape_broadcast(tg_shape a, tg_shape b, tg_shape *out);
/* `x[256, 64]` or `l1.W[64, 10]` or `relu[256, 64]` into buffer; dtype appended when not f32. For
 * messages. */
const char *tg_node_text(const tg_graph *g, int32_t id, char *buffer, size_t size);

/* ---- whole graphs */
/* TG_ERROR_INTERNAL with the node when any rule is broken */
tg_status tg_graph_verify(const tg_graph *g);
void tg_graph_print(const tg_graph *g, tg_text_buffer *text);
void tg_graph_print_dot(const tg_graph *g, tg_text_buffer *text);
/* Portable little-endian bytes; reading checks everything (fuzzed). */
tg_status tg_graph_write(const tg_graph *g, tg_text_buffer *bytes);
tg_graph *tg_graph_read(tg_context *ctx, const void *bytes, size_t size);

/* ---- the reference: each node in f64 (i32 and bool exact), one element at a time. The oracle of
 * all executors. */
typedef struct tg_reference tg_reference;
/* values: leaf_data[id] for INPUT, PARAM and STATE nodes: count doubles. Returned: destroy with
 * tg_reference_destroy. */
tg_reference *tg_reference_run(const tg_graph *g, const double *const *leaf_data);
const double *tg_reference_value(const tg_reference *r, int32_t id);
void tg_reference_destroy(tg_reference *r);

#endif
