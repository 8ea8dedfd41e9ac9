/* Reductions over any axes, and means and sums that compositions share. The primitives keep reduced axes as 1; dropping
 * them is a reshape here. Must not know how a reduction runs. */
#include "trace/trace.h"

/* The axes as a mask over `rank` axes; each at most once. */
static bool axes_mask(const tg_call *call, int32_t x, tg_axes axes, uint32_t *mask) {
    int rank = tg_node_shape(call, x).rank;
    *mask = 0;
    if (axes.count < 0) {
        *mask = (1u << (unsigned)rank) - 1u;
        return true;
    }
    if (axes.count > TG_MAX_RANK) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "%d axes given for %s", (int)axes.count, TG_LABEL(call, x));
        return false;
    }
    for (int i = 0; i < axes.count; i++) {
        int axis = 0;
        if (!tg_call_axis(call, x, rank, axes.axis[i], &axis)) return false;
        if ((*mask >> (unsigned)axis & 1u) != 0) {
            tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "axis %d of %s is given twice", axis, TG_LABEL(call, x));
            return false;
        }
        *mask |= 1u << (unsigned)axis;
    }
    return true;
}

static int64_t reduced_count(tg_shape shape, uint32_t axes) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if ((axes >> (unsigned)i & 1u) != 0) count *= shape.dim[i];
    return count;
}

int32_t tg_compose_drop_axes(const tg_call *call, int32_t x, uint32_t axes) {
    tg_shape from = tg_node_shape(call, x), to = {0, {0}};
    if (x == 0) return 0;
    for (int i = 0; i < from.rank; i++)
        if ((axes >> (unsigned)i & 1u) == 0) to.dim[to.rank++] = from.dim[i];
    return tg_ir_reshape(call->graph, x, to);
}

int32_t tg_compose_mean(const tg_call *call, int32_t x, uint32_t axes) {
    if (x == 0) return 0;
    /* a division: the mean of equal numbers is that number, which a rounded 1/n would miss */
    double count = (double)reduced_count(tg_node_shape(call, x), axes);
    int32_t sum = tg_ir_reduce(call->graph, TG_OP_SUM, x, axes);
    return tg_ir_binary(call->graph, TG_OP_DIV, sum, tg_ir_const(call->graph, TG_SCALAR, TG_F32, count));
}

static bool enter_reduction(tg_call *call, tg_site site, const char *name, tg_tensor x, tg_axes axes, unsigned dtypes, uint32_t *mask) {
    return tg_call_enter(call, site, name, &x, 1) && tg_call_takes(call, x.id, dtypes) && axes_mask(call, x.id, axes, mask);
}

static tg_tensor finish_reduction(const tg_call *call, int32_t reduced, uint32_t mask, tg_reduce_options options) {
    return tg_call_result(call, options.keepdims ? reduced : tg_compose_drop_axes(call, reduced, mask));
}

static tg_tensor reduction(tg_site site, const char *name, tg_op op, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, name, x, axes, TG_TAKES_NUMBERS, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_ir_reduce(call.graph, op, x.id, mask), mask, options);
}

tg_tensor tg_sum_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "sum", TG_OP_SUM, x, axes, options);
}

tg_tensor tg_max_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "max", TG_OP_REDUCE_MAX, x, axes, options);
}

tg_tensor tg_min_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "min", TG_OP_REDUCE_MIN, x, axes, options);
}

tg_tensor tg_mean_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, "mean", x, axes, TG_TAKES_F32, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_compose_mean(&call, x.id, mask), mask, options);
}

static tg_tensor arg_reduction(tg_site site, const char *name, tg_op op, tg_tensor x, int axis, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    const int32_t one = axis;
    if (!enter_reduction(&call, site, name, x, tg_axes_make(1, &one), TG_TAKES_NUMBERS, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_ir_reduce(call.graph, op, x.id, mask), mask, options);
}

tg_tensor tg_argmax_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options) {
    return arg_reduction(site, "argmax", TG_OP_ARGMAX, x, axis, options);
}

tg_tensor tg_argmin_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options) {
    return arg_reduction(site, "argmin", TG_OP_ARGMIN, x, axis, options);
}
