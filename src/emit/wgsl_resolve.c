/* wgsl_resolve: the text of an access to memory that a resolver described. Must not know where
 * memory lies. */
#include "emit/wgsl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

tg_wgsl_memory tg_wgsl_argument(tg_wgsl *w, int32_t argument) { return w->resolver->argument(w, argument, false); }
tg_wgsl_memory tg_wgsl_argument_vectors(tg_wgsl *w, int32_t argument) { return w->resolver->argument(w, argument, true); }

/* ---------------------------------------------------------------- accesses */

static void wgsl_resolve_open_index(tg_text_buffer *text, const tg_wgsl_memory *m) {
    if (m->step != 0) tg_text_add(text, "%lld + turn * %lld + (", (long long)m->first, (long long)m->step);
    else if (m->first != 0) tg_text_add(text, "%lld + (", (long long)m->first);
}
static void wgsl_resolve_close_index(tg_text_buffer *text, const tg_wgsl_memory *m) {
    if (m->first != 0 || m->step != 0) tg_text_add(text, ")");
}

void tg_wgsl_open_read(tg_text_buffer *text, const tg_wgsl_memory *m) {
    if (m->cast != NULL) tg_text_add(text, "bitcast<%s>(", m->cast);
    tg_text_add(text, m->by_call ? "at_%s(" : "%s[", m->name);
    wgsl_resolve_open_index(text, m);
}

void tg_wgsl_close_read(tg_text_buffer *text, const tg_wgsl_memory *m) {
    wgsl_resolve_close_index(text, m);
    tg_text_add(text, m->by_call ? ")" : "]");
    if (m->cast != NULL) tg_text_add(text, ")");
}

void tg_wgsl_open_write(tg_text_buffer *text, const tg_wgsl_memory *m) {
    tg_text_add(text, "%s[", m->name);
    wgsl_resolve_open_index(text, m);
}

void tg_wgsl_write_value(tg_text_buffer *text, const tg_wgsl_memory *m) {
    wgsl_resolve_close_index(text, m);
    tg_text_add(text, m->cast != NULL ? "] = bitcast<u32>(" : "] = ");
}

void tg_wgsl_close_write(tg_text_buffer *text, const tg_wgsl_memory *m) { tg_text_add(text, m->cast != NULL ? ");" : ";"); }

void tg_wgsl_write(tg_wgsl *w, const tg_wgsl_memory *m, const char *at, const char *value) {
    tg_wgsl_start(w);
    tg_wgsl_open_write(&w->main, m);
    tg_text_add(&w->main, "%s", at);
    tg_wgsl_write_value(&w->main, m);
    tg_text_add(&w->main, "%s", value);
    tg_wgsl_close_write(&w->main, m);
    tg_wgsl_newline(w);
}

/* ---------------------------------------------------------------- scratch */

/* An index of the scratch: short sums of numbers and names. */
static void wgsl_resolve_index(tg_wgsl *w, char text[256], const char *format, va_list arguments) {
    const int length = vsnprintf(text, 256, format, arguments);
    if (length < 0 || length >= 256) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "an index too long for its line");
}

const char *tg_wgsl_read_scratch(tg_wgsl *w, const char *type, const char *index, ...) {
    const tg_wgsl_memory memory = w->resolver->scratch(w, type);
    char at[256];
    va_list arguments;
    va_start(arguments, index);
    wgsl_resolve_index(w, at, index, arguments);
    va_end(arguments);
    tg_text_buffer text;
    tg_text_init(&text, w->arena->ctx);
    tg_wgsl_open_read(&text, &memory);
    tg_text_add(&text, "%s", at);
    tg_wgsl_close_read(&text, &memory);
    const char *copy = text.failed ? NULL : tg_arena_text(w->arena, text.data);
    tg_text_free(&text);
    if (copy == NULL) w->status = TG_ERROR_MEMORY;
    return copy != NULL ? copy : "";
}

void tg_wgsl_write_scratch(tg_wgsl *w, const char *type, const char *value, const char *index, ...) {
    const tg_wgsl_memory memory = w->resolver->scratch(w, type);
    char at[256];
    va_list arguments;
    va_start(arguments, index);
    wgsl_resolve_index(w, at, index, arguments);
    va_end(arguments);
    tg_wgsl_write(w, &memory, at, value);
}

/* ---------------------------------------------------------------- workgroup memory */

const char *tg_wgsl_declare_array(tg_wgsl *w, const char *name, tg_wgsl_array array) {
    /* cppcheck-suppress returnDanglingLifetime */ /* a resolver returns a name, never the array */
    return w->resolver->array(w, name, &array);
}

int64_t tg_wgsl_array_bytes(const tg_wgsl_array *a) {
    const int64_t scalars = (a->vectors ? 4 : 1) * (a->inner > 0 ? a->inner : 1) * a->count;
    return scalars * (strcmp(a->scalar, "f16") == 0 ? 2 : 4);
}

void tg_wgsl_element_type(const tg_wgsl_array *a, char *text, size_t size) {
    const char *open = a->vectors ? "vec4<" : "", *close = a->vectors ? ">" : "";
    if (a->inner > 0) snprintf(text, size, "array<%s%s%s, %lld>", open, a->scalar, close, (long long)a->inner);
    else snprintf(text, size, "%s%s%s", open, a->scalar, close);
}
