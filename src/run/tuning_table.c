/* tuning_table: reads and writes the tuning table. The file is anybody's: it is read as a whole,
 * with a limit, and believed only if every line is as this file would write it. Must not know what
 * a schedule means, nor devices. */
#include "run/tuning_table.h"

#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUNING_HEAD "tensorgrad tuning "
#define TUNING_VERSION "1\n"
#define TUNING_MOST_BYTES ((size_t)4 << 20)

/* ---------------------------------------------------------------- where */

static bool tuning_join(char path[TG_TUNING_PATH], const char *folder, const char *rest) {
    const int length = snprintf(path, TG_TUNING_PATH, "%s%s", folder, rest);
    return length > 0 && length < TG_TUNING_PATH;
}

bool tg_tuning_path(char path[TG_TUNING_PATH]) {
    const char *said = getenv("TENSORGRAD_TUNING");
    if (said != NULL && said[0] != '\0') return strcmp(said, "off") != 0 && tuning_join(path, said, "");
#if defined(_WIN32)
    const char *local = getenv("LOCALAPPDATA");
    return local != NULL && local[0] != '\0' && tuning_join(path, local, "\\tensorgrad\\tuning.txt");
#else
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    /* a relative one is to be ignored */
    if (cache != NULL && cache[0] == '/') return tuning_join(path, cache, "/tensorgrad/tuning.txt");
    return home != NULL && home[0] != '\0' && tuning_join(path, home, "/.cache/tensorgrad/tuning.txt");
#endif
}

/* ---------------------------------------------------------------- the file as lines */

typedef struct tuning_file {
    tg_context *ctx;
    void *bytes;
    size_t size, held;
    const char *at, *end; /* what is left; NULL: no file */
} tuning_file;

typedef struct tuning_line {
    const char *adapter, *key, *schedule; /* not terminated */
    size_t adapter_length, key_length, schedule_length;
    const char *begin, *next;
    tg_schedule parsed;
} tuning_line;

/* Up to `stop`, which must be there. */
static bool tuning_field(const char **at, const char *end, char stop, const char **field, size_t *length) {
    const char *found = memchr(*at, stop, (size_t)(end - *at));
    if (found == NULL || found == *at) return false;
    *field = *at;
    *length = (size_t)(found - *at);
    *at = found + 1;
    return memchr(*field, '\0', *length) == NULL;
}

/* The next line. False: it is not as it should be. */
static bool tuning_next(tuning_file *file, tuning_line *line) {
    line->begin = file->at;
    if (!tuning_field(&file->at, file->end, '\t', &line->adapter, &line->adapter_length) ||
        !tuning_field(&file->at, file->end, '\t', &line->key, &line->key_length) ||
        !tuning_field(&file->at, file->end, '\n', &line->schedule, &line->schedule_length))
        return false;
    line->next = file->at;
    return memchr(line->adapter, '\n', (size_t)(line->schedule - line->adapter)) == NULL &&
           tg_schedule_parse(line->schedule, line->schedule_length, &line->parsed);
}

static bool tuning_is(const char *text, size_t length, const char *wanted) {
    return strlen(wanted) == length && memcmp(text, wanted, length) == 0;
}

/* Reads it and checks every line. A file that is not there has no lines. TG_ERROR_FORMAT,
 * TG_ERROR_LIMIT, TG_ERROR_IO. */
static tg_status tuning_open(tg_context *ctx, const char *path, tuning_file *file) {
    const size_t head = strlen(TUNING_HEAD TUNING_VERSION);
    memset(file, 0, sizeof *file);
    file->ctx = ctx;
    if (!tg_file_is_there(path)) return TG_OK;
    tg_status status = tg_file_read_most(ctx, "tuning", path, TUNING_MOST_BYTES, &file->bytes, &file->size, &file->held);
    if (status != TG_OK) return status;
    file->at = file->bytes;
    file->end = file->at + file->size;
    if (file->size < head || memcmp(file->at, TUNING_HEAD TUNING_VERSION, head) != 0)
        return tg_fail(ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "tuning: %s is not a table of schedules, or of another version", path);
    const char *first = file->at += head;
    int64_t number = 2;
    for (tuning_line line; file->at < file->end; number++)
        if (!tuning_next(file, &line))
            return tg_fail(ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "tuning: %s: line %lld is not an adapter, a key and a schedule", path,
                           (long long)number);
    file->at = first;
    return TG_OK;
}

static void tuning_close(tuning_file *file) {
    if (file->bytes != NULL) tg_release(file->ctx, file->bytes, file->held);
    file->bytes = NULL;
}

/* ---------------------------------------------------------------- loading */

static tg_status tuning_collect(tuning_file *file, const char *adapter, tg_tuning *out) {
    const char *first = file->at;
    int32_t count = 0;
    tuning_line line;
    while (file->at < file->end && tuning_next(file, &line)) count += tuning_is(line.adapter, line.adapter_length, adapter);
    if (count == 0) return TG_OK;
    tg_schedule_entry *items = TG_NEW(&out->arena, tg_schedule_entry, count);
    if (items == NULL) return TG_ERROR_MEMORY;
    for (file->at = first; file->at < file->end && tuning_next(file, &line);) {
        if (!tuning_is(line.adapter, line.adapter_length, adapter)) continue;
        char *key = tg_arena_alloc(&out->arena, line.key_length + 1);
        if (key == NULL) return TG_ERROR_MEMORY;
        memcpy(key, line.key, line.key_length);
        items[out->table.count++] = (tg_schedule_entry){key, line.parsed};
    }
    out->table.items = items;
    return TG_OK;
}

tg_status tg_tuning_load(tg_context *ctx, const char *adapter, tg_tuning *out) {
    char path[TG_TUNING_PATH];
    tuning_file file;
    memset(out, 0, sizeof *out);
    tg_arena_init(&out->arena, ctx);
    if (!tg_tuning_path(path)) return TG_OK;
    const bool clean = ctx->status == TG_OK;
    tg_status status = tuning_open(ctx, path, &file);
    if (status == TG_OK) status = tuning_collect(&file, adapter, out);
    tuning_close(&file);
    if (status == TG_OK) return TG_OK;
    tg_tuning_free(out);
    if (status == TG_ERROR_MEMORY) return status;
    if (ctx->log != NULL && clean) {
        char text[TG_TUNING_PATH + 256];
        snprintf(text, sizeof text, "%.*s: ignored", TG_TUNING_PATH + 200, ctx->message);
        ctx->log(ctx->log_user, TG_LOG_WARNING, text);
    }
    if (clean) tg_clear_error(ctx);
    return TG_OK;
}

void tg_tuning_free(tg_tuning *tuning) {
    if (tuning->arena.ctx != NULL) tg_arena_free(&tuning->arena);
    tuning->table = (tg_schedules){NULL, 0};
}

/* ---------------------------------------------------------------- storing */

static bool tuning_replaces(const tg_schedule_entry *items, int32_t count, const tuning_line *line) {
    for (int32_t i = 0; i < count; i++)
        if (tuning_is(line->key, line->key_length, items[i].key)) return true;
    return false;
}

static void tuning_print(tuning_file *file, const char *adapter, const tg_schedule_entry *items, int32_t count, tg_text_buffer *text) {
    char schedule[TG_SCHEDULE_TEXT];
    tuning_line line;
    tg_text_add(text, "%s", TUNING_HEAD TUNING_VERSION);
    while (file->at < file->end && tuning_next(file, &line))
        if (!tuning_is(line.adapter, line.adapter_length, adapter) || !tuning_replaces(items, count, &line))
            tg_text_bytes(text, line.begin, (size_t)(line.next - line.begin));
    for (int32_t i = 0; i < count; i++)
        if (items[i].schedule.kind != TG_SCHEDULE_NONE)
            tg_text_add(text, "%s\t%s\t%s\n", adapter, items[i].key, tg_schedule_print(&items[i].schedule, schedule, sizeof schedule));
}

static tg_status tuning_write(tg_context *ctx, const char *path, const tg_text_buffer *text) {
    tg_file_writer writer;
    tg_status status = text->failed ? TG_ERROR_MEMORY : tg_file_begin(&writer, ctx, "tuning", path);
    if (status != TG_OK) return status;
    status = tg_file_put(&writer, text->data, text->length);
    if (status == TG_OK) return tg_file_commit(&writer);
    tg_file_abandon(&writer);
    return status;
}

tg_status tg_tuning_store(tg_context *ctx, const char *adapter, const tg_schedule_entry *items, int32_t count) {
    char path[TG_TUNING_PATH];
    tuning_file file;
    if (!tg_tuning_path(path))
        return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "tuning: nowhere to store it: TENSORGRAD_TUNING is off, or no home folder is known");
    tg_status status = tg_file_make_folders(ctx, path);
    if (status != TG_OK) return status;
    /* who stores at the same time adds to what is written here */
    const int lock = tg_file_lock(path);
    status = tuning_open(ctx, path, &file);
    if (status == TG_OK) {
        tg_text_buffer text;
        tg_text_init(&text, ctx);
        tuning_print(&file, adapter, items, count, &text);
        status = tuning_write(ctx, path, &text);
        tg_text_free(&text);
    }
    tuning_close(&file);
    tg_file_unlock(lock);
    return status;
}

#undef TUNING_HEAD
#undef TUNING_VERSION
#undef TUNING_MOST_BYTES
