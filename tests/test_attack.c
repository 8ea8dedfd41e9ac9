/* test_attack: misuse of the public API by a clumsy or hostile user, and structures that random
 * graphs reach too rarely: values captured while they are overwritten, gradients packed in one flat
 * state and read again, models in odd orders. Also on WebGPU (see support_home). */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- captures of what the step overwrites */

typedef enum updates { SWAP, TRANSPOSE, INCREMENT, CROSS, UPDATE_KINDS } updates;

static const float p_start[] = {1, 2, 3, 4}, q_start[] = {10, 20, 30, 40};

/* Every leaf and a view of each is captured, and every state moves. */
static tg_tensor build_updates(tg_graph *g, void *user) {
    const updates kind = *(const updates *)user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(2, 2), .init = tg_init_literal(p_start, 4));
    tg_tensor q = tg_param(g, "q", TG_SHAPE(2, 2), .init = tg_init_literal(q_start, 4));
    tg_tensor s = tg_state(g, "s", TG_SHAPE(2, 2), TG_F32, 5), t = tg_state(g, "t", TG_SHAPE(2, 2), TG_F32, 7);
    tg_tensor n = tg_state(g, "n", TG_SHAPE(3), TG_I32, 2), b = tg_state(g, "b", TG_SHAPE(3), TG_BOOL, 1);
    tg_capture("p", p);
    tg_capture("q", q);
    tg_capture("s", s);
    tg_capture("t", t);
    tg_capture("n", n);
    tg_capture("b", b);
    tg_capture("view", tg_swap_axes(q, 0, 1));
    tg_capture("part", tg_narrow(q, 0, 1, 1));
    tg_writeback(n, tg_add(n, 1));
    tg_writeback(b, tg_logical_not(b));
    if (kind == SWAP) tg_writeback(p, q), tg_writeback(q, p), tg_writeback(s, t), tg_writeback(t, s);
    if (kind == TRANSPOSE) tg_writeback(q, tg_swap_axes(q, 0, 1)), tg_writeback(s, tg_add(s, p)), tg_writeback(t, q);
    if (kind == INCREMENT) tg_writeback(q, tg_capture("next", tg_add(q, 1))), tg_writeback(s, tg_add(s, 1)), tg_writeback(t, s);
    if (kind == CROSS) tg_writeback(q, p), tg_writeback(s, tg_mul(q, 2)), tg_writeback(t, q);
    return tg_sum_all(tg_mul(p, q));
}

static void captures_hold_the_values_from_before_the_update(void **state) {
    (void)state;
    for (int k = 0; k < UPDATE_KINDS; k++)
        for (int apart = 0; apart < 2; apart++) {
            updates kind = (updates)k;
            support_case c = {.build = build_updates, .build_user = &kind};
            support_outputs want, got;
            support_options options = {.runs = 2, .no_fusion = apart == 1};
            if (!support_run_reference(&c, 2, &want)) fail_msg("reference: %s", want.message);
            if (!support_run_home(&c, &options, &got)) fail_msg("%s", got.message);
            assert_true(support_outputs_equal("updates", &got, &want, (support_tolerance){2, 0, 0}));
            support_outputs_free(&want);
            support_outputs_free(&got);
        }
}

/* A result that is also the second part of the flat gradient. */
static tg_tensor build_gradient_as_result(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(2, 2)), q = tg_param(g, "q", TG_SHAPE(2, 2)), gradient;
    tg_grad(tg_sum_all(tg_mul(tg_sin(p), tg_square(q))), &q, 1, &gradient);
    tg_writeback(q, gradient);
    tg_writeback(p, tg_mul(p, 2));
    return gradient;
}

static void a_result_may_be_what_a_parameter_becomes(void **state) {
    (void)state;
    support_case c = {.build = build_gradient_as_result};
    support_outputs want, got;
    support_options options = {.runs = 2};
    if (!support_run_reference(&c, 2, &want)) fail_msg("reference: %s", want.message);
    if (!support_run_home(&c, &options, &got)) fail_msg("%s", got.message);
    assert_true(support_outputs_equal("result", &got, &want, (support_tolerance){64, 1e-6, 1e-5}));
    support_outputs_free(&want);
    support_outputs_free(&got);
}

/* ---- training: fused, kernel by kernel and with captures must agree */

/* One elementwise chain from the parameter to its gradient, so that everything wants to be one kernel. */
static tg_tensor build_pointwise(tg_graph *g, void *user) {
    const int64_t count = *(const int64_t *)user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(count), .init = tg_init_uniform(1));
    tg_tensor y = tg_capture("y", tg_square(p));
    return tg_mean(tg_mul(tg_sin(y), tg_add(y, 0.3)), TG_ALL);
}

static void train(tg_build_fn build, void *user, const tg_compile_options *options, bool captures, float losses[4]) {
    tg_context *ctx = support_context();
    tg_model *model = tg_compile(ctx, build, user, options);
    support_assert_no_error(ctx);
    for (int i = 0; i < 4; i++) {
        tg_captures *held = NULL;
        tg_status status = captures ? tg_step_captures(model, NULL, 0, &losses[i], &held) : tg_step(model, NULL, 0, &losses[i]);
        if (status != TG_OK) fail_msg("%s", tg_error_message(ctx));
        tg_captures_destroy(held);
    }
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void updates_read_this_steps_gradient(void **state) {
    (void)state;
    const tg_optimizer optimizers[] = {
        tg_sgd(.lr = tg_lr_constant(0.1)),
        tg_sgd(.lr = tg_lr_constant(0.1), .momentum = 0.5, .clip_norm = 0.1),
        tg_sgd(.lr = tg_lr_constant(0.1), .momentum = 0.9, .nesterov = true, .weight_decay = 0.1),
        tg_adam(.lr = tg_lr_constant(0.1), .eps = 1e-3),
        tg_adam(.lr = tg_lr_constant(0.1), .eps = 1e-3, .eps_mode = TG_EPS_CORRECTED, .weight_decay = 0.1, .clip_norm = 0.5),
    };
    const int64_t counts[] = {1, 7, 64, 448, 1000};
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            if (support_home_now() == SUPPORT_WEBGPU && n % 2 == 0) continue; /* slow on a software adapter */
            int64_t count = counts[n];
            float apart[4], fused[4], captured[4];
            tg_compile_options options = {.optimizer = optimizers[o], .seed = 5, .device = support_device(), .threads = 1};
            train(build_pointwise, &count, &options, false, fused);
            train(build_pointwise, &count, &options, true, captured);
            options.no_fusion = true;
            train(build_pointwise, &count, &options, false, apart);
            for (int i = 0; i < 4; i++)
                if (fabsf(fused[i] - apart[i]) > 1e-5f || fabsf(captured[i] - apart[i]) > 1e-5f)
                    fail_msg("optimizer %zu, %lld numbers, step %d: fused %.9g, captured %.9g, apart %.9g", o, (long long)count, i + 1,
                             (double)fused[i], (double)captured[i], (double)apart[i]);
        }
}

/* ---- writebacks that look like something else of the step */

/* The gradient of p is x, and so is its new value: both flat tensors have the same parts. */
static tg_tensor build_gradient_twin(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(3), .init = tg_init_ones()), x = tg_input(g, "x", TG_SHAPE(3), TG_F32);
    tg_param(g, "q", TG_SHAPE(70), .init = tg_init_ones());
    tg_writeback(p, x);
    return tg_sum_all(tg_mul(p, x));
}

static void a_writeback_leaves_the_other_parameters_alone(void **state) {
    (void)state;
    const float x[] = {3, 4, 5};
    const tg_feed feed = tg_feed_f32("x", x, 3);
    float p[3], q[70], gradient[3], rest[70];
    tg_context *ctx = support_context();
    tg_model *model = tg_compile(ctx, build_gradient_twin, NULL, &(tg_compile_options){.device = support_device()});
    support_assert_no_error(ctx);
    for (int i = 0; i < 2; i++) assert_int_equal(tg_step(model, &feed, 1, NULL), TG_OK);
    assert_int_equal(tg_param_download(model, "p", p, 3), TG_OK);
    assert_int_equal(tg_param_download(model, "q", q, 70), TG_OK);
    assert_int_equal(tg_param_grad_download(model, "p", gradient, 3), TG_OK);
    assert_int_equal(tg_param_grad_download(model, "q", rest, 70), TG_OK);
    assert_memory_equal(p, x, sizeof x);
    assert_memory_equal(gradient, x, sizeof x);
    for (int i = 0; i < 70; i++) assert_true(q[i] == 1.0f && rest[i] == 0.0f);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* ---- the gradient of an extremum: values computed twice must be the same bits */

/* f = q / (1 + q q) may be rounded in two ways; which part is largest follows from the sign of q. */
static tg_tensor build_extremum(tg_graph *g, void *user) {
    const int kind = *(const int *)user;
    tg_tensor q =
        kind < 4 ? tg_param(g, "q", TG_SCALAR, .init = tg_init_uniform(2)) : tg_param(g, "q", TG_SHAPE(7, 1), .init = tg_init_uniform(2));
    tg_tensor f = tg_div(q, tg_add(1, tg_square(q)));
    tg_tensor parts[3] = {f, kind % 2 == 0 ? tg_clamp(f, -0.6, 0.7) : tg_mul(f, 0.9), tg_mul(f, 0.5)};
    tg_tensor all = kind < 4 ? tg_stack(parts, 3, 0) : tg_concat(parts, 3, 1);
    const int32_t last = -1;
    tg_tensor extremum = kind / 2 % 2 == 0 ? tg_max(all, tg_axes_make(1, &last)) : tg_min(all, tg_axes_make(1, &last));
    return tg_sum_all(tg_cos(extremum));
}

static void gradient_of_extremum(int kind, uint64_t seed, bool apart, float out[7]) {
    tg_context *ctx = support_context();
    tg_compile_options options = {.seed = seed, .no_fusion = apart, .device = support_device(), .threads = 1};
    tg_model *model = tg_compile(ctx, build_extremum, &kind, &options);
    support_assert_no_error(ctx);
    assert_int_equal(tg_step(model, NULL, 0, NULL), TG_OK);
    assert_int_equal(tg_param_grad_download(model, "q", out, kind < 4 ? 1 : 7), TG_OK);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void an_extremum_finds_where_it_came_from(void **state) {
    (void)state;
    const uint64_t seeds = support_home_now() == SUPPORT_WEBGPU ? 4 : SUPPORT_SANITIZED ? 12 : 40;
    for (int kind = 0; kind < 8; kind++)
        for (uint64_t seed = 1; seed < seeds; seed++) {
            float fused[7] = {0}, apart[7] = {0};
            gradient_of_extremum(kind, seed, false, fused);
            gradient_of_extremum(kind, seed, true, apart);
            for (int i = 0; i < 7; i++)
                if (fabsf(fused[i] - apart[i]) > 1e-5f)
                    fail_msg("kind %d, seed %d, [%d]: fused %.9g, apart %.9g", kind, (int)seed, i, (double)fused[i], (double)apart[i]);
        }
}

/* ---- misuse */

static tg_tensor build_destroyer(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(2), TG_F32);
    tg_graph_destroy(g);
    return tg_tanh(x);
}

/* loss = max over axes of x = p + p p / 4, for rows short and long; a part of it is captured, or not, or x used once more. Whatever is
 * stored and in however many passes a row is done, the gradient 1 + p / 2 must land on exactly one element of each row. */
typedef struct extremum_case {
    int64_t rows, cols;
    bool minimum, captured, used;
} extremum_case;
static tg_tensor build_row_extremum(tg_graph *g, void *user) {
    const extremum_case *c = user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(c->rows, c->cols), .init = tg_init_uniform(1.0));
    tg_tensor part = tg_mul(tg_mul(p, p), 0.25), x = tg_add(p, part); /* rising, so there are no ties */
    if (c->captured) tg_capture("part", part);
    tg_tensor m = c->minimum ? tg_min(x, TG_AXES(1), .keepdims = true) : tg_max(x, TG_AXES(1), .keepdims = true);
    tg_tensor loss = tg_sum_all(m);
    return c->used ? tg_add(loss, tg_sum_all(tg_stop_gradient(tg_exp(x)))) : loss;
}
static void check_extremum(const extremum_case *c) {
    const int64_t count = c->rows * c->cols;
    tg_context *ctx = support_context();
    tg_model *model = tg_compile(ctx, build_row_extremum, (void *)(uintptr_t)c, &(tg_compile_options){.device = support_device()});
    support_assert_no_error(ctx);
    float *p = malloc(sizeof(float) * (size_t)count), *d = malloc(sizeof(float) * (size_t)count), loss;
    tg_captures *captures = NULL;
    assert_int_equal(c->captured ? tg_step_captures(model, NULL, 0, &loss, &captures) : tg_step(model, NULL, 0, &loss), TG_OK);
    assert_int_equal(tg_param_download(model, "p", p, count), TG_OK);
    assert_int_equal(tg_param_grad_download(model, "p", d, count), TG_OK);
    for (int64_t r = 0; r < c->rows; r++) {
        int hits = 0;
        for (int64_t i = r * c->cols; i < (r + 1) * c->cols; i++) {
            if (d[i] == 0) continue;
            hits++;
            if (fabs((double)d[i] - (1 + (double)p[i] / 2)) > 1e-6) fail_msg("gradient %g at p = %g", (double)d[i], (double)p[i]);
        }
        if (hits != 1) fail_msg("[%d, %d]: row %d has its gradient on %d elements", (int)c->rows, (int)c->cols, (int)r, hits);
    }
    tg_captures_destroy(captures);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    free(p);
    free(d);
}
static void an_extremum_of_any_row_has_one_gradient(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 3}, {1, 300}, {1, 889}, {3, 889}, {1, 5000}, {40, 7}, {300, 31}, {2, 20000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (unsigned how = 0; how < 8; how++) {
            const extremum_case c = {sizes[i][0], sizes[i][1], (how & 1u) != 0, (how & 2u) != 0, (how & 4u) != 0};
            check_extremum(&c);
        }
}

static void a_build_function_cannot_destroy_its_graph(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    assert_null(tg_compile_forward(ctx, build_destroyer, NULL, NULL));
    assert_int_equal(tg_error(ctx), TG_ERROR_TRACE);
    assert_non_null(strstr(tg_error_message(ctx), "graph_destroy"));
    tg_context_destroy(ctx);
}

int main(void) {
    const int refused = support_home_refuses("attack");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_hold_the_values_from_before_the_update),
        cmocka_unit_test(a_result_may_be_what_a_parameter_becomes),
        cmocka_unit_test(updates_read_this_steps_gradient),
        cmocka_unit_test(a_writeback_leaves_the_other_parameters_alone),
        cmocka_unit_test(an_extremum_finds_where_it_came_from),
        cmocka_unit_test(an_extremum_of_any_row_has_one_gradient),
        cmocka_unit_test(a_build_function_cannot_destroy_its_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
