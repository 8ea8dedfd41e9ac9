/* pipelines: layouts, shader modules and compute pipelines of a bundle: all compiled at once if the
 * library can, and the messages of a shader's compiler, next to the shader. Layouts are explicit,
 * because an automatic one leaves out what a shader does not use. Layouts and pipelines belong to
 * the GPU: equal sources have one pipeline for all models, and of those that nobody uses the latest
 * stay. Must not know how programs are placed. */
#include "run/webgpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIPELINES_TEXT = 1024, PIPELINES_KEPT = 512 };
#define PIPELINES_KEPT_BYTES (INT64_C(8) << 20) /* of their sources */

typedef struct pipelines_batch { /* requests of one load, followed by their texts */
    webgpu_answers answers;
    webgpu_request requests[];
} pipelines_batch;

/* ---- messages of the compiler */

static void pipelines_on_info(uint32_t status, const tg_wgpu_compilation_info *info, void *user, void *more) {
    (void)more;
    webgpu_request *request = user;
    size_t length = 0;
    for (size_t i = 0; info != NULL && status == TG_WGPU_SUCCESS && i < info->count; ++i) {
        const tg_wgpu_message *message = &info->messages[i];
        char text[1024];
        if (message->type != TG_WGPU_MESSAGE_ERROR) continue;
        if (request->line == 0) request->line = message->line;
        tg_webgpu_copy_text(text, sizeof text, message->text);
        const int more_length = snprintf(request->text + length, request->room - length, "%sline %llu: %s", length > 0 ? "\n" : "",
                                         (unsigned long long)message->line, text);
        if (more_length > 0) length += (size_t)more_length;
        if (length + 1 >= request->room) break;
    }
    request->status = status;
    request->done = true;
    request->answers->pending--;
}
/* Into d->text, "" if it says nothing. Returns the line of the first error, or 0. */
static uint64_t pipelines_ask(webgpu_device *d, tg_wgpu_shader_module module) {
    d->text[0] = '\0';
    if (module == NULL || d->host->wgpu_native || d->host->api.shader_module_get_compilation_info == NULL) return 0;
    tg_webgpu_ask(&d->opening, &d->answers, d->text, sizeof d->text);
    d->host->api.shader_module_get_compilation_info(
        module, (tg_wgpu_compilation_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = pipelines_on_info, .user = &d->opening});
    return tg_webgpu_wait(d, &d->opening, "asking a shader's compiler") == TG_OK ? d->opening.line : 0;
}
static const char *pipelines_line(const char *source, int64_t number, size_t *length) {
    for (int64_t i = 1; i < number && source != NULL; ++i) {
        source = strchr(source, '\n');
        if (source != NULL) source++;
    }
    *length = source != NULL ? strcspn(source, "\n") : 0;
    return source;
}
/* The numbered lines of `source` around `line` that fit in `room`: all of them if possible. */
static void pipelines_number(const char *source, uint64_t line, char *text, size_t room) {
    size_t length = 0, used = 0;
    int64_t count = 1;
    for (const char *c = source; *c != '\0'; ++c) count += *c == '\n';
    /* [begin, end) */
    int64_t begin = line >= 1 && (int64_t)line <= count ? (int64_t)line : 1, end = begin;
    for (bool grown = true; grown;) {
        grown = false;
        if (end <= count && pipelines_line(source, end, &length) != NULL && used + length + 8 < room) {
            used += length + 8;
            end++;
            grown = true;
        }
        if (begin > 1 && pipelines_line(source, begin - 1, &length) != NULL && used + length + 8 < room) {
            used += length + 8;
            begin--;
            grown = true;
        }
    }
    text[0] = '\0';
    for (used = 0; begin < end && used < room; ++begin) {
        const char *from = pipelines_line(source, begin, &length);
        if (from == NULL) return;
        const int more = snprintf(text + used, room - used, "%5lld  %.*s\n", (long long)begin, (int)length, from);
        if (more > 0) used += (size_t)more;
    }
}
static tg_status pipelines_explain(webgpu_device *d, const webgpu_pipeline *pipeline, const char *said) {
    char *text = tg_alloc(d->ctx, TG_MESSAGE_MAX);
    if (text == NULL) return TG_ERROR_MEMORY;
    const uint64_t line = pipelines_ask(d, pipeline->module);
    if (d->text[0] != '\0') said = d->text;
    const size_t taken = strlen(said) + strlen(d->gpu->name) + strlen(pipeline->source->label) + 128;
    if (taken < TG_MESSAGE_MAX) pipelines_number(pipeline->source->text, line, text, TG_MESSAGE_MAX - taken);
    tg_status status = tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the shader of kernel %s does not compile on %s:\n%s\n%s",
                               pipeline->source->label, d->gpu->name, said, text);
    tg_release(d->ctx, text, TG_MESSAGE_MAX);
    return status;
}

/* ---- layouts */

static void pipelines_drop_layout(const webgpu_host *host, tg_wgpu_bind_group_layout *group, tg_wgpu_pipeline_layout *pipeline) {
    if (*pipeline != NULL) host->api.pipeline_layout_release(*pipeline);
    if (*group != NULL) host->api.bind_group_layout_release(*group);
    *pipeline = NULL;
    *group = NULL;
}
static tg_status pipelines_make_layout(webgpu_device *d, int32_t count, tg_wgpu_bind_group_layout *group,
                                       tg_wgpu_pipeline_layout *pipeline) {
    tg_wgpu_layout_entry entries[TG_WEBGPU_MAX_BINDINGS];
    tg_wgpu_layout_entry_old old[TG_WEBGPU_MAX_BINDINGS];
    const tg_wgpu_buffer_layout buffer = {.type = TG_WGPU_BINDING_STORAGE};
    for (uint32_t i = 0; i < (uint32_t)count; ++i) {
        entries[i] = (tg_wgpu_layout_entry){.binding = i, .visibility = TG_WGPU_STAGE_COMPUTE, .buffer = buffer};
        old[i] = (tg_wgpu_layout_entry_old){.binding = i, .visibility = TG_WGPU_STAGE_COMPUTE, .buffer = buffer};
    }
    const tg_wgpu_bind_group_layout_descriptor groups = {.label = webgpu_string(NULL),
                                                         .count = (size_t)count,
                                                         .entries = d->host->old_layout_entry ? (const void *)old : (const void *)entries};
    *group = d->host->api.device_create_bind_group_layout(d->gpu->device, &groups);
    if (*group == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no layout for %d buffers", (int)count);
    const tg_wgpu_pipeline_layout_descriptor layout = {.label = webgpu_string(NULL), .count = 1, .layouts = group};
    *pipeline = d->host->api.device_create_pipeline_layout(d->gpu->device, &layout);
    if (*pipeline == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no pipeline layout for %d buffers", (int)count);
    return TG_OK;
}
/* Others get it only after it is known to be good; they may have made one meanwhile. */
static tg_status pipelines_share_layout(webgpu_device *d, int32_t count) {
    tg_wgpu_bind_group_layout group = NULL;
    tg_wgpu_pipeline_layout pipeline = NULL;
    if (d->gpu->layouts[count] != NULL) return TG_OK;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = pipelines_make_layout(d, count, &group, &pipeline);
    tg_status scopes = tg_webgpu_scopes_pop(d, WEBGPU_SCOPES, "making layouts");
    if (status == TG_OK) status = scopes;
    if (status != TG_OK || d->gpu->layouts[count] != NULL) {
        pipelines_drop_layout(d->host, &group, &pipeline);
        return status;
    }
    d->gpu->layouts[count] = group;
    d->gpu->pipeline_layouts[count] = pipeline;
    d->gpu->count.objects += 2;
    return TG_OK;
}
static tg_status pipelines_share_layouts(webgpu_device *d, const webgpu_bundle *bundle) {
    tg_status status = TG_OK;
    for (int32_t p = 0; status == TG_OK && p < bundle->pipeline_count; ++p)
        status = pipelines_share_layout(d, bundle->pipelines[p].source->binding_count);
    return status;
}

/* ---- pipelines of the GPU */

static webgpu_cached *pipelines_find(const webgpu_gpu *gpu, const tg_replay_source *wanted) {
    for (webgpu_cached *c = gpu->cached; c != NULL; c = c->next)
        if (c->hash == wanted->hash && c->length == wanted->length && c->binding_count == wanted->binding_count &&
            memcmp(c->source, wanted->text, c->length) == 0)
            return c;
    return NULL;
}
static void pipelines_use(webgpu_device *d, webgpu_pipeline *pipeline, webgpu_cached *cached) {
    if (cached->users++ == 0) {
        d->gpu->count.unused--;
        d->gpu->count.unused_bytes -= (int64_t)cached->length;
    }
    pipeline->cached = cached;
    pipeline->handle = cached->handle;
    d->count.pipelines++;
}
static void pipelines_look_up(webgpu_device *d, webgpu_bundle *bundle) {
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) {
        webgpu_pipeline *pipeline = &bundle->pipelines[p];
        webgpu_cached *cached = pipelines_find(d->gpu, pipeline->source);
        if (cached != NULL) pipelines_use(d, pipeline, cached);
    }
}
static void pipelines_drop(webgpu_gpu *gpu, webgpu_cached **at) {
    webgpu_cached *cached = *at;
    *at = cached->next;
    gpu->host->api.compute_pipeline_release(cached->handle);
    gpu->count.objects--;
    gpu->count.pipelines--;
    gpu->count.unused--;
    gpu->count.unused_bytes -= (int64_t)cached->length;
    free(cached);
}
/* Drops unused pipelines beyond the limits, those that were used longest ago first. */
static void pipelines_trim(webgpu_gpu *gpu) {
    while (gpu->count.unused > PIPELINES_KEPT || gpu->count.unused_bytes > PIPELINES_KEPT_BYTES) {
        webgpu_cached **last = NULL;
        for (webgpu_cached **at = &gpu->cached; *at != NULL; at = &(*at)->next)
            if ((*at)->users == 0) last = at;
        pipelines_drop(gpu, last);
    }
}
/* Takes over the handle; if others made one of the same source meanwhile, that one is used instead.
 * False, with the handle released: no memory. */
static bool pipelines_keep(webgpu_device *d, webgpu_pipeline *pipeline, tg_wgpu_compute_pipeline handle) {
    const tg_replay_source *source = pipeline->source;
    webgpu_gpu *gpu = d->gpu;
    webgpu_cached *cached = pipelines_find(gpu, source);
    const bool is_new = cached == NULL;
    if (is_new) cached = malloc(sizeof *cached + source->length);
    if (cached == NULL || !is_new) d->host->api.compute_pipeline_release(handle);
    if (cached == NULL) return false;
    if (is_new) {
        *cached = (webgpu_cached){.next = gpu->cached, .hash = source->hash, .length = source->length, .handle = handle};
        cached->binding_count = source->binding_count;
        memcpy(cached->source, source->text, source->length);
        gpu->cached = cached;
        gpu->count.objects++;
        gpu->count.pipelines++;
        gpu->count.made++;
        gpu->count.unused++;
        gpu->count.unused_bytes += (int64_t)cached->length;
    }
    pipelines_use(d, pipeline, cached);
    return true;
}
/* Moves a pipeline to the front when its last user leaves: it was used latest. */
static void pipelines_unuse(webgpu_gpu *gpu, webgpu_cached *cached) {
    webgpu_cached **at = &gpu->cached;
    if (--cached->users > 0) return;
    while (*at != cached) at = &(*at)->next;
    *at = cached->next;
    cached->next = gpu->cached;
    gpu->cached = cached;
    gpu->count.unused++;
    gpu->count.unused_bytes += (int64_t)cached->length;
}
void tg_webgpu_release_pipelines(webgpu_device *d, webgpu_bundle *bundle) {
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) {
        webgpu_pipeline *pipeline = &bundle->pipelines[p];
        if (pipeline->cached == NULL) continue;
        pipelines_unuse(d->gpu, pipeline->cached);
        pipeline->cached = NULL;
        pipeline->handle = NULL;
        d->count.pipelines--;
    }
    pipelines_trim(d->gpu);
}
void tg_webgpu_drop_shared(webgpu_gpu *gpu) {
    while (gpu->cached != NULL) pipelines_drop(gpu, &gpu->cached);
    for (int i = 0; i <= TG_WEBGPU_MAX_BINDINGS; ++i) {
        if (gpu->layouts[i] != NULL) gpu->count.objects -= 2;
        pipelines_drop_layout(gpu->host, &gpu->layouts[i], &gpu->pipeline_layouts[i]);
    }
}

/* ---- pipelines */

static tg_status pipelines_make_module(webgpu_device *d, webgpu_pipeline *pipeline) {
    const tg_wgpu_shader_source source = {.chain = {.type = TG_WGPU_STYPE_WGSL},
                                          .code = {pipeline->source->text, pipeline->source->length}};
    const tg_wgpu_shader_descriptor descriptor = {.next = &source.chain, .label = webgpu_string(NULL)};
    pipeline->module = d->host->api.device_create_shader_module(d->gpu->device, &descriptor);
    if (pipeline->module == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no shader module");
    d->count.objects++;
    return TG_OK;
}
static void pipelines_drop_module(webgpu_device *d, webgpu_pipeline *pipeline) {
    if (pipeline->module == NULL) return;
    d->host->api.shader_module_release(pipeline->module);
    d->count.objects--;
    pipeline->module = NULL;
}
static tg_wgpu_compute_pipeline_descriptor pipelines_describe(const webgpu_device *d, const webgpu_pipeline *pipeline) {
    return (tg_wgpu_compute_pipeline_descriptor){
        .label = webgpu_string(pipeline->source->label),
        .layout = d->gpu->pipeline_layouts[pipeline->source->binding_count],
        .compute = {.module = pipeline->module, .entry = webgpu_string("main")},
    };
}
static tg_status pipelines_no_pipeline(webgpu_device *d) {
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pipeline");
}
static tg_wgpu_compute_pipeline pipelines_create(webgpu_device *d, const webgpu_pipeline *pipeline) {
    const tg_wgpu_compute_pipeline_descriptor descriptor = pipelines_describe(d, pipeline);
    /* the library copies what it needs of a descriptor */
    /* cppcheck-suppress returnDanglingLifetime */
    return d->host->api.device_create_compute_pipeline(d->gpu->device, &descriptor);
}
/* One at a time, each in scopes of its own: then it is known without a callback what an error
 * belongs to. */
static tg_status pipelines_make_one(webgpu_device *d, webgpu_pipeline *pipeline) {
    tg_wgpu_compute_pipeline handle = NULL;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = pipelines_make_module(d, pipeline), waited = TG_OK;
    if (status == TG_OK) handle = pipelines_create(d, pipeline);
    tg_webgpu_scopes_end(d, WEBGPU_SCOPES, &d->scopes);
    for (int i = 0; i < WEBGPU_SCOPES && waited == TG_OK; ++i) waited = tg_webgpu_wait(d, &d->scopes.request[i], "compiling shaders");
    if (status == TG_OK) status = waited;
    for (int i = 0; i < WEBGPU_SCOPES && status == TG_OK; ++i)
        if (d->scopes.request[i].error == TG_WGPU_ERROR_VALIDATION || d->scopes.request[i].error == TG_WGPU_ERROR_INTERNAL)
            status = pipelines_explain(d, pipeline, d->scopes.request[i].text);
    if (status == TG_OK) status = tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &d->scopes, "compiling shaders");
    if (status == TG_OK && handle == NULL) status = pipelines_no_pipeline(d);
    if (status == TG_OK) return pipelines_keep(d, pipeline, handle) ? TG_OK : tg_fail_memory(d->ctx, pipeline->source->length);
    if (handle != NULL) d->host->api.compute_pipeline_release(handle);
    return status;
}

static void pipelines_on_pipeline(uint32_t status, tg_wgpu_compute_pipeline pipeline, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    tg_webgpu_answer(user, status, pipeline, text);
}
static pipelines_batch *pipelines_begin(int32_t count) {
    const size_t requests = sizeof(pipelines_batch) + (size_t)count * sizeof(webgpu_request);
    return calloc(1, requests + (size_t)count * PIPELINES_TEXT);
}
static tg_status pipelines_start(webgpu_device *d, webgpu_bundle *bundle, pipelines_batch *batch, int32_t p) {
    webgpu_pipeline *pipeline = &bundle->pipelines[p];
    webgpu_request *request = &batch->requests[p];
    tg_status status = pipelines_make_module(d, pipeline);
    if (status != TG_OK) return status;
    const tg_wgpu_compute_pipeline_descriptor descriptor = pipelines_describe(d, pipeline);
    tg_webgpu_ask(request, &batch->answers, (char *)&batch->requests[bundle->pipeline_count] + (size_t)p * PIPELINES_TEXT, PIPELINES_TEXT);
    d->host->api.device_create_compute_pipeline_async(
        d->gpu->device, &descriptor,
        (tg_wgpu_pipeline_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = pipelines_on_pipeline, .user = request});
    return TG_OK;
}
/* Collects the pipelines that were asked for. Waits for all of them, even if the first has
 * failed. */
static tg_status pipelines_collect(webgpu_device *d, webgpu_bundle *bundle, const pipelines_batch *batch) {
    tg_status status = TG_OK;
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) {
        tg_status waited = batch->requests[p].answers != NULL ? tg_webgpu_wait(d, &batch->requests[p], "compiling shaders") : TG_OK;
        if (status == TG_OK) status = waited;
    }
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) {
        const webgpu_request *request = &batch->requests[p];
        if (request->answers == NULL || !request->done) continue;
        const bool made = request->status == TG_WGPU_SUCCESS && request->object != NULL;
        if (!made && status == TG_OK) status = pipelines_explain(d, &bundle->pipelines[p], request->text);
        if (!made) continue;
        /* it may be broken in a way that only a scope tells: pipelines are shared only if their
         * batch had no error */
        bundle->pipelines[p].handle = request->object;
    }
    return status;
}
static tg_status pipelines_settle(webgpu_device *d, webgpu_bundle *bundle, const pipelines_batch *batch, tg_status status) {
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) {
        webgpu_pipeline *pipeline = &bundle->pipelines[p];
        tg_wgpu_compute_pipeline handle = pipeline->handle;
        if (batch->requests[p].answers == NULL || handle == NULL) continue;
        pipeline->handle = NULL;
        if (status != TG_OK) d->host->api.compute_pipeline_release(handle);
        else if (!pipelines_keep(d, pipeline, handle)) status = tg_fail_memory(d->ctx, pipeline->source->length);
    }
    return status;
}
static tg_status pipelines_make_all(webgpu_device *d, webgpu_bundle *bundle) {
    pipelines_batch *batch = pipelines_begin(bundle->pipeline_count);
    tg_status status = TG_OK;
    if (batch == NULL) return tg_fail_memory(d->ctx, (size_t)bundle->pipeline_count * PIPELINES_TEXT);
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    for (int32_t p = 0; p < bundle->pipeline_count && status == TG_OK; ++p)
        if (bundle->pipelines[p].cached == NULL) status = pipelines_start(d, bundle, batch, p);
    tg_webgpu_scopes_end(d, WEBGPU_SCOPES, &d->scopes);
    /* knows the kernel; a scope does not */
    tg_status collected = pipelines_collect(d, bundle, batch);
    if (status == TG_OK) status = collected;
    tg_status scopes = tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &d->scopes, "compiling shaders");
    status = pipelines_settle(d, bundle, batch, status != TG_OK ? status : scopes);
    tg_webgpu_bury(d->host, &batch->answers);
    return status;
}
static bool pipelines_are_all_there(const webgpu_bundle *bundle) {
    for (int32_t p = 0; p < bundle->pipeline_count; ++p)
        if (bundle->pipelines[p].cached == NULL) return false;
    return true;
}

tg_status tg_webgpu_make_pipelines(webgpu_device *d, webgpu_bundle *bundle) {
    tg_status status = pipelines_share_layouts(d, bundle);
    if (status != TG_OK) return status;
    pipelines_look_up(d, bundle);
    if (pipelines_are_all_there(bundle)) return TG_OK;
    if (!d->host->wgpu_native && d->host->api.device_create_compute_pipeline_async != NULL) status = pipelines_make_all(d, bundle);
    else
        for (int32_t p = 0; p < bundle->pipeline_count && status == TG_OK; ++p)
            if (bundle->pipelines[p].cached == NULL) status = pipelines_make_one(d, &bundle->pipelines[p]);
    for (int32_t p = 0; p < bundle->pipeline_count; ++p) pipelines_drop_module(d, &bundle->pipelines[p]);
    return status;
}

#undef PIPELINES_KEPT_BYTES
