/* steps: many steps in one call, on a data set. Owns the checks before, when training ends, and
 * what is reported. The steps are those of tg_step. Must not know where the batches are made. */
#include "run/steps.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- checks */

static tg_status steps_refuse(const tg_model *model, const char *what, int64_t value, const char *range) {
    return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: %s is %lld, outside %s", what, (long long)value, range);
}

static tg_status steps_check_options(const tg_model *model, const tg_train_options *options) {
    tg_context *ctx = model->ctx;
    if (options == NULL) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: options is NULL");
    if (options->steps < 0) return steps_refuse(model, "steps", options->steps, "0 .. 2^31 - 1");
    if (options->steps > INT32_MAX - model->family->steps)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: %lld steps after the %lld made are more than 2^31 - 1",
                       (long long)options->steps, (long long)model->family->steps);
    if (options->order != TG_BATCH_RANDOM && options->order != TG_BATCH_SEQUENTIAL)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: there is no batch order %d", (int)options->order);
    if (options->steps_per_submission < 0 || options->steps_per_submission > TG_MOST_STEPS)
        return steps_refuse(model, "steps_per_submission", options->steps_per_submission, "0 .. 4096");
    if (options->patience < 0) return steps_refuse(model, "patience", options->patience, "0 .. 2^63 - 1");
    if (!isfinite(options->target_loss))
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: target_loss must be finite, got %g", options->target_loss);
    return TG_OK;
}

/* Where random numbers begin is nothing learned. */
static bool steps_changes_something(const tg_model *model) {
    const tg_graph *g = model->traced;
    if (model->optimizer.kind != TG_OPTIMIZER_NONE) return true;
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        const tg_node *to = tg_graph_node(g, g->writebacks.items[i].destination);
        if (to->op != TG_OP_STATE || strcmp(g->states.items[to->attr.leaf].name, TG_RANDOM_STATE) != 0) return true;
    }
    return false;
}

static tg_status steps_check_objects(const tg_model *model, const tg_dataset *dataset) {
    tg_context *ctx = model->ctx;
    if (!model->training) return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE, "train: this is a forward model: use tg_run");
    if (model->root->trains)
        return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE, "train: the model is being trained: progress must not train it");
    if (!steps_changes_something(model))
        return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "train: the model has no optimizer and writes nothing back: no step would change it");
    if (dataset == NULL) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: the data set is NULL");
    if (dataset->model == NULL) return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE, "train: the data set's model was destroyed");
    if (dataset->model != model) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "train: the data set is another model's");
    if (dataset->lost)
        return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE, "train: the data set was on the device that was lost: create it again");
    return TG_OK;
}

/* The inputs that stay the same: all of them, with their indices. */
static tg_status steps_bind(tg_train_call *call, bool check) {
    tg_model *model = call->model;
    tg_status status = tg_feeds_check_beside(model, call->dataset, call->options.feeds, call->options.feed_count);
    for (int i = 0; i < call->options.feed_count && status == TG_OK && check; i++) {
        const tg_feed *feed = &call->options.feeds[i];
        for (int64_t k = 0; k < model->traced->inputs.count && status == TG_OK; k++)
            if (strcmp(model->traced->inputs.items[k].name, feed->name) == 0)
                status = tg_feeds_check_values(model, call->variant, k, feed->data, feed->count);
    }
    if (status == TG_OK) tg_feeds_place(model, call->variant);
    return status;
}

/* ---------------------------------------------------------------- submissions */

/* Bound anew each time: other calls of the model may have come between. */
static tg_status steps_aim(tg_train_call *call) {
    const tg_train_options *options = &call->options;
    const int64_t left = options->steps - call->result.steps, room = tg_draw_most_steps(call->dataset->batch);
    call->draw.step = call->model->family->steps;
    call->exact = options->steps_per_submission > 0;
    call->most = call->exact ? options->steps_per_submission : TG_MOST_STEPS;
    if (call->most > room) call->most = room;
    if (call->most > left) call->most = left;
    return call->most > 0 ? steps_bind(call, false) : TG_OK;
}

tg_status tg_train_begin(tg_train_call *call, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses) {
    *call = (tg_train_call){.model = model, .dataset = dataset, .losses = losses};
    call->result = (tg_train_result){.loss = NAN, .best = NAN};
    tg_status status = steps_check_objects(model, dataset);
    if (status == TG_OK) status = steps_check_options(model, options);
    if (status != TG_OK) return status;
    call->options = *options;
    call->variant = tg_model_variant(model, TG_VARIANT_STEP);
    if (call->variant == NULL) return model->ctx->status;
    status = steps_bind(call, true);
    if (status != TG_OK) return status;
    call->draw = (tg_draw){options->order, options->seed, 0, dataset->rows, dataset->batch};
    status = steps_aim(call);
    model->root->trains = status == TG_OK;
    return status;
}

/* The first reason to end is the one that is told. */
static void steps_look_at(tg_train_call *call, float loss) {
    tg_train_result *result = &call->result;
    const tg_train_options *options = &call->options;
    if (call->losses != NULL) call->losses[result->steps] = loss;
    result->steps++;
    result->loss = loss;
    if (isnan(result->best) || loss < result->best) {
        result->best = loss;
        call->best_at = result->steps;
    }
    if (result->end != TG_TRAIN_ALL) return;
    if (tg_given(options->target_loss) && (double)loss <= options->target_loss) result->end = TG_TRAIN_TARGET;
    else if (options->patience > 0 && result->steps - call->best_at >= options->patience) result->end = TG_TRAIN_PATIENCE;
}

/* Errors of calls that progress makes are its own. False: stop. */
static bool steps_tell(const tg_train_call *call, int64_t step, float loss) {
    const tg_train_options *options = &call->options;
    if (options->progress == NULL) return true;
    const tg_site site = call->model->ctx->call_site;
    const bool more = options->progress(options->progress_user, step, loss);
    tg_model_begin(call->model->ctx, site);
    return more;
}

/* All of them were made. Reports each, up to the one where progress stops. Returns how many were
 * finite before the first that was not, whose end *bad gets. */
static int64_t steps_take(tg_train_call *call, float *losses, int64_t count, tg_step_end *bad) {
    const int64_t before = call->draw.step;
    int64_t good = count;
    bool wanted = true;
    call->model->family->steps += count;
    call->model->family->has_gradients = true;
    for (int64_t i = 0; i < count; i++) {
        const tg_step_end end = tg_model_step_end(call->model, losses[i]);
        losses[i] = end.loss;
        if (end.skipped) call->model->family->skipped++;
        steps_look_at(call, end.loss);
        if (good == count && !isfinite(end.loss)) {
            good = i;
            *bad = end;
        }
        if (wanted) wanted = steps_tell(call, before + i + 1, losses[i]);
        if (!wanted && call->result.end == TG_TRAIN_ALL) call->result.end = TG_TRAIN_STOPPED;
    }
    return good;
}

tg_status tg_train_next(tg_train_call *call, tg_status executed, float *losses, int64_t count) {
    tg_status status = executed;
    tg_step_end bad;
    call->most = 0;
    if (status == TG_OK) {
        const int64_t good = steps_take(call, losses, count, &bad);
        if (good < count) status = tg_model_check_step(call->model->ctx, call->draw.step + good + 1, &bad);
    }
    if (status == TG_OK && call->result.end == TG_TRAIN_ALL) status = steps_aim(call);
    if (status != TG_OK) {
        call->result.end = TG_TRAIN_FAILED;
        call->most = 0;
    }
    return status;
}

/* Calls of the model since the submission was prepared have fed it other inputs. */
tg_status tg_train_begin_step(tg_train_call *call, tg_model_call *step) {
    tg_dataset_fill(call->dataset, &call->draw);
    tg_status status = steps_bind(call, false);
    return status == TG_OK ? tg_model_call_begin_fed(step, call->model) : status;
}

tg_status tg_train_on_host(tg_train_call *call, float *loss) {
    const tg_family *family = call->model->family;
    tg_model_call step;
    memset(&step, 0, sizeof step);
    tg_status status = tg_train_begin_step(call, &step);
    while (status == TG_OK && step.variant != NULL) {
        const tg_variant *variant = step.variant;
        tg_status executed = family->executor->run(family->device, variant->executable, variant->inputs, variant->outputs);
        if (executed == TG_OK && variant == step.main) break; /* made: counted by tg_train_next */
        status = tg_model_call_next(&step, executed);
    }
    *loss = step.loss;
    return status;
}

void tg_train_end_call(tg_train_call *call) {
    if (call->model != NULL) call->model->root->trains = false;
    call->model = NULL;
}

/* ---------------------------------------------------------------- on a device that answers at
 * once */

static tg_status steps_submit(tg_train_call *call, int64_t *count) {
    const tg_family *family = call->model->family;
    tg_dataset *dataset = call->dataset;
    *count = 1;
    if (dataset->feeder == NULL) return tg_train_on_host(call, dataset->losses);
    const tg_feeder_run run = {.draw = call->draw, .inputs = call->variant->inputs, .most = call->most, .exact = call->exact};
    return family->executor->run_feeder(family->device, dataset->feeder, &run, dataset->losses, count);
}

tg_status tg_train_at(tg_site site, tg_model *model, tg_dataset *dataset, const tg_train_options *options, float *losses,
                      tg_train_result *result) {
    tg_train_call call;
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (dataset != NULL && dataset->model != NULL && dataset->model->owner == model)
        model = dataset->model; /* of the size of its batches */
    tg_status status = tg_train_begin(&call, model, dataset, options, losses);
    if (status != TG_OK) return status;
    tg_sizes_used(model);
    while (status == TG_OK && call.most > 0) {
        int64_t count = 0;
        tg_tickets_settle(model->family); /* of steps begun by progress */
        status = steps_submit(&call, &count);
        status = tg_train_next(&call, status, dataset->losses, count);
    }
    if (result != NULL) *result = call.result;
    tg_train_end_call(&call);
    return status;
}
