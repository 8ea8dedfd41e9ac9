/* net_curves: the first losses of a convolutional net, a net with dropout and a recurrent net against stored PyTorch curves: same initial
 * values, batches and, for dropout, masks (scripts/make_curves.sh makes them). On support_device(). */
#include "support.h"

#include "curve_models.h"
#include "curves/curves.h"

#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1e-4

static void losses_of(const tg_example *example, bool no_fusion, float losses[CURVE_STEPS]) {
    tg_context *ctx = tg_context_create(NULL);
    assert_non_null(ctx);
    const tg_compile_options options = {
        .optimizer = example->optimizer(), .seed = CURVE_SEED, .device = support_device(), .threads = 1, .no_fusion = no_fusion};
    tg_model *model = tg_compile(ctx, example->build, NULL, &options);
    if (model == NULL) fail_msg("%s: %s", example->name, tg_error_message(ctx));
    void *arrays[TG_EXAMPLE_MAX_INPUTS] = {0};
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
    for (int i = 0; i < example->input_count; i++) {
        const int64_t count = tg_shape_count(example->inputs[i].shape);
        arrays[i] = calloc((size_t)count, 4);
        assert_non_null(arrays[i]);
        feeds[i] = tg_feed_make_(example->inputs[i].name, example->inputs[i].dtype, arrays[i], count);
    }
    for (int t = 1; t <= CURVE_STEPS; t++) {
        example->fill_batch(CURVE_SEED, t, example->batch, arrays);
        if (tg_step(model, feeds, example->input_count, &losses[t - 1]) != TG_OK)
            fail_msg("%s, step %d: %s", example->name, t, tg_error_message(ctx));
    }
    for (int i = 0; i < example->input_count; i++) free(arrays[i]);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void check_curve(const char *name, const float *expected, bool no_fusion) {
    float losses[CURVE_STEPS];
    double worst = 0;
    int worst_step = 0;
    losses_of(curve_model_find(name), no_fusion, losses);
    for (int t = 1; t <= CURVE_STEPS; t++) {
        const double apart = fabs((double)losses[t - 1] - (double)expected[t - 1]) / fabs((double)expected[t - 1]);
        if (!(apart <= worst)) worst = apart, worst_step = t;
    }
    print_message("%s: %.2e relative at most, at step %d\n", name, worst, worst_step);
    assert_true(worst <= TOLERANCE);
    assert_true(expected[CURVE_STEPS - 1] < 0.8F * expected[0]); /* a curve that stays where it was would say nothing of gradients */
}

static void conv_bars(void **state) {
    (void)state;
    check_curve("conv-bars", curve_conv_bars, false);
}

static void dropout_sin(void **state) {
    (void)state;
    check_curve("dropout-sin", curve_dropout_sin, false);
}

static void recurrent_echo(void **state) {
    (void)state;
    check_curve("recurrent-echo", curve_recurrent_echo, false);
}

static void unfused(void **state) {
    (void)state;
    if (support_home_now() != SUPPORT_CPU) return; /* the printers are the same; SwiftShader would take minutes */
    check_curve("conv-bars", curve_conv_bars, true);
    check_curve("dropout-sin", curve_dropout_sin, true);
    check_curve("recurrent-echo", curve_recurrent_echo, true);
}

int main(void) {
    const int refused = support_home_refuses("net_curves");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_bars),
        cmocka_unit_test(dropout_sin),
        cmocka_unit_test(recurrent_echo),
        cmocka_unit_test(unfused),
    };
    return cmocka_run_group_tests_name("net_curves", tests, NULL, NULL);
}
