/* share: the libraries, instances and devices that the models of this process share. A device that
 * no model uses stays open for the next one: opening takes a tenth of a second, and drivers that
 * are loaded and unloaded repeatedly run out of resources that a process has only once. The
 * SHARE_KEPT devices that were used latest are kept; tg_close_idle_devices closes them. Must not
 * know models. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include "run/webgpu/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(_WIN32)
#  include <windows.h>
#endif

enum { SHARE_KEPT = 2, SHARE_SPINS = 4000 };

/* guarded by share_lock, like all lists and counts of users below */
static webgpu_host *share_hosts;
static int64_t share_comings;

/* ---- locks */

static void share_nap(int64_t nap) {
#if defined(_WIN32)
    Sleep(nap >= 1000000 ? 1 : 0);
#elif !defined(__wasm__)
    if (nap > 0) (void)nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
#else
    (void)nap;
#endif
}

#if defined(__wasm__) || defined(TG_NO_THREADS)

void tg_webgpu_share_begin(void) {}
void tg_webgpu_share_end(void) {}
static bool share_make_lock(webgpu_lock *lock) {
    lock->unused = 0;
    return true;
}
static void share_drop_lock(webgpu_lock *lock) { (void)lock; }
static void share_take(webgpu_lock *lock) { (void)lock; }
static void share_give(webgpu_lock *lock) { (void)lock; }

#else

static pthread_mutex_t share_lock = PTHREAD_MUTEX_INITIALIZER;

void tg_webgpu_share_begin(void) { (void)pthread_mutex_lock(&share_lock); }
void tg_webgpu_share_end(void) { (void)pthread_mutex_unlock(&share_lock); }

static bool share_make_lock(webgpu_lock *lock) {
    if (pthread_mutex_init(&lock->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&lock->moved, NULL) == 0) return true;
    (void)pthread_mutex_destroy(&lock->mutex);
    return false;
}
static void share_drop_lock(webgpu_lock *lock) {
    (void)pthread_cond_destroy(&lock->moved);
    (void)pthread_mutex_destroy(&lock->mutex);
}
/* The holder mostly keeps it for less time than falling asleep and waking takes. */
static void share_take(webgpu_lock *lock) {
    const uint32_t mine = atomic_fetch_add(&lock->next, 1);
    for (int i = 0; i < SHARE_SPINS; ++i)
        if (atomic_load(&lock->serving) == mine) return;
    (void)pthread_mutex_lock(&lock->mutex);
    while (atomic_load(&lock->serving) != mine) (void)pthread_cond_wait(&lock->moved, &lock->mutex);
    (void)pthread_mutex_unlock(&lock->mutex);
}
/* A thread that took a number before `serving` is written looks at it under the mutex before it
 * sleeps: one of the two sees the other. */
static void share_give(webgpu_lock *lock) {
    const uint32_t now = atomic_fetch_add(&lock->serving, 1) + 1;
    if (atomic_load(&lock->next) == now) return;
    (void)pthread_mutex_lock(&lock->mutex);
    (void)pthread_cond_broadcast(&lock->moved);
    (void)pthread_mutex_unlock(&lock->mutex);
}

#endif

void tg_webgpu_enter(webgpu_device *d) {
    share_take(&d->host->lock);
    atomic_store(&d->host->who, d);
}
void tg_webgpu_leave(webgpu_device *d) {
    atomic_store(&d->host->who, NULL);
    share_give(&d->host->lock);
}
void tg_webgpu_give_way(webgpu_device *d, int64_t nap) {
    tg_webgpu_leave(d);
    share_nap(nap);
    tg_webgpu_enter(d);
}

/* ---- memory that answers are written to */

void tg_webgpu_bury(webgpu_host *host, webgpu_answers *answers) {
    if (answers->pending <= 0) {
        free(answers);
        return;
    }
    answers->next = host->orphans;
    host->orphans = answers;
}
static void share_sweep(webgpu_host *host) {
    webgpu_answers **at = &host->orphans;
    while (*at != NULL) {
        webgpu_answers *answers = *at;
        if (answers->pending > 0) {
            at = &answers->next;
            continue;
        }
        *at = answers->next;
        free(answers);
    }
}

/* ---- hosts */

static bool share_is_usable(const webgpu_gpu *gpu) { return atomic_load(&gpu->lost.ready) == 0 && !atomic_load(&gpu->silent); }

static bool share_host_is_good(const webgpu_host *host) {
    for (const webgpu_gpu *gpu = host->gpus; gpu != NULL; gpu = gpu->next)
        if (!share_is_usable(gpu)) return false;
    return !host->retired;
}
static bool share_is_of(const webgpu_host *host, const tg_webgpu_api *api) { return memcmp(&host->api, api, sizeof *api) == 0; }

static void share_close_host(webgpu_host *host) {
    webgpu_host **at = &share_hosts;
    while (*at != NULL && *at != host) at = &(*at)->next;
    if (*at == host) *at = host->next;
    if (host->instance != NULL && !host->foreign) host->api.instance_release(host->instance);
    /* The library forgets requests once the instance is gone. An application's instance stays: a
     * request to it that was given up may still be answered, so the memory for its answer is not
     * freed. */
    for (webgpu_answers *answers = host->orphans; answers != NULL && !host->foreign; answers = answers->next) answers->pending = 0;
    share_sweep(host);
    share_drop_lock(&host->lock);
    free(host);
}
static tg_status share_make_host(tg_context *ctx, const tg_webgpu_api *api, tg_wgpu_instance foreign, webgpu_host **out) {
    webgpu_host *host = calloc(1, sizeof *host);
    if (host == NULL || !share_make_lock(&host->lock)) {
        free(host);
        return tg_fail_memory(ctx, sizeof *host);
    }
    host->api = *api;
    host->dawn = api->device_tick != NULL;
    host->wgpu_native = api->device_poll != NULL;
    host->old_layout_entry = host->wgpu_native && (api->get_version == NULL || api->get_version() >> 24 < 29);
    host->foreign = foreign != NULL;
    host->instance = foreign != NULL ? foreign : api->create_instance(NULL);
    if (host->instance == NULL) {
        share_close_host(host);
        return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the library makes no instance");
    }
    host->next = share_hosts;
    share_hosts = host;
    *out = host;
    return TG_OK;
}
static bool share_host_suits(const webgpu_host *host, const tg_webgpu_api *api, tg_wgpu_instance foreign) {
    return share_is_of(host, api) && host->foreign == (foreign != NULL) && (foreign == NULL || host->instance == foreign) &&
           share_host_is_good(host);
}
tg_status tg_webgpu_take_host(tg_context *ctx, const tg_webgpu_api *api, tg_wgpu_instance foreign, const webgpu_gpu *found,
                              webgpu_host **out) {
    webgpu_host *host = found != NULL ? found->host : share_hosts;
    while (host != NULL && found == NULL && !share_host_suits(host, api, foreign)) host = host->next;
    if (host == NULL) {
        tg_status status = share_make_host(ctx, api, foreign, &host);
        if (status != TG_OK) return status;
    }
    host->users++;
    *out = host;
    return TG_OK;
}
/* An instance of our own stays, with its drivers, as long as it is good: only tg_close_idle_devices
 * ends it. */
void tg_webgpu_drop_host(webgpu_host *host) {
    host->users--;
    share_sweep(host);
    if (host->users == 0 && host->gpus == NULL && (host->foreign || host->retired)) share_close_host(host);
}

/* ---- GPUs */

webgpu_gpu *tg_webgpu_make_gpu(tg_context *ctx, webgpu_host *host) {
    webgpu_gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        (void)tg_fail_memory(ctx, sizeof *gpu);
        return NULL;
    }
    gpu->host = host;
    gpu->executes = true;
    memcpy(gpu->name, "not opened", sizeof "not opened");
    return gpu;
}
static void share_pump(const webgpu_gpu *gpu) {
    const webgpu_host *host = gpu->host;
    if (atomic_load(&gpu->silent)) return;
    if (!host->wgpu_native) host->api.instance_process_events(host->instance);
    else if (gpu->device != NULL) (void)host->api.device_poll(gpu->device, 0, NULL);
}
/* To be called without the host's lock. */
static void share_close_gpu(webgpu_gpu *gpu) {
    webgpu_host *host = gpu->host;
    share_take(&host->lock);
    if (!share_is_usable(gpu)) host->retired = true;
    tg_webgpu_drop_shared(gpu);
    if (gpu->queue != NULL) host->api.queue_release(gpu->queue);
    if (gpu->device != NULL && !host->foreign) {
        host->api.device_destroy(gpu->device);
        share_pump(gpu);
        host->api.device_release(gpu->device);
    }
    tg_webgpu_bury(host, &gpu->answers);
    share_give(&host->lock);
}
void tg_webgpu_discard_gpu(webgpu_gpu *gpu) {
    if (gpu != NULL) share_close_gpu(gpu);
}
void tg_webgpu_publish_gpu(webgpu_gpu *gpu) {
    gpu->next = gpu->host->gpus;
    gpu->host->gpus = gpu;
}
static void share_unlink(webgpu_gpu *gpu) {
    webgpu_gpu **at = &gpu->host->gpus;
    while (*at != NULL && *at != gpu) at = &(*at)->next;
    if (*at == gpu) *at = gpu->next;
}
static bool share_suits(const webgpu_gpu *gpu, const webgpu_wish *wish, bool real_gpu) {
    return !gpu->alone && gpu->wish.f16 == wish->f16 && gpu->wish.guaranteed == wish->guaranteed && !(real_gpu && gpu->software) &&
           strcmp(gpu->wish.adapter, wish->adapter) == 0 && strcmp(gpu->wish.toggles, wish->toggles) == 0;
}
webgpu_gpu *tg_webgpu_find_gpu(const tg_webgpu_api *api, const webgpu_wish *wish, bool real_gpu, tg_wgpu_device foreign) {
    for (webgpu_host *host = share_hosts; host != NULL; host = host->next)
        for (webgpu_gpu *gpu = host->gpus; gpu != NULL; gpu = gpu->next)
            if (share_is_of(host, api) && host->foreign == (foreign != NULL) && (foreign == NULL || gpu->device == foreign) &&
                share_is_usable(gpu) && share_suits(gpu, wish, real_gpu))
                return gpu;
    return NULL;
}
void tg_webgpu_join_gpu(webgpu_gpu *gpu) { atomic_fetch_add(&gpu->users, 1); }

/* Of the GPUs that nobody uses, the one that has been idle longest; *count gets their number. */
static webgpu_gpu *share_oldest(int *count) {
    webgpu_gpu *oldest = NULL;
    *count = 0;
    for (webgpu_host *host = share_hosts; host != NULL; host = host->next)
        for (webgpu_gpu *gpu = host->gpus; gpu != NULL; gpu = gpu->next) {
            if (atomic_load(&gpu->users) > 0) continue;
            (*count)++;
            if (oldest == NULL || gpu->idle_since < oldest->idle_since) oldest = gpu;
        }
    return oldest;
}
static void share_close_oldest(webgpu_gpu *oldest) {
    webgpu_host *host = oldest->host;
    share_unlink(oldest);
    share_close_gpu(oldest);
    if (host->users == 0 && host->gpus == NULL && (host->foreign || host->retired)) share_close_host(host);
}
void tg_webgpu_leave_gpu(webgpu_gpu *gpu) {
    int count = 0;
    if (atomic_fetch_sub(&gpu->users, 1) > 1) return;
    gpu->idle_since = ++share_comings;
    if (gpu->alone || gpu->host->foreign || !share_is_usable(gpu)) {
        share_unlink(gpu);
        share_close_gpu(gpu);
    }
    webgpu_gpu *oldest = share_oldest(&count);
    if (count > SHARE_KEPT) share_close_oldest(oldest);
}

void tg_close_idle_devices(void) {
    int count = 0;
    tg_webgpu_share_begin();
    for (webgpu_gpu *gpu = share_oldest(&count); gpu != NULL; gpu = share_oldest(&count)) share_close_oldest(gpu);
    for (webgpu_host *host = share_hosts, *next = NULL; host != NULL; host = next) {
        next = host->next;
        if (host->users == 0 && host->gpus == NULL) share_close_host(host);
    }
    tg_webgpu_share_end();
}
