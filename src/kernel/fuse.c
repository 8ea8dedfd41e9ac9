/* fuse: see fuse.h. Three steps: decide what is stored, build one kernel for each stored value, then join kernels while the
 * joint kernel can be built. Every decision is checked by building, so a rule that is too bold costs a refused join, never a
 * wrong kernel. The numbers are in cost.h. */
#include "kernel/fuse.h"

#include "kernel/cost.h"

#include <stdlib.h>
#include <string.h>

/* Bounds of searches, so that the work grows with the graph and no faster. What a search does not reach in its bound is taken for what
 * costs a kernel more, never for what might be wrong. */
#define WALK_NEAR (8 * TG_MAX_BODY)   /* values looked at below one that may be cut off */
#define CUT_STRETCH (4 * TG_MAX_BODY) /* values of a kernel that is cut in one place at a time */
#define SIBLINGS_NEAR 32              /* readers of a value looked at before and behind a kernel that reads it */
#define PATH_LONGEST 1024             /* kernels between two whose order is asked for */

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

/* users[id]: how often live nodes take id; only_user: the last of them. f->users: all of them, node by node. */
static bool find_users(tg_fusion *f, int32_t *users, int32_t *only_user) {
    int32_t total = 0;
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; f->live[id] && i < n->input_count; i++) {
            users[n->inputs[i]]++;
            only_user[n->inputs[i]] = id;
            total++;
        }
    }
    f->users = TG_NEW(&f->arena, int32_t, total + 1);
    f->user_begin = TG_NEW(&f->arena, int32_t, f->node_count + 2);
    if (!f->users || !f->user_begin) return false;
    for (int32_t id = 1; id < f->node_count; id++) f->user_begin[id + 2] = f->user_begin[id + 1] + users[id];
    for (int32_t id = 1; id < f->node_count; id++) { /* user_begin[id + 1] runs from the begin of id's users to their end */
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; f->live[id] && i < n->input_count; i++) f->users[f->user_begin[n->inputs[i] + 1]++] = id;
    }
    return true;
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
    for (int links = 0; links < TG_MAX_BODY && users[at] == 1 && !f->realised[at]; links++) {
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
    for (int32_t u = f->user_begin[node]; u < f->user_begin[node + 1]; u++) {
        const tg_node *n = fuse_node(f, f->users[u]);
        if (n->op != TG_OP_RESHAPE) return false;
        const int d = last_long_axis(n->shape);
        joined = joined || n->shape.dim[d] > fuse_node(f, node)->shape.dim[last];
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
    case TG_OP_POW:
    case TG_OP_MOD: return TG_COST_TRANSCENDENTAL;
    case TG_OP_DIV:
    case TG_OP_SQRT:
    case TG_OP_RSQRT:
    case TG_OP_RECIPROCAL: return TG_COST_DIVIDE;
    case TG_OP_GATHER: return TG_COST_GATHER;
    case TG_OP_RANDOM: return TG_COST_RANDOM;
    default: return TG_COST_CHEAP;
    }
}

/* What is repeated, as a number of each row, is computed once for all of its repetitions. */
static int32_t repeated_cost(tg_shape repeated, tg_shape of, int32_t cost) {
    const int64_t times = tg_shape_count(repeated) / tg_shape_count(of);
    return cost / times < TG_COST_CHEAP ? (cost < TG_COST_CHEAP ? cost : TG_COST_CHEAP) : (int32_t)(cost / times);
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
            if (n->op == TG_OP_BROADCAST) sum = repeated_cost(n->shape, fuse_node(f, n->inputs[0])->shape, sum);
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

/* base[id]: the value behind the views that `id` may be. */
static void find_bases(const tg_fusion *f, int32_t *base) {
    for (int32_t id = 1; id < f->node_count; id++) base[id] = fuse_class(f, id) == TG_CLASS_VIEW ? base[fuse_node(f, id)->inputs[0]] : id;
}

/* A tensor compared with itself at other places (who stands before whom?) must be the same bits at both: it is stored, for the reason
 * below. */
static void store_compared_places(tg_fusion *f, const int32_t *base) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (f->live[id] && n->op == TG_OP_LESS && base[n->inputs[0]] == base[n->inputs[1]]) realise_base(f, n->inputs[0]);
    }
}

/* The gradient of an extremum goes where x equals max(x): the very bits that the reduction saw, so x is stored. Computed a
 * second time elsewhere, with other roundings (a b + c in one go or in two), no element might be equal. */
static void store_compared_extrema(tg_fusion *f, const int32_t *base) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (!f->live[id] || n->op != TG_OP_EQUAL) continue;
        for (int side = 0; side < 2; side++) {
            const tg_node *extremum = fuse_node(f, base[n->inputs[side]]);
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
    find_bases(f, cost);
    store_compared_extrema(f, cost);
    store_compared_places(f, cost);
    recompute_costs(f, cost);
    store_shared(f, cost, only_user);
}

/* ---- items, groups, domains */

static int32_t add_item(tg_fusion *f, int32_t node, bool copy) {
    if (!tg_grow(f->ctx, (void **)&f->items.items, &f->items.capacity, f->items.count + 1, sizeof(tg_item))) return -1;
    tg_item *item = &f->items.items[f->items.count];
    *item = (tg_item){.node = node, .group = -1, .copy = copy, .pinned = copy, .state = -1};
    item->next_in_state = -1;
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

static void give_state(tg_fusion *f, int32_t item, int32_t state, int64_t offset) {
    tg_item *x = &f->items.items[item];
    x->state = state;
    x->state_offset = offset;
    x->next_in_state = f->state_items[state];
    f->state_items[state] = item;
}

static void leave_state(tg_fusion *f, int32_t item) {
    tg_item *x = &f->items.items[item];
    int32_t *link = &f->state_items[x->state];
    while (*link != item) link = &f->items.items[*link].next_in_state;
    *link = x->next_in_state;
    x->next_in_state = x->state = -1;
}

static bool send_to_state(tg_fusion *f, int32_t node, int32_t state, int64_t offset) {
    int32_t item = -1;
    if (can_be_primary(f, node)) {
        if (f->item_of[node] < 0 && add_item(f, node, false) < 0) return false;
        if (f->items.items[f->item_of[node]].state < 0) item = f->item_of[node];
    }
    if (item < 0) item = add_item(f, node, true);
    if (item < 0) return false;
    give_state(f, item, state, offset);
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

/* A walk over what lies below or above nodes: every node is pushed once. */
static void start_walk(tg_fusion *f) {
    f->walk_count = 0;
    f->epoch++;
}

static bool push_once(tg_fusion *f, int32_t node) {
    if (f->seen[node] == f->epoch) return false;
    f->seen[node] = f->epoch;
    f->walk[f->walk_count++] = node;
    f->ctx->work++;
    return true;
}

/* Distinct stored values below `id`, up to `limit` + 1, among the nearest nodes. */
static int distinct_loads(tg_fusion *f, int32_t id, int limit) {
    int loads = 0;
    start_walk(f);
    push_once(f, id);
    for (int32_t at = 0; at < f->walk_count && at < WALK_NEAR && loads <= limit; at++) {
        const tg_node *n = fuse_node(f, f->walk[at]);
        if (f->walk[at] != id && tg_has_storage(f, f->walk[at])) continue;
        for (int32_t i = 0; i < n->input_count && loads <= limit; i++)
            if (push_once(f, n->inputs[i])) loads += tg_has_storage(f, n->inputs[i]);
    }
    return loads;
}

static int compare_ids(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Values below `root` that its kernel makes, without it, in ascending order, into f->inlined; returns how many. Views only if asked. */
static int32_t collect_inlined(tg_fusion *f, int32_t root, bool with_views) {
    int32_t count = 0;
    start_walk(f);
    push_once(f, root);
    for (int32_t at = 0; at < f->walk_count; at++) {
        const int32_t id = f->walk[at];
        if (id != root && tg_has_storage(f, id)) continue;
        if (id != root && (with_views || is_recomputed(f, id))) f->inlined[count++] = id;
        for (int32_t i = 0; i < fuse_node(f, id)->input_count; i++) push_once(f, fuse_node(f, id)->inputs[i]);
    }
    qsort(f->inlined, (size_t)count, sizeof(int32_t), compare_ids);
    return count;
}

static void cut_at(tg_fusion *f, int32_t node) {
    if (f->realised[node]) return;
    f->realised[node] = true;
    f->fresh[f->fresh_count++] = node;
}

/* Of `count` inlined values, the one that reads the most buffers without itself being too wide; 0: none. */
static int32_t widest_inlined(tg_fusion *f, int32_t count, int limit) {
    int32_t best = 0;
    int best_loads = 1;
    for (int32_t i = 0; i < count; i++) {
        const int loads = distinct_loads(f, f->inlined[i], limit);
        if (loads > limit || loads <= best_loads) continue;
        best = f->inlined[i];
        best_loads = loads;
    }
    return best;
}

/* What a value reads, for each value of a kernel that is far too large. */
typedef struct cut_reads {
    const int32_t *nodes;
    int32_t count;
    int32_t cuttable; /* the value behind its views, if that may be stored; else 0 */
} cut_reads;

static void add_reads(tg_fusion *f, const cut_reads *reads, int32_t input) {
    if (tg_has_storage(f, input)) push_once(f, input);
    else
        for (int32_t i = 0; i < reads[input].count; i++) push_once(f, reads[input].nodes[i]);
}

static int32_t reads_of_input(const tg_fusion *f, const cut_reads *reads, int32_t input) {
    return tg_has_storage(f, input) ? 1 : reads[input].count;
}

/* f->walk: what node `id` reads. Where that is too much, operands are cut off, the widest last of all to be kept. */
static void cut_operands(tg_fusion *f, cut_reads *reads, int32_t id, int limit) {
    const tg_node *n = fuse_node(f, id);
    int32_t order[3] = {0, 1, 2};
    start_walk(f);
    for (int32_t i = 0; i < n->input_count; i++) add_reads(f, reads, n->inputs[i]);
    if (f->walk_count <= limit) return;
    for (int32_t i = 1; i < n->input_count && n->input_count <= 3; i++)
        for (int32_t at = i; at > 0; at--) {
            if (reads_of_input(f, reads, n->inputs[order[at - 1]]) <= reads_of_input(f, reads, n->inputs[order[at]])) break;
            const int32_t kept = order[at];
            order[at] = order[at - 1];
            order[at - 1] = kept;
        }
    start_walk(f);
    for (int32_t i = 0; i < n->input_count; i++) {
        const int32_t input = n->inputs[n->input_count <= 3 ? order[i] : i];
        if (!tg_has_storage(f, input) && reads[input].cuttable > 0 && f->walk_count + reads[input].count > limit) {
            cut_at(f, reads[input].cuttable);
            push_once(f, reads[input].cuttable);
        } else add_reads(f, reads, input);
    }
}

/* Walks the values of a very large kernel and cuts it wherever one reads too much. False: out of memory, or nothing to cut. */
static bool cut_everywhere(tg_fusion *f, int32_t root, int limit) {
    const size_t bytes = sizeof(cut_reads) * (size_t)f->node_count;
    cut_reads *reads = tg_alloc(f->ctx, bytes);
    tg_arena arena;
    tg_arena_init(&arena, f->ctx);
    const int32_t count = collect_inlined(f, root, true), before = f->fresh_count;
    bool good = reads != NULL;
    for (int32_t i = 0; i <= count && good; i++) {
        const int32_t id = i < count ? f->inlined[i] : root;
        if (id != root && fuse_class(f, id) == TG_CLASS_VIEW && !tg_has_storage(f, fuse_node(f, id)->inputs[0])) {
            reads[id] = reads[fuse_node(f, id)->inputs[0]];
            continue;
        }
        cut_operands(f, reads, id, limit);
        const int32_t kept = f->walk_count < limit ? f->walk_count : limit;
        reads[id].nodes = tg_arena_copy(&arena, f->walk, sizeof(int32_t) * (size_t)kept);
        reads[id].count = kept;
        reads[id].cuttable = is_recomputed(f, id) && kept > 1 ? id : 0;
        good = reads[id].nodes != NULL;
    }
    tg_arena_free(&arena);
    tg_release(f->ctx, reads, bytes);
    return good && f->fresh_count > before;
}

/* Values shortly before the cut at f->inlined[at] that are used behind it: what would lead around it. */
static void cut_beside(tg_fusion *f, int32_t at) {
    enum { BEFORE = 32, USERS = 8 };
    for (int32_t i = at - 1; i >= 0 && i >= at - BEFORE; i--) {
        const int32_t id = f->inlined[i], end = f->user_begin[id + 1];
        bool used_behind = false;
        for (int32_t u = f->user_begin[id]; u < end && u < f->user_begin[id] + USERS; u++)
            used_behind = used_behind || f->users[u] > f->inlined[at];
        if (used_behind) cut_at(f, id);
    }
}

/* Which inlined values to store so that a too large kernel for `root` shrinks: the one that reads the most buffers without being too
 * wide itself, or, when the body is what is too long, the middle one; many of either where it is very large. False: nothing left to
 * store, or out of memory. */
static bool choose_cuts(tg_fusion *f, int32_t root) {
    enum { WIDEST = 64 };
    const int limit = f->device->max_arguments - 2 < WIDEST ? f->device->max_arguments - 2 : WIDEST;
    const bool wide = distinct_loads(f, root, WIDEST) > limit;
    int32_t nodes = collect_inlined(f, root, false);
    if (wide && nodes > CUT_STRETCH) {
        if (cut_everywhere(f, root, limit)) return true;
        if (f->ctx->status != TG_OK) return false;
        nodes = collect_inlined(f, root, false);
    }
    const int32_t best = wide && nodes <= CUT_STRETCH ? widest_inlined(f, nodes, limit) : 0;
    if (best > 0) cut_at(f, best);
    if (best > 0 || nodes == 0) return best > 0;
    int32_t parts = 2;
    while (nodes / parts > CUT_STRETCH / 2) parts *= 2;
    for (int32_t i = 1; i < parts; i++) {
        const int32_t at = (int32_t)((int64_t)nodes * i / parts);
        cut_at(f, f->inlined[at]);
        if (parts > 2) cut_beside(f, at);
    }
    return true;
}

static tg_status fuse_fault(tg_fusion *f, int32_t node, const char *what) {
    const tg_node *n = fuse_node(f, node);
    return tg_fail(f->ctx, TG_ERROR_INTERNAL, n->site, "no kernel can be made for %s (node %d): %s", tg_op_table[n->op].name, (int)node,
                   what);
}

/* The group's item by itself. What must be stored first is in f->fresh then, and *built is false. */
static tg_status build_alone(tg_fusion *f, int32_t index, bool *built) {
    tg_group *group = &f->groups.items[index];
    const bool stored = true;
    const int32_t node = f->items.items[group->items.items[0]].node;
    int32_t culprit = 0;
    *built = false;
    tg_kernel_free(f->ctx, group->kernel);
    group->kernel = NULL;
    switch (tg_build_kernel(f, group->items.items, 1, &stored, &group->domain, &group->kernel, &culprit)) {
    case TG_BUILD_OK: *built = true; break;
    case TG_BUILD_STORE:
        if (culprit == 0 || f->item_of[culprit] >= 0) return fuse_fault(f, node, "an operand is no affine view");
        cut_at(f, culprit);
        break;
    case TG_BUILD_LARGE: /* what it asks for may be what another group asked for */
        if (!choose_cuts(f, node)) return f->ctx->status != TG_OK ? f->ctx->status : fuse_fault(f, node, "too many operands");
        break;
    case TG_BUILD_REFUSED: return fuse_fault(f, node, "refused");
    case TG_BUILD_FAILED: return f->ctx->status;
    }
    return TG_OK;
}

static int compare_groups(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Groups to build next, once each. Values come in the order of the trace, copies behind them: as in make_items. */
typedef struct fuse_wave {
    int64_t *items; /* key in the high half, group in the low half */
    bool *in_it;
    int32_t count;
} fuse_wave;

static void add_to_wave(const tg_fusion *f, fuse_wave *w, int32_t group) {
    if (w->in_it[group]) return;
    w->in_it[group] = true;
    const tg_item *item = &f->items.items[f->groups.items[group].items.items[0]];
    w->items[w->count++] = (int64_t)(item->copy ? f->node_count : item->node) << 32 | group;
}

/* Stored values that recompute one of the fresh ones are to be built anew. */
static void add_users_to_wave(tg_fusion *f, fuse_wave *w) {
    start_walk(f);
    for (int32_t i = 0; i < f->fresh_count; i++) push_once(f, f->fresh[i]);
    for (int32_t at = 0; at < f->walk_count; at++)
        for (int32_t u = f->user_begin[f->walk[at]]; u < f->user_begin[f->walk[at] + 1]; u++) {
            const int32_t user = f->users[u];
            if (f->item_of[user] >= 0) add_to_wave(f, w, f->items.items[f->item_of[user]].group);
            else if (!tg_has_storage(f, user)) push_once(f, user);
        }
}

static tg_status build_wave(tg_fusion *f, const fuse_wave *now, fuse_wave *next) {
    f->fresh_count = next->count = 0;
    for (int32_t i = 0; i < now->count; i++) {
        const int32_t group = (int32_t)(now->items[i] & 0xffffffff);
        bool built;
        tg_status status = build_alone(f, group, &built);
        if (status != TG_OK) return status;
        now->in_it[group] = false;
        if (!built) add_to_wave(f, next, group);
    }
    for (int32_t i = 0; i < f->fresh_count; i++) {
        if (add_item(f, f->fresh[i], false) < 0 || add_group(f, (int32_t)f->items.count - 1) < 0) return f->ctx->status;
        add_to_wave(f, next, (int32_t)f->groups.count - 1);
    }
    add_users_to_wave(f, next);
    qsort(next->items, (size_t)next->count, sizeof(int64_t), compare_groups);
    return TG_OK;
}

/* Every item by itself; what a kernel asks for is stored, and who recomputed it is built anew, until all kernels are there. */
static tg_status build_each(tg_fusion *f) {
    const size_t most = (size_t)f->items.count + (size_t)f->node_count + 1;
    fuse_wave now, next;
    bool *in_now = TG_NEW(&f->arena, bool, most), *in_next = TG_NEW(&f->arena, bool, most);
    now = (fuse_wave){TG_NEW(&f->arena, int64_t, most), in_now, 0};
    next = (fuse_wave){TG_NEW(&f->arena, int64_t, most), in_next, 0};
    if (!now.items || !next.items || !in_now || !in_next) return f->ctx->status;
    for (int32_t g = 0; g < (int32_t)f->groups.count; g++) add_to_wave(f, &now, g);
    qsort(now.items, (size_t)now.count, sizeof(int64_t), compare_groups);
    while (now.count > 0) {
        tg_status status = build_wave(f, &now, &next);
        if (status != TG_OK) return status;
        const fuse_wave kept = now;
        now = next;
        next = kept;
    }
    return TG_OK;
}

static bool make_items(tg_fusion *f, const int32_t *outputs, int output_count) {
    f->items.count = f->groups.count = 0;
    for (int32_t id = 0; id < f->node_count; id++) f->item_of[id] = f->output_copy[id] = -1;
    for (int64_t i = 0; i < f->graph->states.count; i++) f->state_items[i] = -1;
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->live[id] && f->realised[id] && add_item(f, id, false) < 0) return false;
    if (!send_writebacks(f)) return false;
    for (int i = 0; i < output_count; i++) {
        int32_t node = tg_strip_reshape(f->graph, outputs[i]);
        if (f->pack_state[node] >= 0) continue;
        int32_t item = tg_fusion_output_item(f, node);
        const bool copy = f->item_of[node] >= 0 || !can_be_primary(f, node);
        if (item < 0) item = add_item(f, node, copy);
        if (item < 0) return false;
        if (f->items.items[item].copy) f->output_copy[node] = item;
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
    return f->output_copy[node];
}

/* ---- joining */

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
            for (int32_t j = f->state_items[f->pack_state[node]]; j >= 0; j = f->items.items[j].next_in_state) {
                if (count < capacity) out[count] = f->items.items[j].group;
                count++;
            }
        }
    }
    return count;
}

typedef struct fuse_scratch {
    bool *stored;
    int32_t *seen, epoch; /* by group: walks over groups */
    int32_t *stack, *dependencies, *joint;
    int dependency_room;
    int32_t *order;                  /* groups, each behind what it needs; group.place is the way back */
    int32_t *shifted;                /* a stretch of it, while it changes */
    int32_t *readers, *reader_begin; /* by node: groups that read it, ascending, as they were when the sweep began */
    int32_t *near, near_count;       /* groups that may be joined with the one at hand */
    int32_t sweep;
} fuse_scratch;

static bool first_seen(fuse_scratch *s, int32_t group) {
    if (s->seen[group] == s->epoch) return false;
    s->seen[group] = s->epoch;
    return true;
}

static int dependencies_of(const tg_fusion *f, int32_t group, fuse_scratch *s) {
    const int count = tg_fusion_dependencies(f, group, s->dependencies, s->dependency_room);
    f->ctx->work += count + 1;
    return count < s->dependency_room ? count : s->dependency_room;
}

typedef struct order_edge {
    int32_t to, next;
} order_edge;

/* Kahn's algorithm over edges listed by where they begin. */
static bool sort_edges(tg_fusion *f, fuse_scratch *s, order_edge *edges, int32_t *head, int32_t *waiting) {
    const int32_t n = (int32_t)f->groups.count;
    int32_t used = 0, count = 0;
    for (int32_t g = 0; g < n; g++) head[g] = -1;
    for (int32_t g = 0; g < n; g++) {
        const int many = dependencies_of(f, g, s);
        for (int i = 0; i < many; i++) {
            const int32_t from = s->dependencies[i];
            if (from == g) continue;
            edges[used] = (order_edge){g, head[from]};
            head[from] = used++;
            waiting[g]++;
        }
    }
    for (int32_t g = 0; g < n; g++)
        if (waiting[g] == 0) s->order[count++] = g;
    for (int32_t at = 0; at < count; at++) {
        f->groups.items[s->order[at]].place = at;
        for (int32_t e = head[s->order[at]]; e >= 0; e = edges[e].next)
            if (--waiting[edges[e].to] == 0) s->order[count++] = edges[e].to;
    }
    return count == n;
}

static tg_status order_groups(tg_fusion *f, fuse_scratch *s) {
    size_t groups = (size_t)f->groups.count + 1, edges = 1;
    for (int32_t g = 0; g < (int32_t)f->groups.count; g++) edges += (size_t)dependencies_of(f, g, s);
    order_edge *list = tg_alloc(f->ctx, sizeof(order_edge) * edges);
    int32_t *head = tg_alloc(f->ctx, sizeof(int32_t) * groups), *waiting = tg_alloc(f->ctx, sizeof(int32_t) * groups);
    tg_status status = f->ctx->status;
    if (list && head && waiting && !sort_edges(f, s, list, head, waiting)) status = TG_INTERNAL(f->ctx, "values wait for each other");
    tg_release(f->ctx, list, sizeof(order_edge) * edges);
    tg_release(f->ctx, head, sizeof(int32_t) * groups);
    tg_release(f->ctx, waiting, sizeof(int32_t) * groups);
    return status;
}

/* s->stack as a heap of places, the smallest on top. */
static void push_place(fuse_scratch *s, int32_t *count, int32_t place) {
    int32_t at = (*count)++;
    for (; at > 0 && s->stack[(at - 1) / 2] > place; at = (at - 1) / 2) s->stack[at] = s->stack[(at - 1) / 2];
    s->stack[at] = place;
}

static int32_t pop_place(fuse_scratch *s, int32_t *count) {
    const int32_t top = s->stack[0], last = s->stack[--*count];
    int32_t at = 0;
    for (int32_t child = 1; child < *count; child = 2 * at + 1) {
        if (child + 1 < *count && s->stack[child + 1] < s->stack[child]) child++;
        if (s->stack[child] >= last) break;
        s->stack[at] = s->stack[child];
        at = child;
    }
    s->stack[at] = last;
    return top;
}

/* Is `target` among what `from` needs, by a path of at least two steps? Looks first at what stands nearest to it. Yes, too, where that
 * is far to see. */
static bool depends_on(const tg_fusion *f, int32_t from, int32_t target, fuse_scratch *s) {
    const int32_t earliest = f->groups.items[target].place;
    int32_t waiting = 0, looked_at = 0;
    if (f->groups.items[from].place < earliest) return false;
    s->epoch++;
    push_place(s, &waiting, f->groups.items[from].place);
    first_seen(s, from);
    while (waiting > 0) {
        const int32_t at = s->order[pop_place(s, &waiting)];
        const int count = dependencies_of(f, at, s);
        if (++looked_at > PATH_LONGEST) return true;
        for (int i = 0; i < count; i++) {
            const int32_t next = s->dependencies[i];
            if (next == target && at != from) return true;
            if (next == target || f->groups.items[next].place < earliest || !first_seen(s, next)) continue;
            push_place(s, &waiting, f->groups.items[next].place);
        }
    }
    return false;
}

/* Two groups become one, `kept`: what needs the earlier one and stands before the later one moves behind it. */
static void join_places(tg_fusion *f, int32_t kept, int32_t gone, fuse_scratch *s) {
    const int32_t a = f->groups.items[kept].place, b = f->groups.items[gone].place;
    const int32_t begin = a < b ? a : b, end = a < b ? b : a;
    int32_t at = begin, behind = 0;
    s->epoch++;
    first_seen(s, s->order[begin]);
    for (int32_t i = begin + 1; i < end; i++) {
        const int32_t group = s->order[i];
        const int count = f->groups.items[group].merged_away ? 0 : dependencies_of(f, group, s);
        bool moves = false;
        for (int d = 0; d < count && !moves; d++) moves = s->seen[s->dependencies[d]] == s->epoch;
        if (moves) {
            first_seen(s, group);
            s->shifted[behind++] = group;
        } else s->order[at++] = group;
    }
    s->order[at++] = gone;
    s->order[at++] = kept;
    for (int32_t i = 0; i < behind; i++) s->order[at++] = s->shifted[i];
    for (int32_t i = begin; i <= end; i++) f->groups.items[s->order[i]].place = i;
}

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
    if (!f->device->joins || a->domain.kind != TG_KERNEL_REDUCE || a->domain.rows >= TG_FEWEST_SLICES) return false;
    bool wanted = false;
    for (int64_t i = 0; i < a->items.count && !wanted; i++) {
        const int32_t node = f->items.items[a->items.items[i]].node;
        wanted = f->load_count[node] - primary_loads(a->kernel, node) - primary_loads(b->kernel, node) > 0;
    }
    if (!wanted) return false;
    s->epoch++;
    first_seen(s, total);
    const int before = dependencies_of(f, total, s);
    for (int i = 0; i < before; i++) first_seen(s, s->dependencies[i]);
    const int after = dependencies_of(f, later, s);
    for (int i = 0; i < after; i++)
        if (s->seen[s->dependencies[i]] != s->epoch) return true;
    return false;
}

/* What the joint kernel reads, stores and computes at least: does that exceed what a kernel may have? */
static bool joint_too_large(tg_fusion *f, int32_t ia, int32_t ib, int count, const fuse_scratch *s) {
    const int32_t pair[2] = {ia, ib};
    int32_t reads = 0, stores = 0, computed = 0;
    start_walk(f);
    for (int side = 0; side < 2; side++) {
        const tg_kernel *k = f->groups.items[pair[side]].kernel;
        for (int32_t i = 0; i < k->argument_count; i++) {
            const int32_t node = k->arguments[i].buffer;
            if (node < 0) continue;
            const int32_t group = f->item_of[node] < 0 ? -1 : f->items.items[f->item_of[node]].group;
            if (group != ia && group != ib) reads += push_once(f, node);
        }
    }
    for (int i = 0; i < count; i++) stores += s->stored[i];
    for (int side = 0; side < 2; side++) {
        const tg_kernel *k = f->groups.items[pair[side]].kernel;
        if (k->kind == TG_KERNEL_CONTRACT) computed -= 2; /* its operands are read, but not by the body */
        for (int32_t i = 0; i < k->node_count; i++) {
            const tg_node *n = fuse_node(f, k->nodes[i]);
            if (n->op != TG_OP_STOP_GRADIENT && tg_op_table[n->op].class_ != TG_CLASS_JOIN) computed += push_once(f, k->nodes[i]);
        }
    }
    return reads + stores > f->device->max_arguments || reads + stores + computed > TG_MAX_BODY;
}

/* Joins b into a when one kernel can make both. */
static tg_status try_join(tg_fusion *f, int32_t ia, int32_t ib, fuse_scratch *s, bool *joined) {
    tg_group *a = &f->groups.items[ia], *b = &f->groups.items[ib];
    tg_domain domain;
    *joined = false;
    if (a->items.count + b->items.count > TG_MAX_BODY / 4 || !join_domains(f, &a->domain, &b->domain, &domain)) return TG_OK;
    if (reads_pack_of(f, ia, ib) || reads_pack_of(f, ib, ia)) return TG_OK;
    if (delays_total(f, ia, ib, s) || delays_total(f, ib, ia, s)) {
        a->changed = s->sweep; /* it may not when others have been joined */
        return TG_OK;
    }
    int count = joint_items(f, a, b, s->joint);
    for (int i = 0; i < count; i++) s->stored[i] = item_needed_outside(f, &f->items.items[s->joint[i]], a->kernel, b->kernel);
    if (joint_too_large(f, ia, ib, count, s) || depends_on(f, ib, ia, s) || depends_on(f, ia, ib, s)) return TG_OK;
    tg_kernel *kernel = NULL;
    int32_t culprit;
    tg_build_status status = tg_build_kernel(f, s->joint, count, s->stored, &domain, &kernel, &culprit);
    if (status == TG_BUILD_FAILED) return f->ctx->status;
    if (status != TG_BUILD_OK) return TG_OK;
    int32_t *items = recomputes_extremum(f, kernel) ? NULL : tg_arena_copy(&f->arena, s->joint, sizeof(int32_t) * (size_t)count);
    if (!items) {
        tg_kernel_free(f->ctx, kernel);
        return f->ctx->status;
    }
    join_places(f, ia, ib, s);
    count_loads(f, a->kernel, -1);
    count_loads(f, b->kernel, -1);
    count_loads(f, kernel, 1);
    tg_kernel_free(f->ctx, a->kernel);
    tg_kernel_free(f->ctx, b->kernel);
    a->items.items = items;
    a->items.count = count;
    a->kernel = kernel;
    a->domain = domain;
    a->changed = s->sweep;
    b->kernel = NULL;
    b->merged_away = true;
    b->merged_into = ia;
    b->items.count = 0;
    for (int i = 0; i < count; i++) f->items.items[items[i]].group = ia;
    *joined = true;
    return TG_OK;
}

/* A kind of pair: may it be joined? And b's possible partners, into s->near. */
typedef struct join_kind {
    bool (*fits)(const tg_fusion *f, int32_t a, int32_t b);
    void (*find)(tg_fusion *f, int32_t b, fuse_scratch *s);
} join_kind;

/* b reads a in all kinds but the last. */
static bool epilogue_pair(const tg_fusion *f, int32_t a, int32_t b) {
    return f->groups.items[a].domain.kind == TG_KERNEL_CONTRACT && f->groups.items[b].domain.kind == TG_KERNEL_MAP;
}
static bool row_pair(const tg_fusion *f, int32_t a, int32_t b) {
    return f->groups.items[a].domain.kind == TG_KERNEL_REDUCE || f->groups.items[b].domain.kind == TG_KERNEL_REDUCE;
}
static bool producer_pair(const tg_fusion *f, int32_t a, int32_t b) {
    (void)f;
    return a != b;
}

/* Neither needs the other; they read something in common over the same loops. */
static bool sibling_pair(const tg_fusion *f, int32_t a, int32_t b) {
    const tg_group *x = &f->groups.items[a], *y = &f->groups.items[b];
    if (x->domain.kind != y->domain.kind || x->domain.elements != y->domain.elements || x->domain.rows != y->domain.rows) return false;
    for (int32_t i = 0; i < x->kernel->argument_count; i++)
        if (x->kernel->arguments[i].buffer >= 0 && primary_loads(y->kernel, x->kernel->arguments[i].buffer)) return true;
    return false;
}

static void add_near(fuse_scratch *s, int32_t group) {
    if (first_seen(s, group)) s->near[s->near_count++] = group;
}

static void find_read(tg_fusion *f, int32_t b, fuse_scratch *s) {
    const tg_kernel *k = f->groups.items[b].kernel;
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].buffer >= 0 && f->item_of[k->arguments[i].buffer] >= 0)
            add_near(s, f->items.items[f->item_of[k->arguments[i].buffer]].group);
}

static int32_t behind_joins(tg_fusion *f, int32_t group) {
    while (f->groups.items[group].merged_away) {
        tg_group *g = &f->groups.items[group];
        if (f->groups.items[g->merged_into].merged_away) g->merged_into = f->groups.items[g->merged_into].merged_into;
        group = g->merged_into;
    }
    return group;
}

/* Those that read what b reads, the nearest ones. */
static void find_siblings(tg_fusion *f, int32_t b, fuse_scratch *s) {
    const tg_kernel *k = f->groups.items[b].kernel;
    for (int32_t i = 0; i < k->argument_count; i++) {
        const int32_t node = k->arguments[i].buffer;
        if (node < 0) continue;
        int32_t low = s->reader_begin[node], high = s->reader_begin[node + 1];
        const int32_t first = low, last = high;
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            if (s->readers[middle] < b) low = middle + 1;
            else high = middle;
        }
        const int32_t begin = low - SIBLINGS_NEAR > first ? low - SIBLINGS_NEAR : first;
        const int32_t end = low + SIBLINGS_NEAR < last ? low + SIBLINGS_NEAR : last;
        for (int32_t r = begin; r < end; r++) add_near(s, behind_joins(f, s->readers[r]));
    }
}

static void list_readers(const tg_fusion *f, fuse_scratch *s) {
    s->reader_begin[0] = 0;
    for (int32_t id = 0; id < f->node_count; id++) s->reader_begin[id + 1] = s->reader_begin[id] + f->load_count[id];
    const int32_t total = s->reader_begin[f->node_count];
    for (int32_t g = (int32_t)f->groups.count - 1; g >= 0; g--) {
        const tg_kernel *k = f->groups.items[g].kernel;
        for (int32_t i = 0; k && i < k->argument_count; i++)
            if (k->arguments[i].buffer >= 0) s->readers[--s->reader_begin[k->arguments[i].buffer + 1]] = g;
    }
    memmove(s->reader_begin, s->reader_begin + 1, sizeof(int32_t) * (size_t)f->node_count); /* now where each one's begin */
    s->reader_begin[f->node_count] = total;
}

/* Nothing is new since both were last refused. */
static bool tried_before(const tg_fusion *f, int32_t a, int32_t b, const fuse_scratch *s) {
    return f->groups.items[a].changed < s->sweep - 1 && f->groups.items[b].changed < s->sweep - 1;
}

/* Joins b with the first partner that it can be joined with. */
static tg_status join_one(tg_fusion *f, int32_t b, const join_kind *kind, fuse_scratch *s, bool *joined) {
    s->near_count = 0;
    s->epoch++;
    kind->find(f, b, s);
    f->ctx->work += s->near_count;
    qsort(s->near, (size_t)s->near_count, sizeof(int32_t), compare_ids);
    for (int32_t i = 0; i < s->near_count && !*joined; i++) {
        const int32_t a = s->near[i];
        if (a == b || tried_before(f, a, b, s) || !kind->fits(f, a, b)) continue;
        tg_status status = try_join(f, a, b, s, joined);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static tg_status join_all(tg_fusion *f, const join_kind *kind, fuse_scratch *s) {
    for (int64_t g = 0; g < f->groups.count; g++) f->groups.items[g].changed = 0;
    s->sweep = 0;
    for (bool changed = true; changed;) {
        changed = false;
        s->sweep++;
        list_readers(f, s);
        for (int32_t b = 0; b < (int32_t)f->groups.count; b++) {
            bool joined = false;
            if (f->groups.items[b].merged_away) continue;
            tg_status status = join_one(f, b, kind, s, &joined);
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
    tg_kernel *kernel = NULL;
    tg_build_status status = tg_build_kernel(f, group->items.items, (int)group->items.count, stored, &group->domain, &kernel, &culprit);
    if (status == TG_BUILD_FAILED) return f->ctx->status;
    if (status != TG_BUILD_OK) return TG_INTERNAL(f->ctx, "a kernel could not be built again");
    if (old) count_loads(f, old, -1);
    count_loads(f, kernel, 1);
    tg_kernel_free(f->ctx, old);
    group->kernel = kernel;
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
    size_t n = (size_t)f->groups.count + 1, loads = 1;
    memset(s, 0, sizeof *s);
    for (int64_t i = 0; i < f->groups.count; i++) loads += (size_t)f->groups.items[i].kernel->argument_count;
    s->dependency_room = (int)f->items.count * 2 + 256;
    s->dependencies = TG_NEW(&f->arena, int32_t, s->dependency_room);
    s->stored = TG_NEW(&f->arena, bool, TG_MAX_BODY);
    s->joint = TG_NEW(&f->arena, int32_t, TG_MAX_BODY);
    s->seen = TG_NEW(&f->arena, int32_t, n);
    s->stack = TG_NEW(&f->arena, int32_t, n);
    s->order = TG_NEW(&f->arena, int32_t, n);
    s->shifted = TG_NEW(&f->arena, int32_t, n);
    s->near = TG_NEW(&f->arena, int32_t, n);
    s->readers = TG_NEW(&f->arena, int32_t, loads);
    s->reader_begin = TG_NEW(&f->arena, int32_t, (size_t)f->node_count + 2);
    return s->dependencies && s->stored && s->joint && s->seen && s->stack && s->order && s->shifted && s->near && s->readers &&
           s->reader_begin;
}

static tg_status join_groups(tg_fusion *f) {
    static const join_kind kinds[] = {
        {epilogue_pair, find_read}, {row_pair, find_read}, {producer_pair, find_read}, {sibling_pair, find_siblings}};
    fuse_scratch s;
    for (int64_t i = 0; i < f->groups.count; i++) count_loads(f, f->groups.items[i].kernel, 1);
    if (!f->no_fusion) {
        if (!make_scratch(f, &s)) return f->ctx->status;
        tg_status status = order_groups(f, &s);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && status == TG_OK; i++) status = join_all(f, &kinds[i], &s);
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
    f->output_copy = TG_NEW(&f->arena, int32_t, n);
    f->state_items = TG_NEW(&f->arena, int32_t, f->graph->states.count + 1);
    f->seen = TG_NEW(&f->arena, int32_t, n);
    f->walk = TG_NEW(&f->arena, int32_t, n);
    f->inlined = TG_NEW(&f->arena, int32_t, n);
    f->fresh = TG_NEW(&f->arena, int32_t, n);
    f->builder = tg_builder_create(&f->arena);
    if (!f->live || !f->realised || !f->item_of || !f->pack_state || !f->load_count || !f->output_copy || !f->state_items || !f->seen ||
        !f->walk || !f->inlined || !f->fresh || !f->builder)
        return false;
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

/* Items and groups in the order of the trace, and their kernels with them: copies keep theirs in the order in which they come. */
static tg_status settle_order(tg_fusion *f, const int32_t *outputs, int output_count) {
    const size_t n = (size_t)f->node_count + (size_t)f->items.count;
    tg_kernel **made = tg_alloc(f->ctx, sizeof(tg_kernel *) * n);
    if (!made) return f->ctx->status;
    int32_t copies = f->node_count;
    for (int64_t i = 0; i < f->items.count; i++) {
        const tg_item *item = &f->items.items[i];
        made[item->copy ? copies++ : item->node] = f->groups.items[item->group].kernel;
        f->groups.items[item->group].kernel = NULL;
    }
    const bool done = make_items(f, outputs, output_count);
    copies = f->node_count;
    for (int32_t i = 0; done && i < (int32_t)f->items.count; i++) {
        tg_kernel **kernel = &made[f->items.items[i].copy ? copies++ : f->items.items[i].node];
        for (int32_t a = 0; a < (*kernel)->argument_count; a++)
            if ((*kernel)->arguments[a].buffer < 0) (*kernel)->arguments[a].buffer = -(i + 1);
        f->groups.items[f->items.items[i].group].kernel = *kernel;
        *kernel = NULL;
    }
    for (size_t i = 0; i < n; i++) tg_kernel_free(f->ctx, made[i]);
    tg_release(f->ctx, made, sizeof(tg_kernel *) * n);
    return f->ctx->status;
}

static tg_status fuse_rounds(tg_fusion *f, const int32_t *outputs, int output_count) {
    size_t n = (size_t)f->node_count;
    int32_t *users = TG_NEW(&f->arena, int32_t, n), *only_user = TG_NEW(&f->arena, int32_t, n), *cost = TG_NEW(&f->arena, int32_t, n);
    if (!users || !only_user || !cost || !find_users(f, users, only_user)) return f->ctx->status;
    for (int i = 0; i < output_count; i++) users[tg_strip_reshape(f->graph, outputs[i])] += 2;
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) users[tg_strip_reshape(f->graph, f->graph->writebacks.items[i].source)] += 2;
    for (int i = 0; i < output_count; i++) realise(f, tg_strip_reshape(f->graph, outputs[i]));
    realise_writebacks(f);
    decide_stored(f, users, only_user, cost);
    if (!make_items(f, outputs, output_count)) return f->ctx->status;
    tg_status status = build_each(f);
    if (status == TG_OK) status = settle_order(f, outputs, output_count);
    return status == TG_OK ? join_groups(f) : status;
}

tg_status tg_fuse(tg_fusion *f, tg_graph *g, const tg_device_model *device, bool no_fusion, const int32_t *outputs, int output_count) {
    memset(f, 0, sizeof *f);
    f->graph = g;
    f->ctx = g->ctx;
    f->device = device;
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
        leave_state(f, item);
        give_state(f, moved, old.state, old.state_offset);
    }
    int32_t group = add_group(f, moved);
    if (group < 0) return f->ctx->status;
    tg_status status = rebuild_group(f, &f->groups.items[group]);
    return status != TG_OK ? status : rebuild_group(f, &f->groups.items[old.group]);
}

void tg_fusion_free(tg_fusion *f) {
    for (int64_t i = 0; i < f->groups.count; i++) tg_kernel_free(f->ctx, f->groups.items[i].kernel);
    tg_release(f->ctx, f->items.items, sizeof(tg_item) * (size_t)f->items.capacity);
    tg_release(f->ctx, f->groups.items, sizeof(tg_group) * (size_t)f->groups.capacity);
    tg_arena_free(&f->arena);
}
