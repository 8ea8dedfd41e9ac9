/* graph: makes and destroys graphs, looks up nodes, and names them in messages. Must not know shape
 * rules, printing or files. */
#include "ir/rules.h"

#include <stdio.h>
#include <string.h>

static void graph_free_lists(tg_graph *g) {
    tg_context *ctx = g->ctx;
    tg_release(ctx, g->nodes.items, (size_t)g->nodes.capacity * sizeof *g->nodes.items);
    tg_release(ctx, g->inputs.items, (size_t)g->inputs.capacity * sizeof *g->inputs.items);
    tg_release(ctx, g->params.items, (size_t)g->params.capacity * sizeof *g->params.items);
    tg_release(ctx, g->states.items, (size_t)g->states.capacity * sizeof *g->states.items);
    tg_release(ctx, g->captures.items, (size_t)g->captures.capacity * sizeof *g->captures.items);
    tg_release(ctx, g->writebacks.items, (size_t)g->writebacks.capacity * sizeof *g->writebacks.items);
    tg_release(ctx, g->checks.items, (size_t)g->checks.capacity * sizeof *g->checks.items);
    tg_release(ctx, g->scopes.items, (size_t)g->scopes.capacity * sizeof *g->scopes.items);
}

tg_graph *tg_graph_create(tg_context *ctx) {
    tg_graph *g = tg_alloc(ctx, sizeof *g);
    if (!g) return NULL;
    g->ctx = ctx;
    tg_alive_add(&g->alive, g, ctx);
    g->current_site = TG_SITE_NONE;
    tg_arena_init(&g->arena, ctx);
    bool ok;
    TG_LIST_ROOM(g, nodes, ok);
    if (!ok) {
        tg_graph_destroy(g);
        return NULL;
    }
    g->nodes.items[0].site = TG_SITE_NONE;
    g->nodes.count = 1; /* poison */
    return g;
}

void tg_graph_destroy(tg_graph *graph) {
    if (!graph) return;
    tg_context *ctx = graph->ctx;
    if (graph->building) {
        tg_fail(ctx, TG_ERROR_TRACE, graph->current_site, "graph_destroy: a build function cannot destroy the graph it is building");
        return;
    }
    tg_alive_remove(&graph->alive);
    if (ctx->trace == graph) ctx->trace = NULL;
    graph_free_lists(graph);
    tg_arena_free(&graph->arena);
    tg_release(ctx, graph, sizeof *graph);
}

const tg_node *tg_graph_node(const tg_graph *g, int32_t id) { return &g->nodes.items[id > 0 && id < g->nodes.count ? id : 0]; }

const char *tg_node_text(const tg_graph *g, int32_t id, char *buffer, size_t size) {
    const tg_node *node = tg_graph_node(g, id);
    char shape[TG_SHAPE_TEXT];
    (void)tg_shape_text(node->shape, shape, sizeof shape);
    const bool named = node->name && node->name[0];
    const bool is_f32 = node->dtype == TG_F32;
    (void)snprintf(buffer, size, "%s%s%s%s", named ? node->name : tg_op_table[node->op].name, shape, is_f32 ? "" : " ",
                   is_f32 ? "" : tg_dtype_name(node->dtype));
    return buffer;
}
