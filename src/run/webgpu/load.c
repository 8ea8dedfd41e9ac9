/* load: makes all that a run needs on the GPU from a replay: buffers, pipelines, bind groups, the
 * list of dispatches. A failure leaves nothing. Must not know kernels, printers, or how a run
 * goes. */
#include "run/webgpu/device.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers */

static tg_status load_make_buffer(webgpu_executable *e, int64_t bytes, uint64_t usage, const char *what, webgpu_buffer *out) {
    return bytes > 0 ? tg_webgpu_make_buffer(e->device, bytes, usage, what, out) : TG_OK;
}
static tg_status load_make_buffers(webgpu_executable *e) {
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION, both = fed | TG_WGPU_USAGE_COPY_SOURCE;
    const tg_replay *replay = &e->replay;
    tg_status status = TG_OK;
    for (int b = 0; b < TG_REPLAY_OWN && status == TG_OK; ++b)
        status = load_make_buffer(e, replay->bytes[b], b == TG_REPLAY_WORKSPACE || b == TG_REPLAY_SCRATCH ? both : fed, tg_replay_names[b],
                                  &e->blocks[b]);
    if (status == TG_OK)
        status = load_make_buffer(e, replay->readback_bytes, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "the outputs",
                                  &e->readback);
    if (status != TG_OK) return status;
    for (int32_t b = 0; b < replay->program->buffer_count; ++b) {
        const tg_buffer *buffer = &replay->program->buffers[b];
        if (buffer->storage != TG_STORAGE_CONSTANT) continue;
        tg_webgpu_write(e->device, e->blocks[TG_REPLAY_CONSTANTS].handle, replay->places[b].offset, buffer->dtype, buffer->data,
                        buffer->count);
    }
    return TG_OK;
}

/* ---- bind groups */

webgpu_range tg_webgpu_range(const webgpu_executable *e, tg_replay_slice slice) {
    const webgpu_device *d = e->device;
    const webgpu_buffer *buffer = NULL;
    if (slice.block >= 0 && slice.block < TG_REPLAY_OWN) buffer = &e->blocks[slice.block];
    else if (slice.block >= TG_REPLAY_STATES && slice.block - TG_REPLAY_STATES < d->states.count)
        buffer = &d->states.items[slice.block - TG_REPLAY_STATES].buffer;
    if (buffer == NULL || slice.bytes > buffer->bytes - slice.offset) return (webgpu_range){NULL, 0, 0};
    return (webgpu_range){buffer->handle, slice.offset, slice.bytes};
}
tg_status tg_webgpu_bind(webgpu_device *d, const webgpu_range *ranges, int32_t count, const char *label, webgpu_dispatch *dispatch) {
    tg_wgpu_bind_group_entry entries[TG_WEBGPU_MAX_BINDINGS];
    for (int32_t i = 0; i < count; ++i) {
        if (ranges[i].handle == NULL) return TG_INTERNAL(d->ctx, "a stage binds a buffer that was not made");
        entries[i] = (tg_wgpu_bind_group_entry){
            .binding = (uint32_t)i, .buffer = ranges[i].handle, .offset = (uint64_t)ranges[i].offset, .size = (uint64_t)ranges[i].bytes};
    }
    const tg_wgpu_bind_group_descriptor descriptor = {
        .label = webgpu_string(NULL), .layout = d->gpu->layouts[count], .count = (size_t)count, .entries = entries};
    dispatch->group = d->host->api.device_create_bind_group(d->gpu->device, &descriptor);
    if (dispatch->group == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no bind group for kernel %s", label);
    d->count.objects++;
    return TG_OK;
}
static tg_status load_bind(webgpu_executable *e) {
    webgpu_range ranges[TG_WEBGPU_MAX_BINDINGS];
    tg_status status = TG_OK;
    for (int32_t s = 0; s < e->bundle.dispatch_count && status == TG_OK; ++s) {
        const tg_replay_stage *stage = &e->replay.stages[s];
        for (int32_t i = 0; i < stage->binding_count; ++i) ranges[i] = tg_webgpu_range(e, stage->slices[i]);
        status = tg_webgpu_bind(e->device, ranges, stage->binding_count, stage->label, &e->bundle.dispatches[s]);
    }
    return status;
}

/* ---- loading */

static tg_status load_prepare(webgpu_executable *e) {
    const tg_replay *replay = &e->replay;
    webgpu_bundle *bundle = &e->bundle;
    bundle->dispatches = TG_NEW(&e->arena, webgpu_dispatch, replay->stage_count + 1);
    bundle->pipelines = TG_NEW(&e->arena, webgpu_pipeline, replay->source_count + 1);
    if (bundle->dispatches == NULL || bundle->pipelines == NULL) return TG_ERROR_MEMORY;
    for (int32_t p = 0; p < replay->source_count; ++p) bundle->pipelines[p].source = &replay->sources[p];
    for (int32_t s = 0; s < replay->stage_count; ++s)
        bundle->dispatches[s] = webgpu_dispatch_of(replay->stages[s].source, replay->stages[s].groups);
    bundle->pipeline_count = replay->source_count;
    bundle->dispatch_count = replay->stage_count;
    e->pace = tg_pace_make(replay->stage_count);
    return TG_OK;
}
static tg_status load_scoped(webgpu_executable *e, tg_status (*part)(webgpu_executable *e), const char *what) {
    tg_webgpu_scopes_push(e->device, WEBGPU_SCOPES);
    tg_status status = part(e);
    tg_status scopes = tg_webgpu_scopes_pop(e->device, WEBGPU_SCOPES, what);
    return status != TG_OK ? status : scopes;
}
/* *tuned: launches that the device's table laid out. */
static tg_status load_once(webgpu_device *d, const tg_program *program, const int32_t *state_slots, int32_t *tuned, tg_executable **out) {
    const tg_replay_limits limits = webgpu_replay_limits(d);
    const char *poison = getenv("TENSORGRAD_POISON");
    webgpu_executable *e = tg_alloc(d->ctx, sizeof *e);
    if (e == NULL) return TG_ERROR_MEMORY;
    e->device = d;
    e->poison = poison != NULL && strcmp(poison, "1") == 0;
    tg_arena_init(&e->arena, d->ctx);
    tg_status status = tg_replay_make(d->ctx, program, state_slots, &limits, &e->replay);
    *tuned = e->replay.tuned;
    if (status == TG_OK) status = load_prepare(e);
    if (status == TG_OK) status = load_scoped(e, load_make_buffers, "making buffers");
    if (status == TG_OK) status = tg_webgpu_make_pipelines(d, &e->bundle);
    if (status == TG_OK) status = load_scoped(e, load_bind, "binding buffers");
    tg_replay_drop_texts(&e->replay);
    if (status == TG_OK) *out = (tg_executable *)(void *)e;
    else tg_webgpu_unload((tg_device *)(void *)d, (tg_executable *)(void *)e);
    return status;
}

/* If a device cannot do what its table says, which may be out of date, it does what the printers
 * say. */
tg_status tg_webgpu_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    webgpu_device *d = webgpu_of(device);
    const tg_schedules *table = d->model.schedules;
    int32_t tuned = 0;
    tg_status status = tg_webgpu_alive(d);
    if (status == TG_OK) status = load_once(d, program, state_slots, &tuned, out);
    if (status == TG_OK || tuned == 0 || d->gpu->silent || tg_webgpu_is_lost(d)) return status;
    if (d->ctx->log != NULL) d->ctx->log(d->ctx->log_user, TG_LOG_WARNING, "webgpu: the tuned schedules do not work here: ignored");
    tg_clear_error(d->ctx);
    d->model.schedules = NULL;
    status = load_once(d, program, state_slots, &tuned, out);
    d->model.schedules = table;
    return status;
}

void tg_webgpu_drop_bundle(webgpu_device *d, webgpu_bundle *bundle) {
    for (int32_t s = 0; s < bundle->dispatch_count; ++s) {
        if (bundle->dispatches[s].group == NULL) continue;
        d->host->api.bind_group_release(bundle->dispatches[s].group);
        d->count.objects--;
    }
    tg_webgpu_release_pipelines(d, bundle);
}
void tg_webgpu_unload(tg_device *device, tg_executable *executable) {
    (void)device;
    if (executable == NULL) return;
    webgpu_executable *e = webgpu_executable_of(executable);
    webgpu_device *d = e->device;
    tg_context *ctx = d->ctx;
    tg_webgpu_drop_timer(e);
    tg_webgpu_drop_bundle(d, &e->bundle);
    for (int b = 0; b < TG_REPLAY_OWN; ++b) tg_webgpu_drop_buffer(d, &e->blocks[b]);
    tg_webgpu_drop_buffer(d, &e->readback);
    tg_replay_free(&e->replay);
    tg_arena_free(&e->arena);
    tg_release(ctx, e, sizeof *e);
}
int tg_webgpu_tuned(const tg_executable *executable) { return ((const webgpu_executable *)(const void *)executable)->replay.tuned; }
int tg_webgpu_dispatches(const tg_executable *executable) {
    return ((const webgpu_executable *)(const void *)executable)->bundle.dispatch_count;
}
