/* prove: a device that was just opened computes something small, with a known answer, before a
 * model trusts it. Some adapters take each command and execute nothing, and some drivers are
 * broken: neither says so. Must not know programs. */
#include "run/webgpu/device.h"
#include "run/webgpu/proof.h"

#include <stdio.h>

#define PROVE_BYTES ((int64_t)TG_PROOF_WORDS * TG_WORD_BYTES)
#define PROVE_LABEL "a first computation"

/* New words each time, so that an answer left over from another time is wrong. */
static void prove_numbers(uint32_t *given) {
    const int64_t now = tg_webgpu_now();
    uint64_t word = tg_hash(0, &now, sizeof now);
    for (int i = 0; i < TG_PROOF_WORDS; ++i) {
        word = tg_hash(word, &i, sizeof i);
        given[i] = (uint32_t)(word >> 16);
    }
}

typedef struct prove_work {
    webgpu_buffer given, found, readback;
    tg_replay_source source;
    webgpu_pipeline pipeline;
    webgpu_dispatch dispatch;
    webgpu_bundle bundle; /* of these */
} prove_work;

static tg_status prove_make_buffers(webgpu_device *d, prove_work *work) {
    const uint64_t fed = TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_DESTINATION;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = tg_webgpu_make_buffer(d, PROVE_BYTES, fed, PROVE_LABEL, &work->given);
    if (status == TG_OK)
        status = tg_webgpu_make_buffer(d, PROVE_BYTES, TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_SOURCE, "its answer", &work->found);
    if (status == TG_OK)
        status =
            tg_webgpu_make_buffer(d, PROVE_BYTES, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "its answer", &work->readback);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making buffers");
    return status != TG_OK ? status : scopes;
}
static tg_status prove_make(webgpu_device *d, prove_work *work) {
    static const int32_t groups[3] = {TG_PROOF_GROUPS, 1, 1};
    tg_status status = prove_make_buffers(d, work);
    if (status != TG_OK) return status;
    work->source = tg_replay_source_of(TG_PROOF_SOURCE, sizeof TG_PROOF_SOURCE - 1, 2, PROVE_LABEL);
    work->pipeline.source = &work->source;
    work->dispatch = webgpu_dispatch_of(0, groups);
    work->bundle = (webgpu_bundle){&work->pipeline, &work->dispatch, 1, 1};
    status = tg_webgpu_make_pipelines(d, &work->bundle);
    if (status != TG_OK) return status;
    const webgpu_range ranges[] = {{work->given.handle, 0, PROVE_BYTES}, {work->found.handle, 0, PROVE_BYTES}};
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    status = tg_webgpu_bind(d, ranges, 2, PROVE_LABEL, &work->dispatch);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "binding buffers");
    return status != TG_OK ? status : scopes;
}
static tg_status prove_submit(webgpu_device *d, const prove_work *work) {
    tg_wgpu_command_encoder encoder = NULL;
    tg_wgpu_compute_pass pass = NULL;
    tg_status status = tg_webgpu_begin_pass(d, &encoder, NULL, &pass);
    if (status != TG_OK) return status;
    tg_webgpu_encode(d, &work->bundle, pass, 0, 1);
    tg_webgpu_end_pass(d, pass);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, work->found.handle, 0, work->readback.handle, 0, (uint64_t)PROVE_BYTES);
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
static tg_status prove_run(webgpu_device *d, const prove_work *work) {
    uint32_t given[TG_PROOF_WORDS];
    const void *found = NULL;
    prove_numbers(given);
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_webgpu_write(d, work->given.handle, 0, TG_I32, given, TG_PROOF_WORDS);
    tg_status status = prove_submit(d, work);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "computing");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_map(d, work->readback.handle, 0, PROVE_BYTES, &found);
    if (status != TG_OK) return status;
    status = prove_compare(d, given, found);
    d->host->api.buffer_unmap(work->readback.handle);
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
    prove_work work;
    memset(&work, 0, sizeof work);
    tg_status status = prove_make(d, &work);
    if (status == TG_OK) status = prove_run(d, &work);
    tg_webgpu_drop_bundle(d, &work.bundle);
    tg_webgpu_drop_buffer(d, &work.given);
    tg_webgpu_drop_buffer(d, &work.found);
    tg_webgpu_drop_buffer(d, &work.readback);
    if (status != TG_OK) return prove_explain(d, status);
    tg_webgpu_reset_counters(&d->count);
    return TG_OK;
}

#undef PROVE_BYTES
#undef PROVE_LABEL
