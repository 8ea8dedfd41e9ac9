/* fuse: see fuse.h. Three steps: decide which values are stored, build one kernel for each of them,
 * then join kernels as long as the joint kernel can be built. Every decision is checked by
 * building, so a rule that is too bold costs a refused join, never a wrong kernel. The numbers are
 * in cost.h. */
#include "kernel/fuse_parts.h"

#include <string.h>

bool tg_has_storage(const tg_fusion *f, int32_t node) {
    return f->item_of[node] >= 0 || f->pack_state[node] >= 0 || f->whole[node] || fuse_leaf_storage(fuse_node(f, node));
}

int32_t tg_strip_reshape(const tg_graph *g, int32_t node) {
    while (g->nodes.items[node].op == TG_OP_RESHAPE) node = g->nodes.items[node].inputs[0];
    return node;
}

/* ---- live nodes */

static void spread_live(tg_fusion *f) {
    for (int32_t id = f->node_count - 1; id > 0; id--)
        if (f->live[id])
            for (int32_t i = 0; i < fuse_node(f, id)->input_count; i++) f->live[fuse_node(f, id)->inputs[i]] = true;
}

/* users[id]: how often live nodes take id; only_user: the last of those nodes. f->users: all of
 * them, node by node. */
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
    /* user_begin[id + 1] moves from the begin of id's users to their end */
    for (int32_t id = 1; id < f->node_count; id++) {
        const tg_node *n = fuse_node(f, id);
        for (int32_t i = 0; f->live[id] && i < n->input_count; i++) f->users[f->user_begin[n->inputs[i] + 1]++] = id;
    }
    return true;
}

/* ---- all steps */

static bool make_tables(tg_fusion *f) {
    size_t n = (size_t)f->node_count;
    f->live = TG_NEW(&f->arena, bool, n);
    f->realised = TG_NEW(&f->arena, bool, n);
    f->item_of = TG_NEW(&f->arena, int32_t, n);
    f->pack_state = TG_NEW(&f->arena, int32_t, n);
    f->load_count = TG_NEW(&f->arena, int32_t, n);
    f->output_copy = TG_NEW(&f->arena, int32_t, n);
    f->nested = TG_NEW(&f->arena, bool, n);
    f->whole = TG_NEW(&f->arena, bool, n);
    f->whole_items = TG_NEW(&f->arena, int32_t, n);
    f->state_items = TG_NEW(&f->arena, int32_t, f->graph->states.count + 1);
    f->seen = TG_NEW(&f->arena, int32_t, n);
    f->walk = TG_NEW(&f->arena, int32_t, n);
    f->inlined = TG_NEW(&f->arena, int32_t, n);
    f->fresh = TG_NEW(&f->arena, int32_t, n);
    f->builder = tg_builder_create(&f->arena);
    if (!f->live || !f->realised || !f->item_of || !f->pack_state || !f->load_count || !f->output_copy || !f->whole || !f->nested ||
        !f->whole_items || !f->state_items || !f->seen || !f->walk || !f->inlined || !f->fresh || !f->builder)
        return false;
    for (size_t i = 0; i < n; i++) f->item_of[i] = f->pack_state[i] = -1;
    return true;
}

static void find_packs(tg_fusion *f) {
    for (int64_t i = 0; i < f->graph->writebacks.count; i++) {
        const tg_writeback_info *w = &f->graph->writebacks.items[i];
        int32_t source = tg_strip_reshape(f->graph, w->source);
        if (fuse_node(f, source)->op == TG_OP_PACK && f->pack_state[source] < 0) f->pack_state[source] = tg_fuse_writeback_state(f, w);
    }
}

/* Puts items and groups in the order of the graph, with their kernels. The kernels of copies keep
 * the order in which the copies are made. */
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
    const bool done = tg_fuse_make_items(f, outputs, output_count);
    copies = f->node_count;
    for (int32_t i = 0; done && i < (int32_t)f->items.count; i++) {
        tg_kernel **kernel = &made[f->items.items[i].copy ? copies++ : f->items.items[i].node];
        for (int32_t a = 0; a < (*kernel)->argument_count; a++)
            if (tg_reference_is_item((*kernel)->arguments[a].reference)) (*kernel)->arguments[a].reference = tg_reference_of_item(i);
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
    if (!f->no_fusion && !tg_fuse_find_wholes(f, users, only_user)) return f->ctx->status;
    for (int i = 0; i < output_count; i++) tg_fuse_realise(f, tg_strip_reshape(f->graph, outputs[i]));
    tg_fuse_realise_writebacks(f);
    tg_fuse_decide_stored(f, users, only_user, cost);
    if (!tg_fuse_make_items(f, outputs, output_count)) return f->ctx->status;
    tg_status status = tg_fuse_build_each(f);
    if (status == TG_OK) status = settle_order(f, outputs, output_count);
    return status == TG_OK ? tg_fuse_join_groups(f) : status;
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

/* A copy leaves its kernel and gets one of its own. A value keeps its kernel, and a new copy of it
 * goes to the state. */
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
        moved = tg_fuse_add_item(f, old.node, true);
        if (moved < 0) return f->ctx->status;
        tg_fuse_leave_state(f, item);
        tg_fuse_give_state(f, moved, old.state, old.state_offset);
    }
    int32_t group = tg_fuse_add_group(f, moved);
    if (group < 0) return f->ctx->status;
    tg_status status = tg_fuse_rebuild_group(f, &f->groups.items[group]);
    return status != TG_OK ? status : tg_fuse_rebuild_group(f, &f->groups.items[old.group]);
}

void tg_fusion_free(tg_fusion *f) {
    for (int64_t i = 0; i < f->groups.count; i++) tg_kernel_free(f->ctx, f->groups.items[i].kernel);
    tg_release(f->ctx, f->items.items, sizeof(tg_item) * (size_t)f->items.capacity);
    tg_release(f->ctx, f->boxes.items, sizeof(tg_part) * (size_t)f->boxes.capacity);
    tg_release(f->ctx, f->groups.items, sizeof(tg_group) * (size_t)f->groups.capacity);
    tg_arena_free(&f->arena);
}
