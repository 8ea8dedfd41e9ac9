/* test_replay: the replay that an executor gets, made without a device: the offsets of everything,
 * sources without duplicates, limits and their messages, the layout of a data set, pacing, every
 * failing allocation. */
#include "support.h"

#include "emit/emit.h"
#include "optim/optim.h"
#include "pass/pass.h"
#include "run/replay.h"
#include "trace/trace.h"

#include <string.h>

#define MOST INT64_MAX

/* ---------------------------------------------------------------- programs */

/* x and mask are read; idle is not; y is, by one kernel only. */
static tg_tensor build_mixed(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(40, 3), TG_F32), mask = tg_input(g, "mask", TG_SHAPE(40, 3), TG_BOOL);
    (void)tg_input(g, "idle", TG_SHAPE(200), TG_F32);
    const tg_tensor y = tg_input(g, "y", TG_SHAPE(3), TG_F32), w = tg_state(g, "w", TG_SHAPE(3), TG_F32, 1);
    const tg_tensor kept = tg_where(mask, tg_mul(x, w), 0.5);
    tg_capture("rows", tg_sum(kept, TG_AXES(1)));
    return tg_mean(tg_mul(tg_exp(kept), y), TG_ALL);
}
/* The same product three times, of different data. */
static tg_tensor build_products(tg_graph *g, void *user) {
    const tg_tensor b = tg_input(g, "b", TG_SHAPE(32, 16), TG_F32);
    static const char *const names[] = {"a0", "a1", "a2"}, *const kept[] = {"p0", "p1", "p2"};
    tg_tensor last = b;
    (void)user;
    for (int i = 0; i < 3; i++) last = tg_capture(kept[i], tg_matmul(tg_input(g, names[i], TG_SHAPE(24, 32), TG_F32), b));
    return tg_sum(last, TG_ALL);
}
static tg_tensor build_long_sum(tg_graph *g, void *user) { /* in parts, whose sums lie in scratch */
    (void)user;
    return tg_sum(tg_square(tg_input(g, "long", TG_SHAPE(1 << 18), TG_F32)), TG_ALL);
}
static tg_tensor build_nothing_fed(tg_graph *g, void *user) {
    (void)user;
    return tg_sum(tg_square(tg_state(g, "w", TG_SHAPE(70), TG_F32, 1)), TG_ALL);
}

typedef struct made {
    tg_context *ctx;
    tg_graph *graph;
    tg_program *program;
    tg_replay replay;
} made;

static const int32_t slots[] = {5, 3, 9, 12, 7, 8, 11, 14}; /* of the device, for states 0, 1, .. of a program */

static tg_replay_limits limits_of(int64_t binding, int64_t buffer) { return (tg_replay_limits){&tg_device_guaranteed, binding, buffer}; }

static made make_program(tg_build_fn build, bool joins) {
    made m = {.ctx = support_context()};
    const support_case c = {build, NULL, NULL, NULL};
    tg_device_model device = tg_device_guaranteed;
    const tg_plan_options options = {.device = &device, .captures = true};
    device.joins = joins;
    m.graph = support_trace(m.ctx, &c);
    assert_non_null(m.graph);
    assert_int_equal(tg_pass_run(m.graph, true), TG_OK);
    m.program = tg_program_make(m.graph, &options);
    assert_non_null(m.program);
    assert_true(m.program->state_count <= SUPPORT_COUNT(slots));
    return m;
}
static made make(tg_build_fn build, bool joins) {
    made m = make_program(build, joins);
    const tg_replay_limits limits = limits_of(MOST, MOST);
    if (tg_replay_make(m.ctx, m.program, slots, &limits, &m.replay) != TG_OK) fail_msg("%s", tg_error_message(m.ctx));
    return m;
}
static void end(made *m) {
    tg_replay_free(&m->replay);
    tg_program_destroy(m->program, m->ctx);
    tg_graph_destroy(m->graph);
    tg_context_destroy(m->ctx);
}
static int32_t input_of(const made *m, const char *name) {
    for (int32_t i = 0; i < m->program->input_count; i++)
        if (strcmp(m->program->inputs[i].name, name) == 0) return i;
    fail_msg("no input %s", name);
    return -1;
}
static const tg_build_fn programs[] = {build_mixed, build_products, build_long_sum, build_nothing_fed};

/* ---------------------------------------------------------------- layout */

static int64_t bytes_of(const made *m, int32_t block) {
    if (block >= 0 && block < TG_REPLAY_OWN) return m->replay.bytes[block];
    for (int32_t s = 0; s < m->program->state_count; s++)
        if (block == TG_REPLAY_STATES + slots[s]) return tg_shape_count(m->program->states[s].shape) * 4;
    return -1;
}
/* Every binding lies in a block that is made, and the kernels bind all of what the program has there. */
static void bindings_lie_in_their_blocks(void **state) {
    (void)state;
    int32_t seen[TG_REPLAY_STATES + 1] = {0};
    for (int p = 0; p < 2 * SUPPORT_COUNT(programs); p++) {
        made m = make(programs[p / 2], p % 2 == 0);
        assert_true(m.replay.stage_count > 0);
        for (int32_t s = 0; s < m.replay.stage_count; s++) {
            const tg_replay_stage *stage = &m.replay.stages[s];
            assert_true(stage->binding_count == m.replay.sources[stage->source].binding_count);
            assert_true(stage->groups[0] > 0 && stage->groups[1] > 0 && stage->groups[2] > 0);
            for (int32_t b = 0; b < stage->binding_count; b++) {
                const tg_replay_slice *slice = &stage->slices[b];
                assert_true(slice->offset >= 0 && slice->bytes > 0 && slice->offset % TG_REPLAY_ALIGN == 0 && slice->bytes % 4 == 0);
                assert_true(slice->offset + slice->bytes <= bytes_of(&m, slice->block));
                seen[slice->block < TG_REPLAY_STATES ? slice->block : TG_REPLAY_STATES]++;
                if (stage->bindings[b] < 0) continue;
                const tg_buffer *buffer = &m.program->buffers[stage->bindings[b]];
                assert_int_equal(slice->bytes, buffer->count * 4);
                assert_int_equal(slice->offset, buffer->offset);
            }
        }
        end(&m);
    }
    for (int32_t b = TG_REPLAY_WORKSPACE; b <= TG_REPLAY_INPUTS; b++) assert_true(seen[b] > 0);
    assert_true(seen[TG_REPLAY_STATES] > 0);
}
static void inputs_that_a_kernel_reads_are_sent(void **state) {
    (void)state;
    made m = make(build_mixed, true), none = make(build_nothing_fed, true);
    const int32_t x = input_of(&m, "x"), mask = input_of(&m, "mask"), idle = input_of(&m, "idle"), y = input_of(&m, "y");
    assert_int_equal(m.replay.input_offset[idle], -1);
    assert_int_equal(m.replay.input_offset[x], 0);
    assert_int_equal(m.replay.input_offset[mask], 512); /* after 40 x 3 words, at the next multiple of 256 */
    assert_int_equal(m.replay.input_offset[y], 512 + 512 + 1024);
    assert_int_equal(m.replay.bytes[TG_REPLAY_INPUTS], 512 + 512 + 1024 + 256);
    assert_int_equal(none.replay.bytes[TG_REPLAY_INPUTS], 0);
    end(&m);
    end(&none);
}
static void outputs_have_places_to_be_read_from(void **state) {
    (void)state;
    made m = make(build_mixed, true);
    assert_int_equal(m.program->output_count, 2);
    assert_int_equal(m.replay.readback_offset[0], 0);
    assert_int_equal(m.replay.readback_offset[1], 16);
    assert_int_equal(m.replay.readback_bytes, 16 + 160);
    for (int32_t i = 0; i < 2; i++) {
        const tg_replay_slice slice = tg_replay_output(&m.replay, i);
        assert_int_equal(slice.bytes, i == 0 ? 4 : 160);
        assert_int_equal(slice.block, TG_REPLAY_WORKSPACE);
        assert_int_equal(slice.offset, m.program->buffers[m.program->outputs[i].buffer].offset);
    }
    end(&m);
}

/* ---------------------------------------------------------------- sources */

static void equal_sources_are_one(void **state) {
    (void)state;
    made m = make(build_products, false);
    assert_true(m.replay.source_count <= m.replay.stage_count - 2);
    int32_t next = 0;
    for (int32_t s = 0; s < m.replay.stage_count; s++) { /* numbered as they are needed */
        assert_true(m.replay.stages[s].source <= next);
        if (m.replay.stages[s].source < next) continue;
        assert_string_equal(m.replay.sources[next].label, m.replay.stages[s].label);
        next++;
    }
    assert_int_equal(next, m.replay.source_count);
    for (int32_t a = 0; a < m.replay.source_count; a++) {
        assert_int_equal(m.replay.sources[a].length, strlen(m.replay.sources[a].text));
        for (int32_t b = 0; b < a; b++) assert_string_not_equal(m.replay.sources[a].text, m.replay.sources[b].text);
    }
    tg_replay_drop_texts(&m.replay);
    for (int32_t s = 0; s < m.replay.source_count; s++) assert_null(m.replay.sources[s].text);
    end(&m);
}

/* Training a transformer of so many blocks. Biases lie far from their weights in the state. */
static tg_tensor build_blocks(tg_graph *g, void *user) {
    const int blocks = *(const int *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 32, 64), TG_F32);
    for (int i = 0; i < blocks; i++) {
        tg_scope_pushf(g, "h.%d", i);
        const tg_attention a = tg_nn_attention(g, "attention", 64, 4, .causal = true);
        x = tg_add(x, tg_nn_attention_fwd(a, tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "n1", 64), x)));
        const tg_linear up = tg_nn_linear(g, "up", 64, 128), down = tg_nn_linear(g, "down", 128, 64);
        x = tg_add(x, tg_nn_linear_fwd(down, tg_gelu_tanh(tg_nn_linear_fwd(up, tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, "n2", 64), x)))));
        tg_scope_pop(g);
    }
    return tg_mean(tg_square(x), TG_ALL);
}
/* Training a recurrent layer, whose steps are one chain. */
static tg_tensor build_steps(tg_graph *g, void *user) {
    const int steps = *(const int *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(32, steps, 6), TG_F32), y = tg_input(g, "y", TG_SHAPE(32, steps, 8), TG_F32);
    return tg_nn_mse(tg_nn_gru_fwd(tg_nn_gru(g, "gru", 6, 8), x), y);
}
typedef struct printed_blocks {
    int stages, sources;
    size_t characters;
} printed_blocks;
static printed_blocks print_trained(tg_build_fn build, int size, bool joins) {
    made m = {.ctx = support_context()};
    tg_layout layout;
    tg_arena arena;
    tg_device_model device = tg_device_guaranteed;
    const tg_plan_options options = {.device = &device};
    const tg_optimizer adam = tg_adam(.lr = tg_lr_constant(0.01));
    const tg_replay_limits limits = limits_of(MOST, MOST);
    device.joins = joins;
    tg_arena_init(&arena, m.ctx);
    m.graph = tg_trace_sized(m.ctx, build, &size, 2);
    assert_non_null(m.graph);
    assert_int_equal(tg_layout_make(m.graph, &arena, &layout), TG_OK);
    assert_int_equal(tg_append_training(m.graph, m.graph->result, &adam, &layout, 1.0, NULL), TG_OK);
    assert_int_equal(tg_flatten_params(m.graph, &layout), TG_OK);
    assert_int_equal(tg_pass_run(m.graph, true), TG_OK);
    m.program = tg_program_make(m.graph, &options);
    assert_non_null(m.program);
    assert_int_equal(tg_program_check(m.program, m.ctx), TG_OK);
    assert_true(m.program->state_count <= SUPPORT_COUNT(slots));
    assert_int_equal(tg_replay_make(m.ctx, m.program, slots, &limits, &m.replay), TG_OK);
    printed_blocks out = {m.replay.stage_count, m.replay.source_count, 0};
    for (int32_t s = 0; s < m.replay.source_count; s++) out.characters += m.replay.sources[s].length;
    tg_arena_free(&arena);
    end(&m);
    return out;
}
/* Each kernel binds the ranges of the states that it touches, so more blocks are more dispatches of the same kernels. What differs
 * is the length of the states that the optimiser updates. */
static void equal_blocks_share_their_kernels(void **state) {
    (void)state;
    const printed_blocks few = print_trained(build_blocks, 3, false), many = print_trained(build_blocks, 9, false);
    print_message("%d and %d dispatches, %d and %d sources of %zu and %zu characters\n", few.stages, many.stages, few.sources, many.sources,
                  few.characters, many.characters);
    assert_true(many.stages > few.stages + 6 * 20);
    assert_int_equal(many.sources, few.sources);
    assert_true(many.characters < few.characters + 1000);
}
/* In a chain the steps of a recurrence are a loop, forward and back, over kernels that are printed once. */
static void steps_of_a_chain_are_a_loop(void **state) {
    (void)state;
    const printed_blocks few = print_trained(build_steps, 10, true), many = print_trained(build_steps, 13, true);
    print_message("10 and 13 steps: %zu and %zu characters\n", few.characters, many.characters);
    assert_int_equal(many.stages, few.stages);
    assert_true(many.characters < few.characters + 500);
}

/* ---------------------------------------------------------------- limits */

static tg_status try_limits(made *m, int64_t binding, int64_t buffer) {
    const tg_replay_limits limits = limits_of(binding, buffer);
    tg_replay replay;
    tg_clear_error(m->ctx);
    const tg_status status = tg_replay_make(m->ctx, m->program, slots, &limits, &replay);
    tg_replay_free(&replay);
    return status;
}
static void expect_message(const made *m, const char *const *parts, int count) {
    for (int i = 0; i < count; i++)
        if (strstr(tg_error_message(m->ctx), parts[i]) == NULL) fail_msg("no \"%s\" in: %s", parts[i], tg_error_message(m->ctx));
}
/* A limit is met by what is as large, and the message has the name of what is larger by a word. */
static void a_binding_that_is_too_large_is_named(void **state) {
    (void)state;
    for (int p = 0; p < 2 * SUPPORT_COUNT(programs); p++) {
        made m = make(programs[p / 2], p % 2 == 0);
        int64_t most = 0;
        for (int32_t s = 0; s < m.replay.stage_count; s++)
            for (int32_t b = 0; b < m.replay.stages[s].binding_count; b++)
                if (m.replay.stages[s].slices[b].bytes > most) most = m.replay.stages[s].slices[b].bytes;
        char needs[64], limit[64];
        snprintf(needs, sizeof needs, "needs %lld bytes", (long long)most);
        snprintf(limit, sizeof limit, "maxStorageBufferBindingSize of %lld", (long long)most - 4);
        const char *const said[] = {"webgpu: ", " (kernel ", needs, limit};
        assert_int_equal(try_limits(&m, most, MOST), TG_OK);
        assert_int_equal(try_limits(&m, most - 4, MOST), TG_ERROR_LIMIT);
        expect_message(&m, said, SUPPORT_COUNT(said));
        end(&m);
    }
}
static void messages_say_what_is_too_large(void **state) {
    (void)state;
    made sum = make_program(build_long_sum, false), mixed = make_program(build_mixed, true);
    static const char *const fed[] = {"webgpu: long (kernel "};
    static const char *const block[] = {"webgpu: the workspace needs ", "maxBufferSize of 64"};
    assert_int_equal(try_limits(&sum, 4 << 16, MOST), TG_ERROR_LIMIT);
    expect_message(&sum, fed, 1);
    assert_int_equal(try_limits(&mixed, MOST, 64), TG_ERROR_LIMIT);
    expect_message(&mixed, block, 2);
    end(&sum);
    end(&mixed);
}
static void a_state_that_is_too_large_is_named(void **state) {
    (void)state;
    char what[TG_REPLAY_NAME];
    tg_context *ctx = support_context();
    assert_int_equal(tg_replay_check_buffer(ctx, 400, tg_replay_state_name(what, "W", 100), 400), TG_OK);
    assert_int_equal(tg_replay_check_buffer(ctx, 399, what, 400), TG_ERROR_LIMIT);
    assert_string_equal(tg_error_message(ctx), "webgpu: W, 100 elements, needs 400 bytes, over this device's maxBufferSize of 399");
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- data sets */

static tg_status lay_out(made *m, int64_t binding, int64_t rows, tg_replay_feeder *out) {
    const tg_replay_limits limits = limits_of(binding, MOST);
    const tg_feeder_array arrays[] = {{input_of(m, "idle"), "", 5}, {input_of(m, "x"), "", 3}, {input_of(m, "mask"), "", 3}};
    const tg_feeder_options options = {arrays, 3, rows, 40};
    tg_clear_error(m->ctx);
    return tg_replay_make_feeder(m->ctx, &m->replay, &options, &limits, out);
}
static void a_data_set_is_laid_out(void **state) {
    (void)state;
    made m = make(build_mixed, true);
    tg_replay_feeder f;
    assert_int_equal(lay_out(&m, MOST, 100, &f), TG_OK);
    assert_int_equal(f.arrays[0].from, -1);
    assert_int_equal(f.arrays[0].count, 500);
    assert_int_equal(f.arrays[1].from, 0);
    assert_int_equal(f.arrays[2].from, 1280); /* after 300 words */
    assert_int_equal(f.arrays[2].count, 300);
    assert_int_equal(f.bytes[TG_REPLAY_DATA], 2560);
    assert_int_equal(f.bytes[TG_REPLAY_HISTORY], TG_MOST_STEPS * 4);
    assert_true(f.given[input_of(&m, "idle")] && f.given[input_of(&m, "x")] && !f.given[input_of(&m, "y")]);
    assert_int_equal(f.draw.binding_count, TG_DRAW_BINDINGS);
    assert_non_null(strstr(f.draw.text, "inputs[128u + at] = data[320u + ")); /* the mask, in words */
    for (int turn = 0; turn < 2; turn++) {
        const tg_replay_slice *now = &f.turns[turn][TG_DRAW_NOW], *after = &f.turns[1 - turn][TG_DRAW_AFTER];
        assert_int_equal(now->block, TG_REPLAY_CONTROL);
        assert_int_equal(now->offset, turn * TG_REPLAY_ALIGN);
        assert_int_equal(now->offset, after->offset);
        assert_int_equal(f.turns[turn][TG_DRAW_INPUTS].bytes, m.replay.bytes[TG_REPLAY_INPUTS]);
        assert_int_equal(f.turns[turn][TG_DRAW_LOSS].offset, tg_replay_output(&m.replay, 0).offset);
        assert_int_equal(f.turns[turn][TG_DRAW_LOSS].bytes, 4);
    }
    tg_replay_free_feeder(&f);
    end(&m);
}
static void a_data_set_that_is_too_large_is_named(void **state) {
    (void)state;
    made m = make(build_mixed, true);
    tg_replay_feeder f;
    static const char *const data[] = {"webgpu: the data set needs 24064 bytes, over", "maxStorageBufferBindingSize of 24063"};
    static const char *const batch[] = {"webgpu: a batch with the inputs beside it needs 2304 bytes, over"};
    assert_int_equal(lay_out(&m, 24064, 1000, &f), TG_OK);
    tg_replay_free_feeder(&f);
    assert_int_equal(lay_out(&m, 24063, 1000, &f), TG_ERROR_LIMIT);
    expect_message(&m, data, 2);
    tg_replay_free_feeder(&f);
    assert_int_equal(lay_out(&m, 2303, 10, &f), TG_ERROR_LIMIT);
    expect_message(&m, batch, 1);
    tg_replay_free_feeder(&f);
    assert_int_equal(lay_out(&m, INT64_C(1) << 50, INT64_C(1) << 32, &f), TG_ERROR_LIMIT); /* words are counted in 32 bits */
    tg_replay_free_feeder(&f);
    end(&m);
}

/* ---------------------------------------------------------------- pacing */

static int pieces(const tg_pace *pace) { /* and each ends after it begins, the last one with the run */
    int count = 0;
    for (int32_t begin = 0, to; begin < pace->stages; begin = to, count++) {
        to = tg_pace_end(pace, begin);
        assert_true(to > begin && to - begin <= pace->per_submission);
    }
    return count;
}
static void a_run_that_takes_long_is_cut(void **state) {
    (void)state;
    tg_pace pace = tg_pace_make(100);
    assert_int_equal(pieces(&pace), 1);
    tg_pace_took(&pace, 100, 1000, 1000); /* as long as allowed */
    assert_int_equal(pieces(&pace), 1);
    tg_pace_took(&pace, 100, 4000, 1000);
    assert_int_equal(pieces(&pace), 4);
    tg_pace_took(&pace, 25, 300, 1000); /* neither slow nor fast */
    assert_int_equal(pieces(&pace), 4);
    tg_pace_took(&pace, 10, 0, 1000); /* the last piece, a shorter one, says nothing of the others */
    assert_int_equal(pieces(&pace), 4);
    for (int i = 0; i < 2; i++) tg_pace_took(&pace, pace.per_submission, 249, 1000);
    assert_int_equal(pieces(&pace), 1);
    tg_pace_took(&pace, 100, 1050, 1000); /* a little too long: the first run of a shader, perhaps */
    assert_int_equal(pieces(&pace), 2);
    tg_pace_took(&pace, 95, 480, 1000); /* all would take 505 */
    assert_int_equal(pieces(&pace), 2);
    tg_pace_took(&pace, 95, 470, 1000); /* 495 */
    assert_int_equal(pieces(&pace), 1);
    tg_pace_took(&pace, 100, 1000000, 1); /* no shorter than a dispatch */
    assert_int_equal(pieces(&pace), 100);
    tg_pace_took(&pace, 1, 1000000, 1);
    assert_int_equal(pieces(&pace), 100);
}
static void submissions_of_steps_grow(void **state) {
    (void)state;
    tg_pace pace = tg_pace_make(9);
    assert_int_equal(tg_pace_runs(&pace, 1000, false), 1);
    assert_int_equal(tg_pace_runs(&pace, 1000, true), 1000);
    assert_int_equal(tg_pace_runs(&pace, 100000, true), 65536 / 10);
    tg_pace_ran(&pace, 1, 9, 1000); /* 10 ns a step: 100 would do, 16 times as many as before are allowed */
    assert_int_equal(tg_pace_runs(&pace, 1000, false), 16);
    assert_int_equal(tg_pace_runs(&pace, 5, false), 5);
    tg_pace_ran(&pace, 16, 144, 1000);
    assert_int_equal(tg_pace_runs(&pace, 1000, false), 100);
    tg_pace_ran(&pace, 100, 100000000, 1000); /* one at least */
    assert_int_equal(tg_pace_runs(&pace, 1000, false), 1);
    tg_pace_took(&pace, 9, 1000, 10); /* a run that is cut is alone */
    assert_int_equal(tg_pace_runs(&pace, 1000, true), 1);
}

/* ---------------------------------------------------------------- memory */

static void every_failing_allocation_is_an_error(void **state) {
    (void)state;
    made m = make_program(build_mixed, true);
    const tg_replay_limits limits = limits_of(MOST, MOST);
    int64_t failed = 0;
    for (bool done = false; !done; failed++) {
        support_allocator counts = {0};
        tg_context *ctx = support_context_counting(&counts);
        tg_replay replay;
        const tg_feeder_array array = {input_of(&m, "x"), "", 3};
        const tg_feeder_options options = {&array, 1, 100, 40};
        tg_replay_feeder feeder = {.given = NULL};
        counts.fail_at = counts.calls + failed + 1;
        tg_status status = tg_replay_make(ctx, m.program, slots, &limits, &replay);
        if (status == TG_OK) status = tg_replay_make_feeder(ctx, &replay, &options, &limits, &feeder);
        done = status == TG_OK;
        assert_true(done || status == TG_ERROR_MEMORY);
        tg_replay_free_feeder(&feeder);
        tg_replay_free(&replay);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
        assert_false(counts.size_mismatch);
    }
    assert_true(failed > 10);
    end(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bindings_lie_in_their_blocks),
        cmocka_unit_test(inputs_that_a_kernel_reads_are_sent),
        cmocka_unit_test(outputs_have_places_to_be_read_from),
        cmocka_unit_test(equal_sources_are_one),
        cmocka_unit_test(equal_blocks_share_their_kernels),
        cmocka_unit_test(steps_of_a_chain_are_a_loop),
        cmocka_unit_test(a_binding_that_is_too_large_is_named),
        cmocka_unit_test(messages_say_what_is_too_large),
        cmocka_unit_test(a_state_that_is_too_large_is_named),
        cmocka_unit_test(a_data_set_is_laid_out),
        cmocka_unit_test(a_data_set_that_is_too_large_is_named),
        cmocka_unit_test(a_run_that_takes_long_is_cut),
        cmocka_unit_test(submissions_of_steps_grow),
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
