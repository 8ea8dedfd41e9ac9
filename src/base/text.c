/* text: a growing string, and the spelling of numbers and shapes. A failed append is remembered, so
 * that callers check once. Appending n bytes costs O(n) on average. Must not know what is
 * printed. */
#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tg_text_init(tg_text_buffer *text, tg_context *ctx) {
    text->ctx = ctx;
    text->data = NULL;
    text->length = 0;
    text->capacity = 0;
    text->failed = false;
}

void tg_text_free(tg_text_buffer *text) {
    tg_release(text->ctx, text->data, text->capacity);
    tg_text_init(text, text->ctx);
}

void tg_text_clear(tg_text_buffer *text) {
    text->length = 0;
    text->failed = false;
    if (text->data) text->data[0] = '\0';
}

/* Makes room for `more` bytes and the final NUL. */
static bool text_reserve(tg_text_buffer *text, size_t more) {
    if (text->failed) return false;
    if (more > (size_t)PTRDIFF_MAX / 2 || text->length > (size_t)PTRDIFF_MAX / 2) {
        (void)tg_fail_memory(text->ctx, more);
        text->failed = true;
        return false;
    }
    const size_t need = text->length + more + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity < 256 ? 256 : text->capacity;
    while (capacity < need) capacity *= 2;
    char *data = tg_alloc(text->ctx, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    if (text->length) memcpy(data, text->data, text->length);
    tg_release(text->ctx, text->data, text->capacity);
    text->data = data;
    text->capacity = capacity;
    return true;
}

void tg_text_bytes(tg_text_buffer *text, const void *data, size_t bytes) {
    if (!text_reserve(text, bytes)) return;
    if (bytes) memcpy(text->data + text->length, data, bytes);
    text->length += bytes;
    text->data[text->length] = '\0';
}

void tg_text_add(tg_text_buffer *text, const char *format, ...) {
    if (text->failed) return;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        (void)TG_INTERNAL(text->ctx, "a text could not be formatted");
        text->failed = true;
    } else if (text_reserve(text, (size_t)length)) {
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

/* Whether `digits` reads back as value: as a float if value is one, else as a double. */
static bool text_reads_back(const char *digits, double value) {
    const bool is_float = (double)(float)value == value;
    return is_float ? strtof(digits, NULL) == (float)value : strtod(digits, NULL) == value;
}

void tg_text_number(tg_text_buffer *text, double value) {
    if (isnan(value)) {
        tg_text_add(text, "nan");
        return;
    }
    if (isinf(value)) {
        tg_text_add(text, value < 0 ? "-inf" : "inf");
        return;
    }
    char digits[64];
    for (int precision = 1; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (text_reads_back(digits, value)) break;
    }
    /* the decimal point depends on the locale: any run of other characters is the point */
    size_t kept = 0;
    for (size_t i = 0; digits[i]; i++) {
        const bool plain = strchr("0123456789+-e", digits[i]) != NULL;
        if (plain) digits[kept++] = digits[i];
        else if (kept == 0 || digits[kept - 1] != '.') digits[kept++] = '.';
    }
    tg_text_bytes(text, digits, kept);
}

const char *tg_shape_text(tg_shape shape, char *buffer, size_t size) {
    if (size == 0) return buffer;
    if (shape.rank < 0) {
        (void)snprintf(buffer, size, "[rank %d]", (int)shape.rank);
        return buffer;
    }
    char whole[TG_MAX_RANK * 22 + 16];
    size_t at = 0;
    whole[at++] = '[';
    for (int32_t i = 0; i < shape.rank && i < TG_MAX_RANK; i++) {
        const char *comma = i ? ", " : "";
        at += (size_t)(shape.dim[i] == TG_ANY ? snprintf(whole + at, sizeof whole - at, "%s?", comma)
                                              : snprintf(whole + at, sizeof whole - at, "%s%lld", comma, (long long)shape.dim[i]));
    }
    (void)snprintf(whole + at, sizeof whole - at, "%s]", shape.rank > TG_MAX_RANK ? ", ..." : "");
    (void)snprintf(buffer, size, "%s", whole);
    return buffer;
}
