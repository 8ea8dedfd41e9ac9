/* A trace: starts and ends one, enters and fails operations, and checks what all operations have in
 * common. Must not know what any single operation computes. */
#include "trace/trace.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPERANDS_SHOWN = (int)(sizeof((tg_call *)NULL)->operands / sizeof(int32_t)) };

/* ---------------------------------------------------------------- entering */

/* Sets the user's site and the operation's name for the nodes to come. Copies the file's name: the
 * text of a binding may not outlive the call. */
static bool stamp_call(const tg_call *call) {
    tg_graph *g = call->graph;
    const char *file = call->site.file != NULL ? call->site.file : "";
    g->current_op = call->op;
    if (g->current_site.file == NULL || strcmp(g->current_site.file, file) != 0) {
        const char *copy = tg_arena_text(&g->arena, file);
        if (copy == NULL) return false;
        g->current_site.file = copy;
    }
    g->current_site.line = call->site.line;
    return true;
}

tg_tensor tg_call_poison(const tg_call *call) {
    tg_tensor poison = {call->graph, 0};
    return poison;
}

/* The trace of the build function that runs on this thread, or NULL. */
static _Thread_local tg_graph *trace_current;

/* Most graphs are the current one, which needs no search. */
static bool trace_has(const tg_graph *graph) { return graph == trace_current || tg_is_alive(graph); }

/* An operand without a graph, or with one that is gone, has no context. The error then goes to the
 * call's graph, or to the trace in progress. */
static void fail_operand(tg_call *call, const char *what, int operand) {
    if (call->graph == NULL || !trace_has(call->graph)) call->graph = trace_current;
    if (call->graph == NULL) return;
    if (operand > 0) tg_fail(call->graph->ctx, TG_ERROR_TRACE, call->site, "%s: operand %d is %s", call->op, operand, what);
    else tg_fail(call->graph->ctx, TG_ERROR_TRACE, call->site, "%s: %s", call->op, what);
}

static bool enter_unstamped(tg_call *call, tg_site site, const char *op, tg_graph *graph) {
    *call = (tg_call){.graph = graph, .op = op, .site = site};
    if (graph == NULL || !trace_has(graph)) {
        fail_operand(call, graph == NULL ? "the graph is NULL" : "the graph was destroyed", 0);
        return false;
    }
    call->first_node = (int32_t)graph->nodes.count;
    if (graph->ctx->trace == graph) return true;
    tg_fail(graph->ctx, TG_ERROR_TRACE, site, "%s: the trace of this graph has ended: operations belong inside the build function", op);
    return false;
}

bool tg_call_enter_graph(tg_call *call, tg_site site, const char *op, tg_graph *graph) {
    return enter_unstamped(call, site, op, graph) && stamp_call(call);
}

/* The bytes of a message that snprintf wrote. */
static size_t clipped(int wrote) {
    if (wrote < 0) return 0;
    return wrote < TG_MESSAGE_MAX ? (size_t)wrote : TG_MESSAGE_MAX - 1;
}

/* What kind of node it is, for "input at model.c:12". */
static const char *origin_kind(const tg_node *node) {
    switch (node->op) {
    case TG_OP_INPUT: return "input";
    case TG_OP_PARAM: return "parameter";
    case TG_OP_STATE: return "state";
    case TG_OP_CONST:
    case TG_OP_IOTA: return "constant";
    default: return "computed";
    }
}

/* Appends "  x: input at model.c:12" on a line of its own. */
static size_t append_origin(char *text, size_t used, const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    const char *label = node->name != NULL ? node->name : tg_op_table[node->op].name;
    const char *file = node->site.file != NULL ? node->site.file : "";
    int wrote = snprintf(text + used, TG_MESSAGE_MAX - used, "\n  %s: %s at %s:%d", label, origin_kind(node), file, node->site.line);
    return clipped((int)used + (wrote < 0 ? 0 : wrote));
}

static void fail_foreign(const tg_tensor *operands, int count, tg_site site, const char *op) {
    const tg_graph *own = operands[0].graph, *other = operands[0].graph;
    int32_t own_id = operands[0].id, other_id = operands[0].id;
    for (int i = 1; i < count; i++) {
        if (operands[i].graph == own) continue;
        other = operands[i].graph;
        other_id = operands[i].id;
        /* the foreign one is the one that is not being traced */
        if (other->ctx->trace != other) break;
        const tg_graph *swap_graph = own;
        int32_t swap_id = own_id;
        own = other, own_id = other_id;
        other = swap_graph, other_id = swap_id;
        break;
    }
    char own_text[TG_NODE_TEXT], other_text[TG_NODE_TEXT], text[TG_MESSAGE_MAX];
    tg_node_text(own, own_id, own_text, sizeof own_text);
    tg_node_text(other, other_id, other_text, sizeof other_text);
    int wrote = snprintf(text, sizeof text, "%s: tensors of different traces: %s and %s", op, own_text, other_text);
    size_t used = clipped(wrote);
    used = append_origin(text, used, own, own_id);
    append_origin(text, used, other, other_id);
    tg_fail(own->ctx, TG_ERROR_TRACE, site, "%s", text);
}

static void fail_ended(tg_graph *g, int32_t id, tg_site site, const char *op) {
    char label[TG_NODE_TEXT], text[TG_MESSAGE_MAX];
    tg_node_text(g, id, label, sizeof label);
    int wrote =
        snprintf(text, sizeof text, "%s: %s belongs to a trace that has ended: operations belong inside the build function", op, label);
    append_origin(text, clipped(wrote), g, id);
    tg_fail(g->ctx, TG_ERROR_TRACE, site, "%s", text);
}

bool tg_call_enter(tg_call *call, tg_site site, const char *op, const tg_tensor *operands, int count) {
    *call = (tg_call){.op = op, .site = site};
    int unset = 0, dead = 0;
    bool poisoned = false;
    if (operands == NULL || count < 1) {
        fail_operand(call, "there is no tensor to work on", 0);
        return false;
    }
    for (int i = count - 1; i >= 0; i--) { /* the first of each kind is the one kept */
        if (operands[i].graph == NULL) unset = i + 1;
        else if (!trace_has(operands[i].graph)) dead = i + 1;
        else {
            call->graph = operands[i].graph;
            poisoned = poisoned || operands[i].id == 0;
        }
    }
    if (poisoned) return false;
    if (unset > 0) fail_operand(call, "no tensor", unset);
    else if (dead > 0) fail_operand(call, "a tensor of a model or graph that was destroyed", dead);
    if (unset > 0 || dead > 0) return false;
    for (int i = 0; i < count; i++) {
        tg_graph *g = operands[i].graph;
        if (operands[i].id < 0 || operands[i].id >= g->nodes.count) {
            tg_fail(g->ctx, TG_ERROR_TRACE, site, "%s: operand %d is not a tensor of its trace (id %d)", op, i + 1, (int)operands[i].id);
            return false;
        }
    }
    for (int i = 1; i < count; i++) {
        if (operands[i].graph == call->graph) continue;
        fail_foreign(operands, count, site, op);
        return false;
    }
    if (call->graph->ctx->trace != call->graph) {
        fail_ended(call->graph, operands[0].id, site, op);
        return false;
    }
    call->first_node = (int32_t)call->graph->nodes.count;
    call->operand_count = count;
    for (int i = 0; i < count && i < OPERANDS_SHOWN; i++) call->operands[i] = operands[i].id;
    return stamp_call(call);
}

/* ---------------------------------------------------------------- leaving */

/* Whether the call made the node: the constant of a number operand. Its line is the user's call
 * itself. */
static bool made_by(const tg_call *call, int32_t id) { return call->first_node > 0 && id >= call->first_node; }

static bool seen_before(const int32_t *operands, int i) {
    for (int j = 0; j < i; j++)
        if (operands[j] == operands[i]) return true;
    return false;
}

tg_tensor tg_call_fail(const tg_call *call, tg_status code, const int32_t *operands, int count, const char *format, ...) {
    char text[TG_MESSAGE_MAX];
    va_list arguments;
    bool named = call->subject != NULL;
    int wrote = snprintf(text, sizeof text, "%s%s%s: ", call->op, named ? " " : "", named ? call->subject : "");
    size_t used = clipped(wrote);
    va_start(arguments, format);
    wrote = vsnprintf(text + used, sizeof text - used, format, arguments);
    va_end(arguments);
    used = clipped((int)used + (wrote < 0 ? 0 : wrote));
    for (int i = 0; i < count; i++)
        if (operands[i] > 0 && !made_by(call, operands[i]) && !seen_before(operands, i))
            used = append_origin(text, used, call->graph, operands[i]);
    tg_fail(call->graph->ctx, code, call->site, "%s", text);
    return tg_call_poison(call);
}

tg_tensor tg_call_result(const tg_call *call, int32_t id) {
    tg_tensor result = {call->graph, id};
    if (id >= call->first_node && id > 0) {
        tg_node *node = &call->graph->nodes.items[id];
        if (node->name == NULL && strcmp(tg_op_table[node->op].name, call->op) != 0) node->name = call->op;
    }
    return result;
}

/* ---------------------------------------------------------------- checks */

static int operands_shown(const tg_call *call) { return call->operand_count < OPERANDS_SHOWN ? call->operand_count : OPERANDS_SHOWN; }

/* "before x[2, 3], y[4] after" for all operands except `except`; "" when there are none. */
static const char *operands_text(const tg_call *call, const char *before, int32_t except, const char *after, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < operands_shown(call); i++) {
        if (call->operands[i] == except || seen_before(call->operands, i)) continue;
        int wrote = snprintf(text + used, size - used, "%s%s", used == 0 ? before : ", ", TG_LABEL(call, call->operands[i]));
        used = wrote < 0 || used + (size_t)wrote >= size ? size - 1 : used + (size_t)wrote;
    }
    if (used > 0) snprintf(text + used, size - used, "%s%s", call->operand_count > OPERANDS_SHOWN ? ", ..." : "", after);
    return text;
}

bool tg_call_takes(const tg_call *call, int32_t id, unsigned dtypes) {
    char list[TG_DTYPE_LIST], others[OPERANDS_SHOWN * TG_NODE_TEXT];
    tg_dtype dtype = tg_node_dtype(call, id);
    if ((dtypes & (1u << (unsigned)dtype)) != 0) return true;
    tg_call_fail(call, TG_ERROR_DTYPE, call->operands, operands_shown(call), "takes %s, not %s: %s%s",
                 tg_dtype_list(dtypes, "or", list, sizeof list), tg_dtype_name(dtype), TG_LABEL(call, id),
                 operands_text(call, " (with ", id, ")", others, sizeof others));
    return false;
}

bool tg_call_dtype_ok(const tg_call *call, tg_dtype dtype) {
    if (tg_dtype_valid(dtype)) return true;
    tg_call_fail(call, TG_ERROR_DTYPE, NULL, 0, "%d is not a dtype", (int)dtype);
    return false;
}

bool tg_call_shape_ok(const tg_call *call, tg_shape shape) {
    char message[TG_RULE_MESSAGE], from[OPERANDS_SHOWN * TG_NODE_TEXT];
    tg_status status = tg_shape_check(shape, message, sizeof message);
    if (status == TG_OK) return true;
    tg_call_fail(call, status, call->operands, operands_shown(call), "%s%s",
                 operands_text(call, "the result of ", 0, ": ", from, sizeof from), message);
    return false;
}

bool tg_call_axis(const tg_call *call, int32_t operand, int rank, int axis, int *out) {
    if (axis >= -rank && axis < rank) {
        *out = axis < 0 ? axis + rank : axis;
        return true;
    }
    if (rank == 0) tg_call_fail(call, TG_ERROR_SHAPE, &operand, 1, "axis %d of a tensor without axes: %s", axis, TG_LABEL(call, operand));
    else tg_call_fail(call, TG_ERROR_SHAPE, &operand, 1, "axis %d is not in %d .. %d: %s", axis, -rank, rank - 1, TG_LABEL(call, operand));
    return false;
}

bool tg_call_axes(const tg_call *call, int32_t x, tg_axes axes, uint32_t *mask) {
    int rank = tg_node_shape(call, x).rank;
    *mask = 0;
    if (axes.count < 0) {
        *mask = (1u << (unsigned)rank) - 1u;
        return true;
    }
    if (axes.count > TG_MAX_RANK) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "%d axes given for %s", (int)axes.count, TG_LABEL(call, x));
        return false;
    }
    for (int i = 0; i < axes.count; i++) {
        int axis = 0;
        if (!tg_call_axis(call, x, rank, axes.axis[i], &axis)) return false;
        if ((*mask >> (unsigned)axis & 1u) != 0) {
            tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "axis %d of %s is given twice", axis, TG_LABEL(call, x));
            return false;
        }
        *mask |= 1u << (unsigned)axis;
    }
    return true;
}

bool tg_call_number(const tg_call *call, double number, tg_dtype dtype, int32_t beside, double *out) {
    bool overflows = dtype == TG_F32 && isfinite(number) && fabs(number) > (double)FLT_MAX;
    if (tg_dtype_holds(dtype, number) && !overflows) {
        *out = dtype == TG_F32 ? (double)(float)number : number;
        return true;
    }
    if (beside == 0) tg_call_fail(call, TG_ERROR_DTYPE, NULL, 0, "the number %.9g does not fit %s", number, tg_dtype_name(dtype));
    else
        tg_call_fail(call, TG_ERROR_DTYPE, &beside, 1, "the number %.9g does not fit %s: %s", number, tg_dtype_name(dtype),
                     TG_LABEL(call, beside));
    return false;
}

/* ---------------------------------------------------------------- pieces */

tg_shape tg_node_shape(const tg_call *call, int32_t id) { return call->graph->nodes.items[id].shape; }

tg_dtype tg_node_dtype(const tg_call *call, int32_t id) { return call->graph->nodes.items[id].dtype; }

int32_t tg_compose_number(const tg_call *call, double value) { return tg_ir_const(call->graph, tg_shape_make(0, NULL), TG_F32, value); }

int32_t tg_compose_scale(const tg_call *call, int32_t x, double factor) {
    return tg_ir_binary(call->graph, TG_OP_MUL, x, tg_compose_number(call, factor));
}

/* ---------------------------------------------------------------- names and scopes */

bool tg_call_name_ok(const tg_call *call, const char *name) {
    if (name != NULL && name[0] != '\0') return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the name is %s", name == NULL ? "NULL" : "empty");
    return false;
}

const char *tg_call_full_name(const tg_call *call, const char *name) {
    tg_graph *g = call->graph;
    size_t length = strlen(name) + 1;
    for (int64_t i = 0; i < g->scopes.count; i++) length += strlen(g->scopes.items[i]) + 1;
    char *full = tg_arena_alloc(&g->arena, length);
    if (full == NULL) return NULL;
    size_t used = 0;
    for (int64_t i = 0; i < g->scopes.count; i++) {
        size_t part = strlen(g->scopes.items[i]);
        memcpy(full + used, g->scopes.items[i], part);
        full[used + part] = '.';
        used += part + 1;
    }
    memcpy(full + used, name, strlen(name) + 1);
    return full;
}

bool tg_call_push_scope(const tg_call *call, const char *name) {
    tg_graph *g = call->graph;
    const char *copy = tg_arena_text(&g->arena, name);
    if (copy == NULL) return false;
    if (!tg_grow(g->ctx, (void **)&g->scopes.items, &g->scopes.capacity, g->scopes.count + 1, sizeof *g->scopes.items)) return false;
    g->scopes.items[g->scopes.count++] = copy;
    return true;
}

void tg_call_pop_scope(const tg_call *call) {
    if (call->graph->scopes.count > 0) call->graph->scopes.count--;
}

void tg_scope_push_at(tg_site site, tg_graph *g, const char *name) {
    tg_call call;
    if (!enter_unstamped(&call, site, "scope_push", g)) return;
    if (tg_call_name_ok(&call, name)) tg_call_push_scope(&call, name);
}

void tg_scope_pushf_at(tg_site site, tg_graph *g, const char *format, ...) {
    tg_call call;
    char name[512];
    if (!enter_unstamped(&call, site, "scope_pushf", g)) return;
    if (!tg_call_name_ok(&call, format)) return;
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (wrote < 0 || (size_t)wrote >= sizeof name) {
        tg_call_fail(&call, TG_ERROR_LIMIT, NULL, 0, "the name is longer than %d characters", (int)sizeof name - 1);
        return;
    }
    if (tg_call_name_ok(&call, name)) tg_call_push_scope(&call, name);
}

void tg_scope_pop_at(tg_site site, tg_graph *g) {
    tg_call call;
    if (!enter_unstamped(&call, site, "scope_pop", g)) return;
    if (g->scopes.count == 0) {
        tg_call_fail(&call, TG_ERROR_TRACE, NULL, 0, "no scope is open");
        return;
    }
    g->scopes.count--;
}

/* ---------------------------------------------------------------- the trace itself */

static void check_built(tg_graph *g, tg_tensor built) {
    tg_context *ctx = g->ctx;
    if (ctx->status != TG_OK) return;
    if (built.graph == NULL || built.id == 0) tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "trace: the build function returned no tensor");
    else if (built.graph != g) tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "trace: the build function returned a tensor of another trace");
    else if (built.id < 0 || built.id >= g->nodes.count)
        tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "trace: the build function returned something that is no tensor (id %d)", (int)built.id);
    else if (g->scopes.count != 0)
        tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "trace: the scope %s is still open at the end of the build function",
                g->scopes.items[g->scopes.count - 1]);
}

/* Makes a graph at an address that none of the recently destroyed graphs had, so that their tensors
 * can be told from its own. */
static tg_graph *trace_create(tg_context *ctx) {
    tg_graph *taken[TG_ALIVE_RECENT], *g = tg_graph_create(ctx);
    int count = 0;
    for (; g != NULL && count < TG_ALIVE_RECENT && tg_was_alive(g); g = tg_graph_create(ctx)) taken[count++] = g;
    while (count > 0) tg_graph_destroy(taken[--count]);
    if (g != NULL) g->alive.remembered = true;
    return g;
}

tg_graph *tg_trace_sized(tg_context *ctx, tg_build_fn build, void *user, int64_t size) {
    if (ctx == NULL) return NULL;
    /* Recorded for the trace in progress, which fails with it. */
    if (ctx->trace != NULL) {
        tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "trace: another trace is in progress: a build function cannot trace or compile");
        return NULL;
    }
    tg_clear_error(ctx);
    if (build == NULL) {
        tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "trace: the build function is NULL");
        return NULL;
    }
    tg_graph *g = trace_create(ctx);
    if (g == NULL) return NULL;
    ctx->trace = g;
    g->building = true;
    g->size = size;
    const tg_site outer = ctx->call_site;   /* calls that the build function makes set their own */
    tg_graph *const around = trace_current; /* a trace of another context, or NULL */
    trace_current = g;
    tg_tensor built = build(g, user);
    trace_current = around;
    ctx->call_site = outer;
    g->building = false;
    ctx->trace = NULL;
    g->current_op = NULL;
    check_built(g, built);
    if (ctx->status != TG_OK) {
        tg_graph_destroy(g);
        return NULL;
    }
    g->result = built.id;
    return g;
}

tg_graph *tg_trace_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, tg_tensor *result) {
    if (ctx != NULL) ctx->call_site = site;
    tg_graph *g = tg_trace_sized(ctx, build, user, 0);
    if (g != NULL && result != NULL) *result = (tg_tensor){g, g->result};
    return g;
}

static const tg_node *node_of(tg_tensor t) {
    if (t.graph == NULL || !trace_has(t.graph) || t.id <= 0 || t.id >= t.graph->nodes.count) return NULL;
    return &t.graph->nodes.items[t.id];
}

tg_shape tg_tensor_shape(tg_tensor t) {
    const tg_node *node = node_of(t);
    return node != NULL ? node->shape : tg_shape_make(0, NULL);
}

tg_dtype tg_tensor_dtype(tg_tensor t) {
    const tg_node *node = node_of(t);
    return node != NULL ? node->dtype : TG_F32;
}
