/* attention: see attention.h. Must not know gradients or kernels. */
#include "ir/attention.h"

int32_t tg_ir_attention_turn(tg_graph *g, int32_t x) {
    const int32_t perm[4] = {0, 2, 1, 3};
    return tg_ir_permute(g, x, perm);
}

/* Elements [start, start + count of shape) of the flat `packed` as `shape`. */
static int32_t attention_part(tg_graph *g, int32_t packed, int64_t start, tg_shape shape) {
    return tg_ir_reshape(g, tg_ir_slice(g, packed, &start, TG_SHAPE(tg_shape_count(shape))), shape);
}

int32_t tg_ir_attention_out(tg_graph *g, int32_t packed, tg_attention_shape s, int part) {
    const int64_t heads = s.kv_heads * s.groups;
    if (part == 1) return attention_part(g, packed, s.batches * heads * s.queries * s.width, TG_SHAPE(s.batches, heads, s.queries, 1));
    return tg_ir_attention_turn(g, attention_part(g, packed, 0, TG_SHAPE(s.batches, s.queries, heads, s.width)));
}

int32_t tg_ir_attention_dkv(tg_graph *g, int32_t packed, tg_attention_shape s, int part) {
    const tg_shape rows = TG_SHAPE(s.batches, s.keys, s.kv_heads, s.width);
    return tg_ir_attention_turn(g, attention_part(g, packed, part * tg_shape_count(rows), rows));
}

/* ---------------------------------------------------------------- of other primitives */

/* Heads [B, H, T, n] as rows beside the keys they use: [B Hk, H / Hk T, n]. */
static int32_t attention_rows(tg_graph *g, int32_t x, tg_attention_shape s) {
    const int64_t width = tg_graph_node(g, x)->shape.dim[3];
    return tg_ir_reshape(g, x, TG_SHAPE(s.batches * s.kv_heads, s.groups * s.queries, width));
}

static int32_t attention_keys(tg_graph *g, int32_t x, tg_attention_shape s) {
    return tg_ir_reshape(g, x, TG_SHAPE(s.batches * s.kv_heads, s.keys, s.width));
}

static int32_t attention_transpose(tg_graph *g, int32_t x) {
    const int32_t perm[3] = {0, 2, 1};
    return tg_ir_permute(g, x, perm);
}

/* rows keys^T as [B, H, T, S] */
static int32_t attention_products(tg_graph *g, int32_t rows, int32_t keys, tg_attention_shape s) {
    const int32_t left = attention_rows(g, rows, s), right = attention_transpose(g, attention_keys(g, keys, s));
    return tg_ir_reshape(g, tg_ir_contract(g, left, right), TG_SHAPE(s.batches, s.kv_heads * s.groups, s.queries, s.keys));
}

/* Which keys each query sees, a bool that broadcasts to the scores; 0: all. */
static int32_t attention_seen(tg_graph *g, tg_attention_shape s, int32_t mask, bool causal) {
    if (!causal) return mask;
    const int32_t t = tg_ir_iota(g, TG_SHAPE(1, 1, s.queries, 1), TG_I32, 2);
    const int32_t key = tg_ir_iota(g, TG_SHAPE(1, 1, 1, s.keys), TG_I32, 3);
    const int32_t before = tg_ir_binary(g, TG_OP_LESS_EQUAL, key, t);
    return mask == 0 ? before : tg_ir_binary(g, TG_OP_AND, before, mask);
}

static int32_t attention_where(tg_graph *g, int32_t seen, int32_t x) {
    return seen == 0 ? x : tg_ir_select(g, seen, x, tg_ir_const(g, TG_SCALAR, TG_F32, 0.0));
}

/* dscore^T q or p^T do for the keys: [B, S, Hk, d] */
static int32_t attention_for_keys(tg_graph *g, int32_t scores, int32_t rows, tg_attention_shape s) {
    const int32_t left = attention_transpose(g, attention_rows(g, scores, s)), right = attention_rows(g, rows, s);
    const tg_shape shape = TG_SHAPE(s.batches, s.kv_heads, s.keys, s.width);
    return tg_ir_attention_turn(g, tg_ir_reshape(g, tg_ir_contract(g, left, right), shape));
}

int32_t tg_ir_attention_unfused(tg_graph *g, tg_op op, const int32_t *inputs, int count, bool causal, double scale) {
    for (int i = 0; i < count; i++)
        if (inputs[i] == 0) return 0;
    const int32_t q = inputs[0], k = inputs[1], v = inputs[2], dout = inputs[3], lse = inputs[4], delta = inputs[5];
    const tg_attention_shape s = tg_attention_shape_of(tg_graph_node(g, q)->shape, tg_graph_node(g, k)->shape);
    const int32_t factor = tg_ir_const(g, TG_SCALAR, TG_F32, scale);
    const int32_t seen = attention_seen(g, s, count > 6 ? inputs[6] : 0, causal);
    const int32_t scores = tg_ir_binary(g, TG_OP_MUL, attention_products(g, q, k, s), factor);
    const int32_t shifted = attention_where(g, seen, tg_ir_binary(g, TG_OP_SUB, scores, lse));
    const int32_t p = attention_where(g, seen, tg_ir_unary(g, TG_OP_EXP, shifted));
    const int32_t inner = tg_ir_binary(g, TG_OP_SUB, attention_products(g, dout, v, s), delta);
    const int32_t dscore = tg_ir_binary(g, TG_OP_MUL, tg_ir_binary(g, TG_OP_MUL, p, inner), factor);
    if (op == TG_OP_ATTENTION_DQ) {
        const int32_t left = attention_rows(g, dscore, s), dq = tg_ir_contract(g, left, attention_keys(g, k, s));
        return tg_ir_attention_turn(g, tg_ir_reshape(g, dq, TG_SHAPE(s.batches, s.kv_heads * s.groups, s.queries, s.width)));
    }
    const tg_shape flat = TG_SHAPE(s.batches * s.keys * s.kv_heads * s.width);
    const int32_t dk = tg_ir_reshape(g, attention_for_keys(g, dscore, q, s), flat);
    const int32_t parts[2] = {dk, tg_ir_reshape(g, attention_for_keys(g, p, dout, s), flat)};
    return tg_ir_concat(g, parts, 2, 0);
}
