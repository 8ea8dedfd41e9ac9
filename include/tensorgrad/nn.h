/* tensorgrad, nn: layers and losses. A layer is a struct of parameters, made once, and a forward
 * function. */
#ifndef TENSORGRAD_NN_H
#define TENSORGRAD_NN_H

#include "ops.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- layers and losses */

typedef struct tg_linear {
    tg_tensor W, b;
    bool has_bias;
} tg_linear;
typedef struct tg_linear_options {
    bool no_bias;
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_linear_options;
/* Parameters `name.W` [in, out] and `name.b` [out] (zeros). Default init: kaiming. */
TG_API tg_linear tg_nn_linear_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, tg_linear_options options);
TG_API tg_tensor tg_nn_linear_fwd_at(tg_site site, tg_linear layer, tg_tensor x); /* x W + b */
#define tg_nn_linear(...) TG_WITH_4_(tg_nn_linear_at, tg_linear_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_linear_fwd(...) tg_nn_linear_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_embedding_table {
    tg_tensor W;
} tg_embedding_table;
typedef struct tg_embedding_options {
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_embedding_options;
/* Parameter `name.W` [count, dim]: one row for each of `count` things. Default init: normal, std
 * .02. */
TG_API tg_embedding_table tg_nn_embedding_at(tg_site site, tg_graph *g, const char *name, int64_t count, int64_t dim,
                                             tg_embedding_options options);
/* tg_embedding of W */
TG_API tg_tensor tg_nn_embedding_fwd_at(tg_site site, tg_embedding_table layer, tg_tensor indices);
#define tg_nn_embedding(...) TG_WITH_4_(tg_nn_embedding_at, tg_embedding_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_embedding_fwd(...) tg_nn_embedding_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_layer_norm {
    tg_tensor g, b;
    double eps;
} tg_layer_norm;
typedef struct tg_layer_norm_options {
    double eps;  /* at least 0; 0 means 1e-5; TG_ZERO: none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_layer_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), [dim]. y = (x - mean) / sqrt(var + eps) g + b
 * over the last axis, with the biased variance. */
TG_API tg_layer_norm tg_nn_layer_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_layer_norm_options options);
TG_API tg_tensor tg_nn_layer_norm_fwd_at(tg_site site, tg_layer_norm layer, tg_tensor x);
#define tg_nn_layer_norm(...) TG_WITH_3_(tg_nn_layer_norm_at, tg_layer_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_layer_norm_fwd(...) tg_nn_layer_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_rms_norm {
    tg_tensor g;
    double eps;
} tg_rms_norm;
typedef struct tg_rms_norm_options {
    double eps;  /* at least 0; 0 means 1e-5; TG_ZERO: none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_rms_norm_options;
/* Parameter `name.g` (ones), [dim]. y = x / sqrt(mean(x^2) + eps) g over the last axis (Zhang &
 * Sennrich 2019). */
TG_API tg_rms_norm tg_nn_rms_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_rms_norm_options options);
TG_API tg_tensor tg_nn_rms_norm_fwd_at(tg_site site, tg_rms_norm layer, tg_tensor x);
#define tg_nn_rms_norm(...) TG_WITH_3_(tg_nn_rms_norm_at, tg_rms_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_rms_norm_fwd(...) tg_nn_rms_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_group_norm {
    tg_tensor g, b;
    int64_t groups;
    double eps;
} tg_group_norm;
typedef struct tg_group_norm_options {
    double eps;  /* at least 0; 0 means 1e-5; TG_ZERO: none */
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_group_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), [channels]. x [N, C, ...]: a layer norm over
 * each group of C / groups channels and all axes after them; then times g plus b of the channel (Wu
 * & He 2018). */
TG_API tg_group_norm tg_nn_group_norm_at(tg_site site, tg_graph *g, const char *name, int64_t groups, int64_t channels,
                                         tg_group_norm_options options);
TG_API tg_tensor tg_nn_group_norm_fwd_at(tg_site site, tg_group_norm layer, tg_tensor x);
#define tg_nn_group_norm(...) TG_WITH_4_(tg_nn_group_norm_at, tg_group_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_group_norm_fwd(...) tg_nn_group_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_batch_norm {
    tg_tensor g, b, mean, var;
    double eps, momentum;
} tg_batch_norm;
typedef struct tg_batch_norm_options {
    double eps; /* at least 0; 0 means 1e-5; TG_ZERO: none */
    /* in [0, 1], weight of the newest batch; 0 means 0.1; TG_ZERO: mean and var stay */
    double momentum;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_batch_norm_options;
/* Parameters `name.g` (ones) and `name.b` (zeros), states `name.mean` (zeros) and `name.var`
 * (ones), all [channels]. The open scopes go before the name. */
TG_API tg_batch_norm tg_nn_batch_norm_at(tg_site site, tg_graph *g, const char *name, int64_t channels, tg_batch_norm_options options);
/* x [N, C, ...], y = (x - mean) / sqrt(var + eps) g + b for each channel (Ioffe & Szegedy 2015).
 * training: mean and biased variance over all axes except 1, of n numbers; n under 2 is
 * TG_ERROR_SHAPE. After the step, mean += momentum (batch mean - mean) and var += momentum (batch
 * variance n / (n - 1) - var). Once in a trace.
 * Not training: the states, which a sibling shares with the model that trains. A run changes no
 * state. */
TG_API tg_tensor tg_nn_batch_norm_fwd_at(tg_site site, tg_batch_norm layer, tg_tensor x, bool training);
#define tg_nn_batch_norm(...) TG_WITH_3_(tg_nn_batch_norm_at, tg_batch_norm_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_batch_norm_fwd(...) tg_nn_batch_norm_fwd_at(TG_SITE, __VA_ARGS__)

typedef struct tg_conv {
    tg_tensor W, b;
    bool has_bias;
    tg_conv_options options;
} tg_conv;
typedef struct tg_conv_layer_options {
    int64_t stride[2]; /* these five as in tg_conv_options */
    tg_padding padding;
    int64_t dilation[2];
    int64_t groups;
    int64_t output_padding[2];
    bool no_bias;
    tg_init init;
    bool frozen; /* its parameters are not trained */
    int reserved_;
} tg_conv_layer_options;
/* Parameters `name.W` [out, in / groups, k...] (transposed: [in, out / groups, k...]) and `name.b`
 * [out] (zeros). Default init: kaiming, normal with std = gain / sqrt(fan in). The gain is sqrt 2,
 * or that of tg_init_kaiming. The fan in is the number of inputs of one output: in / groups times
 * the elements of the kernel (transposed: divided by the product of the strides). */
TG_API tg_conv tg_nn_conv1d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel,
                               tg_conv_layer_options options);
TG_API tg_conv tg_nn_conv2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h, int64_t kernel_w,
                               tg_conv_layer_options options);
TG_API tg_conv tg_nn_conv_transpose2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h,
                                         int64_t kernel_w, tg_conv_layer_options options);
/* tg_conv1d with W, b and the options */
TG_API tg_tensor tg_nn_conv1d_fwd_at(tg_site site, tg_conv layer, tg_tensor x);
TG_API tg_tensor tg_nn_conv2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x);
TG_API tg_tensor tg_nn_conv_transpose2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x);
#define tg_nn_conv1d(...) TG_WITH_5_(tg_nn_conv1d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv2d(...) TG_WITH_6_(tg_nn_conv2d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv_transpose2d(...) TG_WITH_6_(tg_nn_conv_transpose2d_at, tg_conv_layer_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_conv1d_fwd(...) tg_nn_conv1d_fwd_at(TG_SITE, __VA_ARGS__)
#define tg_nn_conv2d_fwd(...) tg_nn_conv2d_fwd_at(TG_SITE, __VA_ARGS__)
#define tg_nn_conv_transpose2d_fwd(...) tg_nn_conv_transpose2d_fwd_at(TG_SITE, __VA_ARGS__)

/* Recurrent layers. The weights of the gates are side by side: `name.Wx` [in, G h], `name.Wh` [h, G
 * h], `name.bx` and `name.bh` [G h]; in PyTorch weight_ih_l0, weight_hh_l0 (both transposed) and
 * the biases. Default init of all four: uniform(1 / sqrt h). Biases do not decay. With x. = x Wx. +
 * bx. and h. = h Wh. + bh. of each gate:
 *   rnn (G 1): h' = tanh(x + h), or relu of it
 *   gru (G 3: r, z, n): r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = tanh(xn + r hn),
 *    h' = (1 - z) n + z h (Cho et al. 2014)
 *   lstm (G 4: i, f, g, o): c' = sigmoid(xf + hf) c + sigmoid(xi + hi) tanh(xg + hg),
 *    h' = sigmoid(xo + ho) tanh(c') (Gers et al. 2000) */
typedef struct tg_recurrent {
    tg_tensor Wx, Wh, bx, bh;
    bool has_bias, relu;
} tg_recurrent;
typedef struct tg_recurrent_options {
    bool no_bias;
    tg_init init; /* of Wx and Wh */
    bool relu;    /* rnn only: relu, not tanh */
    bool frozen;  /* its parameters are not trained */
    int reserved_;
} tg_recurrent_options;
TG_API tg_recurrent tg_nn_rnn_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
TG_API tg_recurrent tg_nn_gru_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
TG_API tg_recurrent tg_nn_lstm_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t hidden, tg_recurrent_options options);
#define tg_nn_rnn(...) TG_WITH_4_(tg_nn_rnn_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_gru(...) TG_WITH_4_(tg_nn_gru_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_lstm(...) TG_WITH_4_(tg_nn_lstm_at, tg_recurrent_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_lstm_states {
    tg_tensor h, c; /* hidden, cell */
} tg_lstm_states;
/* One step: x [B, in], h (and c) [B, h] -> the states after it, [B, h]. 2 B G h (in + h) flop. */
TG_API tg_tensor tg_nn_rnn_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h);
TG_API tg_tensor tg_nn_gru_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_tensor h);
TG_API tg_lstm_states tg_nn_lstm_step_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_lstm_states before);
#define tg_nn_rnn_step(...) tg_nn_rnn_step_at(TG_SITE, __VA_ARGS__)
#define tg_nn_gru_step(...) tg_nn_gru_step_at(TG_SITE, __VA_ARGS__)
#define tg_nn_lstm_step(...) tg_nn_lstm_step_at(TG_SITE, __VA_ARGS__)
typedef struct tg_recurrent_start {
    tg_tensor h0, c0; /* [B, h]; left out: zeros. c0: lstm only */
    int reserved_;
} tg_recurrent_start;
/* All steps of x [B, T, in] -> the states after each, [B, T, h] (lstm: hidden and cell states).
 * Unrolled: the trace has T copies of the cell, and one contraction makes x Wx of all steps. */
TG_API tg_tensor tg_nn_rnn_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
TG_API tg_tensor tg_nn_gru_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
TG_API tg_lstm_states tg_nn_lstm_fwd_at(tg_site site, tg_recurrent layer, tg_tensor x, tg_recurrent_start start);
#define tg_nn_rnn_fwd(...) TG_WITH_2_(tg_nn_rnn_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_gru_fwd(...) TG_WITH_2_(tg_nn_gru_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_lstm_fwd(...) TG_WITH_2_(tg_nn_lstm_fwd_at, tg_recurrent_start, __VA_ARGS__, .reserved_ = 0)

/* [..., T, H d] -> [..., H, T, d] */
TG_API tg_tensor tg_nn_split_heads_at(tg_site site, tg_tensor x, int64_t heads);
/* [..., H, T, d] -> [..., T, H d] */
TG_API tg_tensor tg_nn_merge_heads_at(tg_site site, tg_tensor x);
#define tg_nn_split_heads(...) tg_nn_split_heads_at(TG_SITE, __VA_ARGS__)
#define tg_nn_merge_heads(...) tg_nn_merge_heads_at(TG_SITE, __VA_ARGS__)

/* ---- attention (Vaswani et al. 2017); keys may have fewer heads than queries (Ainslie et al.
 * 2023) */

typedef struct tg_attention_mask {
    bool causal; /* position i sees positions up to i; needs as many keys as queries */
    /* bool, broadcast to [B, H, T, S]: true is seen. A row that sees nothing has weights 0. Left
     * out: all is seen. */
    tg_tensor mask;
    int reserved_;
} tg_attention_mask;
/* q [B, H, T, d], k [B, Hk, S, d], H a multiple of Hk -> softmax(q k^T / sqrt d), [B, H, T, S].
 * Head h has the keys of head h Hk / H. */
TG_API tg_tensor tg_nn_attention_weights_at(tg_site site, tg_tensor q, tg_tensor k, tg_attention_mask options);
/* weights [B, H, T, S], v [B, Hk, S, d] -> weights v, [B, H, T, d]. */
TG_API tg_tensor tg_nn_attention_values_at(tg_site site, tg_tensor weights, tg_tensor v);
/* q [B, H, T, d], k and v [B, Hk, S, d] -> the weights of q and k times v, [B, H, T, d]. Long rows
 * (T S of 4096 or more, d one of 16, 32 .. 128) are computed block by block and never
 * stored, forward and backward: memory grows with T, not with T S. B H T S must be below 2^31. The
 * gradients have the weights again from one number for each row, so that a weight's relative error
 * is about 6e-8 times the largest score of the row: 6e-4 at 1e4. */
TG_API tg_tensor tg_nn_attend_at(tg_site site, tg_tensor q, tg_tensor k, tg_tensor v, tg_attention_mask options);
#define tg_nn_attention_weights(...) TG_WITH_2_(tg_nn_attention_weights_at, tg_attention_mask, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_attention_values(...) tg_nn_attention_values_at(TG_SITE, __VA_ARGS__)
#define tg_nn_attend(...) TG_WITH_3_(tg_nn_attend_at, tg_attention_mask, __VA_ARGS__, .reserved_ = 0)

typedef struct tg_attention {
    tg_linear q, k, v, o;
    int64_t heads, kv_heads;
    bool causal;
    double rope_base;
} tg_attention;
typedef struct tg_attention_options {
    int64_t kv_heads; /* 0: heads */
    bool causal;
    bool no_bias;
    double rope_base; /* tg_rope turns queries and keys with this base; 0 or TG_ZERO: no tg_rope */
    int64_t context;  /* length of the vectors that keys and values are made of; 0: dim */
    tg_init init;     /* of the four W; default: kaiming */
    bool frozen;      /* its parameters are not trained */
    int reserved_;
} tg_attention_options;
/* Linear layers `name.q` [dim, dim], `name.k` and `name.v` [context, dim / heads kv_heads],
 * `name.o` [dim, dim]. */
TG_API tg_attention tg_nn_attention_at(tg_site site, tg_graph *g, const char *name, int64_t dim, int64_t heads,
                                       tg_attention_options options);
typedef struct tg_attention_inputs {
    tg_tensor context;   /* [B, S, context]; left out: x */
    tg_tensor mask;      /* as in tg_attention_mask */
    const char *capture; /* NULL, or the name under which the weights are captured */
    int reserved_;
} tg_attention_inputs;
/* x [B, T, dim] -> [B, T, dim]: heads of q(x), and of k and v of the context; weights times values;
 * o of the heads side by side. */
TG_API tg_tensor tg_nn_attention_fwd_at(tg_site site, tg_attention layer, tg_tensor x, tg_attention_inputs inputs);
#define tg_nn_attention(...) TG_WITH_4_(tg_nn_attention_at, tg_attention_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_attention_fwd(...) TG_WITH_2_(tg_nn_attention_fwd_at, tg_attention_inputs, __VA_ARGS__, .reserved_ = 0)

#define TG_MLP_LAYERS 16
typedef struct tg_mlp {
    tg_linear layers[TG_MLP_LAYERS];
    int count;
    tg_tensor (*activation)(tg_site site, tg_tensor x);
    bool activate_last;
} tg_mlp;
typedef struct tg_mlp_options {
    /* tg_gelu_at, any other of one operand, or your own; NULL: tg_relu_at */
    tg_tensor (*activation)(tg_site site, tg_tensor x);
    bool activate_last; /* after the last layer too */
    bool no_bias;
    tg_init init; /* of every W; default: kaiming */
    bool frozen;  /* its parameters are not trained */
    int reserved_;
} tg_mlp_options;
/* Linear layers `name.0` [sizes[0], sizes[1]], `name.1` and so on, with an activation between them.
 * count - 1 layers, at most TG_MLP_LAYERS. */
TG_API tg_mlp tg_nn_mlp_at(tg_site site, tg_graph *g, const char *name, const int64_t *sizes, int count, tg_mlp_options options);
TG_API tg_tensor tg_nn_mlp_fwd_at(tg_site site, tg_mlp mlp, tg_tensor x);
#ifdef __cplusplus
#  define tg_nn_mlp(...) TG_WITH_4_(tg_nn_mlp_at, tg_mlp_options, __VA_ARGS__, .reserved_ = 0)
/* arguments and options are one struct, so that sizes can be written in place: (int64_t[]){2, 64,
 * 1}, 3 */
#else
typedef struct tg_mlp_call_ {
    tg_site site;
    tg_graph *g;
    const char *name;
    const int64_t *sizes;
    int count;
    tg_tensor (*activation)(tg_site site, tg_tensor x);
    bool activate_last, no_bias;
    tg_init init;
    bool frozen;
    int reserved_;
} tg_mlp_call_;
static inline tg_mlp tg_nn_mlp_call_(tg_mlp_call_ c) {
    const tg_mlp_options options = {
        .activation = c.activation, .activate_last = c.activate_last, .no_bias = c.no_bias, .init = c.init, .frozen = c.frozen};
    return tg_nn_mlp_at(c.site, c.g, c.name, c.sizes, c.count, options);
}
#  define tg_nn_mlp(...) tg_nn_mlp_call_((tg_mlp_call_){TG_SITE, __VA_ARGS__, .reserved_ = 0})
#endif
#define tg_nn_mlp_fwd(...) tg_nn_mlp_fwd_at(TG_SITE, __VA_ARGS__)

/* ---- losses. Shapes must be equal: a loss never broadcasts. mean and sum: over all elements (over
 * all positions that count) -> rank 0. none: one loss for each. */
typedef enum tg_reduction { TG_REDUCTION_MEAN = 0, TG_REDUCTION_SUM = 1, TG_REDUCTION_NONE = 2 } tg_reduction;
typedef struct tg_loss_options {
    tg_reduction reduction;
    int reserved_;
} tg_loss_options;

/* logits [..., V], targets i32 [...] -> -log softmax(logits)[target] for each position, [...]. A
 * target outside [0, V) is TG_ERROR_INDEX, as in an embedding. */
TG_API tg_tensor tg_nn_cross_entropy_last_at(tg_site site, tg_tensor logits, tg_tensor targets);
typedef struct tg_cross_entropy_options {
    tg_reduction reduction;
    /* e in [0, 1); 0: none. (1 - e) of the above plus e mean(-log softmax(logits)) over the V
     * classes */
    double label_smoothing;
    int reserved_;
} tg_cross_entropy_options;
/* The same over the positions whose target is not `ignore` (any number; it may be a class). An
 * ignored position counts as 0 with gradient 0, whatever its logits are, NaN too. The mean leaves
 * it out; the mean is 0 when all targets are ignored. Other targets outside [0, V) are
 * TG_ERROR_INDEX. */
TG_API tg_tensor tg_nn_cross_entropy_at(tg_site site, tg_tensor logits, tg_tensor targets, int32_t ignore,
                                        tg_cross_entropy_options options);
/* The same of log probabilities [..., V]: -log_probabilities[target]. */
TG_API tg_tensor tg_nn_nll_at(tg_site site, tg_tensor log_probabilities, tg_tensor targets, int32_t ignore, tg_loss_options options);
/* (p - t)^2 */
TG_API tg_tensor tg_nn_mse_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options);
/* |p - t| */
TG_API tg_tensor tg_nn_l1_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options);
typedef struct tg_huber_options {
    tg_reduction reduction;
    double delta; /* a normal f32 number over 0; 0 means 1; TG_ZERO is refused */
    int reserved_;
} tg_huber_options;
/* With e = |p - t|: e^2 / 2 up to delta, then delta (e - delta / 2) (Huber 1964). */
TG_API tg_tensor tg_nn_huber_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_huber_options options);
typedef struct tg_bce_options {
    tg_reduction reduction;
    tg_tensor positive_weight; /* w; left out: 1. f32. Only w may broadcast to the logits. */
    int reserved_;
} tg_bce_options;
/* -w t log sigmoid(x) - (1 - t) log sigmoid(-x), without overflow, accurate where it is small; at
 * infinity 0 or infinity. */
TG_API tg_tensor tg_nn_bce_with_logits_at(tg_site site, tg_tensor logits, tg_tensor target, tg_bce_options options);
typedef struct tg_kl_options {
    tg_reduction reduction;
    bool log_target; /* the target is log p */
    int reserved_;
} tg_kl_options;
/* p (log p - log q), with log q the prediction and p the target; 0 with gradient 0 where p is 0.
 * The sum over a row is the divergence KL(p || q) (Kullback & Leibler 1951). mean is over all
 * elements, as for each loss here. */
TG_API tg_tensor tg_nn_kl_div_at(tg_site site, tg_tensor log_prediction, tg_tensor target, tg_kl_options options);
#define tg_nn_cross_entropy_last(...) tg_nn_cross_entropy_last_at(TG_SITE, __VA_ARGS__)
#define tg_nn_cross_entropy(...) TG_WITH_3_(tg_nn_cross_entropy_at, tg_cross_entropy_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_nll(...) TG_WITH_3_(tg_nn_nll_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_mse(...) TG_WITH_2_(tg_nn_mse_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_l1(...) TG_WITH_2_(tg_nn_l1_at, tg_loss_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_huber(...) TG_WITH_2_(tg_nn_huber_at, tg_huber_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_bce_with_logits(...) TG_WITH_2_(tg_nn_bce_with_logits_at, tg_bce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_nn_kl_div(...) TG_WITH_2_(tg_nn_kl_div_at, tg_kl_options, __VA_ARGS__, .reserved_ = 0)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_NN_H */
