/* test_base: contexts and their error record, allocation and its failure, arenas, text, hashes, random bits, threads.
 * Links against src/base alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- an allocator that counts and fails */

typedef struct counting {
    int64_t calls, fail_at, blocks, bytes;
    size_t shift;
} counting;

static void *counting_alloc(void *user, size_t size) {
    counting *c = user;
    if (++c->calls == c->fail_at) return NULL;
    void *block = aligned_alloc(64, (size + 127) / 64 * 64);
    if (!block) return NULL;
    memset(block, 0xA5, size); /* so that whoever trusts the allocator to zero fails */
    c->blocks++;
    c->bytes += (int64_t)size;
    return (char *)block + c->shift;
}

static void counting_release(void *user, void *block, size_t size) {
    counting *c = user;
    c->blocks--;
    c->bytes -= (int64_t)size;
    free((char *)block - c->shift);
}

static tg_context *counting_context(counting *c) {
    const tg_allocator allocator = {counting_alloc, counting_release, c};
    tg_context_options options = {&allocator, NULL, NULL};
    return tg_context_create(&options);
}

/* ---------------------------------------------------------------- context, errors */

static void context_counts_its_memory(void **state) {
    (void)state;
    counting c = {0};
    tg_context *ctx = counting_context(&c);
    assert_non_null(ctx);
    const int64_t own = c.bytes;
    void *block = tg_alloc(ctx, 100);
    assert_int_equal(ctx->live_bytes, 100);
    assert_int_equal(ctx->live_blocks, 1);
    assert_int_equal(c.bytes, own + 100);
    for (int i = 0; i < 100; i++) assert_int_equal(((unsigned char *)block)[i], 0);
    tg_release(ctx, block, 100);
    tg_release(ctx, NULL, 7);
    assert_int_equal(ctx->live_bytes, 0);
    assert_int_equal(ctx->live_blocks, 0);
    assert_int_equal(ctx->alloc_calls, 1);
    tg_context_destroy(ctx);
    assert_int_equal(c.blocks, 0);
    assert_int_equal(c.bytes, 0);
    tg_context_destroy(NULL);
}

static void context_survives_no_memory(void **state) {
    (void)state;
    counting c = {.fail_at = 1};
    assert_null(counting_context(&c));
    counting d = {.fail_at = 2};
    tg_context *ctx = counting_context(&d);
    assert_null(tg_alloc(ctx, 12345));
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    assert_string_equal(tg_error_message(ctx), "out of memory: 12345 bytes refused");
    tg_clear_error(ctx);
    assert_null(tg_alloc(ctx, SIZE_MAX));
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
    assert_int_equal(d.blocks, 0);
}

static void context_refuses_misaligned_blocks(void **state) {
    (void)state;
    counting c = {0};
    tg_context *ctx = counting_context(&c);
    c.shift = 8;
    assert_null(tg_alloc(ctx, 10));
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    assert_non_null(strstr(tg_error_message(ctx), "not aligned"));
    c.shift = 0;
    tg_context_destroy(ctx);
    assert_int_equal(c.blocks, 0);
}

static void empty_blocks_have_addresses(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    void *a = tg_alloc(ctx, 0), *b = tg_alloc(ctx, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    tg_release(ctx, a, 0);
    tg_release(ctx, b, 0);
    assert_int_equal(ctx->live_bytes, 0);
    tg_context_destroy(ctx);
}

static void first_error_wins(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    assert_int_equal(tg_error(ctx), TG_OK);
    assert_string_equal(tg_error_message(ctx), "");
    char file[] = "model.c";
    assert_int_equal(tg_fail(ctx, TG_ERROR_SHAPE, tg_site_make(file, 41), "add: %d", 3), TG_ERROR_SHAPE);
    file[0] = '?'; /* the record keeps its own copy */
    assert_int_equal(tg_fail(ctx, TG_ERROR_DTYPE, tg_site_make("other.c", 1), "later"), TG_ERROR_DTYPE);
    assert_int_equal(tg_error(ctx), TG_ERROR_SHAPE);
    assert_string_equal(tg_error_message(ctx), "add: 3");
    assert_string_equal(tg_error_site(ctx).file, "model.c");
    assert_int_equal(tg_error_site(ctx).line, 41);
    tg_clear_error(ctx);
    assert_int_equal(tg_error(ctx), TG_OK);
    assert_string_equal(tg_error_message(ctx), "");
    assert_string_equal(tg_error_site(ctx).file, "");
    assert_int_equal(tg_error_site(ctx).line, 0);
    assert_int_equal(tg_fail(NULL, TG_ERROR_IO, TG_SITE_NONE, "nobody listens"), TG_ERROR_IO);
    tg_context_destroy(ctx);
}

static void long_errors_are_cut(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    static char text[2 * TG_MESSAGE_MAX], path[1000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xC3\xA9", 3); /* é */
    memset(path, 'd', sizeof path - 1);
    memcpy(path + sizeof path - 9, "/model.c", 9);
    (void)tg_fail(ctx, TG_ERROR_IO, tg_site_make(path, 7), "x%s", text);
    const char *message = tg_error_message(ctx);
    const size_t length = strlen(message);
    assert_in_range(length, TG_MESSAGE_MAX - 8, TG_MESSAGE_MAX - 1);
    assert_string_equal(message + length - 3, "...");
    assert_int_equal((unsigned char)message[length - 4], 0xA9);
    const char *file = tg_error_site(ctx).file;
    assert_int_equal(strlen(file), sizeof ctx->site_file - 1);
    assert_int_equal(strncmp(file, "...", 3), 0);
    assert_string_equal(file + strlen(file) - 8, "/model.c");
    tg_context_destroy(ctx);
}

static void internal_faults_name_the_line(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    assert_int_equal(tg_fail_internal(ctx, "/somewhere/src/plan/plan.c", 12, "two owners"), TG_ERROR_INTERNAL);
    assert_string_equal(tg_error_message(ctx), "fault in tensorgrad, please report it: two owners (src/plan/plan.c:12)");
    tg_context_destroy(ctx);
}

static void statuses_have_names(void **state) {
    (void)state;
    assert_string_equal(tg_status_name(TG_OK), "ok");
    assert_string_equal(tg_status_name(TG_ERROR_SHAPE), "shape error");
    assert_string_equal(tg_status_name((tg_status)99), "unknown status");
    for (int a = 0; a <= TG_ERROR_INTERNAL; a++)
        for (int b = 0; b < a; b++) assert_string_not_equal(tg_status_name((tg_status)a), tg_status_name((tg_status)b));
    assert_string_equal(tg_version(), TG_VERSION);
}

static void growing_keeps_what_was_there(void **state) {
    (void)state;
    counting c = {0};
    tg_context *ctx = counting_context(&c);
    void *items = NULL;
    int64_t capacity = 0;
    for (int64_t n = 0; n < 1000; n++) {
        assert_true(tg_grow(ctx, &items, &capacity, n + 1, sizeof(int64_t)));
        ((int64_t *)items)[n] = n * n;
    }
    assert_true(c.calls < 12); /* it doubles */
    void *before = items;
    const int64_t held = capacity;
    c.fail_at = c.calls + 1;
    assert_false(tg_grow(ctx, &items, &capacity, held + 1, sizeof(int64_t)));
    assert_ptr_equal(items, before);
    assert_int_equal(capacity, held);
    tg_clear_error(ctx);
    assert_false(tg_grow(ctx, &items, &capacity, INT64_MAX, sizeof(int64_t)));
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    for (int64_t n = 0; n < 1000; n++) assert_int_equal(((int64_t *)items)[n], n * n);
    tg_release(ctx, items, (size_t)capacity * sizeof(int64_t));
    tg_context_destroy(ctx);
    assert_int_equal(c.blocks, 0);
}

/* ---------------------------------------------------------------- arena, text */

static void arena_blocks_do_not_overlap(void **state) {
    (void)state;
    counting c = {0};
    tg_context *ctx = counting_context(&c);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    unsigned char *blocks[600];
    size_t sizes[600];
    uint32_t random = 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 600; i++) {
            random = random * 1664525u + 1013904223u;
            sizes[i] = i % 97 == 96 ? 70000 + random % 1000 : random % (i % 10 == 9 ? 3000u : 90u);
            blocks[i] = tg_arena_alloc(&arena, sizes[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % (sizes[i] >= 256 ? 64 : 16), 0);
            for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(blocks[i][k], 0);
            memset(blocks[i], i & 0xFF, sizes[i]);
        }
        for (int i = 0; i < 600; i++)
            for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(blocks[i][k], i & 0xFF);
        assert_int_equal(arena.bytes, ctx->live_bytes);
        assert_true(c.blocks < 40);
        tg_arena_free(&arena);
        assert_int_equal(arena.bytes, 0);
        assert_int_equal(ctx->live_bytes, 0);
    }
    assert_null(tg_arena_alloc(&arena, SIZE_MAX - 3));
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    tg_arena_free(&arena);
    tg_context_destroy(ctx);
    assert_int_equal(c.blocks, 0);
}

static void arena_copies_and_formats(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_arena arena;
    tg_arena_init(&arena, ctx);
    const int numbers[3] = {1, 2, 3};
    const int *copy = tg_arena_copy(&arena, numbers, sizeof numbers);
    assert_memory_equal(copy, numbers, sizeof numbers);
    assert_string_equal(tg_arena_text(&arena, "l1.W"), "l1.W");
    assert_string_equal(tg_arena_text(&arena, NULL), "");
    assert_string_equal(tg_arena_format(&arena, "layers.%d.%s", 3, "W"), "layers.3.W");
    tg_arena_free(&arena);
    tg_context_destroy(ctx);
}

static void text_grows(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    for (int i = 0; i < 2000; i++) tg_text_add(&text, "%d,", i);
    tg_text_bytes(&text, "\0z", 2);
    assert_false(text.failed);
    assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 1000 * 5 + 2);
    assert_int_equal(strncmp(text.data, "0,1,2,", 6), 0);
    assert_memory_equal(text.data + text.length - 7, "1999,\0z", 8);
    tg_text_clear(&text);
    assert_string_equal(text.data, "");
    tg_text_free(&text);
    assert_int_equal(ctx->live_bytes, 0);
    tg_context_destroy(ctx);
}

static void text_remembers_failure(void **state) {
    (void)state;
    counting c = {.fail_at = 3};
    tg_context *ctx = counting_context(&c);
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    tg_text_add(&text, "short");
    for (int i = 0; i < 100; i++) tg_text_add(&text, "%060d", i);
    assert_true(text.failed);
    assert_int_equal(strncmp(text.data, "short000", 8), 0);
    assert_int_equal(strlen(text.data), text.length);
    assert_int_equal(tg_error(ctx), TG_ERROR_MEMORY);
    tg_text_free(&text);
    assert_int_equal(ctx->live_bytes, 0);
    tg_context_destroy(ctx);
}

static const char *number_text(tg_text_buffer *text, double value) {
    tg_text_clear(text);
    tg_text_number(text, value);
    return text->data;
}

static void numbers_read_back(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    assert_string_equal(number_text(&text, 0.5), "0.5");
    assert_string_equal(number_text(&text, (double)0.1f), "0.1");
    assert_string_equal(number_text(&text, 0.1), "0.1");
    assert_string_equal(number_text(&text, -0.0), "-0");
    assert_string_equal(number_text(&text, 16777217.0), "16777217");
    assert_string_equal(number_text(&text, HUGE_VAL), "inf");
    assert_string_equal(number_text(&text, -HUGE_VAL), "-inf");
    assert_string_equal(number_text(&text, nan("")), "nan");
    uint32_t bits = 12345;
    for (int i = 0; i < 5000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        const char *digits = number_text(&text, (double)value);
        assert_true(strtof(digits, NULL) == value);
        assert_in_range(strlen(digits), 1, 15);
    }
    tg_text_free(&text);
    tg_context_destroy(ctx);
}

static void numbers_ignore_the_locale(void **state) {
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool found = false;
    for (size_t i = 0; i < sizeof commas / sizeof *commas && !found; i++) found = setlocale(LC_NUMERIC, commas[i]) != NULL;
    if (!found) skip();
    tg_context *ctx = tg_context_create(NULL);
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    assert_string_equal(number_text(&text, 1.25e-7), "1.25e-07");
    tg_text_free(&text);
    tg_context_destroy(ctx);
    (void)setlocale(LC_NUMERIC, "C");
}

static void shapes_are_spelt(void **state) {
    (void)state;
    char buffer[TG_SHAPE_TEXT], small[6];
    const tg_shape matrix = {2, {256, 64}}, scalar = {0, {0}}, negative = {-1, {0}}, nine = {9, {1, 2, 3, 4, 5, 6, 7, 8}};
    assert_string_equal(tg_shape_text(matrix, buffer, sizeof buffer), "[256, 64]");
    assert_string_equal(tg_shape_text(scalar, buffer, sizeof buffer), "[]");
    assert_string_equal(tg_shape_text(negative, buffer, sizeof buffer), "[rank -1]");
    assert_string_equal(tg_shape_text(nine, buffer, sizeof buffer), "[1, 2, 3, 4, 5, 6, 7, 8, ...]");
    assert_string_equal(tg_shape_text(matrix, small, sizeof small), "[256,");
    tg_shape widest = {8, {0}};
    for (int i = 0; i < 8; i++) widest.dim[i] = INT64_MIN;
    char whole[256];
    assert_int_equal(strlen(tg_shape_text(widest, whole, sizeof whole)), 8 * 20 + 7 * 2 + 2);
}

/* ---------------------------------------------------------------- hash, random bits */

static void hashes_differ(void **state) {
    (void)state;
    uint64_t seen[200];
    char text[] = "abcdefghijklmnopqrstuvwxyz";
    int n = 0;
    for (size_t length = 0; length <= 26; length++) seen[n++] = tg_hash(1, text, length);
    for (size_t bit = 0; bit < 8 * 13; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        seen[n++] = tg_hash(1, text, 13);
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    seen[n++] = tg_hash(2, text, 13);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++) assert_true(seen[a] != seen[b]);
    assert_true(tg_hash_text(7, "l1.W") == tg_hash(7, "l1.W", 4));
    assert_true(tg_hash(5, "xyz", 0) == tg_hash(5, NULL, 0));
}

/* The known answers published with Random123 (kat_vectors, philox4x32, 10 rounds). */
static void philox_gives_the_published_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t out[4];
        tg_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].want, sizeof out);
    }
}

static void random_numbers_have_their_moments(void **state) {
    (void)state;
    enum { COUNT = 65536, BINS = 64 };
    const double n = COUNT, per_bin = n / (double)BINS;
    double sum = 0, square = 0, fourth = 0, mean = 0;
    int bins[BINS] = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        const double z = tg_random_normal(42, 3, i), u = tg_random_uniform(42, 4, i);
        assert_true(u > 0 && u < 1 && isfinite(z));
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        mean += u;
        bins[(int)(u * (double)BINS)]++;
    }
    double chi_square = 0;
    for (int b = 0; b < BINS; b++) chi_square += (bins[b] - per_bin) * (bins[b] - per_bin) / per_bin;
    assert_true(fabs(sum / n) < 0.02);
    assert_true(fabs(square / n - 1) < 0.03);
    assert_true(fabs(fourth / n - 3) < 0.15);
    assert_true(fabs(mean / n - 0.5) < 0.005);
    assert_true(chi_square > 30 && chi_square < 110); /* 63 degrees of freedom: 63 +- 11 */
}

static void random_streams_are_pure_functions(void **state) {
    (void)state;
    assert_true(tg_random_uniform(1, 2, 3) == tg_random_uniform(1, 2, 3));
    assert_true(tg_random_uniform(1, 2, 3) != tg_random_uniform(1, 2, 4));
    assert_true(tg_random_uniform(1, 2, 3) != tg_random_uniform(1, 3, 3));
    assert_true(tg_random_uniform(1, 2, 3) != tg_random_uniform(2, 2, 3));
    assert_true(tg_random_uniform(UINT64_C(1) << 32, 2, 3) != tg_random_uniform(0, 2, 3));
    assert_true(tg_random_uniform(1, UINT64_C(1) << 40, 3) != tg_random_uniform(1, 0, 3));
    assert_true(tg_random_uniform(1, 2, UINT64_C(1) << 35) != tg_random_uniform(1, 2, 0));
}

/* ---------------------------------------------------------------- threads */

typedef struct part_log {
    int count[1000], threads;
} part_log;

static void log_part(void *user, int part, int worker) {
    part_log *log = user;
    log->count[part]++;
    if (worker < 0 || worker >= log->threads) log->count[part] = -1000;
}

static void every_part_runs_once(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    static const int threads[] = {-1, 1, 2, 3, 7}, parts[] = {0, 1, 2, 3, 5, 64, 1000};
    for (size_t t = 0; t < 5; t++) {
        tg_pool *pool = tg_pool_create(ctx, threads[t]);
        assert_non_null(pool);
        assert_int_equal(tg_pool_threads(pool), threads[t] < 1 ? 1 : threads[t]);
        for (int round = 0; round < 20; round++)
            for (size_t p = 0; p < 7; p++) {
                part_log log = {.threads = tg_pool_threads(pool)};
                tg_pool_run(pool, log_part, &log, parts[p]);
                for (int i = 0; i < 1000; i++) assert_int_equal(log.count[i], i < parts[p]);
            }
        tg_pool_destroy(pool, ctx);
    }
    part_log log = {.threads = 1};
    tg_pool_run(NULL, log_part, &log, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(log.count[i], 1);
    assert_int_equal(tg_pool_threads(NULL), 1);
    tg_pool_destroy(NULL, ctx);
    assert_int_equal(ctx->live_bytes, 0);
    assert_true(tg_cpu_count() >= 1);
    tg_context_destroy(ctx);
}

typedef struct part_gate {
    _Atomic int begun, done;
} part_gate;

/* The first one to be begun of parts 4 to 7 waits for all others: another thread must take over what its range holds. */
static void wait_in_part(void *user, int part, int worker) {
    (void)worker;
    part_gate *gate = user;
    if (part >= 4 && atomic_fetch_add(&gate->begun, 1) == 0)
        while (atomic_load(&gate->done) < 7) (void)sched_yield();
    atomic_fetch_add(&gate->done, 1);
}

static void parts_of_a_late_worker_are_taken_over(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_pool *pool = tg_pool_create(ctx, 2);
    assert_int_equal(tg_pool_threads(pool), 2);
    for (int round = 0; round < 200; round++) {
        part_gate gate = {0};
        tg_pool_run(pool, wait_in_part, &gate, 8);
        assert_int_equal(atomic_load(&gate.done), 8);
    }
    tg_pool_destroy(pool, ctx);
    tg_context_destroy(ctx);
}

static void count_part(void *user, int part, int worker) {
    (void)worker;
    uint8_t *count = user;
    count[part]++;
}

/* More than a range of parts can number. */
static void many_parts_run_once(void **state) {
    (void)state;
    enum { MANY = 200001 };
    tg_context *ctx = tg_context_create(NULL);
    tg_pool *pool = tg_pool_create(ctx, 3);
    uint8_t *count = calloc(MANY, 1);
    tg_pool_run(pool, count_part, count, MANY);
    for (int i = 0; i < MANY; i++) assert_int_equal(count[i], 1);
    free(count);
    tg_pool_destroy(pool, ctx);
    tg_context_destroy(ctx);
}

static void add_slice(void *user, int part, int worker) {
    (void)worker;
    int64_t *slots = user;
    slots[part] += part + 1;
}

/* Enough short runs that workers are caught spinning, asleep and in between; with pauses now and then. */
static void runs_follow_each_other(void **state) {
    (void)state;
    tg_context *ctx = tg_context_create(NULL);
    tg_pool *pool = tg_pool_create(ctx, 3);
    int64_t slots[9] = {0};
    volatile int idle = 0;
    const int64_t before = ctx->alloc_calls;
    for (int run = 0; run < 5000; run++) {
        tg_pool_run(pool, add_slice, slots, 2 + run % 8);
        if (run % 500 == 0)
            for (int i = 0; i < 2000000; i++) idle = idle + 1;
    }
    assert_int_equal(ctx->alloc_calls, before);
    for (int i = 0; i < 9; i++) assert_int_equal(slots[i], (i + 1) * (int64_t)(i < 2 ? 5000 : 5000 * (9 - i) / 8));
    tg_pool_destroy(pool, ctx);
    assert_int_equal(ctx->live_bytes, 0);
    tg_context_destroy(ctx);
}

static void pools_survive_no_memory(void **state) {
    (void)state;
    for (int64_t n = 2;; n++) {
        counting c = {.fail_at = n};
        tg_context *ctx = counting_context(&c);
        tg_pool *pool = tg_pool_create(ctx, 2);
        const bool made = pool != NULL;
        assert_int_equal(tg_error(ctx), made ? TG_OK : TG_ERROR_MEMORY);
        tg_pool_destroy(pool, ctx);
        assert_int_equal(ctx->live_bytes, 0);
        tg_context_destroy(ctx);
        assert_int_equal(c.blocks, 0);
        if (made) break;
        assert_true(n < 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_counts_its_memory),
        cmocka_unit_test(context_survives_no_memory),
        cmocka_unit_test(context_refuses_misaligned_blocks),
        cmocka_unit_test(empty_blocks_have_addresses),
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(long_errors_are_cut),
        cmocka_unit_test(internal_faults_name_the_line),
        cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(growing_keeps_what_was_there),
        cmocka_unit_test(arena_blocks_do_not_overlap),
        cmocka_unit_test(arena_copies_and_formats),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(text_remembers_failure),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(shapes_are_spelt),
        cmocka_unit_test(hashes_differ),
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(random_numbers_have_their_moments),
        cmocka_unit_test(random_streams_are_pure_functions),
        cmocka_unit_test(every_part_runs_once),
        cmocka_unit_test(parts_of_a_late_worker_are_taken_over),
        cmocka_unit_test(many_parts_run_once),
        cmocka_unit_test(runs_follow_each_other),
        cmocka_unit_test(pools_survive_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
