/* Identities of algebra that do not hold for floats (x 0 of infinity, (x + 1e8) - 1e8) or that a
 * compiler may apply if it assumes that there is no NaN or infinity: each as one kernel, for every
 * pair of a list of values, against the CPU executor operation by operation. The test names a
 * driver that applies one, and the identity. */
#include "support.h"

#include <math.h>
#include <string.h>

#define NANF ((double)NAN)
#define INF ((double)INFINITY)

/* ---------------------------------------------------------------- operands: all pairs of these */

/* No product, quotient or reciprocal of these is below the least normal float, where devices may take 0, and not 0 anyway. */
static const double reals[] = {INF, -INF,       NANF, 0,     -0.0,  1,      2, -3, 7.25, 1.00000011920928955,
                               1e8, -123456789, 5e36, -2e20, 1e-25, -3e-29, .1};
static const double wholes[] = {0, 1, -1, 2, 7, -5, 2147483647, -2147483647, -2147483648.0, 65536, 1073741824, -46341};
#define REALS SUPPORT_COUNT(reals)
#define WHOLES SUPPORT_COUNT(wholes)

/* x runs slowly, y fast. */
static void fill(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)user;
    (void)shape;
    const double *values = dtype == TG_F32 ? reals : wholes;
    const int64_t n = dtype == TG_F32 ? REALS : WHOLES;
    for (int64_t i = 0; i < count; i++) out[i] = values[(name[0] == 'x' ? i / n : i) % n];
}

/* ---------------------------------------------------------------- the table */

typedef struct identity {
    const char *name;
    tg_dtype dtype;  /* of x and y */
    double relative; /* division may be off by 2.5 units, functions by more */
    tg_tensor (*build)(tg_tensor x, tg_tensor y);
} identity;

#define IDENTITIES(ROW) \
  /* one operand is a number that has no effect, or takes all */ \
  ROW(f32, times_zero, 0, "x * 0", tg_mul(x, 0.0)) \
  ROW(f32, zero_times, 0, "0 * x", tg_mul(0.0, x)) \
  ROW(f32, zero_over, 0, "0 / x", tg_div(0.0, x)) \
  ROW(f32, over_zero, 0, "x / 0", tg_div(x, 0.0)) \
  ROW(f32, plus_zero, 0, "x + 0", tg_add(x, 0.0)) \
  ROW(f32, sign_of_plus_zero, 0, "1 / (x + 0)", tg_div(1.0, tg_add(x, 0.0))) \
  ROW(f32, sign_of_zero_minus, 1e-6, "1 / (0 - x)", tg_div(1.0, tg_sub(0.0, x))) \
  ROW(f32, sign_of_times_zero, 1e-6, "1 / (x * 0)", tg_div(1.0, tg_mul(x, 0.0))) \
  ROW(f32, sign_of_negative, 1e-6, "1 / -x", tg_div(1.0, tg_neg(x))) \
  ROW(f32, sign_of_product, 1e-6, "1 / (-x * y)", tg_div(1.0, tg_mul(tg_neg(x), y))) \
  ROW(f32, minus_zero, 0, "x - 0", tg_sub(x, 0.0)) \
  ROW(f32, times_one, 0, "x * 1", tg_mul(x, 1.0)) \
  ROW(f32, over_one, 0, "x / 1", tg_div(x, 1.0)) \
  ROW(f32, times_minus_one, 0, "x * -1", tg_mul(x, -1.0)) \
  ROW(f32, plus_infinity, 0, "x + inf", tg_add(x, INF)) \
  ROW(f32, times_infinity, 0, "x * inf", tg_mul(x, INF)) \
  ROW(f32, over_infinity, 0, "x / inf", tg_div(x, INF)) \
  ROW(f32, plus_nan, 0, "x + nan", tg_add(x, NANF)) \
  ROW(f32, zero_times_sum, 0, "y + 0 * (x - y)", tg_add(y, tg_mul(0.0, tg_sub(x, y)))) \
  ROW(f32, zero_times_exp, 0, "y + 0 * exp(x)", tg_add(y, tg_mul(0.0, tg_exp(x)))) \
  /* the same operand twice */ \
  ROW(f32, difference_of_self, 0, "x - x", tg_sub(x, x)) \
  ROW(f32, sum_with_negative, 0, "-x + x", tg_add(tg_neg(x), x)) \
  ROW(f32, quotient_of_self, 1e-6, "x / x", tg_div(x, x)) \
  ROW(f32, equals_self, 0, "x == x", tg_equal(x, x)) \
  ROW(f32, differs_from_self, 0, "x != x", tg_not_equal(x, x)) \
  ROW(f32, less_than_self, 0, "x < x", tg_less(x, x)) \
  ROW(f32, no_more_than_self, 0, "x <= x", tg_less_equal(x, x)) \
  ROW(f32, difference_is_zero, 0, "x - y == 0", tg_equal(tg_sub(x, y), 0.0)) \
  ROW(f32, quotient_is_one, 0, "x / y > 1", tg_greater(tg_div(x, y), 1.0)) \
  ROW(f32, not_less, 0, "!(x < y)", tg_logical_not(tg_less(x, y))) \
  ROW(f32, less_or_more, 0, "(x < y) | (x > y)", tg_logical_or(tg_less(x, y), tg_greater(x, y))) \
  ROW(f32, less_or_no_less, 0, "(x < y) | (x >= y)", tg_logical_or(tg_less(x, y), tg_greater_equal(x, y))) \
  ROW(f32, square_not_negative, 0, "x x >= 0", tg_greater_equal(tg_mul(x, x), 0.0)) \
  ROW(f32, size_not_negative, 0, "|x| >= 0", tg_greater_equal(tg_abs(x), 0.0)) \
  ROW(f32, no_larger_than_infinity, 0, "x <= inf", tg_less_equal(x, INF)) \
  ROW(f32, difference_of_products, 0, "x y - x y", tg_sub(tg_mul(x, y), tg_mul(y, x))) \
  ROW(f32, products_cancel, 0, "x y + x (-y)", tg_add(tg_mul(x, y), tg_mul(x, tg_neg(y)))) \
  ROW(f32, common_factor, 0, "(x * 1e30 + x * -1e30) * 0", tg_mul(tg_add(tg_mul(x, 1e30), tg_mul(x, -1e30)), 0.0)) \
  ROW(f32, common_operand_factor, 0, "y * 3e19 + y * x", tg_less(tg_add(tg_mul(y, 3e19), tg_mul(y, x)), INF)) \
  /* sums in another order */ \
  ROW(f32, sum_less_number, 0, "(x + 1e8) - 1e8", tg_sub(tg_add(x, 1e8), 1e8)) \
  ROW(f32, number_plus_sum_less_number, 0, "-1e8 + (1e8 + x)", tg_add(-1e8, tg_add(1e8, x))) \
  ROW(f32, difference_plus_number, 0, "(x - 1e8) + 1e8", tg_add(tg_sub(x, 1e8), 1e8)) \
  ROW(f32, number_less_difference, 0, "1e8 - (1e8 - x)", tg_sub(1e8, tg_sub(1e8, x))) \
  ROW(f32, difference_plus_other, 0, "(1e8 - x) + (y - 1e8)", tg_add(tg_sub(1e8, x), tg_sub(y, 1e8))) \
  ROW(f32, two_numbers, 0, "(x + 3e38) + 3e38 - 3e38", tg_sub(tg_add(tg_add(x, 3e38), 3e38), 3e38)) \
  ROW(f32, small_numbers, 0, "x + .25 + 3e-8 + 3e-8", tg_add(tg_add(tg_add(x, .25), 3e-8), 3e-8)) \
  ROW(f32, sum_less_operand, 0, "(x + y) - y", tg_sub(tg_add(x, y), y)) \
  ROW(f32, sum_less_first, 0, "(x + y) - x", tg_sub(tg_add(x, y), x)) \
  ROW(f32, operand_less_sum, 0, "x - (x + y)", tg_sub(x, tg_add(x, y))) \
  ROW(f32, difference_plus_operand, 0, "(x - y) + y", tg_add(tg_sub(x, y), y)) \
  ROW(f32, operand_plus_difference, 0, "x + (y - x)", tg_add(x, tg_sub(y, x))) \
  ROW(f32, operand_less_difference, 0, "x - (x - y)", tg_sub(x, tg_sub(x, y))) \
  ROW(f32, difference_less_operand, 0, "(x - y) - x", tg_sub(tg_sub(x, y), x)) \
  ROW(f32, negative_plus_sum, 0, "-x + (x + y)", tg_add(tg_neg(x), tg_add(x, y))) \
  ROW(f32, error_of_sum, 0, "(x - ((x + y) - ((x + y) - x))) + (y - ((x + y) - x))", \
      tg_add(tg_sub(x, tg_sub(tg_add(x, y), tg_sub(tg_add(x, y), x))), tg_sub(y, tg_sub(tg_add(x, y), x)))) \
  ROW(f32, deep_sum, 0, "((x + y) + .1) - y", tg_sub(tg_add(tg_add(x, y), .1), y)) \
  ROW(f32, sums_that_cancel, 0, "(x + y) - (y + x + 1)", tg_sub(tg_add(x, y), tg_add(tg_add(y, x), 1.0))) \
  ROW(f32, doubled, 0, "(x + x) - x", tg_sub(tg_add(x, x), x)) \
  /* products in another order */ \
  ROW(f32, times_two_numbers, 0, "(x * 1e30) * 1e-30", tg_mul(tg_mul(x, 1e30), 1e-30)) \
  ROW(f32, times_over_number, 1e-6, "(x * 1e30) / 1e30", tg_div(tg_mul(x, 1e30), 1e30)) \
  ROW(f32, over_times_number, 1e-6, "(x / 1e-30) * 1e-30", tg_mul(tg_div(x, 1e-30), 1e-30)) \
  ROW(f32, over_two_numbers, 1e-6, "(x / 1e-30) / 1e30", tg_div(tg_div(x, 1e-30), 1e30)) \
  ROW(f32, number_over_quotient, 1e-6, "3 / (3 / x)", tg_div(3.0, tg_div(3.0, x))) \
  ROW(f32, number_over_product, 1e-6, "1e-30 / (x * 1e-30)", tg_div(1e-30, tg_mul(x, 1e-30))) \
  ROW(f32, quotient_by_large_number, 1e-6, "(x + 1e9) / 3e38 * 1e10", tg_mul(tg_div(tg_add(x, 1e9), 3e38), 1e10)) \
  ROW(f32, times_over_operand, 1e-6, "(x * y) / y", tg_div(tg_mul(x, y), y)) \
  ROW(f32, times_over_first, 1e-6, "(x * y) / x", tg_div(tg_mul(x, y), x)) \
  ROW(f32, over_times_operand, 1e-6, "(x / y) * y", tg_mul(tg_div(x, y), y)) \
  ROW(f32, operand_times_quotient, 1e-6, "y * (x / y)", tg_mul(y, tg_div(x, y))) \
  ROW(f32, operand_over_product, 1e-6, "x / (x * y)", tg_div(x, tg_mul(x, y))) \
  ROW(f32, operand_over_quotient, 1e-6, "x / (x / y)", tg_div(x, tg_div(x, y))) \
  ROW(f32, times_reciprocal, 1e-6, "x * (1 / x)", tg_mul(x, tg_reciprocal(x))) \
  ROW(f32, reciprocal_twice, 1e-6, "1 / (1 / x)", tg_reciprocal(tg_reciprocal(x))) \
  ROW(f32, deep_product, 1e-6, "((x * y) * 3) / y", tg_div(tg_mul(tg_mul(x, y), 3.0), y)) \
  ROW(f32, square_over_self, 1e-6, "x x / x", tg_div(tg_mul(x, x), x)) \
  ROW(f32, negatives_multiply, 0, "-x * -y", tg_mul(tg_neg(x), tg_neg(y))) \
  ROW(f32, negative_number, 0, "-x * 0", tg_mul(tg_neg(x), 0.0)) \
  /* inverse functions */ \
  ROW(f32, square_of_root, 1e-6, "sqrt(x)^2", tg_mul(tg_sqrt(x), tg_sqrt(x))) \
  ROW(f32, root_of_square, 1e-6, "sqrt(x x)", tg_sqrt(tg_mul(x, x))) \
  ROW(f32, root_of_product, 1e-6, "sqrt(x) sqrt(y)", tg_mul(tg_sqrt(x), tg_sqrt(y))) \
  ROW(f32, reciprocal_of_root, 1e-6, "1 / sqrt(x)", tg_reciprocal(tg_sqrt(x))) \
  ROW(f32, rsqrt_squared, 1e-6, "x rsqrt(x) rsqrt(x)", tg_mul(tg_mul(x, tg_rsqrt(x)), tg_rsqrt(x))) \
  ROW(f32, exp_of_log, 2e-5, "exp(log(x))", tg_exp(tg_log(x))) \
  ROW(f32, log_of_exp, 1e-5, "log(exp(x))", tg_log(tg_exp(x))) \
  ROW(f32, exp_times_exp, 1e-5, "exp(x) exp(-x)", tg_mul(tg_exp(x), tg_exp(tg_neg(x)))) \
  ROW(f32, log_of_product, 1e-5, "log(x x)", tg_log(tg_mul(x, x))) \
  ROW(f32, log_of_square, 1e-5, "log(sqrt(x))", tg_log(tg_sqrt(x))) \
  ROW(f32, power_of_zero, 0, "x^0", tg_pow(x, 0.0)) \
  ROW(f32, power_of_one, 1e-5, "x^1", tg_pow(x, 1.0)) \
  ROW(f32, power_of_two, 1e-5, "x^2", tg_pow(x, 2.0)) \
  ROW(f32, power_of_half, 1e-5, "x^.5", tg_pow(x, .5)) \
  ROW(f32, power_of_minus_one, 1e-5, "x^-1", tg_pow(x, -1.0)) \
  ROW(f32, power_from_one, 0, "1^x", tg_pow(1.0, x)) \
  ROW(f32, power_from_zero, 0, "0^x", tg_pow(0.0, x)) \
  ROW(f32, power, 2e-5, "x^y", tg_pow(x, y)) \
  ROW(f32, negative_twice, 0, "-(-x)", tg_neg(tg_neg(x))) \
  ROW(f32, negative_difference, 0, "-(x - y)", tg_neg(tg_sub(x, y))) \
  ROW(f32, size_of_negative, 0, "|-x|", tg_abs(tg_neg(x))) \
  ROW(f32, size_of_product, 0, "|x| |y|", tg_mul(tg_abs(x), tg_abs(y))) \
  ROW(f32, sign_times_size, 0, "sign(x) |x|", tg_mul(tg_sign(x), tg_abs(x))) \
  ROW(f32, fraction, 0, "x - floor(x)", tg_sub(x, tg_floor(x))) \
  ROW(f32, ceil_of_negative, 0, "ceil(-x) + floor(x)", tg_add(tg_ceil(tg_neg(x)), tg_floor(x))) \
  ROW(f32, rounded, 0, "round(x)", tg_round(x)) \
  /* choices */ \
  ROW(f32, least, 0, "min(x, y)", tg_minimum(x, y)) \
  ROW(f32, largest, 0, "max(x, y)", tg_maximum(x, y)) \
  ROW(f32, least_of_self, 0, "min(x, x)", tg_minimum(x, x)) \
  ROW(f32, largest_of_nan, 0, "max(x, nan)", tg_maximum(x, NANF)) \
  ROW(f32, largest_of_infinity, 0, "max(x, -inf)", tg_maximum(x, -INF)) \
  ROW(f32, least_and_largest, 0, "min(x, y) + max(x, y)", tg_add(tg_minimum(x, y), tg_maximum(x, y))) \
  ROW(f32, clamped, 0, "clamp(x, -1, 1)", tg_clamp(x, -1.0, 1.0)) \
  ROW(f32, clamped_twice, 0, "max(min(x, 2), -2)", tg_maximum(tg_minimum(x, 2.0), -2.0)) \
  ROW(f32, relu, 0, "relu(x)", tg_relu(x)) \
  ROW(f32, sign, 0, "sign(x)", tg_sign(x)) \
  ROW(f32, smaller_one, 0, "x < y ? x : y", tg_where(tg_less(x, y), x, y)) \
  ROW(f32, larger_one, 0, "x <= y ? y : x", tg_where(tg_less_equal(x, y), y, x)) \
  ROW(f32, positive_one, 0, "x > 0 ? x : 0", tg_where(tg_greater(x, 0.0), x, 0.0)) \
  ROW(f32, equal_one, 0, "x == y ? x : y", tg_where(tg_equal(x, y), x, y)) \
  ROW(f32, zero_one, 0, "1 / (x == 0 ? 0 : x)", tg_div(1.0, tg_where(tg_equal(x, 0.0), 0.0, x))) \
  ROW(f32, size_by_choice, 0, "x < 0 ? -x : x", tg_where(tg_less(x, 0.0), tg_neg(x), x)) \
  ROW(f32, nan_by_choice, 0, "x == x ? x : 3", tg_where(tg_equal(x, x), x, 3.0)) \
  ROW(f32, number_by_choice, 0, "(x > y) * x", tg_mul(tg_cast(tg_greater(x, y), TG_F32), x)) \
  ROW(f32, masked, 0, "x > y ? 0 : x * 0", tg_where(tg_greater(x, y), 0.0, tg_mul(x, 0.0))) \
  ROW(f32, to_whole, 0, "i32(x)", tg_cast(x, TG_I32)) \
  ROW(f32, to_whole_and_back, 0, "f32(i32(x)) - x", tg_sub(tg_cast(tg_cast(x, TG_I32), TG_F32), x)) \
  ROW(f32, to_bool, 0, "bool(x)", tg_cast(x, TG_BOOL)) \
  ROW(f32, remainder, 1e-6, "mod(x, y) - mod(x, y)", tg_sub(tg_mod(x, 3.0), tg_mod(x, 3.0))) \
  /* over rows */ \
  ROW(f32, zero_times_mean, 1e-6, "1 + 0 * mean(exp(x))", tg_add(1.0, tg_mul(0.0, tg_mean(tg_exp(x), TG_ALL)))) \
  ROW(f32, sum_of_zeros, 0, "sum(x * 0)", tg_sum(tg_mul(tg_reshape(x, TG_SHAPE(REALS, REALS)), 0.0), TG_AXES(1))) \
  ROW(f32, sum_less_sum, 0, "sum(y) - sum(y)", tg_sub(tg_sum(y, TG_ALL), tg_sum(y, TG_ALL))) \
  ROW(f32, largest_of_row, 0, "max of rows", tg_max(tg_reshape(tg_sub(x, y), TG_SHAPE(REALS, REALS)), TG_AXES(1))) \
  ROW(f32, largest_at, 0, "argmax of rows", tg_argmax(tg_reshape(tg_sub(x, y), TG_SHAPE(REALS, REALS)), 1)) \
  ROW(f32, product_with_zeros, 0, "x matmul 0", \
      tg_matmul(tg_reshape(x, TG_SHAPE(REALS, REALS)), tg_full(x.graph, TG_SHAPE(REALS, 3), 0.0, TG_F32))) \
  ROW(f32, product_times_zero, 0, "(x matmul y) * 0", \
      tg_mul(tg_matmul(tg_reshape(x, TG_SHAPE(REALS, REALS)), tg_reshape(y, TG_SHAPE(REALS, REALS))), 0.0)) \
  /* integers wrap; a quotient by 0 is 0 */ \
  ROW(i32, whole_sum_less_number, 0, "(x + 2^31-1) - (2^31-1)", tg_sub(tg_add(x, 2147483647.0), 2147483647.0)) \
  ROW(i32, whole_sum_more, 0, "x + 1 > x", tg_greater(tg_add(x, 1.0), x)) \
  ROW(i32, whole_difference_less, 0, "x - y < 0", tg_less(tg_sub(x, y), 0.0)) \
  ROW(i32, whole_double_half, 0, "(x * 2) / 2", tg_div(tg_mul(x, 2.0), 2.0)) \
  ROW(i32, whole_product_over, 0, "(x * y) / y", tg_div(tg_mul(x, y), y)) \
  ROW(i32, whole_quotient, 0, "x / y", tg_div(x, y)) \
  ROW(i32, whole_quotient_by_one, 0, "x / -1", tg_div(x, -1.0)) \
  ROW(i32, whole_quotient_of_self, 0, "x / x", tg_div(x, x)) \
  ROW(i32, whole_remainder, 0, "mod(x, y)", tg_mod(x, y)) \
  ROW(i32, whole_floor_div, 0, "floor_div(x, y)", tg_floor_div(x, y)) \
  ROW(i32, whole_negative, 0, "-x", tg_neg(x)) \
  ROW(i32, whole_negative_positive, 0, "-x > 0", tg_greater(tg_neg(x), 0.0)) \
  ROW(i32, whole_size, 0, "|x|", tg_abs(x)) \
  ROW(i32, whole_size_not_negative, 0, "|x| >= 0", tg_greater_equal(tg_abs(x), 0.0)) \
  ROW(i32, whole_sign, 0, "sign(x)", tg_sign(x)) \
  ROW(i32, whole_least, 0, "min(x, -y)", tg_minimum(x, tg_neg(y))) \
  ROW(i32, whole_largest, 0, "max(x, -y)", tg_maximum(x, tg_neg(y))) \
  ROW(i32, whole_least_number, 0, "max(-2^31, -x)", tg_maximum(-2147483648.0, tg_neg(x))) \
  ROW(i32, whole_square, 0, "x x >= 0", tg_greater_equal(tg_mul(x, x), 0.0)) \
  ROW(i32, whole_clamped, 0, "clamp(x, -7, 9)", tg_clamp(x, -7.0, 9.0)) \
  ROW(i32, whole_to_real, 0, "f32(x) - f32(y)", tg_sub(tg_cast(x, TG_F32), tg_cast(y, TG_F32))) \
  ROW(i32, whole_to_real_and_back, 0, "i32(f32(x)) - x", tg_sub(tg_cast(tg_cast(x, TG_F32), TG_I32), x)) \
  ROW(i32, whole_sum_of_rows, 0, "sum of rows", tg_sum(tg_reshape(tg_mul(x, y), TG_SHAPE(WHOLES, WHOLES)), TG_AXES(1))) \
  ROW(i32, whole_largest_of_row, 0, "max of rows", tg_max(tg_reshape(tg_sub(x, y), TG_SHAPE(WHOLES, WHOLES)), TG_AXES(1)))

#define BUILD(kind, label, tolerance, text, ...) \
  static tg_tensor build_##label(tg_tensor x, tg_tensor y) { \
    (void)x; \
    (void)y; \
    return __VA_ARGS__; \
  }
IDENTITIES(BUILD)
#define f32_type TG_F32
#define i32_type TG_I32
#define LIST(kind, label, tolerance, text, ...) {text, kind##_type, tolerance, build_##label},
static const identity identities[] = {IDENTITIES(LIST)};

static tg_tensor build(tg_graph *g, void *user) {
    const identity *row = user;
    const int64_t n = row->dtype == TG_F32 ? REALS * REALS : WHOLES * WHOLES;
    return row->build(tg_input(g, "x", TG_SHAPE(n), row->dtype), tg_input(g, "y", TG_SHAPE(n), row->dtype));
}

/* ---------------------------------------------------------------- running it */

static void print_difference(const identity *row, const char *way, const support_value *got, const support_value *want) {
    int printed = 0;
    for (int64_t i = 0; i < want->count && printed < 4; i++) {
        if (support_close(got->data[i], want->data[i], (support_tolerance){0, 0, row->relative})) continue;
        const bool all = row->dtype == TG_F32 ? want->count == REALS * REALS : want->count == WHOLES * WHOLES;
        const double *values = row->dtype == TG_F32 ? reals : wholes;
        const int64_t n = row->dtype == TG_F32 ? REALS : WHOLES;
        fprintf(stderr, "identity '%s', %s: [%lld]", row->name, way, (long long)i);
        if (all) fprintf(stderr, " (x = %.9g, y = %.9g)", values[i / n], values[i % n]);
        fprintf(stderr, " is %.9g, not %.9g\n", got->data[i], want->data[i]);
        printed++;
    }
}

static bool same(const identity *row, const char *way, const support_outputs *got, const support_outputs *want) {
    const support_value *g = support_outputs_find(got, "result"), *w = support_outputs_find(want, "result");
    bool good = g->count == w->count;
    for (int64_t i = 0; i < w->count && good; i++) good = support_close(g->data[i], w->data[i], (support_tolerance){0, 0, row->relative});
    if (!good) print_difference(row, way, g, w);
    return good;
}

static bool check(const identity *row) {
    static const support_options plain = {.no_fusion = true, .isa = "scalar"};
    static const struct {
        const char *name;
        support_options options;
    } ways[] = {{"fused", {0}}, {"operation by operation", {.no_fusion = true}}};
    const support_case c = {build, (void *)(uintptr_t)row, fill, NULL};
    support_outputs want, got;
    bool good = true;
    if (!support_run_cpu(&c, &plain, &want)) fail_msg("%s: %s", row->name, want.message);
    for (int way = 0; way < SUPPORT_COUNT(ways); way++) {
        if (!support_run_home(&c, &ways[way].options, &got)) fail_msg("%s: %s", row->name, got.message);
        good = same(row, ways[way].name, &got, &want) && good;
        support_outputs_free(&got);
    }
    support_outputs_free(&want);
    return good;
}

static void identities_are_not_applied(void **state) {
    (void)state;
    int bad = 0;
    for (int i = 0; i < SUPPORT_COUNT(identities); i++)
        if (!check(&identities[i])) bad++;
    if (bad > 0) fail_msg("%d of %d identities", bad, SUPPORT_COUNT(identities));
}

int main(void) {
    const int refused = support_home_refuses("test_identities");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {cmocka_unit_test(identities_are_not_applied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
