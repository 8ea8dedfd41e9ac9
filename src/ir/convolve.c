/* convolve: convolutions composed of windows, contractions and folds, for the public operations and
 * for gradients.
 *   x [N, G, C, in...], w [1 or N, G, O, C, taps...] <-> y [N, G, O, out...]
 *   y[o] = sum over c, k of w[o, c, k] x[c, out stride + k dilation]
 * One contraction with the batch (N, G): O x (C taps) times (C taps) x out; the windows are index
 * arithmetic. The caller pads. Must not know gradients or the public operations. */
#include "ir/graph.h"

enum { CONVOLVE_BATCH = 2, CONVOLVE_LEAD = 3 }; /* axes N, G; and C or O */

static int64_t convolve_count(const int64_t *dims, int count) {
    int64_t product = 1;
    for (int i = 0; i < count; i++) product *= dims[i];
    return product;
}

static int32_t convolve_reshape(tg_graph *g, int32_t x, int64_t batch, int64_t rows, int64_t columns) {
    return tg_ir_reshape(g, x, tg_shape_make(3, (const int64_t[]){batch, rows, columns}));
}

/* x [N, G, C, in...] -> [N G, C taps, out]. */
static int32_t convolve_columns(tg_graph *g, int32_t x, const tg_window *windows, int count) {
    int32_t perm[TG_MAX_RANK] = {0, 1, 2};
    for (int i = 0; i < count; i++) x = tg_ir_window(g, x, CONVOLVE_LEAD + i, windows[i]);
    if (x == 0) return 0;
    const tg_shape shape = tg_graph_node(g, x)->shape;
    for (int i = 0; i < count; i++) {
        perm[CONVOLVE_LEAD + i] = CONVOLVE_LEAD + count + i;
        perm[CONVOLVE_LEAD + count + i] = CONVOLVE_LEAD + i;
    }
    const int64_t taps = convolve_count(shape.dim + CONVOLVE_LEAD + count, count);
    return convolve_reshape(g, tg_ir_permute(g, x, perm), convolve_count(shape.dim, CONVOLVE_BATCH), shape.dim[2] * taps,
                            convolve_count(shape.dim + CONVOLVE_LEAD, count));
}

/* w [1 or N, G, rows, columns, taps...] -> [N G, rows, columns taps]. The repeat over N comes just
 * before the last reshape, where the gradient of a contraction looks for it. */
static int32_t convolve_matrix(tg_graph *g, int32_t w, int64_t n, int count) {
    if (w == 0) return 0;
    const tg_shape shape = tg_graph_node(g, w)->shape;
    const int64_t columns = shape.dim[3] * convolve_count(shape.dim + CONVOLVE_LEAD + 1, count);
    tg_shape matrix = tg_shape_make(4, (const int64_t[]){shape.dim[0], shape.dim[1], shape.dim[2], columns});
    w = tg_ir_reshape(g, w, matrix);
    matrix.dim[0] = n;
    return convolve_reshape(g, tg_ir_broadcast(g, w, matrix), n * shape.dim[1], shape.dim[2], columns);
}

/* [N G, rows, columns] -> [N, G, rows, dims...] */
static int32_t convolve_open(tg_graph *g, int32_t product, const int64_t *batch, int64_t rows, const int64_t *dims, int count) {
    tg_shape shape = tg_shape_make(3, (const int64_t[]){batch[0], batch[1], rows});
    for (int i = 0; i < count; i++) shape.dim[shape.rank++] = dims[i];
    return tg_ir_reshape(g, product, shape);
}

int32_t tg_ir_convolve(tg_graph *g, int32_t x, int32_t w, const tg_window *windows, int count) {
    if (x == 0 || w == 0) return 0;
    const tg_shape in = tg_graph_node(g, x)->shape, weight = tg_graph_node(g, w)->shape;
    int64_t out[TG_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) out[i] = (in.dim[CONVOLVE_LEAD + i] - tg_window_span(windows[i])) / windows[i].stride + 1;
    const int32_t columns = convolve_columns(g, x, windows, count);
    const int32_t product = tg_ir_contract(g, convolve_matrix(g, w, in.dim[0], count), columns);
    return convolve_open(g, product, in.dim, weight.dim[2], out, count);
}

/* w [., G, O, C, taps...] -> [., G, C, O, taps...], with the taps reversed if `reversed`. */
static int32_t convolve_turned(tg_graph *g, int32_t w, int count, bool reversed) {
    const int32_t perm[TG_MAX_RANK] = {0, 1, 3, 2, 4, 5, 6, 7};
    const uint32_t taps = ((1u << count) - 1u) << (CONVOLVE_LEAD + 1);
    return tg_ir_permute(g, reversed ? tg_ir_flip(g, w, taps) : w, perm);
}

/* For strides of 1, elements [before, before + dims) of the whole result: an ordinary convolution of
 * the padded y with the taps reversed. What is left out on a side is less than the windows span. */
static int32_t convolve_back_strides_of_one(tg_graph *g, int32_t y, int32_t w, const tg_window *windows, int count, const int64_t *before,
                                            const int64_t *dims) {
    tg_shape padded = tg_graph_node(g, y)->shape;
    int64_t start[TG_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        start[CONVOLVE_LEAD + i] = tg_window_span(windows[i]) - 1 - before[i];
        padded.dim[CONVOLVE_LEAD + i] = dims[i] + tg_window_span(windows[i]) - 1;
    }
    return tg_ir_convolve(g, tg_ir_pad(g, y, start, padded), convolve_turned(g, w, count, true), windows, count);
}

int32_t tg_ir_convolve_back(tg_graph *g, int32_t y, int32_t w, const tg_window *windows, int count) {
    if (y == 0 || w == 0) return 0;
    const tg_shape out = tg_graph_node(g, y)->shape, weight = tg_graph_node(g, w)->shape;
    int64_t none[2] = {0}, whole[2] = {0};
    bool ones = true;
    for (int i = 0; i < count; i++) {
        ones = ones && windows[i].stride == 1;
        whole[i] = out.dim[CONVOLVE_LEAD + i] + tg_window_span(windows[i]) - 1;
    }
    if (ones) return convolve_back_strides_of_one(g, y, w, windows, count, none, whole);
    int32_t perm[TG_MAX_RANK] = {0, 1, 2};
    int64_t dims[TG_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        dims[i] = windows[i].size;
        dims[count + i] = out.dim[CONVOLVE_LEAD + i];
        perm[CONVOLVE_LEAD + i] = CONVOLVE_LEAD + count + i;
        perm[CONVOLVE_LEAD + count + i] = CONVOLVE_LEAD + i;
    }
    /* w^T y, [N G, C taps, out]; then the folds add up what falls on the same element */
    int32_t turned = convolve_turned(g, w, count, false);
    const int32_t apart[TG_MAX_RANK] = {0, 1, 2, 4, 3}, apart2[TG_MAX_RANK] = {0, 1, 2, 4, 5, 3};
    turned = tg_ir_permute(g, turned, count == 1 ? apart : apart2); /* [., G, C, taps..., O] */
    if (turned == 0) return 0;
    tg_shape merged = tg_graph_node(g, turned)->shape;
    merged = tg_shape_make(4, (const int64_t[]){merged.dim[0], merged.dim[1], weight.dim[3] * convolve_count(dims, count), weight.dim[2]});
    const int32_t columns =
        convolve_reshape(g, y, convolve_count(out.dim, CONVOLVE_BATCH), out.dim[2], convolve_count(dims + count, count));
    int32_t x = tg_ir_contract(g, convolve_matrix(g, tg_ir_reshape(g, turned, merged), out.dim[0], 0), columns);
    x = tg_ir_permute(g, convolve_open(g, x, out.dim, weight.dim[3], dims, 2 * count), perm);
    for (int i = count - 1; i >= 0; i--)
        x = tg_ir_fold(g, x, CONVOLVE_LEAD + i, windows[i],
                       (out.dim[CONVOLVE_LEAD + i] - 1) * windows[i].stride + tg_window_span(windows[i]));
    return x;
}

/* The input of `id` if that node is an `op` that `stops` lets pass, else 0. */
static int32_t convolve_before(const tg_graph *g, int32_t id, tg_op op, const uint8_t *stops, int stop) {
    const tg_node *node = tg_graph_node(g, id);
    return id == 0 || node->op != op || (stops[id] & stop) != 0 ? 0 : node->inputs[0];
}

/* If the source is padded along the axes of the windows, and no window fits into the padding of a
 * side, the padding's input is the source. */
static void convolve_pass_padding(const tg_graph *g, tg_columns *out) {
    const tg_node *pad = tg_graph_node(g, out->source);
    if (pad->op != TG_OP_PAD) return;
    const tg_shape inner = tg_graph_node(g, pad->inputs[0])->shape;
    for (int i = 0; i < CONVOLVE_LEAD; i++)
        if (inner.dim[i] != pad->shape.dim[i]) return;
    for (int i = 0; i < out->count; i++) {
        const int64_t before = pad->attr.start[CONVOLVE_LEAD + i], after = out->whole[i] - before - inner.dim[CONVOLVE_LEAD + i];
        const int64_t span = tg_window_span(out->window[i]);
        if (before >= span || after >= span) return;
    }
    for (int i = 0; i < out->count; i++) out->before[i] = pad->attr.start[CONVOLVE_LEAD + i];
    out->source = pad->inputs[0];
}

bool tg_ir_find_columns(const tg_graph *g, int32_t operand, const uint8_t *stops, int stop, tg_columns *out) {
    int32_t at = convolve_before(g, operand, TG_OP_RESHAPE, stops, stop);
    const int32_t permuted = at;
    tg_window reversed[2];
    at = convolve_before(g, at, TG_OP_PERMUTE, stops, stop);
    if (at == 0) return false;
    const tg_shape shape = tg_graph_node(g, at)->shape;
    int count = 0;
    for (; count < 2 && tg_graph_node(g, at)->op == TG_OP_WINDOW; count++) {
        reversed[count] = tg_graph_node(g, at)->attr.window;
        if ((stops[at] & stop) != 0) return false;
        at = tg_graph_node(g, at)->inputs[0];
    }
    if (count == 0 || tg_graph_node(g, at)->shape.rank != CONVOLVE_LEAD + count) return false;
    int32_t window = tg_graph_node(g, permuted)->inputs[0];
    for (int i = count - 1; i >= 0; i--, window = tg_graph_node(g, window)->inputs[0])
        if (tg_graph_node(g, window)->attr.axis != CONVOLVE_LEAD + i) return false;
    const int32_t *perm = tg_graph_node(g, permuted)->attr.perm;
    for (int i = 0; i < shape.rank; i++) {
        const int32_t wanted = i < CONVOLVE_LEAD ? i : i < CONVOLVE_LEAD + count ? i + count : i - count;
        if (perm[i] != wanted) return false;
    }
    const int64_t dims[3] = {convolve_count(shape.dim, CONVOLVE_BATCH),
                             shape.dim[2] * convolve_count(shape.dim + CONVOLVE_LEAD + count, count),
                             convolve_count(shape.dim + CONVOLVE_LEAD, count)};
    if (!tg_shape_equal(tg_graph_node(g, operand)->shape, tg_shape_make(3, dims))) return false;
    *out = (tg_columns){.source = at, .count = count};
    for (int i = 0; i < count; i++) {
        out->window[i] = reversed[count - 1 - i];
        out->whole[i] = tg_graph_node(g, at)->shape.dim[CONVOLVE_LEAD + i];
    }
    if ((stops[at] & stop) == 0) convolve_pass_padding(g, out);
    return true;
}

/* matrix [N G, O, C taps] -> [1 or N, G, O, C, taps...] */
static int32_t convolve_weight(tg_graph *g, int32_t matrix, const int64_t *batch, int64_t channels, const tg_columns *columns) {
    const tg_shape shape = tg_graph_node(g, matrix)->shape;
    tg_shape open = tg_shape_make(4, (const int64_t[]){batch[0], batch[1], shape.dim[1], channels});
    const tg_node *node = tg_graph_node(g, matrix);
    if (node->op == TG_OP_RESHAPE && tg_graph_node(g, node->inputs[0])->op == TG_OP_BROADCAST) {
        const int32_t repeated = tg_graph_node(g, node->inputs[0])->inputs[0];
        const tg_shape from = tg_graph_node(g, repeated)->shape;
        if (from.rank == 4 && from.dim[0] == 1 && from.dim[1] == batch[1] && from.dim[2] == shape.dim[1] && from.dim[3] == shape.dim[2]) {
            matrix = repeated;
            open.dim[0] = 1;
        }
    }
    for (int i = 0; i < columns->count; i++) open.dim[open.rank++] = columns->window[i].size;
    return tg_ir_reshape(g, matrix, open);
}

int32_t tg_ir_columns_back(tg_graph *g, int32_t matrix, int32_t dy, const tg_columns *columns) {
    if (matrix == 0 || dy == 0) return 0;
    const tg_shape in = tg_graph_node(g, columns->source)->shape;
    int64_t out[2] = {0};
    for (int i = 0; i < columns->count; i++) {
        if (columns->window[i].stride != 1) return 0;
        out[i] = columns->whole[i] - tg_window_span(columns->window[i]) + 1;
    }
    const int64_t rows = tg_graph_node(g, dy)->shape.dim[1];
    const int32_t w = convolve_weight(g, matrix, in.dim, in.dim[2], columns), y = convolve_open(g, dy, in.dim, rows, out, columns->count);
    if (w == 0 || y == 0) return 0;
    return convolve_back_strides_of_one(g, y, w, columns->window, columns->count, columns->before, in.dim + CONVOLVE_LEAD);
}
