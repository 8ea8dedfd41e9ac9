/* Elementwise operations: unary, binary with numbers on either side, comparisons, selection, casts.
 * Must not know reductions or layouts. */
#include "trace/trace.h"

#include <math.h>

/* ---------------------------------------------------------------- one operand */

static bool enter_unary(tg_call *call, tg_site site, const char *op, tg_tensor x, unsigned dtypes) {
    return tg_call_enter(call, site, op, &x, 1) && tg_call_takes(call, x.id, dtypes);
}

static tg_tensor unary_op(tg_site site, const char *name, tg_op op, tg_tensor x, unsigned dtypes) {
    tg_call call;
    if (!enter_unary(&call, site, name, x, dtypes)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_unary(call.graph, op, x.id));
}

tg_tensor tg_neg_at(tg_site site, tg_tensor x) { return unary_op(site, "neg", TG_OP_NEG, x, TG_TAKES_NUMBERS); }
tg_tensor tg_abs_at(tg_site site, tg_tensor x) { return unary_op(site, "abs", TG_OP_ABS, x, TG_TAKES_NUMBERS); }
tg_tensor tg_sign_at(tg_site site, tg_tensor x) { return unary_op(site, "sign", TG_OP_SIGN, x, TG_TAKES_NUMBERS); }
tg_tensor tg_sqrt_at(tg_site site, tg_tensor x) { return unary_op(site, "sqrt", TG_OP_SQRT, x, TG_TAKES_F32); }
tg_tensor tg_rsqrt_at(tg_site site, tg_tensor x) { return unary_op(site, "rsqrt", TG_OP_RSQRT, x, TG_TAKES_F32); }
tg_tensor tg_reciprocal_at(tg_site site, tg_tensor x) { return unary_op(site, "reciprocal", TG_OP_RECIPROCAL, x, TG_TAKES_F32); }
tg_tensor tg_exp_at(tg_site site, tg_tensor x) { return unary_op(site, "exp", TG_OP_EXP, x, TG_TAKES_F32); }
tg_tensor tg_log_at(tg_site site, tg_tensor x) { return unary_op(site, "log", TG_OP_LOG, x, TG_TAKES_F32); }
tg_tensor tg_sin_at(tg_site site, tg_tensor x) { return unary_op(site, "sin", TG_OP_SIN, x, TG_TAKES_F32); }
tg_tensor tg_cos_at(tg_site site, tg_tensor x) { return unary_op(site, "cos", TG_OP_COS, x, TG_TAKES_F32); }
tg_tensor tg_tanh_at(tg_site site, tg_tensor x) { return unary_op(site, "tanh", TG_OP_TANH, x, TG_TAKES_F32); }
tg_tensor tg_erf_at(tg_site site, tg_tensor x) { return unary_op(site, "erf", TG_OP_ERF, x, TG_TAKES_F32); }
tg_tensor tg_sigmoid_at(tg_site site, tg_tensor x) { return unary_op(site, "sigmoid", TG_OP_SIGMOID, x, TG_TAKES_F32); }
tg_tensor tg_softplus_at(tg_site site, tg_tensor x) { return unary_op(site, "softplus", TG_OP_SOFTPLUS, x, TG_TAKES_F32); }
tg_tensor tg_expm1_at(tg_site site, tg_tensor x) { return unary_op(site, "expm1", TG_OP_EXPM1, x, TG_TAKES_F32); }
tg_tensor tg_log1p_at(tg_site site, tg_tensor x) { return unary_op(site, "log1p", TG_OP_LOG1P, x, TG_TAKES_F32); }
tg_tensor tg_floor_at(tg_site site, tg_tensor x) { return unary_op(site, "floor", TG_OP_FLOOR, x, TG_TAKES_F32); }
tg_tensor tg_ceil_at(tg_site site, tg_tensor x) { return unary_op(site, "ceil", TG_OP_CEIL, x, TG_TAKES_F32); }
tg_tensor tg_round_at(tg_site site, tg_tensor x) { return unary_op(site, "round", TG_OP_ROUND, x, TG_TAKES_F32); }
tg_tensor tg_relu_at(tg_site site, tg_tensor x) { return unary_op(site, "relu", TG_OP_RELU, x, TG_TAKES_F32); }
tg_tensor tg_logical_not_at(tg_site site, tg_tensor x) { return unary_op(site, "logical_not", TG_OP_NOT, x, TG_TAKES_BOOL); }

/* Integers and masks carry no gradient: they are returned unchanged. */
tg_tensor tg_stop_gradient_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "stop_gradient", x, TG_TAKES_ANY)) return tg_call_poison(&call);
    if (tg_node_dtype(&call, x.id) != TG_F32) return x;
    return tg_call_result(&call, tg_ir_unary(call.graph, TG_OP_STOP_GRADIENT, x.id));
}

tg_tensor tg_square_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "square", x, TG_TAKES_NUMBERS)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_MUL, x.id, x.id));
}

/* For a gate times x. In f32 the gate is 0 for x under -GATE_OPEN and 1 for x over GATE_OPEN, so
 * that the product is 0 or x there. At infinity the formula would compute 0 times infinity, in one
 * derivative or another. So it gets `inside`, which is 0 there, and the result is selected. NaN
 * stays NaN. */
#define GATE_OPEN 128.0
static int32_t gate_inside(const tg_call *call, int32_t x, int32_t *outside) {
    tg_graph *g = call->graph;
    *outside = tg_ir_binary(g, TG_OP_LESS, tg_compose_number(call, GATE_OPEN), tg_ir_unary(g, TG_OP_ABS, x));
    return tg_ir_select(g, *outside, tg_compose_number(call, 0.0), x);
}

static tg_tensor gate_result(const tg_call *call, int32_t x, int32_t outside, int32_t product) {
    return tg_call_result(call, tg_ir_select(call->graph, outside, tg_ir_unary(call->graph, TG_OP_RELU, x), product));
}

tg_tensor tg_silu_at(tg_site site, tg_tensor x) {
    tg_call call;
    int32_t outside = 0;
    if (!enter_unary(&call, site, "silu", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t inside = gate_inside(&call, x.id, &outside);
    int32_t gate = tg_ir_unary(call.graph, TG_OP_SIGMOID, inside);
    return gate_result(&call, x.id, outside, tg_ir_binary(call.graph, TG_OP_MUL, inside, gate));
}

/* sin x / cos x; its gradient becomes 1 + tan^2. */
tg_tensor tg_tan_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "tan", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t sine = tg_ir_unary(call.graph, TG_OP_SIN, x.id);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_DIV, sine, tg_ir_unary(call.graph, TG_OP_COS, x.id)));
}

/* -softplus(-x) */
tg_tensor tg_log_sigmoid_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "log_sigmoid", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t loss = tg_ir_unary(call.graph, TG_OP_SOFTPLUS, tg_ir_unary(call.graph, TG_OP_NEG, x.id));
    return tg_call_result(&call, tg_ir_unary(call.graph, TG_OP_NEG, loss));
}

/* (min(max(x, -3), 3) + 3) / 6 (Howard et al. 2019) */
static int32_t hard_gate(const tg_call *call, int32_t x) {
    int32_t raised = tg_ir_binary(call->graph, TG_OP_MAX, x, tg_compose_number(call, -3.0));
    int32_t inside = tg_ir_binary(call->graph, TG_OP_MIN, raised, tg_compose_number(call, 3.0));
    int32_t above = tg_ir_binary(call->graph, TG_OP_ADD, inside, tg_compose_number(call, 3.0));
    return tg_ir_binary(call->graph, TG_OP_DIV, above, tg_compose_number(call, 6.0));
}

tg_tensor tg_hard_sigmoid_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "hard_sigmoid", x, TG_TAKES_F32)) return tg_call_poison(&call);
    return tg_call_result(&call, hard_gate(&call, x.id));
}

tg_tensor tg_hard_swish_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "hard_swish", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t outside = 0, inside = gate_inside(&call, x.id, &outside);
    return gate_result(&call, x.id, outside, tg_ir_binary(call.graph, TG_OP_MUL, inside, hard_gate(&call, inside)));
}

/* The number as f32 holds it. Records an error and returns 0 unless it is finite. */
static int32_t finite_number(const tg_call *call, const char *what, double value, int32_t beside) {
    double held = 0;
    if (!isfinite(value)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, &beside, 1, "the %s %.9g is not finite: %s", what, value, TG_LABEL(call, beside));
        return 0;
    }
    return tg_call_number(call, value, TG_F32, beside, &held) ? tg_compose_number(call, held) : 0;
}

static int32_t is_positive(const tg_call *call, int32_t x) {
    return tg_ir_binary(call->graph, TG_OP_LESS, tg_compose_number(call, 0.0), x);
}

tg_tensor tg_leaky_relu_at(tg_site site, tg_tensor x, double slope) {
    tg_call call;
    if (!enter_unary(&call, site, "leaky_relu", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t factor = finite_number(&call, "slope", slope, x.id);
    if (factor == 0) return tg_call_poison(&call);
    /* a slope of 0 times -infinity would be NaN, not 0 */
    if (slope == 0) return tg_call_result(&call, tg_ir_unary(call.graph, TG_OP_RELU, x.id));
    int32_t positive = is_positive(&call, x.id);
    return tg_call_result(&call, tg_ir_select(call.graph, positive, x.id, tg_ir_binary(call.graph, TG_OP_MUL, x.id, factor)));
}

/* e^x gets only the x that it is used for. For others it would overflow, and the gradient would be
 * 0 times infinity. */
tg_tensor tg_elu_at(tg_site site, tg_tensor x, double alpha) {
    tg_call call;
    if (!enter_unary(&call, site, "elu", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t factor = finite_number(&call, "alpha", alpha, x.id);
    if (factor == 0) return tg_call_poison(&call);
    int32_t positive = is_positive(&call, x.id);
    int32_t below = tg_ir_select(call.graph, positive, tg_compose_number(&call, 0.0), x.id);
    int32_t curve = tg_ir_binary(call.graph, TG_OP_MUL, tg_ir_unary(call.graph, TG_OP_EXPM1, below), factor);
    return tg_call_result(&call, tg_ir_select(call.graph, positive, x.id, curve));
}

/* x / 2 (1 + inner), the form that both kinds of GELU have. */
static int32_t half_gate(const tg_call *call, int32_t x, int32_t inner) {
    int32_t gate = tg_ir_binary(call->graph, TG_OP_ADD, inner, tg_compose_number(call, 1.0));
    return tg_ir_binary(call->graph, TG_OP_MUL, tg_compose_scale(call, x, 0.5), gate);
}

/* x / 2 (1 + erf(x / sqrt 2)) (Hendrycks & Gimpel 2016). */
tg_tensor tg_gelu_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "gelu", x, TG_TAKES_F32)) return tg_call_poison(&call);
    int32_t outside = 0, inside = gate_inside(&call, x.id, &outside);
    int32_t scaled = tg_compose_scale(&call, inside, 0.70710678118654752);
    return gate_result(&call, x.id, outside, half_gate(&call, inside, tg_ir_unary(call.graph, TG_OP_ERF, scaled)));
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
tg_tensor tg_gelu_tanh_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_unary(&call, site, "gelu_tanh", x, TG_TAKES_F32)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    const double root = 0.79788456080286536; /* sqrt(2 / pi) */
    int32_t outside = 0, inside = gate_inside(&call, x.id, &outside);
    int32_t square = tg_ir_binary(g, TG_OP_MUL, inside, inside);
    int32_t slope = tg_ir_binary(g, TG_OP_ADD, tg_compose_scale(&call, square, root * 0.044715), tg_compose_number(&call, root));
    int32_t inner = tg_ir_binary(g, TG_OP_MUL, inside, slope);
    return gate_result(&call, x.id, outside, half_gate(&call, inside, tg_ir_unary(g, TG_OP_TANH, inner)));
}

/* ---------------------------------------------------------------- two operands */

static bool enter_operands(tg_call *call, tg_site site, const char *op, const tg_operand *operands, int count) {
    tg_tensor tensors[3];
    int used = 0;
    for (int i = 0; i < count; i++)
        if (!operands[i].is_number) tensors[used++] = operands[i].tensor;
    return tg_call_enter(call, site, op, tensors, used); /* only numbers: no graph, so poison */
}

/* The operand's node. A number becomes a rank-0 constant of `dtype`, the dtype of `beside`. 0 after
 * recording an error. */
static int32_t operand_node(const tg_call *call, const tg_operand *operand, tg_dtype dtype, int32_t beside) {
    double held = 0;
    if (!operand->is_number) return operand->tensor.id;
    if (!tg_call_number(call, operand->number, dtype, beside, &held)) return 0;
    return tg_ir_const(call->graph, tg_shape_make(0, NULL), dtype, held);
}

/* Checks that both operands have one accepted dtype and shapes that broadcast. */
static bool check_pair(const tg_call *call, const tg_operand *a, const tg_operand *b, unsigned dtypes) {
    int32_t ids[2] = {a->tensor.id, b->tensor.id};
    tg_shape out;
    char message[TG_RULE_MESSAGE];
    if (!a->is_number && !tg_call_takes(call, ids[0], dtypes)) return false;
    if (!b->is_number && !tg_call_takes(call, ids[1], dtypes)) return false;
    if (a->is_number || b->is_number) return true;
    if (tg_node_dtype(call, ids[0]) != tg_node_dtype(call, ids[1])) {
        tg_call_fail(call, TG_ERROR_DTYPE, ids, 2, "dtypes differ: %s and %s (%s != %s)", TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]),
                     tg_dtype_name(tg_node_dtype(call, ids[0])), tg_dtype_name(tg_node_dtype(call, ids[1])));
        return false;
    }
    tg_status status = tg_broadcast_check(call->graph, ids[0], ids[1], &out, message, sizeof message);
    if (status != TG_OK) tg_call_fail(call, status, ids, 2, "%s", message);
    return status == TG_OK;
}

static bool enter_pair(tg_call *call, tg_site site, const char *name, const tg_operand *a, const tg_operand *b, unsigned dtypes,
                       int32_t *left, int32_t *right) {
    tg_operand operands[2] = {*a, *b};
    if (!enter_operands(call, site, name, operands, 2) || !check_pair(call, a, b, dtypes)) return false;
    int32_t tensor = a->is_number ? b->tensor.id : a->tensor.id;
    tg_dtype dtype = tg_node_dtype(call, tensor);
    *left = operand_node(call, a, dtype, tensor);
    *right = operand_node(call, b, dtype, tensor);
    return *left != 0 && *right != 0;
}

static tg_tensor binary_op(tg_site site, const char *name, tg_op op, tg_operand a, tg_operand b, unsigned dtypes) {
    tg_call call;
    int32_t left = 0, right = 0;
    if (!enter_pair(&call, site, name, &a, &b, dtypes, &left, &right)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_binary(call.graph, op, left, right));
}

/* a > b is computed as b < a. */
static tg_tensor reversed_op(tg_site site, const char *name, tg_op op, tg_operand a, tg_operand b) {
    tg_call call;
    int32_t left = 0, right = 0;
    if (!enter_pair(&call, site, name, &a, &b, TG_TAKES_NUMBERS, &left, &right)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_binary(call.graph, op, right, left));
}

tg_tensor tg_add_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "add", TG_OP_ADD, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_sub_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "sub", TG_OP_SUB, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_mul_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "mul", TG_OP_MUL, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_pow_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "pow", TG_OP_POW, a, b, TG_TAKES_F32); }
tg_tensor tg_minimum_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "minimum", TG_OP_MIN, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_maximum_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "maximum", TG_OP_MAX, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_less_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "less", TG_OP_LESS, a, b, TG_TAKES_NUMBERS); }
tg_tensor tg_less_equal_at(tg_site site, tg_operand a, tg_operand b) {
    return binary_op(site, "less_equal", TG_OP_LESS_EQUAL, a, b, TG_TAKES_NUMBERS);
}
tg_tensor tg_greater_at(tg_site site, tg_operand a, tg_operand b) { return reversed_op(site, "greater", TG_OP_LESS, a, b); }
tg_tensor tg_greater_equal_at(tg_site site, tg_operand a, tg_operand b) {
    return reversed_op(site, "greater_equal", TG_OP_LESS_EQUAL, a, b);
}
tg_tensor tg_equal_at(tg_site site, tg_operand a, tg_operand b) { return binary_op(site, "equal", TG_OP_EQUAL, a, b, TG_TAKES_ANY); }
tg_tensor tg_not_equal_at(tg_site site, tg_operand a, tg_operand b) {
    return binary_op(site, "not_equal", TG_OP_NOT_EQUAL, a, b, TG_TAKES_ANY);
}
tg_tensor tg_logical_and_at(tg_site site, tg_operand a, tg_operand b) {
    return binary_op(site, "logical_and", TG_OP_AND, a, b, TG_TAKES_BOOL);
}
tg_tensor tg_logical_or_at(tg_site site, tg_operand a, tg_operand b) {
    return binary_op(site, "logical_or", TG_OP_OR, a, b, TG_TAKES_BOOL);
}

/* i32 divided by the number 0 is an error of the program. f32 divided by 0 is as IEEE says. */
static bool enter_division(tg_call *call, tg_site site, const char *name, const tg_operand *a, const tg_operand *b, int32_t *left,
                           int32_t *right) {
    if (!enter_pair(call, site, name, a, b, TG_TAKES_NUMBERS, left, right)) return false;
    if (!b->is_number || b->number != 0.0 || tg_node_dtype(call, *left) != TG_I32) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, left, 1, "division of the integers %s by 0", TG_LABEL(call, *left));
    return false;
}

tg_tensor tg_div_at(tg_site site, tg_operand a, tg_operand b) {
    tg_call call;
    int32_t left = 0, right = 0;
    if (!enter_division(&call, site, "div", &a, &b, &left, &right)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_DIV, left, right));
}

/* Whether the quotient of two integers was not rounded down: the remainder is not 0 and its sign
 * differs from the divisor's. Never for a divisor of 0. */
static int32_t is_off_by_one(const tg_call *call, int32_t remainder, int32_t divisor) {
    tg_graph *g = call->graph;
    int32_t zero = tg_ir_const(g, TG_SCALAR, TG_I32, 0.0);
    int32_t both = tg_ir_binary(g, TG_OP_NOT_EQUAL, remainder, zero);
    both = tg_ir_binary(g, TG_OP_AND, both, tg_ir_binary(g, TG_OP_NOT_EQUAL, divisor, zero));
    int32_t below = tg_ir_binary(g, TG_OP_LESS, remainder, zero);
    return tg_ir_binary(g, TG_OP_AND, both, tg_ir_binary(g, TG_OP_NOT_EQUAL, below, tg_ir_binary(g, TG_OP_LESS, divisor, zero)));
}

/* The quotient of two integers, rounded towards 0; *remainder: a - b quotient. */
static int32_t divide_integers(const tg_call *call, int32_t a, int32_t b, int32_t *remainder) {
    tg_graph *g = call->graph;
    int32_t quotient = tg_ir_binary(g, TG_OP_DIV, a, b);
    *remainder = tg_ir_binary(g, TG_OP_SUB, a, tg_ir_binary(g, TG_OP_MUL, b, quotient));
    return quotient;
}

tg_tensor tg_floor_div_at(tg_site site, tg_operand a, tg_operand b) {
    tg_call call;
    int32_t left = 0, right = 0, remainder = 0;
    if (!enter_division(&call, site, "floor_div", &a, &b, &left, &right)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    if (tg_node_dtype(&call, left) == TG_F32) return tg_call_result(&call, tg_ir_floor_quotient(g, left, right));
    int32_t quotient = divide_integers(&call, left, right, &remainder);
    int32_t down = tg_ir_binary(g, TG_OP_SUB, quotient, tg_ir_const(g, TG_SCALAR, TG_I32, 1.0));
    return tg_call_result(&call, tg_ir_select(g, is_off_by_one(&call, remainder, right), down, quotient));
}

tg_tensor tg_mod_at(tg_site site, tg_operand a, tg_operand b) {
    tg_call call;
    int32_t left = 0, right = 0, remainder = 0;
    if (!enter_division(&call, site, "mod", &a, &b, &left, &right)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    if (tg_node_dtype(&call, left) == TG_F32) return tg_call_result(&call, tg_ir_binary(g, TG_OP_MOD, left, right));
    if (divide_integers(&call, left, right, &remainder) == 0 || remainder == 0) return tg_call_poison(&call);
    int32_t turned = tg_ir_binary(g, TG_OP_ADD, remainder, right);
    return tg_call_result(&call, tg_ir_select(g, is_off_by_one(&call, remainder, right), turned, remainder));
}

tg_tensor tg_clamp_at(tg_site site, tg_tensor x, double lo, double hi) {
    tg_call call;
    if (!enter_unary(&call, site, "clamp", x, TG_TAKES_NUMBERS)) return tg_call_poison(&call);
    if (!(lo <= hi)) /* refuses NaN bounds too */
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "the lower bound %.9g is not <= the upper bound %.9g: %s", lo, hi,
                            TG_LABEL(&call, x.id));
    tg_dtype dtype = tg_node_dtype(&call, x.id);
    tg_operand low = tg_operand_number_(lo), high = tg_operand_number_(hi);
    int32_t low_node = operand_node(&call, &low, dtype, x.id);
    int32_t high_node = low_node != 0 ? operand_node(&call, &high, dtype, x.id) : 0;
    if (high_node == 0) return tg_call_poison(&call);
    int32_t raised = tg_ir_binary(call.graph, TG_OP_MAX, x.id, low_node);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_MIN, raised, high_node));
}

/* ---------------------------------------------------------------- selection, cast */

static bool check_selection(const tg_call *call, int32_t condition, int32_t a, int32_t b) {
    int32_t ids[3] = {condition, a, b};
    tg_shape branches, out;
    if (tg_node_dtype(call, a) != tg_node_dtype(call, b)) {
        tg_call_fail(call, TG_ERROR_DTYPE, ids + 1, 2, "dtypes differ: %s and %s (%s != %s)", TG_LABEL(call, a), TG_LABEL(call, b),
                     tg_dtype_name(tg_node_dtype(call, a)), tg_dtype_name(tg_node_dtype(call, b)));
        return false;
    }
    if (tg_shape_broadcast(tg_node_shape(call, a), tg_node_shape(call, b), &branches) &&
        tg_shape_broadcast(tg_node_shape(call, condition), branches, &out))
        return tg_call_shape_ok(call, out);
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 3, "shapes do not broadcast: %s ? %s : %s", TG_LABEL(call, condition), TG_LABEL(call, a),
                 TG_LABEL(call, b));
    return false;
}

tg_tensor tg_where_at(tg_site site, tg_tensor condition, tg_operand a, tg_operand b) {
    tg_call call;
    tg_operand operands[3] = {tg_operand_tensor_(condition), a, b};
    if (!enter_operands(&call, site, "where", operands, 3)) return tg_call_poison(&call);
    if (!tg_call_takes(&call, condition.id, TG_TAKES_BOOL)) return tg_call_poison(&call);
    int32_t beside = 0; /* if both are numbers, the dtype is f32 */
    if (!a.is_number) beside = a.tensor.id;
    else if (!b.is_number) beside = b.tensor.id;
    tg_dtype dtype = beside != 0 ? tg_node_dtype(&call, beside) : TG_F32;
    int32_t yes = operand_node(&call, &a, dtype, beside);
    int32_t no = yes != 0 ? operand_node(&call, &b, dtype, beside) : 0;
    if (no == 0 || !check_selection(&call, condition.id, yes, no)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_select(call.graph, condition.id, yes, no));
}

tg_tensor tg_cast_at(tg_site site, tg_tensor x, tg_dtype dtype) {
    tg_call call;
    if (!enter_unary(&call, site, "cast", x, TG_TAKES_ANY) || !tg_call_dtype_ok(&call, dtype)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_cast(call.graph, x.id, dtype));
}
