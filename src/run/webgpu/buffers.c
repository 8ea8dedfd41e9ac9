/* buffers: GPU buffers, the states kept in them, commands for the queue, and the way of values to
 * and from the GPU: there a bool is a word. Moves large states in bounded pieces. Must not know
 * programs. */
#include "run/webgpu/device.h"

#include <string.h>

#define BUFFERS_PIECE (INT64_C(16) << 20)   /* bytes written or read at once */
#define BUFFERS_PENDING (INT64_C(64) << 20) /* bytes written before we wait for the queue */

tg_status tg_webgpu_make_buffer(webgpu_device *d, int64_t bytes, uint64_t usage, const char *what, webgpu_buffer *out) {
    const int64_t size = bytes < TG_WORD_BYTES ? TG_WORD_BYTES : webgpu_align(bytes, TG_WORD_BYTES);
    tg_status status = tg_replay_check_buffer(d->ctx, webgpu_replay_limits(d).max_buffer_bytes, what, size);
    if (status != TG_OK) return status;
    const tg_wgpu_buffer_descriptor descriptor = {.label = webgpu_string(what), .usage = usage, .size = (uint64_t)size};
    out->handle = d->host->api.device_create_buffer(d->gpu->device, &descriptor);
    if (out->handle == NULL)
        return tg_fail(d->ctx, TG_ERROR_MEMORY, TG_SITE_NONE, "webgpu: no buffer of %lld bytes for %s", (long long)size, what);
    out->bytes = size;
    d->count.objects++;
    d->count.buffers++;
    d->count.buffer_bytes += size;
    return TG_OK;
}
void tg_webgpu_drop_buffer(webgpu_device *d, webgpu_buffer *buffer) {
    if (buffer->handle == NULL) return;
    /* frees its memory now; release frees the handle */
    d->host->api.buffer_destroy(buffer->handle);
    d->host->api.buffer_release(buffer->handle);
    d->count.objects--;
    d->count.buffers--;
    d->count.buffer_bytes -= buffer->bytes;
    *buffer = (webgpu_buffer){NULL, 0};
}

/* ---- commands */

tg_wgpu_command_encoder tg_webgpu_encoder(webgpu_device *d) {
    tg_wgpu_command_encoder encoder = d->host->api.device_create_command_encoder(d->gpu->device, NULL);
    if (encoder == NULL) (void)tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no command encoder");
    else d->count.objects++;
    return encoder;
}
tg_status tg_webgpu_begin_pass(webgpu_device *d, tg_wgpu_command_encoder *encoder, const tg_wgpu_pass_timestamps *timestamps,
                               tg_wgpu_compute_pass *pass) {
    const tg_wgpu_pass_descriptor descriptor = {.label = webgpu_string(NULL), .timestamps = timestamps};
    if (*encoder == NULL) *encoder = tg_webgpu_encoder(d);
    if (*encoder == NULL) return TG_ERROR_DEVICE;
    *pass = d->host->api.encoder_begin_compute_pass(*encoder, timestamps != NULL ? &descriptor : NULL);
    if (*pass != NULL) return TG_OK;
    d->host->api.encoder_release(*encoder);
    d->count.objects--;
    *encoder = NULL;
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pass");
}
void tg_webgpu_end_pass(webgpu_device *d, tg_wgpu_compute_pass pass) {
    d->host->api.pass_end(pass);
    d->host->api.pass_release(pass);
}
tg_status tg_webgpu_submit(webgpu_device *d, tg_wgpu_command_encoder encoder) {
    tg_wgpu_command_buffer commands = d->host->api.encoder_finish(encoder, NULL);
    d->host->api.encoder_release(encoder);
    d->count.objects--;
    if (commands == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no command buffer");
    d->host->api.queue_submit(d->gpu->queue, 1, &commands);
    d->host->api.command_buffer_release(commands);
    d->count.submissions++;
    return TG_OK;
}

/* ---- values */

void tg_webgpu_write(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, tg_dtype dtype, const void *data, int64_t count) {
    const int64_t host = (int64_t)tg_dtype_bytes(dtype), item = tg_dtype_device_bytes(dtype);
    const int64_t piece = (tg_dtype_is_word(dtype) ? BUFFERS_PIECE : TG_WEBGPU_STAGING_BYTES) / item;
    for (int64_t done = 0; done < count; done += piece) {
        const int64_t now = count - done < piece ? count - done : piece;
        const void *from = (const char *)data + done * host;
        if (!tg_dtype_is_word(dtype)) {
            tg_dtype_to_device(dtype, d->staging, from, now);
            from = d->staging;
        }
        d->host->api.queue_write_buffer(d->gpu->queue, buffer, (uint64_t)(offset + done * item), from, (size_t)(now * item));
        d->count.writes++;
        d->count.write_bytes += now * item;
    }
}
tg_status tg_webgpu_write_long(webgpu_device *d, tg_wgpu_buffer buffer, int64_t offset, tg_dtype dtype, const void *data, int64_t count,
                               const char *what) {
    const int64_t part = BUFFERS_PENDING / TG_WORD_BYTES;
    tg_status status = TG_OK;
    for (int64_t done = 0; status == TG_OK && done < count; done += part) {
        tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
        tg_webgpu_write(d, buffer, offset + done * tg_dtype_device_bytes(dtype), dtype,
                        (const char *)data + done * (int64_t)tg_dtype_bytes(dtype), count - done < part ? count - done : part);
        status = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, what);
        if (status == TG_OK && count > part) status = tg_webgpu_finish(d);
    }
    return status;
}

/* ---- states */

/* Where element `count` of an array lies: on the device, and in host memory. */
static int64_t buffers_bytes(const webgpu_state *state, int64_t count) { return count * tg_dtype_device_bytes(state->dtype); }
static int64_t buffers_host_bytes(const webgpu_state *state, int64_t count) { return count * (int64_t)tg_dtype_bytes(state->dtype); }

static webgpu_state *buffers_state(webgpu_device *d, int32_t slot, int64_t first, int64_t count) {
    if (slot < 0 || slot >= d->states.count || d->states.items[slot].buffer.handle == NULL) return NULL;
    webgpu_state *state = &d->states.items[slot];
    return first >= 0 && count >= 0 && first <= state->count - count ? state : NULL;
}
/* The buffer of read_state: as large as the largest state, or as a piece. One that is large enough
 * stays: then *out is none. */
static tg_status buffers_make_readback(webgpu_device *d, int64_t bytes, webgpu_buffer *out) {
    const int64_t wanted = bytes < BUFFERS_PIECE ? bytes : BUFFERS_PIECE;
    if (d->readback.bytes >= wanted) return TG_OK;
    return tg_webgpu_make_buffer(d, wanted, TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION, "reading states back", out);
}
static void buffers_replace(webgpu_device *d, webgpu_buffer *old, webgpu_buffer made) {
    tg_webgpu_drop_buffer(d, old);
    *old = made;
}
tg_status tg_webgpu_make_state(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count) {
    webgpu_device *d = webgpu_of(device);
    webgpu_buffer buffer = {NULL, 0}, readback = {NULL, 0};
    char what[TG_REPLAY_NAME];
    if (slot < 0 || count < 0) return TG_INTERNAL(d->ctx, "a state with a negative slot or size");
    tg_status status = tg_webgpu_alive(d);
    if (status != TG_OK) return status;
    if (slot >= d->states.count) {
        if (!tg_grow(d->ctx, (void **)&d->states.items, &d->states.capacity, slot + 1, sizeof(webgpu_state))) return TG_ERROR_MEMORY;
        while (d->states.count <= slot) d->states.items[d->states.count++] = (webgpu_state){.count = 0};
    }
    tg_replay_state_name(what, name, count);
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    status = tg_webgpu_make_buffer(d, count * tg_dtype_device_bytes(dtype),
                                   TG_WGPU_USAGE_STORAGE | TG_WGPU_USAGE_COPY_SOURCE | TG_WGPU_USAGE_COPY_DESTINATION, what, &buffer);
    if (status == TG_OK) status = buffers_make_readback(d, buffer.bytes, &readback);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, what);
    if (status == TG_OK) status = scopes;
    webgpu_state *state = &d->states.items[slot];
    if (status != TG_OK) { /* only now may the library have called a buffer invalid */
        tg_webgpu_drop_buffer(d, &buffer);
        tg_webgpu_drop_buffer(d, &readback);
        return status;
    }
    if (readback.handle != NULL) buffers_replace(d, &d->readback, readback);
    tg_webgpu_drop_buffer(d, &state->buffer);
    *state = (webgpu_state){buffer, dtype, count};
    return TG_OK;
}
tg_status tg_webgpu_write_state(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count) {
    webgpu_device *d = webgpu_of(device);
    const webgpu_state *state = buffers_state(d, slot, first, count);
    tg_status status = tg_webgpu_alive(d); /* on a lost device a state may never have been made */
    if (status == TG_OK && state == NULL) return TG_INTERNAL(d->ctx, "a write outside a state");
    if (status != TG_OK) return status;
    return tg_webgpu_write_long(d, state->buffer.handle, buffers_bytes(state, first), state->dtype, data, count, "writing a state");
}
static tg_status buffers_copy_piece(webgpu_device *d, const webgpu_state *state, int64_t first, int64_t count) {
    tg_wgpu_command_encoder encoder = tg_webgpu_encoder(d);
    if (encoder == NULL) return tg_error(d->ctx);
    d->host->api.encoder_copy_buffer_to_buffer(encoder, state->buffer.handle, (uint64_t)buffers_bytes(state, first), d->readback.handle, 0,
                                               (uint64_t)buffers_bytes(state, count));
    return tg_webgpu_submit(d, encoder);
}
static tg_status buffers_read_piece(webgpu_device *d, const webgpu_state *state, int64_t first, void *data, int64_t count) {
    const void *from = NULL;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = buffers_copy_piece(d, state, first, count);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "reading a state");
    if (status == TG_OK) status = scopes;
    if (status == TG_OK) status = tg_webgpu_map(d, d->readback.handle, 0, buffers_bytes(state, count), &from);
    if (status != TG_OK) return status;
    tg_dtype_from_device(state->dtype, data, from, count);
    d->host->api.buffer_unmap(d->readback.handle);
    return TG_OK;
}
tg_status tg_webgpu_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count) {
    webgpu_device *d = webgpu_of(device);
    const webgpu_state *state = buffers_state(d, slot, first, count);
    tg_status status = tg_webgpu_alive(d);
    if (status == TG_OK && state == NULL) return TG_INTERNAL(d->ctx, "a read outside a state");
    const int64_t piece = BUFFERS_PIECE / TG_WORD_BYTES;
    for (int64_t done = 0; status == TG_OK && done < count; done += piece)
        status = buffers_read_piece(d, state, first + done, (char *)data + buffers_host_bytes(state, done),
                                    count - done < piece ? count - done : piece);
    return status;
}

#undef BUFFERS_PIECE
#undef BUFFERS_PENDING
