/* build_attention: the loops and the body of a kernel of kind ATTENTION, as kernel/attention.h has
 * them. Must not know how an executor computes it. */
#include "ir/attention.h"
#include "kernel/attention.h"
#include "kernel/build_parts.h"

#include <string.h>

static const tg_node *attention_node(const struct tg_builder *b) { return builder_node(b, b->domain->node); }

static tg_attention_shape attention_shape(const struct tg_builder *b) {
    const tg_node *n = attention_node(b);
    return tg_attention_shape_of(builder_node(b, n->inputs[0])->shape, builder_node(b, n->inputs[1])->shape);
}

static int32_t attention_loop(const struct tg_builder *b, tg_attention_loop loop) {
    return tg_attention_loop_of(attention_node(b)->op, loop);
}

void tg_build_attention_loops(struct tg_builder *b) {
    const tg_attention_shape s = attention_shape(b);
    const int64_t sizes[TG_ATTENTION_LOOPS] = {s.batches, s.kv_heads, s.groups, s.queries, s.keys, s.width, s.width};
    for (int i = 0; i < TG_ATTENTION_LOOPS; i++) b->loops.extent[attention_loop(b, (tg_attention_loop)i)] = sizes[i];
    b->loops.count = TG_ATTENTION_LOOPS;
    b->m_begin = b->n_begin = b->outer = attention_loop(b, TG_ATTENTION_OUT) + 1;
}

/* The sum of stride times loop. */
static void attention_add(const struct tg_builder *b, tg_affine *at, tg_attention_loop loop, int64_t stride) {
    at->stride[attention_loop(b, loop)] += stride;
}

/* An operand of rank 4: [batch, head, row, column]. A last axis of 1 has no column. */
static int attention_operand(struct tg_builder *b, int input, tg_attention_loop row, tg_attention_loop column) {
    const int32_t node = attention_node(b)->inputs[input];
    tg_index_map map = {.rank = 4};
    attention_add(b, &map.index[0], TG_ATTENTION_BATCH, 1);
    attention_add(b, &map.index[1], TG_ATTENTION_KV_HEAD, row == TG_ATTENTION_KEY ? 1 : attention_shape(b).groups);
    if (row == TG_ATTENTION_QUERY) attention_add(b, &map.index[1], TG_ATTENTION_GROUP, 1);
    attention_add(b, &map.index[2], row, 1);
    if (input < 4 || column == TG_ATTENTION_KEY) attention_add(b, &map.index[3], column, 1);
    return tg_build_operand(b, node, &map);
}

/* ACC `result`, stored at `offset` + [B, rows, heads, d], or [B, heads, rows] if it has no columns. */
static void attention_store(struct tg_builder *b, int result, int64_t offset, bool columns) {
    const tg_attention_shape s = attention_shape(b);
    const bool keys = attention_node(b)->op == TG_OP_ATTENTION_DKV;
    const int64_t heads = keys ? s.kv_heads : s.kv_heads * s.groups, rows = keys ? s.keys : s.queries, width = columns ? s.width : 1;
    const int64_t row = columns ? heads * width : 1, head = columns ? width : rows;
    tg_instruction x;
    memset(&x, 0, sizeof x);
    x.op = TG_K_ACC;
    x.dtype = TG_F32;
    x.value = result;
    const int acc = tg_build_append(b, x, (1u << b->outer) - 1u, 0);
    if (acc < 0) return;
    memset(&x, 0, sizeof x);
    x.op = TG_K_STORE;
    x.dtype = TG_F32;
    x.src[0] = acc;
    x.at.offset = offset;
    attention_add(b, &x.at, TG_ATTENTION_BATCH, rows * heads * width);
    attention_add(b, &x.at, TG_ATTENTION_KV_HEAD, keys ? head : s.groups * head);
    if (!keys) attention_add(b, &x.at, TG_ATTENTION_GROUP, head);
    attention_add(b, &x.at, keys ? TG_ATTENTION_KEY : TG_ATTENTION_QUERY, row);
    if (columns) attention_add(b, &x.at, TG_ATTENTION_OUT, 1);
    x.argument = tg_build_argument(b, tg_reference_of_item(b->items[0]), TG_F32, TG_ACCESS_WRITE);
    const int made = x.argument < 0 ? -1 : tg_build_append(b, x, 0, 1);
    if (made >= 0) b->body[made].level = TG_LEVEL_ELEMENT;
}

void tg_build_attention(struct tg_builder *b) {
    const tg_attention_shape s = attention_shape(b);
    const tg_op op = attention_node(b)->op;
    const int32_t inputs = attention_node(b)->input_count, operands = op == TG_OP_ATTENTION ? 3 : 6;
    for (int32_t i = 0; i < operands; i++) {
        const tg_attention_loop row = i == 1 || i == 2 ? TG_ATTENTION_KEY : TG_ATTENTION_QUERY;
        if (attention_operand(b, i, row, TG_ATTENTION_WIDTH) < 0) return;
    }
    if (inputs > operands && attention_operand(b, operands, TG_ATTENTION_QUERY, TG_ATTENTION_KEY) < 0) return;
    attention_store(b, 0, 0, true);
    if (op == TG_OP_ATTENTION) attention_store(b, 1, s.batches * s.kv_heads * s.groups * s.queries * s.width, false);
    if (op == TG_OP_ATTENTION_DKV) attention_store(b, 1, s.batches * s.keys * s.kv_heads * s.width, true);
}
