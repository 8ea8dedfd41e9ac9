/* assemble: see assemble.h. Boxes are cut apart by planes that cross none of them, again and again,
 * until each is alone. Must not know the rules of operations. */
#include "grad/assemble.h"

#include <stdlib.h>
#include <string.h>

bool tg_pieces_add(tg_graph *g, tg_pieces *pieces, int32_t id, const tg_piece *piece) {
    const int64_t at = pieces->list.count > 0 ? pieces->list.count : 1;
    if (!tg_grow(g->ctx, (void **)&pieces->list.items, &pieces->list.capacity, at + 1, sizeof(tg_piece))) return false;
    pieces->list.items[at] = *piece;
    pieces->list.items[at].next = pieces->last[id];
    pieces->last[id] = (int32_t)at;
    pieces->list.count = at + 1;
    return true;
}

bool tg_pieces_move(tg_pieces *pieces, int32_t from, int32_t to) {
    int32_t first = 0;
    for (int32_t at = pieces->last[from]; at != 0; at = pieces->list.items[at].next) {
        if (pieces->list.items[at].kind == TG_PIECE_BOX) return false;
        first = at;
    }
    if (first == 0) return true;
    pieces->list.items[first].next = pieces->last[to];
    pieces->last[to] = pieces->last[from];
    pieces->last[from] = 0;
    return true;
}

static int32_t assemble_add(tg_graph *g, int32_t sum, int32_t term) {
    if (term == 0) return 0;
    return sum == 0 ? term : tg_ir_binary(g, TG_OP_ADD, sum, term);
}

/* ---------------------------------------------------------------- boxes */

typedef struct assemble_box {
    int32_t x;
    int32_t rank; /* its place among the boxes of the node, which breaks ties */
    int64_t key;  /* where it begins on the axis looked at */
    int64_t begin[TG_MAX_RANK], end[TG_MAX_RANK];
} assemble_box;

/* A part of the tensor. */
typedef struct assemble_region {
    int32_t rank;
    int64_t begin[TG_MAX_RANK], end[TG_MAX_RANK];
} assemble_region;

static int compare_boxes(const void *a, const void *b) {
    const assemble_box *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void sort_boxes(assemble_box *boxes, int64_t n, int32_t axis) {
    for (int64_t i = 0; i < n; i++) boxes[i].key = axis < 0 ? 0 : boxes[i].begin[axis];
    qsort(boxes, (size_t)n, sizeof *boxes, compare_boxes);
}

static tg_shape region_shape(const assemble_region *region) {
    int64_t dims[TG_MAX_RANK] = {0};
    for (int32_t i = 0; i < region->rank; i++) dims[i] = region->end[i] - region->begin[i];
    return tg_shape_make(region->rank, dims);
}

/* One box in a region of zeros. */
static int32_t assemble_one(tg_graph *g, const assemble_box *box, const assemble_region *region) {
    int64_t before[TG_MAX_RANK] = {0};
    bool whole = true;
    for (int32_t i = 0; i < region->rank; i++) {
        before[i] = box->begin[i] - region->begin[i];
        whole = whole && before[i] == 0 && box->end[i] == region->end[i];
    }
    return whole ? box->x : tg_ir_pad(g, box->x, before, region_shape(region));
}

/* The number of parts into which planes across the axis cut the boxes, which are sorted along it. */
static int64_t count_parts(const assemble_box *boxes, int64_t n, int32_t axis) {
    int64_t parts = 0, reach = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        parts += boxes[i].begin[axis] >= reach;
        if (boxes[i].end[axis] > reach) reach = boxes[i].end[axis];
    }
    return parts;
}

/* Spreads boxes, sorted along the axis, over layers in which none overlaps the next: layer[i] for
 * box i. reach: scratch for n. Returns the number of layers. */
static int64_t spread_layers(const assemble_box *boxes, int64_t n, int32_t axis, int32_t *layer, int64_t *reach) {
    int64_t layers = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        while (at < layers && reach[at] > boxes[i].begin[axis]) at++;
        if (at == layers) layers++;
        reach[at] = boxes[i].end[axis];
        layer[i] = (int32_t)at;
    }
    return layers;
}

static int32_t assemble_boxes(tg_graph *g, assemble_box *boxes, int64_t n, const assemble_region *region);

/* Boxes that a plane across the axis cuts into several parts, with zeros between them. */
static int32_t join_parts(tg_graph *g, assemble_box *boxes, int64_t n, int32_t axis, const assemble_region *region) {
    int32_t *parts = tg_alloc(g->ctx, sizeof *parts * (size_t)(2 * n + 1));
    int64_t count = 0, at = region->begin[axis];
    bool whole = parts != NULL;
    for (int64_t first = 0, next; first < n && whole; first = next) {
        assemble_region part = *region;
        part.begin[axis] = at;
        part.end[axis] = boxes[first].begin[axis];
        if (part.end[axis] > at) parts[count++] = tg_ir_const(g, region_shape(&part), TG_F32, 0.0);
        part.begin[axis] = boxes[first].begin[axis];
        part.end[axis] = boxes[first].end[axis];
        for (next = first + 1; next < n && boxes[next].begin[axis] < part.end[axis]; next++)
            if (boxes[next].end[axis] > part.end[axis]) part.end[axis] = boxes[next].end[axis];
        at = part.end[axis];
        parts[count++] = assemble_boxes(g, boxes + first, next - first, &part);
        whole = parts[count - 1] != 0;
    }
    assemble_region rest = *region;
    rest.begin[axis] = at;
    if (whole && at < region->end[axis]) parts[count++] = tg_ir_const(g, region_shape(&rest), TG_F32, 0.0);
    const int32_t joined = whole ? tg_ir_concat(g, parts, (int)count, axis) : 0;
    tg_release(g->ctx, parts, sizeof *parts * (size_t)(2 * n + 1));
    return joined;
}

/* Boxes that no plane separates: layers of boxes that planes do separate, added. Where each box
 * overlaps each other one, a layer is one box. */
static int32_t add_layers(tg_graph *g, assemble_box *boxes, int64_t n, const assemble_region *region) {
    const size_t bytes = (sizeof(int64_t) + sizeof(int32_t) + sizeof(assemble_box)) * (size_t)n;
    int64_t *reach = tg_alloc(g->ctx, bytes), layers = n;
    if (!reach) return 0;
    assemble_box *chosen = (assemble_box *)(void *)(reach + n);
    int32_t *layer = (int32_t *)(void *)(chosen + n), best = -1, sum = 0;
    for (int32_t axis = 0; axis < region->rank; axis++) {
        sort_boxes(boxes, n, axis);
        const int64_t count = spread_layers(boxes, n, axis, layer, reach);
        if (count < layers) layers = count, best = axis;
    }
    sort_boxes(boxes, n, best);
    if (best >= 0) (void)spread_layers(boxes, n, best, layer, reach);
    bool whole = true;
    for (int32_t at = 0; at < layers && whole; at++) {
        int64_t count = 0;
        for (int64_t i = best >= 0 ? 0 : at; i < (best >= 0 ? n : at + 1); i++)
            if (best < 0 || layer[i] == at) chosen[count++] = boxes[i];
        sum = assemble_add(g, sum, assemble_boxes(g, chosen, count, region));
        whole = sum != 0;
    }
    tg_release(g->ctx, reach, bytes);
    return sum;
}

static int32_t assemble_boxes(tg_graph *g, assemble_box *boxes, int64_t n, const assemble_region *region) {
    int32_t best = -1;
    int64_t most = 1;
    if (n == 1) return assemble_one(g, boxes, region);
    for (int32_t axis = 0; axis < region->rank; axis++) {
        sort_boxes(boxes, n, axis);
        const int64_t parts = count_parts(boxes, n, axis);
        if (parts > most) most = parts, best = axis;
    }
    if (best < 0) return add_layers(g, boxes, n, region);
    sort_boxes(boxes, n, best);
    return join_parts(g, boxes, n, best, region);
}

static int32_t make_boxes(tg_graph *g, const tg_piece *const *pieces, int64_t n, tg_shape shape) {
    assemble_box *boxes = tg_alloc(g->ctx, sizeof *boxes * (size_t)n);
    assemble_region all = {.rank = shape.rank};
    if (!boxes) return 0;
    memcpy(all.end, shape.dim, sizeof(int64_t) * (size_t)shape.rank);
    for (int64_t i = 0; i < n; i++) {
        const tg_shape box = tg_graph_node(g, pieces[i]->x)->shape;
        boxes[i].x = pieces[i]->x;
        boxes[i].rank = (int32_t)i;
        for (int32_t d = 0; d < shape.rank; d++) {
            boxes[i].begin[d] = pieces[i]->start[d];
            boxes[i].end[d] = pieces[i]->start[d] + box.dim[d];
        }
    }
    const int32_t made = assemble_boxes(g, boxes, n, &all);
    tg_release(g->ctx, boxes, sizeof *boxes * (size_t)n);
    return made;
}

/* ---------------------------------------------------------------- products, sums */

static int32_t make_product(tg_graph *g, int32_t left, int32_t right) {
    static const int32_t turned[3] = {0, 2, 1};
    const int32_t a = tg_ir_permute(g, left, turned);
    return a == 0 ? 0 : tg_ir_contract(g, a, right);
}

/* The rows that a sum adds, if the summed axes come first: x is then [1, rows, the rest]. 0: they
 * do not. */
static int64_t summed_rows(tg_shape shape, uint32_t axes) {
    int64_t rows = 1;
    bool kept = false;
    for (int32_t i = 0; i < shape.rank; i++) {
        const bool summed = (axes >> i & 1u) != 0;
        if (summed && kept && shape.dim[i] != 1) return 0;
        if (summed) rows *= shape.dim[i];
        else kept = kept || shape.dim[i] != 1;
    }
    return rows;
}

bool tg_piece_joins(const tg_graph *g, const tg_piece *piece) {
    const tg_shape shape = tg_graph_node(g, piece->x)->shape;
    const int64_t rows = piece->kind == TG_PIECE_PRODUCT ? shape.dim[1] : summed_rows(shape, piece->axes);
    return piece->kind != TG_PIECE_BOX && rows > 0 && rows <= TG_ASSEMBLE_ROWS;
}

static bool same_outline(const tg_graph *g, const tg_piece *a, const tg_piece *b) {
    if (a->kind != b->kind || a->axes != b->axes || !tg_shape_equal(tg_graph_node(g, a->x)->shape, tg_graph_node(g, b->x)->shape))
        return false;
    return a->kind != TG_PIECE_PRODUCT || tg_shape_equal(tg_graph_node(g, a->y)->shape, tg_graph_node(g, b->y)->shape);
}

/* The operands x (or y) of n pieces, of this shape each, [B, S, C], as one of all rows,
 * [B, S n, C]: the first rows of all, then the second rows, so that rows of a batch stay together
 * if S counts its examples. */
static int32_t join_rows(tg_graph *g, const tg_piece *const *pieces, int64_t n, bool second, tg_shape shape) {
    int32_t *parts = tg_alloc(g->ctx, sizeof *parts * (size_t)n), joined = 0;
    if (!parts) return 0;
    bool whole = true;
    for (int64_t i = 0; i < n && whole; i++) {
        parts[i] = tg_ir_reshape(g, second ? pieces[i]->y : pieces[i]->x, TG_SHAPE(shape.dim[0], shape.dim[1], 1, shape.dim[2]));
        whole = parts[i] != 0;
    }
    if (whole) joined = tg_ir_concat(g, parts, (int)n, 2);
    tg_release(g->ctx, parts, sizeof *parts * (size_t)n);
    return joined == 0 ? 0 : tg_ir_reshape(g, joined, TG_SHAPE(shape.dim[0], shape.dim[1] * n, shape.dim[2]));
}

/* The sum of n pieces of one outline. */
static int32_t make_joined(tg_graph *g, const tg_piece *const *pieces, int64_t n) {
    const tg_shape x = tg_graph_node(g, pieces[0]->x)->shape;
    if (pieces[0]->kind == TG_PIECE_PRODUCT) {
        const int32_t left = join_rows(g, pieces, n, false, x);
        const int32_t right = left == 0 ? 0 : join_rows(g, pieces, n, true, tg_graph_node(g, pieces[0]->y)->shape);
        return right == 0 ? 0 : make_product(g, left, right);
    }
    const int64_t rows = summed_rows(x, pieces[0]->axes);
    tg_shape kept = x;
    for (int32_t i = 0; i < x.rank; i++)
        if (pieces[0]->axes >> i & 1u) kept.dim[i] = 1;
    const int32_t all = join_rows(g, pieces, n, false, TG_SHAPE(1, rows, tg_shape_count(x) / rows));
    return all == 0 ? 0 : tg_ir_reshape(g, tg_ir_reduce(g, TG_OP_SUM, all, 1u << 1), kept);
}

int32_t tg_piece_make(tg_graph *g, const tg_piece *piece) {
    if (piece->kind == TG_PIECE_PRODUCT) return make_product(g, piece->x, piece->y);
    return tg_ir_reduce(g, TG_OP_SUM, piece->x, piece->axes);
}

/* Products and sums of one outline that follow each other. */
static int32_t make_run(tg_graph *g, const tg_piece *const *pieces, int64_t n) {
    if (n >= TG_ASSEMBLE_LEAST && tg_piece_joins(g, pieces[0])) return make_joined(g, pieces, n);
    int32_t sum = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        sum = assemble_add(g, sum, tg_piece_make(g, pieces[i]));
        if (sum == 0) return 0;
    }
    return sum;
}

/* ---------------------------------------------------------------- all pieces of a node */

/* The pieces of a node are listed from the last one back: in the order of the trace. */
static int64_t list_pieces(const tg_pieces *pieces, int32_t id, const tg_piece **out) {
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t at = pieces->last[id]; at != 0; at = pieces->list.items[at].next) {
            const tg_piece *piece = &pieces->list.items[at];
            if ((piece->kind == TG_PIECE_BOX) != (pass == 0)) continue;
            if (out) out[n] = piece;
            n++;
        }
    return n;
}

int32_t tg_pieces_make(tg_graph *g, tg_pieces *pieces, int32_t id, tg_shape shape) {
    const int64_t n = list_pieces(pieces, id, NULL);
    const tg_piece **list = tg_alloc(g->ctx, sizeof(tg_piece *) * (size_t)n);
    if (!list) return 0;
    (void)list_pieces(pieces, id, list);
    int64_t boxes = 0;
    while (boxes < n && list[boxes]->kind == TG_PIECE_BOX) boxes++;
    int32_t sum = boxes > 0 ? make_boxes(g, list, boxes, shape) : 0;
    bool whole = boxes == 0 || sum != 0;
    for (int64_t first = boxes, next; first < n && whole; first = next) {
        for (next = first + 1; next < n && same_outline(g, list[first], list[next]); next++) continue;
        const int32_t made = make_run(g, list + first, next - first);
        sum = made == 0 ? 0 : assemble_add(g, sum, tg_ir_reshape(g, made, shape));
        whole = sum != 0;
    }
    tg_release(g->ctx, list, sizeof(tg_piece *) * (size_t)n);
    pieces->last[id] = 0;
    return whole ? sum : 0;
}
