/* serialise: writes a graph as portable little-endian bytes and reads it back. Operations are
 * written by name, so that files survive a reordered ops.def. Layout: magic, version, names of
 * operations, names of source files, nodes, tables, result. Reading compares each count with the
 * bytes left before it allocates, and checks the whole graph. Must not know what a graph is for. */
#include "ir/rules.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static const unsigned char serial_magic[8] = {'T', 'G', 'G', 'R', 'A', 'P', 'H', 0x1A};

enum { SERIAL_VERSION = 2, SERIAL_NODE_BYTES = 20, SERIAL_CHUNK = 1024 };
#define SERIAL_NO_TEXT UINT32_MAX

/* The attributes that a node has besides its inputs. */
typedef enum serial_form {
    SERIAL_PLAIN,
    SERIAL_AXES,
    SERIAL_AXIS,
    SERIAL_PERM,
    SERIAL_BOX,
    SERIAL_CONST,
    SERIAL_LEAF,
    SERIAL_OFFSETS,
    SERIAL_DRAW,
    SERIAL_WINDOW,
    SERIAL_ATTENTION
} serial_form;

static serial_form serial_form_of(tg_op op) {
    switch (op) {
    case TG_OP_INPUT:
    case TG_OP_PARAM:
    case TG_OP_STATE: return SERIAL_LEAF;
    case TG_OP_CONST: return SERIAL_CONST;
    case TG_OP_RANDOM: return SERIAL_DRAW;
    case TG_OP_SUM:
    case TG_OP_REDUCE_MAX:
    case TG_OP_REDUCE_MIN:
    case TG_OP_ARGMAX:
    case TG_OP_ARGMIN:
    case TG_OP_FLIP: return SERIAL_AXES;
    case TG_OP_IOTA:
    case TG_OP_CONCAT: return SERIAL_AXIS;
    case TG_OP_PERMUTE: return SERIAL_PERM;
    case TG_OP_SLICE:
    case TG_OP_PAD: return SERIAL_BOX;
    case TG_OP_PACK: return SERIAL_OFFSETS;
    case TG_OP_WINDOW:
    case TG_OP_FOLD: return SERIAL_WINDOW;
    default: return tg_op_table[op].class_ == TG_CLASS_ATTENTION ? SERIAL_ATTENTION : SERIAL_PLAIN;
    }
}

/* ---------------------------------------------------------------- writing */

typedef struct serial_writer {
    const tg_graph *g;
    tg_text_buffer *out;
    TG_LIST(const char *) files;
} serial_writer;

static void serial_put(serial_writer *w, uint64_t value, int bytes) {
    unsigned char little[8];
    for (int i = 0; i < bytes; i++) little[i] = (unsigned char)(value >> (8 * i));
    tg_text_bytes(w->out, little, (size_t)bytes);
}

static void serial_put_u8(serial_writer *w, uint8_t value) { serial_put(w, value, 1); }
static void serial_put_u32(serial_writer *w, uint32_t value) { serial_put(w, value, 4); }
static void serial_put_i64(serial_writer *w, int64_t value) { serial_put(w, (uint64_t)value, 8); }

static void serial_put_f64(serial_writer *w, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    serial_put(w, bits, 8);
}

static void serial_put_text(serial_writer *w, const char *text) {
    if (!text) {
        serial_put_u32(w, SERIAL_NO_TEXT);
        return;
    }
    const size_t length = strlen(text);
    serial_put_u32(w, (uint32_t)length);
    tg_text_bytes(w->out, text, length);
}

/* Writes elements of one word each, a chunk at a time. */
static void serial_put_words(serial_writer *w, const void *data, int64_t count) {
    unsigned char little[TG_WORD_BYTES * SERIAL_CHUNK];
    const unsigned char *at = data;
    for (int64_t done = 0; done < count;) {
        const int64_t now = count - done < SERIAL_CHUNK ? count - done : SERIAL_CHUNK;
        for (int64_t i = 0; i < now; i++, at += TG_WORD_BYTES) {
            uint32_t word;
            memcpy(&word, at, sizeof word);
            for (int b = 0; b < TG_WORD_BYTES; b++) little[TG_WORD_BYTES * i + b] = (unsigned char)(word >> (8 * b));
        }
        tg_text_bytes(w->out, little, (size_t)now * TG_WORD_BYTES);
        done += now;
    }
}

static void serial_put_shape(serial_writer *w, tg_shape shape) {
    serial_put_u8(w, (uint8_t)shape.rank);
    for (int32_t i = 0; i < shape.rank; i++) serial_put_u32(w, (uint32_t)shape.dim[i]);
}

/* The position of a file name in the list, which it is added to if it is new. -1 without memory. */
static int64_t serial_file_index(serial_writer *w, const char *file) {
    for (int64_t i = w->files.count; i-- > 0;)
        if (w->files.items[i] == file) return i;
    for (int64_t i = w->files.count; i-- > 0;)
        if (strcmp(w->files.items[i], file) == 0) return i;
    void *items = w->files.items;
    const bool room = tg_grow(w->g->ctx, &items, &w->files.capacity, w->files.count + 1, sizeof *w->files.items);
    w->files.items = items;
    if (!room) return -1;
    w->files.items[w->files.count] = file;
    return w->files.count++;
}

static bool serial_collect_files(serial_writer *w) {
    const tg_graph *g = w->g;
    for (int64_t i = 1; i < g->nodes.count; i++)
        if (serial_file_index(w, g->nodes.items[i].site.file) < 0) return false;
    for (int64_t i = 0; i < g->writebacks.count; i++)
        if (serial_file_index(w, g->writebacks.items[i].site.file) < 0) return false;
    for (int64_t i = 0; i < g->checks.count; i++)
        if (serial_file_index(w, g->checks.items[i].site.file) < 0) return false;
    return true;
}

static void serial_put_site(serial_writer *w, tg_site site) {
    serial_put_u32(w, (uint32_t)serial_file_index(w, site.file));
    serial_put_u32(w, (uint32_t)site.line);
}

static void serial_put_const(serial_writer *w, const tg_node *node) {
    serial_put_u8(w, node->attr.data != NULL);
    if (!node->attr.data) serial_put_f64(w, node->attr.value);
    else if (tg_dtype_bytes(node->dtype) == 1) tg_text_bytes(w->out, node->attr.data, (size_t)tg_shape_count(node->shape));
    else serial_put_words(w, node->attr.data, tg_shape_count(node->shape));
}

static void serial_put_attributes(serial_writer *w, const tg_node *node) {
    switch (serial_form_of(node->op)) {
    case SERIAL_PLAIN: break;
    case SERIAL_AXES: serial_put_u32(w, node->attr.axes); break;
    case SERIAL_AXIS: serial_put_u32(w, (uint32_t)node->attr.axis); break;
    case SERIAL_PERM:
        for (int32_t i = 0; i < node->shape.rank; i++) serial_put_u8(w, (uint8_t)node->attr.perm[i]);
        break;
    case SERIAL_BOX:
        for (int32_t i = 0; i < node->shape.rank; i++) serial_put_i64(w, node->attr.start[i]);
        break;
    case SERIAL_CONST: serial_put_const(w, node); break;
    case SERIAL_LEAF: serial_put_u32(w, (uint32_t)node->attr.leaf); break;
    case SERIAL_OFFSETS:
        for (int32_t i = 0; i < node->input_count; i++) serial_put_i64(w, node->attr.offsets[i]);
        break;
    case SERIAL_DRAW:
        serial_put_u32(w, (uint32_t)node->attr.stream);
        serial_put_f64(w, node->attr.value);
        break;
    case SERIAL_WINDOW:
        serial_put_u32(w, (uint32_t)node->attr.axis);
        serial_put_i64(w, node->attr.window.size);
        serial_put_i64(w, node->attr.window.stride);
        serial_put_i64(w, node->attr.window.dilation);
        break;
    case SERIAL_ATTENTION:
        serial_put_u8(w, node->attr.causal);
        serial_put_f64(w, node->attr.value);
        break;
    }
}

static void serial_put_node(serial_writer *w, const tg_node *node) {
    serial_put_u8(w, (uint8_t)node->op);
    serial_put_u8(w, (uint8_t)node->dtype);
    serial_put_u32(w, (uint32_t)node->input_count);
    for (int32_t i = 0; i < node->input_count; i++) serial_put_u32(w, (uint32_t)node->inputs[i]);
    serial_put_shape(w, node->shape);
    serial_put_attributes(w, node);
    serial_put_text(w, node->name);
    serial_put_site(w, node->site);
}

static void serial_put_mark(serial_writer *w, const tg_param_mark *mark) {
    serial_put_u8(w, mark->grouped);
    serial_put_u8(w, mark->matrix);
    serial_put_u8(w, mark->frozen);
    serial_put_u8(w, mark->plain);
    serial_put_u8(w, (uint8_t)mark->decay);
    serial_put_f64(w, mark->rate);
    serial_put_f64(w, mark->weight_decay);
}

static void serial_put_param(serial_writer *w, const tg_param_info *param) {
    const bool literal = param->init.kind == TG_INIT_LITERAL;
    serial_put_text(w, param->name);
    serial_put_shape(w, param->shape);
    serial_put_u8(w, (uint8_t)param->init.kind);
    serial_put_f64(w, param->init.scale);
    if (literal) serial_put_words(w, param->init.data, param->init.count);
    serial_put_u8(w, param->decay);
    serial_put_u8(w, param->frozen);
    serial_put_mark(w, &param->mark);
    serial_put_u32(w, (uint32_t)param->node);
}

static void serial_put_tables(serial_writer *w) {
    const tg_graph *g = w->g;
    serial_put_u32(w, (uint32_t)g->inputs.count);
    for (int64_t i = 0; i < g->inputs.count; i++) {
        serial_put_text(w, g->inputs.items[i].name);
        serial_put_shape(w, g->inputs.items[i].shape);
        serial_put_u8(w, (uint8_t)g->inputs.items[i].dtype);
        serial_put_u32(w, (uint32_t)g->inputs.items[i].node);
    }
    serial_put_u32(w, (uint32_t)g->params.count);
    for (int64_t i = 0; i < g->params.count; i++) serial_put_param(w, &g->params.items[i]);
    serial_put_u32(w, (uint32_t)g->states.count);
    for (int64_t i = 0; i < g->states.count; i++) {
        serial_put_text(w, g->states.items[i].name);
        serial_put_shape(w, g->states.items[i].shape);
        serial_put_u8(w, (uint8_t)g->states.items[i].dtype);
        serial_put_f64(w, g->states.items[i].value);
        serial_put_u32(w, (uint32_t)g->states.items[i].node);
    }
}

static void serial_put_roots(serial_writer *w) {
    const tg_graph *g = w->g;
    serial_put_u32(w, (uint32_t)g->captures.count);
    for (int64_t i = 0; i < g->captures.count; i++) {
        serial_put_text(w, g->captures.items[i].name);
        serial_put_u32(w, (uint32_t)g->captures.items[i].node);
    }
    serial_put_u32(w, (uint32_t)g->writebacks.count);
    for (int64_t i = 0; i < g->writebacks.count; i++) {
        serial_put_u32(w, (uint32_t)g->writebacks.items[i].destination);
        serial_put_u32(w, (uint32_t)g->writebacks.items[i].source);
        serial_put_site(w, g->writebacks.items[i].site);
    }
    serial_put_u32(w, (uint32_t)g->checks.count);
    for (int64_t i = 0; i < g->checks.count; i++) {
        const tg_index_check *check = &g->checks.items[i];
        serial_put_u32(w, (uint32_t)check->node);
        serial_put_i64(w, check->lo);
        serial_put_i64(w, check->hi);
        serial_put_u8(w, check->has_ignore);
        serial_put_u32(w, (uint32_t)check->ignore);
        serial_put_text(w, check->op);
        serial_put_site(w, check->site);
    }
    serial_put_u32(w, (uint32_t)g->result);
}

static void serial_put_all(serial_writer *w) {
    tg_text_bytes(w->out, serial_magic, sizeof serial_magic);
    serial_put_u32(w, SERIAL_VERSION);
    serial_put_u32(w, TG_OP_COUNT);
    for (int op = 0; op < TG_OP_COUNT; op++) serial_put_text(w, tg_op_table[op].name);
    serial_put_u32(w, (uint32_t)w->files.count);
    for (int64_t i = 0; i < w->files.count; i++) serial_put_text(w, w->files.items[i]);
    serial_put_u32(w, (uint32_t)(w->g->nodes.count - 1));
    for (int64_t i = 1; i < w->g->nodes.count; i++) serial_put_node(w, &w->g->nodes.items[i]);
    serial_put_tables(w);
    serial_put_roots(w);
}

tg_status tg_graph_write(const tg_graph *g, tg_text_buffer *bytes) {
    serial_writer writer;
    memset(&writer, 0, sizeof writer);
    writer.g = g;
    writer.out = bytes;
    tg_status status = tg_graph_verify(g);
    if (status == TG_OK && !serial_collect_files(&writer)) status = TG_ERROR_MEMORY;
    if (status == TG_OK) serial_put_all(&writer);
    if (status == TG_OK && bytes->failed) status = TG_ERROR_MEMORY;
    tg_release(g->ctx, writer.files.items, (size_t)writer.files.capacity * sizeof *writer.files.items);
    return status;
}

/* ---------------------------------------------------------------- reading */

/* After the first fault `status` stays set, and each take gives 0 or NULL. */
typedef struct serial_reader {
    tg_graph *g;
    const unsigned char *at, *end;
    tg_status status;
    /* [op_count]: the file's operations; TG_OP_POISON for one this version does not know */
    const tg_op *ops;
    int64_t op_count;
    const char **files;
    int64_t file_count;
} serial_reader;

static void serial_refuse(serial_reader *r, const char *format, ...) TG_PRINTF(2, 3);
static void serial_refuse(serial_reader *r, const char *format, ...) {
    char why[2 * TG_RULE_MESSAGE];
    if (r->status != TG_OK) return;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(why, sizeof why, format, arguments) < 0) why[0] = '\0';
    va_end(arguments);
    r->status = tg_fail(r->g->ctx, TG_ERROR_FORMAT, TG_SITE_NONE, "graph bytes: %s", why);
}

static size_t serial_left(const serial_reader *r) { return (size_t)(r->end - r->at); }

/* The next `bytes` bytes, or NULL. */
static const unsigned char *serial_take(serial_reader *r, size_t bytes) {
    if (r->status == TG_OK && bytes > serial_left(r)) serial_refuse(r, "they end too early");
    if (r->status != TG_OK) return NULL;
    const unsigned char *taken = r->at;
    r->at += bytes;
    return taken;
}

static uint64_t serial_take_number(serial_reader *r, size_t bytes) {
    const unsigned char *at = serial_take(r, bytes);
    uint64_t value = 0;
    for (size_t i = 0; at && i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static uint8_t serial_take_u8(serial_reader *r) { return (uint8_t)serial_take_number(r, 1); }
static uint32_t serial_take_u32(serial_reader *r) { return (uint32_t)serial_take_number(r, 4); }

static int64_t serial_take_i64(serial_reader *r) {
    const uint64_t bits = serial_take_number(r, 8);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int32_t serial_take_i32(serial_reader *r) {
    const uint32_t bits = serial_take_u32(r);
    int32_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double serial_take_f64(serial_reader *r) {
    const uint64_t bits = serial_take_number(r, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool serial_take_flag(serial_reader *r) {
    const uint8_t flag = serial_take_u8(r);
    if (flag > 1) serial_refuse(r, "a flag is %u", (unsigned)flag);
    return flag == 1;
}

/* Reads a number of things of at least `smallest` bytes each; refuses more than the bytes left can
 * hold. */
static int64_t serial_take_count(serial_reader *r, size_t smallest) {
    const uint32_t count = serial_take_u32(r);
    if (r->status == TG_OK && (count > serial_left(r) / smallest || count >= INT32_MAX))
        serial_refuse(r, "%lu things of %zu bytes are announced, %zu bytes are left", (unsigned long)count, smallest, serial_left(r));
    return r->status == TG_OK ? (int64_t)count : 0;
}

static void *serial_keep(serial_reader *r, size_t bytes) {
    if (r->status != TG_OK) return NULL;
    void *kept = tg_arena_alloc(&r->g->arena, bytes);
    if (!kept) r->status = TG_ERROR_MEMORY;
    return kept;
}

/* Reads a text into the arena; NULL if it is absent or after a fault. */
static const char *serial_take_text(serial_reader *r) {
    const uint32_t length = serial_take_u32(r);
    if (r->status != TG_OK || length == SERIAL_NO_TEXT) return NULL;
    const unsigned char *bytes = serial_take(r, length);
    if (bytes && length && memchr(bytes, 0, length)) serial_refuse(r, "a text holds a zero byte");
    char *text = serial_keep(r, (size_t)length + 1);
    if (text && length) memcpy(text, bytes, length);
    return text;
}

static const char *serial_take_needed_text(serial_reader *r) {
    const char *text = serial_take_text(r);
    if (!text) serial_refuse(r, "a text is missing");
    return text;
}

static tg_shape serial_take_shape(serial_reader *r) {
    char why[TG_RULE_MESSAGE];
    tg_shape shape = TG_SCALAR;
    const uint8_t rank = serial_take_u8(r);
    if (rank > TG_MAX_RANK) serial_refuse(r, "a rank is %u", (unsigned)rank);
    if (r->status != TG_OK) return shape;
    shape.rank = rank;
    for (int32_t i = 0; i < shape.rank; i++) shape.dim[i] = serial_take_u32(r);
    if (r->status == TG_OK && tg_shape_check(shape, why, sizeof why) != TG_OK) serial_refuse(r, "%s", why);
    return r->status == TG_OK ? shape : TG_SCALAR;
}

static tg_dtype serial_take_dtype(serial_reader *r) {
    const uint8_t dtype = serial_take_u8(r);
    if (!tg_dtype_valid((tg_dtype)dtype)) serial_refuse(r, "an element type is %u", (unsigned)dtype);
    return r->status == TG_OK ? (tg_dtype)dtype : TG_F32;
}

/* Reads count elements of one word each into the arena, in the machine's byte order. */
static void *serial_take_words(serial_reader *r, int64_t count) {
    const bool fits = (uint64_t)count <= serial_left(r) / TG_WORD_BYTES;
    const unsigned char *at = serial_take(r, fits ? (size_t)count * TG_WORD_BYTES : SIZE_MAX);
    unsigned char *words = at ? serial_keep(r, (size_t)count * TG_WORD_BYTES) : NULL;
    for (int64_t i = 0; words && i < count; i++, at += TG_WORD_BYTES) {
        const uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        memcpy(words + TG_WORD_BYTES * i, &word, sizeof word);
    }
    return words;
}

/* ---- header */

static tg_op serial_op_named(const char *name) {
    for (int op = 1; op < TG_OP_COUNT; op++)
        if (strcmp(tg_op_table[op].name, name) == 0) return (tg_op)op;
    return TG_OP_POISON;
}

static void serial_take_header(serial_reader *r) {
    const unsigned char *magic = serial_take(r, sizeof serial_magic);
    if (magic && memcmp(magic, serial_magic, sizeof serial_magic) != 0) serial_refuse(r, "these are not a graph");
    const uint32_t version = serial_take_u32(r);
    if (r->status == TG_OK && version != SERIAL_VERSION) serial_refuse(r, "version %lu is not %d", (unsigned long)version, SERIAL_VERSION);
    r->op_count = serial_take_count(r, 4);
    tg_op *ops = serial_keep(r, (size_t)r->op_count * sizeof *ops);
    for (int64_t i = 0; i < r->op_count && r->status == TG_OK; i++) {
        const char *name = serial_take_needed_text(r);
        if (name) ops[i] = serial_op_named(name);
    }
    r->ops = ops;
    r->file_count = serial_take_count(r, 4);
    r->files = serial_keep(r, (size_t)r->file_count * sizeof *r->files);
    for (int64_t i = 0; i < r->file_count && r->status == TG_OK; i++) r->files[i] = serial_take_needed_text(r);
}

static tg_site serial_take_site(serial_reader *r) {
    const uint32_t file = serial_take_u32(r);
    const int32_t line = serial_take_i32(r);
    if (r->status == TG_OK && file >= r->file_count) serial_refuse(r, "a source file has number %lu", (unsigned long)file);
    return r->status == TG_OK ? tg_site_make(r->files[file], line) : TG_SITE_NONE;
}

/* ---- nodes */

static void serial_take_const(serial_reader *r, tg_node *node) {
    const int64_t count = tg_shape_count(node->shape);
    if (!serial_take_flag(r)) {
        node->attr.value = serial_take_f64(r);
        return;
    }
    if (tg_dtype_bytes(node->dtype) == TG_WORD_BYTES) {
        node->attr.data = serial_take_words(r, count);
        return;
    }
    const unsigned char *flags = serial_take(r, (size_t)count);
    for (int64_t i = 0; flags && i < count; i++)
        if (flags[i] > 1) serial_refuse(r, "a bool is %u", (unsigned)flags[i]);
    unsigned char *copy = serial_keep(r, (size_t)count);
    if (copy) memcpy(copy, flags, (size_t)count);
    node->attr.data = copy;
}

static void serial_take_offsets(serial_reader *r, tg_node *node) {
    int64_t *offsets = serial_keep(r, (size_t)node->input_count * sizeof *offsets);
    for (int32_t i = 0; offsets && i < node->input_count; i++) offsets[i] = serial_take_i64(r);
    node->attr.offsets = offsets;
}

static void serial_take_attributes(serial_reader *r, tg_node *node) {
    switch (serial_form_of(node->op)) {
    case SERIAL_PLAIN: break;
    case SERIAL_AXES: node->attr.axes = serial_take_u32(r); break;
    case SERIAL_AXIS: node->attr.axis = serial_take_i32(r); break;
    case SERIAL_PERM:
        for (int32_t i = 0; i < node->shape.rank; i++) node->attr.perm[i] = serial_take_u8(r);
        break;
    case SERIAL_BOX:
        for (int32_t i = 0; i < node->shape.rank; i++) node->attr.start[i] = serial_take_i64(r);
        break;
    case SERIAL_CONST: serial_take_const(r, node); break;
    case SERIAL_LEAF: node->attr.leaf = serial_take_i32(r); break;
    case SERIAL_OFFSETS: serial_take_offsets(r, node); break;
    case SERIAL_DRAW:
        node->attr.stream = serial_take_i32(r);
        node->attr.value = serial_take_f64(r);
        break;
    case SERIAL_WINDOW:
        node->attr.axis = serial_take_i32(r);
        node->attr.window.size = serial_take_i64(r);
        node->attr.window.stride = serial_take_i64(r);
        node->attr.window.dilation = serial_take_i64(r);
        break;
    case SERIAL_ATTENTION:
        node->attr.causal = serial_take_flag(r);
        node->attr.value = serial_take_f64(r);
        break;
    }
}

static void serial_take_inputs(serial_reader *r, tg_node *node) {
    node->input_count = (int32_t)serial_take_count(r, 4);
    int32_t *inputs = node->input_count ? serial_keep(r, (size_t)node->input_count * sizeof *inputs) : NULL;
    for (int32_t i = 0; inputs && i < node->input_count; i++) inputs[i] = serial_take_i32(r);
    node->inputs = inputs;
}

/* Nothing may look at a node's inputs before they are checked: the shape rule runs here, node by
 * node. */
static void serial_add_node(serial_reader *r, tg_node node) {
    tg_graph *g = r->g;
    tg_rule rule;
    const tg_status status = tg_rule_apply(&rule, g, &node, (int32_t)g->nodes.count);
    if (status == TG_ERROR_MEMORY) {
        r->status = status;
        return;
    }
    if (status != TG_OK) serial_refuse(r, "node %lld: %s: %s", (long long)g->nodes.count, tg_op_table[node.op].name, rule.message);
    if (r->status != TG_OK) return;
    bool room;
    TG_LIST_ROOM(g, nodes, room);
    if (!room) {
        r->status = TG_ERROR_MEMORY;
        return;
    }
    g->nodes.items[g->nodes.count++] = node;
}

static void serial_take_node(serial_reader *r) {
    tg_node node;
    memset(&node, 0, sizeof node);
    const uint8_t op = serial_take_u8(r);
    if (r->status == TG_OK && (op >= r->op_count || r->ops[op] == TG_OP_POISON))
        serial_refuse(r, "node %lld: this version does not know operation %u", (long long)r->g->nodes.count, (unsigned)op);
    if (r->status != TG_OK) return;
    node.op = r->ops[op];
    node.dtype = serial_take_dtype(r);
    serial_take_inputs(r, &node);
    node.shape = serial_take_shape(r);
    serial_take_attributes(r, &node);
    node.name = serial_take_text(r);
    node.site = serial_take_site(r);
    if (r->status == TG_OK) serial_add_node(r, node);
}

/* ---- tables */

/* Makes room for one more entry in a list of the graph. A statement. */
#define SERIAL_ROOM(r, list) \
  do { \
    bool serial_room_; \
    TG_LIST_ROOM((r)->g, list, serial_room_); \
    if (!serial_room_) (r)->status = TG_ERROR_MEMORY; \
  } while (0)

static void serial_take_input_entry(serial_reader *r) {
    tg_input_info entry;
    entry.name = serial_take_needed_text(r);
    entry.shape = serial_take_shape(r);
    entry.dtype = serial_take_dtype(r);
    entry.node = serial_take_i32(r);
    entry.any = 0;
    if (r->status == TG_OK) SERIAL_ROOM(r, inputs);
    if (r->status == TG_OK) r->g->inputs.items[r->g->inputs.count++] = entry;
}

static tg_param_mark serial_take_mark(serial_reader *r, tg_shape shape) {
    tg_param_mark mark;
    memset(&mark, 0, sizeof mark);
    mark.grouped = serial_take_flag(r);
    mark.matrix = serial_take_flag(r);
    mark.frozen = serial_take_flag(r);
    mark.plain = serial_take_flag(r);
    const uint8_t decay = serial_take_u8(r);
    mark.rate = serial_take_f64(r);
    mark.weight_decay = serial_take_f64(r);
    if (decay > TG_NO) serial_refuse(r, "a parameter's choice of decay is %u", (unsigned)decay);
    else mark.decay = (tg_choice)decay;
    if (!(mark.rate >= 0.0 && mark.rate <= DBL_MAX && mark.weight_decay <= DBL_MAX))
        serial_refuse(r, "a parameter's rate is %g and its decay %g", mark.rate, mark.weight_decay);
    if (mark.matrix && shape.rank < 2) serial_refuse(r, "a parameter of rank %ld is a matrix", (long)shape.rank);
    return mark;
}

static void serial_take_param_entry(serial_reader *r) {
    tg_param_info entry;
    memset(&entry, 0, sizeof entry);
    entry.name = serial_take_needed_text(r);
    entry.shape = serial_take_shape(r);
    const uint8_t kind = serial_take_u8(r);
    if (kind > TG_INIT_LITERAL) serial_refuse(r, "an initial value has kind %u", (unsigned)kind);
    entry.init.kind = r->status == TG_OK ? (tg_init_kind)kind : TG_INIT_ZEROS;
    entry.init.scale = serial_take_f64(r);
    if (entry.init.kind == TG_INIT_LITERAL) {
        entry.init.count = tg_shape_count(entry.shape);
        entry.init.data = serial_take_words(r, entry.init.count);
    }
    entry.decay = serial_take_flag(r);
    entry.frozen = serial_take_flag(r);
    entry.mark = serial_take_mark(r, entry.shape);
    entry.node = serial_take_i32(r);
    if (r->status == TG_OK) SERIAL_ROOM(r, params);
    if (r->status == TG_OK) r->g->params.items[r->g->params.count++] = entry;
}

static void serial_take_state_entry(serial_reader *r) {
    tg_state_info entry;
    entry.name = serial_take_needed_text(r);
    entry.shape = serial_take_shape(r);
    entry.dtype = serial_take_dtype(r);
    entry.value = serial_take_f64(r);
    entry.node = serial_take_i32(r);
    if (r->status == TG_OK) SERIAL_ROOM(r, states);
    if (r->status == TG_OK) r->g->states.items[r->g->states.count++] = entry;
}

static void serial_take_capture(serial_reader *r) {
    tg_capture_info entry;
    entry.name = serial_take_needed_text(r);
    entry.node = serial_take_i32(r);
    if (r->status == TG_OK) SERIAL_ROOM(r, captures);
    if (r->status == TG_OK) r->g->captures.items[r->g->captures.count++] = entry;
}

static void serial_take_writeback(serial_reader *r) {
    tg_writeback_info entry;
    entry.destination = serial_take_i32(r);
    entry.source = serial_take_i32(r);
    entry.site = serial_take_site(r);
    if (r->status == TG_OK) SERIAL_ROOM(r, writebacks);
    if (r->status == TG_OK) r->g->writebacks.items[r->g->writebacks.count++] = entry;
}

static void serial_take_index_check(serial_reader *r) {
    tg_index_check entry;
    entry.node = serial_take_i32(r);
    entry.lo = serial_take_i64(r);
    entry.hi = serial_take_i64(r);
    entry.has_ignore = serial_take_flag(r);
    entry.ignore = serial_take_i32(r);
    entry.op = serial_take_needed_text(r);
    entry.site = serial_take_site(r);
    if (r->status == TG_OK) SERIAL_ROOM(r, checks);
    if (r->status == TG_OK) r->g->checks.items[r->g->checks.count++] = entry;
}

#undef SERIAL_ROOM

static void serial_take_many(serial_reader *r, size_t smallest, void (*take)(serial_reader *r)) {
    const int64_t count = serial_take_count(r, smallest);
    for (int64_t i = 0; i < count && r->status == TG_OK; i++) take(r);
}

static void serial_take_all(serial_reader *r) {
    serial_take_header(r);
    serial_take_many(r, SERIAL_NODE_BYTES, serial_take_node);
    serial_take_many(r, 10, serial_take_input_entry);
    serial_take_many(r, 41, serial_take_param_entry);
    serial_take_many(r, 18, serial_take_state_entry);
    serial_take_many(r, 8, serial_take_capture);
    serial_take_many(r, 16, serial_take_writeback);
    serial_take_many(r, 37, serial_take_index_check);
    r->g->result = serial_take_i32(r);
    if (r->status == TG_OK && r->at != r->end) serial_refuse(r, "%zu bytes too many", serial_left(r));
}

tg_graph *tg_graph_read(tg_context *ctx, const void *bytes, size_t size) {
    serial_reader reader;
    memset(&reader, 0, sizeof reader);
    reader.g = tg_graph_create(ctx);
    if (!reader.g) return NULL;
    static const unsigned char nothing[1] = {0};
    reader.at = bytes ? bytes : nothing;
    reader.end = reader.at + (bytes ? size : 0);
    serial_take_all(&reader);
    if (reader.status == TG_OK) {
        char why[2 * TG_RULE_MESSAGE - 64];
        const tg_status status = tg_graph_check(reader.g, why, sizeof why);
        if (status == TG_ERROR_MEMORY) reader.status = status;
        else if (status != TG_OK) serial_refuse(&reader, "%s", why);
    }
    if (reader.status == TG_OK) return reader.g;
    tg_graph_destroy(reader.g);
    return NULL;
}

#undef SERIAL_NO_TEXT
