/* Small cases that exposed real faults in other systems, one test per kind, named after it:
 * gradients at awkward points, losses and training, reductions and indexing, special values, fusion
 * and views, the session. Values are by definition or were computed in f64. numeric.h says how
 * numeric cases run. */
#include "numeric.h"

#include "fixtures.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- gradients at awkward points */

BUILD_GRADIENT(where_not_taken, TG_SHAPE(2), tg_where(tg_greater(x, 0.0), tg_sqrt(x), 0.0))
BUILD_GRADIENT(where_safe, TG_SHAPE(2), tg_where(tg_greater(x, 0.0), tg_sqrt(tg_where(tg_greater(x, 0.0), x, 1.0)), 0.0))
TEST(gradient_of_the_branch_not_taken_is_ieee, {
    CHECK(build_where_not_taken, FEEDS(FED("x", 0, 4), FED("cot", 1, 1)), EXACTLY("result", 0, 2), WANT("d0", (double)NAN, .25));
    CHECK(build_where_safe, FEEDS(FED("x", 0, 4), FED("cot", 1, 1)), EXACTLY("result", 0, 2), WANT("d0", 0, .25));
})

BUILD_GRADIENT(norm_eps, TG_SHAPE(3), tg_div(x, tg_sqrt(tg_add(tg_sum_all(tg_mul(x, x)), 1e-6))))
BUILD_GRADIENT(sum_of_squares, TG_SHAPE(3), tg_sum_all(tg_mul(x, x)))
TEST(norm_at_the_zero_vector, {
    CHECK(build_norm_eps, FEEDS(FED("x", 0, 0, 0), FED("cot", 1, 2, -3)), EXACTLY("result", 0, 0, 0), WANT("d0", 1000, 2000, -3000));
    CHECK(build_sum_of_squares, FEEDS(FED("x", 0, 0, 0), FED("cot", 1)), EXACTLY("result", 0), EXACTLY("d0", 0, 0, 0));
})

BUILD_GRADIENT(relu, TG_SHAPE(5), tg_relu(x))
BUILD_GRADIENT(maximum_zero, TG_SHAPE(5), tg_maximum(x, 0.0))
TEST(relu_gradient_at_zero_and_near_it, {
    const double small = (double)1e-30f;
    CHECK(build_relu, FEEDS(FED("x", 0, -0.0, small, -small, 2), FED("cot", 2, 3, 5, 7, 11)), EXACTLY("d0", 0, 0, 5, 0, 11));
    CHECK(build_maximum_zero, FEEDS(FED("x", 0, -0.0, small, -small, 2), FED("cot", 2, 3, 5, 7, 11)), EXACTLY("d0", 1, 1.5, 5, 0, 11));
})

BUILD_GRADIENT(max_ties, TG_SHAPE(4), tg_max(x, TG_ALL))
BUILD(max_of_70000_sum, const tg_tensor x = tg_add(tg_mul(in(g, "x", TG_SCALAR), tg_zeros(g, TG_SHAPE(70000))), 1.0); tg_tensor d;
      const tg_tensor y = tg_max(x, TG_ALL); tg_grad(y, &x, 1, &d); tg_capture("sum", tg_sum_all(d)); return y;)
TEST(ties_of_a_max_reduction_share_the_cotangent, {
    CHECK(build_max_ties, FEEDS(FED("x", 3, 1, 3, 3), FED("cot", 6)), EXACTLY("result", 3), WANT("d0", 2, 0, 2, 2));
    CHECK(build_max_of_70000_sum, FEEDS(FED("x", 1)), EXACTLY("result", 1), WANT("sum", 1));
})

BUILD_GRADIENT(softmax3, TG_SHAPE(3), tg_softmax(x, 0))
TEST(softmax_is_not_differentiated_through_its_maximum, {
    CHECK(build_softmax3, FEEDS(FED("x", 2, 2, 1), FED("cot", 1, -1, 3)), WANT("result", .4223188, .4223188, .1553624),
          WANT("d0", .2254814, -.6191562, .3936748));
})

BUILD(unbroadcast, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(2, 1, 3)), in(g, "b", TG_SHAPE(4, 1))};
      return with_gradients(g, tg_add(tg_mul(w[0], w[1]), tg_div(w[0], w[1])), w, 2);)
TEST(unbroadcast_over_two_axes_at_once, {
    CHECK(build_unbroadcast,
          FEEDS(FED("a", 1, -2, .5, 3, 4, -1), FED("b", 1, -2, .5, 4),
                FED("cot", 1, 2, 3, -1, 0, 1, .5, .5, .5, 2, -2, 1, 0, 1, 0, 1, 1, 1, -3, 2, 1, .25, 4, -1)),
          WANT("result", 2, -4, 1, -2.5, 5, -1.25, 2.5, -5, 1.25, 4.25, -8.5, 2.125, 6, 8, -2, -7.5, -10, 2.5, 7.5, 10, -2.5, 12.75, 17,
               -4.25),
          WANT("d0", 14.25, -3.25, 9, -8.9375, 21.5, -4.25), WANT("d1", 0, 4.125, 6.75, 22.734375));
})

BUILD_GRADIENT(max_middle, TG_SHAPE(2, 2, 3), tg_max(x, TG_AXES(1)))
TEST(max_over_a_middle_axis, {
    CHECK(build_max_middle, FEEDS(FED("x", 1, 5, 2, 4, 0, 2.5, -1, -3, 7, -2, -1, 8), FED("cot", 1, 2, 3, 4, 5, 6)),
          EXACTLY("result", 4, 5, 2.5, -1, -1, 8), EXACTLY("d0", 0, 2, 0, 1, 0, 3, 4, 0, 0, 0, 5, 6));
})

BUILD(leading_axes, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(1, 3, 1)), in(g, "b", TG_SHAPE(2, 1, 1, 2))};
      return with_gradients(g, tg_mul(w[0], w[1]), w, 2);)
TEST(axis_numbers_after_leading_axes_were_summed, {
    CHECK(build_leading_axes, FEEDS(FED("a", 1, 2, 3), FED("b", 1, -1, 2, .5), FED("cot", -3, 2, 0, -2, 3, 1, -1, -3, 2, 0, -2, 3)),
          WANT("d0", -8.5, 6, -.5), WANT("d1", 6, 1, -3, 6));
})

#define STD(x) tg_sqrt(tg_add(tg_mean(tg_square(tg_sub(x, tg_mean(x, TG_ALL))), TG_ALL), 1e-5))
BUILD_GRADIENT(std3, TG_SHAPE(3), STD(x))
BUILD_GRADIENT(std1, TG_SHAPE(1), STD(x))
TEST(std_of_constant_input, {
    CHECK(build_std3, FEEDS(FED("x", 3, 3, 3), FED("cot", 2)), WANT("result", .0031622777), WANT("d0", 0, 0, 0));
    CHECK(build_std1, FEEDS(FED("x", 7), FED("cot", 2)), WANT("result", .0031622777), WANT("d0", 0));
})

BUILD(pow_pairs, const tg_tensor w[2] = {in(g, "x", TG_SHAPE(7)), in(g, "n", TG_SHAPE(7))};
      return with_gradients(g, tg_pow(w[0], w[1]), w, 1);)
BUILD_GRADIENT(pow_2, TG_SHAPE(4), tg_pow(x, 2.0))
BUILD_GRADIENT(pow_3, TG_SHAPE(4), tg_pow(x, 3.0))
BUILD_GRADIENT(pow_1, TG_SHAPE(4), tg_pow(x, 1.0))
BUILD_GRADIENT(pow_0, TG_SHAPE(4), tg_pow(x, 0.0))
BUILD_GRADIENT(pow_m1, TG_SHAPE(1), tg_pow(x, -1.0))
BUILD_GRADIENT(pow_half, TG_SHAPE(1), tg_pow(x, 0.5))
BUILD(pow_exponent, const tg_tensor w[2] = {in(g, "x", TG_SHAPE(2)), in(g, "n", TG_SHAPE(2))};
      return with_gradients(g, tg_pow(w[0], w[1]), w, 2);)
TEST(pow_of_negative_and_zero_bases, {
    CHECK(build_pow_pairs, FEEDS(FED("x", -2, -2, 0, 0, 0, -.5, 3), FED("n", 2, 3, 2, 1, 0, -1, .5), FED("cot", 1, 1, 5, 2, 3, 1, 4)),
          WANT("result", 4, -8, 0, 0, 1, -2, 1.73205081), WANT("d0", -4, 12, 0, 2, 0, -4, 1.15470054));
    CHECK(build_pow_2, FEEDS(FED("x", -2, 0, 3, -.5), FED("cot", 1, 5, 1, 1)), WANT("result", 4, 0, 9, .25), WANT("d0", -4, 0, 6, -1));
    CHECK(build_pow_3, FEEDS(FED("x", -2, 0, 3, -.5), FED("cot", 1, 5, 1, 1)), WANT("result", -8, 0, 27, -.125),
          WANT("d0", 12, 0, 27, .75));
    CHECK(build_pow_1, FEEDS(FED("x", -2, 0, 3, -.5), FED("cot", 1, 2, 1, 1)), WANT("result", -2, 0, 3, -.5), WANT("d0", 1, 2, 1, 1));
    CHECK(build_pow_0, FEEDS(FED("x", -2, 0, 3, -.5), FED("cot", 1, 3, 1, 1)), WANT("result", 1, 1, 1, 1), WANT("d0", 0, 0, 0, 0));
    CHECK(build_pow_m1, FEEDS(FED("x", -.5), FED("cot", 1)), WANT("result", -2), WANT("d0", -4));
    CHECK(build_pow_half, FEEDS(FED("x", 3), FED("cot", 4)), WANT("result", 1.73205081), WANT("d0", 1.15470054));
    CHECK(build_pow_exponent, FEEDS(FED("x", 0, -2), FED("n", 2, 2), FED("cot", 1, 1)), WANT("result", 0, 4),
          EXACTLY("d1", 0, 0)); /* no real slope at a negative base: 0, not NaN */
})

BUILD(cotangent, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(2)), in(g, "b", TG_SHAPE(2))};
      return with_gradients(g, tg_square(tg_sub(w[0], w[1])), w, 2);)
TEST(vjp_uses_its_cotangent,
     { CHECK(build_cotangent, FEEDS(FED("a", 3, -1), FED("b", 1, 2), FED("cot", .5, -2)), WANT("d0", 2, 12), WANT("d1", -2, -12)); })

BUILD_GRADIENT(times_comparison, TG_SHAPE(3), tg_mul(x, tg_cast(tg_less(x, 0.0), TG_F32)))
TEST(a_comparison_inside_has_no_gradient,
     { CHECK(build_times_comparison, FEEDS(FED("x", -1, 2, 0), FED("cot", 3, 5, 7)), EXACTLY("d0", 3, 0, 0)); })

#define GRN(x, w, b) tg_add(tg_add(tg_mul(tg_mul(x, tg_div(n, tg_mean(n, TG_AXES(0), .keepdims = true))), w), b), x)
BUILD(global_response_norm, const tg_tensor w[2] = {in(g, "g", TG_SHAPE(2, 1)), in(g, "b", TG_SHAPE(2, 1))};
      const tg_tensor x = in(g, "x", TG_SHAPE(2, 3));
      const tg_tensor n = tg_sqrt(tg_add(tg_sum(tg_square(x), TG_AXES(-1), .keepdims = true), 1e-5));
      return with_gradients(g, GRN(x, w[0], w[1]), w, 2);)
TEST(zero_initialised_parameters_in_a_fused_graph, {
    CHECK(build_global_response_norm, FEEDS(FED("x", 1, -2, 2, .5, 0, -1), FED("g", 0, 0), FED("b", 0, 0), FED("cot", 1, 2, -1, .5, 1, 3)),
          WANT("result", 1, -2, 2, .5, 0, -1), WANT("d0", -7.2850229, -1.4932374), WANT("d1", 2, 4.5));
})

BUILD_GRADIENT(two_pows, TG_SHAPE(2), tg_add(tg_pow(x, 2.5), tg_pow(x, 1.5)))
BUILD_GRADIENT(two_of_each, TG_SHAPE(2), tg_add(tg_add(tg_tanh(x), tg_tanh(tg_mul(x, 2.0))), tg_add(tg_erf(x), tg_erf(tg_mul(x, 0.5)))))
TEST(the_same_function_twice_in_one_kernel, {
    CHECK(build_two_pows, FEEDS(FED("x", .5, 2), FED("cot", 1, -1)), WANT("result", .5303301, 8.4852814),
          WANT("d0", 1.9445436, -9.1923882));
    CHECK(build_two_of_each, FEEDS(FED("x", .5, 2), FED("cot", 1, 0)),
          WANT("result", tanh(.5) + tanh(1.) + erf(.5) + erf(.25), tanh(2.) + tanh(4.) + erf(2.) + erf(1.)));
})

/* ---- losses */

BUILD(cross_entropy, const tg_tensor x = in(g, "x", TG_SHAPE(3, 2)); tg_tensor d;
      const tg_tensor loss = tg_nn_cross_entropy(x, tg_input(g, "t", TG_SHAPE(3), TG_I32), -1); tg_grad(loss, &x, 1, &d);
      tg_capture("d", d); return loss;)
TEST(every_target_ignored_is_zero, {
    CHECK(build_cross_entropy, FEEDS(FED("x", 1, 2, 3, 4, 5, 6), FED("t", -1, -1, -1)), EXACTLY("result", 0),
          EXACTLY("d", 0, 0, 0, 0, 0, 0));
})
TEST(padding_does_not_count_in_a_masked_loss, {
    const double l = log(1 + exp(1.)), p = 1 / (1 + exp(1.)); /* one real position with logits 1, 2 and target 0 */
    CHECK(build_cross_entropy, FEEDS(FED("x", 1, 2, 3, 4, 5, 6), FED("t", 0, -1, -1)), WANT("result", l),
          WANT("d", p - 1, 1 - p, 0, 0, 0, 0));
})

BUILD_GRADIENT(bce, TG_SHAPE(2), tg_nn_bce_with_logits(x, tg_constant(g, TG_SHAPE(2), TG_F32, ((const float[]){1, 0}), 2)))
BUILD_GRADIENT(softplus, TG_SHAPE(3), tg_softplus(x))
TEST(softplus_and_bce_have_their_gradient_at_zero, {
    CHECK(build_bce, FEEDS(FED("x", 0, 0), FED("cot", 2)), WANT("result", log(2.)), WANT("d0", -.5, .5));
    CHECK(build_softplus, FEEDS(FED("x", 0, 100, -100), FED("cot", 1, 1, 1)), WANT("result", log(2.), 100, 0), WANT("d0", .5, 1, 0));
})

/* ---- reductions, indexing, integers */

BUILD(embedding_many, const tg_tensor t = in(g, "table", TG_SHAPE(3, 1)); tg_tensor d;
      const tg_tensor i = tg_cast(tg_add(tg_mul(tg_cast(tg_arange(g, 4096, TG_I32), TG_F32), 0.0), 2.0), TG_I32);
      const tg_tensor y = tg_sum_all(tg_embedding(t, i)); tg_grad(y, &t, 1, &d); tg_capture("d", d); return y;)
TEST(many_contributions_to_one_embedding_row,
     { CHECK(build_embedding_many, FEEDS(FED("table", 0, 0, 1)), EXACTLY("result", 4096), EXACTLY("d", 0, 0, 4096)); })

BUILD(i32_reductions, const tg_tensor x = tg_input(g, "x", TG_SHAPE(4), TG_I32); tg_capture("max", tg_max(x, TG_ALL));
      tg_capture("min", tg_min(x, TG_ALL)); tg_capture("argmax", tg_argmax(x, 0)); tg_capture("argmin", tg_argmin(x, 0));
      return tg_sum(x, TG_ALL);)
TEST(identities_of_i32_reductions, {
    CHECK(build_i32_reductions, FEEDS(FED("x", -7, -5, -5, -9)), EXACTLY("max", -5), EXACTLY("min", -9), EXACTLY("argmax", 1),
          EXACTLY("argmin", 3), EXACTLY("result", -26));
    const double least = -2147483648.0;
    CHECK(build_i32_reductions, FEEDS(FED("x", least, least, least, least)), EXACTLY("max", least), EXACTLY("argmax", 0),
          EXACTLY("min", least), EXACTLY("argmin", 0));
})

BUILD(i32_division, return tg_div(tg_input(g, "x", TG_SHAPE(6), TG_I32), 2.0);)
BUILD(i32_division_of, return tg_div(tg_input(g, "x", TG_SHAPE(3), TG_I32), tg_input(g, "y", TG_SHAPE(3), TG_I32));)
TEST(i32_division_is_integer_division, {
    CHECK(build_i32_division, FEEDS(FED("x", 7, -7, 1, -1, 2147483647, -2147483648.0)),
          EXACTLY("result", 3, -3, 0, 0, 1073741823, -1073741824));
    CHECK(build_i32_division_of, FEEDS(FED("x", 7, 5, -2147483648.0), FED("y", 2, 0, -1)), EXACTLY("result", 3, 0, -2147483648.0));
})

BUILD(batched_k1, tg_capture("swapped", tg_matmul_batched(tg_swap_axes(in(g, "b", TG_SHAPE(2, 1, 5)), 1, 2),
                                                          tg_swap_axes(in(g, "a", TG_SHAPE(1, 3, 1)), 1, 2)));
      return tg_zeros(g, TG_SCALAR);)
BUILD(batched_k1_plain, return tg_matmul_batched(in(g, "a", TG_SHAPE(1, 3, 1)), in(g, "b", TG_SHAPE(2, 1, 5)));)
TEST(matmul_with_k_of_1_and_a_broadcast_batch, {
    CHECK(build_batched_k1_plain, FEEDS(FED("a", 1, 2, 3), FED("b", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
          EXACTLY("result", 1, 2, 3, 4, 5, 2, 4, 6, 8, 10, 3, 6, 9, 12, 15, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 18, 21, 24, 27, 30));
    CHECK(build_batched_k1, FEEDS(FED("a", 1, 2, 3), FED("b", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
          EXACTLY("swapped", 1, 2, 3, 2, 4, 6, 3, 6, 9, 4, 8, 12, 5, 10, 15, 6, 12, 18, 7, 14, 21, 8, 16, 24, 9, 18, 27, 10, 20, 30));
})

/* ---- special values */

BUILD(relu3, return tg_relu(in(g, "x", TG_SHAPE(3)));)
BUILD(clamp3, return tg_clamp(in(g, "x", TG_SHAPE(3)), -1.0, 1.0);)
BUILD(max3, return tg_max(in(g, "x", TG_SHAPE(3)), TG_ALL);)
TEST(nan_goes_through_relu_clamp_and_max, {
    CHECK(build_relu3, FEEDS(FED("x", (double)NAN, -1, 2)), EXACTLY("result", (double)NAN, 0, 2));
    CHECK(build_clamp3, FEEDS(FED("x", (double)NAN, -3, 2)), EXACTLY("result", (double)NAN, -1, 1));
    CHECK(build_max3, FEEDS(FED("x", 1, (double)NAN, 2)), EXACTLY("result", (double)NAN));
})

BUILD(where_min, const tg_tensor a = in(g, "a", TG_SHAPE(2)), b = in(g, "b", TG_SHAPE(2)); tg_capture("op", tg_minimum(a, b));
      return tg_where(tg_less_equal(a, b), a, b);)
TEST(a_minimum_by_hand_is_not_the_minimum_op,
     { CHECK(build_where_min, FEEDS(FED("a", (double)NAN, 1), FED("b", 2, 3)), EXACTLY("result", 2, 1), EXACTLY("op", (double)NAN, 1)); })

BUILD(literals, const tg_tensor x = in(g, "x", TG_SHAPE(2)); const tg_tensor yes = tg_greater(x, 0.0);
      static const double values[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, (double)FLT_MAX, -(double)FLT_MAX, 0x1p-149};
      static const char *const names[] = {"inf", "-inf", "nan", "max", "-max", "denormal"};
      for (int i = 0; i < 6; i++) tg_capture(names[i], tg_where(yes, x, values[i]));
      return tg_where(yes, tg_cast(x, TG_I32), -2147483648.0);)
TEST(literals_come_back_bit_for_bit, {
    CHECK(build_literals, FEEDS(FED("x", 1, -1)), EXACTLY("result", 1, -2147483648.0), EXACTLY("inf", 1, (double)INFINITY),
          EXACTLY("-inf", 1, -(double)INFINITY), EXACTLY("nan", 1, (double)NAN), EXACTLY("max", 1, (double)FLT_MAX),
          EXACTLY("-max", 1, -(double)FLT_MAX), EXACTLY("denormal", 1, 0x1p-149));
})

BUILD(casts, const tg_tensor x = in(g, "x", TG_SHAPE(7)); tg_capture("bool", tg_cast(x, TG_BOOL));
      tg_capture("back", tg_cast(tg_cast(x, TG_BOOL), TG_I32)); return tg_cast(x, TG_I32);)
TEST(casts_saturate, {
    CHECK(build_casts, FEEDS(FED("x", -1.7, 1.7, -0.0, 3e9, -3e9, (double)NAN, .5)),
          EXACTLY("result", -1, 1, 0, 2147483647, -2147483648.0, 0, 0), EXACTLY("bool", 1, 1, 0, 1, 1, 1, 1),
          EXACTLY("back", 1, 1, 0, 1, 1, 1, 1));
})

BUILD(sin_cos, const tg_tensor x = in(g, "x", TG_SHAPE(3)); tg_capture("cos", tg_cos(x)); return tg_sin(x);)
TEST(sine_and_cosine_of_large_arguments, {
    CHECK(build_sin_cos, FEEDS(FED("x", 100, 1e4, 1e5)), {"result", LIST(-.50636564, -.30561439, .03574880), 0, 1e-6},
          {"cos", LIST(.86231887, -.95215537, -.99936080), 0, 1e-6});
})

BUILD_GRADIENT(sigmoid5, TG_SHAPE(5), tg_sigmoid(x))
TEST(sigmoid_does_not_overflow, {
    CHECK(build_sigmoid5, FEEDS(FED("x", -1000, -88.9, 0, 88.9, 1000), FED("cot", 1, 1, 1, 1, 1)), WANT("result", 0, 0, .5, 1, 1),
          WANT("d0", 0, 0, .25, 0, 0));
})

TEST(a_fully_masked_row_over_finite_fills_is_uniform, {
    CHECK(build_softmax3, FEEDS(FED("x", -1e9, -1e9, -1e9), FED("cot", 1, 2, 3)), WANT("result", 1 / 3., 1 / 3., 1 / 3.),
          WANT("d0", -1 / 3., 0, 1 / 3.));
    CHECK(build_softmax3, FEEDS(FED("x", 0, -1e9, 1), FED("cot", 1, 2, 3)), WANT("result", .2689414, 0, .7310586),
          WANT("d0", -.3932239, 0, .3932239));
})

BUILD(gelu1, const tg_tensor x = in(g, "x", TG_SHAPE(1)); tg_capture("tanh", tg_gelu_tanh(x)); return tg_gelu(x);)
TEST(gelu_is_the_exact_form, { CHECK(build_gelu1, FEEDS(FED("x", 1)), WANT("result", .8413447), WANT("tanh", .8411920)); })

/* ---- fusion, views, memory */

BUILD(
    fourteen, tg_tensor a[14]; char name[8]; tg_tensor y = tg_zeros(g, TG_SHAPE(3)), d[14]; for (int i = 0; i < 14; i++) {
        snprintf(name, sizeof name, "a%02d", i);
        a[i] = in(g, name, TG_SHAPE(3));
    } for (int i = 0; i < 14; i++) y = tg_add(y, tg_mul((double)(i + 1), tg_mul(tg_relu(a[i]), a[(i + 1) % 14])));
    tg_vjp(y, in(g, "cot", TG_SHAPE(3)), a, 14, d); tg_capture("d0", d[0]); tg_capture("d5", d[5]); tg_capture("d10", d[10]);
    tg_capture("d13", d[13]); return y;)
TEST(more_operands_than_a_kernel_can_bind, {
    CHECK(build_fourteen,
          FEEDS(FED("a00", .25, .5, 1), FED("a01", .5, -.5, 1), FED("a02", .75, -1.5, 1), FED("a03", 1, -2.5, 1), FED("a04", 1.25, -3.5, 1),
                FED("a05", 1.5, .5, 1), FED("a06", 1.75, -.5, 1), FED("a07", 2, -1.5, 1), FED("a08", 2.25, -2.5, 1),
                FED("a09", 2.5, -3.5, 1), FED("a10", 2.75, .5, 1), FED("a11", 3, -.5, 1), FED("a12", 3.25, -1.5, 1),
                FED("a13", 3.5, -2.5, 1), FED("cot", 1, -2, .5)),
          WANT("result", 581, -4.5, 105), WANT("d0", 49.5, 1, 7.5), WANT("d5", 16.75, 6, 5.5), WANT("d10", 58, 11, 10.5),
          WANT("d13", 45.75, 0, 13.5));
})

static tg_tensor build_transposed_update(tg_graph *g, void *user) {
    const int64_t n = *(const int64_t *)user;
    const tg_tensor p = tg_state(g, "p", TG_SHAPE(n, n), TG_F32, 0.0);
    tg_writeback(p, tg_add(p, tg_mul(tg_transpose(p, TG_AXES(1, 0)), 0.5)));
    return tg_sum_all(p);
}
static void fill_transposed(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    static const double small[] = {1, 2, 3, 4, 5, 6, 7, 8, 10};
    const int64_t n = shape.dim[0];
    (void)user;
    (void)name;
    (void)dtype;
    for (int64_t i = 0; i < count; i++) out[i] = n == 3 ? small[i] : (double)((i / n * 7 + i % n * 13) % 31) / 8;
}
TEST(an_update_in_place_that_reads_its_own_transpose, {
    static const double after[] = {2.25, 6.5, 10.75, 7, 11.25, 15.5, 11.75, 16, 22.5};
    for (int large = 0; large < 2; large++) {
        int64_t n = large ? 130 : 3;
        const support_case c = {build_transposed_update, &n, fill_transposed, NULL};
        support_outputs want, first = {0};
        assert_true(support_run_reference(&c, 2, &want));
        if (!large)
            assert_true(
                support_compare("reference", support_outputs_find(&want, "after p")->data, after, 9, (support_tolerance){0, 1e-6, 1e-6}));
        for (int repeat = 0; repeat < (SUPPORT_SANITIZED || support_home_now() == SUPPORT_WEBGPU ? 5 : 100); repeat++) {
            support_outputs got;
            if (!support_run_home(&c, &(support_options){.threads = 1 + repeat % 3, .runs = 2, .no_fusion = repeat % 7 == 6}, &got))
                fail_msg("%s", got.message);
            assert_true(support_outputs_equal("update", &got, &want, (support_tolerance){4, 0, 1e-6}));
            if (repeat == 0) first = got;
            else {
                const support_value *a = support_outputs_find(&first, "after p"), *b = support_outputs_find(&got, "after p");
                assert_memory_equal(a->data, b->data, sizeof(double) * (size_t)a->count);
                support_outputs_free(&got);
            }
        }
        support_outputs_free(&first);
        support_outputs_free(&want);
    }
})

static tg_tensor build_large(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor y = tg_add(tg_mul(in(g, "x", TG_SHAPE(16800007)), 2.0), 1.0);
    tg_capture("first", tg_narrow(y, 0, 0, 3));
    tg_capture("at", tg_narrow(y, 0, 4194240, 1));
    tg_capture("far", tg_narrow(y, 0, 16776960, 1));
    tg_capture("last", tg_narrow(y, 0, 16800004, 3));
    tg_capture("rows", tg_narrow(tg_sum_last(in(g, "r", TG_SHAPE(70001, 3))), 0, 65535, 2));
    return tg_mean(y, TG_ALL);
}
static void fill_large(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)user;
    (void)shape;
    (void)dtype;
    for (int64_t i = 0; i < count; i++) out[i] = *name == 'x' ? (double)(i % 251) : (double)(i / 3 % 7 + i % 3);
}
static void expect_near(const support_outputs *got, const char *name, int i, double want, double relative) {
    const double value = support_outputs_find(got, name)->data[i];
    if (fabs(value - want) > relative * fabs(want)) fail_msg("%s[%d]: got %.9g, want %.9g", name, i, value, want);
}
TEST(more_than_65535_workgroups, {
    if (SUPPORT_SANITIZED) skip();
    const support_case c = {build_large, NULL, fill_large, NULL};
    support_outputs got;
    if (!support_run_home(&c, &(support_options){.threads = 2}, &got)) fail_msg("%s", got.message);
    for (int i = 0; i < 3; i++) expect_near(&got, "first", i, 1 + 2 * i, 0);
    for (int i = 0; i < 3; i++) expect_near(&got, "last", i, 145 + 2 * i, 0);
    expect_near(&got, "at", 0, 61, 0);
    expect_near(&got, "far", 0, 241, 0);
    expect_near(&got, "rows", 0, 6, 0);
    expect_near(&got, "rows", 1, 9, 0);
    expect_near(&got, "result", 0, 250.999214, 1e-5);
    support_outputs_free(&got);
})

static tg_tensor build_chain(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = in(g, "x", TG_SHAPE(64, 64));
    for (int i = 0; i < 12; i++) x = tg_tanh(tg_add(tg_matmul(x, tg_transpose(x, TG_AXES(1, 0))), tg_mul(x, 0.25)));
    return x;
}
TEST(chains_of_equal_sizes_under_memory_reuse, {
    const support_case c = {build_chain, NULL, NULL, NULL};
    support_outputs plain, fused;
    if (!support_run_home(&c, &(support_options){.no_fusion = true, .no_passes = true}, &plain)) fail_msg("%s", plain.message);
    if (!support_run_home(&c, &(support_options){.threads = 3}, &fused)) fail_msg("%s", fused.message);
    assert_true(support_outputs_equal("chain", &fused, &plain, (support_tolerance){64, 1e-4, 0}));
    assert_true(fused.workspace_bytes <= 4 * 64 * 64 * 4);
    support_outputs_free(&plain);
    support_outputs_free(&fused);
})

static tg_tensor build_wide(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = in(g, "w", TG_SHAPE(48, 96)), x = in(g, "x", TG_SHAPE(256, 2, 48));
    tg_tensor d;
    const tg_tensor loss = tg_sum_all(tg_tanh(tg_matmul(x, w)));
    tg_grad(loss, &w, 1, &d);
    tg_capture("d", d);
    return loss;
}
TEST(the_weight_gradient_is_not_materialised_per_batch, {
    const support_case c = {build_wide, NULL, NULL, NULL};
    support_outputs got, want;
    if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
    assert_true(support_run_reference(&c, 1, &want));
    assert_true(support_outputs_equal("wide layer", &got, &want, (support_tolerance){16, 2e-3, 1e-4}));
    assert_true(got.workspace_bytes < 256 * 48 * 96 * 4 / 8);
    support_outputs_free(&got);
    support_outputs_free(&want);
})

static tg_tensor build_dead(tg_graph *g, void *user) {
    const bool with_dead = *(const bool *)user;
    const tg_tensor x = in(g, "x", TG_SHAPE(8, 8)), w = in(g, "w", TG_SHAPE(8, 8));
    const tg_tensor y = tg_tanh(tg_matmul(x, w));
    tg_tensor d[2] = {x, x};
    if (with_dead) tg_matmul(y, tg_exp(w));
    const tg_tensor wrt[2] = {x, w};
    tg_grad(tg_sum_all(y), wrt, with_dead ? 2 : 1, d);
    return d[0];
}
TEST(dead_forward_and_backward_work_costs_nothing, {
    int kernels[2] = {0, 0};
    for (int dead = 0; dead < 2; dead++) {
        bool with_dead = dead != 0;
        const support_case c = {build_dead, &with_dead, NULL, NULL};
        support_outputs got;
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        kernels[dead] = got.kernels;
        support_outputs_free(&got);
    }
    assert_int_equal(kernels[0], kernels[1]);
})

static tg_tensor build_layer_norm_rank(tg_graph *g, void *user) {
    const int rank = *(const int *)user;
    const tg_tensor x = tg_reshape(in(g, "x", TG_SHAPE(48)), rank == 2 ? TG_SHAPE(6, 8) : TG_SHAPE(2, 3, 8));
    const tg_layer_norm l = tg_nn_layer_norm(g, "n", 8);
    const tg_tensor w[3] = {x, l.g, l.b};
    tg_tensor d[3];
    const tg_tensor y = tg_nn_layer_norm_fwd(l, x);
    tg_vjp(y, tg_reshape(in(g, "cot", TG_SHAPE(48)), tg_tensor_shape(y)), w, 3, d);
    tg_capture("dx", tg_reshape(d[0], TG_SHAPE(48)));
    tg_capture("dg", d[1]);
    tg_capture("db", d[2]);
    return tg_reshape(y, TG_SHAPE(48));
}
TEST(layer_norm_backward_for_every_rank, {
    support_outputs got[2];
    for (int i = 0; i < 2; i++) {
        int rank = i + 2;
        const support_case c = {build_layer_norm_rank, &rank, NULL, NULL};
        if (!support_run_home(&c, &(support_options){0}, &got[i])) fail_msg("%s", got[i].message);
    }
    assert_true(support_outputs_identical("rank 3 against rank 2", &got[1], &got[0]));
    support_outputs_free(&got[0]);
    support_outputs_free(&got[1]);
})

static tg_tensor build_attention(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor q = in(g, "q", TG_SHAPE(2, 6, 4)), k = in(g, "k", TG_SHAPE(2, 6, 4)), v = in(g, "v", TG_SHAPE(2, 6, 4));
    return tg_matmul_batched(tg_softmax_causal_last(tg_matmul_batched(q, tg_swap_axes(k, 1, 2))), v);
}
static void fill_future(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    support_fill_default(NULL, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++)
        if (*(const bool *)user && i / 4 % 6 == 5) out[i] = 100.0 * (double)(i % 3); /* the last position only */
}
TEST(later_positions_do_not_change_earlier_ones, {
    support_outputs got[2];
    for (int i = 0; i < 2; i++) {
        bool changed = i != 0;
        const support_case c = {build_attention, NULL, fill_future, &changed};
        if (!support_run_home(&c, &(support_options){0}, &got[i])) fail_msg("%s", got[i].message);
    }
    const double *a = support_outputs_find(&got[0], "result")->data, *b = support_outputs_find(&got[1], "result")->data;
    for (int i = 0; i < 48; i++)
        if (i / 4 % 6 < 5) assert_true(a[i] == b[i]);
    support_outputs_free(&got[0]);
    support_outputs_free(&got[1]);
})

static tg_tensor build_square_matmul(tg_graph *g, void *user) {
    const int64_t n = *(const int64_t *)user;
    const tg_tensor x = in(g, "x", TG_SHAPE(n, n));
    tg_capture("rows", tg_sum_last(tg_exp(x)));
    return tg_matmul(x, in(g, "y", TG_SHAPE(n, n)));
}
TEST(sizes_around_tiles_are_bit_identical_every_time, {
    static const int64_t sizes[] = {31, 33, 63, 65, 127, 129, 193};
    for (int i = 0; i < SUPPORT_COUNT(sizes); i++) {
        int64_t n = sizes[i];
        const support_case c = {build_square_matmul, &n, NULL, NULL};
        support_outputs want, first, again;
        assert_true(support_run_reference(&c, 1, &want));
        if (!support_run_home(&c, &(support_options){0}, &first)) fail_msg("%s", first.message);
        assert_true(support_outputs_equal("square", &first, &want, (support_tolerance){8, 1e-6 * (double)n, 1e-5}));
        for (int repeat = 0; repeat < (SUPPORT_SANITIZED ? 2 : 10); repeat++) {
            if (!support_run_home(&c, &(support_options){.threads = 1 + repeat % 3}, &again)) fail_msg("%s", again.message);
            assert_true(support_outputs_identical("again", &again, &first));
            support_outputs_free(&again);
        }
        support_outputs_free(&want);
        support_outputs_free(&first);
    }
})

/* ---------------------------------------------------------------- errors while tracing */

typedef tg_tensor (*mistake_fn)(tg_graph *g);
typedef struct mistake {
    mistake_fn make;
    tg_status status;
    const char *says[3];
} mistake;

static tg_tensor build_mistake(tg_graph *g, void *user) { return ((const mistake *)user)->make(g); }

static void check_mistake(mistake m) {
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    assert_non_null(ctx);
    tg_model *model = tg_compile_forward(ctx, build_mistake, &m, NULL);
    if (model) fail_msg("accepted; expected %s", tg_status_name(m.status));
    if (tg_error(ctx) != m.status)
        fail_msg("%s: %s; expected %s", tg_status_name(tg_error(ctx)), tg_error_message(ctx), tg_status_name(m.status));
    for (int i = 0; i < 3 && m.says[i]; i++)
        if (!strstr(tg_error_message(ctx), m.says[i])) fail_msg("'%s' does not name '%s'", tg_error_message(ctx), m.says[i]);
    assert_non_null(strstr(tg_error_site(ctx).file, "test_cases.c"));
    assert_true(tg_error_site(ctx).line > 0);
    tg_context_destroy(ctx);
    assert_int_equal(counts.live_blocks, 0);
    assert_false(counts.size_mismatch);
}
#define MISTAKE(name, ...) \
  static tg_tensor mistake_##name(tg_graph *g) { __VA_ARGS__ }

MISTAKE(loss_shapes, return tg_nn_mse(in(g, "prediction", TG_SHAPE(2, 1)), in(g, "target", TG_SHAPE(2)));)
MISTAKE(zero_size, return tg_sum(in(g, "x", TG_SHAPE(2, 0)), TG_AXES(1));)
MISTAKE(count_wraps_to_0, return tg_exp(in(g, "x", TG_SHAPE(65536, 65536)));)
MISTAKE(count_is_negative, return tg_exp(in(g, "x", TG_SHAPE(46341, 46341)));)
MISTAKE(count_by_broadcast, return tg_add(in(g, "x", TG_SHAPE(65536, 1)), in(g, "y", TG_SHAPE(65536)));)
MISTAKE(reshape, return tg_reshape(in(g, "x", TG_SHAPE(6)), TG_SHAPE(4, -1));)
MISTAKE(inner, return tg_matmul(in(g, "x", TG_SHAPE(256, 64)), tg_param(g, "l2.W", TG_SHAPE(32, 10), .init = tg_init_zeros()));)
MISTAKE(duplicate, tg_param(g, "w", TG_SHAPE(2), .init = tg_init_zeros()); return tg_param(g, "w", TG_SHAPE(2), .init = tg_init_zeros());)
MISTAKE(half_of_i32, return tg_mul(tg_input(g, "i", TG_SHAPE(2), TG_I32), 0.5);)
MISTAKE(rank_1_loss, const tg_tensor x = in(g, "x", TG_SHAPE(2)); tg_tensor d; tg_grad(x, &x, 1, &d); return d;)
MISTAKE(gradient_of_argmax, const tg_tensor x = in(g, "x", TG_SHAPE(2)); tg_tensor d; tg_grad(tg_argmax(x, 0), &x, 1, &d); return d;)

TEST(a_loss_never_broadcasts, { check_mistake((mistake){mistake_loss_shapes, TG_ERROR_SHAPE, {"[2, 1]", "[2]", "mse"}}); })
TEST(zero_sized_axes_are_refused, { check_mistake((mistake){mistake_zero_size, TG_ERROR_SHAPE, {"0"}}); })
TEST(element_counts_beyond_31_bits_are_refused, {
    check_mistake((mistake){mistake_count_wraps_to_0, TG_ERROR_LIMIT, {"65536"}});
    check_mistake((mistake){mistake_count_is_negative, TG_ERROR_LIMIT, {"46341"}});
    check_mistake((mistake){mistake_count_by_broadcast, TG_ERROR_LIMIT, {"65536"}});
})
TEST(mistakes_name_op_shapes_and_tensors, {
    check_mistake((mistake){mistake_reshape, TG_ERROR_SHAPE, {"reshape", "x[6]"}});
    check_mistake((mistake){mistake_inner, TG_ERROR_SHAPE, {"matmul: inner dimensions differ: x[256, 64] x l2.W[32, 10] (64 != 32)"}});
    check_mistake((mistake){mistake_duplicate, TG_ERROR_DUPLICATE, {"w"}});
    check_mistake((mistake){mistake_half_of_i32, TG_ERROR_DTYPE, {"0.5"}});
})
TEST(a_gradient_that_does_not_exist_is_an_error, {
    check_mistake((mistake){mistake_rank_1_loss, TG_ERROR_GRADIENT, {"rank 0"}});
    check_mistake((mistake){mistake_gradient_of_argmax, TG_ERROR_GRADIENT, {"i32"}});
})

static tg_tensor stolen;
static tg_tensor build_stealing(tg_graph *g, void *user) {
    const tg_tensor x = in(g, "x", TG_SHAPE(2));
    if (user) return tg_add(x, stolen);
    stolen = x;
    return x;
}
TEST(a_tensor_of_another_trace_is_an_error, {
    tg_context *ctx = support_context();
    tg_tensor result;
    tg_graph *first = tg_trace(ctx, build_stealing, NULL, &result);
    assert_non_null(first);
    int yes = 1;
    tg_model *model = tg_compile_forward(ctx, build_stealing, &yes, NULL);
    assert_null(model);
    assert_int_equal(tg_error(ctx), TG_ERROR_TRACE);
    tg_graph_destroy(first);
    tg_context_destroy(ctx);
})

/* ---------------------------------------------------------------- training */

static void finish(tg_context *ctx, tg_model *model) {
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void check_ok(tg_model *model, tg_status status) { ok(tg_model_context(model), status); }

static const float one_and_two[] = {1, 2}, one[] = {1};

static tg_tensor build_scaled(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(1), .init = tg_init_literal(one, 1));
    return tg_sum_all(tg_mul(p, in(g, "g", TG_SHAPE(1))));
}
TEST(resuming_keeps_moments_and_step_count, {
    tg_context *ctx = support_context();
    char path[600];
    support_path(path, sizeof path, "cases.safetensors");
    tg_model *model = compile(ctx, build_scaled, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    const float gradients[] = {1.0f, -.5f, .25f};
    float loss;
    for (int i = 0; i < 2; i++) check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", &gradients[i], 1)}, 1, &loss));
    expect_param(model, "p", (const float[]){.8733663f}, 1, 1e-6);
    check_ok(model, tg_model_save(model, path));
    tg_model_destroy(model);
    model = compile(ctx, build_scaled, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    check_ok(model, tg_model_load(model, path));
    remove(path);
    assert_int_equal(tg_model_step_count(model), 2);
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", &gradients[2], 1)}, 1, &loss));
    expect_param(model, "p", (const float[]){.8393234f}, 1, 1e-6);
    finish(ctx, model);
})

static tg_tensor build_unused(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(2), .init = tg_init_literal(one_and_two, 2));
    tg_param(g, "unused", TG_SHAPE(2), .init = tg_init_literal(one_and_two, 2));
    return tg_sum_all(tg_square(w));
}
TEST(a_parameter_the_loss_does_not_use, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_unused, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    float loss, gradient[2] = {7, 7};
    check_ok(model, tg_step(model, NULL, 0, &loss));
    check_ok(model, tg_param_grad_download(model, "unused", gradient, 2));
    assert_true(gradient[0] == 0 && gradient[1] == 0);
    expect_param(model, "unused", one_and_two, 2, 0);
    tg_model_destroy(model);
    model = compile(ctx, build_unused, NULL, tg_adam(.lr = tg_lr_constant(.1), .weight_decay = .5)); /* decay still applies */
    check_ok(model, tg_step(model, NULL, 0, &loss));
    expect_param(model, "unused", (const float[]){.95f, 1.9f}, 2, 1e-6);
    finish(ctx, model);
})

static tg_tensor build_twins(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor a = tg_param(g, "a", TG_SHAPE(2), .init = tg_init_ones()), b = tg_param(g, "b", TG_SHAPE(2), .init = tg_init_ones());
    return tg_sum_all(tg_mul(tg_add(a, b), in(g, "x", TG_SHAPE(2))));
}
TEST(two_parameters_with_one_gradient, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_twins, NULL, tg_sgd(.lr = tg_lr_constant(1)));
    float loss, a[2], b[2];
    const float x[] = {3, -4};
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("x", x, 2)}, 1, &loss));
    check_ok(model, tg_param_grad_download(model, "a", a, 2));
    check_ok(model, tg_param_grad_download(model, "b", b, 2));
    assert_true(a[0] == 3 && a[1] == -4 && b[0] == 3 && b[1] == -4);
    expect_param(model, "b", (const float[]){-2, 5}, 2, 0);
    finish(ctx, model);
})

static tg_tensor build_rows(tg_graph *g, void *user) {
    const int64_t n = *(const int64_t *)user;
    const bool mean = n < 0;
    const tg_tensor x = in(g, "x", TG_SHAPE(mean ? -n : n, 2)),
                    w = tg_param(g, "w", TG_SHAPE(2, 1), .init = tg_init_literal(one_and_two, 2));
    const tg_tensor y = tg_square(tg_matmul(x, w));
    return mean ? tg_mean(y, TG_ALL) : tg_sum_all(y);
}
TEST(doubling_the_batch_doubles_a_summed_gradient_only, {
    static const float x[] = {1, 2, -3, .5f, 2, 2, 1, 2, -3, .5f, 2, 2};
    float gradient[4][2], loss;
    static const int64_t sizes[] = {3, 6, -3, -6};
    for (int i = 0; i < 4; i++) {
        tg_context *ctx = support_context();
        int64_t n = sizes[i];
        tg_model *model = compile(ctx, build_rows, &n, (tg_optimizer){0});
        check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("x", x, 2 * (n < 0 ? -n : n))}, 1, &loss));
        check_ok(model, tg_param_grad_download(model, "w", gradient[i], 2));
        finish(ctx, model);
    }
    for (int k = 0; k < 2; k++) {
        assert_true(fabsf(gradient[1][k] - 2 * gradient[0][k]) <= 1e-5f * fabsf(gradient[1][k]));
        assert_true(fabsf(gradient[3][k] - gradient[2][k]) <= 1e-5f * fabsf(gradient[3][k]));
    }
})

static tg_tensor build_input_gradient(tg_graph *g, void *user) {
    const tg_tensor x = in(g, "x", TG_SHAPE(4, 3));
    const tg_linear a = tg_nn_linear(g, "a", 3, 8), b = tg_nn_linear(g, "b", 8, 1);
    const tg_tensor loss = tg_mean(tg_square(tg_nn_linear_fwd(b, tg_relu(tg_nn_linear_fwd(a, x)))), TG_ALL);
    tg_tensor d;
    if (*(const bool *)user) {
        tg_grad(loss, &x, 1, &d);
        tg_capture("dx", d);
    }
    return loss;
}
TEST(parameter_gradients_do_not_depend_on_the_input_gradient, {
    static const float x[] = {1, 2, -3, .5f, 2, 2, 1, 2, -3, .5f, 2, 2};
    float gradient[2][24], loss[2];
    for (int i = 0; i < 2; i++) {
        tg_context *ctx = support_context();
        bool wanted = i != 0;
        tg_captures *captures = NULL;
        tg_model *model = compile(ctx, build_input_gradient, &wanted, (tg_optimizer){0});
        check_ok(model, tg_step_captures(model, (const tg_feed[]){tg_feed_f32("x", x, 12)}, 1, &loss[i], &captures));
        tg_captures_destroy(captures);
        check_ok(model, tg_param_grad_download(model, "a.W", gradient[i], 24));
        finish(ctx, model);
    }
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
})

TEST(warm_up_meets_what_follows, {
    const tg_lr schedule = tg_lr_warmup(.1, 4, tg_lr_linear_decay(.1, 0, 10));
    static const double want[] = {.025, .05, .075, .1, .09, .08};
    for (int t = 1; t <= 6; t++) assert_true(fabs(tg_lr_value(schedule, t) - want[t - 1]) < 1e-9);
})

static tg_tensor build_tied(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor e = tg_param(g, "embedding", TG_SHAPE(4, 2), .init = tg_init_randn(1.0));
    const tg_tensor x = tg_embedding(e, tg_input(g, "i", TG_SHAPE(3), TG_I32));
    return tg_nn_cross_entropy(tg_matmul(x, tg_transpose(e, TG_AXES(1, 0))), tg_input(g, "t", TG_SHAPE(3), TG_I32), -1);
}
TEST(a_tied_parameter_counts_once, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_tied, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    tg_model_info info;
    assert_int_equal(tg_model_param_count(model), 1);
    check_ok(model, tg_model_get_info(model, &info));
    assert_int_equal(info.parameters, 8);
    finish(ctx, model);
})

static void check_refused(tg_model *model, const int32_t *indices, const int32_t *targets, const char *says) {
    float before[8], after[8], loss = 77;
    const int64_t steps = tg_model_step_count(model);
    check_ok(model, tg_param_download(model, "embedding", before, 8));
    const tg_feed feeds[] = {tg_feed_i32("i", indices, 3), tg_feed_i32("t", targets, 3)};
    assert_int_equal(tg_step(model, feeds, 2, &loss), TG_ERROR_INDEX);
    if (!strstr(tg_error_message(tg_model_context(model)), says))
        fail_msg("'%s' does not name %s", tg_error_message(tg_model_context(model)), says);
    tg_clear_error(tg_model_context(model));
    check_ok(model, tg_param_download(model, "embedding", after, 8));
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(tg_model_step_count(model), steps);
    assert_true(loss == 77);
}
TEST(an_index_outside_its_table_is_reported_and_changes_nothing, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_tied, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    static const int32_t fine[] = {0, 1, 3}, over[] = {0, 4, 1}, under[] = {0, 1, -2}, ignored[] = {-1, 2, -1};
    check_refused(model, over, fine, "4");
    check_refused(model, under, fine, "-2");
    check_refused(model, fine, over, "4");
    check_refused(model, fine, under, "-2");
    float loss;
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_i32("i", fine, 3), tg_feed_i32("t", ignored, 3)}, 2, &loss));
    assert_int_equal(tg_model_step_count(model), 1);
    finish(ctx, model);
})

TEST(a_rejected_step_changes_nothing, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_scaled, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    const float g[] = {1, 2};
    const int32_t i[] = {1};
    float loss;
    assert_int_equal(tg_step(model, NULL, 0, &loss), TG_ERROR_NOT_FOUND);
    tg_clear_error(ctx);
    assert_int_not_equal(tg_step(model, (const tg_feed[]){tg_feed_f32("g", g, 2)}, 1, &loss), TG_OK);
    tg_clear_error(ctx);
    assert_int_not_equal(tg_step(model, (const tg_feed[]){tg_feed_i32("g", i, 1)}, 1, &loss), TG_OK);
    tg_clear_error(ctx);
    assert_int_not_equal(tg_step(model, (const tg_feed[]){tg_feed_f32("g", g, 1), tg_feed_f32("h", g, 1)}, 2, &loss), TG_OK);
    tg_clear_error(ctx);
    assert_int_not_equal(tg_step(model, (const tg_feed[]){tg_feed_f32("g", g, 1), tg_feed_f32("g", g, 1)}, 2, &loss), TG_OK);
    tg_clear_error(ctx);
    assert_int_equal(tg_model_step_count(model), 0);
    expect_param(model, "p", one, 1, 0);
    for (int k = 0; k < 2; k++)
        check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", g, 1)}, 1, &loss)); /* the same array twice */
    assert_int_equal(tg_model_step_count(model), 2);
    finish(ctx, model);
})

TEST(a_loss_that_is_not_finite_says_so, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_scaled, NULL, tg_sgd(.lr = tg_lr_constant(.1)));
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        float loss = 0;
        assert_int_equal(tg_step(model, (const tg_feed[]){tg_feed_f32("g", &bad[i], 1)}, 1, &loss), TG_ERROR_NOT_FINITE);
        const bool finite = isfinite(loss) != 0;
        assert_false(finite);
        tg_clear_error(ctx);
        check_ok(model, tg_model_reset(model));
    }
    finish(ctx, model);
})

TEST(upload_checks_names_and_lengths_before_it_writes, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_twins, NULL, (tg_optimizer){0});
    const float v[] = {5, 6, 7};
    assert_int_not_equal(tg_params_upload(model, (const tg_feed[]){tg_feed_f32("a", v, 2)}, 1, false), TG_OK); /* b is missing */
    tg_clear_error(ctx);
    assert_int_equal(tg_params_upload(model, (const tg_feed[]){tg_feed_f32("a", v, 2), tg_feed_f32("c", v, 2)}, 2, true),
                     TG_ERROR_NOT_FOUND);
    assert_non_null(strstr(tg_error_message(ctx), "b"));
    tg_clear_error(ctx);
    assert_int_not_equal(tg_params_upload(model, (const tg_feed[]){tg_feed_f32("a", v, 2), tg_feed_f32("b", v, 3)}, 2, false), TG_OK);
    tg_clear_error(ctx);
    expect_param(model, "a", (const float[]){1, 1}, 2, 0);
    check_ok(model, tg_params_upload(model, (const tg_feed[]){tg_feed_f32("a", v, 2)}, 1, true));
    expect_param(model, "a", v, 2, 0);
    expect_param(model, "b", (const float[]){1, 1}, 2, 0);
    finish(ctx, model);
})

TEST(reset_gives_the_initial_values_again, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_tied, NULL, tg_adam(.lr = tg_lr_constant(.1))),
             *other = compile(ctx, build_tied, NULL, tg_adam(.lr = tg_lr_constant(.1)));
    static const int32_t i[] = {0, 1, 3}, t[] = {1, 2, 0};
    const tg_feed feeds[] = {tg_feed_i32("i", i, 3), tg_feed_i32("t", t, 3)};
    float start[8], again[8], losses[2][3];
    check_ok(model, tg_param_download(model, "embedding", start, 8));
    check_ok(other, tg_param_download(other, "embedding", again, 8));
    assert_memory_equal(start, again, sizeof start); /* the same seed */
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < 3; k++) check_ok(model, tg_step(model, feeds, 2, &losses[round][k]));
        check_ok(model, tg_model_reset(model));
        check_ok(model, tg_param_download(model, "embedding", again, 8));
        assert_memory_equal(start, again, sizeof start);
        assert_int_equal(tg_model_step_count(model), 0);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    tg_model_destroy(other);
    finish(ctx, model);
})

static tg_tensor build_decay(tg_graph *g, void *user) {
    (void)user;
    const tg_linear l = tg_nn_linear(g, "l", 2, 2);
    const tg_layer_norm n = tg_nn_layer_norm(g, "n", 2);
    return tg_mul(tg_sum_all(tg_nn_layer_norm_fwd(n, tg_nn_linear_fwd(l, in(g, "x", TG_SHAPE(1, 2))))), 0.0);
}
TEST(weight_decay_leaves_biases_and_gains_alone, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_decay, NULL, tg_sgd(.lr = tg_lr_constant(.5), .weight_decay = .5));
    const float x[] = {1, 2};
    float before[4], after[4], loss;
    check_ok(model, tg_param_upload(model, "l.b", one_and_two, 2));
    check_ok(model, tg_param_download(model, "l.W", before, 4));
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("x", x, 2)}, 1, &loss));
    check_ok(model, tg_param_download(model, "l.W", after, 4));
    for (int i = 0; i < 4; i++) assert_true(fabsf(after[i] - .75f * before[i]) <= 1e-6f);
    expect_param(model, "l.b", one_and_two, 2, 0);
    expect_param(model, "n.g", (const float[]){1, 1}, 2, 0);
    finish(ctx, model);
})

TEST(a_new_schedule_begins_now_and_governs_decay, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_scaled, NULL, tg_sgd(.lr = tg_lr_constant(.5), .weight_decay = .5));
    const float zero[] = {0}, g[] = {1};
    float loss;
    for (int k = 0; k < 5; k++) check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", zero, 1)}, 1, &loss));
    check_ok(model, tg_param_upload(model, "p", one, 1));
    check_ok(model, tg_model_set_lr(model, tg_lr_constant(0)));
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", zero, 1)}, 1, &loss));
    expect_param(model, "p", one, 1, 0); /* a rate of 0 stops decoupled decay */
    check_ok(model, tg_model_reset_optimizer(model));
    check_ok(model, tg_model_set_lr(model, tg_lr_linear_decay(.1, 0, 100)));
    check_ok(model, tg_step(model, (const tg_feed[]){tg_feed_f32("g", g, 1)}, 1, &loss));
    const double rate = .1 * 99 / 100;
    expect_param(model, "p", (const float[]){(float)((1 - rate * .5) - rate)}, 1, 1e-6);
    finish(ctx, model);
})

static tg_tensor build_integers(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(3), TG_I32);
    tg_capture("double", tg_mul(x, 2.0));
    tg_capture("positive", tg_greater(x, 0.0));
    return tg_add(x, 1.0);
}
TEST(integer_and_bool_outputs_come_back_as_such, {
    tg_context *ctx = support_context();
    tg_model *model = tg_compile_forward(ctx, build_integers, NULL, NULL);
    support_assert_no_error(ctx);
    assert_int_equal(tg_model_output_dtype(model), TG_I32);
    static const int32_t x[] = {1, -2, 16777217};
    int32_t out[3];
    tg_captures *captures = NULL;
    tg_dtype dtype;
    check_ok(model, tg_run_captures(model, (const tg_feed[]){tg_feed_i32("x", x, 3)}, 1, out, 3, &captures));
    assert_int_equal(out[2], 16777218);
    const int32_t *twice = tg_captures_get(captures, "double", NULL, &dtype);
    assert_int_equal(dtype, TG_I32);
    assert_int_equal(twice[1], -4);
    const uint8_t *positive = tg_captures_get(captures, "positive", NULL, &dtype);
    assert_int_equal(dtype, TG_BOOL);
    assert_true(positive[0] == 1 && positive[1] == 0);
    tg_captures_destroy(captures);
    finish(ctx, model);
})

TEST(memory_does_not_grow_with_steps, {
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    assert_non_null(ctx);
    tg_model *model = compile(ctx, build_tied, NULL, tg_adam(.lr = tg_lr_constant(.01)));
    static const int32_t i[] = {0, 1, 3}, t[] = {1, 2, 0};
    const tg_feed feeds[] = {tg_feed_i32("i", i, 3), tg_feed_i32("t", t, 3)};
    float loss;
    check_ok(model, tg_step(model, feeds, 2, &loss));
    const int64_t calls = counts.calls, bytes = counts.live_bytes;
    for (int k = 0; k < 200; k++) check_ok(model, tg_step(model, feeds, 2, &loss));
    assert_int_equal(counts.calls, calls);
    assert_int_equal(counts.live_bytes, bytes);
    finish(ctx, model);
    assert_int_equal(counts.live_blocks, 0);
    assert_false(counts.size_mismatch);
})

static tg_tensor build_mean(tg_graph *g, void *user) {
    (void)user;
    return tg_mean(in(g, "x", TG_SHAPE(1000000)), TG_ALL);
}
static void fill_tenth(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)user;
    (void)name;
    (void)shape;
    (void)dtype;
    for (int64_t i = 0; i < count; i++) out[i] = 0.1;
}
TEST(a_long_sum_keeps_its_accuracy, {
    const support_case c = {build_mean, NULL, fill_tenth, NULL};
    support_outputs got;
    for (int threads = 1; threads <= 2; threads++) {
        if (!support_run_home(&c, &(support_options){.threads = threads}, &got)) fail_msg("%s", got.message);
        expect_near(&got, "result", 0, (double)0.1f, 2e-6);
        support_outputs_free(&got);
    }
})

/* x [3, 4] W [4, 5], tanh, V [5, 2] + b, squared */
static tg_tensor build_matrices(tg_graph *g, void *user) {
    static float values[20];
    (void)user;
    for (int i = 0; i < 20; i++) values[i] = (float)((i * 7) % 11 - 5) / 10;
    const tg_tensor w = tg_param(g, "W", TG_SHAPE(4, 5), .init = tg_init_literal(values, 20));
    const tg_tensor v = tg_param(g, "V", TG_SHAPE(5, 2), .init = tg_init_literal(values, 10));
    const tg_tensor b = tg_param(g, "b", TG_SHAPE(2), .init = tg_init_zeros());
    const tg_tensor hidden = tg_tanh(tg_matmul(in(g, "x", TG_SHAPE(3, 4)), w));
    return tg_sum_all(tg_square(tg_sub(tg_add(tg_matmul(hidden, v), b), 0.5)));
}
static tg_tensor build_hidden(tg_graph *g, void *user) {
    (void)user;
    return tg_matmul(in(g, "x", TG_SHAPE(3, 4)), tg_param(g, "W", TG_SHAPE(4, 5)));
}
enum { OPTIMIZERS = 9, OPTIMIZER_STEPS = 5, OPTIMIZER_VALUES = 20 + 10 + 2 + 15 };
static tg_optimizer nth_optimizer(int i) {
    static const tg_param_group groups[] = {{.pattern = "V", .rate = 0.5, .weight_decay = 0.2}};
    static const tg_param_group plain[] = {{.pattern = "V", .rate = 0.5, .weight_decay = 0.2, .plain = true}};
    const tg_lr rate = tg_lr_constant(0.02);
    switch (i) {
    case 0: return tg_sgd(.lr = tg_lr_one_cycle(0.02, 5), .momentum = 0.5, .clip_value = 0.3, .average = 0.5);
    case 1: return tg_adam(.lr = tg_lr_staircase(0.02, 0.5, 2), .accumulate = 2, .average = 0.9);
    case 2: return tg_adamw(.lr = rate, .normalize = true, .groups = groups, .group_count = 1, .average = 0.5);
    case 3: return tg_lion(.lr = rate, .weight_decay = 0.1, .average = 0.5);
    case 4: return tg_rmsprop(.lr = rate, .momentum = 0.5, .eps = 1e-3, .average = 0.5);
    case 5: return tg_adagrad(.lr = tg_lr_multi_step(0.05, 0.5, (const int64_t[]){1, 3}, 2), .eps = 1e-3, .average = 0.5);
    case 6: return tg_muon(.lr = rate, .average = 0.5);
    case 7: return tg_muon(.lr = rate, .groups = plain, .group_count = 1, .weight_decay = 0.1, .clip_norm = 0.5, .average = 0.5);
    default: return tg_sgd(.lr = tg_lr_warmup(0.02, 2, tg_lr_cosine_decay(0.02, 0, 3)), .momentum = 0.9, .nesterov = true, .average = 0.5);
    }
}
/* Parameters, and what a sibling over the averages gives, after some steps. */
static void optimizer_values(tg_device_kind device, bool no_fusion, int i, float out[OPTIMIZER_VALUES]) {
    static const float x[12] = {1, -1, 0.5f, 2, 0.25f, 1, -0.5f, -2, 1.5f, 0.75f, 1, -1};
    const tg_feed feed = tg_feed_f32("x", x, 12);
    tg_context *ctx = support_context();
    const tg_compile_options options = {.optimizer = nth_optimizer(i), .device = device, .threads = 1, .no_fusion = no_fusion};
    tg_model *model = tg_compile(ctx, build_matrices, NULL, &options);
    if (!model) fail_msg("optimiser %d: %s", i, tg_error_message(ctx));
    tg_model *average = tg_compile_average(model, build_hidden, NULL);
    if (!average) fail_msg("optimiser %d: %s", i, tg_error_message(ctx));
    float loss, first = 0;
    for (int step = 0; step < OPTIMIZER_STEPS; step++) {
        check_ok(model, tg_step(model, &feed, 1, &loss));
        if (step == 0) first = loss;
    }
    if (!(loss < first)) fail_msg("optimiser %d: from %g to %g", i, (double)first, (double)loss);
    check_ok(model, tg_param_download(model, "W", out, 20));
    check_ok(model, tg_param_download(model, "V", out + 20, 10));
    check_ok(model, tg_param_download(model, "b", out + 30, 2));
    check_ok(average, tg_run(average, &feed, 1, out + 32, 15));
    finish(ctx, model);
}
TEST(every_optimizer_does_the_same_everywhere, {
    for (int i = 0; i < OPTIMIZERS; i++) {
        float want[OPTIMIZER_VALUES];
        float got[OPTIMIZER_VALUES];
        optimizer_values(TG_DEVICE_CPU, true, i, want);
        optimizer_values(support_device(), false, i, got);
        for (int k = 0; k < OPTIMIZER_VALUES; k++)
            if (!(fabs((double)(got[k] - want[k])) <= 2e-4 * fmax(1, fabs((double)want[k]))))
                fail_msg("optimiser %d, value %d: got %.9g, want %.9g", i, k, (double)got[k], (double)want[k]);
    }
})

static tg_tensor build_parent(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(1), .init = tg_init_literal(one, 1));
    return tg_sum_all(tg_mul(p, in(g, "g", TG_SHAPE(1))));
}
static tg_tensor build_sibling(tg_graph *g, void *user) {
    (void)user;
    return tg_mul(tg_param(g, "p", TG_SHAPE(1), .init = tg_init_zeros()), 10.0);
}
TEST(a_sibling_sees_its_parents_parameters, {
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    assert_non_null(ctx);
    tg_model *parent = compile(ctx, build_parent, NULL, tg_sgd(.lr = tg_lr_constant(.25)));
    tg_model *sibling = tg_compile_sibling(parent, build_sibling, NULL);
    if (!sibling) fail_msg("%s", tg_error_message(ctx));
    float out[1], loss;
    check_ok(sibling, tg_run(sibling, NULL, 0, out, 1));
    assert_true(out[0] == 10.0f);
    check_ok(parent, tg_step(parent, (const tg_feed[]){tg_feed_f32("g", one, 1)}, 1, &loss));
    check_ok(sibling, tg_run(sibling, NULL, 0, out, 1));
    assert_true(out[0] == 7.5f);
    finish(ctx, parent); /* cascades to the sibling */
    assert_int_equal(counts.live_blocks, 0);
})

#define CASE(name) cmocka_unit_test(test_##name)

int main(void) {
    const int refused = support_home_refuses("cases");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {CASE(every_optimizer_does_the_same_everywhere),
                                       CASE(gradient_of_the_branch_not_taken_is_ieee),
                                       CASE(norm_at_the_zero_vector),
                                       CASE(relu_gradient_at_zero_and_near_it),
                                       CASE(ties_of_a_max_reduction_share_the_cotangent),
                                       CASE(softmax_is_not_differentiated_through_its_maximum),
                                       CASE(unbroadcast_over_two_axes_at_once),
                                       CASE(max_over_a_middle_axis),
                                       CASE(axis_numbers_after_leading_axes_were_summed),
                                       CASE(std_of_constant_input),
                                       CASE(pow_of_negative_and_zero_bases),
                                       CASE(vjp_uses_its_cotangent),
                                       CASE(a_comparison_inside_has_no_gradient),
                                       CASE(zero_initialised_parameters_in_a_fused_graph),
                                       CASE(the_same_function_twice_in_one_kernel),
                                       CASE(every_target_ignored_is_zero),
                                       CASE(padding_does_not_count_in_a_masked_loss),
                                       CASE(softplus_and_bce_have_their_gradient_at_zero),
                                       CASE(many_contributions_to_one_embedding_row),
                                       CASE(identities_of_i32_reductions),
                                       CASE(i32_division_is_integer_division),
                                       CASE(matmul_with_k_of_1_and_a_broadcast_batch),
                                       CASE(nan_goes_through_relu_clamp_and_max),
                                       CASE(a_minimum_by_hand_is_not_the_minimum_op),
                                       CASE(literals_come_back_bit_for_bit),
                                       CASE(casts_saturate),
                                       CASE(sine_and_cosine_of_large_arguments),
                                       CASE(sigmoid_does_not_overflow),
                                       CASE(a_fully_masked_row_over_finite_fills_is_uniform),
                                       CASE(gelu_is_the_exact_form),
                                       CASE(more_operands_than_a_kernel_can_bind),
                                       CASE(an_update_in_place_that_reads_its_own_transpose),
                                       CASE(more_than_65535_workgroups),
                                       CASE(chains_of_equal_sizes_under_memory_reuse),
                                       CASE(the_weight_gradient_is_not_materialised_per_batch),
                                       CASE(dead_forward_and_backward_work_costs_nothing),
                                       CASE(layer_norm_backward_for_every_rank),
                                       CASE(later_positions_do_not_change_earlier_ones),
                                       CASE(sizes_around_tiles_are_bit_identical_every_time),
                                       CASE(a_loss_never_broadcasts),
                                       CASE(zero_sized_axes_are_refused),
                                       CASE(element_counts_beyond_31_bits_are_refused),
                                       CASE(mistakes_name_op_shapes_and_tensors),
                                       CASE(a_gradient_that_does_not_exist_is_an_error),
                                       CASE(a_tensor_of_another_trace_is_an_error),
                                       CASE(resuming_keeps_moments_and_step_count),
                                       CASE(a_parameter_the_loss_does_not_use),
                                       CASE(two_parameters_with_one_gradient),
                                       CASE(doubling_the_batch_doubles_a_summed_gradient_only),
                                       CASE(parameter_gradients_do_not_depend_on_the_input_gradient),
                                       CASE(warm_up_meets_what_follows),
                                       CASE(a_tied_parameter_counts_once),
                                       CASE(an_index_outside_its_table_is_reported_and_changes_nothing),
                                       CASE(a_rejected_step_changes_nothing),
                                       CASE(a_loss_that_is_not_finite_says_so),
                                       CASE(upload_checks_names_and_lengths_before_it_writes),
                                       CASE(reset_gives_the_initial_values_again),
                                       CASE(weight_decay_leaves_biases_and_gains_alone),
                                       CASE(a_new_schedule_begins_now_and_governs_decay),
                                       CASE(integer_and_bool_outputs_come_back_as_such),
                                       CASE(memory_does_not_grow_with_steps),
                                       CASE(a_long_sum_keeps_its_accuracy),
                                       CASE(a_sibling_sees_its_parents_parameters)};
    return cmocka_run_group_tests_name("cases", tests, NULL, NULL);
}
