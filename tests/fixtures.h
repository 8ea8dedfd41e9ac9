/* fixtures: what suites of whole models share. A context that counts what it allocates, with a file beside it; what is
 * expected of calls; models compiled for the device of the home; a small MLP and what it is fed. Must not know any single
 * test. */
#ifndef TENSORGRAD_TESTS_FIXTURES_H
#define TENSORGRAD_TESTS_FIXTURES_H

#include "support.h"

/* ---- a context and a file, for cmocka_unit_test_setup_teardown */
typedef struct fixture {
    support_allocator allocator;
    tg_context *ctx;
    char path[256]; /* nothing is there yet; teardown removes what a test writes */
    char log[1024]; /* the last message that the library logged */
} fixture;
int fixture_setup(void **state);
int fixture_teardown(void **state); /* fails when the context leaked */

/* ---- what is expected of calls */
void ok(tg_context *ctx, tg_status status);
tg_model *must(tg_context *ctx, tg_model *model); /* there is one */
/* The call returned and recorded `want`, its message contains `says`; the error is cleared. */
void expect_error(tg_context *ctx, tg_status got, tg_status want, const char *says);
void expect_no_model(tg_context *ctx, tg_model *model, tg_status want, const char *says);
void expect_floats(const char *what, const float *got, const float *want, int64_t count, double absolute);
/* A parameter of up to 64 elements. */
void expect_param(tg_model *model, const char *name, const float *want, int64_t count, double absolute);

/* ---- models on support_device(), with one thread and seed 1 */
tg_compile_options options_with(tg_optimizer optimizer);
tg_model *compile(tg_context *ctx, tg_build_fn build, void *user, tg_optimizer optimizer);

/* ---- an MLP: x [4, 3] -> l1 [3, 5], tanh "h" -> l2 [5, 1] "out"; mean squared distance to y [4, 1] */
tg_tensor mlp_loss(tg_graph *g, void *user);
tg_tensor mlp_forward(tg_graph *g, void *user);
extern const float mlp_x[12], mlp_y[4];
#define MLP_FEEDS \
  { tg_feed_f32("x", mlp_x, 12), tg_feed_f32("y", mlp_y, 4) }
#define MLP_COUNT (15 + 5 + 5 + 1)

tg_compile_options adam_options(tg_device_kind device);
tg_model *mlp_model(tg_context *ctx, tg_device_kind device); /* mlp_loss with adam_options */
float mlp_step(tg_model *m);                                 /* on MLP_FEEDS; the loss */
void mlp_params(tg_model *m, float out[MLP_COUNT]);
void mlp_expect_params(tg_model *m, const float want[MLP_COUNT]); /* bit for bit */

#endif
