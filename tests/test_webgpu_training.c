/* Training on WebGPU: both examples against the CPU, step by step from the same initial values and batches, and two runs of one kind
 * bit for bit; the rest of the session on a device: captures, siblings, checkpoints, uploads, resets. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 5
#define MAX_STEPS 100

/* ---------------------------------------------------------------- an example, compiled */

typedef struct training {
    const tg_example *example;
    tg_context *ctx;
    tg_model *model;
    void *arrays[TG_EXAMPLE_MAX_INPUTS];
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
} training;

static training training_open(const char *name, tg_device_kind device) {
    training t = {.example = tg_example_find(name), .ctx = support_context()};
    assert_non_null(t.example);
    const tg_compile_options options = {.optimizer = t.example->optimizer(), .seed = SEED, .device = device, .threads = 1};
    t.model = tg_compile(t.ctx, t.example->build, NULL, &options);
    if (!t.model) fail_msg("%s: %s", name, tg_error_message(t.ctx));
    for (int i = 0; i < t.example->input_count; i++) {
        const tg_example_input *in = &t.example->inputs[i];
        const int64_t count = tg_shape_count(in->shape);
        t.arrays[i] = calloc((size_t)count, 4);
        assert_non_null(t.arrays[i]);
        t.feeds[i] = tg_feed_make_(in->name, in->dtype, t.arrays[i], count);
    }
    return t;
}

static void training_close(training *t) {
    for (int i = 0; i < TG_EXAMPLE_MAX_INPUTS; i++) free(t->arrays[i]);
    tg_model_destroy(t->model);
    tg_context_destroy(t->ctx);
}

static float training_step(training *t, int step) {
    float loss = 0;
    t->example->fill_batch(SEED, step, t->example->batch, t->arrays);
    if (tg_step(t->model, t->feeds, t->example->input_count, &loss) != TG_OK) fail_msg("step %d: %s", step, tg_error_message(t->ctx));
    return loss;
}

/* All parameters, one after another in the order of the model. Free with free. */
static float *training_parameters(const training *t, int64_t *count) {
    float *values = NULL;
    *count = 0;
    for (int i = 0; i < tg_model_param_count(t->model); i++) {
        const char *name = tg_model_param_name(t->model, i);
        tg_shape shape;
        assert_int_equal(tg_model_param_shape(t->model, name, &shape), TG_OK);
        const int64_t n = tg_shape_count(shape);
        values = realloc(values, sizeof *values * (size_t)(*count + n));
        assert_non_null(values);
        if (tg_param_download(t->model, name, values + *count, n) != TG_OK) fail_msg("%s: %s", name, tg_error_message(t->ctx));
        *count += n;
    }
    return values;
}

/* ---------------------------------------------------------------- against the CPU, and against itself */

/* The same losses and parameters again, bit for bit, after `steps` of them. */
static void repeats(const char *name, int steps, const float *losses, const float *parameters, int64_t count) {
    training t = training_open(name, TG_DEVICE_WEBGPU);
    for (int step = 1; step <= steps; step++)
        if (training_step(&t, step) != losses[step - 1]) fail_msg("%s: another loss at step %d the second time", name, step);
    int64_t again_count;
    float *again = training_parameters(&t, &again_count);
    assert_int_equal(again_count, count);
    assert_memory_equal(again, parameters, sizeof *again * (size_t)count);
    free(again);
    training_close(&t);
}

static void follows_the_cpu(const char *name, int steps, int repeated) {
    training cpu = training_open(name, TG_DEVICE_CPU), gpu = training_open(name, TG_DEVICE_WEBGPU);
    float losses[MAX_STEPS], *parameters = NULL;
    int64_t count = 0;
    double worst = 0;
    int worst_step = 0;
    for (int step = 1; step <= steps; step++) {
        const double want = (double)training_step(&cpu, step);
        losses[step - 1] = training_step(&gpu, step);
        const double apart = fabs((double)losses[step - 1] - want) / fabs(want);
        if (!(apart <= worst)) worst = apart, worst_step = step;
        if (step == repeated) parameters = training_parameters(&gpu, &count);
    }
    tg_model_info info;
    assert_int_equal(tg_model_get_info(gpu.model, &info), TG_OK);
    print_message("%s, %d steps on %s, %d dispatches: %.2e relative at most, at step %d\n", name, steps, info.device, info.dispatches,
                  worst, worst_step);
    training_close(&cpu);
    training_close(&gpu);
    assert_true(worst <= 1e-4);
    repeats(name, repeated, losses, parameters, count);
    free(parameters);
}

static void mlp_sin_follows_the_cpu_and_repeats_itself(void **state) {
    (void)state;
    follows_the_cpu("mlp-sin", 100, 100);
}
/* A software adapter takes about a second a step. TG_TRANSFORMER_STEPS, up to 100, for a longer look. */
static void transformer_add_follows_the_cpu_and_repeats_itself(void **state) {
    (void)state;
    follows_the_cpu("transformer-add", support_env_int("TG_TRANSFORMER_STEPS", 10), 3);
}

/* ---------------------------------------------------------------- the session */

static tg_tensor small_loss(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(6, 5), TG_F32), t = tg_input(g, "t", TG_SHAPE(6), TG_I32);
    const tg_tensor keep = tg_input(g, "keep", TG_SHAPE(6, 1), TG_BOOL);
    const tg_tensor hidden = tg_capture("hidden", tg_tanh(tg_nn_linear_fwd(tg_nn_linear(g, "l1", 5, 7), x)));
    tg_capture("kept", tg_logical_not(keep));
    tg_capture("next", tg_add(t, 1));
    const tg_tensor seen = tg_state(g, "seen", TG_SCALAR, TG_I32, 0), flag = tg_state(g, "flag", TG_SHAPE(3), TG_BOOL, 1);
    tg_writeback(seen, tg_add(seen, 1));
    tg_writeback(flag, tg_logical_not(flag));
    tg_capture("seen", seen);
    tg_capture("flag", flag);
    return tg_nn_cross_entropy(tg_nn_linear_fwd(tg_nn_linear(g, "l2", 7, 4), tg_where(keep, hidden, 0.0)), t, -1);
}
static tg_tensor small_scores(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(6, 5), TG_F32);
    return tg_softmax(tg_nn_linear_fwd(tg_nn_linear(g, "l2", 7, 4), tg_tanh(tg_nn_linear_fwd(tg_nn_linear(g, "l1", 5, 7), x))), -1);
}

typedef struct small {
    tg_context *ctx;
    tg_model *model, *scores;
    float x[30];
    int32_t t[6];
    uint8_t keep[6];
} small;

static small small_open(tg_device_kind device) {
    small s = {.ctx = support_context(), .t = {0, 3, -1, 2, 1, 1}, .keep = {1, 1, 0, 1, 1, 0}};
    for (int i = 0; i < 30; i++) s.x[i] = (float)(i * 7 % 11) / 5.0f - 1.0f;
    const tg_compile_options options = {.optimizer =
                                            tg_adam(.lr = tg_lr_linear_decay(0.1, 0.01, 20), .clip_norm = 0.5, .weight_decay = 0.01),
                                        .seed = 3,
                                        .device = device,
                                        .threads = 1};
    s.model = tg_compile(s.ctx, small_loss, NULL, &options);
    support_assert_no_error(s.ctx);
    s.scores = tg_compile_sibling(s.model, small_scores, NULL);
    support_assert_no_error(s.ctx);
    return s;
}

static void small_close(small *s) {
    tg_model_destroy(s->model);
    tg_context_destroy(s->ctx);
}

static void ok(const small *s, tg_status status) {
    if (status != TG_OK) fail_msg("%s", tg_error_message(s->ctx));
}

#define SMALL_FEEDS(s) \
  (const tg_feed[]) { tg_feed_f32("x", (s).x, 30), tg_feed_i32("t", (s).t, 6), tg_feed_bool("keep", (s).keep, 6) }

static float small_step(small *s) {
    float loss = 0;
    ok(s, tg_step(s->model, SMALL_FEEDS(*s), 3, &loss));
    return loss;
}

static void assert_same_scores(small *a, small *b) {
    float got[24], want[24];
    ok(a, tg_run(a->scores, SMALL_FEEDS(*a), 1, got, 24));
    ok(b, tg_run(b->scores, SMALL_FEEDS(*b), 1, want, 24));
    for (int i = 0; i < 24; i++)
        if (fabsf(got[i] - want[i]) > 1e-5f) fail_msg("score %d: got %.9g, want %.9g", i, (double)got[i], (double)want[i]);
}

static void captures_of_every_dtype_are_those_of_the_cpu(void **state) {
    (void)state;
    small s[2] = {small_open(TG_DEVICE_WEBGPU), small_open(TG_DEVICE_CPU)};
    for (int step = 0; step < 3; step++) {
        tg_captures *c[2];
        float loss[2];
        for (int i = 0; i < 2; i++) ok(&s[i], tg_step_captures(s[i].model, SMALL_FEEDS(s[i]), 3, &loss[i], &c[i]));
        assert_true(fabsf(loss[0] - loss[1]) <= 1e-5f * fabsf(loss[1]));
        assert_int_equal(tg_captures_count(c[0]), tg_captures_count(c[1]));
        for (int i = 0; i < tg_captures_count(c[1]); i++) {
            const char *name = tg_captures_name(c[1], i);
            tg_shape shape;
            tg_dtype dtype;
            const void *want = tg_captures_get(c[1], name, &shape, &dtype), *got = tg_captures_get(c[0], name, NULL, NULL);
            const int64_t count = tg_shape_count(shape);
            if (dtype == TG_I32) assert_memory_equal(got, want, 4 * (size_t)count);
            if (dtype == TG_BOOL) assert_memory_equal(got, want, (size_t)count);
            for (int64_t k = 0; dtype == TG_F32 && k < count; k++)
                assert_true(fabsf(((const float *)got)[k] - ((const float *)want)[k]) <= 1e-5f);
        }
        for (int i = 0; i < 2; i++) tg_captures_destroy(c[i]);
    }
    assert_same_scores(&s[0], &s[1]);
    for (int i = 0; i < 2; i++) small_close(&s[i]);
}

static void uploads_resets_and_schedules_act_as_on_the_cpu(void **state) {
    (void)state;
    small s[2] = {small_open(TG_DEVICE_WEBGPU), small_open(TG_DEVICE_CPU)};
    float losses[2][9], gradient[2][28], bias[7] = {1, -1, 0.5f, 0, 2, -2, 0.25f};
    for (int i = 0; i < 2; i++) {
        int n = 0;
        for (int k = 0; k < 3; k++) losses[i][n++] = small_step(&s[i]);
        ok(&s[i], tg_param_grad_download(s[i].model, "l2.W", gradient[i], 28));
        ok(&s[i], tg_param_upload(s[i].model, "l1.b", bias, 7));
        ok(&s[i], tg_model_set_lr(s[i].model, tg_lr_constant(0.05)));
        for (int k = 0; k < 2; k++) losses[i][n++] = small_step(&s[i]);
        ok(&s[i], tg_model_reset_optimizer(s[i].model));
        for (int k = 0; k < 2; k++) losses[i][n++] = small_step(&s[i]);
        ok(&s[i], tg_model_reset(s[i].model));
        for (int k = 0; k < 2; k++) losses[i][n++] = small_step(&s[i]);
        assert_int_equal(tg_model_step_count(s[i].model), 2);
    }
    for (int k = 0; k < 9; k++)
        if (fabsf(losses[0][k] - losses[1][k]) > 2e-5f * fabsf(losses[1][k]))
            fail_msg("loss %d: got %.9g, want %.9g", k, (double)losses[0][k], (double)losses[1][k]);
    for (int k = 0; k < 28; k++) assert_true(fabsf(gradient[0][k] - gradient[1][k]) <= 1e-5f);
    for (int i = 0; i < 2; i++) small_close(&s[i]);
}

static void a_checkpoint_moves_between_devices(void **state) {
    (void)state;
    char path[256];
    support_path(path, sizeof path, "training.safetensors");
    for (int from = 0; from < 2; from++) {
        const tg_device_kind devices[] = {TG_DEVICE_WEBGPU, TG_DEVICE_CPU};
        small a = small_open(devices[from]), b = small_open(devices[1 - from]), c = small_open(devices[from]);
        for (int k = 0; k < 3; k++) small_step(&a);
        ok(&a, tg_model_save(a.model, path));
        ok(&b, tg_model_load(b.model, path));
        ok(&c, tg_model_load(c.model, path));
        assert_int_equal(tg_model_step_count(b.model), 3);
        for (int k = 0; k < 3; k++) {
            const float straight = small_step(&a), moved = small_step(&b), same = small_step(&c);
            assert_true(same == straight);
            assert_true(fabsf(moved - straight) <= 2e-5f * fabsf(straight));
        }
        assert_same_scores(&a, &b);
        small_close(&a);
        small_close(&b);
        small_close(&c);
    }
    remove(path);
}

static void wrong_feeds_change_nothing(void **state) {
    (void)state;
    small s = small_open(TG_DEVICE_WEBGPU), other = small_open(TG_DEVICE_WEBGPU);
    float loss = 7;
    assert_true(small_step(&s) == small_step(&other));
    s.t[3] = 4; /* outside its table */
    assert_int_equal(tg_step(s.model, SMALL_FEEDS(s), 3, &loss), TG_ERROR_INDEX);
    s.t[3] = 2;
    assert_int_equal(tg_step(s.model, SMALL_FEEDS(s), 2, &loss), TG_ERROR_NOT_FOUND);
    s.keep[1] = 2;
    assert_int_equal(tg_step(s.model, SMALL_FEEDS(s), 3, &loss), TG_ERROR_ARGUMENT);
    s.keep[1] = 1;
    assert_true(loss == 7);
    for (int k = 0; k < 2; k++) assert_true(small_step(&s) == small_step(&other));
    small_close(&s);
    small_close(&other);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    support_allocator counts = {0};
    small s = {.ctx = support_context_counting(&counts), .t = {0, 3, -1, 2, 1, 1}, .keep = {1, 1, 0, 1, 1, 0}};
    const tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_constant(0.1)), .seed = 3, .device = TG_DEVICE_WEBGPU};
    s.model = tg_compile(s.ctx, small_loss, NULL, &options);
    support_assert_no_error(s.ctx);
    const int64_t calls = counts.calls;
    for (int k = 0; k < 5; k++) small_step(&s);
    assert_int_equal(counts.calls, calls);
    small_close(&s);
    assert_int_equal(counts.live_blocks, 0);
    assert_false(counts.size_mismatch);
}

/* A step that meets a NaN says so and has been made, as on the CPU. */
static void a_loss_that_is_not_finite_is_reported(void **state) {
    (void)state;
    small s = small_open(TG_DEVICE_WEBGPU);
    float loss = 0;
    s.x[0] = NAN;
    assert_int_equal(tg_step(s.model, SMALL_FEEDS(s), 3, &loss), TG_ERROR_NOT_FINITE);
    assert_true(isnan(loss));
    assert_int_equal(tg_model_step_count(s.model), 1);
    s.x[0] = 0;
    ok(&s, tg_model_reset(s.model));
    assert_true(isfinite(small_step(&s)));
    small_close(&s);
}

int main(void) {
    setenv("TENSORGRAD_TEST_HOME", "webgpu", 1);
    const int refused = support_home_refuses("webgpu training");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_sin_follows_the_cpu_and_repeats_itself),
        cmocka_unit_test(transformer_add_follows_the_cpu_and_repeats_itself),
        cmocka_unit_test(captures_of_every_dtype_are_those_of_the_cpu),
        cmocka_unit_test(uploads_resets_and_schedules_act_as_on_the_cpu),
        cmocka_unit_test(a_checkpoint_moves_between_devices),
        cmocka_unit_test(wrong_feeds_change_nothing),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(a_loss_that_is_not_finite_is_reported),
    };
    return cmocka_run_group_tests_name("webgpu training", tests, NULL, NULL);
}
