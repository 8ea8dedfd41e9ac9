/* web: see web.h. Owns what the core remembers of a device and an executable that live in
 * JavaScript, and a replay as JSON. Must not know how JavaScript replays it. */
#include "ir/dtype.h"
#include "run/replay.h"
#include "run/web/web.h"

#if defined(__wasm__)

#  include <string.h>

/* Each executor completes tg_device and tg_executable in its own way. */
typedef struct web_device {
    tg_context *ctx;
    int32_t number;
    tg_replay_limits replay;
    TG_LIST(int32_t) dtypes; /* of states, by slot */
    tg_device_model model;
} web_device;
typedef struct web_executable {
    int32_t number;
    tg_replay replay; /* without texts */
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
    double given[8] = {0}; /* limits of the device that JavaScript has chosen */
    web_device *device = tg_alloc(ctx, sizeof *device);
    if (device == NULL) return TG_ERROR_MEMORY;
    device->ctx = ctx;
    device->number = tg_web_gpu_open(given);
    if (device->number == 0) {
        tg_release(ctx, device, sizeof *device);
        return tg_fail(ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: no device");
    }
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
    device->replay = (tg_replay_limits){&device->model, (int64_t)given[0], (int64_t)given[5]};
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
    char what[TG_REPLAY_NAME];
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    status = tg_replay_check_buffer(device->ctx, device->replay.max_buffer_bytes, tg_replay_state_name(what, name, count),
                                    count * tg_dtype_device_bytes(dtype));
    if (status != TG_OK) return status;
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

/* ---- replays as JSON */

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

static const char *web_comma(int64_t i) { return i > 0 ? "," : ""; }

static void web_json_bytes(tg_text_buffer *json, const int64_t *bytes, int count) {
    for (int i = 0; i < count; i++) tg_text_add(json, "%s%lld", web_comma(i), (long long)bytes[i]);
}
static void web_json_slice(tg_text_buffer *json, tg_replay_slice slice) {
    tg_text_add(json, "[%d,%lld,%lld]", (int)slice.block, (long long)slice.offset, (long long)slice.bytes);
}
static void web_json_slices(tg_text_buffer *json, const tg_replay_slice *slices, int32_t count) {
    tg_text_add(json, "[");
    for (int32_t i = 0; i < count; i++) {
        tg_text_add(json, "%s", web_comma(i));
        web_json_slice(json, slices[i]);
    }
    tg_text_add(json, "]");
}

/* What is sent to the device and read back from it. */
static void web_json_values(tg_text_buffer *json, const tg_replay *replay) {
    const tg_program *program = replay->program;
    tg_text_add(json, "\"inputs\":[");
    for (int32_t i = 0; i < program->input_count; i++) {
        tg_text_add(json, "%s{\"name\":", web_comma(i));
        tg_web_json_text(json, program->inputs[i].name);
        tg_text_add(json, ",\"dtype\":%d,\"count\":%lld,\"to\":%lld}", (int)program->inputs[i].dtype,
                    (long long)tg_shape_count(program->inputs[i].shape), (long long)replay->input_offset[i]);
    }
    tg_text_add(json, "],\"outputs\":[");
    for (int32_t i = 0; i < program->output_count; i++) {
        tg_text_add(json, "%s{\"buffer\":%d,\"dtype\":%d,\"count\":%lld,\"to\":%lld,\"slice\":", web_comma(i),
                    (int)program->outputs[i].buffer, (int)program->outputs[i].dtype, (long long)tg_shape_count(program->outputs[i].shape),
                    (long long)replay->readback_offset[i]);
        web_json_slice(json, tg_replay_output(replay, i));
        tg_text_add(json, "}");
    }
    int64_t constants = 0;
    tg_text_add(json, "],\"constants\":[");
    for (int32_t b = 0; b < program->buffer_count; b++) {
        const tg_buffer *buffer = &program->buffers[b];
        if (buffer->storage != TG_STORAGE_CONSTANT) continue;
        tg_text_add(json, "%s{\"dtype\":%d,\"count\":%lld,\"to\":%lld,\"data\":%lu}", web_comma(constants++), (int)buffer->dtype,
                    (long long)buffer->count, (long long)replay->places[b].offset, (unsigned long)(uintptr_t)buffer->data);
    }
}
static void web_json_stages(tg_text_buffer *json, const tg_replay *replay) {
    tg_text_add(json, "],\"sources\":[");
    for (int32_t s = 0; s < replay->source_count; s++) {
        tg_text_add(json, "%s{\"bindings\":%d,\"label\":", web_comma(s), (int)replay->sources[s].binding_count);
        tg_web_json_text(json, replay->sources[s].label);
        tg_text_add(json, ",\"text\":");
        tg_web_json_text(json, replay->sources[s].text);
        tg_text_add(json, "}");
    }
    tg_text_add(json, "],\"stages\":[");
    for (int32_t s = 0; s < replay->stage_count; s++) {
        const tg_replay_stage *stage = &replay->stages[s];
        tg_text_add(json, "%s{\"source\":%d,\"groups\":[%d,%d,%d],\"slices\":", web_comma(s), (int)stage->source, (int)stage->groups[0],
                    (int)stage->groups[1], (int)stage->groups[2]);
        web_json_slices(json, stage->slices, stage->binding_count);
        tg_text_add(json, ",\"launch\":%d,\"bindings\":[", (int)stage->launch);
        for (int32_t b = 0; b < stage->binding_count; b++) tg_text_add(json, "%s%d", web_comma(b), (int)stage->bindings[b]);
        tg_text_add(json, "],\"label\":");
        tg_web_json_text(json, stage->label);
        tg_text_add(json, "}");
    }
}
/* For people: where each buffer of the program lies. */
static void web_json_buffers(tg_text_buffer *json, const tg_program *program) {
    tg_text_add(json, "],\"buffers\":[");
    for (int32_t b = 0; b < program->buffer_count; b++) {
        const tg_buffer *buffer = &program->buffers[b];
        tg_text_add(json, "%s[%d,%d,%lld,%lld,%d]", web_comma(b), (int)buffer->storage, (int)buffer->dtype, (long long)buffer->count,
                    (long long)buffer->offset, (int)buffer->slot);
    }
    tg_text_add(json, "]");
}

/* Frees the text. */
static tg_status web_give(const web_device *device, tg_text_buffer *json, int32_t (*give)(int32_t device, const char *json),
                          const char *what, int32_t *number) {
    const bool failed = json->failed;
    if (!failed) *number = give(device->number, json->data);
    tg_text_free(json);
    if (failed) return TG_ERROR_MEMORY;
    if (*number != 0) return TG_OK;
    return tg_fail(device->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "webgpu: the device refused %s", what);
}
static tg_status web_hand_over(const web_device *device, web_executable *executable) {
    const tg_replay *replay = &executable->replay;
    tg_text_buffer json;
    tg_text_init(&json, device->ctx);
    tg_text_add(&json, "{\"blocks\":[");
    web_json_bytes(&json, replay->bytes, TG_REPLAY_OWN);
    tg_text_add(&json, "],\"readback\":%lld,", (long long)replay->readback_bytes);
    web_json_values(&json, replay);
    web_json_stages(&json, replay);
    web_json_buffers(&json, replay->program);
    tg_text_add(&json, "}");
    return web_give(device, &json, tg_web_gpu_load, "a program", &executable->number);
}

static tg_status web_load_program(tg_device *opened, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    const web_device *device = web_of(opened);
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    web_executable *executable = tg_alloc(device->ctx, sizeof *executable);
    if (executable == NULL) return TG_ERROR_MEMORY;
    status = tg_replay_make(device->ctx, program, state_slots, &device->replay, &executable->replay);
    if (status == TG_OK) status = web_hand_over(device, executable);
    if (status == TG_OK) {
        tg_replay_drop_texts(&executable->replay);
        *out = (tg_executable *)(void *)executable;
        return TG_OK;
    }
    tg_replay_free(&executable->replay);
    tg_release(device->ctx, executable, sizeof *executable);
    return status;
}
static void web_unload(tg_device *opened, tg_executable *loaded) {
    const web_device *device = web_of(opened);
    if (loaded == NULL) return;
    tg_web_gpu_unload(device->number, tg_web_executable_number(loaded));
    tg_replay_free(&((web_executable *)(void *)loaded)->replay);
    tg_release(device->ctx, loaded, sizeof(web_executable));
}
static int web_dispatches(const tg_executable *executable) {
    return ((const web_executable *)(const void *)executable)->replay.stage_count;
}

/* JavaScript measures the times. */
static tg_status web_time_kernels(tg_device *device, tg_executable *loaded, tg_kernel_time *times, int count) {
    (void)device;
    if (times != NULL) tg_replay_note_workgroups(&((const web_executable *)(const void *)loaded)->replay, times, count);
    return TG_OK;
}

static tg_status web_run(tg_device *device, tg_executable *executable, const void *const *inputs, void *const *outputs) {
    (void)executable, (void)inputs, (void)outputs;
    return TG_INTERNAL(web_of(device)->ctx, "a program on the GPU is run without waiting");
}

/* ---- data sets */

static tg_status web_hand_over_feeder(const web_device *device, const web_executable *executable, const tg_feeder_options *options,
                                      const tg_replay_feeder *replay, web_feeder *feeder) {
    tg_text_buffer json;
    tg_text_init(&json, device->ctx);
    tg_text_add(&json, "{\"executable\":%d,\"blocks\":[", (int)executable->number);
    web_json_bytes(&json, replay->bytes + TG_REPLAY_OWN, TG_REPLAY_BLOCKS - TG_REPLAY_OWN);
    tg_text_add(&json, "],\"arrays\":[");
    for (int32_t i = 0; i < options->count; i++) {
        const tg_feeder_array *array = &options->arrays[i];
        tg_text_add(&json, "%s{\"input\":%d,\"to\":%lld,\"count\":%lld,\"dtype\":%d,\"data\":%lu}", web_comma(i), (int)array->input,
                    (long long)replay->arrays[i].from, (long long)replay->arrays[i].count,
                    (int)executable->replay.program->inputs[array->input].dtype, (unsigned long)(uintptr_t)array->data);
    }
    tg_text_add(&json, "],\"loss\":");
    web_json_slice(&json, replay->loss);
    tg_text_add(&json, ",\"turns\":[");
    web_json_slices(&json, replay->turns[0], replay->draw.binding_count);
    tg_text_add(&json, ",");
    web_json_slices(&json, replay->turns[1], replay->draw.binding_count);
    tg_text_add(&json, "],\"groups\":%d,\"source\":", (int)replay->groups[0]);
    tg_web_json_text(&json, replay->draw.text);
    tg_text_add(&json, "}");
    return web_give(device, &json, tg_web_gpu_feeder, "a data set", &feeder->number);
}
static tg_status web_make_feeder(tg_device *opened, tg_executable *loaded, const tg_feeder_options *options, tg_feeder **out) {
    const web_device *device = web_of(opened);
    const web_executable *executable = (const web_executable *)(const void *)loaded;
    tg_replay_feeder replay;
    tg_status status = web_alive(device);
    if (status != TG_OK) return status;
    web_feeder *feeder = tg_alloc(device->ctx, sizeof *feeder);
    if (feeder == NULL) return TG_ERROR_MEMORY;
    status = tg_replay_make_feeder(device->ctx, &executable->replay, options, &device->replay, &replay);
    if (status == TG_OK) status = web_hand_over_feeder(device, executable, options, &replay, feeder);
    tg_replay_free_feeder(&replay);
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
    .time_kernels = web_time_kernels,
    .run = web_run,
    .make_feeder = web_make_feeder,
    .drop_feeder = web_drop_feeder,
    .run_feeder = web_run_feeder,
};

#else
typedef int tg_web_is_for_wasm; /* C has no empty unit */
#endif
