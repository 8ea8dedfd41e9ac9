/* model: exports for compiled models, their parameters and states. Must not decide anything: the
 * functions that it calls make every check. */
#include "boundary.gen.h"
#include "core.h"

WEB_EXPORT(tg_model *, model_create)(const void *bytes, uint32_t size, web_flag training, const double *options) {
    const tg_compile_options chosen = web_compile_options_of(options);
    return tg_compile_bytes(web_context, bytes, size, &chosen, training != 0);
}
WEB_EXPORT(tg_model *, model_sibling)(tg_model *parent, const void *bytes, uint32_t size, int32_t averaged) {
    return tg_compile_sibling_bytes(parent, bytes, size, averaged != 0);
}
WEB_EXPORT(tg_model *, model_size)(tg_model *owner, const void *bytes, uint32_t size) { return tg_compile_size_bytes(owner, bytes, size); }
WEB_EXPORT(void, model_destroy)(tg_model *model) { tg_model_destroy(model); }

WEB_EXPORT(const char *, model_text)(tg_model *model, int32_t what) { return tg_model_text_at(TG_SITE_NONE, model, (tg_text)what); }

WEB_EXPORT(int32_t, model_upload)(tg_model *model, const tg_feed *params, int32_t n, int32_t partial) {
    return (int32_t)tg_params_upload_at(TG_SITE_NONE, model, params, n, partial != 0);
}
WEB_EXPORT(int32_t, model_read)(tg_model *model, int32_t slot, int32_t first, void *data, int32_t count) {
    tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_family_read(model->family, slot, first, data, count);
}
WEB_EXPORT(int32_t, model_check_grads)(tg_model *model) {
    tg_model_begin(web_context, TG_SITE_NONE);
    return (int32_t)tg_model_check_gradients(model);
}
WEB_EXPORT(int32_t, model_reset)(tg_model *model) { return (int32_t)tg_model_reset_at(TG_SITE_NONE, model); }
WEB_EXPORT(int32_t, model_reset_optimizer)(tg_model *model) { return (int32_t)tg_model_reset_optimizer_at(TG_SITE_NONE, model); }
WEB_EXPORT(int32_t, model_set_lr)(tg_model *model, const double *lr) {
    return (int32_t)tg_model_set_lr_at(TG_SITE_NONE, model, web_lr_of(lr));
}
WEB_EXPORT(double, model_steps)(tg_model *model) { return (double)tg_model_step_count(model); }

WEB_EXPORT(void, snapshot_put)(tg_model *model, int32_t slot, const void *data) {
    const tg_family *family = model->family;
    if (slot >= 0 && slot < family->states.count) tg_family_write_snapshot(model->family, slot, 0, data, family->states.items[slot].count);
}
WEB_EXPORT(void, snapshot_end)(tg_model *model) {
    model->family->snapshot_steps = model->family->steps;
    model->family->snapshot_gradients = model->family->has_gradients;
}
WEB_EXPORT(int32_t, model_recover)(tg_model *model) { return (int32_t)tg_model_recover_at(TG_SITE_NONE, model); }
