/* reference: each primitive evaluated in f64, one element at a time, with the plainest loop for its
 * meaning. The oracle of all executors: it must stay naive, and must not know kernels, tiles,
 * threads or any executor. i32 and bool values are exact in doubles; i32 arithmetic wraps to 32
 * bits. Nothing is rounded to f32 except f32 constants, whose value in the graph is the f32 one.
 * Memory: 8 bytes for each element of each node. */
#include "ir/attention.h"
#include "ir/dtype.h"

#include <float.h>
#include <math.h>

struct tg_reference {
    tg_context *ctx;
    int64_t node_count;
    double **values; /* by node id; NULL for poison */
    int64_t *counts; /* elements of each value, for release */
};

/* One node being evaluated: in(call, i) and out are flat row-major arrays. */
typedef struct reference_call {
    const tg_graph *graph;
    const tg_node *node;
    double *const *values;
    const double *leaf; /* INPUT, PARAM, STATE */
    double *out;
    int64_t count; /* elements of out */
} reference_call;

#define TG_OP(NAME, ...) static void tg_reference_##NAME(const reference_call *call);
#include "ir/ops.def"
#undef TG_OP

static const double *reference_in(const reference_call *call, int i) { return call->values[call->node->inputs[i]]; }

static const tg_node *reference_in_node(const reference_call *call, int i) { return &call->graph->nodes.items[call->node->inputs[i]]; }

/* ---------------------------------------------------------------- indices */

static int64_t reference_count(tg_shape shape) {
    int64_t count = 1;
    for (int d = 0; d < shape.rank; d++) count *= shape.dim[d];
    return count;
}

static void reference_unravel(tg_shape shape, int64_t flat, int64_t *index) {
    for (int d = shape.rank - 1; d >= 0; d--) {
        index[d] = flat % shape.dim[d];
        flat /= shape.dim[d];
    }
}

static int64_t reference_ravel(tg_shape shape, const int64_t *index) {
    int64_t flat = 0;
    for (int d = 0; d < shape.rank; d++) flat = flat * shape.dim[d] + index[d];
    return flat;
}

/* ---------------------------------------------------------------- i32 arithmetic */

/* The i32 that has the low 32 bits of `v`. */
static double reference_wrap(int64_t v) {
    const uint32_t low = (uint32_t)((uint64_t)v & 0xffffffffu);
    return low >= 0x80000000u ? (double)((int64_t)low - ((int64_t)1 << 32)) : (double)low;
}

static double reference_divide_i32(double a, double b) {
    const int64_t x = (int64_t)a, y = (int64_t)b;
    return y == 0 ? 0.0 : reference_wrap(x / y); /* C truncates towards 0 */
}

/* f32 to i32: truncates, saturates, NaN is 0. */
static double reference_to_i32(double v) {
    if (isnan(v)) return 0.0;
    if (v >= 2147483647.0) return 2147483647.0;
    if (v <= -2147483648.0) return -2147483648.0;
    return trunc(v) + 0.0; /* no -0 */
}

/* ---------------------------------------------------------------- leaves */

static void reference_copy_leaf(const reference_call *call) {
    for (int64_t i = 0; i < call->count; i++) call->out[i] = call->leaf[i];
}

static void tg_reference_INPUT(const reference_call *call) { reference_copy_leaf(call); }
static void tg_reference_PARAM(const reference_call *call) { reference_copy_leaf(call); }
static void tg_reference_STATE(const reference_call *call) { reference_copy_leaf(call); }

static double reference_const_value(const tg_node *node) {
    switch (node->dtype) {
    case TG_F32: return (double)(float)node->attr.value;
    case TG_I32: return node->attr.value;
    case TG_BOOL: break;
    }
    return node->attr.value != 0.0 ? 1.0 : 0.0;
}

static void tg_reference_CONST(const reference_call *call) {
    for (int64_t i = 0; i < call->count; i++)
        call->out[i] =
            call->node->attr.data ? tg_dtype_get(call->node->dtype, call->node->attr.data, i) : reference_const_value(call->node);
}

static void tg_reference_IOTA(const reference_call *call) {
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, index);
        call->out[i] = (double)index[call->node->attr.axis];
    }
}

/* ---------------------------------------------------------------- random bits */

static void tg_reference_RANDOM(const reference_call *call) {
    for (int64_t i = 0; i < call->count; i++) {
        const uint32_t counter[4] = {(uint32_t)(int32_t)reference_in(call, 0)[i], 0, (uint32_t)call->node->attr.stream, 0};
        const uint32_t key[2] = {(uint32_t)(int32_t)reference_in(call, 1)[i], (uint32_t)(int32_t)reference_in(call, 2)[i]};
        uint32_t word[4];
        tg_philox(counter, key, word);
        call->out[i] = (double)tg_random_below(word[0], word[1], (uint32_t)call->node->attr.value);
    }
}

/* ---------------------------------------------------------------- elementwise, one operand */

/* Defines the evaluation of NAME as out[i] = f(x[i]) with `x` bound, in f32 and in i32. */
#define REFERENCE_UNARY(NAME, real, integer) \
  static void tg_reference_##NAME(const reference_call *call) { \
    const double *in = reference_in(call, 0); \
    const bool is_integer = call->node->dtype == TG_I32; \
    for (int64_t i = 0; i < call->count; i++) { \
      const double x = in[i]; \
      call->out[i] = is_integer ? (integer) : (real); \
    } \
  }

static double reference_sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : isnan(x) ? x : 0.0; }
static double reference_sigmoid(double x) { return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x)); }
static double reference_softplus(double x) { return isnan(x) ? x : fmax(x, 0.0) + log1p(exp(-fabs(x))); }
static double reference_relu(double x) { return x > 0 || isnan(x) ? x : 0.0; }

REFERENCE_UNARY(NEG, -x, reference_wrap(-(int64_t)x))
REFERENCE_UNARY(ABS, fabs(x), reference_wrap(x < 0 ? -(int64_t)x : (int64_t)x))
REFERENCE_UNARY(SIGN, reference_sign(x), reference_sign(x))
REFERENCE_UNARY(SQRT, sqrt(x), x)
REFERENCE_UNARY(RSQRT, 1.0 / sqrt(x), x)
REFERENCE_UNARY(RECIPROCAL, 1.0 / x, x)
REFERENCE_UNARY(EXP, exp(x), x)
REFERENCE_UNARY(LOG, log(x), x)
REFERENCE_UNARY(SIN, sin(x), x)
REFERENCE_UNARY(COS, cos(x), x)
REFERENCE_UNARY(TANH, tanh(x), x)
REFERENCE_UNARY(ERF, erf(x), x)
REFERENCE_UNARY(SIGMOID, reference_sigmoid(x), x)
REFERENCE_UNARY(SOFTPLUS, reference_softplus(x), x)
REFERENCE_UNARY(EXPM1, expm1(x), x)
REFERENCE_UNARY(LOG1P, log1p(x), x)
REFERENCE_UNARY(FLOOR, floor(x), x)
REFERENCE_UNARY(CEIL, ceil(x), x)
REFERENCE_UNARY(ROUND, rint(x), x)
REFERENCE_UNARY(RELU, reference_relu(x), reference_relu(x))
REFERENCE_UNARY(NOT, x != 0.0 ? 0.0 : 1.0, x)
REFERENCE_UNARY(STOP_GRADIENT, x, x)
#undef REFERENCE_UNARY

/* ---------------------------------------------------------------- elementwise, two operands */

/* As REFERENCE_UNARY with `a` and `b` bound. The integer form applies when the operands are i32. */
#define REFERENCE_BINARY(NAME, real, integer) \
  static void tg_reference_##NAME(const reference_call *call) { \
    const double *in_a = reference_in(call, 0); \
    const double *in_b = reference_in(call, 1); \
    const bool is_integer = reference_in_node(call, 0)->dtype == TG_I32; \
    for (int64_t i = 0; i < call->count; i++) { \
      const double a = in_a[i], b = in_b[i]; \
      call->out[i] = is_integer ? (integer) : (real); \
    } \
  }

/* |result| is in [0, |b|), its sign is that of b. Infinite if b is infinite and a has the other
 * sign. */
static double reference_mod(double a, double b) {
    const double size = fabs(b);
    double rest = fmod(fabs(a), size);
    if (rest > 0 && signbit(a) != signbit(b)) rest = size - rest == size && size < (double)INFINITY ? nextafter(size, 0.0) : size - rest;
    return copysign(rest, b);
}

/* NaN wins; the first operand when they are equal. */
static double reference_min(double a, double b) { return isnan(a) || a <= b ? a : b; }
static double reference_max(double a, double b) { return isnan(a) || a >= b ? a : b; }

REFERENCE_BINARY(ADD, a + b, reference_wrap((int64_t)a + (int64_t)b))
REFERENCE_BINARY(SUB, a - b, reference_wrap((int64_t)a - (int64_t)b))
REFERENCE_BINARY(MUL, a *b, reference_wrap((int64_t)a *(int64_t)b))
REFERENCE_BINARY(DIV, a / b, reference_divide_i32(a, b))
REFERENCE_BINARY(POW, pow(a, b), pow(a, b))
REFERENCE_BINARY(MOD, reference_mod(a, b), reference_mod(a, b))
REFERENCE_BINARY(MIN, reference_min(a, b), reference_min(a, b))
REFERENCE_BINARY(MAX, reference_max(a, b), reference_max(a, b))
REFERENCE_BINARY(LESS, a < b ? 1.0 : 0.0, a < b ? 1.0 : 0.0)
REFERENCE_BINARY(LESS_EQUAL, a <= b ? 1.0 : 0.0, a <= b ? 1.0 : 0.0)
REFERENCE_BINARY(EQUAL, a == b ? 1.0 : 0.0, a == b ? 1.0 : 0.0)
REFERENCE_BINARY(NOT_EQUAL, a != b ? 1.0 : 0.0, a != b ? 1.0 : 0.0)
REFERENCE_BINARY(AND, a != 0.0 && b != 0.0 ? 1.0 : 0.0, 0.0)
REFERENCE_BINARY(OR, a != 0.0 || b != 0.0 ? 1.0 : 0.0, 0.0)
#undef REFERENCE_BINARY

static void tg_reference_SELECT(const reference_call *call) {
    const double *condition = reference_in(call, 0), *a = reference_in(call, 1), *b = reference_in(call, 2);
    for (int64_t i = 0; i < call->count; i++) call->out[i] = condition[i] != 0.0 ? a[i] : b[i];
}

static void tg_reference_CAST(const reference_call *call) {
    const double *in = reference_in(call, 0);
    const bool truncates = call->node->dtype == TG_I32 && reference_in_node(call, 0)->dtype == TG_F32;
    for (int64_t i = 0; i < call->count; i++) {
        if (call->node->dtype == TG_BOOL) call->out[i] = in[i] != 0.0 ? 1.0 : 0.0;
        else call->out[i] = truncates ? reference_to_i32(in[i]) : in[i];
    }
}

/* ---------------------------------------------------------------- reductions */

/* The positions of the input that one output element reduces: `start` plus inner position r in
 * row-major order. */
typedef struct reference_window {
    tg_shape in, inner; /* inner: the reduced axes' extents, 1 elsewhere */
    int64_t size;
    const double *data;
    int64_t base[TG_MAX_RANK];
} reference_window;

static reference_window reference_window_make(const reference_call *call) {
    reference_window w;
    w.in = reference_in_node(call, 0)->shape;
    w.inner = w.in;
    for (int d = 0; d < w.in.rank; d++)
        if (!(call->node->attr.axes >> d & 1u)) w.inner.dim[d] = 1;
    w.size = reference_count(w.inner);
    w.data = reference_in(call, 0);
    for (int d = 0; d < TG_MAX_RANK; d++) w.base[d] = 0;
    return w;
}

static double reference_window_at(const reference_window *w, int64_t r) {
    int64_t index[TG_MAX_RANK];
    reference_unravel(w->inner, r, index);
    for (int d = 0; d < w->in.rank; d++) index[d] += w->base[d];
    return w->data[reference_ravel(w->in, index)];
}

static double reference_window_sum_i32(const reference_window *w) {
    uint64_t sum = 0;
    for (int64_t r = 0; r < w->size; r++) sum += (uint64_t)(int64_t)reference_window_at(w, r);
    return reference_wrap((int64_t)(sum & 0xffffffffu));
}

static double reference_window_sum(const reference_window *w) {
    long double sum = 0;
    for (int64_t r = 0; r < w->size; r++) sum += (long double)reference_window_at(w, r);
    return (double)sum;
}

static void tg_reference_SUM(const reference_call *call) {
    reference_window w = reference_window_make(call);
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, w.base);
        call->out[i] = call->node->dtype == TG_I32 ? reference_window_sum_i32(&w) : reference_window_sum(&w);
    }
}

/* Position of the first element that no other beats; the first NaN when there is one. sign 1:
 * largest, -1: smallest. */
static int64_t reference_window_best(const reference_window *w, double sign) {
    int64_t best = 0;
    double best_value = sign * reference_window_at(w, 0);
    for (int64_t r = 1; r < w->size && !isnan(best_value); r++) {
        const double value = sign * reference_window_at(w, r);
        if (value <= best_value) continue;
        best = r;
        best_value = value;
    }
    return best;
}

static void reference_extremes(const reference_call *call, double sign, bool position) {
    reference_window w = reference_window_make(call);
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, w.base);
        const int64_t best = reference_window_best(&w, sign);
        call->out[i] = position ? (double)best : reference_window_at(&w, best);
    }
}

static void tg_reference_REDUCE_MAX(const reference_call *call) { reference_extremes(call, 1.0, false); }
static void tg_reference_REDUCE_MIN(const reference_call *call) { reference_extremes(call, -1.0, false); }
static void tg_reference_ARGMAX(const reference_call *call) { reference_extremes(call, 1.0, true); }
static void tg_reference_ARGMIN(const reference_call *call) { reference_extremes(call, -1.0, true); }

/* ---------------------------------------------------------------- views */

static void tg_reference_RESHAPE(const reference_call *call) {
    for (int64_t i = 0; i < call->count; i++) call->out[i] = reference_in(call, 0)[i];
}

static void tg_reference_PERMUTE(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    int64_t index[TG_MAX_RANK], source[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, index);
        for (int d = 0; d < in.rank; d++) source[call->node->attr.perm[d]] = index[d];
        call->out[i] = reference_in(call, 0)[reference_ravel(in, source)];
    }
}

static void tg_reference_BROADCAST(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, index);
        for (int d = 0; d < in.rank; d++)
            if (in.dim[d] == 1) index[d] = 0;
        call->out[i] = reference_in(call, 0)[reference_ravel(in, index)];
    }
}

static void tg_reference_SLICE(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, index);
        for (int d = 0; d < in.rank; d++) index[d] += call->node->attr.start[d];
        call->out[i] = reference_in(call, 0)[reference_ravel(in, index)];
    }
}

static void tg_reference_PAD(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        bool inside = true;
        reference_unravel(call->node->shape, i, index);
        for (int d = 0; d < in.rank; d++) {
            index[d] -= call->node->attr.start[d];
            inside = inside && index[d] >= 0 && index[d] < in.dim[d];
        }
        call->out[i] = inside ? reference_in(call, 0)[reference_ravel(in, index)] : 0.0;
    }
}

static void tg_reference_FLIP(const reference_call *call) {
    const tg_shape shape = call->node->shape;
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(shape, i, index);
        for (int d = 0; d < shape.rank; d++)
            if (call->node->attr.axes >> d & 1u) index[d] = shape.dim[d] - 1 - index[d];
        call->out[i] = reference_in(call, 0)[reference_ravel(shape, index)];
    }
}

static void tg_reference_WINDOW(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    const tg_window w = call->node->attr.window;
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) {
        reference_unravel(call->node->shape, i, index);
        index[call->node->attr.axis] = index[call->node->attr.axis] * w.stride + index[in.rank] * w.dilation;
        call->out[i] = reference_in(call, 0)[reference_ravel(in, index)];
    }
}

/* ---------------------------------------------------------------- joins */

static void tg_reference_FOLD(const reference_call *call) {
    const tg_shape in = reference_in_node(call, 0)->shape;
    const tg_window w = call->node->attr.window;
    const int64_t count = reference_count(in);
    int64_t index[TG_MAX_RANK];
    for (int64_t i = 0; i < call->count; i++) call->out[i] = 0.0;
    for (int64_t i = 0; i < count; i++) {
        reference_unravel(in, i, index);
        index[call->node->attr.axis] = index[call->node->attr.axis] * w.stride + index[in.rank - 1] * w.dilation;
        call->out[reference_ravel(call->node->shape, index)] += reference_in(call, 0)[i];
    }
}

static void tg_reference_CONCAT(const reference_call *call) {
    const int32_t axis = call->node->attr.axis;
    int64_t index[TG_MAX_RANK], begin = 0;
    for (int part = 0; part < call->node->input_count; part++) {
        const tg_shape in = reference_in_node(call, part)->shape;
        const int64_t count = reference_count(in);
        for (int64_t i = 0; i < count; i++) {
            reference_unravel(in, i, index);
            index[axis] += begin;
            call->out[reference_ravel(call->node->shape, index)] = reference_in(call, part)[i];
        }
        begin += in.dim[axis];
    }
}

static void tg_reference_PACK(const reference_call *call) {
    for (int64_t i = 0; i < call->count; i++) call->out[i] = 0.0;
    for (int part = 0; part < call->node->input_count; part++) {
        const int64_t count = reference_count(reference_in_node(call, part)->shape);
        double *to = call->out + call->node->attr.offsets[part];
        for (int64_t i = 0; i < count; i++) to[i] = reference_in(call, part)[i];
    }
}

/* ---------------------------------------------------------------- contraction, indexing */

static void tg_reference_CONTRACT(const reference_call *call) {
    const tg_shape out = call->node->shape;
    const int64_t rows = out.dim[1], cols = out.dim[2], inner = reference_in_node(call, 0)->shape.dim[2];
    const double *a = reference_in(call, 0), *b = reference_in(call, 1);
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t n = i % cols, row = i / cols /* batch * rows + m */, batch = row / rows;
        double sum = 0.0;
        for (int64_t k = 0; k < inner; k++) sum += a[row * inner + k] * b[(batch * inner + k) * cols + n];
        call->out[i] = sum;
    }
}

static int64_t reference_clamp_row(double index, int64_t rows) { return index < 0 ? 0 : index >= (double)rows ? rows - 1 : (int64_t)index; }

static void tg_reference_GATHER(const reference_call *call) {
    const int64_t rows = reference_in_node(call, 0)->shape.dim[0], width = call->node->shape.dim[1];
    for (int64_t i = 0; i < call->count; i++) {
        const int64_t row = reference_clamp_row(reference_in(call, 1)[i / width], rows);
        call->out[i] = reference_in(call, 0)[row * width + i % width];
    }
}

/* The adjoint of GATHER: a row that the gather would clamp is added to the row it clamps to. */
static void tg_reference_SCATTER_ADD(const reference_call *call) {
    const int64_t rows = call->node->shape.dim[0], width = call->node->shape.dim[1];
    const int64_t updates = reference_count(reference_in_node(call, 1)->shape);
    for (int64_t i = 0; i < call->count; i++) call->out[i] = 0.0;
    for (int64_t i = 0; i < updates; i++) {
        const int64_t row = reference_clamp_row(reference_in(call, 0)[i / width], rows);
        call->out[row * width + i % width] += reference_in(call, 1)[i];
    }
}

/* ---------------------------------------------------------------- attention */

/* One row of an attention at a time. */
typedef struct reference_attention {
    const reference_call *call;
    tg_attention_shape s;
    int mask; /* its operand, 0: none */
    int64_t batch, head, t;
} reference_attention;

static int64_t reference_query(const reference_attention *a) {
    return (a->batch * a->s.kv_heads * a->s.groups + a->head) * a->s.queries + a->t;
}
static int64_t reference_key(const reference_attention *a, int64_t key) {
    return (a->batch * a->s.kv_heads + a->head / a->s.groups) * a->s.keys + key;
}
static bool reference_visible(const reference_attention *a, int64_t key) {
    if (a->call->node->attr.causal && key > a->t) return false;
    return a->mask == 0 || reference_in(a->call, a->mask)[reference_query(a) * a->s.keys + key] != 0;
}
/* The sum over the width of row t of `rows` times row `key` of `others`. */
static double reference_rows(const reference_attention *a, int rows, int others, int64_t key) {
    const double *x = reference_in(a->call, rows) + reference_query(a) * a->s.width;
    const double *y = reference_in(a->call, others) + reference_key(a, key) * a->s.width;
    double sum = 0.0;
    for (int64_t i = 0; i < a->s.width; i++) sum += x[i] * y[i];
    return sum;
}
static double reference_score(const reference_attention *a, int64_t key) {
    return reference_rows(a, 0, 1, key) * a->call->node->attr.value;
}
static double *reference_query_out(const reference_attention *a, int64_t i) {
    const tg_attention_shape *s = &a->s;
    return a->call->out + ((a->batch * s->queries + a->t) * s->kv_heads * s->groups + a->head) * s->width + i;
}

static void reference_attention_row(const reference_attention *a) {
    double most = -(double)FLT_MAX, sum = 0.0;
    bool sees = false;
    for (int64_t key = 0; key < a->s.keys; key++) {
        if (!reference_visible(a, key)) continue;
        most = fmax(most, reference_score(a, key));
        sees = true;
    }
    for (int64_t key = 0; key < a->s.keys; key++) {
        const double weight = reference_visible(a, key) ? exp(reference_score(a, key) - most) : 0.0;
        const double *v = reference_in(a->call, 2) + reference_key(a, key) * a->s.width;
        sum += weight;
        for (int64_t i = 0; i < a->s.width; i++) *reference_query_out(a, i) += weight * v[i];
    }
    if (sees && sum == 0.0) sum = NAN; /* -infinity alone: as softmax of such a row */
    for (int64_t i = 0; i < a->s.width; i++) *reference_query_out(a, i) /= sum > 0.0 || sum != sum ? sum : 1.0;
    const int64_t rows = a->s.batches * a->s.kv_heads * a->s.groups * a->s.queries;
    a->call->out[rows * a->s.width + reference_query(a)] = sum > 0.0 || sum != sum ? most + log(sum) : TG_ATTENTION_EMPTY;
}

/* The weight of a key, and the cotangent of its score before the factor. */
static double reference_weight(const reference_attention *a, int64_t key, double *dscore) {
    const int64_t row = reference_query(a);
    const double weight = reference_visible(a, key) ? exp(reference_score(a, key) - reference_in(a->call, 4)[row]) : 0.0;
    *dscore = reference_visible(a, key) ? weight * (reference_rows(a, 3, 2, key) - reference_in(a->call, 5)[row]) : 0.0;
    return weight;
}

static void reference_dq_row(const reference_attention *a) {
    for (int64_t key = 0; key < a->s.keys; key++) {
        double dscore;
        (void)reference_weight(a, key, &dscore);
        const double *k = reference_in(a->call, 1) + reference_key(a, key) * a->s.width;
        for (int64_t i = 0; i < a->s.width; i++) *reference_query_out(a, i) += dscore * a->call->node->attr.value * k[i];
    }
}

static void reference_dkv_row(const reference_attention *a) {
    const tg_attention_shape *s = &a->s;
    const int64_t row = reference_query(a) * s->width;
    for (int64_t key = 0; key < s->keys; key++) {
        double dscore;
        const double weight = reference_weight(a, key, &dscore);
        double *dk = a->call->out + ((a->batch * s->keys + key) * s->kv_heads + a->head / s->groups) * s->width;
        double *dv = dk + s->batches * s->keys * s->kv_heads * s->width;
        for (int64_t i = 0; i < s->width; i++) {
            dk[i] += dscore * a->call->node->attr.value * reference_in(a->call, 0)[row + i];
            dv[i] += weight * reference_in(a->call, 3)[row + i];
        }
    }
}

static void reference_attention_rows(const reference_call *call, int operands, void (*row)(const reference_attention *)) {
    reference_attention a = {.call = call, .mask = call->node->input_count > operands ? operands : 0};
    a.s = tg_attention_shape_of(reference_in_node(call, 0)->shape, reference_in_node(call, 1)->shape);
    for (int64_t i = 0; i < call->count; i++) call->out[i] = 0.0;
    for (a.batch = 0; a.batch < a.s.batches; a.batch++)
        for (a.head = 0; a.head < a.s.kv_heads * a.s.groups; a.head++)
            for (a.t = 0; a.t < a.s.queries; a.t++) row(&a);
}

static void tg_reference_ATTENTION(const reference_call *call) { reference_attention_rows(call, 3, reference_attention_row); }
static void tg_reference_ATTENTION_DQ(const reference_call *call) { reference_attention_rows(call, 6, reference_dq_row); }
static void tg_reference_ATTENTION_DKV(const reference_call *call) { reference_attention_rows(call, 6, reference_dkv_row); }

/* ---------------------------------------------------------------- a whole graph */

static void reference_evaluate(const reference_call *call) {
    switch (call->node->op) {
#define TG_OP(NAME, ...) \
  case TG_OP_##NAME: \
    tg_reference_##NAME(call); \
    break;
#include "ir/ops.def"
#undef TG_OP
    case TG_OP_POISON:
    case TG_OP_COUNT: break;
    }
}

static bool reference_is_fed(tg_op op) { return op == TG_OP_INPUT || op == TG_OP_PARAM || op == TG_OP_STATE; }

static bool reference_run_node(tg_reference *r, const tg_graph *g, int64_t id, const double *const *leaf_data) {
    const tg_node *node = &g->nodes.items[id];
    if (node->op == TG_OP_POISON) return true;
    const double *leaf = leaf_data && reference_is_fed(node->op) ? leaf_data[id] : NULL;
    if (reference_is_fed(node->op) && !leaf) {
        tg_fail(r->ctx, TG_ERROR_ARGUMENT, node->site, "reference: no data for leaf %s", node->name ? node->name : "");
        return false;
    }
    const int64_t count = reference_count(node->shape);
    r->values[id] = tg_alloc(r->ctx, sizeof(double) * (size_t)count);
    if (!r->values[id]) return false;
    r->counts[id] = count;
    const reference_call call = {g, node, r->values, leaf, r->values[id], count};
    reference_evaluate(&call);
    return true;
}

static tg_reference *reference_create(const tg_graph *g) {
    tg_reference *r = tg_alloc(g->ctx, sizeof *r);
    if (!r) return NULL;
    const size_t nodes = (size_t)g->nodes.count;
    r->ctx = g->ctx;
    r->node_count = g->nodes.count;
    r->values = tg_alloc(r->ctx, sizeof *r->values * nodes);
    r->counts = r->values ? tg_alloc(r->ctx, sizeof *r->counts * nodes) : NULL;
    if (r->counts) return r;
    tg_reference_destroy(r);
    return NULL;
}

tg_reference *tg_reference_run(const tg_graph *g, const double *const *leaf_data) {
    tg_reference *r = reference_create(g);
    if (!r) return NULL;
    for (int64_t id = 0; id < g->nodes.count; id++) {
        if (reference_run_node(r, g, id, leaf_data)) continue;
        tg_reference_destroy(r);
        return NULL;
    }
    return r;
}

const double *tg_reference_value(const tg_reference *r, int32_t id) { return r && id > 0 && id < r->node_count ? r->values[id] : NULL; }

void tg_reference_destroy(tg_reference *r) {
    if (!r) return;
    for (int64_t id = 0; r->values && r->counts && id < r->node_count; id++)
        if (r->values[id]) tg_release(r->ctx, r->values[id], sizeof(double) * (size_t)r->counts[id]);
    if (r->values) tg_release(r->ctx, r->values, sizeof *r->values * (size_t)r->node_count);
    if (r->counts) tg_release(r->ctx, r->counts, sizeof *r->counts * (size_t)r->node_count);
    tg_release(r->ctx, r, sizeof *r);
}
