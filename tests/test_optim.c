/* Optimisers: layout, schedules, gradients packed flat, SGD and Adam against plain double loops, flattening of parameters.
 * Runs appended graphs on the f64 reference with states carried from step to step, before and after the passes. Must not
 * use the model session. */
#include "support.h"

#include "optim/optim.h"
#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tg_init zeros = {.kind = TG_INIT_ZEROS};

/* ---------------------------------------------------------------- a graph with states, stepped by hand */

typedef struct machine {
    tg_context *ctx;
    tg_graph *g;
    tg_arena arena;
    tg_layout layout;
    double *states[16];
    double *inputs[16];
    double scale; /* of cotangents; 0: 1 */
} machine;

static machine *machine_make(void) {
    machine *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->ctx = tg_context_create(NULL);
    m->g = tg_graph_create(m->ctx);
    m->g->current_site = TG_SITE;
    m->ctx->trace = m->g;
    tg_arena_init(&m->arena, m->ctx);
    return m;
}

static void machine_free(machine *m) {
    for (int i = 0; i < 16; i++) {
        free(m->states[i]);
        free(m->inputs[i]);
    }
    tg_arena_free(&m->arena);
    tg_graph_destroy(m->g);
    assert_int_equal(m->ctx->live_blocks, 0);
    tg_context_destroy(m->ctx);
    free(m);
}

static void no_error(const machine *m, tg_status status) {
    if (status != TG_OK || tg_error(m->ctx) != TG_OK) fail_msg("%s", tg_error_message(m->ctx));
}

static int32_t param(machine *m, const char *name, int64_t n, bool decay, bool frozen) {
    int32_t id = tg_ir_param(m->g, name, TG_SHAPE(n), zeros, decay, frozen);
    assert_true(id > 0);
    return id;
}

static int32_t op(machine *m, tg_op which, int32_t a, int32_t b) { return tg_ir_binary(m->g, which, a, b); }

static int32_t total(machine *m, int32_t x) { return tg_ir_reshape(m->g, tg_ir_reduce(m->g, TG_OP_SUM, x, 1u), TG_SCALAR); }

static int state_index(const machine *m, const char *name) {
    for (int64_t i = 0; i < m->g->states.count; i++)
        if (strcmp(m->g->states.items[i].name, name) == 0) return (int)i;
    return -1;
}

static double *state_of(machine *m, const char *name) {
    int i = state_index(m, name);
    if (i < 0) fail_msg("no state %s", name);
    return m->states[i];
}

static double *param_value(machine *m, const char *name) {
    const tg_layout_entry *entry = tg_layout_find(&m->layout, name);
    assert_non_null(entry);
    return state_of(m, "tg.parameters") + entry->offset;
}

/* Layout, training, flattening, passes if wanted; states filled with their first values. */
static void machine_finish(machine *m, const tg_optimizer *optimizer, bool passes) {
    no_error(m, tg_mark_params(m->g, TG_SITE, optimizer));
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    if (optimizer != NULL) no_error(m, tg_append_training(m->g, m->g->result, optimizer, &m->layout, m->scale != 0 ? m->scale : 1.0, NULL));
    no_error(m, tg_graph_verify(m->g));
    no_error(m, tg_flatten_params(m->g, &m->layout));
    no_error(m, tg_graph_verify(m->g));
    for (int64_t id = 1; id < m->g->nodes.count; id++) assert_int_not_equal(m->g->nodes.items[id].op, TG_OP_PARAM);
    if (passes) no_error(m, tg_pass_run(m->g, true));
    no_error(m, tg_graph_verify(m->g));
    for (int64_t i = 0; i < m->g->states.count; i++) {
        int64_t count = tg_shape_count(m->g->states.items[i].shape);
        m->states[i] = calloc((size_t)count, sizeof(double));
        for (int64_t k = 0; k < count; k++) m->states[i][k] = m->g->states.items[i].value;
    }
    for (int64_t i = 0; i < m->g->inputs.count; i++)
        m->inputs[i] = calloc((size_t)tg_shape_count(m->g->inputs.items[i].shape), sizeof(double));
}

/* A PACK written to a flat state leaves the holes as they are. */
static void store(const machine *m, const tg_reference *run, const tg_writeback_info *writeback, double *to) {
    const tg_node *source = tg_graph_node(m->g, writeback->source);
    const double *value = tg_reference_value(run, writeback->source);
    if (source->op != TG_OP_PACK) {
        memcpy(to, value, sizeof(double) * (size_t)tg_shape_count(source->shape));
        return;
    }
    for (int32_t i = 0; i < source->input_count; i++) {
        int64_t count = tg_shape_count(tg_graph_node(m->g, source->inputs[i])->shape);
        memcpy(to + source->attr.offsets[i], value + source->attr.offsets[i], sizeof(double) * (size_t)count);
    }
}

static double machine_step(machine *m) {
    const double **leaves = calloc((size_t)m->g->nodes.count, sizeof *leaves);
    for (int64_t id = 1; id < m->g->nodes.count; id++) {
        const tg_node *node = tg_graph_node(m->g, (int32_t)id);
        if (node->op == TG_OP_STATE) leaves[id] = m->states[node->attr.leaf];
        if (node->op == TG_OP_INPUT) leaves[id] = m->inputs[node->attr.leaf];
    }
    tg_reference *run = tg_reference_run(m->g, leaves);
    if (run == NULL) fail_msg("%s", tg_error_message(m->ctx));
    double result = m->g->result > 0 ? tg_reference_value(run, m->g->result)[0] : 0;
    for (int64_t i = 0; i < m->g->writebacks.count; i++) {
        const tg_writeback_info *writeback = &m->g->writebacks.items[i];
        store(m, run, writeback, m->states[tg_graph_node(m->g, writeback->destination)->attr.leaf]);
    }
    tg_reference_destroy(run);
    free(leaves);
    return result;
}

/* Differences come from constants rounded to f32 (6e-8), which Adam enlarges where a gradient is nearly 0. */
static void close_to(double got, double want, const char *what) {
    if (fabs(got - want) > 1e-5 * (fabs(want) + 0.1)) fail_msg("%s: got %.9g, want %.9g", what, got, want);
}

/* ---------------------------------------------------------------- layout */

static bool only_b(void *user, const char *name) {
    (void)user;
    return strcmp(name, "b") == 0;
}

static void test_layout(void **state) {
    (void)state;
    machine *m = machine_make();
    param(m, "a", 10, false, false);
    param(m, "b", 65, true, false);
    param(m, "c", 1, true, true);
    param(m, "d", 64, true, false);
    param(m, "e", 3, false, false);
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    const int64_t offsets[] = {192, 0, 320, 128, 256}, counts[] = {10, 65, 1, 64, 3};
    assert_int_equal(m->layout.count, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(m->layout.entries[i].offset, offsets[i]);
        assert_int_equal(m->layout.entries[i].count, counts[i]);
        assert_int_equal(m->layout.entries[i].offset % TG_FLAT_ALIGN, 0);
    }
    assert_int_equal(m->layout.segment_count, 2);
    assert_int_equal(m->layout.segments[0].end, 192);
    assert_true(m->layout.segments[0].decay && !m->layout.segments[1].decay);
    assert_int_equal(m->layout.matrix_end, 0);
    assert_int_equal(m->layout.trained_end, 320);
    assert_int_equal(m->layout.total, 384);
    assert_ptr_equal(tg_layout_find(&m->layout, "d"), &m->layout.entries[3]);
    assert_null(tg_layout_find(&m->layout, "z"));
    tg_optimizer filtered = tg_adam(.decay_filter = only_b);
    no_error(m, tg_mark_params(m->g, TG_SITE, &filtered));
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    assert_int_equal(m->layout.segments[0].end, 128);
    assert_int_equal(m->layout.entries[1].offset, 0);
    machine_free(m);
    m = machine_make();
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    assert_int_equal(m->layout.total, TG_FLAT_ALIGN);
    assert_int_equal(m->layout.trained_end, 0);
    machine_free(m);
}

/* ---------------------------------------------------------------- schedules */

static void test_lr_values(void **state) { /* B26 */
    (void)state;
    tg_lr warm = tg_lr_warmup(0.1, 4, tg_lr_linear_decay(0.1, 0, 10));
    close_to(tg_lr_value(warm, 1), 0.025, "lr(1)");
    close_to(tg_lr_value(warm, 4), 0.1, "lr(4)");
    close_to(tg_lr_value(warm, 5), 0.09, "lr(5)");
    assert_true(tg_lr_value(warm, 14) == 0 && tg_lr_value(warm, 100) == 0);
    assert_true(tg_lr_value(tg_lr_constant(0.25), 7) == 0.25);
    tg_lr linear = tg_lr_linear_decay(0.005, 0.0005, 1500); /* the first rate is one step below the peak */
    close_to(tg_lr_value(linear, 1), 0.005 - 0.0045 / 1500, "linear(1)");
    assert_true(tg_lr_value(linear, 1500) == 0.0005 && tg_lr_value(linear, 9999) == 0.0005);
    tg_lr cosine = tg_lr_cosine_decay(1, 0.2, 8);
    close_to(tg_lr_value(cosine, 4), 0.6, "cosine half way");
    assert_true(tg_lr_value(cosine, 8) == 0.2);
    tg_lr stairs = tg_lr_staircase(0.4, 0.5, 3);
    assert_true(tg_lr_value(stairs, 1) == 0.4 && tg_lr_value(stairs, 3) == 0.4 && tg_lr_value(stairs, 4) == 0.2);
    assert_true(tg_lr_value(stairs, 6) == 0.2 && tg_lr_value(stairs, 7) == 0.1);
    tg_lr falls = tg_lr_multi_step(0.4, 0.5, (const int64_t[]){2, 5}, 2);
    assert_true(tg_lr_value(falls, 2) == 0.4 && tg_lr_value(falls, 3) == 0.2 && tg_lr_value(falls, 5) == 0.2);
    assert_true(tg_lr_value(falls, 6) == 0.1 && tg_lr_value(falls, 1000) == 0.1);
    tg_lr cycle = tg_lr_one_cycle(1, 100);
    assert_int_equal(cycle.rise, 30);
    close_to(tg_lr_value(cycle, 15), (1 + 0.04) / 2, "half way up");
    assert_true(tg_lr_value(cycle, 30) == 1);
    close_to(tg_lr_value(cycle, 65), (1 + 4e-6) / 2, "half way down");
    /* what is refused elsewhere has a value that is no fault */
    assert_true(tg_lr_value(tg_lr_staircase(0.5, 0.5, 0), 3) == 0.5 && tg_lr_value(tg_lr_multi_step(0.5, 0.5, NULL, 40), 1) <= 0.5);
    assert_int_equal(tg_lr_one_cycle(1, INT64_MAX).rise, INT64_MAX / 10 * 3 + 2);
    assert_true(tg_lr_value(cycle, 100) == 4e-6 && tg_lr_value(cycle, 101) == 4e-6);
    tg_lr twice = tg_lr_warmup(0.1, 4, tg_lr_warmup(0.4, 2, tg_lr_linear_decay(0.4, 0, 10)));
    close_to(tg_lr_value(twice, 4), 0.1, "the end of the first warm-up");
    close_to(tg_lr_value(twice, 5), 0.2, "the second begins at 0 again");
    close_to(tg_lr_value(twice, 6), 0.4, "its end");
    close_to(tg_lr_value(twice, 7), 0.36, "what follows both");
}

/* No step is too early or too late, and no schedule too odd, to have a value: under the sanitizers nothing overflows. */
static void test_lr_values_at_the_edges(void **state) {
    (void)state;
    const int64_t times[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT32_MAX, INT64_MAX - 1, INT64_MAX},
                  steps[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    for (int kind = 0; kind <= (int)TG_LR_ONE_CYCLE; kind++)
        for (int s = 0; s < 5; s++)
            for (int t = 0; t < 8; t++) {
                tg_lr one = {.kind = (tg_lr_kind)kind, .peak = 0.5, .final = 0.25, .steps = steps[s], .factor = 0.5, .rise = steps[4 - s]};
                one.after_kind = TG_LR_STAIRCASE;
                one.after_steps = steps[(s + 1) % 5];
                const double plain = tg_lr_value(one, times[t]), warm = tg_lr_value(tg_lr_warmup(0.5, steps[s], one), times[t]);
                if (kind != (int)TG_LR_ONE_CYCLE) assert_true(isfinite(plain) && isfinite(warm));
            }
    assert_true(tg_lr_value(tg_lr_staircase(0.5, 0.5, 3), INT64_MIN) == 0.5);
    assert_true(tg_lr_value(tg_lr_linear_decay(0.5, 0.25, 3), INT64_MIN) == 0.5 &&
                tg_lr_value(tg_lr_linear_decay(0.5, 0.25, 3), INT64_MAX) == 0.25);
    assert_true(tg_lr_value(tg_lr_warmup(0.5, 3, tg_lr_constant(0.25)), INT64_MIN) == 0 &&
                tg_lr_value(tg_lr_warmup(0.5, 3, tg_lr_constant(0.25)), INT64_MAX) == 0.25);
}

static tg_lr schedule(int i) {
    switch (i) {
    case 0: return tg_lr_constant(0.3);
    case 1: return tg_lr_linear_decay(0.5, 0.1, 7);
    case 2: return tg_lr_cosine_decay(0.5, 0, 9);
    case 3: return tg_lr_warmup(0.1, 4, tg_lr_linear_decay(0.1, 0, 10));
    case 4: return tg_lr_warmup(0.2, 3, tg_lr_cosine_decay(0.2, 0.05, 5));
    case 5: return tg_lr_warmup(0.2, 5, tg_lr_constant(0.2));
    case 6: return tg_lr_staircase(0.4, 0.5, 3);
    case 7: return tg_lr_multi_step(0.4, 0.3, (const int64_t[]){1, 4, 9, 23}, 4);
    case 8: return tg_lr_one_cycle(0.3, 20);
    case 9: return tg_lr_warmup(0.1, 4, tg_lr_staircase(0.2, 1.5, 7));
    case 10: return tg_lr_warmup(0.1, 4, tg_lr_multi_step(0.2, 0.5, (const int64_t[]){1, 2, 3, 4, 5, 6}, 6));
    case 11: return tg_lr_warmup(0.1, 4, tg_lr_one_cycle(0.2, 2));
    case 12: return tg_lr_warmup(0.1, 4, tg_lr_warmup(0.4, 2, tg_lr_cosine_decay(0.4, 0, 10)));
    case 13: return tg_lr_warmup(0.1, 4, tg_lr_warmup(0.4, 1, tg_lr_staircase(0.2, 0.5, 2)));
    default: return tg_lr_constant(0);
    }
}

static void test_lr_nodes(void **state) {
    (void)state;
    for (int i = 0; i < 15; i++)
        for (int folded = 0; folded < 2; folded++) {
            machine *m = machine_make();
            int32_t numbers = tg_ir_input(m->g, "numbers", TG_SHAPE(TG_LR_STATE), TG_F32);
            int32_t t = tg_ir_input(m->g, "t", TG_SCALAR, TG_I32);
            int32_t pair[2] = {tg_lr_nodes(m->g, numbers, t, 1), tg_resolve_lr(schedule(i), ((tg_tensor){m->g, t})).id};
            int32_t known = tg_ir_state(m->g, "known", TG_SCALAR, TG_F32, -1);
            assert_true(pair[0] > 0 && pair[1] > 0 && tg_ir_writeback(m->g, known, pair[1]));
            m->g->result = pair[0];
            machine_finish(m, NULL, folded == 1);
            const int64_t starts[] = {0, 3, 20000003};
            for (int s = 0; s < 3; s++) {
                float encoded[TG_LR_STATE];
                tg_lr_encode(schedule(i), starts[s], encoded);
                for (int k = 0; k < TG_LR_STATE; k++) m->inputs[0][k] = (double)encoded[k];
                for (int64_t step = 1; step < 25; step++) {
                    *m->inputs[1] = (double)(starts[s] + step);
                    double want = tg_lr_value(schedule(i), step), got = machine_step(m);
                    close_to(got, want, "rate from the state");
                    assert_int_equal(got == 0, want == 0); /* 0 must be exactly 0 */
                    if (s == 0) close_to(*state_of(m, "known"), want, "rate from the trace");
                }
            }
            machine_free(m);
        }
}

static void test_lr_decoded(void **state) {
    (void)state;
    const int64_t starts[] = {0, 3, 20000003};
    float numbers[TG_LR_STATE] = {0};
    tg_lr got = tg_lr_constant(7);
    int64_t start = -1;
    assert_false(tg_lr_decode(numbers, &got, &start)); /* the optimiser's own is in force */
    assert_true(got.peak == 7 && start == -1);
    for (int i = 0; i < 15; i++)
        for (int s = 0; s < 3; s++) {
            tg_lr_encode(schedule(i), starts[s], numbers);
            assert_true(tg_lr_decode(numbers, &got, &start));
            assert_int_equal(start, starts[s]);
            for (int64_t step = 1; step < 40; step++)
                close_to(tg_lr_value(got, step), tg_lr_value(schedule(i), step), "rate of the numbers");
        }
}

static void test_lr_checks(void **state) {
    (void)state;
    machine *m = machine_make();
    int32_t t = tg_ir_input(m->g, "t", TG_SCALAR, TG_I32), f = tg_ir_input(m->g, "f", TG_SCALAR, TG_F32);
    const tg_lr bad[] = {
        tg_lr_constant(-1),
        tg_lr_constant(NAN),
        tg_lr_constant(INFINITY),
        tg_lr_constant(1e39),
        tg_lr_linear_decay(1, -1, 5),
        tg_lr_linear_decay(1, 0, 0),
        tg_lr_cosine_decay(1, NAN, 5),
        tg_lr_warmup(1, 0, tg_lr_constant(1)),
        tg_lr_warmup(1, 2, tg_lr_warmup(1, 2, tg_lr_warmup(1, 2, tg_lr_warmup(1, 2, tg_lr_warmup(1, 2, tg_lr_constant(1)))))),
        tg_lr_warmup(1, 2, tg_lr_warmup(1, 0, tg_lr_constant(1))),
        tg_lr_warmup(1, 2, tg_lr_warmup(NAN, 2, tg_lr_constant(1))),
        tg_lr_warmup(1, INT32_MAX, tg_lr_warmup(1, 1, tg_lr_constant(1))),
        tg_lr_warmup(1, 2, tg_lr_warmup(1, 2, tg_lr_constant(-1))),
        tg_lr_warmup(1, 2, tg_lr_constant(-1)),
        tg_lr_staircase(1, 0, 5),
        tg_lr_staircase(1, INFINITY, 5),
        tg_lr_staircase(1, 0.5, 0),
        tg_lr_multi_step(1, 0.5, (const int64_t[]){3, 3}, 2),
        tg_lr_multi_step(1, 0.5, (const int64_t[]){0}, 1),
        tg_lr_multi_step(1, 0.5, NULL, 0),
        tg_lr_multi_step(1, -0.5, (const int64_t[]){3}, 1),
        tg_lr_multi_step(1, 0.5, (const int64_t[]){1, 2, 3, 4, 5, 6, 7}, 7),
        tg_lr_one_cycle(1, 1),
        tg_lr_one_cycle(-1, 10),
        {.kind = TG_LR_ONE_CYCLE, .peak = 1, .steps = 5, .rise = 5},
        {.kind = TG_LR_ONE_CYCLE, .peak = 1, .steps = 5, .rise = 2, .initial = NAN},
        {.kind = (tg_lr_kind)7, .peak = 1, .steps = 5},
        tg_lr_warmup(1, 2, tg_lr_staircase(1, NAN, 5))};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tg_lr_check(m->ctx, TG_SITE, "set_lr", bad[i]), TG_ERROR_ARGUMENT);
        assert_int_equal(strncmp(tg_error_message(m->ctx), "set_lr: ", 8), 0);
        tg_clear_error(m->ctx);
        assert_int_equal(tg_resolve_lr(bad[i], ((tg_tensor){m->g, t})).id, 0);
        assert_int_equal(tg_error(m->ctx), TG_ERROR_ARGUMENT);
        tg_clear_error(m->ctx);
    }
    assert_int_equal(tg_resolve_lr(tg_lr_constant(1), ((tg_tensor){m->g, f})).id, 0);
    assert_int_equal(tg_error(m->ctx), TG_ERROR_DTYPE);
    tg_clear_error(m->ctx);
    machine_free(m);
}

/* ---------------------------------------------------------------- updates against plain loops */

enum { DECAYED = 70, PLAIN = 5, FROZEN = 3, STEPS = 40 };

/* loss = sum of k_i p_i^2 over all three parameters, with k_i an input: gradient 2 k p. "frozen" gets none. */
static machine *quadratic(const tg_optimizer *optimizer, bool with_frozen, bool passes) {
    machine *m = machine_make();
    int32_t k = tg_ir_input(m->g, "k", TG_SCALAR, TG_F32);
    int32_t w = param(m, "w", DECAYED, true, false), b = param(m, "b", PLAIN, false, false);
    int32_t loss = op(m, TG_OP_ADD, total(m, op(m, TG_OP_MUL, w, w)), total(m, op(m, TG_OP_MUL, b, b)));
    if (with_frozen) {
        int32_t f = param(m, "f", FROZEN, true, true);
        loss = op(m, TG_OP_ADD, loss, total(m, op(m, TG_OP_MUL, f, f)));
    }
    m->g->result = op(m, TG_OP_MUL, loss, k);
    machine_finish(m, optimizer, passes);
    for (int i = 0; i < DECAYED; i++) param_value(m, "w")[i] = 0.02 * (i - 30);
    for (int i = 0; i < PLAIN; i++) param_value(m, "b")[i] = 0.5 - 0.1 * i;
    for (int i = 0; with_frozen && i < FROZEN; i++) param_value(m, "f")[i] = 3.0 + i;
    return m;
}

/* The formulas of the public header, in double. */
static void plain_update(const tg_optimizer *o, int t, double rate, double decay, double g, double *p, double *m, double *v) {
    bool smooth = o->kind == TG_OPTIMIZER_LION || o->kind == TG_OPTIMIZER_RMSPROP;
    double b1 = o->beta1 > 0 ? o->beta1 : 0.9, b2 = o->beta2 > 0 ? o->beta2 : smooth ? 0.99 : 0.999, update;
    double eps = o->eps > 0 ? o->eps : o->kind == TG_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8;
    if (o->kind == TG_OPTIMIZER_SGD) {
        *m = o->momentum * *m + g;
        update = rate * (o->nesterov ? g + o->momentum * *m : *m);
    } else if (o->kind == TG_OPTIMIZER_LION) {
        double mixed = b1 * *m + (1 - b1) * g;
        update = rate * (mixed > 0 ? 1 : mixed < 0 ? -1 : 0);
        *m = b2 * *m + (1 - b2) * g;
    } else if (o->kind == TG_OPTIMIZER_RMSPROP) {
        *v = b2 * *v + (1 - b2) * g * g;
        *m = o->momentum * *m + g / (sqrt(*v) + eps);
        update = rate * *m;
    } else if (o->kind == TG_OPTIMIZER_ADAGRAD) {
        *v += g * g;
        update = rate * g / (sqrt(*v) + eps);
    } else {
        double c1 = 1 - pow(b1, t), c2 = 1 - pow(b2, t);
        *m = b1 * *m + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        if (o->eps_mode == TG_EPS_CORRECTED) update = rate * (*m / c1) / (sqrt(*v / c2) + eps);
        else update = rate * sqrt(c2) / c1 * *m / (sqrt(*v) + eps);
    }
    *p = (1 - rate * decay) * *p - update;
}

static double shaped(const tg_optimizer *o, double g) { /* clip_value */
    return o->clip_value > 0 ? fmax(-o->clip_value, fmin(o->clip_value, g)) : g;
}

/* Parameters move in steps that are multiples of `accumulate`, by the mean of the gradients. */
static void check_optimizer(const tg_optimizer *o, bool with_frozen, bool passes) {
    enum { ALL = DECAYED + PLAIN };
    machine *m = quadratic(o, with_frozen, passes);
    const int every = o->accumulate > 1 ? (int)o->accumulate : 1;
    const double wd = o->weight_decay > 0 ? o->weight_decay : o->kind == TG_OPTIMIZER_ADAMW ? 0.01 : 0;
    double p[ALL], first[ALL] = {0}, second[ALL] = {0}, g[ALL], sum[ALL] = {0}, average[ALL] = {0};
    for (int i = 0; i < ALL; i++) p[i] = i < DECAYED ? param_value(m, "w")[i] : param_value(m, "b")[i - DECAYED];
    for (int t = 1; t <= STEPS; t++) {
        const int update = (t - 1) / every + 1;
        double k = 0.5 + 0.25 * (t % 3), norm = 0, scale = 1, rate = tg_lr_value(o->lr, update);
        *m->inputs[0] = k;
        machine_step(m);
        for (int i = 0; i < ALL; i++) {
            g[i] = 2 * k * p[i];
            sum[i] += g[i] / every;
            norm += shaped(o, sum[i]) * shaped(o, sum[i]);
        }
        norm = sqrt(norm);
        if (o->clip_norm > 0 && norm > o->clip_norm) scale = o->clip_norm / norm;
        if (o->normalize) scale = 1 / norm;
        for (int i = 0; i < ALL; i++) {
            const double *gradients = state_of(m, "tg.gradients");
            int64_t offset = tg_layout_find(&m->layout, i < DECAYED ? "w" : "b")->offset + (i < DECAYED ? i : i - DECAYED);
            close_to(gradients[offset], g[i], "gradient, before clipping");
            if (t % every == 0) {
                plain_update(o, update, rate, i < DECAYED ? wd : 0, shaped(o, sum[i]) * scale, &p[i], &first[i], &second[i]);
                average[i] = update == 1 ? p[i] : average[i] + (1 - o->average) * (p[i] - average[i]);
                sum[i] = 0;
            }
            close_to(state_of(m, "tg.parameters")[offset], p[i], "parameter");
            if (o->average > 0) close_to(state_of(m, "tg.average")[offset], average[i], "average");
        }
        for (int i = 0; with_frozen && i < FROZEN; i++) assert_true(param_value(m, "f")[i] == 3.0 + i);
        assert_true(*state_of(m, "tg.step") == t);
    }
    machine_free(m);
}

static void check_everywhere(tg_optimizer o) {
    for (int i = 0; i < 4; i++) check_optimizer(&o, (i & 1) != 0, (i & 2) != 0);
}

static void test_adam(void **state) {
    (void)state;
    check_everywhere(tg_adam(.lr = tg_lr_constant(0.05)));
    check_everywhere(tg_adam(.lr = tg_lr_constant(0.05), .eps_mode = TG_EPS_CORRECTED, .eps = 1e-3));
    check_everywhere(tg_adam(.lr = tg_lr_constant(0.05), .eps = 1e-3));
    check_everywhere(tg_adam(.lr = tg_lr_linear_decay(0.1, 0.01, 20), .weight_decay = 0.1));
    check_everywhere(tg_adam(.lr = tg_lr_constant(0.02), .beta1 = 0.5, .beta2 = 0.9, .clip_norm = 1.0));
}

static void test_sgd(void **state) {
    (void)state;
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.05)));
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.05), .momentum = 0.8, .weight_decay = 0.01));
    check_everywhere(tg_sgd(.lr = tg_lr_cosine_decay(0.05, 0, 30), .momentum = 0.8, .nesterov = true));
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.2), .clip_norm = 0.5));
}

static void test_adamw(void **state) {
    (void)state;
    check_everywhere(tg_adamw(.lr = tg_lr_constant(0.05)));
    check_everywhere(tg_adamw(.lr = tg_lr_one_cycle(0.05, 30), .weight_decay = 0.2, .eps_mode = TG_EPS_CORRECTED));
}

static void test_lion(void **state) {
    (void)state;
    check_everywhere(tg_lion(.lr = tg_lr_constant(0.01)));
    check_everywhere(tg_lion(.lr = tg_lr_staircase(0.01, 0.5, 9), .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1));
}

static void test_rmsprop(void **state) {
    (void)state;
    check_everywhere(tg_rmsprop(.lr = tg_lr_constant(0.01), .eps = 1e-3));
    check_everywhere(tg_rmsprop(.lr = tg_lr_constant(0.01), .beta2 = 0.9, .momentum = 0.5, .weight_decay = 0.1, .eps = 1e-3));
}

static void test_adagrad(void **state) {
    (void)state;
    check_everywhere(tg_adagrad(.lr = tg_lr_constant(0.05), .eps = 1e-3));
    check_everywhere(tg_adagrad(.lr = tg_lr_multi_step(0.05, 0.5, (const int64_t[]){10, 20}, 2), .weight_decay = 0.1));
}

static void test_shaped_gradients(void **state) {
    (void)state;
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.1), .clip_value = 0.5));
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.1), .clip_value = 0.5, .clip_norm = 1.5, .momentum = 0.5));
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.1), .normalize = true));
    machine *m = machine_make(); /* a gradient of 0 stays 0 */
    const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.1), .normalize = true);
    int32_t w = param(m, "w", 3, false, false);
    m->g->result = total(m, op(m, TG_OP_MUL, w, w));
    machine_finish(m, &o, true);
    machine_step(m);
    for (int i = 0; i < 3; i++) assert_true(param_value(m, "w")[i] == 0);
    machine_free(m);
}

static void test_accumulation(void **state) {
    (void)state;
    check_everywhere(tg_sgd(.lr = tg_lr_linear_decay(0.1, 0.01, 10), .accumulate = 4, .momentum = 0.5));
    check_everywhere(tg_adam(.lr = tg_lr_constant(0.05), .accumulate = 3, .weight_decay = 0.1, .clip_norm = 1, .average = 0.5));
}

static void test_average(void **state) {
    (void)state;
    check_everywhere(tg_sgd(.lr = tg_lr_constant(0.05), .average = 0.9));
    check_everywhere(tg_lion(.lr = tg_lr_constant(0.01), .average = 0.99, .weight_decay = 0.1));
}

/* ---------------------------------------------------------------- groups */

enum { GROUP_PARAMS = 5 };
static const char *const group_names[GROUP_PARAMS] = {"a.W", "a.b", "b.W", "b.b", "head"};

/* loss = sum of squares over five parameters of three elements, those called W with decay */
static machine *grouped(const tg_optimizer *o) {
    machine *m = machine_make();
    int32_t loss = 0;
    for (int i = 0; i < GROUP_PARAMS; i++) {
        int32_t p = param(m, group_names[i], 3, strchr(group_names[i], 'W') != NULL, false);
        int32_t term = total(m, op(m, TG_OP_MUL, p, p));
        loss = loss == 0 ? term : op(m, TG_OP_ADD, loss, term);
    }
    m->g->result = loss;
    machine_finish(m, o, true);
    for (int i = 0; i < GROUP_PARAMS; i++)
        for (int k = 0; k < 3; k++) param_value(m, group_names[i])[k] = 1 + i + k;
    return m;
}

static void test_groups(void **state) {
    (void)state;
    const tg_param_group groups[] = {
        {.pattern = "a.*", .rate = 0.5, .weight_decay = 0.3}, {.pattern = "?.b", .decay = TG_YES}, {.pattern = "head", .frozen = true}};
    const double rates[GROUP_PARAMS] = {0.5, 0.5, 1, 1, 0}, decays[GROUP_PARAMS] = {0.3, 0, 0.1, 0.1, 0};
    const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.1), .weight_decay = 0.1, .groups = groups, .group_count = 3);
    machine *m = grouped(&o);
    double want[GROUP_PARAMS][3];
    for (int i = 0; i < GROUP_PARAMS; i++)
        for (int k = 0; k < 3; k++) want[i][k] = 1 + i + k;
    for (int t = 0; t < 5; t++) {
        machine_step(m);
        for (int i = 0; i < GROUP_PARAMS; i++)
            for (int k = 0; k < 3; k++) {
                double rate = 0.1 * rates[i], g = 2 * want[i][k];
                want[i][k] = (1 - rate * decays[i]) * want[i][k] - rate * g;
                close_to(param_value(m, group_names[i])[k], want[i][k], group_names[i]);
            }
    }
    for (int k = 0; k < 3; k++) assert_true(param_value(m, "head")[k] == 5 + k);
    machine_free(m);
}

static void test_group_errors(void **state) {
    (void)state;
    const struct {
        tg_param_group groups[2];
        int count;
        tg_status status;
        const char *message;
    } cases[] = {
        {{{.pattern = "c.*"}}, 1, TG_ERROR_NOT_FOUND, "group \"c.*\" matches no parameter (parameters: a.W, a.b, b.W, b.b, head)"},
        {{{.pattern = "a.?W"}}, 1, TG_ERROR_NOT_FOUND, "matches no parameter"},
        {{{.pattern = "*"}, {.pattern = "a.W"}}, 2, TG_ERROR_NOT_FOUND, "matches only parameters of earlier groups"},
        {{{.pattern = ""}}, 1, TG_ERROR_ARGUMENT, "no pattern"},
        {{{.pattern = NULL}}, 1, TG_ERROR_ARGUMENT, "no pattern"},
        {{{.pattern = "a.*", .rate = -1}}, 1, TG_ERROR_ARGUMENT, "rate must be"},
        {{{.pattern = "a.*", .weight_decay = NAN}}, 1, TG_ERROR_ARGUMENT, "weight_decay must be"},
        {{{.pattern = "a.*", .decay = (tg_choice)7}}, 1, TG_ERROR_ARGUMENT, "unknown choice 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine *m = machine_make();
        for (int k = 0; k < GROUP_PARAMS; k++) param(m, group_names[k], 3, true, false);
        const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.1), .groups = cases[i].groups, .group_count = cases[i].count);
        assert_int_equal(tg_mark_params(m->g, TG_SITE, &o), cases[i].status);
        if (strstr(tg_error_message(m->ctx), cases[i].message) == NULL) fail_msg("'%s'", tg_error_message(m->ctx));
        machine_free(m);
    }
}

static void test_patterns(void **state) {
    (void)state;
    const struct {
        const char *pattern;
        int fit; /* bits, by parameter */
    } cases[] = {{"*", 31},   {"a.*", 3},  {"*.W", 5},  {"?.b", 10}, {"head", 16},
                 {"h*d", 16}, {"*a*", 19}, {"**d", 16}, {"a.W*", 1}, {"b?W", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine *m = machine_make();
        for (int k = 0; k < GROUP_PARAMS; k++) param(m, group_names[k], 3, true, false);
        const tg_param_group group = {.pattern = cases[i].pattern, .rate = 2};
        no_error(m, tg_mark_group(m->g, TG_SITE, &group));
        for (int k = 0; k < GROUP_PARAMS; k++) {
            bool fits = (cases[i].fit >> k & 1) != 0;
            assert_true(m->g->params.items[k].mark.grouped == fits && m->g->params.items[k].mark.rate == (fits ? 2 : 1));
        }
        machine_free(m);
    }
}

/* ---------------------------------------------------------------- Muon, against loops over small matrices in double */

/* x [r, c], r <= c: x / ||x||, then five quintic steps */
static void plain_orthogonal(double *x, int r, int c) {
    double norm = 0, a[16], b[16], y[32];
    for (int i = 0; i < r * c; i++) norm += x[i] * x[i];
    for (int i = 0; i < r * c; i++) x[i] /= sqrt(norm) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                a[i * r + j] = 0;
                for (int k = 0; k < c; k++) a[i * r + j] += x[i * c + k] * x[j * c + k];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                b[i * r + j] = -4.7750 * a[i * r + j];
                for (int k = 0; k < r; k++) b[i * r + j] += 2.0315 * a[i * r + k] * a[k * r + j];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < c; j++) {
                y[i * c + j] = 3.4445 * x[i * c + j];
                for (int k = 0; k < r; k++) y[i * c + j] += b[i * r + k] * x[k * c + j];
            }
        memcpy(x, y, sizeof(double) * (size_t)(r * c));
    }
}

/* The update of w [rows, columns] by gradient 2 w + k; mutates w and its momentum. */
static void plain_muon(double *w, double *buffer, int rows, int columns, double rate, double k) {
    double d[32], x[32];
    for (int i = 0; i < rows * columns; i++) {
        double g = 2 * w[i] + k * (i % 3 - 1);
        buffer[i] = 0.95 * buffer[i] + g;
        d[i] = g + 0.95 * buffer[i];
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) x[rows <= columns ? i * columns + j : j * rows + i] = d[i * columns + j];
    plain_orthogonal(x, rows <= columns ? rows : columns, rows <= columns ? columns : rows);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            w[i * columns + j] -= rate * 0.2 * sqrt(rows > columns ? rows : columns) * x[rows <= columns ? i * columns + j : j * rows + i];
}

static void test_muon(void **state) {
    (void)state;
    static const int rows[3] = {3, 5, 4}, columns[3] = {5, 2, 4};
    static const char *const names[3] = {"wide", "tall", "embedding"};
    for (int passes = 0; passes < 2; passes++) {
        const tg_param_group groups[] = {{.pattern = "embedding", .plain = true}, {.pattern = "tall", .rate = 0.5}};
        const tg_optimizer o = tg_muon(.lr = tg_lr_constant(0.05), .groups = groups, .group_count = 2);
        machine *m = machine_make();
        int32_t loss = 0, k = tg_ir_input(m->g, "k", TG_SCALAR, TG_F32), parts[4];
        for (int i = 0; i < 4; i++) { /* d loss / d w = 2 w + k (-1, 0, 1, -1, ...) */
            tg_shape shape = i < 3 ? TG_SHAPE(rows[i], columns[i]) : TG_SHAPE(6);
            int64_t count = tg_shape_count(shape);
            parts[i] = tg_ir_param(m->g, i < 3 ? names[i] : "bias", shape, zeros, false, false);
            int32_t flat = tg_ir_reshape(m->g, parts[i], TG_SHAPE(count));
            float slope[20];
            for (int j = 0; j < count; j++) slope[j] = (float)(j % 3 - 1);
            int32_t line = op(m, TG_OP_MUL, tg_ir_data(m->g, TG_SHAPE(count), TG_F32, slope), k);
            int32_t term = total(m, op(m, TG_OP_MUL, flat, op(m, TG_OP_ADD, flat, line)));
            loss = loss == 0 ? term : op(m, TG_OP_ADD, loss, term);
        }
        m->g->result = loss;
        machine_finish(m, &o, passes == 1);
        assert_true(tg_layout_find(&m->layout, "wide")->matrix && !tg_layout_find(&m->layout, "embedding")->matrix);
        assert_int_equal(m->layout.matrix_end, 128);
        double w[4][20], buffer[4][20] = {{0}}, v[4][20] = {{0}};
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < (i < 3 ? rows[i] * columns[i] : 6); j++)
                param_value(m, i < 3 ? names[i] : "bias")[j] = w[i][j] = sin(1.7 * (double)(j + 10 * i));
        for (int t = 1; t <= 6; t++) {
            *m->inputs[0] = 0.3 * t;
            machine_step(m);
            plain_muon(w[0], buffer[0], rows[0], columns[0], 0.05, 0.3 * t);
            plain_muon(w[1], buffer[1], rows[1], columns[1], 0.025, 0.3 * t);
            const tg_optimizer adam = tg_adam(.lr = tg_lr_constant(0.05));
            for (int i = 2; i < 4; i++)
                for (int j = 0; j < (i == 2 ? 16 : 6); j++)
                    plain_update(&adam, t, 0.05, 0, 2 * w[i][j] + 0.3 * t * (j % 3 - 1), &w[i][j], &buffer[i][j], &v[i][j]);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < (i < 3 ? rows[i] * columns[i] : 6); j++)
                    close_to(param_value(m, i < 3 ? names[i] : "bias")[j], w[i][j], i < 3 ? names[i] : "bias");
        }
        machine_free(m);
    }
}

/* The bias corrections keep their digits at every t: against pow in double. */
static void test_corrections(void **state) {
    (void)state;
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(1), .eps = 1e-30, .eps_mode = TG_EPS_CORRECTED);
    machine *m = machine_make();
    int32_t w = param(m, "w", 1, false, false);
    m->g->result = total(m, w);
    machine_finish(m, &o, true);
    const double times[] = {0, 1, 2, 3, 50, 100, 248, 249, 250, 251, 1000, 100000};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        double t = times[i] + 1, g = 1;
        *state_of(m, "tg.step") = times[i];
        *param_value(m, "w") = 0;
        state_of(m, "tg.m")[0] = 0;
        state_of(m, "tg.v")[0] = 0;
        machine_step(m);
        double want = -((1 - 0.9) * g / (1 - pow(0.9, t))) / sqrt((1 - 0.999) * g / (1 - pow(0.999, t)));
        if (fabs(*param_value(m, "w") - want) > 5e-7 * fabs(want)) fail_msg("t = %g: got %.9g, want %.9g", t, *param_value(m, "w"), want);
    }
    machine_free(m);
}

static machine *one_parameter(void) {
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1));
    machine *m = machine_make();
    int32_t g = tg_ir_input(m->g, "g", TG_SHAPE(1), TG_F32);
    m->g->result = total(m, op(m, TG_OP_MUL, param(m, "p", 1, false, false), g));
    machine_finish(m, &o, true);
    return m;
}

static void test_resume(void **state) { /* B22 */
    (void)state;
    machine *m = one_parameter(), *resumed = one_parameter();
    *param_value(m, "p") = 1;
    *m->inputs[0] = 1;
    machine_step(m);
    *m->inputs[0] = -0.5;
    machine_step(m);
    close_to(*param_value(m, "p"), 0.8733663, "after two steps");
    for (int64_t i = 0; i < m->g->states.count; i++) /* the states are all there is to save */
        memcpy(resumed->states[i], m->states[i], sizeof(double) * (size_t)tg_shape_count(m->g->states.items[i].shape));
    *resumed->inputs[0] = 0.25;
    machine_step(resumed);
    if (fabs(*param_value(resumed, "p") - 0.8393234) > 1e-6) fail_msg("after three steps: %.9g", *param_value(resumed, "p"));
    machine_free(m);
    machine_free(resumed);
}

static void test_zero_rate(void **state) { /* fault 11: rate 0 stops decoupled decay too; a new schedule by state alone */
    (void)state;
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1), .weight_decay = 0.5);
    machine *m = quadratic(&o, true, true);
    *m->inputs[0] = 1;
    machine_step(m);
    double before[DECAYED];
    memcpy(before, param_value(m, "w"), sizeof before);
    float numbers[TG_LR_STATE];
    tg_lr_encode(tg_lr_constant(0), 1, numbers);
    for (int i = 0; i < TG_LR_STATE; i++) state_of(m, "tg.lr")[i] = (double)numbers[i];
    machine_step(m);
    for (int i = 0; i < DECAYED; i++) assert_true(param_value(m, "w")[i] == before[i]);
    machine_free(m);
}

static void test_clip_nan(void **state) { /* a NaN gradient ruins what is trained, never what is frozen */
    (void)state;
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1), .clip_norm = 1);
    machine *m = quadratic(&o, true, true);
    *m->inputs[0] = NAN;
    machine_step(m);
    assert_true(isnan(param_value(m, "w")[0]));
    for (int i = 0; i < FROZEN; i++) assert_true(param_value(m, "f")[i] == 3.0 + i);
    machine_free(m);
}

/* ---------------------------------------------------------------- gradients */

/* Cotangents are 4096 times as large on the way, and nothing that is written is: exactly, powers of two being exact. */
static void test_scale(void **state) {
    (void)state;
    const tg_optimizer adam = tg_adam(.lr = tg_lr_constant(0.1), .clip_norm = 0.5, .weight_decay = 0.1);
    machine *plain = NULL;
    for (int i = 0; i < 2; i++) {
        machine *m = machine_make();
        m->scale = i == 0 ? 1.0 : 4096.0;
        int32_t a = param(m, "a", 3, true, false), b = param(m, "b", 3, false, false);
        param(m, "frozen", 2, true, true);
        m->g->result = total(m, op(m, TG_OP_MUL, tg_ir_unary(m->g, TG_OP_TANH, op(m, TG_OP_ADD, a, b)), a));
        machine_finish(m, &adam, true);
        bool scaled = false;
        for (int64_t id = 1; id < m->g->nodes.count; id++)
            scaled = scaled || (m->g->nodes.items[id].op == TG_OP_CONST && m->g->nodes.items[id].attr.value == 4096.0);
        assert_int_equal(scaled, i == 1);
        for (int k = 0; k < 3; k++) param_value(m, "a")[k] = 0.5 * k + 0.25, param_value(m, "b")[k] = 0.125 - k;
        for (int step = 0; step < 3; step++) machine_step(m);
        if (plain == NULL) {
            plain = m;
            continue;
        }
        for (int64_t k = 0; k < m->layout.total; k++) {
            close_to(state_of(m, "tg.gradients")[k], state_of(plain, "tg.gradients")[k], "a scaled gradient");
            close_to(state_of(m, "tg.parameters")[k], state_of(plain, "tg.parameters")[k], "a parameter");
        }
        assert_true(fabs(state_of(m, "tg.gradients")[m->layout.entries[0].offset + 1]) > 0.01);
        machine_free(m);
    }
    machine_free(plain);
}

static void test_gradients(void **state) { /* fault 18, B16, SPEC: kind none changes nothing */
    (void)state;
    const tg_optimizer none = {0}, adam = tg_adam(.lr = tg_lr_constant(0.1));
    for (int kind = 0; kind < 2; kind++) {
        machine *m = machine_make();
        int32_t a = param(m, "a", 3, true, false), b = param(m, "b", 3, false, false);
        param(m, "unused", 2, true, false);
        m->g->result = total(m, op(m, TG_OP_ADD, a, b)); /* both get the very same cotangent */
        machine_finish(m, kind == 0 ? &none : &adam, true);
        for (int i = 0; i < 2; i++) param_value(m, "unused")[i] = 7;
        machine_step(m);
        const double *gradients = state_of(m, "tg.gradients");
        for (int i = 0; i < 3; i++) {
            assert_true(gradients[tg_layout_find(&m->layout, "a")->offset + i] == 1);
            assert_true(gradients[tg_layout_find(&m->layout, "b")->offset + i] == 1);
            assert_int_equal(param_value(m, "a")[i] == 0, kind == 0);
        }
        int64_t offset = tg_layout_find(&m->layout, "unused")->offset;
        assert_true(gradients[offset] == 0 && gradients[offset + 1] == 0);
        assert_true(param_value(m, "unused")[0] == 7 && param_value(m, "unused")[1] == 7);
        assert_int_equal(state_index(m, "tg.step") >= 0, kind == 1);
        if (kind == 1) assert_true(state_of(m, "tg.m")[offset] == 0 && state_of(m, "tg.v")[offset] == 0);
        machine_free(m);
    }
}

/* Nothing is spent on what is frozen (fault 4). */
static void test_frozen_costs_nothing(void **state) {
    (void)state;
    int contractions[2];
    for (int frozen = 0; frozen < 2; frozen++) {
        machine *m = machine_make();
        const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.1));
        int32_t x = tg_ir_input(m->g, "x", TG_SHAPE(1, 2, 3), TG_F32);
        int32_t w = tg_ir_param(m->g, "w", TG_SHAPE(1, 3, 4), zeros, true, frozen == 1),
                v = tg_ir_param(m->g, "v", TG_SHAPE(1, 4, 1), zeros, true, false);
        int32_t y = tg_ir_contract(m->g, tg_ir_contract(m->g, x, w), v);
        m->g->result = tg_ir_reshape(m->g, tg_ir_reduce(m->g, TG_OP_SUM, y, 7u), TG_SCALAR);
        machine_finish(m, &o, true);
        contractions[frozen] = 0;
        for (int64_t id = 1; id < m->g->nodes.count; id++) contractions[frozen] += tg_graph_node(m->g, (int32_t)id)->op == TG_OP_CONTRACT;
        machine_free(m);
    }
    assert_int_equal(contractions[0], 5);
    assert_int_equal(contractions[1], 3);
}

static void test_no_parameters(void **state) {
    (void)state;
    const tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1), .clip_norm = 1);
    machine *m = machine_make();
    int32_t x = tg_ir_input(m->g, "x", TG_SHAPE(3), TG_F32), f = param(m, "f", 3, true, true);
    m->g->result = total(m, op(m, TG_OP_MUL, x, f));
    machine_finish(m, &o, true);
    machine_step(m);
    machine_step(m);
    assert_true(*state_of(m, "tg.step") == 2);
    machine_free(m);
}

/* ---------------------------------------------------------------- checks */

static void refused(tg_optimizer o, const char *word) {
    machine *m = machine_make();
    int32_t w = param(m, "w", 3, true, false);
    tg_tensor loss = {m->g, total(m, w)};
    int64_t nodes = m->g->nodes.count;
    assert_int_equal(tg_append_optimizer(loss, &o), TG_ERROR_ARGUMENT);
    if (strstr(tg_error_message(m->ctx), word) == NULL) fail_msg("'%s' does not mention %s", tg_error_message(m->ctx), word);
    assert_non_null(strstr(tg_error_site(m->ctx).file, "test_optim.c"));
    assert_int_equal(m->g->nodes.count, nodes);
    machine_free(m);
}

static void test_options(void **state) {
    (void)state;
    refused(tg_adam(.lr = tg_lr_constant(-0.1)), "learning rate");
    refused(tg_adam(.lr = tg_lr_constant(NAN)), "learning rate");
    refused(tg_adam(.beta1 = 1), "beta1");
    refused(tg_adam(.beta1 = NAN), "beta1");
    refused(tg_adam(.beta2 = -0.1), "beta2");
    refused(tg_adam(.eps = -1e-8), "eps");
    refused(tg_adam(.eps = 1e-60), "eps");
    refused(tg_adam(.weight_decay = -1), "weight_decay");
    refused(tg_adam(.clip_norm = NAN), "clip_norm");
    refused(tg_sgd(.momentum = 1), "momentum");
    refused(tg_sgd(.momentum = -0.5), "momentum");
    refused((tg_optimizer){.kind = (tg_optimizer_kind)9}, "kind");
    refused((tg_optimizer){.kind = (tg_optimizer_kind)8}, "kind");
    refused(tg_adam(.eps_mode = (tg_eps_mode)7), "eps_mode");
    refused(tg_lion(.clip_value = -1), "clip_value");
    refused(tg_lion(.clip_norm = 1, .normalize = true), "normalize");
    refused(tg_lion(.accumulate = -1), "accumulate");
    refused(tg_lion(.accumulate = (int64_t)1 << 31), "accumulate");
    refused(tg_rmsprop(.average = 1), "average");
    refused(tg_rmsprop(.average = NAN), "average");
    refused(tg_adagrad(.lr = {.peak = 0.1}, .group_count = 2), "2 groups at NULL");
    refused(tg_muon(.lr = {.peak = 0.1}, .group_count = -1), "-1 groups");
}

static void test_loss(void **state) { /* B18 */
    (void)state;
    const tg_optimizer o = tg_adam(.lr = tg_lr_constant(0.1));
    machine *m = machine_make();
    int32_t w = param(m, "w", 3, true, false);
    assert_int_equal(tg_append_optimizer(((tg_tensor){m->g, w}), &o), TG_ERROR_GRADIENT);
    assert_string_equal(tg_error_message(m->ctx), "loss must be rank 0 (a scalar), got [3]");
    tg_clear_error(m->ctx);
    int32_t index = tg_ir_reshape(m->g, tg_ir_reduce(m->g, TG_OP_ARGMAX, w, 1), TG_SCALAR);
    assert_int_equal(tg_append_optimizer(((tg_tensor){m->g, index}), &o), TG_ERROR_GRADIENT);
    tg_clear_error(m->ctx);
    tg_tensor loss = {m->g, total(m, w)};
    assert_int_equal(tg_append_optimizer(loss, NULL), TG_ERROR_ARGUMENT);
    tg_clear_error(m->ctx);
    no_error(m, tg_append_optimizer(loss, &o));
    assert_int_equal(tg_append_optimizer(loss, &o), TG_ERROR_DUPLICATE);
    tg_clear_error(m->ctx);
    /* a session that then trains the graph without an optimiser of its own finds everything there */
    const tg_optimizer none = {0};
    int64_t nodes = m->g->nodes.count;
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    no_error(m, tg_append_training(m->g, loss.id, &none, &m->layout, 1.0, NULL));
    assert_int_equal(m->g->nodes.count, nodes);
    machine_free(m);
}

/* The filter counts for whoever lays out the parameters later. */
static void test_filter(void **state) {
    (void)state;
    const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.5), .weight_decay = 0.5, .decay_filter = only_b);
    machine *m = machine_make();
    int32_t a = param(m, "a", 2, true, false), b = param(m, "b", 2, false, false), x = tg_ir_input(m->g, "x", TG_SHAPE(2), TG_F32);
    m->g->result = total(m, op(m, TG_OP_MUL, x, op(m, TG_OP_ADD, a, b)));
    no_error(m, tg_append_optimizer(((tg_tensor){m->g, m->g->result}), &o));
    machine_finish(m, NULL, true);
    param_value(m, "a")[0] = param_value(m, "b")[0] = 1;
    machine_step(m);
    assert_true(param_value(m, "a")[0] == 1);
    assert_true(param_value(m, "b")[0] == 0.75);
    machine_free(m);
}

/* ---------------------------------------------------------------- flattening */

static void test_user_optimizer(void **state) {
    (void)state;
    for (int passes = 0; passes < 2; passes++) {
        machine *m = machine_make(); /* two parameters swap, a third is written from a state, a fourth is left */
        int32_t a = param(m, "a", 3, true, false), b = param(m, "b", 3, false, false),
                c = tg_ir_param(m->g, "c", TG_SHAPE(2, 2), zeros, true, false);
        param(m, "d", 2, false, true);
        int32_t s = tg_ir_state(m->g, "count", TG_SHAPE(2, 2), TG_F32, 5);
        m->g->result = total(m, a);
        assert_true(tg_ir_writeback(m->g, a, b) && tg_ir_writeback(m->g, b, a) && tg_ir_writeback(m->g, c, s));
        assert_true(tg_ir_writeback(m->g, s, op(m, TG_OP_ADD, s, c)));
        machine_finish(m, NULL, passes == 1);
        assert_int_equal(m->g->writebacks.count, 2);
        param_value(m, "a")[1] = 1;
        param_value(m, "b")[1] = 2;
        param_value(m, "c")[3] = 10;
        param_value(m, "d")[0] = 4;
        machine_step(m);
        assert_true(param_value(m, "a")[1] == 2 && param_value(m, "b")[1] == 1);
        assert_true(param_value(m, "c")[3] == 5 && state_of(m, "count")[3] == 15);
        assert_true(param_value(m, "d")[0] == 4);
        machine_free(m);
    }
}

/* The optimiser trains w; the user writes an average of it into the frozen parameter "mean". */
static void test_both(void **state) {
    (void)state;
    const tg_optimizer o = tg_sgd(.lr = tg_lr_constant(0.5));
    machine *m = machine_make();
    int32_t w = param(m, "w", 2, true, false), mean = param(m, "mean", 2, false, true);
    m->g->result = total(m, w);
    int32_t half = tg_ir_const(m->g, TG_SCALAR, TG_F32, 0.5);
    assert_true(tg_ir_writeback(m->g, mean, op(m, TG_OP_MUL, op(m, TG_OP_ADD, w, mean), half)));
    machine_finish(m, &o, true);
    assert_int_equal(m->g->writebacks.count, 3); /* gradients, step, parameters */
    param_value(m, "w")[0] = 8;
    param_value(m, "mean")[0] = 4;
    machine_step(m);
    assert_true(param_value(m, "w")[0] == 7.5 && param_value(m, "mean")[0] == 6);
    machine_free(m);
    m = machine_make(); /* but not into one that is trained */
    w = param(m, "w", 2, true, false);
    param(m, "mean", 2, false, true);
    m->g->result = total(m, w);
    assert_true(tg_ir_writeback(m->g, w, op(m, TG_OP_ADD, w, w)));
    no_error(m, tg_append_optimizer(((tg_tensor){m->g, m->g->result}), &o));
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    assert_int_equal(tg_flatten_params(m->g, &m->layout), TG_ERROR_DUPLICATE);
    tg_clear_error(m->ctx);
    assert_int_equal(tg_graph_verify(m->g), TG_OK);
    machine_free(m);
}

static void test_sibling(void **state) {
    (void)state;
    machine *m = machine_make(), *other = machine_make();
    param(m, "w", 70, true, false);
    param(m, "b", 3, false, false);
    no_error(m, tg_layout_make(m->g, &m->arena, &m->layout));
    int32_t b = param(other, "b", 3, false, false); /* another order, fewer of them */
    other->g->result = total(other, b);
    no_error(other, tg_flatten_params(other->g, &m->layout));
    no_error(other, tg_graph_verify(other->g));
    assert_int_equal(other->g->states.items[0].shape.dim[0], m->layout.total);
    machine_free(other);
    other = machine_make();
    param(other, "v", 3, false, false);
    assert_int_equal(tg_flatten_params(other->g, &m->layout), TG_ERROR_NOT_FOUND);
    assert_string_equal(tg_error_message(other->ctx), "no parameter named \"v\" (known: w, b)");
    tg_clear_error(other->ctx);
    machine_free(other);
    other = machine_make();
    param(other, "b", 4, false, false);
    assert_int_equal(tg_flatten_params(other->g, &m->layout), TG_ERROR_SHAPE);
    assert_string_equal(tg_error_message(other->ctx), "parameter \"b\" is [4] here and [3] in the model");
    tg_clear_error(other->ctx);
    machine_free(other);
    machine_free(m);
}

/* ---------------------------------------------------------------- allocation */

static void test_allocation(void **state) {
    (void)state;
    for (int64_t n = 1; n < 400; n++) {
        support_allocator f = {0};
        const tg_param_group group = {.pattern = "p1*", .rate = 2};
        const tg_optimizer o = tg_muon(.lr = tg_lr_constant(0.1), .weight_decay = 0.1, .clip_norm = 1, .accumulate = 2, .average = 0.5,
                                       .groups = &group, .group_count = 1);
        tg_context *ctx = support_context_counting(&f);
        tg_graph *g = tg_graph_create(ctx);
        ctx->trace = g;
        tg_arena arena;
        tg_layout layout;
        tg_arena_init(&arena, ctx);
        int32_t sum = tg_ir_const(g, TG_SCALAR, TG_F32, 0);
        for (int i = 0; i < 30; i++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", i);
            tg_shape shape = i == 7 ? TG_SHAPE(3, 2) : TG_SHAPE(3);
            int32_t p = tg_ir_param(g, name, shape, zeros, i % 2 == 0, i % 5 == 4);
            sum = tg_ir_binary(g, TG_OP_ADD, sum, tg_ir_reshape(g, tg_ir_reduce(g, TG_OP_SUM, p, i == 7 ? 3 : 1), TG_SCALAR));
        }
        g->result = sum;
        f.calls = 0;
        f.fail_at = n;
        tg_status status = tg_append_optimizer(((tg_tensor){g, sum}), &o);
        if (status == TG_OK) status = tg_layout_make(g, &arena, &layout);
        if (status == TG_OK) status = tg_flatten_params(g, &layout);
        if (status == TG_OK) status = tg_pass_run(g, false);
        bool failed = f.calls >= n;
        f.fail_at = 0;
        assert_int_equal(status, failed ? TG_ERROR_MEMORY : TG_OK);
        assert_int_equal(tg_graph_verify(g), TG_OK);
        tg_arena_free(&arena);
        tg_graph_destroy(g);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
        if (!failed) return;
    }
    fail_msg("never ran out of allocations to fail");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_lr_values),
        cmocka_unit_test(test_lr_values_at_the_edges),
        cmocka_unit_test(test_lr_nodes),
        cmocka_unit_test(test_lr_decoded),
        cmocka_unit_test(test_lr_checks),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_lion),
        cmocka_unit_test(test_rmsprop),
        cmocka_unit_test(test_adagrad),
        cmocka_unit_test(test_shaped_gradients),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_group_errors),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_muon),
        cmocka_unit_test(test_corrections),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_zero_rate),
        cmocka_unit_test(test_clip_nan),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_frozen_costs_nothing),
        cmocka_unit_test(test_no_parameters),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_user_optimizer),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_sibling),
        cmocka_unit_test(test_allocation),
        cmocka_unit_test(test_scale),
    };
    return cmocka_run_group_tests_name("optimisers", tests, NULL, NULL);
}
