/* grad rules: the derivative of each primitive. Where it saves storage a rule uses the output y
 * instead of the input (relu, tanh, sigmoid, exp, sqrt, rsqrt, reciprocal, division), so that the
 * input need not be kept for the backward half. Must not know the order of the walk. */
#include "grad/rules.h"
#include "grad/grad.h"
#include "ir/attention.h"

#include <math.h>

/* ---------------------------------------------------------------- short hands
 * At most one argument of a call may make nodes: C does not fix the order of arguments, and the
 * order of nodes must not depend on it. */

static int32_t vjp_in(const tg_vjp_call *call, int input) { return call->node.inputs[input]; }

static tg_shape vjp_shape(const tg_vjp_call *call, int input) { return tg_graph_node(call->g, vjp_in(call, input))->shape; }

/* A constant of the output's shape. */
static int32_t vjp_full(const tg_vjp_call *call, double value) { return tg_ir_const(call->g, call->node.shape, TG_F32, value); }

static int32_t vjp_mul(const tg_vjp_call *call, int32_t a, int32_t b) { return tg_ir_binary(call->g, TG_OP_MUL, a, b); }

static int32_t vjp_scale(const tg_vjp_call *call, int32_t a, double by) { return vjp_mul(call, a, vjp_full(call, by)); }

static int32_t vjp_neg(const tg_vjp_call *call, int32_t a) { return tg_ir_unary(call->g, TG_OP_NEG, a); }

static void vjp_give(tg_vjp_call *call, int input, int32_t contribution) { tg_vjp_give(call, vjp_in(call, input), contribution); }

/* condition ? a : 0; exactly 0 where the condition is false, for any a */
static int32_t vjp_where(const tg_vjp_call *call, int32_t condition, int32_t a) {
    return tg_ir_select(call->g, condition, a, vjp_full(call, 0.0));
}

/* ---------------------------------------------------------------- operations without a gradient */

#define VJP_NONE(NAME) const tg_vjp_rule tg_vjp_##NAME = {NULL}
VJP_NONE(INPUT);
VJP_NONE(PARAM);
VJP_NONE(STATE);
VJP_NONE(CONST);
VJP_NONE(IOTA);
VJP_NONE(SIGN); /* the gradient is 0 almost everywhere; the same holds for the next three */
VJP_NONE(FLOOR);
VJP_NONE(CEIL);
VJP_NONE(ROUND);
VJP_NONE(NOT);
VJP_NONE(STOP_GRADIENT);
VJP_NONE(LESS);
VJP_NONE(LESS_EQUAL);
VJP_NONE(EQUAL);
VJP_NONE(NOT_EQUAL);
VJP_NONE(AND);
VJP_NONE(OR);
VJP_NONE(ARGMAX);
VJP_NONE(ARGMIN);
VJP_NONE(RANDOM);
#undef VJP_NONE

#define VJP_RULE(NAME) \
  static void vjp_##NAME(tg_vjp_call *call); \
  const tg_vjp_rule tg_vjp_##NAME = {vjp_##NAME}; \
  static void vjp_##NAME(tg_vjp_call *call)

/* ---------------------------------------------------------------- elementwise, one operand */

VJP_RULE(NEG) { vjp_give(call, 0, vjp_neg(call, call->dy)); }

VJP_RULE(ABS) { vjp_give(call, 0, vjp_mul(call, call->dy, tg_ir_unary(call->g, TG_OP_SIGN, vjp_in(call, 0)))); }

/* dy / (2 y) */
VJP_RULE(SQRT) { vjp_give(call, 0, tg_ir_binary(call->g, TG_OP_DIV, vjp_scale(call, call->dy, 0.5), call->y)); }

/* dy y^n, one factor at a time from dy on: y^n may leave f32 where the product does not */
static int32_t vjp_powers(const tg_vjp_call *call, int n) {
    int32_t product = call->dy;
    for (int i = 0; i < n; i++) product = vjp_mul(call, product, call->y);
    return product;
}

/* -dy y^3 / 2 */
VJP_RULE(RSQRT) { vjp_give(call, 0, vjp_scale(call, vjp_powers(call, 3), -0.5)); }

/* -dy y^2 */
VJP_RULE(RECIPROCAL) { vjp_give(call, 0, vjp_neg(call, vjp_powers(call, 2))); }

VJP_RULE(EXP) { vjp_give(call, 0, vjp_mul(call, call->dy, call->y)); }

VJP_RULE(LOG) { vjp_give(call, 0, tg_ir_binary(call->g, TG_OP_DIV, call->dy, vjp_in(call, 0))); }

VJP_RULE(SIN) { vjp_give(call, 0, vjp_mul(call, call->dy, tg_ir_unary(call->g, TG_OP_COS, vjp_in(call, 0)))); }

VJP_RULE(COS) {
    int32_t sine = tg_ir_unary(call->g, TG_OP_SIN, vjp_in(call, 0));
    vjp_give(call, 0, vjp_neg(call, vjp_mul(call, call->dy, sine)));
}

/* dy (1 - y^2) */
VJP_RULE(TANH) {
    int32_t square = vjp_mul(call, call->y, call->y);
    int32_t slope = tg_ir_binary(call->g, TG_OP_SUB, vjp_full(call, 1.0), square);
    vjp_give(call, 0, vjp_mul(call, call->dy, slope));
}

/* dy 2 / sqrt(pi) e^(-x^2) */
VJP_RULE(ERF) {
    int32_t x = vjp_in(call, 0);
    int32_t bell = tg_ir_unary(call->g, TG_OP_EXP, vjp_neg(call, vjp_mul(call, x, x)));
    vjp_give(call, 0, vjp_mul(call, call->dy, vjp_scale(call, bell, 1.1283791670955126)));
}

/* dy y (1 - y) */
VJP_RULE(SIGMOID) {
    int32_t other = tg_ir_binary(call->g, TG_OP_SUB, vjp_full(call, 1.0), call->y);
    vjp_give(call, 0, vjp_mul(call, call->dy, vjp_mul(call, call->y, other)));
}

VJP_RULE(SOFTPLUS) { vjp_give(call, 0, vjp_mul(call, call->dy, tg_ir_unary(call->g, TG_OP_SIGMOID, vjp_in(call, 0)))); }

/* dy (y + 1) */
VJP_RULE(EXPM1) {
    int32_t slope = tg_ir_binary(call->g, TG_OP_ADD, call->y, vjp_full(call, 1.0));
    vjp_give(call, 0, vjp_mul(call, call->dy, slope));
}

/* dy / (1 + x) */
VJP_RULE(LOG1P) {
    int32_t below = tg_ir_binary(call->g, TG_OP_ADD, vjp_in(call, 0), vjp_full(call, 1.0));
    vjp_give(call, 0, tg_ir_binary(call->g, TG_OP_DIV, call->dy, below));
}

/* dy where y > 0: 0 at x = 0 and at NaN */
VJP_RULE(RELU) {
    int32_t active = tg_ir_binary(call->g, TG_OP_LESS, vjp_full(call, 0.0), call->y);
    vjp_give(call, 0, vjp_where(call, active, call->dy));
}

/* ---------------------------------------------------------------- elementwise, two operands */

VJP_RULE(ADD) {
    if (tg_vjp_needs(call, 0)) vjp_give(call, 0, call->dy);
    if (tg_vjp_needs(call, 1)) vjp_give(call, 1, call->dy);
}

VJP_RULE(SUB) {
    if (tg_vjp_needs(call, 0)) vjp_give(call, 0, call->dy);
    if (tg_vjp_needs(call, 1)) vjp_give(call, 1, vjp_neg(call, call->dy));
}

VJP_RULE(MUL) {
    if (tg_vjp_needs(call, 0)) vjp_give(call, 0, vjp_mul(call, call->dy, vjp_in(call, 1)));
    if (tg_vjp_needs(call, 1)) vjp_give(call, 1, vjp_mul(call, call->dy, vjp_in(call, 0)));
}

/* da = dy / b, db = -da y */
VJP_RULE(DIV) {
    int32_t da = tg_ir_binary(call->g, TG_OP_DIV, call->dy, vjp_in(call, 1));
    if (tg_vjp_needs(call, 0)) vjp_give(call, 0, da);
    if (tg_vjp_needs(call, 1)) vjp_give(call, 1, vjp_neg(call, vjp_mul(call, da, call->y)));
}

/* da = dy, db = -dy floor(a / b) */
VJP_RULE(MOD) {
    if (tg_vjp_needs(call, 0)) vjp_give(call, 0, call->dy);
    if (!tg_vjp_needs(call, 1)) return;
    const int32_t quotient = tg_ir_floor_quotient(call->g, vjp_in(call, 0), vjp_in(call, 1));
    vjp_give(call, 1, vjp_neg(call, vjp_mul(call, call->dy, quotient)));
}

/* Whether the node is one constant number, seen through views; *value: the number. */
static bool vjp_constant(const tg_graph *g, int32_t id, double *value) {
    const tg_node *node = tg_graph_node(g, id);
    while (node->op == TG_OP_BROADCAST || node->op == TG_OP_RESHAPE) node = tg_graph_node(g, node->inputs[0]);
    if (node->op != TG_OP_CONST || node->attr.data != NULL) return false;
    *value = node->attr.value;
    return true;
}

/* da of a^c is dy c a^(c - 1). At c = 0 it is 0, without a product 0 * infinity. */
static void vjp_pow_constant(tg_vjp_call *call, double c) {
    int32_t a = vjp_in(call, 0), slope;
    if (c == 0.0) return;
    if (c == 1.0) {
        vjp_give(call, 0, call->dy);
        return;
    }
    if (c == 2.0) slope = vjp_scale(call, a, 2.0);
    else slope = vjp_scale(call, tg_ir_binary(call->g, TG_OP_POW, a, vjp_full(call, c - 1.0)), c);
    vjp_give(call, 0, vjp_mul(call, call->dy, slope));
}

/* da of a^b, as above for each b. Where b = 0 it is first replaced by 1, so that no infinity is
 * made, not even in second derivatives. */
static void vjp_pow_base(tg_vjp_call *call) {
    tg_graph *g = call->g;
    int32_t one = vjp_full(call, 1.0);
    int32_t flat = tg_ir_binary(g, TG_OP_EQUAL, vjp_in(call, 1), vjp_full(call, 0.0));
    int32_t b = tg_ir_select(g, flat, one, vjp_in(call, 1));
    int32_t power = tg_ir_binary(g, TG_OP_POW, vjp_in(call, 0), tg_ir_binary(g, TG_OP_SUB, b, one));
    int32_t da = vjp_mul(call, call->dy, vjp_mul(call, b, power));
    vjp_give(call, 0, tg_ir_select(g, flat, vjp_full(call, 0.0), da));
}

/* db = dy y log a where a > 0, else 0: for a < 0 the power is not defined around b, at a = 0 it is
 * flat. */
static void vjp_pow_exponent(tg_vjp_call *call) {
    tg_graph *g = call->g;
    int32_t positive = tg_ir_binary(g, TG_OP_LESS, vjp_full(call, 0.0), vjp_in(call, 0));
    int32_t a = tg_ir_select(g, positive, vjp_in(call, 0), vjp_full(call, 1.0));
    int32_t slope = vjp_mul(call, call->y, tg_ir_unary(g, TG_OP_LOG, a));
    vjp_give(call, 1, vjp_where(call, positive, vjp_mul(call, call->dy, slope)));
}

VJP_RULE(POW) {
    double exponent;
    if (tg_vjp_needs(call, 0)) {
        if (vjp_constant(call->g, vjp_in(call, 1), &exponent)) vjp_pow_constant(call, exponent);
        else vjp_pow_base(call);
    }
    if (tg_vjp_needs(call, 1)) vjp_pow_exponent(call);
}

/* The cotangent of one side of MIN or MAX: dy where that side wins, half of dy at a tie, else 0. At
 * NaN both sides get 0. */
static void vjp_extremum(tg_vjp_call *call, int input, int32_t wins) {
    tg_graph *g = call->g;
    int32_t tie = tg_ir_binary(g, TG_OP_EQUAL, vjp_in(call, 0), vjp_in(call, 1));
    int32_t shared = vjp_where(call, tie, vjp_scale(call, call->dy, 0.5));
    vjp_give(call, input, tg_ir_select(g, wins, call->dy, shared));
}

VJP_RULE(MIN) {
    int32_t a = vjp_in(call, 0), b = vjp_in(call, 1);
    if (tg_vjp_needs(call, 0)) vjp_extremum(call, 0, tg_ir_binary(call->g, TG_OP_LESS, a, b));
    if (tg_vjp_needs(call, 1)) vjp_extremum(call, 1, tg_ir_binary(call->g, TG_OP_LESS, b, a));
}

VJP_RULE(MAX) {
    int32_t a = vjp_in(call, 0), b = vjp_in(call, 1);
    if (tg_vjp_needs(call, 0)) vjp_extremum(call, 0, tg_ir_binary(call->g, TG_OP_LESS, b, a));
    if (tg_vjp_needs(call, 1)) vjp_extremum(call, 1, tg_ir_binary(call->g, TG_OP_LESS, a, b));
}

VJP_RULE(SELECT) {
    int32_t condition = vjp_in(call, 0);
    if (tg_vjp_needs(call, 1)) vjp_give(call, 1, vjp_where(call, condition, call->dy));
    if (tg_vjp_needs(call, 2)) vjp_give(call, 2, tg_ir_select(call->g, condition, vjp_full(call, 0.0), call->dy));
}

/* Only a cast from f32 to f32 is ever on a path. */
VJP_RULE(CAST) { vjp_give(call, 0, call->dy); }

/* ---------------------------------------------------------------- reductions */

VJP_RULE(SUM) { vjp_give(call, 0, tg_ir_broadcast(call->g, call->dy, vjp_shape(call, 0))); }

/* Tied elements share dy equally. y is one of the elements of x, so the comparison is exact. A NaN
 * extremum ties with no element: the count is 0, and all elements get NaN. */
static void vjp_reduced_extremum(tg_vjp_call *call) {
    tg_graph *g = call->g;
    int32_t x = vjp_in(call, 0);
    tg_shape shape = vjp_shape(call, 0);
    int32_t tied = tg_ir_binary(g, TG_OP_EQUAL, x, tg_ir_broadcast(g, call->y, shape));
    int32_t count = tg_ir_reduce(g, TG_OP_SUM, tg_ir_cast(g, tied, TG_F32), call->node.attr.axes);
    int32_t share = tg_ir_binary(g, TG_OP_DIV, call->dy, count);
    int32_t nobody = tg_ir_binary(g, TG_OP_EQUAL, count, vjp_full(call, 0.0));
    int32_t rest = tg_ir_select(g, nobody, vjp_full(call, (double)NAN), vjp_full(call, 0.0));
    vjp_give(call, 0, tg_ir_select(g, tied, tg_ir_broadcast(g, share, shape), tg_ir_broadcast(g, rest, shape)));
}

VJP_RULE(REDUCE_MAX) { vjp_reduced_extremum(call); }

VJP_RULE(REDUCE_MIN) { vjp_reduced_extremum(call); }

/* ---------------------------------------------------------------- views and joins */

VJP_RULE(RESHAPE) { vjp_give(call, 0, tg_ir_reshape(call->g, call->dy, vjp_shape(call, 0))); }

VJP_RULE(PERMUTE) {
    int32_t inverse[TG_MAX_RANK] = {0};
    for (int32_t i = 0; i < call->node.shape.rank; i++) inverse[call->node.attr.perm[i]] = i;
    vjp_give(call, 0, tg_ir_permute(call->g, call->dy, inverse));
}

VJP_RULE(BROADCAST) {
    tg_shape from = vjp_shape(call, 0), to = call->node.shape;
    uint32_t axes = 0;
    for (int32_t i = 0; i < to.rank; i++)
        if (from.dim[i] != to.dim[i]) axes |= 1u << i;
    tg_vjp_give_sum(call, vjp_in(call, 0), call->dy, axes);
}

VJP_RULE(SLICE) { tg_vjp_give_box(call, vjp_in(call, 0), call->dy, call->node.attr.start); }

VJP_RULE(PAD) { vjp_give(call, 0, tg_ir_slice(call->g, call->dy, call->node.attr.start, vjp_shape(call, 0))); }

VJP_RULE(FLIP) { vjp_give(call, 0, tg_ir_flip(call->g, call->dy, call->node.attr.axes)); }

VJP_RULE(WINDOW) {
    const int axis = call->node.attr.axis;
    vjp_give(call, 0, tg_ir_fold(call->g, call->dy, axis, call->node.attr.window, vjp_shape(call, 0).dim[axis]));
}

/* Takes as many windows as FOLD added up. */
VJP_RULE(FOLD) {
    const tg_window w = call->node.attr.window;
    const int axis = call->node.attr.axis;
    const int64_t start[TG_MAX_RANK] = {0};
    tg_shape used = call->node.shape;
    used.dim[axis] = (vjp_shape(call, 0).dim[axis] - 1) * w.stride + tg_window_span(w);
    vjp_give(call, 0, tg_ir_window(call->g, tg_ir_slice(call->g, call->dy, start, used), axis, w));
}

VJP_RULE(CONCAT) {
    int axis = call->node.attr.axis;
    int64_t start[TG_MAX_RANK] = {0};
    for (int i = 0; i < call->node.input_count; i++) {
        tg_shape part = vjp_shape(call, i);
        if (tg_vjp_needs(call, i)) vjp_give(call, i, tg_ir_slice(call->g, call->dy, start, part));
        start[axis] += part.dim[axis];
    }
}

VJP_RULE(PACK) {
    for (int i = 0; i < call->node.input_count; i++) {
        tg_shape part = vjp_shape(call, i), flat;
        if (!tg_vjp_needs(call, i)) continue;
        int64_t count = tg_shape_count(part);
        flat = tg_shape_make(1, &count);
        int32_t piece = tg_ir_slice(call->g, call->dy, &call->node.attr.offsets[i], flat);
        vjp_give(call, i, tg_ir_reshape(call->g, piece, part));
    }
}

/* ---------------------------------------------------------------- attention */

/* The cotangent of o alone, where the log-sum-exp of the rows has none: the element that `dy` pads
 * is exactly o. Else 0. */
static int32_t vjp_only_out(const tg_vjp_call *call, int64_t count) {
    const tg_node *dy = tg_graph_node(call->g, call->dy);
    if (dy->op != TG_OP_PAD || dy->attr.start[0] != 0) return 0;
    return tg_shape_count(tg_graph_node(call->g, dy->inputs[0])->shape) == count ? dy->inputs[0] : 0;
}

/* do, lse and delta of attention.h into operands[3 .. 5]. */
static void vjp_attention_operands(const tg_vjp_call *call, tg_attention_shape s, int32_t operands[7]) {
    tg_graph *g = call->g;
    const int64_t count = s.batches * s.kv_heads * s.groups * s.queries * s.width;
    const int32_t o = tg_ir_attention_out(g, call->y, s, 0), only = vjp_only_out(call, count);
    const tg_shape rows = TG_SHAPE(s.batches, s.queries, s.kv_heads * s.groups, s.width);
    operands[3] = only != 0 ? tg_ir_attention_turn(g, tg_ir_reshape(g, only, rows)) : tg_ir_attention_out(g, call->dy, s, 0);
    operands[4] = tg_ir_attention_out(g, call->y, s, 1);
    operands[5] = tg_ir_reduce(g, TG_OP_SUM, vjp_mul(call, operands[3], o), 1u << 3);
    if (only == 0) operands[5] = tg_ir_binary(g, TG_OP_SUB, operands[5], tg_ir_attention_out(g, call->dy, s, 1));
}

VJP_RULE(ATTENTION) {
    const tg_attributes attr = call->node.attr;
    const tg_attention_shape s = tg_attention_shape_of(vjp_shape(call, 0), vjp_shape(call, 1));
    const int count = call->node.input_count + 3;
    int32_t operands[7] = {vjp_in(call, 0), vjp_in(call, 1), vjp_in(call, 2), 0, 0, 0, count > 6 ? vjp_in(call, 3) : 0};
    vjp_attention_operands(call, s, operands);
    if (tg_vjp_needs(call, 0)) {
        const int32_t dq = tg_ir_attention(call->g, TG_OP_ATTENTION_DQ, operands, count, attr.causal, attr.value);
        vjp_give(call, 0, tg_ir_attention_turn(call->g, dq));
    }
    if (!tg_vjp_needs(call, 1) && !tg_vjp_needs(call, 2)) return;
    const int32_t dkv = tg_ir_attention(call->g, TG_OP_ATTENTION_DKV, operands, count, attr.causal, attr.value);
    for (int part = 0; part < 2; part++)
        if (tg_vjp_needs(call, 1 + part)) vjp_give(call, 1 + part, tg_ir_attention_dkv(call->g, dkv, s, part));
}

/* x as a node of its own, which no other operand depends on. */
static int32_t vjp_apart(tg_graph *g, int32_t x) {
    const tg_shape shape = tg_graph_node(g, x)->shape;
    return tg_ir_reshape(g, tg_ir_reshape(g, x, TG_SHAPE(tg_shape_count(shape), 1)), shape);
}

/* The gradient of a gradient: that of the same value made of other primitives. Its operands are
 * separated first, so that no path from one to another counts. */
static void vjp_attention_unfused(tg_vjp_call *call) {
    tg_graph *g = call->g;
    int32_t inputs[7] = {0}, wanted[6], given[6];
    int count = 0;
    for (int i = 0; i < call->node.input_count; i++) inputs[i] = i < 6 ? vjp_apart(g, vjp_in(call, i)) : vjp_in(call, i);
    const tg_attributes attr = call->node.attr;
    const int32_t y = tg_ir_attention_unfused(g, call->node.op, inputs, call->node.input_count, attr.causal, attr.value);
    for (int i = 0; i < 6; i++)
        if (tg_vjp_needs(call, i)) wanted[count++] = inputs[i];
    call->failed = call->failed || y == 0 || tg_grad_append(g, y, call->dy, wanted, count, given) != TG_OK;
    for (int i = 0, at = 0; i < 6 && !call->failed; i++)
        if (tg_vjp_needs(call, i)) vjp_give(call, i, given[at++]);
}

VJP_RULE(ATTENTION_DQ) { vjp_attention_unfused(call); }
VJP_RULE(ATTENTION_DKV) { vjp_attention_unfused(call); }

/* ---------------------------------------------------------------- contraction, indexing */

static int32_t vjp_transpose(const tg_vjp_call *call, int32_t x) {
    const int32_t perm[3] = {0, 2, 1};
    return tg_ir_permute(call->g, x, perm);
}

/* An operand [B, R, C] whose batch axis is (partly) a repeat: reshape(broadcast(source)) or
 * broadcast(source), where only batch axes are repeated. `repeated` is the shape before the batch
 * axes were merged: [b..., R, C]. */
typedef struct vjp_repeat {
    int32_t source;
    tg_shape from, repeated;
} vjp_repeat;

static bool vjp_find_repeat(const tg_vjp_call *call, int32_t operand, vjp_repeat *out) {
    const tg_node *node = tg_graph_node(call->g, operand);
    int64_t rows = node->shape.dim[1], columns = node->shape.dim[2];
    if (call->marks[operand] & TG_VJP_WANTED) return false;
    if (node->op == TG_OP_RESHAPE) {
        if (call->marks[node->inputs[0]] & TG_VJP_WANTED) return false;
        node = tg_graph_node(call->g, node->inputs[0]);
    }
    if (node->op != TG_OP_BROADCAST) return false;
    out->source = node->inputs[0];
    out->from = tg_graph_node(call->g, out->source)->shape;
    out->repeated = node->shape;
    int32_t rank = node->shape.rank;
    if (rank < 3 || node->shape.dim[rank - 2] != rows || node->shape.dim[rank - 1] != columns) return false;
    return out->from.dim[rank - 2] == rows && out->from.dim[rank - 1] == columns;
}

/* x [B, R, C], with B the product of the repeated batch axes -> [kept, again R, C]. The batch axes
 * that were repeated move beside the rows, so that a contraction over the rows sums over them
 * too. */
static int32_t vjp_merge_batch(const tg_vjp_call *call, int32_t x, const vjp_repeat *repeat) {
    tg_graph *g = call->g;
    tg_shape shape = tg_graph_node(g, x)->shape, open = repeat->repeated, folded;
    int32_t rank = open.rank, perm[TG_MAX_RANK] = {0}, at = 0;
    int64_t kept = 1, again = 1;
    open.dim[rank - 2] = shape.dim[1];
    open.dim[rank - 1] = shape.dim[2];
    for (int32_t i = 0; i < rank - 2; i++)
        if (repeat->from.dim[i] == open.dim[i]) {
            perm[at++] = i;
            kept *= open.dim[i];
        }
    for (int32_t i = 0; i < rank - 2; i++)
        if (repeat->from.dim[i] != open.dim[i]) {
            perm[at++] = i;
            again *= open.dim[i];
        }
    perm[rank - 2] = rank - 2;
    perm[rank - 1] = rank - 1;
    int64_t dims[3] = {kept, again * shape.dim[1], shape.dim[2]};
    folded = tg_shape_make(3, dims);
    return tg_ir_reshape(g, tg_ir_permute(g, tg_ir_reshape(g, x, open), perm), folded);
}

/* Gives an operand [B, R, C] its cotangent, left [B, S, R]^T right [B, S, C]. If the operand
 * repeats its batch, the contraction sums over the repeats, and no [B, R, C] is ever made. */
static void vjp_contract_operand(tg_vjp_call *call, int input, int32_t left, int32_t right) {
    vjp_repeat repeat;
    if (!vjp_find_repeat(call, vjp_in(call, input), &repeat)) {
        tg_vjp_give_product(call, vjp_in(call, input), left, right);
        return;
    }
    left = vjp_merge_batch(call, left, &repeat);
    right = vjp_merge_batch(call, right, &repeat);
    tg_vjp_give_product(call, repeat.source, left, right);
}

/* If b is windows with a stride of 1, its cotangent is a convolution too, which goes straight to
 * the source of the windows. No cotangent of each tap is ever made. Returns whether it did that. */
static bool vjp_convolution(tg_vjp_call *call) {
    tg_columns columns;
    if (!tg_ir_find_columns(call->g, vjp_in(call, 1), call->marks, TG_VJP_WANTED, &columns)) return false;
    for (int i = 0; i < columns.count; i++)
        if (columns.window[i].stride != 1) return false;
    tg_vjp_give(call, columns.source, tg_ir_columns_back(call->g, vjp_in(call, 0), call->dy, &columns));
    return true;
}

/* y = a b: da = dy b^T, db = a^T dy */
VJP_RULE(CONTRACT) {
    int32_t a = vjp_in(call, 0), b = vjp_in(call, 1);
    vjp_repeat repeat;
    if (tg_vjp_needs(call, 0)) {
        int32_t turned = vjp_transpose(call, b);
        if (vjp_find_repeat(call, a, &repeat)) vjp_contract_operand(call, 0, vjp_transpose(call, call->dy), turned);
        else vjp_give(call, 0, tg_ir_contract(call->g, call->dy, turned));
    }
    if (tg_vjp_needs(call, 1) && !vjp_convolution(call)) vjp_contract_operand(call, 1, a, call->dy);
}

VJP_RULE(GATHER) { vjp_give(call, 0, tg_ir_scatter_add(call->g, vjp_in(call, 1), call->dy, vjp_shape(call, 0).dim[0])); }

VJP_RULE(SCATTER_ADD) { vjp_give(call, 1, tg_ir_gather(call->g, call->dy, vjp_in(call, 0))); }

#undef VJP_RULE
