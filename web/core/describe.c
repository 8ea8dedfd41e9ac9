/* describe: exports that write graphs and models as JSON. Must not decide anything. */
#include "boundary.gen.h"
#include "core.h"

#include <math.h>

/* ---------------------------------------------------------------- parts */

const char *web_flag_text(bool flag) { return flag ? "true" : "false"; }
const char *web_comma_before(int64_t i) { return i > 0 ? "," : ""; }

void web_add_key(const char *key, const char *text) {
    WEB_ADD("\"%s\":", key);
    tg_web_json_text(&web_text, text != NULL ? text : "");
}

/* "shape":[2,3],"dtype":0 */
void web_add_type(tg_shape shape, tg_dtype dtype) {
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

void web_add_inputs(const tg_graph *g) {
    WEB_ADD("\"inputs\":[");
    for (int64_t i = 0; i < g->inputs.count; i++)
        web_add_named(i, g->inputs.items[i].name, g->inputs.items[i].shape, g->inputs.items[i].dtype);
    WEB_ADD("]");
}

/* ---------------------------------------------------------------- graphs */

static void web_describe_params(const tg_graph *g) {
    WEB_ADD(",\"params\":[");
    for (int64_t i = 0; i < g->params.count; i++) {
        const tg_param_info *param = &g->params.items[i];
        WEB_ADD("%s{", web_comma_before(i));
        web_add_key("name", param->name);
        WEB_ADD(",\"shape\":");
        tg_web_json_shape(&web_text, param->shape);
        WEB_ADD(",\"decay\":%s,\"frozen\":%s}", web_flag_text(param->decay), web_flag_text(param->frozen));
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
        axes[0] = node->attr.axis;
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
    case TG_OP_STATE: web_add_number("value", g->states.items[node->attr.leaf].value); break;
    case TG_OP_PACK: web_add_numbers("offsets", node->attr.offsets, node->input_count); break;
    case TG_OP_WINDOW:
    case TG_OP_FOLD:
        web_add_numbers("window", (const int64_t[]){w->size, w->stride, w->dilation}, 3);
        WEB_ADD(",");
        web_add_numbers("axes", list, web_axes_list(node, list));
        break;
    default:
        if (is_reduce || node->op == TG_OP_FLIP || node->op == TG_OP_IOTA || node->op == TG_OP_CONCAT)
            web_add_numbers("axes", list, web_axes_list(node, list));
    }
}

static const char *web_node_name(const tg_graph *g, const tg_node *node) {
    if (node->op == TG_OP_INPUT) return g->inputs.items[node->attr.leaf].name;
    if (node->op == TG_OP_PARAM) return g->params.items[node->attr.leaf].name;
    if (node->op == TG_OP_STATE) return g->states.items[node->attr.leaf].name;
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

/* ---------------------------------------------------------------- models */

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
                web_flag_text(entry->decay), web_flag_text(entry->frozen));
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
    WEB_ADD("{\"training\":%s,", web_flag_text(model->training));
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

static void web_add_launch(int64_t i, const tg_kernel_time *launch) {
    WEB_ADD("%s{", web_comma_before(i));
    web_add_key("kernel", launch->name);
    WEB_ADD(",");
    web_add_key("loops", launch->loops);
    WEB_ADD(",\"kernels\":%d,\"workgroups\":%lld,", launch->kernels, (long long)launch->workgroups);
    web_add_number("flops", launch->flops);
    WEB_ADD(",");
    web_add_number("bytes", launch->bytes);
    WEB_ADD("}");
}

WEB_EXPORT(const char *, model_launches)(tg_model *model) {
    tg_model_info info;
    if (tg_model_get_info_at(TG_SITE_NONE, model, &info) != TG_OK) return NULL;
    const size_t bytes = sizeof(tg_kernel_time) * (size_t)(info.kernels + 1);
    tg_kernel_time *launches = tg_alloc(web_context, bytes);
    if (launches == NULL) return NULL;
    const tg_status status = tg_model_time_kernels_at(TG_SITE_NONE, model, launches, info.kernels);
    tg_text_clear(&web_text);
    WEB_ADD("[");
    for (int i = 0; status == TG_OK && launches[i].name != NULL; i++) web_add_launch(i, &launches[i]);
    WEB_ADD("]");
    if (status == TG_OK) (void)tg_model_time_kernels_at(TG_SITE_NONE, model, NULL, 0);
    tg_release(web_context, launches, bytes);
    return status == TG_OK ? web_text_done() : NULL;
}
