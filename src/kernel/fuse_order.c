/* fuse_order: an order of the groups in which each comes after those it needs, kept while groups
 * are joined. Whether one group needs another is looked up in the range between the two. Must not
 * know which pairs may be joined. */
#include "kernel/fuse_parts.h"

#include <string.h>

/* The bound of the search, so that the work grows no faster than the graph. For what it does not
 * reach, the answer is assumed that costs a kernel more, never one that could be wrong. */
#define PATH_LONGEST 1024 /* groups looked at before a group is assumed to need another */

int tg_fusion_dependencies(const tg_fusion *f, int32_t group, int32_t *out, int capacity) {
    const tg_kernel *k = f->groups.items[group].kernel;
    int count = 0;
    for (int32_t i = 0; i < k->argument_count; i++) {
        int32_t node = k->arguments[i].reference;
        if (node < 0) continue;
        if (f->item_of[node] >= 0) {
            if (count < capacity) out[count] = f->items.items[f->item_of[node]].group;
            count++;
        } else if (f->pack_state[node] >= 0) {
            for (int32_t j = f->state_items[f->pack_state[node]]; j >= 0; j = f->items.items[j].next) {
                if (count < capacity) out[count] = f->items.items[j].group;
                count++;
            }
        } else if (f->whole[node]) {
            for (int32_t j = f->whole_items[node]; j >= 0; j = f->items.items[j].next) {
                if (count < capacity) out[count] = f->items.items[j].group;
                count++;
            }
        }
    }
    return count;
}

bool tg_fuse_first_seen(fuse_scratch *s, int32_t group) {
    if (s->seen[group] == s->epoch) return false;
    s->seen[group] = s->epoch;
    return true;
}

int tg_fuse_dependencies_of(const tg_fusion *f, int32_t group, fuse_scratch *s) {
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
        const int many = tg_fuse_dependencies_of(f, g, s);
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
        f->groups.items[s->order[at]].rank = at;
        for (int32_t e = head[s->order[at]]; e >= 0; e = edges[e].next)
            if (--waiting[edges[e].to] == 0) s->order[count++] = edges[e].to;
    }
    return count == n;
}

tg_status tg_fuse_order_groups(tg_fusion *f, fuse_scratch *s) {
    size_t groups = (size_t)f->groups.count + 1, edges = 1;
    for (int32_t g = 0; g < (int32_t)f->groups.count; g++) edges += (size_t)tg_fuse_dependencies_of(f, g, s);
    order_edge *list = tg_alloc(f->ctx, sizeof(order_edge) * edges);
    int32_t *head = tg_alloc(f->ctx, sizeof(int32_t) * groups), *waiting = tg_alloc(f->ctx, sizeof(int32_t) * groups);
    tg_status status = f->ctx->status;
    if (list && head && waiting && !sort_edges(f, s, list, head, waiting)) status = TG_INTERNAL(f->ctx, "values wait for each other");
    tg_release(f->ctx, list, sizeof(order_edge) * edges);
    tg_release(f->ctx, head, sizeof(int32_t) * groups);
    tg_release(f->ctx, waiting, sizeof(int32_t) * groups);
    return status;
}

/* s->stack as a heap of ranks, the smallest on top. */
static void push_rank(fuse_scratch *s, int32_t *count, int32_t rank) {
    int32_t at = (*count)++;
    for (; at > 0 && s->stack[(at - 1) / 2] > rank; at = (at - 1) / 2) s->stack[at] = s->stack[(at - 1) / 2];
    s->stack[at] = rank;
}

static int32_t pop_rank(fuse_scratch *s, int32_t *count) {
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

/* Does `from` need `target`, by a path of at least two steps? Looks first at the groups nearest to
 * `target`. Also true if the search would take too long. */
bool tg_fuse_depends_on(const tg_fusion *f, int32_t from, int32_t target, fuse_scratch *s) {
    const int32_t earliest = f->groups.items[target].rank;
    int32_t waiting = 0, looked_at = 0;
    if (f->groups.items[from].rank < earliest) return false;
    s->epoch++;
    push_rank(s, &waiting, f->groups.items[from].rank);
    tg_fuse_first_seen(s, from);
    while (waiting > 0) {
        const int32_t at = s->order[pop_rank(s, &waiting)];
        const int count = tg_fuse_dependencies_of(f, at, s);
        if (++looked_at > PATH_LONGEST) return true;
        for (int i = 0; i < count; i++) {
            const int32_t next = s->dependencies[i];
            if (next == target && at != from) return true;
            if (next == target || f->groups.items[next].rank < earliest || !tg_fuse_first_seen(s, next)) continue;
            push_rank(s, &waiting, f->groups.items[next].rank);
        }
    }
    return false;
}

/* Two groups become one, `kept`: groups that need the earlier one and come before the later one
 * move after it. */
void tg_fuse_join_ranks(tg_fusion *f, int32_t kept, int32_t gone, fuse_scratch *s) {
    const int32_t a = f->groups.items[kept].rank, b = f->groups.items[gone].rank;
    const int32_t begin = a < b ? a : b, end = a < b ? b : a;
    int32_t at = begin, behind = 0;
    s->epoch++;
    tg_fuse_first_seen(s, s->order[begin]);
    for (int32_t i = begin + 1; i < end; i++) {
        const int32_t group = s->order[i];
        const int count = f->groups.items[group].merged_away ? 0 : tg_fuse_dependencies_of(f, group, s);
        bool moves = false;
        for (int d = 0; d < count && !moves; d++) moves = s->seen[s->dependencies[d]] == s->epoch;
        if (moves) {
            tg_fuse_first_seen(s, group);
            s->shifted[behind++] = group;
        } else s->order[at++] = group;
    }
    s->order[at++] = gone;
    s->order[at++] = kept;
    for (int32_t i = 0; i < behind; i++) s->order[at++] = s->shifted[i];
    for (int32_t i = begin; i <= end; i++) f->groups.items[s->order[i]].rank = i;
}

bool tg_fuse_make_scratch(tg_fusion *f, fuse_scratch *s) {
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

#undef PATH_LONGEST
