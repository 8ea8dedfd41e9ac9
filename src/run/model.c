/* model: the session. Compiles a build function, and runs steps and forward passes. A call checks everything before anything
 * changes: feeds, fed indices, then (with a small program of their own) computed indices. Once warm, a step allocates
 * nothing. Destroying a model destroys its siblings: their handles are dead then. Must not know kernels or instruction sets. */
#include "run/model.h"

#include <math.h>
#include <string.h>

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

/* What the optimiser needs; that nobody else writes its parameters is checked where the writes meet. */
static tg_status model_check_optimizer(const tg_graph *g, const tg_optimizer *optimizer) {
    if (optimizer->kind == TG_OPTIMIZER_NONE) return TG_OK;
    tg_status status = tg_optimizer_check(g->ctx, TG_SITE_NONE, optimizer);
    if (status != TG_OK) return status;
    for (int64_t i = 0; i < g->params.count; i++)
        if (!g->params.items[i].frozen) return TG_OK;
    return tg_fail(g->ctx, TG_ERROR_GRADIENT, tg_graph_node(g, g->result)->site,
                   "compile: an optimizer, but no unfrozen parameter to train");
}

static tg_model *model_create(tg_context *ctx, tg_build_fn build, void *user) {
    tg_model *model = tg_alloc(ctx, sizeof *model);
    if (model == NULL) return NULL;
    model->ctx = ctx;
    model->root = model;
    tg_text_init(&model->text, ctx);
    tg_tensor result = {NULL, 0};
    model->traced = tg_trace(ctx, build, user, &result);
    if (model->traced != NULL) {
        model->traced->result = result.id;
        model->fed = tg_alloc(ctx, (size_t)(model->traced->inputs.count + 1) * sizeof *model->fed);
        if (model->fed != NULL) return model;
    }
    tg_model_destroy(model);
    return NULL;
}

/* A training model is compiled for steps at once, any other for runs: all errors of compiling surface here. */
static tg_status model_compile(tg_model *model, const tg_compile_options *options) {
    tg_status status = model->training ? model_check_loss(model->traced) : TG_OK;
    if (status == TG_OK && model->training) status = model_check_optimizer(model->traced, &options->optimizer);
    if (status != TG_OK) return status;
    model->no_fusion = options->no_fusion;
    model->optimizer = options->optimizer;
    model->optimizer.decay_filter = NULL; /* asked once, by the layout */
    model->family = tg_family_create(model->ctx, options, model->traced);
    if (model->family == NULL) return model->ctx->status;
    tg_variant *main = tg_model_variant(model, model->training ? TG_VARIANT_STEP : TG_VARIANT_RUN);
    if (main == NULL) return model->ctx->status;
    if (model->training && main->program->computed_check_count > 0 && tg_model_variant(model, TG_VARIANT_CHECK) == NULL)
        return model->ctx->status;
    return TG_OK;
}

static tg_model *model_compile_root(tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options, bool training) {
    tg_compile_options chosen;
    memset(&chosen, 0, sizeof chosen);
    if (options != NULL) chosen = *options;
    if (!training) memset(&chosen.optimizer, 0, sizeof chosen.optimizer);
    if (ctx == NULL) return NULL;
    tg_model_begin(ctx);
    tg_model *model = model_create(ctx, build, user);
    if (model == NULL) return NULL;
    model->training = training;
    if (model_compile(model, &chosen) == TG_OK) return model;
    tg_model_destroy(model);
    return NULL;
}

tg_model *tg_compile(tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options) {
    return model_compile_root(ctx, build, user, options, true);
}

tg_model *tg_compile_forward(tg_context *ctx, tg_build_fn build, void *user, const tg_compile_options *options) {
    return model_compile_root(ctx, build, user, options, false);
}

tg_model *tg_compile_sibling(tg_model *parent, tg_build_fn build, void *user) {
    if (parent == NULL) return NULL;
    tg_model_begin(parent->ctx);
    tg_model *model = model_create(parent->ctx, build, user);
    if (model == NULL) return NULL;
    model->root = parent->root;
    model->family = parent->family;
    model->no_fusion = parent->no_fusion;
    model->next = model->root->next;
    model->root->next = model;
    if (tg_model_variant(model, TG_VARIANT_RUN) != NULL) return model;
    tg_model_destroy(model);
    return NULL;
}

/* ---------------------------------------------------------------- destroying */

static void model_free(tg_model *model) {
    for (int i = 0; i < TG_VARIANT_COUNT; i++) tg_variant_destroy(model->family, model->variants[i]);
    if (model->root == model) tg_family_destroy(model->family);
    if (model->fed != NULL) tg_release(model->ctx, model->fed, (size_t)(model->traced->inputs.count + 1) * sizeof *model->fed);
    if (model->traced != NULL) tg_graph_destroy(model->traced);
    tg_text_free(&model->text);
    tg_release(model->ctx, model, sizeof *model);
}

void tg_model_destroy(tg_model *model) {
    if (model == NULL) return;
    if (model->root != model) {
        tg_model *before = model->root;
        while (before->next != model) before = before->next;
        before->next = model->next;
        model_free(model);
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

static tg_status model_execute(const tg_model *model, const tg_variant *variant) {
    return model->family->executor->run(model->family->device, variant->executable, variant->inputs, variant->outputs);
}

/* Outputs from the flags on go to variant->flags, or nowhere. */
static void model_aim_flags(tg_variant *variant, bool wanted) {
    for (int32_t i = 0; i < variant->program->computed_check_count; i++)
        variant->outputs[variant->program->computed_checks[i].output] = wanted ? &variant->flags[i] : NULL;
}

static tg_status model_read_flags(const tg_model *model, const tg_variant *variant) {
    for (int32_t i = 0; i < variant->program->computed_check_count; i++) {
        const tg_computed_check *check = &variant->program->computed_checks[i];
        if (variant->flags[i] == 0) continue;
        return tg_fail(model->ctx, TG_ERROR_INDEX, check->site, "%s: a computed index is outside [%lld, %lld)", check->op,
                       (long long)check->lo, (long long)check->hi);
    }
    return TG_OK;
}

/* Computed indices of a step, before the step. */
static tg_status model_check_computed(tg_model *model) {
    tg_variant *check = model->variants[TG_VARIANT_CHECK];
    if (check == NULL) return TG_OK;
    tg_status status = tg_feeds_bind(model, check);
    if (status != TG_OK) return status;
    for (int32_t i = 0; i < check->program->output_count; i++) check->outputs[i] = NULL;
    model_aim_flags(check, true);
    status = model_execute(model, check);
    return status == TG_OK ? model_read_flags(model, check) : status;
}

/* The update happens here; everything that can be refused has been. */
static tg_status model_step_now(tg_model *model, tg_variant *variant, float *loss) {
    float value = 0.0f;
    variant->outputs[0] = &value;
    model_aim_flags(variant, false);
    tg_status status = model_execute(model, variant);
    if (status != TG_OK) return status;
    model->family->steps++;
    model->family->has_gradients = true;
    if (loss != NULL) *loss = value;
    if (isfinite(value)) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_NOT_FINITE, TG_SITE_NONE, "step %lld: loss is %s", (long long)model->family->steps,
                   isnan(value) ? "nan"
                   : value > 0  ? "inf"
                                : "-inf");
}

static tg_status model_step(tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures) {
    if (!model->training) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "step: this is a forward model: use tg_run");
    tg_status status = tg_feeds_check(model, "step", feeds, n);
    if (status != TG_OK) return status;
    tg_variant *variant = tg_model_variant(model, captures != NULL ? TG_VARIANT_STEP_CAPTURES : TG_VARIANT_STEP);
    if (variant == NULL) return model->ctx->status;
    status = tg_feeds_bind(model, variant);
    if (status == TG_OK) status = model_check_computed(model);
    if (status != TG_OK) return status;
    tg_captures *made = NULL;
    if (captures != NULL) {
        made = tg_captures_make(model->ctx, variant);
        if (made == NULL) return TG_ERROR_MEMORY;
    }
    status = model_step_now(model, variant, loss);
    /* a loss that is not finite is when captures are needed most */
    if (captures != NULL && (status == TG_OK || status == TG_ERROR_NOT_FINITE)) *captures = made;
    else tg_captures_destroy(made);
    return status;
}

tg_status tg_step(tg_model *model, const tg_feed *feeds, int n, float *loss) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx);
    return model_step(model, feeds, n, loss, NULL);
}

tg_status tg_step_captures(tg_model *model, const tg_feed *feeds, int n, float *loss, tg_captures **captures) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx);
    if (captures == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "step: captures is NULL");
    *captures = NULL;
    return model_step(model, feeds, n, loss, captures);
}

static tg_status model_check_output(const tg_model *model, const void *output, int64_t capacity) {
    const tg_node *result = tg_graph_node(model->traced, model->traced->result);
    char shape[TG_SHAPE_TEXT];
    int64_t count = tg_shape_count(result->shape);
    if (output == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: output is NULL");
    if (capacity >= count) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: the output %s has %lld elements, there is room for %lld",
                   tg_shape_text(result->shape, shape, sizeof shape), (long long)count, (long long)capacity);
}

static tg_status model_run_now(const tg_model *model, tg_variant *variant, void *output) {
    variant->outputs[0] = variant->result != NULL ? variant->result : output;
    model_aim_flags(variant, true);
    tg_status status = model_execute(model, variant);
    if (status == TG_OK) status = model_read_flags(model, variant);
    if (status == TG_OK && variant->result != NULL) memcpy(output, variant->result, variant->result_bytes);
    return status;
}

static tg_status model_run(tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity, tg_captures **captures) {
    tg_status status = model_check_output(model, output, capacity);
    if (status == TG_OK) status = tg_feeds_check(model, "run", feeds, n);
    if (status != TG_OK) return status;
    tg_variant *variant = tg_model_variant(model, captures != NULL ? TG_VARIANT_RUN_CAPTURES : TG_VARIANT_RUN);
    if (variant == NULL) return model->ctx->status;
    status = tg_feeds_bind(model, variant);
    if (status != TG_OK) return status;
    tg_captures *made = NULL;
    if (captures != NULL) {
        made = tg_captures_make(model->ctx, variant);
        if (made == NULL) return TG_ERROR_MEMORY;
    }
    status = model_run_now(model, variant, output);
    if (captures != NULL && status == TG_OK) *captures = made;
    else tg_captures_destroy(made);
    return status;
}

tg_status tg_run(tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx);
    return model_run(model, feeds, n, output, capacity, NULL);
}

tg_status tg_run_captures(tg_model *model, const tg_feed *feeds, int n, void *output, int64_t capacity, tg_captures **captures) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx);
    if (captures == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "run: captures is NULL");
    *captures = NULL;
    return model_run(model, feeds, n, output, capacity, captures);
}
