/* pass: one walk over the live nodes of a graph, which rebuilds it in normal form, then the removal
 * of nodes that became dead. The old graph stays as it is until everything has been made. Cost:
 * near-linear in nodes. Must not know what its result is compiled to. */
#include "pass/pass.h"
#include "pass/rewrite.h"

#include <string.h>

/* ---------------------------------------------------------------- making nodes in normal form */

/* An index along one axis is the same along all others: a small IOTA, repeated. */
static int32_t pass_iota(tg_rewrite *r, const tg_node *draft) {
    tg_node small = *draft;
    const int32_t axis = draft->attr.axis;
    if (draft->shape.dim[axis] == 1) return tg_pass_const(r, draft->shape, draft->dtype, 0.0);
    for (int32_t i = 0; i < draft->shape.rank; i++)
        if (i != axis) small.shape.dim[i] = 1;
    if (tg_shape_equal(small.shape, draft->shape)) return 0;
    small.name = NULL;
    return tg_pass_broadcast(r, tg_rewrite_intern(r, &small), draft->shape);
}

/* Literal data of one element becomes a number. */
static int32_t pass_literal(tg_rewrite *r, const tg_node *draft) {
    if (draft->attr.data == NULL || tg_shape_count(draft->shape) != 1) return 0;
    return tg_pass_const(r, draft->shape, draft->dtype, tg_dtype_get(draft->dtype, draft->attr.data, 0));
}

static int32_t pass_apply(tg_rewrite *r, const tg_node *draft) {
    int32_t id = 0;
    if (tg_op_is_elementwise(draft->op)) {
        id = tg_pass_constant(r, draft);
        if (id == 0 && !r->failed) id = tg_pass_algebra(r, draft);
        if (id == 0 && !r->failed) id = tg_pass_lift(r, draft);
        return id;
    }
    switch (tg_op_table[draft->op].class_) {
    case TG_CLASS_VIEW: return tg_pass_view(r, draft);
    case TG_CLASS_REDUCE: return tg_pass_reduction(r, draft);
    case TG_CLASS_JOIN: return tg_pass_join(r, draft);
    default: break;
    }
    if (draft->op == TG_OP_IOTA) return pass_iota(r, draft);
    return draft->op == TG_OP_CONST ? pass_literal(r, draft) : 0;
}

int32_t tg_pass_make(tg_rewrite *r, const tg_node *draft) {
    for (int32_t i = 0; i < draft->input_count; i++)
        if (draft->inputs[i] == 0) r->failed = true;
    if (r->failed) return 0;
    int32_t id = pass_apply(r, draft);
    if (r->failed) return 0;
    return id != 0 ? id : tg_rewrite_intern(r, draft);
}

bool tg_pass_splat(const tg_rewrite *r, int32_t id, double *value) {
    const tg_node *node = tg_rewrite_node(r, id);
    if (node->op != TG_OP_CONST || node->attr.data != NULL) return false;
    *value = tg_pass_round(node->dtype, node->attr.value);
    return true;
}

static tg_node pass_draft(tg_op op, tg_dtype dtype, tg_shape shape, const int32_t *inputs, int32_t count) {
    tg_node draft;
    memset(&draft, 0, sizeof draft);
    draft.op = op;
    draft.dtype = dtype;
    draft.shape = shape;
    draft.inputs = inputs;
    draft.input_count = count;
    return draft;
}

int32_t tg_pass_const(tg_rewrite *r, tg_shape shape, tg_dtype dtype, double value) {
    tg_node draft = pass_draft(TG_OP_CONST, dtype, shape, NULL, 0);
    draft.attr.value = value;
    return tg_rewrite_intern(r, &draft);
}

int32_t tg_pass_unary(tg_rewrite *r, tg_op op, int32_t x) {
    tg_node draft = pass_draft(op, tg_rewrite_node(r, x)->dtype, tg_rewrite_node(r, x)->shape, &x, 1);
    return tg_pass_make(r, &draft);
}

int32_t tg_pass_binary(tg_rewrite *r, tg_op op, tg_dtype dtype, int32_t a, int32_t b) {
    const int32_t inputs[2] = {a, b};
    tg_node draft = pass_draft(op, dtype, tg_rewrite_node(r, a)->shape, inputs, 2);
    return tg_pass_make(r, &draft);
}

int32_t tg_pass_select(tg_rewrite *r, int32_t condition, int32_t a, int32_t b) {
    const int32_t inputs[3] = {condition, a, b};
    tg_node draft = pass_draft(TG_OP_SELECT, tg_rewrite_node(r, a)->dtype, tg_rewrite_node(r, a)->shape, inputs, 3);
    return tg_pass_make(r, &draft);
}

/* A view of x, or x itself if the shape stays and `same` says that no element moves then. */
static int32_t pass_view_of(tg_rewrite *r, tg_op op, int32_t x, tg_shape shape, const tg_attributes *attr, bool same) {
    if (x == 0) return 0;
    if (same && tg_shape_equal(tg_rewrite_node(r, x)->shape, shape)) return x;
    tg_node draft = pass_draft(op, tg_rewrite_node(r, x)->dtype, shape, &x, 1);
    if (attr != NULL) draft.attr = *attr;
    return tg_pass_make(r, &draft);
}

int32_t tg_pass_reshape(tg_rewrite *r, int32_t x, tg_shape shape) { return pass_view_of(r, TG_OP_RESHAPE, x, shape, NULL, true); }

int32_t tg_pass_broadcast(tg_rewrite *r, int32_t x, tg_shape shape) { return pass_view_of(r, TG_OP_BROADCAST, x, shape, NULL, true); }

int32_t tg_pass_box(tg_rewrite *r, tg_op op, int32_t x, const int64_t *start, tg_shape shape) {
    tg_attributes attr;
    memset(&attr, 0, sizeof attr);
    for (int32_t i = 0; i < shape.rank; i++) attr.start[i] = start[i];
    return pass_view_of(r, op, x, shape, &attr, true); /* a box of the same shape starts at 0 */
}

int32_t tg_pass_permute(tg_rewrite *r, int32_t x, const int32_t *perm) {
    tg_attributes attr;
    tg_shape from = tg_rewrite_node(r, x)->shape, shape = from;
    bool identity = true;
    memset(&attr, 0, sizeof attr);
    for (int32_t i = 0; i < from.rank; i++) {
        attr.perm[i] = perm[i];
        shape.dim[i] = from.dim[perm[i]];
        identity = identity && perm[i] == i;
    }
    return pass_view_of(r, TG_OP_PERMUTE, x, shape, &attr, identity);
}

int32_t tg_pass_masked(tg_rewrite *r, tg_op op, int32_t x, uint32_t axes, tg_shape shape) {
    tg_attributes attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = axes;
    return pass_view_of(r, op, x, shape, &attr, axes == 0);
}

/* ---------------------------------------------------------------- the walk */

typedef struct pass_call {
    tg_graph *g;
    bool keep_captures;
    uint8_t *alive; /* for each old node */
    int32_t *moved; /* old id -> new id */
    /* New id -> id after dead nodes are removed. Before that: 1 where the node is alive. */
    int32_t *kept;
    int64_t kept_count;
    tg_rewrite rewrite;
} pass_call;

static bool pass_is_table_leaf(tg_op op) { return op == TG_OP_INPUT || op == TG_OP_PARAM || op == TG_OP_STATE; }

/* Marks the old nodes that something observable depends on. Leaves with a table entry always
 * stay. */
static void pass_mark(pass_call *c) {
    tg_graph *g = c->g;
    c->alive[g->result] = 1;
    for (int64_t i = 0; c->keep_captures && i < g->captures.count; i++) c->alive[g->captures.items[i].node] = 1;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        c->alive[g->writebacks.items[i].source] = 1;
        c->alive[g->writebacks.items[i].destination] = 1;
    }
    for (int64_t i = 0; i < g->checks.count; i++) c->alive[g->checks.items[i].node] = 1;
    for (int64_t id = g->nodes.count - 1; id > 0; id--) {
        const tg_node *node = &g->nodes.items[id];
        if (pass_is_table_leaf(node->op)) c->alive[id] = 1;
        for (int32_t i = 0; c->alive[id] && i < node->input_count; i++) c->alive[node->inputs[i]] = 1;
    }
}

static bool pass_rewrite_one(pass_call *c, int32_t id) {
    const tg_node *old = &c->g->nodes.items[id];
    int32_t few[4] = {0, 0, 0, 0}, *inputs = few;
    tg_node draft = *old;
    if (old->input_count > 4) inputs = TG_NEW(&c->g->arena, int32_t, old->input_count);
    if (inputs == NULL) return false;
    for (int32_t i = 0; i < old->input_count; i++) inputs[i] = c->moved[old->inputs[i]];
    draft.inputs = inputs;
    c->rewrite.site = old->site;
    int32_t made = tg_pass_make(&c->rewrite, &draft);
    if (made == 0) return false;
    tg_node *node = &c->rewrite.nodes.items[made];
    if (node->name == NULL) node->name = old->name;
    c->moved[id] = made;
    return true;
}

static bool pass_walk(pass_call *c) {
    for (int32_t id = 1; id < c->g->nodes.count; id++)
        if (c->alive[id] && !pass_rewrite_one(c, id)) return false;
    return true;
}

/* ---------------------------------------------------------------- removing dead nodes */

static void pass_mark_new(pass_call *c) {
    tg_graph *g = c->g;
    const tg_node *nodes = c->rewrite.nodes.items;
    c->kept[c->moved[g->result]] = 1;
    for (int64_t i = 0; c->keep_captures && i < g->captures.count; i++) c->kept[c->moved[g->captures.items[i].node]] = 1;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        c->kept[c->moved[g->writebacks.items[i].source]] = 1;
        c->kept[c->moved[g->writebacks.items[i].destination]] = 1;
    }
    for (int64_t i = 0; i < g->checks.count; i++) c->kept[c->moved[g->checks.items[i].node]] = 1;
    for (int64_t id = c->rewrite.nodes.count - 1; id > 0; id--) {
        if (pass_is_table_leaf(nodes[id].op)) c->kept[id] = 1;
        for (int32_t i = 0; c->kept[id] && i < nodes[id].input_count; i++) c->kept[nodes[id].inputs[i]] = 1;
    }
}

/* Closes the gaps. The input lists of the new nodes were copied for them alone, so they may be
 * written. */
static void pass_remove_dead(pass_call *c) {
    tg_node *nodes = c->rewrite.nodes.items;
    int32_t count = 1;
    c->kept[0] = 0;
    for (int64_t id = 1; id < c->rewrite.nodes.count; id++) {
        if (c->kept[id] == 0) continue;
        int32_t *inputs = (int32_t *)nodes[id].inputs;
        for (int32_t i = 0; i < nodes[id].input_count; i++) inputs[i] = c->kept[inputs[i]];
        c->kept[id] = count;
        nodes[count++] = nodes[id];
    }
    c->rewrite.nodes.count = count;
}

/* ---------------------------------------------------------------- committing
 * Nothing can fail here. */

static int32_t pass_moved(const pass_call *c, int32_t old) { return c->kept[c->moved[old]]; }

static void pass_commit(pass_call *c) {
    tg_graph *g = c->g;
    tg_node *nodes = g->nodes.items;
    int64_t capacity = g->nodes.capacity;
    g->nodes.items = c->rewrite.nodes.items;
    g->nodes.count = c->rewrite.nodes.count;
    g->nodes.capacity = c->rewrite.nodes.capacity;
    c->rewrite.nodes.items = nodes;
    c->rewrite.nodes.capacity = capacity;
    if (!c->keep_captures) g->captures.count = 0;
    g->result = pass_moved(c, g->result);
    for (int64_t i = 0; i < g->inputs.count; i++) g->inputs.items[i].node = pass_moved(c, g->inputs.items[i].node);
    for (int64_t i = 0; i < g->params.count; i++) g->params.items[i].node = pass_moved(c, g->params.items[i].node);
    for (int64_t i = 0; i < g->states.count; i++) g->states.items[i].node = pass_moved(c, g->states.items[i].node);
    for (int64_t i = 0; i < g->captures.count; i++) g->captures.items[i].node = pass_moved(c, g->captures.items[i].node);
    for (int64_t i = 0; i < g->checks.count; i++) g->checks.items[i].node = pass_moved(c, g->checks.items[i].node);
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        g->writebacks.items[i].destination = pass_moved(c, g->writebacks.items[i].destination);
        g->writebacks.items[i].source = pass_moved(c, g->writebacks.items[i].source);
    }
}

static bool pass_rebuild(pass_call *c) {
    if (tg_rewrite_begin(&c->rewrite, c->g) != TG_OK) return false;
    pass_mark(c);
    if (!pass_walk(c)) return false;
    c->kept_count = c->rewrite.nodes.count;
    c->kept = tg_alloc(c->g->ctx, sizeof(int32_t) * (size_t)c->kept_count);
    if (c->kept == NULL) return false;
    pass_mark_new(c);
    pass_remove_dead(c);
    pass_commit(c);
    return true;
}

tg_status tg_pass_run(tg_graph *g, bool keep_captures) {
    pass_call c;
    tg_context *ctx = g->ctx;
    size_t count = (size_t)g->nodes.count;
    memset(&c, 0, sizeof c);
    c.g = g;
    c.rewrite.g = g;
    c.keep_captures = keep_captures;
    c.alive = tg_alloc(ctx, count);
    c.moved = tg_alloc(ctx, count * sizeof(int32_t));
    bool done = c.alive != NULL && c.moved != NULL && pass_rebuild(&c);
    if (c.alive != NULL) tg_release(ctx, c.alive, count);
    if (c.moved != NULL) tg_release(ctx, c.moved, count * sizeof(int32_t));
    if (c.kept != NULL) tg_release(ctx, c.kept, sizeof(int32_t) * (size_t)c.kept_count);
    tg_rewrite_end(&c.rewrite);
    if (done) return TG_OK;
    return ctx->status != TG_OK ? ctx->status : TG_INTERNAL(ctx, "a graph could not be rebuilt");
}
