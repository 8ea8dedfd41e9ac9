/* fuse_join: joins groups while one kernel can make what two made: epilogues, rows, producers, then
 * siblings. Each join is tried by building its kernel. Must not know how a kernel is built. */
#include "kernel/fuse_parts.h"

#include <stdlib.h>
#include <string.h>

/* The bound of the search, so that the work grows no faster than the graph. For what it does not
 * reach, the answer is assumed that costs a kernel more, never one that could be wrong. */
#define SIBLINGS_NEAR 32 /* readers of a value looked at before and after a kernel that reads it */

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
    int32_t outside = f->load_count[item->node] - fuse_primary_loads(x, item->node) - (y ? fuse_primary_loads(y, item->node) : 0);
    return outside > 0;
}

/* Does `reader` read a PACK (from its state) or a whole of which `writer` writes an input? All
 * inputs must be written first: one kernel cannot do both. */
static bool reads_inputs_of(const tg_fusion *f, int32_t reader, int32_t writer) {
    const tg_kernel *k = f->groups.items[reader].kernel;
    const tg_group *w = &f->groups.items[writer];
    for (int32_t i = 0; i < k->argument_count; i++) {
        int32_t node = k->arguments[i].reference;
        if (node >= 0 && f->whole[node] && tg_fusion_writes_part(f, writer, node)) return true;
        if (node < 0 || f->item_of[node] >= 0 || f->pack_state[node] < 0) continue;
        for (int64_t j = 0; j < w->items.count; j++)
            if (f->items.items[w->items.items[j]].state == f->pack_state[node]) return true;
    }
    return false;
}

/* Is an operand in a kernel an extremum? 1: one that is made there; 2: one that is loaded; 0:
 * no. */
static int extremum_in_kernel(const tg_fusion *f, const tg_kernel *k, int32_t operand) {
    if (operand < 0) return 0;
    const tg_instruction *x = &k->body[operand];
    if (x->op == TG_OP_REDUCE_MAX || x->op == TG_OP_REDUCE_MIN) return 1;
    if (x->op != TG_K_LOAD || k->arguments[x->argument].reference < 0) return 0;
    const tg_node *n = fuse_node(f, k->arguments[x->argument].reference);
    return n->op == TG_OP_REDUCE_MAX || n->op == TG_OP_REDUCE_MIN ? 2 : 0;
}

static bool is_stored_in_kernel(const tg_kernel *k, int32_t value) {
    for (int32_t i = 0; i < k->body_count; i++)
        if (k->body[i].op == TG_K_STORE && k->body[i].src[0] == value) return true;
    return false;
}

/* Would the kernel compare an extremum with a second computation of the values it was taken of? See
 * store_compared_extrema. */
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

/* Where launches hold chains of kernels, a chain continues as soon as it has what it needs. A total
 * that others wait for (such as how many elements count) must then not be made together with one
 * that comes later (such as the loss). */
static bool delays_total(const tg_fusion *f, int32_t total, int32_t later, fuse_scratch *s) {
    const tg_group *a = &f->groups.items[total], *b = &f->groups.items[later];
    if (!f->device->joins || a->domain.kind != TG_KERNEL_REDUCE || a->domain.rows >= TG_FEWEST_SLICES) return false;
    bool wanted = false;
    for (int64_t i = 0; i < a->items.count && !wanted; i++) {
        const int32_t node = f->items.items[a->items.items[i]].node;
        wanted = f->load_count[node] - fuse_primary_loads(a->kernel, node) - fuse_primary_loads(b->kernel, node) > 0;
    }
    if (!wanted) return false;
    s->epoch++;
    tg_fuse_first_seen(s, total);
    const int before = tg_fuse_dependencies_of(f, total, s);
    for (int i = 0; i < before; i++) tg_fuse_first_seen(s, s->dependencies[i]);
    const int after = tg_fuse_dependencies_of(f, later, s);
    for (int i = 0; i < after; i++)
        if (s->seen[s->dependencies[i]] != s->epoch) return true;
    return false;
}

/* Does the least that the joint kernel reads, stores and computes exceed what a kernel may have? */
static bool joint_too_large(tg_fusion *f, int32_t ia, int32_t ib, int count, const fuse_scratch *s) {
    const int32_t pair[2] = {ia, ib};
    int32_t reads = 0, stores = 0, computed = 0;
    fuse_start_walk(f);
    for (int side = 0; side < 2; side++) {
        const tg_kernel *k = f->groups.items[pair[side]].kernel;
        for (int32_t i = 0; i < k->argument_count; i++) {
            const int32_t node = k->arguments[i].reference;
            if (node < 0) continue;
            const int32_t group = f->item_of[node] < 0 ? -1 : f->items.items[f->item_of[node]].group;
            if (group != ia && group != ib) reads += fuse_push_once(f, node);
        }
    }
    for (int i = 0; i < count; i++) stores += s->stored[i];
    for (int side = 0; side < 2; side++) {
        const tg_kernel *k = f->groups.items[pair[side]].kernel;
        /* its operands are read, but not by the body */
        if (k->kind == TG_KERNEL_CONTRACT) computed -= 2;
        for (int32_t i = 0; i < k->node_count; i++) {
            const tg_node *n = fuse_node(f, k->nodes[i]);
            if (n->op != TG_OP_STOP_GRADIENT && tg_op_table[n->op].class_ != TG_CLASS_JOIN) computed += fuse_push_once(f, k->nodes[i]);
        }
    }
    return reads + stores > f->device->max_arguments || reads + stores + computed > TG_MAX_BODY;
}

/* Joins b into a when one kernel can make both. */
static tg_status try_join(tg_fusion *f, int32_t ia, int32_t ib, fuse_scratch *s, bool *joined) {
    tg_group *a = &f->groups.items[ia], *b = &f->groups.items[ib];
    tg_domain domain;
    *joined = false;
    if (a->items.count + b->items.count > TG_MAX_BODY / 4 || !tg_fuse_join_domains(f, &a->domain, &b->domain, &domain)) return TG_OK;
    if (reads_inputs_of(f, ia, ib) || reads_inputs_of(f, ib, ia)) return TG_OK;
    if (delays_total(f, ia, ib, s) || delays_total(f, ib, ia, s)) {
        a->changed = s->sweep; /* the answer may change when others have been joined */
        return TG_OK;
    }
    int count = joint_items(f, a, b, s->joint);
    for (int i = 0; i < count; i++) s->stored[i] = item_needed_outside(f, &f->items.items[s->joint[i]], a->kernel, b->kernel);
    if (joint_too_large(f, ia, ib, count, s) || tg_fuse_depends_on(f, ib, ia, s) || tg_fuse_depends_on(f, ia, ib, s)) return TG_OK;
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
    tg_fuse_join_ranks(f, ia, ib, s);
    fuse_count_loads(f, a->kernel, -1);
    fuse_count_loads(f, b->kernel, -1);
    fuse_count_loads(f, kernel, 1);
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

/* ---- pairs */

/* A kind of pair: fits: may the two be joined? find: the possible partners of b, into s->near. */
typedef struct join_kind {
    bool (*fits)(const tg_fusion *f, int32_t a, int32_t b);
    void (*find)(tg_fusion *f, int32_t b, fuse_scratch *s);
} join_kind;

/* In all kinds except the last, b reads a. */
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

/* Neither needs the other; both read some value in common over the same loops. */
static bool sibling_pair(const tg_fusion *f, int32_t a, int32_t b) {
    const tg_group *x = &f->groups.items[a], *y = &f->groups.items[b];
    if (x->domain.kind != y->domain.kind || x->domain.elements != y->domain.elements || x->domain.rows != y->domain.rows) return false;
    for (int32_t i = 0; i < x->kernel->argument_count; i++)
        if (x->kernel->arguments[i].reference >= 0 && fuse_primary_loads(y->kernel, x->kernel->arguments[i].reference)) return true;
    return false;
}

static void add_near(fuse_scratch *s, int32_t group) {
    if (tg_fuse_first_seen(s, group)) s->near[s->near_count++] = group;
}

static void find_read(tg_fusion *f, int32_t b, fuse_scratch *s) {
    const tg_kernel *k = f->groups.items[b].kernel;
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].reference >= 0 && f->item_of[k->arguments[i].reference] >= 0)
            add_near(s, f->items.items[f->item_of[k->arguments[i].reference]].group);
}

static int32_t behind_joins(tg_fusion *f, int32_t group) {
    while (f->groups.items[group].merged_away) {
        tg_group *g = &f->groups.items[group];
        if (f->groups.items[g->merged_into].merged_away) g->merged_into = f->groups.items[g->merged_into].merged_into;
        group = g->merged_into;
    }
    return group;
}

/* The nearest groups that read what b reads. */
static void find_siblings(tg_fusion *f, int32_t b, fuse_scratch *s) {
    const tg_kernel *k = f->groups.items[b].kernel;
    for (int32_t i = 0; i < k->argument_count; i++) {
        const int32_t node = k->arguments[i].reference;
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
            if (k->arguments[i].reference >= 0) s->readers[--s->reader_begin[k->arguments[i].reference + 1]] = g;
    }
    /* now where the readers of each node begin */
    memmove(s->reader_begin, s->reader_begin + 1, sizeof(int32_t) * (size_t)f->node_count);
    s->reader_begin[f->node_count] = total;
}

/* Nothing has changed since both were last refused. */
static bool tried_before(const tg_fusion *f, int32_t a, int32_t b, const fuse_scratch *s) {
    return f->groups.items[a].changed < s->sweep - 1 && f->groups.items[b].changed < s->sweep - 1;
}

/* Joins b with the first partner that it can be joined with. */
static tg_status join_one(tg_fusion *f, int32_t b, const join_kind *kind, fuse_scratch *s, bool *joined) {
    s->near_count = 0;
    s->epoch++;
    kind->find(f, b, s);
    f->ctx->work += s->near_count;
    qsort(s->near, (size_t)s->near_count, sizeof(int32_t), fuse_compare_ids);
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

/* ---- all kinds */

/* Builds a group's kernel (again), with stores for values that are pinned or read outside it. */
tg_status tg_fuse_rebuild_group(tg_fusion *f, tg_group *group) {
    bool stored[TG_MAX_BODY];
    tg_kernel *old = group->kernel;
    for (int64_t i = 0; i < group->items.count; i++) {
        const tg_item *item = &f->items.items[group->items.items[i]];
        stored[i] = item->pinned || f->load_count[item->node] - (old ? fuse_primary_loads(old, item->node) : 0) > 0;
    }
    int32_t culprit;
    tg_kernel *kernel = NULL;
    tg_build_status status = tg_build_kernel(f, group->items.items, (int)group->items.count, stored, &group->domain, &kernel, &culprit);
    if (status == TG_BUILD_FAILED) return f->ctx->status;
    if (status != TG_BUILD_OK) return TG_INTERNAL(f->ctx, "a kernel could not be built again");
    if (old) fuse_count_loads(f, old, -1);
    fuse_count_loads(f, kernel, 1);
    tg_kernel_free(f->ctx, old);
    group->kernel = kernel;
    return TG_OK;
}

/* Drops stores of values that no other kernel reads any more. */
static tg_status drop_idle_stores(tg_fusion *f) {
    tg_status status = TG_OK;
    for (int64_t g = 0; g < f->groups.count && status == TG_OK; g++)
        if (!f->groups.items[g].merged_away) status = tg_fuse_rebuild_group(f, &f->groups.items[g]);
    return status;
}

tg_status tg_fuse_join_groups(tg_fusion *f) {
    static const join_kind kinds[] = {
        {epilogue_pair, find_read}, {row_pair, find_read}, {producer_pair, find_read}, {sibling_pair, find_siblings}};
    fuse_scratch s;
    for (int64_t i = 0; i < f->groups.count; i++) fuse_count_loads(f, f->groups.items[i].kernel, 1);
    if (!f->no_fusion) {
        if (!tg_fuse_make_scratch(f, &s)) return f->ctx->status;
        tg_status status = tg_fuse_order_groups(f, &s);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && status == TG_OK; i++) status = join_all(f, &kinds[i], &s);
        if (status != TG_OK) return status;
    }
    return drop_idle_stores(f);
}

#undef SIBLINGS_NEAR
