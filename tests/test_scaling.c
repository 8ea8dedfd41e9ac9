/* Compiling long graphs: for about forty kinds of repeated operations, the work and memory of
 * compiling grow no faster than the trace. Judged by counts that are the same on every machine:
 * bytes asked of the allocator, and the compiler's own count of the rounds of its searches
 * (tg_context.work). The clock is used only where nothing else would notice, with generous
 * limits. */
#include "support.h"

#include "base/base.h"
#include "grad/grad.h"
#include "optim/optim.h"
#include "pass/pass.h"
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 8 };

typedef struct chain {
    const char *name;
    bool trains;
    tg_tensor (*build)(tg_graph *g, int steps);
} chain;

static tg_tensor vector_input(tg_graph *g) { return tg_input(g, "x", TG_SHAPE(WIDTH), TG_F32); }
static tg_tensor square_input(tg_graph *g) { return tg_input(g, "x", TG_SHAPE(WIDTH, WIDTH), TG_F32); }
static tg_tensor weight(tg_graph *g) { return tg_param(g, "w", TG_SHAPE(WIDTH)); }
static tg_tensor matrix(tg_graph *g) { return tg_param(g, "w", TG_SHAPE(WIDTH, WIDTH)); }
static tg_tensor named(tg_graph *g, const char *kind, int i, bool input) {
    char name[32];
    (void)snprintf(name, sizeof name, "%s%d", kind, i);
    return input ? tg_input(g, name, TG_SHAPE(WIDTH), TG_F32) : tg_param(g, name, TG_SHAPE(WIDTH));
}
static tg_tensor total(tg_tensor y) { return tg_sum(y, TG_ALL); }

/* ---------------------------------------------------------------- kinds of chain */

static tg_tensor stencil(tg_graph *g, int steps) {
    tg_tensor y = square_input(g);
    for (int i = 0; i < steps; i++)
        y = tg_mul(0.2, tg_add(tg_add(y, tg_add(tg_roll(y, 1, 0), tg_roll(y, -1, 0))), tg_add(tg_roll(y, 1, 1), tg_roll(y, -1, 1))));
    return y;
}
static tg_tensor sine(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_add(y, tg_mul(0.01, tg_sin(y)));
    return y;
}
static tg_tensor halving(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_where(tg_less(y, 1), y, tg_div(y, 2));
    return y;
}
static tg_tensor squaring(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(vector_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_square(y);
    return total(y);
}
static tg_tensor gated(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g), w = weight(g);
    for (int i = 0; i < steps; i++) {
        const tg_tensor gate = tg_sigmoid(tg_add(y, w));
        y = tg_add(tg_mul(gate, y), tg_mul(tg_sub(1, gate), tg_tanh(tg_mul(y, w))));
    }
    return total(y);
}
static tg_tensor tanh_plus(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g), w = weight(g);
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_add(y, w));
    return total(y);
}
static tg_tensor decay(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g), w = weight(g);
    for (int i = 0; i < steps; i++) y = tg_add(tg_mul(y, 0.9999), w);
    return total(y);
}
static tg_tensor residual(tg_graph *g, int steps) {
    tg_tensor y = square_input(g), w = matrix(g);
    for (int i = 0; i < steps; i++) y = tg_add(y, tg_relu(tg_matmul(y, w)));
    return total(y);
}
static tg_tensor layer_norms(tg_graph *g, int steps) {
    tg_tensor y = square_input(g);
    const tg_layer_norm n = tg_nn_layer_norm(g, "n", WIDTH);
    for (int i = 0; i < steps; i++) y = tg_nn_layer_norm_fwd(n, y);
    return total(y);
}
static tg_tensor joins(tg_graph *g, int steps) {
    tg_tensor y = square_input(g);
    for (int i = 0; i < steps; i++) {
        const tg_tensor parts[] = {tg_narrow(y, 0, 3, 5), tg_tanh(tg_narrow(y, 0, 0, 3))};
        y = tg_concat(parts, 2, 0);
    }
    return y;
}
static tg_tensor pads(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_narrow(tg_pad(tg_mul(y, 0.5), TG_SHAPE(1), TG_SHAPE(1), 0), 0, i % 3, WIDTH);
    return y;
}
static tg_tensor running(tg_graph *g, int steps) {
    tg_tensor y = square_input(g), w = weight(g);
    for (int i = 0; i < steps; i++) y = tg_mul(tg_cumsum(tg_mul(y, w), 1), 0.1);
    return total(y);
}
static tg_tensor gathers(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(square_input(g), weight(g)), at = tg_input(g, "at", TG_SHAPE(WIDTH), TG_I32);
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_gather(y, at, 0));
    return total(y);
}
static tg_tensor scatters(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(square_input(g), weight(g)), at = tg_input(g, "at", TG_SHAPE(WIDTH), TG_I32);
    for (int i = 0; i < steps; i++) y = tg_mul(tg_scatter_add(y, at, y, 0), 0.5);
    return total(y);
}
static tg_tensor doubling(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(vector_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_add(y, y);
    return total(y);
}
static tg_tensor fibonacci(tg_graph *g, int steps) {
    tg_tensor x = vector_input(g), y = tg_tanh(x);
    for (int i = 0; i < steps; i++) {
        const tg_tensor next = tg_sub(tg_mul(x, y), x);
        x = y;
        y = next;
    }
    return y;
}
static tg_tensor matmuls(tg_graph *g, int steps) {
    tg_tensor y = square_input(g), w = matrix(g);
    for (int i = 0; i < steps; i++) y = tg_matmul(y, w);
    return total(y);
}
static tg_tensor convolutions(tg_graph *g, int steps) {
    tg_tensor y = tg_input(g, "x", TG_SHAPE(1, 2, 12), TG_F32), w = tg_param(g, "w", TG_SHAPE(2, 2, 3));
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_conv1d(y, w, .padding = tg_padding_same()));
    return total(y);
}
static tg_tensor softmaxes(tg_graph *g, int steps) {
    tg_tensor y = square_input(g), w = weight(g);
    for (int i = 0; i < steps; i++) y = tg_softmax(tg_mul(y, w), -1);
    return total(tg_mul(y, y));
}
static tg_tensor recurrence(tg_graph *g, int steps) {
    const tg_recurrent cell = tg_nn_rnn(g, "cell", 4, 4);
    return total(tg_nn_rnn_fwd(cell, tg_input(g, "x", tg_shape_make(3, (int64_t[]){2, steps, 4}), TG_F32)));
}
static tg_tensor gated_recurrence(tg_graph *g, int steps) {
    const tg_recurrent cell = tg_nn_gru(g, "cell", 4, 4);
    tg_tensor x = tg_input(g, "x", tg_shape_make(3, (int64_t[]){2, steps, 4}), TG_F32);
    return tg_nn_mse(tg_nn_gru_fwd(cell, x), tg_mul(x, 0.5));
}
static tg_tensor windows(tg_graph *g, int steps) {
    tg_tensor x = tg_tanh(tg_param(g, "w", tg_shape_make(2, (int64_t[]){steps + 2, WIDTH}))), y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_add(y, tg_sum(tg_narrow(x, 0, i, 3), TG_AXES(0))));
    return total(y);
}
static tg_tensor remainders(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_where(tg_greater(tg_mod(y, 3), 1), tg_sub(y, 1), tg_add(y, 2));
    return y;
}
static tg_tensor maxima(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(square_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_sub(y, tg_mul(0.1, tg_max(y, TG_AXES(1), .keepdims = true)));
    return total(y);
}
static tg_tensor views(tg_graph *g, int steps) {
    tg_tensor y = tg_input(g, "x", TG_SHAPE(4, 6), TG_F32);
    for (int i = 0; i < steps; i++)
        y = i % 2 ? tg_flip(tg_reshape(y, TG_SHAPE(4, 6)), TG_AXES(1)) : tg_reshape(tg_swap_axes(y, 0, 1), TG_SHAPE(8, 3));
    return y;
}
static tg_tensor casts(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_mul(tg_cast(tg_cast(y, TG_I32), TG_F32), 1.5);
    return y;
}
static tg_tensor dropouts(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(vector_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_dropout(tg_tanh(y), 0.1);
    return total(y);
}
static tg_tensor second_order(tg_graph *g, int steps) {
    tg_tensor w = weight(g), y = tg_mul(vector_input(g), w), slope;
    for (int i = 0; i < steps; i++) y = tg_sin(tg_mul(y, w));
    tg_grad(total(y), &w, 1, &slope);
    return total(tg_mul(slope, slope));
}
static tg_tensor captures(tg_graph *g, int steps) {
    char name[32];
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) {
        (void)snprintf(name, sizeof name, "y%d", i);
        y = tg_capture(name, tg_tanh(tg_add(y, 0.25)));
    }
    return y;
}
static tg_tensor many_parameters(tg_graph *g, int steps) {
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_mul(y, named(g, "w", i, false)));
    return total(y);
}
static tg_tensor many_inputs(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(vector_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_tanh(tg_add(y, named(g, "in", i, true)));
    return total(y);
}
static tg_tensor wide_sum(tg_graph *g, int steps) {
    tg_tensor x = vector_input(g), y = weight(g);
    for (int i = 0; i < steps; i++) y = tg_add(y, tg_sin(tg_mul(x, 1.0 + i)));
    return total(y);
}
static tg_tensor wide_inputs(tg_graph *g, int steps) {
    tg_tensor y = weight(g);
    for (int i = 0; i < steps; i++) y = tg_add(y, tg_square(named(g, "in", i, true)));
    return total(y);
}
static tg_tensor wide_concat(tg_graph *g, int steps) {
    tg_tensor *parts = calloc((size_t)steps, sizeof *parts);
    assert_non_null(parts);
    for (int i = 0; i < steps; i++) parts[i] = tg_exp(named(g, "in", i, true));
    const tg_tensor y = tg_mul(tg_stack(parts, steps, 0), weight(g));
    free(parts);
    return total(y);
}
static tg_tensor fan_out(tg_graph *g, int steps) {
    tg_tensor x = square_input(g), w = matrix(g), y = tg_matmul(x, w);
    tg_tensor sum = tg_mean(y, TG_ALL);
    for (int i = 0; i < steps; i++) sum = tg_add(sum, tg_mul(tg_mean(tg_tanh(tg_mul(y, 1.0 + i)), TG_ALL), 0.5));
    return sum;
}
static tg_tensor heads(tg_graph *g, int steps) {
    tg_tensor x = square_input(g), sum = tg_mean(x, TG_ALL);
    for (int i = 0; i < steps; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "head%d", i);
        sum = tg_add(sum, tg_mean(tg_nn_linear_fwd(tg_nn_linear(g, name, WIDTH, 2), x), TG_ALL));
    }
    return sum;
}
static tg_tensor states(tg_graph *g, int steps) {
    char name[32];
    tg_tensor y = vector_input(g);
    for (int i = 0; i < steps; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        const tg_tensor s = tg_state(g, name, TG_SHAPE(WIDTH), TG_F32, 0);
        tg_writeback(s, y);
        y = tg_tanh(tg_add(s, y));
    }
    return y;
}
static tg_tensor sorting(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(square_input(g), weight(g));
    for (int i = 0; i < steps; i++) y = tg_add(tg_sort(y, 1), tg_mul(y, 0.5));
    return total(y);
}
static tg_tensor products(tg_graph *g, int steps) {
    tg_tensor y = tg_mul(vector_input(g), weight(g)), x = y;
    for (int i = 0; i < steps; i++) y = tg_div(tg_mul(y, x), tg_add(tg_exp(y), 1));
    return total(y);
}
static tg_tensor attention(tg_graph *g, int steps) {
    tg_tensor y = square_input(g), w = matrix(g);
    for (int i = 0; i < steps; i++) {
        const tg_tensor q = tg_matmul(y, w);
        y = tg_add(y, tg_matmul(tg_softmax(tg_matmul(q, tg_swap_axes(y, 0, 1)), -1), y));
    }
    return total(y);
}

static const chain chains[] = {
    {"five-point stencil by roll", false, stencil},
    {"y + 0.01 sin y", false, sine},
    {"where(y < 1, y, y / 2)", false, halving},
    {"squarings", true, squaring},
    {"gated cells", true, gated},
    {"tanh(y + w)", true, tanh_plus},
    {"0.9999 y + w", true, decay},
    {"residual blocks", true, residual},
    {"layer norms", true, layer_norms},
    {"concat of slices", false, joins},
    {"slices of pads", false, pads},
    {"cumulative sums", true, running},
    {"gathers", true, gathers},
    {"scatters", true, scatters},
    {"x + x", true, doubling},
    {"x y - x", false, fibonacci},
    {"matmuls", true, matmuls},
    {"convolutions", true, convolutions},
    {"softmaxes", true, softmaxes},
    {"a recurrent layer", true, recurrence},
    {"a gated recurrent layer", true, gated_recurrence},
    {"overlapping slices of a parameter", true, windows},
    {"mod and where", false, remainders},
    {"minus the row's maximum", true, maxima},
    {"views of views", false, views},
    {"casts", false, casts},
    {"dropout", true, dropouts},
    {"second order", true, second_order},
    {"a capture each", false, captures},
    {"a parameter each", true, many_parameters},
    {"an input each", true, many_inputs},
    {"a sum of many", true, wide_sum},
    {"a sum of many inputs", true, wide_inputs},
    {"a stack of many inputs", true, wide_concat},
    {"many means of one tensor", true, fan_out},
    {"many heads", true, heads},
    {"many states", false, states},
    {"sorts", true, sorting},
    {"products and quotients", true, products},
    {"attention", true, attention},
};

/* ---------------------------------------------------------------- measuring */

typedef struct counts {
    tg_status status;
    double work, bytes, peak, seconds;
    int kernels, nodes;
} counts;

typedef struct meter {
    int64_t asked, live, peak;
} meter;

static void *meter_alloc(void *user, size_t size) {
    meter *m = user;
    void *block = aligned_alloc(64, (size + 63) / 64 * 64);
    m->asked += (int64_t)size;
    m->live += (int64_t)size;
    if (m->live > m->peak) m->peak = m->live;
    return block;
}

static void meter_release(void *user, void *block, size_t size) {
    meter *m = user;
    m->live -= (int64_t)size;
    free(block);
}

typedef struct chain_call {
    const chain *chain;
    int steps;
} chain_call;

static tg_tensor build_call(tg_graph *g, void *user) {
    const chain_call *call = user;
    return call->chain->build(g, call->steps);
}

/* The whole way to a program, as a model goes it, without a device. */
static tg_program *plan_chain(tg_context *ctx, const chain_call *call, tg_graph **graph, const tg_plan_options *options) {
    tg_layout layout;
    tg_arena arena;
    tg_graph *g = *graph = tg_trace_sized(ctx, build_call, (void *)(uintptr_t)call, 2);
    if (!g) return NULL;
    tg_arena_init(&arena, ctx);
    const tg_optimizer sgd = tg_sgd(.lr = tg_lr_constant(0.01));
    tg_status status = tg_layout_make(g, &arena, &layout);
    if (status == TG_OK && call->chain->trains) status = tg_append_training(g, g->result, &sgd, &layout, 1.0, NULL);
    if (status == TG_OK) status = tg_flatten_params(g, &layout);
    if (status == TG_OK) status = tg_pass_run(g, true);
    tg_arena_free(&arena);
    return status == TG_OK ? tg_program_make(g, options) : NULL;
}

static counts measure(const chain *c, int steps, const tg_plan_options *options) {
    meter m = {0, 0, 0};
    const tg_allocator allocator = {meter_alloc, meter_release, &m};
    tg_context *ctx = tg_context_create(&(tg_context_options){.allocator = &allocator});
    const chain_call call = {c, steps};
    tg_graph *graph;
    const clock_t begin = clock();
    tg_program *program = plan_chain(ctx, &call, &graph, options);
    counts out = {tg_error(ctx), (double)ctx->work, (double)m.asked, (double)m.peak, (double)(clock() - begin) / CLOCKS_PER_SEC, 0, 0};
    if (program) out.kernels = program->kernel_count, out.nodes = program->node_count;
    if (!program) print_message("%s, %d steps: %s\n", c->name, steps, tg_error_message(ctx));
    if (program) tg_program_destroy(program, ctx);
    if (graph) tg_graph_destroy(graph);
    tg_context_destroy(ctx);
    return out;
}

/* ---------------------------------------------------------------- tests */

static const tg_device_model cpu = {.max_arguments = 64, .max_binding_bytes = INT64_MAX};
static const tg_device_model webgpu = {
    .max_arguments = 8, .max_binding_bytes = 128 << 20, .in_words = true, .joins = true, .rates = &tg_h200_rates};
static const tg_plan_options of_cpu = {.device = &cpu, .captures = true};
static const tg_plan_options of_webgpu = {.device = &webgpu, .captures = true};

/* Searches look no further than some bound: below it the work may grow with the square, a little. Work for each step of a chain is held
 * under a number, too, so that a bound that is far too wide is seen. */
enum { MOST_WORK_OF_A_STEP = 60000 };

static void check_chain(const chain *c, const char *where, const tg_plan_options *options) {
    counts at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = measure(c, 100 << i, options);
        assert_int_equal(at[i].status, TG_OK);
        assert_true(at[i].kernels > 0);
        if (at[i].work > (double)MOST_WORK_OF_A_STEP * (100 << i))
            fail_msg("%s on %s: %.0f steps of searching for %d steps", c->name, where, at[i].work, 100 << i);
    }
    if (at[2].bytes > 6 * at[0].bytes || at[2].peak > 6 * at[0].peak)
        fail_msg("%s on %s: %.0f bytes of memory for 100 steps, %.0f for 400; at once %.0f, %.0f", c->name, where, at[0].bytes, at[2].bytes,
                 at[0].peak, at[2].peak);
    if (at[2].work > 12 * at[0].work && at[2].work > 2e6)
        fail_msg("%s on %s: %.0f steps of searching for 100 steps, %.0f for 400", c->name, where, at[0].work, at[2].work);
    if (at[2].seconds > 0.02 && at[2].seconds > 12 * at[0].seconds) /* what a clock says fails no test: it is told */
        printf("%s on %s: %.3f s for 100 steps, %.3f s for 400\n", c->name, where, at[0].seconds, at[2].seconds);
}

static void compiling_grows_with_the_chain(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(chains); i++) check_chain(&chains[i], "the CPU", &of_cpu);
}

static void compiling_for_a_gpu_grows_with_the_chain(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(chains); i++) check_chain(&chains[i], "WebGPU", &of_webgpu);
}

/* Training graphs of about 1000, 2000 .. 16,000 nodes: what compiling takes for each node, against 2000 (below that the bounds of
 * the searches are not reached). The ratios are printed; no test fails by the clock's. */
static void check_growth(const chain *c, int fewest, const char *where, const tg_plan_options *options) {
    enum { SIZES = 5 };
    counts at[SIZES];
    for (int i = 0; i < SIZES; i++) {
        at[i] = measure(c, fewest << i, options);
        assert_int_equal(at[i].status, TG_OK);
    }
    assert_in_range(at[0].nodes, 700, 1500);
    for (int i = 0; i < SIZES; i++) {
        const counts *two = &at[1];
        const double more = (double)at[i].nodes / two->nodes, work = at[i].work / two->work / more, bytes = at[i].bytes / two->bytes / more;
        print_message("%s on %s: %5d nodes, %4d kernels; for each node: searching x %.2f, memory x %.2f, time x %.2f\n", c->name, where,
                      at[i].nodes, at[i].kernels, work, bytes, at[i].seconds / two->seconds / more);
        if (work > 2.5 || bytes > 1.5) fail_msg("%s on %s: compiling grows faster than the graph", c->name, where);
    }
}

static void sixteen_thousand_nodes_compile_in_proportion(void **state) {
    (void)state;
    static const struct {
        chain c;
        int fewest;
    } table[] = {{{"a gated recurrent layer", true, gated_recurrence}, 16},
                 {{"attention", true, attention}, 16},
                 {{"residual blocks", true, residual}, 64}};
    for (int i = 0; i < SUPPORT_COUNT(table); i++) {
        check_growth(&table[i].c, table[i].fewest, "the CPU", &of_cpu);
        check_growth(&table[i].c, table[i].fewest, "WebGPU", &of_webgpu);
    }
}

/* Ten thousand nodes and more are no deeper in C than ten. */
static void long_chains_compile(void **state) {
    (void)state;
    static const struct {
        tg_tensor (*build)(tg_graph *g, int steps);
        bool trains;
        int steps;
    } table[] = {{tanh_plus, true, 20000}, {decay, true, 20000},  {halving, false, 20000}, {doubling, true, 20000},
                 {matmuls, true, 4000},    {views, false, 20000}, {wide_sum, true, 8000},  {fibonacci, false, 8000}};
    const int shorter = SUPPORT_SANITIZED ? 8 : 1;
    for (int i = 0; i < SUPPORT_COUNT(table); i++) {
        const int steps = table[i].steps / shorter;
        const chain c = {"a long chain", table[i].trains, table[i].build};
        const counts short_one = measure(&c, steps / 20, &of_cpu), long_one = measure(&c, steps, &of_cpu);
        assert_int_equal(long_one.status, TG_OK);
        if (long_one.peak > 40 * short_one.peak)
            fail_msg("chain %d: %.0f bytes, twenty times shorter %.0f", i, long_one.peak, short_one.peak);
    }
}

static tg_tensor build_long(tg_graph *g, void *user) { return tanh_plus(g, *(const int *)user); }

/* The same through a model: clone, training, executor, one step, all of its texts. */
static void a_long_chain_trains_and_prints(void **state) {
    (void)state;
    enum { STEPS = 5000 };
    int steps = STEPS;
    float x[WIDTH] = {0}, loss = -1, w[WIDTH];
    for (int i = 0; i < WIDTH; i++) w[i] = 0.25F * (float)(i + 1);
    tg_context *ctx = support_context();
    const tg_compile_options options = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.01)), .device = TG_DEVICE_CPU};
    tg_model *model = tg_compile(ctx, build_long, &steps, &options);
    support_assert_no_error(ctx);
    assert_int_equal(tg_param_upload(model, "w", w, WIDTH), TG_OK);
    assert_int_equal(tg_step(model, (tg_feed[]){tg_feed_f32("x", x, WIDTH)}, 1, &loss), TG_OK);
    double want = 0;
    for (int i = 0; i < WIDTH; i++) { /* the fixed point of y = tanh(y + w) */
        double y = 0;
        for (int k = 0; k < STEPS; k++) y = tanh(y + (double)w[i]);
        want += y;
    }
    assert_true(fabs((double)loss - want) < 1e-5 * want);
    for (int what = TG_TEXT_IR; what <= TG_TEXT_WGSL; what++) {
        const char *text = tg_model_text(model, (tg_text)what);
        assert_non_null(text);
        if (strlen(text) > (size_t)STEPS * 1600) fail_msg("text %d has %zu bytes", what, strlen(text));
    }
    tg_model_destroy(model);
    tg_context_destroy(ctx);
}

/* N01, N02, N04 of the cases: values, too. */
typedef struct value_case {
    tg_tensor (*build)(tg_graph *g, int steps);
    int steps;
} value_case;

static tg_tensor build_values(tg_graph *g, void *user) {
    const value_case *c = user;
    return c->build(g, c->steps);
}

static void shared_steps_have_the_values_of_the_reference(void **state) {
    (void)state;
    const value_case table[] = {{halving, 80},  {stencil, 12}, {stencil, 40}, {sine, 100},
                                {fibonacci, 6}, {joins, 60},   {views, 100},  {pads, 70}};
    for (int i = 0; i < SUPPORT_COUNT(table); i++) {
        const support_case c = {.build = build_values, .build_user = (void *)(uintptr_t)&table[i]};
        const support_options fused = {0};
        support_outputs want, got;
        char what[32];
        (void)snprintf(what, sizeof what, "case %d", i);
        if (!support_run_reference(&c, 1, &want)) fail_msg("%s: reference: %s", what, want.message);
        if (!support_run_home(&c, &fused, &got)) fail_msg("%s: %s", what, got.message);
        assert_true(support_outputs_equal(what, &got, &want, (support_tolerance){64, 1e-6, 2e-5}));
        support_outputs_free(&want);
        support_outputs_free(&got);
    }
}

/* An allocator with a limited number of bytes. */
static void *scarce_alloc(void *user, size_t size) {
    meter *m = user;
    return m->live + (int64_t)size > m->peak ? NULL : (m->live += (int64_t)size, aligned_alloc(64, (size + 63) / 64 * 64));
}

static void compiling_without_enough_memory_is_an_error(void **state) {
    (void)state;
    for (int64_t most = 1 << 16; most <= 1 << 25; most *= 2) {
        meter m = {0, 0, most};
        const tg_allocator allocator = {scarce_alloc, meter_release, &m};
        tg_context *ctx = tg_context_create(&(tg_context_options){.allocator = &allocator});
        if (ctx == NULL) continue;
        const chain c = {"tanh(y + w)", true, tanh_plus};
        const chain_call call = {&c, 2000};
        tg_graph *graph;
        tg_program *program = plan_chain(ctx, &call, &graph, &of_cpu);
        assert_int_equal(tg_error(ctx), program ? TG_OK : TG_ERROR_MEMORY);
        if (program) tg_program_destroy(program, ctx);
        if (graph) tg_graph_destroy(graph);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
    }
}

int main(void) {
    const int refused = support_home_refuses("test_scaling");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiling_grows_with_the_chain),
        cmocka_unit_test(compiling_for_a_gpu_grows_with_the_chain),
        cmocka_unit_test(sixteen_thousand_nodes_compile_in_proportion),
        cmocka_unit_test(long_chains_compile),
        cmocka_unit_test(a_long_chain_trains_and_prints),
        cmocka_unit_test(shared_steps_have_the_values_of_the_reference),
        cmocka_unit_test(compiling_without_enough_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
