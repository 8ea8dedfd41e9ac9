/* Contractions against the naive triple loop in double, on every instruction set that this machine
 * has. Operands hold small whole numbers, so every sum is exact and must agree to the bit. Elements
 * that the strides of an operand skip are NaN. Scratch starts as NaN and is guarded on both sides,
 * and so are elements that the strides of an output skip. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/cpu/contract.h"

/* ---------------------------------------------------------------- random numbers, memory */

static support_random contract_random = {1};
static uint64_t next_bits(void) { return support_random_bits(&contract_random); }
static int64_t below(int64_t n) { return support_random_below(&contract_random, n); }

static void *allocate(size_t bytes) {
    void *block = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(block);
    return block;
}
static float *allocate_nan(int64_t count) {
    float *block = allocate((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; ++i) block[i] = NAN;
    return block;
}

/* ---------------------------------------------------------------- kernels */

enum { BATCH, ROWS, COLUMNS, INNER };

static int64_t group_extent(const tg_kernel *kernel, int group) {
    int32_t ends[5] = {0, kernel->m_begin, kernel->n_begin, kernel->outer_count, kernel->loop_count};
    int64_t count = 1;
    for (int32_t d = ends[group]; d < ends[group + 1]; ++d) count *= kernel->extent[d];
    return count;
}

/* Splits `size` in `pieces` loops where its factors allow. */
static void add_group(tg_kernel *kernel, int64_t size, int pieces) {
    for (; pieces > 1 && size > 1; --pieces) {
        int64_t factor = 2 + below(6);
        while (factor > 1 && size % factor != 0) --factor;
        kernel->extent[kernel->loop_count++] = factor;
        size /= factor;
    }
    if (size > 1 || below(2) == 0) kernel->extent[kernel->loop_count++] = size;
}

static tg_kernel kernel_of(int64_t batch, int64_t m, int64_t n, int64_t k, int pieces) {
    tg_kernel kernel = {.kind = TG_KERNEL_CONTRACT, .name = "test"};
    add_group(&kernel, batch, pieces);
    kernel.m_begin = kernel.loop_count;
    add_group(&kernel, m, pieces);
    kernel.n_begin = kernel.loop_count;
    add_group(&kernel, n, pieces);
    kernel.outer_count = kernel.loop_count;
    add_group(&kernel, k, pieces);
    return kernel;
}

static bool has_loop(const tg_kernel *kernel, int32_t d, bool is_a) {
    bool rows = d >= kernel->m_begin && d < kernel->n_begin, columns = d >= kernel->n_begin && d < kernel->outer_count;
    return is_a ? !columns : !rows;
}

/* Strides for loops stored in the order `order` (last is innermost), with `gap` unused elements after each innermost row.
 * Loops in `still` get stride 0, those in `backwards` run from the end. */
static void lay_out(tg_kernel *kernel, bool is_a, const int32_t *order, int64_t gap, uint32_t still, uint32_t backwards) {
    tg_affine *at = is_a ? &kernel->a.at : &kernel->b.at;
    int64_t stride = 1;
    bool innermost = true;
    memset(at, 0, sizeof *at);
    for (int32_t i = kernel->loop_count - 1; i >= 0; --i) {
        int32_t d = order[i];
        if (!has_loop(kernel, d, is_a) || (still >> d & 1) != 0) continue;
        at->stride[d] = stride;
        stride *= kernel->extent[d];
        if (innermost) stride += gap;
        innermost = false;
        if ((backwards >> d & 1) == 0) continue;
        at->offset += at->stride[d] * (kernel->extent[d] - 1);
        at->stride[d] = -at->stride[d];
    }
}

/* batch, rows and columns of the stored matrix: transposed exchanges k with the operand's own group. */
static void lay_out_matrix(tg_kernel *kernel, bool is_a, bool transposed, int64_t gap) {
    int32_t order[TG_MAX_LOOP], count = 0;
    for (int32_t d = 0; d < kernel->m_begin; ++d) order[count++] = d;
    bool k_last = is_a != transposed;
    for (int pass = 0; pass < 2; ++pass) {
        bool k_now = (pass == 1) == k_last;
        int32_t from = k_now ? kernel->outer_count : kernel->m_begin, to = k_now ? kernel->loop_count : kernel->outer_count;
        for (int32_t d = from; d < to; ++d) order[count++] = d;
    }
    lay_out(kernel, is_a, order, gap, 0, 0);
}

static void lay_out_randomly(tg_kernel *kernel, bool is_a) {
    int32_t order[TG_MAX_LOOP];
    for (int32_t d = 0; d < kernel->loop_count; ++d) order[d] = d;
    for (int32_t d = kernel->loop_count - 1; d > 0; --d) {
        int32_t other = (int32_t)below(d + 1), held = order[d];
        order[d] = order[other];
        order[other] = held;
    }
    uint32_t still = below(4) == 0 ? (uint32_t)next_bits() & (uint32_t)next_bits() : 0;
    uint32_t backwards = below(4) == 0 ? (uint32_t)next_bits() : 0;
    lay_out(kernel, is_a, order, below(3) == 0 ? below(20) : 0, still, backwards);
}

/* ---------------------------------------------------------------- operands */

static int64_t last_offset(const tg_kernel *kernel, const tg_affine *at) {
    int64_t last = at->offset;
    for (int32_t d = 0; d < kernel->loop_count; ++d)
        if (at->stride[d] > 0) last += at->stride[d] * (kernel->extent[d] - 1);
    return last;
}

/* A buffer of exactly the reach of `at`; NaN where nothing reads. whole: numbers in -4 .. 4, else fractions. */
static float *fill_operand(const tg_kernel *kernel, const tg_affine *at, bool whole) {
    float *data = allocate_nan(last_offset(kernel, at) + 1);
    int64_t index[TG_MAX_LOOP] = {0};
    for (;;) {
        int64_t offset = at->offset;
        int32_t d = kernel->loop_count - 1;
        for (int32_t i = 0; i <= d; ++i) offset += at->stride[i] * index[i];
        data[offset] = whole ? (float)(below(9) - 4) : (float)(below(20001) - 10000) * 1.37e-4f;
        for (; d >= 0 && (at->stride[d] == 0 || ++index[d] == kernel->extent[d]); --d) index[d] = 0;
        if (d < 0) return data;
    }
}

/* ---------------------------------------------------------------- runs */

#define GUARD 64 /* floats */
#define GAP 3    /* unused columns of a direct output */
static const float guard_value = 12345.0f;

typedef struct sink_state {
    float *out;
    int64_t batches, m, n;
    int64_t *seen;
    bool tiny;
} sink_state;

static void collect(void *user, int worker, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols, float *acc, int64_t ld) {
    sink_state *s = user;
    assert_int_equal(worker, 3);
    const int64_t most_batch = s->tiny ? 1 : s->batches, most_row = s->tiny ? s->batches * s->m : s->m;
    assert_true(batch >= 0 && batch < most_batch && m0 >= 0 && rows > 0 && m0 + rows <= most_row && n0 >= 0 && cols > 0);
    assert_true(n0 + cols <= s->n && (s->tiny ? ld == s->n && cols == s->n : ld >= cols));
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
            int64_t at = (batch * s->m + m0 + i) * s->n + n0 + j;
            ++s->seen[at];
            s->out[at] = acc[i * ld + j];
            acc[i * ld + j] = NAN; /* allowed */
        }
}

typedef struct test_run {
    const tg_kernel *kernel;
    const float *a, *b;
    int64_t batches, m, n;
} test_run;

/* The result as [batch, m, n], to be freed. */
static float *run_contraction(const test_run *t, tg_isa isa, int max_parts, bool to_sink, bool reversed) {
    tg_context *ctx = tg_context_create(NULL);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    tg_contraction *c =
        max_parts > 0 ? tg_contraction_make_limited(&arena, t->kernel, isa, max_parts) : tg_contraction_make(&arena, t->kernel, isa);
    assert_non_null(c);
    assert_true(strlen(tg_contraction_method(c)) > 0);
    int64_t floats = (int64_t)(tg_contraction_scratch(c) / sizeof(float)), count = t->batches * t->m * t->n;
    int64_t row_stride = t->n + GAP, batch_stride = t->m * row_stride + GAP;
    float *scratch = allocate((size_t)(floats + 2 * GUARD) * sizeof(float)), *out = allocate_nan(count);
    float *direct = allocate((size_t)(t->batches * batch_stride) * sizeof(float));
    for (int64_t i = 0; i < t->batches * batch_stride; ++i) direct[i] = guard_value;
    sink_state sink = {out, t->batches, t->m, t->n, allocate((size_t)count * sizeof(int64_t)), tg_contraction_is_tiny(c)};
    int64_t batch_strides[TG_MAX_LOOP], stride = batch_stride;
    for (int32_t d = t->kernel->m_begin - 1; d >= 0; stride *= t->kernel->extent[d--]) batch_strides[d] = stride;
    memset(sink.seen, 0, (size_t)count * sizeof(int64_t));
    int parts = tg_contraction_parts(c);
    for (int i = 0; i < parts; ++i) {
        if (i == 0 || !to_sink) { /* parts of a worker share what it packed, or each part packs its own */
            for (int64_t j = 0; j < floats + 2 * GUARD; ++j) scratch[j] = j < GUARD || j >= floats + GUARD ? guard_value : NAN;
            tg_contraction_begin(scratch + GUARD);
        }
        tg_contraction_run(c, reversed ? parts - 1 - i : i, 3, t->a, t->b, to_sink ? NULL : direct, batch_strides, row_stride,
                           to_sink ? collect : NULL, &sink, scratch + GUARD);
        for (int64_t j = 0; j < GUARD; ++j) assert_true(scratch[j] == guard_value && scratch[floats + GUARD + j] == guard_value);
    }
    for (int i = 0; i < parts; ++i)
        tg_contraction_finish(c, reversed ? i : parts - 1 - i, 3, to_sink ? NULL : direct, batch_strides, row_stride,
                              to_sink ? collect : NULL, &sink, scratch + GUARD);
    for (int64_t i = 0; to_sink && i < count; ++i) assert_int_equal(sink.seen[i], 1);
    for (int64_t i = 0; !to_sink && i < t->batches * batch_stride; ++i) {
        int64_t batch = i / batch_stride, row = i % batch_stride / row_stride, column = i % batch_stride % row_stride;
        if (row < t->m && column < t->n) out[(batch * t->m + row) * t->n + column] = direct[i];
        else assert_true(direct[i] == guard_value);
    }
    free(sink.seen);
    free(direct);
    free(scratch);
    tg_arena_free(&arena);
    assert_int_equal(tg_error(ctx), TG_OK);
    tg_context_destroy(ctx);
    return out;
}

static void print_kernel(const tg_kernel *kernel, tg_isa isa) {
    print_message("on %s, groups end at %d %d %d %d; seed %llu\n", tg_isa_name(isa), kernel->m_begin, kernel->n_begin, kernel->outer_count,
                  kernel->loop_count, (unsigned long long)contract_random.state);
    for (int32_t d = 0; d < kernel->loop_count; ++d)
        print_message("  loop %d: extent %lld, strides %lld %lld\n", d, (long long)kernel->extent[d], (long long)kernel->a.at.stride[d],
                      (long long)kernel->b.at.stride[d]);
}

static void assert_same(const test_run *t, tg_isa isa, const float *got, const float *want) {
    for (int64_t i = 0; i < t->batches * t->m * t->n; ++i) {
        if (got[i] == want[i]) continue;
        print_kernel(t->kernel, isa);
        print_message("element %lld: got %g, want %g\n", (long long)i, (double)got[i], (double)want[i]);
        fail();
    }
}

static tg_isa isas[4];
static int isa_count;

static void find_isas(void) {
    tg_isa best = tg_cpu_isa();
    isas[isa_count++] = TG_ISA_SCALAR_;
    if (best == TG_ISA_AVX512_) isas[isa_count++] = TG_ISA_AVX2_;
    if (best != TG_ISA_SCALAR_) isas[isa_count++] = best;
}

static void check_kernel(const tg_kernel *kernel) {
    test_run t = {kernel,
                  fill_operand(kernel, &kernel->a.at, true),
                  fill_operand(kernel, &kernel->b.at, true),
                  group_extent(kernel, BATCH),
                  group_extent(kernel, ROWS),
                  group_extent(kernel, COLUMNS)};
    float *want = allocate_nan(t.batches * t.m * t.n);
    tg_contraction_naive(kernel, t.a, t.b, want);
    for (int i = 0; i < isa_count; ++i)
        for (int to_sink = 0; to_sink < 2; ++to_sink) {
            float *got = run_contraction(&t, isas[i], 0, to_sink != 0, to_sink != 0);
            assert_same(&t, isas[i], got, want);
            free(got);
        }
    free(want);
    free((void *)(uintptr_t)t.a);
    free((void *)(uintptr_t)t.b);
}

static void check_shape(int64_t batch, int64_t m, int64_t n, int64_t k) {
    for (int variant = 0; variant < 4; ++variant) {
        tg_kernel kernel = kernel_of(batch, m, n, k, 1);
        lay_out_matrix(&kernel, true, (variant & 1) != 0, variant == 1 ? 5 : 0);
        lay_out_matrix(&kernel, false, (variant & 2) != 0, variant == 2 ? 7 : 0);
        check_kernel(&kernel);
    }
}

/* ---------------------------------------------------------------- tests */

static void test_every_small_size(void **state) {
    (void)state;
    for (int64_t m = 1; m <= 30; ++m)
        for (int64_t n = 1; n <= 36; n += 1 + below(3)) check_shape(1, m, n, 1 + below(20));
    for (int64_t size = 1; size <= 70; ++size) {
        check_shape(1, size, 1 + below(70), 1 + below(70));
        check_shape(1, 1 + below(70), size, 1 + below(70));
        check_shape(1, 1 + below(70), 1 + below(70), size);
    }
}

static void test_odd_sizes(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {1, 31, 31, 31},   {1, 33, 33, 33},   {1, 63, 63, 63},   {1, 65, 65, 65},   {1, 127, 127, 127}, {1, 129, 129, 129},
        {1, 993, 33, 65},  {1, 33, 993, 31},  {1, 31, 65, 993},  {1, 1, 993, 33},   {1, 993, 1, 33},    {1, 993, 33, 1},
        {1, 1, 1, 993},    {1, 1, 1, 1},      {1, 1, 64, 256},   {1, 64, 1, 256},   {1, 256, 1, 64},    {1, 256, 64, 1},
        {1, 12, 64, 1024}, {1, 100, 12, 64},  {1, 64, 64, 700},  {1, 320, 40, 640}, {1, 40, 600, 641},  {1, 300, 520, 330},
        {7, 8, 8, 16},     {7, 8, 16, 8},     {65, 5, 7, 3},     {3, 65, 33, 17},   {5, 1, 40, 9},      {5, 40, 1, 9},
        {1, 24, 96, 5000}, {1, 9, 300, 513},  {1, 33, 70, 2100}, {3, 20, 50, 400},  {9, 1, 1, 20},      {2, 128, 96, 400},
        {64, 12, 20, 30},  {1, 64, 512, 512}, {1, 512, 256, 64}, {1, 520, 1, 512},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) check_shape(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
}

static void test_random_layouts(void **state) {
    (void)state;
    for (int i = 0; i < 600; ++i) {
        int64_t limit = i % 8 == 0 ? 90 : 24;
        int64_t batch = below(2) == 0 ? 1 : 1 + below(12);
        tg_kernel kernel = kernel_of(batch, 1 + below(limit), 1 + below(limit), 1 + below(limit), 1 + (int)below(3));
        lay_out_randomly(&kernel, true);
        lay_out_randomly(&kernel, false);
        check_kernel(&kernel);
    }
}

/* Attention: heads inside [batch, time, heads, width], merged heads [(batch, time), (heads, width)] of [batch, heads, time, width]. */
static void test_heads(void **state) {
    (void)state;
    static const int32_t time_major[5] = {0, 2, 3, 1, 4}, head_major[5] = {0, 1, 2, 3, 4}, transposed[5] = {0, 1, 4, 3, 2};
    const int32_t *const orders[3] = {time_major, head_major, transposed};
    for (int i = 0; i < 9; ++i) {
        tg_kernel kernel = {.kind = TG_KERNEL_CONTRACT,
                            .loop_count = 5,
                            .extent = {3, 4, 8, i == 4 ? 8 : 16, 16 - i},
                            .outer_count = 4,
                            .m_begin = 2,
                            .n_begin = 3};
        lay_out(&kernel, true, orders[i % 3], 0, 0, 0);
        lay_out(&kernel, false, orders[i / 3], 0, 0, 0);
        check_kernel(&kernel);
        static const int32_t merged[5] = {0, 3, 1, 4, 2};
        kernel = (tg_kernel){
            .kind = TG_KERNEL_CONTRACT, .loop_count = 5, .extent = {16, 8, 24 + i, 4, 16}, .outer_count = 3, .m_begin = 0, .n_begin = 2};
        lay_out(&kernel, true, merged, 0, 0, 0);
        lay_out(&kernel, false, orders[i % 3], 0, 0, 0);
        check_kernel(&kernel);
    }
}

typedef struct window_shape {
    int64_t n, c, o, h, w, taps, stride, dilation; /* h, w: of the result */
} window_shape;

/* Operand b: c, the taps and the positions of windows, and the images, at these loops. */
static void lay_out_windows(tg_kernel *kernel, const window_shape *s, int n, int c, int taps, int at) {
    const int64_t width = (s->w - 1) * s->stride + (s->taps - 1) * s->dilation + 1,
                  plane = width * ((s->h - 1) * s->stride + (s->taps - 1) * s->dilation + 1);
    kernel->b.at = (tg_affine){0};
    kernel->b.at.stride[n] = s->c * plane;
    kernel->b.at.stride[c] = plane;
    kernel->b.at.stride[taps] = width * s->dilation;
    kernel->b.at.stride[taps + 1] = s->dilation;
    kernel->b.at.stride[at] = width * s->stride;
    kernel->b.at.stride[at + 1] = s->stride;
}

/* Convolutions: forward, with the taps backwards (the gradient of the input), the gradient of the
 * weights. */
static void test_windows(void **state) {
    (void)state;
    static const window_shape shapes[] = {{3, 3, 5, 6, 7, 3, 1, 1},    {2, 4, 20, 9, 9, 3, 2, 1},   {2, 6, 8, 5, 13, 2, 1, 3},
                                          {2, 2, 3, 1, 40, 5, 1, 1},   {4, 20, 40, 8, 8, 3, 1, 1},  {16, 8, 8, 16, 16, 3, 1, 1},
                                          {3, 70, 150, 4, 5, 3, 1, 1}, {20, 9, 33, 14, 14, 1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        const window_shape *s = &shapes[i];
        const int64_t t = s->taps;
        tg_kernel kernel = {.kind = TG_KERNEL_CONTRACT, .loop_count = 7, .outer_count = 4, .m_begin = 1, .n_begin = 2};
        const int64_t forward[7] = {s->n, s->o, s->h, s->w, s->c, t, t}, back[7] = {s->o, s->c, t, t, s->n, s->h, s->w};
        memcpy(kernel.extent, forward, sizeof forward);
        kernel.a.at = (tg_affine){.stride = {0, s->c * t * t, 0, 0, t * t, t, 1}};
        lay_out_windows(&kernel, s, 0, 4, 5, 2);
        check_kernel(&kernel);
        kernel.a.at = (tg_affine){.offset = t * t - 1, .stride = {0, t * t, 0, 0, s->o * t * t, -t, -1}};
        check_kernel(&kernel);
        memcpy(kernel.extent, back, sizeof back);
        kernel.m_begin = 0;
        kernel.n_begin = 1;
        kernel.a.at = (tg_affine){.stride = {s->h * s->w, 0, 0, 0, s->o * s->h * s->w, s->w, 1}};
        lay_out_windows(&kernel, s, 4, 1, 2, 5);
        check_kernel(&kernel);
    }
}

/* How the kernels of convolutions are packed: the gradient of weights reads rows of the images as
 * they lie, and splits its long k. */
static void test_methods_of_windows(void **state) {
    (void)state;
    const window_shape s = {16, 8, 8, 16, 16, 3, 1, 1};
    tg_context *ctx = tg_context_create(NULL);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    tg_kernel kernel = {
        .kind = TG_KERNEL_CONTRACT, .extent = {8, 8, 3, 3, 16, 16, 16}, .loop_count = 7, .outer_count = 4, .m_begin = 0, .n_begin = 1};
    kernel.a.at = (tg_affine){.stride = {256, 0, 0, 0, 8 * 256, 16, 1}};
    lay_out_windows(&kernel, &s, 4, 1, 2, 5);
    const tg_contraction *c = tg_contraction_make(&arena, &kernel, tg_cpu_isa());
    assert_non_null(c);
    assert_string_equal(tg_contraction_method(c), "a rows copied, b transposed, turned, k in parts");
    assert_true(tg_contraction_finishes(c) && tg_contraction_parts(c) > 1);
    const tg_contraction *one = tg_contraction_make_limited(&arena, &kernel, tg_cpu_isa(), 1);
    assert_true(one != NULL && tg_contraction_finishes(one) && tg_contraction_parts(one) == 1);
    tg_arena_free(&arena);
    tg_context_destroy(ctx);
}

/* Fractions: the same bits for any number and order of parts and either way out; near the double result. */
static void test_same_bits(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{1, 24, 96, 8200}, {1, 40, 30, 4200}, {1, 12, 80, 300}, {1, 200, 150, 700}, {1, 512, 160, 300},
                                        {6, 60, 70, 50},   {1, 700, 1, 300},  {1, 1, 700, 900}, {1, 64, 256, 1024}, {200, 8, 8, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i)
        for (int variant = 0; variant < 4; ++variant) {
            tg_kernel kernel = kernel_of(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], 1);
            lay_out_matrix(&kernel, true, (variant & 1) != 0, 0);
            lay_out_matrix(&kernel, false, (variant & 2) != 0, 0);
            test_run t = {&kernel,
                          fill_operand(&kernel, &kernel.a.at, false),
                          fill_operand(&kernel, &kernel.b.at, false),
                          shapes[i][0],
                          shapes[i][1],
                          shapes[i][2]};
            float *exact = allocate_nan(t.batches * t.m * t.n);
            tg_contraction_naive(&kernel, t.a, t.b, exact);
            for (int x = 0; x < isa_count; ++x) {
                float *first = run_contraction(&t, isas[x], 1, false, false);
                for (int64_t e = 0; e < t.batches * t.m * t.n; ++e)
                    assert_true(fabs((double)first[e] - (double)exact[e]) <= 2e-7 * (double)(shapes[i][3] + 8));
                for (int other = 0; other < 4; ++other) {
                    float *again = run_contraction(&t, isas[x], other == 0 ? 0 : 2 + 5 * other, other % 2 == 1, other >= 2);
                    assert_same(&t, isas[x], again, first);
                    free(again);
                }
                free(first);
            }
            free(exact);
            free((void *)(uintptr_t)t.a);
            free((void *)(uintptr_t)t.b);
        }
}

/* A NaN or an infinity in one row of a, or one column of b, stays there: padding must not spread it. */
static void test_not_a_number_stays(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; ++variant)
        for (int i = 0; i < isa_count; ++i) {
            tg_kernel kernel = kernel_of(1, 29, 43, 21, 1);
            lay_out_matrix(&kernel, true, (variant & 1) != 0, 0);
            lay_out_matrix(&kernel, false, (variant & 2) != 0, 0);
            float *a = fill_operand(&kernel, &kernel.a.at, true), *b = fill_operand(&kernel, &kernel.b.at, true);
            a[kernel.a.at.stride[kernel.m_begin] * 7] = NAN;
            b[kernel.b.at.stride[kernel.n_begin] * 41] = NAN;
            test_run t = {&kernel, a, b, 1, 29, 43};
            float *got = run_contraction(&t, isas[i], 0, false, false);
            for (int64_t row = 0; row < 29; ++row)
                for (int64_t column = 0; column < 43; ++column)
                    assert_int_equal(isnan(got[row * 43 + column]) != 0, row == 7 || column == 41);
            free(got);
            free(a);
            free(b);
        }
}

static void test_unsound_kernel(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    tg_kernel kernel = kernel_of(1, 4, 5, 6, 1);
    lay_out_matrix(&kernel, true, false, 0);
    lay_out_matrix(&kernel, false, false, 0);
    kernel.a.at.stride[kernel.n_begin] = 1;
    assert_null(tg_contraction_make(&arena, &kernel, TG_ISA_SCALAR_));
    assert_int_equal(tg_error(ctx), TG_ERROR_INTERNAL);
    tg_arena_free(&arena);
    tg_context_destroy(ctx);
}

static void test_public_gemm(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 0, -1}, c[2] = {9, 9};
    assert_int_equal(tg_gemm(ctx, 2, 1, 3, a, b, c), TG_OK);
    assert_true(c[0] == -2 && c[1] == -2);
    int64_t live = ctx->live_bytes;
    assert_int_equal(tg_gemm(ctx, 2, 1, 3, NULL, b, c), TG_ERROR_ARGUMENT);
    assert_int_equal(tg_gemm(ctx, 0, 1, 3, a, b, c), TG_ERROR_SHAPE);
    assert_string_equal(tg_error_message(ctx), "gemm: sizes must be at least 1: m 0, n 1, k 3");
    assert_int_equal(tg_gemm(ctx, 2, 1, -3, a, b, c), TG_ERROR_SHAPE);
    assert_int_equal(tg_gemm(ctx, INT64_C(1) << 40, 1, INT64_C(1) << 40, a, b, c), TG_ERROR_LIMIT);
    assert_int_equal(tg_gemm(ctx, INT64_C(1) << 20, INT64_C(1) << 20, 1, a, b, c), TG_ERROR_LIMIT);
    assert_int_equal(tg_gemm(NULL, 2, 1, 3, a, b, c), TG_ERROR_ARGUMENT);
    assert_int_equal(tg_gemm(ctx, 2, 1, 3, a, b, c), TG_OK); /* an error does not stay */
    assert_int_equal(ctx->live_bytes, live);
    assert_string_equal(tg_cpu_name(), tg_isa_name(tg_cpu_isa()));
    tg_context_destroy(ctx);
}

/* Every allocation fails in turn: an error, nothing lost, and the next call works. */
static void test_allocation_failures(void **state) {
    (void)state;
    float a[64] = {1}, b[64] = {1}, c[64];
    for (int64_t n = 1;; ++n) {
        support_allocator f = {0};
        tg_context *ctx = support_context_counting(&f);
        assert_non_null(ctx);
        int64_t live = f.live_blocks, calls = f.calls;
        f.fail_at = f.calls + n;
        tg_status status = tg_gemm(ctx, 8, 8, 8, a, b, c);
        bool failed = f.calls >= f.fail_at;
        assert_int_equal(status, failed ? TG_ERROR_MEMORY : TG_OK);
        assert_int_equal(f.live_blocks, live);
        f.fail_at = 0;
        assert_int_equal(tg_gemm(ctx, 8, 8, 8, a, b, c), TG_OK);
        tg_context_destroy(ctx);
        assert_int_equal(f.live_blocks, 0);
        assert_true(failed || f.calls > calls);
        if (!failed) break;
    }
}

static void test_isa_is_only_lowered(void **state) {
    (void)state;
    tg_isa best = tg_cpu_isa();
    const char *before = getenv("TENSORGRAD_ISA");
    char *kept = before != NULL ? allocate(strlen(before) + 1) : NULL;
    if (kept != NULL) memcpy(kept, before, strlen(before) + 1);
#if !defined(_WIN32) && !defined(__wasm__) /* a module has one */
    assert_int_equal(setenv("TENSORGRAD_ISA", "scalar", 1), 0);
    assert_int_equal(tg_cpu_isa(), TG_ISA_SCALAR_);
    assert_int_equal(setenv("TENSORGRAD_ISA", "nonsense", 1), 0);
    assert_true(tg_cpu_isa() >= best);
    assert_int_equal(unsetenv("TENSORGRAD_ISA"), 0);
    assert_true(tg_cpu_isa() >= best);
    if (kept != NULL) assert_int_equal(setenv("TENSORGRAD_ISA", kept, 1), 0);
#endif
    assert_int_equal(tg_cpu_isa(), best);
    free(kept);
}

int main(void) {
    find_isas();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_size),
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_random_layouts),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_methods_of_windows),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_not_a_number_stays),
        cmocka_unit_test(test_unsound_kernel),
        cmocka_unit_test(test_public_gemm),
        cmocka_unit_test(test_isa_is_only_lowered),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
