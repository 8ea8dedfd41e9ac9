/* training: gradients packed in one flat tensor, and SGD and Adam over the flat tensors, as graph nodes with writebacks.
 * Formulas: beside tg_optimizer in the public header; Kingma & Ba 2015 (Adam), Loshchilov & Hutter 2019 (decoupled decay),
 * Sutskever et al. 2013 (Nesterov). Must not know how the flat buffers are stored. */
#include "optim/optim.h"
#include "trace/trace.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One optimiser being appended. Flat tensors are f32 [total] as states and [trained] in the update. */
typedef struct training_call {
    tg_graph *g;
    const tg_layout *layout;
    tg_optimizer optimizer; /* defaults filled in */
    int64_t trained;        /* elements that are updated: [0, trained) */
    int32_t gradient;       /* [trained], clipped */
    int32_t time;           /* f32 rank 0: 1 in the first step */
    int32_t rate;           /* f32 rank 0 */
} training_call;

/* ---------------------------------------------------------------- options */

static tg_status training_refuse(tg_context *ctx, tg_site site, const char *field, const char *want, double got) {
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: %s must be %s, got %g", field, want, got);
}

static bool training_finite(double value) { return value >= 0.0 && value <= (double)FLT_MAX; }

tg_status tg_optimizer_check(tg_context *ctx, tg_site site, const tg_optimizer *o) {
    const char *unit = "in [0, 1)", *finite = "finite and at least 0";
    if (o == NULL || o->kind == TG_OPTIMIZER_NONE) return TG_OK;
    if (o->kind != TG_OPTIMIZER_SGD && o->kind != TG_OPTIMIZER_ADAM)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: unknown kind %d", (int)o->kind);
    if (o->eps_mode != TG_EPS_UNCORRECTED && o->eps_mode != TG_EPS_CORRECTED)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: unknown eps_mode %d", (int)o->eps_mode);
    if (!(o->beta1 >= 0.0 && o->beta1 < 1.0)) return training_refuse(ctx, site, "beta1", unit, o->beta1);
    if (!(o->beta2 >= 0.0 && o->beta2 < 1.0)) return training_refuse(ctx, site, "beta2", unit, o->beta2);
    if (!(o->momentum >= 0.0 && o->momentum < 1.0)) return training_refuse(ctx, site, "momentum", unit, o->momentum);
    if (o->eps != 0.0 && !(o->eps >= (double)FLT_MIN && o->eps <= (double)FLT_MAX))
        return training_refuse(ctx, site, "eps", "a normal f32 number over 0", o->eps);
    if (!training_finite(o->weight_decay)) return training_refuse(ctx, site, "weight_decay", finite, o->weight_decay);
    if (!training_finite(o->clip_norm)) return training_refuse(ctx, site, "clip_norm", finite, o->clip_norm);
    return tg_lr_check(ctx, site, "optimizer", o->lr);
}

static tg_optimizer training_defaults(const tg_optimizer *given) {
    tg_optimizer o;
    memset(&o, 0, sizeof o);
    if (given != NULL) o = *given;
    if (o.beta1 == 0.0) o.beta1 = 0.9;
    if (o.beta2 == 0.0) o.beta2 = 0.999;
    if (o.eps == 0.0) o.eps = 1e-8;
    return o;
}

/* ---------------------------------------------------------------- short hands
 * At most one argument of a call makes nodes: C does not fix the order of arguments, and node order must not depend on it. */

static int32_t training_number(const training_call *c, double value) { return tg_ir_const(c->g, TG_SCALAR, TG_F32, value); }

static int32_t training_op(const training_call *c, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(c->g, op, a, b); }

static int32_t training_times(const training_call *c, int32_t a, double value) {
    return training_op(c, TG_OP_MUL, a, training_number(c, value));
}

static tg_shape training_flat(int64_t count) { return tg_shape_make(1, &count); }

static int32_t training_state(const training_call *c, const char *name) {
    return tg_ir_state(c->g, name, training_flat(c->layout->total), TG_F32, 0.0);
}

/* [total] -> [trained] */
static int32_t training_cut(const training_call *c, int32_t flat) {
    const int64_t start = 0;
    return tg_ir_slice(c->g, flat, &start, training_flat(c->trained));
}

/* After the step the first `trained` elements of `state` are `value`. */
static bool training_store(const training_call *c, int32_t state, int32_t value) {
    const int64_t start = 0;
    if (c->trained != c->layout->total) value = tg_ir_pack(c->g, &value, &start, 1, c->layout->total);
    return tg_ir_writeback(c->g, state, value);
}

static bool training_has_state(const tg_graph *g, const char *name) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (strcmp(g->states.items[i].name, name) == 0) return true;
    return false;
}

/* ---------------------------------------------------------------- gradients */

/* The unfrozen parameters in order of offset; returns how many. */
static int training_list(const tg_graph *g, const tg_layout *layout, int32_t *nodes, int64_t *offsets) {
    int n = 0;
    for (int decayed = 1; decayed >= 0; decayed--)
        for (int i = 0; i < layout->count; i++) {
            const tg_layout_entry *entry = &layout->entries[i];
            if (entry->frozen || entry->decay != (decayed == 1)) continue;
            nodes[n] = g->params.items[i].node;
            offsets[n++] = entry->offset;
        }
    return n;
}

static bool training_is_zero(const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    return node->op == TG_OP_CONST && node->attr.data == NULL && node->attr.value == 0.0;
}

/* PACK of d loss / d parameter, written back to "tg.gradients". Parameters without a gradient are holes. */
static tg_status training_gradients(training_call *c, int32_t loss, int32_t *nodes, int64_t *offsets) {
    tg_graph *g = c->g;
    int n = training_list(g, c->layout, nodes, offsets), kept = 0;
    tg_status status = tg_grad_append(g, loss, 0, nodes, n, nodes);
    if (status != TG_OK) return status;
    for (int i = 0; i < n; i++) {
        if (training_is_zero(g, nodes[i])) continue;
        nodes[kept] = nodes[i];
        offsets[kept++] = offsets[i];
    }
    int32_t state = training_state(c, "tg.gradients"), flat;
    if (kept > 0) {
        flat = tg_ir_pack(g, nodes, offsets, kept, c->layout->total);
        if (!tg_ir_writeback(g, state, flat)) return g->ctx->status;
    } else flat = tg_ir_const(g, training_flat(c->layout->total), TG_F32, 0.0);
    if (c->trained > 0) c->gradient = training_cut(c, flat);
    return g->ctx->status;
}

/* g min(1, clip / ||g||) */
static int32_t training_clip(const training_call *c, int32_t gradient) {
    int32_t square = training_op(c, TG_OP_MUL, gradient, gradient);
    int32_t norm = tg_ir_unary(c->g, TG_OP_SQRT, tg_ir_reshape(c->g, tg_ir_reduce(c->g, TG_OP_SUM, square, 1u), TG_SCALAR));
    int32_t safe = training_op(c, TG_OP_MAX, norm, training_number(c, (double)FLT_MIN));
    int32_t ratio = training_op(c, TG_OP_DIV, training_number(c, c->optimizer.clip_norm), safe);
    int32_t scale = training_op(c, TG_OP_MIN, ratio, training_number(c, 1.0));
    return training_op(c, TG_OP_MUL, gradient, scale);
}

/* ---------------------------------------------------------------- counter and rate */

/* t = tg.step + 1, written back; the rate at t from "tg.lr", or from the optimiser's own schedule while that state is 0. */
static bool training_clock(training_call *c) {
    tg_graph *g = c->g;
    const int64_t high = TG_LR_STATE - 1, one = 1;
    float numbers[TG_LR_STATE];
    int32_t step = tg_ir_state(g, "tg.step", TG_SCALAR, TG_I32, 0.0);
    int32_t t = training_op(c, TG_OP_ADD, step, tg_ir_const(g, TG_SCALAR, TG_I32, 1.0));
    if (!tg_ir_writeback(g, step, t)) return false;
    tg_lr_encode(c->optimizer.lr, 0, numbers);
    int32_t state = tg_ir_state(g, "tg.lr", training_flat(TG_LR_STATE), TG_F32, 0.0);
    int32_t own = tg_ir_data(g, training_flat(TG_LR_STATE), TG_F32, numbers);
    int32_t mark = tg_ir_slice(g, state, &high, training_flat(one));
    int32_t replaced = training_op(c, TG_OP_LESS, training_number(c, 0.0), mark);
    c->time = tg_ir_cast(g, t, TG_F32);
    c->rate = tg_lr_nodes(g, tg_ir_select(g, replaced, state, own), t);
    return c->time != 0 && c->rate != 0;
}

/* 1 - beta^t without cancellation: with z = -t log beta it is 1 - e^-z, for small z the Taylor series z - z^2/2 + z^3/6 ...
 * (next term under 5e-8 of the sum). */
static int32_t training_correction(const training_call *c, double beta) {
    static const double terms[] = {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0};
    const double small = 0.25;
    int32_t z = training_times(c, c->time, -log(beta));
    int32_t near_zero = training_op(c, TG_OP_MIN, z, training_number(c, small));
    int32_t series = training_number(c, -terms[0]);
    for (int i = 1; i < 6; i++) {
        series = training_op(c, TG_OP_MUL, series, near_zero);
        series = training_op(c, TG_OP_ADD, series, training_number(c, i % 2 == 1 ? terms[i] : -terms[i]));
    }
    series = training_op(c, TG_OP_MUL, series, near_zero);
    int32_t decayed = tg_ir_unary(c->g, TG_OP_EXP, tg_ir_unary(c->g, TG_OP_NEG, z));
    int32_t plain = training_op(c, TG_OP_SUB, training_number(c, 1.0), decayed);
    int32_t is_small = training_op(c, TG_OP_LESS, z, training_number(c, small));
    return tg_ir_select(c->g, is_small, series, plain);
}

/* ---------------------------------------------------------------- updates */

/* p (1 - rate decay) on [0, decay_end), p elsewhere */
static int32_t training_decay(const training_call *c, int32_t parameters) {
    double decay = c->optimizer.weight_decay;
    int64_t end = c->layout->decay_end;
    if (decay == 0.0 || end == 0) return parameters;
    int32_t lost = training_times(c, c->rate, decay);
    int32_t keep = training_op(c, TG_OP_SUB, training_number(c, 1.0), lost);
    if (end < c->trained) {
        int32_t index = tg_ir_iota(c->g, training_flat(c->trained), TG_I32, 0);
        int32_t decays = training_op(c, TG_OP_LESS, index, tg_ir_const(c->g, TG_SCALAR, TG_I32, (double)end));
        keep = tg_ir_select(c->g, decays, keep, training_number(c, 1.0));
    }
    return training_op(c, TG_OP_MUL, parameters, keep);
}

/* p <- (1 - rate decay) p - update */
static bool training_apply(const training_call *c, int32_t update) {
    int32_t state = training_state(c, "tg.parameters");
    int32_t kept = training_decay(c, training_cut(c, state));
    return training_store(c, state, training_op(c, TG_OP_SUB, kept, update));
}

/* factor state + (1 - factor or 1) x, written back to the state */
static int32_t training_average(const training_call *c, const char *name, double factor, int32_t x) {
    int32_t state = training_state(c, name);
    int32_t value = training_op(c, TG_OP_ADD, training_times(c, training_cut(c, state), factor), x);
    return training_store(c, state, value) ? value : 0;
}

static bool training_sgd(const training_call *c) {
    double momentum = c->optimizer.momentum;
    int32_t direction = c->gradient;
    if (momentum != 0.0) {
        int32_t velocity = training_average(c, "tg.m", momentum, c->gradient);
        direction = velocity;
        if (c->optimizer.nesterov) direction = training_op(c, TG_OP_ADD, c->gradient, training_times(c, velocity, momentum));
    }
    return training_apply(c, training_op(c, TG_OP_MUL, direction, c->rate));
}

/* uncorrected: rate sqrt(c2) / c1  m / (sqrt v + eps);  corrected: rate / c1  m / (sqrt v / sqrt c2 + eps) */
static bool training_adam(const training_call *c) {
    const tg_optimizer *o = &c->optimizer;
    int32_t first = training_times(c, c->gradient, 1.0 - o->beta1);
    int32_t m = training_average(c, "tg.m", o->beta1, first);
    int32_t square = training_op(c, TG_OP_MUL, c->gradient, c->gradient);
    int32_t v = training_average(c, "tg.v", o->beta2, training_times(c, square, 1.0 - o->beta2));
    int32_t root = tg_ir_unary(c->g, TG_OP_SQRT, training_correction(c, o->beta2));
    int32_t size = training_op(c, TG_OP_DIV, c->rate, training_correction(c, o->beta1));
    int32_t spread = tg_ir_unary(c->g, TG_OP_SQRT, v);
    if (o->eps_mode == TG_EPS_UNCORRECTED) size = training_op(c, TG_OP_MUL, size, root);
    else spread = training_op(c, TG_OP_MUL, spread, tg_ir_unary(c->g, TG_OP_RECIPROCAL, root));
    int32_t step = training_op(c, TG_OP_DIV, m, training_op(c, TG_OP_ADD, spread, training_number(c, o->eps)));
    return training_apply(c, training_op(c, TG_OP_MUL, step, size));
}

static bool training_update(training_call *c) {
    if (c->optimizer.kind == TG_OPTIMIZER_NONE) return true;
    if (!training_clock(c)) return false;
    if (c->trained == 0) return true;
    if (c->optimizer.clip_norm > 0.0) c->gradient = training_clip(c, c->gradient);
    if (c->gradient == 0) return false;
    return c->optimizer.kind == TG_OPTIMIZER_SGD ? training_sgd(c) : training_adam(c);
}

/* ---------------------------------------------------------------- entry points */

static tg_status training_check(tg_graph *g, int32_t loss, const tg_layout *layout) {
    char text[TG_SHAPE_TEXT + 128];
    if (loss <= 0 || loss >= g->nodes.count)
        return g->ctx->status != TG_OK ? g->ctx->status : TG_INTERNAL(g->ctx, "training without a loss");
    const tg_node *node = tg_graph_node(g, loss);
    if (node->shape.rank != 0)
        return tg_fail(g->ctx, TG_ERROR_GRADIENT, node->site, "loss must be rank 0 (a scalar), got %s",
                       tg_shape_text(node->shape, text, sizeof text));
    if (node->dtype != TG_F32)
        return tg_fail(g->ctx, TG_ERROR_GRADIENT, node->site, "loss must be f32, got %s", tg_node_text(g, loss, text, sizeof text));
    if (layout->count != g->params.count) return TG_INTERNAL(g->ctx, "layout of another graph");
    for (int i = 0; i < layout->count; i++)
        if (g->params.items[i].node == 0 || strcmp(layout->entries[i].name, g->params.items[i].name) != 0)
            return TG_INTERNAL(g->ctx, "layout of another graph");
    return TG_OK;
}

static tg_status training_append(training_call *c, int32_t loss) {
    tg_context *ctx = c->g->ctx;
    size_t room = (size_t)c->layout->count + 1;
    int32_t *nodes = tg_alloc(ctx, room * sizeof(int32_t));
    int64_t *offsets = tg_alloc(ctx, room * sizeof(int64_t));
    tg_status status = TG_ERROR_MEMORY;
    if (nodes != NULL && offsets != NULL) status = training_gradients(c, loss, nodes, offsets);
    if (nodes != NULL) tg_release(ctx, nodes, room * sizeof(int32_t));
    if (offsets != NULL) tg_release(ctx, offsets, room * sizeof(int64_t));
    if (status != TG_OK || training_update(c)) return status;
    return ctx->status != TG_OK ? ctx->status : TG_INTERNAL(ctx, "optimiser");
}

tg_status tg_append_training(tg_graph *g, int32_t loss, const tg_optimizer *optimizer, const tg_layout *layout) {
    training_call call;
    tg_site site = g->current_site;
    tg_status status = tg_optimizer_check(g->ctx, site, optimizer);
    if (status == TG_OK) status = training_check(g, loss, layout);
    if (status != TG_OK) return status;
    memset(&call, 0, sizeof call);
    call.g = g;
    call.layout = layout;
    call.optimizer = training_defaults(optimizer);
    /* the gap behind the last trained parameter is updated too when nothing is frozen: it stays 0, and no PACK is needed */
    call.trained = layout->trained_end;
    if (training_has_state(g, "tg.gradients")) {
        if (call.optimizer.kind == TG_OPTIMIZER_NONE) return TG_OK;
        return tg_fail(g->ctx, TG_ERROR_DUPLICATE, site, "optimizer: the trace already has one");
    }
    g->current_site = tg_graph_node(g, loss)->site;
    status = training_append(&call, loss);
    g->current_site = site;
    return status;
}

tg_status tg_append_optimizer_at(tg_site site, tg_tensor loss, const tg_optimizer *optimizer) {
    tg_call call;
    tg_graph *g = loss.graph;
    tg_arena arena;
    tg_layout layout;
    if (g == NULL) return TG_ERROR_ARGUMENT;
    if (!tg_call_enter(&call, site, "append_optimizer", &loss, 1)) /* TRACE: poison from before the error was cleared */
        return g->ctx->status != TG_OK ? g->ctx->status : TG_ERROR_TRACE;
    if (optimizer == NULL) return tg_fail(g->ctx, TG_ERROR_ARGUMENT, site, "append_optimizer: the optimizer is missing");
    tg_arena_init(&arena, g->ctx);
    tg_status status = tg_layout_make(g, optimizer, &arena, &layout);
    if (status == TG_OK) status = tg_append_training(g, loss.id, optimizer, &layout);
    if (status == TG_OK) /* whoever lays out the parameters later must agree with the filter */
        for (int i = 0; i < layout.count; i++) g->params.items[i].decay = layout.entries[i].decay;
    tg_arena_free(&arena);
    return status;
}
