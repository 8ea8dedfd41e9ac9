/* api: the part of the standard WebGPU C interface (webgpu.h) that the executor calls, in
 * declarations of our own: structs laid out like that header's, numbers, and one list of functions
 * from which the table of pointers is made. Nothing is linked: a table comes from a library opened
 * at run time, from an application, or from a test. Must not know devices or programs.
 *
 * The header has had generations that differ in ways a program sees only at run time. What is done
 * about each:
 *   - tg_wgpu_limits and tg_wgpu_adapter_info have grown at their end: both carry `slack`, and
 *     limits are filled with ones first, which means "undefined" for each field, known or not;
 *   - feature numbers were rearranged once: see tg_wgpu_features and adapters.c, which names a
 *     feature only if it is certain which arrangement the library has;
 *   - an entry of a bind group layout gained bindingArraySize (all Dawns of the last generations,
 *     wgpu-native from 29 on): the shorter entry is tg_wgpu_layout_entry_old;
 *   - the timestamps of a pass gained `next`: adapters.c says of which libraries they are used;
 *   - the callback of onSubmittedWorkDone and the descriptor of an instance changed: neither is
 *     used. */
#ifndef TG_WEBGPU_API_H
#define TG_WEBGPU_API_H

#include <stddef.h>
#include <stdint.h>

/* ---- objects: opaque, reference counted by the library */
#define TG_WGPU_OBJECT(name) typedef struct tg_wgpu_##name##_object *tg_wgpu_##name
TG_WGPU_OBJECT(instance);
TG_WGPU_OBJECT(adapter);
TG_WGPU_OBJECT(device);
TG_WGPU_OBJECT(queue);
TG_WGPU_OBJECT(buffer);
TG_WGPU_OBJECT(shader_module);
TG_WGPU_OBJECT(bind_group_layout);
TG_WGPU_OBJECT(pipeline_layout);
TG_WGPU_OBJECT(bind_group);
TG_WGPU_OBJECT(compute_pipeline);
TG_WGPU_OBJECT(command_encoder);
TG_WGPU_OBJECT(compute_pass);
TG_WGPU_OBJECT(command_buffer);
TG_WGPU_OBJECT(query_set);
#undef TG_WGPU_OBJECT

/* ---- numbers */
enum {
    TG_WGPU_SUCCESS = 1, /* of each status, returned or given to a callback */
    TG_WGPU_MODE_PROCESS_EVENTS = 2,
    TG_WGPU_MODE_SPONTANEOUS = 3,
    TG_WGPU_POWER_UNDEFINED = 0,
    TG_WGPU_POWER_LOW = 1,
    TG_WGPU_POWER_HIGH = 2,
    TG_WGPU_LEVEL_CORE = 2,
    TG_WGPU_STYPE_WGSL = 2,
    TG_WGPU_STYPE_DAWN_TOGGLES = 0x0005000A,
    TG_WGPU_BINDING_STORAGE = 3,
    TG_WGPU_STAGE_COMPUTE = 4,
    TG_WGPU_MAP_READ = 1,
    TG_WGPU_QUERY_TIMESTAMP = 2,
    TG_WGPU_MESSAGE_ERROR = 1
};
typedef enum tg_wgpu_backend {
    TG_WGPU_BACKEND_UNDEFINED = 0,
    TG_WGPU_BACKEND_NULL,
    TG_WGPU_BACKEND_WEBGPU,
    TG_WGPU_BACKEND_D3D11,
    TG_WGPU_BACKEND_D3D12,
    TG_WGPU_BACKEND_METAL,
    TG_WGPU_BACKEND_VULKAN,
    TG_WGPU_BACKEND_OPENGL,
    TG_WGPU_BACKEND_OPENGLES
} tg_wgpu_backend;
typedef enum tg_wgpu_adapter_type {
    TG_WGPU_ADAPTER_DISCRETE = 1,
    TG_WGPU_ADAPTER_INTEGRATED,
    TG_WGPU_ADAPTER_CPU,
    TG_WGPU_ADAPTER_UNKNOWN
} tg_wgpu_adapter_type;
/* Scopes filter by the error's number minus one. */
enum { TG_WGPU_FILTER_VALIDATION = 1, TG_WGPU_FILTER_MEMORY = 2, TG_WGPU_FILTER_INTERNAL = 3 };
enum { TG_WGPU_ERROR_NONE = 1, TG_WGPU_ERROR_VALIDATION = 2, TG_WGPU_ERROR_MEMORY = 3, TG_WGPU_ERROR_INTERNAL = 4 };
/* Why a device was lost. */
enum { TG_WGPU_LOST_UNKNOWN = 1, TG_WGPU_LOST_DESTROYED = 2, TG_WGPU_LOST_CANCELLED = 3, TG_WGPU_LOST_FAILED_CREATION = 4 };
/* Buffer usage */
#define TG_WGPU_USAGE_MAP_READ UINT64_C(0x1)
#define TG_WGPU_USAGE_COPY_SOURCE UINT64_C(0x4)
#define TG_WGPU_USAGE_COPY_DESTINATION UINT64_C(0x8)
#define TG_WGPU_USAGE_STORAGE UINT64_C(0x80)
#define TG_WGPU_USAGE_QUERY_RESOLVE UINT64_C(0x200)

/* ---- structs: fields in the order of the standard header; descriptors that we do not use are void
 * pointers */
typedef struct tg_wgpu_string {
    const char *data;
    size_t length; /* SIZE_MAX: data ends with NUL, or is NULL for no text */
} tg_wgpu_string;
typedef struct tg_wgpu_chain {
    const struct tg_wgpu_chain *next;
    uint32_t type;
} tg_wgpu_chain;
typedef struct tg_wgpu_future {
    uint64_t id;
} tg_wgpu_future;

typedef struct tg_wgpu_limits {
    void *next;
    uint32_t max_texture_dimension_1d, max_texture_dimension_2d, max_texture_dimension_3d, max_texture_array_layers;
    uint32_t max_bind_groups, max_bind_groups_plus_vertex_buffers, max_bindings_per_bind_group;
    uint32_t max_dynamic_uniform_buffers, max_dynamic_storage_buffers;
    uint32_t max_sampled_textures, max_samplers, max_storage_buffers, max_storage_textures, max_uniform_buffers;
    uint64_t max_uniform_binding_bytes, max_storage_binding_bytes;
    uint32_t min_uniform_offset_alignment, min_storage_offset_alignment;
    uint32_t max_vertex_buffers;
    uint64_t max_buffer_bytes;
    uint32_t max_vertex_attributes, max_vertex_stride, max_inter_stage_variables, max_color_attachments, max_color_bytes_per_sample;
    uint32_t max_workgroup_bytes, max_workgroup_invocations;
    uint32_t max_workgroup_x, max_workgroup_y, max_workgroup_z, max_workgroups;
    uint32_t max_immediate_bytes; /* from here on not in all generations */
    uint32_t slack[63];
} tg_wgpu_limits;

typedef struct tg_wgpu_adapter_info {
    void *next;
    tg_wgpu_string vendor, architecture, device, description;
    uint32_t backend, type, vendor_id, device_id;
    uint32_t subgroup_min, subgroup_max; /* from here on not in all generations */
    uint64_t slack[8];
} tg_wgpu_adapter_info;

typedef struct tg_wgpu_features {
    size_t count;
    const uint32_t *items;
} tg_wgpu_features;

typedef struct tg_wgpu_adapter_options {
    const void *next;
    uint32_t feature_level, power, force_fallback, backend;
    void *surface;
} tg_wgpu_adapter_options;

/* Callbacks. Their two user pointers come last. */
typedef void (*tg_wgpu_adapter_fn)(uint32_t status, tg_wgpu_adapter adapter, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_device_fn)(uint32_t status, tg_wgpu_device device, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_map_fn)(uint32_t status, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_pipeline_fn)(uint32_t status, tg_wgpu_compute_pipeline pipeline, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_scope_fn)(uint32_t status, uint32_t error, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_lost_fn)(const tg_wgpu_device *device, uint32_t reason, tg_wgpu_string message, void *user, void *more);
typedef void (*tg_wgpu_error_fn)(const tg_wgpu_device *device, uint32_t error, tg_wgpu_string message, void *user, void *more);

typedef struct tg_wgpu_message {
    void *next;
    tg_wgpu_string text;
    uint32_t type;
    uint64_t line, column, offset, length; /* line and column from 1; 0: not known */
} tg_wgpu_message;
typedef struct tg_wgpu_compilation_info {
    void *next;
    size_t count;
    const tg_wgpu_message *messages;
} tg_wgpu_compilation_info;
typedef void (*tg_wgpu_compilation_fn)(uint32_t status, const tg_wgpu_compilation_info *info, void *user, void *more);

#define TG_WGPU_CALLBACK(name) \
  typedef struct tg_wgpu_##name##_callback { \
    const void *next; \
    uint32_t mode; \
    tg_wgpu_##name##_fn call; \
    void *user, *more; \
  } tg_wgpu_##name##_callback
TG_WGPU_CALLBACK(adapter);
TG_WGPU_CALLBACK(device);
TG_WGPU_CALLBACK(map);
TG_WGPU_CALLBACK(pipeline);
TG_WGPU_CALLBACK(scope);
TG_WGPU_CALLBACK(lost);
TG_WGPU_CALLBACK(compilation);
#undef TG_WGPU_CALLBACK
typedef struct tg_wgpu_error_callback { /* has no mode */
    const void *next;
    tg_wgpu_error_fn call;
    void *user, *more;
} tg_wgpu_error_callback;

/* of a queue, an encoder, a pass, a command buffer: descriptors of which we set nothing else */
typedef struct tg_wgpu_label {
    const void *next;
    tg_wgpu_string label;
} tg_wgpu_label;
typedef struct tg_wgpu_device_descriptor {
    const tg_wgpu_chain *next;
    tg_wgpu_string label;
    size_t feature_count;
    const uint32_t *features;
    const tg_wgpu_limits *limits;
    tg_wgpu_label queue;
    tg_wgpu_lost_callback lost;
    tg_wgpu_error_callback error;
} tg_wgpu_device_descriptor;
/* chained to an adapter's options or a device's descriptor; Dawn only */
typedef struct tg_wgpu_dawn_toggles {
    tg_wgpu_chain chain;
    size_t enabled_count;
    const char *const *enabled;
    size_t disabled_count;
    const char *const *disabled;
} tg_wgpu_dawn_toggles;

typedef struct tg_wgpu_buffer_descriptor {
    const void *next;
    tg_wgpu_string label;
    uint64_t usage, size;
    uint32_t mapped_at_creation;
} tg_wgpu_buffer_descriptor;
typedef struct tg_wgpu_shader_source {
    tg_wgpu_chain chain;
    tg_wgpu_string code;
} tg_wgpu_shader_source;
typedef struct tg_wgpu_shader_descriptor {
    const tg_wgpu_chain *next;
    tg_wgpu_string label;
} tg_wgpu_shader_descriptor;

typedef struct tg_wgpu_buffer_layout {
    const void *next;
    uint32_t type, has_dynamic_offset;
    uint64_t min_binding_bytes;
} tg_wgpu_buffer_layout;
/* What else an entry could be (a sampler, a texture, a storage texture); all zero: none of
 * these. */
typedef struct tg_wgpu_other_layouts {
    const void *sampler_next;
    uint32_t sampler_type;
    const void *texture_next;
    uint32_t texture_sample, texture_dimension, texture_multisampled;
    const void *storage_next;
    uint32_t storage_access, storage_format, storage_dimension;
} tg_wgpu_other_layouts;
typedef struct tg_wgpu_layout_entry {
    const void *next;
    uint32_t binding;
    uint64_t visibility;
    uint32_t array_size;
    tg_wgpu_buffer_layout buffer;
    tg_wgpu_other_layouts others;
} tg_wgpu_layout_entry;
typedef struct tg_wgpu_layout_entry_old {
    const void *next;
    uint32_t binding;
    uint64_t visibility;
    tg_wgpu_buffer_layout buffer;
    tg_wgpu_other_layouts others;
} tg_wgpu_layout_entry_old;
typedef struct tg_wgpu_bind_group_layout_descriptor {
    const void *next;
    tg_wgpu_string label;
    size_t count;
    const void *entries; /* tg_wgpu_layout_entry or tg_wgpu_layout_entry_old */
} tg_wgpu_bind_group_layout_descriptor;
typedef struct tg_wgpu_pipeline_layout_descriptor {
    const void *next;
    tg_wgpu_string label;
    size_t count;
    const tg_wgpu_bind_group_layout *layouts;
    uint32_t immediate_bytes; /* not in all generations */
} tg_wgpu_pipeline_layout_descriptor;
typedef struct tg_wgpu_bind_group_entry {
    const void *next;
    uint32_t binding;
    tg_wgpu_buffer buffer;
    uint64_t offset, size;
    void *sampler, *texture;
} tg_wgpu_bind_group_entry;
typedef struct tg_wgpu_bind_group_descriptor {
    const void *next;
    tg_wgpu_string label;
    tg_wgpu_bind_group_layout layout;
    size_t count;
    const tg_wgpu_bind_group_entry *entries;
} tg_wgpu_bind_group_descriptor;
typedef struct tg_wgpu_compute_pipeline_descriptor {
    const void *next;
    tg_wgpu_string label;
    tg_wgpu_pipeline_layout layout;
    struct {
        const void *next;
        tg_wgpu_shader_module module;
        tg_wgpu_string entry;
        size_t constant_count;
        const void *constants;
    } compute;
} tg_wgpu_compute_pipeline_descriptor;
typedef struct tg_wgpu_query_set_descriptor {
    const void *next;
    tg_wgpu_string label;
    uint32_t type, count;
} tg_wgpu_query_set_descriptor;
/* Queries of the set that are written when the pass begins and when it ends. */
typedef struct tg_wgpu_pass_timestamps {
    const void *next; /* not in all generations: see adapters.c */
    tg_wgpu_query_set set;
    uint32_t begin, end;
} tg_wgpu_pass_timestamps;
typedef struct tg_wgpu_pass_descriptor {
    const void *next;
    tg_wgpu_string label;
    const tg_wgpu_pass_timestamps *timestamps;
} tg_wgpu_pass_descriptor;

/* ---- functions: X(need, result, field, symbol, parameters). OPTIONAL ones may be NULL in a
 * table. */
#define TG_WGPU_FUNCTIONS(X) \
  X(REQUIRED, tg_wgpu_instance, create_instance, wgpuCreateInstance, (const void *descriptor)) \
  X(REQUIRED, tg_wgpu_future, instance_request_adapter, wgpuInstanceRequestAdapter, \
    (tg_wgpu_instance instance, const tg_wgpu_adapter_options *options, tg_wgpu_adapter_callback callback)) \
  X(REQUIRED, void, instance_process_events, wgpuInstanceProcessEvents, (tg_wgpu_instance instance)) \
  X(REQUIRED, void, instance_release, wgpuInstanceRelease, (tg_wgpu_instance instance)) \
  X(REQUIRED, uint32_t, adapter_get_info, wgpuAdapterGetInfo, (tg_wgpu_adapter adapter, tg_wgpu_adapter_info * info)) \
  X(REQUIRED, void, adapter_info_free_members, wgpuAdapterInfoFreeMembers, (tg_wgpu_adapter_info info)) \
  X(REQUIRED, uint32_t, adapter_get_limits, wgpuAdapterGetLimits, (tg_wgpu_adapter adapter, tg_wgpu_limits * limits)) \
  X(REQUIRED, void, adapter_get_features, wgpuAdapterGetFeatures, (tg_wgpu_adapter adapter, tg_wgpu_features * features)) \
  X(REQUIRED, void, features_free_members, wgpuSupportedFeaturesFreeMembers, (tg_wgpu_features features)) \
  X(REQUIRED, tg_wgpu_future, adapter_request_device, wgpuAdapterRequestDevice, \
    (tg_wgpu_adapter adapter, const tg_wgpu_device_descriptor *descriptor, tg_wgpu_device_callback callback)) \
  X(REQUIRED, void, adapter_release, wgpuAdapterRelease, (tg_wgpu_adapter adapter)) \
  X(REQUIRED, tg_wgpu_queue, device_get_queue, wgpuDeviceGetQueue, (tg_wgpu_device device)) \
  X(REQUIRED, uint32_t, device_get_limits, wgpuDeviceGetLimits, (tg_wgpu_device device, tg_wgpu_limits * limits)) \
  X(REQUIRED, tg_wgpu_buffer, device_create_buffer, wgpuDeviceCreateBuffer, \
    (tg_wgpu_device device, const tg_wgpu_buffer_descriptor *descriptor)) \
  X(REQUIRED, tg_wgpu_shader_module, device_create_shader_module, wgpuDeviceCreateShaderModule, \
    (tg_wgpu_device device, const tg_wgpu_shader_descriptor *descriptor)) \
  X(REQUIRED, tg_wgpu_bind_group_layout, device_create_bind_group_layout, wgpuDeviceCreateBindGroupLayout, \
    (tg_wgpu_device device, const tg_wgpu_bind_group_layout_descriptor *descriptor)) \
  X(REQUIRED, tg_wgpu_pipeline_layout, device_create_pipeline_layout, wgpuDeviceCreatePipelineLayout, \
    (tg_wgpu_device device, const tg_wgpu_pipeline_layout_descriptor *descriptor)) \
  X(REQUIRED, tg_wgpu_bind_group, device_create_bind_group, wgpuDeviceCreateBindGroup, \
    (tg_wgpu_device device, const tg_wgpu_bind_group_descriptor *descriptor)) \
  X(REQUIRED, tg_wgpu_compute_pipeline, device_create_compute_pipeline, wgpuDeviceCreateComputePipeline, \
    (tg_wgpu_device device, const tg_wgpu_compute_pipeline_descriptor *descriptor)) \
  X(OPTIONAL, tg_wgpu_future, device_create_compute_pipeline_async, wgpuDeviceCreateComputePipelineAsync, \
    (tg_wgpu_device device, const tg_wgpu_compute_pipeline_descriptor *descriptor, tg_wgpu_pipeline_callback callback)) \
  X(REQUIRED, tg_wgpu_command_encoder, device_create_command_encoder, wgpuDeviceCreateCommandEncoder, \
    (tg_wgpu_device device, const tg_wgpu_label *descriptor)) \
  X(REQUIRED, void, device_push_error_scope, wgpuDevicePushErrorScope, (tg_wgpu_device device, uint32_t filter)) \
  X(REQUIRED, tg_wgpu_future, device_pop_error_scope, wgpuDevicePopErrorScope, (tg_wgpu_device device, tg_wgpu_scope_callback callback)) \
  X(REQUIRED, void, device_destroy, wgpuDeviceDestroy, (tg_wgpu_device device)) \
  X(REQUIRED, void, device_release, wgpuDeviceRelease, (tg_wgpu_device device)) \
  X(REQUIRED, void, queue_submit, wgpuQueueSubmit, (tg_wgpu_queue queue, size_t count, const tg_wgpu_command_buffer *commands)) \
  X(REQUIRED, void, queue_write_buffer, wgpuQueueWriteBuffer, \
    (tg_wgpu_queue queue, tg_wgpu_buffer buffer, uint64_t offset, const void *data, size_t size)) \
  X(REQUIRED, void, queue_release, wgpuQueueRelease, (tg_wgpu_queue queue)) \
  X(REQUIRED, tg_wgpu_future, buffer_map_async, wgpuBufferMapAsync, \
    (tg_wgpu_buffer buffer, uint64_t mode, size_t offset, size_t size, tg_wgpu_map_callback callback)) \
  X(REQUIRED, const void *, buffer_get_const_mapped_range, wgpuBufferGetConstMappedRange, \
    (tg_wgpu_buffer buffer, size_t offset, size_t size)) \
  X(REQUIRED, void, buffer_unmap, wgpuBufferUnmap, (tg_wgpu_buffer buffer)) \
  X(REQUIRED, void, buffer_destroy, wgpuBufferDestroy, (tg_wgpu_buffer buffer)) \
  X(REQUIRED, void, buffer_release, wgpuBufferRelease, (tg_wgpu_buffer buffer)) \
  X(OPTIONAL, tg_wgpu_future, shader_module_get_compilation_info, wgpuShaderModuleGetCompilationInfo, \
    (tg_wgpu_shader_module module, tg_wgpu_compilation_callback callback)) \
  X(REQUIRED, void, shader_module_release, wgpuShaderModuleRelease, (tg_wgpu_shader_module module)) \
  X(REQUIRED, void, bind_group_layout_release, wgpuBindGroupLayoutRelease, (tg_wgpu_bind_group_layout layout)) \
  X(REQUIRED, void, pipeline_layout_release, wgpuPipelineLayoutRelease, (tg_wgpu_pipeline_layout layout)) \
  X(REQUIRED, void, bind_group_release, wgpuBindGroupRelease, (tg_wgpu_bind_group group)) \
  X(REQUIRED, void, compute_pipeline_release, wgpuComputePipelineRelease, (tg_wgpu_compute_pipeline pipeline)) \
  X(REQUIRED, tg_wgpu_compute_pass, encoder_begin_compute_pass, wgpuCommandEncoderBeginComputePass, \
    (tg_wgpu_command_encoder encoder, const tg_wgpu_pass_descriptor *descriptor)) \
  X(REQUIRED, void, encoder_copy_buffer_to_buffer, wgpuCommandEncoderCopyBufferToBuffer, \
    (tg_wgpu_command_encoder encoder, tg_wgpu_buffer source, uint64_t source_offset, tg_wgpu_buffer destination, \
     uint64_t destination_offset, uint64_t size)) \
  X(REQUIRED, tg_wgpu_command_buffer, encoder_finish, wgpuCommandEncoderFinish, \
    (tg_wgpu_command_encoder encoder, const tg_wgpu_label *descriptor)) \
  X(REQUIRED, void, encoder_release, wgpuCommandEncoderRelease, (tg_wgpu_command_encoder encoder)) \
  X(REQUIRED, void, command_buffer_release, wgpuCommandBufferRelease, (tg_wgpu_command_buffer commands)) \
  X(REQUIRED, void, pass_set_pipeline, wgpuComputePassEncoderSetPipeline, (tg_wgpu_compute_pass pass, tg_wgpu_compute_pipeline pipeline)) \
  X(REQUIRED, void, pass_set_bind_group, wgpuComputePassEncoderSetBindGroup, \
    (tg_wgpu_compute_pass pass, uint32_t index, tg_wgpu_bind_group group, size_t offset_count, const uint32_t *offsets)) \
  X(REQUIRED, void, pass_dispatch, wgpuComputePassEncoderDispatchWorkgroups, \
    (tg_wgpu_compute_pass pass, uint32_t x, uint32_t y, uint32_t z)) \
  X(REQUIRED, void, pass_end, wgpuComputePassEncoderEnd, (tg_wgpu_compute_pass pass)) \
  X(REQUIRED, void, pass_release, wgpuComputePassEncoderRelease, (tg_wgpu_compute_pass pass)) \
  /* of the feature timestamp-query */ \
  X(OPTIONAL, uint32_t, device_has_feature, wgpuDeviceHasFeature, (tg_wgpu_device device, uint32_t feature)) \
  X(OPTIONAL, tg_wgpu_query_set, device_create_query_set, wgpuDeviceCreateQuerySet, \
    (tg_wgpu_device device, const tg_wgpu_query_set_descriptor *descriptor)) \
  X(OPTIONAL, void, encoder_resolve_query_set, wgpuCommandEncoderResolveQuerySet, \
    (tg_wgpu_command_encoder encoder, tg_wgpu_query_set set, uint32_t first, uint32_t count, tg_wgpu_buffer destination, \
     uint64_t destination_offset)) \
  X(OPTIONAL, void, query_set_destroy, wgpuQuerySetDestroy, (tg_wgpu_query_set set)) \
  X(OPTIONAL, void, query_set_release, wgpuQuerySetRelease, (tg_wgpu_query_set set)) \
  /* Dawn's own; their presence says that the library is Dawn */ \
  X(OPTIONAL, void, device_tick, wgpuDeviceTick, (tg_wgpu_device device)) \
  X(OPTIONAL, tg_wgpu_adapter, device_get_adapter, wgpuDeviceGetAdapter, (tg_wgpu_device device)) \
  /* wgpu-native's own; device_poll says that the library is wgpu-native */ \
  X(OPTIONAL, uint32_t, device_poll, wgpuDevicePoll, (tg_wgpu_device device, uint32_t wait, const uint64_t *submission)) \
  X(OPTIONAL, uint32_t, get_version, wgpuGetVersion, (void)) \
  X(OPTIONAL, size_t, instance_enumerate_adapters, wgpuInstanceEnumerateAdapters, \
    (tg_wgpu_instance instance, const void *options, tg_wgpu_adapter *adapters)) \
  /* never called: one is in the newer generation of the header, the other in the older */ \
  X(OPTIONAL, void, get_instance_features, wgpuGetInstanceFeatures, (tg_wgpu_features * features)) \
  X(OPTIONAL, uint32_t, get_instance_capabilities, wgpuGetInstanceCapabilities, (void *capabilities))

typedef struct tg_webgpu_api {
#define TG_WGPU_FIELD(need, result, field, symbol, parameters) result(*field) parameters;
    TG_WGPU_FUNCTIONS(TG_WGPU_FIELD)
#undef TG_WGPU_FIELD
} tg_webgpu_api;

#endif
