/* cpu: the CPU as a device. Owns state buffers, each executable's workspace, translated kernels and
 * per-worker scratch, and runs a program's kernels in order. Everything is allocated in open,
 * make_state and load; a run allocates nothing. Results do not depend on the number of threads.
 * Must not know graphs. */
#include "ir/dtype.h"
#include "run/executor.h"
#include "run/cpu/isa.h"
#include "run/cpu/vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct cpu_state {
    char *data;
    int64_t bytes; /* allocated: four more than there are */
    tg_dtype dtype;
} cpu_state;

struct tg_device {
    tg_context *ctx;
    tg_isa isa;
    int threads;
    tg_pool *pool;
    char description[64];
    TG_LIST(cpu_state) states;
};

typedef struct cpu_kernel {
    tg_vm_kernel *code;
    void **arguments;
} cpu_kernel;
/* A kernel argument that is a fed input: its pointer is set in every run. */
typedef struct cpu_feed {
    void **argument;
    int32_t input;
} cpu_feed;

struct tg_executable {
    tg_context *ctx;
    tg_arena arena;
    const tg_program *program;
    char *workspace;
    void **buffers; /* first byte of each; inputs: NULL */
    cpu_kernel *kernels;
    cpu_feed *feeds;
    int64_t feed_count;
    int workers;
    char **scratch;
    char *scratch_block;
    size_t scratch_bytes;
    tg_kernel_time *times; /* NULL: not timed */
    int timed;
};

static int64_t cpu_bytes(tg_dtype dtype, int64_t count) { return count * (int64_t)tg_dtype_bytes(dtype); }

/* ---- device */

static int cpu_thread_count(int wanted) {
    if (wanted > 0) return wanted;
    const char *text = getenv("TENSORGRAD_THREADS");
    if (text != NULL) {
        char *end = NULL;
        long count = strtol(text, &end, 10);
        if (end != text && *end == '\0' && count > 0 && count <= 1024) return (int)count;
    }
    return tg_cpu_count();
}
static void cpu_close(tg_device *device) {
    if (device == NULL) return;
    tg_context *ctx = device->ctx;
    for (int64_t s = 0; s < device->states.count; ++s)
        if (device->states.items[s].data != NULL) tg_release(ctx, device->states.items[s].data, (size_t)device->states.items[s].bytes);
    if (device->states.items != NULL) tg_release(ctx, device->states.items, (size_t)device->states.capacity * sizeof(cpu_state));
    if (device->pool != NULL) tg_pool_destroy(device->pool, ctx);
    tg_release(ctx, device, sizeof *device);
}
static tg_status cpu_open(tg_context *ctx, const tg_open_options *options, tg_device **out) {
    tg_device *device = tg_alloc(ctx, sizeof *device);
    if (device == NULL) return TG_ERROR_MEMORY;
    device->ctx = ctx;
    device->isa = tg_cpu_isa();
    device->pool = tg_pool_create(ctx, cpu_thread_count(options->threads));
    if (device->pool == NULL) {
        cpu_close(device);
        return TG_ERROR_MEMORY;
    }
    device->threads = tg_pool_threads(device->pool);
    snprintf(device->description, sizeof device->description, "cpu (%s, %d thread%s)", tg_isa_name(device->isa), device->threads,
             device->threads == 1 ? "" : "s");
    *out = device;
    return TG_OK;
}
static const char *cpu_describe(const tg_device *device) { return device->description; }
static const char *cpu_adapter(const tg_device *device) { return tg_isa_name(device->isa); }
static const tg_device_model *cpu_model(const tg_device *device) {
    static const tg_device_model model = {.max_arguments = 64, .max_binding_bytes = INT64_MAX};
    (void)device;
    return &model;
}

/* ---- state */

static tg_status cpu_make_state(tg_device *device, int32_t slot, const char *name, tg_dtype dtype, int64_t count) {
    (void)name;
    tg_context *ctx = device->ctx;
    const int64_t bytes = cpu_bytes(dtype, count);
    if (slot < 0 || count < 0) return TG_INTERNAL(ctx, "a state with a negative slot or size");
    if (slot >= device->states.count) {
        if (!tg_grow(ctx, (void **)&device->states.items, &device->states.capacity, slot + 1, sizeof(cpu_state))) return TG_ERROR_MEMORY;
        while (device->states.count <= slot) device->states.items[device->states.count++] = (cpu_state){NULL, 0, TG_F32};
    }
    char *data = tg_alloc(ctx, (size_t)bytes + 4);
    if (data == NULL) return TG_ERROR_MEMORY;
    cpu_state *state = &device->states.items[slot];
    if (state->data != NULL) tg_release(ctx, state->data, (size_t)state->bytes);
    *state = (cpu_state){data, bytes + 4, dtype};
    return TG_OK;
}
/* The state's bytes [offset, offset + bytes), or NULL. */
static char *cpu_state_bytes(const tg_device *device, int32_t slot, int64_t offset, int64_t bytes) {
    if (slot < 0 || slot >= device->states.count || device->states.items[slot].data == NULL) return NULL;
    const cpu_state *state = &device->states.items[slot];
    if (offset < 0 || bytes < 0 || offset > state->bytes - 4 - bytes) return NULL;
    return state->data + offset;
}
/* The same in elements; *bytes gets their size. */
static char *cpu_state_elements(const tg_device *device, int32_t slot, int64_t first, int64_t count, int64_t *bytes) {
    if (slot < 0 || slot >= device->states.count) return NULL;
    const tg_dtype dtype = device->states.items[slot].dtype;
    *bytes = cpu_bytes(dtype, count);
    return cpu_state_bytes(device, slot, cpu_bytes(dtype, first), *bytes);
}
static tg_status cpu_write_state(tg_device *device, int32_t slot, int64_t first, const void *data, int64_t count) {
    int64_t bytes = 0;
    char *to = cpu_state_elements(device, slot, first, count, &bytes);
    if (to == NULL) return TG_INTERNAL(device->ctx, "a write outside a state");
    memcpy(to, data, (size_t)bytes);
    return TG_OK;
}
static tg_status cpu_read_state(tg_device *device, int32_t slot, int64_t first, void *data, int64_t count) {
    int64_t bytes = 0;
    const char *from = cpu_state_elements(device, slot, first, count, &bytes);
    if (from == NULL) return TG_INTERNAL(device->ctx, "a read outside a state");
    memcpy(data, from, (size_t)bytes);
    return TG_OK;
}

/* ---- loading */

static bool cpu_find_buffers(tg_device *device, tg_executable *e, const int32_t *state_slots) {
    const tg_program *program = e->program;
    for (int32_t b = 0; b < program->buffer_count; ++b) {
        const tg_buffer *buffer = &program->buffers[b];
        const int64_t bytes = cpu_bytes(buffer->dtype, buffer->count);
        switch (buffer->storage) {
        case TG_STORAGE_WORKSPACE:
            if (buffer->offset < 0 || buffer->offset > program->workspace_bytes - bytes) return false;
            e->buffers[b] = e->workspace + buffer->offset;
            break;
        case TG_STORAGE_STATE:
            if (buffer->slot < 0 || buffer->slot >= program->state_count) return false;
            e->buffers[b] = cpu_state_bytes(device, state_slots[buffer->slot], buffer->offset, bytes);
            if (e->buffers[b] == NULL) return false;
            break;
        case TG_STORAGE_CONSTANT: e->buffers[b] = (void *)(uintptr_t)buffer->data; break;
        case TG_STORAGE_INPUT:
            if (buffer->slot < 0 || buffer->slot >= program->input_count) return false;
            break;
        }
    }
    return true;
}
/* Do two arguments touch common bytes, and does one of them write? */
static bool cpu_arguments_clash(const tg_executable *e, const tg_argument *a, const tg_argument *b) {
    if (a->access == TG_ACCESS_READ && b->access == TG_ACCESS_READ) return false;
    const tg_buffer *left = &e->program->buffers[a->buffer], *right = &e->program->buffers[b->buffer];
    const uintptr_t from = (uintptr_t)e->buffers[a->buffer], other = (uintptr_t)e->buffers[b->buffer];
    if (from == 0 || other == 0) return false;
    return from < other + (uintptr_t)cpu_bytes(right->dtype, right->count) && other < from + (uintptr_t)cpu_bytes(left->dtype, left->count);
}
static void cpu_find_aliases(const tg_executable *e, const tg_kernel *kernel, bool *aliased) {
    for (int32_t i = 0; i < kernel->argument_count; ++i) {
        aliased[i] = kernel->arguments[i].access == TG_ACCESS_READ_WRITE;
        for (int32_t j = 0; j < kernel->argument_count; ++j)
            if (i != j && cpu_arguments_clash(e, &kernel->arguments[i], &kernel->arguments[j])) aliased[i] = true;
    }
}
static tg_status cpu_load_kernel(tg_device *device, tg_executable *e, int32_t number) {
    const tg_kernel *source = &e->program->kernels[number];
    cpu_kernel *kernel = &e->kernels[number];
    bool *aliased = TG_NEW(&e->arena, bool, source->argument_count + 1);
    kernel->arguments = TG_NEW(&e->arena, void *, source->argument_count + 1);
    if (aliased == NULL || kernel->arguments == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < source->argument_count; ++i) {
        const int32_t b = source->arguments[i].buffer;
        if (b < 0 || b >= e->program->buffer_count) return TG_INTERNAL(e->ctx, "a kernel argument without a buffer");
        kernel->arguments[i] = e->buffers[b];
        if (e->program->buffers[b].storage == TG_STORAGE_INPUT)
            e->feeds[e->feed_count++] = (cpu_feed){&kernel->arguments[i], e->program->buffers[b].slot};
    }
    cpu_find_aliases(e, source, aliased);
    kernel->code = tg_vm_make(&e->arena, source, aliased, device->isa);
    if (kernel->code == NULL) return tg_error(e->ctx);
    if (tg_vm_scratch(kernel->code) > e->scratch_bytes) e->scratch_bytes = tg_vm_scratch(kernel->code);
    return TG_OK;
}
static tg_status cpu_load_kernels(tg_device *device, tg_executable *e, const int32_t *state_slots) {
    const tg_program *program = e->program;
    int64_t argument_count = 0;
    for (int32_t k = 0; k < program->kernel_count; ++k) argument_count += program->kernels[k].argument_count;
    e->buffers = TG_NEW(&e->arena, void *, program->buffer_count + 1);
    e->kernels = TG_NEW(&e->arena, cpu_kernel, program->kernel_count + 1);
    e->feeds = TG_NEW(&e->arena, cpu_feed, argument_count + 1);
    e->scratch = TG_NEW(&e->arena, char *, e->workers);
    e->workspace = tg_alloc(e->ctx, (size_t)program->workspace_bytes + 64);
    if (e->buffers == NULL || e->kernels == NULL || e->feeds == NULL || e->scratch == NULL || e->workspace == NULL) return TG_ERROR_MEMORY;
    if (!cpu_find_buffers(device, e, state_slots)) return TG_INTERNAL(e->ctx, "a program buffer outside its storage");
    for (int32_t k = 0; k < program->kernel_count; ++k) {
        tg_status status = cpu_load_kernel(device, e, k);
        if (status != TG_OK) return status;
    }
    /* workers do not share cache lines */
    e->scratch_bytes = (e->scratch_bytes + 127) & ~(size_t)63;
    e->scratch_block = tg_alloc(e->ctx, e->scratch_bytes * (size_t)e->workers);
    if (e->scratch_block == NULL) return TG_ERROR_MEMORY;
    for (int w = 0; w < e->workers; ++w) e->scratch[w] = e->scratch_block + e->scratch_bytes * (size_t)w;
    return TG_OK;
}
static void cpu_unload(tg_device *device, tg_executable *e) {
    (void)device;
    if (e == NULL) return;
    tg_context *ctx = e->ctx;
    if (e->scratch_block != NULL) tg_release(ctx, e->scratch_block, e->scratch_bytes * (size_t)e->workers);
    if (e->workspace != NULL) tg_release(ctx, e->workspace, (size_t)e->program->workspace_bytes + 64);
    tg_arena_free(&e->arena);
    tg_release(ctx, e, sizeof *e);
}
static tg_status cpu_load(tg_device *device, const tg_program *program, const int32_t *state_slots, tg_executable **out) {
    tg_executable *e = tg_alloc(device->ctx, sizeof *e);
    if (e == NULL) return TG_ERROR_MEMORY;
    e->ctx = device->ctx;
    e->program = program;
    e->workers = device->threads;
    tg_arena_init(&e->arena, device->ctx);
    tg_status status = cpu_load_kernels(device, e, state_slots);
    if (status != TG_OK) {
        cpu_unload(device, e);
        return status;
    }
    *out = e;
    return TG_OK;
}

static int cpu_dispatches(const tg_executable *e) { return e->program->kernel_count; }

/* ---- running */

#if !defined(__wasm__) /* a page has no clock for this */
static double cpu_milliseconds(void) {
    struct timespec now;
    if (timespec_get(&now, TIME_UTC) != TIME_UTC) return 0;
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}
static tg_status cpu_time_kernels(tg_device *device, tg_executable *e, tg_kernel_time *times, int count) {
    (void)device;
    e->times = times;
    e->timed = times != NULL ? count : 0;
    return TG_OK;
}
#else
#  define cpu_milliseconds() 0.0
#  define cpu_time_kernels NULL
#endif
static void cpu_run_timed(tg_device *device, tg_executable *e, int32_t kernel) {
    const double start = cpu_milliseconds();
    tg_vm_run(e->kernels[kernel].code, e->kernels[kernel].arguments, device->pool, e->scratch);
    const double took = cpu_milliseconds() - start;
    double *least = &e->times[kernel].milliseconds;
    if (took > 0 && (*least <= 0 || took < *least)) *least = took;
}

static tg_status cpu_run(tg_device *device, tg_executable *e, const void *const *inputs, void *const *outputs) {
    const tg_program *program = e->program;
    for (int64_t k = 0; k < e->feed_count; ++k) *e->feeds[k].argument = (void *)(uintptr_t)inputs[e->feeds[k].input];
    for (int32_t k = 0; k < program->kernel_count; ++k) {
        if (k < e->timed) cpu_run_timed(device, e, k);
        else tg_vm_run(e->kernels[k].code, e->kernels[k].arguments, device->pool, e->scratch);
    }
    for (int32_t i = 0; outputs != NULL && i < program->output_count; ++i) {
        if (outputs[i] == NULL) continue;
        const tg_output *output = &program->outputs[i];
        const tg_buffer *buffer = &program->buffers[output->buffer];
        const void *from = buffer->storage == TG_STORAGE_INPUT ? inputs[buffer->slot] : e->buffers[output->buffer];
        memcpy(outputs[i], from, (size_t)cpu_bytes(output->dtype, tg_shape_count(output->shape)));
    }
    return TG_OK;
}

const tg_executor tg_cpu_executor = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .adapter = cpu_adapter,
    .model = cpu_model,
    .make_state = cpu_make_state,
    .write_state = cpu_write_state,
    .read_state = cpu_read_state,
    .load = cpu_load,
    .unload = cpu_unload,
    .dispatches = cpu_dispatches,
    .time_kernels = cpu_time_kernels,
    .run = cpu_run,
};
