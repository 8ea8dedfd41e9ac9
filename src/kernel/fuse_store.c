/* fuse_store: which values are stored and which are recomputed by their readers. Must not know
 * groups or kernels. */
#include "kernel/fuse_parts.h"

#include <string.h>

#define STORE_WALK 64 /* nodes in the walk over one expression */

void tg_fuse_realise(tg_fusion *f, int32_t node) {
    if (node > 0 && !fuse_leaf_storage(fuse_node(f, node)) && f->pack_state[node] < 0 && !f->whole[node]) f->realised[node] = true;
}

/* An operand that must be read from memory through views: its base is stored. */
static void realise_base(tg_fusion *f, int32_t node) {
    while (fuse_class(f, node) == TG_CLASS_VIEW && !f->realised[node]) node = fuse_node(f, node)->inputs[0];
    tg_fuse_realise(f, node);
}

/* The end of the path of elementwise nodes, each the only user of the one before, that begins at a
 * contraction: what its epilogue stores. */
static int32_t path_end(const tg_fusion *f, int32_t node, const int32_t *users, const int32_t *only_user) {
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

/* Are all users of `node` reshapes, and does one of them join its last axis with those before, so
 * that pieces of rows are whole rows there? */
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

/* What the contraction stores instead of `end`, the end of its path: a permutation of it, its only
 * user, that puts pieces of rows side by side which its users read as whole rows (the heads of
 * attention, back in the rows of their tokens). Stored in this way it is written once in pieces,
 * and all read plain rows. The last axis of the permutation must be the last one of the result or
 * of its rows, so that pieces are contiguous. 0: there is none. */
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

static const uint8_t operation_costs[TG_OP_COUNT] = {
    TG_COST_FREE, /* poison */
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, ...) TG_COST_##cost,
#include "ir/ops.def"
#undef TG_OP
};

/* A value that is repeated, such as one number for each row, is computed once for all of its
 * repetitions. */
static int32_t repeated_cost(tg_shape repeated, tg_shape of, int32_t cost) {
    const int64_t times = tg_shape_count(repeated) / tg_shape_count(of);
    return cost / times < TG_COST_CHEAP ? (cost < TG_COST_CHEAP ? cost : TG_COST_CHEAP) : (int32_t)(cost / times);
}

/* Cost of computing one element from stored values, from above: a shared subexpression counts once
 * for each user, capped. */
static void recompute_costs(const tg_fusion *f, int32_t *cost) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (fuse_leaf_storage(n) || f->realised[id] || f->whole[id]) cost[id] = TG_COST_CHEAP;
        else if (tg_op_table[n->op].class_ == TG_CLASS_LEAF) cost[id] = 0;
        else {
            int32_t sum = tg_op_table[n->op].class_ == TG_CLASS_VIEW ? 0 : operation_costs[n->op];
            for (int32_t i = 0; i < n->input_count && sum < 1000; i++) sum += cost[n->inputs[i]];
            if (n->op == TG_OP_BROADCAST) sum = repeated_cost(n->shape, fuse_node(f, n->inputs[0])->shape, sum);
            if (n->op == TG_OP_FOLD) sum = n->attr.window.size * sum < 1000 ? (int32_t)n->attr.window.size * sum : 1000;
            cost[id] = sum;
        }
    }
}

bool tg_fuse_is_recomputed(const tg_fusion *f, int32_t id) {
    const tg_node *n = fuse_node(f, id);
    return f->live[id] && !f->realised[id] && !fuse_leaf_storage(n) && f->pack_state[id] < 0 && !f->whole[id] &&
           (tg_op_is_elementwise(n->op) || n->op == TG_OP_GATHER || n->op == TG_OP_CONCAT || n->op == TG_OP_PACK || n->op == TG_OP_FOLD);
}

/* Does it cost more than TG_COST_STORE to compute one element of `node` from stored values? Here a
 * shared subexpression counts once. cost: from above. A bounded walk. */
static bool costs_more_than_storing(const tg_fusion *f, int32_t node, const int32_t *cost) {
    int32_t seen[STORE_WALK], count = 1, sum = 0;
    seen[0] = node;
    for (int32_t at = 0; at < count && sum <= TG_COST_STORE; at++) {
        const int32_t id = seen[at];
        const tg_node *n = fuse_node(f, id);
        const bool stored = id != node && (fuse_leaf_storage(n) || f->realised[id] || f->whole[id]);
        if (stored || n->op == TG_OP_BROADCAST || n->op == TG_OP_FOLD || n->input_count == 0) {
            sum += cost[id];
            continue;
        }
        sum += tg_op_table[n->op].class_ == TG_CLASS_VIEW ? 0 : operation_costs[n->op];
        for (int32_t i = 0; i < n->input_count; i++) {
            int32_t known = 0;
            while (known < count && seen[known] != n->inputs[i]) known++;
            if (known < count) continue;
            if (count == STORE_WALK) return true;
            seen[count++] = n->inputs[i];
        }
    }
    return sum > TG_COST_STORE;
}

/* Of the values that store_shared chose, those that cost little to compute from the ones below them
 * that stay stored are recomputed after all. Each node is visited after its operands. */
static void recompute_cheap(tg_fusion *f, const int32_t *cost, const int32_t *shared) {
    for (int32_t id = 1; id < f->node_count; id++)
        if (shared[id]) f->realised[id] = costs_more_than_storing(f, id, cost);
}

/* Chooses values that several stored values would each recompute at a cost; shared[node] says which.
 * roots[node] is the root that reaches it, or `several`. Each node is visited after its users, so
 * they are settled. */
static void store_shared(tg_fusion *f, int32_t *cost, int32_t *roots, int32_t *shared) {
    const int32_t several = -1;
    memset(shared, 0, sizeof(int32_t) * (size_t)f->node_count);
    memset(roots, 0, sizeof(int32_t) * (size_t)f->node_count);
    for (int32_t id = f->node_count - 1; id > 0; id--) {
        if (!f->live[id]) continue;
        shared[id] = tg_fuse_is_recomputed(f, id) && roots[id] == several && cost[id] > TG_COST_STORE;
        if (shared[id]) tg_fuse_realise(f, id);
        int32_t root = f->realised[id] || f->whole[id] ? id : roots[id];
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; i < n->input_count; i++) {
            int32_t *r = &roots[n->inputs[i]];
            *r = *r == 0 || *r == root ? root : several;
        }
    }
}

/* base[id]: the value under the views, if `id` is a view; else `id`. */
static void find_bases(const tg_fusion *f, int32_t *base) {
    for (int32_t id = 1; id < f->node_count; id++) base[id] = fuse_class(f, id) == TG_CLASS_VIEW ? base[fuse_node(f, id)->inputs[0]] : id;
}

/* A tensor that is compared with itself at other positions (which element comes first?) must have
 * the same bits at both: it is stored, for the reason below. */
static void store_compared_places(tg_fusion *f, const int32_t *base) {
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        if (f->live[id] && n->op == TG_OP_LESS && base[n->inputs[0]] == base[n->inputs[1]]) realise_base(f, n->inputs[0]);
    }
}

/* The gradient of an extremum goes where x equals max(x): exactly the bits that the reduction saw,
 * so x is stored. If it were computed again elsewhere, with other roundings (a b + c in one step or
 * in two), no element might be equal. */
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

void tg_fuse_decide_stored(tg_fusion *f, int32_t *users, int32_t *only_user, int32_t *cost) {
    for (int32_t id = 1; id < f->node_count; id++) {
        if (!f->live[id]) continue;
        const tg_node *n = fuse_node(f, id);
        switch (tg_op_table[n->op].class_) {
        case TG_CLASS_REDUCE: tg_fuse_realise(f, id); break;
        case TG_CLASS_CONTRACT:
            tg_fuse_realise(f, id);
            realise_base(f, n->inputs[0]);
            realise_base(f, n->inputs[1]);
            break;
        case TG_CLASS_ATTENTION:
            tg_fuse_realise(f, id);
            for (int32_t i = 0; i < n->input_count; i++) realise_base(f, n->inputs[i]);
            break;
        case TG_CLASS_INDEX:
            if (n->op == TG_OP_SCATTER_ADD) tg_fuse_realise(f, id);
            else realise_base(f, n->inputs[0]);
            break;
        case TG_CLASS_LEAF:
        case TG_CLASS_VIEW: break;
        default:
            if (f->no_fusion) tg_fuse_realise(f, id);
        }
        if (f->no_fusion && n->op == TG_OP_GATHER) tg_fuse_realise(f, id);
    }
    if (f->no_fusion) return;
    for (int32_t id = 1; id < f->node_count; id++)
        if (f->live[id] && fuse_node(f, id)->op == TG_OP_CONTRACT) {
            f->realised[id] = false;
            int32_t end = path_end(f, id, users, only_user), permuted = joined_permutation(f, id, end, users, only_user);
            /* readers that wanted it in memory read the permutation */
            if (permuted > 0) f->realised[end] = false;
            f->realised[id] = true;
            tg_fuse_realise(f, permuted > 0 ? permuted : end);
        }
    find_bases(f, cost);
    store_compared_extrema(f, cost);
    store_compared_places(f, cost);
    recompute_costs(f, cost);
    store_shared(f, cost, only_user, users);
    recompute_cheap(f, cost, users);
}

void tg_fuse_realise_writebacks(tg_fusion *f) {
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) {
        int32_t source = tg_strip_reshape(f->graph, f->graph->writebacks.items[i].source);
        const tg_node *n = fuse_node(f, source);
        tg_fuse_realise(f, source);
        for (int32_t p = 0; p < n->input_count && f->pack_state[source] >= 0; p++)
            tg_fuse_realise(f, tg_strip_reshape(f->graph, n->inputs[p]));
    }
}

#undef STORE_WALK
