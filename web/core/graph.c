/* graph: exports for traces and graphs. Owns the table of graphs. Must not decide anything: the
 * functions that it calls make every check. */
#include "arguments.h"
#include "boundary.gen.h"
#include "core.h"

#include <string.h>

static TG_LIST(tg_graph *) web_graphs; /* by number - 1; NULL if destroyed, or if its trace failed */

tg_graph *web_graph_of(web_graph number) {
    if (number >= 1 && number <= web_graphs.count && web_graphs.items[number - 1] != NULL) return web_graphs.items[number - 1];
    tg_fail(web_context, TG_ERROR_TRACE, TG_SITE_NONE, "a tensor of a trace that has failed, or whose graph was destroyed");
    return NULL;
}

static tg_tensor web_build(tg_graph *g, void *user) {
    int32_t built[2] = {0, 0};
    (void)user;
    web_graphs.items[web_graphs.count++] = g;
    web_js_build((int32_t)web_graphs.count, built);
    return built[0] != 0 ? web_tensor_of(built[0], built[1]) : (tg_tensor){g, 0};
}

WEB_EXPORT(int32_t, trace)(void) {
    int32_t number = (int32_t)web_graphs.count + 1;
    if (!tg_grow(web_context, (void **)&web_graphs.items, &web_graphs.capacity, number, sizeof(tg_graph *))) return 0;
    if (tg_trace_at(TG_SITE_NONE, web_context, web_build, NULL, NULL) != NULL) return number;
    if (web_graphs.count == number) web_graphs.items[number - 1] = NULL;
    return 0;
}

WEB_EXPORT(int32_t, trace_into)(int32_t graph) {
    tg_graph *g = web_graph_of(graph);
    int32_t built[2] = {0, 0};
    if (g == NULL) return (int32_t)tg_error(web_context);
    if (web_context->trace != NULL)
        return (int32_t)tg_fail(web_context, TG_ERROR_TRACE, TG_SITE_NONE,
                                "trace: another trace is in progress: a build function cannot trace");
    tg_clear_error(web_context);
    web_context->trace = g;
    g->building = true;
    web_js_build(graph, built);
    g->building = false;
    g->current_op = NULL;
    web_context->trace = NULL;
    if (built[0] != 0 && built[0] != graph)
        return (int32_t)tg_fail(web_context, TG_ERROR_TRACE, TG_SITE_NONE, "trace: the build function returned a tensor of another trace");
    if (built[1] > 0 && built[1] < g->nodes.count) g->result = built[1];
    return (int32_t)tg_error(web_context);
}

WEB_EXPORT(void, graph_destroy)(int32_t graph) {
    tg_graph *g = web_graph_of(graph);
    if (g == NULL) return;
    tg_graph_destroy(g);
    web_graphs.items[graph - 1] = NULL;
}

WEB_EXPORT(void, graph_initial)(int32_t graph, int32_t i, double seed_low, double seed_high, float *out, int32_t count) {
    const tg_graph *g = web_graph_of(graph);
    const uint64_t seed = (uint64_t)web_whole(seed_low) | (uint64_t)web_whole(seed_high) << 32;
    if (g == NULL || i < 0 || i >= g->params.count || count > tg_shape_count(g->params.items[i].shape)) return;
    tg_param_initial_values(&g->params.items[i], seed, 0, count, out);
}

WEB_EXPORT(const char *, graph_text)(int32_t graph) {
    const tg_graph *g = web_graph_of(graph);
    if (g == NULL) return NULL;
    tg_text_clear(&web_text);
    tg_graph_print(g, &web_text);
    return web_text_done();
}

WEB_EXPORT(void, graph_set_decay)(int32_t graph, int32_t i, int32_t decay) {
    tg_graph *g = web_graph_of(graph);
    if (g != NULL && i >= 0 && i < g->params.count) g->params.items[i].decay = decay != 0;
}

WEB_EXPORT(void, graph_unmark)(int32_t graph) {
    tg_graph *g = web_graph_of(graph);
    if (g != NULL) tg_unmark_params(g);
}

WEB_EXPORT(int32_t, graph_mark_group)(int32_t graph, const char *pattern, const double *numbers) {
    tg_graph *g = web_graph_of(graph);
    if (g == NULL) return (int32_t)TG_ERROR_ARGUMENT;
    tg_param_group group = web_param_group_of(numbers);
    group.pattern = pattern;
    return (int32_t)tg_mark_group(g, TG_SITE_NONE, &group);
}

static void web_settle(tg_site *site, const web_site *sites, int32_t count) {
    if (site->file == NULL || strcmp(site->file, WEB_NUMBERED) != 0) return;
    int32_t begin = 0, end = count;
    while (begin < end) {
        const int32_t middle = begin + (end - begin) / 2;
        if (sites[middle].number < site->line) begin = middle + 1;
        else end = middle;
    }
    if (begin < count && sites[begin].number == site->line) *site = (tg_site){sites[begin].file, sites[begin].line};
}

WEB_EXPORT(void, graph_settle_sites)(int32_t graph, const web_site *sites, int32_t count) {
    tg_graph *g = web_graph_of(graph);
    if (g == NULL) return;
    for (int64_t i = 0; i < g->nodes.count; i++) web_settle(&g->nodes.items[i].site, sites, count);
    for (int64_t i = 0; i < g->writebacks.count; i++) web_settle(&g->writebacks.items[i].site, sites, count);
    for (int64_t i = 0; i < g->checks.count; i++) web_settle(&g->checks.items[i].site, sites, count);
}

WEB_EXPORT(int32_t, graph_write)(int32_t graph) {
    const tg_graph *g = web_graph_of(graph);
    if (g == NULL) return -1;
    tg_text_clear(&web_text);
    return tg_graph_write(g, &web_text) == TG_OK ? (int32_t)web_text.length : -1;
}
