/* access: see access.h. Reshape is the interesting part: a flat affine offset is taken apart into
 * axes by exact division, if each term is either a multiple of the axis length or stays below
 * it. */
#include "kernel/access.h"

#include <string.h>

tg_affine tg_affine_constant(int64_t value) {
    tg_affine a;
    memset(&a, 0, sizeof a);
    a.offset = value;
    return a;
}

tg_affine tg_affine_loop(int32_t loop) {
    tg_affine a = tg_affine_constant(0);
    a.stride[loop] = 1;
    return a;
}

void tg_affine_add(tg_affine *sum, const tg_affine *term, int64_t factor) {
    sum->offset += factor * term->offset;
    for (int k = 0; k < TG_MAX_LOOP; k++) sum->stride[k] += factor * term->stride[k];
}

bool tg_affine_equal(const tg_affine *a, const tg_affine *b, const tg_loops *loops) {
    if (a->offset != b->offset) return false;
    for (int k = 0; k < loops->count; k++)
        if (loops->extent[k] > 1 && a->stride[k] != b->stride[k]) return false;
    return true;
}

void tg_affine_range(const tg_affine *a, const tg_loops *loops, int64_t *lowest, int64_t *highest) {
    *lowest = *highest = a->offset;
    for (int k = 0; k < loops->count; k++) {
        int64_t reach = a->stride[k] * (loops->extent[k] - 1);
        if (reach < 0) *lowest += reach;
        else *highest += reach;
    }
}

uint32_t tg_affine_loops(const tg_affine *a, const tg_loops *loops) {
    uint32_t mask = 0;
    for (int k = 0; k < loops->count; k++)
        if (loops->extent[k] > 1 && a->stride[k] != 0) mask |= 1u << k;
    return mask;
}

tg_affine tg_affine_row_major(const tg_loops *loops, int32_t begin, int32_t end) {
    tg_affine a = tg_affine_constant(0);
    int64_t stride = 1;
    for (int k = end - 1; k >= begin; k--) {
        a.stride[k] = stride;
        stride *= loops->extent[k];
    }
    return a;
}

void tg_affine_split(tg_affine *a, int32_t loop, int64_t factor, int32_t loop_count) {
    for (int k = loop_count; k > loop + 1; k--) a->stride[k] = a->stride[k - 1];
    a->stride[loop + 1] = a->stride[loop];
    a->stride[loop] *= factor;
}

tg_affine tg_map_offset(const tg_index_map *map, tg_shape shape) {
    tg_affine flat = tg_affine_constant(0);
    int64_t stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        tg_affine_add(&flat, &map->index[d], stride);
        stride *= shape.dim[d];
    }
    return flat;
}

static int64_t access_floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

static const tg_push push_ok = {TG_PUSH_OK, 0, 0};
static const tg_push push_no = {TG_PUSH_NO, 0, 0};

/* e = size * quotient + remainder with 0 <= remainder < size at every loop point, both affine. */
static tg_push affine_divide(const tg_affine *e, int64_t size, const tg_loops *loops, tg_affine *quotient, tg_affine *remainder) {
    *quotient = tg_affine_constant(0);
    *remainder = tg_affine_constant(0);
    int64_t below = 0, above = 0;
    for (int k = 0; k < loops->count; k++) {
        int64_t c = e->stride[k], reach = c * (loops->extent[k] - 1);
        if (c == 0 || loops->extent[k] == 1) continue;
        if (c % size == 0) {
            quotient->stride[k] = c / size;
            continue;
        }
        int64_t magnitude = c < 0 ? -c : c;
        if (magnitude * (loops->extent[k] - 1) >= size) {
            if (size % magnitude != 0 || loops->extent[k] % (size / magnitude) != 0) return push_no;
            return (tg_push){TG_PUSH_SPLIT, k, size / magnitude};
        }
        remainder->stride[k] = c;
        if (reach < 0) below += reach;
        else above += reach;
    }
    quotient->offset = access_floor_div(e->offset + below, size);
    remainder->offset = e->offset - quotient->offset * size;
    if (remainder->offset + above >= size) return push_no;
    return push_ok;
}

/* Takes one affine apart into axes dims[0..count), row-major. The first axis takes the rest. */
static tg_push affine_unflatten(const tg_affine *flat, const int64_t *dims, int count, const tg_loops *loops, tg_affine *out) {
    tg_affine rest = *flat;
    for (int d = count - 1; d > 0; d--) {
        if (dims[d] == 1) {
            out[d] = tg_affine_constant(0);
            continue;
        }
        bool only_ones = true;
        for (int i = 0; i < d; i++) only_ones = only_ones && dims[i] == 1;
        if (only_ones) {
            out[d] = rest;
            rest = tg_affine_constant(0);
            continue;
        }
        tg_affine quotient;
        tg_push p = affine_divide(&rest, dims[d], loops, &quotient, &out[d]);
        if (p.status != TG_PUSH_OK) return p;
        rest = quotient;
    }
    if (count > 0) out[0] = rest;
    return push_ok;
}

tg_push tg_map_from_flat(const tg_affine *flat, tg_shape shape, const tg_loops *loops, tg_index_map *out) {
    out->rank = shape.rank;
    out->bound_count = 0;
    return affine_unflatten(flat, shape.dim, shape.rank, loops, out->index);
}

/* Axes are matched in groups of equal product, so that each group is taken apart by itself. */
static tg_push push_reshape(tg_shape to, tg_shape from, const tg_index_map *map, const tg_loops *loops, tg_index_map *out) {
    int t = 0, f = 0;
    while (t < to.rank || f < from.rank) {
        int t0 = t, f0 = f;
        int64_t pt = t < to.rank ? to.dim[t++] : 1, pf = f < from.rank ? from.dim[f++] : 1;
        while (pt != pf) {
            if (pt < pf && t < to.rank) pt *= to.dim[t++];
            else if (f < from.rank) pf *= from.dim[f++];
            else return push_no;
        }
        tg_affine flat = tg_affine_constant(0);
        int64_t stride = 1;
        for (int d = t - 1; d >= t0; d--) {
            tg_affine_add(&flat, &map->index[d], stride);
            stride *= to.dim[d];
        }
        tg_push p = affine_unflatten(&flat, from.dim + f0, f - f0, loops, out->index + f0);
        if (p.status != TG_PUSH_OK) return p;
    }
    return push_ok;
}

bool tg_map_bound(tg_index_map *map, const tg_affine *at, int64_t lo, int64_t hi, const tg_loops *loops) {
    int64_t lowest, highest;
    tg_affine_range(at, loops, &lowest, &highest);
    if (lowest >= lo && highest < hi) return true;
    for (int i = 0; i < map->bound_count; i++)
        if (map->bounds[i].lo == lo && map->bounds[i].hi == hi && tg_affine_equal(&map->bounds[i].at, at, loops)) return true;
    if (map->bound_count == TG_MAX_BOUNDS) return false;
    map->bounds[map->bound_count++] = (tg_bound){*at, lo, hi};
    return true;
}

/* Position o * stride + tap * dilation. */
static void push_window(const tg_node *node, tg_shape from, const tg_index_map *map, tg_index_map *out) {
    const tg_window w = node->attr.window;
    for (int d = 0; d < from.rank; d++) {
        out->index[d] = map->index[d];
        if (d != node->attr.axis) continue;
        out->index[d] = tg_affine_constant(0);
        tg_affine_add(&out->index[d], &map->index[d], w.stride);
        tg_affine_add(&out->index[d], &map->index[from.rank], w.dilation);
    }
}

tg_push tg_map_push(const tg_node *node, tg_shape from, const tg_index_map *map, const tg_loops *loops, tg_index_map *out) {
    out->rank = from.rank;
    out->bound_count = map->bound_count;
    memcpy(out->bounds, map->bounds, sizeof(tg_bound) * (size_t)map->bound_count);
    if (node->op == TG_OP_RESHAPE) return push_reshape(node->shape, from, map, loops, out);
    if (node->op == TG_OP_WINDOW) {
        push_window(node, from, map, out);
        return push_ok;
    }
    for (int d = 0; d < node->shape.rank; d++) {
        tg_affine at = map->index[d];
        switch (node->op) {
        case TG_OP_PERMUTE: out->index[node->attr.perm[d]] = at; break;
        case TG_OP_BROADCAST: out->index[d] = from.dim[d] == 1 ? tg_affine_constant(0) : at; break;
        case TG_OP_SLICE:
            at.offset += node->attr.start[d];
            out->index[d] = at;
            break;
        case TG_OP_PAD:
            at.offset -= node->attr.start[d];
            out->index[d] = at;
            if (!tg_map_bound(out, &at, 0, from.dim[d], loops)) return push_no;
            break;
        case TG_OP_FLIP:
            out->index[d] = at;
            if (node->attr.axes >> d & 1u) {
                out->index[d] = tg_affine_constant(from.dim[d] - 1);
                tg_affine_add(&out->index[d], &at, -1);
            }
            break;
        default: return push_no;
        }
    }
    return push_ok;
}

/* e = size * quotient + remainder with -size < remainder < size at every loop point, both affine: e
 * is a multiple of size where the remainder is 0, and nowhere else. */
static tg_push affine_divide_around(const tg_affine *e, int64_t size, const tg_loops *loops, tg_affine *quotient, tg_affine *remainder) {
    tg_affine first = *e;
    int64_t lowest, highest;
    first.offset = 0;
    tg_push p = affine_divide(&first, size, loops, quotient, remainder);
    if (p.status != TG_PUSH_OK) return p;
    tg_affine_range(remainder, loops, &lowest, &highest);
    const int64_t turns = access_floor_div(e->offset + lowest, size);
    quotient->offset += turns;
    remainder->offset += e->offset - turns * size;
    tg_affine_range(remainder, loops, &lowest, &highest); /* lowest is in [0, size) */
    if (highest < size) return push_ok;
    if (lowest == 0 || highest >= 2 * size) return push_no;
    quotient->offset++;
    remainder->offset -= size;
    return push_ok;
}

tg_push tg_map_fold(const tg_node *node, tg_shape from, int64_t tap, const tg_index_map *map, const tg_loops *loops, tg_index_map *out,
                    bool *never) {
    const tg_window w = node->attr.window;
    const int32_t axis = node->attr.axis;
    tg_affine at = map->index[axis], window = at, remainder = tg_affine_constant(0);
    int64_t lowest, highest;
    at.offset -= tap * w.dilation;
    *out = *map;
    *never = false;
    tg_push p = affine_divide_around(&at, w.stride, loops, &window, &remainder);
    if (p.status != TG_PUSH_OK) return p;
    out->rank = from.rank;
    out->index[axis] = window;
    out->index[from.rank - 1] = tg_affine_constant(tap);
    tg_affine_range(&remainder, loops, &lowest, &highest);
    *never = lowest > 0 || highest < 0;
    tg_affine_range(&window, loops, &lowest, &highest);
    *never = *never || highest < 0 || lowest >= from.dim[axis];
    if (*never) return push_ok;
    return tg_map_bound(out, &remainder, 0, 1, loops) && tg_map_bound(out, &window, 0, from.dim[axis], loops) ? push_ok : push_no;
}
