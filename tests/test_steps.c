/* Steps at the edges: gradients at both ends of f32 through every optimiser, clipping and normalising; what is not finite, on every home
 * (TENSORGRAD_TEST_HOME), fused and not. Right values are by definition. */
#include "fixtures.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- short hands */

static tg_model *compile_way(tg_context *ctx, tg_build_fn build, void *user, tg_optimizer optimizer, bool no_fusion) {
    tg_compile_options o = options_with(optimizer);
    o.no_fusion = no_fusion;
    return must(ctx, tg_compile(ctx, build, user, &o));
}

#define TEST(name, ...) \
  static void test_##name(void **state) { \
    (void)state; \
    __VA_ARGS__ \
  }

/* ---------------------------------------------------------------- gradients that are fed */

enum { FED = 4 };

/* p = 0; d (sum p g) / d p = g */
static tg_tensor build_fed(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(2, 2), .init = tg_init_zeros());
    return tg_sum_all(tg_mul(p, tg_input(g, "g", TG_SHAPE(2, 2), TG_F32)));
}

static void fed_step(tg_model *model, const float gradient[FED]) {
    ok(tg_model_context(model), tg_step(model, (const tg_feed[]){tg_feed_f32("g", gradient, FED)}, 1, NULL));
}

static void fed_values(tg_model *model, float p[FED]) { ok(tg_model_context(model), tg_param_download(model, "p", p, FED)); }

static void expect_near(const char *what, double got, double want, double relative) {
    if (!(fabs(got - want) <= relative * fabs(want))) fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

/* One step of rate 1 from 0 by this gradient. */
static void expect_step(const char *what, tg_optimizer optimizer, const float gradient[FED], const float want[FED], double relative) {
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        tg_context *ctx = support_context();
        tg_model *model = compile_way(ctx, build_fed, NULL, optimizer, no_fusion == 1);
        float p[FED];
        fed_step(model, gradient);
        fed_values(model, p);
        for (int i = 0; i < FED; i++) expect_near(what, (double)p[i], (double)want[i], relative);
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
}

TEST(clipping_neither_overflows_nor_underflows, {
    const struct {
        double clip;
        float gradient[FED], want[FED];
    } cases[] = {
        {1, {3e20f, 4e20f}, {-.6f, -.8f}},
        {1, {3e38f, -3e38f}, {-.70710678f, .70710678f}},
        {1, {3, 4}, {-.6f, -.8f}},
        {1, {.3f, .4f}, {-.3f, -.4f}},
        {5, {3, 4}, {-3, -4}},
        {1, {3e-24f, 4e-24f}, {-3e-24f, -4e-24f}},
        {1, {3e-38f, 4e-38f}, {-3e-38f, -4e-38f}},
        {1e-20, {3e-24f, 4e-24f}, {-3e-24f, -4e-24f}},
        {1e-30, {3e-24f, 4e-24f}, {-.6e-30f, -.8e-30f}},
        {1e-30, {3e20f, 4e20f}, {-.6e-30f, -.8e-30f}},
        {1e30, {3e38f, -3e38f}, {-.70710678e30f, .70710678e30f}},
        {3e38, {3e38f, 0}, {-3e38f, 0}},
        {1, {1e15f, 1e-10f}, {-1, -1e-25f}},
        {1, {0, 0}, {0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_step("clipped", tg_sgd(.lr = tg_lr_constant(1), .clip_norm = cases[i].clip), cases[i].gradient, cases[i].want, 2e-6);
})

TEST(normalizing_neither_overflows_nor_underflows, {
    const float cases[][2] = {{3, 4},           {3e20f, 4e20f},   {3e37f, 4e37f},   {3e-12f, 4e-12f}, {3e-20f, 4e-20f},
                              {3e-23f, 4e-23f}, {3e-24f, 4e-24f}, {3e-25f, 4e-25f}, {3e-30f, 4e-30f}, {3e-38f, 4e-38f}};
    const float want[FED] = {-.6f, -.8f}, zero[FED] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const float gradient[FED] = {cases[i][0], cases[i][1]};
        expect_step("normalized", tg_sgd(.lr = tg_lr_constant(1), .normalize = true), gradient, want, 2e-6);
    }
    expect_step("normalized", tg_sgd(.lr = tg_lr_constant(1), .normalize = true), zero, zero, 0);
})

/* Many elements: sums in several parts. */
enum { MANY = 70000 };
static tg_tensor build_many(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(MANY), .init = tg_init_zeros());
    return tg_sum_all(tg_mul(p, tg_input(g, "g", TG_SCALAR, TG_F32)));
}
TEST(norms_of_many_elements, {
    const float gradients[] = {1e-30f, 1, 1e30f};
    float *p = calloc(MANY, sizeof *p);
    for (int i = 0; i < 6; i++) {
        tg_context *ctx = support_context();
        tg_optimizer o = tg_sgd(.lr = tg_lr_constant(1), .normalize = i % 2 == 1);
        if (i % 2 == 0) o.clip_norm = 1e-25;
        tg_model *model = compile(ctx, build_many, NULL, o);
        ok(ctx, tg_step(model, (const tg_feed[]){tg_feed_f32("g", &gradients[i / 2], 1)}, 1, NULL));
        ok(ctx, tg_param_download(model, "p", p, MANY));
        const double want = i == 0 ? -1e-30 : -(i % 2 == 0 ? 1e-25 : 1) / sqrt(MANY);
        for (int k = 0; k < MANY; k += 999) expect_near("of many", (double)p[k], want, 1e-5);
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
    free(p);
})

/* The gradient of softplus at -60 is 9e-27. */
static const float minus_sixty[] = {-60, -60};
static tg_tensor build_logits(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(2), .init = tg_init_literal(minus_sixty, 2));
    return tg_nn_bce_with_logits(w, tg_zeros(g, TG_SHAPE(2)));
}
TEST(logits_of_minus_sixty_move_by_the_rate, {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_logits, NULL, tg_sgd(.lr = tg_lr_constant(.1), .normalize = true));
    float w[2];
    for (int step = 1; step <= 3; step++) {
        ok(ctx, tg_step(model, NULL, 0, NULL));
        ok(ctx, tg_param_download(model, "w", w, 2));
        for (int i = 0; i < 2; i++) expect_near("w", (double)w[i], -60 - step * .1 * sqrt(.5), 1e-6);
    }
    tg_model_destroy(model);
    tg_context_destroy(ctx);
})

/* ---------------------------------------------------------------- optimisers that square */

static tg_optimizer squaring(int which) {
    const tg_lr rate = tg_lr_constant(1);
    switch (which) {
    case 0: return tg_adam(.lr = rate);
    case 1: return tg_adam(.lr = rate, .eps_mode = TG_EPS_CORRECTED);
    case 2: return tg_adamw(.lr = rate);
    case 3: return tg_rmsprop(.lr = rate);
    case 4: return tg_adagrad(.lr = rate);
    case 5: return tg_rmsprop(.lr = rate, .momentum = .9);
    case 6: return tg_adam(.lr = rate, .accumulate = 1, .average = .5);
    default: return tg_lion(.lr = rate);
    }
}
/* The first step by a huge gradient is the one by any: 1 / sqrt(1 - beta2) of RMSProp, 1 of the others. */
TEST(huge_gradients_move_as_others_do, {
    const float sizes[] = {1, 1e18f, 1e19f, 2e19f, 1e20f, 1e25f, 1e30f, 3e38f};
    for (int which = 0; which < 8; which++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const float s = sizes[i], gradient[FED] = {s, -s, 1, 0}, step = which == 3 || which == 5 ? 10 : 1;
            const float want[FED] = {-step, step, -step, 0};
            expect_step("of a huge gradient", squaring(which), gradient, want, 1e-5);
        }
})
/* v of Adagrad ends at the largest number, where steps no longer shrink; the others go on at their pace. */
TEST(huge_gradients_keep_moving, {
    for (int which = 0; which < 8; which++) {
        tg_context *ctx = support_context();
        tg_model *model = compile(ctx, build_fed, NULL, squaring(which));
        float p[FED] = {0}, before[FED];
        for (int step = 0; step < 12; step++) {
            fed_values(model, before);
            fed_step(model, (const float[FED]){1e30f, -1e36f, 1e19f, 2e19f});
            fed_values(model, p);
            for (int i = 0; i < FED; i++) {
                const double moved = (double)p[i] - (double)before[i], way = i == 1 ? moved : -moved;
                if (!(way > .2 && way < 110)) fail_msg("optimiser %d, step %d: [%d] moved by %g", which, step, i, moved);
            }
        }
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
})

static void muon_step(float scale, float p[FED]) {
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_fed, NULL, tg_muon(.lr = tg_lr_constant(1)));
    for (int step = 0; step < 3; step++) fed_step(model, (const float[FED]){2 * scale, -scale, .5f * scale, 3 * scale});
    fed_values(model, p);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}
TEST(muon_sees_directions_alone, {
    const float scales[] = {1e10f, 1e19f, 1e25f, 1e36f};
    float want[FED], p[FED];
    muon_step(1, want);
    for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
        muon_step(scales[k], p);
        for (int i = 0; i < FED; i++) expect_near("Muon", (double)p[i], (double)want[i], 1e-3);
    }
})

/* Squares of tiny gradients vanish; an eps that hides it leaves the largest step there is, and 0 / 0 does not move. */
TEST(a_tiny_eps_bounds_the_step, {
    const float gradient[FED] = {1e-30f, -1e-30f, 0, 1};
    for (int which = 0; which < 6; which++) {
        tg_context *ctx = support_context();
        tg_optimizer o = squaring(which);
        o.eps = 1e-30;
        tg_model *model = compile(ctx, build_fed, NULL, o);
        float p[FED];
        fed_step(model, gradient);
        fed_values(model, p);
        if (!(p[0] < 0 && p[0] >= -11 && p[1] > 0 && p[1] <= 11 && p[2] == 0 && p[3] <= -.999f))
            fail_msg("optimiser %d: %g %g %g %g", which, (double)p[0], (double)p[1], (double)p[2], (double)p[3]);
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
})

/* ---------------------------------------------------------------- what is not finite */

enum { ROWS = 8, WIDE = 6 };
/* A row is x and z. Loss: mean (p x - 1)^2 + sum (p - p) z z: with z = 1e30 the gradient of the second overflows, the loss does not. A
 * state counts, another draws. */
static tg_tensor build_watched(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(2, WIDE / 2)), b = tg_param(g, "b", TG_SHAPE(1), .init = tg_init_ones());
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(1), TG_F32), z = tg_input(g, "z", TG_SHAPE(1), TG_F32);
    const tg_tensor n = tg_state(g, "n", TG_SCALAR, TG_F32, 0.0);
    tg_writeback(n, tg_add(n, tg_sum_all(x)));
    const tg_tensor apart = tg_mul(tg_mul(tg_sub(p, tg_stop_gradient(p)), z), z);
    return tg_add(tg_mean(tg_square(tg_sub(tg_add(tg_mul(p, x), b), 1.0)), TG_ALL), tg_sum_all(apart));
}

/* Of the rows, 2 has a bad gradient, 5 a bad loss. */
static const float watched_x[ROWS] = {1, .5f, -1, 2, .25f, NAN, 1.5f, -.5f}, watched_z[ROWS] = {0, 1, 1e30f, 0, 0, 0, .5f, 0};
static bool watched_bad(int row) { return row == 2 || row == 5; }

typedef struct watched {
    float p[WIDE], b[1], n, average[WIDE];
} watched;

static tg_tensor build_watched_state(tg_graph *g, void *user) {
    (void)user;
    return tg_state(g, "n", TG_SCALAR, TG_F32, 0.0);
}

static watched watched_values(tg_model *model, tg_model *reader, bool averages) {
    tg_context *ctx = tg_model_context(model);
    watched w = {.n = 0};
    ok(ctx, tg_param_download(model, "p", w.p, WIDE));
    ok(ctx, tg_param_download(model, "b", w.b, 1));
    ok(ctx, tg_run(reader, NULL, 0, &w.n, 1));
    if (averages) ok(ctx, tg_param_average_download(model, "p", w.average, WIDE));
    return w;
}

static void expect_status(tg_context *ctx, tg_status got, tg_status want, const char *says) {
    if (got != want || (want != TG_OK && strstr(tg_error_message(ctx), says) == NULL))
        fail_msg("%s, '%s': wanted %s, '%s'", tg_status_name(got), tg_error_message(ctx), tg_status_name(want), says);
    tg_clear_error(ctx);
}

enum { BY_STEP, BY_ASYNC, BY_TRAIN, WAYS };
/* Row `row` as the next step. */
static tg_status watched_step(tg_model *model, int way, int row, float *loss) {
    const tg_feed feeds[] = {tg_feed_f32("x", &watched_x[row], 1), tg_feed_f32("z", &watched_z[row], 1)};
    tg_ticket ticket;
    if (way == BY_STEP) return tg_step(model, feeds, 2, loss);
    const tg_status status = tg_step_async(model, feeds, 2, &ticket);
    return status == TG_OK ? tg_wait(model, ticket, loss) : status;
}

static tg_optimizer skipping(int which) {
    const tg_lr rate = tg_lr_linear_decay(.1, .01, 5);
    switch (which) {
    case 0: return tg_adam(.lr = rate, .skip_non_finite = true);
    case 1: return tg_adamw(.lr = rate, .skip_non_finite = true, .accumulate = 2, .average = .5, .clip_norm = .5);
    case 2: return tg_sgd(.lr = rate, .skip_non_finite = true, .momentum = .9, .normalize = true, .average = .9);
    case 3: return tg_rmsprop(.lr = rate, .skip_non_finite = true, .momentum = .5, .clip_value = .1);
    case 4: return tg_adagrad(.lr = rate, .skip_non_finite = true, .accumulate = 3);
    case 5: return tg_muon(.lr = rate, .skip_non_finite = true, .clip_norm = 1, .clip_value = 3);
    default: return tg_lion(.lr = rate, .skip_non_finite = true);
    }
}

static tg_tensor build_watched_appended(tg_graph *g, void *user) {
    const tg_tensor loss = build_watched(g, NULL);
    tg_append_optimizer(loss, (const tg_optimizer *)user);
    return loss;
}

/* A checkpoint tells of all steps, those that were skipped too. */
static void check_skipping_saved(tg_context *ctx, tg_model *model, tg_model *reader, bool averages) {
    char path[600];
    support_path(path, sizeof path, "steps.safetensors");
    const watched before = watched_values(model, reader, averages);
    ok(ctx, tg_model_save(model, path));
    ok(ctx, tg_model_reset(model));
    ok(ctx, tg_model_load(model, path));
    remove(path);
    const watched after = watched_values(model, reader, averages);
    assert_memory_equal(&before, &after, sizeof after);
    assert_int_equal(tg_model_step_count(model), ROWS);
}

static void check_skipping(int which, int way, bool no_fusion, bool appended) {
    tg_context *ctx = support_context();
    tg_optimizer o = skipping(which);
    const tg_optimizer none = {.kind = TG_OPTIMIZER_NONE};
    tg_model *model = appended ? compile_way(ctx, build_watched_appended, &o, none, no_fusion)
                               : compile_way(ctx, build_watched, NULL, o, no_fusion),
             *plain = compile_way(ctx, build_watched, NULL, o, no_fusion);
    tg_model *reader = tg_compile_sibling(model, build_watched_state, NULL), *other = tg_compile_sibling(plain, build_watched_state, NULL);
    assert_true(reader != NULL && other != NULL);
    int64_t good = 0;
    for (int row = 0; row < ROWS; row++) {
        float loss = 0, same = 0;
        const watched before = watched_values(model, reader, o.average > 0);
        const tg_status status = watched_step(model, way, row, &loss);
        expect_status(ctx, status, watched_bad(row) ? TG_ERROR_NOT_FINITE : TG_OK,
                      row == 2 ? "step 3: a gradient is not finite; it was skipped: parameters and optimizer are as they were"
                               : "step 6: loss is nan; it was skipped");
        assert_int_equal(tg_model_step_count(model), row + 1);
        const watched after = watched_values(model, reader, o.average > 0);
        if (watched_bad(row)) {
            assert_true(isnan(loss));
            assert_memory_equal(&before, &after, sizeof after);
            float gradient[WIDE];
            ok(ctx, tg_param_grad_download(model, "p", gradient, WIDE));
            const bool finite = isfinite(gradient[0]) != 0;
            assert_false(finite);
            continue;
        }
        ok(ctx, watched_step(plain, BY_STEP, row, &same));
        assert_memory_equal(&loss, &same, sizeof loss);
        const watched want = watched_values(plain, other, o.average > 0);
        assert_memory_equal(&after, &want, sizeof want);
        assert_int_equal(tg_model_step_count(plain), ++good);
    }
    assert_true(watched_values(model, reader, false).n == 4.75f);
    check_skipping_saved(ctx, model, reader, o.average > 0);
    tg_model_destroy(model);
    tg_model_destroy(plain);
    tg_context_destroy(ctx);
}
TEST(a_skipped_step_is_as_if_it_had_not_been, {
    for (int which = 0; which < 7; which++)
        for (int way = 0; way < BY_TRAIN; way++) check_skipping(which, way, which < 2 && way == BY_STEP, false);
})

TEST(an_appended_optimiser_skips_too, {
    for (int which = 0; which < 3; which++) check_skipping(which, which % BY_TRAIN, which == 1, true);
})

TEST(an_appended_optimiser_tells_of_a_bad_gradient, {
    for (int which = 0; which < 2; which++) {
        tg_context *ctx = support_context();
        tg_optimizer o =
            which == 0 ? tg_sgd(.lr = tg_lr_constant(.1), .normalize = true) : tg_adam(.lr = tg_lr_constant(.1), .clip_norm = 1);
        const tg_optimizer none = {.kind = TG_OPTIMIZER_NONE};
        tg_model *model = compile(ctx, build_watched_appended, &o, none);
        float loss = 0;
        ok(ctx, watched_step(model, BY_STEP, 0, &loss));
        expect_status(ctx, watched_step(model, BY_STEP, 2, &loss), TG_ERROR_NOT_FINITE, "step 2: a gradient is not finite");
        assert_true(isnan(loss));
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
})

/* Steps behind a bad one in the same submission go on. */
TEST(training_on_a_data_set_skips_too, {
    for (int which = 0; which < 2; which++)
        for (int many = 0; many < 2; many++) {
            tg_context *ctx = support_context();
            const tg_optimizer o = skipping(which);
            tg_model *model = compile(ctx, build_watched, NULL, o), *plain = compile(ctx, build_watched, NULL, o);
            tg_model *reader = tg_compile_sibling(model, build_watched_state, NULL),
                     *other = tg_compile_sibling(plain, build_watched_state, NULL);
            const tg_feed arrays[] = {tg_feed_f32("x", watched_x, ROWS), tg_feed_f32("z", watched_z, ROWS)};
            tg_dataset *dataset = tg_dataset_create(model, arrays, 2, ROWS);
            assert_non_null(dataset);
            float losses[ROWS], loss;
            int failed = 0, made = 0;
            while (made < ROWS) {
                const tg_train_options options = {
                    .steps = ROWS - made, .order = TG_BATCH_SEQUENTIAL, .steps_per_submission = many ? ROWS : 1};
                tg_train_result result;
                const tg_status status = tg_train(model, dataset, &options, losses + made, &result);
                failed += status != TG_OK;
                expect_status(ctx, status, status != TG_OK ? TG_ERROR_NOT_FINITE : TG_OK,
                              made < 3 ? "step 3: a gradient is not finite; it was" : "step 6: loss is nan; it was");
                made += (int)result.steps;
            }
            assert_int_equal(made, ROWS);
            assert_true(failed == 1 || failed == 2);
            assert_int_equal(tg_model_step_count(model), ROWS);
            for (int row = 0; row < ROWS; row++) {
                if (watched_bad(row)) {
                    assert_true(isnan(losses[row]));
                    continue;
                }
                ok(ctx, watched_step(plain, BY_STEP, row, &loss));
                assert_memory_equal(&loss, &losses[row], sizeof loss);
            }
            const watched got = watched_values(model, reader, o.average > 0), want = watched_values(plain, other, o.average > 0);
            assert_memory_equal(&got, &want, sizeof want);
            tg_dataset_destroy(dataset);
            tg_model_destroy(model);
            tg_model_destroy(plain);
            tg_context_destroy(ctx);
        }
})

/* Files and schedules count the steps that were made. */
TEST(skipped_steps_are_saved_and_schedules_do_not_count_them, {
    tg_context *ctx = support_context();
    char path[600];
    support_path(path, sizeof path, "steps.safetensors");
    tg_model *model = compile(ctx, build_watched, NULL, skipping(1)), *loaded = compile(ctx, build_watched, NULL, skipping(1));
    tg_model *reader = tg_compile_sibling(model, build_watched_state, NULL), *other = tg_compile_sibling(loaded, build_watched_state, NULL);
    float loss;
    for (int row = 0; row < 4; row++) {
        watched_step(model, BY_STEP, row, &loss);
        tg_clear_error(ctx);
    }
    ok(ctx, tg_model_save(model, path));
    ok(ctx, tg_model_load(loaded, path));
    remove(path);
    assert_int_equal(tg_model_step_count(loaded), 4);
    ok(ctx, tg_model_set_lr(model, tg_lr_linear_decay(.5, 0, 4)));
    ok(ctx, tg_model_set_lr(loaded, tg_lr_linear_decay(.5, 0, 4)));
    for (int row = 4; row < ROWS; row++) {
        watched_step(model, BY_STEP, row, &loss);
        watched_step(loaded, BY_STEP, row, &loss);
        tg_clear_error(ctx);
        const watched got = watched_values(loaded, other, true), want = watched_values(model, reader, true);
        assert_memory_equal(&got, &want, sizeof want);
    }
    ok(ctx, tg_model_reset(model));
    assert_int_equal(tg_model_step_count(model), 0);
    tg_model_destroy(model);
    tg_model_destroy(loaded);
    tg_context_destroy(ctx);
})

/* Where the gradients are looked at anyway the step itself tells; elsewhere the next one does. */
TEST(a_gradient_that_is_not_finite_is_told, {
    for (int which = 0; which < 3; which++) {
        tg_context *ctx = support_context();
        tg_optimizer o = tg_adam(.lr = tg_lr_constant(.1));
        if (which == 1) o.clip_norm = 1;
        if (which == 2) o.normalize = true;
        tg_model *model = compile(ctx, build_watched, NULL, o);
        float loss = 0;
        ok(ctx, watched_step(model, BY_STEP, 0, &loss));
        const tg_status status = watched_step(model, which == 2 ? BY_ASYNC : BY_STEP, 2, &loss);
        expect_status(ctx, status, which > 0 ? TG_ERROR_NOT_FINITE : TG_OK, "step 2: a gradient is not finite");
        assert_true(isnan(loss) == (which > 0));
        expect_status(ctx, watched_step(model, BY_STEP, 0, &loss), TG_ERROR_NOT_FINITE, "step 3: loss is nan");
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
})

/* ---------------------------------------------------------------- where it came from */

static int exp_line;
static tg_tensor build_blamed(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones()), x = tg_input(g, "x", TG_SHAPE(3), TG_F32);
    const tg_tensor masked = tg_where(tg_greater(x, -50.0), tg_mul(w, x), -(double)INFINITY); /* meant: softmax makes 0 of it */
    exp_line = __LINE__ + 1;
    const tg_tensor grown = tg_exp(tg_mul(w, x));
    return tg_add(tg_add(tg_sum_all(tg_softmax(masked, 0)), tg_mean(tg_log(grown), TG_ALL)), tg_sum_all(tg_sqrt(tg_sub(60.0, x))));
}

static void check_blame(const float x[3], const char *says, bool at_exp, bool no_fusion) {
    tg_context *ctx = support_context();
    tg_compile_options o = options_with(tg_adam(.lr = tg_lr_constant(.1)));
    o.no_fusion = no_fusion;
    o.check_finite = true;
    tg_model *model = tg_compile(ctx, build_blamed, NULL, &o);
    if (model == NULL) fail_msg("%s", tg_error_message(ctx));
    const tg_feed feed = tg_feed_f32("x", x, 3);
    float loss = 0, w[3] = {0};
    tg_ticket ticket = 7;
    tg_dataset *dataset = tg_dataset_create_batch(model, &feed, 1, 3, 3);
    assert_non_null(dataset);
    const tg_train_options train = {.steps = 1, .order = TG_BATCH_SEQUENTIAL};
    for (int way = 0; way < 3; way++) {
        const tg_status status = way == 0   ? tg_step(model, &feed, 1, &loss)
                                 : way == 1 ? tg_step_async(model, &feed, 1, &ticket)
                                            : tg_train(model, dataset, &train, NULL, NULL);
        if (at_exp) assert_int_equal(tg_error_site(ctx).line, exp_line);
        if (at_exp) assert_non_null(strstr(tg_error_site(ctx).file, "test_steps.c"));
        expect_status(ctx, status, says != NULL ? TG_ERROR_NOT_FINITE : TG_OK, says != NULL ? says : "");
        ok(ctx, tg_param_download(model, "w", w, 3));
        assert_int_equal(tg_model_step_count(model), says != NULL ? 0 : way + 1);
        assert_true((w[0] == 1 && w[1] == 1) == (says != NULL));
    }
    assert_true(says == NULL || ticket == 0);
    assert_true(isnan(loss) == (says != NULL));
    tg_dataset_destroy(dataset);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}
TEST(check_finite_names_the_first_operation, {
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        check_blame((const float[]){1, 2, -1}, NULL, false, no_fusion == 1);
        check_blame((const float[]){1, 2, -55}, NULL, false, no_fusion == 1); /* the mask hides it */
        check_blame((const float[]){1, 100, -1}, "step 1: exp[3] made inf, the first value that is not finite: nothing was changed", true,
                    no_fusion == 1);
        check_blame((const float[]){1, -110, -1}, "step 1: log[3] made inf", false, no_fusion == 1);
        check_blame((const float[]){1, NAN, -1}, "step 1: x[3] holds nan", false, no_fusion == 1);
        check_blame((const float[]){1, 2, 61}, "step 1: sqrt[3] made nan", false, no_fusion == 1);
    }
})
TEST(check_finite_looks_at_the_way_back, {
    tg_context *ctx = support_context();
    tg_compile_options o = options_with(skipping(0));
    o.check_finite = true;
    tg_model *model = tg_compile(ctx, build_watched, NULL, &o);
    if (model == NULL) fail_msg("%s", tg_error_message(ctx));
    float loss;
    ok(ctx, watched_step(model, BY_STEP, 0, &loss));
    expect_status(ctx, watched_step(model, BY_STEP, 2, &loss), TG_ERROR_NOT_FINITE, "on the way back made inf");
    expect_status(ctx, watched_step(model, BY_ASYNC, 5, &loss), TG_ERROR_NOT_FINITE, "step 2: x[1] holds nan");
    ok(ctx, watched_step(model, BY_ASYNC, 1, &loss));
    assert_int_equal(tg_model_step_count(model), 2);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
})

int main(void) {
    const int refused = support_home_refuses("steps");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clipping_neither_overflows_nor_underflows),
        cmocka_unit_test(test_normalizing_neither_overflows_nor_underflows),
        cmocka_unit_test(test_norms_of_many_elements),
        cmocka_unit_test(test_logits_of_minus_sixty_move_by_the_rate),
        cmocka_unit_test(test_huge_gradients_move_as_others_do),
        cmocka_unit_test(test_huge_gradients_keep_moving),
        cmocka_unit_test(test_muon_sees_directions_alone),
        cmocka_unit_test(test_a_tiny_eps_bounds_the_step),
        cmocka_unit_test(test_a_skipped_step_is_as_if_it_had_not_been),
        cmocka_unit_test(test_an_appended_optimiser_skips_too),
        cmocka_unit_test(test_an_appended_optimiser_tells_of_a_bad_gradient),
        cmocka_unit_test(test_training_on_a_data_set_skips_too),
        cmocka_unit_test(test_skipped_steps_are_saved_and_schedules_do_not_count_them),
        cmocka_unit_test(test_a_gradient_that_is_not_finite_is_told),
        cmocka_unit_test(test_check_finite_names_the_first_operation),
        cmocka_unit_test(test_check_finite_looks_at_the_way_back),
    };
    return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
