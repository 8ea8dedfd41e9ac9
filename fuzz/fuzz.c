/* fuzz: see fuzz.h. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    __builtin_trap();
}

uint32_t fuzz_bits(fuzz_reader *r, int bytes) {
    uint32_t bits = 0;
    for (int i = 0; i < bytes && r->left > 0; i++, r->left--) bits = bits << 8 | *r->at++;
    return bits;
}

int fuzz_below(fuzz_reader *r, int n) { return (int)(fuzz_bits(r, 1) % (uint32_t)n); }

bool fuzz_chance(fuzz_reader *r, int of) { return r->left > 0 && fuzz_below(r, of) == of - 1; }

int64_t fuzz_whole(fuzz_reader *r, int64_t low, int64_t high) {
    static const int64_t far[] = {-1, 0, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, 65536, -2, (int64_t)1 << 40};
    if (fuzz_chance(r, 32)) return far[fuzz_below(r, (int)(sizeof far / sizeof far[0]))];
    return low + (int64_t)(fuzz_bits(r, 1) % (uint64_t)(high - low + 1));
}

double fuzz_number(fuzz_reader *r) {
    static const double odd[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, 1e39, 3e38, 1e-45, 1e-300, -0.0, 0.0, 1e20, 65504, -1};
    if (fuzz_chance(r, 16)) return odd[fuzz_below(r, (int)(sizeof odd / sizeof odd[0]))];
    return ((double)fuzz_bits(r, 1) - 128) / 128;
}

/* No block over 64 MB: what needs one ends with an error value, and a fuzzer in its memory. */
static void *fuzz_allocate(void *user, size_t size) {
    (void)user;
    return size > (64U << 20) ? NULL : aligned_alloc(64, (size + 63) / 64 * 64);
}
static void fuzz_release(void *user, void *block, size_t size) {
    (void)user, (void)size;
    free(block);
}

tg_context *fuzz_context(void) {
    static const tg_allocator allocator = {.alloc = fuzz_allocate, .release = fuzz_release};
    const tg_context_options options = {.allocator = &allocator};
    tg_context *ctx = tg_context_create(&options);
    if (ctx == NULL) fuzz_fail("no memory for a context");
    return ctx;
}

void fuzz_context_done(tg_context *ctx) {
    if (ctx->live_blocks != 0 || ctx->live_bytes != 0)
        fuzz_fail("%lld blocks, %lld bytes are left", (long long)ctx->live_blocks, (long long)ctx->live_bytes);
    tg_context_destroy(ctx);
}

void fuzz_check_status(const tg_context *ctx, tg_status status, const char *what) {
    if (status == TG_OK) return;
    if (tg_error(ctx) != status) fuzz_fail("%s: status %d, but the context has %d", what, (int)status, (int)tg_error(ctx));
    if (status == TG_ERROR_INTERNAL) fuzz_fail("%s: internal error: %s", what, tg_error_message(ctx));
    if (tg_error_message(ctx)[0] == '\0') fuzz_fail("%s: status %d without a message", what, (int)status);
    if (strchr(tg_error_message(ctx), '\n') != NULL && strlen(tg_error_message(ctx)) > 4000) fuzz_fail("%s: an endless message", what);
}

void fuzz_temporary(char *path, size_t size, const char *what) {
    snprintf(path, size, "%s/fuzz-%s-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", what, (long)getpid());
}
