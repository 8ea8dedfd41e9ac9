/* Indexing along an axis, and sorting: gather, take_along_axis, scatter_add, sort, argsort, top_k.
 * Indices are checked as those of an embedding. Must not know how a gather or a scatter runs. */
#include "trace/trace.h"

/* ---------------------------------------------------------------- whole slices by index */

/* The shape of x with `axis` replaced by the axes of the indices. */
static tg_shape gathered_shape(tg_shape x, tg_shape indices, int axis) {
    tg_shape out = {x.rank + indices.rank - 1, {0}};
    if (out.rank > TG_MAX_RANK) return out;
    for (int i = 0; i < axis; i++) out.dim[i] = x.dim[i];
    for (int i = 0; i < indices.rank; i++) out.dim[axis + i] = indices.dim[i];
    for (int i = axis + 1; i < x.rank; i++) out.dim[indices.rank + i - 1] = x.dim[i];
    return out;
}

/* Moves `count` axes, from axis `from` on, to the front; or from the front back to there. */
static int32_t move_axes(const tg_call *call, int32_t x, int from, int count, bool to_front) {
    int32_t perm[TG_MAX_RANK] = {0};
    int rank = tg_node_shape(call, x).rank;
    for (int i = 0; i < rank; i++) {
        int there = i < count ? from + i : i < from + count ? i - count : i;
        if (to_front) perm[i] = there;
        else perm[there] = i;
    }
    return tg_ir_permute(call->graph, x, perm);
}

/* x with `count` axes from `axis` on moved first, as [product of these, all others]. */
static int32_t as_rows(const tg_call *call, int32_t x, int axis, int count) {
    tg_shape shape = tg_node_shape(call, x);
    int64_t rows = 1;
    for (int i = axis; i < axis + count; i++) rows *= shape.dim[i];
    int32_t front = move_axes(call, x, axis, count, true);
    return tg_ir_reshape(call->graph, front, tg_shape_make(2, (const int64_t[]){rows, tg_shape_count(shape) / rows}));
}

/* The inverse of as_rows, for a tensor of `shape`. */
static int32_t from_rows(const tg_call *call, int32_t rows, tg_shape shape, int axis, int count) {
    tg_shape front = shape;
    for (int i = 0; i < shape.rank; i++) front.dim[i] = shape.dim[i < count ? axis + i : i < axis + count ? i - count : i];
    int32_t open = tg_ir_reshape(call->graph, rows, front);
    return open != 0 ? move_axes(call, open, axis, count, false) : 0;
}

/* Enters an operation on x [.., n, ..] and i32 indices into the axis. */
static bool enter_indexing(tg_call *call, tg_site site, const char *name, const tg_tensor *operands, int count, unsigned dtypes, int axis,
                           int *along) {
    return tg_call_enter(call, site, name, operands, count) && tg_call_takes(call, operands[0].id, dtypes) &&
           tg_call_takes(call, operands[1].id, TG_TAKES_I32) &&
           tg_call_axis(call, operands[0].id, tg_node_shape(call, operands[0].id).rank, axis, along);
}

static bool check_indices(const tg_call *call, int32_t indices, int64_t n) {
    return tg_ir_check_index(call->graph, indices, 0, n, false, 0, call->op);
}

static int32_t flat_indices(const tg_call *call, int32_t indices) {
    int64_t count = tg_shape_count(tg_node_shape(call, indices));
    return tg_ir_reshape(call->graph, indices, tg_shape_make(1, &count));
}

tg_tensor tg_gather_at(tg_site site, tg_tensor x, tg_tensor indices, int axis) {
    tg_call call;
    tg_tensor operands[2] = {x, indices};
    int along = 0;
    if (!enter_indexing(&call, site, "gather", operands, 2, TG_TAKES_ANY, axis, &along)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), at = tg_node_shape(&call, indices.id), out = gathered_shape(shape, at, along);
    if (!tg_call_shape_ok(&call, out) || !check_indices(&call, indices.id, shape.dim[along])) return tg_call_poison(&call);
    int32_t table = as_rows(&call, x.id, along, 1);
    int32_t rows = tg_ir_gather(call.graph, table, flat_indices(&call, indices.id));
    return tg_call_result(&call, from_rows(&call, rows, out, along, at.rank));
}

tg_tensor tg_scatter_add_at(tg_site site, tg_tensor x, tg_tensor indices, tg_tensor updates, int axis) {
    tg_call call;
    tg_tensor operands[3] = {x, indices, updates};
    int32_t ids[3] = {x.id, indices.id, updates.id};
    int along = 0;
    if (!enter_indexing(&call, site, "scatter_add", operands, 3, TG_TAKES_F32, axis, &along) ||
        !tg_call_takes(&call, updates.id, TG_TAKES_F32))
        return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), at = tg_node_shape(&call, indices.id), want = gathered_shape(shape, at, along);
    if (!tg_call_shape_ok(&call, want)) return tg_call_poison(&call);
    if (!tg_shape_equal(want, tg_node_shape(&call, updates.id)))
        return tg_call_fail(&call, TG_ERROR_SHAPE, ids, 3,
                            "the updates need the shape %s, that of a gather from %s by %s along axis %d: %s", TG_SHAPE_LABEL(want),
                            TG_LABEL(&call, x.id), TG_LABEL(&call, indices.id), along, TG_LABEL(&call, updates.id));
    if (!check_indices(&call, indices.id, shape.dim[along])) return tg_call_poison(&call);
    int32_t rows = as_rows(&call, updates.id, along, at.rank);
    int32_t sums = tg_ir_scatter_add(call.graph, flat_indices(&call, indices.id), rows, shape.dim[along]);
    int32_t added = from_rows(&call, sums, shape, along, 1);
    return tg_call_result(&call, tg_ir_binary(call.graph, TG_OP_ADD, x.id, added));
}

/* ---------------------------------------------------------------- one element per index */

/* Row-major positions in x of the elements that indices choose. indices has x's shape, except along
 * `axis`. */
static int32_t flat_positions(const tg_call *call, tg_shape x, int32_t indices, int axis) {
    tg_graph *g = call->graph;
    tg_shape shape = tg_node_shape(call, indices);
    int32_t sum = indices;
    int64_t stride[TG_MAX_RANK] = {0}, step = 1;
    for (int i = x.rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= x.dim[i];
    }
    sum = tg_ir_binary(g, TG_OP_MUL, sum, tg_ir_const(g, TG_SCALAR, TG_I32, (double)stride[axis]));
    for (int i = 0; i < x.rank; i++) {
        if (i == axis || shape.dim[i] == 1) continue;
        int32_t scale = tg_ir_const(g, TG_SCALAR, TG_I32, (double)stride[i]);
        int32_t along = tg_ir_binary(g, TG_OP_MUL, tg_ir_iota(g, shape, TG_I32, i), scale);
        sum = tg_ir_binary(g, TG_OP_ADD, sum, along);
    }
    return sum;
}

tg_tensor tg_take_along_axis_at(tg_site site, tg_tensor x, tg_tensor indices, int axis) {
    tg_call call;
    tg_tensor operands[2] = {x, indices};
    int32_t ids[2] = {x.id, indices.id};
    int along = 0;
    if (!enter_indexing(&call, site, "take_along_axis", operands, 2, TG_TAKES_ANY, axis, &along)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), out = tg_node_shape(&call, indices.id), want = shape;
    if (out.rank == shape.rank) want.dim[along] = out.dim[along];
    if (!tg_shape_equal(want, out))
        return tg_call_fail(&call, TG_ERROR_SHAPE, ids, 2, "shapes differ beside axis %d: %s by %s", along, TG_LABEL(&call, x.id),
                            TG_LABEL(&call, indices.id));
    if (!check_indices(&call, indices.id, shape.dim[along])) return tg_call_poison(&call);
    int32_t positions = flat_positions(&call, shape, indices.id, along);
    int32_t table = tg_ir_reshape(call.graph, x.id, tg_shape_make(2, (const int64_t[]){tg_shape_count(shape), 1}));
    if (positions == 0) return tg_call_poison(&call);
    int32_t elements = tg_ir_gather(call.graph, table, flat_indices(&call, positions));
    return tg_call_result(&call, tg_ir_reshape(call.graph, elements, out));
}

/* ---------------------------------------------------------------- orders */

/* An axis that is being sorted: x with the axis last, and the rank of each element. */
typedef struct order {
    tg_call call;
    int32_t swap[TG_MAX_RANK]; /* the axis and the last one */
    tg_shape swapped;
    int32_t x, rank_of; /* [rows, n]; rank_of: i32 */
    int64_t rows, n;
} order;

/* bool [rows, n, n]: whether element j comes before element i. The smaller (larger if descending)
 * comes first, numbers before NaN, and of equal elements the first. */
static int32_t comes_before(const tg_call *call, int32_t i, int32_t j, bool descending) {
    tg_graph *g = call->graph;
    int32_t less = tg_ir_binary(g, TG_OP_LESS, descending ? i : j, descending ? j : i);
    int32_t more = tg_ir_binary(g, TG_OP_LESS, descending ? j : i, descending ? i : j);
    if (less == 0 || more == 0) return 0;
    tg_shape square = tg_node_shape(call, less);
    int32_t row = tg_ir_iota(g, tg_shape_make(2, (const int64_t[]){square.dim[1], 1}), TG_I32, 0);
    int32_t earlier = tg_ir_binary(g, TG_OP_LESS, tg_ir_iota(g, tg_shape_make(2, (const int64_t[]){1, square.dim[2]}), TG_I32, 1), row);
    if (tg_node_dtype(call, i) == TG_F32) {
        int32_t nan_i = tg_ir_binary(g, TG_OP_NOT_EQUAL, i, i), nan_j = tg_ir_binary(g, TG_OP_NOT_EQUAL, j, j);
        int32_t only_i = tg_ir_binary(g, TG_OP_AND, nan_i, tg_ir_unary(g, TG_OP_NOT, nan_j));
        int32_t only_j = tg_ir_binary(g, TG_OP_AND, nan_j, tg_ir_unary(g, TG_OP_NOT, nan_i));
        less = tg_ir_binary(g, TG_OP_OR, less, only_i);
        more = tg_ir_binary(g, TG_OP_OR, more, only_j);
    }
    int32_t tied = tg_ir_binary(g, TG_OP_AND, earlier, tg_ir_unary(g, TG_OP_NOT, more));
    return tg_ir_binary(g, TG_OP_OR, less, tied);
}

/* The rank of an element is how many others come before it: n^2 comparisons in one reduction, whose
 * result depends on no order of work. */
static bool order_begin(order *o, tg_site site, const char *name, tg_tensor x, int axis, bool descending) {
    tg_call *call = &o->call;
    int along = 0;
    if (!tg_call_enter(call, site, name, &x, 1) || !tg_call_takes(call, x.id, TG_TAKES_NUMBERS)) return false;
    tg_graph *g = call->graph;
    tg_shape shape = tg_node_shape(call, x.id);
    if (!tg_call_axis(call, x.id, shape.rank, axis, &along)) return false;
    for (int32_t i = 0; i < shape.rank; i++) o->swap[i] = i;
    o->swap[along] = shape.rank - 1;
    o->swap[shape.rank - 1] = along;
    o->n = shape.dim[along];
    o->rows = tg_shape_count(shape) / o->n;
    if (!tg_call_shape_ok(call, tg_shape_make(3, (const int64_t[]){o->rows, o->n, o->n}))) return false;
    int32_t swapped = tg_ir_permute(g, x.id, o->swap);
    if (swapped == 0) return false;
    o->swapped = tg_node_shape(call, swapped);
    o->x = tg_ir_reshape(g, swapped, tg_shape_make(2, (const int64_t[]){o->rows, o->n}));
    int32_t i = tg_ir_reshape(g, o->x, tg_shape_make(3, (const int64_t[]){o->rows, o->n, 1}));
    int32_t j = tg_ir_reshape(g, o->x, tg_shape_make(3, (const int64_t[]){o->rows, 1, o->n}));
    if (i == 0 || j == 0) return false;
    int32_t before = tg_ir_cast(g, comes_before(call, i, j, descending), TG_I32);
    o->rank_of = tg_ir_reshape(g, tg_ir_reduce(g, TG_OP_SUM, before, 4u), tg_shape_make(3, (const int64_t[]){o->rows, 1, o->n}));
    return o->rank_of != 0;
}

/* The first k of values [rows or 1, n] in sorted order. Each is a sum that only one element enters,
 * so that the gradient is that of the permutation. */
static int32_t order_pick(const order *o, int32_t values, int64_t k) {
    tg_graph *g = o->call.graph;
    if (values == 0) return 0;
    tg_shape shape = tg_node_shape(&o->call, values);
    int32_t wanted = tg_ir_iota(g, tg_shape_make(2, (const int64_t[]){k, 1}), TG_I32, 0);
    int32_t chosen = tg_ir_binary(g, TG_OP_EQUAL, o->rank_of, wanted); /* [rows, k, n] */
    int32_t open = tg_ir_reshape(g, values, tg_shape_make(3, (const int64_t[]){shape.dim[0], 1, o->n}));
    int32_t nothing = tg_ir_const(g, TG_SCALAR, tg_node_dtype(&o->call, values), 0.0);
    int32_t picked = tg_ir_reduce(g, TG_OP_SUM, tg_ir_select(g, chosen, open, nothing), 4u);
    tg_shape out = o->swapped;
    out.dim[out.rank - 1] = k;
    return tg_ir_permute(g, tg_ir_reshape(g, picked, out), o->swap);
}

static int32_t order_positions(const order *o) {
    return tg_ir_iota(o->call.graph, tg_shape_make(2, (const int64_t[]){1, o->n}), TG_I32, 1);
}

tg_tensor tg_sort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options) {
    order o;
    if (!order_begin(&o, site, "sort", x, axis, options.descending)) return tg_call_poison(&o.call);
    return tg_call_result(&o.call, order_pick(&o, o.x, o.n));
}

tg_tensor tg_argsort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options) {
    order o;
    if (!order_begin(&o, site, "argsort", x, axis, options.descending)) return tg_call_poison(&o.call);
    return tg_call_result(&o.call, order_pick(&o, order_positions(&o), o.n));
}

tg_top tg_top_k_at(tg_site site, tg_tensor x, int64_t k, int axis) {
    order o;
    const bool ready = order_begin(&o, site, "top_k", x, axis, true);
    tg_top top = {tg_call_poison(&o.call), tg_call_poison(&o.call)};
    if (!ready) return top;
    if (k < 1 || k > o.n) {
        tg_call_fail(&o.call, TG_ERROR_ARGUMENT, &x.id, 1, "k = %lld is not in 1 .. %lld: %s", (long long)k, (long long)o.n,
                     TG_LABEL(&o.call, x.id));
        return top;
    }
    top.values = tg_call_result(&o.call, order_pick(&o, o.x, k));
    top.indices = tg_call_result(&o.call, order_pick(&o, order_positions(&o), k));
    return top;
}
