/* Sums of many terms keep their digits: over rows, over columns, of everything, of table rows and
 * in contractions, wherever a kernel adds. Against the f64 reference on the same numbers: equal
 * terms, whose rounding errors all point one way, and random positive terms. Equal numbers are
 * normalised to 0. Infinite sums stay infinite. */
#include "support.h"

#include <math.h>
#include <string.h>

typedef enum terms { TERMS_THOUSANDS, TERMS_TENTHS, TERMS_RANDOM, TERMS_KINDS } terms;
static const char *const terms_names[TERMS_KINDS] = {"1000.1", "0.1", "random"};

typedef struct sum_case {
    const char *name;
    int64_t rows, columns;
    tg_tensor (*build)(tg_tensor x);
    double relative, on_cpu; /* [0: relative] largest error there, of each result's size */
    terms terms;
} sum_case;

static void fill(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const sum_case *c = user;
    support_random r = support_random_make(7);
    (void)name;
    (void)shape;
    (void)dtype;
    for (int64_t i = 0; i < count; i++)
        out[i] = c->terms == TERMS_THOUSANDS ? 1000.1 : c->terms == TERMS_TENTHS ? 0.1 : (double)support_random_float(&r, 0, 2000);
}

/* ---------------------------------------------------------------- cases */

static int64_t dim(tg_tensor x, int axis) { return tg_tensor_shape(x).dim[axis]; }
static tg_tensor rows(tg_tensor x) { return tg_mean(x, TG_AXES(1)); }
static tg_tensor columns(tg_tensor x) { return tg_mean(x, TG_AXES(0)); }
static tg_tensor everything(tg_tensor x) { return tg_mean(x, TG_ALL); }
static tg_tensor products(tg_tensor x) { return tg_sum(tg_mul(x, tg_sqrt(x)), TG_AXES(1)); }
static tg_tensor squares(tg_tensor x) { return tg_norm(x, TG_AXES(1)); }
static tg_tensor three_sums(tg_tensor x) { /* of one pass */
    return tg_div(tg_add(tg_sum(x, TG_AXES(1)), tg_sum(tg_square(x), TG_AXES(1))), tg_sum(tg_sqrt(x), TG_AXES(1)));
}
/* All rows added to one row of a table, small or so large that chains of equal rows are walked. */
static tg_tensor scattered(tg_tensor x) {
    const tg_tensor at = tg_full(x.graph, TG_SHAPE(dim(x, 0)), 1, TG_I32);
    return tg_gather(tg_scatter_add(tg_full(x.graph, TG_SHAPE(2, dim(x, 1)), 0, TG_F32), at, x, 0),
                     tg_full(x.graph, TG_SHAPE(1), 1, TG_I32), 0);
}
static tg_tensor scattered_widely(tg_tensor x) {
    const tg_tensor at = tg_full(x.graph, TG_SHAPE(dim(x, 0)), 1, TG_I32), table = tg_full(x.graph, TG_SHAPE(400000, dim(x, 1)), 0, TG_F32);
    return tg_gather(tg_scatter_add(table, at, x, 0), tg_full(x.graph, TG_SHAPE(1), 1, TG_I32), 0);
}
static tg_tensor contracted(tg_tensor x) { return tg_matmul(x, tg_full(x.graph, TG_SHAPE(dim(x, 1), 5), 1.0, TG_F32)); }
static tg_tensor contracted_wide(tg_tensor x) { return tg_matmul(x, tg_full(x.graph, TG_SHAPE(dim(x, 1), 70), 1.0, TG_F32)); }
static tg_tensor contracted_columns(tg_tensor x) { return tg_matmul(tg_full(x.graph, TG_SHAPE(3, dim(x, 0)), 1.0, TG_F32), x); }

/* An invocation's share of a row is exact up to rounding; a tree of lanes or parts adds a rounding a level. */
#define FEW 3e-7
/* The CPU's contractions keep 16 and more sums of a row, each a chain of up to 512 terms. */
#define CHAIN 5e-6
/* It adds to a table where it lies, in f32. */
#define SERIAL 1e-4

static const sum_case cases[] = {
    {"rows", 3, 100, rows, FEW, 0, 0},
    {"rows", 3, 1000, rows, FEW, 0, 0},
    {"rows", 70, 1023, rows, FEW, 0, 0},
    {"rows", 300, 4000, rows, FEW, 0, 0},
    {"rows", 70, 4095, rows, FEW, 0, 0},
    {"rows in parts", 3, 30000, rows, FEW, 0, 0},
    {"long rows", 300, 9000, rows, FEW, 0, 0},
    {"columns", 1000, 4096, columns, FEW, 0, 0}, /* pytorch/pytorch#5410 */
    {"columns", 4000, 70, columns, FEW, 0, 0},
    {"columns in parts", 30000, 3, columns, FEW, 0, 0},
    {"columns in bundles", 12000, 100, columns, FEW, 0, 0},
    {"everything", 300, 1000, everything, FEW, 0, 0},
    {"products", 7, 4000, products, FEW, 0, 0},
    {"squares", 7, 4000, squares, FEW, 0, 0},
    {"three sums", 7, 4000, three_sums, 5e-7, 0, 0},
    {"scattered", 5000, 7, scattered, FEW, SERIAL, 0},
    {"scattered", 50, 7, scattered, FEW, SERIAL, 0},
    {"scattered widely", 3000, 2, scattered_widely, FEW, SERIAL, 0},
    {"contracted", 100, 4096, contracted, FEW, CHAIN, 0},
    {"contracted", 1, 4096, contracted, FEW, CHAIN, 0},
    {"contracted", 100, 512, contracted, FEW, CHAIN, 0},
    {"contracted wide", 70, 4096, contracted_wide, CHAIN, CHAIN, 0},
    {"contracted columns", 4096, 100, contracted_columns, FEW, CHAIN, 0},
};

static tg_tensor build(tg_graph *g, void *user) {
    const sum_case *c = user;
    return c->build(tg_input(g, "x", TG_SHAPE(c->rows, c->columns), TG_F32));
}

static bool check(sum_case now) {
    const bool cpu = support_home_now() == SUPPORT_CPU;
    const support_case c = {build, &now, fill, &now};
    support_outputs got, want;
    char label[96];
    snprintf(label, sizeof label, "%s of %dx%d, %s", now.name, (int)now.rows, (int)now.columns, terms_names[now.terms]);
    if (!support_run_reference(&c, 1, &want)) fail_msg("%s: %s", label, want.message);
    if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s: %s", label, got.message);
    const support_tolerance tolerance = {0, 0, cpu && now.on_cpu > 0 ? now.on_cpu : now.relative};
    const bool same = support_outputs_equal(label, &got, &want, tolerance);
    support_outputs_free(&got);
    support_outputs_free(&want);
    return same;
}

static void sums_keep_their_digits(void **state) {
    (void)state;
    int bad = 0;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++)
        for (int kind = 0; kind < TERMS_KINDS; kind++) {
            sum_case now = cases[i];
            now.terms = (terms)kind;
            if (!check(now)) bad++;
        }
    if (bad > 0) fail_msg("%d sums", bad);
}

/* ---------------------------------------------------------------- rows of equal numbers */

typedef struct level_case {
    int64_t width;
    double value;
} level_case;

static void fill_level(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const level_case *c = user;
    (void)shape;
    (void)dtype;
    for (int64_t i = 0; i < count; i++) out[i] = name[0] == 'x' ? c->value : 1.0;
}
static tg_tensor build_level(tg_graph *g, void *user) {
    const level_case *c = user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(8, c->width), TG_F32);
    const tg_layer_norm layer = tg_nn_layer_norm(g, "layer", c->width);
    const tg_group_norm group = tg_nn_group_norm(g, "group", 1, c->width);
    const tg_batch_norm batch = tg_nn_batch_norm(g, "batch", 8);
    const tg_tensor bias = tg_full(g, TG_SHAPE(c->width), 1.0, TG_F32); /* what the filled parameters add */
    tg_capture("group", tg_sub(tg_nn_group_norm_fwd(group, x), bias));
    tg_capture("batch", tg_sub(tg_nn_batch_norm_fwd(batch, tg_reshape(x, TG_SHAPE(1, 8, c->width)), true), bias));
    tg_capture("std", tg_std(x, TG_AXES(1)));
    tg_capture("variance", tg_variance(x, TG_AXES(1)));
    return tg_sub(tg_nn_layer_norm_fwd(layer, x), bias);
}
/* The mean of equal numbers is not always that number in f32; a norm magnifies what is left by 1 / sqrt(eps), 316. */
static void norms_of_equal_numbers_are_0(void **state) {
    (void)state;
    static const int64_t widths[] = {7, 100, 768, 1000, 1023, 4000, 10000};
    static const double values[] = {3.3, 255.3, 1000.1, 0.1}; /* pytorch/pytorch#5410 */
    for (int i = 0; i < SUPPORT_COUNT(widths) * SUPPORT_COUNT(values); i++) {
        level_case now = {widths[i / SUPPORT_COUNT(values)], values[i % SUPPORT_COUNT(values)]};
        const support_case c = {build_level, &now, fill_level, &now};
        support_outputs got;
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        for (int k = 0; k < got.count; k++)
            for (int64_t at = 0; at < got.items[k].count && strncmp(got.items[k].name, "after", 5) != 0; at++)
                if (!(fabs(got.items[k].data[at]) <= 1e-6))
                    fail_msg("%s of %d times %g is %g", got.items[k].name, (int)now.width, now.value, got.items[k].data[at]);
        support_outputs_free(&got);
    }
}

/* ---------------------------------------------------------------- infinities, small beside large */

static void fill_special(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    (void)user;
    (void)name;
    (void)dtype;
    const int64_t length = shape.dim[1];
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / length, at = i % length;
        out[i] = 1.0;
        if (row == 0 && at == 300) out[i] = INFINITY;
        if (row == 1 && at == 2) out[i] = -INFINITY;
        if (row == 2 && at % 400 == 9) out[i] = at == 9 ? INFINITY : -INFINITY;
        if (row == 3 && at == 999) out[i] = NAN;
        if (row == 4) out[i] = at == 0 ? 1e8 : at == 999 ? -1e8 : 1.0; /* 998, which f32 would lose one after another */
        if (row == 5) out[i] = at < 2 ? 3e38 : 0.0;
        if (row == 6) out[i] = at == 500 ? 16777216.0 : at < 500 ? 1.0 : -1.0; /* a large term behind small ones */
    }
}
static tg_tensor build_special(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(7, 1000), TG_F32);
    tg_capture("columns", tg_sum(tg_transpose(x, TG_AXES(1, 0)), TG_AXES(0)));
    return tg_sum(x, TG_AXES(1));
}
static void what_is_infinite_stays_so(void **state) {
    (void)state;
    const double want[7] = {INFINITY, -INFINITY, NAN, NAN, 998, INFINITY, 16777217};
    /* what lanes and a tree lose of 998 beside 1e8, and the CPU's vectors, which are f32 for a while; one by one it would be all */
    const support_tolerance tolerance = {0, support_home_now() == SUPPORT_CPU ? 64 : 20, 1e-7};
    const support_case c = {build_special, NULL, fill_special, NULL};
    for (int way = 0; way < 2; way++) {
        support_outputs got;
        if (!support_run_home(&c, &(support_options){.no_fusion = way == 1}, &got)) fail_msg("%s", got.message);
        const bool rows_good = support_compare("rows", support_outputs_find(&got, "result")->data, want, 7, tolerance);
        const bool columns_good = support_compare("columns", support_outputs_find(&got, "columns")->data, want, 7, tolerance);
        support_outputs_free(&got);
        assert_true(rows_good && columns_good);
    }
}

int main(void) {
    const int refused = support_home_refuses("test_sums");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_keep_their_digits), cmocka_unit_test(norms_of_equal_numbers_are_0),
                                       cmocka_unit_test(what_is_infinite_stays_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
