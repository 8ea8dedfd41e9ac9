/* Reductions over any axes, and the means and sums that compositions share. The primitives keep
 * reduced axes as 1; a reshape here removes them. Must not know how a reduction runs. */
#include "trace/trace.h"

#include <math.h>

static int64_t reduced_count(tg_shape shape, uint32_t axes) {
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if ((axes >> (unsigned)i & 1u) != 0) count *= shape.dim[i];
    return count;
}

int32_t tg_compose_drop_axes(const tg_call *call, int32_t x, uint32_t axes) {
    tg_shape from = tg_node_shape(call, x), to = {0, {0}};
    if (x == 0) return 0;
    for (int i = 0; i < from.rank; i++)
        if ((axes >> (unsigned)i & 1u) == 0) to.dim[to.rank++] = from.dim[i];
    return tg_ir_reshape(call->graph, x, to);
}

int32_t tg_compose_mean(const tg_call *call, int32_t x, uint32_t axes) {
    if (x == 0) return 0;
    /* a division: the mean of equal numbers is that number, which a product with a rounded 1/n
     * would miss */
    double count = (double)reduced_count(tg_node_shape(call, x), axes);
    int32_t sum = tg_ir_reduce(call->graph, TG_OP_SUM, x, axes);
    return tg_ir_binary(call->graph, TG_OP_DIV, sum, tg_ir_const(call->graph, TG_SCALAR, TG_F32, count));
}

tg_centred tg_compose_centred(const tg_call *call, int32_t x, int32_t mean, uint32_t axes) {
    tg_graph *g = call->graph;
    const int32_t once = tg_ir_binary(g, TG_OP_SUB, x, mean);
    const int32_t left = tg_ir_unary(g, TG_OP_STOP_GRADIENT, tg_compose_mean(call, once, axes));
    return (tg_centred){once, tg_ir_binary(g, TG_OP_SUB, once, left)};
}

static bool enter_reduction(tg_call *call, tg_site site, const char *name, tg_tensor x, tg_axes axes, unsigned dtypes, uint32_t *mask) {
    return tg_call_enter(call, site, name, &x, 1) && tg_call_takes(call, x.id, dtypes) && tg_call_axes(call, x.id, axes, mask);
}

static tg_tensor finish_reduction(const tg_call *call, int32_t reduced, uint32_t mask, tg_reduce_options options) {
    return tg_call_result(call, options.keepdims ? reduced : tg_compose_drop_axes(call, reduced, mask));
}

static tg_tensor reduction(tg_site site, const char *name, tg_op op, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, name, x, axes, TG_TAKES_NUMBERS, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_ir_reduce(call.graph, op, x.id, mask), mask, options);
}

tg_tensor tg_sum_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "sum", TG_OP_SUM, x, axes, options);
}

tg_tensor tg_max_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "max", TG_OP_REDUCE_MAX, x, axes, options);
}

tg_tensor tg_min_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return reduction(site, "min", TG_OP_REDUCE_MIN, x, axes, options);
}

tg_tensor tg_mean_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, "mean", x, axes, TG_TAKES_F32, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_compose_mean(&call, x.id, mask), mask, options);
}

static tg_tensor arg_reduction(tg_site site, const char *name, tg_op op, tg_tensor x, int axis, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    const int32_t one = axis;
    if (!enter_reduction(&call, site, name, x, tg_axes_make(1, &one), TG_TAKES_NUMBERS, &mask)) return tg_call_poison(&call);
    return finish_reduction(&call, tg_ir_reduce(call.graph, op, x.id, mask), mask, options);
}

tg_tensor tg_argmax_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options) {
    return arg_reduction(site, "argmax", TG_OP_ARGMAX, x, axis, options);
}

tg_tensor tg_argmin_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options) {
    return arg_reduction(site, "argmin", TG_OP_ARGMIN, x, axis, options);
}

/* ---------------------------------------------------------------- variance, norms */

/* The root of a sum of squares. Its gradient at 0 is 0, not infinity times 0. */
static int32_t root_or_zero(const tg_call *call, int32_t x) {
    tg_graph *g = call->graph;
    int32_t zero = tg_compose_number(call, 0.0);
    int32_t vanishes = tg_ir_binary(g, TG_OP_EQUAL, x, zero);
    int32_t safe = tg_ir_select(g, vanishes, tg_compose_number(call, 1.0), x);
    return tg_ir_select(g, vanishes, zero, tg_ir_unary(g, TG_OP_SQRT, safe));
}

/* A row needs no scaling if its sum of squares lies between these: the squares that underflow are
 * too small to matter beside the sum. */
#define SQUARES_LEAST 0x1p-80
#define SQUARES_MOST 0x1p120
#define SQUARES_LARGE 0x1p-76 /* scale of rows over SQUARES_MOST, if their root is wanted */
#define SQUARES_SMALL 0x1p76

static int32_t sum_of_squares(const tg_call *call, int32_t x, uint32_t axes) {
    return tg_ir_reduce(call->graph, TG_OP_SUM, tg_ir_binary(call->graph, TG_OP_MUL, x, x), axes);
}

/* For each row: large ? a : small ? b : c. small 0: never. */
static int32_t squares_choose(const tg_call *call, int32_t large, int32_t small, double a, double b, double c) {
    const int32_t usual = tg_compose_number(call, c);
    const int32_t rest = small == 0 ? usual : tg_ir_select(call->graph, small, tg_compose_number(call, b), usual);
    return tg_ir_select(call->graph, large, tg_compose_number(call, a), rest);
}

/* The plain sum tells which rows to scale. It has no gradient; only the second sum has one, which
 * is the same sum for most rows. to_small 0: no row is small. */
static tg_squares squares_scaled(const tg_call *call, int32_t x, int32_t roughly, uint32_t axes, double eps, double to_large,
                                 double to_small) {
    tg_graph *g = call->graph;
    const int32_t plain = sum_of_squares(call, roughly, axes);
    const int32_t fits = tg_ir_binary(g, TG_OP_LESS, plain, tg_compose_number(call, SQUARES_MOST));
    const int32_t large = tg_ir_unary(g, TG_OP_NOT, fits); /* NaN too */
    int32_t small = 0;
    if (to_small > 0) small = tg_ir_binary(g, TG_OP_LESS, plain, tg_compose_number(call, SQUARES_LEAST));
    const int32_t scale = squares_choose(call, large, small, to_large, to_small, 1.0);
    return (tg_squares){
        .sum = sum_of_squares(call, tg_ir_binary(g, TG_OP_MUL, x, scale), axes),
        .scale = scale,
        .inverse = squares_choose(call, large, small, 1 / to_large, 1 / SQUARES_SMALL, 1.0),
        .eps = squares_choose(call, large, small, 0.0, eps * SQUARES_SMALL * SQUARES_SMALL, eps),
    };
}

tg_squares tg_compose_squares(const tg_call *call, int32_t x, int32_t roughly, uint32_t axes, double eps) {
    return squares_scaled(call, x, roughly, axes, eps, SQUARES_LARGE, eps < SQUARES_LEAST ? SQUARES_SMALL : 0.0);
}

int32_t tg_compose_unscaled(const tg_call *call, tg_squares squares, int32_t x) {
    const int32_t once = tg_ir_binary(call->graph, TG_OP_MUL, x, squares.inverse);
    return tg_ir_binary(call->graph, TG_OP_MUL, once, squares.inverse);
}

/* x - mean; *divisor: what divides the sum of its squares. Records an error and returns zeros if
 * nothing is left to divide by. */
static tg_centred about_mean(const tg_call *call, int32_t x, uint32_t axes, int32_t correction, int32_t *divisor) {
    int64_t count = reduced_count(tg_node_shape(call, x), axes);
    if (correction < 0 || correction >= count) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "the correction %d is not in 0 .. %lld, for %lld elements: %s", (int)correction,
                     (long long)count - 1, (long long)count, TG_LABEL(call, x));
        return (tg_centred){0, 0};
    }
    *divisor = tg_compose_number(call, (double)(count - correction));
    return tg_compose_centred(call, x, tg_compose_mean(call, x, axes), axes);
}

/* Only the sum of squares may be too large for f32. The result is within a factor of the count of
 * it, and so is the gradient. */
tg_tensor tg_variance_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options) {
    tg_call call;
    uint32_t mask = 0;
    int32_t divisor = 0;
    if (!enter_reduction(&call, site, "variance", x, axes, TG_TAKES_F32, &mask)) return tg_call_poison(&call);
    const tg_centred centred = about_mean(&call, x.id, mask, options.correction, &divisor);
    if (centred.once == 0) return tg_call_poison(&call);
    const tg_squares squares = squares_scaled(&call, centred.twice, centred.once, mask, 0.0, 0x1p-16, 0.0);
    const int32_t spread = tg_compose_unscaled(&call, squares, tg_ir_binary(call.graph, TG_OP_DIV, squares.sum, divisor));
    return finish_reduction(&call, spread, mask, (tg_reduce_options){.keepdims = options.keepdims});
}

tg_tensor tg_std_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options) {
    tg_call call;
    uint32_t mask = 0;
    int32_t divisor = 0;
    if (!enter_reduction(&call, site, "std", x, axes, TG_TAKES_F32, &mask)) return tg_call_poison(&call);
    const tg_centred centred = about_mean(&call, x.id, mask, options.correction, &divisor);
    if (centred.once == 0) return tg_call_poison(&call);
    const tg_squares squares = tg_compose_squares(&call, centred.twice, centred.once, mask, 0.0);
    int32_t root = root_or_zero(&call, tg_ir_binary(call.graph, TG_OP_DIV, squares.sum, divisor));
    root = tg_ir_binary(call.graph, TG_OP_MUL, root, squares.inverse);
    return finish_reduction(&call, root, mask, (tg_reduce_options){.keepdims = options.keepdims});
}

static int32_t euclidean_norm(const tg_call *call, int32_t x, uint32_t axes) {
    const tg_squares squares = tg_compose_squares(call, x, x, axes, 0.0);
    return tg_ir_binary(call->graph, TG_OP_MUL, root_or_zero(call, squares.sum), squares.inverse);
}

tg_tensor tg_norm_at(tg_site site, tg_tensor x, tg_axes axes, tg_norm_options options) {
    tg_call call;
    uint32_t mask = 0;
    int32_t reduced = 0;
    if (!enter_reduction(&call, site, "norm", x, axes, TG_TAKES_F32, &mask)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    if (tg_value_or(options.ord, 2.0) == 2.0) reduced = euclidean_norm(&call, x.id, mask);
    else if (options.ord == 1.0) reduced = tg_ir_reduce(g, TG_OP_SUM, tg_ir_unary(g, TG_OP_ABS, x.id), mask);
    else if (options.ord == (double)INFINITY) reduced = tg_ir_reduce(g, TG_OP_REDUCE_MAX, tg_ir_unary(g, TG_OP_ABS, x.id), mask);
    else
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "the order %.9g is not 1, 2 or infinity: %s", options.ord + 0.0,
                            TG_LABEL(&call, x.id));
    return finish_reduction(&call, reduced, mask, (tg_reduce_options){.keepdims = options.keepdims});
}

/* ---------------------------------------------------------------- any, all */

static tg_tensor bool_reduction(tg_site site, const char *name, tg_op op, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, name, x, axes, TG_TAKES_BOOL, &mask)) return tg_call_poison(&call);
    int32_t reduced = tg_ir_reduce(call.graph, op, tg_ir_cast(call.graph, x.id, TG_I32), mask);
    return finish_reduction(&call, tg_ir_cast(call.graph, reduced, TG_BOOL), mask, options);
}

tg_tensor tg_any_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return bool_reduction(site, "any", TG_OP_REDUCE_MAX, x, axes, options);
}

tg_tensor tg_all_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    return bool_reduction(site, "all", TG_OP_REDUCE_MIN, x, axes, options);
}

/* ---------------------------------------------------------------- products */

/* A product as m 2^(16 e), with |m| in 2^-8 .. 2^8 unless it is 0, infinite or NaN. So no partial
 * product overflows unless the result does, in any order. e has no gradient; it is 0 (absent) for
 * integers, which wrap around. The bits are those of the plain product. */
typedef struct product {
    int32_t m, e;
} product;

/* Divides m by 2^(16 steps) if |m| is over `limit`, and multiplies by it if |m| is under
 * 1 / limit. */
static product product_step(const tg_call *call, product p, double limit, double steps) {
    tg_graph *g = call->graph;
    const double power = exp2(16 * steps);
    const int32_t one = tg_compose_number(call, 1.0), zero = tg_compose_number(call, 0.0);
    const int32_t size = tg_ir_unary(g, TG_OP_ABS, p.m);
    const int32_t large = tg_ir_binary(g, TG_OP_LESS, tg_compose_number(call, limit), size);
    int32_t small = tg_ir_binary(g, TG_OP_LESS, size, tg_compose_number(call, 1 / limit));
    small = tg_ir_binary(g, TG_OP_AND, small, tg_ir_binary(g, TG_OP_LESS, zero, size));
    const int32_t up = tg_ir_select(g, small, tg_compose_number(call, power), one);
    const int32_t less = tg_ir_select(g, small, tg_compose_number(call, -steps), zero);
    p.m = tg_ir_binary(g, TG_OP_MUL, p.m, tg_ir_select(g, large, tg_compose_number(call, 1 / power), up));
    p.e = tg_ir_binary(g, TG_OP_ADD, p.e, tg_ir_select(g, large, tg_compose_number(call, steps), less));
    return p;
}

static product product_begin(const tg_call *call, int32_t x) {
    if (x == 0 || tg_node_dtype(call, x) != TG_F32) return (product){x, 0};
    product p = {x, tg_ir_const(call->graph, tg_node_shape(call, x), TG_F32, 0.0)};
    p = product_step(call, product_step(call, p, 0x1p32, 4), 0x1p32, 4);
    return product_step(call, product_step(call, p, 0x1p16, 2), 0x1p8, 1);
}

static product product_times(const tg_call *call, product a, product b) {
    tg_graph *g = call->graph;
    const product p = {tg_ir_binary(g, TG_OP_MUL, a.m, b.m), a.e == 0 ? 0 : tg_ir_binary(g, TG_OP_ADD, a.e, b.e)};
    return p.e == 0 ? p : product_step(call, p, 0x1p8, 1);
}

/* m 2^(16 e), in steps of which none goes past the result. */
static int32_t product_end(const tg_call *call, product p) {
    static const double steps[] = {4, 4, 2, 1}; /* beyond these the result is 0 or infinite */
    tg_graph *g = call->graph;
    for (int i = 0; i < 4 && p.e != 0; i++) {
        const double power = exp2(16 * steps[i]), half = steps[i] - 0.5;
        const int32_t up = tg_ir_binary(g, TG_OP_LESS, tg_compose_number(call, half), p.e);
        const int32_t down = tg_ir_binary(g, TG_OP_LESS, p.e, tg_compose_number(call, -half));
        const int32_t shrink = tg_ir_select(g, down, tg_compose_number(call, 1 / power), tg_compose_number(call, 1.0));
        const int32_t more = tg_ir_select(g, down, tg_compose_number(call, -steps[i]), tg_compose_number(call, 0.0));
        p.m = tg_ir_binary(g, TG_OP_MUL, p.m, tg_ir_select(g, up, tg_compose_number(call, power), shrink));
        p.e = tg_ir_binary(g, TG_OP_SUB, p.e, tg_ir_select(g, up, tg_compose_number(call, steps[i]), more));
    }
    return p.m;
}

static int32_t columns_from(const tg_call *call, int32_t x, int64_t rows, int64_t from, int64_t count) {
    if (x == 0) return 0;
    return tg_ir_slice(call->graph, x, (const int64_t[]){0, from}, tg_shape_make(2, (const int64_t[]){rows, count}));
}

static product product_columns(const tg_call *call, product p, int64_t rows, int64_t from, int64_t count) {
    return (product){columns_from(call, p.m, rows, from, count), columns_from(call, p.e, rows, from, count)};
}

/* x [rows, n], n a power of two -> [rows, 1]: multiplies halves until one column is left. Uses no
 * division, so that a 0 does no harm to the gradient. log2 n roundings deep. */
static int32_t product_of_halves(const tg_call *call, int32_t x, int64_t rows, int64_t n) {
    if (n <= 2)
        return n < 2 ? x : tg_ir_binary(call->graph, TG_OP_MUL, columns_from(call, x, rows, 0, 1), columns_from(call, x, rows, 1, 1));
    product p = product_begin(call, x);
    for (int64_t half = n / 2; half > 0 && p.m != 0; half /= 2)
        p = product_times(call, product_columns(call, p, rows, 0, half), product_columns(call, p, rows, half, half));
    return product_end(call, p);
}

/* x with `count` elements of `value` before or after it, along the last of two axes. */
static int32_t beside_numbers(const tg_call *call, int32_t x, int64_t count, bool before, double value) {
    if (x == 0) return 0;
    tg_shape shape = tg_node_shape(call, x);
    shape.dim[1] = count;
    int32_t numbers = tg_ir_const(call->graph, shape, tg_node_dtype(call, x), value);
    const int32_t parts[2] = {before ? numbers : x, before ? x : numbers};
    return tg_ir_concat(call->graph, parts, 2, 1);
}

tg_tensor tg_prod_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options) {
    tg_call call;
    uint32_t mask = 0;
    if (!enter_reduction(&call, site, "prod", x, axes, TG_TAKES_NUMBERS, &mask)) return tg_call_poison(&call);
    tg_shape shape = tg_node_shape(&call, x.id), kept = shape;
    int32_t order[TG_MAX_RANK] = {0}, at = 0;
    for (int32_t i = 0; i < shape.rank; i++) {
        if ((mask >> i & 1u) != 0) kept.dim[i] = 1;
        else order[at++] = i;
    }
    for (int32_t i = 0; i < shape.rank; i++)
        if ((mask >> i & 1u) != 0) order[at++] = i;
    int64_t n = reduced_count(shape, mask), rows = tg_shape_count(shape) / n, power = 1;
    while (power < n) power *= 2;
    if (!tg_call_shape_ok(&call, tg_shape_make(2, (const int64_t[]){rows, power}))) return tg_call_poison(&call);
    int32_t flat = tg_ir_permute(call.graph, x.id, order);
    flat = tg_ir_reshape(call.graph, flat, tg_shape_make(2, (const int64_t[]){rows, n}));
    if (power > n && flat != 0) flat = beside_numbers(&call, flat, power - n, false, 1.0);
    int32_t whole = tg_ir_reshape(call.graph, product_of_halves(&call, flat, rows, power), kept);
    return finish_reduction(&call, whole, mask, options);
}

/* ---------------------------------------------------------------- running sums and products */

/* How a scan sees its operand: the axis last, as [rows, n], flipped if it runs backwards. */
typedef struct scan {
    tg_call call;
    int32_t order[TG_MAX_RANK]; /* swaps the axis and the last one */
    tg_shape swapped;
    int64_t rows, n;
} scan;

static int32_t scan_begin(scan *s, tg_site site, const char *name, tg_tensor x, int axis, bool reverse) {
    tg_call *call = &s->call;
    int along = 0;
    if (!tg_call_enter(call, site, name, &x, 1) || !tg_call_takes(call, x.id, TG_TAKES_NUMBERS)) return 0;
    tg_shape shape = tg_node_shape(call, x.id);
    if (!tg_call_axis(call, x.id, shape.rank, axis, &along)) return 0;
    for (int32_t i = 0; i < shape.rank; i++) s->order[i] = i;
    s->order[along] = shape.rank - 1;
    s->order[shape.rank - 1] = along;
    s->n = shape.dim[along];
    s->rows = tg_shape_count(shape) / s->n;
    int32_t swapped = tg_ir_permute(call->graph, x.id, s->order);
    if (swapped == 0) return 0;
    s->swapped = tg_node_shape(call, swapped);
    int32_t flat = tg_ir_reshape(call->graph, swapped, tg_shape_make(2, (const int64_t[]){s->rows, s->n}));
    return reverse ? tg_ir_flip(call->graph, flat, 2u) : flat;
}

/* Moves each element of y one further, drops the last, and puts `first` at the beginning. */
static int32_t scan_shift(const scan *s, int32_t y, double first) {
    tg_graph *g = s->call.graph;
    if (y == 0) return 0;
    tg_dtype dtype = tg_node_dtype(&s->call, y);
    if (s->n == 1) return tg_ir_const(g, tg_node_shape(&s->call, y), dtype, first);
    int32_t rest = tg_ir_slice(g, y, (const int64_t[]){0, 0}, tg_shape_make(2, (const int64_t[]){s->rows, s->n - 1}));
    const int32_t parts[2] = {tg_ir_const(g, tg_shape_make(2, (const int64_t[]){s->rows, 1}), dtype, first), rest};
    return tg_ir_concat(g, parts, 2, 1);
}

static tg_tensor scan_end(const scan *s, int32_t y, bool reverse) {
    tg_graph *g = s->call.graph;
    if (reverse) y = tg_ir_flip(g, y, 2u);
    return tg_call_result(&s->call, tg_ir_permute(g, tg_ir_reshape(g, y, s->swapped), s->order));
}

/* x [rows, m, n] -> y[r, k, i] = sum of x[r, k, j] over j <= i. One reduction over an operand of
 * shape [rows, m, n, n], which is never stored. A product with a triangular matrix would compute 0
 * times infinity for elements that it must not read. */
static int32_t sums_in_blocks(const tg_call *call, int32_t x, int64_t rows, int64_t m, int64_t n) {
    tg_graph *g = call->graph;
    tg_shape square = tg_shape_make(4, (const int64_t[]){rows, m, n, n});
    int32_t columns = tg_ir_broadcast(g, tg_ir_reshape(g, x, tg_shape_make(4, (const int64_t[]){rows, m, 1, n})), square);
    int32_t row = tg_ir_iota(g, tg_shape_make(2, (const int64_t[]){n, 1}), TG_I32, 0);
    int32_t column = tg_ir_iota(g, tg_shape_make(2, (const int64_t[]){1, n}), TG_I32, 1);
    int32_t seen = tg_ir_binary(g, TG_OP_LESS_EQUAL, column, row);
    int32_t nothing = tg_ir_const(g, TG_SCALAR, tg_node_dtype(call, x), 0.0);
    return tg_ir_reduce(g, TG_OP_SUM, tg_ir_select(g, seen, columns, nothing), 8u);
}

enum { SCAN_ONE_BLOCK = 128, SCAN_BLOCK = 64 };

/* Elements of a block: the whole of a short axis, else about the square root, so that two levels of
 * blocks suffice. */
static int64_t scan_block(int64_t count, int64_t n) {
    const int64_t rows = count / n;
    int64_t block = 2;
    if (n <= SCAN_ONE_BLOCK && count <= TG_MAX_COUNT / n) return n;
    while (block < SCAN_BLOCK && block * block < n) {
        const int64_t wider = block * 2, padded = rows * ((n + wider - 1) / wider) * wider;
        if (padded > TG_MAX_COUNT / wider) break;
        block = wider;
    }
    return block;
}

/* x [rows, n] -> the sum of all elements up to each. First within blocks; then each element gets
 * the sum of the blocks before its own. */
static int32_t running_sums(const scan *s, int32_t x, int64_t n) {
    tg_graph *g = s->call.graph;
    int64_t rows = s->rows, block = scan_block(rows * n, n), m = (n + block - 1) / block;
    if (x == 0) return 0;
    int32_t padded = tg_ir_pad(g, x, (const int64_t[]){0, 0}, tg_shape_make(2, (const int64_t[]){rows, m * block}));
    int32_t inner = sums_in_blocks(&s->call, padded, rows, m, block);
    if (m == 1) return tg_ir_reshape(g, inner, tg_shape_make(2, (const int64_t[]){rows, n}));
    inner = tg_ir_reshape(g, inner, tg_shape_make(3, (const int64_t[]){rows, m, block}));
    int32_t totals = tg_ir_slice(g, inner, (const int64_t[]){0, 0, block - 1}, tg_shape_make(3, (const int64_t[]){rows, m, 1}));
    scan outer = *s;
    outer.n = m;
    totals = running_sums(&outer, tg_ir_reshape(g, totals, tg_shape_make(2, (const int64_t[]){rows, m})), m);
    int32_t before = tg_ir_reshape(g, scan_shift(&outer, totals, 0.0), tg_shape_make(3, (const int64_t[]){rows, m, 1}));
    int32_t sums = tg_ir_reshape(g, tg_ir_binary(g, TG_OP_ADD, inner, before), tg_shape_make(2, (const int64_t[]){rows, m * block}));
    return tg_ir_slice(g, sums, (const int64_t[]){0, 0}, tg_shape_make(2, (const int64_t[]){rows, n}));
}

tg_tensor tg_cumsum_at(tg_site site, tg_tensor x, int axis, tg_scan_options options) {
    scan s;
    int32_t flat = scan_begin(&s, site, "cumsum", x, axis, options.reverse);
    if (flat == 0) return tg_call_poison(&s.call);
    int32_t sums = running_sums(&s, flat, s.n);
    return scan_end(&s, options.exclusive ? scan_shift(&s, sums, 0.0) : sums, options.reverse);
}

/* y[i] = y[i] y[i - d] for d = 1, 2, 4 ... (Hillis & Steele 1986). Uses no division, so that a 0
 * does no harm to the gradient. */
tg_tensor tg_cumprod_at(tg_site site, tg_tensor x, int axis, tg_scan_options options) {
    scan s;
    const int32_t flat = scan_begin(&s, site, "cumprod", x, axis, options.reverse);
    if (flat == 0) return tg_call_poison(&s.call);
    product p = s.n > 2 ? product_begin(&s.call, flat) : (product){flat, 0};
    for (int64_t d = 1; d < s.n && p.m != 0; d *= 2) {
        product rest = product_columns(&s.call, p, s.rows, 0, s.n - d);
        rest.m = beside_numbers(&s.call, rest.m, d, true, 1.0);
        rest.e = beside_numbers(&s.call, rest.e, d, true, 0.0);
        if (rest.m != 0) p = product_times(&s.call, p, rest);
    }
    const int32_t y = product_end(&s.call, p);
    return scan_end(&s, options.exclusive ? scan_shift(&s, y, 1.0) : y, options.reverse);
}
