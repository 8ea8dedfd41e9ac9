/* Tests of models on a real WebGPU library, through the public API: training against the CPU,
 * feeds, captures, siblings, checkpoints that move between the devices, messages, an application's
 * own device, loss and recovery. Tests that need a library are skipped if TENSORGRAD_WEBGPU_LIB
 * names none. Sizes are small, for software adapters. */
#define _XOPEN_SOURCE 700
#include "fixtures.h"

#include "run/model.h"
#include "run/webgpu/device.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *library_path(void) {
    const char *path = getenv("TENSORGRAD_WEBGPU_LIB");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* The context of a test that needs the library. */
static tg_context *need_library(void **state) {
    fixture *f = *state;
    support_need_webgpu();
    return f->ctx;
}

static void assert_close(const char *what, const float *got, const float *want, int64_t count, double relative, double absolute) {
    double *wide = malloc(sizeof *wide * (size_t)count);
    for (int64_t i = 0; i < count; i++) wide[i] = (double)want[i];
    support_assert_floats(what, got, wide, count, relative, absolute);
    free(wide);
}

/* ---------------------------------------------------------------- adapters, choosing a device */

static void adapters_are_listed(void **state) {
    tg_context *ctx = need_library(state);
    tg_adapter_info list[8];
    int count = -1, again = -1;
    memset(list, 0, sizeof list);
    ok(ctx, tg_adapters(ctx, list, 8, &count));
    assert_true(count >= 1);
    ok(ctx, tg_adapters(ctx, NULL, 0, &again));
    assert_int_equal(again, count);
    for (int i = 0; i < count && i < 8; i++) {
        assert_true(list[i].name[0] != '\0' && list[i].backend[0] != '\0' && list[i].type[0] != '\0');
        assert_true(list[i].max_storage_buffers >= 8 && list[i].max_binding_bytes >= 128 << 20);
        assert_true(list[i].max_buffer_bytes >= list[i].max_binding_bytes && list[i].max_workgroup_bytes >= 16384);
        assert_true(list[i].max_workgroup_invocations >= 256 && list[i].max_workgroups >= 65535);
        print_message("#%d %s (%s, %s)\n", i, list[i].name, list[i].backend, list[i].type);
    }
    expect_error(ctx, tg_adapters(ctx, list, 8, NULL), TG_ERROR_ARGUMENT, "");
    expect_error(ctx, tg_adapters(ctx, NULL, 3, &count), TG_ERROR_ARGUMENT, "");
    expect_error(ctx, tg_adapters(ctx, list, -1, &count), TG_ERROR_ARGUMENT, "");
}

static void adapter_is_chosen(void **state) {
    tg_context *ctx = need_library(state);
    tg_adapter_info first;
    int count = 0;
    ok(ctx, tg_adapters(ctx, &first, 1, &count));
    const char *const wanted[] = {"#0", first.name, first.backend, NULL, ""};
    for (int i = 0; i < SUPPORT_COUNT(wanted); i++) {
        tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
        tg_model_info info;
        o.adapter = wanted[i];
        tg_model *m = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
        ok(ctx, tg_model_get_info(m, &info));
        if (i < 2 || i > 2) assert_string_equal(info.adapter, first.name);
        tg_model_destroy(m);
    }
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    o.adapter = "no such adapter";
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_DEVICE, first.name); /* they are listed */
    tg_compile(ctx, mlp_loss, NULL, &o);
    expect_error(ctx, tg_error(ctx), TG_ERROR_DEVICE, "no such adapter");
    o.adapter = "#99";
    expect_no_model(ctx, tg_compile(ctx, mlp_loss, NULL, &o), TG_ERROR_DEVICE, "#99");
    o.adapter = NULL;
    setenv("TENSORGRAD_ADAPTER", "another name", 1);
    tg_model *m = tg_compile(ctx, mlp_loss, NULL, &o);
    unsetenv("TENSORGRAD_ADAPTER");
    expect_no_model(ctx, m, TG_ERROR_DEVICE, "another name");
}

static void automatic_choice_wants_a_real_gpu(void **state) {
    tg_context *ctx = need_library(state);
    tg_adapter_info list[8];
    tg_model_info info;
    int count = 0;
    bool real = false;
    ok(ctx, tg_adapters(ctx, list, 8, &count));
    for (int i = 0; i < count && i < 8; i++)
        real = real || strcmp(list[i].type, "discrete") == 0 || strcmp(list[i].type, "integrated") == 0;
    tg_model *m = mlp_model(ctx, TG_DEVICE_AUTO);
    ok(ctx, tg_model_get_info(m, &info));
    assert_int_equal(strncmp(info.device, "webgpu", 6) == 0, real);
    mlp_step(m);
    tg_model_destroy(m);
}

/* With `path` for the library: compiling for WebGPU says `says`; for any device there is the CPU. */
static void try_library(fixture *f, const char *path, const char *says) {
    tg_context *ctx = f->ctx;
    char kept[1024];
    int count = -1;
    const char *old = library_path();
    snprintf(kept, sizeof kept, "%s", old != NULL ? old : "");
    setenv("TENSORGRAD_WEBGPU_LIB", path, 1);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    tg_model *m = tg_compile(ctx, mlp_loss, NULL, &o);
    f->log[0] = '\0';
    tg_status listed = m == NULL ? tg_error(ctx) : TG_OK;
    if (m == NULL) expect_error(ctx, listed, TG_ERROR_DEVICE, says);
    tg_model_destroy(m);
    assert_null(m);
    o.device = TG_DEVICE_AUTO;
    m = tg_compile(ctx, mlp_loss, NULL, &o);
    f->log[0] = '\0';
    listed = tg_adapters(ctx, NULL, 0, &count);
    if (old != NULL) setenv("TENSORGRAD_WEBGPU_LIB", kept, 1);
    else unsetenv("TENSORGRAD_WEBGPU_LIB");
    ok(ctx, listed);
    assert_int_equal(count, 0);
    assert_non_null(strstr(f->log, says));
    tg_model_info info;
    ok(ctx, tg_model_get_info(must(ctx, m), &info));
    assert_int_equal(strncmp(info.device, "cpu", 3), 0);
    mlp_step(m);
    tg_model_destroy(m);
}

static void a_library_that_is_not_there(void **state) { try_library(*state, "/nowhere/libwebgpu_none.so", "/nowhere/libwebgpu_none.so"); }

static void a_library_of_something_else(void **state) { try_library(*state, "libm.so.6", "libm.so.6"); }

static void a_device_and_the_cpu_is_a_mistake(void **state) {
    fixture *f = *state;
    const tg_webgpu_device own = {NULL, NULL, NULL};
    tg_compile_options o = adam_options(TG_DEVICE_CPU);
    o.webgpu = &own;
    expect_no_model(f->ctx, tg_compile(f->ctx, mlp_loss, NULL, &o), TG_ERROR_ARGUMENT, "CPU");
    o.device = TG_DEVICE_WEBGPU;
    tg_model *m = tg_compile(f->ctx, mlp_loss, NULL, &o); /* no handles */
    assert_null(m);
    assert_true(tg_error(f->ctx) == TG_ERROR_ARGUMENT || tg_error(f->ctx) == TG_ERROR_DEVICE);
    assert_true(tg_error_message(f->ctx)[0] != '\0');
}

/* ---------------------------------------------------------------- training */

static void training_follows_the_cpu(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *gpu = mlp_model(ctx, TG_DEVICE_WEBGPU), *cpu = mlp_model(ctx, TG_DEVICE_CPU);
    float a[MLP_COUNT], b[MLP_COUNT], loss[2];
    tg_model_info info;
    mlp_params(cpu, a);
    mlp_expect_params(gpu, a); /* the same beginning, to the bit */
    for (int i = 0; i < 12; i++) {
        loss[0] = mlp_step(gpu);
        loss[1] = mlp_step(cpu);
        assert_close("loss", &loss[0], &loss[1], 1, 1e-4, 0);
    }
    mlp_params(gpu, a);
    mlp_params(cpu, b);
    assert_close("parameters", a, b, MLP_COUNT, 1e-3, 1e-4);
    ok(ctx, tg_param_grad_download(gpu, "l1.W", a, 15));
    ok(ctx, tg_param_grad_download(cpu, "l1.W", b, 15));
    assert_close("gradient", a, b, 15, 1e-3, 1e-4);
    assert_int_equal(tg_model_step_count(gpu), 12);
    ok(ctx, tg_model_get_info(gpu, &info));
    assert_int_equal(strncmp(info.device, "webgpu (", 8), 0);
    assert_non_null(strstr(info.device, info.adapter));
    assert_true(info.dispatches > 0 && info.dispatches < info.kernels); /* most kernels share a launch */
    tg_model_destroy(gpu);
    tg_model_destroy(cpu);
}

static void two_runs_are_bit_identical(void **state) {
    tg_context *ctx = need_library(state);
    float loss[2][5], params[2][MLP_COUNT];
    for (int run = 0; run < 2; run++) {
        tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
        for (int i = 0; i < 5; i++) loss[run][i] = mlp_step(m);
        mlp_params(m, params[run]);
        tg_model_destroy(m);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(params[0], params[1], sizeof params[0]);
}

static void steps_allocate_nothing(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    const tg_feed feeds[] = MLP_FEEDS;
    float run = 0, params[MLP_COUNT];
    mlp_step(m);
    ok(ctx, tg_run(m, feeds, 2, &run, 1));
    mlp_params(m, params);
    const int64_t calls = ctx->alloc_calls, live = ctx->live_bytes;
    for (int i = 0; i < 10; i++) mlp_step(m);
    ok(ctx, tg_run(m, feeds, 2, &run, 1));
    mlp_params(m, params);
    assert_int_equal(ctx->alloc_calls, calls);
    assert_int_equal(ctx->live_bytes, live);
    tg_model_destroy(m);
}

static void without_fusion(void **state) {
    tg_context *ctx = need_library(state);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    tg_model_info info, fused;
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    o.no_fusion = true;
    tg_model *plain = must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
    for (int i = 0; i < 3; i++) {
        const float a = mlp_step(plain), b = mlp_step(m);
        assert_close("loss", &a, &b, 1, 1e-4, 0);
    }
    ok(ctx, tg_model_get_info(m, &fused));
    ok(ctx, tg_model_get_info(plain, &info));
    assert_true(info.dispatches > fused.dispatches);
    tg_model_destroy(plain);
    tg_model_destroy(m);
}

static void captures_of_a_step_and_a_run(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *gpu = mlp_model(ctx, TG_DEVICE_WEBGPU), *cpu = mlp_model(ctx, TG_DEVICE_CPU);
    const tg_feed feeds[] = MLP_FEEDS;
    tg_captures *a = NULL, *b = NULL, *of_run = NULL;
    float loss = 0, run = 0;
    ok(ctx, tg_run_captures(gpu, feeds, 2, &run, 1, &of_run));
    ok(ctx, tg_step_captures(gpu, feeds, 2, &loss, &a));
    ok(ctx, tg_step_captures(cpu, feeds, 2, &loss, &b));
    tg_model_destroy(gpu); /* captures outlive it */
    tg_model_destroy(cpu);
    assert_int_equal(tg_captures_count(a), 2);
    assert_close("h", tg_captures_get(a, "h", NULL, NULL), tg_captures_get(b, "h", NULL, NULL), 20, 1e-4, 1e-5);
    assert_close("out", tg_captures_get(a, "out", NULL, NULL), tg_captures_get(b, "out", NULL, NULL), 4, 1e-4, 1e-5);
    assert_close("out of a run", tg_captures_get(of_run, "out", NULL, NULL), tg_captures_get(b, "out", NULL, NULL), 4, 1e-4, 1e-5);
    assert_close("loss", &run, &loss, 1, 1e-4, 0);
    tg_captures_destroy(a);
    tg_captures_destroy(b);
    tg_captures_destroy(of_run);
}

static tg_tensor build_capture_kinds(tg_graph *g, void *user) { /* a parameter, an input, an integer, bools */
    (void)user;
    tg_tensor w = tg_capture("w", tg_param(g, "w", TG_SHAPE(5), .init = tg_init_ones()));
    tg_tensor x = tg_capture("x", tg_input(g, "x", TG_SHAPE(5), TG_F32));
    tg_capture("best", tg_argmax(x, 0));
    tg_capture("positive", tg_greater(x, 0.0));
    return tg_sum_all(tg_mul(w, x));
}

static void captures_of_every_kind(void **state) {
    tg_context *ctx = need_library(state);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    tg_model *m = must(ctx, tg_compile(ctx, build_capture_kinds, NULL, &o));
    const float x[5] = {-1, 4, 0, 3, -2}, ones[5] = {1, 1, 1, 1, 1};
    const tg_feed feed = tg_feed_f32("x", x, 5);
    tg_captures *captures = NULL;
    tg_dtype dtype;
    ok(ctx, tg_step_captures(m, &feed, 1, NULL, &captures));
    assert_int_equal(tg_captures_count(captures), 4);
    assert_memory_equal(tg_captures_get(captures, "w", NULL, NULL), ones, sizeof ones); /* from before the update */
    assert_memory_equal(tg_captures_get(captures, "x", NULL, NULL), x, sizeof x);
    assert_int_equal(*(const int32_t *)tg_captures_get(captures, "best", NULL, &dtype), 1);
    assert_int_equal(dtype, TG_I32);
    assert_memory_equal(tg_captures_get(captures, "positive", NULL, &dtype), ((uint8_t[]){0, 1, 0, 1, 0}), 5);
    assert_int_equal(dtype, TG_BOOL);
    tg_captures_destroy(captures);
    tg_model_destroy(m);
}

static tg_tensor build_logarithm(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_param(g, "p", TG_SCALAR, .init = tg_init_ones());
    return tg_capture("l", tg_log(tg_mul(p, tg_input(g, "x", TG_SCALAR, TG_F32))));
}

static void loss_that_is_not_finite(void **state) {
    tg_context *ctx = need_library(state);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    memset(&o.optimizer, 0, sizeof o.optimizer);
    tg_model *m = must(ctx, tg_compile(ctx, build_logarithm, NULL, &o));
    float x = 2, loss = 42;
    const tg_feed feed = tg_feed_f32("x", &x, 1);
    tg_captures *captures = NULL;
    ok(ctx, tg_step(m, &feed, 1, &loss));
    assert_true(fabsf(loss - 0.6931472f) < 1e-5f);
    x = -1;
    expect_error(ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_NOT_FINITE, "step 2: loss is nan");
    assert_true(isnan(loss));
    x = 0;
    const tg_status status = tg_step_captures(m, &feed, 1, &loss, &captures);
    expect_error(ctx, status, TG_ERROR_NOT_FINITE, "step 3: loss is");
    assert_non_null(captures);
    tg_captures_destroy(captures);
    assert_int_equal(tg_model_step_count(m), 3);
    x = 1;
    ok(ctx, tg_step(m, &feed, 1, &loss));
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- feeds and outputs */

static void wrong_feeds_change_nothing(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU), *twin = mlp_model(ctx, TG_DEVICE_WEBGPU);
    const tg_feed good[] = MLP_FEEDS;
    int32_t integers[4] = {0};
    const tg_feed extra[] = {good[0], good[1], tg_feed_f32("z", mlp_x, 12)}, twice[] = {good[0], good[1], good[0]},
                  kind[] = {good[0], tg_feed_i32("y", integers, 4)}, size[] = {tg_feed_f32("x", mlp_x, 11), good[1]};
    float before[MLP_COUNT], loss = 42;
    mlp_step(m);
    mlp_step(twin);
    mlp_params(m, before);
    expect_error(ctx, tg_step(m, good, 1, &loss), TG_ERROR_NOT_FOUND, "inputs not fed: y");
    expect_error(ctx, tg_step(m, extra, 3, &loss), TG_ERROR_NOT_FOUND, "unknown input z");
    expect_error(ctx, tg_step(m, twice, 3, &loss), TG_ERROR_DUPLICATE, "x is fed twice");
    expect_error(ctx, tg_step(m, kind, 2, &loss), TG_ERROR_DTYPE, "y is f32, fed as i32");
    expect_error(ctx, tg_step(m, size, 2, &loss), TG_ERROR_SHAPE, "fed 11");
    assert_true(loss == 42);
    assert_int_equal(tg_model_step_count(m), 1);
    mlp_expect_params(m, before);
    const float a = mlp_step(m), b = mlp_step(twin);
    assert_memory_equal(&a, &b, sizeof a);
    tg_model_destroy(m);
    tg_model_destroy(twin);
}

/* rows of table [4, 2] for idx [3] (or idx + 1), targets with -1 ignored */
static tg_tensor build_lookup(tg_graph *g, void *user) {
    tg_tensor table = tg_param(g, "table", TG_SHAPE(4, 2), .init = tg_init_randn(1));
    tg_tensor idx = tg_input(g, "idx", TG_SHAPE(3), TG_I32), target = tg_input(g, "target", TG_SHAPE(3), TG_I32);
    tg_tensor rows = tg_embedding(table, user != NULL ? tg_add(idx, 1.0) : idx);
    return tg_nn_cross_entropy(rows, target, -1);
}

static void indices_are_checked(void **state) {
    tg_context *ctx = need_library(state);
    int yes = 1;
    for (int computed = 0; computed < 2; computed++) {
        tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
        tg_model *m = must(ctx, tg_compile(ctx, build_lookup, computed ? &yes : NULL, &o));
        o.device = TG_DEVICE_CPU;
        tg_model *cpu = must(ctx, tg_compile(ctx, build_lookup, computed ? &yes : NULL, &o));
        const int32_t idx[3] = {0, 2, 2}, target[3] = {1, -1, 0}, high[3] = {0, 1, computed ? 3 : 4};
        float before[8], after[8], loss = 42, want = 0;
        tg_feed feeds[2] = {tg_feed_i32("idx", idx, 3), tg_feed_i32("target", target, 3)};
        ok(ctx, tg_step(m, feeds, 2, &loss));
        ok(ctx, tg_step(cpu, feeds, 2, &want));
        assert_close("loss", &loss, &want, 1, 1e-4, 0);
        ok(ctx, tg_param_download(m, "table", before, 8));
        feeds[0].data = high;
        loss = 42;
        expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_INDEX,
                     computed ? "a computed index is outside [0, 4)" : "index 4 at position 2");
        expect_error(ctx, tg_run(m, feeds, 2, &loss, 1), TG_ERROR_INDEX, "outside [0, 4)");
        assert_true(loss == 42);
        ok(ctx, tg_param_download(m, "table", after, 8));
        assert_memory_equal(before, after, sizeof before);
        assert_int_equal(tg_model_step_count(m), 1);
        feeds[0].data = idx;
        ok(ctx, tg_step(m, feeds, 2, &loss));
        tg_model_destroy(m);
        tg_model_destroy(cpu);
    }
}

static tg_tensor build_masked(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(7), .init = tg_init_ones());
    tg_tensor kept = tg_where(tg_input(g, "mask", TG_SHAPE(7), TG_BOOL), w, 0.0);
    return tg_sum_all(tg_mul(kept, tg_cast(tg_input(g, "factor", TG_SHAPE(7), TG_I32), TG_F32)));
}

static void bool_and_integer_feeds(void **state) { /* seven bytes: no multiple of four */
    tg_context *ctx = need_library(state);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    memset(&o.optimizer, 0, sizeof o.optimizer);
    tg_model *m = must(ctx, tg_compile(ctx, build_masked, NULL, &o));
    uint8_t mask[7] = {1, 0, 1, 0, 0, 1, 1};
    const int32_t factor[7] = {1, 10, 100, 1000, 10000, 100000, -3};
    float loss = 0, gradient[7];
    const tg_feed feeds[2] = {tg_feed_bool("mask", mask, 7), tg_feed_i32("factor", factor, 7)};
    ok(ctx, tg_step(m, feeds, 2, &loss));
    assert_true(loss == 100098);
    ok(ctx, tg_param_grad_download(m, "w", gradient, 7));
    for (int i = 0; i < 7; i++) assert_true(gradient[i] == (mask[i] ? (float)factor[i] : 0.0f));
    mask[6] = 0;
    ok(ctx, tg_step(m, feeds, 2, &loss));
    assert_true(loss == 100101);
    mask[6] = 2;
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_ARGUMENT, "2 at position 6 is neither 0 nor 1");
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

static tg_tensor build_echo(tg_graph *g, void *user) { /* the output is an input */
    (void)user;
    return tg_input(g, "x", TG_SHAPE(2, 3), TG_F32);
}

static tg_model *forward(tg_context *ctx, tg_build_fn build) {
    const tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    return must(ctx, tg_compile_forward(ctx, build, NULL, &o));
}

static void outputs_of_every_dtype(void **state) {
    tg_context *ctx = need_library(state);
    const float x[6] = {1, 3, 2, -5, -7, -6};
    const tg_feed feed = tg_feed_f32("x", x, 6);
    int32_t integers[2] = {-1, -1};
    uint8_t bools[6];
    float echo[6], loss = 0;
    tg_model *m = forward(ctx, build_argmax);
    ok(ctx, tg_run(m, &feed, 1, integers, 2));
    assert_true(integers[0] == 1 && integers[1] == 0);
    expect_error(ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_STATE, "forward model");
    tg_model_destroy(m);
    m = forward(ctx, build_compare);
    ok(ctx, tg_run(m, &feed, 1, bools, 6));
    assert_memory_equal(bools, ((uint8_t[]){1, 1, 1, 0, 0, 0}), 6);
    tg_model_destroy(m);
    m = forward(ctx, build_constant); /* no input, no parameter */
    ok(ctx, tg_run(m, NULL, 0, integers, 2));
    assert_true(integers[0] == 3 && integers[1] == 3);
    tg_model_destroy(m);
    m = forward(ctx, build_echo);
    ok(ctx, tg_run(m, &feed, 1, echo, 6));
    assert_memory_equal(echo, x, sizeof x);
    tg_model_destroy(m);
}

static tg_tensor build_counter(tg_graph *g, void *user) { /* states of every dtype, all read from before the step */
    (void)user;
    tg_tensor n = tg_state(g, "n", TG_SHAPE(3), TG_I32, 5.0), w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones());
    tg_tensor seen = tg_state(g, "seen", TG_SHAPE(3), TG_BOOL, 0.0);
    tg_writeback(n, tg_add(n, 1.0));
    tg_writeback(seen, tg_logical_not(seen));
    return tg_sum_all(tg_mul(w, tg_add(tg_cast(n, TG_F32), tg_cast(seen, TG_F32))));
}

static tg_tensor build_seen(tg_graph *g, void *user) {
    (void)user;
    return tg_state(g, "seen", TG_SHAPE(3), TG_BOOL, 0.0);
}

static void states_of_every_dtype(void **state) {
    tg_context *ctx = need_library(state);
    tg_compile_options o = adam_options(TG_DEVICE_WEBGPU);
    memset(&o.optimizer, 0, sizeof o.optimizer);
    tg_model *m = must(ctx, tg_compile(ctx, build_counter, NULL, &o));
    tg_model *reader = must(ctx, tg_compile_sibling(m, build_seen, NULL));
    uint8_t seen[3];
    float loss = 0;
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 15);
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 21);
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 21);
    ok(ctx, tg_run(reader, NULL, 0, seen, 3));
    assert_memory_equal(seen, ((uint8_t[]){1, 1, 1}), 3);
    ok(ctx, tg_model_reset(m));
    ok(ctx, tg_run(reader, NULL, 0, seen, 3));
    assert_memory_equal(seen, ((uint8_t[]){0, 0, 0}), 3);
    ok(ctx, tg_step(m, NULL, 0, &loss));
    assert_true(loss == 15);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- parameters, siblings, files */

static void parameters_up_and_down(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    float data[15], back[15], all[MLP_COUNT];
    for (int i = 0; i < 15; i++) data[i] = (float)i / 8;
    mlp_params(m, all);
    ok(ctx, tg_param_upload(m, "l1.W", data, 15));
    ok(ctx, tg_param_download(m, "l1.W", back, 15));
    assert_memory_equal(data, back, sizeof data);
    memcpy(all, data, sizeof data);
    mlp_expect_params(m, all); /* and nothing beside it */
    const tg_feed some[2] = {tg_feed_f32("l2.b", data + 3, 1), tg_feed_f32("l1.b", data + 5, 5)};
    ok(ctx, tg_params_upload(m, some, 2, true));
    all[25] = data[3];
    memcpy(all + 15, data + 5, 5 * sizeof(float));
    mlp_expect_params(m, all);
    expect_error(ctx, tg_param_grad_download(m, "l1.W", back, 15), TG_ERROR_STATE, "no step has run");
    tg_model_destroy(m);
}

static void siblings_share_the_device(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    tg_model *sibling = must(ctx, tg_compile_sibling(m, mlp_forward, NULL)), *other = must(ctx, tg_compile_sibling(m, mlp_forward, NULL));
    const tg_feed x = tg_feed_f32("x", mlp_x, 12);
    float before[4], after[4], again[4];
    ok(ctx, tg_run(sibling, &x, 1, before, 4));
    for (int i = 0; i < 3; i++) mlp_step(m);
    ok(ctx, tg_run(sibling, &x, 1, after, 4));
    ok(ctx, tg_run(other, &x, 1, again, 4));
    assert_memory_equal(after, again, sizeof after);
    assert_true(fabsf(before[0] - after[0]) > 1e-4f);
    tg_model_destroy(sibling); /* earlier than the parent */
    mlp_step(m);
    ok(ctx, tg_run(other, &x, 1, again, 4));
    assert_true(fabsf(again[0] - after[0]) > 1e-5f);
    tg_model_destroy(m); /* and `other` with it */
}

/* Saved on one device, loaded on the other: the same values, the same steps. */
static void checkpoints_move_between_devices(void **state) {
    fixture *f = *state;
    tg_context *ctx = need_library(state);
    for (int k = 0; k < 2; k++) {
        tg_model *from = mlp_model(ctx, k == 0 ? TG_DEVICE_WEBGPU : TG_DEVICE_CPU);
        tg_model *to = mlp_model(ctx, k == 0 ? TG_DEVICE_CPU : TG_DEVICE_WEBGPU);
        float params[MLP_COUNT];
        for (int i = 0; i < 4; i++) mlp_step(from);
        mlp_params(from, params);
        ok(ctx, tg_model_save(from, f->path));
        ok(ctx, tg_model_load(to, f->path));
        mlp_expect_params(to, params);
        assert_int_equal(tg_model_step_count(to), 4);
        for (int i = 0; i < 3; i++) {
            const float a = mlp_step(from), b = mlp_step(to);
            assert_close("loss", &a, &b, 1, 1e-4, 0);
        }
        ok(ctx, tg_model_load(from, f->path)); /* back to the file */
        mlp_expect_params(from, params);
        tg_model_destroy(from);
        tg_model_destroy(to);
    }
}

static void reset_reproduces_the_run(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    float initial[MLP_COUNT], curve[4], last[MLP_COUNT];
    mlp_params(m, initial);
    for (int i = 0; i < 4; i++) curve[i] = mlp_step(m);
    mlp_params(m, last);
    ok(ctx, tg_model_reset(m));
    mlp_expect_params(m, initial);
    assert_int_equal(tg_model_step_count(m), 0);
    for (int i = 0; i < 4; i++) {
        const float loss = mlp_step(m);
        assert_memory_equal(&loss, &curve[i], sizeof loss);
    }
    mlp_expect_params(m, last);
    ok(ctx, tg_model_reset_optimizer(m));
    mlp_expect_params(m, last);
    assert_int_equal(tg_model_step_count(m), 0);
    tg_model_destroy(m);
}

static void learning_rate_lives_on_the_device(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *gpu = mlp_model(ctx, TG_DEVICE_WEBGPU), *cpu = mlp_model(ctx, TG_DEVICE_CPU);
    float before[MLP_COUNT], a[MLP_COUNT], b[MLP_COUNT];
    mlp_step(gpu);
    mlp_step(cpu);
    ok(ctx, tg_model_set_lr(gpu, tg_lr_linear_decay(0.5, 0.0, 4)));
    ok(ctx, tg_model_set_lr(cpu, tg_lr_linear_decay(0.5, 0.0, 4)));
    for (int i = 0; i < 4; i++) {
        mlp_step(gpu);
        mlp_step(cpu);
    }
    mlp_params(gpu, a);
    mlp_params(cpu, b);
    assert_close("parameters", a, b, MLP_COUNT, 1e-2, 1e-3);
    ok(ctx, tg_model_set_lr(gpu, tg_lr_constant(0)));
    mlp_params(gpu, before);
    mlp_step(gpu);
    mlp_expect_params(gpu, before);
    tg_model_destroy(gpu);
    tg_model_destroy(cpu);
}

static void several_models_at_once(void **state) { /* on devices of their own, destroyed in any order */
    tg_context *ctx = need_library(state);
    tg_model *a = mlp_model(ctx, TG_DEVICE_WEBGPU), *b = mlp_model(ctx, TG_DEVICE_WEBGPU), *c = forward(ctx, mlp_forward);
    const tg_feed x = tg_feed_f32("x", mlp_x, 12);
    float out[4];
    for (int i = 0; i < 3; i++) {
        const float p = mlp_step(a), q = mlp_step(b);
        assert_memory_equal(&p, &q, sizeof p);
        ok(ctx, tg_run(c, &x, 1, out, 4));
    }
    tg_model_destroy(a);
    mlp_step(b);
    ok(ctx, tg_run(c, &x, 1, out, 4));
    tg_model_destroy(c);
    mlp_step(b);
    tg_model_destroy(b);
}

static void text_of_the_shaders(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    const char *text = tg_model_text(m, TG_TEXT_WGSL);
    assert_non_null(text);
    assert_non_null(strstr(text, "@compute"));
    assert_non_null(strstr(text, "fn main("));
    assert_non_null(tg_model_text(m, TG_TEXT_KERNELS));
    ok(ctx, tg_model_time_kernels(m, NULL, 0));
    assert_non_null(tg_model_text(m, TG_TEXT_PLAN));
    tg_model_destroy(m);
}

static bool offers_timestamps(tg_context *ctx) {
    tg_adapter_info adapters[8];
    int count = 0;
    ok(ctx, tg_adapters(ctx, adapters, 8, &count));
    return count > 0 && adapters[0].timestamps;
}

/* Each launch of a step has a row and a time; the step stays what it was; a device without the feature says so. */
static void launches_are_timed(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *timed = mlp_model(ctx, TG_DEVICE_WEBGPU), *plain = mlp_model(ctx, TG_DEVICE_WEBGPU);
    tg_kernel_time times[64];
    tg_model_info info;
    ok(ctx, tg_model_get_info(timed, &info));
    assert_true(info.kernels < 64);
    memset(times, 0, sizeof times);
    const tg_status status = tg_model_time_kernels(timed, times, 64);
    if (!offers_timestamps(ctx)) {
        expect_error(ctx, status, TG_ERROR_UNSUPPORTED, "timestamp-query");
        tg_model_destroy(plain);
        tg_model_destroy(timed);
        return;
    }
    ok(ctx, status);
    for (int i = 0; i < 40; i++) { /* more than the median is of */
        const float p = mlp_step(timed), q = mlp_step(plain);
        assert_memory_equal(&p, &q, sizeof p);
    }
    int rows = 0, kernels = 0;
    double flops = 0, ms = 0;
    for (; times[rows].name != NULL; rows++) {
        assert_true(strlen(times[rows].name) > 0 && times[rows].loops[0] != 0 && times[rows].workgroups > 0 && times[rows].bytes >= 4);
        kernels += times[rows].kernels;
        flops += times[rows].flops;
        ms += times[rows].milliseconds;
    }
    assert_int_equal(kernels, info.kernels);
    assert_true(rows > 0 && rows <= info.dispatches && ms > 0);
    assert_true(fabs(flops - info.contraction_flops) < 1);
    ok(ctx, tg_model_time_kernels(timed, NULL, 0));
    const tg_kernel_time before = times[0];
    mlp_step(timed);
    assert_memory_equal(&before, &times[0], sizeof before);
    ok(ctx, tg_model_time_kernels(timed, times, 1)); /* fewer than there are; the end of the model ends it */
    mlp_step(timed);
    tg_model_destroy(plain);
    tg_model_destroy(timed);
}

/* ---------------------------------------------------------------- an application's own device */

typedef struct own {
    tg_webgpu_api api;
    tg_wgpu_instance instance;
    tg_wgpu_adapter adapter;
    tg_wgpu_device device;
    bool answered, lost, failed;
} own;

static void own_on_adapter(uint32_t status, tg_wgpu_adapter adapter, tg_wgpu_string message, void *user, void *more) {
    own *o = user;
    (void)message;
    (void)more;
    o->answered = true;
    if (status == TG_WGPU_SUCCESS) o->adapter = adapter;
}

static void own_on_device(uint32_t status, tg_wgpu_device device, tg_wgpu_string message, void *user, void *more) {
    own *o = user;
    (void)message;
    (void)more;
    o->answered = true;
    if (status == TG_WGPU_SUCCESS) o->device = device;
}

static void own_on_lost(const tg_wgpu_device *device, uint32_t reason, tg_wgpu_string message, void *user, void *more) {
    (void)device;
    (void)reason;
    (void)message;
    (void)more;
    ((own *)user)->lost = true;
}

static void own_on_error(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string message, void *user, void *more) {
    (void)device;
    (void)error;
    (void)more;
    print_message("the application hears: %.*s\n", (int)(message.length == SIZE_MAX ? 0 : message.length), message.data);
    ((own *)user)->failed = true;
}

static void own_wait(own *o) {
    for (int i = 0; i < 1000000 && !o->answered; i++) o->api.instance_process_events(o->instance);
    assert_true(o->answered);
    o->answered = false;
}

/* As an application would: an instance, the first adapter, a device with nothing special, callbacks of its own. */
static void own_open(own *o, tg_context *ctx) {
    memset(o, 0, sizeof *o);
    ok(ctx, tg_webgpu_library(ctx, &o->api));
    o->instance = o->api.create_instance(NULL);
    assert_non_null(o->instance);
    const tg_wgpu_adapter_callback on_adapter = {NULL, TG_WGPU_MODE_PROCESS_EVENTS, own_on_adapter, o, NULL};
    o->api.instance_request_adapter(o->instance, NULL, on_adapter);
    own_wait(o);
    assert_non_null(o->adapter);
    const tg_wgpu_device_descriptor descriptor = {
        .label = {NULL, SIZE_MAX},
        .queue = {NULL, {NULL, SIZE_MAX}},
        .lost = {NULL, TG_WGPU_MODE_PROCESS_EVENTS, own_on_lost, o, NULL},
        .error = {NULL, own_on_error, o, NULL},
    };
    const tg_wgpu_device_callback on_device = {NULL, TG_WGPU_MODE_PROCESS_EVENTS, own_on_device, o, NULL};
    o->api.adapter_request_device(o->adapter, &descriptor, on_device);
    own_wait(o);
    assert_non_null(o->device);
}

/* The device makes and writes a buffer, and nobody complains. */
static void own_is_usable(own *o) {
    const uint32_t words[4] = {1, 2, 3, 4};
    const tg_wgpu_buffer_descriptor descriptor = {NULL, {NULL, SIZE_MAX}, TG_WGPU_USAGE_COPY_DESTINATION | TG_WGPU_USAGE_STORAGE, 16, 0};
    tg_wgpu_buffer buffer = o->api.device_create_buffer(o->device, &descriptor);
    tg_wgpu_queue queue = o->api.device_get_queue(o->device);
    assert_non_null(buffer);
    o->api.queue_write_buffer(queue, buffer, 0, words, sizeof words);
    o->api.queue_submit(queue, 0, NULL);
    for (int i = 0; i < 100; i++) o->api.instance_process_events(o->instance);
    o->api.buffer_release(buffer);
    o->api.queue_release(queue);
    assert_false(o->lost);
    assert_false(o->failed);
}

static void own_close(own *o) {
    o->api.device_release(o->device);
    o->api.adapter_release(o->adapter);
    o->api.instance_release(o->instance);
}

static void *own_library; /* for own_procedure: the callback has no user pointer */
static void *own_procedure(const char *name) { return dlsym(own_library, name); }

static tg_model *own_model(tg_context *ctx, const own *o, bool procedure, tg_device_kind device) {
    tg_compile_options options = adam_options(device);
    const tg_webgpu_device handles = {(void *)o->instance, (void *)o->device, procedure ? own_procedure : NULL};
    options.webgpu = &handles; /* read during the call */
    return must(ctx, tg_compile(ctx, mlp_loss, NULL, &options));
}

static void an_own_device_is_borrowed(void **state) {
    tg_context *ctx = need_library(state);
    own o;
    own_open(&o, ctx);
    own_library = dlopen(library_path(), RTLD_NOW);
    assert_non_null(own_library);
    tg_model *cpu = mlp_model(ctx, TG_DEVICE_CPU);
    for (int round = 0; round < 3; round++) {
        tg_model *m = own_model(ctx, &o, round < 2, round == 1 ? TG_DEVICE_AUTO : TG_DEVICE_WEBGPU);
        tg_model *sibling = must(ctx, tg_compile_sibling(m, mlp_forward, NULL));
        const tg_feed x = tg_feed_f32("x", mlp_x, 12);
        tg_model_info info;
        float out[4];
        ok(ctx, tg_model_reset(cpu));
        for (int i = 0; i < 4; i++) {
            const float a = mlp_step(m), b = mlp_step(cpu);
            assert_close("loss", &a, &b, 1, 1e-4, 0);
            own_is_usable(&o); /* between steps too */
        }
        ok(ctx, tg_run(sibling, &x, 1, out, 4));
        ok(ctx, tg_model_get_info(m, &info));
        assert_int_equal(strncmp(info.device, "webgpu", 6), 0);
        ok(ctx, tg_model_recover(m)); /* it is not lost */
        tg_model_destroy(m);
        own_is_usable(&o);
    }
    tg_model_destroy(cpu);
    own_close(&o);
    dlclose(own_library);
}

/* Everything that needs the device says so. Of an application's device there are no snapshots. */
static void expect_lost(tg_context *ctx, tg_model *m, bool own_device) {
    const tg_feed feeds[] = MLP_FEEDS;
    float loss = 42, params[MLP_COUNT] = {0};
    expect_error(ctx, tg_step(m, feeds, 2, &loss), TG_ERROR_DEVICE_LOST, "lost");
    expect_error(ctx, tg_run(m, feeds, 2, &loss, 1), TG_ERROR_DEVICE_LOST, "lost");
    expect_error(ctx, tg_param_download(m, "l1.W", params, 15), TG_ERROR_DEVICE_LOST, "lost");
    expect_error(ctx, tg_param_upload(m, "l1.W", params, 15), TG_ERROR_DEVICE_LOST, "lost");
    expect_error(ctx, tg_model_reset(m), TG_ERROR_DEVICE_LOST, "lost");
    if (own_device) ok(ctx, tg_model_snapshot(m));
    else expect_error(ctx, tg_model_snapshot(m), TG_ERROR_DEVICE_LOST, "lost");
    expect_no_model(ctx, tg_compile_sibling(m, mlp_forward, NULL), TG_ERROR_DEVICE_LOST, "lost");
    assert_true(loss == 42);
}

static void an_own_device_that_is_lost(void **state) {
    tg_context *ctx = need_library(state);
    own o;
    own_open(&o, ctx);
    tg_model *m = own_model(ctx, &o, false, TG_DEVICE_WEBGPU);
    mlp_step(m);
    o.api.device_destroy(o.device);
    expect_lost(ctx, m, true);
    expect_error(ctx, tg_model_recover(m), TG_ERROR_STATE, "own");
    tg_model_destroy(m);
    own_close(&o);
    m = mlp_model(ctx, TG_DEVICE_WEBGPU); /* another device is another matter */
    mlp_step(m);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- loss and recovery */

/* As a driver that is reset would. */
static void pull_the_plug(tg_model *m) {
    const webgpu_device *d = webgpu_of(m->family->device);
    d->host->api.device_destroy(d->gpu->device);
}

static void recovery_goes_on_from_the_snapshot(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU), *twin = mlp_model(ctx, TG_DEVICE_WEBGPU);
    tg_model *sibling = must(ctx, tg_compile_sibling(m, mlp_forward, NULL));
    const tg_feed x = tg_feed_f32("x", mlp_x, 12);
    float params[MLP_COUNT], want[4], got[4];
    ok(ctx, tg_model_recover(m)); /* not lost: nothing to do */
    for (int i = 0; i < 3; i++) {
        mlp_step(m);
        mlp_step(twin);
    }
    ok(ctx, tg_model_snapshot(m));
    ok(ctx, tg_model_snapshot(twin));
    mlp_params(m, params);
    ok(ctx, tg_run(sibling, &x, 1, want, 4));
    mlp_step(m);
    mlp_step(m);
    pull_the_plug(m);
    expect_lost(ctx, m, false);
    ok(ctx, tg_model_recover(sibling)); /* through either handle */
    assert_int_equal(tg_model_step_count(m), 3);
    mlp_expect_params(m, params);
    ok(ctx, tg_run(sibling, &x, 1, got, 4));
    assert_memory_equal(got, want, sizeof got);
    expect_lost(ctx, twin, false); /* it was on the same device, and the snapshot is that of its third step */
    ok(ctx, tg_model_recover(twin));
    assert_true(tg_webgpu_same_gpu(m->family->device, twin->family->device));
    assert_int_equal(tg_model_step_count(twin), 3);
    for (int i = 0; i < 3; i++) {
        const float a = mlp_step(m), b = mlp_step(twin); /* moments and counters too */
        assert_memory_equal(&a, &b, sizeof a);
    }
    pull_the_plug(m);
    expect_lost(ctx, m, false);
    ok(ctx, tg_model_recover(m)); /* a second time */
    mlp_expect_params(m, params);
    tg_model_destroy(m);
    tg_model_destroy(twin);
}

static void a_lost_model_can_be_destroyed(void **state) {
    tg_context *ctx = need_library(state);
    tg_model *m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    pull_the_plug(m);
    expect_lost(ctx, m, false);
    tg_model_destroy(m);
    m = mlp_model(ctx, TG_DEVICE_WEBGPU);
    pull_the_plug(m);
    tg_model_destroy(m);
}

static void snapshots_on_the_cpu(void **state) {
    fixture *f = *state;
    tg_model *m = mlp_model(f->ctx, TG_DEVICE_CPU);
    const int64_t calls = f->ctx->alloc_calls;
    mlp_step(m);
    ok(f->ctx, tg_model_snapshot(m));
    ok(f->ctx, tg_model_recover(m));
    mlp_step(m);
    assert_int_equal(f->ctx->alloc_calls, calls);
    assert_int_equal(tg_model_step_count(m), 2);
    tg_model_destroy(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(adapters_are_listed),
        TEST(adapter_is_chosen),
        TEST(automatic_choice_wants_a_real_gpu),
        TEST(a_library_that_is_not_there),
        TEST(a_library_of_something_else),
        TEST(a_device_and_the_cpu_is_a_mistake),
        TEST(training_follows_the_cpu),
        TEST(two_runs_are_bit_identical),
        TEST(steps_allocate_nothing),
        TEST(without_fusion),
        TEST(captures_of_a_step_and_a_run),
        TEST(captures_of_every_kind),
        TEST(loss_that_is_not_finite),
        TEST(wrong_feeds_change_nothing),
        TEST(indices_are_checked),
        TEST(bool_and_integer_feeds),
        TEST(outputs_of_every_dtype),
        TEST(states_of_every_dtype),
        TEST(parameters_up_and_down),
        TEST(siblings_share_the_device),
        TEST(checkpoints_move_between_devices),
        TEST(reset_reproduces_the_run),
        TEST(learning_rate_lives_on_the_device),
        TEST(several_models_at_once),
        TEST(text_of_the_shaders),
        TEST(launches_are_timed),
        TEST(an_own_device_is_borrowed),
        TEST(an_own_device_that_is_lost),
        TEST(recovery_goes_on_from_the_snapshot),
        TEST(a_lost_model_can_be_destroyed),
        TEST(snapshots_on_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
