/* build: appends nodes and table entries to a graph. Each node passes its shape rule first. A call
 * that fails records an error at the graph's current site and leaves nodes and tables as they were.
 * Must not know gradients or the public operations. */
#include "ir/attention.h"
#include "ir/rules.h"

#include <stdio.h>
#include <string.h>

static const char *build_op_name(const tg_graph *g, tg_op op) {
    if (g->current_op) return g->current_op;
    return op > TG_OP_POISON && op < TG_OP_COUNT ? tg_op_table[op].name : "graph";
}

static tg_status build_fail(tg_graph *g, tg_op op, tg_status status, const char *message) {
    return tg_fail(g->ctx, status, g->current_site, "%s: %s", build_op_name(g, op), message);
}

static bool build_known(tg_graph *g, int32_t id) {
    if (id >= 0 && id < g->nodes.count) return true;
    (void)TG_INTERNAL(g->ctx, "a node that the graph does not have");
    return false;
}

/* Whether all inputs may be used. false when an input is poison (nothing is recorded) or unknown
 * (recorded). */
static bool build_inputs_live(tg_graph *g, const int32_t *inputs, int count) {
    bool live = true;
    for (int i = 0; i < count; i++) {
        if (!build_known(g, inputs[i])) return false;
        if (inputs[i] == 0) live = false;
    }
    return live;
}

/* The file name of the current site, in the arena. Most nodes share it with the previous node. */
static const char *build_site_file(tg_graph *g) {
    const char *file = g->current_site.file ? g->current_site.file : "";
    const char *last = g->nodes.items[g->nodes.count - 1].site.file;
    if (last == file || (last && strcmp(last, file) == 0)) return last;
    return file[0] ? tg_arena_text(&g->arena, file) : "";
}

/* Appends a checked node. */
static int32_t build_push(tg_graph *g, tg_node node) {
    if (g->nodes.count >= INT32_MAX) {
        (void)build_fail(g, node.op, TG_ERROR_LIMIT, "the graph is full");
        return 0;
    }
    bool room;
    TG_LIST_ROOM(g, nodes, room);
    if (!room) return 0;
    if (node.input_count > 0) {
        node.inputs = tg_arena_copy(&g->arena, node.inputs, (size_t)node.input_count * sizeof *node.inputs);
        if (!node.inputs) return 0;
    } else {
        node.inputs = NULL;
    }
    node.site.line = g->current_site.line;
    node.site.file = build_site_file(g);
    if (!node.site.file) return 0;
    if (node.op == TG_OP_CONST && node.dtype == TG_F32) node.attr.value = (double)(float)node.attr.value;
    const int32_t id = (int32_t)g->nodes.count;
    g->nodes.items[id] = node;
    g->nodes.count++;
    return id;
}

static void build_say_mismatch(tg_graph *g, const tg_node *node, const tg_rule *rule) {
    char made[TG_SHAPE_TEXT], wanted[TG_SHAPE_TEXT], message[3 * TG_SHAPE_TEXT];
    (void)snprintf(message, sizeof message, "node made as %s%s, its rule says %s%s", tg_dtype_name(node->dtype),
                   tg_shape_text(node->shape, made, sizeof made), tg_dtype_name(rule->dtype),
                   tg_shape_text(rule->shape, wanted, sizeof wanted));
    (void)build_fail(g, node->op, TG_ERROR_INTERNAL, message);
}

/* exact: the draft's shape and dtype must be those of the rule. Else they are taken from the
 * rule. */
static int32_t build_node(tg_graph *g, tg_node draft, bool exact) {
    if (!build_inputs_live(g, draft.inputs, draft.input_count)) return 0;
    tg_rule rule;
    const tg_status status = tg_rule_apply(&rule, g, &draft, (int32_t)g->nodes.count);
    if (status != TG_OK) {
        (void)build_fail(g, draft.op, status, rule.message);
        return 0;
    }
    if (exact && (rule.dtype != draft.dtype || !tg_shape_equal(rule.shape, draft.shape))) {
        build_say_mismatch(g, &draft, &rule);
        return 0;
    }
    draft.dtype = rule.dtype;
    draft.shape = rule.shape;
    return build_push(g, draft);
}

static tg_node build_draft(tg_op op, tg_dtype dtype, tg_shape shape, const int32_t *inputs, int count) {
    tg_node draft;
    memset(&draft, 0, sizeof draft);
    draft.op = op;
    draft.dtype = dtype;
    draft.shape = shape;
    draft.inputs = inputs;
    draft.input_count = count;
    return draft;
}

int32_t tg_node_make(tg_graph *g, tg_op op, tg_dtype dtype, tg_shape shape, const int32_t *inputs, int count, const tg_attributes *attr) {
    tg_node draft = build_draft(op, dtype, shape, inputs, count);
    if (attr) draft.attr = *attr;
    return build_node(g, draft, true);
}

/* ---------------------------------------------------------------- constants */

int32_t tg_ir_const(tg_graph *g, tg_shape shape, tg_dtype dtype, double value) {
    tg_node draft = build_draft(TG_OP_CONST, dtype, shape, NULL, 0);
    draft.attr.value = value;
    return build_node(g, draft, true);
}

/* Copies count elements into the arena. Of a bool any byte other than 0 becomes 1. */
static void *build_copy_data(tg_graph *g, tg_dtype dtype, const void *data, int64_t count) {
    void *copy = tg_arena_copy(&g->arena, data, (size_t)count * tg_dtype_bytes(dtype));
    unsigned char *flags = copy;
    for (int64_t i = 0; copy && dtype == TG_BOOL && i < count; i++) flags[i] = flags[i] != 0;
    return copy;
}

int32_t tg_ir_data(tg_graph *g, tg_shape shape, tg_dtype dtype, const void *data) {
    tg_node draft = build_draft(TG_OP_CONST, dtype, shape, NULL, 0);
    draft.attr.data = data;
    tg_rule rule;
    tg_status status = tg_rule_apply(&rule, g, &draft, (int32_t)g->nodes.count);
    if (status == TG_OK && !data) {
        status = TG_ERROR_ARGUMENT;
        (void)snprintf(rule.message, sizeof rule.message, "no data");
    }
    if (status != TG_OK) {
        (void)build_fail(g, TG_OP_CONST, status, rule.message);
        return 0;
    }
    draft.attr.data = build_copy_data(g, dtype, data, tg_shape_count(shape));
    return draft.attr.data ? build_node(g, draft, true) : 0;
}

int32_t tg_ir_iota(tg_graph *g, tg_shape shape, tg_dtype dtype, int axis) {
    tg_node draft = build_draft(TG_OP_IOTA, dtype, shape, NULL, 0);
    draft.attr.axis = axis;
    return build_node(g, draft, true);
}

/* ---------------------------------------------------------------- elementwise */

int32_t tg_ir_unary(tg_graph *g, tg_op op, int32_t x) { return build_node(g, build_draft(op, TG_F32, TG_SCALAR, &x, 1), false); }

/* Brings `count` operands of an elementwise op to one shape. Checks dtypes first, so that messages
 * name the operands and not their broadcasts. */
static bool build_broadcast_operands(tg_graph *g, tg_op op, int32_t *inputs, int count) {
    if (!build_inputs_live(g, inputs, count)) return false;
    char message[TG_RULE_MESSAGE];
    tg_status status = tg_operands_check(g, op, inputs, count, message, sizeof message);
    tg_shape shape = tg_graph_node(g, inputs[0])->shape, other;
    for (int i = 0; i < count && status == TG_OK; i++)
        for (int j = 0; j < i && status == TG_OK; j++)
            status = tg_broadcast_check(g, inputs[j], inputs[i], &other, message, sizeof message);
    for (int i = 1; i < count && status == TG_OK; i++) {
        (void)tg_shape_broadcast(shape, tg_graph_node(g, inputs[i])->shape, &other);
        shape = other;
        status = tg_shape_check(shape, message, sizeof message);
    }
    if (status != TG_OK) {
        (void)build_fail(g, op, status, message);
        return false;
    }
    for (int i = 0; i < count; i++) {
        inputs[i] = tg_ir_broadcast(g, inputs[i], shape);
        if (inputs[i] == 0) return false;
    }
    return true;
}

int32_t tg_ir_binary(tg_graph *g, tg_op op, int32_t a, int32_t b) {
    int32_t inputs[2] = {a, b};
    if (!build_broadcast_operands(g, op, inputs, 2)) return 0;
    return build_node(g, build_draft(op, TG_F32, TG_SCALAR, inputs, 2), false);
}

int32_t tg_ir_select(tg_graph *g, int32_t c, int32_t a, int32_t b) {
    int32_t inputs[3] = {c, a, b};
    if (!build_broadcast_operands(g, TG_OP_SELECT, inputs, 3)) return 0;
    return build_node(g, build_draft(TG_OP_SELECT, TG_F32, TG_SCALAR, inputs, 3), false);
}

int32_t tg_ir_cast(tg_graph *g, int32_t x, tg_dtype dtype) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    if (tg_graph_node(g, x)->dtype == dtype) return x;
    return build_node(g, build_draft(TG_OP_CAST, dtype, TG_SCALAR, &x, 1), false);
}

int32_t tg_ir_random(tg_graph *g, int32_t index, int32_t key0, int32_t key1, int32_t stream, int64_t bound) {
    int32_t inputs[3] = {index, key0, key1};
    if (!build_broadcast_operands(g, TG_OP_RANDOM, inputs, 3)) return 0;
    tg_node draft = build_draft(TG_OP_RANDOM, TG_I32, TG_SCALAR, inputs, 3);
    draft.attr.stream = stream;
    draft.attr.value = (double)bound;
    return build_node(g, draft, false);
}

/* ---------------------------------------------------------------- reductions, views */

/* A reduction over no axes: the operand itself, or index 0 everywhere. */
static int32_t build_reduce_nothing(tg_graph *g, tg_op op, int32_t x) {
    char message[TG_RULE_MESSAGE];
    const tg_status status = tg_operands_check(g, op, &x, 1, message, sizeof message);
    if (status != TG_OK) {
        (void)build_fail(g, op, status, message);
        return 0;
    }
    const bool is_index = op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
    return is_index ? tg_ir_const(g, tg_graph_node(g, x)->shape, TG_I32, 0) : x;
}

int32_t tg_ir_reduce(tg_graph *g, tg_op op, int32_t x, uint32_t axes) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    if (axes == 0) return build_reduce_nothing(g, op, x);
    tg_node draft = build_draft(op, TG_F32, TG_SCALAR, &x, 1);
    draft.attr.axes = axes;
    return build_node(g, draft, false);
}

int32_t tg_ir_reshape(tg_graph *g, int32_t x, tg_shape shape) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    if (tg_shape_equal(tg_graph_node(g, x)->shape, shape)) return x;
    return build_node(g, build_draft(TG_OP_RESHAPE, TG_F32, shape, &x, 1), false);
}

int32_t tg_ir_permute(tg_graph *g, int32_t x, const int32_t *perm) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    tg_node draft = build_draft(TG_OP_PERMUTE, TG_F32, TG_SCALAR, &x, 1);
    bool identity = true;
    for (int32_t i = 0; i < tg_graph_node(g, x)->shape.rank; i++) {
        draft.attr.perm[i] = perm[i];
        identity = identity && perm[i] == i;
    }
    return identity ? x : build_node(g, draft, false);
}

int32_t tg_ir_broadcast(tg_graph *g, int32_t x, tg_shape shape) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    const tg_shape from = tg_graph_node(g, x)->shape;
    if (tg_shape_equal(from, shape)) return x;
    tg_shape joined, grown = shape;
    char why[TG_RULE_MESSAGE], text[TG_NODE_TEXT], wanted[TG_SHAPE_TEXT];
    tg_status status = tg_shape_check(shape, why, sizeof why);
    if (status == TG_OK && (!tg_shape_broadcast(from, shape, &joined) || !tg_shape_equal(joined, shape))) {
        status = TG_ERROR_SHAPE;
        (void)snprintf(why, sizeof why, "%s does not broadcast to %s", tg_node_text(g, x, text, sizeof text),
                       tg_shape_text(shape, wanted, sizeof wanted));
    }
    if (status != TG_OK) {
        (void)build_fail(g, TG_OP_BROADCAST, status, why);
        return 0;
    }
    for (int32_t i = 0; i < shape.rank; i++) {
        const int32_t at = i - (shape.rank - from.rank);
        grown.dim[i] = at < 0 ? 1 : from.dim[at];
    }
    const int32_t same_rank = tg_ir_reshape(g, x, grown);
    if (same_rank == 0 || tg_shape_equal(grown, shape)) return same_rank;
    return build_node(g, build_draft(TG_OP_BROADCAST, TG_F32, shape, &same_rank, 1), false);
}

/* SLICE takes the box of `shape` that begins at `start`; PAD puts x into one, at `start`. */
static int32_t build_box(tg_graph *g, tg_op op, int32_t x, const int64_t *start, tg_shape shape) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    tg_node draft = build_draft(op, TG_F32, shape, &x, 1);
    bool identity = tg_shape_equal(tg_graph_node(g, x)->shape, shape);
    for (int32_t i = 0; i < tg_graph_node(g, x)->shape.rank; i++) {
        draft.attr.start[i] = start[i];
        identity = identity && start[i] == 0;
    }
    return identity ? x : build_node(g, draft, false);
}

int32_t tg_ir_slice(tg_graph *g, int32_t x, const int64_t *start, tg_shape shape) { return build_box(g, TG_OP_SLICE, x, start, shape); }

int32_t tg_ir_pad(tg_graph *g, int32_t x, const int64_t *before, tg_shape shape) { return build_box(g, TG_OP_PAD, x, before, shape); }

int32_t tg_ir_flip(tg_graph *g, int32_t x, uint32_t axes) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    if (axes == 0) return x;
    tg_node draft = build_draft(TG_OP_FLIP, TG_F32, TG_SCALAR, &x, 1);
    draft.attr.axes = axes;
    return build_node(g, draft, false);
}

/* ---------------------------------------------------------------- windows */

int32_t tg_ir_window(tg_graph *g, int32_t x, int axis, tg_window window) {
    tg_node draft = build_draft(TG_OP_WINDOW, TG_F32, TG_SCALAR, &x, 1);
    draft.attr.axis = axis;
    draft.attr.window = window;
    return build_node(g, draft, false);
}

/* x with `axis` cut to `length`, or filled with zeros at its end. */
static int32_t build_fit(tg_graph *g, int32_t x, int axis, int64_t length) {
    const int64_t start[TG_MAX_RANK] = {0};
    if (x == 0) return 0;
    tg_shape shape = tg_graph_node(g, x)->shape;
    const bool longer = length > shape.dim[axis];
    shape.dim[axis] = length;
    return longer ? tg_ir_pad(g, x, start, shape) : tg_ir_slice(g, x, start, shape);
}

/* Splits `axis` into two, [outer, inner]; merges `axis` with the next one. */
static int32_t build_split_axis(tg_graph *g, int32_t x, int axis, int64_t outer, int64_t inner) {
    if (x == 0) return 0;
    tg_shape shape = tg_graph_node(g, x)->shape;
    for (int i = shape.rank++; i > axis + 1; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[axis] = outer;
    shape.dim[axis + 1] = inner;
    return tg_ir_reshape(g, x, shape);
}
static int32_t build_merge_axes(tg_graph *g, int32_t x, int axis) {
    if (x == 0) return 0;
    tg_shape shape = tg_graph_node(g, x)->shape;
    shape.dim[axis] *= shape.dim[axis + 1];
    shape.rank--;
    for (int i = axis + 1; i < shape.rank; i++) shape.dim[i] = shape.dim[i + 1];
    return tg_ir_reshape(g, x, shape);
}

/* Windows that do not overlap, one after another: moves taps beside their window, spreads them by
 * the dilation, fills each window up to the stride. */
static int32_t build_fold_apart(tg_graph *g, int32_t x, int axis, tg_window w, int64_t length) {
    const int32_t rank = tg_graph_node(g, x)->shape.rank;
    int32_t perm[TG_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) perm[i] = i <= axis ? i : i == axis + 1 ? rank - 1 : i - 1;
    x = tg_ir_permute(g, x, perm);
    if (w.dilation > 1 && w.size > 1) {
        x = build_fit(g, build_split_axis(g, x, axis + 1, w.size, 1), axis + 2, w.dilation);
        x = build_merge_axes(g, x, axis + 1);
    }
    return build_fit(g, build_merge_axes(g, build_fit(g, x, axis + 1, w.stride), axis), axis, length);
}

/* The most taps that one fold adds: each is a load and an addition in the body of its kernel. */
#define BUILD_FOLD_TAPS 32

/* Folds the two halves of the taps, each of which a plan may store, and adds them. The second half
 * begins after the taps of the first. */
static int32_t build_fold_halves(tg_graph *g, int32_t x, int axis, tg_window w, int64_t length) {
    int64_t start[TG_MAX_RANK] = {0};
    tg_shape taps = tg_graph_node(g, x)->shape;
    tg_window left = w, right = w;
    left.size = w.size / 2;
    right.size = w.size - left.size;
    taps.dim[taps.rank - 1] = left.size;
    int32_t first = tg_ir_fold(g, tg_ir_slice(g, x, start, taps), axis, left, length);
    start[taps.rank - 1] = left.size;
    taps.dim[taps.rank - 1] = right.size;
    int32_t second = tg_ir_fold(g, tg_ir_slice(g, x, start, taps), axis, right, length - left.size * w.dilation);
    if (first == 0 || second == 0) return 0;
    start[taps.rank - 1] = 0;
    start[axis] = left.size * w.dilation;
    return tg_ir_binary(g, TG_OP_ADD, first, tg_ir_pad(g, second, start, tg_graph_node(g, first)->shape));
}

int32_t tg_ir_fold(tg_graph *g, int32_t x, int axis, tg_window window, int64_t length) {
    if (!build_inputs_live(g, &x, 1)) return 0;
    tg_shape shape = tg_graph_node(g, x)->shape;
    const bool room = shape.rank < TG_MAX_RANK || window.dilation == 1 || window.size == 1;
    if (room && axis >= 0 && axis < shape.rank - 1 && window.stride >= tg_window_span(window))
        return build_fold_apart(g, x, axis, window, length);
    const bool sound = axis >= 0 && axis < shape.rank - 1 && window.stride >= 1 && window.dilation >= 1 && tg_window_span(window) <= length;
    if (sound && window.size > BUILD_FOLD_TAPS && shape.dim[shape.rank - 1] == window.size)
        return build_fold_halves(g, x, axis, window, length);
    shape.rank--;
    if (axis >= 0 && axis < shape.rank && window.stride >= 1)
        shape.dim[axis] = (length + window.stride - 1) / window.stride * window.stride;
    tg_node draft = build_draft(TG_OP_FOLD, TG_F32, shape, &x, 1);
    draft.attr.axis = axis;
    draft.attr.window = window;
    return build_fit(g, build_node(g, draft, false), axis, length);
}

/* ---------------------------------------------------------------- joins, contraction, indexing */

/* More parts than a kernel should bind at once become a tree, so that a plan may store the inner
 * results. */
#define BUILD_CONCAT_PARTS 6

static int32_t build_concat_tree(tg_graph *g, const int32_t *parts, int count, int axis) {
    int trees = (count + BUILD_CONCAT_PARTS - 1) / BUILD_CONCAT_PARTS;
    int32_t *tree = TG_NEW(&g->arena, int32_t, trees);
    if (!tree) return 0;
    for (int i = 0; i < trees; i++) {
        int first = i * BUILD_CONCAT_PARTS, n = count - first < BUILD_CONCAT_PARTS ? count - first : BUILD_CONCAT_PARTS;
        tree[i] = n == 1 ? parts[first] : tg_ir_concat(g, parts + first, n, axis);
        if (tree[i] == 0) return 0;
    }
    return tg_ir_concat(g, tree, trees, axis);
}

int32_t tg_ir_concat(tg_graph *g, const int32_t *parts, int count, int axis) {
    if (count > BUILD_CONCAT_PARTS) return build_concat_tree(g, parts, count, axis);
    tg_node draft = build_draft(TG_OP_CONCAT, TG_F32, TG_SCALAR, parts, count);
    draft.attr.axis = axis;
    return build_node(g, draft, false);
}

int32_t tg_ir_pack(tg_graph *g, const int32_t *parts, const int64_t *offsets, int count, int64_t total) {
    if (count < 0 || !build_inputs_live(g, parts, count)) return 0;
    tg_node draft = build_draft(TG_OP_PACK, TG_F32, TG_SHAPE(total), parts, count);
    draft.attr.offsets = tg_arena_copy(&g->arena, offsets, (size_t)count * sizeof *offsets);
    return draft.attr.offsets ? build_node(g, draft, false) : 0;
}

int32_t tg_ir_contract(tg_graph *g, int32_t a, int32_t b) {
    const int32_t inputs[2] = {a, b};
    return build_node(g, build_draft(TG_OP_CONTRACT, TG_F32, TG_SCALAR, inputs, 2), false);
}

int32_t tg_ir_gather(tg_graph *g, int32_t table, int32_t indices) {
    const int32_t inputs[2] = {table, indices};
    return build_node(g, build_draft(TG_OP_GATHER, TG_F32, TG_SCALAR, inputs, 2), false);
}

int32_t tg_ir_scatter_add(tg_graph *g, int32_t indices, int32_t updates, int64_t rows) {
    const int32_t inputs[2] = {indices, updates};
    return build_node(g, build_draft(TG_OP_SCATTER_ADD, TG_F32, TG_SHAPE(rows, 1), inputs, 2), false);
}

int32_t tg_ir_attention(tg_graph *g, tg_op op, const int32_t *inputs, int count, bool causal, double scale) {
    tg_node draft = build_draft(op, TG_F32, TG_SCALAR, inputs, count);
    draft.attr.causal = causal;
    draft.attr.value = (double)(float)scale; /* as f32 constants are */
    return build_node(g, draft, false);
}

/* ---------------------------------------------------------------- leaves with a table entry */

/* Refuses an empty name and one that the table already has. The items of a table are structs that
 * begin with their name. */
static bool build_name_free(tg_graph *g, tg_op op, const char *name, const void *items, int64_t count, size_t item) {
    if (!name || !name[0]) {
        (void)build_fail(g, op, TG_ERROR_ARGUMENT, "a name is needed");
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        const char *const *taken = (const void *)((const char *)items + (size_t)i * item);
        if (strcmp(*taken, name) != 0) continue;
        (void)tg_fail(g->ctx, TG_ERROR_DUPLICATE, g->current_site, "%s: the name '%s' is used twice", build_op_name(g, op), name);
        return false;
    }
    return true;
}

static int32_t build_named_leaf(tg_graph *g, tg_op op, const char *name, tg_shape shape, tg_dtype dtype, int64_t position) {
    tg_node draft = build_draft(op, dtype, shape, NULL, 0);
    draft.attr.leaf = (int32_t)position;
    tg_rule rule;
    const tg_status status = tg_rule_apply(&rule, g, &draft, (int32_t)g->nodes.count);
    if (status != TG_OK) {
        (void)tg_fail(g->ctx, status, g->current_site, "%s '%s': %s", build_op_name(g, op), name, rule.message);
        return 0;
    }
    draft.name = tg_arena_text(&g->arena, name);
    return draft.name ? build_push(g, draft) : 0;
}

int32_t tg_ir_input(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype) {
    bool ok = build_name_free(g, TG_OP_INPUT, name, g->inputs.items, g->inputs.count, sizeof *g->inputs.items);
    if (ok) TG_LIST_ROOM(g, inputs, ok);
    const int32_t id = ok ? build_named_leaf(g, TG_OP_INPUT, name, shape, dtype, g->inputs.count) : 0;
    if (id == 0) return 0;
    const tg_input_info entry = {g->nodes.items[id].name, shape, dtype, id, 0};
    g->inputs.items[g->inputs.count++] = entry;
    return id;
}

bool tg_init_valid(tg_init init) {
    return (int)init.kind >= TG_INIT_RANDN && (int)init.kind <= TG_INIT_LITERAL && init.scale >= 0 && init.scale <= 1e30;
}

/* Checks an initial value and copies literal data into the arena. */
static bool build_keep_init(tg_graph *g, const char *name, tg_shape shape, tg_init *init) {
    if (!tg_init_valid(*init)) {
        (void)tg_fail(g->ctx, TG_ERROR_ARGUMENT, g->current_site, "param '%s': no such initial value (kind %d, scale %g)", name,
                      (int)init->kind, init->scale);
        return false;
    }
    if (init->kind != TG_INIT_LITERAL) return true;
    const int64_t count = tg_shape_count(shape);
    if (init->count != count || !init->data) {
        char text[TG_SHAPE_TEXT];
        (void)tg_fail(g->ctx, TG_ERROR_SHAPE, g->current_site, "param '%s': the literal has %lld numbers, shape %s needs %lld", name,
                      (long long)(init->data ? init->count : 0), tg_shape_text(shape, text, sizeof text), (long long)count);
        return false;
    }
    init->data = tg_arena_copy(&g->arena, init->data, (size_t)count * sizeof *init->data);
    return init->data != NULL;
}

int32_t tg_ir_param(tg_graph *g, const char *full_name, tg_shape shape, tg_init init, bool decay, bool frozen) {
    bool ok = build_name_free(g, TG_OP_PARAM, full_name, g->params.items, g->params.count, sizeof *g->params.items);
    if (ok && tg_shape_count(shape) >= 0) ok = build_keep_init(g, full_name, shape, &init);
    if (ok) TG_LIST_ROOM(g, params, ok);
    const int32_t id = ok ? build_named_leaf(g, TG_OP_PARAM, full_name, shape, TG_F32, g->params.count) : 0;
    if (id == 0) return 0;
    const tg_param_info entry = {g->nodes.items[id].name, shape, init, decay, frozen, {.rate = 1.0, .weight_decay = -1.0}, id};
    g->params.items[g->params.count++] = entry;
    return id;
}

int32_t tg_ir_find_state(const tg_graph *g, const char *name) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (strcmp(g->states.items[i].name, name) == 0) return g->states.items[i].node;
    return 0;
}

int32_t tg_ir_state(tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value) {
    bool ok = build_name_free(g, TG_OP_STATE, name, g->states.items, g->states.count, sizeof *g->states.items);
    if (ok && tg_dtype_valid(dtype) && !tg_dtype_holds(dtype, value)) {
        (void)tg_fail(g->ctx, TG_ERROR_DTYPE, g->current_site, "state '%s': %.17g is not exact in %s", name, value, tg_dtype_name(dtype));
        ok = false;
    }
    if (ok) TG_LIST_ROOM(g, states, ok);
    const int32_t id = ok ? build_named_leaf(g, TG_OP_STATE, name, shape, dtype, g->states.count) : 0;
    if (id == 0) return 0;
    const tg_state_info entry = {g->nodes.items[id].name, shape, dtype, value, id};
    g->states.items[g->states.count++] = entry;
    return id;
}

/* ---------------------------------------------------------------- writebacks, index checks */

static tg_status build_check_writeback(tg_graph *g, int32_t destination, int32_t source) {
    const tg_node *to = tg_graph_node(g, destination), *from = tg_graph_node(g, source);
    char left[TG_NODE_TEXT], right[TG_NODE_TEXT];
    (void)tg_node_text(g, destination, left, sizeof left);
    (void)tg_node_text(g, source, right, sizeof right);
    if (to->op != TG_OP_PARAM && to->op != TG_OP_STATE)
        return tg_fail(g->ctx, TG_ERROR_ARGUMENT, g->current_site, "writeback: %s is neither a parameter nor a state", left);
    if (to->dtype != from->dtype)
        return tg_fail(g->ctx, TG_ERROR_DTYPE, g->current_site, "writeback: element types differ: %s from %s (%s, %s)", left, right,
                       tg_dtype_name(to->dtype), tg_dtype_name(from->dtype));
    if (!tg_shape_equal(to->shape, from->shape))
        return tg_fail(g->ctx, TG_ERROR_SHAPE, g->current_site, "writeback: shapes differ: %s from %s", left, right);
    for (int64_t i = 0; i < g->writebacks.count; i++)
        if (g->writebacks.items[i].destination == destination)
            return tg_fail(g->ctx, TG_ERROR_DUPLICATE, g->current_site, "writeback: %s is written twice", left);
    return TG_OK;
}

/* The current site with its file in the arena. */
static bool build_keep_site(tg_graph *g, tg_site *site) {
    site->line = g->current_site.line;
    site->file = build_site_file(g);
    return site->file != NULL;
}

bool tg_ir_writeback(tg_graph *g, int32_t destination, int32_t source) {
    const int32_t ends[2] = {destination, source};
    if (!build_inputs_live(g, ends, 2) || build_check_writeback(g, destination, source) != TG_OK) return false;
    tg_writeback_info entry = {destination, source, TG_SITE_NONE};
    bool ok = build_keep_site(g, &entry.site);
    if (ok) TG_LIST_ROOM(g, writebacks, ok);
    if (ok) g->writebacks.items[g->writebacks.count++] = entry;
    return ok;
}

bool tg_ir_check_index(tg_graph *g, int32_t node, int64_t lo, int64_t hi, bool has_ignore, int32_t ignore, const char *op) {
    if (!build_inputs_live(g, &node, 1)) return false;
    char text[TG_NODE_TEXT];
    if (tg_graph_node(g, node)->dtype != TG_I32 || lo >= hi) {
        (void)tg_fail(g->ctx, tg_graph_node(g, node)->dtype != TG_I32 ? TG_ERROR_DTYPE : TG_ERROR_ARGUMENT, g->current_site,
                      "%s: indices must be i32 and lie in [%lld, %lld): %s", op ? op : "index", (long long)lo, (long long)hi,
                      tg_node_text(g, node, text, sizeof text));
        return false;
    }
    tg_index_check entry = {node, lo, hi, has_ignore, ignore, tg_arena_text(&g->arena, op), TG_SITE_NONE};
    bool ok = entry.op && build_keep_site(g, &entry.site);
    if (ok) TG_LIST_ROOM(g, checks, ok);
    if (ok) g->checks.items[g->checks.count++] = entry;
    return ok;
}
