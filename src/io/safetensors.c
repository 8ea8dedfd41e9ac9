/* safetensors: reads and writes the format described in safetensors.h (Hugging Face, format 0.3).
 * Before it hands out anything, the reader checks the length of the header, the JSON, each name,
 * dtype, shape and offset, and that the tensors tile the data without gap or overlap. The writer
 * makes only files that this reader and Python's accept. Must not know models. */
#include "io/safetensors.h"

#include "io/file.h"
#include "io/json.h"

#include <string.h>

#define SAFETENSORS_HEADER_MAX 100000000u /* bytes; the reference implementation's limit */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is copied as it lies in memory: little-endian only");

typedef struct safetensors_dtype {
    const char *name;
    int64_t bytes;
} safetensors_dtype;
/* Dtypes of the format that the library does not have. */
static const safetensors_dtype safetensors_others[] = {
    {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I16", 2},     {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

const char *tg_safetensors_dtype(tg_dtype dtype) { return tg_dtype_row(dtype)->safetensors; }

/* Bytes of an element; 0: the format has no such dtype. */
static int64_t safetensors_dtype_bytes(const char *name) {
    for (int d = 0; d < TG_DTYPE_COUNT; d++)
        if (strcmp(tg_safetensors_dtype((tg_dtype)d), name) == 0) return (int64_t)tg_dtype_bytes((tg_dtype)d);
    for (size_t i = 0; i < sizeof safetensors_others / sizeof safetensors_others[0]; i++)
        if (strcmp(safetensors_others[i].name, name) == 0) return safetensors_others[i].bytes;
    return 0;
}

/* ---------------------------------------------------------------- reading */

typedef struct safetensors_reader {
    tg_safetensors *file;
    const char *name; /* of the file, for messages */
    tg_json json;
    const uint8_t *data; /* the data section */
    int64_t data_bytes;
} safetensors_reader;

static tg_status safetensors_json_error(const safetensors_reader *r) {
    if (r->json.error == NULL) return TG_ERROR_MEMORY; /* recorded by the arena */
    return tg_fail(r->file->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: header byte %lld: %s", r->name,
                   (long long)(r->json.at - r->json.start), r->json.error);
}

static tg_status safetensors_tensor_error(const safetensors_reader *r, const char *tensor, const char *why) {
    return tg_fail(r->file->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: tensor %.200s: %s", r->name, tensor, why);
}

/* Reads {"key": "value", ...}, from the opening brace on. */
static tg_status safetensors_read_metadata(safetensors_reader *r) {
    tg_safetensors *file = r->file;
    if (!tg_json_expect(&r->json, '{')) return safetensors_json_error(r);
    if (tg_json_accept(&r->json, '}')) return TG_OK;
    do {
        void *items = file->metadata.items;
        bool room = tg_grow(file->ctx, &items, &file->metadata.capacity, file->metadata.count + 1, sizeof *file->metadata.items);
        file->metadata.items = items;
        if (!room) return TG_ERROR_MEMORY;
        tg_file_text text = {NULL, NULL};
        text.key = tg_json_string(&r->json, &file->arena);
        if (text.key == NULL || !tg_json_expect(&r->json, ':')) return safetensors_json_error(r);
        text.value = tg_json_string(&r->json, &file->arena);
        if (text.value == NULL) return safetensors_json_error(r);
        file->metadata.items[file->metadata.count++] = text;
    } while (tg_json_accept(&r->json, ','));
    return tg_json_expect(&r->json, '}') ? TG_OK : safetensors_json_error(r);
}

static tg_status safetensors_read_shape(safetensors_reader *r, tg_file_tensor *tensor) {
    if (!tg_json_expect(&r->json, '[')) return safetensors_json_error(r);
    tensor->shape.rank = 0;
    if (tg_json_accept(&r->json, ']')) return TG_OK;
    do {
        int64_t dim = 0;
        if (!tg_json_whole(&r->json, &dim)) return safetensors_json_error(r);
        if (tensor->shape.rank == TG_MAX_RANK) return safetensors_tensor_error(r, tensor->name, "rank over 8");
        tensor->shape.dim[tensor->shape.rank++] = dim;
    } while (tg_json_accept(&r->json, ','));
    return tg_json_expect(&r->json, ']') ? TG_OK : safetensors_json_error(r);
}

static tg_status safetensors_read_offsets(safetensors_reader *r, tg_file_tensor *tensor) {
    int64_t end = 0;
    bool ok = tg_json_expect(&r->json, '[') && tg_json_whole(&r->json, &tensor->begin) && tg_json_expect(&r->json, ',') &&
              tg_json_whole(&r->json, &end) && tg_json_expect(&r->json, ']');
    if (!ok) return safetensors_json_error(r);
    if (tensor->begin > end) return safetensors_tensor_error(r, tensor->name, "its offsets run backwards");
    if (end > r->data_bytes) return safetensors_tensor_error(r, tensor->name, "its offsets are beyond the file");
    tensor->bytes = (size_t)(end - tensor->begin);
    tensor->data = r->data + tensor->begin;
    return TG_OK;
}

/* Reads one member of a tensor's object. *seen has a bit for each known key read so far. */
static tg_status safetensors_read_field(safetensors_reader *r, tg_file_tensor *tensor, unsigned *seen) {
    char *key = tg_json_string(&r->json, &r->file->arena);
    if (key == NULL || !tg_json_expect(&r->json, ':')) return safetensors_json_error(r);
    unsigned bit = strcmp(key, "dtype") == 0 ? 1u : strcmp(key, "shape") == 0 ? 2u : strcmp(key, "data_offsets") == 0 ? 4u : 0u;
    if ((*seen & bit) != 0) return safetensors_tensor_error(r, tensor->name, "a field given twice");
    *seen |= bit;
    if (bit == 2) return safetensors_read_shape(r, tensor);
    if (bit == 4) return safetensors_read_offsets(r, tensor);
    if (bit == 0) return tg_json_skip(&r->json) ? TG_OK : safetensors_json_error(r);
    tensor->dtype = tg_json_string(&r->json, &r->file->arena);
    return tensor->dtype != NULL ? TG_OK : safetensors_json_error(r);
}

/* Checks that the shape needs exactly the bytes of the range. */
static tg_status safetensors_check_size(const safetensors_reader *r, const tg_file_tensor *tensor) {
    int64_t bytes = safetensors_dtype_bytes(tensor->dtype);
    if (bytes == 0) return safetensors_tensor_error(r, tensor->name, "unknown dtype");
    for (int i = 0; i < tensor->shape.rank; i++)
        if (__builtin_mul_overflow(bytes, tensor->shape.dim[i], &bytes))
            return safetensors_tensor_error(r, tensor->name, "its shape's size is over 2^63 - 1 bytes");
    if ((uint64_t)bytes != tensor->bytes) return safetensors_tensor_error(r, tensor->name, "its offsets do not fit its shape and dtype");
    return TG_OK;
}

static tg_status safetensors_read_tensor(safetensors_reader *r, const char *name) {
    tg_safetensors *file = r->file;
    tg_file_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.name = name;
    unsigned seen = 0;
    if (!tg_json_expect(&r->json, '{')) return safetensors_json_error(r);
    do {
        tg_status status = safetensors_read_field(r, &tensor, &seen);
        if (status != TG_OK) return status;
    } while (tg_json_accept(&r->json, ','));
    if (!tg_json_expect(&r->json, '}')) return safetensors_json_error(r);
    if (seen != 7) return safetensors_tensor_error(r, name, "dtype, shape or data_offsets is missing");
    tg_status status = safetensors_check_size(r, &tensor);
    if (status != TG_OK) return status;
    void *items = file->tensors.items;
    bool room = tg_grow(file->ctx, &items, &file->tensors.capacity, file->tensors.count + 1, sizeof *file->tensors.items);
    file->tensors.items = items;
    if (!room) return TG_ERROR_MEMORY;
    file->tensors.items[file->tensors.count++] = tensor;
    return TG_OK;
}

static tg_status safetensors_read_members(safetensors_reader *r) {
    bool metadata_seen = false;
    if (!tg_json_expect(&r->json, '{')) return safetensors_json_error(r);
    if (tg_json_accept(&r->json, '}')) return TG_OK;
    do {
        char *name = tg_json_string(&r->json, &r->file->arena);
        if (name == NULL || !tg_json_expect(&r->json, ':')) return safetensors_json_error(r);
        bool is_metadata = strcmp(name, "__metadata__") == 0;
        if (is_metadata && metadata_seen) return safetensors_tensor_error(r, name, "the name is there twice");
        metadata_seen = metadata_seen || is_metadata;
        tg_status status = is_metadata ? safetensors_read_metadata(r) : safetensors_read_tensor(r, name);
        if (status != TG_OK) return status;
    } while (tg_json_accept(&r->json, ','));
    return tg_json_expect(&r->json, '}') ? TG_OK : safetensors_json_error(r);
}

/* ---- order: heap sort, which has no slow inputs and allocates nothing */

typedef bool (*safetensors_before)(const tg_file_tensor *a, const tg_file_tensor *b);
static bool safetensors_name_before(const tg_file_tensor *a, const tg_file_tensor *b) { return strcmp(a->name, b->name) < 0; }
/* an empty tensor comes before a tensor at the same offset */
static bool safetensors_begin_before(const tg_file_tensor *a, const tg_file_tensor *b) {
    return a->begin != b->begin ? a->begin < b->begin : a->bytes < b->bytes;
}

static void safetensors_sift(tg_file_tensor *items, int64_t root, int64_t count, safetensors_before before) {
    for (int64_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && before(&items[child], &items[child + 1])) child++;
        if (!before(&items[root], &items[child])) return;
        tg_file_tensor swap = items[root];
        items[root] = items[child];
        items[child] = swap;
        root = child;
    }
}

static void safetensors_sort(tg_file_tensor *items, int64_t count, safetensors_before before) {
    for (int64_t i = count / 2 - 1; i >= 0; i--) safetensors_sift(items, i, count, before);
    for (int64_t i = count - 1; i > 0; i--) {
        tg_file_tensor swap = items[0];
        items[0] = items[i];
        items[i] = swap;
        safetensors_sift(items, 0, i, before);
    }
}

/* Checks that the tensors tile the data section and that their names differ. Leaves them sorted by
 * name. */
static tg_status safetensors_check_all(const safetensors_reader *r) {
    tg_safetensors *file = r->file;
    int64_t end = 0;
    safetensors_sort(file->tensors.items, file->tensors.count, safetensors_begin_before);
    for (int64_t i = 0; i < file->tensors.count; i++) {
        if (file->tensors.items[i].begin != end)
            return safetensors_tensor_error(r, file->tensors.items[i].name, "its data overlaps another's, or leaves a gap before it");
        end += (int64_t)file->tensors.items[i].bytes;
    }
    if (end != r->data_bytes)
        return tg_fail(file->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: the tensors cover %lld of %lld data bytes", r->name,
                       (long long)end, (long long)r->data_bytes);
    safetensors_sort(file->tensors.items, file->tensors.count, safetensors_name_before);
    for (int64_t i = 1; i < file->tensors.count; i++)
        if (strcmp(file->tensors.items[i - 1].name, file->tensors.items[i].name) == 0)
            return safetensors_tensor_error(r, file->tensors.items[i].name, "the name is there twice");
    return TG_OK;
}

static tg_status safetensors_read_into(tg_safetensors *file, const char *name, const uint8_t *bytes, size_t size) {
    uint64_t length = 0;
    if (size < 8) return tg_fail(file->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: %zu bytes is no safetensors file", name, size);
    memcpy(&length, bytes, 8);
    if (length > SAFETENSORS_HEADER_MAX || length > size - 8)
        return tg_fail(file->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "load: %s: no safetensors file: a header of %llu bytes in a file of %zu",
                       name, (unsigned long long)length, size);
    safetensors_reader r;
    memset(&r, 0, sizeof r);
    r.file = file;
    r.name = name;
    r.data = bytes + 8 + length;
    r.data_bytes = (int64_t)(size - 8 - (size_t)length);
    tg_json_init(&r.json, bytes + 8, (size_t)length);
    tg_status status = safetensors_read_members(&r);
    if (status != TG_OK) return status;
    if (!tg_json_at_end(&r.json)) {
        tg_json_fail(&r.json, "something after the header's end");
        return safetensors_json_error(&r);
    }
    return safetensors_check_all(&r);
}

static tg_safetensors *safetensors_create(tg_context *ctx) {
    tg_safetensors *file = tg_alloc(ctx, sizeof *file);
    if (file == NULL) return NULL;
    file->ctx = ctx;
    tg_arena_init(&file->arena, ctx);
    return file;
}

void tg_safetensors_destroy(tg_safetensors *file) {
    if (file == NULL) return;
    tg_context *ctx = file->ctx;
    tg_arena_free(&file->arena);
    tg_release(ctx, file->tensors.items, (size_t)file->tensors.capacity * sizeof *file->tensors.items);
    tg_release(ctx, file->metadata.items, (size_t)file->metadata.capacity * sizeof *file->metadata.items);
    if (file->file != NULL) tg_release(ctx, file->file, file->file_bytes);
    tg_release(ctx, file, sizeof *file);
}

tg_status tg_safetensors_read(tg_context *ctx, const char *name, const void *bytes, size_t size, tg_safetensors **out) {
    tg_safetensors *file = safetensors_create(ctx);
    if (file == NULL) return TG_ERROR_MEMORY;
    tg_status status = safetensors_read_into(file, name, bytes, size);
    if (status != TG_OK) tg_safetensors_destroy(file);
    else *out = file;
    return status;
}

tg_status tg_safetensors_open(tg_context *ctx, const char *path, tg_safetensors **out) {
    tg_safetensors *file = safetensors_create(ctx);
    if (file == NULL) return TG_ERROR_MEMORY;
    size_t size = 0;
    tg_status status = tg_file_read(ctx, "load", path, &file->file, &size, &file->file_bytes);
    if (status == TG_OK) status = safetensors_read_into(file, path, file->file, size);
    if (status != TG_OK) tg_safetensors_destroy(file);
    else *out = file;
    return status;
}

const tg_file_tensor *tg_safetensors_find(const tg_safetensors *file, const char *name) {
    int64_t low = 0, high = file->tensors.count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(file->tensors.items[middle].name, name);
        if (order == 0) return &file->tensors.items[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const char *tg_safetensors_metadata(const tg_safetensors *file, const char *key) {
    for (int64_t i = 0; i < file->metadata.count; i++)
        if (strcmp(file->metadata.items[i].key, key) == 0) return file->metadata.items[i].value;
    return NULL;
}

/* ---------------------------------------------------------------- writing */

static void safetensors_put_string(tg_text_buffer *text, const char *value) {
    tg_text_bytes(text, "\"", 1);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') tg_text_add(text, "\\%c", *c);
        else if ((unsigned char)*c < 0x20) tg_text_add(text, "\\u%04x", (unsigned)(unsigned char)*c);
        else tg_text_bytes(text, c, 1);
    }
    tg_text_bytes(text, "\"", 1);
}

static size_t safetensors_item_bytes(const tg_file_item *item) { return (size_t)tg_shape_count(item->shape) * tg_dtype_bytes(item->dtype); }

static void safetensors_put_item(tg_text_buffer *text, const tg_file_item *item, size_t begin) {
    safetensors_put_string(text, item->name);
    tg_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", tg_safetensors_dtype(item->dtype));
    for (int i = 0; i < item->shape.rank; i++) tg_text_add(text, i > 0 ? ",%lld" : "%lld", (long long)item->shape.dim[i]);
    tg_text_add(text, "],\"data_offsets\":[%zu,%zu]}", begin, begin + safetensors_item_bytes(item));
}

/* Pass 0 writes elements of a word, pass 1 smaller ones: so each tensor is aligned. */
static bool safetensors_in_pass(const tg_file_item *item, int pass) { return (tg_dtype_bytes(item->dtype) < TG_WORD_BYTES) == (pass == 1); }

static void safetensors_put_header(tg_text_buffer *text, const tg_file_item *items, int64_t count, const tg_file_text *metadata,
                                   int64_t metadata_count) {
    tg_text_add(text, "{\"__metadata__\":{");
    for (int64_t i = 0; i < metadata_count; i++) {
        if (i > 0) tg_text_bytes(text, ",", 1);
        safetensors_put_string(text, metadata[i].key);
        tg_text_bytes(text, ":", 1);
        safetensors_put_string(text, metadata[i].value);
    }
    tg_text_bytes(text, "}", 1);
    size_t begin = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < count; i++) {
            if (!safetensors_in_pass(&items[i], pass)) continue;
            tg_text_bytes(text, ",", 1);
            safetensors_put_item(text, &items[i], begin);
            begin += safetensors_item_bytes(&items[i]);
        }
    tg_text_bytes(text, "}", 1);
    while (!text->failed && text->length % 8 != 0) tg_text_bytes(text, " ", 1);
}

static tg_status safetensors_check_items(tg_context *ctx, const char *path, const tg_file_item *items, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (!tg_utf8_valid(items[i].name, strlen(items[i].name)))
            return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "save: %s: a tensor's name is not UTF-8: %.200s", path, items[i].name);
        bool reserved = strcmp(items[i].name, "__metadata__") == 0;
        for (int64_t j = 0; j < i && !reserved; j++) reserved = strcmp(items[i].name, items[j].name) == 0;
        if (reserved)
            return tg_fail(ctx, TG_ERROR_DUPLICATE, TG_SITE_NONE, "save: %s: two tensors would be called %.200s", path, items[i].name);
    }
    return TG_OK;
}

static tg_status safetensors_write(tg_file_writer *writer, const tg_text_buffer *header, const tg_file_item *items, int64_t count) {
    uint64_t length = header->length;
    tg_status status = tg_file_put(writer, &length, 8);
    if (status == TG_OK) status = tg_file_put(writer, header->data, header->length);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < count && status == TG_OK; i++)
            if (safetensors_in_pass(&items[i], pass)) status = tg_file_put(writer, items[i].data, safetensors_item_bytes(&items[i]));
    return status;
}

tg_status tg_safetensors_save(tg_context *ctx, const char *path, const tg_file_item *items, int64_t count, const tg_file_text *metadata,
                              int64_t metadata_count) {
    tg_status status = safetensors_check_items(ctx, path, items, count);
    if (status != TG_OK) return status;
    tg_text_buffer header;
    tg_text_init(&header, ctx);
    safetensors_put_header(&header, items, count, metadata, metadata_count);
    if (header.failed) {
        tg_text_free(&header);
        return TG_ERROR_MEMORY;
    }
    tg_file_writer writer;
    status = tg_file_begin(&writer, ctx, "save", path);
    if (status == TG_OK) {
        status = safetensors_write(&writer, &header, items, count);
        if (status == TG_OK) status = tg_file_commit(&writer);
        else tg_file_abandon(&writer);
    }
    tg_text_free(&header);
    return status;
}

#undef SAFETENSORS_HEADER_MAX
