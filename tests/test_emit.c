/* Emitted C: what a reader of it relies on (comments, names, buffers, determinism), exact literals, kernels of several
 * passes, updates in place, a training step, and every failing allocation. The op table and the random graphs compile
 * and run far more of it; everything is compiled with -Wall -Wextra -Wpedantic -Werror. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "emit/emit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const support_tolerance close_to = {4.0, 2e-6, 2e-6};
static const support_tolerance exact = {0.0, 0.0, 0.0};

/* Compiles the case's emitted C and runs it `runs` times against the reference. */
static void check_emitted(tg_build_fn build, void *user, int runs, const support_options *options, support_tolerance tolerance) {
    if (!support_emitted_available()) skip();
    const support_case c = {build, user, NULL, NULL};
    support_outputs want, got, error = {0};
    support_program program;
    if (!support_run_reference(&c, runs, &want)) fail_msg("%s", want.message);
    if (!support_program_make(&c, options, &program, &error)) fail_msg("%s", error.message);
    support_emitted *e = support_emitted_create();
    assert_int_equal(support_emitted_add(e, program.program, program.ctx), 0);
    assert_true(support_emitted_compile(e));
    void *step_user = NULL;
    const support_step_fn step = support_emitted_step(e, 0, &step_user);
    support_program_run(&program, &c, runs, step, step_user, &got);
    const bool same = support_outputs_equal("emitted C", &got, &want, tolerance);
    support_outputs_free(&got);
    support_outputs_free(&want);
    support_emitted_destroy(e);
    support_program_free(&program);
    assert_true(same);
}

static tg_tensor build_softmax(tg_graph *g, void *user) {
    (void)user;
    return tg_softmax(tg_mul(tg_input(g, "x", TG_SHAPE(3, 37), TG_F32), 3.0), -1);
}

static tg_tensor build_norm(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(2, 3, 19), TG_F32);
    const tg_layer_norm norm = tg_nn_layer_norm(g, "n", 19);
    tg_tensor d[2];
    const tg_tensor y = tg_nn_layer_norm_fwd(norm, x), wrt[2] = {x, norm.g};
    tg_vjp(y, tg_input(g, "cot", TG_SHAPE(2, 3, 19), TG_F32), wrt, 2, d);
    tg_capture("dx", d[0]);
    tg_capture("dg", d[1]);
    tg_capture("best", tg_argmax(y, -1));
    return y;
}

static void test_kernels_of_several_passes(void **state) {
    (void)state;
    check_emitted(build_softmax, NULL, 1, &(support_options){0}, close_to);
    check_emitted(build_norm, NULL, 1, &(support_options){0}, (support_tolerance){16.0, 1e-5, 1e-5});
}

static tg_tensor build_literals(tg_graph *g, void *user) {
    (void)user;
    static const float floats[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1.4e-45f, 0.1f, 1.0f / 3, -0.0f, 16777216.0f, 1e6f, 3e-39f};
    static const int32_t ints[] = {INT32_MIN, INT32_MAX, 0, -1};
    static const uint8_t bools[] = {0, 1, 1, 0};
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(12), TG_F32), i = tg_input(g, "i", TG_SHAPE(4), TG_I32);
    const tg_tensor yes = tg_less(x, 100.0);
    tg_capture("ints", tg_where(tg_less(i, 100.0), tg_constant(g, TG_SHAPE(4), TG_I32, ints, 4), i));
    tg_capture("bools", tg_logical_and(tg_constant(g, TG_SHAPE(4), TG_BOOL, bools, 4), tg_less(i, 100.0)));
    for (int k = 0; k < 8; k++) {
        char name[16];
        snprintf(name, sizeof name, "number %d", k);
        tg_capture(name, tg_where(yes, (double)floats[k], x));
    }
    tg_capture("least", tg_where(tg_less(i, 100.0), -2147483648.0, i));
    return tg_where(yes, tg_constant(g, TG_SHAPE(12), TG_F32, floats, 12), x);
}

static void test_literals_are_exact(void **state) {
    (void)state;
    check_emitted(build_literals, NULL, 1, &(support_options){0}, exact);
    check_emitted(build_literals, NULL, 1, &(support_options){.no_fusion = true, .no_passes = true}, exact);
}

static tg_tensor build_update(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_state(g, "p", TG_SHAPE(7, 7), TG_F32, 0.0), n = tg_state(g, "n", TG_SCALAR, TG_I32, 0.0);
    tg_writeback(p, tg_tanh(tg_add(p, tg_mul(tg_transpose(p, TG_AXES(1, 0)), 0.5))));
    tg_writeback(n, tg_add(n, 1.0));
    return tg_sum_all(tg_mul(p, tg_cast(n, TG_F32)));
}

static void test_updates_in_place(void **state) {
    (void)state;
    check_emitted(build_update, NULL, 3, &(support_options){0}, (support_tolerance){16.0, 1e-5, 1e-5});
}

static tg_tensor build_training(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor table = tg_param(g, "table", TG_SHAPE(6, 8), .init = tg_init_randn(1.0));
    const tg_linear a = tg_nn_linear(g, "a", 8, 16), b = tg_nn_linear(g, "b", 16, 5);
    const tg_tensor x = tg_embedding(table, tg_cast(tg_abs(tg_input(g, "i", TG_SHAPE(9), TG_I32)), TG_I32));
    const tg_tensor logits = tg_nn_linear_fwd(b, tg_gelu(tg_nn_linear_fwd(a, x)));
    const tg_tensor targets = tg_minimum(tg_abs(tg_input(g, "t", TG_SHAPE(9), TG_I32)), 4.0);
    const tg_tensor loss = tg_nn_cross_entropy(logits, targets, 3), wrt[5] = {table, a.W, a.b, b.W, b.b};
    tg_tensor d[5];
    tg_grad(loss, wrt, 5, d);
    for (int k = 0; k < 5; k++) tg_writeback(wrt[k], tg_sub(wrt[k], tg_mul(d[k], 0.1)));
    return loss;
}

static void test_a_training_step(void **state) {
    (void)state;
    check_emitted(build_training, NULL, 3, &(support_options){0}, (support_tolerance){16.0, 1e-5, 1e-5});
    check_emitted(build_training, NULL, 3, &(support_options){.no_fusion = true}, (support_tolerance){16.0, 1e-5, 1e-5});
}

/* ---------------------------------------------------------------- the text */

static char *text_of(tg_build_fn build) {
    const support_case c = {build, NULL, NULL, NULL};
    support_program program;
    support_outputs error = {0};
    tg_text_buffer text;
    if (!support_program_make(&c, &(support_options){0}, &program, &error)) fail_msg("%s", error.message);
    tg_text_init(&text, program.ctx);
    assert_int_equal(tg_emit_c(program.program, &text), TG_OK);
    char *copy = strdup(text.data);
    tg_text_free(&text);
    support_program_free(&program);
    assert_non_null(copy);
    return copy;
}

static void test_text(void **state) {
    (void)state;
    char *first = text_of(build_softmax), *second = text_of(build_softmax);
    assert_string_equal(first, second);
    static const char *const wanted[] = {"void tg_emitted_run(void *const *buffers)",
                                         "buffers[",
                                         "/* reduce over [3 | 37]:",
                                         " exp",
                                         " reduce_max",
                                         " sum",
                                         "input, 111 x float",
                                         "#include <math.h>",
                                         "#include <stdint.h>"};
    for (int i = 0; i < SUPPORT_COUNT(wanted); i++)
        if (!strstr(first, wanted[i])) fail_msg("no '%s' in\n%s", wanted[i], first);
    assert_null(strstr(first, "tg_div_i32")); /* helpers only where they are used */
    free(first);
    free(second);
}

static void test_failing_allocations(void **state) {
    (void)state;
    const support_case c = {build_norm, NULL, NULL, NULL};
    support_program program;
    support_outputs error = {0};
    if (!support_program_make(&c, &(support_options){0}, &program, &error)) fail_msg("%s", error.message);
    bool finished = false;
    for (int64_t n = 1; !finished && n < 1000; n++) {
        support_allocator counts = {.fail_at = 0};
        tg_context *ctx = support_context_counting(&counts);
        assert_non_null(ctx);
        const int64_t before = counts.live_blocks;
        tg_text_buffer text;
        tg_text_init(&text, ctx);
        counts.fail_at = counts.calls + n;
        const tg_status status = tg_emit_c(program.program, &text);
        finished = counts.calls < counts.fail_at;
        assert_int_equal(status, finished ? TG_OK : TG_ERROR_MEMORY);
        if (!finished) assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
        tg_text_free(&text);
        assert_int_equal(counts.live_blocks, before);
        tg_context_destroy(ctx);
        assert_int_equal(counts.live_blocks, 0);
        assert_false(counts.size_mismatch);
    }
    assert_true(finished);
    support_program_free(&program);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels_of_several_passes),
                                       cmocka_unit_test(test_literals_are_exact),
                                       cmocka_unit_test(test_updates_in_place),
                                       cmocka_unit_test(test_a_training_step),
                                       cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
