/* Layers and losses against their definitions, written out in f64: values of every option, kernel counts, states. Gradients:
 * test_gradients. Messages: test_messages. On WebGPU (see support_home) the same cases. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void test_##name(void **state)
#define MOST 4096

/* ---------------------------------------------------------------- values of leaves, and comparing */

static void fill_rounded(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)user;
    support_fill_default(NULL, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++) out[i] = (double)(float)out[i];
}

/* What the leaf `name` is filled with. Free it. */
static double *leaf(const char *name, int64_t count) {
    double *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    fill_rounded(NULL, name, TG_SHAPE(count), TG_F32, values, count);
    return values;
}

/* Fused and not, and with few arguments: each output named in `names` (NULL ends) is `want` of that name. */
typedef struct wanted {
    const char *name;
    const double *values;
    int64_t count;
} wanted;

static void check_outputs(const char *what, tg_build_fn build, void *user, const wanted *wants) {
    static const support_options ways[] = {{0}, {.max_arguments = 7}, {.no_fusion = true}};
    const int count = support_home_now() == SUPPORT_WEBGPU ? 1 : SUPPORT_COUNT(ways);
    const support_case c = {build, user, fill_rounded, NULL};
    for (int way = -1; way < count; way++) { /* -1: the reference */
        support_outputs got;
        if (!(way < 0 ? support_run_reference(&c, 1, &got) : support_run_home(&c, &ways[way], &got)))
            fail_msg("%s, way %d: %s: %s", what, way, tg_status_name(got.status), got.message);
        for (const wanted *w = wants; w->name != NULL; w++) {
            const support_value *v = support_outputs_find(&got, w->name);
            char label[128];
            snprintf(label, sizeof label, "%s, way %d: %s", what, way, w->name);
            assert_int_equal(v->count, w->count);
            assert_true(support_compare(label, v->data, w->values, w->count, (support_tolerance){0.0, 2e-5, 2e-5}));
        }
        support_outputs_free(&got);
    }
}

/* ---------------------------------------------------------------- recurrent layers */

typedef enum cell { RNN, RNN_RELU, GRU, LSTM } cell;
enum { B = 3, T = 4, IN = 5, H = 4 };

typedef struct cell_case {
    cell kind;
    bool no_bias, start;
} cell_case;

static tg_recurrent make_layer(tg_graph *g, const cell_case *c) {
    switch (c->kind) {
    case RNN: return tg_nn_rnn(g, "l", IN, H, .no_bias = c->no_bias);
    case RNN_RELU: return tg_nn_rnn(g, "l", IN, H, .no_bias = c->no_bias, .relu = true);
    case GRU: return tg_nn_gru(g, "l", IN, H, .no_bias = c->no_bias);
    default: return tg_nn_lstm(g, "l", IN, H, .no_bias = c->no_bias);
    }
}

/* The result: all hidden states; "c": all cell states; "stepped", "stepped c": the last of as many single steps. */
static tg_tensor build_cell(tg_graph *g, void *user) {
    const cell_case *c = user;
    const tg_tensor none = {NULL, 0}, x = tg_input(g, "x", TG_SHAPE(B, T, IN), TG_F32);
    const tg_recurrent l = make_layer(g, c);
    const tg_tensor h0 = c->start ? tg_input(g, "h0", TG_SHAPE(B, H), TG_F32) : none;
    const tg_tensor c0 = c->start && c->kind == LSTM ? tg_input(g, "c0", TG_SHAPE(B, H), TG_F32) : none;
    tg_lstm_states all = {none, none}, s = {h0, c0};
    if (!c->start) s = (tg_lstm_states){tg_zeros(g, TG_SHAPE(B, H)), tg_zeros(g, TG_SHAPE(B, H))};
    for (int t = 0; t < T; t++) {
        const tg_tensor row = tg_reshape(tg_narrow(x, 1, t, 1), TG_SHAPE(B, IN));
        if (c->kind == LSTM) s = tg_nn_lstm_step(l, row, s);
        else s.h = c->kind == GRU ? tg_nn_gru_step(l, row, s.h) : tg_nn_rnn_step(l, row, s.h);
    }
    tg_capture("stepped", s.h);
    if (c->kind == GRU) return tg_nn_gru_fwd(l, x, .h0 = h0);
    if (c->kind != LSTM) return tg_nn_rnn_fwd(l, x, .h0 = h0);
    all = tg_nn_lstm_fwd(l, x, .h0 = h0, .c0 = c0);
    tg_capture("stepped c", s.c);
    tg_capture("c", all.c);
    return all.h;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/* Gate `gate` of one row: sums over x, and apart over h. */
static void gate_sums(const double *x, const double *h, const double *Wx, const double *Wh, const double *bx, const double *bh,
                      int64_t wide, int64_t at, double *from_x, double *from_h) {
    *from_x = bx[at];
    *from_h = bh[at];
    for (int i = 0; i < IN; i++) *from_x += x[i] * Wx[i * wide + at];
    for (int i = 0; i < H; i++) *from_h += h[i] * Wh[i * wide + at];
}

static void direct_cell(const cell_case *c, double *hs, double *cs) {
    const int gates = c->kind == GRU ? 3 : c->kind == LSTM ? 4 : 1, wide = gates * H;
    double *x = leaf("x", B * T * IN), *Wx = leaf("l.Wx", IN * wide), *Wh = leaf("l.Wh", H * wide), *bx = leaf("l.bx", wide),
           *bh = leaf("l.bh", wide), *h0 = leaf("h0", B * H), *c0 = leaf("c0", B * H);
    for (int i = 0; i < wide && c->no_bias; i++) bx[i] = bh[i] = 0;
    for (int i = 0; i < B * H && !c->start; i++) h0[i] = c0[i] = 0;
    for (int b = 0; b < B; b++) {
        double h[H], s[H], next[H];
        memcpy(h, h0 + b * H, sizeof h);
        memcpy(s, c0 + b * H, sizeof s);
        for (int t = 0; t < T; t++) {
            for (int j = 0; j < H; j++) {
                double gx[4] = {0}, gh[4] = {0};
                for (int k = 0; k < gates; k++) gate_sums(x + (b * T + t) * IN, h, Wx, Wh, bx, bh, wide, k * H + j, &gx[k], &gh[k]);
                if (c->kind == RNN) next[j] = tanh(gx[0] + gh[0]);
                if (c->kind == RNN_RELU) next[j] = fmax(gx[0] + gh[0], 0.0);
                if (c->kind == GRU) {
                    const double r = sigmoid(gx[0] + gh[0]), z = sigmoid(gx[1] + gh[1]), n = tanh(gx[2] + r * gh[2]);
                    next[j] = (1 - z) * n + z * h[j];
                }
                if (c->kind == LSTM) {
                    s[j] = sigmoid(gx[1] + gh[1]) * s[j] + sigmoid(gx[0] + gh[0]) * tanh(gx[2] + gh[2]);
                    next[j] = sigmoid(gx[3] + gh[3]) * tanh(s[j]);
                }
            }
            memcpy(h, next, sizeof h);
            memcpy(hs + (b * T + t) * H, h, sizeof h);
            memcpy(cs + (b * T + t) * H, s, sizeof s);
        }
    }
    free(x), free(Wx), free(Wh), free(bx), free(bh), free(h0), free(c0);
}

TEST(cells) {
    (void)state;
    static const char *const names[] = {"rnn", "rnn, relu", "gru", "lstm"};
    for (int i = 0; i < 8; i++) {
        cell_case c = {(cell)(i / 2), i % 2 == 1, i % 2 == 0};
        double hs[B * T * H], cs[B * T * H], last_h[B * H], last_c[B * H];
        direct_cell(&c, hs, cs);
        for (int b = 0; b < B; b++) {
            memcpy(last_h + b * H, hs + (b * T + T - 1) * H, H * sizeof *hs);
            memcpy(last_c + b * H, cs + (b * T + T - 1) * H, H * sizeof *cs);
        }
        const wanted wants[] = {{"result", hs, B * T * H},
                                {"stepped", last_h, B * H},
                                {c.kind == LSTM ? "c" : NULL, cs, B * T * H},
                                {"stepped c", last_c, B * H},
                                {NULL, NULL, 0}};
        check_outputs(names[c.kind], build_cell, &c, wants);
    }
}

/* ---- kernels: a step of a cell is one contraction and one elementwise kernel (one in all for the plain cell); back three more */

typedef struct unrolled {
    cell kind;
    int64_t steps;
    bool training;
} unrolled;

static tg_tensor build_unrolled(tg_graph *g, void *user) {
    const unrolled *u = user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(8, u->steps, 16), TG_F32);
    tg_tensor h;
    if (u->kind == RNN) h = tg_nn_rnn_fwd(tg_nn_rnn(g, "l", 16, 32), x);
    else if (u->kind == GRU) h = tg_nn_gru_fwd(tg_nn_gru(g, "l", 16, 32), x);
    else h = tg_nn_lstm_fwd(tg_nn_lstm(g, "l", 16, 32), x).h;
    return u->training ? tg_mean(tg_square(h), TG_ALL) : h;
}

static int kernels_of(unrolled u) {
    tg_context *ctx = support_context();
    const tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_constant(1e-3)), .device = TG_DEVICE_CPU};
    tg_model *model = u.training ? tg_compile(ctx, build_unrolled, &u, &options) : tg_compile_forward(ctx, build_unrolled, &u, &options);
    support_assert_no_error(ctx);
    tg_model_info info;
    assert_int_equal(tg_model_get_info(model, &info), TG_OK);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    return info.kernels;
}

TEST(kernels_of_a_step) {
    (void)state;
    static const struct {
        cell kind;
        int forward, training;
    } wants[] = {{RNN, 1, 3}, {GRU, 2, 5}, {LSTM, 2, 5}};
    for (int i = 0; i < SUPPORT_COUNT(wants); i++)
        for (int training = 0; training < 2; training++) {
            const int few = kernels_of((unrolled){wants[i].kind, 15, training == 1}),
                      many = kernels_of((unrolled){wants[i].kind, 16, training == 1});
            const int want = training ? wants[i].training : wants[i].forward;
            if (many - few != want || few > 15 * want + 12) fail_msg("cell %d, training %d: %d, %d kernels", i, training, few, many);
        }
}

/* ---------------------------------------------------------------- */

int main(void) {
    const int refused = support_home_refuses("test_nn");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_kernels_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
