/* constant: computes elementwise operations whose operands are one number everywhere. f32 results
 * are rounded to f32 and i32 results wrap to 32 bits, exactly as the executors do. Must not know
 * views or identities. */
#include "pass/rewrite.h"

#include <math.h>

static double constant_wrap(int64_t value) {
    uint32_t low = (uint32_t)((uint64_t)value & 0xffffffffu);
    return low > 0x7fffffffu ? (double)low - 4294967296.0 : (double)low;
}

static double constant_saturate(double value) {
    if (value != value) return 0.0;
    if (value >= 2147483647.0) return 2147483647.0;
    if (value <= -2147483648.0) return -2147483648.0;
    return trunc(value) + 0.0;
}

double tg_pass_round(tg_dtype dtype, double value) {
    if (dtype == TG_F32) return (double)(float)value;
    if (dtype == TG_I32) return constant_saturate(value);
    return value != 0.0 ? 1.0 : 0.0;
}

static bool constant_unary_i32(tg_op op, double x, double *y) {
    switch (op) {
    case TG_OP_NEG: *y = constant_wrap(-(int64_t)x); return true;
    case TG_OP_ABS: *y = constant_wrap(x < 0 ? -(int64_t)x : (int64_t)x); return true;
    case TG_OP_SIGN: *y = x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; return true;
    default: return false;
    }
}

static double constant_sigmoid(double x) { return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x)); }

static double constant_softplus(double x) { return x != x ? x : (x > 0 ? x : 0.0) + log1p(exp(-fabs(x))); }

static bool constant_unary_f32(tg_op op, double x, double *y) {
    switch (op) {
    case TG_OP_NEG: *y = -x; return true;
    case TG_OP_ABS: *y = fabs(x); return true;
    case TG_OP_SIGN: *y = x > 0 ? 1.0 : x < 0 ? -1.0 : x != x ? x : 0.0; return true;
    case TG_OP_SQRT: *y = sqrt(x); return true;
    case TG_OP_RSQRT: *y = 1.0 / sqrt(x); return true;
    case TG_OP_RECIPROCAL: *y = 1.0 / x; return true;
    case TG_OP_EXP: *y = exp(x); return true;
    case TG_OP_LOG: *y = log(x); return true;
    case TG_OP_SIN: *y = sin(x); return true;
    case TG_OP_COS: *y = cos(x); return true;
    case TG_OP_TANH: *y = tanh(x); return true;
    case TG_OP_ERF: *y = erf(x); return true;
    case TG_OP_SIGMOID: *y = constant_sigmoid(x); return true;
    case TG_OP_SOFTPLUS: *y = constant_softplus(x); return true;
    case TG_OP_EXPM1: *y = expm1(x); return true;
    case TG_OP_LOG1P: *y = log1p(x); return true;
    case TG_OP_FLOOR: *y = floor(x); return true;
    case TG_OP_CEIL: *y = ceil(x); return true;
    case TG_OP_ROUND: *y = rint(x); return true;
    case TG_OP_RELU: *y = x > 0 || x != x ? x : 0.0; return true;
    default: return false;
    }
}

static bool constant_binary_i32(tg_op op, double a, double b, double *y) {
    int64_t x = (int64_t)a, z = (int64_t)b;
    switch (op) {
    case TG_OP_ADD: *y = constant_wrap(x + z); return true;
    case TG_OP_SUB: *y = constant_wrap(x - z); return true;
    case TG_OP_MUL: *y = constant_wrap(x * z); return true;
    case TG_OP_DIV: *y = z == 0 ? 0.0 : constant_wrap(x / z); return true;
    case TG_OP_MIN: *y = a <= b ? a : b; return true;
    case TG_OP_MAX: *y = a >= b ? a : b; return true;
    default: return false;
    }
}

/* The remainder as f32 has it: a result that rounds up to the divisor becomes the number before
 * it. */
static double constant_mod(double a, double b) {
    const float size = (float)fabs(b);
    float rest = (float)fmod(fabs(a), (double)size);
    if (rest > 0 && signbit(a) != signbit(b)) {
        const float turned = size - rest;
        rest = turned == size && isfinite(size) ? nextafterf(size, 0.0f) : turned;
    }
    return copysign((double)rest, b);
}

static bool constant_binary_f32(tg_op op, double a, double b, double *y) {
    switch (op) {
    case TG_OP_ADD: *y = a + b; return true;
    case TG_OP_SUB: *y = a - b; return true;
    case TG_OP_MUL: *y = a * b; return true;
    case TG_OP_DIV: *y = a / b; return true;
    case TG_OP_POW: *y = pow(a, b); return true;
    case TG_OP_MOD: *y = constant_mod(a, b); return true;
    case TG_OP_MIN: *y = a != a || a <= b ? a : b; return true;
    case TG_OP_MAX: *y = a != a || a >= b ? a : b; return true;
    default: return false;
    }
}

/* Comparisons and logic: the same for all dtypes. */
static bool constant_truth(tg_op op, double a, double b, double *y) {
    bool truth;
    switch (op) {
    case TG_OP_LESS: truth = a < b; break;
    case TG_OP_LESS_EQUAL: truth = a <= b; break;
    case TG_OP_EQUAL: truth = a == b; break;
    case TG_OP_NOT_EQUAL: truth = a != b; break;
    case TG_OP_AND: truth = a != 0.0 && b != 0.0; break;
    case TG_OP_OR: truth = a != 0.0 || b != 0.0; break;
    default: return false;
    }
    *y = truth ? 1.0 : 0.0;
    return true;
}

static bool constant_number(const tg_node *draft, tg_dtype from, const double *v, double *y) {
    if (draft->op == TG_OP_NOT) {
        *y = v[0] != 0.0 ? 0.0 : 1.0;
        return true;
    }
    if (draft->op == TG_OP_SELECT) {
        *y = v[0] != 0.0 ? v[1] : v[2];
        return true;
    }
    if (draft->op == TG_OP_CAST) {
        *y = v[0];
        return true;
    }
    if (draft->input_count == 1) return from == TG_I32 ? constant_unary_i32(draft->op, v[0], y) : constant_unary_f32(draft->op, v[0], y);
    if (constant_truth(draft->op, v[0], v[1], y)) return true;
    return from == TG_I32 ? constant_binary_i32(draft->op, v[0], v[1], y) : constant_binary_f32(draft->op, v[0], v[1], y);
}

int32_t tg_pass_constant(tg_rewrite *r, const tg_node *draft) {
    double values[3] = {0, 0, 0}, result = 0;
    if (draft->input_count < 1 || draft->input_count > 3) return 0;
    for (int32_t i = 0; i < draft->input_count; i++)
        if (!tg_pass_splat(r, draft->inputs[i], &values[i])) return 0;
    if (!constant_number(draft, tg_rewrite_node(r, draft->inputs[0])->dtype, values, &result)) return 0;
    return tg_pass_const(r, draft->shape, draft->dtype, tg_pass_round(draft->dtype, result));
}
