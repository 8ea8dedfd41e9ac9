/* Convolutions and poolings against direct loops in f64, written from the formulas, forward and backward under random cotangents: fixed
 * corner cases, the published ones, and random strides, dilations, groups and paddings; kernel counts. On WebGPU (see support_home)
 * the same cases. Second gradients: test_gradients. Messages: test_messages. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum conv_kind { CONV, CONV_TRANSPOSE, MAX_POOL, AVG_POOL } conv_kind;

/* Always two axes; 1d cases have the first of length 1 everywhere. */
typedef struct conv_case {
    conv_kind kind;
    int axes;
    int64_t n, c, o, groups;
    int64_t size[2], kernel[2], stride[2], dilation[2], before[2], after[2], extra[2];
    bool bias, ceil, exclude, same;
    uint64_t seed;
    int64_t out[2]; /* found by the test's own formula */
} conv_case;

/* ---------------------------------------------------------------- building */

static tg_shape spatial(const conv_case *c, int64_t a, int64_t b, const int64_t *dims) {
    return c->axes == 2 ? TG_SHAPE(a, b, dims[0], dims[1]) : TG_SHAPE(a, b, dims[1]);
}

static tg_tensor build_forward(const conv_case *c, tg_tensor x, tg_tensor w, tg_tensor bias) {
    const int first = c->axes == 2 ? 0 : 1;
    tg_padding padding =
        tg_padding_sides(c->before[first], c->after[first], c->axes == 2 ? c->before[1] : 0, c->axes == 2 ? c->after[1] : 0);
    if (c->same) padding = tg_padding_same();
    tg_conv_options conv = {.padding = padding, .groups = c->groups, .bias = bias};
    tg_pool_options pool = {.padding = padding, .ceil_mode = c->ceil, .exclude_padding = c->exclude};
    for (int i = first; i < 2; i++) {
        conv.stride[i - first] = pool.stride[i - first] = c->stride[i];
        conv.dilation[i - first] = c->dilation[i];
        conv.output_padding[i - first] = c->extra[i];
    }
    if (c->kind == CONV) return c->axes == 2 ? tg_conv2d_at(TG_SITE, x, w, conv) : tg_conv1d_at(TG_SITE, x, w, conv);
    if (c->kind == CONV_TRANSPOSE)
        return c->axes == 2 ? tg_conv_transpose2d_at(TG_SITE, x, w, conv) : tg_conv_transpose1d_at(TG_SITE, x, w, conv);
    if (c->kind == MAX_POOL)
        return c->axes == 2 ? tg_max_pool2d_at(TG_SITE, x, c->kernel[0], c->kernel[1], pool)
                            : tg_max_pool1d_at(TG_SITE, x, c->kernel[1], pool);
    return c->axes == 2 ? tg_avg_pool2d_at(TG_SITE, x, c->kernel[0], c->kernel[1], pool) : tg_avg_pool1d_at(TG_SITE, x, c->kernel[1], pool);
}

static bool has_weight(const conv_case *c) { return c->kind == CONV || c->kind == CONV_TRANSPOSE; }

static tg_tensor build_conv(tg_graph *g, void *user) {
    const conv_case *c = user;
    const tg_tensor none = {NULL, 0}, x = tg_input(g, "x", spatial(c, c->n, c->c, c->size), TG_F32);
    tg_tensor wrt[3] = {x, none, none}, grads[3];
    int count = 1;
    if (has_weight(c)) {
        const int64_t rows = c->kind == CONV ? c->o : c->c, columns = (c->kind == CONV ? c->c : c->o) / c->groups;
        wrt[count++] = tg_input(g, "w", spatial(c, rows, columns, c->kernel), TG_F32);
        if (c->bias) wrt[count++] = tg_input(g, "bias", TG_SHAPE(c->o), TG_F32);
    }
    const tg_tensor y = build_forward(c, x, wrt[1], wrt[2]);
    tg_vjp(y, tg_input(g, "cot", tg_tensor_shape(y), TG_F32), wrt, count, grads);
    static const char *const names[] = {"dx", "dw", "dbias"};
    for (int i = 0; i < count; i++) tg_capture(names[i], grads[i]);
    return y;
}

static void fill_conv(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const conv_case *c = user;
    support_fill_default((void *)(uintptr_t)&c->seed, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (double)(float)out[i];
        if (c->kind == MAX_POOL) out[i] = floor(out[i] * 4.0) / 4.0; /* ties */
    }
}

/* ---------------------------------------------------------------- the formulas */

/* Elements of x, of w and so on, in f64. */
typedef struct conv_data {
    double *x, *w, *bias, *cot, *y, *dx, *dw, *dbias;
} conv_data;

static void find_out(conv_case *c) {
    for (int i = 0; i < 2; i++) {
        const int64_t span = (c->kernel[i] - 1) * c->dilation[i] + 1, padded = c->size[i] + c->before[i] + c->after[i];
        if (c->kind == CONV_TRANSPOSE) {
            c->out[i] = (c->size[i] - 1) * c->stride[i] + span - c->before[i] - c->after[i] + c->extra[i];
            continue;
        }
        c->out[i] = (padded - span) / c->stride[i] + 1;
        if (c->ceil && (padded - span + c->stride[i] - 1) / c->stride[i] * c->stride[i] < c->size[i] + c->before[i])
            c->out[i] = (padded - span + c->stride[i] - 1) / c->stride[i] + 1;
    }
}

/* Position of tap (i, j) of place (r, s) in the large tensor; false outside. */
static bool tap_at(const conv_case *c, const int64_t *large, int64_t r, int64_t s, int64_t i, int64_t j, int64_t *at) {
    const int64_t h = r * c->stride[0] + i * c->dilation[0] - c->before[0], v = s * c->stride[1] + j * c->dilation[1] - c->before[1];
    *at = h * large[1] + v;
    return h >= 0 && h < large[0] && v >= 0 && v < large[1];
}

/* small [n, f, places], large [n, g, positions], w [f, g / groups, taps]: visits every product small * large * w that there is. A
 * convolution maps large to small, a transposed one small to large. */
static void direct_conv(const conv_case *c, conv_data *d) {
    const bool back = c->kind == CONV_TRANSPOSE;
    const int64_t *places = back ? c->size : c->out, *positions = back ? c->out : c->size;
    const int64_t f = back ? c->c : c->o, g = back ? c->o : c->c, taps = c->kernel[0] * c->kernel[1];
    const int64_t fg = f / c->groups, gg = g / c->groups, small = places[0] * places[1], large = positions[0] * positions[1];
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t a = 0; a < f; a++)
            for (int64_t b = 0; b < gg; b++)
                for (int64_t place = 0; place < small; place++)
                    for (int64_t tap = 0; tap < taps; tap++) {
                        int64_t at;
                        if (!tap_at(c, positions, place / places[1], place % places[1], tap / c->kernel[1], tap % c->kernel[1], &at))
                            continue;
                        const int64_t s = (n * f + a) * small + place, l = (n * g + a / fg * gg + b) * large + at,
                                      w = (a * gg + b) * taps + tap;
                        const int64_t from = back ? s : l, to = back ? l : s;
                        d->y[to] += d->w[w] * d->x[from];
                        d->dx[from] += d->w[w] * d->cot[to];
                        d->dw[w] += d->x[from] * d->cot[to];
                    }
    for (int64_t i = 0; i < c->n * c->o * c->out[0] * c->out[1] && c->bias; i++) {
        const int64_t o = i / (c->out[0] * c->out[1]) % c->o;
        d->y[i] += d->bias[o];
        d->dbias[o] += d->cot[i];
    }
}

/* One window of one channel. */
static void direct_window(const conv_case *c, const double *x, double *dx, int64_t place, double cot, double *y) {
    const int64_t taps = c->kernel[0] * c->kernel[1];
    double most = -INFINITY, sum = 0, divisor = 1;
    int64_t at, inside = 0, ties = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        if (!tap_at(c, c->size, place / c->out[1], place % c->out[1], tap / c->kernel[1], tap % c->kernel[1], &at)) continue;
        inside++;
        sum += x[at];
        most = fmax(most, x[at]);
    }
    for (int i = 0; i < 2; i++) { /* what lies beyond the padding counts for nobody */
        const int64_t first = (i == 0 ? place / c->out[1] : place % c->out[1]) * c->stride[i],
                      end = c->size[i] + c->before[i] + c->after[i];
        divisor *= (double)((first + c->kernel[i] < end ? first + c->kernel[i] : end) - first);
    }
    if (c->exclude) divisor = (double)inside;
    *y = c->kind == MAX_POOL ? most : sum / divisor;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t tap = 0; tap < taps; tap++) {
            if (!tap_at(c, c->size, place / c->out[1], place % c->out[1], tap / c->kernel[1], tap % c->kernel[1], &at)) continue;
            if (pass == 0) ties += x[at] == most;
            else if (c->kind == AVG_POOL) dx[at] += cot / divisor;
            else if (x[at] == most) dx[at] += cot / (double)ties;
        }
}

static void direct_pool(const conv_case *c, conv_data *d) {
    const int64_t small = c->out[0] * c->out[1], large = c->size[0] * c->size[1];
    for (int64_t channel = 0; channel < c->n * c->c; channel++)
        for (int64_t place = 0; place < small; place++)
            direct_window(c, d->x + channel * large, d->dx + channel * large, place, d->cot[channel * small + place],
                          d->y + channel * small + place);
}

static double *numbers(int64_t count) {
    double *data = calloc((size_t)(count > 0 ? count : 1), sizeof *data);
    assert_non_null(data);
    return data;
}

static double *filled(const conv_case *c, const char *name, tg_shape shape) {
    double *data = numbers(tg_shape_count(shape));
    fill_conv((void *)(uintptr_t)c, name, shape, TG_F32, data, tg_shape_count(shape));
    return data;
}

/* ---------------------------------------------------------------- comparing */

static int cases_run;

static bool same_numbers(const conv_case *c, const char *how, const support_outputs *got, const char *name, const double *want,
                         int64_t count) {
    char what[256];
    const support_value *value = support_outputs_find(got, name);
    static const char *const kinds[] = {"conv", "conv_transpose", "max_pool", "avg_pool"};
    snprintf(what, sizeof what,
             "%s%dd %s, %s: n %d c %d o %d groups %d size %dx%d kernel %dx%d stride %dx%d dilation %dx%d padding %d+%d %d+%d",
             kinds[c->kind], c->axes, name, how, (int)c->n, (int)c->c, (int)c->o, (int)c->groups, (int)c->size[0], (int)c->size[1],
             (int)c->kernel[0], (int)c->kernel[1], (int)c->stride[0], (int)c->stride[1], (int)c->dilation[0], (int)c->dilation[1],
             (int)c->before[0], (int)c->after[0], (int)c->before[1], (int)c->after[1]);
    if (value->count != count) {
        fprintf(stderr, "%s: %d numbers, not %d\n", what, (int)value->count, (int)count);
        return false;
    }
    double most = 1.0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(want[i]));
    return support_compare(what, value->data, want, count, (support_tolerance){2.0, 4e-6 * most, 0.0});
}

static bool check_case(const conv_case *given) {
    conv_case c = *given;
    const support_case run = {build_conv, &c, fill_conv, &c};
    find_out(&c);
    const tg_shape out = spatial(&c, c.n, has_weight(&c) ? c.o : c.c, c.out);
    const int64_t rows = c.kind == CONV_TRANSPOSE ? c.c : c.o, columns = has_weight(&c) ? (c.kind == CONV ? c.c : c.o) / c.groups : 1;
    const tg_shape weight = spatial(&c, has_weight(&c) ? rows : 1, columns, c.kernel), in = spatial(&c, c.n, c.c, c.size);
    const int64_t o = has_weight(&c) ? c.o : 1;
    conv_data d = {filled(&c, "x", in),          filled(&c, "w", weight),     filled(&c, "bias", TG_SHAPE(o)), filled(&c, "cot", out),
                   numbers(tg_shape_count(out)), numbers(tg_shape_count(in)), numbers(tg_shape_count(weight)), numbers(o)};
    if (has_weight(&c)) direct_conv(&c, &d);
    else direct_pool(&c, &d);
    bool same = true;
    for (int how = 0; how < 2; how++) {
        static const char *const hows[] = {"fused", "not fused"};
        support_outputs got;
        if (how == 1 && cases_run % 4 != 0) continue;
        const support_options options = {.no_fusion = how == 1, .no_passes = how == 1};
        if (!support_run_home(&run, &options, &got)) fail_msg("%s", got.message);
        same = same_numbers(&c, hows[how], &got, "result", d.y, tg_shape_count(out)) && same;
        same = same_numbers(&c, hows[how], &got, "dx", d.dx, tg_shape_count(in)) && same;
        if (has_weight(&c)) same = same_numbers(&c, hows[how], &got, "dw", d.dw, tg_shape_count(weight)) && same;
        if (c.bias) same = same_numbers(&c, hows[how], &got, "dbias", d.dbias, c.o) && same;
        support_outputs_free(&got);
    }
    cases_run++;
    double *all[] = {d.x, d.w, d.bias, d.cot, d.y, d.dx, d.dw, d.dbias};
    for (int i = 0; i < SUPPORT_COUNT(all); i++) free(all[i]);
    return same;
}

/* ---------------------------------------------------------------- cases */

#define ONES \
  { 1, 1 }
#define NONE \
  { 0, 0 }

static void test_convolutions(void **state) {
    (void)state;
    static const conv_case cases[] = {
        {CONV, 2, 2, 3, 4, 1, {7, 6}, {3, 3}, ONES, ONES, NONE, NONE, NONE, true, 0, 0, 0, 1, NONE},
        {CONV, 2, 2, 3, 4, 1, {7, 6}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, NONE, true, 0, 0, 1, 2, NONE},
        {CONV, 2, 1, 2, 2, 1, {5, 9}, {2, 4}, ONES, {2, 1}, {1, 1}, {1, 2}, NONE, false, 0, 0, 1, 3, NONE}, /* 'same', even kernel */
        {CONV, 2, 3, 4, 6, 2, {8, 8}, {3, 3}, {2, 2}, ONES, {1, 1}, {1, 1}, NONE, true, 0, 0, 0, 4, NONE},
        {CONV, 2, 2, 5, 5, 5, {6, 7}, {3, 2}, ONES, ONES, {1, 0}, {1, 1}, NONE, true, 0, 0, 0, 5, NONE}, /* depthwise */
        {CONV, 2, 2, 3, 8, 1, {9, 9}, {3, 3}, {4, 3}, {2, 2}, {2, 2}, {2, 2}, NONE, false, 0, 0, 0, 6, NONE},
        {CONV, 2, 2, 3, 5, 1, {4, 4}, ONES, ONES, ONES, NONE, NONE, NONE, false, 0, 0, 0, 7, NONE}, /* 1x1 */
        {CONV, 2, 2, 3, 5, 1, {5, 4}, ONES, {2, 2}, ONES, NONE, NONE, NONE, true, 0, 0, 0, 8, NONE},
        {CONV, 2, 1, 3, 2, 1, {4, 5}, {4, 5}, ONES, ONES, NONE, NONE, NONE, true, 0, 0, 0, 9, NONE},    /* one window */
        {CONV, 2, 2, 3, 8, 1, {8, 8}, {4, 4}, {4, 4}, ONES, NONE, NONE, NONE, true, 0, 0, 0, 10, NONE}, /* patches */
        {CONV, 2, 2, 2, 3, 1, {6, 6}, {3, 3}, {1, 2}, ONES, {1, 1}, {0, 1}, NONE, true, 0, 0, 0, 11, NONE},
        {CONV, 1, 2, 2, 4, 2, {1, 11}, {1, 4}, {1, 3}, {1, 2}, {0, 2}, {0, 1}, NONE, true, 0, 0, 0, 12, NONE},
        {CONV, 1, 3, 1, 4, 1, {1, 200}, {1, 65}, ONES, ONES, {0, 64}, {0, 0}, NONE, true, 0, 0, 0, 13, NONE}, /* long, causal */
        {CONV, 1, 1, 1, 2, 1, {1, 700}, {1, 400}, {1, 160}, ONES, NONE, NONE, NONE, true, 0, 0, 0, 15, NONE}, /* taps by the hundred */
        {CONV_TRANSPOSE, 1, 1, 2, 1, 1, {1, 5}, {1, 400}, {1, 160}, ONES, NONE, NONE, NONE, true, 0, 0, 0, 27, NONE},
        {CONV_TRANSPOSE, 1, 1, 1, 1, 1, {1, 9}, {1, 70}, ONES, {1, 3}, NONE, NONE, NONE, false, 0, 0, 0, 28, NONE},
        {CONV, 2, 8, 16, 32, 1, {13, 13}, {3, 3}, ONES, ONES, NONE, NONE, NONE, true, 0, 0, 0, 14, NONE},
        /* padding as wide as the kernel, wider, on one side; just less */
        {CONV, 2, 2, 3, 4, 1, {5, 6}, {3, 2}, ONES, ONES, {4, 1}, {0, 5}, NONE, true, 0, 0, 0, 31, NONE},
        {CONV, 2, 2, 3, 4, 1, {5, 6}, {3, 3}, ONES, {1, 2}, {2, 4}, {1, 0}, NONE, true, 0, 0, 0, 32, NONE},
        {CONV, 2, 2, 3, 4, 1, {5, 6}, {3, 3}, ONES, {1, 2}, {3, 4}, {2, 0}, NONE, true, 0, 0, 0, 33, NONE},
        /* enough channels and images for tiles */
        {CONV, 2, 24, 3, 32, 1, {14, 15}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, NONE, true, 0, 0, 0, 34, NONE},
        {CONV, 2, 16, 24, 40, 1, {9, 11}, {3, 3}, ONES, {2, 2}, {2, 2}, {2, 2}, NONE, true, 0, 0, 0, 35, NONE},
        {CONV, 2, 12, 40, 80, 2, {10, 10}, {3, 3}, ONES, ONES, {1, 1}, {1, 1}, NONE, true, 0, 0, 0, 36, NONE},
        {CONV_TRANSPOSE, 2, 2, 3, 4, 1, {4, 5}, {3, 3}, ONES, ONES, NONE, NONE, NONE, true, 0, 0, 0, 21, NONE},
        {CONV_TRANSPOSE, 2, 2, 4, 6, 2, {4, 5}, {3, 3}, {2, 2}, ONES, {1, 1}, {1, 1}, {1, 1}, true, 0, 0, 0, 22, NONE},
        {CONV_TRANSPOSE, 2, 1, 2, 3, 1, {3, 4}, {2, 2}, {2, 2}, ONES, NONE, NONE, NONE, true, 0, 0, 0, 23, NONE},
        {CONV_TRANSPOSE, 2, 1, 2, 3, 1, {3, 4}, {2, 3}, {3, 4}, {2, 1}, {0, 1}, {1, 0}, {2, 0}, false, 0, 0, 0, 24, NONE},
        {CONV_TRANSPOSE, 2, 2, 2, 2, 1, {5, 4}, {4, 3}, ONES, {1, 2}, {2, 1}, {3, 2}, {0, 1}, false, 0, 0, 0, 25, NONE},
        {CONV_TRANSPOSE, 1, 2, 3, 4, 1, {1, 7}, {1, 5}, {1, 2}, ONES, {0, 2}, {0, 2}, {0, 1}, true, 0, 0, 0, 26, NONE},
    };
    bool same = true;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) same = check_case(&cases[i]) && same;
    assert_true(same);
}

static void test_pools(void **state) {
    (void)state;
    static const conv_case cases[] = {
        {MAX_POOL, 2, 2, 3, 0, 1, {6, 8}, {2, 2}, {2, 2}, ONES, NONE, NONE, NONE, 0, false, false, 0, 1, NONE},
        {MAX_POOL, 2, 2, 3, 0, 1, {7, 9}, {2, 2}, {2, 2}, ONES, NONE, NONE, NONE, 0, true, false, 0, 2, NONE},
        {MAX_POOL, 2, 2, 3, 0, 1, {7, 9}, {3, 3}, {2, 2}, ONES, {1, 1}, {1, 1}, NONE, 0, false, false, 0, 3, NONE},
        {MAX_POOL, 2, 1, 2, 0, 1, {6, 5}, {3, 2}, ONES, ONES, {2, 0}, {1, 1}, NONE, 0, false, false, 0, 4, NONE},
        {MAX_POOL, 2, 2, 2, 0, 1, {8, 8}, {2, 2}, {3, 4}, ONES, NONE, NONE, NONE, 0, true, false, 0, 5, NONE}, /* some in no window */
        {MAX_POOL, 1, 2, 3, 0, 1, {1, 10}, {1, 3}, {1, 2}, ONES, {0, 1}, {0, 1}, NONE, 0, true, false, 0, 6, NONE},
        {AVG_POOL, 2, 2, 3, 0, 1, {6, 8}, {2, 2}, {2, 2}, ONES, NONE, NONE, NONE, 0, false, false, 0, 7, NONE},
        {AVG_POOL, 2, 2, 3, 0, 1, {7, 9}, {3, 3}, {2, 2}, ONES, {1, 1}, {1, 1}, NONE, 0, false, false, 0, 8, NONE},
        {AVG_POOL, 2, 2, 3, 0, 1, {7, 9}, {3, 3}, {2, 2}, ONES, {1, 1}, {1, 1}, NONE, 0, false, true, 0, 9, NONE},
        {AVG_POOL, 2, 1, 2, 0, 1, {7, 6}, {3, 2}, {2, 3}, ONES, {1, 0}, {0, 1}, NONE, 0, true, false, 0, 10, NONE},
        {AVG_POOL, 2, 1, 2, 0, 1, {7, 6}, {3, 2}, {2, 3}, ONES, {1, 0}, {0, 1}, NONE, 0, true, true, 0, 11, NONE},
        {MAX_POOL, 1, 1, 1, 0, 1, {1, 300}, {1, 128}, ONES, ONES, {0, 3}, NONE, NONE, 0, false, false, 0, 13, NONE},
        {AVG_POOL, 1, 1, 1, 0, 1, {1, 300}, {1, 200}, {1, 3}, ONES, NONE, NONE, NONE, 0, false, false, 0, 14, NONE},
        {AVG_POOL, 1, 2, 3, 0, 1, {1, 9}, {1, 4}, ONES, ONES, {0, 3}, {0, 1}, NONE, 0, false, true, 0, 12, NONE},
    };
    bool same = true;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) same = check_case(&cases[i]) && same;
    assert_true(same);
}

static int64_t between(support_random *r, int64_t lo, int64_t hi) { return lo + support_random_below(r, hi - lo + 1); }

static conv_case random_case(uint64_t seed) {
    support_random r = support_random_make(seed);
    conv_case c = {.seed = seed};
    c.kind = (conv_kind)support_random_below(&r, 4);
    c.axes = (int)between(&r, 1, 2);
    c.n = between(&r, 1, 3);
    c.groups = has_weight(&c) ? between(&r, 1, 3) : 1;
    c.c = c.groups * between(&r, 1, 4);
    c.o = c.groups * between(&r, 1, 4);
    c.bias = has_weight(&c) && support_random_below(&r, 2);
    c.ceil = !has_weight(&c) && support_random_below(&r, 2);
    c.exclude = support_random_below(&r, 2);
    for (int i = 0; i < 2; i++) {
        const bool one = i == 0 && c.axes == 1;
        c.kernel[i] = one ? 1 : between(&r, 1, 4);
        c.stride[i] = one ? 1 : between(&r, 1, 4);
        c.dilation[i] = one || !has_weight(&c) ? 1 : between(&r, 1, 3);
        const int64_t most = has_weight(&c) ? 3 : c.kernel[i] - 1, span = (c.kernel[i] - 1) * c.dilation[i] + 1;
        c.before[i] = one ? 0 : between(&r, 0, most);
        c.after[i] = one ? 0 : between(&r, 0, most);
        c.size[i] = one ? 1 : between(&r, 1, 9);
        if (c.kind == CONV_TRANSPOSE) {
            c.extra[i] = one || c.stride[i] == 1 ? 0 : between(&r, 0, c.stride[i] - 1);
            while ((c.size[i] - 1) * c.stride[i] + span - c.before[i] - c.after[i] + c.extra[i] < 1) c.size[i]++;
        } else
            while (c.size[i] + c.before[i] + c.after[i] < span) c.size[i]++;
    }
    return c;
}

static void test_random(void **state) {
    (void)state;
    const int count = support_env_int("TG_RANDOM_CONVOLUTIONS", SUPPORT_SANITIZED || support_home_now() == SUPPORT_WEBGPU ? 60 : 300);
    const uint64_t seed = support_seed(1);
    bool same = true;
    for (int i = 0; i < count && same; i++) {
        const conv_case c = random_case(seed + (uint64_t)i);
        same = check_case(&c);
        if (!same) fprintf(stderr, "seed %llu\n", (unsigned long long)(seed + (uint64_t)i));
    }
    assert_true(same);
}

/* ---------------------------------------------------------------- published cases */

typedef struct known_case {
    const double *x, *w, *cot;
    int64_t x_count, w_count, cot_count;
    tg_tensor (*forward)(tg_tensor x, tg_tensor w);
    tg_shape x_shape, w_shape;
} known_case;

static tg_tensor build_known(tg_graph *g, void *user) {
    const known_case *k = user;
    tg_tensor wrt[2] = {tg_input(g, "x", k->x_shape, TG_F32)}, grads[2];
    const int count = k->w ? 2 : 1;
    if (k->w) wrt[1] = tg_input(g, "w", k->w_shape, TG_F32);
    const tg_tensor y = k->forward(wrt[0], wrt[1]);
    tg_vjp(y, tg_input(g, "cot", tg_tensor_shape(y), TG_F32), wrt, count, grads);
    for (int i = 0; i < count; i++) tg_capture(i == 0 ? "dx" : "dw", grads[i]);
    return y;
}

static void fill_known(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const known_case *k = user;
    const double *from = strcmp(name, "x") == 0 ? k->x : strcmp(name, "w") == 0 ? k->w : k->cot;
    const int64_t repeats = strcmp(name, "x") == 0 ? k->x_count : strcmp(name, "w") == 0 ? k->w_count : k->cot_count;
    (void)shape, (void)dtype;
    for (int64_t i = 0; i < count; i++) out[i] = from[i % repeats];
}

static void expect(const support_outputs *got, const char *name, const double *want, int64_t count) {
    const support_value *value = support_outputs_find(got, name);
    assert_int_equal(value->count, count);
    assert_true(support_compare(name, value->data, want, count, (support_tolerance){0, 0, 0}));
}

static tg_tensor plain_conv2d(tg_tensor x, tg_tensor w) { return tg_conv2d(x, w); }
static tg_tensor third_conv1d(tg_tensor x, tg_tensor w) { return tg_conv1d(x, w, .stride = {3}); }
static tg_tensor max_pool_3_2_1(tg_tensor x, tg_tensor w) {
    (void)w;
    return tg_max_pool2d(x, 3, 3, .stride = {2}, .padding = tg_padding_all(1));
}

static void test_known(void **state) {
    (void)state;
    support_outputs got;
    { /* channel counts that are no multiple of 4 */
        static const double x[] = {-1.5, 1, 0, -1, 1.5, .5, -.5, -1.5, 1, 0, -1, 1.5};
        static const double w[] = {-1, 0, 1, -.25, .75, -.5, .5, -.75, .25, -1, 0, 1, -.25, .75, -.5}, cot[] = {-2, 1, -1, 2, 0};
        static const double y[] = {2.5, -1, -1, 2.5, 1, .125, .125, -1.625, -1.625, .125, .125, 1, 2.5, -1, -1, 2.5, 1, .125, .125, -1.625};
        static const double dx[] = {3.75, -2.25, -.75, .75, -.75, -2.25, 3.75, -1.5, -3, 4.5, -3, .75};
        static const double dw[] = {2, -5, 2, -1, 0, -2.5, -4, 2.5, 5.5, 5.5, 2.5, -4, -2.5, 0, -1};
        const known_case k = {x, w, cot, 12, 15, 5, plain_conv2d, TG_SHAPE(1, 3, 2, 2), TG_SHAPE(5, 3, 1, 1)};
        const support_case c = {build_known, (void *)(uintptr_t)&k, fill_known, (void *)(uintptr_t)&k};
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        expect(&got, "result", y, 20);
        expect(&got, "dx", dx, 12);
        expect(&got, "dw", dw, 15);
        support_outputs_free(&got);
    }
    { /* a stride beyond the kernel, that does not divide */
        static const double x[] = {1, 2, 3, 4, 5, 6, 7, 8}, w[] = {1, -2}, cot[] = {1, -1, 2}, y[] = {-3, -6, -9};
        static const double dx[] = {1, -2, 0, -1, 2, 0, 2, -4}, dw[] = {11, 13};
        const known_case k = {x, w, cot, 8, 2, 3, third_conv1d, TG_SHAPE(1, 1, 8), TG_SHAPE(1, 1, 2)};
        const support_case c = {build_known, (void *)(uintptr_t)&k, fill_known, (void *)(uintptr_t)&k};
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        expect(&got, "result", y, 3);
        expect(&got, "dx", dx, 8);
        expect(&got, "dw", dw, 2);
        support_outputs_free(&got);
    }
    { /* everything negative, one element the maximum of every window */
        static const double x[] = {-1, -7, -3, -9, -8, -.5, -6, -4, -12, -5, -2, -11, -10, -16, -13, -15}, cot[] = {1, 10, 100, 1000};
        static const double y[] = {-.5, -.5, -.5, -.5}, dx[16] = {0, 0, 0, 0, 0, 1111};
        const known_case k = {x, NULL, cot, 16, 1, 4, max_pool_3_2_1, TG_SHAPE(1, 1, 4, 4), TG_SCALAR};
        const support_case c = {build_known, (void *)(uintptr_t)&k, fill_known, (void *)(uintptr_t)&k};
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        expect(&got, "result", y, 4);
        expect(&got, "dx", dx, 16);
        support_outputs_free(&got);
    }
}

/* ---------------------------------------------------------------- kernels */

/* What a step is made of decides how fast it is. Inputs x [8, 16, 12, 12] and w [32, 16, 3, 3]. */
typedef struct count_case {
    const char *name;
    tg_tensor (*build)(tg_graph *g, tg_tensor x, tg_tensor w);
    int kernels;
} count_case;

static tg_tensor biased(tg_graph *g) { return tg_input(g, "bias", TG_SHAPE(32), TG_F32); }
static tg_tensor gradients(tg_graph *g, tg_tensor y, tg_tensor x, tg_tensor w, int first, int count) {
    const tg_tensor wrt[2] = {x, w};
    tg_tensor grads[2];
    tg_vjp(y, tg_input(g, "cot", tg_tensor_shape(y), TG_F32), wrt + first, count, grads);
    if (count == 2) tg_capture("second", grads[1]);
    return grads[0];
}
#define COUNTED(name, ...) \
  static tg_tensor count_##name(tg_graph *g, tg_tensor x, tg_tensor w) { \
    (void)g, (void)w; \
    __VA_ARGS__ \
  }
COUNTED(forward, return tg_relu(tg_conv2d(x, w, .bias = biased(g)));)
COUNTED(padded, return tg_relu(tg_conv2d(x, w, .bias = biased(g), .padding = tg_padding_same()));)
COUNTED(strided, return tg_relu(tg_conv2d(x, w, .bias = biased(g), .stride = {2}));)
COUNTED(grouped, return tg_relu(tg_conv2d(tg_reshape(x, TG_SHAPE(4, 32, 12, 12)), w, .groups = 2));)
COUNTED(dw, return gradients(g, tg_conv2d(x, w), x, w, 1, 1);)
COUNTED(dx, return gradients(g, tg_conv2d(x, w), x, w, 0, 1);)
COUNTED(both, return gradients(g, tg_conv2d(x, w), x, w, 0, 2);)
COUNTED(both_strided, return gradients(g, tg_conv2d(x, w, .stride = {2}), x, w, 0, 2);)
COUNTED(dx_of_relu, return gradients(g, tg_conv2d(tg_relu(x), w, .padding = tg_padding_same()), x, w, 0, 1);)
COUNTED(max_pool, return tg_max_pool2d(x, 2, 2);)
COUNTED(max_pool_back, return gradients(g, tg_max_pool2d(x, 2, 2), x, w, 0, 1);)
COUNTED(max_pool_over_back, return gradients(g, tg_max_pool2d(x, 3, 3, .stride = {2}), x, w, 0, 1);)
COUNTED(avg_pool, return tg_avg_pool2d(x, 3, 3, .padding = tg_padding_all(1));)
COUNTED(avg_pool_back, return gradients(g, tg_avg_pool2d(x, 3, 3, .stride = {1}, .padding = tg_padding_all(1)), x, w, 0, 1);)

static tg_tensor build_counted(tg_graph *g, void *user) {
    const count_case *c = user;
    return c->build(g, tg_input(g, "x", TG_SHAPE(8, 16, 12, 12), TG_F32), tg_input(g, "w", TG_SHAPE(32, 16, 3, 3), TG_F32));
}

static void test_kernels(void **state) {
    (void)state;
    static const count_case cases[] = {{"forward", count_forward, 1},
                                       {"padded", count_padded, 2},
                                       {"strided", count_strided, 1},
                                       {"grouped", count_grouped, 1},
                                       {"dw", count_dw, 1},
                                       {"dx", count_dx, 2},
                                       {"dx and dw", count_both, 3},
                                       {"dx and dw, strided", count_both_strided, 3},
                                       {"dx of relu, padded", count_dx_of_relu, 2},
                                       {"max_pool", count_max_pool, 1},
                                       {"max_pool_back", count_max_pool_back, 2},
                                       {"overlapping back", count_max_pool_over_back, 2},
                                       {"avg_pool", count_avg_pool, 1},
                                       {"avg_pool_back", count_avg_pool_back, 1}};
    bool same = true;
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        const support_case c = {build_counted, (void *)(uintptr_t)&cases[i], NULL, NULL};
        support_outputs got;
        if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
        if (got.kernels != cases[i].kernels) fprintf(stderr, "%s: %d kernels, not %d\n", cases[i].name, got.kernels, cases[i].kernels);
        same = same && got.kernels == cases[i].kernels;
        support_outputs_free(&got);
    }
    assert_true(same);
}

int main(void) {
    const int refused = support_home_refuses("test_conv");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),  cmocka_unit_test(test_convolutions), cmocka_unit_test(test_pools),
        cmocka_unit_test(test_random), cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests_name("convolutions", tests, NULL, NULL);
}
