/* run: one step: writes inputs, submits one compute pass, reads the outputs that are wanted, and
 * waits or not. It is one submission, unless a program keeps this device busy long enough for its
 * watchdog to act: then the next runs are cut into several, by measured times. Allocates nothing.
 * Must not know how a program was loaded. */
#include "run/webgpu/device.h"

#include <string.h>

enum { RUN_SMALL = 4096 }; /* bytes of an input that is cheaper to copy than to write by itself */

/* Bytes [from, to) of the block of inputs, in d->staging until they are written: small inputs that
 * lie next to each other. */
typedef struct run_gathered {
    int64_t from, to;
} run_gathered;

static void run_flush(webgpu_executable *e, run_gathered *small) {
    webgpu_device *d = e->device;
    const int64_t bytes = small->to - small->from;
    if (bytes > 0) {
        d->host->api.queue_write_buffer(d->gpu->queue, e->blocks[TG_REPLAY_INPUTS].handle, (uint64_t)small->from, d->staging,
                                        (size_t)bytes);
        d->count.writes++;
        d->count.write_bytes += bytes;
    }
    small->from = small->to = 0;
}
static void run_gather(webgpu_executable *e, run_gathered *small, int32_t input, const void *data) {
    const tg_input_info *info = &e->replay.program->inputs[input];
    const int64_t offset = e->replay.input_offset[input], count = tg_shape_count(info->shape);
    const int64_t end = offset + count * tg_dtype_device_bytes(info->dtype);
    char *staging = e->device->staging;
    if (end - small->from > TG_WEBGPU_STAGING_BYTES) run_flush(e, small);
    if (small->to == small->from) small->from = small->to = offset;
    /* the gap between them is unused */
    memset(staging + (small->to - small->from), 0, (size_t)(offset - small->to));
    tg_dtype_to_device(info->dtype, staging + (offset - small->from), data, count);
    small->to = end;
}
/* Inputs of 32 bits that are not small are written from where they lie: the library's copy of them
 * is the only one. */
void tg_webgpu_write_inputs(webgpu_executable *e, const void *const *inputs) {
    const tg_program *program = e->replay.program;
    run_gathered small = {0, 0};
    for (int32_t i = 0; i < program->input_count; ++i) {
        const int64_t offset = e->replay.input_offset[i], count = tg_shape_count(program->inputs[i].shape);
        const bool sent = offset >= 0 && inputs[i] != NULL;
        const bool is_small = count * tg_dtype_device_bytes(program->inputs[i].dtype) <= RUN_SMALL;
        /* gathered inputs must lie next to each other */
        if (!sent || !is_small) run_flush(e, &small);
        if (sent && is_small) run_gather(e, &small, i, inputs[i]);
        else if (sent) tg_webgpu_write(e->device, e->blocks[TG_REPLAY_INPUTS].handle, offset, program->inputs[i].dtype, inputs[i], count);
    }
    run_flush(e, &small);
}
/* Sets all bits: a NaN as f32. Then reads of memory that this run did not write show. */
static void run_poison(webgpu_device *d, const webgpu_buffer *buffer) {
    memset(d->staging, 0xFF, TG_WEBGPU_STAGING_BYTES);
    for (int64_t done = 0; done < buffer->bytes; done += TG_WEBGPU_STAGING_BYTES) {
        const int64_t left = buffer->bytes - done;
        d->host->api.queue_write_buffer(d->gpu->queue, buffer->handle, (uint64_t)done, d->staging,
                                        (size_t)(left < TG_WEBGPU_STAGING_BYTES ? left : TG_WEBGPU_STAGING_BYTES));
    }
}

void tg_webgpu_poison(webgpu_executable *e) {
    if (!e->poison) return;
    run_poison(e->device, &e->blocks[TG_REPLAY_WORKSPACE]);
    run_poison(e->device, &e->blocks[TG_REPLAY_SCRATCH]);
}

void tg_webgpu_encode(webgpu_device *d, const webgpu_bundle *bundle, tg_wgpu_compute_pass pass, int32_t begin, int32_t end) {
    int32_t pipeline = -1;
    for (int32_t s = begin; s < end; ++s) {
        const webgpu_dispatch *dispatch = &bundle->dispatches[s];
        if (dispatch->pipeline != pipeline) d->host->api.pass_set_pipeline(pass, bundle->pipelines[dispatch->pipeline].handle);
        pipeline = dispatch->pipeline;
        d->host->api.pass_set_bind_group(pass, 0, dispatch->group, 0, NULL);
        d->host->api.pass_dispatch(pass, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
    }
    d->count.dispatches += end - begin;
}
static tg_status run_record_pass(const webgpu_executable *e, int32_t begin, int32_t end, const tg_wgpu_pass_timestamps *timestamps,
                                 tg_wgpu_command_encoder *encoder) {
    webgpu_device *d = e->device;
    tg_wgpu_compute_pass pass = NULL;
    tg_status status = tg_webgpu_begin_pass(d, encoder, timestamps, &pass);
    if (status != TG_OK) return status;
    tg_webgpu_encode(d, &e->bundle, pass, begin, end);
    tg_webgpu_end_pass(d, pass);
    return TG_OK;
}
/* The end of the launch of dispatch `first`, at most `most`. */
static int32_t run_launch_end(const webgpu_executable *e, int32_t first, int32_t most) {
    int32_t end = first + 1;
    while (end < most && e->replay.stages[end].launch == e->replay.stages[first].launch) end++;
    return end;
}
/* Dispatches [begin, end) in a pass of their own, on an encoder that may be new, as
 * tg_webgpu_begin_pass. In a run that is timed, each launch has a pass. */
static tg_status run_record(const webgpu_executable *e, int32_t begin, int32_t end, tg_wgpu_command_encoder *encoder) {
    if (begin == end && *encoder == NULL) *encoder = tg_webgpu_encoder(e->device);
    if (begin == end) return *encoder != NULL ? TG_OK : TG_ERROR_DEVICE;
    if (!e->timing) return run_record_pass(e, begin, end, NULL, encoder);
    tg_status status = TG_OK;
    for (int32_t first = begin, next; first < end && status == TG_OK; first = next) {
        tg_wgpu_pass_timestamps timestamps;
        next = run_launch_end(e, first, end);
        const bool timed = tg_webgpu_timer_pass(e, e->replay.stages[first].launch, &timestamps);
        status = run_record_pass(e, first, next, timed ? &timestamps : NULL, encoder);
    }
    return status;
}
static webgpu_range run_output(const webgpu_executable *e, int32_t i) { return tg_webgpu_range(e, tg_replay_output(&e->replay, i)); }
/* Copies the outputs that are wanted. [*from, *to) is the range of the readback buffer that they
 * fill. */
static void run_encode_copies(webgpu_executable *e, tg_wgpu_command_encoder encoder, void *const *outputs, int64_t *from, int64_t *to) {
    webgpu_device *d = e->device;
    const tg_program *program = e->replay.program;
    *from = *to = 0;
    for (int32_t i = 0; outputs != NULL && i < program->output_count; ++i) {
        if (outputs[i] == NULL) continue;
        const webgpu_range range = run_output(e, i);
        const int64_t at = e->replay.readback_offset[i];
        d->host->api.encoder_copy_buffer_to_buffer(encoder, range.handle, (uint64_t)range.offset, e->readback.handle, (uint64_t)at,
                                                   (uint64_t)range.bytes);
        if (*to == 0) *from = at;
        *to = at + range.bytes;
        d->count.copies++;
        d->count.copy_bytes += range.bytes;
    }
}

/* Steps [begin, end) in one submission, waited for; the last submission brings the outputs. Ends
 * the scopes in which it is called. */
static tg_status run_submission(webgpu_executable *e, int32_t begin, int32_t end, void *const *outputs) {
    webgpu_device *d = e->device;
    int64_t from = 0, to = 0;
    const void *data = NULL;
    tg_wgpu_command_encoder encoder = NULL;
    tg_status status = run_record(e, begin, end, &encoder);
    if (status == TG_OK) {
        if (end == e->pace.stages) run_encode_copies(e, encoder, outputs, &from, &to);
        if (end == e->pace.stages && e->timing) tg_webgpu_timer_resolve(e, encoder);
        status = tg_webgpu_submit(d, encoder);
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "running a step");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK) return status;
    if (to == 0) return tg_webgpu_finish(d);
    status = tg_webgpu_map(d, e->readback.handle, from, to - from, &data);
    if (status != TG_OK) return status;
    const tg_program *program = e->replay.program;
    for (int32_t i = 0; i < program->output_count; ++i)
        if (outputs[i] != NULL)
            tg_dtype_from_device(program->outputs[i].dtype, outputs[i], (const char *)data + e->replay.readback_offset[i] - from,
                                 tg_shape_count(program->outputs[i].shape));
    d->host->api.buffer_unmap(e->readback.handle);
    return TG_OK;
}
void tg_webgpu_reset_counters(tg_webgpu_counters *count) {
    count->submissions = count->dispatches = count->copies = count->writes = count->maps = 0;
    count->copy_bytes = count->write_bytes = 0;
}
static bool run_has_work(const webgpu_executable *e, void *const *outputs) {
    if (e->pace.stages > 0) return true;
    for (int32_t i = 0; outputs != NULL && i < e->replay.program->output_count; ++i)
        if (outputs[i] != NULL) return true;
    return false;
}
/* Goes before dispatches [begin, ...) of a run: opens error scopes and, at the run's beginning,
 * writes what it reads. */
static void run_open(webgpu_executable *e, int32_t begin, const void *const *inputs) {
    tg_webgpu_scopes_push(e->device, WEBGPU_SCOPES);
    if (begin > 0) return;
    tg_webgpu_write_inputs(e, inputs);
    tg_webgpu_poison(e);
}
/* Where the submission that begins at dispatch `begin` ends. A launch that is timed is not cut. */
static int32_t run_piece_end(const webgpu_executable *e, int32_t begin) {
    const int32_t end = tg_pace_end(&e->pace, begin);
    return e->timing && end > begin ? run_launch_end(e, end - 1, e->pace.stages) : end;
}
/* Makes all submissions and waits for each, except a last one of dispatches [*rest, ...) if
 * `rest` is not NULL. */
static tg_status run_pieces(webgpu_executable *e, const void *const *inputs, void *const *outputs, int32_t *rest) {
    int32_t begin = 0;
    do {
        const int32_t end = run_piece_end(e, begin);
        const int64_t start = tg_webgpu_now();
        if (end == e->pace.stages && rest != NULL) break;
        run_open(e, begin, inputs);
        tg_status status = run_submission(e, begin, end, outputs);
        if (status != TG_OK) return status;
        tg_pace_took(&e->pace, end - begin, tg_webgpu_now() - start, e->device->slow);
        begin = end;
    } while (begin < e->pace.stages);
    if (rest != NULL) *rest = begin;
    return TG_OK;
}
tg_status tg_webgpu_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    webgpu_device *d = webgpu_of(device);
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_reset_counters(&d->count);
    if (!run_has_work(e, outputs)) return TG_OK;
    e->timing = e->timer != NULL;
    status = run_pieces(e, inputs, outputs, NULL);
    if (status == TG_OK && e->timing) status = tg_webgpu_timer_take(e);
    e->timing = false;
    return status;
}

/* ---- runs that are not waited for */

static tg_status run_ready_flight(webgpu_device *d, webgpu_flight *flight) {
    if (flight->readback.handle != NULL) return TG_OK;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = tg_webgpu_make_buffer(d, 4, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "a result", &flight->readback);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making a buffer");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK) tg_webgpu_drop_buffer(d, &flight->readback);
    return status;
}
/* Submits the rest of a run, and its first output to the flight's buffer. */
static tg_status run_submit_flight(webgpu_flight *flight, const webgpu_executable *e, int32_t begin) {
    webgpu_device *d = e->device;
    const webgpu_range range = run_output(e, 0);
    tg_wgpu_command_encoder encoder = NULL;
    tg_status status = run_record(e, begin, e->pace.stages, &encoder);
    if (status != TG_OK) return status;
    d->host->api.encoder_copy_buffer_to_buffer(encoder, range.handle, (uint64_t)range.offset, flight->readback.handle, 0, 4);
    d->count.copies++;
    d->count.copy_bytes += 4;
    return tg_webgpu_submit(d, encoder);
}
tg_status tg_webgpu_start(tg_device *device, tg_executable *executable, const void *const *inputs, float *result) {
    webgpu_device *d = webgpu_of(device);
    webgpu_executable *e = webgpu_executable_of(executable);
    webgpu_flight *flight = &d->flights[(d->first_flight + d->flight_count) % TG_FLIGHTS];
    int32_t rest = 0;
    tg_status status = tg_webgpu_alive(d);
    if (status == TG_OK && d->flight_count == TG_FLIGHTS) status = TG_INTERNAL(d->ctx, "more runs under way than there are places for");
    if (status != TG_OK) return status;
    tg_webgpu_reset_counters(&d->count);
    status = run_ready_flight(d, flight);
    if (status == TG_OK) status = run_pieces(e, inputs, NULL, &rest);
    if (status != TG_OK) return status;
    flight->executable = e;
    flight->result = result;
    flight->dispatches = e->pace.stages - rest;
    flight->start = tg_webgpu_now();
    run_open(e, rest, inputs);
    status = run_submit_flight(flight, e, rest);
    tg_webgpu_scopes_end(d, WEBGPU_SCOPES, &flight->scopes);
    if (status != TG_OK) {
        (void)tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &flight->scopes, "running a step");
        return status;
    }
    tg_webgpu_map_begin(d, flight->readback.handle, 0, 4, &flight->map, flight->text);
    d->flight_count++;
    return TG_OK;
}

static bool run_has_landed(const webgpu_flight *flight) {
    bool answered = flight->map.done;
    for (int i = 0; i < WEBGPU_SCOPES; ++i) answered = answered && flight->scopes.request[i].done;
    return answered;
}
/* Takes the result of a flight that is over; a buffer that may still be mapped is not used
 * again. */
static tg_status run_take(webgpu_device *d, webgpu_flight *flight) {
    const void *data = NULL;
    tg_status status = tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &flight->scopes, "running a step");
    tg_status mapped = tg_webgpu_map_end(d, flight->readback.handle, 0, 4, &flight->map, &data);
    if (status == TG_OK) status = mapped;
    if (mapped == TG_OK) {
        if (status == TG_OK) memcpy(flight->result, data, 4);
        d->host->api.buffer_unmap(flight->readback.handle);
    }
    if (status != TG_OK) tg_webgpu_drop_buffer(d, &flight->readback);
    return status;
}
tg_status tg_webgpu_collect(tg_device *device, bool wait, bool *done) {
    webgpu_device *d = webgpu_of(device);
    webgpu_flight *flight = &d->flights[d->first_flight];
    *done = true;
    if (d->flight_count == 0) return TG_INTERNAL(d->ctx, "no run is under way");
    tg_webgpu_pump(d);
    const bool had_landed = run_has_landed(flight);
    if (!had_landed && !wait && tg_webgpu_alive(d) == TG_OK) {
        *done = false;
        return TG_OK;
    }
    tg_status status = run_take(d, flight);
    const int64_t now = tg_webgpu_now(), since = flight->start > d->landed ? flight->start : d->landed;
    if (status == TG_OK && !had_landed) tg_pace_took(&flight->executable->pace, flight->dispatches, now - since, d->slow);
    d->landed = now;
    d->first_flight = (d->first_flight + 1) % TG_FLIGHTS;
    d->flight_count--;
    return status;
}
void tg_webgpu_drop_flights(webgpu_device *d) {
    for (int i = 0; i < TG_FLIGHTS; ++i) tg_webgpu_drop_buffer(d, &d->flights[i].readback);
}

/* ---- an executable by itself */

tg_status tg_webgpu_put_now(webgpu_device *d, tg_executable *executable, int32_t buffer, const void *data) {
    const webgpu_executable *e = webgpu_executable_of(executable);
    const tg_buffer *to = &e->replay.program->buffers[buffer];
    const webgpu_range range = tg_webgpu_range(e, e->replay.places[buffer]);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK || range.handle == NULL) return status;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_webgpu_write(d, range.handle, range.offset, to->dtype, data, to->count);
    return tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "writing a buffer");
}
tg_status tg_webgpu_time_now(webgpu_device *d, tg_executable *executable, int times, double *seconds) {
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_wgpu_command_encoder encoder = NULL;
    for (int i = 0; i < times && status == TG_OK; ++i) status = run_record(e, 0, e->pace.stages, &encoder);
    const int64_t start = tg_webgpu_now();
    if (status == TG_OK) status = tg_webgpu_submit(d, encoder);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "timing a launch");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_finish(d);
    *seconds = (double)(tg_webgpu_now() - start) * 1e-9;
    return status;
}
