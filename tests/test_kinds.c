/* Kinds of fault that systems like this one have shown, and promises of the public header, beyond the small numeric cases: one
 * test per kind, named after it. Names, call sites and traces; shapes at the edge; indices; NaN; training state; memory. */
#include "fixtures.h"

#include "io/safetensors.h"
#include "run/cpu/contract.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- short hands */

static tg_tensor in(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_F32); }

static const float one[] = {1}, two_numbers[] = {1, 2};

/* p, loss = g p: the gradient is g */
static tg_tensor build_line(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_mul(tg_param(g, "p", TG_SHAPE(1), .init = tg_init_literal(one, 1)), in(g, "g", TG_SHAPE(1))));
}

static float line_step(tg_model *model, float gradient) {
    const tg_feed feed = tg_feed_f32("g", &gradient, 1);
    float p = 0;
    ok(tg_model_context(model), tg_step(model, &feed, 1, NULL));
    ok(tg_model_context(model), tg_param_download(model, "p", &p, 1));
    return p;
}

/* ---------------------------------------------------------------- names, sites, traces */

static tg_tensor build_own_state(tg_graph *g, void *user) {
    const tg_tensor s = tg_state(g, user, TG_SHAPE(64), TG_F32, 3.0), p = tg_param(g, "p", TG_SHAPE(2));
    return tg_add(tg_sum_all(p), tg_sum_all(s));
}
static tg_tensor build_own_param(tg_graph *g, void *user) {
    tg_scope_push(g, "tg");
    const tg_tensor p = tg_param(g, user, TG_SHAPE(2));
    tg_scope_pop(g);
    return tg_sum_all(p);
}
/* States of the user and of the library lie side by side, in memory and in files: they must not meet. */
static void names_of_the_library_are_refused(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    static char *const names[] = {"tg.parameters", "tg.gradients", "tg.step", "tg.m", "tg.lr", "tg.mine"};
    for (int i = 0; i < SUPPORT_COUNT(names); i++)
        expect_no_model(ctx, tg_compile(ctx, build_own_state, names[i], &o), TG_ERROR_ARGUMENT, names[i]);
    expect_no_model(ctx, tg_compile(ctx, build_own_param, (void *)(uintptr_t) "step", &o), TG_ERROR_ARGUMENT, "tg.step");
    expect_no_model(ctx, tg_compile(ctx, build_own_state, (void *)(uintptr_t) "__metadata__", &o), TG_ERROR_ARGUMENT, "__metadata__");
    tg_model_destroy(compile(ctx, build_own_state, (void *)(uintptr_t) "tgx", o.optimizer)); /* only the prefix itself */
    tg_context_destroy(ctx);
}

/* A binding's file name may live in a block that is freed at once (the sanitizer watches). */
static tg_site fleeting_site(char **text, const char *file) {
    *text = malloc(strlen(file) + 1);
    memcpy(*text, file, strlen(file) + 1);
    return tg_site_make(*text, 5);
}
static void forget(char *text) {
    memset(text, 'z', strlen(text));
    free(text);
}
static tg_tensor build_with_fleeting_sites(tg_graph *g, void *user) {
    const tg_optimizer sgd = tg_sgd(.lr = tg_lr_constant(0.1));
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(2)), t = tg_state(g, "t", TG_SCALAR, TG_I32, 1.0);
    char *text;
    if (user != NULL) tg_append_optimizer_at(fleeting_site(&text, "a.c"), tg_sum_all(p), &sgd);
    else tg_resolve_lr_at(fleeting_site(&text, "a.c"), sgd.lr, t);
    forget(text);
    const tg_tensor y = tg_exp_at(fleeting_site(&text, "b.c"), p);
    forget(text);
    return tg_add(y, tg_ones(g, TG_SHAPE(3)));
}
static void a_call_site_outlives_the_callers_text(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    int yes = 1;
    expect_no_model(ctx, tg_compile(ctx, build_with_fleeting_sites, &yes, NULL), TG_ERROR_SHAPE, "exp: computed at b.c:5");
    expect_no_model(ctx, tg_compile(ctx, build_with_fleeting_sites, NULL, NULL), TG_ERROR_SHAPE, "exp: computed at b.c:5");
    tg_context_destroy(ctx);
}

static tg_tensor build_kept(tg_graph *g, void *user) {
    *(tg_tensor *)user = tg_state(g, "t", TG_SCALAR, TG_I32, 1.0);
    return tg_sum_all(tg_param(g, "p", TG_SHAPE(2)));
}
static void an_operation_after_the_trace_is_an_error(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_optimizer sgd = tg_sgd(.lr = tg_lr_constant(0.1));
    tg_tensor loss = {NULL, 0}, t;
    tg_graph *g = tg_trace(ctx, build_kept, &t, &loss);
    assert_non_null(g);
    expect_error(ctx, tg_append_optimizer(loss, &sgd), TG_ERROR_TRACE, "ended");
    assert_int_equal(tg_resolve_lr(sgd.lr, t).id, 0);
    expect_error(ctx, tg_error(ctx), TG_ERROR_TRACE, "ended");
    assert_int_equal(tg_exp(loss).id, 0);
    expect_error(ctx, tg_error(ctx), TG_ERROR_TRACE, "ended");
    tg_graph_destroy(g);
    tg_graph_destroy(NULL);
    tg_context_destroy(ctx);
}

static tg_tensor build_poison_gradients(tg_graph *g, void *user) {
    const tg_tensor x = in(g, "x", TG_SHAPE(2)), i = tg_input(g, "i", TG_SHAPE(2), TG_I32);
    const tg_tensor wrt[2] = {x, i};
    tg_tensor out[2] = {x, i};
    const bool product = user != NULL;
    assert_int_equal(product ? tg_vjp(x, x, wrt, 2, out) : tg_grad(tg_sum_all(x), wrt, 2, out), TG_ERROR_GRADIENT);
    assert_true(out[0].id == 0 && out[1].id == 0);
    return tg_exp(out[0]); /* goes on, silently */
}
static void failed_gradients_are_poison(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    int yes = 1;
    expect_no_model(ctx, tg_compile_forward(ctx, build_poison_gradients, NULL, NULL), TG_ERROR_GRADIENT, "grad: i[2] i32");
    expect_no_model(ctx, tg_compile_forward(ctx, build_poison_gradients, &yes, NULL), TG_ERROR_GRADIENT, "vjp: i[2] i32");
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- shapes and numbers at the edge */

typedef tg_tensor (*edge_fn)(tg_graph *g);
#define EDGE(name, ...) \
  static tg_tensor edge_##name(tg_graph *g) { return __VA_ARGS__; }
#define X(...) in(g, "x", TG_SHAPE(__VA_ARGS__))
#define Y(...) in(g, "y", TG_SHAPE(__VA_ARGS__))
EDGE(input, X(3, 0))
EDGE(negative, X(-4))
EDGE(param, tg_param(g, "p", TG_SHAPE(0)))
EDGE(state, tg_state(g, "s", TG_SHAPE(0, 2), TG_F32, 0.0))
EDGE(full, tg_full(g, TG_SHAPE(0), 1.0, TG_F32))
EDGE(constant, tg_constant(g, TG_SHAPE(0), TG_F32, one, 0))
EDGE(arange, tg_arange(g, 0, TG_I32))
EDGE(narrow, tg_narrow(X(4), 0, 1, 0))
EDGE(slice, tg_slice_last_range(X(4), 2, 2))
EDGE(broadcast, tg_broadcast_to(X(1), TG_SHAPE(0)))
EDGE(reshape, tg_reshape(X(4), TG_SHAPE(0, -1)))
EDGE(one_hot, tg_one_hot(tg_arange(g, 3, TG_I32), 0, TG_F32))
EDGE(linear, tg_nn_linear(g, "l", 0, 3).W)
EDGE(layer_norm, tg_nn_layer_norm(g, "n", 0).g)
EDGE(rms_norm, tg_nn_rms_norm(g, "n", 0).g)
EDGE(batch_norm, tg_nn_batch_norm(g, "n", -3).mean)
EDGE(large_batch_norm, tg_nn_batch_norm(g, "n", 2147483648).mean)
EDGE(gru, tg_nn_gru(g, "l", 3, 0).Wh)
EDGE(large_lstm, tg_nn_lstm(g, "l", 3, 65536).Wh)
EDGE(larger_lstm, tg_nn_lstm(g, "l", 3, INT64_MAX).Wh)
EDGE(large_input, X(65536, 65536))
EDGE(large_param, tg_param(g, "p", TG_SHAPE(46341, 46341)))
EDGE(large_state, tg_state(g, "s", TG_SHAPE(2147483648), TG_F32, 0.0))
EDGE(large_full, tg_full(g, TG_SHAPE(65536, 65536), 1.0, TG_F32))
EDGE(large_arange, tg_arange(g, 2147483648, TG_I32))
EDGE(large_outer, tg_mul(X(65536, 1), Y(65536)))
EDGE(large_where, tg_where(tg_less(X(65536, 1), 0.0), Y(65536), 1.0))
EDGE(large_broadcast, tg_broadcast_to(X(1), TG_SHAPE(65536, 65536)))
EDGE(large_matmul, tg_matmul(X(65536, 1), Y(1, 65536)))
EDGE(large_batched, tg_matmul_batched(X(65536, 1, 1), Y(65536, 1, 65536)))
EDGE(large_one_hot, tg_one_hot(tg_arange(g, 65536, TG_I32), 65536, TG_BOOL))
EDGE(large_embedding, tg_embedding(X(2, 65536), tg_arange(g, 65536, TG_I32)))
EDGE(large_rank, X(1, 1, 1, 1, 1, 1, 1, 1, 1))
EDGE(large_linear, tg_nn_linear(g, "l", 65536, 65536).W)

static tg_tensor build_edge(tg_graph *g, void *user) { return (*(const edge_fn *)user)(g); }

/* Refused at the operation, with nearly no memory taken. */
static void sizes_at_the_edge_are_refused(void **state) {
    (void)state;
    static const struct {
        edge_fn make;
        tg_status status;
    } edges[] = {
        {edge_input, TG_ERROR_SHAPE},
        {edge_negative, TG_ERROR_SHAPE},
        {edge_param, TG_ERROR_SHAPE},
        {edge_state, TG_ERROR_SHAPE},
        {edge_full, TG_ERROR_SHAPE},
        {edge_constant, TG_ERROR_SHAPE},
        {edge_arange, TG_ERROR_SHAPE},
        {edge_narrow, TG_ERROR_SHAPE},
        {edge_slice, TG_ERROR_SHAPE},
        {edge_broadcast, TG_ERROR_SHAPE},
        {edge_reshape, TG_ERROR_SHAPE},
        {edge_one_hot, TG_ERROR_SHAPE},
        {edge_linear, TG_ERROR_SHAPE},
        {edge_layer_norm, TG_ERROR_SHAPE},
        {edge_large_input, TG_ERROR_LIMIT},
        {edge_large_param, TG_ERROR_LIMIT},
        {edge_large_state, TG_ERROR_LIMIT},
        {edge_large_full, TG_ERROR_LIMIT},
        {edge_large_arange, TG_ERROR_LIMIT},
        {edge_large_outer, TG_ERROR_LIMIT},
        {edge_large_where, TG_ERROR_LIMIT},
        {edge_large_broadcast, TG_ERROR_LIMIT},
        {edge_large_matmul, TG_ERROR_LIMIT},
        {edge_large_batched, TG_ERROR_LIMIT},
        {edge_large_one_hot, TG_ERROR_LIMIT},
        {edge_large_embedding, TG_ERROR_LIMIT},
        {edge_large_rank, TG_ERROR_LIMIT},
        {edge_large_linear, TG_ERROR_LIMIT},
        {edge_rms_norm, TG_ERROR_SHAPE},
        {edge_batch_norm, TG_ERROR_SHAPE},
        {edge_large_batch_norm, TG_ERROR_LIMIT},
        {edge_gru, TG_ERROR_SHAPE},
        {edge_large_lstm, TG_ERROR_LIMIT},
        {edge_larger_lstm, TG_ERROR_LIMIT},
    };
    for (int i = 0; i < SUPPORT_COUNT(edges); i++) {
        support_allocator counts = {0};
        tg_context *ctx = support_context_counting(&counts);
        edge_fn make = edges[i].make;
        if (tg_compile_forward(ctx, build_edge, &make, NULL) != NULL) fail_msg("edge %d was accepted", i);
        if (tg_error(ctx) != edges[i].status) fail_msg("edge %d: %s: %s", i, tg_status_name(tg_error(ctx)), tg_error_message(ctx));
        if (strstr(tg_error_site(ctx).file, "test_kinds.c") == NULL)
            fail_msg("edge %d: no line of this file: %s", i, tg_error_message(ctx));
        assert_true(counts.calls < 100);
        tg_context_destroy(ctx);
        assert_int_equal(counts.live_blocks, 0);
    }
}

EDGE(half_of_i32, tg_add(tg_arange(g, 3, TG_I32), 0.5))
EDGE(nan_of_i32, tg_add(tg_arange(g, 3, TG_I32), (double)NAN))
EDGE(large_i32, tg_add(tg_arange(g, 3, TG_I32), 2147483648.0))
EDGE(large_f32, tg_add(X(3), 1e39))
EDGE(large_fill, tg_full(g, TG_SHAPE(3), -1e39, TG_F32))
EDGE(two_of_bool, tg_equal(tg_less(X(3), 0.0), 2.0))
EDGE(causal_fill, tg_where_causal(X(3, 3), 1e39))
EDGE(accepted_f32, tg_add(tg_mul(X(3), (double)FLT_MAX), (double)INFINITY))
EDGE(accepted_i32, tg_add(tg_arange(g, 3, TG_I32), -2147483648.0))
static void numbers_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const edge_fn bad[] = {edge_half_of_i32, edge_nan_of_i32,  edge_large_i32,  edge_large_f32,
                                  edge_large_fill,  edge_two_of_bool, edge_causal_fill};
    static const edge_fn good[] = {edge_accepted_f32, edge_accepted_i32};
    tg_context *ctx = support_context();
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        edge_fn make = bad[i];
        expect_no_model(ctx, tg_compile_forward(ctx, build_edge, &make, NULL), TG_ERROR_DTYPE, "does not fit");
    }
    for (int i = 0; i < SUPPORT_COUNT(good); i++) {
        edge_fn make = good[i];
        tg_model *model = tg_compile_forward(ctx, build_edge, &make, NULL);
        if (model == NULL) fail_msg("%s", tg_error_message(ctx));
        tg_model_destroy(model);
    }
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- indices */

typedef enum indexed {
    EMBEDDING,
    ONE_HOT,
    CROSS_ENTROPY_LAST,
    CROSS_ENTROPY,
    GATHER,
    TAKE_ALONG_AXIS,
    SCATTER_ADD,
    NLL,
    INDEXED_COUNT
} indexed;
typedef struct index_case {
    indexed op;
    bool computed, captured;
} index_case;

/* loss = sum of w and something indexed by idx, which is fed or computed and whose value is part of the loss or only captured. */
static tg_tensor build_indexed(tg_graph *g, void *user) {
    const index_case c = *(const index_case *)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3, 4), .init = tg_init_ones()), fed = tg_input(g, "idx", TG_SHAPE(3), TG_I32);
    const tg_tensor idx = c.computed ? tg_sub(tg_add(fed, 5.0), 5.0) : fed;
    tg_tensor y;
    switch (c.op) {
    case EMBEDDING: y = tg_embedding(tg_transpose(w, TG_AXES(1, 0)), idx); break;
    case ONE_HOT: y = tg_mul(w, tg_one_hot(idx, 4, TG_F32)); break;
    case CROSS_ENTROPY_LAST: y = tg_nn_cross_entropy_last(w, idx); break;
    case GATHER: y = tg_gather(w, idx, 1); break;
    case TAKE_ALONG_AXIS: y = tg_take_along_axis(w, tg_expand_dims(idx, 1), 1); break;
    case SCATTER_ADD: y = tg_scatter_add(tg_transpose(w, TG_AXES(1, 0)), idx, tg_narrow(w, 1, 0, 3), 0); break;
    case NLL: y = tg_nn_nll(w, idx, -7); break;
    default: y = tg_nn_cross_entropy(w, idx, -7, .label_smoothing = 0.1); break;
    }
    tg_capture("y", y);
    return c.captured ? tg_sum_all(w) : tg_add(tg_sum_all(w), tg_sum_all(y));
}

static void check_index(index_case c, const char *name) {
    static const int32_t good[] = {0, 3, 1}, bad[][3] = {{0, 4, 1}, {0, 1, -1}, {-2147483647, 0, 0}, {0, 2147483647, 0}};
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_indexed, &c, tg_adam(.lr = tg_lr_constant(0.1)));
    float before[12], after[12], loss = 7, output = 7;
    ok(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", good, 3)}, 1, NULL));
    ok(ctx, tg_param_download(model, "w", before, 12));
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        const tg_feed feed = tg_feed_i32("idx", bad[i], 3);
        tg_captures *captures = (tg_captures *)&loss;
        expect_error(ctx, tg_step(model, &feed, 1, &loss), TG_ERROR_INDEX, name);
        tg_status status = tg_step_captures(model, &feed, 1, &loss, &captures);
        expect_error(ctx, status, TG_ERROR_INDEX, name);
        assert_null(captures);
        captures = (tg_captures *)&loss;
        expect_error(ctx, tg_run(model, &feed, 1, &output, 1), TG_ERROR_INDEX, name);
        status = tg_run_captures(model, &feed, 1, &output, 1, &captures);
        expect_error(ctx, status, TG_ERROR_INDEX, name);
        assert_null(captures);
    }
    assert_true(loss == 7 && output == 7);
    assert_int_equal(tg_model_step_count(model), 1);
    ok(ctx, tg_param_download(model, "w", after, 12));
    assert_memory_equal(before, after, sizeof before);
    ok(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", good, 3)}, 1, NULL));
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}
static void an_index_outside_its_table_is_an_error_wherever_it_comes_from(void **state) {
    (void)state;
    static const char *const names[INDEXED_COUNT] = {"embedding", "one_hot",         "cross_entropy_last", "cross_entropy",
                                                     "gather",    "take_along_axis", "scatter_add",        "nll"};
    for (int op = 0; op < INDEXED_COUNT; op++)
        for (int way = 0; way < 4; way++) check_index((index_case){(indexed)op, way % 2 == 1, way >= 2}, names[op]);
}

/* The index comes from the parameters: it can go wrong with no feed at all. */
static tg_tensor build_index_of_parameter(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(2), .init = tg_init_literal(two_numbers, 2));
    const tg_tensor table = tg_constant(g, TG_SHAPE(4, 1), TG_F32, ((const float[]){1, 1, 1, 1}), 4);
    return tg_add(tg_sum_all(tg_mul(p, -1.0)), tg_sum_all(tg_embedding(table, tg_cast(p, TG_I32))));
}
static void an_index_computed_from_parameters_stops_the_step_before_it_happens(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_index_of_parameter, NULL, tg_sgd(.lr = tg_lr_constant(1)));
    ok(ctx, tg_step(model, NULL, 0, NULL));
    ok(ctx, tg_step(model, NULL, 0, NULL)); /* p = 3, 4 now: the next step would read row 4 */
    expect_error(ctx, tg_step(model, NULL, 0, NULL), TG_ERROR_INDEX, "embedding");
    assert_int_equal(tg_model_step_count(model), 2);
    expect_param(model, "p", (const float[]){3, 4}, 2, 0);
    ok(ctx, tg_param_upload(model, "p", two_numbers, 2)); /* and it can be mended */
    ok(ctx, tg_step(model, NULL, 0, NULL));
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- NaN, ties */

static tg_tensor build_nan(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor a = X(3), b = Y(3), rows = in(g, "rows", TG_SHAPE(2, 3));
    tg_capture("minimum", tg_minimum(a, b));
    tg_capture("maximum", tg_maximum(a, b));
    tg_capture("clamp", tg_clamp(a, -1.0, 1.0));
    tg_capture("relu", tg_relu(a));
    tg_capture("abs", tg_abs(a));
    tg_capture("sign", tg_sign(a));
    tg_capture("min", tg_min(rows, TG_AXES(1)));
    tg_capture("max", tg_max(rows, TG_AXES(1)));
    tg_capture("argmin", tg_argmin(rows, 1));
    tg_capture("argmax", tg_argmax(rows, 1));
    tg_capture("differs", tg_not_equal(a, a));
    tg_capture("equal", tg_equal(a, a));
    return tg_zeros(g, TG_SCALAR);
}
static void fill_nan(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    static const double x[] = {NAN, 1, 2}, y[] = {5, NAN, 1}, rows[] = {3, NAN, 1, 1, 1, NAN};
    (void)user;
    (void)shape;
    (void)dtype;
    const double *from = name[0] == 'x' ? x : name[0] == 'y' ? y : rows;
    memcpy(out, from, sizeof *out * (size_t)count);
}
static void expect_values(const support_outputs *got, const char *name, int n, const double *want) {
    const support_value *v = support_outputs_find(got, name);
    assert_int_equal(v->count, n);
    for (int i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(v->data[i]) : v->data[i] != want[i])
            fail_msg("%s[%d]: got %.9g, want %.9g", name, i, v->data[i], want[i]);
}
static void nan_wins_in_every_minimum_and_maximum(void **state) {
    (void)state;
    static const support_options ways[] = {{0}, {.no_fusion = true}, {.isa = "scalar"}, {.isa = "avx2"}};
    const support_case c = {build_nan, NULL, fill_nan, NULL};
    const int count = support_home_now() == SUPPORT_WEBGPU ? 2 : SUPPORT_COUNT(ways);
    for (int way = -1; way < count; way++) { /* -1: the reference */
        support_outputs got;
        if (!(way < 0 ? support_run_reference(&c, 1, &got) : support_run_home(&c, &ways[way], &got)))
            fail_msg("way %d: %s", way, got.message);
        expect_values(&got, "minimum", 3, (const double[]){NAN, NAN, 1});
        expect_values(&got, "maximum", 3, (const double[]){NAN, NAN, 2});
        expect_values(&got, "clamp", 3, (const double[]){NAN, 1, 1});
        expect_values(&got, "relu", 3, (const double[]){NAN, 1, 2});
        expect_values(&got, "abs", 3, (const double[]){NAN, 1, 2});
        expect_values(&got, "sign", 3, (const double[]){NAN, 1, 1});
        expect_values(&got, "min", 2, (const double[]){NAN, NAN});
        expect_values(&got, "max", 2, (const double[]){NAN, NAN});
        expect_values(&got, "argmin", 2, (const double[]){1, 2});
        expect_values(&got, "argmax", 2, (const double[]){1, 2});
        expect_values(&got, "differs", 3, (const double[]){1, 0, 0});
        expect_values(&got, "equal", 3, (const double[]){0, 1, 1});
        support_outputs_free(&got);
    }
}

static tg_tensor build_clamped(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_param(g, "x", TG_SHAPE(5), .init = tg_init_literal((const float[]){-1, 1, 0, 2, -3}, 5));
    return tg_sum_all(tg_clamp(x, -1.0, 1.0));
}
static void a_clamp_shares_its_gradient_at_the_bounds(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_clamped, NULL, (tg_optimizer){0});
    float gradient[5];
    ok(ctx, tg_step(model, NULL, 0, NULL));
    ok(ctx, tg_param_grad_download(model, "x", gradient, 5));
    expect_floats("gradient", gradient, (const float[]){0.5f, 0.5f, 1, 0, 0}, 5, 0);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- training */

static tg_tensor build_ignored(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(2, 2), .init = tg_init_literal((const float[]){1, 2, 3, 4}, 4));
    return tg_nn_cross_entropy(w, tg_input(g, "t", TG_SHAPE(2), TG_I32), -100);
}
static void a_batch_of_ignored_targets_moves_nothing(void **state) {
    (void)state;
    static const int32_t targets[] = {-100, -100};
    static const float start[] = {1, 2, 3, 4};
    const tg_feed feed = tg_feed_i32("t", targets, 2);
    tg_context *ctx = support_context();
    for (int kind = 0; kind < 2; kind++) {
        tg_model *model =
            compile(ctx, build_ignored, NULL,
                    kind == 0 ? tg_adam(.lr = tg_lr_constant(0.1), .clip_norm = 1) : tg_sgd(.lr = tg_lr_constant(0.1), .momentum = 0.9));
        float loss = 7;
        for (int i = 0; i < 2; i++) ok(ctx, tg_step(model, &feed, 1, &loss));
        assert_true(loss == 0);
        expect_param(model, "w", start, 4, 0);
        tg_model_destroy(model);
    }
    tg_context_destroy(ctx);
}

static tg_tensor build_tied(tg_graph *g, void *user) { /* p used three times; gradient 3 g */
    (void)user;
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(1), .init = tg_init_literal(one, 1), .decay = TG_YES), x = in(g, "g", TG_SHAPE(1));
    return tg_sum_all(tg_add(tg_mul(p, x), tg_mul(tg_add(p, p), x)));
}
static void a_tied_parameter_decays_once_a_step(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_tied, NULL, tg_sgd(.lr = tg_lr_constant(0.1), .weight_decay = 0.5));
    assert_true(fabsf(line_step(model, 1) - (0.95f - 0.3f)) < 1e-6f);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static tg_tensor build_unused(tg_graph *g, void *user) {
    (void)user;
    tg_param(g, "unused", TG_SHAPE(2), .init = tg_init_literal(two_numbers, 2));
    return build_line(g, NULL);
}
static void moments_of_an_unused_parameter_stay_zero(void **state) {
    (void)state;
    char path[300];
    tg_context *ctx = support_context();
    support_path(path, sizeof path, "kinds.safetensors");
    tg_model *model = compile(ctx, build_unused, NULL, tg_adam(.lr = tg_lr_constant(0.1), .weight_decay = 0.1));
    for (int i = 0; i < 3; i++) line_step(model, 1);
    ok(ctx, tg_model_save(model, path));
    tg_safetensors *file = NULL;
    ok(ctx, tg_safetensors_open(ctx, path, &file));
    remove(path);
    static const char *const names[] = {"tg.m/unused", "tg.v/unused"};
    const float zero[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const tg_file_tensor *moment = tg_safetensors_find(file, names[i]);
        assert_non_null(moment);
        assert_memory_equal(moment->data, zero, sizeof zero);
    }
    tg_safetensors_destroy(file);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static tg_tensor build_frozen(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(2), .init = tg_init_ones(), .frozen = TG_YES));
}
static void a_model_of_frozen_parameters_has_zero_gradients(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_frozen, NULL, (tg_optimizer){0});
    float gradient[2] = {7, 7}, loss = 0;
    tg_model_info info;
    ok(ctx, tg_step(model, NULL, 0, &loss));
    ok(ctx, tg_param_grad_download(model, "w", gradient, 2));
    assert_true(loss == 2 && gradient[0] == 0 && gradient[1] == 0);
    ok(ctx, tg_model_get_info(model, &info));
    assert_int_equal(info.parameters, 0);
    const tg_compile_options o = options_with(tg_sgd(.lr = tg_lr_constant(1)));
    expect_no_model(ctx, tg_compile(ctx, build_frozen, NULL, &o), TG_ERROR_GRADIENT, "no unfrozen parameter");
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void downloaded_gradients_are_those_before_clipping(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_line, NULL, tg_sgd(.lr = tg_lr_constant(1), .clip_norm = 0.5));
    float gradient = 0;
    assert_true(fabsf(line_step(model, 4) - 0.5f) < 1e-6f); /* moved by the clipped one */
    ok(ctx, tg_param_grad_download(model, "p", &gradient, 1));
    assert_true(gradient == 4);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void a_schedule_set_later_survives_both_resets_and_begins_again(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    for (int all = 0; all < 2; all++) {
        tg_model *model = compile(ctx, build_line, NULL, tg_sgd(.lr = tg_lr_constant(100)));
        line_step(model, 0);
        ok(ctx, tg_model_set_lr(model, tg_lr_linear_decay(1, 0, 4)));
        for (int i = 0; i < 3; i++) line_step(model, 0);
        ok(ctx, all ? tg_model_reset(model) : tg_model_reset_optimizer(model));
        assert_int_equal(tg_model_step_count(model), 0);
        float p = 1;
        for (int t = 1; t <= 5; t++) { /* rates 3/4, 1/2, 1/4, 0, 0 */
            const float now = line_step(model, 1), rate = t < 4 ? 1 - (float)t / 4 : 0;
            if (!(fabsf(p - now - rate) < 1e-6f))
                fail_msg("step %d after the reset: rate %.9g, want %.9g", t, (double)(p - now), (double)rate);
            p = now;
        }
        tg_model_destroy(model);
    }
    tg_context_destroy(ctx);
}

static tg_tensor build_resolved(tg_graph *g, void *user) {
    return tg_resolve_lr(*(const tg_lr *)user, tg_input(g, "t", TG_SCALAR, TG_I32));
}

/* The last step of a warm-up has its peak, whatever follows: on the host, in the step, in a schedule set later, in the trace. */
static void a_warm_up_ends_at_its_own_peak(void **state) {
    (void)state;
    tg_lr schedule = tg_lr_warmup(0.5, 2, tg_lr_linear_decay(0.25, 0, 4));
    static const float rates[] = {0.25f, 0.5f, 0.1875f, 0.125f, 0.0625f, 0, 0};
    tg_context *ctx = support_context();
    tg_model *compiled = compile(ctx, build_line, NULL, tg_sgd(.lr = schedule));
    tg_model *set = compile(ctx, build_line, NULL, tg_sgd(.lr = tg_lr_constant(100)));
    tg_model *traced = tg_compile_forward(ctx, build_resolved, &schedule, NULL);
    assert_non_null(traced);
    ok(ctx, tg_model_set_lr(set, schedule));
    float p = 1, resolved = 0;
    for (int t = 1; t <= SUPPORT_COUNT(rates); t++) {
        const float rate = rates[t - 1], host = (float)tg_lr_value(schedule, t), a = line_step(compiled, 1), b = line_step(set, 1);
        ok(ctx, tg_run(traced, (const tg_feed[]){tg_feed_i32("t", &(const int32_t){t}, 1)}, 1, &resolved, 1));
        if (host != rate || fabsf(resolved - rate) > 1e-6f || fabsf(p - a - rate) > 1e-6f || fabsf(p - b - rate) > 1e-6f)
            fail_msg("step %d: want %.9g; host %.9g, step %.9g, set %.9g, traced %.9g", t, (double)rate, (double)host, (double)(p - a),
                     (double)(p - b), (double)resolved);
        p = a;
    }
    tg_model_destroy(compiled);
    tg_model_destroy(set);
    tg_model_destroy(traced);
    tg_context_destroy(ctx);
}

/* The build function runs again for each model: nothing used up, nothing shared. */
static tg_tensor build_random(tg_graph *g, void *user) {
    (void)user;
    return tg_mean(tg_square(tg_mul(tg_param(g, "w", TG_SHAPE(8), .init = tg_init_randn(1)), in(g, "x", TG_SHAPE(8)))), TG_ALL);
}
static void models_of_one_build_function_are_independent(void **state) {
    (void)state;
    static const float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const tg_feed feed = tg_feed_f32("x", x, 8);
    tg_context *ctx = support_context();
    float start[8], again[8], alone[4], turns[2][4];
    tg_model *first = compile(ctx, build_random, NULL, tg_adam(.lr = tg_lr_constant(0.1)));
    ok(ctx, tg_param_download(first, "w", start, 8));
    for (int i = 0; i < 4; i++) ok(ctx, tg_step(first, &feed, 1, &alone[i]));
    tg_model *second = compile(ctx, build_random, NULL, tg_adam(.lr = tg_lr_constant(0.1)));
    ok(ctx, tg_param_download(second, "w", again, 8));
    assert_memory_equal(start, again, sizeof start);
    ok(ctx, tg_model_reset(first));
    for (int i = 0; i < 4; i++) {
        ok(ctx, tg_step(first, &feed, 1, &turns[0][i]));
        ok(ctx, tg_step(second, &feed, 1, &turns[1][i]));
    }
    assert_memory_equal(alone, turns[0], sizeof alone);
    assert_memory_equal(alone, turns[1], sizeof alone);
    tg_model_destroy(first);
    tg_model_destroy(second);
    tg_context_destroy(ctx);
}

static tg_tensor build_one_of_two(tg_graph *g, void *user) {
    (void)user;
    return tg_param(g, "p", TG_SHAPE(1));
}
static void a_sibling_lists_all_parameters_of_its_parent(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_unused, NULL, tg_sgd(.lr = tg_lr_constant(1)));
    tg_model *sibling = tg_compile_sibling(model, build_one_of_two, NULL);
    assert_non_null(sibling);
    assert_int_equal(tg_model_param_count(sibling), 2);
    expect_param(sibling, "unused", two_numbers, 2, 0);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* The optimiser has laid out the parameters it knows: one more would lie outside. */
static tg_tensor build_param_after_optimizer(tg_graph *g, void *user) {
    const tg_tensor p = tg_param(g, "p", TG_SHAPE(1), .init = tg_init_ones()), loss = tg_sum_all(tg_mul(p, in(g, "g", TG_SHAPE(1))));
    tg_append_optimizer(loss, (const tg_optimizer *)user);
    tg_param(g, "late", TG_SHAPE(2), .frozen = TG_YES);
    return loss;
}
static void a_parameter_made_after_the_optimizer_is_an_error(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_optimizer kinds[] = {tg_sgd(.lr = tg_lr_constant(0.5)), {.kind = TG_OPTIMIZER_NONE}};
    for (int i = 0; i < SUPPORT_COUNT(kinds); i++)
        expect_no_model(ctx, tg_compile(ctx, build_param_after_optimizer, &kinds[i], NULL), TG_ERROR_STATE,
                        "param late: made after the optimizer");
    tg_context_destroy(ctx);
}

/* An index that no operation uses is not an index. */
static tg_tensor build_narrowed_index(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor idx = tg_narrow(tg_input(g, "idx", TG_SHAPE(4), TG_I32), 0, 1, 2);
    return tg_sum_all(tg_embedding(tg_param(g, "w", TG_SHAPE(3, 1), .init = tg_init_ones()), idx));
}
static void a_number_beside_the_indices_may_be_anything(void **state) {
    (void)state;
    static const int32_t good[] = {99, 0, 2, -99}, bad[] = {0, 0, 3, 0};
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_narrowed_index, NULL, tg_sgd(.lr = tg_lr_constant(1)));
    ok(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", good, 4)}, 1, NULL));
    expect_param(model, "w", (const float[]){0, 1, 0}, 3, 0);
    expect_error(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", bad, 4)}, 1, NULL), TG_ERROR_INDEX, "embedding");
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static tg_tensor build_with_a_cache(tg_graph *g, void *user) {
    (void)user;
    return tg_add(tg_param(g, "p", TG_SHAPE(1)), tg_state(g, "cache", TG_SHAPE(1), TG_F32, 5.0));
}
static void a_file_fits_its_model_with_and_without_siblings(void **state) {
    (void)state;
    char path[300];
    tg_context *ctx = support_context();
    float output = 0;
    support_path(path, sizeof path, "kinds.safetensors");
    for (int saver = 0; saver < 2; saver++) {
        tg_model *models[2];
        for (int i = 0; i < 2; i++) models[i] = compile(ctx, build_line, NULL, tg_sgd(.lr = tg_lr_constant(0.5), .momentum = 0.5));
        tg_model *sibling = tg_compile_sibling(models[0], build_with_a_cache, NULL);
        assert_non_null(sibling);
        line_step(models[saver], 1);
        ok(ctx, tg_model_save(models[saver], path));
        ok(ctx, tg_model_load(models[1 - saver], path));
        expect_param(models[1 - saver], "p", (const float[]){0.5f}, 1, 0);
        ok(ctx, tg_run(sibling, NULL, 0, &output, 1));
        assert_true(output == 5.5f);
        for (int i = 0; i < 2; i++) tg_model_destroy(models[i]);
        remove(path);
    }
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- memory, threads, results */

static void the_first_step_allocates_nothing_either(void **state) {
    (void)state;
    support_allocator counts = {0};
    tg_context *ctx = support_context_counting(&counts);
    index_case c = {EMBEDDING, true, false}; /* with a check on a computed index */
    tg_model *model = compile(ctx, build_indexed, &c, tg_adam(.lr = tg_lr_constant(0.1), .clip_norm = 1));
    static const int32_t idx[] = {0, 3, 1}, bad[] = {0, 4, 1};
    const int64_t calls = counts.calls;
    for (int i = 0; i < 3; i++) ok(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", idx, 3)}, 1, NULL));
    expect_error(ctx, tg_step(model, (const tg_feed[]){tg_feed_i32("idx", bad, 3)}, 1, NULL), TG_ERROR_INDEX, "embedding");
    assert_int_equal(counts.calls, calls);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    assert_int_equal(counts.live_blocks, 0);
}

typedef struct small_memory {
    size_t limit, live;
} small_memory;
static void *small_alloc(void *user, size_t size) {
    small_memory *m = user;
    if (size > m->limit - m->live) return NULL;
    void *block = aligned_alloc(64, (size + 63) / 64 * 64);
    if (block != NULL) m->live += size;
    return block;
}
static void small_release(void *user, void *block, size_t size) {
    ((small_memory *)user)->live -= size;
    free(block);
}
static tg_tensor build_wide(tg_graph *g, void *user) { /* softmax rows of a 256 MB outer product */
    (void)user;
    const tg_tensor x = X(8192, 1), w = tg_param(g, "w", TG_SHAPE(1, 8192));
    const tg_tensor y = tg_matmul(tg_tanh(tg_matmul(x, w)), tg_transpose(w, TG_AXES(1, 0)));
    return tg_mean(tg_square(tg_matmul(tg_transpose(tg_exp(tg_matmul(x, w)), TG_AXES(1, 0)), y)), TG_ALL);
}
static void a_model_too_large_for_memory_says_how_much_it_wanted(void **state) {
    (void)state;
    small_memory memory = {64u << 20, 0};
    const tg_allocator allocator = {small_alloc, small_release, &memory};
    const tg_context_options options = {&allocator, NULL, NULL};
    tg_context *ctx = tg_context_create(&options);
    assert_non_null(ctx);
    tg_compile_options o = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    o.device = TG_DEVICE_CPU; /* whose memory is the allocator's */
    expect_no_model(ctx, tg_compile(ctx, build_wide, NULL, &o), TG_ERROR_MEMORY, "bytes");
    tg_model_destroy(compile(ctx, build_line, NULL, o.optimizer)); /* the context lives on */
    tg_context_destroy(ctx);
    assert_int_equal(memory.live, 0);
}

static tg_tensor build_maybe_captured(tg_graph *g, void *user) {
    const bool captured = user != NULL;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(16, 16)), h = tg_matmul(X(8, 16), w), y = tg_tanh(h);
    if (captured) {
        tg_capture("h", h);
        tg_capture("y", y);
        tg_capture("rows", tg_softmax(y, -1)); /* nothing else wants it */
    }
    return tg_mean(tg_square(y), TG_ALL);
}
static void captures_cost_nothing_unless_asked_for(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    int yes = 1;
    tg_model *with = compile(ctx, build_maybe_captured, &yes, tg_sgd(.lr = tg_lr_constant(0.1)));
    tg_model *without = compile(ctx, build_maybe_captured, NULL, tg_sgd(.lr = tg_lr_constant(0.1)));
    tg_model_info a, b;
    ok(ctx, tg_model_get_info(with, &a));
    ok(ctx, tg_model_get_info(without, &b));
    assert_int_equal(a.kernels, b.kernels);
    assert_int_equal(a.workspace_bytes, b.workspace_bytes);
    assert_int_equal(a.peak_bytes, b.peak_bytes);
    tg_model_destroy(with);
    tg_model_destroy(without);
    tg_context_destroy(ctx);
}

static void results_are_written_on_success_only(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *model = compile(ctx, build_line, NULL, tg_sgd(.lr = tg_lr_constant(0.1)));
    float number = 7, two[2] = {7, 7};
    tg_shape shape = TG_SHAPE(9, 9);
    tg_tensor result = {NULL, 77};
    expect_error(ctx, tg_run(model, NULL, 0, &number, 1), TG_ERROR_NOT_FOUND, "g");
    expect_error(ctx, tg_param_download(model, "p", two, 2), TG_ERROR_SHAPE, "p[1]");
    expect_error(ctx, tg_param_download(model, "q", &number, 1), TG_ERROR_NOT_FOUND, "q");
    expect_error(ctx, tg_param_grad_download(model, "p", &number, 1), TG_ERROR_STATE, "step");
    expect_error(ctx, tg_model_param_shape(model, "q", &shape), TG_ERROR_NOT_FOUND, "q");
    edge_fn make = edge_input;
    assert_null(tg_trace(ctx, build_edge, &make, &result));
    assert_true(number == 7 && two[0] == 7 && two[1] == 7 && shape.rank == 2 && shape.dim[0] == 9 && result.id == 77);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void threads_run_from_none_to_the_limit(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_compile_options o = options_with(tg_sgd(.lr = tg_lr_constant(0.1)));
    static const int good[] = {0, 1, 64}, bad[] = {-1, 1025, 2147483647};
    for (int i = 0; i < SUPPORT_COUNT(good); i++) {
        o.threads = good[i];
        tg_model *model = tg_compile(ctx, build_line, NULL, &o);
        if (model == NULL) fail_msg("%d threads: %s", good[i], tg_error_message(ctx));
        line_step(model, 1);
        tg_model_destroy(model);
    }
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        o.threads = bad[i];
        expect_no_model(ctx, tg_compile(ctx, build_line, NULL, &o), TG_ERROR_ARGUMENT, "threads");
    }
    tg_context_destroy(ctx);
}

/* A weight gradient with few rows and columns and a long sum, [64, 262144] x [262144, 64], is work for more than one thread. */
static void a_long_contraction_is_work_for_several_threads(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_arena arena;
    tg_kernel kernel;
    tg_arena_init(&arena, ctx);
    memset(&kernel, 0, sizeof kernel);
    kernel.kind = TG_KERNEL_CONTRACT;
    kernel.name = "gradient";
    kernel.loop_count = 3;
    kernel.outer_count = 2;
    kernel.extent[0] = kernel.extent[1] = 64;
    kernel.extent[2] = 262144;
    kernel.n_begin = 1;
    kernel.a.at.stride[0] = 1; /* x transposed */
    kernel.a.at.stride[2] = 64;
    kernel.b.at.stride[1] = 1;
    kernel.b.at.stride[2] = 64;
    const tg_contraction *c = tg_contraction_make(&arena, &kernel, tg_cpu_isa());
    assert_non_null(c);
    if (tg_contraction_parts(c) < 2) fail_msg("%d parts (%s)", tg_contraction_parts(c), tg_contraction_method(c));
    tg_arena_free(&arena);
    tg_context_destroy(ctx);
}

#define KIND(name) cmocka_unit_test(name)

int main(void) {
    const int refused = support_home_refuses("kinds");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        KIND(names_of_the_library_are_refused),
        KIND(a_call_site_outlives_the_callers_text),
        KIND(an_operation_after_the_trace_is_an_error),
        KIND(failed_gradients_are_poison),
        KIND(sizes_at_the_edge_are_refused),
        KIND(numbers_that_do_not_fit_are_refused),
        KIND(an_index_outside_its_table_is_an_error_wherever_it_comes_from),
        KIND(an_index_computed_from_parameters_stops_the_step_before_it_happens),
        KIND(nan_wins_in_every_minimum_and_maximum),
        KIND(a_clamp_shares_its_gradient_at_the_bounds),
        KIND(a_batch_of_ignored_targets_moves_nothing),
        KIND(a_tied_parameter_decays_once_a_step),
        KIND(moments_of_an_unused_parameter_stay_zero),
        KIND(a_model_of_frozen_parameters_has_zero_gradients),
        KIND(downloaded_gradients_are_those_before_clipping),
        KIND(a_schedule_set_later_survives_both_resets_and_begins_again),
        KIND(a_warm_up_ends_at_its_own_peak),
        KIND(models_of_one_build_function_are_independent),
        KIND(a_sibling_lists_all_parameters_of_its_parent),
        KIND(a_parameter_made_after_the_optimizer_is_an_error),
        KIND(a_number_beside_the_indices_may_be_anything),
        KIND(a_file_fits_its_model_with_and_without_siblings),
        KIND(the_first_step_allocates_nothing_either),
        KIND(a_model_too_large_for_memory_says_how_much_it_wanted),
        KIND(captures_cost_nothing_unless_asked_for),
        KIND(results_are_written_on_success_only),
        KIND(threads_run_from_none_to_the_limit),
        KIND(a_long_contraction_is_work_for_several_threads),
    };
    return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
