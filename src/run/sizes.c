/* sizes: a model whose inputs have TG_ANY is compiled once for each size that calls feed. Each size
 * is a model of the family like any sibling, training included, and shares every state by its name;
 * the model that the user holds is the first of them and stays. Owns which size a call has, that
 * all sizes are one model, and which one goes when there are too many. Must not know how a model is
 * compiled. */
#include "run/model.h"

#include "trace/trace.h"

#include <string.h>

/* ---------------------------------------------------------------- options */

tg_status tg_sizes_check_options(tg_context *ctx, const tg_compile_options *options) {
    if (options == NULL) return TG_OK;
    if (options->any_size < 0 || options->any_size > INT32_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: any_size is %lld, outside 0 .. 2^31 - 1",
                       (long long)options->any_size);
    if (options->max_sizes < 0)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: max_sizes is %d, under 0", options->max_sizes);
    return TG_OK;
}

void tg_sizes_begin(tg_model *model, tg_build_fn build, void *user) {
    for (int64_t i = 0; i < model->traced->inputs.count; i++)
        if (model->traced->inputs.items[i].any != 0) model->size = model->root->any_size;
    model->build = build;
    model->user = user;
}

/* ---------------------------------------------------------------- the same model */

static tg_status sizes_differ(const tg_model *owner, const tg_graph *g, int32_t node, const char *what, const char *name) {
    return tg_fail(owner->ctx, TG_ERROR_SHAPE, tg_graph_node(g, node)->site,
                   "compile: %s %.200s is not what it is in the model of the first size: all sizes must be one model", what, name);
}

static tg_status sizes_count_differs(const tg_model *owner, const char *what, int64_t count, int64_t want) {
    return tg_fail(owner->ctx, TG_ERROR_SHAPE, TG_SITE_NONE,
                   "compile: %lld %s, and %lld in the model of the first size: all sizes must be one model", (long long)count, what,
                   (long long)want);
}

/* Of bytes nothing says which axis has the size. */
static bool sizes_input_fits(const tg_model *owner, const tg_input_info *a, const tg_input_info *b) {
    if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || a->shape.rank != b->shape.rank || a->any != b->any) return false;
    for (int32_t axis = 0; axis < a->shape.rank && owner->size != 0; axis++)
        if (axis != a->any - 1 && a->shape.dim[axis] != b->shape.dim[axis]) return false;
    return true;
}

static tg_status sizes_check_inputs(const tg_model *owner, const tg_graph *g) {
    const tg_graph *first = owner->traced;
    if (g->inputs.count != first->inputs.count) return sizes_count_differs(owner, "inputs", g->inputs.count, first->inputs.count);
    for (int64_t i = 0; i < g->inputs.count; i++)
        if (!sizes_input_fits(owner, &first->inputs.items[i], &g->inputs.items[i]))
            return sizes_differ(owner, g, g->inputs.items[i].node, "input", g->inputs.items[i].name);
    return TG_OK;
}

/* In the same order: the layout of the flat states goes by it. */
static tg_status sizes_check_params(const tg_model *owner, const tg_graph *g) {
    const tg_graph *first = owner->traced;
    if (g->params.count != first->params.count) return sizes_count_differs(owner, "parameters", g->params.count, first->params.count);
    for (int64_t i = 0; i < g->params.count; i++) {
        const tg_param_info *a = &first->params.items[i], *b = &g->params.items[i];
        if (strcmp(a->name, b->name) != 0 || !tg_shape_equal(a->shape, b->shape) || a->frozen != b->frozen)
            return sizes_differ(owner, g, b->node, "parameter", b->name);
    }
    return TG_OK;
}

/* The same ones, but that a size may do without random numbers. */
static tg_status sizes_check_states(const tg_model *owner, tg_graph *g) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (tg_ir_find_state(owner->traced, g->states.items[i].name) == 0)
            return sizes_differ(owner, g, g->states.items[i].node, "state", g->states.items[i].name);
    for (int64_t i = 0; i < owner->traced->states.count; i++) {
        const char *name = owner->traced->states.items[i].name;
        if (strcmp(name, TG_RANDOM_STATE) != 0 && tg_ir_find_state(g, name) == 0)
            return tg_fail(owner->ctx, TG_ERROR_SHAPE, TG_SITE_NONE,
                           "compile: state %.200s is missing, which the model of the first size has: all sizes must be one model", name);
    }
    return TG_OK;
}

static tg_status sizes_check(const tg_model *owner, tg_graph *g) {
    tg_status status = sizes_check_inputs(owner, g);
    if (status == TG_OK) status = sizes_check_params(owner, g);
    if (status == TG_OK) status = sizes_check_states(owner, g);
    if (status != TG_OK) return status;
    const tg_dtype want = tg_graph_node(owner->traced, owner->traced->result)->dtype;
    return tg_graph_node(g, g->result)->dtype == want ? TG_OK
                                                      : sizes_differ(owner, g, g->result, "the result's dtype,", tg_dtype_name(want));
}

tg_model *tg_sizes_add(tg_model *owner, tg_graph *traced) {
    if (sizes_check(owner, traced) == TG_OK) return tg_model_add_size(owner, traced);
    tg_graph_destroy(traced);
    return NULL;
}

/* ---------------------------------------------------------------- those there are */

static tg_model *sizes_find(tg_model *owner, int64_t size) {
    if (owner->size == size) return owner;
    for (tg_model *m = owner->root->next; m != NULL; m = m->next)
        if (m->owner == owner && m->size == size) return m;
    return NULL;
}

/* The one to drop: not used for longest, not the one used last, without data sets and without timed
 * kernels. */
static tg_model *sizes_oldest(const tg_model *owner, const tg_model *kept, int *count) {
    tg_model *oldest = NULL;
    *count = 0;
    for (tg_model *m = owner->root->next; m != NULL; m = m->next) {
        if (m->owner != owner || m == owner) continue;
        ++*count;
        if (m == kept || m == owner->last || m->datasets != NULL || m->timed) continue;
        if (oldest == NULL || m->used < oldest->used) oldest = m;
    }
    return oldest;
}

static void sizes_evict(tg_model *owner, const tg_model *kept) {
    int count = 0;
    tg_model *oldest = sizes_oldest(owner, kept, &count);
    while (oldest != NULL && count > owner->root->max_sizes) {
        tg_model_destroy(oldest);
        oldest = sizes_oldest(owner, kept, &count);
    }
}

static tg_model *sizes_compile(tg_model *owner, int64_t size) {
    tg_graph *traced = tg_trace_sized(owner->ctx, owner->build, owner->user, size);
    tg_model *model = traced != NULL ? tg_sizes_add(owner, traced) : NULL;
    if (model == NULL) return NULL;
    model->size = size;
    sizes_evict(owner, model);
    return model;
}

tg_model *tg_sizes_get(tg_model *owner, int64_t size) {
    tg_model *model = sizes_find(owner, size);
    return model != NULL ? model : sizes_compile(owner, size);
}

void tg_sizes_used(tg_model *model) {
    model->used = ++model->owner->clock;
    model->owner->last = model;
    sizes_evict(model->owner, model);
}

tg_model *tg_sizes_last(tg_model *model) { return model->last; }

tg_status tg_sizes_choose(tg_model **model, const char *call, const tg_feed *feeds, int n) {
    tg_model *owner = *model;
    int64_t size = 0;
    if (owner->size == 0) return TG_OK;
    tg_status status = tg_feeds_size(owner, call, feeds, n, &size);
    if (status != TG_OK) return status;
    tg_model *sized = tg_sizes_get(owner, size);
    if (sized == NULL) return owner->ctx->status;
    *model = sized;
    return TG_OK;
}
