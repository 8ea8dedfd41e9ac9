/* test_call: models compiled from bytes, and calls driven phase by phase, as for a device that
 * answers later. */
#include "support.h"

#include "run/call.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static tg_tensor build_line(tg_graph *g, void *user) {
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4), TG_F32);
    tg_tensor w = tg_param(g, "w", TG_SHAPE(4), .init = tg_init_ones());
    (void)user;
    return tg_capture("loss", tg_mean(tg_square(tg_sub(tg_mul(w, x), 3.0)), TG_ALL));
}

static const float line_x[4] = {1, 2, 3, 4};
static const tg_compile_options line_options = {
    .optimizer = {.kind = TG_OPTIMIZER_SGD, .lr = {.peak = 0.01, .final = 0.01}}, .device = TG_DEVICE_CPU, .threads = 1};

static tg_model *from_bytes(tg_context *ctx, size_t cut) {
    tg_tensor result;
    tg_graph *g = tg_trace(ctx, build_line, NULL, &result);
    tg_text_buffer bytes;
    tg_text_init(&bytes, ctx);
    assert_non_null(g);
    assert_int_equal(tg_graph_write(g, &bytes), TG_OK);
    tg_model *model = tg_compile_bytes(ctx, bytes.data, bytes.length - cut, &line_options, true);
    tg_text_free(&bytes);
    tg_graph_destroy(g);
    return model;
}

static tg_status execute(const tg_model_call *call) {
    const tg_family *family = call->model->family;
    return family->executor->run(family->device, call->variant->executable, call->variant->inputs, call->variant->outputs);
}

static void bytes_train_as_the_build_function_does(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_model *a = tg_compile(ctx, build_line, NULL, &line_options), *b = from_bytes(ctx, 0);
    assert_non_null(a);
    assert_non_null(b);
    tg_feed feed = tg_feed_f32("x", line_x, 4);
    for (int t = 0; t < 5; t++) {
        float loss = 0, by_phases = 0;
        tg_model_call call;
        assert_int_equal(tg_step(a, &feed, 1, &loss), TG_OK);
        tg_status status = tg_model_call_begin(&call, b, TG_CALL_STEP_CAPTURES, &feed, 1, NULL);
        while (status == TG_OK && call.variant != NULL) status = tg_model_call_next(&call, execute(&call));
        assert_int_equal(status, TG_OK);
        by_phases = call.loss;
        assert_memory_equal(&loss, &by_phases, sizeof loss);
        assert_int_equal(tg_captures_count(call.captures), 1);
        tg_model_call_end(&call);
        tg_model_call_end(&call);
    }
    assert_int_equal(tg_model_step_count(b), 5);
    tg_model_destroy(a);
    tg_model_destroy(b);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

static void a_call_given_up_or_failed_changes_nothing(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_model *model = from_bytes(ctx, 0);
    tg_feed feed = tg_feed_f32("x", line_x, 4);
    tg_model_call call;
    float before[4], after[4];
    assert_int_equal(tg_param_download(model, "w", before, 4), TG_OK);
    assert_int_equal(tg_model_call_begin(&call, model, TG_CALL_STEP_CAPTURES, &feed, 1, NULL), TG_OK);
    tg_model_call_end(&call);
    assert_int_equal(tg_model_call_begin(&call, model, TG_CALL_STEP, &feed, 1, NULL), TG_OK);
    assert_int_equal(tg_model_call_next(&call, TG_ERROR_DEVICE), TG_ERROR_DEVICE);
    assert_null(call.variant);
    assert_int_equal(tg_model_call_next(&call, TG_OK), TG_ERROR_INTERNAL);
    tg_clear_error(ctx);
    assert_int_equal(tg_param_download(model, "w", after, 4), TG_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(tg_model_step_count(model), 0);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void cut_bytes_are_refused(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    for (size_t cut = 1; cut < 200; cut += 7) {
        assert_null(from_bytes(ctx, cut));
        assert_int_equal(tg_error(ctx), TG_ERROR_FORMAT);
    }
    tg_context_destroy(ctx);
}

/* A state whose name belongs to training, but not its shape or dtype, or a name that training does not know. */
static void states_of_training_are_not_taken_from_bytes_as_they_are(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t count;
        tg_dtype dtype;
    } cases[] = {{"tg.lr", 2, TG_F32},          {"tg.average", 2, TG_F32}, {"tg.average", 64, TG_I32},    {"tg.parameters", 3, TG_F32},
                 {"tg.gradients", 65, TG_F32},  {"tg.step", 1, TG_I32},    {"tg.m", 1, TG_F32},           {"tg.v", 128, TG_F32},
                 {"tg.accumulated", 7, TG_F32}, {"tg.random", 3, TG_I32},  {"tg.random.runs", 2, TG_I32}, {"tg.what", 64, TG_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int training = 0; training < 2; training++) {
            tg_context *ctx = tg_context_create(NULL);
            tg_tensor result;
            tg_graph *g = tg_trace(ctx, build_line, NULL, &result);
            assert_non_null(g);
            assert_true(tg_ir_state(g, cases[i].name, TG_SHAPE(cases[i].count), cases[i].dtype, 0) != 0);
            tg_text_buffer bytes;
            tg_text_init(&bytes, ctx);
            assert_int_equal(tg_graph_write(g, &bytes), TG_OK);
            assert_null(tg_compile_bytes(ctx, bytes.data, bytes.length, &line_options, training == 1));
            if (tg_error(ctx) != TG_ERROR_FORMAT || strstr(tg_error_message(ctx), cases[i].name) == NULL)
                fail_msg("%s: %s: %s", cases[i].name, tg_status_name(tg_error(ctx)), tg_error_message(ctx));
            tg_text_free(&bytes);
            tg_graph_destroy(g);
            tg_context_destroy(ctx);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_train_as_the_build_function_does),
        cmocka_unit_test(a_call_given_up_or_failed_changes_nothing),
        cmocka_unit_test(cut_bytes_are_refused),
        cmocka_unit_test(states_of_training_are_not_taken_from_bytes_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
