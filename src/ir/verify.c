/* verify: whether a graph obeys all rules: node order, shapes, tables and their names. Runs after
 * passes and on graphs read from bytes, which may be hostile. O(nodes + inputs + names). Must not
 * change the graph. */
#include "ir/rules.h"

#include <stdio.h>
#include <string.h>

typedef struct verify_report {
    char *message;
    size_t size;
} verify_report;

static tg_status verify_say(const verify_report *report, const char *format, ...) TG_PRINTF(2, 3);
static tg_status verify_say(const verify_report *report, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(report->message, report->size, format, arguments) < 0) report->message[0] = '\0';
    va_end(arguments);
    return TG_ERROR_INTERNAL;
}

static bool verify_is_node(const tg_graph *g, int32_t id) { return id > 0 && id < g->nodes.count; }

/* ---------------------------------------------------------------- nodes */

static tg_status verify_node(const tg_graph *g, int32_t id, const verify_report *report) {
    const tg_node *node = &g->nodes.items[id];
    const bool known = node->op > TG_OP_POISON && node->op < TG_OP_COUNT;
    const char *op = known ? tg_op_table[node->op].name : "?";
    tg_rule rule;
    const tg_status status = tg_rule_apply(&rule, g, node, id);
    if (status == TG_ERROR_MEMORY) return status;
    if (status != TG_OK) return verify_say(report, "node %%%d: %s: %s", (int)id, op, rule.message);
    if (rule.dtype != node->dtype || !tg_shape_equal(rule.shape, node->shape)) {
        char has[TG_SHAPE_TEXT], must[TG_SHAPE_TEXT];
        return verify_say(report, "node %%%d: %s is %s%s, but its inputs make it %s%s", (int)id, op, tg_dtype_name(node->dtype),
                          tg_shape_text(node->shape, has, sizeof has), tg_dtype_name(rule.dtype),
                          tg_shape_text(rule.shape, must, sizeof must));
    }
    if (!node->site.file) return verify_say(report, "node %%%d: %s has no call site", (int)id, op);
    return TG_OK;
}

/* Whether a leaf and an entry of its table agree. */
static tg_status verify_leaf(const tg_graph *g, int32_t id, const verify_report *report) {
    const tg_node *node = &g->nodes.items[id];
    const int64_t index = node->attr.leaf;
    const bool is_input = node->op == TG_OP_INPUT, is_param = node->op == TG_OP_PARAM;
    if (!is_input && !is_param && node->op != TG_OP_STATE) return TG_OK;
    const int64_t count = is_input ? g->inputs.count : is_param ? g->params.count : g->states.count;
    if (index < 0 || index >= count)
        return verify_say(report, "node %%%d: %s %lld of %lld", (int)id, tg_op_table[node->op].name, (long long)index, (long long)count);
    const tg_shape shape = is_input ? g->inputs.items[index].shape : is_param ? g->params.items[index].shape : g->states.items[index].shape;
    const tg_dtype dtype = is_input ? g->inputs.items[index].dtype : is_param ? TG_F32 : g->states.items[index].dtype;
    if (!tg_shape_equal(shape, node->shape) || dtype != node->dtype)
        return verify_say(report, "node %%%d: %s %lld has another shape or element type in its table", (int)id, tg_op_table[node->op].name,
                          (long long)index);
    return TG_OK;
}

static tg_status verify_nodes(const tg_graph *g, const verify_report *report) {
    if (g->nodes.count < 1 || g->nodes.items[0].op != TG_OP_POISON) return verify_say(report, "node %%0 is not poison");
    for (int32_t id = 1; id < g->nodes.count; id++) {
        tg_status status = verify_node(g, id, report);
        if (status == TG_OK) status = verify_leaf(g, id, report);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* ---------------------------------------------------------------- names */

/* The i-th name of a table whose items are structs that begin with their name. */
static const char *verify_name_at(const void *items, size_t item, int64_t i) {
    const char *const *name = (const void *)((const char *)items + (size_t)i * item);
    return *name;
}

/* Checks that each name is there and none occurs twice, with an open-addressed hash table of
 * positions + 1, at most half full. */
static tg_status verify_names(const tg_graph *g, const char *table, const void *items, int64_t count, size_t item,
                              const verify_report *report) {
    if (count > INT32_MAX) return verify_say(report, "%s: too many", table);
    uint64_t slots = 8;
    while (slots < 2 * (uint64_t)count) slots *= 2;
    uint32_t *taken = tg_alloc(g->ctx, (size_t)slots * sizeof *taken);
    if (!taken) return TG_ERROR_MEMORY;
    tg_status status = TG_OK;
    for (int64_t i = 0; i < count && status == TG_OK; i++) {
        const char *name = verify_name_at(items, item, i);
        if (!name || !name[0]) {
            status = verify_say(report, "%s %lld has no name", table, (long long)i);
            break;
        }
        uint64_t slot = tg_hash_text(0, name) & (slots - 1);
        for (; taken[slot] && status == TG_OK; slot = (slot + 1) & (slots - 1))
            if (strcmp(verify_name_at(items, item, (int64_t)taken[slot] - 1), name) == 0)
                status = verify_say(report, "%s: the name '%s' is used twice", table, name);
        taken[slot] = (uint32_t)i + 1;
    }
    tg_release(g->ctx, taken, (size_t)slots * sizeof *taken);
    return status;
}

static tg_status verify_all_names(const tg_graph *g, const verify_report *report) {
    tg_status status = verify_names(g, "input", g->inputs.items, g->inputs.count, sizeof *g->inputs.items, report);
    if (status == TG_OK) status = verify_names(g, "param", g->params.items, g->params.count, sizeof *g->params.items, report);
    if (status == TG_OK) status = verify_names(g, "state", g->states.items, g->states.count, sizeof *g->states.items, report);
    if (status == TG_OK) status = verify_names(g, "capture", g->captures.items, g->captures.count, sizeof *g->captures.items, report);
    return status;
}

/* ---------------------------------------------------------------- tables */

/* Whether a table entry's node is 0 (none is left) or the leaf at that position. */
static bool verify_entry_node(const tg_graph *g, int32_t id, tg_op op, int64_t index) {
    if (id == 0) return true;
    return verify_is_node(g, id) && g->nodes.items[id].op == op && g->nodes.items[id].attr.leaf == index;
}

/* A parameter may also have become a view of flat storage: then only dtype and shape are its
 * own. */
static bool verify_param_node(const tg_graph *g, int64_t index) {
    const tg_param_info *param = &g->params.items[index];
    if (param->node == 0) return true;
    if (!verify_is_node(g, param->node)) return false;
    const tg_node *node = &g->nodes.items[param->node];
    return node->dtype == TG_F32 && tg_shape_equal(node->shape, param->shape) && (node->op != TG_OP_PARAM || node->attr.leaf == index);
}

static tg_status verify_param(const tg_graph *g, int64_t i, const verify_report *report) {
    const tg_param_info *param = &g->params.items[i];
    char why[TG_RULE_MESSAGE / 2];
    if (tg_shape_check(param->shape, why, sizeof why) != TG_OK) return verify_say(report, "param '%s': %s", param->name, why);
    if (!verify_param_node(g, i)) return verify_say(report, "param '%s' has a wrong node", param->name);
    if (!tg_init_valid(param->init)) return verify_say(report, "param '%s' has a wrong initial value", param->name);
    if (param->init.kind == TG_INIT_LITERAL && (!param->init.data || param->init.count != tg_shape_count(param->shape)))
        return verify_say(report, "param '%s' has a literal of another size", param->name);
    return TG_OK;
}

static tg_status verify_tables(const tg_graph *g, const verify_report *report) {
    char why[TG_RULE_MESSAGE / 2];
    tg_status status = TG_OK;
    for (int64_t i = 0; i < g->inputs.count && status == TG_OK; i++) {
        const tg_input_info *input = &g->inputs.items[i];
        if (tg_shape_check(input->shape, why, sizeof why) != TG_OK || !tg_dtype_valid(input->dtype) ||
            !verify_entry_node(g, input->node, TG_OP_INPUT, i))
            status = verify_say(report, "input '%s' has a wrong shape, element type or node", input->name);
    }
    for (int64_t i = 0; i < g->params.count && status == TG_OK; i++) status = verify_param(g, i, report);
    for (int64_t i = 0; i < g->states.count && status == TG_OK; i++) {
        const tg_state_info *state = &g->states.items[i];
        if (tg_shape_check(state->shape, why, sizeof why) != TG_OK || !tg_dtype_valid(state->dtype) ||
            !tg_dtype_holds(state->dtype, state->value) || !verify_entry_node(g, state->node, TG_OP_STATE, i))
            status = verify_say(report, "state '%s' has a wrong shape, element type, value or node", state->name);
    }
    for (int64_t i = 0; i < g->captures.count && status == TG_OK; i++)
        if (!verify_is_node(g, g->captures.items[i].node))
            status = verify_say(report, "capture '%s' has no node", g->captures.items[i].name);
    return status;
}

/* ---------------------------------------------------------------- writebacks, index checks */

static tg_status verify_writeback(const tg_graph *g, int64_t i, unsigned char *written, const verify_report *report) {
    const tg_writeback_info *writeback = &g->writebacks.items[i];
    if (!verify_is_node(g, writeback->destination) || !verify_is_node(g, writeback->source) || !writeback->site.file)
        return verify_say(report, "writeback %lld has no node or site", (long long)i);
    const tg_node *to = &g->nodes.items[writeback->destination], *from = &g->nodes.items[writeback->source];
    if ((to->op != TG_OP_PARAM && to->op != TG_OP_STATE) || to->dtype != from->dtype || !tg_shape_equal(to->shape, from->shape))
        return verify_say(report, "writeback %lld: %%%d does not fit %%%d", (long long)i, (int)writeback->source,
                          (int)writeback->destination);
    if (written[writeback->destination]++)
        return verify_say(report, "writeback %lld: %%%d is written twice", (long long)i, (int)writeback->destination);
    return TG_OK;
}

static tg_status verify_writebacks(const tg_graph *g, const verify_report *report) {
    if (g->writebacks.count == 0) return TG_OK;
    unsigned char *written = tg_alloc(g->ctx, (size_t)g->nodes.count);
    if (!written) return TG_ERROR_MEMORY;
    tg_status status = TG_OK;
    for (int64_t i = 0; i < g->writebacks.count && status == TG_OK; i++) status = verify_writeback(g, i, written, report);
    tg_release(g->ctx, written, (size_t)g->nodes.count);
    return status;
}

static tg_status verify_index_checks(const tg_graph *g, const verify_report *report) {
    for (int64_t i = 0; i < g->checks.count; i++) {
        const tg_index_check *check = &g->checks.items[i];
        if (!verify_is_node(g, check->node) || g->nodes.items[check->node].dtype != TG_I32 || check->lo >= check->hi || !check->op ||
            !check->site.file)
            return verify_say(report, "index check %lld is broken", (long long)i);
    }
    return TG_OK;
}

tg_status tg_graph_check(const tg_graph *g, char *message, size_t size) {
    const verify_report report = {message, size};
    tg_status status = verify_nodes(g, &report);
    if (status == TG_OK) status = verify_all_names(g, &report);
    if (status == TG_OK) status = verify_tables(g, &report);
    if (status == TG_OK) status = verify_writebacks(g, &report);
    if (status == TG_OK) status = verify_index_checks(g, &report);
    if (status == TG_OK && (g->result < 0 || g->result >= g->nodes.count))
        status = verify_say(&report, "the result is node %%%d", (int)g->result);
    return status;
}

tg_status tg_graph_verify(const tg_graph *g) {
    char message[2 * TG_RULE_MESSAGE];
    const tg_status status = tg_graph_check(g, message, sizeof message);
    if (status == TG_OK || status == TG_ERROR_MEMORY) return status;
    return tg_fail(g->ctx, status, TG_SITE_NONE, "fault in tensorgrad, please report it: graph: %s", message);
}
