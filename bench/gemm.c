/* Benchmark of contractions: GFLOP/s on one thread, next to OpenBLAS if libopenblas.so.0 is
 * installed (OPENBLAS_CORETYPE chooses its kernels; set OPENBLAS_NUM_THREADS=1). Best of several
 * short runs.
 *   bench_gemm [--json] [--quick] [--isa scalar|avx2|avx512] */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#  define _POSIX_C_SOURCE 200809L
#endif
#include "run/cpu/contract.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if !defined(_WIN32)
#  include <dlfcn.h>
#endif

/* One contraction with row-major operands. A transposed operand is stored with its two axes
 * exchanged. A batch of `heads` inner parts has the layout of attention: [batch, row, head,
 * column]. */
typedef struct bench_case {
    const char *name;
    int64_t batch, heads, m, n, k;
    bool a_transposed, b_transposed;
} bench_case;

static const bench_case bench_square[] = {
    {"64", 1, 1, 64, 64, 64, false, false},         {"128", 1, 1, 128, 128, 128, false, false},
    {"256", 1, 1, 256, 256, 256, false, false},     {"512", 1, 1, 512, 512, 512, false, false},
    {"1024", 1, 1, 1024, 1024, 1024, false, false}, {"2048", 1, 1, 2048, 2048, 2048, false, false},
    {"512 A^T", 1, 1, 512, 512, 512, true, false},  {"512 B^T", 1, 1, 512, 512, 512, false, true},
    {"1000", 1, 1, 1000, 1000, 1000, false, false},
};
static const bench_case bench_transformer[] = {
    {"projection", 1, 1, 1024, 64, 64, false, false},   {"projection dX", 1, 1, 1024, 64, 64, false, true},
    {"projection dW", 1, 1, 64, 64, 1024, true, false}, {"mlp up", 1, 1, 1024, 256, 64, false, false},
    {"mlp up dX", 1, 1, 1024, 64, 256, false, true},    {"mlp up dW", 1, 1, 64, 256, 1024, true, false},
    {"mlp down", 1, 1, 1024, 64, 256, false, false},    {"mlp down dX", 1, 1, 1024, 256, 64, false, true},
    {"mlp down dW", 1, 1, 256, 64, 1024, true, false},  {"head", 1, 1, 1024, 12, 64, false, true},
    {"head dX", 1, 1, 1024, 64, 12, false, false},      {"head dW", 1, 1, 12, 64, 1024, true, false},
    {"scores", 128, 4, 8, 8, 16, false, true},          {"scores dQ", 128, 4, 8, 16, 8, false, false},
    {"scores dK", 128, 4, 8, 16, 8, true, false},       {"values", 128, 4, 8, 16, 8, false, false},
    {"mlp-sin 1", 1, 1, 256, 64, 1, false, false},      {"mlp-sin 2", 1, 1, 256, 64, 64, false, false},
    {"mlp-sin 3", 1, 1, 256, 1, 64, false, false},      {"mlp-sin 2 dX", 1, 1, 256, 64, 64, false, true},
    {"mlp-sin 2 dW", 1, 1, 64, 64, 256, true, false},   {"mlp-sin 1 dW", 1, 1, 1, 64, 256, true, false},
    {"mlp-sin 3 dW", 1, 1, 64, 1, 256, true, false},
};

typedef void (*cblas_sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                               const float *b, int ldb, float beta, float *c, int ldc);
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

/* Of this thread where the system tells: then a busy machine disturbs less. */
static double bench_seconds(void) {
    struct timespec now;
#if defined(CLOCK_THREAD_CPUTIME_ID)
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static cblas_sgemm_fn bench_open_blas(void) {
#if !defined(_WIN32)
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "cblas_sgemm") : NULL;
    cblas_sgemm_fn function = NULL;
    if (symbol != NULL) memcpy(&function, &symbol, sizeof function);
    return function;
#else
    return NULL;
#endif
}

/* Strides of a [batch, heads, rows, columns] operand: with heads, stored as [batch, rows, heads,
 * columns]. */
static void bench_operand(tg_operand_access *access, const bench_case *c, int64_t rows, int64_t columns, bool transposed, int row_loop,
                          int column_loop) {
    int64_t stored_columns = transposed ? rows : columns;
    access->at.stride[0] = rows * columns * c->heads;
    access->at.stride[1] = stored_columns;
    access->at.stride[row_loop] = transposed ? 1 : columns * c->heads;
    access->at.stride[column_loop] = transposed ? rows * c->heads : 1;
}

static tg_kernel bench_kernel(const bench_case *c) {
    tg_kernel kernel = {.kind = TG_KERNEL_CONTRACT, .loop_count = 5, .outer_count = 4, .m_begin = 2, .n_begin = 3};
    int64_t extent[5] = {c->batch, c->heads, c->m, c->n, c->k};
    memcpy(kernel.extent, extent, sizeof extent);
    bench_operand(&kernel.a, c, c->m, c->k, c->a_transposed, 2, 4);
    bench_operand(&kernel.b, c, c->k, c->n, c->b_transposed, 4, 3);
    return kernel;
}

typedef struct bench_buffers {
    float *a, *b, *c, *scratch;
} bench_buffers;

static void bench_run_ours(const tg_contraction *contraction, const bench_case *c, const bench_buffers *x) {
    const int64_t batch_stride[2] = {c->heads * c->m * c->n, c->m * c->n};
    tg_contraction_begin(x->scratch);
    for (int part = 0; part < tg_contraction_parts(contraction); ++part)
        tg_contraction_run(contraction, part, 0, x->a, x->b, x->c, batch_stride, c->n, NULL, NULL, x->scratch);
    for (int part = 0; part < tg_contraction_parts(contraction); ++part)
        tg_contraction_finish(contraction, part, 0, x->c, batch_stride, c->n, NULL, NULL, x->scratch);
}

static void bench_run_blas(cblas_sgemm_fn sgemm, const bench_case *c, const bench_buffers *x) {
    int m = (int)c->m, n = (int)c->n, k = (int)c->k, heads = (int)c->heads;
    for (int64_t i = 0; i < c->batch * c->heads; ++i) {
        int64_t batch = i / c->heads, head = i % c->heads;
        const float *a = x->a + batch * c->m * c->k * heads + head * (c->a_transposed ? m : k);
        const float *b = x->b + batch * c->n * c->k * heads + head * (c->b_transposed ? k : n);
        sgemm(CBLAS_ROW_MAJOR, c->a_transposed ? CBLAS_TRANS : CBLAS_NO_TRANS, c->b_transposed ? CBLAS_TRANS : CBLAS_NO_TRANS, m, n, k, 1,
              a, (c->a_transposed ? m : k) * heads, b, (c->b_transposed ? k : n) * heads, 0, x->c + i * c->m * c->n, n);
    }
}

/* Best GFLOP/s of ours and of OpenBLAS (0 without), in turn for about `budget` seconds each. */
static void bench_rates(const tg_contraction *contraction, cblas_sgemm_fn sgemm, const bench_case *c, const bench_buffers *x, double budget,
                        double rates[2]) {
    double flop = 2.0 * (double)(c->batch * c->heads) * (double)c->m * (double)c->n * (double)c->k;
    int repeats = (int)(4e7 / flop);
    repeats = repeats < 1 ? 1 : repeats > 2000 ? 2000 : repeats;
    double best[2] = {INFINITY, INFINITY}, start = bench_seconds();
    do {
        for (int who = 0; who < (sgemm != NULL ? 2 : 1); ++who) {
            double before = bench_seconds();
            for (int i = 0; i < repeats; ++i) {
                if (who == 1) bench_run_blas(sgemm, c, x);
                else bench_run_ours(contraction, c, x);
            }
            double elapsed = (bench_seconds() - before) / repeats;
            if (elapsed < best[who]) best[who] = elapsed;
        }
    } while (bench_seconds() - start < 2 * budget);
    for (int who = 0; who < 2; ++who) rates[who] = flop / best[who] * 1e-9;
}

static bool bench_one(tg_context *ctx, const bench_case *c, cblas_sgemm_fn sgemm, tg_isa isa, int parts, double budget, bool json) {
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    tg_kernel kernel = bench_kernel(c);
    /* Large ones as tg_gemm runs them, in one part; those of the examples as a step runs them. */
    tg_contraction *contraction = tg_contraction_make_limited(&arena, &kernel, isa, parts);
    int64_t count = c->batch * c->heads, a_count = count * c->m * c->k, b_count = count * c->k * c->n, c_count = count * c->m * c->n;
    bench_buffers x = {0};
    if (contraction != NULL) {
        x.a = TG_NEW(&arena, float, a_count);
        x.b = TG_NEW(&arena, float, b_count);
        x.c = TG_NEW(&arena, float, c_count);
        x.scratch = tg_arena_alloc(&arena, tg_contraction_scratch(contraction) + 64);
    }
    bool ok = x.a != NULL && x.b != NULL && x.c != NULL && x.scratch != NULL;
    if (ok) {
        for (int64_t i = 0; i < a_count; ++i) x.a[i] = (float)(i * 7 % 13) * .1f;
        for (int64_t i = 0; i < b_count; ++i) x.b[i] = (float)(i * 5 % 11) * .1f;
        double rates[2];
        bench_rates(contraction, sgemm, c, &x, budget, rates);
        double ours = rates[0], blas = rates[1];
        if (json) {
            printf("{\"name\": \"%s\", \"batch\": %lld, \"m\": %lld, \"n\": %lld, \"k\": %lld, \"isa\": \"%s\", \"method\": \"%s\", "
                   "\"gflops\": %.2f, ",
                   c->name, (long long)count, (long long)c->m, (long long)c->n, (long long)c->k, tg_isa_name(isa),
                   tg_contraction_method(contraction), ours);
            if (sgemm != NULL) printf("\"openblas_gflops\": %.2f}\n", blas);
            else printf("\"openblas_gflops\": null}\n");
        } else {
            printf("%-14s %5lld x [%4lld,%5lld] [%5lld,%4lld] %8.1f", c->name, (long long)count, (long long)c->m, (long long)c->k,
                   (long long)c->k, (long long)c->n, ours);
            if (sgemm != NULL) printf(" %8.1f %6.2f", blas, ours / blas);
            printf("  %s, %d parts\n", tg_contraction_method(contraction), tg_contraction_parts(contraction));
        }
        fflush(stdout);
    }
    tg_arena_free(&arena);
    return ok;
}

static bool bench_group(tg_context *ctx, const bench_case *cases, size_t count, const char *title, cblas_sgemm_fn sgemm, tg_isa isa,
                        int parts, double budget, bool json) {
    if (!json) printf("%s\n%-14s %-32s %8s%s\n", title, "", "", "GFLOP/s", sgemm != NULL ? " OpenBLAS  ratio" : "");
    for (size_t i = 0; i < count; ++i)
        if (!bench_one(ctx, &cases[i], sgemm, isa, parts, budget, json)) return false;
    return true;
}

int main(int argc, char **argv) {
    bool json = false, good = true;
    double budget = .3;
    tg_isa isa = tg_cpu_isa();
    for (int i = 1; i < argc; ++i) {
        bool found = strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "--quick") == 0;
        if (strcmp(argv[i], "--json") == 0) json = true;
        if (strcmp(argv[i], "--quick") == 0) budget = .02;
        for (int x = TG_ISA_SCALAR_; i > 1 && strcmp(argv[i - 1], "--isa") == 0 && x <= (int)tg_cpu_isa(); ++x)
            if (strcmp(argv[i], tg_isa_name((tg_isa)x)) == 0) isa = (tg_isa)x, found = true;
        if (!found && !(strcmp(argv[i], "--isa") == 0 && i + 1 < argc)) good = false;
    }
    if (!good) {
        fprintf(stderr, "usage: bench_gemm [--json] [--quick] [--isa scalar|avx2|avx512]\n");
        return 2;
    }
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    cblas_sgemm_fn sgemm = bench_open_blas();
    if (!json)
        printf("contractions with %s, one thread; OpenBLAS (libopenblas.so.0) %s\n", tg_isa_name(isa),
               sgemm != NULL ? "found" : "is not installed");
    good = bench_group(ctx, bench_square, sizeof bench_square / sizeof bench_square[0], "square", sgemm, isa, 1, budget, json) &&
           bench_group(ctx, bench_transformer, sizeof bench_transformer / sizeof bench_transformer[0], "of the examples", sgemm, isa,
                       INT16_MAX, budget, json);
    if (!good) fprintf(stderr, "bench_gemm: %s\n", tg_error_message(ctx));
    tg_context_destroy(ctx);
    return good ? 0 : 1;
}
