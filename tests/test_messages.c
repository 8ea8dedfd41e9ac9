/* The exact text, status and call site of every kind of mistake, by family of operations. After
 * each mistake the result is poison, poison goes through further operations, and neither it nor a
 * second mistake replaces the first error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/graph.h"
#include "tensorgrad/tensorgrad.h"

/* ---------------------------------------------------------------- helpers */

#define HERE tg_site_make("model.c", 99)

/* Leaves with fixed sites, so that messages can be written down. */
static tg_tensor input_of(tg_graph *g, const char *name, int line, tg_shape shape, tg_dtype dtype) {
    return tg_input_at(tg_site_make("model.c", line), g, name, shape, dtype);
}
#define X(...) input_of(g, "x", 1, TG_SHAPE(__VA_ARGS__), TG_F32)
#define Y(...) input_of(g, "y", 2, TG_SHAPE(__VA_ARGS__), TG_F32)
#define N(...) input_of(g, "n", 3, TG_SHAPE(__VA_ARGS__), TG_I32)
#define B(...) input_of(g, "b", 4, TG_SHAPE(__VA_ARGS__), TG_BOOL)
#define S input_of(g, "s", 5, TG_SCALAR, TG_F32)

static tg_tensor param_of(tg_graph *g, const char *name, int line, tg_shape shape) {
    return tg_param_at(tg_site_make("model.c", line), g, name, shape, (tg_param_options){0});
}

static tg_tensor poison_of(tg_graph *g) { return (tg_tensor){g, 0}; }

/* As if nothing had been traced yet: names may be used again. */
static void forget_names(tg_graph *g) {
    g->inputs.count = g->params.count = g->states.count = g->captures.count = g->writebacks.count = g->scopes.count = 0;
}

static void mistake_at(tg_graph *g, tg_tensor result, tg_status status, const char *text, int test_line, tg_site site) {
    tg_context *ctx = g->ctx;
    if (result.id != 0) fail_msg("line %d: the result is not poison (want: %s)", test_line, text);
    if (strcmp(tg_error_message(ctx), text) != 0) fail_msg("line %d: got\n%s\nwant\n%s", test_line, tg_error_message(ctx), text);
    if (tg_error(ctx) != status) fail_msg("line %d: got %s, want %s", test_line, tg_status_name(tg_error(ctx)), tg_status_name(status));
    if (strcmp(tg_error_site(ctx).file, site.file) != 0 || tg_error_site(ctx).line != site.line)
        fail_msg("line %d: the error is at %s:%d, want %s:%d", test_line, tg_error_site(ctx).file, tg_error_site(ctx).line, site.file,
                 site.line);
    tg_tensor after = tg_relu(tg_add(tg_reshape(result, TG_SHAPE(2, 3)), 1));
    if (after.id != 0) fail_msg("line %d: poison did not go through", test_line);
    tg_input(g, "", TG_SHAPE(1), TG_F32); /* a second mistake */
    if (strcmp(tg_error_message(ctx), text) != 0) fail_msg("line %d: replaced by %s", test_line, tg_error_message(ctx));
    tg_clear_error(ctx);
    forget_names(g);
}
#define MISTAKE(status, text, ...) mistake_at(g, (__VA_ARGS__), TG_ERROR_##status, text, __LINE__, HERE)

typedef void (*messages_body)(tg_graph *g);

static tg_tensor run_messages(tg_graph *g, void *user) {
    messages_body body = *(messages_body *)user;
    body(g);
    return tg_zeros(g, TG_SCALAR);
}

static void trace_mistakes(messages_body body) {
    tg_context *ctx = tg_context_create(NULL);
    assert_non_null(ctx);
    tg_graph *g = tg_trace(ctx, run_messages, &body, NULL);
    assert_string_equal(tg_error_message(ctx), "");
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}
#define FAMILY(name) \
  static void body_##name(tg_graph *g); \
  static void test_##name(void **state) { \
    (void)state; \
    trace_mistakes(body_##name); \
  } \
  static void body_##name(tg_graph *g)

/* ---------------------------------------------------------------- elementwise */

FAMILY(unary) {
    MISTAKE(DTYPE,
            "relu: takes f32, not i32: n[4] i32\n"
            "  n: input at model.c:3",
            tg_relu_at(HERE, N(4)));
    MISTAKE(DTYPE,
            "exp: takes f32, not bool: b[4] bool\n"
            "  b: input at model.c:4",
            tg_exp_at(HERE, B(4)));
    MISTAKE(DTYPE,
            "neg: takes f32 or i32, not bool: b[2, 3] bool\n"
            "  b: input at model.c:4",
            tg_neg_at(HERE, B(2, 3)));
    MISTAKE(DTYPE,
            "square: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_square_at(HERE, B(2)));
    MISTAKE(DTYPE,
            "gelu: takes f32, not i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_gelu_at(HERE, N(2)));
    MISTAKE(DTYPE,
            "logical_not: takes bool, not f32: x[2]\n"
            "  x: input at model.c:1",
            tg_logical_not_at(HERE, X(2)));
    MISTAKE(DTYPE,
            "sqrt: takes f32, not i32: argmax[2] i32\n"
            "  argmax: computed at model.c:7",
            tg_sqrt_at(HERE, tg_argmax_at(tg_site_make("model.c", 7), X(2, 3), 1, (tg_reduce_options){0})));
    MISTAKE(DTYPE,
            "round: takes f32, not i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_round_at(HERE, N(2)));
    MISTAKE(DTYPE,
            "hard_swish: takes f32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_hard_swish_at(HERE, B(2)));
    MISTAKE(ARGUMENT,
            "leaky_relu: the slope nan is not finite: x[2]\n"
            "  x: input at model.c:1",
            tg_leaky_relu_at(HERE, X(2), (double)NAN));
    MISTAKE(ARGUMENT,
            "elu: the alpha inf is not finite: x[2]\n"
            "  x: input at model.c:1",
            tg_elu_at(HERE, X(2), (double)INFINITY));
    MISTAKE(DTYPE,
            "elu: the number 1e+39 does not fit f32: x[2]\n"
            "  x: input at model.c:1",
            tg_elu_at(HERE, X(2), 1e39));
    MISTAKE(DTYPE,
            "leaky_relu: takes f32, not i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_leaky_relu_at(HERE, N(2), 0.1));
    MISTAKE(DTYPE, "cast: 9 is not a dtype", tg_cast_at(HERE, X(2), (tg_dtype)9));
}

FAMILY(binary) {
    MISTAKE(SHAPE,
            "add: shapes do not broadcast: x[2, 3] and y[4] (3 != 4)\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_add_at(HERE, TG_OPERAND(X(2, 3)), TG_OPERAND(Y(4))));
    MISTAKE(SHAPE,
            "mul: shapes do not broadcast: relu[5, 2] and y[3, 2] (5 != 3)\n"
            "  relu: computed at net.c:8\n"
            "  y: input at model.c:2",
            tg_mul_at(HERE, TG_OPERAND(tg_relu_at(tg_site_make("net.c", 8), X(5, 2))), TG_OPERAND(Y(3, 2))));
    MISTAKE(DTYPE,
            "sub: dtypes differ: x[2] and n[2] i32 (f32 != i32)\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_sub_at(HERE, TG_OPERAND(X(2)), TG_OPERAND(N(2))));
    MISTAKE(DTYPE,
            "add: takes f32 or i32, not bool: b[2] bool (with x[2])\n"
            "  x: input at model.c:1\n"
            "  b: input at model.c:4",
            tg_add_at(HERE, TG_OPERAND(X(2)), TG_OPERAND(B(2))));
    MISTAKE(DTYPE,
            "pow: takes f32, not i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_pow_at(HERE, TG_OPERAND(N(2)), TG_OPERAND(2)));
    MISTAKE(DTYPE,
            "add: the number 0.5 does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_add_at(HERE, TG_OPERAND(N(2)), TG_OPERAND(0.5)));
    MISTAKE(DTYPE,
            "mul: the number 3e+09 does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_mul_at(HERE, TG_OPERAND(3e9), TG_OPERAND(N(2))));
    MISTAKE(DTYPE,
            "maximum: the number nan does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_maximum_at(HERE, TG_OPERAND(N(2)), TG_OPERAND((double)NAN)));
    MISTAKE(DTYPE,
            "mul: the number 1e+39 does not fit f32: x[2]\n"
            "  x: input at model.c:1",
            tg_mul_at(HERE, TG_OPERAND(1e39), TG_OPERAND(X(2))));
    MISTAKE(ARGUMENT,
            "div: division of the integers n[2] i32 by 0\n"
            "  n: input at model.c:3",
            tg_div_at(HERE, TG_OPERAND(N(2)), TG_OPERAND(0)));
    MISTAKE(ARGUMENT,
            "mod: division of the integers n[2] i32 by 0\n"
            "  n: input at model.c:3",
            tg_mod_at(HERE, TG_OPERAND(N(2)), TG_OPERAND(0)));
    MISTAKE(DTYPE,
            "floor_div: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_floor_div_at(HERE, TG_OPERAND(B(2)), TG_OPERAND(1)));
    MISTAKE(LIMIT,
            "add: the broadcast of x[65536, 1] and y[65536]: shape [65536, 65536] has 4294967296 elements, over the limit of "
            "2147483647\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_add_at(HERE, TG_OPERAND(X(65536, 1)), TG_OPERAND(Y(65536))));
}

FAMILY(comparison) {
    MISTAKE(DTYPE,
            "less: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_less_at(HERE, TG_OPERAND(B(2)), TG_OPERAND(1)));
    MISTAKE(SHAPE,
            "greater: shapes do not broadcast: x[2] and y[3] (2 != 3)\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_greater_at(HERE, TG_OPERAND(X(2)), TG_OPERAND(Y(3))));
    MISTAKE(DTYPE,
            "equal: dtypes differ: n[2] i32 and x[2] (i32 != f32)\n"
            "  n: input at model.c:3\n"
            "  x: input at model.c:1",
            tg_equal_at(HERE, TG_OPERAND(N(2)), TG_OPERAND(X(2))));
    MISTAKE(DTYPE,
            "not_equal: the number 2 does not fit bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_not_equal_at(HERE, TG_OPERAND(B(2)), TG_OPERAND(2)));
    MISTAKE(DTYPE,
            "logical_and: takes bool, not f32: x[2] (with b[2] bool)\n"
            "  b: input at model.c:4\n"
            "  x: input at model.c:1",
            tg_logical_and_at(HERE, TG_OPERAND(B(2)), TG_OPERAND(X(2))));
}

FAMILY(selection) {
    MISTAKE(DTYPE,
            "where: takes bool, not f32: x[2] (with y[2])\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_where_at(HERE, X(2), TG_OPERAND(Y(2)), TG_OPERAND(0)));
    MISTAKE(DTYPE,
            "where: dtypes differ: y[2] and n[2] i32 (f32 != i32)\n"
            "  y: input at model.c:2\n"
            "  n: input at model.c:3",
            tg_where_at(HERE, B(2), TG_OPERAND(Y(2)), TG_OPERAND(N(2))));
    MISTAKE(DTYPE,
            "where: the number 0.5 does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_where_at(HERE, B(2), TG_OPERAND(0.5), TG_OPERAND(N(2))));
    MISTAKE(SHAPE,
            "where: shapes do not broadcast: b[2] bool ? x[3] : const[]\n"
            "  b: input at model.c:4\n"
            "  x: input at model.c:1",
            tg_where_at(HERE, B(2), TG_OPERAND(X(3)), TG_OPERAND(0)));
    MISTAKE(SHAPE,
            "where: shapes do not broadcast: b[2] bool ? x[3] : y[4]\n"
            "  b: input at model.c:4\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_where_at(HERE, B(2), TG_OPERAND(X(3)), TG_OPERAND(Y(4))));
    MISTAKE(ARGUMENT,
            "clamp: the lower bound 2 is not <= the upper bound 1: x[2]\n"
            "  x: input at model.c:1",
            tg_clamp_at(HERE, X(2), 2, 1));
    MISTAKE(ARGUMENT,
            "clamp: the lower bound nan is not <= the upper bound 1: x[2]\n"
            "  x: input at model.c:1",
            tg_clamp_at(HERE, X(2), (double)NAN, 1));
    MISTAKE(DTYPE,
            "clamp: the number 0.5 does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_clamp_at(HERE, N(2), 0.5, 1));
}

/* ---------------------------------------------------------------- reductions, views, joins */

FAMILY(reductions) {
    const tg_reduce_options drop = {0};
    MISTAKE(DTYPE,
            "sum: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_sum_at(HERE, B(2), TG_ALL, drop));
    MISTAKE(DTYPE,
            "mean: takes f32, not i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_mean_at(HERE, N(2), TG_ALL, drop));
    MISTAKE(SHAPE,
            "sum: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_sum_at(HERE, X(2, 3), TG_AXES(2), drop));
    MISTAKE(SHAPE,
            "max: axis 0 of x[2, 3] is given twice\n"
            "  x: input at model.c:1",
            tg_max_at(HERE, X(2, 3), TG_AXES(0, -2), drop));
    MISTAKE(SHAPE,
            "min: axis 0 of a tensor without axes: s[]\n"
            "  s: input at model.c:5",
            tg_min_at(HERE, S, TG_AXES(0), drop));
    MISTAKE(SHAPE,
            "sum: 9 axes given for x[2]\n"
            "  x: input at model.c:1",
            tg_sum_at(HERE, X(2), TG_AXES(0, 0, 0, 0, 0, 0, 0, 0, 0), drop));
    MISTAKE(SHAPE,
            "argmax: axis -3 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_argmax_at(HERE, X(2, 3), -3, drop));
    MISTAKE(DTYPE,
            "argmin: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_argmin_at(HERE, B(2), 0, drop));
    MISTAKE(DTYPE,
            "prod: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_prod_at(HERE, B(2), TG_ALL, drop));
    MISTAKE(DTYPE,
            "any: takes bool, not f32: x[2]\n"
            "  x: input at model.c:1",
            tg_any_at(HERE, X(2), TG_ALL, drop));
    MISTAKE(SHAPE,
            "all: axis 1 is not in -1 .. 0: b[2] bool\n"
            "  b: input at model.c:4",
            tg_all_at(HERE, B(2), TG_AXES(1), drop));
    MISTAKE(LIMIT,
            "prod: the result of x[1, 1500000000]: shape [1, 2147483648] has 2147483648 elements, over the limit of 2147483647\n"
            "  x: input at model.c:1",
            tg_prod_at(HERE, X(1, 1500000000), TG_ALL, drop));
    MISTAKE(ARGUMENT,
            "variance: the correction 3 is not in 0 .. 2, for 3 elements: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_variance_at(HERE, X(2, 3), TG_AXES(1), (tg_variance_options){.correction = 3}));
    MISTAKE(ARGUMENT,
            "std: the correction -1 is not in 0 .. 5, for 6 elements: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_std_at(HERE, X(2, 3), TG_ALL, (tg_variance_options){.correction = -1}));
    MISTAKE(ARGUMENT,
            "norm: the order 3 is not 1, 2 or infinity: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_norm_at(HERE, X(2, 3), TG_ALL, (tg_norm_options){.ord = 3}));
}

FAMILY(scans) {
    const tg_scan_options plain = {0};
    MISTAKE(DTYPE,
            "cumsum: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_cumsum_at(HERE, B(2), 0, plain));
    MISTAKE(SHAPE,
            "cumsum: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_cumsum_at(HERE, X(2, 3), 2, plain));
    MISTAKE(SHAPE,
            "cumprod: axis 0 of a tensor without axes: s[]\n"
            "  s: input at model.c:5",
            tg_cumprod_at(HERE, S, 0, plain));
}

FAMILY(arrangements) {
    MISTAKE(SHAPE,
            "squeeze: axis 1 has 3 elements, not 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_squeeze_at(HERE, X(2, 3), TG_AXES(1)));
    MISTAKE(SHAPE,
            "expand_dims: axis 3 is not in -3 .. 2: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_expand_dims_at(HERE, X(2, 3), 3));
    MISTAKE(LIMIT,
            "expand_dims: the result of x[1, 1, 1, 1, 1, 1, 1, 1]: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, over the limit of 8\n"
            "  x: input at model.c:1",
            tg_expand_dims_at(HERE, X(1, 1, 1, 1, 1, 1, 1, 1), 0));
    MISTAKE(SHAPE,
            "pad: 1 counts before given, x[2, 3] has 2 axes\n"
            "  x: input at model.c:1",
            tg_pad_at(HERE, X(2, 3), TG_SHAPE(1), TG_SHAPE(1, 1), 0));
    MISTAKE(ARGUMENT,
            "pad: counts after: -1 (axis 1) is not in 0 .. 2147483647: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_pad_at(HERE, X(2, 3), TG_SHAPE(1, 1), TG_SHAPE(1, -1), 0));
    MISTAKE(DTYPE,
            "pad: the number 0.5 does not fit i32: n[2] i32\n"
            "  n: input at model.c:3",
            tg_pad_at(HERE, N(2), TG_SHAPE(1), TG_SHAPE(1), 0.5));
    MISTAKE(LIMIT,
            "pad: the result of x[2]: shape [4294967296] has 4294967296 elements, over the limit of 2147483647\n"
            "  x: input at model.c:1",
            tg_pad_at(HERE, X(2), TG_SHAPE(2147483647), TG_SHAPE(2147483647), 0));
    MISTAKE(SHAPE,
            "flip: axis 0 of x[2, 3] is given twice\n"
            "  x: input at model.c:1",
            tg_flip_at(HERE, X(2, 3), TG_AXES(0, -2)));
    MISTAKE(SHAPE,
            "roll: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_roll_at(HERE, X(2, 3), 1, 2));
    MISTAKE(SHAPE,
            "tile: 1 counts given, x[2, 3] has 2 axes\n"
            "  x: input at model.c:1",
            tg_tile_at(HERE, X(2, 3), TG_SHAPE(2)));
    MISTAKE(ARGUMENT,
            "tile: counts: 0 (axis 1) is not in 1 .. 2147483647: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_tile_at(HERE, X(2, 3), TG_SHAPE(2, 0)));
    MISTAKE(ARGUMENT,
            "repeat: 0 times is not in 1 .. 2147483647: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_repeat_at(HERE, X(2, 3), 0, 1));
    MISTAKE(LIMIT,
            "repeat: the result of x[2, 3]: shape [2, 3000000000] has 6000000000 elements, over the limit of 2147483647\n"
            "  x: input at model.c:1",
            tg_repeat_at(HERE, X(2, 3), 1000000000, 1));
}

static tg_tensor split_of(tg_tensor x, int axis, const int64_t *sizes, int n) {
    tg_tensor parts[4];
    const tg_status status = tg_split_at(HERE, x, axis, sizes, n, parts);
    if (status != tg_error(x.graph->ctx)) fail_msg("split gave %s", tg_status_name(status));
    for (int i = 1; i < n && i < 4; i++)
        if (parts[i].id != 0) fail_msg("part %d is not poison", i);
    return n > 0 ? parts[0] : poison_of(x.graph);
}

FAMILY(splits) {
    MISTAKE(SHAPE,
            "split: axis 1 does not divide into 2 equal parts: x[2, 3]\n"
            "  x: input at model.c:1",
            split_of(X(2, 3), 1, NULL, 2));
    MISTAKE(SHAPE,
            "split: axis 1 does not divide into 0 equal parts: x[2, 3]\n"
            "  x: input at model.c:1",
            split_of(X(2, 3), 1, NULL, 0));
    MISTAKE(SHAPE,
            "split: the 2 parts have 4 elements, axis 1 has 3: x[2, 3]\n"
            "  x: input at model.c:1",
            split_of(X(2, 3), -1, (const int64_t[]){1, 3}, 2));
    MISTAKE(SHAPE,
            "split: part 1 has 0 elements: x[2, 3]\n"
            "  x: input at model.c:1",
            split_of(X(2, 3), -1, (const int64_t[]){3, 0}, 2));
    MISTAKE(SHAPE,
            "split: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            split_of(X(2, 3), 2, NULL, 1));
    if (tg_split_at(HERE, X(2), 0, NULL, 1, NULL) != TG_ERROR_ARGUMENT) fail_msg("out NULL was accepted");
    tg_clear_error(g->ctx);
}

FAMILY(views) {
    MISTAKE(SHAPE,
            "reshape: 6 elements do not fit: x[2, 3] -> [4, 2]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(4, 2)));
    MISTAKE(SHAPE,
            "reshape: 6 elements do not fit: x[2, 3] -> [4, -1]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(4, -1)));
    MISTAKE(SHAPE,
            "reshape: only one dim may be -1: x[2, 3] -> [-1, -1]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(-1, -1)));
    MISTAKE(SHAPE,
            "reshape: every axis needs at least 1 element: x[2, 3] -> [0, 6]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(0, 6)));
    MISTAKE(SHAPE,
            "reshape: 6 elements do not fit: x[2, 3] -> [65536, 65536]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(65536, 65536)));
    MISTAKE(SHAPE,
            "reshape: 6 elements do not fit: x[2, 3] -> [46341, 46341, -1]\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(46341, 46341, -1)));
    MISTAKE(LIMIT,
            "reshape: the result of x[2, 3]: shape [1, 1, 1, 1, 1, 1, 1, 2, ...] has rank 9, over the limit of 8\n"
            "  x: input at model.c:1",
            tg_reshape_at(HERE, X(2, 3), TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 2, 3)));
    MISTAKE(SHAPE,
            "transpose: the permutation has 1 axes, x[2, 3] has 2\n"
            "  x: input at model.c:1",
            tg_transpose_at(HERE, X(2, 3), TG_AXES(0)));
    MISTAKE(SHAPE,
            "transpose: axis 0 of x[2, 3] is given twice\n"
            "  x: input at model.c:1",
            tg_transpose_at(HERE, X(2, 3), TG_AXES(0, 0)));
    MISTAKE(SHAPE,
            "transpose: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_transpose_at(HERE, X(2, 3), TG_AXES(0, 2)));
    MISTAKE(SHAPE,
            "swap_axes: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_swap_axes_at(HERE, X(2, 3), 0, 2));
    MISTAKE(SHAPE,
            "broadcast_to: x[2, 3] does not broadcast to [2, 4]\n"
            "  x: input at model.c:1",
            tg_broadcast_to_at(HERE, X(2, 3), TG_SHAPE(2, 4)));
    MISTAKE(SHAPE,
            "broadcast_to: x[2, 3] does not broadcast to [3]\n"
            "  x: input at model.c:1",
            tg_broadcast_to_at(HERE, X(2, 3), TG_SHAPE(3)));
    MISTAKE(SHAPE,
            "broadcast_to: the result of x[3]: shape [0, 3] has a dimension under 1 (axis 0 is 0)\n"
            "  x: input at model.c:1",
            tg_broadcast_to_at(HERE, X(3), TG_SHAPE(0, 3)));
    MISTAKE(SHAPE,
            "slice_last_range: the range 1 .. 4 does not lie in axis 1 of x[2, 3]\n"
            "  x: input at model.c:1",
            tg_slice_last_range_at(HERE, X(2, 3), 1, 4));
    MISTAKE(SHAPE,
            "slice_last_range: the range 2 .. 2 does not lie in axis 1 of x[2, 3]\n"
            "  x: input at model.c:1",
            tg_slice_last_range_at(HERE, X(2, 3), 2, 2));
    MISTAKE(SHAPE,
            "slice_last_range: axis -1 of a tensor without axes: s[]\n"
            "  s: input at model.c:5",
            tg_slice_last_range_at(HERE, S, 0, 1));
    MISTAKE(SHAPE,
            "narrow: the range 1 .. 3 does not lie in axis 0 of x[2, 3]\n"
            "  x: input at model.c:1",
            tg_narrow_at(HERE, X(2, 3), 0, 1, 2));
    MISTAKE(SHAPE,
            "narrow: start -1 and length 2 need to be at least 0 and 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_narrow_at(HERE, X(2, 3), 1, -1, 2));
    MISTAKE(SHAPE,
            "narrow: the range 1 .. 9223372036854775807 does not lie in axis 1 of x[2, 3]\n"
            "  x: input at model.c:1",
            tg_narrow_at(HERE, X(2, 3), 1, 1, INT64_MAX));
    MISTAKE(SHAPE,
            "narrow: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_narrow_at(HERE, X(2, 3), 2, 0, 1));
}

FAMILY(joins) {
    tg_tensor parts[2] = {X(2, 3), Y(2, 4)};
    MISTAKE(SHAPE,
            "concat: shapes differ beside axis 0: part 0 x[2, 3] and part 1 y[2, 4]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_concat_at(HERE, parts, 2, 0));
    MISTAKE(SHAPE,
            "concat: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_concat_at(HERE, parts, 2, 2));
    MISTAKE(SHAPE,
            "stack: shapes differ: part 0 x[2, 3] and part 1 y[2, 4]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_stack_at(HERE, parts, 2, 0));
    MISTAKE(SHAPE,
            "stack: axis 3 is not in -3 .. 2: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_stack_at(HERE, parts, 1, 3));
    tg_tensor kinds[2] = {X(2), N(2)};
    MISTAKE(DTYPE,
            "concat: dtypes differ: part 0 x[2] and part 1 n[2] i32 (f32 != i32)\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_concat_at(HERE, kinds, 2, 0));
    tg_tensor ranks[2] = {X(2), Y(2, 1)};
    MISTAKE(SHAPE,
            "concat: shapes differ beside axis 0: part 0 x[2] and part 1 y[2, 1]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_concat_at(HERE, ranks, 2, 0));
    tg_tensor scalar = S, scalars[2] = {scalar, scalar};
    MISTAKE(SHAPE,
            "concat: axis 0 of a tensor without axes: s[]\n"
            "  s: input at model.c:5",
            tg_concat_at(HERE, scalars, 2, 0));
    tg_tensor full[1] = {X(1, 1, 1, 1, 1, 1, 1, 1)};
    MISTAKE(LIMIT,
            "stack: the result of x[1, 1, 1, 1, 1, 1, 1, 1]: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, over the limit of 8\n"
            "  x: input at model.c:1",
            tg_stack_at(HERE, full, 1, 0));
    tg_tensor large[2] = {X(2000000000), Y(2000000000)};
    MISTAKE(LIMIT,
            "concat: the result of x[2000000000], y[2000000000]: shape [4000000000] has 4000000000 elements, over the limit of "
            "2147483647\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_concat_at(HERE, large, 2, 0));
}

/* ---------------------------------------------------------------- contractions, indexing, softmax */

FAMILY(contractions) {
    tg_tensor twice = X(2, 3);
    MISTAKE(SHAPE,
            "matmul: inner dimensions differ: x[2, 3] x x[2, 3] (3 != 2)\n"
            "  x: input at model.c:1",
            tg_matmul_at(HERE, twice, twice));
    MISTAKE(SHAPE,
            "matmul: inner dimensions differ: x[256, 64] x l2.W[32, 10] (64 != 32)\n"
            "  x: input at model.c:1\n"
            "  l2.W: parameter at model.c:9",
            tg_matmul_at(HERE, X(256, 64), param_of(g, "l2.W", 9, TG_SHAPE(32, 10))));
    MISTAKE(SHAPE,
            "matmul: both sides need at least 1 axis: x[3] x s[]\n"
            "  x: input at model.c:1\n"
            "  s: input at model.c:5",
            tg_matmul_at(HERE, X(3), S));
    MISTAKE(SHAPE,
            "matmul: inner dimensions differ: x[2, 3] x y[2] (3 != 2)\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_at(HERE, X(2, 3), Y(2)));
    MISTAKE(SHAPE,
            "matmul_batched: both sides need at least 2 axes: x[3] x y[3, 2]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_batched_at(HERE, X(3), Y(3, 2)));
    MISTAKE(SHAPE,
            "matmul: batch axes do not broadcast: x[3, 2, 3] x y[4, 3, 2]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_at(HERE, X(3, 2, 3), Y(4, 3, 2)));
    MISTAKE(DTYPE,
            "matmul: takes f32, not i32: n[3, 2] i32 (with x[2, 3])\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_matmul_at(HERE, X(2, 3), N(3, 2)));
    MISTAKE(LIMIT,
            "matmul: the result of x[65536, 1], y[1, 65536]: shape [65536, 65536] has 4294967296 elements, over the limit of "
            "2147483647\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_at(HERE, X(65536, 1), Y(1, 65536)));
    MISTAKE(SHAPE,
            "matmul_batched: batch axes do not broadcast: x[4, 2, 3] x y[5, 3, 2]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_batched_at(HERE, X(4, 2, 3), Y(5, 3, 2)));
    MISTAKE(SHAPE,
            "matmul_batched: inner dimensions differ: x[4, 2, 3] x y[4, 4, 2] (3 != 4)\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_matmul_batched_at(HERE, X(4, 2, 3), Y(4, 4, 2)));
    MISTAKE(DTYPE,
            "matmul_batched: takes f32, not bool: b[4, 2, 3] bool (with y[4, 3, 2])\n"
            "  b: input at model.c:4\n"
            "  y: input at model.c:2",
            tg_matmul_batched_at(HERE, B(4, 2, 3), Y(4, 3, 2)));
}

FAMILY(indexing) {
    MISTAKE(SHAPE,
            "embedding: the table needs 2 axes: x[4] by n[2] i32\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_embedding_at(HERE, X(4), N(2)));
    MISTAKE(DTYPE,
            "embedding: takes i32, not f32: y[2] (with x[4, 2])\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_embedding_at(HERE, X(4, 2), Y(2)));
    MISTAKE(DTYPE,
            "embedding: takes f32, not bool: b[4, 2] bool (with n[2] i32)\n"
            "  b: input at model.c:4\n"
            "  n: input at model.c:3",
            tg_embedding_at(HERE, B(4, 2), N(2)));
    MISTAKE(LIMIT,
            "embedding: the result of x[4, 2], n[1, 1, 1, 1, 1, 1, 1, 1] i32: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, "
            "over the limit of 8\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_embedding_at(HERE, X(4, 2), N(1, 1, 1, 1, 1, 1, 1, 1)));
    MISTAKE(DTYPE,
            "one_hot: takes i32, not f32: x[4]\n"
            "  x: input at model.c:1",
            tg_one_hot_at(HERE, X(4), 3, TG_F32));
    MISTAKE(SHAPE,
            "one_hot: the depth 0 is not at least 1: n[4] i32\n"
            "  n: input at model.c:3",
            tg_one_hot_at(HERE, N(4), 0, TG_F32));
    MISTAKE(LIMIT,
            "one_hot: the result of n[65536] i32: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647\n"
            "  n: input at model.c:3",
            tg_one_hot_at(HERE, N(65536), 65536, TG_F32));
    MISTAKE(DTYPE, "one_hot: 3 is not a dtype", tg_one_hot_at(HERE, N(4), 3, (tg_dtype)3));
}

static tg_tensor einsum_of(tg_graph *g, const char *equation, tg_tensor a, tg_tensor b) {
    const tg_tensor operands[2] = {a, b};
    (void)g;
    return tg_einsum_at(HERE, equation, operands, b.graph != NULL ? 2 : 1);
}

FAMILY(indexing_along_axes) {
    const tg_sort_options plain = {0};
    const tg_tensor none = {NULL, 0};
    MISTAKE(DTYPE,
            "gather: takes i32, not f32: y[2] (with x[2, 3])\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_gather_at(HERE, X(2, 3), Y(2), 0));
    MISTAKE(SHAPE,
            "gather: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_gather_at(HERE, X(2, 3), N(2), 2));
    MISTAKE(SHAPE,
            "take_along_axis: shapes differ beside axis 1: x[2, 3] by n[3, 1] i32\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_take_along_axis_at(HERE, X(2, 3), N(3, 1), 1));
    MISTAKE(SHAPE,
            "scatter_add: the updates need the shape [2, 4], that of a gather from x[2, 3] by n[4] i32 along axis 1: y[2, 3]\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3\n"
            "  y: input at model.c:2",
            tg_scatter_add_at(HERE, X(2, 3), N(4), Y(2, 3), 1));
    MISTAKE(DTYPE,
            "sort: takes f32 or i32, not bool: b[2] bool\n"
            "  b: input at model.c:4",
            tg_sort_at(HERE, B(2), 0, plain));
    MISTAKE(LIMIT,
            "argsort: the result of x[50000]: shape [1, 50000, 50000] has 2500000000 elements, over the limit of 2147483647\n"
            "  x: input at model.c:1",
            tg_argsort_at(HERE, X(50000), 0, plain));
    MISTAKE(ARGUMENT,
            "top_k: k = 4 is not in 1 .. 3: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_top_k_at(HERE, X(2, 3), 4, 1).indices);
    MISTAKE(SHAPE,
            "rope: needs [..., T, D] with an even D: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_rope_at(HERE, X(2, 3), (tg_rope_options){0}));
    MISTAKE(ARGUMENT,
            "rope: the base -1 is not over 0 and finite: x[2, 4]\n"
            "  x: input at model.c:1",
            tg_rope_at(HERE, X(2, 4), (tg_rope_options){.base = -1}));
    MISTAKE(SHAPE,
            "rope: the positions do not broadcast to all axes but the last: x[2, 4] at n[3] i32\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_rope_at(HERE, X(2, 4), (tg_rope_options){.positions = N(3)}));
    MISTAKE(SHAPE,
            "einsum: operand 1 has 1 axes for 2 labels in \"ij,jk\": y[3]\n"
            "  y: input at model.c:2",
            einsum_of(g, "ij,jk", X(2, 3), Y(3)));
    MISTAKE(SHAPE,
            "einsum: label j is 3 before and 4 in operand 1 of \"ij,jk\": y[4, 2]\n"
            "  y: input at model.c:2",
            einsum_of(g, "ij,jk", X(2, 3), Y(4, 2)));
    MISTAKE(SHAPE,
            "einsum: the axes of the ellipsis do not broadcast in operand 1 of \"...,...\": y[4]\n"
            "  y: input at model.c:2",
            einsum_of(g, "...,...", X(2, 3), Y(4)));
    MISTAKE(ARGUMENT, "einsum: \"ij\" has 1 terms for 2 operands", einsum_of(g, "ij", X(2, 3), Y(3, 2)));
    MISTAKE(ARGUMENT, "einsum: \"ij,j\" has more terms than the 1 operands", einsum_of(g, "ij,j", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: no operand has the label 'k' in \"ij->k\"", einsum_of(g, "ij->k", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: twice in the result: the label 'i' in \"ij->ii\"", einsum_of(g, "ij->ii", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: neither label, comma, ellipsis nor arrow: '1' in \"i1\"", einsum_of(g, "i1", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: a dot that is no ellipsis in \"i..\"", einsum_of(g, "i..", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: two ellipses in one term in \"...i...\"", einsum_of(g, "...i...", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: a dash that is no arrow in \"ij-k\"", einsum_of(g, "ij-k", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: behind the result: ',' in \"ij->i,j\"", einsum_of(g, "ij->i,j", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: the result lacks the ellipsis that an operand has in \"...j->j\"", einsum_of(g, "...j->j", X(2, 3), none));
    MISTAKE(ARGUMENT, "einsum: the equation is NULL", einsum_of(g, NULL, X(2, 3), none));
    MISTAKE(DTYPE,
            "einsum: takes f32, not i32: n[3] i32 (with x[2, 3])\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            einsum_of(g, "ij,j", X(2, 3), N(3)));
}

FAMILY(random) {
    MISTAKE(SHAPE, "rand: shape [2, 0] has a dimension under 1 (axis 1 is 0)", tg_rand_at(HERE, g, TG_SHAPE(2, 0)));
    MISTAKE(LIMIT, "randn: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647",
            tg_randn_at(HERE, g, TG_SHAPE(65536, 65536)));
    MISTAKE(ARGUMENT, "rand_int: [3, 3) is empty", tg_rand_int_at(HERE, g, TG_SHAPE(2), 3, 3));
    MISTAKE(ARGUMENT, "rand_int: [5, -5) is empty", tg_rand_int_at(HERE, g, TG_SHAPE(2), 5, -5));
    MISTAKE(ARGUMENT, "rand_int: [0, 2147483649) goes beyond i32", tg_rand_int_at(HERE, g, TG_SHAPE(2), 0, INT64_C(2147483649)));
    MISTAKE(ARGUMENT, "rand_int: [-2147483648, 1) holds more than 2^31 numbers", tg_rand_int_at(HERE, g, TG_SHAPE(2), INT32_MIN, 1));
    MISTAKE(ARGUMENT, "bernoulli: the probability is 1.5, not in [0, 1]", tg_bernoulli_at(HERE, g, TG_SHAPE(2), tg_operand_number_(1.5)));
    MISTAKE(ARGUMENT, "bernoulli: the probability is nan, not in [0, 1]",
            tg_bernoulli_at(HERE, g, TG_SHAPE(2), tg_operand_number_((double)NAN)));
    MISTAKE(DTYPE,
            "bernoulli: takes f32, not i32: n[4] i32\n"
            "  n: input at model.c:3",
            tg_bernoulli_at(HERE, g, TG_SHAPE(4), tg_operand_tensor_(N(4))));
    MISTAKE(SHAPE,
            "bernoulli: the probabilities x[4] do not broadcast to [4, 3]\n"
            "  x: input at model.c:1",
            tg_bernoulli_at(HERE, g, TG_SHAPE(4, 3), tg_operand_tensor_(X(4))));
    MISTAKE(SHAPE,
            "bernoulli: the probabilities x[2, 4] do not broadcast to [4]\n"
            "  x: input at model.c:1",
            tg_bernoulli_at(HERE, g, TG_SHAPE(4), tg_operand_tensor_(X(2, 4))));
    MISTAKE(DTYPE,
            "categorical: takes f32, not bool: b[4] bool\n"
            "  b: input at model.c:4",
            tg_categorical_at(HERE, B(4), 0));
    MISTAKE(SHAPE,
            "categorical: axis 1 is not in -1 .. 0: x[4]\n"
            "  x: input at model.c:1",
            tg_categorical_at(HERE, X(4), 1));
    MISTAKE(ARGUMENT,
            "dropout: p is 1, not in [0, 1): x[4]\n"
            "  x: input at model.c:1",
            tg_dropout_at(HERE, X(4), 1));
    MISTAKE(ARGUMENT,
            "dropout: p is -0.1, not in [0, 1): x[4]\n"
            "  x: input at model.c:1",
            tg_dropout_at(HERE, X(4), -0.1));
    MISTAKE(ARGUMENT,
            "dropout: p is nan, not in [0, 1): x[4]\n"
            "  x: input at model.c:1",
            tg_dropout_at(HERE, X(4), (double)NAN));
    MISTAKE(DTYPE,
            "dropout: takes f32, not i32: n[4] i32\n"
            "  n: input at model.c:3",
            tg_dropout_at(HERE, N(4), 0.5));
}

FAMILY(softmax) {
    MISTAKE(DTYPE,
            "softmax: takes f32, not i32: n[4] i32\n"
            "  n: input at model.c:3",
            tg_softmax_at(HERE, N(4), 0));
    MISTAKE(SHAPE,
            "log_softmax: axis 1 is not in -1 .. 0: x[4]\n"
            "  x: input at model.c:1",
            tg_log_softmax_at(HERE, X(4), 1));
    MISTAKE(SHAPE,
            "logsumexp: axis -1 of a tensor without axes: s[]\n"
            "  s: input at model.c:5",
            tg_logsumexp_at(HERE, S, -1));
    MISTAKE(SHAPE,
            "softmax_causal_last: the last two axes need one size: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_softmax_causal_last_at(HERE, X(2, 3)));
    MISTAKE(SHAPE,
            "where_causal: the last two axes need one size: x[3]\n"
            "  x: input at model.c:1",
            tg_where_causal_at(HERE, X(3), 0));
    MISTAKE(DTYPE,
            "where_causal: the number 0.5 does not fit i32: n[3, 3] i32\n"
            "  n: input at model.c:3",
            tg_where_causal_at(HERE, N(3, 3), 0.5));
    MISTAKE(DTYPE,
            "masked_softmax: takes bool, not f32: y[3] (with x[2, 3])\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_masked_softmax_at(HERE, X(2, 3), Y(3), 1));
    MISTAKE(SHAPE,
            "masked_softmax: the mask does not broadcast to the operand: x[1, 3] and b[2, 3] bool\n"
            "  x: input at model.c:1\n"
            "  b: input at model.c:4",
            tg_masked_softmax_at(HERE, X(1, 3), B(2, 3), 1));
    MISTAKE(SHAPE,
            "masked_softmax: axis 2 is not in -2 .. 1: x[2, 3]\n"
            "  x: input at model.c:1",
            tg_masked_softmax_at(HERE, X(2, 3), B(3), 2));
    MISTAKE(SHAPE,
            "tril: needs at least 2 axes: x[3]\n"
            "  x: input at model.c:1",
            tg_tril_at(HERE, X(3), 0));
}

/* ---------------------------------------------------------------- layers, losses */

static tg_linear linear_of(tg_graph *g, int64_t in, int64_t out) {
    return tg_nn_linear_at(tg_site_make("model.c", 20), g, "l1", in, out, (tg_linear_options){0});
}

static tg_layer_norm norm_of(tg_graph *g, int64_t dim) {
    return tg_nn_layer_norm_at(tg_site_make("model.c", 21), g, "ln", dim, (tg_layer_norm_options){0});
}

FAMILY(layers) {
    MISTAKE(SHAPE,
            "linear: inner dimensions differ: x[256, 32] x l1.W[64, 10] (32 != 64)\n"
            "  x: input at model.c:1\n"
            "  l1.W: parameter at model.c:20",
            tg_nn_linear_fwd_at(HERE, linear_of(g, 64, 10), X(256, 32)));
    MISTAKE(DTYPE,
            "linear: takes f32, not i32: n[256, 64] i32 (with l1.W[64, 10], l1.b[10])\n"
            "  n: input at model.c:3\n"
            "  l1.W: parameter at model.c:20\n"
            "  l1.b: parameter at model.c:20",
            tg_nn_linear_fwd_at(HERE, linear_of(g, 64, 10), N(256, 64)));
    MISTAKE(SHAPE,
            "linear: the input needs at least 1 axis and W needs 2: s[] x l1.W[64, 10]\n"
            "  s: input at model.c:5\n"
            "  l1.W: parameter at model.c:20",
            tg_nn_linear_fwd_at(HERE, linear_of(g, 64, 10), S));
    MISTAKE(SHAPE,
            "linear: the bias y[2] does not fit x[2, 3]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_nn_linear_fwd_at(HERE, (tg_linear){X(2, 3), Y(2), true}, input_of(g, "z", 6, TG_SHAPE(2), TG_F32)));
    MISTAKE(SHAPE, "linear l1: both sizes need to be at least 1: 0 -> 4", tg_nn_linear_at(HERE, g, "l1", 0, 4, (tg_linear_options){0}).W);
    MISTAKE(SHAPE, "embedding t: both sizes need to be at least 1: 0 rows of 4",
            tg_nn_embedding_at(HERE, g, "t", 0, 4, (tg_embedding_options){0}).W);
    MISTAKE(ARGUMENT, "embedding: the name is empty", tg_nn_embedding_at(HERE, g, "", 3, 4, (tg_embedding_options){0}).W);
    MISTAKE(ARGUMENT, "linear: the name is empty", tg_nn_linear_at(HERE, g, "", 3, 4, (tg_linear_options){0}).W);
    MISTAKE(DUPLICATE, "param l1.W: the name is used twice: at model.c:20 and at model.c:99",
            (linear_of(g, 3, 4), tg_nn_linear_at(HERE, g, "l1", 3, 4, (tg_linear_options){0}).W));
    MISTAKE(SHAPE,
            "layer_norm: the last axis does not fit: x[2, 4] with ln.g[8] and ln.b[8]\n"
            "  x: input at model.c:1\n"
            "  ln.g: parameter at model.c:21\n"
            "  ln.b: parameter at model.c:21",
            tg_nn_layer_norm_fwd_at(HERE, norm_of(g, 8), X(2, 4)));
    MISTAKE(SHAPE, "layer_norm ln: the size needs to be at least 1, not -1",
            tg_nn_layer_norm_at(HERE, g, "ln", -1, (tg_layer_norm_options){0}).g);
    MISTAKE(ARGUMENT, "layer_norm ln: eps is -1", tg_nn_layer_norm_at(HERE, g, "ln", 4, (tg_layer_norm_options){.eps = -1}).g);
    MISTAKE(ARGUMENT, "layer_norm: the name is NULL", tg_nn_layer_norm_at(HERE, g, NULL, 4, (tg_layer_norm_options){0}).g);
    MISTAKE(SHAPE,
            "split_heads: the last axis does not divide into 4 heads: x[2, 3, 10]\n"
            "  x: input at model.c:1",
            tg_nn_split_heads_at(HERE, X(2, 3, 10), 4));
    MISTAKE(SHAPE,
            "split_heads: needs 2 axes at least, [..., T, H d]: x[3]\n"
            "  x: input at model.c:1",
            tg_nn_split_heads_at(HERE, X(3), 1));
    MISTAKE(LIMIT,
            "split_heads: the result of x[1, 1, 1, 1, 1, 1, 1, 2]: shape [1, 1, 1, 1, 1, 1, 1, 2, ...] has rank 9, over the limit of 8\n"
            "  x: input at model.c:1",
            tg_nn_split_heads_at(HERE, X(1, 1, 1, 1, 1, 1, 1, 2), 2));
    MISTAKE(SHAPE,
            "merge_heads: needs 3 axes at least, [..., H, T, d]: x[3, 4]\n"
            "  x: input at model.c:1",
            tg_nn_merge_heads_at(HERE, X(3, 4)));
}

/* x[..] by y[..]: origins of both. */
#define BY(text) text "\n  x: input at model.c:1\n  y: input at model.c:2"
#define OF(text) text "\n  x: input at model.c:1"
#define CONV2(x, y, ...) tg_conv2d_at(HERE, x, y, (tg_conv_options){__VA_ARGS__})
#define BACK2(x, y, ...) tg_conv_transpose2d_at(HERE, x, y, (tg_conv_options){__VA_ARGS__})
#define POOL2(x, h, w, ...) tg_max_pool2d_at(HERE, x, h, w, (tg_pool_options){__VA_ARGS__})

static tg_recurrent gru_of(tg_graph *g, int64_t in, int64_t hidden) {
    return tg_nn_gru_at(tg_site_make("model.c", 22), g, "l", in, hidden, (tg_recurrent_options){0});
}
#define Z(...) input_of(g, "z", 6, TG_SHAPE(__VA_ARGS__), TG_F32)

static tg_batch_norm batch_norm_of(tg_graph *g, int64_t channels) {
    return tg_nn_batch_norm_at(tg_site_make("model.c", 23), g, "bn", channels, (tg_batch_norm_options){0});
}
static tg_tensor batch_norm_twice(tg_graph *g) {
    const tg_batch_norm l = batch_norm_of(g, 3);
    const tg_tensor x = X(2, 3);
    return tg_nn_batch_norm_fwd_at(HERE, l, tg_nn_batch_norm_fwd_at(tg_site_make("model.c", 24), l, x, true), true);
}

FAMILY(attention) {
    const tg_attention_options plain = {0};
    const int64_t sizes[] = {3, 4};
    MISTAKE(SHAPE, "attention a: 6 does not divide into 4 heads", tg_nn_attention_at(HERE, g, "a", 6, 4, plain).q.W);
    MISTAKE(SHAPE, "attention a: 4 heads do not divide among 3 of keys",
            tg_nn_attention_at(HERE, g, "a", 8, 4, (tg_attention_options){.kv_heads = 3}).q.W);
    MISTAKE(ARGUMENT, "attention a: sizes need to be at least 1: 8 in 0 heads, 0 of keys",
            tg_nn_attention_at(HERE, g, "a", 8, 0, plain).q.W);
    MISTAKE(SHAPE, "attention a: rope needs heads of an even size, not 3",
            tg_nn_attention_at(HERE, g, "a", 6, 2, (tg_attention_options){.rope_base = 100}).q.W);
    MISTAKE(ARGUMENT, "attention a: the context needs to be at least 1 number, not -3",
            tg_nn_attention_at(HERE, g, "a", 4, 2, (tg_attention_options){.context = -3}).q.W);
    MISTAKE(ARGUMENT, "conv1d c: the stride needs to be at least 1, not -2",
            tg_nn_conv1d_at(HERE, g, "c", 4, 2, 3, (tg_conv_layer_options){.stride = {-2}}).W);
    MISTAKE(ARGUMENT, "conv1d c: padding needs to be at least 0, not -1",
            tg_nn_conv1d_at(HERE, g, "c", 4, 2, 3, (tg_conv_layer_options){.padding = tg_padding_all(-1)}).W);
    MISTAKE(ARGUMENT, "attention a: the rope base is -1, not over 0 and finite",
            tg_nn_attention_at(HERE, g, "a", 8, 2, (tg_attention_options){.rope_base = -1}).q.W);
    MISTAKE(SHAPE, BY("attention: needs [B, H, T, d] by [B, Hk, S, d], Hk dividing H: x[2, 4, 3, 2] by y[2, 3, 3, 2]"),
            tg_nn_attention_weights_at(HERE, X(2, 4, 3, 2), Y(2, 3, 3, 2), (tg_attention_mask){0}));
    MISTAKE(SHAPE, BY("attention: needs [B, H, T, S] by [B, Hk, S, d], Hk dividing H: x[2, 4, 3, 2] by y[2, 4, 3, 2]"),
            tg_nn_attention_values_at(HERE, X(2, 4, 3, 2), Y(2, 4, 3, 2)));
    MISTAKE(SHAPE, OF("attention: causal attention needs as many keys as queries: 5 and 3"),
            tg_nn_attention_weights_at(HERE, X(2, 4, 3, 2), Y(2, 4, 5, 2), (tg_attention_mask){.causal = true}));
    MISTAKE(
        SHAPE, BY("attention: needs [B, H, T, d] by [B, Hk, S, d], Hk dividing H: x[2, 4, 3, 2] by y[2, 3, 3, 2]"),
        tg_nn_attend_at(HERE, X(2, 4, 3, 2), Y(2, 3, 3, 2), tg_full_at(HERE, g, TG_SHAPE(2, 3, 3, 2), 1, TG_F32), (tg_attention_mask){0}));
    MISTAKE(
        SHAPE, BY("attention: keys and values need one shape: x[2, 4, 3, 2] and y[2, 4, 5, 2]"),
        tg_nn_attend_at(HERE, tg_full_at(HERE, g, TG_SHAPE(2, 4, 3, 2), 1, TG_F32), X(2, 4, 3, 2), Y(2, 4, 5, 2), (tg_attention_mask){0}));
    MISTAKE(ARGUMENT, "mlp m: 1 sizes given: at least 2 are needed, of the input and the output",
            tg_nn_mlp_at(HERE, g, "m", sizes, 1, (tg_mlp_options){0}).layers[0].W);
    MISTAKE(ARGUMENT, "mlp: 0 layers: 1 to 16 are possible: x[3]\n  x: input at model.c:1", tg_nn_mlp_fwd_at(HERE, (tg_mlp){0}, X(3)));
    MISTAKE(ARGUMENT, "mlp: 99 layers: 1 to 16 are possible: x[3]\n  x: input at model.c:1",
            tg_nn_mlp_fwd_at(HERE, (tg_mlp){.count = 99}, X(3)));
    MISTAKE(LIMIT, "mlp m: 18 sizes given: more than 16 layers", tg_nn_mlp_at(HERE, g, "m", sizes, 18, (tg_mlp_options){0}).layers[0].W);
}

FAMILY(norms) {
    MISTAKE(SHAPE, "rms_norm n: the size needs to be at least 1, not 0", tg_nn_rms_norm_at(HERE, g, "n", 0, (tg_rms_norm_options){0}).g);
    MISTAKE(ARGUMENT, "rms_norm n: eps is -1", tg_nn_rms_norm_at(HERE, g, "n", 3, (tg_rms_norm_options){.eps = -1}).g);
    MISTAKE(SHAPE, BY("rms_norm: the last axis does not fit: x[2, 4] with y[3]"),
            tg_nn_rms_norm_fwd_at(HERE, (tg_rms_norm){Y(3), 1e-5}, X(2, 4)));
    MISTAKE(SHAPE, "group_norm n: 6 channels do not divide into 4 groups",
            tg_nn_group_norm_at(HERE, g, "n", 4, 6, (tg_group_norm_options){0}).g);
    MISTAKE(ARGUMENT, "group_norm n: 6 channels do not divide into 0 groups",
            tg_nn_group_norm_at(HERE, g, "n", 0, 6, (tg_group_norm_options){0}).g);
    MISTAKE(ARGUMENT, "group_norm n: eps is inf", tg_nn_group_norm_at(HERE, g, "n", 2, 6, (tg_group_norm_options){.eps = INFINITY}).g);
    MISTAKE(SHAPE, BY("group_norm: axis 1 of [N, C, ...] does not fit: x[6] with y[6]"),
            tg_nn_group_norm_fwd_at(HERE, (tg_group_norm){Y(6), Z(6), 2, 1e-5}, X(6)));
    MISTAKE(ARGUMENT, "batch_norm bn: the momentum is 1.5, not in [0, 1]",
            tg_nn_batch_norm_at(HERE, g, "bn", 6, (tg_batch_norm_options){.momentum = 1.5}).g);
    MISTAKE(ARGUMENT, "batch_norm bn: eps is -1", tg_nn_batch_norm_at(HERE, g, "bn", 6, (tg_batch_norm_options){.eps = -1}).g);
    MISTAKE(SHAPE,
            "batch_norm: axis 1 of [N, C, ...] does not fit: x[2, 4] with bn.g[3]\n"
            "  x: input at model.c:1\n"
            "  bn.g: parameter at model.c:23",
            tg_nn_batch_norm_fwd_at(HERE, batch_norm_of(g, 3), X(2, 4), true));
    MISTAKE(SHAPE, OF("batch_norm: training needs at least 2 numbers for each channel: x[1, 3, 1, 1]"),
            tg_nn_batch_norm_fwd_at(HERE, batch_norm_of(g, 3), X(1, 3, 1, 1), true));
    MISTAKE(DUPLICATE,
            "writeback: bn.mean[3] is written twice: at model.c:24 and at model.c:99\n"
            "  bn.mean: state at model.c:23",
            batch_norm_twice(g));
}

FAMILY(recurrent_layers) {
    const tg_tensor none = {NULL, 0};
    MISTAKE(SHAPE, "gru l: both sizes need to be at least 1: 3 -> 0", tg_nn_gru_at(HERE, g, "l", 3, 0, (tg_recurrent_options){0}).Wx);
    MISTAKE(ARGUMENT, "lstm: the name is empty", tg_nn_lstm_at(HERE, g, "", 3, 4, (tg_recurrent_options){0}).Wx);
    MISTAKE(ARGUMENT, "lstm l: relu belongs to rnn: lstm has its own activations",
            tg_nn_lstm_at(HERE, g, "l", 3, 4, (tg_recurrent_options){.relu = true}).Wx);
    MISTAKE(SHAPE,
            "gru: the input needs to be [B, T, 3]: x[2, 3] with l.Wx[3, 12]\n"
            "  x: input at model.c:1\n"
            "  l.Wx: parameter at model.c:22",
            tg_nn_gru_fwd_at(HERE, gru_of(g, 3, 4), X(2, 3), (tg_recurrent_start){0}));
    MISTAKE(SHAPE,
            "gru: the input needs to be [B, 3]: x[2, 5] with l.Wx[3, 12]\n"
            "  x: input at model.c:1\n"
            "  l.Wx: parameter at model.c:22",
            tg_nn_gru_step_at(HERE, gru_of(g, 3, 4), X(2, 5), Y(2, 4)));
    MISTAKE(SHAPE, "gru: the hidden state needs to be [2, 4]: y[1, 4] beside x[2, 7, 3]\n  y: input at model.c:2\n  x: input at model.c:1",
            tg_nn_gru_fwd_at(HERE, gru_of(g, 3, 4), X(2, 7, 3), (tg_recurrent_start){.h0 = Y(1, 4)}));
    MISTAKE(ARGUMENT, "gru: c0 belongs to lstm: gru has no cell state",
            tg_nn_gru_fwd_at(HERE, gru_of(g, 3, 4), X(2, 7, 3), (tg_recurrent_start){.c0 = Y(2, 4)}));
    MISTAKE(SHAPE,
            "lstm: the weights need to be [in, 4 h] and [h, 4 h]: l.Wx[3, 12] and l.Wh[4, 12]\n"
            "  l.Wx: parameter at model.c:22\n"
            "  l.Wh: parameter at model.c:22",
            tg_nn_lstm_step_at(HERE, gru_of(g, 3, 4), X(2, 3), (tg_lstm_states){Y(2, 4), Z(2, 4)}).h);
    tg_recurrent short_bias = gru_of(g, 3, 4);
    short_bias.bh = Z(4);
    MISTAKE(SHAPE, "gru: a bias needs 12 elements: z[4]\n  z: input at model.c:6",
            tg_nn_gru_fwd_at(HERE, short_bias, X(2, 7, 3), (tg_recurrent_start){0}));
    MISTAKE(DTYPE,
            "rnn: takes f32, not i32: n[2, 7, 3] i32 (with x[3, 4], y[4, 4])\n"
            "  n: input at model.c:3\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_nn_rnn_fwd_at(HERE, (tg_recurrent){X(3, 4), Y(4, 4), none, none, false, false}, N(2, 7, 3), (tg_recurrent_start){0}));
}

FAMILY(convolutions) {
    MISTAKE(SHAPE, OF("conv2d: the kernel covers 5, more than the 4 of axis 2 with its padding: x[1, 3, 2, 8]"),
            CONV2(X(1, 3, 2, 8), Y(4, 3, 5, 5), .padding = tg_padding_all(1)));
    MISTAKE(SHAPE, OF("conv1d: the kernel covers 9, more than the 8 of axis 2 with its padding: x[1, 3, 8]"),
            tg_conv1d_at(HERE, X(1, 3, 8), Y(4, 3, 5), (tg_conv_options){.dilation = {2}}));
    MISTAKE(SHAPE, BY("conv2d: channels do not divide into 2 groups: x[1, 3, 8, 8] by y[4, 3, 3, 3]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .groups = 2));
    MISTAKE(SHAPE, BY("conv2d: channels do not divide into 2 groups: x[1, 4, 8, 8] by y[3, 2, 3, 3]"),
            CONV2(X(1, 4, 8, 8), Y(3, 2, 3, 3), .groups = 2));
    MISTAKE(SHAPE, BY("conv2d: channels differ: x[1, 3, 8, 8] by y[4, 4, 3, 3] in 1 group (3 != 4)"),
            CONV2(X(1, 3, 8, 8), Y(4, 4, 3, 3), .groups = 1));
    MISTAKE(SHAPE, BY("conv2d: channels differ: x[1, 4, 8, 8] by y[4, 4, 3, 3] in 2 groups (2 != 4)"),
            CONV2(X(1, 4, 8, 8), Y(4, 4, 3, 3), .groups = 2));
    MISTAKE(ARGUMENT, BY("conv2d: groups need to be at least 1, not -1: x[1, 4, 8, 8] by y[4, 4, 3, 3]"),
            CONV2(X(1, 4, 8, 8), Y(4, 4, 3, 3), .groups = -1));
    MISTAKE(SHAPE, BY("conv2d: needs 4 axes, [N, C, H, W] by [O, C, kh, kw]: x[3, 8, 8] by y[4, 3, 3, 3]"),
            CONV2(X(3, 8, 8), Y(4, 3, 3, 3), 0));
    MISTAKE(SHAPE, BY("conv1d: needs 3 axes, [N, C, L] by [O, C, k]: x[1, 3, 8, 8] by y[4, 3, 3, 3]"),
            tg_conv1d_at(HERE, X(1, 3, 8, 8), Y(4, 3, 3, 3), (tg_conv_options){0}));
    MISTAKE(DTYPE,
            "conv2d: takes f32, not i32: n[4, 3, 3, 3] i32 (with x[1, 3, 8, 8])\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            CONV2(X(1, 3, 8, 8), N(4, 3, 3, 3), 0));
    MISTAKE(ARGUMENT, OF("conv2d: the stride needs to be at least 1, not -1: x[1, 3, 8, 8]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .stride = {1, -1}));
    MISTAKE(ARGUMENT, OF("conv2d: the dilation needs to be at least 1, not -2: x[1, 3, 8, 8]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .dilation = {-2}));
    MISTAKE(ARGUMENT, OF("conv2d: padding needs to be at least 0, not -1 and 2: x[1, 3, 8, 8]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .padding = tg_padding_sides(1, 1, -1, 2)));
    MISTAKE(ARGUMENT, OF("conv2d: padding 'same' needs stride 1, not 2: x[1, 3, 8, 8]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .padding = tg_padding_same(), .stride = {2}));
    MISTAKE(ARGUMENT, BY("conv2d: output_padding belongs to a transposed convolution: x[1, 3, 8, 8] by y[4, 3, 3, 3]"),
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .output_padding = {0, 1}));
    MISTAKE(SHAPE,
            "conv2d: the bias needs 4 elements, one for each channel: s[] with y[4, 3, 3, 3]\n"
            "  y: input at model.c:2\n"
            "  s: input at model.c:5",
            CONV2(X(1, 3, 8, 8), Y(4, 3, 3, 3), .bias = S));
    MISTAKE(SHAPE, BY("conv_transpose2d: channels differ: x[1, 3, 8, 8] by y[4, 3, 3, 3] in 1 group (3 != 4)"),
            BACK2(X(1, 3, 8, 8), Y(4, 3, 3, 3), 0));
    MISTAKE(SHAPE, BY("conv_transpose2d: channels do not divide into 2 groups: x[1, 3, 8, 8] by y[3, 3, 3, 3]"),
            BACK2(X(1, 3, 8, 8), Y(3, 3, 3, 3), .groups = 2));
    MISTAKE(ARGUMENT,
            BY("conv_transpose2d: output_padding needs to be at least 0 and under the stride or the dilation, not 2: x[1, 3, 8, 8] by "
               "y[3, 3, 3, 3]"),
            BACK2(X(1, 3, 8, 8), Y(3, 3, 3, 3), .stride = {2}, .output_padding = {0, 2}));
    MISTAKE(SHAPE, BY("conv_transpose2d: the padding leaves -1 elements of axis 3: x[1, 3, 8, 2] by y[3, 3, 3, 2]"),
            BACK2(X(1, 3, 8, 2), Y(3, 3, 3, 2), .padding = tg_padding_all(2)));
    MISTAKE(ARGUMENT, OF("conv1d: the stride has a second number, 1, and there is one axis: x[1, 3, 8]"),
            tg_conv1d_at(HERE, X(1, 3, 8), Y(4, 3, 3), (tg_conv_options){.stride = {2, 1}}));
    MISTAKE(ARGUMENT, OF("conv1d: the dilation has a second number, 2, and there is one axis: x[1, 3, 8]"),
            tg_conv1d_at(HERE, X(1, 3, 8), Y(4, 3, 3), (tg_conv_options){.dilation = {1, 2}}));
    MISTAKE(ARGUMENT, OF("conv1d: padding has a second number, 2, and there is one axis: x[1, 3, 8]"),
            tg_conv1d_at(HERE, X(1, 3, 8), Y(4, 3, 3), (tg_conv_options){.padding = tg_padding_axes(1, 2)}));
    MISTAKE(ARGUMENT, OF("conv_transpose1d: output_padding has a second number, 1, and there is one axis: x[1, 3, 8]"),
            tg_conv_transpose1d_at(HERE, X(1, 3, 8), Y(3, 4, 3), (tg_conv_options){.stride = {2}, .output_padding = {0, 1}}));
    MISTAKE(LIMIT,
            OF("conv2d: 512 planes of 998 x 998 windows of 3 x 3 hold more than 2147483647 elements in all, however few are stored: "
               "x[1, 512, 1000, 1000]"),
            CONV2(X(1, 512, 1000, 1000), Y(1, 512, 3, 3), 0));
    MISTAKE(LIMIT,
            OF("conv_transpose2d: 512 planes of 1000 x 1000 windows of 3 x 3 hold more than 2147483647 elements in all, however few are "
               "stored: x[1, 1, 1000, 1000]"),
            BACK2(X(1, 1, 1000, 1000), Y(1, 512, 3, 3), 0));
    MISTAKE(SHAPE, "conv2d c: channels and kernel need to be at least 1: 3 -> 0, 3 x 3",
            tg_nn_conv2d_at(HERE, g, "c", 3, 0, 3, 3, (tg_conv_layer_options){0}).W);
    MISTAKE(SHAPE, "conv1d c: channels do not divide into 2 groups: 3 -> 4",
            tg_nn_conv1d_at(HERE, g, "c", 3, 4, 3, (tg_conv_layer_options){.groups = 2}).W);
    MISTAKE(ARGUMENT, "conv_transpose2d c: channels do not divide into -2 groups: 2 -> 4",
            tg_nn_conv_transpose2d_at(HERE, g, "c", 2, 4, 3, 3, (tg_conv_layer_options){.groups = -2}).W);
}

FAMILY(pools) {
    MISTAKE(SHAPE, OF("max_pool2d: the kernel covers 3, more than the 2 of axis 3 with its padding: x[1, 3, 8, 2]"),
            POOL2(X(1, 3, 8, 2), 3, 3, 0));
    MISTAKE(ARGUMENT, OF("max_pool2d: padding 2 needs to be under the kernel 3 x 2: a window would hold nothing else: x[1, 3, 8, 8]"),
            POOL2(X(1, 3, 8, 8), 3, 2, .padding = tg_padding_sides(1, 1, 0, 2)));
    MISTAKE(ARGUMENT, OF("avg_pool1d: padding 2 needs to be under the kernel 2: a window would hold nothing else: x[1, 3, 8]"),
            tg_avg_pool1d_at(HERE, X(1, 3, 8), 2, (tg_pool_options){.padding = tg_padding_all(2)}));
    MISTAKE(ARGUMENT, OF("max_pool2d: the kernel needs to be at least 1, not 2 x 0: x[1, 3, 8, 8]"), POOL2(X(1, 3, 8, 8), 2, 0, 0));
    MISTAKE(ARGUMENT, OF("avg_pool2d: the stride needs to be at least 1, not -1: x[1, 3, 8, 8]"),
            tg_avg_pool2d_at(HERE, X(1, 3, 8, 8), 2, 2, (tg_pool_options){.stride = {-1}}));
    MISTAKE(SHAPE, OF("max_pool1d: needs 3 axes, [N, C, L]: x[3, 8]"), tg_max_pool1d_at(HERE, X(3, 8), 2, (tg_pool_options){0}));
    MISTAKE(DTYPE,
            "avg_pool2d: takes f32, not i32: n[1, 3, 8, 8] i32\n"
            "  n: input at model.c:3",
            tg_avg_pool2d_at(HERE, N(1, 3, 8, 8), 2, 2, (tg_pool_options){0}));
    /* refused before anything is computed for windows that no memory holds */
    MISTAKE(LIMIT,
            OF("avg_pool2d: 1 planes of 32770 x 32770 windows of 32769 x 32769 hold more than 2147483647 elements in all, however few are "
               "stored: x[1, 1, 2, 2]"),
            tg_avg_pool2d_at(HERE, X(1, 1, 2, 2), 32769, 32769, (tg_pool_options){.stride = {1}, .padding = tg_padding_all(32768)}));
    MISTAKE(LIMIT,
            OF("max_pool1d: 64 planes of 40000 windows of 40001 hold more than 2147483647 elements in all, however few are stored: "
               "x[1, 64, 80000]"),
            tg_max_pool1d_at(HERE, X(1, 64, 80000), 40001, (tg_pool_options){.stride = {1}}));
    MISTAKE(ARGUMENT, OF("max_pool1d: the stride has a second number, 3, and there is one axis: x[1, 3, 8]"),
            tg_max_pool1d_at(HERE, X(1, 3, 8), 2, (tg_pool_options){.stride = {2, 3}}));
    MISTAKE(ARGUMENT, OF("avg_pool1d: padding has a second number, 2, and there is one axis: x[1, 3, 8]"),
            tg_avg_pool1d_at(HERE, X(1, 3, 8), 3, (tg_pool_options){.padding = tg_padding_sides(1, 1, 0, 2)}));
    MISTAKE(ARGUMENT, OF("upsample_nearest: the factor has a second number, 3, and there is one axis: x[1, 3, 8]"),
            tg_upsample_nearest_at(HERE, X(1, 3, 8), (tg_upsample_options){.factor = {2, 3}}));
    MISTAKE(SHAPE, OF("global_avg_pool: needs axes behind [N, C]: x[3, 8]"), tg_global_avg_pool_at(HERE, X(3, 8)));
    MISTAKE(SHAPE, OF("upsample_nearest: needs 3 or 4 axes, [N, C, L] or [N, C, H, W]: x[3, 8]"),
            tg_upsample_nearest_at(HERE, X(3, 8), (tg_upsample_options){0}));
    MISTAKE(ARGUMENT, OF("upsample_bilinear: the factor needs to be at least 1, not -2: x[1, 3, 8, 8]"),
            tg_upsample_bilinear_at(HERE, X(1, 3, 8, 8), (tg_upsample_options){.factor = {2, -2}}));
    MISTAKE(ARGUMENT, OF("upsample_nearest: align_corners belongs to upsample_bilinear: x[1, 3, 8, 8]"),
            tg_upsample_nearest_at(HERE, X(1, 3, 8, 8), (tg_upsample_options){.align_corners = true}));
}

FAMILY(losses) {
    MISTAKE(SHAPE,
            "cross_entropy_last: the targets need the logits' shape without its last axis: x[2, 3, 9] and n[2] i32\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_nn_cross_entropy_last_at(HERE, X(2, 3, 9), N(2)));
    MISTAKE(SHAPE,
            "cross_entropy: the targets need the logits' shape without its last axis: s[] and n[] i32\n"
            "  s: input at model.c:5\n"
            "  n: input at model.c:3",
            tg_nn_cross_entropy_at(HERE, S, input_of(g, "n", 3, TG_SCALAR, TG_I32), -1, (tg_cross_entropy_options){0}));
    MISTAKE(DTYPE,
            "cross_entropy: takes i32, not f32: y[2] (with x[2, 9])\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_nn_cross_entropy_at(HERE, X(2, 9), Y(2), -1, (tg_cross_entropy_options){0}));
    MISTAKE(DTYPE,
            "cross_entropy_last: takes f32, not bool: b[2, 9] bool (with n[2] i32)\n"
            "  b: input at model.c:4\n"
            "  n: input at model.c:3",
            tg_nn_cross_entropy_last_at(HERE, B(2, 9), N(2)));
    MISTAKE(SHAPE,
            "mse: shapes differ (a loss does not broadcast): x[2, 1] and y[2]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_nn_mse_at(HERE, X(2, 1), Y(2), (tg_loss_options){0}));
    MISTAKE(DTYPE,
            "mse: takes f32, not i32: n[2] i32 (with x[2])\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_nn_mse_at(HERE, X(2), N(2), (tg_loss_options){0}));
    MISTAKE(SHAPE,
            "bce_with_logits: shapes differ (a loss does not broadcast): x[2] and y[1]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            tg_nn_bce_with_logits_at(HERE, X(2), Y(1), (tg_bce_options){0}));
    MISTAKE(SHAPE, BY("l1: shapes differ (a loss does not broadcast): x[2] and y[2, 1]"),
            tg_nn_l1_at(HERE, X(2), Y(2, 1), (tg_loss_options){0}));
    MISTAKE(SHAPE, BY("huber: shapes differ (a loss does not broadcast): x[2] and y[2, 1]"),
            tg_nn_huber_at(HERE, X(2), Y(2, 1), (tg_huber_options){0}));
    MISTAKE(SHAPE, BY("kl_div: shapes differ (a loss does not broadcast): x[2, 3] and y[3]"),
            tg_nn_kl_div_at(HERE, X(2, 3), Y(3), (tg_kl_options){0}));
    MISTAKE(ARGUMENT, "huber: delta is -1, not over 0 and finite", tg_nn_huber_at(HERE, X(2), Y(2), (tg_huber_options){.delta = -1}));
    MISTAKE(ARGUMENT, "mse: 7 is no reduction: mean is 0, sum 1, none 2",
            tg_nn_mse_at(HERE, X(2), Y(2), (tg_loss_options){.reduction = (tg_reduction)7}));
    MISTAKE(ARGUMENT, "cross_entropy: the label smoothing is 1, not in [0, 1)",
            tg_nn_cross_entropy_at(HERE, X(2, 9), N(2), -1, (tg_cross_entropy_options){.label_smoothing = 1}));
    MISTAKE(ARGUMENT, "cross_entropy: the label smoothing is nan, not in [0, 1)",
            tg_nn_cross_entropy_at(HERE, X(2, 9), N(2), -1, (tg_cross_entropy_options){.label_smoothing = (double)NAN}));
    MISTAKE(SHAPE,
            "nll: the targets need the logits' shape without its last axis: x[2, 9] and n[9] i32\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            tg_nn_nll_at(HERE, X(2, 9), N(9), -1, (tg_loss_options){0}));
    MISTAKE(SHAPE,
            "bce_with_logits: the positive weight does not broadcast to the logits: z[2] and x[2, 3]\n"
            "  z: input at model.c:6\n"
            "  x: input at model.c:1",
            tg_nn_bce_with_logits_at(HERE, X(2, 3), Y(2, 3), (tg_bce_options){.positive_weight = Z(2)}));
}

/* ---------------------------------------------------------------- leaves */

FAMILY(leaves) {
    const tg_param_options none = {0};
    const float data[2] = {1, 2};
    const uint8_t flags[2] = {1, 2};
    MISTAKE(SHAPE, "param w: shape [0, 3] has a dimension under 1 (axis 0 is 0)", tg_param_at(HERE, g, "w", TG_SHAPE(0, 3), none));
    MISTAKE(LIMIT, "param w: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647",
            tg_param_at(HERE, g, "w", TG_SHAPE(65536, 65536), none));
    MISTAKE(LIMIT, "input x: shape [46341, 46341] has 2147488281 elements, over the limit of 2147483647",
            tg_input_at(HERE, g, "x", TG_SHAPE(46341, 46341), TG_F32));
    MISTAKE(LIMIT, "input x: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, over the limit of 8",
            tg_input_at(HERE, g, "x", TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), TG_F32));
    MISTAKE(ARGUMENT, "param: the name is empty", tg_param_at(HERE, g, "", TG_SHAPE(3), none));
    MISTAKE(ARGUMENT, "param: the name is NULL", tg_param_at(HERE, g, NULL, TG_SHAPE(3), none));
    MISTAKE(DUPLICATE, "param w: the name is used twice: at model.c:6 and at model.c:99",
            (param_of(g, "w", 6, TG_SHAPE(3)), tg_param_at(HERE, g, "w", TG_SHAPE(3), none)));
    MISTAKE(ARGUMENT, "param w: the literal has 2 numbers, the shape [3] has 3",
            tg_param_at(HERE, g, "w", TG_SHAPE(3), (tg_param_options){.init = tg_init_literal(data, 2)}));
    MISTAKE(ARGUMENT, "param w: the literal's data is NULL",
            tg_param_at(HERE, g, "w", TG_SHAPE(3), (tg_param_options){.init = tg_init_literal(NULL, 3)}));
    MISTAKE(ARGUMENT, "param w: the scale of the initial value is -1",
            tg_param_at(HERE, g, "w", TG_SHAPE(3), (tg_param_options){.init = tg_init_uniform(-1)}));
    MISTAKE(ARGUMENT, "param w: 17 is not a kind of initial value",
            tg_param_at(HERE, g, "w", TG_SHAPE(3), (tg_param_options){.init = {.kind = (tg_init_kind)17}}));
    MISTAKE(DTYPE, "input x: -1 is not a dtype", tg_input_at(HERE, g, "x", TG_SHAPE(3), (tg_dtype)-1));
    MISTAKE(ARGUMENT, "input: the name is empty", tg_input_at(HERE, g, "", TG_SHAPE(3), TG_F32));
    MISTAKE(DUPLICATE, "input x: the name is used twice: at model.c:1 and at model.c:99",
            (X(3), tg_input_at(HERE, g, "x", TG_SHAPE(4), TG_I32)));
    MISTAKE(DTYPE, "state t: the number 0.5 does not fit i32", tg_state_at(HERE, g, "t", TG_SCALAR, TG_I32, 0.5));
    MISTAKE(DUPLICATE, "state t: the name is used twice: at model.c:7 and at model.c:99",
            (tg_state_at(tg_site_make("model.c", 7), g, "t", TG_SCALAR, TG_I32, 0), tg_state_at(HERE, g, "t", TG_SCALAR, TG_I32, 0)));
    MISTAKE(DTYPE, "full: the number 2 does not fit bool", tg_full_at(HERE, g, TG_SHAPE(2), 2, TG_BOOL));
    MISTAKE(SHAPE, "full: shape [2, 0] has a dimension under 1 (axis 1 is 0)", tg_full_at(HERE, g, TG_SHAPE(2, 0), 2, TG_F32));
    MISTAKE(DTYPE, "arange: makes i32 or f32, not bool", tg_arange_at(HERE, g, 3, TG_BOOL));
    MISTAKE(SHAPE, "arange: shape [0] has a dimension under 1 (axis 0 is 0)", tg_arange_at(HERE, g, 0, TG_I32));
    MISTAKE(ARGUMENT, "constant: 2 numbers given, the shape [2, 3] has 6", tg_constant_at(HERE, g, TG_SHAPE(2, 3), TG_F32, data, 2));
    MISTAKE(ARGUMENT, "constant: the data is NULL", tg_constant_at(HERE, g, TG_SHAPE(2), TG_F32, NULL, 2));
    MISTAKE(ARGUMENT, "constant: element 1 of a bool constant is 2, not 0 or 1", tg_constant_at(HERE, g, TG_SHAPE(2), TG_BOOL, flags, 2));
}

static tg_tensor write(tg_graph *g, tg_tensor destination, tg_tensor source) {
    tg_writeback_at(HERE, destination, source);
    return poison_of(g);
}

FAMILY(writebacks) {
    tg_tensor p = param_of(g, "p", 6, TG_SHAPE(3));
    MISTAKE(ARGUMENT,
            "writeback: the destination x[3] is neither a parameter nor a state\n"
            "  x: input at model.c:1",
            write(g, X(3), p));
    MISTAKE(SHAPE,
            "writeback: shapes differ: p[3] <- x[1]\n"
            "  p: parameter at model.c:6\n"
            "  x: input at model.c:1",
            write(g, p, X(1)));
    MISTAKE(DTYPE,
            "writeback: dtypes differ: p[3] <- n[3] i32 (f32 != i32)\n"
            "  p: parameter at model.c:6\n"
            "  n: input at model.c:3",
            write(g, p, N(3)));
    tg_writeback_at(tg_site_make("model.c", 7), p, X(3));
    MISTAKE(DUPLICATE,
            "writeback: p[3] is written twice: at model.c:7 and at model.c:99\n"
            "  p: parameter at model.c:6",
            write(g, p, Y(3)));
}

FAMILY(captures) {
    MISTAKE(ARGUMENT, "capture: the name is empty", tg_capture_at(HERE, "", X(3)));
    MISTAKE(ARGUMENT, "capture: the name is NULL", tg_capture_at(HERE, NULL, X(3)));
    MISTAKE(DUPLICATE,
            "capture: the name h is used twice: for x[3] and for y[3]\n"
            "  x: input at model.c:1\n"
            "  y: input at model.c:2",
            (tg_capture_at(HERE, "h", X(3)), tg_capture_at(HERE, "h", Y(3))));
}

static tg_tensor scoped(tg_graph *g, const char *name, bool formatted) {
    if (formatted) tg_scope_pushf_at(HERE, g, "%0600d", 1);
    else tg_scope_push_at(HERE, g, name);
    return poison_of(g);
}

FAMILY(scopes) {
    MISTAKE(ARGUMENT, "scope_push: the name is empty", scoped(g, "", false));
    MISTAKE(ARGUMENT, "scope_push: the name is NULL", scoped(g, NULL, false));
    MISTAKE(LIMIT, "scope_pushf: the name is longer than 511 characters", scoped(g, NULL, true));
    MISTAKE(TRACE, "scope_pop: no scope is open", (tg_scope_pop_at(HERE, g), poison_of(g)));
}

/* ---------------------------------------------------------------- gradients */

static tg_tensor grad_of(tg_graph *g, tg_tensor loss, tg_tensor wrt) {
    tg_tensor out = wrt;
    tg_status status = tg_grad_at(HERE, loss, &wrt, 1, &out);
    assert_int_equal(status, tg_error(g->ctx));
    return out;
}

static tg_tensor vjp_of(tg_graph *g, tg_tensor y, tg_tensor cotangent, tg_tensor wrt) {
    tg_tensor out = wrt;
    tg_status status = tg_vjp_at(HERE, y, cotangent, &wrt, 1, &out);
    assert_int_equal(status, tg_error(g->ctx));
    return out;
}

static tg_tensor grad_without_arrays(tg_graph *g, tg_tensor loss, int n) {
    assert_int_equal(tg_grad_at(HERE, loss, NULL, n, NULL), TG_ERROR_ARGUMENT);
    return poison_of(g);
}

FAMILY(gradients) {
    tg_tensor x = X(3), n = N(3), s = S;
    forget_names(g);
    MISTAKE(GRADIENT,
            "grad: the loss square[3] is not rank 0: sum it, or use vjp\n"
            "  square: computed at model.c:8",
            grad_of(g, tg_square_at(tg_site_make("model.c", 8), x), x));
    MISTAKE(GRADIENT,
            "grad: sum[] i32 has no gradient: it is not f32 but i32\n"
            "  sum: computed at model.c:8",
            grad_of(g, tg_sum_at(tg_site_make("model.c", 8), n, TG_ALL, (tg_reduce_options){0}), x));
    MISTAKE(GRADIENT,
            "grad: argmax[] i32 has no gradient: it is not f32 but i32\n"
            "  argmax: computed at model.c:8",
            grad_of(g, tg_argmax_at(tg_site_make("model.c", 8), x, 0, (tg_reduce_options){0}), x));
    MISTAKE(GRADIENT,
            "grad: n[3] i32 has no gradient: it is not f32 but i32\n"
            "  n: input at model.c:3",
            grad_of(g, s, n));
    MISTAKE(ARGUMENT, "grad: wrt is NULL for 2 tensors", grad_without_arrays(g, s, 2));
    MISTAKE(ARGUMENT, "grad: -1 tensors asked for", grad_without_arrays(g, s, -1));
    MISTAKE(SHAPE,
            "vjp: the cotangent needs the shape of y: x[3] and s[]\n"
            "  x: input at model.c:1\n"
            "  s: input at model.c:5",
            vjp_of(g, x, s, x));
    MISTAKE(DTYPE,
            "vjp: takes f32, not i32: n[3] i32 (with x[3])\n"
            "  x: input at model.c:1\n"
            "  n: input at model.c:3",
            vjp_of(g, x, n, x));
    MISTAKE(GRADIENT,
            "vjp: n[3] i32 has no gradient: it is not f32 but i32\n"
            "  n: input at model.c:3",
            vjp_of(g, n, x, x));
}

/* ---------------------------------------------------------------- tensors of other traces */

static tg_tensor build_x(tg_graph *g, void *user) {
    (void)user;
    return input_of(g, "old", 50, TG_SHAPE(2, 2), TG_F32);
}

static tg_tensor old_tensor;

static void body_foreign(tg_graph *g) {
    MISTAKE(TRACE,
            "add: tensors of different traces: x[2, 2] and old[2, 2]\n"
            "  x: input at model.c:1\n"
            "  old: input at model.c:50",
            tg_add_at(HERE, TG_OPERAND(X(2, 2)), TG_OPERAND(old_tensor)));
    MISTAKE(TRACE,
            "matmul: tensors of different traces: x[2, 2] and old[2, 2]\n"
            "  x: input at model.c:1\n"
            "  old: input at model.c:50",
            tg_matmul_at(HERE, old_tensor, X(2, 2)));
    MISTAKE(TRACE,
            "relu: old[2, 2] belongs to a trace that has ended: operations belong inside the build function\n"
            "  old: input at model.c:50",
            tg_relu_at(HERE, old_tensor));
    MISTAKE(TRACE,
            "grad: tensors of different traces: s[] and old[2, 2]\n"
            "  s: input at model.c:5\n"
            "  old: input at model.c:50",
            grad_of(g, S, old_tensor));
    MISTAKE(TRACE, "relu: operand 1 is not a tensor of its trace (id 100000)", tg_relu_at(HERE, (tg_tensor){g, 100000}));
    MISTAKE(TRACE, "input: the trace of this graph has ended: operations belong inside the build function",
            tg_input_at(HERE, old_tensor.graph, "x", TG_SHAPE(1), TG_F32));
}

static void test_foreign_tensors(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    messages_body body = body_foreign;
    tg_graph *old = tg_trace(ctx, build_x, NULL, &old_tensor);
    assert_non_null(old);
    tg_graph *g = tg_trace(ctx, run_messages, &body, NULL);
    assert_string_equal(tg_error_message(ctx), "");
    tg_graph_destroy(g);
    tg_graph_destroy(old);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- the user's own line */

static tg_tensor build_with_mistake(tg_graph *g, void *user) {
    int *lines = user;
    lines[0] = __LINE__ + 1;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(256, 64), TG_F32);
    lines[1] = __LINE__ + 1;
    tg_tensor w = tg_param(g, "l2.W", TG_SHAPE(32, 10), .init = tg_init_kaiming(1));
    lines[2] = __LINE__ + 1;
    tg_tensor h = tg_matmul(x, w);
    return tg_sum_all(tg_relu(tg_add(h, tg_param(g, "", TG_SHAPE(10)))));
}

static void test_user_lines(void **state) {
    (void)state;
    int lines[3];
    char want[2048];
    tg_context *ctx = tg_context_create(NULL);
    assert_null(tg_trace(ctx, build_with_mistake, lines, NULL));
    snprintf(want, sizeof want,
             "matmul: inner dimensions differ: x[256, 64] x l2.W[32, 10] (64 != 32)\n  x: input at %s:%d\n  l2.W: parameter at %s:%d",
             __FILE__, lines[0], __FILE__, lines[1]);
    assert_string_equal(tg_error_message(ctx), want);
    assert_int_equal(tg_error(ctx), TG_ERROR_SHAPE);
    assert_string_equal(tg_error_site(ctx).file, __FILE__);
    assert_int_equal(tg_error_site(ctx).line, lines[2]);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- steps that are not finite */

/* loss = sum sqrt(w x): its gradient is infinite where w x is 0. */
static tg_tensor build_root(tg_graph *g, void *user) {
    static const float ones[] = {1, 1};
    (void)user;
    tg_tensor x = input_of(g, "x", 1, TG_SHAPE(2), TG_F32);
    tg_tensor w = tg_param_at(tg_site_make("model.c", 2), g, "w", TG_SHAPE(2), (tg_param_options){.init = tg_init_literal(ones, 2)});
    tg_tensor wx = tg_mul_at(tg_site_make("model.c", 3), TG_OPERAND(w), TG_OPERAND(x));
    return tg_sum_at(tg_site_make("model.c", 5), tg_sqrt_at(tg_site_make("model.c", 4), wx), TG_ALL, (tg_reduce_options){0});
}

static void check_bad_step(tg_compile_options options, float second, const char *text, int line) {
    const float x[] = {4, second};
    const tg_feed feed = tg_feed_f32("x", x, 2);
    float loss = 0;
    tg_context *ctx = tg_context_create(NULL);
    options.device = TG_DEVICE_CPU;
    tg_model *model = tg_compile(ctx, build_root, NULL, &options);
    assert_non_null(model);
    const bool looks = options.check_finite || options.optimizer.skip_non_finite || (options.optimizer.normalize && second == 0) ||
                       !(second >= 0 && second <= 1);
    assert_int_equal(tg_step_at(HERE, model, &feed, 1, &loss), looks ? TG_ERROR_NOT_FINITE : TG_OK);
    assert_string_equal(tg_error_message(ctx), text);
    if (looks) {
        assert_int_equal(tg_error_site(ctx).line, line);
        assert_string_equal(tg_error_site(ctx).file, "model.c");
    }
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void test_steps_not_finite(void **state) {
    (void)state;
    const tg_compile_options plain = {.optimizer = tg_sgd(.lr = tg_lr_constant(1))},
                             units = {.optimizer = tg_sgd(.lr = tg_lr_constant(1), .normalize = true)};
    const tg_compile_options skips = {.optimizer = tg_sgd(.lr = tg_lr_constant(1), .skip_non_finite = true)};
    const tg_compile_options looks = {.optimizer = tg_sgd(.lr = tg_lr_constant(1)), .check_finite = true};
    check_bad_step(plain, 0, "", 99);
    check_bad_step(plain, INFINITY, "step 1: loss is inf", 99);
    check_bad_step(plain, -1, "step 1: loss is nan", 99);
    check_bad_step(units, 0, "step 1: a gradient is not finite", 99);
    check_bad_step(skips, 0, "step 1: a gradient is not finite; it was skipped: parameters and optimizer are as they were", 99);
    check_bad_step(skips, INFINITY, "step 1: loss is inf; it was skipped: parameters and optimizer are as they were", 99);
    check_bad_step(looks, INFINITY, "step 1: x[2] holds inf, the first value that is not finite: nothing was changed", 1);
    check_bad_step(looks, -1, "step 1: sqrt[2] made nan, the first value that is not finite: nothing was changed", 4);
    check_bad_step(looks, 0, "step 1: div[2] on the way back made inf, the first value that is not finite: nothing was changed", 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),           cmocka_unit_test(test_binary),     cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_selection),       cmocka_unit_test(test_reductions), cmocka_unit_test(test_scans),
        cmocka_unit_test(test_arrangements),    cmocka_unit_test(test_splits),     cmocka_unit_test(test_indexing_along_axes),
        cmocka_unit_test(test_views),           cmocka_unit_test(test_joins),      cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_indexing),        cmocka_unit_test(test_softmax),    cmocka_unit_test(test_layers),
        cmocka_unit_test(test_losses),          cmocka_unit_test(test_leaves),     cmocka_unit_test(test_writebacks),
        cmocka_unit_test(test_captures),        cmocka_unit_test(test_scopes),     cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_foreign_tensors), cmocka_unit_test(test_user_lines), cmocka_unit_test(test_random),
        cmocka_unit_test(test_attention),       cmocka_unit_test(test_norms),      cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_convolutions),    cmocka_unit_test(test_pools),      cmocka_unit_test(test_steps_not_finite),
    };
    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
