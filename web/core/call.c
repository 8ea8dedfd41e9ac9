/* call: exports for steps, runs and trainings of a model, in phases, so that a device can work
 * between them. Must not decide anything: the functions that it calls make every check. */
#include "boundary.gen.h"
#include "core.h"

/* ---------------------------------------------------------------- one step or run */

struct web_call {
    tg_model_call call;
    tg_model *model;
    void *result; /* a run's */
    size_t result_bytes;
};

WEB_EXPORT(web_call *, call_create)(tg_model *model) {
    tg_model_begin(web_context, TG_SITE_NONE);
    web_call *call = tg_alloc(web_context, sizeof *call);
    if (call == NULL) return NULL;
    call->model = model;
    call->result_bytes = (size_t)tg_shape_count(tg_model_output_shape(model)) * tg_dtype_bytes(tg_model_output_dtype(model));
    call->result = tg_alloc(web_context, call->result_bytes);
    if (call->result != NULL) return call;
    tg_release(web_context, call, sizeof *call);
    return NULL;
}
WEB_EXPORT(void, call_destroy)(web_call *call) {
    tg_model_call_end(&call->call);
    tg_release(web_context, call->result, call->result_bytes);
    tg_release(web_context, call, sizeof *call);
}

WEB_EXPORT(int32_t, call_begin)(web_call *call, int32_t kind, const tg_feed *feeds, int32_t n) {
    static const tg_call_kind kinds[] = {TG_CALL_STEP, TG_CALL_RUN, TG_CALL_STEP_CAPTURES, TG_CALL_RUN_CAPTURES};
    tg_model_begin(web_context, TG_SITE_NONE);
    tg_model_call_end(&call->call);
    return (int32_t)tg_model_call_begin(&call->call, call->model, kinds[kind & 3], feeds, n, call->result);
}
WEB_EXPORT(int32_t, call_program)(const web_call *call) {
    return call->call.variant != NULL ? tg_web_executable_number(call->call.variant->executable) : 0;
}
WEB_EXPORT(int32_t, call_is_last)(const web_call *call) { return call->call.variant == call->call.main; }
WEB_EXPORT(const void *const *, call_inputs)(const web_call *call) { return call->call.variant->inputs; }
WEB_EXPORT(void *const *, call_outputs)(const web_call *call) { return call->call.variant->outputs; }

WEB_EXPORT(int32_t, call_next)(web_call *call, int32_t status) { return (int32_t)tg_model_call_next(&call->call, (tg_status)status); }
WEB_EXPORT(int32_t, call_run)(web_call *call) {
    const tg_family *family = call->model->family;
    tg_status status = TG_OK;
    while (status == TG_OK && call->call.variant != NULL) {
        const tg_variant *v = call->call.variant;
        status = tg_model_call_next(&call->call, family->executor->run(family->device, v->executable, v->inputs, v->outputs));
    }
    return (int32_t)status;
}

WEB_EXPORT(const void *, call_result)(const web_call *call) {
    bool is_step = call->call.kind == TG_CALL_STEP || call->call.kind == TG_CALL_STEP_CAPTURES;
    return is_step ? (const void *)&call->call.loss : call->result;
}
WEB_EXPORT(const char *, call_captures)(const web_call *call) {
    const tg_captures *captures = call->call.captures;
    tg_text_clear(&web_text);
    WEB_ADD("[");
    for (int i = 0; i < tg_captures_count(captures); i++) {
        WEB_ADD("%s{", web_comma_before(i));
        web_add_key("name", captures->item[i].name);
        WEB_ADD(",");
        web_add_type(captures->item[i].shape, captures->item[i].dtype);
        WEB_ADD(",\"count\":%lld,\"data\":%lu}", (long long)tg_shape_count(captures->item[i].shape),
                (unsigned long)(uintptr_t)captures->item[i].data);
    }
    WEB_ADD("]");
    return web_text_done();
}
WEB_EXPORT(void, call_end)(web_call *call) { tg_model_call_end(&call->call); }

/* ---------------------------------------------------------------- many steps */

WEB_EXPORT(tg_dataset *, dataset_create)(tg_model *model, const tg_feed *arrays, int32_t n, int32_t rows) {
    return tg_dataset_create_at(TG_SITE_NONE, model, arrays, n, rows);
}
WEB_EXPORT(void, dataset_destroy)(tg_dataset *dataset) { tg_dataset_destroy(dataset); }
WEB_EXPORT(int32_t, dataset_feeder)(const tg_dataset *dataset) { return tg_web_feeder_number(dataset->feeder); }

struct web_train {
    tg_train_call call;
    tg_train_options options;
    uint32_t control[TG_DRAW_WORDS];
    double result[4];
};

WEB_EXPORT(web_train *, train_begin)
(tg_model *model, tg_dataset *dataset, const double *options, const tg_feed *feeds, int32_t n) {
    tg_model_begin(web_context, TG_SITE_NONE);
    web_train *train = tg_alloc(web_context, sizeof *train);
    if (train == NULL) return NULL;
    train->options = web_train_options_of(options);
    train->options.feeds = feeds;
    train->options.feed_count = n;
    if (tg_train_begin(&train->call, model, dataset, &train->options, NULL) == TG_OK) return train;
    tg_release(web_context, train, sizeof *train);
    return NULL;
}
WEB_EXPORT(int32_t, train_most)(const web_train *train) { return (int32_t)train->call.most; }
WEB_EXPORT(int32_t, train_exact)(const web_train *train) { return train->call.exact; }
WEB_EXPORT(const uint32_t *, train_control)(web_train *train) {
    tg_draw_control(&train->call.draw, train->control);
    return train->control;
}
WEB_EXPORT(int32_t, train_program)(const web_train *train) { return tg_web_executable_number(train->call.variant->executable); }
WEB_EXPORT(const void *const *, train_inputs)(const web_train *train) { return train->call.variant->inputs; }
WEB_EXPORT(float *, train_losses)(const web_train *train) { return train->call.dataset->losses; }
WEB_EXPORT(int32_t, train_next)(web_train *train, int32_t status, int32_t count) {
    if (status == 0) tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_train_next(&train->call, (tg_status)status, train->call.dataset->losses, count);
}
WEB_EXPORT(int32_t, train_run)(web_train *train, int32_t count) {
    tg_train_call *call = &train->call;
    tg_status status = TG_OK;
    tg_model_begin(web_context, TG_SITE_NONE);
    for (int32_t i = 0; i < count && status == TG_OK && call->most > 0; i++) {
        float loss = 0;
        status = tg_train_on_host(call, &loss);
        status = tg_train_next(call, status, &loss, 1);
        call->dataset->losses[i] = call->result.loss;
    }
    return (int32_t)status;
}
WEB_EXPORT(int32_t, train_step)(web_train *train, web_call *call) {
    tg_model_begin(web_context, TG_SITE_NONE);
    tg_model_call_end(&call->call);
    return (int32_t)tg_train_begin_step(&train->call, &call->call);
}
WEB_EXPORT(const double *, train_result)(web_train *train) {
    const tg_train_result *result = &train->call.result;
    train->result[0] = (double)result->steps;
    train->result[1] = (double)result->end;
    train->result[2] = (double)result->loss;
    train->result[3] = (double)result->best;
    return train->result;
}
WEB_EXPORT(void, train_end)(web_train *train) {
    tg_train_end_call(&train->call);
    tg_release(web_context, train, sizeof *train);
}
