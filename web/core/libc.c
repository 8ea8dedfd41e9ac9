/* libc: the parts of the C library that the core calls and that would need a host's files or much
 * code: formatting, functions of numbers and numbers as text (which JavaScript has), text, memory.
 * It knows only the formats that src/ uses: %s %c %d %u %x %g %f with width, precision, 0, l, ll,
 * z, and * for width or precision. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Writes Number(value).toPrecision(precision) without trailing zeros to out, at most 32 bytes;
 * returns the length. */
#define LIBC_IMPORT(type, name) __attribute__((import_module("tg"), import_name(#name))) type web_js_##name
LIBC_IMPORT(int32_t, format_number)(double value, int32_t precision, char *out);
LIBC_IMPORT(double, parse_number)(const char *text);
/* JavaScript's Math, used only to compile a graph, never while it runs: results of a run are the
 * same on every platform. */
LIBC_IMPORT(double, exp)(double x);
LIBC_IMPORT(double, log)(double x);
LIBC_IMPORT(double, log1p)(double x);
LIBC_IMPORT(double, expm1)(double x);
LIBC_IMPORT(double, sin)(double x);
LIBC_IMPORT(double, cos)(double x);
LIBC_IMPORT(double, tanh)(double x);
LIBC_IMPORT(double, pow)(double x, double y);

/* ---------------------------------------------------------------- formatting */

typedef struct web_sink {
    char *out;
    size_t room, length; /* length: of the whole text, also if there was no room for it */
} web_sink;

static void sink_put(web_sink *s, const char *text, size_t count) {
    for (size_t i = 0; i < count; i++, s->length++)
        if (s->length + 1 < s->room) s->out[s->length] = text[i];
}
static void sink_fill(web_sink *s, char c, int count) {
    for (; count > 0; count--) sink_put(s, &c, 1);
}

static size_t digits_of(uint64_t value, unsigned base, char *end) {
    size_t count = 0;
    do {
        *--end = "0123456789abcdef"[value % base];
        value /= base;
        count++;
    } while (value != 0);
    return count;
}

typedef struct web_spec {
    int width, precision; /* precision -1: none */
    bool zero, is_long;
} web_spec;

static const char *spec_number(const char *at, int *out, va_list *arguments) {
    if (*at == '*') {
        *out = va_arg(*arguments, int);
        return at + 1;
    }
    for (*out = 0; *at >= '0' && *at <= '9'; at++) *out = *out * 10 + (*at - '0');
    return at;
}

static const char *spec_read(const char *at, web_spec *spec, va_list *arguments) {
    *spec = (web_spec){0, -1, false, false};
    while (*at == '0') spec->zero = true, at++;
    at = spec_number(at, &spec->width, arguments);
    if (*at == '.') at = spec_number(at + 1, &spec->precision, arguments);
    for (; *at == 'l' || *at == 'z'; at++) spec->is_long = at[0] == 'l' && at[1] == 'l' ? true : spec->is_long;
    return at;
}

static void put_padded(web_sink *s, const web_spec *spec, const char *text, size_t count, char with) {
    sink_fill(s, with, spec->width - (int)count);
    sink_put(s, text, count);
}

static void put_text(web_sink *s, const web_spec *spec, const char *text) {
    if (text == NULL) text = "(null)";
    size_t count = spec->precision >= 0 ? (size_t)spec->precision : SIZE_MAX;
    const char *end = memchr(text, 0, count); /* SIZE_MAX: to the end, which exists */
    if (end != NULL) count = (size_t)(end - text);
    put_padded(s, spec, text, count, ' ');
}

static void put_whole(web_sink *s, const web_spec *spec, char kind, va_list *arguments) {
    char text[24], *end = text + sizeof text;
    uint64_t value = spec->is_long ? va_arg(*arguments, uint64_t) : va_arg(*arguments, uint32_t);
    bool negative = kind == 'd' && (spec->is_long ? (int64_t)value < 0 : (int32_t)value < 0);
    if (negative) value = spec->is_long ? 0 - value : (uint32_t)(0 - (uint32_t)value);
    size_t count = digits_of(value, kind == 'x' ? 16 : 10, end);
    if (negative) *(end - ++count) = '-';
    put_padded(s, spec, end - count, count, spec->zero ? '0' : ' ');
}

static void put_one(web_sink *s, const web_spec *spec, char kind, va_list *arguments) {
    char text[40];
    switch (kind) {
    case 's': put_text(s, spec, va_arg(*arguments, const char *)); break;
    case 'c':
        text[0] = (char)va_arg(*arguments, int);
        put_padded(s, spec, text, 1, ' ');
        break;
    case 'd':
    case 'u':
    case 'x': put_whole(s, spec, kind, arguments); break;
    case 'f':
    case 'g': {
        int32_t precision = kind == 'f' ? 17 : spec->precision < 0 ? 6 : spec->precision;
        put_padded(s, spec, text, (size_t)web_js_format_number(va_arg(*arguments, double), precision, text), ' ');
        break;
    }
    default: sink_put(s, &kind, 1);
    }
}

int vsnprintf(char *restrict out, size_t room, const char *restrict format, va_list given) {
    web_sink s = {out, room, 0};
    web_spec spec;
    va_list arguments;
    va_copy(arguments, given);
    for (const char *at = format; *at != '\0'; at++) {
        if (*at != '%') {
            sink_put(&s, at, 1);
            continue;
        }
        at = spec_read(at + 1, &spec, &arguments);
        put_one(&s, &spec, *at, &arguments);
    }
    va_end(arguments);
    if (room > 0) out[s.length < room ? s.length : room - 1] = '\0';
    return (int)s.length;
}

int snprintf(char *restrict out, size_t room, const char *restrict format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(out, room, format, arguments);
    va_end(arguments);
    return length;
}

/* ---------------------------------------------------------------- numbers */

float strtof(const char *restrict text, char **restrict end) {
    (void)end;
    return (float)web_js_parse_number(text);
}
double strtod(const char *restrict text, char **restrict end) {
    (void)end;
    return web_js_parse_number(text);
}
/* Used for environment variables, which a page does not have. */
long strtol(const char *restrict text, char **restrict end, int base) {
    (void)base;
    if (end != NULL) *end = (char *)(uintptr_t)text;
    return 0;
}
char *getenv(const char *name) {
    (void)name;
    return NULL;
}

double exp(double x) { return web_js_exp(x); }
double log(double x) { return web_js_log(x); }
double log1p(double x) { return web_js_log1p(x); }
double expm1(double x) { return web_js_expm1(x); }
double sin(double x) { return web_js_sin(x); }
double cos(double x) { return web_js_cos(x); }
double tanh(double x) { return web_js_tanh(x); }
/* In C, 1 to any power (also NaN) is 1, and so is -1 to an infinite power; in JavaScript they are
 * NaN. */
double pow(double x, double y) { return x == 1.0 || (x == -1.0 && isinf(y)) ? 1.0 : web_js_pow(x, y); }
/* 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 ...): all terms have one sign. From 6 on erf is
 * 1. */
double erf(double x) {
    if (fabs(x) >= 6.0) return x > 0.0 ? 1.0 : -1.0;
    double term = x, sum = x;
    for (double n = 3.0; fabs(term) > 1e-17 * fabs(sum); n += 2.0) sum += term *= 2.0 * x * x / n; /* not a NaN's */
    return 1.1283791670955126 * exp(-x * x) * sum;
}

/* ---------------------------------------------------------------- text: short, rather than fast */

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length] != '\0') length++;
    return length;
}
int strncmp(const char *a, const char *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i] || a[i] == '\0') return (unsigned char)a[i] - (unsigned char)b[i];
    return 0;
}
int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }
int memcmp(const void *a, const void *b, size_t count) {
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < count; i++)
        if (x[i] != y[i]) return x[i] - y[i];
    return 0;
}
void *memchr(const void *block, int byte, size_t count) {
    const unsigned char *at = block;
    for (; count > 0; count--, at++)
        if (*at == (unsigned char)byte) return (void *)(uintptr_t)at;
    return NULL;
}
char *strchr(const char *text, int c) { return memchr(text, c, strlen(text) + 1); }
char *strstr(const char *text, const char *part) {
    const size_t length = strlen(part);
    for (; strncmp(text, part, length) != 0; text++)
        if (*text == '\0') return NULL;
    return (char *)(uintptr_t)text;
}

/* ---------------------------------------------------------------- memory
 *
 * Blocks are aligned to 64 bytes. Their sizes are 4, 5, 6 or 7 times a power of two, and a freed
 * block goes to the list of its size. The core allocates arenas and doubling arrays, so few sizes
 * are in use. */

enum { HEAP_ALIGN = 64, HEAP_PAGE = 65536, HEAP_CLASSES = 128 };
typedef struct heap_block {
    struct heap_block *next;
    uint32_t class_;
} heap_block; /* in the 64 bytes before a block */

extern unsigned char __heap_base;
static heap_block *heap_free[HEAP_CLASSES];
static uintptr_t heap_top;

static uint32_t heap_class(size_t bytes, size_t *size) {
    size_t units = (bytes + HEAP_ALIGN - 1) / HEAP_ALIGN;
    uint32_t shift = 0;
    if (units == 0) units = 1;
    for (; units > 7; shift++) units = (units + 1) / 2;
    *size = (units << shift) * HEAP_ALIGN;
    return shift * 4 + (uint32_t)units;
}

static heap_block *heap_grow(size_t bytes) {
    if (heap_top == 0) heap_top = ((uintptr_t)&__heap_base + HEAP_ALIGN - 1) & ~(uintptr_t)(HEAP_ALIGN - 1);
    uintptr_t end = (uintptr_t)__builtin_wasm_memory_size(0) * HEAP_PAGE;
    if (bytes > UINT32_MAX - HEAP_PAGE - heap_top) return NULL;
    if (heap_top + bytes > end) {
        size_t pages = (heap_top + bytes - end + HEAP_PAGE - 1) / HEAP_PAGE;
        if (__builtin_wasm_memory_grow(0, pages) == SIZE_MAX) return NULL;
    }
    heap_block *block = (heap_block *)heap_top;
    heap_top += bytes;
    return block;
}

void *aligned_alloc(size_t align, size_t bytes) {
    size_t size;
    (void)align; /* 64 at most */
    if (bytes > PTRDIFF_MAX) return NULL;
    uint32_t class_ = heap_class(bytes, &size);
    heap_block *block = heap_free[class_];
    if (block != NULL) heap_free[class_] = block->next;
    else block = heap_grow(size + HEAP_ALIGN);
    if (block == NULL) return NULL;
    block->class_ = class_;
    return (char *)block + HEAP_ALIGN;
}
void *malloc(size_t bytes) { return aligned_alloc(HEAP_ALIGN, bytes); }
void free(void *at) {
    if (at == NULL) return;
    heap_block *block = (heap_block *)(void *)((char *)at - HEAP_ALIGN);
    block->next = heap_free[block->class_];
    heap_free[block->class_] = block;
}

_Noreturn void abort(void) { __builtin_trap(); }
