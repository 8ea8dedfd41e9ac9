/* feeder: a data set on the GPU, and many steps of an executable in one submission: before each a kernel draws its batch into the
 * executable's block of inputs, and puts the loss of the step before into a history that is read once. So a step costs one dispatch more
 * than it has, and its arithmetic is what it is without. Must not know how a step is made. */
#include "run/webgpu/device.h"

#include <string.h>

/* What a submission is made to take where the number of steps is free. The way to the GPU and back is a tenth of a millisecond. */
#define FEEDER_BUSY 40000000
#define FEEDER_GROWS 16 /* times as many steps as the submission before, at most */
#define FEEDER_MOST_DISPATCHES 65536
#define FEEDER_CONTROL_BYTES (2 * TG_WEBGPU_ALIGN) /* now and after, which take turns */

typedef struct webgpu_feeder {
    webgpu_device *device;
    webgpu_executable *target;
    webgpu_executable *own; /* the drawing kernel: two steps, of which every other one is run. The data is its constants, the words of
                               control its inputs, the history its workspace */
    tg_program program;     /* of own: a name for messages */
    tg_kernel kernel;
    const void **inputs; /* per program input: NULL where it is drawn */
    bool *drawn;
    size_t input_bytes;
    int64_t next; /* steps of the next submission */
    tg_draw_array *arrays;
    int64_t data_words;
} webgpu_feeder;

static webgpu_feeder *feeder_of(tg_feeder *feeder) { return (webgpu_feeder *)(void *)feeder; }

/* ---- making */

/* The kernel that draws binds the data and the target's block of inputs whole. */
static tg_status feeder_check(const webgpu_device *d, const char *what, int64_t bytes) {
    if ((uint64_t)bytes <= d->gpu->raw.max_storage_binding_bytes) return TG_OK;
    return tg_fail(d->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                   "webgpu: %s needs %lld bytes, over this device's maxStorageBufferBindingSize of %llu", what, (long long)bytes,
                   (unsigned long long)d->gpu->raw.max_storage_binding_bytes);
}
/* What no stage of the target reads is not drawn. */
static tg_status feeder_lay_out(webgpu_feeder *f, const tg_feeder_options *options, int32_t *count) {
    webgpu_device *d = f->device;
    const webgpu_executable *e = f->target;
    *count = 0;
    for (int32_t i = 0; i < options->count; ++i) {
        const tg_feeder_array *array = &options->arrays[i];
        f->drawn[array->input] = true;
        if (e->input_offset[array->input] < 0) continue;
        f->arrays[(*count)++] = (tg_draw_array){f->data_words, e->input_offset[array->input] / 4, array->row};
        f->data_words += webgpu_align(array->row * options->rows, TG_WEBGPU_ALIGN / 4);
    }
    return feeder_check(d, "the data set", f->data_words <= UINT32_MAX ? f->data_words * 4 : INT64_MAX);
}
static tg_status feeder_make_buffers(webgpu_feeder *f) {
    webgpu_device *d = f->device;
    webgpu_executable *own = f->own;
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION, both = fed | TG_WGPU_USAGE_COPY_SOURCE;
    const int64_t history = TG_MOST_STEPS * 4;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = tg_webgpu_make_buffer(d, f->data_words * 4, fed, "the data set", &own->constants);
    if (status == TG_OK) status = tg_webgpu_make_buffer(d, FEEDER_CONTROL_BYTES, both, "the state of a data set", &own->inputs);
    if (status == TG_OK) status = tg_webgpu_make_buffer(d, history, both, "the losses", &own->workspace);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, history, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "the losses", &own->readback);
    /* a step with nothing to feed has no buffer for it, and a binding needs one */
    if (status == TG_OK && f->target->inputs.handle == NULL) status = tg_webgpu_make_buffer(d, 4, fed, "the inputs", &own->scratch);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making a data set");
    return status != TG_OK ? status : scopes;
}
/* In bounded pieces, so that what is on its way does not pile up. */
static tg_status feeder_write(webgpu_feeder *f, const tg_feeder_options *options) {
    webgpu_device *d = f->device;
    const int64_t piece = INT64_C(16) << 20;
    int32_t at = 0;
    tg_status status = TG_OK;
    for (int32_t i = 0; i < options->count && status == TG_OK; ++i) {
        const tg_feeder_array *array = &options->arrays[i];
        const tg_dtype dtype = f->target->program->inputs[array->input].dtype;
        const int64_t count = array->row * options->rows, item = dtype == TG_BOOL ? 1 : 4;
        if (f->target->input_offset[array->input] < 0) continue;
        const int64_t from = f->arrays[at++].from;
        for (int64_t done = 0; done < count && status == TG_OK; done += piece) {
            tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
            tg_webgpu_write(d, f->own->constants.handle, (from + done) * 4, dtype, (const char *)array->data + done * item,
                            count - done < piece ? count - done : piece);
            status = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "writing a data set");
            if (status == TG_OK && count > piece) status = tg_webgpu_finish(d);
        }
    }
    return status;
}
/* The one that counts `now` and the other one, where `turn` is 1. */
static tg_status feeder_bind(webgpu_feeder *f, int turn) {
    webgpu_executable *own = f->own;
    const webgpu_executable *e = f->target;
    const webgpu_place control = {own->inputs.handle, 0, TG_DRAW_WORDS * 4};
    webgpu_place places[TG_DRAW_BINDINGS];
    places[TG_DRAW_NOW] = places[TG_DRAW_AFTER] = control;
    places[turn == 0 ? TG_DRAW_AFTER : TG_DRAW_NOW].offset = TG_WEBGPU_ALIGN;
    places[TG_DRAW_INPUTS] = e->inputs.handle != NULL ? (webgpu_place){e->inputs.handle, 0, e->inputs.bytes}
                                                      : (webgpu_place){own->scratch.handle, 0, own->scratch.bytes};
    places[TG_DRAW_LOSS] = e->places[e->program->outputs[0].buffer];
    places[TG_DRAW_HISTORY] = (webgpu_place){own->workspace.handle, 0, own->workspace.bytes};
    places[TG_DRAW_DATA] = (webgpu_place){own->constants.handle, 0, own->constants.bytes};
    return tg_webgpu_bind_step(own, places, TG_DRAW_BINDINGS, &own->steps[turn]);
}
static tg_status feeder_make_kernel(webgpu_feeder *f, const tg_feeder_options *options, int32_t count) {
    webgpu_device *d = f->device;
    webgpu_executable *own = f->own;
    tg_wgsl_stage stage;
    tg_status status = tg_emit_wgsl_draw(f->arrays, count, options->rows, options->batch, &d->model, &own->arena, &stage);
    if (status != TG_OK) return status;
    own->steps = TG_NEW(&own->arena, webgpu_step, 2);
    own->pipelines = TG_NEW(&own->arena, webgpu_pipeline, 1);
    if (own->steps == NULL || own->pipelines == NULL) return TG_ERROR_MEMORY;
    own->pipelines[0] = (webgpu_pipeline){.source = stage.source, .length = stage.length, .binding_count = stage.binding_count};
    own->pipeline_count = 1;
    status = tg_webgpu_make_pipelines(own);
    if (status != TG_OK) return status;
    own->step_count = 2;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    for (int turn = 0; turn < 2 && status == TG_OK; ++turn) {
        for (int i = 0; i < 3; ++i) own->steps[turn].groups[i] = (uint32_t)stage.groups[i];
        status = feeder_bind(f, turn);
    }
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "binding buffers");
    return status != TG_OK ? status : scopes;
}
static tg_status feeder_build(webgpu_feeder *f, const tg_feeder_options *options) {
    webgpu_device *d = f->device;
    const int32_t inputs = f->target->program->input_count;
    int32_t count = 0;
    f->own = tg_alloc(d->ctx, sizeof *f->own);
    if (f->own == NULL) return TG_ERROR_MEMORY;
    f->own->device = d;
    f->own->program = &f->program;
    tg_arena_init(&f->own->arena, d->ctx);
    f->kernel.name = "draw a batch";
    f->program.kernels = &f->kernel;
    f->program.kernel_count = 1;
    f->inputs = TG_NEW(&f->own->arena, const void *, inputs + 1);
    f->drawn = TG_NEW(&f->own->arena, bool, inputs + 1);
    f->arrays = TG_NEW(&f->own->arena, tg_draw_array, options->count + 1);
    if (f->inputs == NULL || f->drawn == NULL || f->arrays == NULL) return TG_ERROR_MEMORY;
    tg_status status = feeder_check(d, "a batch with the inputs beside it", f->target->inputs.bytes);
    if (status == TG_OK) status = feeder_lay_out(f, options, &count);
    if (status == TG_OK) status = feeder_make_buffers(f);
    if (status == TG_OK) status = feeder_write(f, options);
    return status == TG_OK ? feeder_make_kernel(f, options, count) : status;
}
tg_status tg_webgpu_make_feeder(tg_device *device, tg_executable *executable, const tg_feeder_options *options, tg_feeder **out) {
    webgpu_device *d = webgpu_of(device);
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    webgpu_feeder *f = tg_alloc(d->ctx, sizeof *f);
    if (f == NULL) return TG_ERROR_MEMORY;
    f->device = d;
    f->target = webgpu_executable_of(executable);
    f->next = 1;
    status = feeder_build(f, options);
    if (status == TG_OK) *out = (tg_feeder *)(void *)f;
    else tg_webgpu_drop_feeder(device, (tg_feeder *)(void *)f);
    return status;
}
void tg_webgpu_drop_feeder(tg_device *device, tg_feeder *feeder) {
    webgpu_feeder *f = feeder_of(feeder);
    tg_context *ctx = f->device->ctx;
    tg_webgpu_unload(device, (tg_executable *)(void *)f->own);
    tg_release(ctx, f, sizeof *f);
}

/* ---- running */

/* Steps [begin, end) of `count` times the target, in one submission. A step that is cut is alone in it. */
typedef struct feeder_piece {
    int64_t count;
    int32_t begin, end;
} feeder_piece;

static void feeder_write_run(webgpu_feeder *f, const tg_feeder_run *run) {
    webgpu_device *d = f->device;
    uint32_t words[2 * TG_WEBGPU_ALIGN / 4] = {0};
    tg_draw_control(&run->draw, words);
    tg_draw_control(&run->draw, words + TG_WEBGPU_ALIGN / 4);
    d->host->api.queue_write_buffer(d->gpu->queue, f->own->inputs.handle, 0, words, sizeof words);
    d->count.writes++;
    d->count.write_bytes += (int64_t)sizeof words;
    for (int32_t i = 0; i < f->target->program->input_count; ++i) f->inputs[i] = f->drawn[i] ? NULL : run->inputs[i];
    tg_webgpu_write_inputs(f->target, f->inputs);
    tg_webgpu_poison(f->target);
}
static void feeder_encode_pass(const webgpu_feeder *f, tg_wgpu_compute_pass pass, const feeder_piece *piece) {
    webgpu_device *d = f->device;
    for (int64_t i = 0; i < piece->count; ++i) {
        if (piece->begin == 0) tg_webgpu_encode_steps(f->own, pass, (int32_t)(i % 2), (int32_t)(i % 2) + 1);
        tg_webgpu_encode_steps(f->target, pass, piece->begin, piece->end);
        d->count.dispatches += piece->end - piece->begin + (piece->begin == 0 ? 1 : 0);
    }
}
/* The history, and the last loss, which no draw came to put there. */
static void feeder_encode_losses(const webgpu_feeder *f, tg_wgpu_command_encoder encoder, int64_t count) {
    const webgpu_executable *e = f->target;
    webgpu_device *d = f->device;
    const webgpu_place *loss = &e->places[e->program->outputs[0].buffer];
    const uint64_t before = (uint64_t)(count - 1) * 4;
    if (before > 0) d->host->api.encoder_copy_buffer_to_buffer(encoder, f->own->workspace.handle, 0, f->own->readback.handle, 0, before);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, loss->handle, (uint64_t)loss->offset, f->own->readback.handle, before, 4);
    d->count.copies += before > 0 ? 2 : 1;
    d->count.copy_bytes += (int64_t)before + 4;
}
static tg_status feeder_encode(const webgpu_feeder *f, const feeder_piece *piece) {
    webgpu_device *d = f->device;
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) return TG_ERROR_DEVICE;
    tg_wgpu_compute_pass pass = d->host->api.encoder_begin_compute_pass(encoder, NULL);
    if (pass == NULL) {
        d->host->api.encoder_release(encoder);
        d->count.objects--;
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pass");
    }
    feeder_encode_pass(f, pass, piece);
    d->host->api.pass_end(pass);
    d->host->api.pass_release(pass);
    if (piece->end == f->target->step_count) feeder_encode_losses(f, encoder, piece->count);
    return tg_webgpu_submit(d, encoder);
}
static tg_status feeder_read(const webgpu_feeder *f, float *losses, int64_t count) {
    webgpu_device *d = f->device;
    const void *data = NULL;
    tg_status status = tg_webgpu_map(d, f->own->readback.handle, 0, count * 4, &data);
    if (status != TG_OK) return status;
    memcpy(losses, data, (size_t)count * 4);
    d->host->api.buffer_unmap(f->own->readback.handle);
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
    return piece->end == f->target->step_count ? feeder_read(f, losses, piece->count) : tg_webgpu_finish(d);
}
/* One step, in as many submissions as a run of it would take. */
static tg_status feeder_run_one(webgpu_feeder *f, const tg_feeder_run *run, float *losses) {
    webgpu_executable *e = f->target;
    feeder_piece piece = {1, 0, 0};
    tg_status status = TG_OK;
    do {
        const int64_t start = tg_webgpu_now();
        piece.end = e->step_count - piece.begin > e->per_submission ? piece.begin + e->per_submission : e->step_count;
        status = feeder_submit(f, run, &piece, losses);
        if (status == TG_OK) tg_webgpu_adapt(e, piece.end - piece.begin, tg_webgpu_now() - start);
        piece.begin = piece.end;
    } while (status == TG_OK && piece.begin < e->step_count);
    return status;
}
static int64_t feeder_clamp(int64_t x, int64_t most) { return x < 1 ? 1 : x < most ? x : most; }

tg_status tg_webgpu_run_feeder(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count) {
    webgpu_device *d = webgpu_of(device);
    webgpu_feeder *f = feeder_of(feeder);
    const webgpu_executable *e = f->target;
    const int64_t most = feeder_clamp(FEEDER_MOST_DISPATCHES / (e->step_count + 1), run->most);
    const int64_t start = tg_webgpu_now();
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    tg_webgpu_reset_counters(&d->count);
    *count = run->exact ? most : feeder_clamp(f->next, most);
    if (e->per_submission < e->step_count) *count = 1;
    const feeder_piece all = {*count, 0, e->step_count};
    status = *count == 1 ? feeder_run_one(f, run, losses) : feeder_submit(f, run, &all, losses);
    if (status != TG_OK) return status;
    const int64_t each = (tg_webgpu_now() - start) / *count + 1, grown = *count * FEEDER_GROWS;
    f->next = FEEDER_BUSY / each < grown ? FEEDER_BUSY / each : grown;
    return TG_OK;
}

#undef FEEDER_BUSY
#undef FEEDER_GROWS
#undef FEEDER_MOST_DISPATCHES
#undef FEEDER_CONTROL_BYTES
