/* clone: a copy of a graph in memory of its own, node for node. Must not know what nodes compute. */
#include "ir/graph.h"
#include "ir/dtype.h"

#include <string.h>

/* What a copy goes through: texts repeat, above all the file of a site. */
typedef struct clone_state {
    tg_graph *to;
    const char *last_from, *last_to;
    bool ok;
} clone_state;

static const void *clone_bytes(clone_state *c, const void *data, size_t bytes) {
    if (data == NULL || !c->ok) return NULL;
    const void *copy = tg_arena_copy(&c->to->arena, data, bytes);
    c->ok = copy != NULL;
    return copy;
}

static const char *clone_text(clone_state *c, const char *text) {
    if (text != NULL && text == c->last_from) return c->last_to;
    const char *copy = text != NULL ? clone_bytes(c, text, strlen(text) + 1) : NULL;
    if (copy != NULL) c->last_from = text, c->last_to = copy;
    return copy;
}

static void clone_node(clone_state *c, tg_node *node) {
    const size_t inputs = (size_t)node->input_count;
    node->inputs = clone_bytes(c, node->inputs, inputs * sizeof *node->inputs);
    node->attr.offsets = clone_bytes(c, node->attr.offsets, inputs * sizeof *node->attr.offsets);
    node->attr.data = clone_bytes(c, node->attr.data, (size_t)tg_shape_count(node->shape) * tg_dtype_bytes(node->dtype));
    node->name = clone_text(c, node->name);
    node->site.file = clone_text(c, node->site.file);
}

static void clone_param(clone_state *c, tg_param_info *param) {
    param->name = clone_text(c, param->name);
    param->init.data = clone_bytes(c, param->init.data, (size_t)param->init.count * sizeof *param->init.data);
}

/* Items as they are: what they point to is still the original's. */
static void *clone_items(clone_state *c, const void *items, int64_t count, int64_t *copied, int64_t *capacity, size_t size, void *own) {
    if (c->ok && count > 0) c->ok = tg_grow(c->to->ctx, &own, capacity, count, size);
    if (!c->ok || count == 0) return own;
    memcpy(own, items, (size_t)count * size);
    *copied = count;
    return own;
}
#define CLONE_LIST(list) \
  (c->to->list.items = \
       clone_items(c, g->list.items, g->list.count, &c->to->list.count, &c->to->list.capacity, sizeof *g->list.items, c->to->list.items))

static void clone_lists(clone_state *c, const tg_graph *g) {
    CLONE_LIST(nodes);
    CLONE_LIST(inputs);
    CLONE_LIST(params);
    CLONE_LIST(states);
    CLONE_LIST(captures);
    CLONE_LIST(writebacks);
    CLONE_LIST(checks);
}
#undef CLONE_LIST

static void clone_pointers(clone_state *c) {
    tg_graph *to = c->to;
    for (int64_t i = 0; i < to->nodes.count; i++) clone_node(c, &to->nodes.items[i]);
    for (int64_t i = 0; i < to->inputs.count; i++) to->inputs.items[i].name = clone_text(c, to->inputs.items[i].name);
    for (int64_t i = 0; i < to->params.count; i++) clone_param(c, &to->params.items[i]);
    for (int64_t i = 0; i < to->states.count; i++) to->states.items[i].name = clone_text(c, to->states.items[i].name);
    for (int64_t i = 0; i < to->captures.count; i++) to->captures.items[i].name = clone_text(c, to->captures.items[i].name);
    for (int64_t i = 0; i < to->writebacks.count; i++) to->writebacks.items[i].site.file = clone_text(c, to->writebacks.items[i].site.file);
    for (int64_t i = 0; i < to->checks.count; i++) {
        to->checks.items[i].op = clone_text(c, to->checks.items[i].op);
        to->checks.items[i].site.file = clone_text(c, to->checks.items[i].site.file);
    }
}

tg_graph *tg_graph_clone(const tg_graph *g) {
    clone_state state = {.to = tg_graph_create(g->ctx), .ok = true}, *c = &state;
    if (c->to == NULL) return NULL;
    clone_lists(c, g);
    if (c->ok) clone_pointers(c);
    if (!c->ok) {
        tg_graph_destroy(c->to);
        return NULL;
    }
    c->to->result = g->result;
    c->to->size = g->size;
    c->to->finite_gradients = g->finite_gradients;
    c->to->finite_step = g->finite_step;
    return c->to;
}
