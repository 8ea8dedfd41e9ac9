/* trace (for src/trace, and for src/optim, which adds operations too): what each public operation
 * does first and last. Entering a call checks that its tensors are alive and belong to the trace in
 * progress, and sets the user's site for the nodes to come. Failing formats the message, with the
 * origin of each operand. A result is named after its operation. Knows the graph. Must not know
 * gradients or kernels. */
#ifndef TG_TRACE_H
#define TG_TRACE_H

#include "ir/graph.h"
#include "ir/rules.h"

/* Whether an option of a layer sets an initial value for its parameters. */
static inline bool tg_init_given(const tg_init *init) {
    return init->kind != TG_INIT_RANDN || tg_given(init->scale) || init->data != NULL || init->count != 0;
}

/* The tg_param_options.frozen of the parameters of a layer made with `options`. */
#define TG_FROZEN(options) ((options).frozen ? TG_YES : TG_DEFAULT)

/* One public operation in progress. */
typedef struct tg_call {
    tg_graph *graph;
    const char *op; /* public name without tg_, for messages */
    /* the name of what it makes, a parameter or an input; NULL: it makes nothing with a name */
    const char *subject;
    tg_site site;        /* the user's call */
    int32_t operands[3]; /* the first operands, which messages show */
    int operand_count;   /* how many operands there are in all */
    int32_t first_node;  /* nodes from here on were made by this call */
} tg_call;

/* Sets of dtypes. */
enum { TG_TAKES_F32 = 1 << TG_F32, TG_TAKES_I32 = 1 << TG_I32, TG_TAKES_BOOL = 1 << TG_BOOL };
#define TG_TAKES_NUMBERS ((unsigned)TG_TAKES_F32 | (unsigned)TG_TAKES_I32)
#define TG_TAKES_ANY (TG_TAKES_NUMBERS | (unsigned)TG_TAKES_BOOL)

/* Texts for messages; valid until the end of the enclosing block. */
#define TG_LABEL(call, id) tg_node_text((call)->graph, (id), (char[TG_NODE_TEXT]){0}, TG_NODE_TEXT)
#define TG_SHAPE_LABEL(shape) tg_shape_text((shape), (char[TG_SHAPE_TEXT]){0}, TG_SHAPE_TEXT)

/* If false, the operation returns tg_call_poison(call). Records TG_ERROR_TRACE, except when an
 * operand is poison. */
bool tg_call_enter(tg_call *call, tg_site site, const char *op, const tg_tensor *operands, int count);
/* The same for operations without tensor operands. Records nothing for a NULL graph, which has no
 * context. */
bool tg_call_enter_graph(tg_call *call, tg_site site, const char *op, tg_graph *graph);
tg_tensor tg_call_poison(const tg_call *call);
/* Records "op: message" ("op subject: message"), and for each operand a line that says where it
 * comes from. Returns poison. */
tg_tensor tg_call_fail(const tg_call *call, tg_status code, const int32_t *operands, int count, const char *format, ...) TG_PRINTF(5, 6);
/* id as a tensor of the call's graph. A new unnamed node of a composition gets the operation's
 * name. */
tg_tensor tg_call_result(const tg_call *call, int32_t id);

/* tg_trace of a build function whose inputs may have TG_ANY, which means `size` here. 0: they may
 * not. */
tg_graph *tg_trace_sized(tg_context *ctx, tg_build_fn build, void *user, int64_t size);

/* ---- checks: false after recording an error */
bool tg_call_takes(const tg_call *call, int32_t id, unsigned dtypes);
/* Every dim at least 1, rank at most TG_MAX_RANK, at most 2^31 - 1 elements. */
bool tg_call_shape_ok(const tg_call *call, tg_shape shape);
bool tg_call_dtype_ok(const tg_call *call, tg_dtype dtype);
/* The axis as 0 .. rank-1, for a tensor with `rank` axes. operand: for the message. */
bool tg_call_axis(const tg_call *call, int32_t operand, int rank, int axis, int *out);
/* The axes as a mask over the axes of x; each at most once. */
bool tg_call_axes(const tg_call *call, int32_t x, tg_axes axes, uint32_t *mask);
/* The number as `dtype` holds it: rounded to f32; whole and in range for i32; 0 or 1 for bool.
 * beside: the tensor whose dtype it is, for the message; 0 when there is none. */
bool tg_call_number(const tg_call *call, double number, tg_dtype dtype, int32_t beside, double *out);

/* ---- pieces that several operations are composed of. Operands are checked already; ids in, id out
 * (0 on failure) */
tg_shape tg_node_shape(const tg_call *call, int32_t id);
tg_dtype tg_node_dtype(const tg_call *call, int32_t id);
int32_t tg_compose_number(const tg_call *call, double value); /* rank-0 f32 */
int32_t tg_compose_scale(const tg_call *call, int32_t x, double factor);
int32_t tg_compose_mean(const tg_call *call, int32_t x, uint32_t axes); /* keeps the axes as 1 */
/* removes axes of size 1 */
int32_t tg_compose_drop_axes(const tg_call *call, int32_t x, uint32_t axes);
/* once: x minus its mean over the axes (kept as 1). twice: that minus its own mean, which is what
 * rounding left of the first mean and has no gradient. So a row of equal numbers is 0, and other
 * rows are about 0 to the last digit. A row's first and second sum need two passes in any case. */
typedef struct tg_centred {
    int32_t once, twice;
} tg_centred;
tg_centred tg_compose_centred(const tg_call *call, int32_t x, int32_t mean, uint32_t axes);
/* A sum of squares that stays in f32 wherever its root does: sum((x scale)^2). scale is a power of
 * two for each row, without gradient. It is 1 unless the row is huge, or is tiny and eps >= 0 does
 * not hide that. */
typedef struct tg_squares {
    int32_t sum, scale, inverse; /* inverse: 1 / scale */
    int32_t eps;                 /* eps scale^2 */
} tg_squares;
/* Keeps the axes as 1. roughly: a tensor that shows the size of a row, x itself or nearly x. */
tg_squares tg_compose_squares(const tg_call *call, int32_t x, int32_t roughly, uint32_t axes, double eps);
int32_t tg_compose_unscaled(const tg_call *call, tg_squares squares, int32_t x); /* x / scale^2 */
int32_t tg_compose_matmul(const tg_call *call, int32_t x, int32_t w);            /* [..., M, K] x [K, N] */
/* *shifted: x - max(x); *log_sum: log(sum(exp(x - max(x)))). Over one axis, which stays as 1. The
 * maximum carries no gradient. counted: bool that broadcasts to x; where it is false *shifted is 0,
 * without gradient. counted 0: no mask. */
void tg_compose_shifted(const tg_call *call, int32_t x, int axis, int32_t counted, int32_t *shifted, int32_t *log_sum);
/* max(x) over the axes, kept as 1, without gradient. 0 where the maximum is infinite or NaN. */
int32_t tg_compose_finite_maximum(const tg_call *call, int32_t x, uint32_t axes);
/* bool [..., depth]: whether the index along the last axis equals indices[...]. */
int32_t tg_compose_one_hot(const tg_call *call, int32_t indices, int64_t depth);

/* The full name of a parameter made now: the open scopes and the name, joined by dots. In the
 * graph's arena; NULL after recording an error. */
const char *tg_call_full_name(const tg_call *call, const char *name);
bool tg_call_name_ok(const tg_call *call, const char *name);
/* Scopes for compositions that make parameters. The name is checked already. */
bool tg_call_push_scope(const tg_call *call, const char *name);
void tg_call_pop_scope(const tg_call *call);

#endif
