/* The softmax family. Each operation subtracts the row's maximum first. The maximum carries no
 * gradient, and the gradient is still the true one. Must not know that a row becomes one kernel. */
#include "trace/trace.h"

#include <float.h>
#include <math.h>

static bool enter_softmax(tg_call *call, tg_site site, const char *name, tg_tensor x, int axis, int *along) {
    return tg_call_enter(call, site, name, &x, 1) && tg_call_takes(call, x.id, TG_TAKES_F32) &&
           tg_call_axis(call, x.id, tg_node_shape(call, x.id).rank, axis, along);
}

/* max(x) over the axis, kept as 1, without gradient. */
static int32_t row_maximum(tg_graph *g, int32_t x, uint32_t axes) {
    return tg_ir_unary(g, TG_OP_STOP_GRADIENT, tg_ir_reduce(g, TG_OP_REDUCE_MAX, x, axes));
}

/* x - infinity is NaN where x is infinite too, so a row with an infinite maximum is not shifted. */
int32_t tg_compose_finite_maximum(const tg_call *call, int32_t x, uint32_t axes) {
    tg_graph *g = call->graph;
    const int32_t largest = row_maximum(g, x, axes);
    const int32_t size = tg_ir_unary(g, TG_OP_ABS, largest);
    const int32_t finite = tg_ir_binary(g, TG_OP_LESS, size, tg_compose_number(call, (double)INFINITY));
    return tg_ir_select(g, finite, largest, tg_compose_number(call, 0.0));
}

static int32_t normalized(tg_graph *g, int32_t weights, uint32_t axes) {
    return tg_ir_binary(g, TG_OP_DIV, weights, tg_ir_reduce(g, TG_OP_SUM, weights, axes));
}

void tg_compose_shifted(const tg_call *call, int32_t x, int axis, int32_t counted, int32_t *shifted, int32_t *log_sum) {
    tg_graph *g = call->graph;
    uint32_t axes = 1u << (unsigned)axis;
    *shifted = tg_ir_binary(g, TG_OP_SUB, x, row_maximum(g, x, axes));
    if (counted != 0) *shifted = tg_ir_select(g, counted, *shifted, tg_compose_number(call, 0.0));
    int32_t sum = tg_ir_reduce(g, TG_OP_SUM, tg_ir_unary(g, TG_OP_EXP, *shifted), axes);
    *log_sum = tg_ir_unary(g, TG_OP_LOG, sum);
}

tg_tensor tg_softmax_at(tg_site site, tg_tensor x, int axis) {
    tg_call call;
    int along = 0;
    if (!enter_softmax(&call, site, "softmax", x, axis, &along)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    uint32_t axes = 1u << (unsigned)along;
    int32_t shifted = tg_ir_binary(g, TG_OP_SUB, x.id, row_maximum(g, x.id, axes));
    return tg_call_result(&call, normalized(g, tg_ir_unary(g, TG_OP_EXP, shifted), axes));
}

tg_tensor tg_log_softmax_at(tg_site site, tg_tensor x, int axis) {
    tg_call call;
    int along = 0;
    int32_t shifted = 0, log_sum = 0;
    if (!enter_softmax(&call, site, "log_softmax", x, axis, &along)) return tg_call_poison(&call);
    tg_compose_shifted(&call, x.id, along, 0, &shifted, &log_sum);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_SUB, shifted, log_sum));
}

tg_tensor tg_logsumexp_at(tg_site site, tg_tensor x, int axis) {
    tg_call call;
    int along = 0;
    if (!enter_softmax(&call, site, "logsumexp", x, axis, &along)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    uint32_t axes = 1u << (unsigned)along;
    int32_t maximum = tg_compose_finite_maximum(&call, x.id, axes);
    int32_t weights = tg_ir_unary(g, TG_OP_EXP, tg_ir_binary(g, TG_OP_SUB, x.id, maximum));
    int32_t sum = tg_ir_reduce(g, TG_OP_SUM, weights, axes);
    /* the sum is 0 if all are -infinity: its logarithm is selected, so that the gradient is 0 and
     * not 0 / 0 */
    int32_t empty = tg_ir_binary(g, TG_OP_EQUAL, sum, tg_compose_number(&call, 0.0));
    int32_t log_sum = tg_ir_unary(g, TG_OP_LOG, tg_ir_select(g, empty, tg_compose_number(&call, 1.0), sum));
    log_sum = tg_ir_select(g, empty, tg_compose_number(&call, -(double)INFINITY), log_sum);
    return tg_call_result(&call, tg_compose_drop_axes(&call, tg_ir_binary(g, TG_OP_ADD, log_sum, maximum), axes));
}

/* Subtracts the maximum of the visible elements. Hidden elements are set after the shift, so that
 * they become exactly 0 for any maximum. A row without visible elements has the sum 0 and is
 * divided by 1. */
static int32_t masked_softmax(const tg_call *call, int32_t x, int32_t mask, uint32_t axes) {
    tg_graph *g = call->graph;
    int32_t zero = tg_compose_number(call, 0.0);
    int32_t visible = tg_ir_select(g, mask, x, tg_compose_number(call, -(double)FLT_MAX));
    int32_t shifted = tg_ir_binary(g, TG_OP_SUB, x, row_maximum(g, visible, axes));
    int32_t weights = tg_ir_unary(g, TG_OP_EXP, tg_ir_select(g, mask, shifted, zero));
    weights = tg_ir_select(g, mask, weights, zero);
    int32_t sum = tg_ir_reduce(g, TG_OP_SUM, weights, axes);
    int32_t empty = tg_ir_binary(g, TG_OP_EQUAL, sum, zero);
    return tg_ir_binary(g, TG_OP_DIV, weights, tg_ir_select(g, empty, tg_compose_number(call, 1.0), sum));
}

tg_tensor tg_masked_softmax_at(tg_site site, tg_tensor x, tg_tensor mask, int axis) {
    tg_call call;
    tg_tensor operands[2] = {x, mask};
    int32_t ids[2] = {x.id, mask.id};
    int along = 0;
    tg_shape out;
    if (!tg_call_enter(&call, site, "masked_softmax", operands, 2) || !tg_call_takes(&call, x.id, TG_TAKES_F32) ||
        !tg_call_takes(&call, mask.id, TG_TAKES_BOOL))
        return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id);
    if (!tg_shape_broadcast(shape, tg_node_shape(&call, mask.id), &out) || !tg_shape_equal(out, shape))
        return tg_call_fail(&call, TG_ERROR_SHAPE, ids, 2, "the mask does not broadcast to the operand: %s and %s", TG_LABEL(&call, x.id),
                            TG_LABEL(&call, mask.id));
    if (!tg_call_axis(&call, x.id, shape.rank, axis, &along)) return tg_call_poison(&call);
    int32_t wide = tg_ir_broadcast(call.graph, mask.id, shape);
    return tg_call_result(&call, masked_softmax(&call, x.id, wide, 1u << (unsigned)along));
}

/* ---------------------------------------------------------------- triangles */

/* bool [1, .., M, N] of the last two axes: column <= row + diagonal; upper:
 * column >= row + diagonal. */
static int32_t triangle_mask(const tg_call *call, int32_t x, int64_t diagonal, bool upper) {
    tg_graph *g = call->graph;
    tg_shape shape = tg_node_shape(call, x), rows = shape, columns;
    int64_t height = shape.dim[shape.rank - 2], width = shape.dim[shape.rank - 1];
    for (int i = 0; i < shape.rank; i++) rows.dim[i] = 1;
    columns = rows;
    rows.dim[shape.rank - 2] = height;
    columns.dim[shape.rank - 1] = width;
    if (diagonal > width) diagonal = width; /* beyond the width nothing changes */
    if (diagonal < -height) diagonal = -height;
    int32_t row = tg_ir_iota(g, rows, TG_I32, shape.rank - 2);
    int32_t column = tg_ir_iota(g, columns, TG_I32, shape.rank - 1);
    if (diagonal != 0) row = tg_ir_binary(g, TG_OP_ADD, row, tg_ir_const(g, TG_SCALAR, TG_I32, (double)diagonal));
    return upper ? tg_ir_binary(g, TG_OP_LESS_EQUAL, row, column) : tg_ir_binary(g, TG_OP_LESS_EQUAL, column, row);
}

static tg_tensor triangle(tg_site site, const char *name, tg_tensor x, int64_t diagonal, bool upper) {
    tg_call call;
    if (!tg_call_enter(&call, site, name, &x, 1)) return tg_call_poison(&call);
    if (tg_node_shape(&call, x.id).rank < 2)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "needs at least 2 axes: %s", TG_LABEL(&call, x.id));
    int32_t mask = triangle_mask(&call, x.id, diagonal, upper);
    int32_t nothing = tg_ir_const(call.graph, TG_SCALAR, tg_node_dtype(&call, x.id), 0.0);
    return tg_call_result(&call, tg_ir_select(call.graph, mask, x.id, nothing));
}

tg_tensor tg_tril_at(tg_site site, tg_tensor x, int64_t diagonal) { return triangle(site, "tril", x, diagonal, false); }

tg_tensor tg_triu_at(tg_site site, tg_tensor x, int64_t diagonal) { return triangle(site, "triu", x, diagonal, true); }

static bool enter_causal(tg_call *call, tg_site site, const char *name, tg_tensor x, unsigned dtypes) {
    if (!tg_call_enter(call, site, name, &x, 1) || !tg_call_takes(call, x.id, dtypes)) return false;
    tg_shape shape = tg_node_shape(call, x.id);
    if (shape.rank >= 2 && shape.dim[shape.rank - 1] == shape.dim[shape.rank - 2]) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, &x.id, 1, "the last two axes need one size: %s", TG_LABEL(call, x.id));
    return false;
}

/* Subtracts the maximum of the visible columns. Hidden columns are set after the shift, so that
 * e^-1e30 = 0 exactly for any maximum. The selection makes their gradient 0. */
tg_tensor tg_softmax_causal_last_at(tg_site site, tg_tensor x) {
    tg_call call;
    if (!enter_causal(&call, site, "softmax_causal_last", x, TG_TAKES_F32)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    uint32_t axes = 1u << (unsigned)(tg_node_shape(&call, x.id).rank - 1);
    int32_t mask = triangle_mask(&call, x.id, 0, false);
    int32_t visible = tg_ir_select(g, mask, x.id, tg_compose_number(&call, -(double)FLT_MAX));
    int32_t shifted = tg_ir_binary(g, TG_OP_SUB, x.id, row_maximum(g, visible, axes));
    int32_t masked = tg_ir_select(g, mask, shifted, tg_compose_number(&call, -1e30));
    return tg_call_result(&call, normalized(g, tg_ir_unary(g, TG_OP_EXP, masked), axes));
}

tg_tensor tg_where_causal_at(tg_site site, tg_tensor x, double fill) {
    tg_call call;
    double held = 0;
    if (!enter_causal(&call, site, "where_causal", x, TG_TAKES_NUMBERS)) return tg_call_poison(&call);
    tg_dtype dtype = tg_node_dtype(&call, x.id);
    if (!tg_call_number(&call, fill, dtype, x.id, &held)) return tg_call_poison(&call);
    int32_t hidden = tg_ir_const(call.graph, tg_shape_make(0, NULL), dtype, held);
    return tg_call_result(&call, tg_ir_select(call.graph, triangle_mask(&call, x.id, 0, false), x.id, hidden));
}
