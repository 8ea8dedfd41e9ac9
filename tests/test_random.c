/* Random numbers: known answers, the statistics of draws within a step, between steps and between streams, and where the counter
 * stands after each kind of call. On support_home_now(), against the CPU where that is another. */
#include "fixtures.h"

#include "ir/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MANY 65536 /* numbers of a statistic */

/* ---------------------------------------------------------------- models */

static tg_tensor draw(tg_graph *g, tg_shape shape, int64_t bound) { return (tg_tensor){g, tg_ir_draw(g, shape, bound)}; }

static tg_compile_options options_of(uint64_t seed) { return (tg_compile_options){.seed = seed, .threads = 1, .device = support_device()}; }

/* Shape and bound of a forward model of one draw. */
typedef struct draw_of {
    tg_shape shape;
    int64_t bound;
} draw_of;
static tg_tensor build_draw(tg_graph *g, void *user) {
    const draw_of *d = user;
    return draw(g, d->shape, d->bound);
}

static void run_i32(tg_model *m, int32_t *out, int64_t count) { ok(tg_model_context(m), tg_run(m, NULL, 0, out, count)); }

/* loss = sum of w [8] under a mask drawn anew (each kept with probability 3/4); SGD, rate 1: after a step w is less by the mask.
 * Captures "mask" and "other": another stream. */
static tg_tensor build_masked(tg_graph *g, void *user) {
    (void)user;
    tg_tensor w = tg_param(g, "w", TG_SHAPE(8), .init = tg_init_zeros());
    tg_tensor mask = tg_cast(tg_less(draw(g, TG_SHAPE(8), 4), 3), TG_F32);
    tg_capture("mask", mask);
    tg_capture("other", draw(g, TG_SHAPE(8), INT64_C(1) << 31));
    return tg_sum_all(tg_mul(w, mask));
}
static tg_tensor build_masked_forward(tg_graph *g, void *user) {
    (void)user;
    tg_tensor mask = tg_cast(tg_less(draw(g, TG_SHAPE(8), 4), 3), TG_F32);
    return tg_add(tg_mul(tg_param(g, "w", TG_SHAPE(8), .init = tg_init_zeros()), 0.0), mask);
}

static tg_model *masked_model(tg_context *ctx, uint64_t seed) {
    tg_compile_options o = options_of(seed);
    o.optimizer = tg_sgd(.lr = tg_lr_constant(1.0));
    return must(ctx, tg_compile(ctx, build_masked, NULL, &o));
}

static void weights(tg_model *m, float out[8]) { ok(tg_model_context(m), tg_param_download(m, "w", out, 8)); }
static void step(tg_model *m) { ok(tg_model_context(m), tg_step(m, NULL, 0, NULL)); }

/* ---------------------------------------------------------------- known answers */

static tg_tensor build_known(tg_graph *g, void *user) {
    (void)user;
    const int32_t zero = tg_input(g, "zero", TG_SHAPE(3), TG_I32).id;
    return (tg_tensor){g, tg_ir_random(g, zero, zero, zero, 0, INT64_C(1) << 31)};
}

/* kat_vectors of Random123: philox4x32-10, counter and key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
static void a_draw_gives_the_published_answer(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(1);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_known, NULL, &o));
    const int32_t zeros[3] = {0, 0, 0};
    const tg_feed feeds[] = {tg_feed_i32("zero", zeros, 3)};
    int32_t got[3];
    ok(ctx, tg_run(m, feeds, 1, got, 3));
    for (int i = 0; i < 3; i++) assert_int_equal(got[i], 0x6627e8d5u >> 1);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* Element i of stream s in run t: the key is philox(seed) words 2 and 3, t added; the counter (i, 0, s, 0). */
static void a_run_draws_what_its_key_says(void **state) {
    (void)state;
    const uint32_t seed[2] = {0x89abcdefu, 0x01234567u};
    draw_of of = {TG_SHAPE(3, 5), 1000003};
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of((uint64_t)seed[1] << 32 | seed[0]);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_draw, &of, &o));
    uint32_t key[4], word[4];
    tg_philox((const uint32_t[4]){0, 0, 0, 1}, seed, key);
    for (uint32_t t = 0; t < 3; t++) {
        int32_t got[15];
        run_i32(m, got, 15);
        for (uint32_t i = 0; i < 15; i++) {
            tg_philox((const uint32_t[4]){i, 0, 0, 0}, (const uint32_t[2]){key[2] + t, key[3]}, word);
            assert_int_equal(got[i], tg_random_below(word[0], word[1], 1000003));
        }
    }
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static void bounds_are_kept_exactly(void **state) {
    (void)state;
    assert_int_equal(tg_random_below(0xffffffffu, 0xffffffffu, 0x80000000u), 0x7fffffff);
    assert_int_equal(tg_random_below(0xffffffffu, 0xffffffffu, 7), 6);
    assert_int_equal(tg_random_below(0xffffffffu, 0xffffffffu, 1), 0);
    assert_int_equal(tg_random_below(0, 0xffffffffu, 0x80000000u), 0);
    assert_int_equal(tg_random_below(0x80000000u, 0, 3), 1);
    assert_int_equal(tg_random_below(0x55555555u, 0x55555555u, 3), 0); /* 2^64 / 3, rounded down */
    assert_int_equal(tg_random_below(0x55555555u, 0x55555556u, 3), 1);
}

/* ---------------------------------------------------------------- statistics
 * Seeds are fixed, so these hold or do not hold; the bounds are what a good generator passes with all but one seed in 10^5. */

/* z of chi-square with many degrees of freedom. */
static double chi_square_z(const int64_t *count, int bins, double expected) {
    double chi = 0;
    for (int i = 0; i < bins; i++) chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    return (chi - (bins - 1)) / sqrt(2.0 * (bins - 1));
}

static double correlation(const int32_t *a, const int32_t *b, int64_t n) {
    double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = a[i], y = b[i];
        sa += x, sb += y, saa += x * x, sbb += y * y, sab += x * y;
    }
    return (sab - sa * sb / (double)n) / sqrt((saa - sa * sa / (double)n) * (sbb - sb * sb / (double)n));
}

static int by_value(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* B24: chi-square of 2^16 values, none stuck, no two draws alike. */
static void values_are_uniform_and_steps_are_not_related(void **state) {
    (void)state;
    draw_of of = {TG_SHAPE(256, 256), INT64_C(1) << 31};
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(20261130);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_draw, &of, &o));
    int32_t *now = malloc(sizeof(int32_t) * MANY), *last = malloc(sizeof(int32_t) * MANY), *stuck = malloc(sizeof(int32_t) * MANY);
    assert_true(now && last && stuck);
    for (int t = 0; t < 6; t++) {
        run_i32(m, now, MANY);
        int64_t high[256] = {0}, low[256] = {0}, pairs[256] = {0};
        for (int i = 0; i < MANY; i++) high[now[i] >> 23]++, low[now[i] & 255]++;
        for (int i = 0; i + 1 < MANY; i++) pairs[(now[i] >> 27) << 4 | now[i + 1] >> 27]++;
        assert_true(fabs(chi_square_z(high, 256, MANY / 256.0)) < 4.5);
        assert_true(fabs(chi_square_z(low, 256, MANY / 256.0)) < 4.5);
        assert_true(fabs(chi_square_z(pairs, 256, (MANY - 1) / 256.0)) < 4.5);
        if (t > 0) {
            assert_true(fabs(correlation(now, last, MANY)) < 4.5 / 256);
            assert_true(fabs(correlation(now + 1, last, MANY - 1)) < 4.5 / 256);
            for (int i = 0; i < MANY; i++) stuck[i] = t == 1 ? now[i] == last[i] : stuck[i] && now[i] == last[i];
        }
        memcpy(last, now, sizeof(int32_t) * MANY);
    }
    for (int i = 0; i < MANY; i++) assert_false(stuck[i]);
    /* one step is no permutation of the next (faults: a key made of seed xor index) */
    run_i32(m, now, MANY);
    qsort(now, MANY, sizeof *now, by_value);
    qsort(last, MANY, sizeof *last, by_value);
    int64_t same = 0;
    for (int i = 0; i < MANY; i++) same += bsearch(&now[i], last, MANY, sizeof *last, by_value) != NULL;
    assert_true(same < 20); /* 2 expected */
    free(now), free(last), free(stuck);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static tg_tensor build_streams(tg_graph *g, void *user) {
    (void)user;
    tg_tensor parts[3];
    for (int i = 0; i < 3; i++) parts[i] = draw(g, TG_SHAPE(MANY), INT64_C(1) << 31);
    return tg_stack(parts, 3, 0);
}

static void streams_and_seeds_are_not_related(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    int32_t *all = malloc(sizeof(int32_t) * MANY * 9);
    assert_non_null(all);
    for (int i = 0; i < 3; i++) { /* seeds as near as can be, and in either half */
        const tg_compile_options o = options_of(i < 2 ? (uint64_t)i : (uint64_t)1 << 32);
        tg_model *m = must(ctx, tg_compile_forward(ctx, build_streams, NULL, &o));
        run_i32(m, all + i * 3 * MANY, 3 * MANY);
        tg_model_destroy(m);
    }
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < i; j++) assert_true(fabs(correlation(all + i * MANY, all + j * MANY, MANY)) < 5.0 / 256);
    free(all);
    tg_context_destroy(ctx);
}

/* The count of a 64-element mask is binomial (faults: it was the same in every step). 2,000 masks kept with 3/4. */
static void masks_vary_like_a_binomial(void **state) {
    (void)state;
    enum { MASKS = 2000, N = 64 };
    draw_of of = {TG_SHAPE(N), 4};
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(7);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_draw, &of, &o));
    int64_t seen[N + 1] = {0}, kept_at[N] = {0};
    for (int t = 0; t < MASKS; t++) {
        int32_t x[N];
        int kept = 0;
        run_i32(m, x, N);
        for (int i = 0; i < N; i++) kept += x[i] < 3, kept_at[i] += x[i] < 3;
        seen[kept]++;
    }
    double chi = 0, p[N + 1], rest = 0;
    int bins = 0, rest_seen = 0;
    p[0] = pow(0.25, N);
    for (int k = 1; k <= N; k++) p[k] = p[k - 1] * 3.0 * (N - k + 1) / k;
    for (int k = 0; k <= N; k++) {
        const double expected = p[k] * (double)MASKS;
        if (expected < 5) {
            rest += expected, rest_seen += (int)seen[k];
            continue;
        }
        chi += ((double)seen[k] - expected) * ((double)seen[k] - expected) / expected;
        bins++;
    }
    chi += (rest_seen - rest) * (rest_seen - rest) / rest;
    assert_true(bins > 12);
    assert_true(fabs(chi - bins) / sqrt(2.0 * bins) < 4.5);
    for (int i = 0; i < N; i++) assert_true(fabs((double)kept_at[i] - 0.75 * (double)MASKS) < 5 * sqrt((double)MASKS * 0.75 * 0.25));
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- the operations */

#define OPS 20000

/* One model of all of them, so that it is compiled once; each as a capture. */
static tg_tensor build_operations(tg_graph *g, void *user) {
    (void)user;
    const float log_odds[4] = {0.0f, logf(2.0f), -(float)INFINITY, logf(5.0f)};
    const float chances[5] = {0.0f, 0.1f, 0.5f, 1.0f, (float)NAN};
    tg_tensor logits = tg_constant(g, TG_SHAPE(4), TG_F32, log_odds, 4), p = tg_constant(g, TG_SHAPE(5), TG_F32, chances, 5);
    tg_capture("rand", tg_rand(g, TG_SHAPE(OPS)));
    tg_capture("randn", tg_randn(g, TG_SHAPE(OPS)));
    tg_capture("other", tg_randn(g, TG_SHAPE(OPS)));
    tg_capture("int", tg_rand_int(g, TG_SHAPE(OPS), -3, 4));
    tg_capture("wide", tg_rand_int(g, TG_SHAPE(OPS), -2000000000, 100000000));
    tg_capture("never", tg_bernoulli(g, TG_SHAPE(OPS), 0));
    tg_capture("always", tg_bernoulli(g, TG_SHAPE(OPS), 1));
    tg_capture("coin", tg_bernoulli(g, TG_SHAPE(OPS), 0.3));
    tg_capture("coins", tg_bernoulli(g, TG_SHAPE(OPS, 5), p));
    tg_capture("last", tg_categorical(tg_broadcast_to(logits, TG_SHAPE(OPS, 4)), -1));
    tg_capture("first", tg_categorical(tg_broadcast_to(tg_reshape(logits, TG_SHAPE(4, 1)), TG_SHAPE(4, OPS)), 0));
    return tg_zeros(g, TG_SCALAR);
}

typedef struct moments {
    double mean, deviation, skew, kurtosis, most;
} moments;
static moments moments_of(const float *x, int n) {
    moments m = {0};
    for (int i = 0; i < n; i++) m.mean += (double)x[i] / n;
    double power[5] = {0};
    for (int i = 0; i < n; i++) {
        const double d = (double)x[i] - m.mean;
        if (fabs((double)x[i]) > m.most) m.most = fabs((double)x[i]);
        for (int k = 2; k < 5; k++) power[k] += pow(d, k) / n;
    }
    m.deviation = sqrt(power[2]);
    m.skew = power[3] / pow(power[2], 1.5);
    m.kurtosis = power[4] / (power[2] * power[2]);
    return m;
}
#define NEAR(value, want, sigma) assert_true(fabs((double)(value) - (double)(want)) < 5 * (double)(sigma))

static int by_size(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov's distance times sqrt n; over 2.2 once in 10^4. */
static double distance_from_normal(const float *x, int n) {
    float *sorted = malloc(sizeof *sorted * (size_t)n);
    double worst = 0;
    assert_non_null(sorted);
    memcpy(sorted, x, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(0.5 * erfc(-(double)sorted[i] / sqrt(2.0)) - (i + 0.5) / n));
    free(sorted);
    return worst * sqrt(n);
}

static double correlation_f32(const float *a, const float *b, int n) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) ab += (double)a[i] * (double)b[i], aa += (double)a[i] * (double)a[i], bb += (double)b[i] * (double)b[i];
    return ab / sqrt(aa * bb);
}

static const void *captured(const tg_captures *captures, const char *name) { return tg_captures_get(captures, name, NULL, NULL); }

static void check_normals(const float *x) {
    const moments m = moments_of(x, OPS);
    NEAR(m.mean, 0, 1 / sqrt(OPS));
    NEAR(m.deviation, 1, 1 / sqrt(2.0 * OPS));
    NEAR(m.skew, 0, sqrt(6.0 / OPS));
    NEAR(m.kurtosis, 3, sqrt(24.0 / OPS));
    assert_true(m.most > 3 && m.most < 6.6);
    assert_true(distance_from_normal(x, OPS) < 2.2);
}

static void check_coins(const tg_captures *c) {
    const uint8_t *never = captured(c, "never"), *always = captured(c, "always"), *coin = captured(c, "coin"),
                  *coins = captured(c, "coins");
    int heads = 0, of[5] = {0};
    for (int i = 0; i < OPS; i++) {
        assert_true(!never[i] && always[i]);
        heads += coin[i];
        for (int k = 0; k < 5; k++) of[k] += coins[5 * i + k];
    }
    NEAR(heads, 0.3 * OPS, sqrt(OPS * 0.3 * 0.7));
    assert_true(of[0] == 0 && of[3] == OPS && of[4] == 0);
    NEAR(of[1], 0.1 * OPS, sqrt(OPS * 0.1 * 0.9));
    NEAR(of[2], 0.5 * OPS, sqrt(OPS * 0.5 * 0.5));
}

static void check_integers(const tg_captures *c) {
    const int32_t *small = captured(c, "int"), *wide = captured(c, "wide");
    int64_t seen[7] = {0}, parts[7] = {0};
    for (int i = 0; i < OPS; i++) {
        assert_in_range(small[i] + 3, 0, 6);
        assert_true(wide[i] >= -2000000000 && wide[i] < 100000000);
        seen[small[i] + 3]++;
        parts[(wide[i] + INT64_C(2000000000)) / 300000000]++;
    }
    assert_true(fabs(chi_square_z(seen, 7, OPS / 7.0)) < 5);
    assert_true(fabs(chi_square_z(parts, 7, OPS / 7.0)) < 5);
}

static void check_categories(const int32_t *x) {
    int seen[4] = {0};
    for (int i = 0; i < OPS; i++) {
        assert_in_range(x[i], 0, 3);
        seen[x[i]]++;
    }
    assert_int_equal(seen[2], 0);
    NEAR(seen[0], OPS / 8.0, sqrt(OPS * 7.0 / 64));
    NEAR(seen[1], OPS / 4.0, sqrt(OPS * 3.0 / 16));
}

/* Moments and shapes of what each operation draws, over two runs that must not resemble each other. */
static void operations_draw_what_they_say(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(11);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_operations, NULL, &o));
    tg_captures *run[2];
    float nothing;
    for (int t = 0; t < 2; t++) {
        ok(ctx, tg_run_captures(m, NULL, 0, &nothing, 1, &run[t]));
        const float *unit = captured(run[t], "rand"), *normal = captured(run[t], "randn"), *other = captured(run[t], "other");
        const moments u = moments_of(unit, OPS);
        NEAR(u.mean, 0.5, 1 / sqrt(12.0 * OPS));
        NEAR(u.deviation, 1 / sqrt(12.0), 1 / sqrt(180.0 * OPS) * sqrt(12.0) / 2);
        assert_true(u.most < 1);
        for (int i = 0; i < OPS; i++) assert_true(unit[i] >= 0);
        check_normals(normal);
        check_normals(other);
        NEAR(correlation_f32(normal, other, OPS), 0, 1 / sqrt(OPS));
        check_coins(run[t]);
        check_integers(run[t]);
        check_categories(captured(run[t], "last"));
        check_categories(captured(run[t], "first"));
    }
    const float *a = captured(run[0], "randn"), *b = captured(run[1], "randn");
    NEAR(correlation_f32(a, b, OPS), 0, 1 / sqrt(OPS));
    float sums[2][2] = {{0}}; /* of a permutation these would agree, in any order but for rounding */
    for (int i = 0; i < OPS; i++) sums[0][0] += a[i], sums[0][1] += a[i] * a[i], sums[1][0] += b[i], sums[1][1] += b[i] * b[i];
    assert_true(fabsf(sums[0][0] - sums[1][0]) > 1 && fabsf(sums[0][1] - sums[1][1]) > 1);
    tg_captures_destroy(run[0]);
    tg_captures_destroy(run[1]);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- dropout */

#define DROPPED 4096

/* y = dropout(x, .25) with a cotangent of x's shape, both fed; values not finite among the first. */
static tg_tensor build_dropout(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(DROPPED), TG_F32), w = tg_param(g, "w", TG_SHAPE(DROPPED), .init = tg_init_ones());
    tg_tensor y = tg_capture("y", tg_dropout(tg_mul(x, w), 0.25));
    return tg_sum_all(tg_where(tg_equal(tg_arange(g, DROPPED, TG_I32), 0), 0, tg_mul(y, tg_input(g, "cot", TG_SHAPE(DROPPED), TG_F32))));
}

/* B23: kept elements are scaled, dropped ones are exactly 0 whatever they were, and so are their gradients. */
static void dropout_keeps_or_drops_value_and_gradient(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(17);
    tg_model *m = must(ctx, tg_compile(ctx, build_dropout, NULL, &o));
    static float x[DROPPED], cot[DROPPED], gradient[DROPPED];
    support_random random = support_random_make(4);
    for (int i = 0; i < DROPPED; i++) x[i] = support_random_float(&random, 0.5, 2), cot[i] = support_random_float(&random, -2, 2);
    const tg_feed feeds[] = {tg_feed_f32("x", x, DROPPED), tg_feed_f32("cot", cot, DROPPED)};
    int kept[3] = {0}, both = 0;
    static bool before[DROPPED];
    for (int t = 0; t < 3; t++) {
        tg_captures *captures = NULL;
        ok(ctx, tg_step_captures(m, feeds, 2, NULL, &captures));
        ok(ctx, tg_param_grad_download(m, "w", gradient, DROPPED));
        const float *y = captured(captures, "y");
        for (int i = 1; i < DROPPED; i++) {
            const double scale = 1 / 0.75;
            if (y[i] == 0) assert_true(gradient[i] == 0);
            else {
                assert_true(support_close((double)y[i], (double)x[i] * scale, (support_tolerance){2, 0, 0}));
                assert_true(support_close((double)gradient[i], (double)(cot[i] * x[i]) * scale, (support_tolerance){4, 0, 0}));
            }
            both += t == 1 && y[i] != 0 && before[i];
            before[i] = y[i] != 0;
            kept[t] += y[i] != 0;
        }
        NEAR(kept[t], 0.75 * DROPPED, sqrt(DROPPED * 0.75 * 0.25));
        tg_captures_destroy(captures);
    }
    NEAR(both, 0.5625 * DROPPED, sqrt(DROPPED * 0.5625 * 0.4375)); /* masks of two steps: independent */
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static tg_tensor build_infinite(tg_graph *g, void *user) {
    (void)user;
    return tg_dropout(tg_input(g, "x", TG_SHAPE(64), TG_F32), 0.5);
}

/* A dropped NaN or infinity is 0: it is not multiplied by 0. */
static void dropout_forgets_what_it_drops(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(17);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_infinite, NULL, &o));
    float x[64], y[64];
    for (int i = 0; i < 64; i++) x[i] = i % 2 ? (float)NAN : (float)INFINITY;
    const tg_feed feed = tg_feed_f32("x", x, 64);
    ok(ctx, tg_run(m, &feed, 1, y, 64));
    int zeros = 0;
    for (int i = 0; i < 64; i++) {
        assert_true(y[i] == 0 || (i % 2 ? isnan(y[i]) : isinf(y[i])));
        zeros += y[i] == 0;
    }
    assert_in_range(zeros, 12, 52);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* B47: two draws of one kernel: the helper functions are there once. */
static tg_tensor build_pair(tg_graph *g, void *user) {
    (void)user;
    return tg_add(tg_mul(tg_randn(g, TG_SHAPE(8)), tg_randn(g, TG_SHAPE(8))), tg_dropout(tg_rand(g, TG_SHAPE(8)), 0.5));
}

static void many_draws_fit_one_kernel(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(1);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_pair, NULL, &o));
    float y[8];
    ok(ctx, tg_run(m, NULL, 0, y, 8));
    for (int i = 0; i < 8; i++) assert_true(isfinite(y[i]));
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- the same bits everywhere */

/* Whole, sliced, turned, reduced and as rows: recomputed wherever it suits. */
static tg_tensor build_shapes(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = draw(g, TG_SHAPE(7, 33, 5), INT64_C(1) << 31), y = draw(g, TG_SHAPE(35, 33), INT64_C(1) << 20);
    tg_capture("x", x);
    tg_capture("turned", tg_transpose(x, TG_AXES(2, 0, 1)));
    tg_capture("slice", tg_narrow(x, 1, 3, 20));
    tg_capture("largest", tg_max(x, TG_AXES(1)));
    tg_capture("sum", tg_sum(x, TG_AXES(0, 2)));
    const tg_tensor parts[] = {tg_reshape(x, TG_SHAPE(35, 33)), y};
    tg_capture("pieces", tg_concat(parts, 2, 0));
    tg_capture("at", tg_argmin(y, 1));
    return tg_add(tg_sum_all(x), tg_sum_all(y));
}

static void the_bits_do_not_depend_on_where_they_are_computed(void **state) {
    (void)state;
    const support_case c = {.build = build_shapes};
    support_outputs want, got;
    const support_options ways[] = {
        {.threads = 1},  {.threads = 3},    {.no_fusion = true}, {.no_passes = true}, {.max_arguments = 4},
        {.joins = true}, {.isa = "scalar"}, {.isa = "avx2"},     {.isa = "avx512"},   {.joins = true, .shuffled = true}};
    assert_true(support_run_reference(&c, 2, &want));
    for (int i = 0; i < SUPPORT_COUNT(ways); i++) {
        support_options o = ways[i];
        o.runs = 2;
        const bool cpu_only = o.isa != NULL || o.shuffled || o.threads > 1;
        if (cpu_only && support_home_now() != SUPPORT_CPU) continue;
        o.home = support_home_now();
        if (!support_run_home(&c, &o, &got)) fail_msg("way %d: %s", i, got.message);
        assert_true(support_outputs_equal("draws", &got, &want, (support_tolerance){0}));
        support_outputs_free(&got);
    }
    support_outputs_free(&want);
}

/* A row in a chain, a reduction in parts: more numbers than one launch of one dimension reaches. */
static void many_numbers_are_each_their_own(void **state) {
    (void)state;
    draw_of of = {TG_SHAPE(65537, 65), INT64_C(1) << 31};
    const int64_t n = 65537 * 65;
    tg_context *ctx = support_context();
    const tg_compile_options o = options_of(3);
    tg_model *m = must(ctx, tg_compile_forward(ctx, build_draw, &of, &o));
    int32_t *x = malloc(sizeof *x * (size_t)n);
    assert_non_null(x);
    run_i32(m, x, n);
    uint32_t key[4], word[4];
    tg_philox((const uint32_t[4]){0, 0, 0, 1}, (const uint32_t[2]){3, 0}, key);
    for (int64_t i = 0; i < n; i += i % 1000 == 0 || i > n - 500 ? 1 : 997) {
        tg_philox((const uint32_t[4]){(uint32_t)i, 0, 0, 0}, key + 2, word);
        assert_int_equal(x[i], word[0] >> 1);
    }
    free(x);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* Forward and backward use one mask: the gradient is the mask. */
static void forward_and_backward_see_one_mask(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *m = masked_model(ctx, 5);
    float before[8], after[8], gradient[8];
    for (int t = 0; t < 5; t++) {
        tg_captures *captures = NULL;
        weights(m, before);
        ok(ctx, tg_step_captures(m, NULL, 0, NULL, &captures));
        weights(m, after);
        ok(ctx, tg_param_grad_download(m, "w", gradient, 8));
        const float *mask = tg_captures_get(captures, "mask", NULL, NULL);
        for (int i = 0; i < 8; i++) {
            assert_true(mask[i] == gradient[i]);
            assert_true(after[i] == before[i] - mask[i]);
        }
        tg_captures_destroy(captures);
    }
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- the counter */

enum { STEPS = 6 };
static void trajectory(tg_model *m, int steps, float out[][8]) {
    for (int t = 0; t < steps; t++) {
        step(m);
        weights(m, out[t]);
    }
}

static void a_reset_replays_and_another_seed_does_not(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    float first[STEPS][8], again[STEPS][8], other[STEPS][8];
    tg_model *m = masked_model(ctx, 5), *n = masked_model(ctx, 6);
    trajectory(m, STEPS, first);
    trajectory(n, STEPS, other);
    ok(ctx, tg_model_reset(m));
    trajectory(m, STEPS, again);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    /* the optimiser's reset is no reset of the draws: the masks go on */
    trajectory(n, 2, other);
    ok(ctx, tg_model_reset(m));
    ok(ctx, tg_model_reset(n));
    trajectory(n, 3, other);
    trajectory(m, 3, first);
    ok(ctx, tg_model_reset_optimizer(m));
    trajectory(m, 3, first + 3);
    assert_memory_equal(first, again, sizeof first);
    tg_model_destroy(m);
    tg_model_destroy(n);
    tg_context_destroy(ctx);
}

/* Between steps: runs, captures, runs of siblings. The steps draw what they would have. */
static void runs_leave_what_steps_draw_alone(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    float want[STEPS][8], got[STEPS][8], out[8], last[8] = {0};
    tg_model *m = masked_model(ctx, 5), *sibling = must(ctx, tg_compile_sibling(m, build_masked_forward, NULL));
    trajectory(m, STEPS, want);
    ok(ctx, tg_model_reset(m));
    int changes = 0;
    for (int t = 0; t < STEPS; t++) {
        tg_captures *captures = NULL;
        float loss;
        ok(ctx, tg_run(m, NULL, 0, &loss, 1));
        ok(ctx, tg_run_captures(m, NULL, 0, &loss, 1, &captures));
        tg_captures_destroy(captures);
        ok(ctx, tg_run(sibling, NULL, 0, out, 8));
        changes += memcmp(out, last, sizeof out) != 0;
        memcpy(last, out, sizeof out);
        trajectory(m, 1, got + t);
    }
    assert_memory_equal(want, got, sizeof want);
    assert_true(changes > 3); /* each run draws anew: 8 of 4 alike have one chance in 10 */
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

/* A sibling's draws are its model's runs', and a reset replays them too. */
static void runs_of_a_family_share_a_counter(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    tg_model *m = masked_model(ctx, 5), *sibling = must(ctx, tg_compile_sibling(m, build_masked_forward, NULL));
    float first[3][8], again[3][8], loss;
    for (int t = 0; t < 3; t++) {
        ok(ctx, tg_run(sibling, NULL, 0, first[t], 8));
        ok(ctx, tg_run(m, NULL, 0, &loss, 1));
    }
    ok(ctx, tg_model_reset(m));
    for (int t = 0; t < 3; t++) {
        ok(ctx, tg_run(sibling, NULL, 0, again[t], 8));
        if (t == 1) assert_memory_not_equal(first[1], again[1], sizeof again[1]); /* one run has not been made in between */
        if (t == 2) assert_memory_equal(first[1], again[2], sizeof again[2]);
    }
    assert_memory_equal(first[0], again[0], sizeof again[0]);
    tg_model_destroy(m);
    tg_context_destroy(ctx);
}

static void a_checkpoint_goes_on_where_it_was(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    char path[256];
    support_path(path, sizeof path, "random.safetensors");
    float want[STEPS][8], got[STEPS][8], mask[2][8];
    tg_model *m = masked_model(ctx, 5), *n = masked_model(ctx, 99);
    trajectory(m, 3, want);
    ok(ctx, tg_model_save(m, path));
    trajectory(m, 3, want + 3);
    step(n);
    ok(ctx, tg_model_load(n, path));
    trajectory(n, 3, got + 3);
    assert_memory_equal(want[3], got[3], 3 * sizeof want[3]);
    /* the seed of the file is that of later resets, of steps and of runs; runs begin anew after a load */
    tg_model *run_m = must(ctx, tg_compile_sibling(m, build_masked_forward, NULL));
    tg_model *run_n = must(ctx, tg_compile_sibling(n, build_masked_forward, NULL));
    ok(ctx, tg_run(run_n, NULL, 0, mask[1], 8));
    ok(ctx, tg_model_load(n, path));
    ok(ctx, tg_run(run_m, NULL, 0, mask[0], 8));
    ok(ctx, tg_run(run_n, NULL, 0, mask[1], 8));
    assert_memory_equal(mask[0], mask[1], sizeof mask[0]);
    ok(ctx, tg_model_reset(n));
    trajectory(n, 3, got);
    assert_memory_equal(want, got, 3 * sizeof want[0]);
    remove(path);
    tg_model_destroy(m);
    tg_model_destroy(n);
    tg_context_destroy(ctx);
}

/* A table looked up at a drawn row, which a fed number can push out of the table: the index is computed, so the check is a program of
 * its own before anything changes. */
static tg_tensor build_lookup(tg_graph *g, void *user) {
    (void)user;
    tg_tensor table = tg_param(g, "table", TG_SHAPE(8, 1), .init = tg_init_randn(1));
    tg_tensor row = tg_add(draw(g, TG_SHAPE(16), 8), tg_input(g, "push", TG_SCALAR, TG_I32));
    return tg_sum_all(tg_embedding(table, row));
}

static tg_status lookup(tg_model *m, bool steps, int32_t push, float *loss) {
    const tg_feed feed = tg_feed_i32("push", &push, 1);
    return steps ? tg_step(m, &feed, 1, loss) : tg_run(m, &feed, 1, loss, 1);
}

static void a_rejected_call_draws_nothing(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    for (int kind = 0; kind < 3; kind++) { /* steps, runs of a training model, runs of a forward model */
        const tg_compile_options o = options_of(5);
        tg_model *m = must(ctx, kind < 2 ? tg_compile(ctx, build_lookup, NULL, &o) : tg_compile_forward(ctx, build_lookup, NULL, &o));
        float want[4], got[4], none;
        for (int t = 0; t < 4; t++) ok(ctx, lookup(m, kind == 0, 0, &want[t]));
        assert_true(want[0] != want[1] && want[1] != want[2]);
        ok(ctx, tg_model_reset(m));
        for (int t = 0; t < 4; t++) {
            assert_int_equal(lookup(m, kind == 0, 100, &none), TG_ERROR_INDEX);
            assert_int_not_equal(tg_step(m, NULL, 0, NULL), TG_OK); /* no feed, or no step at all */
            assert_int_not_equal(tg_run(m, NULL, 0, &none, 1), TG_OK);
            ok(ctx, lookup(m, kind == 0, 0, &got[t]));
        }
        assert_memory_equal(want, got, sizeof want);
        tg_model_destroy(m);
    }
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- graphs */

static tg_tensor build_two(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor a = draw(g, TG_SHAPE(4), 10), b = draw(g, TG_SHAPE(4), 10);
    const tg_node *node = tg_graph_node(g, a.id);
    const tg_tensor same = {g, tg_ir_random(g, node->inputs[0], node->inputs[1], node->inputs[2], node->attr.stream, 10)};
    const tg_tensor wider = {g, tg_ir_random(g, node->inputs[0], node->inputs[1], node->inputs[2], node->attr.stream, 20)};
    return tg_add(tg_add(a, tg_mul(b, 100)), tg_add(tg_mul(same, 10000), tg_mul(wider, 1000000)));
}

/* Equal stream, key and bound are one draw; anything else is not. */
static void equal_draws_are_merged_and_others_are_not(void **state) {
    (void)state;
    const support_case c = {.build = build_two};
    support_program p;
    support_outputs error = {0};
    assert_true(support_program_make(&c, &(support_options){.threads = 1}, &p, &error));
    int draws = 0;
    for (int64_t i = 1; i < p.graph->nodes.count; i++) draws += p.graph->nodes.items[i].op == TG_OP_RANDOM;
    assert_int_equal(draws, 3);
    assert_int_equal(p.graph->states.count, 1);
    assert_int_equal(p.graph->writebacks.count, 1);
    support_program_free(&p);
    support_outputs_free(&error);
}

/* x [128, 8] -> 64 -> 64 -> 1, trained; dropout behind both hidden layers, or none. */
static tg_tensor build_mlp(tg_graph *g, void *user) {
    const double p = *(const double *)user;
    const tg_linear l[3] = {tg_nn_linear(g, "a", 8, 64), tg_nn_linear(g, "b", 64, 64), tg_nn_linear(g, "c", 64, 1)};
    tg_tensor h = tg_input(g, "x", TG_SHAPE(128, 8), TG_F32);
    for (int i = 0; i < 2; i++) h = tg_dropout(tg_relu(tg_nn_linear_fwd(l[i], h)), p);
    const tg_tensor loss = tg_nn_mse(tg_nn_linear_fwd(l[2], h), tg_input(g, "y", TG_SHAPE(128, 1), TG_F32));
    const tg_optimizer adam = tg_adam(.lr = tg_lr_constant(0.01));
    tg_append_optimizer(loss, &adam);
    return loss;
}

static void count_work(double p, bool joins, int *kernels, int *launches) {
    const support_case c = {.build = build_mlp, .build_user = &p};
    support_program made;
    support_outputs error = {0};
    assert_true(support_program_make(&c, &(support_options){.threads = 1, .joins = joins}, &made, &error));
    *kernels = made.program->kernel_count;
    *launches = made.program->launch_count;
    support_program_free(&made);
    support_outputs_free(&error);
}

/* A mask is drawn where its layer ends and kept as bools; all that is added is the kernel that counts the step. */
static void dropout_costs_one_kernel_and_no_launch(void **state) {
    (void)state;
    int kernels[2], launches[2];
    for (int joins = 0; joins < 2; joins++) {
        for (int drops = 0; drops < 2; drops++) count_work(drops ? 0.25 : 0, joins, &kernels[drops], &launches[drops]);
        assert_int_equal(kernels[1], kernels[0] + 1);
        assert_int_equal(launches[1], launches[0] + !joins);
    }
}

/* Names of the library and what bytes may claim. */
static tg_tensor build_reserved(tg_graph *g, void *user) { return tg_state(g, user, TG_SHAPE(2), TG_I32, 0); }

static void the_state_is_the_librarys_own(void **state) {
    (void)state;
    tg_context *ctx = support_context();
    assert_null(tg_compile_forward(ctx, build_reserved, (void *)(uintptr_t) "tg.random", NULL));
    assert_int_equal(tg_error(ctx), TG_ERROR_ARGUMENT);
    tg_clear_error(ctx);
    assert_null(tg_compile_forward(ctx, build_reserved, (void *)(uintptr_t) "tg.random.runs", NULL));
    assert_int_equal(tg_error(ctx), TG_ERROR_ARGUMENT);
    tg_context_destroy(ctx);
}

int main(void) {
    const int refused = support_home_refuses("random");
    if (refused) return refused;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draw_gives_the_published_answer),
        cmocka_unit_test(a_run_draws_what_its_key_says),
        cmocka_unit_test(bounds_are_kept_exactly),
        cmocka_unit_test(values_are_uniform_and_steps_are_not_related),
        cmocka_unit_test(streams_and_seeds_are_not_related),
        cmocka_unit_test(masks_vary_like_a_binomial),
        cmocka_unit_test(operations_draw_what_they_say),
        cmocka_unit_test(dropout_keeps_or_drops_value_and_gradient),
        cmocka_unit_test(dropout_forgets_what_it_drops),
        cmocka_unit_test(many_draws_fit_one_kernel),
        cmocka_unit_test(the_bits_do_not_depend_on_where_they_are_computed),
        cmocka_unit_test(many_numbers_are_each_their_own),
        cmocka_unit_test(forward_and_backward_see_one_mask),
        cmocka_unit_test(a_reset_replays_and_another_seed_does_not),
        cmocka_unit_test(runs_leave_what_steps_draw_alone),
        cmocka_unit_test(runs_of_a_family_share_a_counter),
        cmocka_unit_test(a_checkpoint_goes_on_where_it_was),
        cmocka_unit_test(a_rejected_call_draws_nothing),
        cmocka_unit_test(equal_draws_are_merged_and_others_are_not),
        cmocka_unit_test(dropout_costs_one_kernel_and_no_launch),
        cmocka_unit_test(the_state_is_the_librarys_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
