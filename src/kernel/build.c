/* build: one kernel from a set of items: the loop nest, then each item's expression pulled down to what is stored, views
 * becoming index arithmetic on the way. When a reshape does not divide the loops, a loop is split and the kernel built anew. */
#include "kernel/fuse.h"

#include "kernel/cost.h"

#include <stdio.h>
#include <string.h>

#define BUILD_MAX_BODY (TG_MAX_BODY + 64)
#define BUILD_MAX_BOUNDS 512
#define BUILD_MAX_ARGUMENTS 160

typedef struct build_memo {
    int32_t node, instruction;
    tg_affine flat;
    int32_t bound_count, bound_begin;
} build_memo;

struct tg_builder {
    tg_fusion *f;
    const tg_domain *domain;
    const int32_t *items;
    int item_count;
    tg_loops loops;
    int32_t outer, m_begin, n_begin;
    tg_index_map reduce_map; /* of the shaping REDUCE's operand */
    tg_affine element_flat, outer_flat;
    tg_instruction body[BUILD_MAX_BODY];
    uint32_t mask[BUILD_MAX_BODY]; /* loops an instruction depends on */
    int32_t body_count;
    build_memo memo[BUILD_MAX_BODY];
    int32_t memo_count;
    tg_bound bounds[BUILD_MAX_BOUNDS];
    int32_t bound_count;
    tg_argument arguments[BUILD_MAX_ARGUMENTS];
    int32_t argument_count;
    tg_operand_access a, b;
    tg_affine store_at[TG_MAX_BODY / 4]; /* of each item */
    int32_t depth;
    tg_build_status status;
    int32_t culprit;
    bool split;
    int32_t split_loop;
    int64_t split_factor;
};

struct tg_builder *tg_builder_create(tg_arena *arena) {
    return TG_NEW(arena, struct tg_builder, 1);
}

static int emit_value(struct tg_builder *b, int32_t node, const tg_index_map *map);

static const tg_node *builder_node(const struct tg_builder *b, int32_t id) { return &b->f->graph->nodes.items[id]; }

static int builder_fail(struct tg_builder *b, tg_build_status status, int32_t culprit) {
    if (b->status == TG_BUILD_OK) {
        b->status = status;
        b->culprit = culprit;
    }
    return -1;
}

/* A push that did not work: split and start anew, or have `culprit` stored. */
static int push_failed(struct tg_builder *b, tg_push push, int32_t culprit) {
    bool splittable = b->domain->kind != TG_KERNEL_SCATTER_ADD || push.loop < b->m_begin; /* a scattered row is one loop */
    if (push.status == TG_PUSH_SPLIT && splittable && b->loops.count < TG_MAX_LOOP - 1 && !b->split) {
        b->split = true;
        b->split_loop = push.loop;
        b->split_factor = push.factor;
        return builder_fail(b, TG_BUILD_REFUSED, 0);
    }
    return builder_fail(b, TG_BUILD_STORE, culprit);
}

static int32_t builder_argument(struct tg_builder *b, int32_t buffer, tg_dtype dtype, tg_access access) {
    for (int32_t i = 0; i < b->argument_count; i++)
        if (b->arguments[i].buffer == buffer) return i;
    if (b->argument_count == BUILD_MAX_ARGUMENTS) return builder_fail(b, TG_BUILD_LARGE, 0);
    b->arguments[b->argument_count] = (tg_argument){buffer, dtype, access};
    return b->argument_count++;
}

static tg_level level_of_mask(const struct tg_builder *b, uint32_t mask) {
    if (mask == 0) return TG_LEVEL_UNIFORM;
    if (b->domain->kind == TG_KERNEL_REDUCE && (mask >> b->outer) == 0) return TG_LEVEL_OUTER;
    return TG_LEVEL_ELEMENT;
}

/* Appends; fills level and mask from `own` loops and the sources. */
static int append_instruction(struct tg_builder *b, tg_instruction instruction, uint32_t own, int sources) {
    if (b->body_count >= BUILD_MAX_BODY) return builder_fail(b, TG_BUILD_LARGE, 0);
    tg_level level = level_of_mask(b, own);
    for (int i = 0; i < 3; i++) {
        if (i >= sources) {
            instruction.src[i] = -1;
            continue;
        }
        own |= b->mask[instruction.src[i]];
        if (b->body[instruction.src[i]].level > level) level = b->body[instruction.src[i]].level;
    }
    instruction.level = level;
    b->mask[b->body_count] = own;
    b->body[b->body_count] = instruction;
    return b->body_count++;
}

static bool keep_bounds(struct tg_builder *b, tg_instruction *instruction, const tg_bound *bounds, int count, uint32_t *mask) {
    if (count == 0) return true;
    if (b->bound_count + count > BUILD_MAX_BOUNDS) {
        builder_fail(b, TG_BUILD_LARGE, 0);
        return false;
    }
    instruction->bounds = b->bounds + b->bound_count;
    instruction->bound_count = count;
    for (int i = 0; i < count; i++) {
        b->bounds[b->bound_count++] = bounds[i];
        *mask |= tg_affine_loops(&bounds[i].at, &b->loops);
    }
    return true;
}

static bool same_bounds(const struct tg_builder *b, const build_memo *memo, const tg_index_map *map) {
    if (memo->bound_count != map->bound_count) return false;
    for (int i = 0; i < map->bound_count; i++) {
        const tg_bound *x = &b->bounds[memo->bound_begin + i], *y = &map->bounds[i];
        if (x->lo != y->lo || x->hi != y->hi || !tg_affine_equal(&x->at, &y->at, &b->loops)) return false;
    }
    return true;
}

static int memo_find(const struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map) {
    for (int32_t i = 0; i < b->memo_count; i++)
        if (b->memo[i].node == node && tg_affine_equal(&b->memo[i].flat, flat, &b->loops) && same_bounds(b, &b->memo[i], map))
            return b->memo[i].instruction;
    return -1;
}

static void memo_add(struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map, int instruction) {
    if (b->memo_count == BUILD_MAX_BODY || b->bound_count + map->bound_count > BUILD_MAX_BOUNDS) return;
    build_memo *memo = &b->memo[b->memo_count++];
    *memo = (build_memo){node, instruction, *flat, map->bound_count, b->bound_count};
    for (int i = 0; i < map->bound_count; i++) b->bounds[b->bound_count++] = map->bounds[i];
}

static bool in_this_group(const struct tg_builder *b, int32_t node) {
    int32_t item = b->f->item_of[node];
    if (item < 0) return false;
    for (int i = 0; i < b->item_count; i++)
        if (b->items[i] == item) return true;
    return false;
}

static bool stored_elsewhere(const struct tg_builder *b, int32_t node) { return tg_has_storage(b->f, node) && !in_this_group(b, node); }

static int emit_load(struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map) {
    int found = memo_find(b, node, flat, map);
    if (found >= 0) return found;
    tg_instruction load;
    memset(&load, 0, sizeof load);
    load.op = TG_K_LOAD;
    load.dtype = builder_node(b, node)->dtype;
    load.at = *flat;
    load.argument = builder_argument(b, node, load.dtype, TG_ACCESS_READ);
    uint32_t mask = tg_affine_loops(flat, &b->loops);
    if (load.argument < 0 || !keep_bounds(b, &load, map->bounds, map->bound_count, &mask)) return -1;
    int at = append_instruction(b, load, mask, 0);
    if (at >= 0) memo_add(b, node, flat, map, at);
    return at;
}

static int emit_constant(struct tg_builder *b, tg_dtype dtype, double value) {
    tg_instruction c;
    memset(&c, 0, sizeof c);
    c.op = TG_OP_CONST;
    c.dtype = dtype;
    c.value = value;
    return append_instruction(b, c, 0, 0);
}

static int emit_alu(struct tg_builder *b, int32_t op, tg_dtype dtype, int s0, int s1, int s2, int count) {
    tg_instruction alu;
    memset(&alu, 0, sizeof alu);
    alu.op = op;
    alu.dtype = dtype;
    alu.src[0] = s0;
    alu.src[1] = s1;
    alu.src[2] = s2;
    return append_instruction(b, alu, 0, count);
}

static int emit_inside(struct tg_builder *b, const tg_bound *bounds, int count) {
    tg_instruction inside;
    memset(&inside, 0, sizeof inside);
    inside.op = TG_K_INSIDE;
    inside.dtype = TG_BOOL;
    uint32_t mask = 0;
    if (!keep_bounds(b, &inside, bounds, count, &mask)) return -1;
    return append_instruction(b, inside, mask, 0);
}

/* value where the bounds that `inner` has beyond `outer_bounds` hold, else `otherwise` (an instruction). */
static int emit_guarded(struct tg_builder *b, int value, const tg_index_map *inner, int outer_bounds, int otherwise, tg_dtype dtype) {
    if (value < 0 || inner->bound_count == outer_bounds) return value;
    int inside = emit_inside(b, inner->bounds + outer_bounds, inner->bound_count - outer_bounds);
    if (otherwise < 0) otherwise = emit_constant(b, dtype, 0.0);
    if (inside < 0 || otherwise < 0) return -1;
    return emit_alu(b, TG_OP_SELECT, dtype, inside, value, otherwise, 3);
}

static int emit_view(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    tg_index_map inner;
    tg_push push = tg_map_push(n, builder_node(b, n->inputs[0])->shape, map, &b->loops, &inner);
    if (push.status != TG_PUSH_OK) return push_failed(b, push, tg_has_storage(b->f, n->inputs[0]) ? node : n->inputs[0]);
    int value = emit_value(b, n->inputs[0], &inner);
    /* a load returns 0 outside its bounds by itself */
    if (value >= 0 && b->body[value].op == TG_K_LOAD && b->body[value].bound_count == inner.bound_count) return value;
    return emit_guarded(b, value, &inner, map->bound_count, -1, n->dtype);
}

static int emit_reshape(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int32_t x = tg_strip_reshape(b->f->graph, node);
    for (int32_t y = n->inputs[0]; y != x; y = builder_node(b, y)->inputs[0])
        if (tg_has_storage(b->f, y)) {
            x = y;
            break;
        }
    tg_affine flat = tg_map_offset(map, n->shape);
    if (stored_elsewhere(b, x)) return emit_load(b, x, &flat, map);
    tg_index_map inner;
    tg_push push = tg_map_push(n, builder_node(b, x)->shape, map, &b->loops, &inner);
    if (push.status != TG_PUSH_OK) return push_failed(b, push, x);
    return emit_value(b, x, &inner);
}

/* Parts of a concatenation (along an axis of the map) or of a pack (along the flat offset): nested selects. */
static int emit_concat(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int axis = (int)n->attr.axes, result = -1;
    int64_t end = n->shape.dim[axis];
    for (int i = n->input_count - 1; i >= 0; i--) {
        n = builder_node(b, node);
        int64_t length = builder_node(b, n->inputs[i])->shape.dim[axis];
        tg_index_map part = *map;
        part.index[axis].offset -= end - length;
        if (!tg_map_bound(&part, &part.index[axis], 0, length, &b->loops)) return builder_fail(b, TG_BUILD_STORE, node);
        int value = emit_value(b, n->inputs[i], &part);
        if (value < 0) return -1;
        result = result < 0 ? value : emit_guarded(b, value, &part, map->bound_count, result, n->dtype);
        if (result < 0) return -1;
        end -= length;
    }
    return result;
}

static int emit_pack(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int result = emit_constant(b, n->dtype, 0.0);
    for (int i = 0; i < n->input_count && result >= 0; i++) {
        tg_shape shape = builder_node(b, n->inputs[i])->shape;
        tg_index_map part = *map, inner;
        part.index[0].offset -= n->attr.offsets[i];
        if (!tg_map_bound(&part, &part.index[0], 0, tg_shape_count(shape), &b->loops)) return builder_fail(b, TG_BUILD_STORE, node);
        int value;
        if (stored_elsewhere(b, n->inputs[i])) {
            value = emit_load(b, n->inputs[i], &part.index[0], &part);
        } else {
            tg_push push = tg_map_from_flat(&part.index[0], shape, &b->loops, &inner);
            if (push.status != TG_PUSH_OK) return push_failed(b, push, n->inputs[i]);
            inner.bound_count = part.bound_count;
            memcpy(inner.bounds, part.bounds, sizeof part.bounds);
            value = emit_value(b, n->inputs[i], &inner);
        }
        if (value < 0) return -1;
        result = emit_guarded(b, value, &part, map->bound_count, result, n->dtype);
    }
    return result;
}

/* A fold: its taps one after the other, each where a window has it there. */
static int emit_fold(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node n = *builder_node(b, node);
    const int32_t x = n.inputs[0];
    int result = -1;
    for (int64_t tap = 0; tap < n.attr.window.size; tap++) {
        tg_index_map inner;
        bool never;
        tg_push push = tg_map_fold(&n, builder_node(b, x)->shape, tap, map, &b->loops, &inner, &never);
        if (push.status != TG_PUSH_OK) return push_failed(b, push, node);
        if (never) continue;
        int value = emit_value(b, x, &inner);
        if (value < 0) return -1;
        if (b->body[value].op != TG_K_LOAD || b->body[value].bound_count != inner.bound_count)
            value = emit_guarded(b, value, &inner, map->bound_count, -1, n.dtype);
        result = result < 0 || value < 0 ? value : emit_alu(b, TG_OP_ADD, n.dtype, result, value, -1, 2);
        if (result < 0) return -1;
    }
    return result < 0 ? emit_constant(b, n.dtype, 0.0) : result;
}

/* node under map as one affine access of something stored elsewhere. On failure: who must be stored. */
static bool resolve_access(struct tg_builder *b, int32_t node, const tg_index_map *map, int32_t *base, tg_affine *at) {
    tg_index_map now = *map, next;
    int32_t bounded = node; /* the first view that does not always exist: stored, it and what is before it need no bounds */
    for (;;) {
        const tg_node *n = builder_node(b, node);
        if (stored_elsewhere(b, node)) {
            *base = node;
            *at = tg_map_offset(&now, n->shape);
            if (now.bound_count > 0) builder_fail(b, TG_BUILD_STORE, bounded);
            return now.bound_count == 0;
        }
        if (tg_has_storage(b->f, node)) {
            builder_fail(b, TG_BUILD_REFUSED, 0);
            return false;
        }
        if (tg_op_table[n->op].class_ != TG_CLASS_VIEW) {
            builder_fail(b, TG_BUILD_STORE, node);
            return false;
        }
        int32_t x = n->inputs[0];
        if (n->op == TG_OP_RESHAPE && stored_elsewhere(b, x)) {
            *base = x;
            *at = tg_map_offset(&now, n->shape);
            if (now.bound_count > 0) builder_fail(b, TG_BUILD_STORE, bounded);
            return now.bound_count == 0;
        }
        tg_push push = tg_map_push(n, builder_node(b, x)->shape, &now, &b->loops, &next);
        if (push.status != TG_PUSH_OK) {
            push_failed(b, push, x);
            return false;
        }
        if (now.bound_count == 0 && next.bound_count > 0) bounded = node;
        now = next;
        node = x;
    }
}

/* The gathered row enters as a pseudo loop behind the real ones. */
static int emit_gather(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int32_t table = n->inputs[0], indices = n->inputs[1], base;
    tg_index_map index_map = *map, table_map = *map;
    index_map.rank = 1;
    int row = emit_value(b, indices, &index_map);
    if (row < 0) return -1;
    int64_t rows = builder_node(b, table)->shape.dim[0];
    int pseudo = b->loops.count++;
    b->loops.extent[pseudo] = rows;
    table_map.bound_count = 0;
    table_map.index[0] = tg_affine_loop(pseudo);
    tg_instruction gather;
    memset(&gather, 0, sizeof gather);
    bool good = resolve_access(b, table, &table_map, &base, &gather.at);
    if (b->split && b->split_loop == pseudo) { /* a split row is no row stride: store the table as it is */
        b->split = false;
        b->status = TG_BUILD_STORE;
        b->culprit = table;
    }
    b->loops.count--;
    if (!good) return -1;
    gather.op = TG_K_GATHER;
    gather.dtype = builder_node(b, table)->dtype;
    gather.rows = rows;
    gather.row_stride = gather.at.stride[pseudo];
    gather.at.stride[pseudo] = 0;
    gather.src[0] = row;
    gather.argument = builder_argument(b, base, gather.dtype, TG_ACCESS_READ);
    uint32_t mask = tg_affine_loops(&gather.at, &b->loops);
    if (gather.argument < 0 || !keep_bounds(b, &gather, map->bounds, map->bound_count, &mask)) return -1;
    return append_instruction(b, gather, mask, 1);
}

static int emit_iota(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    tg_instruction index;
    memset(&index, 0, sizeof index);
    index.op = TG_K_INDEX;
    index.dtype = builder_node(b, node)->dtype;
    index.at = map->index[builder_node(b, node)->attr.axes];
    return append_instruction(b, index, tg_affine_loops(&index.at, &b->loops), 0);
}

static int emit_elementwise(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    int src[3] = {-1, -1, -1};
    int count = builder_node(b, node)->input_count;
    for (int i = 0; i < count; i++) {
        src[i] = emit_value(b, builder_node(b, node)->inputs[i], map);
        if (src[i] < 0) return -1;
    }
    const tg_node *n = builder_node(b, node);
    if (n->op == TG_OP_STOP_GRADIENT) return src[0];
    int made = emit_alu(b, (int32_t)n->op, n->dtype, src[0], src[1], src[2], count);
    if (made >= 0 && n->op == TG_OP_RANDOM) {
        b->body[made].value = n->attr.value;
        b->body[made].stream = n->attr.index;
    }
    return made;
}

static int emit_reduce(struct tg_builder *b, int32_t node) {
    const tg_node *n = builder_node(b, node), *x = builder_node(b, n->inputs[0]);
    tg_index_map map = b->reduce_map;
    if (b->domain->trailing) {
        tg_push push = tg_map_from_flat(&b->element_flat, x->shape, &b->loops, &map);
        if (push.status != TG_PUSH_OK) return push_failed(b, push, n->inputs[0]);
    } else if (!tg_shape_equal(x->shape, builder_node(b, builder_node(b, b->domain->node)->inputs[0])->shape) ||
               n->attr.axes != builder_node(b, b->domain->node)->attr.axes) {
        return builder_fail(b, TG_BUILD_REFUSED, 0);
    }
    int value = emit_value(b, n->inputs[0], &map);
    if (value < 0) return -1;
    n = builder_node(b, node);
    if (b->body[value].level != TG_LEVEL_ELEMENT) { /* the same at every inner point, but reduced all the same */
        value = emit_alu(b, TG_OP_CAST, b->body[value].dtype, value, -1, -1, 1);
        if (value < 0) return -1;
        b->body[value].level = TG_LEVEL_ELEMENT;
    }
    int result = emit_alu(b, (int32_t)n->op, n->dtype, value, -1, -1, 1);
    if (result < 0) return -1;
    b->body[result].level = TG_LEVEL_OUTER;
    b->mask[result] &= (1u << b->outer) - 1u;
    return result;
}

static int emit_contract(struct tg_builder *b, int32_t node) {
    const tg_node *n = builder_node(b, node);
    if (node != b->domain->node) return builder_fail(b, TG_BUILD_REFUSED, 0);
    tg_affine batch = tg_affine_row_major(&b->loops, 0, b->m_begin), m = tg_affine_row_major(&b->loops, b->m_begin, b->n_begin);
    tg_affine columns = tg_affine_row_major(&b->loops, b->n_begin, b->outer);
    tg_affine k = tg_affine_row_major(&b->loops, b->outer, b->loops.count);
    tg_index_map map;
    map.rank = 3;
    map.bound_count = 0;
    tg_operand_access *operands[2] = {&b->a, &b->b};
    for (int side = 0; side < 2; side++) {
        int32_t base;
        map.index[0] = batch;
        map.index[1] = side == 0 ? m : k;
        map.index[2] = side == 0 ? k : columns;
        n = builder_node(b, node);
        if (!resolve_access(b, n->inputs[side], &map, &base, &operands[side]->at)) return -1;
        operands[side]->argument = builder_argument(b, base, TG_F32, TG_ACCESS_READ);
        if (operands[side]->argument < 0) return -1;
    }
    tg_instruction acc;
    memset(&acc, 0, sizeof acc);
    acc.op = TG_K_ACC;
    acc.dtype = TG_F32;
    int at = append_instruction(b, acc, (1u << b->outer) - 1u, 0);
    if (at >= 0) b->body[at].level = TG_LEVEL_ELEMENT;
    return at;
}

static bool recomputable(const tg_node *n) {
    tg_op_class c = tg_op_table[n->op].class_;
    return n->op != TG_OP_SCATTER_ADD && c != TG_CLASS_REDUCE && c != TG_CLASS_CONTRACT;
}

static int compute_value(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    switch (tg_op_table[n->op].class_) {
    case TG_CLASS_LEAF:
        if (n->op == TG_OP_CONST) return emit_constant(b, n->dtype, n->attr.value);
        if (n->op == TG_OP_IOTA) return emit_iota(b, node, map);
        break;
    case TG_CLASS_VIEW: return n->op == TG_OP_RESHAPE ? emit_reshape(b, node, map) : emit_view(b, node, map);
    case TG_CLASS_JOIN:
        if (n->op == TG_OP_FOLD) return emit_fold(b, node, map);
        return n->op == TG_OP_CONCAT ? emit_concat(b, node, map) : emit_pack(b, node, map);
    case TG_CLASS_REDUCE: return b->domain->kind == TG_KERNEL_REDUCE ? emit_reduce(b, node) : builder_fail(b, TG_BUILD_REFUSED, 0);
    case TG_CLASS_CONTRACT: return emit_contract(b, node);
    case TG_CLASS_INDEX:
        if (n->op == TG_OP_GATHER) return emit_gather(b, node, map);
        break;
    default: return emit_elementwise(b, node, map);
    }
    return builder_fail(b, TG_BUILD_REFUSED, 0);
}

static bool item_is_outer(const struct tg_builder *b, const tg_node *n) {
    if (b->domain->kind != TG_KERNEL_REDUCE) return false;
    return tg_op_table[n->op].class_ == TG_CLASS_REDUCE || tg_shape_count(n->shape) == b->domain->rows;
}

static int emit_value(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    tg_affine flat = tg_map_offset(map, n->shape);
    if (stored_elsewhere(b, node)) return emit_load(b, node, &flat, map);
    int found = memo_find(b, node, &flat, map);
    if (found >= 0) return found;
    if (!recomputable(n)) {
        const tg_affine *canonical = item_is_outer(b, n) ? &b->outer_flat : &b->element_flat;
        if (!in_this_group(b, node) || map->bound_count > 0 || !tg_affine_equal(&flat, canonical, &b->loops))
            return builder_fail(b, TG_BUILD_REFUSED, 0);
    }
    if (b->body_count > TG_MAX_BODY || ++b->depth > TG_MAX_BODY) return builder_fail(b, TG_BUILD_LARGE, 0);
    int value = compute_value(b, node, map);
    b->depth--;
    if (value >= 0) memo_add(b, node, &flat, map, value);
    return value;
}

static bool emit_store(struct tg_builder *b, int32_t item, int value, const tg_affine *at, tg_level level) {
    tg_instruction store;
    memset(&store, 0, sizeof store);
    store.op = TG_K_STORE;
    store.dtype = b->body[value].dtype;
    store.src[0] = value;
    store.at = *at;
    store.argument = builder_argument(b, -(item + 1), store.dtype, TG_ACCESS_WRITE);
    if (store.argument < 0) return false;
    int made = append_instruction(b, store, 0, 1);
    if (made < 0) return false;
    b->body[made].level = level;
    return true;
}

/* Where `node` is stored when a permutation of a contraction's result is what the contraction stores: the map of the value behind
 * the views is row-major over the loops, and each view is followed forwards. */
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
    if (item->copy) return emit_value(b, item->node, map);
    int value = memo_find(b, item->node, flat, map);
    if (value >= 0) return value;
    value = compute_value(b, item->node, map);
    if (value >= 0) memo_add(b, item->node, flat, map, value);
    return value;
}

static void emit_items(struct tg_builder *b, const bool *stored) {
    int values[TG_MAX_BODY / 4];
    for (int i = 0; i < b->item_count; i++) {
        const tg_item *item = &b->f->items.items[b->items[i]];
        const tg_node *n = builder_node(b, item->node);
        tg_index_map map;
        tg_push push = map_of_item(b, item, item_is_outer(b, n), &map);
        if (push.status != TG_PUSH_OK) {
            push_failed(b, push, 0);
            if (b->status == TG_BUILD_STORE) b->status = TG_BUILD_REFUSED;
            return;
        }
        b->store_at[i] = tg_map_offset(&map, n->shape);
        values[i] = emit_item(b, item, &map, &b->store_at[i]);
        if (values[i] < 0) return;
    }
    for (int i = 0; i < b->item_count; i++) {
        if (!stored[i]) continue;
        bool outer = item_is_outer(b, builder_node(b, b->f->items.items[b->items[i]].node));
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
    int row = emit_value(b, n->inputs[0], &map);
    if (row < 0) return;
    map.rank = 2;
    n = builder_node(b, b->f->items.items[item].node);
    int value = emit_value(b, n->inputs[1], &map);
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
    scatter.argument = builder_argument(b, -(item + 1), TG_F32, TG_ACCESS_WRITE);
    int at = scatter.argument < 0 ? -1 : append_instruction(b, scatter, tg_affine_loops(&column, &b->loops), 2);
    if (at >= 0) b->body[at].level = TG_LEVEL_ELEMENT;
}

static void add_loop(struct tg_builder *b, int64_t extent) { b->loops.extent[b->loops.count++] = extent; }

/* The loop nest that the domain asks for, before any splitting. */
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

/* ---- after the body: drop loops of extent 1 and merge neighbours that every access treats as one */

typedef void (*affine_visit)(tg_affine *a, int32_t loop, void *user);

static void visit_affines(tg_kernel *kernel, int32_t loop, affine_visit visit, void *user) {
    for (int32_t i = 0; i < kernel->body_count; i++) {
        visit(&kernel->body[i].at, loop, user);
        for (int32_t j = 0; j < kernel->body[i].bound_count; j++) visit((tg_affine *)(uintptr_t)&kernel->body[i].bounds[j].at, loop, user);
    }
    if (kernel->kind == TG_KERNEL_CONTRACT) {
        visit(&kernel->a.at, loop, user);
        visit(&kernel->b.at, loop, user);
    }
}

struct merge_question {
    int64_t inner;
    bool mergeable;
};

static void ask_mergeable(tg_affine *a, int32_t loop, void *user) {
    struct merge_question *q = user;
    if (a->stride[loop] != a->stride[loop + 1] * q->inner) q->mergeable = false;
}

static void drop_stride(tg_affine *a, int32_t loop, void *user) {
    (void)user;
    for (int k = loop; k + 1 < TG_MAX_LOOP; k++) a->stride[k] = a->stride[k + 1];
    a->stride[TG_MAX_LOOP - 1] = 0;
}

static void drop_loop(tg_kernel *kernel, int32_t loop) {
    visit_affines(kernel, loop, drop_stride, NULL);
    for (int k = loop; k + 1 < kernel->loop_count; k++) kernel->extent[k] = kernel->extent[k + 1];
    kernel->loop_count--;
    if (loop < kernel->m_begin) kernel->m_begin--;
    if (loop < kernel->n_begin) kernel->n_begin--;
    if (loop < kernel->outer_count) kernel->outer_count--;
}

static void coalesce_loops(tg_kernel *kernel) {
    for (int k = kernel->loop_count - 1; k >= 0; k--)
        if (kernel->extent[k] == 1) drop_loop(kernel, k);
    for (int k = kernel->loop_count - 2; k >= 0; k--) {
        if (k + 1 == kernel->m_begin || k + 1 == kernel->n_begin || k + 1 == kernel->outer_count) continue;
        struct merge_question q = {kernel->extent[k + 1], true};
        visit_affines(kernel, k, ask_mergeable, &q);
        if (!q.mergeable) continue;
        int64_t merged = kernel->extent[k] * kernel->extent[k + 1];
        drop_loop(kernel, k);
        kernel->extent[k] = merged;
    }
}

/* Rotates loops [begin, end): those from `middle` on come first. */
struct loop_rotation {
    int32_t begin, middle, end;
};
static void rotate_strides(int64_t *of_loop, const struct loop_rotation *r) {
    int64_t kept[TG_MAX_LOOP];
    memcpy(kept, of_loop, sizeof kept);
    const int32_t moved = r->end - r->middle;
    for (int32_t k = r->begin; k < r->end; k++) of_loop[k] = kept[k < r->begin + moved ? k - r->begin + r->middle : k - moved];
}
static void rotate_affine(tg_affine *a, int32_t loop, void *user) {
    (void)loop;
    rotate_strides(a->stride, user);
}

/* A contraction whose every store is contiguous along m, not n, is made as its transpose: the operands change places. The
 * products and their order stay the same. */
static void turn_contraction(tg_kernel *kernel) {
    const int32_t m = kernel->n_begin - 1, n = kernel->outer_count - 1;
    if (kernel->kind != TG_KERNEL_CONTRACT || m < kernel->m_begin || n < kernel->n_begin) return;
    for (int32_t i = 0; i < kernel->body_count; i++)
        if (kernel->body[i].op == TG_K_STORE && (kernel->body[i].at.stride[m] != 1 || kernel->body[i].at.stride[n] == 1)) return;
    struct loop_rotation r = {kernel->m_begin, kernel->n_begin, kernel->outer_count};
    visit_affines(kernel, 0, rotate_affine, &r);
    rotate_strides(kernel->extent, &r);
    kernel->n_begin = kernel->m_begin + r.end - r.middle;
    const tg_operand_access a = kernel->a;
    kernel->a = kernel->b;
    kernel->b = a;
}

static void kernel_name(const struct tg_builder *b, char *name, size_t size) {
    size_t used = 0;
    int32_t last = 0;
    name[0] = 0;
    for (int32_t i = 0; i < b->body_count; i++) {
        int32_t op = b->body[i].op == TG_K_ACC       ? (int32_t)TG_OP_CONTRACT
                     : b->body[i].op == TG_K_GATHER  ? (int32_t)TG_OP_GATHER
                     : b->body[i].op == TG_K_SCATTER ? (int32_t)TG_OP_SCATTER_ADD
                                                     : b->body[i].op;
        if (op >= TG_OP_COUNT || op == TG_OP_CONST || op == last) continue;
        last = op;
        size_t length = strlen(tg_op_table[op].name);
        if (used + length + 8 > size) {
            snprintf(name + used, size - used, "_etc");
            return;
        }
        snprintf(name + used, size - used, "%s%s", used > 0 ? "_" : "", tg_op_table[op].name);
        used += length + (used > 0 ? 1 : 0);
    }
    if (used == 0) snprintf(name, size, "copy");
}

/* A kernel and all it points to, in one block. */
typedef struct kernel_block {
    tg_kernel kernel;
    char name[72];
} kernel_block;

static size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

static tg_kernel *make_block(const struct tg_builder *b) {
    size_t bounds = 0;
    for (int32_t i = 0; i < b->body_count; i++) bounds += (size_t)b->body[i].bound_count;
    const size_t body_at = padded(sizeof(kernel_block)), bounds_at = body_at + padded(sizeof(tg_instruction) * (size_t)b->body_count);
    const size_t arguments_at = bounds_at + padded(sizeof(tg_bound) * bounds);
    const size_t nodes_at = arguments_at + padded(sizeof(tg_argument) * (size_t)b->argument_count);
    const size_t bytes = nodes_at + sizeof(int32_t) * (size_t)(b->item_count + b->memo_count);
    kernel_block *block = tg_alloc(b->f->ctx, bytes);
    if (!block) return NULL;
    char *base = (char *)block;
    tg_kernel *kernel = &block->kernel;
    tg_bound *kept = (tg_bound *)(void *)(base + bounds_at);
    kernel->bytes = bytes;
    kernel->name = block->name;
    kernel->body = (tg_instruction *)(void *)(base + body_at);
    kernel->arguments = (tg_argument *)(void *)(base + arguments_at);
    kernel->nodes = (int32_t *)(void *)(base + nodes_at);
    kernel_name(b, block->name, sizeof block->name);
    memcpy(kernel->body, b->body, sizeof(tg_instruction) * (size_t)b->body_count);
    memcpy(kernel->arguments, b->arguments, sizeof(tg_argument) * (size_t)b->argument_count);
    for (int32_t i = 0; i < b->body_count; i++) {
        tg_instruction *x = &kernel->body[i];
        if (x->bound_count == 0) continue;
        memcpy(kept, x->bounds, sizeof(tg_bound) * (size_t)x->bound_count);
        x->bounds = kept;
        kept += x->bound_count;
    }
    return kernel;
}

void tg_kernel_free(tg_context *ctx, tg_kernel *kernel) {
    if (kernel) tg_release(ctx, kernel, kernel->bytes);
}

static tg_kernel *finish_kernel(struct tg_builder *b) {
    tg_kernel *kernel = make_block(b);
    if (!kernel) return NULL;
    int32_t *nodes = (int32_t *)kernel->nodes;
    kernel->kind = b->domain->kind;
    kernel->loop_count = b->loops.count;
    kernel->outer_count = b->outer;
    kernel->m_begin = b->m_begin;
    kernel->n_begin = b->n_begin;
    kernel->a = b->a;
    kernel->b = b->b;
    kernel->body_count = b->body_count;
    kernel->argument_count = b->argument_count;
    memcpy(kernel->extent, b->loops.extent, sizeof(int64_t) * (size_t)b->loops.count);
    for (int32_t i = 0; i < b->memo_count; i++) {
        tg_op_class c = tg_op_table[builder_node(b, b->memo[i].node)->op].class_;
        if (!stored_elsewhere(b, b->memo[i].node) && c != TG_CLASS_LEAF && c != TG_CLASS_VIEW)
            nodes[kernel->node_count++] = b->memo[i].node;
    }
    if (kernel->node_count == 0)
        for (int i = 0; i < b->item_count; i++) nodes[kernel->node_count++] = b->f->items.items[b->items[i]].node;
    if (kernel->kind == TG_KERNEL_CONTRACT) {
        kernel->flops = 2.0;
        for (int k = 0; k < kernel->loop_count; k++) kernel->flops *= (double)kernel->extent[k];
    }
    coalesce_loops(kernel);
    turn_contraction(kernel);
    return kernel;
}

static void build_once(struct tg_builder *b, const bool *stored) {
    b->body_count = b->memo_count = b->bound_count = b->argument_count = b->depth = 0;
    b->status = TG_BUILD_OK;
    b->culprit = 0;
    b->split = false;
    b->outer_flat = tg_affine_row_major(&b->loops, 0, b->outer);
    b->element_flat = b->domain->kind == TG_KERNEL_REDUCE ? tg_affine_row_major(&b->loops, 0, b->loops.count) : b->outer_flat;
    if (b->domain->kind == TG_KERNEL_SCATTER_ADD) emit_scatter(b);
    else emit_items(b, stored);
    if (b->status == TG_BUILD_OK && (b->argument_count > b->f->device->max_arguments || b->body_count > TG_MAX_BODY))
        b->status = TG_BUILD_LARGE;
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
    *out = finish_kernel(b);
    return *out ? TG_BUILD_OK : TG_BUILD_FAILED;
}
