/* fuzz_json: arbitrary bytes through all calls of the pull parser. It reads no byte after the end,
 * strings that it gives are UTF-8 without a zero, it always advances or reports a fault, and it
 * reads text printed by the library's own rules without change. */
#include "fuzz.h"

#include "io/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(tg_json *json, tg_arena *arena) {
    while (json->error == NULL && json->at < json->end) {
        const uint8_t *before = json->at;
        int64_t whole = -1;
        tg_json peek = *json; /* a copy: what cannot be read in one way is tried in the next */
        char *text = tg_json_string(&peek, arena);
        if (text != NULL && !tg_utf8_valid(text, strlen(text))) fuzz_fail("a string that is not UTF-8");
        if (text == NULL && peek.error == NULL) fuzz_fail("no string and no fault");
        if (text != NULL) {
            *json = peek;
            continue;
        }
        peek = *json;
        if (tg_json_whole(&peek, &whole)) {
            if (whole < 0) fuzz_fail("a whole number under 0");
            *json = peek;
            continue;
        }
        peek = *json;
        if (tg_json_skip(&peek)) { /* and its contents, if it is a list or an object */
            if (peek.at <= before) fuzz_fail("skipped nothing");
        }
        if (!tg_json_accept(json, '{') && !tg_json_accept(json, '[') && !tg_json_accept(json, ',') && !tg_json_accept(json, ':') &&
            !tg_json_accept(json, '}') && !tg_json_accept(json, ']'))
            (void)tg_json_skip(json);
        if (json->at < before || json->at > json->end) fuzz_fail("the parser left its bytes");
        if (json->at == before && json->error == NULL) fuzz_fail("the parser stands still");
    }
    (void)tg_json_at_end(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tg_context *ctx = fuzz_context();
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    uint8_t *copy = malloc(size + 1); /* a separate block, so that a read after its end is seen */
    uint8_t *exact = size > 0 ? realloc(copy, size) : copy;
    memcpy(exact, data, size);
    tg_json json;
    tg_json_init(&json, exact, size);
    walk(&json, &arena);
    free(exact);
    tg_arena_free(&arena);
    fuzz_context_done(ctx);
    return 0;
}
