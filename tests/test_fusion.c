/* Fusion and planning: which nodes become one kernel, which values are stored, which are written in
 * place, and that the independent checker notices a broken plan. Kernel counts are exact, so that a
 * change of the fusion rules shows here. Where a structure could go wrong silently, values are
 * compared with the f64 reference, also on WebGPU (see support_home). */
#include "support.h"

#include "kernel/cost.h"

#include <string.h>

typedef struct probe {
    int kernels, nodes;
    int64_t workspace, peak;
    int widest;
} probe;

static support_options fused(void) {
    support_options o;
    memset(&o, 0, sizeof o);
    return o;
}

static probe look(tg_build_fn build, const support_options *options) {
    support_case c = {.build = build};
    support_program p;
    support_outputs error;
    memset(&error, 0, sizeof error);
    if (!support_program_make(&c, options, &p, &error)) fail_msg("no program: %s", error.message);
    if (tg_program_check(p.program, p.ctx) != TG_OK) fail_msg("%s", tg_error_message(p.ctx));
    probe out = {p.program->kernel_count, p.program->node_count, p.program->workspace_bytes, tg_program_peak_bytes(p.program), 0};
    for (int i = 0; i < p.program->kernel_count; i++) {
        if (p.program->kernels[i].argument_count > out.widest) out.widest = p.program->kernels[i].argument_count;
        assert_true(p.program->kernels[i].body_count <= TG_MAX_BODY);
    }
    support_program_free(&p);
    support_outputs_free(&error);
    return out;
}

static int kernels_of(tg_build_fn build) {
    support_options o = fused();
    return look(build, &o).kernels;
}

static void check_values(const char *what, tg_build_fn build, const support_options *options) {
    support_case c = {.build = build};
    support_outputs want, got;
    if (!support_run_reference(&c, options->runs ? options->runs : 1, &want)) fail_msg("%s: reference: %s", what, want.message);
    if (!support_run_home(&c, options, &got)) fail_msg("%s: %s", what, got.message);
    assert_true(support_outputs_equal(what, &got, &want, (support_tolerance){64, 1e-6, 2e-5}));
    support_outputs_free(&want);
    support_outputs_free(&got);
}

/* ---- one kernel each */

static tg_tensor build_softmax(tg_graph *g, void *user) {
    (void)user;
    return tg_softmax(tg_input(g, "x", TG_SHAPE(7, 33), TG_F32), -1);
}
static tg_tensor build_layer_norm(tg_graph *g, void *user) {
    (void)user;
    return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "n", 48), tg_input(g, "x", TG_SHAPE(3, 5, 48), TG_F32));
}
static tg_tensor build_linear_relu(tg_graph *g, void *user) {
    (void)user;
    return tg_relu(tg_nn_linear_fwd(tg_nn_linear(g, "l", 20, 30), tg_input(g, "x", TG_SHAPE(2, 9, 20), TG_F32)));
}
static tg_tensor build_linear_gelu(tg_graph *g, void *user) {
    (void)user;
    return tg_gelu(tg_nn_linear_fwd(tg_nn_linear(g, "l", 20, 30), tg_input(g, "x", TG_SHAPE(2, 9, 20), TG_F32)));
}
static tg_tensor build_chain(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(40, 50), TG_F32);
    return tg_tanh(tg_add(tg_mul(x, tg_exp(tg_neg(x))), 3));
}
static tg_tensor build_views(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(6, 4, 5), TG_F32), b = tg_input(g, "b", TG_SHAPE(1, 5, 1), TG_F32);
    tg_tensor y = tg_add(tg_transpose(x, TG_AXES(1, 2, 0)), b); /* [4, 5, 6] */
    y = tg_narrow(tg_reshape(y, TG_SHAPE(20, 6)), 0, 5, 10);    /* [10, 6] */
    const tg_tensor parts[] = {y, tg_mul(y, 2)};
    return tg_concat(parts, 2, 1);
}
static tg_tensor build_two_outputs(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(30, 8), TG_F32);
    tg_tensor e = tg_capture("e", tg_exp(x));
    return tg_mul(e, tg_sin(x));
}

static void common_patterns_are_one_kernel(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tg_build_fn build;
    } table[] = {{"softmax", build_softmax},          {"layer norm", build_layer_norm},   {"linear, relu", build_linear_relu},
                 {"linear, gelu", build_linear_gelu}, {"elementwise chain", build_chain}, {"views", build_views},
                 {"two outputs", build_two_outputs}};
    support_options o = fused(), apart = fused();
    apart.no_fusion = true;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int n = kernels_of(table[i].build);
        if (n != 1) fail_msg("%s: %d kernels", table[i].name, n);
        assert_true(look(table[i].build, &apart).kernels > 1);
        check_values(table[i].name, table[i].build, &o);
        check_values(table[i].name, table[i].build, &apart);
    }
}

/* ---- what must be stored */

static tg_tensor build_crooked_reshape(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32);
    return tg_exp(tg_reshape(tg_transpose(x, TG_AXES(1, 0)), TG_SHAPE(8, 3)));
}
static tg_tensor build_split_reshape(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32);
    return tg_exp(tg_reshape(tg_transpose(x, TG_AXES(1, 0)), TG_SHAPE(12, 2)));
}

static void a_reshape_that_divides_no_loop_stores_a_copy(void **state) {
    (void)state;
    support_options o = fused();
    assert_int_equal(kernels_of(build_crooked_reshape), 2);
    check_values("crooked reshape", build_crooked_reshape, &o);
    assert_int_equal(kernels_of(build_split_reshape), 1);
    check_values("splitting reshape", build_split_reshape, &o);
}

/* ---- what the heads of attention leave behind */

/* [batch, heads, tokens, width] to [batch tokens, heads width], then a layer on it and its sum over the rows. */
static tg_tensor join_heads(tg_graph *g, tg_tensor h, int a, int b, int c, int d) {
    tg_tensor rows = tg_reshape(tg_transpose(h, TG_AXES(a, b, c, d)), TG_SHAPE(15, 8));
    tg_tensor y = tg_matmul(rows, tg_input(g, "w", TG_SHAPE(8, 6), TG_F32));
    return tg_add(tg_matmul(tg_transpose(rows, TG_AXES(1, 0)), y), tg_reshape(tg_sum(rows, TG_AXES(0)), TG_SHAPE(8, 1)));
}
static tg_tensor build_joined_heads(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_input(g, "p", TG_SHAPE(3, 2, 5, 7), TG_F32), v = tg_input(g, "v", TG_SHAPE(3, 2, 7, 4), TG_F32);
    return join_heads(g, tg_tanh(tg_matmul_batched(p, v)), 0, 2, 1, 3);
}
static tg_tensor build_joined_turned_heads(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_input(g, "p", TG_SHAPE(3, 2, 7, 5), TG_F32), v = tg_input(g, "v", TG_SHAPE(3, 2, 4, 7), TG_F32);
    return join_heads(g, tg_tanh(tg_matmul_batched(v, p)), 0, 3, 1, 2);
}
static tg_tensor build_split_heads(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(15, 6), TG_F32), w = tg_input(g, "w", TG_SHAPE(6, 8), TG_F32);
    tg_tensor h = tg_transpose(tg_reshape(tg_matmul(x, w), TG_SHAPE(3, 5, 2, 4)), TG_AXES(0, 2, 1, 3));
    return tg_matmul_batched(h, tg_input(g, "v", TG_SHAPE(3, 2, 4, 5), TG_F32));
}

/* Is the result of kernel 0, a contraction, contiguous along its last loop, and how many loops do the other products need? */
static void look_at_heads(tg_build_fn build, bool *contiguous, int *loops) {
    support_case c = {.build = build};
    support_options o = fused();
    support_program p;
    support_outputs error;
    memset(&error, 0, sizeof error);
    if (!support_program_make(&c, &o, &p, &error)) fail_msg("no program: %s", error.message);
    const tg_kernel *k = &p.program->kernels[0];
    assert_int_equal(k->kind, TG_KERNEL_CONTRACT);
    *contiguous = k->body[k->body_count - 1].at.stride[k->outer_count - 1] == 1;
    *loops = 0;
    for (int i = 1; i < p.program->kernel_count; i++)
        if (p.program->kernels[i].kind == TG_KERNEL_CONTRACT) *loops += p.program->kernels[i].loop_count;
    support_program_free(&p);
    support_outputs_free(&error);
}

static void joined_heads_are_stored_as_rows(void **state) {
    (void)state;
    const tg_build_fn builds[] = {build_joined_heads, build_joined_turned_heads, build_split_heads};
    const char *names[] = {"joined heads", "joined heads, turned", "split heads"};
    for (int i = 0; i < SUPPORT_COUNT(builds); i++) {
        bool contiguous;
        int loops;
        look_at_heads(builds[i], &contiguous, &loops);
        assert_true(contiguous);
        assert_int_equal(loops, i < 2 ? 6 : 5); /* rows, columns and k; of split heads batch and head, too */
        support_options o = fused();
        check_values(names[i], builds[i], &o);
    }
}

static tg_tensor build_big_mean(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(300, 400), TG_F32);
    return tg_sub(x, tg_mean(x, TG_ALL));
}
static void a_reduction_of_everything_keeps_its_kernel(void **state) {
    (void)state;
    support_options o = fused();
    assert_int_equal(kernels_of(build_big_mean), 2);
    check_values("mean of everything", build_big_mean, &o);
}

static tg_tensor build_dead_work(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(16, 16), TG_F32);
    tg_matmul(x, x);
    tg_exp(x);
    return tg_relu(x);
}
static void unused_results_cost_nothing(void **state) {
    (void)state;
    assert_int_equal(kernels_of(build_dead_work), 1);
}

/* ---- device limits */

static tg_tensor build_fourteen(tg_graph *g, void *user) {
    (void)user;
    tg_tensor a[14], y = {NULL, 0};
    for (int i = 0; i < 14; i++) {
        char name[16];
        snprintf(name, sizeof name, "a%02d", i);
        a[i] = tg_input(g, name, TG_SHAPE(3), TG_F32);
    }
    for (int i = 0; i < 14; i++) {
        tg_tensor term = tg_mul(tg_mul(tg_relu(a[i]), a[(i + 1) % 14]), i + 1);
        y = i == 0 ? term : tg_add(y, term);
    }
    return y;
}
static tg_tensor build_hundred_parts(tg_graph *g, void *user) {
    (void)user;
    tg_tensor parts[100];
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        parts[i] = tg_input(g, name, TG_SHAPE(2, 1 + i % 3), TG_F32);
    }
    return tg_concat(parts, 100, 1);
}
static void no_kernel_binds_more_buffers_than_the_device_takes(void **state) {
    (void)state;
    support_options o = fused();
    o.max_arguments = 8;
    probe p = look(build_fourteen, &o);
    assert_true(p.widest <= 8);
    assert_in_range(p.kernels, 2, 3);
    check_values("fourteen inputs", build_fourteen, &o);
    p = look(build_hundred_parts, &o);
    assert_true(p.widest <= 8);
    check_values("hundred parts", build_hundred_parts, &o);
    o.max_arguments = 0;
    check_values("hundred parts, wide", build_hundred_parts, &o);
    assert_int_equal(look(build_fourteen, &o).kernels, 1);
}

/* Nine results in a row are one buffer that nine kernels write, and that is read as a matrix; in three kinds of places. */
static tg_tensor build_parts(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32), w = tg_param(g, "w", TG_SHAPE(6, 6)), parts[9];
    for (int i = 0; i < 9; i++) parts[i] = x = tg_tanh(tg_matmul(x, w));
    return tg_matmul(tg_stack(parts, 9, 1), w);
}
static tg_tensor build_parts_of_halves(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32), w = tg_param(g, "w", TG_SHAPE(6, 6)), parts[9];
    for (int i = 0; i < 9; i++) {
        x = tg_tanh(tg_matmul(x, w));
        const tg_tensor halves[2] = {tg_sin(x), tg_mul(x, x)};
        parts[i] = tg_concat(halves, 2, 1);
    }
    return tg_matmul(tg_stack(parts, 9, 1), tg_param(g, "v", TG_SHAPE(12, 3)));
}
/* A result and its parts, seen elsewhere too. */
static tg_tensor build_parts_as_result(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32), w = tg_param(g, "w", TG_SHAPE(6, 6)), parts[9];
    for (int i = 0; i < 9; i++) parts[i] = x = tg_tanh(tg_matmul(x, w));
    const tg_tensor all = tg_capture("all", tg_concat(parts, 9, 0));
    tg_writeback(tg_state(g, "kept", TG_SHAPE(36, 6), TG_F32, 0), all);
    return all;
}
/* The gradients of a recurrent layer, whose steps a GPU runs as a loop. */
static tg_tensor build_recurrence(tg_graph *g, void *user) {
    const tg_recurrent cell = tg_nn_gru(g, "gru", 3, 5);
    tg_tensor x = tg_input(g, "x", TG_SHAPE(16, 12, 3), TG_F32), y = tg_nn_gru_fwd(cell, x), grads[4];
    const tg_tensor wrt[4] = {cell.Wx, cell.Wh, cell.bx, cell.bh}, loss = tg_mean(tg_square(y), TG_ALL);
    static const char *const names[4] = {"dWx", "dWh", "dbx", "dbh"};
    (void)user;
    if (tg_grad(loss, wrt, 4, grads) != TG_OK) return loss;
    for (int i = 0; i < 4; i++) tg_capture(names[i], grads[i]);
    return loss;
}
static void steps_of_a_recurrence_are_a_loop(void **state) {
    (void)state;
    support_options o = fused();
    check_values("a recurrence", build_recurrence, &o);
    o.joins = true;
    check_values("a recurrence, joined", build_recurrence, &o);
}
static void parts_are_stored_in_place(void **state) {
    (void)state;
    const support_options o = fused();
    assert_int_equal(kernels_of(build_parts), 10);
    assert_int_equal(kernels_of(build_parts_of_halves), 10);
    assert_int_equal(kernels_of(build_parts_as_result), 10);
    check_values("parts", build_parts, &o);
    check_values("parts of halves", build_parts_of_halves, &o);
    check_values("parts as result", build_parts_as_result, &o);
}

static tg_tensor build_long_chain(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(9), TG_F32), y = x;
    for (int i = 0; i < 3000; i++) y = tg_mul(tg_add(y, x), 0.5);
    return y;
}
static void a_long_chain_is_cut_not_refused(void **state) {
    (void)state;
    support_options o = fused();
    probe p = look(build_long_chain, &o);
    assert_in_range(p.kernels, 6000 / TG_MAX_BODY, 200);
    check_values("long chain", build_long_chain, &o);
}

/* ---- states */

static tg_tensor build_swap(tg_graph *g, void *user) {
    (void)user;
    tg_tensor a = tg_state(g, "a", TG_SHAPE(5), TG_F32, 1), b = tg_state(g, "b", TG_SHAPE(5), TG_F32, 2);
    tg_writeback(a, b);
    tg_writeback(b, a);
    return tg_sum(tg_add(a, tg_mul(b, 10)), TG_ALL);
}
static tg_tensor build_rotate(tg_graph *g, void *user) {
    (void)user;
    tg_tensor a = tg_state(g, "a", TG_SHAPE(3, 3), TG_F32, 1), b = tg_state(g, "b", TG_SHAPE(3, 3), TG_F32, 2);
    tg_tensor c = tg_state(g, "c", TG_SHAPE(3, 3), TG_F32, 3), x = tg_input(g, "x", TG_SHAPE(3, 3), TG_F32);
    tg_writeback(a, tg_add(b, x));
    tg_writeback(b, tg_sub(c, tg_transpose(a, TG_AXES(1, 0))));
    tg_writeback(c, tg_matmul(a, b));
    return tg_sum(tg_add(tg_add(a, b), c), TG_ALL);
}
static tg_tensor build_self_transpose(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_state(g, "p", TG_SHAPE(13, 13), TG_F32, 0), x = tg_input(g, "x", TG_SHAPE(13, 13), TG_F32);
    tg_tensor q = tg_add(p, x);
    tg_writeback(p, tg_add(q, tg_mul(tg_transpose(q, TG_AXES(1, 0)), 0.5)));
    return tg_sum(p, TG_ALL);
}
static tg_tensor build_momentum(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_state(g, "p", TG_SHAPE(40), TG_F32, 1), m = tg_state(g, "m", TG_SHAPE(40), TG_F32, 0),
              x = tg_input(g, "x", TG_SHAPE(40), TG_F32);
    tg_tensor next = tg_add(tg_mul(m, 0.9), x);
    tg_writeback(m, next);
    tg_writeback(p, tg_sub(p, tg_mul(next, 0.1)));
    return tg_sum(tg_mul(p, p), TG_ALL);
}
static tg_tensor build_normalise_in_place(tg_graph *g, void *user) {
    (void)user;
    tg_tensor p = tg_state(g, "p", TG_SHAPE(9, 700), TG_F32, 0.5), x = tg_input(g, "x", TG_SHAPE(9, 700), TG_F32);
    tg_tensor q = tg_add(p, x);
    tg_writeback(p, tg_sub(q, tg_mean(q, TG_AXES(-1), .keepdims = true)));
    tg_writeback(tg_state(g, "n", TG_SHAPE(9, 1), TG_F32, 0),
                 tg_max(tg_sub(q, tg_mean(q, TG_AXES(-1), .keepdims = true)), TG_AXES(-1), .keepdims = true));
    return tg_sum(tg_square(p), TG_ALL);
}
static void states_hold_what_was_asked_whatever_reads_them(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tg_build_fn build;
    } table[] = {{"swap", build_swap},
                 {"rotate", build_rotate},
                 {"self transpose", build_self_transpose},
                 {"momentum", build_momentum},
                 {"normalise in place", build_normalise_in_place}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        support_options o = fused();
        o.runs = 3;
        check_values(table[i].name, table[i].build, &o);
        o.no_fusion = true;
        check_values(table[i].name, table[i].build, &o);
    }
}

static void an_elementwise_update_is_one_kernel_without_copies(void **state) {
    (void)state;
    support_options o = fused();
    probe p = look(build_momentum, &o);
    assert_int_equal(p.kernels, 2);     /* loss, update */
    assert_int_equal(p.workspace, 256); /* the loss */
}

/* ---- memory */

static tg_tensor build_wide_layer(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(512, 16, 384), TG_F32);
    tg_linear l = tg_nn_linear(g, "l", 384, 1536);
    tg_tensor loss = tg_mean(tg_square(tg_nn_linear_fwd(l, x)), TG_ALL), grad;
    const tg_tensor wrt[] = {l.W};
    tg_grad(loss, wrt, 1, &grad);
    return grad;
}
static void a_weight_gradient_is_never_made_per_batch(void **state) {
    (void)state;
    support_options o = fused();
    probe p = look(build_wide_layer, &o);
    int64_t activations = 512 * 16 * 1536 * 4, weights = 384 * 1536 * 4;
    assert_true(p.workspace <= activations + 2 * weights);
}

static tg_tensor build_deep_chain(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(64, 64), TG_F32);
    for (int i = 0; i < 12; i++) {
        const char name[] = {'w', (char)('a' + i), 0};
        x = tg_tanh(tg_matmul(x, tg_input(g, name, TG_SHAPE(64, 64), TG_F32)));
    }
    return x;
}
static void memory_is_reused_along_a_chain(void **state) {
    (void)state;
    support_options o = fused();
    probe p = look(build_deep_chain, &o);
    assert_int_equal(p.kernels, 12);
    assert_int_equal(p.workspace, 2 * 64 * 64 * 4);
}

/* ---- the checker */

static void checker_must_refuse(support_program *p, const char *what) {
    if (tg_program_check(p->program, p->ctx) == TG_OK) fail_msg("the checker missed: %s", what);
    tg_clear_error(p->ctx);
}

static void the_checker_notices_broken_plans(void **state) {
    (void)state;
    support_case c = {.build = build_deep_chain};
    support_options o = fused();
    support_program p;
    support_outputs error;
    memset(&error, 0, sizeof error);
    assert_true(support_program_make(&c, &o, &p, &error));
    tg_program *program = p.program;
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    for (int i = 0; i < program->buffer_count; i++) { /* a result on top of its operand */
        tg_buffer *b = &program->buffers[i];
        if (b->storage != TG_STORAGE_WORKSPACE || b->first < 0 || b->offset == 0) continue;
        int64_t kept = b->offset;
        b->offset = 0;
        checker_must_refuse(&p, "overlap");
        b->offset = program->workspace_bytes;
        checker_must_refuse(&p, "outside the workspace");
        b->offset = kept;
        break;
    }
    tg_kernel kept = program->kernels[3];
    program->kernels[3] = program->kernels[4];
    program->kernels[4] = kept;
    checker_must_refuse(&p, "order");
    program->kernels[4] = program->kernels[3];
    program->kernels[3] = kept;
    program->kernels[2].a.at.offset += 1;
    checker_must_refuse(&p, "operand out of range");
    program->kernels[2].a.at.offset -= 1;
    tg_kernel *k = &program->kernels[2];
    tg_instruction *store = &k->body[k->body_count - 1];
    assert_int_equal(store->op, TG_K_STORE);
    store->at.offset = -1;
    checker_must_refuse(&p, "store out of range");
    store->at.offset = 0;
    k->arguments[store->argument].access = TG_ACCESS_READ;
    checker_must_refuse(&p, "undeclared write");
    k->arguments[store->argument].access = TG_ACCESS_WRITE;
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    support_program_free(&p);
    support_outputs_free(&error);
}

/* ---- index checks: what is known before anything runs is not checked */

enum { TABLE = 6 };
static tg_tensor indices(tg_graph *g, int kind) {
    static const int32_t literal[TABLE] = {5, 0, 3, 1, 2, 4}, outside[TABLE] = {5, 0, 6, 1, 2, 4};
    const tg_tensor count = tg_arange(g, TABLE, TG_I32), fed = tg_input(g, "i", TG_SHAPE(TABLE), TG_I32);
    const tg_tensor scores = tg_input(g, "s", TG_SHAPE(3, TABLE), TG_F32);
    switch (kind) {
    case 0: return count;
    case 1: return tg_flip(tg_reshape(count, TG_SHAPE(2, 3)), TG_AXES(0, 1));
    case 2: return tg_mod(tg_add(count, 4), TABLE);
    case 3: return tg_constant(g, TG_SHAPE(TABLE), TG_I32, literal, TABLE);
    case 4: return tg_argmax(scores, 1);
    case 5: return tg_clamp(fed, 0, TABLE - 1);
    case 6: return tg_div(tg_mul(count, 2), 3);
    case 7: return tg_cast(tg_greater(scores, 0), TG_I32);
    case 8: return tg_where(tg_greater(fed, 2), count, tg_sub(TABLE - 1, count));
    case 9: return tg_max(tg_rand_int(g, TG_SHAPE(4, 2), 0, TABLE), TG_AXES(1));
    case 10: return tg_cast(tg_arange(g, TABLE, TG_F32), TG_I32);
    case 11: return tg_roll(count, 2, 0);
    case 12: return tg_floor_div(tg_add(count, TABLE), 2);
    /* these may be wrong */
    case 13: return tg_add(count, 1);
    case 14: return tg_constant(g, TG_SHAPE(TABLE), TG_I32, outside, TABLE);
    case 15: return tg_clamp(fed, 0, TABLE);
    case 16: return tg_mod(fed, TABLE + 1);
    case 17: return tg_sub(count, tg_argmax(scores, 1, .keepdims = true));
    case 18: return tg_mul(count, 1 << 30);
    case 19: return tg_cast(scores, TG_I32);
    default: return tg_rand_int(g, TG_SHAPE(4), 0, TABLE + 1);
    }
}

static tg_tensor build_indexed(tg_graph *g, void *user) {
    return tg_embedding(tg_input(g, "table", TG_SHAPE(TABLE, 2), TG_F32), indices(g, *(const int *)user));
}

static void known_indices_are_not_checked(void **state) {
    (void)state;
    for (int kind = 0; kind <= 20; kind++) {
        const support_case c = {.build = build_indexed, .build_user = &kind};
        const support_options o = fused();
        support_program p;
        support_outputs error, want, got;
        memset(&error, 0, sizeof error);
        if (!support_program_make(&c, &o, &p, &error)) fail_msg("kind %d: %s", kind, error.message);
        if (p.program->computed_check_count + p.program->feed_check_count != (kind > 12))
            fail_msg("kind %d: %d checks", kind, p.program->computed_check_count);
        support_program_free(&p);
        support_outputs_free(&error);
        if (kind > 12) continue;
        if (!support_run_reference(&c, 1, &want)) fail_msg("kind %d: %s", kind, want.message);
        if (!support_run_home(&c, &o, &got)) fail_msg("kind %d: %s", kind, got.message);
        assert_true(support_outputs_equal("known indices", &got, &want, (support_tolerance){4, 1e-6, 1e-6}));
        support_outputs_free(&want);
        support_outputs_free(&got);
    }
}

int main(void) {
    const int refused = support_home_refuses("fusion");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_indices_are_not_checked),
        cmocka_unit_test(common_patterns_are_one_kernel),
        cmocka_unit_test(a_reshape_that_divides_no_loop_stores_a_copy),
        cmocka_unit_test(joined_heads_are_stored_as_rows),
        cmocka_unit_test(a_reduction_of_everything_keeps_its_kernel),
        cmocka_unit_test(unused_results_cost_nothing),
        cmocka_unit_test(no_kernel_binds_more_buffers_than_the_device_takes),
        cmocka_unit_test(parts_are_stored_in_place),
        cmocka_unit_test(steps_of_a_recurrence_are_a_loop),
        cmocka_unit_test(a_long_chain_is_cut_not_refused),
        cmocka_unit_test(states_hold_what_was_asked_whatever_reads_them),
        cmocka_unit_test(an_elementwise_update_is_one_kernel_without_copies),
        cmocka_unit_test(a_weight_gradient_is_never_made_per_batch),
        cmocka_unit_test(memory_is_reused_along_a_chain),
        cmocka_unit_test(the_checker_notices_broken_plans),
    };
    return cmocka_run_group_tests_name("fusion", tests, NULL, NULL);
}
