/* fuse_group: items and groups: which value is stored where, and the loops of a group's kernel.
 * Must not know kernels. */
#include "kernel/fuse_parts.h"

#include <string.h>

int32_t tg_fuse_add_item(tg_fusion *f, int32_t node, bool copy) {
    if (!tg_grow(f->ctx, (void **)&f->items.items, &f->items.capacity, f->items.count + 1, sizeof(tg_item))) return -1;
    tg_item *item = &f->items.items[f->items.count];
    *item = (tg_item){.node = node, .group = -1, .copy = copy, .pinned = copy, .state = -1, .next = -1};
    if (!copy) f->item_of[node] = (int32_t)f->items.count;
    return (int32_t)f->items.count++;
}

/* Are the reduced axes the last ones, axes of length 1 ignored? */
static bool reduces_last_axes(tg_shape shape, uint32_t axes) {
    bool kept_after = false;
    for (int d = shape.rank - 1; d >= 0; d--) {
        if (shape.dim[d] == 1) continue;
        if (!(axes >> d & 1u)) kept_after = true;
        else if (kept_after) return false;
    }
    return true;
}

static tg_domain domain_of_item(const tg_fusion *f, const tg_item *item) {
    const tg_node *n = fuse_node(f, item->node);
    tg_domain d = {.kind = TG_KERNEL_MAP, .elements = tg_shape_count(n->shape), .trailing = true};
    d.rows = d.elements;
    if (item->copy) return d;
    if (tg_op_table[n->op].class_ == TG_CLASS_REDUCE) {
        d.kind = TG_KERNEL_REDUCE;
        d.elements = tg_shape_count(fuse_node(f, n->inputs[0])->shape);
        d.trailing = reduces_last_axes(fuse_node(f, n->inputs[0])->shape, n->attr.axes);
    } else if (n->op == TG_OP_CONTRACT) d.kind = TG_KERNEL_CONTRACT;
    else if (n->op == TG_OP_SCATTER_ADD) d.kind = TG_KERNEL_SCATTER_ADD;
    else if (tg_op_table[n->op].class_ == TG_CLASS_ATTENTION) d.kind = TG_KERNEL_ATTENTION;
    else return d;
    d.node = item->node;
    return d;
}

static bool few_long_rows(const tg_domain *d) {
    return (d->rows < TG_ROWS_FOR_FUSION && d->elements > TG_FEW_ROWS_ELEMENTS) || d->elements / d->rows > TG_LONGEST_FUSED_ROW;
}

static bool join_reduce_domains(const tg_fusion *f, const tg_domain *a, const tg_domain *b) {
    if (a->elements != b->elements || a->rows != b->rows) return false;
    if (a->trailing && b->trailing) return true;
    const tg_node *x = fuse_node(f, a->node), *y = fuse_node(f, b->node);
    return a->trailing == b->trailing && x->attr.axes == y->attr.axes &&
           tg_shape_equal(fuse_node(f, x->inputs[0])->shape, fuse_node(f, y->inputs[0])->shape);
}

/* Can the two share a loop nest? */
bool tg_fuse_join_domains(const tg_fusion *f, const tg_domain *a, const tg_domain *b, tg_domain *out) {
    if (a->kind == TG_KERNEL_MAP && b->kind != TG_KERNEL_MAP) {
        const tg_domain *swap = a;
        a = b;
        b = swap;
    }
    *out = *a;
    if (a->kind == TG_KERNEL_SCATTER_ADD || b->kind == TG_KERNEL_SCATTER_ADD) return false;
    if (a->kind == TG_KERNEL_ATTENTION || b->kind == TG_KERNEL_ATTENTION) return false;
    if (a->kind == TG_KERNEL_REDUCE && b->kind == TG_KERNEL_REDUCE) return join_reduce_domains(f, a, b);
    if (b->kind != TG_KERNEL_MAP) return false;
    if (a->kind == TG_KERNEL_REDUCE) return b->elements == a->rows || (b->elements == a->elements && a->trailing && !few_long_rows(a));
    return a->elements == b->elements;
}

int32_t tg_fuse_add_group(tg_fusion *f, int32_t item) {
    if (!tg_grow(f->ctx, (void **)&f->groups.items, &f->groups.capacity, f->groups.count + 1, sizeof(tg_group))) return -1;
    tg_group *group = &f->groups.items[f->groups.count];
    memset(group, 0, sizeof *group);
    group->items.items = TG_NEW(&f->arena, int32_t, 1);
    if (!group->items.items) return -1;
    group->items.items[0] = item;
    group->items.count = 1;
    group->domain = domain_of_item(f, &f->items.items[item]);
    f->items.items[item].group = (int32_t)f->groups.count;
    return (int32_t)f->groups.count++;
}

/* ---- destinations of writebacks */

static bool can_be_primary(const tg_fusion *f, int32_t node) {
    return !fuse_leaf_storage(fuse_node(f, node)) && f->pack_state[node] < 0 && !f->whole[node];
}

void tg_fuse_give_state(tg_fusion *f, int32_t item, int32_t state, int64_t offset) {
    tg_item *x = &f->items.items[item];
    x->state = state;
    x->state_offset = offset;
    x->next = f->state_items[state];
    f->state_items[state] = item;
}

void tg_fuse_leave_state(tg_fusion *f, int32_t item) {
    tg_item *x = &f->items.items[item];
    int32_t *link = &f->state_items[x->state];
    while (*link != item) link = &f->items.items[*link].next;
    *link = x->next;
    x->next = x->state = -1;
}

static bool send_to_state(tg_fusion *f, int32_t node, int32_t state, int64_t offset) {
    int32_t item = -1;
    if (can_be_primary(f, node)) {
        if (f->item_of[node] < 0 && tg_fuse_add_item(f, node, false) < 0) return false;
        if (f->items.items[f->item_of[node]].state < 0) item = f->item_of[node];
    }
    if (item < 0) item = tg_fuse_add_item(f, node, true);
    if (item < 0) return false;
    tg_fuse_give_state(f, item, state, offset);
    f->items.items[item].pinned = true;
    return true;
}

int32_t tg_fuse_writeback_state(const tg_fusion *f, const tg_writeback_info *w) { return fuse_node(f, w->destination)->attr.leaf; }

static bool send_writebacks(tg_fusion *f) {
    tg_graph *g = f->graph;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_writeback_info *w = &g->writebacks.items[i];
        int32_t source = tg_strip_reshape(g, w->source), state = tg_fuse_writeback_state(f, w);
        const tg_node *n = fuse_node(f, source);
        if (n->op != TG_OP_PACK) {
            if (!send_to_state(f, source, state, 0)) return false;
            continue;
        }
        /* each input into every state that the pack is written to: elements between the inputs stay
         * as they are */
        for (int32_t p = 0; p < n->input_count; p++)
            if (!send_to_state(f, tg_strip_reshape(g, n->inputs[p]), state, n->attr.offsets[p])) return false;
    }
    return true;
}

/* ---- all of them */

bool tg_fuse_make_items(tg_fusion *f, const int32_t *outputs, int output_count) {
    f->items.count = f->groups.count = 0;
    for (int32_t id = 0; id < f->node_count; id++) f->item_of[id] = f->output_copy[id] = f->whole_items[id] = -1;
    for (int64_t i = 0; i < f->graph->states.count; i++) f->state_items[i] = -1;
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->live[id] && f->realised[id] && tg_fuse_add_item(f, id, false) < 0) return false;
    if (!send_writebacks(f)) return false;
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->whole[id] && !tg_fuse_add_parts(f, id)) return false;
    for (int i = 0; i < output_count; i++) {
        int32_t node = tg_strip_reshape(f->graph, outputs[i]);
        if (f->pack_state[node] >= 0 || f->whole[node]) continue;
        int32_t item = tg_fusion_output_item(f, node);
        const bool copy = f->item_of[node] >= 0 || !can_be_primary(f, node);
        if (item < 0) item = tg_fuse_add_item(f, node, copy);
        if (item < 0) return false;
        if (f->items.items[item].copy) f->output_copy[node] = item;
        f->items.items[item].pinned = true;
    }
    for (int32_t i = 0; i < (int32_t)f->items.count; i++)
        if (tg_fuse_add_group(f, i) < 0) return false;
    return true;
}

/* An output begins where its buffer does: a value that lies further on in a state needs a copy. */
static bool begins_its_buffer(const tg_item *item) { return item->state < 0 || item->state_offset == 0; }

int32_t tg_fusion_output_item(const tg_fusion *f, int32_t node) {
    node = tg_strip_reshape(f->graph, node);
    if (f->item_of[node] >= 0 && begins_its_buffer(&f->items.items[f->item_of[node]])) return f->item_of[node];
    return f->output_copy[node];
}
