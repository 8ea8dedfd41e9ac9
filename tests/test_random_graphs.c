/* Random graphs: valid graphs of up to about 40 nodes (views, broadcasts, reductions, contractions, selects, joins,
 * gathers, scatters, integers, random numbers, states and parameters updated in place), run fused, not fused, with few arguments per
 * kernel, on 1 and 3 threads, and as emitted C over a workspace full of NaN; all against the f64 reference. Each value
 * carries a bound of its rounding error, so tolerances are per output. A failing graph is shrunk and its IR printed.
 * On WebGPU (see support_home): fused, not fused, with few arguments, bit-identical when run again.
 * TG_RANDOM_GRAPHS: how many (default 300, fewer under sanitizers and on WebGPU). TG_TEST_SEED: the first seed. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 64
#define EPS 0x1p-23

typedef enum kind {
    INPUT,
    PARAM,
    STATE,
    NUMBER,
    IOTA,
    DRAW, /* leaves */
    UNARY,
    GUARDED, /* GUARDED: f(1 + x^2), for roots, logarithms, quotients */
    BINARY,
    QUOTIENT,
    COMPARE,
    LOGICAL,
    SELECT,
    CAST,
    REDUCE,
    RESHAPE,
    PERMUTE,
    BROADCAST,
    SLICE,
    PAD,
    FLIP,
    WINDOW,
    CONCAT,
    FOLD,
    CONTRACT,
    GATHER,
    SCATTER
} kind;

typedef struct item {
    kind kind;
    tg_op op;
    tg_dtype dtype;
    tg_shape shape;
    int in[3], in_count;
    uint32_t axes;
    int32_t perm[TG_MAX_RANK];
    int64_t start[TG_MAX_RANK];
    tg_window window;
    double value;
    double size;  /* bound of |x| */
    double error; /* bound of the f32 error against f64 */
    bool exact;   /* no rounding so far: may be compared, cast to int, searched */
} item;

typedef struct update {
    int destination, source;
} update;

typedef struct recipe {
    uint64_t seed;
    item items[MAX_ITEMS];
    int count;
    int outputs[8], output_count;
    update updates[4];
    int update_count;
} recipe;

/* ---------------------------------------------------------------- bounds */

static double larger(double a, double b) { return a > b ? a : b; }

static void bound_unary(item *t, const item *x) {
    t->exact = false;
    switch (t->op) {
    case TG_OP_NEG:
    case TG_OP_ABS:
    case TG_OP_RELU:
        *t = (item){t->kind, t->op, t->dtype, t->shape, {t->in[0]}, 1, 0, {0}, {0}, {0, 0, 0}, 0.0, x->size, x->error, x->exact};
        return;
    case TG_OP_NOT: t->size = 1, t->error = 0, t->exact = true; return;
    case TG_OP_SIGN: t->size = 1, t->error = 0, t->exact = true; return;
    case TG_OP_EXP: t->size = exp(x->size), t->error = t->size * (1.1 * x->error + 6 * EPS); return;
    case TG_OP_EXPM1: t->size = expm1(x->size), t->error = (t->size + 1) * (1.1 * x->error + 6 * EPS); return;
    case TG_OP_SOFTPLUS: t->size = x->size + 0.7, t->error = x->error + 6 * EPS * t->size; return;
    default: t->size = 1, t->error = 1.2 * x->error + 1e-6 + 6 * EPS; /* tanh, sigmoid, erf, sin, cos */
    }
}

static void bound_guarded(item *t, const item *x) { /* every f here has |f'(q)| <= 1 on q >= 1 */
    const double q = 1 + x->size * x->size;
    const double error = 2 * x->size * x->error + 2 * EPS * q;
    t->size = t->op == TG_OP_SQRT ? sqrt(q) : t->op == TG_OP_LOG ? log(q) : t->op == TG_OP_LOG1P ? log1p(q) : 1;
    t->error = error + 4 * EPS * larger(t->size, 1);
    t->exact = false;
}

static void bound_binary(item *t, const item *a, const item *b) {
    t->exact = false;
    switch (t->op) {
    case TG_OP_ADD:
    case TG_OP_SUB: t->size = a->size + b->size, t->error = a->error + b->error + EPS * t->size; break;
    case TG_OP_MUL: t->size = a->size * b->size, t->error = a->error * b->size + b->error * a->size + EPS * t->size; break;
    default: t->size = larger(a->size, b->size), t->error = larger(a->error, b->error), t->exact = a->exact && b->exact;
    }
    if (t->dtype == TG_I32) t->error = 0, t->exact = true;
}

static int64_t reduced_count(const item *x, uint32_t axes) {
    int64_t n = 1;
    for (int d = 0; d < x->shape.rank; d++)
        if (axes >> d & 1u) n *= x->shape.dim[d];
    return n;
}

static void bound_sum(item *t, double n, double size, double error) {
    t->size = n * size;
    t->error = n * error + 8 * EPS * t->size;
    t->exact = t->dtype == TG_I32;
    if (t->exact) t->error = 0;
}

static void bound(recipe *r, item *t) {
    const item *a = t->in_count > 0 ? &r->items[t->in[0]] : NULL, *b = t->in_count > 1 ? &r->items[t->in[1]] : NULL;
    const item *c = t->in_count > 2 ? &r->items[t->in[2]] : NULL;
    switch (t->kind) {
    case INPUT: t->size = t->dtype == TG_I32 ? 5 : 2, t->error = 0, t->exact = true; break;
    case PARAM:
    case STATE: t->size = t->dtype == TG_I32 ? 5 : 2, t->exact = t->dtype != TG_F32; break; /* error: from the step before */
    case NUMBER: t->size = fabs(t->value), t->error = 0, t->exact = true; break;
    case DRAW: t->size = t->value, t->error = 0, t->exact = true; break;
    case IOTA: t->size = (double)t->shape.dim[t->axes], t->error = 0, t->exact = true; break;
    case UNARY: bound_unary(t, a); break;
    case GUARDED: bound_guarded(t, a); break;
    case BINARY: bound_binary(t, a, b); break;
    case QUOTIENT:
        t->size = a->size, t->error = a->error + a->size * (2 * b->size * b->error + 4 * EPS * (1 + b->size * b->size)), t->exact = false;
        break;
    case COMPARE:
    case LOGICAL: t->size = 1, t->error = 0, t->exact = true; break;
    case SELECT: t->size = larger(b->size, c->size), t->error = larger(b->error, c->error), t->exact = b->exact && c->exact; break;
    case CAST: t->size = t->dtype == TG_BOOL ? 1 : a->size, t->error = 0, t->exact = true; break;
    case REDUCE:
        if (t->op == TG_OP_SUM) bound_sum(t, (double)reduced_count(a, t->axes), a->size, a->error);
        else if (t->dtype != a->dtype || t->op == TG_OP_ARGMAX || t->op == TG_OP_ARGMIN)
            t->size = (double)reduced_count(a, t->axes), t->error = 0, t->exact = true;
        else t->size = a->size, t->error = a->error, t->exact = a->exact;
        break;
    case CONCAT: t->size = larger(a->size, b->size), t->error = larger(a->error, b->error), t->exact = a->exact && b->exact; break;
    case FOLD: bound_sum(t, (double)t->window.size, a->size, a->error); break;
    case CONTRACT: bound_sum(t, (double)a->shape.dim[2], a->size * b->size, a->error * b->size + b->error * a->size); break;
    case SCATTER: /* rows are added one after another: a random walk of roundings */
        bound_sum(t, (double)a->shape.dim[0], b->size, b->error);
        t->error += EPS * t->size * sqrt((double)a->shape.dim[0]);
        break;
    default: t->size = a->size, t->error = a->error, t->exact = a->exact; /* views, gather */
    }
}

/* Errors of states come from the step before: two rounds are what two runs need. */
static void bound_all(recipe *r) {
    for (int i = 0; i < r->count; i++)
        if (r->items[i].kind == STATE || r->items[i].kind == PARAM) r->items[i].error = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < r->count; i++) bound(r, &r->items[i]);
        for (int i = 0; i < r->update_count && round == 0; i++)
            r->items[r->updates[i].destination].error = r->items[r->updates[i].source].error;
    }
}

/* ---------------------------------------------------------------- making a recipe */

static int add(recipe *r, item t) {
    bound(r, &t);
    r->items[r->count] = t;
    return r->count++;
}

static int64_t count_of(tg_shape shape) {
    int64_t n = 1;
    for (int d = 0; d < shape.rank; d++) n *= shape.dim[d];
    return n;
}

static tg_shape random_shape(support_random *s) {
    static const int64_t dims[] = {1, 2, 3, 4, 5, 7, 8, 16, 33, 130, 260};
    tg_shape shape = {(int32_t)support_random_below(s, 5), {0}};
    int64_t n = 1;
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = dims[support_random_below(s, SUPPORT_COUNT(dims))];
        if (n * shape.dim[d] > 3000) shape.dim[d] = 2;
        n *= shape.dim[d];
    }
    return shape;
}

static int add_leaf(recipe *r, support_random *s, tg_shape shape, tg_dtype dtype) {
    const int64_t choice = support_random_below(s, 8);
    if (choice == 2 && dtype == TG_I32) return add(r, (item){.kind = DRAW, .dtype = TG_I32, .shape = shape, .value = 5});
    const kind k = choice == 0 ? STATE : choice == 1 && dtype == TG_F32 ? PARAM : INPUT;
    return add(r, (item){.kind = k, .dtype = dtype, .shape = shape});
}

static int add_unary(recipe *r, tg_op op, int x) {
    return add(r, (item){.kind = UNARY, .op = op, .dtype = r->items[x].dtype, .shape = r->items[x].shape, .in = {x}, .in_count = 1});
}

static int add_binary(recipe *r, kind k, tg_op op, int a, int b) {
    item t = {.kind = k, .op = op, .dtype = k == COMPARE || k == LOGICAL ? TG_BOOL : r->items[a].dtype, .in = {a, b}, .in_count = 2};
    if (!tg_shape_broadcast(r->items[a].shape, r->items[b].shape, &t.shape)) return a;
    if (count_of(t.shape) > 20000) return a;
    return add(r, t);
}

/* |x| <= 2, exactly */
static int add_clamped(recipe *r, int x) {
    const tg_dtype dtype = r->items[x].dtype;
    const int lo = add(r, (item){.kind = NUMBER, .dtype = dtype, .value = -2}),
              hi = add(r, (item){.kind = NUMBER, .dtype = dtype, .value = 2});
    return add_binary(r, BINARY, TG_OP_MIN, add_binary(r, BINARY, TG_OP_MAX, x, lo), hi);
}

/* Keeps magnitudes and errors small: large values are scaled down, worn-out ones start anew. */
static int settle(recipe *r, int x) {
    const item *t = &r->items[x];
    if (t->dtype != TG_F32 || t->size <= 30) return x;
    const int number = add(r, (item){.kind = NUMBER, .dtype = TG_F32, .value = (double)(float)(1 / t->size)});
    return add_binary(r, BINARY, TG_OP_MUL, x, number);
}

static int pick(const recipe *r, support_random *s, int dtype_mask, bool exact) {
    for (int tries = 0; tries < 40; tries++) {
        const int64_t a = support_random_below(s, r->count), b = support_random_below(s, r->count);
        const int64_t i = a > b ? a : b; /* later ones more often: deeper graphs */
        if ((dtype_mask >> r->items[i].dtype & 1) && (!exact || r->items[i].exact)) return (int)i;
    }
    return -1;
}

/* Something of x's dtype that broadcasts with x: another item, or a leaf with some axes of 1, or a number. */
static int companion(recipe *r, support_random *s, int x) {
    const tg_dtype dtype = r->items[x].dtype;
    tg_shape shape;
    for (int tries = 0; tries < 6; tries++) {
        const int y = pick(r, s, 1 << dtype, false);
        if (y >= 0 && tg_shape_broadcast(r->items[x].shape, r->items[y].shape, &shape) && count_of(shape) <= 8000) return y;
    }
    if (dtype != TG_BOOL && support_random_below(s, 4) == 0)
        return add(r, (item){.kind = NUMBER, .dtype = dtype, .value = (double)support_random_below(s, 5) - 2});
    shape = r->items[x].shape;
    for (int d = 0; d < shape.rank; d++)
        if (support_random_below(s, 3) == 0) shape.dim[d] = 1;
    return add_leaf(r, s, shape, dtype);
}

static uint32_t random_axes(const recipe *r, support_random *s, int x) {
    const int rank = r->items[x].shape.rank;
    return rank == 0 ? 0 : 1u + (uint32_t)support_random_below(s, (1 << rank) - 1);
}

static int grow_elementwise(recipe *r, support_random *s) {
    static const tg_op smooth[] = {TG_OP_TANH, TG_OP_SIGMOID, TG_OP_SIN, TG_OP_COS,  TG_OP_ERF,  TG_OP_SOFTPLUS,
                                   TG_OP_EXP,  TG_OP_NEG,     TG_OP_ABS, TG_OP_RELU, TG_OP_EXPM1};
    static const tg_op guarded[] = {TG_OP_SQRT, TG_OP_RSQRT, TG_OP_RECIPROCAL, TG_OP_LOG, TG_OP_LOG1P};
    static const tg_op binary[] = {TG_OP_ADD, TG_OP_SUB, TG_OP_MUL, TG_OP_MIN, TG_OP_MAX};
    const int x = pick(r, s, 1 << TG_F32 | 1 << TG_I32, false);
    if (x < 0) return -1;
    const int64_t choice = support_random_below(s, 10);
    if (choice >= 5) return add_binary(r, BINARY, binary[support_random_below(s, SUPPORT_COUNT(binary))], x, companion(r, s, x));
    if (r->items[x].dtype == TG_I32) return add_unary(r, support_random_below(s, 2) ? TG_OP_NEG : TG_OP_ABS, x);
    if (choice == 4) return add_binary(r, QUOTIENT, TG_OP_DIV, x, companion(r, s, x));
    if (choice == 3)
        return add(r, (item){.kind = GUARDED,
                             .op = guarded[support_random_below(s, SUPPORT_COUNT(guarded))],
                             .dtype = TG_F32,
                             .shape = r->items[x].shape,
                             .in = {x},
                             .in_count = 1});
    const tg_op op = smooth[support_random_below(s, SUPPORT_COUNT(smooth))];
    return (op == TG_OP_EXP || op == TG_OP_EXPM1) && r->items[x].size > 3 ? x : add_unary(r, op, x);
}

static int add_comparison(recipe *r, support_random *s) {
    static const tg_op ops[] = {TG_OP_LESS, TG_OP_LESS_EQUAL, TG_OP_EQUAL, TG_OP_NOT_EQUAL};
    const int a = pick(r, s, 1 << TG_F32 | 1 << TG_I32, true);
    if (a < 0) return -1;
    int b = pick(r, s, 1 << r->items[a].dtype, true);
    tg_shape shape;
    if (b < 0 || !tg_shape_broadcast(r->items[a].shape, r->items[b].shape, &shape))
        b = add(r, (item){.kind = NUMBER, .dtype = r->items[a].dtype, .value = 1});
    const int c = add_binary(r, COMPARE, ops[support_random_below(s, 4)], a, b);
    return r->items[c].dtype == TG_BOOL ? c : -1; /* a itself when the comparison would be too large */
}

static int grow_choice(recipe *r, support_random *s) {
    int c = pick(r, s, 1 << TG_BOOL, false);
    if (c < 0 || support_random_below(s, 2)) c = add_comparison(r, s);
    if (c < 0) return -1;
    if (support_random_below(s, 4) == 0) return add_unary(r, TG_OP_NOT, c);
    if (support_random_below(s, 4) == 0)
        return add_binary(r, LOGICAL, support_random_below(s, 2) ? TG_OP_AND : TG_OP_OR, c, companion(r, s, c));
    const int a = pick(r, s, 7, false), b = a < 0 ? -1 : companion(r, s, a);
    item t = {.kind = SELECT, .dtype = a < 0 ? TG_F32 : r->items[a].dtype, .in = {c, a, b}, .in_count = 3};
    if (a < 0 || !tg_shape_broadcast(r->items[a].shape, r->items[b].shape, &t.shape)) return -1;
    if (!tg_shape_broadcast(t.shape, r->items[c].shape, &t.shape) || count_of(t.shape) > 20000) return -1;
    return add(r, t);
}

static int grow_cast(recipe *r, support_random *s) {
    const int x = pick(r, s, 7, true);
    const tg_dtype dtype = (tg_dtype)support_random_below(s, 3);
    if (x < 0 || r->items[x].size > 1e5 || r->items[x].dtype == dtype) return -1;
    return add(r, (item){.kind = CAST, .dtype = dtype, .shape = r->items[x].shape, .in = {x}, .in_count = 1});
}

static int grow_reduce(recipe *r, support_random *s) {
    static const tg_op ops[] = {TG_OP_SUM, TG_OP_SUM, TG_OP_SUM, TG_OP_REDUCE_MAX, TG_OP_REDUCE_MIN, TG_OP_ARGMAX, TG_OP_ARGMIN};
    const tg_op op = ops[support_random_below(s, SUPPORT_COUNT(ops))];
    const bool arg = op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
    const int x = pick(r, s, 1 << TG_F32 | 1 << TG_I32, arg);
    if (x < 0 || r->items[x].shape.rank == 0) return -1;
    item t = {.kind = REDUCE, .op = op, .dtype = arg ? TG_I32 : r->items[x].dtype, .shape = r->items[x].shape, .in = {x}, .in_count = 1};
    t.axes = random_axes(r, s, x);
    for (int d = 0; d < t.shape.rank; d++)
        if (t.axes >> d & 1u) t.shape.dim[d] = 1;
    const int y = settle(r, add(r, t));
    if (support_random_below(s, 2) && r->items[y].dtype == r->items[x].dtype) /* a row operation: used beside its operand */
        return add_binary(r, BINARY, support_random_below(s, 2) ? TG_OP_SUB : TG_OP_MUL, x, y);
    return y;
}

/* Merges all axes, splits one that is even, or moves a factor between neighbours. */
static tg_shape random_reshape(tg_shape shape, support_random *s) {
    const int64_t n = count_of(shape);
    if (shape.rank == 0) return TG_SHAPE(1);
    const int d = (int)support_random_below(s, shape.rank);
    if (support_random_below(s, 3) == 0) return TG_SHAPE(n);
    if (shape.rank < 5 && shape.dim[d] % 2 == 0) {
        tg_shape split = shape;
        split.rank++;
        for (int k = split.rank - 1; k > d; k--) split.dim[k] = shape.dim[k - 1];
        split.dim[d] = 2;
        split.dim[d + 1] = shape.dim[d] / 2;
        return split;
    }
    if (shape.rank > 1 && d > 0) {
        tg_shape merged = shape;
        merged.rank--;
        merged.dim[d - 1] *= shape.dim[d];
        for (int k = d; k < merged.rank; k++) merged.dim[k] = shape.dim[k + 1];
        return merged;
    }
    return n % 3 == 0 ? TG_SHAPE(3, n / 3) : TG_SHAPE(1, n);
}

/* Windows that fit in `length`. */
static tg_window random_window(support_random *s, int64_t length) {
    tg_window w = {1 + support_random_below(s, length < 4 ? length : 4), 1 + support_random_below(s, 4), 1};
    if (w.size > 1) w.dilation = 1 + support_random_below(s, (length - 1) / (w.size - 1));
    if (w.dilation > 3) w.dilation = 3;
    return w;
}

/* x's last axis as taps. */
static int grow_fold(recipe *r, support_random *s) {
    const int x = pick(r, s, 1 << TG_F32, false);
    if (x < 0 || r->items[x].shape.rank < 2) return -1;
    item t = {.kind = FOLD, .dtype = TG_F32, .shape = r->items[x].shape, .in = {x}, .in_count = 1};
    t.shape.rank--;
    t.axes = (uint32_t)support_random_below(s, t.shape.rank);
    t.window = (tg_window){t.shape.dim[t.shape.rank], 1 + support_random_below(s, 3), 1 + support_random_below(s, 3)};
    if (t.window.size > 40) return -1;
    t.shape.dim[t.axes] = (t.shape.dim[t.axes] - 1) * t.window.stride + tg_window_span(t.window) + support_random_below(s, 3);
    return count_of(t.shape) > 20000 ? -1 : settle(r, add(r, t));
}

static int grow_view(recipe *r, support_random *s) {
    const int x = pick(r, s, 7, false);
    if (x < 0) return -1;
    item t = {.kind = RESHAPE, .dtype = r->items[x].dtype, .shape = r->items[x].shape, .in = {x}, .in_count = 1};
    const int rank = t.shape.rank;
    t.axes = random_axes(r, s, x);
    t.kind = (kind)(RESHAPE + support_random_below(s, 7));
    switch (t.kind) {
    case PERMUTE:
        for (int d = 0; d < rank; d++) t.perm[d] = d;
        for (int d = rank - 1; d > 0; d--) {
            const int64_t k = support_random_below(s, d + 1);
            const int32_t kept = t.perm[d];
            t.perm[d] = t.perm[k];
            t.perm[k] = kept;
        }
        for (int d = 0; d < rank; d++) t.shape.dim[d] = r->items[x].shape.dim[t.perm[d]];
        break;
    case BROADCAST:
        for (int d = 0; d < rank; d++)
            if (t.shape.dim[d] == 1) t.shape.dim[d] = 1 + support_random_below(s, 4);
        break;
    case SLICE:
        for (int d = 0; d < rank; d++) {
            if (!(t.axes >> d & 1u) || t.shape.dim[d] < 2) continue;
            t.start[d] = support_random_below(s, t.shape.dim[d]);
            t.shape.dim[d] = 1 + support_random_below(s, t.shape.dim[d] - t.start[d]);
        }
        break;
    case PAD:
        for (int d = 0; d < rank; d++) {
            if (!(t.axes >> d & 1u)) continue;
            t.start[d] = support_random_below(s, 4);
            t.shape.dim[d] += t.start[d] + support_random_below(s, 4);
        }
        break;
    case FLIP: break;
    case WINDOW:
        if (rank == 0 || rank > 4) return -1;
        t.axes = (uint32_t)support_random_below(s, rank);
        t.window = random_window(s, t.shape.dim[t.axes]);
        t.shape.dim[t.axes] = (t.shape.dim[t.axes] - tg_window_span(t.window)) / t.window.stride + 1;
        t.shape.dim[t.shape.rank++] = t.window.size;
        break;
    default: t.kind = RESHAPE, t.shape = random_reshape(t.shape, s);
    }
    return count_of(t.shape) > 20000 ? -1 : add(r, t);
}

static int grow_concat(recipe *r, support_random *s) {
    const int x = pick(r, s, 7, false);
    if (x < 0 || r->items[x].shape.rank == 0) return -1;
    const uint32_t axis = (uint32_t)support_random_below(s, r->items[x].shape.rank);
    tg_shape other = r->items[x].shape;
    other.dim[axis] = 1 + support_random_below(s, 5);
    const int y = support_random_below(s, 3) ? add_leaf(r, s, other, r->items[x].dtype) : x;
    item t = {.kind = CONCAT, .dtype = r->items[x].dtype, .shape = other, .in = {x, y}, .in_count = 2, .axes = axis};
    t.shape.dim[axis] = r->items[x].shape.dim[axis] + r->items[y].shape.dim[axis];
    if (support_random_below(s, 2)) t.in[0] = y, t.in[1] = x;
    return count_of(t.shape) > 20000 ? -1 : add(r, t);
}

/* x as [B, M, K] against a leaf [B, K, N] or its own transpose [B, K, M] */
static int grow_contract(recipe *r, support_random *s) {
    const int x = pick(r, s, 1 << TG_F32, false);
    if (x < 0) return -1;
    const tg_shape shape = r->items[x].shape;
    const int64_t k = shape.rank > 0 ? shape.dim[shape.rank - 1] : 1, n = count_of(shape);
    const int64_t batch = shape.rank > 2 ? shape.dim[0] : 1, m = n / k / batch;
    const int a = add(r, (item){.kind = RESHAPE, .dtype = TG_F32, .shape = TG_SHAPE(batch, m, k), .in = {x}, .in_count = 1});
    int b;
    if (support_random_below(s, 3) == 0 && m < 64)
        b = add(r, (item){.kind = PERMUTE, .dtype = TG_F32, .shape = TG_SHAPE(batch, k, m), .in = {a}, .in_count = 1, .perm = {0, 2, 1}});
    else b = add_leaf(r, s, TG_SHAPE(batch, k, 1 + support_random_below(s, 20)), TG_F32);
    if (batch * m * r->items[b].shape.dim[2] > 20000) return -1;
    item t = {.kind = CONTRACT, .dtype = TG_F32, .shape = TG_SHAPE(batch, m, r->items[b].shape.dim[2]), .in = {a, b}, .in_count = 2};
    return settle(r, add(r, t));
}

static int grow_index(recipe *r, support_random *s) {
    const int x = pick(r, s, 1 << TG_F32, false);
    int i = pick(r, s, 1 << TG_I32, true);
    if (x < 0) return -1;
    if (i < 0) i = add_leaf(r, s, TG_SHAPE(6), TG_I32);
    const int64_t n = count_of(r->items[i].shape), count = count_of(r->items[x].shape);
    const tg_shape in = r->items[x].shape;
    const int64_t width = in.rank > 1 ? in.dim[in.rank - 1] : 1, rows = count / width;
    if (n * width > 8000) return -1;
    const int flat = add(r, (item){.kind = RESHAPE, .dtype = TG_I32, .shape = TG_SHAPE(n), .in = {i}, .in_count = 1});
    const int table = add(r, (item){.kind = RESHAPE, .dtype = TG_F32, .shape = TG_SHAPE(rows, width), .in = {x}, .in_count = 1});
    const int rowed = add(r, (item){.kind = GATHER, .dtype = TG_F32, .shape = TG_SHAPE(n, width), .in = {table, flat}, .in_count = 2});
    if (support_random_below(s, 2)) return rowed;
    const int64_t to = 1 + support_random_below(s, 6);
    const int zero = add(r, (item){.kind = NUMBER, .dtype = TG_I32, .value = 0});
    const int last = add(r, (item){.kind = NUMBER, .dtype = TG_I32, .value = (double)(to - 1)});
    const int row = add_binary(r, BINARY, TG_OP_MIN, add_binary(r, BINARY, TG_OP_MAX, flat, zero), last);
    return settle(r, add(r, (item){.kind = SCATTER, .dtype = TG_F32, .shape = TG_SHAPE(to, width), .in = {row, rowed}, .in_count = 2}));
}

static int grow_iota(recipe *r, support_random *s) {
    const tg_shape shape = random_shape(s);
    if (shape.rank == 0) return -1;
    return add(r, (item){.kind = IOTA,
                         .dtype = support_random_below(s, 2) ? TG_I32 : TG_F32,
                         .shape = shape,
                         .axes = (uint32_t)support_random_below(s, shape.rank)});
}

static void grow(recipe *r, support_random *s) {
    const int64_t choice = support_random_below(s, 21);
    int x;
    if (choice < 6) x = grow_elementwise(r, s);
    else if (choice < 8) x = grow_choice(r, s);
    else if (choice < 11) x = grow_reduce(r, s);
    else if (choice < 15) x = grow_view(r, s);
    else if (choice < 16) x = grow_concat(r, s);
    else if (choice < 17) x = grow_contract(r, s);
    else if (choice < 18) x = grow_index(r, s);
    else if (choice < 19) x = grow_cast(r, s);
    else if (choice < 20) x = grow_iota(r, s);
    else x = grow_fold(r, s);
    if (x >= 0) settle(r, x);
}

/* Is there a later value of the same shape and dtype to write to leaf d? Views of d itself are made for that, too. */
static void add_update(recipe *r, support_random *s, int d) {
    const item *t = &r->items[d];
    for (int i = 0; i < r->update_count; i++)
        if (r->updates[i].destination == d) return;
    int source = -1;
    for (int tries = 0; tries < 30; tries++) {
        const int x = (int)support_random_below(s, r->count);
        if (x != d && r->items[x].dtype == t->dtype && tg_shape_equal(r->items[x].shape, t->shape)) source = x;
    }
    if (t->dtype == TG_BOOL || r->update_count == SUPPORT_COUNT(r->updates)) return;
    if (source < 0 || support_random_below(s, 3) == 0) { /* d <- d + a permuted or flipped d: the in-place trap */
        item view = {.kind = FLIP, .dtype = t->dtype, .shape = t->shape, .in = {d}, .in_count = 1, .axes = (1u << t->shape.rank) - 1};
        if (t->shape.rank == 2 && t->shape.dim[0] == t->shape.dim[1]) view.kind = PERMUTE, view.perm[0] = 1, view.perm[1] = 0;
        source = add_binary(r, BINARY, TG_OP_ADD, d, add(r, view));
    }
    r->updates[r->update_count++] = (update){d, add_clamped(r, source)};
}

static recipe make_recipe(uint64_t seed) {
    recipe r = {.seed = seed};
    support_random s = support_random_make(seed);
    add_leaf(&r, &s, random_shape(&s), TG_F32);
    if (support_random_below(&s, 2)) {
        const int64_t n = 1 + support_random_below(&s, 40);
        add(&r, (item){.kind = STATE, .dtype = TG_F32, .shape = TG_SHAPE(n, n)});
    }
    if (support_random_below(&s, 3) == 0) add_leaf(&r, &s, random_shape(&s), TG_I32);
    const int64_t want = 5 + support_random_below(&s, 36);
    while (r.count < want) grow(&r, &s);
    const int made = r.count;
    for (int i = 0; i < made && r.count < MAX_ITEMS - 8; i++)
        if (r.items[i].kind == STATE || r.items[i].kind == PARAM) add_update(&r, &s, i);
    r.outputs[r.output_count++] = made - 1;
    const int64_t more = support_random_below(&s, 4);
    for (int i = 0; i < more; i++) r.outputs[r.output_count++] = (int)support_random_below(&s, made);
    bound_all(&r);
    return r;
}

/* ---------------------------------------------------------------- building the graph of a recipe */

static void mark(const recipe *r, int i, bool *live) {
    if (live[i]) return;
    live[i] = true;
    for (int k = 0; k < r->items[i].in_count; k++) mark(r, r->items[i].in[k], live);
}

static void mark_live(const recipe *r, bool *live) {
    memset(live, 0, sizeof(bool) * MAX_ITEMS);
    for (int i = 0; i < r->output_count; i++) mark(r, r->outputs[i], live);
    for (int i = 0; i < r->update_count; i++) {
        mark(r, r->updates[i].source, live);
        mark(r, r->updates[i].destination, live);
    }
}

static int32_t build_leaf(tg_graph *g, const item *t, int i) {
    char name[32];
    snprintf(name, sizeof name, "x%d", i);
    if (t->kind == INPUT) return tg_input(g, name, t->shape, t->dtype).id;
    if (t->kind == PARAM) return tg_param(g, name, t->shape, .init = tg_init_zeros()).id;
    return tg_state(g, name, t->shape, t->dtype, 0.0).id;
}

static int32_t one_plus_square(tg_graph *g, int32_t x) {
    return tg_ir_binary(g, TG_OP_ADD, tg_ir_binary(g, TG_OP_MUL, x, x), tg_ir_const(g, TG_SCALAR, TG_F32, 1.0));
}

static int32_t build_item(tg_graph *g, const item *t, int i, const int32_t *ids) {
    const int32_t a = ids[t->in[0]], b = ids[t->in[1]], c = ids[t->in[2]];
    switch (t->kind) {
    case INPUT:
    case PARAM:
    case STATE: return build_leaf(g, t, i);
    case NUMBER: return tg_ir_const(g, t->shape, t->dtype, t->value);
    case DRAW: return tg_ir_draw(g, t->shape, (int64_t)t->value);
    case IOTA: return tg_ir_iota(g, t->shape, t->dtype, (int)t->axes);
    case UNARY: return tg_ir_unary(g, t->op, a);
    case GUARDED: return tg_ir_unary(g, t->op, one_plus_square(g, a));
    case BINARY:
    case COMPARE:
    case LOGICAL: return tg_ir_binary(g, t->op, a, b);
    case QUOTIENT: return tg_ir_binary(g, TG_OP_DIV, a, one_plus_square(g, b));
    case SELECT: return tg_ir_select(g, a, b, c);
    case CAST: return tg_ir_cast(g, a, t->dtype);
    case REDUCE: return tg_ir_reduce(g, t->op, a, t->axes);
    case RESHAPE: return tg_ir_reshape(g, a, t->shape);
    case PERMUTE: return tg_ir_permute(g, a, t->perm);
    case BROADCAST: return tg_ir_broadcast(g, a, t->shape);
    case SLICE: return tg_ir_slice(g, a, t->start, t->shape);
    case PAD: return tg_ir_pad(g, a, t->start, t->shape);
    case FLIP: return tg_ir_flip(g, a, t->axes);
    case WINDOW: return tg_ir_window(g, a, (int)t->axes, t->window);
    case FOLD: return tg_ir_fold(g, a, (int)t->axes, t->window, t->shape.dim[t->axes]);
    case CONCAT: return tg_ir_concat(g, (const int32_t[]){a, b}, 2, (int)t->axes);
    case CONTRACT: return tg_ir_contract(g, a, b);
    case GATHER: return tg_ir_gather(g, a, b);
    case SCATTER: break;
    }
    return tg_ir_scatter_add(g, a, b, t->shape.dim[0]);
}

static tg_tensor build_recipe(tg_graph *g, void *user) {
    const recipe *r = user;
    bool live[MAX_ITEMS];
    int32_t ids[MAX_ITEMS] = {0};
    char name[32];
    mark_live(r, live);
    for (int i = 0; i < r->count; i++)
        if (live[i]) ids[i] = build_item(g, &r->items[i], i, ids);
    for (int i = 1; i < r->output_count; i++) {
        snprintf(name, sizeof name, "output %d", i);
        tg_capture(name, ((tg_tensor){g, ids[r->outputs[i]]}));
    }
    for (int i = 0; i < r->update_count; i++)
        tg_writeback(((tg_tensor){g, ids[r->updates[i].destination]}), ((tg_tensor){g, ids[r->updates[i].source]}));
    return (tg_tensor){g, ids[r->outputs[0]]};
}

/* ---------------------------------------------------------------- checking one recipe */

static bool quiet;
static int poisoned; /* runs that began with a workspace full of NaN */

static double error_of(const recipe *r, const char *name) {
    int i;
    if (strcmp(name, "result") == 0) return r->items[r->outputs[0]].error;
    if (sscanf(name, "output %d", &i) == 1) return r->items[r->outputs[i]].error;
    if (sscanf(name, "after x%d", &i) != 1) return 0;
    for (int u = 0; u < r->update_count; u++)
        if (r->updates[u].destination == i) return r->items[r->updates[u].source].error;
    return 0;
}

static bool outputs_agree(const recipe *r, const char *how, const support_outputs *got, const support_outputs *want) {
    char what[128];
    if (got->status != TG_OK) {
        if (!quiet) fprintf(stderr, "seed %llu, %s: %s: %s\n", (unsigned long long)r->seed, how, tg_status_name(got->status), got->message);
        return false;
    }
    for (int i = 0; i < want->count; i++) {
        const support_value *w = &want->items[i], *g = NULL;
        for (int k = 0; k < got->count && !g; k++)
            if (strcmp(got->items[k].name, w->name) == 0) g = &got->items[k];
        const double error = 4 * error_of(r, w->name);
        bool same = g && g->count == w->count && g->dtype == w->dtype;
        for (int64_t k = 0; same && k < w->count; k++) same = support_close(g->data[k], w->data[k], (support_tolerance){1.0, error, 0.0});
        if (same) continue;
        snprintf(what, sizeof what, "seed %llu, %s: %s", (unsigned long long)r->seed, how, w->name);
        if (!quiet && g && g->count == w->count) support_compare(what, g->data, w->data, w->count, (support_tolerance){1.0, error, 0.0});
        else if (!quiet) fprintf(stderr, "%s: missing or of another shape or dtype\n", what);
        return false;
    }
    return true;
}

static support_case case_of(recipe *r) { return (support_case){build_recipe, r, NULL, &r->seed}; }

static bool check_run(recipe *r, const char *how, const support_options *options, const support_outputs *want, support_outputs *kept) {
    support_outputs got;
    const support_case c = case_of(r);
    support_run_home(&c, options, &got);
    if (got.poisoned) poisoned++;
    const bool same = outputs_agree(r, how, &got, want);
    if (kept) *kept = got;
    else support_outputs_free(&got);
    return same;
}

static bool on_webgpu(void) { return support_home_now() == SUPPORT_WEBGPU; }

static bool check_cpu(recipe *r, const support_outputs *want) {
    support_outputs one = {0}, three = {0};
    bool same = check_run(r, "fused", &(support_options){.runs = 2}, want, &one);
    same = same && check_run(r, "not fused", &(support_options){.runs = 2, .no_fusion = true}, want, NULL);
    same = same && check_run(r, "without passes", &(support_options){.runs = 2, .no_passes = true}, want, NULL);
    same = same && check_run(r, "8 arguments", &(support_options){.runs = 2, .max_arguments = 8}, want, NULL);
    same = same && check_run(r, "joined", &(support_options){.runs = 2, .joins = true}, want, NULL);
    same = same && check_run(r, "joined and shuffled", &(support_options){.runs = 2, .joins = true, .shuffled = true}, want, NULL);
    same = same && check_run(r, "scalar", &(support_options){.runs = 2, .isa = "scalar"}, want, NULL);
    same = same && check_run(r, "3 threads", &(support_options){.runs = 2, .threads = 3}, want, &three);
    same = same && support_outputs_identical(quiet ? "" : "3 threads against 1", &three, &one);
    support_outputs_free(&one);
    support_outputs_free(&three);
    return same;
}

static bool check_webgpu(recipe *r, const support_outputs *want) {
    support_outputs one = {0}, again = {0};
    bool same = check_run(r, "fused", &(support_options){.runs = 2}, want, &one);
    same = same && check_run(r, "not fused", &(support_options){.runs = 2, .no_fusion = true}, want, NULL);
    same = same && check_run(r, "4 arguments", &(support_options){.runs = 2, .max_arguments = 4}, want, NULL);
    same = same && check_run(r, "again", &(support_options){.runs = 2}, want, &again);
    same = same && support_outputs_identical(quiet ? "" : "the second time", &again, &one);
    support_outputs_free(&one);
    support_outputs_free(&again);
    return same;
}

/* Every way of running but emitted C, which is compiled once for many. */
static bool check(recipe *r) {
    support_outputs want;
    const support_case c = case_of(r);
    if (!support_run_reference(&c, 2, &want)) {
        if (!quiet) fprintf(stderr, "seed %llu: reference: %s\n", (unsigned long long)r->seed, want.message);
        return false;
    }
    const bool same = on_webgpu() ? check_webgpu(r, &want) : check_cpu(r, &want);
    support_outputs_free(&want);
    return same;
}

/* ---------------------------------------------------------------- shrinking */

typedef bool (*check_fn)(recipe *r);

static bool still_fails(recipe *r, const recipe *candidate, check_fn fails_when_false) {
    recipe trial = *candidate;
    bound_all(&trial);
    if (fails_when_false(&trial)) return false;
    *r = trial;
    return true;
}

/* Scattered rows must stay inside their table, which a fed value would not. */
static bool is_scatter_row(const recipe *r, int i) {
    for (int k = 0; k < r->count; k++)
        if (r->items[k].kind == SCATTER && r->items[k].in[0] == i) return true;
    return false;
}

static bool shrink_once(recipe *r, check_fn ok) {
    for (int i = 0; i < r->output_count && r->output_count > 1; i++) {
        recipe t = *r;
        t.outputs[i] = t.outputs[--t.output_count];
        if (still_fails(r, &t, ok)) return true;
    }
    for (int i = 0; i < r->update_count; i++) {
        recipe t = *r;
        t.updates[i] = t.updates[--t.update_count];
        if (still_fails(r, &t, ok)) return true;
    }
    bool live[MAX_ITEMS];
    mark_live(r, live);
    for (int i = 0; i < r->count; i++) {
        if (!live[i] || r->items[i].in_count == 0 || is_scatter_row(r, i)) continue;
        recipe t = *r; /* a fed value in its place */
        t.items[i] = (item){.kind = INPUT, .dtype = r->items[i].dtype, .shape = r->items[i].shape};
        if (still_fails(r, &t, ok)) return true;
    }
    for (int i = 0; i < r->output_count; i++)
        for (int k = 0; k < r->items[r->outputs[i]].in_count; k++) {
            recipe t = *r; /* an output's operand in the output's place */
            t.outputs[i] = r->items[r->outputs[i]].in[k];
            if (still_fails(r, &t, ok)) return true;
        }
    return false;
}

static void print_recipe(recipe *r) {
    tg_context *ctx = support_context();
    const support_case c = case_of(r);
    tg_graph *g = support_trace(ctx, &c);
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    if (g) tg_graph_print(g, &text);
    fprintf(stderr, "%s\n", text.data ? text.data : tg_error_message(ctx));
    tg_text_free(&text);
    if (g) tg_graph_destroy(g);
    tg_context_destroy(ctx);
    support_program p;
    support_outputs error = {0};
    if (support_program_make(&c, &(support_options){.unchecked = true}, &p, &error)) {
        tg_text_init(&text, p.ctx);
        tg_program_print_kernels(p.program, &text);
        tg_program_print(p.program, &text);
        fprintf(stderr, "%s\n", text.data ? text.data : "");
        tg_text_free(&text);
    }
    support_program_free(&p);
}

static void report(const recipe *failed, check_fn ok) {
    recipe r = *failed;
    quiet = true;
    for (int steps = 0; steps < 400 && shrink_once(&r, ok); steps++) continue;
    quiet = false;
    fprintf(stderr, "seed %llu, shrunk:\n", (unsigned long long)r.seed);
    ok(&r);
    print_recipe(&r);
}

/* ---------------------------------------------------------------- tests */

static int graph_count(void) { return support_env_int("TG_RANDOM_GRAPHS", on_webgpu() ? 40 : SUPPORT_SANITIZED ? 60 : 300); }

static void test_graphs(void **state) {
    (void)state;
    const uint64_t first = support_seed(1);
    int failed = 0, updates = 0;
    for (int i = 0; i < graph_count(); i++) {
        recipe r = make_recipe(first + (uint64_t)i);
        updates += r.update_count;
        if (check(&r)) continue;
        if (failed++ < 3) report(&r, check);
    }
    print_message("%d graphs from seed %llu, %d updates in place, %d runs over a poisoned workspace\n", graph_count(),
                  (unsigned long long)first, updates, poisoned);
    assert_int_equal(failed, 0);
    assert_true(updates > 0);
    assert_true(poisoned > graph_count());
}

/* A workspace full of NaN shows every read before a write, and the emitted C every misreading of a kernel. */
static void test_emitted(void **state) {
    (void)state;
    if (!support_emitted_available()) skip();
    const uint64_t first = support_seed(1) + 1000000;
    const int n = graph_count() / 5 + 1;
    recipe *recipes = calloc((size_t)n, sizeof *recipes);
    support_program *programs = calloc((size_t)n, sizeof *programs);
    int *index = calloc((size_t)n, sizeof *index), failed = 0;
    assert_true(recipes && programs && index);
    support_emitted *e = support_emitted_create();
    for (int i = 0; i < n; i++) {
        support_outputs error = {0};
        recipes[i] = make_recipe(first + (uint64_t)i);
        const support_case c = case_of(&recipes[i]);
        index[i] = support_program_make(&c, &(support_options){.no_fusion = i % 3 == 2}, &programs[i], &error)
                       ? support_emitted_add(e, programs[i].program, programs[i].ctx)
                       : -1;
        if (index[i] >= 0) continue;
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)recipes[i].seed,
                error.status ? error.message : tg_error_message(programs[i].ctx));
        failed++;
    }
    assert_true(support_emitted_compile(e));
    for (int i = 0; i < n; i++) {
        if (index[i] < 0) continue;
        void *user = NULL;
        support_outputs got, want;
        const support_case c = case_of(&recipes[i]);
        const support_step_fn step = support_emitted_step(e, index[i], &user);
        support_program_run(&programs[i], &c, 2, step, user, &got);
        if (!support_run_reference(&c, 2, &want) || !outputs_agree(&recipes[i], "emitted C", &got, &want)) failed++;
        support_outputs_free(&got);
        support_outputs_free(&want);
    }
    support_emitted_destroy(e);
    for (int i = 0; i < n; i++) support_program_free(&programs[i]);
    free(recipes);
    free(programs);
    free(index);
    assert_int_equal(failed, 0);
}

int main(void) {
    const int refused = support_home_refuses("random graphs");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs), cmocka_unit_test(test_emitted)};
    const size_t count = on_webgpu() ? 1 : SUPPORT_COUNT(tests);
    return _cmocka_run_group_tests("random graphs", tests, count, NULL, NULL);
}
