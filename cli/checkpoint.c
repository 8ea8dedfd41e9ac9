/* checkpoint: shows what a safetensors file holds. Trusts nothing in it; src/io does the
 * reading. */
#include "cli.h"

#include "io/safetensors.h"
#include "optim/optim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int open_checkpoint(const char *path, tg_context **ctx, tg_safetensors **file) {
    *file = NULL;
    *ctx = cli_context();
    if (!*ctx) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    if (tg_safetensors_open(*ctx, path, file) == TG_OK) return CLI_DONE;
    cli_say("%s", tg_error_message(*ctx));
    tg_context_destroy(*ctx);
    *ctx = NULL;
    return CLI_USAGE;
}

static void close_checkpoint(tg_context *ctx, tg_safetensors *file) {
    tg_safetensors_destroy(file);
    tg_context_destroy(ctx);
}

int cli_checkpoint_number(const char *path, const char *key, uint64_t *number) {
    tg_context *ctx;
    tg_safetensors *file;
    int code = open_checkpoint(path, &ctx, &file);
    if (code != CLI_DONE) return code;
    const char *text = tg_safetensors_metadata(file, key);
    if (text && text[0] >= '0' && text[0] <= '9') {
        char *end = NULL;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        if (errno == 0 && !*end) *number = value;
    }
    close_checkpoint(ctx, file);
    return CLI_DONE;
}

int cli_checkpoint_schedule(const char *path, tg_lr *schedule, int64_t *start) {
    tg_context *ctx;
    tg_safetensors *file;
    float numbers[TG_LR_STATE];
    int code = open_checkpoint(path, &ctx, &file);
    if (code != CLI_DONE) return code;
    const tg_file_tensor *tensor = tg_safetensors_find(file, "tg.lr");
    if (tensor && tensor->bytes == sizeof numbers) {
        memcpy(numbers, tensor->data, sizeof numbers);
        (void)tg_lr_decode(numbers, schedule, start);
    }
    close_checkpoint(ctx, file);
    return CLI_DONE;
}

static void print_text(const tg_safetensors *file) {
    char shape[TG_SHAPE_TEXT];
    uint64_t bytes = 0;
    for (int64_t i = 0; i < file->metadata.count; i++) {
        /* escaped, so that a file cannot steer the terminal */
        cli_json_text(stdout, file->metadata.items[i].key);
        printf(": ");
        cli_json_text(stdout, file->metadata.items[i].value);
        printf("\n");
    }
    for (int64_t i = 0; i < file->tensors.count; i++) {
        const tg_file_tensor *tensor = &file->tensors.items[i];
        printf("%-6s %-16s ", tensor->dtype, tg_shape_text(tensor->shape, shape, sizeof shape));
        cli_json_text(stdout, tensor->name);
        printf("\n");
        bytes += tensor->bytes;
    }
    printf("%lld tensors, %llu bytes\n", (long long)file->tensors.count, (unsigned long long)bytes);
}

static void print_json(const char *path, const tg_safetensors *file) {
    uint64_t bytes = 0;
    printf("{\"file\": ");
    cli_json_text(stdout, path);
    printf(", \"metadata\": {");
    for (int64_t i = 0; i < file->metadata.count; i++) {
        printf("%s", i ? ", " : "");
        cli_json_text(stdout, file->metadata.items[i].key);
        printf(": ");
        cli_json_text(stdout, file->metadata.items[i].value);
    }
    printf("}, \"tensors\": [");
    for (int64_t i = 0; i < file->tensors.count; i++) {
        const tg_file_tensor *tensor = &file->tensors.items[i];
        printf("%s{\"name\": ", i ? ", " : "");
        cli_json_text(stdout, tensor->name);
        printf(", \"dtype\": ");
        cli_json_text(stdout, tensor->dtype);
        printf(", \"shape\": [");
        for (int axis = 0; axis < tensor->shape.rank; axis++) printf("%s%lld", axis ? ", " : "", (long long)tensor->shape.dim[axis]);
        printf("], \"bytes\": %zu}", tensor->bytes);
        bytes += tensor->bytes;
    }
    printf("], \"bytes\": %llu}\n", (unsigned long long)bytes);
}

int cli_checkpoint_inspect(const char *path, bool json) {
    tg_context *ctx;
    tg_safetensors *file;
    int code = open_checkpoint(path, &ctx, &file);
    if (code != CLI_DONE) return code;
    if (json) print_json(path, file);
    else print_text(file);
    close_checkpoint(ctx, file);
    return CLI_DONE;
}
