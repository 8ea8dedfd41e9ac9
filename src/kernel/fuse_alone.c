/* fuse_alone: one kernel for each stored value. A kernel that would be too large is cut: values
 * inside it are stored as well. Must not know which groups are joined. */
#include "kernel/fuse_parts.h"

#include <stdlib.h>

/* Bounds of searches, so that the work grows no faster than the graph. For what a search does not
 * reach, the answer is assumed that costs a kernel more, never one that could be wrong. */
#define WALK_NEAR (8 * TG_MAX_BODY) /* values looked at below one that may be cut off */
/* most values of a kernel that is cut at one value at a time */
#define CUT_STRETCH (4 * TG_MAX_BODY)

/* ---- cutting what is too large */

/* Distinct stored values below `id`, up to `limit` + 1, among the nearest nodes. */
static int distinct_loads(tg_fusion *f, int32_t id, int limit) {
    int loads = 0;
    fuse_start_walk(f);
    fuse_push_once(f, id);
    for (int32_t at = 0; at < f->walk_count && at < WALK_NEAR && loads <= limit; at++) {
        const tg_node *n = fuse_node(f, f->walk[at]);
        if (f->walk[at] != id && tg_has_storage(f, f->walk[at])) continue;
        for (int32_t i = 0; i < n->input_count && loads <= limit; i++)
            if (fuse_push_once(f, n->inputs[i])) loads += tg_has_storage(f, n->inputs[i]);
    }
    return loads;
}

/* The values below `root` that its kernel makes, without `root`, in ascending order, into
 * f->inlined; returns their number. Views only if asked for. */
static int32_t collect_inlined(tg_fusion *f, int32_t root, bool with_views) {
    int32_t count = 0;
    fuse_start_walk(f);
    fuse_push_once(f, root);
    for (int32_t at = 0; at < f->walk_count; at++) {
        const int32_t id = f->walk[at];
        if (id != root && tg_has_storage(f, id)) continue;
        if (id != root && (with_views || tg_fuse_is_recomputed(f, id))) f->inlined[count++] = id;
        for (int32_t i = 0; i < fuse_node(f, id)->input_count; i++) fuse_push_once(f, fuse_node(f, id)->inputs[i]);
    }
    qsort(f->inlined, (size_t)count, sizeof(int32_t), fuse_compare_ids);
    return count;
}

static void cut_at(tg_fusion *f, int32_t node) {
    if (f->realised[node]) return;
    f->realised[node] = true;
    f->fresh[f->fresh_count++] = node;
}

/* Of `count` inlined values, the one that reads the most buffers without itself being too wide; 0:
 * none. */
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
    int32_t cuttable; /* the value under its views, if that may be stored; else 0 */
} cut_reads;

static void add_reads(tg_fusion *f, const cut_reads *reads, int32_t input) {
    if (tg_has_storage(f, input)) fuse_push_once(f, input);
    else
        for (int32_t i = 0; i < reads[input].count; i++) fuse_push_once(f, reads[input].nodes[i]);
}

static int32_t reads_of_input(const tg_fusion *f, const cut_reads *reads, int32_t input) {
    return tg_has_storage(f, input) ? 1 : reads[input].count;
}

/* f->walk: what node `id` reads. If that is too much, operands are cut off: narrow ones are kept
 * first, so the widest are cut. */
static void cut_operands(tg_fusion *f, cut_reads *reads, int32_t id, int limit) {
    const tg_node *n = fuse_node(f, id);
    int32_t order[3] = {0, 1, 2};
    fuse_start_walk(f);
    for (int32_t i = 0; i < n->input_count; i++) add_reads(f, reads, n->inputs[i]);
    if (f->walk_count <= limit) return;
    for (int32_t i = 1; i < n->input_count && n->input_count <= 3; i++)
        for (int32_t at = i; at > 0; at--) {
            if (reads_of_input(f, reads, n->inputs[order[at - 1]]) <= reads_of_input(f, reads, n->inputs[order[at]])) break;
            const int32_t kept = order[at];
            order[at] = order[at - 1];
            order[at - 1] = kept;
        }
    fuse_start_walk(f);
    for (int32_t i = 0; i < n->input_count; i++) {
        const int32_t input = n->inputs[n->input_count <= 3 ? order[i] : i];
        if (!tg_has_storage(f, input) && reads[input].cuttable > 0 && f->walk_count + reads[input].count > limit) {
            cut_at(f, reads[input].cuttable);
            fuse_push_once(f, reads[input].cuttable);
        } else add_reads(f, reads, input);
    }
}

/* Walks the values of a very large kernel and cuts it wherever a value reads too much. False: out
 * of memory, or nothing to cut. */
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
        reads[id].cuttable = tg_fuse_is_recomputed(f, id) && kept > 1 ? id : 0;
        good = reads[id].nodes != NULL;
    }
    tg_arena_free(&arena);
    tg_release(f->ctx, reads, bytes);
    return good && f->fresh_count > before;
}

/* Also cuts values shortly before the cut at f->inlined[at] that are used after it: they would lead
 * around the cut. */
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

/* Chooses the inlined values to store so that a kernel for `root` that is too large shrinks: the
 * one that reads the most buffers without being too wide itself, or, if the body is too long, the
 * middle one; many of either if the kernel is very large. False: nothing left to store, or out of
 * memory. */
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

/* ---- building */

static tg_status fuse_fault(tg_fusion *f, int32_t node, const char *what) {
    const tg_node *n = fuse_node(f, node);
    return tg_fail(f->ctx, TG_ERROR_INTERNAL, n->site, "no kernel can be made for %s (node %d): %s", tg_op_table[n->op].name, (int)node,
                   what);
}

/* Builds the group's single item. If a value must be stored first, it is then in f->fresh, and
 * *built is false. */
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
    case TG_BUILD_LARGE: /* another group may have asked for the same values */
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

/* Groups to build next, each once. Values come in the order of the graph, copies after them, as in
 * tg_fuse_make_items. */
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

/* Stored values that recompute a fresh one are built again. */
static void add_users_to_wave(tg_fusion *f, fuse_wave *w) {
    fuse_start_walk(f);
    for (int32_t i = 0; i < f->fresh_count; i++) fuse_push_once(f, f->fresh[i]);
    for (int32_t at = 0; at < f->walk_count; at++)
        for (int32_t u = f->user_begin[f->walk[at]]; u < f->user_begin[f->walk[at] + 1]; u++) {
            const int32_t user = f->users[u];
            if (f->item_of[user] >= 0) add_to_wave(f, w, f->items.items[f->item_of[user]].group);
            else if (!tg_has_storage(f, user)) fuse_push_once(f, user);
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
        if (tg_fuse_add_item(f, f->fresh[i], false) < 0 || tg_fuse_add_group(f, (int32_t)f->items.count - 1) < 0) return f->ctx->status;
        add_to_wave(f, next, (int32_t)f->groups.count - 1);
    }
    add_users_to_wave(f, next);
    qsort(next->items, (size_t)next->count, sizeof(int64_t), compare_groups);
    return TG_OK;
}

/* Builds each item by itself. What a kernel asks for is stored, and the kernels that recomputed it
 * are built again, until all kernels exist. */
tg_status tg_fuse_build_each(tg_fusion *f) {
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

#undef WALK_NEAR
#undef CUT_STRETCH
