/* Views and joins: reshape, transpose, broadcast, slices, concat, stack. Views become index
 * arithmetic of the kernels that read them. Must not know layouts in memory. */
#include "trace/trace.h"

/* ---------------------------------------------------------------- reshape */

/* The product of all dims except one of -1. Negative if the shape is malformed: -1 for a bad dim,
 * -2 for two unknowns, -3 for more elements than a tensor can have. */
static int64_t known_count(tg_shape shape, int *unknown) {
    int64_t count = 1;
    *unknown = -1;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == -1) {
            if (*unknown >= 0) return -2;
            *unknown = i;
            continue;
        }
        if (shape.dim[i] < 1) return -1;
        if (shape.dim[i] > INT32_MAX / count) return -3;
        count *= shape.dim[i];
    }
    return count;
}

static bool resolve_reshape(const tg_call *call, int32_t x, tg_shape *shape) {
    int64_t have = tg_shape_count(tg_node_shape(call, x));
    int unknown = -1;
    if (shape->rank < 0 || shape->rank > TG_MAX_RANK) return tg_call_shape_ok(call, *shape);
    int64_t known = known_count(*shape, &unknown);
    if (known == -1) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "every axis needs at least 1 element: %s -> %s", TG_LABEL(call, x),
                     TG_SHAPE_LABEL(*shape));
        return false;
    }
    if (known == -2) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "only one dim may be -1: %s -> %s", TG_LABEL(call, x), TG_SHAPE_LABEL(*shape));
        return false;
    }
    if (known > 0 && unknown >= 0 && have % known == 0) {
        shape->dim[unknown] = have / known;
        return true;
    }
    if (known == have && unknown < 0) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "%lld elements do not fit: %s -> %s", (long long)have, TG_LABEL(call, x),
                 TG_SHAPE_LABEL(*shape));
    return false;
}

tg_tensor tg_reshape_at(tg_site site, tg_tensor x, tg_shape shape) {
    tg_call call;
    if (!tg_call_enter(&call, site, "reshape", &x, 1) || !resolve_reshape(&call, x.id, &shape)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_reshape(call.graph, x.id, shape));
}

/* ---------------------------------------------------------------- order of axes */

tg_tensor tg_transpose_at(tg_site site, tg_tensor x, tg_axes perm) {
    tg_call call;
    int32_t order[TG_MAX_RANK] = {0};
    if (!tg_call_enter(&call, site, "transpose", &x, 1)) return tg_call_poison(&call);
    int rank = tg_node_shape(&call, x.id).rank;
    if (perm.count != rank)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "the permutation has %d axes, %s has %d", (int)perm.count,
                            TG_LABEL(&call, x.id), rank);
    uint32_t seen = 0;
    for (int i = 0; i < rank; i++) {
        int axis = 0;
        if (!tg_call_axis(&call, x.id, rank, perm.axis[i], &axis)) return tg_call_poison(&call);
        if ((seen >> (unsigned)axis & 1u) != 0)
            return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "axis %d of %s is given twice", axis, TG_LABEL(&call, x.id));
        seen |= 1u << (unsigned)axis;
        order[i] = axis;
    }
    return tg_call_result(&call, tg_ir_permute(call.graph, x.id, order));
}

tg_tensor tg_swap_axes_at(tg_site site, tg_tensor x, int a, int b) {
    tg_call call;
    int32_t order[TG_MAX_RANK] = {0};
    int first = 0, second = 0;
    if (!tg_call_enter(&call, site, "swap_axes", &x, 1)) return tg_call_poison(&call);
    int rank = tg_node_shape(&call, x.id).rank;
    if (!tg_call_axis(&call, x.id, rank, a, &first) || !tg_call_axis(&call, x.id, rank, b, &second)) return tg_call_poison(&call);
    for (int i = 0; i < rank; i++) order[i] = i;
    order[first] = second;
    order[second] = first;
    return tg_call_result(&call, tg_ir_permute(call.graph, x.id, order));
}

/* ---------------------------------------------------------------- broadcast */

tg_tensor tg_broadcast_to_at(tg_site site, tg_tensor x, tg_shape shape) {
    tg_call call;
    tg_shape out;
    if (!tg_call_enter(&call, site, "broadcast_to", &x, 1) || !tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    if (!tg_shape_broadcast(tg_node_shape(&call, x.id), shape, &out) || !tg_shape_equal(out, shape))
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "%s does not broadcast to %s", TG_LABEL(&call, x.id), TG_SHAPE_LABEL(shape));
    return tg_call_result(&call, tg_ir_broadcast(call.graph, x.id, shape));
}

/* ---------------------------------------------------------------- slices */

/* Elements start .. end-1 along an axis. */
static tg_tensor slice_axis(const tg_call *call, int32_t x, int axis, int64_t start, int64_t end) {
    tg_shape shape = tg_node_shape(call, x);
    int64_t starts[TG_MAX_RANK] = {0};
    if (start < 0 || end <= start || end > shape.dim[axis])
        return tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "the range %lld .. %lld does not lie in axis %d of %s", (long long)start,
                            (long long)end, axis, TG_LABEL(call, x));
    starts[axis] = start;
    shape.dim[axis] = end - start;
    return tg_call_result(call, tg_ir_slice(call->graph, x, starts, shape));
}

tg_tensor tg_slice_last_range_at(tg_site site, tg_tensor x, int64_t start, int64_t end) {
    tg_call call;
    int axis = 0;
    if (!tg_call_enter(&call, site, "slice_last_range", &x, 1)) return tg_call_poison(&call);
    if (!tg_call_axis(&call, x.id, tg_node_shape(&call, x.id).rank, -1, &axis)) return tg_call_poison(&call);
    return slice_axis(&call, x.id, axis, start, end);
}

tg_tensor tg_narrow_at(tg_site site, tg_tensor x, int axis, int64_t start, int64_t length) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "narrow", &x, 1)) return tg_call_poison(&call);
    if (start < 0 || length < 1)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "start %lld and length %lld need to be at least 0 and 1: %s", (long long)start,
                            (long long)length, TG_LABEL(&call, x.id));
    if (!tg_call_axis(&call, x.id, tg_node_shape(&call, x.id).rank, axis, &along)) return tg_call_poison(&call);
    bool overflows = length > 0 && start > INT64_MAX - length;
    return slice_axis(&call, x.id, along, start, overflows ? INT64_MAX : start + length);
}

/* ---------------------------------------------------------------- joins */

/* Checks that all parts have one dtype and one shape, except for the dim of `axis` when
 * axis >= 0. */
static bool check_parts(const tg_call *call, const tg_tensor *parts, int count, int axis) {
    tg_shape first = tg_node_shape(call, parts[0].id);
    for (int i = 1; i < count; i++) {
        int32_t ids[2] = {parts[0].id, parts[i].id};
        tg_shape shape = tg_node_shape(call, parts[i].id);
        if (tg_node_dtype(call, ids[0]) != tg_node_dtype(call, ids[1])) {
            tg_call_fail(call, TG_ERROR_DTYPE, ids, 2, "dtypes differ: part 0 %s and part %d %s (%s != %s)", TG_LABEL(call, ids[0]), i,
                         TG_LABEL(call, ids[1]), tg_dtype_name(tg_node_dtype(call, ids[0])), tg_dtype_name(tg_node_dtype(call, ids[1])));
            return false;
        }
        if (axis >= 0 && axis < shape.rank) shape.dim[axis] = first.dim[axis];
        if (tg_shape_equal(first, shape)) continue;
        if (axis >= 0)
            tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "shapes differ beside axis %d: part 0 %s and part %d %s", axis,
                         TG_LABEL(call, ids[0]), i, TG_LABEL(call, ids[1]));
        else
            tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "shapes differ: part 0 %s and part %d %s", TG_LABEL(call, ids[0]), i,
                         TG_LABEL(call, ids[1]));
        return false;
    }
    return true;
}

static int32_t *scratch_ids(const tg_call *call, int count) { return tg_alloc(call->graph->ctx, (size_t)count * sizeof(int32_t)); }

static void release_ids(const tg_call *call, int32_t *ids, int count) {
    tg_release(call->graph->ctx, ids, (size_t)count * sizeof(int32_t));
}

tg_tensor tg_concat_at(tg_site site, const tg_tensor *parts, int count, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "concat", parts, parts == NULL ? 0 : count)) return tg_call_poison(&call);
    tg_shape total = tg_node_shape(&call, parts[0].id);
    if (!tg_call_axis(&call, parts[0].id, total.rank, axis, &along) || !check_parts(&call, parts, count, along))
        return tg_call_poison(&call);
    if (count == 1) return parts[0];
    for (int i = 1; i < count; i++) total.dim[along] += tg_node_shape(&call, parts[i].id).dim[along];
    if (!tg_call_shape_ok(&call, total)) return tg_call_poison(&call);
    int32_t *ids = scratch_ids(&call, count);
    if (ids == NULL) return tg_call_poison(&call);
    for (int i = 0; i < count; i++) ids[i] = parts[i].id;
    int32_t joined = tg_ir_concat(call.graph, ids, count, along);
    release_ids(&call, ids, count);
    return tg_call_result(&call, joined);
}

tg_tensor tg_stack_at(tg_site site, const tg_tensor *parts, int count, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "stack", parts, parts == NULL ? 0 : count)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, parts[0].id), wide = shape;
    wide.rank++;
    if (!tg_call_axis(&call, parts[0].id, wide.rank, axis, &along) || !check_parts(&call, parts, count, -1)) return tg_call_poison(&call);
    if (wide.rank > TG_MAX_RANK && !tg_call_shape_ok(&call, wide)) return tg_call_poison(&call);
    for (int i = 0; i < wide.rank; i++) wide.dim[i] = i == along ? 1 : shape.dim[i < along ? i : i - 1];
    tg_shape total = wide;
    total.dim[along] = count;
    if (!tg_call_shape_ok(&call, total)) return tg_call_poison(&call);
    int32_t *ids = scratch_ids(&call, count);
    if (ids == NULL) return tg_call_poison(&call);
    for (int i = 0; i < count; i++) ids[i] = tg_ir_reshape(call.graph, parts[i].id, wide);
    int32_t joined = count == 1 ? ids[0] : tg_ir_concat(call.graph, ids, count, along);
    release_ids(&call, ids, count);
    return tg_call_result(&call, joined);
}
