/* numeric: cases given by literal numbers, for suites that include this once: inputs by name, what the result and captures must be.
 * Each runs on the f64 reference (which the numbers test, too) and on the CPU executor fused, not fused, on lesser instruction sets
 * and with 8 arguments per kernel; on WebGPU (see support_home) fused, not fused and with 4 arguments. With NUMERIC_IN_COMPANY each runs
 * a second time with other operations on the same inputs and on the result, which share its kernels. */
#ifndef TESTS_NUMERIC_H
#define TESTS_NUMERIC_H

#include "support.h"

#ifdef NUMERIC_IN_COMPANY
#  include "ir/graph.h"
#endif

#include <string.h>

typedef struct fed {
    const char *name;
    const double *values;
    int count;
} fed;
typedef struct expected {
    const char *name;
    const double *values;
    int count;
    double relative, absolute;
} expected;
#define LIST(...) ((const double[]){__VA_ARGS__}), (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))
#define FED(name, ...) \
  { name, LIST(__VA_ARGS__) }
#define WANT(name, ...) \
  { name, LIST(__VA_ARGS__), 1e-5, 1e-6 }
#define EXACTLY(name, ...) \
  { name, LIST(__VA_ARGS__), 0.0, 0.0 }

static void fill_fed(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)shape;
    (void)dtype;
    for (const fed *f = user; f->name; f++) {
        if (strcmp(f->name, name) != 0) continue;
        if (f->count != count) fail_msg("%s: %d values for %d elements", name, f->count, (int)count);
        memcpy(out, f->values, sizeof *out * (size_t)count);
        return;
    }
    fail_msg("no values for %s", name);
}

static void run_case(tg_build_fn build, void *user, const fed *values, const expected *wants) {
    static const support_options ways[] = {{0}, {.no_fusion = true}, {.max_arguments = 8}, {.isa = "scalar"}, {.isa = "avx2"}};
    static const support_options webgpu_ways[] = {{0}, {.no_fusion = true}, {.max_arguments = 4}};
    const bool webgpu = support_home_now() == SUPPORT_WEBGPU;
    const int count = webgpu ? SUPPORT_COUNT(webgpu_ways) : SUPPORT_COUNT(ways);
    for (int way = -1; way < count; way++) { /* -1: the reference */
        const support_case c = {build, user, fill_fed, (void *)(uintptr_t)values};
        support_outputs got;
        if (!(way < 0 ? support_run_reference(&c, 1, &got) : support_run_home(&c, &(webgpu ? webgpu_ways : ways)[way], &got)))
            fail_msg("way %d: %s: %s", way, tg_status_name(got.status), got.message);
        bool same = true;
        for (const expected *w = wants; w->name; w++) {
            const support_value *v = support_outputs_find(&got, w->name);
            assert_int_equal(v->count, w->count);
            char label[96];
            snprintf(label, sizeof label, "way %d: %s", way, w->name);
            same = support_compare(label, v->data, w->values, w->count, (support_tolerance){0.0, w->absolute, w->relative}) && same;
        }
        support_outputs_free(&got);
        assert_true(same);
    }
}

#ifdef NUMERIC_IN_COMPANY
static void add_company(tg_graph *g, tg_tensor x, const char *name) {
    if (tg_tensor_dtype(x) == TG_F32) tg_capture(name, tg_tanh(tg_sub(tg_mul(x, 0.5), 1.0)));
    if (tg_tensor_dtype(x) == TG_I32) tg_capture(name, tg_maximum(tg_add(x, 1), 3));
    (void)g;
}

static tg_tensor build_in_company(tg_graph *g, void *user) {
    static const char *const names[] = {"beside 0", "beside 1", "beside 2", "beside 3", "beside 4", "beside 5"};
    const tg_tensor y = (*(const tg_build_fn *)user)(g, NULL);
    int beside = 0;
    add_company(g, y, "behind");
    const int64_t count = g->nodes.count;
    for (int32_t id = 1; id < count && beside < 6; id++)
        if (tg_graph_node(g, id)->op == TG_OP_INPUT) add_company(g, (tg_tensor){g, id}, names[beside++]);
    return y;
}
#endif

static void check_case(tg_build_fn build, const fed *values, const expected *wants) {
    run_case(build, NULL, values, wants);
#ifdef NUMERIC_IN_COMPANY
    run_case(build_in_company, &build, values, wants);
#endif
}
#define CHECK(build, feeds, ...) \
  check_case(build, (const fed[]){feeds, {NULL, NULL, 0}}, (const expected[]){__VA_ARGS__, {NULL, NULL, 0, 0, 0}})
#define FEEDS(...) __VA_ARGS__

#define in(g, name, shape) tg_input(g, name, shape, TG_F32)

/* Captures d y / d wrt[i] under the input "cot" as "d0", "d1"; returns y. */
static tg_tensor with_gradients(tg_graph *g, tg_tensor y, const tg_tensor *wrt, int n) {
    static const char *const names[] = {"d0", "d1", "d2"};
    tg_tensor grads[3];
    tg_vjp(y, tg_input(g, "cot", tg_tensor_shape(y), TG_F32), wrt, n, grads);
    for (int i = 0; i < n; i++) tg_capture(names[i], grads[i]);
    return y;
}

#define BUILD(name, ...) \
  static tg_tensor build_##name(tg_graph *g, void *user) { \
    (void)user; \
    __VA_ARGS__ \
  }
/* y = f(x) with x of `shape`, and dx */
#define BUILD_GRADIENT(name, shape, ...) BUILD(name, const tg_tensor x = in(g, "x", shape); return with_gradients(g, __VA_ARGS__, &x, 1);)
#define TEST(name, ...) \
  static void test_##name(void **state) { \
    (void)state; \
    __VA_ARGS__ \
  }

#endif
