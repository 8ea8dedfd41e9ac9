/* print: a graph as text, one line for each node, and as Graphviz dot. Accepts any graph.
 * O(nodes + inputs). Must not change the graph. */
#include "ir/rules.h"

#include <string.h>

enum { PRINT_DATA_SHOWN = 8 };

/* The last part of a path, so that the text does not depend on the folder the program was built
 * in. */
static const char *print_base_name(const char *path) {
    const char *base = path;
    for (const char *at = path; *at; at++)
        if (*at == '/' || *at == '\\') base = at + 1;
    return base;
}

static void print_quoted(tg_text_buffer *text, const char *name) {
    tg_text_add(text, "\"");
    for (const char *at = name; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == 0x7F) tg_text_add(text, "\\x%02x", c);
        else tg_text_add(text, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    tg_text_add(text, "\"");
}

static void print_type(tg_text_buffer *text, tg_dtype dtype, tg_shape shape) {
    char buffer[TG_SHAPE_TEXT];
    tg_text_add(text, "%s%s", tg_dtype_name(dtype), tg_shape_text(shape, buffer, sizeof buffer));
}

/* A number of a dtype; an i32 with all its digits. */
static void print_value(tg_text_buffer *text, tg_dtype dtype, double value) {
    if (dtype == TG_F32) tg_text_number(text, value);
    else if (dtype == TG_I32) tg_text_add(text, "%.0f", value);
    else tg_text_add(text, "%s", value != 0 ? "true" : "false");
}

static void print_const(tg_text_buffer *text, const tg_node *node) {
    tg_text_add(text, " ");
    if (!node->attr.data) {
        print_value(text, node->dtype, node->attr.value);
        return;
    }
    const int64_t count = tg_shape_count(node->shape);
    tg_text_add(text, "{");
    for (int64_t i = 0; i < count && i < PRINT_DATA_SHOWN; i++) {
        if (i) tg_text_add(text, ", ");
        print_value(text, node->dtype, tg_dtype_get(node->dtype, node->attr.data, i));
    }
    tg_text_add(text, count > PRINT_DATA_SHOWN ? ", ...}" : "}");
}

static void print_axis_mask(tg_text_buffer *text, uint32_t axes) {
    const char *separator = "";
    tg_text_add(text, " axes=[");
    for (int axis = 0; axis < TG_MAX_RANK; axis++) {
        if (!(axes >> axis & 1u)) continue;
        tg_text_add(text, "%s%d", separator, axis);
        separator = ", ";
    }
    tg_text_add(text, "]");
}

static void print_numbers(tg_text_buffer *text, const char *label, const int64_t *numbers, int64_t count) {
    tg_text_add(text, " %s=[", label);
    for (int64_t i = 0; i < count; i++) tg_text_add(text, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    tg_text_add(text, "]");
}

static void print_attributes(tg_text_buffer *text, const tg_node *node) {
    int64_t perm[TG_MAX_RANK];
    switch (node->op) {
    case TG_OP_CONST: print_const(text, node); break;
    case TG_OP_SUM:
    case TG_OP_REDUCE_MAX:
    case TG_OP_REDUCE_MIN:
    case TG_OP_ARGMAX:
    case TG_OP_ARGMIN:
    case TG_OP_FLIP: print_axis_mask(text, node->attr.axes); break;
    case TG_OP_IOTA:
    case TG_OP_CONCAT: tg_text_add(text, " axis=%d", (int)node->attr.axis); break;
    case TG_OP_PERMUTE:
        for (int i = 0; i < TG_MAX_RANK; i++) perm[i] = node->attr.perm[i];
        print_numbers(text, "perm", perm, node->shape.rank);
        break;
    case TG_OP_SLICE: print_numbers(text, "start", node->attr.start, node->shape.rank); break;
    case TG_OP_PAD: print_numbers(text, "before", node->attr.start, node->shape.rank); break;
    case TG_OP_RANDOM: tg_text_add(text, " stream=%d below=%.0f", (int)node->attr.stream, node->attr.value); break;
    case TG_OP_WINDOW:
    case TG_OP_FOLD:
        tg_text_add(text, " axis=%d size=%lld step=%lld dilation=%lld", (int)node->attr.axis, (long long)node->attr.window.size,
                    (long long)node->attr.window.stride, (long long)node->attr.window.dilation);
        break;
    case TG_OP_PACK: print_numbers(text, "offsets", node->attr.offsets, node->input_count); break;
    case TG_OP_ATTENTION:
    case TG_OP_ATTENTION_DQ:
    case TG_OP_ATTENTION_DKV: tg_text_add(text, " scale=%.9g%s", node->attr.value, node->attr.causal ? " causal" : ""); break;
    default: break;
    }
}

static void print_site(tg_text_buffer *text, tg_site site) {
    if (site.file && site.file[0]) tg_text_add(text, "  ; %s:%d", print_base_name(site.file), site.line);
}

/* %12 = add f32[256, 64] %10 %11  ; model.c:41 */
static void print_node(tg_text_buffer *text, const tg_node *node, int32_t id) {
    tg_text_add(text, "%%%d = %s ", (int)id, tg_op_table[node->op].name);
    print_type(text, node->dtype, node->shape);
    for (int32_t i = 0; i < node->input_count; i++) tg_text_add(text, " %%%d", (int)node->inputs[i]);
    print_attributes(text, node);
    if (node->name && node->name[0]) {
        tg_text_add(text, " ");
        print_quoted(text, node->name);
    }
    print_site(text, node->site);
    tg_text_add(text, "\n");
}

static void print_tables(const tg_graph *g, tg_text_buffer *text) {
    for (int64_t i = 0; i < g->captures.count; i++) {
        tg_text_add(text, "capture ");
        print_quoted(text, g->captures.items[i].name);
        tg_text_add(text, " %%%d\n", (int)g->captures.items[i].node);
    }
    for (int64_t i = 0; i < g->checks.count; i++) {
        const tg_index_check *check = &g->checks.items[i];
        tg_text_add(text, "check %%%d in [%lld, %lld)", (int)check->node, (long long)check->lo, (long long)check->hi);
        if (check->has_ignore) tg_text_add(text, " or %d", (int)check->ignore);
        tg_text_add(text, " for %s", check->op);
        print_site(text, check->site);
        tg_text_add(text, "\n");
    }
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        tg_text_add(text, "writeback %%%d <- %%%d", (int)g->writebacks.items[i].destination, (int)g->writebacks.items[i].source);
        print_site(text, g->writebacks.items[i].site);
        tg_text_add(text, "\n");
    }
    if (g->result > 0) tg_text_add(text, "result %%%d\n", (int)g->result);
}

void tg_graph_print(const tg_graph *g, tg_text_buffer *text) {
    for (int32_t id = 1; id < g->nodes.count; id++) print_node(text, &g->nodes.items[id], id);
    print_tables(g, text);
}

/* ---------------------------------------------------------------- Graphviz */

/* Writes `name` inside a quoted dot label, followed by a line break. */
static void print_dot_line(tg_text_buffer *text, const char *name) {
    for (const char *at = name; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c >= 0x20 && c != 0x7F) tg_text_add(text, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    tg_text_add(text, "\\n");
}

static const char *print_dot_style(tg_op op) {
    switch (tg_op_table[op].class_) {
    case TG_CLASS_LEAF: return "style=filled, fillcolor=\"#dce9f9\"";
    case TG_CLASS_REDUCE: return "style=filled, fillcolor=\"#fdebd0\"";
    case TG_CLASS_CONTRACT:
    case TG_CLASS_INDEX:
    case TG_CLASS_ATTENTION: return "style=filled, fillcolor=\"#f9dcdc\"";
    case TG_CLASS_VIEW:
    case TG_CLASS_JOIN: return "style=dashed";
    default: return "style=solid";
    }
}

static void print_dot_node(tg_text_buffer *text, const tg_node *node, int32_t id) {
    tg_text_add(text, "  n%d [%s, label=\"", (int)id, print_dot_style(node->op));
    if (node->name && node->name[0]) print_dot_line(text, node->name);
    tg_text_add(text, "%s", tg_op_table[node->op].name);
    if (node->op == TG_OP_CONST && !node->attr.data) print_const(text, node);
    tg_text_add(text, "\\n");
    print_type(text, node->dtype, node->shape);
    tg_text_add(text, "\"];\n");
    for (int32_t i = 0; i < node->input_count; i++) tg_text_add(text, "  n%d -> n%d;\n", (int)node->inputs[i], (int)id);
}

void tg_graph_print_dot(const tg_graph *g, tg_text_buffer *text) {
    tg_text_add(text, "digraph tensorgrad {\n  node [shape=box, fontname=\"monospace\"];\n");
    for (int32_t id = 1; id < g->nodes.count; id++) print_dot_node(text, &g->nodes.items[id], id);
    for (int64_t i = 0; i < g->writebacks.count; i++)
        tg_text_add(text, "  n%d -> n%d [style=dotted, constraint=false];\n", (int)g->writebacks.items[i].source,
                    (int)g->writebacks.items[i].destination);
    if (g->result > 0) tg_text_add(text, "  result [shape=plaintext];\n  n%d -> result;\n", (int)g->result);
    tg_text_add(text, "}\n");
}
