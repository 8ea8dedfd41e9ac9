/* Launches: which kernels start together, as chains over slices or side by side; that such programs
 * compute the same in every order that a launch allows; and that the checker notices wrong
 * launches. Counts are exact, so that a change of the rules shows here. Everything is tested on
 * plans: the CPU runs kernels one by one. */
#include "support.h"

#include "examples.h"
#include "pass/pass.h"
#include "run/model.h"

#include <math.h>
#include <string.h>

static const support_options joined = {.joins = true};
static const support_tolerance close_by = {64, 2e-6, 1e-4};

/* ---------------------------------------------------------------- what a program's launches look like */

typedef struct shape_of_launches {
    int kernels, launches, chains;
    int longest; /* kernels of the longest chain */
    int slices;  /* of the first chain */
} shape_of_launches;

static shape_of_launches launches_of(const tg_program *program) {
    shape_of_launches s = {program->kernel_count, program->launch_count, 0, 0, 0};
    for (int i = 0; i < program->launch_count; i++) {
        const tg_launch *l = &program->launches[i];
        if (l->slices == 0) continue;
        if (s.chains++ == 0) s.slices = l->slices;
        if (l->count > s.longest) s.longest = l->count;
    }
    return s;
}

static support_program plan_case(tg_build_fn build, void *user, const support_options *options) {
    const support_case c = {.build = build, .build_user = user};
    support_program p;
    support_outputs error = {0};
    if (!support_program_make(&c, options, &p, &error)) fail_msg("no program: %s", error.message);
    support_outputs_free(&error);
    return p;
}

static shape_of_launches plan_shape(tg_build_fn build, void *user) {
    support_program p = plan_case(build, user, &joined);
    const shape_of_launches s = launches_of(p.program);
    support_program_free(&p);
    return s;
}

/* Small numbers: what is computed twice in different orders must stay comparable. */
static void fill_small(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    support_fill_default(user, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count && dtype == TG_F32; i++) out[i] = (double)(float)(out[i] * 0.1);
}

/* Against the reference: in the program's order, and in another one that its launches allow. */
static void check_values(const char *what, tg_build_fn build, void *user, support_tolerance tolerance) {
    static const support_options ways[] = {{.joins = true, .runs = 2},
                                           {.joins = true, .runs = 2, .shuffled = true},
                                           {.joins = true, .runs = 2, .shuffled = true, .max_arguments = 6}};
    const support_case c = {.build = build, .build_user = user, .fill = fill_small};
    support_outputs want;
    if (!support_run_reference(&c, 2, &want)) fail_msg("%s: reference: %s", what, want.message);
    for (int i = 0; i < SUPPORT_COUNT(ways); i++) {
        support_outputs got;
        if (!support_run_cpu(&c, &ways[i], &got)) fail_msg("%s, way %d: %s", what, i, got.message);
        assert_true(support_outputs_equal(what, &got, &want, tolerance));
        support_outputs_free(&got);
    }
    support_outputs_free(&want);
}

/* One step of gradient descent on every parameter. */
static tg_tensor descend(tg_graph *g, tg_tensor loss) {
    enum { MOST = 64 };
    tg_tensor wrt[MOST], grad[MOST];
    const int n = (int)g->params.count;
    assert_in_range(n, 1, MOST);
    for (int i = 0; i < n; i++) wrt[i] = (tg_tensor){g, g->params.items[i].node};
    if (tg_grad(loss, wrt, n, grad) != TG_OK) return loss;
    for (int i = 0; i < n; i++) tg_writeback(wrt[i], tg_sub(wrt[i], tg_mul(grad[i], 0.05)));
    return loss;
}

/* ---------------------------------------------------------------- networks */

/* "x3" for ('x', 3), good until the next call but one. */
static const char *numbered(char letter, int number) {
    static char names[2][16];
    static int turn;
    char *name = names[turn++ % 2];
    snprintf(name, sizeof names[0], "%c%d", letter, number);
    return name;
}

static tg_tensor layer(tg_graph *g, const char *name, tg_tensor x, int64_t out) {
    const tg_shape shape = tg_tensor_shape(x);
    return tg_nn_linear_fwd(tg_nn_linear(g, name, shape.dim[shape.rank - 1], out), x);
}

static tg_tensor build_mlp(tg_graph *g, void *user) {
    const int64_t batch = *(const int64_t *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(batch, 7), TG_F32), y = tg_input(g, "y", TG_SHAPE(batch, 3), TG_F32);
    tg_tensor h = tg_tanh(layer(g, "l1", x, 11));
    h = tg_tanh(layer(g, "l2", h, 13));
    return descend(g, tg_nn_mse(layer(g, "l3", h, 3), y));
}

static tg_tensor attend(tg_graph *g, tg_tensor x) {
    tg_tensor n = tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "norm", 8), x);
    tg_tensor q = tg_nn_split_heads(layer(g, "q", n, 8), 2), k = tg_nn_split_heads(layer(g, "k", n, 8), 2);
    tg_tensor v = tg_nn_split_heads(layer(g, "v", n, 8), 2);
    tg_tensor scores = tg_mul(tg_matmul_batched(q, tg_transpose(k, TG_AXES(0, 1, 3, 2))), 0.5);
    tg_tensor mixed = tg_nn_merge_heads(tg_matmul_batched(tg_softmax_causal_last(scores), v));
    return tg_add(x, layer(g, "o", mixed, 8));
}

static tg_tensor build_attention(tg_graph *g, void *user) {
    const int64_t batch = *(const int64_t *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(batch, 4, 8), TG_F32), targets = tg_input(g, "targets", TG_SHAPE(batch, 4), TG_I32);
    tg_tensor h = attend(g, x);
    h = tg_add(h, layer(g, "down", tg_relu(layer(g, "up", h, 16)), 8));
    tg_tensor in_range = tg_sub(tg_maximum(tg_minimum(targets, 4), 0), 1); /* -1 does not count */
    return descend(g, tg_nn_cross_entropy(layer(g, "head", h, 5), in_range, -1));
}

/* Normalised over the batch in the middle: nothing after the mean can begin before every row is
 * there. */
static tg_tensor build_batch_norm(tg_graph *g, void *user) {
    (void)user;
    tg_tensor h = tg_input(g, "x", TG_SHAPE(64, 6), TG_F32);
    h = tg_tanh(layer(g, "a", tg_tanh(layer(g, "b", h, 9)), 10));
    h = tg_sub(h, tg_mean(h, TG_AXES(0), .keepdims = true));
    return tg_tanh(layer(g, "c", tg_tanh(layer(g, "d", h, 9)), 10));
}

/* A total that the end of the network needs, over something that its beginning makes as well: it must not cut the chain. */
static tg_tensor build_early_total(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 40), TG_F32), h = x;
    for (int i = 0; i < 3; i++) h = tg_tanh(layer(g, numbered('w', i), h, 8));
    tg_tensor total = tg_max(tg_softmax(tg_matmul(x, tg_param(g, "m", TG_SHAPE(40, 3))), -1), TG_ALL);
    h = tg_mul(h, total);
    for (int i = 3; i < 6; i++) h = tg_tanh(layer(g, numbered('w', i), h, 8));
    return h;
}

static tg_tensor build_gather(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), rows = tg_input(g, "rows", TG_SHAPE(32), TG_I32);
    tg_tensor table = tg_tanh(layer(g, "a", x, 8));
    rows = tg_maximum(tg_minimum(tg_add(rows, 16), 31), 0);
    return tg_tanh(layer(g, "b", tg_embedding(table, rows), 8));
}

static tg_tensor build_transposed(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 6), TG_F32);
    tg_tensor h = tg_tanh(layer(g, "a", x, 32));
    return tg_tanh(layer(g, "b", tg_transpose(h, TG_AXES(1, 0)), 8));
}

static tg_tensor build_flipped(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 6), TG_F32);
    tg_tensor h = tg_tanh(layer(g, "a", x, 8));
    const int32_t turned = tg_ir_flip(g, h.id, 1u);
    return tg_tanh(layer(g, "b", (tg_tensor){g, turned}, 8));
}

/* All rows read the first. */
static tg_tensor build_first_row(tg_graph *g, void *user) {
    (void)user;
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 8));
    return tg_tanh(layer(g, "b", tg_softmax(tg_sub(h, tg_narrow(h, 0, 0, 1)), -1), 8));
}

/* Every row reads the one after it. */
static tg_tensor build_rolled(tg_graph *g, void *user) {
    (void)user;
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 8));
    const tg_tensor parts[] = {tg_narrow(h, 0, 1, 31), tg_narrow(h, 0, 0, 1)};
    return tg_tanh(layer(g, "b", tg_softmax(tg_concat(parts, 2, 0), -1), 8));
}

/* Every row but the first reads the one before it. */
static tg_tensor build_shifted(tg_graph *g, void *user) {
    (void)user;
    static const float none[8] = {0};
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 8));
    const tg_tensor parts[] = {tg_constant(g, TG_SHAPE(1, 8), TG_F32, none, 8), tg_narrow(h, 0, 0, 31)};
    return tg_tanh(layer(g, "b", tg_softmax(tg_concat(parts, 2, 0), -1), 8));
}

/* Halves of a row trade places. */
static tg_tensor build_halves(tg_graph *g, void *user) {
    (void)user;
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 8));
    const tg_tensor parts[] = {tg_neg(tg_narrow(h, 1, 4, 4)), tg_narrow(h, 1, 0, 4)};
    return tg_tanh(layer(g, "b", tg_softmax(tg_concat(parts, 2, 1), -1), 8));
}

/* The rows of each pair read each other: sound for 16 slices, not for 32. */
static tg_tensor build_pairs(tg_graph *g, void *user) {
    (void)user;
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 8));
    tg_tensor pairs = tg_reshape(h, TG_SHAPE(16, 2, 8));
    const tg_tensor parts[] = {tg_narrow(pairs, 1, 1, 1), tg_narrow(pairs, 1, 0, 1)};
    return tg_tanh(layer(g, "b", tg_softmax(tg_reshape(tg_concat(parts, 2, 1), TG_SHAPE(32, 8)), -1), 8));
}

/* One kernel of the chain reads the whole of `sums`, which is made before it; the next would write over it. */
static tg_tensor build_read_whole(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 32), TG_F32), rows = tg_input(g, "rows", TG_SHAPE(40), TG_I32);
    tg_tensor values = tg_input(g, "values", TG_SHAPE(40, 8), TG_F32);
    rows = tg_maximum(tg_minimum(tg_add(tg_mul(rows, 3), 16), 31), 0);
    tg_tensor sums = {g, tg_ir_scatter_add(g, rows.id, values.id, 32)};
    tg_tensor h = tg_mul(sums, tg_max(tg_matmul(x, tg_narrow(sums, 1, 0, 4)), TG_AXES(-1), .keepdims = true));
    return tg_tanh(layer(g, "b", h, 8));
}

static tg_tensor build_state(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), kept = tg_state(g, "kept", TG_SHAPE(32, 8), TG_F32, 0.5);
    tg_tensor h = tg_tanh(tg_add(layer(g, "a", x, 8), kept));
    tg_writeback(kept, h);
    return tg_tanh(layer(g, "b", h, 8));
}

/* Two that have nothing to do with each other, of batches that no number of slices divides both of. */
static tg_tensor build_towers(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(17, 6), TG_F32), y = tg_input(g, "y", TG_SHAPE(19, 6), TG_F32);
    for (int i = 0; i < 4; i++) {
        x = tg_tanh(layer(g, numbered('x', i), x, 5));
        y = tg_tanh(layer(g, numbered('y', i), y, 5));
    }
    return tg_add(tg_sum(x, TG_ALL), tg_sum(y, TG_ALL));
}

static tg_tensor build_rows(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(64, 64), TG_F32);
    for (int i = 0; i < 12; i++) x = tg_tanh(tg_matmul(x, tg_input(g, numbered('w', i), TG_SHAPE(64, 64), TG_F32)));
    return x;
}

static tg_tensor build_apart(tg_graph *g, void *user) {
    (void)user;
    tg_tensor y = {NULL, 0};
    for (int i = 0; i < 5; i++) {
        tg_tensor x = tg_input(g, numbered('x', i), TG_SHAPE(3, 5 + i), TG_F32);
        y = i == 0 ? tg_sum(tg_exp(x), TG_ALL) : tg_add(y, tg_sum(tg_exp(x), TG_ALL));
    }
    return y;
}

/* The steps of a cell mix no examples: forward and backward are a chain, the kernels of which write the states and the gates'
 * gradients straight into the operands of the weights' gradients. */
static tg_tensor build_recurrent(tg_graph *g, void *user) {
    const int64_t steps = *(const int64_t *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, steps, 6), TG_F32), y = tg_input(g, "y", TG_SHAPE(32, steps, 5), TG_F32);
    return descend(g, tg_nn_mse(tg_nn_gru_fwd(tg_nn_gru(g, "gru", 6, 5), x), y));
}

/* Parts of one result that nothing orders: they are written side by side. */
static tg_tensor build_parts_beside(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(17, 6), TG_F32), parts[9];
    for (int i = 0; i < 9; i++) parts[i] = layer(g, numbered('p', i), x, 5);
    return tg_mul(tg_stack(parts, 9, 1), tg_input(g, "y", TG_SHAPE(17, 9, 5), TG_F32));
}

static int64_t steps_of_9 = 9, steps_of_18 = 18;
static int64_t batch_of_13 = 13, batch_of_48 = 48, batch_of_16 = 16;

typedef struct known_network {
    const char *name;
    tg_build_fn build;
    void *user;
    shape_of_launches want;
} known_network;

static const known_network networks[] = {
    {"mlp", build_mlp, &batch_of_48, {12, 2, 1, 5, 48}},
    {"mlp, a batch of 13", build_mlp, &batch_of_13, {12, 6, 0, 0, 0}},
    {"attention", build_attention, &batch_of_16, {43, 4, 1, 24, 16}},
    {"attention, a batch of 13", build_attention, &batch_of_13, {43, 11, 3, 9, 52}},
    {"batch norm", build_batch_norm, NULL, {6, 3, 2, 3, 64}},
    {"early total", build_early_total, NULL, {9, 3, 2, 6, 32}},
    {"gather", build_gather, NULL, {3, 2, 1, 2, 32}},
    {"transposed", build_transposed, NULL, {2, 2, 0, 0, 0}},
    {"flipped", build_flipped, NULL, {2, 2, 0, 0, 0}},
    {"first row", build_first_row, NULL, {3, 2, 1, 2, 32}},
    {"rolled", build_rolled, NULL, {3, 2, 1, 2, 32}},
    {"shifted", build_shifted, NULL, {3, 2, 1, 2, 32}},
    {"halves", build_halves, NULL, {3, 1, 1, 3, 32}},
    {"pairs", build_pairs, NULL, {3, 1, 1, 3, 16}},
    {"read whole", build_read_whole, NULL, {5, 2, 1, 4, 32}},
    {"state", build_state, NULL, {2, 2, 0, 0, 0}},
    {"towers", build_towers, NULL, {10, 4, 2, 4, 17}},
    {"rows", build_rows, NULL, {12, 1, 1, 12, 64}},
    {"recurrent, 9 steps", build_recurrent, &steps_of_9, {36, 3, 1, 28, 32}},
    {"recurrent, 18 steps", build_recurrent, &steps_of_18, {63, 3, 1, 55, 32}},
    {"parts beside", build_parts_beside, NULL, {10, 2, 0, 0, 0}},
    {"apart", build_apart, NULL, {5, 2, 0, 0, 0}},
};

static void networks_are_launched_as_planned(void **state) {
    (void)state;
    bool all = true;
    for (int i = 0; i < SUPPORT_COUNT(networks); i++) {
        const shape_of_launches want = networks[i].want, got = plan_shape(networks[i].build, networks[i].user);
        if (memcmp(&want, &got, sizeof got) == 0) continue;
        print_message("%s: {%d, %d, %d, %d, %d} kernels, launches, chains, longest, slices\n", networks[i].name, got.kernels, got.launches,
                      got.chains, got.longest, got.slices);
        all = false;
    }
    assert_true(all);
}

/* Halves of rows trade places at more points than the checker walks one by one. */
static tg_tensor build_many_points(tg_graph *g, void *user) {
    (void)user;
    enum { HALF = 4096 };
    tg_tensor h = tg_tanh(layer(g, "a", tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), 2 * HALF));
    const tg_tensor parts[] = {tg_neg(tg_narrow(h, 1, HALF, HALF)), tg_narrow(h, 1, 0, HALF)};
    return tg_tanh(layer(g, "b", tg_softmax(tg_concat(parts, 2, 1), -1), 8));
}

static void chains_of_many_points_pass_the_checker(void **state) {
    (void)state;
    assert_int_equal(plan_shape(build_many_points, NULL).chains, 1);
}

static void networks_compute_the_same(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(networks); i++) check_values(networks[i].name, networks[i].build, networks[i].user, close_by);
}

/* ---------------------------------------------------------------- random networks: rows that mix in every way that there is */

typedef struct random_network {
    support_random random;
    uint64_t seed;
    int64_t batch;
} random_network;

static tg_tensor random_layer(tg_graph *g, random_network *r, tg_tensor h, tg_tensor rows, int i) {
    const tg_shape shape = tg_tensor_shape(h);
    switch (support_random_below(&r->random, 11)) {
    case 0: return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, numbered('n', i), shape.dim[1]), h);
    case 1: return tg_softmax(h, -1);
    case 2: return tg_sub(h, tg_mean(h, TG_AXES(0), .keepdims = true)); /* every row waits for every other */
    case 3: return tg_embedding(h, rows);
    case 4: return tg_add(h, tg_tanh(layer(g, numbered('r', i), h, shape.dim[1])));
    case 5: return tg_mul(h, tg_max(h, TG_AXES(-1), .keepdims = true));
    case 6: /* two rows become one, and back */
        if (shape.dim[0] % 2 != 0) return tg_relu(h);
        return tg_reshape(
            tg_tanh(layer(g, numbered('h', i), tg_reshape(h, TG_SHAPE(shape.dim[0] / 2, 2 * shape.dim[1])), 2 * shape.dim[1])),
            TG_SHAPE(shape.dim[0], shape.dim[1]));
    case 7: /* rows trade places with columns */
        if (shape.dim[0] > 32) return tg_relu(h);
        return tg_matmul(tg_matmul(h, tg_transpose(h, TG_AXES(1, 0))), tg_mul(h, 0.125));
    case 8: return tg_div(h, tg_add(tg_max(tg_abs(h), TG_ALL), 1));
    default: return tg_tanh(layer(g, numbered('l', i), h, 3 + support_random_below(&r->random, 6)));
    }
}

static tg_tensor build_random(tg_graph *g, void *user) {
    random_network *r = user;
    r->random = support_random_make(r->seed);
    static const int64_t batches[] = {13, 16, 24, 30, 48, 64};
    r->batch = batches[support_random_below(&r->random, SUPPORT_COUNT(batches))];
    tg_tensor h = tg_input(g, "x", TG_SHAPE(r->batch, 5), TG_F32), rows = tg_input(g, "rows", TG_SHAPE(r->batch), TG_I32);
    rows = tg_maximum(tg_minimum(tg_add(tg_mul(rows, 3), 6), (double)(r->batch - 1)), 0);
    const int layers = 3 + (int)support_random_below(&r->random, 6);
    h = tg_tanh(layer(g, "first", h, 6));
    for (int i = 0; i < layers; i++) h = random_layer(g, r, h, rows, i);
    if (support_random_below(&r->random, 4) == 0) return h;
    return descend(g, tg_mean(tg_square(h), TG_ALL));
}

static void random_networks_compute_the_same(void **state) {
    (void)state;
    const int count = support_env_int("TG_RANDOM_NETWORKS", SUPPORT_SANITIZED ? 20 : 120);
    int chains = 0, longest = 0;
    for (int i = 0; i < count; i++) {
        random_network r = {.seed = support_seed(1) + (uint64_t)i};
        char what[32];
        snprintf(what, sizeof what, "seed %llu", (unsigned long long)r.seed);
        /* a norm of almost equal numbers magnifies every rounding; a row that is read too early is NaN, or another row */
        check_values(what, build_random, &r, (support_tolerance){64, 5e-5, 5e-3});
        const shape_of_launches s = plan_shape(build_random, &r);
        chains += s.chains;
        longest = s.longest > longest ? s.longest : longest;
    }
    print_message("%d networks, %d chains, the longest of %d kernels\n", count, chains, longest);
    assert_true(chains > count && longest > 8);
}

/* ---------------------------------------------------------------- the examples */

typedef struct pinned_example {
    const char *name;
    int32_t max_arguments;
    shape_of_launches want;
    int64_t workspace_bytes;
} pinned_example;

/* The training step of an example, planned as for a GPU. */
static void check_example(pinned_example want) {
    tg_context *ctx = support_context();
    const tg_example *example = tg_example_find(want.name);
    assert_non_null(example);
    const tg_compile_options options = {.optimizer = example->optimizer(), .seed = 1, .device = TG_DEVICE_CPU, .threads = 1};
    tg_model *model = tg_compile(ctx, example->build, NULL, &options);
    assert_non_null(model);
    const tg_variant *step = tg_model_variant(model, TG_VARIANT_STEP);
    assert_non_null(step);
    tg_device_model device = tg_device_guaranteed;
    device.max_arguments = want.max_arguments;
    const tg_plan_options plan = {.device = &device};
    tg_program *program = tg_program_make(step->graph, &plan);
    assert_non_null(program);
    if (tg_program_check(program, ctx) != TG_OK) fail_msg("%s: %s", want.name, tg_error_message(ctx));
    const shape_of_launches got = launches_of(program);
    if (memcmp(&got, &want.want, sizeof got) != 0 || program->workspace_bytes != want.workspace_bytes)
        fail_msg("%s is now {%d, %d, %d, %d, %d}: kernels, launches, chains, longest, slices; workspace %lld", want.name, got.kernels,
                 got.launches, got.chains, got.longest, got.slices, (long long)program->workspace_bytes);
    tg_program_destroy(program, ctx);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

static void examples_take_few_launches(void **state) {
    (void)state;
    check_example((pinned_example){"mlp-sin", 7, {15, 4, 1, 5, 128}, 264448});
    check_example((pinned_example){"mlp-sin", 12, {14, 3, 1, 5, 128}, 264448});
    check_example((pinned_example){"transformer-add", 7, {150, 6, 1, 92, 128}, 18223360});
    check_example((pinned_example){"transformer-add", 12, {128, 5, 1, 77, 128}, 17703168});
}

static tg_tensor build_example(tg_graph *g, void *user) {
    const tg_example *example = user;
    return descend(g, example->build(g, NULL));
}

static void fill_example(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    fill_small(user, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count && dtype == TG_I32; i++) out[i] = fabs(out[i]); /* digits */
}

/* The examples with gradient descent, so that they are small enough to be cut in slices: every kernel of the chain once for each. */
static void examples_compute_the_same(void **state) {
    (void)state;
    static const support_options ways[] = {{0}, {.joins = true}, {.joins = true, .shuffled = true}};
    static const char *const names[] = {"mlp-sin", "transformer-add"};
    for (int n = 0; n < SUPPORT_COUNT(names); n++) {
        support_outputs got[3];
        tg_example example = *tg_example_find(names[n]);
        const support_case c = {.build = build_example, .build_user = &example, .fill = fill_example};
        for (int i = 0; i < 3; i++)
            if (!support_run_cpu(&c, &ways[i], &got[i])) fail_msg("%s: %s", names[n], got[i].message);
        assert_true(got[2].kernels > 128 * 5);
        for (int i = 1; i < 3; i++) assert_true(support_outputs_equal(names[n], &got[i], &got[0], close_by));
        for (int i = 0; i < 3; i++) support_outputs_free(&got[i]);
    }
}

/* ---------------------------------------------------------------- what a launch may bind */

static int states_touched(const tg_program *program, const tg_launch *l) {
    bool touched[64] = {false};
    int count = 0;
    assert_in_range(program->state_count, 0, 64);
    for (int k = l->first; k < l->first + l->count; k++)
        for (int i = 0; i < program->kernels[k].argument_count; i++) {
            const tg_buffer *b = &program->buffers[program->kernels[k].arguments[i].buffer];
            if (b->storage != TG_STORAGE_STATE || touched[b->slot]) continue;
            touched[b->slot] = true;
            count++;
        }
    return count;
}

static tg_tensor build_many_states(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, 6), TG_F32), sum = {NULL, 0};
    for (int i = 0; i < 6; i++) {
        tg_tensor s = tg_state(g, numbered('s', i), TG_SHAPE(6, 6), TG_F32, 0.1 * i);
        x = tg_tanh(tg_matmul(x, s));
        tg_writeback(s, tg_add(tg_mul(s, 0.5), tg_mean(x, TG_AXES(0), .keepdims = true)));
        sum = i == 0 ? tg_sum(x, TG_ALL) : tg_add(sum, tg_sum(x, TG_ALL));
    }
    return sum;
}

static void launches_bind_no_more_than_the_device_takes(void **state) {
    (void)state;
    int before = 0;
    for (int32_t most = 3; most <= 12; most++) {
        const support_options options = {.joins = true, .max_arguments = most};
        support_program p = plan_case(build_many_states, NULL, &options);
        int joins = 0;
        for (int i = 0; i < p.program->launch_count; i++) {
            const tg_launch *l = &p.program->launches[i];
            if (l->count < 2) continue;
            joins++;
            if (4 + states_touched(p.program, l) > most) fail_msg("launch %d binds more than %d", i, (int)most);
        }
        if (most < 4) assert_int_equal(joins, 0);
        if (most > 4) assert_true(p.program->launch_count <= before);
        before = p.program->launch_count;
        support_program_free(&p);
    }
    assert_true(before <= 4);
    check_values("many states", build_many_states, NULL, close_by);
}

static void blocks_too_large_to_bind_are_not_bound_whole(void **state) {
    (void)state;
    support_program p = plan_case(build_mlp, &batch_of_48, &joined);
    const int64_t state_bytes = p.program->state_bytes, workspace = p.program->workspace_bytes, inputs = p.program->input_block_bytes;
    assert_true(p.program->launch_count < p.program->kernel_count);
    assert_true(workspace > state_bytes && workspace > inputs);
    const int64_t sizes[] = {workspace, workspace - 1, inputs - 1, state_bytes - 1};
    for (int i = 0; i < SUPPORT_COUNT(sizes); i++) {
        tg_device_model device = tg_device_guaranteed;
        device.max_binding_bytes = sizes[i];
        const tg_plan_options plan = {.device = &device, .captures = true};
        tg_program *program = tg_program_make(p.graph, &plan);
        assert_non_null(program);
        assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
        assert_true((program->launch_count < program->kernel_count) == (i == 0));
        tg_program_destroy(program, p.ctx);
    }
    support_program_free(&p);
}

/* ---------------------------------------------------------------- places */

static void memory_is_reused_along_a_chain(void **state) {
    (void)state;
    support_program p = plan_case(build_rows, NULL, &joined);
    assert_int_equal(p.program->launch_count, 1);
    assert_int_equal(p.program->workspace_bytes, 2 * 64 * 64 * 4);
    support_program_free(&p);
}

static tg_tensor build_inputs(tg_graph *g, void *user) {
    (void)user;
    static const bool mask[] = {true, false, true, true, false};
    static const float table[] = {1, 2, 3, 4, 5};
    tg_tensor a = tg_input(g, "a", TG_SHAPE(100), TG_BOOL);
    tg_input(g, "unused", TG_SHAPE(70), TG_F32);
    tg_tensor b = tg_input(g, "b", TG_SHAPE(5), TG_F32);
    tg_tensor m = tg_constant(g, TG_SHAPE(5), TG_BOOL, mask, 5), t = tg_constant(g, TG_SHAPE(5), TG_F32, table, 5);
    return tg_add(tg_sum(tg_cast(a, TG_F32), TG_ALL), tg_sum(tg_mul(tg_mul(b, t), tg_cast(m, TG_F32)), TG_ALL));
}

static void inputs_and_constants_have_places_in_their_blocks(void **state) {
    (void)state;
    support_program p = plan_case(build_inputs, NULL, &joined);
    tg_plan_options plan = {.device = &tg_device_guaranteed};
    tg_program *wide = tg_program_make(p.graph, &plan);
    assert_non_null(wide);
    assert_int_equal(tg_program_check(wide, p.ctx), TG_OK);
    assert_int_equal(p.program->input_block_bytes, 256 + 512 + 256); /* a, unused, b */
    assert_int_equal(wide->input_block_bytes, 512 + 512 + 256);      /* bools take four bytes */
    assert_int_equal(wide->constant_block_bytes, 2 * 256);
    for (int i = 0; i < wide->buffer_count; i++)
        if (wide->buffers[i].storage == TG_STORAGE_INPUT && strcmp(wide->inputs[wide->buffers[i].slot].name, "b") == 0)
            assert_int_equal(wide->buffers[i].offset, 1024);
    tg_program_destroy(wide, p.ctx);
    support_program_free(&p);
}

static void without_joins_every_kernel_is_alone(void **state) {
    (void)state;
    const support_options ways[] = {{0}, {.joins = true, .no_fusion = true}};
    for (int i = 0; i < SUPPORT_COUNT(ways); i++) {
        support_program p = plan_case(build_attention, &batch_of_16, &ways[i]);
        assert_int_equal(p.program->launch_count, p.program->kernel_count);
        for (int k = 0; k < p.program->launch_count; k++) {
            assert_int_equal(p.program->launches[k].first, k);
            assert_int_equal(p.program->launches[k].count, 1);
            assert_int_equal(p.program->launches[k].slices, 0);
        }
        support_program_free(&p);
    }
}

static void launches_are_printed(void **state) {
    (void)state;
    support_program p = plan_case(build_mlp, &batch_of_48, &joined);
    tg_text_buffer text;
    tg_text_init(&text, p.ctx);
    tg_program_print(p.program, &text);
    assert_non_null(strstr(text.data, "launch 0: kernels 0 to 4, chain of 48 slices\nk0 "));
    assert_non_null(strstr(text.data, "launch 1: kernels 5 to 11, side by side\nk5 "));
    tg_text_free(&text);
    tg_text_init(&text, p.ctx);
    tg_program_print_kernels(p.program, &text);
    assert_non_null(strstr(text.data, "launch 0: kernels 0 to 4, chain of 48 slices\nk0 "));
    tg_text_free(&text);
    support_program_free(&p);
}

/* ---------------------------------------------------------------- the checker */

static void checker_must_refuse(support_program *p, const char *what, const char *message) {
    if (tg_program_check(p->program, p->ctx) == TG_OK) fail_msg("the checker missed: %s", what);
    if (strstr(tg_error_message(p->ctx), message) == NULL) fail_msg("%s: refused for another reason: %s", what, tg_error_message(p->ctx));
    tg_clear_error(p->ctx);
}

static void the_checker_notices_launches_that_miss_kernels(void **state) {
    (void)state;
    support_program p = plan_case(build_mlp, &batch_of_48, &joined);
    tg_program *program = p.program;
    tg_launch *l = program->launches;
    assert_int_equal(program->launch_count, 2);
    program->launch_count--;
    checker_must_refuse(&p, "a launch less", "in no launch");
    program->launch_count++;
    l[1].first++, l[1].count--;
    checker_must_refuse(&p, "a gap", "in no launch");
    l[1].first--, l[1].count += 2;
    checker_must_refuse(&p, "more kernels than there are", "in no launch");
    l[1].count--, l[0].count++;
    checker_must_refuse(&p, "a kernel in two launches", "in no launch");
    l[0].count--;
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    support_program_free(&p);
}

static void the_checker_notices_kernels_that_must_not_run_at_once(void **state) {
    (void)state;
    support_program p = plan_case(build_mlp, &batch_of_48, &joined);
    tg_program *program = p.program;
    tg_launch *l = program->launches;
    l[0].slices = 0;
    checker_must_refuse(&p, "a chain side by side", "beside it");
    l[0].slices = 48;
    const tg_launch kept = l[0];
    l[0].count = program->kernel_count;
    l[0].slices = 0;
    program->launch_count = 1;
    checker_must_refuse(&p, "everything at once", "beside it");
    program->launch_count = 2;
    l[0] = kept;
    /* two parts of one state that are written side by side, moved onto each other */
    tg_instruction *stores[2] = {NULL, NULL};
    for (int k = l[1].first, n = 0; k < l[1].first + l[1].count && n < 2; k++)
        for (int i = 0; i < program->kernels[k].body_count && n < 2; i++) {
            const tg_kernel *kernel = &program->kernels[k];
            if (kernel->body[i].op != TG_K_STORE) continue;
            if (program->buffers[kernel->arguments[kernel->body[i].argument].buffer].storage != TG_STORAGE_STATE) continue;
            stores[n++] = &kernel->body[i];
        }
    assert_non_null(stores[1]);
    const int64_t offset = stores[1]->at.offset;
    stores[1]->at.offset = stores[0]->at.offset;
    checker_must_refuse(&p, "one part of a state written twice", "beside it");
    stores[1]->at.offset = offset;
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    support_program_free(&p);
}

static void the_checker_notices_slices_that_mix(void **state) {
    (void)state;
    support_program p = plan_case(build_rows, NULL, &joined);
    tg_program *program = p.program;
    tg_launch *l = program->launches;
    for (int32_t s = 1; s <= 128; s++) { /* any number that divides the rows is sound */
        l->slices = s;
        if (64 % s == 0) assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
        else checker_must_refuse(&p, "another number of slices", "slices of its chain");
    }
    l->slices = 64;
    tg_kernel *k = &program->kernels[5];
    const tg_affine kept = k->a.at;
    k->a.at.offset = 63 * k->a.at.stride[0]; /* the rows from last to first */
    k->a.at.stride[0] = -k->a.at.stride[0];
    checker_must_refuse(&p, "another row is read", "leaves the slice");
    k->a.at = kept;
    tg_instruction *store = &k->body[k->body_count - 1];
    assert_int_equal(store->op, TG_K_STORE);
    const int64_t swap = store->at.stride[0];
    store->at.stride[0] = store->at.stride[1];
    store->at.stride[1] = swap;
    checker_must_refuse(&p, "columns are stored as rows", "leaves the slice");
    store->at.stride[1] = store->at.stride[0];
    store->at.stride[0] = swap;
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    support_program_free(&p);
}

/* Rows of 64, 32 and 64 numbers: the third could lie where the first was, were it not for the size of the slices. */
static tg_tensor build_widths(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(64, 6), TG_F32);
    static const int64_t widths[] = {16, 32, 8, 64, 4};
    for (int i = 0; i < 5; i++) x = tg_tanh(layer(g, numbered('w', i), x, widths[i]));
    return x;
}

static void the_checker_notices_places_that_change_size(void **state) {
    (void)state;
    support_program p = plan_case(build_widths, NULL, &joined);
    tg_program *program = p.program;
    assert_int_equal(program->launch_count, 1);
    int refused = 0;
    for (int i = 0; i < program->buffer_count; i++)
        for (int j = 0; j < program->buffer_count; j++) {
            tg_buffer *a = &program->buffers[i], *b = &program->buffers[j];
            if (a->storage != TG_STORAGE_WORKSPACE || b->storage != TG_STORAGE_WORKSPACE || a->last >= b->first) continue;
            if (a->offset + b->count * 4 > program->workspace_bytes || a->count == b->count) continue;
            const int64_t kept = b->offset;
            bool taken = false; /* by something that lives as long as b */
            for (int n = 0; n < program->buffer_count; n++) {
                const tg_buffer *o = &program->buffers[n];
                taken = taken || (n != i && n != j && o->storage == TG_STORAGE_WORKSPACE && o->first <= b->last && b->first <= o->last &&
                                  o->offset < a->offset + b->count * 4 && a->offset < o->offset + o->count * 4);
            }
            if (taken) continue;
            b->offset = a->offset;
            checker_must_refuse(&p, "a place of another size", "changes hands");
            b->offset = kept;
            refused++;
        }
    assert_true(refused > 0);
    assert_int_equal(tg_program_check(program, p.ctx), TG_OK);
    support_program_free(&p);
}

static void the_checker_notices_places_outside_their_block(void **state) {
    (void)state;
    support_program p = plan_case(build_mlp, &batch_of_48, &joined);
    tg_buffer *inputs[2] = {NULL, NULL};
    for (int i = 0, n = 0; i < p.program->buffer_count && n < 2; i++)
        if (p.program->buffers[i].storage == TG_STORAGE_INPUT) inputs[n++] = &p.program->buffers[i];
    assert_non_null(inputs[1]);
    const int64_t kept = inputs[1]->offset;
    inputs[1]->offset = inputs[0]->offset;
    checker_must_refuse(&p, "inputs on each other", "overlap");
    inputs[1]->offset = kept + 4;
    checker_must_refuse(&p, "an input at an odd place", "outside its block");
    inputs[1]->offset = p.program->input_block_bytes;
    checker_must_refuse(&p, "an input behind its block", "outside its block");
    inputs[1]->offset = kept;
    assert_int_equal(tg_program_check(p.program, p.ctx), TG_OK);
    support_program_free(&p);
}

/* ---------------------------------------------------------------- memory that is refused */

static bool plan_with_failing(int64_t fail_at) {
    support_allocator allocator = {0};
    tg_context *ctx = support_context_counting(&allocator);
    assert_non_null(ctx);
    const support_case c = {.build = build_many_states};
    tg_graph *g = support_trace(ctx, &c);
    assert_non_null(g);
    assert_int_equal(tg_pass_run(g, false), TG_OK);
    allocator.fail_at = allocator.calls + fail_at;
    const tg_plan_options plan = {.device = &tg_device_guaranteed};
    tg_program *program = tg_program_make(g, &plan);
    const bool made = program != NULL;
    if (!made && tg_error(ctx) != TG_ERROR_MEMORY) fail_msg("allocation %d: %s", (int)fail_at, tg_error_message(ctx));
    allocator.fail_at = 0;
    tg_program_destroy(program, ctx);
    tg_graph_destroy(g);
    tg_context_destroy(ctx);
    assert_int_equal(allocator.live_blocks, 0);
    assert_false(allocator.size_mismatch);
    return made;
}

static void every_failing_allocation_is_an_error(void **state) {
    (void)state;
    int64_t failed = 0;
    while (!plan_with_failing(failed + 1)) failed++;
    assert_true(failed > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_launched_as_planned),
        cmocka_unit_test(chains_of_many_points_pass_the_checker),
        cmocka_unit_test(networks_compute_the_same),
        cmocka_unit_test(random_networks_compute_the_same),
        cmocka_unit_test(examples_take_few_launches),
        cmocka_unit_test(examples_compute_the_same),
        cmocka_unit_test(launches_bind_no_more_than_the_device_takes),
        cmocka_unit_test(blocks_too_large_to_bind_are_not_bound_whole),
        cmocka_unit_test(memory_is_reused_along_a_chain),
        cmocka_unit_test(inputs_and_constants_have_places_in_their_blocks),
        cmocka_unit_test(without_joins_every_kernel_is_alone),
        cmocka_unit_test(launches_are_printed),
        cmocka_unit_test(the_checker_notices_launches_that_miss_kernels),
        cmocka_unit_test(the_checker_notices_kernels_that_must_not_run_at_once),
        cmocka_unit_test(the_checker_notices_slices_that_mix),
        cmocka_unit_test(the_checker_notices_places_that_change_size),
        cmocka_unit_test(the_checker_notices_places_outside_their_block),
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("launches", tests, NULL, NULL);
}
