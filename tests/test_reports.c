/* Cases from public bug reports of other systems (frameworks, compilers, runtimes), one test each,
 * named after its number and kind: what went wrong there must be right here, alone in a kernel and
 * together with other operations. Values are by definition or were computed in f64. Also the same
 * kind of fault in other operations. numeric.h says how numeric cases run. */
#define NUMERIC_IN_COMPANY
#include "numeric.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INF ((double)INFINITY)
#define NOT_A_NUMBER ((double)NAN)

/* y = f(x), dx under "cot" as "d0", and as "dd" the gradient by x of the sum of `weight` dx, weight 1, 2, 3 .. along the last axis */
static tg_tensor with_second(tg_graph *g, tg_tensor y, tg_tensor x) {
    tg_tensor dx, dd;
    tg_vjp(y, tg_input(g, "cot", tg_tensor_shape(y), TG_F32), &x, 1, &dx);
    tg_capture("d0", dx);
    const tg_shape shape = tg_tensor_shape(x);
    const tg_tensor weight = tg_add(tg_cast(tg_arange(g, shape.dim[shape.rank - 1], TG_I32), TG_F32), 1.0);
    tg_grad(tg_sum_all(tg_mul(dx, weight)), &x, 1, &dd);
    tg_capture("dd", dd);
    return y;
}
#define BUILD_SECOND(name, shape, ...) BUILD(name, const tg_tensor x = in(g, "x", shape); return with_second(g, __VA_ARGS__, x);)

/* ---- squares that overflow or underflow though the result fits */

BUILD_SECOND(norm, TG_SHAPE(3), tg_norm(x, TG_ALL))
TEST(N10_norm_of_large_and_small_numbers, {
    CHECK(build_norm, FEEDS(FED("x", 3e20, 4e20, 0), FED("cot", 1)), WANT("result", 5e20), WANT("d0", .6, .8, 0));
    CHECK(build_norm, FEEDS(FED("x", 3e-25, 4e-25, 0), FED("cot", 1)), {"result", LIST(5e-25), 1e-5, 0}, WANT("d0", .6, .8, 0));
    CHECK(build_norm, FEEDS(FED("x", 3e-37, -4e-37, 0), FED("cot", 2)), {"result", LIST(5e-37), 1e-5, 0}, WANT("d0", 1.2, -1.6, 0));
    CHECK(build_norm, FEEDS(FED("x", 1.5e38, 0, -2e38), FED("cot", 1)), WANT("result", 2.5e38), WANT("d0", .6, 0, -.8));
    CHECK(build_norm, FEEDS(FED("x", 3, 4, 0), FED("cot", 1)), EXACTLY("result", 5), WANT("d0", .6, .8, 0),
          WANT("dd", -.064, .048, .6)); /* (w - (w . u) u) / |x|, w = 1 2 3, u = x / |x| */
    CHECK(build_norm, FEEDS(FED("x", 3e20, 4e20, 0), FED("cot", 1)), {"dd", LIST(-.064e-20, .048e-20, .6e-20), 1e-5, 0});
    CHECK(build_norm, FEEDS(FED("x", 3e-20, 4e-20, 0), FED("cot", 1)), {"dd", LIST(-.064e20, .048e20, .6e20), 1e-5, 0});
    CHECK(build_norm, FEEDS(FED("x", 0, 0, 0), FED("cot", 1)), EXACTLY("result", 0), EXACTLY("d0", 0, 0, 0));
    CHECK(build_norm, FEEDS(FED("x", -INF, 1, 0), FED("cot", 1)), EXACTLY("result", INF));
    CHECK(build_norm, FEEDS(FED("x", NOT_A_NUMBER, 1, 0), FED("cot", 1)), EXACTLY("result", NOT_A_NUMBER));
})

BUILD_GRADIENT(norm_rows, TG_SHAPE(3, 2), tg_norm(x, TG_AXES(-1), .keepdims = true))
BUILD_GRADIENT(norm_columns, TG_SHAPE(2, 3), tg_norm(x, TG_AXES(0)))
BUILD_GRADIENT(norm_1, TG_SHAPE(2), tg_norm(x, TG_ALL, .ord = 1))
BUILD_GRADIENT(norm_inf, TG_SHAPE(2), tg_norm(x, TG_ALL, .ord = INFINITY))
TEST(N10_norms_of_rows_of_different_sizes, {
    CHECK(build_norm_rows, FEEDS(FED("x", 3e20, 4e20, 3, 4, 3e-25, 4e-25), FED("cot", 1, 1, 1)), {"result", LIST(5e20, 5, 5e-25), 1e-5, 0},
          WANT("d0", .6, .8, .6, .8, .6, .8));
    CHECK(build_norm_columns, FEEDS(FED("x", 3e20, 3, 3e-25, 4e20, 4, 4e-25), FED("cot", 1, 1, 1)),
          {"result", LIST(5e20, 5, 5e-25), 1e-5, 0}, WANT("d0", .6, .6, .6, .8, .8, .8));
    CHECK(build_norm_1, FEEDS(FED("x", -3e20, 4e20), FED("cot", 1)), WANT("result", 7e20), EXACTLY("d0", -1, 1));
    CHECK(build_norm_inf, FEEDS(FED("x", 3e-25, -4e-25), FED("cot", 1)), {"result", LIST(4e-25), 1e-6, 0}, EXACTLY("d0", 0, -1));
})

BUILD_SECOND(std4, TG_SHAPE(4), tg_std(x, TG_ALL))
BUILD_GRADIENT(std_bessel, TG_SHAPE(4), tg_std(x, TG_ALL, .correction = 1))
BUILD_GRADIENT(variance2, TG_SHAPE(2), tg_variance(x, TG_ALL))
TEST(N12_std_of_large_and_small_numbers, {
    const double d[4] = {.111803399, -.335410197, .335410197, -.111803399};
    CHECK(build_std4, FEEDS(FED("x", 1e20, -1e20, 2e20, 0), FED("cot", 1)), WANT("result", 1.11803399e20), {"d0", d, 4, 1e-5, 1e-6});
    CHECK(build_std4, FEEDS(FED("x", 1e-25, -1e-25, 2e-25, 0), FED("cot", 1)), {"result", LIST(1.11803399e-25), 1e-5, 0},
          {"d0", d, 4, 1e-5, 1e-6});
    CHECK(build_std4, FEEDS(FED("x", 1, -1, 2, 0), FED("cot", 1)), WANT("result", 1.11803399), {"d0", d, 4, 1e-5, 1e-6},
          WANT("dd", -.33541020, -.11180340, .11180340, .33541020));
    CHECK(build_std_bessel, FEEDS(FED("x", 1e20, -1e20, 2e20, 0), FED("cot", 1)), WANT("result", 1.29099445e20));
    CHECK(build_std4, FEEDS(FED("x", 5e20, 5e20, 5e20, 5e20), FED("cot", 1)), EXACTLY("result", 0), EXACTLY("d0", 0, 0, 0, 0));
    /* the sum of the squares is beyond f32, their mean is not */
    CHECK(build_variance2, FEEDS(FED("x", 1.5e19, -1.5e19), FED("cot", 1)), WANT("result", 2.25e38), WANT("d0", 1.5e19, -1.5e19));
})

#define ONES4 FED("g", 1, 1, 1, 1), FED("b", 0, 0, 0, 0)
BUILD(layer_norm4, const tg_tensor x = in(g, "x", TG_SHAPE(1, 4));
      const tg_layer_norm layer = {in(g, "g", TG_SHAPE(4)), in(g, "b", TG_SHAPE(4)), 1e-5};
      return with_second(g, tg_nn_layer_norm_fwd(layer, x), x);)
BUILD(layer_norm_tiny_eps, const tg_tensor x = in(g, "x", TG_SHAPE(1, 4));
      const tg_layer_norm layer = {in(g, "g", TG_SHAPE(4)), in(g, "b", TG_SHAPE(4)), 1e-36};
      return with_gradients(g, tg_nn_layer_norm_fwd(layer, x), &x, 1);)
BUILD(rms_norm4, const tg_tensor x = in(g, "x", TG_SHAPE(1, 4)); const tg_rms_norm layer = {in(g, "g", TG_SHAPE(4)), 1e-5};
      return with_gradients(g, tg_nn_rms_norm_fwd(layer, x), &x, 1);)
BUILD(group_norm4, const tg_tensor x = in(g, "x", TG_SHAPE(1, 4, 1));
      const tg_group_norm layer = {in(g, "g", TG_SHAPE(4)), in(g, "b", TG_SHAPE(4)), 1, 1e-5};
      return with_gradients(g, tg_nn_group_norm_fwd(layer, x), &x, 1);)
BUILD(batch_norm4, const tg_tensor x = in(g, "x", TG_SHAPE(4, 1)); const tg_batch_norm layer = tg_nn_batch_norm(g, "bn", 1);
      return with_gradients(g, tg_nn_batch_norm_fwd(layer, x, true), &x, 1);)
#define BN FED("bn.g", 1), FED("bn.b", 0), FED("bn.mean", 0), FED("bn.var", 1)
#define COT FED("cot", 1, 2, -1, .5)
TEST(N12_norms_of_large_numbers, {
    const double scales[4] = {1e20, 1e30, 1e35, 5e37};
    for (int i = 0; i < 4; i++) {
        const double s = scales[i];
        const double least = i < 3 ? 1e-6 / s : 0x1p-125; /* of derivatives under the least normal number nothing is asked */
        const double x[4] = {s, -s, 2 * s, 0}, ln[4] = {.4472136, -1.34164079, 1.34164079, -.4472136};
        const double dx[4] = {.71554175 / s, .08944272 / s, -.31304952 / s, -.49193496 / s};
        const double rms[4] = {.81649658, -.81649658, 1.63299316, 0}, dr[4] = {1.22474487 / s, 1.22474487 / s, 0, .40824829 / s};
        const expected y = {"result", ln, 4, 1e-5, 1e-6}, d = {"d0", dx, 4, 1e-5, least};
        CHECK(build_layer_norm4, FEEDS({"x", x, 4}, ONES4, COT), y, d);
        CHECK(build_group_norm4, FEEDS({"x", x, 4}, ONES4, COT), y, d);
        CHECK(build_batch_norm4, FEEDS({"x", x, 4}, BN, COT), y, d);
        CHECK(build_rms_norm4, FEEDS({"x", x, 4}, FED("g", 1, 1, 1, 1), COT), {"result", rms, 4, 1e-5, 1e-6}, {"d0", dr, 4, 1e-5, least});
    }
    const double small = 1e-17; /* with eps 1e-36 what eps .01 is to 1, -1, 2, 0 */
    CHECK(build_layer_norm_tiny_eps, FEEDS(FED("x", small, -small, 2 * small, 0), ONES4, COT),
          WANT("result", 0.4454354, -1.33630621, 1.33630621, -0.4454354),
          {"d0", LIST(0.7096917e17, 0.0981018e17, -0.3208195e17, -0.486974e17), 1e-5, 0});
    const double d2[4] = {-0.93914855, -0.98386991, 0.98386991, 0.93914855}; /* second derivatives, of x / 1e18 */
    CHECK(build_layer_norm4, FEEDS(FED("x", 1e18, -1e18, 2e18, 0), ONES4, COT),
          {"dd", (const double[]){d2[0] * 1e-36, d2[1] * 1e-36, d2[2] * 1e-36, d2[3] * 1e-36}, 4, 1e-4, 1e-41});
    CHECK(build_layer_norm4, FEEDS(FED("x", 5e20, 5e20, 5e20, 5e20), ONES4, COT), EXACTLY("result", 0, 0, 0, 0));
    CHECK(build_layer_norm4, FEEDS(FED("x", NOT_A_NUMBER, 1, 2, 3), ONES4, COT),
          EXACTLY("result", NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER));
})

BUILD(constant_rows, const tg_tensor x = tg_broadcast_to(in(g, "x", TG_SHAPE(3, 1)), TG_SHAPE(3, 1000));
      const tg_layer_norm layer = {tg_ones(g, TG_SHAPE(1000)), tg_zeros(g, TG_SHAPE(1000)), 1e-5};
      return tg_max(tg_abs(tg_nn_layer_norm_fwd(layer, x)), TG_AXES(-1));)
BUILD(constant_columns, const tg_tensor x = in(g, "x", TG_SHAPE(1, 1));
      const tg_tensor means = tg_mean(tg_broadcast_to(x, TG_SHAPE(1000, 4096)), TG_AXES(0));
      return tg_max(tg_abs(tg_sub(tg_div(means, tg_reshape(x, TG_SHAPE(1))), 1.0)), TG_ALL);)
TEST(N58_rows_of_one_number, {
    CHECK(build_constant_rows, FEEDS(FED("x", (double)3.3f, (double)255.3f, (double)1000.1f)), {"result", LIST(0, 0, 0), 0, .001});
    CHECK(build_constant_columns, FEEDS(FED("x", (double)1000.1f)), {"result", LIST(0), 0, 3e-7}); /* N59 */
})

BUILD_GRADIENT(rsqrt2, TG_SHAPE(2), tg_rsqrt(x))
BUILD_GRADIENT(reciprocal2, TG_SHAPE(2), tg_reciprocal(x))
TEST(N10_powers_in_gradients_leave_f32_only_where_the_gradient_does, {
    CHECK(build_rsqrt2, FEEDS(FED("x", 1e-30, 1e26), FED("cot", 1e-20, 1e20)), {"d0", LIST(-5e24, -5e-20), 1e-5, 0});
    CHECK(build_reciprocal2, FEEDS(FED("x", 1e-25, 1e23), FED("cot", 1e-20, 1e20)), {"d0", LIST(-1e30, -1e-26), 1e-5, 0});
})

/* ---- draws */

BUILD(draws, const tg_tensor logits = tg_broadcast_to(in(g, "x", TG_SHAPE(1, 3)), TG_SHAPE(30000, 3));
      const tg_tensor drawn = tg_categorical(logits, -1); return tg_sum(tg_one_hot(drawn, 3, TG_F32), TG_AXES(0));)
BUILD(draws5, const tg_tensor logits = tg_broadcast_to(in(g, "x", TG_SHAPE(1, 5)), TG_SHAPE(30000, 5));
      return tg_sum(tg_one_hot(tg_categorical(logits, -1), 5, TG_F32), TG_AXES(0));)
TEST(N20_categorical_does_not_depend_on_a_shift,
     { /* within 4 standard deviations */
       const double shifts[5] = {0, -1e9, 1e7, 1e30, -3e38};
       for (int i = 0; i < 5; i++)
           CHECK(build_draws, FEEDS(FED("x", shifts[i], shifts[i], shifts[i])), {"result", LIST(10000, 10000, 10000), 0, 327});
       CHECK(build_draws, FEEDS(FED("x", 1e8, 1e8 + 8, 1e8)), {"result", LIST(10.05, 29979.9, 10.05), 0, 18}); /* N22 */
       CHECK(build_draws, FEEDS(FED("x", -INF, -INF, -INF)), EXACTLY("result", 30000, 0, 0));
       CHECK(build_draws5, FEEDS(FED("x", -INF, 0, -INF, 1.09861229, -INF)), {"result", LIST(0, 7500, 0, 22500, 0), 0, 300}); /* P35 */
       CHECK(build_draws5, FEEDS(FED("x", -INF, 0, -INF, 1.09861229, -INF)), {"result", LIST(0, 7500, 0, 22500, 0), .013, 0});
     })

/* ---- losses */

BUILD(bce10, const tg_tensor w[2] = {in(g, "x", TG_SHAPE(10)), in(g, "t", TG_SHAPE(10))};
      return with_gradients(g, tg_nn_bce_with_logits(w[0], w[1], .reduction = TG_REDUCTION_NONE), w, 2);)
BUILD(bce4, const tg_tensor x = in(g, "x", TG_SHAPE(4));
      return with_gradients(g, tg_nn_bce_with_logits(x, in(g, "t", TG_SHAPE(4)), .reduction = TG_REDUCTION_NONE), &x, 1);)
BUILD(bce_weighted, const tg_tensor x = in(g, "x", TG_SHAPE(4)); return with_gradients(
          g, tg_nn_bce_with_logits(x, in(g, "t", TG_SHAPE(4)), .reduction = TG_REDUCTION_NONE, .positive_weight = in(g, "w", TG_SHAPE(4))),
          &x, 1);)
BUILD(bce_plain_second, const tg_tensor x = in(g, "x", TG_SHAPE(3));
      return with_second(g, tg_nn_bce_with_logits(x, in(g, "t", TG_SHAPE(3)), .reduction = TG_REDUCTION_NONE), x);)
TEST(bce_with_logits_is_exact_on_both_sides, {
    const double out[10] = {
        3.059022737e-7, 2.061153620e-9, 3.059022737e-7, 2.061153620e-9, 4.248354255e-18, 11.2500003059, .6931471806, .04858735157, 60, 60};
    const double dx[10] = {
        -3.059022269e-7, -2.061153618e-9, 3.059022269e-7, 2.061153618e-9, -4.248354255e-18, .7499996941, 0, .04742587318, 1, -1};
    CHECK(build_bce10,
          FEEDS(FED("x", 15, 20, -15, -20, 40, 15, 0, -3, 60, -60), FED("t", 1, 1, 0, 0, 1, .25, .5, 0, 0, 1),
                FED("cot", 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
          {"result", out, 10, 1e-5, 0}, {"d0", dx, 10, 1e-5, 0}, WANT("d1", -15, -20, 15, 20, -40, -15, 0, 3, -60, 60));
    CHECK(build_bce_plain_second, FEEDS(FED("x", 0, 2, -2), FED("t", 1, 0, .5), FED("cot", 1, 1, 1)),
          WANT("dd", .25, 2 * .104993585, 3 * .104993585));
})
TEST(N50_bce_with_infinite_logits, {
    CHECK(build_bce4, FEEDS(FED("x", -INF, INF, -INF, INF), FED("t", 0, 0, 1, 1), FED("cot", 1, 1, 1, 1)),
          EXACTLY("result", 0, INF, INF, 0), EXACTLY("d0", 0, 1, -1, 0));
    CHECK(build_bce_weighted, FEEDS(FED("x", -INF, INF, -INF, INF), FED("t", 0, 0, 1, 1), FED("w", 2, 2, 2, 2), FED("cot", 1, 1, 1, 1)),
          EXACTLY("result", 0, INF, INF, 0), EXACTLY("d0", 0, 1, -2, 0));
    CHECK(build_bce_weighted, FEEDS(FED("x", 20, -20, 20, 3), FED("t", 1, 1, 0, 1), FED("w", 1e-10, 1e-10, 5, 0), FED("cot", 1, 1, 1, 1)),
          {"result", LIST(2.06115362e-19, 2.0000000002e-9, 20.0000000021, 0), 1e-5, 0});
    CHECK(build_bce4, FEEDS(FED("x", NOT_A_NUMBER, 0, 0, 0), FED("t", 1, 1, 0, .5), FED("cot", 1, 1, 1, 1)),
          WANT("result", NOT_A_NUMBER, .69314718, .69314718, .69314718));
})
TEST(P14_bce_with_a_large_weight, {
    CHECK(build_bce_weighted, FEEDS(FED("x", -120, 120, 0, 0), FED("t", 1, 0, 0, 0), FED("w", 1e30, 1e30, 1, 1), FED("cot", 1, 1, 1, 1)),
          WANT("result", 1.2e32, 120, .69314718, .69314718), WANT("d0", -1e30, 1, .5, .5));
})

BUILD(cross_entropy23, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3));
      return with_gradients(g, tg_nn_cross_entropy(x, tg_input(g, "t", TG_SHAPE(2), TG_I32), -100), &x, 1);)
BUILD(smoothed23, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3)), t = tg_input(g, "t", TG_SHAPE(2), TG_I32);
      tg_capture("none", tg_nn_cross_entropy(x, t, -100, .label_smoothing = .2, .reduction = TG_REDUCTION_NONE));
      tg_capture("sum", tg_nn_cross_entropy(x, t, -100, .label_smoothing = .2, .reduction = TG_REDUCTION_SUM));
      return with_gradients(g, tg_nn_cross_entropy(x, t, -100, .label_smoothing = .2), &x, 1);)
BUILD(nll23, const tg_tensor x = in(g, "x", TG_SHAPE(2, 3));
      return with_gradients(g, tg_nn_nll(x, tg_input(g, "t", TG_SHAPE(2), TG_I32), -100), &x, 1);)
TEST(N51_an_ignored_row_has_no_gradient_whatever_it_holds, {
    const double rows[4][3] = {{-INF, -INF, -INF}, {NOT_A_NUMBER, 0, 1}, {INF, INF, 1}, {1, 2, 3}};
    const double d[6] = {0, 0, 0, .0900305732, -.755271529, .665240956};
    const double ds[6] = {.0233639065, .178061804, -.201425711, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        const double first[6] = {rows[i][0], rows[i][1], rows[i][2], 1, 2, 3}, second[6] = {1, 2, 3, rows[i][0], rows[i][1], rows[i][2]};
        CHECK(build_cross_entropy23, FEEDS({"x", first, 6}, FED("t", -100, 1), FED("cot", 1)), WANT("result", 1.40760596),
              {"d0", d, 6, 1e-5, 1e-6});
        CHECK(build_smoothed23, FEEDS({"x", second, 6}, FED("t", 2, -100), FED("cot", 1)), WANT("result", .607605964), /* P13 */
              WANT("none", .607605964, 0), WANT("sum", .607605964), {"d0", ds, 6, 1e-5, 1e-6});
        CHECK(build_nll23, FEEDS({"x", first, 6}, FED("t", -100, 1), FED("cot", 1)), WANT("result", -2), EXACTLY("d0", 0, 0, 0, 0, -1, 0));
    }
})
BUILD(cross_entropy_last4, const tg_tensor x = in(g, "x", TG_SHAPE(1, 4));
      return with_gradients(g, tg_nn_cross_entropy_last(x, tg_input(g, "t", TG_SHAPE(1), TG_I32)), &x, 1);)
TEST(P10_cross_entropy_beside_infinite_logits, {
    CHECK(build_cross_entropy_last4, FEEDS(FED("x", -INF, 0, .5, 1), FED("t", 1), FED("cot", 1)), WANT("result", 1.68026967),
          WANT("d0", 0, -.813676277, .307195886, .506480391));
})
BUILD(one_of_100000, const tg_tensor i = tg_arange(g, 100000, TG_I32);
      const tg_tensor x = tg_reshape(tg_where(tg_equal(i, 50000.0), in(g, "x", TG_SHAPE(1)), -INF), TG_SHAPE(1, 100000)); tg_tensor d;
      const tg_tensor y = tg_nn_cross_entropy_last(x, tg_input(g, "t", TG_SHAPE(1), TG_I32)); tg_grad(tg_sum_all(y), &x, 1, &d);
      tg_capture("d", tg_max(tg_abs(d), TG_ALL)); return y;)
TEST(P11_one_finite_logit_of_many,
     { CHECK(build_one_of_100000, FEEDS(FED("x", 10), FED("t", 50000)), EXACTLY("result", 0), EXACTLY("d", 0)); })
BUILD(kl, const tg_tensor w[2] = {in(g, "logq", TG_SHAPE(4)), in(g, "p", TG_SHAPE(4))};
      return with_gradients(g, tg_nn_kl_div(w[0], w[1], .reduction = TG_REDUCTION_NONE), w, 2);)
TEST(P08_kl_of_empty_probabilities, {
    CHECK(build_kl, FEEDS(FED("logq", -INF, -.693147181, -1.38629436, -.287682072), FED("p", 0, .4, .6, 0), FED("cot", 1, 1, 1, 1)),
          WANT("result", 0, -.0892574205, .525281242, 0), WANT("d0", 0, -.4, -.6, 0), WANT("d1", 0, .776856449, 1.87546874, 0));
})

/* ---- infinities in softmax and activations */

BUILD_GRADIENT(logsumexp2, TG_SHAPE(2), tg_logsumexp(x, 0))
TEST(N53_logsumexp_of_nothing, {
    CHECK(build_logsumexp2, FEEDS(FED("x", -INF, -INF), FED("cot", 1)), EXACTLY("result", -INF), EXACTLY("d0", 0, 0));
    CHECK(build_logsumexp2, FEEDS(FED("x", -INF, 3), FED("cot", 1)), WANT("result", 3), WANT("d0", 0, 1));
    CHECK(build_logsumexp2, FEEDS(FED("x", 1e30, 1e30), FED("cot", 1)), WANT("result", 1e30), WANT("d0", .5, .5));
    CHECK(build_logsumexp2, FEEDS(FED("x", INF, 3), FED("cot", 1)), EXACTLY("result", INF));
})

BUILD_SECOND(silu, TG_SHAPE(6), tg_silu(x))
BUILD_SECOND(gelu, TG_SHAPE(6), tg_gelu(x))
BUILD_SECOND(gelu_tanh, TG_SHAPE(6), tg_gelu_tanh(x))
BUILD_SECOND(hard_swish, TG_SHAPE(6), tg_hard_swish(x))
BUILD_SECOND(leaky_0, TG_SHAPE(6), tg_leaky_relu(x, 0.0))
TEST(N54_activations_at_infinity, {
    static tg_tensor (*const builds[])(tg_graph *, void *) = {build_silu, build_gelu, build_gelu_tanh, build_hard_swish, build_leaky_0};
    for (int i = 0; i < 5; i++)
        CHECK(builds[i], FEEDS(FED("x", -INF, INF, -1e30, 1e30, -200, 200), FED("cot", 1, 1, 1, 1, 1, 1)),
              EXACTLY("result", 0, INF, 0, 1e30f, 0, 200), EXACTLY("d0", 0, 1, 0, 1, 0, 1), EXACTLY("dd", 0, 0, 0, 0, 0, 0));
    for (int i = 0; i < 5; i++)
        CHECK(builds[i], FEEDS(FED("x", NOT_A_NUMBER, 0, 0, 0, 0, 0), FED("cot", 1, 1, 1, 1, 1, 1)),
              EXACTLY("result", NOT_A_NUMBER, 0, 0, 0, 0, 0));
})
TEST(N55_gelu_tanh_of_large_finite_numbers, {
    CHECK(build_gelu_tanh, FEEDS(FED("x", 1e19, 2e19, -2e19, 1e15, 127, -127), FED("cot", 1, 1, 1, 1, 1, 1)),
          EXACTLY("d0", 1, 1, 0, 1, 1, 0), EXACTLY("dd", 0, 0, 0, 0, 0, 0));
})
BUILD_SECOND(elu8, TG_SHAPE(8), tg_elu(x, 1.0))
TEST(P07_elu_far_from_0, {
    CHECK(build_elu8, FEEDS(FED("x", 88, 89, 100, 300, 1e30, INF, -1e30, -INF), FED("cot", 1, 1, 1, 1, 1, 1, 1, 1)),
          EXACTLY("result", 88, 89, 100, 300, 1e30f, INF, -1, -1), EXACTLY("d0", 1, 1, 1, 1, 1, 1, 0, 0),
          EXACTLY("dd", 0, 0, 0, 0, 0, 0, 0, 0));
})
BUILD_GRADIENT(max3, TG_SHAPE(3), tg_max(x, TG_ALL))
BUILD_GRADIENT(min3, TG_SHAPE(3), tg_min(x, TG_ALL))
TEST(N61_the_gradient_of_a_nan_extremum_is_nan, {
    CHECK(build_max3, FEEDS(FED("x", NOT_A_NUMBER, 1, NOT_A_NUMBER), FED("cot", 1)), EXACTLY("result", NOT_A_NUMBER),
          EXACTLY("d0", NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER));
    CHECK(build_min3, FEEDS(FED("x", NOT_A_NUMBER, 1, NOT_A_NUMBER), FED("cot", 1)), EXACTLY("result", NOT_A_NUMBER),
          EXACTLY("d0", NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER));
    CHECK(build_max3, FEEDS(FED("x", 2, 1, 2), FED("cot", 1)), EXACTLY("result", 2), EXACTLY("d0", .5, 0, .5));
})

/* ---- einsum */

BUILD(einsum_1, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(2, 1)), in(g, "b", TG_SHAPE(3, 4))};
      return with_gradients(g, tg_einsum("ij,jk->ik", w, 2), w, 2);)
BUILD(einsum_1_batch, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(1, 2)), in(g, "b", TG_SHAPE(3, 2))};
      return with_gradients(g, tg_einsum("bi,bi->bi", w, 2), w, 2);)
BUILD(einsum_1_last, const tg_tensor w[2] = {in(g, "a", TG_SHAPE(3)), in(g, "b", TG_SHAPE(1))};
      return with_gradients(g, tg_einsum("i,i", w, 2), w, 2);)
BUILD(einsum_1_three, const tg_tensor w[3] = {in(g, "a", TG_SHAPE(1)), in(g, "b", TG_SHAPE(1)), in(g, "c", TG_SHAPE(3))};
      return with_gradients(g, tg_einsum("i,i,i->i", w, 3), w, 3);)
TEST(N60_einsum_repeats_an_axis_of_1, {
    CHECK(build_einsum_1, FEEDS(FED("a", 2, -1), FED("b", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), FED("cot", 1, 1, 1, 1, 1, 0, 0, 0)),
          EXACTLY("result", 30, 36, 42, 48, -15, -18, -21, -24), EXACTLY("d0", 78, 15), EXACTLY("d1", 1, 2, 2, 2, 1, 2, 2, 2, 1, 2, 2, 2));
    CHECK(build_einsum_1_batch, FEEDS(FED("a", 2, -1), FED("b", 1, 2, 3, 4, 5, 6), FED("cot", 1, 1, 1, 1, 1, 1)),
          EXACTLY("result", 2, -2, 6, -4, 10, -6), EXACTLY("d0", 9, 12), EXACTLY("d1", 2, -1, 2, -1, 2, -1));
    CHECK(build_einsum_1_last, FEEDS(FED("a", 1, 2, 3), FED("b", 4), FED("cot", 1)), EXACTLY("result", 24), EXACTLY("d0", 4, 4, 4),
          EXACTLY("d1", 6));
    CHECK(build_einsum_1_three, FEEDS(FED("a", 2), FED("b", 3), FED("c", 1, 2, 3), FED("cot", 1, 1, 1)), EXACTLY("result", 6, 12, 18),
          EXACTLY("d0", 18), EXACTLY("d1", 12), EXACTLY("d2", 6, 6, 6));
})
BUILD(diagonal_of_each, const tg_tensor x = in(g, "x", TG_SHAPE(3, 3, 2)); tg_capture("i", tg_einsum("iij->i", &x, 1));
      return tg_einsum("iij->ij", &x, 1);)
TEST(P04_diagonals, {
    CHECK(build_diagonal_of_each, FEEDS(FED("x", 2, 1, 0, -2, -1, -3, -3, -3, -2, 2, 1, 3, 0, 1, 3, 2, 1, 0)),
          EXACTLY("result", 2, 1, -2, 2, 1, 0), EXACTLY("i", 3, 0, 1));
})
BUILD_GRADIENT(trace2, TG_SHAPE(2, 2), tg_einsum("ii->", &x, 1))
TEST(P06_gradient_of_a_trace,
     { CHECK(build_trace2, FEEDS(FED("x", 1, 2, 3, 4), FED("cot", 1)), EXACTLY("result", 5), EXACTLY("d0", 1, 0, 0, 1)); })

/* ---- windows, resampling, scans */

BUILD(avg_pool_ceil, return tg_avg_pool1d(in(g, "x", TG_SHAPE(1, 1, 5)), 2, .stride = {2}, .ceil_mode = true);)
TEST(P01_a_last_window_beyond_the_end, { CHECK(build_avg_pool_ceil, FEEDS(FED("x", 1, 2, 3, 4, 5)), EXACTLY("result", 1.5, 3.5, 5)); })
BUILD(conv_back, const tg_tensor x = in(g, "x", TG_SHAPE(1, 1, 2, 2)); tg_tensor d;
      const tg_tensor y = tg_conv_transpose2d(x, in(g, "w", TG_SHAPE(1, 1, 4, 5)), .stride = {3, 2}, .padding = tg_padding_axes(1, 2),
                                              .dilation = {4, 4}, .output_padding = {2, 3});
      tg_grad(tg_sum_all(y), &x, 1, &d); tg_capture("d", d); return tg_sum_all(y);)
TEST(P03_strides_dilations_and_output_padding_that_differ, {
    CHECK(build_conv_back, FEEDS(FED("x", 1, -1, 2, .5), FED("w", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)),
          WANT("result", 424), WANT("d", 162, 195, 176, 210));
})
BUILD(bilinear, return tg_upsample_bilinear(in(g, "x", TG_SHAPE(1, 1, 1, 3)), .factor = {1, 2}, .align_corners = true);)
TEST(P22_align_corners_of_an_axis_of_1, { CHECK(build_bilinear, FEEDS(FED("x", 2, 4, 8)), WANT("result", 2, 2.8, 3.6, 4.8, 6.4, 8)); })
BUILD(long_cumsum, const tg_tensor y = tg_cumsum(tg_broadcast_to(in(g, "x", TG_SHAPE(1)), TG_SHAPE(72192)), 0);
      return tg_narrow(y, 0, 72191, 1);)
TEST(P18_a_long_running_sum, { CHECK(build_long_cumsum, FEEDS(FED("x", (double).1f)), {"result", LIST(7219.20011), 3e-6, 0}); })
BUILD(odd_draws, const tg_tensor k = tg_rand_int(g, TG_SHAPE(262144), 0, 33554432);
      return tg_mean(tg_cast(tg_add(tg_mod(k, 2.0), tg_mul(tg_input(g, "x", TG_SHAPE(1), TG_I32), 0.0)), TG_F32), TG_ALL);)
TEST(P20_low_bits_of_integer_draws, { CHECK(build_odd_draws, FEEDS(FED("x", 0)), {"result", LIST(.5), 0, 4 * .000977}); })

BUILD(sorted, const tg_tensor x = in(g, "x", TG_SHAPE(10)); tg_capture("down", tg_argsort(x, 0, .descending = true));
      return tg_argsort(x, 0);)
TEST(P25_order_of_nan_infinity_and_zeros, {
    CHECK(build_sorted, FEEDS(FED("x", 3, NOT_A_NUMBER, -INF, 1, INF, 1, -0.0, 0.0, NOT_A_NUMBER, -1)),
          EXACTLY("result", 2, 9, 6, 7, 3, 5, 0, 4, 1, 8), EXACTLY("down", 4, 0, 3, 5, 6, 7, 9, 2, 1, 8));
})

BUILD_SECOND(prod8, TG_SHAPE(8), tg_prod(x, TG_ALL))
BUILD_SECOND(prod5, TG_SHAPE(5), tg_prod(x, TG_ALL))
BUILD(prod_large, return tg_cast(tg_greater(tg_prod(in(g, "x", TG_SHAPE(5)), TG_ALL), (double)FLT_MAX), TG_F32);)
BUILD_GRADIENT(cumprod5, TG_SHAPE(5), tg_cumprod(x, 0))
BUILD(cumprod8, return tg_cumprod(in(g, "x", TG_SHAPE(8)), 0);)
BUILD(prod_1000,
      return tg_prod(tg_where(tg_equal(tg_mod(tg_arange(g, 1000, TG_I32), 2), 0), in(g, "x", TG_SHAPE(1)), in(g, "y", TG_SHAPE(1))),
                     TG_ALL);)
TEST(N56_a_product_that_fits_does_not_overflow_on_the_way, {
    const double inverse[8] = {1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30};
    CHECK(build_prod8, FEEDS(FED("x", 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30), FED("cot", 1)), WANT("result", 1),
          {"d0", inverse, 8, 1e-5, 0});
    CHECK(build_prod8, FEEDS(FED("x", 1e30, 1e30, 1e30, 1e30, 1e-30, 1e-30, 1e-30, 1e-30), FED("cot", 1)), WANT("result", 1));
    CHECK(build_prod8, FEEDS(FED("x", 2e-38, 2e-38, -2e-38, 2e-38, 5e37, 5e37, 5e37, 5e37), FED("cot", 1)), WANT("result", -1));
    CHECK(build_cumprod8, FEEDS(FED("x", 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30, 1e30, 1e-30)),
          {"result", LIST(1e30, 1, 1e30, 1, 1e30, 1, 1e30, 1), 1e-5, 0});
    CHECK(build_prod_1000, FEEDS(FED("x", 1e20), FED("y", (double)1e-20f)),
          {"result", LIST(pow((double)1e20f * (double)1e-20f, 500)), 1e-4, 0});
    /* what does not fit, and zeros, infinities and NaN, as ever */
    CHECK(build_prod_large, FEEDS(FED("x", 1e30, 1e30, 1, 1, 1)), EXACTLY("result", 1));
    CHECK(build_prod5, FEEDS(FED("x", 1e-30, 1e-30, 1, 1, -1), FED("cot", 1)), {"result", LIST(0), 0, 1e-40});
    CHECK(build_prod5, FEEDS(FED("x", INF, 0, 1, 1, 1), FED("cot", 1)), EXACTLY("result", NOT_A_NUMBER));
    CHECK(build_prod5, FEEDS(FED("x", -INF, 2, 1, 1, 1), FED("cot", 1)), EXACTLY("result", -INF));
    CHECK(build_prod5, FEEDS(FED("x", 0, 1e10, 1e10, 1e10, 3), FED("cot", 1)), EXACTLY("result", 0), WANT("d0", 3e30, 0, 0, 0, 0));
    CHECK(build_prod5, FEEDS(FED("x", 1e-8, 1e-8, 1e-8, 1e-8, 3), FED("cot", 1)), {"result", LIST(3e-32), 1e-5, 0},
          {"d0", LIST(3e-24, 3e-24, 3e-24, 3e-24, 1e-32), 1e-5, 0});
    CHECK(build_prod5, FEEDS(FED("x", 2, 3, 5, 7, 11), FED("cot", 1)), EXACTLY("result", 2310), WANT("d0", 1155, 770, 462, 330, 210),
          WANT("dd", 2 * 385 + 3 * 231 + 4 * 165 + 5 * 105, 385 + 3 * 154 + 4 * 110 + 5 * 70, 231 + 2 * 154 + 4 * 66 + 5 * 42,
               165 + 2 * 110 + 3 * 66 + 5 * 30, 105 + 2 * 70 + 3 * 42 + 4 * 30));
    CHECK(build_cumprod5, FEEDS(FED("x", 2, 0, 3, 1e20, 1e-20), FED("cot", 1, 1, 1, 1, 1)), EXACTLY("result", 2, 0, 0, 0, 0),
          {"d0", LIST(1, 2 + 6 + 6e20 + 6, 0, 0, 0), 1e-5, 0});
})

BUILD(rope6, return tg_rope(in(g, "x", TG_SHAPE(6, 2)), .positions = tg_input(g, "at", TG_SHAPE(6), TG_I32));)
TEST(P24_rope_at_far_positions,
     { /* an angle is off by 1e-7 of itself at most */
       const double at[6] = {8000, 16000, 32768, 65535, 99999, 100000};
       double want[12];
       for (int i = 0; i < 6; i++) {
           want[2 * i] = cos(at[i]);
           want[2 * i + 1] = sin(at[i]);
       }
       CHECK(build_rope6, FEEDS(FED("x", 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0), {"at", at, 6}), {"result", want, 12, 0, .01});
     })

/* ---- arithmetic */

BUILD(mod3, const tg_tensor w[2] = {in(g, "x", TG_SHAPE(3)), in(g, "y", TG_SHAPE(3))}; tg_capture("floor", tg_floor_div(w[0], w[1]));
      return with_gradients(g, tg_mod(w[0], w[1]), w, 2);)
BUILD(mod_7, return tg_mod(in(g, "x", TG_SHAPE(3)), 7.0);)
BUILD(mod8, const tg_tensor x = in(g, "x", TG_SHAPE(8)), y = in(g, "y", TG_SHAPE(8)); tg_capture("floor", tg_floor_div(x, y));
      return tg_mod(x, y);)
#define F(x) ((double)(x##f))
TEST(N41_mod_is_exact_however_large_the_quotient, {
    CHECK(build_mod_7, FEEDS(FED("x", 1e9, 123456792, 3e7)), EXACTLY("result", 6, 4, 2));
    CHECK(build_mod3, FEEDS(FED("x", 1e9, 123456792, 3e7), FED("y", -7, -7, -7), FED("cot", 1, 1, 1)), EXACTLY("result", -1, -3, -5),
          EXACTLY("d0", 1, 1, 1));
    CHECK(build_mod3, FEEDS(FED("x", F(.7), 1, 5.5), FED("y", F(.1), F(.1), F(1.1)), FED("cot", 1, 1, 2)), /* N42 */
          WANT("result", .0999999791, .0999999866, 1.0999999), EXACTLY("floor", 6, 9, 4), EXACTLY("d0", 1, 1, 2),
          EXACTLY("d1", -6, -9, -8));
    CHECK(build_mod8,
          FEEDS(FED("x", 5, -5, 5, -5, F(1e38), F(-1e38), 16777215, F(3e38)), FED("y", INF, INF, -INF, -INF, 3, 3, 4, F(-2e38))),
          EXACTLY("result", 5, INF, -INF, -5, 2, 1, 3, F(3e38) - 2 * F(2e38)),
          {"floor", LIST(0, -1, -1, 0, F(1e38) / 3, F(-1e38) / 3, 4194303, -2), 1e-6, 0});
    CHECK(build_mod8, FEEDS(FED("x", INF, -INF, NOT_A_NUMBER, 1, 1, 0, -0.0, 7), FED("y", 2, 2, 2, NOT_A_NUMBER, 0, 3, 3, 7)),
          EXACTLY("result", NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, 0, 0, 0));
    /* what rounds up to the divisor stays below it */
    CHECK(build_mod8,
          FEEDS(FED("x", F(-1e-10), F(1e-10), F(-1e-30), -1, 1, -3, 3, F(-1e-8)), FED("y", 1, -1, 7, F(1e30), F(-1e30), 4, -4, 1)),
          {"result", LIST(1, -1, 7, 1e30, -1e30, 1, -1, 1), 1e-6, 0}, EXACTLY("floor", -1, -1, -1, -1, -1, -1, -1, -1));
})
BUILD(mod_below, const tg_tensor y = in(g, "y", TG_SHAPE(4)), m = tg_mod(in(g, "x", TG_SHAPE(4)), y);
      return tg_cast(tg_logical_and(tg_less(tg_abs(m), tg_abs(y)), tg_greater(tg_mul(m, tg_sign(y)), 0.0)), TG_F32);)
TEST(N41_mod_is_below_its_divisor, {
    CHECK(build_mod_below, FEEDS(FED("x", F(-1e-10), F(1e-10), F(-1e-30), -1), FED("y", 1, -1, F(1.5), F(1e30))),
          EXACTLY("result", 1, 1, 1, 1));
})

BUILD(i32_pairs, const tg_tensor a = tg_input(g, "a", TG_SHAPE(6), TG_I32), b = tg_input(g, "b", TG_SHAPE(6), TG_I32);
      tg_capture("floor", tg_floor_div(a, b)); tg_capture("mod", tg_mod(a, b)); return tg_div(a, b);)
TEST(P16_integer_division_at_its_edges, {
    CHECK(build_i32_pairs, FEEDS(FED("a", -7, 7, -7, -2147483648., 5, -2147483648.), FED("b", 3, -3, -3, -1, 0, 3)),
          EXACTLY("result", -2, -2, 2, -2147483648., 0, -715827882), EXACTLY("floor", -3, -3, 2, -2147483648., 0, -715827883),
          EXACTLY("mod", 2, -2, -1, 0, 5, 1));
})
BUILD(powers, return tg_pow(in(g, "x", TG_SHAPE(5)), in(g, "y", TG_SHAPE(5)));)
TEST(P17_powers, {
    CHECK(build_powers, FEEDS(FED("x", -2000, (double)1.0001f, -7, 2, -.5), FED("y", 3, 50000, -3, 127, 21)),
          {"result", LIST(-8e9, 148.499209, -.0029154519, 1.70141183e38, -4.76837158e-7), 2e-5, 0});
})
BUILD(cast_pairs, const tg_tensor x = in(g, "x", TG_SHAPE(6)), k = tg_input(g, "k", TG_SHAPE(3), TG_I32);
      tg_capture("k", tg_cast(tg_cast(k, TG_BOOL), TG_I32)); return tg_cast(tg_cast(x, TG_I32), TG_F32);)
TEST(P27_casts_there_and_back, {
    CHECK(build_cast_pairs, FEEDS(FED("x", .3, 1.7, -.4, -1.6, NOT_A_NUMBER, 3e9), FED("k", -1, 0, 256)),
          WANT("result", 0, 1, 0, -1, 0, 2147483648.), EXACTLY("k", 1, 0, 1));
})
BUILD(folded, const tg_tensor x = in(g, "x", TG_SHAPE(3)), z = in(g, "z", TG_SHAPE(3)); tg_capture("over", tg_div(0.0, z));
      tg_capture("loss", tg_add(1.0, tg_mul(0.0, tg_mean(tg_exp(x), TG_ALL)))); return tg_mul(x, 0.0);)
TEST(N30_what_compilers_fold_and_floats_do_not_have, { /* and N31, N32 */
                                                       CHECK(build_folded,
                                                             FEEDS(FED("x", INF, NOT_A_NUMBER, 2), FED("z", 0, NOT_A_NUMBER, 2)),
                                                             EXACTLY("result", NOT_A_NUMBER, NOT_A_NUMBER, 0),
                                                             EXACTLY("over", NOT_A_NUMBER, NOT_A_NUMBER, 0), EXACTLY("loss", NOT_A_NUMBER));
})
BUILD(identities, const tg_tensor x = in(g, "x", TG_SHAPE(4)); tg_capture("div", tg_div(x, x)); tg_capture("add", tg_add(x, 0.0));
      tg_capture("pow", tg_pow(x, 0.0)); return tg_sub(x, x);)
TEST(P33_identities_that_do_not_hold_at_infinity, {
    CHECK(build_identities, FEEDS(FED("x", INF, NOT_A_NUMBER, 0, 2)), EXACTLY("result", NOT_A_NUMBER, NOT_A_NUMBER, 0, 0),
          EXACTLY("div", NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER, 1), EXACTLY("add", INF, NOT_A_NUMBER, 0, 2), EXACTLY("pow", 1, 1, 1, 1));
})

#define CASE(name) cmocka_unit_test(test_##name)

int main(void) {
    const int refused = support_home_refuses("reports");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        CASE(N10_norm_of_large_and_small_numbers),
        CASE(N10_norms_of_rows_of_different_sizes),
        CASE(N12_std_of_large_and_small_numbers),
        CASE(N12_norms_of_large_numbers),
        CASE(N58_rows_of_one_number),
        CASE(N10_powers_in_gradients_leave_f32_only_where_the_gradient_does),
        CASE(N20_categorical_does_not_depend_on_a_shift),
        CASE(bce_with_logits_is_exact_on_both_sides),
        CASE(N50_bce_with_infinite_logits),
        CASE(P14_bce_with_a_large_weight),
        CASE(N51_an_ignored_row_has_no_gradient_whatever_it_holds),
        CASE(P10_cross_entropy_beside_infinite_logits),
        CASE(P11_one_finite_logit_of_many),
        CASE(P08_kl_of_empty_probabilities),
        CASE(N53_logsumexp_of_nothing),
        CASE(N54_activations_at_infinity),
        CASE(N55_gelu_tanh_of_large_finite_numbers),
        CASE(P07_elu_far_from_0),
        CASE(N61_the_gradient_of_a_nan_extremum_is_nan),
        CASE(N60_einsum_repeats_an_axis_of_1),
        CASE(P04_diagonals),
        CASE(P06_gradient_of_a_trace),
        CASE(P01_a_last_window_beyond_the_end),
        CASE(P03_strides_dilations_and_output_padding_that_differ),
        CASE(P22_align_corners_of_an_axis_of_1),
        CASE(P18_a_long_running_sum),
        CASE(P20_low_bits_of_integer_draws),
        CASE(P25_order_of_nan_infinity_and_zeros),
        CASE(N56_a_product_that_fits_does_not_overflow_on_the_way),
        CASE(N41_mod_is_exact_however_large_the_quotient),
        CASE(N41_mod_is_below_its_divisor),
        CASE(P16_integer_division_at_its_edges),
        CASE(P17_powers),
        CASE(P27_casts_there_and_back),
        CASE(N30_what_compilers_fold_and_floats_do_not_have),
        CASE(P24_rope_at_far_positions),
        CASE(P33_identities_that_do_not_hold_at_infinity),
    };
    return cmocka_run_group_tests_name("reports", tests, NULL, NULL);
}
