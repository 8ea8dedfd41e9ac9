/* context: the error record, the allocator that all memory comes from, and the names of statuses.
 * Owns tg_context. Keeps the first error since the last clear and drops later ones. Must not know
 * tensors, graphs or models. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#  include <malloc.h>
#endif

enum { CONTEXT_BLOCK_ALIGN = 64, CONTEXT_WARNING_MAX = 2048 };

static void *context_default_alloc(void *user, size_t size) {
    (void)user;
#if defined(_WIN32)
    return _aligned_malloc(size, CONTEXT_BLOCK_ALIGN);
#else
    const size_t whole = (size + CONTEXT_BLOCK_ALIGN - 1) / CONTEXT_BLOCK_ALIGN * CONTEXT_BLOCK_ALIGN;
    return aligned_alloc(CONTEXT_BLOCK_ALIGN, whole);
#endif
}

static void context_default_release(void *user, void *block, size_t size) {
    (void)user;
    (void)size;
#if defined(_WIN32)
    _aligned_free(block);
#else
    free(block);
#endif
}

tg_context *tg_context_create(const tg_context_options *options) {
    tg_allocator allocator = {context_default_alloc, context_default_release, NULL};
    if (options && options->allocator && options->allocator->alloc && options->allocator->release) allocator = *options->allocator;
    tg_context *ctx = allocator.alloc(allocator.user, sizeof *ctx);
    if (!ctx) return NULL;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    if (options) {
        ctx->log = options->log;
        ctx->log_user = options->log_user;
    }
    tg_clear_error(ctx);
    return ctx;
}

void tg_context_destroy(tg_context *ctx) {
    if (!ctx) return;
    const tg_allocator allocator = ctx->allocator;
    /* handles of objects that were not destroyed are invalid from here on */
    tg_alive_remove_all(ctx);
    allocator.release(allocator.user, ctx, sizeof *ctx);
}

/* ---------------------------------------------------------------- the error record */

tg_status tg_error(const tg_context *ctx) { return ctx ? ctx->status : TG_ERROR_ARGUMENT; }

const char *tg_error_message(const tg_context *ctx) { return ctx ? ctx->message : "no context"; }

tg_site tg_error_site(const tg_context *ctx) { return ctx ? ctx->site : TG_SITE_NONE; }

void tg_clear_error(tg_context *ctx) {
    if (!ctx) return;
    ctx->status = TG_OK;
    ctx->message[0] = '\0';
    ctx->site_file[0] = '\0';
    ctx->site.file = ctx->site_file;
    ctx->site.line = 0;
}

/* A path that is too long for the record keeps its end, which names the file. */
static void context_keep_site(tg_context *ctx, tg_site site) {
    const char *file = site.file ? site.file : "";
    const size_t length = strlen(file), room = sizeof ctx->site_file - 1;
    if (length > room) (void)snprintf(ctx->site_file, sizeof ctx->site_file, "...%s", file + (length - room + 3));
    else memcpy(ctx->site_file, file, length + 1);
    ctx->site.file = ctx->site_file;
    ctx->site.line = site.line;
}

/* Marks a message that was cut, without splitting a UTF-8 character. */
static void context_mark_cut(char *message) {
    size_t end = TG_MESSAGE_MAX - 4;
    while (end > 0 && ((unsigned char)message[end] & 0xC0u) == 0x80u) end--;
    memcpy(message + end, "...", 4);
}

tg_status tg_fail(tg_context *ctx, tg_status code, tg_site site, const char *format, ...) {
    if (!ctx || ctx->status != TG_OK || code == TG_OK) return code;
    ctx->status = code;
    const bool nowhere = site.line == 0 && (site.file == NULL || site.file[0] == '\0');
    context_keep_site(ctx, nowhere ? ctx->call_site : site);
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(ctx->message, TG_MESSAGE_MAX, format, arguments);
    va_end(arguments);
    if (length < 0) ctx->message[0] = '\0';
    if (length >= TG_MESSAGE_MAX) context_mark_cut(ctx->message);
    return code;
}

void tg_warn(const tg_context *ctx, tg_site site, const char *format, ...) {
    char message[CONTEXT_WARNING_MAX];
    if (!ctx || !ctx->log) return;
    const char *file = site.file && site.file[0] ? site.file : NULL;
    const int begin = file ? snprintf(message, sizeof message / 2, "%s:%d: ", file, site.line) : 0;
    const size_t used = begin < 0 ? 0 : begin < CONTEXT_WARNING_MAX / 2 ? (size_t)begin : CONTEXT_WARNING_MAX / 2 - 1;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message + used, sizeof message - used, format, arguments);
    va_end(arguments);
    ctx->log(ctx->log_user, TG_LOG_WARNING, message);
}

tg_status tg_fail_memory(tg_context *ctx, size_t bytes) {
    return tg_fail(ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "out of memory: %zu bytes refused", bytes);
}

tg_status tg_fail_internal(tg_context *ctx, const char *file, int line, const char *what) {
    const char *shown = file;
    for (const char *at = file; (at = strstr(at, "src/")) != NULL; at += 4) shown = at;
    return tg_fail(ctx, TG_ERROR_INTERNAL, TG_SITE_NONE, "fault in tensorgrad, please report it: %s (%s:%d)", what, shown, line);
}

const char *tg_status_name(tg_status status) {
    switch (status) {
    case TG_OK: return "ok";
    case TG_ERROR_ARGUMENT: return "argument error";
    case TG_ERROR_SHAPE: return "shape error";
    case TG_ERROR_DTYPE: return "dtype error";
    case TG_ERROR_MEMORY: return "out of memory";
    case TG_ERROR_NOT_FOUND: return "not found";
    case TG_ERROR_DUPLICATE: return "duplicate name";
    case TG_ERROR_INDEX: return "index error";
    case TG_ERROR_TRACE: return "trace error";
    case TG_ERROR_GRADIENT: return "gradient error";
    case TG_ERROR_IO: return "input/output error";
    case TG_ERROR_FORMAT: return "format error";
    case TG_ERROR_DEVICE: return "device error";
    case TG_ERROR_DEVICE_LOST: return "device lost";
    case TG_ERROR_LIMIT: return "limit exceeded";
    case TG_ERROR_NOT_FINITE: return "not finite";
    case TG_ERROR_STATE: return "state error";
    case TG_ERROR_UNSUPPORTED: return "unsupported";
    case TG_ERROR_INTERNAL: return "internal error";
    }
    return "unknown status";
}

const char *tg_version(void) { return TG_VERSION; }

/* ---------------------------------------------------------------- memory */

/* A block of 0 bytes still needs an address of its own. */
static size_t context_block_size(size_t bytes) { return bytes ? bytes : 1; }

/* A block whose bytes are not set. */
static void *context_take(tg_context *ctx, size_t bytes) {
    const size_t size = context_block_size(bytes);
    ctx->alloc_calls++;
    if (size > (size_t)PTRDIFF_MAX - CONTEXT_BLOCK_ALIGN) {
        (void)tg_fail_memory(ctx, bytes);
        return NULL;
    }
    void *block = ctx->allocator.alloc(ctx->allocator.user, size);
    if (!block) {
        (void)tg_fail_memory(ctx, bytes);
        return NULL;
    }
    if ((uintptr_t)block % CONTEXT_BLOCK_ALIGN != 0) {
        ctx->allocator.release(ctx->allocator.user, block, size);
        (void)tg_fail(ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "the allocator returned a block that is not aligned to %d bytes",
                      CONTEXT_BLOCK_ALIGN);
        return NULL;
    }
    ctx->live_bytes += (int64_t)size;
    ctx->live_blocks++;
    return block;
}

void *tg_alloc(tg_context *ctx, size_t bytes) {
    void *block = context_take(ctx, bytes);
    if (block) memset(block, 0, context_block_size(bytes));
    return block;
}

void tg_release(tg_context *ctx, void *block, size_t bytes) {
    if (!block) return;
    const size_t size = context_block_size(bytes);
    ctx->live_bytes -= (int64_t)size;
    ctx->live_blocks--;
    ctx->allocator.release(ctx->allocator.user, block, size);
}

char *tg_alloc_text(tg_context *ctx, const char *text) {
    const char *source = text ? text : "";
    const size_t bytes = strlen(source) + 1;
    char *copy = tg_alloc(ctx, bytes);
    if (copy) memcpy(copy, source, bytes);
    return copy;
}

bool tg_grow(tg_context *ctx, void **items, int64_t *capacity, int64_t need, size_t item) {
    if (need <= *capacity) return true;
    int64_t wanted = *capacity < 4 ? 8 : *capacity;
    while (wanted < need) {
        if (wanted > INT64_MAX / 2) {
            (void)tg_fail_memory(ctx, SIZE_MAX);
            return false;
        }
        wanted *= 2;
    }
    if ((uint64_t)wanted > SIZE_MAX / item) {
        (void)tg_fail_memory(ctx, SIZE_MAX);
        return false;
    }
    char *grown = context_take(ctx, (size_t)wanted * item);
    if (!grown) return false;
    const size_t kept = (size_t)*capacity * item;
    if (kept > 0) memcpy(grown, *items, kept);
    memset(grown + kept, 0, (size_t)wanted * item - kept);
    tg_release(ctx, *items, (size_t)*capacity * item);
    *items = grown;
    *capacity = wanted;
    return true;
}
