/* What tracing builds: the shape and dtype of every operation's result, broadcasting, names of parameters, scopes, tables of
 * the graph, index checks, the life of a trace, failing allocations; and that compositions (softmax, losses, layer norm ...)
 * mean what they say, on the f64 reference. What primitives compute is tested elsewhere. */
#include "support.h"

#include "ir/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

typedef void (*trace_body)(tg_graph *g);

static tg_tensor run_body(tg_graph *g, void *user) {
    trace_body body = *(trace_body *)user;
    body(g);
    assert_int_equal(tg_error(g->ctx), TG_OK);
    return tg_zeros(g, TG_SCALAR);
}

/* Traces the body, which asserts; verifies the graph; checks that nothing is left. */
static void trace_ok(trace_body body) {
    tg_context *ctx = tg_context_create(NULL);
    tg_tensor result = {NULL, 0};
    assert_non_null(ctx);
    tg_graph *g = tg_trace(ctx, run_body, &body, &result);
    assert_string_equal(tg_error_message(ctx), "");
    assert_non_null(g);
    assert_int_equal(g->result, result.id);
    assert_int_equal(tg_graph_verify(g), TG_OK);
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    assert_int_equal(ctx->live_bytes, 0);
    tg_context_destroy(ctx);
}

static void expect_tensor(tg_tensor t, tg_dtype dtype, tg_shape shape, int line) {
    tg_shape got = tg_tensor_shape(t);
    bool good = t.id > 0 && tg_tensor_dtype(t) == dtype && tg_shape_equal(got, shape);
    if (!good) {
        char got_text[TG_SHAPE_TEXT], want_text[TG_SHAPE_TEXT];
        fail_msg("line %d: got %s (dtype %d, id %d), want %s (dtype %d); %s", line, tg_shape_text(got, got_text, sizeof got_text),
                 (int)tg_tensor_dtype(t), (int)t.id, tg_shape_text(shape, want_text, sizeof want_text), (int)dtype,
                 t.graph != NULL ? tg_error_message(t.graph->ctx) : "no graph");
    }
}
#define EXPECT(t, dtype, ...) expect_tensor((t), (dtype), TG_SHAPE(__VA_ARGS__), __LINE__)
#define EXPECT_SCALAR(t, dtype) expect_tensor((t), (dtype), TG_SCALAR, __LINE__)

static tg_tensor f32(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_F32); }
static tg_tensor i32(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_I32); }
static tg_tensor boolean(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_BOOL); }

static int count_op(const tg_graph *g, tg_op op) {
    int count = 0;
    for (int64_t i = 1; i < g->nodes.count; i++) count += g->nodes.items[i].op == op;
    return count;
}

/* ---------------------------------------------------------------- elementwise */

static void body_unary(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3)), n = i32(g, "n", TG_SHAPE(4)), b = boolean(g, "b", TG_SHAPE(5, 1));
    EXPECT(tg_neg(x), TG_F32, 2, 3);
    EXPECT(tg_abs(x), TG_F32, 2, 3);
    EXPECT(tg_sign(x), TG_F32, 2, 3);
    EXPECT(tg_square(x), TG_F32, 2, 3);
    EXPECT(tg_sqrt(x), TG_F32, 2, 3);
    EXPECT(tg_rsqrt(x), TG_F32, 2, 3);
    EXPECT(tg_reciprocal(x), TG_F32, 2, 3);
    EXPECT(tg_exp(x), TG_F32, 2, 3);
    EXPECT(tg_log(x), TG_F32, 2, 3);
    EXPECT(tg_sin(x), TG_F32, 2, 3);
    EXPECT(tg_cos(x), TG_F32, 2, 3);
    EXPECT(tg_tanh(x), TG_F32, 2, 3);
    EXPECT(tg_erf(x), TG_F32, 2, 3);
    EXPECT(tg_sigmoid(x), TG_F32, 2, 3);
    EXPECT(tg_softplus(x), TG_F32, 2, 3);
    EXPECT(tg_silu(x), TG_F32, 2, 3);
    EXPECT(tg_gelu(x), TG_F32, 2, 3);
    EXPECT(tg_gelu_tanh(x), TG_F32, 2, 3);
    EXPECT(tg_relu(x), TG_F32, 2, 3);
    EXPECT(tg_stop_gradient(x), TG_F32, 2, 3);
    EXPECT(tg_clamp(x, -1, 1), TG_F32, 2, 3);
    EXPECT(tg_neg(n), TG_I32, 4);
    EXPECT(tg_abs(n), TG_I32, 4);
    EXPECT(tg_sign(n), TG_I32, 4);
    EXPECT(tg_square(n), TG_I32, 4);
    EXPECT(tg_clamp(n, -1, 1), TG_I32, 4);
    EXPECT(tg_logical_not(b), TG_BOOL, 5, 1);
    assert_int_equal(tg_stop_gradient(n).id, n.id);
    assert_int_equal(tg_stop_gradient(b).id, b.id);
    EXPECT(tg_cast(x, TG_I32), TG_I32, 2, 3);
    EXPECT(tg_cast(x, TG_BOOL), TG_BOOL, 2, 3);
    EXPECT(tg_cast(b, TG_F32), TG_F32, 5, 1);
    assert_int_equal(tg_cast(n, TG_I32).id, n.id);
}

static void test_unary(void **state) {
    (void)state;
    trace_ok(body_unary);
}

static void body_binary(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3)), y = f32(g, "y", TG_SHAPE(3)), n = i32(g, "n", TG_SHAPE(4, 1)),
              m = i32(g, "m", TG_SHAPE(1, 5));
    tg_tensor b = boolean(g, "b", TG_SHAPE(2, 1));
    EXPECT(tg_add(x, y), TG_F32, 2, 3);
    EXPECT(tg_add(x, 1), TG_F32, 2, 3);
    EXPECT(tg_add(1.5, x), TG_F32, 2, 3);
    EXPECT(tg_sub(1, y), TG_F32, 3);
    EXPECT(tg_mul(n, m), TG_I32, 4, 5);
    EXPECT(tg_div(n, 2), TG_I32, 4, 1);
    EXPECT(tg_div(2, n), TG_I32, 4, 1);
    EXPECT(tg_div(x, 0), TG_F32, 2, 3); /* IEEE */
    EXPECT(tg_pow(x, 2), TG_F32, 2, 3);
    EXPECT(tg_pow(2, x), TG_F32, 2, 3);
    EXPECT(tg_minimum(x, y), TG_F32, 2, 3);
    EXPECT(tg_maximum(0, x), TG_F32, 2, 3);
    EXPECT(tg_maximum(n, m), TG_I32, 4, 5);
    EXPECT(tg_less(x, y), TG_BOOL, 2, 3);
    EXPECT(tg_less_equal(n, 3), TG_BOOL, 4, 1);
    EXPECT(tg_greater(0.5, x), TG_BOOL, 2, 3);
    EXPECT(tg_greater_equal(n, m), TG_BOOL, 4, 5);
    EXPECT(tg_equal(b, b), TG_BOOL, 2, 1);
    EXPECT(tg_not_equal(n, m), TG_BOOL, 4, 5);
    EXPECT(tg_logical_and(b, tg_less(x, 1)), TG_BOOL, 2, 3);
    EXPECT(tg_logical_or(b, true), TG_BOOL, 2, 1);
    EXPECT(tg_where(b, x, y), TG_F32, 2, 3);
}

static void body_where(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3)), b = boolean(g, "b", TG_SHAPE(2, 1)), n = i32(g, "n", TG_SHAPE(3));
    EXPECT(tg_where(b, x, 0), TG_F32, 2, 3);
    EXPECT(tg_where(b, 0, x), TG_F32, 2, 3);
    EXPECT(tg_where(b, 1, 0), TG_F32, 2, 1);
    EXPECT(tg_where(b, n, -1), TG_I32, 2, 3);
    EXPECT(tg_where(b, tg_zeros(g, TG_SHAPE(4, 1, 1)), tg_ones(g, TG_SHAPE(7))), TG_F32, 4, 2, 7);
    EXPECT(tg_where(b, b, true), TG_BOOL, 2, 1);
}

static void test_binary(void **state) {
    (void)state;
    trace_ok(body_binary);
    trace_ok(body_where);
}

/* NumPy's rule, both ways round: right-aligned, equal or 1. */
static void body_broadcast(tg_graph *g) {
    static const struct {
        tg_shape a, b, out;
        bool fits;
    } cases[] = {
        {{0, {0}}, {0, {0}}, {0, {0}}, true},
        {{0, {0}}, {1, {4}}, {1, {4}}, true},
        {{1, {1}}, {0, {0}}, {1, {1}}, true},
        {{1, {3}}, {2, {2, 3}}, {2, {2, 3}}, true},
        {{2, {2, 1}}, {1, {3}}, {2, {2, 3}}, true},
        {{3, {2, 1, 3}}, {2, {4, 1}}, {3, {2, 4, 3}}, true},
        {{3, {5, 1, 1}}, {3, {1, 6, 7}}, {3, {5, 6, 7}}, true},
        {{4, {1, 2, 1, 3}}, {4, {4, 1, 5, 1}}, {4, {4, 2, 5, 3}}, true},
        {{8, {1, 1, 1, 1, 1, 1, 1, 2}}, {1, {2}}, {8, {1, 1, 1, 1, 1, 1, 1, 2}}, true},
        {{1, {2}}, {1, {3}}, {0, {0}}, false},
        {{2, {2, 3}}, {1, {2}}, {0, {0}}, false},
        {{2, {2, 3}}, {2, {3, 3}}, {0, {0}}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tg_tensor a = tg_full(g, cases[i].a, 1.0, TG_F32), b = tg_full(g, cases[i].b, 2.0, TG_F32);
        for (int turn = 0; turn < 2; turn++) {
            tg_tensor sum = turn == 0 ? tg_add(a, b) : tg_add(b, a);
            if (cases[i].fits) {
                expect_tensor(sum, TG_F32, cases[i].out, (int)i);
                continue;
            }
            assert_int_equal(sum.id, 0);
            assert_int_equal(tg_error(g->ctx), TG_ERROR_SHAPE);
            tg_clear_error(g->ctx);
        }
    }
}

static void test_broadcast(void **state) {
    (void)state;
    trace_ok(body_broadcast);
}

/* What is no tensor is said where it is used; what follows from an error is not said again. */
#define NO_TENSOR(text, ...) \
  do { \
    const int line = __LINE__; \
    (void)(__VA_ARGS__); \
    if (strcmp(tg_error_message(g->ctx), text) != 0) fail_msg("got %s", tg_error_message(g->ctx)); \
    assert_int_equal(tg_error(g->ctx), TG_ERROR_TRACE); \
    assert_int_equal(tg_error_site(g->ctx).line, line); \
    tg_clear_error(g->ctx); \
  } while (0)
static void body_poison(tg_graph *g) {
    tg_tensor none = {NULL, 0}, poison = {g, 0}, x = f32(g, "x", TG_SHAPE(2, 2)), out = x, parts[2] = {x, none};
    const tg_linear plain = tg_nn_linear(g, "plain", 2, 2, .no_bias = true);
    NO_TENSOR("add: there is no tensor to work on", tg_add(1, 2));
    NO_TENSOR("add: operand 1 is no tensor", tg_add(none, 2));
    NO_TENSOR("add: operand 2 is no tensor", tg_add(x, none));
    NO_TENSOR("add: operand 2 is no tensor", tg_add(x, plain.b));
    NO_TENSOR("concat: operand 2 is no tensor", tg_concat(parts, 2, 0));
    NO_TENSOR("einsum: operand 2 is no tensor", tg_einsum("ij,jk", parts, 2));
    NO_TENSOR("concat: there is no tensor to work on", tg_concat(NULL, 2, 0));
    NO_TENSOR("stack: there is no tensor to work on", tg_stack(&x, 0, 0));
    NO_TENSOR("input: the graph is NULL", tg_input(NULL, "x", TG_SHAPE(1), TG_F32));
    NO_TENSOR("linear: the graph is NULL", tg_nn_linear(NULL, "l", 1, 1).W);
    NO_TENSOR("grad: operand 1 is no tensor", tg_grad(none, &x, 1, &out));
    NO_TENSOR("relu: operand 1 is no tensor", tg_relu(none));
    assert_ptr_equal(tg_add(x, none).graph, g);
    tg_clear_error(g->ctx);
    assert_int_equal(tg_matmul(poison, x).id, 0);
    assert_int_equal(tg_matmul(none, poison).id, 0);
    assert_int_equal(tg_where(poison, 1, 2).id, 0);
    assert_int_equal(tg_capture("c", poison).id, 0);
    tg_writeback(poison, x);
    assert_int_not_equal(tg_grad(poison, &x, 1, &out), TG_OK);
    assert_int_equal(out.id, 0);
    assert_int_equal(tg_tensor_shape(none).rank, 0);
    assert_int_equal(tg_tensor_dtype(poison), TG_F32);
}

static tg_tensor build_kept(tg_graph *g, void *user) {
    tg_tensor *kept = user;
    *kept = f32(g, "x", TG_SHAPE(2));
    return *kept;
}
static tg_tensor build_with_kept(tg_graph *g, void *user) {
    const tg_tensor kept = *(tg_tensor *)user;
    const tg_tensor x = f32(g, "x", TG_SHAPE(2));
    NO_TENSOR("mul: operand 2 is a tensor of a model or graph that was destroyed", tg_mul(x, kept));
    NO_TENSOR("relu: operand 1 is a tensor of a model or graph that was destroyed", tg_relu(kept));
    NO_TENSOR("input: the graph was destroyed", tg_input(kept.graph, "y", TG_SHAPE(2), TG_F32));
    assert_int_equal(tg_tensor_shape(kept).rank, 0);
    return x;
}
static void test_tensors_of_the_dead(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_tensor kept;
    for (int i = 0; i < 20; i++) { /* the memory of the first is used again for the second */
        tg_graph_destroy(tg_trace(ctx, build_kept, &kept, NULL));
        assert_int_equal(tg_relu(kept).id, 0); /* nowhere to record it, and no crash */
        tg_graph *g = tg_trace(ctx, build_with_kept, &kept, NULL);
        assert_non_null(g);
        tg_graph_destroy(g);
    }
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

static void test_poison(void **state) {
    (void)state;
    trace_ok(body_poison);
}

/* ---------------------------------------------------------------- reductions */

static void body_reductions(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3, 4)), n = i32(g, "n", TG_SHAPE(5, 6)), s = f32(g, "s", TG_SCALAR);
    EXPECT_SCALAR(tg_sum(x, TG_ALL), TG_F32);
    EXPECT(tg_sum(x, TG_ALL, .keepdims = true), TG_F32, 1, 1, 1);
    EXPECT(tg_sum(x, TG_AXES(1)), TG_F32, 2, 4);
    EXPECT(tg_sum(x, TG_AXES(-1, 0)), TG_F32, 3);
    EXPECT(tg_sum(x, TG_AXES(0, 2), .keepdims = true), TG_F32, 1, 3, 1);
    EXPECT(tg_mean(x, TG_AXES(-1)), TG_F32, 2, 3);
    EXPECT(tg_mean_last(x), TG_F32, 2, 3, 1);
    EXPECT(tg_sum_last(x), TG_F32, 2, 3);
    EXPECT_SCALAR(tg_sum_all(x), TG_F32);
    EXPECT(tg_max(x, TG_AXES(1)), TG_F32, 2, 4);
    EXPECT(tg_min(n, TG_AXES(0)), TG_I32, 6);
    EXPECT(tg_sum(n, TG_AXES(1)), TG_I32, 5);
    EXPECT(tg_argmax(x, 1), TG_I32, 2, 4);
    EXPECT(tg_argmax(n, -1, .keepdims = true), TG_I32, 5, 1);
    EXPECT(tg_argmin(x, 0), TG_I32, 3, 4);
    EXPECT_SCALAR(tg_sum(s, TG_ALL), TG_F32);
    EXPECT_SCALAR(tg_mean(s, TG_ALL), TG_F32);
    EXPECT_SCALAR(tg_max(s, TG_ALL, .keepdims = true), TG_F32);
}

static void test_reductions(void **state) {
    (void)state;
    trace_ok(body_reductions);
}

/* ---------------------------------------------------------------- views */

static void body_views(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3, 4)), n = i32(g, "n", TG_SHAPE(6));
    EXPECT(tg_reshape(x, TG_SHAPE(6, 4)), TG_F32, 6, 4);
    EXPECT(tg_reshape(x, TG_SHAPE(-1)), TG_F32, 24);
    EXPECT(tg_reshape(x, TG_SHAPE(4, -1, 2)), TG_F32, 4, 3, 2);
    EXPECT(tg_reshape(x, TG_SHAPE(24, -1)), TG_F32, 24, 1);
    EXPECT_SCALAR(tg_reshape(tg_ones(g, TG_SHAPE(1, 1)), TG_SCALAR), TG_F32);
    EXPECT(tg_reshape(n, TG_SHAPE(2, 3)), TG_I32, 2, 3);
    EXPECT(tg_transpose(x, TG_AXES(2, 0, 1)), TG_F32, 4, 2, 3);
    EXPECT(tg_transpose(x, TG_AXES(-1, -2, -3)), TG_F32, 4, 3, 2);
    EXPECT(tg_swap_axes(x, 0, -1), TG_F32, 4, 3, 2);
    EXPECT(tg_swap_axes(x, 1, 1), TG_F32, 2, 3, 4);
    EXPECT(tg_broadcast_to(n, TG_SHAPE(2, 6)), TG_I32, 2, 6);
    EXPECT(tg_broadcast_to(tg_zeros(g, TG_SHAPE(3, 1)), TG_SHAPE(5, 3, 2)), TG_F32, 5, 3, 2);
    EXPECT(tg_slice_last_range(x, 1, 3), TG_F32, 2, 3, 2);
    EXPECT(tg_narrow(x, 1, 2, 1), TG_F32, 2, 1, 4);
    EXPECT(tg_narrow(x, -3, 0, 2), TG_F32, 2, 3, 4);
    tg_tensor parts[3] = {x, tg_zeros(g, TG_SHAPE(2, 5, 4)), x};
    EXPECT(tg_concat(parts, 3, 1), TG_F32, 2, 11, 4);
    EXPECT(tg_concat(parts, 1, -1), TG_F32, 2, 3, 4);
    parts[1] = x;
    EXPECT(tg_stack(parts, 3, 0), TG_F32, 3, 2, 3, 4);
    EXPECT(tg_stack(parts, 2, -1), TG_F32, 2, 3, 4, 2);
    EXPECT(tg_stack(parts, 1, 1), TG_F32, 2, 1, 3, 4);
    tg_tensor scalars[2] = {tg_zeros(g, TG_SCALAR), tg_ones(g, TG_SCALAR)};
    EXPECT(tg_stack(scalars, 2, 0), TG_F32, 2);
}

static void test_views(void **state) {
    (void)state;
    trace_ok(body_views);
}

/* ---------------------------------------------------------------- contractions */

static void body_contractions(tg_graph *g) {
    tg_tensor w = f32(g, "w", TG_SHAPE(4, 5));
    EXPECT(tg_matmul(f32(g, "a", TG_SHAPE(3, 4)), w), TG_F32, 3, 5);
    EXPECT(tg_matmul(f32(g, "b", TG_SHAPE(6, 7, 3, 4)), w), TG_F32, 6, 7, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "c", TG_SHAPE(6, 3, 4)), f32(g, "d", TG_SHAPE(6, 4, 5))), TG_F32, 6, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "e", TG_SHAPE(2, 1, 3, 4)), f32(g, "f", TG_SHAPE(6, 4, 5))), TG_F32, 2, 6, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "h", TG_SHAPE(1, 3, 1)), f32(g, "i", TG_SHAPE(2, 1, 5))), TG_F32, 2, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "j", TG_SHAPE(2, 3, 1)), f32(g, "k", TG_SHAPE(1, 1, 5))), TG_F32, 2, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "l", TG_SHAPE(3, 4)), w), TG_F32, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "m", TG_SHAPE(7, 3, 4)), w), TG_F32, 7, 3, 5);
    EXPECT(tg_matmul_batched(f32(g, "o", TG_SHAPE(3, 4)), f32(g, "p", TG_SHAPE(1, 1, 4, 5))), TG_F32, 1, 1, 3, 5);
}

/* A right side shared by all batches is contracted once over all rows: its gradient is never one matrix per batch. */
static void body_shared_right(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(512, 16, 384)), w = f32(g, "w", TG_SHAPE(384, 24)), one = f32(g, "one", TG_SHAPE(1, 384, 24));
    int before = (int)g->nodes.count;
    tg_matmul(x, w);
    tg_matmul_batched(x, w);
    tg_matmul_batched(x, one);
    assert_int_equal(count_op(g, TG_OP_CONTRACT), 3);
    assert_int_equal(count_op(g, TG_OP_BROADCAST), 0);
    for (int64_t i = before; i < g->nodes.count; i++) {
        const tg_node *node = &g->nodes.items[i];
        if (node->op != TG_OP_CONTRACT) continue;
        assert_true(tg_shape_equal(node->shape, TG_SHAPE(1, 512 * 16, 24)));
    }
}

static void body_indexing(tg_graph *g) {
    tg_tensor table = f32(g, "table", TG_SHAPE(12, 8)), idx = i32(g, "idx", TG_SHAPE(3, 5)), one = i32(g, "one", TG_SCALAR);
    EXPECT(tg_embedding(table, idx), TG_F32, 3, 5, 8);
    EXPECT(tg_embedding(table, one), TG_F32, 8);
    EXPECT(tg_one_hot(idx, 7, TG_F32), TG_F32, 3, 5, 7);
    EXPECT(tg_one_hot(idx, 7, TG_BOOL), TG_BOOL, 3, 5, 7);
    EXPECT(tg_one_hot(one, 1, TG_I32), TG_I32, 1);
    EXPECT(tg_nn_cross_entropy_last(f32(g, "z", TG_SHAPE(3, 5, 9)), idx), TG_F32, 3, 5);
    EXPECT_SCALAR(tg_nn_cross_entropy(f32(g, "y", TG_SHAPE(3, 5, 9)), idx, -7), TG_F32);
    static const struct {
        int64_t hi;
        bool has_ignore;
        int32_t ignore;
        const char *op;
    } want[] = {
        {12, false, 0, "embedding"}, {12, false, 0, "embedding"},         {7, false, 0, "one_hot"},       {7, false, 0, "one_hot"},
        {1, false, 0, "one_hot"},    {9, false, 0, "cross_entropy_last"}, {9, true, -7, "cross_entropy"},
    };
    assert_int_equal(g->checks.count, 7);
    for (int i = 0; i < 7; i++) {
        const tg_index_check *check = &g->checks.items[i];
        assert_int_equal(check->lo, 0);
        assert_int_equal(check->hi, want[i].hi);
        assert_int_equal(check->has_ignore, want[i].has_ignore);
        if (want[i].has_ignore) assert_int_equal(check->ignore, want[i].ignore);
        assert_string_equal(check->op, want[i].op);
        assert_int_equal(check->node, i == 1 || i == 4 ? one.id : idx.id);
        assert_string_equal(check->site.file, __FILE__);
    }
    assert_int_equal(count_op(g, TG_OP_GATHER), 2);
    assert_int_equal(count_op(g, TG_OP_CONTRACT), 0); /* never a one-hot product */
}

static void test_contractions(void **state) {
    (void)state;
    trace_ok(body_contractions);
    trace_ok(body_shared_right);
}

static void test_indexing(void **state) {
    (void)state;
    trace_ok(body_indexing);
}

/* ---------------------------------------------------------------- softmax, layers, losses */

static void body_softmax(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3, 4)), square = f32(g, "s", TG_SHAPE(2, 5, 5)), n = i32(g, "n", TG_SHAPE(3, 3));
    EXPECT(tg_softmax(x, 1), TG_F32, 2, 3, 4);
    EXPECT(tg_log_softmax(x, -1), TG_F32, 2, 3, 4);
    EXPECT(tg_log_softmax_last(x), TG_F32, 2, 3, 4);
    EXPECT(tg_logsumexp(x, 0), TG_F32, 3, 4);
    EXPECT(tg_softmax_causal_last(square), TG_F32, 2, 5, 5);
    EXPECT(tg_where_causal(square, -1e9), TG_F32, 2, 5, 5);
    EXPECT(tg_where_causal(n, -3), TG_I32, 3, 3);
    EXPECT(tg_softmax_causal_last(f32(g, "one", TG_SHAPE(1, 1))), TG_F32, 1, 1);
    assert_int_equal(count_op(g, TG_OP_REDUCE_MAX), count_op(g, TG_OP_STOP_GRADIENT)); /* every maximum is cut off */
}

static void body_random(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3)), p = f32(g, "p", TG_SHAPE(3));
    EXPECT(tg_rand(g, TG_SHAPE(2, 3, 4)), TG_F32, 2, 3, 4);
    EXPECT_SCALAR(tg_rand(g, TG_SCALAR), TG_F32);
    EXPECT(tg_randn(g, TG_SHAPE(5)), TG_F32, 5);
    EXPECT(tg_rand_int(g, TG_SHAPE(5, 2), -3, 4), TG_I32, 5, 2);
    EXPECT(tg_rand_int(g, TG_SHAPE(2), 0, INT64_C(1) << 31), TG_I32, 2);
    EXPECT(tg_rand_int(g, TG_SHAPE(2), INT32_MIN, 0), TG_I32, 2);
    EXPECT(tg_bernoulli(g, TG_SHAPE(4), 0.5), TG_BOOL, 4);
    EXPECT(tg_bernoulli(g, TG_SHAPE(2, 3), p), TG_BOOL, 2, 3);
    EXPECT(tg_bernoulli(g, TG_SHAPE(2, 3), x), TG_BOOL, 2, 3);
    EXPECT(tg_categorical(x, -1), TG_I32, 2);
    EXPECT(tg_categorical(x, 0), TG_I32, 3);
    EXPECT_SCALAR(tg_categorical(p, 0), TG_I32);
    EXPECT(tg_dropout(x, 0.5), TG_F32, 2, 3);
    const int draws = count_op(g, TG_OP_RANDOM);
    assert_int_equal(tg_dropout(x, 0).id, x.id); /* B23: the identity, and nothing drawn */
    assert_int_equal(count_op(g, TG_OP_RANDOM), draws);
    assert_int_equal(g->states.count, 1);
    assert_int_equal(g->writebacks.count, 1);
}

static void body_layers(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3, 4)), row = f32(g, "row", TG_SHAPE(4)), y = f32(g, "y", TG_SHAPE(2, 3, 4));
    tg_linear with = tg_nn_linear(g, "with", 4, 6), without = tg_nn_linear(g, "without", 4, 6, .no_bias = true);
    EXPECT(with.W, TG_F32, 4, 6);
    EXPECT(with.b, TG_F32, 6);
    assert_true(with.has_bias);
    assert_false(without.has_bias);
    assert_int_equal(without.b.id, 0);
    EXPECT(tg_nn_linear_fwd(with, x), TG_F32, 2, 3, 6);
    EXPECT(tg_nn_linear_fwd(without, x), TG_F32, 2, 3, 6);
    EXPECT(tg_nn_linear_fwd(with, row), TG_F32, 6);
    tg_layer_norm norm = tg_nn_layer_norm(g, "norm", 4), loose = tg_nn_layer_norm(g, "loose", 4, .eps = 0.1);
    assert_true(norm.eps > 0.99e-5 && norm.eps < 1.01e-5);
    assert_true(loose.eps > 0.09);
    EXPECT(tg_nn_layer_norm_fwd(norm, x), TG_F32, 2, 3, 4);
    EXPECT(tg_nn_layer_norm_fwd(loose, row), TG_F32, 4);
    EXPECT(tg_nn_split_heads(x, 2), TG_F32, 2, 2, 3, 2);
    EXPECT(tg_nn_merge_heads(tg_nn_split_heads(x, 2)), TG_F32, 2, 3, 4);
    EXPECT(tg_nn_split_heads(tg_reshape(x, TG_SHAPE(6, 4)), 2), TG_F32, 2, 6, 2);
    EXPECT(tg_nn_split_heads(tg_reshape(x, TG_SHAPE(2, 3, 1, 4)), 4), TG_F32, 2, 3, 4, 1, 1);
    EXPECT(tg_nn_merge_heads(tg_reshape(x, TG_SHAPE(2, 3, 4))), TG_F32, 3, 8);
    EXPECT(tg_nn_merge_heads(tg_reshape(x, TG_SHAPE(1, 2, 3, 2, 2))), TG_F32, 1, 2, 2, 6);
    tg_tensor image = tg_input(g, "image", TG_SHAPE(2, 4, 9, 7), TG_F32), line = tg_input(g, "line", TG_SHAPE(2, 4, 9), TG_F32);
    tg_conv conv = tg_nn_conv2d(g, "conv", 4, 6, 3, 2, .groups = 2, .stride = {2}), line_conv = tg_nn_conv1d(g, "line_conv", 4, 6, 3);
    tg_conv back = tg_nn_conv_transpose2d(g, "back", 4, 6, 3, 2, .stride = {2, 1}, .output_padding = {1, 0}, .no_bias = true);
    EXPECT(conv.W, TG_F32, 6, 2, 3, 2);
    EXPECT(conv.b, TG_F32, 6);
    EXPECT(back.W, TG_F32, 4, 6, 3, 2);
    EXPECT(tg_nn_conv2d_fwd(conv, image), TG_F32, 2, 6, 4, 3);
    EXPECT(tg_nn_conv1d_fwd(line_conv, line), TG_F32, 2, 6, 7);
    EXPECT(tg_nn_conv_transpose2d_fwd(back, image), TG_F32, 2, 6, 20, 8);
    EXPECT(tg_conv2d(image, conv.W, .groups = 2, .padding = tg_padding_same()), TG_F32, 2, 6, 9, 7);
    EXPECT(tg_conv2d(image, conv.W, .groups = 2, .padding = tg_padding_sides(0, 2, 1, 0), .dilation = {3, 1}), TG_F32, 2, 6, 5, 7);
    EXPECT(tg_max_pool2d(image, 2, 3), TG_F32, 2, 4, 4, 2);
    EXPECT(tg_max_pool2d(image, 2, 3, .ceil_mode = true), TG_F32, 2, 4, 5, 3);
    EXPECT(tg_avg_pool1d(line, 3, .stride = {2}, .padding = tg_padding_all(1)), TG_F32, 2, 4, 5);
    EXPECT(tg_global_max_pool(image), TG_F32, 2, 4);
    EXPECT(tg_upsample_nearest(image), TG_F32, 2, 4, 18, 14);
    EXPECT(tg_upsample_bilinear(line, .factor = {3}), TG_F32, 2, 4, 27);
    EXPECT_SCALAR(tg_nn_mse(x, y), TG_F32);
    EXPECT_SCALAR(tg_nn_bce_with_logits(x, y), TG_F32);
    EXPECT_SCALAR(tg_nn_mse(tg_zeros(g, TG_SCALAR), tg_ones(g, TG_SCALAR)), TG_F32);
    EXPECT_SCALAR(tg_nn_cross_entropy_last(row, tg_full(g, TG_SCALAR, 2, TG_I32)), TG_F32);
    EXPECT_SCALAR(tg_nn_cross_entropy(row, tg_full(g, TG_SCALAR, 2, TG_I32), -1), TG_F32);
}

static void test_random(void **state) {
    (void)state;
    trace_ok(body_random);
}

static void test_softmax(void **state) {
    (void)state;
    trace_ok(body_softmax);
}

static void test_layers(void **state) {
    (void)state;
    trace_ok(body_layers);
}

/* ---------------------------------------------------------------- leaves and their tables */

static void expect_param(const tg_graph *g, int64_t i, const char *name, tg_init_kind kind, double scale, bool decay, bool frozen) {
    assert_true(i < g->params.count);
    const tg_param_info *param = &g->params.items[i];
    assert_string_equal(param->name, name);
    assert_int_equal(param->init.kind, kind);
    assert_true(param->init.scale > scale - 1e-9 && param->init.scale < scale + 1e-9);
    assert_int_equal(param->decay, decay);
    assert_int_equal(param->frozen, frozen);
    const tg_node *node = &g->nodes.items[param->node];
    assert_int_equal(node->op, TG_OP_PARAM);
    assert_int_equal(node->attr.leaf, i);
    assert_true(tg_shape_equal(node->shape, param->shape));
}

static void body_params(tg_graph *g) {
    float data[3] = {1, 2, 3};
    tg_param(g, "a", TG_SHAPE(3));
    tg_scope_push(g, "block");
    tg_param(g, "a", TG_SHAPE(3), .init = tg_init_zeros());
    tg_scope_pushf(g, "layers.%d", 7);
    tg_param(g, "a", TG_SHAPE(3), .init = tg_init_ones());
    tg_nn_linear(g, "q", 2, 5);
    tg_nn_layer_norm(g, "ln", 2);
    tg_scope_pop(g);
    tg_param(g, "k", TG_SHAPE(3, 4), .init = tg_init_kaiming(0), .decay = TG_NO);
    tg_scope_pop(g);
    tg_param(g, "u", TG_SHAPE(3), .init = tg_init_uniform(0.5), .frozen = TG_YES);
    tg_param(g, "l", TG_SHAPE(3), .init = tg_init_literal(data, 3));
    tg_param(g, "z", TG_SHAPE(3), .init = tg_init_zeros(), .decay = TG_YES);
    tg_nn_linear(g, "r", 2, 5, .init = tg_init_randn(0), .no_bias = true);
    tg_nn_linear(g, "k", 2, 5, .init = tg_init_kaiming(1), .no_bias = true);
    data[0] = 9; /* the literal was copied */
    const double root = 1.4142135623730951;
    expect_param(g, 0, "a", TG_INIT_RANDN, 0.02, true, false);
    expect_param(g, 1, "block.a", TG_INIT_ZEROS, 0, false, false);
    expect_param(g, 2, "block.layers.7.a", TG_INIT_ONES, 0, false, false);
    expect_param(g, 3, "block.layers.7.q.W", TG_INIT_KAIMING, root, true, false);
    expect_param(g, 4, "block.layers.7.q.b", TG_INIT_ZEROS, 0, false, false);
    expect_param(g, 5, "block.layers.7.ln.g", TG_INIT_ONES, 0, false, false);
    expect_param(g, 6, "block.layers.7.ln.b", TG_INIT_ZEROS, 0, false, false);
    expect_param(g, 7, "block.k", TG_INIT_KAIMING, root, false, false);
    expect_param(g, 8, "u", TG_INIT_UNIFORM, 0.5, true, true);
    expect_param(g, 9, "l", TG_INIT_LITERAL, 0, true, false);
    expect_param(g, 10, "z", TG_INIT_ZEROS, 0, true, false);
    expect_param(g, 11, "r.W", TG_INIT_RANDN, 0.02, true, false);
    expect_param(g, 12, "k.W", TG_INIT_KAIMING, 1, true, false);
    assert_int_equal(g->params.count, 13);
    assert_true(g->params.items[9].init.data[0] == 1.0f);
}

static void test_params(void **state) {
    (void)state;
    trace_ok(body_params);
}

static void body_leaves(tg_graph *g) {
    static const int32_t numbers[4] = {1, -2, 3, 4};
    static const uint8_t flags[2] = {1, 0};
    EXPECT(tg_input(g, "b", TG_SHAPE(2, 2), TG_BOOL), TG_BOOL, 2, 2);
    EXPECT_SCALAR(tg_state(g, "b", TG_SCALAR, TG_I32, 3), TG_I32); /* inputs and states have names of their own */
    EXPECT(tg_full(g, TG_SHAPE(3), 2.5, TG_F32), TG_F32, 3);
    EXPECT(tg_zeros(g, TG_SHAPE(3)), TG_F32, 3);
    EXPECT(tg_arange(g, 5, TG_I32), TG_I32, 5);
    EXPECT(tg_arange(g, 1, TG_F32), TG_F32, 1);
    EXPECT(tg_constant(g, TG_SHAPE(2, 2), TG_I32, numbers, 4), TG_I32, 2, 2);
    EXPECT(tg_constant(g, TG_SHAPE(2), TG_BOOL, flags, 2), TG_BOOL, 2);
    EXPECT(tg_full(g, TG_SHAPE(2), 0.1, TG_F32), TG_F32, 2);
    assert_true(g->nodes.items[g->nodes.count - 1].attr.value == (double)0.1f); /* the oracle computes with what devices hold */
    assert_int_equal(g->inputs.count, 1);
    assert_int_equal(g->states.count, 1);
    assert_string_equal(g->states.items[0].name, "b");
    assert_true(g->states.items[0].value == 3.0);
    assert_int_equal(g->states.items[0].dtype, TG_I32);
}

static void body_writebacks(tg_graph *g) {
    tg_tensor p = tg_param(g, "p", TG_SHAPE(3)), s = tg_state(g, "s", TG_SCALAR, TG_I32, 0);
    tg_writeback(p, tg_mul(p, 2));
    tg_writeback(s, tg_add(s, 1));
    assert_int_equal(g->writebacks.count, 2);
    assert_int_equal(g->writebacks.items[0].destination, p.id);
    assert_int_equal(g->writebacks.items[1].destination, s.id);
    assert_string_equal(g->writebacks.items[1].site.file, __FILE__);
}

/* A capture returns its tensor; messages then call the tensor by that name. Inputs keep their own. */
static void body_captures(tg_graph *g) {
    char text[256];
    tg_tensor x = f32(g, "x", TG_SHAPE(2)), y = tg_softmax(x, 0);
    assert_string_equal(tg_node_text(g, y.id, text, sizeof text), "softmax[2]");
    assert_int_equal(tg_capture("weights", y).id, y.id);
    assert_int_equal(tg_capture("input", x).id, x.id);
    assert_int_equal(g->captures.count, 2);
    assert_string_equal(g->captures.items[0].name, "weights");
    assert_int_equal(g->captures.items[0].node, y.id);
    assert_string_equal(tg_node_text(g, y.id, text, sizeof text), "weights[2]");
    assert_string_equal(tg_node_text(g, x.id, text, sizeof text), "x[2]");
}

static void test_leaves(void **state) {
    (void)state;
    trace_ok(body_leaves);
    trace_ok(body_writebacks);
    trace_ok(body_captures);
}

/* Sites: every node of a composition carries the user's line, and the file's name outlives the caller's text. */
static void body_sites(tg_graph *g) {
    char file[16];
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3));
    strcpy(file, "page.ts");
    int64_t before = g->nodes.count;
    tg_softmax_at(tg_site_make(file, 42), x, 1);
    strcpy(file, "gone");
    assert_string_equal(g->current_site.file, "page.ts"); /* passes and gradients go on using it */
    assert_true(g->nodes.count > before + 3);
    for (int64_t i = before; i < g->nodes.count; i++) {
        assert_int_equal(g->nodes.items[i].site.line, 42);
        assert_string_equal(g->nodes.items[i].site.file, "page.ts");
    }
}

static void test_sites(void **state) {
    (void)state;
    trace_ok(body_sites);
}

/* ---------------------------------------------------------------- gradients */

static void body_gradients(tg_graph *g) {
    tg_tensor x = f32(g, "x", TG_SHAPE(2, 3)), w = tg_param(g, "w", TG_SHAPE(3, 4)), unused = tg_param(g, "u", TG_SHAPE(5));
    tg_tensor y = tg_tanh(tg_matmul(x, w)), loss = tg_mean(tg_square(y), TG_ALL);
    tg_tensor wrt[3] = {x, w, unused}, out[3], second[1];
    assert_int_equal(tg_grad(loss, wrt, 3, out), TG_OK);
    EXPECT(out[0], TG_F32, 2, 3);
    EXPECT(out[1], TG_F32, 3, 4);
    EXPECT(out[2], TG_F32, 5);
    tg_tensor norm = tg_sum_all(tg_square(out[0]));
    assert_int_equal(tg_grad(norm, &w, 1, second), TG_OK); /* a gradient of a gradient */
    EXPECT(second[0], TG_F32, 3, 4);
    assert_int_equal(tg_vjp(y, tg_ones(g, TG_SHAPE(2, 4)), wrt, 2, out), TG_OK);
    EXPECT(out[1], TG_F32, 3, 4);
    assert_int_equal(tg_grad(loss, NULL, 0, NULL), TG_OK);
}

static void test_gradients(void **state) {
    (void)state;
    trace_ok(body_gradients);
}

/* ---------------------------------------------------------------- what compositions mean */

/* Values that the reference must give once the trace is done; every leaf of these traces is a constant. */
typedef struct wanted {
    int32_t id;
    int line, count;
    double values[32];
} wanted;
static wanted wants[64];
static int want_count;

static void want_values(tg_tensor t, int line, int count, const double *values) {
    assert_true(want_count < 64 && count <= 32);
    wanted *want = &wants[want_count++];
    want->id = t.id;
    want->line = line;
    want->count = count;
    memcpy(want->values, values, (size_t)count * sizeof *values);
}
#define WANT(t, ...) want_values((t), __LINE__, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (const double[]){__VA_ARGS__})

static tg_tensor given(tg_graph *g, tg_shape shape, const double *values) {
    float data[64];
    int64_t count = tg_shape_count(shape);
    assert_true(count >= 1 && count <= 64);
    for (int64_t i = 0; i < count; i++) data[i] = (float)values[i];
    return tg_constant(g, shape, TG_F32, data, count);
}
#define GIVEN(shape, ...) given(g, (shape), (const double[]){__VA_ARGS__})
#define INTEGERS(...) \
  tg_constant(g, TG_SHAPE((int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / 4)), TG_I32, ((const int32_t[]){__VA_ARGS__}), \
              (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / 4))

static tg_tensor vjp_of(tg_graph *g, tg_tensor y, tg_tensor cotangent, tg_tensor x) {
    tg_tensor out = {g, 0};
    assert_int_equal(tg_vjp(y, cotangent, &x, 1, &out), TG_OK);
    return out;
}

static void trace_values(trace_body body) {
    tg_context *ctx = tg_context_create(NULL);
    want_count = 0;
    tg_graph *g = tg_trace(ctx, run_body, &body, NULL);
    assert_string_equal(tg_error_message(ctx), "");
    const double **leaves = calloc((size_t)g->nodes.count, sizeof *leaves);
    tg_reference *reference = tg_reference_run(g, leaves);
    assert_non_null(reference);
    for (int i = 0; i < want_count; i++) {
        const double *got = tg_reference_value(reference, wants[i].id);
        assert_int_equal(tg_shape_count(g->nodes.items[wants[i].id].shape), wants[i].count);
        for (int k = 0; k < wants[i].count; k++) {
            double want = wants[i].values[k];
            bool close = isnan(want) ? isnan(got[k]) : fabs(got[k] - want) <= 2e-7 + 1e-6 * fabs(want);
            if (!close) fail_msg("line %d, element %d: got %.9g, want %.9g", wants[i].line, k, got[k], want);
        }
    }
    tg_reference_destroy(reference);
    free(leaves);
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

static void values_elementwise(tg_graph *g) {
    tg_tensor x = GIVEN(TG_SHAPE(4), -2, -0.5, 0, 1), nan = GIVEN(TG_SHAPE(3), NAN, -5, 5), n = INTEGERS(7, -7, 8);
    WANT(tg_square(x), 4, 0.25, 0, 1);
    WANT(tg_silu(x), -0.2384058, -0.1887703, 0, 0.7310586);
    WANT(tg_gelu(x), -0.0455003, -0.1542688, 0, 0.8413447);
    WANT(tg_gelu_tanh(x), -0.0454023, -0.1542860, 0, 0.8411920);
    WANT(tg_clamp(nan, -1, 2), NAN, -1, 2);
    WANT(tg_clamp(n, -3, 7), 7, -3, 7);
    WANT(tg_div(n, 2), 3, -3, 4);
    WANT(tg_sub(1, x), 3, 1.5, 1, 0);
    WANT(tg_div(1, GIVEN(TG_SHAPE(2), 2, -4)), 0.5, -0.25);
    WANT(tg_greater(x, -0.5), 0, 0, 1, 1);
    WANT(tg_greater_equal(x, -0.5), 0, 1, 1, 1);
    WANT(tg_greater(0, x), 1, 1, 0, 0);
    WANT(tg_greater(nan, 0), 0, 0, 1);
    WANT(tg_greater_equal(nan, 0), 0, 0, 1);
    WANT(tg_where(tg_less(x, 0), x, 9), -2, -0.5, 9, 9);
    tg_tensor gate = GIVEN(TG_SHAPE(4), 1, -1, 2, 3);
    WANT(vjp_of(g, tg_clamp(x, -1, 0.5), gate, x), 0, -1, 2, 0);
    WANT(vjp_of(g, tg_square(x), gate, x), -4, 1, 0, 6);
}

static void values_reductions(tg_graph *g) {
    tg_tensor x = GIVEN(TG_SHAPE(2, 3), 1, 2, 6, -1, 0, 4);
    WANT(tg_mean(x, TG_AXES(-1)), 3, 1);
    WANT(tg_mean(x, TG_ALL), 2);
    WANT(tg_mean_last(x), 3, 1);
    WANT(tg_sum(x, TG_AXES(0)), 0, 2, 10);
    WANT(tg_max(x, TG_AXES(1)), 6, 4);
    WANT(tg_argmax(x, 1), 2, 2);
    WANT(tg_argmin(x, 0), 1, 1, 1);
    WANT(vjp_of(g, tg_mean(x, TG_AXES(1)), GIVEN(TG_SHAPE(2), 3, -6), x), 1, 1, 1, -2, -2, -2);
}

static void values_views(tg_graph *g) {
    tg_tensor x = GIVEN(TG_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), parts[2] = {x, GIVEN(TG_SHAPE(2, 1), 7, 8)}, pair[2];
    WANT(tg_transpose(x, TG_AXES(1, 0)), 1, 4, 2, 5, 3, 6);
    WANT(tg_swap_axes(x, 0, -1), 1, 4, 2, 5, 3, 6);
    WANT(tg_slice_last_range(x, 1, 3), 2, 3, 5, 6);
    WANT(tg_narrow(x, 0, 1, 1), 4, 5, 6);
    WANT(tg_concat(parts, 2, 1), 1, 2, 3, 7, 4, 5, 6, 8);
    pair[0] = tg_narrow(x, 0, 0, 1);
    pair[1] = tg_narrow(x, 0, 1, 1);
    WANT(tg_stack(pair, 2, 2), 1, 4, 2, 5, 3, 6);
    WANT(tg_stack(pair, 2, 0), 1, 2, 3, 4, 5, 6);
    WANT(tg_nn_split_heads(tg_reshape(x, TG_SHAPE(1, 3, 2)), 2), 1, 3, 5, 2, 4, 6);
    WANT(tg_nn_merge_heads(tg_reshape(x, TG_SHAPE(1, 2, 3, 1))), 1, 4, 2, 5, 3, 6);
    WANT(tg_nn_split_heads(tg_reshape(x, TG_SHAPE(3, 2)), 2), 1, 3, 5, 2, 4, 6);
    WANT(tg_nn_merge_heads(tg_reshape(x, TG_SHAPE(2, 3, 1))), 1, 4, 2, 5, 3, 6);
    WANT(tg_nn_split_heads(tg_reshape(x, TG_SHAPE(1, 1, 3, 2)), 2), 1, 3, 5, 2, 4, 6);
    WANT(tg_nn_merge_heads(tg_reshape(x, TG_SHAPE(1, 1, 2, 3, 1))), 1, 4, 2, 5, 3, 6);
}

static void values_products(tg_graph *g) {
    tg_tensor a = GIVEN(TG_SHAPE(1, 3, 1), 1, 2, 3), b = GIVEN(TG_SHAPE(2, 1, 2), 1, -1, 2, 0.5);
    WANT(tg_matmul_batched(a, b), 1, -1, 2, -2, 3, -3, 2, 0.5, 4, 1, 6, 1.5);
    tg_tensor x = GIVEN(TG_SHAPE(2, 1, 2), 1, 2, 3, 4), w = GIVEN(TG_SHAPE(2, 2), 1, 10, 100, 1000);
    WANT(tg_matmul(x, w), 201, 2010, 403, 4030);
    WANT(tg_matmul_batched(x, tg_reshape(w, TG_SHAPE(1, 2, 2))), 201, 2010, 403, 4030);
    WANT(tg_matmul_batched(x, tg_reshape(w, TG_SHAPE(2, 2, 1))), 21, 4300);
    WANT(vjp_of(g, tg_matmul(x, w), GIVEN(TG_SHAPE(2, 1, 2), 1, 0, 0, 1), w), 1, 3, 2, 4);
    tg_linear layer = {w, GIVEN(TG_SHAPE(2), 0.5, -0.5), true};
    WANT(tg_nn_linear_fwd(layer, x), 201.5, 2009.5, 403.5, 4029.5);
    tg_tensor table = GIVEN(TG_SHAPE(3, 2), 1, 2, 3, 4, 5, 6), rows = INTEGERS(2, 0, 2);
    WANT(tg_embedding(table, rows), 5, 6, 1, 2, 5, 6);
    WANT(vjp_of(g, tg_embedding(table, rows), GIVEN(TG_SHAPE(3, 2), 1, 2, 3, 4, 5, 6), table), 3, 4, 0, 0, 6, 8);
    WANT(tg_one_hot(rows, 3, TG_F32), 0, 0, 1, 1, 0, 0, 0, 0, 1);
    WANT(tg_one_hot(rows, 3, TG_I32), 0, 0, 1, 1, 0, 0, 0, 0, 1);
}

static void values_softmax(tg_graph *g) {
    tg_tensor x = GIVEN(TG_SHAPE(3), 2, 2, 1), cotangent = GIVEN(TG_SHAPE(3), 1, -1, 3);
    WANT(tg_softmax(x, 0), 0.4223188, 0.4223188, 0.1553624);
    WANT(vjp_of(g, tg_softmax(x, 0), cotangent, x), 0.2254814, -0.6191562, 0.3936748);
    WANT(tg_log_softmax(x, 0), -0.8619948, -0.8619948, -1.8619948);
    WANT(vjp_of(g, tg_log_softmax(x, 0), cotangent, x), 1 - 3 * 0.4223188, -1 - 3 * 0.4223188, 3 - 3 * 0.1553624);
    WANT(tg_logsumexp(x, 0), 2.8619948);
    WANT(vjp_of(g, tg_logsumexp(x, 0), GIVEN(TG_SCALAR, 2), x), 0.8446376, 0.8446376, 0.3107248);
    WANT(tg_logsumexp(GIVEN(TG_SHAPE(2), 1000, 1000), 0), 1000.6931472);
    tg_tensor fills = GIVEN(TG_SHAPE(2, 3), -1e9, -1e9, -1e9, 0, -1e9, 1), cots = GIVEN(TG_SHAPE(2, 3), 1, 2, 3, 1, 2, 3);
    WANT(tg_softmax(fills, 1), 1.0 / 3, 1.0 / 3, 1.0 / 3, 0.2689414, 0, 0.7310586);
    WANT(vjp_of(g, tg_softmax(fills, -1), cots, fills), -1.0 / 3, 0, 1.0 / 3, -0.3932239, 0, 0.3932239);
    WANT(tg_softmax(GIVEN(TG_SHAPE(2, 2), 0, 5, 0, 5), 0), 0.5, 0.5, 0.5, 0.5);
    /* what is hidden is exactly 0, and has gradient exactly 0, even where it would dominate, and where all is far below 0 */
    tg_tensor square = GIVEN(TG_SHAPE(2, 2, 2), 1, 1e30, 2, 1, -3e38, 0, -2e38, -2e38);
    tg_tensor causal = tg_softmax_causal_last(square);
    WANT(causal, 1, 0, 0.7310586, 0.2689414, 1, 0, 0.5, 0.5);
    WANT(vjp_of(g, causal, GIVEN(TG_SHAPE(2, 2, 2), 5, 7, 1, -1, 5, 7, 1, -1), square), 0, 0, 0.3932239, -0.3932239, 0, 0, 0.5, -0.5);
    tg_tensor masked = tg_where_causal(GIVEN(TG_SHAPE(2, 2), 1, 2, 3, 4), -9);
    WANT(masked, 1, -9, 3, 4);
}

static void values_losses(tg_graph *g) {
    tg_tensor logits = GIVEN(TG_SHAPE(2, 3), 2, 2, 1, 0, 0, 0), targets = INTEGERS(2, 0), none = INTEGERS(-1, -1), one = INTEGERS(-1, 0);
    const double third = 1.0 / 3;
    WANT(tg_nn_cross_entropy_last(logits, targets), 1.8619948, 1.0986123);
    WANT(tg_nn_cross_entropy(logits, targets, -1), (1.8619948 + 1.0986123) / 2);
    WANT(tg_nn_cross_entropy(logits, one, -1), 1.0986123);
    WANT(tg_nn_cross_entropy(logits, targets, 2), 1.0986123); /* a class may be the ignored one */
    WANT(tg_nn_cross_entropy(logits, none, -1), 0);
    tg_tensor cotangent = GIVEN(TG_SCALAR, 6), rows = GIVEN(TG_SHAPE(2), 1, -2);
    WANT(vjp_of(g, tg_nn_cross_entropy(logits, one, -1), cotangent, logits), 0, 0, 0, 6 * (third - 1), 2, 2);
    WANT(vjp_of(g, tg_nn_cross_entropy(logits, none, -1), cotangent, logits), 0, 0, 0, 0, 0, 0);
    WANT(vjp_of(g, tg_nn_cross_entropy_last(logits, targets), rows, logits), 0.4223188, 0.4223188, -0.8446376, -2 * (third - 1), -2 * third,
         -2 * third);
    tg_tensor x = GIVEN(TG_SHAPE(4), 0, 100, -100, 1), t = GIVEN(TG_SHAPE(4), 0, 1, 1, 0.25);
    WANT(tg_nn_bce_with_logits(x, t), (0.6931472 + 0 + 100 + 1.0632617) / 4);
    WANT(vjp_of(g, tg_nn_bce_with_logits(x, t), GIVEN(TG_SCALAR, 4), x), 0.5, 0, -1, 0.4810586);
    WANT(tg_nn_mse(x, t), (0 + 9801 + 10201 + 0.5625) / 4);
    WANT(vjp_of(g, tg_nn_mse(x, t), GIVEN(TG_SCALAR, 4), x), 0, 198, -202, 1.5);
}

static void values_layer_norm(tg_graph *g) {
    tg_tensor x = GIVEN(TG_SHAPE(2, 4), 1, 3, 1, 3, 5, 5, 5, 5), gain = GIVEN(TG_SHAPE(4), 1, 2, 3, 4),
              bias = GIVEN(TG_SHAPE(4), 0, 1, 0, 1);
    tg_layer_norm layer = {gain, bias, 3.0}; /* variance 1, so 1 / sqrt(1 + 3) = 1/2 */
    tg_tensor y = tg_nn_layer_norm_fwd(layer, x);
    WANT(y, -0.5, 2, -1.5, 3, 0, 1, 0, 1);
    WANT(vjp_of(g, y, tg_ones(g, TG_SHAPE(2, 4)), gain), -0.5, 0.5, -0.5, 0.5);
    WANT(vjp_of(g, y, tg_ones(g, TG_SHAPE(2, 4)), bias), 2, 2, 2, 2);
}

static void test_values(void **state) {
    (void)state;
    trace_values(values_elementwise);
    trace_values(values_reductions);
    trace_values(values_views);
    trace_values(values_products);
    trace_values(values_softmax);
    trace_values(values_losses);
    trace_values(values_layer_norm);
}

/* ---------------------------------------------------------------- a trace's life */

static tg_tensor build_scalar(tg_graph *g, void *user) {
    (void)user;
    return tg_zeros(g, TG_SCALAR);
}

static tg_tensor build_nested(tg_graph *g, void *user) {
    tg_tensor inner;
    assert_null(tg_trace(g->ctx, build_scalar, user, &inner));
    assert_int_equal(tg_error(g->ctx), TG_ERROR_TRACE);
    return tg_zeros(g, TG_SCALAR);
}

static tg_tensor build_nothing(tg_graph *g, void *user) {
    (void)g;
    (void)user;
    return (tg_tensor){NULL, 0};
}

static tg_tensor build_open_scope(tg_graph *g, void *user) {
    (void)user;
    tg_scope_push(g, "left");
    return tg_zeros(g, TG_SCALAR);
}

static tg_tensor build_closed_twice(tg_graph *g, void *user) {
    (void)user;
    tg_scope_pop(g);
    return tg_zeros(g, TG_SCALAR);
}

static tg_tensor build_given(tg_graph *g, void *user) {
    (void)g;
    return *(tg_tensor *)user;
}

static void expect_no_trace(tg_context *ctx, tg_build_fn build, void *user, tg_status status, const char *message) {
    tg_tensor untouched = {NULL, 77};
    assert_null(tg_trace(ctx, build, user, &untouched));
    assert_int_equal(tg_error(ctx), status);
    assert_string_equal(tg_error_message(ctx), message);
    assert_int_equal(untouched.id, 77);
    assert_null(ctx->trace);
}

static void test_life(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_tensor result;
    expect_no_trace(ctx, NULL, NULL, TG_ERROR_ARGUMENT, "trace: the build function is NULL");
    expect_no_trace(ctx, build_nothing, NULL, TG_ERROR_TRACE, "trace: the build function returned no tensor");
    expect_no_trace(ctx, build_open_scope, NULL, TG_ERROR_TRACE, "trace: the scope left is still open at the end of the build function");
    expect_no_trace(ctx, build_closed_twice, NULL, TG_ERROR_TRACE, "scope_pop: no scope is open");
    expect_no_trace(ctx, build_nested, NULL, TG_ERROR_TRACE,
                    "trace: another trace is in progress: a build function cannot trace or compile");
    assert_int_equal(ctx->live_blocks, 0);
    tg_graph *g = tg_trace(ctx, build_scalar, NULL, &result);
    assert_non_null(g);
    assert_int_equal(tg_error(ctx), TG_OK); /* the next trace starts without the last one's error */
    expect_no_trace(ctx, build_given, &result, TG_ERROR_TRACE, "trace: the build function returned a tensor of another trace");
    tg_clear_error(ctx);
    assert_int_equal(tg_relu(result).id, 0);
    assert_int_equal(tg_error(ctx), TG_ERROR_TRACE);
    assert_null(tg_trace(NULL, build_scalar, NULL, NULL));
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- failing allocations */

/* One of everything that allocates, no assertions inside. */
static tg_tensor build_of_everything(tg_graph *g, void *user) {
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    (void)user;
    for (int i = 0; i < 12; i++) {
        tg_scope_pushf(g, "block%d", i);
        tg_nn_linear(g, "layer", 3, 3);
        tg_nn_layer_norm(g, "norm", 3);
        tg_scope_pop(g);
    }
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 4, 3), TG_F32), idx = tg_input(g, "idx", TG_SHAPE(4), TG_I32);
    tg_linear layer = tg_nn_linear(g, "l", 3, 4);
    tg_tensor h = tg_capture("h", tg_gelu(tg_nn_linear_fwd(layer, tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "n", 3), x))));
    tg_tensor a = tg_softmax_causal_last(tg_matmul_batched(h, tg_swap_axes(h, 1, 2)));
    tg_tensor parts[3] = {a, tg_where_causal(a, 0), tg_clamp(a, 0, 1)};
    tg_tensor joined = tg_concat(parts, 3, 0), stacked = tg_stack(parts, 2, 1);
    tg_tensor table = tg_param(g, "table", TG_SHAPE(2, 3), .init = tg_init_literal(data, 6));
    tg_tensor e = tg_embedding(table, idx), constant = tg_constant(g, TG_SHAPE(2, 3), TG_F32, data, 6);
    tg_tensor loss = tg_add(tg_nn_cross_entropy(e, idx, -1), tg_add(tg_sum_all(joined), tg_mean(stacked, TG_ALL)));
    loss = tg_add(loss, tg_add(tg_nn_mse(table, constant), tg_logsumexp(tg_reshape(e, TG_SHAPE(-1)), 0)));
    tg_tensor wrt[2] = {layer.W, table}, out[2];
    tg_grad(loss, wrt, 2, out);
    tg_tensor t = tg_state(g, "t", TG_SCALAR, TG_I32, 0);
    tg_writeback(t, tg_add(t, 1));
    tg_writeback(layer.W, tg_sub(layer.W, out[0]));
    tg_sum_all(tg_one_hot(idx, 3, TG_F32));
    return loss;
}

static void test_failing_allocations(void **state) {
    (void)state;
    int refused = 0;
    for (int64_t n = 1;; n++) {
        support_allocator memory = {.fail_at = n, .fail_on = true};
        tg_context *ctx = support_context_counting(&memory);
        if (ctx == NULL) {
            refused++;
            continue;
        }
        tg_tensor result;
        tg_graph *g = tg_trace(ctx, build_of_everything, NULL, &result);
        tg_status status = tg_error(ctx);
        if (g == NULL) assert_int_equal(status, TG_ERROR_MEMORY);
        if (g != NULL) assert_int_equal(status, TG_OK);
        refused += g == NULL;
        bool done = g != NULL;
        tg_graph_destroy(g);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
        assert_int_equal(memory.live_blocks, 0);
        if (done) break;
    }
    assert_true(refused > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_poison),
        cmocka_unit_test(test_tensors_of_the_dead),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_indexing),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
