/* call: the phases of a step or run: all checks; then the program of index checks, if there is one;
 * then the program itself; then its results. Owns the order in which these may change a model. Must
 * not know how a program is executed. */
#include "run/call.h"

#include <math.h>
#include <string.h>

static bool call_is_step(const tg_model_call *call) { return call->kind == TG_CALL_STEP || call->kind == TG_CALL_STEP_CAPTURES; }

static bool call_wants_captures(const tg_model_call *call) {
    return call->kind == TG_CALL_STEP_CAPTURES || call->kind == TG_CALL_RUN_CAPTURES;
}

static tg_variant_kind call_variant_kind(tg_call_kind kind) {
    switch (kind) {
    case TG_CALL_STEP: return TG_VARIANT_STEP;
    case TG_CALL_STEP_CAPTURES: return TG_VARIANT_STEP_CAPTURES;
    case TG_CALL_RUN: return TG_VARIANT_RUN;
    case TG_CALL_RUN_CAPTURES: break;
    }
    return TG_VARIANT_RUN_CAPTURES;
}

/* ---------------------------------------------------------------- flags of computed indices */

/* Outputs from the flags on go to variant->flags, or nowhere. */
static void call_aim_flags(tg_variant *variant, bool wanted) {
    for (int32_t i = 0; i < variant->program->computed_check_count; i++)
        variant->outputs[variant->program->computed_checks[i].output] = wanted ? &variant->flags[i] : NULL;
}

static tg_status call_read_flags(const tg_model_call *call) {
    const tg_variant *variant = call->variant;
    for (int32_t i = 0; i < variant->program->computed_check_count; i++) {
        const tg_computed_check *check = &variant->program->computed_checks[i];
        if (variant->flags[i] == 0) continue;
        return tg_fail(call->model->ctx, TG_ERROR_INDEX, check->site, "%s: a computed index is outside [%lld, %lld)", check->op,
                       (long long)check->lo, (long long)check->hi);
    }
    return TG_OK;
}

/* ---------------------------------------------------------------- phases */

/* Where the outputs of the program itself go. */
static tg_status call_aim_main(tg_model_call *call) {
    tg_variant *variant = call->main;
    call->variant = variant;
    if (call_wants_captures(call)) {
        call->captures = tg_captures_make(call->model->ctx, variant);
        if (call->captures == NULL) return TG_ERROR_MEMORY;
    }
    variant->outputs[0] = variant->result != NULL ? variant->result : call->output;
    if (call_is_step(call)) variant->outputs[0] = &call->loss;
    call_aim_flags(variant, !call_is_step(call));
    return TG_OK;
}

/* The search for values that are not finite, for models with check_finite. */
static tg_status call_aim_find(tg_model_call *call) {
    tg_variant *finite = call_is_step(call) && call->model->check_finite ? tg_model_variant(call->model, TG_VARIANT_FINITE) : NULL;
    if (finite == NULL) return call_is_step(call) && call->model->check_finite ? call->model->ctx->status : call_aim_main(call);
    call->variant = finite;
    tg_status status = tg_feeds_bind(call->model, finite);
    for (int32_t i = 0; i < finite->program->output_count; i++) finite->outputs[i] = NULL;
    finite->outputs[0] = &call->found;
    return status;
}

static tg_status call_read_found(tg_model_call *call) {
    tg_status status = tg_finite_tell(call->model, call->variant, call->found);
    if (status == TG_OK) return call_aim_main(call);
    call->refused = true;
    call->loss = call->end.loss = NAN;
    call->variant = NULL;
    return status;
}

/* Computed indices are checked before anything changes, by a program of their own. */
static tg_status call_aim_check(tg_model_call *call, tg_variant *check) {
    call->variant = check;
    tg_status status = tg_feeds_bind(call->model, check);
    for (int32_t i = 0; i < check->program->output_count; i++) check->outputs[i] = NULL;
    call_aim_flags(check, true);
    return status;
}

/* model->fed is filled. */
static tg_status call_bind(tg_model_call *call) {
    tg_model *model = call->model;
    tg_status status = TG_OK;
    if (call_is_step(call)) status = tg_model_check_room(model, "step");
    if (status != TG_OK) return status;
    call->main = tg_model_variant(model, call_variant_kind(call->kind));
    if (call->main == NULL) return model->ctx->status;
    status = tg_feeds_bind(model, call->main);
    if (status != TG_OK) return status;
    tg_variant *check;
    status = tg_model_check_variant(model, call->main, call_is_step(call), &check);
    if (status != TG_OK) return status;
    return check != NULL ? call_aim_check(call, check) : call_aim_find(call);
}

tg_step_end tg_model_step_end(const tg_model *model, float loss) {
    tg_step_end end = {.loss = loss};
    const bool watches = tg_optimizer_watches(&model->optimizer) || model->traced->finite_gradients != 0;
    const bool skips = model->optimizer.skip_non_finite || model->traced->finite_step != 0;
    if (watches && loss == TG_BAD_GRADIENT) {
        end.loss = NAN;
        end.bad_gradient = true;
    }
    end.skipped = skips && !isfinite(end.loss);
    return end;
}

tg_status tg_model_check_step(tg_context *ctx, int64_t step, const tg_step_end *end) {
    if (isfinite(end->loss)) return TG_OK;
    const char *value = isnan(end->loss) ? "loss is nan" : end->loss > 0 ? "loss is inf" : "loss is -inf";
    return tg_fail(ctx, TG_ERROR_NOT_FINITE, TG_SITE_NONE, "step %lld: %s%s", (long long)step,
                   end->bad_gradient ? "a gradient is not finite" : value,
                   end->skipped ? "; it was skipped: parameters and optimizer are as they were" : "");
}

tg_status tg_model_check_room(const tg_model *model, const char *call) {
    if (model->family->steps < INT32_MAX) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "%s: %lld steps have been made, the most there can be: reset the optimizer",
                   call, (long long)model->family->steps);
}

tg_status tg_model_count_step(const tg_model *model, const tg_step_end *end) {
    model->family->steps++;
    if (end->skipped) model->family->skipped++;
    model->family->has_gradients = true;
    tg_advise_steps(model);
    return tg_model_check_step(model->ctx, model->family->steps, end);
}

static tg_status call_finish_step(tg_model_call *call) {
    call->end = tg_model_step_end(call->model, call->loss);
    call->loss = call->end.loss;
    return tg_model_count_step(call->model, &call->end);
}

/* Nothing is written to the caller's output before the flags are read. */
static tg_status call_finish_run(const tg_model_call *call) {
    const tg_variant *variant = call->variant;
    tg_status status = call_read_flags(call);
    if (status == TG_OK && variant->result != NULL) memcpy(call->output, variant->result, variant->result_bytes);
    return status;
}

static tg_status call_advance(tg_model_call *call) {
    if (call->variant != call->main) { /* of the checks */
        if (call->variant->suspects != NULL) return call_read_found(call);
        tg_status status = call_read_flags(call);
        return status == TG_OK ? call_aim_find(call) : status;
    }
    tg_status status = call_is_step(call) ? call_finish_step(call) : call_finish_run(call);
    call->variant = NULL;
    return status;
}

/* ---------------------------------------------------------------- entry points */

tg_status tg_model_call_begin(tg_model_call *call, tg_model *model, tg_call_kind kind, const tg_feed *feeds, int n, void *output) {
    *call = (tg_model_call){.model = model, .kind = kind, .output = output};
    if (call_is_step(call) && !model->training)
        return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "step: this is a forward model: use tg_run");
    tg_status status = tg_feeds_check(model, call_is_step(call) ? "step" : "run", feeds, n);
    if (status == TG_OK) status = call_bind(call);
    if (status != TG_OK) tg_model_call_end(call);
    return status;
}

tg_status tg_model_call_begin_fed(tg_model_call *call, tg_model *model) {
    *call = (tg_model_call){.model = model, .kind = TG_CALL_STEP};
    tg_status status = call_bind(call);
    if (status != TG_OK) tg_model_call_end(call);
    return status;
}

/* A loss that is not finite is when captures are needed most. */
tg_status tg_model_call_next(tg_model_call *call, tg_status executed) {
    if (call->variant == NULL) return TG_INTERNAL(call->model->ctx, "a call that is over goes on");
    tg_status status = executed == TG_OK ? call_advance(call) : executed;
    if (status != TG_OK && status != TG_ERROR_NOT_FINITE) tg_model_call_end(call);
    return status;
}

tg_status tg_model_call_run(tg_model_call *call) {
    const tg_family *family = call->model->family;
    tg_status status = TG_OK;
    while (status == TG_OK && call->variant != NULL) {
        const tg_variant *variant = call->variant;
        status = tg_model_call_next(call, family->executor->run(family->device, variant->executable, variant->inputs, variant->outputs));
    }
    return status;
}

void tg_model_call_end(tg_model_call *call) {
    tg_captures_destroy(call->captures);
    call->captures = NULL;
    call->variant = NULL;
}
