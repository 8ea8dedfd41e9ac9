/* feeder: a data set on the GPU, and many steps of an executable in one submission: before each
 * step a kernel draws its batch into the executable's block of inputs, and puts the loss of the
 * step before into a history that is read once. So a step costs one more dispatch, and its
 * arithmetic is the same as without. Must not know how a step is made. */
#include "run/webgpu/device.h"

#include <string.h>

/* The time that a submission should take if the number of steps is free, ns. The way to the GPU and
 * back is a tenth of a millisecond. */
#define FEEDER_BUSY 40000000

typedef struct webgpu_feeder {
    webgpu_device *device;
    webgpu_executable *target;
    tg_replay_feeder replay;
    webgpu_buffer data, control, history, readback;
    /* replaces the inputs of a target that has none: a binding needs a buffer */
    webgpu_buffer nothing;
    webgpu_pipeline pipeline;
    webgpu_dispatch dispatches[2]; /* the two turns of the kernel that draws */
    webgpu_bundle draw;            /* of these */
    const void **inputs;           /* per program input: NULL if the data set has it */
} webgpu_feeder;

static webgpu_feeder *feeder_of(tg_feeder *feeder) { return (webgpu_feeder *)(void *)feeder; }

/* ---- making */

static tg_status feeder_make_buffers(webgpu_feeder *f) {
    webgpu_device *d = f->device;
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION, both = fed | TG_WGPU_USAGE_COPY_SOURCE;
    const int64_t *bytes = f->replay.bytes;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = tg_webgpu_make_buffer(d, bytes[TG_REPLAY_DATA], fed, tg_replay_names[TG_REPLAY_DATA], &f->data);
    if (status == TG_OK) status = tg_webgpu_make_buffer(d, bytes[TG_REPLAY_CONTROL], both, tg_replay_names[TG_REPLAY_CONTROL], &f->control);
    if (status == TG_OK) status = tg_webgpu_make_buffer(d, bytes[TG_REPLAY_HISTORY], both, tg_replay_names[TG_REPLAY_HISTORY], &f->history);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, bytes[TG_REPLAY_HISTORY], TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION,
                                       tg_replay_names[TG_REPLAY_HISTORY], &f->readback);
    if (status == TG_OK && f->target->blocks[TG_REPLAY_INPUTS].handle == NULL)
        status = tg_webgpu_make_buffer(d, 4, fed, tg_replay_names[TG_REPLAY_INPUTS], &f->nothing);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making a data set");
    return status != TG_OK ? status : scopes;
}
static tg_status feeder_write(webgpu_feeder *f, const tg_feeder_options *options) {
    tg_status status = TG_OK;
    for (int32_t i = 0; i < options->count && status == TG_OK; ++i) {
        const tg_feeder_array *array = &options->arrays[i];
        const tg_replay_array *to = &f->replay.arrays[i];
        if (to->from >= 0)
            status = tg_webgpu_write_long(f->device, f->data.handle, to->from, f->target->replay.program->inputs[array->input].dtype,
                                          array->data, to->count, "writing a data set");
    }
    return status;
}
static webgpu_range feeder_range(const webgpu_feeder *f, tg_replay_slice slice) {
    const webgpu_buffer *inputs = &f->target->blocks[TG_REPLAY_INPUTS];
    switch (slice.block) {
    case TG_REPLAY_DATA: return (webgpu_range){f->data.handle, slice.offset, slice.bytes};
    case TG_REPLAY_CONTROL: return (webgpu_range){f->control.handle, slice.offset, slice.bytes};
    case TG_REPLAY_HISTORY: return (webgpu_range){f->history.handle, slice.offset, slice.bytes};
    case TG_REPLAY_INPUTS: return (webgpu_range){inputs->handle != NULL ? inputs->handle : f->nothing.handle, slice.offset, slice.bytes};
    default: return tg_webgpu_range(f->target, slice);
    }
}
static tg_status feeder_make_kernel(webgpu_feeder *f) {
    webgpu_device *d = f->device;
    webgpu_range ranges[TG_WEBGPU_MAX_BINDINGS];
    f->pipeline.source = &f->replay.draw;
    f->draw = (webgpu_bundle){&f->pipeline, f->dispatches, 1, 2};
    tg_status status = tg_webgpu_make_pipelines(d, &f->draw);
    if (status != TG_OK) return status;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    for (int turn = 0; turn < 2 && status == TG_OK; ++turn) {
        for (int32_t i = 0; i < f->replay.draw.binding_count; ++i) ranges[i] = feeder_range(f, f->replay.turns[turn][i]);
        f->dispatches[turn] = webgpu_dispatch_of(0, f->replay.groups);
        status = tg_webgpu_bind(d, ranges, f->replay.draw.binding_count, f->replay.draw.label, &f->dispatches[turn]);
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "binding buffers");
    return status != TG_OK ? status : scopes;
}
tg_status tg_webgpu_make_feeder(tg_device *device, tg_executable *executable, const tg_feeder_options *options, tg_feeder **out) {
    webgpu_device *d = webgpu_of(device);
    const tg_replay_limits limits = webgpu_replay_limits(d);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    webgpu_feeder *f = tg_alloc(d->ctx, sizeof *f);
    if (f == NULL) return TG_ERROR_MEMORY;
    f->device = d;
    f->target = webgpu_executable_of(executable);
    status = tg_replay_make_feeder(d->ctx, &f->target->replay, options, &limits, &f->replay);
    if (status == TG_OK) {
        f->inputs = TG_NEW(&f->replay.arena, const void *, f->target->replay.program->input_count + 1);
        status = f->inputs != NULL ? feeder_make_buffers(f) : TG_ERROR_MEMORY;
    }
    if (status == TG_OK) status = feeder_write(f, options);
    if (status == TG_OK) status = feeder_make_kernel(f);
    if (status == TG_OK) *out = (tg_feeder *)(void *)f;
    else tg_webgpu_drop_feeder(device, (tg_feeder *)(void *)f);
    return status;
}
void tg_webgpu_drop_feeder(tg_device *device, tg_feeder *feeder) {
    webgpu_device *d = webgpu_of(device);
    webgpu_feeder *f = feeder_of(feeder);
    tg_webgpu_drop_bundle(d, &f->draw);
    tg_webgpu_drop_buffer(d, &f->data);
    tg_webgpu_drop_buffer(d, &f->control);
    tg_webgpu_drop_buffer(d, &f->history);
    tg_webgpu_drop_buffer(d, &f->readback);
    tg_webgpu_drop_buffer(d, &f->nothing);
    tg_replay_free_feeder(&f->replay);
    tg_release(d->ctx, f, sizeof *f);
}

/* ---- running */

/* Dispatches [begin, end) of the target, `count` times, in one submission. A step that is cut is
 * alone in it. */
typedef struct feeder_piece {
    int64_t count;
    int32_t begin, end;
} feeder_piece;

static void feeder_write_run(webgpu_feeder *f, const tg_feeder_run *run) {
    webgpu_device *d = f->device;
    uint32_t words[2 * TG_REPLAY_ALIGN / TG_WORD_BYTES] = {0}; /* now and after, which take turns */
    tg_draw_control(&run->draw, words);
    tg_draw_control(&run->draw, words + TG_REPLAY_ALIGN / TG_WORD_BYTES);
    d->host->api.queue_write_buffer(d->gpu->queue, f->control.handle, 0, words, sizeof words);
    d->count.writes++;
    d->count.write_bytes += (int64_t)sizeof words;
    for (int32_t i = 0; i < f->target->replay.program->input_count; ++i) f->inputs[i] = f->replay.given[i] ? NULL : run->inputs[i];
    tg_webgpu_write_inputs(f->target, f->inputs);
    tg_webgpu_poison(f->target);
}
static void feeder_encode_steps(const webgpu_feeder *f, tg_wgpu_compute_pass pass, const feeder_piece *piece) {
    for (int64_t i = 0; i < piece->count; ++i) {
        if (piece->begin == 0) tg_webgpu_encode(f->device, &f->draw, pass, (int32_t)(i % 2), (int32_t)(i % 2) + 1);
        tg_webgpu_encode(f->device, &f->target->bundle, pass, piece->begin, piece->end);
    }
}
/* The history, and the last loss, which no draw has put there. */
static void feeder_encode_losses(const webgpu_feeder *f, tg_wgpu_command_encoder encoder, int64_t count) {
    webgpu_device *d = f->device;
    const webgpu_range loss = feeder_range(f, f->replay.loss);
    const uint64_t before = (uint64_t)(count - 1) * TG_WORD_BYTES;
    if (before > 0) d->host->api.encoder_copy_buffer_to_buffer(encoder, f->history.handle, 0, f->readback.handle, 0, before);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, loss.handle, (uint64_t)loss.offset, f->readback.handle, before, 4);
    d->count.copies += before > 0 ? 2 : 1;
    d->count.copy_bytes += (int64_t)before + 4;
}
static tg_status feeder_encode(const webgpu_feeder *f, const feeder_piece *piece) {
    webgpu_device *d = f->device;
    tg_wgpu_command_encoder encoder = NULL;
    tg_wgpu_compute_pass pass = NULL;
    tg_status status = tg_webgpu_begin_pass(d, &encoder, NULL, &pass);
    if (status != TG_OK) return status;
    feeder_encode_steps(f, pass, piece);
    tg_webgpu_end_pass(d, pass);
    if (piece->end == f->target->pace.stages) feeder_encode_losses(f, encoder, piece->count);
    return tg_webgpu_submit(d, encoder);
}
static tg_status feeder_read(const webgpu_feeder *f, float *losses, int64_t count) {
    webgpu_device *d = f->device;
    const void *data = NULL;
    tg_status status = tg_webgpu_map(d, f->readback.handle, 0, count * TG_WORD_BYTES, &data);
    if (status != TG_OK) return status;
    memcpy(losses, data, (size_t)count * TG_WORD_BYTES);
    d->host->api.buffer_unmap(f->readback.handle);
    return TG_OK;
}
static tg_status feeder_submit(webgpu_feeder *f, const tg_feeder_run *run, const feeder_piece *piece, float *losses) {
    webgpu_device *d = f->device;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    if (piece->begin == 0) feeder_write_run(f, run);
    tg_status status = feeder_encode(f, piece);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "running steps");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK) return status;
    return piece->end == f->target->pace.stages ? feeder_read(f, losses, piece->count) : tg_webgpu_finish(d);
}
/* One step, in as many submissions as one run of it takes. */
static tg_status feeder_run_one(webgpu_feeder *f, const tg_feeder_run *run, float *losses) {
    tg_pace *pace = &f->target->pace;
    feeder_piece piece = {1, 0, 0};
    tg_status status = TG_OK;
    do {
        const int64_t start = tg_webgpu_now();
        piece.end = tg_pace_end(pace, piece.begin);
        status = feeder_submit(f, run, &piece, losses);
        if (status == TG_OK) tg_pace_took(pace, piece.end - piece.begin, tg_webgpu_now() - start, f->device->slow);
        piece.begin = piece.end;
    } while (status == TG_OK && piece.begin < pace->stages);
    return status;
}

tg_status tg_webgpu_run_feeder(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count) {
    webgpu_device *d = webgpu_of(device);
    webgpu_feeder *f = feeder_of(feeder);
    tg_pace *pace = &f->target->pace;
    const int64_t start = tg_webgpu_now();
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_reset_counters(&d->count);
    *count = tg_pace_runs(pace, run->most, run->exact);
    const feeder_piece all = {*count, 0, pace->stages};
    status = *count == 1 ? feeder_run_one(f, run, losses) : feeder_submit(f, run, &all, losses);
    if (status == TG_OK) tg_pace_ran(pace, *count, tg_webgpu_now() - start, FEEDER_BUSY);
    return status;
}

#undef FEEDER_BUSY
