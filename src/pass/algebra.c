/* algebra: identities of elementwise operations that hold for all values, bit for bit except the
 * sign of a NaN. So x + 0 (wrong for -0), x 0 (wrong for infinity) and x - x are not among them.
 * And lifting: if all operands are repeated along an axis, the operation is done once and its
 * result repeated. Must not know views other than BROADCAST. */
#include "pass/rewrite.h"

#include <math.h>

static tg_op algebra_op(const tg_rewrite *r, int32_t id) { return tg_rewrite_node(r, id)->op; }

static int32_t algebra_input(const tg_rewrite *r, int32_t id, int i) { return tg_rewrite_node(r, id)->inputs[i]; }

static bool algebra_is_number(const tg_rewrite *r, int32_t id, double number) {
    double value;
    return tg_pass_splat(r, id, &value) && value == number && signbit(value) == signbit(number);
}

/* ---------------------------------------------------------------- one operand */

static int32_t algebra_not(tg_rewrite *r, int32_t x) {
    tg_node in = *tg_rewrite_node(r, x);
    if (in.op == TG_OP_NOT) return in.inputs[0];
    if (in.op == TG_OP_EQUAL) return tg_pass_binary(r, TG_OP_NOT_EQUAL, TG_BOOL, in.inputs[0], in.inputs[1]);
    if (in.op == TG_OP_NOT_EQUAL) return tg_pass_binary(r, TG_OP_EQUAL, TG_BOOL, in.inputs[0], in.inputs[1]);
    return 0;
}

/* A truth value keeps its value in each dtype. */
static int32_t algebra_cast(tg_rewrite *r, const tg_node *draft) {
    int32_t x = draft->inputs[0];
    tg_node again = *draft;
    if (tg_rewrite_node(r, x)->dtype == draft->dtype) return x;
    if (algebra_op(r, x) != TG_OP_CAST) return 0;
    int32_t source = algebra_input(r, x, 0);
    if (tg_rewrite_node(r, source)->dtype != TG_BOOL) return 0;
    again.inputs = &source;
    return tg_pass_make(r, &again);
}

static int32_t algebra_unary(tg_rewrite *r, const tg_node *draft) {
    int32_t x = draft->inputs[0];
    tg_op in = algebra_op(r, x);
    switch (draft->op) {
    case TG_OP_STOP_GRADIENT: return x;
    case TG_OP_NEG: return in == TG_OP_NEG ? algebra_input(r, x, 0) : 0;
    case TG_OP_ABS:
        if (in == TG_OP_NEG) return tg_pass_unary(r, TG_OP_ABS, algebra_input(r, x, 0));
        return in == TG_OP_ABS ? x : 0;
    case TG_OP_RELU: return in == TG_OP_RELU ? x : 0;
    case TG_OP_SIGN: return in == TG_OP_SIGN ? x : 0;
    case TG_OP_NOT: return algebra_not(r, x);
    case TG_OP_CAST: return algebra_cast(r, draft);
    default: return 0;
    }
}

/* ---------------------------------------------------------------- two operands */

static int32_t algebra_add(tg_rewrite *r, const tg_node *draft) {
    int32_t a = draft->inputs[0], b = draft->inputs[1];
    double nothing = draft->dtype == TG_F32 ? -0.0 : 0.0;
    if (algebra_is_number(r, b, nothing)) return a;
    if (algebra_is_number(r, a, nothing)) return b;
    if (algebra_op(r, b) == TG_OP_NEG) return tg_pass_binary(r, TG_OP_SUB, draft->dtype, a, algebra_input(r, b, 0));
    if (algebra_op(r, a) == TG_OP_NEG) return tg_pass_binary(r, TG_OP_SUB, draft->dtype, b, algebra_input(r, a, 0));
    return 0;
}

static int32_t algebra_sub(tg_rewrite *r, const tg_node *draft) {
    int32_t a = draft->inputs[0], b = draft->inputs[1];
    if (algebra_is_number(r, b, 0.0)) return a;
    if (algebra_op(r, b) == TG_OP_NEG) return tg_pass_binary(r, TG_OP_ADD, draft->dtype, a, algebra_input(r, b, 0));
    return 0;
}

/* x times number, where the number is one that simplifies it. */
static int32_t algebra_times(tg_rewrite *r, const tg_node *draft, int32_t x, double number) {
    if (number == 1.0) return x;
    if (number == -1.0) return tg_pass_unary(r, TG_OP_NEG, x);
    if (number == 0.0 && draft->dtype == TG_I32) return tg_pass_const(r, draft->shape, TG_I32, 0.0);
    if (algebra_op(r, x) != TG_OP_NEG || draft->dtype != TG_F32) return 0;
    int32_t inner = algebra_input(r, x, 0);
    return tg_pass_binary(r, TG_OP_MUL, TG_F32, inner, tg_pass_const(r, draft->shape, TG_F32, -number));
}

static int32_t algebra_mul(tg_rewrite *r, const tg_node *draft) {
    int32_t a = draft->inputs[0], b = draft->inputs[1];
    double number;
    if (tg_pass_splat(r, b, &number)) return algebra_times(r, draft, a, number);
    if (tg_pass_splat(r, a, &number)) return algebra_times(r, draft, b, number);
    if (algebra_op(r, a) == TG_OP_NEG)
        return tg_pass_unary(r, TG_OP_NEG, tg_pass_binary(r, TG_OP_MUL, draft->dtype, algebra_input(r, a, 0), b));
    if (algebra_op(r, b) == TG_OP_NEG)
        return tg_pass_unary(r, TG_OP_NEG, tg_pass_binary(r, TG_OP_MUL, draft->dtype, a, algebra_input(r, b, 0)));
    return 0;
}

/* Whether 1 / number is exact and a normal number. */
static bool algebra_power_of_two(double number) {
    int exponent;
    return fabs(frexp(number, &exponent)) == 0.5 && exponent > -125 && exponent < 126;
}

static int32_t algebra_div(tg_rewrite *r, const tg_node *draft) {
    int32_t a = draft->inputs[0], b = draft->inputs[1];
    double number;
    bool known = tg_pass_splat(r, b, &number);
    if (known && number == 1.0) return a;
    if (known && number == -1.0) return tg_pass_unary(r, TG_OP_NEG, a);
    if (draft->dtype != TG_F32) return 0;
    if (known && algebra_power_of_two(number))
        return tg_pass_binary(r, TG_OP_MUL, TG_F32, a, tg_pass_const(r, draft->shape, TG_F32, 1.0 / number));
    if (algebra_op(r, a) == TG_OP_NEG) return tg_pass_unary(r, TG_OP_NEG, tg_pass_binary(r, TG_OP_DIV, TG_F32, algebra_input(r, a, 0), b));
    if (algebra_op(r, b) == TG_OP_NEG) return tg_pass_unary(r, TG_OP_NEG, tg_pass_binary(r, TG_OP_DIV, TG_F32, a, algebra_input(r, b, 0)));
    return 0;
}

static int32_t algebra_pow(tg_rewrite *r, const tg_node *draft) {
    int32_t a = draft->inputs[0];
    double number;
    if (!tg_pass_splat(r, draft->inputs[1], &number)) return 0;
    if (number == 0.0) return tg_pass_const(r, draft->shape, TG_F32, 1.0);
    if (number == 1.0) return a;
    if (number == 2.0) return tg_pass_binary(r, TG_OP_MUL, TG_F32, a, a);
    return 0;
}

/* AND and OR: `neutral` changes nothing, its opposite decides. */
static int32_t algebra_logic(tg_rewrite *r, const tg_node *draft, double neutral) {
    for (int i = 0; i < 2; i++) {
        if (algebra_is_number(r, draft->inputs[i], neutral)) return draft->inputs[1 - i];
        if (algebra_is_number(r, draft->inputs[i], 1.0 - neutral)) return draft->inputs[i];
    }
    return draft->inputs[0] == draft->inputs[1] ? draft->inputs[0] : 0;
}

/* A value compared with itself. For f32 neither EQUAL nor NOT_EQUAL is known: the value may be
 * NaN. */
static int32_t algebra_compare(tg_rewrite *r, const tg_node *draft) {
    if (draft->inputs[0] != draft->inputs[1]) return 0;
    if (draft->op == TG_OP_LESS) return tg_pass_const(r, draft->shape, TG_BOOL, 0.0);
    if (tg_rewrite_node(r, draft->inputs[0])->dtype == TG_F32) return 0;
    return tg_pass_const(r, draft->shape, TG_BOOL, draft->op == TG_OP_NOT_EQUAL ? 0.0 : 1.0);
}

static int32_t algebra_select(tg_rewrite *r, const tg_node *draft) {
    int32_t c = draft->inputs[0], a = draft->inputs[1], b = draft->inputs[2];
    double truth;
    if (tg_pass_splat(r, c, &truth)) return truth != 0.0 ? a : b;
    if (a == b) return a;
    if (algebra_op(r, c) == TG_OP_NOT) return tg_pass_select(r, algebra_input(r, c, 0), b, a);
    if (algebra_op(r, a) == TG_OP_SELECT && algebra_input(r, a, 0) == c) return tg_pass_select(r, c, algebra_input(r, a, 1), b);
    if (algebra_op(r, b) == TG_OP_SELECT && algebra_input(r, b, 0) == c) return tg_pass_select(r, c, a, algebra_input(r, b, 2));
    if (draft->dtype == TG_BOOL && algebra_is_number(r, a, 1.0) && algebra_is_number(r, b, 0.0)) return c;
    return 0;
}

int32_t tg_pass_algebra(tg_rewrite *r, const tg_node *draft) {
    switch (draft->op) {
    case TG_OP_ADD: return algebra_add(r, draft);
    case TG_OP_SUB: return algebra_sub(r, draft);
    case TG_OP_MUL: return algebra_mul(r, draft);
    case TG_OP_DIV: return algebra_div(r, draft);
    case TG_OP_POW: return algebra_pow(r, draft);
    case TG_OP_MIN:
    case TG_OP_MAX: return draft->inputs[0] == draft->inputs[1] ? draft->inputs[0] : 0;
    case TG_OP_AND: return algebra_logic(r, draft, 1.0);
    case TG_OP_OR: return algebra_logic(r, draft, 0.0);
    case TG_OP_LESS:
    case TG_OP_LESS_EQUAL:
    case TG_OP_EQUAL:
    case TG_OP_NOT_EQUAL: return algebra_compare(r, draft);
    case TG_OP_SELECT: return algebra_select(r, draft);
    default: return draft->input_count == 1 ? algebra_unary(r, draft) : 0;
    }
}

/* ---------------------------------------------------------------- lifting */

/* The axes along which each operand is repeated, except operands that are one number everywhere. */
static uint32_t algebra_repeated_axes(const tg_rewrite *r, const tg_node *draft) {
    uint32_t axes = 0;
    bool any = false;
    double number;
    for (int32_t i = 0; i < draft->shape.rank; i++)
        if (draft->shape.dim[i] > 1) axes |= 1u << i;
    for (int32_t k = 0; k < draft->input_count; k++) {
        if (tg_pass_splat(r, draft->inputs[k], &number)) continue;
        const tg_node *in = tg_rewrite_node(r, draft->inputs[k]);
        if (in->op != TG_OP_BROADCAST) return 0;
        tg_shape from = tg_rewrite_node(r, in->inputs[0])->shape;
        for (int32_t i = 0; i < from.rank; i++)
            if (from.dim[i] != 1) axes &= ~(1u << i);
        any = true;
    }
    return any ? axes : 0;
}

int32_t tg_pass_lift(tg_rewrite *r, const tg_node *draft) {
    uint32_t axes = algebra_repeated_axes(r, draft);
    tg_node small = *draft;
    int32_t inputs[3] = {0, 0, 0};
    if (axes == 0 || draft->input_count > 3) return 0;
    for (int32_t i = 0; i < small.shape.rank; i++)
        if (axes >> i & 1u) small.shape.dim[i] = 1;
    for (int32_t k = 0; k < draft->input_count && !r->failed; k++) {
        double number;
        tg_dtype dtype = tg_rewrite_node(r, draft->inputs[k])->dtype;
        if (tg_pass_splat(r, draft->inputs[k], &number)) inputs[k] = tg_pass_const(r, small.shape, dtype, number);
        else inputs[k] = tg_pass_broadcast(r, algebra_input(r, draft->inputs[k], 0), small.shape);
    }
    small.inputs = inputs;
    return tg_pass_broadcast(r, tg_pass_make(r, &small), draft->shape);
}
