/* base: what every other folder uses: the error record, allocation, arenas, text, hashes, random
 * bits, threads. Depends on the public header only. Must not know tensors or graphs. */
#ifndef TG_BASE_H
#define TG_BASE_H

#include "tensorgrad/tensorgrad.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#  define TG_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#  define TG_PRINTF(format_index, first)
#endif

/* An option of 0 was not given. TG_ZERO, which is -0, means zero on purpose. */
static inline bool tg_given(double option) { return option != 0.0 || signbit(option); }
static inline double tg_value_or(double option, double otherwise) { return tg_given(option) ? option + 0.0 : otherwise; }
/* Whether value is a positive normal number of f32: not denormal, infinite or NaN. */
static inline bool tg_is_normal(double value) { return value >= (double)FLT_MIN && value <= (double)FLT_MAX; }

#define TG_MESSAGE_MAX 8192 /* room for a shader and its compiler's message */

struct tg_context {
    tg_allocator allocator;
    tg_log_fn log;
    void *log_user;
    tg_status status; /* first error since the last clear */
    tg_site site;     /* its file text is copied into site_file */
    char site_file[512];
    char message[TG_MESSAGE_MAX];
    /* Site of the public call in progress, used for errors that name no other site. Its file text
     * is valid during the call. */
    tg_site call_site;
    tg_graph *trace; /* the trace in progress, or NULL */
    /* Bytes allocated through this context and not yet released. Tests pin the number. */
    int64_t live_bytes;
    int64_t live_blocks;
    int64_t alloc_calls;
    /* Work of compiling: steps of the searches that could grow faster than the graph. Tests pin how it
     * grows. */
    int64_t work;
};

/* Records an error unless one is already recorded. Always returns code. Never allocates. A message
 * that is too long is cut. */
tg_status tg_fail(tg_context *ctx, tg_status code, tg_site site, const char *format, ...) TG_PRINTF(4, 5);
tg_status tg_fail_memory(tg_context *ctx, size_t bytes);
tg_status tg_fail_internal(tg_context *ctx, const char *file, int line, const char *what);
/* Writes to the context's log, if it has one: "file:line: ..." when the site has a file. */
void tg_warn(const tg_context *ctx, tg_site site, const char *format, ...) TG_PRINTF(3, 4);
#define TG_SITE_NONE tg_site_make("", 0)
/* Instead of assert: if (!(invariant)) return TG_INTERNAL(ctx, "..."); */
#define TG_INTERNAL(ctx, what) tg_fail_internal((ctx), __FILE__, __LINE__, (what))

/* Zeroed memory, 64-byte aligned. On failure, or for an absurd number of bytes: NULL, and
 * TG_ERROR_MEMORY is recorded. Release needs the same size. */
void *tg_alloc(tg_context *ctx, size_t bytes);
void tg_release(tg_context *ctx, void *block, size_t bytes);
char *tg_alloc_text(tg_context *ctx, const char *text); /* release with strlen + 1 */

/* Grows *items (of `item` bytes each) to room for at least `need`; doubles the capacity. On failure
 * it records the error, keeps the old array and returns false. */
bool tg_grow(tg_context *ctx, void **items, int64_t *capacity, int64_t need, size_t item);

/* ---- list: items, their count, and the capacity. A list of zeros is empty. Free items with
 * tg_release. */
#define TG_LIST(type) \
  struct { \
    type *items; \
    int64_t count, capacity; \
  }
/* Makes room for one more item in owner->list; `owner` has a member `ctx`. Sets ok to whether there
 * is room; a failure is recorded. */
#define TG_LIST_ROOM(owner, list, ok) \
  do { \
    void *list_items_ = (owner)->list.items; \
    (ok) = tg_grow((owner)->ctx, &list_items_, &(owner)->list.capacity, (owner)->list.count + 1, sizeof *(owner)->list.items); \
    (owner)->list.items = list_items_; \
  } while (0)

/* ---- arena: many small blocks with one lifetime */
typedef struct tg_arena_block tg_arena_block;
typedef struct tg_arena {
    tg_context *ctx;
    tg_arena_block *blocks;
    int64_t bytes; /* held in all blocks */
} tg_arena;
void tg_arena_init(tg_arena *arena, tg_context *ctx);
void tg_arena_free(tg_arena *arena); /* frees everything; the arena may be used again */
/* Zeroed, 16-byte aligned (64 for 256 bytes or more). NULL on failure, which is recorded. */
void *tg_arena_alloc(tg_arena *arena, size_t bytes);
char *tg_arena_text(tg_arena *arena, const char *text);
char *tg_arena_format(tg_arena *arena, const char *format, ...) TG_PRINTF(2, 3);
void *tg_arena_copy(tg_arena *arena, const void *data, size_t bytes);
#define TG_NEW(arena, type, count) ((type *)tg_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* ---- text: a growing string. After a failed allocation `failed` is set and appends do nothing;
 * the text stays as it was, or "". */
typedef struct tg_text_buffer {
    tg_context *ctx;
    char *data; /* NUL-terminated once anything was appended */
    size_t length, capacity;
    bool failed;
} tg_text_buffer;
void tg_text_init(tg_text_buffer *text, tg_context *ctx);
void tg_text_free(tg_text_buffer *text);
void tg_text_clear(tg_text_buffer *text);
void tg_text_add(tg_text_buffer *text, const char *format, ...) TG_PRINTF(2, 3);
void tg_text_bytes(tg_text_buffer *text, const void *data, size_t bytes);
/* Appends a literal that reads back exactly: %g with the fewest digits (an f32 number needs at most
 * 9, a double 17). Infinities and NaN are spelled inf, -inf, nan. */
void tg_text_number(tg_text_buffer *text, double value);
/* Writes "[256, 64]" or "[]" into buffer, cut to its size. Returns buffer. */
const char *tg_shape_text(tg_shape shape, char *buffer, size_t size);
#define TG_SHAPE_TEXT 128

/* ---- objects that exist: each object holds its entry, and must not move */
typedef struct tg_alive tg_alive;
struct tg_alive {
    const void *object; /* NULL: not in the list */
    const tg_context *ctx;
    tg_alive *before, *next;
    bool remembered; /* remember the address after the object is gone: see tg_was_alive */
};
void tg_alive_add(tg_alive *entry, const void *object, const tg_context *ctx);
void tg_alive_remove(tg_alive *entry);
void tg_alive_remove_all(const tg_context *ctx);
bool tg_is_alive(const void *object); /* the pointer may point anywhere */
/* Whether one of the last TG_ALIVE_RECENT remembered objects that are gone had this address.
 * Handles of it may still exist. */
#define TG_ALIVE_RECENT 8
bool tg_was_alive(const void *object);

/* ---- hash */
uint64_t tg_hash(uint64_t seed, const void *data, size_t bytes);
uint64_t tg_hash_text(uint64_t seed, const char *text);

/* ---- Philox 4x32-10 (Salmon et al. 2011): four 32-bit words from a 128-bit counter and a 64-bit
 * key. */
void tg_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* floor((high 2^32 + low) bound / 2^64): uniform in [0, bound), to one part in 2^32 even for the
 * largest bound. */
uint32_t tg_random_below(uint32_t high, uint32_t low, uint32_t bound);
/* Element i of stream `stream` under `seed`: uniform in (0, 1), and standard normal by Box-Muller
 * in f64. Pure functions: the same arguments give the same value on every platform. */
double tg_random_uniform(uint64_t seed, uint64_t stream, uint64_t i);
double tg_random_normal(uint64_t seed, uint64_t stream, uint64_t i);

/* ---- threads: a fixed pool. The caller splits work into `parts`. Which thread runs a part never
 * changes a result. */
typedef struct tg_pool tg_pool;
typedef void (*tg_part_fn)(void *user, int part, int worker); /* worker in [0, threads) */
int tg_cpu_count(void);
/* NULL on failure, which is recorded. threads < 1 counts as 1. If a thread cannot be started, the
 * pool has fewer. */
tg_pool *tg_pool_create(tg_context *ctx, int threads);
void tg_pool_destroy(tg_pool *pool, tg_context *ctx);
int tg_pool_threads(const tg_pool *pool);
/* Runs parts 0 .. parts-1 and returns when all are done. Idle workers spin briefly, then sleep. No
 * allocation. pool may be NULL. */
void tg_pool_run(tg_pool *pool, tg_part_fn fn, void *user, int parts);

#endif
