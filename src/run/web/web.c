/* web: see web.h. Owns what the core remembers of a device and an executable that live in JavaScript, and the description of a program.
 * Must not know how JavaScript replays it. */
#include "run/web/web.h"

#include "emit/emit.h"

#if defined(__wasm__)

#  include <string.h>

/* Each executor completes tg_device and tg_executable its own way. */
typedef struct web_device {
    tg_context *ctx;
    int32_t number;
    int64_t max_binding_bytes, max_buffer_bytes;
    TG_LIST(int32_t) dtypes; /* of states, by slot */
    tg_device_model model;
} web_device;
typedef struct web_executable {
    int32_t number;
    int32_t dispatches;
    const tg_program *program;
} web_executable;
typedef struct web_feeder {
    int32_t number;
} web_feeder;

static web_device *web_of(tg_device *device) { return (web_device *)(void *)device; }
static const web_device *web_of_const(const tg_device *device) { return (const web_device *)(const void *)device; }

int32_t tg_web_executable_number(const tg_executable *executable) { return ((const web_executable *)(const void *)executable)->number; }

int32_t tg_web_feeder_number(const tg_feeder *feeder) { return feeder != NULL ? ((const web_feeder *)(const void *)feeder)->number : 0; }

static tg_status web_alive(const web_device *device) {
    if (!tg_web_gpu_lost(device->number)) return TG_OK;
    return tg_fail(device->ctx, TG_ERROR_DEVICE_LOST, TG_SITE_NONE, "webgpu: the device was lost");
}

/* ---- device */

static tg_status web_open(tg_context *ctx, const tg_open_options *options, tg_device **out) {
    double given[8] = {0}; /* JavaScript has chosen */
    web_device *device = tg_alloc(ctx, sizeof *device);
    if (device == NULL) return TG_ERROR_MEMORY;
    device->ctx = ctx;
    device->number = tg_web_gpu_open(given);
    if (device->number == 0) {
        tg_release(ctx, device, sizeof *device);
        return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no device");
    }
    device->max_binding_bytes = (int64_t)given[0];
    device->max_buffer_bytes = (int64_t)given[5];
    device->model = (tg_device_model){.max_arguments = (int32_t)given[1] - 1,
                                      .max_binding_bytes = (int64_t)given[0],
                                      .in_words = true,
                                      .joins = true,
                                      .invocations = (int32_t)given[2],
                                      .workgroup_bytes = (int32_t)given[3],
                                      .groups = (int32_t)given[4],
                                      .storage_buffers = (int32_t)given[1],
                                      .slow_barriers = given[6] != 0.0,
                                      .f16 = options->f16 && given[7] != 0.0 && given[6] == 0.0,
                                      .rates = &tg_h200_rates};
    *out = (tg_device *)(void *)device;
    return TG_OK;
}
static void web_close(tg_device *opened) {
    if (opened == NULL) return;
    web_device *device = web_of(opened);
    tg_web_gpu_close(device->number);
    tg_release(device->ctx, device->dtypes.items, (size_t)device->dtypes.capacity * sizeof *device->dtypes.items);
    tg_release(device->ctx, device, sizeof *device);
}
static bool web_is_lost(const tg_device *device) { return tg_web_gpu_lost(web_of_const(device)->number) != 0; }
static const char *web_describe(const tg_device *device) {
    (void)device;
    return "webgpu";
}
static const tg_device_model *web_model(const tg_device *device) { return &web_of_const(device)->model; }

/* ---- states */

static tg_status web_make_state(tg_device *opened, int32_t slot, const char *name, tg_dtype dtype, int64_t count) {
    web_device *device = web_of(opened);
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    if (count * 4 > device->max_buffer_bytes)
        return tg_fail(device->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                       "webgpu: %.80s needs %lld bytes, over this device's maxBufferSize of %lld", name, (long long)count * 4,
                       (long long)device->max_buffer_bytes);
    if (!tg_grow(device->ctx, (void **)&device->dtypes.items, &device->dtypes.capacity, slot + 1, sizeof *device->dtypes.items))
        return TG_ERROR_MEMORY;
    device->dtypes.items[slot] = (int32_t)dtype;
    tg_web_gpu_make_state(device->number, slot, (int32_t)dtype, (int32_t)count);
    return TG_OK;
}
static tg_status web_write_state(tg_device *opened, int32_t slot, int64_t first, const void *data, int64_t count) {
    const web_device *device = web_of(opened);
    tg_status status = web_alive(device);
    if (status == TG_OK) tg_web_gpu_write_state(device->number, slot, (int32_t)first, data, (int32_t)count, device->dtypes.items[slot]);
    return status;
}
static tg_status web_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count) {
    (void)slot, (void)first, (void)data, (void)count;
    return TG_INTERNAL(web_of(device)->ctx, "a state on the GPU is read without waiting");
}

/* ---- programs as JSON */

void tg_web_json_text(tg_text_buffer *json, const char *text) {
    tg_text_bytes(json, "\"", 1);
    for (const char *at = text; *at != '\0';) {
        size_t plain = 0;
        while ((unsigned char)at[plain] >= 0x20 && at[plain] != '"' && at[plain] != '\\') plain++;
        tg_text_bytes(json, at, plain);
        at += plain;
        if (*at == '\0') break;
        if (*at == '\n') tg_text_bytes(json, "\\n", 2);
        else tg_text_add(json, "\\u%04x", (unsigned)(unsigned char)*at);
        at++;
    }
    tg_text_bytes(json, "\"", 1);
}

void tg_web_json_shape(tg_text_buffer *json, tg_shape shape) {
    char text[TG_SHAPE_TEXT];
    tg_text_add(json, "%s", tg_shape_text(shape, text, sizeof text));
}

typedef struct web_load {
    const web_device *device;
    const tg_program *program;
    const int32_t *state_slots;
    tg_arena arena; /* of the printed kernels */
    tg_wgsl_kernel *launches;
    const tg_wgsl_stage **stages; /* all, in order */
    int32_t *source_of;           /* per stage */
    int32_t stage_count, source_count;
    int64_t scratch_bytes;
    tg_text_buffer json;
} web_load;

static tg_status web_check_binding(const web_load *l, const tg_kernel *kernel, const char *what, int64_t bytes) {
    if (bytes <= l->device->max_binding_bytes) return TG_OK;
    return tg_fail(l->device->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                   "webgpu: %s (kernel %s) needs %lld bytes, over this device's maxStorageBufferBindingSize of %lld", what, kernel->name,
                   (long long)bytes, (long long)l->device->max_binding_bytes);
}

static tg_status web_check_kernel(const web_load *l, const tg_kernel *kernel) {
    tg_status status = TG_OK;
    for (int32_t a = 0; a < kernel->argument_count && status == TG_OK; a++) {
        const tg_buffer *buffer = &l->program->buffers[kernel->arguments[a].buffer];
        status = web_check_binding(l, kernel, buffer->name != NULL ? buffer->name : "an intermediate result", buffer->count * 4);
    }
    return status;
}

static tg_status web_print_launch(web_load *l, int32_t i) {
    const tg_launch *launch = &l->program->launches[i];
    tg_wgsl_kernel *printed = &l->launches[i];
    tg_status status = tg_emit_wgsl_launch(l->program, i, &l->device->model, &l->arena, printed);
    for (int32_t k = 0; k < launch->count && status == TG_OK; k++) status = web_check_kernel(l, &l->program->kernels[launch->first + k]);
    if (status == TG_OK) status = web_check_binding(l, &l->program->kernels[launch->first], "scratch", printed->scratch_bytes);
    if (printed->scratch_bytes > l->scratch_bytes) l->scratch_bytes = printed->scratch_bytes;
    l->stage_count += printed->stage_count;
    return status;
}

/* Equal sources are one. */
static int32_t web_source(const web_load *l, int32_t stage) {
    for (int32_t s = 0; s < stage; s++)
        if (l->stages[s]->length == l->stages[stage]->length &&
            memcmp(l->stages[s]->source, l->stages[stage]->source, l->stages[s]->length) == 0)
            return l->source_of[s];
    return l->source_count;
}

static tg_status web_print(web_load *l) {
    tg_status status = TG_OK;
    l->launches = TG_NEW(&l->arena, tg_wgsl_kernel, l->program->launch_count + 1);
    if (l->launches == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < l->program->launch_count && status == TG_OK; i++) status = web_print_launch(l, i);
    if (status != TG_OK) return status;
    l->stages = TG_NEW(&l->arena, const tg_wgsl_stage *, l->stage_count + 1);
    l->source_of = TG_NEW(&l->arena, int32_t, l->stage_count + 1);
    if (l->stages == NULL || l->source_of == NULL) return TG_ERROR_MEMORY;
    int32_t stage = 0;
    for (int32_t i = 0; i < l->program->launch_count; i++)
        for (int32_t s = 0; s < l->launches[i].stage_count; s++, stage++) {
            l->stages[stage] = &l->launches[i].stages[s];
            l->source_of[stage] = web_source(l, stage);
            if (l->source_of[stage] == l->source_count) l->source_count++;
        }
    return TG_OK;
}

static const char *web_comma(int64_t i) { return i > 0 ? "," : ""; }

static void web_json_buffers(web_load *l) {
    const tg_program *program = l->program;
    tg_text_add(&l->json, "{\"workspace\":%lld,\"scratch\":%lld,\"inputBlock\":%lld,\"constantBlock\":%lld,\"buffers\":[",
                (long long)program->workspace_bytes, (long long)l->scratch_bytes, (long long)program->input_block_bytes,
                (long long)program->constant_block_bytes);
    for (int32_t b = 0; b < program->buffer_count; b++) {
        const tg_buffer *buffer = &program->buffers[b];
        int32_t slot = buffer->slot;
        if (buffer->storage == TG_STORAGE_STATE) slot = l->state_slots[slot];
        if (buffer->storage == TG_STORAGE_WORKSPACE) slot = buffer->first < 0 ? -1 : 0;
        tg_text_add(&l->json, "%s[%d,%d,%lld,%lld,%d,%lu]", web_comma(b), (int)buffer->storage, (int)buffer->dtype,
                    (long long)buffer->count, (long long)buffer->offset, (int)slot, (unsigned long)(uintptr_t)buffer->data);
    }
    tg_text_add(&l->json, "],\"inputs\":[");
    for (int32_t i = 0; i < program->input_count; i++) {
        tg_text_add(&l->json, "%s{\"name\":", web_comma(i));
        tg_web_json_text(&l->json, program->inputs[i].name);
        tg_text_add(&l->json, ",\"dtype\":%d,\"count\":%lld}", (int)program->inputs[i].dtype,
                    (long long)tg_shape_count(program->inputs[i].shape));
    }
    tg_text_add(&l->json, "],\"outputs\":[");
    for (int32_t i = 0; i < program->output_count; i++)
        tg_text_add(&l->json, "%s{\"buffer\":%d,\"dtype\":%d,\"count\":%lld}", web_comma(i), (int)program->outputs[i].buffer,
                    (int)program->outputs[i].dtype, (long long)tg_shape_count(program->outputs[i].shape));
}

static void web_json_sources(web_load *l) {
    int32_t written = 0;
    tg_text_add(&l->json, "],\"sources\":[");
    for (int32_t s = 0; s < l->stage_count; s++) {
        if (l->source_of[s] != written) continue;
        tg_text_add(&l->json, "%s", web_comma(written++));
        tg_web_json_text(&l->json, l->stages[s]->source);
    }
}

static void web_json_stages(web_load *l) {
    int32_t stage = 0;
    tg_text_add(&l->json, "],\"stages\":[");
    for (int32_t i = 0; i < l->program->launch_count; i++)
        for (int32_t s = 0; s < l->launches[i].stage_count; s++, stage++) {
            const tg_wgsl_stage *printed = l->stages[stage];
            tg_text_add(&l->json, "%s{\"source\":%d,\"groups\":[%d,%d,%d],\"scratch\":%lld,\"bindings\":[", web_comma(stage),
                        (int)l->source_of[stage], (int)printed->groups[0], (int)printed->groups[1], (int)printed->groups[2],
                        (long long)l->launches[i].scratch_bytes);
            for (int32_t b = 0; b < printed->binding_count; b++) {
                int32_t binding = printed->bindings[b];
                if (binding <= TG_WGSL_STATE(0)) binding = TG_WGSL_STATE(l->state_slots[TG_WGSL_STATE_SLOT(binding)]);
                tg_text_add(&l->json, "%s%d", web_comma(b), (int)binding);
            }
            tg_text_add(&l->json, "],\"label\":");
            tg_web_json_text(&l->json, l->program->kernels[l->program->launches[i].first].name);
            tg_text_add(&l->json, "}");
        }
    tg_text_add(&l->json, "]}");
}

static tg_status web_hand_over(web_load *l, web_executable *executable) {
    web_json_buffers(l);
    web_json_sources(l);
    web_json_stages(l);
    if (l->json.failed) return TG_ERROR_MEMORY;
    executable->dispatches = l->stage_count;
    executable->number = tg_web_gpu_load(l->device->number, l->json.data);
    if (executable->number != 0) return TG_OK;
    return tg_fail(l->device->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device refused a program");
}

static tg_status web_load_program(tg_device *opened, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    const web_device *device = web_of(opened);
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    web_executable *executable = tg_alloc(device->ctx, sizeof *executable);
    if (executable == NULL) return TG_ERROR_MEMORY;
    executable->program = program;
    web_load l = {.device = device, .program = program, .state_slots = state_slots};
    tg_arena_init(&l.arena, device->ctx);
    tg_text_init(&l.json, device->ctx);
    status = web_print(&l);
    if (status == TG_OK) status = web_hand_over(&l, executable);
    tg_text_free(&l.json);
    tg_arena_free(&l.arena);
    if (status == TG_OK) *out = (tg_executable *)(void *)executable;
    else tg_release(device->ctx, executable, sizeof *executable);
    return status;
}
static void web_unload(tg_device *opened, tg_executable *loaded) {
    const web_device *device = web_of(opened);
    if (loaded == NULL) return;
    tg_web_gpu_unload(device->number, tg_web_executable_number(loaded));
    tg_release(device->ctx, loaded, sizeof(web_executable));
}
static int web_dispatches(const tg_executable *executable) { return ((const web_executable *)(const void *)executable)->dispatches; }

static tg_status web_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    (void)executable, (void)inputs, (void)outputs;
    return TG_INTERNAL(web_of(device)->ctx, "a program on the GPU is run without waiting");
}

/* ---- data sets */

/* Word where an input begins in the block of inputs; -1: no buffer is made of it. */
static int64_t web_input_word(const tg_program *program, int32_t input) {
    for (int32_t b = 0; b < program->buffer_count; b++)
        if (program->buffers[b].storage == TG_STORAGE_INPUT && program->buffers[b].slot == input) return program->buffers[b].offset / 4;
    return -1;
}

/* The arrays as the kernel wants them, and as JavaScript does. Returns how many are drawn; *words gets what they take. */
static int32_t web_lay_out(const tg_program *program, const tg_feeder_options *options, tg_draw_array *arrays, int64_t *words,
                           tg_text_buffer *json) {
    int32_t count = 0;
    *words = 0;
    for (int32_t i = 0; i < options->count; i++) {
        const tg_feeder_array *array = &options->arrays[i];
        const int64_t elements = array->row * options->rows, to = web_input_word(program, array->input);
        tg_text_add(json, "%s{\"input\":%d,\"from\":%lld,\"count\":%lld,\"dtype\":%d,\"data\":%lu}", web_comma(i), (int)array->input,
                    to >= 0 ? (long long)*words : -1LL, (long long)elements, (int)program->inputs[array->input].dtype,
                    (unsigned long)(uintptr_t)array->data);
        if (to < 0) continue;
        arrays[count++] = (tg_draw_array){*words, to, array->row};
        *words += (elements + 63) / 64 * 64;
    }
    return count;
}

/* The kernel that draws binds them whole. */
static tg_status web_check_fed(const web_device *device, const char *what, int64_t bytes) {
    if (bytes <= device->max_binding_bytes) return TG_OK;
    return tg_fail(device->ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                   "webgpu: %s needs %lld bytes, over this device's maxStorageBufferBindingSize of %lld", what, (long long)bytes,
                   (long long)device->max_binding_bytes);
}

static tg_status web_describe_feeder(const web_device *device, const web_executable *executable, const tg_feeder_options *options,
                                     tg_arena *arena, tg_text_buffer *json) {
    const tg_program *program = executable->program;
    const int32_t loss = program->outputs[0].buffer;
    tg_draw_array *arrays = TG_NEW(arena, tg_draw_array, options->count + 1);
    tg_wgsl_stage stage;
    int64_t words = 0;
    if (arrays == NULL) return TG_ERROR_MEMORY;
    tg_text_add(json, "{\"executable\":%d,\"loss\":%d,\"arrays\":[", (int)executable->number, (int)loss);
    const int32_t count = web_lay_out(program, options, arrays, &words, json);
    tg_status status = web_check_fed(device, "the data set", words * 4);
    if (status == TG_OK) status = web_check_fed(device, "a batch with the inputs beside it", program->input_block_bytes);
    if (status != TG_OK) return status;
    status = tg_emit_wgsl_draw(arrays, count, options->rows, options->batch, &device->model, arena, &stage);
    if (status != TG_OK) return status;
    tg_text_add(json, "],\"words\":%lld,\"groups\":%d,\"source\":", (long long)words, (int)stage.groups[0]);
    tg_web_json_text(json, stage.source);
    tg_text_add(json, "}");
    return json->failed ? TG_ERROR_MEMORY : TG_OK;
}

static tg_status web_make_feeder(tg_device *opened, tg_executable *loaded, const tg_feeder_options *options, tg_feeder **out) {
    const web_device *device = web_of(opened);
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    web_feeder *feeder = tg_alloc(device->ctx, sizeof *feeder);
    tg_arena arena;
    tg_text_buffer json;
    if (feeder == NULL) return TG_ERROR_MEMORY;
    tg_arena_init(&arena, device->ctx);
    tg_text_init(&json, device->ctx);
    status = web_describe_feeder(device, (const web_executable *)(const void *)loaded, options, &arena, &json);
    if (status == TG_OK) feeder->number = tg_web_gpu_feeder(device->number, json.data);
    tg_text_free(&json);
    tg_arena_free(&arena);
    if (status == TG_OK && feeder->number == 0)
        status = tg_fail(device->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device refused a data set");
    if (status == TG_OK) *out = (tg_feeder *)(void *)feeder;
    else tg_release(device->ctx, feeder, sizeof *feeder);
    return status;
}
static void web_drop_feeder(tg_device *opened, tg_feeder *feeder) {
    const web_device *device = web_of(opened);
    tg_web_gpu_drop_feeder(device->number, tg_web_feeder_number(feeder));
    tg_release(device->ctx, feeder, sizeof(web_feeder));
}
static tg_status web_run_feeder(tg_device *device, tg_feeder *feeder, const tg_feeder_run *run, float *losses, int64_t *count) {
    (void)feeder, (void)run, (void)losses, (void)count;
    return TG_INTERNAL(web_of(device)->ctx, "steps on the GPU are run without waiting");
}

const tg_executor tg_webgpu_executor = {
    .kind = "webgpu",
    .can_be_lost = true,
    .wgsl = true,
    .asynchronous = true,
    .open = web_open,
    .is_lost = web_is_lost,
    .close = web_close,
    .describe = web_describe,
    .adapter = web_describe,
    .model = web_model,
    .make_state = web_make_state,
    .write_state = web_write_state,
    .read_state = web_read_state,
    .load = web_load_program,
    .unload = web_unload,
    .dispatches = web_dispatches,
    .run = web_run,
    .make_feeder = web_make_feeder,
    .drop_feeder = web_drop_feeder,
    .run_feeder = web_run_feeder,
};

#else
typedef int tg_web_is_for_wasm; /* an empty unit is no C */
#endif
