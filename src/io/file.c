/* file: whole files in, and files that replace their target only when everything was written: the bytes go to a temporary
 * file in the same folder, are flushed to the disk, and one rename puts them in place. Every call is checked. Must not know
 * what the bytes mean. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(_WIN32)
#  include <direct.h>
#elif !defined(__wasm__)
#  include <sys/file.h>
#endif

/* Names "path.tmp0" .. are tried until one is free: a crash may have left earlier ones behind. */
#define FILE_TEMPORARY_TRIES 1000
#define FILE_SUFFIX_BYTES 16
#define FILE_LOCK_PATH 4096

static tg_status file_error(tg_context *ctx, const char *what, const char *verb, const char *path, int code) {
    return tg_fail(ctx, TG_ERROR_IO, TG_SITE_NONE, "%s: cannot %s %s: %s", what, verb, path, code != 0 ? strerror(code) : "short count");
}

/* The length of an open regular file. */
static tg_status file_length(tg_context *ctx, const char *what, const char *path, FILE *file, size_t *length) {
    struct stat info;
    if (fstat(fileno(file), &info) != 0) return file_error(ctx, what, "read", path, errno);
    if (!S_ISREG(info.st_mode)) return tg_fail(ctx, TG_ERROR_IO, TG_SITE_NONE, "%s: %s is not a regular file", what, path);
    if (info.st_size < 0 || (uint64_t)info.st_size > SIZE_MAX / 2)
        return tg_fail(ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "%s: %s is too large", what, path);
    *length = (size_t)info.st_size;
    return TG_OK;
}

static tg_status file_read_open(tg_context *ctx, const char *what, const char *path, FILE *file, size_t most, void **bytes, size_t *size,
                                size_t *held) {
    size_t length = 0;
    tg_status status = file_length(ctx, what, path, file, &length);
    if (status != TG_OK) return status;
    if (length > most) return tg_fail(ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "%s: %s is too large", what, path);
    size_t block = length > 0 ? length : 1;
    void *data = tg_alloc(ctx, block);
    if (data == NULL) return TG_ERROR_MEMORY;
    errno = 0;
    if (fread(data, 1, length, file) != length) {
        status = file_error(ctx, what, "read", path, errno);
        tg_release(ctx, data, block);
        return status;
    }
    *bytes = data;
    *size = length;
    *held = block;
    return TG_OK;
}

tg_status tg_file_read_most(tg_context *ctx, const char *what, const char *path, size_t most, void **bytes, size_t *size, size_t *held) {
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return file_error(ctx, what, "open", path, errno);
    tg_status status = file_read_open(ctx, what, path, file, most, bytes, size, held);
    fclose(file); /* only read: nothing can be lost */
    return status;
}
tg_status tg_file_read(tg_context *ctx, const char *what, const char *path, void **bytes, size_t *size, size_t *held) {
    return tg_file_read_most(ctx, what, path, SIZE_MAX, bytes, size, held);
}

bool tg_file_is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* A folder that is there already is fine; whether it can be used shows when something is put into it. */
static void file_make_folder(const char *path) {
#if defined(_WIN32)
    (void)_mkdir(path);
#else
    (void)mkdir(path, 0700);
#endif
}
static bool file_is_separator(char c) {
#if defined(_WIN32)
    return c == '/' || c == '\\';
#else
    return c == '/';
#endif
}
tg_status tg_file_make_folders(tg_context *ctx, const char *path) {
    char *folder = tg_alloc_text(ctx, path);
    if (folder == NULL) return TG_ERROR_MEMORY;
    for (size_t i = 1; folder[i] != '\0'; i++) {
        const char c = folder[i];
        if (!file_is_separator(c)) continue;
        folder[i] = '\0';
        file_make_folder(folder);
        folder[i] = c;
    }
    tg_release(ctx, folder, strlen(path) + 1);
    return TG_OK;
}

#if defined(_WIN32) || defined(__wasm__)
int tg_file_lock(const char *path) {
    (void)path;
    return -1;
}
void tg_file_unlock(int lock) { (void)lock; }
#else
int tg_file_lock(const char *path) {
    char name[FILE_LOCK_PATH];
    const int length = snprintf(name, sizeof name, "%s.lock", path);
    if (length < 0 || length >= (int)sizeof name) return -1;
    const int lock = open(name, O_RDWR | O_CREAT, 0600);
    if (lock < 0) return -1;
    while (flock(lock, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        (void)close(lock);
        return -1;
    }
    return lock;
}
void tg_file_unlock(int lock) {
    if (lock >= 0) (void)close(lock);
}
#endif

tg_status tg_file_begin(tg_file_writer *writer, tg_context *ctx, const char *what, const char *path) {
    memset(writer, 0, sizeof *writer);
    writer->ctx = ctx;
    writer->what = what;
    writer->path = path;
    writer->temporary_bytes = strlen(path) + FILE_SUFFIX_BYTES;
    writer->temporary = tg_alloc(ctx, writer->temporary_bytes);
    if (writer->temporary == NULL) return TG_ERROR_MEMORY;
    int code = EEXIST;
    for (int i = 0; i < FILE_TEMPORARY_TRIES && writer->file == NULL && code == EEXIST; i++) {
        snprintf(writer->temporary, writer->temporary_bytes, "%s.tmp%d", path, i);
        errno = 0;
        writer->file = fopen(writer->temporary, "wbx");
        code = errno;
    }
    if (writer->file != NULL) return TG_OK;
    tg_status status = file_error(ctx, what, "write", path, code);
    tg_file_abandon(writer);
    return status;
}

tg_status tg_file_put(tg_file_writer *writer, const void *data, size_t bytes) {
    errno = 0;
    if (bytes == 0 || fwrite(data, 1, bytes, writer->file) == bytes) return TG_OK;
    return file_error(writer->ctx, writer->what, "write", writer->path, errno);
}

/* The rename itself is durable once the folder is written. Not every file system can: no error then. */
static void file_sync_folder(const char *path, char *scratch, size_t bytes) {
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (slash == NULL) snprintf(scratch, bytes, ".");
    else snprintf(scratch, bytes, "%.*s", length > 0 ? (int)length : 1, path);
    int folder = open(scratch, O_RDONLY);
    if (folder < 0) return;
    (void)fsync(folder);
    (void)close(folder);
}

tg_status tg_file_commit(tg_file_writer *writer) {
    errno = 0;
    bool ok = fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
    int code = errno;
    bool closed = fclose(writer->file) == 0;
    writer->file = NULL;
    if (ok && !closed) code = errno;
    ok = ok && closed;
    if (ok && rename(writer->temporary, writer->path) != 0) {
        code = errno;
        ok = false;
    }
    tg_status status = ok ? TG_OK : file_error(writer->ctx, writer->what, "write", writer->path, code);
    if (ok) {
        file_sync_folder(writer->path, writer->temporary, writer->temporary_bytes);
        tg_release(writer->ctx, writer->temporary, writer->temporary_bytes);
        writer->temporary = NULL;
        return TG_OK;
    }
    /* the temporary file exists still: remove it */
    (void)remove(writer->temporary);
    tg_release(writer->ctx, writer->temporary, writer->temporary_bytes);
    writer->temporary = NULL;
    return status;
}

void tg_file_abandon(tg_file_writer *writer) {
    if (writer->file != NULL) {
        fclose(writer->file);
        (void)remove(writer->temporary);
        writer->file = NULL;
    }
    if (writer->temporary != NULL) tg_release(writer->ctx, writer->temporary, writer->temporary_bytes);
    writer->temporary = NULL;
}

#undef FILE_TEMPORARY_TRIES
#undef FILE_SUFFIX_BYTES
#undef FILE_LOCK_PATH
