/* fuzz_graph_read: arbitrary bytes into tg_graph_read. Whatever is accepted must verify, print, and
 * survive a second trip through bytes unchanged; whatever is refused must leave no memory behind.
 * Build: clang -fsanitize=fuzzer,address,undefined -Iinclude -Isrc fuzz/fuzz_graph_read.c
 * src/base/x.c src/ir/x.c -lm -lpthread with every source file of those two folders. */
#include "ir/graph.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_fail(const char *why) {
    (void)why;
    __builtin_trap();
}

static void fuzz_round_trip(tg_context *ctx, const tg_graph *graph) {
    tg_text_buffer first, second, text;
    tg_text_init(&first, ctx);
    tg_text_init(&second, ctx);
    tg_text_init(&text, ctx);
    if (tg_graph_verify(graph) != TG_OK) fuzz_fail("an accepted graph breaks a rule");
    tg_graph_print(graph, &text);
    tg_graph_print_dot(graph, &text);
    if (tg_graph_write(graph, &first) != TG_OK) fuzz_fail("an accepted graph cannot be written");
    tg_graph *again = tg_graph_read(ctx, first.data, first.length);
    if (!again || tg_graph_write(again, &second) != TG_OK) fuzz_fail("written bytes are refused");
    if (first.length != second.length || memcmp(first.data, second.data, first.length) != 0) fuzz_fail("a second trip differs");
    tg_graph_destroy(again);
    tg_text_free(&first);
    tg_text_free(&second);
    tg_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tg_context *ctx = tg_context_create(NULL);
    if (!ctx) return 0;
    tg_graph *graph = tg_graph_read(ctx, data, size);
    if (graph) fuzz_round_trip(ctx, graph);
    else if (tg_error(ctx) != TG_ERROR_FORMAT) fuzz_fail("refused with another status");
    tg_graph_destroy(graph);
    if (ctx->live_blocks != 0 || ctx->live_bytes != 0) fuzz_fail("memory is left");
    tg_context_destroy(ctx);
    return 0;
}
