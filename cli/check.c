/* check: the self-test of `devices --check`. Compares a few hundred results of small operations at
 * odd sizes, and a short training, between each adapter and the CPU, through the public API only.
 * Each group is one forward model whose results are captured by number. Its trace notes the
 * operation of each number and how far it may differ from the CPU's. */
#include "cli.h"

#include "ir/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_MAX_RESULTS 160 /* of a group */
#define CHECK_MAX_FEEDS 16
#define CHECK_MAX_DIFFERENCES 256
#define CHECK_STEPS 20
#define CHECK_ADAPTERS 32

typedef struct check_result {
    char op[48];
    tg_shape shape;
    tg_dtype dtype;
    double units, absolute; /* within either is the same: units in the last place, difference */
} check_result;

/* A group while it is traced and run. */
typedef struct check_group {
    check_result results[CHECK_MAX_RESULTS];
    int result_count;
    char names[CHECK_MAX_FEEDS][16];
    tg_feed feeds[CHECK_MAX_FEEDS];
    int feed_count;
    bool full; /* of feeds or results, or out of memory */
    tg_tensor (*build)(struct check_group *group, tg_graph *g);
} check_group;

typedef struct check_difference {
    char op[48];
    tg_shape shape;
    double ulp, relative; /* the worst */
} check_difference;

typedef struct check_report {
    int agree, differ;
    check_difference differences[CHECK_MAX_DIFFERENCES]; /* the first of them */
    char error[512];                                     /* why it could not go on; "" */
} check_report;

static bool check_agrees(const check_report *report) { return report->differ == 0 && report->error[0] == '\0'; }

/* ---------------------------------------------------------------- tracing a group */

static tg_tensor check_note(check_group *group, const char *op, tg_tensor t, double units, double absolute) {
    if (group->result_count == CHECK_MAX_RESULTS) {
        group->full = true;
        return t;
    }
    char name[16];
    check_result *result = &group->results[group->result_count];
    snprintf(name, sizeof name, "%d", group->result_count++);
    snprintf(result->op, sizeof result->op, "%s", op);
    result->shape = tg_tensor_shape(t);
    result->dtype = tg_tensor_dtype(t);
    result->units = units;
    result->absolute = absolute;
    return tg_capture(name, t);
}

/* The same result whatever the device: views, comparisons, integers. */
static tg_tensor check_exact(check_group *group, const char *op, tg_tensor t) { return check_note(group, op, t, 0, 0); }

static double check_random(uint64_t *state) { /* splitmix64, in [0, 1) */
    uint64_t z = *state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* A fed tensor of values in [lo, hi), the same on every device: they depend on its number in the
 * group. */
static tg_tensor check_feed(check_group *group, tg_graph *g, tg_shape shape, tg_dtype dtype, double lo, double hi) {
    const int64_t count = tg_shape_count(shape);
    void *data = group->feed_count < CHECK_MAX_FEEDS && count > 0 ? calloc((size_t)count, tg_dtype_bytes(dtype)) : NULL;
    if (!data) {
        group->full = true;
        return (tg_tensor){g, 0};
    }
    const int n = group->feed_count++;
    uint64_t state = (uint64_t)n + 1;
    for (int64_t i = 0; i < count; i++) {
        const double value = lo + (hi - lo) * check_random(&state);
        tg_dtype_put(dtype, data, i, dtype == TG_F32 ? value : dtype == TG_I32 ? floor(value) : value >= 0);
    }
    snprintf(group->names[n], sizeof group->names[n], "x%d", n);
    group->feeds[n] = tg_feed_make_(group->names[n], dtype, data, count);
    return tg_input(g, group->names[n], shape, dtype);
}

static tg_tensor check_f32(check_group *group, tg_graph *g, tg_shape shape) { return check_feed(group, g, shape, TG_F32, -2, 2); }

static void check_forget(check_group *group) {
    for (int i = 0; i < group->feed_count; i++) free((void *)(uintptr_t)group->feeds[i].data);
    group->feed_count = group->result_count = 0;
    group->full = false;
}

/* ---------------------------------------------------------------- the groups */

typedef struct check_unary {
    const char *name;
    tg_tensor (*make)(tg_site site, tg_tensor x);
    bool positive; /* defined above 0 */
    /* as the table of docs/api.md promises, with room for a quotient that is good to 2.5 units */
    double units, absolute;
} check_unary;
static const check_unary check_unaries[] = {
    {"neg", tg_neg_at, false, 0, 0},
    {"abs", tg_abs_at, false, 0, 0},
    {"sign", tg_sign_at, false, 0, 0},
    {"relu", tg_relu_at, false, 0, 0},
    {"square", tg_square_at, false, 1, 0},
    {"sqrt", tg_sqrt_at, true, 5, 0},
    {"rsqrt", tg_rsqrt_at, true, 4, 0},
    {"reciprocal", tg_reciprocal_at, true, 4, 0},
    {"exp", tg_exp_at, false, 8, 0},
    {"log", tg_log_at, true, 8, 1e-6},
    {"sin", tg_sin_at, false, 8, 1e-6},
    {"cos", tg_cos_at, false, 8, 1e-6},
    {"tanh", tg_tanh_at, false, 8, 1e-6},
    {"erf", tg_erf_at, false, 8, 1e-6},
    {"sigmoid", tg_sigmoid_at, false, 8, 1e-6},
    {"softplus", tg_softplus_at, false, 8, 1e-6},
    {"silu", tg_silu_at, false, 16, 1e-6},
    {"gelu", tg_gelu_at, false, 16, 1e-6},
    {"gelu_tanh", tg_gelu_tanh_at, false, 16, 1e-6},
};
#define CHECK_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static tg_tensor check_build_unary(check_group *group, tg_graph *g) {
    const tg_shape shapes[] = {TG_SCALAR, TG_SHAPE(7, 33), TG_SHAPE(3, 1, 257)};
    tg_tensor y = {g, 0};
    for (int s = 0; s < CHECK_COUNT(shapes); s++) {
        const tg_tensor x = check_f32(group, g, shapes[s]), p = check_feed(group, g, shapes[s], TG_F32, 0.05, 9);
        for (int i = 0; i < CHECK_COUNT(check_unaries); i++) {
            const check_unary *u = &check_unaries[i];
            y = check_note(group, u->name, u->make(TG_SITE, u->positive ? p : x), u->units, u->absolute);
        }
    }
    return y;
}

typedef struct check_binary {
    const char *name;
    tg_tensor (*make)(tg_site site, tg_operand a, tg_operand b);
    double units;
} check_binary;
static const check_binary check_binaries[] = {
    {"add", tg_add_at, 1},         {"sub", tg_sub_at, 1},         {"mul", tg_mul_at, 1},   {"div", tg_div_at, 4},
    {"minimum", tg_minimum_at, 0}, {"maximum", tg_maximum_at, 0}, {"less", tg_less_at, 0}, {"less_equal", tg_less_equal_at, 0},
    {"greater", tg_greater_at, 0}, {"equal", tg_equal_at, 0},     {"pow", tg_pow_at, 32},
};

static tg_tensor check_build_binary(check_group *group, tg_graph *g) {
    const tg_shape others[] = {TG_SHAPE(5, 39), TG_SHAPE(39), TG_SHAPE(5, 1), TG_SCALAR};
    const tg_tensor a = check_feed(group, g, TG_SHAPE(5, 39), TG_F32, 0.1, 3);
    tg_tensor y = a;
    for (int s = 0; s < CHECK_COUNT(others); s++) {
        const tg_tensor b = check_feed(group, g, others[s], TG_F32, 0.1, 3);
        for (int i = 0; i < CHECK_COUNT(check_binaries); i++) {
            const check_binary *op = &check_binaries[i];
            y = check_note(group, op->name, op->make(TG_SITE, tg_operand_tensor_(a), tg_operand_tensor_(b)), op->units, 0);
        }
    }
    return y;
}

static tg_tensor check_build_integer(check_group *group, tg_graph *g) {
    const tg_shape shapes[] = {TG_SHAPE(1), TG_SHAPE(11, 23)};
    tg_tensor y = {g, 0};
    for (int s = 0; s < CHECK_COUNT(shapes); s++) {
        const tg_tensor a = check_feed(group, g, shapes[s], TG_I32, -3e9, 3e9), b = check_feed(group, g, shapes[s], TG_I32, -40, 40);
        const tg_tensor c = check_feed(group, g, shapes[s], TG_BOOL, -1, 1), x = check_feed(group, g, shapes[s], TG_F32, -1e3, 1e3);
        for (int i = 0; i < CHECK_COUNT(check_binaries) - 1; i++) /* pow is for f32 */
            check_exact(group, check_binaries[i].name, check_binaries[i].make(TG_SITE, tg_operand_tensor_(a), tg_operand_tensor_(b)));
        check_exact(group, "neg", tg_neg(a));
        check_exact(group, "abs", tg_abs(b));
        check_exact(group, "sign", tg_sign(a));
        check_exact(group, "logical_not", tg_logical_not(c));
        check_exact(group, "logical_and", tg_logical_and(c, tg_less(b, 0)));
        check_exact(group, "logical_or", tg_logical_or(c, tg_greater(b, 5)));
        check_exact(group, "where", tg_where(c, a, b));
        check_exact(group, "cast to f32", tg_cast(b, TG_F32));
        check_exact(group, "cast to i32", tg_cast(x, TG_I32));
        check_exact(group, "cast to bool", tg_cast(b, TG_BOOL));
        check_exact(group, "sum", tg_sum_all(b));
        y = check_exact(group, "max", tg_max(a, TG_ALL));
    }
    return y;
}

/* Sums of n values below 2 in magnitude, in another order. */
static double check_sum_error(tg_shape from) { return 4e-7 * (double)tg_shape_count(from); }

static void check_reductions(check_group *group, tg_tensor x, tg_axes axes) {
    const double error = check_sum_error(tg_tensor_shape(x));
    check_note(group, "sum", tg_sum(x, axes), 16, error);
    check_note(group, "mean", tg_mean(x, axes, .keepdims = true), 16, 1e-6);
    check_exact(group, "max", tg_max(x, axes));
    check_exact(group, "min", tg_min(x, axes, .keepdims = true));
}

static tg_tensor check_build_reduction(check_group *group, tg_graph *g) {
    const tg_tensor small = check_f32(group, g, TG_SHAPE(3, 5, 7)), wide = check_f32(group, g, TG_SHAPE(2, 1031));
    const tg_tensor tall = check_f32(group, g, TG_SHAPE(700, 3));
    const tg_tensor xs[] = {small, wide, tall};
    tg_tensor y = small;
    for (int i = 0; i < CHECK_COUNT(xs); i++) {
        check_reductions(group, xs[i], TG_ALL);
        check_reductions(group, xs[i], TG_AXES(0));
        check_reductions(group, xs[i], TG_AXES(-1));
        check_exact(group, "argmax", tg_argmax(xs[i], 0));
        y = check_exact(group, "argmin", tg_argmin(xs[i], -1));
    }
    check_reductions(group, small, TG_AXES(1));
    check_reductions(group, small, TG_AXES(0, 2));
    return y;
}

static tg_tensor check_build_rows(check_group *group, tg_graph *g) {
    const tg_shape shapes[] = {TG_SHAPE(4, 1), TG_SHAPE(5, 33), TG_SHAPE(3, 300), TG_SHAPE(2, 2, 1025)};
    tg_tensor y = {g, 0};
    for (int s = 0; s < CHECK_COUNT(shapes); s++) {
        char name[16];
        const tg_tensor x = check_f32(group, g, shapes[s]);
        snprintf(name, sizeof name, "norm%d", s);
        const tg_layer_norm norm = tg_nn_layer_norm(g, name, shapes[s].dim[shapes[s].rank - 1]);
        check_note(group, "softmax", tg_softmax(x, -1), 32, 1e-7);
        check_note(group, "softmax, first axis", tg_softmax(x, 0), 32, 1e-7);
        check_note(group, "log_softmax", tg_log_softmax(x, -1), 32, 2e-6);
        check_note(group, "logsumexp", tg_logsumexp(x, -1), 32, 2e-6);
        const tg_tensor away = tg_sub(x, tg_mean_last(x));
        check_note(group, "variance", tg_mean_last(tg_square(away)), 64, 2e-6);
        y = check_note(group, "layer_norm", tg_nn_layer_norm_fwd(norm, x), 64, 1e-5);
    }
    return y;
}

static tg_tensor check_build_matmul(check_group *group, tg_graph *g) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},    {16, 16, 16},  {33, 65, 31},
                                       {70, 130, 67}, {1, 300, 41}, {129, 33, 64}, {2, 2049, 3}};
    const tg_tensor pool = check_f32(group, g, TG_SHAPE(20000)), other = check_f32(group, g, TG_SHAPE(20000));
    tg_tensor y = pool;
    for (int i = 0; i < CHECK_COUNT(sizes); i++) {
        const int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        const tg_tensor a = tg_reshape(tg_narrow(pool, 0, 0, m * k), TG_SHAPE(m, k));
        const tg_tensor b = tg_reshape(tg_narrow(other, 0, 0, k * n), TG_SHAPE(k, n));
        const tg_tensor at = tg_swap_axes(tg_reshape(a, TG_SHAPE(k, m)), 0, 1), bt = tg_swap_axes(tg_reshape(b, TG_SHAPE(n, k)), 0, 1);
        const double error = check_sum_error(TG_SHAPE(k)) * 4;
        check_note(group, "matmul", tg_matmul(a, b), 16, error);
        check_note(group, "matmul, a transposed", tg_matmul(at, b), 16, error);
        check_note(group, "matmul, b transposed", tg_matmul(a, bt), 16, error);
        check_note(group, "matmul, bias, tanh", tg_tanh(tg_add(tg_mul(tg_matmul(a, b), 0.01), tg_narrow(pool, 0, 0, n))), 16, error);
    }
    const tg_tensor p = tg_reshape(tg_narrow(pool, 0, 0, 3 * 5 * 6), TG_SHAPE(3, 5, 6));
    const tg_tensor q = tg_reshape(tg_narrow(other, 0, 0, 3 * 6 * 9), TG_SHAPE(3, 6, 9));
    check_note(group, "matmul_batched", tg_matmul_batched(p, q), 16, 1e-5);
    y = check_note(group, "matmul_batched, broadcast", tg_matmul_batched(p, tg_narrow(q, 0, 1, 1)), 16, 1e-5);
    return y;
}

static tg_tensor check_build_views(check_group *group, tg_graph *g) {
    const tg_tensor x = check_f32(group, g, TG_SHAPE(3, 5, 8)), z = check_f32(group, g, TG_SHAPE(3, 4, 8));
    const tg_tensor table = check_f32(group, g, TG_SHAPE(19, 6)), i = check_feed(group, g, TG_SHAPE(4, 9), TG_I32, 0, 19);
    const tg_tensor parts[] = {x, z, tg_narrow(x, 1, 1, 2)}, pair[] = {x, tg_neg(x)};
    check_exact(group, "transpose", tg_transpose(x, TG_AXES(2, 0, 1)));
    check_exact(group, "reshape of a transpose", tg_reshape(tg_swap_axes(x, 0, 2), TG_SHAPE(4, 30)));
    check_exact(group, "broadcast_to", tg_broadcast_to(tg_narrow(x, 1, 2, 1), TG_SHAPE(3, 7, 8)));
    check_exact(group, "slice", tg_slice_last_range(x, 1, 6));
    check_exact(group, "concat", tg_concat(parts, 3, 1));
    check_exact(group, "stack", tg_stack(pair, 2, 1));
    check_exact(group, "split_heads", tg_nn_split_heads(x, 2));
    check_exact(group, "where_causal", tg_where_causal(tg_narrow(x, 2, 0, 5), -1));
    check_exact(group, "arange", tg_arange(g, 300, TG_F32));
    check_exact(group, "embedding", tg_embedding(table, i));
    check_exact(group, "one_hot", tg_one_hot(i, 19, TG_F32));
    tg_tensor scattered, padded;
    tg_grad(tg_sum_all(tg_mul(tg_embedding(table, i), check_f32(group, g, TG_SHAPE(4, 9, 6)))), &table, 1, &scattered);
    tg_grad(tg_sum_all(tg_square(tg_narrow(x, 2, 2, 3))), &x, 1, &padded);
    check_note(group, "scatter_add", scattered, 16, 1e-5);
    return check_note(group, "pad", padded, 1, 0);
}

/* Attention of two heads with its gradients, and a loss over classes with its gradient. */
static tg_tensor check_build_network(check_group *group, tg_graph *g) {
    const tg_tensor x = check_f32(group, g, TG_SHAPE(2, 7, 12)), target = check_feed(group, g, TG_SHAPE(2, 7), TG_I32, 0, 12);
    tg_tensor qkv[3], grads[4];
    for (int i = 0; i < 3; i++) qkv[i] = tg_nn_split_heads(tg_matmul(x, tg_mul(check_f32(group, g, TG_SHAPE(12, 12)), 0.3)), 2);
    const tg_tensor scores = tg_mul(tg_matmul_batched(qkv[0], tg_swap_axes(qkv[1], -1, -2)), 0.4);
    check_note(group, "attention scores", scores, 64, 2e-5);
    const tg_tensor weights = check_note(group, "softmax_causal", tg_softmax_causal_last(scores), 64, 2e-5);
    const tg_tensor y = check_note(group, "attention", tg_nn_merge_heads(tg_matmul_batched(weights, qkv[2])), 64, 2e-5);
    check_note(group, "cross_entropy_last", tg_nn_cross_entropy_last(y, target), 64, 2e-5);
    const tg_tensor loss = check_note(group, "cross_entropy", tg_nn_cross_entropy(y, target, 3), 64, 2e-5);
    const tg_tensor wrt[] = {x, qkv[0], qkv[1], qkv[2]};
    tg_grad(loss, wrt, 4, grads);
    check_note(group, "attention, gradient of x", grads[0], 64, 2e-5);
    for (int i = 1; i < 4; i++) check_note(group, "attention, gradient of a head", grads[i], 64, 2e-5);
    return loss;
}

static tg_tensor (*const check_groups[])(check_group *group, tg_graph *g) = {
    check_build_unary, check_build_binary, check_build_integer, check_build_reduction,
    check_build_rows,  check_build_matmul, check_build_views,   check_build_network,
};

static tg_tensor check_build(tg_graph *g, void *user) {
    check_group *group = user;
    check_forget(group);
    return group->build(group, g);
}

/* ---------------------------------------------------------------- running and comparing */

static bool check_failed(check_report *report, const char *what, const tg_context *ctx) {
    snprintf(report->error, sizeof report->error, "%s: %s", what, ctx ? tg_error_message(ctx) : "out of memory");
    return false;
}

/* In units of the last place of `want` as f32; of anything but f32, the plain difference. */
static double check_ulp(double got, double want, tg_dtype dtype) {
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : (double)INFINITY;
    if (got == want) return 0;
    if (dtype != TG_F32) return fabs(got - want);
    int exponent = -126;
    if (fabs(want) > 0x1p-126) frexp(want, &exponent), exponent--;
    return fabs(got - want) / ldexp(1, exponent - 23);
}

static void check_compare(check_report *report, const check_result *r, const void *got, const void *want) {
    check_difference worst = {.shape = r->shape};
    bool same = true;
    for (int64_t i = 0; i < tg_shape_count(r->shape); i++) {
        const double a = tg_dtype_get(r->dtype, got, i), b = tg_dtype_get(r->dtype, want, i), ulp = check_ulp(a, b, r->dtype);
        if (ulp <= r->units || fabs(a - b) <= r->absolute) continue;
        same = false;
        worst.ulp = fmax(worst.ulp, ulp);
        worst.relative = fmax(worst.relative, isnan(a - b) ? (double)INFINITY : b == 0 ? (double)INFINITY : fabs(a - b) / fabs(b));
    }
    if (same) {
        report->agree++;
        return;
    }
    snprintf(worst.op, sizeof worst.op, "%s", r->op);
    if (report->differ < CHECK_MAX_DIFFERENCES) report->differences[report->differ] = worst;
    report->differ++;
}

/* Runs group->build on a device: its captures, or NULL with the reason in the report. */
static tg_captures *check_run(tg_context *ctx, check_group *group, const tg_compile_options *options, check_report *report) {
    tg_captures *captures = NULL;
    tg_model *model = tg_compile_forward(ctx, check_build, group, options);
    const int64_t count = model ? tg_shape_count(tg_model_output_shape(model)) : 0;
    void *output = count > 0 ? calloc((size_t)count, tg_dtype_bytes(tg_model_output_dtype(model))) : NULL;
    if (!output || group->full || tg_run_captures(model, group->feeds, group->feed_count, output, count, &captures) != TG_OK)
        check_failed(report, "operations", !model || output ? ctx : NULL);
    free(output);
    tg_model_destroy(model);
    return captures;
}

static bool check_operations(tg_context *ctx, const tg_compile_options *options, check_report *report) {
    const tg_compile_options cpu = {.device = TG_DEVICE_CPU, .seed = 1, .threads = options->threads};
    check_group *group = calloc(1, sizeof *group);
    if (!group) return check_failed(report, "operations", NULL);
    for (int i = 0; i < CHECK_COUNT(check_groups) && report->error[0] == '\0'; i++) {
        group->build = check_groups[i];
        tg_captures *want = check_run(ctx, group, &cpu, report);
        tg_captures *got = want ? check_run(ctx, group, options, report) : NULL;
        for (int k = 0; got && k < group->result_count; k++) {
            char name[16];
            snprintf(name, sizeof name, "%d", k);
            check_compare(report, &group->results[k], tg_captures_get(got, name, NULL, NULL), tg_captures_get(want, name, NULL, NULL));
        }
        tg_captures_destroy(got);
        tg_captures_destroy(want);
        check_forget(group);
    }
    free(group);
    return report->error[0] == '\0';
}

/* ---------------------------------------------------------------- the training */

static tg_tensor check_build_mlp(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(37, 3), TG_F32), y = tg_input(g, "y", TG_SHAPE(37, 2), TG_F32);
    const tg_tensor hidden = tg_tanh(tg_nn_linear_fwd(tg_nn_linear(g, "l1", 3, 19), x));
    const tg_tensor out = tg_nn_linear_fwd(tg_nn_linear(g, "l2", 19, 2), hidden);
    return tg_nn_mse(out, y);
}

static bool check_train(tg_context *ctx, const tg_compile_options *device, float losses[CHECK_STEPS], check_report *report) {
    tg_compile_options options = *device;
    options.optimizer = tg_adam(.lr = tg_lr_constant(0.01), .clip_norm = 1);
    float x[37 * 3], y[37 * 2];
    uint64_t state = 7;
    for (int i = 0; i < CHECK_COUNT(x); i++) x[i] = (float)(4 * check_random(&state) - 2);
    for (int i = 0; i < CHECK_COUNT(y); i++) y[i] = sinf(x[i / 2 * 3 + i % 2]);
    const tg_feed feeds[] = {tg_feed_f32("x", x, CHECK_COUNT(x)), tg_feed_f32("y", y, CHECK_COUNT(y))};
    tg_model *model = tg_compile(ctx, check_build_mlp, NULL, &options);
    bool ok = model != NULL;
    for (int i = 0; ok && i < CHECK_STEPS; i++) ok = tg_step(model, feeds, 2, &losses[i]) == TG_OK;
    if (!ok) check_failed(report, "training", ctx);
    tg_model_destroy(model);
    return ok;
}

static bool check_training(tg_context *ctx, const tg_compile_options *options, check_report *report) {
    const tg_compile_options cpu = {.device = TG_DEVICE_CPU, .seed = 1, .threads = options->threads};
    /* 1.2e-4 relative at most */
    check_result result = {"training, losses of Adam", TG_SHAPE(CHECK_STEPS), TG_F32, 1000, 0};
    float got[CHECK_STEPS], want[CHECK_STEPS];
    if (!check_train(ctx, &cpu, want, report) || !check_train(ctx, options, got, report)) return false;
    check_compare(report, &result, got, want);
    return true;
}

/* ---------------------------------------------------------------- reports */

static void print_report(int number, const tg_adapter_info *adapter, const check_report *report) {
    printf("#%d %s (%s): %d agree, %d differ\n", number, adapter->name, adapter->backend, report->agree, report->differ);
    for (int i = 0; i < report->differ && i < CHECK_MAX_DIFFERENCES; i++) {
        const check_difference *d = &report->differences[i];
        printf("  %-32s [", d->op);
        for (int axis = 0; axis < d->shape.rank; axis++) printf("%s%lld", axis ? ", " : "", (long long)d->shape.dim[axis]);
        printf("]: %.3g ulp, %.3g relative\n", d->ulp, d->relative);
    }
    if (report->error[0]) printf("  failed: %s\n", report->error);
}

static void print_report_json(int number, const tg_adapter_info *adapter, const check_report *report, bool first) {
    printf("%s{\"index\": %d, \"name\": ", first ? "" : ", ", number);
    cli_json_text(stdout, adapter->name);
    printf(", \"backend\": ");
    cli_json_text(stdout, adapter->backend);
    printf(", \"agree\": %d, \"differ\": %d, \"error\": ", report->agree, report->differ);
    if (report->error[0]) cli_json_text(stdout, report->error);
    else printf("null");
    printf(", \"differences\": [");
    for (int i = 0; i < report->differ && i < CHECK_MAX_DIFFERENCES; i++) {
        const check_difference *d = &report->differences[i];
        printf("%s{\"op\": ", i ? ", " : "");
        cli_json_text(stdout, d->op);
        printf(", \"shape\": [");
        for (int axis = 0; axis < d->shape.rank; axis++) printf("%s%lld", axis ? ", " : "", (long long)d->shape.dim[axis]);
        printf("], \"ulp\": ");
        cli_json_number(stdout, d->ulp, 6);
        printf(", \"relative\": ");
        cli_json_number(stdout, d->relative, 6);
        printf("}");
    }
    printf("]}");
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool contains(const char *text, const char *part) {
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && lower(text[i]) == lower(part[i])) i++;
        if (!part[i]) return true;
    }
    return false;
}

/* As tg_compile_options.adapter says, but all that fit. */
static bool wanted(int number, const tg_adapter_info *adapter, const char *asked) {
    char text[16];
    snprintf(text, sizeof text, "#%d", number);
    if (!asked) return cli_executes(adapter);
    if (asked[0] == '#') return strcmp(asked, text) == 0;
    return contains(adapter->name, asked) || contains(adapter->vendor, asked) || contains(adapter->backend, asked);
}

static bool check_adapter(int number, check_report *report, const cli_options *options) {
    char name[16];
    snprintf(name, sizeof name, "#%d", number);
    const tg_compile_options device = {.device = TG_DEVICE_WEBGPU, .adapter = name, .seed = 1, .threads = (int)options->threads};
    tg_context *ctx = cli_context();
    if (!ctx) return check_failed(report, "operations", NULL);
    if (check_operations(ctx, &device, report)) check_training(ctx, &device, report);
    tg_context_destroy(ctx);
    return check_agrees(report);
}

int cli_check(const tg_adapter_info *adapters, int count, const cli_options *options) {
    int checked = 0;
    bool good = true;
    for (int i = 0; i < count; i++) checked += wanted(i, &adapters[i], options->adapter);
    if (checked == 0) {
        if (options->adapter) cli_say("devices --check: no WebGPU adapter fits '%s'", options->adapter);
        else cli_say("devices --check: no WebGPU adapter that executes anything: is a driver installed?");
        return CLI_USAGE;
    }
    check_report *report = malloc(sizeof *report);
    if (!report) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    bool first = true;
    if (options->json) printf("{\"adapters\": [");
    for (int i = 0; i < count; i++) {
        if (!wanted(i, &adapters[i], options->adapter)) continue;
        memset(report, 0, sizeof *report);
        good = check_adapter(i, report, options) && good;
        if (options->json) print_report_json(i, &adapters[i], report, first);
        else print_report(i, &adapters[i], report);
        fflush(stdout);
        first = false;
    }
    if (options->json) printf("]}\n");
    free(report);
    return good ? CLI_DONE : CLI_FAILED;
}
