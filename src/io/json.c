/* json: a pull parser for the JSON of file headers (RFC 8259). No read goes past `end`, recursion
 * is bounded, and strings are checked to be UTF-8. Must not know what the values mean. */
#include "io/json.h"

#include <string.h>

#define JSON_DEPTH 32

/* Bytes of the UTF-8 sequence at `s`; 0 when it is not well formed (Unicode 15, table 3-7). */
static size_t json_utf8_sequence(const uint8_t *s, size_t left) {
    if (s[0] < 0x80) return 1;
    size_t need = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : 0;
    if (need == 0 || left < need) return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    /* overlong; surrogates */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    /* overlong; over U+10FFFF */
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return need;
}

bool tg_utf8_valid(const char *text, size_t bytes) {
    const uint8_t *s = (const uint8_t *)text;
    size_t i = 0;
    while (i < bytes) {
        size_t n = json_utf8_sequence(s + i, bytes - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

void tg_json_init(tg_json *json, const void *bytes, size_t size) {
    json->start = bytes;
    json->at = json->start;
    json->end = json->start + size;
    json->error = NULL;
}

bool tg_json_fail(tg_json *json, const char *error) {
    if (json->error == NULL) json->error = error;
    return false;
}

static void json_space(tg_json *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r')) json->at++;
}

bool tg_json_accept(tg_json *json, char c) {
    if (json->error != NULL) return false;
    json_space(json);
    if (json->at >= json->end || *json->at != (uint8_t)c) return false;
    json->at++;
    return true;
}

bool tg_json_expect(tg_json *json, char c) {
    if (tg_json_accept(json, c)) return true;
    switch (c) {
    case '{': return tg_json_fail(json, "'{' expected");
    case '}': return tg_json_fail(json, "',' or '}' expected");
    case '[': return tg_json_fail(json, "'[' expected");
    case ']': return tg_json_fail(json, "',' or ']' expected");
    case ':': return tg_json_fail(json, "':' expected");
    case ',': return tg_json_fail(json, "',' expected");
    default: return tg_json_fail(json, "a string expected");
    }
}

bool tg_json_at_end(tg_json *json) {
    json_space(json);
    return json->error == NULL && json->at == json->end;
}

/* Reads to the closing quote and past it. *length counts the raw bytes between the quotes. */
static bool json_string_span(tg_json *json, const uint8_t **first, size_t *length) {
    if (!tg_json_expect(json, '"')) return false;
    *first = json->at;
    while (json->at < json->end && *json->at != '"') {
        if (*json->at < 0x20) return tg_json_fail(json, "control character in a string");
        if (*json->at == '\\') json->at++;
        if (json->at < json->end) json->at++;
    }
    if (json->at >= json->end) return tg_json_fail(json, "a string without an end");
    *length = (size_t)(json->at - *first);
    json->at++;
    return true;
}

static int json_hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Reads four hexadecimal digits at `at`; false when there are fewer. */
static bool json_hex(const uint8_t *at, const uint8_t *end, uint32_t *out) {
    if (end - at < 4) return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = json_hex_digit(at[i]);
        if (digit < 0) return false;
        value = value * 16 + (uint32_t)digit;
    }
    *out = value;
    return true;
}

static size_t json_put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | (c >> 6));
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | (c >> 12));
        out[1] = (char)(0x80 | ((c >> 6) & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | (c >> 18));
    out[1] = (char)(0x80 | ((c >> 12) & 63));
    out[2] = (char)(0x80 | ((c >> 6) & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Reads XXXX of \uXXXX at `at`, and joins a surrogate pair. Returns the bytes read; 0:
 * malformed. */
static size_t json_unicode(const uint8_t *at, const uint8_t *end, uint32_t *out) {
    uint32_t high = 0, low = 0;
    if (!json_hex(at, end, &high)) return 0;
    if (high < 0xD800 || high > 0xDFFF) {
        *out = high;
        return 4;
    }
    if (high > 0xDBFF || end - at < 10 || at[4] != '\\' || at[5] != 'u' || !json_hex(at + 6, end, &low)) return 0;
    if (low < 0xDC00 || low > 0xDFFF) return 0;
    *out = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 10;
}

static char json_simple_escape(uint8_t c) {
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
    }
}

/* Turns raw bytes into text, which is never longer than the raw form. Returns the length; SIZE_MAX:
 * malformed. */
static size_t json_unescape(const uint8_t *at, size_t length, char *out) {
    const uint8_t *end = at + length;
    size_t n = 0;
    while (at < end) {
        if (*at != '\\') {
            out[n++] = (char)*at++;
            continue;
        }
        at++;
        if (at >= end) return SIZE_MAX;
        if (*at == 'u') {
            uint32_t c = 0;
            size_t used = json_unicode(at + 1, end, &c);
            if (used == 0 || c == 0) return SIZE_MAX;
            n += json_put_utf8(out + n, c);
            at += 1 + used;
        } else {
            char c = json_simple_escape(*at++);
            if (c == 0) return SIZE_MAX;
            out[n++] = c;
        }
    }
    return n;
}

char *tg_json_string(tg_json *json, tg_arena *arena) {
    const uint8_t *first = NULL;
    size_t length = 0;
    if (!json_string_span(json, &first, &length)) return NULL;
    char *text = tg_arena_alloc(arena, length + 1);
    if (text == NULL) return NULL;
    size_t n = json_unescape(first, length, text);
    if (n == SIZE_MAX) {
        tg_json_fail(json, "a malformed escape in a string");
        return NULL;
    }
    text[n] = '\0';
    if (memchr(text, 0, n) == NULL && tg_utf8_valid(text, n)) return text;
    tg_json_fail(json, "a string that is not UTF-8");
    return NULL;
}

static bool json_is_digit(const tg_json *json) { return json->at < json->end && *json->at >= '0' && *json->at <= '9'; }

bool tg_json_whole(tg_json *json, int64_t *out) {
    if (json->error != NULL) return false;
    json_space(json);
    if (!json_is_digit(json)) return tg_json_fail(json, "a whole number expected");
    bool zero = *json->at == '0';
    int64_t value = 0;
    int digits = 0;
    while (json_is_digit(json)) {
        int digit = *json->at++ - '0';
        if (++digits > 1 && zero) return tg_json_fail(json, "a number with a leading zero");
        if (value > (INT64_MAX - digit) / 10) return tg_json_fail(json, "a number over 2^63 - 1");
        value = value * 10 + digit;
    }
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        return tg_json_fail(json, "a whole number expected");
    *out = value;
    return true;
}

/* Skips a number, true, false or null: everything up to a delimiter, checked loosely. The value is
 * not used. */
static bool json_skip_scalar(tg_json *json) {
    const uint8_t *first = json->at;
    while (json->at < json->end && memchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *json->at, 40) != NULL) json->at++;
    return json->at > first ? true : tg_json_fail(json, "a value expected");
}

static bool json_skip_depth(tg_json *json, int depth);

static bool json_skip_members(tg_json *json, char close, int depth) {
    if (tg_json_accept(json, close)) return true;
    do {
        const uint8_t *first = NULL;
        size_t length = 0;
        if (close == '}' && !(json_string_span(json, &first, &length) && tg_json_expect(json, ':'))) return false;
        if (!json_skip_depth(json, depth + 1)) return false;
    } while (tg_json_accept(json, ','));
    return tg_json_expect(json, close);
}

static bool json_skip_depth(tg_json *json, int depth) {
    if (depth > JSON_DEPTH) return tg_json_fail(json, "values nested too deep");
    const uint8_t *first = NULL;
    size_t length = 0;
    if (tg_json_accept(json, '{')) return json_skip_members(json, '}', depth);
    if (tg_json_accept(json, '[')) return json_skip_members(json, ']', depth);
    if (json->error != NULL) return false;
    if (json->at < json->end && *json->at == '"') return json_string_span(json, &first, &length);
    return json_skip_scalar(json);
}

bool tg_json_skip(tg_json *json) { return json_skip_depth(json, 0); }

#undef JSON_DEPTH
