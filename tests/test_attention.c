/* Attention as one primitive against the graph that stores all scores: values and gradients, for each
 * combination of mask, causal order, groups of heads, dropout before the values, and numbers of
 * queries and keys that fill no block, in all ways in which a kernel runs here. On WebGPU (see
 * support_home) the same cases. Also which graphs have it, and the memory that it saves. */
#include "ir/attention.h"
#include "plan/program.h"
#include "support.h"

#include <math.h>
#include <string.h>

typedef struct attend_case {
    int64_t batches, kv_heads, groups, queries, keys, width;
    bool causal, masked, by_head; /* by_head: a mask of [B, H, T, S], else [T, S] */
    bool rows;                    /* operands are heads of rows, as a layer has them; else [B, H, T, d] */
} attend_case;

typedef struct attend_build {
    const attend_case *c;
    bool apart; /* weights, then values */
} attend_build;

static tg_tensor heads(tg_graph *g, const attend_case *c, const char *name, int64_t count, int64_t length) {
    if (!c->rows) return tg_input(g, name, TG_SHAPE(c->batches, count, length, c->width), TG_F32);
    return tg_nn_split_heads(tg_input(g, name, TG_SHAPE(c->batches, length, count * c->width), TG_F32), count);
}

/* The result, the heads, and the gradients of q, k and v. */
static tg_tensor build_attend(tg_graph *g, void *user) {
    const attend_build *b = user;
    const attend_case *c = b->c;
    const int64_t all = c->kv_heads * c->groups;
    const tg_tensor q = heads(g, c, "q", all, c->queries), k = heads(g, c, "k", c->kv_heads, c->keys),
                    v = heads(g, c, "v", c->kv_heads, c->keys);
    tg_attention_mask options = {.causal = c->causal};
    if (c->masked && c->by_head) options.mask = tg_input(g, "mask", TG_SHAPE(c->batches, all, c->queries, c->keys), TG_BOOL);
    else if (c->masked) options.mask = tg_less(tg_input(g, "mask", TG_SHAPE(c->queries, c->keys), TG_F32), 1.0);
    tg_tensor o;
    if (b->apart) o = tg_nn_attention_values(tg_nn_attention_weights_at(TG_SITE, q, k, options), v);
    else o = tg_nn_attend_at(TG_SITE, q, k, v, options);
    const tg_tensor wrt[3] = {q, k, v};
    tg_tensor given[3];
    const tg_tensor cotangent = tg_mul(tg_sin(tg_mul(o, 3.0)), tg_input(g, "dy", TG_SHAPE(c->batches, all, c->queries, c->width), TG_F32));
    tg_vjp(o, cotangent, wrt, 3, given);
    static const char *const names[3] = {"dq", "dk", "dv"};
    for (int i = 0; i < 3; i++) (void)tg_capture(names[i], given[i]);
    return tg_nn_merge_heads(o);
}

/* As the default, but each seventh query sees nothing. */
static void fill(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    support_fill_default(user, name, shape, dtype, out, count);
    if (strcmp(name, "mask") != 0) return;
    const int64_t queries = shape.dim[shape.rank - 2], keys = shape.dim[shape.rank - 1];
    for (int64_t i = 0; i < count; i++)
        if (i / keys % queries % 7 == 3) out[i] = dtype == TG_BOOL ? 0 : 2;
}

static bool traces(const support_case *c, tg_op op) {
    tg_context *ctx = support_context();
    tg_graph *g = support_trace(ctx, c);
    bool found = false;
    assert_non_null(g);
    for (int64_t i = 1; i < g->nodes.count; i++) found = found || g->nodes.items[i].op == op;
    tg_graph_destroy(g);
    tg_context_destroy(ctx);
    return found;
}

/* The last two have so many heads that a GPU gives each workgroup more rows. */
static const attend_case cases[] = {
    {1, 1, 1, 64, 64, 16, false, false, false, false}, {2, 2, 1, 64, 64, 32, true, false, false, true},
    {1, 2, 2, 65, 65, 16, true, false, false, true},   {2, 1, 3, 70, 130, 32, false, false, false, true},
    {1, 1, 2, 33, 150, 64, false, true, false, false}, {1, 2, 1, 97, 97, 80, true, true, false, true},
    {2, 1, 2, 66, 63, 16, false, true, true, true},    {1, 1, 1, 130, 130, 128, true, false, false, true},
    {1, 2, 2, 100, 41, 48, false, true, true, false},  {1, 3, 1, 257, 257, 64, true, true, true, true},
    {12, 22, 1, 64, 64, 16, true, false, false, true}, {11, 12, 1, 66, 70, 64, false, true, false, true},
};

static support_tolerance close = {8.0, 1e-5, 3e-5};

/* Each case, fused and apart, against the reference of the graph apart. */
static void test_values_and_gradients(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        attend_build fused = {&cases[i], false}, apart = {&cases[i], true};
        const support_case one = {.build = build_attend, .build_user = &fused, .fill = fill};
        const support_case other = {.build = build_attend, .build_user = &apart, .fill = fill};
        support_outputs want, got, oracle;
        char what[32];
        snprintf(what, sizeof what, "case %d", i);
        assert_true(traces(&one, TG_OP_ATTENTION) && traces(&one, TG_OP_ATTENTION_DQ) && traces(&one, TG_OP_ATTENTION_DKV));
        assert_false(traces(&other, TG_OP_ATTENTION));
        assert_true(support_run_reference(&other, 1, &want));
        assert_true(support_run_reference(&one, 1, &oracle));
        assert_true(support_outputs_equal(what, &oracle, &want, (support_tolerance){1.0, 1e-9, 1e-9}));
        const support_options ways[] = {{.home = support_home_now()},
                                        {.threads = 2},
                                        {.isa = "scalar"},
                                        {.isa = "avx2", .threads = 2},
                                        {.no_fusion = true, .no_passes = true},
                                        {.joins = true, .shuffled = true}};
        for (int way = 0; way < (support_home_now() == SUPPORT_CPU ? SUPPORT_COUNT(ways) : 1); way++) {
            const bool ran = way == 0 ? support_run_home(&one, &ways[way], &got) : support_run_cpu(&one, &ways[way], &got);
            if (!ran) fail_msg("%s: %s", what, got.message);
            assert_true(support_outputs_equal(what, &got, &want, close));
            support_outputs_free(&got);
        }
        support_outputs_free(&want);
        support_outputs_free(&oracle);
    }
}

/* ---------------------------------------------------------------- which graphs have it */

static bool attends(attend_case c) {
    attend_build b = {&c, false};
    const support_case one = {.build = build_attend, .build_user = &b};
    return traces(&one, TG_OP_ATTENTION);
}

static void test_sizes(void **state) {
    (void)state;
    const attend_case c = {1, 1, 1, 64, 64, 16, true, false, false, false};
    attend_case narrow = c, odd = c, wide = c, few = c;
    narrow.width = 8, odd.width = 24, wide.width = 144, few.queries = few.keys = 63;
    assert_true(attends(c));
    assert_false(attends(narrow));
    assert_false(attends(odd));
    assert_false(attends(wide));
    assert_false(attends(few));
}

enum { LAYER_T = 80, LAYER_D = 32 };
static tg_tensor build_layer(tg_graph *g, void *user) {
    const tg_tensor x = tg_mul(tg_input(g, "x", TG_SHAPE(2, LAYER_T, LAYER_D), TG_F32), 0.1);
    const tg_attention layer = tg_nn_attention(g, "a", LAYER_D, 2, .causal = true, .kv_heads = 1, .rope_base = 100);
    return tg_nn_attention_fwd(layer, x, .capture = user != NULL ? "weights" : NULL);
}

/* A layer whose weights are captured stores them; the result is the same. */
static void test_captured_weights(void **state) {
    (void)state;
    const support_case plain = {.build = build_layer}, captured = {.build = build_layer, .build_user = &close};
    const support_options options = {.home = support_home_now()};
    support_outputs one, other, want;
    assert_true(traces(&plain, TG_OP_ATTENTION));
    assert_false(traces(&captured, TG_OP_ATTENTION));
    assert_true(support_run_home(&plain, &options, &one));
    assert_true(support_run_home(&captured, &options, &other));
    const support_value *weights = support_outputs_find(&other, "weights"), *y = support_outputs_find(&other, "result");
    assert_int_equal(weights->count, 2 * 2 * LAYER_T * LAYER_T);
    for (int64_t row = 0; row < weights->count / LAYER_T; row++) {
        double sum = 0;
        for (int64_t i = 0; i < LAYER_T; i++) sum += weights->data[row * LAYER_T + i];
        assert_true(support_close(sum, 1, close));
    }
    assert_true(support_run_reference(&captured, 1, &want));
    assert_true(support_outputs_equal("captured", &other, &want, close));
    assert_true(support_compare("layer", support_outputs_find(&one, "result")->data, want.items[0].data, y->count, close));
    support_outputs_free(&want);
    support_outputs_free(&one);
    support_outputs_free(&other);
}

enum { ROW_OF_INFINITY = 5, ROW_OF_NAN = 9 };
/* Positive keys; one query of -infinity, one of NaN. */
static void fill_lost(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const int64_t width = shape.dim[shape.rank - 1];
    fill(user, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++) {
        if (name[0] == 'k') out[i] = 0.5 + fabs(out[i]);
        if (name[0] == 'q' && i / width == ROW_OF_INFINITY) out[i] = -INFINITY;
        if (name[0] == 'q' && i / width == ROW_OF_NAN) out[i] = NAN;
    }
}
static tg_tensor build_lost(tg_graph *g, void *user) {
    const attend_case *c = user;
    tg_attention_mask options = {.causal = c->causal};
    if (c->masked) options.mask = tg_less(tg_input(g, "mask", TG_SHAPE(c->queries, c->keys), TG_F32), 1.0);
    return tg_nn_attend_at(TG_SITE, heads(g, c, "q", 1, c->queries), heads(g, c, "k", 1, c->keys), heads(g, c, "v", 1, c->keys), options);
}

/* A row whose scores are all -infinity or NaN is NaN, as softmax of it; one that sees nothing is 0. */
static void test_rows_without_weights(void **state) {
    (void)state;
    const attend_case lost_cases[] = {{1, 1, 1, 64, 64, 16, true, false, false, false},
                                      {1, 1, 1, 64, 64, 32, false, false, false, false},
                                      {1, 1, 1, 70, 70, 16, true, false, false, false},
                                      {1, 1, 1, 70, 67, 16, false, true, false, false}};
    const support_options options = {.home = support_home_now()};
    for (int i = 0; i < SUPPORT_COUNT(lost_cases); i++) {
        attend_case c = lost_cases[i];
        const support_case one = {.build = build_lost, .build_user = &c, .fill = fill_lost};
        support_outputs got, want;
        assert_true(traces(&one, TG_OP_ATTENTION));
        if (!support_run_home(&one, &options, &got)) fail_msg("%s", got.message);
        assert_true(support_run_reference(&one, 1, &want));
        const double *home = support_outputs_find(&got, "result")->data, *reference = want.items[0].data;
        for (int64_t at = 0; at < c.queries * c.width; at++) {
            const int64_t row = at / c.width;
            const bool lost = row == ROW_OF_INFINITY || row == ROW_OF_NAN;
            if (isnan(home[at]) != lost || isnan(reference[at]) != lost)
                fail_msg("case %d, row %d: %g, %g", i, (int)row, home[at], reference[at]);
            if (c.masked && row % 7 == 3) assert_true(home[at] == 0);
        }
        support_outputs_free(&got);
        support_outputs_free(&want);
    }
}

/* Nothing that grows with T S is stored, forward and backward. */
static void test_memory(void **state) {
    (void)state;
    const attend_case c = {2, 2, 1, 256, 256, 32, true, false, false, true};
    attend_build fused = {&c, false}, apart = {&c, true};
    for (int i = 0; i < 2; i++) {
        const support_case one = {.build = build_attend, .build_user = i == 0 ? &fused : &apart};
        support_program p;
        support_outputs error;
        assert_true(support_program_make(&one, &(support_options){0}, &p, &error));
        int64_t largest = 0;
        for (int32_t b = 0; b < p.program->buffer_count; b++)
            if (p.program->buffers[b].storage == TG_STORAGE_WORKSPACE && p.program->buffers[b].count > largest)
                largest = p.program->buffers[b].count;
        assert_int_equal(largest >= c.batches * c.kv_heads * c.queries * c.keys, i);
        support_program_free(&p);
    }
}

int main(void) {
    const int refused = support_home_refuses("attention");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_gradients), cmocka_unit_test(test_sizes),  cmocka_unit_test(test_captured_weights),
        cmocka_unit_test(test_rows_without_weights), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
