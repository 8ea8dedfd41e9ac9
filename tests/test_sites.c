/* Sites of errors: every public call that can fail, made wrongly, names its file and line and what
 * went wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "support.h"

#include "tensorgrad/tensorgrad.h"

/* ---------------------------------------------------------------- a model */

static tg_tensor build_small(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(2, 3), TG_F32);
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3, 1), .init = tg_init_ones());
    return tg_mean(tg_capture("y", tg_square(tg_matmul(x, w))), TG_ALL);
}

static const float ones[6] = {1, 1, 1, 1, 1, 1}, nans[6] = {NAN, 1, 1, 1, 1, 1};

static tg_model *small_model(tg_context *ctx) {
    const tg_compile_options options = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.01)), .device = TG_DEVICE_CPU, .threads = 1};
    tg_model *model = tg_compile(ctx, build_small, NULL, &options);
    if (model == NULL) fail_msg("%s", tg_error_message(ctx));
    return model;
}

/* ---------------------------------------------------------------- the check */

static void error_is_at(tg_context *ctx, int line, tg_status status, const char *call) {
    const tg_site site = tg_error_site(ctx);
    if (tg_error(ctx) != status) fail_msg("%s: %s (%s)", call, tg_status_name(tg_error(ctx)), tg_error_message(ctx));
    if (strcmp(site.file, __FILE__) != 0 || site.line != line)
        fail_msg("%s: the error is at %s:%d, not at line %d (%s)", call, site.file, site.line, line, tg_error_message(ctx));
}
/* One wrong call. A macro's lines are those of its outermost use. */
#define WRONG(status, call) \
  do { \
    const int line = __LINE__; \
    (void)(call); \
    error_is_at(ctx, line, TG_ERROR_##status, #call); \
    tg_clear_error(ctx); \
  } while (0)

/* ---------------------------------------------------------------- calls */

static void test_compiling(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = small_model(ctx);
    const tg_compile_options bad = {.any_size = -1}, still = {.optimizer = tg_adam(), .device = TG_DEVICE_CPU};
    WRONG(ARGUMENT, tg_compile(ctx, NULL, NULL, NULL));
    WRONG(ARGUMENT, tg_compile(ctx, build_small, NULL, &bad));
    WRONG(ARGUMENT, tg_compile(ctx, build_small, NULL, &still));
    WRONG(ARGUMENT, tg_compile_forward(ctx, NULL, NULL, NULL));
    WRONG(ARGUMENT, tg_compile_sibling(model, NULL, NULL));
    WRONG(STATE, tg_compile_average(model, build_small, NULL));
    WRONG(ARGUMENT, tg_trace(ctx, NULL, NULL, NULL));
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void test_steps_and_runs(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = small_model(ctx);
    const tg_feed x = tg_feed_f32("x", ones, 6), y = tg_feed_f32("y", ones, 6), bad = tg_feed_f32("x", nans, 6);
    tg_captures *captures = NULL;
    tg_ticket ticket = 0;
    float loss = 0;
    bool done = false;
    WRONG(NOT_FOUND, tg_step(model, NULL, 0, &loss));
    WRONG(NOT_FOUND, tg_step(model, &y, 1, &loss));
    WRONG(NOT_FINITE, tg_step(model, &bad, 1, &loss));
    assert_int_equal(tg_model_reset(model), TG_OK);
    WRONG(ARGUMENT, tg_step_captures(model, &x, 1, &loss, NULL));
    WRONG(ARGUMENT, tg_run(model, &x, 1, NULL, 1));
    WRONG(ARGUMENT, tg_run(model, &x, 1, &loss, 0));
    WRONG(ARGUMENT, tg_run_captures(model, &x, 1, &loss, 1, NULL));
    WRONG(ARGUMENT, tg_step_async(model, &x, 1, NULL));
    WRONG(NOT_FOUND, tg_step_async(model, &y, 1, &ticket));
    WRONG(NOT_FOUND, tg_wait(model, 99, &loss));
    WRONG(NOT_FOUND, tg_poll(model, 99, &done));
    assert_int_equal(tg_step_async(model, &bad, 1, &ticket), TG_OK);
    WRONG(NOT_FINITE, tg_wait(model, ticket, &loss));
    assert_int_equal(tg_run_captures(model, &x, 1, &loss, 1, &captures), TG_OK);
    WRONG(NOT_FOUND, tg_captures_get(captures, "z", NULL, NULL));
    tg_captures_destroy(captures);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void test_parameters_and_files(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = small_model(ctx);
    float values[3];
    const tg_feed wrong = tg_feed_f32("v", ones, 3);
    WRONG(NOT_FOUND, tg_model_param_shape(model, "v", NULL));
    WRONG(NOT_FOUND, tg_param_upload(model, "v", ones, 3));
    WRONG(SHAPE, tg_param_upload(model, "w", ones, 2));
    WRONG(NOT_FOUND, tg_param_download(model, "v", values, 3));
    WRONG(STATE, tg_param_average_download(model, "w", values, 3));
    WRONG(STATE, tg_param_grad_download(model, "w", values, 3));
    WRONG(NOT_FOUND, tg_params_upload(model, &wrong, 1, false));
    WRONG(ARGUMENT, tg_params_carry(model, NULL, NULL));
    WRONG(ARGUMENT, tg_model_set_lr(model, tg_lr_constant(NAN)));
    WRONG(ARGUMENT, tg_model_save(model, ""));
    WRONG(IO, tg_model_save(model, "/no/such/folder/file.safetensors"));
    WRONG(ARGUMENT, tg_model_load(model, NULL));
    WRONG(IO, tg_model_load(model, "/no/such/folder/file.safetensors"));
    WRONG(ARGUMENT, tg_model_get_info(model, NULL));
    WRONG(ARGUMENT, tg_model_text(model, (tg_text)99));
    WRONG(ARGUMENT, tg_model_time_kernels(model, NULL, -1));
    WRONG(DEVICE, tg_model_tune(model, NULL));
    WRONG(ARGUMENT, tg_gemm(ctx, 1, 1, 1, NULL, ones, values));
    WRONG(ARGUMENT, tg_adapters(ctx, NULL, 1, NULL));
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- calls within calls */

typedef struct asked_within {
    tg_context *ctx;
    tg_model *model;
    int line;
} asked_within;

static bool recovers(void *user, int64_t step, float loss) {
    asked_within *asked = user;
    tg_context *ctx = asked->ctx;
    (void)step;
    (void)loss;
    WRONG(STATE, tg_model_recover(asked->model));
    return true;
}

static void test_data_sets(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = small_model(ctx);
    const tg_feed x = tg_feed_f32("x", ones, 6), y = tg_feed_f32("y", ones, 6), bad = tg_feed_f32("x", nans, 6);
    asked_within asked = {ctx, model, 0};
    WRONG(NOT_FOUND, tg_dataset_create(model, &y, 1, 2));
    WRONG(SHAPE, tg_dataset_create_batch(model, &x, 1, 2, 3));
    WRONG(ARGUMENT, tg_train(model, NULL, NULL, NULL, NULL));
    tg_dataset *data = tg_dataset_create(model, &bad, 1, 2);
    assert_non_null(data);
    const tg_train_options none = {.steps = -1}, all = {.steps = 4, .progress = recovers, .progress_user = &asked};
    WRONG(ARGUMENT, tg_train(model, data, &none, NULL, NULL));
    WRONG(NOT_FINITE, tg_train(model, data, &all, NULL, NULL)); /* its own line, whatever progress called */
    tg_dataset_destroy(data);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static tg_tensor build_that_steps(tg_graph *g, void *user) {
    asked_within *asked = user;
    asked->line = __LINE__ + 1;
    if (tg_step(asked->model, NULL, 0, NULL) == TG_OK) fail_msg("a step without its inputs");
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(3)));
}
static tg_tensor build_that_compiles(tg_graph *g, void *user) {
    asked_within *asked = user;
    asked->line = __LINE__ + 1;
    tg_model *none = tg_compile(asked->ctx, build_small, NULL, NULL);
    assert_null(none);
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(3)));
}
static tg_tensor build_nothing(tg_graph *g, void *user) {
    (void)user;
    return (tg_tensor){g, 0};
}

static void test_calls_of_a_build_function(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    asked_within asked = {ctx, small_model(ctx), 0};
    assert_null(tg_compile(ctx, build_that_steps, &asked, NULL));
    error_is_at(ctx, asked.line, TG_ERROR_NOT_FOUND, "step in a build function");
    assert_null(tg_compile(ctx, build_that_compiles, &asked, NULL));
    error_is_at(ctx, asked.line, TG_ERROR_TRACE, "compile in a build function");
    WRONG(TRACE, tg_compile(ctx, build_nothing, NULL, NULL));
    tg_model_destroy(asked.model);
    tg_context_destroy(ctx);
}

static tg_tensor build_scopes(tg_graph *g, void *user) {
    tg_context *ctx = g->ctx;
    char longer[600];
    (void)user;
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3));
#define WRONG_SCOPE(status, call) \
  do { \
    const int line = __LINE__; \
    call; \
    error_is_at(ctx, line, TG_ERROR_##status, #call); \
    tg_clear_error(ctx); \
  } while (0)
    WRONG_SCOPE(ARGUMENT, tg_scope_push(g, ""));
    WRONG_SCOPE(LIMIT, tg_scope_pushf(g, "%s", longer));
    WRONG_SCOPE(TRACE, tg_scope_pop(g));
    return tg_sum_all(w);
}

static void test_scopes(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_graph *g = tg_trace(ctx, build_scopes, NULL, NULL);
    assert_non_null(g);
    tg_graph_destroy(g);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- memory */

static void test_memory(void **state) {
    (void)state;
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    tg_model *model = small_model(ctx);
    const tg_feed x = tg_feed_f32("x", ones, 6);
    tg_captures *captures = NULL;
    float loss = 0;
    counts.fail_at = counts.calls + 1;
    counts.fail_on = true;
    WRONG(MEMORY, tg_compile(ctx, build_small, NULL, NULL));
    WRONG(MEMORY, tg_step_captures(model, &x, 1, &loss, &captures));
    WRONG(MEMORY, tg_dataset_create(model, &x, 1, 2));
    WRONG(MEMORY, tg_model_save(model, "/no/such/folder/file.safetensors"));
    counts.fail_on = false;
    counts.fail_at = 0;
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    assert_int_equal(counts.live_blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compiling),
        cmocka_unit_test(test_steps_and_runs),
        cmocka_unit_test(test_parameters_and_files),
        cmocka_unit_test(test_data_sets),
        cmocka_unit_test(test_calls_of_a_build_function),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("sites", tests, NULL, NULL);
}
