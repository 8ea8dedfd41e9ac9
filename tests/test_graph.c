/* test_graph: building nodes and what is refused, message texts, verification, printing, and bytes there and back, whole,
 * cut, flipped and without memory. */
#include "ir/attention.h"
#include "support.h"

#include "ir/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- helpers */

static tg_init init_of(tg_init_kind kind, double scale) {
    const tg_init init = {.kind = kind, .scale = scale};
    return init;
}

static tg_init literal_of(const float *data, int64_t count) {
    const tg_init init = {.data = data, .count = count, .kind = TG_INIT_LITERAL};
    return init;
}

/* A graph with one of each: x[256, 64], w[32, 10], v[64], m[256, 1], idx[8] i32, flag[64] bool, t[12, 5], s[] i32. */
typedef struct fixture {
    tg_context *ctx;
    tg_graph *g;
    int32_t x, w, v, m, idx, flag, table, step, cube;
} fixture;

static fixture fixture_make(void) {
    fixture f;
    f.ctx = tg_context_create(NULL);
    f.g = tg_graph_create(f.ctx);
    assert_non_null(f.g);
    f.g->current_site = tg_site_make("model.c", 41);
    f.x = tg_ir_input(f.g, "x", TG_SHAPE(256, 64), TG_F32);
    f.w = tg_ir_param(f.g, "l2.W", TG_SHAPE(32, 10), init_of(TG_INIT_ZEROS, 0), false, false);
    f.v = tg_ir_param(f.g, "b", TG_SHAPE(64), init_of(TG_INIT_ZEROS, 0), false, false);
    f.m = tg_ir_input(f.g, "m", TG_SHAPE(256, 1), TG_F32);
    f.idx = tg_ir_input(f.g, "idx", TG_SHAPE(8), TG_I32);
    f.flag = tg_ir_input(f.g, "flag", TG_SHAPE(64), TG_BOOL);
    f.table = tg_ir_param(f.g, "t", TG_SHAPE(12, 5), init_of(TG_INIT_ZEROS, 0), false, false);
    f.step = tg_ir_state(f.g, "step", TG_SCALAR, TG_I32, 0);
    f.cube = tg_ir_input(f.g, "cube", TG_SHAPE(2, 3, 4), TG_F32);
    assert_int_equal(tg_error(f.ctx), TG_OK);
    return f;
}

static void fixture_free(fixture *f) {
    tg_graph_destroy(f->g);
    assert_int_equal(f->ctx->live_blocks, 0);
    assert_int_equal(f->ctx->live_bytes, 0);
    tg_context_destroy(f->ctx);
}

/* The call made nothing, and recorded this. */
static void refused(fixture *f, int32_t id, int64_t nodes, tg_status status, const char *message) {
    assert_int_equal(id, 0);
    assert_int_equal(f->g->nodes.count, nodes);
    assert_string_equal(tg_error_message(f->ctx), message);
    assert_int_equal(tg_error(f->ctx), status);
    assert_string_equal(tg_error_site(f->ctx).file, "model.c");
    assert_int_equal(tg_error_site(f->ctx).line, 41);
    tg_clear_error(f->ctx);
}
#define REFUSED(call, status, message) \
  do { \
    const int64_t nodes_ = f.g->nodes.count; \
    refused(&f, (int32_t)(call), nodes_, status, message); \
  } while (0)

static void node_is(const fixture *f, int32_t id, tg_op op, tg_dtype dtype, tg_shape shape) {
    assert_string_equal(tg_error_message(f->ctx), "");
    assert_true(id > 0);
    const tg_node *node = tg_graph_node(f->g, id);
    assert_int_equal(node->op, op);
    assert_int_equal(node->dtype, dtype);
    assert_true(tg_shape_equal(node->shape, shape));
    assert_string_equal(node->site.file, "model.c");
    assert_int_equal(node->site.line, 41);
}

/* ---------------------------------------------------------------- shapes */

static void shapes_count(void **state) {
    (void)state;
    assert_int_equal(tg_shape_count(TG_SCALAR), 1);
    assert_int_equal(tg_shape_count(TG_SHAPE(3, 4, 5)), 60);
    assert_int_equal(tg_shape_count(TG_SHAPE(2147483647)), 2147483647);
    assert_int_equal(tg_shape_count(TG_SHAPE(65536, 32768)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(65536, 65536)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(46341, 46341)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(3, 0)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(-2, -3)), -1);
    assert_int_equal(tg_shape_count(TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1)), -1);
    assert_int_equal(tg_shape_count(tg_shape_make(-1, NULL)), -1);
    assert_true(tg_shape_equal(TG_SHAPE(2, 3), TG_SHAPE(2, 3)));
    assert_false(tg_shape_equal(TG_SHAPE(2, 3), TG_SHAPE(3, 2)));
    assert_false(tg_shape_equal(TG_SHAPE(2, 3), TG_SHAPE(2, 3, 1)));
    const tg_axes axes = TG_AXES(0, -1);
    assert_int_equal(axes.count, 2);
    assert_int_equal(axes.axis[1], -1);
    assert_int_equal(TG_ALL.count, -1);
}

static void shapes_broadcast(void **state) {
    (void)state;
    tg_shape out = TG_SHAPE(9);
    assert_true(tg_shape_broadcast(TG_SHAPE(256, 1), TG_SHAPE(64), &out));
    assert_true(tg_shape_equal(out, TG_SHAPE(256, 64)));
    assert_true(tg_shape_broadcast(TG_SCALAR, TG_SHAPE(2, 3), &out));
    assert_true(tg_shape_equal(out, TG_SHAPE(2, 3)));
    assert_true(tg_shape_broadcast(TG_SHAPE(5, 1, 4), TG_SHAPE(3, 1), &out));
    assert_true(tg_shape_equal(out, TG_SHAPE(5, 3, 4)));
    assert_false(tg_shape_broadcast(TG_SHAPE(2), TG_SHAPE(3), &out));
    assert_false(tg_shape_broadcast(TG_SHAPE(2, 3), TG_SHAPE(2), &out));
    assert_true(tg_shape_equal(out, TG_SHAPE(5, 3, 4)));
}

static void sizes_are_refused_before_memory(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int64_t blocks = f.ctx->alloc_calls;
    REFUSED(tg_ir_input(f.g, "big", TG_SHAPE(65536, 65536), TG_F32), TG_ERROR_LIMIT,
            "input 'big': shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647");
    REFUSED(tg_ir_input(f.g, "big", TG_SHAPE(46341, 46341), TG_F32), TG_ERROR_LIMIT,
            "input 'big': shape [46341, 46341] has 2147488281 elements, over the limit of 2147483647");
    REFUSED(tg_ir_param(f.g, "big", TG_SHAPE(INT64_MAX, INT64_MAX), init_of(TG_INIT_RANDN, 0), true, false), TG_ERROR_LIMIT,
            "param 'big': shape [9223372036854775807, 9223372036854775807] has more than 18446744073709551615 elements, over "
            "the limit of 2147483647");
    REFUSED(tg_ir_state(f.g, "none", TG_SHAPE(3, 0), TG_F32, 0), TG_ERROR_SHAPE,
            "state 'none': shape [3, 0] has a dimension under 1 (axis 1 is 0)");
    REFUSED(tg_ir_const(f.g, TG_SHAPE(-4), TG_F32, 0), TG_ERROR_SHAPE, "const: shape [-4] has a dimension under 1 (axis 0 is -4)");
    REFUSED(tg_ir_data(f.g, TG_SHAPE(65536, 65536), TG_BOOL, "x"), TG_ERROR_LIMIT,
            "const: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647");
    REFUSED(tg_ir_const(f.g, TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), TG_F32, 0), TG_ERROR_LIMIT,
            "const: shape [1, 1, 1, 1, 1, 1, 1, 1, ...] has rank 9, over the limit of 8");
    assert_int_equal(f.ctx->alloc_calls, blocks);
    const int32_t row = tg_ir_input(f.g, "row", TG_SHAPE(1, 65536), TG_F32);
    const int32_t column = tg_ir_input(f.g, "column", TG_SHAPE(65536, 1), TG_F32);
    REFUSED(tg_ir_binary(f.g, TG_OP_ADD, row, column), TG_ERROR_LIMIT,
            "add: the broadcast of row[1, 65536] and column[65536, 1]: shape [65536, 65536] has 4294967296 elements, over the "
            "limit of 2147483647");
    REFUSED(tg_ir_broadcast(f.g, row, TG_SHAPE(65536, 65536)), TG_ERROR_LIMIT,
            "broadcast: shape [65536, 65536] has 4294967296 elements, over the limit of 2147483647");
    fixture_free(&f);
}

/* ---------------------------------------------------------------- constants and leaves */

static void constants_hold_their_type(void **state) {
    (void)state;
    fixture f = fixture_make();
    node_is(&f, tg_ir_const(f.g, TG_SHAPE(2), TG_I32, -2147483648.0), TG_OP_CONST, TG_I32, TG_SHAPE(2));
    node_is(&f, tg_ir_const(f.g, TG_SCALAR, TG_BOOL, 1), TG_OP_CONST, TG_BOOL, TG_SCALAR);
    const int32_t tenth = tg_ir_const(f.g, TG_SCALAR, TG_F32, 0.1);
    assert_true(tg_graph_node(f.g, tenth)->attr.value == (double)0.1f);
    assert_true(isinf(tg_graph_node(f.g, tg_ir_const(f.g, TG_SCALAR, TG_F32, 1e39))->attr.value));
    assert_true(isnan(tg_graph_node(f.g, tg_ir_const(f.g, TG_SCALAR, TG_F32, nan("")))->attr.value));
    REFUSED(tg_ir_const(f.g, TG_SCALAR, TG_I32, 0.5), TG_ERROR_DTYPE, "const: 0.5 is not exact in i32");
    REFUSED(tg_ir_const(f.g, TG_SCALAR, TG_I32, 2147483648.0), TG_ERROR_DTYPE, "const: 2147483648 is not exact in i32");
    REFUSED(tg_ir_const(f.g, TG_SCALAR, TG_I32, nan("")), TG_ERROR_DTYPE, "const: nan is not exact in i32");
    REFUSED(tg_ir_const(f.g, TG_SCALAR, TG_BOOL, 2), TG_ERROR_DTYPE, "const: 2 is not exact in bool");
    REFUSED(tg_ir_const(f.g, TG_SCALAR, (tg_dtype)7, 2), TG_ERROR_DTYPE, "const: 7 is no element type");
    node_is(&f, tg_ir_iota(f.g, TG_SHAPE(2, 3), TG_I32, 1), TG_OP_IOTA, TG_I32, TG_SHAPE(2, 3));
    REFUSED(tg_ir_iota(f.g, TG_SHAPE(2, 3), TG_I32, 2), TG_ERROR_SHAPE, "iota: axis 2 is outside [2, 3]");
    REFUSED(tg_ir_iota(f.g, TG_SCALAR, TG_I32, 0), TG_ERROR_SHAPE, "iota: axis 0 is outside []");
    REFUSED(tg_ir_iota(f.g, TG_SHAPE(2), TG_I32, -1), TG_ERROR_SHAPE, "iota: axis -1 is outside [2]");
    REFUSED(tg_ir_iota(f.g, TG_SHAPE(2), TG_BOOL, 0), TG_ERROR_DTYPE, "iota: element type bool, but only f32 and i32 will do");
    fixture_free(&f);
}

static void data_is_copied(void **state) {
    (void)state;
    fixture f = fixture_make();
    float numbers[3] = {1, 2, 3};
    unsigned char flags[3] = {0, 7, 1};
    const int32_t data = tg_ir_data(f.g, TG_SHAPE(3), TG_F32, numbers), mask = tg_ir_data(f.g, TG_SHAPE(3), TG_BOOL, flags);
    const int32_t literal = tg_ir_param(f.g, "p", TG_SHAPE(3), literal_of(numbers, 3), true, false);
    numbers[1] = 99;
    flags[0] = 1;
    assert_true(((const float *)tg_graph_node(f.g, data)->attr.data)[1] == 2.0f);
    assert_memory_equal(tg_graph_node(f.g, mask)->attr.data, "\0\1\1", 3);
    const tg_param_info *param = &f.g->params.items[tg_graph_node(f.g, literal)->attr.leaf];
    assert_string_equal(param->name, "p");
    assert_true(param->init.data[1] == 2.0f && param->decay && !param->frozen && param->node == literal);
    REFUSED(tg_ir_data(f.g, TG_SHAPE(3), TG_F32, NULL), TG_ERROR_ARGUMENT, "const: no data");
    REFUSED(tg_ir_param(f.g, "q", TG_SHAPE(2, 2), literal_of(numbers, 3), true, false), TG_ERROR_SHAPE,
            "param 'q': the literal has 3 numbers, shape [2, 2] needs 4");
    fixture_free(&f);
}

static void names_are_needed_and_unique(void **state) {
    (void)state;
    fixture f = fixture_make();
    REFUSED(tg_ir_input(f.g, "x", TG_SHAPE(2), TG_F32), TG_ERROR_DUPLICATE, "input: the name 'x' is used twice");
    REFUSED(tg_ir_param(f.g, "b", TG_SHAPE(2), init_of(TG_INIT_ONES, 0), false, false), TG_ERROR_DUPLICATE,
            "param: the name 'b' is used twice");
    REFUSED(tg_ir_state(f.g, "step", TG_SCALAR, TG_I32, 0), TG_ERROR_DUPLICATE, "state: the name 'step' is used twice");
    REFUSED(tg_ir_input(f.g, "", TG_SHAPE(2), TG_F32), TG_ERROR_ARGUMENT, "input: a name is needed");
    REFUSED(tg_ir_input(f.g, NULL, TG_SHAPE(2), TG_F32), TG_ERROR_ARGUMENT, "input: a name is needed");
    REFUSED(tg_ir_state(f.g, "half", TG_SCALAR, TG_I32, 0.5), TG_ERROR_DTYPE, "state 'half': 0.5 is not exact in i32");
    tg_init odd = init_of(TG_INIT_RANDN, nan(""));
    REFUSED(tg_ir_param(f.g, "p", TG_SHAPE(2), odd, true, false), TG_ERROR_ARGUMENT,
            "param 'p': no such initial value (kind 0, scale nan)");
    assert_int_equal(f.g->inputs.count, 5);
    assert_int_equal(f.g->params.count, 3);
    assert_int_equal(f.g->states.count, 1);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- elementwise */

static void operands_broadcast(void **state) {
    (void)state;
    fixture f = fixture_make();
    node_is(&f, tg_ir_binary(f.g, TG_OP_ADD, f.x, f.v), TG_OP_ADD, TG_F32, TG_SHAPE(256, 64));
    node_is(&f, tg_ir_binary(f.g, TG_OP_LESS, f.m, f.v), TG_OP_LESS, TG_BOOL, TG_SHAPE(256, 64));
    node_is(&f, tg_ir_binary(f.g, TG_OP_AND, f.flag, f.flag), TG_OP_AND, TG_BOOL, TG_SHAPE(64));
    node_is(&f, tg_ir_select(f.g, f.flag, f.m, f.v), TG_OP_SELECT, TG_F32, TG_SHAPE(256, 64));
    node_is(&f, tg_ir_binary(f.g, TG_OP_DIV, f.idx, f.step), TG_OP_DIV, TG_I32, TG_SHAPE(8));
    const int64_t before = f.g->nodes.count;
    node_is(&f, tg_ir_binary(f.g, TG_OP_MUL, f.x, f.x), TG_OP_MUL, TG_F32, TG_SHAPE(256, 64));
    assert_int_equal(f.g->nodes.count, before + 1); /* equal shapes: no views */
    for (int64_t id = 1; id < f.g->nodes.count; id++)
        for (int i = 0; tg_op_is_elementwise(f.g->nodes.items[id].op) && i < f.g->nodes.items[id].input_count; i++)
            assert_true(tg_shape_equal(tg_graph_node(f.g, f.g->nodes.items[id].inputs[i])->shape, f.g->nodes.items[id].shape));
    assert_int_equal(tg_graph_verify(f.g), TG_OK);
    fixture_free(&f);
}

static void operands_are_refused(void **state) {
    (void)state;
    fixture f = fixture_make();
    REFUSED(tg_ir_binary(f.g, TG_OP_ADD, f.x, f.w), TG_ERROR_SHAPE, "add: shapes do not broadcast: x[256, 64] and l2.W[32, 10] (64 != 10)");
    REFUSED(tg_ir_select(f.g, f.flag, f.x, f.w), TG_ERROR_SHAPE,
            "select: shapes do not broadcast: flag[64] bool and l2.W[32, 10] (64 != 10)");
    REFUSED(tg_ir_binary(f.g, TG_OP_MUL, f.idx, f.v), TG_ERROR_DTYPE, "mul: element types differ: idx[8] i32 and b[64] (i32, f32)");
    REFUSED(tg_ir_binary(f.g, TG_OP_POW, f.idx, f.idx), TG_ERROR_DTYPE, "pow: idx[8] i32 has element type i32, but only f32 will do");
    REFUSED(tg_ir_select(f.g, f.idx, f.x, f.x), TG_ERROR_DTYPE, "select: the condition must be bool: idx[8] i32 (i32)");
    REFUSED(tg_ir_select(f.g, f.v, f.x, f.x), TG_ERROR_DTYPE, "select: the condition must be bool: b[64] (f32)");
    REFUSED(tg_ir_select(f.g, f.flag, f.x, f.flag), TG_ERROR_DTYPE,
            "select: element types differ: x[256, 64] and flag[64] bool (f32, bool)");
    REFUSED(tg_ir_unary(f.g, TG_OP_EXP, f.idx), TG_ERROR_DTYPE, "exp: idx[8] i32 has element type i32, but only f32 will do");
    REFUSED(tg_ir_unary(f.g, TG_OP_NEG, f.flag), TG_ERROR_DTYPE, "neg: flag[64] bool has element type bool, but only f32 and i32 will do");
    f.g->current_op = "greater";
    REFUSED(tg_ir_binary(f.g, TG_OP_LESS, f.flag, f.flag), TG_ERROR_DTYPE,
            "greater: flag[64] bool has element type bool, but only f32 and i32 will do");
    f.g->current_op = NULL;
    fixture_free(&f);
}

/* Which element types each op takes, as the contract lists them: every op by every type. */
static void every_op_takes_its_types(void **state) {
    (void)state;
    fixture f = fixture_make();
    int32_t of[3];
    for (int d = 0; d < 3; d++) of[d] = tg_ir_const(f.g, TG_SHAPE(2, 3), (tg_dtype)d, 1);
    for (int op = 1; op < TG_OP_COUNT; op++)
        for (int d = 0; d < 3; d++) {
            const tg_op_class class_ = tg_op_table[op].class_;
            const bool any = op == TG_OP_STOP_GRADIENT || op == TG_OP_EQUAL || op == TG_OP_NOT_EQUAL || class_ == TG_CLASS_SELECT;
            const bool whole = op == TG_OP_NEG || op == TG_OP_ABS || op == TG_OP_SIGN || class_ == TG_CLASS_REDUCE ||
                               class_ == TG_CLASS_COMPARE || (class_ == TG_CLASS_BINARY && op != TG_OP_POW && op != TG_OP_MOD);
            const bool want = any || (class_ == TG_CLASS_LOGICAL ? d == TG_BOOL : d == TG_F32 || (d == TG_I32 && whole));
            int32_t made;
            if (class_ == TG_CLASS_UNARY || op == TG_OP_NOT) made = tg_ir_unary(f.g, (tg_op)op, of[d]);
            else if (class_ == TG_CLASS_BINARY || class_ == TG_CLASS_COMPARE || class_ == TG_CLASS_LOGICAL)
                made = tg_ir_binary(f.g, (tg_op)op, of[d], of[d]);
            else if (class_ == TG_CLASS_SELECT) made = tg_ir_select(f.g, of[TG_BOOL], of[d], of[d]);
            else if (class_ == TG_CLASS_REDUCE) made = tg_ir_reduce(f.g, (tg_op)op, of[d], 3);
            else continue;
            assert_int_equal(made > 0, want);
            assert_int_equal(tg_error(f.ctx), want ? TG_OK : TG_ERROR_DTYPE);
            tg_clear_error(f.ctx);
        }
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            const int32_t cast = tg_ir_cast(f.g, of[from], (tg_dtype)to);
            assert_int_equal(cast == of[from], from == to);
            assert_int_equal(tg_graph_node(f.g, cast)->dtype, to);
        }
    assert_int_equal(tg_graph_verify(f.g), TG_OK);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- reductions, views */

static void reductions_keep_rank(void **state) {
    (void)state;
    fixture f = fixture_make();
    node_is(&f, tg_ir_reduce(f.g, TG_OP_SUM, f.cube, 5), TG_OP_SUM, TG_F32, TG_SHAPE(1, 3, 1));
    node_is(&f, tg_ir_reduce(f.g, TG_OP_ARGMAX, f.cube, 2), TG_OP_ARGMAX, TG_I32, TG_SHAPE(2, 1, 4));
    assert_int_equal(tg_ir_reduce(f.g, TG_OP_REDUCE_MAX, f.cube, 0), f.cube);
    node_is(&f, tg_ir_reduce(f.g, TG_OP_ARGMIN, f.cube, 0), TG_OP_CONST, TG_I32, TG_SHAPE(2, 3, 4));
    REFUSED(tg_ir_reduce(f.g, TG_OP_SUM, f.cube, 8), TG_ERROR_SHAPE, "sum: axis 3 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_reduce(f.g, TG_OP_SUM, f.cube, 1u << 31), TG_ERROR_SHAPE, "sum: axis 31 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_reduce(f.g, TG_OP_SUM, f.flag, 0), TG_ERROR_DTYPE,
            "sum: flag[64] bool has element type bool, but only f32 and i32 will do");
    fixture_free(&f);
}

static void views_check_their_shapes(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t turn[3] = {2, 0, 1}, same[3] = {0, 1, 2}, twice[3] = {1, 1, 0}, outside[3] = {0, 1, 3};
    const int64_t zero[3] = {0, 0, 0}, some[3] = {1, 0, 2}, less[3] = {-1, 0, 0}, huge[3] = {INT64_MAX, 0, 0};
    node_is(&f, tg_ir_reshape(f.g, f.cube, TG_SHAPE(6, 4)), TG_OP_RESHAPE, TG_F32, TG_SHAPE(6, 4));
    node_is(&f, tg_ir_reshape(f.g, f.step, TG_SHAPE(1, 1)), TG_OP_RESHAPE, TG_I32, TG_SHAPE(1, 1));
    node_is(&f, tg_ir_permute(f.g, f.cube, turn), TG_OP_PERMUTE, TG_F32, TG_SHAPE(4, 2, 3));
    node_is(&f, tg_ir_slice(f.g, f.cube, some, TG_SHAPE(1, 3, 2)), TG_OP_SLICE, TG_F32, TG_SHAPE(1, 3, 2));
    node_is(&f, tg_ir_pad(f.g, f.cube, some, TG_SHAPE(3, 3, 9)), TG_OP_PAD, TG_F32, TG_SHAPE(3, 3, 9));
    node_is(&f, tg_ir_flip(f.g, f.cube, 5), TG_OP_FLIP, TG_F32, TG_SHAPE(2, 3, 4));
    node_is(&f, tg_ir_broadcast(f.g, f.v, TG_SHAPE(7, 64)), TG_OP_BROADCAST, TG_F32, TG_SHAPE(7, 64));
    node_is(&f, tg_ir_broadcast(f.g, f.v, TG_SHAPE(1, 64)), TG_OP_RESHAPE, TG_F32, TG_SHAPE(1, 64));
    const int64_t before = f.g->nodes.count;
    assert_int_equal(tg_ir_reshape(f.g, f.cube, TG_SHAPE(2, 3, 4)), f.cube);
    assert_int_equal(tg_ir_permute(f.g, f.cube, same), f.cube);
    assert_int_equal(tg_ir_slice(f.g, f.cube, zero, TG_SHAPE(2, 3, 4)), f.cube);
    assert_int_equal(tg_ir_pad(f.g, f.cube, zero, TG_SHAPE(2, 3, 4)), f.cube);
    assert_int_equal(tg_ir_broadcast(f.g, f.cube, TG_SHAPE(2, 3, 4)), f.cube);
    assert_int_equal(tg_ir_permute(f.g, f.step, NULL), f.step);
    assert_int_equal(f.g->nodes.count, before);
    REFUSED(tg_ir_reshape(f.g, f.cube, TG_SHAPE(5, 5)), TG_ERROR_SHAPE,
            "reshape: element counts differ: cube[2, 3, 4] to [5, 5] (24 != 25)");
    REFUSED(tg_ir_reshape(f.g, f.cube, TG_SHAPE(-1, 4)), TG_ERROR_SHAPE, "reshape: shape [-1, 4] has a dimension under 1 (axis 0 is -1)");
    REFUSED(tg_ir_permute(f.g, f.cube, twice), TG_ERROR_SHAPE, "permute: axis 1 is named twice for cube[2, 3, 4]");
    REFUSED(tg_ir_permute(f.g, f.cube, outside), TG_ERROR_SHAPE, "permute: axis 3 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_slice(f.g, f.cube, some, TG_SHAPE(2, 3, 2)), TG_ERROR_SHAPE,
            "slice: 2 elements from 1 on do not lie in axis 0 of cube[2, 3, 4]");
    REFUSED(tg_ir_slice(f.g, f.cube, less, TG_SHAPE(2, 3, 2)), TG_ERROR_SHAPE,
            "slice: 2 elements from -1 on do not lie in axis 0 of cube[2, 3, 4]");
    REFUSED(tg_ir_slice(f.g, f.cube, huge, TG_SHAPE(2, 3, 2)), TG_ERROR_SHAPE,
            "slice: 2 elements from 9223372036854775807 on do not lie in axis 0 of cube[2, 3, 4]");
    REFUSED(tg_ir_slice(f.g, f.cube, zero, TG_SHAPE(2, 3)), TG_ERROR_SHAPE, "slice: ranks differ: cube[2, 3, 4] to [2, 3]");
    REFUSED(tg_ir_pad(f.g, f.cube, some, TG_SHAPE(2, 3, 9)), TG_ERROR_SHAPE,
            "pad: cube[2, 3, 4] after 1 elements does not lie in 2 (axis 0)");
    REFUSED(tg_ir_flip(f.g, f.cube, 16), TG_ERROR_SHAPE, "flip: axis 4 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_broadcast(f.g, f.cube, TG_SHAPE(2, 5, 4)), TG_ERROR_SHAPE, "broadcast: cube[2, 3, 4] does not broadcast to [2, 5, 4]");
    REFUSED(tg_ir_broadcast(f.g, f.cube, TG_SHAPE(4)), TG_ERROR_SHAPE, "broadcast: cube[2, 3, 4] does not broadcast to [4]");
    assert_int_equal(tg_graph_verify(f.g), TG_OK);
    fixture_free(&f);
}

static int32_t make_fold(tg_graph *g, int32_t x, int axis, tg_window w, tg_shape to) {
    const tg_attributes attr = {.axis = axis, .window = w};
    return tg_node_make(g, TG_OP_FOLD, TG_F32, to, &x, 1, &attr);
}

static void windows_check_their_axis(void **state) {
    (void)state;
    fixture f = fixture_make();
    const tg_window plain = {3, 1, 1}, spread = {2, 2, 3}, wide = {3, 1, 2}, none = {0, 1, 1}, still = {2, 0, 1};
    node_is(&f, tg_ir_window(f.g, f.cube, 1, plain), TG_OP_WINDOW, TG_F32, TG_SHAPE(2, 1, 4, 3));
    node_is(&f, tg_ir_window(f.g, f.x, 0, spread), TG_OP_WINDOW, TG_F32, TG_SHAPE(127, 64, 2));
    node_is(&f, tg_ir_window(f.g, f.idx, 0, wide), TG_OP_WINDOW, TG_I32, TG_SHAPE(4, 3));
    node_is(&f, make_fold(f.g, f.cube, 1, (tg_window){4, 2, 1}, TG_SHAPE(2, 8)), TG_OP_FOLD, TG_F32, TG_SHAPE(2, 8));
    node_is(&f, tg_ir_fold(f.g, f.cube, 1, (tg_window){4, 2, 1}, 9), TG_OP_SLICE, TG_F32, TG_SHAPE(2, 9));
    node_is(&f, tg_ir_fold(f.g, f.cube, 0, (tg_window){4, 4, 1}, 8), TG_OP_RESHAPE, TG_F32, TG_SHAPE(8, 3));
    REFUSED(tg_ir_window(f.g, f.cube, 3, plain), TG_ERROR_SHAPE, "window: axis 3 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_window(f.g, f.cube, 2, wide), TG_ERROR_SHAPE, "window: windows over 5 elements do not fit in axis 2 of cube[2, 3, 4]");
    REFUSED(tg_ir_window(f.g, f.cube, 2, none), TG_ERROR_ARGUMENT, "window: size, step and dilation need to be at least 1: 0, 1, 1");
    REFUSED(tg_ir_window(f.g, f.cube, 2, still), TG_ERROR_ARGUMENT, "window: size, step and dilation need to be at least 1: 2, 0, 1");
    REFUSED(make_fold(f.g, f.cube, 1, (tg_window){4, 2, 1}, TG_SHAPE(2, 9)), TG_ERROR_SHAPE,
            "fold: windows of 4, 1 apart, step 2, do not add up along axis 1: cube[2, 3, 4] to [2, 9]");
    REFUSED(make_fold(f.g, f.cube, 2, (tg_window){4, 2, 1}, TG_SHAPE(2, 8)), TG_ERROR_SHAPE, "fold: axis 2 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_fold(f.g, f.idx, 0, plain, 10), TG_ERROR_DTYPE, "fold: idx[8] i32 has element type i32, but only f32 will do");
    assert_int_equal(tg_graph_verify(f.g), TG_OK);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- joins, contraction, indexing */

static void joins_check_their_parts(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t wide = tg_ir_input(f.g, "wide", TG_SHAPE(2, 5, 4), TG_F32);
    const int32_t fits[2] = {f.cube, wide}, ranks[2] = {f.cube, f.x}, types[2] = {f.v, f.idx}, scalar[1] = {f.step};
    const int64_t apart[2] = {40, 0}, overlap[2] = {30, 0}, outside[2] = {41, 0}, negative[2] = {-1, 24};
    node_is(&f, tg_ir_concat(f.g, fits, 2, 1), TG_OP_CONCAT, TG_F32, TG_SHAPE(2, 8, 4));
    REFUSED(tg_ir_concat(f.g, fits, 2, 0), TG_ERROR_SHAPE, "concat: parts differ outside axis 0: cube[2, 3, 4] and wide[2, 5, 4] (3 != 5)");
    REFUSED(tg_ir_concat(f.g, ranks, 2, 0), TG_ERROR_SHAPE, "concat: ranks differ: cube[2, 3, 4] and x[256, 64]");
    REFUSED(tg_ir_concat(f.g, fits, 2, 3), TG_ERROR_SHAPE, "concat: axis 3 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_concat(f.g, fits, 2, -1), TG_ERROR_SHAPE, "concat: axis -1 is outside cube[2, 3, 4]");
    REFUSED(tg_ir_concat(f.g, scalar, 1, 0), TG_ERROR_SHAPE, "concat: axis 0 is outside step[] i32");
    REFUSED(tg_ir_concat(f.g, types, 2, 0), TG_ERROR_DTYPE, "concat: element types differ: b[64] and idx[8] i32 (f32, i32)");
    REFUSED(tg_ir_concat(f.g, NULL, 0, 0), TG_ERROR_ARGUMENT, "concat: no parts");
    node_is(&f, tg_ir_pack(f.g, fits, apart, 2, 64), TG_OP_PACK, TG_F32, TG_SHAPE(64));
    node_is(&f, tg_ir_pack(f.g, NULL, NULL, 0, 64), TG_OP_PACK, TG_F32, TG_SHAPE(64));
    REFUSED(tg_ir_pack(f.g, fits, overlap, 2, 64), TG_ERROR_ARGUMENT, "pack: the part at 30 overlaps the one at 0");
    REFUSED(tg_ir_pack(f.g, fits, outside, 2, 64), TG_ERROR_ARGUMENT, "pack: cube[2, 3, 4] at 41 does not lie in 64 elements");
    REFUSED(tg_ir_pack(f.g, fits, negative, 2, 64), TG_ERROR_ARGUMENT, "pack: cube[2, 3, 4] at -1 does not lie in 64 elements");
    REFUSED(tg_ir_pack(f.g, types, apart, 2, 640), TG_ERROR_DTYPE, "pack: element types differ: b[64] and idx[8] i32 (f32, i32)");
    fixture_free(&f);
}

/* Offsets in any order, many parts: disjoint ones are taken, one overlap among them is found. */
static void packs_sort_their_offsets(void **state) {
    (void)state;
    fixture f = fixture_make();
    enum { PARTS = 500 };
    int32_t parts[PARTS];
    int64_t offsets[PARTS];
    for (int i = 0; i < PARTS; i++) {
        parts[i] = f.cube;
        offsets[i] = 24 * ((i * 137) % PARTS);
    }
    node_is(&f, tg_ir_pack(f.g, parts, offsets, PARTS, 24 * PARTS), TG_OP_PACK, TG_F32, TG_SHAPE(24 * PARTS));
    offsets[321] += offsets[321] > 0 ? -1 : 1;
    assert_int_equal(tg_ir_pack(f.g, parts, offsets, PARTS, 24 * PARTS), 0);
    assert_int_equal(tg_error(f.ctx), TG_ERROR_ARGUMENT);
    fixture_free(&f);
}

static void contractions_name_what_differs(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t right = tg_ir_input(f.g, "right", TG_SHAPE(2, 4, 7), TG_F32);
    const int32_t inner = tg_ir_input(f.g, "inner", TG_SHAPE(2, 5, 7), TG_F32);
    const int32_t batch = tg_ir_input(f.g, "batch", TG_SHAPE(1, 4, 7), TG_F32);
    const int32_t ints = tg_ir_input(f.g, "ints", TG_SHAPE(2, 4, 7), TG_I32);
    node_is(&f, tg_ir_contract(f.g, f.cube, right), TG_OP_CONTRACT, TG_F32, TG_SHAPE(2, 3, 7));
    REFUSED(tg_ir_contract(f.g, f.cube, inner), TG_ERROR_SHAPE,
            "contract: inner dimensions differ: cube[2, 3, 4] x inner[2, 5, 7] (4 != 5)");
    REFUSED(tg_ir_contract(f.g, f.cube, batch), TG_ERROR_SHAPE,
            "contract: batch dimensions differ: cube[2, 3, 4] x batch[1, 4, 7] (2 != 1)");
    REFUSED(tg_ir_contract(f.g, f.cube, f.x), TG_ERROR_SHAPE, "contract: both sides need rank 3: cube[2, 3, 4] x x[256, 64]");
    REFUSED(tg_ir_contract(f.g, ints, right), TG_ERROR_DTYPE,
            "contract: element types differ: ints[2, 4, 7] i32 and right[2, 4, 7] (i32, f32)");
    f.g->current_op = "matmul";
    REFUSED(tg_ir_contract(f.g, ints, ints), TG_ERROR_DTYPE, "matmul: ints[2, 4, 7] i32 has element type i32, but only f32 will do");
    f.g->current_op = NULL;
    fixture_free(&f);
}

static void indexing_checks_types_and_ranks(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t rows = tg_ir_gather(f.g, f.table, f.idx);
    node_is(&f, rows, TG_OP_GATHER, TG_F32, TG_SHAPE(8, 5));
    node_is(&f, tg_ir_scatter_add(f.g, f.idx, rows, 12), TG_OP_SCATTER_ADD, TG_F32, TG_SHAPE(12, 5));
    REFUSED(tg_ir_gather(f.g, f.table, f.v), TG_ERROR_DTYPE, "gather: rows and i32 indices are needed: t[12, 5] (f32), b[64] (f32)");
    REFUSED(tg_ir_gather(f.g, f.v, f.idx), TG_ERROR_SHAPE, "gather: rows of rank 2 and indices of rank 1 are needed: b[64], idx[8] i32");
    REFUSED(tg_ir_scatter_add(f.g, f.idx, f.table, 12), TG_ERROR_SHAPE,
            "scatter_add: one row for each index is needed: idx[8] i32, t[12, 5] (8 != 12)");
    REFUSED(tg_ir_scatter_add(f.g, f.idx, rows, 0), TG_ERROR_SHAPE, "scatter_add: shape [0, 5] has a dimension under 1 (axis 0 is 0)");
    REFUSED(tg_ir_scatter_add(f.g, f.idx, rows, 2147483647), TG_ERROR_LIMIT,
            "scatter_add: shape [2147483647, 5] has 10737418235 elements, over the limit of 2147483647");
    assert_true(tg_ir_check_index(f.g, f.idx, 0, 12, true, -100, "embedding"));
    assert_false(tg_ir_check_index(f.g, f.v, 0, 12, false, 0, "embedding"));
    assert_string_equal(tg_error_message(f.ctx), "embedding: indices must be i32 and lie in [0, 12): b[64]");
    assert_int_equal(tg_error(f.ctx), TG_ERROR_DTYPE);
    assert_int_equal(f.g->checks.count, 1);
    fixture_free(&f);
}

static void writebacks_fit_their_destination(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t one = tg_ir_const(f.g, TG_SCALAR, TG_I32, 1), next = tg_ir_binary(f.g, TG_OP_ADD, f.step, one);
    assert_true(tg_ir_writeback(f.g, f.step, next));
    REFUSED(tg_ir_writeback(f.g, f.step, next), TG_ERROR_DUPLICATE, "writeback: step[] i32 is written twice");
    REFUSED(tg_ir_writeback(f.g, f.x, f.x), TG_ERROR_ARGUMENT, "writeback: x[256, 64] is neither a parameter nor a state");
    REFUSED(tg_ir_writeback(f.g, f.v, f.x), TG_ERROR_SHAPE, "writeback: shapes differ: b[64] from x[256, 64]");
    REFUSED(tg_ir_writeback(f.g, f.v, f.flag), TG_ERROR_DTYPE, "writeback: element types differ: b[64] from flag[64] bool (f32, bool)");
    assert_int_equal(f.g->writebacks.count, 1);
    fixture_free(&f);
}

static void poison_passes_through_silently(void **state) {
    (void)state;
    fixture f = fixture_make();
    const int32_t poisoned[2] = {f.x, 0};
    const int64_t before = f.g->nodes.count, offsets[2] = {0, 0};
    assert_int_equal(tg_ir_unary(f.g, TG_OP_EXP, 0), 0);
    assert_int_equal(tg_ir_binary(f.g, TG_OP_ADD, f.x, 0) + tg_ir_binary(f.g, TG_OP_ADD, 0, f.w), 0);
    assert_int_equal(tg_ir_select(f.g, 0, f.x, f.w) + tg_ir_cast(f.g, 0, TG_F32) + tg_ir_cast(f.g, 0, TG_I32), 0);
    assert_int_equal(tg_ir_reduce(f.g, TG_OP_SUM, 0, 0) + tg_ir_reduce(f.g, TG_OP_SUM, 0, 1), 0);
    assert_int_equal(tg_ir_reshape(f.g, 0, TG_SCALAR) + tg_ir_broadcast(f.g, 0, TG_SCALAR) + tg_ir_flip(f.g, 0, 0), 0);
    assert_int_equal(tg_ir_permute(f.g, 0, NULL) + tg_ir_slice(f.g, 0, NULL, TG_SCALAR) + tg_ir_pad(f.g, 0, NULL, TG_SCALAR), 0);
    assert_int_equal(tg_ir_concat(f.g, poisoned, 2, 0) + tg_ir_pack(f.g, poisoned, offsets, 2, 10), 0);
    assert_int_equal(tg_ir_contract(f.g, 0, f.x) + tg_ir_gather(f.g, f.x, 0) + tg_ir_scatter_add(f.g, 0, f.x, 1), 0);
    assert_false(tg_ir_writeback(f.g, f.step, 0));
    assert_false(tg_ir_check_index(f.g, 0, 0, 1, false, 0, "embedding"));
    assert_int_equal(tg_error(f.ctx), TG_OK);
    assert_int_equal(f.g->nodes.count, before);
    assert_int_equal(tg_ir_unary(f.g, TG_OP_EXP, 12345), 0);
    assert_int_equal(tg_error(f.ctx), TG_ERROR_INTERNAL);
    fixture_free(&f);
}

static void nodes_made_by_hand_are_held_to_their_rule(void **state) {
    (void)state;
    fixture f = fixture_make();
    assert_true(tg_node_make(f.g, TG_OP_EXP, TG_F32, TG_SHAPE(64), &f.v, 1, NULL) > 0);
    REFUSED(tg_node_make(f.g, TG_OP_EXP, TG_F32, TG_SHAPE(65), &f.v, 1, NULL), TG_ERROR_INTERNAL,
            "exp: node made as f32[65], its rule says f32[64]");
    REFUSED(tg_node_make(f.g, TG_OP_EXP, TG_I32, TG_SHAPE(64), &f.v, 1, NULL), TG_ERROR_INTERNAL,
            "exp: node made as i32[64], its rule says f32[64]");
    const int32_t pair[2] = {f.v, f.v};
    REFUSED(tg_node_make(f.g, TG_OP_EXP, TG_F32, TG_SHAPE(64), pair, 2, NULL), TG_ERROR_INTERNAL, "exp: takes 1 inputs, not 2");
    REFUSED(tg_node_make(f.g, (tg_op)255, TG_F32, TG_SHAPE(64), pair, 2, NULL), TG_ERROR_INTERNAL, "graph: 255 is no operation");
    fixture_free(&f);
}

static void sites_are_shared(void **state) {
    (void)state;
    fixture f = fixture_make();
    char file[] = "model.c";
    f.g->current_site = tg_site_make(file, 50);
    const int32_t a = tg_ir_unary(f.g, TG_OP_EXP, f.x);
    file[0] = 'n'; /* the caller's text changes: what was kept does not */
    const int32_t b = tg_ir_unary(f.g, TG_OP_EXP, f.x);
    assert_string_equal(tg_graph_node(f.g, a)->site.file, "model.c");
    assert_ptr_equal(tg_graph_node(f.g, a)->site.file, tg_graph_node(f.g, f.x)->site.file);
    assert_string_equal(tg_graph_node(f.g, b)->site.file, "nodel.c");
    assert_int_equal(tg_graph_node(f.g, b)->site.line, 50);
    f.g->current_site = tg_site_make(NULL, 0);
    assert_string_equal(tg_graph_node(f.g, tg_ir_unary(f.g, TG_OP_EXP, f.x))->site.file, "");
    char text[64], small[6];
    assert_string_equal(tg_node_text(f.g, f.w, text, sizeof text), "l2.W[32, 10]");
    assert_string_equal(tg_node_text(f.g, f.idx, text, sizeof text), "idx[8] i32");
    assert_string_equal(tg_node_text(f.g, a, text, sizeof text), "exp[256, 64]");
    assert_string_equal(tg_node_text(f.g, f.w, small, sizeof small), "l2.W[");
    assert_string_equal(tg_node_text(f.g, 9999, text, sizeof text), "poison[]");
    fixture_free(&f);
}

/* ---------------------------------------------------------------- a graph with everything in it */

static const float everything_numbers[10] = {1, -2.5f, 3, 4, 5, 6, 7, 8, 9, 1e-30f};

/* Every op, every table. false when something failed. */
static bool everything_build(tg_graph *g) {
    static const int32_t whole[3] = {-1, 2147483647, 0}, turn[3] = {2, 0, 1};
    static const int64_t start[3] = {0, 1, 0}, offsets[2] = {40, 1};
    g->current_site = tg_site_make("/home/user/model.c", 7);
    const int32_t x = tg_ir_input(g, "x", TG_SHAPE(2, 3, 4), TG_F32), idx = tg_ir_input(g, "idx", TG_SHAPE(3), TG_I32);
    const int32_t w = tg_ir_param(g, "l1.W", TG_SHAPE(2, 4, 3), init_of(TG_INIT_RANDN, 0.5), true, false);
    const int32_t table = tg_ir_param(g, "table", TG_SHAPE(5, 2), literal_of(everything_numbers, 10), false, true);
    const int32_t step = tg_ir_state(g, "step", TG_SCALAR, TG_I32, 3);
    const int32_t half = tg_ir_const(g, TG_SCALAR, TG_F32, 0.5), one = tg_ir_const(g, TG_SCALAR, TG_I32, 1);
    const int32_t ints = tg_ir_data(g, TG_SHAPE(3), TG_I32, whole), flags = tg_ir_data(g, TG_SHAPE(4), TG_BOOL, "\1\0\0\1");
    int32_t y = tg_ir_data(g, TG_SHAPE(10), TG_F32, everything_numbers);
    y = tg_ir_unary(g, TG_OP_SQRT, tg_ir_slice(g, y, start, TG_SHAPE(1)));
    g->current_site = tg_site_make("other.c", 99);
    for (int op = TG_OP_NEG; op <= TG_OP_RELU; op++) y = tg_ir_unary(g, (tg_op)op, y);
    y = tg_ir_unary(g, TG_OP_STOP_GRADIENT, tg_ir_binary(g, TG_OP_MUL, y, x));
    for (int op = TG_OP_ADD; op <= TG_OP_MAX; op++) y = tg_ir_binary(g, (tg_op)op, y, half);
    int32_t mask = tg_ir_unary(g, TG_OP_NOT, flags);
    for (int op = TG_OP_LESS; op <= TG_OP_NOT_EQUAL; op++) mask = tg_ir_binary(g, TG_OP_AND, mask, tg_ir_binary(g, (tg_op)op, y, x));
    y = tg_ir_select(g, tg_ir_binary(g, TG_OP_OR, mask, flags), y, half);
    int32_t r = tg_ir_reduce(g, TG_OP_REDUCE_MIN, tg_ir_reduce(g, TG_OP_REDUCE_MAX, y, 2), 1);
    r = tg_ir_binary(g, TG_OP_ADD, r, tg_ir_cast(g, tg_ir_reduce(g, TG_OP_ARGMAX, y, 3), TG_F32));
    r = tg_ir_binary(g, TG_OP_ADD, r, tg_ir_cast(g, tg_ir_reduce(g, TG_OP_ARGMIN, y, 7), TG_F32));
    const int32_t permuted = tg_ir_flip(g, tg_ir_permute(g, y, turn), 5);
    const int32_t padded = tg_ir_pad(g, permuted, start, TG_SHAPE(4, 4, 3));
    const int32_t parts[2] = {padded, padded};
    const int32_t joined = tg_ir_concat(g, parts, 2, 1);
    const tg_window window = {2, 1, 1};
    const int32_t folded = tg_ir_fold(g, tg_ir_window(g, joined, 1, window), 1, window, 8);
    const int32_t flat[2] = {r, tg_ir_reduce(g, TG_OP_SUM, folded, 6)};
    const int32_t packed = tg_ir_pack(g, flat, offsets, 2, 50);
    const int32_t product = tg_ir_contract(g, y, w);
    const int32_t rows =
        tg_ir_gather(g, table, tg_ir_binary(g, TG_OP_ADD, idx, tg_ir_binary(g, TG_OP_MUL, ints, tg_ir_iota(g, TG_SHAPE(3), TG_I32, 0))));
    const int32_t head = tg_ir_reshape(g, x, TG_SHAPE(1, 2, 3, 4)),
                  seen = tg_ir_broadcast(g, tg_ir_reshape(g, flags, TG_SHAPE(1, 1, 1, 4)), TG_SHAPE(1, 2, 3, 4));
    const int32_t keys = tg_ir_reshape(g, tg_ir_broadcast(g, half, TG_SHAPE(16)), TG_SHAPE(1, 1, 4, 4));
    const int32_t row = tg_ir_reduce(g, TG_OP_SUM, head, 8), inputs[7] = {head, keys, keys, head, row, row, seen};
    const int32_t forward[4] = {head, keys, keys, seen}, own[3] = {head, head, head};
    const int32_t attended[4] = {tg_ir_attention(g, TG_OP_ATTENTION, forward, 4, false, 0.25),
                                 tg_ir_attention(g, TG_OP_ATTENTION, own, 3, true, 0.5),
                                 tg_ir_reshape(g, tg_ir_attention(g, TG_OP_ATTENTION_DQ, inputs, 7, false, 0.25), TG_SHAPE(24)),
                                 tg_ir_attention(g, TG_OP_ATTENTION_DKV, inputs, 7, false, 0.25)};
    const int32_t heads = tg_ir_reduce(g, TG_OP_SUM, tg_ir_concat(g, attended, 4, 0), 1);
    const int32_t scattered = tg_ir_scatter_add(g, idx, rows, 5);
    bool ok = tg_ir_writeback(g, table, scattered) && tg_ir_writeback(g, step, tg_ir_binary(g, TG_OP_ADD, step, one)) &&
              tg_ir_check_index(g, idx, 0, 5, true, -100, "embedding");
    int32_t loss = tg_ir_reduce(g, TG_OP_SUM, tg_ir_binary(g, TG_OP_ADD, product, tg_ir_cast(g, tg_ir_draw(g, TG_SHAPE(3), 6), TG_F32)), 7);
    loss = tg_ir_binary(g, TG_OP_ADD, tg_ir_reshape(g, loss, TG_SCALAR), tg_ir_reshape(g, heads, TG_SCALAR));
    loss = tg_ir_binary(g, TG_OP_ADD, loss, tg_ir_reshape(g, tg_ir_reduce(g, TG_OP_SUM, packed, 1), TG_SCALAR));
    if (!ok || loss == 0) return false;
    g->result = loss;
    g->nodes.items[product].name = "attention \"0\"";
    g->captures.items = tg_alloc(g->ctx, sizeof *g->captures.items);
    if (!g->captures.items) return false;
    g->captures.capacity = g->captures.count = 1;
    g->captures.items[0].name = g->nodes.items[product].name;
    g->captures.items[0].node = product;
    return true;
}

static void everything_is_there(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_graph *g = tg_graph_create(ctx);
    assert_true(everything_build(g));
    assert_string_equal(tg_error_message(ctx), "");
    bool seen[TG_OP_COUNT] = {true};
    for (int64_t id = 0; id < g->nodes.count; id++) seen[g->nodes.items[id].op] = true;
    for (int op = 0; op < TG_OP_COUNT; op++)
        if (!seen[op]) fail_msg("op %s is in no test", tg_op_table[op].name);
    assert_int_equal(tg_graph_verify(g), TG_OK);
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- verify */

typedef void (*damage_fn)(tg_graph *g);
static int32_t damage_find(const tg_graph *g, tg_op op) {
    for (int32_t id = 1; id < g->nodes.count; id++)
        if (g->nodes.items[id].op == op) return id;
    return 0;
}
static void damage_shape(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_CONTRACT)].shape.dim[2]++; }
static void damage_dtype(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_LESS)].dtype = TG_F32; }
static void damage_op(tg_graph *g) { g->nodes.items[5].op = (tg_op)77; }
static void damage_arity(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_EXP)].input_count = 0; }
static void damage_order(tg_graph *g) {
    static int32_t self;
    self = damage_find(g, TG_OP_EXP);
    g->nodes.items[self].inputs = &self;
}
static void damage_axes(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_SUM)].attr.axes = 64; }
static void damage_perm(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_PERMUTE)].attr.perm[0] = 0; }
static void damage_site(tg_graph *g) { g->nodes.items[3].site.file = NULL; }
static void damage_leaf(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_PARAM)].attr.leaf = 2; }
static void damage_swap(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_INPUT)].attr.leaf = 1; }
static void damage_name(tg_graph *g) { g->params.items[1].name = "l1.W"; }
static void damage_no_name(tg_graph *g) { g->states.items[0].name = NULL; }
static void damage_entry(tg_graph *g) { g->inputs.items[0].node = g->inputs.items[1].node; }
static void damage_param(tg_graph *g) { g->params.items[0].node = g->params.items[1].node; }
static void damage_literal(tg_graph *g) { g->params.items[1].init.count = 9; }
static void damage_capture(tg_graph *g) { g->captures.items[0].node = 0; }
static void damage_writeback(tg_graph *g) { g->writebacks.items[0].source = g->result; }
static void damage_twice(tg_graph *g) { g->writebacks.items[1] = g->writebacks.items[0]; }
static void damage_check(tg_graph *g) { g->checks.items[0].node = g->result; }
static void damage_bound(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_RANDOM)].attr.value = 2147483649.0; }
static void damage_stream(tg_graph *g) { g->nodes.items[damage_find(g, TG_OP_RANDOM)].attr.stream = -1; }
static void damage_result(tg_graph *g) { g->result = (int32_t)g->nodes.count; }
static void damage_poison(tg_graph *g) { g->nodes.items[0].op = TG_OP_INPUT; }

static void verify_finds_every_damage(void **state) {
    (void)state;
    static const struct {
        damage_fn damage;
        const char *part;
    } rows[] = {
        {damage_shape, "contract is f32[2, 3, 4], but its inputs make it f32[2, 3, 3]"},
        {damage_dtype, "less is f32[2, 3, 4], but its inputs make it bool[2, 3, 4]"},
        {damage_op, "node %5: ?: 77 is no operation"},
        {damage_arity, "exp: takes 1 inputs, not 0"},
        {damage_order, "exp: input 0 is node "},
        {damage_axes, "sum: axis 6 is outside"},
        {damage_perm, "permute: axis 0 is named twice"},
        {damage_site, "node %3: param has no call site"},
        {damage_leaf, "param 2 of 2"},
        {damage_swap, "input 1 has another shape or element type in its table"},
        {damage_name, "param: the name 'l1.W' is used twice"},
        {damage_no_name, "state 0 has no name"},
        {damage_entry, "input 'x' has a wrong shape, element type or node"},
        {damage_param, "param 'l1.W' has a wrong node"},
        {damage_literal, "param 'table' has a literal of another size"},
        {damage_capture, "capture 'attention \"0\"' has no node"},
        {damage_writeback, "writeback 0: "},
        {damage_twice, "is written twice"},
        {damage_check, "index check 0 is broken"},
        {damage_bound, "random: the bound 2147483649 is not a whole number in [1, 2^31]"},
        {damage_stream, "random: stream -1"},
        {damage_result, "the result is node %"},
        {damage_poison, "node %0 is not poison"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tg_context *ctx = tg_context_create(NULL);
        tg_graph *g = tg_graph_create(ctx);
        assert_true(everything_build(g));
        rows[i].damage(g);
        assert_int_equal(tg_graph_verify(g), TG_ERROR_INTERNAL);
        assert_int_equal(tg_error(ctx), TG_ERROR_INTERNAL);
        if (!strstr(tg_error_message(ctx), rows[i].part)) fail_msg("row %zu: %s", i, tg_error_message(ctx));
        tg_text_buffer bytes;
        tg_text_init(&bytes, ctx);
        assert_int_equal(tg_graph_write(g, &bytes), TG_ERROR_INTERNAL);
        assert_int_equal(bytes.length, 0);
        tg_text_free(&bytes);
        tg_graph_destroy(g);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
    }
}

/* ---------------------------------------------------------------- print */

static void text_is_readable(void **state) {
    (void)state;
    fixture f = fixture_make();
    tg_graph *g = tg_graph_create(f.ctx);
    const int32_t turn[2] = {1, 0};
    const int64_t start[2] = {0, 2};
    g->current_site = tg_site_make("/home/user/model.c", 41);
    const int32_t x = tg_ir_input(g, "x", TG_SHAPE(4, 3), TG_F32), n = tg_ir_state(g, "n", TG_SCALAR, TG_I32, 0);
    const int32_t y = tg_ir_binary(g, TG_OP_MUL, x, tg_ir_const(g, TG_SCALAR, TG_F32, 0.1));
    (void)tg_ir_reduce(g, TG_OP_SUM, tg_ir_permute(g, y, turn), 3);
    (void)tg_ir_concat(g, (const int32_t[]){x, tg_ir_slice(g, x, start, TG_SHAPE(4, 1))}, 2, 1);
    g->current_site = TG_SITE_NONE;
    const int32_t next = tg_ir_binary(g, TG_OP_ADD, n, tg_ir_const(g, TG_SCALAR, TG_I32, 16777217));
    (void)tg_ir_data(g, TG_SHAPE(10), TG_F32, everything_numbers);
    (void)tg_ir_const(g, TG_SHAPE(2), TG_BOOL, 1);
    assert_true(tg_ir_writeback(g, n, next));
    assert_true(tg_ir_check_index(g, n, 0, 7, true, -1, "one_hot"));
    (void)tg_ir_random(g, n, n, n, 3, INT64_C(1) << 31);
    g->result = y;
    tg_text_buffer text;
    tg_text_init(&text, f.ctx);
    tg_graph_print(g, &text);
    assert_string_equal(text.data, "%1 = input f32[4, 3] \"x\"  ; model.c:41\n"
                                   "%2 = state i32[] \"n\"  ; model.c:41\n"
                                   "%3 = const f32[] 0.1  ; model.c:41\n"
                                   "%4 = reshape f32[1, 1] %3  ; model.c:41\n"
                                   "%5 = broadcast f32[4, 3] %4  ; model.c:41\n"
                                   "%6 = mul f32[4, 3] %1 %5  ; model.c:41\n"
                                   "%7 = permute f32[3, 4] %6 perm=[1, 0]  ; model.c:41\n"
                                   "%8 = sum f32[1, 1] %7 axes=[0, 1]  ; model.c:41\n"
                                   "%9 = slice f32[4, 1] %1 start=[0, 2]  ; model.c:41\n"
                                   "%10 = concat f32[4, 4] %1 %9 axis=1  ; model.c:41\n"
                                   "%11 = const i32[] 16777217\n"
                                   "%12 = add i32[] %2 %11\n"
                                   "%13 = const f32[10] {1, -2.5, 3, 4, 5, 6, 7, 8, ...}\n"
                                   "%14 = const bool[2] true\n"
                                   "%15 = random i32[] %2 %2 %2 stream=3 below=2147483648\n"
                                   "check %2 in [0, 7) or -1 for one_hot\n"
                                   "writeback %2 <- %12\n"
                                   "result %6\n");
    tg_text_clear(&text);
    tg_graph_print_dot(g, &text);
    assert_int_equal(strncmp(text.data, "digraph tensorgrad {\n", 21), 0);
    assert_non_null(strstr(text.data, "label=\"x\\ninput\\nf32[4, 3]\"];\n"));
    assert_non_null(strstr(text.data, "  n1 -> n6;\n"));
    assert_non_null(strstr(text.data, "  n12 -> n2 [style=dotted"));
    assert_string_equal(text.data + text.length - 2, "}\n");
    tg_text_free(&text);
    tg_graph_destroy(g);
    fixture_free(&f);
}

/* ---------------------------------------------------------------- bytes */

static void everything_bytes(tg_context *ctx, tg_text_buffer *bytes) {
    tg_graph *g = tg_graph_create(ctx);
    assert_true(everything_build(g));
    tg_text_init(bytes, ctx);
    assert_int_equal(tg_graph_write(g, bytes), TG_OK);
    tg_graph_destroy(g);
}

static void bytes_come_back(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes, again, text, text_again;
    everything_bytes(ctx, &bytes);
    tg_text_init(&again, ctx);
    tg_text_init(&text, ctx);
    tg_text_init(&text_again, ctx);
    tg_graph *original = tg_graph_create(ctx);
    assert_true(everything_build(original));
    tg_graph *g = tg_graph_read(ctx, bytes.data, bytes.length);
    assert_string_equal(tg_error_message(ctx), "");
    assert_non_null(g);
    tg_graph_print(original, &text);
    tg_graph_print(g, &text_again);
    assert_string_equal(text.data, text_again.data);
    assert_int_equal(tg_graph_write(g, &again), TG_OK);
    assert_int_equal(bytes.length, again.length);
    assert_memory_equal(bytes.data, again.data, bytes.length);
    assert_string_equal(tg_graph_node(g, 1)->site.file, "/home/user/model.c");
    assert_memory_equal(g->params.items[1].init.data, everything_numbers, sizeof everything_numbers);
    assert_true(g->params.items[0].decay && g->params.items[1].frozen && g->params.items[0].init.scale == 0.5);
    assert_true(g->checks.items[0].has_ignore && g->checks.items[0].ignore == -100 && g->checks.items[0].hi == 5);
    assert_true(g->states.items[0].value == 3);
    g->current_site = tg_site_make("later.c", 1);
    assert_true(tg_ir_unary(g, TG_OP_NEG, g->result) > 0); /* it can be built on */
    tg_graph_destroy(g);
    tg_graph_destroy(original);
    tg_text_free(&bytes);
    tg_text_free(&again);
    tg_text_free(&text);
    tg_text_free(&text_again);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* The copy is the graph, byte for byte, and outlives it. */
static void a_clone_is_a_copy(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes, again;
    everything_bytes(ctx, &bytes);
    tg_text_init(&again, ctx);
    tg_graph *original = tg_graph_create(ctx);
    assert_true(everything_build(original));
    original->inputs.items[0].any = 1;
    original->size = 7;
    original->finite_gradients = 2;
    original->finite_step = 3;
    tg_graph *g = tg_graph_clone(original);
    assert_non_null(g);
    for (int64_t i = 0; i < original->nodes.count; i++) {
        tg_node *node = &original->nodes.items[i];
        if (node->inputs != NULL) memset((void *)(uintptr_t)node->inputs, 0x55, (size_t)node->input_count * sizeof *node->inputs);
    }
    tg_graph_destroy(original);
    assert_int_equal(tg_graph_verify(g), TG_OK);
    assert_int_equal(tg_graph_write(g, &again), TG_OK);
    assert_int_equal(bytes.length, again.length);
    assert_memory_equal(bytes.data, again.data, bytes.length);
    assert_int_equal(g->inputs.items[0].any, 1);
    assert_int_equal(g->size, 7);
    assert_int_equal(g->finite_gradients, 2);
    assert_int_equal(g->finite_step, 3);
    g->current_site = tg_site_make("later.c", 1);
    assert_true(tg_ir_unary(g, TG_OP_NEG, g->result) > 0); /* it can be built on */
    tg_graph_destroy(g);
    tg_text_free(&bytes);
    tg_text_free(&again);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* The format is little-endian and starts as written down. */
static void bytes_have_their_header(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes;
    everything_bytes(ctx, &bytes);
    assert_memory_equal(bytes.data, "TGGRAPH\x1A\x02\0\0\0", 12);
    assert_int_equal((unsigned char)bytes.data[12], TG_OP_COUNT);
    assert_memory_equal(bytes.data + 16, "\6\0\0\0poison\5\0\0\0input", 19);
    tg_text_free(&bytes);
    tg_context_destroy(ctx);
}

/* A copy of exactly `length` bytes, so that a sanitizer sees the first byte read too far. */
static tg_graph *read_exact(tg_context *ctx, const char *data, size_t length) {
    char *exact = malloc(length ? length : 1);
    assert_non_null(exact);
    memcpy(exact, data, length);
    tg_graph *g = tg_graph_read(ctx, exact, length);
    free(exact);
    return g;
}

static void cut_bytes_are_refused(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes;
    everything_bytes(ctx, &bytes);
    const int64_t blocks = ctx->live_blocks;
    for (size_t length = 0; length < bytes.length; length++) {
        assert_null(read_exact(ctx, bytes.data, length));
        assert_int_equal(tg_error(ctx), TG_ERROR_FORMAT);
        assert_int_equal(strncmp(tg_error_message(ctx), "graph bytes: ", 13), 0);
        assert_int_equal(ctx->live_blocks, blocks);
        tg_clear_error(ctx);
    }
    tg_text_bytes(&bytes, "", 1);
    assert_null(read_exact(ctx, bytes.data, bytes.length));
    assert_string_equal(tg_error_message(ctx), "graph bytes: 1 bytes too many");
    assert_null(tg_graph_read(ctx, NULL, 0));
    tg_text_free(&bytes);
    tg_context_destroy(ctx);
}

/* Each byte replaced in turn by several others: refused, or a graph that obeys every rule. */
static void changed_bytes_never_break(void **state) {
    (void)state;
    static const unsigned char masks[] = {0x01, 0xFF};
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes, text;
    everything_bytes(ctx, &bytes);
    tg_text_init(&text, ctx);
    int accepted = 0, rejected = 0;
    for (size_t at = 0; at < bytes.length; at++)
        for (size_t m = 0; m < sizeof masks; m++) {
            bytes.data[at] = (char)(bytes.data[at] ^ (char)masks[m]);
            tg_graph *g = tg_graph_read(ctx, bytes.data, bytes.length);
            bytes.data[at] = (char)(bytes.data[at] ^ (char)masks[m]);
            if (g) {
                accepted++;
                assert_int_equal(tg_graph_verify(g), TG_OK);
                tg_text_clear(&text);
                tg_graph_print(g, &text);
                tg_graph_print_dot(g, &text);
            } else {
                rejected++;
                assert_int_equal(tg_error(ctx), TG_ERROR_FORMAT);
            }
            tg_graph_destroy(g);
            tg_clear_error(ctx);
        }
    assert_true(accepted > 100 && rejected > 1000);
    tg_text_free(&text);
    tg_text_free(&bytes);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

/* Headers that promise more than follows must not get memory for it. */
static void boastful_headers_get_no_memory(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer bytes;
    everything_bytes(ctx, &bytes);
    for (size_t at = 8; at + 4 <= bytes.length; at++) {
        char saved[4];
        memcpy(saved, bytes.data + at, 4);
        memcpy(bytes.data + at, "\xF0\xFF\xFF\x7F", 4);
        const int64_t held = ctx->live_bytes;
        tg_graph *g = tg_graph_read(ctx, bytes.data, bytes.length);
        if (g) assert_true(ctx->live_bytes - held < 64 * (int64_t)bytes.length);
        tg_graph_destroy(g);
        assert_true(tg_error(ctx) == TG_OK || tg_error(ctx) == TG_ERROR_FORMAT); /* never TG_ERROR_MEMORY */
        tg_clear_error(ctx);
        memcpy(bytes.data + at, saved, 4);
    }
    tg_text_free(&bytes);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- no memory */

/* Everything a graph can do, with the n-th allocation failing, for every n. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int64_t n = 2;; n++) {
        support_allocator f = {.fail_at = n};
        tg_context *ctx = support_context_counting(&f);
        tg_text_buffer bytes, text;
        tg_text_init(&bytes, ctx);
        tg_text_init(&text, ctx);
        tg_graph *again = NULL, *clone = NULL, *g = tg_graph_create(ctx);
        bool ok = g && everything_build(g);
        if (g) {
            const tg_status verified = tg_graph_verify(g); /* a half-built graph is a sound graph */
            assert_true(verified == TG_OK || verified == TG_ERROR_MEMORY);
            ok = verified == TG_OK && ok;
            tg_graph_print(g, &text);
            ok = !text.failed && ok;
        }
        if (ok) ok = tg_graph_write(g, &bytes) == TG_OK;
        if (ok) ok = (again = tg_graph_read(ctx, bytes.data, bytes.length)) != NULL;
        if (ok) ok = (clone = tg_graph_clone(g)) != NULL;
        assert_int_equal(tg_error(ctx), ok ? TG_OK : TG_ERROR_MEMORY);
        tg_graph_destroy(g);
        tg_graph_destroy(again);
        tg_graph_destroy(clone);
        tg_text_free(&bytes);
        tg_text_free(&text);
        assert_int_equal(ctx->live_blocks, 0);
        assert_int_equal(ctx->live_bytes, 0);
        tg_context_destroy(ctx);
        assert_int_equal(f.live_blocks, 0);
        if (ok) {
            assert_true(n > 20);
            break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_count),
        cmocka_unit_test(shapes_broadcast),
        cmocka_unit_test(sizes_are_refused_before_memory),
        cmocka_unit_test(constants_hold_their_type),
        cmocka_unit_test(data_is_copied),
        cmocka_unit_test(names_are_needed_and_unique),
        cmocka_unit_test(operands_broadcast),
        cmocka_unit_test(operands_are_refused),
        cmocka_unit_test(every_op_takes_its_types),
        cmocka_unit_test(reductions_keep_rank),
        cmocka_unit_test(views_check_their_shapes),
        cmocka_unit_test(windows_check_their_axis),
        cmocka_unit_test(joins_check_their_parts),
        cmocka_unit_test(packs_sort_their_offsets),
        cmocka_unit_test(contractions_name_what_differs),
        cmocka_unit_test(indexing_checks_types_and_ranks),
        cmocka_unit_test(writebacks_fit_their_destination),
        cmocka_unit_test(poison_passes_through_silently),
        cmocka_unit_test(nodes_made_by_hand_are_held_to_their_rule),
        cmocka_unit_test(sites_are_shared),
        cmocka_unit_test(everything_is_there),
        cmocka_unit_test(verify_finds_every_damage),
        cmocka_unit_test(text_is_readable),
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(a_clone_is_a_copy),
        cmocka_unit_test(bytes_have_their_header),
        cmocka_unit_test(cut_bytes_are_refused),
        cmocka_unit_test(changed_bytes_never_break),
        cmocka_unit_test(boastful_headers_get_no_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
