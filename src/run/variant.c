/* variant: from a model's traced graph to a loaded program: copy the graph, append training or drop
 * the updates, flatten the parameters, run the passes, plan, give every state its slot, load. Owns
 * graph, program and executable of each variant. Must not know feeds or files. Cost: one
 * compilation per variant, when it is first needed. */
#include "run/model.h"

#include "pass/pass.h"

#include <float.h>
#include <string.h>

/* Where a gradient is not finite and the loss is, the step tells so in the place of the loss; where
 * steps are skipped, states that the model writes itself keep their values too. But random numbers
 * go on. */
static tg_status variant_watch(tg_graph *g, const tg_watch *watch) {
    if (watch->gradients == 0) return TG_OK;
    const int32_t loss = g->result, far = tg_ir_const(g, TG_SCALAR, TG_F32, (double)FLT_MAX);
    int32_t finite = tg_ir_binary(g, TG_OP_LESS, tg_ir_unary(g, TG_OP_ABS, loss), far);
    int32_t silent = tg_ir_binary(g, TG_OP_AND, finite, tg_ir_unary(g, TG_OP_NOT, watch->gradients));
    g->result = tg_ir_select(g, silent, tg_ir_const(g, TG_SCALAR, TG_F32, (double)TG_BAD_GRADIENT), loss);
    for (int64_t i = 0; i < g->writebacks.count && watch->step != 0; i++) {
        tg_writeback_info *writeback = &g->writebacks.items[i];
        const tg_node *to = tg_graph_node(g, writeback->destination);
        if (to->op != TG_OP_STATE || strncmp(g->states.items[to->attr.leaf].name, "tg.", 3) == 0) continue;
        writeback->source = tg_ir_select(g, watch->step, writeback->source, writeback->destination);
        if (writeback->source == 0) return g->ctx->status;
    }
    return g->result != 0 ? TG_OK : g->ctx->status;
}

static tg_status variant_append_training(const tg_model *model, tg_graph *g) {
    /* nothing to differentiate with respect to */
    if (model->family->layout.trained_end == 0) return TG_OK;
    g->current_site = tg_graph_node(g, g->result)->site;
    tg_watch watch;
    tg_status status =
        tg_append_training(g, g->result, &model->optimizer, &model->family->layout, tg_family_loss_scale(model->family), &watch);
    if (g->finite_gradients != 0) watch = (tg_watch){g->finite_gradients, g->finite_step};
    return status == TG_OK ? variant_watch(g, &watch) : status;
}

/* Only the checks stay: the result becomes a constant, so that the passes drop all that no check
 * needs. */
static tg_status variant_keep_checks(tg_graph *g) {
    g->result = tg_ir_const(g, TG_SCALAR, TG_F32, 0.0);
    return g->result != 0 ? TG_OK : g->ctx->status;
}

/* A run writes nothing back but where the next one's random numbers begin. */
static void variant_keep_random(tg_graph *g) {
    int64_t kept = 0;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_node *to = tg_graph_node(g, g->writebacks.items[i].destination);
        if (to->op == TG_OP_STATE && strcmp(g->states.items[to->attr.leaf].name, TG_RANDOM_STATE) == 0)
            g->writebacks.items[kept++] = g->writebacks.items[i];
    }
    g->writebacks.count = kept;
}

/* Runs have a state of their own. */
static void variant_draw_for_runs(tg_graph *g) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (strcmp(g->states.items[i].name, TG_RANDOM_STATE) == 0) g->states.items[i].name = TG_RANDOM_RUNS;
}

/* Gradients without an optimiser, then the search. */
static tg_status variant_find(const tg_model *model, tg_variant *variant) {
    tg_graph *g = variant->graph;
    const int64_t forward = g->nodes.count;
    const tg_optimizer none = {.kind = TG_OPTIMIZER_NONE};
    tg_status status = TG_OK;
    if (model->family->layout.trained_end > 0)
        status = tg_append_training(g, g->result, &none, &model->family->layout, tg_family_loss_scale(model->family), NULL);
    return status == TG_OK ? tg_finite_append(g, forward, &variant->arena, &variant->suspects, &variant->suspect_count) : status;
}

static tg_status variant_prepare(const tg_model *model, tg_variant *variant, tg_variant_kind kind) {
    tg_graph *g = variant->graph;
    tg_status status = TG_OK;
    const bool captures = kind == TG_VARIANT_STEP_CAPTURES || kind == TG_VARIANT_RUN_CAPTURES;
    const bool runs = kind == TG_VARIANT_RUN || kind == TG_VARIANT_RUN_CAPTURES;
    if (kind == TG_VARIANT_STEP || kind == TG_VARIANT_STEP_CAPTURES) status = variant_append_training(model, g);
    else if (kind == TG_VARIANT_FINITE) status = variant_find(model, variant);
    else if (runs) variant_keep_random(g);
    else g->writebacks.count = 0;
    if (runs || kind == TG_VARIANT_RUN_CHECK) variant_draw_for_runs(g);
    if (kind == TG_VARIANT_CHECK || kind == TG_VARIANT_RUN_CHECK) status = variant_keep_checks(g);
    if (status == TG_OK) status = (model->averaged ? tg_flatten_averages : tg_flatten_params)(g, &model->family->layout);
    return status == TG_OK ? tg_pass_run(g, captures) : status;
}

static tg_status variant_plan(const tg_model *model, tg_variant *variant, tg_variant_kind kind) {
    const tg_family *family = model->family;
    tg_plan_options options;
    memset(&options, 0, sizeof options);
    options.device = family->executor->model(family->device);
    options.no_fusion = model->no_fusion;
    options.captures = kind == TG_VARIANT_STEP_CAPTURES || kind == TG_VARIANT_RUN_CAPTURES;
    variant->program = tg_program_make(variant->graph, &options);
    if (variant->program == NULL) return model->ctx->status;
#ifndef NDEBUG
    return tg_program_check(variant->program, model->ctx);
#else
    return TG_OK;
#endif
}

/* Which fed input each program input is. */
static tg_status variant_map_inputs(const tg_model *model, tg_variant *variant) {
    const tg_program *program = variant->program;
    for (int32_t i = 0; i < program->input_count; i++) {
        variant->input_index[i] = -1;
        for (int64_t j = 0; j < model->traced->inputs.count; j++)
            if (strcmp(program->inputs[i].name, model->traced->inputs.items[j].name) == 0) variant->input_index[i] = (int32_t)j;
        if (variant->input_index[i] < 0) return TG_INTERNAL(model->ctx, "a program input that the trace does not have");
    }
    return TG_OK;
}

static tg_status variant_make_tables(const tg_model *model, tg_variant *variant) {
    const tg_program *program = variant->program;
    variant->input_index = TG_NEW(&variant->arena, int32_t, program->input_count + 1);
    variant->inputs = TG_NEW(&variant->arena, const void *, program->input_count + 1);
    variant->outputs = TG_NEW(&variant->arena, void *, program->output_count + 1);
    variant->flags = TG_NEW(&variant->arena, int32_t, program->computed_check_count + 1);
    if (variant->input_index == NULL || variant->inputs == NULL || variant->outputs == NULL || variant->flags == NULL)
        return TG_ERROR_MEMORY;
    variant->result_bytes = (size_t)tg_shape_count(program->outputs[0].shape) * tg_dtype_bytes(program->outputs[0].dtype);
    if (program->computed_check_count > 0) {
        variant->result = tg_arena_alloc(&variant->arena, variant->result_bytes);
        if (variant->result == NULL) return TG_ERROR_MEMORY;
    }
    return variant_map_inputs(model, variant);
}

static tg_status variant_load(const tg_model *model, tg_variant *variant) {
    tg_family *family = model->family;
    const tg_program *program = variant->program;
    int32_t *slots = TG_NEW(&variant->arena, int32_t, program->state_count + 1);
    if (slots == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < program->state_count; i++) {
        slots[i] = tg_family_state_slot(family, &program->states[i]);
        if (slots[i] < 0) return model->ctx->status;
    }
    return family->executor->load(family->device, program, slots, &variant->executable);
}

static tg_status variant_build(const tg_model *model, tg_variant *variant, tg_variant_kind kind) {
    variant->graph = tg_graph_clone(model->traced);
    if (variant->graph == NULL) return model->ctx->status;
    tg_status status = variant_prepare(model, variant, kind);
    if (status == TG_OK) status = variant_plan(model, variant, kind);
    if (status == TG_OK) status = variant_make_tables(model, variant);
    return status == TG_OK ? variant_load(model, variant) : status;
}

void tg_variant_destroy(const tg_family *family, tg_variant *variant) {
    if (variant == NULL) return;
    if (variant->executable != NULL) family->executor->unload(family->device, variant->executable);
    if (variant->program != NULL) tg_program_destroy(variant->program, family->ctx);
    if (variant->graph != NULL) tg_graph_destroy(variant->graph);
    tg_arena_free(&variant->arena);
    tg_release(family->ctx, variant, sizeof *variant);
}

tg_variant *tg_model_variant(tg_model *model, tg_variant_kind kind) {
    /* without captures both variants are one */
    if (model->traced->captures.count == 0 && kind == TG_VARIANT_STEP_CAPTURES) kind = TG_VARIANT_STEP;
    if (model->traced->captures.count == 0 && kind == TG_VARIANT_RUN_CAPTURES) kind = TG_VARIANT_RUN;
    if (model->variants[kind] != NULL) return model->variants[kind];
    tg_variant *variant = tg_alloc(model->ctx, sizeof *variant);
    if (variant == NULL) return NULL;
    tg_arena_init(&variant->arena, model->ctx);
    if (variant_build(model, variant, kind) == TG_OK) {
        model->variants[kind] = variant;
        return variant;
    }
    tg_variant_destroy(model->family, variant);
    return NULL;
}

tg_status tg_model_check_variant(tg_model *model, const tg_variant *main, bool is_step, tg_variant **out) {
    *out = NULL;
    if (main->program->computed_check_count == 0 || (!is_step && main->graph->writebacks.count == 0)) return TG_OK;
    *out = tg_model_variant(model, is_step ? TG_VARIANT_CHECK : TG_VARIANT_RUN_CHECK);
    return *out != NULL ? TG_OK : model->ctx->status;
}
