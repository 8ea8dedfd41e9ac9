/* Tests of many models in one process on a real WebGPU library: hundreds one after another, dozens
 * at once, several threads with contexts of their own. They share one device, which stays open for
 * the next model. TENSORGRAD_MANY_MODELS sets how many follow one another; the limit of drivers
 * shows after thirty. Sizes are small, for software adapters. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "run/model.h"
#include "run/webgpu/webgpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MANY_IN_TURN = 500, MANY_AT_ONCE = 50, MANY_THREADS = 2, MANY_OF_A_THREAD = 8, MANY_STEPS = 3 };

static int in_turn(void) {
    const char *text = getenv("TENSORGRAD_MANY_MODELS");
    const int count = text != NULL ? atoi(text) : 0;
    return count > 0 ? count : MANY_IN_TURN;
}
static double now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* By number, not as the best: the suite's own device, which is open all the time, is another then.
 * y = x w with a factor of its own: models of different `user` have different kernels. */
static tg_tensor build(tg_graph *g, void *user) {
    const double factor = user != NULL ? *(const double *)user : 1.0;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(4, 3), TG_F32), y = tg_input(g, "y", TG_SHAPE(4, 1), TG_F32);
    tg_tensor w = tg_param(g, "w", TG_SHAPE(3, 1), .init = tg_init_ones());
    return tg_mean(tg_square(tg_sub(tg_mul(tg_matmul(x, w), factor), y)), TG_ALL);
}

static tg_model *make(tg_context *ctx, tg_device_kind device, double *factor) {
    const tg_compile_options options = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.05)), .device = device, .adapter = "#0"};
    return tg_compile(ctx, build, factor, &options);
}

static tg_status steps(tg_model *m, int count, float *loss) {
    static const float x[12] = {1, 2, 3, -1, 0, 1, 2, 1, 0, 0.5f, -0.5f, 1}, y[4] = {1, -1, 2, 0.5f};
    const tg_feed feeds[] = {tg_feed_f32("x", x, 12), tg_feed_f32("y", y, 4)};
    tg_status status = TG_OK;
    for (int i = 0; i < count && status == TG_OK; i++) status = tg_step(m, feeds, 2, loss);
    return status;
}

static void must(tg_context *ctx, bool good) {
    if (!good) fail_msg("%d: %s", (int)tg_error(ctx), tg_error_message(ctx));
}

/* The losses after one step more each, on the CPU. */
static void on_the_cpu(double *factor, float *losses) {
    tg_context *ctx = support_context();
    tg_model *m = make(ctx, TG_DEVICE_CPU, factor);
    must(ctx, m != NULL);
    for (int i = 0; i < MANY_STEPS; i++) must(ctx, steps(m, 1, &losses[i]) == TG_OK);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static bool near(float a, float b) {
    const float difference = a > b ? a - b : b - a;
    return difference <= 1e-5f * (b > 1 ? b : 1);
}

/* Each makes what it should, on the device that the first one opened; all but the first compile in milliseconds. */
static void hundreds_in_turn(void **state) {
    (void)state;
    support_need_webgpu();
    const int count = in_turn();
    float want[MANY_STEPS], loss = 0;
    double first = 0, longest = 0, sum = 0;
    int64_t made = 0;
    on_the_cpu(NULL, want);
    tg_close_idle_devices();
    for (int i = 0; i < count; i++) {
        tg_context *ctx = support_context(); /* a context of its own too */
        const double start = now();
        tg_model *m = make(ctx, TG_DEVICE_WEBGPU, NULL);
        const double seconds = now() - start;
        must(ctx, m != NULL);
        if (i == 0) first = seconds;
        else sum += seconds;
        if (i > 0 && seconds > longest) longest = seconds;
        must(ctx, steps(m, MANY_STEPS, &loss) == TG_OK);
        if (!near(loss, want[MANY_STEPS - 1])) fail_msg("model %d: loss %g, not %g", i, (double)loss, (double)want[MANY_STEPS - 1]);
        const tg_webgpu_shared_counters shared = tg_webgpu_count_shared(m->family->device);
        if (i == 0) made = shared.made;
        assert_int_equal(shared.made, made); /* nothing is compiled a second time: so the device is the same, too */
        tg_model_destroy(m);
        tg_context_destroy(ctx);
    }
    print_message("%d models in turn: the first compiles in %.1f ms, others in %.2f ms, %.1f ms at most\n", count, first * 1e3,
                  sum / (count > 1 ? count - 1 : 1) * 1e3, longest * 1e3);
    if (count > 1) assert_true(sum / (count - 1) < first / 2);
}

static void dozens_at_once(void **state) {
    (void)state;
    support_need_webgpu();
    static tg_model *models[MANY_AT_ONCE];
    double factors[MANY_AT_ONCE];
    float losses[MANY_AT_ONCE], want[MANY_STEPS];
    tg_context *ctx = support_context();
    for (int i = 0; i < MANY_AT_ONCE; i++) {
        factors[i] = 1.0 + 0.01 * i;
        models[i] = make(ctx, TG_DEVICE_WEBGPU, &factors[i]);
        must(ctx, models[i] != NULL);
        assert_true(tg_webgpu_same_gpu(models[0]->family->device, models[i]->family->device));
    }
    for (int s = 0; s < MANY_STEPS; s++) /* turn by turn */
        for (int i = 0; i < MANY_AT_ONCE; i++) must(ctx, steps(models[i], 1, &losses[i]) == TG_OK);
    for (int i = 0; i < MANY_AT_ONCE; i++) {
        on_the_cpu(&factors[i], want);
        if (!near(losses[i], want[MANY_STEPS - 1]))
            fail_msg("model %d: loss %g, not %g", i, (double)losses[i], (double)want[MANY_STEPS - 1]);
    }
    for (int i = 0; i < MANY_AT_ONCE; i++) tg_model_destroy(models[(i * 7) % MANY_AT_ONCE]); /* in no order */
    tg_context_destroy(ctx);
}

typedef struct worker {
    pthread_t thread;
    double factor;
    float loss, want[MANY_STEPS];
    char message[256];
} worker;

/* Models come and go, with contexts of this thread's own. */
static void *work(void *user) {
    worker *w = user;
    tg_context *ctx = tg_context_create(NULL);
    for (int i = 0; i < MANY_OF_A_THREAD && w->message[0] == '\0'; i++) {
        tg_model *m = make(ctx, TG_DEVICE_WEBGPU, &w->factor);
        if (m == NULL || steps(m, MANY_STEPS, &w->loss) != TG_OK) snprintf(w->message, sizeof w->message, "%.200s", tg_error_message(ctx));
        else if (!near(w->loss, w->want[MANY_STEPS - 1]))
            snprintf(w->message, sizeof w->message, "loss %g, not %g", (double)w->loss, (double)w->want[MANY_STEPS - 1]);
        tg_model_destroy(m);
    }
    tg_context_destroy(ctx);
    return NULL;
}

static void threads_share_the_device(void **state) {
    (void)state;
    support_need_webgpu();
    worker workers[MANY_THREADS];
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < MANY_THREADS; i++) {
        workers[i].factor = 1.5 + i;
        on_the_cpu(&workers[i].factor, workers[i].want);
    }
    for (int i = 0; i < MANY_THREADS; i++) assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < MANY_THREADS; i++) assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < MANY_THREADS; i++)
        if (workers[i].message[0] != '\0') fail_msg("thread %d: %s", i, workers[i].message);
}

/* Those who ask for other things have devices of their own; idle ones may be let go at any time. */
static void who_wishes_otherwise(void **state) {
    (void)state;
    support_need_webgpu();
    tg_context *ctx = support_context();
    float loss = 0;
    tg_model *a = make(ctx, TG_DEVICE_WEBGPU, NULL);
    must(ctx, a != NULL);
    tg_compile_options options = {.optimizer = tg_sgd(.lr = tg_lr_constant(0.05)), .device = TG_DEVICE_WEBGPU};
    tg_model *b = tg_compile(ctx, build, NULL, &options);
    must(ctx, b != NULL);
    assert_false(tg_webgpu_same_gpu(a->family->device, b->family->device));
    tg_close_idle_devices(); /* none is */
    must(ctx, steps(a, 1, &loss) == TG_OK && steps(b, 1, &loss) == TG_OK);
    tg_model_destroy(a);
    tg_close_idle_devices();
    tg_close_idle_devices();
    must(ctx, steps(b, 1, &loss) == TG_OK);
    a = make(ctx, TG_DEVICE_WEBGPU, NULL);
    must(ctx, a != NULL && steps(a, 1, &loss) == TG_OK);
    tg_model_destroy(a);
    tg_model_destroy(b);
    tg_context_destroy(ctx);
}

int main(void) {
    const int refused = support_home_refuses("many models");
    if (refused != 0) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hundreds_in_turn),
        cmocka_unit_test(dozens_at_once),
        cmocka_unit_test(threads_share_the_device),
        cmocka_unit_test(who_wishes_otherwise),
    };
    return cmocka_run_group_tests_name("many models", tests, NULL, NULL);
}
