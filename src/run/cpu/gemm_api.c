/* gemm_api: the public matrix product and the name of the processor's features. Makes a CONTRACT
 * kernel by hand and runs it on the calling thread. Must not know how contractions work inside. */
#include "run/cpu/contract.h"

const char *tg_cpu_name(void) { return tg_isa_name(tg_cpu_isa()); }

static tg_kernel gemm_kernel(int64_t m, int64_t n, int64_t k) {
    tg_kernel kernel = {
        .kind = TG_KERNEL_CONTRACT, .name = "gemm", .loop_count = 3, .extent = {m, n, k}, .outer_count = 2, .m_begin = 0, .n_begin = 1};
    kernel.a.at.stride[0] = k;
    kernel.a.at.stride[2] = 1;
    kernel.b.at.stride[1] = 1;
    kernel.b.at.stride[2] = n;
    return kernel;
}

tg_status tg_gemm_at(tg_site site, tg_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    if (ctx == NULL) return TG_ERROR_ARGUMENT;
    if (ctx->trace == NULL) tg_clear_error(ctx); /* a trace in progress keeps its first error */
    ctx->call_site = site;
    if (a == NULL || b == NULL || c == NULL) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "gemm: a, b or c is NULL");
    if (m < 1 || n < 1 || k < 1)
        return tg_fail(ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "gemm: sizes must be at least 1: m %lld, n %lld, k %lld", (long long)m,
                       (long long)n, (long long)k);
    int64_t limit = INT32_MAX;
    if (m > limit / k || k > limit / n || m > limit / n)
        return tg_fail(ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "gemm: a matrix has more than 2147483647 elements: m %lld, n %lld, k %lld",
                       (long long)m, (long long)n, (long long)k);
    tg_kernel kernel = gemm_kernel(m, n, k);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    tg_contraction *contraction = tg_contraction_make_limited(&arena, &kernel, tg_cpu_isa(), 1);
    size_t bytes = contraction != NULL ? tg_contraction_scratch(contraction) : 0;
    void *scratch = bytes > 0 ? tg_alloc(ctx, bytes) : NULL;
    if (scratch != NULL) tg_contraction_begin(scratch);
    if (scratch != NULL) {
        for (int part = 0; part < tg_contraction_parts(contraction); ++part)
            tg_contraction_run(contraction, part, 0, a, b, c, NULL, n, NULL, NULL, scratch);
        for (int part = 0; part < tg_contraction_parts(contraction); ++part)
            tg_contraction_finish(contraction, part, 0, c, NULL, n, NULL, NULL, scratch);
    }
    if (scratch != NULL) tg_release(ctx, scratch, bytes);
    tg_arena_free(&arena);
    return tg_error(ctx);
}
