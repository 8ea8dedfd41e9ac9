/* The networks of curve_models.h. scripts/make_curves.py writes the same ones in PyTorch. */
#include "curve_models.h"

#include "data.h"

#include <math.h>
#include <string.h>

/* Number i of batch t, uniform in [0, 1), in steps of 2^-24. */
static double uniform(uint64_t seed, int64_t t, int i) {
    return (double)(tg_example_random(seed, (uint64_t)t, (uint64_t)i) >> 40) / 16777216.0;
}

/* ---------------------------------------------------------------- conv-bars: is the bar flat, upright or slanted? */

enum { BARS = 16, SIDE = 12, KINDS = 3 };

static tg_tensor bars_loss(tg_graph *g, void *user) {
    (void)user;
    tg_tensor image = tg_input(g, "image", TG_SHAPE(BARS, 1, SIDE, SIDE), TG_F32);
    tg_tensor kind = tg_input(g, "kind", TG_SHAPE(BARS), TG_I32);
    tg_conv first = tg_nn_conv2d(g, "conv1", 1, 6, 3, 3, .padding = tg_padding_same());
    tg_conv second = tg_nn_conv2d(g, "conv2", 6, 8, 3, 3, .stride = {2, 2}, .padding = tg_padding_all(1));
    tg_linear output = tg_nn_linear(g, "output", 8 * 3 * 3, KINDS);
    tg_tensor h = tg_max_pool2d(tg_relu(tg_nn_conv2d_fwd(first, image)), 2, 2);
    h = tg_relu(tg_nn_conv2d_fwd(second, h));
    return tg_nn_cross_entropy(tg_nn_linear_fwd(output, tg_reshape(h, TG_SHAPE(BARS, 8 * 3 * 3))), kind, -1);
}

static tg_optimizer bars_optimizer(void) { return tg_adam(.lr = tg_lr_constant(0.01)); }

/* A line through the middle or beside it, on noise. */
static void bars_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *image = arrays[0];
    int32_t *kind = arrays[1];
    for (int row = 0; row < (int)rows; row++) {
        const int base = row * (SIDE * SIDE + 2);
        const int at = 2 + (int)(uniform(seed, t, base) * (double)(SIDE - 4));
        kind[row] = (int32_t)(uniform(seed, t, base + 1) * (double)KINDS);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                const bool lit = kind[row] == 0 ? y == at : kind[row] == 1 ? x == at : x == y + at - SIDE / 2;
                image[(row * SIDE + y) * SIDE + x] = (float)(0.5 * uniform(seed, t, base + 2 + y * SIDE + x) + (lit ? 0.5 : 0.0));
            }
    }
}

/* ---------------------------------------------------------------- dropout-sin: a noisy fit of sin x */

enum { POINTS = 64, WIDTH = 32 };

static tg_tensor dropout_loss(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(POINTS, 1), TG_F32), y = tg_input(g, "y", TG_SHAPE(POINTS, 1), TG_F32);
    tg_linear first = tg_nn_linear(g, "l1", 1, WIDTH), second = tg_nn_linear(g, "l2", WIDTH, WIDTH),
              third = tg_nn_linear(g, "l3", WIDTH, 1);
    tg_tensor h = tg_dropout(tg_relu(tg_nn_linear_fwd(first, x)), 0.1);
    h = tg_dropout(tg_tanh(tg_nn_linear_fwd(second, h)), 0.3);
    return tg_nn_mse(tg_nn_linear_fwd(third, h), y);
}

static tg_optimizer dropout_optimizer(void) { return tg_adam(.lr = tg_lr_constant(0.003)); }

static void dropout_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *x = arrays[0], *y = arrays[1];
    for (int i = 0; i < (int)rows; i++) {
        x[i] = (float)((2 * uniform(seed, t, i) - 1) * 3.0);
        y[i] = (float)sin((double)x[i]);
    }
}

/* ---------------------------------------------------------------- recurrent-echo: says what it heard two steps ago */

enum { VOICES = 16, T = 8, HEARD = 3, SAID = 2, GRU = 12, LSTM = 10 };

static tg_tensor echo_loss(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(VOICES, T, HEARD), TG_F32), y = tg_input(g, "y", TG_SHAPE(VOICES, T, SAID), TG_F32);
    tg_recurrent gru = tg_nn_gru(g, "gru", HEARD, GRU), lstm = tg_nn_lstm(g, "lstm", GRU, LSTM);
    tg_linear output = tg_nn_linear(g, "output", LSTM, SAID);
    tg_tensor h = tg_nn_lstm_fwd(lstm, tg_nn_gru_fwd(gru, x)).h;
    return tg_nn_mse(tg_nn_linear_fwd(output, h), y);
}

static tg_optimizer echo_optimizer(void) { return tg_adam(.lr = tg_lr_constant(0.01)); }

static void echo_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *x = arrays[0], *y = arrays[1];
    for (int i = 0; i < (int)rows * T * HEARD; i++) x[i] = (float)(2 * uniform(seed, t, i) - 1);
    for (int row = 0; row < (int)rows; row++)
        for (int step = 0; step < T; step++)
            for (int j = 0; j < SAID; j++) y[(row * T + step) * SAID + j] = step < 2 ? 0.0F : x[(row * T + step - 2) * HEARD + j];
}

/* ---------------------------------------------------------------- the table */

static const tg_example table[] = {
    {
        .name = "conv-bars",
        .build = bars_loss,
        .optimizer = bars_optimizer,
        .batch = BARS,
        .input_count = 2,
        .inputs = {{"image", TG_F32, {4, {BARS, 1, SIDE, SIDE}}}, {"kind", TG_I32, {1, {BARS}}}},
        .fill_batch = bars_batch,
    },
    {
        .name = "dropout-sin",
        .build = dropout_loss,
        .optimizer = dropout_optimizer,
        .batch = POINTS,
        .input_count = 2,
        .inputs = {{"x", TG_F32, {2, {POINTS, 1}}}, {"y", TG_F32, {2, {POINTS, 1}}}},
        .fill_batch = dropout_batch,
    },
    {
        .name = "recurrent-echo",
        .build = echo_loss,
        .optimizer = echo_optimizer,
        .batch = VOICES,
        .input_count = 2,
        .inputs = {{"x", TG_F32, {3, {VOICES, T, HEARD}}}, {"y", TG_F32, {3, {VOICES, T, SAID}}}},
        .fill_batch = echo_batch,
    },
};

const tg_example *curve_model_find(const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}
