/* timer: what each launch of a run takes on the GPU: timestamps around a pass of its own, and the
 * median of the last runs. Owns query sets and the way of times to the host. Must not know kernels,
 * or how a run goes. */
#include "run/webgpu/device.h"

#include <string.h>

enum {
    TIMER_LAUNCHES = 2048, /* of a set: two queries each, and a set has at most 4096 */
    TIMER_RUNS = 31        /* whose median is told */
};
#define TIMER_SET_BYTES (INT64_C(2) * TIMER_LAUNCHES * 8) /* a multiple of 256, as resolving asks */

/* Times of the last runs of a launch, in a ring. */
typedef struct timer_launch {
    double milliseconds[TIMER_RUNS];
} timer_launch;

typedef struct webgpu_timer {
    tg_arena arena;
    tg_kernel_time *times; /* the caller's */
    timer_launch *launches;
    int32_t launch_count, set_count;
    int64_t runs;
    tg_wgpu_query_set *sets;
    webgpu_buffer resolved, readback;
} webgpu_timer;

/* ---- making and dropping */

void tg_webgpu_drop_timer(webgpu_executable *e) {
    webgpu_timer *timer = e->timer;
    webgpu_device *d = e->device;
    if (timer == NULL) return;
    for (int32_t s = 0; s < timer->set_count; ++s) {
        if (timer->sets[s] == NULL) continue;
        d->host->api.query_set_destroy(timer->sets[s]);
        d->host->api.query_set_release(timer->sets[s]);
        d->count.objects--;
    }
    tg_webgpu_drop_buffer(d, &timer->resolved);
    tg_webgpu_drop_buffer(d, &timer->readback);
    tg_arena_free(&timer->arena);
    tg_release(d->ctx, timer, sizeof *timer);
    e->timer = NULL;
}
static tg_status timer_make_sets(webgpu_device *d, webgpu_timer *timer) {
    const tg_wgpu_query_set_descriptor descriptor = {
        .label = webgpu_string("times"), .type = TG_WGPU_QUERY_TIMESTAMP, .count = 2 * TIMER_LAUNCHES};
    const int64_t bytes = timer->set_count * TIMER_SET_BYTES;
    for (int32_t s = 0; s < timer->set_count; ++s) {
        timer->sets[s] = d->host->api.device_create_query_set(d->gpu->device, &descriptor);
        if (timer->sets[s] == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no query set for times");
        d->count.objects++;
    }
    tg_status status =
        tg_webgpu_make_buffer(d, bytes, TG_WGPU_USAGE_QUERY_RESOLVE | TG_WGPU_USAGE_COPY_SOURCE, "the times", &timer->resolved);
    if (status != TG_OK) return status;
    return tg_webgpu_make_buffer(d, bytes, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "the times", &timer->readback);
}
static tg_status timer_make(webgpu_executable *e, tg_kernel_time *times, int32_t count) {
    webgpu_device *d = e->device;
    webgpu_timer *timer = tg_alloc(d->ctx, sizeof *timer);
    if (timer == NULL) return TG_ERROR_MEMORY;
    tg_arena_init(&timer->arena, d->ctx);
    e->timer = timer;
    timer->times = times;
    timer->launch_count = count;
    timer->launches = TG_NEW(&timer->arena, timer_launch, count + 1);
    timer->sets = TG_NEW(&timer->arena, tg_wgpu_query_set, count / TIMER_LAUNCHES + 1);
    if (timer->launches == NULL || timer->sets == NULL) return TG_ERROR_MEMORY;
    timer->set_count = (count + TIMER_LAUNCHES - 1) / TIMER_LAUNCHES;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = timer_make_sets(d, timer);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making timestamps");
    return status != TG_OK ? status : scopes;
}
tg_status tg_webgpu_time_launches(webgpu_device *d, tg_executable *executable, tg_kernel_time *times, int count) {
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_webgpu_drop_timer(e);
    if (times == NULL) return TG_OK;
    if (!d->gpu->times)
        return tg_fail(d->ctx, TG_ERROR_UNSUPPORTED, TG_SITE_NONE, "time_kernels: %s has no clock that can be read (no timestamp-query)",
                       d->gpu->description);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK || count == 0) return status;
    tg_replay_note_workgroups(&e->replay, times, count);
    status = timer_make(e, times, count);
    if (status != TG_OK) tg_webgpu_drop_timer(e);
    return status;
}

/* ---- a run */

bool tg_webgpu_timer_pass(const webgpu_executable *e, int32_t launch, tg_wgpu_pass_timestamps *out) {
    const webgpu_timer *timer = e->timer;
    if (launch >= timer->launch_count) return false;
    const uint32_t query = 2 * (uint32_t)(launch % TIMER_LAUNCHES);
    *out = (tg_wgpu_pass_timestamps){.set = timer->sets[launch / TIMER_LAUNCHES], .begin = query, .end = query + 1};
    return true;
}
static int32_t timer_queries(const webgpu_timer *timer, int32_t set) {
    const int32_t left = timer->launch_count - set * TIMER_LAUNCHES;
    return 2 * (left < TIMER_LAUNCHES ? left : TIMER_LAUNCHES);
}
void tg_webgpu_timer_resolve(const webgpu_executable *e, tg_wgpu_command_encoder encoder) {
    const webgpu_timer *timer = e->timer;
    webgpu_device *d = e->device;
    for (int32_t s = 0; s < timer->set_count; ++s)
        d->host->api.encoder_resolve_query_set(encoder, timer->sets[s], 0, (uint32_t)timer_queries(timer, s), timer->resolved.handle,
                                               (uint64_t)(s * TIMER_SET_BYTES));
    d->host->api.encoder_copy_buffer_to_buffer(encoder, timer->resolved.handle, 0, timer->readback.handle, 0,
                                               (uint64_t)timer->readback.bytes);
}
static double timer_median(const timer_launch *launch, int32_t count) {
    double sorted[TIMER_RUNS] = {0};
    for (int32_t i = 0; i < count; ++i) {
        int32_t to = i;
        for (; to > 0 && sorted[to - 1] > launch->milliseconds[i]; --to) sorted[to] = sorted[to - 1];
        sorted[to] = launch->milliseconds[i];
    }
    return count % 2 != 0 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}
/* ns: of each launch its begin and its end. */
static void timer_add(webgpu_timer *timer, const uint64_t *ns) {
    const int32_t known = timer->runs + 1 < TIMER_RUNS ? (int32_t)timer->runs + 1 : TIMER_RUNS;
    for (int32_t i = 0; i < timer->launch_count; ++i) {
        const uint64_t begin = ns[2 * i], end = ns[2 * i + 1];
        timer_launch *launch = &timer->launches[i];
        launch->milliseconds[timer->runs % TIMER_RUNS] = end > begin ? (double)(end - begin) * 1e-6 : 0;
        timer->times[i].milliseconds = timer_median(launch, known);
    }
    timer->runs++;
}
tg_status tg_webgpu_timer_take(webgpu_executable *e) {
    webgpu_device *d = e->device;
    webgpu_timer *timer = e->timer;
    const void *data = NULL;
    tg_status status = tg_webgpu_map(d, timer->readback.handle, 0, timer->readback.bytes, &data);
    if (status != TG_OK) return status;
    timer_add(timer, data);
    d->host->api.buffer_unmap(timer->readback.handle);
    return TG_OK;
}

#undef TIMER_SET_BYTES
