/* threads: a fixed pool. The caller is worker 0. Each worker gets a contiguous range of parts,
 * always the same for the same counts, so that the same rows go to the same core in each kernel. A
 * worker that has finished its range takes parts that others have not begun, so that a worker that
 * the system does not let run delays nobody. Workers wait for the next run, and the caller for its
 * workers, by spinning some microseconds; then they sleep. Must not know what a part does. Without
 * threads (plain WebAssembly) the same functions run all parts in the caller. WebAssembly with
 * atomics has its host start the workers (web/src/threads.ts) and sleeps by its own
 * instructions. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#  define _GNU_SOURCE 1 /* sched_getaffinity */
#endif
#include "base/base.h"

#if (defined(__wasm__) && !defined(__wasm_atomics__)) || defined(TG_NO_THREADS)

struct tg_pool {
    int threads;
};

int tg_cpu_count(void) { return 1; }

tg_pool *tg_pool_create(tg_context *ctx, int threads) {
    (void)threads;
    tg_pool *pool = tg_alloc(ctx, sizeof *pool);
    if (pool) pool->threads = 1;
    return pool;
}

void tg_pool_destroy(tg_pool *pool, tg_context *ctx) { tg_release(ctx, pool, sizeof *pool); }

int tg_pool_threads(const tg_pool *pool) { return pool ? pool->threads : 1; }

void tg_pool_run(tg_pool *pool, tg_part_fn fn, void *user, int parts) {
    (void)pool;
    for (int part = 0; part < parts; part++) fn(user, part, 0);
}

#else

#  include <stdatomic.h>
#  include <stdio.h>

#  if defined(__wasm__)
#    define POOL_STACK_BYTES (1 << 17)
#  else
#    include <pthread.h>
#    define POOL_STACK_BYTES (1 << 20)
#    if defined(_WIN32)
#      include <windows.h>
#    else
#      include <sched.h>
#      include <unistd.h>
#    endif
#  endif

/* One spin takes about 10 to 40 ns, depending on the processor: the longest wait before sleeping is
 * 0.2 to 0.8 ms, more than the kernels of a step that run on one thread. Waking a sleeper costs
 * tens of microseconds, the time of a kernel. */
enum { POOL_SPINS = 20000, POOL_SHORT_SPINS = 1000, POOL_LARGEST = 255, POOL_MOST_PARTS = 0xFFFF };

/* Parts that nobody has begun: the next one in the upper 16 bits, the end in the lower. Has a cache
 * line of its own. */
typedef struct pool_range {
    _Atomic uint32_t left;
    char apart[60];
} pool_range;

typedef struct pool_worker {
    tg_pool *pool;
    int index;
#  if defined(__wasm__)
    char *stack;
#  else
    pthread_t thread;
#  endif
} pool_worker;

struct tg_pool {
    int threads, spins;
    int64_t started; /* room in `workers` and `ranges`, the caller included; needed for releasing */
    /* The function of this run. A worker may read it only after claiming a part: the run lasts
     * until that part is done. */
    tg_part_fn fn;
    void *user;
    int first; /* part number of the first part in `ranges` */
    char apart[64];
    _Atomic uint32_t run; /* counts runs */
    _Atomic uint32_t stop;
    _Atomic uint32_t sleepers; /* workers that sleep, or are about to sleep */
    char apart_too[64];
    _Atomic uint32_t pending; /* parts of this run that are not done yet */
    _Atomic uint32_t caller_sleeps;
    _Atomic uint32_t alive; /* WebAssembly: workers that have not ended */
    _Atomic uint32_t died;  /* WebAssembly: a worker trapped; its part will never be done */
#  if !defined(__wasm__)
    pthread_mutex_t lock;
    pthread_cond_t changed;
#  endif
    pool_worker *workers; /* [threads]; entry 0, the caller's, is unused */
    pool_range *ranges;   /* [threads] */
};

/* ---- what differs between platforms: counting cores, sleeping until a word changes, waking,
 * starting and joining */

#  if defined(__wasm__)

#    define POOL_IMPORT(name) __attribute__((import_module("tg"), import_name(#    name)))
POOL_IMPORT(thread_count) int tg_host_thread_count(void);
/* 0: no thread is left. Else a thread of the host calls tg_pool_worker with `stack_top` as its
 * stack pointer. */
POOL_IMPORT(thread_start) int tg_host_thread_start(void *worker, void *stack_top);
/* Does not return: it throws an exception through the core. */
POOL_IMPORT(thread_failed) void tg_host_thread_failed(void);
#    undef POOL_IMPORT

int tg_cpu_count(void) { return tg_host_thread_count(); }
static inline void pool_pause(void) {}
static inline void pool_yield(void) {}
static void pool_sleep(tg_pool *pool, _Atomic uint32_t *word, uint32_t old) {
    (void)pool;
    (void)__builtin_wasm_memory_atomic_wait32((int *)(void *)word, (int)old, -1);
}
static void pool_wake(tg_pool *pool, _Atomic uint32_t *word) {
    (void)pool;
    (void)__builtin_wasm_memory_atomic_notify((int *)(void *)word, UINT32_MAX);
}
static bool pool_make_locks(tg_pool *pool) {
    (void)pool;
    return true;
}
static void pool_drop_locks(tg_pool *pool) { (void)pool; }
/* When a worker has trapped, the caller fails as well. */
static void pool_check_alive(const tg_pool *pool) {
    if (atomic_load(&pool->died) != 0) tg_host_thread_failed();
}

#  else

int tg_cpu_count(void) {
#    if defined(_WIN32)
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors < 1 ? 1 : (int)info.dwNumberOfProcessors;
#    else
#      if defined(__linux__) && defined(CPU_COUNT)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) return CPU_COUNT(&allowed);
#      endif
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
#    endif
}
static inline void pool_pause(void) {
#    if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#    elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#    endif
}
static inline void pool_yield(void) {
#    if defined(_WIN32)
    (void)SwitchToThread();
#    else
    (void)sched_yield();
#    endif
}
static void pool_sleep(tg_pool *pool, _Atomic uint32_t *word, uint32_t old) {
    (void)pthread_mutex_lock(&pool->lock);
    while (atomic_load(word) == old) (void)pthread_cond_wait(&pool->changed, &pool->lock);
    (void)pthread_mutex_unlock(&pool->lock);
}
static void pool_wake(tg_pool *pool, _Atomic uint32_t *word) {
    (void)word;
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}
static void pool_check_alive(const tg_pool *pool) { (void)pool; }
/* On failure nothing stays initialised. */
static bool pool_make_locks(tg_pool *pool) {
    if (pthread_mutex_init(&pool->lock, NULL) != 0) return false;
    if (pthread_cond_init(&pool->changed, NULL) == 0) return true;
    (void)pthread_mutex_destroy(&pool->lock);
    return false;
}
static void pool_drop_locks(tg_pool *pool) {
    (void)pthread_cond_destroy(&pool->changed);
    (void)pthread_mutex_destroy(&pool->lock);
}

#  endif

/* ---- parts */

/* Claims the next part of a range; -1 when there is none. */
static int pool_claim(pool_range *range) {
    uint32_t left = atomic_load(&range->left);
    while (left >> 16 < (left & POOL_MOST_PARTS))
        if (atomic_compare_exchange_weak(&range->left, &left, left + 0x10000u)) return (int)(left >> 16);
    return -1;
}

/* Works on the worker's own range first, then on the others. */
static void pool_work(tg_pool *pool, int worker) {
    for (int k = 0; k < pool->threads; k++) {
        pool_range *range = &pool->ranges[(worker + k) % pool->threads];
        for (int part = pool_claim(range); part >= 0; part = pool_claim(range)) {
            pool->fn(pool->user, pool->first + part, worker);
            if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) pool_wake(pool, &pool->pending);
        }
    }
}

/* ---- waiting */

/* When the wait is no longer short, gives the core to others now and then: with more threads than
 * cores, spinning must not hold up the thread that is waited for. */
static void pool_linger(int spin) {
    if (spin >= POOL_SHORT_SPINS && spin % 32 == 0) pool_yield();
    else pool_pause();
}

/* Returns the first value of `run` that differs from `seen`. */
static uint32_t pool_wait_run(tg_pool *pool, uint32_t seen) {
    for (int spin = 0; spin < pool->spins; spin++) {
        const uint32_t now = atomic_load_explicit(&pool->run, memory_order_acquire);
        if (now != seen) return now;
        pool_linger(spin);
    }
    atomic_fetch_add(&pool->sleepers, 1);
    uint32_t now = atomic_load(&pool->run);
    for (; now == seen; now = atomic_load(&pool->run)) pool_sleep(pool, &pool->run, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
    return now;
}

/* `run` is written before `sleepers` is read here, and a worker counts itself in `sleepers` before
 * it reads `run` (both sequentially consistent). So at least one of the two sees the other. */
static void pool_publish(tg_pool *pool) {
    atomic_fetch_add(&pool->run, 1);
    if (atomic_load(&pool->sleepers) != 0) pool_wake(pool, &pool->run);
}

static void pool_wait_done(tg_pool *pool) {
    for (int spin = 0; spin < pool->spins; spin++) {
        if (atomic_load_explicit(&pool->pending, memory_order_acquire) == 0) return;
        pool_linger(spin);
    }
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t left = atomic_load(&pool->pending); left != 0; left = atomic_load(&pool->pending)) {
        pool_check_alive(pool);
        pool_sleep(pool, &pool->pending, left);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

static void pool_run_block(tg_pool *pool, tg_part_fn fn, void *user, int first, int parts) {
    pool->fn = fn;
    pool->user = user;
    pool->first = first;
    atomic_store(&pool->pending, (uint32_t)parts);
    for (int w = 0; w < pool->threads; w++) {
        const uint32_t begin = (uint32_t)(parts * (int64_t)w / pool->threads), end = (uint32_t)(parts * (int64_t)(w + 1) / pool->threads);
        atomic_store_explicit(&pool->ranges[w].left, begin << 16 | end, memory_order_release);
    }
    pool_publish(pool);
    pool_work(pool, 0);
    pool_wait_done(pool);
}

void tg_pool_run(tg_pool *pool, tg_part_fn fn, void *user, int parts) {
    if (!pool || pool->threads == 1 || parts <= 1) {
        for (int part = 0; part < parts; part++) fn(user, part, 0);
        return;
    }
    for (int first = 0; first < parts; first += POOL_MOST_PARTS)
        pool_run_block(pool, fn, user, first, parts - first < POOL_MOST_PARTS ? parts - first : POOL_MOST_PARTS);
}

static void pool_worker_loop(const pool_worker *self) {
    tg_pool *pool = self->pool;
    for (uint32_t seen = 0;;) {
        seen = pool_wait_run(pool, seen);
        if (atomic_load(&pool->stop)) return;
        pool_work(pool, self->index);
    }
}

/* ---- starting and ending */

#  if defined(__wasm__)

/* A thread of the host runs this. */
__attribute__((export_name("thread_main"))) void tg_pool_worker(void *worker) {
    tg_pool *pool = ((pool_worker *)worker)->pool;
    pool_worker_loop(worker);
    if (atomic_fetch_sub(&pool->alive, 1) == 1) pool_wake(pool, &pool->alive);
}
/* The host calls this when a worker trapped: its part will never be done. */
__attribute__((export_name("thread_died"))) void tg_pool_worker_died(void *worker) {
    tg_pool *pool = ((pool_worker *)worker)->pool;
    atomic_store(&pool->died, 1);
    /* so that a caller that is about to sleep on it does not */
    atomic_fetch_or(&pool->pending, 0x80000000u);
    atomic_fetch_sub(&pool->alive, 1);
    pool_wake(pool, &pool->pending);
    pool_wake(pool, &pool->alive);
}
static bool pool_start_worker(tg_pool *pool, tg_context *ctx, pool_worker *worker) {
    worker->stack = tg_alloc(ctx, POOL_STACK_BYTES);
    if (!worker->stack) {
        tg_clear_error(ctx);
        return false;
    }
    atomic_fetch_add(&pool->alive, 1);
    if (tg_host_thread_start(worker, worker->stack + POOL_STACK_BYTES)) return true;
    atomic_fetch_sub(&pool->alive, 1);
    return false;
}
static void pool_join(tg_pool *pool) {
    for (uint32_t left = atomic_load(&pool->alive); left != 0; left = atomic_load(&pool->alive)) pool_sleep(pool, &pool->alive, left);
}
static void pool_release_stacks(tg_pool *pool, tg_context *ctx) {
    for (int64_t i = 0; i < pool->started; i++)
        if (pool->workers[i].stack) tg_release(ctx, pool->workers[i].stack, POOL_STACK_BYTES);
}

#  else

static void *pool_worker_main(void *argument) {
    pool_worker_loop(argument);
    return NULL;
}
static bool pool_start_worker(tg_pool *pool, tg_context *ctx, pool_worker *worker) {
    (void)pool, (void)ctx;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    (void)pthread_attr_setstacksize(&attributes, POOL_STACK_BYTES);
    const bool ok = pthread_create(&worker->thread, &attributes, pool_worker_main, worker) == 0;
    (void)pthread_attr_destroy(&attributes);
    return ok;
}
static void pool_join(tg_pool *pool) {
    for (int i = 1; i < pool->threads; i++) (void)pthread_join(pool->workers[i].thread, NULL);
}
static void pool_release_stacks(tg_pool *pool, tg_context *ctx) { (void)pool, (void)ctx; }

#  endif

static void pool_start_workers(tg_pool *pool, tg_context *ctx, int threads) {
    int count = 1;
    for (; count < threads; count++) {
        pool->workers[count].pool = pool;
        pool->workers[count].index = count;
        if (!pool_start_worker(pool, ctx, &pool->workers[count])) break;
    }
    pool->threads = count; /* no worker reads it before the first run */
    if (count < threads && ctx->log) {
        char message[96];
        (void)snprintf(message, sizeof message, "only %d of %d threads could be started", count, threads);
        ctx->log(ctx->log_user, TG_LOG_WARNING, message);
    }
}

static void pool_release(tg_pool *pool, tg_context *ctx) {
    if (pool->workers) tg_release(ctx, pool->workers, (size_t)pool->started * sizeof *pool->workers);
    if (pool->ranges) tg_release(ctx, pool->ranges, (size_t)pool->started * sizeof *pool->ranges);
    tg_release(ctx, pool, sizeof *pool);
}

tg_pool *tg_pool_create(tg_context *ctx, int threads) {
    const int wanted = threads < 1 ? 1 : threads > POOL_LARGEST ? POOL_LARGEST : threads;
    tg_pool *pool = tg_alloc(ctx, sizeof *pool);
    if (!pool) return NULL;
    pool->started = wanted;
    pool->spins = wanted > tg_cpu_count() ? 0 : POOL_SPINS;
    pool->workers = tg_alloc(ctx, (size_t)wanted * sizeof *pool->workers);
    pool->ranges = tg_alloc(ctx, (size_t)wanted * sizeof *pool->ranges);
    if (!pool->workers || !pool->ranges) {
        pool_release(pool, ctx);
        return NULL;
    }
    if (!pool_make_locks(pool)) {
        (void)tg_fail(ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "the system has no lock left for a thread pool");
        pool_release(pool, ctx);
        return NULL;
    }
    pool_start_workers(pool, ctx, wanted);
    return pool;
}

void tg_pool_destroy(tg_pool *pool, tg_context *ctx) {
    if (!pool) return;
    atomic_store(&pool->stop, 1);
    pool_publish(pool);
    pool_join(pool);
    pool_drop_locks(pool);
    pool_release_stacks(pool, ctx);
    pool_release(pool, ctx);
}

int tg_pool_threads(const tg_pool *pool) { return pool ? pool->threads : 1; }

#endif
