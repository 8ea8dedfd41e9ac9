/* fixtures: see fixtures.h. */
#include "fixtures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- a context and a file */

static void fixture_log(void *user, tg_log_level level, const char *message) {
    fixture *f = user;
    (void)level;
    snprintf(f->log, sizeof f->log, "%s", message);
}

int fixture_setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    const tg_allocator allocator = support_allocator_interface(&f->allocator);
    const tg_context_options options = {&allocator, fixture_log, f};
    f->ctx = tg_context_create(&options);
    support_path(f->path, sizeof f->path, "fixture.safetensors");
    *state = f;
    return f->ctx != NULL ? 0 : -1;
}

int fixture_teardown(void **state) {
    fixture *f = *state;
    remove(f->path);
    tg_context_destroy(f->ctx);
    const bool leaked = support_leaked(&f->allocator);
    free(f);
    return leaked;
}

/* ---------------------------------------------------------------- what is expected of calls */

void ok(tg_context *ctx, tg_status status) {
    if (status != TG_OK) fail_msg("%s: %s", tg_status_name(status), tg_error_message(ctx));
}

tg_model *must(tg_context *ctx, tg_model *model) {
    if (model == NULL) fail_msg("no model: %s: %s", tg_status_name(tg_error(ctx)), tg_error_message(ctx));
    return model;
}

void expect_error(tg_context *ctx, tg_status got, tg_status want, const char *says) {
    if (got != want || tg_error(ctx) != want || strstr(tg_error_message(ctx), says) == NULL)
        fail_msg("returned '%s', recorded '%s: %s'; wanted '%s' with '%s'", tg_status_name(got), tg_status_name(tg_error(ctx)),
                 tg_error_message(ctx), tg_status_name(want), says);
    tg_clear_error(ctx);
}

void expect_no_model(tg_context *ctx, tg_model *model, tg_status want, const char *says) {
    if (model != NULL) fail_msg("accepted; wanted '%s' with '%s'", tg_status_name(want), says);
    expect_error(ctx, tg_error(ctx), want, says);
}

void expect_floats(const char *what, const float *got, const float *want, int64_t count, double absolute) {
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= absolute))
            fail_msg("%s[%d]: got %.9g, want %.9g", what, (int)i, (double)got[i], (double)want[i]);
}

void expect_param(tg_model *model, const char *name, const float *want, int64_t count, double absolute) {
    float got[64];
    ok(tg_model_context(model), tg_param_download(model, name, got, count));
    expect_floats(name, got, want, count, absolute);
}

/* ---------------------------------------------------------------- models */

tg_compile_options options_with(tg_optimizer optimizer) {
    return (tg_compile_options){.optimizer = optimizer, .seed = 1, .device = support_device(), .threads = 1};
}

tg_model *compile(tg_context *ctx, tg_build_fn build, void *user, tg_optimizer optimizer) {
    const tg_compile_options o = options_with(optimizer);
    return must(ctx, tg_compile(ctx, build, user, &o));
}

/* ---------------------------------------------------------------- the MLP */

tg_tensor mlp_forward(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32);
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    tg_tensor h = tg_capture("h", tg_tanh(tg_nn_linear_fwd(l1, x)));
    return tg_capture("out", tg_nn_linear_fwd(l2, h));
}

tg_tensor mlp_loss(tg_graph *g, void *user) {
    tg_tensor out = mlp_forward(g, user);
    return tg_nn_mse(out, tg_input(g, "y", TG_SHAPE(4, 1), TG_F32));
}

const float mlp_x[12] = {0.5f, -1, 2, 0.25f, 1, -0.5f, -2, 1.5f, 0, 1, 1, 1};
const float mlp_y[4] = {1, -1, 0.5f, 2};

tg_compile_options adam_options(tg_device_kind device) {
    return (tg_compile_options){
        .optimizer = tg_adam(.lr = tg_lr_constant(0.05), .weight_decay = 0.01), .seed = 7, .device = device, .threads = 1};
}

tg_model *mlp_model(tg_context *ctx, tg_device_kind device) {
    const tg_compile_options o = adam_options(device);
    return must(ctx, tg_compile(ctx, mlp_loss, NULL, &o));
}

float mlp_step(tg_model *m) {
    const tg_feed feeds[] = MLP_FEEDS;
    float loss = -1;
    ok(tg_model_context(m), tg_step(m, feeds, 2, &loss));
    return loss;
}

void mlp_params(tg_model *m, float out[MLP_COUNT]) {
    tg_context *ctx = tg_model_context(m);
    ok(ctx, tg_param_download(m, "l1.W", out, 15));
    ok(ctx, tg_param_download(m, "l1.b", out + 15, 5));
    ok(ctx, tg_param_download(m, "l2.W", out + 20, 5));
    ok(ctx, tg_param_download(m, "l2.b", out + 25, 1));
}

void mlp_expect_params(tg_model *m, const float want[MLP_COUNT]) {
    float have[MLP_COUNT];
    mlp_params(m, have);
    assert_memory_equal(have, want, sizeof have);
}
