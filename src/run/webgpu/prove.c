/* prove: a device that was just opened computes something small, whose right answer is known, before a model trusts it. There are
 * adapters that take every command and execute nothing, and drivers that are broken: neither says so. Must not know programs
 * beyond the one it makes. */
#include "run/webgpu/device.h"
#include "run/webgpu/proof.h"

#include <stdio.h>

#define PROVE_BYTES ((int64_t)TG_PROOF_WORDS * TG_WORD_BYTES)

/* New words each time: an answer left over from another time is no answer. */
static void prove_numbers(uint32_t *given) {
    const int64_t now = tg_webgpu_now();
    uint64_t word = tg_hash(0, &now, sizeof now);
    for (int i = 0; i < TG_PROOF_WORDS; ++i) {
        word = tg_hash(word, &i, sizeof i);
        given[i] = (uint32_t)(word >> 16);
    }
}

static tg_status prove_make_buffers(webgpu_executable *e) {
    webgpu_device *d = e->device;
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = tg_webgpu_make_buffer(d, PROVE_BYTES, fed, "a first computation", &e->inputs);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, PROVE_BYTES, TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_SOURCE, "its answer", &e->workspace);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, PROVE_BYTES, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "its answer", &e->readback);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making buffers");
    return status != TG_OK ? status : scopes;
}
static tg_status prove_make(webgpu_executable *e) {
    tg_status status = prove_make_buffers(e);
    if (status != TG_OK) return status;
    e->steps = TG_NEW(&e->arena, webgpu_step, 1);
    e->pipelines = TG_NEW(&e->arena, webgpu_pipeline, 1);
    if (e->steps == NULL || e->pipelines == NULL) return TG_ERROR_MEMORY;
    e->pipelines[0] = (webgpu_pipeline){.source = TG_PROOF_SOURCE, .length = sizeof TG_PROOF_SOURCE - 1, .binding_count = 2};
    e->pipeline_count = 1;
    status = tg_webgpu_make_pipelines(e);
    if (status != TG_OK) return status;
    const webgpu_place places[] = {{e->inputs.handle, 0, PROVE_BYTES}, {e->workspace.handle, 0, PROVE_BYTES}};
    e->steps[0] = (webgpu_step){.groups = {TG_PROOF_GROUPS, 1, 1}};
    e->step_count = 1;
    tg_webgpu_scopes_push(e->device, WEBGPU_SCOPES);
    status = tg_webgpu_bind_step(e, places, 2, &e->steps[0]);
    tg_status scopes = tg_webgpu_scopes_pop(e->device, WEBGPU_SCOPES, "binding buffers");
    return status != TG_OK ? status : scopes;
}
static tg_status prove_submit(webgpu_executable *e) {
    webgpu_device *d = e->device;
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) return TG_ERROR_DEVICE;
    tg_wgpu_compute_pass pass = d->host->api.encoder_begin_compute_pass(encoder, NULL);
    if (pass == NULL) {
        d->host->api.encoder_release(encoder);
        d->count.objects--;
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pass");
    }
    tg_webgpu_encode_steps(e, pass, 0, 1);
    d->host->api.pass_end(pass);
    d->host->api.pass_release(pass);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, e->workspace.handle, 0, e->readback.handle, 0, (uint64_t)PROVE_BYTES);
    return tg_webgpu_submit(d, encoder);
}
static tg_status prove_compare(webgpu_device *d, const uint32_t *given, const uint32_t *found) {
    for (uint32_t i = 0; i < TG_PROOF_WORDS; ++i) {
        const uint32_t right = tg_proof_answer(given, i);
        if (found[i] == right) continue;
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE,
                       "word %u of the answer is %08x, and right is %08x: it executes nothing, or wrongly", (unsigned)i, (unsigned)found[i],
                       (unsigned)right);
    }
    return TG_OK;
}
static tg_status prove_run(webgpu_executable *e) {
    webgpu_device *d = e->device;
    uint32_t given[TG_PROOF_WORDS];
    const void *found = NULL;
    prove_numbers(given);
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_webgpu_write(d, e->inputs.handle, 0, TG_I32, given, TG_PROOF_WORDS);
    tg_status status = prove_submit(e);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "computing");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_map(d, e->readback.handle, 0, PROVE_BYTES, &found);
    if (status != TG_OK) return status;
    status = prove_compare(d, given, found);
    d->host->api.buffer_unmap(e->readback.handle);
    return status;
}
/* Says whose computation it was. What the system lacks is not the adapter's fault. */
static tg_status prove_explain(const webgpu_device *d, tg_status status) {
    char text[1024];
    if (status == TG_ERROR_MEMORY || status == TG_ERROR_DEVICE_LOST) return status;
    snprintf(text, sizeof text, "%.1000s", d->ctx->message);
    tg_clear_error(d->ctx);
    return tg_fail(d->ctx, status, TG_SITE_NONE, "webgpu: the adapter %s does not pass its first computation: %s", d->gpu->name, text);
}
tg_status tg_webgpu_prove(webgpu_device *d) {
    tg_kernel kernel = {.name = "a first computation"};
    tg_program program = {.kernels = &kernel, .kernel_count = 1};
    webgpu_executable *e = tg_alloc(d->ctx, sizeof *e);
    if (e == NULL) return TG_ERROR_MEMORY;
    e->device = d;
    e->program = &program;
    tg_arena_init(&e->arena, d->ctx);
    tg_status status = prove_make(e);
    if (status == TG_OK) status = prove_run(e);
    tg_webgpu_unload((tg_device *)(void *)d, (tg_executable *)(void *)e);
    if (status != TG_OK) return prove_explain(d, status);
    tg_webgpu_reset_counters(&d->count);
    return TG_OK;
}

#undef PROVE_BYTES
