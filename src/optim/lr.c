/* lr: learning-rate schedules as values on the host, and as graph nodes, whose numbers are
 * constants or read from a state. All three follow the formulas at tg_lr in the public header. Must
 * not know optimisers. */
#include "optim/optim.h"
#include "trace/trace.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double lr_pi = 3.14159265358979323846;
/* f32 holds both parts of the start exactly */
static const int64_t lr_start_base = (int64_t)1 << 20;

/* The numbers of the state: one form for all schedules. See lr_rate_nodes. */
enum {
    /* Where each warm-up ends. An absent one ends where the one before it does, the first at 0. */
    LR_WARMUP,
    /* of each warm-up: its peak divided by its steps */
    LR_WARMUP_SLOPE = LR_WARMUP + TG_LR_WARMUPS,
    LR_INITIAL = LR_WARMUP_SLOPE + TG_LR_WARMUPS,
    LR_RISE, /* steps of the rise; 0: none */
    LR_PEAK,
    LR_FINAL,
    LR_FALL,  /* steps of the part after the rise, at least 1 */
    LR_WAVE,  /* 1: along a cosine; 0: along a line */
    LR_STAIR, /* steps of one stair; 2^30: no stairs */
    LR_LOG_FACTOR,
    LR_MILESTONES,
    LR_START_LOW = LR_MILESTONES + TG_LR_MILESTONES,
    LR_START_HIGH
};
#define LR_WARM (LR_WARMUP + TG_LR_WARMUPS - 1) /* where the last warm-up ends */

/* ---------------------------------------------------------------- values */

tg_lr tg_lr_constant(double rate) {
    tg_lr lr;
    memset(&lr, 0, sizeof lr);
    lr.kind = TG_LR_CONSTANT;
    lr.peak = lr.final = rate;
    return lr;
}

static tg_lr lr_decay(tg_lr_kind kind, double peak, double final, int64_t steps) {
    tg_lr lr = tg_lr_constant(peak);
    lr.kind = kind;
    lr.final = final;
    lr.steps = steps;
    return lr;
}

tg_lr tg_lr_linear_decay(double peak, double final, int64_t steps) { return lr_decay(TG_LR_LINEAR, peak, final, steps); }

tg_lr tg_lr_cosine_decay(double peak, double final, int64_t steps) { return lr_decay(TG_LR_COSINE, peak, final, steps); }

/* `after` is a warm-up: puts a new one before its warm-ups. */
static tg_lr lr_prepend(tg_lr after, double peak, int64_t warmup_steps) {
    const double own_peak = after.peak;
    const int64_t own_steps = after.steps;
    for (int i = TG_LR_WARMUPS - 2; i > 0; i--) {
        after.more_peaks[i] = after.more_peaks[i - 1];
        after.more_steps[i] = after.more_steps[i - 1];
    }
    after.more_peaks[0] = own_peak;
    after.more_steps[0] = own_steps;
    if (after.more_count < INT32_MAX) after.more_count++;
    after.peak = after.final = peak;
    after.steps = warmup_steps;
    return after;
}

tg_lr tg_lr_warmup(double peak, int64_t warmup_steps, tg_lr after) {
    if (after.kind == TG_LR_WARMUP) return lr_prepend(after, peak, warmup_steps);
    tg_lr lr = lr_decay(TG_LR_WARMUP, peak, peak, warmup_steps);
    lr.after_kind = after.kind;
    lr.after_peak = after.peak;
    lr.after_final = after.final;
    lr.after_steps = after.steps;
    lr.factor = after.factor;
    lr.initial = after.initial;
    lr.rise = after.rise;
    lr.milestone_count = after.milestone_count;
    memcpy(lr.milestones, after.milestones, sizeof lr.milestones);
    return lr;
}

tg_lr tg_lr_staircase(double peak, double factor, int64_t steps) {
    tg_lr lr = lr_decay(TG_LR_STAIRCASE, peak, peak, steps);
    lr.factor = factor;
    return lr;
}

tg_lr tg_lr_multi_step(double peak, double factor, const int64_t *milestones, int count) {
    tg_lr lr = lr_decay(TG_LR_MULTI_STEP, peak, peak, 1);
    lr.factor = factor;
    lr.milestone_count = count;
    for (int i = 0; milestones != NULL && i < count && i < TG_LR_MILESTONES; i++) lr.milestones[i] = milestones[i];
    return lr;
}

tg_lr tg_lr_one_cycle(double peak, int64_t steps) {
    tg_lr lr = lr_decay(TG_LR_ONE_CYCLE, peak, peak / 250000.0, steps);
    lr.initial = peak / 25.0;
    lr.rise = steps / 10 * 3 + steps % 10 * 3 / 10;
    if (lr.rise < 1) lr.rise = 1;
    return lr;
}

/* The schedule without its warm-ups. */
static tg_lr lr_proper(tg_lr lr) {
    if (lr.kind != TG_LR_WARMUP) return lr;
    lr.kind = lr.after_kind;
    lr.peak = lr.after_peak;
    lr.final = lr.after_final;
    lr.steps = lr.after_steps;
    return lr;
}

/* from + (to - from) (1 - cos(pi part)) / 2 */
static double lr_wave(double from, double to, double part) { return from + (to - from) * 0.5 * (1.0 - cos(lr_pi * part)); }

static double lr_steps_value(const tg_lr *s, int64_t t) {
    double rate = s->peak;
    if (s->kind == TG_LR_STAIRCASE) return s->steps > 0 && t > 1 ? s->peak * pow(s->factor, (double)((t - 1) / s->steps)) : s->peak;
    for (int i = 0; i < s->milestone_count && i < TG_LR_MILESTONES; i++) rate = s->milestones[i] < t ? rate * s->factor : rate;
    return rate;
}

static double lr_base_value(const tg_lr *s, int64_t t) {
    if (s->kind == TG_LR_CONSTANT) return s->peak;
    if (s->kind == TG_LR_STAIRCASE || s->kind == TG_LR_MULTI_STEP) return lr_steps_value(s, t);
    if (t >= s->steps) return s->final;
    if (s->kind == TG_LR_LINEAR) return s->peak + (s->final - s->peak) * ((double)t / (double)s->steps);
    if (s->kind == TG_LR_COSINE) return lr_wave(s->peak, s->final, (double)t / (double)s->steps);
    if (t <= s->rise) return lr_wave(s->initial, s->peak, (double)t / (double)s->rise);
    return lr_wave(s->peak, s->final, ((double)t - (double)s->rise) / ((double)s->steps - (double)s->rise));
}

/* The number of warm-ups after the first. */
static int lr_more(const tg_lr *s) {
    const int32_t most = TG_LR_WARMUPS - 1;
    return s->kind != TG_LR_WARMUP || s->more_count < 0 ? 0 : s->more_count < most ? s->more_count : most;
}

/* Whether t lies in a warm-up of `steps` steps; *rate is the rate there. If not, subtracts its
 * steps from t. */
static bool lr_warms(double peak, int64_t steps, int64_t *t, double *rate) {
    if (steps <= 0) return false;
    *rate = peak * (double)*t / (double)steps;
    if (*t <= steps) return true;
    *t -= steps;
    return false;
}

double tg_lr_value(tg_lr lr, int64_t t) {
    const tg_lr proper = lr_proper(lr);
    if (t < 0) t = 0; /* steps are counted from 1 */
    if (lr.kind != TG_LR_WARMUP) return lr_base_value(&proper, t);
    double rate = 0.0;
    if (lr_warms(lr.peak, lr.steps, &t, &rate)) return rate;
    for (int i = 0; i < lr_more(&lr); i++)
        if (lr_warms(lr.more_peaks[i], lr.more_steps[i], &t, &rate)) return rate;
    return lr_base_value(&proper, t);
}

/* ---------------------------------------------------------------- checks */

static bool lr_rate_ok(double rate) { return rate >= 0.0 && rate <= (double)FLT_MAX; }

static tg_status lr_refuse(tg_context *ctx, tg_site site, const char *what, const char *field, const char *want, double got) {
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a schedule's %s must be %s, got %g", what, field, want, got + 0.0);
}

static tg_status lr_check_milestones(tg_context *ctx, tg_site site, const char *what, const tg_lr *s) {
    if (s->milestone_count < 1 || s->milestone_count > TG_LR_MILESTONES)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a multi-step schedule has 1 to %d milestones, got %d", what, TG_LR_MILESTONES,
                       (int)s->milestone_count);
    int64_t least = 1;
    for (int i = 0; i < s->milestone_count; i++) {
        if (s->milestones[i] < least || s->milestones[i] > INT32_MAX)
            return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: milestones must rise from 1 on, got %lld after %lld", what,
                           (long long)s->milestones[i], (long long)(i > 0 ? s->milestones[i - 1] : 0));
        least = s->milestones[i] + 1;
    }
    return TG_OK;
}

/* Checks the fields that only some kinds have. */
static tg_status lr_check_fields(tg_context *ctx, tg_site site, const char *what, const tg_lr *s) {
    const bool falls = s->kind == TG_LR_STAIRCASE || s->kind == TG_LR_MULTI_STEP;
    if (falls && !(s->factor > 0.0 && s->factor <= (double)FLT_MAX))
        return lr_refuse(ctx, site, what, "factor", "finite and over 0", s->factor);
    if (s->kind == TG_LR_MULTI_STEP) return lr_check_milestones(ctx, site, what, s);
    if (s->kind != TG_LR_ONE_CYCLE) return TG_OK;
    if (!lr_rate_ok(s->initial)) return lr_refuse(ctx, site, what, "initial rate", "finite and at least 0", s->initial);
    if (s->rise < 1 || s->rise >= s->steps)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: one cycle of %lld steps rises in 1 to %lld of them, got %lld", what,
                       (long long)s->steps, (long long)s->steps - 1, (long long)s->rise);
    return TG_OK;
}

static tg_status lr_check_part(tg_context *ctx, tg_site site, const char *what, const tg_lr *s) {
    if (!lr_rate_ok(s->peak))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a learning rate must be finite and at least 0, got %g", what, s->peak);
    if (s->kind == TG_LR_CONSTANT) return TG_OK;
    if (s->kind != TG_LR_WARMUP && !lr_rate_ok(s->final))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a final learning rate must be finite and at least 0, got %g", what, s->final);
    if (s->steps < 1 || s->steps > INT32_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a schedule needs 1 to %d steps, got %lld", what, INT32_MAX, (long long)s->steps);
    return lr_check_fields(ctx, site, what, s);
}

/* Checks the warm-ups after the first, and that all of them together end. */
static tg_status lr_check_more(tg_context *ctx, tg_site site, const char *what, const tg_lr *s) {
    int64_t total = s->steps;
    for (int i = 0; i < lr_more(s); i++) {
        tg_lr each = lr_decay(TG_LR_WARMUP, s->more_peaks[i], s->more_peaks[i], s->more_steps[i]);
        if (lr_check_part(ctx, site, what, &each) != TG_OK) return ctx->status;
        total += each.steps;
    }
    if (total <= INT32_MAX) return TG_OK;
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a schedule needs 1 to %d steps, got %lld", what, INT32_MAX, (long long)total);
}

static bool lr_known(tg_lr_kind kind) { return (int)kind >= TG_LR_CONSTANT && (int)kind <= TG_LR_ONE_CYCLE; }

tg_status tg_lr_check(tg_context *ctx, tg_site site, const char *what, tg_lr lr) {
    const tg_lr proper = lr_proper(lr);
    if (!lr_known(lr.kind) || !lr_known(proper.kind))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: unknown kind %d of learning-rate schedule", what,
                       (int)(lr_known(lr.kind) ? proper.kind : lr.kind));
    tg_status status = lr_check_part(ctx, site, what, &lr);
    if (status != TG_OK || lr.kind != TG_LR_WARMUP) return status;
    if (proper.kind == TG_LR_WARMUP || lr.more_count < 0 || lr.more_count >= TG_LR_WARMUPS)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: at most %d warm-ups follow one another, got %d after the first", what,
                       TG_LR_WARMUPS, (int)lr.more_count);
    return lr_check_more(ctx, site, what, &lr) != TG_OK ? ctx->status : lr_check_part(ctx, site, what, &proper);
}

/* In f32, as the step computes. */
static bool lr_part_moves(const tg_lr *s) {
    if ((float)s->peak > 0.0F) return true;
    if (s->kind == TG_LR_ONE_CYCLE && (float)s->initial > 0.0F) return true;
    return (s->kind == TG_LR_LINEAR || s->kind == TG_LR_COSINE || s->kind == TG_LR_ONE_CYCLE) && (float)s->final > 0.0F;
}

bool tg_lr_moves(tg_lr lr) {
    const tg_lr proper = lr_proper(lr);
    for (int i = 0; i < lr_more(&lr); i++)
        if ((float)lr.more_peaks[i] > 0.0F) return true;
    return lr_part_moves(&proper) || (lr.kind == TG_LR_WARMUP && lr_part_moves(&lr));
}

/* ---------------------------------------------------------------- numbers */

static const double lr_never = 1073741824.0; /* a step that no training makes */

void tg_lr_encode(tg_lr lr, int64_t start, float out[TG_LR_STATE]) {
    const tg_lr s = lr_proper(lr);
    const bool falls = s.kind == TG_LR_STAIRCASE || s.kind == TG_LR_MULTI_STEP;
    const bool warms = lr.kind == TG_LR_WARMUP, cycles = s.kind == TG_LR_ONE_CYCLE;
    if (start < 0) start = 0;
    double end = warms ? (double)lr.steps : 0.0;
    out[LR_WARMUP] = (float)end;
    out[LR_WARMUP_SLOPE] = warms ? (float)(lr.peak / end) : 0.0f;
    for (int i = 0; i < TG_LR_WARMUPS - 1; i++) {
        const double steps = i < lr_more(&lr) ? (double)lr.more_steps[i] : 0.0;
        end += steps;
        out[LR_WARMUP + 1 + i] = (float)end;
        out[LR_WARMUP_SLOPE + 1 + i] = steps > 0.0 ? (float)(lr.more_peaks[i] / steps) : 0.0f;
    }
    out[LR_INITIAL] = cycles ? (float)s.initial : 0.0f;
    out[LR_RISE] = cycles ? (float)s.rise : 0.0f;
    out[LR_PEAK] = (float)s.peak;
    out[LR_FINAL] = falls || s.kind == TG_LR_CONSTANT ? (float)s.peak : (float)s.final;
    out[LR_FALL] = s.steps > 1 ? (float)(s.steps - (cycles ? s.rise : 0)) : 1.0f;
    out[LR_WAVE] = s.kind == TG_LR_COSINE || cycles ? 1.0f : 0.0f;
    out[LR_STAIR] = s.kind == TG_LR_STAIRCASE && s.steps > 0 ? (float)s.steps : (float)lr_never;
    out[LR_LOG_FACTOR] = falls && s.factor > 0.0 ? (float)log(s.factor) : 0.0f;
    for (int i = 0; i < TG_LR_MILESTONES; i++)
        out[LR_MILESTONES + i] = (float)(s.kind == TG_LR_MULTI_STEP && i < s.milestone_count ? (double)s.milestones[i] : lr_never);
    out[LR_START_LOW] = (float)(start % lr_start_base);
    out[LR_START_HIGH] = (float)(1 + start / lr_start_base);
}

/* Decodes what follows the warm-ups. */
static tg_lr lr_decode_base(const float *n) {
    tg_lr s = {.peak = (double)n[LR_PEAK]};
    const bool falls = n[LR_LOG_FACTOR] < 0.0f || n[LR_LOG_FACTOR] > 0.0f, rises = n[LR_RISE] > 0.0f;
    const double steps = (double)n[LR_FALL] + (double)n[LR_RISE];
    if (!falls && n[LR_FINAL] == n[LR_PEAK] && !rises) return s;
    s.kind = rises ? TG_LR_ONE_CYCLE : n[LR_WAVE] > 0.5f ? TG_LR_COSINE : TG_LR_LINEAR;
    s.final = (double)n[LR_FINAL];
    s.steps = (int64_t)(steps >= 1.0 && steps <= lr_never ? steps : 1.0);
    s.initial = (double)n[LR_INITIAL];
    s.rise = rises ? (int64_t)(n[LR_RISE] < (float)s.steps ? (double)n[LR_RISE] : 1.0) : 0;
    if (!falls) return s;
    s.factor = exp((double)n[LR_LOG_FACTOR]);
    s.kind = n[LR_STAIR] >= 1.0f && n[LR_STAIR] < (float)lr_never ? TG_LR_STAIRCASE : TG_LR_MULTI_STEP;
    s.steps = s.kind == TG_LR_STAIRCASE ? (int64_t)n[LR_STAIR] : 0;
    for (int i = 0; i < TG_LR_MILESTONES && s.kind == TG_LR_MULTI_STEP; i++)
        if (n[LR_MILESTONES + i] >= 0.0f && n[LR_MILESTONES + i] < (float)lr_never)
            s.milestones[s.milestone_count++] = (int64_t)n[LR_MILESTONES + i];
    return s;
}

bool tg_lr_decode(const float in[TG_LR_STATE], tg_lr *lr, int64_t *start) {
    if (!(in[LR_START_HIGH] >= 1.0f && in[LR_START_HIGH] <= 4096.0f && in[LR_START_LOW] >= 0.0f && in[LR_START_LOW] < (float)lr_start_base))
        return false;
    tg_lr s = lr_decode_base(in);
    for (int i = TG_LR_WARMUPS - 1; i >= 0; i--) {
        const double steps = (double)in[LR_WARMUP + i] - (i > 0 ? (double)in[LR_WARMUP + i - 1] : 0.0);
        if (steps >= 1.0 && steps <= lr_never) s = tg_lr_warmup((double)in[LR_WARMUP_SLOPE + i] * steps, (int64_t)steps, s);
    }
    *lr = s;
    *start = (int64_t)in[LR_START_LOW] + ((int64_t)in[LR_START_HIGH] - 1) * lr_start_base;
    return true;
}

/* The old form began with the end and the slope of the one warm-up. The rest is unchanged. */
void tg_lr_upgrade(const float before[TG_LR_STATE_BEFORE], float out[TG_LR_STATE]) {
    for (int i = 0; i < TG_LR_WARMUPS; i++) {
        out[LR_WARMUP + i] = before[0];
        out[LR_WARMUP_SLOPE + i] = i == 0 ? before[1] : 0.0f;
    }
    memcpy(out + LR_INITIAL, before + 2, (TG_LR_STATE_BEFORE - 2) * sizeof *out);
}

/* ---------------------------------------------------------------- nodes: all of rank 0 */

static int32_t lr_number(tg_graph *g, double value) { return tg_ir_const(g, TG_SCALAR, TG_F32, value); }

static int32_t lr_binary(tg_graph *g, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(g, op, a, b); }

/* The share of the change that is still to come: from 1 to 0 as part goes from 0 to 1. */
static int32_t lr_left_nodes(tg_graph *g, int32_t wave, int32_t part) {
    int32_t line = lr_binary(g, TG_OP_SUB, lr_number(g, 1.0), part);
    int32_t turn = tg_ir_unary(g, TG_OP_COS, lr_binary(g, TG_OP_MUL, part, lr_number(g, lr_pi)));
    int32_t curve = lr_binary(g, TG_OP_MUL, lr_binary(g, TG_OP_ADD, turn, lr_number(g, 1.0)), lr_number(g, 0.5));
    return tg_ir_select(g, lr_binary(g, TG_OP_LESS, lr_number(g, 0.5), wave), curve, line);
}

/* factor^(stairs taken + milestones passed). Stairs are counted in i32: a device may divide two f32
 * numbers to slightly less than a whole number. */
static int32_t lr_fall_nodes(tg_graph *g, const int32_t *n, int32_t t) {
    int32_t done = tg_ir_cast(g, lr_binary(g, TG_OP_SUB, t, lr_number(g, 1.0)), TG_I32);
    int32_t falls = tg_ir_cast(g, lr_binary(g, TG_OP_DIV, done, tg_ir_cast(g, n[LR_STAIR], TG_I32)), TG_F32);
    for (int i = 0; i < TG_LR_MILESTONES; i++)
        falls = lr_binary(g, TG_OP_ADD, falls, tg_ir_cast(g, lr_binary(g, TG_OP_LESS, n[LR_MILESTONES + i], t), TG_F32));
    return tg_ir_unary(g, TG_OP_EXP, lr_binary(g, TG_OP_MUL, falls, n[LR_LOG_FACTOR]));
}

/* The rate of warm-up i until it ends, then `rate`. */
static int32_t lr_warm_nodes(tg_graph *g, const int32_t *n, int32_t time, int i, int32_t rate) {
    int32_t passed = i > 0 ? lr_binary(g, TG_OP_SUB, time, n[LR_WARMUP + i - 1]) : time;
    int32_t warming = lr_binary(g, TG_OP_MUL, passed, n[LR_WARMUP_SLOPE + i]);
    return tg_ir_select(g, lr_binary(g, TG_OP_LESS_EQUAL, time, n[LR_WARMUP + i]), warming, rate);
}

/* One form for all schedules, with numbers as nodes; time is f32. After the warm-ups t begins
 * again. Up to `rise` the rate goes from `initial` to `peak`, then to `final`, which it keeps from
 * `steps` on. All of it is multiplied by factor^falls. A constant goes from its peak to its
 * peak. */
static int32_t lr_rate_nodes(tg_graph *g, const int32_t *n, int32_t time) {
    int32_t t = lr_binary(g, TG_OP_SUB, time, n[LR_WARM]), rises = lr_binary(g, TG_OP_LESS_EQUAL, t, n[LR_RISE]);
    int32_t from = tg_ir_select(g, rises, n[LR_INITIAL], n[LR_PEAK]), to = tg_ir_select(g, rises, n[LR_PEAK], n[LR_FINAL]);
    int32_t begun = lr_binary(g, TG_OP_SUB, t, n[LR_RISE]);
    int32_t passed = tg_ir_select(g, rises, t, begun), length = tg_ir_select(g, rises, n[LR_RISE], n[LR_FALL]);
    int32_t part = lr_binary(g, TG_OP_DIV, passed, length); /* under 1 wherever it is used */
    int32_t way = lr_binary(g, TG_OP_MUL, lr_binary(g, TG_OP_SUB, from, to), lr_left_nodes(g, n[LR_WAVE], part));
    int32_t rate = tg_ir_select(g, lr_binary(g, TG_OP_LESS, begun, n[LR_FALL]), lr_binary(g, TG_OP_ADD, to, way), n[LR_FINAL]);
    rate = lr_binary(g, TG_OP_MUL, rate, lr_fall_nodes(g, n, t));
    for (int i = TG_LR_WARMUPS - 1; i >= 0; i--) rate = lr_warm_nodes(g, n, time, i, rate);
    return rate;
}

tg_tensor tg_resolve_lr_at(tg_site site, tg_lr lr, tg_tensor t) {
    tg_call call;
    tg_tensor result = {t.graph, 0};
    tg_graph *g = t.graph;
    char text[TG_SHAPE_TEXT + 128];
    float numbers[TG_LR_STATE];
    int32_t nodes[TG_LR_STATE];
    if (!tg_call_enter(&call, site, "resolve_lr", &t, 1)) return result;
    if (tg_lr_check(g->ctx, site, "resolve_lr", lr) != TG_OK) return result;
    const tg_node *node = tg_graph_node(g, t.id);
    if (node->dtype != TG_I32) {
        tg_fail(g->ctx, TG_ERROR_DTYPE, site, "resolve_lr: the step must be i32, got %s", tg_node_text(g, t.id, text, sizeof text));
        return result;
    }
    if (node->shape.rank != 0) {
        tg_fail(g->ctx, TG_ERROR_SHAPE, site, "resolve_lr: the step must be rank 0 (a scalar), got %s",
                tg_node_text(g, t.id, text, sizeof text));
        return result;
    }
    tg_lr_encode(lr, 0, numbers);
    for (int i = 0; i < TG_LR_STATE; i++) nodes[i] = lr_number(g, (double)numbers[i]);
    result.id = lr.kind == TG_LR_CONSTANT ? nodes[LR_PEAK] : lr_rate_nodes(g, nodes, tg_ir_cast(g, t.id, TG_F32));
    return result;
}

/* ---------------------------------------------------------------- numbers read from a state */

static int32_t lr_read(tg_graph *g, int32_t numbers, int64_t which) {
    const int64_t one = 1;
    return tg_ir_reshape(g, tg_ir_slice(g, numbers, &which, tg_shape_make(1, &one)), TG_SCALAR);
}

/* Updates since the start, f32; the first update has 1. Counted in i32 first, so that no step is
 * lost to rounding. */
static int32_t lr_time(tg_graph *g, const int32_t *n, int32_t t, int64_t accumulate) {
    int32_t low = tg_ir_cast(g, n[LR_START_LOW], TG_I32), high = tg_ir_cast(g, n[LR_START_HIGH], TG_I32);
    int32_t whole = lr_binary(g, TG_OP_SUB, high, tg_ir_const(g, TG_SCALAR, TG_I32, 1.0));
    int32_t base = tg_ir_const(g, TG_SCALAR, TG_I32, (double)lr_start_base);
    int32_t start = lr_binary(g, TG_OP_ADD, lr_binary(g, TG_OP_MUL, whole, base), low);
    return tg_ir_cast(g, tg_lr_updates(g, lr_binary(g, TG_OP_SUB, t, start), accumulate), TG_F32);
}

int32_t tg_lr_updates(tg_graph *g, int32_t steps, int64_t accumulate) {
    if (accumulate <= 1) return steps;
    int32_t one = tg_ir_const(g, TG_SCALAR, TG_I32, 1.0), count = tg_ir_const(g, TG_SCALAR, TG_I32, (double)accumulate);
    return lr_binary(g, TG_OP_ADD, lr_binary(g, TG_OP_DIV, lr_binary(g, TG_OP_SUB, steps, one), count), one);
}

int32_t tg_lr_nodes(tg_graph *g, int32_t lr_state, int32_t t, int64_t accumulate) {
    int32_t nodes[TG_LR_STATE];
    for (int i = 0; i < TG_LR_STATE; i++) nodes[i] = lr_read(g, lr_state, i);
    return lr_rate_nodes(g, nodes, lr_time(g, nodes, t, accumulate));
}
