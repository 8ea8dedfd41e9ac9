/* The op table: every primitive of ops.def has a row here (a missing row does not compile) and is
 * run over shapes, element types, its attributes and special values; alone and fused with
 * neighbours; on the CPU executor with and without fusion, on each instruction set, with 1, 2 and 3
 * threads; and as emitted C. All against the f64 reference, with a tolerance per class of
 * operation. Under sanitizers instruction sets and threads are swept on the odd shape only. On
 * WebGPU (see support_home): the same rows fused, and every other variant not fused; the table
 * webgpu_waivers has what cannot be promised there. */
#include "ir/attention.h"
#include "support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#  include <malloc.h>
#endif

#define F32 (1u << TG_F32)
#define I32 (1u << TG_I32)
#define BOOL (1u << TG_BOOL)

typedef struct op_row op_row;

/* One case of one row. */
typedef struct op_setup {
    const op_row *row;
    tg_op op;
    tg_dtype dtype;
    tg_shape shape;
    int variant;  /* meaning by row: axes mask, permutation, target dtype */
    bool special; /* leaves hold special values */
    bool company; /* operands come from other operations, the result goes into others */
} op_setup;

typedef enum op_values { VALUES_ANY, VALUES_SUMMABLE, VALUES_FINITE, VALUES_TRIGONOMETRIC } op_values;

struct op_row {
    tg_tensor (*build)(tg_graph *g, const op_setup *s);
    unsigned dtypes;
    support_tolerance tolerance;
    int (*variants)(const op_setup *s); /* NULL: one */
    const tg_shape *shapes;             /* NULL: the common ones */
    int shape_count;
    bool big;         /* also over more than 65,535 x 64 elements */
    op_values values; /* which special values make sense */
};

/* ---------------------------------------------------------------- special values */

static const double special_f32[] = {0.0,
                                     -0.0,
                                     1.0,
                                     -1.0,
                                     0.5,
                                     -0.5,
                                     2.0,
                                     -2.0,
                                     3.0,
                                     -3.0,
                                     7.25,
                                     88.5,
                                     88.9,
                                     -87.2,
                                     -103.5,
                                     1e-6,
                                     1e5,
                                     -1e5,
                                     1e-30,
                                     -1e-30,
                                     (double)FLT_MIN,
                                     0x1p-149,
                                     -0x1p-149,
                                     (double)FLT_MAX,
                                     -(double)FLT_MAX,
                                     2147483648.0,
                                     -2147483648.0,
                                     3e9,
                                     -3e9,
                                     16777217.0,
                                     (double)INFINITY,
                                     -(double)INFINITY,
                                     (double)NAN};
static const double special_summable[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e5, 1e-30, 0x1p-149, (double)INFINITY, (double)NAN};
static const double special_finite[] = {0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 20.0, 1e-30, 0x1p-149};
static const double special_trigonometric[] = {0.0,        -0.0, 1.0, -1.0, 1e-6,    -1e-30,  1.5707963705062866, 3.1415927410125732,
                                               100.0,      1e4,  1e5, -1e5, 99999.5, 25735.5, (double)INFINITY,   -(double)INFINITY,
                                               (double)NAN};
static const double special_i32[] = {0, 1, -1, 2, -2, 3, 7, -7, 12, 46341, -46341, 65536, 2147483647, -2147483647, -2147483648.0};

static const double *special_values(const op_setup *s, tg_dtype dtype, int *count) {
    if (dtype == TG_I32) {
        *count = SUPPORT_COUNT(special_i32);
        return special_i32;
    }
    if (s->row->values == VALUES_SUMMABLE) {
        *count = SUPPORT_COUNT(special_summable);
        return special_summable;
    }
    if (s->row->values == VALUES_FINITE) {
        *count = SUPPORT_COUNT(special_finite);
        return special_finite;
    }
    if (s->row->values == VALUES_TRIGONOMETRIC) {
        *count = SUPPORT_COUNT(special_trigonometric);
        return special_trigonometric;
    }
    *count = SUPPORT_COUNT(special_f32);
    return special_f32;
}

/* ---------------------------------------------------------------- what WebGPU does not promise */

static bool on_webgpu(void) { return support_home_now() == SUPPORT_WEBGPU; }

enum { FEED_NAN = 1, FEED_INFINITY = 2, FEED_SUBNORMAL = 4, FEED_HUGE = 8, GIVE_NAN = 16, GIVE_INFINITY = 32 };
/* Values of these kinds are not fed (1 in their place), results of these kinds not compared. */
typedef struct webgpu_waiver {
    tg_op op;
    unsigned kinds;
    const char *reason;
} webgpu_waiver;
#define FLUSHED "a subnormal operand may be taken for 0, which this operation tells from a small number"
static const webgpu_waiver webgpu_waivers[] = {
    {TG_OP_SIGN, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_SQRT, FEED_SUBNORMAL, FLUSHED}, /* of a negative one: -0, not NaN */
    {TG_OP_RSQRT, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_LOG, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_MUL, FEED_SUBNORMAL, FLUSHED}, /* by infinity: NaN */
    {TG_OP_DIV, FEED_SUBNORMAL, FLUSHED}, /* by each other: NaN */
    {TG_OP_DIV, FEED_HUGE, "WGSL promises nothing of a divisor beyond 2^126, whose reciprocal is subnormal"},
    {TG_OP_DIV, GIVE_INFINITY, "WGSL promises nothing of a quotient beyond f32: one driver's is NaN"},
    {TG_OP_FLOOR, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_CEIL, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_POW, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_MOD, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_LESS, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_LESS_EQUAL, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_EQUAL, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_NOT_EQUAL, FEED_SUBNORMAL, FLUSHED},
    {TG_OP_CAST, FEED_SUBNORMAL, FLUSHED}, /* to bool */
};

static unsigned waived(tg_op op) {
    unsigned kinds = 0;
    for (int i = 0; on_webgpu() && i < SUPPORT_COUNT(webgpu_waivers); i++)
        if (webgpu_waivers[i].op == op) kinds |= webgpu_waivers[i].kinds;
    return kinds;
}

static unsigned fed_kind(double value) {
    if (isnan(value)) return FEED_NAN;
    if (isinf(value)) return FEED_INFINITY;
    if (value != 0.0 && fabs(value) < (double)FLT_MIN) return FEED_SUBNORMAL;
    return fabs(value) >= 0x1p126 ? FEED_HUGE : 0;
}

static unsigned given_kind(double value) {
    if (isnan(value)) return GIVE_NAN;
    return fabs(value) > (double)FLT_MAX ? GIVE_INFINITY : 0;
}

static void forgive(const op_setup *s, support_outputs *got, const support_outputs *want) {
    const unsigned kinds = waived(s->op);
    for (int i = 0; kinds && got->status == TG_OK && i < want->count; i++)
        for (int64_t k = 0; k < want->items[i].count && want->items[i].dtype == TG_F32; k++)
            if (given_kind(want->items[i].data[k]) & kinds) got->items[i].data[k] = want->items[i].data[k];
}

/* Special: "x0" runs through the values fastest, "x1" once per run of "x0": all pairs when there are count^2 elements. */
static void fill_ops(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const op_setup *s = user;
    support_fill_default(NULL, name, shape, dtype, out, count);
    if (!s->special || dtype == TG_BOOL) return;
    int n = 0;
    const double *values = special_values(s, dtype, &n);
    const int64_t period = name[1] == '1' ? n : 1;
    const unsigned kinds = dtype == TG_F32 ? waived(s->op) : 0;
    for (int64_t i = 0; i < count; i++) {
        const double value = values[i / period % n];
        out[i] = fed_kind(value) & kinds ? 1.0 : value;
    }
}

/* ---------------------------------------------------------------- building */

static tg_tensor wrap(tg_graph *g, int32_t id) { return (tg_tensor){g, id}; }

/* Operations that change values exactly and undoably: company for operands and results. */
static tg_tensor disguise(tg_tensor x) {
    if (tg_tensor_dtype(x) == TG_BOOL) return tg_logical_not(x);
    return tg_neg(x);
}

static tg_tensor operand(tg_graph *g, const op_setup *s, const char *name, tg_shape shape, tg_dtype dtype) {
    tg_tensor x = tg_input(g, name, shape, dtype);
    if (!s->company) return x;
    if (shape.rank > 0) x = wrap(g, tg_ir_flip(g, x.id, 1u << (shape.rank - 1)));
    return disguise(x);
}

static tg_tensor x0(tg_graph *g, const op_setup *s) { return operand(g, s, "x0", s->shape, s->dtype); }
static tg_tensor x1(tg_graph *g, const op_setup *s) { return operand(g, s, "x1", s->shape, s->dtype); }

static tg_tensor build_ops(tg_graph *g, void *user) {
    const op_setup *s = user;
    tg_tensor y = s->row->build(g, s);
    if (!s->company) return y;
    const tg_tensor z = disguise(y);
    tg_capture("again", tg_tensor_dtype(y) == TG_BOOL ? tg_logical_and(z, true) : tg_maximum(z, y));
    if (tg_tensor_dtype(y) != TG_BOOL && tg_tensor_shape(y).rank > 0) tg_capture("largest", tg_max(z, TG_AXES(-1)));
    return z;
}

static tg_tensor build_unary(tg_graph *g, const op_setup *s) { return wrap(g, tg_ir_unary(g, s->op, x0(g, s).id)); }
static tg_tensor build_binary(tg_graph *g, const op_setup *s) {
    const int32_t a = x0(g, s).id;
    return wrap(g, tg_ir_binary(g, s->op, a, x1(g, s).id));
}
static tg_tensor build_input(tg_graph *g, const op_setup *s) { return x0(g, s); }
static tg_tensor build_param(tg_graph *g, const op_setup *s) { return tg_param(g, "x0", s->shape, .init = tg_init_zeros()); }
static tg_tensor build_state(tg_graph *g, const op_setup *s) { return tg_state(g, "x0", s->shape, s->dtype, 0.0); }

static tg_tensor build_const(tg_graph *g, const op_setup *s) {
    if (s->variant < 8) {
        static const double f32_values[] = {0.0, -0.0, 0.1, (double)INFINITY, -(double)INFINITY, (double)NAN, (double)FLT_MAX, 0x1p-149};
        static const double i32_values[] = {0, 1, -1, 2147483647, -2147483648.0, 7, -65536, 3};
        const double value = s->dtype == TG_F32 ? f32_values[s->variant] : s->dtype == TG_I32 ? i32_values[s->variant] : s->variant % 2;
        return wrap(g, tg_ir_const(g, s->shape, s->dtype, value));
    }
    const int64_t count = tg_shape_count(s->shape);
    double *wide = malloc(sizeof(double) * (size_t)count);
    void *data = malloc(4 * (size_t)count);
    assert_non_null(wide);
    assert_non_null(data);
    op_setup special = *s;
    special.special = true;
    fill_ops(&special, "x0", s->shape, s->dtype, wide, count);
    for (int64_t i = 0; i < count; i++) {
        if (s->dtype == TG_F32) ((float *)data)[i] = (float)wide[i];
        else if (s->dtype == TG_I32) ((int32_t *)data)[i] = (int32_t)wide[i];
        else ((uint8_t *)data)[i] = wide[i] != 0.0;
    }
    const int32_t id = tg_ir_data(g, s->shape, s->dtype, data);
    free(wide);
    free(data);
    return wrap(g, id);
}
static int const_variants(const op_setup *s) { return s->shape.rank == 1 ? 9 : s->shape.rank == 3 ? 9 : 1; }

static tg_tensor build_iota(tg_graph *g, const op_setup *s) { return wrap(g, tg_ir_iota(g, s->shape, s->dtype, s->variant)); }
static int axis_variants(const op_setup *s) { return s->shape.rank; }

static tg_tensor build_select(tg_graph *g, const op_setup *s) {
    const int32_t c = operand(g, s, "c", s->shape, TG_BOOL).id, a = x0(g, s).id, b = x1(g, s).id;
    return wrap(g, tg_ir_select(g, c, a, b));
}

/* variants: the bound; the key is one, or one for each element, or of the index alone */
static tg_tensor build_random(tg_graph *g, const op_setup *s) {
    static const int64_t bounds[] = {INT64_C(1) << 31, 1, 10, INT64_C(1) << 24, 1000003};
    const int32_t index = x0(g, s).id, key = x1(g, s).id;
    const int32_t one = operand(g, s, "k", TG_SCALAR, TG_I32).id;
    const int32_t key0 = s->variant % 3 == 0 ? one : key, key1 = s->variant % 3 == 1 ? one : s->variant % 3 == 2 ? index : key;
    return wrap(g, tg_ir_random(g, index, s->variant == 0 ? one : key0, s->variant == 0 ? one : key1, s->variant * 7, bounds[s->variant]));
}
static int random_variants(const op_setup *s) {
    (void)s;
    return 5;
}

static tg_tensor build_cast(tg_graph *g, const op_setup *s) { return wrap(g, tg_ir_cast(g, x0(g, s).id, (tg_dtype)s->variant)); }
static int cast_variants(const op_setup *s) {
    (void)s;
    return 3;
}

/* every set of axes, the empty one last */
static uint32_t axes_of(const op_setup *s) { return ((uint32_t)s->variant + 1u) & ((1u << s->shape.rank) - 1u); }
static tg_tensor build_reduce(tg_graph *g, const op_setup *s) { return wrap(g, tg_ir_reduce(g, s->op, x0(g, s).id, axes_of(s))); }
static int mask_variants(const op_setup *s) { return 1 << s->shape.rank; }

static tg_tensor build_reshape(tg_graph *g, const op_setup *s) {
    const int64_t count = tg_shape_count(s->shape);
    const tg_shape targets[] = {TG_SHAPE(count), TG_SHAPE(1, count, 1), count % 5 == 0 ? TG_SHAPE(5, count / 5) : TG_SHAPE(count, 1)};
    return wrap(g, tg_ir_reshape(g, x0(g, s).id, targets[s->variant]));
}
static int three_variants(const op_setup *s) {
    (void)s;
    return 3;
}

/* rotations by variant + 1, and the reversal */
static tg_tensor build_permute(tg_graph *g, const op_setup *s) {
    int32_t perm[TG_MAX_RANK] = {0};
    const int rank = s->shape.rank;
    for (int d = 0; d < rank; d++) perm[d] = s->variant + 1 < rank ? (d + s->variant + 1) % rank : rank - 1 - d;
    return wrap(g, tg_ir_permute(g, x0(g, s).id, perm));
}
static int permute_variants(const op_setup *s) { return s->shape.rank > 0 ? s->shape.rank : 1; }

static tg_tensor build_broadcast(tg_graph *g, const op_setup *s) {
    tg_shape from = s->shape;
    for (int d = 0; d < from.rank; d++)
        if (axes_of(s) >> d & 1u) from.dim[d] = 1;
    return wrap(g, tg_ir_broadcast(g, operand(g, s, "x0", from, s->dtype).id, s->shape));
}

static tg_tensor build_slice(tg_graph *g, const op_setup *s) {
    tg_shape to = s->shape;
    int64_t start[TG_MAX_RANK] = {0};
    for (int d = 0; d < to.rank; d++) {
        if (!(axes_of(s) >> d & 1u) || to.dim[d] < 3) continue;
        start[d] = 1;
        to.dim[d] -= 2;
    }
    return wrap(g, tg_ir_slice(g, x0(g, s).id, start, to));
}

static tg_tensor build_pad(tg_graph *g, const op_setup *s) {
    tg_shape to = s->shape;
    int64_t before[TG_MAX_RANK] = {0};
    for (int d = 0; d < to.rank; d++) {
        if (!(axes_of(s) >> d & 1u)) continue;
        before[d] = d + 1;
        to.dim[d] += d + 3;
    }
    return wrap(g, tg_ir_pad(g, x0(g, s).id, before, to));
}

static tg_tensor build_flip(tg_graph *g, const op_setup *s) { return wrap(g, tg_ir_flip(g, x0(g, s).id, axes_of(s))); }

/* size, step, dilation */
static const tg_window windows[] = {{1, 1, 1}, {3, 1, 1}, {2, 2, 1}, {3, 2, 2}, {2, 3, 1}, {3, 3, 2}};
static tg_window window_of(const op_setup *s) { return windows[s->variant % SUPPORT_COUNT(windows)]; }
static int axis_of(const op_setup *s) { return s->variant / SUPPORT_COUNT(windows); }
static tg_tensor build_window(tg_graph *g, const op_setup *s) {
    tg_window w = window_of(s);
    while (tg_window_span(w) > s->shape.dim[axis_of(s)]) w.size--;
    return wrap(g, tg_ir_window(g, x0(g, s).id, axis_of(s), w));
}
static int window_variants(const op_setup *s) { return s->shape.rank * SUPPORT_COUNT(windows); }

/* shape = of the windows, without their taps; as the primitive itself, which tg_ir_fold avoids where windows lie apart */
static tg_tensor build_fold(tg_graph *g, const op_setup *s) {
    const tg_window w = window_of(s);
    tg_shape to = s->shape, from = s->shape;
    from.dim[from.rank++] = w.size;
    to.dim[axis_of(s)] = (to.dim[axis_of(s)] - 1) * w.stride + tg_window_span(w) + 1;
    tg_attributes attr = {.axis = axis_of(s), .window = w};
    const tg_tensor x = operand(g, s, "x0", from, TG_F32);
    if (s->company) return wrap(g, tg_ir_fold(g, x.id, axis_of(s), w, to.dim[axis_of(s)]));
    to.dim[axis_of(s)] = (to.dim[axis_of(s)] + w.stride - 1) / w.stride * w.stride;
    return wrap(g, tg_node_make(g, TG_OP_FOLD, TG_F32, to, &x.id, 1, &attr));
}

static tg_tensor build_concat(tg_graph *g, const op_setup *s) {
    tg_shape longer = s->shape;
    longer.dim[s->variant] += 3;
    const int32_t a = x0(g, s).id, b = operand(g, s, "x1", longer, s->dtype).id;
    const int32_t parts[] = {a, b, a, tg_ir_const(g, s->shape, s->dtype, 1.0)};
    return wrap(g, tg_ir_concat(g, parts, 4, s->variant));
}

static tg_tensor build_pack(tg_graph *g, const op_setup *s) {
    const int64_t count = tg_shape_count(s->shape);
    const int32_t a = x0(g, s).id;
    const int32_t parts[] = {a, x1(g, s).id, tg_ir_permute(g, a, (const int32_t[]){1, 0})};
    const int64_t offsets[] = {0, count + 5, 3 * count};
    return wrap(g, tg_ir_pack(g, parts, offsets, 3, 4 * count + 7));
}

/* shape = [B, M, K, N]; variants: plain, a transposed in memory, b transposed in memory, both broadcast over the batch */
static tg_tensor build_contract(tg_graph *g, const op_setup *s) {
    const int64_t batch = s->shape.dim[0], m = s->shape.dim[1], k = s->shape.dim[2], n = s->shape.dim[3];
    const int32_t swap[] = {0, 2, 1};
    tg_tensor a = operand(g, s, "x0", s->variant == 1 ? TG_SHAPE(batch, k, m) : TG_SHAPE(s->variant == 3 ? 1 : batch, m, k), TG_F32);
    tg_tensor b = operand(g, s, "x1", s->variant == 2 ? TG_SHAPE(batch, n, k) : TG_SHAPE(s->variant == 3 ? 1 : batch, k, n), TG_F32);
    if (s->variant == 1) a = wrap(g, tg_ir_permute(g, a.id, swap));
    if (s->variant == 2) b = wrap(g, tg_ir_permute(g, b.id, swap));
    if (s->variant == 3) a = wrap(g, tg_ir_broadcast(g, a.id, TG_SHAPE(batch, m, k)));
    if (s->variant == 3) b = wrap(g, tg_ir_broadcast(g, b.id, TG_SHAPE(batch, k, n)));
    return wrap(g, tg_ir_contract(g, a.id, b.id));
}
static int four_variants(const op_setup *s) {
    (void)s;
    return 4;
}

/* shape = [V, D]; indices run out of the table on both sides, which GATHER clamps */
static tg_tensor build_gather(tg_graph *g, const op_setup *s) {
    const tg_tensor indices = tg_input(g, "indices", TG_SHAPE(29), TG_I32);
    return wrap(g, tg_ir_gather(g, x0(g, s).id, indices.id));
}

static tg_tensor build_scatter_add(tg_graph *g, const op_setup *s) {
    tg_tensor indices = tg_input(g, "indices", TG_SHAPE(29), TG_I32);
    indices = tg_maximum(tg_minimum(indices, (double)(s->shape.dim[0] - 1)), 0.0);
    const tg_tensor updates = operand(g, s, "x0", TG_SHAPE(29, s->shape.dim[1]), TG_F32);
    return wrap(g, tg_ir_scatter_add(g, indices.id, updates.id, s->shape.dim[0]));
}

/* ---------------------------------------------------------------- the rows */

/* shape = [B, Hk, G, T, S, d]; variant bit 0: causal, bit 1: masked */
static tg_tensor build_attention(tg_graph *g, const op_setup *s) {
    const int64_t *n = s->shape.dim, keys = s->variant & 1 ? n[3] : n[4];
    const tg_shape q = TG_SHAPE(n[0], n[1] * n[2], n[3], n[5]), k = TG_SHAPE(n[0], n[1], keys, n[5]),
                   row = TG_SHAPE(n[0], n[1] * n[2], n[3], 1);
    const tg_shape shapes[6] = {q, k, k, q, row, row};
    static const char *const names[6] = {"x0", "x1", "x2", "x3", "x4", "x5"};
    int32_t inputs[7];
    int count = 0;
    for (; count < (s->op == TG_OP_ATTENTION ? 3 : 6); count++) inputs[count] = operand(g, s, names[count], shapes[count], TG_F32).id;
    /* weights of at most about 1 */
    if (s->op != TG_OP_ATTENTION) inputs[4] = tg_ir_binary(g, TG_OP_ADD, inputs[4], tg_ir_const(g, TG_SCALAR, TG_F32, 9));
    if (s->variant & 2) {
        const int32_t mask = operand(g, s, "c", TG_SHAPE(1, 1, n[3], keys), TG_BOOL).id;
        inputs[count++] = tg_ir_broadcast(g, mask, TG_SHAPE(n[0], n[1] * n[2], n[3], keys));
    }
    return wrap(g, tg_ir_attention(g, s->op, inputs, count, s->variant & 1, 1 / sqrt((double)n[5])));
}

static const tg_shape shapes_attention[] = {{6, {1, 1, 1, 1, 1, 1}},   {6, {2, 1, 2, 5, 3, 4}},     {6, {1, 2, 1, 65, 70, 16}},
                                            {6, {2, 2, 3, 17, 9, 20}}, {6, {1, 1, 2, 130, 66, 32}}, {6, {1, 1, 1, 64, 64, 64}},
                                            {6, {1, 1, 1, 33, 40, 7}}, {6, {1, 2, 1, 20, 40, 128}}};
static const tg_shape shapes_contract[] = {{4, {1, 16, 16, 16}}, {4, {3, 5, 7, 9}},      {4, {1, 1, 1, 1}},    {4, {2, 3, 1, 5}},
                                           {4, {1, 33, 65, 31}}, {4, {2, 130, 70, 129}}, {4, {1, 3, 1, 5}},    {4, {200, 2, 3, 2}},
                                           {4, {1, 1, 400, 5}},  {4, {1, 7, 300, 1}},    {4, {1, 63, 257, 97}}};
static const tg_shape shapes_matrix[] = {{2, {16, 16}}, {2, {5, 7}}, {2, {1, 1}}, {2, {3, 700}}, {2, {61, 1}}};
static const tg_shape shapes_ranked[] = {{2, {16, 16}}, {3, {3, 5, 7}}, {2, {1, 1}}, {2, {2, 700}}, {1, {5}}};

#define EXACT \
  { 0.0, 0.0, 0.0 }
#define ROUNDED \
  { 0.5000001, 0.0, 0.0 }
/* library functions on f32: a few units; results under the smallest normal may be flushed */
#define FUNCTION(units) \
  { units, (double)FLT_MIN, 0.0 }

#define ROW(NAME, ...) static const op_row test_row_##NAME = {__VA_ARGS__};
#define UNARY_ROW(NAME, types, ...) ROW(NAME, .build = build_unary, .dtypes = (types), .tolerance = __VA_ARGS__)
#define BINARY_ROW(NAME, types, ...) ROW(NAME, .build = build_binary, .dtypes = (types), .tolerance = __VA_ARGS__)
#define REDUCE_ROW(NAME, types, ...) \
  ROW(NAME, .build = build_reduce, .dtypes = (types), .variants = mask_variants, .tolerance = __VA_ARGS__)
#define VIEW_ROW(NAME, builder, count) ROW(NAME, .build = builder, .dtypes = F32 | I32 | BOOL, .variants = count, .tolerance = EXACT)

ROW(INPUT, .build = build_input, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT)
ROW(PARAM, .build = build_param, .dtypes = F32, .tolerance = EXACT)
ROW(STATE, .build = build_state, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT)
ROW(CONST, .build = build_const, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT, .variants = const_variants)
ROW(IOTA, .build = build_iota, .dtypes = F32 | I32, .tolerance = EXACT, .variants = axis_variants, .shapes = shapes_ranked,
    .shape_count = SUPPORT_COUNT(shapes_ranked))
UNARY_ROW(NEG, F32 | I32, EXACT)
UNARY_ROW(ABS, F32 | I32, EXACT)
UNARY_ROW(SIGN, F32 | I32, EXACT)
UNARY_ROW(SQRT, F32, ROUNDED)
UNARY_ROW(RSQRT, F32, FUNCTION(2.0))
UNARY_ROW(RECIPROCAL, F32, FUNCTION(1.0))
UNARY_ROW(EXP, F32, FUNCTION(3.0), .big = true)
UNARY_ROW(LOG, F32, FUNCTION(3.0))
UNARY_ROW(SIN, F32, {4.0, 1e-6, 0.0}, .values = VALUES_TRIGONOMETRIC)
UNARY_ROW(COS, F32, {4.0, 1e-6, 0.0}, .values = VALUES_TRIGONOMETRIC)
UNARY_ROW(TANH, F32, FUNCTION(4.0))
UNARY_ROW(ERF, F32, FUNCTION(4.0))
UNARY_ROW(SIGMOID, F32, FUNCTION(4.0))
UNARY_ROW(SOFTPLUS, F32, FUNCTION(4.0))
UNARY_ROW(EXPM1, F32, FUNCTION(5.0))
UNARY_ROW(LOG1P, F32, FUNCTION(5.0))
UNARY_ROW(FLOOR, F32, EXACT)
UNARY_ROW(CEIL, F32, EXACT)
UNARY_ROW(ROUND, F32, EXACT)
UNARY_ROW(RELU, F32, EXACT)
UNARY_ROW(NOT, BOOL, EXACT)
UNARY_ROW(STOP_GRADIENT, F32, EXACT)
BINARY_ROW(ADD, F32 | I32, ROUNDED, .big = true)
BINARY_ROW(SUB, F32 | I32, ROUNDED)
BINARY_ROW(MUL, F32 | I32, ROUNDED)
BINARY_ROW(DIV, F32 | I32, ROUNDED)
BINARY_ROW(POW, F32, FUNCTION(16.0))
BINARY_ROW(MOD, F32, {1.0000001, 0.0, 0.0}) /* the f64 reference has a number between the largest f32 below |b| and |b| */
BINARY_ROW(MIN, F32 | I32, EXACT)
BINARY_ROW(MAX, F32 | I32, EXACT)
BINARY_ROW(LESS, F32 | I32, EXACT)
BINARY_ROW(LESS_EQUAL, F32 | I32, EXACT)
BINARY_ROW(EQUAL, F32 | I32, EXACT)
BINARY_ROW(NOT_EQUAL, F32 | I32, EXACT)
BINARY_ROW(AND, BOOL, EXACT)
BINARY_ROW(OR, BOOL, EXACT)
ROW(SELECT, .build = build_select, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT)
ROW(CAST, .build = build_cast, .dtypes = F32 | I32 | BOOL, .tolerance = ROUNDED, .variants = cast_variants)
ROW(RANDOM, .build = build_random, .dtypes = I32, .tolerance = EXACT, .variants = random_variants)
/* sums of up to 1,400 (big: 4.2 million) numbers under 2 in magnitude, some order of f32 additions */
REDUCE_ROW(SUM, F32 | I32, {4.0, 2e-4, 0.0}, .big = true, .values = VALUES_SUMMABLE)
REDUCE_ROW(REDUCE_MAX, F32 | I32, EXACT, .big = true)
REDUCE_ROW(REDUCE_MIN, F32 | I32, EXACT)
REDUCE_ROW(ARGMAX, F32 | I32, EXACT)
REDUCE_ROW(ARGMIN, F32 | I32, EXACT)
VIEW_ROW(RESHAPE, build_reshape, three_variants)
VIEW_ROW(PERMUTE, build_permute, permute_variants)
VIEW_ROW(BROADCAST, build_broadcast, mask_variants)
VIEW_ROW(SLICE, build_slice, mask_variants)
VIEW_ROW(PAD, build_pad, mask_variants)
VIEW_ROW(FLIP, build_flip, mask_variants)
ROW(WINDOW, .build = build_window, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT, .variants = window_variants, .shapes = shapes_ranked,
    .shape_count = SUPPORT_COUNT(shapes_ranked))
ROW(CONCAT, .build = build_concat, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT, .variants = axis_variants, .shapes = shapes_ranked,
    .shape_count = SUPPORT_COUNT(shapes_ranked))
ROW(PACK, .build = build_pack, .dtypes = F32, .tolerance = EXACT, .shapes = shapes_matrix, .shape_count = SUPPORT_COUNT(shapes_matrix))
ROW(FOLD, .build = build_fold, .dtypes = F32, .tolerance = {2.0, 1e-6, 0.0}, .variants = window_variants, .shapes = shapes_ranked,
    .shape_count = SUPPORT_COUNT(shapes_ranked), .values = VALUES_SUMMABLE)
ROW(CONTRACT, .build = build_contract, .dtypes = F32, .tolerance = {4.0, 1e-4, 0.0}, .variants = four_variants, .shapes = shapes_contract,
    .shape_count = SUPPORT_COUNT(shapes_contract), .values = VALUES_SUMMABLE)
ROW(GATHER, .build = build_gather, .dtypes = F32 | I32 | BOOL, .tolerance = EXACT, .shapes = shapes_matrix,
    .shape_count = SUPPORT_COUNT(shapes_matrix))
ROW(SCATTER_ADD, .build = build_scatter_add, .dtypes = F32, .tolerance = {4.0, 2e-5, 0.0}, .shapes = shapes_matrix,
    .shape_count = SUPPORT_COUNT(shapes_matrix), .values = VALUES_SUMMABLE)

/* finite values: an infinity that a row does not see is added with a weight of 0 or left out, by blocks */
#define ATTENTION_ROW(NAME) \
  ROW(NAME, .build = build_attention, .dtypes = F32, .tolerance = {8.0, 2e-4, 0.0}, .variants = four_variants, .shapes = shapes_attention, \
      .shape_count = SUPPORT_COUNT(shapes_attention), .values = VALUES_FINITE)
ATTENTION_ROW(ATTENTION)
ATTENTION_ROW(ATTENTION_DQ)
ATTENTION_ROW(ATTENTION_DKV)

static const op_row *const rows[TG_OP_COUNT] = {
#define TG_OP(NAME, ...) [TG_OP_##NAME] = &test_row_##NAME,
#include "ir/ops.def"
#undef TG_OP
};

/* ---------------------------------------------------------------- running */

/* Cases kept until the emitted C is compiled. */
typedef struct op_pending {
    op_setup setup;
    support_outputs want;
    support_program program;
    int emitted;
    char label[160];
} op_pending;
static op_pending *pending;
static int pending_count, pending_capacity;
static support_emitted *emitted;
static int cases_run, programs_run;

static void label_of(const op_setup *s, char *label, size_t size) {
    char shape[TG_SHAPE_TEXT];
    static const char *const dtypes[] = {"f32", "i32", "bool"};
    snprintf(label, size, "%s %s%s variant %d%s%s", tg_op_table[s->op].name, dtypes[s->dtype], tg_shape_text(s->shape, shape, sizeof shape),
             s->variant, s->special ? ", special values" : "", s->company ? ", fused with others" : "");
}

static support_case case_of(op_setup *s) { return (support_case){build_ops, s, fill_ops, s}; }

/* WGSL: a quotient to 2.5 units, a square root as the reciprocal of an inverse square root that is good to 2; subnormal
 * numbers, fed or given, may be flushed to 0 by any arithmetic. */
static support_tolerance tolerance_of(const op_setup *s) {
    support_tolerance t = s->row->tolerance;
    if (!on_webgpu()) return t;
    if (s->op == TG_OP_DIV && s->dtype == TG_F32) t.ulp = 2.5;
    if (s->op == TG_OP_SQRT) t.ulp = 4.5;
    if (s->op == TG_OP_POW) t.ulp = 32.0; /* contracted to fma, less is left of the low half of y log x: 25 units at 1e30^1 */
    if (t.ulp < 3.0 && (s->op == TG_OP_RSQRT || s->op == TG_OP_RECIPROCAL)) t.ulp = 2.5;
    if (t.absolute < (double)FLT_MIN) t.absolute = (double)FLT_MIN;
    return t;
}

/* Runs with `options` against `want`; *kept gets the outputs when not NULL. */
static bool check_run(op_setup *s, const char *how, const support_options *options, const support_outputs *want, support_outputs *kept) {
    char label[192], what[256];
    support_outputs got;
    const support_case c = case_of(s);
    label_of(s, label, sizeof label);
    snprintf(what, sizeof what, "%s, %s", label, how);
    programs_run++;
    support_run_home(&c, options, &got);
    forgive(s, &got, want);
    const bool same = support_outputs_equal(what, &got, want, tolerance_of(s));
    if (kept) *kept = got;
    else support_outputs_free(&got);
    return same;
}

static bool check_threads(op_setup *s, const support_outputs *want) {
    support_outputs one, many;
    bool same = check_run(s, "1 thread", &(support_options){.threads = 1}, want, &one);
    for (int threads = 2; threads <= 3; threads++) {
        same = check_run(s, threads == 2 ? "2 threads" : "3 threads", &(support_options){.threads = threads}, want, &many) && same;
        same = support_outputs_identical("results depend on the number of threads", &many, &one) && same;
        support_outputs_free(&many);
    }
    support_outputs_free(&one);
    return same;
}

static bool check_isas(op_setup *s, const support_outputs *want) {
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    bool same = true;
    for (int i = 0; i < SUPPORT_COUNT(isas); i++) same = check_run(s, isas[i], &(support_options){.isa = isas[i]}, want, NULL) && same;
    return check_run(s, "scalar, not fused", &(support_options){.isa = "scalar", .no_fusion = true}, want, NULL) && same;
}

/* Adds the case to the file of emitted C; takes over `want`. */
static bool keep_for_emitted(op_setup *s, support_outputs *want) {
    if (pending_count == pending_capacity) {
        pending_capacity = pending_capacity ? 2 * pending_capacity : 256;
        pending = realloc(pending, sizeof *pending * (size_t)pending_capacity);
        assert_non_null(pending);
    }
    op_pending *p = &pending[pending_count++];
    support_outputs error = {0};
    const support_options options = {.no_fusion = s->variant % 2 == 1};
    p->setup = *s;
    p->want = *want;
    memset(want, 0, sizeof *want);
    label_of(s, p->label, sizeof p->label);
    const support_case c = case_of(&p->setup);
    p->emitted =
        support_program_make(&c, &options, &p->program, &error) ? support_emitted_add(emitted, p->program.program, p->program.ctx) : -1;
    if (p->emitted < 0) fprintf(stderr, "%s: not emitted: %s\n", p->label, error.message);
    return p->emitted >= 0;
}

static bool check_webgpu(op_setup *s, const support_outputs *want) {
    bool same = check_run(s, "fused", &(support_options){0}, want, NULL);
    if ((s->variant + (s->company ? 1 : 0)) % 2 == 1)
        same = check_run(s, "not fused", &(support_options){.no_fusion = true, .no_passes = true}, want, NULL) && same;
    return same;
}

static bool run_setup(op_setup *s, bool sweep, bool emit) {
    const support_case c = case_of(s);
    char label[192];
    support_outputs want;
    label_of(s, label, sizeof label);
    if (!support_run_reference(&c, 1, &want)) {
        fprintf(stderr, "%s: reference: %s\n", label, want.message);
        return false;
    }
    cases_run++;
    if (on_webgpu()) {
        const bool same = check_webgpu(s, &want);
        support_outputs_free(&want);
        return same;
    }
    bool same = check_run(s, "fused", &(support_options){0}, &want, NULL);
    same = same && check_run(s, "not fused", &(support_options){.no_fusion = true}, &want, NULL);
    same = same && check_run(s, "no passes", &(support_options){.no_passes = true}, &want, NULL);
    same = same && (!sweep || check_isas(s, &want));
    same = same && (!sweep || check_threads(s, &want));
    if (emit && emitted) same = keep_for_emitted(s, &want) && same;
    support_outputs_free(&want);
    return same;
}

/* Every variant of one shape and element type, alone and in company. */
static bool run_shape(op_setup s, bool sweep, bool emit) {
    bool same = true;
    const int variants = s.row->variants ? s.row->variants(&s) : 1;
    for (int v = 0; v < variants; v++)
        for (int company = 0; company < 2; company++) {
            s.variant = v;
            s.company = company != 0;
            same = run_setup(&s, sweep, emit && (v < 2 || !s.special)) && same;
        }
    return same;
}

static tg_shape special_shape(const op_row *row, tg_dtype dtype) {
    if (row->shapes) return row->shapes[1];
    const int64_t n = dtype == TG_I32 ? SUPPORT_COUNT(special_i32) : SUPPORT_COUNT(special_f32);
    return row->build == build_binary || row->build == build_select ? TG_SHAPE(n, n) : TG_SHAPE(7, n);
}

static bool run_dtype(tg_op op, tg_dtype dtype) {
    static const tg_shape common[] = {{2, {16, 16}}, {3, {3, 5, 7}}, {2, {1, 1}}, {0, {0}}, {2, {2, 700}}};
    const op_row *row = rows[op];
    const tg_shape *shapes = row->shapes ? row->shapes : common;
    const int count = row->shapes ? row->shape_count : SUPPORT_COUNT(common);
    op_setup s = {.row = row, .op = op, .dtype = dtype};
    bool same = true;
    for (int i = 0; i < count; i++) {
        s.shape = shapes[i];
        same = run_shape(s, !SUPPORT_SANITIZED || i == 1, i == 1 || i == 3) && same;
    }
    s.special = true;
    s.shape = special_shape(row, dtype);
    return run_shape(s, true, true) && same;
}

static void test_op(void **state) {
    const tg_op op = *(const tg_op *)*state;
    bool same = true;
    for (int dtype = TG_F32; dtype <= TG_BOOL; dtype++)
        if (rows[op]->dtypes >> dtype & 1u) same = run_dtype(op, (tg_dtype)dtype) && same;
    assert_true(same);
}

/* More than 65,535 workgroups: of 64 on the CPU's terms, 4,194,368 elements; on WebGPU of 256. */
static tg_shape big_shape(void) { return on_webgpu() ? TG_SHAPE(65537, 257) : TG_SHAPE(65537, 64); }

static void test_big(void **state) {
    (void)state;
    bool same = true;
    for (int op = 1; op < TG_OP_COUNT; op++) {
        if (!rows[op]->big || (SUPPORT_SANITIZED && op != TG_OP_ADD)) continue;
        if (on_webgpu() && op != TG_OP_EXP && op != TG_OP_SUM) continue;
        op_setup s = {.row = rows[op], .op = (tg_op)op, .dtype = TG_F32, .shape = big_shape()};
        if (rows[op]->variants) s.variant = 2; /* all axes */
        support_outputs want;
        const support_case c = case_of(&s);
        assert_true(support_run_reference(&c, 1, &want));
        op_row loose = *rows[op]; /* relative to the sum of magnitudes, about 4.2e6 */
        if (op == TG_OP_SUM) loose.tolerance.absolute = on_webgpu() ? 16.0 : 4.0;
        s.row = &loose;
        same = check_run(&s, "fused, 2 threads", &(support_options){.threads = 2}, &want, NULL) && same;
        if (op == TG_OP_EXP && !on_webgpu()) same = check_run(&s, "avx2", &(support_options){.isa = "avx2"}, &want, NULL) && same;
        support_outputs_free(&want);
    }
    assert_true(same);
}

static void test_emitted(void **state) {
    (void)state;
    if (!emitted) skip();
    assert_true(support_emitted_compile(emitted));
    bool same = true;
    for (int i = 0; i < pending_count; i++) {
        op_pending *p = &pending[i];
        if (p->emitted < 0) continue;
        void *user = NULL;
        support_outputs got;
        char what[256];
        const support_case c = case_of(&p->setup);
        const support_step_fn step = support_emitted_step(emitted, p->emitted, &user);
        support_program_run(&p->program, &c, 1, step, user, &got);
        snprintf(what, sizeof what, "%s, emitted C", p->label);
        same = support_outputs_equal(what, &got, &p->want, p->setup.row->tolerance) && same;
        support_outputs_free(&got);
    }
    print_message("%d cases, %d programs run, %d emitted%s\n", cases_run, programs_run, pending_count,
                  SUPPORT_SANITIZED ? " (smaller sweep under sanitizers)" : "");
    assert_true(same);
}

/* The oracle itself: every failing allocation is an error and leaks nothing. */
static void test_reference_allocations(void **state) {
    (void)state;
    op_setup s = {.row = &test_row_SELECT, .op = TG_OP_SELECT, .dtype = TG_F32, .shape = {2, {3, 5}}, .company = true};
    const support_case c = case_of(&s);
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    assert_non_null(ctx);
    tg_graph *g = support_trace(ctx, &c);
    assert_non_null(g);
    assert_null(tg_reference_run(g, NULL)); /* no data for its leaves */
    assert_int_equal(tg_error(ctx), TG_ERROR_ARGUMENT);
    static double zeros[15];
    const double **leaves = calloc((size_t)g->nodes.count, sizeof *leaves);
    assert_non_null(leaves);
    for (int64_t i = 0; i < g->nodes.count; i++) leaves[i] = zeros;
    const int64_t blocks = counts.live_blocks;
    tg_reference *r = NULL;
    for (int64_t n = 1; !r; n++) {
        tg_clear_error(ctx);
        counts.fail_at = counts.calls + n;
        r = tg_reference_run(g, leaves);
        assert_int_equal(tg_error(ctx), r ? TG_OK : TG_ERROR_MEMORY);
        if (!r) assert_int_equal(counts.live_blocks, blocks);
    }
    assert_null(tg_reference_value(r, 0));
    assert_null(tg_reference_value(r, (int32_t)g->nodes.count));
    tg_reference_destroy(r);
    assert_int_equal(counts.live_blocks, blocks);
    tg_graph_destroy(g);
    tg_context_destroy(ctx);
    assert_int_equal(counts.live_blocks, 0);
    assert_false(counts.size_mismatch);
    free(leaves);
}

static void free_pending(void) {
    for (int i = 0; i < pending_count; i++) {
        support_outputs_free(&pending[i].want);
        support_program_free(&pending[i].program);
    }
    free(pending);
    support_emitted_destroy(emitted);
}

/* With the guaranteed limits a software adapter is given a GPU's kernels instead of its own: workgroup memory, tiles. Elementwise
 * operations have neither: their kernels are those of the run without. */
static bool is_same_under_guaranteed_limits(tg_op op) {
    const char *limits = getenv("TENSORGRAD_WEBGPU_LIMITS");
    return on_webgpu() && limits != NULL && strcmp(limits, "guaranteed") == 0 && tg_op_is_elementwise(op);
}

int main(void) {
    const int refused = support_home_refuses("ops");
    if (refused) return refused;
    static struct CMUnitTest tests[TG_OP_COUNT + 3];
    static tg_op ops[TG_OP_COUNT];
    size_t count = 0;
#ifdef __GLIBC__ /* thousands of short runs: do not hand memory back to the system after each */
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
    if (!on_webgpu() && support_emitted_available()) emitted = support_emitted_create();
    for (int op = 1; op < TG_OP_COUNT; op++) {
        ops[op] = (tg_op)op;
        if (is_same_under_guaranteed_limits((tg_op)op)) continue;
        tests[count++] = (struct CMUnitTest){tg_op_table[op].name, test_op, NULL, NULL, &ops[op]};
    }
    tests[count++] = (struct CMUnitTest){"more than 65,535 workgroups", test_big, NULL, NULL, NULL};
    if (!on_webgpu()) tests[count++] = (struct CMUnitTest){"emitted C", test_emitted, NULL, NULL, NULL};
    if (!on_webgpu()) tests[count++] = (struct CMUnitTest){"reference, failing allocations", test_reference_allocations, NULL, NULL, NULL};
    const int failed = _cmocka_run_group_tests("ops", tests, count, NULL, NULL);
    if (on_webgpu()) print_message("%d cases, %d programs run\n", cases_run, programs_run);
    free_pending();
    return failed;
}
