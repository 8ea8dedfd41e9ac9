/* grad: the reverse walk. Marks the forward nodes on a path from a wrt to y, visits them from y
 * backwards, applies the rule of each (rules.c) and adds up cotangents in that order, so that the
 * same trace always gives the same sums. Cotangents of a node that many others use wait for its
 * turn, if all of them at once cost less than one by one (assemble.c). Must not know optimisers,
 * passes or devices. */
#include "grad/grad.h"
#include "grad/rules.h"

#include <string.h>

static const tg_vjp_rule *const grad_rules[TG_OP_COUNT] = {
    NULL, /* poison */
#define TG_OP(NAME, ...) &tg_vjp_##NAME,
#include "ir/ops.def"
#undef TG_OP
};

bool tg_grad_has_rule(tg_op op) { return grad_rules[op] != NULL && grad_rules[op]->apply != NULL; }

/* Whether each element of the node is +0: a constant, or a view of one. */
static bool grad_is_zero(const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    while (tg_op_table[node->op].class_ == TG_CLASS_VIEW) node = tg_graph_node(g, node->inputs[0]);
    return node->op == TG_OP_CONST && node->attr.data == NULL && node->attr.value == 0.0;
}

bool tg_vjp_needs(const tg_vjp_call *call, int input) { return call->marks[call->node.inputs[input]] != 0; }

void tg_vjp_give(tg_vjp_call *call, int32_t id, int32_t contribution) {
    int32_t *sum = &call->cotangents[id];
    if (contribution == 0) {
        call->failed = true;
        return;
    }
    if (call->marks[id] == 0 || grad_is_zero(call->g, contribution)) return;
    *sum = *sum == 0 ? contribution : tg_ir_binary(call->g, TG_OP_ADD, *sum, contribution);
    if (*sum == 0) call->failed = true;
}

/* The node whose cotangent that of `id` becomes, element for element. */
static int32_t grad_under_reshapes(const tg_vjp_call *call, int32_t id) {
    const tg_node *node = tg_graph_node(call->g, id);
    while (node->op == TG_OP_RESHAPE && !(call->marks[id] & TG_VJP_WANTED)) {
        id = node->inputs[0];
        node = tg_graph_node(call->g, id);
    }
    return id;
}

static void grad_keep(tg_vjp_call *call, int32_t id, const tg_piece *piece) {
    if (!tg_pieces_add(call->g, &call->pieces, id, piece)) call->failed = true;
}

void tg_vjp_give_box(tg_vjp_call *call, int32_t id, int32_t x, const int64_t *start) {
    tg_piece piece = {.kind = TG_PIECE_BOX, .x = x};
    const tg_shape shape = tg_graph_node(call->g, id)->shape;
    if (call->marks[id] == 0 || grad_is_zero(call->g, x)) return;
    memcpy(piece.start, start, sizeof(int64_t) * (size_t)shape.rank);
    if (call->uses[id] > 1) grad_keep(call, id, &piece);
    else tg_vjp_give(call, id, tg_ir_pad(call->g, x, start, shape));
}

/* Products and sums that will not be joined are made at once, so that they keep their place in the
 * order of nodes. */
static void grad_give_rows(tg_vjp_call *call, int32_t id, const tg_piece *piece) {
    if (call->marks[id] == 0) return;
    if (call->uses[grad_under_reshapes(call, id)] >= TG_ASSEMBLE_LEAST && tg_piece_joins(call->g, piece)) {
        grad_keep(call, id, piece);
        return;
    }
    const int32_t made = tg_piece_make(call->g, piece);
    tg_vjp_give(call, id, made == 0 ? 0 : tg_ir_reshape(call->g, made, tg_graph_node(call->g, id)->shape));
}

void tg_vjp_give_product(tg_vjp_call *call, int32_t id, int32_t left, int32_t right) {
    if (left == 0 || right == 0) call->failed = true;
    else grad_give_rows(call, id, &(tg_piece){.kind = TG_PIECE_PRODUCT, .x = left, .y = right});
}

void tg_vjp_give_sum(tg_vjp_call *call, int32_t id, int32_t x, uint32_t axes) {
    grad_give_rows(call, id, &(tg_piece){.kind = TG_PIECE_SUM, .x = x, .axes = axes});
}

/* Makes what waits for the node's turn. Products and sums of a reshaped tensor go on to the tensor
 * itself, where those of its other reshapes meet them. */
static void grad_settle(tg_vjp_call *call, int32_t id) {
    tg_graph *g = call->g;
    if (call->pieces.last[id] == 0) return;
    if (call->cotangents[id] == 0 && grad_under_reshapes(call, id) != id &&
        tg_pieces_move(&call->pieces, id, tg_graph_node(g, id)->inputs[0]))
        return;
    g->current_site = tg_graph_node(g, id)->site;
    tg_vjp_give(call, id, tg_pieces_make(g, &call->pieces, id, tg_graph_node(g, id)->shape));
}

static tg_status grad_check(tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n) {
    char text[TG_SHAPE_TEXT + 128], other[TG_SHAPE_TEXT];
    const tg_node *node = tg_graph_node(g, y);
    if (node->dtype != TG_F32)
        return tg_fail(g->ctx, TG_ERROR_GRADIENT, g->current_site, "gradient: %s is not f32, so it has no gradient",
                       tg_node_text(g, y, text, sizeof text));
    if (cotangent != 0) {
        const tg_node *given = tg_graph_node(g, cotangent);
        if (given->dtype != TG_F32)
            return tg_fail(g->ctx, TG_ERROR_DTYPE, g->current_site, "gradient: the cotangent %s must be f32",
                           tg_node_text(g, cotangent, text, sizeof text));
        if (!tg_shape_equal(given->shape, node->shape))
            return tg_fail(g->ctx, TG_ERROR_SHAPE, g->current_site, "gradient: the cotangent %s must have the shape %s",
                           tg_node_text(g, cotangent, text, sizeof text), tg_shape_text(node->shape, other, sizeof other));
    }
    for (int i = 0; i < n; i++)
        if (tg_graph_node(g, wrt[i])->dtype != TG_F32)
            return tg_fail(g->ctx, TG_ERROR_GRADIENT, g->current_site,
                           "gradient: %s is not f32, so nothing can be differentiated with respect to it",
                           tg_node_text(g, wrt[i], text, sizeof text));
    return TG_OK;
}

static bool grad_ids_valid(const tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n) {
    if (y <= 0 || y >= g->nodes.count || cotangent < 0 || cotangent >= g->nodes.count) return false;
    for (int i = 0; i < n; i++)
        if (wrt[i] <= 0 || wrt[i] >= g->nodes.count) return false;
    return true;
}

/* Sets marks[id] to nonzero if a change of some wrt moves node id through operations that have a
 * gradient. */
static void grad_mark(const tg_graph *g, int32_t y, const int32_t *wrt, int n, uint8_t *marks) {
    for (int i = 0; i < n; i++)
        if (wrt[i] <= y) marks[wrt[i]] = TG_VJP_REACHED | TG_VJP_WANTED;
    for (int32_t id = 1; id <= y; id++) {
        const tg_node *node = tg_graph_node(g, id);
        if (node->dtype != TG_F32 || grad_rules[node->op] == NULL || grad_rules[node->op]->apply == NULL) continue;
        for (int32_t i = 0; i < node->input_count; i++)
            if (marks[node->inputs[i]] != 0) marks[id] |= TG_VJP_REACHED;
    }
}

/* uses[id]: how many marked nodes take node id, or a reshape of it. */
static void grad_count_uses(const tg_graph *g, int32_t y, const uint8_t *marks, int32_t *uses) {
    for (int32_t id = y; id > 0; id--) {
        const tg_node *node = tg_graph_node(g, id);
        const int32_t times = node->op == TG_OP_RESHAPE && !(marks[id] & TG_VJP_WANTED) ? uses[id] : 1;
        for (int32_t i = 0; marks[id] != 0 && i < node->input_count; i++) {
            int32_t *of = &uses[node->inputs[i]];
            *of = *of > INT32_MAX - times ? INT32_MAX : *of + times;
        }
    }
}

/* Walks from y back to the first marked node. Cost: one rule for each marked node that y depends
 * on. */
static bool grad_walk(tg_vjp_call *call, int32_t y) {
    for (int32_t id = y; id > 0 && !call->failed; id--) {
        if (call->marks[id] == 0) continue;
        grad_settle(call, id);
        if (call->cotangents[id] == 0) continue;
        call->node = *tg_graph_node(call->g, id);
        call->y = id;
        call->dy = call->cotangents[id];
        call->g->current_site = call->node.site;
        const tg_vjp_rule *rule = grad_rules[call->node.op];
        bool any = false;
        for (int32_t i = 0; i < call->node.input_count; i++) any = any || tg_vjp_needs(call, i);
        if (any && rule != NULL && rule->apply != NULL && call->node.dtype == TG_F32) rule->apply(call);
    }
    return !call->failed;
}

static tg_status grad_collect(tg_vjp_call *call, int32_t y, const int32_t *wrt, int n, int32_t *out) {
    tg_graph *g = call->g;
    for (int i = 0; i < n; i++) {
        int32_t id = wrt[i] <= y ? call->cotangents[wrt[i]] : 0;
        if (id == 0) id = tg_ir_const(g, tg_graph_node(g, wrt[i])->shape, TG_F32, 0.0);
        if (id == 0) return g->ctx->status;
        out[i] = id;
    }
    return TG_OK;
}

static tg_status grad_run(tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n, int32_t *out, uint8_t *marks,
                          int32_t *tables) {
    const size_t count = (size_t)y + 1;
    tg_vjp_call call;
    memset(&call, 0, sizeof call);
    call.g = g;
    call.marks = marks;
    call.cotangents = tables;
    call.uses = tables + count;
    call.pieces.last = tables + 2 * count;
    grad_mark(g, y, wrt, n, marks);
    grad_count_uses(g, y, marks, tables + count);
    if (marks[y] != 0) {
        if (cotangent == 0) cotangent = tg_ir_const(g, tg_graph_node(g, y)->shape, TG_F32, 1.0);
        tg_vjp_give(&call, y, cotangent);
    }
    const bool walked = !call.failed && grad_walk(&call, y);
    tg_release(g->ctx, call.pieces.list.items, sizeof(tg_piece) * (size_t)call.pieces.list.capacity);
    if (!walked) return g->ctx->status != TG_OK ? g->ctx->status : TG_INTERNAL(g->ctx, "gradient rule");
    return grad_collect(&call, y, wrt, n, out);
}

tg_status tg_grad_append(tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n, int32_t *out) {
    tg_context *ctx = g->ctx;
    if (!grad_ids_valid(g, y, cotangent, wrt, n))
        return ctx->status != TG_OK ? ctx->status : TG_INTERNAL(ctx, "gradient of a poison tensor");
    tg_status status = grad_check(g, y, cotangent, wrt, n);
    if (status != TG_OK) return status;
    size_t count = (size_t)y + 1;
    uint8_t *marks = tg_alloc(ctx, count);
    int32_t *tables = tg_alloc(ctx, 3 * count * sizeof(int32_t));
    tg_site site = g->current_site;
    if (marks != NULL && tables != NULL) status = grad_run(g, y, cotangent, wrt, n, out, marks, tables);
    else status = TG_ERROR_MEMORY;
    g->current_site = site;
    if (marks != NULL) tg_release(ctx, marks, count);
    if (tables != NULL) tg_release(ctx, tables, 3 * count * sizeof(int32_t));
    return status;
}
