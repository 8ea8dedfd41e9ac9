/* advise: warns that a part of a model cannot learn, if that was hardly intended. Warnings go to
 * the context's log, each with a site; never an error. Reads the traced graph, before training
 * nodes. Cost: one walk over the nodes, for each root compiled. */
#include "run/model.h"

#include "grad/grad.h"

#include <string.h>

enum {
    ADVISE_LEARNS = 1,  /* the loss has a gradient with respect to it */
    ADVISE_BLOCKED = 2, /* it reaches the loss through an operation that has none */
    ADVISE_STOPPED = 4, /* it reaches the loss through tg_stop_gradient: that was meant */
    ADVISE_USED = 8     /* something that is kept depends on it */
};

typedef struct advise_walk {
    const tg_graph *g;
    uint8_t *marks; /* by node */
    /* by node: the operation without a gradient through which it reaches the loss; 0: none */
    int32_t *blockers;
} advise_walk;

/* What of a node's marks its input number i has, too. */
static void advise_pass_on(const advise_walk *w, int32_t id, int32_t i) {
    const tg_node *n = tg_graph_node(w->g, id);
    const int32_t x = n->inputs[i];
    const bool is_float = tg_graph_node(w->g, x)->dtype == TG_F32;
    const uint8_t marks = w->marks[id];
    w->marks[x] |= marks & ADVISE_USED;
    if (n->dtype == TG_F32 && is_float && tg_grad_has_rule(n->op)) {
        w->marks[x] |= marks;
        if (w->blockers[x] == 0) w->blockers[x] = w->blockers[id];
        return;
    }
    if (marks & ADVISE_STOPPED) w->marks[x] |= ADVISE_STOPPED;
    if (!(marks & (ADVISE_LEARNS | ADVISE_BLOCKED))) return;
    w->marks[x] |= n->op == TG_OP_STOP_GRADIENT ? ADVISE_STOPPED : ADVISE_BLOCKED;
    if (w->blockers[x] == 0) w->blockers[x] = is_float ? id : w->blockers[id];
}

static void advise_mark(const advise_walk *w) {
    const tg_graph *g = w->g;
    for (int64_t i = 0; i < g->captures.count; i++) w->marks[g->captures.items[i].node] |= ADVISE_USED;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        w->marks[g->writebacks.items[i].source] |= ADVISE_USED;
        w->marks[g->writebacks.items[i].destination] |= ADVISE_USED;
    }
    w->marks[g->result] |= ADVISE_LEARNS | ADVISE_USED;
    for (int32_t id = (int32_t)g->nodes.count - 1; id > 0; id--)
        for (int32_t i = 0; w->marks[id] != 0 && i < tg_graph_node(g, id)->input_count; i++) advise_pass_on(w, id, i);
}

/* ---- what is said */

typedef struct advise_list {
    const advise_walk *walk;
    uint8_t wanted, refused; /* of the marks */
} advise_list;

static bool advise_trains(const tg_graph *g, int64_t i) { return g->params.items[i].node > 0 && !tg_param_is_frozen(&g->params.items[i]); }

static const char *advise_name(const void *user, int64_t i) {
    const advise_list *list = user;
    const tg_graph *g = list->walk->g;
    if (!advise_trains(g, i)) return NULL;
    const uint8_t marks = list->walk->marks[g->params.items[i].node];
    return (marks & list->wanted) == list->wanted && !(marks & list->refused) ? g->params.items[i].name : NULL;
}

/* The first parameter of the list, or 0. */
static int32_t advise_first(const advise_list *list) {
    const tg_graph *g = list->walk->g;
    for (int64_t i = 0; i < g->params.count; i++)
        if (advise_name(list, i) != NULL) return g->params.items[i].node;
    return 0;
}

static void advise_unused(const advise_walk *w) {
    const advise_list unused = {w, 0, ADVISE_USED};
    const int32_t first = advise_first(&unused);
    char names[TG_NAMES_TEXT];
    if (first == 0) return;
    tg_warn(w->g->ctx, tg_graph_node(w->g, first)->site, "compile: made, but never used, so it does not learn: %s",
            tg_names_text(names, sizeof names, advise_name, &unused, w->g->params.count));
}

static void advise_blocked(const advise_walk *w) {
    const advise_list blocked = {w, ADVISE_BLOCKED, ADVISE_LEARNS | ADVISE_STOPPED};
    const int32_t first = advise_first(&blocked);
    char names[TG_NAMES_TEXT], text[TG_NODE_TEXT];
    if (first == 0) return;
    const int32_t by = w->blockers[first];
    tg_warn(w->g->ctx, tg_graph_node(w->g, by)->site, "compile: %s has no gradient, so this does not learn: %s",
            tg_node_text(w->g, by, text, sizeof text), tg_names_text(names, sizeof names, advise_name, &blocked, w->g->params.count));
}

/* Nothing learns at all: then tg_stop_gradient is named, too. */
static void advise_nothing_learns(const advise_walk *w) {
    const tg_graph *g = w->g;
    int32_t by = 0;
    char text[TG_NODE_TEXT];
    for (int64_t i = 0; i < g->params.count && by == 0; i++)
        if (advise_trains(g, i)) by = w->blockers[g->params.items[i].node];
    if (by == 0)
        tg_warn(g->ctx, tg_graph_node(g, g->result)->site, "compile: the loss depends on no parameter that is trained: nothing learns");
    else
        tg_warn(g->ctx, tg_graph_node(g, by)->site,
                "compile: %s has no gradient, and no other way leads from the loss to a parameter: nothing learns",
                tg_node_text(g, by, text, sizeof text));
}

void tg_advise_training(tg_graph *g) {
    const size_t count = (size_t)g->nodes.count;
    if (g->ctx->log == NULL) return;
    advise_walk w = {g, tg_alloc(g->ctx, count), tg_alloc(g->ctx, count * sizeof(int32_t))};
    if (w.marks != NULL && w.blockers != NULL) {
        const advise_list learning = {&w, ADVISE_LEARNS, 0};
        advise_mark(&w);
        if (advise_first(&learning) == 0) advise_nothing_learns(&w);
        else advise_blocked(&w);
        advise_unused(&w);
    } else tg_clear_error(g->ctx); /* advice is not worth a failure */
    tg_release(g->ctx, w.marks, count);
    tg_release(g->ctx, w.blockers, count * sizeof(int32_t));
}

/* Writebacks of the build function may be how it trains; but not the one that counts random
 * numbers. */
static bool advise_writes(const tg_graph *g) {
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_node *to = tg_graph_node(g, g->writebacks.items[i].destination);
        if (to->op != TG_OP_STATE || strcmp(g->states.items[to->attr.leaf].name, TG_RANDOM_STATE) != 0) return true;
    }
    return false;
}

void tg_advise_steps(const tg_model *model) {
    const tg_family *family = model->family;
    const tg_graph *g = model->traced;
    if (g->ctx->log == NULL || family->steps != 2 || family->gradients_read || model->optimizer.kind != TG_OPTIMIZER_NONE) return;
    if (family->layout.trained_end == 0 || advise_writes(g)) return;
    tg_warn(g->ctx, tg_graph_node(g, g->result)->site,
            "step: the model was compiled without an optimizer, and nobody reads its gradients: steps change nothing");
}
