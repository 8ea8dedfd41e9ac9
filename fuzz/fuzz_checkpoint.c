/* fuzz_checkpoint: loads an edited training checkpoint into a model. The load is refused with a
 * message and changes nothing, or it succeeds; then the model saves, loads what it saved, and steps
 * on. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARAMETERS = 8, MOST_EDITS = 4, FILE_BYTES = 1 << 16 };

static char path[64];
static uint8_t original[FILE_BYTES];
static size_t original_size;
/* compiling takes longer than all else: one model serves all runs, reset before each */
static tg_context *ctx;
static tg_model *model;

static tg_tensor build(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(2, 3), .init = tg_init_uniform(1)), b = tg_param(g, "b", TG_SHAPE(2), .init = tg_init_zeros());
    tg_tensor seen = tg_state(g, "seen", TG_SCALAR, TG_I32, 0);
    tg_writeback(seen, tg_add(seen, 1));
    tg_tensor y = tg_add(tg_mean(tg_square(tg_dropout(w, 0.25)), TG_ALL), tg_mean(tg_square(b), TG_ALL));
    return y;
}

static tg_model *make_model(void) {
    const tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_cosine_decay(0.1, 0.01, 9), .accumulate = 2, .average = 0.5),
                                        .seed = 2,
                                        .device = TG_DEVICE_CPU,
                                        .threads = 1};
    tg_model *made = tg_compile(ctx, build, NULL, &options);
    if (made == NULL) fuzz_fail("compile: %s", tg_error_message(ctx));
    return made;
}

static void write_file(const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) fuzz_fail("cannot write %s", path);
}

static size_t read_file(uint8_t *data) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fuzz_fail("cannot read %s", path);
    const size_t size = fread(data, 1, FILE_BYTES, file);
    fclose(file);
    return size;
}

static void make_original(void) {
    fuzz_temporary(path, sizeof path, "checkpoint");
    ctx = fuzz_context();
    model = make_model();
    for (int i = 0; i < 3; i++)
        if (tg_step(model, NULL, 0, NULL) != TG_OK) fuzz_fail("step: %s", tg_error_message(ctx));
    if (tg_model_save(model, path) != TG_OK) fuzz_fail("save: %s", tg_error_message(ctx));
    original_size = read_file(original);
}

/* Digits and names of the header, bytes of the data, and the bytes between. */
static size_t edit(fuzz_reader *r, uint8_t *data, size_t size) {
    static const char *const texts[] = {"2147483647", "-1",      "\"step\"", "\"seed\"", "tg.step", "tg.m/w", "[2,3]",
                                        "[3,2]",      "\"I32\"", "\"F32\"",  "0",        "9",       "null",   "{}"};
    const size_t at = fuzz_bits(r, 2) % size;
    switch (fuzz_below(r, 4)) {
    case 0: data[at] = (uint8_t)fuzz_bits(r, 1); return size;
    case 1: {
        const char *text = texts[fuzz_below(r, (int)(sizeof texts / sizeof texts[0]))];
        for (size_t i = 0; text[i] && at + i < size; i++) data[at + i] = (uint8_t)text[i];
        return size;
    }
    case 2: { /* a number of the data: the end of the file holds the tensors */
        const size_t word = size - 4 * (1 + fuzz_bits(r, 1) % 40);
        const uint32_t bits = fuzz_bits(r, 4);
        if (word < size) memcpy(data + word, &bits, 4);
        return size;
    }
    default: return at > 0 ? at : size;
    }
}

static void values_of(float values[PARAMETERS], uint64_t *steps) {
    if (tg_param_download(model, "w", values, 6) != TG_OK || tg_param_download(model, "b", values + 6, 2) != TG_OK) fuzz_fail("download");
    *steps = (uint64_t)tg_model_step_count(model);
}

static void use(void) {
    static uint8_t first[FILE_BYTES], second[FILE_BYTES];
    if (tg_model_save(model, path) != TG_OK) fuzz_fail("a loaded model cannot be saved: %s", tg_error_message(ctx));
    const size_t first_size = read_file(first);
    if (tg_model_load(model, path) != TG_OK) fuzz_fail("a saved model cannot be loaded: %s", tg_error_message(ctx));
    if (tg_model_save(model, path) != TG_OK) fuzz_fail("save: %s", tg_error_message(ctx));
    const size_t second_size = read_file(second);
    if (first_size != second_size || memcmp(first, second, first_size) != 0) fuzz_fail("saved again, other bytes");
    fuzz_check_status(ctx, tg_step(model, NULL, 0, NULL), "step");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t edited[FILE_BYTES];
    if (original_size == 0) make_original();
    fuzz_reader r = {data, size};
    size_t edited_size = original_size;
    memcpy(edited, original, original_size);
    const int edits = fuzz_below(&r, MOST_EDITS + 1);
    for (int i = 0; i < edits; i++) edited_size = edit(&r, edited, edited_size);
    write_file(edited, edited_size);
    if (tg_model_reset(model) != TG_OK) fuzz_fail("reset: %s", tg_error_message(ctx));
    const int64_t blocks = ctx->live_blocks;
    float before[PARAMETERS], after[PARAMETERS];
    uint64_t steps_before = 0, steps_after = 0;
    values_of(before, &steps_before);
    const tg_status status = tg_model_load(model, path);
    fuzz_check_status(ctx, status, "load");
    if (status == TG_OK) {
        use();
    } else {
        values_of(after, &steps_after);
        if (memcmp(before, after, sizeof before) != 0 || steps_before != steps_after) fuzz_fail("a refused file changed the model");
    }
    tg_clear_error(ctx);
    if (ctx->live_blocks != blocks) fuzz_fail("%lld blocks are left", (long long)(ctx->live_blocks - blocks));
    (void)remove(path);
    return 0;
}
