/* fuse_whole: concatenations whose parts are written straight into their buffer, each by the kernel
 * that makes it. So T parts cost T stores; a concatenation that is computed selects among its parts
 * for each element. Owns which concatenations are stored in this way. Must not know kernels. */
#include "kernel/fuse_parts.h"

/* A concatenation of fewer parts is stored in this way only if it must be in memory anyway. */
#define WHOLE_LEAST 7
/* Every reader waits for every part. A concatenation with more readers than this is not stored in
 * parts; an elementwise value of it with more users than the second number is stored, so that all
 * of them count as one reader. */
#define WHOLE_READERS 64
#define WHOLE_USERS 8
/* Values looked at under a part, to see whether it is worth a kernel of its own. */
#define WHOLE_DEPTH 64

/* ---- the parts of a concatenation, from the first to the last; f->boxes has those to come */

static bool push_box(tg_fusion *f, const tg_part *box) {
    if (!tg_grow(f->ctx, (void **)&f->boxes.items, &f->boxes.capacity, f->boxes.count + 1, sizeof(tg_part))) return false;
    f->boxes.items[f->boxes.count++] = *box;
    return true;
}

/* The axis of `box` that is axis `axis` of `shape`, if both have the same axes, those of length 1
 * aside; else -1. */
static int32_t same_axis(tg_shape box, tg_shape shape, int32_t axis) {
    int32_t found = -1, at = 0;
    for (int32_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == 1) continue;
        while (at < box.rank && box.dim[at] == 1) at++;
        if (at == box.rank || box.dim[at] != shape.dim[i]) return -1;
        if (i == axis) found = at;
        at++;
    }
    while (at < box.rank && box.dim[at] == 1) at++;
    return at == box.rank ? found : -1;
}

/* Pushes the operands of a concatenation, the first on top. */
static bool push_operands(tg_fusion *f, const tg_part *box, int32_t concat) {
    const tg_node *n = fuse_node(f, concat);
    const int32_t axis = same_axis(box->shape, n->shape, n->attr.axis);
    tg_part part = *box;
    part.start[axis] += n->shape.dim[n->attr.axis];
    for (int32_t i = n->input_count - 1; i >= 0; i--) {
        part.node = n->inputs[i];
        part.shape.dim[axis] = fuse_node(f, part.node)->shape.dim[n->attr.axis];
        part.start[axis] -= part.shape.dim[axis];
        if (!push_box(f, &part)) return false;
    }
    return true;
}

static bool start_parts(tg_fusion *f, int32_t whole) {
    tg_part all = {.node = whole, .whole = whole, .shape = fuse_node(f, whole)->shape};
    f->boxes.count = 0;
    return push_operands(f, &all, whole);
}

/* Is the operand a concatenation whose parts can take its place? */
static bool is_nested(const tg_fusion *f, const tg_part *box, const int32_t *users) {
    int32_t node = box->node;
    bool alone = users[node] == 1;
    for (; fuse_node(f, node)->op == TG_OP_RESHAPE; alone = alone && users[node] == 1) node = fuse_node(f, node)->inputs[0];
    const tg_node *n = fuse_node(f, node);
    return n->op == TG_OP_CONCAT && (alone || f->whole[node]) && same_axis(box->shape, n->shape, n->attr.axis) >= 0;
}

/* The next part; false: there is none, or (recorded) no memory. users: finds nested ones; NULL:
 * they are known. */
static bool next_part(tg_fusion *f, tg_part *part, const int32_t *users) {
    while (f->boxes.count > 0) {
        *part = f->boxes.items[--f->boxes.count];
        const int32_t base = tg_strip_reshape(f->graph, part->node);
        f->ctx->work++;
        if (users && is_nested(f, part, users)) f->nested[base] = true;
        if (!f->nested[base] || fuse_node(f, base)->op != TG_OP_CONCAT) return true;
        if (same_axis(part->shape, fuse_node(f, base)->shape, fuse_node(f, base)->attr.axis) < 0) return true;
        if (!push_operands(f, part, base)) return false;
    }
    return false;
}

/* ---- which */

/* Is a sum, a product or a table among the nearest values that `node` is computed from? */
static bool needs_kernel(tg_fusion *f, int32_t node) {
    fuse_start_walk(f);
    fuse_push_once(f, node);
    for (int32_t at = 0; at < f->walk_count && at < WHOLE_DEPTH; at++) {
        const tg_node *n = fuse_node(f, f->walk[at]);
        const tg_op_class class_ = tg_op_table[n->op].class_;
        if (class_ == TG_CLASS_REDUCE || class_ == TG_CLASS_CONTRACT || class_ == TG_CLASS_INDEX) return true;
        for (int32_t i = 0; i < n->input_count; i++) fuse_push_once(f, n->inputs[i]);
    }
    return false;
}

/* Is there a kernel that can store the part? What is moved only, or computed from a few leaves for
 * this reader alone, is better read where it is. */
static bool part_has_kernel(tg_fusion *f, int32_t part, const int32_t *users) {
    const int32_t base = tg_strip_reshape(f->graph, part);
    const tg_op_class class_ = fuse_class(f, base);
    if (class_ == TG_CLASS_LEAF) return fuse_node(f, base)->op == TG_OP_CONST && !fuse_leaf_storage(fuse_node(f, base));
    if (class_ == TG_CLASS_VIEW || fuse_node(f, base)->op == TG_OP_CONCAT || fuse_node(f, base)->op == TG_OP_PACK) return false;
    return users[base] > 1 || needs_kernel(f, base);
}

/* The number of parts; 0: some have no kernel. */
static int32_t count_stored_parts(tg_fusion *f, int32_t whole, const int32_t *users) {
    tg_part part;
    int32_t count = 0;
    if (!start_parts(f, whole)) return 0;
    for (; next_part(f, &part, users); count++)
        if (!part_has_kernel(f, part.node, users)) return 0;
    return count;
}

/* Do few kernels read the concatenation? Counts what uses it, through views and elementwise values;
 * those of the latter that many use are stored. *operand: whether a contraction takes it. */
static bool has_few_readers(tg_fusion *f, int32_t whole, bool *operand) {
    *operand = false;
    fuse_start_walk(f);
    fuse_push_once(f, whole);
    for (int32_t at = 0; at < f->walk_count && f->walk_count <= WHOLE_READERS; at++) {
        const int32_t node = f->walk[at];
        const bool elementwise = tg_op_is_elementwise(fuse_node(f, node)->op);
        if (node != whole && !elementwise && fuse_class(f, node) != TG_CLASS_VIEW) continue;
        if (elementwise && f->user_begin[node + 1] - f->user_begin[node] > WHOLE_USERS) tg_fuse_realise(f, node);
        if (f->realised[node]) continue;
        for (int32_t u = f->user_begin[node]; u < f->user_begin[node + 1] && f->walk_count <= WHOLE_READERS; u++) {
            *operand = *operand || (!elementwise && fuse_node(f, f->users[u])->op == TG_OP_CONTRACT);
            fuse_push_once(f, f->users[u]);
        }
    }
    return f->walk_count <= WHOLE_READERS;
}

/* Is it part of another concatenation, and nothing else? Then that one decides. */
static bool is_only_part(const tg_fusion *f, int32_t node, const int32_t *users, const int32_t *only_user) {
    while (users[node] == 1 && fuse_node(f, only_user[node])->op == TG_OP_RESHAPE) node = only_user[node];
    return users[node] == 1 && fuse_node(f, only_user[node])->op == TG_OP_CONCAT;
}

/* Stores the parts in the buffer of `whole`. */
static void store_parts(tg_fusion *f, int32_t whole) {
    tg_part part;
    f->whole[whole] = true;
    if (!start_parts(f, whole)) return;
    while (next_part(f, &part, NULL)) {
        const int32_t base = tg_strip_reshape(f->graph, part.node);
        if (fuse_class(f, base) != TG_CLASS_LEAF) tg_fuse_realise(f, base);
    }
}

bool tg_fuse_find_wholes(tg_fusion *f, const int32_t *users, const int32_t *only_user) {
    for (int32_t id = 1; id < f->node_count; id++) {
        bool operand;
        if (!f->live[id] || fuse_node(f, id)->op != TG_OP_CONCAT || is_only_part(f, id, users, only_user)) continue;
        const int32_t parts = count_stored_parts(f, id, users);
        if (parts > 0 && has_few_readers(f, id, &operand) && (operand || parts >= WHOLE_LEAST)) store_parts(f, id);
        if (f->ctx->status != TG_OK) return false;
    }
    return true;
}

/* ---- items */

bool tg_fuse_add_parts(tg_fusion *f, int32_t whole) {
    tg_part part;
    if (!start_parts(f, whole)) return false;
    while (next_part(f, &part, NULL)) {
        const int32_t item = tg_fuse_add_item(f, part.node, true);
        const tg_part *kept = item < 0 ? NULL : tg_arena_copy(&f->arena, &part, sizeof part);
        if (!kept) return false;
        f->items.items[item].part = kept;
        f->items.items[item].next = f->whole_items[whole];
        f->whole_items[whole] = item;
    }
    return f->ctx->status == TG_OK;
}

int32_t tg_fusion_whole_of(const tg_fusion *f, int32_t reference) {
    if (tg_reference_is_item(reference)) {
        const tg_part *part = f->items.items[tg_reference_item(reference)].part;
        return part ? part->whole : -1;
    }
    return reference < f->node_count && f->whole[reference] ? reference : -1;
}

bool tg_fusion_writes_part(const tg_fusion *f, int32_t group, int32_t whole) {
    const tg_group *g = &f->groups.items[group];
    for (int64_t i = 0; i < g->items.count; i++) {
        const tg_part *part = f->items.items[g->items.items[i]].part;
        if (part && part->whole == whole) return true;
    }
    return false;
}

#undef WHOLE_LEAST
#undef WHOLE_READERS
#undef WHOLE_USERS
#undef WHOLE_DEPTH
