/* dtype: the table of dtypes, one row for each line of dtype.def, and conversions of elements. Must
 * not know ops or graphs. A dtype has two sides. Its storage is the form of an element in memory,
 * in a file or in a device's buffer. Its compute dtype is what a kernel computes with. A value is
 * converted when a kernel loads or stores it, and nowhere else. */
#ifndef TG_DTYPE_H
#define TG_DTYPE_H

#include "base/base.h"

/* Bytes of a word: WGSL addresses words. A size in words times this is a size in bytes. */
enum { TG_WORD_BYTES = 4 };

enum {
#define TG_DTYPE(NAME, ...) TG_DTYPE_PLACE_##NAME,
#include "ir/dtype.def"
#undef TG_DTYPE
    TG_DTYPE_COUNT
};

/* Text around an expression. */
typedef struct tg_dtype_wrap {
    const char *before, *after;
} tg_dtype_wrap;

typedef struct tg_dtype_info {
    const char *name;
    int32_t host_bytes, device_bytes;
    tg_dtype compute;
    const char *c_storage, *c_compute;
    const char *wgsl_storage, *wgsl_compute, *wgsl_zero;
    tg_dtype_wrap wgsl_load, wgsl_store;
    const char *safetensors;
} tg_dtype_info; /* columns: see dtype.def */

bool tg_dtype_valid(tg_dtype dtype);
/* The row of a dtype. For a number that is no dtype: a row named "unknown", with sizes of 0 and
 * empty texts. Never NULL. */
const tg_dtype_info *tg_dtype_row(tg_dtype dtype);
const char *tg_dtype_name(tg_dtype dtype);
size_t tg_dtype_bytes(tg_dtype dtype);         /* of an element in host memory */
int64_t tg_dtype_device_bytes(tg_dtype dtype); /* of an element in a buffer of a GPU */
/* an element is one word, the same in host memory and on a GPU */
bool tg_dtype_is_word(tg_dtype dtype);
#define TG_DTYPE_LIST 64
/* Writes the dtypes of a mask of 1 << dtype into text, and returns it: "nothing", "f32", or "f32,
 * i32 and bool" if word is "and". Cut to size; TG_DTYPE_LIST is enough room. */
const char *tg_dtype_list(unsigned mask, const char *word, char *text, size_t size);

/* Whether dtype can hold value exactly (rounding to f32 is fine). */
bool tg_dtype_holds(tg_dtype dtype, double value);
/* Element i of an array in host memory as a number: a bool is 0 or 1. */
double tg_dtype_get(tg_dtype dtype, const void *data, int64_t i);
/* Sets element i of an array in host memory. f32: rounded. i32: value must be one that
 * tg_dtype_holds. bool: value != 0. */
void tg_dtype_put(tg_dtype dtype, void *data, int64_t i, double value);

/* Copies count elements from host memory into the form of a GPU's buffer, and back. Arrays must not
 * overlap. A bool becomes a word of 0 or 1; a word other than 0 becomes true. O(count). */
void tg_dtype_to_device(tg_dtype dtype, void *to, const void *from, int64_t count);
void tg_dtype_from_device(tg_dtype dtype, void *to, const void *from, int64_t count);

#endif
