/* fuse: see fuse.h. Three steps: decide what is stored, build one kernel for each stored value, then join kernels while the
 * joint kernel can be built. Every decision is checked by building, so a rule that is too bold costs a refused join, never a
 * wrong kernel. The numbers are in cost.h. */
#include "kernel/fuse.h"

#include "kernel/cost.h"

#include <string.h>

static const tg_node *fuse_node(const tg_fusion *f, int32_t id) { return &f->graph->nodes.items[id]; }
static tg_op_class fuse_class(const tg_fusion *f, int32_t id) { return tg_op_table[fuse_node(f, id)->op].class_; }

static bool leaf_storage(const tg_node *n) {
    return n->op == TG_OP_INPUT || n->op == TG_OP_STATE || (n->op == TG_OP_CONST && n->attr.data != NULL);
}

bool tg_has_storage(const tg_fusion *f, int32_t node) {
    return f->item_of[node] >= 0 || f->pack_state[node] >= 0 || leaf_storage(fuse_node(f, node));
}

int32_t tg_strip_reshape(const tg_graph *g, int32_t node) {
    while (g->nodes.items[node].op == TG_OP_RESHAPE) node = g->nodes.items[node].inputs[0];
    return node;
}

/* ---- what is alive */

static void spread_live(tg_fusion *f) {
    for (int32_t id = f->node_count - 1; id > 0; id--)
        if (f->live[id])
            for (int32_t i = 0; i < fuse_node(f, id)->input_count; i++) f->live[fuse_node(f, id)->inputs[i]] = true;
}

/* users[id]: live nodes that take id; only_user: the last of them. */
static void count_users(const tg_fusion *f, int32_t *users, int32_t *only_user) {
    for (int32_t id = 1; id < f->node_count; id++) {
        if (!f->live[id]) continue;
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; i < n->input_count; i++) {
            users[n->inputs[i]]++;
            only_user[n->inputs[i]] = id;
        }
    }
}

/* ---- what is stored */

static void realise(tg_fusion *f, int32_t node) {
    if (node > 0 && !leaf_storage(fuse_node(f, node)) && f->pack_state[node] < 0) f->realised[node] = true;
}

/* An operand that must be read from memory through views: its base is stored. */
static void realise_base(tg_fusion *f, int32_t node) {
    while (fuse_class(f, node) == TG_CLASS_VIEW && !f->realised[node]) node = fuse_node(f, node)->inputs[0];
    realise(f, node);
}

/* The end of the elementwise chain that a contraction's only users form: what its epilogue stores. */
static int32_t chain_end(const tg_fusion *f, int32_t node, const int32_t *users, const int32_t *only_user) {
    int32_t end = node, at = node;
    int64_t count = tg_shape_count(fuse_node(f, node)->shape);
    while (users[at] == 1 && !f->realised[at]) {
        int32_t next = only_user[at];
        const tg_node *n = fuse_node(f, next);
        if (n->op == TG_OP_RESHAPE) {
            at = next;
            continue;
        }
        if (!tg_op_is_elementwise(n->op) || tg_shape_count(n->shape) != count) break;
        at = end = next;
    }
    return end;
}

/* The last axis that is longer than 1, or -1. */
static int last_long_axis(tg_shape shape) {
    int d = shape.rank - 1;
    while (d >= 0 && shape.dim[d] == 1) d--;
    return d;
}

/* Do users of `node`, all of them reshapes, join its last axis with those before: are pieces of rows whole rows there? */
static bool is_joined_by_users(const tg_fusion *f, int32_t node) {
    const int last = last_long_axis(fuse_node(f, node)->shape);
    bool joined = false;
    for (int32_t id = node + 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; f->live[id] && i < n->input_count; i++) {
            if (n->inputs[i] != node) continue;
            if (n->op != TG_OP_RESHAPE) return false;
            const int d = last_long_axis(n->shape);
            joined = joined || n->shape.dim[d] > fuse_node(f, node)->shape.dim[last];
        }
    }
    return joined;
}

/* What the contraction stores if not `end`, the end of its chain: a permutation of it, its only user, that puts pieces of rows
 * beside each other which its users take for whole ones (the heads of attention, back in their tokens' rows). Stored so, it is
 * written once in pieces and read by all as plain rows. The permutation's last axis must be the last one of the result or of its
 * rows, so that pieces are contiguous. 0: there is none. */
static int32_t joined_permutation(const tg_fusion *f, int32_t contraction, int32_t end, const int32_t *users, const int32_t *only_user) {
    int32_t at = end;
    while (users[at] == 1 && fuse_node(f, only_user[at])->op == TG_OP_RESHAPE) at = only_user[at];
    if (users[at] != 1 || fuse_node(f, only_user[at])->op != TG_OP_PERMUTE) return 0;
    const int32_t permuted = only_user[at];
    const tg_node *n = fuse_node(f, permuted);
    const int last = last_long_axis(n->shape);
    if (last < 0 || f->realised[permuted] || f->pack_state[permuted] >= 0) return 0;
    int64_t behind = 1;
    for (int d = n->attr.perm[last] + 1; d < n->shape.rank; d++) behind *= fuse_node(f, at)->shape.dim[d];
    if (behind != 1 && behind != fuse_node(f, contraction)->shape.dim[2]) return 0;
    return is_joined_by_users(f, permuted) ? permuted : 0;
}

static int operation_cost(tg_op op) {
    switch (op) {
    case TG_OP_EXP:
    case TG_OP_LOG:
    case TG_OP_SIN:
    case TG_OP_COS:
    case TG_OP_TANH:
    case TG_OP_ERF:
    case TG_OP_SIGMOID:
    case TG_OP_SOFTPLUS:
    case TG_OP_EXPM1:
    case TG_OP_LOG1P:
    case TG_OP_POW: return TG_COST_TRANSCENDENTAL;
    case TG_OP_DIV:
    case TG_OP_SQRT:
    case TG_OP_RSQRT:
    case TG_OP_RECIPROCAL: return TG_COST_DIVIDE;
    case TG_OP_GATHER: return TG_COST_GATHER;
    case TG_OP_RANDOM: return TG_COST_RANDOM;
    default: return TG_COST_CHEAP;
    }
}

/* Cost of computing one element from what is stored; counts a shared subexpression once per user, capped. */
static void recompute_costs(const tg_fusion *f, int32_t *cost) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (leaf_storage(n) || f->realised[id]) cost[id] = TG_COST_CHEAP;
        else if (tg_op_table[n->op].class_ == TG_CLASS_LEAF) cost[id] = 0;
        else {
            int32_t sum = tg_op_table[n->op].class_ == TG_CLASS_VIEW ? 0 : operation_cost(n->op);
            for (int32_t i = 0; i < n->input_count && sum < 1000; i++) sum += cost[n->inputs[i]];
            if (n->op == TG_OP_FOLD) sum = n->attr.window.size * sum < 1000 ? (int32_t)n->attr.window.size * sum : 1000;
            cost[id] = sum;
        }
    }
}

static bool is_recomputed(const tg_fusion *f, int32_t id) {
    const tg_node *n = fuse_node(f, id);
    return f->live[id] && !f->realised[id] && !leaf_storage(n) && f->pack_state[id] < 0 &&
           (tg_op_is_elementwise(n->op) || n->op == TG_OP_GATHER || n->op == TG_OP_CONCAT || n->op == TG_OP_PACK || n->op == TG_OP_FOLD);
}

/* Stores values that several stored values would each recompute at a cost. A node's `roots` is one root that reaches it, or
 * `several`. Nodes are visited users first, so each node's own users are settled. */
static void store_shared(tg_fusion *f, int32_t *cost, int32_t *roots) {
    const int32_t several = -1;
    memset(roots, 0, sizeof(int32_t) * (size_t)f->node_count);
    for (int32_t id = f->node_count - 1; id > 0; id--) {
        if (!f->live[id]) continue;
        if (is_recomputed(f, id) && roots[id] == several && cost[id] > TG_COST_STORE) realise(f, id);
        int32_t root = f->realised[id] ? id : roots[id];
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; i < n->input_count; i++) {
            int32_t *r = &roots[n->inputs[i]];
            *r = *r == 0 || *r == root ? root : several;
        }
    }
}

static int32_t behind_views(const tg_fusion *f, int32_t node) {
    while (tg_op_table[fuse_node(f, node)->op].class_ == TG_CLASS_VIEW) node = fuse_node(f, node)->inputs[0];
    return node;
}

/* A tensor compared with itself at other places (who stands before whom?) must be the same bits at both: it is stored, for the reason
 * below. */
static void store_compared_places(tg_fusion *f) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (f->live[id] && n->op == TG_OP_LESS && behind_views(f, n->inputs[0]) == behind_views(f, n->inputs[1]))
            realise_base(f, n->inputs[0]);
    }
}

/* The gradient of an extremum goes where x equals max(x): the very bits that the reduction saw, so x is stored. Computed a
 * second time elsewhere, with other roundings (a b + c in one go or in two), no element might be equal. */
static void store_compared_extrema(tg_fusion *f) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (!f->live[id] || n->op != TG_OP_EQUAL) continue;
        for (int side = 0; side < 2; side++) {
            const tg_node *extremum = fuse_node(f, behind_views(f, n->inputs[side]));
            if (extremum->op != TG_OP_REDUCE_MAX && extremum->op != TG_OP_REDUCE_MIN) continue;
            realise_base(f, extremum->inputs[0]);
            realise_base(f, n->inputs[1 - side]);
        }
    }
}

static void decide_stored(tg_fusion *f, int32_t *users, int32_t *only_user, int32_t *cost) {
    for (int32_t id = 1; id < f->node_count; id++) {
        if (!f->live[id]) continue;
        const tg_node *n = fuse_node(f, id);
        switch (tg_op_table[n->op].class_) {
        case TG_CLASS_REDUCE: realise(f, id); break;
        case TG_CLASS_CONTRACT:
            realise(f, id);
            realise_base(f, n->inputs[0]);
            realise_base(f, n->inputs[1]);
            break;
        case TG_CLASS_INDEX:
            if (n->op == TG_OP_SCATTER_ADD) realise(f, id);
            else realise_base(f, n->inputs[0]);
            break;
        case TG_CLASS_LEAF:
        case TG_CLASS_VIEW: break;
        default:
            if (f->no_fusion) realise(f, id);
        }
        if (f->no_fusion && n->op == TG_OP_GATHER) realise(f, id);
    }
    if (f->no_fusion) return;
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->live[id] && fuse_node(f, id)->op == TG_OP_CONTRACT) {
            f->realised[id] = false;
            int32_t end = chain_end(f, id, users, only_user), permuted = joined_permutation(f, id, end, users, only_user);
            if (permuted > 0) f->realised[end] = false; /* who wanted it in memory reads it there */
            f->realised[id] = true;
            realise(f, permuted > 0 ? permuted : end);
        }
    store_compared_extrema(f);
    store_compared_places(f);
    recompute_costs(f, cost);
    store_shared(f, cost, only_user);
}

/* ---- items, groups, domains */

static int32_t add_item(tg_fusion *f, int32_t node, bool copy) {
    if (!tg_grow(f->ctx, (void **)&f->items.items, &f->items.capacity, f->items.count + 1, sizeof(tg_item))) return -1;
    tg_item *item = &f->items.items[f->items.count];
    *item = (tg_item){.node = node, .group = -1, .copy = copy, .pinned = copy, .state = -1};
    if (!copy) f->item_of[node] = (int32_t)f->items.count;
    return (int32_t)f->items.count++;
}

/* Are the reduced axes the last ones, axes of length 1 aside? */
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
static bool join_domains(const tg_fusion *f, const tg_domain *a, const tg_domain *b, tg_domain *out) {
    if (a->kind == TG_KERNEL_MAP && b->kind != TG_KERNEL_MAP) {
        const tg_domain *swap = a;
        a = b;
        b = swap;
    }
    *out = *a;
    if (a->kind == TG_KERNEL_SCATTER_ADD || b->kind == TG_KERNEL_SCATTER_ADD) return false;
    if (a->kind == TG_KERNEL_REDUCE && b->kind == TG_KERNEL_REDUCE) return join_reduce_domains(f, a, b);
    if (b->kind != TG_KERNEL_MAP) return false;
    if (a->kind == TG_KERNEL_REDUCE) return b->elements == a->rows || (b->elements == a->elements && a->trailing && !few_long_rows(a));
    return a->elements == b->elements;
}

static int32_t add_group(tg_fusion *f, int32_t item) {
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

static bool can_be_primary(const tg_fusion *f, int32_t node) { return !leaf_storage(fuse_node(f, node)) && f->pack_state[node] < 0; }

static bool send_to_state(tg_fusion *f, int32_t node, int32_t state, int64_t offset) {
    int32_t item = -1;
    if (can_be_primary(f, node)) {
        if (f->item_of[node] < 0 && add_item(f, node, false) < 0) return false;
        if (f->items.items[f->item_of[node]].state < 0) item = f->item_of[node];
    }
    if (item < 0) item = add_item(f, node, true);
    if (item < 0) return false;
    f->items.items[item].state = state;
    f->items.items[item].state_offset = offset;
    f->items.items[item].pinned = true;
    return true;
}

static int32_t writeback_state(const tg_fusion *f, const tg_writeback_info *w) { return fuse_node(f, w->destination)->attr.index; }

static bool send_writebacks(tg_fusion *f) {
    tg_graph *g = f->graph;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_writeback_info *w = &g->writebacks.items[i];
        int32_t source = tg_strip_reshape(g, w->source), state = writeback_state(f, w);
        const tg_node *n = fuse_node(f, source);
        if (n->op != TG_OP_PACK) {
            if (!send_to_state(f, source, state, 0)) return false;
            continue;
        }
        /* part by part into every state it is written to: what lies between the parts stays as it is */
        for (int32_t p = 0; p < n->input_count; p++)
            if (!send_to_state(f, tg_strip_reshape(g, n->inputs[p]), state, n->attr.offsets[p])) return false;
    }
    return true;
}

static void realise_writebacks(tg_fusion *f) {
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) {
        int32_t source = tg_strip_reshape(f->graph, f->graph->writebacks.items[i].source);
        const tg_node *n = fuse_node(f, source);
        realise(f, source);
        for (int32_t p = 0; p < n->input_count && f->pack_state[source] >= 0; p++) realise(f, tg_strip_reshape(f->graph, n->inputs[p]));
    }
}

/* ---- building everything */

static int32_t primary_loads(const tg_kernel *k, int32_t node) {
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].buffer == node) return 1;
    return 0;
}

static void count_loads(tg_fusion *f, const tg_kernel *k, int32_t by) {
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].buffer >= 0) f->load_count[k->arguments[i].buffer] += by;
}

/* Distinct stored values below `id`, up to `limit` + 1. */
static int distinct_loads(const tg_fusion *f, int32_t id, int32_t *found, int count, int limit, int depth) {
    const tg_node *n = fuse_node(f, id);
    for (int32_t i = 0; i < n->input_count && count <= limit; i++) {
        int32_t x = n->inputs[i];
        if (!tg_has_storage(f, x)) {
            if (depth > 0) count = distinct_loads(f, x, found, count, limit, depth - 1);
            continue;
        }
        bool known = false;
        for (int j = 0; j < count; j++) known = known || found[j] == x;
        if (!known && count <= limit) found[count++] = x;
    }
    return count;
}

static void collect_inlined(const tg_fusion *f, int32_t root, bool *seen) {
    memset(seen, 0, (size_t)f->node_count);
    seen[root] = true;
    for (int32_t id = root; id > 0; id--) {
        if (!seen[id] || (id != root && tg_has_storage(f, id))) continue;
        for (int32_t i = 0; i < fuse_node(f, id)->input_count; i++) seen[fuse_node(f, id)->inputs[i]] = true;
    }
}

/* Which inlined value to store so that a too large kernel for `root` shrinks: the one that reads the most buffers without
 * itself being too wide, or, when the body is what is too long, the middle one. 0: nothing left to store. */
static int32_t choose_cut(const tg_fusion *f, int32_t root, bool *seen) {
    enum { WIDEST = 64 };
    int32_t found[WIDEST + 2];
    int limit = f->limits.max_arguments - 2 < WIDEST ? f->limits.max_arguments - 2 : WIDEST;
    collect_inlined(f, root, seen);
    int total = 0, nodes = 0, best_loads = 1;
    int32_t best = 0;
    total = distinct_loads(f, root, found, 0, WIDEST, 64);
    for (int32_t id = 1; id < root; id++) {
        if (!seen[id] || !is_recomputed(f, id)) continue;
        nodes++;
        if (total <= limit || nodes > 4 * TG_MAX_BODY) continue;
        int loads = distinct_loads(f, id, found, 0, limit, 64);
        if (loads <= limit && loads > best_loads) {
            best = id;
            best_loads = loads;
        }
    }
    if (best || nodes == 0) return best;
    int at = 0;
    for (int32_t id = 1; id < root; id++)
        if (seen[id] && is_recomputed(f, id) && at++ >= nodes / 2) return id;
    return 0;
}

static tg_status fuse_fault(tg_fusion *f, int32_t node, const char *what) {
    const tg_node *n = fuse_node(f, node);
    return tg_fail(f->ctx, TG_ERROR_INTERNAL, n->site, "no kernel can be made for %s (node %d): %s", tg_op_table[n->op].name, (int)node,
                   what);
}

/* Every item by itself. *again: something more was marked as stored. */
static tg_status build_each(tg_fusion *f, bool *again, bool *seen) {
    for (int64_t i = 0; i < f->groups.count; i++) {
        tg_group *group = &f->groups.items[i];
        const bool stored = true;
        int32_t culprit = 0, node = f->items.items[group->items.items[0]].node;
        switch (tg_build_kernel(f, group->items.items, 1, &stored, &group->domain, &group->kernel, &culprit)) {
        case TG_BUILD_OK: break;
        case TG_BUILD_STORE:
            if (culprit == 0 || f->item_of[culprit] >= 0) return fuse_fault(f, node, "an operand is no affine view");
            f->realised[culprit] = true;
            *again = true;
            break;
        case TG_BUILD_LARGE:
            culprit = choose_cut(f, node, seen); /* may be what another group of this round asked for */
            if (culprit == 0) return fuse_fault(f, node, "too many operands");
            f->realised[culprit] = true;
            *again = true;
            break;
        case TG_BUILD_REFUSED: return fuse_fault(f, node, "refused");
        case TG_BUILD_FAILED: return f->ctx->status;
        }
    }
    return TG_OK;
}

static bool make_items(tg_fusion *f, const int32_t *outputs, int output_count) {
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->live[id] && f->realised[id] && add_item(f, id, false) < 0) return false;
    if (!send_writebacks(f)) return false;
    for (int i = 0; i < output_count; i++) {
        int32_t node = tg_strip_reshape(f->graph, outputs[i]);
        if (f->pack_state[node] >= 0) continue;
        int32_t item = tg_fusion_output_item(f, node);
        if (item < 0) item = add_item(f, node, f->item_of[node] >= 0 || !can_be_primary(f, node));
        if (item < 0) return false;
        f->items.items[item].pinned = true;
    }
    for (int32_t i = 0; i < (int32_t)f->items.count; i++)
        if (add_group(f, i) < 0) return false;
    return true;
}

/* An output begins where its buffer does: a value that lies further on in a state needs a copy. */
static bool begins_its_buffer(const tg_item *item) { return item->state < 0 || item->state_offset == 0; }

int32_t tg_fusion_output_item(const tg_fusion *f, int32_t node) {
    node = tg_strip_reshape(f->graph, node);
    if (f->item_of[node] >= 0 && begins_its_buffer(&f->items.items[f->item_of[node]])) return f->item_of[node];
    for (int32_t i = 0; i < (int32_t)f->items.count; i++)
        if (f->items.items[i].copy && f->items.items[i].state < 0 && f->items.items[i].node == node) return i;
    return -1;
}

/* ---- joining */

static bool group_reads_item(const tg_group *g, const tg_item *item) { return !item->copy && primary_loads(g->kernel, item->node) != 0; }

static bool group_reads_group(const tg_fusion *f, int32_t reader, int32_t writer) {
    const tg_group *r = &f->groups.items[reader], *w = &f->groups.items[writer];
    for (int64_t i = 0; i < w->items.count; i++)
        if (group_reads_item(r, &f->items.items[w->items.items[i]])) return true;
    return false;
}

int tg_fusion_dependencies(const tg_fusion *f, int32_t group, int32_t *out, int capacity) {
    const tg_kernel *k = f->groups.items[group].kernel;
    int count = 0;
    for (int32_t i = 0; i < k->argument_count; i++) {
        int32_t node = k->arguments[i].buffer;
        if (node < 0) continue;
        if (f->item_of[node] >= 0) {
            if (count < capacity) out[count] = f->items.items[f->item_of[node]].group;
            count++;
        } else if (f->pack_state[node] >= 0) {
            for (int64_t j = 0; j < f->items.count; j++)
                if (f->items.items[j].state == f->pack_state[node]) {
                    if (count < capacity) out[count] = f->items.items[j].group;
                    count++;
                }
        }
    }
    return count;
}

/* Is `target` among what `from` needs, by a path of at least two steps (or one, when direct counts)? */
static bool depends_on(const tg_fusion *f, int32_t from, int32_t target, bool direct_counts, bool *seen, int32_t *stack, int32_t *scratch) {
    int64_t top = 0, limit = f->items.count + 1;
    memset(seen, 0, (size_t)f->groups.count);
    stack[top++] = from;
    seen[from] = true;
    while (top > 0) {
        int32_t at = stack[--top];
        int count = tg_fusion_dependencies(f, at, scratch, (int)limit);
        for (int i = 0; i < count && i < limit; i++) {
            if (scratch[i] == target && (direct_counts || at != from)) return true;
            if (scratch[i] == target || seen[scratch[i]]) continue;
            seen[scratch[i]] = true;
            stack[top++] = scratch[i];
        }
    }
    return false;
}

typedef struct fuse_scratch {
    bool *seen, *stored;
    int32_t *stack, *dependencies, *joint;
} fuse_scratch;

static int joint_items(const tg_fusion *f, const tg_group *a, const tg_group *b, int32_t *out) {
    int64_t i = 0, j = 0;
    int n = 0;
    while (i < a->items.count || j < b->items.count) {
        bool take_a =
            j == b->items.count || (i < a->items.count && f->items.items[a->items.items[i]].node <= f->items.items[b->items.items[j]].node);
        out[n++] = take_a ? a->items.items[i++] : b->items.items[j++];
    }
    return n;
}

static bool item_needed_outside(const tg_fusion *f, const tg_item *item, const tg_kernel *x, const tg_kernel *y) {
    if (item->pinned) return true;
    int32_t outside = f->load_count[item->node] - primary_loads(x, item->node) - (y ? primary_loads(y, item->node) : 0);
    return outside > 0;
}

/* Does `reader` read, from its state, a PACK that `writer` writes a part of? All parts must be there first: one kernel cannot
 * do both. */
static bool reads_pack_of(const tg_fusion *f, int32_t reader, int32_t writer) {
    const tg_kernel *k = f->groups.items[reader].kernel;
    const tg_group *w = &f->groups.items[writer];
    for (int32_t i = 0; i < k->argument_count; i++) {
        int32_t node = k->arguments[i].buffer;
        if (node < 0 || f->item_of[node] >= 0 || f->pack_state[node] < 0) continue;
        for (int64_t j = 0; j < w->items.count; j++)
            if (f->items.items[w->items.items[j]].state == f->pack_state[node]) return true;
    }
    return false;
}

/* The extremum behind an operand in a kernel: 1 when it is made there, 2 when it is loaded, else 0. */
static int extremum_in_kernel(const tg_fusion *f, const tg_kernel *k, int32_t operand) {
    if (operand < 0) return 0;
    const tg_instruction *x = &k->body[operand];
    if (x->op == TG_OP_REDUCE_MAX || x->op == TG_OP_REDUCE_MIN) return 1;
    if (x->op != TG_K_LOAD || k->arguments[x->argument].buffer < 0) return 0;
    const tg_node *n = fuse_node(f, k->arguments[x->argument].buffer);
    return n->op == TG_OP_REDUCE_MAX || n->op == TG_OP_REDUCE_MIN ? 2 : 0;
}

static bool is_stored_in_kernel(const tg_kernel *k, int32_t value) {
    for (int32_t i = 0; i < k->body_count; i++)
        if (k->body[i].op == TG_K_STORE && k->body[i].src[0] == value) return true;
    return false;
}

/* Would the kernel compare an extremum with a second computation of what it was taken of? See store_compared_extrema. */
static bool recomputes_extremum(const tg_fusion *f, const tg_kernel *k) {
    for (int32_t i = 0; i < k->body_count; i++) {
        const tg_instruction *x = &k->body[i];
        for (int side = 0; side < 2 && x->op == TG_OP_EQUAL; side++) {
            int32_t other = x->src[1 - side];
            int kind = extremum_in_kernel(f, k, x->src[side]);
            if (kind == 0 || other < 0 || k->body[other].op == TG_K_LOAD) continue;
            if (kind == 1 ? k->body[x->src[side]].src[0] != other : !is_stored_in_kernel(k, other)) return true;
        }
    }
    return false;
}

/* Where launches hold chains of kernels, a chain goes on as soon as it has what it needs. A total that others wait for (how many
 * elements count) must then not be made together with one that comes later (the loss). */
static bool delays_total(const tg_fusion *f, int32_t total, int32_t later, fuse_scratch *s) {
    const tg_group *a = &f->groups.items[total], *b = &f->groups.items[later];
    if (!f->limits.joins || a->domain.kind != TG_KERNEL_REDUCE || a->domain.rows >= TG_FEWEST_SLICES) return false;
    bool wanted = false;
    for (int64_t i = 0; i < a->items.count && !wanted; i++) {
        const int32_t node = f->items.items[a->items.items[i]].node;
        wanted = f->load_count[node] - primary_loads(a->kernel, node) - primary_loads(b->kernel, node) > 0;
    }
    const int limit = (int)f->items.count + 1;
    const int before = tg_fusion_dependencies(f, total, s->stack, limit);
    const int after = wanted ? tg_fusion_dependencies(f, later, s->dependencies, limit) : 0;
    for (int i = 0; i < after && i < limit; i++) {
        bool shared = s->dependencies[i] == total;
        for (int j = 0; j < before && j < limit && !shared; j++) shared = s->stack[j] == s->dependencies[i];
        if (!shared) return true;
    }
    return false;
}

/* Joins b into a when one kernel can make both. */
static tg_status try_join(tg_fusion *f, int32_t ia, int32_t ib, fuse_scratch *s, bool *joined) {
    tg_group *a = &f->groups.items[ia], *b = &f->groups.items[ib];
    tg_domain domain;
    *joined = false;
    if (a->items.count + b->items.count > TG_MAX_BODY / 4 || !join_domains(f, &a->domain, &b->domain, &domain)) return TG_OK;
    if (reads_pack_of(f, ia, ib) || reads_pack_of(f, ib, ia)) return TG_OK;
    if (delays_total(f, ia, ib, s) || delays_total(f, ib, ia, s)) return TG_OK;
    if (depends_on(f, ib, ia, false, s->seen, s->stack, s->dependencies) ||
        depends_on(f, ia, ib, false, s->seen, s->stack, s->dependencies))
        return TG_OK;
    int count = joint_items(f, a, b, s->joint);
    for (int i = 0; i < count; i++) s->stored[i] = item_needed_outside(f, &f->items.items[s->joint[i]], a->kernel, b->kernel);
    tg_kernel *kernel = NULL;
    int32_t culprit;
    tg_build_status status = tg_build_kernel(f, s->joint, count, s->stored, &domain, &kernel, &culprit);
    if (status == TG_BUILD_FAILED) return f->ctx->status;
    if (status != TG_BUILD_OK || recomputes_extremum(f, kernel)) return TG_OK;
    int32_t *items = tg_arena_copy(&f->arena, s->joint, sizeof(int32_t) * (size_t)count);
    if (!items) return f->ctx->status;
    count_loads(f, a->kernel, -1);
    count_loads(f, b->kernel, -1);
    count_loads(f, kernel, 1);
    a->items.items = items;
    a->items.count = count;
    a->kernel = kernel;
    a->domain = domain;
    b->merged_away = true;
    b->items.count = 0;
    for (int i = 0; i < count; i++) f->items.items[items[i]].group = ia;
    *joined = true;
    return TG_OK;
}

typedef bool (*join_filter)(const tg_fusion *f, int32_t a, int32_t b);

static bool epilogue_pair(const tg_fusion *f, int32_t a, int32_t b) {
    return f->groups.items[a].domain.kind == TG_KERNEL_CONTRACT && f->groups.items[b].domain.kind == TG_KERNEL_MAP &&
           group_reads_group(f, b, a);
}
static bool row_pair(const tg_fusion *f, int32_t a, int32_t b) {
    return (f->groups.items[a].domain.kind == TG_KERNEL_REDUCE || f->groups.items[b].domain.kind == TG_KERNEL_REDUCE) &&
           group_reads_group(f, b, a);
}
static bool producer_pair(const tg_fusion *f, int32_t a, int32_t b) { return group_reads_group(f, b, a); }

/* Neither needs the other; they read something in common over the same loops. */
static bool sibling_pair(const tg_fusion *f, int32_t a, int32_t b) {
    const tg_group *x = &f->groups.items[a], *y = &f->groups.items[b];
    if (x->domain.kind != y->domain.kind || x->domain.elements != y->domain.elements || x->domain.rows != y->domain.rows) return false;
    for (int32_t i = 0; i < x->kernel->argument_count; i++)
        if (x->kernel->arguments[i].buffer >= 0 && primary_loads(y->kernel, x->kernel->arguments[i].buffer)) return true;
    return false;
}

static tg_status join_all(tg_fusion *f, join_filter filter, fuse_scratch *s) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t b = 0; b < (int32_t)f->groups.count; b++)
            for (int32_t a = 0; a < (int32_t)f->groups.count; a++) {
                if (f->groups.items[b].merged_away) break;
                if (a == b || f->groups.items[a].merged_away || !filter(f, a, b)) continue;
                bool joined;
                tg_status status = try_join(f, a, b, s, &joined);
                if (status != TG_OK) return status;
                changed = changed || joined;
            }
    }
    return TG_OK;
}

/* Builds a group's kernel (anew), with stores for what someone outside it reads. */
static tg_status rebuild_group(tg_fusion *f, tg_group *group) {
    bool stored[TG_MAX_BODY];
    tg_kernel *old = group->kernel;
    for (int64_t i = 0; i < group->items.count; i++) {
        const tg_item *item = &f->items.items[group->items.items[i]];
        stored[i] = item->pinned || f->load_count[item->node] - (old ? primary_loads(old, item->node) : 0) > 0;
    }
    int32_t culprit;
    tg_build_status status =
        tg_build_kernel(f, group->items.items, (int)group->items.count, stored, &group->domain, &group->kernel, &culprit);
    if (status == TG_BUILD_FAILED) return f->ctx->status;
    if (status != TG_BUILD_OK) return TG_INTERNAL(f->ctx, "a kernel could not be built again");
    if (old) count_loads(f, old, -1);
    count_loads(f, group->kernel, 1);
    return TG_OK;
}

/* Stores of values that nobody outside the kernel reads any more go away. */
static tg_status drop_idle_stores(tg_fusion *f) {
    tg_status status = TG_OK;
    for (int64_t g = 0; g < f->groups.count && status == TG_OK; g++)
        if (!f->groups.items[g].merged_away) status = rebuild_group(f, &f->groups.items[g]);
    return status;
}

static bool make_scratch(tg_fusion *f, fuse_scratch *s) {
    size_t n = (size_t)f->items.count * 2 + 64;
    s->seen = TG_NEW(&f->arena, bool, n);
    s->stored = TG_NEW(&f->arena, bool, n);
    s->stack = TG_NEW(&f->arena, int32_t, n);
    s->dependencies = TG_NEW(&f->arena, int32_t, n);
    s->joint = TG_NEW(&f->arena, int32_t, n);
    return s->seen && s->stored && s->stack && s->dependencies && s->joint;
}

static tg_status join_groups(tg_fusion *f) {
    fuse_scratch s;
    if (!make_scratch(f, &s)) return f->ctx->status;
    for (int64_t i = 0; i < f->groups.count; i++) count_loads(f, f->groups.items[i].kernel, 1);
    const join_filter order[] = {epilogue_pair, row_pair, producer_pair, sibling_pair};
    for (size_t i = 0; i < sizeof order / sizeof order[0] && !f->no_fusion; i++) {
        tg_status status = join_all(f, order[i], &s);
        if (status != TG_OK) return status;
    }
    return drop_idle_stores(f);
}

/* ---- the whole */

static bool make_tables(tg_fusion *f) {
    size_t n = (size_t)f->node_count;
    f->live = TG_NEW(&f->arena, bool, n);
    f->realised = TG_NEW(&f->arena, bool, n);
    f->item_of = TG_NEW(&f->arena, int32_t, n);
    f->pack_state = TG_NEW(&f->arena, int32_t, n);
    f->load_count = TG_NEW(&f->arena, int32_t, n);
    f->builder = tg_builder_create(&f->arena);
    if (!f->live || !f->realised || !f->item_of || !f->pack_state || !f->load_count || !f->builder) return false;
    for (size_t i = 0; i < n; i++) f->item_of[i] = f->pack_state[i] = -1;
    return true;
}

static void find_packs(tg_fusion *f) {
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) {
        const tg_writeback_info *w = &f->graph->writebacks.items[i];
        int32_t source = tg_strip_reshape(f->graph, w->source);
        if (fuse_node(f, source)->op == TG_OP_PACK && f->pack_state[source] < 0) f->pack_state[source] = writeback_state(f, w);
    }
}

static tg_status fuse_rounds(tg_fusion *f, const int32_t *outputs, int output_count) {
    size_t n = (size_t)f->node_count;
    int32_t *users = TG_NEW(&f->arena, int32_t, n), *only_user = TG_NEW(&f->arena, int32_t, n), *cost = TG_NEW(&f->arena, int32_t, n);
    bool *seen = TG_NEW(&f->arena, bool, n);
    if (!users || !only_user || !cost || !seen) return f->ctx->status;
    count_users(f, users, only_user);
    for (int i = 0; i < output_count; i++) users[tg_strip_reshape(f->graph, outputs[i])] += 2;
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) users[tg_strip_reshape(f->graph, f->graph->writebacks.items[i].source)] += 2;
    for (int i = 0; i < output_count; i++) realise(f, tg_strip_reshape(f->graph, outputs[i]));
    realise_writebacks(f);
    decide_stored(f, users, only_user, cost);
    for (bool again = true; again;) {
        again = false;
        f->items.count = f->groups.count = 0;
        for (size_t i = 0; i < n; i++) f->item_of[i] = -1;
        if (!make_items(f, outputs, output_count)) return f->ctx->status;
        tg_status status = build_each(f, &again, seen);
        if (status != TG_OK) return status;
    }
    return join_groups(f);
}

tg_status tg_fuse(tg_fusion *f, tg_graph *g, const tg_limits *limits, bool no_fusion, const int32_t *outputs, int output_count) {
    memset(f, 0, sizeof *f);
    f->graph = g;
    f->ctx = g->ctx;
    f->limits = *limits;
    f->no_fusion = no_fusion;
    f->node_count = (int32_t)g->nodes.count;
    tg_arena_init(&f->arena, g->ctx);
    if (!make_tables(f)) return g->ctx->status;
    find_packs(f);
    for (int i = 0; i < output_count; i++) f->live[outputs[i]] = true;
    for (int64_t i = 0; i < g->writebacks.count; i++) f->live[g->writebacks.items[i].source] = true;
    spread_live(f);
    return fuse_rounds(f, outputs, output_count);
}

/* A copy leaves its kernel for one of its own; a value keeps its kernel, and a copy of it goes to the state. */
tg_status tg_fusion_redirect(tg_fusion *f, int32_t item) {
    const tg_item old = f->items.items[item];
    int32_t moved = item;
    if (old.copy) {
        tg_group *left = &f->groups.items[old.group];
        if (left->items.count == 1) return TG_INTERNAL(f->ctx, "a copy to a state waits for itself");
        int64_t kept = 0;
        for (int64_t i = 0; i < left->items.count; i++)
            if (left->items.items[i] != item) left->items.items[kept++] = left->items.items[i];
        left->items.count = kept;
    } else {
        moved = add_item(f, old.node, true);
        if (moved < 0) return f->ctx->status;
        f->items.items[moved].state = old.state;
        f->items.items[moved].state_offset = old.state_offset;
        f->items.items[item].state = -1;
    }
    int32_t group = add_group(f, moved);
    if (group < 0) return f->ctx->status;
    tg_status status = rebuild_group(f, &f->groups.items[group]);
    return status != TG_OK ? status : rebuild_group(f, &f->groups.items[old.group]);
}

void tg_fusion_free(tg_fusion *f) {
    tg_release(f->ctx, f->items.items, sizeof(tg_item) * (size_t)f->items.capacity);
    tg_release(f->ctx, f->groups.items, sizeof(tg_group) * (size_t)f->groups.capacity);
    tg_arena_free(&f->arena);
}
