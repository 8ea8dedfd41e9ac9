/* fuzz_graph_edit: a graph from bytes (program.h) is written, then edited as a careless writer
 * might: nodes doubled, swapped, taken out; their operations, inputs, sizes and attributes changed.
 * If tg_graph_read accepts the bytes, the graph must verify, compile or be refused with a message,
 * and run. If it refuses them, no memory is left. Random bytes, as in fuzz_graph_read, seldom get
 * past the first lists. */
#include "program.h"

#include "ir/dtype.h"
#include "ir/graph.h"
#include "run/model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_NODES = 512, MOST_EDITS = 6, LONGEST = 300, MOST_COUNT = 1 << 20 };

/* ---------------------------------------------------------------- where nodes lie */

typedef struct bytes {
    uint8_t *data;
    size_t size, capacity;
} bytes;

typedef struct map {
    size_t node[MOST_NODES + 1]; /* node i is in [node[i], node[i + 1]) */
    int count;
    size_t count_at; /* the number of nodes, u32 */
} map;

static uint32_t word_at(const bytes *b, size_t at) {
    uint32_t word = 0;
    for (size_t i = 0; i < 4 && at + i < b->size; i++) word |= (uint32_t)b->data[at + i] << (8 * i);
    return word;
}

static size_t after_text(const bytes *b, size_t at) {
    const uint32_t length = word_at(b, at);
    return at + 4 + (length == UINT32_MAX ? 0 : length);
}

/* Length of the attributes of a node whose shape and inputs are known; of constants, where they
 * begin. */
static size_t attribute_bytes(const bytes *b, tg_op op, size_t at, int rank, int inputs, int64_t count, tg_dtype dtype) {
    switch (op) {
    case TG_OP_INPUT:
    case TG_OP_PARAM:
    case TG_OP_STATE:
    case TG_OP_IOTA:
    case TG_OP_SUM:
    case TG_OP_REDUCE_MAX:
    case TG_OP_REDUCE_MIN:
    case TG_OP_ARGMAX:
    case TG_OP_ARGMIN:
    case TG_OP_FLIP:
    case TG_OP_CONCAT: return 4;
    case TG_OP_RANDOM: return 12;
    case TG_OP_PERMUTE: return (size_t)rank;
    case TG_OP_SLICE:
    case TG_OP_PAD: return 8 * (size_t)rank;
    case TG_OP_PACK: return 8 * (size_t)inputs;
    case TG_OP_WINDOW:
    case TG_OP_FOLD: return 28;
    case TG_OP_CONST: return at < b->size && b->data[at] ? 1 + (size_t)count * tg_dtype_bytes(dtype) : 9;
    default: return 0;
    }
}

static size_t after_node(const bytes *b, size_t at) {
    const tg_op op = (tg_op)b->data[at];
    const tg_dtype dtype = (tg_dtype)b->data[at + 1];
    const int inputs = (int)word_at(b, at + 2);
    at += 6 + 4 * (size_t)inputs;
    const int rank = b->data[at++];
    int64_t count = 1;
    for (int i = 0; i < rank; i++, at += 4) count *= word_at(b, at);
    at += attribute_bytes(b, op, at, rank, inputs, count, dtype);
    return after_text(b, at) + 8; /* name, call site */
}

static bool make_map(const bytes *b, map *m) {
    size_t at = 12;
    const uint32_t operations = word_at(b, at);
    at += 4;
    for (uint32_t i = 0; i < operations; i++) at = after_text(b, at);
    const uint32_t files = word_at(b, at);
    at += 4;
    for (uint32_t i = 0; i < files; i++) at = after_text(b, at);
    m->count_at = at;
    m->count = (int)word_at(b, at);
    if (m->count > MOST_NODES) return false;
    at += 4;
    for (int i = 0; i <= m->count; i++) {
        m->node[i] = at;
        if (i < m->count) at = after_node(b, at);
    }
    if (at > b->size) fuzz_fail("the fuzzer does not know where nodes end");
    return true;
}

/* ---------------------------------------------------------------- edits */

static void put(bytes *b, size_t at, uint64_t value, size_t width) {
    for (size_t i = 0; i < width && at + i < b->size; i++) b->data[at + i] = (uint8_t)(value >> (8 * i));
}

static void insert(bytes *b, size_t at, const uint8_t *what, size_t length) {
    if (b->size + length > b->capacity) return;
    memmove(b->data + at + length, b->data + at, b->size - at);
    memcpy(b->data + at, what, length);
    b->size += length;
}

static void take_out(bytes *b, size_t at, size_t length) {
    memmove(b->data + at, b->data + at + length, b->size - at - length);
    b->size -= length;
}

static void copy_node(bytes *b, const map *m, int from, int before) {
    const size_t length = m->node[from + 1] - m->node[from];
    uint8_t *copy = malloc(length);
    memcpy(copy, b->data + m->node[from], length);
    insert(b, m->node[before], copy, length);
    put(b, m->count_at, (uint64_t)m->count + 1, 4);
    free(copy);
}

/* A byte, a word or a double word somewhere in [low, high) becomes another, or one more or less. */
static void change_number(fuzz_reader *r, bytes *b, size_t low, size_t high) {
    static const size_t widths[] = {1, 4, 8};
    const size_t width = widths[fuzz_below(r, 3)], at = low + fuzz_bits(r, 2) % (high - low);
    uint64_t value = word_at(b, at);
    if (fuzz_below(r, 2)) value += (uint64_t)(int64_t)(fuzz_below(r, 2) ? 1 : -1);
    else value = (uint64_t)fuzz_whole(r, 0, 16);
    put(b, at, value, width);
}

static void edit(fuzz_reader *r, bytes *b) {
    static map m;
    if (!make_map(b, &m) || m.count < 2) return;
    const int i = (int)(fuzz_bits(r, 2) % (uint32_t)m.count), j = (int)(fuzz_bits(r, 2) % (uint32_t)m.count);
    switch (fuzz_below(r, 8)) {
    case 0: copy_node(b, &m, i, j); return;
    case 1:
        take_out(b, m.node[i], m.node[i + 1] - m.node[i]);
        put(b, m.count_at, (uint64_t)m.count - 1, 4);
        return;
    /* other operation: attributes may no longer fit */
    case 2: b->data[m.node[i]] = (uint8_t)fuzz_below(r, TG_OP_COUNT); return;
    /* other input */
    case 3: put(b, m.node[i] + 6 + 4 * (size_t)fuzz_below(r, 3), (uint64_t)j, 4); return;
    /* tables */
    case 4: change_number(r, b, m.node[m.count], b->size); return;
    /* other dtype */
    case 5: b->data[m.node[i] + 1] = (uint8_t)fuzz_below(r, 4); return;
    default: change_number(r, b, m.node[i], m.node[i + 1]); return;
    }
}

/* Once the bytes cannot be mapped, later edits would test nothing: edits stop where a node lost its
 * form. */
static bool still_mapped(tg_context *ctx, const bytes *b) {
    tg_graph *g = tg_graph_read(ctx, b->data, b->size);
    tg_clear_error(ctx);
    tg_graph_destroy(g);
    return g != NULL;
}

/* ---------------------------------------------------------------- what was accepted */

static bool is_small(const tg_graph *g) {
    double all = 0;
    for (int64_t i = 1; i < g->nodes.count; i++) all += (double)tg_shape_count(g->nodes.items[i].shape);
    return all < (double)MOST_COUNT;
}

static void run_model(tg_context *ctx, tg_model *model, const tg_graph *g, bool training) {
    tg_feed *feeds = calloc((size_t)g->inputs.count + 1, sizeof *feeds);
    for (int64_t i = 0; i < g->inputs.count; i++) {
        const int64_t count = tg_shape_count(g->inputs.items[i].shape);
        feeds[i] = (tg_feed){g->inputs.items[i].name, g->inputs.items[i].dtype, calloc((size_t)count, 4), count};
    }
    const int64_t count = tg_shape_count(tg_model_output_shape(model));
    void *out = calloc((size_t)count, 4);
    float loss = 0;
    fuzz_check_status(ctx, tg_run(model, feeds, (int)g->inputs.count, out, count), "run");
    if (training) fuzz_check_status(ctx, tg_step(model, feeds, (int)g->inputs.count, &loss), "step");
    for (int64_t i = 0; i < g->inputs.count; i++) free((void *)(uintptr_t)feeds[i].data);
    free(out);
    free(feeds);
}

static void use(tg_context *ctx, const bytes *b, bool training) {
    tg_graph *g = tg_graph_read(ctx, b->data, b->size);
    if (g == NULL) {
        fuzz_check_status(ctx, tg_error(ctx), "read");
        return;
    }
    if (tg_graph_verify(g) != TG_OK) fuzz_fail("an accepted graph breaks a rule: %s", tg_error_message(ctx));
    const tg_compile_options options = {.optimizer = tg_adam(.lr = tg_lr_constant(0.01)), .device = TG_DEVICE_CPU, .threads = 1};
    tg_model *model = is_small(g) ? tg_compile_bytes(ctx, b->data, b->size, &options, training) : NULL;
    if (model != NULL) run_model(ctx, model, g, training);
    else fuzz_check_status(ctx, tg_error(ctx), "compile");
    tg_model_destroy(model);
    tg_graph_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 8 || size > LONGEST) return 0;
    tg_context *ctx = fuzz_context();
    fuzz_reader r = {data, size / 2};
    const bool training = fuzz_below(&r, 2) != 0;
    program p = program_make(data + size / 2, size - size / 2);
    tg_tensor result;
    tg_graph *g = tg_trace(ctx, training ? program_loss : program_forward, &p, &result);
    if (g != NULL) {
        tg_text_buffer text;
        tg_text_init(&text, ctx);
        if (tg_graph_write(g, &text) != TG_OK) fuzz_fail("a traced graph is not written: %s", tg_error_message(ctx));
        bytes b = {malloc(2 * text.length + 4096), text.length, 2 * text.length + 4096};
        memcpy(b.data, text.data, text.length);
        const int edits = fuzz_below(&r, MOST_EDITS + 1);
        for (int i = 0; i < edits && (i == 0 || still_mapped(ctx, &b)); i++) edit(&r, &b);
        use(ctx, &b, training);
        free(b.data);
        tg_text_free(&text);
        tg_graph_destroy(g);
    }
    fuzz_context_done(ctx);
    return 0;
}
