/* A stranger's program: fits y = 2 x1 - 3 x2 + 1 with the public API only. Exit 0 when it learned that. */
#ifdef TG_CONSUMER_ONE_FILE
#  include "tensorgrad.h"
#else
#  include <tensorgrad/tensorgrad.h>
#endif

#include <math.h>
#include <stdio.h>

enum { ROWS = 32, STEPS = 400 };

static tg_tensor build(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(ROWS, 2), TG_F32);
    tg_tensor y = tg_input(g, "y", TG_SHAPE(ROWS, 1), TG_F32);
    x = tg_concat(((tg_tensor[]){tg_narrow(x, 1, 0, 1), tg_narrow(x, 1, 1, 1)}), 2, 1); /* in place, with and without parentheses */
    x = tg_stack((tg_tensor[]){x, x}, 2, 0);
    x = tg_mean(x, TG_AXES(0));
    tg_linear layer = tg_nn_linear(g, "layer", 2, 1);
    return tg_nn_mse(tg_nn_linear_fwd(layer, x), y);
}

int main(void) {
    float x[2 * ROWS], y[ROWS], w[2] = {0, 0}, b[1] = {0}, loss = 1;
    for (int i = 0; i < ROWS; i++) {
        x[2 * i] = (float)(i % 8) / 8.0F;
        x[2 * i + 1] = (float)(i / 8) / 4.0F;
        y[i] = 2.0F * x[2 * i] - 3.0F * x[2 * i + 1] + 1.0F;
    }
    tg_context *ctx = tg_context_create(NULL);
    tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_constant(0.05)), .seed = 7};
    tg_model *model = tg_compile(ctx, build, NULL, &options);
    const tg_feed feeds[] = {tg_feed_f32("x", x, 2 * ROWS), tg_feed_f32("y", y, ROWS)};
    tg_status status = model ? TG_OK : tg_error(ctx);
    for (int i = 0; i < STEPS && status == TG_OK; i++) status = tg_step(model, feeds, 2, &loss);
    if (status == TG_OK) status = tg_param_download(model, "layer.W", w, 2);
    if (status == TG_OK) status = tg_param_download(model, "layer.b", b, 1);
    if (status != TG_OK) printf("%s: %s\n", tg_status_name(status), tg_error_message(ctx));
    else printf("tensorgrad %s: loss %g, w %g %g, b %g\n", tg_version(), (double)loss, (double)w[0], (double)w[1], (double)b[0]);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    bool learned = status == TG_OK && loss < 1e-3F && fabsf(w[0] - 2) < 0.1F && fabsf(w[1] + 3) < 0.1F && fabsf(b[0] - 1) < 0.1F;
    return learned ? 0 : 1;
}
