/* exports: see exports.h. Owns the one context, the table of graphs and the last text handed out. Must not decide anything: every check
 * is made by what it calls. */
#include "exports.h"

#include "run/steps.h"
#include "run/web/web.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tg_context *web_context;
static tg_text_buffer web_text;
static TG_LIST(tg_graph *) web_graphs; /* by number - 1; NULL: destroyed, or its trace failed */

/* ---------------------------------------------------------------- module */

void __wasm_call_ctors(void); /* empty, but unless it is called the linker wraps it around every export */

static void web_log(void *user, tg_log_level level, const char *message) {
    (void)user;
    if (level == TG_LOG_WARNING) web_js_warn(message);
}

WEB_EXPORT(int32_t, init)(void) {
    __wasm_call_ctors();
    web_context = tg_context_create(&(tg_context_options){.log = web_log});
    if (web_context == NULL) return 0;
    tg_text_init(&web_text, web_context);
    return 1;
}

WEB_EXPORT(int32_t, has_cpu)(void) {
#ifdef TG_WEB_NO_CPU
    return 0;
#else
    return 1;
#endif
}

WEB_EXPORT(const char *, version)(void) { return tg_version(); }
WEB_EXPORT(void *, alloc)(uint32_t bytes) { return malloc(bytes); }
WEB_EXPORT(void, free)(void *block) { free(block); }
WEB_EXPORT(int32_t, live_bytes)(void) { return (int32_t)web_context->live_bytes; }

WEB_EXPORT(int32_t, error_status)(void) { return (int32_t)tg_error(web_context); }
WEB_EXPORT(const char *, error_message)(void) { return tg_error_message(web_context); }
WEB_EXPORT(const char *, error_file)(void) { return tg_error_site(web_context).file; }
WEB_EXPORT(int32_t, error_line)(void) { return tg_error_site(web_context).line; }
WEB_EXPORT(void, error_clear)(void) { tg_clear_error(web_context); }
WEB_EXPORT(void, error_set)(int32_t status, const char *message) { tg_fail(web_context, (tg_status)status, TG_SITE_NONE, "%s", message); }
WEB_EXPORT(const char *, text_data)(void) { return web_text.data; }

/* ---------------------------------------------------------------- numbers and JSON */

/* A double as a whole number; one that is none is no size, axis or dim. */
static int64_t web_whole(double x) { return x >= -9007199254740992.0 && x <= 9007199254740992.0 && x == floor(x) ? (int64_t)x : INT64_MIN; }

static int32_t web_small(double x) {
    int64_t whole = web_whole(x);
    return whole < INT32_MIN || whole > INT32_MAX ? INT32_MIN : (int32_t)whole;
}

/* A rank over TG_MAX_RANK is kept, for the operation to refuse. */
static tg_shape web_shape_of(const double *dims, int32_t rank) {
    tg_shape shape = {.rank = rank};
    for (int32_t i = 0; i < rank && i < TG_MAX_RANK; i++) shape.dim[i] = web_whole(dims[i]);
    return shape;
}

static tg_axes web_axes_of(const double *axes, int32_t count) {
    tg_axes out = {.count = count};
    for (int32_t i = 0; i < count && i < TG_MAX_RANK; i++) out.axis[i] = web_small(axes[i]);
    return out;
}

static tg_lr web_lr_of(const double *n) {
    tg_lr lr = {.kind = (tg_lr_kind)web_small(n[0]),
                .peak = n[1],
                .final = n[2],
                .steps = web_whole(n[3]),
                .after_kind = (tg_lr_kind)web_small(n[4]),
                .after_peak = n[5],
                .after_final = n[6],
                .after_steps = web_whole(n[7]),
                .factor = n[8],
                .initial = n[9],
                .rise = web_whole(n[10]),
                .milestone_count = web_small(n[11])};
    const double *more = n + 12 + TG_LR_MILESTONES;
    for (int i = 0; i < TG_LR_MILESTONES; i++) lr.milestones[i] = web_whole(n[12 + i]);
    lr.more_count = web_small(more[0]);
    for (int i = 0; i < TG_LR_WARMUPS - 1; i++) {
        lr.more_peaks[i] = more[1 + 2 * i];
        lr.more_steps[i] = web_whole(more[2 + 2 * i]);
    }
    return lr;
}

static tg_optimizer web_optimizer_of(const double *n) {
    return (tg_optimizer){.kind = (tg_optimizer_kind)web_small(n[0]),
                          .beta1 = n[1],
                          .beta2 = n[2],
                          .eps = n[3],
                          .eps_mode = (tg_eps_mode)web_small(n[4]),
                          .weight_decay = n[5],
                          .momentum = n[6],
                          .nesterov = n[7] != 0.0,
                          .clip_norm = n[8],
                          .clip_value = n[9],
                          .normalize = n[10] != 0.0,
                          .accumulate = web_whole(n[11]),
                          .average = n[12],
                          .skip_non_finite = n[13] != 0.0,
                          .lr = web_lr_of(n + 14)};
}

#define WEB_ADD(...) tg_text_add(&web_text, __VA_ARGS__)

static const char *web_flag(bool flag) { return flag ? "true" : "false"; }
static const char *web_comma_before(int64_t i) { return i > 0 ? "," : ""; }

static void web_add_key(const char *key, const char *text) {
    WEB_ADD("\"%s\":", key);
    tg_web_json_text(&web_text, text != NULL ? text : "");
}

/* "shape":[2,3],"dtype":0 */
static void web_add_type(tg_shape shape, tg_dtype dtype) {
    WEB_ADD("\"shape\":");
    tg_web_json_shape(&web_text, shape);
    WEB_ADD(",\"dtype\":%d", (int)dtype);
}

/* {"name":"x","shape":[2,3],"dtype":0} */
static void web_add_named(int64_t i, const char *name, tg_shape shape, tg_dtype dtype) {
    WEB_ADD("%s{", web_comma_before(i));
    web_add_key("name", name);
    WEB_ADD(",");
    web_add_type(shape, dtype);
    WEB_ADD("}");
}

static const char *web_text_done(void) { return web_text.failed ? NULL : web_text.data; }

static void web_add_inputs(const tg_graph *g) {
    WEB_ADD("\"inputs\":[");
    for (int64_t i = 0; i < g->inputs.count; i++)
        web_add_named(i, g->inputs.items[i].name, g->inputs.items[i].shape, g->inputs.items[i].dtype);
    WEB_ADD("]");
}

/* ---------------------------------------------------------------- graphs */

/* NULL, with the error recorded: there is no such graph any more. */
static tg_graph *web_graph_of(int32_t number) {
    if (number >= 1 && number <= web_graphs.count && web_graphs.items[number - 1] != NULL) return web_graphs.items[number - 1];
    tg_fail(web_context, TG_ERROR_TRACE, TG_SITE_NONE, "a tensor of a trace that has failed, or whose graph was destroyed");
    return NULL;
}

static tg_tensor web_tensor_of(int32_t graph, int32_t id) { return (tg_tensor){web_graph_of(graph), id}; }

static tg_tensor web_tensor(const web_operand *operand) { return web_tensor_of(operand->graph, operand->id); }

static tg_operand web_either(const web_operand *operand) {
    return operand->id == WEB_NUMBER ? tg_operand_number_(operand->number) : tg_operand_tensor_(web_tensor(operand));
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

static void web_describe_params(const tg_graph *g) {
    WEB_ADD(",\"params\":[");
    for (int64_t i = 0; i < g->params.count; i++) {
        const tg_param_info *param = &g->params.items[i];
        WEB_ADD("%s{", web_comma_before(i));
        web_add_key("name", param->name);
        WEB_ADD(",\"shape\":");
        tg_web_json_shape(&web_text, param->shape);
        WEB_ADD(",\"decay\":%s,\"frozen\":%s}", web_flag(param->decay), web_flag(param->frozen));
    }
    WEB_ADD("]");
}

WEB_EXPORT(const char *, graph_describe)(int32_t graph) {
    const tg_graph *g = web_graph_of(graph);
    if (g == NULL) return NULL;
    tg_text_clear(&web_text);
    const tg_node *result = tg_graph_node(g, g->result);
    WEB_ADD("{\"result\":{\"id\":%d,", (int)g->result);
    web_add_type(result->shape, result->dtype);
    WEB_ADD("},\"nodes\":%d,", (int)g->nodes.count - 1);
    web_add_inputs(g);
    web_describe_params(g);
    WEB_ADD(",\"states\":[");
    for (int64_t i = 0; i < g->states.count; i++)
        web_add_named(i, g->states.items[i].name, g->states.items[i].shape, g->states.items[i].dtype);
    WEB_ADD("],\"captures\":[");
    for (int64_t i = 0; i < g->captures.count; i++) {
        const tg_node *node = tg_graph_node(g, g->captures.items[i].node);
        web_add_named(i, g->captures.items[i].name, node->shape, node->dtype);
    }
    WEB_ADD("]}");
    return web_text_done();
}

/* [1,2] */
static void web_add_numbers(const char *key, const int64_t *numbers, int64_t count) {
    WEB_ADD("\"%s\":[", key);
    for (int64_t i = 0; i < count; i++) WEB_ADD("%s%lld", web_comma_before(i), (long long)numbers[i]);
    WEB_ADD("]");
}

static void web_add_number(const char *key, double value) {
    if (isfinite(value)) WEB_ADD("\"%s\":%.17g", key, value);
    else WEB_ADD("\"%s\":\"%s\"", key, isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity");
}

static int64_t web_axes_list(const tg_node *node, int64_t axes[TG_MAX_RANK]) {
    int64_t count = 0;
    if (node->op == TG_OP_IOTA || node->op == TG_OP_CONCAT || node->op == TG_OP_WINDOW || node->op == TG_OP_FOLD) {
        axes[0] = (int64_t)node->attr.axes;
        return 1;
    }
    for (int64_t i = 0; i < TG_MAX_RANK; i++)
        if ((node->attr.axes >> i & 1u) != 0) axes[count++] = i;
    return count;
}

static void web_add_attributes(const tg_graph *g, const tg_node *node) {
    int64_t list[TG_MAX_RANK];
    const tg_window *w = &node->attr.window;
    const bool is_reduce = tg_op_table[node->op].class_ == TG_CLASS_REDUCE;
    switch (node->op) {
    case TG_OP_PERMUTE:
        for (int i = 0; i < node->shape.rank; i++) list[i] = node->attr.perm[i];
        web_add_numbers("perm", list, node->shape.rank);
        break;
    case TG_OP_SLICE:
    case TG_OP_PAD: web_add_numbers("start", node->attr.start, node->shape.rank); break;
    case TG_OP_CONST:
        if (node->attr.data == NULL) web_add_number("value", node->attr.value);
        else WEB_ADD("\"count\":%lld", (long long)tg_shape_count(node->shape));
        break;
    case TG_OP_RANDOM: web_add_number("bound", node->attr.value); break;
    case TG_OP_STATE: web_add_number("value", g->states.items[node->attr.index].value); break;
    case TG_OP_PACK: web_add_numbers("offsets", node->attr.offsets, node->input_count); break;
    case TG_OP_WINDOW:
    case TG_OP_FOLD:
        web_add_numbers("window", (const int64_t[]){w->size, w->step, w->dilation}, 3);
        WEB_ADD(",");
        web_add_numbers("axes", list, web_axes_list(node, list));
        break;
    default:
        if (is_reduce || node->op == TG_OP_FLIP || node->op == TG_OP_IOTA || node->op == TG_OP_CONCAT)
            web_add_numbers("axes", list, web_axes_list(node, list));
    }
}

static const char *web_node_name(const tg_graph *g, const tg_node *node) {
    if (node->op == TG_OP_INPUT) return g->inputs.items[node->attr.index].name;
    if (node->op == TG_OP_PARAM) return g->params.items[node->attr.index].name;
    if (node->op == TG_OP_STATE) return g->states.items[node->attr.index].name;
    return node->name;
}

static void web_add_node(const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    WEB_ADD("%s{", web_comma_before(id - 1));
    web_add_key("kind", tg_op_table[node->op].name);
    WEB_ADD(",\"inputs\":[");
    for (int32_t i = 0; i < node->input_count; i++) WEB_ADD("%s%d", web_comma_before(i), (int)node->inputs[i] - 1);
    WEB_ADD("],");
    web_add_type(node->shape, node->dtype);
    WEB_ADD(",");
    web_add_key("name", web_node_name(g, node));
    WEB_ADD(",");
    web_add_key("file", node->site.file);
    WEB_ADD(",\"line\":%d,\"attributes\":{", (int)node->site.line);
    web_add_attributes(g, node);
    WEB_ADD("}}");
}

WEB_EXPORT(const char *, graph_nodes)(int32_t graph) {
    const tg_graph *g = web_graph_of(graph);
    if (g == NULL) return NULL;
    tg_text_clear(&web_text);
    WEB_ADD("{\"ops\":[");
    for (int32_t id = 1; id < (int32_t)g->nodes.count; id++) web_add_node(g, id);
    WEB_ADD("],\"result\":%d,\"writebacks\":[", (int)g->result - 1);
    for (int64_t i = 0; i < g->writebacks.count; i++)
        WEB_ADD("%s[%d,%d]", web_comma_before(i), (int)g->writebacks.items[i].destination - 1, (int)g->writebacks.items[i].source - 1);
    WEB_ADD("]}");
    return web_text_done();
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

WEB_EXPORT(int32_t, graph_mark_group)(int32_t graph, const char *pattern, const double numbers[5]) {
    tg_graph *g = web_graph_of(graph);
    if (g == NULL) return (int32_t)TG_ERROR_ARGUMENT;
    const tg_param_group group = {pattern, numbers[0], numbers[1], (tg_choice)web_small(numbers[2]), numbers[3] != 0.0, numbers[4] != 0.0};
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

/* ---------------------------------------------------------------- operations */

#define WEB_AT(name) tg_##name##_at,
static tg_tensor (*const web_unary[])(tg_site, tg_tensor) = {WEB_UNARY(WEB_AT)};
static tg_tensor (*const web_binary[])(tg_site, tg_operand, tg_operand) = {WEB_BINARY(WEB_AT)};
static tg_tensor (*const web_pair[])(tg_site, tg_tensor, tg_tensor) = {WEB_PAIR(WEB_AT)};
static tg_tensor (*const web_reduce[])(tg_site, tg_tensor, tg_axes, tg_reduce_options) = {WEB_REDUCE(WEB_AT)};
static tg_tensor (*const web_arg[])(tg_site, tg_tensor, int, tg_reduce_options) = {WEB_ARG(WEB_AT)};
static tg_tensor (*const web_axis[])(tg_site, tg_tensor, int) = {WEB_AXIS(WEB_AT)};
static tg_tensor (*const web_reshaped[])(tg_site, tg_tensor, tg_shape) = {WEB_SHAPE(WEB_AT)};
static tg_tensor (*const web_conv[])(tg_site, tg_tensor, tg_tensor, tg_conv_options) = {WEB_CONV(WEB_AT)};
static tg_tensor (*const web_upsample[])(tg_site, tg_tensor, tg_upsample_options) = {WEB_UPSAMPLE(WEB_AT)};
static tg_tensor (*const web_join[])(tg_site, const tg_tensor *, int, int) = {WEB_JOIN(WEB_AT)};
#undef WEB_AT

typedef struct web_op_call {
    int32_t op;
    tg_site site;
    const web_operand *operands;
    const double *n;
    int32_t operand_count, count;
} web_op_call;

static tg_tensor web_poison(void) {
    tg_fail(web_context, TG_ERROR_INTERNAL, TG_SITE_NONE,
            "fault in tensorgrad, please report it: an operation called with what it does not take");
    return (tg_tensor){NULL, 0};
}

/* Tensors of the operands; NULL without memory. Release with web_release_tensors. */
static tg_tensor *web_tensors(const web_operand *operands, int32_t count) {
    tg_tensor *tensors = tg_alloc(web_context, sizeof *tensors * (size_t)count);
    for (int32_t i = 0; tensors != NULL && i < count; i++) tensors[i] = web_tensor(&operands[i]);
    return tensors;
}

static void web_release_tensors(tg_tensor *tensors, int32_t count) { tg_release(web_context, tensors, sizeof *tensors * (size_t)count); }

static tg_tensor web_join_op(const web_op_call *c) {
    tg_tensor *parts = web_tensors(c->operands, c->operand_count);
    if (parts == NULL) return (tg_tensor){NULL, 0};
    tg_tensor joined = web_join[c->op - WEB_OP_concat](c->site, parts, c->operand_count, web_small(c->n[0]));
    web_release_tensors(parts, c->operand_count);
    return joined;
}

static tg_padding web_padding_of(const double *n) {
    if (n[0] != 0.0) return tg_padding_same();
    return tg_padding_sides(web_whole(n[1]), web_whole(n[3]), web_whole(n[2]), web_whole(n[4]));
}

static tg_tensor web_conv_op(const web_op_call *c, tg_tensor x) {
    const double *n = c->n;
    const tg_conv_options options = {.stride = {web_whole(n[0]), web_whole(n[1])},
                                     .padding = web_padding_of(n + 2),
                                     .dilation = {web_whole(n[7]), web_whole(n[8])},
                                     .groups = web_whole(n[9]),
                                     .output_padding = {web_whole(n[10]), web_whole(n[11])},
                                     .bias = c->operand_count > 2 ? web_tensor(&c->operands[2]) : (tg_tensor){NULL, 0}};
    return web_conv[c->op - WEB_OP_conv1d](c->site, x, web_tensor(&c->operands[1]), options);
}

static tg_tensor web_pool_op(const web_op_call *c, tg_tensor x) {
    const double *n = c->n;
    const tg_pool_options options = {.stride = {web_whole(n[2]), web_whole(n[3])},
                                     .padding = web_padding_of(n + 4),
                                     .ceil_mode = n[9] != 0.0,
                                     .exclude_padding = n[10] != 0.0};
    switch (c->op) {
    case WEB_OP_max_pool1d: return tg_max_pool1d_at(c->site, x, web_whole(n[0]), options);
    case WEB_OP_max_pool2d: return tg_max_pool2d_at(c->site, x, web_whole(n[0]), web_whole(n[1]), options);
    case WEB_OP_avg_pool1d: return tg_avg_pool1d_at(c->site, x, web_whole(n[0]), options);
    default: return tg_avg_pool2d_at(c->site, x, web_whole(n[0]), web_whole(n[1]), options);
    }
}

static tg_tensor web_spread_op(const web_op_call *c, tg_tensor x) {
    const double *n = c->n;
    tg_axes axes = n[1] != 0.0 ? TG_ALL : web_axes_of(n + 3, c->count - 3);
    const bool keepdims = n[0] != 0.0;
    if (c->op == WEB_OP_norm) return tg_norm_at(c->site, x, axes, (tg_norm_options){.keepdims = keepdims, .ord = n[2]});
    tg_variance_options options = {.keepdims = keepdims, .correction = web_small(n[2])};
    return c->op == WEB_OP_std ? tg_std_at(c->site, x, axes, options) : tg_variance_at(c->site, x, axes, options);
}

static tg_tensor web_order_op(const web_op_call *c, tg_tensor x) {
    if (c->op == WEB_OP_top_k) {
        tg_top top = tg_top_k_at(c->site, x, web_whole(c->n[0]), web_small(c->n[1]));
        return c->n[2] != 0.0 ? top.indices : top.values;
    }
    tg_sort_options options = {.descending = c->n[1] != 0.0};
    const int axis = web_small(c->n[0]);
    return c->op == WEB_OP_sort ? tg_sort_at(c->site, x, axis, options) : tg_argsort_at(c->site, x, axis, options);
}

static tg_tensor web_einsum_op(const web_op_call *c) {
    char *equation = tg_alloc(web_context, (size_t)c->count + 1);
    tg_tensor *operands = web_tensors(c->operands, c->operand_count), result = {NULL, 0};
    for (int32_t i = 0; equation != NULL && i < c->count; i++) equation[i] = c->n[i] > 0.0 && c->n[i] < 127.0 ? (char)c->n[i] : '?';
    if (equation != NULL) equation[c->count] = '\0';
    if (equation != NULL && operands != NULL) result = tg_einsum_at(c->site, equation, operands, c->operand_count);
    if (operands != NULL) web_release_tensors(operands, c->operand_count);
    tg_release(web_context, equation, (size_t)c->count + 1);
    return result;
}

static tg_tensor web_rope_op(const web_op_call *c, tg_tensor x) {
    tg_rope_options options = {.base = c->n[0], .interleaved = c->n[1] != 0.0};
    if (c->operand_count > 1) options.positions = web_tensor(&c->operands[1]);
    return tg_rope_at(c->site, x, options);
}

static tg_tensor web_pad_op(const web_op_call *c, tg_tensor x) {
    const int32_t rank = (c->count - 1) / 2;
    return tg_pad_at(c->site, x, web_shape_of(c->n + 1, rank), web_shape_of(c->n + 1 + rank, rank), c->n[0]);
}

static tg_tensor web_scan_op(const web_op_call *c, tg_tensor x) {
    tg_scan_options options = {.exclusive = c->n[1] != 0.0, .reverse = c->n[2] != 0.0};
    const int axis = web_small(c->n[0]);
    return c->op == WEB_OP_cumsum ? tg_cumsum_at(c->site, x, axis, options) : tg_cumprod_at(c->site, x, axis, options);
}

static tg_tensor web_norm_op(const web_op_call *c, tg_tensor x) {
    const double *n = c->n;
    tg_tensor p[4] = {{NULL, 0}}; /* g, b, mean, var */
    for (int32_t i = 1; i < c->operand_count && i <= 4; i++) p[i - 1] = web_tensor(&c->operands[i]);
    switch (c->op) {
    case WEB_OP_nn_layer_norm_fwd: return tg_nn_layer_norm_fwd_at(c->site, (tg_layer_norm){p[0], p[1], n[0]}, x);
    case WEB_OP_nn_rms_norm_fwd: return tg_nn_rms_norm_fwd_at(c->site, (tg_rms_norm){p[0], n[0]}, x);
    case WEB_OP_nn_group_norm_fwd: return tg_nn_group_norm_fwd_at(c->site, (tg_group_norm){p[0], p[1], web_whole(n[0]), n[1]}, x);
    default: return tg_nn_batch_norm_fwd_at(c->site, (tg_batch_norm){p[0], p[1], p[2], p[3], n[0], n[1]}, x, n[2] != 0.0);
    }
}

static tg_tensor web_loss_op(const web_op_call *c, tg_tensor x, tg_tensor target) {
    const double *n = c->n;
    const bool by_class = c->op == WEB_OP_nn_cross_entropy || c->op == WEB_OP_nn_nll;
    const tg_reduction reduction = (tg_reduction)web_small(n[by_class ? 1 : 0]);
    const tg_loss_options options = {.reduction = reduction};
    switch (c->op) {
    case WEB_OP_nn_cross_entropy:
        return tg_nn_cross_entropy_at(c->site, x, target, web_small(n[0]),
                                      (tg_cross_entropy_options){.reduction = reduction, .label_smoothing = n[2]});
    case WEB_OP_nn_nll: return tg_nn_nll_at(c->site, x, target, web_small(n[0]), options);
    case WEB_OP_nn_mse: return tg_nn_mse_at(c->site, x, target, options);
    case WEB_OP_nn_l1: return tg_nn_l1_at(c->site, x, target, options);
    case WEB_OP_nn_huber: return tg_nn_huber_at(c->site, x, target, (tg_huber_options){.reduction = reduction, .delta = n[1]});
    case WEB_OP_nn_kl_div: return tg_nn_kl_div_at(c->site, x, target, (tg_kl_options){.reduction = reduction, .log_target = n[1] != 0.0});
    default: {
        const tg_tensor weight = c->operand_count > 2 ? web_tensor(&c->operands[2]) : (tg_tensor){NULL, 0};
        return tg_nn_bce_with_logits_at(c->site, x, target, (tg_bce_options){.reduction = reduction, .positive_weight = weight});
    }
    }
}

static tg_tensor web_recurrent_op(const web_op_call *c, tg_tensor x) {
    const tg_tensor none = {NULL, 0};
    const bool step = c->n[1] != 0.0, has_bias = c->n[2] != 0.0;
    tg_tensor more[4] = {none, none, none, none}; /* bx, bh, h0, c0 */
    for (int32_t i = 0, at = 3; i < 4 && at < c->operand_count; i++)
        if (c->n[i == 0 ? 2 : i + 1] != 0.0) more[i] = web_tensor(&c->operands[at++]);
    const tg_recurrent layer = {web_tensor(&c->operands[1]), web_tensor(&c->operands[2]), more[0], more[1], has_bias, c->n[0] != 0.0};
    const tg_recurrent_start start = {.h0 = more[2], .c0 = more[3]};
    if (c->op == WEB_OP_nn_rnn_fwd)
        return step ? tg_nn_rnn_step_at(c->site, layer, x, start.h0) : tg_nn_rnn_fwd_at(c->site, layer, x, start);
    if (c->op == WEB_OP_nn_gru_fwd)
        return step ? tg_nn_gru_step_at(c->site, layer, x, start.h0) : tg_nn_gru_fwd_at(c->site, layer, x, start);
    const tg_lstm_states s =
        step ? tg_nn_lstm_step_at(c->site, layer, x, (tg_lstm_states){start.h0, start.c0}) : tg_nn_lstm_fwd_at(c->site, layer, x, start);
    return tg_concat_at(c->site, (const tg_tensor[]){s.h, s.c}, 2, -1);
}

/* Those of a form of their own. x: the first operand, where it is a tensor. */
static tg_tensor web_other_op(const web_op_call *c, tg_tensor x) {
    const web_operand *o = c->operands;
    const double *n = c->n;
    switch (c->op) {
    case WEB_OP_where: return tg_where_at(c->site, x, web_either(&o[1]), web_either(&o[2]));
    case WEB_OP_clamp: return tg_clamp_at(c->site, x, n[0], n[1]);
    case WEB_OP_leaky_relu: return tg_leaky_relu_at(c->site, x, n[0]);
    case WEB_OP_elu: return tg_elu_at(c->site, x, n[0]);
    case WEB_OP_cast: return tg_cast_at(c->site, x, (tg_dtype)web_small(n[0]));
    case WEB_OP_transpose: return tg_transpose_at(c->site, x, web_axes_of(n, c->count));
    case WEB_OP_swap_axes: return tg_swap_axes_at(c->site, x, web_small(n[0]), web_small(n[1]));
    case WEB_OP_slice_last_range: return tg_slice_last_range_at(c->site, x, web_whole(n[0]), web_whole(n[1]));
    case WEB_OP_narrow: return tg_narrow_at(c->site, x, web_small(n[0]), web_whole(n[1]), web_whole(n[2]));
    case WEB_OP_one_hot: return tg_one_hot_at(c->site, x, web_whole(n[0]), (tg_dtype)web_small(n[1]));
    case WEB_OP_where_causal: return tg_where_causal_at(c->site, x, n[0]);
    case WEB_OP_dropout: return tg_dropout_at(c->site, x, n[0]);
    case WEB_OP_gather: return tg_gather_at(c->site, x, web_tensor(&o[1]), web_small(n[0]));
    case WEB_OP_take_along_axis: return tg_take_along_axis_at(c->site, x, web_tensor(&o[1]), web_small(n[0]));
    case WEB_OP_scatter_add: return tg_scatter_add_at(c->site, x, web_tensor(&o[1]), web_tensor(&o[2]), web_small(n[0]));
    case WEB_OP_sort:
    case WEB_OP_argsort:
    case WEB_OP_top_k: return web_order_op(c, x);
    case WEB_OP_einsum: return web_einsum_op(c);
    case WEB_OP_rope: return web_rope_op(c, x);
    case WEB_OP_squeeze: return tg_squeeze_at(c->site, x, n[0] != 0.0 ? TG_ALL : web_axes_of(n + 1, c->count - 1));
    case WEB_OP_flip: return tg_flip_at(c->site, x, n[0] != 0.0 ? TG_ALL : web_axes_of(n + 1, c->count - 1));
    case WEB_OP_expand_dims: return tg_expand_dims_at(c->site, x, web_small(n[0]));
    case WEB_OP_pad: return web_pad_op(c, x);
    case WEB_OP_roll: return tg_roll_at(c->site, x, web_whole(n[0]), web_small(n[1]));
    case WEB_OP_repeat: return tg_repeat_at(c->site, x, web_whole(n[0]), web_small(n[1]));
    case WEB_OP_variance:
    case WEB_OP_std:
    case WEB_OP_norm: return web_spread_op(c, x);
    case WEB_OP_cumsum:
    case WEB_OP_cumprod: return web_scan_op(c, x);
    case WEB_OP_masked_softmax: return tg_masked_softmax_at(c->site, x, web_tensor(&o[1]), web_small(n[0]));
    case WEB_OP_tril: return tg_tril_at(c->site, x, web_whole(n[0]));
    case WEB_OP_triu: return tg_triu_at(c->site, x, web_whole(n[0]));
    case WEB_OP_nn_cross_entropy:
    case WEB_OP_nn_nll:
    case WEB_OP_nn_mse:
    case WEB_OP_nn_l1:
    case WEB_OP_nn_huber:
    case WEB_OP_nn_bce_with_logits:
    case WEB_OP_nn_kl_div: return web_loss_op(c, x, web_tensor(&o[1]));
    case WEB_OP_nn_split_heads: return tg_nn_split_heads_at(c->site, x, web_whole(n[0]));
    case WEB_OP_nn_linear_fwd: {
        bool has_bias = c->operand_count > 2;
        tg_linear layer = {web_tensor(&o[1]), has_bias ? web_tensor(&o[2]) : (tg_tensor){NULL, 0}, has_bias};
        return tg_nn_linear_fwd_at(c->site, layer, x);
    }
    case WEB_OP_nn_layer_norm_fwd:
    case WEB_OP_nn_rms_norm_fwd:
    case WEB_OP_nn_group_norm_fwd:
    case WEB_OP_nn_batch_norm_fwd: return web_norm_op(c, x);
    case WEB_OP_nn_attention_weights: {
        const tg_tensor mask = c->operand_count > 2 ? web_tensor(&o[2]) : (tg_tensor){NULL, 0};
        return tg_nn_attention_weights_at(c->site, x, web_tensor(&o[1]), (tg_attention_mask){.causal = n[0] != 0.0, .mask = mask});
    }
    case WEB_OP_nn_attention_values: return tg_nn_attention_values_at(c->site, x, web_tensor(&o[1]));
    case WEB_OP_nn_rnn_fwd:
    case WEB_OP_nn_gru_fwd:
    case WEB_OP_nn_lstm_fwd: return web_recurrent_op(c, x);
    case WEB_OP_resolve_lr: return tg_resolve_lr_at(c->site, web_lr_of(n), x);
    default: return web_poison();
    }
}

static tg_tensor web_run_op(const web_op_call *c) {
    const web_operand *o = c->operands;
    const int32_t op = c->op;
    if (op < 0 || op >= WEB_OP_COUNT || c->operand_count < 1) return web_poison();
    if (op >= WEB_OP_add && op < WEB_OP_matmul) return web_binary[op - WEB_OP_add](c->site, web_either(&o[0]), web_either(&o[1]));
    if (o[0].id == WEB_NUMBER) return web_poison();
    tg_tensor x = web_tensor(&o[0]);
    if (op < WEB_OP_add) return web_unary[op](c->site, x);
    if (op < WEB_OP_sum) return web_pair[op - WEB_OP_matmul](c->site, x, web_tensor(&o[1]));
    if (op < WEB_OP_argmax) {
        tg_axes axes = c->n[1] != 0.0 ? TG_ALL : web_axes_of(c->n + 2, c->count - 2);
        return web_reduce[op - WEB_OP_sum](c->site, x, axes, (tg_reduce_options){.keepdims = c->n[0] != 0.0});
    }
    if (op < WEB_OP_softmax)
        return web_arg[op - WEB_OP_argmax](c->site, x, web_small(c->n[0]), (tg_reduce_options){.keepdims = c->n[1] != 0.0});
    if (op < WEB_OP_reshape) return web_axis[op - WEB_OP_softmax](c->site, x, web_small(c->n[0]));
    if (op < WEB_OP_concat) return web_reshaped[op - WEB_OP_reshape](c->site, x, web_shape_of(c->n, c->count));
    if (op < WEB_OP_where) return web_join_op(c);
    if (op < WEB_OP_conv1d) return web_other_op(c, x);
    if (op < WEB_OP_max_pool1d) return web_conv_op(c, x);
    if (op < WEB_OP_upsample_nearest) return web_pool_op(c, x);
    return web_upsample[op - WEB_OP_upsample_nearest](
        c->site, x, (tg_upsample_options){.factor = {web_whole(c->n[0]), web_whole(c->n[1])}, .align_corners = c->n[2] != 0.0});
}

WEB_EXPORT(int32_t, op)
(int32_t op, const char *file, int32_t line, const web_operand *operands, int32_t operand_count, const double *numbers, int32_t count) {
    web_op_call call = {op, tg_site_make(file, line), operands, numbers, operand_count, count};
    return web_run_op(&call).id;
}

/* A leaf needs a graph whose trace is in progress; the poison of one that is gone has an error already. */
WEB_EXPORT(int32_t, param)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t init, double scale,
 const float *data, int32_t count, int32_t decay, int32_t frozen) {
    tg_param_options options = {.init = {.data = data,
                                         .count = count,
                                         .kind = (tg_init_kind)init,
                                         .scale = init == TG_INIT_UNIFORM && scale == 0.0 ? TG_ZERO : scale},
                                .decay = (tg_choice)decay,
                                .frozen = (tg_choice)frozen};
    return tg_param_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), options).id;
}
WEB_EXPORT(int32_t, input)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype) {
    return tg_input_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, state)
(const char *file, int32_t line, int32_t graph, const char *name, const double *dims, int32_t rank, int32_t dtype, double value) {
    return tg_state_at(tg_site_make(file, line), web_graph_of(graph), name, web_shape_of(dims, rank), (tg_dtype)dtype, value).id;
}
WEB_EXPORT(int32_t, full)(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, double value, int32_t dtype) {
    return tg_full_at(tg_site_make(file, line), web_graph_of(graph), web_shape_of(dims, rank), value, (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, arange)(const char *file, int32_t line, int32_t graph, double n, int32_t dtype) {
    return tg_arange_at(tg_site_make(file, line), web_graph_of(graph), web_whole(n), (tg_dtype)dtype).id;
}
WEB_EXPORT(int32_t, constant)
(const char *file, int32_t line, int32_t graph, const double *dims, int32_t rank, int32_t dtype, const void *data, int32_t count) {
    return tg_constant_at(tg_site_make(file, line), web_graph_of(graph), web_shape_of(dims, rank), (tg_dtype)dtype, data, count).id;
}
WEB_EXPORT(int32_t, draw)
(const char *file, int32_t line, int32_t graph, int32_t kind, const double *dims, int32_t rank, double lo, double hi,
 const web_operand *p) {
    const tg_site site = tg_site_make(file, line);
    const tg_shape shape = web_shape_of(dims, rank);
    tg_graph *g = web_graph_of(graph);
    switch (kind) {
    case WEB_RAND: return tg_rand_at(site, g, shape).id;
    case WEB_RANDN: return tg_randn_at(site, g, shape).id;
    case WEB_RAND_INT: return tg_rand_int_at(site, g, shape, web_whole(lo), web_whole(hi)).id;
    default: return tg_bernoulli_at(site, g, shape, web_either(p)).id;
    }
}
WEB_EXPORT(void, scope_push)(int32_t graph, const char *name) { tg_scope_push_at(TG_SITE_NONE, web_graph_of(graph), name); }
WEB_EXPORT(void, scope_pop)(int32_t graph) { tg_scope_pop_at(TG_SITE_NONE, web_graph_of(graph)); }
WEB_EXPORT(int32_t, capture)(const char *file, int32_t line, const char *name, int32_t graph, int32_t id) {
    return tg_capture_at(tg_site_make(file, line), name, web_tensor_of(graph, id)).id;
}

/* The first `of` operands are what is differentiated, the rest what by. */
static int32_t web_gradients(tg_site site, const web_operand *operands, int32_t count, int32_t of, int32_t *out) {
    const int32_t n = count - of;
    tg_tensor *tensors = web_tensors(operands, count);
    tg_tensor *made = tg_alloc(web_context, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_status status = web_context->status;
    if (tensors != NULL && made != NULL && status == TG_OK)
        status =
            of == 1 ? tg_grad_at(site, tensors[0], tensors + of, n, made) : tg_vjp_at(site, tensors[0], tensors[1], tensors + of, n, made);
    for (int32_t i = 0; i < n && status == TG_OK; i++) out[i] = made[i].id;
    tg_release(web_context, made, sizeof *made * (size_t)(n > 0 ? n : 1));
    web_release_tensors(tensors, count);
    return (int32_t)status;
}

WEB_EXPORT(int32_t, grad)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out) {
    return web_gradients(tg_site_make(file, line), operands, count, 1, out);
}
WEB_EXPORT(int32_t, vjp)(const char *file, int32_t line, const web_operand *operands, int32_t count, int32_t *out) {
    return web_gradients(tg_site_make(file, line), operands, count, 2, out);
}
WEB_EXPORT(int32_t, split)(const char *file, int32_t line, const web_operand *operand, const double *numbers, int32_t count, int32_t *out) {
    const tg_site site = tg_site_make(file, line);
    const bool equal = numbers[1] != 0.0;
    int32_t n = equal ? web_small(numbers[2]) : count - 2;
    tg_tensor x = web_tensor(operand);
    if (x.graph == NULL) return (int32_t)web_context->status;
    const tg_shape shape = tg_tensor_shape(x);
    int64_t most = 0; /* parts that any axis can have: more are refused without room for them */
    for (int32_t i = 0; i < shape.rank; i++) most = shape.dim[i] > most ? shape.dim[i] : most;
    if (equal && (n < 1 || n > most)) return (int32_t)tg_split_at(site, x, web_small(numbers[0]), NULL, n, NULL);
    int64_t *sizes = tg_alloc(web_context, sizeof *sizes * (size_t)(n > 0 ? n : 1));
    tg_tensor *made = tg_alloc(web_context, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_status status = web_context->status;
    if (sizes != NULL && made != NULL) {
        for (int32_t i = 0; !equal && i < n; i++) sizes[i] = web_whole(numbers[i + 2]);
        status = tg_split_at(site, x, web_small(numbers[0]), equal ? NULL : sizes, n, made);
        for (int32_t i = 0; i < n && status == TG_OK; i++) out[i] = made[i].id;
    }
    tg_release(web_context, made, sizeof *made * (size_t)(n > 0 ? n : 1));
    tg_release(web_context, sizes, sizeof *sizes * (size_t)(n > 0 ? n : 1));
    return (int32_t)status;
}
WEB_EXPORT(int32_t, writeback)(const char *file, int32_t line, const web_operand operands[2]) {
    tg_writeback_at(tg_site_make(file, line), web_tensor(&operands[0]), web_tensor(&operands[1]));
    return (int32_t)web_context->status;
}
WEB_EXPORT(int32_t, append_optimizer)(const char *file, int32_t line, const web_operand *loss, const double *optimizer) {
    tg_optimizer chosen = web_optimizer_of(optimizer);
    tg_tensor tensor = web_tensor(loss);
    return (int32_t)(tensor.graph != NULL ? tg_append_optimizer_at(tg_site_make(file, line), tensor, &chosen) : web_context->status);
}

WEB_EXPORT(int32_t, shape)(int32_t graph, int32_t id, double *dims) {
    tg_shape shape = tg_tensor_shape(web_tensor_of(graph, id));
    for (int32_t i = 0; i < shape.rank; i++) dims[i] = (double)shape.dim[i];
    return shape.rank;
}
WEB_EXPORT(int32_t, dtype)(int32_t graph, int32_t id) { return (int32_t)tg_tensor_dtype(web_tensor_of(graph, id)); }
WEB_EXPORT(const char *, name)(int32_t graph, int32_t id) {
    const tg_graph *g = web_graph_of(graph);
    if (g == NULL) return NULL;
    const char *name = id > 0 && id < g->nodes.count ? tg_graph_node(g, id)->name : NULL;
    return name != NULL ? name : "";
}

WEB_EXPORT(double, lr_value)(const double lr[WEB_LR], double t) {
    tg_lr schedule = web_lr_of(lr);
    tg_model_begin(web_context, TG_SITE_NONE);
    if (tg_lr_check(web_context, TG_SITE_NONE, "resolveLR", schedule) != TG_OK) return (double)NAN;
    return tg_lr_value(schedule, web_whole(t));
}

/* ---------------------------------------------------------------- models */

WEB_EXPORT(tg_model *, model_create)(const void *bytes, uint32_t size, const double options[WEB_OPTIONS]) {
    tg_compile_options chosen = {.optimizer = web_optimizer_of(options + 5),
                                 .seed = (uint64_t)web_whole(options[1]) | (uint64_t)web_whole(options[2]) << 32,
                                 .device = (tg_device_kind)web_small(options[3]),
                                 .no_fusion = options[4] != 0.0,
                                 .precision = (tg_precision)web_small(options[5 + WEB_OPTIMIZER]),
                                 .loss_scale = options[6 + WEB_OPTIMIZER],
                                 .check_finite = options[7 + WEB_OPTIMIZER] != 0.0};
    return tg_compile_bytes(web_context, bytes, size, &chosen, options[0] != 0.0);
}
WEB_EXPORT(tg_model *, model_sibling)(tg_model *parent, const void *bytes, uint32_t size, int32_t averaged) {
    return tg_compile_sibling_bytes(parent, bytes, size, averaged != 0);
}
WEB_EXPORT(tg_model *, model_size)(tg_model *owner, const void *bytes, uint32_t size) { return tg_compile_size_bytes(owner, bytes, size); }
WEB_EXPORT(void, model_destroy)(tg_model *model) { tg_model_destroy(model); }

static void web_model_states(const tg_family *family) {
    WEB_ADD("],\"average\":%d", (int)tg_family_find(family, "tg.average"));
    WEB_ADD(",\"parameters\":%d,\"gradients\":%d,\"total\":%lld,\"states\":[", (int)tg_family_find(family, "tg.parameters"),
            (int)tg_family_find(family, "tg.gradients"), (long long)family->layout.total);
    for (int32_t slot = 0; slot < family->states.count; slot++) {
        const tg_family_state *state = &family->states.items[slot];
        WEB_ADD("%s{", web_comma_before(slot));
        web_add_key("name", state->name);
        WEB_ADD(",\"dtype\":%d,\"count\":%lld}", (int)state->dtype, (long long)state->count);
    }
    WEB_ADD("]");
}

static void web_model_params(const tg_family *family) {
    WEB_ADD(",\"params\":[");
    for (int i = 0; i < family->layout.count; i++) {
        const tg_layout_entry *entry = &family->layout.entries[i];
        WEB_ADD("%s{", web_comma_before(i));
        web_add_key("name", entry->name);
        WEB_ADD(",\"shape\":");
        tg_web_json_shape(&web_text, entry->shape);
        WEB_ADD(",\"offset\":%lld,\"count\":%lld,\"decay\":%s,\"frozen\":%s}", (long long)entry->offset, (long long)entry->count,
                web_flag(entry->decay), web_flag(entry->frozen));
    }
}

static void web_model_info(const tg_model_info *info) {
    WEB_ADD(",\"info\":{\"parameters\":%lld,\"nodes\":%d,\"kernels\":%d,\"dispatches\":%d,\"programBytes\":%lld",
            (long long)info->parameters, info->nodes, info->kernels, info->dispatches, (long long)info->program_bytes);
    WEB_ADD(",\"peakBytes\":%lld,\"workspaceBytes\":%lld,\"contractionFlops\":%lld,\"precision\":%d}}", (long long)info->peak_bytes,
            (long long)info->workspace_bytes, (long long)info->contraction_flops, (int)info->precision);
}

WEB_EXPORT(const char *, model_describe)(tg_model *model) {
    tg_model_info info;
    if (tg_model_get_info_at(TG_SITE_NONE, model, &info) != TG_OK) return NULL;
    tg_text_clear(&web_text);
    WEB_ADD("{\"training\":%s,", web_flag(model->training));
    web_add_key("device", info.device);
    WEB_ADD(",\"output\":{");
    web_add_type(tg_model_output_shape(model), tg_model_output_dtype(model));
    WEB_ADD("},");
    web_add_inputs(model->traced);
    WEB_ADD(",\"captures\":[");
    for (int64_t i = 0; i < model->traced->captures.count; i++) {
        WEB_ADD("%s", web_comma_before(i));
        tg_web_json_text(&web_text, model->traced->captures.items[i].name);
    }
    WEB_ADD("]");
    web_model_params(model->family);
    web_model_states(model->family);
    web_model_info(&info);
    return web_text_done();
}

WEB_EXPORT(const char *, model_text)(tg_model *model, int32_t what) { return tg_model_text_at(TG_SITE_NONE, model, (tg_text)what); }

WEB_EXPORT(int32_t, model_upload)(tg_model *model, const tg_feed *params, int32_t n, int32_t partial) {
    return (int32_t)tg_params_upload_at(TG_SITE_NONE, model, params, n, partial != 0);
}
WEB_EXPORT(int32_t, model_read)(tg_model *model, int32_t slot, int32_t first, void *data, int32_t count) {
    tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_family_read(model->family, slot, first, data, count);
}
WEB_EXPORT(int32_t, model_check_grads)(tg_model *model) {
    tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_model_check_gradients(model);
}
WEB_EXPORT(int32_t, model_reset)(tg_model *model) { return (int32_t)tg_model_reset_at(TG_SITE_NONE, model); }
WEB_EXPORT(int32_t, model_reset_optimizer)(tg_model *model) { return (int32_t)tg_model_reset_optimizer_at(TG_SITE_NONE, model); }
WEB_EXPORT(int32_t, model_set_lr)(tg_model *model, const double lr[WEB_LR]) {
    return (int32_t)tg_model_set_lr_at(TG_SITE_NONE, model, web_lr_of(lr));
}
WEB_EXPORT(double, model_steps)(tg_model *model) { return (double)tg_model_step_count(model); }

WEB_EXPORT(void, snapshot_put)(tg_model *model, int32_t slot, const void *data) {
    const tg_family *family = model->family;
    if (slot >= 0 && slot < family->states.count) tg_family_keep(model->family, slot, 0, data, family->states.items[slot].count);
}
WEB_EXPORT(void, snapshot_end)(tg_model *model) {
    model->family->kept_steps = model->family->steps;
    model->family->kept_gradients = model->family->has_gradients;
}
WEB_EXPORT(int32_t, model_recover)(tg_model *model) { return (int32_t)tg_model_recover_at(TG_SITE_NONE, model); }

/* ---------------------------------------------------------------- calls */

struct web_call {
    tg_model_call call;
    tg_model *model;
    void *result; /* of a run */
    size_t result_bytes;
};

WEB_EXPORT(web_call *, call_create)(tg_model *model) {
    tg_model_begin(web_context, TG_SITE_NONE);
    web_call *call = tg_alloc(web_context, sizeof *call);
    if (call == NULL) return NULL;
    call->model = model;
    call->result_bytes = (size_t)tg_shape_count(tg_model_output_shape(model)) * tg_dtype_bytes(tg_model_output_dtype(model));
    call->result = tg_alloc(web_context, call->result_bytes);
    if (call->result != NULL) return call;
    tg_release(web_context, call, sizeof *call);
    return NULL;
}
WEB_EXPORT(void, call_destroy)(web_call *call) {
    tg_model_call_end(&call->call);
    tg_release(web_context, call->result, call->result_bytes);
    tg_release(web_context, call, sizeof *call);
}

WEB_EXPORT(int32_t, call_begin)(web_call *call, int32_t kind, const tg_feed *feeds, int32_t n) {
    static const tg_call_kind kinds[] = {TG_CALL_STEP, TG_CALL_RUN, TG_CALL_STEP_CAPTURES, TG_CALL_RUN_CAPTURES};
    tg_model_begin(web_context, TG_SITE_NONE);
    tg_model_call_end(&call->call);
    return (int32_t)tg_model_call_begin(&call->call, call->model, kinds[kind & 3], feeds, n, call->result);
}
WEB_EXPORT(int32_t, call_program)(const web_call *call) {
    return call->call.variant != NULL ? tg_web_executable_number(call->call.variant->executable) : 0;
}
WEB_EXPORT(int32_t, call_is_last)(const web_call *call) { return call->call.variant == call->call.main; }
WEB_EXPORT(const void *const *, call_inputs)(const web_call *call) { return call->call.variant->inputs; }
WEB_EXPORT(void *const *, call_outputs)(const web_call *call) { return call->call.variant->outputs; }

WEB_EXPORT(int32_t, call_next)(web_call *call, int32_t status) { return (int32_t)tg_model_call_next(&call->call, (tg_status)status); }
WEB_EXPORT(int32_t, call_run)(web_call *call) {
    const tg_family *family = call->model->family;
    tg_status status = TG_OK;
    while (status == TG_OK && call->call.variant != NULL) {
        const tg_variant *v = call->call.variant;
        status = tg_model_call_next(&call->call, family->executor->run(family->device, v->executable, v->inputs, v->outputs));
    }
    return (int32_t)status;
}

WEB_EXPORT(const void *, call_result)(const web_call *call) {
    bool is_step = call->call.kind == TG_CALL_STEP || call->call.kind == TG_CALL_STEP_CAPTURES;
    return is_step ? (const void *)&call->call.loss : call->result;
}
WEB_EXPORT(const char *, call_captures)(const web_call *call) {
    const tg_captures *captures = call->call.captures;
    tg_text_clear(&web_text);
    WEB_ADD("[");
    for (int i = 0; i < tg_captures_count(captures); i++) {
        WEB_ADD("%s{", web_comma_before(i));
        web_add_key("name", captures->item[i].name);
        WEB_ADD(",");
        web_add_type(captures->item[i].shape, captures->item[i].dtype);
        WEB_ADD(",\"count\":%lld,\"data\":%lu}", (long long)tg_shape_count(captures->item[i].shape),
                (unsigned long)(uintptr_t)captures->item[i].data);
    }
    WEB_ADD("]");
    return web_text_done();
}
WEB_EXPORT(void, call_end)(web_call *call) { tg_model_call_end(&call->call); }

/* ---------------------------------------------------------------- many steps */

WEB_EXPORT(tg_dataset *, dataset_create)(tg_model *model, const tg_feed *arrays, int32_t n, int32_t rows) {
    return tg_dataset_create_at(TG_SITE_NONE, model, arrays, n, rows);
}
WEB_EXPORT(void, dataset_destroy)(tg_dataset *dataset) { tg_dataset_destroy(dataset); }
WEB_EXPORT(int32_t, dataset_feeder)(const tg_dataset *dataset) { return tg_web_feeder_number(dataset->feeder); }

struct web_train {
    tg_train_call call;
    tg_train_options options;
    uint32_t control[TG_DRAW_WORDS];
    double result[4];
};

WEB_EXPORT(web_train *, train_begin)
(tg_model *model, tg_dataset *dataset, const double options[WEB_TRAIN], const tg_feed *feeds, int32_t n) {
    tg_model_begin(web_context, TG_SITE_NONE);
    web_train *train = tg_alloc(web_context, sizeof *train);
    if (train == NULL) return NULL;
    train->options = (tg_train_options){.steps = web_whole(options[0]),
                                        .order = (tg_batch_order)web_small(options[1]),
                                        .seed = (uint64_t)web_whole(options[2]) | (uint64_t)web_whole(options[3]) << 32,
                                        .feeds = feeds,
                                        .feed_count = n,
                                        .steps_per_submission = web_whole(options[4]),
                                        .target_loss = options[5],
                                        .patience = web_whole(options[6])};
    if (tg_train_begin(&train->call, model, dataset, &train->options, NULL) == TG_OK) return train;
    tg_release(web_context, train, sizeof *train);
    return NULL;
}
WEB_EXPORT(int32_t, train_most)(const web_train *train) { return (int32_t)train->call.most; }
WEB_EXPORT(int32_t, train_exact)(const web_train *train) { return train->call.exact; }
WEB_EXPORT(const uint32_t *, train_control)(web_train *train) {
    tg_draw_control(&train->call.draw, train->control);
    return train->control;
}
WEB_EXPORT(int32_t, train_program)(const web_train *train) { return tg_web_executable_number(train->call.variant->executable); }
WEB_EXPORT(const void *const *, train_inputs)(const web_train *train) { return train->call.variant->inputs; }
WEB_EXPORT(float *, train_losses)(const web_train *train) { return train->call.dataset->losses; }
WEB_EXPORT(int32_t, train_next)(web_train *train, int32_t status, int32_t count) {
    if (status == 0) tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_train_next(&train->call, (tg_status)status, train->call.dataset->losses, count);
}
WEB_EXPORT(int32_t, train_run)(web_train *train, int32_t count) {
    tg_train_call *call = &train->call;
    tg_status status = TG_OK;
    tg_model_begin(web_context, TG_SITE_NONE);
    for (int32_t i = 0; i < count && status == TG_OK && call->most > 0; i++) {
        float loss = 0;
        status = tg_train_on_host(call, &loss);
        status = tg_train_next(call, status, &loss, 1);
        call->dataset->losses[i] = call->result.loss;
    }
    return (int32_t)status;
}
WEB_EXPORT(int32_t, train_step)(web_train *train, web_call *call) {
    tg_model_begin(web_context, TG_SITE_NONE);
    tg_model_call_end(&call->call);
    return (int32_t)tg_train_begin_step(&train->call, &call->call);
}
WEB_EXPORT(const double *, train_result)(web_train *train) {
    const tg_train_result *result = &train->call.result;
    train->result[0] = (double)result->steps;
    train->result[1] = (double)result->end;
    train->result[2] = (double)result->loss;
    train->result[3] = (double)result->best;
    return train->result;
}
WEB_EXPORT(void, train_end)(web_train *train) {
    tg_train_end_call(&train->call);
    tg_release(web_context, train, sizeof *train);
}
