/* intern: the list of new nodes, and the hash table that finds an equal one. Two nodes are equal if
 * op, dtype, shape, the attributes that the op reads, and the inputs are equal; the inputs of a
 * commutative op may be in either order. Inputs, parameters and states are equal only to
 * themselves. Must not know any rewriting rule. */
#include "pass/rewrite.h"

#include <string.h>

/* ---------------------------------------------------------------- equality */

/* Whether the result does not depend on the order of two operands, bit for bit. That of MIN and MAX
 * does: -0 and 0. */
static bool intern_commutes(tg_op op) {
    switch (op) {
    case TG_OP_ADD:
    case TG_OP_MUL:
    case TG_OP_EQUAL:
    case TG_OP_NOT_EQUAL:
    case TG_OP_AND:
    case TG_OP_OR: return true;
    default: return false;
    }
}

static size_t intern_data_bytes(const tg_node *node) { return (size_t)tg_shape_count(node->shape) * tg_dtype_bytes(node->dtype); }

/* A number as bits. f32 numbers are compared as f32, so that -0 differs from 0, and NaN equals
 * NaN. */
static uint64_t intern_bits(const tg_node *node) {
    uint64_t bits = 0;
    if (node->dtype == TG_F32) {
        float value = (float)node->attr.value;
        if (value != value) return 0x7fc00000u;
        memcpy(&bits, &value, sizeof value);
    } else memcpy(&bits, &node->attr.value, sizeof node->attr.value);
    return bits;
}

static bool intern_same_const(const tg_node *a, const tg_node *b) {
    if ((a->attr.data == NULL) != (b->attr.data == NULL)) return false;
    if (a->attr.data == NULL) return intern_bits(a) == intern_bits(b);
    return a->attr.data == b->attr.data || memcmp(a->attr.data, b->attr.data, intern_data_bytes(a)) == 0;
}

static bool intern_same_attributes(const tg_node *a, const tg_node *b) {
    size_t rank = (size_t)a->shape.rank;
    switch (a->op) {
    case TG_OP_INPUT:
    case TG_OP_PARAM:
    case TG_OP_STATE: return a->attr.leaf == b->attr.leaf;
    case TG_OP_CONST: return intern_same_const(a, b);
    case TG_OP_RANDOM: return a->attr.stream == b->attr.stream && intern_bits(a) == intern_bits(b);
    case TG_OP_PERMUTE: return memcmp(a->attr.perm, b->attr.perm, rank * sizeof a->attr.perm[0]) == 0;
    case TG_OP_SLICE:
    case TG_OP_PAD: return memcmp(a->attr.start, b->attr.start, rank * sizeof a->attr.start[0]) == 0;
    case TG_OP_WINDOW:
    case TG_OP_FOLD: return a->attr.axis == b->attr.axis && memcmp(&a->attr.window, &b->attr.window, sizeof a->attr.window) == 0;
    case TG_OP_PACK: return memcmp(a->attr.offsets, b->attr.offsets, (size_t)a->input_count * sizeof a->attr.offsets[0]) == 0;
    case TG_OP_SUM:
    case TG_OP_REDUCE_MAX:
    case TG_OP_REDUCE_MIN:
    case TG_OP_ARGMAX:
    case TG_OP_ARGMIN:
    case TG_OP_FLIP: return a->attr.axes == b->attr.axes;
    case TG_OP_IOTA:
    case TG_OP_CONCAT: return a->attr.axis == b->attr.axis;
    case TG_OP_ATTENTION:
    case TG_OP_ATTENTION_DQ:
    case TG_OP_ATTENTION_DKV: return a->attr.causal == b->attr.causal && a->attr.value == b->attr.value;
    default: return true;
    }
}

static bool intern_same_inputs(const tg_node *a, const tg_node *b) {
    if (a->input_count != b->input_count) return false;
    if (a->input_count == 0) return true;
    if (intern_commutes(a->op) && a->inputs[0] == b->inputs[1] && a->inputs[1] == b->inputs[0]) return true;
    return memcmp(a->inputs, b->inputs, (size_t)a->input_count * sizeof a->inputs[0]) == 0;
}

static bool intern_same(const tg_node *a, const tg_node *b) {
    return a->op == b->op && a->dtype == b->dtype && tg_shape_equal(a->shape, b->shape) && intern_same_inputs(a, b) &&
           intern_same_attributes(a, b);
}

/* ---------------------------------------------------------------- hash */

static uint64_t intern_hash_attributes(uint64_t hash, const tg_node *node) {
    size_t rank = (size_t)node->shape.rank;
    uint64_t bits;
    switch (node->op) {
    case TG_OP_INPUT:
    case TG_OP_PARAM:
    case TG_OP_STATE: return tg_hash(hash, &node->attr.leaf, sizeof node->attr.leaf);
    case TG_OP_RANDOM: return tg_hash(hash, &node->attr.stream, sizeof node->attr.stream);
    case TG_OP_CONST:
        if (node->attr.data != NULL) return tg_hash(hash, node->attr.data, intern_data_bytes(node));
        bits = intern_bits(node);
        return tg_hash(hash, &bits, sizeof bits);
    case TG_OP_PERMUTE: return tg_hash(hash, node->attr.perm, rank * sizeof node->attr.perm[0]);
    case TG_OP_SLICE:
    case TG_OP_PAD: return tg_hash(hash, node->attr.start, rank * sizeof node->attr.start[0]);
    case TG_OP_WINDOW:
    case TG_OP_FOLD:
        hash = tg_hash(hash, &node->attr.window, sizeof node->attr.window);
        return tg_hash(hash, &node->attr.axis, sizeof node->attr.axis);
    case TG_OP_IOTA:
    case TG_OP_CONCAT: return tg_hash(hash, &node->attr.axis, sizeof node->attr.axis);
    default: return tg_hash(hash, &node->attr.axes, sizeof node->attr.axes);
    }
}

static uint64_t intern_hash(const tg_node *node) {
    int64_t head[4 + TG_MAX_RANK] = {(int64_t)node->op, (int64_t)node->dtype, node->shape.rank, node->input_count};
    for (int32_t i = 0; i < node->shape.rank; i++) head[4 + i] = node->shape.dim[i];
    uint64_t hash = tg_hash(0, head, sizeof head);
    if (node->input_count == 2 && intern_commutes(node->op) && node->inputs[0] > node->inputs[1]) {
        const int32_t turned[2] = {node->inputs[1], node->inputs[0]};
        hash = tg_hash(hash, turned, sizeof turned);
    } else if (node->input_count > 0) hash = tg_hash(hash, node->inputs, (size_t)node->input_count * sizeof node->inputs[0]);
    return intern_hash_attributes(hash, node);
}

/* ---------------------------------------------------------------- table */

static int64_t intern_slot(const tg_rewrite *r, const tg_node *node) {
    int64_t mask = r->table_size - 1;
    int64_t slot = (int64_t)(intern_hash(node) & (uint64_t)mask);
    while (r->table[slot] != 0 && !intern_same(&r->nodes.items[r->table[slot]], node)) slot = (slot + 1) & mask;
    return slot;
}

/* Keeps the table at most half full. */
static bool intern_make_room(tg_rewrite *r) {
    if (r->nodes.count * 2 < r->table_size) return true;
    tg_rewrite larger = *r;
    larger.table_size = r->table_size * 2;
    larger.table = tg_alloc(r->g->ctx, sizeof(int32_t) * (size_t)larger.table_size);
    if (larger.table == NULL) return false;
    for (int32_t id = 1; id < r->nodes.count; id++) larger.table[intern_slot(&larger, &r->nodes.items[id])] = id;
    tg_release(r->g->ctx, r->table, sizeof(int32_t) * (size_t)r->table_size);
    r->table = larger.table;
    r->table_size = larger.table_size;
    return true;
}

tg_status tg_rewrite_begin(tg_rewrite *r, tg_graph *g) {
    memset(r, 0, sizeof *r);
    r->g = g;
    r->table_size = 64;
    while (r->table_size < g->nodes.count * 2) r->table_size *= 2;
    r->table = tg_alloc(g->ctx, sizeof(int32_t) * (size_t)r->table_size);
    if (r->table == NULL) return TG_ERROR_MEMORY;
    if (!tg_grow(g->ctx, (void **)&r->nodes.items, &r->nodes.capacity, g->nodes.count, sizeof(tg_node))) return TG_ERROR_MEMORY;
    r->nodes.items[0] = g->nodes.items[0];
    r->nodes.count = 1;
    return TG_OK;
}

void tg_rewrite_end(tg_rewrite *r) {
    tg_context *ctx = r->g->ctx;
    if (r->table != NULL) tg_release(ctx, r->table, sizeof(int32_t) * (size_t)r->table_size);
    if (r->nodes.items != NULL) tg_release(ctx, r->nodes.items, sizeof(tg_node) * (size_t)r->nodes.capacity);
    r->table = NULL;
    r->nodes.items = NULL;
}

static int32_t intern_append(tg_rewrite *r, const tg_node *draft, int64_t slot) {
    tg_context *ctx = r->g->ctx;
    tg_node node = *draft;
    node.site = r->site;
    if (node.input_count > 0) {
        node.inputs = tg_arena_copy(&r->g->arena, draft->inputs, sizeof(int32_t) * (size_t)draft->input_count);
        if (node.inputs == NULL) return 0;
    }
    if (!tg_grow(ctx, (void **)&r->nodes.items, &r->nodes.capacity, r->nodes.count + 1, sizeof(tg_node))) return 0;
    int32_t id = (int32_t)r->nodes.count++;
    r->nodes.items[id] = node;
    r->table[slot] = id;
    return id;
}

int32_t tg_rewrite_intern(tg_rewrite *r, const tg_node *draft) {
    int32_t id = 0;
    if (!r->failed && intern_make_room(r)) {
        int64_t slot = intern_slot(r, draft);
        id = r->table[slot];
        if (id == 0) id = intern_append(r, draft, slot);
    }
    if (id == 0) r->failed = true;
    return id;
}
