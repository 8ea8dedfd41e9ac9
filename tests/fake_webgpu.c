/* fake_webgpu: see fake_webgpu.h. Objects stay in memory after their last release, so that a late
 * use is noticed and reported. */
#include "fake_webgpu.h"

#include "run/webgpu/proof.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum fake_kind {
    FAKE_INSTANCE,
    FAKE_ADAPTER,
    FAKE_DEVICE,
    FAKE_QUEUE,
    FAKE_BUFFER,
    FAKE_MODULE,
    FAKE_LAYOUT,
    FAKE_PIPELINE_LAYOUT,
    FAKE_GROUP,
    FAKE_PIPELINE,
    FAKE_ENCODER,
    FAKE_PASS,
    FAKE_COMMANDS
} fake_kind;
static const char *const fake_kind_names[] = {
    "instance",        "adapter",    "device",   "queue",           "buffer", "shader module", "bind group layout",
    "pipeline layout", "bind group", "pipeline", "command encoder", "pass",   "command buffer"};

enum { FAKE_MAGIC = 0x6a57, FAKE_BINDINGS = 64, FAKE_SCOPES = 8, FAKE_DEFAULT = -1 };
enum { FAKE_NUMBER_F16 = 0x0B, FAKE_NUMBER_MATRICES = 0x50034 }; /* in the newer arrangement */
enum { FAKE_UNMAPPED, FAKE_MAP_PENDING, FAKE_MAPPED };

typedef struct fake_object fake_object;

typedef struct fake_binding {
    fake_object *buffer;
    uint64_t offset, size;
    uint32_t number;
} fake_binding;

typedef struct fake_command { /* a dispatch when there is a pipeline, else a copy */
    fake_object *pipeline, *group, *source, *destination;
    uint32_t groups[3];
    uint64_t source_offset, destination_offset, size;
    struct fake_command *next;
} fake_command;

typedef struct fake_scope {
    uint32_t filter, error;
    char message[256];
} fake_scope;

struct fake_object {
    int magic;
    fake_kind kind;
    int64_t references;
    bool broken, destroyed, lost, finished, ended, submitted;
    fake_object *device, *next;
    char label[64], why[256]; /* why a command encoder is broken */
    const fake_adapter *adapter;
    bool unsafe;        /* adapter: asked for so */
    bool f16, matrices; /* device: granted */
    /* device */
    tg_wgpu_limits limits;
    tg_wgpu_lost_callback on_lost;
    tg_wgpu_error_callback on_error;
    fake_scope scopes[FAKE_SCOPES];
    int scope_count;
    fake_object *queue;
    /* buffer */
    uint8_t *data, *mapped;
    uint64_t size, usage, map_offset, map_size;
    int map_state;
    /* module, pipeline */
    char *source;
    fake_object *layout; /* pipeline: pipeline layout; pipeline layout, group: bind group layout */
    /* layout: numbers; group: ranges */
    fake_binding bindings[FAKE_BINDINGS];
    int binding_count;
    /* pass, encoder, command buffer */
    fake_object *encoder, *open_pass, *set_pipeline, *set_group;
    fake_command *commands, **tail;
};

typedef enum fake_answer {
    FAKE_TO_ADAPTER,
    FAKE_TO_DEVICE,
    FAKE_TO_MAP,
    FAKE_TO_PIPELINE,
    FAKE_TO_SCOPE,
    FAKE_TO_LOST,
    FAKE_TO_INFO,
    FAKE_TO_ERROR
} fake_answer;
typedef union fake_function {
    tg_wgpu_adapter_fn adapter;
    tg_wgpu_device_fn device;
    tg_wgpu_map_fn map;
    tg_wgpu_pipeline_fn pipeline;
    tg_wgpu_scope_fn scope;
    tg_wgpu_lost_fn lost;
    tg_wgpu_compilation_fn info;
    tg_wgpu_error_fn error;
} fake_function;

typedef struct fake_event { /* an answer on its way */
    fake_answer to;
    fake_function call;
    void *user, *more;
    uint32_t status, error;
    fake_object *object; /* what is handed over; a map: the buffer; else the device */
    char message[256];
    int wait;
    struct fake_event *next;
} fake_event;

static struct {
    fake_options options;
    fake_counts counts;
    fake_adapter standard;
    fake_object *objects;
    fake_event *events;
    tg_webgpu_api api;
    char mistake[512];
    int64_t fail_at, lose_at, asked_pipelines;
    int way, asks;
} fake;

/* ---------------------------------------------------------------- mistakes, counting */

static void fake_mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fake_mistake(const char *format, ...) {
    va_list arguments;
    fake.counts.mistakes++;
    if (fake.mistake[0] != '\0') return;
    va_start(arguments, format);
    vsnprintf(fake.mistake, sizeof fake.mistake, format, arguments);
    va_end(arguments);
}

static void fake_lose_device(fake_object *device, uint32_t reason, const char *message);

static void fake_count(fake_call call) {
    fake.counts.calls++;
    fake.counts.of[call]++;
    if (fake.lose_at > 0 && --fake.lose_at == 0) fake_webgpu_lose();
}

static bool fake_any_lost(void) {
    for (const fake_object *o = fake.objects; o != NULL; o = o->next)
        if (o->kind == FAKE_DEVICE && o->references > 0 && o->lost) return true;
    return false;
}

/* The way in which this call fails, FAKE_DEFAULT: it does not. */
static int fake_enter(fake_call call) {
    fake_count(call);
    fake.counts.failable++;
    if (fake.fail_at == 0 || --fake.fail_at > 0) return FAKE_DEFAULT;
    fake.counts.failed = true;
    fake.counts.failed_call = call;
    fake.counts.failed_lost = fake_any_lost();
    return fake.way;
}

static fake_object *fake_new(fake_kind kind, fake_object *device) {
    fake_object *o = calloc(1, sizeof *o);
    o->magic = FAKE_MAGIC;
    o->kind = kind;
    o->references = 1;
    o->device = device;
    o->tail = &o->commands;
    o->next = fake.objects;
    fake.objects = o;
    fake.counts.live++;
    return o;
}

/* The object of a handle; NULL (a mistake) unless it is a live object of that kind. */
static fake_object *fake_use(void *handle, fake_kind kind, const char *where) {
    fake_object *o = handle;
    if (o == NULL) fake_mistake("%s: NULL where a %s belongs", where, fake_kind_names[kind]);
    else if (o->magic != FAKE_MAGIC || o->kind != kind) fake_mistake("%s: this is no %s", where, fake_kind_names[kind]);
    else if (o->references <= 0) fake_mistake("%s: %s '%s' was released before", where, fake_kind_names[kind], o->label);
    else return o;
    return NULL;
}

static void fake_release(void *handle, fake_kind kind, const char *where) {
    fake_object *o = fake_use(handle, kind, where);
    if (o == NULL || --o->references > 0) return;
    fake.counts.live--;
    if (kind != FAKE_BUFFER) return;
    fake.counts.live_buffers--;
    fake.counts.live_buffer_bytes -= (int64_t)o->size;
}

static void fake_copy_text(char *to, size_t size, tg_wgpu_string from) {
    size_t length = from.data == NULL ? 0 : from.length == SIZE_MAX ? strlen(from.data) : from.length;
    if (length >= size) length = size - 1;
    if (length > 0) memcpy(to, from.data, length);
    to[length] = '\0';
}

/* Exactly as long as the text: a reader that wants a NUL runs off its end. */
static tg_wgpu_string fake_text(const char *text) {
    const size_t length = strlen(text);
    char *copy = malloc(length > 0 ? length : 1);
    memcpy(copy, text, length);
    return (tg_wgpu_string){copy, length};
}

static void fake_free_text(tg_wgpu_string text) { free((void *)(uintptr_t)text.data); }

/* ---------------------------------------------------------------- answers */

static void fake_deliver(fake_event *e) {
    const tg_wgpu_string text = fake_text(e->message);
    void *handle = e->object;
    const tg_wgpu_device device = (tg_wgpu_device)handle;
    switch (e->to) {
    case FAKE_TO_ADAPTER: e->call.adapter(e->status, (tg_wgpu_adapter)handle, text, e->user, e->more); break;
    case FAKE_TO_DEVICE: e->call.device(e->status, (tg_wgpu_device)handle, text, e->user, e->more); break;
    case FAKE_TO_MAP: e->call.map(e->status, text, e->user, e->more); break;
    case FAKE_TO_PIPELINE: e->call.pipeline(e->status, (tg_wgpu_compute_pipeline)handle, text, e->user, e->more); break;
    case FAKE_TO_SCOPE: e->call.scope(e->status, e->error, text, e->user, e->more); break;
    case FAKE_TO_LOST: e->call.lost(&device, e->status, text, e->user, e->more); break;
    case FAKE_TO_ERROR: e->call.error(&device, e->error, text, e->user, e->more); break;
    case FAKE_TO_INFO: {
        const tg_wgpu_message message = {NULL, text, TG_WGPU_MESSAGE_ERROR, 3, 7, 40, 2};
        const tg_wgpu_compilation_info info = {NULL, e->message[0] != '\0' ? 1 : 0, &message};
        e->call.info(e->status, e->status == TG_WGPU_SUCCESS ? &info : NULL, e->user, e->more);
        break;
    }
    }
    fake_free_text(text);
}

/* A map's answer changes the buffer at the moment it comes. */
static void fake_settle_map(fake_event *e) {
    fake_object *b = e->object;
    if (b->map_state != FAKE_MAP_PENDING) return;
    if (e->status == TG_WGPU_SUCCESS && (b->device->lost || b->destroyed)) {
        e->status = 4;
        snprintf(e->message, sizeof e->message, "%s", b->device->lost ? "the device is lost" : "the buffer was destroyed");
    }
    b->map_state = e->status == TG_WGPU_SUCCESS ? FAKE_MAPPED : FAKE_UNMAPPED;
    if (b->map_state != FAKE_MAPPED) return;
    b->mapped = malloc(b->map_size > 0 ? b->map_size : 1);
    memcpy(b->mapped, b->data + b->map_offset, b->map_size);
}

static void fake_fire(fake_event *e) {
    if (e->to == FAKE_TO_MAP) fake_settle_map(e);
    if (e->call.map != NULL) fake_deliver(e);
    free(e);
}

static void fake_post(fake_answer to, fake_function call, void *user, void *more, uint32_t status, uint32_t error, fake_object *object,
                      const char *message) {
    fake_event *e = calloc(1, sizeof *e), **at = &fake.events;
    *e = (fake_event){to, call, user, more, status, error, object, "", fake.options.delay, NULL};
    snprintf(e->message, sizeof e->message, "%s", message);
    /* wgpu-native answers inside the call, except for maps */
    if (fake.options.at_once || (fake.options.flavour == FAKE_NATIVE && to != FAKE_TO_MAP)) {
        fake_fire(e);
        return;
    }
    while (*at != NULL) at = &(*at)->next;
    *at = e;
}

/* What is there now and has waited long enough; what its receivers ask for comes the next time. */
static void fake_answer_all(void) {
    fake_event *now = fake.events, *later = NULL, **tail = &later;
    fake.events = NULL;
    fake.asked_pipelines = 0;
    while (now != NULL) {
        fake_event *e = now;
        now = e->next;
        e->next = NULL;
        if (e->wait-- > 0) {
            *tail = e;
            tail = &e->next;
            continue;
        }
        fake_fire(e);
    }
    *tail = fake.events;
    fake.events = later;
}

/* ---------------------------------------------------------------- errors and loss */

static void fake_raise(fake_object *device, uint32_t error, const char *message) {
    if (device == NULL || device->lost) return;
    for (int i = device->scope_count - 1; i >= 0; i--) {
        fake_scope *s = &device->scopes[i];
        if (s->filter != error - 1) continue;
        if (s->error != TG_WGPU_ERROR_NONE) return;
        s->error = error;
        snprintf(s->message, sizeof s->message, "%s", message);
        return;
    }
    if (device->on_error.call == NULL) return;
    fake_post(FAKE_TO_ERROR, (fake_function){.error = device->on_error.call}, device->on_error.user, device->on_error.more, 0, error,
              device, message);
}

/* A use that a validator refuses: the program's mistake. */
static void fake_refuse(fake_object *device, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fake_refuse(fake_object *device, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fake_mistake("%s", text);
    fake_raise(device, TG_WGPU_ERROR_VALIDATION, text);
}

/* The error of a failure that was asked for: way 1 validation, 2 memory, 3 internal; 0 validation too. */
static void fake_raise_way(fake_object *device, int way, fake_call call) {
    char text[256];
    snprintf(text, sizeof text, "the fake fails %s in way %d", fake_webgpu_call_name(call), way);
    fake_raise(device, way == 2 ? TG_WGPU_ERROR_MEMORY : way == 3 ? TG_WGPU_ERROR_INTERNAL : TG_WGPU_ERROR_VALIDATION, text);
}

static void fake_lose_device(fake_object *device, uint32_t reason, const char *message) {
    if (device->lost) return;
    device->lost = true;
    fake.counts.lost = true;
    fake_post(FAKE_TO_LOST, (fake_function){.lost = device->on_lost.call}, device->on_lost.user, device->on_lost.more, reason, 0, device,
              message);
}

void fake_webgpu_lose(void) {
    for (fake_object *o = fake.objects; o != NULL; o = o->next)
        if (o->kind == FAKE_DEVICE && o->references > 0) fake_lose_device(o, TG_WGPU_LOST_UNKNOWN, "the fake pulls the plug");
}

/* NULL, or an object that is broken from the start with its error raised; `way` FAKE_DEFAULT: a good one. */
static fake_object *fake_create(fake_kind kind, fake_object *device, int way, fake_call call) {
    if (way == 0) return NULL;
    fake_object *o = fake_new(kind, device);
    if (way == FAKE_DEFAULT) return o;
    o->broken = true;
    fake_raise_way(device, way, call);
    return o;
}

/* Something made of what is broken is broken: no mistake, one more error. */
static void fake_inherit(fake_object *o, const fake_object *part, const char *what) {
    if (part == NULL || !part->broken || o->broken) return;
    o->broken = true;
    fake_raise(o->device, TG_WGPU_ERROR_VALIDATION, what);
}

/* ---------------------------------------------------------------- instance and adapters */

static tg_wgpu_instance fake_create_instance(const void *descriptor) {
    (void)descriptor;
    if (fake_enter(FAKE_create_instance) != FAKE_DEFAULT) return NULL;
    return (tg_wgpu_instance)(void *)fake_new(FAKE_INSTANCE, NULL);
}

static void fake_instance_process_events(tg_wgpu_instance instance) {
    fake_count(FAKE_instance_process_events);
    if (fake_use(instance, FAKE_INSTANCE, "processEvents") != NULL) fake_answer_all();
}

/* Answers that have not come are cancelled. */
static void fake_instance_release(tg_wgpu_instance instance) {
    fake_count(FAKE_instance_release);
    const fake_object *o = fake_use(instance, FAKE_INSTANCE, "instanceRelease");
    fake_release(instance, FAKE_INSTANCE, "instanceRelease");
    if (o == NULL || o->references > 0) return;
    while (fake.events != NULL) {
        fake_event *e = fake.events;
        fake.events = e->next;
        if (e->status == TG_WGPU_SUCCESS && (e->to == FAKE_TO_ADAPTER || e->to == FAKE_TO_DEVICE || e->to == FAKE_TO_PIPELINE))
            fake_release(e->object, e->object->kind, "cancelled");
        if (e->to == FAKE_TO_ADAPTER || e->to == FAKE_TO_DEVICE || e->to == FAKE_TO_PIPELINE) e->object = NULL;
        e->status = e->to == FAKE_TO_LOST ? TG_WGPU_LOST_CANCELLED : 2;
        fake_fire(e);
    }
}

static const fake_adapter *fake_adapters(int *count) {
    *count = fake.options.adapters != NULL ? fake.options.adapter_count : 1;
    return fake.options.adapters != NULL ? fake.options.adapters : &fake.standard;
}

static bool fake_adapter_fits(const fake_adapter *a, const tg_wgpu_adapter_options *o, uint32_t type) {
    if (o != NULL && o->backend != 0 && o->backend != a->backend) return false;
    if (o != NULL && o->force_fallback && a->type != TG_WGPU_ADAPTER_CPU) return false;
    return type == 0 || a->type == type;
}

static const fake_adapter *fake_choose(const tg_wgpu_adapter_options *options) {
    const uint32_t first = options == NULL                        ? 0
                           : options->power == TG_WGPU_POWER_HIGH ? TG_WGPU_ADAPTER_DISCRETE
                           : options->power == TG_WGPU_POWER_LOW  ? TG_WGPU_ADAPTER_INTEGRATED
                                                                  : 0;
    int count;
    const fake_adapter *list = fake_adapters(&count);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            if (fake_adapter_fits(&list[i], options, pass == 0 ? first : 0)) return &list[i];
    return NULL;
}

static fake_object *fake_adapter_object(const fake_adapter *a) {
    fake_object *o = fake_new(FAKE_ADAPTER, NULL);
    o->adapter = a;
    snprintf(o->label, sizeof o->label, "%s", a->name);
    return o;
}

/* Toggles are Dawn's alone: others would take the chain for a mistake. */
static bool fake_asks_unsafe(const tg_wgpu_chain *chain) {
    if (chain == NULL) return false;
    const tg_wgpu_dawn_toggles *toggles = (const void *)chain;
    if (fake.options.flavour != FAKE_DAWN || chain->type != TG_WGPU_STYPE_DAWN_TOGGLES)
        fake_mistake("requestAdapter: a chain of type %x", chain->type);
    for (size_t i = 0; i < toggles->enabled_count; i++)
        if (strcmp(toggles->enabled[i], "allow_unsafe_apis") == 0) return true;
    return false;
}

static tg_wgpu_future fake_instance_request_adapter(tg_wgpu_instance instance, const tg_wgpu_adapter_options *options,
                                                    tg_wgpu_adapter_callback callback) {
    static const uint32_t bad[FAKE_WAYS] = {3, 4, 2, 3};
    const int way = fake_enter(FAKE_instance_request_adapter);
    const fake_function call = {.adapter = callback.call};
    const fake_adapter *a = fake_choose(options);
    fake_use(instance, FAKE_INSTANCE, "requestAdapter");
    if (way != FAKE_DEFAULT)
        fake_post(FAKE_TO_ADAPTER, call, callback.user, callback.more, bad[way], 0, NULL, "the fake has no adapter today");
    else if (fake.asks++ < fake.options.empty_asks || a == NULL)
        fake_post(FAKE_TO_ADAPTER, call, callback.user, callback.more, 3, 0, NULL, "no adapter fits");
    else {
        fake_object *adapter = fake_adapter_object(a);
        adapter->unsafe = options != NULL && fake_asks_unsafe(options->next);
        fake_post(FAKE_TO_ADAPTER, call, callback.user, callback.more, TG_WGPU_SUCCESS, 0, adapter, "");
    }
    return (tg_wgpu_future){1};
}

static size_t fake_instance_enumerate_adapters(tg_wgpu_instance instance, const void *options, tg_wgpu_adapter *adapters) {
    const int way = fake_enter(FAKE_instance_enumerate_adapters);
    int count;
    const fake_adapter *list = fake_adapters(&count);
    (void)options;
    fake_use(instance, FAKE_INSTANCE, "enumerateAdapters");
    if (way != FAKE_DEFAULT || fake.asks++ < fake.options.empty_asks) return 0;
    for (int i = 0; adapters != NULL && i < count; i++) adapters[i] = (tg_wgpu_adapter)(void *)fake_adapter_object(&list[i]);
    return (size_t)count;
}

static uint32_t fake_adapter_get_info(tg_wgpu_adapter adapter, tg_wgpu_adapter_info *info) {
    const int way = fake_enter(FAKE_adapter_get_info);
    const fake_object *o = fake_use(adapter, FAKE_ADAPTER, "adapterGetInfo");
    if (way != FAKE_DEFAULT || o == NULL) return 2;
    info->vendor = fake_text(o->adapter->vendor);
    info->architecture = fake_text("imaginary");
    info->device = fake_text(o->adapter->name);
    info->description = fake_text("a description");
    info->backend = o->adapter->backend;
    info->type = o->adapter->type;
    if (fake.options.halves != FAKE_NO_F16) info->subgroup_min = info->subgroup_max = 32;
    fake.counts.texts++;
    return TG_WGPU_SUCCESS;
}

static void fake_adapter_info_free_members(tg_wgpu_adapter_info info) {
    fake_count(FAKE_adapter_info_free_members);
    fake.counts.texts--;
    fake_free_text(info.vendor);
    fake_free_text(info.architecture);
    fake_free_text(info.device);
    fake_free_text(info.description);
}

static void fake_limits_guaranteed(tg_wgpu_limits *l) {
    l->max_bind_groups = 4;
    l->max_bindings_per_bind_group = 1000;
    l->max_storage_buffers = 8;
    l->max_storage_binding_bytes = 128u << 20;
    l->max_buffer_bytes = 256u << 20;
    l->min_storage_offset_alignment = 256;
    l->max_workgroup_bytes = 16384;
    l->max_workgroup_invocations = l->max_workgroup_x = l->max_workgroup_y = 256;
    l->max_workgroup_z = 64;
    l->max_workgroups = 65535;
}

static void fake_limits_of(const fake_adapter *a, tg_wgpu_limits *l) {
    fake_limits_guaranteed(l);
    l->max_storage_buffers = a->storage_buffers;
    l->max_storage_binding_bytes = a->binding_bytes;
    l->max_buffer_bytes = a->buffer_bytes;
    l->max_workgroup_bytes = a->workgroup_bytes;
    l->max_workgroup_invocations = l->max_workgroup_x = l->max_workgroup_y = a->invocations;
    l->max_workgroups = a->groups;
}

static uint32_t fake_adapter_get_limits(tg_wgpu_adapter adapter, tg_wgpu_limits *limits) {
    const int way = fake_enter(FAKE_adapter_get_limits);
    const fake_object *o = fake_use(adapter, FAKE_ADAPTER, "adapterGetLimits");
    if (way != FAKE_DEFAULT || o == NULL) return 2;
    fake_limits_of(o->adapter, limits);
    return TG_WGPU_SUCCESS;
}

static void fake_adapter_get_features(tg_wgpu_adapter adapter, tg_wgpu_features *features) {
    const int way = fake_enter(FAKE_adapter_get_features);
    const fake_object *a = fake_use(adapter, FAKE_ADAPTER, "adapterGetFeatures");
    uint32_t *items = calloc(3, sizeof *items);
    size_t count = 0;
    if (way == FAKE_DEFAULT && a != NULL) {
        items[count++] = 1; /* depth-clip-control, in one arrangement of the numbers */
        if (fake.options.halves != FAKE_NO_F16) items[count++] = FAKE_NUMBER_F16;
        if (fake.options.halves > FAKE_F16 && a->unsafe) items[count++] = FAKE_NUMBER_MATRICES;
    }
    *features = (tg_wgpu_features){count, items};
    fake.counts.texts++;
}

static void fake_features_free_members(tg_wgpu_features features) {
    fake_count(FAKE_features_free_members);
    fake.counts.texts--;
    free((void *)(uintptr_t)features.items);
}

static void fake_adapter_release(tg_wgpu_adapter adapter) {
    fake_count(FAKE_adapter_release);
    fake_release(adapter, FAKE_ADAPTER, "adapterRelease");
}

/* ---------------------------------------------------------------- devices */

static bool fake_ask_limit(uint64_t asked, uint64_t undefined, uint64_t has, const char *what) {
    if (asked == undefined || asked <= has) return true;
    fake_mistake("requestDevice: %s %llu is more than the adapter's %llu", what, (unsigned long long)asked, (unsigned long long)has);
    return false;
}

static uint32_t fake_grant32(uint32_t asked, uint32_t standard) { return asked == UINT32_MAX || asked < standard ? standard : asked; }
static uint64_t fake_grant64(uint64_t asked, uint64_t standard) { return asked == UINT64_MAX || asked < standard ? standard : asked; }

static bool fake_grant_limits(fake_object *device, const tg_wgpu_limits *ask) {
    const fake_adapter *a = device->adapter;
    tg_wgpu_limits *l = &device->limits;
    fake_limits_guaranteed(l);
    if (a->buffer_bytes < l->max_buffer_bytes) l->max_buffer_bytes = a->buffer_bytes; /* one of a test's small ones */
    if (a->binding_bytes < l->max_storage_binding_bytes) l->max_storage_binding_bytes = a->binding_bytes;
    if (ask == NULL) return true;
    if (!fake_ask_limit(ask->max_storage_buffers, UINT32_MAX, a->storage_buffers, "maxStorageBuffersPerShaderStage") ||
        !fake_ask_limit(ask->max_storage_binding_bytes, UINT64_MAX, a->binding_bytes, "maxStorageBufferBindingSize") ||
        !fake_ask_limit(ask->max_buffer_bytes, UINT64_MAX, a->buffer_bytes, "maxBufferSize") ||
        !fake_ask_limit(ask->max_workgroup_bytes, UINT32_MAX, a->workgroup_bytes, "maxComputeWorkgroupStorageSize") ||
        !fake_ask_limit(ask->max_workgroup_invocations, UINT32_MAX, a->invocations, "maxComputeInvocationsPerWorkgroup") ||
        !fake_ask_limit(ask->max_workgroup_x, UINT32_MAX, a->invocations, "maxComputeWorkgroupSizeX") ||
        !fake_ask_limit(ask->max_workgroups, UINT32_MAX, a->groups, "maxComputeWorkgroupsPerDimension"))
        return false;
    l->max_storage_buffers = fake_grant32(ask->max_storage_buffers, l->max_storage_buffers);
    l->max_storage_binding_bytes = fake_grant64(ask->max_storage_binding_bytes, l->max_storage_binding_bytes);
    l->max_buffer_bytes = fake_grant64(ask->max_buffer_bytes, l->max_buffer_bytes);
    l->max_workgroup_bytes = fake_grant32(ask->max_workgroup_bytes, l->max_workgroup_bytes);
    l->max_workgroup_invocations = fake_grant32(ask->max_workgroup_invocations, l->max_workgroup_invocations);
    l->max_workgroup_x = fake_grant32(ask->max_workgroup_x, l->max_workgroup_x);
    l->max_workgroups = fake_grant32(ask->max_workgroups, l->max_workgroups);
    return true;
}

static tg_wgpu_future fake_adapter_request_device(tg_wgpu_adapter adapter, const tg_wgpu_device_descriptor *d,
                                                  tg_wgpu_device_callback callback) {
    static const uint32_t bad[FAKE_WAYS] = {3, 2, 3, 2};
    const bool lost_first = fake.counts.lost;
    const int way = fake_enter(FAKE_adapter_request_device);
    const fake_object *a = fake_use(adapter, FAKE_ADAPTER, "requestDevice");
    const fake_function call = {.device = callback.call};
    fake_object *device = way == FAKE_DEFAULT && a != NULL ? fake_new(FAKE_DEVICE, NULL) : NULL;
    if (device != NULL) {
        device->adapter = a->adapter;
        if (d != NULL) {
            device->on_lost = d->lost;
            device->on_error = d->error;
        }
        for (size_t i = 0; d != NULL && i < d->feature_count; i++) {
            device->f16 = device->f16 || d->features[i] == FAKE_NUMBER_F16;
            device->matrices = device->matrices || d->features[i] == FAKE_NUMBER_MATRICES;
            if (d->features[i] == FAKE_NUMBER_MATRICES && !a->unsafe) fake_mistake("requestDevice: matrices, which were not seen");
        }
        if (!fake_grant_limits(device, d != NULL ? d->limits : NULL)) {
            fake_release(device, FAKE_DEVICE, "requestDevice");
            device = NULL;
        }
    }
    if (device == NULL)
        fake_post(FAKE_TO_DEVICE, call, callback.user, callback.more, bad[way == FAKE_DEFAULT ? 0 : way], 0, NULL,
                  "the fake makes no device");
    else fake_post(FAKE_TO_DEVICE, call, callback.user, callback.more, TG_WGPU_SUCCESS, 0, device, "");
    (void)lost_first;
    return (tg_wgpu_future){2};
}

static tg_wgpu_queue fake_device_get_queue(tg_wgpu_device device) {
    const int way = fake_enter(FAKE_device_get_queue);
    fake_object *d = fake_use(device, FAKE_DEVICE, "getQueue");
    if (way != FAKE_DEFAULT || d == NULL) return NULL;
    if (d->queue == NULL || d->queue->references == 0) d->queue = fake_new(FAKE_QUEUE, d);
    else d->queue->references++;
    return (tg_wgpu_queue)(void *)d->queue;
}

static uint32_t fake_device_get_limits(tg_wgpu_device device, tg_wgpu_limits *limits) {
    const int way = fake_enter(FAKE_device_get_limits);
    const fake_object *d = fake_use(device, FAKE_DEVICE, "deviceGetLimits");
    if (way != FAKE_DEFAULT || d == NULL) return 2;
    fake_adapter like = fake_adapter_make("", 0);
    like.storage_buffers = d->limits.max_storage_buffers;
    like.binding_bytes = d->limits.max_storage_binding_bytes;
    like.buffer_bytes = d->limits.max_buffer_bytes;
    like.workgroup_bytes = d->limits.max_workgroup_bytes;
    like.invocations = d->limits.max_workgroup_invocations;
    like.groups = d->limits.max_workgroups;
    fake_limits_of(&like, limits);
    return TG_WGPU_SUCCESS;
}

static tg_wgpu_adapter fake_device_get_adapter(tg_wgpu_device device) {
    const int way = fake_enter(FAKE_device_get_adapter);
    const fake_object *d = fake_use(device, FAKE_DEVICE, "deviceGetAdapter");
    if (way != FAKE_DEFAULT || d == NULL) return NULL;
    return (tg_wgpu_adapter)(void *)fake_adapter_object(d->adapter);
}

static void fake_device_tick(tg_wgpu_device device) {
    fake_count(FAKE_device_tick);
    if (fake_use(device, FAKE_DEVICE, "deviceTick") != NULL) fake_answer_all();
}

static uint32_t fake_device_poll(tg_wgpu_device device, uint32_t wait, const uint64_t *submission) {
    fake_count(FAKE_device_poll);
    (void)wait;
    (void)submission;
    if (fake_use(device, FAKE_DEVICE, "devicePoll") != NULL) fake_answer_all();
    return 1;
}

static void fake_device_push_error_scope(tg_wgpu_device device, uint32_t filter) {
    fake_count(FAKE_device_push_error_scope);
    fake_object *d = fake_use(device, FAKE_DEVICE, "pushErrorScope");
    if (d == NULL) return;
    if (d->scope_count == FAKE_SCOPES || filter < 1 || filter > 3) {
        fake_mistake("pushErrorScope: %d scopes, filter %u", d->scope_count, filter);
        return;
    }
    d->scopes[d->scope_count++] = (fake_scope){filter, TG_WGPU_ERROR_NONE, ""};
    fake.counts.scope_depth++;
}

static tg_wgpu_future fake_device_pop_error_scope(tg_wgpu_device device, tg_wgpu_scope_callback callback) {
    const int way = fake_enter(FAKE_device_pop_error_scope);
    const fake_function call = {.scope = callback.call};
    fake_object *d = fake_use(device, FAKE_DEVICE, "popErrorScope");
    fake_scope s = {0, TG_WGPU_ERROR_NONE, ""};
    if (d != NULL && d->scope_count == 0) fake_mistake("popErrorScope: there is none");
    else if (d != NULL) {
        s = d->scopes[--d->scope_count];
        fake.counts.scope_depth--;
    }
    if (d != NULL && d->lost) s.error = TG_WGPU_ERROR_NONE;
    if (way == 1 || way == 2)
        fake_post(FAKE_TO_SCOPE, call, callback.user, callback.more, TG_WGPU_SUCCESS,
                  way == 1 ? TG_WGPU_ERROR_VALIDATION : TG_WGPU_ERROR_MEMORY, d, "the fake makes an error up");
    else if (way != FAKE_DEFAULT)
        fake_post(FAKE_TO_SCOPE, call, callback.user, callback.more, way == 0 ? 3 : 2, TG_WGPU_ERROR_NONE, d, "the fake drops a scope");
    else fake_post(FAKE_TO_SCOPE, call, callback.user, callback.more, TG_WGPU_SUCCESS, s.error, d, s.message);
    return (tg_wgpu_future){3};
}

static void fake_device_destroy(tg_wgpu_device device) {
    fake_count(FAKE_device_destroy);
    fake_object *d = fake_use(device, FAKE_DEVICE, "deviceDestroy");
    if (d == NULL) return;
    d->destroyed = true;
    fake_lose_device(d, TG_WGPU_LOST_DESTROYED, "the device was destroyed");
}

static void fake_device_release(tg_wgpu_device device) {
    fake_count(FAKE_device_release);
    fake_object *d = device == NULL ? NULL : (fake_object *)(void *)device;
    fake_release(device, FAKE_DEVICE, "deviceRelease");
    if (d == NULL || d->references > 0) return;
    if (d->scope_count > 0) fake_mistake("deviceRelease: %d error scopes are still open", d->scope_count);
    fake_lose_device(d, TG_WGPU_LOST_DESTROYED, "the device was released");
}

/* ---------------------------------------------------------------- buffers */

static tg_wgpu_buffer fake_device_create_buffer(tg_wgpu_device device, const tg_wgpu_buffer_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_buffer);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createBuffer");
    fake_object *b = d != NULL ? fake_create(FAKE_BUFFER, d, way, FAKE_device_create_buffer) : NULL;
    if (b == NULL) return NULL;
    fake_copy_text(b->label, sizeof b->label, descriptor->label);
    b->size = descriptor->size;
    b->usage = descriptor->usage;
    fake.counts.live_buffers++;
    fake.counts.live_buffer_bytes += (int64_t)b->size;
    const bool map_alone =
        (b->usage & TG_WGPU_USAGE_MAP_READ) == 0 || b->usage == (TG_WGPU_USAGE_MAP_READ | TG_WGPU_USAGE_COPY_DESTINATION);
    if (b->size > d->limits.max_buffer_bytes)
        fake_refuse(d, "createBuffer: '%s' of %llu bytes is over maxBufferSize", b->label, (unsigned long long)b->size);
    else if (b->usage == 0 || !map_alone || b->size == 0 || b->size % 4 != 0 || descriptor->mapped_at_creation)
        fake_refuse(d, "createBuffer: '%s': usage %llx, size %llu", b->label, (unsigned long long)b->usage, (unsigned long long)b->size);
    else b->data = calloc(1, b->size);
    b->broken = b->broken || b->data == NULL;
    return (tg_wgpu_buffer)(void *)b;
}

static bool fake_range(const fake_object *b, uint64_t offset, uint64_t size) { return offset <= b->size && size <= b->size - offset; }

enum { FAKE_WRITES = 16 };
static struct {
    const void *data;
    size_t bytes;
} fake_writes[FAKE_WRITES]; /* the last ones */

bool fake_webgpu_wrote(const void *data, int64_t bytes) {
    for (int i = 0; i < FAKE_WRITES; i++)
        if (fake_writes[i].data == data && fake_writes[i].bytes == (size_t)bytes) return true;
    return false;
}
static void fake_queue_write_buffer(tg_wgpu_queue queue, tg_wgpu_buffer buffer, uint64_t offset, const void *data, size_t size) {
    const int way = fake_enter(FAKE_queue_write_buffer);
    const fake_object *q = fake_use(queue, FAKE_QUEUE, "writeBuffer");
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "writeBuffer");
    static unsigned writes;
    if (q == NULL || b == NULL) return;
    fake_writes[writes++ % FAKE_WRITES].data = data;
    fake_writes[(writes - 1) % FAKE_WRITES].bytes = size;
    if (way != FAKE_DEFAULT) fake_raise_way(q->device, way, FAKE_queue_write_buffer);
    else if (b->broken) fake_raise(q->device, TG_WGPU_ERROR_VALIDATION, "writeBuffer: the buffer is invalid");
    else if ((b->usage & TG_WGPU_USAGE_COPY_DESTINATION) == 0 || offset % 4 != 0 || size % 4 != 0 || !fake_range(b, offset, size) ||
             b->destroyed || b->map_state != FAKE_UNMAPPED || b->device != q->device)
        fake_refuse(q->device, "writeBuffer: '%s': bytes [%llu, +%zu) of %llu, usage %llx", b->label, (unsigned long long)offset, size,
                    (unsigned long long)b->size, (unsigned long long)b->usage);
    else if (!q->device->lost) memcpy(b->data + offset, data, size);
}

static tg_wgpu_future fake_buffer_map_async(tg_wgpu_buffer buffer, uint64_t mode, size_t offset, size_t size,
                                            tg_wgpu_map_callback callback) {
    static const uint32_t bad[FAKE_WAYS] = {3, 3, 4, 2};
    const int way = fake_enter(FAKE_buffer_map_async);
    const fake_function call = {.map = callback.call};
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "mapAsync");
    uint32_t status = TG_WGPU_SUCCESS;
    const char *message = "";
    if (b == NULL) return (tg_wgpu_future){4};
    if (way != FAKE_DEFAULT) {
        status = bad[way];
        message = "the fake does not map";
        if (way == 1) fake_raise_way(b->device, way, FAKE_buffer_map_async);
    } else if (b->broken) {
        status = 3;
        message = "mapAsync: the buffer is invalid";
        fake_raise(b->device, TG_WGPU_ERROR_VALIDATION, message);
    } else if (mode != TG_WGPU_MAP_READ || (b->usage & TG_WGPU_USAGE_MAP_READ) == 0 || offset % 8 != 0 || size % 4 != 0 ||
               !fake_range(b, offset, size) || b->map_state != FAKE_UNMAPPED || b->destroyed) {
        fake_refuse(b->device, "mapAsync: '%s': bytes [%zu, +%zu) of %llu, state %d", b->label, offset, size, (unsigned long long)b->size,
                    b->map_state);
        status = 3;
        message = "mapAsync: refused";
    }
    if (b->map_state != FAKE_UNMAPPED) { /* the earlier map goes on */
        fake_post(FAKE_TO_MAP, call, callback.user, callback.more, 3, 0, fake_new(FAKE_BUFFER, b->device), message);
        return (tg_wgpu_future){4};
    }
    b->map_state = FAKE_MAP_PENDING;
    b->map_offset = offset;
    b->map_size = size;
    fake_post(FAKE_TO_MAP, call, callback.user, callback.more, status, 0, b, message);
    return (tg_wgpu_future){4};
}

static const void *fake_buffer_get_const_mapped_range(tg_wgpu_buffer buffer, size_t offset, size_t size) {
    const int way = fake_enter(FAKE_buffer_get_const_mapped_range);
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "getConstMappedRange");
    if (way != FAKE_DEFAULT || b == NULL) return NULL;
    if (b->map_state == FAKE_MAPPED && offset % 8 == 0 && size % 4 == 0 && offset >= b->map_offset &&
        offset + size <= b->map_offset + b->map_size)
        return b->mapped + (offset - b->map_offset);
    fake_mistake("getConstMappedRange: '%s': bytes [%zu, +%zu), mapped [%llu, +%llu), state %d", b->label, offset, size,
                 (unsigned long long)b->map_offset, (unsigned long long)b->map_size, b->map_state);
    return NULL;
}

/* The answer to a map still on its way is "aborted". */
static void fake_abort_map(fake_object *b, const char *message) {
    for (fake_event **at = &fake.events; *at != NULL; at = &(*at)->next) {
        fake_event *e = *at;
        if (e->to != FAKE_TO_MAP || e->object != b) continue;
        *at = e->next;
        e->status = 4;
        snprintf(e->message, sizeof e->message, "%s", message);
        fake_fire(e);
        break;
    }
    free(b->mapped);
    b->mapped = NULL;
    b->map_state = FAKE_UNMAPPED;
}

static void fake_buffer_unmap(tg_wgpu_buffer buffer) {
    fake_count(FAKE_buffer_unmap);
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "unmap");
    if (b == NULL) return;
    if (b->map_state == FAKE_UNMAPPED && !b->broken && !b->destroyed && !b->device->lost)
        fake_mistake("unmap: '%s' is not mapped", b->label);
    fake_abort_map(b, "unmapped before the answer came");
}

static void fake_buffer_destroy(tg_wgpu_buffer buffer) {
    fake_count(FAKE_buffer_destroy);
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "bufferDestroy");
    if (b == NULL) return;
    b->destroyed = true;
    fake_abort_map(b, "destroyed before the answer came");
}

static void fake_buffer_release(tg_wgpu_buffer buffer) {
    fake_count(FAKE_buffer_release);
    fake_object *b = fake_use(buffer, FAKE_BUFFER, "bufferRelease");
    if (b != NULL && b->references == 1 && b->map_state == FAKE_MAP_PENDING) fake_abort_map(b, "released before the answer came");
    fake_release(buffer, FAKE_BUFFER, "bufferRelease");
}

/* ---------------------------------------------------------------- shaders and pipelines */

static tg_wgpu_shader_module fake_device_create_shader_module(tg_wgpu_device device, const tg_wgpu_shader_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_shader_module);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createShaderModule");
    fake_object *m = d != NULL ? fake_create(FAKE_MODULE, d, way, FAKE_device_create_shader_module) : NULL;
    if (m == NULL) return NULL;
    fake_copy_text(m->label, sizeof m->label, descriptor->label);
    const tg_wgpu_shader_source *source = (const void *)descriptor->next;
    if (source == NULL || source->chain.type != TG_WGPU_STYPE_WGSL || source->code.data == NULL || source->code.length == 0) {
        fake_refuse(d, "createShaderModule: no WGSL");
        m->broken = true;
        return (tg_wgpu_shader_module)(void *)m;
    }
    const size_t length = source->code.length == SIZE_MAX ? strlen(source->code.data) : source->code.length;
    m->source = calloc(1, length + 1);
    memcpy(m->source, source->code.data, length);
    if (strlen(m->source) != length || strstr(m->source, "fn main(") == NULL) {
        fake_refuse(d, "createShaderModule: %zu bytes of source without main()", length);
        m->broken = true;
    }
    if ((strstr(m->source, "enable f16;") != NULL && !d->f16) || (strstr(m->source, "subgroup_matrix;") != NULL && !d->matrices)) {
        fake_raise(d, TG_WGPU_ERROR_VALIDATION, "createShaderModule: an extension that is not allowed"); /* as asking for it is */
        m->broken = true;
    }
    return (tg_wgpu_shader_module)(void *)m;
}

static tg_wgpu_future fake_shader_module_get_compilation_info(tg_wgpu_shader_module module, tg_wgpu_compilation_callback callback) {
    const int way = fake_enter(FAKE_shader_module_get_compilation_info);
    const fake_function call = {.info = callback.call};
    const fake_object *m = fake_use(module, FAKE_MODULE, "getCompilationInfo");
    if (fake.options.flavour == FAKE_NATIVE) fake_mistake("getCompilationInfo: wgpu-native aborts here");
    if (way != FAKE_DEFAULT || m == NULL) fake_post(FAKE_TO_INFO, call, callback.user, callback.more, 2, 0, NULL, "");
    else fake_post(FAKE_TO_INFO, call, callback.user, callback.more, TG_WGPU_SUCCESS, 0, NULL, m->broken ? "expected something else" : "");
    return (tg_wgpu_future){5};
}

static bool fake_layout_entry(const tg_wgpu_bind_group_layout_descriptor *descriptor, size_t i, uint32_t *binding,
                              tg_wgpu_buffer_layout *buffer, uint64_t *visibility) {
    if (fake.options.flavour == FAKE_NATIVE) {
        const tg_wgpu_layout_entry_old *e = (const tg_wgpu_layout_entry_old *)descriptor->entries + i;
        *binding = e->binding;
        *buffer = e->buffer;
        *visibility = e->visibility;
        return e->others.sampler_type == 0 && e->others.texture_sample == 0 && e->others.storage_access == 0;
    }
    const tg_wgpu_layout_entry *e = (const tg_wgpu_layout_entry *)descriptor->entries + i;
    *binding = e->binding;
    *buffer = e->buffer;
    *visibility = e->visibility;
    return e->array_size <= 1 && e->others.sampler_type == 0 && e->others.texture_sample == 0 && e->others.storage_access == 0;
}

static tg_wgpu_bind_group_layout fake_device_create_bind_group_layout(tg_wgpu_device device,
                                                                      const tg_wgpu_bind_group_layout_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_bind_group_layout);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createBindGroupLayout");
    fake_object *l = d != NULL ? fake_create(FAKE_LAYOUT, d, way, FAKE_device_create_bind_group_layout) : NULL;
    if (l == NULL) return NULL;
    if (descriptor->count > d->limits.max_storage_buffers || descriptor->count > FAKE_BINDINGS) {
        fake_refuse(d, "createBindGroupLayout: %zu storage buffers of %u", descriptor->count, d->limits.max_storage_buffers);
        l->broken = true;
        return (tg_wgpu_bind_group_layout)(void *)l;
    }
    for (size_t i = 0; i < descriptor->count; i++) {
        tg_wgpu_buffer_layout buffer;
        uint64_t visibility;
        const bool alone = fake_layout_entry(descriptor, i, &l->bindings[i].number, &buffer, &visibility);
        l->binding_count++;
        if (alone && buffer.type == TG_WGPU_BINDING_STORAGE && !buffer.has_dynamic_offset && visibility == TG_WGPU_STAGE_COMPUTE) continue;
        fake_refuse(d, "createBindGroupLayout: entry %zu: type %u, visibility %llu", i, buffer.type, (unsigned long long)visibility);
        l->broken = true;
    }
    return (tg_wgpu_bind_group_layout)(void *)l;
}

static tg_wgpu_pipeline_layout fake_device_create_pipeline_layout(tg_wgpu_device device,
                                                                  const tg_wgpu_pipeline_layout_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_pipeline_layout);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createPipelineLayout");
    fake_object *l = d != NULL ? fake_create(FAKE_PIPELINE_LAYOUT, d, way, FAKE_device_create_pipeline_layout) : NULL;
    if (l == NULL) return NULL;
    if (descriptor->count != 1) {
        fake_refuse(d, "createPipelineLayout: %zu groups", descriptor->count);
        l->broken = true;
        return (tg_wgpu_pipeline_layout)(void *)l;
    }
    l->layout = fake_use(descriptor->layouts[0], FAKE_LAYOUT, "createPipelineLayout");
    fake_inherit(l, l->layout, "createPipelineLayout: the bind group layout is invalid");
    return (tg_wgpu_pipeline_layout)(void *)l;
}

/* Every @binding of the source is in the layout. */
static bool fake_bindings_fit(const char *source, const fake_object *layout) {
    for (const char *at = source; (at = strstr(at, "@binding(")) != NULL; at++) {
        const long number = strtol(at + 9, NULL, 10);
        bool found = false;
        for (int i = 0; i < layout->binding_count; i++) found = found || (long)layout->bindings[i].number == number;
        if (!found) return false;
    }
    return true;
}

static fake_object *fake_make_pipeline(fake_object *d, const tg_wgpu_compute_pipeline_descriptor *descriptor, int way, fake_call call) {
    fake_object *p = fake_create(FAKE_PIPELINE, d, way, call);
    if (p == NULL) return NULL;
    const fake_object *m = fake_use(descriptor->compute.module, FAKE_MODULE, "createComputePipeline");
    char entry[16];
    fake_copy_text(p->label, sizeof p->label, descriptor->label);
    fake_copy_text(entry, sizeof entry, descriptor->compute.entry);
    const bool automatic = descriptor->layout == NULL; /* whatever the module says */
    p->layout = automatic ? NULL : fake_use(descriptor->layout, FAKE_PIPELINE_LAYOUT, "createComputePipeline");
    fake.counts.pipelines++;
    fake_inherit(p, m, "createComputePipeline: the module is invalid");
    fake_inherit(p, p->layout, "createComputePipeline: the layout is invalid");
    p->broken = p->broken || m == NULL || (p->layout == NULL && !automatic);
    if (p->broken) return p;
    p->source = malloc(strlen(m->source) + 1);
    strcpy(p->source, m->source);
    if (fake.options.halves == FAKE_MATRICES_REFUSED && strstr(p->source, "subgroup_matrix;") != NULL) {
        fake_raise(d, TG_WGPU_ERROR_VALIDATION, "createComputePipeline: no matrices of that size");
        p->broken = true;
    }
    if ((entry[0] != '\0' && strcmp(entry, "main") != 0) || (!automatic && !fake_bindings_fit(p->source, p->layout->layout))) {
        fake_refuse(d, "createComputePipeline: entry '%s', or a binding that the layout lacks", entry);
        p->broken = true;
    }
    return p;
}

static tg_wgpu_compute_pipeline fake_device_create_compute_pipeline(tg_wgpu_device device,
                                                                    const tg_wgpu_compute_pipeline_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_compute_pipeline);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createComputePipeline");
    return d == NULL ? NULL : (tg_wgpu_compute_pipeline)(void *)fake_make_pipeline(d, descriptor, way, FAKE_device_create_compute_pipeline);
}

static tg_wgpu_future fake_device_create_compute_pipeline_async(tg_wgpu_device device,
                                                                const tg_wgpu_compute_pipeline_descriptor *descriptor,
                                                                tg_wgpu_pipeline_callback callback) {
    static const uint32_t bad[FAKE_WAYS] = {3, 4, 2, 3};
    const int way = fake_enter(FAKE_device_create_compute_pipeline_async);
    const fake_function call = {.pipeline = callback.call};
    fake_object *d = fake_use(device, FAKE_DEVICE, "createComputePipelineAsync");
    if (fake.options.flavour == FAKE_NATIVE) fake_mistake("createComputePipelineAsync: wgpu-native aborts here");
    fake.asked_pipelines++;
    if (fake.asked_pipelines > fake.counts.pipelines_before_a_wait) fake.counts.pipelines_before_a_wait = fake.asked_pipelines;
    if (d == NULL) return (tg_wgpu_future){6};
    if (way != FAKE_DEFAULT) {
        fake_post(FAKE_TO_PIPELINE, call, callback.user, callback.more, bad[way], 0, NULL, "the fake compiles nothing");
        return (tg_wgpu_future){6};
    }
    /* what is wrong is told in the answer, not to a scope */
    const int depth = d->scope_count;
    const tg_wgpu_error_callback kept = d->on_error;
    d->scope_count = 0;
    d->on_error.call = NULL;
    fake_object *p = fake_make_pipeline(d, descriptor, FAKE_DEFAULT, FAKE_device_create_compute_pipeline_async);
    d->scope_count = depth;
    d->on_error = kept;
    const bool refused = p->broken && !d->lost;
    if (refused) fake_release(p, FAKE_PIPELINE, "createComputePipelineAsync");
    fake_post(FAKE_TO_PIPELINE, call, callback.user, callback.more, refused ? 3 : TG_WGPU_SUCCESS, 0, refused ? NULL : p,
              refused ? "createComputePipelineAsync: a part is invalid" : "");
    return (tg_wgpu_future){6};
}

static void fake_bind(fake_object *g, const tg_wgpu_bind_group_entry *e) {
    fake_object *d = g->device, *b = fake_use(e->buffer, FAKE_BUFFER, "createBindGroup");
    const uint64_t size = b != NULL && e->size == UINT64_MAX ? b->size - e->offset : e->size;
    if (b == NULL || g->binding_count == FAKE_BINDINGS) {
        g->broken = true;
        return;
    }
    g->bindings[g->binding_count++] = (fake_binding){b, e->offset, size, e->binding};
    fake_inherit(g, b, "createBindGroup: a buffer is invalid");
    bool known = false;
    for (int i = 0; g->layout != NULL && i < g->layout->binding_count; i++) known = known || g->layout->bindings[i].number == e->binding;
    if (g->broken) return;
    if (known && (b->usage & TG_WGPU_USAGE_STORAGE) != 0 && e->offset % d->limits.min_storage_offset_alignment == 0 && size > 0 &&
        size % 4 == 0 && fake_range(b, e->offset, size) && size <= d->limits.max_storage_binding_bytes && e->sampler == NULL &&
        e->texture == NULL && b->device == d)
        return;
    fake_refuse(d, "createBindGroup: binding %u: bytes [%llu, +%llu) of '%s' [%llu]", e->binding, (unsigned long long)e->offset,
                (unsigned long long)size, b->label, (unsigned long long)b->size);
    g->broken = true;
}

static tg_wgpu_bind_group fake_device_create_bind_group(tg_wgpu_device device, const tg_wgpu_bind_group_descriptor *descriptor) {
    const int way = fake_enter(FAKE_device_create_bind_group);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createBindGroup");
    fake_object *g = d != NULL ? fake_create(FAKE_GROUP, d, way, FAKE_device_create_bind_group) : NULL;
    if (g == NULL) return NULL;
    fake_copy_text(g->label, sizeof g->label, descriptor->label);
    g->layout = fake_use(descriptor->layout, FAKE_LAYOUT, "createBindGroup");
    fake_inherit(g, g->layout, "createBindGroup: the layout is invalid");
    for (size_t i = 0; i < descriptor->count; i++) fake_bind(g, &descriptor->entries[i]);
    if (!g->broken && g->binding_count != g->layout->binding_count) {
        fake_refuse(d, "createBindGroup: %d entries for %d bindings", g->binding_count, g->layout->binding_count);
        g->broken = true;
    }
    return (tg_wgpu_bind_group)(void *)g;
}

/* ---------------------------------------------------------------- commands */

static void fake_break(fake_object *encoder, bool mistake, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fake_break(fake_object *encoder, bool mistake, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (mistake) fake_mistake("%s", text);
    if (encoder->why[0] == '\0') memcpy(encoder->why, text, sizeof text);
}

static tg_wgpu_command_encoder fake_device_create_command_encoder(tg_wgpu_device device, const tg_wgpu_label *descriptor) {
    const int way = fake_enter(FAKE_device_create_command_encoder);
    fake_object *d = fake_use(device, FAKE_DEVICE, "createCommandEncoder");
    (void)descriptor;
    return d == NULL ? NULL : (tg_wgpu_command_encoder)(void *)fake_create(FAKE_ENCODER, d, way, FAKE_device_create_command_encoder);
}

static fake_object *fake_recording(void *handle, const char *where) {
    fake_object *e = fake_use(handle, FAKE_ENCODER, where);
    if (e == NULL) return NULL;
    if (e->finished || e->open_pass != NULL) fake_break(e, true, "%s: the encoder is finished, or in a pass", where);
    return e;
}

static tg_wgpu_compute_pass fake_encoder_begin_compute_pass(tg_wgpu_command_encoder encoder, const tg_wgpu_pass_descriptor *descriptor) {
    const int way = fake_enter(FAKE_encoder_begin_compute_pass);
    fake_object *e = fake_recording(encoder, "beginComputePass");
    (void)descriptor;
    if (e == NULL || way == 0) return NULL;
    fake_object *p = fake_new(FAKE_PASS, e->device);
    p->encoder = e;
    e->open_pass = p;
    if (way != FAKE_DEFAULT) fake_break(e, false, "the fake fails beginComputePass");
    return (tg_wgpu_compute_pass)(void *)p;
}

static fake_object *fake_in_pass(tg_wgpu_compute_pass pass, fake_call call) {
    const int way = fake_enter(call);
    fake_object *p = fake_use(pass, FAKE_PASS, fake_webgpu_call_name(call));
    if (p == NULL) return NULL;
    if (way != FAKE_DEFAULT) fake_break(p->encoder, false, "the fake fails %s", fake_webgpu_call_name(call));
    if (p->ended) fake_break(p->encoder, true, "%s: the pass has ended", fake_webgpu_call_name(call));
    return p;
}

static void fake_pass_set_pipeline(tg_wgpu_compute_pass pass, tg_wgpu_compute_pipeline pipeline) {
    fake_object *p = fake_in_pass(pass, FAKE_pass_set_pipeline);
    fake_object *o = fake_use(pipeline, FAKE_PIPELINE, "setPipeline");
    if (p == NULL || o == NULL) return;
    p->set_pipeline = o;
    if (o->broken) fake_break(p->encoder, false, "setPipeline: the pipeline is invalid");
}

static void fake_pass_set_bind_group(tg_wgpu_compute_pass pass, uint32_t index, tg_wgpu_bind_group group, size_t count,
                                     const uint32_t *offsets) {
    fake_object *p = fake_in_pass(pass, FAKE_pass_set_bind_group);
    fake_object *g = fake_use(group, FAKE_GROUP, "setBindGroup");
    (void)offsets;
    if (p == NULL || g == NULL) return;
    p->set_group = g;
    if (index != 0 || count != 0) fake_break(p->encoder, true, "setBindGroup: index %u, %zu offsets", index, count);
    if (g->broken) fake_break(p->encoder, false, "setBindGroup: the group is invalid");
}

static bool fake_overlap(const fake_object *g) {
    for (int i = 0; i < g->binding_count; i++)
        for (int j = 0; j < i; j++) {
            const fake_binding *a = &g->bindings[i], *b = &g->bindings[j];
            if (a->number == b->number) return true;
            if (a->buffer == b->buffer && a->offset < b->offset + b->size && b->offset < a->offset + a->size) return true;
        }
    return false;
}

static fake_command *fake_record(fake_object *encoder) {
    fake_command *c = calloc(1, sizeof *c);
    *encoder->tail = c;
    encoder->tail = &c->next;
    return c;
}

static void fake_pass_dispatch(tg_wgpu_compute_pass pass, uint32_t x, uint32_t y, uint32_t z) {
    fake_object *p = fake_in_pass(pass, FAKE_pass_dispatch);
    if (p == NULL) return;
    const uint32_t most = p->device->limits.max_workgroups;
    if (p->set_pipeline == NULL || p->set_group == NULL) {
        if (p->encoder->why[0] == '\0') fake_break(p->encoder, true, "dispatch: no pipeline or no bind group");
        return;
    }
    if (x == 0 || y == 0 || z == 0 || x > most || y > most || z > most)
        fake_break(p->encoder, true, "dispatch: %u x %u x %u groups", x, y, z);
    if (!p->set_pipeline->broken && !p->set_group->broken) {
        if (fake_overlap(p->set_group)) fake_break(p->encoder, true, "dispatch: overlapping ranges of one buffer in one bind group");
        const fake_object *want = p->set_pipeline->layout->layout, *have = p->set_group->layout;
        if (want != have && want->binding_count != have->binding_count)
            fake_break(p->encoder, true, "dispatch: the group is of another layout");
    }
    fake_command *c = fake_record(p->encoder);
    c->pipeline = p->set_pipeline;
    c->group = p->set_group;
    c->groups[0] = x;
    c->groups[1] = y;
    c->groups[2] = z;
}

static void fake_pass_end(tg_wgpu_compute_pass pass) {
    fake_object *p = fake_in_pass(pass, FAKE_pass_end);
    if (p == NULL) return;
    p->ended = true;
    p->encoder->open_pass = NULL;
}

static void fake_encoder_copy_buffer_to_buffer(tg_wgpu_command_encoder encoder, tg_wgpu_buffer source, uint64_t source_offset,
                                               tg_wgpu_buffer destination, uint64_t destination_offset, uint64_t size) {
    const int way = fake_enter(FAKE_encoder_copy_buffer_to_buffer);
    fake_object *e = fake_recording(encoder, "copyBufferToBuffer");
    fake_object *from = fake_use(source, FAKE_BUFFER, "copyBufferToBuffer"), *to = fake_use(destination, FAKE_BUFFER, "copyBufferToBuffer");
    if (e == NULL || from == NULL || to == NULL) return;
    if (way != FAKE_DEFAULT) fake_break(e, false, "the fake fails copyBufferToBuffer");
    if (from->broken || to->broken) fake_break(e, false, "copyBufferToBuffer: a buffer is invalid");
    else if ((from->usage & TG_WGPU_USAGE_COPY_SOURCE) == 0 || (to->usage & TG_WGPU_USAGE_COPY_DESTINATION) == 0 ||
             source_offset % 4 != 0 || destination_offset % 4 != 0 || size % 4 != 0 || from == to ||
             !fake_range(from, source_offset, size) || !fake_range(to, destination_offset, size))
        fake_break(e, true, "copyBufferToBuffer: '%s' + %llu to '%s' + %llu, %llu bytes", from->label, (unsigned long long)source_offset,
                   to->label, (unsigned long long)destination_offset, (unsigned long long)size);
    fake_command *c = fake_record(e);
    c->source = from;
    c->destination = to;
    c->source_offset = source_offset;
    c->destination_offset = destination_offset;
    c->size = size;
}

static tg_wgpu_command_buffer fake_encoder_finish(tg_wgpu_command_encoder encoder, const tg_wgpu_label *descriptor) {
    const int way = fake_enter(FAKE_encoder_finish);
    fake_object *e = fake_recording(encoder, "finish");
    (void)descriptor;
    if (e == NULL) return NULL;
    e->finished = true;
    fake_object *c = fake_create(FAKE_COMMANDS, e->device, way, FAKE_encoder_finish);
    if (c == NULL) return NULL;
    fake_inherit(c, e, "finish: the encoder is invalid");
    if (e->why[0] != '\0' && !c->broken) {
        fake_raise(e->device, TG_WGPU_ERROR_VALIDATION, e->why);
        c->broken = true;
    }
    c->encoder = e;
    return (tg_wgpu_command_buffer)(void *)c;
}

/* ---------------------------------------------------------------- carrying out */

static uint32_t fake_mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ (h >> 15);
}

/* The one shader whose right answer somebody waits for. */
static void fake_run_proof(const fake_object *group, bool wrong) {
    uint32_t given[TG_PROOF_WORDS], found[TG_PROOF_WORDS];
    memcpy(given, group->bindings[0].buffer->data, sizeof given);
    for (uint32_t i = 0; i < TG_PROOF_WORDS; i++) found[i] = tg_proof_answer(given, i);
    if (wrong) found[TG_PROOF_WORDS - 1] ^= 1;
    memcpy(group->bindings[1].buffer->data, found, sizeof found);
}

/* Every word of every binding becomes a float in [1, 2) that depends on the source, the groups and all bytes bound. */
static void fake_run_dispatch(const fake_command *c) {
    uint32_t h = 17, w;
    const fake_adapter *adapter = c->pipeline->device->adapter;
    if (adapter->skill == FAKE_NOTHING) return;
    if (strcmp(c->pipeline->source, TG_PROOF_SOURCE) == 0) {
        fake_run_proof(c->group, adapter->skill == FAKE_WRONG);
        return;
    }
    for (const char *at = c->pipeline->source; *at != '\0'; at++) h = fake_mix(h, (uint32_t)*at);
    for (int i = 0; i < 3; i++) h = fake_mix(h, c->groups[i]);
    for (int i = 0; i < c->group->binding_count; i++) {
        const fake_binding *b = &c->group->bindings[i];
        h = fake_mix(h, b->number);
        for (uint64_t at = 0; at < b->size; at += 4) {
            memcpy(&w, b->buffer->data + b->offset + at, 4);
            h = fake_mix(h, w);
        }
    }
    for (int i = 0; i < c->group->binding_count; i++) {
        const fake_binding *b = &c->group->bindings[i];
        for (uint64_t at = 0; at < b->size; at += 4) {
            w = (fake_mix(h, (uint32_t)at + b->number * 77u) >> 9) | 0x3F800000u;
            memcpy(b->buffer->data + b->offset + at, &w, 4);
        }
    }
    fake.counts.dispatches++;
}

static bool fake_ready(fake_object *device, const fake_object *b) {
    if (b->map_state == FAKE_UNMAPPED && !b->destroyed) return true;
    fake_refuse(device, "submit: buffer '%s' is %s", b->label, b->destroyed ? "destroyed" : "mapped");
    return false;
}

static bool fake_commands_ready(fake_object *device, const fake_object *commands) {
    for (const fake_command *c = commands->encoder->commands; c != NULL; c = c->next) {
        if (c->source != NULL && !(fake_ready(device, c->source) && fake_ready(device, c->destination))) return false;
        for (int i = 0; c->group != NULL && i < c->group->binding_count; i++)
            if (!fake_ready(device, c->group->bindings[i].buffer)) return false;
    }
    return true;
}

static void fake_run(const fake_object *commands) {
    for (const fake_command *c = commands->encoder->commands; c != NULL; c = c->next) {
        if (c->pipeline != NULL) fake_run_dispatch(c);
        else memcpy(c->destination->data + c->destination_offset, c->source->data + c->source_offset, c->size);
    }
}

static void fake_queue_submit(tg_wgpu_queue queue, size_t count, const tg_wgpu_command_buffer *commands) {
    const int way = fake_enter(FAKE_queue_submit);
    const fake_object *q = fake_use(queue, FAKE_QUEUE, "submit");
    if (q == NULL) return;
    if (way != FAKE_DEFAULT) fake_raise_way(q->device, way, FAKE_queue_submit);
    for (size_t i = 0; i < count; i++) {
        fake_object *c = fake_use(commands[i], FAKE_COMMANDS, "submit");
        if (c == NULL) continue;
        if (c->submitted) fake_refuse(q->device, "submit: the command buffer was submitted before");
        c->submitted = true;
        if (c->broken) fake_raise(q->device, TG_WGPU_ERROR_VALIDATION, "submit: the command buffer is invalid");
        else if (way == FAKE_DEFAULT && fake_commands_ready(q->device, c) && !q->device->lost) fake_run(c);
    }
}

/* ---------------------------------------------------------------- releases, and what is never called */

#define FAKE_RELEASE(field, type, kind) \
  static void fake_##field(type handle) { \
    fake_count(FAKE_##field); \
    fake_release(handle, kind, #field); \
  }
FAKE_RELEASE(queue_release, tg_wgpu_queue, FAKE_QUEUE)
FAKE_RELEASE(shader_module_release, tg_wgpu_shader_module, FAKE_MODULE)
FAKE_RELEASE(bind_group_layout_release, tg_wgpu_bind_group_layout, FAKE_LAYOUT)
FAKE_RELEASE(pipeline_layout_release, tg_wgpu_pipeline_layout, FAKE_PIPELINE_LAYOUT)
FAKE_RELEASE(bind_group_release, tg_wgpu_bind_group, FAKE_GROUP)
FAKE_RELEASE(compute_pipeline_release, tg_wgpu_compute_pipeline, FAKE_PIPELINE)
FAKE_RELEASE(encoder_release, tg_wgpu_command_encoder, FAKE_ENCODER)
FAKE_RELEASE(command_buffer_release, tg_wgpu_command_buffer, FAKE_COMMANDS)
FAKE_RELEASE(pass_release, tg_wgpu_compute_pass, FAKE_PASS)

static void fake_get_instance_features(tg_wgpu_features *features) {
    (void)features;
    fake_count(FAKE_get_instance_features);
    fake_mistake("getInstanceFeatures is never called");
}

static uint32_t fake_get_instance_capabilities(void *capabilities) {
    (void)capabilities;
    fake_count(FAKE_get_instance_capabilities);
    fake_mistake("getInstanceCapabilities is never called");
    return 2;
}

static uint32_t fake_get_version(void) {
    fake_count(FAKE_get_version);
    return 27u << 24;
}

/* No adapter here has the feature timestamp-query. */
static uint32_t fake_device_has_feature(tg_wgpu_device device, uint32_t feature) {
    (void)feature;
    fake_count(FAKE_device_has_feature);
    (void)fake_use(device, FAKE_DEVICE, "hasFeature");
    return 0;
}

static tg_wgpu_query_set fake_device_create_query_set(tg_wgpu_device device, const tg_wgpu_query_set_descriptor *descriptor) {
    (void)device;
    (void)descriptor;
    fake_count(FAKE_device_create_query_set);
    fake_mistake("createQuerySet without the feature");
    return NULL;
}

static void fake_encoder_resolve_query_set(tg_wgpu_command_encoder encoder, tg_wgpu_query_set set, uint32_t first, uint32_t count,
                                           tg_wgpu_buffer destination, uint64_t offset) {
    (void)encoder, (void)set, (void)first, (void)count, (void)destination, (void)offset;
    fake_count(FAKE_encoder_resolve_query_set);
    fake_mistake("resolveQuerySet without the feature");
}

static void fake_query_set_destroy(tg_wgpu_query_set set) {
    (void)set;
    fake_count(FAKE_query_set_destroy);
    fake_mistake("a query set is destroyed that was never made");
}

static void fake_query_set_release(tg_wgpu_query_set set) {
    (void)set;
    fake_count(FAKE_query_set_release);
    fake_mistake("a query set is released that was never made");
}

#if defined(FAKE_WEBGPU_EXPORT)
/* As a shared library: the required functions under their own names. The program that opens it begins it. */
#  define FAKE_EXPORT_REQUIRED(result, field, symbol, parameters) \
    result symbol parameters __attribute__((visibility("default"), alias("fake_" #field)));
#  define FAKE_EXPORT_OPTIONAL(result, field, symbol, parameters)
#  define FAKE_EXPORT_ALL(need, result, field, symbol, parameters) FAKE_EXPORT_##need(result, field, symbol, parameters)
TG_WGPU_FUNCTIONS(FAKE_EXPORT_ALL)
#endif

/* ---------------------------------------------------------------- the library */

fake_adapter fake_adapter_make(const char *name, uint32_t type) {
    return (fake_adapter){
        name, "Fake Vendor", type, TG_WGPU_BACKEND_VULKAN, 10, 1024, 65535, 32768, UINT64_C(4) << 30, UINT64_C(2) << 30, FAKE_RIGHT};
}

static void fake_fill(fake_flavour flavour) {
    tg_webgpu_api *api = &fake.api;
#define FAKE_SET(need, result, field, symbol, parameters) api->field = fake_##field;
    TG_WGPU_FUNCTIONS(FAKE_SET)
#undef FAKE_SET
    if (flavour != FAKE_DAWN) {
        api->device_tick = NULL;
        api->device_get_adapter = NULL;
        api->get_instance_features = NULL;
    }
    if (flavour != FAKE_NATIVE) {
        api->device_poll = NULL;
        api->get_version = NULL;
        api->instance_enumerate_adapters = NULL;
        api->get_instance_capabilities = NULL;
    }
    if (flavour == FAKE_MINIMAL) {
        api->device_create_compute_pipeline_async = NULL;
        api->shader_module_get_compilation_info = NULL;
    }
}

const tg_webgpu_api *fake_webgpu_begin(const fake_options *options) {
    fake_webgpu_end();
    if (options != NULL) fake.options = *options;
    fake.standard = fake_adapter_make("Fake GPU", TG_WGPU_ADAPTER_DISCRETE);
    fake_fill(fake.options.flavour);
    return &fake.api;
}

const tg_webgpu_api *fake_webgpu_table(void) { return &fake.api; }

static void fake_free_object(fake_object *o) {
    while (o->commands != NULL) {
        fake_command *c = o->commands;
        o->commands = c->next;
        free(c);
    }
    free(o->data);
    free(o->mapped);
    free(o->source);
    free(o);
}

void fake_webgpu_end(void) {
    while (fake.objects != NULL) {
        fake_object *o = fake.objects;
        fake.objects = o->next;
        fake_free_object(o);
    }
    while (fake.events != NULL) {
        fake_event *e = fake.events;
        fake.events = e->next;
        free(e);
    }
    memset(&fake, 0, sizeof fake);
}

const fake_counts *fake_webgpu_counts(void) { return &fake.counts; }

const char *fake_webgpu_first_mistake(void) { return fake.mistake; }

const char *fake_webgpu_call_name(fake_call call) {
    static const char *const names[] = {
#define FAKE_SYMBOL(need, result, field, symbol, parameters) #symbol,
        TG_WGPU_FUNCTIONS(FAKE_SYMBOL)
#undef FAKE_SYMBOL
    };
    return (int)call >= 0 && call < FAKE_CALL_COUNT ? names[call] : "no call";
}

void fake_webgpu_fail(int64_t n, int way) {
    fake.fail_at = n;
    fake.way = way;
    fake.counts.failed = false;
}

void fake_webgpu_lose_at(int64_t n) { fake.lose_at = n; }

void fake_webgpu_print_live(void) {
    for (const fake_object *o = fake.objects; o != NULL; o = o->next)
        if (o->references > 0) printf("alive: %s '%s', %lld references\n", fake_kind_names[o->kind], o->label, (long long)o->references);
}

void *fake_webgpu_procedure(const char *name) {
    void *found = NULL;
#define FAKE_FIND(need, result, field, symbol, parameters) \
  if (strcmp(name, #symbol) == 0) memcpy(&found, &fake.api.field, sizeof found);
    TG_WGPU_FUNCTIONS(FAKE_FIND)
#undef FAKE_FIND
    return found;
}
