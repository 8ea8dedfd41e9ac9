/* build: one kernel from a set of items: the loop nest, then the expression of each item, down to
 * stored values; views become index arithmetic. If a reshape does not divide the loops, a loop is
 * split and the kernel is built again. Must not choose which items share a kernel. */
#include "kernel/build_parts.h"

#include <string.h>

struct tg_builder *tg_builder_create(tg_arena *arena) {
    return TG_NEW(arena, struct tg_builder, 1);
}

static bool emit_store(struct tg_builder *b, int32_t item, int value, const tg_affine *at, tg_level level) {
    tg_instruction store;
    memset(&store, 0, sizeof store);
    store.op = TG_K_STORE;
    store.dtype = b->body[value].dtype;
    const tg_dtype stored = builder_node(b, b->f->items.items[item].node)->dtype;
    store.src[0] = value;
    store.at = *at;
    store.argument = tg_build_argument(b, tg_reference_of_item(item), stored, TG_ACCESS_WRITE);
    if (store.argument < 0) return false;
    int made = tg_build_append(b, store, 0, 1);
    if (made < 0) return false;
    b->body[made].level = level;
    return true;
}

/* The map of `node`, where a contraction stores a permutation of its result. The map of the value
 * under the views is row-major over the loops; from there each view is followed forwards. */
static tg_push follow_views(const struct tg_builder *b, int32_t node, tg_index_map *out) {
    int32_t path[TG_MAX_RANK * 2];
    int count = 0;
    for (; tg_op_table[builder_node(b, node)->op].class_ == TG_CLASS_VIEW; node = builder_node(b, node)->inputs[0]) {
        if (count == TG_MAX_RANK * 2) return (tg_push){TG_PUSH_NO, 0, 0};
        path[count++] = node;
    }
    tg_shape shape = builder_node(b, node)->shape;
    tg_push push = tg_map_from_flat(&b->element_flat, shape, &b->loops, out);
    while (count > 0 && push.status == TG_PUSH_OK) {
        const tg_node *view = builder_node(b, path[--count]);
        const tg_index_map from = *out;
        if (view->op == TG_OP_PERMUTE) {
            for (int d = 0; d < shape.rank; d++) out->index[d] = from.index[view->attr.perm[d]];
        } else {
            const tg_affine flat = tg_map_offset(&from, shape);
            push = tg_map_from_flat(&flat, view->shape, &b->loops, out);
        }
        shape = view->shape;
    }
    return push;
}

/* The item's index at each point of the loops it varies with. */
static tg_push map_of_item(const struct tg_builder *b, const tg_item *item, bool outer, tg_index_map *map) {
    const tg_node *n = builder_node(b, item->node);
    if (b->domain->kind == TG_KERNEL_CONTRACT && n->op == TG_OP_PERMUTE && !item->copy) return follow_views(b, item->node, map);
    return tg_map_from_flat(outer ? &b->outer_flat : &b->element_flat, n->shape, &b->loops, map);
}

static int emit_item(struct tg_builder *b, const tg_item *item, const tg_index_map *map, const tg_affine *flat) {
    if (item->copy) return tg_build_value(b, item->node, map);
    int value = tg_build_memo_find(b, item->node, flat, map);
    if (value >= 0) return value;
    value = tg_build_compute(b, item->node, map);
    if (value >= 0) tg_build_memo_add(b, item->node, flat, map, value);
    return value;
}

/* Where a part's element is in the buffer of its whole. */
static tg_push offset_in_whole(const struct tg_builder *b, const tg_item *item, tg_affine *at) {
    const bool outer = tg_build_item_is_outer(b, builder_node(b, item->node));
    tg_index_map map;
    const tg_push push = tg_map_from_flat(outer ? &b->outer_flat : &b->element_flat, item->part->shape, &b->loops, &map);
    if (push.status != TG_PUSH_OK) return push;
    for (int32_t i = 0; i < item->part->shape.rank; i++) map.index[i].offset += item->part->start[i];
    *at = tg_map_offset(&map, builder_node(b, item->part->whole)->shape);
    return push;
}

static void emit_items(struct tg_builder *b, const bool *stored) {
    int values[TG_MAX_BODY / 4];
    for (int i = 0; i < b->item_count; i++) {
        const tg_item *item = &b->f->items.items[b->items[i]];
        const tg_node *n = builder_node(b, item->node);
        tg_index_map map;
        tg_push push = map_of_item(b, item, tg_build_item_is_outer(b, n), &map);
        if (push.status != TG_PUSH_OK) {
            tg_build_push_failed(b, push, 0);
            if (b->status == TG_BUILD_STORE) b->status = TG_BUILD_REFUSED;
            return;
        }
        b->store_at[i] = tg_map_offset(&map, n->shape);
        values[i] = emit_item(b, item, &map, &b->store_at[i]);
        if (values[i] < 0) return;
        if (!item->part) continue;
        push = offset_in_whole(b, item, &b->store_at[i]);
        if (push.status != TG_PUSH_OK) {
            tg_build_push_failed(b, push, 0);
            if (b->status == TG_BUILD_STORE) b->status = TG_BUILD_REFUSED;
            return;
        }
    }
    for (int i = 0; i < b->item_count; i++) {
        if (!stored[i]) continue;
        bool outer = tg_build_item_is_outer(b, builder_node(b, b->f->items.items[b->items[i]].node));
        bool is_reduce = b->domain->kind == TG_KERNEL_REDUCE;
        if (!emit_store(b, b->items[i], values[i], &b->store_at[i], is_reduce && outer ? TG_LEVEL_OUTER : TG_LEVEL_ELEMENT)) return;
    }
}

/* SCATTER_ADD: loops [n, D]. */
static void emit_scatter(struct tg_builder *b) {
    int32_t item = b->items[0];
    const tg_node *n = builder_node(b, b->f->items.items[item].node);
    tg_index_map map;
    map.rank = 1;
    map.bound_count = 0;
    map.index[0] = tg_affine_row_major(&b->loops, 0, b->m_begin);
    tg_affine column = tg_affine_row_major(&b->loops, b->m_begin, b->outer);
    map.index[1] = column;
    int row = tg_build_value(b, n->inputs[0], &map);
    if (row < 0) return;
    map.rank = 2;
    n = builder_node(b, b->f->items.items[item].node);
    int value = tg_build_value(b, n->inputs[1], &map);
    if (value < 0) return;
    n = builder_node(b, b->f->items.items[item].node);
    tg_instruction scatter;
    memset(&scatter, 0, sizeof scatter);
    scatter.op = TG_K_SCATTER;
    scatter.dtype = TG_F32;
    scatter.src[0] = row;
    scatter.src[1] = value;
    scatter.rows = n->shape.dim[0];
    scatter.row_stride = n->shape.dim[1];
    scatter.at = column;
    scatter.argument = tg_build_argument(b, tg_reference_of_item(item), TG_F32, TG_ACCESS_WRITE);
    int at = scatter.argument < 0 ? -1 : tg_build_append(b, scatter, tg_affine_loops(&column, &b->loops), 2);
    if (at >= 0) b->body[at].level = TG_LEVEL_ELEMENT;
}

/* ---- loops */

static void add_loop(struct tg_builder *b, int64_t extent) { b->loops.extent[b->loops.count++] = extent; }

/* The loop nest that the domain asks for, before any loop is split. */
static void start_loops(struct tg_builder *b) {
    const tg_domain *d = b->domain;
    b->loops.count = 0;
    if (d->kind == TG_KERNEL_MAP) {
        tg_shape shape = builder_node(b, b->f->items.items[b->items[0]].node)->shape;
        for (int i = 0; i < shape.rank; i++) add_loop(b, shape.dim[i]);
        b->outer = b->m_begin = b->n_begin = b->loops.count;
    } else if (d->kind == TG_KERNEL_REDUCE) {
        const tg_node *n = builder_node(b, d->node);
        tg_shape shape = builder_node(b, n->inputs[0])->shape;
        b->reduce_map.rank = shape.rank;
        b->reduce_map.bound_count = 0;
        for (uint32_t inner = 0; inner < 2; inner++) {
            for (int i = 0; i < shape.rank; i++)
                if ((n->attr.axes >> i & 1u) == inner) {
                    b->reduce_map.index[i] = tg_affine_loop(b->loops.count);
                    add_loop(b, shape.dim[i]);
                }
            if (inner == 0) b->outer = b->m_begin = b->n_begin = b->loops.count;
        }
    } else if (d->kind == TG_KERNEL_CONTRACT) {
        const tg_node *n = builder_node(b, d->node);
        for (int i = 0; i < 3; i++) add_loop(b, n->shape.dim[i]);
        add_loop(b, builder_node(b, n->inputs[0])->shape.dim[2]);
        b->m_begin = 1;
        b->n_begin = 2;
        b->outer = 3;
    } else if (d->kind == TG_KERNEL_ATTENTION) {
        tg_build_attention_loops(b);
    } else {
        tg_shape updates = builder_node(b, builder_node(b, d->node)->inputs[1])->shape;
        add_loop(b, updates.dim[0]);
        add_loop(b, updates.dim[1]);
        b->m_begin = 1;
        b->n_begin = b->outer = 2;
    }
}

static void split_loop(struct tg_builder *b) {
    int32_t k = b->split_loop;
    for (int i = 0; i < b->reduce_map.rank; i++) tg_affine_split(&b->reduce_map.index[i], k, b->split_factor, b->loops.count);
    for (int i = b->loops.count; i > k + 1; i--) b->loops.extent[i] = b->loops.extent[i - 1];
    b->loops.extent[k + 1] = b->split_factor;
    b->loops.extent[k] /= b->split_factor;
    b->loops.count++;
    if (k < b->m_begin) b->m_begin++;
    if (k < b->n_begin) b->n_begin++;
    if (k < b->outer) b->outer++;
}

/* ---- a kernel */

static void build_once(struct tg_builder *b, const bool *stored) {
    b->body_count = b->memo_count = b->bound_count = b->argument_count = b->depth = 0;
    b->status = TG_BUILD_OK;
    b->culprit = 0;
    b->split = false;
    b->outer_flat = tg_affine_row_major(&b->loops, 0, b->outer);
    b->element_flat = b->domain->kind == TG_KERNEL_REDUCE ? tg_affine_row_major(&b->loops, 0, b->loops.count) : b->outer_flat;
    if (b->domain->kind == TG_KERNEL_SCATTER_ADD) emit_scatter(b);
    else if (b->domain->kind == TG_KERNEL_ATTENTION) tg_build_attention(b);
    else emit_items(b, stored);
    /* attention has up to 8, and needs no scratch */
    const int most = b->f->device->max_arguments + (b->domain->kind == TG_KERNEL_ATTENTION ? 1 : 0);
    if (b->status == TG_BUILD_OK && (b->argument_count > most || b->body_count > TG_MAX_BODY)) b->status = TG_BUILD_LARGE;
}

tg_build_status tg_build_kernel(tg_fusion *f, const int32_t *items, int count, const bool *stored, const tg_domain *domain, tg_kernel **out,
                                int32_t *culprit) {
    struct tg_builder *b = f->builder;
    if (count > TG_MAX_BODY / 4) return TG_BUILD_LARGE;
    b->f = f;
    b->domain = domain;
    b->items = items;
    b->item_count = count;
    b->reduce_map.rank = 0;
    start_loops(b);
    for (;;) {
        build_once(b, stored);
        if (!b->split) break;
        split_loop(b);
    }
    *culprit = b->culprit;
    f->ctx->work += b->body_count + b->memo_count;
    if (b->status != TG_BUILD_OK) return b->status;
    *out = tg_build_finish(b);
    return *out ? TG_BUILD_OK : TG_BUILD_FAILED;
}
