/* Options: every number and every enum of every options struct gets invalid values. Each must be
 * refused with its name and the value, at the caller's line, and change nothing. TG_ZERO means
 * zero, shown by values, or is refused. A check of the public header ensures that no option is left
 * out. Then the effects of the options of optimizers and layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support.h"

#include "tensorgrad/tensorgrad.h"

/* ---------------------------------------------------------------- the calls that take them */

static const tg_site here = {"options.c", 4711};

typedef struct bench {
    tg_context *ctx;
    tg_model *model;
    tg_dataset *dataset;
} bench;

/* Makes the call with options of its struct; false: refused, or TG_OK was not returned. */
typedef bool (*call_fn)(bench *b, const void *options);

typedef struct traced {
    tg_tensor (*op)(tg_graph *g, const void *options);
    const void *options;
} traced;

static tg_tensor build_traced(tg_graph *g, void *user) {
    const traced *t = user;
    return t->op(g, t->options);
}

static bool trace_op(bench *b, tg_tensor (*op)(tg_graph *g, const void *options), const void *options) {
    traced t = {op, options};
    tg_tensor result = {NULL, 0};
    tg_graph *g = tg_trace(b->ctx, build_traced, &t, &result);
    const bool made = g != NULL && result.id != 0;
    tg_graph_destroy(g);
    return made;
}

/* A call inside a trace: `o` are the options. */
#define TRACED(name, T, ...) \
  static tg_tensor name##_op(tg_graph *g, const void *options) { \
    T o; \
    memcpy(&o, options, sizeof o); \
    return __VA_ARGS__; \
  } \
  static bool name(bench *b, const void *options) { return trace_op(b, name##_op, options); }

static tg_tensor in(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_F32); }
static tg_tensor whole(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_I32); }
#define LINE in(g, "x", TG_SHAPE(2, 4, 9))
#define IMAGE in(g, "x", TG_SHAPE(2, 4, 9, 9))
#define ROWS in(g, "x", TG_SHAPE(5, 6))
#define OTHER in(g, "y", TG_SHAPE(5, 6))
#define CLASSES whole(g, "t", TG_SHAPE(5))

TRACED(param, tg_param_options, tg_param_at(here, g, "w", TG_SHAPE(2, 3), o))
TRACED(param_init, tg_init, tg_param_at(here, g, "w", TG_SHAPE(2, 3), (tg_param_options){.init = o}))
TRACED(variance, tg_variance_options, tg_variance_at(here, ROWS, TG_AXES(1), o))
TRACED(deviation, tg_variance_options, tg_std_at(here, ROWS, TG_AXES(1), o))
TRACED(norm, tg_norm_options, tg_norm_at(here, ROWS, TG_AXES(1), o))
TRACED(rope, tg_rope_options, tg_rope_at(here, ROWS, o))
TRACED(conv1d, tg_conv_options, tg_conv1d_at(here, LINE, in(g, "w", TG_SHAPE(2, 4, 3)), o))
TRACED(conv2d, tg_conv_options, tg_conv2d_at(here, IMAGE, in(g, "w", TG_SHAPE(2, 4, 3, 3)), o))
TRACED(transpose1d, tg_conv_options, tg_conv_transpose1d_at(here, LINE, in(g, "w", TG_SHAPE(4, 2, 3)), o))
TRACED(transpose2d, tg_conv_options, tg_conv_transpose2d_at(here, IMAGE, in(g, "w", TG_SHAPE(4, 2, 3, 3)), o))
TRACED(conv_padding, tg_padding, tg_conv2d_at(here, IMAGE, in(g, "w", TG_SHAPE(2, 4, 3, 3)), (tg_conv_options){.padding = o}))
TRACED(layer_padding, tg_padding, tg_nn_conv2d_at(here, g, "c", 4, 2, 3, 3, (tg_conv_layer_options){.padding = o}).W)
TRACED(pool_padding, tg_padding, tg_max_pool2d_at(here, IMAGE, 3, 3, (tg_pool_options){.padding = o}))
TRACED(max_pool, tg_pool_options, tg_max_pool2d_at(here, IMAGE, 3, 3, o))
TRACED(avg_pool, tg_pool_options, tg_avg_pool2d_at(here, IMAGE, 3, 3, o))
TRACED(nearest, tg_upsample_options, tg_upsample_nearest_at(here, IMAGE, o))
TRACED(bilinear, tg_upsample_options, tg_upsample_bilinear_at(here, IMAGE, o))
TRACED(linear, tg_linear_options, tg_nn_linear_at(here, g, "l", 2, 3, o).W)
TRACED(embedding, tg_embedding_options, tg_nn_embedding_at(here, g, "e", 2, 3, o).W)
TRACED(layer_norm, tg_layer_norm_options, tg_nn_layer_norm_at(here, g, "n", 6, o).g)
TRACED(rms_norm, tg_rms_norm_options, tg_nn_rms_norm_at(here, g, "n", 6, o).g)
TRACED(group_norm, tg_group_norm_options, tg_nn_group_norm_at(here, g, "n", 2, 6, o).g)
TRACED(batch_norm, tg_batch_norm_options, tg_nn_batch_norm_at(here, g, "n", 6, o).g)
TRACED(conv1d_layer, tg_conv_layer_options, tg_nn_conv1d_at(here, g, "c", 4, 2, 3, o).W)
TRACED(conv2d_layer, tg_conv_layer_options, tg_nn_conv2d_at(here, g, "c", 4, 2, 3, 3, o).W)
TRACED(transpose_layer, tg_conv_layer_options, tg_nn_conv_transpose2d_at(here, g, "c", 4, 2, 3, 3, o).W)
TRACED(rnn, tg_recurrent_options, tg_nn_rnn_at(here, g, "r", 2, 3, o).Wx)
TRACED(gru, tg_recurrent_options, tg_nn_gru_at(here, g, "r", 2, 3, o).Wx)
TRACED(lstm, tg_recurrent_options, tg_nn_lstm_at(here, g, "r", 2, 3, o).Wx)
TRACED(attention, tg_attention_options, tg_nn_attention_at(here, g, "a", 8, 2, o).q.W)
TRACED(mlp, tg_mlp_options, tg_nn_mlp_at(here, g, "m", (const int64_t[]){2, 3, 1}, 3, o).layers[0].W)
TRACED(cross_entropy, tg_cross_entropy_options, tg_nn_cross_entropy_at(here, ROWS, CLASSES, -1, o))
TRACED(nll, tg_loss_options, tg_nn_nll_at(here, ROWS, CLASSES, -1, o))
TRACED(mse, tg_loss_options, tg_nn_mse_at(here, ROWS, OTHER, o))
TRACED(l1, tg_loss_options, tg_nn_l1_at(here, ROWS, OTHER, o))
TRACED(huber, tg_huber_options, tg_nn_huber_at(here, ROWS, OTHER, o))
TRACED(bce, tg_bce_options, tg_nn_bce_with_logits_at(here, ROWS, OTHER, o))
TRACED(kl, tg_kl_options, tg_nn_kl_div_at(here, ROWS, OTHER, o))
TRACED(resolved, tg_lr, tg_resolve_lr_at(here, o, tg_input(g, "t", TG_SCALAR, TG_I32)))

/* loss = sum of w c, so that c is the gradient of w */
static tg_tensor build_line(tg_graph *g, void *user) {
    static const float start[3] = {0.5F, -1.0F, 2.0F};
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_literal(start, 3));
    return tg_sum_all(tg_mul(w, tg_sum(tg_input(g, "c", TG_SHAPE(1, 3), TG_F32), TG_AXES(0))));
}

static tg_compile_options on_cpu(tg_optimizer optimizer) {
    return (tg_compile_options){.optimizer = optimizer, .device = TG_DEVICE_CPU, .threads = 1};
}

static bool compile_call(bench *b, const void *options) {
    tg_model *m = tg_compile_at(here, b->ctx, build_line, NULL, options);
    tg_model_destroy(m);
    return m != NULL;
}
static bool optimizer_call(bench *b, const void *options) {
    tg_compile_options o = on_cpu((tg_optimizer){0});
    memcpy(&o.optimizer, options, sizeof o.optimizer);
    return compile_call(b, &o);
}
static tg_tensor build_appended(tg_graph *g, void *user) {
    const tg_tensor loss = build_line(g, NULL);
    if (tg_append_optimizer_at(here, loss, user) != TG_OK) return (tg_tensor){g, 0};
    return loss;
}
static bool appended_call(bench *b, const void *options) {
    tg_optimizer o;
    tg_tensor result;
    memcpy(&o, options, sizeof o);
    tg_graph *g = tg_trace(b->ctx, build_appended, &o, &result);
    tg_graph_destroy(g);
    return g != NULL;
}
static bool group_call(bench *b, const void *options) {
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1), .groups = options, .group_count = 1);
    return optimizer_call(b, &o);
}
static bool set_lr_call(bench *b, const void *options) {
    tg_lr schedule;
    memcpy(&schedule, options, sizeof schedule);
    return tg_model_set_lr_at(here, b->model, schedule) == TG_OK;
}
static bool train_call(bench *b, const void *options) { return tg_train_at(here, b->model, b->dataset, options, NULL, NULL) == TG_OK; }
static bool tune_call(bench *b, const void *options) { return tg_model_tune_at(here, b->model, options) == TG_OK; }

/* ---------------------------------------------------------------- the table */

typedef enum { REAL, LONG, INT, ENUM } number_type;
enum {
    TAKES_ZERO = 1,     /* TG_ZERO: what it does is shown below */
    TAKES_NEGATIVE = 2, /* -1 */
    TAKES_HUGE = 4,     /* 1e300, or the largest of an integer */
    TAKES_LEAST = 8,    /* the least of an integer */
    NEGATIVES = TAKES_NEGATIVE | TAKES_LEAST,
};
typedef struct option_row {
    const char *type, *field;
    call_fn call;
    const void *base; /* the other options; NULL: none */
    size_t size, at;
    number_type number;
    unsigned takes;
    const char *word; /* how the message names it */
} option_row;

#define ROW(call, T, base, path, number, takes, word) \
  { #T, #path, call, &(const T)base, sizeof(T), offsetof(T, path), number, takes, word }
#define ROW0(call, T, path, number, takes, word) \
  { #T, #path, call, NULL, sizeof(T), offsetof(T, path), number, takes, word } /* no others */
#define INIT_ROWS(call, T) ROW0(call, T, init.kind, ENUM, 0, "kind"), ROW0(call, T, init.scale, REAL, TAKES_ZERO, "scale")
#define PADDING_ROWS(call) \
  ROW0(call, tg_padding, mode, ENUM, 0, "padding"), ROW0(call, tg_padding, before[0], LONG, 0, "padding"), \
      ROW0(call, tg_padding, before[1], LONG, 0, "padding"), ROW0(call, tg_padding, after[0], LONG, 0, "padding"), \
      ROW0(call, tg_padding, after[1], LONG, 0, "padding")
#define PAIR_ROWS(call, T, field, word) ROW0(call, T, field[0], LONG, 0, word), ROW0(call, T, field[1], LONG, 0, word)
#define CONV_ROWS(call, T) \
  PAIR_ROWS(call, T, stride, "stride"), PAIR_ROWS(call, T, dilation, "dilation"), ROW0(call, T, groups, LONG, 0, "groups")
#define LR_ROWS(call, takes_zero) \
  ROW(call, tg_lr, {.peak = 0.1}, peak, REAL, takes_zero, "rate"), ROW(call, tg_lr, {.peak = 0.1}, kind, ENUM, 0, "kind"), \
      ROW(call, tg_lr, LINEAR, final, REAL, TAKES_ZERO, "rate"), ROW(call, tg_lr, LINEAR, steps, LONG, 0, "steps"), \
      ROW(call, tg_lr, WARMUP, steps, LONG, 0, "steps"), ROW(call, tg_lr, WARMUP, after_kind, ENUM, 0, "kind"), \
      ROW(call, tg_lr, WARMUP, after_peak, REAL, TAKES_ZERO, "rate"), ROW(call, tg_lr, WARMUP, after_final, REAL, TAKES_ZERO, "rate"), \
      ROW(call, tg_lr, WARMUP, after_steps, LONG, 0, "steps"), ROW(call, tg_lr, STAIRS, factor, REAL, 0, "factor"), \
      ROW(call, tg_lr, CYCLE, initial, REAL, TAKES_ZERO, "initial"), ROW(call, tg_lr, CYCLE, rise, LONG, 0, "rises"), \
      ROW(call, tg_lr, STONES, milestones[0], LONG, 0, "milestones"), ROW(call, tg_lr, STONES, milestone_count, INT, 0, "milestones"), \
      ROW(call, tg_lr, WARMUP, more_count, INT, 0, "warm-ups"), ROW(call, tg_lr, WARMUPS, more_peaks[0], REAL, TAKES_ZERO, "rate"), \
      ROW(call, tg_lr, WARMUPS, more_steps[0], LONG, 0, "steps")
#define LINEAR \
  { .peak = 0.1, .kind = TG_LR_LINEAR, .final = 0.05, .steps = 9 }
#define WARMUP \
  { .peak = 0.1, .kind = TG_LR_WARMUP, .steps = 3, .after_kind = TG_LR_COSINE, .after_peak = 0.1, .after_final = 0.05, .after_steps = 9 }
#define WARMUPS \
  { \
    .peak = 0.1, .kind = TG_LR_WARMUP, .steps = 3, .after_kind = TG_LR_CONSTANT, .after_peak = 0.1, .more_count = 1, .more_peaks = {0.2}, \
    .more_steps = { \
        4 \
    } \
  }
#define STAIRS \
  { .peak = 0.1, .kind = TG_LR_STAIRCASE, .steps = 9, .factor = 0.5 }
#define STONES \
  { .peak = 0.1, .kind = TG_LR_MULTI_STEP, .steps = 1, .factor = 0.5, .milestones = {4, 8}, .milestone_count = 2 }
#define CYCLE \
  { .peak = 0.1, .kind = TG_LR_ONE_CYCLE, .final = 0.01, .steps = 9, .initial = 0.02, .rise = 3 }
#define OPTIMIZER_ROWS(call) \
  ROW(call, tg_optimizer, ADAM, kind, ENUM, 0, "kind"), ROW(call, tg_optimizer, ADAM, lr.peak, REAL, 0, ""), \
      ROW(call, tg_optimizer, ADAM, lr.kind, ENUM, 0, "kind"), ROW(call, tg_optimizer, ADAM, beta1, REAL, TAKES_ZERO, "beta1"), \
      ROW(call, tg_optimizer, ADAM, beta2, REAL, TAKES_ZERO, "beta2"), ROW(call, tg_optimizer, ADAM, eps, REAL, TAKES_ZERO, "eps"), \
      ROW(call, tg_optimizer, ADAM, eps_mode, ENUM, 0, "eps_mode"), \
      ROW(call, tg_optimizer, ADAM, weight_decay, REAL, TAKES_ZERO, "weight_decay"), \
      ROW(call, tg_optimizer, SGD, momentum, REAL, TAKES_ZERO, "momentum"), \
      ROW(call, tg_optimizer, ADAM, clip_norm, REAL, TAKES_ZERO, "clip_norm"), \
      ROW(call, tg_optimizer, ADAM, clip_value, REAL, TAKES_ZERO, "clip_value"), \
      ROW(call, tg_optimizer, ADAM, accumulate, LONG, 0, "accumulate"), \
      ROW(call, tg_optimizer, ADAM, average, REAL, TAKES_ZERO, "average"), ROW(call, tg_optimizer, ADAM, group_count, INT, 0, "groups")
#define ADAM \
  { \
    .kind = TG_OPTIMIZER_ADAM, .lr = {.peak = 0.1 } \
  }
#define SGD \
  { \
    .kind = TG_OPTIMIZER_SGD, .lr = {.peak = 0.1 } \
  }
#define LOSS_ROW(call, T) ROW0(call, T, reduction, ENUM, 0, "reduction")
#define CPU \
  { .device = TG_DEVICE_CPU, .threads = 1 }

static const option_row rows[] = {
    ROW0(param, tg_param_options, decay, ENUM, 0, "decay"),
    ROW0(param, tg_param_options, frozen, ENUM, 0, "frozen"),
    ROW0(param_init, tg_init, kind, ENUM, 0, "kind"),
    ROW0(param_init, tg_init, scale, REAL, TAKES_ZERO, "scale"),
    ROW(param_init, tg_init, {.kind = TG_INIT_KAIMING}, scale, REAL, TAKES_ZERO, "scale"),
    ROW(param_init, tg_init, {.kind = TG_INIT_UNIFORM}, scale, REAL, TAKES_ZERO, "scale"),
    ROW(param_init, tg_init, {.kind = TG_INIT_LITERAL}, count, LONG, 0, "literal"),
    INIT_ROWS(param, tg_param_options),
    INIT_ROWS(linear, tg_linear_options),
    INIT_ROWS(embedding, tg_embedding_options),
    INIT_ROWS(conv1d_layer, tg_conv_layer_options),
    INIT_ROWS(conv2d_layer, tg_conv_layer_options),
    INIT_ROWS(transpose_layer, tg_conv_layer_options),
    INIT_ROWS(rnn, tg_recurrent_options),
    INIT_ROWS(gru, tg_recurrent_options),
    INIT_ROWS(lstm, tg_recurrent_options),
    INIT_ROWS(attention, tg_attention_options),
    INIT_ROWS(mlp, tg_mlp_options),
    ROW(conv2d_layer, tg_conv_layer_options, {.init = {.kind = TG_INIT_KAIMING}}, init.scale, REAL, TAKES_ZERO, "scale"),
    ROW0(variance, tg_variance_options, correction, INT, 0, "correction"),
    ROW0(deviation, tg_variance_options, correction, INT, 0, "correction"),
    {"tg_norm_options", "ord", norm, &(const tg_norm_options){.ord = 1}, sizeof(tg_norm_options), offsetof(tg_norm_options, ord), REAL, 16,
     "order"},
    ROW0(rope, tg_rope_options, base, REAL, 0, "base"),
    PADDING_ROWS(conv_padding),
    PADDING_ROWS(layer_padding),
    PADDING_ROWS(pool_padding),
    CONV_ROWS(conv1d, tg_conv_options),
    CONV_ROWS(conv2d, tg_conv_options),
    CONV_ROWS(transpose1d, tg_conv_options),
    CONV_ROWS(transpose2d, tg_conv_options),
    PAIR_ROWS(transpose1d, tg_conv_options, output_padding, "output_padding"),
    PAIR_ROWS(transpose2d, tg_conv_options, output_padding, "output_padding"),
    CONV_ROWS(conv1d_layer, tg_conv_layer_options),
    CONV_ROWS(conv2d_layer, tg_conv_layer_options),
    CONV_ROWS(transpose_layer, tg_conv_layer_options),
    PAIR_ROWS(conv2d_layer, tg_conv_layer_options, output_padding, "output_padding"),
    PAIR_ROWS(transpose_layer, tg_conv_layer_options, output_padding, "output_padding"),
    PAIR_ROWS(max_pool, tg_pool_options, stride, "stride"),
    PAIR_ROWS(avg_pool, tg_pool_options, stride, "stride"),
    PAIR_ROWS(nearest, tg_upsample_options, factor, "factor"),
    PAIR_ROWS(bilinear, tg_upsample_options, factor, "factor"),
    ROW0(layer_norm, tg_layer_norm_options, eps, REAL, TAKES_ZERO, "eps"),
    ROW0(rms_norm, tg_rms_norm_options, eps, REAL, TAKES_ZERO, "eps"),
    ROW0(group_norm, tg_group_norm_options, eps, REAL, TAKES_ZERO, "eps"),
    ROW0(batch_norm, tg_batch_norm_options, eps, REAL, TAKES_ZERO, "eps"),
    ROW0(batch_norm, tg_batch_norm_options, momentum, REAL, TAKES_ZERO, "momentum"),
    ROW0(attention, tg_attention_options, kv_heads, LONG, 0, "keys"),
    ROW0(attention, tg_attention_options, rope_base, REAL, TAKES_ZERO, "rope base"),
    ROW0(attention, tg_attention_options, context, LONG, 0, "context"),
    LOSS_ROW(cross_entropy, tg_cross_entropy_options),
    LOSS_ROW(nll, tg_loss_options),
    LOSS_ROW(mse, tg_loss_options),
    LOSS_ROW(l1, tg_loss_options),
    LOSS_ROW(huber, tg_huber_options),
    LOSS_ROW(bce, tg_bce_options),
    LOSS_ROW(kl, tg_kl_options),
    ROW0(cross_entropy, tg_cross_entropy_options, label_smoothing, REAL, TAKES_ZERO, "label smoothing"),
    ROW0(huber, tg_huber_options, delta, REAL, 0, "delta"),
    LR_ROWS(set_lr_call, TAKES_ZERO),
    LR_ROWS(resolved, TAKES_ZERO),
    OPTIMIZER_ROWS(optimizer_call),
    OPTIMIZER_ROWS(appended_call),
    ROW(group_call, tg_param_group, {.pattern = "*"}, rate, REAL, 0, "rate"),
    ROW(group_call, tg_param_group, {.pattern = "*"}, weight_decay, REAL, TAKES_ZERO, "weight_decay"),
    ROW(group_call, tg_param_group, {.pattern = "*"}, decay, ENUM, 0, "decay"),
    ROW(compile_call, tg_compile_options, CPU, device, ENUM, 0, "device"),
    ROW(compile_call, tg_compile_options, CPU, threads, INT, 0, "threads"),
    ROW(compile_call, tg_compile_options, CPU, precision, ENUM, 0, "precision"),
    ROW(compile_call, tg_compile_options, CPU, loss_scale, REAL, 0, "loss_scale"),
    ROW(compile_call, tg_compile_options, CPU, any_size, LONG, 0, "any_size"),
    ROW(compile_call, tg_compile_options, CPU, max_sizes, INT, TAKES_HUGE, "max_sizes"),
    ROW0(train_call, tg_train_options, steps, LONG, 0, "steps"),
    ROW0(train_call, tg_train_options, order, ENUM, 0, "order"),
    ROW0(train_call, tg_train_options, feed_count, INT, 0, "feeds"),
    ROW0(train_call, tg_train_options, steps_per_submission, LONG, 0, "steps_per_submission"),
    ROW0(train_call, tg_train_options, target_loss, REAL, TAKES_ZERO | TAKES_NEGATIVE | TAKES_HUGE, "target_loss"),
    ROW0(train_call, tg_train_options, patience, LONG, TAKES_HUGE, "patience"),
    ROW0(tune_call, tg_tune_options, seconds, REAL, 0, "seconds"),
};
#define TAKES_INFINITY 16

typedef struct probe {
    const char *text; /* in the message */
    unsigned takes;
    double real;
    int64_t whole;
} probe;
static const probe reals[] = {{"nan", 0, NAN, 0},
                              {"inf", TAKES_INFINITY, INFINITY, 0},
                              {"-inf", 0, -INFINITY, 0},
                              {"-1", TAKES_NEGATIVE, -1, 0},
                              {"1e+300", TAKES_HUGE, 1e300, 0},
                              {"0", TAKES_ZERO, TG_ZERO, 0}};
static const probe longs[] = {
    {"-1", TAKES_NEGATIVE, 0, -1}, {"-9223372036854775808", TAKES_LEAST, 0, INT64_MIN}, {"9223372036854775807", TAKES_HUGE, 0, INT64_MAX}};
static const probe ints[] = {
    {"-1", TAKES_NEGATIVE, 0, -1}, {"-2147483647", TAKES_LEAST, 0, -INT32_MAX}, {"2147483647", TAKES_HUGE, 0, INT32_MAX}};
static const probe enums[] = {{"-1", 0, 0, -1}, {"99", 0, 0, 99}};

static void put(const option_row *row, const probe *p, unsigned char *options) {
    const int32_t narrow = (int32_t)p->whole;
    memset(options, 0, row->size);
    if (row->base != NULL) memcpy(options, row->base, row->size);
    if (row->number == REAL) memcpy(options + row->at, &p->real, sizeof p->real);
    else if (row->number == LONG) memcpy(options + row->at, &p->whole, sizeof p->whole);
    else memcpy(options + row->at, &narrow, sizeof narrow);
}

static void check_probe(bench *b, const option_row *row, const probe *p) {
    _Alignas(16) unsigned char options[sizeof(tg_compile_options)];
    put(row, p, options);
    tg_clear_error(b->ctx);
    const bool done = row->call(b, options);
    const tg_status status = tg_error(b->ctx);
    const char *message = tg_error_message(b->ctx);
    if ((row->takes & p->takes) != 0) {
        if (!done || status != TG_OK) fail_msg("%s.%s = %s is refused: %s", row->type, row->field, p->text, message);
        return;
    }
    if (done || status == TG_OK) fail_msg("%s.%s = %s is taken", row->type, row->field, p->text);
    if (status != TG_ERROR_ARGUMENT && status != TG_ERROR_SHAPE)
        fail_msg("%s.%s = %s: %s (%s)", row->type, row->field, p->text, tg_status_name(status), message);
    if (strstr(message, row->word) == NULL || strstr(message, p->text) == NULL)
        fail_msg("%s.%s = %s: no \"%s\" or no value in: %s", row->type, row->field, p->text, row->word, message);
    const tg_site at = tg_error_site(b->ctx);
    if (strcmp(at.file, here.file) != 0 || at.line != here.line)
        fail_msg("%s.%s = %s is refused at %s:%d", row->type, row->field, p->text, at.file, at.line);
    tg_clear_error(b->ctx);
}

static const float slope[6] = {1, -2, 3, 1, -2, 3};

static tg_model *line_model(tg_context *ctx, tg_optimizer optimizer) {
    const tg_compile_options o = on_cpu(optimizer);
    tg_model *m = tg_compile(ctx, build_line, NULL, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    return m;
}

static bench make_bench(void) {
    bench b = {.ctx = support_context()};
    b.model = line_model(b.ctx, tg_adam(.lr = tg_lr_constant(0.1), .weight_decay = 0.1));
    b.dataset = tg_dataset_create(b.model, &(tg_feed){"c", TG_F32, slope, 6}, 1, 2);
    assert_non_null(b.dataset);
    return b;
}

static void free_bench(bench *b) {
    tg_dataset_destroy(b->dataset);
    tg_model_destroy(b->model);
    tg_context_destroy(b->ctx);
}

static void step(tg_model *m, const float *c) {
    const tg_feed feed = tg_feed_f32("c", c, 3);
    if (tg_step(m, &feed, 1, NULL) != TG_OK) fail_msg("%s", tg_error_message(tg_model_context(m)));
}
static void weights(tg_model *m, float *w) { assert_int_equal(tg_param_download(m, "w", w, 3), TG_OK); }

static void test_table(void **state) {
    (void)state;
    bench b = make_bench(), fresh = make_bench();
    float w[3], w0[3];
    for (int i = 0; i < SUPPORT_COUNT(rows); i++) {
        const option_row *row = &rows[i];
        const probe *probes = row->number == REAL ? reals : row->number == LONG ? longs : row->number == INT ? ints : enums;
        const int count = row->number == REAL ? SUPPORT_COUNT(reals) : row->number == ENUM ? 2 : 3;
        for (int k = 0; k < count; k++) check_probe(&b, row, &probes[k]);
    }
    assert_int_equal(tg_model_set_lr(b.model, tg_lr_constant(0.1)), TG_OK); /* schedules with a zero were taken */
    for (int t = 0; t < 2; t++) {
        assert_int_equal(tg_model_step_count(b.model), t);
        step(b.model, slope);
        step(fresh.model, slope);
        weights(b.model, w);
        weights(fresh.model, w0);
        assert_memory_equal(w, w0, sizeof w);
    }
    free_bench(&b);
    free_bench(&fresh);
}

/* ---------------------------------------------------------------- no option is left out */

static bool is_number_type(const char *header, const char *type, size_t length) {
    static const char *const plain[] = {"double", "float", "int", "int32_t", "int64_t"};
    char opening[96];
    for (int i = 0; i < SUPPORT_COUNT(plain); i++)
        if (strlen(plain[i]) == length && strncmp(plain[i], type, length) == 0) return true;
    snprintf(opening, sizeof opening, "typedef enum %.*s {", (int)length, type);
    return strstr(header, opening) != NULL;
}

static bool has_options(const char *name) {
    static const char *const others[] = {"tg_optimizer", "tg_param_group", "tg_lr", "tg_init", "tg_padding"};
    const size_t length = strlen(name);
    for (int i = 0; i < SUPPORT_COUNT(others); i++)
        if (strcmp(others[i], name) == 0) return true;
    return length > 8 && strcmp(name + length - 8, "_options") == 0;
}

static void field_is_in_table(const char *type, const char *field, size_t length) {
    if (strncmp(field, "reserved_", length) == 0) return;
    for (int i = 0; i < SUPPORT_COUNT(rows); i++) {
        const char *known = rows[i].field;
        if (strcmp(rows[i].type, type) == 0 && strncmp(known, field, length) == 0 && (known[length] == '\0' || known[length] == '['))
            return;
    }
    fail_msg("%s.%.*s is in no row", type, (int)length, field);
}

/* "double beta1, beta2[2]; ..": each name. Returns how many. */
static int check_line(const char *header, const char *type, const char *line) {
    int found = 0;
    line += strspn(line, " ");
    const size_t length = strcspn(line, " \n");
    if (line[length] != ' ' || !is_number_type(header, line, length)) return 0;
    for (line += length; *line == ' ' || *line == ',';) {
        line += strspn(line, " ,");
        const size_t name = strcspn(line, " ,;[\n");
        field_is_in_table(type, line, name);
        found++;
        line += name;
        if (*line == '[') line += strcspn(line, "]") + 1;
    }
    return found;
}

/* The parts of the public header, one after another. */
static void read_header(char *text, size_t size) {
    static const char *const parts[] = {"core", "trace", "ops", "nn", "optim", "device", "model"};
    size_t length = 0;
    for (int i = 0; i < SUPPORT_COUNT(parts); i++) {
        char path[64];
        snprintf(path, sizeof path, "include/tensorgrad/%s.h", parts[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        length += fread(text + length, 1, size - 1 - length, file);
        fclose(file);
    }
    text[length] = '\0';
}

static void test_no_option_is_left_out(void **state) {
    static char header[400000];
    (void)state;
    read_header(header, sizeof header);
    int structs = 0, fields = 0;
    for (const char *at = header; (at = strstr(at, "\ntypedef struct ")) != NULL;) {
        char name[64] = "";
        at += strlen("\ntypedef struct ");
        if (sscanf(at, "%63[a-z0-9_]", name) != 1 || !has_options(name)) continue;
        structs++;
        for (at = strchr(at, '\n'); at != NULL && at[1] == ' '; at = strchr(at + 1, '\n')) fields += check_line(header, name, at + 1);
    }
    assert_true(structs >= 30 && fields >= 70);
}

/* ---------------------------------------------------------------- rates */

#if defined(__GNUC__)
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wmissing-braces"
#  pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
static tg_optimizer plain_rate(void) { return tg_adam(.lr = 0.05, .beta1 = 0.8); }
#if defined(__GNUC__)
#  pragma GCC diagnostic pop
#endif

static void same_steps(tg_optimizer a, tg_optimizer b, bool same) {
    tg_context *ctx = support_context();
    tg_model *first = line_model(ctx, a), *second = line_model(ctx, b);
    float w[3], v[3];
    for (int t = 0; t < 5; t++) {
        const float c[3] = {1.0F + (float)t, -0.5F, 0.25F * (float)(t - 2)};
        step(first, c);
        step(second, c);
    }
    weights(first, w);
    weights(second, v);
    if (same) assert_memory_equal(w, v, sizeof w);
    else assert_memory_not_equal(w, v, sizeof w);
    tg_model_destroy(first);
    tg_model_destroy(second);
    tg_context_destroy(ctx);
}

static void test_a_number_is_a_constant_rate(void **state) {
    (void)state;
    same_steps(plain_rate(), tg_adam(.lr = tg_lr_constant(0.05), .beta1 = 0.8), true);
    same_steps(plain_rate(), tg_adam(.lr = tg_lr_constant(0.04), .beta1 = 0.8), false);
    tg_context *ctx = support_context();
    tg_model *m = line_model(ctx, tg_sgd(.lr = {.peak = 0.05}));
    float w[3];
    for (int t = 0; t < 4; t++) step(m, slope);
    weights(m, w);
    support_assert_floats("w", w, (const double[]){0.5 - 4 * 0.05, -1 + 4 * 0.1, 2 - 4 * 0.15}, 3, 1e-6, 0);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static void refused(tg_optimizer o, const char *says) {
    tg_context *ctx = support_context();
    const tg_compile_options options = on_cpu(o);
    tg_model *m = tg_compile_at(here, ctx, build_line, NULL, &options);
    if (m != NULL) fail_msg("taken, and not refused with \"%s\"", says);
    assert_int_equal(tg_error(ctx), TG_ERROR_ARGUMENT);
    if (strstr(tg_error_message(ctx), says) == NULL) fail_msg("no \"%s\" in: %s", says, tg_error_message(ctx));
    assert_int_equal(tg_error_site(ctx).line, here.line);
    tg_context_destroy(ctx);
}

static void test_no_rate_is_refused(void **state) {
    (void)state;
    const char *says = "lr is missing or 0 throughout";
    refused(tg_adam(.beta1 = 0.5), says);
    refused(tg_sgd(.lr = {0}), says);
    refused(tg_sgd(.lr = {.peak = TG_ZERO}), says);
    refused(tg_lion(.lr = tg_lr_linear_decay(0, 0, 5)), says);
    refused(tg_muon(.lr = tg_lr_cosine_decay(0, 0, 5)), says);
    refused(tg_rmsprop(.lr = tg_lr_staircase(0, 0.5, 5)), says);
    refused(tg_adagrad(.lr = tg_lr_one_cycle(0, 10)), says);
    refused(tg_adamw(.lr = tg_lr_warmup(0, 3, tg_lr_warmup(0, 3, tg_lr_constant(0)))), says);
    refused(tg_adamw(.lr = {.peak = 1e-60}), says); /* 0 as f32 */
    tg_context *ctx = support_context();
    tg_model *m = line_model(ctx, tg_sgd(.lr = tg_lr_warmup(0, 1, tg_lr_constant(0.1))));
    float w[3];
    step(m, slope);
    weights(m, w);
    support_assert_floats("w", w, (const double[]){0.5, -1, 2}, 3, 0, 0);
    step(m, slope);
    weights(m, w);
    support_assert_floats("w", w, (const double[]){0.4, -0.8, 1.7}, 3, 1e-6, 0);
    assert_int_equal(tg_model_set_lr(m, tg_lr_constant(TG_ZERO)), TG_OK); /* on purpose */
    step(m, slope);
    weights(m, w);
    support_assert_floats("w", w, (const double[]){0.4, -0.8, 1.7}, 3, 1e-6, 0);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- options of other kinds */

static void test_options_of_another_kind(void **state) {
    (void)state;
    static const char *const names[] = {"none", "sgd", "adam", "adamw", "lion", "rmsprop", "adagrad", "muon"};
    static const struct {
        const char *option, *of, *kinds;
        size_t at;
        number_type number;
    } options[] = {
        {"beta1", "adam, adamw, lion and muon", "-adam-adamw-lion-muon-", offsetof(tg_optimizer, beta1), REAL},
        {"beta2", "adam, adamw, lion, rmsprop and muon", "-adam-adamw-lion-rmsprop-muon-", offsetof(tg_optimizer, beta2), REAL},
        {"eps", "adam, adamw, rmsprop, adagrad and muon", "-adam-adamw-rmsprop-adagrad-muon-", offsetof(tg_optimizer, eps), REAL},
        {"eps_mode", "adam, adamw and muon", "-adam-adamw-muon-", offsetof(tg_optimizer, eps_mode), ENUM},
        {"momentum", "sgd, rmsprop and muon", "-sgd-rmsprop-muon-", offsetof(tg_optimizer, momentum), REAL},
    };
    for (int kind = TG_OPTIMIZER_SGD; kind <= TG_OPTIMIZER_MUON; kind++)
        for (int i = 0; i < SUPPORT_COUNT(options); i++)
            for (int zero = 0; zero < 2; zero++) { /* TG_ZERO is given too */
                tg_optimizer o = {.kind = (tg_optimizer_kind)kind, .lr = {.peak = 0.1}};
                const double half = zero ? TG_ZERO : 0.5;
                const tg_eps_mode corrected = TG_EPS_CORRECTED;
                char own[16], says[128];
                if (options[i].number == REAL) memcpy((char *)&o + options[i].at, &half, sizeof half);
                else memcpy((char *)&o + options[i].at, &corrected, sizeof corrected);
                snprintf(own, sizeof own, "-%s-", names[kind]);
                snprintf(says, sizeof says, "%s has no %s: it is an option of %s", names[kind], options[i].option, options[i].of);
                if (strstr(options[i].kinds, own) == NULL) refused(o, says);
                else same_steps(o, o, true); /* compiles */
            }
    refused(tg_adam(.lr = {.peak = 0.1}, .nesterov = true), "adam has no nesterov: it is an option of sgd");
    refused(tg_sgd(.lr = {.peak = 0.1}, .nesterov = true), "nesterov needs a momentum");
    refused(tg_sgd(.lr = {.peak = 0.1}, .nesterov = true, .momentum = TG_ZERO), "nesterov needs a momentum");
    refused((tg_optimizer){.lr = {.peak = 0.1}}, "not which one");
    refused((tg_optimizer){.eps_mode = TG_EPS_CORRECTED}, "not which one");
    refused((tg_optimizer){.beta1 = TG_ZERO}, "not which one");
}

/* ---------------------------------------------------------------- zero on purpose */

typedef struct constants {
    double b1, b2, eps, decay, momentum;
} constants;

/* The header's formulas with these constants, of one weight. */
static void plain_step(tg_optimizer_kind kind, const constants *k, int t, double rate, double g, double *p, double *m, double *v) {
    double update = 0;
    switch (kind) {
    case TG_OPTIMIZER_SGD:
        *m = k->momentum * *m + g;
        update = rate * *m;
        break;
    case TG_OPTIMIZER_LION: {
        const double mixed = k->b1 * *m + (1 - k->b1) * g;
        update = rate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
        *m = k->b2 * *m + (1 - k->b2) * g;
        break;
    }
    case TG_OPTIMIZER_RMSPROP:
        *v = k->b2 * *v + (1 - k->b2) * g * g;
        *m = k->momentum * *m + g / (sqrt(*v) + k->eps);
        update = rate * *m;
        break;
    case TG_OPTIMIZER_ADAGRAD:
        *v += g * g;
        update = rate * g / (sqrt(*v) + k->eps);
        break;
    default:
        *m = k->b1 * *m + (1 - k->b1) * g;
        *v = k->b2 * *v + (1 - k->b2) * g * g;
        update = rate * sqrt(1 - pow(k->b2, t)) / (1 - pow(k->b1, t)) * *m / (sqrt(*v) + k->eps);
    }
    *p = (1 - rate * k->decay) * *p - update;
}

static void check_formula(const char *what, tg_optimizer o, constants k) {
    tg_context *ctx = support_context();
    tg_model *model = line_model(ctx, o);
    double p[3] = {0.5, -1, 2}, m[3] = {0}, v[3] = {0};
    float w[3];
    for (int t = 1; t <= 6; t++) {
        const float c[3] = {t % 2 != 0 ? 1.5F : -0.25F, 3e-9F * (float)t, -0.5F / (float)t};
        step(model, c);
        for (int i = 0; i < 3; i++) plain_step(o.kind, &k, t, o.lr.peak, (double)c[i], &p[i], &m[i], &v[i]);
        weights(model, w);
        support_assert_floats(what, w, p, 3, 3e-6, 1e-6);
    }
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void test_zeros_of_optimizers(void **state) {
    (void)state;
    check_formula("adam", tg_adam(.lr = {.peak = 0.1}), (constants){.9, .999, 1e-8, 0, 0});
    check_formula("adam, beta1 0", tg_adam(.lr = {.peak = 0.1}, .beta1 = TG_ZERO), (constants){0, .999, 1e-8, 0, 0});
    check_formula("adam, beta2 0", tg_adam(.lr = {.peak = 0.1}, .beta2 = TG_ZERO), (constants){.9, 0, 1e-8, 0, 0});
    check_formula("adam, eps 0", tg_adam(.lr = {.peak = 0.1}, .eps = TG_ZERO), (constants){.9, .999, 0, 0, 0});
    check_formula("adam, all 0", tg_adam(.lr = {.peak = 0.1}, .beta1 = TG_ZERO, .beta2 = TG_ZERO, .eps = TG_ZERO), (constants){0});
    check_formula("adamw", tg_adamw(.lr = {.peak = 0.1}), (constants){.9, .999, 1e-8, .01, 0});
    check_formula("adamw, decay 0", tg_adamw(.lr = {.peak = 0.1}, .weight_decay = TG_ZERO), (constants){.9, .999, 1e-8, 0, 0});
    check_formula("lion, beta1 0", tg_lion(.lr = {.peak = 0.1}, .beta1 = TG_ZERO), (constants){0, .99, 0, 0, 0});
    check_formula("lion, beta2 0", tg_lion(.lr = {.peak = 0.1}, .beta2 = TG_ZERO), (constants){.9, 0, 0, 0, 0});
    check_formula("rmsprop, beta2 0", tg_rmsprop(.lr = {.peak = 0.1}, .beta2 = TG_ZERO), (constants){0, 0, 1e-8, 0, 0});
    check_formula("rmsprop, eps 0", tg_rmsprop(.lr = {.peak = 0.01}, .eps = TG_ZERO), (constants){0, .99, 0, 0, 0});
    check_formula("adagrad, eps 0", tg_adagrad(.lr = {.peak = 0.1}, .eps = TG_ZERO), (constants){0});
    check_formula("sgd, momentum 0", tg_sgd(.lr = {.peak = 0.1}, .momentum = TG_ZERO), (constants){0});
}

static void test_zeros_bit_for_bit(void **state) {
    (void)state;
    const tg_param_group bare = {.pattern = "w", .weight_decay = TG_ZERO};
    const tg_optimizer adam = tg_adam(.lr = {.peak = 0.1}), adamw = tg_adamw(.lr = {.peak = 0.1}, .weight_decay = 0.5);
    same_steps(tg_adamw(.lr = {.peak = 0.1}, .weight_decay = TG_ZERO), adam, true);
    same_steps(tg_adamw(.lr = {.peak = 0.1}), adam, false);
    same_steps(tg_adam(.lr = {.peak = 0.1}, .clip_norm = TG_ZERO, .clip_value = TG_ZERO, .average = TG_ZERO), adam, true);
    same_steps(adamw, adam, false);
    tg_optimizer grouped = adamw;
    grouped.groups = &bare;
    grouped.group_count = 1;
    same_steps(grouped, adam, true);
}

static tg_tensor build_two(tg_graph *g, void *user) {
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones()), v = tg_param(g, "v", TG_SHAPE(3), .init = tg_init_ones());
    (void)user;
    return tg_sum_all(tg_mul(tg_add(w, v), tg_input(g, "c", TG_SHAPE(3), TG_F32)));
}

static void test_zero_rate_of_a_group(void **state) {
    static const tg_param_group still = {.pattern = "w", .rate = TG_ZERO};
    const tg_compile_options o = on_cpu(tg_sgd(.lr = {.peak = 0.1}, .weight_decay = 0.5, .groups = &still, .group_count = 1));
    float w[3], v[3];
    (void)state;
    tg_context *ctx = support_context();
    tg_model *m = tg_compile(ctx, build_two, NULL, &o);
    assert_non_null(m);
    step(m, slope);
    weights(m, w);
    assert_int_equal(tg_param_download(m, "v", v, 3), TG_OK);
    support_assert_floats("w", w, (const double[]){1, 1, 1}, 3, 0, 0);
    support_assert_floats("v", v, (const double[]){0.9, 1.2, 0.7}, 3, 1e-6, 0); /* ones do not decay */
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static tg_tensor build_matrix(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_mul(tg_param(g, "w", TG_SHAPE(2, 2), .init = tg_init_zeros()), tg_input(g, "c", TG_SHAPE(2, 2), TG_F32)));
}

/* Without momentum Muon's second step is what a first one of that gradient would be. */
static void test_zero_momentum_of_muon(void **state) {
    (void)state;
    static const float a[4] = {1, 2, -1, 0.5F}, b[4] = {0.25F, -1, 3, 1};
    float after_a[4], after_b[4], alone[4];
    tg_context *ctx = support_context();
    for (int given = 0; given < 2; given++) {
        const tg_compile_options o = on_cpu(tg_muon(.lr = {.peak = 0.5}, .momentum = given ? TG_ZERO : 0));
        tg_model *m = tg_compile(ctx, build_matrix, NULL, &o);
        assert_non_null(m);
        for (int t = 0; t < 2; t++) {
            const tg_feed feed = tg_feed_f32("c", t == 0 ? a : b, 4);
            assert_int_equal(tg_step(m, &feed, 1, NULL), TG_OK);
            assert_int_equal(tg_param_download(m, "w", t == 0 ? after_a : after_b, 4), TG_OK);
        }
        assert_int_equal(tg_model_reset(m), TG_OK);
        const tg_feed feed = tg_feed_f32("c", b, 4);
        assert_int_equal(tg_step(m, &feed, 1, NULL), TG_OK);
        assert_int_equal(tg_param_download(m, "w", alone, 4), TG_OK);
        double most = 0;
        for (int i = 0; i < 4; i++) most = fmax(most, fabs((double)after_b[i] - (double)after_a[i] - (double)alone[i]));
        if (given) assert_true(most < 1e-6);
        else assert_true(most > 1e-3);
        tg_model_destroy(m);
    }
    tg_context_destroy(ctx);
}

static void test_zero_target(void **state) {
    (void)state;
    const tg_train_options none = {.steps = 6, .order = TG_BATCH_SEQUENTIAL},
                           zero = {.steps = 6, .order = TG_BATCH_SEQUENTIAL, .target_loss = TG_ZERO};
    tg_train_result result;
    bench b = make_bench(); /* the loss begins with .5 + 2 + 6 */
    assert_int_equal(tg_model_set_lr(b.model, tg_lr_constant(1)), TG_OK);
    assert_int_equal(tg_train(b.model, b.dataset, &zero, NULL, &result), TG_OK);
    assert_int_equal(result.end, TG_TRAIN_TARGET);
    assert_true(result.steps > 1 && result.steps < 6 && result.loss <= 0);
    assert_int_equal(tg_train(b.model, b.dataset, &none, NULL, &result), TG_OK);
    assert_int_equal(result.end, TG_TRAIN_ALL);
    assert_int_equal(result.steps, 6);
    free_bench(&b);
}

/* ---------------------------------------------------------------- zero on purpose, in traces */

static void run_forward(tg_context *ctx, tg_build_fn build, void *user, const char *name, const float *x, int n, float *out, int count) {
    const tg_compile_options o = {.device = TG_DEVICE_CPU, .threads = 1, .seed = 3};
    tg_model *m = tg_compile_forward(ctx, build, user, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(ctx));
    const tg_feed feed = tg_feed_f32(name, x, n);
    if (tg_run(m, name == NULL ? NULL : &feed, name == NULL ? 0 : 1, out, count) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    tg_model_destroy(m);
}

static tg_tensor build_init(tg_graph *g, void *user) {
    const tg_init *init = user;
    const tg_tensor w = tg_nn_conv1d(g, "c", 2, 3, 2, .init = *init).W;
    return tg_concat(((tg_tensor[]){tg_param(g, "w", TG_SHAPE(12), .init = *init), tg_reshape(w, TG_SHAPE(12))}), 2, 0);
}

static void test_zero_scales(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_init inits[] = {{.scale = TG_ZERO},
                       {.kind = TG_INIT_KAIMING, .scale = TG_ZERO},
                       {.kind = TG_INIT_UNIFORM, .scale = TG_ZERO},
                       tg_init_randn(TG_ZERO),
                       tg_init_kaiming(TG_ZERO),
                       tg_init_uniform(0)};
    float out[24];
    for (int i = 0; i < SUPPORT_COUNT(inits); i++) {
        run_forward(ctx, build_init, &inits[i], NULL, NULL, 0, out, 24);
        for (int k = 0; k < 24; k++) assert_true(out[k] == 0.0F);
    }
    tg_init usual = {0};
    run_forward(ctx, build_init, &usual, NULL, NULL, 0, out, 24);
    for (int k = 0; k < 24; k++) assert_true(out[k] != 0.0F);
    tg_init bare = {.kind = TG_INIT_UNIFORM};
    tg_clear_error(ctx);
    assert_null(tg_compile_forward(ctx, build_init, &bare, NULL));
    assert_non_null(strstr(tg_error_message(ctx), "a uniform initial value needs a bound"));
    tg_context_destroy(ctx);
}

typedef struct zero_norm {
    int which;
    double eps;
} zero_norm;
static tg_tensor build_norm(tg_graph *g, void *user) {
    const zero_norm *z = user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(1, 2, 2), TG_F32);
    switch (z->which) {
    case 0: return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "n", 2, .eps = z->eps), x);
    case 1: return tg_nn_rms_norm_fwd(tg_nn_rms_norm(g, "n", 2, .eps = z->eps), x);
    case 2: return tg_nn_group_norm_fwd(tg_nn_group_norm(g, "n", 2, 2, .eps = z->eps), x);
    default: return tg_nn_batch_norm_fwd(tg_nn_batch_norm(g, "n", 2, .eps = z->eps), x, true);
    }
}

/* Rows of +-1e-3 are +-1 without eps, and +-.3015 with 1e-5. */
static void test_zero_eps(void **state) {
    (void)state;
    static const float x[4] = {1e-3F, -1e-3F, -1e-3F, 1e-3F};
    tg_context *ctx = support_context();
    for (int which = 0; which < 4; which++)
        for (int zero = 0; zero < 2; zero++) {
            zero_norm z = {which, zero ? TG_ZERO : 0};
            const double y = zero ? 1 : 1e-3 / sqrt(1e-6 + 1e-5);
            float out[4];
            run_forward(ctx, build_norm, &z, "x", x, 4, out, 4);
            support_assert_floats("norm", out, (const double[]){y, -y, -y, y}, 4, 1e-5, 0);
        }
    tg_context_destroy(ctx);
}

static tg_tensor build_batch_norm(tg_graph *g, void *user) {
    const tg_batch_norm n = tg_nn_batch_norm(g, "n", 1, .momentum = *(const double *)user);
    return tg_sum_all(tg_nn_batch_norm_fwd(n, tg_input(g, "x", TG_SHAPE(2, 1), TG_F32), true));
}
static tg_tensor build_mean(tg_graph *g, void *user) {
    const tg_batch_norm n = tg_nn_batch_norm(g, "n", 1);
    (void)user;
    return tg_concat(((tg_tensor[]){n.mean, n.var}), 2, 0);
}

static void test_zero_momentum_of_batch_norm(void **state) {
    (void)state;
    static const float x[2] = {1, 5}; /* mean 3, variance 4, unbiased 8 */
    const double momenta[] = {TG_ZERO, 0, 1}, mean[] = {0, 0.3, 3}, var[] = {1, 1.7, 8};
    tg_context *ctx = support_context();
    for (int i = 0; i < 3; i++) {
        double momentum = momenta[i];
        const tg_compile_options o = on_cpu((tg_optimizer){0});
        tg_model *m = tg_compile(ctx, build_batch_norm, &momentum, &o), *reader = tg_compile_sibling(m, build_mean, NULL);
        const tg_feed feed = tg_feed_f32("x", x, 2);
        float got[2];
        assert_non_null(reader);
        assert_int_equal(tg_step(m, &feed, 1, NULL), TG_OK);
        assert_int_equal(tg_run(reader, NULL, 0, got, 2), TG_OK);
        support_assert_floats("mean, var", got, (const double[]){mean[i], var[i]}, 2, 1e-6, 0);
        tg_model_destroy(m);
    }
    tg_context_destroy(ctx);
}

static tg_tensor build_smooth(tg_graph *g, void *user) {
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(2, 3), TG_F32), t = tg_constant(g, TG_SHAPE(2), TG_I32, ((int32_t[]){0, 2}), 2);
    return tg_nn_cross_entropy(x, t, -1, .label_smoothing = *(const double *)user);
}
static tg_tensor build_attention(tg_graph *g, void *user) {
    const tg_attention a = tg_nn_attention(g, "a", 4, 2, .init = tg_init_randn(0.5), .rope_base = *(const double *)user);
    return tg_nn_attention_fwd(a, tg_input(g, "x", TG_SHAPE(1, 3, 4), TG_F32));
}

static void test_zero_is_off(void **state) {
    (void)state;
    static const float x[12] = {1, 2, -1, 0.5F, 0, 3, 1, -2, 0.25F, 1, 1, -1};
    double options[] = {0, TG_ZERO, 0.3}, bases[] = {0, TG_ZERO, 100};
    float loss[3], y[3][12];
    tg_context *ctx = support_context();
    for (int i = 0; i < 3; i++) {
        run_forward(ctx, build_smooth, &options[i], "x", x, 6, &loss[i], 1);
        run_forward(ctx, build_attention, &bases[i], "x", x, 12, y[i], 12);
    }
    assert_true(loss[0] == loss[1] && loss[0] != loss[2]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_not_equal(y[0], y[2], sizeof y[0]);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- numbers where structs belong */

/* What `.padding = 1` and `.init = 1` are where the compiler lets an integer be a pointer. */
static void test_numbers_are_no_structs(void **state) {
    (void)state;
    static const float one = 1;
    bench b = make_bench();
    const tg_padding padding = {.none_ = &one};
    const call_fn calls[] = {conv_padding, layer_padding, pool_padding};
    for (int i = 0; i < 3; i++) {
        assert_false(calls[i](&b, &padding));
        assert_int_equal(tg_error(b.ctx), TG_ERROR_ARGUMENT);
        assert_non_null(strstr(tg_error_message(b.ctx), "tg_padding_all(1) is one on every side"));
        assert_int_equal(tg_error_site(b.ctx).line, here.line);
        tg_clear_error(b.ctx);
    }
    const tg_init init = {.data = &one};
    assert_false(param_init(&b, &init));
    assert_int_equal(tg_error(b.ctx), TG_ERROR_ARGUMENT);
    assert_non_null(strstr(tg_error_message(b.ctx), "only a literal initial value has data"));
    free_bench(&b);
}

/* ---------------------------------------------------------------- frozen layers */

typedef struct frozen_layer {
    int which;
    bool frozen;
} frozen_layer;
enum { LAYER_KINDS = 14 };

static tg_tensor layer_output(tg_graph *g, int which, bool f) {
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(2, 4, 4), TG_F32);
    const tg_tensor image = tg_reshape(x, TG_SHAPE(2, 4, 2, 2)), indices = tg_cast(tg_abs(x), TG_I32);
    switch (which) {
    case 0: return tg_nn_linear_fwd(tg_nn_linear(g, "l", 4, 3, .frozen = f), x);
    case 1: return tg_nn_embedding_fwd(tg_nn_embedding(g, "l", 9, 3, .frozen = f), indices);
    case 2: return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "l", 4, .frozen = f), x);
    case 3: return tg_nn_rms_norm_fwd(tg_nn_rms_norm(g, "l", 4, .frozen = f), x);
    case 4: return tg_nn_group_norm_fwd(tg_nn_group_norm(g, "l", 2, 4, .frozen = f), x);
    case 5: return tg_nn_batch_norm_fwd(tg_nn_batch_norm(g, "l", 4, .frozen = f), x, true);
    case 6: return tg_nn_conv1d_fwd(tg_nn_conv1d(g, "l", 4, 3, 2, .frozen = f), x);
    case 7: return tg_nn_conv2d_fwd(tg_nn_conv2d(g, "l", 4, 3, 2, 2, .frozen = f), image);
    case 8: return tg_nn_conv_transpose2d_fwd(tg_nn_conv_transpose2d(g, "l", 4, 3, 2, 2, .frozen = f), image);
    case 9: return tg_nn_rnn_fwd(tg_nn_rnn(g, "l", 4, 3, .frozen = f), x);
    case 10: return tg_nn_gru_fwd(tg_nn_gru(g, "l", 4, 3, .frozen = f), x);
    case 11: return tg_nn_lstm_fwd(tg_nn_lstm(g, "l", 4, 3, .frozen = f), x).h;
    case 12: return tg_nn_attention_fwd(tg_nn_attention(g, "l", 4, 2, .frozen = f), x);
    default: return tg_nn_mlp_fwd(tg_nn_mlp(g, "l", ((const int64_t[]){4, 5, 3}), 3, .activation = tg_tanh_at, .frozen = f), x);
    }
}

static tg_tensor build_frozen(tg_graph *g, void *user) {
    const frozen_layer *l = user;
    const tg_tensor free = tg_param(g, "free", TG_SCALAR, .init = tg_init_ones()), y = layer_output(g, l->which, l->frozen);
    return tg_mean(tg_mul(free, tg_square(tg_add(y, 0.5))), TG_ALL);
}

/* All parameters but "free": how many, how many moved in a step, how many have a gradient. */
static void count_moves(tg_model *m, const tg_feed *feed, int *moved, int *pulled, int *all) {
    float before[64][64], after[64], gradient[64];
    *moved = *pulled = *all = 0;
    const int count = tg_model_param_count(m);
    assert_in_range(count, 2, 64);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            const char *name = tg_model_param_name(m, i);
            tg_shape shape;
            assert_int_equal(tg_model_param_shape(m, name, &shape), TG_OK);
            const int64_t n = tg_shape_count(shape);
            bool pulls = false;
            assert_in_range(n, 1, 64);
            if (pass == 0) assert_int_equal(tg_param_download(m, name, before[i], n), TG_OK);
            if (pass == 0 || strcmp(name, "free") == 0) continue;
            assert_int_equal(tg_param_download(m, name, after, n), TG_OK);
            assert_int_equal(tg_param_grad_download(m, name, gradient, n), TG_OK);
            for (int k = 0; k < n; k++) pulls = pulls || gradient[k] != 0.0F;
            *moved += memcmp(before[i], after, (size_t)n * sizeof(float)) != 0;
            *pulled += pulls;
            ++*all;
        }
        if (pass == 0 && tg_step(m, feed, 1, NULL) != TG_OK) fail_msg("%s", tg_error_message(tg_model_context(m)));
    }
}

static void test_frozen_layers(void **state) {
    static const int parameters[LAYER_KINDS] = {2, 1, 2, 1, 2, 2, 2, 2, 2, 4, 4, 4, 8, 4};
    float x[32];
    (void)state;
    for (int i = 0; i < 32; i++) x[i] = (float)((i * 7) % 11) * 0.5F - 2.0F;
    const tg_feed feed = tg_feed_f32("x", x, 32);
    tg_context *ctx = support_context();
    for (int which = 0; which < LAYER_KINDS; which++)
        for (int frozen = 0; frozen < 2; frozen++) {
            frozen_layer l = {which, frozen != 0};
            const tg_compile_options o = on_cpu(tg_adamw(.lr = {.peak = 0.1}));
            tg_model *m = tg_compile(ctx, build_frozen, &l, &o);
            int moved = 0, pulled = 0, all = 0;
            if (m == NULL) fail_msg("layer %d: %s", which, tg_error_message(ctx));
            count_moves(m, &feed, &moved, &pulled, &all);
            assert_int_equal(all, parameters[which]);
            if (moved != (frozen ? 0 : all)) fail_msg("layer %d: %d of %d parameters moved", which, moved, all);
            if (pulled != (frozen ? 0 : all)) fail_msg("layer %d: %d of %d parameters have a gradient", which, pulled, all);
            tg_model_destroy(m);
        }
    tg_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_no_option_is_left_out),
        cmocka_unit_test(test_a_number_is_a_constant_rate),
        cmocka_unit_test(test_no_rate_is_refused),
        cmocka_unit_test(test_options_of_another_kind),
        cmocka_unit_test(test_zeros_of_optimizers),
        cmocka_unit_test(test_zeros_bit_for_bit),
        cmocka_unit_test(test_zero_rate_of_a_group),
        cmocka_unit_test(test_zero_momentum_of_muon),
        cmocka_unit_test(test_zero_target),
        cmocka_unit_test(test_zero_scales),
        cmocka_unit_test(test_zero_eps),
        cmocka_unit_test(test_zero_momentum_of_batch_norm),
        cmocka_unit_test(test_zero_is_off),
        cmocka_unit_test(test_numbers_are_no_structs),
        cmocka_unit_test(test_frozen_layers),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
