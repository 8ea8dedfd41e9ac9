/* model: the session. Compiles a build function, and runs steps and forward passes. A call checks
 * everything before anything changes: feeds, fed indices, then (with a small program of their own)
 * computed indices. Once warm, a step allocates nothing. Destroying a model destroys its siblings:
 * their handles are dead then. Must not know kernels or instruction sets. */
#include "run/call.h"

#include "trace/trace.h"

#include <string.h>

#define MODEL_ANY_SIZE 2
#define MODEL_MAX_SIZES 8

/* ---------------------------------------------------------------- small things all of src/run
 * uses */

void tg_model_begin(tg_context *ctx, tg_site site) {
    if (ctx->trace == NULL) tg_clear_error(ctx);
    ctx->call_site = site;
}

const char *tg_names_text(char *buffer, size_t size, tg_name_fn name, const void *user, int64_t count) {
    size_t used = 0;
    buffer[0] = '\0';
    for (int64_t i = 0; i < count; i++) {
        const char *text = name(user, i);
        if (text == NULL) continue;
        size_t length = strlen(text);
        if (used + length + 8 > size) {
            memcpy(buffer + used, used > 0 ? ", ..." : "...", used > 0 ? 6 : 4);
            return buffer;
        }
        if (used > 0) {
            memcpy(buffer + used, ", ", 2);
            used += 2;
        }
        memcpy(buffer + used, text, length + 1);
        used += length;
    }
    if (used == 0) memcpy(buffer, "none", 5);
    return buffer;
}

/* ---------------------------------------------------------------- compiling */

static tg_status model_check_loss(const tg_graph *g) {
    const tg_node *loss = tg_graph_node(g, g->result);
    char text[256];
    if (loss->shape.rank == 0 && loss->dtype == TG_F32) return TG_OK;
    if (loss->shape.rank != 0)
        return tg_fail(g->ctx, TG_ERROR_GRADIENT, loss->site, "compile: the loss must be rank 0, got %s: reduce it with tg_mean or tg_sum",
                       tg_node_text(g, g->result, text, sizeof text));
    return tg_fail(g->ctx, TG_ERROR_GRADIENT, loss->site, "compile: the loss must be f32, got %s",
                   tg_node_text(g, g->result, text, sizeof text));
}

/* The optimiser's needs and marks of the parameters. Whether another call writes them too is
 * checked where the writes meet. */
static tg_status model_take_optimizer(tg_graph *g, const tg_optimizer *optimizer) {
    tg_status status = tg_optimizer_check(g->ctx, TG_SITE_NONE, optimizer);
    if (optimizer->kind == TG_OPTIMIZER_NONE) return status;
    if (status == TG_OK) status = tg_mark_params(g, TG_SITE_NONE, optimizer);
    if (status != TG_OK) return status;
    for (int64_t i = 0; i < g->params.count; i++)
        if (!tg_param_is_frozen(&g->params.items[i])) return TG_OK;
    return tg_fail(g->ctx, TG_ERROR_GRADIENT, tg_graph_node(g, g->result)->site,
                   "compile: an optimizer, but no unfrozen parameter to train");
}

/* traced belongs to the model, or is destroyed; NULL: tracing failed. */
static tg_model *model_create(tg_context *ctx, tg_graph *traced) {
    if (traced == NULL) return NULL;
    tg_model *model = tg_alloc(ctx, sizeof *model);
    if (model == NULL) {
        tg_graph_destroy(traced);
        return NULL;
    }
    model->ctx = ctx;
    model->root = model->owner = model->last = model;
    model->traced = traced;
    tg_text_init(&model->text, ctx);
    tg_text_init(&model->timed_names, ctx);
    model->fed = tg_alloc(ctx, (size_t)(traced->inputs.count + 1) * sizeof *model->fed);
    if (model->fed != NULL) return model;
    tg_model_destroy(model);
    return NULL;
}

/* A training model is compiled for steps at once, other models for runs, so that all errors of
 * compiling appear here. */
static tg_status model_compile_main(tg_model *model) {
    tg_status status = tg_family_check_names(model->family, model->traced);
    if (status != TG_OK) return status;
    tg_variant *main = tg_model_variant(model, model->training ? TG_VARIANT_STEP : TG_VARIANT_RUN);
    tg_variant *check;
    status = main != NULL ? tg_model_check_variant(model, main, model->training, &check) : model->ctx->status;
    if (status != TG_OK || !model->check_finite) return status;
    return tg_model_variant(model, TG_VARIANT_FINITE) != NULL ? TG_OK : model->ctx->status;
}

static tg_status model_compile(tg_model *model, const tg_compile_options *options) {
    tg_status status = model->training ? model_check_loss(model->traced) : TG_OK;
    if (status == TG_OK && model->training) status = model_take_optimizer(model->traced, &options->optimizer);
    if (status != TG_OK) return status;
    model->no_fusion = options->no_fusion;
    model->check_finite = options->check_finite && model->training;
    model->optimizer = options->optimizer;
    model->optimizer.decay_filter = NULL; /* asked once: the parameters are marked */
    model->optimizer.groups = NULL;
    model->optimizer.group_count = 0;
    model->family = tg_family_create(model->ctx, options, model->traced);
    return model->family != NULL ? model_compile_main(model) : model->ctx->status;
}

static tg_model *model_compile_root(tg_context *ctx, tg_graph *traced, const tg_compile_options *options, bool training) {
    tg_compile_options chosen;
    memset(&chosen, 0, sizeof chosen);
    if (options != NULL) chosen = *options;
    if (!training) memset(&chosen.optimizer, 0, sizeof chosen.optimizer);
    tg_model *model = model_create(ctx, traced);
    if (model == NULL) return NULL;
    model->training = training;
    model->any_size = chosen.any_size;
    model->max_sizes = chosen.max_sizes;
    if (model_compile(model, &chosen) == TG_OK) {
        const bool optimizes = chosen.optimizer.kind != TG_OPTIMIZER_NONE || tg_ir_find_state(model->traced, "tg.gradients") != 0;
        if (training && optimizes) tg_advise_training(model->traced);
        return model;
    }
    tg_model_destroy(model);
    return NULL;
}

/* A model that was refused takes back the states that it made, so that another may make states of
 * these names. */
static void model_refuse(tg_model *model, int64_t states) {
    tg_family *family = model->family;
    tg_model_destroy(model);
    tg_family_forget_states(family, states);
}

/* Made and in the family, not yet compiled. */
static tg_model *model_join(tg_model *parent, tg_graph *traced) {
    tg_model *model = model_create(parent->ctx, traced);
    if (model == NULL) return NULL;
    tg_tickets_settle(parent->family);
    model->root = parent->root;
    model->family = parent->family;
    model->no_fusion = parent->no_fusion;
    model->next = model->root->next;
    model->root->next = model;
    return model;
}

tg_model *tg_model_add_size(tg_model *owner, tg_graph *traced) {
    tg_model *model = model_join(owner, traced);
    if (model == NULL) return NULL;
    model->owner = owner;
    model->training = owner->training;
    model->averaged = owner->averaged;
    model->optimizer = owner->optimizer;
    model->check_finite = owner->check_finite;
    const int64_t states = model->family->states.count;
    tg_status status = model->training ? model_check_loss(traced) : TG_OK;
    if (status == TG_OK && model_compile_main(model) == TG_OK) return model;
    model_refuse(model, states);
    return NULL;
}

static tg_model *model_compile_sibling(tg_model *parent, tg_graph *traced, bool averaged) {
    tg_model *model = model_join(parent, traced);
    if (model == NULL) return NULL;
    model->averaged = averaged;
    const int64_t states = model->family->states.count;
    if (model_compile_main(model) == TG_OK) return model;
    model_refuse(model, states);
    return NULL;
}

/* tg_trace clears the last call's error, but not a trace's. */
static tg_model *model_trace_root(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options,
                                  bool training) {
    if (ctx == NULL) return NULL;
    tg_model_begin(ctx, site);
    if (tg_sizes_check_options(ctx, options) != TG_OK) return NULL;
    tg_compile_options chosen;
    memset(&chosen, 0, sizeof chosen);
    if (options != NULL) chosen = *options;
    if (chosen.any_size == 0) chosen.any_size = MODEL_ANY_SIZE;
    if (chosen.max_sizes == 0) chosen.max_sizes = MODEL_MAX_SIZES;
    tg_model *model = model_compile_root(ctx, tg_trace_sized(ctx, build, user, chosen.any_size), &chosen, training);
    if (model != NULL) tg_sizes_begin(model, build, user);
    return model;
}

static tg_model *model_trace_sibling(tg_model *parent, tg_build_fn build, void *user, bool averaged) {
    tg_graph *traced = tg_trace_sized(parent->ctx, build, user, parent->root->any_size);
    tg_model *model = model_compile_sibling(parent, traced, averaged);
    if (model != NULL) tg_sizes_begin(model, build, user);
    return model;
}

tg_model *tg_compile_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options) {
    return model_trace_root(site, ctx, build, user, options, true);
}

tg_model *tg_compile_forward_at(tg_site site, tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options) {
    return model_trace_root(site, ctx, build, user, options, false);
}

tg_model *tg_compile_sibling_at(tg_site site, tg_model *parent, tg_build_fn build, void *user) {
    if (parent == NULL) return NULL;
    tg_model_begin(parent->ctx, site);
    return model_trace_sibling(parent, build, user, false);
}

static bool model_has_average(const tg_model *parent) {
    if (tg_family_find(parent->family, "tg.average") >= 0) return true;
    tg_fail(parent->ctx, TG_ERROR_STATE, TG_SITE_NONE, "compile_average: the model keeps no average of its parameters (optimizer.average)");
    return false;
}

tg_model *tg_compile_average_at(tg_site site, tg_model *parent, tg_build_fn build, void *user) {
    if (parent == NULL) return NULL;
    tg_model_begin(parent->ctx, site);
    if (!model_has_average(parent)) return NULL;
    return model_trace_sibling(parent, build, user, true);
}

/* A graph from bytes instead of a build function. */
static tg_graph *model_read(tg_context *ctx, const void *bytes, size_t size) {
    tg_model_begin(ctx, TG_SITE_NONE);
    if (ctx->trace != NULL) {
        tg_fail(ctx, TG_ERROR_TRACE, TG_SITE_NONE, "compile: a trace is in progress: a build function cannot compile");
        return NULL;
    }
    tg_graph *g = tg_graph_read(ctx, bytes, size);
    if (g == NULL || g->result != 0) return g;
    tg_fail(ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "compile: a graph without a result");
    tg_graph_destroy(g);
    return NULL;
}

tg_model *tg_compile_bytes(tg_context *ctx, const void *bytes, size_t size, const tg_compile_options *options, bool training) {
    return ctx != NULL ? model_compile_root(ctx, model_read(ctx, bytes, size), options, training) : NULL;
}

tg_model *tg_compile_sibling_bytes(tg_model *parent, const void *bytes, size_t size, bool averaged) {
    if (parent == NULL) return NULL;
    tg_model_begin(parent->ctx, TG_SITE_NONE);
    if (averaged && !model_has_average(parent)) return NULL;
    return model_compile_sibling(parent, model_read(parent->ctx, bytes, size), averaged);
}

tg_model *tg_compile_size_bytes(tg_model *owner, const void *bytes, size_t size) {
    if (owner == NULL) return NULL;
    tg_graph *traced = model_read(owner->ctx, bytes, size);
    return traced != NULL ? tg_sizes_add(owner, traced) : NULL;
}

/* ---------------------------------------------------------------- destroying */

static void model_free(tg_model *model) {
    tg_datasets_leave(model, true);
    for (int i = 0; i < TG_VARIANT_COUNT; i++) tg_variant_destroy(model->family, model->variants[i]);
    if (model->root == model) tg_family_destroy(model->family);
    if (model->fed != NULL) tg_release(model->ctx, model->fed, (size_t)(model->traced->inputs.count + 1) * sizeof *model->fed);
    if (model->traced != NULL) tg_graph_destroy(model->traced);
    tg_text_free(&model->text);
    tg_text_free(&model->timed_names);
    tg_release(model->ctx, model, sizeof *model);
}

/* A sibling, and the sizes of it. */
static void model_leave(tg_model *model) {
    for (tg_model *before = model->root; before->next != NULL;) {
        tg_model *each = before->next;
        if (each->owner != model && each != model) {
            before = each;
            continue;
        }
        before->next = each->next;
        if (each != model) model_free(each);
    }
    if (model->owner->last == model) model->owner->last = model->owner;
    model_free(model);
}

void tg_model_destroy(tg_model *model) {
    if (model == NULL) return;
    if (model->family != NULL) tg_tickets_settle(model->family);
    if (model->root != model) {
        model_leave(model);
        return;
    }
    while (model->next != NULL) {
        tg_model *sibling = model->next;
        model->next = sibling->next;
        model_free(sibling);
    }
    model_free(model);
}

tg_context *tg_model_context(const tg_model *model) { return model != NULL ? model->ctx : NULL; }

/* ---------------------------------------------------------------- running */

/* All phases of a call on a device that answers at once. The results are in *call, to be ended. */
static tg_status model_call(tg_model_call *call, tg_model *model, tg_call_kind kind, const tg_feed *feeds, int n, void *output) {
    tg_status status = tg_model_call_begin(call, model, kind, feeds, n, output);
    return status == TG_OK ? tg_model_call_run(call) : status;
}

static tg_status model_step(tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures) {
    tg_model_call call = {.captures = NULL};
    /* a forward model is refused next */
    tg_status status = model->training ? tg_sizes_choose(&model, "step", feeds, n) : TG_OK;
    if (status == TG_OK) status = model_call(&call, model, captures != NULL ? TG_CALL_STEP_CAPTURES : TG_CALL_STEP, feeds, n, NULL);
    if (status != TG_OK && status != TG_ERROR_NOT_FINITE) return status;
    tg_sizes_used(model);
    if (loss != NULL) *loss = call.loss;
    if (captures != NULL) *captures = call.captures;
    return status;
}

tg_status tg_step_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return model_step(model, feeds, n, loss, NULL);
}

tg_status tg_step_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (captures == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "step: captures is NULL");
    *captures = NULL;
    return model_step(model, feeds, n, loss, captures);
}

static tg_status model_check_output(const tg_model *model, int64_t capacity) {
    const tg_node *result = tg_graph_node(model->traced, model->traced->result);
    char shape[TG_SHAPE_TEXT];
    int64_t count = tg_shape_count(result->shape);
    if (capacity >= count) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: the output %s has %lld elements, there is room for %lld",
                   tg_shape_text(result->shape, shape, sizeof shape), (long long)count, (long long)capacity);
}

static tg_status model_run(tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity, tg_captures **captures) {
    tg_model_call call = {.captures = NULL};
    if (output == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: output is NULL");
    tg_status status = tg_sizes_choose(&model, "run", feeds, n);
    if (status == TG_OK) status = model_check_output(model, capacity);
    if (status == TG_OK) status = model_call(&call, model, captures != NULL ? TG_CALL_RUN_CAPTURES : TG_CALL_RUN, feeds, n, output);
    if (status != TG_OK) return status;
    tg_sizes_used(model);
    if (captures != NULL) *captures = call.captures;
    return TG_OK;
}

tg_status tg_run_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return model_run(model, feeds, n, output, capacity, NULL);
}

tg_status tg_run_captures_at(tg_site site, tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity,
                             tg_captures **captures) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (captures == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: captures is NULL");
    *captures = NULL;
    return model_run(model, feeds, n, output, capacity, captures);
}

#undef MODEL_ANY_SIZE
#undef MODEL_MAX_SIZES
