/* threads: a fixed pool. Parts are dealt in contiguous ranges, the same for the same counts, and the caller is worker 0.
 * Workers wait for the next run by spinning some microseconds and then sleep; so does the caller for its workers.
 * Must not know what a part does. Without threads (plain WebAssembly) the same functions run everything in the caller. */
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

#  include <pthread.h>
#  include <stdatomic.h>
#  include <stdio.h>

#  if defined(_WIN32)
#    include <windows.h>
#  else
#    include <sched.h>
#    include <unistd.h>
#  endif

/* One spin is about 10 to 40 ns, by processor: the longest wait before sleeping is 0.2 to 0.8 ms, more than the kernels of a
 * step that run on one thread. Waking a sleeper costs tens of microseconds, the time of a kernel. */
enum { POOL_SPINS = 20000, POOL_SHORT_SPINS = 1000, POOL_LARGEST = 255, POOL_STACK_BYTES = 1 << 20 };

typedef struct pool_worker {
    tg_pool *pool;
    pthread_t thread;
    int index;
} pool_worker;

/* `run` counts runs in its upper 24 bits and holds the number of active workers (the caller included) in its lower 8;
 * a worker that is not active in a run never looks at the job, so the caller need not wait for it. */
struct tg_pool {
    int threads, spins;
    int64_t started; /* entries of workers, for releasing */
    tg_part_fn fn;
    void *user;
    int parts;
    bool stop;
    _Atomic uint32_t run;
    _Atomic int busy;     /* active workers, without the caller, that are not done with this run */
    _Atomic int sleepers; /* workers waiting on `wake` */
    _Atomic int caller_sleeps;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pool_worker *workers; /* [threads - 1] */
};

int tg_cpu_count(void) {
#  if defined(_WIN32)
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors < 1 ? 1 : (int)info.dwNumberOfProcessors;
#  else
#    if defined(__linux__) && defined(CPU_COUNT)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0) return CPU_COUNT(&allowed);
#    endif
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
#  endif
}

static inline void pool_pause(void) {
#  if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#  elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#  endif
}

static inline void pool_yield(void) {
#  if defined(_WIN32)
    (void)SwitchToThread();
#  else
    (void)sched_yield();
#  endif
}

static void pool_run_range(const tg_pool *pool, int worker, int active) {
    const int64_t parts = pool->parts;
    const int first = (int)(parts * worker / active), end = (int)(parts * (worker + 1) / active);
    for (int part = first; part < end; part++) pool->fn(pool->user, part, worker);
}

/* Lets others run now and then once the wait is no longer short: with more threads than cores, spinning must not hold up the
 * very thread that is waited for. */
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
    (void)pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    uint32_t now = atomic_load(&pool->run);
    while (now == seen) {
        (void)pthread_cond_wait(&pool->wake, &pool->lock);
        now = atomic_load(&pool->run);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    (void)pthread_mutex_unlock(&pool->lock);
    return now;
}

static void pool_finish(tg_pool *pool) {
    if (atomic_fetch_sub(&pool->busy, 1) != 1 || !atomic_load(&pool->caller_sleeps)) return;
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_signal(&pool->done);
    (void)pthread_mutex_unlock(&pool->lock);
}

static void *pool_worker_main(void *argument) {
    const pool_worker *self = argument;
    tg_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = pool_wait_run(pool, seen);
        const int active = (int)(seen & 0xFFu);
        if (self->index >= active) continue;
        if (pool->stop) return NULL;
        pool_run_range(pool, self->index, active);
        pool_finish(pool);
    }
}

/* Publishes the job fields and wakes who sleeps. The counter is read after `run` is written, and a worker counts itself
 * before it reads `run` (both sequentially consistent): one of the two sees the other. */
static void pool_publish(tg_pool *pool, int active) {
    const uint32_t before = atomic_load_explicit(&pool->run, memory_order_relaxed);
    atomic_store(&pool->run, ((before & 0xFFFFFF00u) + 0x100u) | (uint32_t)active);
    if (atomic_load(&pool->sleepers) == 0) return;
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
}

static void pool_wait_done(tg_pool *pool) {
    for (int spin = 0; spin < pool->spins; spin++) {
        if (atomic_load_explicit(&pool->busy, memory_order_acquire) == 0) return;
        pool_linger(spin);
    }
    (void)pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, 1);
    while (atomic_load(&pool->busy) != 0) (void)pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, 0);
    (void)pthread_mutex_unlock(&pool->lock);
}

void tg_pool_run(tg_pool *pool, tg_part_fn fn, void *user, int parts) {
    if (!pool || pool->threads == 1 || parts <= 1) {
        for (int part = 0; part < parts; part++) fn(user, part, 0);
        return;
    }
    const int active = parts < pool->threads ? parts : pool->threads;
    pool->fn = fn;
    pool->user = user;
    pool->parts = parts;
    atomic_store(&pool->busy, active - 1);
    pool_publish(pool, active);
    pool_run_range(pool, 0, active);
    pool_wait_done(pool);
}

static bool pool_start_worker(tg_pool *pool, pool_worker *worker, int index) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    (void)pthread_attr_setstacksize(&attributes, POOL_STACK_BYTES);
    worker->pool = pool;
    worker->index = index;
    const bool ok = pthread_create(&worker->thread, &attributes, pool_worker_main, worker) == 0;
    (void)pthread_attr_destroy(&attributes);
    return ok;
}

static void pool_start_workers(tg_pool *pool, tg_context *ctx, int threads) {
    pool->threads = 1;
    while (pool->threads < threads && pool_start_worker(pool, &pool->workers[pool->threads - 1], pool->threads)) pool->threads++;
    if (pool->threads < threads && ctx->log) {
        char message[96];
        (void)snprintf(message, sizeof message, "only %d of %d threads could be started", pool->threads, threads);
        ctx->log(ctx->log_user, TG_LOG_WARNING, message);
    }
}

/* The mutex and the two conditions; false with none of them left when one is refused. */
static bool pool_make_locks(tg_pool *pool) {
    if (pthread_mutex_init(&pool->lock, NULL) != 0) return false;
    if (pthread_cond_init(&pool->wake, NULL) == 0) {
        if (pthread_cond_init(&pool->done, NULL) == 0) return true;
        (void)pthread_cond_destroy(&pool->wake);
    }
    (void)pthread_mutex_destroy(&pool->lock);
    return false;
}

tg_pool *tg_pool_create(tg_context *ctx, int threads) {
    const int wanted = threads < 1 ? 1 : threads > POOL_LARGEST ? POOL_LARGEST : threads;
    tg_pool *pool = tg_alloc(ctx, sizeof *pool);
    if (!pool) return NULL;
    pool->started = wanted - 1;
    pool->spins = wanted > tg_cpu_count() ? 0 : POOL_SPINS;
    pool->workers = tg_alloc(ctx, (size_t)pool->started * sizeof *pool->workers);
    if (!pool->workers) {
        tg_release(ctx, pool, sizeof *pool);
        return NULL;
    }
    if (!pool_make_locks(pool)) {
        (void)tg_fail(ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "the system has no lock left for a thread pool");
        tg_release(ctx, pool->workers, (size_t)pool->started * sizeof *pool->workers);
        tg_release(ctx, pool, sizeof *pool);
        return NULL;
    }
    pool_start_workers(pool, ctx, wanted);
    return pool;
}

void tg_pool_destroy(tg_pool *pool, tg_context *ctx) {
    if (!pool) return;
    if (pool->threads > 1) {
        pool->stop = true;
        pool_publish(pool, pool->threads);
        for (int i = 0; i < pool->threads - 1; i++) (void)pthread_join(pool->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_mutex_destroy(&pool->lock);
    tg_release(ctx, pool->workers, (size_t)pool->started * sizeof *pool->workers);
    tg_release(ctx, pool, sizeof *pool);
}

int tg_pool_threads(const tg_pool *pool) { return pool ? pool->threads : 1; }

#endif
