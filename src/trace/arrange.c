/* Rearrangements composed of views: inserting and removing axes of one element, padding, flips,
 * rolls, repeats, splits. All become index arithmetic of the kernels that read them. Must not know
 * layouts in memory. */
#include "trace/trace.h"

/* ---------------------------------------------------------------- axes of one element */

tg_tensor tg_squeeze_at(tg_site site, tg_tensor x, tg_axes axes) {
    tg_call call;
    uint32_t mask = 0;
    if (!tg_call_enter(&call, site, "squeeze", &x, 1) || !tg_call_axes(&call, x.id, axes, &mask)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id);
    for (int i = 0; i < shape.rank; i++) {
        if ((mask >> (unsigned)i & 1u) == 0 || shape.dim[i] == 1) continue;
        if (axes.count >= 0)
            return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "axis %d has %lld elements, not 1: %s", i, (long long)shape.dim[i],
                                TG_LABEL(&call, x.id));
        mask &= ~(1u << (unsigned)i); /* keep only the axes that can be removed */
    }
    return tg_call_result(&call, tg_compose_drop_axes(&call, x.id, mask));
}

tg_tensor tg_expand_dims_at(tg_site site, tg_tensor x, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "expand_dims", &x, 1)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), wide = shape;
    wide.rank++;
    if (!tg_call_axis(&call, x.id, wide.rank, axis, &along)) return tg_call_poison(&call);
    if (wide.rank > TG_MAX_RANK && !tg_call_shape_ok(&call, wide)) return tg_call_poison(&call);
    for (int i = 0; i < wide.rank; i++) wide.dim[i] = i == along ? 1 : shape.dim[i < along ? i : i - 1];
    return tg_call_result(&call, tg_ir_reshape(call.graph, x.id, wide));
}

/* ---------------------------------------------------------------- padding */

/* Checks one count for each axis, each at least `least`. */
static bool counts_ok(const tg_call *call, int32_t x, const char *what, tg_shape counts, int64_t least) {
    int rank = tg_node_shape(call, x).rank;
    if (counts.rank != rank) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "%d %s given, %s has %d axes", (int)counts.rank, what, TG_LABEL(call, x), rank);
        return false;
    }
    for (int i = 0; i < rank; i++) {
        if (counts.dim[i] >= least && counts.dim[i] <= TG_MAX_COUNT) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "%s: %lld (axis %d) is not in %lld .. %lld: %s", what, (long long)counts.dim[i], i,
                     (long long)least, (long long)TG_MAX_COUNT, TG_LABEL(call, x));
        return false;
    }
    return true;
}

tg_tensor tg_pad_at(tg_site site, tg_tensor x, tg_shape before, tg_shape after, double value) {
    tg_call call;
    double held = 0;
    if (!tg_call_enter(&call, site, "pad", &x, 1) || !counts_ok(&call, x.id, "counts before", before, 0) ||
        !counts_ok(&call, x.id, "counts after", after, 0))
        return tg_call_poison(&call);
    tg_graph *g = call.graph;
    tg_dtype dtype = tg_node_dtype(&call, x.id);
    tg_shape shape = tg_node_shape(&call, x.id), wide = shape;
    for (int i = 0; i < shape.rank; i++) wide.dim[i] += before.dim[i] + after.dim[i];
    if (!tg_call_shape_ok(&call, wide) || !tg_call_number(&call, value, dtype, x.id, &held)) return tg_call_poison(&call);
    int32_t padded = tg_ir_pad(g, x.id, before.dim, wide);
    if (held == 0.0 || padded == x.id) return tg_call_result(&call, padded);
    int32_t inside = tg_ir_pad(g, tg_ir_const(g, shape, TG_BOOL, 1.0), before.dim, wide);
    return tg_call_result(&call, tg_ir_select(g, inside, padded, tg_ir_const(g, TG_SCALAR, dtype, held)));
}

/* ---------------------------------------------------------------- order within an axis */

tg_tensor tg_flip_at(tg_site site, tg_tensor x, tg_axes axes) {
    tg_call call;
    uint32_t mask = 0;
    if (!tg_call_enter(&call, site, "flip", &x, 1) || !tg_call_axes(&call, x.id, axes, &mask)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_flip(call.graph, x.id, mask));
}

/* The last `shift` elements come first. */
tg_tensor tg_roll_at(tg_site site, tg_tensor x, int64_t shift, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "roll", &x, 1)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), first = shape, second = shape;
    if (!tg_call_axis(&call, x.id, shape.rank, axis, &along)) return tg_call_poison(&call);
    int64_t n = shape.dim[along], start[TG_MAX_RANK] = {0};
    shift = (shift % n + n) % n;
    if (shift == 0) return tg_call_result(&call, x.id);
    second.dim[along] = n - shift;
    int32_t rest = tg_ir_slice(call.graph, x.id, start, second);
    first.dim[along] = shift;
    start[along] = n - shift;
    const int32_t parts[2] = {tg_ir_slice(call.graph, x.id, start, first), rest};
    return tg_call_result(&call, tg_ir_concat(call.graph, parts, 2, along));
}

/* ---------------------------------------------------------------- repetition */

/* x with axis `along` repeated: as a whole (a b a b), or each element by itself (a a b b). */
static int32_t repeated(const tg_call *call, int32_t x, int along, int64_t times, bool each) {
    if (x == 0 || times == 1) return x;
    tg_shape shape = tg_node_shape(call, x);
    int64_t dims[4] = {1, 1, 1, 1}, n = shape.dim[along];
    for (int i = 0; i < shape.rank; i++)
        if (i != along) dims[i < along ? 0 : 3] *= shape.dim[i];
    dims[each ? 1 : 2] = n;
    int32_t open = tg_ir_reshape(call->graph, x, tg_shape_make(4, dims));
    dims[each ? 2 : 1] = times;
    shape.dim[along] = n * times;
    return tg_ir_reshape(call->graph, tg_ir_broadcast(call->graph, open, tg_shape_make(4, dims)), shape);
}

tg_tensor tg_tile_at(tg_site site, tg_tensor x, tg_shape times) {
    tg_call call;
    if (!tg_call_enter(&call, site, "tile", &x, 1) || !counts_ok(&call, x.id, "counts", times, 1)) return tg_call_poison(&call);
    tg_shape wide = tg_node_shape(&call, x.id);
    for (int i = 0; i < wide.rank; i++) wide.dim[i] *= times.dim[i]; /* both under 2^31 */
    if (!tg_call_shape_ok(&call, wide)) return tg_call_poison(&call);
    int32_t y = x.id;
    for (int i = 0; i < wide.rank; i++) y = repeated(&call, y, i, times.dim[i], false);
    return tg_call_result(&call, y);
}

tg_tensor tg_repeat_at(tg_site site, tg_tensor x, int64_t times, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "repeat", &x, 1)) return tg_call_poison(&call);
    tg_shape wide = tg_node_shape(&call, x.id);
    if (!tg_call_axis(&call, x.id, wide.rank, axis, &along)) return tg_call_poison(&call);
    if (times < 1 || times > TG_MAX_COUNT)
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "%lld times is not in 1 .. %lld: %s", (long long)times,
                            (long long)TG_MAX_COUNT, TG_LABEL(&call, x.id));
    wide.dim[along] *= times; /* both under 2^31 */
    if (!tg_call_shape_ok(&call, wide)) return tg_call_poison(&call);
    return tg_call_result(&call, repeated(&call, x.id, along, times, true));
}

/* ---------------------------------------------------------------- splits */

/* Checks sizes: each at least 1, together the axis. Without sizes: n equal parts. */
static bool parts_ok(const tg_call *call, int32_t x, int axis, const int64_t *sizes, int n) {
    int64_t dim = tg_node_shape(call, x).dim[axis], sum = 0;
    if (n < 1 || (sizes == NULL && dim % n != 0)) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "axis %d does not divide into %d equal parts: %s", axis, n, TG_LABEL(call, x));
        return false;
    }
    if (sizes == NULL) return true;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 1) {
            tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "part %d has %lld elements: %s", i, (long long)sizes[i], TG_LABEL(call, x));
            return false;
        }
        sum = sizes[i] > TG_MAX_COUNT - sum ? TG_MAX_COUNT : sum + sizes[i];
    }
    if (sum == dim) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "the %d parts have %lld elements, axis %d has %lld: %s", n, (long long)sum, axis,
                 (long long)dim, TG_LABEL(call, x));
    return false;
}

/* After a failure `out` holds poison, so that a build function can go on and check once at its
 * end. */
static tg_status fail_split(const tg_call *call, tg_tensor *out, int n) {
    for (int i = 0; out != NULL && i < n; i++) out[i] = tg_call_poison(call);
    if (call->graph == NULL) return TG_ERROR_ARGUMENT;
    tg_status status = call->graph->ctx->status;
    return status != TG_OK ? status : TG_ERROR_TRACE; /* poison from before the error was cleared */
}

tg_status tg_split_at(tg_site site, tg_tensor x, int axis, const int64_t *sizes, int n, tg_tensor *out) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "split", &x, 1)) return fail_split(&call, out, n);
    tg_shape shape = tg_node_shape(&call, x.id);
    if (!tg_call_axis(&call, x.id, shape.rank, axis, &along) || !parts_ok(&call, x.id, along, sizes, n)) return fail_split(&call, out, n);
    if (out == NULL) tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "out is NULL: %s", TG_LABEL(&call, x.id));
    if (out == NULL) return fail_split(&call, out, n);
    int64_t start[TG_MAX_RANK] = {0}, equal = shape.dim[along] / n;
    for (int i = 0; i < n; i++) {
        shape.dim[along] = sizes != NULL ? sizes[i] : equal;
        out[i] = tg_call_result(&call, tg_ir_slice(call.graph, x.id, start, shape));
        if (out[i].id == 0) return fail_split(&call, out, n);
        start[along] += shape.dim[along];
    }
    return TG_OK;
}
