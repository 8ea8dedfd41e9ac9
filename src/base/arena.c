/* arena: many small blocks with one lifetime. Memory comes from tg_alloc: small blocks share a
 * chunk, large ones get their own. Allocation is O(1) plus zeroing; freeing is O(chunks). Must not
 * know what is kept in it. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_HEADER = 64, ARENA_SMALLEST_CHUNK = 4096, ARENA_LARGEST_CHUNK = 1 << 18 };

/* The header of a chunk of `size` bytes, header included. Bytes [0, used) are taken. The newest
 * chunk comes first. */
struct tg_arena_block {
    tg_arena_block *next;
    size_t size, used;
};

void tg_arena_init(tg_arena *arena, tg_context *ctx) {
    arena->ctx = ctx;
    arena->blocks = NULL;
    arena->bytes = 0;
}

void tg_arena_free(tg_arena *arena) {
    while (arena->blocks) {
        tg_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        tg_release(arena->ctx, block, block->size);
    }
    arena->bytes = 0;
}

/* Chunks grow with the bytes the arena holds, so their number is logarithmic until the largest
 * size. */
static size_t arena_chunk_size(const tg_arena *arena) {
    size_t size = ARENA_SMALLEST_CHUNK;
    while (size < ARENA_LARGEST_CHUNK && (int64_t)size < arena->bytes) size *= 2;
    return size;
}

static tg_arena_block *arena_add_chunk(tg_arena *arena, size_t size) {
    tg_arena_block *block = tg_alloc(arena->ctx, size);
    if (!block) return NULL;
    block->size = size;
    block->used = ARENA_HEADER;
    arena->bytes += (int64_t)size;
    return block;
}

/* A block too large to share a chunk is linked after the chunk in use, whose free bytes stay
 * usable. */
static void *arena_alloc_alone(tg_arena *arena, size_t bytes) {
    tg_arena_block *block = arena_add_chunk(arena, ARENA_HEADER + bytes);
    if (!block) return NULL;
    block->used = block->size;
    if (arena->blocks) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        arena->blocks = block;
    }
    return (char *)block + ARENA_HEADER;
}

void *tg_arena_alloc(tg_arena *arena, size_t bytes) {
    if (bytes > (size_t)PTRDIFF_MAX / 2) {
        (void)tg_fail_memory(arena->ctx, bytes);
        return NULL;
    }
    const size_t align = bytes >= 256 ? 64 : 16;
    const size_t size = bytes ? (bytes + align - 1) / align * align : align;
    tg_arena_block *block = arena->blocks;
    size_t start = block ? (block->used + align - 1) / align * align : 0;
    if (!block || start > block->size || size > block->size - start) {
        const size_t chunk = arena_chunk_size(arena);
        if (size > chunk / 4) return arena_alloc_alone(arena, size);
        block = arena_add_chunk(arena, chunk);
        if (!block) return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
        start = ARENA_HEADER;
    }
    block->used = start + size;
    return (char *)block + start;
}

void *tg_arena_copy(tg_arena *arena, const void *data, size_t bytes) {
    void *copy = tg_arena_alloc(arena, bytes);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}

char *tg_arena_text(tg_arena *arena, const char *text) {
    const char *source = text ? text : "";
    return tg_arena_copy(arena, source, strlen(source) + 1);
}

char *tg_arena_format(tg_arena *arena, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : tg_arena_alloc(arena, (size_t)length + 1);
    if (text) (void)vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    if (length < 0) (void)TG_INTERNAL(arena->ctx, "a text could not be formatted");
    return text;
}
