/* safetensors: named tensors in a file that all platforms and Python read. Layout: u64
 * little-endian header length N, N bytes of JSON {"__metadata__": {text: text}, name: {"dtype",
 * "shape", "data_offsets": [begin, end]}}, then the data without gaps. Readers check everything in
 * a file. Must not know models. */
#ifndef TG_SAFETENSORS_H
#define TG_SAFETENSORS_H
#include "ir/dtype.h"

typedef struct tg_file_tensor {
    const char *name;
    const char *dtype; /* as the file spells it: "F32", "BF16", "BOOL" */
    tg_shape shape;    /* a dim may be 0 in files of other programs */
    const void *data;  /* not aligned */
    size_t bytes;
    int64_t begin; /* byte offset in the data section */
} tg_file_tensor;

typedef struct tg_file_text {
    const char *key, *value;
} tg_file_text;

typedef struct tg_safetensors {
    tg_context *ctx;
    tg_arena arena; /* names and texts */
    struct {
        tg_file_tensor *items;
        int64_t count, capacity;
    } tensors; /* ascending by name */
    struct {
        tg_file_text *items;
        int64_t count, capacity;
    } metadata;
    void *file; /* the file's bytes, if it was read from a path */
    size_t file_bytes;
} tg_safetensors;

/* Both read a file; destroy with tg_safetensors_destroy. *out is set only on success. Messages
 * begin "load: NAME: ...", with `name`. `bytes` is borrowed until the destruction. TG_ERROR_FORMAT
 * for a file that is not exactly what the format allows. */
tg_status tg_safetensors_read(tg_context *ctx, const char *name, const void *bytes, size_t size, tg_safetensors **out);
tg_status tg_safetensors_open(tg_context *ctx, const char *path, tg_safetensors **out);
void tg_safetensors_destroy(tg_safetensors *file); /* NULL is fine */
/* NULL: not there */
const tg_file_tensor *tg_safetensors_find(const tg_safetensors *file, const char *name);
/* NULL: not there */
const char *tg_safetensors_metadata(const tg_safetensors *file, const char *key);
const char *tg_safetensors_dtype(tg_dtype dtype); /* "F32", "I32", "BOOL" */

/* Replaces `path` (see tg_file_begin). Tensors of 4-byte elements come first, so that all data is
 * aligned. Names must be UTF-8 and differ. */
typedef struct tg_file_item {
    const char *name;
    tg_dtype dtype;
    tg_shape shape;
    const void *data;
} tg_file_item;
tg_status tg_safetensors_save(tg_context *ctx, const char *path, const tg_file_item *items, int64_t count, const tg_file_text *metadata,
                              int64_t metadata_count);
#endif
