/* Model life: batches of any size in one model, the sizes that are kept and freed, what all of them share; outputs and captures of every
 * dtype; frozen parts. A model of any size is compared, bit for bit, with models made for one size each, whose states are moved by hand. */
#include "fixtures.h"

#include "io/safetensors.h"
#include "run/model.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- a model of any size */

enum { WIDE = 3, MOST = 40 };

typedef struct any_model {
    int64_t size; /* TG_ANY or a fixed one */
    int builds;
} any_model;

static tg_tensor any_output(tg_graph *g, any_model *m) {
    m->builds++;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(m->size, WIDE), TG_F32);
    tg_linear up = tg_nn_linear(g, "up", WIDE, 8), down = tg_nn_linear(g, "down", 8, 2);
    tg_tensor h = tg_capture("hidden", tg_relu(tg_nn_linear_fwd(up, x)));
    return tg_nn_linear_fwd(down, h);
}

/* Random numbers, a state that counts what it has seen, labels of which some rows are masked. */
static tg_tensor any_loss(tg_graph *g, void *user) {
    any_model *m = user;
    tg_tensor out = tg_dropout(any_output(g, m), 0.25);
    tg_tensor labels = tg_input(g, "labels", TG_SHAPE(m->size), TG_I32), seen = tg_state(g, "seen", TG_SCALAR, TG_F32, 0.0);
    tg_writeback(seen, tg_add(seen, (double)tg_tensor_shape(labels).dim[0]));
    return tg_mean(tg_nn_cross_entropy_last(out, labels), TG_ALL);
}

static tg_tensor any_forward(tg_graph *g, void *user) { return any_output(g, user); }

typedef struct batch {
    float x[MOST * WIDE];
    int32_t labels[MOST];
    tg_feed feeds[2];
} batch;

static const tg_feed *batch_of(batch *b, int64_t size, uint64_t seed) {
    support_random r = support_random_make(seed);
    for (int i = 0; i < size * WIDE; i++) b->x[i] = support_random_float(&r, -1, 1);
    for (int i = 0; i < size; i++) b->labels[i] = (int32_t)support_random_below(&r, 2);
    b->feeds[0] = tg_feed_f32("x", b->x, size * WIDE);
    b->feeds[1] = tg_feed_i32("labels", b->labels, size);
    return b->feeds;
}

/* Every state of `from` that `to` has, by its name, and the step counter. */
static void move_states(const tg_model *from, tg_model *to) {
    tg_model_enter(from, TG_SITE_NONE);
    for (int32_t slot = 0; slot < from->family->states.count; slot++) {
        const tg_family_state *state = &from->family->states.items[slot];
        const int32_t there = tg_family_find(to->family, state->name);
        if (there < 0) continue;
        void *data = malloc((size_t)state->count * 4);
        ok(from->ctx, tg_family_read(from->family, slot, 0, data, state->count));
        ok(to->ctx, tg_family_write(to->family, there, 0, data, state->count));
        free(data);
    }
    to->family->steps = from->family->steps;
    to->family->has_gradients = from->family->has_gradients;
}

static void same_parameters(tg_model *a, tg_model *b) {
    for (int i = 0; i < tg_model_param_count(a); i++) {
        const char *name = tg_model_param_name(a, i);
        float one[64] = {0}, other[64] = {0};
        tg_shape shape;
        ok(a->ctx, tg_model_param_shape(a, name, &shape));
        const int64_t count = tg_shape_count(shape);
        ok(a->ctx, tg_param_download(a, name, one, count));
        ok(a->ctx, tg_param_download(b, name, other, count));
        assert_memory_equal(one, other, (size_t)count * sizeof *one);
        if (tg_model_step_count(a) == 0) continue;
        ok(a->ctx, tg_param_grad_download(a, name, one, count));
        ok(a->ctx, tg_param_grad_download(b, name, other, count));
        assert_memory_equal(one, other, (size_t)count * sizeof *one);
    }
}

static const int64_t visits[] = {32, 7, 1, 2, 40, 32};

/* Steps at one size after another: as if each were the only one. */
static void steps_of_all_sizes_are_those_of_models_of_one_size(void **state) {
    fixture *f = *state;
    const tg_optimizer optimizers[] = {
        tg_adamw(.lr = tg_lr_linear_decay(0.05, 0.01, 20), .clip_norm = 1.0, .accumulate = 2, .average = 0.9),
        tg_muon(.lr = tg_lr_constant(0.02)), tg_sgd(.lr = tg_lr_constant(0.1), .momentum = 0.9)};
    const int count = support_home_now() == SUPPORT_CPU ? SUPPORT_COUNT(optimizers) : 1; /* there, each step compiles shaders */
    for (int o = 0; o < count; o++) {
        any_model any = {TG_ANY, 0};
        tg_compile_options options = options_with(optimizers[o]);
        options.any_size = 32;
        tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options)), *before = model;
        for (int t = 0; t < SUPPORT_COUNT(visits); t++) {
            any_model one = {visits[t], 0};
            batch b;
            float loss = 0, want = 0, value = 0, wanted = 0;
            const tg_feed *feeds = batch_of(&b, visits[t], (uint64_t)t + 1);
            tg_model *fixed = must(f->ctx, tg_compile(f->ctx, any_loss, &one, &options));
            ok(f->ctx, tg_run(fixed, feeds, 2, &wanted, 1)); /* makes the random state of runs */
            if (t == 0) ok(f->ctx, tg_run(model, feeds, 2, &value, 1));
            move_states(before, fixed);
            if (before != model) tg_model_destroy(before);
            ok(f->ctx, tg_step(fixed, feeds, 2, &want));
            ok(f->ctx, tg_step(model, feeds, 2, &loss));
            assert_memory_equal(&loss, &want, sizeof loss);
            same_parameters(model, fixed);
            ok(f->ctx, tg_run(fixed, feeds, 2, &wanted, 1));
            ok(f->ctx, tg_run(model, feeds, 2, &value, 1));
            assert_memory_equal(&value, &wanted, sizeof value);
            if (t == 2) ok(f->ctx, tg_model_set_lr(model, tg_lr_constant(0.03)));
            if (t == 2) ok(f->ctx, tg_model_set_lr(fixed, tg_lr_constant(0.03)));
            before = fixed;
        }
        assert_int_equal(tg_model_step_count(model), SUPPORT_COUNT(visits));
        assert_int_equal(any.builds, 5);
        tg_model_destroy(before);
        tg_model_destroy(model);
    }
}

static void runs_give_the_rows_they_are_fed(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0}, fixed_any = {7, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1), .average = 0.5));
    tg_model *trained = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    tg_model *sibling = must(f->ctx, tg_compile_sibling(trained, any_forward, &any));
    tg_model *average = must(f->ctx, tg_compile_average(trained, any_forward, &any));
    tg_model *fixed = must(f->ctx, tg_compile_sibling(trained, any_forward, &fixed_any));
    tg_model *fixed_average = must(f->ctx, tg_compile_average(trained, any_forward, &fixed_any));
    float out[MOST * 2], want[MOST * 2];
    batch b;
    assert_int_equal(tg_model_output_shape(sibling).dim[0], 2);
    for (int t = 0; t < 3; t++) {
        ok(f->ctx, tg_step(trained, batch_of(&b, 5 + t, 3), 2, NULL));
        batch_of(&b, 7, 4);
        ok(f->ctx, tg_run(fixed, b.feeds, 1, want, 14));
        ok(f->ctx, tg_run(sibling, b.feeds, 1, out, 14));
        assert_memory_equal(out, want, 14 * sizeof *out);
        ok(f->ctx, tg_run(fixed_average, b.feeds, 1, want, 14));
        ok(f->ctx, tg_run(average, b.feeds, 1, out, 14));
        assert_memory_equal(out, want, 14 * sizeof *out);
    }
    assert_true(tg_shape_equal(tg_model_output_shape(sibling), TG_SHAPE(7, 2)));
    expect_error(f->ctx, tg_run(sibling, b.feeds, 1, out, 13), TG_ERROR_ARGUMENT,
                 "the output [7, 2] has 14 elements, there is room for 13");
    for (int64_t size = 1; size < 12; size++) { /* more than are kept; capacity and captures are of the call's size */
        tg_captures *captures = NULL;
        tg_shape shape;
        batch_of(&b, size, 9);
        ok(f->ctx, tg_run_captures(sibling, b.feeds, 1, out, 2 * size, &captures));
        assert_non_null(tg_captures_get(captures, "hidden", &shape, NULL));
        assert_true(tg_shape_equal(shape, TG_SHAPE(size, 8)));
        tg_captures_destroy(captures);
        assert_int_equal(tg_model_output_shape(sibling).dim[0], size);
    }
    tg_model_destroy(sibling); /* its sizes with it, the family goes on */
    ok(f->ctx, tg_run(average, b.feeds, 1, out, 2 * MOST));
    ok(f->ctx, tg_step(trained, batch_of(&b, 3, 3), 2, NULL));
    tg_model_destroy(trained);
}

/* ---------------------------------------------------------------- what is refused */

static void a_refused_size_compiles_and_changes_nothing(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    batch b;
    float loss = 0;
    batch_of(&b, 9, 1);
    tg_feed wrong[3] = {b.feeds[0], b.feeds[1], b.feeds[0]};
    wrong[1].count = 8;
    expect_error(f->ctx, tg_step(model, wrong, 2, &loss), TG_ERROR_SHAPE,
                 "step: input x[?, 3] is fed with a size of 9, input labels[?] with 8");
    wrong[1] = b.feeds[1];
    wrong[0].count = 26;
    expect_error(f->ctx, tg_step(model, wrong, 2, &loss), TG_ERROR_SHAPE, "step: input x[?, 3] takes a multiple of 3 elements, fed 26");
    wrong[0].count = 0;
    expect_error(f->ctx, tg_run(model, wrong, 2, &loss, 1), TG_ERROR_SHAPE, "run: input x[?, 3] takes a multiple of 3 elements, fed 0");
    for (int64_t huge = (int64_t)1 << 32; huge > 0 && huge < INT64_MAX / 2; huge *= 2) {
        wrong[0].count = 3 * (huge / 3);
        expect_error(f->ctx, tg_run(model, wrong, 2, &loss, 1), TG_ERROR_LIMIT, "elements, over the limit of 2^31 - 1");
    }
    wrong[0].count = -3;
    expect_error(f->ctx, tg_run(model, wrong, 2, &loss, 1), TG_ERROR_SHAPE, "fed -3");
    wrong[0] = b.feeds[0];
    wrong[0].data = NULL;
    expect_error(f->ctx, tg_step(model, wrong, 2, &loss), TG_ERROR_ARGUMENT, "step: input x is fed from NULL");
    wrong[0] = b.feeds[0];
    expect_error(f->ctx, tg_step(model, wrong, 3, &loss), TG_ERROR_DUPLICATE, "step: input x is fed twice");
    expect_error(f->ctx, tg_step(model, wrong, 1, &loss), TG_ERROR_NOT_FOUND, "step: inputs not fed: labels");
    expect_error(f->ctx, tg_step(model, NULL, 0, &loss), TG_ERROR_NOT_FOUND, "step: inputs not fed: x, labels");
    expect_error(f->ctx, tg_step(model, NULL, 2, &loss), TG_ERROR_ARGUMENT, "step: 2 feeds at NULL");
    wrong[1].name = "label";
    expect_error(f->ctx, tg_step(model, wrong, 2, &loss), TG_ERROR_NOT_FOUND, "step: unknown input label");
    wrong[1] = tg_feed_f32("labels", b.x, 9);
    expect_error(f->ctx, tg_step(model, wrong, 2, &loss), TG_ERROR_DTYPE, "step: input labels is i32, fed as f32");
    assert_int_equal(any.builds, 1);
    b.labels[4] = 5; /* the size is fine: what is fed is not */
    expect_error(f->ctx, tg_step(model, b.feeds, 2, &loss), TG_ERROR_INDEX, "index 5 at position 4");
    assert_int_equal(tg_model_step_count(model), 0);
    tg_model_destroy(model);
}

static tg_tensor pairs(tg_graph *g, void *user) {
    any_model *m = user;
    m->builds++;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(m->size, WIDE), TG_F32), w = tg_param(g, "w", TG_SHAPE(2 * WIDE), .init = tg_init_ones());
    return tg_mean(tg_square(tg_mul(tg_reshape(x, TG_SHAPE(-1, 2 * WIDE)), w)), TG_ALL);
}

static void a_size_that_does_not_trace_rejects_its_call_alone(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    tg_model *model = must(f->ctx, tg_compile(f->ctx, pairs, &any, &options)),
             *same = must(f->ctx, tg_compile(f->ctx, pairs, &any, &options));
    batch b;
    float loss = 0, want = 0;
    ok(f->ctx, tg_step(model, batch_of(&b, 4, 1), 1, NULL));
    ok(f->ctx, tg_step(same, b.feeds, 1, NULL));
    const int64_t bytes = f->allocator.live_bytes, blocks = f->allocator.live_blocks;
    for (int64_t size = 3; size < 10; size += 2) {
        expect_error(f->ctx, tg_step(model, batch_of(&b, size, 1), 1, &loss), TG_ERROR_SHAPE, "reshape");
        assert_int_equal(f->allocator.live_bytes, bytes);
        assert_int_equal(f->allocator.live_blocks, blocks);
    }
    for (int t = 0; t < 3; t++) {
        ok(f->ctx, tg_step(model, batch_of(&b, 4, 2), 1, &loss));
        ok(f->ctx, tg_step(same, b.feeds, 1, &want));
        assert_memory_equal(&loss, &want, sizeof loss);
    }
    assert_int_equal(tg_model_step_count(model), 4);
    tg_model_destroy(model);
    tg_model_destroy(same);
}

/* What a build function may not make of another size. */
typedef enum change {
    ANOTHER_PARAM,
    ANOTHER_SHAPE,
    ANOTHER_NAME,
    ANOTHER_INPUT,
    WIDER_INPUT,
    ANOTHER_STATE,
    STATE_MISSING,
    FROZEN,
    CHANGES
} change;

static tg_tensor changing(tg_graph *g, void *user) {
    const change what = *(const change *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(TG_ANY, WIDE), TG_F32);
    const bool first = tg_tensor_shape(x).dim[0] == 2;
    tg_tensor w = tg_param(g, what == ANOTHER_NAME && !first ? "v" : "w", TG_SHAPE(what == ANOTHER_SHAPE && !first ? 1 : WIDE),
                           .frozen = what == FROZEN && !first ? TG_YES : TG_DEFAULT);
    tg_tensor loss = tg_mean(tg_square(tg_mul(x, w)), TG_ALL);
    if (what == ANOTHER_PARAM && !first) loss = tg_add(loss, tg_sum_all(tg_param(g, "more", TG_SHAPE(2))));
    if (what == ANOTHER_INPUT && !first) loss = tg_add(loss, tg_input(g, "more", TG_SCALAR, TG_F32));
    if (what == WIDER_INPUT) loss = tg_add(loss, tg_sum_all(tg_input(g, "side", TG_SHAPE(first ? 1 : 2), TG_F32)));
    if (what == STATE_MISSING && first) loss = tg_add(loss, tg_state(g, "early", TG_SCALAR, TG_F32, 0));
    if (what == ANOTHER_STATE && !first) loss = tg_add(loss, tg_state(g, "late", TG_SCALAR, TG_F32, 0));
    return loss;
}

static void all_sizes_are_one_model(void **state) {
    fixture *f = *state;
    const char *says[CHANGES] = {"2 parameters, and 1 in the model", "parameter w is not what", "parameter v is not what",
                                 "2 inputs, and 1 in the model",     "input side is not what",  "state late is not what",
                                 "state early is missing",           "parameter w is not what"};
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    for (change what = ANOTHER_PARAM; what < CHANGES; what++) {
        tg_model *model = must(f->ctx, tg_compile(f->ctx, changing, &what, &options));
        batch b;
        const float side = 1;
        batch_of(&b, 3, 1);
        const tg_feed feeds[2] = {b.feeds[0], tg_feed_f32("side", &side, 1)};
        expect_error(f->ctx, tg_step(model, feeds, what == WIDER_INPUT ? 2 : 1, NULL), TG_ERROR_SHAPE, says[what]);
        assert_int_equal(tg_model_step_count(model), 0);
        tg_model_destroy(model);
    }
}

static tg_tensor twice_any(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_input(g, "x", TG_SHAPE(TG_ANY, TG_ANY), TG_F32));
}

static tg_tensor any_elsewhere(tg_graph *g, void *user) {
    (void)user;
    return tg_sum_all(tg_param(g, "w", TG_SHAPE(TG_ANY, 2)));
}

static void any_is_for_inputs_of_compiled_models(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    assert_null(tg_compile(f->ctx, twice_any, NULL, &options));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE, "input x: the shape [?, ?] has more than one TG_ANY");
    assert_null(tg_trace(f->ctx, any_forward, &any, NULL));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE,
                 "input x: the shape [?, 3] has TG_ANY, which only models that are compiled can have");
    assert_null(tg_compile(f->ctx, any_elsewhere, NULL, &options));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE, "param w: shape [?, 2] has a dimension under 1");
    options.any_size = -1;
    assert_null(tg_compile(f->ctx, any_loss, &any, &options));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_ARGUMENT, "compile: any_size is -1");
    options.any_size = 0;
    options.max_sizes = -2;
    assert_null(tg_compile(f->ctx, any_loss, &any, &options));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_ARGUMENT, "compile: max_sizes is -2");
}

/* ---------------------------------------------------------------- sizes that are kept and freed */

static void the_size_not_used_for_longest_is_freed(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.01)));
    options.max_sizes = 2;
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    const struct {
        int64_t size;
        int builds;
    } calls[] = {{3, 2}, {4, 3}, {3, 3}, {5, 4}, {3, 4}, {2, 4}, {4, 5}, {5, 6}, {4, 6}, {3, 7}, {4, 7}};
    batch b;
    int64_t bytes = 0, blocks = 0;
    for (int t = 0; t < 2 * SUPPORT_COUNT(calls); t++) { /* the second round begins with 3 and 4, where the first ended */
        const int i = t % SUPPORT_COUNT(calls);
        ok(f->ctx, tg_step(model, batch_of(&b, calls[i].size, 5), 2, NULL));
        if (t < SUPPORT_COUNT(calls)) assert_int_equal(any.builds, calls[i].builds);
        if (t == SUPPORT_COUNT(calls) - 1) bytes = f->allocator.live_bytes, blocks = f->allocator.live_blocks;
    }
    assert_int_equal(f->allocator.live_bytes, bytes);
    assert_int_equal(f->allocator.live_blocks, blocks);
    tg_model_destroy(model);
}

static void steps_of_known_sizes_allocate_nothing(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.01)));
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    batch b;
    float value = 0;
    tg_ticket ticket;
    for (int t = 0; t < 40; t++) {
        const int64_t calls = f->allocator.calls;
        batch_of(&b, visits[t % SUPPORT_COUNT(visits)], 1);
        ok(f->ctx, tg_step(model, b.feeds, 2, NULL));
        ok(f->ctx, tg_run(model, b.feeds, 2, &value, 1));
        ok(f->ctx, tg_step_async(model, b.feeds, 2, &ticket));
        if (t >= 3 * SUPPORT_COUNT(visits)) assert_int_equal(f->allocator.calls, calls);
    }
    tg_model_destroy(model);
}

/* Two models make the same calls; one of them waits for none of its steps. */
static void steps_that_are_not_waited_for_may_differ_in_size(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.01)));
    tg_model *a = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    options.max_sizes = 1; /* every fourth call frees a size whose steps may be under way */
    tg_model *b = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    tg_ticket tickets[50];
    float want[50];
    batch data;
    for (int t = 0; t < 50; t++) {
        batch_of(&data, (const int64_t[]){32, 2, 7}[(t / 4) % 3], (uint64_t)t);
        ok(f->ctx, tg_step(a, data.feeds, 2, &want[t]));
        ok(f->ctx, tg_step_async(b, data.feeds, 2, &tickets[t]));
    }
    for (int t = 0; t < 50; t++) {
        float loss = 0;
        ok(f->ctx, tg_wait(b, tickets[t], &loss));
        assert_memory_equal(&loss, &want[t], sizeof loss);
    }
    same_parameters(a, b);
    tg_model_destroy(b);
    for (int t = 0; t < 2; t++) ok(f->ctx, tg_step_async(a, batch_of(&data, 5 + t, 1), 2, &tickets[0]));
    tg_model_destroy(a); /* with steps under way */
}

/* ---------------------------------------------------------------- training on data sets */

static void data_sets_come_in_batches_of_any_size(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.01)));
    options.max_sizes = 1;
    options.any_size = 6;
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options)),
             *same = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    batch b, piece;
    batch_of(&b, 30, 1);
    tg_dataset *six = tg_dataset_create(model, b.feeds, 2, 30), *five = tg_dataset_create_batch(model, b.feeds, 2, 30, 5);
    assert_non_null(six);
    assert_non_null(five);
    expect_error(f->ctx, tg_dataset_create_batch(model, b.feeds, 2, 30, -1) == NULL ? tg_error(f->ctx) : TG_OK, TG_ERROR_ARGUMENT,
                 "batch is -1");
    const tg_train_options train = {.steps = 4, .order = TG_BATCH_SEQUENTIAL};
    float losses[4], want = 0;
    for (int turn = 0; turn < 4; turn++) { /* t = 0, 4, 8, 12 */
        const int64_t size = turn % 2 ? 5 : 6;
        ok(f->ctx, tg_train(model, turn % 2 ? five : six, &train, losses, NULL));
        for (int t = 0; t < 4; t++) {
            for (int64_t i = 0; i < size; i++) {
                const int64_t row = ((4 * turn + t) * size + i) % 30;
                memcpy(piece.x + i * WIDE, b.x + row * WIDE, WIDE * sizeof(float));
                piece.labels[i] = b.labels[row];
            }
            const tg_feed feeds[2] = {tg_feed_f32("x", piece.x, size * WIDE), tg_feed_i32("labels", piece.labels, size)};
            ok(f->ctx, tg_step(same, feeds, 2, &want));
            assert_memory_equal(&losses[t], &want, sizeof want);
        }
        float value;
        for (int64_t other = 7; other < 10; other++)
            ok(f->ctx, tg_run(model, batch_of(&piece, other, 1), 2, &value, 1)); /* frees no batch's */
    }
    same_parameters(model, same);
    expect_error(f->ctx, tg_train(same, five, &train, NULL, NULL), TG_ERROR_ARGUMENT, "the data set is another model's");
    tg_dataset_destroy(five);
    tg_model_destroy(model);
    expect_error(f->ctx, tg_train(same, six, &train, NULL, NULL), TG_ERROR_STATE, "the data set's model was destroyed");
    tg_dataset_destroy(six);
    any_model fixed_any = {6, 0};
    tg_model *fixed = must(f->ctx, tg_compile(f->ctx, any_loss, &fixed_any, &options));
    assert_null(tg_dataset_create_batch(fixed, b.feeds, 2, 30, 5));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE, "dataset: batches of 5 rows are asked for, the inputs listed take 6");
    tg_dataset_destroy(tg_dataset_create_batch(fixed, b.feeds, 2, 30, 6));
    tg_model_destroy(fixed);
    tg_model_destroy(same);
}

/* ---------------------------------------------------------------- the state that all sizes share */

static void reset_and_uploads_reach_all_sizes(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.05)));
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    batch b;
    float first[6], again[6], weights[WIDE * 8];
    for (int t = 0; t < 6; t++) ok(f->ctx, tg_step(model, batch_of(&b, 2 + t % 3, 1), 2, &first[t]));
    ok(f->ctx, tg_model_reset(model));
    for (int t = 0; t < 6; t++) ok(f->ctx, tg_step(model, batch_of(&b, 2 + t % 3, 1), 2, &again[t]));
    assert_memory_equal(first, again, sizeof first);
    ok(f->ctx, tg_param_download(model, "up.W", weights, WIDE * 8));
    for (int i = 0; i < WIDE * 8; i++) weights[i] = 0;
    ok(f->ctx, tg_param_upload(model, "up.W", weights, WIDE * 8));
    tg_captures *captures = NULL;
    ok(f->ctx, tg_step_captures(model, batch_of(&b, 4, 1), 2, NULL, &captures));
    const float *hidden = tg_captures_get(captures, "hidden", NULL, NULL);
    ok(f->ctx, tg_model_reset_optimizer(model));
    assert_int_equal(tg_model_step_count(model), 0);
    for (int i = 8; i < 32; i++) assert_true(hidden[i] == hidden[i - 8]); /* rows are alike: only the bias is left */
    tg_captures_destroy(captures);
    const char *text = tg_model_text(model, TG_TEXT_IR);
    assert_non_null(strstr(text, "[4, 3]"));
    tg_model_info info;
    ok(f->ctx, tg_model_get_info(model, &info));
    assert_true(info.kernels > 0);
    tg_model_destroy(model);
}

#if !defined(__wasm__) /* where there are no files */
static void checkpoints_are_of_the_model_not_of_a_size(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0}, four = {4, 0};
    const tg_compile_options options = options_with(tg_adamw(.lr = tg_lr_cosine_decay(0.05, 0.01, 20), .accumulate = 2));
    tg_model *saved = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    tg_model *loaded = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    tg_model *fixed = must(f->ctx, tg_compile(f->ctx, any_loss, &four, &options));
    batch b;
    for (int t = 0; t < 3; t++) ok(f->ctx, tg_step(saved, batch_of(&b, 3 + t, 1), 2, NULL));
    for (int t = 0; t < 2; t++)
        ok(f->ctx, tg_step(loaded, batch_of(&b, 4 + t, 2), 2, NULL)); /* its sizes stay, and see the file's values */
    ok(f->ctx, tg_model_save(saved, f->path));
    ok(f->ctx, tg_model_load(loaded, f->path));
    ok(f->ctx, tg_model_load(fixed, f->path));
    for (int t = 0; t < 4; t++) {
        float one = 0, other = 0, third = 0;
        ok(f->ctx, tg_step(saved, batch_of(&b, 4, (uint64_t)t), 2, &one));
        ok(f->ctx, tg_step(loaded, b.feeds, 2, &other));
        ok(f->ctx, tg_step(fixed, b.feeds, 2, &third));
        assert_memory_equal(&one, &other, sizeof one);
        assert_memory_equal(&one, &third, sizeof one);
    }
    same_parameters(saved, loaded);
    same_parameters(saved, fixed);
    tg_model_destroy(saved);
    tg_model_destroy(loaded);
    tg_model_destroy(fixed);
}
#endif

/* Allocation n fails while a size is compiled, for every n: an error, nothing left behind, and the model goes on as if not asked. */
static void memory_that_runs_out_while_a_size_is_compiled(void **state) {
    fixture *f = *state;
    any_model any = {TG_ANY, 0};
    tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.05)));
    options.max_sizes = 2;
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options)),
             *same = must(f->ctx, tg_compile(f->ctx, any_loss, &any, &options));
    batch b;
    float loss = 0, want = 0;
    for (int64_t size = 3; size < 5; size++) { /* the cache is full: the third size would free one */
        ok(f->ctx, tg_step(model, batch_of(&b, size, 1), 2, NULL));
        ok(f->ctx, tg_step(same, b.feeds, 2, NULL));
    }
    const int64_t bytes = f->allocator.live_bytes, blocks = f->allocator.live_blocks;
    int failures = 0;
    const int step = support_home_now() == SUPPORT_CPU ? 1 : 61;
    for (bool made = false; !made; failures++) {
        f->allocator.fail_at = f->allocator.calls + 1 + failures * step;
        const tg_status status = tg_step(model, batch_of(&b, 7, 1), 2, &loss);
        f->allocator.fail_at = 0;
        made = status == TG_OK;
        if (made) break;
        assert_int_equal(status, TG_ERROR_MEMORY);
        assert_int_equal(f->allocator.live_blocks, blocks);
        assert_int_equal(f->allocator.live_bytes, bytes);
        assert_int_equal(tg_model_step_count(model), 2);
        tg_clear_error(f->ctx);
    }
    assert_true(failures > 1);
    ok(f->ctx, tg_step(same, b.feeds, 2, &want));
    assert_memory_equal(&loss, &want, sizeof loss);
    same_parameters(model, same);
    tg_model_destroy(model);
    tg_model_destroy(same);
}

/* ---------------------------------------------------------------- results of every dtype */

enum { SCORES = 4, LARGE = 3000, GUARD = 0x5A };

typedef enum outcome { BEST, ABOVE, COUNT_ABOVE, ANY_ABOVE, OUTCOMES } outcome;

static tg_tensor outcome_of(tg_graph *g, void *user) {
    tg_tensor x = tg_capture("x", tg_mul(tg_input(g, "x", TG_SHAPE(TG_ANY, SCORES), TG_F32), 2.0));
    tg_tensor k = tg_capture("k", tg_add(tg_input(g, "k", TG_SHAPE(TG_ANY), TG_I32), 1.0));
    tg_tensor above = tg_capture("above", tg_greater(x, 1.5)), many = tg_sum_all(tg_cast(above, TG_I32));
    (void)k;
    switch (*(const outcome *)user) {
    case BEST: return tg_argmax(x, -1);
    case ABOVE: return above;
    case COUNT_ABOVE: return many;
    default: return tg_greater(many, 0.0);
    }
}

typedef struct scores {
    float x[LARGE * SCORES];
    int32_t k[LARGE], best[LARGE], count;
    uint8_t above[LARGE * SCORES];
} scores;

static void scores_fill(scores *s, int rows) {
    support_random r = support_random_make((uint64_t)rows);
    s->count = 0;
    for (int i = 0; i < rows; i++) {
        s->k[i] = i == 0 ? INT32_MIN : i % 2 ? 2147483646 - i : -i;
        s->best[i] = 0;
        for (int j = 0; j < SCORES; j++) {
            const int at = i * SCORES + j;
            s->x[at] = support_random_float(&r, -1, 1);
            if (s->x[at] > s->x[i * SCORES + s->best[i]]) s->best[i] = j;
            s->above[at] = 2 * s->x[at] > 1.5f;
            s->count += s->above[at];
        }
    }
}

static void outcome_captures(tg_captures *captures, const scores *s, int rows) {
    tg_dtype dtype = TG_BOOL;
    tg_shape shape;
    const float *x = tg_captures_get(captures, "x", &shape, &dtype);
    assert_true(dtype == TG_F32 && tg_shape_equal(shape, TG_SHAPE(rows, SCORES)));
    for (int i = 0; i < rows * SCORES; i++) assert_true(x[i] == 2 * s->x[i]);
    const int32_t *k = tg_captures_get(captures, "k", &shape, &dtype);
    assert_true(dtype == TG_I32 && tg_shape_equal(shape, TG_SHAPE(rows)));
    for (int i = 0; i < rows; i++) assert_int_equal(k[i], s->k[i] + 1);
    const uint8_t *above = tg_captures_get(captures, "above", &shape, &dtype);
    assert_true(dtype == TG_BOOL && tg_shape_equal(shape, TG_SHAPE(rows, SCORES)));
    assert_memory_equal(above, s->above, (size_t)rows * SCORES);
    tg_captures_destroy(captures);
}

/* Room is counted in elements of the output's dtype: nothing behind them is touched, and one too few is refused. */
static void results_have_their_own_dtype(void **state) {
    fixture *f = *state;
    scores *s = malloc(sizeof *s);
    uint8_t *out = malloc(LARGE * SCORES + 64);
    for (outcome which = BEST; which < OUTCOMES; which++) {
        const tg_compile_options options = options_with((tg_optimizer){.kind = TG_OPTIMIZER_NONE});
        tg_model *model = must(f->ctx, tg_compile_forward(f->ctx, outcome_of, &which, &options));
        const int sizes[] = {1, 5, LARGE};
        assert_int_equal(tg_model_output_dtype(model), which == BEST || which == COUNT_ABOVE ? TG_I32 : TG_BOOL);
        for (int i = 0; i < SUPPORT_COUNT(sizes); i++) {
            const int rows = sizes[i];
            scores_fill(s, rows);
            const uint8_t any = s->count > 0;
            const void *want[OUTCOMES] = {s->best, s->above, &s->count, &any};
            const int64_t counts[OUTCOMES] = {rows, (int64_t)rows * SCORES, 1, 1},
                          bytes = counts[which] * (which == BEST || which == COUNT_ABOVE ? 4 : 1);
            const tg_feed feeds[2] = {tg_feed_f32("x", s->x, (int64_t)rows * SCORES), tg_feed_i32("k", s->k, rows)};
            tg_captures *captures = NULL;
            memset(out, GUARD, LARGE * SCORES + 64);
            expect_error(f->ctx, tg_run(model, feeds, 2, out, counts[which] - 1), TG_ERROR_ARGUMENT, "there is room for");
            assert_int_equal(out[0], GUARD);
            ok(f->ctx, tg_run(model, feeds, 2, out, counts[which]));
            assert_memory_equal(out, want[which], (size_t)bytes);
            for (int j = 0; j < 64; j++) assert_int_equal(out[bytes + j], GUARD);
            memset(out, GUARD, (size_t)bytes);
            ok(f->ctx, tg_run_captures(model, feeds, 2, out, counts[which] + 7, &captures));
            assert_memory_equal(out, want[which], (size_t)bytes);
            outcome_captures(captures, s, rows);
        }
        tg_model_destroy(model);
    }
    free(out);
    free(s);
}

/* ---------------------------------------------------------------- frozen parts */

typedef enum freezing { FREEZE_NOTHING, FREEZE_DECLARED, FREEZE_GROUP, FEED_INSTEAD } freezing;

/* lower1, lower2 -> upper; the lower weights trained, frozen, or fed. */
static tg_tensor backbone_output(tg_graph *g, freezing how) {
    const tg_choice frozen = how == FREEZE_DECLARED ? TG_YES : TG_NO;
    tg_tensor h = tg_input(g, "x", TG_SHAPE(5, 6), TG_F32);
    for (int i = 0; i < 2; i++) {
        tg_scope_pushf(g, "lower%d", i);
        tg_tensor w = how == FEED_INSTEAD ? tg_input(g, i == 0 ? "w0" : "w1", TG_SHAPE(6, 6), TG_F32)
                                          : tg_param(g, "W", TG_SHAPE(6, 6), .init = tg_init_randn(0.5), .frozen = frozen);
        tg_scope_pop(g);
        h = tg_relu(tg_matmul(h, w));
    }
    return tg_matmul(h, tg_param(g, "upper.W", TG_SHAPE(6, 2), .init = tg_init_randn(0.5)));
}

static tg_tensor backbone_loss(tg_graph *g, void *user) {
    return tg_mean(tg_square(tg_sub(backbone_output(g, *(const freezing *)user), 1.0)), TG_ALL);
}

static tg_tensor backbone_forward(tg_graph *g, void *user) { return backbone_output(g, *(const freezing *)user); }

static int contractions_of(tg_model *model) {
    int count = 0;
    for (const char *at = tg_model_text(model, TG_TEXT_IR); at != NULL && (at = strstr(at, "= contract")) != NULL; at++) count++;
    return count;
}

/* Nothing of a frozen part is differentiated: the program is that of a model into which those weights are fed. */
static void frozen_parts_have_no_backward_work(void **state) {
    fixture *f = *state;
    const tg_param_group group = {.pattern = "lower*", .frozen = true};
    float x[30], w[36], before[36], after[36], loss = 0, other = 0;
    support_random r = support_random_make(3);
    for (int i = 0; i < 30; i++) x[i] = support_random_float(&r, -1, 1);
    const tg_feed feed = tg_feed_f32("x", x, 30);
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        int kernels[4], contractions[4];
        for (freezing how = FREEZE_NOTHING; how <= FEED_INSTEAD; how++) {
            tg_compile_options options = options_with(tg_sgd(.lr = tg_lr_constant(0.1)));
            options.optimizer.groups = &group;
            options.optimizer.group_count = how == FREEZE_GROUP;
            options.no_fusion = no_fusion;
            tg_model *model = must(f->ctx, tg_compile(f->ctx, backbone_loss, &how, &options));
            tg_model_info info;
            ok(f->ctx, tg_model_get_info(model, &info));
            kernels[how] = info.kernels;
            contractions[how] = contractions_of(model);
            if (how == FREEZE_DECLARED || how == FREEZE_GROUP) {
                ok(f->ctx, tg_param_download(model, "lower1.W", before, 36));
                for (int t = 0; t < 3; t++) ok(f->ctx, tg_step(model, &feed, 1, &loss));
                ok(f->ctx, tg_param_download(model, "lower1.W", after, 36));
                assert_memory_equal(before, after, sizeof before);
                ok(f->ctx, tg_param_grad_download(model, "lower1.W", w, 36));
                for (int i = 0; i < 36; i++) assert_true(w[i] == 0);
                ok(f->ctx, tg_param_grad_download(model, "upper.W", w, 12));
                assert_true(w[0] != 0 || w[1] != 0);
                for (int i = 0; i < 36; i++) w[i] = 0.25f * before[i];
                ok(f->ctx, tg_param_upload(model, "lower1.W", w, 36));
                ok(f->ctx, tg_run(model, &feed, 1, &other, 1));
                assert_true(other != loss);
                tg_model *sibling = must(f->ctx, tg_compile_sibling(model, backbone_forward, &how));
                float out[10];
                double sum = 0;
                ok(f->ctx, tg_run(sibling, &feed, 1, out, 10));
                for (int i = 0; i < 10; i++) sum += (out[i] - 1.0) * (out[i] - 1.0) / 10;
                assert_true(sum > other - 1e-4 && sum < other + 1e-4);
                ok(f->ctx, tg_model_reset(model));
                ok(f->ctx, tg_param_download(model, "lower1.W", after, 36));
                assert_memory_equal(before, after, sizeof before);
            }
            tg_model_destroy(model);
        }
        assert_int_equal(contractions[FREEZE_NOTHING], 8); /* 3 forward, 3 of weights, 2 of what the layers were given */
        for (freezing how = FREEZE_DECLARED; how <= FEED_INSTEAD; how++) {
            assert_int_equal(contractions[how], 4); /* 3 forward, 1 of the upper weights */
            assert_int_equal(kernels[how], kernels[FEED_INSTEAD]);
        }
        assert_true(kernels[FREEZE_DECLARED] < kernels[FREEZE_NOTHING]);
    }
}

#if !defined(__wasm__)
/* A net with statistics, in training and predicting; `user`: whether it is in training. */
static tg_tensor normed(tg_graph *g, void *user) {
    const bool training = *(const bool *)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(6, 5), TG_F32);
    tg_linear layer = tg_nn_linear(g, "layer", 5, 4);
    tg_tensor y = tg_nn_batch_norm_fwd(tg_nn_batch_norm(g, "bn", 4), tg_nn_linear_fwd(layer, x), training);
    return training ? tg_mean(tg_square(tg_sub(y, 0.5)), TG_ALL) : y;
}

/* What a batch norm has kept goes with its parameters, from training to prediction, back, and from model to model. */
static void statistics_go_with_the_parameters(void **state) {
    fixture *f = *state;
    bool training = true, predicting = false;
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    float x[30], want[24], got[24];
    const tg_feed feed = tg_feed_f32("x", x, 30);
    support_random r = support_random_make(3);
    for (int i = 0; i < 30; i++) x[i] = support_random_float(&r, 1, 4);
    tg_model *trained = must(f->ctx, tg_compile(f->ctx, normed, &training, &options));
    tg_model *sibling = must(f->ctx, tg_compile_sibling(trained, normed, &predicting));
    for (int t = 0; t < 5; t++) ok(f->ctx, tg_step(trained, &feed, 1, NULL));
    ok(f->ctx, tg_run(sibling, &feed, 1, want, 24));
    ok(f->ctx, tg_model_save(trained, f->path));

    tg_model *alone = must(f->ctx, tg_compile_forward(f->ctx, normed, &predicting, &options)); /* of a training file */
    ok(f->ctx, tg_run(alone, &feed, 1, got, 24));
    assert_memory_not_equal(want, got, sizeof want);
    ok(f->ctx, tg_model_load(alone, f->path));
    ok(f->ctx, tg_run(alone, &feed, 1, got, 24));
    assert_memory_equal(want, got, sizeof want);

    ok(f->ctx, tg_model_save(alone, f->path)); /* parameters and statistics, no training state */
    tg_model *again = must(f->ctx, tg_compile(f->ctx, normed, &training, &options));
    tg_model *of_again = must(f->ctx, tg_compile_sibling(again, normed, &predicting));
    ok(f->ctx, tg_step(again, &feed, 1, NULL));
    ok(f->ctx, tg_model_load(again, f->path));
    assert_int_equal(tg_model_step_count(again), 0);
    ok(f->ctx, tg_run(of_again, &feed, 1, got, 24));
    assert_memory_equal(want, got, sizeof want);

    tg_model *made = must(f->ctx, tg_compile_forward(f->ctx, normed, &predicting, &options)); /* carried */
    ok(f->ctx, tg_params_carry(made, trained, NULL));
    ok(f->ctx, tg_run(made, &feed, 1, got, 24));
    assert_memory_equal(want, got, sizeof want);

    const float zeros[20] = {0}; /* a file of parameters alone is not enough to predict, and begins training anew */
    const tg_file_item items[] = {{"layer.W", TG_F32, TG_SHAPE(5, 4), zeros},
                                  {"layer.b", TG_F32, TG_SHAPE(4), zeros},
                                  {"bn.g", TG_F32, TG_SHAPE(4), zeros},
                                  {"bn.b", TG_F32, TG_SHAPE(4), zeros}};
    ok(f->ctx, tg_safetensors_save(f->ctx, f->path, items, 4, NULL, 0));
    expect_error(f->ctx, tg_model_load(made, f->path), TG_ERROR_NOT_FOUND, "tg.state/bn.mean");
    ok(f->ctx, tg_run(made, &feed, 1, got, 24));
    assert_memory_equal(want, got, sizeof want);
    ok(f->ctx, tg_model_load(again, f->path));
    tg_model_destroy(trained);
    tg_model_destroy(alone);
    tg_model_destroy(again);
    tg_model_destroy(made);
}

/* All of it is trained, then a part is frozen: the file of a forward sibling has what that needs. */
static void a_backbone_comes_from_a_checkpoint(void **state) {
    fixture *f = *state;
    freezing whole = FREEZE_NOTHING, frozen = FREEZE_DECLARED;
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1)));
    const float x[30] = {1, -2, 3, 0.5f, -1};
    const tg_feed feed = tg_feed_f32("x", x, 30);
    float want[36], got[36], one = 0, other = 0;
    tg_model *trained = must(f->ctx, tg_compile(f->ctx, backbone_loss, &whole, &options));
    for (int t = 0; t < 3; t++) ok(f->ctx, tg_step(trained, &feed, 1, NULL));
    tg_model *forward = must(f->ctx, tg_compile_sibling(trained, backbone_forward, &whole));
    tg_model *tuned = must(f->ctx, tg_compile(f->ctx, backbone_loss, &frozen, &options));
    tg_model *again = must(f->ctx, tg_compile(f->ctx, backbone_loss, &frozen, &options));
    ok(f->ctx, tg_model_save(forward, f->path));
    ok(f->ctx, tg_model_load(tuned, f->path));
    ok(f->ctx, tg_param_download(trained, "lower0.W", want, 36));
    for (int t = 0; t < 2; t++) ok(f->ctx, tg_step(tuned, &feed, 1, NULL));
    ok(f->ctx, tg_param_download(tuned, "lower0.W", got, 36));
    assert_memory_equal(want, got, sizeof want);
    ok(f->ctx, tg_model_save(tuned, f->path)); /* with the moments of what is trained */
    ok(f->ctx, tg_model_load(again, f->path));
    ok(f->ctx, tg_step(tuned, &feed, 1, &one));
    ok(f->ctx, tg_step(again, &feed, 1, &other));
    assert_memory_equal(&one, &other, sizeof one);
    same_parameters(tuned, again);
    tg_model_destroy(trained);
    tg_model_destroy(tuned);
    tg_model_destroy(again);
}
#endif

/* ---------------------------------------------------------------- one model in the place of another */

static tg_tensor wider(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(5, 6), TG_F32);
    tg_tensor h = tg_matmul(tg_matmul(x, tg_param(g, "lower0.W", TG_SHAPE(6, 6))), tg_param(g, "lower1.W", TG_SHAPE(6, 7)));
    return tg_matmul(h, tg_param(g, "middle.W", TG_SHAPE(7, 2)));
}

static void parameters_are_carried_by_name_and_shape(void **state) {
    fixture *f = *state;
    support_allocator counts = {.calls = 0};
    tg_context *elsewhere = support_context_counting(&counts);
    const freezing how = FREEZE_NOTHING;
    const tg_compile_options options = options_with(tg_adam(.lr = tg_lr_constant(0.1), .average = 0.5));
    float x[30] = {1, 2, 3}, w[42], got[42], first[42];
    const tg_feed feed = tg_feed_f32("x", x, 30);
    int count = 0;
    tg_model *old = must(f->ctx, tg_compile(f->ctx, backbone_loss, (void *)&how, &options));
    ok(f->ctx, tg_step(old, &feed, 1, NULL));
    for (int i = 0; i < 2; i++) {
        tg_context *ctx = i == 0 ? f->ctx : elsewhere;
        tg_model *made = must(ctx, tg_compile_forward(ctx, wider, NULL, &options));
        ok(ctx, tg_param_download(made, "lower1.W", first, 42));
        const int64_t blocks = f->allocator.live_blocks;
        ok(ctx, tg_params_carry(made, old, &count));
        assert_int_equal(count, 1);
        if (i == 1) assert_int_equal(f->allocator.live_blocks, blocks);
        ok(f->ctx, tg_param_download(old, "lower0.W", w, 36));
        ok(ctx, tg_param_download(made, "lower0.W", got, 36));
        assert_memory_equal(w, got, 36 * sizeof *w);
        ok(ctx, tg_param_download(made, "lower1.W", got, 42));
        assert_memory_equal(first, got, sizeof first);
        counts.fail_at = counts.calls + 1;
        if (i == 1) expect_error(ctx, tg_params_carry(made, old, &count), TG_ERROR_MEMORY, "");
        counts.fail_at = 0;
        tg_model_destroy(made);
    }
    tg_model *same = must(f->ctx, tg_compile(f->ctx, backbone_loss, (void *)&how, &options));
    ok(f->ctx, tg_params_carry(same, old, NULL));
    ok(f->ctx, tg_param_download(old, "upper.W", w, 12));
    ok(f->ctx, tg_param_average_download(same, "upper.W", got, 12)); /* where averages begin */
    assert_memory_equal(w, got, 12 * sizeof *w);
    assert_int_equal(tg_model_step_count(same), 0);
    ok(f->ctx, tg_params_carry(same, same, &count));
    assert_int_equal(count, 3);
    assert_int_equal(tg_params_carry(same, NULL, NULL), TG_ERROR_ARGUMENT);
    assert_int_equal(tg_params_carry(NULL, same, NULL), TG_ERROR_ARGUMENT);
    tg_model_destroy(same);
    tg_model_destroy(old);
    tg_context_destroy(elsewhere);
    assert_int_equal(counts.live_blocks, 0);
}

/* ---------------------------------------------------------------- what refused calls leave, and whose kernels are timed */

static int64_t rows_told(const tg_model *model) { return tg_model_output_shape(model).dim[0]; }

/* What a model tells of itself is of the size used last: of a call that was made, training on data that is there too. */
static void refused_calls_are_no_use_of_a_size(void **state) {
    fixture *f = *state;
    any_model m = {.size = TG_ANY}, of_run = {.size = TG_ANY};
    tg_compile_options options = options_with(tg_sgd(.lr = tg_lr_constant(0.1)));
    options.max_sizes = 1;
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &m, &options));
    tg_model *run = must(f->ctx, tg_compile_sibling(model, any_forward, &of_run));
    batch b;
    float out[MOST * 2], loss;
    ok(f->ctx, tg_run(run, batch_of(&b, 3, 1), 1, out, MOST * 2));
    assert_int_equal(rows_told(run), 3);
    const int builds = of_run.builds;
    expect_error(f->ctx, tg_step(run, batch_of(&b, 5, 1), 1, &loss), TG_ERROR_STATE, "forward model");
    expect_error(f->ctx, tg_run(run, batch_of(&b, 6, 1), 1, NULL, 0), TG_ERROR_ARGUMENT, "output is NULL");
    assert_int_equal(of_run.builds, builds);
    expect_error(f->ctx, tg_run(run, batch_of(&b, 7, 1), 1, out, 3), TG_ERROR_ARGUMENT, "there is room for 3");
    assert_int_equal(rows_told(run), 3);

    tg_model_info info, other;
    ok(f->ctx, tg_step(model, batch_of(&b, 4, 2), 2, &loss));
    ok(f->ctx, tg_model_get_info(model, &info));
    batch_of(&b, 8, 3);
    b.labels[7] = 9;
    expect_error(f->ctx, tg_step(model, b.feeds, 2, &loss), TG_ERROR_INDEX, "9");
    const tg_feed unknown = tg_feed_f32("z", b.x, MOST);
    assert_null(tg_dataset_create_batch(model, &unknown, 1, MOST, 20));
    tg_clear_error(f->ctx);
    ok(f->ctx, tg_model_get_info(model, &other));
    assert_true(info.contraction_flops == other.contraction_flops);

    tg_dataset *data = tg_dataset_create_batch(model, batch_of(&b, MOST, 4), 2, MOST, 10);
    if (data == NULL) fail_msg("%s", tg_error_message(f->ctx));
    ok(f->ctx, tg_step(model, batch_of(&b, 4, 2), 2, &loss));
    const tg_train_options train = {.steps = 2};
    ok(f->ctx, tg_train(model, data, &train, NULL, NULL));
    ok(f->ctx, tg_model_get_info(model, &other));
    assert_true(other.contraction_flops == info.contraction_flops / 4 * 10);
    tg_dataset_destroy(data);
    tg_model_destroy(model);
}

/* An error before compiling is of this call, whatever the one before said. */
static void options_are_refused_in_their_own_words(void **state) {
    fixture *f = *state;
    any_model m = {.size = TG_ANY};
    tg_compile_options options = options_with(tg_sgd(.lr = tg_lr_constant(0.1)));
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &m, &options));
    const tg_feed unknown = tg_feed_f32("z", (const float[]){0}, 1);
    assert_int_equal(tg_step(model, &unknown, 1, NULL), TG_ERROR_NOT_FOUND);
    options.any_size = -1;
    assert_null(tg_compile(f->ctx, any_loss, &m, &options));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_ARGUMENT, "any_size");
    assert_int_equal(tg_step(model, &unknown, 1, NULL), TG_ERROR_NOT_FOUND);
    expect_error(f->ctx, tg_params_carry(model, NULL, NULL), TG_ERROR_ARGUMENT, "from is NULL");
    tg_model_destroy(model);
}

/* Room that was given back must not be written: a call ends what an earlier one began, whatever the size; and names stay while they are. */
static void kernels_are_timed_at_one_size(void **state) {
    fixture *f = *state;
    if (support_home_now() != SUPPORT_CPU) return;
    any_model m = {.size = TG_ANY};
    tg_compile_options options = options_with(tg_sgd(.lr = tg_lr_constant(0.1)));
    options.max_sizes = 1;
    tg_model *model = must(f->ctx, tg_compile(f->ctx, any_loss, &m, &options));
    batch b;
    tg_kernel_time *times = calloc(64, sizeof *times);
    ok(f->ctx, tg_step(model, batch_of(&b, 3, 1), 2, NULL));
    tg_status status = tg_model_time_kernels(model, times, 64);
    if (status == TG_ERROR_UNSUPPORTED) { /* a page has no clock for it */
        free(times);
        tg_model_destroy(model);
        return;
    }
    ok(f->ctx, status);
    for (int64_t size = 4; size < 8; size++) ok(f->ctx, tg_step(model, batch_of(&b, size, 1), 2, NULL));
    assert_true(strlen(times[0].name) > 0); /* its size was not freed */
    ok(f->ctx, tg_model_time_kernels(model, NULL, 0));
    free(times);
    for (int64_t size = 3; size < 8; size++) ok(f->ctx, tg_step(model, batch_of(&b, size, 1), 2, NULL));
    tg_model_destroy(model);
}

int main(void) {
    const int refused_home = support_home_refuses("test_life");
    if (refused_home) return refused_home;
#define LIFE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        LIFE_TEST(steps_of_all_sizes_are_those_of_models_of_one_size),
        LIFE_TEST(runs_give_the_rows_they_are_fed),
        LIFE_TEST(a_refused_size_compiles_and_changes_nothing),
        LIFE_TEST(a_size_that_does_not_trace_rejects_its_call_alone),
        LIFE_TEST(all_sizes_are_one_model),
        LIFE_TEST(any_is_for_inputs_of_compiled_models),
        LIFE_TEST(the_size_not_used_for_longest_is_freed),
        LIFE_TEST(steps_of_known_sizes_allocate_nothing),
        LIFE_TEST(steps_that_are_not_waited_for_may_differ_in_size),
        LIFE_TEST(data_sets_come_in_batches_of_any_size),
        LIFE_TEST(refused_calls_are_no_use_of_a_size),
        LIFE_TEST(options_are_refused_in_their_own_words),
        LIFE_TEST(kernels_are_timed_at_one_size),
        LIFE_TEST(reset_and_uploads_reach_all_sizes),
        LIFE_TEST(memory_that_runs_out_while_a_size_is_compiled),
#if !defined(__wasm__)
        LIFE_TEST(checkpoints_are_of_the_model_not_of_a_size),
#endif
        LIFE_TEST(results_have_their_own_dtype),
#if !defined(__wasm__)
        LIFE_TEST(statistics_go_with_the_parameters),
        LIFE_TEST(a_backbone_comes_from_a_checkpoint),
#endif
        LIFE_TEST(frozen_parts_have_no_backward_work),
        LIFE_TEST(parameters_are_carried_by_name_and_shape),
    };
#undef LIFE_TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
