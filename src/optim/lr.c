/* lr: learning-rate schedules: as values on the host, as graph nodes with the numbers built in, and as graph nodes that read
 * the numbers from a state. All three follow the formulas beside tg_lr in the public header. Must not know optimisers. */
#include "optim/optim.h"
#include "trace/trace.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double lr_pi = 3.14159265358979323846;
static const int64_t lr_start_base = (int64_t)1 << 20; /* f32 holds both halves of the start exactly */

enum { LR_KIND, LR_PEAK, LR_FINAL, LR_STEPS, LR_AFTER_KIND, LR_AFTER_PEAK, LR_AFTER_FINAL, LR_AFTER_STEPS, LR_START_LOW, LR_START_HIGH };

/* ---------------------------------------------------------------- values */

tg_lr tg_lr_constant(double rate) {
    tg_lr schedule;
    memset(&schedule, 0, sizeof schedule);
    schedule.kind = TG_LR_CONSTANT;
    schedule.peak = schedule.final = rate;
    return schedule;
}

static tg_lr lr_decay(tg_lr_kind kind, double peak, double final, int64_t steps) {
    tg_lr schedule = tg_lr_constant(peak);
    schedule.kind = kind;
    schedule.final = final;
    schedule.steps = steps;
    return schedule;
}

tg_lr tg_lr_linear_decay(double peak, double final, int64_t steps) { return lr_decay(TG_LR_LINEAR, peak, final, steps); }

tg_lr tg_lr_cosine_decay(double peak, double final, int64_t steps) { return lr_decay(TG_LR_COSINE, peak, final, steps); }

tg_lr tg_lr_warmup(double peak, int64_t warmup_steps, tg_lr after) {
    tg_lr schedule = lr_decay(TG_LR_WARMUP, peak, peak, warmup_steps);
    schedule.after_kind = after.kind;
    schedule.after_peak = after.peak;
    schedule.after_final = after.final;
    schedule.after_steps = after.steps;
    return schedule;
}

static double lr_base_value(tg_lr_kind kind, double peak, double final, int64_t steps, int64_t t) {
    if (kind == TG_LR_CONSTANT) return peak;
    if (t >= steps) return final;
    double part = (double)t / (double)steps;
    if (kind == TG_LR_LINEAR) return peak + (final - peak) * part;
    return final + (peak - final) * 0.5 * (1.0 + cos(lr_pi * part));
}

double tg_lr_value(tg_lr schedule, int64_t t) {
    if (schedule.kind != TG_LR_WARMUP) return lr_base_value(schedule.kind, schedule.peak, schedule.final, schedule.steps, t);
    if (t <= schedule.steps) return schedule.peak * (double)t / (double)schedule.steps;
    return lr_base_value(schedule.after_kind, schedule.after_peak, schedule.after_final, schedule.after_steps, t - schedule.steps);
}

/* ---------------------------------------------------------------- checks */

static bool lr_rate_ok(double rate) { return rate >= 0.0 && rate <= (double)FLT_MAX; }

static tg_status lr_check_part(tg_context *ctx, tg_site site, const char *what, tg_lr_kind kind, double peak, double final, int64_t steps) {
    if (!lr_rate_ok(peak))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a learning rate must be finite and at least 0, got %g", what, peak);
    if (kind == TG_LR_CONSTANT) return TG_OK;
    if (kind != TG_LR_WARMUP && !lr_rate_ok(final))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a final learning rate must be finite and at least 0, got %g", what, final);
    if (steps < 1 || steps > INT32_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a schedule needs 1 to %d steps, got %lld", what, INT32_MAX, (long long)steps);
    return TG_OK;
}

tg_status tg_lr_check(tg_context *ctx, tg_site site, const char *what, tg_lr schedule) {
    if ((int)schedule.kind < TG_LR_CONSTANT || (int)schedule.kind > TG_LR_WARMUP)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: unknown kind %d of learning-rate schedule", what, (int)schedule.kind);
    tg_status status = lr_check_part(ctx, site, what, schedule.kind, schedule.peak, schedule.final, schedule.steps);
    if (status != TG_OK || schedule.kind != TG_LR_WARMUP) return status;
    if (schedule.after_kind == TG_LR_WARMUP) return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: a warm-up cannot follow a warm-up", what);
    if ((int)schedule.after_kind < TG_LR_CONSTANT || (int)schedule.after_kind > TG_LR_WARMUP)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "%s: unknown kind %d of learning-rate schedule", what, (int)schedule.after_kind);
    return lr_check_part(ctx, site, what, schedule.after_kind, schedule.after_peak, schedule.after_final, schedule.after_steps);
}

/* ---------------------------------------------------------------- nodes: all of rank 0 */

static int32_t lr_number(tg_graph *g, double value) { return tg_ir_const(g, TG_SCALAR, TG_F32, value); }

static int32_t lr_binary(tg_graph *g, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(g, op, a, b); }

/* from + (to - from) part */
static int32_t lr_between(tg_graph *g, int32_t from, int32_t to, int32_t part) {
    return lr_binary(g, TG_OP_ADD, from, lr_binary(g, TG_OP_MUL, lr_binary(g, TG_OP_SUB, to, from), part));
}

/* (1 + cos(pi part)) / 2: from 1 to 0 */
static int32_t lr_cosine(tg_graph *g, int32_t part) {
    int32_t wave = tg_ir_unary(g, TG_OP_COS, lr_binary(g, TG_OP_MUL, part, lr_number(g, lr_pi)));
    int32_t lifted = lr_binary(g, TG_OP_ADD, wave, lr_number(g, 1.0));
    return lr_binary(g, TG_OP_MUL, lifted, lr_number(g, 0.5));
}

/* value while t < steps, then exactly `final` */
static int32_t lr_until(tg_graph *g, int32_t t, int32_t steps, int32_t value, int32_t final) {
    return tg_ir_select(g, lr_binary(g, TG_OP_LESS, t, steps), value, final);
}

/* A schedule that is not a warm-up, with its numbers known; t f32. */
static int32_t lr_known_nodes(tg_graph *g, tg_lr_kind kind, double peak, double final, int64_t steps, int32_t t) {
    int32_t from = lr_number(g, peak);
    if (kind == TG_LR_CONSTANT) return from;
    int32_t to = lr_number(g, final), count = lr_number(g, (double)steps);
    int32_t part = lr_binary(g, TG_OP_DIV, t, count);
    int32_t value = kind == TG_LR_LINEAR ? lr_between(g, from, to, part) : lr_between(g, to, from, lr_cosine(g, part));
    return lr_until(g, t, count, value, to);
}

static int32_t lr_schedule_nodes(tg_graph *g, tg_lr schedule, int32_t t) {
    int32_t time = tg_ir_cast(g, t, TG_F32);
    if (schedule.kind != TG_LR_WARMUP) return lr_known_nodes(g, schedule.kind, schedule.peak, schedule.final, schedule.steps, time);
    int32_t count = lr_number(g, (double)schedule.steps);
    int32_t part = lr_binary(g, TG_OP_DIV, time, count);
    int32_t rising = lr_binary(g, TG_OP_MUL, part, lr_number(g, schedule.peak));
    int32_t after = lr_known_nodes(g, schedule.after_kind, schedule.after_peak, schedule.after_final, schedule.after_steps,
                                   lr_binary(g, TG_OP_SUB, time, count));
    return tg_ir_select(g, lr_binary(g, TG_OP_LESS_EQUAL, time, count), rising, after);
}

tg_tensor tg_resolve_lr_at(tg_site site, tg_lr schedule, tg_tensor t) {
    tg_call call;
    tg_tensor result = {t.graph, 0};
    tg_graph *g = t.graph;
    char text[TG_SHAPE_TEXT + 128];
    if (!tg_call_enter(&call, site, "resolve_lr", &t, 1)) return result;
    if (tg_lr_check(g->ctx, site, "resolve_lr", schedule) != TG_OK) return result;
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
    result.id = lr_schedule_nodes(g, schedule, t.id);
    return result;
}

/* ---------------------------------------------------------------- nodes that read the numbers from a state */

void tg_lr_encode(tg_lr schedule, int64_t start, float out[TG_LR_STATE]) {
    if (start < 0) start = 0;
    out[LR_KIND] = (float)schedule.kind;
    out[LR_PEAK] = (float)schedule.peak;
    out[LR_FINAL] = (float)schedule.final;
    out[LR_STEPS] = (float)(schedule.steps < 1 ? 1 : schedule.steps);
    out[LR_AFTER_KIND] = (float)schedule.after_kind;
    out[LR_AFTER_PEAK] = (float)schedule.after_peak;
    out[LR_AFTER_FINAL] = (float)schedule.after_final;
    out[LR_AFTER_STEPS] = (float)(schedule.after_steps < 1 ? 1 : schedule.after_steps);
    out[LR_START_LOW] = (float)(start % lr_start_base);
    out[LR_START_HIGH] = (float)(1 + start / lr_start_base);
}

static int32_t lr_read(tg_graph *g, int32_t numbers, int64_t which) {
    const int64_t one = 1;
    return tg_ir_reshape(g, tg_ir_slice(g, numbers, &which, tg_shape_make(1, &one)), TG_SCALAR);
}

static int32_t lr_is(tg_graph *g, int32_t kind, tg_lr_kind which) { return lr_binary(g, TG_OP_EQUAL, kind, lr_number(g, (double)which)); }

/* t less the start, counted in i32 so that no step is lost to rounding; then f32 */
static int32_t lr_time(tg_graph *g, int32_t numbers, int32_t t) {
    int32_t low = tg_ir_cast(g, lr_read(g, numbers, LR_START_LOW), TG_I32);
    int32_t high = tg_ir_cast(g, lr_read(g, numbers, LR_START_HIGH), TG_I32);
    int32_t whole = lr_binary(g, TG_OP_SUB, high, tg_ir_const(g, TG_SCALAR, TG_I32, 1.0));
    int32_t base = tg_ir_const(g, TG_SCALAR, TG_I32, (double)lr_start_base);
    int32_t start = lr_binary(g, TG_OP_ADD, lr_binary(g, TG_OP_MUL, whole, base), low);
    return tg_ir_cast(g, lr_binary(g, TG_OP_SUB, t, start), TG_F32);
}

int32_t tg_lr_nodes(tg_graph *g, int32_t lr_state, int32_t t) {
    int32_t time = lr_time(g, lr_state, t), warmup_steps = lr_read(g, lr_state, LR_STEPS);
    int32_t warms = lr_is(g, lr_read(g, lr_state, LR_KIND), TG_LR_WARMUP), base[4];
    for (int i = 0; i < 4; i++) { /* the numbers of the schedule proper: what follows the warm-up, if there is one */
        int32_t own = lr_read(g, lr_state, LR_KIND + i);
        base[i] = tg_ir_select(g, warms, lr_read(g, lr_state, LR_AFTER_KIND + i), own);
    }
    int32_t kind = base[LR_KIND], peak = base[LR_PEAK], final = base[LR_FINAL], steps = base[LR_STEPS];
    int32_t after = tg_ir_select(g, warms, lr_binary(g, TG_OP_SUB, time, warmup_steps), time);
    int32_t one = lr_number(g, 1.0);
    int32_t part = lr_binary(g, TG_OP_MIN, lr_binary(g, TG_OP_DIV, after, steps), one);
    int32_t linear = lr_until(g, after, steps, lr_between(g, peak, final, part), final);
    int32_t cosine = lr_until(g, after, steps, lr_between(g, final, peak, lr_cosine(g, part)), final);
    int32_t decays = tg_ir_select(g, lr_is(g, kind, TG_LR_LINEAR), linear, cosine);
    int32_t rate = tg_ir_select(g, lr_is(g, kind, TG_LR_CONSTANT), peak, decays);
    int32_t warm_peak = lr_read(g, lr_state, LR_PEAK);
    int32_t rising = lr_binary(g, TG_OP_MUL, lr_binary(g, TG_OP_DIV, time, warmup_steps), warm_peak);
    int32_t early = lr_binary(g, TG_OP_AND, warms, lr_binary(g, TG_OP_LESS_EQUAL, time, warmup_steps));
    return tg_ir_select(g, early, rising, rate);
}
