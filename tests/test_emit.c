/* Emitted C: the properties that its readers rely on (comments, names, buffers, determinism), exact
 * literals, kernels of several sweeps, updates in place, a training step, a step assembled from the
 * comments alone, and every failing allocation. The op table and the random graphs compile and run
 * far more emitted C. All of it is compiled with -Wall -Wextra -Wpedantic -Werror. */
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

/* ---------------------------------------------------------------- a step by hand: what the comments say is all that is known */

#define HAND_BUFFERS 64
#define HAND_STEPS 3
#define HAND_PARAMS 4
static const char *const hand_names[HAND_PARAMS] = {"a.W", "a.b", "b.W", "b.b"};
static const int64_t hand_counts[HAND_PARAMS] = {10, 5, 15, 3};
static const float hand_x[] = {0.5f, -1, 2, 0.25f, -0.75f, 1, 0, 3};
static const int32_t hand_t[] = {0, 2, 1, 2};

typedef struct hand_buffer {
    char name[32];
    float *data; /* four bytes an element, whatever the type; NULL: not listed */
} hand_buffer;
typedef struct hand {
    const char *text;
    hand_buffer buffers[HAND_BUFFERS];
    int result;
} hand;

static tg_tensor hand_loss(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor count = tg_state(g, "count*/", TG_SCALAR, TG_F32, 2.0), x = tg_input(g, "x", TG_SHAPE(4, 2), TG_F32);
    const tg_linear a = tg_nn_linear(g, "a", 2, 5), b = tg_nn_linear(g, "b", 5, 3);
    const tg_tensor hidden = tg_capture("hidden", tg_tanh(tg_nn_linear_fwd(a, x)));
    tg_writeback(count, tg_add(count, 1.0));
    return tg_mul(tg_nn_cross_entropy(tg_nn_linear_fwd(b, hidden), tg_input(g, "t", TG_SHAPE(4), TG_I32), -1), count);
}

/* " *   [14] state, 1 x int32_t: tg.step" or " *   [10] result" */
static void hand_read_line(hand *h, const char *line) {
    int index = -1, used = 0;
    long long count = 0;
    float first = 0.0f;
    if (sscanf(line, " * [%d] %*[a-z], %lld x %*[a-z0-9_]%n", &index, &count, &used) == 2 && used > 0) {
        assert_in_range(index, 0, HAND_BUFFERS - 1);
        hand_buffer *b = &h->buffers[index];
        assert_null(b->data);
        b->data = calloc((size_t)count, sizeof *b->data);
        assert_non_null(b->data);
        if (!strncmp(line + used, ": ", 2)) sscanf(line + used, ": %31[^,\n], at first %f", b->name, &first);
        for (int64_t i = 0; i < count; i++) b->data[i] = first;
    } else if (sscanf(line, " * [%d] result%n", &index, &used) == 1 && used > 0 && line[used] == '\n') h->result = index;
}

static void hand_read(hand *h, const char *text) {
    *h = (hand){.text = text, .result = -1};
    for (const char *line = text; strncmp(line, "#include", 8) != 0; line = strchr(line, '\n') + 1) hand_read_line(h, line);
    assert_in_range(h->result, 0, HAND_BUFFERS - 1);
}

static float *hand_find(hand *h, const char *name) {
    for (int i = 0; i < HAND_BUFFERS; i++)
        if (h->buffers[i].data && !strcmp(h->buffers[i].name, name)) return h->buffers[i].data;
    fail_msg("no buffer is named %s", name);
    return NULL;
}

/* Where a parameter begins, from " *   a.W f32[2, 5]: 10 elements from 0". */
static float *hand_parameter(hand *h, int i) {
    char start[64];
    long long elements = 0, from = 0;
    snprintf(start, sizeof start, " *   %s f32[", hand_names[i]);
    const char *line = strstr(h->text, start);
    assert_non_null(line);
    assert_int_equal(sscanf(strstr(line, "]: "), "]: %lld elements from %lld", &elements, &from), 2);
    assert_int_equal(elements, hand_counts[i]);
    return hand_find(h, "tg.parameters") + from;
}

/* Every buffer that a kernel's code may write is in its comment as written, every other one as read. */
static void hand_check_comments(const char *text) {
    int kernels = 0;
    for (const char *at = strstr(text, "\n * kernel "); at; at = strstr(at + 1, "\n * kernel "), kernels++) {
        const char *end = strstr(at, "\n}\n"), *close = strstr(at, " */");
        char comment[512], wanted[16];
        snprintf(comment, sizeof comment, "%.*s", (int)(close - at), at);
        char *writes = strstr(comment, "; writes");
        assert_non_null(writes);
        *writes++ = 0; /* what is before it is read */
        for (const char *use = strstr(close, " = buffers["); use && use < end; use = strstr(use + 1, " = buffers[")) {
            const char *line = use;
            while (line[-1] != '\n') line--;
            snprintf(wanted, sizeof wanted, " [%d]", atoi(use + strlen(" = buffers[")));
            const bool is_const = strncmp(line, "    const ", 10) == 0;
            if (is_const == (strstr(writes, wanted) != NULL)) fail_msg("%s in%s; %s", wanted, comment, writes);
            if (is_const && !strstr(comment, wanted)) fail_msg("%s in%s", wanted, comment);
        }
    }
    assert_true(kernels > 5);
}

static void hand_fill(hand *h, tg_model *model) {
    memcpy(hand_find(h, "x"), hand_x, sizeof hand_x);
    memcpy(hand_find(h, "t"), hand_t, sizeof hand_t);
    for (int i = 0; i < HAND_PARAMS; i++)
        assert_int_equal(tg_param_download(model, hand_names[i], hand_parameter(h, i), hand_counts[i]), TG_OK);
    assert_float_equal(*hand_find(h, "count_/"), 2.0f, 0.0f);
}

/* After `steps` steps of both. */
static void hand_compare(hand *h, tg_model *model, float loss, int steps) {
    float want[16];
    int32_t counted;
    assert_float_equal(*h->buffers[h->result].data, loss, 1e-5);
    for (int i = 0; i < HAND_PARAMS; i++) {
        const float *got = hand_parameter(h, i);
        assert_int_equal(tg_param_download(model, hand_names[i], want, hand_counts[i]), TG_OK);
        for (int64_t k = 0; k < hand_counts[i]; k++) assert_float_equal(got[k], want[k], 2e-5);
    }
    assert_float_equal(*hand_find(h, "count_/"), 2.0f + (float)steps, 0.0f);
    memcpy(&counted, hand_find(h, "tg.step"), sizeof counted);
    assert_int_equal(counted, steps);
    assert_memory_equal(hand_find(h, "x"), hand_x, sizeof hand_x);
}

static void test_a_step_by_hand(void **state) {
    (void)state;
    if (!support_emitted_available()) skip();
    tg_context *ctx = tg_context_create(NULL);
    tg_model *model =
        tg_compile(ctx, hand_loss, NULL, &(tg_compile_options){.optimizer = tg_adam(.lr = {.peak = 0.05}), .device = TG_DEVICE_CPU});
    if (!model) fail_msg("%s", tg_error_message(ctx));
    char *text = strdup(tg_model_text(model, TG_TEXT_C));
    hand h;
    hand_check_comments(text);
    hand_read(&h, text);
    assert_non_null(strstr(text, "] hidden, ")); /* read by the next layer */
    assert_non_null(strstr(text, "] in place")); /* its gradient takes its memory: no kernel writes "hidden" there */
    hand_fill(&h, model);
    void *user = NULL, *pointers[HAND_BUFFERS];
    for (int i = 0; i < HAND_BUFFERS; i++) pointers[i] = h.buffers[i].data;
    support_emitted *e = support_emitted_create();
    assert_int_equal(support_emitted_add_text(e, text), 0);
    assert_true(support_emitted_compile(e));
    const support_step_fn step = support_emitted_step(e, 0, &user);
    const tg_feed feeds[] = {tg_feed_f32("x", hand_x, 8), tg_feed_i32("t", hand_t, 4)};
    for (int n = 1; n <= HAND_STEPS; n++) {
        float loss = 0.0f;
        step(user, pointers);
        assert_int_equal(tg_step(model, feeds, 2, &loss), TG_OK);
        hand_compare(&h, model, loss, n);
    }
    for (int i = 0; i < HAND_BUFFERS; i++) free(h.buffers[i].data);
    support_emitted_destroy(e);
    free(text);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
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
                                       cmocka_unit_test(test_a_step_by_hand),
                                       cmocka_unit_test(test_failing_allocations)};
    return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
