/* events: waiting for the library's answers, and what goes wrong meanwhile: lost devices, error
 * scopes, errors outside all scopes. The calling thread asks the library for its events, and
 * answers come then; only faults may come at any time and on any thread. Must not know programs. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include "run/webgpu/device.h"

#include <stdio.h>

#include <string.h>
#include <time.h>
#if defined(_WIN32)
#  include <windows.h>
#endif

/* ns. Polling costs a processor but answers within a microsecond; most steps are shorter than
 * this. */
#define EVENTS_SPIN 1000000
#define EVENTS_LONGEST_NAP 1000000
#define EVENTS_LAST_WORDS 1000000000 /* how long we listen to a lost device */
/* how long a failed map may come before the news that the device is lost */
#define EVENTS_LOSS_SETTLES 100000000

int64_t tg_webgpu_now(void) {
#if defined(_WIN32)
    LARGE_INTEGER count, rate;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&rate);
    return (int64_t)((double)count.QuadPart / (double)rate.QuadPart * 1e9);
#else
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
#endif
}

/* Meanwhile others have their turn. */
static void events_nap(webgpu_device *d, int64_t waited) {
    const int64_t nap = waited < EVENTS_SPIN ? 0 : waited / 16 < EVENTS_LONGEST_NAP ? waited / 16 : EVENTS_LONGEST_NAP;
    tg_webgpu_give_way(d, nap);
}

/* ---- what the library says */

void tg_webgpu_copy_text(char *to, size_t room, tg_wgpu_string text) {
    if (to == NULL || room == 0) return;
    size_t length = 0;
    while (text.data != NULL && length + 1 < room && length < text.length && text.data[length] != '\0') {
        to[length] = text.data[length];
        length++;
    }
    while (length > 0 && (to[length - 1] == '\n' || to[length - 1] == ' ')) length--;
    to[length] = '\0';
}
void tg_webgpu_ask(webgpu_request *request, webgpu_answers *answers, char *text, size_t room) {
    if (text != NULL) text[0] = '\0';
    *request = (webgpu_request){.answers = answers, .text = text, .room = room};
    answers->pending++;
}
void tg_webgpu_answer(webgpu_request *request, uint32_t status, void *object, tg_wgpu_string text) {
    request->status = status;
    request->object = object;
    tg_webgpu_copy_text(request->text, request->room, text);
    request->done = true;
    request->answers->pending--;
}

static void events_record(webgpu_fault *fault, uint32_t kind, tg_wgpu_string text) {
    if (atomic_exchange(&fault->taken, 1) != 0) return;
    fault->kind = kind;
    tg_webgpu_copy_text(fault->text, sizeof fault->text, text);
    atomic_store(&fault->ready, 1);
}
void tg_webgpu_on_lost(const tg_wgpu_device *device, uint32_t reason, tg_wgpu_string text, void *user, void *more) {
    (void)device;
    (void)more;
    webgpu_gpu *gpu = user;
    gpu->answers.pending--;
    /* else the request for it says this */
    if (reason != TG_WGPU_LOST_FAILED_CREATION) events_record(&gpu->lost, reason, text);
}
/* The model that calls the library right now has caused the error. Between calls it is not known
 * which model has. */
void tg_webgpu_on_error(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string text, void *user, void *more) {
    (void)device;
    (void)more;
    webgpu_gpu *gpu = user;
    webgpu_device *who = atomic_load(&gpu->host->who);
    events_record(who != NULL && who->gpu == gpu ? &who->uncaptured : &gpu->uncaptured, error, text);
}

bool tg_webgpu_is_lost(const webgpu_device *d) { return atomic_load(&d->gpu->lost.ready) != 0; }

tg_status tg_webgpu_alive(webgpu_device *d) {
    if (tg_webgpu_is_lost(d))
        return tg_fail(d->ctx, TG_ERROR_DEVICE_LOST, TG_SITE_NONE, "webgpu: the device (%s) was lost: %s", d->gpu->name,
                       d->gpu->lost.text[0] != '\0' ? d->gpu->lost.text : "no reason given");
    if (d->gpu->silent)
        return tg_fail(d->ctx, TG_ERROR_DEVICE_LOST, TG_SITE_NONE, "webgpu: the device (%s) stopped answering", d->gpu->name);
    return TG_OK;
}

/* ---- waiting */

/* wgpu-native's instance has no events of its own: its devices are polled. */
void tg_webgpu_pump(webgpu_device *d) {
    atomic_store(&d->host->who, NULL);
    if (!d->host->wgpu_native) d->host->api.instance_process_events(d->host->instance);
    else if (d->gpu->device != NULL) (void)d->host->api.device_poll(d->gpu->device, 0, NULL);
    atomic_store(&d->host->who, d);
}

tg_status tg_webgpu_wait(webgpu_device *d, const webgpu_request *request, const char *what) {
    const int64_t start = tg_webgpu_now();
    int64_t lost_at = 0;
    for (tg_webgpu_pump(d); !request->done; tg_webgpu_pump(d)) {
        const int64_t now = tg_webgpu_now();
        if (atomic_load(&d->gpu->silent)) break;
        if (tg_webgpu_is_lost(d)) {
            if (lost_at == 0) lost_at = now;
            if (now - lost_at > EVENTS_LAST_WORDS) atomic_store(&d->gpu->silent, true);
        }
        if (now - start > d->patience) {
            atomic_store(&d->gpu->silent, true);
            return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no answer in %.0f s: %s", (double)d->patience * 1e-9, what);
        }
        events_nap(d, now - start);
    }
    return tg_webgpu_alive(d);
}

/* ---- error scopes */

static const uint32_t events_filters[WEBGPU_SCOPES] = {TG_WGPU_FILTER_VALIDATION, TG_WGPU_FILTER_MEMORY, TG_WGPU_FILTER_INTERNAL};

static void events_on_scope(uint32_t status, uint32_t error, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    webgpu_request *request = user;
    request->error = error;
    tg_webgpu_answer(request, status, NULL, text);
}
void tg_webgpu_scopes_push(webgpu_device *d, int count) {
    for (int i = 0; i < count; ++i) d->host->api.device_push_error_scope(d->gpu->device, events_filters[i]);
}
void tg_webgpu_scopes_end(webgpu_device *d, int count, webgpu_scopes *scopes) {
    for (int i = count - 1; i >= 0; --i) {
        webgpu_request *request = &scopes->request[i];
        tg_webgpu_ask(request, &d->answers, scopes->text[i], sizeof scopes->text[i]);
        request->error = TG_WGPU_ERROR_NONE;
        d->host->api.device_pop_error_scope(
            d->gpu->device, (tg_wgpu_scope_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = events_on_scope, .user = request});
    }
}
static void events_forget(webgpu_fault *fault) {
    atomic_store(&fault->ready, 0);
    atomic_store(&fault->taken, 0);
}
/* Reports an error that no scope caught, once. If it is not known whose it is, it is this model's
 * if there is no other; else it goes to the log. */
static tg_status events_uncaptured(webgpu_device *d, const char *what) {
    char line[TG_WEBGPU_LINE];
    webgpu_fault *fault = &d->uncaptured;
    if (atomic_load(&fault->ready) == 0) fault = &d->gpu->uncaptured;
    if (atomic_load(&fault->ready) == 0) return TG_OK;
    if (fault == &d->uncaptured || atomic_load(&d->gpu->users) <= 1) {
        const tg_status code = fault->kind == TG_WGPU_ERROR_MEMORY ? TG_ERROR_MEMORY : TG_ERROR_DEVICE;
        tg_status status = tg_fail(d->ctx, code, TG_SITE_NONE, "webgpu: %s: %s", what, fault->text);
        events_forget(fault);
        return status;
    }
    snprintf(line, sizeof line, "webgpu: an error on %s, of one of the models that share it: %s", d->gpu->name, fault->text);
    events_forget(fault);
    if (d->ctx->log != NULL) d->ctx->log(d->ctx->log_user, TG_LOG_WARNING, line);
    return TG_OK;
}
tg_status tg_webgpu_scopes_report(webgpu_device *d, int count, webgpu_scopes *scopes, const char *what) {
    for (int i = 0; i < count; ++i) {
        tg_status status = tg_webgpu_wait(d, &scopes->request[i], what);
        if (status != TG_OK) return status;
    }
    for (int i = 0; i < count; ++i) {
        const webgpu_request *scope = &scopes->request[i];
        if (scope->status != TG_WGPU_SUCCESS)
            return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: %s: an error scope was lost: %s", what, scope->text);
        if (scope->error == TG_WGPU_ERROR_MEMORY)
            return tg_fail(d->ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "webgpu: %s: out of GPU memory: %s", what, scope->text);
        if (scope->error != TG_WGPU_ERROR_NONE) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: %s: %s", what, scope->text);
    }
    return events_uncaptured(d, what);
}
tg_status tg_webgpu_scopes_pop(webgpu_device *d, int count, const char *what) {
    tg_webgpu_scopes_end(d, count, &d->scopes);
    return tg_webgpu_scopes_report(d, count, &d->scopes, what);
}

/* ---- reading back */

static void events_on_map(uint32_t status, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    tg_webgpu_answer(user, status, NULL, text);
}
/* A map fails if the device is lost, perhaps before we hear of the loss. The loss of an
 * application's device is told only to the application. */
static tg_status events_map_failed(webgpu_device *d, const char *said) {
    const int64_t start = tg_webgpu_now();
    if (d->host->foreign) events_record(&d->gpu->lost, TG_WGPU_LOST_UNKNOWN, webgpu_string(said));
    while (!tg_webgpu_is_lost(d) && tg_webgpu_now() - start < EVENTS_LOSS_SETTLES) {
        tg_webgpu_pump(d);
        events_nap(d, EVENTS_SPIN);
    }
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: results cannot be read back: %s", said);
}
void tg_webgpu_map_begin(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, webgpu_request *request, char *text) {
    tg_webgpu_ask(request, &d->answers, text, TG_WEBGPU_TEXT);
    d->count.maps++;
    d->host->api.buffer_map_async(buffer, TG_WGPU_MAP_READ, (size_t)offset, (size_t)bytes,
                                  (tg_wgpu_map_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = events_on_map, .user = request});
}
tg_status tg_webgpu_map_end(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, webgpu_request *request,
                            const void **data) {
    tg_status status = tg_webgpu_wait(d, request, "reading results back");
    if (status == TG_OK && request->status != TG_WGPU_SUCCESS) return events_map_failed(d, request->text);
    *data = NULL;
    if (status == TG_OK) *data = d->host->api.buffer_get_const_mapped_range(buffer, (size_t)offset, (size_t)bytes);
    if (*data != NULL) return TG_OK;
    if (request->done && request->status == TG_WGPU_SUCCESS) d->host->api.buffer_unmap(buffer);
    return status != TG_OK ? status : tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: mapped results have no address");
}
tg_status tg_webgpu_map(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, int64_t bytes, const void **data) {
    tg_webgpu_map_begin(d, buffer, offset, bytes, &d->map, d->text);
    return tg_webgpu_map_end(d, buffer, offset, bytes, &d->map, data);
}
static tg_status events_submit_fence(webgpu_device *d) {
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) return tg_error(d->ctx);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, d->fence_source.handle, 0, d->fence.handle, 0, 4);
    return tg_webgpu_submit(d, encoder);
}
tg_status tg_webgpu_finish(webgpu_device *d) {
    const void *data = NULL;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = events_submit_fence(d);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "waiting for the queue");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_map(d, d->fence.handle, 0, 4, &data);
    if (status == TG_OK) d->host->api.buffer_unmap(d->fence.handle);
    return status;
}

#undef EVENTS_SPIN
#undef EVENTS_LONGEST_NAP
#undef EVENTS_LAST_WORDS
#undef EVENTS_LOSS_SETTLES
