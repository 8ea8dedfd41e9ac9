/* attention: the primitives ATTENTION, ATTENTION_DQ and ATTENTION_DKV: how they are made, what their
 * results hold, and the same values made of other primitives. Part of ir: knows the graph alone.
 *
 *   queries q [B, H, T, d]; keys k and values v [B, Hk, S, d]; Hk divides H, head h uses the keys of
 *   head h Hk / H; mask bool [B, H, T, S] or none; causal: query t sees keys 0 .. t (then T = S)
 *   ATTENTION (q, k, v)                      o = softmax(scale q k^T) v over the keys that are seen,
 *                                            lse = log of the sum of e^score; flat: o [B, T, H, d],
 *                                            then lse [B, H, T]. A query that sees no key: o = 0,
 *                                            lse = TG_ATTENTION_EMPTY; one that sees scores of
 *                                            -infinity alone: NaN, as softmax
 *   ATTENTION_DQ (q, k, v, do, lse, delta)   dq [B, T, H, d]
 *   ATTENTION_DKV (q, k, v, do, lse, delta)  flat: dk [B, S, Hk, d], then dv
 * With do [B, H, T, d] the cotangent of o, lse as above and delta = sum(do o) - dlse, both
 * [B, H, T, 1], the weights are p = e^(score - lse) and
 *   dscore = p (do v^T - delta),  dq = scale dscore k,  dk = scale dscore^T q,  dv = p^T do. */
#ifndef TG_IR_ATTENTION_H
#define TG_IR_ATTENTION_H
#include "ir/graph.h"

#define TG_ATTENTION_WIDEST 256 /* most elements of a head: executors keep a row at hand */
#define TG_ATTENTION_EMPTY 1e38 /* e^(score - this) is 0 for each score of an ordinary size */

typedef struct tg_attention_shape {
    int64_t batches, kv_heads, groups; /* H = kv_heads groups */
    int64_t queries, keys, width;
} tg_attention_shape;

static inline tg_attention_shape tg_attention_shape_of(tg_shape q, tg_shape k) {
    return (tg_attention_shape){q.dim[0], k.dim[1], q.dim[1] / k.dim[1], q.dim[2], k.dim[2], q.dim[3]};
}

/* op: one of the three. inputs: as above, the mask after them if count is 4 or 7. 0 recorded. */
int32_t tg_ir_attention(tg_graph *g, tg_op op, const int32_t *inputs, int count, bool causal, double scale);
/* Views of what the flat results hold: `part` 0 or 1 of node `packed`, whose heads are `heads`.
 * o [B, H, T, d] and lse [B, H, T, 1]; dk and dv, each [B, Hk, S, d]. 0 recorded. */
int32_t tg_ir_attention_out(tg_graph *g, int32_t packed, tg_attention_shape heads, int part);
int32_t tg_ir_attention_dkv(tg_graph *g, int32_t packed, tg_attention_shape heads, int part);
/* [B, T, H, d] as [B, H, T, d], and back. */
int32_t tg_ir_attention_turn(tg_graph *g, int32_t x);
/* The value of ATTENTION_DQ or ATTENTION_DKV with these attributes over other operands `inputs`,
 * made of other primitives: it stores all scores, and has gradients of any order. 0 recorded. */
int32_t tg_ir_attention_unfused(tg_graph *g, tg_op op, const int32_t *inputs, int count, bool causal, double scale);

#endif
