/* rules: the shape rules of primitives, in the forms that ops.def names: the inputs, dtypes and
 * attributes that each takes, and its result. Must not know how nodes are stored, and changes
 * nothing. Cost: O(inputs) each. */
#include "ir/rules.h"
#include "ir/attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tg_status rule_refuse(tg_rule *rule, tg_status code, const char *format, ...) TG_PRINTF(3, 4);
static tg_status rule_refuse(tg_rule *rule, tg_status code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(rule->message, sizeof rule->message, format, arguments) < 0) rule->message[0] = '\0';
    va_end(arguments);
    return code;
}

static const tg_node *rule_input(const tg_rule *rule, int i) { return tg_graph_node(rule->g, rule->node->inputs[i]); }

/* The i-th operand for a message: "x[256, 64]". */
static const char *rule_operand(const tg_rule *rule, int i, char buffer[TG_NODE_TEXT]) {
    return tg_node_text(rule->g, rule->node->inputs[i], buffer, TG_NODE_TEXT);
}

static tg_status rule_check_shape(tg_rule *rule) { return tg_shape_check(rule->shape, rule->message, sizeof rule->message); }

static tg_status rule_check_operands(tg_rule *rule) {
    return tg_operands_check(rule->g, rule->node->op, rule->node->inputs, rule->node->input_count, rule->message, sizeof rule->message);
}

/* ---------------------------------------------------------------- operands before broadcasting */

tg_status tg_operands_check(const tg_graph *g, tg_op op, const int32_t *inputs, int count, char *message, size_t size) {
    char list[TG_DTYPE_LIST], first[TG_NODE_TEXT], other[TG_NODE_TEXT];
    const int branch = op == TG_OP_SELECT ? 1 : 0; /* the first operand whose type counts */
    if (op == TG_OP_SELECT && tg_graph_node(g, inputs[0])->dtype != TG_BOOL) {
        (void)snprintf(message, size, "the condition must be bool: %s (%s)", tg_node_text(g, inputs[0], first, sizeof first),
                       tg_dtype_name(tg_graph_node(g, inputs[0])->dtype));
        return TG_ERROR_DTYPE;
    }
    for (int i = branch; i < count; i++) {
        const tg_dtype dtype = tg_graph_node(g, inputs[i])->dtype;
        if (dtype == tg_graph_node(g, inputs[branch])->dtype) continue;
        (void)snprintf(message, size, "element types differ: %s and %s (%s, %s)", tg_node_text(g, inputs[branch], first, sizeof first),
                       tg_node_text(g, inputs[i], other, sizeof other), tg_dtype_name(tg_graph_node(g, inputs[branch])->dtype),
                       tg_dtype_name(dtype));
        return TG_ERROR_DTYPE;
    }
    if (count > branch && !(tg_op_dtypes(op) & 1u << tg_graph_node(g, inputs[branch])->dtype)) {
        (void)snprintf(message, size, "%s has element type %s, but only %s will do", tg_node_text(g, inputs[branch], first, sizeof first),
                       tg_dtype_name(tg_graph_node(g, inputs[branch])->dtype), tg_dtype_list(tg_op_dtypes(op), "and", list, sizeof list));
        return TG_ERROR_DTYPE;
    }
    return TG_OK;
}

/* The last axis, counted from the end, on which two shapes do not broadcast, as its two dims. */
static void rule_find_clash(tg_shape a, tg_shape b, int64_t clash[2]) {
    for (int32_t i = 1; i <= a.rank && i <= b.rank; i++) {
        clash[0] = a.dim[a.rank - i];
        clash[1] = b.dim[b.rank - i];
        if (clash[0] != clash[1] && clash[0] != 1 && clash[1] != 1) return;
    }
}

tg_status tg_broadcast_check(const tg_graph *g, int32_t a, int32_t b, tg_shape *out, char *message, size_t size) {
    const tg_shape left = tg_graph_node(g, a)->shape, right = tg_graph_node(g, b)->shape;
    if (tg_shape_broadcast(left, right, out)) {
        char why[TG_RULE_MESSAGE / 2], first[TG_NODE_TEXT / 2], other[TG_NODE_TEXT / 2];
        const tg_status status = tg_shape_check(*out, why, sizeof why);
        if (status != TG_OK)
            (void)snprintf(message, size, "the broadcast of %s and %s: %s", tg_node_text(g, a, first, sizeof first),
                           tg_node_text(g, b, other, sizeof other), why);
        return status;
    }
    char first[TG_NODE_TEXT], other[TG_NODE_TEXT];
    int64_t clash[2] = {0, 0};
    rule_find_clash(left, right, clash);
    (void)snprintf(message, size, "shapes do not broadcast: %s and %s (%lld != %lld)", tg_node_text(g, a, first, sizeof first),
                   tg_node_text(g, b, other, sizeof other), (long long)clash[0], (long long)clash[1]);
    return TG_ERROR_SHAPE;
}

/* ---------------------------------------------------------------- leaves */

static tg_status rule_leaf(tg_rule *rule) {
    char list[TG_DTYPE_LIST];
    rule->shape = rule->node->shape;
    rule->dtype = rule->node->dtype;
    if (!tg_dtype_valid(rule->dtype)) return rule_refuse(rule, TG_ERROR_DTYPE, "%d is no element type", (int)rule->dtype);
    if (!(tg_op_dtypes(rule->node->op) & 1u << rule->dtype))
        return rule_refuse(rule, TG_ERROR_DTYPE, "element type %s, but only %s will do", tg_dtype_name(rule->dtype),
                           tg_dtype_list(tg_op_dtypes(rule->node->op), "and", list, sizeof list));
    return rule_check_shape(rule);
}

static tg_status rule_table_leaf(tg_rule *rule) {
    if (rule->node->attr.leaf < 0) return rule_refuse(rule, TG_ERROR_INTERNAL, "table position %d", (int)rule->node->attr.leaf);
    return rule_leaf(rule);
}

static tg_status rule_CONST(tg_rule *rule) {
    const tg_status status = rule_leaf(rule);
    const tg_node *node = rule->node;
    if (status != TG_OK || node->attr.data || tg_dtype_holds(node->dtype, node->attr.value)) return status;
    return rule_refuse(rule, TG_ERROR_DTYPE, "%.17g is not exact in %s", node->attr.value, tg_dtype_name(node->dtype));
}

static bool rule_has_axis(const tg_rule *rule, int32_t rank) { return rule->node->attr.axis >= 0 && rule->node->attr.axis < rank; }

static tg_status rule_IOTA(tg_rule *rule) {
    const tg_status status = rule_leaf(rule);
    char shape[TG_SHAPE_TEXT];
    if (status != TG_OK || rule_has_axis(rule, rule->shape.rank)) return status;
    return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is outside %s", (int)rule->node->attr.axis,
                       tg_shape_text(rule->shape, shape, sizeof shape));
}

/* ---------------------------------------------------------------- elementwise
 * All operands have one shape. */

static tg_status rule_elementwise(tg_rule *rule, tg_dtype dtype) {
    const tg_status status = rule_check_operands(rule);
    if (status != TG_OK) return status;
    rule->shape = rule_input(rule, 0)->shape;
    rule->dtype = dtype;
    for (int i = 1; i < rule->node->input_count; i++) {
        char first[TG_NODE_TEXT], other[TG_NODE_TEXT];
        if (!tg_shape_equal(rule_input(rule, i)->shape, rule->shape))
            return rule_refuse(rule, TG_ERROR_SHAPE, "shapes differ: %s and %s", rule_operand(rule, 0, first),
                               rule_operand(rule, i, other));
    }
    return TG_OK;
}

static tg_status rule_same_type(tg_rule *rule) { return rule_elementwise(rule, rule_input(rule, 0)->dtype); }
static tg_status rule_to_bool(tg_rule *rule) { return rule_elementwise(rule, TG_BOOL); }

static tg_status rule_SELECT(tg_rule *rule) { return rule_elementwise(rule, rule_input(rule, 1)->dtype); }

static tg_status rule_CAST(tg_rule *rule) {
    if (!tg_dtype_valid(rule->node->dtype)) return rule_refuse(rule, TG_ERROR_DTYPE, "%d is no element type", (int)rule->node->dtype);
    return rule_elementwise(rule, rule->node->dtype);
}

static tg_status rule_RANDOM(tg_rule *rule) {
    const double bound = rule->node->attr.value;
    if (!(bound >= 1 && bound <= 2147483648.0 && bound == floor(bound)))
        return rule_refuse(rule, TG_ERROR_ARGUMENT, "the bound %.17g is not a whole number in [1, 2^31]", bound);
    if (rule->node->attr.stream < 0) return rule_refuse(rule, TG_ERROR_INTERNAL, "stream %d", (int)rule->node->attr.stream);
    return rule_elementwise(rule, TG_I32);
}

/* ---------------------------------------------------------------- reductions */

/* Refuses a mask with an axis the operand does not have. */
static tg_status rule_check_axes(tg_rule *rule) {
    char text[TG_NODE_TEXT];
    const uint32_t axes = rule->node->attr.axes;
    for (int32_t axis = 0; axis < 32; axis++)
        if (axes >> axis & 1u && axis >= rule_input(rule, 0)->shape.rank)
            return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is outside %s", (int)axis, rule_operand(rule, 0, text));
    if (axes == 0) return rule_refuse(rule, TG_ERROR_SHAPE, "no axis is named for %s", rule_operand(rule, 0, text));
    return TG_OK;
}

static tg_status rule_reduce(tg_rule *rule, tg_dtype dtype) {
    tg_status status = rule_check_operands(rule);
    if (status == TG_OK) status = rule_check_axes(rule);
    if (status != TG_OK) return status;
    rule->dtype = dtype;
    rule->shape = rule_input(rule, 0)->shape;
    for (int32_t axis = 0; axis < rule->shape.rank; axis++)
        if (rule->node->attr.axes >> axis & 1u) rule->shape.dim[axis] = 1;
    return TG_OK;
}

static tg_status rule_reduce_same(tg_rule *rule) { return rule_reduce(rule, rule_input(rule, 0)->dtype); }
static tg_status rule_reduce_to_index(tg_rule *rule) { return rule_reduce(rule, TG_I32); }

/* ---------------------------------------------------------------- views */

/* Takes the wanted shape from the node; refuses one that cannot be, or (same_rank) one of another
 * rank than the operand's. */
static tg_status rule_view(tg_rule *rule, bool same_rank) {
    char text[TG_NODE_TEXT], wanted[TG_SHAPE_TEXT];
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = rule->node->shape;
    const tg_status status = rule_check_shape(rule);
    if (status != TG_OK || !same_rank || rule->shape.rank == rule_input(rule, 0)->shape.rank) return status;
    return rule_refuse(rule, TG_ERROR_SHAPE, "ranks differ: %s to %s", rule_operand(rule, 0, text),
                       tg_shape_text(rule->shape, wanted, sizeof wanted));
}

static tg_status rule_RESHAPE(tg_rule *rule) {
    char text[TG_NODE_TEXT], wanted[TG_SHAPE_TEXT];
    const tg_status status = rule_view(rule, false);
    const int64_t have = tg_shape_count(rule_input(rule, 0)->shape), want = tg_shape_count(rule->shape);
    if (status != TG_OK || have == want) return status;
    return rule_refuse(rule, TG_ERROR_SHAPE, "element counts differ: %s to %s (%lld != %lld)", rule_operand(rule, 0, text),
                       tg_shape_text(rule->shape, wanted, sizeof wanted), (long long)have, (long long)want);
}

static tg_status rule_PERMUTE(tg_rule *rule) {
    const tg_shape from = rule_input(rule, 0)->shape;
    const int32_t *perm = rule->node->attr.perm;
    uint32_t seen = 0;
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = from;
    for (int32_t i = 0; i < from.rank; i++) {
        char text[TG_NODE_TEXT];
        if (perm[i] < 0 || perm[i] >= from.rank)
            return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is outside %s", (int)perm[i], rule_operand(rule, 0, text));
        if (seen >> perm[i] & 1u)
            return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is named twice for %s", (int)perm[i], rule_operand(rule, 0, text));
        seen |= 1u << perm[i];
        rule->shape.dim[i] = from.dim[perm[i]];
    }
    return TG_OK;
}

static tg_status rule_BROADCAST(tg_rule *rule) {
    const tg_status status = rule_view(rule, true);
    if (status != TG_OK) return status;
    const tg_shape from = rule_input(rule, 0)->shape;
    for (int32_t i = 0; i < from.rank; i++) {
        char text[TG_NODE_TEXT], wanted[TG_SHAPE_TEXT];
        if (from.dim[i] != 1 && from.dim[i] != rule->shape.dim[i])
            return rule_refuse(rule, TG_ERROR_SHAPE, "%s does not broadcast to %s (%lld != %lld)", rule_operand(rule, 0, text),
                               tg_shape_text(rule->shape, wanted, sizeof wanted), (long long)from.dim[i], (long long)rule->shape.dim[i]);
    }
    return TG_OK;
}

static tg_status rule_SLICE(tg_rule *rule) {
    const tg_status status = rule_view(rule, true);
    if (status != TG_OK) return status;
    const tg_shape from = rule_input(rule, 0)->shape;
    for (int32_t i = 0; i < from.rank; i++) {
        char text[TG_NODE_TEXT];
        const int64_t start = rule->node->attr.start[i], length = rule->shape.dim[i];
        if (start < 0 || length > from.dim[i] || start > from.dim[i] - length)
            return rule_refuse(rule, TG_ERROR_SHAPE, "%lld elements from %lld on do not lie in axis %d of %s", (long long)length,
                               (long long)start, (int)i, rule_operand(rule, 0, text));
    }
    return TG_OK;
}

static tg_status rule_PAD(tg_rule *rule) {
    const tg_status status = rule_view(rule, true);
    if (status != TG_OK) return status;
    const tg_shape from = rule_input(rule, 0)->shape;
    for (int32_t i = 0; i < from.rank; i++) {
        char text[TG_NODE_TEXT];
        const int64_t before = rule->node->attr.start[i], whole = rule->shape.dim[i];
        if (before < 0 || from.dim[i] > whole || before > whole - from.dim[i])
            return rule_refuse(rule, TG_ERROR_SHAPE, "%s after %lld elements does not lie in %lld (axis %d)", rule_operand(rule, 0, text),
                               (long long)before, (long long)whole, (int)i);
    }
    return TG_OK;
}

static tg_status rule_FLIP(tg_rule *rule) {
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = rule_input(rule, 0)->shape;
    return rule_check_axes(rule);
}

/* Refuses an axis that the operand does not have, and sizes, strides and dilations out of range. */
static tg_status rule_check_window(tg_rule *rule, int32_t rank) {
    const tg_window w = rule->node->attr.window;
    char text[TG_NODE_TEXT];
    if (!rule_has_axis(rule, rank))
        return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is outside %s", (int)rule->node->attr.axis, rule_operand(rule, 0, text));
    const int64_t most = INT32_MAX;
    if (w.size >= 1 && w.size <= most && w.stride >= 1 && w.stride <= most && w.dilation >= 1 && w.dilation <= most) return TG_OK;
    return rule_refuse(rule, TG_ERROR_ARGUMENT, "size, step and dilation need to be at least 1: %lld, %lld, %lld", (long long)w.size,
                       (long long)w.stride, (long long)w.dilation);
}

static tg_status rule_WINDOW(tg_rule *rule) {
    const tg_shape from = rule_input(rule, 0)->shape;
    const tg_window w = rule->node->attr.window;
    const int32_t axis = rule->node->attr.axis;
    char text[TG_NODE_TEXT];
    const tg_status status = rule_check_window(rule, from.rank);
    if (status != TG_OK) return status;
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = from;
    if (from.rank == TG_MAX_RANK) return rule_refuse(rule, TG_ERROR_SHAPE, "no room for one more axis: %s", rule_operand(rule, 0, text));
    if (tg_window_span(w) > from.dim[axis])
        return rule_refuse(rule, TG_ERROR_SHAPE, "windows over %lld elements do not fit in axis %d of %s", (long long)tg_window_span(w),
                           (int)axis, rule_operand(rule, 0, text));
    rule->shape.dim[axis] = (from.dim[axis] - tg_window_span(w)) / w.stride + 1;
    rule->shape.dim[rule->shape.rank++] = w.size;
    return rule_check_shape(rule);
}

/* ---------------------------------------------------------------- joins */

static tg_status rule_check_part(tg_rule *rule, int i) {
    const tg_shape first = rule_input(rule, 0)->shape, part = rule_input(rule, i)->shape;
    char text[TG_NODE_TEXT], other[TG_NODE_TEXT];
    if (part.rank != first.rank)
        return rule_refuse(rule, TG_ERROR_SHAPE, "ranks differ: %s and %s", rule_operand(rule, 0, text), rule_operand(rule, i, other));
    for (int32_t axis = 0; axis < first.rank; axis++)
        if (axis != rule->node->attr.axis && part.dim[axis] != first.dim[axis])
            return rule_refuse(rule, TG_ERROR_SHAPE, "parts differ outside axis %d: %s and %s (%lld != %lld)", (int)rule->node->attr.axis,
                               rule_operand(rule, 0, text), rule_operand(rule, i, other), (long long)first.dim[axis],
                               (long long)part.dim[axis]);
    return TG_OK;
}

static tg_status rule_CONCAT(tg_rule *rule) {
    const int32_t axis = rule->node->attr.axis;
    char text[TG_NODE_TEXT];
    if (rule->node->input_count < 1) return rule_refuse(rule, TG_ERROR_ARGUMENT, "no parts");
    tg_status status = rule_check_operands(rule);
    if (status != TG_OK) return status;
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = rule_input(rule, 0)->shape;
    if (!rule_has_axis(rule, rule->shape.rank))
        return rule_refuse(rule, TG_ERROR_SHAPE, "axis %d is outside %s", (int)axis, rule_operand(rule, 0, text));
    for (int i = 1; i < rule->node->input_count; i++) {
        status = rule_check_part(rule, i);
        if (status != TG_OK) return status;
        rule->shape.dim[axis] += rule_input(rule, i)->shape.dim[axis];
    }
    return rule_check_shape(rule);
}

typedef struct rule_range {
    int64_t start, end;
} rule_range;

/* Sorts by start. Shell's method with Knuth's gaps: no allocation, no recursion, at worst
 * O(n^1.5). */
static void rule_sort_ranges(rule_range *ranges, int64_t count) {
    int64_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int64_t i = gap; i < count; i++) {
            const rule_range moved = ranges[i];
            int64_t at = i;
            for (; at >= gap && ranges[at - gap].start > moved.start; at -= gap) ranges[at] = ranges[at - gap];
            ranges[at] = moved;
        }
}

static tg_status rule_check_disjoint(tg_rule *rule) {
    const int64_t count = rule->node->input_count;
    const size_t bytes = (size_t)count * sizeof(rule_range);
    rule_range *ranges = tg_alloc(rule->g->ctx, bytes);
    if (!ranges) return rule_refuse(rule, TG_ERROR_MEMORY, "out of memory");
    for (int64_t i = 0; i < count; i++) {
        ranges[i].start = rule->node->attr.offsets[i];
        ranges[i].end = ranges[i].start + tg_shape_count(rule_input(rule, (int)i)->shape);
    }
    rule_sort_ranges(ranges, count);
    tg_status status = TG_OK;
    for (int64_t i = 1; i < count && status == TG_OK; i++)
        if (ranges[i].start < ranges[i - 1].end)
            status = rule_refuse(rule, TG_ERROR_ARGUMENT, "the part at %lld overlaps the one at %lld", (long long)ranges[i].start,
                                 (long long)ranges[i - 1].start);
    tg_release(rule->g->ctx, ranges, bytes);
    return status;
}

static tg_status rule_PACK(tg_rule *rule) {
    rule->dtype = TG_F32;
    rule->shape = rule->node->shape;
    tg_status status = rule_check_shape(rule);
    if (status == TG_OK) status = rule_check_operands(rule);
    if (status != TG_OK) return status;
    const tg_node *node = rule->node;
    if (rule->shape.rank != 1 || (node->input_count && !node->attr.offsets))
        return rule_refuse(rule, TG_ERROR_INTERNAL, "a result of rank 1 and one offset for each part are needed");
    for (int i = 0; i < node->input_count; i++) {
        char text[TG_NODE_TEXT];
        const int64_t count = tg_shape_count(rule_input(rule, i)->shape), start = node->attr.offsets[i];
        if (start < 0 || count > rule->shape.dim[0] || start > rule->shape.dim[0] - count)
            return rule_refuse(rule, TG_ERROR_ARGUMENT, "%s at %lld does not lie in %lld elements", rule_operand(rule, i, text),
                               (long long)start, (long long)rule->shape.dim[0]);
    }
    return node->input_count > 1 ? rule_check_disjoint(rule) : TG_OK;
}

/* The length is a multiple of the stride, so that index arithmetic can take the axis apart. */
static tg_status rule_FOLD(tg_rule *rule) {
    const tg_shape from = rule_input(rule, 0)->shape, to = rule->node->shape;
    const tg_window w = rule->node->attr.window;
    char text[TG_NODE_TEXT], wanted[TG_SHAPE_TEXT];
    tg_status status = rule_check_operands(rule);
    if (status == TG_OK) status = rule_check_window(rule, from.rank - 1);
    rule->dtype = TG_F32;
    rule->shape = to;
    if (status == TG_OK) status = rule_check_shape(rule);
    if (status != TG_OK) return status;
    const int32_t axis = rule->node->attr.axis;
    bool fits = to.rank == from.rank - 1 && from.dim[to.rank] == w.size && to.dim[axis] % w.stride == 0 &&
                (from.dim[axis] - 1) * w.stride + tg_window_span(w) <= to.dim[axis];
    for (int32_t i = 0; fits && i < to.rank; i++) fits = i == axis || to.dim[i] == from.dim[i];
    if (fits) return TG_OK;
    return rule_refuse(rule, TG_ERROR_SHAPE, "windows of %lld, %lld apart, step %lld, do not add up along axis %d: %s to %s",
                       (long long)w.size, (long long)w.dilation, (long long)w.stride, (int)axis, rule_operand(rule, 0, text),
                       tg_shape_text(to, wanted, sizeof wanted));
}

/* ---------------------------------------------------------------- contraction, indexing */

static tg_status rule_CONTRACT(tg_rule *rule) {
    const tg_status status = rule_check_operands(rule);
    if (status != TG_OK) return status;
    const tg_shape a = rule_input(rule, 0)->shape, b = rule_input(rule, 1)->shape;
    char left[TG_NODE_TEXT], right[TG_NODE_TEXT];
    (void)rule_operand(rule, 0, left);
    (void)rule_operand(rule, 1, right);
    if (a.rank != 3 || b.rank != 3) return rule_refuse(rule, TG_ERROR_SHAPE, "both sides need rank 3: %s x %s", left, right);
    if (a.dim[0] != b.dim[0])
        return rule_refuse(rule, TG_ERROR_SHAPE, "batch dimensions differ: %s x %s (%lld != %lld)", left, right, (long long)a.dim[0],
                           (long long)b.dim[0]);
    if (a.dim[2] != b.dim[1])
        return rule_refuse(rule, TG_ERROR_SHAPE, "inner dimensions differ: %s x %s (%lld != %lld)", left, right, (long long)a.dim[2],
                           (long long)b.dim[1]);
    rule->dtype = TG_F32;
    rule->shape = a;
    rule->shape.dim[2] = b.dim[2];
    return rule_check_shape(rule);
}

/* Checks operand `rows`, of rank 2 (f32, or of `any` dtype), and operand `indices`, i32 of rank
 * 1. */
static tg_status rule_check_indexing(tg_rule *rule, int rows, int indices, bool any) {
    char text[TG_NODE_TEXT], other[TG_NODE_TEXT];
    (void)rule_operand(rule, rows, text);
    (void)rule_operand(rule, indices, other);
    if ((!any && rule_input(rule, rows)->dtype != TG_F32) || rule_input(rule, indices)->dtype != TG_I32)
        return rule_refuse(rule, TG_ERROR_DTYPE, "%srows and i32 indices are needed: %s (%s), %s (%s)", any ? "" : "f32 ", text,
                           tg_dtype_name(rule_input(rule, rows)->dtype), other, tg_dtype_name(rule_input(rule, indices)->dtype));
    if (rule_input(rule, rows)->shape.rank != 2 || rule_input(rule, indices)->shape.rank != 1)
        return rule_refuse(rule, TG_ERROR_SHAPE, "rows of rank 2 and indices of rank 1 are needed: %s, %s", text, other);
    return TG_OK;
}

static tg_status rule_GATHER(tg_rule *rule) {
    const tg_status status = rule_check_indexing(rule, 0, 1, true);
    if (status != TG_OK) return status;
    rule->dtype = rule_input(rule, 0)->dtype;
    rule->shape = rule_input(rule, 0)->shape;
    rule->shape.dim[0] = rule_input(rule, 1)->shape.dim[0];
    return rule_check_shape(rule);
}

static tg_status rule_SCATTER_ADD(tg_rule *rule) {
    const tg_status status = rule_check_indexing(rule, 1, 0, false);
    if (status != TG_OK) return status;
    const tg_shape indices = rule_input(rule, 0)->shape, updates = rule_input(rule, 1)->shape;
    char text[TG_NODE_TEXT], other[TG_NODE_TEXT];
    if (indices.dim[0] != updates.dim[0])
        return rule_refuse(rule, TG_ERROR_SHAPE, "one row for each index is needed: %s, %s (%lld != %lld)", rule_operand(rule, 0, text),
                           rule_operand(rule, 1, other), (long long)indices.dim[0], (long long)updates.dim[0]);
    rule->dtype = TG_F32;
    rule->shape = updates;
    rule->shape.dim[0] = rule->node->shape.dim[0];
    return rule_check_shape(rule);
}

/* ---------------------------------------------------------------- attention */

/* What the operands are: those with the rows of q, those with the rows of k, one number for each
 * row of q. */
static bool rule_attention_fits(tg_rule *rule, int count, tg_attention_shape *out) {
    const tg_shape q = rule_input(rule, 0)->shape, k = rule_input(rule, 1)->shape;
    const tg_shape row = TG_SHAPE(q.dim[0], q.dim[1], q.dim[2], 1), scores = TG_SHAPE(q.dim[0], q.dim[1], q.dim[2], k.dim[2]);
    const tg_shape wanted[7] = {q, k, k, q, row, row, scores};
    const bool masked = rule->node->input_count > count;
    if (q.rank != 4 || k.rank != 4 || q.dim[0] != k.dim[0] || q.dim[1] % k.dim[1] != 0 || q.dim[3] != k.dim[3]) return false;
    if (q.dim[3] > TG_ATTENTION_WIDEST || (rule->node->attr.causal && q.dim[2] != k.dim[2])) return false;
    for (int i = 0; i < count; i++)
        if (rule_input(rule, i)->dtype != TG_F32 || !tg_shape_equal(rule_input(rule, i)->shape, wanted[i])) return false;
    *out = tg_attention_shape_of(q, k);
    return !masked || (rule_input(rule, count)->dtype == TG_BOOL && tg_shape_equal(rule_input(rule, count)->shape, scores));
}

/* Fills *out if the operands fit: `count` of them, and a mask if there is one more. */
static tg_status rule_attention(tg_rule *rule, int count, tg_attention_shape *out) {
    char q[TG_NODE_TEXT], k[TG_NODE_TEXT];
    rule->dtype = TG_F32;
    if (rule->node->input_count != count && rule->node->input_count != count + 1)
        return rule_refuse(rule, TG_ERROR_INTERNAL, "takes %d or %d inputs, not %d", count, count + 1, (int)rule->node->input_count);
    if (rule_attention_fits(rule, count, out)) return TG_OK;
    return rule_refuse(rule, TG_ERROR_SHAPE, "these are not queries and keys with their rows and mask: %s, %s", rule_operand(rule, 0, q),
                       rule_operand(rule, 1, k));
}

static tg_status rule_ATTENTION(tg_rule *rule) {
    tg_attention_shape s;
    const tg_status status = rule_attention(rule, 3, &s);
    if (status != TG_OK) return status;
    rule->shape = TG_SHAPE(s.batches * s.groups * s.kv_heads * s.queries * (s.width + 1));
    return rule_check_shape(rule);
}

static tg_status rule_ATTENTION_DQ(tg_rule *rule) {
    tg_attention_shape s;
    const tg_status status = rule_attention(rule, 6, &s);
    if (status == TG_OK) rule->shape = TG_SHAPE(s.batches, s.queries, s.kv_heads * s.groups, s.width);
    return status;
}

static tg_status rule_ATTENTION_DKV(tg_rule *rule) {
    tg_attention_shape s;
    const tg_status status = rule_attention(rule, 6, &s);
    if (status != TG_OK) return status;
    rule->shape = TG_SHAPE(2 * s.batches * s.keys * s.kv_heads * s.width);
    return rule_check_shape(rule);
}

/* ---------------------------------------------------------------- all of them */

typedef tg_status (*rule_function)(tg_rule *rule);

#define RULE_TABLE(NAME) rule_table_leaf
#define RULE_SAME(NAME) rule_same_type
#define RULE_BOOLEAN(NAME) rule_to_bool
#define RULE_REDUCE(NAME) rule_reduce_same
#define RULE_REDUCE_TO_INDEX(NAME) rule_reduce_to_index
#define RULE_OWN(NAME) rule_##NAME

static const rule_function rule_table[TG_OP_COUNT] = {
    NULL,
#define TG_OP(NAME, text, arity, class_, dtypes, shape, ...) RULE_##shape(NAME),
#include "ir/ops.def"
#undef TG_OP
};

#undef RULE_TABLE
#undef RULE_SAME
#undef RULE_BOOLEAN
#undef RULE_REDUCE
#undef RULE_REDUCE_TO_INDEX
#undef RULE_OWN

tg_status tg_rule_apply(tg_rule *rule, const tg_graph *g, const tg_node *node, int32_t before) {
    rule->g = g;
    rule->node = node;
    rule->shape = node->shape;
    rule->dtype = node->dtype;
    rule->message[0] = '\0';
    if (node->op <= TG_OP_POISON || node->op >= TG_OP_COUNT)
        return rule_refuse(rule, TG_ERROR_INTERNAL, "%d is no operation", (int)node->op);
    const int arity = tg_op_table[node->op].arity;
    if (node->input_count < 0 || (arity >= 0 && node->input_count != arity) || (node->input_count > 0 && !node->inputs))
        return rule_refuse(rule, TG_ERROR_INTERNAL, "takes %d inputs, not %d", arity, (int)node->input_count);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] < 1 || node->inputs[i] >= before)
            return rule_refuse(rule, TG_ERROR_INTERNAL, "input %d is node %d, which is not before it", i, (int)node->inputs[i]);
    return rule_table[node->op](rule);
}
