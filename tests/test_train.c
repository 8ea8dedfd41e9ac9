/* Tests of many steps in one call, and of steps without waiting: the same losses and parameters as
 * tg_step, bit for bit, on the device under test; what ends training; every kind of bad input,
 * which changes nothing; lifetimes; allocations. */
#define _XOPEN_SOURCE 700
#include "fixtures.h"

#include "run/model.h"
#include "run/webgpu/webgpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, ROWS = 11, IDS = 6, STEPS = 24, PARAMS = 3 * 5 + 5 + 5 + 1 + IDS * 5 };

/* ---------------------------------------------------------------- a model with inputs of every dtype, and one that no data set lists */

static tg_tensor build(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(BATCH, 3), TG_F32), id = tg_input(g, "id", TG_SHAPE(BATCH), TG_I32);
    tg_tensor keep = tg_input(g, "keep", TG_SHAPE(BATCH, 5), TG_BOOL), by = tg_input(g, "by", TG_SHAPE(5), TG_F32);
    tg_tensor table = tg_param(g, "table", TG_SHAPE(IDS, 5), .init = tg_init_uniform(0.5));
    tg_linear l1 = tg_nn_linear(g, "l1", 3, 5), l2 = tg_nn_linear(g, "l2", 5, 1);
    tg_tensor h = tg_add(tg_nn_linear_fwd(l1, x), tg_embedding(table, id));
    h = tg_mul(tg_where(keep, tg_tanh(h), 0.0), by);
    return tg_nn_mse(tg_nn_linear_fwd(l2, h), tg_input(g, "y", TG_SHAPE(BATCH, 1), TG_F32));
}

typedef struct train_fixture {
    support_allocator allocator;
    tg_context *ctx;
    float x[ROWS * 3], y[ROWS], by[5];
    int32_t id[ROWS];
    uint8_t keep[ROWS * 5];
} train_fixture;

static int setup(void **state) {
    train_fixture *f = calloc(1, sizeof *f);
    f->ctx = support_context_counting(&f->allocator);
    for (int i = 0; i < ROWS * 3; i++) f->x[i] = sinf((float)i * 1.7f);
    for (int i = 0; i < ROWS; i++) f->y[i] = cosf((float)i);
    for (int i = 0; i < ROWS; i++) f->id[i] = i * 5 % IDS;
    for (int i = 0; i < ROWS * 5; i++) f->keep[i] = i % 3 != 0;
    for (int i = 0; i < 5; i++) f->by[i] = 0.5f + (float)i * 0.25f;
    *state = f;
    return f->ctx != NULL ? 0 : -1;
}

static int teardown(void **state) {
    train_fixture *f = *state;
    tg_context_destroy(f->ctx);
    const bool leaked = support_leaked(&f->allocator);
    free(f);
    return leaked;
}

static tg_model *rows_model(tg_context *ctx) {
    const tg_compile_options o = {.optimizer = tg_adam(.lr = tg_lr_linear_decay(0.05, 0.001, 20), .weight_decay = 0.01),
                                  .seed = 3,
                                  .device = support_device(),
                                  .threads = 1};
    tg_model *m = must(ctx, tg_compile(ctx, build, NULL, &o));
    /* a software adapter makes its code when it is first run: that is not how long a step takes */
    if (support_home_now() == SUPPORT_WEBGPU) tg_webgpu_set_slow(m->family->device, 1000);
    return m;
}

static void arrays_of(train_fixture *f, tg_feed out[4]) {
    out[0] = tg_feed_i32("id", f->id, ROWS);
    out[1] = tg_feed_f32("y", f->y, ROWS);
    out[2] = tg_feed_bool("keep", f->keep, ROWS * 5);
    out[3] = tg_feed_f32("x", f->x, ROWS * 3);
}

static tg_dataset *dataset(train_fixture *f, tg_model *m) {
    tg_feed arrays[4];
    arrays_of(f, arrays);
    tg_dataset *d = tg_dataset_create(m, arrays, 4, ROWS);
    if (d == NULL) fail_msg("%s", tg_error_message(f->ctx));
    return d;
}

/* The rule beside tg_batch_order, written again. */
static int64_t row_of(const tg_train_options *o, int64_t t, int64_t i) {
    if (o->order == TG_BATCH_SEQUENTIAL) return (t * BATCH + i) % ROWS;
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)t, (uint32_t)((uint64_t)t >> 32), 0x726F7773};
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    uint32_t out[4];
    tg_philox(counter, key, out);
    return (int64_t)((uint64_t)out[0] * ROWS >> 32);
}

typedef struct batch {
    float x[BATCH * 3], y[BATCH];
    int32_t id[BATCH];
    uint8_t keep[BATCH * 5];
    tg_feed feeds[5];
} batch;

static void batch_make(train_fixture *f, const tg_train_options *o, int64_t t, batch *b) {
    for (int64_t i = 0; i < BATCH; i++) {
        const int64_t row = row_of(o, t, i);
        memcpy(b->x + i * 3, f->x + row * 3, sizeof(float) * 3);
        b->y[i] = f->y[row];
        b->id[i] = f->id[row];
        memcpy(b->keep + i * 5, f->keep + row * 5, 5);
    }
    b->feeds[0] = tg_feed_f32("x", b->x, BATCH * 3);
    b->feeds[1] = tg_feed_i32("id", b->id, BATCH);
    b->feeds[2] = tg_feed_bool("keep", b->keep, BATCH * 5);
    b->feeds[3] = tg_feed_f32("y", b->y, BATCH);
    b->feeds[4] = tg_feed_f32("by", f->by, 5);
}

static float step_once(train_fixture *f, tg_model *m, const tg_train_options *o) {
    batch b;
    float loss = -1;
    batch_make(f, o, tg_model_step_count(m), &b);
    ok(f->ctx, tg_step(m, b.feeds, 5, &loss));
    return loss;
}

typedef struct view { /* of a model */
    float params[PARAMS], gradient[15];
    int64_t steps;
} view;

static view view_of(tg_model *m) {
    view v;
    tg_context *ctx = tg_model_context(m);
    memset(&v, 0, sizeof v);
    ok(ctx, tg_param_download(m, "l1.W", v.params, 15));
    ok(ctx, tg_param_download(m, "l1.b", v.params + 15, 5));
    ok(ctx, tg_param_download(m, "l2.W", v.params + 20, 5));
    ok(ctx, tg_param_download(m, "l2.b", v.params + 25, 1));
    ok(ctx, tg_param_download(m, "table", v.params + 26, IDS * 5));
    v.steps = tg_model_step_count(m);
    if (v.steps > 0) ok(ctx, tg_param_grad_download(m, "l1.W", v.gradient, 15));
    return v;
}

static tg_train_options options_of(train_fixture *f, int64_t steps, tg_batch_order order, tg_feed *constant) {
    *constant = tg_feed_f32("by", f->by, 5);
    return (tg_train_options){.steps = steps, .order = order, .seed = 0x123456789ABCull, .feeds = constant, .feed_count = 1};
}

/* ---------------------------------------------------------------- the same as steps */

/* 3 steps, 10 and 7 trained, 2 steps, 2 trained: all as 24 steps. */
static void same_as_steps(train_fixture *f, tg_batch_order order, int64_t per_submission) {
    float want[STEPS], got[STEPS];
    tg_feed constant;
    tg_train_options o = options_of(f, 10, order, &constant);
    o.steps_per_submission = per_submission;
    tg_model *stepped = rows_model(f->ctx), *trained = rows_model(f->ctx);
    for (int i = 0; i < STEPS; i++) want[i] = step_once(f, stepped, &o);
    tg_dataset *d = dataset(f, trained);
    tg_train_result r;
    for (int i = 0; i < 3; i++) got[i] = step_once(f, trained, &o);
    ok(f->ctx, tg_train(trained, d, &o, got + 3, &r));
    assert_int_equal(r.steps, 10);
    assert_int_equal(r.end, TG_TRAIN_ALL);
    o.steps = 7;
    ok(f->ctx, tg_train(trained, d, &o, got + 13, NULL));
    for (int i = 20; i < 22; i++) got[i] = step_once(f, trained, &o);
    o.steps = 2;
    ok(f->ctx, tg_train(trained, d, &o, got + 22, &r));
    assert_true(r.loss == want[STEPS - 1]);
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&want[i], &got[i], sizeof(float)) != 0)
            fail_msg("order %d, %lld a submission: step %d: %.9g, wanted %.9g", (int)order, (long long)per_submission, i + 1,
                     (double)got[i], (double)want[i]);
    const view a = view_of(stepped), b = view_of(trained);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(b.steps, STEPS);
    tg_dataset_destroy(d);
    tg_model_destroy(stepped);
    tg_model_destroy(trained);
}

static void training_is_steps_bit_for_bit(void **state) {
    static const int64_t per_submission[] = {0, 1, 2, 3, 4096};
    for (int i = 0; i < 5; i++) same_as_steps(*state, i % 2 == 0 ? TG_BATCH_RANDOM : TG_BATCH_SEQUENTIAL, per_submission[i]);
    same_as_steps(*state, TG_BATCH_SEQUENTIAL, 3);
    same_as_steps(*state, TG_BATCH_SEQUENTIAL, 0);
}

/* One row, fewer rows than a batch, and rows of which the batch is a multiple. */
static tg_tensor build_mean(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(1), .init = tg_init_ones());
    return tg_mean(tg_mul(tg_input(g, "x", TG_SHAPE(6), TG_F32), w), TG_ALL);
}

static void few_rows_are_repeated(void **state) {
    train_fixture *f = *state;
    const float x[3] = {1, 2, 4};
    const tg_compile_options c = {.optimizer = tg_sgd(.lr = tg_lr_constant(1e-30)), .device = support_device(), .threads = 1};
    for (int rows = 1; rows <= 3; rows++) {
        tg_model *m = tg_compile(f->ctx, build_mean, NULL, &c);
        const tg_feed array = tg_feed_f32("x", x, rows);
        tg_dataset *d = tg_dataset_create(m, &array, 1, rows);
        const tg_train_options o = {.steps = 3, .order = TG_BATCH_SEQUENTIAL};
        float losses[3], mean = 0;
        ok(f->ctx, tg_train(m, d, &o, losses, NULL));
        for (int i = 0; i < 6; i++) mean += x[i % rows] / 6;
        for (int i = 0; i < 3; i++) assert_float_equal(losses[i], mean, 1e-6);
        tg_model_destroy(m);
        tg_dataset_destroy(d);
    }
}

/* Each loss says which row was drawn: all come, as often as chance has it, and steps and seeds differ. */
static tg_tensor build_row(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(1), .init = tg_init_ones());
    return tg_sum_all(tg_mul(tg_input(g, "x", TG_SHAPE(1), TG_F32), w));
}

static void random_rows_are_random(void **state) {
    train_fixture *f = *state;
    enum { N = 8, DRAWS = 400 };
    float x[N], losses[2][DRAWS];
    int seen[N] = {0}, repeated = 0, alike = 0;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    const tg_compile_options c = {.optimizer = tg_sgd(.lr = tg_lr_constant(1e-30)), .device = support_device(), .threads = 1};
    tg_model *m = tg_compile(f->ctx, build_row, NULL, &c);
    const tg_feed array = tg_feed_f32("x", x, N);
    tg_dataset *d = tg_dataset_create(m, &array, 1, N);
    for (int seed = 0; seed < 2; seed++) {
        const tg_train_options o = {.steps = DRAWS, .seed = (uint64_t)seed};
        ok(f->ctx, tg_model_reset(m));
        ok(f->ctx, tg_train(m, d, &o, losses[seed], NULL));
    }
    for (int i = 0; i < DRAWS; i++) {
        seen[(int)losses[0][i]]++;
        if (i > 0 && losses[0][i] == losses[0][i - 1]) repeated++;
        if (losses[0][i] == losses[1][i]) alike++;
    }
    for (int i = 0; i < N; i++) assert_in_range(seen[i], 25, 80); /* 50 +- 6.6 */
    assert_in_range(repeated, 25, 80);
    assert_in_range(alike, 25, 80);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- what ends it */

typedef struct watcher {
    tg_model *model;
    int64_t calls, last, stop_at;
    float losses[STEPS];
} watcher;

static bool watch(void *user, int64_t step, float loss) {
    watcher *w = user;
    w->losses[w->calls++] = loss;
    w->last = step;
    return step != w->stop_at;
}

static void progress_is_told_every_step_and_stops(void **state) {
    train_fixture *f = *state;
    tg_feed constant;
    tg_train_options o = options_of(f, STEPS, TG_BATCH_RANDOM, &constant);
    tg_model *m = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m);
    tg_train_result r;
    float losses[STEPS];
    watcher w = {.model = m};
    o.progress = watch;
    o.progress_user = &w;
    ok(f->ctx, tg_train(m, d, &o, losses, &r));
    assert_int_equal(w.calls, STEPS);
    assert_int_equal(w.last, STEPS);
    assert_memory_equal(w.losses, losses, sizeof losses);
    w = (watcher){.model = m, .stop_at = STEPS + 5};
    o.steps_per_submission = 1;
    ok(f->ctx, tg_train(m, d, &o, NULL, &r));
    assert_int_equal(r.end, TG_TRAIN_STOPPED);
    assert_int_equal(r.steps, 5);
    assert_int_equal(w.calls, 5);
    assert_int_equal(tg_model_step_count(m), STEPS + 5);
    w = (watcher){.model = m, .stop_at = STEPS + 7};
    o.steps_per_submission = 4; /* on a GPU the rest of the submission is made */
    ok(f->ctx, tg_train(m, d, &o, NULL, &r));
    assert_int_equal(w.calls, 2);
    assert_int_equal(r.steps, support_home_now() == SUPPORT_WEBGPU ? 4 : 2);
    assert_int_equal(tg_model_step_count(m), STEPS + 5 + r.steps);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

static void target_and_patience_end_it(void **state) {
    train_fixture *f = *state;
    tg_feed constant;
    tg_train_options o = options_of(f, STEPS, TG_BATCH_SEQUENTIAL, &constant);
    tg_model *m = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m);
    tg_train_result r;
    float losses[STEPS];
    o.steps_per_submission = 1;
    ok(f->ctx, tg_train(m, d, &o, losses, NULL));
    int first = 0;
    for (int i = 0; i < STEPS; i++) /* the first below the first */
        if (losses[i] < losses[0] && first == 0) first = i;
    assert_true(first > 0);
    o.target_loss = (double)losses[first];
    ok(f->ctx, tg_model_reset(m));
    ok(f->ctx, tg_train(m, d, &o, NULL, &r));
    assert_int_equal(r.end, TG_TRAIN_TARGET);
    assert_int_equal(r.steps, first + 1);
    assert_true(r.loss == losses[first] && r.best == losses[first]);
    o.target_loss = 0;
    o.patience = 2;
    int64_t best = 0, wanted = STEPS;
    for (int64_t i = 1; i < STEPS && wanted == STEPS; i++) {
        if (losses[i] < losses[best]) best = i;
        else if (i - best >= 2) wanted = i + 1;
    }
    assert_true(wanted < STEPS);
    ok(f->ctx, tg_model_reset(m));
    ok(f->ctx, tg_train(m, d, &o, NULL, &r));
    assert_int_equal(r.end, TG_TRAIN_PATIENCE);
    assert_int_equal(r.steps, wanted);
    assert_true(r.best == losses[best]);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

static void a_loss_that_is_not_finite_ends_it(void **state) {
    train_fixture *f = *state;
    tg_feed constant;
    tg_train_options o = options_of(f, 6, TG_BATCH_SEQUENTIAL, &constant);
    tg_train_result r;
    float losses[6];
    f->y[9] = NAN; /* of the third batch */
    tg_model *m = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m);
    o.steps_per_submission = 1;
    expect_error(f->ctx, tg_train(m, d, &o, losses, &r), TG_ERROR_NOT_FINITE, "step 3: loss is nan");
    assert_int_equal(r.steps, 3);
    assert_int_equal(r.end, TG_TRAIN_FAILED);
    assert_true(isnan(r.loss) && isnan(losses[2]) && isfinite(losses[1]) && r.best == fminf(losses[0], losses[1]));
    assert_int_equal(tg_model_step_count(m), 3);
    ok(f->ctx, tg_model_reset(m));
    o.steps_per_submission = 4;
    expect_error(f->ctx, tg_train(m, d, &o, losses, &r), TG_ERROR_NOT_FINITE, "step 3: loss is nan");
    assert_int_equal(tg_model_step_count(m), r.steps);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- mistakes */

typedef struct bad_data {
    const char *says;
    tg_status code;
    int array;       /* of the four, -1: none changed */
    tg_feed instead; /* name NULL: only count and rows are looked at */
    int64_t rows;    /* 0: ROWS */
    int n;           /* 0: 4 */
} bad_data;

/* mean(w^2) + 0 mean(exp(w x)): infinity times 0 */
static tg_tensor build_hidden_infinity(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor w = tg_param(g, "w", TG_SHAPE(3), .init = tg_init_ones()), x = tg_input(g, "x", TG_SHAPE(3), TG_F32);
    return tg_add(tg_mean(tg_mul(w, w), TG_ALL), tg_mul(0.0, tg_mean(tg_exp(tg_mul(w, x)), TG_ALL)));
}
static void a_factor_of_zero_hides_no_infinity(void **state) {
    train_fixture *f = *state;
    const tg_compile_options o = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.1)), .device = support_device(), .threads = 1};
    const float x[3] = {100, 1, 1};
    const tg_feed feed = tg_feed_f32("x", x, 3);
    float loss = 0;
    tg_model *m = tg_compile(f->ctx, build_hidden_infinity, NULL, &o);
    if (m == NULL) fail_msg("%s", tg_error_message(f->ctx));
    expect_error(f->ctx, tg_step(m, &feed, 1, &loss), TG_ERROR_NOT_FINITE, "step 1: loss is nan");
    assert_true(isnan(loss));
    tg_model_destroy(m);
}

static void bad_data_is_refused(void **state) {
    train_fixture *f = *state;
    const float no_rows[1] = {0};
    int32_t ids[ROWS] = {0};
    uint8_t bools[ROWS * 5] = {0};
    ids[7] = 9;
    bools[13] = 2;
    const bad_data cases[] = {
        {"rows is 0", TG_ERROR_ARGUMENT, -1, {0}, .rows = -1},
        {"rows is -5", TG_ERROR_ARGUMENT, -1, {0}, .rows = -5},
        {"unknown input z (inputs: x, id, keep, by, y)", TG_ERROR_NOT_FOUND, 3, tg_feed_f32("z", f->x, ROWS * 3), 0, 0},
        {"input x is f32, fed as i32", TG_ERROR_DTYPE, 3, tg_feed_i32("x", f->id, ROWS * 3), 0, 0},
        {"11 rows for input x[4, 3] are 11 x 3 elements, given 32", TG_ERROR_SHAPE, 3, tg_feed_f32("x", f->x, ROWS * 3 - 1), 0, 0},
        {"10 rows for input id[4] are 10 x 1 elements, given 11", TG_ERROR_SHAPE, -1, {0}, .rows = 10},
        {"input x is fed from NULL", TG_ERROR_ARGUMENT, 3, tg_feed_f32("x", NULL, ROWS * 3), 0, 0},
        {"input id is given twice", TG_ERROR_DUPLICATE, 3, tg_feed_i32("id", f->id, ROWS), 0, 0},
        {"input by[5] takes batches of 5 rows, those before it of 4", TG_ERROR_SHAPE, 3, tg_feed_f32("by", f->x, ROWS), 0, 0},
        {"embedding: index 9 at position 7 is outside [0, 6)", TG_ERROR_INDEX, 0, tg_feed_i32("id", ids, ROWS), 0, 0},
        {"bool input keep: 2 at position 13 is neither 0 nor 1", TG_ERROR_ARGUMENT, 2, tg_feed_bool("keep", bools, ROWS * 5), 0, 0},
        {"feed 3 has no name", TG_ERROR_ARGUMENT, 3, tg_feed_f32(NULL, f->x, ROWS * 3), 0, 0},
        {"no arrays", TG_ERROR_ARGUMENT, -1, {0}, .n = -1},
        {"elements", TG_ERROR_LIMIT, 3, tg_feed_f32("x", no_rows, ROWS * 3), .rows = INT32_MAX, .n = -4},
    };
    tg_model *m = rows_model(f->ctx);
    (void)step_once(f, m, &(tg_train_options){.order = TG_BATCH_SEQUENTIAL});
    const view before = view_of(m);
    const int64_t live = f->allocator.live_blocks;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bad_data *c = &cases[i];
        tg_feed arrays[4];
        arrays_of(f, arrays);
        if (c->array >= 0) arrays[c->array] = c->instead;
        const int n = c->n == 0 ? 4 : c->n == -4 ? 1 : 0;
        tg_dataset *d = tg_dataset_create(m, c->n == -4 ? arrays + 3 : arrays, n, c->rows == 0 ? ROWS : c->rows == -1 ? 0 : c->rows);
        assert_null(d);
        expect_error(f->ctx, tg_error(f->ctx), c->code, c->says);
        assert_int_equal(f->allocator.live_blocks, live);
    }
    const view after = view_of(m);
    assert_memory_equal(&before, &after, sizeof before);
    assert_null(tg_dataset_create(NULL, NULL, 0, 1));
    tg_dataset_destroy(NULL);
    tg_model_destroy(m);
}

static tg_tensor build_output(tg_graph *g, void *user) {
    (void)user;
    return tg_relu(tg_input(g, "x", TG_SHAPE(BATCH, 3), TG_F32));
}

static tg_tensor build_scalar(tg_graph *g, void *user) { return tg_mul(build_mean(g, user), tg_input(g, "by", TG_SCALAR, TG_F32)); }

static void wrong_models_are_refused(void **state) {
    train_fixture *f = *state;
    const tg_feed array = tg_feed_f32("x", f->x, 6), both[] = {array, tg_feed_f32("by", f->x, 6)};
    const tg_compile_options o = {.device = support_device(), .threads = 1};
    tg_model *forward = tg_compile_forward(f->ctx, build_output, NULL, &o);
    assert_null(tg_dataset_create(forward, &array, 1, 2));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_STATE, "forward model");
    tg_model *still = tg_compile(f->ctx, build_mean, NULL, &o), *scalar = tg_compile(f->ctx, build_scalar, NULL, &o);
    assert_null(tg_dataset_create(scalar, both, 2, 6));
    expect_error(f->ctx, tg_error(f->ctx), TG_ERROR_SHAPE, "input by has no axis for the batch");
    tg_dataset *d = tg_dataset_create(still, &array, 1, 6);
    const tg_train_options train = {.steps = 1};
    expect_error(f->ctx, tg_train(still, d, &train, NULL, NULL), TG_ERROR_STATE, "no optimizer and writes nothing back");
    expect_error(f->ctx, tg_train(forward, d, &train, NULL, NULL), TG_ERROR_STATE, "forward model");
    assert_int_equal(tg_train(NULL, d, &train, NULL, NULL), TG_ERROR_ARGUMENT);
    tg_dataset_destroy(d);
    tg_model_destroy(scalar);
    tg_model_destroy(still);
    tg_model_destroy(forward);
}

typedef struct bad_call {
    const char *says;
    tg_status code;
    tg_train_options change; /* fields that are not 0 */
    int feeds;               /* -1: none; 1, 2: as below */
} bad_call;

static void bad_calls_change_nothing(void **state) {
    train_fixture *f = *state;
    const bad_call cases[] = {
        {"steps is -1, outside", TG_ERROR_ARGUMENT, {.steps = -1}, 0},
        {"steps after the 1 made are more than 2^31 - 1", TG_ERROR_ARGUMENT, {.steps = INT32_MAX}, 0},
        {"no batch order 7", TG_ERROR_ARGUMENT, {.order = (tg_batch_order)7}, 0},
        {"steps_per_submission is 4097", TG_ERROR_ARGUMENT, {.steps_per_submission = 4097}, 0},
        {"steps_per_submission is -1", TG_ERROR_ARGUMENT, {.steps_per_submission = -1}, 0},
        {"patience is -2", TG_ERROR_ARGUMENT, {.patience = -2}, 0},
        {"target_loss must be finite, got", TG_ERROR_ARGUMENT, {.target_loss = NAN}, 0},
        {"inputs not fed: by", TG_ERROR_NOT_FOUND, {0}, -1},
        {"input x is fed twice", TG_ERROR_DUPLICATE, {0}, 1},
        {"input by[5] takes 5 elements, fed 4", TG_ERROR_SHAPE, {0}, 2},
        {"unknown input q", TG_ERROR_NOT_FOUND, {0}, 3},
    };
    tg_model *m = rows_model(f->ctx), *other = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m), *others = dataset(f, other);
    float losses[4] = {-7, -7, -7, -7};
    tg_train_result r = {.steps = -7};
    (void)step_once(f, m, &(tg_train_options){.order = TG_BATCH_SEQUENTIAL});
    const view before = view_of(m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bad_call *c = &cases[i];
        tg_feed feeds[2];
        tg_train_options o = options_of(f, 4, TG_BATCH_RANDOM, feeds);
        feeds[1] = tg_feed_f32("x", f->x, BATCH * 3);
        if (c->change.steps != 0) o.steps = c->change.steps;
        if (c->change.order != 0) o.order = c->change.order;
        if (c->change.steps_per_submission != 0) o.steps_per_submission = c->change.steps_per_submission;
        if (c->change.patience != 0) o.patience = c->change.patience;
        if (c->change.target_loss != 0) o.target_loss = c->change.target_loss;
        if (c->feeds == -1) o.feed_count = 0;
        if (c->feeds == 1) o.feed_count = 2;
        if (c->feeds == 2) feeds[0].count = 4;
        if (c->feeds == 3) feeds[0].name = "q";
        expect_error(f->ctx, tg_train(m, d, &o, losses, &r), c->code, c->says);
    }
    const tg_train_options fine = {.steps = 1};
    expect_error(f->ctx, tg_train(m, d, NULL, losses, &r), TG_ERROR_ARGUMENT, "options is NULL");
    expect_error(f->ctx, tg_train(m, NULL, &fine, losses, &r), TG_ERROR_ARGUMENT, "data set is NULL");
    expect_error(f->ctx, tg_train(m, others, &fine, losses, &r), TG_ERROR_ARGUMENT, "another model's");
    tg_model_destroy(other);
    expect_error(f->ctx, tg_train(m, others, &fine, losses, &r), TG_ERROR_STATE, "model was destroyed");
    const view after = view_of(m);
    assert_memory_equal(&before, &after, sizeof before);
    assert_true(losses[0] == -7 && r.steps == -7);
    tg_dataset_destroy(others);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- life */

static bool run_and_meddle(void *user, int64_t step, float loss) {
    watcher *w = user;
    tg_context *ctx = tg_model_context(w->model);
    float output = 0;
    batch b;
    train_fixture f = {.ctx = ctx};
    tg_feed constant;
    const tg_train_options o = options_of(&f, 1, TG_BATCH_SEQUENTIAL, &constant);
    (void)step;
    (void)loss;
    batch_make(&f, &o, 0, &b);
    ok(ctx, tg_run(w->model, b.feeds, 5, &output, 1));
    expect_error(ctx, tg_train(w->model, NULL, &o, NULL, NULL), TG_ERROR_STATE, "being trained");
    (void)tg_run(w->model, NULL, 0, &output, 1); /* a mistake of its own */
    w->calls++;
    return true;
}

static void data_sets_live_as_they_should(void **state) {
    train_fixture *f = *state;
    tg_feed constant;
    tg_train_options o = options_of(f, 6, TG_BATCH_SEQUENTIAL, &constant);
    float want[6], got[6];
    tg_model *m = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m), *second = dataset(f, m);
    ok(f->ctx, tg_train(m, d, &o, want, NULL));
    ok(f->ctx, tg_model_reset(m));
    memset(f->x, 0, sizeof f->x); /* it has been copied */
    watcher w = {.model = m};
    o.progress = run_and_meddle;
    o.progress_user = &w;
    ok(f->ctx, tg_train(m, second, &o, got, NULL));
    assert_int_equal(tg_error(f->ctx), TG_OK);
    assert_int_equal(w.calls, 6);
    assert_memory_equal(want, got, sizeof want);
    o.steps = 0;
    tg_train_result r = {.steps = 5};
    const view before = view_of(m);
    ok(f->ctx, tg_train(m, d, &o, NULL, &r));
    assert_true(r.steps == 0 && r.end == TG_TRAIN_ALL && isnan(r.loss));
    const view after = view_of(m);
    assert_memory_equal(&before, &after, sizeof before);
    tg_dataset_destroy(d);
    o.steps = 2;
    ok(f->ctx, tg_train(m, second, &o, NULL, NULL));
    tg_model_destroy(m);
    tg_dataset_destroy(second);
}

static void training_allocates_nothing(void **state) {
    train_fixture *f = *state;
    tg_feed constant;
    tg_train_options o = options_of(f, 2, TG_BATCH_RANDOM, &constant);
    tg_model *m = rows_model(f->ctx);
    tg_dataset *d = dataset(f, m);
    batch b;
    tg_ticket ticket;
    batch_make(f, &o, 0, &b);
    ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket)); /* the first makes the table */
    ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
    ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
    const int64_t calls = f->allocator.calls;
    ok(f->ctx, tg_train(m, d, &o, NULL, NULL));
    o.steps = 300;
    ok(f->ctx, tg_train(m, d, &o, NULL, NULL));
    for (int i = 0; i < 10; i++) ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
    ok(f->ctx, tg_wait(m, ticket, NULL));
    assert_int_equal(f->allocator.calls, calls);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- models of another kind */

static tg_tensor build_by_hand(tg_graph *g, void *user) { /* the loss is a number */
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(2), TG_F32), total = tg_state(g, "total", TG_SCALAR, TG_F32, 0);
    tg_tensor unused = tg_input(g, "unused", TG_SHAPE(2, 7), TG_F32);
    tg_writeback(total, tg_add(total, tg_sum_all(x)));
    return tg_mul(tg_sum_all(tg_stop_gradient(tg_mul(unused, 0.0))), 0.0);
}

static tg_tensor read_total(tg_graph *g, void *user) {
    (void)user;
    return tg_reshape(tg_state(g, "total", TG_SCALAR, TG_F32, 0), TG_SHAPE(1));
}

static tg_tensor build_constant(tg_graph *g, void *user) {
    (void)build_by_hand(g, user);
    return tg_full(g, TG_SCALAR, 2.5, TG_F32);
}

static void updates_by_hand_are_trained(void **state) {
    train_fixture *f = *state;
    const tg_compile_options o = {.device = support_device(), .threads = 1};
    const float x[5] = {1, 2, 4, 8, 16}, unused[35] = {0};
    const tg_feed arrays[] = {tg_feed_f32("unused", unused, 35), tg_feed_f32("x", x, 5)};
    const tg_build_fn builds[] = {build_by_hand, build_constant};
    for (int i = 0; i < 2; i++) {
        float total = 0, losses[5];
        tg_model *m = tg_compile(f->ctx, builds[i], NULL, &o);
        if (m == NULL) fail_msg("%s", tg_error_message(f->ctx));
        tg_model *reader = tg_compile_sibling(m, read_total, NULL);
        tg_dataset *d = tg_dataset_create(m, arrays, 2, 5);
        if (d == NULL) fail_msg("%s", tg_error_message(f->ctx));
        const tg_train_options train = {.steps = 5, .order = TG_BATCH_SEQUENTIAL, .steps_per_submission = 3};
        ok(f->ctx, tg_train(m, d, &train, losses, NULL));
        for (int k = 0; k < 5; k++) assert_true(losses[k] == (i == 0 ? 0.0f : 2.5f));
        ok(f->ctx, tg_run(reader, NULL, 0, &total, 1));
        assert_true(total == 2 * 31);
        tg_ticket ticket;
        const tg_feed one[] = {tg_feed_f32("unused", unused, 14), tg_feed_f32("x", x, 2)};
        ok(f->ctx, tg_step_async(m, one, 2, &ticket));
        ok(f->ctx, tg_wait(m, ticket, &losses[0]));
        assert_true(losses[0] == (i == 0 ? 0.0f : 2.5f));
        ok(f->ctx, tg_run(reader, NULL, 0, &total, 1));
        assert_true(total == 2 * 31 + 3);
        tg_dataset_destroy(d);
        tg_model_destroy(m);
    }
}

/* Indices that the model computes are looked at before each step. */
static tg_tensor build_computed(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(2), TG_F32), table = tg_param(g, "table", TG_SHAPE(5, 1));
    return tg_mean(tg_square(tg_embedding(table, tg_cast(tg_mul(x, 2.0), TG_I32))), TG_ALL);
}

static void computed_indices_are_checked_in_training(void **state) {
    train_fixture *f = *state;
    const tg_compile_options o = {.optimizer = tg_adam(.lr = tg_lr_constant(0.1)), .device = support_device(), .threads = 1};
    float x[6] = {0, 1, 1.5f, 2, 0.5f, 7}, losses[4], want[2], table[2][5];
    const tg_feed array = tg_feed_f32("x", x, 6);
    tg_model *m = tg_compile(f->ctx, build_computed, NULL, &o);
    tg_dataset *d = tg_dataset_create(m, &array, 1, 6);
    if (d == NULL) fail_msg("%s", tg_error_message(f->ctx));
    const tg_train_options train = {.steps = 4, .order = TG_BATCH_SEQUENTIAL, .steps_per_submission = 4};
    for (int i = 0; i < 2; i++) {
        const tg_feed two = tg_feed_f32("x", x + i * 2, 2);
        ok(f->ctx, tg_step(m, &two, 1, &want[i]));
    }
    ok(f->ctx, tg_param_download(m, "table", table[0], 5));
    ok(f->ctx, tg_model_reset(m));
    tg_train_result r;
    expect_error(f->ctx, tg_train(m, d, &train, losses, &r), TG_ERROR_INDEX, "a computed index is outside [0, 5)");
    assert_int_equal(r.steps, 2);
    assert_int_equal(r.end, TG_TRAIN_FAILED);
    assert_int_equal(tg_model_step_count(m), 2);
    assert_memory_equal(losses, want, sizeof want);
    ok(f->ctx, tg_param_download(m, "table", table[1], 5));
    assert_memory_equal(table[0], table[1], sizeof table[0]);
    tg_ticket ticket = 5;
    const tg_feed bad = tg_feed_f32("x", x + 4, 2), good = tg_feed_f32("x", x, 2);
    expect_error(f->ctx, tg_step_async(m, &bad, 1, &ticket), TG_ERROR_INDEX, "a computed index");
    assert_int_equal(ticket, 0);
    ok(f->ctx, tg_step_async(m, &good, 1, &ticket));
    bool done = false;
    ok(f->ctx, tg_poll(m, ticket, &done));
    assert_true(done);
    tg_dataset_destroy(d);
    tg_model_destroy(m);
}

/* ---------------------------------------------------------------- steps that are not waited for */

static void tickets_give_what_steps_give(void **state) {
    train_fixture *f = *state;
    const tg_train_options o = {.order = TG_BATCH_SEQUENTIAL};
    float want[STEPS], got = 0;
    tg_ticket tickets[STEPS];
    tg_model *stepped = rows_model(f->ctx), *m = rows_model(f->ctx);
    for (int i = 0; i < STEPS; i++) want[i] = step_once(f, stepped, &o);
    for (int i = 0; i < STEPS; i++) {
        if (i % 7 == 5) { /* one that is waited for, among the others */
            assert_true(step_once(f, m, &o) == want[i]);
            tickets[i] = 0;
            continue;
        }
        batch b;
        batch_make(f, &o, tg_model_step_count(m), &b);
        ok(f->ctx, tg_step_async(m, b.feeds, 5, &tickets[i]));
        memset(&b, 0xFF, sizeof b); /* feeds are the caller's again */
        assert_int_equal(tg_model_step_count(m), i + 1);
    }
    for (int i = STEPS - 1; i >= 0; i--) {
        bool done = false;
        if (tickets[i] == 0) continue;
        ok(f->ctx, tg_wait(m, tickets[i], &got));
        if (got != want[i]) fail_msg("step %d: %.9g, wanted %.9g", i + 1, (double)got, (double)want[i]);
        ok(f->ctx, tg_wait(m, tickets[i], NULL)); /* again */
        ok(f->ctx, tg_poll(m, tickets[i], &done));
        assert_true(done);
    }
    const view a = view_of(stepped), b = view_of(m);
    assert_memory_equal(&a, &b, sizeof a);
    tg_model_destroy(stepped);
    tg_model_destroy(m);
}

static void polling_comes_to_an_end(void **state) {
    train_fixture *f = *state;
    const tg_train_options o = {.order = TG_BATCH_SEQUENTIAL};
    tg_model *m = rows_model(f->ctx);
    batch b;
    tg_ticket ticket = 0;
    bool done = false;
    batch_make(f, &o, 0, &b);
    for (int i = 0; i < 3; i++) ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
    assert_int_equal(ticket, 3);
    while (!done) ok(f->ctx, tg_poll(m, ticket, &done));
    ok(f->ctx, tg_poll(m, 1, &done));
    assert_true(done);
    tg_model_destroy(m);
}

static void mistakes_come_where_they_belong(void **state) {
    train_fixture *f = *state;
    const tg_train_options o = {.order = TG_BATCH_SEQUENTIAL};
    tg_model *m = rows_model(f->ctx);
    batch b;
    tg_ticket ticket = 9, nan_ticket = 0;
    float loss = 0;
    bool done = false;
    batch_make(f, &o, 0, &b);
    expect_error(f->ctx, tg_wait(m, 1, &loss), TG_ERROR_NOT_FOUND, "there is no ticket 1");
    expect_error(f->ctx, tg_poll(m, 0, &done), TG_ERROR_NOT_FOUND, "there is no ticket 0");
    expect_error(f->ctx, tg_step_async(m, b.feeds, 4, &ticket), TG_ERROR_NOT_FOUND, "step_async: inputs not fed: by");
    assert_int_equal(ticket, 0);
    b.id[2] = 6;
    expect_error(f->ctx, tg_step_async(m, b.feeds, 5, &ticket), TG_ERROR_INDEX, "index 6 at position 2");
    assert_int_equal(tg_model_step_count(m), 0);
    expect_error(f->ctx, tg_step_async(m, b.feeds, 5, NULL), TG_ERROR_ARGUMENT, "ticket is NULL");
    b.id[2] = 1;
    b.y[1] = INFINITY;
    ok(f->ctx, tg_step_async(m, b.feeds, 5, &nan_ticket));
    b.y[1] = 0;
    ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket)); /* the call that is not to blame */
    expect_error(f->ctx, tg_wait(m, nan_ticket, &loss), TG_ERROR_NOT_FINITE, "step 1: loss is inf");
    assert_true(isinf(loss));
    expect_error(f->ctx, tg_wait(m, nan_ticket, NULL), TG_ERROR_NOT_FINITE, "step 1: loss is inf");
    ok(f->ctx, tg_model_reset(m));
    batch_make(f, &o, 0, &b);
    for (int i = 0; i < TG_TICKETS; i++) ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
    expect_error(f->ctx, tg_wait(m, nan_ticket, &loss), TG_ERROR_NOT_FOUND, "ticket 1 is too old: 256 are remembered");
    ok(f->ctx, tg_wait(m, 3, &loss));
    expect_error(f->ctx, tg_wait(m, ticket + 1, &loss), TG_ERROR_NOT_FOUND, "there is no ticket 259");
    tg_model *forward = tg_compile_sibling(m, build_output, NULL);
    expect_error(f->ctx, tg_step_async(forward, NULL, 0, &ticket), TG_ERROR_STATE, "forward model");
    assert_int_equal(tg_step_async(NULL, NULL, 0, &ticket), TG_ERROR_ARGUMENT);
    assert_int_equal(tg_wait(NULL, 1, NULL), TG_ERROR_ARGUMENT);
    assert_int_equal(tg_poll(NULL, 1, &done), TG_ERROR_ARGUMENT);
    tg_model_destroy(m);
}

/* Whatever comes while steps are under way: they are waited for, and nothing is left. */
static void everything_waits_for_steps_under_way(void **state) {
    train_fixture *f = *state;
    const tg_train_options o = {.order = TG_BATCH_SEQUENTIAL};
    for (int what = 0; what < 6; what++) {
        tg_model *m = rows_model(f->ctx), *sibling = tg_compile_sibling(m, build_output, NULL);
        tg_dataset *d = dataset(f, m);
        tg_feed constant;
        const tg_train_options train = options_of(f, 2, TG_BATCH_SEQUENTIAL, &constant);
        batch b;
        tg_ticket ticket = 0;
        float output[BATCH * 3];
        batch_make(f, &o, 0, &b);
        for (int i = 0; i < 2; i++) ok(f->ctx, tg_step_async(m, b.feeds, 5, &ticket));
        if (what == 0) ok(f->ctx, tg_run(sibling, b.feeds, 1, output, BATCH * 3));
        if (what == 1) ok(f->ctx, tg_model_set_lr(m, tg_lr_constant(0.5)));
        if (what == 2) ok(f->ctx, tg_train(m, d, &train, NULL, NULL));
        if (what == 3) tg_model_destroy(sibling);
        if (what == 4) tg_dataset_destroy(d);
        if (what == 5) assert_non_null(tg_compile_sibling(m, build_output, NULL));
        tg_model_destroy(m);
        if (what != 4) tg_dataset_destroy(d);
    }
}

int main(void) {
    const int refused = support_home_refuses("train");
    if (refused) return refused;
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(training_is_steps_bit_for_bit),
        TEST(few_rows_are_repeated),
        TEST(random_rows_are_random),
        TEST(progress_is_told_every_step_and_stops),
        TEST(target_and_patience_end_it),
        TEST(a_loss_that_is_not_finite_ends_it),
        TEST(a_factor_of_zero_hides_no_infinity),
        TEST(bad_data_is_refused),
        TEST(wrong_models_are_refused),
        TEST(bad_calls_change_nothing),
        TEST(data_sets_live_as_they_should),
        TEST(training_allocates_nothing),
        TEST(updates_by_hand_are_trained),
        TEST(computed_indices_are_checked_in_training),
        TEST(tickets_give_what_steps_give),
        TEST(polling_comes_to_an_end),
        TEST(mistakes_come_where_they_belong),
        TEST(everything_waits_for_steps_under_way),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
