/* The examples through the public API, as a user would compile them: the size of the compiled step
 * (exact, so that a change of fusion or planning shows here), no allocation in a step, the same
 * bits for every thread count and in every run, the same curve without fusion, and that both learn.
 * Longer training and the stored curves have tests of their own. */
#include "support.h"

#include "examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1
#define MAX_STEPS 300

/* A training example compiled with its own optimiser, and room for its batches. */
typedef struct session {
    support_allocator allocator;
    tg_context *ctx;
    const tg_example *example;
    tg_model *model;
    void *arrays[TG_EXAMPLE_MAX_INPUTS];
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
} session;

static void session_begin(session *s, const char *name, int threads, bool no_fusion) {
    memset(s, 0, sizeof *s);
    s->ctx = support_context_counting(&s->allocator);
    s->example = tg_example_find(name);
    if (s->ctx == NULL || s->example == NULL) fail_msg("no context or no example %s", name);
    const tg_compile_options options = {
        .optimizer = s->example->optimizer(), .seed = SEED, .device = TG_DEVICE_CPU, .threads = threads, .no_fusion = no_fusion};
    s->model = tg_compile(s->ctx, s->example->build, NULL, &options);
    if (s->model == NULL) fail_msg("%s: %s", name, tg_error_message(s->ctx));
    for (int i = 0; i < s->example->input_count; i++) {
        const tg_example_input *input = &s->example->inputs[i];
        const int64_t count = tg_shape_count(input->shape);
        s->arrays[i] = calloc((size_t)count, 4);
        s->feeds[i] = tg_feed_make_(input->name, input->dtype, s->arrays[i], count);
    }
}

static void session_end(session *s) {
    tg_model_destroy(s->model);
    tg_context_destroy(s->ctx);
    for (int i = 0; i < s->example->input_count; i++) free(s->arrays[i]);
    assert_int_equal(s->allocator.live_blocks, 0);
    assert_int_equal(s->allocator.live_bytes, 0);
    assert_false(s->allocator.size_mismatch);
}

/* Step t = 1, 2, ... of the example's own batches. */
static float session_step(session *s, int64_t t) {
    float loss = 0;
    s->example->fill_batch(SEED, t, s->example->batch, s->arrays);
    if (tg_step(s->model, s->feeds, s->example->input_count, &loss) != TG_OK) fail_msg("step %d: %s", (int)t, tg_error_message(s->ctx));
    return loss;
}

/* ---------------------------------------------------------------- the size of the step */

typedef struct pinned {
    const char *name;
    int64_t parameters;
    int kernels;
    int64_t peak_bytes, workspace_bytes, most_program_bytes;
    double contraction_flops;
} pinned;

static void check_size(pinned want) {
    session s;
    tg_model_info info;
    session_begin(&s, want.name, 1, false);
    assert_int_equal(tg_model_get_info(s.model, &info), TG_OK);
    if (info.parameters != want.parameters || info.kernels != want.kernels || info.dispatches != want.kernels ||
        info.peak_bytes != want.peak_bytes || info.workspace_bytes != want.workspace_bytes ||
        info.program_bytes > want.most_program_bytes || info.program_bytes <= 0 || info.contraction_flops != want.contraction_flops)
        fail_msg(
            "%s is now {%lld, %d, %lld, %lld, %lld, %.0f}: parameters, kernels (dispatches %d), peak, workspace and program bytes, flops",
            want.name, (long long)info.parameters, info.kernels, (long long)info.peak_bytes, (long long)info.workspace_bytes,
            (long long)info.program_bytes, info.contraction_flops, info.dispatches);
    session_end(&s);
}

static void mlp_sin_has_its_size(void **state) {
    (void)state;
    check_size((pinned){"mlp-sin", 4353, 14, 206244, 133376, 65536, 6455296});
}

static void transformer_add_has_its_size(void **state) {
    (void)state;
    check_size((pinned){"transformer-add", 151360, 128, 13443492, 11013376, 393216, 929562624});
}

/* Those that learn from files, which compiling does not need. */
static void file_examples_have_their_sizes(void **state) {
    (void)state;
    check_size((pinned){"digits-cnn", 19306, 24, 7583404, 7069952, 88560, 606627840});
    check_size((pinned){"makemore", 56995, 16, 1327276, 409088, 98304, 43057152});
    check_size((pinned){"char-gru", 77664, 116, 9206180, 7954688, 574824, 443547648});
}

/* ---------------------------------------------------------------- steps */

static void check_allocations(const char *name) {
    session s;
    session_begin(&s, name, 2, false);
    const int64_t calls = s.allocator.calls, bytes = s.allocator.live_bytes;
    for (int t = 1; t <= 5; t++) session_step(&s, t); /* the first one, too: compiling has made everything */
    assert_int_equal(s.allocator.calls, calls);
    assert_int_equal(s.allocator.live_bytes, bytes);
    session_end(&s);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    check_allocations("mlp-sin");
    check_allocations("transformer-add");
}

enum { COMPARED_STEPS = 5 };

static void losses_of(const char *name, int threads, bool no_fusion, float losses[COMPARED_STEPS]) {
    session s;
    session_begin(&s, name, threads, no_fusion);
    for (int t = 1; t <= COMPARED_STEPS; t++) losses[t - 1] = session_step(&s, t);
    session_end(&s);
}

static void check_bits(const char *name) {
    static const int threads[] = {1, 2, 3};
    float first[COMPARED_STEPS], again[COMPARED_STEPS];
    losses_of(name, 1, false, first);
    for (int i = 0; i < SUPPORT_COUNT(threads); i++) { /* the first is a rerun */
        losses_of(name, threads[i], false, again);
        for (int t = 0; t < COMPARED_STEPS; t++)
            if (memcmp(&first[t], &again[t], sizeof(float)) != 0)
                fail_msg("%s, step %d: %.9g with 1 thread, %.9g with %d", name, t + 1, (double)first[t], (double)again[t], threads[i]);
    }
}

static void losses_are_the_same_bits_every_time(void **state) {
    (void)state;
    check_bits("mlp-sin");
    check_bits("transformer-add");
}

static void check_unfused(const char *name) {
    float fused[COMPARED_STEPS], unfused[COMPARED_STEPS];
    losses_of(name, 2, false, fused);
    losses_of(name, 2, true, unfused);
    for (int t = 0; t < COMPARED_STEPS; t++) { /* 1e-6 in the first step; rounding grows with training */
        const double bound = (t == 0 ? 1e-6 : 1e-4) * fabs((double)unfused[t]);
        if (!(fabs((double)fused[t] - (double)unfused[t]) <= bound))
            fail_msg("%s, step %d: fused %.9g, not fused %.9g", name, t + 1, (double)fused[t], (double)unfused[t]);
    }
}

static void fusion_changes_no_loss(void **state) {
    (void)state;
    check_unfused("mlp-sin");
    check_unfused("transformer-add");
}

/* ---------------------------------------------------------------- learning */

static void mlp_sin_learns(void **state) {
    (void)state;
    session s;
    float loss = 0, first;
    double worst = 1;
    session_begin(&s, "mlp-sin", 2, false);
    tg_model *forward = tg_compile_sibling(s.model, s.example->forward, NULL);
    if (forward == NULL) fail_msg("%s", tg_error_message(s.ctx));
    first = session_step(&s, 1);
    for (int t = 2; t <= MAX_STEPS; t++) loss = session_step(&s, t);
    if (!(first > 0.1f && loss < 1e-3f)) fail_msg("loss %.9g at step 1, %.9g at step %d", (double)first, (double)loss, MAX_STEPS);
    assert_int_equal(s.example->evaluate(forward, SEED, NULL, &worst), TG_OK);
    if (!(worst < 0.1)) fail_msg("largest error of the fit: %.9g", worst);
    session_end(&s);
}

static void transformer_add_learns(void **state) {
    (void)state;
    const int steps = SUPPORT_SANITIZED ? 15 : 40;
    session s;
    float first, loss = 0;
    session_begin(&s, "transformer-add", 2, false);
    first = session_step(&s, 1);
    for (int t = 2; t <= steps; t++) loss = session_step(&s, t);
    const float bound = SUPPORT_SANITIZED ? 0.9f * first : 2.0f;
    if (!(first > 2.0f && first < 4.0f && loss < bound))
        fail_msg("loss %.9g at step 1, %.9g at step %d", (double)first, (double)loss, steps);
    session_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_sin_has_its_size),
        cmocka_unit_test(transformer_add_has_its_size),
        cmocka_unit_test(file_examples_have_their_sizes),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(losses_are_the_same_bits_every_time),
        cmocka_unit_test(fusion_changes_no_loss),
        cmocka_unit_test(mlp_sin_learns),
        cmocka_unit_test(transformer_add_learns),
    };
    return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
