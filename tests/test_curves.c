/* curves: the first losses of both examples against stored PyTorch curves, with the same initial
 * values, batches and recipe (scripts/make_curves.sh makes them). */
#include "support.h"

#include "curves/curves.h"
#include "examples.h"

#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1e-4

static void check_curve(const char *name, tg_optimizer optimizer, const float *expected, bool no_fusion) {
    const tg_example *example = tg_example_find(name);
    assert_non_null(example);
    tg_context *ctx = tg_context_create(NULL);
    assert_non_null(ctx);
    tg_compile_options options = {.optimizer = optimizer, .seed = CURVE_SEED, .threads = 1, .no_fusion = no_fusion};
    tg_model *model = tg_compile(ctx, example->build, NULL, &options);
    if (model == NULL) fail_msg("%s", tg_error_message(ctx));
    void *arrays[TG_EXAMPLE_MAX_INPUTS] = {0};
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
    for (int i = 0; i < example->input_count; i++) {
        int64_t count = tg_shape_count(example->inputs[i].shape);
        arrays[i] = calloc((size_t)count, 4);
        assert_non_null(arrays[i]);
        feeds[i] = tg_feed_make_(example->inputs[i].name, example->inputs[i].dtype, arrays[i], count);
    }
    double worst = 0;
    int worst_step = 0;
    for (int t = 1; t <= CURVE_STEPS; t++) {
        float loss = 0;
        example->fill_batch(CURVE_SEED, t, example->batch, arrays);
        tg_status status = tg_step(model, feeds, example->input_count, &loss);
        if (status != TG_OK) fail_msg("step %d: %s", t, tg_error_message(ctx));
        double apart = fabs((double)loss - (double)expected[t - 1]) / fabs((double)expected[t - 1]);
        if (!(apart <= worst)) worst = apart, worst_step = t;
    }
    print_message("%s: %.2e relative at most, at step %d\n", name, worst, worst_step);
    for (int i = 0; i < example->input_count; i++) free(arrays[i]);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    assert_true(worst <= TOLERANCE);
}

static void mlp_sin_adam(void **state) {
    (void)state;
    check_curve("mlp-sin", mlp_sin_optimizer(), curve_mlp_sin_adam, false);
}

static void mlp_sin_adam_unfused(void **state) {
    (void)state;
    check_curve("mlp-sin", mlp_sin_optimizer(), curve_mlp_sin_adam, true);
}

static void mlp_sin_adam_corrected(void **state) {
    (void)state;
    tg_optimizer optimizer = mlp_sin_optimizer();
    optimizer.eps_mode = TG_EPS_CORRECTED;
    check_curve("mlp-sin", optimizer, curve_mlp_sin_adam_corrected, false);
}

static void mlp_sin_sgd_clipped(void **state) {
    (void)state;
    tg_optimizer optimizer = tg_sgd(.lr = tg_lr_constant(0.002), .momentum = 0.9, .clip_norm = 1.0);
    check_curve("mlp-sin", optimizer, curve_mlp_sin_sgd_clipped, false);
}

static void mlp_sin_sgd(void **state) {
    (void)state;
    check_curve("mlp-sin", tg_sgd(.lr = tg_lr_constant(0.01)), curve_mlp_sin_sgd, false);
}

static void mlp_sin_sgd_momentum(void **state) {
    (void)state;
    check_curve("mlp-sin", tg_sgd(.lr = tg_lr_constant(0.002), .momentum = 0.9), curve_mlp_sin_sgd_momentum, false);
}

static void mlp_sin_sgd_nesterov(void **state) {
    (void)state;
    check_curve("mlp-sin", tg_sgd(.lr = tg_lr_constant(0.002), .momentum = 0.9, .nesterov = true), curve_mlp_sin_sgd_nesterov, false);
}

static void transformer_add_adamw(void **state) {
    (void)state;
    check_curve("transformer-add", transformer_add_optimizer(), curve_transformer_add_adamw, false);
}

static void transformer_add_adamw_corrected(void **state) {
    (void)state;
    tg_optimizer optimizer = transformer_add_optimizer();
    optimizer.eps_mode = TG_EPS_CORRECTED;
    check_curve("transformer-add", optimizer, curve_transformer_add_adamw_corrected, false);
}

/* Curves that agree whatever the optimiser does would pin nothing. */
static void curves_differ(void **state) {
    (void)state;
    const float *curves[] = {curve_mlp_sin_adam, curve_mlp_sin_sgd_clipped,  curve_mlp_sin_adam_corrected,
                             curve_mlp_sin_sgd,  curve_mlp_sin_sgd_momentum, curve_mlp_sin_sgd_nesterov};
    for (size_t i = 0; i < SUPPORT_COUNT(curves); i++)
        for (size_t j = 0; j < i; j++) {
            double most = 0;
            for (int t = 0; t < CURVE_STEPS; t++)
                most = fmax(most, fabs((double)curves[i][t] - (double)curves[j][t]) / (double)curves[j][t]);
            assert_true(most > 10 * TOLERANCE);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_sin_adam),         cmocka_unit_test(mlp_sin_adam_unfused),  cmocka_unit_test(mlp_sin_adam_corrected),
        cmocka_unit_test(mlp_sin_sgd_clipped),  cmocka_unit_test(mlp_sin_sgd),           cmocka_unit_test(mlp_sin_sgd_momentum),
        cmocka_unit_test(mlp_sin_sgd_nesterov), cmocka_unit_test(transformer_add_adamw), cmocka_unit_test(transformer_add_adamw_corrected),
        cmocka_unit_test(curves_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
