/* load: from a program to everything a run needs on the GPU: where each buffer lies, sources and pipelines, bind groups, the
 * dispatch list. What fails leaves nothing behind. Must not know how a run goes. */
#include "run/webgpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct load_state {
    webgpu_device *d;
    webgpu_executable *e;
    const int32_t *state_slots;
    tg_arena sources;        /* WGSL and its stages, until pipelines and bind groups are made */
    tg_wgsl_kernel *printed; /* per launch */
    int64_t scratch_bytes;
} load_state;

/* ---- places */

static tg_status load_place_state(load_state *l, const tg_buffer *buffer, webgpu_place *place) {
    const tg_program *program = l->e->program;
    const int32_t slot = buffer->slot >= 0 && buffer->slot < program->state_count ? l->state_slots[buffer->slot] : -1;
    if (slot < 0 || slot >= l->d->states.count || l->d->states.items[slot].buffer.handle == NULL)
        return TG_INTERNAL(l->d->ctx, "a program state that the device does not have");
    const webgpu_state *state = &l->d->states.items[slot];
    if (buffer->offset % TG_WEBGPU_ALIGN != 0 || buffer->offset < 0 || buffer->offset / 4 > state->count - buffer->count)
        return TG_INTERNAL(l->d->ctx, "a program buffer outside its state");
    place->handle = state->buffer.handle;
    place->offset = buffer->offset;
    return TG_OK;
}
/* Offsets of everything but states; handles of buffers that are not made yet come later. */
static tg_status load_place(load_state *l, int32_t b) {
    webgpu_executable *e = l->e;
    const tg_buffer *buffer = &e->program->buffers[b];
    webgpu_place *place = &e->places[b];
    place->bytes = buffer->count * 4;
    switch (buffer->storage) {
    case TG_STORAGE_WORKSPACE:
        place->offset = buffer->offset;
        if (buffer->first < 0) return TG_OK; /* another took its place */
        if (buffer->offset < 0 || buffer->offset > e->program->workspace_bytes - place->bytes || buffer->offset % TG_WEBGPU_ALIGN != 0)
            return TG_INTERNAL(l->d->ctx, "a program buffer outside the workspace");
        return TG_OK;
    case TG_STORAGE_STATE: return load_place_state(l, buffer, place);
    case TG_STORAGE_CONSTANT:
        place->offset = buffer->offset;
        if (buffer->offset < 0 || buffer->offset > e->program->constant_block_bytes - place->bytes || buffer->offset % TG_WEBGPU_ALIGN != 0)
            return TG_INTERNAL(l->d->ctx, "a program constant outside its block");
        return TG_OK;
    case TG_STORAGE_INPUT:
        place->offset = buffer->offset;
        if (buffer->offset < 0 || buffer->offset > e->program->input_block_bytes - place->bytes || buffer->offset % TG_WEBGPU_ALIGN != 0)
            return TG_INTERNAL(l->d->ctx, "a program input outside its block");
        if (buffer->slot < 0 || buffer->slot >= e->program->input_count) return TG_INTERNAL(l->d->ctx, "a program input out of range");
        return TG_OK;
    }
    return TG_INTERNAL(l->d->ctx, "a program buffer of unknown storage");
}
/* Inputs that some kernel reads are sent. */
static tg_status load_place_inputs(load_state *l) {
    webgpu_executable *e = l->e;
    const tg_program *program = e->program;
    for (int32_t i = 0; i < program->input_count; ++i) e->input_offset[i] = -1;
    for (int32_t k = 0; k < program->kernel_count; ++k)
        for (int32_t a = 0; a < program->kernels[k].argument_count; ++a) {
            const int32_t b = program->kernels[k].arguments[a].buffer;
            if (b < 0 || b >= program->buffer_count) return TG_INTERNAL(l->d->ctx, "a kernel argument without a buffer");
            const tg_buffer *buffer = &program->buffers[b];
            if (buffer->storage != TG_STORAGE_INPUT) continue;
            e->input_offset[buffer->slot] = buffer->offset;
            e->input_bytes = program->input_block_bytes;
        }
    return TG_OK;
}
static tg_status load_place_outputs(load_state *l) {
    webgpu_executable *e = l->e;
    for (int32_t i = 0; i < e->program->output_count; ++i) {
        const tg_output *output = &e->program->outputs[i];
        if (output->buffer < 0 || output->buffer >= e->program->buffer_count) return TG_INTERNAL(l->d->ctx, "an output without a buffer");
        const tg_buffer *buffer = &e->program->buffers[output->buffer];
        if (tg_shape_count(output->shape) > buffer->count) return TG_INTERNAL(l->d->ctx, "an output larger than its buffer");
        if (buffer->storage == TG_STORAGE_INPUT || buffer->storage == TG_STORAGE_CONSTANT)
            return TG_INTERNAL(l->d->ctx, "an output that no kernel writes");
        e->readback_offset[i] = e->readback_bytes;
        e->readback_bytes += webgpu_align(tg_shape_count(output->shape) * 4, 16);
    }
    return TG_OK;
}

/* ---- sources */

static int32_t load_pipeline(load_state *l, const tg_wgsl_stage *stage, int32_t kernel) {
    webgpu_executable *e = l->e;
    const uint64_t hash = tg_hash((uint64_t)stage->binding_count, stage->source, stage->length);
    for (int32_t p = 0; p < e->pipeline_count; ++p) {
        const webgpu_pipeline *pipeline = &e->pipelines[p];
        if (pipeline->hash == hash && pipeline->length == stage->length && pipeline->binding_count == stage->binding_count &&
            memcmp(pipeline->source, stage->source, stage->length) == 0)
            return p;
    }
    e->pipelines[e->pipeline_count] = (webgpu_pipeline){
        .source = stage->source, .length = stage->length, .hash = hash, .binding_count = stage->binding_count, .kernel = kernel};
    return e->pipeline_count++;
}
static tg_status load_print(load_state *l) {
    webgpu_executable *e = l->e;
    const tg_program *program = e->program;
    int32_t stages = 0;
    for (int32_t i = 0; i < program->launch_count; ++i) {
        tg_status status = tg_emit_wgsl_launch(program, i, &l->d->model, &l->sources, &l->printed[i]);
        if (status != TG_OK) return status;
        stages += l->printed[i].stage_count;
        e->tuned += l->printed[i].tuned;
        if (l->printed[i].scratch_bytes > l->scratch_bytes) l->scratch_bytes = l->printed[i].scratch_bytes;
    }
    e->steps = TG_NEW(&e->arena, webgpu_step, stages + 1);
    e->pipelines = TG_NEW(&e->arena, webgpu_pipeline, stages + 1);
    if (e->steps == NULL || e->pipelines == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < program->launch_count; ++i)
        for (int32_t s = 0; s < l->printed[i].stage_count; ++s) {
            const tg_wgsl_stage *stage = &l->printed[i].stages[s];
            if (stage->binding_count > l->d->model.storage_buffers) return TG_INTERNAL(l->d->ctx, "a kernel that binds too many buffers");
            const int32_t kernel = program->launches[i].first;
            webgpu_step *step = &e->steps[e->step_count++];
            *step = (webgpu_step){.pipeline = load_pipeline(l, stage, kernel), .kernel = kernel};
            for (int d = 0; d < 3; ++d) step->groups[d] = (uint32_t)stage->groups[d];
        }
    e->per_submission = e->step_count;
    return TG_OK;
}

/* ---- buffers */

static tg_status load_check_bindings(load_state *l) {
    webgpu_device *d = l->d;
    const tg_program *program = l->e->program;
    const uint64_t limit = d->gpu->raw.max_storage_binding_bytes;
    for (int32_t k = 0; k < program->kernel_count; ++k) {
        const tg_kernel *kernel = &program->kernels[k];
        for (int32_t a = 0; a < kernel->argument_count; ++a) {
            const tg_buffer *buffer = &program->buffers[kernel->arguments[a].buffer];
            if ((uint64_t)buffer->count * 4 <= limit) continue;
            return tg_fail(d->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                           "webgpu: %s%s (kernel %s) needs %lld bytes, over this device's maxStorageBufferBindingSize of %llu",
                           buffer->name != NULL ? "" : "an intermediate result", buffer->name != NULL ? buffer->name : "", kernel->name,
                           (long long)buffer->count * 4, (unsigned long long)limit);
        }
    }
    for (int32_t i = 0; i < program->launch_count; ++i) {
        if ((uint64_t)l->printed[i].scratch_bytes <= limit) continue;
        return tg_fail(d->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                       "webgpu: the scratch of kernel %s needs %lld bytes, over this device's maxStorageBufferBindingSize of %llu",
                       program->kernels[program->launches[i].first].name, (long long)l->printed[i].scratch_bytes,
                       (unsigned long long)limit);
    }
    return TG_OK;
}
static tg_status load_make_part(load_state *l, int64_t bytes, uint64_t usage, const char *what, webgpu_buffer *out) {
    return bytes > 0 ? tg_webgpu_make_buffer(l->d, bytes, usage, what, out) : TG_OK;
}
static tg_status load_make_buffers(load_state *l) {
    webgpu_executable *e = l->e;
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION, both = fed | TG_WGPU_USAGE_COPY_SOURCE;
    tg_status status = load_make_part(l, e->program->workspace_bytes, both, "the workspace", &e->workspace);
    if (status == TG_OK) status = load_make_part(l, e->input_bytes, fed, "the inputs", &e->inputs);
    if (status == TG_OK) status = load_make_part(l, e->program->constant_block_bytes, fed, "the constants", &e->constants);
    if (status == TG_OK) status = load_make_part(l, l->scratch_bytes, both, "scratch", &e->scratch);
    if (status == TG_OK)
        status = load_make_part(l, e->readback_bytes, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "the outputs", &e->readback);
    if (status != TG_OK) return status;
    for (int32_t b = 0; b < e->program->buffer_count; ++b) {
        const tg_buffer *buffer = &e->program->buffers[b];
        webgpu_place *place = &e->places[b];
        if (buffer->storage == TG_STORAGE_WORKSPACE) place->handle = e->workspace.handle;
        if (buffer->storage == TG_STORAGE_INPUT && e->input_offset[buffer->slot] >= 0) place->handle = e->inputs.handle;
        if (buffer->storage != TG_STORAGE_CONSTANT) continue;
        place->handle = e->constants.handle;
        tg_webgpu_write(l->d, place->handle, place->offset, buffer->dtype, buffer->data, buffer->count);
    }
    return TG_OK;
}

/* ---- bind groups */

/* What a binding stands for; a handle of NULL: nothing that was made. */
static webgpu_place load_bound(const load_state *l, int32_t binding, int64_t scratch_bytes) {
    const webgpu_executable *e = l->e;
    const tg_program *program = e->program;
    switch (binding) {
    case TG_WGSL_SCRATCH: return (webgpu_place){e->scratch.handle, 0, scratch_bytes};
    case TG_WGSL_WORKSPACE: return (webgpu_place){e->workspace.handle, 0, program->workspace_bytes};
    case TG_WGSL_INPUTS: return (webgpu_place){e->inputs.handle, 0, program->input_block_bytes};
    case TG_WGSL_CONSTANTS: return (webgpu_place){e->constants.handle, 0, program->constant_block_bytes};
    default: break;
    }
    if (binding >= 0) return binding < program->buffer_count ? e->places[binding] : (webgpu_place){0};
    const int32_t slot = TG_WGSL_STATE_SLOT(binding);
    if (slot >= program->state_count || l->state_slots[slot] < 0 || l->state_slots[slot] >= l->d->states.count) return (webgpu_place){0};
    const webgpu_state *state = &l->d->states.items[l->state_slots[slot]];
    return (webgpu_place){state->buffer.handle, 0, state->count * 4};
}
tg_status tg_webgpu_bind_step(webgpu_executable *e, const webgpu_place *places, int32_t count, webgpu_step *step) {
    webgpu_device *d = e->device;
    tg_wgpu_bind_group_entry entries[TG_WEBGPU_MAX_BINDINGS];
    for (int32_t i = 0; i < count; ++i) {
        if (places[i].handle == NULL) return TG_INTERNAL(d->ctx, "a stage binds a buffer that was not made");
        entries[i] = (tg_wgpu_bind_group_entry){
            .binding = (uint32_t)i, .buffer = places[i].handle, .offset = (uint64_t)places[i].offset, .size = (uint64_t)places[i].bytes};
    }
    const tg_wgpu_bind_group_descriptor descriptor = {
        .label = webgpu_string(NULL), .layout = d->gpu->layouts[count], .count = (size_t)count, .entries = entries};
    step->group = d->host->api.device_create_bind_group(d->gpu->device, &descriptor);
    if (step->group == NULL)
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no bind group for kernel %s",
                       e->program->kernels[step->kernel].name);
    d->count.objects++;
    return TG_OK;
}
static tg_status load_bind_stage(load_state *l, const tg_wgsl_stage *stage, int64_t scratch_bytes, webgpu_step *step) {
    webgpu_place places[TG_WEBGPU_MAX_BINDINGS];
    for (int32_t i = 0; i < stage->binding_count; ++i) places[i] = load_bound(l, stage->bindings[i], scratch_bytes);
    return tg_webgpu_bind_step(l->e, places, stage->binding_count, step);
}
static tg_status load_bind(load_state *l) {
    webgpu_executable *e = l->e;
    int32_t step = 0;
    for (int32_t i = 0; i < e->program->launch_count; ++i)
        for (int32_t s = 0; s < l->printed[i].stage_count; ++s) {
            tg_status status = load_bind_stage(l, &l->printed[i].stages[s], l->printed[i].scratch_bytes, &e->steps[step++]);
            if (status != TG_OK) return status;
        }
    return TG_OK;
}

/* ---- all of it */

static tg_status load_prepare(load_state *l) {
    webgpu_executable *e = l->e;
    const tg_program *program = e->program;
    e->places = TG_NEW(&e->arena, webgpu_place, program->buffer_count + 1);
    e->input_offset = TG_NEW(&e->arena, int64_t, program->input_count + 1);
    e->readback_offset = TG_NEW(&e->arena, int64_t, program->output_count + 1);
    l->printed = TG_NEW(&l->sources, tg_wgsl_kernel, program->launch_count + 1);
    if (e->places == NULL || e->input_offset == NULL || e->readback_offset == NULL || l->printed == NULL) return TG_ERROR_MEMORY;
    tg_status status = TG_OK;
    for (int32_t b = 0; b < program->buffer_count && status == TG_OK; ++b) status = load_place(l, b);
    if (status == TG_OK) status = load_place_inputs(l);
    if (status == TG_OK) status = load_place_outputs(l);
    if (status == TG_OK) status = load_print(l);
    if (status == TG_OK) status = load_check_bindings(l);
    if (status != TG_OK || e->input_bytes == 0) return status;
    e->feed = tg_alloc(l->d->ctx, (size_t)e->input_bytes);
    return e->feed != NULL ? TG_OK : TG_ERROR_MEMORY;
}
static tg_status load_scoped(load_state *l, tg_status (*part)(load_state *l), const char *what) {
    tg_webgpu_scopes_push(l->d, WEBGPU_SCOPES);
    tg_status status = part(l);
    tg_status scopes = tg_webgpu_scopes_pop(l->d, WEBGPU_SCOPES, what);
    return status != TG_OK ? status : scopes;
}
/* *tuned: launches that the device's table laid out. */
static tg_status load_once(tg_device *device, const tg_program *program, const int32_t *state_slots, int32_t *tuned, tg_executable **out) {
    webgpu_device *d = webgpu_of(device);
    tg_status status = TG_OK;
    webgpu_executable *e = tg_alloc(d->ctx, sizeof *e);
    if (e == NULL) return TG_ERROR_MEMORY;
    const char *poison = getenv("TENSORGRAD_POISON");
    load_state l = {.d = d, .e = e, .state_slots = state_slots};
    e->device = d;
    e->program = program;
    e->poison = poison != NULL && strcmp(poison, "1") == 0;
    tg_arena_init(&e->arena, d->ctx);
    tg_arena_init(&l.sources, d->ctx);
    status = load_prepare(&l);
    if (status == TG_OK) status = load_scoped(&l, load_make_buffers, "making buffers");
    if (status == TG_OK) status = tg_webgpu_make_pipelines(e);
    if (status == TG_OK) status = load_scoped(&l, load_bind, "binding buffers");
    tg_arena_free(&l.sources);
    for (int32_t p = 0; p < e->pipeline_count; ++p) e->pipelines[p].source = NULL;
    *tuned = e->tuned;
    if (status != TG_OK) {
        tg_webgpu_unload(device, (tg_executable *)(void *)e);
        return status;
    }
    *out = (tg_executable *)(void *)e;
    return TG_OK;
}

/* What a device cannot do as its table says, which may be of another time, it does as the printers say. */
tg_status tg_webgpu_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    webgpu_device *d = webgpu_of(device);
    const tg_schedules *table = d->model.schedules;
    int32_t tuned = 0;
    tg_status status = tg_webgpu_alive(d);
    if (status == TG_OK) status = load_once(device, program, state_slots, &tuned, out);
    if (status == TG_OK || tuned == 0 || d->gpu->silent || tg_webgpu_is_lost(d)) return status;
    if (d->ctx->log != NULL) d->ctx->log(d->ctx->log_user, TG_LOG_WARNING, "webgpu: the tuned schedules do not work here: ignored");
    tg_clear_error(d->ctx);
    d->model.schedules = NULL;
    status = load_once(device, program, state_slots, &tuned, out);
    d->model.schedules = table;
    return status;
}

void tg_webgpu_unload(tg_device *device, tg_executable *executable) {
    (void)device;
    if (executable == NULL) return;
    webgpu_executable *e = webgpu_executable_of(executable);
    webgpu_device *d = e->device;
    tg_context *ctx = d->ctx;
    for (int32_t s = 0; s < e->step_count; ++s) {
        if (e->steps[s].group == NULL) continue;
        d->host->api.bind_group_release(e->steps[s].group);
        d->count.objects--;
    }
    tg_webgpu_release_pipelines(e);
    tg_webgpu_drop_buffer(d, &e->workspace);
    tg_webgpu_drop_buffer(d, &e->inputs);
    tg_webgpu_drop_buffer(d, &e->constants);
    tg_webgpu_drop_buffer(d, &e->scratch);
    tg_webgpu_drop_buffer(d, &e->readback);
    if (e->feed != NULL) tg_release(ctx, e->feed, (size_t)e->input_bytes);
    tg_arena_free(&e->arena);
    tg_release(ctx, e, sizeof *e);
}
int tg_webgpu_tuned(const tg_executable *executable) { return ((const webgpu_executable *)(const void *)executable)->tuned; }
int tg_webgpu_dispatches(const tg_executable *executable) { return ((const webgpu_executable *)(const void *)executable)->step_count; }
