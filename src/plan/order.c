/* order: see plan.h. Kernels in the order of the graph as far as dependencies allow, which keeps
 * lifetimes short. */
#include "plan/plan.h"

#include <string.h>

static void loops_of_kernel(const tg_kernel *kernel, tg_loops *loops) {
    loops->count = kernel->loop_count;
    memcpy(loops->extent, kernel->extent, sizeof loops->extent);
}

static void widen(int64_t *lo, int64_t *hi, int64_t lowest, int64_t highest) {
    if (lowest < *lo) *lo = lowest;
    if (highest + 1 > *hi) *hi = highest + 1;
}

void tg_kernel_read_range(const tg_kernel *kernel, int32_t argument, int64_t *lo, int64_t *hi) {
    tg_loops loops;
    int64_t lowest, highest;
    loops_of_kernel(kernel, &loops);
    *lo = INT64_MAX;
    *hi = INT64_MIN;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        if ((x->op != TG_K_LOAD && x->op != TG_K_GATHER) || x->argument != argument) continue;
        tg_affine_range(&x->at, &loops, &lowest, &highest);
        if (x->op == TG_K_GATHER) highest += (x->rows - 1) * x->row_stride;
        widen(lo, hi, lowest, highest);
    }
    const tg_operand_access *operands[2] = {&kernel->a, &kernel->b};
    for (int i = 0; i < 2 && kernel->kind == TG_KERNEL_CONTRACT; i++)
        if (operands[i]->argument == argument) {
            tg_affine_range(&operands[i]->at, &loops, &lowest, &highest);
            widen(lo, hi, lowest, highest);
        }
}

/* The number of reductions below each instruction: the sweep over the inner loops in which it
 * runs. */
static int deepest_pass(const tg_kernel *kernel, int32_t *depth) {
    int deepest = 0;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        int below = 0;
        for (int s = 0; s < 3; s++)
            if (x->src[s] >= 0 && depth[x->src[s]] > below) below = depth[x->src[s]];
        bool reduces = x->op < TG_OP_COUNT && tg_op_table[x->op].class_ == TG_CLASS_REDUCE;
        if ((reduces || (x->op == TG_K_STORE && x->level == TG_LEVEL_ELEMENT)) && below > deepest) deepest = below;
        depth[i] = below + (reduces ? 1 : 0);
    }
    return deepest;
}

bool tg_kernel_in_place(const tg_kernel *kernel, int32_t load_argument, const tg_instruction *store, int64_t store_offset) {
    int32_t depth[512];
    tg_loops loops;
    if (kernel->body_count > 512 || kernel->kind == TG_KERNEL_SCATTER_ADD || kernel->kind == TG_KERNEL_ATTENTION) return false;
    if (kernel->kind == TG_KERNEL_CONTRACT && (kernel->a.argument == load_argument || kernel->b.argument == load_argument)) return false;
    loops_of_kernel(kernel, &loops);
    tg_affine at = store->at;
    at.offset += store_offset;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        if (x->op == TG_K_STORE || x->op == TG_K_SCATTER) continue;
        if ((x->op != TG_K_LOAD && x->op != TG_K_GATHER) || x->argument != load_argument) continue;
        if (x->op == TG_K_GATHER || x->bound_count > 0 || !tg_affine_equal(&x->at, &at, &loops)) return false;
        if (kernel->kind == TG_KERNEL_REDUCE && x->level != store->level) return false;
    }
    /* a later pass would read what this one overwrote */
    if (kernel->kind == TG_KERNEL_REDUCE && deepest_pass(kernel, depth) > depth[store->src[0]]) return false;
    return true;
}

static bool same_state(const tg_planner *p, int32_t node, int32_t state) {
    const tg_node *n = &p->graph->nodes.items[node];
    return n->op == TG_OP_STATE && n->attr.leaf == state;
}

static bool reads_old_range(const tg_planner *p, const tg_kernel *kernel, const tg_item *item, int32_t *argument) {
    int64_t count = tg_shape_count(p->graph->nodes.items[item->node].shape);
    for (int32_t i = 0; i < kernel->argument_count; i++) {
        if (tg_reference_is_item(kernel->arguments[i].reference) || !same_state(p, kernel->arguments[i].reference, item->state)) continue;
        int64_t lo, hi;
        tg_kernel_read_range(kernel, i, &lo, &hi);
        if (lo < item->state_offset + count && hi > item->state_offset) {
            *argument = i;
            return true;
        }
    }
    return false;
}

static const tg_instruction *store_of_item(const tg_kernel *kernel, int32_t item) {
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        if ((x->op == TG_K_STORE || x->op == TG_K_SCATTER) && kernel->arguments[x->argument].reference == tg_reference_of_item(item))
            return x;
    }
    return NULL;
}

/* A kernel that overwrites the state it reads must do so element by element. */
static tg_status settle_own_hazards(tg_planner *p) {
    tg_fusion *f = &p->fusion;
    for (int32_t i = 0; i < (int32_t)f->items.count; i++) {
        const tg_item item = f->items.items[i];
        int32_t argument;
        if (item.state < 0) continue;
        const tg_kernel *kernel = f->groups.items[item.group].kernel;
        if (!reads_old_range(p, kernel, &item, &argument)) continue;
        const tg_instruction *store = store_of_item(kernel, i);
        if (!store) return TG_INTERNAL(p->ctx, "a state's value is not stored");
        if (store->op == TG_K_STORE && tg_kernel_in_place(kernel, argument, store, item.state_offset)) continue;
        tg_status status = tg_fusion_redirect(f, i);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static bool add_edge(tg_planner *p, int32_t before, int32_t after, int32_t item) {
    if (before == after) return true;
    if (!tg_grow(p->ctx, (void **)&p->edges.items, &p->edges.capacity, p->edges.count + 1, sizeof(tg_plan_edge))) return false;
    p->edges.items[p->edges.count++] = (tg_plan_edge){before, after, item};
    return true;
}

/* Kernels that read a state as it was, state by state. */
typedef struct state_readers {
    int32_t *groups, *begin; /* [begin[state], begin[state + 1]) */
} state_readers;

static int32_t state_read(const tg_planner *p, const tg_kernel *kernel, int32_t argument) {
    const int32_t node = kernel->arguments[argument].reference;
    const tg_node *n = node < 0 ? NULL : &p->graph->nodes.items[node];
    return n && n->op == TG_OP_STATE ? n->attr.leaf : -1;
}

static bool find_state_readers(tg_planner *p, tg_arena *arena, state_readers *r) {
    const tg_fusion *f = &p->fusion;
    const int64_t states = p->graph->states.count;
    r->begin = TG_NEW(arena, int32_t, states + 2);
    if (!r->begin) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t g = 0; g < (int32_t)f->groups.count; g++) {
            const tg_kernel *kernel = f->groups.items[g].merged_away ? NULL : f->groups.items[g].kernel;
            for (int32_t i = 0; kernel && i < kernel->argument_count; i++) {
                const int32_t state = state_read(p, kernel, i);
                if (state >= 0 && pass == 0) r->begin[state + 2]++;
                else if (state >= 0) r->groups[r->begin[state + 1]++] = g;
            }
        }
        for (int64_t s = 0; pass == 0 && s < states; s++) r->begin[s + 2] += r->begin[s + 1];
        if (pass == 0) r->groups = TG_NEW(arena, int32_t, r->begin[states + 1] + 1);
        if (!r->groups) return false;
    }
    return true;
}

static bool collect_edges(tg_planner *p, tg_arena *arena) {
    tg_fusion *f = &p->fusion;
    state_readers readers = {NULL, NULL};
    int capacity = (int)f->items.count * 2 + 256;
    int32_t *needed = TG_NEW(arena, int32_t, capacity);
    if (!needed || !find_state_readers(p, arena, &readers)) return false;
    p->edges.count = 0;
    for (int32_t g = 0; g < (int32_t)f->groups.count; g++) {
        if (f->groups.items[g].merged_away) continue;
        int count = tg_fusion_dependencies(f, g, needed, capacity);
        for (int i = 0; i < count && i < capacity; i++)
            if (!add_edge(p, needed[i], g, -1)) return false;
    }
    for (int32_t i = 0; i < (int32_t)f->items.count; i++) {
        const tg_item *item = &f->items.items[i];
        int32_t argument;
        for (int32_t r = item->state < 0 ? 0 : readers.begin[item->state]; item->state >= 0 && r < readers.begin[item->state + 1]; r++) {
            p->ctx->work++;
            if (reads_old_range(p, f->groups.items[readers.groups[r]].kernel, item, &argument))
                if (!add_edge(p, readers.groups[r], item->group, i)) return false;
        }
    }
    return true;
}

/* ---- Kahn's algorithm, the group whose last value comes first in the trace first */

typedef struct order_queue {
    int64_t *heap; /* ranks: a node in the high half, the group in the low half; the smallest on top */
    int32_t count;
    int32_t *first_edge, *next_edge; /* by group, by edge: edges of what waits for the group */
    int32_t *waiting;                /* by group: edges not yet settled */
    /* by edge: what it waits for is in the order, or is taken out */
    bool *settled;
} order_queue;

static int64_t group_rank(const tg_fusion *f, int32_t group) {
    const tg_group *g = &f->groups.items[group];
    return (int64_t)f->items.items[g->items.items[g->items.count - 1]].node << 32 | group;
}

static void queue_push(order_queue *q, int64_t rank) {
    int32_t at = q->count++;
    for (; at > 0 && q->heap[(at - 1) / 2] > rank; at = (at - 1) / 2) q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = rank;
}

static int64_t queue_pop(order_queue *q) {
    const int64_t top = q->heap[0], last = q->heap[--q->count];
    int32_t at = 0;
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child + 1 < q->count && q->heap[child + 1] < q->heap[child]) child++;
        if (child >= q->count || q->heap[child] >= last) break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    if (q->count > 0) q->heap[at] = last;
    return top;
}

static bool make_queue(tg_planner *p, tg_arena *arena, order_queue *q) {
    const int64_t groups = p->fusion.groups.count, edges = p->edges.count;
    q->count = 0;
    q->heap = TG_NEW(arena, int64_t, groups + 1);
    q->first_edge = TG_NEW(arena, int32_t, groups + 1);
    q->next_edge = TG_NEW(arena, int32_t, edges + 1);
    q->waiting = TG_NEW(arena, int32_t, groups + 1);
    q->settled = TG_NEW(arena, bool, edges + 1);
    if (!q->heap || !q->first_edge || !q->next_edge || !q->waiting || !q->settled) return false;
    for (int64_t g = 0; g < groups; g++) q->first_edge[g] = -1;
    for (int64_t e = 0; e < edges; e++) {
        q->next_edge[e] = q->first_edge[p->edges.items[e].before];
        q->first_edge[p->edges.items[e].before] = (int32_t)e;
        q->waiting[p->edges.items[e].after]++;
    }
    return true;
}

static void queue_settle(const tg_planner *p, order_queue *q, const tg_plan_edge *edge) {
    bool *settled = &q->settled[edge - p->edges.items];
    if (!*settled && --q->waiting[edge->after] == 0) queue_push(q, group_rank(&p->fusion, edge->after));
    *settled = true;
}

static void queue_run(tg_planner *p, order_queue *q) {
    while (q->count > 0) {
        const int32_t best = (int32_t)(queue_pop(q) & 0xffffffff);
        p->order[p->order_count++] = best;
        for (int32_t e = q->first_edge[best]; e >= 0; e = q->next_edge[e]) queue_settle(p, q, &p->edges.items[e]);
    }
}

/* Orders what it can. Where groups wait for each other, an item on the way that writes a state is
 * taken out, as if it were redirected: *count of them, into `items`, until all is ordered. False:
 * it could not be. */
static bool sort_groups(tg_planner *p, order_queue *q, int32_t *items, int32_t *count) {
    tg_fusion *f = &p->fusion;
    int32_t groups = (int32_t)f->groups.count, all = 0;
    p->order_count = *count = 0;
    for (int32_t g = 0; g < groups; g++) {
        if (f->groups.items[g].merged_away) continue;
        all++;
        if (q->waiting[g] == 0) queue_push(q, group_rank(f, g));
    }
    queue_run(p, q);
    for (int64_t i = 0; i < p->edges.count && p->order_count < all; i++) {
        const tg_plan_edge first = p->edges.items[i];
        if (first.item < 0 || q->settled[i]) continue;
        items[(*count)++] = first.item;
        for (int64_t e = i; e < p->edges.count && p->edges.items[e].item == first.item; e++) queue_settle(p, q, &p->edges.items[e]);
        queue_run(p, q);
    }
    return p->order_count == all;
}

static tg_status redirect_all(tg_planner *p, const int32_t *items, int32_t count) {
    tg_status status = TG_OK;
    for (int32_t i = 0; i < count && status == TG_OK; i++) status = tg_fusion_redirect(&p->fusion, items[i]);
    return status;
}

/* *done: there is an order. Else the items that prevented it have been redirected. */
static tg_status try_order(tg_planner *p, bool *done) {
    order_queue queue;
    tg_arena arena;
    int32_t count = 0;
    tg_arena_init(&arena, p->ctx);
    p->order = TG_NEW(&arena, int32_t, p->fusion.groups.count + 1);
    int32_t *items = TG_NEW(&arena, int32_t, p->fusion.items.count + 1);
    tg_status status = TG_OK;
    if (!p->order || !items || !collect_edges(p, &arena) || !make_queue(p, &arena, &queue)) status = p->ctx->status;
    else if (!sort_groups(p, &queue, items, &count)) status = TG_INTERNAL(p->ctx, "kernels wait for each other");
    *done = count == 0;
    if (status == TG_OK) status = redirect_all(p, items, count);
    if (status == TG_OK && *done) {
        p->order = tg_arena_copy(&p->scratch, p->order, sizeof(int32_t) * (size_t)p->order_count);
        status = p->ctx->status;
    }
    tg_arena_free(&arena);
    return status;
}

static tg_status order_launch_groups(tg_planner *p) {
    tg_status status = TG_OK;
    for (bool done = false; !done && status == TG_OK;) status = try_order(p, &done);
    return status;
}

tg_status tg_plan_order(tg_planner *p) {
    tg_status status = settle_own_hazards(p);
    return status != TG_OK ? status : order_launch_groups(p);
}
