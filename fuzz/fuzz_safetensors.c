/* fuzz_safetensors: arbitrary bytes into the safetensors reader. Whatever is accepted must be
 * consistent: every tensor inside the file, found by its name, names ascending; whatever is refused
 * must leave an error and no memory behind. Build: clang -fsanitize=fuzzer,address,undefined
 * -Iinclude -Isrc fuzz/fuzz_safetensors.c src/base/x.c src/ir/x.c src/io/x.c -lm -lpthread with
 * every source file of those three folders. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_check(const tg_safetensors *file, const uint8_t *data, size_t size) {
    size_t total = 0;
    for (int64_t i = 0; i < file->tensors.count; i++) {
        const tg_file_tensor *tensor = &file->tensors.items[i];
        const uint8_t *at = tensor->data;
        if (at < data || at > data + size || tensor->bytes > (size_t)(data + size - at)) abort();
        if (tg_safetensors_find(file, tensor->name) != tensor) abort();
        if (i > 0 && strcmp(file->tensors.items[i - 1].name, tensor->name) >= 0) abort();
        total += tensor->bytes;
    }
    if (total > size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 0;
    tg_safetensors *file = NULL;
    tg_status status = tg_safetensors_read(ctx, "input", data, size, &file);
    if ((status == TG_OK) != (file != NULL) || tg_error(ctx) != status) abort();
    if (file != NULL) fuzz_check(file, data, size);
    tg_safetensors_destroy(file);
    if (ctx->live_bytes != 0 || ctx->live_blocks != 0) abort();
    tg_context_destroy(ctx);
    return 0;
}
