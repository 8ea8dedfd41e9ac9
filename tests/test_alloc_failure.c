/* The n-th allocation fails, for every n until the whole scenario succeeds: each time an error and nothing else. Nothing leaks, no
 * block is released with another size than it had, files are whole, and a model made before keeps its values and works. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

typedef struct scenario {
    support_allocator allocator;
    tg_context *ctx;
    char path[256], other[256]; /* a good checkpoint; the file the scenario saves to */
} scenario;

static const int32_t fed_indices[6] = {0, 4, 2, 2, 1, 0};
static const float fed_target[12] = {0.5f, -1, 2, 0.25f, 1, -0.5f, -2, 1.5f, 0, 1, 1, 1};
#define FEEDS \
  { tg_feed_i32("idx", fed_indices, 6), tg_feed_f32("target", fed_target, 12) }

/* embedding [5, 4] of idx [6] -> layer norm -> linear [4, 8], relu -> linear [8, 2]; in training random numbers and a state that counts */
static tg_tensor build_output(tg_graph *g) {
    tg_tensor table = tg_param(g, "table", TG_SHAPE(5, 4), .init = tg_init_randn(1));
    tg_layer_norm norm = tg_nn_layer_norm(g, "norm", 4);
    tg_linear up = tg_nn_linear(g, "up", 4, 8), down = tg_nn_linear(g, "down", 8, 2);
    tg_tensor h = tg_nn_layer_norm_fwd(norm, tg_embedding(table, tg_input(g, "idx", TG_SHAPE(6), TG_I32)));
    h = tg_capture("hidden", tg_relu(tg_nn_linear_fwd(up, h)));
    return tg_nn_linear_fwd(down, h);
}

static tg_tensor build_training(tg_graph *g, void *user) {
    (void)user;
    tg_tensor count = tg_state(g, "count", TG_SCALAR, TG_F32, 1.0);
    tg_writeback(count, tg_add(count, 1.0));
    tg_tensor output = build_output(g), drawn = tg_mul(tg_sum_all(tg_dropout(output, 0.25)), 0.0); /* of no effect: losses are compared */
    return tg_add(drawn, tg_nn_mse(output, tg_input(g, "target", TG_SHAPE(6, 2), TG_F32)));
}

static tg_tensor build_forward(tg_graph *g, void *user) {
    (void)user;
    return build_output(g);
}

static tg_compile_options training_options(void) {
    tg_compile_options o;
    memset(&o, 0, sizeof o);
    o.optimizer = tg_adam(.lr = tg_lr_constant(0.01), .weight_decay = 0.01, .clip_norm = 1.0);
    o.threads = 2;
    return o;
}

/* Everything a program does with a model; false at the first error, which must be recorded as memory. */
static bool use_model(tg_model *m, const scenario *s) {
    const tg_feed feeds[] = FEEDS;
    tg_captures *captures = NULL;
    float loss = 0, output[12];
    bool ok = tg_step(m, feeds, 2, &loss) == TG_OK && tg_step_captures(m, feeds, 2, &loss, &captures) == TG_OK;
    if (ok) ok = tg_captures_has(captures, "hidden");
    tg_captures_destroy(captures);
    if (ok) ok = tg_run(m, feeds, 2, &loss, 1) == TG_OK;
    captures = NULL;
    if (ok) ok = tg_run_captures(m, feeds, 2, &loss, 1, &captures) == TG_OK;
    tg_captures_destroy(captures);
    if (ok) ok = tg_model_save(m, s->other) == TG_OK && tg_model_load(m, s->other) == TG_OK && tg_model_load(m, s->path) == TG_OK;
    tg_model *sibling = ok ? tg_compile_sibling(m, build_forward, NULL) : NULL;
    if (ok) ok = sibling != NULL && tg_run(sibling, feeds, 1, output, 12) == TG_OK;
    for (int what = TG_TEXT_IR; what <= TG_TEXT_C && ok; what++) ok = tg_model_text(m, (tg_text)what) != NULL;
    if (ok) ok = tg_model_reset(m) == TG_OK && tg_step(m, feeds, 2, &loss) == TG_OK;
    return ok;
}

static bool whole_scenario(const scenario *s) {
    tg_compile_options o = training_options();
    tg_model *m = tg_compile(s->ctx, build_training, NULL, &o);
    bool ok = m != NULL && use_model(m, s);
    tg_model_destroy(m);
    return ok;
}

static void write_checkpoint(const char *path) {
    tg_context *ctx = support_context();
    tg_compile_options o = training_options();
    tg_model *m = tg_compile(ctx, build_training, NULL, &o);
    support_assert_no_error(ctx);
    assert_int_equal(tg_model_save(m, path), TG_OK);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static void scenario_begin(scenario *s) {
    memset(s, 0, sizeof *s);
    support_path(s->path, sizeof s->path, "alloc.safetensors");
    support_path(s->other, sizeof s->other, "alloc_other.safetensors");
    write_checkpoint(s->path);
}

static void scenario_end(const scenario *s) {
    remove(s->path);
    remove(s->other);
}

static void assert_memory_error(const scenario *s, int64_t n) {
    if (tg_error(s->ctx) == TG_ERROR_MEMORY) return;
    fail_msg("allocation %lld failed: status %d, %s", (long long)n, (int)tg_error(s->ctx), tg_error_message(s->ctx));
}

/* All of a model's life, from the context on. fail_on: once memory is gone it stays gone. */
static void fail_every_allocation(bool fail_on) {
    scenario s;
    bool done = false;
    int64_t n = 0;
    scenario_begin(&s);
    while (!done) {
        n++;
        memset(&s.allocator, 0, sizeof s.allocator);
        s.allocator.fail_at = n;
        s.allocator.fail_on = fail_on;
        s.ctx = support_context_counting(&s.allocator);
        if (s.ctx == NULL) continue; /* the context itself */
        done = whole_scenario(&s);
        if (!done) assert_memory_error(&s, n);
        assert_int_equal(s.ctx->live_bytes, 0);
        assert_int_equal(s.ctx->live_blocks, 0);
        tg_context_destroy(s.ctx);
        assert_int_equal(s.allocator.live_blocks, 0);
        assert_false(s.allocator.size_mismatch);
        assert_true(n < 1000000);
    }
    if (s.allocator.calls >= n)
        fail_msg("the scenario made %lld allocations and survived the failure of number %lld", (long long)s.allocator.calls, (long long)n);
    print_message("%lld allocations\n", (long long)n - 1);
    scenario_end(&s);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    fail_every_allocation(false);
}

static void memory_runs_out(void **state) {
    (void)state;
    fail_every_allocation(true);
}

typedef struct snapshot {
    float table[20], up[32], loss;
} snapshot;

static void snapshot_take(tg_model *m, snapshot *out) {
    const tg_feed feeds[] = FEEDS;
    assert_int_equal(tg_param_download(m, "table", out->table, 20), TG_OK);
    assert_int_equal(tg_param_download(m, "up.W", out->up, 32), TG_OK);
    assert_int_equal(tg_run(m, feeds, 2, &out->loss, 1), TG_OK);
}

/* A model made before in the same context: each failing call leaves its numbers alone, and it goes on working. */
static void an_older_model_survives(void **state) {
    (void)state;
    scenario s;
    snapshot before, after;
    tg_compile_options o = training_options();
    bool done = false;
    scenario_begin(&s);
    s.ctx = support_context_counting(&s.allocator);
    tg_model *old = tg_compile(s.ctx, build_training, NULL, &o);
    support_assert_no_error(s.ctx);
    snapshot_take(old, &before);
    for (int64_t n = 1; !done; n++) {
        int64_t live = s.ctx->live_bytes, blocks = s.ctx->live_blocks;
        s.allocator.fail_at = s.allocator.calls + n;
        done = whole_scenario(&s);
        s.allocator.fail_at = 0;
        if (!done) assert_memory_error(&s, n);
        assert_int_equal(s.ctx->live_bytes, live);
        assert_int_equal(s.ctx->live_blocks, blocks);
        snapshot_take(old, &after);
        assert_memory_equal(&before, &after, sizeof before);
    }
    tg_model_destroy(old);
    tg_context_destroy(s.ctx);
    assert_int_equal(s.allocator.live_blocks, 0);
    scenario_end(&s);
}

/* The failing calls on one model: after each failure its values are those of before the call, and a retry succeeds. */
static void a_failed_call_changes_nothing(void **state) {
    (void)state;
    scenario s;
    scenario_begin(&s);
    for (int call = 0; call < 6; call++) {
        bool done = false;
        for (int64_t n = 1; !done; n++) {
            const tg_feed feeds[] = FEEDS;
            snapshot before, after;
            tg_captures *captures = NULL;
            float out[12], loss = 0;
            tg_compile_options o = training_options();
            memset(&s.allocator, 0, sizeof s.allocator);
            s.ctx = support_context_counting(&s.allocator);
            tg_model *m = tg_compile(s.ctx, build_training, NULL, &o);
            support_assert_no_error(s.ctx);
            assert_int_equal(tg_step(m, feeds, 2, NULL), TG_OK);
            assert_int_equal(tg_run(m, feeds, 2, &loss, 1), TG_OK);
            snapshot_take(m, &before);
            s.allocator.fail_at = s.allocator.calls + n;
            tg_model *sibling = NULL;
            if (call == 0) done = tg_step_captures(m, feeds, 2, &loss, &captures) == TG_OK;
            else if (call == 1) done = tg_run_captures(m, feeds, 2, &loss, 1, &captures) == TG_OK;
            else if (call == 2) done = tg_model_save(m, s.other) == TG_OK;
            else if (call == 3) done = tg_model_load(m, s.path) == TG_OK;
            else if (call == 4) done = (sibling = tg_compile_sibling(m, build_forward, NULL)) != NULL;
            else done = tg_model_text(m, TG_TEXT_PLAN) != NULL;
            s.allocator.fail_at = 0;
            if (!done) {
                assert_memory_error(&s, n);
                assert_null(captures);
                assert_int_equal(tg_model_step_count(m), 1);
                snapshot_take(m, &after);
                assert_memory_equal(&before, &after, sizeof before);
                if (call == 4) {
                    sibling = tg_compile_sibling(m, build_forward, NULL);
                    assert_non_null(sibling);
                    assert_int_equal(tg_run(sibling, feeds, 1, out, 12), TG_OK);
                }
                assert_int_equal(tg_step_captures(m, feeds, 2, &loss, &captures), TG_OK);
            }
            tg_captures_destroy(captures);
            tg_model_destroy(m);
            assert_int_equal(s.ctx->live_bytes, 0);
            tg_context_destroy(s.ctx);
        }
    }
    scenario_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(an_older_model_survives),
        cmocka_unit_test(a_failed_call_changes_nothing),
    };
    return cmocka_run_group_tests_name("alloc_failure", tests, NULL, NULL);
}
