/* pipelines: layouts, shader modules and compute pipelines of an executable: all compiled at once where the library can, and what
 * a shader's compiler says, beside the shader. Layouts are explicit, since an automatic one leaves out what a shader does not
 * use. Must not know how programs are placed. */
#include "run/webgpu/device.h"

#include <stdio.h>
#include <string.h>

enum { PIPELINES_TEXT = 1024 };

typedef struct pipelines_batch { /* requests of one load, followed by their texts */
    webgpu_abandoned block;
    webgpu_request requests[];
} pipelines_batch;

/* ---- what the compiler says */

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
}
/* Into d->text, "" when it has nothing to say. Returns the line of the first error, or 0. */
static uint64_t pipelines_ask(webgpu_device *d, tg_wgpu_shader_module module) {
    d->text[0] = '\0';
    if (module == NULL || d->wgpu_native || d->api.shader_module_get_compilation_info == NULL) return 0;
    d->opening = (webgpu_request){.text = d->text, .room = sizeof d->text};
    d->api.shader_module_get_compilation_info(
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
    int64_t begin = line >= 1 && (int64_t)line <= count ? (int64_t)line : 1, end = begin; /* [begin, end) */
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
static tg_status pipelines_explain(webgpu_executable *e, const webgpu_pipeline *pipeline, const char *said) {
    webgpu_device *d = e->device;
    char *text = tg_arena_alloc(&e->arena, TG_MESSAGE_MAX);
    if (text == NULL) return TG_ERROR_MEMORY;
    const uint64_t line = pipelines_ask(d, pipeline->module);
    if (d->text[0] != '\0') said = d->text;
    const size_t taken = strlen(said) + strlen(d->name) + strlen(e->program->kernels[pipeline->kernel].name) + 128;
    if (taken < TG_MESSAGE_MAX) pipelines_number(pipeline->source, line, text, TG_MESSAGE_MAX - taken);
    return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the shader of kernel %d (%s) does not compile on %s:\n%s\n%s",
                   (int)pipeline->kernel, e->program->kernels[pipeline->kernel].name, d->name, said, text);
}

/* ---- layouts */

static tg_status pipelines_make_layout(webgpu_executable *e, int32_t count) {
    webgpu_device *d = e->device;
    tg_wgpu_layout_entry entries[TG_WEBGPU_MAX_BINDINGS];
    tg_wgpu_layout_entry_old old[TG_WEBGPU_MAX_BINDINGS];
    const tg_wgpu_buffer_layout buffer = {.type = TG_WGPU_BINDING_STORAGE};
    if (e->layouts[count] != NULL) return TG_OK;
    for (uint32_t i = 0; i < (uint32_t)count; ++i) {
        entries[i] = (tg_wgpu_layout_entry){.binding = i, .visibility = TG_WGPU_STAGE_COMPUTE, .buffer = buffer};
        old[i] = (tg_wgpu_layout_entry_old){.binding = i, .visibility = TG_WGPU_STAGE_COMPUTE, .buffer = buffer};
    }
    const tg_wgpu_bind_group_layout_descriptor groups = {
        .label = webgpu_string(NULL), .count = (size_t)count, .entries = d->old_layout_entry ? (const void *)old : (const void *)entries};
    e->layouts[count] = d->api.device_create_bind_group_layout(d->device, &groups);
    if (e->layouts[count] == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no layout for %d buffers", (int)count);
    d->count.objects++;
    const tg_wgpu_pipeline_layout_descriptor layout = {.label = webgpu_string(NULL), .count = 1, .layouts = &e->layouts[count]};
    e->pipeline_layouts[count] = d->api.device_create_pipeline_layout(d->device, &layout);
    if (e->pipeline_layouts[count] == NULL)
        return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no pipeline layout for %d buffers", (int)count);
    d->count.objects++;
    return TG_OK;
}
static tg_status pipelines_make_layouts(webgpu_executable *e) {
    tg_status status = TG_OK;
    tg_webgpu_scopes_push(e->device, WEBGPU_SCOPES);
    for (int32_t p = 0; status == TG_OK && p < e->pipeline_count; ++p) status = pipelines_make_layout(e, e->pipelines[p].binding_count);
    tg_status scopes = tg_webgpu_scopes_pop(e->device, WEBGPU_SCOPES, "making layouts");
    return status != TG_OK ? status : scopes;
}

/* ---- pipelines */

static tg_status pipelines_make_module(webgpu_device *d, webgpu_pipeline *pipeline) {
    const tg_wgpu_shader_source source = {.chain = {.type = TG_WGPU_STYPE_WGSL}, .code = {pipeline->source, pipeline->length}};
    const tg_wgpu_shader_descriptor descriptor = {.next = &source.chain, .label = webgpu_string(NULL)};
    pipeline->module = d->api.device_create_shader_module(d->device, &descriptor);
    if (pipeline->module == NULL) return tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no shader module");
    d->count.objects++;
    return TG_OK;
}
static void pipelines_drop_module(webgpu_device *d, webgpu_pipeline *pipeline) {
    if (pipeline->module == NULL) return;
    d->api.shader_module_release(pipeline->module);
    d->count.objects--;
    pipeline->module = NULL;
}
static void pipelines_keep(webgpu_device *d, webgpu_pipeline *pipeline, tg_wgpu_compute_pipeline handle) {
    pipeline->handle = handle;
    if (handle == NULL) return;
    d->count.objects++;
    d->count.pipelines++;
}
static tg_wgpu_compute_pipeline_descriptor pipelines_describe(const webgpu_executable *e, const webgpu_pipeline *pipeline) {
    return (tg_wgpu_compute_pipeline_descriptor){
        .label = webgpu_string(e->program->kernels[pipeline->kernel].name),
        .layout = e->pipeline_layouts[pipeline->binding_count],
        .compute = {.module = pipeline->module, .entry = webgpu_string("main")},
    };
}
/* One at a time, each in scopes of its own: what an error belongs to is then known without a callback. */
static tg_status pipelines_make_one(webgpu_executable *e, webgpu_pipeline *pipeline) {
    webgpu_device *d = e->device;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    tg_status status = pipelines_make_module(d, pipeline), waited = TG_OK;
    if (status == TG_OK) {
        const tg_wgpu_compute_pipeline_descriptor descriptor = pipelines_describe(e, pipeline);
        pipelines_keep(d, pipeline, d->api.device_create_compute_pipeline(d->device, &descriptor));
    }
    tg_webgpu_scopes_end(d, WEBGPU_SCOPES, &d->scopes);
    for (int i = 0; i < WEBGPU_SCOPES && waited == TG_OK; ++i) waited = tg_webgpu_wait(d, &d->scopes.request[i], "compiling shaders");
    if (status == TG_OK) status = waited;
    for (int i = 0; i < WEBGPU_SCOPES && status == TG_OK; ++i)
        if (d->scopes.request[i].error == TG_WGPU_ERROR_VALIDATION || d->scopes.request[i].error == TG_WGPU_ERROR_INTERNAL)
            status = pipelines_explain(e, pipeline, d->scopes.request[i].text);
    if (status == TG_OK) status = tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &d->scopes, "compiling shaders");
    if (status == TG_OK && pipeline->handle == NULL) status = tg_fail(d->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no compute pipeline");
    return status;
}

static void pipelines_on_pipeline(uint32_t status, tg_wgpu_compute_pipeline pipeline, tg_wgpu_string text, void *user, void *more) {
    (void)more;
    tg_webgpu_answer(user, status, pipeline, text);
}
static pipelines_batch *pipelines_begin(webgpu_device *d, int32_t count) {
    const size_t requests = sizeof(pipelines_batch) + (size_t)count * sizeof(webgpu_request);
    const size_t bytes = requests + (size_t)count * PIPELINES_TEXT;
    pipelines_batch *batch = tg_alloc(d->ctx, bytes);
    if (batch == NULL) return NULL;
    batch->block.bytes = bytes;
    for (int32_t p = 0; p < count; ++p)
        batch->requests[p] = (webgpu_request){.text = (char *)batch + requests + (size_t)p * PIPELINES_TEXT, .room = PIPELINES_TEXT};
    return batch;
}
static tg_status pipelines_start(webgpu_executable *e, webgpu_pipeline *pipeline, webgpu_request *request) {
    webgpu_device *d = e->device;
    tg_status status = pipelines_make_module(d, pipeline);
    if (status != TG_OK) return status;
    const tg_wgpu_compute_pipeline_descriptor descriptor = pipelines_describe(e, pipeline);
    d->api.device_create_compute_pipeline_async(
        d->device, &descriptor,
        (tg_wgpu_pipeline_callback){.mode = TG_WGPU_MODE_PROCESS_EVENTS, .call = pipelines_on_pipeline, .user = request});
    return TG_OK;
}
/* Waits for the first `started`, keeps what came of them. A batch that is not answered in full is left to the device. */
static tg_status pipelines_collect(webgpu_executable *e, pipelines_batch *batch, int32_t started) {
    webgpu_device *d = e->device;
    tg_status status = TG_OK;
    bool answered = true;
    for (int32_t p = 0; p < started; ++p) {
        tg_status waited = tg_webgpu_wait(d, &batch->requests[p], "compiling shaders");
        if (status == TG_OK) status = waited;
        answered = answered && batch->requests[p].done;
        if (batch->requests[p].done) pipelines_keep(d, &e->pipelines[p], batch->requests[p].object);
    }
    for (int32_t p = 0; p < started && status == TG_OK; ++p)
        if (batch->requests[p].status != TG_WGPU_SUCCESS || e->pipelines[p].handle == NULL)
            status = pipelines_explain(e, &e->pipelines[p], batch->requests[p].text);
    if (answered) {
        tg_release(d->ctx, batch, batch->block.bytes);
    } else {
        batch->block.next = d->abandoned;
        d->abandoned = &batch->block;
    }
    return status;
}
static tg_status pipelines_make_all(webgpu_executable *e) {
    webgpu_device *d = e->device;
    pipelines_batch *batch = pipelines_begin(d, e->pipeline_count);
    tg_status status = TG_OK;
    int32_t started = 0;
    if (batch == NULL) return TG_ERROR_MEMORY;
    tg_webgpu_scopes_push(d, WEBGPU_SCOPES);
    while (status == TG_OK && started < e->pipeline_count) {
        status = pipelines_start(e, &e->pipelines[started], &batch->requests[started]);
        if (status == TG_OK) started++;
    }
    tg_webgpu_scopes_end(d, WEBGPU_SCOPES, &d->scopes);
    tg_status collected = pipelines_collect(e, batch, started); /* knows the kernel, which a scope does not */
    if (status == TG_OK) status = collected;
    tg_status scopes = tg_webgpu_scopes_report(d, WEBGPU_SCOPES, &d->scopes, "compiling shaders");
    return status != TG_OK ? status : scopes;
}

tg_status tg_webgpu_make_pipelines(webgpu_executable *e) {
    webgpu_device *d = e->device;
    tg_status status = pipelines_make_layouts(e);
    if (status == TG_OK && e->pipeline_count > 0 && !d->wgpu_native && d->api.device_create_compute_pipeline_async != NULL)
        status = pipelines_make_all(e);
    else
        for (int32_t p = 0; p < e->pipeline_count && status == TG_OK; ++p) status = pipelines_make_one(e, &e->pipelines[p]);
    for (int32_t p = 0; p < e->pipeline_count; ++p) pipelines_drop_module(d, &e->pipelines[p]);
    return status;
}
