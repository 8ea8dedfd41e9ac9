/* Values and gradients of the composed operations, by definition or from f64: each on the
 * reference, on every variant of the CPU executor and on WebGPU (see numeric.h). Primitives are in
 * test_ops.c; differences, random cotangents and second derivatives in test_gradients.c. */
#include "numeric.h"

#include <float.h>
#include <math.h>

#define NANF ((double)NAN)
#define INF ((double)INFINITY)
static tg_tensor whole(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_I32); }

/* ---------------------------------------------------------------- elementwise */

BUILD(rounding, const tg_tensor x = in(g, "x", TG_SHAPE(10)); tg_capture("floor", tg_floor(x)); tg_capture("ceil", tg_ceil(x));
      return tg_round(x);)
TEST(rounding_has_halves_go_to_the_even_number, {
    CHECK(build_rounding, FEEDS(FED("x", -2.5, -1.5, -.5, .5, 1.5, 2.5, 3.25, 8388609, INF, NANF)),
          EXACTLY("result", -2, -2, 0, 0, 2, 2, 3, 8388609, INF, NANF), EXACTLY("floor", -3, -2, -1, 0, 1, 2, 3, 8388609, INF, NANF),
          EXACTLY("ceil", -2, -1, 0, 1, 2, 3, 4, 8388609, INF, NANF));
})

BUILD(near_zero, const tg_tensor x = in(g, "x", TG_SHAPE(6)); tg_capture("log1p", tg_log1p(x)); return tg_expm1(x);)
TEST(expm1_and_log1p_keep_their_digits_near_zero, {
    CHECK(build_near_zero, FEEDS(FED("x", 1e-10, -1e-10, 1e-4, -1e-4, 0, -1)),
          {"result", LIST(1e-10, -1e-10, 1.00005e-4, -9.9995e-5, 0, -.63212056), 1e-6, 0},
          {"log1p", LIST(1e-10, -1e-10, 9.9995e-5, -1.00005e-4, 0, -INF), 1e-6, 0});
})

BUILD_GRADIENT(log_sigmoid, TG_SHAPE(5), tg_log_sigmoid(x))
BUILD_GRADIENT(tan, TG_SHAPE(3), tg_tan(x))
TEST(log_sigmoid_and_tan, {
    CHECK(build_log_sigmoid, FEEDS(FED("x", -1000, -1, 0, 1, 1000), FED("cot", 1, 1, 2, 1, 1)),
          WANT("result", -1000, -1.3132617, -.6931472, -.3132617, 0), WANT("d0", 1, .7310586, 1, .2689414, 0));
    CHECK(build_tan, FEEDS(FED("x", 0, .5, -1.25), FED("cot", 1, 2, 1)), WANT("result", 0, .5463025, -3.0095697),
          WANT("d0", 1, 2.5968928, 10.0575097));
})

BUILD_GRADIENT(leaky_relu, TG_SHAPE(4), tg_leaky_relu(x, .25))
BUILD_GRADIENT(elu, TG_SHAPE(5), tg_elu(x, 2.0))
BUILD_GRADIENT(hard_sigmoid, TG_SHAPE(6), tg_hard_sigmoid(x))
BUILD_GRADIENT(hard_swish, TG_SHAPE(6), tg_hard_swish(x))
TEST(activations_in_pieces, {
    CHECK(build_leaky_relu, FEEDS(FED("x", -2, 0, 3, NANF), FED("cot", 1, 2, 3, 0)), EXACTLY("result", -.5, 0, 3, NANF),
          EXACTLY("d0", .25, .5, 3, 0));
    CHECK(build_elu, FEEDS(FED("x", -1, 0, 3, 1000, -1000), FED("cot", 1, 1, 1, 1, 1)), WANT("result", -1.2642411, 0, 3, 1000, -2),
          WANT("d0", .7357589, 2, 1, 1, 0));
    CHECK(build_hard_sigmoid, FEEDS(FED("x", -4, -3, 0, 1.5, 3, NANF), FED("cot", 1, 1, 1, 1, 1, 0)),
          WANT("result", 0, 0, .5, .75, 1, NANF), WANT("d0", 0, 1 / 12., 1 / 6., 1 / 6., 1 / 12., 0));
    CHECK(build_hard_swish, FEEDS(FED("x", -4, -3, 0, 1.5, 3, 4), FED("cot", 1, 1, 1, 1, 1, 1)), WANT("result", 0, 0, 0, 1.125, 3, 4),
          WANT("d0", 0, -.25, .5, 1, 1.25, 1));
})

BUILD(i32_quotients, const tg_tensor a = whole(g, "a", TG_SHAPE(9)), b = whole(g, "b", TG_SHAPE(9)); tg_capture("mod", tg_mod(a, b));
      return tg_floor_div(a, b);)
BUILD(f32_quotients, const tg_tensor a = in(g, "a", TG_SHAPE(6)), b = in(g, "b", TG_SHAPE(6)); tg_capture("mod", tg_mod(a, b));
      return tg_floor_div(a, b);)
BUILD_GRADIENT(mod, TG_SHAPE(3), tg_mod(x, 2.0))
BUILD_GRADIENT(mod_of, TG_SHAPE(3), tg_mod(7.0, x))
TEST(floor_division_and_remainder_take_the_sign_of_the_divisor, {
    const double least = -2147483648.0;
    CHECK(build_i32_quotients, FEEDS(FED("a", 7, -7, 7, -7, 6, 5, -5, least, 0), FED("b", 2, 2, -2, -2, 3, 0, 0, -1, 4)),
          EXACTLY("result", 3, -4, -4, 3, 2, 0, 0, least, 0), EXACTLY("mod", 1, 1, -1, -1, 0, 5, -5, 0, 0));
    CHECK(build_f32_quotients, FEEDS(FED("a", 7.5, -7.5, 7.5, -7.5, 6, 1), FED("b", 2, 2, -2, -2, 3, NANF)),
          EXACTLY("result", 3, -4, -4, 3, 2, NANF), EXACTLY("mod", 1.5, .5, -.5, -1.5, 0, NANF));
    CHECK(build_mod, FEEDS(FED("x", 3, -3.5, 5), FED("cot", 1, 2, 3)), EXACTLY("result", 1, .5, 1), EXACTLY("d0", 1, 2, 3));
    CHECK(build_mod_of, FEEDS(FED("x", 2, -2, 5), FED("cot", 1, 2, 3)), EXACTLY("result", 1, -1, 2), EXACTLY("d0", -3, 8, -3));
})

/* ---------------------------------------------------------------- reductions */

BUILD_GRADIENT(variance, TG_SHAPE(2, 3), tg_variance(x, TG_AXES(-1), .correction = 1))
BUILD_GRADIENT(std, TG_SHAPE(2, 3), tg_std(x, TG_AXES(1), .keepdims = true))
BUILD_GRADIENT(std_of_one, TG_SHAPE(1), tg_std(x, TG_ALL))
TEST(variance_and_std_with_gradient_0_at_constant_input, {
    CHECK(build_variance, FEEDS(FED("x", 1, 2, 6, 3, 3, 3), FED("cot", 1, 2)), WANT("result", 7, 0), WANT("d0", -2, -1, 3, 0, 0, 0));
    CHECK(build_std, FEEDS(FED("x", 1, 2, 6, 3, 3, 3), FED("cot", 1, 2)), WANT("result", 2.1602469, 0),
          WANT("d0", -.3086067, -.1543033, .46291, 0, 0, 0));
    CHECK(build_std, FEEDS(FED("x", 1, NANF, 6, 0, 0, 0), FED("cot", 1, 2)), WANT("result", NANF, 0));
    CHECK(build_std_of_one, FEEDS(FED("x", 7), FED("cot", 2)), EXACTLY("result", 0), EXACTLY("d0", 0));
})

BUILD_GRADIENT(norm, TG_SHAPE(2, 3), tg_norm(x, TG_AXES(1)))
BUILD_GRADIENT(norm_1, TG_SHAPE(3), tg_norm(x, TG_ALL, .ord = 1))
BUILD_GRADIENT(norm_largest, TG_SHAPE(3), tg_norm(x, TG_ALL, .ord = INF, .keepdims = true))
TEST(norms_with_gradient_0_at_zero, {
    CHECK(build_norm, FEEDS(FED("x", 0, 0, 0, 1, -2, 2), FED("cot", 5, 3)), WANT("result", 0, 3), WANT("d0", 0, 0, 0, 1, -2, 2));
    CHECK(build_norm_1, FEEDS(FED("x", 0, -2, 3), FED("cot", 2)), WANT("result", 5), WANT("d0", 0, -2, 2));
    CHECK(build_norm_largest, FEEDS(FED("x", 3, -3, 1), FED("cot", 2)), WANT("result", 3), WANT("d0", 1, -1, 0));
    CHECK(build_norm_largest, FEEDS(FED("x", 0, NANF, 1), FED("cot", 2)), WANT("result", NANF));
})

BUILD(any_all, const tg_tensor x = tg_input(g, "x", TG_SHAPE(3, 2), TG_BOOL); tg_capture("all", tg_all(x, TG_AXES(1)));
      tg_capture("none", tg_any(tg_narrow(x, 0, 2, 1), TG_ALL)); return tg_any(x, TG_AXES(-1), .keepdims = true);)
TEST(any_and_all,
     { CHECK(build_any_all, FEEDS(FED("x", 1, 0, 1, 1, 0, 0)), EXACTLY("result", 1, 1, 0), EXACTLY("all", 0, 1, 0), EXACTLY("none", 0)); })

BUILD_GRADIENT(prod, TG_SHAPE(4), tg_prod(x, TG_ALL))
BUILD_GRADIENT(prod_ends, TG_SHAPE(2, 2, 3), tg_prod(x, TG_AXES(0, -1), .keepdims = true))
BUILD(prod_i32, return tg_prod(tg_input(g, "x", TG_SHAPE(3, 3), TG_I32), TG_AXES(1));)
TEST(products_do_not_divide_by_what_they_multiply, {
    CHECK(build_prod, FEEDS(FED("x", 2, 0, 3, 4), FED("cot", 1)), EXACTLY("result", 0), EXACTLY("d0", 0, 24, 0, 0));
    CHECK(build_prod, FEEDS(FED("x", 2, 0, 3, 0), FED("cot", 1)), EXACTLY("result", 0), EXACTLY("d0", 0, 0, 0, 0));
    CHECK(build_prod_ends, FEEDS(FED("x", 1, 2, 3, 4, 5, 0, 1, 1, 2, -1, 2, 1), FED("cot", 1, 2)), EXACTLY("result", 12, 0),
          EXACTLY("d0", 12, 6, 4, 0, 0, -80, 12, 12, 6, 0, 0, 0));
    CHECK(build_prod_i32, FEEDS(FED("x", 2, 3, -4, 65536, 65536, 1, 46341, 46341, 1)), EXACTLY("result", -24, 0, -2147479015));
})

/* ---------------------------------------------------------------- scans */

BUILD(cumsum, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3)); tg_capture("exclusive", tg_cumsum(x, 1, .exclusive = true));
      tg_capture("reverse", tg_cumsum(x, -1, .reverse = true)); tg_capture("down", tg_cumsum(x, 0));
      tg_capture("both", tg_cumsum(x, 1, .exclusive = true, .reverse = true)); return tg_cumsum(x, 1);)
BUILD_GRADIENT(cumsum_of, TG_SHAPE(2, 3), tg_cumsum(x, 1))
BUILD_GRADIENT(cumsum_of_one, TG_SHAPE(2, 1), tg_cumsum(x, 1, .exclusive = true))
BUILD(cumsum_i32, return tg_cumsum(tg_input(g, "x", TG_SHAPE(3), TG_I32), 0);)
TEST(running_sums, {
    CHECK(build_cumsum, FEEDS(FED("x", 1, 2, 3, 4, 5, 6)), EXACTLY("result", 1, 3, 6, 4, 9, 15), EXACTLY("exclusive", 0, 1, 3, 0, 4, 9),
          EXACTLY("reverse", 6, 5, 3, 15, 11, 6), EXACTLY("down", 1, 2, 3, 5, 7, 9), EXACTLY("both", 5, 3, 0, 11, 6, 0));
    CHECK(build_cumsum_of, FEEDS(FED("x", 1, 2, 3, 4, 5, 6), FED("cot", 1, 2, 3, -1, 0, 1)), EXACTLY("d0", 6, 5, 3, 0, 1, 1));
    CHECK(build_cumsum_of, FEEDS(FED("x", 1, INF, 3, 4, NANF, -INF), FED("cot", 1, 2, 3, -1, 0, 1)),
          EXACTLY("result", 1, INF, INF, 4, NANF, NANF));
    CHECK(build_cumsum_of_one, FEEDS(FED("x", 1, 2), FED("cot", 1, 2)), EXACTLY("result", 0, 0), EXACTLY("d0", 0, 0));
    CHECK(build_cumsum_i32, FEEDS(FED("x", 2147483647, 1, -3)), EXACTLY("result", 2147483647, -2147483648.0, 2147483645));
})

/* (i mod 7) - 3 */
static tg_tensor sawtooth(tg_graph *g, int64_t n) { return tg_sub(tg_mod(tg_arange(g, n, TG_F32), 7.0), 3.0); }
BUILD(cumsum_129, tg_capture("reverse", tg_cumsum(sawtooth(g, 129), 0, .reverse = true)); return tg_cumsum(sawtooth(g, 129), 0);)
BUILD(cumsum_9000, const tg_tensor x = tg_add(sawtooth(g, 9000), in(g, "x", TG_SCALAR)); tg_tensor d;
      tg_grad(tg_sum_all(tg_cumsum(x, 0)), &x, 1, &d); tg_capture("d0", d); return tg_cumsum(x, 0);)
TEST(running_sums_over_several_levels_of_blocks, {
    static double sums[9000], back[9000], slope[9000];
    for (int i = 0; i < 9000; i++) sums[i] = i % 7 - 3 + (i > 0 ? sums[i - 1] : 0), slope[i] = 9000 - i;
    for (int i = 128; i >= 0; i--) back[i] = i % 7 - 3 + (i < 128 ? back[i + 1] : 0);
    CHECK(build_cumsum_129, FEEDS(FED("none", 0)), {"result", sums, 129, 0, 0}, {"reverse", back, 129, 0, 0});
    CHECK(build_cumsum_9000, FEEDS(FED("x", 0)), {"result", sums, 9000, 0, 0}, {"d0", slope, 9000, 0, 0});
})

BUILD_GRADIENT(cumprod, TG_SHAPE(3, 4), tg_cumprod(x, -1))
BUILD(cumprod_ways, const tg_tensor x = in(g, "x", TG_SHAPE(5)); tg_capture("exclusive", tg_cumprod(x, 0, .exclusive = true));
      tg_capture("reverse", tg_cumprod(x, 0, .reverse = true)); return tg_cumprod(x, 0);)
TEST(running_products_do_not_divide_by_what_they_multiply, {
    CHECK(build_cumprod, FEEDS(FED("x", 2, 0, 3, 4, 0, 2, 3, 0, -1, .5, -2, 4), FED("cot", 1, 1, 1, 1, 1, 2, -1, 3, .5, 1, 2, -1)),
          WANT("result", 2, 0, 0, 0, 0, 0, 0, 0, -1, -.5, 1, 4), WANT("d0", 1, 32, 0, 0, -1, 0, 0, 0, 3, -5, 1, -1));
    CHECK(build_cumprod_ways, FEEDS(FED("x", 2, 3, -1, 4, .5)), EXACTLY("result", 2, 6, -6, -24, -12),
          EXACTLY("exclusive", 1, 2, 6, -6, -24), EXACTLY("reverse", -12, -6, -2, 2, .5));
})

/* ---------------------------------------------------------------- softmax family, triangles */

BUILD(masked_softmax, const tg_tensor x = in(g, "x", TG_SHAPE(3, 3)); const tg_tensor mask = tg_input(g, "mask", TG_SHAPE(3, 3), TG_BOOL);
      return with_gradients(g, tg_masked_softmax(x, mask, -1), &x, 1);)
BUILD(masked_softmax_shared, const tg_tensor x = in(g, "x", TG_SHAPE(3, 3));
      const tg_tensor mask = tg_input(g, "mask", TG_SHAPE(3, 1), TG_BOOL); return with_gradients(g, tg_masked_softmax(x, mask, 0), &x, 1);)
TEST(a_row_that_a_mask_hides_is_0_with_gradient_0, {
    CHECK(build_masked_softmax,
          FEEDS(FED("x", 0, 100, 1, INF, NANF, -INF, 2, 2, 1), FED("mask", 1, 0, 1, 0, 0, 0, 1, 1, 1),
                FED("cot", 1, 2, 3, 4, 5, 6, 1, -1, 3)),
          WANT("result", .2689414, 0, .7310586, 0, 0, 0, .4223188, .4223188, .1553624),
          WANT("d0", -.3932239, 0, .3932239, 0, 0, 0, .2254814, -.6191562, .3936748));
    CHECK(build_masked_softmax_shared,
          FEEDS(FED("x", 0, 2, 5, 7, 7, 7, 1, 2, 5), FED("mask", 1, 0, 1), FED("cot", 1, 1, 1, 9, 9, 9, 3, 1, 2)),
          WANT("result", .2689414, .5, .5, 0, 0, 0, .7310586, .5, .5), WANT("d0", -.3932239, 0, -.25, 0, 0, 0, .3932239, 0, .25));
})

BUILD(logsumexp, return tg_logsumexp(in(g, "x", TG_SHAPE(4, 2)), 1);)
TEST(logsumexp_of_infinities,
     { CHECK(build_logsumexp, FEEDS(FED("x", -INF, -INF, INF, 1, -INF, 2, 1000, 1000)), WANT("result", -INF, INF, 2, 1000.6931472)); })

BUILD(triangles, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3)); tg_capture("above", tg_tril(x, 1)); tg_capture("upper", tg_triu(x, 1));
      tg_capture("none", tg_triu(x, 1000000)); tg_capture("all", tg_tril(x, INT64_MAX));
      tg_capture("mask", tg_tril(tg_full(g, TG_SHAPE(2, 2), 1, TG_BOOL), -1)); return tg_tril(x, 0);)
BUILD_GRADIENT(triu, TG_SHAPE(2, 2, 2), tg_triu(x, 0))
TEST(triangles, {
    CHECK(build_triangles, FEEDS(FED("x", NANF, 2, 3, 4, 5, 6)), EXACTLY("result", NANF, 0, 0, 4, 5, 0),
          EXACTLY("above", NANF, 2, 0, 4, 5, 6), EXACTLY("upper", 0, 2, 3, 0, 0, 6), EXACTLY("none", 0, 0, 0, 0, 0, 0),
          EXACTLY("all", NANF, 2, 3, 4, 5, 6), EXACTLY("mask", 0, 0, 1, 0));
    CHECK(build_triu, FEEDS(FED("x", 1, 2, 3, 4, 5, 6, 7, 8), FED("cot", 1, 2, 3, 4, 5, 6, 7, 8)),
          EXACTLY("result", 1, 2, 0, 4, 5, 6, 0, 8), EXACTLY("d0", 1, 2, 0, 4, 5, 6, 0, 8));
})

/* ---------------------------------------------------------------- arrangements */

BUILD(axes_of_one, const tg_tensor x = in(g, "x", TG_SHAPE(1, 2, 1)); tg_capture("wide", tg_expand_dims(tg_squeeze(x, TG_AXES(0, -1)), -1));
      return tg_squeeze(x, TG_ALL);)
TEST(axes_of_one_element_come_and_go, { CHECK(build_axes_of_one, FEEDS(FED("x", 1, 2)), EXACTLY("result", 1, 2), EXACTLY("wide", 1, 2)); })

BUILD_GRADIENT(pad_value, TG_SHAPE(2, 2), tg_pad(x, TG_SHAPE(1, 0), TG_SHAPE(0, 2), 7.5))
BUILD(pads, const tg_tensor n = tg_input(g, "n", TG_SHAPE(2), TG_I32); const tg_tensor b = tg_input(g, "b", TG_SHAPE(2), TG_BOOL);
      tg_capture("bool", tg_pad(b, TG_SHAPE(1), TG_SHAPE(1), true)); tg_capture("none", tg_pad(n, TG_SHAPE(0), TG_SHAPE(0), 9));
      tg_capture("inf", tg_pad(tg_cast(n, TG_F32), TG_SHAPE(1), TG_SHAPE(0), -INF)); return tg_pad(n, TG_SHAPE(0), TG_SHAPE(2), -3);)
TEST(padding_with_any_value, {
    CHECK(build_pad_value, FEEDS(FED("x", 1, NANF, 3, 4), FED("cot", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
          EXACTLY("result", 7.5, 7.5, 7.5, 7.5, 1, NANF, 7.5, 7.5, 3, 4, 7.5, 7.5), EXACTLY("d0", 5, 6, 9, 10));
    CHECK(build_pads, FEEDS(FED("n", 1, 2), FED("b", 0, 1)), EXACTLY("result", 1, 2, -3, -3), EXACTLY("bool", 1, 0, 1, 1),
          EXACTLY("none", 1, 2), EXACTLY("inf", -INF, 1, 2));
})

BUILD(turned, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3)); tg_capture("both", tg_flip(x, TG_ALL)); tg_capture("roll", tg_roll(x, 1, 1));
      tg_capture("back", tg_roll(x, -4, -1)); tg_capture("whole", tg_roll(x, 6, 1)); tg_capture("rows", tg_roll(x, 1, 0));
      return tg_flip(x, TG_AXES(1));)
TEST(flips_and_rolls, {
    CHECK(build_turned, FEEDS(FED("x", 1, 2, 3, 4, 5, 6)), EXACTLY("result", 3, 2, 1, 6, 5, 4), EXACTLY("both", 6, 5, 4, 3, 2, 1),
          EXACTLY("roll", 3, 1, 2, 6, 4, 5), EXACTLY("back", 2, 3, 1, 5, 6, 4), EXACTLY("whole", 1, 2, 3, 4, 5, 6),
          EXACTLY("rows", 4, 5, 6, 1, 2, 3));
})

BUILD_GRADIENT(tile, TG_SHAPE(2, 1), tg_tile(x, TG_SHAPE(2, 3)))
BUILD_GRADIENT(repeat, TG_SHAPE(2, 2), tg_repeat(x, 2, 0))
TEST(tiles_and_repeats, {
    CHECK(build_tile, FEEDS(FED("x", 1, 2), FED("cot", 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5)),
          EXACTLY("result", 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2), EXACTLY("d0", 12, 19));
    CHECK(build_repeat, FEEDS(FED("x", 1, 2, 3, 4), FED("cot", 1, 2, 3, 4, 5, 6, 7, 8)), EXACTLY("result", 1, 2, 1, 2, 3, 4, 3, 4),
          EXACTLY("d0", 4, 6, 12, 14));
})

BUILD(split, const tg_tensor x = in(g, "x", TG_SHAPE(2, 4)); tg_tensor parts[3]; tg_tensor halves[2];
      tg_split(x, 1, ((const int64_t[]){1, 2, 1}), 3, parts); tg_split(x, 0, NULL, 2, halves); tg_capture("one", parts[0]);
      tg_capture("two", parts[1]); tg_capture("three", parts[2]); tg_capture("half", halves[1]);
      return with_gradients(g, tg_mul(parts[0], parts[2]), &x, 1);)
TEST(splits, {
    CHECK(build_split, FEEDS(FED("x", 1, 2, 3, 4, 5, 6, 7, 8), FED("cot", 1, 2)), EXACTLY("result", 4, 40), EXACTLY("one", 1, 5),
          EXACTLY("two", 2, 3, 6, 7), EXACTLY("three", 4, 8), EXACTLY("half", 5, 6, 7, 8), EXACTLY("d0", 4, 0, 0, 1, 16, 0, 0, 10));
})

BUILD(matmul_ranks, const tg_tensor v = in(g, "v", TG_SHAPE(2)), m = in(g, "m", TG_SHAPE(2, 2)), b = in(g, "b", TG_SHAPE(2, 2, 1));
      tg_capture("row", tg_matmul(v, m)); tg_capture("column", tg_matmul(m, v)); tg_capture("batch", tg_matmul(m, b));
      tg_capture("batch row", tg_matmul(v, b)); return with_gradients(g, tg_matmul(v, tg_matmul(m, v)), &v, 1);)
TEST(matmul_of_any_rank, {
    CHECK(build_matmul_ranks, FEEDS(FED("v", 1, 2), FED("m", 1, 2, 3, 4), FED("b", 1, 0, 0, 1), FED("cot", 1)), EXACTLY("result", 27),
          EXACTLY("row", 7, 10), EXACTLY("column", 5, 11), EXACTLY("batch", 1, 3, 2, 4), EXACTLY("batch row", 1, 2), EXACTLY("d0", 12, 21));
})

/* ---------------------------------------------------------------- indexing */

BUILD(gather, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3)); const tg_tensor i = whole(g, "i", TG_SHAPE(2, 2));
      const tg_tensor n = whole(g, "n", TG_SHAPE(3)), one = whole(g, "one", TG_SCALAR); tg_capture("i32", tg_gather(n, i, 0));
      tg_capture("bool", tg_gather(tg_greater(n, 5.0), i, 0)); tg_capture("row", tg_gather(x, one, 0));
      return with_gradients(g, tg_gather(x, i, -1), &x, 1);)
TEST(gathers_along_an_axis, {
    CHECK(build_gather,
          FEEDS(FED("x", 1, 2, 3, 4, 5, 6), FED("i", 2, 0, 2, 1), FED("n", 16777217, 5, 6), FED("one", 1),
                FED("cot", 1, 2, 3, 4, 5, 6, 7, 8)),
          EXACTLY("result", 3, 1, 3, 2, 6, 4, 6, 5), EXACTLY("i32", 6, 16777217, 6, 5), EXACTLY("bool", 1, 1, 1, 0),
          EXACTLY("row", 4, 5, 6), EXACTLY("d0", 2, 4, 4, 6, 8, 12));
})

BUILD(take_along, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3, 2)); const tg_tensor i = whole(g, "i", TG_SHAPE(2, 2, 2));
      tg_capture("i32", tg_take_along_axis(tg_cast(x, TG_I32), i, 1)); return with_gradients(g, tg_take_along_axis(x, i, 1), &x, 1);)
TEST(takes_along_an_axis, {
    CHECK(build_take_along,
          FEEDS(FED("x", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), FED("i", 0, 2, 1, 2, 2, 2, 2, 0), FED("cot", 1, 2, 3, 4, 5, 6, 7, 8)),
          EXACTLY("result", 0, 5, 2, 5, 10, 11, 10, 7), EXACTLY("i32", 0, 5, 2, 5, 10, 11, 10, 7),
          EXACTLY("d0", 1, 0, 3, 0, 0, 6, 0, 8, 0, 0, 12, 6));
})

BUILD(scatter_add, const tg_tensor w[2] = {in(g, "x", TG_SHAPE(2, 3)), in(g, "u", TG_SHAPE(2, 4))};
      return with_gradients(g, tg_scatter_add(w[0], whole(g, "i", TG_SHAPE(4)), w[1], 1), w, 2);)
TEST(scatter_add_adds_to_what_is_there, {
    CHECK(
        build_scatter_add,
        FEEDS(FED("x", 1, 2, 3, 4, 5, 6), FED("u", 1, 10, 100, 1000, 2, 20, 200, 2000), FED("i", 2, 0, 2, 2), FED("cot", 1, 2, 3, 4, 5, 6)),
        EXACTLY("result", 11, 2, 1104, 24, 5, 2208), EXACTLY("d0", 1, 2, 3, 4, 5, 6), EXACTLY("d1", 3, 1, 3, 3, 6, 4, 6, 6));
})

/* ---------------------------------------------------------------- orders */

BUILD(sort, const tg_tensor x = in(g, "x", TG_SHAPE(2, 4)); tg_capture("at", tg_argsort(x, 1));
      tg_capture("down", tg_sort(x, 1, .descending = true)); tg_capture("down at", tg_argsort(x, -1, .descending = true));
      tg_capture("columns", tg_sort(x, 0)); tg_capture("same", tg_take_along_axis(x, tg_argsort(x, 1), 1));
      return with_gradients(g, tg_sort(x, 1), &x, 1);)
BUILD(sort_i32, return tg_sort(whole(g, "n", TG_SHAPE(4)), 0);)
TEST(sorts_are_stable_and_have_nan_last, {
    CHECK(build_sort, FEEDS(FED("x", 3, 1, 2, 1, NANF, -INF, 5, NANF), FED("cot", 1, 2, 3, 4, 5, 6, 7, 8)),
          EXACTLY("result", 1, 1, 2, 3, -INF, 5, NANF, NANF), EXACTLY("at", 1, 3, 2, 0, 1, 2, 0, 3),
          EXACTLY("down", 3, 2, 1, 1, 5, -INF, NANF, NANF), EXACTLY("down at", 0, 2, 1, 3, 2, 1, 0, 3),
          EXACTLY("columns", 3, -INF, 2, 1, NANF, 1, 5, NANF), EXACTLY("same", 1, 1, 2, 3, -INF, 5, NANF, NANF),
          EXACTLY("d0", 4, 1, 3, 2, 7, 5, 6, 8));
    CHECK(build_sort_i32, FEEDS(FED("n", 2147483647, -2147483648.0, 7, -1)), EXACTLY("result", -2147483648.0, -1, 7, 2147483647));
})

BUILD(top_k, const tg_tensor x = in(g, "x", TG_SHAPE(4, 2)); const tg_top top = tg_top_k(x, 2, 0); tg_capture("at", top.indices);
      return with_gradients(g, top.values, &x, 1);)
TEST(the_k_largest, {
    CHECK(build_top_k, FEEDS(FED("x", 1, NANF, 5, 2, 5, 7, 3, 2), FED("cot", 1, 2, 3, 4)), EXACTLY("result", 5, 7, 5, 2),
          EXACTLY("at", 1, 2, 2, 1), EXACTLY("d0", 0, 0, 1, 4, 3, 2, 0, 0));
})

/* Equal bits at both places of a comparison: what is sorted is computed, with products and sums that may be rounded in two ways. */
BUILD(sort_computed, const tg_tensor i = tg_arange(g, 300, TG_F32); const tg_tensor x = in(g, "x", TG_SCALAR);
      const tg_tensor y = tg_add(tg_mul(tg_sin(tg_mul(i, 1.7)), x), tg_mul(tg_cos(i), 0.3)); const tg_tensor at = tg_argsort(y, 0);
      tg_capture("seen", tg_sort(at, 0)); const tg_tensor s = tg_sort(y, 0);
      return tg_all(tg_less_equal(tg_narrow(s, 0, 0, 299), tg_narrow(s, 0, 1, 299)), TG_ALL);)
TEST(a_sort_of_what_is_computed_is_a_permutation, {
    static double all[300];
    for (int i = 0; i < 300; i++) all[i] = i;
    CHECK(build_sort_computed, FEEDS(FED("x", .7)), EXACTLY("result", 1), {"seen", all, 300, 0, 0});
})

/* ---------------------------------------------------------------- einsum, rope */

#define EINSUM(g, equation, ...) \
  tg_einsum(equation, ((const tg_tensor[]){__VA_ARGS__}), (int)(sizeof((const tg_tensor[]){__VA_ARGS__}) / sizeof(tg_tensor)))
BUILD(einsum, const tg_tensor a = in(g, "a", TG_SHAPE(2, 3)), b = in(g, "b", TG_SHAPE(3, 2)), v = in(g, "v", TG_SHAPE(3));
      const tg_tensor s = tg_matmul(a, b); tg_capture("implicit", EINSUM(g, "ij,jk", a, b));
      tg_capture("turned", EINSUM(g, " ij , jk -> ki ", a, b)); tg_capture("alphabet", EINSUM(g, "ba", a));
      tg_capture("trace", EINSUM(g, "ii", s)); tg_capture("diagonal", EINSUM(g, "ii->i", s));
      tg_capture("outer", EINSUM(g, "i,j->ij", v, v)); tg_capture("dot", EINSUM(g, "i,i->", v, v));
      tg_capture("row", EINSUM(g, "ij->i", a)); tg_capture("rows", EINSUM(g, "ij,ij->i", a, a));
      tg_capture("three", EINSUM(g, "ij,jk,j->ik", a, b, v)); tg_capture("dots", EINSUM(g, "...j,j->...", a, v));
      tg_capture("wide", EINSUM(g, "...,...", tg_narrow(a, 1, 0, 1), a)); tg_capture("batch", EINSUM(g, "b...,...c->bc...", a, v));
      const tg_tensor w[2] = {a, b}; return with_gradients(g, EINSUM(g, "ij,jk->ik", a, b), w, 2);)
TEST(einsum_is_numpys, {
    CHECK(build_einsum, FEEDS(FED("a", 1, 2, 3, 4, 5, 6), FED("b", 1, 0, 2, -1, 0, 1), FED("v", 1, 10, 100), FED("cot", 1, 2, 3, 4)),
          EXACTLY("result", 5, 1, 14, 1), EXACTLY("implicit", 5, 1, 14, 1), EXACTLY("turned", 5, 14, 1, 1),
          EXACTLY("alphabet", 1, 4, 2, 5, 3, 6), EXACTLY("trace", 6), EXACTLY("diagonal", 5, 1),
          EXACTLY("outer", 1, 10, 100, 10, 100, 1000, 100, 1000, 10000), EXACTLY("dot", 10101), EXACTLY("row", 6, 15),
          EXACTLY("rows", 14, 77), EXACTLY("three", 41, 280, 104, 550), EXACTLY("dots", 321, 654), EXACTLY("wide", 1, 2, 3, 16, 20, 24),
          EXACTLY("batch", 1, 2, 3, 10, 20, 30, 100, 200, 300, 4, 5, 6, 40, 50, 60, 400, 500, 600), EXACTLY("d0", 1, 0, 2, 3, 2, 4),
          EXACTLY("d1", 13, 18, 17, 24, 21, 30));
})

BUILD_GRADIENT(rope, TG_SHAPE(2, 4), tg_rope(x))
BUILD(rope_ways, const tg_tensor x = in(g, "x", TG_SHAPE(2, 4)); const tg_tensor p = whole(g, "p", TG_SHAPE(2));
      tg_capture("pairs", tg_rope(x, .interleaved = true)); tg_capture("base", tg_rope(x, .base = 4));
      tg_capture("same", tg_sub(tg_rope(x, .positions = p), tg_rope(x))); return tg_rope(x, .positions = tg_add(p, 1.0));)
TEST(rotary_positions, {
    CHECK(build_rope, FEEDS(FED("x", 1, 2, 3, 4, 1, 2, 3, 4), FED("cot", 1, 2, 3, 4, 1, 2, 3, 4)),
          WANT("result", 1, 2, 3, 4, -1.9841106, 1.9599007, 2.4623779, 4.0197997),
          WANT("d0", 1, 2, 3, 4, 3.0647153, 2.0398993, .7794359, 3.9798003));
    CHECK(build_rope_ways, FEEDS(FED("x", 1, 2, 3, 4, 1, 2, 3, 4), FED("p", 0, 1)),
          WANT("result", -1.9841106, 1.9599007, 2.4623779, 4.0197997, -3.1440391, 1.9196053, -.3391431, 4.0391974),
          WANT("pairs", 1, 2, 3, 4, -1.1426397, 1.9220756, 2.9598507, 4.0297995),
          WANT("base", 1, 2, 3, 4, -1.9841106, -.1625370, 2.4623779, 4.4691813), WANT("same", 0, 0, 0, 0, 0, 0, 0, 0));
})

/* ---------------------------------------------------------------- all of them */

#define CASE(name) cmocka_unit_test(test_##name)

int main(void) {
    const int refused = support_home_refuses("values");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        CASE(rounding_has_halves_go_to_the_even_number),
        CASE(expm1_and_log1p_keep_their_digits_near_zero),
        CASE(log_sigmoid_and_tan),
        CASE(activations_in_pieces),
        CASE(floor_division_and_remainder_take_the_sign_of_the_divisor),
        CASE(variance_and_std_with_gradient_0_at_constant_input),
        CASE(norms_with_gradient_0_at_zero),
        CASE(any_and_all),
        CASE(products_do_not_divide_by_what_they_multiply),
        CASE(running_sums),
        CASE(running_sums_over_several_levels_of_blocks),
        CASE(running_products_do_not_divide_by_what_they_multiply),
        CASE(a_row_that_a_mask_hides_is_0_with_gradient_0),
        CASE(logsumexp_of_infinities),
        CASE(triangles),
        CASE(axes_of_one_element_come_and_go),
        CASE(padding_with_any_value),
        CASE(flips_and_rolls),
        CASE(tiles_and_repeats),
        CASE(splits),
        CASE(matmul_of_any_rank),
        CASE(gathers_along_an_axis),
        CASE(takes_along_an_axis),
        CASE(scatter_add_adds_to_what_is_there),
        CASE(sorts_are_stable_and_have_nan_last),
        CASE(the_k_largest),
        CASE(a_sort_of_what_is_computed_is_a_permutation),
        CASE(einsum_is_numpys),
        CASE(rotary_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
