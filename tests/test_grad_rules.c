/* Gradient rules, one primitive at a time on the graph itself: central differences in f64 on the reference under a random
 * cotangent, second derivatives of the smooth ones, and the points where the field disagrees (ties, zeros, NaN). Ends by
 * checking that no primitive with a rule was left out. Must not use the public operations. */
#include "ir/attention.h"
#include "support.h"

#include "grad/grad.h"
#include "grad/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEAVES = 24, MAX_COUNT = 256 };

typedef struct rig {
    tg_context *ctx;
    tg_graph *g;
    int32_t leaves[MAX_LEAVES];
    double values[MAX_LEAVES][MAX_COUNT];
    int count;
} rig;

static bool covered[TG_OP_COUNT];
static uint64_t random_state;

static double random_uniform(double lo, double hi) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return lo + (hi - lo) * ((double)(random_state >> 11) / 9007199254740992.0);
}

static rig *rig_make(void) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->ctx = tg_context_create(NULL);
    r->g = tg_graph_create(r->ctx);
    assert_non_null(r->g);
    r->g->current_site = TG_SITE;
    return r;
}

static void rig_free(rig *r) {
    tg_graph_destroy(r->g);
    assert_int_equal(r->ctx->live_blocks, 0);
    tg_context_destroy(r->ctx);
    free(r);
}

static int32_t rig_leaf(rig *r, tg_shape shape, tg_dtype dtype) {
    char name[16];
    snprintf(name, sizeof name, "leaf%d", r->count);
    int32_t id = tg_ir_input(r->g, name, shape, dtype);
    assert_true(id > 0 && r->count < MAX_LEAVES && tg_shape_count(shape) <= MAX_COUNT);
    r->leaves[r->count++] = id;
    return id;
}

static double *rig_values(rig *r, int32_t id) {
    for (int i = 0; i < r->count; i++)
        if (r->leaves[i] == id) return r->values[i];
    fail_msg("not a leaf");
    return NULL;
}

static int32_t rig_uniform(rig *r, tg_shape shape, double lo, double hi) {
    int32_t id = rig_leaf(r, shape, TG_F32);
    for (int64_t i = 0; i < tg_shape_count(shape); i++) rig_values(r, id)[i] = random_uniform(lo, hi);
    return id;
}

static int32_t rig_list(rig *r, tg_shape shape, const double *values) {
    int32_t id = rig_leaf(r, shape, TG_F32);
    memcpy(rig_values(r, id), values, sizeof(double) * (size_t)tg_shape_count(shape));
    return id;
}

static void rig_eval(rig *r, int32_t id, double *out) {
    const double **leaves = calloc((size_t)r->g->nodes.count, sizeof *leaves);
    for (int i = 0; i < r->count; i++) leaves[r->leaves[i]] = r->values[i];
    tg_reference *run = tg_reference_run(r->g, leaves);
    if (run == NULL) fail_msg("%s", tg_error_message(r->ctx));
    memcpy(out, tg_reference_value(run, id), sizeof(double) * (size_t)tg_shape_count(tg_graph_node(r->g, id)->shape));
    tg_reference_destroy(run);
    free(leaves);
}

static tg_shape rig_shape(const rig *r, int32_t id) { return tg_graph_node(r->g, id)->shape; }

static void rig_grad(rig *r, int32_t y, int32_t cotangent, const int32_t *wrt, int n, int32_t *out) {
    if (tg_grad_append(r->g, y, cotangent, wrt, n, out) != TG_OK) fail_msg("%s", tg_error_message(r->ctx));
    assert_int_equal(tg_graph_verify(r->g), TG_OK);
    for (int i = 0; i < n; i++) assert_true(tg_shape_equal(rig_shape(r, out[i]), rig_shape(r, wrt[i])));
}

/* ---------------------------------------------------------------- central differences */

static double dot_with(rig *r, int32_t y, int32_t cotangent) {
    double value[MAX_COUNT], sum = 0;
    rig_eval(r, y, value);
    for (int64_t i = 0; i < tg_shape_count(rig_shape(r, y)); i++) sum += value[i] * rig_values(r, cotangent)[i];
    return sum;
}

/* `gradient` against central differences of y . cotangent in `x` */
static void check_differences(rig *r, const char *what, int32_t y, int32_t cotangent, int32_t x, int32_t gradient) {
    double got[MAX_COUNT], *at = rig_values(r, x);
    const double step = 1e-5;
    rig_eval(r, gradient, got);
    for (int64_t i = 0; i < tg_shape_count(rig_shape(r, x)); i++) {
        double centre = at[i];
        at[i] = centre + step;
        double above = dot_with(r, y, cotangent);
        at[i] = centre - step;
        double below = dot_with(r, y, cotangent);
        at[i] = centre;
        double want = (above - below) / (2 * step);
        if (fabs(got[i] - want) > 2e-6 * (1 + fabs(want)))
            fail_msg("%s: element %d: got %.9g, differences say %.9g", what, (int)i, got[i], want);
    }
}

/* Gradient of y in each of wrt; then, for smooth rules, the gradient of each gradient in each of wrt. */
static void check_rule(rig *r, const char *what, int32_t y, const int32_t *wrt, int n, bool smooth) {
    int32_t out[MAX_LEAVES], second[MAX_LEAVES];
    int64_t before = r->g->nodes.count;
    for (int64_t id = 1; id < before; id++) covered[tg_graph_node(r->g, (int32_t)id)->op] = true;
    int32_t cotangent = rig_uniform(r, rig_shape(r, y), -1, 1);
    rig_grad(r, y, cotangent, wrt, n, out);
    for (int i = 0; i < n; i++) check_differences(r, what, y, cotangent, wrt[i], out[i]);
    for (int i = 0; smooth && i < n; i++) {
        int32_t again = rig_uniform(r, rig_shape(r, out[i]), -1, 1), all[MAX_LEAVES];
        for (int k = 0; k < n; k++) all[k] = wrt[k];
        all[n] = cotangent;
        rig_grad(r, out[i], again, all, n + 1, second);
        for (int k = 0; k <= n; k++) check_differences(r, what, out[i], again, all[k], second[k]);
    }
}

/* ---------------------------------------------------------------- elementwise */

static void check_unary(tg_op op, double lo, double hi) {
    rig *r = rig_make();
    int32_t x = rig_uniform(r, TG_SHAPE(3, 4), lo, hi);
    check_rule(r, tg_op_table[op].name, tg_ir_unary(r->g, op, x), &x, 1, true);
    rig_free(r);
}

static void test_unary(void **state) {
    (void)state;
    check_unary(TG_OP_NEG, -2, 2);
    check_unary(TG_OP_ABS, 0.5, 2);
    check_unary(TG_OP_ABS, -2, -0.5);
    check_unary(TG_OP_SQRT, 0.5, 3);
    check_unary(TG_OP_RSQRT, 0.5, 3);
    check_unary(TG_OP_RECIPROCAL, -3, -0.5);
    check_unary(TG_OP_EXP, -2, 2);
    check_unary(TG_OP_LOG, 0.5, 3);
    check_unary(TG_OP_SIN, -3, 3);
    check_unary(TG_OP_COS, -3, 3);
    check_unary(TG_OP_TANH, -2, 2);
    check_unary(TG_OP_ERF, -2, 2);
    check_unary(TG_OP_SIGMOID, -3, 3);
    check_unary(TG_OP_SOFTPLUS, -3, 3);
    check_unary(TG_OP_EXPM1, -1, 1);
    check_unary(TG_OP_LOG1P, -0.5, 2);
    check_unary(TG_OP_RELU, 0.5, 2);
    check_unary(TG_OP_RELU, -2, -0.5);
}

static void check_binary(tg_op op, double lo, double hi) {
    rig *r = rig_make();
    int32_t wrt[2];
    wrt[0] = rig_uniform(r, TG_SHAPE(3, 1, 2), lo, hi);
    wrt[1] = rig_uniform(r, TG_SHAPE(4, 1), lo, hi);
    check_rule(r, tg_op_table[op].name, tg_ir_binary(r->g, op, wrt[0], wrt[1]), wrt, 2, true);
    rig_free(r);
    r = rig_make(); /* both operands the same tensor */
    wrt[0] = rig_uniform(r, TG_SHAPE(5), lo, hi);
    int32_t doubled = tg_ir_binary(r->g, TG_OP_ADD, wrt[0], wrt[0]);
    check_rule(r, tg_op_table[op].name, tg_ir_binary(r->g, op, doubled, doubled), wrt, 1, op != TG_OP_MIN && op != TG_OP_MAX);
    rig_free(r);
}

static void test_binary(void **state) {
    (void)state;
    check_binary(TG_OP_ADD, -2, 2);
    check_binary(TG_OP_SUB, -2, 2);
    check_binary(TG_OP_MUL, -2, 2);
    check_binary(TG_OP_DIV, 0.5, 2);
    check_binary(TG_OP_DIV, -2, -0.5);
    check_binary(TG_OP_POW, 0.5, 2);
    check_binary(TG_OP_MOD, 3.1, 3.9); /* quotients from 1 to 2 */
    check_binary(TG_OP_MIN, -2, 2);
    check_binary(TG_OP_MAX, -2, 2);
}

static void test_pow_constant(void **state) {
    const double exponents[] = {0.0, 1.0, 2.0, 3.0, -1.0, -2.0};
    (void)state;
    for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++) {
        rig *r = rig_make();
        int32_t x = rig_uniform(r, TG_SHAPE(4), -2, -0.5);
        int32_t exponent = tg_ir_const(r->g, TG_SCALAR, TG_F32, exponents[i]);
        check_rule(r, "pow of a negative number", tg_ir_binary(r->g, TG_OP_POW, x, exponent), &x, 1, true);
        rig_free(r);
    }
}

static void test_select_cast(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t wrt[2] = {rig_uniform(r, TG_SHAPE(4, 3), -2, 2), rig_uniform(r, TG_SHAPE(3), -2, 2)};
    int32_t condition = rig_leaf(r, TG_SHAPE(4, 1), TG_BOOL);
    rig_values(r, condition)[1] = rig_values(r, condition)[2] = 1;
    int32_t y = tg_ir_select(r->g, condition, wrt[0], wrt[1]);
    y = tg_ir_binary(r->g, TG_OP_MUL, y, tg_node_make(r->g, TG_OP_CAST, TG_F32, rig_shape(r, y), &y, 1, NULL));
    check_rule(r, "select", y, wrt, 2, true);
    rig_free(r);
}

/* ---------------------------------------------------------------- reductions, views, joins */

static void check_reduce(tg_op op, uint32_t axes, bool smooth) {
    rig *r = rig_make();
    int32_t x = rig_uniform(r, TG_SHAPE(2, 3, 4), -2, 2);
    int32_t y = tg_ir_reduce(r->g, op, x, axes);
    check_rule(r, tg_op_table[op].name, tg_ir_binary(r->g, TG_OP_MUL, y, y), &x, 1, smooth);
    rig_free(r);
}

static void test_reductions(void **state) {
    (void)state;
    for (uint32_t axes = 1; axes < 8; axes++) {
        check_reduce(TG_OP_SUM, axes, true);
        check_reduce(TG_OP_REDUCE_MAX, axes, true);
        check_reduce(TG_OP_REDUCE_MIN, axes, true);
    }
}

static int32_t squared(rig *r, int32_t y) { return tg_ir_binary(r->g, TG_OP_MUL, y, y); }

static void test_views(void **state) {
    const int32_t perm[3] = {2, 0, 1};
    const int64_t start[3] = {1, 0, 2}, before[3] = {1, 2, 0};
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        rig *r = rig_make();
        int32_t x = rig_uniform(r, kind == 2 ? TG_SHAPE(2, 1, 4) : TG_SHAPE(2, 3, 4), -2, 2), y = 0;
        if (kind == 0) y = tg_ir_reshape(r->g, x, TG_SHAPE(6, 4));
        if (kind == 1) y = tg_ir_permute(r->g, x, perm);
        if (kind == 2) y = tg_ir_broadcast(r->g, x, TG_SHAPE(3, 2, 5, 4));
        if (kind == 3) y = tg_ir_slice(r->g, x, start, TG_SHAPE(1, 3, 2));
        if (kind == 4) y = tg_ir_pad(r->g, x, before, TG_SHAPE(4, 5, 5));
        if (kind == 5) y = tg_ir_flip(r->g, x, 5u);
        check_rule(r, tg_op_table[tg_graph_node(r->g, y)->op].name, squared(r, y), &x, 1, true);
        rig_free(r);
    }
}

/* Overlapping, apart, with holes, with elements that no window reaches; along the first axis and the last. */
static void test_windows(void **state) {
    static const tg_window windows[] = {{1, 1, 1}, {3, 1, 1}, {2, 2, 1}, {3, 2, 2}, {2, 3, 1}, {2, 3, 2}, {3, 2, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        for (int axis = 0; axis < 2; axis++) {
            rig *r = rig_make();
            int32_t x = rig_uniform(r, axis == 0 ? TG_SHAPE(8, 2) : TG_SHAPE(2, 8), -2, 2);
            int32_t y = tg_ir_window(r->g, x, axis, windows[i]);
            check_rule(r, "window", squared(r, y), &x, 1, true);
            rig_free(r);
            r = rig_make();
            const int64_t size = windows[i].size;
            x = rig_uniform(r, axis == 0 ? TG_SHAPE(3, 2, size) : TG_SHAPE(2, 3, size), -2, 2);
            y = tg_ir_fold(r->g, x, axis, windows[i], 13);
            check_rule(r, "fold", squared(r, y), &x, 1, true);
            rig_free(r);
        }
}

static void test_joins(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t parts[3] = {rig_uniform(r, TG_SHAPE(2, 1, 3), -2, 2), rig_uniform(r, TG_SHAPE(2, 4, 3), -2, 2), 0};
    parts[2] = parts[0];
    check_rule(r, "concat", squared(r, tg_ir_concat(r->g, parts, 3, 1)), parts, 2, true);
    rig_free(r);
    r = rig_make();
    const int64_t offsets[3] = {9, 2, 20};
    int32_t packed[3] = {rig_uniform(r, TG_SHAPE(2, 3), -2, 2), rig_uniform(r, TG_SHAPE(5), -2, 2), 0};
    packed[2] = packed[1];
    check_rule(r, "pack", squared(r, tg_ir_pack(r->g, packed, offsets, 3, 30)), packed, 2, true);
    rig_free(r);
}

/* ---------------------------------------------------------------- contraction, indexing */

static void test_contract(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t wrt[2] = {rig_uniform(r, TG_SHAPE(2, 3, 4), -1, 1), rig_uniform(r, TG_SHAPE(2, 4, 5), -1, 1)};
    check_rule(r, "contract", tg_ir_contract(r->g, wrt[0], wrt[1]), wrt, 2, true);
    rig_free(r);
}

static int64_t largest(const rig *r, int64_t from) {
    int64_t most = 0;
    for (int64_t id = from; id < r->g->nodes.count; id++) {
        const tg_node *node = tg_graph_node(r->g, (int32_t)id);
        if (node->op == TG_OP_CONTRACT && tg_shape_count(node->shape) > most) most = tg_shape_count(node->shape);
    }
    return most;
}

/* An operand that repeats its batch gets its gradient without a per-batch matrix, whatever axes are repeated. */
static void test_contract_repeated(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        for (int side = 0; side < 2; side++) {
            rig *r = rig_make();
            int64_t rows = side == 0 ? 2 : 3, columns = side == 0 ? 3 : 4;
            const int64_t lead[4][2] = {{1, 1}, {3, 1}, {1, 2}, {3, 2}};
            int32_t small = rig_uniform(r, TG_SHAPE(lead[kind][0], lead[kind][1], rows, columns), -1, 1);
            int32_t wide = tg_ir_broadcast(r->g, small, TG_SHAPE(3, 2, rows, columns));
            wide = tg_ir_reshape(r->g, wide, TG_SHAPE(6, rows, columns));
            int32_t other = rig_uniform(r, side == 0 ? TG_SHAPE(6, 3, 4) : TG_SHAPE(6, 2, 3), -1, 1);
            int32_t wrt[2] = {small, other}, out[2];
            int32_t y = side == 0 ? tg_ir_contract(r->g, wide, other) : tg_ir_contract(r->g, other, wide);
            int64_t from = r->g->nodes.count;
            rig_grad(r, y, 0, &small, 1, out);
            assert_int_equal(largest(r, from), tg_shape_count(rig_shape(r, small)));
            check_rule(r, "contract with a repeated operand", y, wrt, 2, true);
            rig_free(r);
        }
    }
    rig *r = rig_make(); /* the repeated tensor itself is asked for: it must get its own, unsummed gradient */
    int32_t small = rig_uniform(r, TG_SHAPE(1, 2, 3), -1, 1), other = rig_uniform(r, TG_SHAPE(4, 3, 2), -1, 1), out[2];
    int32_t wide = tg_ir_broadcast(r->g, small, TG_SHAPE(4, 2, 3));
    int32_t wrt[2] = {wide, small};
    double got[24], sums[6], folded[6] = {0};
    rig_grad(r, tg_ir_contract(r->g, wide, other), 0, wrt, 2, out);
    rig_eval(r, out[0], got);
    rig_eval(r, out[1], sums);
    for (int i = 0; i < 24; i++) folded[i % 6] += got[i];
    for (int i = 0; i < 6; i++) assert_true(fabs(folded[i] - sums[i]) < 1e-12);
    rig_free(r);
}

/* Both parts of what attention gives, with and without causal order, and its two gradients. */
static void test_attention(void **state) {
    (void)state;
    const tg_shape q = TG_SHAPE(2, 4, 3, 2), k = TG_SHAPE(2, 2, 3, 2), row = TG_SHAPE(2, 4, 3, 1), shapes[6] = {q, k, k, q, row, row};
    static const tg_op ops[4] = {TG_OP_ATTENTION, TG_OP_ATTENTION, TG_OP_ATTENTION_DQ, TG_OP_ATTENTION_DKV};
    for (int i = 0; i < 4; i++) {
        const int count = i < 2 ? 3 : 6;
        int32_t wrt[6];
        rig *r = rig_make();
        for (int j = 0; j < count; j++) wrt[j] = rig_uniform(r, shapes[j], -1, 1);
        check_rule(r, tg_op_table[ops[i]].name, tg_ir_attention(r->g, ops[i], wrt, count, i > 0, 0.7), wrt, count, true);
        rig_free(r);
    }
}

static void test_indexing(void **state) {
    const double rows[5] = {2, 0, 2, 2, 1};
    (void)state;
    rig *r = rig_make();
    int32_t table = rig_uniform(r, TG_SHAPE(4, 3), -1, 1), indices = rig_leaf(r, TG_SHAPE(5), TG_I32);
    memcpy(rig_values(r, indices), rows, sizeof rows);
    check_rule(r, "gather", squared(r, tg_ir_gather(r->g, table, indices)), &table, 1, true);
    rig_free(r);
    r = rig_make();
    int32_t updates = rig_uniform(r, TG_SHAPE(5, 3), -1, 1);
    indices = rig_leaf(r, TG_SHAPE(5), TG_I32);
    memcpy(rig_values(r, indices), rows, sizeof rows);
    check_rule(r, "scatter_add", squared(r, tg_ir_scatter_add(r->g, indices, updates, 4)), &updates, 1, true);
    rig_free(r);
}

/* ---------------------------------------------------------------- points where the field disagrees */

/* gradient of y (given cotangent) in x equals `want`; NaN equals NaN */
static void check_values(rig *r, int32_t y, const double *cotangent, int32_t x, const double *want) {
    double got[MAX_COUNT];
    int32_t dy = rig_list(r, rig_shape(r, y), cotangent), dx;
    rig_grad(r, y, dy, &x, 1, &dx);
    rig_eval(r, dx, got);
    for (int64_t i = 0; i < tg_shape_count(rig_shape(r, x)); i++)
        if (!(got[i] == want[i] || fabs(got[i] - want[i]) <= 1e-6 * (1 + fabs(want[i])) || (got[i] != got[i] && want[i] != want[i])))
            fail_msg("element %d: got %.9g, want %.9g", (int)i, got[i], want[i]);
}

static void check_unary_points(tg_op op, int64_t n, const double *x, const double *cotangent, const double *want) {
    rig *r = rig_make();
    int32_t id = rig_list(r, TG_SHAPE(n), x);
    check_values(r, tg_ir_unary(r->g, op, id), cotangent, id, want);
    rig_free(r);
}

static void test_relu_points(void **state) { /* B03 */
    (void)state;
    check_unary_points(TG_OP_RELU, 6, (double[]){0, -0.0, 1e-30, -1e-30, 2, NAN}, (double[]){2, 3, 5, 7, 11, 13},
                       (double[]){0, 0, 5, 0, 11, 0});
}

static void test_unary_points(void **state) {
    (void)state;
    check_unary_points(TG_OP_ABS, 3, (double[]){-2, 0, 3}, (double[]){5, 7, 11}, (double[]){-5, 0, 11});
    check_unary_points(TG_OP_SOFTPLUS, 3, (double[]){-1000, 0, 1000}, (double[]){1, 1, 1}, (double[]){0, 0.5, 1});
    check_unary_points(TG_OP_SIGMOID, 5, (double[]){-1000, -88.9, 0, 88.9, 1000}, (double[]){1, 1, 1, 1, 1},
                       (double[]){0, 0, 0.25, 0, 0}); /* B45 */
    check_unary_points(TG_OP_SQRT, 2, (double[]){0, 4}, (double[]){1, 1}, (double[]){INFINITY, 0.25});
    check_unary_points(TG_OP_TANH, 2, (double[]){-1000, 1000}, (double[]){1, 1}, (double[]){0, 0});
}

static void test_extremum_ties(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        tg_op op = kind == 0 ? TG_OP_MAX : TG_OP_MIN;
        for (int side = 0; side < 2; side++) {
            rig *r = rig_make();
            int32_t a = rig_list(r, TG_SHAPE(4), (double[]){1, 2, 3, NAN}), b = rig_list(r, TG_SHAPE(4), (double[]){1, 1, 5, 0});
            double wins = (kind == 0) == (side == 0) ? 3 : 0, loses = 5 - (wins > 0 ? 5.0 : 0.0);
            check_values(r, tg_ir_binary(r->g, op, a, b), (double[]){2, 3, 5, 7}, side == 0 ? a : b, (double[]){1, wins, loses, 0});
            rig_free(r);
        }
    }
    rig *r = rig_make(); /* max(x, 0) shares at 0 */
    int32_t x = rig_list(r, TG_SHAPE(3), (double[]){0, -0.0, 2});
    int32_t zero = tg_ir_const(r->g, TG_SHAPE(3), TG_F32, 0);
    check_values(r, tg_ir_binary(r->g, TG_OP_MAX, x, zero), (double[]){2, 4, 3}, x, (double[]){1, 2, 3});
    rig_free(r);
}

static void test_reduced_ties(void **state) { /* B04, B07 */
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_list(r, TG_SHAPE(4), (double[]){3, 1, 3, 3});
    check_values(r, tg_ir_reduce(r->g, TG_OP_REDUCE_MAX, x, 1), (double[]){6}, x, (double[]){2, 0, 2, 2});
    check_values(r, tg_ir_reduce(r->g, TG_OP_REDUCE_MIN, x, 1), (double[]){6}, x, (double[]){0, 6, 0, 0});
    rig_free(r);
    r = rig_make();
    x = rig_list(r, TG_SHAPE(2, 3, 3), (double[]){1, 5, 2, 4, 0, 2.5, 0, 0, 0, -1, -3, 7, -2, -1, 8, -9, -9, -9});
    check_values(r, tg_ir_reduce(r->g, TG_OP_REDUCE_MAX, x, 2), (double[]){1, 2, 3, 4, 5, 6}, x,
                 (double[]){0, 2, 0, 1, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 6, 0, 0, 0});
    rig_free(r);
    r = rig_make();
    x = rig_list(r, TG_SHAPE(3), (double[]){1, NAN, 2});
    check_values(r, tg_ir_reduce(r->g, TG_OP_REDUCE_MAX, x, 1), (double[]){6}, x, (double[]){NAN, NAN, NAN});
    rig_free(r);
}

static void test_many_ties(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t x = tg_ir_const(r->g, TG_SHAPE(70000), TG_F32, 1.0), dx;
    int32_t top = tg_ir_reduce(r->g, TG_OP_REDUCE_MAX, x, 1);
    rig_grad(r, top, 0, &x, 1, &dx);
    double total;
    rig_eval(r, tg_ir_reduce(r->g, TG_OP_SUM, dx, 1), &total);
    assert_true(fabs(total - 1) < 1e-9);
    rig_free(r);
}

static void test_pow_points(void **state) { /* O05, B11 */
    const double x[7] = {-2, -2, 0, 0, 0, -0.5, 3}, n[7] = {2, 3, 2, 1, 0, -1, 0.5}, cotangent[7] = {1, 1, 5, 2, 3, 1, 4};
    const double want[7] = {-4, 12, 0, 2, 0, -4, 1.15470054}, out[7] = {4, -8, 0, 0, 1, -2, 1.73205081};
    double got[7];
    (void)state;
    rig *r = rig_make();
    int32_t base = rig_list(r, TG_SHAPE(7), x), exponent = rig_list(r, TG_SHAPE(7), n);
    int32_t y = tg_ir_binary(r->g, TG_OP_POW, base, exponent);
    rig_eval(r, y, got);
    for (int i = 0; i < 7; i++) assert_true(fabs(got[i] - out[i]) < 1e-6);
    check_values(r, y, cotangent, base, want);
    check_values(r, y, cotangent, exponent, (double[]){0, 0, 0, 0, 0, 0, 4 * 1.7320508075688772 * 1.0986122886681098});
    rig_free(r);
    for (int i = 0; i < 7; i++) { /* and with the exponent known while differentiating */
        r = rig_make();
        base = rig_list(r, TG_SHAPE(1), &x[i]);
        exponent = tg_ir_const(r->g, TG_SCALAR, TG_F32, n[i]);
        check_values(r, tg_ir_binary(r->g, TG_OP_POW, base, exponent), &cotangent[i], base, &want[i]);
        rig_free(r);
    }
}

static void test_select_exact(void **state) { /* B01: the branch not taken gets exactly 0; upstream follows IEEE */
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_list(r, TG_SHAPE(2), (double[]){0, 4}), out[2];
    int32_t root = tg_ir_unary(r->g, TG_OP_SQRT, x), zero = tg_ir_const(r->g, TG_SHAPE(2), TG_F32, 0);
    int32_t positive = tg_ir_binary(r->g, TG_OP_LESS, zero, x);
    int32_t wrt[2] = {root, x};
    int32_t y = tg_ir_select(r->g, positive, root, zero);
    double got[2];
    rig_grad(r, y, rig_list(r, TG_SHAPE(2), (double[]){INFINITY, 1}), wrt, 2, out);
    rig_eval(r, out[0], got);
    assert_true(got[0] == 0 && got[1] == 1); /* select, not multiply: an infinite cotangent too */
    rig_eval(r, out[1], got);
    assert_true(got[0] != got[0] && got[1] == 0.25);
    /* the documented recipe: guard the argument as well */
    int32_t safe = tg_ir_select(r->g, positive, x, tg_ir_const(r->g, TG_SHAPE(2), TG_F32, 1));
    y = tg_ir_select(r->g, positive, tg_ir_unary(r->g, TG_OP_SQRT, safe), zero);
    check_values(r, y, (double[]){1, 1}, x, (double[]){0, 0.25});
    rig_free(r);
}

static void test_norm_points(void **state) { /* B02, B09 */
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_list(r, TG_SHAPE(3), (double[]){0, 0, 0});
    int32_t sum = tg_ir_reduce(r->g, TG_OP_SUM, squared(r, x), 1);
    check_values(r, sum, (double[]){1}, x, (double[]){0, 0, 0});
    int32_t norm = tg_ir_unary(r->g, TG_OP_SQRT, tg_ir_binary(r->g, TG_OP_ADD, sum, tg_ir_const(r->g, TG_SHAPE(1), TG_F32, 1e-6)));
    check_values(r, tg_ir_binary(r->g, TG_OP_DIV, x, norm), (double[]){1, 2, -3}, x, (double[]){1000, 2000, -3000});
    rig_free(r);
}

static void test_comparison(void **state) { /* B13 */
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_list(r, TG_SHAPE(3), (double[]){-1, 2, 0});
    int32_t negative = tg_ir_binary(r->g, TG_OP_LESS, x, tg_ir_const(r->g, TG_SHAPE(3), TG_F32, 0)), out;
    check_values(r, tg_ir_binary(r->g, TG_OP_MUL, x, tg_ir_cast(r->g, negative, TG_F32)), (double[]){3, 5, 7}, x, (double[]){3, 0, 0});
    /* nothing but operations without a gradient between: zeros */
    check_values(r, tg_ir_cast(r->g, negative, TG_F32), (double[]){3, 5, 7}, x, (double[]){0, 0, 0});
    for (int i = 0; i < 4; i++) {
        static const tg_op flat[] = {TG_OP_SIGN, TG_OP_FLOOR, TG_OP_CEIL, TG_OP_ROUND};
        check_values(r, tg_ir_unary(r->g, flat[i], x), (double[]){3, 5, 7}, x, (double[]){0, 0, 0});
    }
    check_values(r, tg_ir_unary(r->g, TG_OP_STOP_GRADIENT, x), (double[]){3, 5, 7}, x, (double[]){0, 0, 0});
    /* of a result that is not f32: an error */
    assert_int_equal(tg_grad_append(r->g, negative, 0, &x, 1, &out), TG_ERROR_GRADIENT);
    assert_non_null(strstr(tg_error_message(r->ctx), "less[3] bool"));
    tg_clear_error(r->ctx);
    assert_int_equal(tg_grad_append(r->g, tg_ir_reduce(r->g, TG_OP_ARGMAX, x, 1), 0, &x, 1, &out), TG_ERROR_GRADIENT);
    tg_clear_error(r->ctx);
    assert_int_equal(tg_grad_append(r->g, x, 0, &negative, 1, &out), TG_ERROR_GRADIENT);
    tg_clear_error(r->ctx);
    assert_int_equal(tg_grad_append(r->g, x, tg_ir_const(r->g, TG_SHAPE(2), TG_F32, 1), &x, 1, &out), TG_ERROR_SHAPE);
    rig_free(r);
}

/* ---------------------------------------------------------------- the walk */

static void test_walk(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_uniform(r, TG_SHAPE(2), -1, 1), w = rig_uniform(r, TG_SHAPE(2), -1, 1), unused = rig_uniform(r, TG_SHAPE(3), -1, 1);
    int32_t y = tg_ir_binary(r->g, TG_OP_MUL, x, tg_ir_unary(r->g, TG_OP_SIN, tg_ir_unary(r->g, TG_OP_EXP, w)));
    int32_t wrt[3] = {x, unused, x}, out[3];
    double got[3];
    int64_t before = r->g->nodes.count;
    rig_grad(r, y, 0, wrt, 3, out);
    /* nothing is spent on w: ones, one product, zeros */
    assert_int_equal(r->g->nodes.count - before, 3);
    rig_eval(r, out[1], got);
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0);
    assert_int_equal(out[0], out[2]);
    /* a value and what it is made of, asked for together */
    int32_t half = tg_ir_binary(r->g, TG_OP_ADD, x, x), both[3] = {half, x, y};
    int32_t z = squared(r, half);
    rig_grad(r, z, rig_list(r, TG_SHAPE(2), (double[]){1, 1}), both, 3, out);
    double of_half[2], of_x[2];
    rig_eval(r, out[0], of_half);
    rig_eval(r, out[1], of_x);
    assert_true(fabs(of_x[0] - 2 * of_half[0]) < 1e-12 && fabs(of_x[1] - 2 * of_half[1]) < 1e-12);
    /* y itself */
    rig_grad(r, y, 0, &y, 1, out);
    rig_eval(r, out[0], got);
    assert_true(got[0] == 1 && got[1] == 1);
    /* a cotangent that is known to be 0 is not propagated */
    before = r->g->nodes.count;
    int32_t zero = tg_ir_const(r->g, TG_SHAPE(2), TG_F32, 0);
    rig_grad(r, y, zero, &w, 1, out);
    assert_int_equal(r->g->nodes.count - before, 2);
    rig_free(r);
}

static void test_sites(void **state) {
    (void)state;
    rig *r = rig_make();
    int32_t x = rig_uniform(r, TG_SHAPE(2), 1, 2), dx;
    r->g->current_site = tg_site_make("user.c", 17);
    int32_t y = tg_ir_unary(r->g, TG_OP_LOG, x);
    r->g->current_site = tg_site_make("user.c", 99);
    rig_grad(r, y, rig_list(r, TG_SHAPE(2), (double[]){1, 1}), &x, 1, &dx);
    assert_int_equal(tg_graph_node(r->g, dx)->site.line, 17);
    assert_int_equal(r->g->current_site.line, 99);
    rig_free(r);
}

/* A failed allocation is an error value; nothing leaks (rig_free looks). */
static void test_allocation(void **state) {
    (void)state;
    for (int64_t n = 1; n < 200; n++) {
        support_allocator f = {0};
        tg_context *ctx = support_context_counting(&f);
        tg_graph *g = tg_graph_create(ctx);
        int32_t x = tg_ir_input(g, "x", TG_SHAPE(4, 3, 2), TG_F32), out = 0, y = x;
        for (int i = 0; i < 40; i++) y = tg_ir_binary(g, TG_OP_MUL, tg_ir_unary(g, TG_OP_TANH, y), x);
        f.calls = 0;
        f.fail_at = n;
        tg_status status = tg_grad_append(g, y, 0, &x, 1, &out);
        bool failed = f.calls >= n;
        assert_int_equal(status, failed ? TG_ERROR_MEMORY : TG_OK);
        assert_int_equal(out != 0, !failed);
        tg_graph_destroy(g);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
        if (!failed) return;
    }
    fail_msg("never ran out of allocations to fail");
}

static void test_all_covered(void **state) {
    (void)state;
#define TG_OP(NAME, text, ...) \
  if (tg_vjp_##NAME.apply != NULL && !covered[TG_OP_##NAME]) fail_msg("no gradient test of %s", text);
#include "ir/ops.def"
#undef TG_OP
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_pow_constant),
        cmocka_unit_test(test_select_cast),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_contract),
        cmocka_unit_test(test_contract_repeated),
        cmocka_unit_test(test_indexing),
        cmocka_unit_test(test_relu_points),
        cmocka_unit_test(test_unary_points),
        cmocka_unit_test(test_extremum_ties),
        cmocka_unit_test(test_reduced_ties),
        cmocka_unit_test(test_many_ties),
        cmocka_unit_test(test_pow_points),
        cmocka_unit_test(test_select_exact),
        cmocka_unit_test(test_norm_points),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_allocation),
        cmocka_unit_test(test_all_covered),
    };
    random_state = 20240607;
    return cmocka_run_group_tests_name("gradient rules", tests, NULL, NULL);
}
