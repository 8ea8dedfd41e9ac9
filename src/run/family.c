/* family: what a model and its siblings share, from its beginning to its end. Must not know
 * programs or files. */
#include "run/model.h"

static tg_status family_init(tg_family *family, const tg_compile_options *options) {
    tg_context *ctx = family->ctx;
    tg_status status = tg_family_open(family, options);
    if (status != TG_OK) return status;
    family->can_recover = family->executor->can_be_lost && family->open.foreign == NULL;
    status = tg_layout_make(family->traced, &family->arena, &family->layout);
    if (status != TG_OK) return status;
    family->chunk = tg_alloc(ctx, TG_CHUNK_BYTES);
    family->seen = TG_NEW(&family->arena, uint8_t, family->layout.count + 1);
    if (family->chunk == NULL || family->seen == NULL) return TG_ERROR_MEMORY;
    status = tg_family_check_names(family, family->traced);
    return status == TG_OK ? tg_family_make_states(family) : status;
}

tg_family *tg_family_create(tg_context *ctx, const tg_compile_options *options, const tg_graph *traced) {
    tg_family *family = tg_alloc(ctx, sizeof *family);
    if (family == NULL) return NULL;
    family->ctx = ctx;
    tg_arena_init(&family->arena, ctx);
    family->traced = traced;
    family->seed = options->seed;
    if (family_init(family, options) == TG_OK) return family;
    tg_family_destroy(family);
    return NULL;
}

void tg_family_destroy(tg_family *family) {
    if (family == NULL) return;
    tg_context *ctx = family->ctx;
    if (family->executor != NULL) family->executor->close(family->device);
    if (family->chunk != NULL) tg_release(ctx, family->chunk, TG_CHUNK_BYTES);
    tg_tickets_destroy(family);
    tg_family_forget_states(family, 0);
    if (family->states.items != NULL) tg_release(ctx, family->states.items, (size_t)family->states.capacity * sizeof *family->states.items);
    tg_arena_free(&family->arena);
    tg_release(ctx, family, sizeof *family);
}
