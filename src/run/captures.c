/* captures: the values that a step or run was asked to bring back, by name. One block of memory
 * holds the list, the names and the data, so it outlives the model and is released at once. Must
 * not know how they were computed. */
#include "run/model.h"

#include <string.h>

#define CAPTURES_ALIGN 64

static size_t captures_round_up(size_t bytes) { return (bytes + CAPTURES_ALIGN - 1) / CAPTURES_ALIGN * CAPTURES_ALIGN; }

static size_t captures_data_bytes(const tg_output *output) { return (size_t)tg_shape_count(output->shape) * tg_dtype_bytes(output->dtype); }

tg_captures *tg_captures_make(tg_context *ctx, tg_variant *variant) {
    const tg_program *program = variant->program;
    const tg_output *outputs = program->outputs + program->capture_begin;
    const int count = program->capture_count;
    size_t names = sizeof(tg_captures) + (size_t)count * sizeof(((tg_captures *)NULL)->item[0]), bytes = names;
    for (int i = 0; i < count; i++) bytes += strlen(outputs[i].name) + 1;
    size_t data = captures_round_up(bytes);
    bytes = data;
    for (int i = 0; i < count; i++) bytes += captures_round_up(captures_data_bytes(&outputs[i]));
    tg_captures *captures = tg_alloc(ctx, bytes);
    if (captures == NULL) return NULL;
    captures->ctx = ctx;
    captures->bytes = bytes;
    captures->count = count;
    char *base = (char *)captures;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(outputs[i].name) + 1;
        memcpy(base + names, outputs[i].name, length);
        captures->item[i].name = base + names;
        captures->item[i].shape = outputs[i].shape;
        captures->item[i].dtype = outputs[i].dtype;
        captures->item[i].data = base + data;
        variant->outputs[program->capture_begin + i] = base + data;
        names += length;
        data += captures_round_up(captures_data_bytes(&outputs[i]));
    }
    return captures;
}

int tg_captures_count(const tg_captures *captures) { return captures != NULL ? captures->count : 0; }

const char *tg_captures_name(const tg_captures *captures, int i) {
    return captures != NULL && i >= 0 && i < captures->count ? captures->item[i].name : NULL;
}

static int captures_find(const tg_captures *captures, const char *name) {
    for (int i = 0; captures != NULL && name != NULL && i < captures->count; i++)
        if (strcmp(captures->item[i].name, name) == 0) return i;
    return -1;
}

bool tg_captures_has(const tg_captures *captures, const char *name) { return captures_find(captures, name) >= 0; }

static const char *captures_known_name(const void *user, int64_t i) { return ((const tg_captures *)user)->item[i].name; }

const void *tg_captures_get_at(tg_site site, const tg_captures *captures, const char *name, tg_shape *shape, tg_dtype *dtype) {
    if (captures == NULL) return NULL;
    tg_model_begin(captures->ctx, site);
    int i = captures_find(captures, name);
    if (i < 0) {
        char names[TG_NAMES_TEXT];
        tg_fail(captures->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "captures: there is no %.200s (captures: %s)",
                name != NULL ? name : "(NULL)", tg_names_text(names, sizeof names, captures_known_name, captures, captures->count));
        return NULL;
    }
    if (shape != NULL) *shape = captures->item[i].shape;
    if (dtype != NULL) *dtype = captures->item[i].dtype;
    return captures->item[i].data;
}

void tg_captures_destroy(tg_captures *captures) {
    if (captures != NULL) tg_release(captures->ctx, captures, captures->bytes);
}

#undef CAPTURES_ALIGN
