/* dtype: the table of dtypes and the conversions; see dtype.h. Must not know ops or graphs. */
#include "ir/dtype.h"

#include <stdio.h>
#include <string.h>

#define DTYPE_WRAP(before, after) \
  { before, after }

static const tg_dtype_info dtype_table[TG_DTYPE_COUNT] = {
#define TG_DTYPE(NAME, text, host, device, compute, c_storage, c_compute, wgsl_storage, wgsl_compute, wgsl_zero, load, store, safetensors, \
                 array) \
  {text,         host,         device,    TG_##compute,    c_storage,        c_compute, \
   wgsl_storage, wgsl_compute, wgsl_zero, DTYPE_WRAP load, DTYPE_WRAP store, safetensors},
#include "ir/dtype.def"
#undef TG_DTYPE
};
static const tg_dtype_info dtype_unknown = {"unknown", 0, 0, TG_F32, "", "", "", "", "", {"", ""}, {"", ""}, ""};

#undef DTYPE_WRAP

#define TG_DTYPE(NAME, ...) _Static_assert((int)TG_DTYPE_PLACE_##NAME == (int)TG_##NAME, "dtype.def has the order of tg_dtype");
#include "ir/dtype.def"
#undef TG_DTYPE

bool tg_dtype_valid(tg_dtype dtype) { return (int)dtype >= 0 && (int)dtype < TG_DTYPE_COUNT; }

const tg_dtype_info *tg_dtype_row(tg_dtype dtype) { return tg_dtype_valid(dtype) ? &dtype_table[dtype] : &dtype_unknown; }

const char *tg_dtype_name(tg_dtype dtype) { return tg_dtype_row(dtype)->name; }

size_t tg_dtype_bytes(tg_dtype dtype) { return (size_t)tg_dtype_row(dtype)->host_bytes; }

int64_t tg_dtype_device_bytes(tg_dtype dtype) { return tg_dtype_row(dtype)->device_bytes; }

bool tg_dtype_is_word(tg_dtype dtype) { return dtype != TG_BOOL && tg_dtype_bytes(dtype) == TG_WORD_BYTES; }

const char *tg_dtype_list(unsigned mask, const char *word, char *text, size_t size) {
    size_t used = 0;
    (void)snprintf(text, size, "nothing");
    for (int d = 0; d < TG_DTYPE_COUNT; d++) {
        if ((mask >> d & 1u) == 0) continue;
        const char *before = used == 0 ? "" : mask >> d == 1u ? " " : ", ", *after = used > 0 && mask >> d == 1u ? word : "";
        const int wrote =
            snprintf(text + used, size - used, "%s%s%s%s", before, after, after[0] != '\0' ? " " : "", tg_dtype_name((tg_dtype)d));
        used = wrote < 0 || used + (size_t)wrote >= size ? size - 1 : used + (size_t)wrote;
    }
    return text;
}

bool tg_dtype_holds(tg_dtype dtype, double value) {
    switch (dtype) {
    case TG_F32: return true;
    case TG_I32: return value >= -2147483648.0 && value <= 2147483647.0 && value == floor(value);
    case TG_BOOL: return value == 0.0 || value == 1.0;
    }
    return false;
}

double tg_dtype_get(tg_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case TG_F32: return (double)((const float *)data)[i];
    case TG_I32: return (double)((const int32_t *)data)[i];
    case TG_BOOL: return ((const uint8_t *)data)[i] != 0 ? 1.0 : 0.0;
    }
    return 0.0;
}

void tg_dtype_put(tg_dtype dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case TG_F32: ((float *)data)[i] = (float)value; return;
    case TG_I32: ((int32_t *)data)[i] = (int32_t)value; return;
    case TG_BOOL: ((uint8_t *)data)[i] = value != 0.0; return;
    }
}

/* bool is the only dtype whose elements have another form on a GPU. */
void tg_dtype_to_device(tg_dtype dtype, void *to, const void *from, int64_t count) {
    if (dtype != TG_BOOL) {
        memcpy(to, from, (size_t)count * tg_dtype_bytes(dtype));
        return;
    }
    uint32_t *words = to;
    const uint8_t *bytes = from;
    for (int64_t i = 0; i < count; i++) words[i] = bytes[i] != 0 ? 1 : 0;
}

void tg_dtype_from_device(tg_dtype dtype, void *to, const void *from, int64_t count) {
    if (dtype != TG_BOOL) {
        memcpy(to, from, (size_t)count * tg_dtype_bytes(dtype));
        return;
    }
    uint8_t *bytes = to;
    const uint32_t *words = from;
    for (int64_t i = 0; i < count; i++) bytes[i] = words[i] != 0 ? 1 : 0;
}
