/* Contractions and indexing: matmul, batched matmul, embedding, one-hot. All become [B, M, K] x
 * [B, K, N] or a gather of rows. Must not know how a contraction is tiled. */
#include "trace/trace.h"

/* ---------------------------------------------------------------- matmul */

/* Checks that both are f32, have at least one axis (two if `matrices`) and equal inner
 * dimensions. */
static bool check_product(const tg_call *call, int32_t a, int32_t b, bool matrices) {
    int32_t ids[2] = {a, b};
    if (!tg_call_takes(call, a, TG_TAKES_F32) || !tg_call_takes(call, b, TG_TAKES_F32)) return false;
    tg_shape left = tg_node_shape(call, a), right = tg_node_shape(call, b);
    if (left.rank < 1 + matrices || right.rank < 1 + matrices) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "both sides need at least %s: %s x %s", matrices ? "2 axes" : "1 axis",
                     TG_LABEL(call, a), TG_LABEL(call, b));
        return false;
    }
    int64_t inner = left.dim[left.rank - 1], rows = right.dim[right.rank > 1 ? right.rank - 2 : 0];
    if (inner == rows) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "inner dimensions differ: %s x %s (%lld != %lld)", TG_LABEL(call, a), TG_LABEL(call, b),
                 (long long)inner, (long long)rows);
    return false;
}

/* x[..., M, K] w[K, N] -> [..., M, N]. 2 M' K N flop, M' = rows of x. All rows of x are one M, so
 * that the gradient of w is one contraction over them, and not one matrix for each leading
 * index. */
int32_t tg_compose_matmul(const tg_call *call, int32_t x, int32_t w) {
    tg_graph *g = call->graph;
    if (x == 0 || w == 0) return 0;
    tg_shape out = tg_node_shape(call, x), right = tg_node_shape(call, w);
    int64_t k = out.dim[out.rank - 1], n = right.dim[right.rank - 1];
    int64_t rows = tg_shape_count(out) / k;
    int32_t a = tg_ir_reshape(g, x, tg_shape_make(3, (const int64_t[]){1, rows, k}));
    int32_t b = tg_ir_reshape(g, w, tg_shape_make(3, (const int64_t[]){1, k, n}));
    out.dim[out.rank - 1] = n;
    return tg_ir_reshape(g, tg_ir_contract(g, a, b), out);
}

/* The axes before the last two. */
static tg_shape batch_shape(tg_shape shape) {
    shape.rank -= 2;
    return shape;
}

static tg_shape with_matrix(tg_shape batch, int64_t rows, int64_t columns) {
    batch.dim[batch.rank] = rows;
    batch.dim[batch.rank + 1] = columns;
    batch.rank += 2;
    return batch;
}

/* x with its batch axes repeated to `batch`, as [B, rows, columns]. */
static int32_t flat_batches(const tg_call *call, int32_t x, tg_shape batch) {
    tg_shape shape = tg_node_shape(call, x);
    int64_t rows = shape.dim[shape.rank - 2], columns = shape.dim[shape.rank - 1];
    int32_t wide = tg_ir_broadcast(call->graph, x, with_matrix(batch, rows, columns));
    return tg_ir_reshape(call->graph, wide, tg_shape_make(3, (const int64_t[]){tg_shape_count(batch), rows, columns}));
}

/* One matrix on the right for all batches: an ordinary matmul of all rows. */
static int32_t shared_right(const tg_call *call, int32_t a, int32_t b, tg_shape out) {
    tg_shape right = tg_node_shape(call, b);
    int32_t matrix = tg_ir_reshape(call->graph, b, tg_shape_make(2, right.dim + right.rank - 2));
    return tg_ir_reshape(call->graph, tg_compose_matmul(call, a, matrix), out);
}

/* a [batch..., M, K] b [batch..., K, N]; batch axes broadcast. Records an error and returns 0 if
 * they do not. */
static int32_t compose_batched(const tg_call *call, int32_t a, int32_t b) {
    int32_t ids[2] = {a, b};
    tg_shape batch, left = tg_node_shape(call, a), right = tg_node_shape(call, b);
    if (!tg_shape_broadcast(batch_shape(left), batch_shape(right), &batch)) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "batch axes do not broadcast: %s x %s", TG_LABEL(call, a), TG_LABEL(call, b));
        return 0;
    }
    int64_t rows = left.dim[left.rank - 2], inner = left.dim[left.rank - 1], columns = right.dim[right.rank - 1];
    tg_shape out = with_matrix(batch, rows, columns);
    if (!tg_call_shape_ok(call, out)) return 0;
    if (tg_shape_count(batch_shape(right)) == 1) return shared_right(call, a, b, out);
    if (!tg_call_shape_ok(call, with_matrix(batch, rows, inner)) || !tg_call_shape_ok(call, with_matrix(batch, inner, columns))) return 0;
    int32_t wide = flat_batches(call, a, batch);
    int32_t product = tg_ir_contract(call->graph, wide, flat_batches(call, b, batch));
    return tg_ir_reshape(call->graph, product, out);
}

tg_tensor tg_matmul_batched_at(tg_site site, tg_tensor a, tg_tensor b) {
    tg_call call;
    tg_tensor operands[2] = {a, b};
    if (!tg_call_enter(&call, site, "matmul_batched", operands, 2) || !check_product(&call, a.id, b.id, true)) return tg_call_poison(&call);
    return tg_call_result(&call, compose_batched(&call, a.id, b.id));
}

/* A vector on the left is one row, on the right one column. That axis is removed from the
 * result. */
tg_tensor tg_matmul_at(tg_site site, tg_tensor x, tg_tensor w) {
    tg_call call;
    tg_tensor operands[2] = {x, w};
    if (!tg_call_enter(&call, site, "matmul", operands, 2) || !check_product(&call, x.id, w.id, false)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    tg_shape left = tg_node_shape(&call, x.id), right = tg_node_shape(&call, w.id);
    int32_t a = left.rank > 1 ? x.id : tg_ir_reshape(g, x.id, tg_shape_make(2, (const int64_t[]){1, left.dim[0]}));
    int32_t b = right.rank > 1 ? w.id : tg_ir_reshape(g, w.id, tg_shape_make(2, (const int64_t[]){right.dim[0], 1}));
    int32_t y = a != 0 && b != 0 ? compose_batched(&call, a, b) : 0;
    if (y == 0) return tg_call_poison(&call);
    int rank = tg_node_shape(&call, y).rank;
    uint32_t dropped = left.rank > 1 ? 0u : 1u << (unsigned)(rank - 2);
    if (right.rank == 1) dropped |= 1u << (unsigned)(rank - 1);
    return tg_call_result(&call, tg_compose_drop_axes(&call, y, dropped));
}

/* ---------------------------------------------------------------- indexing */

tg_tensor tg_embedding_at(tg_site site, tg_tensor table, tg_tensor indices) {
    tg_call call;
    tg_tensor operands[2] = {table, indices};
    int32_t ids[2] = {table.id, indices.id};
    if (!tg_call_enter(&call, site, "embedding", operands, 2)) return tg_call_poison(&call);
    if (!tg_call_takes(&call, table.id, TG_TAKES_F32) || !tg_call_takes(&call, indices.id, TG_TAKES_I32)) return tg_call_poison(&call);
    tg_shape rows = tg_node_shape(&call, table.id), out = tg_node_shape(&call, indices.id);
    if (rows.rank != 2)
        return tg_call_fail(&call, TG_ERROR_SHAPE, ids, 2, "the table needs 2 axes: %s by %s", TG_LABEL(&call, table.id),
                            TG_LABEL(&call, indices.id));
    int64_t count = tg_shape_count(out);
    if (out.rank < TG_MAX_RANK) out.dim[out.rank] = rows.dim[1];
    out.rank++;
    if (!tg_call_shape_ok(&call, out)) return tg_call_poison(&call);
    if (!tg_ir_check_index(call.graph, indices.id, 0, rows.dim[0], false, 0, "embedding")) return tg_call_poison(&call);
    int32_t flat = tg_ir_reshape(call.graph, indices.id, tg_shape_make(1, &count));
    return tg_call_result(&call, tg_ir_reshape(call.graph, tg_ir_gather(call.graph, table.id, flat), out));
}

int32_t tg_compose_one_hot(const tg_call *call, int32_t indices, int64_t depth) {
    tg_shape column = tg_node_shape(call, indices), row;
    column.dim[column.rank++] = 1;
    row = column;
    for (int i = 0; i < row.rank; i++) row.dim[i] = 1;
    row.dim[row.rank - 1] = depth;
    int32_t positions = tg_ir_iota(call->graph, row, TG_I32, row.rank - 1);
    return tg_ir_binary(call->graph, TG_OP_EQUAL, positions, tg_ir_reshape(call->graph, indices, column));
}

tg_tensor tg_one_hot_at(tg_site site, tg_tensor indices, int64_t depth, tg_dtype dtype) {
    tg_call call;
    if (!tg_call_enter(&call, site, "one_hot", &indices, 1)) return tg_call_poison(&call);
    if (!tg_call_takes(&call, indices.id, TG_TAKES_I32) || !tg_call_dtype_ok(&call, dtype)) return tg_call_poison(&call);
    if (depth < 1 || depth > INT32_MAX)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &indices.id, 1, "the depth %lld is not at least 1: %s", (long long)depth,
                            TG_LABEL(&call, indices.id));
    tg_shape out = tg_node_shape(&call, indices.id);
    if (out.rank < TG_MAX_RANK) out.dim[out.rank] = depth;
    out.rank++;
    if (!tg_call_shape_ok(&call, out)) return tg_call_poison(&call);
    if (!tg_ir_check_index(call.graph, indices.id, 0, depth, false, 0, "one_hot")) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_cast(call.graph, tg_compose_one_hot(&call, indices.id, depth), dtype));
}
