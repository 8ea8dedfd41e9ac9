/* mlp-sin: a network with two hidden layers learns y = sin x on [-pi, pi].
 *
 *   x [256, 1] -> Linear 64, ReLU -> Linear 64, ReLU -> Linear 1
 *   -> mean squared error against sin x
 *
 * A complete training program: a build function that makes parameters and inputs and returns the
 * loss, a source of batches, and (at the end) a main that trains. The build function runs once,
 * while compiling. */
#include "data.h"
#include "examples.h"

#include <math.h>

enum { BATCH = 256, HIDDEN = 64, FIT_POINTS = 256 };
static const double PI = 3.14159265358979323846;

/* ---------------------------------------------------------------- the model */

/* x [rows, 1] -> prediction [rows, 1]. Parameters l1.W, l1.b, l2.W, ... */
static tg_tensor network(tg_graph *g, tg_tensor x) {
    tg_linear l1 = tg_nn_linear(g, "l1", 1, HIDDEN);
    tg_linear l2 = tg_nn_linear(g, "l2", HIDDEN, HIDDEN);
    tg_linear l3 = tg_nn_linear(g, "l3", HIDDEN, 1);
    tg_tensor h = tg_relu(tg_nn_linear_fwd(l1, x));
    h = tg_relu(tg_nn_linear_fwd(l2, h));
    return tg_nn_linear_fwd(l3, h);
}

tg_tensor mlp_sin_loss(tg_graph *g, void *user) {
    const int64_t rows = user != NULL ? *(const int64_t *)user : BATCH;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(rows, 1), TG_F32);
    tg_tensor y = tg_input(g, "y", TG_SHAPE(rows, 1), TG_F32);
    return tg_nn_mse(network(g, x), y);
}

/* The same parameters (found by name), no loss: what the trained network says. */
tg_tensor mlp_sin_forward(tg_graph *g, void *user) {
    (void)user;
    return network(g, tg_input(g, "x", TG_SHAPE(FIT_POINTS, 1), TG_F32));
}

tg_optimizer mlp_sin_optimizer(void) { return tg_adam(.lr = tg_lr_constant(0.005)); }

/* ---------------------------------------------------------------- the data */

void mlp_sin_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *x = arrays[0], *y = arrays[1];
    for (int64_t i = 0; i < rows; i++) {
        /* 24 bits, in [0, 1) */
        double share = (double)(tg_example_random(seed, (uint64_t)t, (uint64_t)i) >> 40) / 16777216.0;
        x[i] = (float)((2 * share - 1) * PI);
        y[i] = (float)sin((double)x[i]);
    }
}

/* ---------------------------------------------------------------- how well it fits */

tg_status mlp_sin_fit(tg_model *forward, float *x, float *truth, float *predicted) {
    for (int i = 0; i < FIT_POINTS; i++) {
        x[i] = (float)(PI * (2.0 * i / (FIT_POINTS - 1) - 1));
        truth[i] = (float)sin((double)x[i]);
    }
    tg_feed feed = tg_feed_f32("x", x, FIT_POINTS);
    return tg_run(forward, &feed, 1, predicted, FIT_POINTS);
}

tg_status mlp_sin_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score) {
    float x[FIT_POINTS], truth[FIT_POINTS], predicted[FIT_POINTS];
    (void)seed;
    tg_status status = mlp_sin_fit(forward, x, truth, predicted);
    if (status != TG_OK) return status;
    double worst = 0;
    for (int i = 0; i < FIT_POINTS; i++) {
        double error = fabs((double)predicted[i] - (double)truth[i]);
        if (error > worst || isnan(error)) worst = error;
    }
    if (out != NULL) fprintf(out, "largest error on [-pi, pi]: %.4f\n", worst);
    *score = worst;
    return TG_OK;
}

/* ---------------------------------------------------------------- as a program of its own */

#ifdef TG_EXAMPLE_MAIN
static int fail(const tg_context *ctx) {
    tg_site site = tg_error_site(ctx);
    fprintf(stderr, "%s:%d: %s\n", site.file, site.line, tg_error_message(ctx));
    return 1;
}

int main(void) {
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    tg_compile_options options = {.optimizer = mlp_sin_optimizer(), .seed = 1};
    tg_model *model = tg_compile(ctx, mlp_sin_loss, NULL, &options);
    tg_model *forward = model != NULL ? tg_compile_sibling(model, mlp_sin_forward, NULL) : NULL;
    if (forward == NULL) return fail(ctx);

    float x[BATCH], y[BATCH], loss = 0;
    void *arrays[] = {x, y};
    tg_feed feeds[] = {tg_feed_f32("x", x, BATCH), tg_feed_f32("y", y, BATCH)};
    for (int t = 1; t <= 1000; t++) {
        mlp_sin_batch(options.seed, t, BATCH, arrays);
        if (tg_step(model, feeds, 2, &loss) != TG_OK) return fail(ctx);
        if (t % 100 == 0) printf("step %4d  loss %.6f\n", t, (double)loss);
    }

    double worst = 0;
    if (mlp_sin_evaluate(forward, options.seed, stdout, &worst) != TG_OK) return fail(ctx);
    tg_model_destroy(model); /* and its sibling */
    tg_context_destroy(ctx);
    return 0;
}
#endif
