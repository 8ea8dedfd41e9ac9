/* build_body: the instructions of a value and of all that it is computed from, down to stored
 * values. Views become index arithmetic. Must not know how loops are chosen. */
#include "kernel/build_parts.h"

#include <string.h>

static tg_level level_of_mask(const struct tg_builder *b, uint32_t mask) {
    if (mask == 0) return TG_LEVEL_UNIFORM;
    if (b->domain->kind == TG_KERNEL_REDUCE && (mask >> b->outer) == 0) return TG_LEVEL_OUTER;
    return TG_LEVEL_ELEMENT;
}

int tg_build_fail(struct tg_builder *b, tg_build_status status, int32_t culprit) {
    if (b->status == TG_BUILD_OK) {
        b->status = status;
        b->culprit = culprit;
    }
    return -1;
}

/* After a push that failed: splits a loop and starts again, or asks for `culprit` to be stored. */
int tg_build_push_failed(struct tg_builder *b, tg_push push, int32_t culprit) {
    /* a scattered row is one loop */
    bool splittable = b->domain->kind != TG_KERNEL_SCATTER_ADD || push.loop < b->m_begin;
    if (b->domain->kind == TG_KERNEL_ATTENTION) splittable = false; /* its loops have fixed meanings */
    if (push.status == TG_PUSH_SPLIT && splittable && b->loops.count < TG_MAX_LOOP - 1 && !b->split) {
        b->split = true;
        b->split_loop = push.loop;
        b->split_factor = push.factor;
        return tg_build_fail(b, TG_BUILD_REFUSED, 0);
    }
    return tg_build_fail(b, TG_BUILD_STORE, culprit);
}

int32_t tg_build_argument(struct tg_builder *b, int32_t reference, tg_dtype dtype, tg_access access) {
    for (int32_t i = 0; i < b->argument_count; i++)
        if (b->arguments[i].reference == reference) return i;
    if (b->argument_count == BUILD_MAX_ARGUMENTS) return tg_build_fail(b, TG_BUILD_LARGE, 0);
    b->arguments[b->argument_count] = (tg_argument){.reference = reference, .dtype = dtype, .access = access};
    return b->argument_count++;
}

/* Appends; fills in level and mask from the loops in `own` and from the sources. */
int tg_build_append(struct tg_builder *b, tg_instruction instruction, uint32_t own, int sources) {
    if (b->body_count >= BUILD_MAX_BODY) return tg_build_fail(b, TG_BUILD_LARGE, 0);
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
        tg_build_fail(b, TG_BUILD_LARGE, 0);
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

int tg_build_memo_find(const struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map) {
    for (int32_t i = 0; i < b->memo_count; i++)
        if (b->memo[i].node == node && tg_affine_equal(&b->memo[i].flat, flat, &b->loops) && same_bounds(b, &b->memo[i], map))
            return b->memo[i].instruction;
    return -1;
}

void tg_build_memo_add(struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map, int instruction) {
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

bool tg_build_stored_elsewhere(const struct tg_builder *b, int32_t node) { return tg_has_storage(b->f, node) && !in_this_group(b, node); }

/* ---- instructions */

static int emit_load(struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map) {
    int found = tg_build_memo_find(b, node, flat, map);
    if (found >= 0) return found;
    tg_instruction load;
    memset(&load, 0, sizeof load);
    load.op = TG_K_LOAD;
    const tg_dtype stored = builder_node(b, node)->dtype;
    load.dtype = tg_dtype_row(stored)->compute;
    load.at = *flat;
    load.argument = tg_build_argument(b, node, stored, TG_ACCESS_READ);
    uint32_t mask = tg_affine_loops(flat, &b->loops);
    if (load.argument < 0 || !keep_bounds(b, &load, map->bounds, map->bound_count, &mask)) return -1;
    int at = tg_build_append(b, load, mask, 0);
    if (at >= 0) tg_build_memo_add(b, node, flat, map, at);
    return at;
}

static int emit_constant(struct tg_builder *b, tg_dtype dtype, double value) {
    tg_instruction c;
    memset(&c, 0, sizeof c);
    c.op = TG_OP_CONST;
    c.dtype = dtype;
    c.value = value;
    return tg_build_append(b, c, 0, 0);
}

static int emit_alu(struct tg_builder *b, int32_t op, tg_dtype dtype, int s0, int s1, int s2, int count) {
    tg_instruction alu;
    memset(&alu, 0, sizeof alu);
    alu.op = op;
    alu.dtype = dtype;
    alu.src[0] = s0;
    alu.src[1] = s1;
    alu.src[2] = s2;
    return tg_build_append(b, alu, 0, count);
}

static int emit_inside(struct tg_builder *b, const tg_bound *bounds, int count) {
    tg_instruction inside;
    memset(&inside, 0, sizeof inside);
    inside.op = TG_K_INSIDE;
    inside.dtype = TG_BOOL;
    uint32_t mask = 0;
    if (!keep_bounds(b, &inside, bounds, count, &mask)) return -1;
    return tg_build_append(b, inside, mask, 0);
}

/* `value` where all bounds of `inner` after the first `outer_bounds` hold, else `otherwise` (an
 * instruction; if negative: 0). */
static int emit_guarded(struct tg_builder *b, int value, const tg_index_map *inner, int outer_bounds, int otherwise, tg_dtype dtype) {
    if (value < 0 || inner->bound_count == outer_bounds) return value;
    int inside = emit_inside(b, inner->bounds + outer_bounds, inner->bound_count - outer_bounds);
    if (otherwise < 0) otherwise = emit_constant(b, dtype, 0.0);
    if (inside < 0 || otherwise < 0) return -1;
    return emit_alu(b, TG_OP_SELECT, dtype, inside, value, otherwise, 3);
}

/* ---- views and joins */

static int emit_view(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    tg_index_map inner;
    tg_push push = tg_map_push(n, builder_node(b, n->inputs[0])->shape, map, &b->loops, &inner);
    if (push.status != TG_PUSH_OK) return tg_build_push_failed(b, push, tg_has_storage(b->f, n->inputs[0]) ? node : n->inputs[0]);
    int value = tg_build_value(b, n->inputs[0], &inner);
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
    if (tg_build_stored_elsewhere(b, x)) return emit_load(b, x, &flat, map);
    tg_index_map inner;
    tg_push push = tg_map_push(n, builder_node(b, x)->shape, map, &b->loops, &inner);
    if (push.status != TG_PUSH_OK) return tg_build_push_failed(b, push, x);
    return tg_build_value(b, x, &inner);
}

/* Inputs of a concatenation (along an axis of the map) or of a pack (along the flat offset): nested
 * selects. */
static int emit_concat(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int axis = n->attr.axis, result = -1;
    int64_t end = n->shape.dim[axis];
    for (int i = n->input_count - 1; i >= 0; i--) {
        n = builder_node(b, node);
        int64_t length = builder_node(b, n->inputs[i])->shape.dim[axis];
        tg_index_map part = *map;
        part.index[axis].offset -= end - length;
        if (!tg_map_bound(&part, &part.index[axis], 0, length, &b->loops)) return tg_build_fail(b, TG_BUILD_STORE, node);
        int value = tg_build_value(b, n->inputs[i], &part);
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
        if (!tg_map_bound(&part, &part.index[0], 0, tg_shape_count(shape), &b->loops)) return tg_build_fail(b, TG_BUILD_STORE, node);
        int value;
        if (tg_build_stored_elsewhere(b, n->inputs[i])) {
            value = emit_load(b, n->inputs[i], &part.index[0], &part);
        } else {
            tg_push push = tg_map_from_flat(&part.index[0], shape, &b->loops, &inner);
            if (push.status != TG_PUSH_OK) return tg_build_push_failed(b, push, n->inputs[i]);
            inner.bound_count = part.bound_count;
            memcpy(inner.bounds, part.bounds, sizeof part.bounds);
            value = tg_build_value(b, n->inputs[i], &inner);
        }
        if (value < 0) return -1;
        result = emit_guarded(b, value, &part, map->bound_count, result, n->dtype);
    }
    return result;
}

/* A fold adds its taps one after another, each where a window has an element there. */
static int emit_fold(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node n = *builder_node(b, node);
    const int32_t x = n.inputs[0];
    int result = -1;
    for (int64_t tap = 0; tap < n.attr.window.size; tap++) {
        tg_index_map inner;
        bool never;
        tg_push push = tg_map_fold(&n, builder_node(b, x)->shape, tap, map, &b->loops, &inner, &never);
        if (push.status != TG_PUSH_OK) return tg_build_push_failed(b, push, node);
        if (never) continue;
        int value = tg_build_value(b, x, &inner);
        if (value < 0) return -1;
        if (b->body[value].op != TG_K_LOAD || b->body[value].bound_count != inner.bound_count)
            value = emit_guarded(b, value, &inner, map->bound_count, -1, n.dtype);
        result = result < 0 || value < 0 ? value : emit_alu(b, TG_OP_ADD, n.dtype, result, value, -1, 2);
        if (result < 0) return -1;
    }
    return result < 0 ? emit_constant(b, n.dtype, 0.0) : result;
}

/* ---- operations */

/* `node` under `map` as one affine access of a value that is stored elsewhere. On failure b->status
 * says why, and b->culprit what must be stored. */
static bool resolve_access(struct tg_builder *b, int32_t node, const tg_index_map *map, int32_t *base, tg_affine *at) {
    tg_index_map now = *map, next;
    /* the first view with bounds: once it is stored, neither it nor the views before it need any */
    int32_t bounded = node;
    for (;;) {
        const tg_node *n = builder_node(b, node);
        if (tg_build_stored_elsewhere(b, node)) {
            *base = node;
            *at = tg_map_offset(&now, n->shape);
            if (now.bound_count > 0) tg_build_fail(b, TG_BUILD_STORE, bounded);
            return now.bound_count == 0;
        }
        if (tg_has_storage(b->f, node)) {
            tg_build_fail(b, TG_BUILD_REFUSED, 0);
            return false;
        }
        if (tg_op_table[n->op].class_ != TG_CLASS_VIEW) {
            tg_build_fail(b, TG_BUILD_STORE, node);
            return false;
        }
        int32_t x = n->inputs[0];
        if (n->op == TG_OP_RESHAPE && tg_build_stored_elsewhere(b, x)) {
            *base = x;
            *at = tg_map_offset(&now, n->shape);
            if (now.bound_count > 0) tg_build_fail(b, TG_BUILD_STORE, bounded);
            return now.bound_count == 0;
        }
        tg_push push = tg_map_push(n, builder_node(b, x)->shape, &now, &b->loops, &next);
        if (push.status != TG_PUSH_OK) {
            tg_build_push_failed(b, push, x);
            return false;
        }
        if (now.bound_count == 0 && next.bound_count > 0) bounded = node;
        now = next;
        node = x;
    }
}

int tg_build_operand(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    tg_instruction load;
    int32_t base;
    memset(&load, 0, sizeof load);
    if (!resolve_access(b, node, map, &base, &load.at)) return -1;
    const tg_dtype stored = builder_node(b, base)->dtype;
    load.op = TG_K_LOAD;
    load.dtype = tg_dtype_row(stored)->compute;
    load.argument = tg_build_argument(b, base, stored, TG_ACCESS_READ);
    return load.argument < 0 ? -1 : tg_build_append(b, load, tg_affine_loops(&load.at, &b->loops), 0);
}

/* The gathered row enters as a pseudo loop after the real ones. */
static int emit_gather(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    int32_t table = n->inputs[0], indices = n->inputs[1], base;
    tg_index_map index_map = *map, table_map = *map;
    index_map.rank = 1;
    int row = tg_build_value(b, indices, &index_map);
    if (row < 0) return -1;
    int64_t rows = builder_node(b, table)->shape.dim[0];
    int pseudo = b->loops.count++;
    b->loops.extent[pseudo] = rows;
    table_map.bound_count = 0;
    table_map.index[0] = tg_affine_loop(pseudo);
    tg_instruction gather;
    memset(&gather, 0, sizeof gather);
    bool good = resolve_access(b, table, &table_map, &base, &gather.at);
    /* a split row has no row stride: the table is stored as it is */
    if (b->split && b->split_loop == pseudo) {
        b->split = false;
        b->status = TG_BUILD_STORE;
        b->culprit = table;
    }
    b->loops.count--;
    if (!good) return -1;
    gather.op = TG_K_GATHER;
    gather.dtype = tg_dtype_row(builder_node(b, table)->dtype)->compute;
    gather.rows = rows;
    gather.row_stride = gather.at.stride[pseudo];
    gather.at.stride[pseudo] = 0;
    gather.src[0] = row;
    gather.argument = tg_build_argument(b, base, builder_node(b, base)->dtype, TG_ACCESS_READ);
    uint32_t mask = tg_affine_loops(&gather.at, &b->loops);
    if (gather.argument < 0 || !keep_bounds(b, &gather, map->bounds, map->bound_count, &mask)) return -1;
    return tg_build_append(b, gather, mask, 1);
}

static int emit_iota(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    tg_instruction index;
    memset(&index, 0, sizeof index);
    index.op = TG_K_INDEX;
    index.dtype = builder_node(b, node)->dtype;
    index.at = map->index[builder_node(b, node)->attr.axis];
    return tg_build_append(b, index, tg_affine_loops(&index.at, &b->loops), 0);
}

static int emit_elementwise(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    int src[3] = {-1, -1, -1};
    int count = builder_node(b, node)->input_count;
    for (int i = 0; i < count; i++) {
        src[i] = tg_build_value(b, builder_node(b, node)->inputs[i], map);
        if (src[i] < 0) return -1;
    }
    const tg_node *n = builder_node(b, node);
    if (n->op == TG_OP_STOP_GRADIENT) return src[0];
    int made = emit_alu(b, (int32_t)n->op, n->dtype, src[0], src[1], src[2], count);
    if (made >= 0 && n->op == TG_OP_RANDOM) {
        b->body[made].value = n->attr.value;
        b->body[made].stream = n->attr.stream;
    }
    return made;
}

static int emit_reduce(struct tg_builder *b, int32_t node) {
    const tg_node *n = builder_node(b, node), *x = builder_node(b, n->inputs[0]);
    tg_index_map map = b->reduce_map;
    if (b->domain->trailing) {
        tg_push push = tg_map_from_flat(&b->element_flat, x->shape, &b->loops, &map);
        if (push.status != TG_PUSH_OK) return tg_build_push_failed(b, push, n->inputs[0]);
    } else if (!tg_shape_equal(x->shape, builder_node(b, builder_node(b, b->domain->node)->inputs[0])->shape) ||
               n->attr.axes != builder_node(b, b->domain->node)->attr.axes) {
        return tg_build_fail(b, TG_BUILD_REFUSED, 0);
    }
    int value = tg_build_value(b, n->inputs[0], &map);
    if (value < 0) return -1;
    n = builder_node(b, node);
    /* the same at each inner point, but still to be reduced over all of them */
    if (b->body[value].level != TG_LEVEL_ELEMENT) {
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
    if (node != b->domain->node) return tg_build_fail(b, TG_BUILD_REFUSED, 0);
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
        operands[side]->argument = tg_build_argument(b, base, TG_F32, TG_ACCESS_READ);
        if (operands[side]->argument < 0) return -1;
    }
    tg_instruction acc;
    memset(&acc, 0, sizeof acc);
    acc.op = TG_K_ACC;
    acc.dtype = TG_F32;
    int at = tg_build_append(b, acc, (1u << b->outer) - 1u, 0);
    if (at >= 0) b->body[at].level = TG_LEVEL_ELEMENT;
    return at;
}

static bool recomputable(const tg_node *n) {
    tg_op_class c = tg_op_table[n->op].class_;
    return n->op != TG_OP_SCATTER_ADD && c != TG_CLASS_REDUCE && c != TG_CLASS_CONTRACT && c != TG_CLASS_ATTENTION;
}

int tg_build_compute(struct tg_builder *b, int32_t node, const tg_index_map *map) {
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
    case TG_CLASS_REDUCE: return b->domain->kind == TG_KERNEL_REDUCE ? emit_reduce(b, node) : tg_build_fail(b, TG_BUILD_REFUSED, 0);
    case TG_CLASS_CONTRACT: return emit_contract(b, node);
    case TG_CLASS_ATTENTION: break;
    case TG_CLASS_INDEX:
        if (n->op == TG_OP_GATHER) return emit_gather(b, node, map);
        break;
    default: return emit_elementwise(b, node, map);
    }
    return tg_build_fail(b, TG_BUILD_REFUSED, 0);
}

bool tg_build_item_is_outer(const struct tg_builder *b, const tg_node *n) {
    if (b->domain->kind != TG_KERNEL_REDUCE) return false;
    return tg_op_table[n->op].class_ == TG_CLASS_REDUCE || tg_shape_count(n->shape) == b->domain->rows;
}

int tg_build_value(struct tg_builder *b, int32_t node, const tg_index_map *map) {
    const tg_node *n = builder_node(b, node);
    tg_affine flat = tg_map_offset(map, n->shape);
    if (tg_build_stored_elsewhere(b, node)) return emit_load(b, node, &flat, map);
    int found = tg_build_memo_find(b, node, &flat, map);
    if (found >= 0) return found;
    if (!recomputable(n)) {
        const tg_affine *canonical = tg_build_item_is_outer(b, n) ? &b->outer_flat : &b->element_flat;
        if (!in_this_group(b, node) || map->bound_count > 0 || !tg_affine_equal(&flat, canonical, &b->loops))
            return tg_build_fail(b, TG_BUILD_REFUSED, 0);
    }
    if (b->body_count > TG_MAX_BODY || ++b->depth > TG_MAX_BODY) return tg_build_fail(b, TG_BUILD_LARGE, 0);
    int value = tg_build_compute(b, node, map);
    b->depth--;
    if (value >= 0) tg_build_memo_add(b, node, &flat, map, value);
    return value;
}
