/* Layers and losses against their definitions, written out in f64: values of every option, kernel counts, states. Gradients:
 * test_gradients. Messages: test_messages. On WebGPU (see support_home) the same cases. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void test_##name(void **state)
#define MOST 4096

/* ---------------------------------------------------------------- values of leaves, and comparing */

/* f32: rounded; "p...": from 0 on, the first is 0. i32: classes 0 .. 4, those of "t" with IGNORED among them, or nothing else where *user
 * says so. */
#define IGNORED (-7)
static void fill_rounded(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const bool *all_ignored = user;
    support_fill_default(NULL, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++) {
        if (name[0] == 'p') out[i] = i == 0 ? 0.0 : fabs(out[i]);
        if (dtype == TG_I32) out[i] = i % 3 == 2 || (all_ignored != NULL && *all_ignored) ? IGNORED : fmod(fabs(out[i]), 5.0);
        out[i] = (double)(float)out[i];
    }
}

/* What the leaf `name` is filled with. Free it. */
static double *leaf_of(const char *name, tg_dtype dtype, int64_t count) {
    double *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    fill_rounded(NULL, name, TG_SHAPE(count), dtype, values, count);
    return values;
}
static double *leaf(const char *name, int64_t count) { return leaf_of(name, TG_F32, count); }

/* Fused and not, and with few arguments: each output named in `names` (NULL ends) is `want` of that name. */
typedef struct wanted {
    const char *name;
    const double *values;
    int64_t count;
} wanted;

static void check_filled(const char *what, tg_build_fn build, void *user, void *fill_user, const wanted *wants) {
    static const support_options ways[] = {{0}, {.max_arguments = 7}, {.no_fusion = true}};
    const int count = support_home_now() == SUPPORT_WEBGPU ? 1 : SUPPORT_COUNT(ways);
    const support_case c = {build, user, fill_rounded, fill_user};
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

static void check_outputs(const char *what, tg_build_fn build, void *user, const wanted *wants) {
    check_filled(what, build, user, NULL, wants);
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

/* ---- kernels: a step of a cell is one contraction and one elementwise kernel (one in all for the plain cell); back one more */

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
    } wants[] = {{RNN, 1, 2}, {GRU, 2, 3}, {LSTM, 2, 3}};
    for (int i = 0; i < SUPPORT_COUNT(wants); i++)
        for (int training = 0; training < 2; training++) {
            const int few = kernels_of((unrolled){wants[i].kind, 15, training == 1}),
                      many = kernels_of((unrolled){wants[i].kind, 16, training == 1});
            const int want = training ? wants[i].training : wants[i].forward;
            if (many - few != want || few > 15 * want + 12) fail_msg("cell %d, training %d: %d, %d kernels", i, training, few, many);
        }
}

/* ---------------------------------------------------------------- norms */

/* 2 axes: [N, C]; 3: [N, C, L]; 4: [N, C, H, W] */
typedef struct norm_case {
    int rank;
    bool training;
} norm_case;
enum { N_ = 3, C_ = 4, L_ = 5 };

static tg_shape norm_shape(int rank) { return rank == 2 ? TG_SHAPE(N_, C_) : rank == 3 ? TG_SHAPE(N_, C_, L_) : TG_SHAPE(N_, C_, 1, L_); }

static tg_tensor build_norms(tg_graph *g, void *user) {
    const norm_case *c = user;
    const tg_tensor x = tg_input(g, "x", norm_shape(c->rank), TG_F32);
    const int64_t last = norm_shape(c->rank).dim[c->rank - 1];
    tg_capture("rms", tg_nn_rms_norm_fwd(tg_nn_rms_norm(g, "r", last, .eps = 0.5), x));
    tg_capture("group", tg_nn_group_norm_fwd(tg_nn_group_norm(g, "gn", 2, C_), x));
    return tg_nn_batch_norm_fwd(tg_nn_batch_norm(g, "pbn", C_, .momentum = 0.25, .eps = 0.125), x, c->training);
}

/* Mean and biased variance of those `x` whose place is in class `of` of *classes. */
static void moments(const double *x, const int *classes, int n, int of, double *mean, double *variance, int *count) {
    *mean = *variance = 0;
    *count = 0;
    for (int i = 0; i < n; i++)
        if (classes[i] == of) *mean += x[i], (*count)++;
    *mean /= *count;
    for (int i = 0; i < n; i++)
        if (classes[i] == of) *variance += (x[i] - *mean) * (x[i] - *mean) / *count;
}

static void check_norms(norm_case c) {
    enum { MOST_ELEMENTS = N_ * C_ * L_ };
    const int behind = c.rank == 2 ? 1 : L_, n = N_ * C_ * behind, last = c.rank == 2 ? C_ : L_;
    double *x = leaf("x", n), *r = leaf("r.g", last), *gg = leaf("gn.g", C_), *gb = leaf("gn.b", C_), *bg = leaf("pbn.g", C_),
           *bb = leaf("pbn.b", C_), *mean = leaf("pbn.mean", C_), *var = leaf("pbn.var", C_);
    double rms[MOST_ELEMENTS], group[MOST_ELEMENTS], batch[MOST_ELEMENTS], after_mean[C_], after_var[C_], m, v;
    int rows[MOST_ELEMENTS], groups[MOST_ELEMENTS], channels[MOST_ELEMENTS], count;
    for (int i = 0; i < n; i++) {
        rows[i] = i / last;
        channels[i] = i / behind % C_;
        groups[i] = i / behind / 2;
    }
    for (int i = 0; i < n; i++) {
        const int channel = channels[i];
        moments(x, rows, n, rows[i], &m, &v, &count);
        rms[i] = x[i] / sqrt(v + m * m + 0.5) * r[i % last];
        moments(x, groups, n, groups[i], &m, &v, &count);
        group[i] = (x[i] - m) / sqrt(v + 1e-5) * gg[channel] + gb[channel];
        moments(x, channels, n, channel, &m, &v, &count);
        after_mean[channel] = 0.75 * mean[channel] + 0.25 * m;
        after_var[channel] = 0.75 * var[channel] + 0.25 * v * count / (count - 1);
        if (!c.training) m = mean[channel], v = var[channel];
        batch[i] = (x[i] - m) / sqrt(v + 0.125) * bg[channel] + bb[channel];
    }
    const wanted wants[] = {{"result", batch, n},
                            {"rms", rms, n},
                            {"group", group, n},
                            {c.training ? "after pbn.mean" : NULL, after_mean, C_},
                            {"after pbn.var", after_var, C_},
                            {NULL, NULL, 0}};
    check_outputs("norms", build_norms, &c, wants);
    free(x), free(r), free(gg), free(gb), free(bg), free(bb), free(mean), free(var);
}

TEST(norms) {
    (void)state;
    for (int rank = 2; rank <= 4; rank++)
        for (int training = 0; training < 2; training++) check_norms((norm_case){rank, training == 1});
}

/* ---- a batch norm in a model: the running statistics belong to the steps */

static const float norm_x[8] = {1, -2, 0.5f, 4, -1, 0, 2.5f, 3};
#define NORM_FEED tg_feed_f32("x", norm_x, 8)

static tg_tensor normed(tg_graph *g, bool training) {
    tg_scope_push(g, "body");
    const tg_batch_norm l = tg_nn_batch_norm(g, "bn", 2);
    tg_scope_pop(g);
    return tg_nn_batch_norm_fwd(l, tg_input(g, "x", TG_SHAPE(4, 2), TG_F32), training);
}
static tg_tensor build_normed_loss(tg_graph *g, void *user) {
    (void)user;
    return tg_mean(tg_square(tg_sub(normed(g, true), 1.0)), TG_ALL);
}
static tg_tensor build_normed(tg_graph *g, void *user) {
    (void)user;
    return normed(g, false);
}

static void ok(tg_model *model, tg_status status) {
    if (status != TG_OK) fail_msg("status %d: %s", (int)status, tg_error_message(tg_model_context(model)));
}

/* What the sibling makes of the states after `steps` steps of a model whose gain and bias are still ones and zeros. */
static void check_running(tg_model *sibling, int steps) {
    float y[8];
    double want[8];
    const tg_feed feed = NORM_FEED;
    ok(sibling, tg_run(sibling, &feed, 1, y, 8));
    for (int channel = 0; channel < 2; channel++) {
        double m = 0, v = 0, mean = 0, var = 1;
        for (int i = 0; i < 4; i++) m += (double)norm_x[2 * i + channel] / 4;
        for (int i = 0; i < 4; i++) v += pow((double)norm_x[2 * i + channel] - m, 2) / 3;
        for (int i = 0; i < steps; i++) mean = 0.9 * mean + 0.1 * m, var = 0.9 * var + 0.1 * v;
        for (int i = 0; i < 4; i++) want[2 * i + channel] = ((double)norm_x[2 * i + channel] - mean) / sqrt(var + 1e-5);
    }
    support_assert_floats("running", y, want, 8, 1e-5, 1e-6);
}

TEST(running_statistics) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options options = {.device = support_device()}; /* no optimizer: parameters stay */
    tg_model *model = tg_compile(ctx, build_normed_loss, NULL, &options);
    support_assert_no_error(ctx);
    tg_model *sibling = tg_compile_sibling(model, build_normed, NULL);
    support_assert_no_error(ctx);
    const tg_feed feed = NORM_FEED;
    float loss, again;
    check_running(sibling, 0);
    ok(model, tg_step(model, &feed, 1, &loss));
    ok(model, tg_run(model, &feed, 1, &again, 1)); /* batch statistics, and no writeback */
    assert_true(loss == again);
    check_running(sibling, 1);
    for (int i = 0; i < 2; i++) ok(model, tg_step(model, &feed, 1, NULL));
    check_running(sibling, 3);
    ok(model, tg_model_reset_optimizer(model));
    check_running(sibling, 3);
    ok(model, tg_model_reset(model));
    check_running(sibling, 0);
    assert_int_equal(tg_model_param_count(model), 2);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- attention */

typedef struct attention_case {
    int heads, kv_heads, queries, keys, size;
    bool causal, masked;
} attention_case;
enum { ATTENTION_B = 2, ATTENTION_MOST = 512 };

static tg_tensor build_attention(tg_graph *g, void *user) {
    const attention_case *c = user;
    const tg_tensor q = tg_input(g, "q", TG_SHAPE(ATTENTION_B, c->heads, c->queries, c->size), TG_F32);
    const tg_tensor k = tg_input(g, "k", TG_SHAPE(ATTENTION_B, c->kv_heads, c->keys, c->size), TG_F32);
    const tg_tensor v = tg_input(g, "v", TG_SHAPE(ATTENTION_B, c->kv_heads, c->keys, c->size), TG_F32);
    const tg_tensor score = tg_input(g, "mask", TG_SHAPE(c->queries, c->keys), TG_F32); /* seen where positive */
    tg_attention_mask options = {.causal = c->causal};
    if (c->masked) options.mask = tg_greater(score, 0.0);
    return tg_nn_attention_values(tg_nn_attention_weights_at(TG_SITE, q, k, options), v);
}

static void direct_attention(const attention_case *c, double *y) {
    const int T_ = c->queries, S_ = c->keys, d = c->size;
    double *q = leaf("q", ATTENTION_B * c->heads * T_ * d), *k = leaf("k", ATTENTION_B * c->kv_heads * S_ * d),
           *v = leaf("v", ATTENTION_B * c->kv_heads * S_ * d), *mask = leaf("mask", T_ * S_);
    for (int row = 0; row < ATTENTION_B * c->heads * T_; row++) {
        const int t = row % T_, head = row / T_ % c->heads, kv = row / T_ / c->heads * c->kv_heads + head * c->kv_heads / c->heads;
        double sum = 0;
        for (int j = 0; j < d; j++) y[row * d + j] = 0;
        for (int s = 0; s < S_; s++) {
            double score = 0;
            if ((c->causal && s > t) || (c->masked && !(mask[t * S_ + s] > 0))) continue;
            for (int j = 0; j < d; j++) score += q[row * d + j] * k[(kv * S_ + s) * d + j] / sqrt((double)d);
            sum += exp(score);
            for (int j = 0; j < d; j++) y[row * d + j] += exp(score) * v[(kv * S_ + s) * d + j];
        }
        for (int j = 0; j < d && sum > 0; j++) y[row * d + j] /= sum;
    }
    free(q), free(k), free(v), free(mask);
}

TEST(attention) {
    (void)state;
    static const attention_case cases[] = {{2, 2, 3, 3, 4, false, false}, {2, 2, 4, 4, 2, true, false}, {4, 2, 3, 3, 2, true, false},
                                           {4, 1, 3, 5, 2, false, false}, {4, 2, 3, 5, 2, false, true}, {2, 1, 4, 4, 2, true, true}};
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        attention_case c = cases[i];
        double y[ATTENTION_MOST];
        direct_attention(&c, y);
        const wanted wants[] = {{"result", y, ATTENTION_B * c.heads * c.queries * c.size}, {NULL, NULL, 0}};
        check_outputs("attention", build_attention, &c, wants);
    }
}

/* The layer is what is written out in examples/transformer_add.c: the same kernels. */
static tg_tensor build_attention_layer(tg_graph *g, void *user) {
    const bool written_out = *(const bool *)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 8, 16), TG_F32);
    if (!written_out) return tg_mean(tg_square(tg_nn_attention_fwd(tg_nn_attention(g, "a", 16, 2, .causal = true), x)), TG_ALL);
    tg_scope_push(g, "a");
    const tg_linear q = tg_nn_linear(g, "q", 16, 16), k = tg_nn_linear(g, "k", 16, 16), v = tg_nn_linear(g, "v", 16, 16),
                    o = tg_nn_linear(g, "o", 16, 16);
    tg_scope_pop(g);
    const tg_tensor qs = tg_nn_split_heads(tg_nn_linear_fwd(q, x), 2), ks = tg_nn_split_heads(tg_nn_linear_fwd(k, x), 2),
                    vs = tg_nn_split_heads(tg_nn_linear_fwd(v, x), 2);
    const tg_tensor scores = tg_mul(tg_matmul_batched(qs, tg_swap_axes(ks, -1, -2)), 1 / sqrt(8.0));
    const tg_tensor heads = tg_matmul_batched(tg_softmax_causal_last(scores), vs);
    return tg_mean(tg_square(tg_nn_linear_fwd(o, tg_nn_merge_heads(heads))), TG_ALL);
}

TEST(attention_layer) {
    (void)state;
    tg_model_info info[2];
    float losses[2], x[4 * 8 * 16];
    for (int i = 0; i < 4 * 8 * 16; i++) x[i] = (float)sin(i);
    for (int i = 0; i < 2; i++) {
        tg_context *ctx = support_context();
        bool written_out = i == 1;
        const tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_constant(1e-3)), .device = TG_DEVICE_CPU, .threads = 1};
        tg_model *model = tg_compile(ctx, build_attention_layer, &written_out, &options);
        support_assert_no_error(ctx);
        const tg_feed feed = tg_feed_f32("x", x, 4 * 8 * 16);
        ok(model, tg_step(model, &feed, 1, &losses[i]));
        ok(model, tg_step(model, &feed, 1, &losses[i]));
        ok(model, tg_model_get_info(model, &info[i]));
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
    assert_int_equal(info[0].kernels, info[1].kernels);
    assert_int_equal(info[0].workspace_bytes, info[1].workspace_bytes);
    assert_true(losses[0] == losses[1]);
}

/* ---------------------------------------------------------------- losses */

enum { ROWS = 6, CLASSES = 5, ELEMENTS = ROWS * CLASSES };
#define SMOOTHING 0.2
#define DELTA 0.75

/* Each loss under its own name, with the reduction *user. */
static tg_tensor build_losses(tg_graph *g, void *user) {
    const tg_reduction r = *(const tg_reduction *)user;
    const tg_shape shape = TG_SHAPE(2, ROWS / 2, CLASSES);
    const tg_tensor x = tg_input(g, "x", shape, TG_F32), y = tg_input(g, "y", shape, TG_F32), p = tg_input(g, "p", shape, TG_F32);
    const tg_tensor t = tg_input(g, "t", TG_SHAPE(2, ROWS / 2), TG_I32), w = tg_input(g, "pw", TG_SHAPE(CLASSES), TG_F32);
    tg_capture("ce", tg_nn_cross_entropy(x, t, IGNORED, .reduction = r));
    tg_capture("smooth", tg_nn_cross_entropy(x, t, IGNORED, .reduction = r, .label_smoothing = SMOOTHING));
    tg_capture("nll", tg_nn_nll(x, t, IGNORED, .reduction = r));
    tg_capture("l1", tg_nn_l1(x, y, .reduction = r));
    tg_capture("huber", tg_nn_huber(x, y, .reduction = r));
    tg_capture("huber .75", tg_nn_huber(x, y, .reduction = r, .delta = DELTA));
    tg_capture("bce", tg_nn_bce_with_logits(x, p, .reduction = r));
    tg_capture("weighted", tg_nn_bce_with_logits(x, p, .reduction = r, .positive_weight = w));
    tg_capture("kl", tg_nn_kl_div(x, p, .reduction = r));
    tg_capture("log kl", tg_nn_kl_div(x, y, .reduction = r, .log_target = true));
    return tg_nn_mse(x, y, .reduction = r);
}

static double huber(double e, double delta) { return fabs(e) <= delta ? e * e / 2 : delta * (fabs(e) - delta / 2); }

/* out[0 .. n) of `losses` to what the reduction leaves; those counted for the mean. */
static int64_t reduce_direct(tg_reduction r, double *losses, int64_t n, double counted) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += losses[i];
    if (r == TG_REDUCTION_NONE) return n;
    losses[0] = r == TG_REDUCTION_SUM ? sum : sum / counted;
    return 1;
}

TEST(losses) {
    (void)state;
    double *x = leaf("x", ELEMENTS), *y = leaf("y", ELEMENTS), *p = leaf("p", ELEMENTS), *w = leaf("pw", CLASSES);
    double *t = leaf_of("t", TG_I32, ROWS);
    enum { MSE, L1, HUBER, HUBER_75, BCE, WEIGHTED, KL, LOG_KL, EACH_COUNT };
    static const char *const names[EACH_COUNT] = {"result", "l1", "huber", "huber .75", "bce", "weighted", "kl", "log kl"};
    for (tg_reduction r = TG_REDUCTION_MEAN; r <= TG_REDUCTION_NONE; r++) {
        double rows[3][ROWS], each[EACH_COUNT][ELEMENTS], counted = 0;
        wanted wants[EACH_COUNT + 4] = {{NULL, NULL, 0}};
        for (int i = 0; i < ROWS; i++) {
            const double *logits = x + i * CLASSES;
            double sum = 0, mean = 0;
            for (int v = 0; v < CLASSES; v++) sum += exp(logits[v]);
            for (int v = 0; v < CLASSES; v++) mean += (log(sum) - logits[v]) / (double)CLASSES;
            const bool counts = t[i] != IGNORED;
            const double picked = counts ? logits[(int)t[i]] : 0;
            counted += counts;
            rows[0][i] = counts ? log(sum) - picked : 0;
            rows[1][i] = counts ? (1 - SMOOTHING) * rows[0][i] + SMOOTHING * mean : 0;
            rows[2][i] = -picked;
        }
        assert_true(counted == 4);
        for (int i = 0; i < ELEMENTS; i++) {
            const double e = x[i] - y[i], on = -log(sigmoid(x[i])), off = -log(sigmoid(-x[i]));
            each[MSE][i] = e * e;
            each[L1][i] = fabs(e);
            each[HUBER][i] = huber(e, 1);
            each[HUBER_75][i] = huber(e, DELTA);
            each[BCE][i] = p[i] * on + (1 - p[i]) * off;
            each[WEIGHTED][i] = w[i % CLASSES] * p[i] * on + (1 - p[i]) * off;
            each[KL][i] = p[i] == 0 ? 0 : p[i] * (log(p[i]) - x[i]);
            each[LOG_KL][i] = exp(y[i]) * (y[i] - x[i]);
        }
        static const char *const row_names[3] = {"ce", "smooth", "nll"};
        for (int i = 0; i < 3; i++) wants[i] = (wanted){row_names[i], rows[i], reduce_direct(r, rows[i], ROWS, counted)};
        for (int i = 0; i < EACH_COUNT; i++) wants[3 + i] = (wanted){names[i], each[i], reduce_direct(r, each[i], ELEMENTS, ELEMENTS)};
        check_outputs("losses", build_losses, &r, wants);
    }
    free(x), free(y), free(p), free(w), free(t);
}

static tg_tensor build_ignored(tg_graph *g, void *user) {
    const tg_reduction r = *(const tg_reduction *)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(ROWS, CLASSES), TG_F32), t = tg_input(g, "t", TG_SHAPE(ROWS), TG_I32);
    const tg_tensor smooth = tg_nn_cross_entropy(x, t, IGNORED, .reduction = r, .label_smoothing = SMOOTHING);
    const tg_tensor nll = tg_nn_nll(x, t, IGNORED, .reduction = r), loss = tg_add(smooth, nll);
    tg_tensor dx;
    tg_vjp(loss, tg_ones(g, tg_tensor_shape(loss)), &x, 1, &dx);
    tg_capture("dx", dx);
    return loss;
}

TEST(every_target_ignored) {
    (void)state;
    bool all = true;
    static const double zeros[ELEMENTS];
    for (tg_reduction r = TG_REDUCTION_MEAN; r <= TG_REDUCTION_NONE; r++) {
        const wanted wants[] = {{"result", zeros, r == TG_REDUCTION_NONE ? ROWS : 1}, {"dx", zeros, ELEMENTS}, {NULL, NULL, 0}};
        check_filled("ignored", build_ignored, &r, &all, wants);
    }
}

/* An infinite log probability where the target is 0 is worth 0, as are the gradients. */
static tg_tensor build_impossible(tg_graph *g, void *user) {
    (void)user;
    static const float certain[] = {0, -INFINITY}, shares[] = {1, 0}, log_shares[] = {0, -INFINITY};
    const tg_tensor q = tg_constant(g, TG_SHAPE(2), TG_F32, certain, 2), p = tg_constant(g, TG_SHAPE(2), TG_F32, shares, 2);
    const tg_tensor log_p = tg_constant(g, TG_SHAPE(2), TG_F32, log_shares, 2);
    const tg_tensor loss = tg_add(tg_nn_kl_div(q, p), tg_nn_kl_div(q, log_p, .log_target = true));
    tg_tensor grads[3];
    tg_grad(loss, ((const tg_tensor[]){q, p, log_p}), 3, grads);
    for (int i = 0; i < 3; i++) tg_capture(((const char *const[]){"dq", "dp", "dlog p"})[i], grads[i]);
    return loss;
}

TEST(kl_of_what_cannot_be) {
    (void)state;
    static const double zero[1], dq[] = {-1, 0}, dp[] = {0.5, 0};
    const wanted wants[] = {{"result", zero, 1}, {"dq", dq, 2}, {"dp", dp, 2}, {"dlog p", dp, 2}, {NULL, NULL, 0}};
    check_outputs("kl", build_impossible, NULL, wants);
}

/* ---------------------------------------------------------------- tables */

enum { TABLE_ROWS = 5, TABLE_WIDTH = 3, LOOKED_UP = 4 };
static const int32_t looked_up[LOOKED_UP] = {4, 0, 4, 2};

static tg_tensor build_embedding(tg_graph *g, void *user) {
    (void)user;
    const tg_embedding_table table = tg_nn_embedding(g, "table", TABLE_ROWS, TABLE_WIDTH);
    const tg_tensor rows = tg_nn_embedding_fwd(table, tg_constant(g, TG_SHAPE(2, 2), TG_I32, looked_up, LOOKED_UP));
    const tg_tensor cotangent = tg_param(g, "cotangent", TG_SHAPE(2, 2, TABLE_WIDTH));
    tg_tensor grad;
    tg_grad(tg_sum_all(tg_mul(rows, cotangent)), &table.W, 1, &grad);
    tg_capture("dW", grad);
    return rows;
}

TEST(embedding_layer) {
    (void)state;
    double *w = leaf("table.W", TABLE_ROWS * TABLE_WIDTH), *cotangent = leaf("cotangent", LOOKED_UP * TABLE_WIDTH);
    double rows[LOOKED_UP * TABLE_WIDTH], grad[TABLE_ROWS * TABLE_WIDTH] = {0};
    for (int i = 0; i < LOOKED_UP * TABLE_WIDTH; i++) {
        const int at = looked_up[i / TABLE_WIDTH] * TABLE_WIDTH + i % TABLE_WIDTH;
        rows[i] = w[at];
        grad[at] += cotangent[i];
    }
    const wanted wants[] = {{"result", rows, LOOKED_UP * TABLE_WIDTH}, {"dW", grad, TABLE_ROWS * TABLE_WIDTH}, {NULL, NULL, 0}};
    check_outputs("embedding", build_embedding, NULL, wants);
    free(w);
    free(cotangent);
}

/* ---------------------------------------------------------------- */

int main(void) {
    const int refused = support_home_refuses("test_nn");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_kernels_of_a_step),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_layer),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_every_target_ignored),
        cmocka_unit_test(test_kl_of_what_cannot_be),
        cmocka_unit_test(test_embedding_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
