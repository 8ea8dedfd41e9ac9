/* file: whole files in, and files that replace their target only when everything was written. Knows
 * the error record and the allocator; must not know what the bytes mean. */
#ifndef TG_FILE_H
#define TG_FILE_H
#include "base/base.h"

#include <stdio.h>

/* Reads a regular file. *bytes: release with tg_release(ctx, *bytes, *held); *size <= *held is the
 * file's length. `what` opens the message: "load: cannot open model.safetensors: No such file or
 * directory". */
tg_status tg_file_read(tg_context *ctx, const char *what, const char *path, void **bytes, size_t *size, size_t *held);
/* The same, but TG_ERROR_LIMIT for a file of more than `most` bytes. */
tg_status tg_file_read_most(tg_context *ctx, const char *what, const char *path, size_t most, void **bytes, size_t *size, size_t *held);
bool tg_file_is_there(const char *path); /* anything of that name, readable or not */
/* Makes the folders that `path` names and that are not there. */
tg_status tg_file_make_folders(tg_context *ctx, const char *path);

/* The file that would be written: `path`, or the end of the symbolic links that it names, existing
 * or not. *target: release with tg_release(ctx, *target, strlen(*target) + 1). TG_ERROR_IO for a
 * circle of links. */
tg_status tg_file_target(tg_context *ctx, const char *what, const char *path, char **target);
/* For a file that is read, changed and written as a whole: others that ask for it wait, in this
 * process and in others. The lock is on "path.lock", which stays. -1: no lock is possible (no such
 * folder, a system without locks), and nothing is held. */
int tg_file_lock(const char *path);
void tg_file_unlock(int lock);

/* A temporary file next to tg_file_target of `path`. tg_file_commit (flush, fsync, rename over the
 * target) or tg_file_abandon ends it; a commit that fails has abandoned. The old file stays as it
 * was until the rename. The new one has its mode and, if the system allows, its owner. A symbolic
 * link stays one. Only regular files are accepted. A process that is killed in between leaves the
 * temporary file, "path.tmp0". */
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
