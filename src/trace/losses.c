/* Losses, composed of primitives. Shapes must be equal: a loss never broadcasts, so [N] against
 * [N, 1] is an error. Must not know kernels. */
#include "trace/trace.h"

#include <math.h>

/* ---------------------------------------------------------------- reductions */

static bool reduction_ok(const tg_call *call, tg_reduction reduction) {
    if (reduction >= TG_REDUCTION_MEAN && reduction <= TG_REDUCTION_NONE) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%d is no reduction: mean is 0, sum 1, none 2", (int)reduction);
    return false;
}

static uint32_t all_axes(const tg_call *call, int32_t x) { return (1u << (unsigned)tg_node_shape(call, x).rank) - 1u; }

static int32_t sum_of_all(const tg_call *call, int32_t x) {
    const uint32_t axes = all_axes(call, x);
    return tg_compose_drop_axes(call, tg_ir_reduce(call->graph, TG_OP_SUM, x, axes), axes);
}

static tg_tensor reduced(const tg_call *call, int32_t x, tg_reduction reduction) {
    if (x == 0) return tg_call_poison(call);
    const uint32_t axes = all_axes(call, x);
    if (reduction == TG_REDUCTION_NONE) return tg_call_result(call, x);
    if (reduction == TG_REDUCTION_SUM) return tg_call_result(call, sum_of_all(call, x));
    return tg_call_result(call, tg_compose_drop_axes(call, tg_compose_mean(call, x, axes), axes));
}

/* ---------------------------------------------------------------- classes */

/* Checks targets: i32, with the shape of logits without the axis of classes. */
static bool check_targets(const tg_call *call, int32_t logits, int32_t targets) {
    int32_t ids[2] = {logits, targets};
    if (!tg_call_takes(call, logits, TG_TAKES_F32) || !tg_call_takes(call, targets, TG_TAKES_I32)) return false;
    tg_shape rows = tg_node_shape(call, logits);
    rows.rank--;
    if (rows.rank >= 0 && tg_shape_equal(rows, tg_node_shape(call, targets))) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the targets need the logits' shape without its last axis: %s and %s",
                 TG_LABEL(call, logits), TG_LABEL(call, targets));
    return false;
}

static int64_t class_count(const tg_call *call, int32_t logits) {
    const tg_shape shape = tg_node_shape(call, logits);
    return shape.dim[shape.rank - 1];
}

/* scores[target] for each row, the last axis kept as 1. Compares positions instead of gathering, so
 * that a row and its gradient stay one kernel. */
static int32_t pick_targets(const tg_call *call, int32_t scores, int32_t targets, uint32_t axes) {
    const int32_t is_target = tg_compose_one_hot(call, targets, class_count(call, scores));
    const int32_t kept = tg_ir_select(call->graph, is_target, scores, tg_compose_number(call, 0.0));
    return tg_ir_reduce(call->graph, TG_OP_SUM, kept, axes);
}

static uint32_t last_axis(const tg_call *call, int32_t x) { return 1u << (unsigned)(tg_node_shape(call, x).rank - 1); }

/* bool for each row, the last axis kept as 1: whether the target differs from `ignore`. */
static int32_t counted_rows(const tg_call *call, int32_t targets, int32_t ignore) {
    tg_graph *g = call->graph;
    tg_shape rows = tg_node_shape(call, targets);
    const int32_t ignored = tg_ir_const(g, tg_shape_make(0, NULL), TG_I32, (double)ignore);
    const int32_t counted = tg_ir_binary(g, TG_OP_NOT_EQUAL, targets, ignored);
    rows.dim[rows.rank++] = 1;
    return tg_ir_reshape(g, counted, rows);
}

/* For each row, with s = logits - max (Szegedy et al. 2016):
 *   -(1 - smoothing) log softmax(logits)[target] - smoothing mean(log softmax(logits))
 *   = log sum e^s - (1 - smoothing) s[target] - smoothing mean(s)
 * Rows that are not `counted` (0: all are) have s = 0, so that their gradient is 0 for any
 * logits. */
static int32_t negative_log_likelihood(const tg_call *call, int32_t logits, int32_t targets, int32_t counted, double smoothing) {
    tg_graph *g = call->graph;
    const uint32_t axes = last_axis(call, logits);
    int32_t shifted = 0, log_sum = 0;
    tg_compose_shifted(call, logits, tg_node_shape(call, logits).rank - 1, counted, &shifted, &log_sum);
    int32_t wanted = pick_targets(call, shifted, targets, axes);
    if (smoothing > 0) {
        const int32_t even = tg_compose_scale(call, tg_compose_mean(call, shifted, axes), smoothing);
        wanted = tg_ir_binary(g, TG_OP_ADD, tg_compose_scale(call, wanted, 1 - smoothing), even);
    }
    return tg_compose_drop_axes(call, tg_ir_binary(g, TG_OP_SUB, log_sum, wanted), axes);
}

/* Losses of positions whose target is `ignore` become 0. The mean is over the others; 0 if there
 * are none. */
static tg_tensor reduce_counted(const tg_call *call, int32_t losses, int32_t targets, int32_t ignore, tg_reduction reduction) {
    tg_graph *g = call->graph;
    const int32_t ignored = tg_ir_const(g, tg_shape_make(0, NULL), TG_I32, (double)ignore);
    const int32_t counted = tg_ir_binary(g, TG_OP_NOT_EQUAL, targets, ignored);
    const int32_t kept = tg_ir_select(g, counted, losses, tg_compose_number(call, 0.0));
    if (reduction != TG_REDUCTION_MEAN) return reduced(call, kept, reduction);
    const int32_t count = sum_of_all(call, tg_ir_cast(g, counted, TG_F32));
    const int32_t divisor = tg_ir_binary(g, TG_OP_MAX, count, tg_compose_number(call, 1.0));
    return tg_call_result(call, tg_ir_binary(g, TG_OP_DIV, sum_of_all(call, kept), divisor));
}

static bool enter_classes(tg_call *call, tg_site site, const char *name, tg_tensor logits, tg_tensor targets) {
    const tg_tensor operands[2] = {logits, targets};
    return tg_call_enter(call, site, name, operands, 2) && check_targets(call, logits.id, targets.id);
}

tg_tensor tg_nn_cross_entropy_last_at(tg_site site, tg_tensor logits, tg_tensor targets) {
    tg_call call;
    if (!enter_classes(&call, site, "cross_entropy_last", logits, targets)) return tg_call_poison(&call);
    if (!tg_ir_check_index(call.graph, targets.id, 0, class_count(&call, logits.id), false, 0, "cross_entropy_last"))
        return tg_call_poison(&call);
    return tg_call_result(&call, negative_log_likelihood(&call, logits.id, targets.id, 0, 0));
}

tg_tensor tg_nn_cross_entropy_at(tg_site site, tg_tensor logits, tg_tensor targets, int32_t ignore, tg_cross_entropy_options options) {
    tg_call call;
    if (!enter_classes(&call, site, "cross_entropy", logits, targets) || !reduction_ok(&call, options.reduction))
        return tg_call_poison(&call);
    if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "the label smoothing is %.9g, not in [0, 1)", options.label_smoothing);
    if (!tg_ir_check_index(call.graph, targets.id, 0, class_count(&call, logits.id), true, ignore, "cross_entropy"))
        return tg_call_poison(&call);
    const int32_t counted = counted_rows(&call, targets.id, ignore);
    const int32_t losses = negative_log_likelihood(&call, logits.id, targets.id, counted, options.label_smoothing);
    return reduce_counted(&call, losses, targets.id, ignore, options.reduction);
}

tg_tensor tg_nn_nll_at(tg_site site, tg_tensor log_probabilities, tg_tensor targets, int32_t ignore, tg_loss_options options) {
    tg_call call;
    if (!enter_classes(&call, site, "nll", log_probabilities, targets) || !reduction_ok(&call, options.reduction))
        return tg_call_poison(&call);
    if (!tg_ir_check_index(call.graph, targets.id, 0, class_count(&call, log_probabilities.id), true, ignore, "nll"))
        return tg_call_poison(&call);
    const uint32_t axes = last_axis(&call, log_probabilities.id);
    const int32_t picked = tg_compose_drop_axes(&call, pick_targets(&call, log_probabilities.id, targets.id, axes), axes);
    return reduce_counted(&call, tg_ir_unary(call.graph, TG_OP_NEG, picked), targets.id, ignore, options.reduction);
}

/* ---------------------------------------------------------------- element by element */

static bool enter_loss(tg_call *call, tg_site site, const char *name, tg_tensor prediction, tg_tensor target, tg_reduction reduction) {
    const tg_tensor operands[2] = {prediction, target};
    const int32_t ids[2] = {prediction.id, target.id};
    if (!tg_call_enter(call, site, name, operands, 2)) return false;
    if (!tg_call_takes(call, ids[0], TG_TAKES_F32) || !tg_call_takes(call, ids[1], TG_TAKES_F32)) return false;
    if (tg_shape_equal(tg_node_shape(call, ids[0]), tg_node_shape(call, ids[1]))) return reduction_ok(call, reduction);
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "shapes differ (a loss does not broadcast): %s and %s", TG_LABEL(call, ids[0]),
                 TG_LABEL(call, ids[1]));
    return false;
}

tg_tensor tg_nn_mse_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options) {
    tg_call call;
    if (!enter_loss(&call, site, "mse", prediction, target, options.reduction)) return tg_call_poison(&call);
    const int32_t error = tg_ir_binary(call.graph, TG_OP_SUB, prediction.id, target.id);
    return reduced(&call, tg_ir_binary(call.graph, TG_OP_MUL, error, error), options.reduction);
}

tg_tensor tg_nn_l1_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_loss_options options) {
    tg_call call;
    if (!enter_loss(&call, site, "l1", prediction, target, options.reduction)) return tg_call_poison(&call);
    const int32_t error = tg_ir_binary(call.graph, TG_OP_SUB, prediction.id, target.id);
    return reduced(&call, tg_ir_unary(call.graph, TG_OP_ABS, error), options.reduction);
}

/* m (|e| - m / 2) with m = min(|e|, delta): covers both branches; its gradient is m sign(e). */
tg_tensor tg_nn_huber_at(tg_site site, tg_tensor prediction, tg_tensor target, tg_huber_options options) {
    tg_call call;
    const double delta = tg_value_or(options.delta, 1.0);
    if (!enter_loss(&call, site, "huber", prediction, target, options.reduction)) return tg_call_poison(&call);
    if (!tg_is_normal(delta)) return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "delta is %.9g, not over 0 and finite", delta);
    tg_graph *g = call.graph;
    const int32_t size = tg_ir_unary(g, TG_OP_ABS, tg_ir_binary(g, TG_OP_SUB, prediction.id, target.id));
    const int32_t inner = tg_ir_binary(g, TG_OP_MIN, size, tg_compose_number(&call, delta));
    const int32_t rest = tg_ir_binary(g, TG_OP_SUB, size, tg_compose_scale(&call, inner, 0.5));
    return reduced(&call, tg_ir_binary(g, TG_OP_MUL, inner, rest), options.reduction);
}

/* Whether x is infinite and its factor 0: then the product is to be 0. */
static int32_t vanishes(const tg_call *call, int32_t factor, int32_t x) {
    tg_graph *g = call->graph;
    const int32_t endless = tg_ir_binary(g, TG_OP_EQUAL, tg_ir_unary(g, TG_OP_ABS, x), tg_compose_number(call, (double)INFINITY));
    return tg_ir_binary(g, TG_OP_AND, endless, tg_ir_binary(g, TG_OP_EQUAL, factor, tg_compose_number(call, 0.0)));
}

/* -w t log sigmoid(x) - (1 - t) log sigmoid(-x)
 * = (w t + 1 - t) log(1 + e^-|x|) + (x > 0 ? (1 - t) x : -w t x).
 * No part of the loss or of its gradient is a difference of near numbers. weight 0: w = 1. */
static int32_t binary_cross_entropy(const tg_call *call, int32_t x, int32_t t, int32_t weight) {
    tg_graph *g = call->graph;
    const int32_t zero = tg_compose_number(call, 0.0), one = tg_compose_number(call, 1.0);
    const int32_t off = tg_ir_binary(g, TG_OP_SUB, one, t), on = weight == 0 ? t : tg_ir_binary(g, TG_OP_MUL, weight, t);
    const int32_t positive = tg_ir_binary(g, TG_OP_LESS, zero, x);
    const int32_t tail = tg_ir_unary(g, TG_OP_SOFTPLUS, tg_ir_select(g, positive, tg_ir_unary(g, TG_OP_NEG, x), x));
    const int32_t factor = tg_ir_select(g, positive, off, tg_ir_unary(g, TG_OP_NEG, on));
    const int32_t large = tg_ir_binary(g, TG_OP_MUL, factor, tg_ir_select(g, vanishes(call, factor, x), zero, x));
    const int32_t small = weight == 0 ? tail : tg_ir_binary(g, TG_OP_MUL, tg_ir_binary(g, TG_OP_ADD, on, off), tail);
    return tg_ir_binary(g, TG_OP_ADD, large, small);
}

tg_tensor tg_nn_bce_with_logits_at(tg_site site, tg_tensor logits, tg_tensor target, tg_bce_options options) {
    tg_call call;
    if (!enter_loss(&call, site, "bce_with_logits", logits, target, options.reduction)) return tg_call_poison(&call);
    if (options.positive_weight.graph != NULL) {
        const tg_tensor operands[3] = {logits, target, options.positive_weight};
        const int32_t weight = options.positive_weight.id, pair[2] = {weight, logits.id};
        const tg_shape shape = tg_node_shape(&call, logits.id);
        tg_shape out;
        if (!tg_call_enter(&call, site, "bce_with_logits", operands, 3) || !tg_call_takes(&call, weight, TG_TAKES_F32))
            return tg_call_poison(&call);
        if (!tg_shape_broadcast(shape, tg_node_shape(&call, weight), &out) || !tg_shape_equal(out, shape))
            return tg_call_fail(&call, TG_ERROR_SHAPE, pair, 2, "the positive weight does not broadcast to the logits: %s and %s",
                                TG_LABEL(&call, weight), TG_LABEL(&call, logits.id));
        return reduced(&call, binary_cross_entropy(&call, logits.id, target.id, weight), options.reduction);
    }
    return reduced(&call, binary_cross_entropy(&call, logits.id, target.id, 0), options.reduction);
}

/* p (log p - log q). Where p is 0, the loss and its gradients are 0 for any log q: both logarithms
 * are set to 0 there. */
tg_tensor tg_nn_kl_div_at(tg_site site, tg_tensor log_prediction, tg_tensor target, tg_kl_options options) {
    tg_call call;
    if (!enter_loss(&call, site, "kl_div", log_prediction, target, options.reduction)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    const int32_t zero = tg_compose_number(&call, 0.0);
    const int32_t nothing = options.log_target ? tg_compose_number(&call, -(double)INFINITY) : zero;
    const int32_t empty = tg_ir_binary(g, TG_OP_EQUAL, target.id, nothing);
    const int32_t safe = tg_ir_select(g, empty, options.log_target ? zero : tg_compose_number(&call, 1.0), target.id);
    const int32_t log_target = options.log_target ? safe : tg_ir_unary(g, TG_OP_LOG, safe);
    const int32_t probability = options.log_target ? tg_ir_unary(g, TG_OP_EXP, safe) : safe;
    const int32_t difference = tg_ir_binary(g, TG_OP_SUB, log_target, tg_ir_select(g, empty, zero, log_prediction.id));
    const int32_t each = tg_ir_binary(g, TG_OP_MUL, probability, difference);
    return reduced(&call, tg_ir_select(g, empty, zero, each), options.reduction);
}
