/* finite: the graph that finds the first value of a step that is not finite: forward, then the
 * gradients, without writing. The worst class of each value (0 finite, 1 infinite, 2 NaN) is
 * reduced to one number. An operation whose result is worse than all its operands is a suspect.
 * Owns the suspects' names. Must not know programs. Cost: reads each value once more, in a program
 * of its own. */
#include "run/model.h"

#include <math.h>
#include <string.h>

typedef struct finite_search {
    tg_graph *g;
    int32_t *class_of; /* per node of the step: f32 rank 0, or 0: finite always */
    int32_t *found;    /* per suspect: 4 position + class, or more than any */
    tg_suspect *suspects;
    int64_t count;
    double none;
} finite_search;

static int32_t finite_constant(const finite_search *s, double value) { return tg_ir_const(s->g, TG_SCALAR, TG_F32, value); }

/* The worst of a value's elements. Larger f32 numbers exist, so no compiler removes the
 * comparison. */
static int32_t finite_class(const finite_search *s, int32_t id) {
    tg_graph *g = s->g;
    const int rank = tg_graph_node(g, id)->shape.rank;
    int32_t size = tg_ir_binary(g, TG_OP_MUL, tg_ir_unary(g, TG_OP_ABS, id), finite_constant(s, ldexp(1.0, -10)));
    int32_t fits = tg_ir_binary(g, TG_OP_LESS, size, finite_constant(s, ldexp(1.0, 119)));
    int32_t number = tg_ir_select(g, fits, finite_constant(s, 0.0), finite_constant(s, 1.0));
    int32_t all = tg_ir_select(g, tg_ir_binary(g, TG_OP_EQUAL, id, id), number, finite_constant(s, 2.0));
    return tg_ir_reshape(g, rank > 0 ? tg_ir_reduce(g, TG_OP_REDUCE_MAX, all, (1u << rank) - 1u) : all, TG_SCALAR);
}

/* The worst of what an operation is given; 0: finite. */
static int32_t finite_given(const finite_search *s, int32_t id) {
    int32_t worst = 0;
    for (int32_t i = 0; i < tg_graph_node(s->g, id)->input_count; i++) {
        const int32_t one = s->class_of[tg_graph_node(s->g, id)->inputs[i]];
        if (one == 0 || one == worst) continue;
        worst = worst == 0 ? one : tg_ir_binary(s->g, TG_OP_MAX, worst, one);
    }
    return worst;
}

static bool finite_passes_on(tg_op op) {
    const tg_op_class class_ = tg_op_table[op].class_;
    return class_ == TG_CLASS_VIEW || op == TG_OP_CONCAT || op == TG_OP_PACK || op == TG_OP_NEG || op == TG_OP_ABS ||
           op == TG_OP_STOP_GRADIENT;
}

static bool finite_suspect(finite_search *s, int32_t id, int32_t given, bool backward) {
    char text[256];
    tg_graph *g = s->g;
    const int32_t class_ = s->class_of[id];
    tg_suspect *suspect = &s->suspects[s->count];
    suspect->text = tg_arena_text(&g->arena, tg_node_text(g, id, text, sizeof text));
    suspect->site = tg_graph_node(g, id)->site;
    suspect->leaf = tg_op_table[tg_graph_node(g, id)->op].class_ == TG_CLASS_LEAF;
    suspect->backward = backward;
    if (suspect->text == NULL) return false;
    int32_t made = tg_ir_binary(g, TG_OP_LESS, given != 0 ? given : finite_constant(s, 0.0), class_);
    int32_t value = tg_ir_binary(g, TG_OP_ADD, finite_constant(s, 4.0 * (double)s->count), class_);
    s->found[s->count++] = tg_ir_select(g, made, value, finite_constant(s, s->none));
    return s->found[s->count - 1] != 0;
}

/* Constants may be infinite on purpose: they are no suspects, but the operations on them are. */
static bool finite_look_at(finite_search *s, int32_t id, bool backward) {
    const tg_op op = tg_graph_node(s->g, id)->op;
    s->class_of[id] = 0;
    if (tg_graph_node(s->g, id)->dtype != TG_F32 || op == TG_OP_IOTA) return true;
    if (op == TG_OP_CAST && tg_graph_node(s->g, tg_graph_node(s->g, id)->inputs[0])->dtype != TG_F32) return true;
    const int32_t given = finite_given(s, id);
    if (finite_passes_on(op)) {
        s->class_of[id] = given;
        return true;
    }
    s->class_of[id] = finite_class(s, id);
    return s->class_of[id] != 0 && (op == TG_OP_CONST || finite_suspect(s, id, given, backward));
}

/* The least of them, in pairs: no long chain. */
static int32_t finite_least(const finite_search *s) {
    int64_t count = s->count;
    if (count == 0) return finite_constant(s, s->none);
    for (; count > 1; count = (count + 1) / 2)
        for (int64_t i = 0; i < count / 2 + count % 2; i++)
            s->found[i] = 2 * i + 1 < count ? tg_ir_binary(s->g, TG_OP_MIN, s->found[2 * i], s->found[2 * i + 1]) : s->found[2 * i];
    return s->found[0];
}

/* If loss and gradients are finite, values in between may be infinite on purpose. */
static int32_t finite_result(const finite_search *s) {
    tg_graph *g = s->g;
    int32_t bad = s->class_of[g->result];
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_node *to = tg_graph_node(g, g->writebacks.items[i].destination);
        if (to->op != TG_OP_STATE || strcmp(g->states.items[to->attr.leaf].name, "tg.gradients") != 0) continue;
        const int32_t gradients = s->class_of[g->writebacks.items[i].source];
        if (gradients != 0) bad = bad != 0 ? tg_ir_binary(g, TG_OP_MAX, bad, gradients) : gradients;
    }
    if (bad == 0) return finite_constant(s, s->none);
    int32_t is_bad = tg_ir_binary(g, TG_OP_LESS, finite_constant(s, 0.5), bad);
    return tg_ir_select(g, is_bad, finite_least(s), finite_constant(s, s->none));
}

tg_status tg_finite_append(tg_graph *g, int64_t forward, tg_arena *arena, tg_suspect **suspects, int64_t *count) {
    finite_search s = {.g = g, .none = 4.0 * (double)g->nodes.count};
    const int64_t nodes = g->nodes.count;
    s.class_of = TG_NEW(arena, int32_t, nodes);
    s.found = TG_NEW(arena, int32_t, nodes);
    s.suspects = TG_NEW(arena, tg_suspect, nodes);
    if (s.class_of == NULL || s.found == NULL || s.suspects == NULL) return TG_ERROR_MEMORY;
    for (int64_t id = 1; id < nodes; id++)
        if (!finite_look_at(&s, (int32_t)id, id >= forward)) return g->ctx->status;
    g->result = finite_result(&s);
    g->writebacks.count = g->checks.count = 0;
    *suspects = s.suspects;
    *count = s.count;
    return g->result != 0 ? TG_OK : g->ctx->status;
}

tg_status tg_finite_tell(const tg_model *model, const tg_variant *variant, float found) {
    if (!(found < 4.0f * (float)variant->suspect_count)) return TG_OK;
    const int32_t value = (int32_t)found;
    const tg_suspect *suspect = &variant->suspects[value / 4];
    return tg_fail(model->ctx, TG_ERROR_NOT_FINITE, suspect->site,
                   "step %lld: %s %s%s, the first value that is not finite: nothing was changed", (long long)model->family->steps + 1,
                   suspect->text,
                   suspect->leaf       ? "holds "
                   : suspect->backward ? "on the way back made "
                                       : "made ",
                   value % 4 == 2 ? "nan" : "inf");
}
