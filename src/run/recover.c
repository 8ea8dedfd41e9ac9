/* recover: a model whose device was lost continues from its snapshot on a new device. Programs are
 * compiled again, because the new device may have other limits. The lost device and what is loaded
 * on it are kept until all of that has worked. Must not know what losing a device means. */
#include "run/model.h"

#include <string.h>

static tg_variant_kind recover_main(const tg_model *model) { return model->training ? TG_VARIANT_STEP : TG_VARIANT_RUN; }

static void recover_set_aside(tg_model *model) {
    memcpy(model->lost, model->variants, sizeof model->lost);
    memset(model->variants, 0, sizeof model->variants);
}

static void recover_destroy(tg_model *model, tg_variant **variants) {
    for (int i = 0; i < TG_VARIANT_COUNT; i++) tg_variant_destroy(model->family, variants[i]);
    memset(variants, 0, sizeof model->lost);
}

/* What compiling made at once; the rest is made when next asked for. */
static tg_status recover_compile(tg_model *model) {
    for (tg_model *m = model; m != NULL; m = m->next) {
        if (tg_model_variant(m, recover_main(m)) == NULL) return m->ctx->status;
        for (int kind = TG_VARIANT_CHECK; kind <= TG_VARIANT_FINITE; kind++)
            if (m->lost[kind] != NULL && tg_model_variant(m, (tg_variant_kind)kind) == NULL) return m->ctx->status;
    }
    return TG_OK;
}

/* The family's device is the new one here. */
static tg_status recover_onto(tg_model *root, tg_device *lost) {
    tg_family *family = root->family;
    tg_device *opened = family->device;
    for (tg_model *m = root; m != NULL; m = m->next) recover_set_aside(m);
    tg_status status = recover_compile(root);
    for (tg_model *m = root; m != NULL; m = m->next) {
        if (status != TG_OK) recover_destroy(m, m->variants);
        family->device = lost;
        if (status == TG_OK) tg_datasets_leave(m, false);
        if (status == TG_OK) recover_destroy(m, m->lost);
        else memcpy(m->variants, m->lost, sizeof m->lost);
        memset(m->lost, 0, sizeof m->lost);
        family->device = opened;
    }
    family->executor->close(status == TG_OK ? lost : opened);
    family->device = status == TG_OK ? opened : lost;
    return status;
}

tg_status tg_model_recover_at(tg_site site, tg_model *model) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    tg_family *family = model->family;
    if (model->root->trains) return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE, "recover: the model is being trained");
    if (!family->executor->can_be_lost || !family->executor->is_lost(family->device)) return TG_OK;
    if (!family->can_recover)
        return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "recover: the device is the application's own: compile again with another");
    tg_device *lost = family->device, *opened = NULL;
    tg_status status = tg_family_open_again(family, &opened);
    if (status != TG_OK) return status;
    family->device = opened;
    status = recover_onto(model->root, lost);
    if (status != TG_OK) return status;
    family->steps = family->snapshot_steps;
    family->skipped = family->snapshot_skipped;
    family->has_gradients = family->snapshot_gradients;
    return TG_OK;
}

tg_status tg_model_snapshot_at(tg_site site, tg_model *model) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    return tg_family_snapshot(model->family);
}
