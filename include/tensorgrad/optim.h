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
#define TG_LR_WARMUPS 2 /* one after another, at most */
/* A plain value; evaluated in the step at t = 1, 2, ... (t counts updates, the first has t = 1: an update is a step, or with gradient
 * accumulation `accumulate` steps).
 *  constant: peak.   linear: peak + (final - peak) min(t / steps, 1).
 *  cosine: final + (peak - final) (1 + cos(pi min(t / steps, 1))) / 2.
 *  warm-up: peak t / warmup_steps for t <= warmup_steps, then `after` at t - warmup_steps, which may be a warm-up again.
 *  staircase: peak factor^floor((t - 1) / steps): `steps` updates at each rate.
 *  multi-step: peak factor^n, n: how many milestones are under t (after milestone m updates the rate falls).
 *  one cycle (Smith & Topin 2018): initial + (peak - initial) (1 - cos(pi t / rise)) / 2 for t <= rise, then
 *  final + (peak - final) (1 + cos(pi min((t - rise) / (steps - rise), 1))) / 2. */
typedef struct tg_lr { /* .lr = {0.05} is tg_lr_constant(0.05) */
    double peak;
    tg_lr_kind kind;
    double final;
    int64_t steps;
    /* warm-up only: the schedule that follows the last warm-up; the fields from `factor` on then belong to it */
    tg_lr_kind after_kind;
    double after_peak, after_final;
    int64_t after_steps;
    double factor;                        /* staircase, multi-step: over 0 */
    double initial;                       /* one cycle */
    int64_t rise;                         /* one cycle: 1 to steps - 1 */
    int64_t milestones[TG_LR_MILESTONES]; /* multi-step: rising, from 1 on */
    int32_t milestone_count;
    /* warm-up only: the warm-ups that follow the first */
    int32_t more_count; /* at most TG_LR_WARMUPS - 1 */
    double more_peaks[TG_LR_WARMUPS - 1];
    int64_t more_steps[TG_LR_WARMUPS - 1];
} tg_lr;
TG_API tg_lr tg_lr_constant(double rate);
TG_API tg_lr tg_lr_linear_decay(double peak, double final, int64_t steps);
TG_API tg_lr tg_lr_cosine_decay(double peak, double final, int64_t steps);
/* More than TG_LR_WARMUPS in a row are kept as a count, which whoever uses the schedule refuses. */
TG_API tg_lr tg_lr_warmup(double peak, int64_t warmup_steps, tg_lr after);
TG_API tg_lr tg_lr_staircase(double peak, double factor, int64_t steps);
/* More than TG_LR_MILESTONES are kept as a count, which whoever uses the schedule refuses. */
TG_API tg_lr tg_lr_multi_step(double peak, double factor, const int64_t *milestones, int count);
/* From peak / 25 up to peak in 3 tenths of the steps, then down to peak / 250,000 (the usual choice); change the fields for another. */
TG_API tg_lr tg_lr_one_cycle(double peak, int64_t steps);
TG_API double tg_lr_value(tg_lr schedule, int64_t t); /* on the host, same formula */
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
    TG_EPS_UNCORRECTED = 0, /* lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt v + eps): Kingma & Ba's closing remark, TensorFlow */
    TG_EPS_CORRECTED = 1    /* lr m^ / (sqrt v^ + eps): PyTorch */
} tg_eps_mode;
/* Options for the parameters whose names match `pattern`: '*' stands for any run of characters, '?' for any one. The first group that
 * matches a name has it. A group that matches nothing, or only what earlier groups have, is TG_ERROR_NOT_FOUND. */
typedef struct tg_param_group {
    const char *pattern;
    double rate;         /* [1] factor of the schedule's rate, of decay too; TG_ZERO: 0, but not in every group */
    double weight_decay; /* [0: the optimizer's] for those that decay; TG_ZERO: none */
    tg_choice decay;     /* whether they decay; TG_DEFAULT: as their own flag (or decay_filter) says */
    bool frozen;         /* not trained, and no gradient computed */
    bool plain;          /* Muon: Adam's update for matrices too (embeddings, the last layer) */
} tg_param_group;
/* Zero fields mean the default in brackets; TG_ZERO is 0, where that is "off" too. An option of other kinds is refused.
 * Decay is decoupled and acts on parameters whose decay flag is set: p <- (1 - lr wd) p - update.
 * g: the gradient, after (in this order) accumulation, clip_value, and clip_norm or normalize.
 * SGD: buf = momentum buf + g; update = lr (nesterov ? g + momentum buf : buf).
 * Adam: m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g; the update is beside eps_mode. Kingma & Ba 2015.
 * AdamW: Adam with a weight_decay of [0.01]. Loshchilov & Hutter 2019.
 * Lion: update = lr sign(beta1 m + (1 - beta1) g); then m = beta2 m + (1 - beta2) g. [.9, .99] Chen et al. 2023.
 * RMSProp: v = beta2 v + (1 - beta2) g g [.99]; d = g / (sqrt v + eps); with momentum buf = momentum buf + d, d = buf; update = lr d.
 * Adagrad: v = v + g g; update = lr g / (sqrt v + eps) [1e-10]. Duchi et al. 2011.
 * Muon: parameters of rank 2 or more, as matrices [dim 0, the rest]: buf = momentum buf + g [.95]; O = the orthogonal factor of
 *   g + momentum buf by five quintic Newton-Schulz steps (3.4445, -4.7750, 2.0315); update = lr 0.2 sqrt(max(rows, columns)) O, whose size
 *   is like Adam's, so that one rate serves both. The other parameters: Adam. Jordan et al. 2024, Liu et al. 2025.
 * A parameter the loss does not use has gradient 0, and decays if its flag says so. An optimizer without any unfrozen parameter
 * is TG_ERROR_GRADIENT.
 * An average begins with the first update, as the parameters behind it; steps that only accumulate leave it alone.
 * Norms neither overflow nor vanish: (3e20, 4e20) and (3e-30, 4e-30) have their length. Where g is squared (Adam, AdamW, RMSProp,
 * Adagrad, Muon's other parameters), finite elements beyond 2^63 count as 2^63 of their sign, in Muon beyond 2^126 (1 - momentum) as that,
 * and Adagrad's v ends at the largest f32 number; with eps under 2^-60 an update is no more than the formula allows, 0 / 0 is 0. */
typedef struct tg_optimizer {
    tg_optimizer_kind kind;
    tg_lr lr;                 /* its rate is over 0 at some step */
    double beta1, beta2, eps; /* [.9, .999, 1e-8] where nothing else is said; in [0, 1), eps a normal f32 number; TG_ZERO: 0 */
    tg_eps_mode eps_mode;     /* Adam, AdamW, Muon */
    double weight_decay;      /* [0] at least 0; TG_ZERO: none, of AdamW too */
    double momentum;          /* [0] in [0, 1): SGD, RMSProp, Muon; TG_ZERO: none, of Muon too */
    bool nesterov;            /* SGD with a momentum */
    double clip_norm;         /* [0: off] scale all gradients by min(1, clip_norm / ||g||), ||g|| over all parameters */
    double clip_value;        /* [0: off] every element to [-clip_value, clip_value] */
    bool normalize;           /* g / ||g||, 0 where ||g|| is 0; not together with clip_norm */
    bool skip_non_finite;     /* a step whose loss or gradient is not finite changes nothing: see tg_step */
    int64_t accumulate;       /* [1] parameters change every so many steps, by the mean of their gradients */
    double average;           /* [0: off] in (0, 1): keep avg = avg + (1 - average) (p - avg) of the parameters, see tg_compile_average */
    const tg_param_group *groups; /* borrowed during the call */
    int group_count;
    bool (*decay_filter)(void *user, const char *name); /* overrides the decay flags when set; called while compiling */
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

/* Appends the optimiser over every unfrozen parameter: gradients, update, writebacks, step counter. In a build function, once
 * (TG_ERROR_DUPLICATE), after the last parameter (TG_ERROR_STATE); compile the model without an optimizer of its own then. Steps
 * are told as of such a model: see tg_step. */
TG_API tg_status tg_append_optimizer_at(tg_site site, tg_tensor loss, const tg_optimizer *optimizer);
#define tg_append_optimizer(...) tg_append_optimizer_at(TG_SITE, __VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_OPTIM_H */
