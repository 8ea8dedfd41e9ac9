/* update: the optimisers' formulas over the flat tensors, as graph nodes with writebacks. Formulas
 * and sources: at tg_optimizer in the public header. At most one argument of a call may make nodes:
 * C does not fix the order of arguments, and the order of nodes must not depend on it. Must not
 * know where gradients come from, nor how the flat buffers are stored. */
#include "optim/update.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- short hands */

static int32_t update_number(const tg_update *u, double value) { return tg_ir_const(u->g, TG_SCALAR, TG_F32, value); }

static int32_t update_op(const tg_update *u, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(u->g, op, a, b); }

static int32_t update_times(const tg_update *u, int32_t a, double value) { return update_op(u, TG_OP_MUL, a, update_number(u, value)); }

static tg_shape update_flat(int64_t count) { return tg_shape_make(1, &count); }

int32_t tg_update_state(const tg_update *u, const char *name) { return tg_flat_state(u->g, name, u->layout->total); }

int32_t tg_update_cut(const tg_update *u, int32_t flat, int64_t offset, int64_t count) {
    return tg_ir_slice(u->g, flat, &offset, update_flat(count));
}

/* Elements [offset, offset + count) of the flat tensors, and their new value or their update. */
typedef struct update_piece {
    int64_t offset, count;
    int32_t value;
    bool scaled; /* value is an update that is to be multiplied by `scale`, rank 0 */
    int32_t scale;
} update_piece;

/* ---------------------------------------------------------------- stores */

/* After the step the pieces of `state` have their values, if the step updates at all. Pieces in
 * order of offset. */
static bool update_store(const tg_update *u, int32_t state, const update_piece *pieces, int n) {
    int32_t *values = TG_NEW(&u->g->arena, int32_t, n);
    int64_t *offsets = TG_NEW(&u->g->arena, int64_t, n);
    if (values == NULL || offsets == NULL) return false;
    for (int i = 0; i < n; i++) {
        values[i] = pieces[i].value;
        offsets[i] = pieces[i].offset;
        if (u->applies != 0)
            values[i] = tg_ir_select(u->g, u->applies, values[i], tg_update_cut(u, state, pieces[i].offset, pieces[i].count));
    }
    const bool whole = n == 1 && pieces[0].count == u->layout->total;
    return tg_ir_writeback(u->g, state, whole ? values[0] : tg_ir_pack(u->g, values, offsets, n, u->layout->total));
}

static bool update_store_one(const tg_update *u, const char *name, int64_t offset, int64_t count, int32_t value) {
    const update_piece piece = {offset, count, value, false, 0};
    return value != 0 && update_store(u, tg_update_state(u, name), &piece, 1);
}

/* ---------------------------------------------------------------- numbers of single groups */

static double update_segment_rate(const tg_update *u, const tg_layout_segment *segment) {
    (void)u;
    return segment->rate;
}

static double update_segment_decay(const tg_update *u, const tg_layout_segment *segment) {
    if (!segment->decay) return 0.0;
    return segment->rate * (segment->weight_decay < 0.0 ? u->optimizer.weight_decay : segment->weight_decay);
}

/* rate x, where x is what `of` says of the segments under the piece: one number, or one for each
 * element. Returns 0 and sets *nothing if x is 0. */
static int32_t update_rate_times(const tg_update *u, const update_piece *piece,
                                 double (*of)(const tg_update *u, const tg_layout_segment *segment), bool *nothing) {
    const tg_layout *layout = u->layout;
    int first = 0, last;
    while (layout->segments[first].end <= piece->offset) first++;
    for (last = first; layout->segments[last].end < piece->offset + piece->count;) last++;
    const double end_value = of(u, &layout->segments[last]);
    bool uniform = true;
    for (int i = first; i < last; i++) uniform = uniform && of(u, &layout->segments[i]) == end_value;
    *nothing = uniform && end_value == 0.0;
    if (*nothing) return 0;
    if (uniform) return end_value == 1.0 ? u->rate : update_times(u, u->rate, end_value);
    int32_t index = tg_ir_iota(u->g, update_flat(piece->count), TG_I32, 0), value = update_number(u, end_value);
    for (int i = last - 1; i >= first; i--) {
        int32_t end = tg_ir_const(u->g, TG_SCALAR, TG_I32, (double)(layout->segments[i].end - piece->offset));
        int32_t before = update_op(u, TG_OP_LESS, index, end);
        value = tg_ir_select(u->g, before, update_number(u, of(u, &layout->segments[i])), value);
    }
    return update_op(u, TG_OP_MUL, value, u->rate);
}

/* ---------------------------------------------------------------- parameters */

/* p (1 - rate decay) - rate scale update */
static int32_t update_parameters(const tg_update *u, int32_t state, const update_piece *piece) {
    bool nothing;
    int32_t p = tg_update_cut(u, state, piece->offset, piece->count);
    int32_t lost = update_rate_times(u, piece, update_segment_decay, &nothing);
    if (!nothing) p = update_op(u, TG_OP_MUL, p, update_op(u, TG_OP_SUB, update_number(u, 1.0), lost));
    int32_t rate = update_rate_times(u, piece, update_segment_rate, &nothing);
    if (nothing) return p;
    if (piece->scaled) rate = update_op(u, TG_OP_MUL, rate, piece->scale);
    return update_op(u, TG_OP_SUB, p, update_op(u, TG_OP_MUL, piece->value, rate));
}

/* avg + (1 - average) (p - avg). The first update sets avg to p. */
static int32_t update_average(const tg_update *u, int32_t state, const update_piece *piece) {
    int32_t average = tg_update_cut(u, state, piece->offset, piece->count);
    int32_t change = update_times(u, update_op(u, TG_OP_SUB, piece->value, average), 1.0 - u->optimizer.average);
    int32_t later = update_op(u, TG_OP_LESS, update_number(u, 1.5), u->time);
    return tg_ir_select(u->g, later, update_op(u, TG_OP_ADD, average, change), piece->value);
}

/* The pieces hold updates, not yet multiplied by the rate. Afterwards they hold the new averages or
 * the new parameters. */
static bool update_apply(const tg_update *u, update_piece *pieces, int n) {
    int32_t state = tg_update_state(u, "tg.parameters");
    for (int i = 0; i < n; i++) pieces[i].value = update_parameters(u, state, &pieces[i]);
    if (!update_store(u, state, pieces, n)) return false;
    if (u->optimizer.average == 0.0) return true;
    state = tg_update_state(u, "tg.average");
    for (int i = 0; i < n; i++) pieces[i].value = update_average(u, state, &pieces[i]);
    return update_store(u, state, pieces, n);
}

/* ---------------------------------------------------------------- numbers at the edge of f32 */

/* x limited to [-limit, limit]. Infinity and NaN stay, so that they show in all that depends on
 * them. */
static int32_t update_within(const tg_update *u, int32_t x, double limit) {
    int32_t finite = update_op(u, TG_OP_LESS, tg_ir_unary(u->g, TG_OP_ABS, x), update_number(u, (double)FLT_MAX));
    int32_t below = update_op(u, TG_OP_MIN, x, update_number(u, limit));
    return tg_ir_select(u->g, finite, update_op(u, TG_OP_MAX, below, update_number(u, -limit)), x);
}

/* A gradient whose square is an f32 number. Beyond 2^63 all gradients look alike to a formula that
 * divides by the root of squares. */
static int32_t update_squarable(const tg_update *u, int32_t gradient) { return update_within(u, gradient, ldexp(1.0, 63)); }

/* x / (root + eps), which is at most `most` in exact numbers. With an eps that is too small to
 * matter, squares vanish before their gradients do: then the result is limited to `most`, and 0 / 0
 * is 0. */
static int32_t update_quotient(const tg_update *u, int32_t x, int32_t root, double most) {
    int32_t spread = update_op(u, TG_OP_ADD, root, update_number(u, u->optimizer.eps));
    if (u->optimizer.eps >= ldexp(1.0, -60)) return update_op(u, TG_OP_DIV, x, spread);
    spread = update_op(u, TG_OP_MAX, spread, update_number(u, (double)FLT_MIN));
    return update_within(u, update_op(u, TG_OP_DIV, x, spread), most);
}

/* ---------------------------------------------------------------- moments */

/* factor state + x */
static int32_t update_moment(const tg_update *u, const char *name, const update_piece *piece, double factor, int32_t x) {
    int32_t old = tg_update_cut(u, tg_update_state(u, name), piece->offset, piece->count);
    return factor == 0.0 ? x : update_op(u, TG_OP_ADD, factor == 1.0 ? old : update_times(u, old, factor), x);
}

/* 1 - beta^t without cancellation. With z = -t log beta it is 1 - e^-z; for small z the Taylor
 * series z - z^2/2 + z^3/6 ... (the next term is under 5e-8 of the sum). */
static int32_t update_correction(const tg_update *u, double beta) {
    static const double terms[] = {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0};
    const double small = 0.25;
    if (beta == 0.0) return update_number(u, 1.0);
    int32_t z = update_times(u, u->time, -log(beta));
    int32_t near_zero = update_op(u, TG_OP_MIN, z, update_number(u, small));
    int32_t series = update_number(u, -terms[0]);
    for (int i = 1; i < 6; i++) {
        series = update_op(u, TG_OP_MUL, series, near_zero);
        series = update_op(u, TG_OP_ADD, series, update_number(u, i % 2 == 1 ? terms[i] : -terms[i]));
    }
    series = update_op(u, TG_OP_MUL, series, near_zero);
    int32_t decayed = tg_ir_unary(u->g, TG_OP_EXP, tg_ir_unary(u->g, TG_OP_NEG, z));
    int32_t plain = update_op(u, TG_OP_SUB, update_number(u, 1.0), decayed);
    int32_t is_small = update_op(u, TG_OP_LESS, z, update_number(u, small));
    return tg_ir_select(u->g, is_small, series, plain);
}

/* ---------------------------------------------------------------- updates
 * Each takes a piece whose value is its gradient, and replaces that by the update. */

static bool update_sgd(const tg_update *u, update_piece *piece) {
    const double momentum = u->optimizer.momentum;
    if (momentum == 0.0) return true;
    int32_t gradient = piece->value, buffer = update_moment(u, "tg.m", piece, momentum, gradient);
    piece->value = u->optimizer.nesterov ? update_op(u, TG_OP_ADD, gradient, update_times(u, buffer, momentum)) : buffer;
    return update_store_one(u, "tg.m", piece->offset, piece->count, buffer);
}

typedef struct update_moments {
    int32_t m, v;
} update_moments;

/* |m| / sqrt v is at most this, by Cauchy and Schwarz: the root of the sum over i of
 * (1 - b1)^2 b1^2i / ((1 - b2) b2^i), if that sum is finite. */
static double update_adam_most(const tg_optimizer *o) {
    const double ratio = o->beta1 * o->beta1 / o->beta2;
    return o->beta2 > 0.0 && ratio < 1.0 ? (1.0 - o->beta1) / sqrt((1.0 - o->beta2) * (1.0 - ratio)) : (double)FLT_MAX;
}

/* uncorrected: (sqrt(c2) / c1) m / (sqrt v + eps); corrected: (1 / c1) m / (sqrt v / sqrt c2 + eps).
 * Does not store the moments. */
static update_moments update_adam(const tg_update *u, update_piece *piece) {
    const tg_optimizer *o = &u->optimizer;
    update_moments moments;
    int32_t gradient = update_squarable(u, piece->value), first = update_times(u, gradient, 1.0 - o->beta1);
    moments.m = update_moment(u, "tg.m", piece, o->beta1, first);
    int32_t square = update_op(u, TG_OP_MUL, gradient, gradient);
    moments.v = update_moment(u, "tg.v", piece, o->beta2, update_times(u, square, 1.0 - o->beta2));
    int32_t root = tg_ir_unary(u->g, TG_OP_SQRT, update_correction(u, o->beta2));
    int32_t size = tg_ir_unary(u->g, TG_OP_RECIPROCAL, update_correction(u, o->beta1));
    int32_t spread = tg_ir_unary(u->g, TG_OP_SQRT, moments.v);
    if (o->eps_mode == TG_EPS_UNCORRECTED) size = update_op(u, TG_OP_MUL, size, root);
    else spread = update_op(u, TG_OP_MUL, spread, tg_ir_unary(u->g, TG_OP_RECIPROCAL, root));
    piece->value = update_quotient(u, moments.m, spread, update_adam_most(o));
    piece->scaled = true;
    piece->scale = size;
    return moments;
}

static bool update_adam_stored(const tg_update *u, update_piece *piece) {
    const update_moments moments = update_adam(u, piece);
    return update_store_one(u, "tg.m", piece->offset, piece->count, moments.m) &&
           update_store_one(u, "tg.v", piece->offset, piece->count, moments.v);
}

static bool update_lion(const tg_update *u, update_piece *piece) {
    const tg_optimizer *o = &u->optimizer;
    int32_t gradient = piece->value;
    int32_t mixed = update_moment(u, "tg.m", piece, o->beta1, update_times(u, gradient, 1.0 - o->beta1));
    piece->value = tg_ir_unary(u->g, TG_OP_SIGN, mixed);
    int32_t m = update_moment(u, "tg.m", piece, o->beta2, update_times(u, gradient, 1.0 - o->beta2));
    return update_store_one(u, "tg.m", piece->offset, piece->count, m);
}

static bool update_rmsprop(const tg_update *u, update_piece *piece) {
    const tg_optimizer *o = &u->optimizer;
    int32_t gradient = update_squarable(u, piece->value), square = update_op(u, TG_OP_MUL, gradient, gradient);
    int32_t v = update_moment(u, "tg.v", piece, o->beta2, update_times(u, square, 1.0 - o->beta2));
    piece->value = update_quotient(u, gradient, tg_ir_unary(u->g, TG_OP_SQRT, v), 1.0 / sqrt(1.0 - o->beta2));
    if (!update_store_one(u, "tg.v", piece->offset, piece->count, v)) return false;
    if (o->momentum == 0.0) return true;
    piece->value = update_moment(u, "tg.m", piece, o->momentum, piece->value);
    return update_store_one(u, "tg.m", piece->offset, piece->count, piece->value);
}

static bool update_adagrad(const tg_update *u, update_piece *piece) {
    int32_t gradient = update_squarable(u, piece->value), square = update_op(u, TG_OP_MUL, gradient, gradient);
    int32_t v = update_op(u, TG_OP_MIN, update_moment(u, "tg.v", piece, 1.0, square), update_number(u, (double)FLT_MAX));
    piece->value = update_quotient(u, gradient, tg_ir_unary(u->g, TG_OP_SQRT, v), 1.0);
    return update_store_one(u, "tg.v", piece->offset, piece->count, v);
}

/* ---------------------------------------------------------------- Muon */

/* Roughly the matrix with orthonormal rows that is nearest to x [1, rows, columns], rows <= columns
 * (singular values within about 0.7 to 1.2): x / (||x|| + 1e-7), then five times
 * x <- a x + (b A + c A A) x with A = x x'. Twice 5 rows^2 (2 columns + rows) flop. */
static int32_t update_orthogonal(const tg_update *u, int32_t x) {
    static const int32_t turned[] = {0, 2, 1};
    const tg_norm measured = tg_norm_append(u->g, x, 7u, true);
    int32_t spread = update_op(u, TG_OP_ADD, measured.norm, update_times(u, measured.unit, 1e-7));
    x = update_op(u, TG_OP_DIV, update_op(u, TG_OP_MUL, x, measured.unit), spread);
    for (int i = 0; i < 5; i++) {
        int32_t gram = tg_ir_contract(u->g, x, tg_ir_permute(u->g, x, turned));
        int32_t squared = update_times(u, tg_ir_contract(u->g, gram, gram), 2.0315);
        int32_t mixed = update_op(u, TG_OP_ADD, update_times(u, gram, -4.7750), squared);
        int32_t moved = tg_ir_contract(u->g, mixed, x);
        x = update_op(u, TG_OP_ADD, update_times(u, x, 3.4445), moved);
    }
    return x;
}

/* Elements of one parameter, [count] -> its update, [count]. */
static int32_t update_matrix(const tg_update *u, const tg_layout_entry *entry, int32_t flat) {
    static const int32_t turned[] = {0, 2, 1};
    const int64_t rows = entry->shape.dim[0], columns = entry->count / rows, larger = rows > columns ? rows : columns;
    const int64_t dims[] = {1, rows, columns};
    int32_t x = tg_ir_reshape(u->g, flat, tg_shape_make(3, dims));
    if (rows > columns) x = tg_ir_permute(u->g, x, turned);
    x = update_times(u, update_orthogonal(u, x), 0.2 * sqrt((double)larger));
    if (rows > columns) x = tg_ir_permute(u->g, x, turned);
    return tg_ir_reshape(u->g, x, update_flat(entry->count));
}

/* The matrix with the smallest offset that is at least `from`; NULL: there is none. */
static const tg_layout_entry *update_next_matrix(const tg_layout *layout, int64_t from) {
    const tg_layout_entry *next = NULL;
    for (int i = 0; i < layout->count; i++) {
        const tg_layout_entry *entry = &layout->entries[i];
        if (entry->matrix && !entry->frozen && entry->offset >= from && (next == NULL || entry->offset < next->offset)) next = entry;
    }
    return next;
}

/* Makes a piece for each matrix, with its update; returns how many. *buffer: the momentum of all of
 * them. */
static int update_matrices(const tg_update *u, update_piece *pieces, int32_t *buffer) {
    const double momentum = u->optimizer.momentum;
    const update_piece all = {0, u->layout->matrix_end, 0, false, 0};
    /* The limit keeps the momentum in f32. */
    int32_t gradient = update_within(u, tg_update_cut(u, u->gradient, 0, all.count), ldexp(1.0 - momentum, 126));
    *buffer = update_moment(u, "tg.m", &all, momentum, gradient);
    int32_t direction = update_op(u, TG_OP_ADD, gradient, update_times(u, *buffer, momentum));
    int n = 0;
    for (const tg_layout_entry *e = update_next_matrix(u->layout, 0); e != NULL; e = update_next_matrix(u->layout, e->offset + e->count)) {
        int32_t flat = tg_update_cut(u, direction, e->offset, e->count);
        pieces[n++] = (update_piece){e->offset, e->count, update_matrix(u, e, flat), false, 0};
    }
    return n;
}

static bool update_muon(const tg_update *u) {
    const int64_t matrix_end = u->layout->matrix_end, rest = u->layout->trained_end - matrix_end;
    update_piece *pieces = TG_NEW(&u->g->arena, update_piece, u->layout->count + 1), moments[2];
    if (pieces == NULL) return false;
    int n = 0, m = 0;
    if (matrix_end > 0) {
        moments[m] = (update_piece){0, matrix_end, 0, false, 0};
        n = update_matrices(u, pieces, &moments[m++].value);
    }
    if (rest > 0) {
        pieces[n] = (update_piece){matrix_end, rest, tg_update_cut(u, u->gradient, matrix_end, rest), false, 0};
        const update_moments adam = update_adam(u, &pieces[n++]);
        moments[m++] = (update_piece){matrix_end, rest, adam.m, false, 0};
        if (!update_store_one(u, "tg.v", matrix_end, rest, adam.v)) return false;
    }
    return update_store(u, tg_update_state(u, "tg.m"), moments, m) && update_apply(u, pieces, n);
}

/* ---------------------------------------------------------------- by kind */

bool tg_update_append(const tg_update *u) {
    /* the gap after the last trained parameter is updated too: it stays 0, and without frozen
     * parameters no PACK is needed */
    update_piece piece = {0, u->layout->trained_end, u->gradient, false, 0};
    bool done = false;
    switch (u->optimizer.kind) {
    case TG_OPTIMIZER_NONE: return true;
    case TG_OPTIMIZER_SGD: done = update_sgd(u, &piece); break;
    case TG_OPTIMIZER_ADAM:
    case TG_OPTIMIZER_ADAMW: done = update_adam_stored(u, &piece); break;
    case TG_OPTIMIZER_LION: done = update_lion(u, &piece); break;
    case TG_OPTIMIZER_RMSPROP: done = update_rmsprop(u, &piece); break;
    case TG_OPTIMIZER_ADAGRAD: done = update_adagrad(u, &piece); break;
    case TG_OPTIMIZER_MUON: return update_muon(u);
    }
    return done && update_apply(u, &piece, 1);
}
