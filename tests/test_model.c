/* Tests of the session: compiling, feeding, stepping, running, capturing, parameters, resetting, siblings, checkpoints. Every
 * test runs on a context whose allocator counts, and ends with nothing allocated. */
#define _XOPEN_SOURCE 700
#include "fixtures.h"

#include "io/safetensors.h"
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- compiling */

static tg_tensor build_vector_loss(tg_graph *g, void *user) {
    (void)user;
    return tg_relu(tg_param(g, "w", TG_SHAPE(2, 3)));
}

static tg_tensor build_integer_loss(tg_graph *g, void *user) {
    (void)user;
    return tg_cast(tg_sum_all(tg_param(g, "w", TG_SHAPE(2, 3))), TG_I32);
}

static int mistake_line;
static tg_tensor build_mistake(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32), w = tg_param(g, "w", TG_SHAPE(5, 2));
    mistake_line = __LINE__ + 1;
    tg_tensor y = tg_matmul(x, w);
    return tg_sum_all(tg_relu(y));
}

static tg_tensor build_no_params(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_input(g, "x", TG_SHAPE(3), TG_F32));
}

static tg_tensor build_frozen_only(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(3), .frozen = TG_YES));
}

static tg_tensor build_own_update(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones());
    tg_writeback(w, tg_mul(w, 0.5));
    return tg_sum_all(tg_square(w));
}

static tg_tensor build_nested(tg_graph *g, void *user) {
    (void)g;
    tg_model *inner = tg_compile(user, mlp_loss, NULL, NULL);
    assert_null(inner);
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(3)));
}

static tg_tensor build_literal(tg_graph *g, void *user) {
    (void)user;
    static const float data[3] = {1, 2, 3};
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(2, 2), .init = tg_init_literal(data, 3)));
}

static tg_tensor build_same_name(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_add(tg_param(g, "w", TG_SHAPE(2)), tg_param(g, "w", TG_SHAPE(2))));
}

static tg_tensor build_same_capture(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(2));
    return tg_sum_all(tg_add(tg_capture("c", w), tg_capture("c", tg_relu(w))));
}

static void compile_errors(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    expect_no_model(ctx, tg_compile(ctx, NULL, NULL, &o), TG_ERROR_ARGUMENT, "NULL");
    expect_no_model(ctx, tg_compile(ctx, build_vector_loss, NULL, &o), TG_ERROR_GRADIENT, "loss must be rank 0, got relu[2, 3]");
    expect_no_model(ctx, tg_compile(ctx, build_integer_loss, NULL, &o), TG_ERROR_GRADIENT, "loss must be f32, got cast[] i32");
    expect_no_model(ctx, tg_compile(ctx, build_no_params, NULL, &o), TG_ERROR_GRADIENT, "no unfrozen parameter");
    expect_no_model(ctx, tg_compile(ctx, build_frozen_only, NULL, &o), TG_ERROR_GRADIENT, "no unfrozen parameter");
    expect_no_model(ctx, tg_compile(ctx, build_own_update, NULL, &o), TG_ERROR_DUPLICATE, "written by");
    expect_no_model(ctx, tg_compile(ctx, build_nested, ctx, &o), TG_ERROR_TRACE, "another trace");
    expect_no_model(ctx, tg_compile(ctx, build_literal, NULL, &o), TG_ERROR_ARGUMENT, "the literal has 3 numbers, the shape [2, 2] has 4");
    expect_no_model(ctx, tg_compile(ctx, build_same_name, NULL, &o), TG_ERROR_DUPLICATE, "w");
    expect_no_model(ctx, tg_compile(ctx, build_same_capture, NULL, &o), TG_ERROR_DUPLICATE, "c");
    assert_null(tg_compile(NULL, mlp_loss, NULL, &o));
    assert_null(tg_compile_sibling(NULL, mlp_forward, NULL));
    assert_int_equal(ctx->live_bytes, 0);
}

static void compile_error_has_the_users_line(void **state) {
    fixture *f = *state;
    assert_null(tg_compile(f->ctx, build_mistake, NULL, NULL));
    tg_site site = tg_error_site(f->ctx);
    assert_non_null(strstr(site.file, "test_model.c"));
    assert_int_equal(site.line, mistake_line);
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE, "x[4, 3] x w[5, 2]");
}

static void compile_options_are_checked(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.device = TG_DEVICE_WEBGPU;
    char *library = getenv("TENSORGRAD_WEBGPU_LIB");
    library = library != NULL ? strdup(library) : NULL;
    setenv("TENSORGRAD_WEBGPU_LIB", "/no/such/library.so", 1);
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_DEVICE, "/no/such/library.so");
    if (library != NULL) setenv("TENSORGRAD_WEBGPU_LIB", library, 1);
    else unsetenv("TENSORGRAD_WEBGPU_LIB");
    free(library);
    o = adam_options(TG_DEVICE_AUTO);
    o.device = (tg_device_kind)9;
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "9");
    o = adam_options(TG_DEVICE_AUTO);
    o.threads = -1;
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "-1");
    o = adam_options(TG_DEVICE_AUTO);
    o.optimizer.lr = tg_lr_constant(NAN);
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "nan");
    o = adam_options(TG_DEVICE_AUTO);
    o.optimizer.beta1 = 1.5;
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "beta1");
    o = adam_options(TG_DEVICE_AUTO);
    o.device = TG_DEVICE_CPU;
    o.optimizer.kind = TG_OPTIMIZER_NONE;
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "options of an optimizer, but not which one");
    tg_model_destroy(must(ctx, tg_compile_forward(ctx, mlp_forward, NULL, &o))); /* a forward model does not look at it */
    o.optimizer = (tg_optimizer){.kind = TG_OPTIMIZER_NONE};
    tg_model_destroy(must(ctx, tg_compile(ctx, mlp_loss, NULL, &o)));
    tg_model_destroy(must(ctx, tg_compile(ctx, mlp_loss, NULL, NULL)));
    tg_model_destroy(must(ctx, tg_compile_forward(ctx, mlp_forward, NULL, NULL)));
    tg_model_destroy(NULL);
}

static void log_count(void *user, tg_log_level level, const char *message) {
    if (level == TG_LOG_WARNING && strstr(message, "TENSORGRAD_THREADS") != NULL) ++*(int *)user;
}

static void threads_from_environment(void **state) {
    fixture *f = *state;
    static const struct {
        const char *value;
        const char *device;
        int warnings;
    } cases[] = {
        {"1", "1 thread", 0}, {"2", "2 threads", 0}, {"zero", NULL, 1},           {"0", NULL, 1},
        {"-3", NULL, 1},      {"2x", NULL, 1},       {"99999999999999", NULL, 1}, {"", NULL, 0},
    };
    const char *old = getenv("TENSORGRAD_THREADS");
    char kept[64];
    snprintf(kept, sizeof kept, "%s", old != NULL ? old : "");
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        int warnings = 0;
        tg_context_options options = {NULL, log_count, &warnings};
        tg_context *ctx = tg_context_create(&options);
        setenv("TENSORGRAD_THREADS", cases[i].value, 1);
        tg_model *m = must(ctx, tg_compile(ctx, mlp_loss, NULL, NULL));
        tg_model_info info;
        ok(ctx, tg_model_get_info(m, &info));
        assert_int_equal(warnings, cases[i].warnings);
        if (cases[i].device != NULL && strstr(info.device, cases[i].device) == NULL) fail_msg("%s: %s", cases[i].value, info.device);
        tg_model_destroy(m);
        tg_context_destroy(ctx);
    }
    if (old != NULL) setenv("TENSORGRAD_THREADS", kept, 1);
    else unsetenv("TENSORGRAD_THREADS");
    assert_non_null(f);
}

static void log_precision(void *user, tg_log_level level, const char *message) {
    if (level == TG_LOG_WARNING && strstr(message, "precision f16 is not offered by cpu") != NULL) ++*(int *)user;
}

/* On the CPU f16 is f32: said, not refused, and nothing is computed otherwise, whatever the scale. */
static void f16_on_the_cpu_is_f32(void **state) {
    fixture *f = *state;
    int warnings = 0;
    const tg_context_options options = {NULL, log_precision, &warnings};
    tg_context *ctx = tg_context_create(&options);
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_model *plain = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    tg_model_info info;
    assert_int_equal(warnings, 0);
    o.precision = TG_PRECISION_F16;
    o.loss_scale = 1024;
    tg_model *m = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    assert_int_equal(warnings, 1);
    ok(ctx, tg_model_get_info(m, &info));
    assert_int_equal(info.precision, TG_PRECISION_F32);
    for (int i = 0; i < 3; i++) assert_true(mlp_step(m) == mlp_step(plain));
    tg_model_destroy(m);
    tg_model_destroy(plain);
    tg_context_destroy(ctx);
    static const double scales[] = {-1, 0.5, 3, 1.5, 33554432.0, NAN, INFINITY};
    for (int i = 0; i < SUPPORT_COUNT(scales); i++) {
        o.loss_scale = scales[i];
        assert_null(tg_compile(f->ctx, mlp_loss, NULL, &o));
        expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_ARGUMENT, "loss_scale must be a power of two");
    }
    o.loss_scale = 16777216.0;
    o.precision = (tg_precision)2;
    assert_null(tg_compile(f->ctx, mlp_loss, NULL, &o));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_ARGUMENT, "no precision 2");
}

/* ---------------------------------------------------------------- feeds */

/* Each bad call: the error, and that neither parameters nor step counter moved. */
static void step_refuses_feeds(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO), *twin = mlp_model(ctx, TG_DEVICE_AUTO);
    float before[MLP_COUNT], loss = 42;
    mlp_step(m);
    mlp_step(twin);
    mlp_params(m, before);
    int64_t live = ctx->live_bytes;
    const tg_feed good[] = MLP_FEEDS;
    int32_t integers[12] = {0};
    struct {
        tg_feed feeds[3];
        int n;
        tg_status code;
        const char *says;
    } bad[] = {
        {{good[0]}, 1, TG_ERROR_NOT_FOUND, "step: inputs not fed: y"},
        {{good[0]}, 0, TG_ERROR_NOT_FOUND, "step: inputs not fed: x, y"},
        {{good[0], good[1], tg_feed_f32("z", mlp_x, 12)}, 3, TG_ERROR_NOT_FOUND, "step: unknown input z (inputs: x, y)"},
        {{good[0], good[1], good[0]}, 3, TG_ERROR_DUPLICATE, "step: input x is fed twice"},
        {{good[0], tg_feed_i32("y", integers, 4)}, 2, TG_ERROR_DTYPE, "step: input y is f32, fed as i32"},
        {{tg_feed_f32("x", mlp_x, 11), good[1]}, 2, TG_ERROR_SHAPE, "step: input x[4, 3] takes 12 elements, fed 11"},
        {{tg_feed_f32("x", mlp_x, -1), good[1]}, 2, TG_ERROR_SHAPE, "fed -1"},
        {{tg_feed_f32("x", NULL, 12), good[1]}, 2, TG_ERROR_ARGUMENT, "step: input x is fed from NULL"},
        {{tg_feed_f32(NULL, mlp_x, 12), good[1]}, 2, TG_ERROR_ARGUMENT, "step: feed 0 has no name"},
        {{good[0], good[1]}, -1, TG_ERROR_ARGUMENT, "-1 feeds"},
    };
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        expect_error(ctx, tg_step(m, bad[i].feeds, bad[i].n, &loss), bad[i].code, bad[i].says);
        tg_captures *captures = (tg_captures *)&loss;
        tg_status status = tg_step_captures(m, bad[i].feeds, bad[i].n, &loss, &captures);
        expect_error(ctx, status, bad[i].code, bad[i].says);
        assert_null(captures);
    }
    expect_error(ctx, tg_step(m, NULL, 2, &loss), TG_ERROR_ARGUMENT, "NULL");
    assert_int_equal(tg_step(NULL, good, 2, &loss), TG_ERROR_ARGUMENT);
    assert_true(loss == 42);
    assert_int_equal(tg_model_step_count(m), 1);
    mlp_expect_params(m, before);
    float a = mlp_step(m), b = mlp_step(twin); /* the next step is what it would have been: moments and counter too */
    assert_memory_equal(&a, &b, sizeof a);
    mlp_params(twin, before);
    mlp_expect_params(m, before);
    assert_true(ctx->live_bytes >= live);
    tg_model_destroy(m);
    tg_model_destroy(twin);
}

/* rows of table [4, 2] for idx [3], targets with -1 ignored */
static tg_tensor build_lookup(tg_graph *g, void *user) {
    const bool computed = user != NULL;
    tg_tensor table = tg_param(g, "table", TG_SHAPE(4, 2), .init = tg_init_randn(1));
    tg_tensor idx = tg_input(g, "idx", TG_SHAPE(3), TG_I32), target = tg_input(g, "target", TG_SHAPE(3), TG_I32);
    tg_tensor rows = tg_embedding(table, computed ? tg_add(idx, 1.0) : idx);
    return tg_nn_cross_entropy(rows, target, -1);
}

static void step_checks_fed_indices(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_model *m = must(ctx, tg_compile(ctx, build_lookup, NULL, &o));
    const int32_t idx[3] = {0, 3, 3}, target[3] = {1, -1, 0}, high[3] = {0, 1, 4}, low[3] = {-1, 0, 0}, bad_target[3] = {1, 2, 0},
                  bad_low[3] = {0, 1, -2};
    float before[8], after[8], loss = 42;
    tg_feed feeds[2] = {tg_feed_i32("idx", idx, 3), tg_feed_i32("target", target, 3)};
    ok(ctx, tg_step(m, feeds, 2, &loss));
    ok(ctx, tg_param_download(m, "table", before, 8));
    feeds[0].data = high;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX, "embedding: index 4 at position 2 is outside [0, 4)");
    assert_int_equal(tg_run(m, feeds, 2, &loss, 1), TG_ERROR_INDEX);
    assert_non_null(strstr(tg_error_site(ctx).file, "test_model.c"));
    feeds[0].data = low;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX, "embedding: index -1 at position 0 is outside [0, 4)");
    feeds[0].data = idx;
    feeds[1].data = bad_target;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX, "index 2 at position 1 is outside [0, 2)");
    feeds[1].data = bad_low;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX, "index -2 at position 2 is outside [0, 2)");
    ok(ctx, tg_param_download(m, "table", after, 8));
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(tg_model_step_count(m), 1);
    tg_model_destroy(m);
}

static void step_checks_computed_indices_first(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    int yes = 1;
    tg_model *m = must(ctx, tg_compile(ctx, build_lookup, &yes, &o));
    const int32_t idx[3] = {-1, 2, 2}, target[3] = {1, -1, 0}, high[3] = {0, 1, 3};
    float before[8], after[8], loss = 42, gradient[8];
    tg_feed feeds[2] = {tg_feed_i32("idx", idx, 3), tg_feed_i32("target", target, 3)};
    ok(ctx, tg_step(m, feeds, 2, &loss));
    ok(ctx, tg_param_grad_download(m, "table", gradient, 8));
    assert_true(gradient[0] != 0 && gradient[2] == 0 && gradient[4] == 0);
    ok(ctx, tg_param_download(m, "table", before, 8));
    feeds[0].data = high;
    loss = 42;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX, "embedding: a computed index is outside [0, 4)");
    expect_error(ctx, tg_run(m, feeds, 2, &loss, 1), TG_ERROR_INDEX, "embedding: a computed index is outside [0, 4)");
    assert_true(loss == 42);
    ok(ctx, tg_param_download(m, "table", after, 8));
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(tg_model_step_count(m), 1);
    feeds[0].data = idx;
    ok(ctx, tg_step(m, feeds, 2, &loss));
    tg_model_destroy(m);
}

static tg_tensor build_masked(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones());
    return tg_sum_all(tg_where(tg_input(g, "mask", TG_SHAPE(3), TG_BOOL), w, 0.0));
}

static void bool_feeds(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile(ctx, build_masked, NULL, NULL));
    uint8_t mask[3] = {1, 0, 1};
    float loss = 42, gradient[3];
    tg_feed feed = tg_feed_bool("mask", mask, 3);
    ok(ctx, tg_step(m, &feed, 1, &loss));
    assert_true(loss == 2);
    ok(ctx, tg_param_grad_download(m, "w", gradient, 3));
    assert_true(gradient[0] == 1 && gradient[1] == 0 && gradient[2] == 1);
    mask[2] = 255;
    expect_error(ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_ARGUMENT, "bool input mask: 255 at position 2 is neither 0 nor 1");
    assert_int_equal(tg_model_step_count(m), 1);
    tg_model_destroy(m);
}

static void feeds_stay_usable(void **state) { /* borrowed and only read */
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_AUTO);
    float x[12], y[4];
    memcpy(x, mlp_x, sizeof x);
    memcpy(y, mlp_y, sizeof y);
    const tg_feed feeds[] = {tg_feed_f32("y", y, 4), tg_feed_f32("x", x, 12)}; /* any order */
    for (int i = 0; i < 5; i++) ok(f->ctx, tg_step(m, feeds, 2, NULL));
    assert_memory_equal(x, mlp_x, sizeof x);
    assert_memory_equal(y, mlp_y, sizeof y);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- steps */

static void training_learns_and_allocates_nothing(void **state) {
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_AUTO);
    const tg_feed feeds[] = MLP_FEEDS;
    float first = mlp_step(m), last = 0, run = 0;
    ok(f->ctx, tg_run(m, feeds, 2, &run, 1));
    int64_t calls = f->ctx->alloc_calls, live = f->ctx->live_bytes;
    for (int i = 0; i < 300; i++) last = mlp_step(m);
    for (int i = 0; i < 10; i++) ok(f->ctx, tg_run(m, feeds, 2, &run, 1));
    assert_int_equal(f->ctx->alloc_calls, calls);
    assert_int_equal(f->ctx->live_bytes, live);
    assert_true(last < 0.1f * first);
    assert_int_equal(tg_model_step_count(m), 301);
    tg_model_destroy(m);
}

static tg_tensor build_logarithm(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_param(g, "p", TG_SCALAR, .init = tg_init_ones());
    return tg_capture("l", tg_log(tg_mul(p, tg_input(g, "x", TG_SCALAR, TG_F32))));
}

static void loss_that_is_not_finite(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile(ctx, build_logarithm, NULL, NULL));
    float x = 1, loss = 42;
    tg_captures *captures = NULL;
    tg_feed feed = tg_feed_f32("x", &x, 1);
    ok(ctx, tg_step(m, &feed, 1, &loss));
    x = -1;
    expect_error(ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_NOT_FINITE, "step 2: loss is nan");
    assert_true(isnan(loss));
    x = 0;
    tg_status status = tg_step_captures(m, &feed, 1, &loss, &captures);
    expect_error(ctx, status, TG_ERROR_NOT_FINITE, "step 3: loss is -inf");
    assert_true(isinf(loss) && loss < 0);
    assert_non_null(captures); /* the step was made: what it captured is there */
    const float *l = tg_captures_get(captures, "l", NULL, NULL);
    assert_true(isinf(*l));
    tg_captures_destroy(captures);
    assert_int_equal(tg_model_step_count(m), 3);
    ok(ctx, tg_run(m, &feed, 1, &loss, 1));
    tg_model_destroy(m);
}

static void without_optimizer_nothing_moves(void **state) {
    fixture *f = *state;
    tg_model *m = must(f->ctx, tg_compile(f->ctx, mlp_loss, NULL, NULL));
    float before[MLP_COUNT], gradient[15];
    mlp_params(m, before);
    float first = mlp_step(m), second = mlp_step(m);
    assert_memory_equal(&first, &second, sizeof first);
    mlp_expect_params(m, before);
    ok(f->ctx, tg_param_grad_download(m, "l1.W", gradient, 15));
    double sum = 0;
    for (int i = 0; i < 15; i++) sum += fabs((double)gradient[i]);
    assert_true(sum > 1e-3);
    expect_error(f->ctx, tg_model_set_lr(m, tg_lr_constant(1)), TG_ERROR_STATE, "without an optimizer");
    tg_model_destroy(m);
}

static void forward_models_do_not_step(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile_forward(ctx, mlp_forward, NULL, NULL));
    const tg_feed feed = tg_feed_f32("x", mlp_x, 12);
    float loss = 42, out[4], gradient[15];
    expect_error(ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_STATE, "forward model");
    expect_error(ctx, tg_param_grad_download(m, "l1.W", gradient, 15), TG_ERROR_STATE, "forward model");
    expect_error(ctx, tg_run(m, &feed, 1, out, 3), TG_ERROR_ARGUMENT, "[4, 1] has 4 elements, there is room for 3");
    expect_error(ctx, tg_run(m, &feed, 1, NULL, 4), TG_ERROR_ARGUMENT, "NULL");
    expect_error(ctx, tg_run(m, &feed, 0, out, 4), TG_ERROR_NOT_FOUND, "run: inputs not fed: x");
    ok(ctx, tg_run(m, &feed, 1, out, 4));
    assert_true(tg_shape_equal(tg_model_output_shape(m), TG_SHAPE(4, 1)));
    assert_int_equal(tg_model_output_dtype(m), TG_F32);
    assert_ptr_equal(tg_model_context(m), ctx);
    tg_model_destroy(m);
}

static tg_tensor build_argmax(tg_graph *g, void *user) {
    (void)user;
    return tg_argmax(tg_input(g, "x", TG_SHAPE(2, 3), TG_F32), -1);
}

static tg_tensor build_compare(tg_graph *g, void *user) {
    (void)user;
    return tg_greater(tg_input(g, "x", TG_SHAPE(2, 3), TG_F32), 0.0);
}

static tg_tensor build_constant(tg_graph *g, void *user) {
    (void)user;
    return tg_full(g, TG_SHAPE(2), 3.0, TG_I32);
}

static void outputs_of_every_dtype(void **state) {
    fixture *f = *state;
    const float x[6] = {1, 3, 2, -5, -7, -6};
    const tg_feed feed = tg_feed_f32("x", x, 6);
    int32_t integers[2] = {-1, -1};
    uint8_t bools[6];
    tg_model *m = must(f->ctx, tg_compile_forward(f->ctx, build_argmax, NULL, NULL));
    ok(f->ctx, tg_run(m, &feed, 1, integers, 2));
    assert_true(integers[0] == 1 && integers[1] == 0);
    assert_int_equal(tg_model_output_dtype(m), TG_I32);
    tg_model_destroy(m);
    m = must(f->ctx, tg_compile_forward(f->ctx, build_compare, NULL, NULL));
    ok(f->ctx, tg_run(m, &feed, 1, bools, 6));
    assert_memory_equal(bools, ((uint8_t[]){1, 1, 1, 0, 0, 0}), 6);
    tg_model_destroy(m);
    m = must(f->ctx, tg_compile_forward(f->ctx, build_constant, NULL, NULL)); /* no input, no parameter */
    ok(f->ctx, tg_run(m, NULL, 0, integers, 2));
    assert_true(integers[0] == 3 && integers[1] == 3);
    assert_int_equal(tg_model_param_count(m), 0);
    tg_model_destroy(m);
}

static void run_of_a_training_model(void **state) { /* the loss, and no update */
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_AUTO);
    const tg_feed feeds[] = MLP_FEEDS;
    float before[MLP_COUNT], run = 0, again = 0;
    mlp_params(m, before);
    ok(f->ctx, tg_run(m, feeds, 2, &run, 1));
    ok(f->ctx, tg_run(m, feeds, 2, &again, 1));
    mlp_expect_params(m, before);
    assert_int_equal(tg_model_step_count(m), 0);
    float step = mlp_step(m);
    assert_memory_equal(&run, &again, sizeof run);
    assert_true(fabsf(step - run) <= 1e-6f * fabsf(run));
    ok(f->ctx, tg_run(m, feeds, 2, &again, 1));
    assert_true(again < run);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- captures */

static void captures_by_name(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO), *plain = mlp_model(ctx, TG_DEVICE_AUTO);
    const tg_feed feeds[] = MLP_FEEDS;
    tg_captures *captures = NULL, *of_run = NULL;
    float loss = 0, run = 0;
    ok(ctx, tg_run_captures(m, feeds, 2, &run, 1, &of_run));
    ok(ctx, tg_step_captures(m, feeds, 2, &loss, &captures));
    assert_int_equal(tg_captures_count(captures), 2);
    assert_string_equal(tg_captures_name(captures, 0), "h");
    assert_string_equal(tg_captures_name(captures, 1), "out");
    assert_null(tg_captures_name(captures, 2));
    assert_null(tg_captures_name(captures, -1));
    assert_true(tg_captures_has(captures, "out"));
    assert_false(tg_captures_has(captures, "nothing"));
    tg_shape shape;
    tg_dtype dtype = TG_BOOL;
    const float *out = tg_captures_get(captures, "out", &shape, &dtype);
    assert_true(tg_shape_equal(shape, TG_SHAPE(4, 1)));
    assert_int_equal(dtype, TG_F32);
    double mse = 0;
    for (int i = 0; i < 4; i++) mse += pow((double)out[i] - (double)mlp_y[i], 2) / 4;
    assert_true(fabs(mse - (double)loss) < 1e-5 * mse);
    assert_memory_equal(tg_captures_get(of_run, "out", NULL, NULL), out, 4 * sizeof(float));
    assert_null(tg_captures_get(captures, "nothing", NULL, NULL));
    expect_error(ctx, tg_error(ctx), TG_ERROR_NOT_FOUND, "there is no nothing (captures: h, out)");
    float without = mlp_step(plain); /* captures change no value */
    assert_true(fabsf(without - loss) <= 1e-6f * loss);
    expect_error(ctx, tg_step_captures(m, feeds, 2, &loss, NULL), TG_ERROR_ARGUMENT, "captures is NULL");
    tg_model_destroy(m);
    tg_model_destroy(plain);
    assert_true(tg_captures_has(captures, "h")); /* they outlive the model */
    tg_captures_destroy(captures);
    tg_captures_destroy(of_run);
    tg_captures_destroy(NULL);
}

static void captures_of_a_model_without(void **state) {
    fixture *f = *state;
    tg_model *m = must(f->ctx, tg_compile(f->ctx, build_masked, NULL, NULL));
    const uint8_t mask[3] = {1, 1, 1};
    const tg_feed feed = tg_feed_bool("mask", mask, 3);
    tg_captures *captures = NULL;
    float loss = 0;
    ok(f->ctx, tg_step_captures(m, &feed, 1, &loss, &captures));
    assert_int_equal(tg_captures_count(captures), 0);
    assert_null(tg_captures_get(captures, "h", NULL, NULL));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_NOT_FOUND, "captures: none");
    tg_captures_destroy(captures);
    tg_model_destroy(m);
}

static tg_tensor build_capture_kinds(tg_graph *g, void *user) { /* a parameter, an input, an integer, a bool; one unused */
    (void)user;
    tg_tensor w = tg_capture("w", tg_param(g, "w", TG_SHAPE(2), .init = tg_init_ones()));
    tg_tensor x = tg_capture("x", tg_input(g, "x", TG_SHAPE(2), TG_F32));
    tg_capture("best", tg_argmax(x, 0));
    tg_capture("positive", tg_greater(x, 0.0));
    return tg_sum_all(tg_mul(w, x));
}

static void captures_of_every_kind(void **state) {
    fixture *f = *state;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_model *m = must(f->ctx, tg_compile(f->ctx, build_capture_kinds, NULL, &o));
    const float x[2] = {-1, 4};
    const tg_feed feed = tg_feed_f32("x", x, 2);
    tg_captures *captures = NULL;
    tg_dtype dtype;
    ok(f->ctx, tg_step_captures(m, &feed, 1, NULL, &captures));
    assert_int_equal(tg_captures_count(captures), 4);
    assert_memory_equal(tg_captures_get(captures, "w", NULL, NULL), ((float[]){1, 1}), 8); /* from before the update */
    assert_memory_equal(tg_captures_get(captures, "x", NULL, NULL), x, 8);
    assert_int_equal(*(const int32_t *)tg_captures_get(captures, "best", NULL, &dtype), 1);
    assert_int_equal(dtype, TG_I32);
    assert_memory_equal(tg_captures_get(captures, "positive", NULL, &dtype), ((uint8_t[]){0, 1}), 2);
    assert_int_equal(dtype, TG_BOOL);
    tg_captures_destroy(captures);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- parameters */

static void parameters_by_name(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    tg_shape shape;
    float data[15], back[15];
    static const char *const names[] = {"l1.W", "l1.b", "l2.W", "l2.b"};
    assert_int_equal(tg_model_param_count(m), 4);
    for (int i = 0; i < 4; i++) assert_string_equal(tg_model_param_name(m, i), names[i]);
    assert_null(tg_model_param_name(m, 4));
    ok(ctx, tg_model_param_shape(m, "l1.W", &shape));
    assert_true(tg_shape_equal(shape, TG_SHAPE(3, 5)));
    expect_error(ctx, tg_model_param_shape(m, "l3.W", &shape), TG_ERROR_NOT_FOUND,
                 "unknown parameter l3.W (parameters: l1.W, l1.b, l2.W, l2.b)");
    for (int i = 0; i < 15; i++) data[i] = (float)i / 8;
    ok(ctx, tg_param_upload(m, "l1.W", data, 15));
    ok(ctx, tg_param_download(m, "l1.W", back, 15));
    assert_memory_equal(data, back, sizeof data);
    expect_error(ctx, tg_param_upload(m, "l1.W", data, 14), TG_ERROR_SHAPE, "parameter l1.W[3, 5] has 15 elements, given 14");
    expect_error(ctx, tg_param_upload(m, "l1.W", NULL, 15), TG_ERROR_ARGUMENT, "NULL");
    expect_error(ctx, tg_param_upload(m, NULL, data, 15), TG_ERROR_ARGUMENT, "NULL");
    expect_error(ctx, tg_param_download(m, "l1.W", back, 16), TG_ERROR_SHAPE, "given 16");
    expect_error(ctx, tg_param_download(m, "", back, 16), TG_ERROR_NOT_FOUND, "unknown parameter");
    expect_error(ctx, tg_param_grad_download(m, "l1.W", back, 15), TG_ERROR_STATE, "no step has run");
    ok(ctx, tg_param_download(m, "l1.W", back, 15));
    assert_memory_equal(data, back, sizeof data);
    tg_model_destroy(m);
}

static void uploads_are_all_or_nothing(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    float before[MLP_COUNT], data[MLP_COUNT];
    for (int i = 0; i < MLP_COUNT; i++) data[i] = (float)(i + 1);
    mlp_params(m, before);
    tg_feed all[5] = {tg_feed_f32("l1.W", data, 15), tg_feed_f32("l1.b", data + 15, 5), tg_feed_f32("l2.W", data + 20, 5),
                      tg_feed_f32("l2.b", data + 25, 1)};
    expect_error(ctx, tg_params_upload(m, all, 2, false), TG_ERROR_NOT_FOUND, "parameters not given: l2.W, l2.b");
    all[3].count = 2;
    expect_error(ctx, tg_params_upload(m, all, 4, false), TG_ERROR_SHAPE, "parameter l2.b[1] has 1 elements, given 2");
    all[3].count = 1;
    all[3].dtype = TG_I32;
    expect_error(ctx, tg_params_upload(m, all, 4, true), TG_ERROR_DTYPE, "parameter l2.b is f32, given i32");
    all[3].dtype = TG_F32;
    all[3].data = NULL;
    expect_error(ctx, tg_params_upload(m, all, 4, true), TG_ERROR_ARGUMENT, "NULL");
    all[3].data = data + 25;
    all[4] = tg_feed_f32("l3", data, 1);
    expect_error(ctx, tg_params_upload(m, all, 5, true), TG_ERROR_NOT_FOUND, "unknown parameter l3");
    all[4] = all[0];
    expect_error(ctx, tg_params_upload(m, all, 5, true), TG_ERROR_DUPLICATE, "l1.W is given twice");
    expect_error(ctx, tg_params_upload(m, NULL, 1, true), TG_ERROR_ARGUMENT, "NULL");
    expect_error(ctx, tg_params_upload(m, all, -2, true), TG_ERROR_ARGUMENT, "-2");
    mlp_expect_params(m, before);
    ok(ctx, tg_params_upload(m, all + 1, 1, true));
    memcpy(before + 15, data + 15, 5 * sizeof(float));
    mlp_expect_params(m, before);
    ok(ctx, tg_params_upload(m, all, 4, false));
    mlp_expect_params(m, data);
    ok(ctx, tg_params_upload(m, NULL, 0, true));
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- initial values */

static tg_tensor build_inits(tg_graph *g, void *user) {
    const bool reversed = user != NULL;
    static const float literal[4] = {1, -2, 0.5f, 1e-30f};
    tg_tensor sum = tg_full(g, TG_SCALAR, 0.0, TG_F32);
    for (int k = 0; k < 6; k++) {
        int i = reversed ? 5 - k : k;
        tg_tensor p;
        if (i == 0) p = tg_param(g, "randn", TG_SHAPE(100, 100));
        else if (i == 1) p = tg_param(g, "kaiming", TG_SHAPE(64, 200), .init = tg_init_kaiming(0));
        else if (i == 2) p = tg_param(g, "uniform", TG_SHAPE(5000), .init = tg_init_uniform(0.25));
        else if (i == 3) p = tg_param(g, "ones", TG_SHAPE(3), .init = tg_init_ones());
        else if (i == 4) p = tg_param(g, "zeros", TG_SHAPE(3), .init = tg_init_zeros());
        else p = tg_param(g, "literal", TG_SHAPE(2, 2), .init = tg_init_literal(literal, 4));
        sum = tg_add(sum, tg_sum_all(p));
    }
    return sum;
}

static void moments(const float *data, int64_t n, double *mean, double *deviation) {
    double s = 0, q = 0;
    for (int64_t i = 0; i < n; i++) s += (double)data[i];
    *mean = s / (double)n;
    for (int64_t i = 0; i < n; i++) q += pow((double)data[i] - *mean, 2);
    *deviation = sqrt(q / (double)n);
}

static void initial_values(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_model *m = must(ctx, tg_compile(ctx, build_inits, NULL, &o));
    float *data = malloc(12800 * sizeof(float)), *other = malloc(12800 * sizeof(float)), few[4];
    double mean, deviation;
    ok(ctx, tg_param_download(m, "randn", data, 10000));
    moments(data, 10000, &mean, &deviation);
    assert_true(fabs(mean) < 0.02 * 0.04 && fabs(deviation - 0.02) < 0.02 * 0.03);
    for (int i = 0; i < 10000; i++) /* the documented formula, element by element */
        assert_true(data[i] == (float)(0.02 * tg_random_normal(7, tg_hash_text(0, "randn"), (uint64_t)i)));
    ok(ctx, tg_param_download(m, "kaiming", data, 12800));
    moments(data, 12800, &mean, &deviation);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - sqrt(2.0 / 64)) < 0.005);
    ok(ctx, tg_param_download(m, "uniform", data, 5000));
    moments(data, 5000, &mean, &deviation);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - 0.5 / sqrt(12.0)) < 0.005);
    for (int i = 0; i < 5000; i++) assert_true(data[i] >= -0.25f && data[i] < 0.25f);
    ok(ctx, tg_param_download(m, "ones", few, 3));
    assert_true(few[0] == 1 && few[1] == 1 && few[2] == 1);
    ok(ctx, tg_param_download(m, "zeros", few, 3));
    assert_true(few[0] == 0 && few[1] == 0 && few[2] == 0);
    ok(ctx, tg_param_download(m, "literal", few, 4));
    assert_memory_equal(few, ((float[]){1, -2, 0.5f, 1e-30f}), 16);
    /* the order of the trace changes nothing; another seed does */
    ok(ctx, tg_param_download(m, "randn", data, 10000));
    tg_model *reversed = must(ctx, tg_compile(ctx, build_inits, &o, &o));
    ok(ctx, tg_param_download(reversed, "randn", other, 10000));
    assert_memory_equal(data, other, 10000 * sizeof(float));
    o.seed = 8;
    tg_model *seeded = must(ctx, tg_compile(ctx, build_inits, NULL, &o));
    ok(ctx, tg_param_download(seeded, "randn", other, 10000));
    int same = 0;
    for (int i = 0; i < 10000; i++) same += data[i] == other[i];
    assert_true(same < 100);
    /* two parameters of one kind and shape differ */
    tg_model_destroy(m);
    tg_model_destroy(reversed);
    tg_model_destroy(seeded);
    free(data);
    free(other);
}

/* ---------------------------------------------------------------- reset, learning rate */

static void reset_reproduces_the_run(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    float initial[MLP_COUNT], curve[8], last[MLP_COUNT], gradient[15];
    mlp_params(m, initial);
    for (int i = 0; i < 8; i++) curve[i] = mlp_step(m);
    mlp_params(m, last);
    int64_t calls = ctx->alloc_calls;
    ok(ctx, tg_model_reset(m));
    assert_int_equal(ctx->alloc_calls, calls);
    mlp_expect_params(m, initial);
    assert_int_equal(tg_model_step_count(m), 0);
    expect_error(ctx, tg_param_grad_download(m, "l1.W", gradient, 15), TG_ERROR_STATE, "no step has run");
    for (int i = 0; i < 8; i++) {
        float loss = mlp_step(m);
        assert_memory_equal(&loss, &curve[i], sizeof loss);
    }
    mlp_expect_params(m, last);
    tg_model_destroy(m);
}

static void reset_optimizer_keeps_parameters(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO), *fresh = mlp_model(ctx, TG_DEVICE_AUTO);
    float params[MLP_COUNT];
    for (int i = 0; i < 5; i++) mlp_step(m);
    ok(ctx, tg_model_reset_optimizer(m));
    assert_int_equal(tg_model_step_count(m), 0);
    mlp_params(m, params);
    const tg_feed all[4] = {tg_feed_f32("l1.W", params, 15), tg_feed_f32("l1.b", params + 15, 5), tg_feed_f32("l2.W", params + 20, 5),
                            tg_feed_f32("l2.b", params + 25, 1)};
    ok(ctx, tg_params_upload(fresh, all, 4, false));
    for (int i = 0; i < 4; i++) {
        float a = mlp_step(m), b = mlp_step(fresh);
        assert_memory_equal(&a, &b, sizeof a);
    }
    tg_model_destroy(m);
    tg_model_destroy(fresh);
}

/* p, loss = g p: the gradient is g */
static tg_tensor build_line(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_param(g, "p", TG_SCALAR, .init = tg_init_ones(), .decay = TG_YES);
    return tg_mul(p, tg_input(g, "g", TG_SCALAR, TG_F32));
}

static float line_step(tg_model *m, float g) {
    const tg_feed feed = tg_feed_f32("g", &g, 1);
    float p = 0;
    ok(tg_model_context(m), tg_step(m, &feed, 1, NULL));
    ok(tg_model_context(m), tg_param_download(m, "p", &p, 1));
    return p;
}

static void learning_rate(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_sgd(.lr = tg_lr_linear_decay(1.0, 0.0, 4), .weight_decay = 0);
    tg_model *m = must(ctx, tg_compile(ctx, build_line, NULL, &o));
    static const float rates[] = {0.75f, 0.5f, 0.25f, 0, 0};
    float p = 1;
    for (int i = 0; i < SUPPORT_COUNT(rates); i++) {
        float now = line_step(m, 1);
        assert_true(fabsf(p - rates[i] - now) < 1e-6f);
        p = now;
    }
    ok(ctx, tg_model_set_lr(m, tg_lr_linear_decay(1.0, 0.0, 4))); /* begins at its start now, not in the past */
    for (int i = 0; i < SUPPORT_COUNT(rates); i++) {
        float now = line_step(m, 1);
        assert_true(fabsf(p - rates[i] - now) < 1e-5f);
        p = now;
    }
    ok(ctx, tg_model_set_lr(m, tg_lr_constant(0.5)));
    float now = line_step(m, 1);
    assert_true(fabsf(p - 0.5f - now) < 1e-5f);
    tg_lr bad = tg_lr_linear_decay(1.0, 0.0, 0);
    expect_error(ctx, tg_model_set_lr(m, bad), TG_ERROR_ARGUMENT, "set_lr");
    expect_error(ctx, tg_model_set_lr(m, tg_lr_constant(INFINITY)), TG_ERROR_ARGUMENT, "set_lr");
    expect_error(ctx, tg_model_set_lr(m, tg_lr_warmup(1, 2, tg_lr_warmup(1, 0, tg_lr_constant(1)))), TG_ERROR_ARGUMENT, "set_lr");
    p = now;
    now = line_step(m, 1); /* the schedule is still the last good one */
    assert_true(fabsf(p - 0.5f - now) < 1e-5f);
    tg_model_destroy(m);
}

static void learning_rate_zero_stops_decay_too(void **state) {
    fixture *f = *state;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_adam(.lr = tg_lr_constant(0.1), .weight_decay = 0.5);
    tg_model *m = must(f->ctx, tg_compile(f->ctx, build_line, NULL, &o));
    float p = line_step(m, 1);
    ok(f->ctx, tg_model_set_lr(m, tg_lr_constant(0)));
    float now = line_step(m, 1);
    assert_memory_equal(&p, &now, sizeof p);
    tg_model_destroy(m);
}

static void reset_restarts_the_schedule_in_force(void **state) {
    fixture *f = *state;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_sgd(.lr = tg_lr_constant(1));
    tg_model *m = must(f->ctx, tg_compile(f->ctx, build_line, NULL, &o));
    line_step(m, 1);
    line_step(m, 1);
    ok(f->ctx, tg_model_set_lr(m, tg_lr_linear_decay(1.0, 0.0, 4)));
    line_step(m, 1);
    ok(f->ctx, tg_model_reset(m));
    assert_true(fabsf(line_step(m, 1) - 0.25f) < 1e-6f);
    assert_true(fabsf(line_step(m, 1) + 0.25f) < 1e-6f);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- siblings */

static tg_tensor build_unknown_param(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_param(g, "l9.W", TG_SHAPE(3, 5)));
}

static tg_tensor build_other_shape(tg_graph *g, void *user) {
    (void)user;
    tg_scope_push(g, "l1");
    tg_tensor w = tg_param(g, "W", TG_SHAPE(5, 3));
    tg_scope_pop(g);
    return tg_sum_all(w);
}

static tg_tensor build_batch_of_one(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(1, 3), TG_F32);
    tg_linear l2 = tg_nn_linear(g, "l2", 5, 1), l1 = tg_nn_linear(g, "l1", 3, 5); /* another order */
    return tg_nn_linear_fwd(l2, tg_tanh(tg_nn_linear_fwd(l1, x)));
}

static void siblings_share_parameters(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    tg_model *four = must(ctx, tg_compile_sibling(m, mlp_forward, NULL)),
             *one = must(ctx, tg_compile_sibling(four, build_batch_of_one, NULL));
    const tg_feed x = tg_feed_f32("x", mlp_x, 12), first = tg_feed_f32("x", mlp_x, 3);
    float before[4], after[4], single = 0, loss = 0, gradient[15], params[MLP_COUNT];
    ok(ctx, tg_run(four, &x, 1, before, 4));
    for (int i = 0; i < 3; i++) mlp_step(m);
    ok(ctx, tg_run(four, &x, 1, after, 4));
    ok(ctx, tg_run(one, &first, 1, &single, 1));
    assert_true(fabsf(before[0] - after[0]) > 1e-4f);
    assert_true(fabsf(single - after[0]) < 1e-5f);
    assert_int_equal(tg_model_param_count(one), 4);
    mlp_params(m, params);
    mlp_expect_params(four, params);
    expect_error(ctx, tg_step(four, &x, 1, &loss), TG_ERROR_STATE, "forward model");
    expect_error(ctx, tg_param_grad_download(four, "l1.W", gradient, 15), TG_ERROR_STATE, "forward model");
    expect_no_model(ctx, tg_compile_sibling(m, build_unknown_param, NULL), TG_ERROR_NOT_FOUND, "l9.W");
    expect_no_model(ctx, tg_compile_sibling(m, build_other_shape, NULL), TG_ERROR_SHAPE, "[5, 3]");
    tg_model_destroy(four); /* earlier than the parent */
    mlp_step(m);
    ok(ctx, tg_run(one, &first, 1, &single, 1));
    tg_model_destroy(m); /* and `one` with it */
}

/* A frozen parameter, a trained one, and their product with x. */
static tg_tensor build_scaled_output(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(2), .init = tg_init_ones()), f = tg_param(g, "f", TG_SHAPE(2), .init = tg_init_ones());
    return tg_mul(tg_mul(w, f), tg_input(g, "x", TG_SHAPE(2), TG_F32));
}

static tg_tensor build_scaled_loss(tg_graph *g, void *user) { return tg_sum_all(build_scaled_output(g, user)); }

static tg_model *averaged_model(tg_context *ctx) {
    static const tg_param_group frozen = {.pattern = "f", .frozen = true};
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    o.optimizer = tg_sgd(.lr = tg_lr_constant(0.5), .average = 0.75, .groups = &frozen, .group_count = 1);
    o.threads = 1;
    return must(ctx, tg_compile(ctx, build_scaled_loss, NULL, &o));
}

static void averages_of_parameters(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *plain = mlp_model(ctx, TG_DEVICE_AUTO), *m = averaged_model(ctx);
    expect_no_model(ctx, tg_compile_average(plain, mlp_forward, NULL), TG_ERROR_STATE, "keeps no average");
    assert_null(tg_compile_average(NULL, mlp_forward, NULL));
    tg_model *average = must(ctx, tg_compile_average(m, build_scaled_output, NULL));
    const float x[2] = {1, 2}, three[2] = {3, 3};
    const tg_feed feed = tg_feed_f32("x", x, 2);
    float out[2], loss;
    expect_error(ctx, tg_param_average_download(plain, "l1.W", out, 2), TG_ERROR_STATE, "keeps no average");
    expect_error(ctx, tg_param_average_download(m, "q", out, 2), TG_ERROR_NOT_FOUND, "q");
    expect_error(ctx, tg_param_average_download(m, "w", out, 1), TG_ERROR_SHAPE, "w");
    ok(ctx, tg_run(average, &feed, 1, out, 2)); /* before the first update: what the parameters begin with */
    assert_true(out[0] == 1 && out[1] == 2);
    ok(ctx, tg_param_upload(m, "w", three, 2));
    ok(ctx, tg_param_upload(m, "f", three, 2)); /* a frozen parameter is its own average */
    ok(ctx, tg_run(average, &feed, 1, out, 2));
    assert_true(out[0] == 9 && out[1] == 18);
    ok(ctx, tg_step(m, &feed, 1, &loss)); /* w = 3 - .5 * 3 x = {1.5, 0}, which begins the average */
    ok(ctx, tg_step(m, &feed, 1, &loss)); /* w = {0, -3}; average = {1.5, 0} + .25 {-1.5, -3} */
    ok(ctx, tg_param_average_download(m, "w", out, 2));
    assert_true(fabsf(out[0] - 1.125f) < 1e-6f && fabsf(out[1] + 0.75f) < 1e-6f);
    ok(ctx, tg_param_average_download(m, "f", out, 2));
    assert_true(out[0] == 3 && out[1] == 3);
    ok(ctx, tg_run(average, &feed, 1, out, 2));
    assert_true(fabsf(out[0] - 3.375f) < 1e-5f && fabsf(out[1] + 4.5f) < 1e-5f);
    ok(ctx, tg_param_upload(m, "f", x, 2));
    ok(ctx, tg_param_average_download(m, "f", out, 2));
    assert_true(out[0] == 1 && out[1] == 2);
    ok(ctx, tg_model_reset(m)); /* both begin again */
    ok(ctx, tg_param_average_download(m, "w", out, 2));
    assert_true(out[0] == 1 && out[1] == 1);
    tg_model_destroy(m);
    tg_model_destroy(plain);
}

static tg_tensor build_counter(tg_graph *g, void *user) {
    (void)user;
    tg_tensor n = tg_state(g, "n", TG_SHAPE(2), TG_I32, 5.0), w = tg_param(g, "w", TG_SHAPE(2), .init = tg_init_ones());
    tg_tensor seen = tg_state(g, "seen", TG_SCALAR, TG_BOOL, 0.0);
    tg_writeback(n, tg_add(n, 1.0));
    tg_writeback(seen, tg_logical_not(seen));
    return tg_sum_all(tg_mul(w, tg_cast(n, TG_F32)));
}

static tg_tensor build_counter_reader(tg_graph *g, void *user) {
    (void)user;
    tg_tensor n = tg_state(g, "n", TG_SHAPE(2), TG_I32, 0.0);
    tg_writeback(n, tg_add(n, 100.0)); /* a run updates nothing */
    return n;
}

static tg_tensor build_counter_clash(tg_graph *g, void *user) {
    (void)user;
    return tg_state(g, "n", TG_SHAPE(2), TG_F32, 0.0);
}

static void user_states(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile(ctx, build_counter, NULL, NULL));
    tg_model *reader = must(ctx, tg_compile_sibling(m, build_counter_reader, NULL));
    int32_t n[2] = {0, 0};
    float loss = 0;
    ok(ctx, tg_run(reader, NULL, 0, n, 2));
    assert_true(n[0] == 5 && n[1] == 5); /* the first to make it says how it begins */
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 10); /* all read from before the step */
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 12);
    ok(ctx, tg_run(m, NULL, 0, &loss, 1));
    assert_true(loss == 14);
    ok(ctx, tg_run(reader, NULL, 0, n, 2));
    ok(ctx, tg_run(reader, NULL, 0, n, 2));
    assert_true(n[0] == 7 && n[1] == 7);
    expect_no_model(ctx, tg_compile_sibling(m, build_counter_clash, NULL), TG_ERROR_DTYPE, "state n is f32[2] here and i32[2]");
    ok(ctx, tg_model_reset_optimizer(m));
    ok(ctx, tg_run(reader, NULL, 0, n, 2));
    assert_int_equal(n[0], 7);
    ok(ctx, tg_model_reset(m));
    ok(ctx, tg_run(reader, NULL, 0, n, 2));
    assert_int_equal(n[0], 5);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- kinds of parameters, own optimisers */

static tg_tensor build_kinds(tg_graph *g, void *user) { /* tied, frozen, unused */
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(2), TG_F32);
    tg_tensor tied = tg_param(g, "tied", TG_SHAPE(2), .init = tg_init_ones());
    tg_tensor frozen = tg_param(g, "frozen", TG_SHAPE(2), .init = tg_init_ones(), .frozen = TG_YES);
    tg_param(g, "unused", TG_SHAPE(3), .init = tg_init_ones());
    return tg_sum_all(tg_mul(tg_mul(tied, x), tg_add(tied, frozen)));
}

static void tied_frozen_and_unused(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_sgd(.lr = tg_lr_constant(0.5));
    tg_model *m = must(ctx, tg_compile(ctx, build_kinds, NULL, &o));
    const float x[2] = {1, -2};
    const tg_feed feed = tg_feed_f32("x", x, 2);
    float data[3], loss = 0;
    tg_model_info info;
    assert_int_equal(tg_model_param_count(m), 3); /* the tied one once */
    ok(ctx, tg_step(m, &feed, 1, &loss));
    assert_true(loss == -2);
    ok(ctx, tg_param_grad_download(m, "tied", data, 2)); /* x (2 t + f) */
    assert_true(data[0] == 3 && data[1] == -6);
    ok(ctx, tg_param_grad_download(m, "frozen", data, 2));
    assert_true(data[0] == 0 && data[1] == 0);
    ok(ctx, tg_param_grad_download(m, "unused", data, 3));
    assert_true(data[0] == 0 && data[1] == 0 && data[2] == 0);
    ok(ctx, tg_param_download(m, "tied", data, 2));
    assert_true(data[0] == -0.5f && data[1] == 4);
    ok(ctx, tg_param_download(m, "frozen", data, 2));
    assert_true(data[0] == 1 && data[1] == 1);
    ok(ctx, tg_param_download(m, "unused", data, 3));
    assert_true(data[0] == 1 && data[2] == 1);
    ok(ctx, tg_model_get_info(m, &info));
    assert_int_equal(info.parameters, 5);
    tg_model_destroy(m);
}

/* SGD with momentum .9 and rate .05 written by hand: states, gradients and writebacks */
static tg_tensor build_own_optimizer(tg_graph *g, void *user) {
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32), y = tg_input(g, "y", TG_SHAPE(4, 1), TG_F32);
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    tg_tensor loss = tg_nn_mse(tg_nn_linear_fwd(l2, tg_relu(tg_nn_linear_fwd(l1, x))), y);
    if (user == NULL) return loss;
    const tg_tensor params[4] = {l1.W, l1.b, l2.W, l2.b};
    tg_tensor gradients[4];
    tg_grad(loss, params, 4, gradients);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "velocity%d", i);
        tg_tensor v = tg_state(g, name, tg_tensor_shape(params[i]), TG_F32, 0.0);
        tg_tensor next = tg_add(tg_mul(v, 0.9), gradients[i]);
        tg_writeback(v, next);
        tg_writeback(params[i], tg_sub(params[i], tg_mul(next, 0.05)));
    }
    return loss;
}

static void own_optimizer_equals_the_built_in(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_sgd(.lr = tg_lr_constant(0.05), .momentum = 0.9);
    tg_model *built_in = must(ctx, tg_compile(ctx, build_own_optimizer, NULL, &o));
    memset(&o.optimizer, 0, sizeof o.optimizer);
    tg_model *own = must(ctx, tg_compile(ctx, build_own_optimizer, &o, &o));
    float a[MLP_COUNT], b[MLP_COUNT];
    for (int i = 0; i < 20; i++) {
        float x = mlp_step(own), y = mlp_step(built_in);
        assert_true(fabsf(x - y) <= 1e-4f * fabsf(y) + 1e-6f);
    }
    mlp_params(own, a);
    mlp_params(built_in, b);
    for (int i = 0; i < MLP_COUNT; i++) assert_true(fabsf(a[i] - b[i]) <= 1e-4f * fabsf(b[i]) + 1e-5f);
    ok(ctx, tg_param_grad_download(own, "l1.W", a, 15)); /* gradients are there all the same */
    ok(ctx, tg_param_grad_download(built_in, "l1.W", b, 15));
    for (int i = 0; i < 15; i++) assert_true(fabsf(a[i] - b[i]) <= 1e-3f * fabsf(b[i]) + 1e-5f);
    /* reset covers its states too */
    ok(ctx, tg_model_reset(own));
    ok(ctx, tg_model_reset(built_in));
    for (int i = 0; i < 3; i++) {
        float x = mlp_step(own), y = mlp_step(built_in);
        assert_true(fabsf(x - y) <= 1e-4f * fabsf(y) + 1e-6f);
    }
    tg_model_destroy(own);
    tg_model_destroy(built_in);
}

static tg_tensor build_appended(tg_graph *g, void *user) { /* the optimiser inside the build function */
    tg_tensor loss = mlp_loss(g, NULL);
    tg_append_optimizer(loss, (const tg_optimizer *)user);
    return loss;
}

static void optimizer_appended_by_the_build_function(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_optimizer adam = o.optimizer;
    tg_model *outside = mlp_model(ctx, TG_DEVICE_AUTO);
    expect_no_model(ctx, tg_compile(ctx, build_appended, &adam, &o), TG_ERROR_DUPLICATE, "optimizer");
    memset(&o.optimizer, 0, sizeof o.optimizer);
    tg_model *inside = must(ctx, tg_compile(ctx, build_appended, &adam, &o));
    float params[MLP_COUNT];
    for (int i = 0; i < 5; i++) {
        float a = mlp_step(inside), b = mlp_step(outside);
        assert_memory_equal(&a, &b, sizeof a);
    }
    mlp_params(outside, params);
    mlp_expect_params(inside, params);
    ok(ctx, tg_model_set_lr(inside, tg_lr_constant(0)));
    mlp_step(inside);
    mlp_expect_params(inside, params);
    tg_model_destroy(inside);
    tg_model_destroy(outside);
}

/* p <- p + 0.5 transpose(p), [n, n] */
static tg_tensor build_transpose(tg_graph *g, void *user) {
    const int64_t n = *(const int64_t *)user;
    tg_tensor p = tg_param(g, "p", TG_SHAPE(n, n));
    tg_writeback(p, tg_add(p, tg_mul(tg_swap_axes(p, 0, 1), 0.5)));
    return tg_sum_all(p);
}

static void update_that_reads_its_own_transpose(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    int64_t n = 3;
    static const float p[9] = {1, 2, 3, 4, 5, 6, 7, 8, 10}, first[9] = {1.5f, 4, 6.5f, 5, 7.5f, 10, 8.5f, 11, 15},
                       second[9] = {2.25f, 6.5f, 10.75f, 7, 11.25f, 15.5f, 11.75f, 16, 22.5f};
    float got[9];
    tg_model *m = must(ctx, tg_compile(ctx, build_transpose, &n, NULL));
    for (int i = 0; i < 100; i++) {
        ok(ctx, tg_param_upload(m, "p", p, 9));
        ok(ctx, tg_step(m, NULL, 0, NULL));
        ok(ctx, tg_param_download(m, "p", got, 9));
        assert_memory_equal(got, first, sizeof got);
        ok(ctx, tg_step(m, NULL, 0, NULL));
        ok(ctx, tg_param_download(m, "p", got, 9));
        assert_memory_equal(got, second, sizeof got);
    }
    tg_model_destroy(m);
    n = 130;
    float *large = malloc(130 * 130 * sizeof(float)), *after = malloc(130 * 130 * sizeof(float));
    for (int i = 0; i < 130; i++)
        for (int j = 0; j < 130; j++) large[i * 130 + j] = (float)((i * 7 + j * 13) % 31) / 8;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    memset(&o.optimizer, 0, sizeof o.optimizer);
    o.threads = 2;
    m = must(ctx, tg_compile(ctx, build_transpose, &n, &o));
    for (int round = 0; round < 100; round++) {
        ok(ctx, tg_param_upload(m, "p", large, 130 * 130));
        ok(ctx, tg_step(m, NULL, 0, NULL));
        ok(ctx, tg_param_download(m, "p", after, 130 * 130));
        for (int i = 0; i < 130; i++)
            for (int j = 0; j < 130; j++) assert_true(after[i * 130 + j] == large[i * 130 + j] + 0.5f * large[j * 130 + i]);
    }
    tg_model_destroy(m);
    free(large);
    free(after);
}

/* ---------------------------------------------------------------- determinism */

/* A step large enough to be split: matmul, layer norm, softmax, embedding; loss and every parameter after 3 steps. */
static tg_tensor build_mixed(tg_graph *g, void *user) {
    (void)user;
    tg_tensor idx = tg_input(g, "idx", TG_SHAPE(16, 8), TG_I32);
    tg_tensor table = tg_param(g, "table", TG_SHAPE(11, 32));
    tg_layer_norm norm = tg_nn_layer_norm(g, "norm", 32);
    tg_linear up = tg_nn_linear(g, "up", 32, 96), down = tg_nn_linear(g, "down", 96, 32);
    tg_tensor h = tg_nn_layer_norm_fwd(norm, tg_embedding(table, idx));
    h = tg_add(h, tg_nn_linear_fwd(down, tg_relu(tg_nn_linear_fwd(up, h))));
    tg_tensor logits = tg_matmul(h, tg_swap_axes(table, 0, 1));
    return tg_mean(tg_nn_cross_entropy_last(logits, idx), TG_ALL);
}

static const struct {
    const char *name;
    int64_t count;
} mixed_params[] = {{"table", 352}, {"norm.g", 32}, {"norm.b", 32}, {"up.W", 3072}, {"up.b", 96}, {"down.W", 3072}, {"down.b", 32}};
#define MIXED_COUNT (352 + 32 + 32 + 3072 + 96 + 3072 + 32)

static void mixed_train(tg_context *ctx, int threads, float *out) {
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    int32_t idx[128];
    for (int i = 0; i < 128; i++) idx[i] = (i * i + 3 * i) % 11;
    const tg_feed feed = tg_feed_i32("idx", idx, 128);
    o.threads = threads;
    o.optimizer.clip_norm = 0.5;
    tg_model *m = must(ctx, tg_compile(ctx, build_mixed, NULL, &o));
    for (int i = 0; i < 3; i++) ok(ctx, tg_step(m, &feed, 1, out++));
    for (int i = 0; i < SUPPORT_COUNT(mixed_params); i++) {
        ok(ctx, tg_param_download(m, mixed_params[i].name, out, mixed_params[i].count));
        out += mixed_params[i].count;
    }
    tg_model_destroy(m);
}

static void reruns_and_thread_counts_agree_bitwise(void **state) {
    fixture *f = *state;
    const size_t bytes = (3 + MIXED_COUNT) * sizeof(float);
    float *first = malloc(bytes), *other = malloc(bytes);
    static const int threads[] = {1, 1, 2, 3, 7};
    mixed_train(f->ctx, 1, first);
    assert_true(first[2] < first[0]);
    for (int i = 0; i < SUPPORT_COUNT(threads); i++) {
        mixed_train(f->ctx, threads[i], other);
        assert_memory_equal(first, other, bytes);
    }
    free(first);
    free(other);
}

/* ---------------------------------------------------------------- checkpoints */

static void resume_by_the_numbers(void **state) { /* Adam, lr .1: 1 -> .8733663 after 1, -.5; after .25: .8393234 */
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = tg_adam(.lr = tg_lr_constant(0.1));
    tg_model *m = must(ctx, tg_compile(ctx, build_line, NULL, &o));
    line_step(m, 1);
    assert_true(fabsf(line_step(m, -0.5f) - 0.8733663f) < 2e-6f);
    ok(ctx, tg_model_save(m, f->path));
    tg_model_destroy(m);
    m = must(ctx, tg_compile(ctx, build_line, NULL, &o));
    ok(ctx, tg_model_load(m, f->path));
    assert_int_equal(tg_model_step_count(m), 2);
    assert_true(fabsf(line_step(m, 0.25f) - 0.8393234f) < 2e-6f);
    tg_model_destroy(m);
}

/* With a schedule replaced on the way; what is resumed is in the middle of whatever the optimiser accumulates. */
static void resumes_bitwise(fixture *f, tg_optimizer optimizer) {
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.optimizer = optimizer;
    tg_model *m = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    float curve[6], params[MLP_COUNT];
    for (int i = 0; i < 5; i++) mlp_step(m);
    ok(ctx, tg_model_set_lr(m, tg_lr_linear_decay(0.04, 0.0, 9)));
    for (int i = 0; i < 2; i++) mlp_step(m);
    ok(ctx, tg_model_save(m, f->path));
    for (int i = 0; i < 6; i++) curve[i] = mlp_step(m);
    mlp_params(m, params);
    tg_model_destroy(m);
    o.seed = 99;
    m = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    mlp_step(m); /* whatever was there before is gone */
    ok(ctx, tg_model_load(m, f->path));
    assert_int_equal(tg_model_step_count(m), 7);
    for (int i = 0; i < 6; i++) {
        float loss = mlp_step(m);
        assert_memory_equal(&loss, &curve[i], sizeof loss);
    }
    mlp_expect_params(m, params);
    /* the seed came along: a reset begins as the saved model began */
    tg_model *first = mlp_model(ctx, TG_DEVICE_AUTO);
    ok(ctx, tg_model_reset(m));
    mlp_params(first, params);
    mlp_expect_params(m, params);
    tg_model_destroy(first);
    tg_model_destroy(m);
}

static void resume_is_bitwise(void **state) {
    const tg_lr warm = tg_lr_warmup(0.05, 3, tg_lr_cosine_decay(0.05, 0.001, 20));
    resumes_bitwise(*state, tg_adam(.lr = warm, .weight_decay = 0.01));
    resumes_bitwise(*state, tg_muon(.lr = warm, .accumulate = 3, .average = 0.9));
    resumes_bitwise(*state, tg_rmsprop(.lr = warm, .momentum = 0.5, .accumulate = 2));
}

static void checkpoint_contents(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    for (int i = 0; i < 3; i++) mlp_step(m);
    ok(ctx, tg_model_save(m, f->path));
    tg_safetensors *file = NULL;
    ok(ctx, tg_safetensors_open(ctx, f->path, &file));
    assert_int_equal(file->tensors.count, 4 * 3 + 2);
    const tg_file_tensor *w = tg_safetensors_find(file, "l1.W"), *v = tg_safetensors_find(file, "tg.v/l1.W"),
                         *step = tg_safetensors_find(file, "tg.step");
    assert_true(w != NULL && v != NULL && step != NULL);
    assert_true(tg_shape_equal(w->shape, TG_SHAPE(3, 5)) && tg_shape_equal(v->shape, TG_SHAPE(3, 5)) && step->shape.rank == 0);
    float have[15];
    ok(ctx, tg_param_download(m, "l1.W", have, 15));
    assert_memory_equal(w->data, have, sizeof have);
    assert_int_equal(*(const uint8_t *)step->data, 3);
    assert_string_equal(tg_safetensors_metadata(file, "format"), "tensorgrad");
    assert_string_equal(tg_safetensors_metadata(file, "version"), TG_VERSION);
    assert_string_equal(tg_safetensors_metadata(file, "step"), "3");
    assert_string_equal(tg_safetensors_metadata(file, "seed"), "7");
    tg_safetensors_destroy(file);
    tg_model_destroy(m);
}

static void saving_does_not_leak(void **state) {
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_AUTO);
    mlp_step(m);
    ok(f->ctx, tg_model_save(m, f->path));
    int64_t live = f->ctx->live_bytes, blocks = f->ctx->live_blocks;
    for (int i = 0; i < 20; i++) {
        ok(f->ctx, tg_model_save(m, f->path));
        ok(f->ctx, tg_model_load(m, f->path));
    }
    assert_int_equal(f->ctx->live_bytes, live);
    assert_int_equal(f->ctx->live_blocks, blocks);
    tg_model_destroy(m);
}

static void forward_and_training_files(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    tg_model *trained = mlp_model(ctx, TG_DEVICE_AUTO);
    for (int i = 0; i < 4; i++) mlp_step(trained);
    float params[MLP_COUNT], out[4], want[4];
    mlp_params(trained, params);
    const tg_feed x = tg_feed_f32("x", mlp_x, 12);
    tg_model *sibling = must(ctx, tg_compile_sibling(trained, mlp_forward, NULL));
    ok(ctx, tg_run(sibling, &x, 1, want, 4));
    /* a training file into a forward model: its parameters */
    ok(ctx, tg_model_save(trained, f->path));
    o.seed = 50;
    tg_model *forward = must(ctx, tg_compile_forward(ctx, mlp_forward, NULL, &o));
    ok(ctx, tg_model_load(forward, f->path));
    mlp_expect_params(forward, params);
    ok(ctx, tg_run(forward, &x, 1, out, 4));
    assert_memory_equal(out, want, sizeof out);
    /* parameters only, into a training model: they are loaded, everything else begins anew */
    ok(ctx, tg_model_save(forward, f->path));
    tg_model *again = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    for (int i = 0; i < 3; i++) mlp_step(again);
    ok(ctx, tg_model_load(again, f->path));
    mlp_expect_params(again, params);
    assert_int_equal(tg_model_step_count(again), 0);
    ok(ctx, tg_model_reset_optimizer(trained));
    float a = mlp_step(again), b = mlp_step(trained);
    assert_memory_equal(&a, &b, sizeof a);
    mlp_params(trained, params);
    mlp_expect_params(again, params);
    /* into a sibling: the shared parameters, nothing of the training state */
    ok(ctx, tg_model_load(sibling, f->path));
    assert_int_equal(tg_model_step_count(trained), 1);
    ok(ctx, tg_run(sibling, &x, 1, out, 4));
    assert_memory_equal(out, want, sizeof out);
    tg_model_destroy(forward);
    tg_model_destroy(again);
    tg_model_destroy(trained);
}

/* A state that the parent lacks, of *user elements, and one that clashes with the parent's where they are 2. */
static tg_tensor build_new_states(tg_graph *g, void *user) {
    const int64_t *size = user;
    const tg_tensor aa = tg_state(g, "aa", TG_SHAPE(*size), TG_F32, 1.5);
    const tg_tensor n = tg_state(g, "n", TG_SHAPE(*size == 2 ? 3 : 2), TG_I32, 0);
    return tg_add(tg_sum_all(aa), tg_cast(tg_sum_all(tg_cast(n, TG_F32)), TG_F32));
}
static void a_refused_sibling_leaves_no_states_behind(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile(ctx, build_counter, NULL, NULL));
    int64_t two = 2, three = 3;
    float sum = 0;
    for (int i = 0; i < 2; i++) expect_no_model(ctx, tg_compile_sibling(m, build_new_states, &two), TG_ERROR_SHAPE, "state n is");
    tg_model *sibling = must(ctx, tg_compile_sibling(m, build_new_states, &three)); /* aa has another shape now */
    ok(ctx, tg_run(sibling, NULL, 0, &sum, 1));
    assert_true(sum == 4.5f + 10);
    expect_no_model(ctx, tg_compile_sibling(m, build_new_states, &two), TG_ERROR_SHAPE, "state aa is");
    ok(ctx, tg_run(sibling, NULL, 0, &sum, 1));
    assert_true(sum == 4.5f + 10);
    tg_model_destroy(m);
}

static void user_states_are_saved(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = must(ctx, tg_compile(ctx, build_counter, NULL, NULL));
    float loss = 0;
    for (int i = 0; i < 3; i++) ok(ctx, tg_step(m, NULL, 0, &loss));
    ok(ctx, tg_model_save(m, f->path));
    ok(ctx, tg_model_reset(m));
    ok(ctx, tg_model_load(m, f->path));
    assert_int_equal(tg_model_step_count(m), 3); /* no counter on the device: from the metadata */
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 16);
    tg_model_destroy(m);
}

/* A file of the given tensors, loaded into the model; must fail as told and change nothing. */
static void refuse_load(const fixture *f, tg_model *m, const tg_file_item *items, int64_t n, const tg_file_text *metadata, int64_t pairs,
                        tg_status code, const char *says) {
    float before[MLP_COUNT];
    int64_t steps = tg_model_step_count(m);
    mlp_params(m, before);
    ok(f->ctx, tg_safetensors_save(f->ctx, f->path, items, n, metadata, pairs));
    expect_error(f->ctx, tg_model_load(m, f->path), code, says);
    mlp_expect_params(m, before);
    assert_int_equal(tg_model_step_count(m), steps);
}

static void loading_checks_everything_first(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO), *twin = mlp_model(ctx, TG_DEVICE_AUTO);
    float data[20] = {0};
    const int32_t step = 3, negative = -3;
    mlp_step(m);
    mlp_step(twin);
    tg_file_item items[16] = {
        {"l1.W", TG_F32, TG_SHAPE(3, 5), data},      {"l1.b", TG_F32, TG_SHAPE(5), data},
        {"l2.W", TG_F32, TG_SHAPE(5, 1), data},      {"l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.m/l1.W", TG_F32, TG_SHAPE(3, 5), data}, {"tg.m/l1.b", TG_F32, TG_SHAPE(5), data},
        {"tg.m/l2.W", TG_F32, TG_SHAPE(5, 1), data}, {"tg.m/l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.v/l1.W", TG_F32, TG_SHAPE(3, 5), data}, {"tg.v/l1.b", TG_F32, TG_SHAPE(5), data},
        {"tg.v/l2.W", TG_F32, TG_SHAPE(5, 1), data}, {"tg.v/l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.step", TG_I32, TG_SCALAR, &step},       {"tg.lr", TG_F32, TG_SHAPE(20), data},
    };
    const tg_file_item good = items[3];
    refuse_load(f, m, items, 3, NULL, 0, TG_ERROR_NOT_FOUND, "lacks tensors of the model: l2.b");
    refuse_load(f, m, items, 13, NULL, 0, TG_ERROR_NOT_FOUND, "lacks tensors of the model: tg.lr");
    items[14] = (tg_file_item){"l3.W", TG_F32, TG_SHAPE(1), data};
    refuse_load(f, m, items, 15, NULL, 0, TG_ERROR_NOT_FOUND, "has tensors the model lacks: l3.W");
    items[14].name = "tg.w/l1.W";
    refuse_load(f, m, items, 15, NULL, 0, TG_ERROR_NOT_FOUND, "has tensors the model lacks: tg.w/l1.W");
    items[3] = (tg_file_item){"l2.b", TG_F32, TG_SHAPE(2), data};
    refuse_load(f, m, items, 14, NULL, 0, TG_ERROR_SHAPE, "tensor l2.b is [2], the model's is [1]");
    items[3] = (tg_file_item){"l2.b", TG_I32, TG_SHAPE(1), data};
    refuse_load(f, m, items, 14, NULL, 0, TG_ERROR_DTYPE, "tensor l2.b is I32, the model's is F32");
    items[3] = good;
    items[12].data = &negative;
    refuse_load(f, m, items, 14, NULL, 0, TG_ERROR_FORMAT, "tg.step is -3");
    items[12].data = &step;
    refuse_load(f, m, items, 14, (const tg_file_text[]){{"seed", "x"}}, 1, TG_ERROR_FORMAT, "metadata seed");
    refuse_load(f, m, items, 14, (const tg_file_text[]){{"seed", "18446744073709551616"}}, 1, TG_ERROR_FORMAT, "metadata seed");
    refuse_load(f, m, items, 14, (const tg_file_text[]){{"step", "-1"}}, 1, TG_ERROR_FORMAT, "metadata step");
    refuse_load(f, m, items, 14, (const tg_file_text[]){{"step", "2147483648"}}, 1, TG_ERROR_FORMAT, "metadata step");
    refuse_load(f, m, items, 14, (const tg_file_text[]){{"step", "4"}}, 1, TG_ERROR_FORMAT,
                "4 steps by its metadata, 0 of them skipped, 3 by tg.step");
    float rates[TG_LR_STATE] = {0, 0, 0, NAN};
    items[13].data = rates;
    refuse_load(f, m, items, 14, NULL, 0, TG_ERROR_FORMAT, "tg.lr holds nan");
    items[13].data = data;
    expect_error(ctx, tg_model_load(m, "no/such/file"), TG_ERROR_IO, "no/such/file");
    expect_error(ctx, tg_model_load(m, NULL), TG_ERROR_ARGUMENT, "path");
    expect_error(ctx, tg_model_save(m, "no/such/file"), TG_ERROR_IO, "no/such/file");
    expect_error(ctx, tg_model_save(m, ""), TG_ERROR_ARGUMENT, "path");
    FILE *file = fopen(f->path, "wb");
    fputs("this is not a checkpoint", file);
    fclose(file);
    expect_error(ctx, tg_model_load(m, f->path), TG_ERROR_FORMAT, "no safetensors file");
    for (int i = 0; i < 2; i++) { /* moments and schedule untouched */
        float a = mlp_step(m), b = mlp_step(twin);
        assert_memory_equal(&a, &b, sizeof a);
    }
    ok(ctx, tg_safetensors_save(ctx, f->path, items, 14, (const tg_file_text[]){{"unknown", "key"}}, 1)); /* a file of another hand */
    ok(ctx, tg_model_load(m, f->path));
    assert_int_equal(tg_model_step_count(m), 3);
    tg_model_destroy(m);
    tg_model_destroy(twin);
}

/* Files written when a schedule had one warm-up at most: its numbers lie elsewhere now, and mean what they meant. */
static void an_older_schedule_goes_on(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO), *old = mlp_model(ctx, TG_DEVICE_AUTO);
    const tg_lr schedule = tg_lr_warmup(0.02, 4, tg_lr_cosine_decay(0.02, 0.001, 9));
    mlp_step(m);
    ok(ctx, tg_model_set_lr(m, schedule));
    ok(ctx, tg_model_save(m, f->path));
    tg_safetensors *file = NULL;
    ok(ctx, tg_safetensors_open(ctx, f->path, &file));
    tg_file_item items[32];
    float now[TG_LR_STATE], before[TG_LR_STATE_BEFORE];
    for (int64_t i = 0; i < file->tensors.count; i++) {
        const tg_file_tensor *t = &file->tensors.items[i];
        items[i] = (tg_file_item){t->name, strcmp(t->dtype, "I32") == 0 ? TG_I32 : TG_F32, t->shape, t->data};
        if (strcmp(t->name, "tg.lr") != 0) continue;
        memcpy(now, t->data, sizeof now);
        before[0] = now[0];
        before[1] = now[TG_LR_WARMUPS];
        memcpy(before + 2, now + 2 * TG_LR_WARMUPS, sizeof before - 2 * sizeof *before);
        items[i].shape = TG_SHAPE(TG_LR_STATE_BEFORE);
        items[i].data = before;
    }
    ok(ctx, tg_safetensors_save(ctx, f->path, items, file->tensors.count, NULL, 0));
    tg_safetensors_destroy(file);
    ok(ctx, tg_model_load(old, f->path));
    for (int i = 0; i < 9; i++) {
        float a[MLP_COUNT], one = mlp_step(m), two = mlp_step(old);
        assert_memory_equal(&one, &two, sizeof one);
        mlp_params(m, a);
        mlp_expect_params(old, a);
    }
    tg_model_destroy(m);
    tg_model_destroy(old);
}

/* A counter at its end: the step that has no number is refused, and changes nothing. */
static void the_last_step_there_can_be(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    mlp_step(m);
    float data[18] = {0}, before[MLP_COUNT];
    int32_t step = INT32_MAX - 1;
    const tg_file_item items[] = {
        {"l1.W", TG_F32, TG_SHAPE(3, 5), data},      {"l1.b", TG_F32, TG_SHAPE(5), data},
        {"l2.W", TG_F32, TG_SHAPE(5, 1), data},      {"l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.m/l1.W", TG_F32, TG_SHAPE(3, 5), data}, {"tg.m/l1.b", TG_F32, TG_SHAPE(5), data},
        {"tg.m/l2.W", TG_F32, TG_SHAPE(5, 1), data}, {"tg.m/l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.v/l1.W", TG_F32, TG_SHAPE(3, 5), data}, {"tg.v/l1.b", TG_F32, TG_SHAPE(5), data},
        {"tg.v/l2.W", TG_F32, TG_SHAPE(5, 1), data}, {"tg.v/l2.b", TG_F32, TG_SHAPE(1), data},
        {"tg.step", TG_I32, TG_SCALAR, &step},       {"tg.lr", TG_F32, TG_SHAPE(18), data},
    };
    ok(ctx, tg_safetensors_save(ctx, f->path, items, 14, NULL, 0));
    ok(ctx, tg_model_load(m, f->path));
    mlp_step(m);
    mlp_params(m, before);
    for (int i = 0; i < MLP_COUNT; i++) assert_true(isfinite(before[i]));
    assert_int_equal(tg_model_step_count(m), INT32_MAX);
    const tg_feed feeds[] = MLP_FEEDS;
    tg_ticket ticket = 5;
    expect_error(ctx, tg_step(m, feeds, 2, NULL), TG_ERROR_LIMIT, "2147483647 steps have been made, the most there can be");
    expect_error(ctx, tg_step_async(m, feeds, 2, &ticket), TG_ERROR_LIMIT, "2147483647 steps");
    assert_int_equal(ticket, 0);
    mlp_expect_params(m, before);
    ok(ctx, tg_model_save(m, f->path));
    ok(ctx, tg_model_load(m, f->path));
    assert_int_equal(tg_model_step_count(m), INT32_MAX);
    ok(ctx, tg_model_reset_optimizer(m));
    mlp_step(m);
    assert_int_equal(tg_model_step_count(m), 1);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- inspection */

static void info_and_texts(void **state) {
    fixture *f = *state;
    tg_context *ctx = f->ctx;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    tg_model_info info, again;
    ok(ctx, tg_model_get_info(m, &info));
    assert_int_equal(info.parameters, MLP_COUNT);
    assert_true(info.nodes > 10 && info.kernels > 0 && info.dispatches == info.kernels && info.program_bytes > 0);
    assert_true(info.peak_bytes > 4 * 64 * 4 * (int64_t)sizeof(float) && info.workspace_bytes >= 0);
    assert_true(info.contraction_flops >= 2.0 * 4 * 3 * 5 * 2);
    assert_non_null(strstr(info.device, "cpu"));
    static const tg_text texts[] = {TG_TEXT_IR, TG_TEXT_KERNELS, TG_TEXT_PLAN, TG_TEXT_DOT, TG_TEXT_C};
    static const char *const says[] = {"contract", "", "", "digraph", "tg_emitted_run"};
    for (int i = 0; i < 5; i++) {
        const char *text = tg_model_text(m, texts[i]);
        if (text == NULL || strlen(text) < 50 || strstr(text, says[i]) == NULL)
            fail_msg("text %d: %s", i, text != NULL ? text : tg_error_message(ctx));
    }
    assert_null(tg_model_text(m, (tg_text)77));
    expect_error(ctx, tg_error(ctx), TG_ERROR_ARGUMENT, "77");
    ok(ctx, tg_model_get_info(m, &again));
    assert_int_equal(again.kernels, info.kernels);
    expect_error(ctx, tg_model_get_info(m, NULL), TG_ERROR_ARGUMENT, "NULL");
    tg_kernel_time times[64];
    memset(times, 0, sizeof times);
    assert_true(info.kernels < 64);
    ok(ctx, tg_model_time_kernels(m, times, 1000)); /* no more than there are */
    assert_true(times[0].name != NULL && times[0].loops[0] != 0 && times[info.kernels].name == NULL);
    ok(ctx, tg_model_time_kernels(m, NULL, 0));
    expect_error(ctx, tg_model_time_kernels(m, times, -1), TG_ERROR_ARGUMENT, "-1");
    tg_compile_options o = adam_options(TG_DEVICE_AUTO);
    o.no_fusion = true;
    tg_model *slow = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    ok(ctx, tg_model_get_info(slow, &again));
    assert_true(again.kernels > info.kernels);
    float a = 0, b = 0;
    for (int i = 0; i < 5; i++) {
        a = mlp_step(m);
        b = mlp_step(slow);
        assert_true(fabsf(a - b) <= 1e-5f * fabsf(b));
    }
    tg_model_destroy(m);
    tg_model_destroy(slow);
}

static void errors_are_of_the_last_call(void **state) {
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_AUTO);
    assert_int_equal(tg_step(m, NULL, 0, NULL), TG_ERROR_NOT_FOUND);
    assert_int_equal(tg_error(f->ctx), TG_ERROR_NOT_FOUND);
    mlp_step(m);
    assert_int_equal(tg_error(f->ctx), TG_OK);
    assert_string_equal(tg_error_message(f->ctx), "");
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- advice */

typedef struct advice {
    int count;
    char text[1024];
} advice;

static void log_advice(void *user, tg_log_level level, const char *message) {
    advice *a = user;
    if (level != TG_LOG_WARNING) return;
    a->count++;
    (void)snprintf(a->text, sizeof a->text, "%s", message);
}

static tg_tensor build_advised(tg_graph *g, void *user) {
    const int kind = *(const int *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(3), TG_F32), w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones()), y = tg_mul(x, w);
    switch (kind) {
    case 0: y = tg_cast(tg_argmax(y, 0), TG_F32); break;
    case 1: y = tg_sign(y); break;
    case 2: y = tg_cast(tg_cast(y, TG_I32), TG_F32); break;
    case 3: y = tg_stop_gradient(y); break;
    case 4: y = tg_where(tg_greater(y, 0), x, 1); break;
    case 5: y = x; break;
    case 6: (void)tg_nn_linear(g, "forgotten", 3, 2); break;
    case 7: y = tg_add(y, tg_round(tg_param(g, "v", TG_SHAPE(3)))); break;
    /* these are as they are meant */
    case 8: y = tg_add(y, tg_stop_gradient(tg_sub(tg_round(y), y))); break;
    case 9: y = tg_add(y, tg_stop_gradient(tg_param(g, "target", TG_SHAPE(3)))); break;
    case 10: y = tg_add(y, tg_round(tg_param(g, "fixed", TG_SHAPE(3), .frozen = true))); break;
    case 11: tg_capture("seen", tg_param(g, "watched", TG_SHAPE(3))); break;
    case 12: y = tg_mul(y, tg_cast(tg_greater(y, 0), TG_F32)); break;
    default: break;
    }
    return tg_sum(y, TG_ALL);
}

static void what_cannot_learn_is_said(void **state) {
    (void)state;
    static const char *const says[] = {
        "argmax", "sign", "cast", "stop_gradient", "greater", "never used", "forgotten.W, forgotten.b", "round",
    };
    for (int kind = 0; kind <= 13; kind++) {
        advice a = {0, ""};
        tg_context *ctx = tg_context_create(&(tg_context_options){.log = log_advice, .log_user = &a});
        const tg_compile_options o = {.device = TG_DEVICE_CPU, .optimizer = tg_sgd(.lr = tg_lr_constant(0.1))};
        tg_model *m = tg_compile(ctx, build_advised, &kind, &o);
        if (m == NULL) fail_msg("kind %d: %s", kind, tg_error_message(ctx));
        const int wanted = kind > 7 ? 0 : kind == 5 ? 2 : 1; /* 5: nothing learns, and it is not even used */
        if (a.count != wanted) fail_msg("kind %d: %d warnings, the last: %s", kind, a.count, a.text);
        if (wanted > 0 && (strstr(a.text, says[kind]) == NULL || strstr(a.text, "test_model.c:") == NULL))
            fail_msg("kind %d: %s", kind, a.text);
        tg_model_destroy(m);
        tg_context_destroy(ctx);
    }
}

/* Without an optimizer, a second step whose gradients nobody has read; said once. */
static void steps_that_change_nothing_are_said(void **state) {
    (void)state;
    const float x[3] = {1, 2, 3};
    const tg_feed feed = tg_feed_f32("x", x, 3);
    for (int reads = 0; reads < 2; reads++) {
        advice a = {0, ""};
        int kind = 13;
        float loss, gradient[3];
        tg_context *ctx = tg_context_create(&(tg_context_options){.log = log_advice, .log_user = &a});
        const tg_compile_options o = {.device = TG_DEVICE_CPU};
        tg_model *m = tg_compile(ctx, build_advised, &kind, &o);
        assert_non_null(m);
        for (int step = 0; step < 4; step++) {
            assert_int_equal(tg_step(m, &feed, 1, &loss), TG_OK);
            if (reads) assert_int_equal(tg_param_grad_download(m, "w", gradient, 3), TG_OK);
        }
        assert_int_equal(a.count, reads ? 0 : 1);
        if (!reads) assert_non_null(strstr(a.text, "without an optimizer"));
        tg_model_destroy(m);
        tg_context_destroy(ctx);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(compile_errors),
        TEST(compile_error_has_the_users_line),
        TEST(compile_options_are_checked),
        TEST(threads_from_environment),
        TEST(step_refuses_feeds),
        TEST(step_checks_fed_indices),
        TEST(step_checks_computed_indices_first),
        TEST(bool_feeds),
        TEST(feeds_stay_usable),
        TEST(training_learns_and_allocates_nothing),
        TEST(loss_that_is_not_finite),
        TEST(without_optimizer_nothing_moves),
        TEST(forward_models_do_not_step),
        TEST(outputs_of_every_dtype),
        TEST(run_of_a_training_model),
        TEST(captures_by_name),
        TEST(captures_of_a_model_without),
        TEST(captures_of_every_kind),
        TEST(parameters_by_name),
        TEST(uploads_are_all_or_nothing),
        TEST(initial_values),
        TEST(reset_reproduces_the_run),
        TEST(reset_optimizer_keeps_parameters),
        TEST(learning_rate),
        TEST(learning_rate_zero_stops_decay_too),
        TEST(reset_restarts_the_schedule_in_force),
        TEST(siblings_share_parameters),
        TEST(averages_of_parameters),
        TEST(user_states),
        TEST(tied_frozen_and_unused),
        TEST(own_optimizer_equals_the_built_in),
        TEST(optimizer_appended_by_the_build_function),
        TEST(update_that_reads_its_own_transpose),
        TEST(reruns_and_thread_counts_agree_bitwise),
        TEST(resume_by_the_numbers),
        TEST(resume_is_bitwise),
        TEST(checkpoint_contents),
        TEST(saving_does_not_leak),
        TEST(forward_and_training_files),
        TEST(user_states_are_saved),
        TEST(a_refused_sibling_leaves_no_states_behind),
        TEST(an_older_schedule_goes_on),
        TEST(the_last_step_there_can_be),
        TEST(loading_checks_everything_first),
        TEST(info_and_texts),
        TEST(f16_on_the_cpu_is_f32),
        TEST(errors_are_of_the_last_call),
        TEST(what_cannot_learn_is_said),
        TEST(steps_that_change_nothing_are_said),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
