/* run: one step: inputs up, one compute pass, the outputs that are wanted down, waited for or not. One submission, unless a program keeps
 * this device busy for so long that its watchdog might bite: then the next runs are cut into several, by what was measured. Allocates
 * nothing. Must not know how a program was loaded. */
#include "run/webgpu/device.h"

#include <string.h>

enum { RUN_GROWS = 8 }; /* a submission may grow again once it takes less than 1/8 of what is slow */

void tg_webgpu_write_inputs(webgpu_executable *e, const void *const *inputs) {
    webgpu_device *d = e->device;
    const tg_program *program = e->program;
    bool any = false;
    for (int32_t i = 0; i < program->input_count; ++i) {
        if (e->input_offset[i] < 0 || inputs[i] == NULL) continue;
        tg_dtype_to_device(program->inputs[i].dtype, e->feed + e->input_offset[i], inputs[i], tg_shape_count(program->inputs[i].shape));
        any = true;
    }
    if (!any) return;
    d->host->api.queue_write_buffer(d->gpu->queue, e->inputs.handle, 0, e->feed, (size_t)e->input_bytes);
    d->count.writes++;
    d->count.write_bytes += e->input_bytes;
}
/* All bits set: a NaN as f32. What reads memory that this run did not write will show. */
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
    run_poison(e->device, &e->workspace);
    run_poison(e->device, &e->scratch);
}

void tg_webgpu_encode_steps(const webgpu_executable *e, tg_wgpu_compute_pass pass, int32_t begin, int32_t end) {
    const webgpu_device *d = e->device;
    int32_t pipeline = -1;
    for (int32_t s = begin; s < end; ++s) {
        const webgpu_step *step = &e->steps[s];
        if (step->pipeline != pipeline) d->host->api.pass_set_pipeline(pass, e->pipelines[step->pipeline].handle);
        pipeline = step->pipeline;
        d->host->api.pass_set_bind_group(pass, 0, step->group, 0, NULL);
        d->host->api.pass_dispatch(pass, step->groups[0], step->groups[1], step->groups[2]);
    }
}
static tg_status run_encode_pass(const webgpu_executable *e, tg_wgpu_command_encoder encoder, int32_t begin, int32_t end) {
    webgpu_device *d = e->device;
    if (begin == end) return TG_OK;
    tg_wgpu_compute_pass pass = d->host->api.encoder_begin_compute_pass(encoder, NULL);
    if (pass == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pass");
    tg_webgpu_encode_steps(e, pass, begin, end);
    d->host->api.pass_end(pass);
    d->host->api.pass_release(pass);
    d->count.dispatches += end - begin;
    return TG_OK;
}
/* An encoder with steps [begin, end), to be submitted. */
static tg_status run_record(const webgpu_executable *e, int32_t begin, int32_t end, tg_wgpu_command_encoder *out) {
    webgpu_device *d = e->device;
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) return TG_ERROR_DEVICE;
    tg_status status = run_encode_pass(e, encoder, begin, end);
    if (status == TG_OK) {
        *out = encoder;
        return TG_OK;
    }
    d->host->api.encoder_release(encoder);
    d->count.objects--;
    return status;
}
/* Of the outputs that are wanted. [*from, *to) gets what of the readback buffer they fill. */
static void run_encode_copies(webgpu_executable *e, tg_wgpu_command_encoder encoder, void *const *outputs, int64_t *from, int64_t *to) {
    webgpu_device *d = e->device;
    *from = *to = 0;
    for (int32_t i = 0; outputs != NULL && i < e->program->output_count; ++i) {
        if (outputs[i] == NULL) continue;
        const webgpu_place *place = &e->places[e->program->outputs[i].buffer];
        const int64_t bytes = tg_shape_count(e->program->outputs[i].shape) * tg_dtype_device_bytes(e->program->outputs[i].dtype);
        d->host->api.encoder_copy_buffer_to_buffer(encoder, place->handle, (uint64_t)place->offset, e->readback.handle,
                                                   (uint64_t)e->readback_offset[i], (uint64_t)bytes);
        if (*to == 0) *from = e->readback_offset[i];
        *to = e->readback_offset[i] + bytes;
        d->count.copies++;
        d->count.copy_bytes += bytes;
    }
}

/* Steps [begin, end) in one submission, waited for; the last one brings the outputs along. The scopes it is called in end here. */
static tg_status run_submission(webgpu_executable *e, int32_t begin, int32_t end, void *const *outputs) {
    webgpu_device *d = e->device;
    int64_t from = 0, to = 0;
    const void *data = NULL;
    tg_wgpu_command_encoder encoder = NULL;
    tg_status status = run_record(e, begin, end, &encoder);
    if (status == TG_OK) {
        if (end == e->step_count) run_encode_copies(e, encoder, outputs, &from, &to);
        status = tg_webgpu_submit(d, encoder);
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "running a step");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK) return status;
    if (to == 0) return tg_webgpu_finish(d);
    status = tg_webgpu_map(d, e->readback.handle, from, to - from, &data);
    if (status != TG_OK) return status;
    for (int32_t i = 0; i < e->program->output_count; ++i)
        if (outputs[i] != NULL)
            tg_dtype_from_device(e->program->outputs[i].dtype, outputs[i], (const char *)data + e->readback_offset[i] - from,
                                 tg_shape_count(e->program->outputs[i].shape));
    d->host->api.buffer_unmap(e->readback.handle);
    return TG_OK;
}
void tg_webgpu_adapt(webgpu_executable *e, int32_t dispatches, int64_t nanoseconds) {
    const int64_t slow = e->device->slow;
    if (nanoseconds > slow && dispatches > 1) e->per_submission = dispatches / 2;
    else if (nanoseconds < slow / RUN_GROWS && dispatches == e->per_submission && dispatches < e->step_count)
        e->per_submission = dispatches > e->step_count / 2 ? e->step_count : dispatches * 2;
}
void tg_webgpu_reset_counters(tg_webgpu_counters *count) {
    count->submissions = count->dispatches = count->copies = count->writes = count->maps = 0;
    count->copy_bytes = count->write_bytes = 0;
}
static bool run_has_work(const webgpu_executable *e, void *const *outputs) {
    if (e->step_count > 0) return true;
    for (int32_t i = 0; outputs != NULL && i < e->program->output_count; ++i)
        if (outputs[i] != NULL) return true;
    return false;
}
/* What is before steps [begin, ...) of a run: error scopes, and at its beginning what it reads. */
static void run_open(webgpu_executable *e, int32_t begin, const void *const *inputs) {
    tg_webgpu_scopes_push(e->device, WEBGPU_SCOPES);
    if (begin > 0) return;
    tg_webgpu_write_inputs(e, inputs);
    tg_webgpu_poison(e);
}
/* All submissions, each waited for, but a last one of steps [*rest, ...) where `rest` is not NULL. */
static tg_status run_pieces(webgpu_executable *e, const void *const *inputs, void *const *outputs, int32_t *rest) {
    int32_t begin = 0;
    do {
        const bool is_last = e->step_count - begin <= e->per_submission;
        const int32_t end = is_last ? e->step_count : begin + e->per_submission;
        const int64_t start = tg_webgpu_now();
        if (is_last && rest != NULL) break;
        run_open(e, begin, inputs);
        tg_status status = run_submission(e, begin, end, outputs);
        if (status != TG_OK) return status;
        tg_webgpu_adapt(e, end - begin, tg_webgpu_now() - start);
        begin = end;
    } while (begin < e->step_count);
    if (rest != NULL) *rest = begin;
    return TG_OK;
}
tg_status tg_webgpu_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    webgpu_device *d = webgpu_of(device);
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_reset_counters(&d->count);
    return run_has_work(e, outputs) ? run_pieces(e, inputs, outputs, NULL) : TG_OK;
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
/* The first output on its way to the flight's buffer. */
static tg_status run_submit_flight(webgpu_flight *flight, const webgpu_executable *e, int32_t begin) {
    webgpu_device *d = e->device;
    const webgpu_place *place = &e->places[e->program->outputs[0].buffer];
    tg_wgpu_command_encoder encoder = NULL;
    tg_status status = run_record(e, begin, e->step_count, &encoder);
    if (status != TG_OK) return status;
    d->host->api.encoder_copy_buffer_to_buffer(encoder, place->handle, (uint64_t)place->offset, flight->readback.handle, 0, 4);
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
    flight->dispatches = e->step_count - rest;
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
/* Of a flight that is over; a buffer that may still be mapped is not used again. */
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
    if (status == TG_OK && !had_landed) tg_webgpu_adapt(flight->executable, flight->dispatches, now - since);
    d->landed = now;
    d->first_flight = (d->first_flight + 1) % TG_FLIGHTS;
    d->flight_count--;
    return status;
}
void tg_webgpu_drop_flights(webgpu_device *d) {
    for (int i = 0; i < TG_FLIGHTS; ++i) tg_webgpu_drop_buffer(d, &d->flights[i].readback);
}

/* ---- by itself */

tg_status tg_webgpu_put_now(webgpu_device *d, tg_executable *executable, int32_t buffer, const void *data) {
    const webgpu_executable *e = webgpu_executable_of(executable);
    const webgpu_place *place = &e->places[buffer];
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK || place->handle == NULL) return status;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_webgpu_write(d, place->handle, place->offset, e->program->buffers[buffer].dtype, data, e->program->buffers[buffer].count);
    return tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "writing a buffer");
}
tg_status tg_webgpu_time_now(webgpu_device *d, tg_executable *executable, int times, double *seconds) {
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) status = TG_ERROR_DEVICE;
    for (int i = 0; i < times && status == TG_OK; ++i) status = run_encode_pass(e, encoder, 0, e->step_count);
    const int64_t start = tg_webgpu_now();
    if (status == TG_OK) status = tg_webgpu_submit(d, encoder);
    else if (encoder != NULL) {
        d->host->api.encoder_release(encoder);
        d->count.objects--;
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "timing a launch");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_finish(d);
    *seconds = (double)(tg_webgpu_now() - start) * 1e-9;
    return status;
}
