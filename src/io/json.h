/* json: a pull parser for the JSON of file headers: objects, strings, whole numbers. Any other
 * value can be skipped. Works in place over bytes that may be hostile. Must not know what the
 * values mean. */
#ifndef TG_JSON_H
#define TG_JSON_H
#include "base/base.h"

typedef struct tg_json {
    const uint8_t *start, *at, *end;
    /* The first fault, static text; NULL while there is none. After a fault each call returns
     * false. */
    const char *error;
} tg_json;

void tg_json_init(tg_json *json, const void *bytes, size_t size);
bool tg_json_fail(tg_json *json, const char *error); /* records the first fault; returns false */
/* Skips white space. If the next byte is `c`, goes past it and returns true; else returns false.
 * tg_json_expect records a fault then. */
bool tg_json_accept(tg_json *json, char c);
bool tg_json_expect(tg_json *json, char c);
/* A string, unescaped, UTF-8, without U+0000, into the arena. NULL: a fault (json->error) or no
 * memory (recorded). */
char *tg_json_string(tg_json *json, tg_arena *arena);
bool tg_json_whole(tg_json *json, int64_t *out); /* 0 .. 2^63 - 1, no fraction, no exponent */
bool tg_json_skip(tg_json *json);                /* any value, nested at most 32 deep */
bool tg_json_at_end(tg_json *json);              /* only white space is left */
/* no overlong forms, no surrogates, at most U+10FFFF */
bool tg_utf8_valid(const char *text, size_t bytes);
#endif
