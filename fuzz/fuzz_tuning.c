/* fuzz_tuning: arbitrary bytes as the file of schedules. Loading gives a table or an empty one,
 * never an error. Storing leaves a foreign file as it was; else it keeps the entries of other
 * adapters, and the file can be loaded again. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "fuzz.h"

#include "run/tuning_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void write_file(const uint8_t *data, size_t size, bool headed) {
    if (path[0] == '\0') {
        fuzz_temporary(path, sizeof path, "tuning");
        if (setenv("TENSORGRAD_TUNING", path, 1) != 0) fuzz_fail("no environment");
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL) fuzz_fail("cannot write %s", path);
    if (headed) fputs("tensorgrad tuning 1\n", file);
    fwrite(data, 1, size, file);
    fclose(file);
}

static int load(tg_context *ctx, const char *adapter) {
    tg_tuning tuning;
    memset(&tuning, 0, sizeof tuning);
    const tg_status status = tg_tuning_load(ctx, adapter, &tuning);
    if (status != TG_OK) fuzz_fail("load: status %d", (int)status);
    const int count = (int)tuning.table.count;
    tg_tuning_free(&tuning);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    write_file(data + 1, size - 1, (data[0] & 1) != 0);
    tg_context *ctx = fuzz_context();
    const int others = load(ctx, "b");
    (void)load(ctx, "a");
    tg_schedule_entry entry;
    memset(&entry, 0, sizeof entry);
    entry.key = "reduce 1";
    const tg_status status = tg_tuning_store(ctx, "a", &entry, 1);
    fuzz_check_status(ctx, status, "store");
    if (status != TG_OK && status != TG_ERROR_FORMAT) fuzz_fail("store: status %d: %s", (int)status, tg_error_message(ctx));
    tg_clear_error(ctx);
    if (load(ctx, "b") != others) fuzz_fail("storing for one adapter changed another's table");
    fuzz_context_done(ctx);
    (void)remove(path);
    return 0;
}
