/* run: one step: inputs up, one compute pass, the outputs that are wanted down. One submission, unless a program keeps this
 * device busy for so long that its watchdog might bite: then the next runs are cut into several, by what was measured. Allocates
 * nothing. Must not know how a program was loaded. */
#include "run/webgpu/device.h"

#include <string.h>

enum { RUN_SCOPES = 2, RUN_GROWS = 8 }; /* a submission may grow again once it takes less than 1/8 of what is slow */

/* An error of the third kind reaches our own callback, or on an application's device a scope. */
static int run_scopes(const webgpu_device *d) { return d->foreign ? WEBGPU_SCOPES : RUN_SCOPES; }

static void run_write_inputs(webgpu_executable *e, const void *const *inputs) {
    webgpu_device *d = e->device;
    const tg_program *program = e->program;
    if (e->input_bytes == 0) return;
    for (int32_t i = 0; i < program->input_count; ++i)
        if (e->input_offset[i] >= 0)
            tg_webgpu_widen(e->feed + e->input_offset[i], program->inputs[i].dtype, inputs[i], tg_shape_count(program->inputs[i].shape));
    d->api.queue_write_buffer(d->queue, e->inputs.handle, 0, e->feed, (size_t)e->input_bytes);
    d->count.writes++;
    d->count.write_bytes += e->input_bytes;
}
/* All bits set: a NaN as f32. What reads memory that this run did not write will show. */
static void run_poison(webgpu_device *d, const webgpu_buffer *buffer) {
    memset(d->staging, 0xFF, TG_WEBGPU_STAGING_BYTES);
    for (int64_t done = 0; done < buffer->bytes; done += TG_WEBGPU_STAGING_BYTES) {
        const int64_t left = buffer->bytes - done;
        d->api.queue_write_buffer(d->queue, buffer->handle, (uint64_t)done, d->staging,
                                  (size_t)(left < TG_WEBGPU_STAGING_BYTES ? left : TG_WEBGPU_STAGING_BYTES));
    }
}

static tg_status run_encode_steps(webgpu_executable *e, tg_wgpu_command_encoder encoder, int32_t begin, int32_t end) {
    webgpu_device *d = e->device;
    if (begin == end) return TG_OK;
    tg_wgpu_compute_pass pass = d->api.encoder_begin_compute_pass(encoder, NULL);
    if (pass == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pass");
    int32_t pipeline = -1;
    for (int32_t s = begin; s < end; ++s) {
        const webgpu_step *step = &e->steps[s];
        if (step->pipeline != pipeline) d->api.pass_set_pipeline(pass, e->pipelines[step->pipeline].handle);
        pipeline = step->pipeline;
        d->api.pass_set_bind_group(pass, 0, step->group, 0, NULL);
        d->api.pass_dispatch(pass, step->groups[0], step->groups[1], step->groups[2]);
    }
    d->api.pass_end(pass);
    d->api.pass_release(pass);
    d->count.dispatches += end - begin;
    return TG_OK;
}
/* Of the outputs that are wanted and not on the host. [*from, *to) gets what of the readback buffer they fill. */
static void run_encode_copies(webgpu_executable *e, tg_wgpu_command_encoder encoder, void *const *outputs, int64_t *from, int64_t *to) {
    webgpu_device *d = e->device;
    *from = *to = 0;
    for (int32_t i = 0; outputs != NULL && i < e->program->output_count; ++i) {
        if (outputs[i] == NULL || e->readback_offset[i] < 0) continue;
        const webgpu_place *place = &e->places[e->program->outputs[i].buffer];
        const int64_t bytes = tg_shape_count(e->program->outputs[i].shape) * 4;
        d->api.encoder_copy_buffer_to_buffer(encoder, place->handle, (uint64_t)place->offset, e->readback.handle,
                                             (uint64_t)e->readback_offset[i], (uint64_t)bytes);
        if (*to == 0) *from = e->readback_offset[i];
        *to = e->readback_offset[i] + bytes;
        d->count.copies++;
        d->count.copy_bytes += bytes;
    }
}
static void run_host_outputs(const webgpu_executable *e, const void *const *inputs, void *const *outputs) {
    for (int32_t i = 0; outputs != NULL && i < e->program->output_count; ++i) {
        const tg_output *output = &e->program->outputs[i];
        const tg_buffer *buffer = &e->program->buffers[output->buffer];
        if (outputs[i] == NULL || e->readback_offset[i] >= 0) continue;
        const void *from = buffer->storage == TG_STORAGE_INPUT ? inputs[buffer->slot] : buffer->data;
        memcpy(outputs[i], from, (size_t)tg_shape_count(output->shape) * (output->dtype == TG_BOOL ? 1 : 4));
    }
}

/* Steps [begin, end) in one submission, waited for; the last one brings the outputs along. The scopes it is called in end here. */
static tg_status run_submission(webgpu_executable *e, int32_t begin, int32_t end, void *const *outputs) {
    webgpu_device *d = e->device;
    int64_t from = 0, to = 0;
    const void *data = NULL;
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    tg_status status = encoder != NULL ? run_encode_steps(e, encoder, begin, end) : TG_ERROR_DEVICE;
    if (status == TG_OK) {
        if (end == e->step_count) run_encode_copies(e, encoder, outputs, &from, &to);
        status = tg_webgpu_submit(d, encoder);
    } else if (encoder != NULL) {
        d->api.encoder_release(encoder);
        d->count.objects--;
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, run_scopes(d), "running a step");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK) return status;
    if (to == 0) return tg_webgpu_finish(d);
    status = tg_webgpu_map(d, e->readback.handle, from, to - from, &data);
    if (status != TG_OK) return status;
    for (int32_t i = 0; i < e->program->output_count; ++i)
        if (outputs[i] != NULL && e->readback_offset[i] >= 0)
            tg_webgpu_narrow(outputs[i], e->program->outputs[i].dtype, (const char *)data + e->readback_offset[i] - from,
                             tg_shape_count(e->program->outputs[i].shape));
    d->api.buffer_unmap(e->readback.handle);
    return TG_OK;
}
static void run_adapt(webgpu_executable *e, int32_t dispatches, int64_t nanoseconds) {
    const int64_t slow = e->device->slow;
    if (nanoseconds > slow && dispatches > 1) e->per_submission = dispatches / 2;
    else if (nanoseconds < slow / RUN_GROWS && dispatches == e->per_submission && dispatches < e->step_count)
        e->per_submission = dispatches > e->step_count / 2 ? e->step_count : dispatches * 2;
}
static void run_reset_counters(tg_webgpu_counters *count) {
    count->submissions = count->dispatches = count->copies = count->writes = count->maps = 0;
    count->copy_bytes = count->write_bytes = 0;
}
static bool run_has_work(const webgpu_executable *e, void *const *outputs) {
    if (e->step_count > 0) return true;
    for (int32_t i = 0; outputs != NULL && i < e->program->output_count; ++i)
        if (outputs[i] != NULL && e->readback_offset[i] >= 0) return true;
    return false;
}
tg_status tg_webgpu_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    webgpu_device *d = webgpu_of(device);
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    run_reset_counters(&d->count);
    if (run_has_work(e, outputs)) {
        int32_t begin = 0;
        do {
            const int32_t end = e->step_count - begin > e->per_submission ? begin + e->per_submission : e->step_count;
            const int64_t start = tg_webgpu_now();
            tg_webgpu_scopes_push(d, run_scopes(d));
            if (begin == 0) {
                run_write_inputs(e, inputs);
                if (e->poison) run_poison(d, &e->workspace);
                if (e->poison) run_poison(d, &e->scratch);
            }
            status = run_submission(e, begin, end, outputs);
            if (status != TG_OK) return status;
            run_adapt(e, end - begin, tg_webgpu_now() - start);
            begin = end;
        } while (begin < e->step_count);
    }
    run_host_outputs(e, inputs, outputs);
    return TG_OK;
}

/* ---- by itself */

tg_status tg_webgpu_put(tg_device *device, tg_executable *executable, int32_t buffer, const void *data) {
    webgpu_device *d = webgpu_of(device);
    const webgpu_executable *e = webgpu_executable_of(executable);
    const webgpu_place *place = &e->places[buffer];
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK || place->handle == NULL) return status;
    tg_webgpu_scopes_push(d, run_scopes(d));
    tg_webgpu_write(d, place->handle, place->offset, e->program->buffers[buffer].dtype, data, e->program->buffers[buffer].count);
    return tg_webgpu_scopes_pop(d, run_scopes(d), "writing a buffer");
}
tg_status tg_webgpu_time(tg_device *device, tg_executable *executable, int times, double *seconds) {
    webgpu_device *d = webgpu_of(device);
    webgpu_executable *e = webgpu_executable_of(executable);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_scopes_push(d, run_scopes(d));
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) status = TG_ERROR_DEVICE;
    for (int i = 0; i < times && status == TG_OK; ++i) status = run_encode_steps(e, encoder, 0, e->step_count);
    const int64_t start = tg_webgpu_now();
    if (status == TG_OK) status = tg_webgpu_submit(d, encoder);
    else if (encoder != NULL) {
        d->api.encoder_release(encoder);
        d->count.objects--;
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, run_scopes(d), "timing a launch");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_finish(d);
    *seconds = (double)(tg_webgpu_now() - start) * 1e-9;
    return status;
}
