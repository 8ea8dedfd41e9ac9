/* file: reads whole files, and writes files that replace their target only when all bytes are
 * written. Knows the error record and the allocator. Must not know what the bytes mean. */
#ifndef TG_FILE_H
#define TG_FILE_H
#include "base/base.h"

#include <stdio.h>

/* Reads a regular file. *bytes: release with tg_release(ctx, *bytes, *held); *size <= *held is the
 * file's length. `what` opens the message: "load: cannot open model.safetensors: No such file or
 * directory". */
tg_status tg_file_read(tg_context *ctx, const char *what, const char *path, void **bytes, size_t *size, size_t *held);
/* The same, with TG_ERROR_LIMIT for a file of more than `most` bytes. */
tg_status tg_file_read_most(tg_context *ctx, const char *what, const char *path, size_t most, void **bytes, size_t *size, size_t *held);
bool tg_file_is_there(const char *path); /* any file of that name, readable or not */
/* Makes the folders of `path` that do not exist. */
tg_status tg_file_make_folders(tg_context *ctx, const char *path);

/* The file that a write to `path` would replace: `path`, or the end of the symbolic links in it,
 * whether that file exists or not. *target: release with
 * tg_release(ctx, *target, strlen(*target) + 1). TG_ERROR_IO for a circle of links. */
tg_status tg_file_target(tg_context *ctx, const char *what, const char *path, char **target);
/* For a file that is read, changed and written as a whole. Until the unlock other callers wait, in
 * this process and in others. The lock is on the file "path.lock", which stays. Returns -1 and
 * holds nothing if no lock is to be had (no such folder, a system without locks). */
int tg_file_lock(const char *path);
void tg_file_unlock(int lock);

/* A temporary file beside the tg_file_target of `path`. End it with tg_file_commit (flush, fsync,
 * rename over the target) or with tg_file_abandon; a commit that fails has abandoned. Until the
 * rename the old file stays as it was. The new file gets its mode and, where the system allows it,
 * its owner. A symbolic link stays a link. A target that is not a regular file is refused. A
 * process that is killed before the end leaves the temporary file "path.tmp0". */
typedef struct tg_file_writer {
    tg_context *ctx;
    const char *what, *path; /* borrowed */
    char *target, *temporary;
    size_t temporary_bytes;
    FILE *file;
} tg_file_writer;
tg_status tg_file_begin(tg_file_writer *writer, tg_context *ctx, const char *what, const char *path);
tg_status tg_file_put(tg_file_writer *writer, const void *data, size_t bytes);
tg_status tg_file_commit(tg_file_writer *writer);
void tg_file_abandon(tg_file_writer *writer);
#endif
