// The header from C++: shapes, axes, operands of both kinds, options, a training run. Exit 0 when it learned.
#include <tensorgrad/tensorgrad.h>

#include <cstdio>
#include <vector>

static tg_tensor build(tg_graph *g, void *) {
    tg_tensor x = tg_input(g, "x", TG_SHAPE(16, 1), TG_F32);
    tg_tensor y = tg_input(g, "y", TG_SHAPE(16, 1), TG_F32);
    tg_tensor w = tg_param(g, "w", TG_SHAPE(1, 1), .init = tg_init_ones());
    tg_tensor b = tg_param(g, "b", TG_SHAPE(1), .init = tg_init_zeros());
    tg_tensor error = tg_square(tg_sub(tg_add(tg_matmul(x, w), b), y));
    tg_tensor scaled = tg_mul(1.0, tg_where(tg_greater(error, -1.0), error, 0.0));
    return tg_mean(tg_sum(scaled, TG_AXES(-1), .keepdims = true), TG_ALL);
}

int main() {
    std::vector<float> x(16), y(16);
    for (int i = 0; i < 16; i++) {
        x[i] = static_cast<float>(i) / 16.0F;
        y[i] = 3.0F * x[i] - 1.0F;
    }
    tg_context *ctx = tg_context_create(nullptr);
    tg_compile_options options = {};
    options.optimizer = tg_adam(.lr = tg_lr_constant(0.1));
    tg_model *model = tg_compile(ctx, build, nullptr, &options);
    float loss = 1;
    const tg_feed feeds[] = {tg_feed_f32("x", x.data(), 16), tg_feed_f32("y", y.data(), 16)};
    for (int i = 0; i < 300 && model; i++) {
        if (tg_step(model, feeds, 2, &loss) != TG_OK) break;
    }
    std::printf("loss %g %s\n", static_cast<double>(loss), tg_error_message(ctx));
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    return loss < 1e-4F ? 0 : 1;
}
