/* append: packs the gradients of a loss into one flat tensor, prepares them for the optimiser
 * (accumulates, clips), and makes the clock: step counter and rate. The updates are in update.c.
 * Must not know how the flat buffers are stored. */
#include "optim/update.h"
#include "trace/trace.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- options */

static tg_status append_refuse(tg_context *ctx, tg_site site, const char *field, const char *want, double got) {
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: %s must be %s, got %g", field, want, got);
}

static bool append_finite(double value) { return value >= 0.0 && value <= (double)FLT_MAX; }

static tg_status append_check_gradients(tg_context *ctx, tg_site site, const tg_optimizer *o) {
    const char *finite = "finite and at least 0";
    if (!append_finite(o->clip_norm)) return append_refuse(ctx, site, "clip_norm", finite, o->clip_norm);
    if (!append_finite(o->clip_value)) return append_refuse(ctx, site, "clip_value", finite, o->clip_value);
    if (o->normalize && o->clip_norm > 0.0)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: normalize and clip_norm are both given: a normalized gradient has norm 1");
    if (o->accumulate < 0 || o->accumulate > INT32_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: accumulate must be 1 to %d steps, got %lld", INT32_MAX,
                       (long long)o->accumulate);
    return TG_OK;
}

#define TRAINING_KIND(kind) (1u << (unsigned)TG_OPTIMIZER_##kind)

/* "adam, adamw and muon" */
static const char *append_kinds_text(unsigned kinds, char *text, size_t size) {
    static const char *const names[] = {"none", "sgd", "adam", "adamw", "lion", "rmsprop", "adagrad", "muon"};
    size_t used = 0;
    text[0] = '\0';
    for (unsigned left = kinds, kind = 0; left != 0; kind++, left >>= 1) {
        if ((left & 1u) == 0) continue;
        int wrote = snprintf(text + used, size - used, "%s%s", used == 0 ? "" : left == 1u ? " and " : ", ", names[kind]);
        if (wrote > 0 && used + (size_t)wrote < size) used += (size_t)wrote;
    }
    return text;
}

/* Refuses an option that the optimiser's kind does not take. */
static tg_status append_check_belongs(tg_context *ctx, tg_site site, const tg_optimizer *o) {
    const unsigned adam = TRAINING_KIND(ADAM) | TRAINING_KIND(ADAMW) | TRAINING_KIND(MUON), own = 1u << (unsigned)o->kind;
    const struct {
        const char *name;
        bool given;
        unsigned kinds;
    } options[] = {
        {"beta1", tg_given(o->beta1), adam | TRAINING_KIND(LION)},
        {"beta2", tg_given(o->beta2), adam | TRAINING_KIND(LION) | TRAINING_KIND(RMSPROP)},
        {"eps", tg_given(o->eps), adam | TRAINING_KIND(RMSPROP) | TRAINING_KIND(ADAGRAD)},
        {"eps_mode", o->eps_mode != TG_EPS_UNCORRECTED, adam},
        {"momentum", tg_given(o->momentum), TRAINING_KIND(SGD) | TRAINING_KIND(RMSPROP) | TRAINING_KIND(MUON)},
        {"nesterov", o->nesterov, TRAINING_KIND(SGD)},
    };
    char kind[16], kinds[64];
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].given && (options[i].kinds & own) == 0)
            return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: %s has no %s: it is an option of %s",
                           append_kinds_text(own, kind, sizeof kind), options[i].name,
                           append_kinds_text(options[i].kinds, kinds, sizeof kinds));
    if (o->nesterov && o->momentum == 0.0) return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: nesterov needs a momentum");
    return TG_OK;
}

/* Without a kind nothing is trained: refuses options, which were meant for a kind. */
static tg_status append_check_none(tg_context *ctx, tg_site site, const tg_optimizer *o) {
    const bool said = tg_given(o->lr.peak) || tg_given(o->beta1) || tg_given(o->beta2) || tg_given(o->eps) || tg_given(o->weight_decay) ||
                      o->eps_mode != TG_EPS_UNCORRECTED || tg_given(o->momentum) || o->nesterov || tg_given(o->clip_norm) ||
                      tg_given(o->clip_value) || o->normalize || o->skip_non_finite || o->accumulate != 0 || tg_given(o->average) ||
                      o->group_count != 0 || o->decay_filter != NULL;
    if (!said) return TG_OK;
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: options of an optimizer, but not which one");
}

tg_status tg_optimizer_check(tg_context *ctx, tg_site site, const tg_optimizer *o) {
    const char *unit = "in [0, 1)";
    if (o == NULL || o->kind == TG_OPTIMIZER_NONE) return o != NULL ? append_check_none(ctx, site, o) : TG_OK;
    if ((int)o->kind < TG_OPTIMIZER_NONE || (int)o->kind > TG_OPTIMIZER_MUON)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: unknown kind %d", (int)o->kind);
    if (o->eps_mode != TG_EPS_UNCORRECTED && o->eps_mode != TG_EPS_CORRECTED)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: unknown eps_mode %d", (int)o->eps_mode);
    tg_status belongs = append_check_belongs(ctx, site, o);
    if (belongs != TG_OK) return belongs;
    if (!(o->beta1 >= 0.0 && o->beta1 < 1.0)) return append_refuse(ctx, site, "beta1", unit, o->beta1);
    if (!(o->beta2 >= 0.0 && o->beta2 < 1.0)) return append_refuse(ctx, site, "beta2", unit, o->beta2);
    if (!(o->momentum >= 0.0 && o->momentum < 1.0)) return append_refuse(ctx, site, "momentum", unit, o->momentum);
    if (!(o->average >= 0.0 && o->average < 1.0)) return append_refuse(ctx, site, "average", unit, o->average);
    if (o->eps != 0.0 && !tg_is_normal(o->eps)) return append_refuse(ctx, site, "eps", "0 or a normal f32 number over 0", o->eps);
    if (!append_finite(o->weight_decay)) return append_refuse(ctx, site, "weight_decay", "finite and at least 0", o->weight_decay);
    tg_status status = append_check_gradients(ctx, site, o);
    if (status == TG_OK) status = tg_lr_check(ctx, site, "optimizer", o->lr);
    if (status != TG_OK || tg_lr_moves(o->lr)) return status;
    return tg_fail(ctx, TG_ERROR_ARGUMENT, site, "optimizer: lr is missing or 0 throughout: nothing would be trained");
}

/* Replaces zeros by the defaults of the kind. */
static tg_optimizer append_defaults(const tg_optimizer *given) {
    tg_optimizer o;
    memset(&o, 0, sizeof o);
    if (given != NULL) o = *given;
    const double smooth = o.kind == TG_OPTIMIZER_LION || o.kind == TG_OPTIMIZER_RMSPROP ? 0.99 : 0.999;
    o.beta1 = tg_value_or(o.beta1, 0.9);
    o.beta2 = tg_value_or(o.beta2, smooth);
    o.eps = tg_value_or(o.eps, o.kind == TG_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8);
    o.weight_decay = tg_value_or(o.weight_decay, o.kind == TG_OPTIMIZER_ADAMW ? 0.01 : 0.0);
    o.momentum = tg_value_or(o.momentum, o.kind == TG_OPTIMIZER_MUON ? 0.95 : 0.0);
    if (o.accumulate == 0) o.accumulate = 1;
    return o;
}

/* ---------------------------------------------------------------- short hands */

static int32_t append_number(const tg_update *u, double value) { return tg_ir_const(u->g, TG_SCALAR, TG_F32, value); }

static int32_t append_whole(const tg_update *u, double value) { return tg_ir_const(u->g, TG_SCALAR, TG_I32, value); }

static int32_t append_op(const tg_update *u, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(u->g, op, a, b); }

static tg_shape append_flat(int64_t count) { return tg_shape_make(1, &count); }

/* ---------------------------------------------------------------- gradients */

/* The unfrozen parameters in order of offset; returns how many. */
static int append_list(const tg_graph *g, const tg_layout *layout, int32_t *nodes, int64_t *offsets) {
    int n = 0;
    for (int i = 0; i < layout->count; i++) {
        const tg_layout_entry *entry = &layout->entries[i];
        if (entry->frozen) continue;
        int at = n++;
        for (; at > 0 && offsets[at - 1] > entry->offset; at--) {
            nodes[at] = nodes[at - 1];
            offsets[at] = offsets[at - 1];
        }
        nodes[at] = g->params.items[i].node;
        offsets[at] = entry->offset;
    }
    return n;
}

static bool append_is_zero(const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    return node->op == TG_OP_CONST && node->attr.data == NULL && node->attr.value == 0.0;
}

/* PACK of d loss / d parameter, written back to "tg.gradients". Parameters without a gradient are
 * holes. */
static tg_status append_gradients(tg_update *u, int32_t loss, int32_t *nodes, int64_t *offsets) {
    tg_graph *g = u->g;
    int n = append_list(g, u->layout, nodes, offsets), kept = 0;
    const int32_t cotangent = u->scale != 1.0 ? append_number(u, u->scale) : 0;
    if (g->ctx->status != TG_OK) return g->ctx->status;
    tg_status status = tg_grad_append(g, loss, cotangent, nodes, n, nodes);
    if (status != TG_OK) return status;
    for (int i = 0; i < n; i++) {
        if (append_is_zero(g, nodes[i])) continue;
        nodes[kept] = u->scale != 1.0 ? append_op(u, TG_OP_MUL, nodes[i], append_number(u, 1.0 / u->scale)) : nodes[i];
        offsets[kept++] = offsets[i];
    }
    int32_t state = tg_update_state(u, "tg.gradients"), flat;
    if (kept > 0) {
        flat = tg_ir_pack(g, nodes, offsets, kept, u->layout->total);
        if (!tg_ir_writeback(g, state, flat)) return g->ctx->status;
    } else flat = tg_ir_const(g, append_flat(u->layout->total), TG_F32, 0.0);
    if (u->layout->trained_end > 0) u->gradient = tg_update_cut(u, flat, 0, u->layout->trained_end);
    return g->ctx->status;
}

bool tg_optimizer_watches(const tg_optimizer *o) {
    return o->kind != TG_OPTIMIZER_NONE && (o->clip_norm > 0.0 || o->normalize || o->skip_non_finite);
}

/* Watches the gradient as it is now. */
static bool append_watch(tg_update *u) {
    if (!tg_optimizer_watches(&u->optimizer)) return true;
    u->watch.gradients = tg_norm_finite(u->g, tg_ir_reshape(u->g, tg_norm_huge(u->g, u->gradient, 1u), TG_SCALAR));
    if (!u->optimizer.skip_non_finite) return u->watch.gradients != 0;
    int32_t small = append_op(u, TG_OP_MUL, u->loss, append_number(u, ldexp(1.0, -88)));
    int32_t finite = tg_norm_finite(u->g, append_op(u, TG_OP_MUL, small, small));
    u->watch.step = append_op(u, TG_OP_AND, finite, u->watch.gradients);
    return u->watch.step != 0;
}

/* Replaces the gradient by its mean over the steps since the last update. After an update the sum
 * begins again. */
static bool append_accumulate(tg_update *u) {
    if (u->applies == 0) return append_watch(u);
    const int64_t start = 0;
    int32_t state = tg_update_state(u, "tg.accumulated");
    int32_t sum = append_op(u, TG_OP_ADD, tg_update_cut(u, state, 0, u->layout->trained_end), u->gradient);
    u->gradient = append_op(u, TG_OP_MUL, sum, append_number(u, 1.0 / (double)u->optimizer.accumulate));
    if (!append_watch(u)) return false;
    int32_t kept = tg_ir_select(u->g, u->applies, append_number(u, 0.0), sum);
    if (u->watch.step != 0) kept = tg_ir_select(u->g, u->watch.step, kept, tg_update_cut(u, state, 0, u->layout->trained_end));
    if (u->layout->trained_end != u->layout->total) kept = tg_ir_pack(u->g, &kept, &start, 1, u->layout->total);
    return u->gradient != 0 && tg_ir_writeback(u->g, state, kept);
}

static int32_t append_clip_value(const tg_update *u, int32_t gradient) {
    int32_t below = append_op(u, TG_OP_MIN, gradient, append_number(u, u->optimizer.clip_value));
    return append_op(u, TG_OP_MAX, below, append_number(u, -u->optimizer.clip_value));
}

/* The norm, of rank 0. Without `tiny` a norm under 2^-30 may come out smaller, which does not
 * matter: it is under clip_norm then. */
static tg_norm append_norm(const tg_update *u, int32_t gradient) {
    const bool tiny = u->optimizer.normalize || u->optimizer.clip_norm < 1e-6;
    tg_norm norm = tg_norm_append(u->g, gradient, 1u, tiny);
    norm.norm = tg_ir_reshape(u->g, norm.norm, TG_SCALAR);
    norm.unit = tg_ir_reshape(u->g, norm.unit, TG_SCALAR);
    return norm;
}

/* g clip / ||g||, or g if ||g|| is at most clip. The quotient of a tiny clip might underflow: then
 * g is multiplied by 1 / ||g|| first and by clip after. */
static int32_t append_clip_norm(const tg_update *u, int32_t gradient) {
    const tg_norm measured = append_norm(u, gradient);
    const bool twice = u->optimizer.clip_norm < 1e-18;
    int32_t clip = append_number(u, u->optimizer.clip_norm), one = append_number(u, 1.0);
    int32_t within = append_op(u, TG_OP_LESS_EQUAL, measured.norm, append_op(u, TG_OP_MUL, measured.unit, clip));
    int32_t unit = tg_ir_select(u->g, within, one, measured.unit);
    int32_t scale = tg_ir_select(u->g, within, one, append_op(u, TG_OP_DIV, twice ? one : clip, measured.norm));
    int32_t clipped = append_op(u, TG_OP_MUL, append_op(u, TG_OP_MUL, gradient, unit), scale);
    return twice ? append_op(u, TG_OP_MUL, clipped, tg_ir_select(u->g, within, one, clip)) : clipped;
}

/* g / ||g||, where 0 / 0 is 0. */
static int32_t append_normalize(const tg_update *u, int32_t gradient) {
    const tg_norm measured = append_norm(u, gradient);
    int32_t divisor = append_op(u, TG_OP_MAX, measured.norm, append_number(u, (double)FLT_MIN));
    int32_t scale = append_op(u, TG_OP_DIV, append_number(u, 1.0), divisor);
    return append_op(u, TG_OP_MUL, append_op(u, TG_OP_MUL, gradient, measured.unit), scale);
}

static bool append_shape_gradient(tg_update *u) {
    if (!append_accumulate(u)) return false;
    if (u->watch.step != 0) u->applies = u->applies != 0 ? append_op(u, TG_OP_AND, u->applies, u->watch.step) : u->watch.step;
    if (u->optimizer.clip_value > 0.0) u->gradient = append_clip_value(u, u->gradient);
    if (u->optimizer.normalize) u->gradient = append_normalize(u, u->gradient);
    if (u->optimizer.clip_norm > 0.0) u->gradient = append_clip_norm(u, u->gradient);
    return u->gradient != 0;
}

/* ---------------------------------------------------------------- counter and rate */

/* Whether steps is a multiple of `accumulate`. */
static int32_t append_applies(const tg_update *u, int32_t steps) {
    int32_t count = append_whole(u, (double)u->optimizer.accumulate);
    int32_t rounded = append_op(u, TG_OP_MUL, append_op(u, TG_OP_DIV, steps, count), count);
    return append_op(u, TG_OP_EQUAL, rounded, steps);
}

/* t = tg.step + 1. The rate comes from "tg.lr", or from the optimiser's own schedule while that
 * state is 0. */
static bool append_clock(tg_update *u) {
    tg_graph *g = u->g;
    const int64_t high = TG_LR_STATE - 1, one = 1, accumulate = u->optimizer.accumulate;
    float numbers[TG_LR_STATE];
    int32_t step = tg_ir_state(g, "tg.step", TG_SCALAR, TG_I32, 0.0);
    int32_t t = append_op(u, TG_OP_ADD, step, append_whole(u, 1.0));
    tg_lr_encode(u->optimizer.lr, 0, numbers);
    int32_t state = tg_ir_state(g, "tg.lr", append_flat(TG_LR_STATE), TG_F32, 0.0);
    int32_t own = tg_ir_data(g, append_flat(TG_LR_STATE), TG_F32, numbers);
    int32_t mark = tg_ir_slice(g, state, &high, append_flat(one));
    int32_t replaced = append_op(u, TG_OP_LESS, append_number(u, 0.0), mark);
    u->time = tg_ir_cast(g, tg_lr_updates(g, t, accumulate), TG_F32);
    u->rate = tg_lr_nodes(g, tg_ir_select(g, replaced, state, own), t, accumulate);
    if (accumulate > 1) u->applies = append_applies(u, t);
    u->steps = t;
    return u->time != 0 && u->rate != 0 && (accumulate <= 1 || u->applies != 0);
}

static bool append_update(tg_update *u) {
    if (u->optimizer.kind == TG_OPTIMIZER_NONE) return true;
    if (!append_clock(u)) return false;
    const bool trained = u->layout->trained_end > 0;
    if (trained && !append_shape_gradient(u)) return false;
    int32_t step = tg_ir_find_state(u->g, "tg.step");
    int32_t steps = u->watch.step != 0 ? tg_ir_select(u->g, u->watch.step, u->steps, step) : u->steps;
    return tg_ir_writeback(u->g, step, steps) && (!trained || tg_update_append(u));
}

/* ---------------------------------------------------------------- entry points */

static tg_status append_check(tg_graph *g, int32_t loss, const tg_layout *layout) {
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
    for (int i = 0; i < layout->count; i++) {
        const tg_param_info *param = &g->params.items[i];
        if (strcmp(layout->entries[i].name, param->name) != 0) return TG_INTERNAL(g->ctx, "layout of another graph");
        if (param->node == 0) /* a graph read from bytes may have this */
            return tg_fail(g->ctx, TG_ERROR_GRADIENT, node->site, "parameter %s has no place in the graph: it cannot be trained",
                           param->name);
    }
    return TG_OK;
}

static tg_status append_optimizer(tg_update *u, int32_t loss) {
    tg_context *ctx = u->g->ctx;
    size_t room = (size_t)u->layout->count + 1;
    int32_t *nodes = tg_alloc(ctx, room * sizeof(int32_t));
    int64_t *offsets = tg_alloc(ctx, room * sizeof(int64_t));
    tg_status status = TG_ERROR_MEMORY;
    if (nodes != NULL && offsets != NULL) status = append_gradients(u, loss, nodes, offsets);
    if (nodes != NULL) tg_release(ctx, nodes, room * sizeof(int32_t));
    if (offsets != NULL) tg_release(ctx, offsets, room * sizeof(int64_t));
    if (status != TG_OK || append_update(u)) return status;
    return ctx->status != TG_OK ? ctx->status : TG_INTERNAL(ctx, "optimiser");
}

tg_status tg_append_training(tg_graph *g, int32_t loss, const tg_optimizer *optimizer, const tg_layout *layout, double scale,
                             tg_watch *watch) {
    tg_update call;
    tg_site site = g->current_site;
    tg_status status = tg_optimizer_check(g->ctx, site, optimizer);
    if (status == TG_OK) status = append_check(g, loss, layout);
    if (status != TG_OK) return status;
    memset(&call, 0, sizeof call);
    call.g = g;
    call.layout = layout;
    call.scale = scale;
    call.loss = loss;
    if (watch != NULL) *watch = call.watch;
    call.optimizer = append_defaults(optimizer);
    if (tg_ir_find_state(g, "tg.gradients") != 0) {
        if (call.optimizer.kind == TG_OPTIMIZER_NONE) return TG_OK;
        return tg_fail(g->ctx, TG_ERROR_DUPLICATE, site, "optimizer: the trace already has one");
    }
    g->current_site = tg_graph_node(g, loss)->site;
    status = append_optimizer(&call, loss);
    if (watch != NULL) *watch = call.watch;
    g->current_site = site;
    return status;
}

tg_status tg_append_optimizer_at(tg_site site, tg_tensor loss, const tg_optimizer *optimizer) {
    tg_call call;
    tg_graph *g = loss.graph;
    tg_arena arena;
    tg_layout layout;
    /* TG_ERROR_TRACE: the loss is poison from before the error was cleared. */
    if (!tg_call_enter(&call, site, "append_optimizer", &loss, 1)) {
        const tg_status status = call.graph != NULL ? call.graph->ctx->status : TG_ERROR_ARGUMENT;
        return status != TG_OK ? status : TG_ERROR_TRACE;
    }
    if (optimizer == NULL) return tg_fail(g->ctx, TG_ERROR_ARGUMENT, site, "append_optimizer: the optimizer is missing");
    tg_arena_init(&arena, g->ctx);
    tg_status status = tg_optimizer_check(g->ctx, site, optimizer);
    /* stays in the graph: whoever lays out the parameters later must agree */
    if (status == TG_OK) status = tg_mark_params(g, site, optimizer);
    if (status == TG_OK) status = tg_layout_make(g, &arena, &layout);
    tg_watch watch = {0};
    if (status == TG_OK) status = tg_append_training(g, loss.id, optimizer, &layout, 1.0, &watch);
    if (status == TG_OK) {
        g->finite_gradients = watch.gradients;
        g->finite_step = watch.step;
    }
    tg_arena_free(&arena);
    return status;
}
