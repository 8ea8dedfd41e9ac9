/* tensorgrad, optim: learning rates and optimisers. Both are plain values that tg_compile takes. */
#ifndef TENSORGRAD_OPTIM_H
#define TENSORGRAD_OPTIM_H

#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- learning rates, optimisers */

typedef enum tg_lr_kind {
    TG_LR_CONSTANT = 0,
    TG_LR_LINEAR,
    TG_LR_COSINE,
    TG_LR_WARMUP,
    TG_LR_STAIRCASE,
    TG_LR_MULTI_STEP,
    TG_LR_ONE_CYCLE
} tg_lr_kind;
#define TG_LR_MILESTONES 6
#define TG_LR_WARMUPS 2 /* at most, one after another */
/* A plain value. The step evaluates it at t = 1, 2, ... t counts updates and is 1 in the first. An
 * update is one step, or `accumulate` steps with gradient accumulation.
 *   constant: peak
 *   linear: peak + (final - peak) min(t / steps, 1)
 *   cosine: final + (peak - final) (1 + cos(pi min(t / steps, 1))) / 2
 *   warm-up: peak t / warmup_steps for t <= warmup_steps, then `after` at t - warmup_steps;
 *    `after` may be a warm-up again
 *   staircase: peak factor^floor((t - 1) / steps), so `steps` updates have each rate
 *   multi-step: peak factor^n, with n the number of milestones under t: the rate falls after
 *    update m for a milestone m
 *   one cycle (Smith & Topin 2018): initial + (peak - initial) (1 - cos(pi t / rise)) / 2 for
 *    t <= rise, then
 *    final + (peak - final) (1 + cos(pi min((t - rise) / (steps - rise), 1))) / 2 */
typedef struct tg_lr { /* .lr = {0.05} is tg_lr_constant(0.05) */
    double peak;
    tg_lr_kind kind;
    double final;
    int64_t steps;
    /* warm-up only: the schedule after the last warm-up. The fields from `factor` on belong to
     * it. */
    tg_lr_kind after_kind;
    double after_peak, after_final;
    int64_t after_steps;
    double factor;                        /* staircase, multi-step: over 0 */
    double initial;                       /* one cycle */
    int64_t rise;                         /* one cycle: 1 to steps - 1 */
    int64_t milestones[TG_LR_MILESTONES]; /* multi-step: rising, from 1 */
    int32_t milestone_count;
    /* warm-up only: the warm-ups after the first */
    int32_t more_count; /* at most TG_LR_WARMUPS - 1 */
    double more_peaks[TG_LR_WARMUPS - 1];
    int64_t more_steps[TG_LR_WARMUPS - 1];
} tg_lr;
TG_API tg_lr tg_lr_constant(double rate);
TG_API tg_lr tg_lr_linear_decay(double peak, double final, int64_t steps);
TG_API tg_lr tg_lr_cosine_decay(double peak, double final, int64_t steps);
/* More than TG_LR_WARMUPS in a row are kept as a count; the call that uses the schedule refuses
 * it. */
TG_API tg_lr tg_lr_warmup(double peak, int64_t warmup_steps, tg_lr after);
TG_API tg_lr tg_lr_staircase(double peak, double factor, int64_t steps);
/* More than TG_LR_MILESTONES are kept as a count; the call that uses the schedule refuses it. */
TG_API tg_lr tg_lr_multi_step(double peak, double factor, const int64_t *milestones, int count);
/* Up from peak / 25 to peak in 3 tenths of the steps, then down to peak / 250,000 (the usual
 * choice). Change the fields for other numbers. */
TG_API tg_lr tg_lr_one_cycle(double peak, int64_t steps);
TG_API double tg_lr_value(tg_lr schedule, int64_t t); /* on the host, by the same formula */
/* The rate as a rank-0 f32 tensor; t is an i32 rank-0 tensor. */
TG_API tg_tensor tg_resolve_lr_at(tg_site site, tg_lr schedule, tg_tensor t);
#define tg_resolve_lr(...) tg_resolve_lr_at(TG_SITE, __VA_ARGS__)

typedef enum tg_optimizer_kind {
    TG_OPTIMIZER_NONE = 0,
    TG_OPTIMIZER_SGD,
    TG_OPTIMIZER_ADAM,
    TG_OPTIMIZER_ADAMW,
    TG_OPTIMIZER_LION,
    TG_OPTIMIZER_RMSPROP,
    TG_OPTIMIZER_ADAGRAD,
    TG_OPTIMIZER_MUON
} tg_optimizer_kind;
typedef enum tg_eps_mode {
    /* lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt v + eps): Kingma & Ba's closing remark, TensorFlow */
    TG_EPS_UNCORRECTED = 0,
    TG_EPS_CORRECTED = 1 /* lr m^ / (sqrt v^ + eps): PyTorch */
} tg_eps_mode;
/* Options for the parameters whose names match `pattern`: '*' matches any characters, '?' any one.
 * A parameter belongs to the first group that matches its name. A group that gets no parameter
 * (nothing matches, or earlier groups have all) is TG_ERROR_NOT_FOUND. */
typedef struct tg_param_group {
    const char *pattern;
    /* [1] factor of the schedule's rate, also for decay; TG_ZERO: 0, but not in all groups */
    double rate;
    double weight_decay; /* [0: the optimizer's] for the parameters that decay; TG_ZERO: none */
    /* whether they decay; TG_DEFAULT: as their own flag (or decay_filter) says */
    tg_choice decay;
    bool frozen; /* not trained; no gradient is computed */
    bool plain;  /* Muon: Adam's update for matrices too (embeddings, the last layer) */
} tg_param_group;
/* A field that is 0 has the default in [brackets]. TG_ZERO is 0, also where 0 means "off". An
 * option of another kind is refused. Decay is decoupled, for parameters whose decay flag is set:
 * p <- (1 - lr wd) p - update. g is the gradient after, in this order, accumulation, clip_value,
 * and clip_norm or normalize.
 *   SGD: buf = momentum buf + g; update = lr (nesterov ? g + momentum buf : buf).
 *   Adam: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; tg_eps_mode has the update.
 *    Kingma & Ba 2015.
 *   AdamW: Adam with weight_decay [0.01]. Loshchilov & Hutter 2019.
 *   Lion: update = lr sign(beta1 m + (1 - beta1) g); then m = beta2 m + (1 - beta2) g. [.9, .99]
 *    Chen et al. 2023.
 *   RMSProp: v = beta2 v + (1 - beta2) g g [.99]; d = g / (sqrt v + eps); with momentum
 *    buf = momentum buf + d, d = buf; update = lr d.
 *   Adagrad: v = v + g g; update = lr g / (sqrt v + eps) [1e-10]. Duchi et al. 2011.
 *   Muon: parameters of rank 2 or more, as matrices [dim 0, the rest]:
 *    buf = momentum buf + g [.95]; O = the orthogonal factor of g + momentum buf by five quintic
 *    Newton-Schulz steps (3.4445, -4.7750, 2.0315); update = lr 0.2 sqrt(max(rows, columns)) O.
 *    Its size is like that of Adam's update, so one rate serves both. The other parameters: Adam.
 *    Jordan et al. 2024, Liu et al. 2025.
 * A parameter that the loss does not use has gradient 0, and decays if its flag says so. An
 * optimizer without any unfrozen parameter is TG_ERROR_GRADIENT.
 * An average begins at the first update, with the parameters after it. Steps that only accumulate
 * do not change it.
 * Norms neither overflow nor vanish: (3e20, 4e20) and (3e-30, 4e-30) have their length. Where g is
 * squared (Adam, AdamW, RMSProp, Adagrad, Muon's other parameters), finite elements beyond 2^63
 * count as 2^63 of their sign; in Muon, those beyond 2^126 (1 - momentum) count as that. Adagrad's
 * v stops at the largest f32 number. With eps under 2^-60 an update is never more than the formula
 * allows, and 0 / 0 is 0. */
typedef struct tg_optimizer {
    tg_optimizer_kind kind;
    tg_lr lr; /* its rate must be over 0 at some step */
    /* [.9, .999, 1e-8] unless said otherwise; in [0, 1), eps a normal f32 number; TG_ZERO: 0 */
    double beta1, beta2, eps;
    tg_eps_mode eps_mode; /* Adam, AdamW, Muon */
    double weight_decay;  /* [0] at least 0; TG_ZERO: none, also for AdamW */
    double momentum;      /* [0] in [0, 1): SGD, RMSProp, Muon; TG_ZERO: none, also for Muon */
    bool nesterov;        /* SGD with momentum */
    /* [0: off] scales all gradients by min(1, clip_norm / ||g||), ||g|| over all parameters */
    double clip_norm;
    double clip_value; /* [0: off] cuts each element to [-clip_value, clip_value] */
    bool normalize;    /* g / ||g||, 0 where ||g|| is 0; not with clip_norm */
    /* a step whose loss or gradient is not finite changes nothing: see tg_step */
    bool skip_non_finite;
    /* [1] parameters change once in `accumulate` steps, by the mean of the gradients of these
     * steps */
    int64_t accumulate;
    /* [0: off] in (0, 1): keeps avg = avg + (1 - average) (p - avg) of the parameters, see
     * tg_compile_average */
    double average;
    const tg_param_group *groups; /* borrowed during the call */
    int group_count;
    /* when set, replaces the decay flags; called while compiling */
    bool (*decay_filter)(void *user, const char *name);
    void *decay_user;
    int reserved_;
} tg_optimizer;
#define tg_adam(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAM, __VA_ARGS__)
#define tg_adamw(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAMW, __VA_ARGS__)
#define tg_sgd(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_SGD, __VA_ARGS__)
#define tg_lion(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_LION, __VA_ARGS__)
#define tg_rmsprop(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_RMSPROP, __VA_ARGS__)
#define tg_adagrad(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_ADAGRAD, __VA_ARGS__)
#define tg_muon(...) TG_OPTIONS_(tg_optimizer, .kind = TG_OPTIMIZER_MUON, __VA_ARGS__)

/* ---------------------------------------------------------------- in a trace */

/* Appends the optimiser over all unfrozen parameters: gradients, update, writebacks, step counter.
 * Call it in a build function, once (TG_ERROR_DUPLICATE), after the last parameter
 * (TG_ERROR_STATE), and compile the model without an optimizer of its own. Its steps report as
 * those of a model with one: see tg_step. */
TG_API tg_status tg_append_optimizer_at(tg_site site, tg_tensor loss, const tg_optimizer *optimizer);
#define tg_append_optimizer(...) tg_append_optimizer_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_OPTIM_H */
