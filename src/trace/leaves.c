/* Leaves of a trace: parameters, inputs, states, constants; and what is declared about them:
 * initial values, writebacks, captures. Must not know how values are set or kept. */
#include "trace/trace.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- initial values */

#define TG_SQRT_2 1.4142135623730951

tg_init tg_init_randn(double scale) { return (tg_init){.kind = TG_INIT_RANDN, .scale = tg_given(scale) ? scale : 0.02}; }

tg_init tg_init_zeros(void) { return (tg_init){.kind = TG_INIT_ZEROS}; }

tg_init tg_init_ones(void) { return (tg_init){.kind = TG_INIT_ONES}; }

tg_init tg_init_kaiming(double gain) { return (tg_init){.kind = TG_INIT_KAIMING, .scale = tg_given(gain) ? gain : TG_SQRT_2}; }

tg_init tg_init_uniform(double bound) { return (tg_init){.kind = TG_INIT_UNIFORM, .scale = bound == 0.0 ? TG_ZERO : bound}; }

tg_init tg_init_literal(const float *data, int64_t count) { return (tg_init){.kind = TG_INIT_LITERAL, .data = data, .count = count}; }

/* Checks the initial value against the shape and replaces 0 by defaults. */
static bool resolve_init(const tg_call *call, tg_shape shape, tg_init *init) {
    int64_t count = tg_shape_count(shape);
    if (init->kind < TG_INIT_RANDN || init->kind > TG_INIT_LITERAL) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%d is not a kind of initial value", (int)init->kind);
        return false;
    }
    if (!(init->scale >= 0 && init->scale <= 1e30)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the scale of the initial value is %.9g", init->scale);
        return false;
    }
    if (init->kind == TG_INIT_UNIFORM && !tg_given(init->scale)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "a uniform initial value needs a bound");
        return false;
    }
    if (!tg_given(init->scale)) init->scale = init->kind == TG_INIT_RANDN ? 0.02 : init->kind == TG_INIT_KAIMING ? TG_SQRT_2 : 0.0;
    if (init->kind != TG_INIT_LITERAL && (init->data != NULL || init->count != 0)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "only a literal initial value has data");
        return false;
    }
    if (init->kind != TG_INIT_LITERAL) return true;
    if (init->count != count) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the literal has %lld numbers, the shape %s has %lld", (long long)init->count,
                     TG_SHAPE_LABEL(shape), (long long)count);
        return false;
    }
    if (init->data == NULL) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the literal's data is NULL");
        return false;
    }
    return true;
}

static bool choice_ok(const tg_call *call, const char *option, tg_choice choice) {
    if ((int)choice >= TG_DEFAULT && (int)choice <= TG_NO) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%s is %d, which is no choice: default is 0, yes 1, no 2", option, (int)choice);
    return false;
}

static bool decays(const tg_param_options *options) {
    if (options->decay != TG_DEFAULT) return options->decay == TG_YES;
    return options->init.kind != TG_INIT_ZEROS && options->init.kind != TG_INIT_ONES;
}

/* ---------------------------------------------------------------- parameters, inputs, states */

/* A name that is used twice is an error that says where it was used first. */
static bool name_is_free(const tg_call *call, const char *taken, int32_t node) {
    if (strcmp(call->subject, taken) != 0) return true;
    const tg_node *first = &call->graph->nodes.items[node];
    tg_call_fail(call, TG_ERROR_DUPLICATE, NULL, 0, "the name is used twice: at %s:%d and at %s:%d",
                 first->site.file != NULL ? first->site.file : "", first->site.line, call->site.file != NULL ? call->site.file : "",
                 call->site.line);
    return false;
}

/* Names that begin with "tg." are the library's own states, in memory and in files. "__metadata__"
 * is not a tensor in a file. */
static bool name_is_the_users(const tg_call *call) {
    if (strncmp(call->subject, "tg.", 3) != 0 && strcmp(call->subject, "__metadata__") != 0) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the name is reserved, like all that begin with tg.");
    return false;
}

/* An optimiser appended to the trace has laid out the parameters that were there. None may
 * follow. */
static bool params_are_open(const tg_call *call) {
    if (tg_ir_find_state(call->graph, "tg.gradients") == 0) return true;
    tg_call_fail(call, TG_ERROR_STATE, NULL, 0, "made after the optimizer: append the optimizer last");
    return false;
}

tg_tensor tg_param_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_param_options options) {
    tg_call call;
    if (!tg_call_enter_graph(&call, site, "param", g)) return tg_call_poison(&call);
    if (!tg_call_name_ok(&call, name)) return tg_call_poison(&call);
    const char *full = tg_call_full_name(&call, name);
    if (full == NULL) return tg_call_poison(&call);
    call.subject = full;
    if (!name_is_the_users(&call) || !params_are_open(&call)) return tg_call_poison(&call);
    if (!tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    for (int64_t i = 0; i < g->params.count; i++)
        if (!name_is_free(&call, g->params.items[i].name, g->params.items[i].node)) return tg_call_poison(&call);
    if (!resolve_init(&call, shape, &options.init)) return tg_call_poison(&call);
    if (!choice_ok(&call, "decay", options.decay) || !choice_ok(&call, "frozen", options.frozen)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_param(g, full, shape, options.init, decays(&options), options.frozen == TG_YES));
}

/* Replaces TG_ANY by the size of this trace. */
static bool input_take_size(const tg_call *call, tg_shape *shape, int32_t *any) {
    const tg_shape given = *shape;
    for (int32_t axis = 0; axis < given.rank && axis < TG_MAX_RANK; axis++) {
        if (given.dim[axis] != TG_ANY) continue;
        if (*any != 0) tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "the shape %s has more than one TG_ANY", TG_SHAPE_LABEL(given));
        else if (call->graph->size == 0)
            tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "the shape %s has TG_ANY, which only models that are compiled can have",
                         TG_SHAPE_LABEL(given));
        if (*any != 0 || call->graph->size == 0) return false;
        *any = axis + 1;
        shape->dim[axis] = call->graph->size;
    }
    return true;
}

tg_tensor tg_input_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype) {
    tg_call call;
    if (!tg_call_enter_graph(&call, site, "input", g) || !tg_call_name_ok(&call, name)) return tg_call_poison(&call);
    call.subject = name;
    int32_t any = 0;
    if (!tg_call_dtype_ok(&call, dtype) || !input_take_size(&call, &shape, &any) || !tg_call_shape_ok(&call, shape))
        return tg_call_poison(&call);
    for (int64_t i = 0; i < g->inputs.count; i++)
        if (!name_is_free(&call, g->inputs.items[i].name, g->inputs.items[i].node)) return tg_call_poison(&call);
    int32_t id = tg_ir_input(g, name, shape, dtype);
    if (id != 0) g->inputs.items[g->inputs.count - 1].any = any;
    return tg_call_result(&call, id);
}

tg_tensor tg_state_at(tg_site site, tg_graph *g, const char *name, tg_shape shape, tg_dtype dtype, double value) {
    tg_call call;
    double held = 0;
    if (!tg_call_enter_graph(&call, site, "state", g) || !tg_call_name_ok(&call, name)) return tg_call_poison(&call);
    call.subject = name;
    if (!name_is_the_users(&call)) return tg_call_poison(&call);
    if (!tg_call_dtype_ok(&call, dtype) || !tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    if (!tg_call_number(&call, value, dtype, 0, &held)) return tg_call_poison(&call);
    for (int64_t i = 0; i < g->states.count; i++)
        if (!name_is_free(&call, g->states.items[i].name, g->states.items[i].node)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_state(g, name, shape, dtype, held));
}

void tg_writeback_at(tg_site site, tg_tensor destination, tg_tensor source) {
    tg_call call;
    tg_tensor operands[2] = {destination, source};
    int32_t ids[2] = {destination.id, source.id};
    if (!tg_call_enter(&call, site, "writeback", operands, 2)) return;
    tg_graph *g = call.graph;
    const tg_node *to = &g->nodes.items[destination.id], *from = &g->nodes.items[source.id];
    if (to->op != TG_OP_PARAM && to->op != TG_OP_STATE) {
        tg_call_fail(&call, TG_ERROR_ARGUMENT, ids, 1, "the destination %s is neither a parameter nor a state", TG_LABEL(&call, ids[0]));
        return;
    }
    if (to->dtype != from->dtype) {
        tg_call_fail(&call, TG_ERROR_DTYPE, ids, 2, "dtypes differ: %s <- %s (%s != %s)", TG_LABEL(&call, ids[0]), TG_LABEL(&call, ids[1]),
                     tg_dtype_name(to->dtype), tg_dtype_name(from->dtype));
        return;
    }
    if (!tg_shape_equal(to->shape, from->shape)) {
        tg_call_fail(&call, TG_ERROR_SHAPE, ids, 2, "shapes differ: %s <- %s", TG_LABEL(&call, ids[0]), TG_LABEL(&call, ids[1]));
        return;
    }
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_writeback_info *first = &g->writebacks.items[i];
        if (first->destination != destination.id) continue;
        tg_call_fail(&call, TG_ERROR_DUPLICATE, ids, 1, "%s is written twice: at %s:%d and at %s:%d", TG_LABEL(&call, ids[0]),
                     first->site.file != NULL ? first->site.file : "", first->site.line, site.file != NULL ? site.file : "", site.line);
        return;
    }
    tg_ir_writeback(g, destination.id, source.id);
}

/* ---------------------------------------------------------------- constants */

tg_tensor tg_full_at(tg_site site, tg_graph *g, tg_shape shape, double value, tg_dtype dtype) {
    tg_call call;
    double held = 0;
    if (!tg_call_enter_graph(&call, site, "full", g)) return tg_call_poison(&call);
    if (!tg_call_dtype_ok(&call, dtype) || !tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    if (!tg_call_number(&call, value, dtype, 0, &held)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_const(g, shape, dtype, held));
}

tg_tensor tg_arange_at(tg_site site, tg_graph *g, int64_t n, tg_dtype dtype) {
    tg_call call;
    if (!tg_call_enter_graph(&call, site, "arange", g)) return tg_call_poison(&call);
    if (!tg_call_dtype_ok(&call, dtype)) return tg_call_poison(&call);
    if (dtype == TG_BOOL) return tg_call_fail(&call, TG_ERROR_DTYPE, NULL, 0, "makes i32 or f32, not bool");
    tg_shape shape = tg_shape_make(1, &n);
    if (!tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    return tg_call_result(&call, tg_ir_iota(g, shape, dtype, 0));
}

tg_tensor tg_constant_at(tg_site site, tg_graph *g, tg_shape shape, tg_dtype dtype, const void *data, int64_t count) {
    tg_call call;
    if (!tg_call_enter_graph(&call, site, "constant", g)) return tg_call_poison(&call);
    if (!tg_call_dtype_ok(&call, dtype) || !tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
    if (count != tg_shape_count(shape))
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "%lld numbers given, the shape %s has %lld", (long long)count,
                            TG_SHAPE_LABEL(shape), (long long)tg_shape_count(shape));
    if (data == NULL) return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "the data is NULL");
    const unsigned char *bytes = data;
    for (int64_t i = 0; dtype == TG_BOOL && i < count; i++)
        if (bytes[i] > 1)
            return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "element %lld of a bool constant is %d, not 0 or 1", (long long)i,
                                (int)bytes[i]);
    return tg_call_result(&call, tg_ir_data(g, shape, dtype, data));
}

/* ---------------------------------------------------------------- capture */

static bool is_leaf_with_name(const tg_node *node) { return node->op == TG_OP_INPUT || node->op == TG_OP_PARAM || node->op == TG_OP_STATE; }

tg_tensor tg_capture_at(tg_site site, const char *name, tg_tensor t) {
    tg_call call;
    if (!tg_call_enter(&call, site, "capture", &t, 1)) return tg_call_poison(&call);
    if (!tg_call_name_ok(&call, name)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    for (int64_t i = 0; i < g->captures.count; i++) {
        int32_t ids[2] = {g->captures.items[i].node, t.id};
        if (strcmp(name, g->captures.items[i].name) == 0)
            return tg_call_fail(&call, TG_ERROR_DUPLICATE, ids, 2, "the name %s is used twice: for %s and for %s", name,
                                TG_LABEL(&call, ids[0]), TG_LABEL(&call, ids[1]));
    }
    const char *copy = tg_arena_text(&g->arena, name);
    if (copy == NULL) return tg_call_poison(&call);
    if (!tg_grow(g->ctx, (void **)&g->captures.items, &g->captures.capacity, g->captures.count + 1, sizeof *g->captures.items))
        return tg_call_poison(&call);
    g->captures.items[g->captures.count++] = (tg_capture_info){.name = copy, .node = t.id};
    tg_node *node = &g->nodes.items[t.id];
    if (!is_leaf_with_name(node)) node->name = copy;
    return t;
}

#undef TG_SQRT_2
