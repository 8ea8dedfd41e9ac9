/* file: reads whole files, and replaces files in one step: the bytes go to a temporary file in the
 * same folder, are flushed to the disk, and a rename puts the file in place. Each call of the
 * system is checked. Must not know what the bytes mean. */
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

/* Tries the names "path.tmp0", "path.tmp1" and so on until one is free: a crash may have left
 * earlier ones. */
#define FILE_TEMPORARY_TRIES 1000
#define FILE_SUFFIX_BYTES 16
#define FILE_LOCK_PATH 4096
#define FILE_LINK_BYTES 4097
#define FILE_MOST_LINKS 40

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
    struct stat info;
    /* Opening a pipe would wait for its writer. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return tg_fail(ctx, TG_ERROR_IO, TG_SITE_NONE, "%s: %s is not a regular file", what, path);
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return file_error(ctx, what, "open", path, errno);
    tg_status status = file_read_open(ctx, what, path, file, most, bytes, size, held);
    fclose(file); /* the file was only read: nothing can be lost */
    return status;
}
tg_status tg_file_read(tg_context *ctx, const char *what, const char *path, void **bytes, size_t *size, size_t *held) {
    return tg_file_read_most(ctx, what, path, SIZE_MAX, bytes, size, held);
}

bool tg_file_is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* A folder that exists already is fine. Whether it can be used shows when a file is written
 * there. */
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

#if defined(_WIN32) || defined(__wasm__)
tg_status tg_file_target(tg_context *ctx, const char *what, const char *path, char **target) {
    (void)what;
    *target = tg_alloc_text(ctx, path);
    return *target != NULL ? TG_OK : TG_ERROR_MEMORY;
}
static void file_keep_mode(const tg_file_writer *writer) { (void)writer; }
#else
/* The link's target as a path: `text` itself if it begins at the root, else beside the link. */
static char *file_beside(tg_context *ctx, const char *link, const char *text) {
    const char *slash = strrchr(link, '/');
    if (text[0] == '/' || slash == NULL) return tg_alloc_text(ctx, text);
    const size_t folder = (size_t)(slash - link) + 1, length = folder + strlen(text) + 1;
    char *joined = tg_alloc(ctx, length);
    if (joined != NULL) snprintf(joined, length, "%.*s%s", (int)folder, link, text);
    return joined;
}
tg_status tg_file_target(tg_context *ctx, const char *what, const char *path, char **target) {
    char text[FILE_LINK_BYTES];
    char *at = tg_alloc_text(ctx, path);
    for (int i = 0; at != NULL && i < FILE_MOST_LINKS; i++) {
        const ssize_t length = readlink(at, text, sizeof text - 1);
        /* Not a link, or a link longer than any system makes. */
        if (length < 0 || length >= (ssize_t)sizeof text - 1) {
            *target = at;
            return TG_OK;
        }
        text[length] = '\0';
        char *next = file_beside(ctx, at, text);
        tg_release(ctx, at, strlen(at) + 1);
        at = next;
    }
    if (at == NULL) return TG_ERROR_MEMORY;
    tg_release(ctx, at, strlen(at) + 1);
    return file_error(ctx, what, "write", path, ELOOP);
}

/* Sets the owner before the mode: a change of owner may clear bits of the mode. */
static void file_keep_mode(const tg_file_writer *writer) {
    struct stat info;
    const int file = fileno(writer->file);
    if (stat(writer->target, &info) != 0) return;
    if (info.st_uid != geteuid() || info.st_gid != getegid()) (void)!fchown(file, info.st_uid, info.st_gid);
    (void)fchmod(file, info.st_mode & 07777);
}
#endif

/* Refuses a folder, a device or a pipe: the rename would replace it, or fail after everything was
 * written. */
static tg_status file_check_target(const tg_file_writer *writer) {
    struct stat info;
    if (stat(writer->target, &info) != 0 || S_ISREG(info.st_mode)) return TG_OK;
    return tg_fail(writer->ctx, TG_ERROR_IO, TG_SITE_NONE, "%s: %s is not a regular file", writer->what, writer->path);
}

tg_status tg_file_begin(tg_file_writer *writer, tg_context *ctx, const char *what, const char *path) {
    memset(writer, 0, sizeof *writer);
    writer->ctx = ctx;
    writer->what = what;
    writer->path = path;
    tg_status status = tg_file_target(ctx, what, path, &writer->target);
    if (status == TG_OK) status = file_check_target(writer);
    if (status != TG_OK) {
        tg_file_abandon(writer);
        return status;
    }
    writer->temporary_bytes = strlen(writer->target) + FILE_SUFFIX_BYTES;
    writer->temporary = tg_alloc(ctx, writer->temporary_bytes);
    if (writer->temporary == NULL) {
        tg_file_abandon(writer);
        return TG_ERROR_MEMORY;
    }
    int code = EEXIST;
    for (int i = 0; i < FILE_TEMPORARY_TRIES && writer->file == NULL && code == EEXIST; i++) {
        snprintf(writer->temporary, writer->temporary_bytes, "%s.tmp%d", writer->target, i);
        errno = 0;
        writer->file = fopen(writer->temporary, "wbx");
        code = errno;
    }
    if (writer->file != NULL) {
        file_keep_mode(writer);
        return TG_OK;
    }
    status = file_error(ctx, what, "write", path, code);
    tg_file_abandon(writer);
    return status;
}

tg_status tg_file_put(tg_file_writer *writer, const void *data, size_t bytes) {
    errno = 0;
    if (bytes == 0 || fwrite(data, 1, bytes, writer->file) == bytes) return TG_OK;
    return file_error(writer->ctx, writer->what, "write", writer->path, errno);
}

/* The rename is durable only after the folder is flushed as well. Not all file systems can do that,
 * so a failure is no error. */
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

static void file_forget(tg_file_writer *writer) {
    if (writer->temporary != NULL) tg_release(writer->ctx, writer->temporary, writer->temporary_bytes);
    if (writer->target != NULL) tg_release(writer->ctx, writer->target, strlen(writer->target) + 1);
    writer->temporary = writer->target = NULL;
}

tg_status tg_file_commit(tg_file_writer *writer) {
    errno = 0;
    bool ok = fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
    int code = errno;
    bool closed = fclose(writer->file) == 0;
    writer->file = NULL;
    if (ok && !closed) code = errno;
    ok = ok && closed;
    if (ok && rename(writer->temporary, writer->target) != 0) {
        code = errno;
        ok = false;
    }
    const tg_status status = ok ? TG_OK : file_error(writer->ctx, writer->what, "write", writer->path, code);
    if (ok) file_sync_folder(writer->target, writer->temporary, writer->temporary_bytes);
    else (void)remove(writer->temporary); /* it still exists */
    file_forget(writer);
    return status;
}

void tg_file_abandon(tg_file_writer *writer) {
    if (writer->file != NULL) {
        fclose(writer->file);
        (void)remove(writer->temporary);
        writer->file = NULL;
    }
    file_forget(writer);
}

#undef FILE_TEMPORARY_TRIES
#undef FILE_SUFFIX_BYTES
#undef FILE_LOCK_PATH
#undef FILE_LINK_BYTES
#undef FILE_MOST_LINKS
