/* wgsl_lone: a kernel with a module of its own for each stage, and the resolver that binds each of
 * its arguments as an array of the argument's type, under its number in the kernel: a0, a1, ...
 * The module names no buffer, so that equal kernels have equal modules. Must not know what a
 * kernel computes. */
#include "emit/wgsl.h"
#include "ir/dtype.h"

#include <stdio.h>
#include <string.h>

typedef struct wgsl_lone_module {
    tg_wgsl_resolver resolver;
    tg_wgsl_stage stages[TG_WGSL_MAX_STAGES];

    /* the stage being printed */
    bool *used, *wide;     /* per argument; wide: as vec4<f32>s */
    bool *single;          /* wide, and single elements are read too */
    const char *scratch;   /* type of its elements; NULL: not bound */
    tg_text_buffer arrays; /* declarations of workgroup memory */
} wgsl_lone_module;

static wgsl_lone_module *wgsl_lone_of(tg_wgsl *w) { return (wgsl_lone_module *)w->resolver; }

/* ---------------------------------------------------------------- what the stage names */

static void wgsl_lone_begin(tg_wgsl *w) {
    wgsl_lone_module *m = wgsl_lone_of(w);
    const size_t bytes = sizeof *m->used * (size_t)(w->kernel->argument_count + 1);
    memset(m->used, 0, bytes);
    memset(m->wide, 0, bytes);
    memset(m->single, 0, bytes);
    memset(w->helper, 0, sizeof w->helper);
    tg_text_clear(&m->arrays);
    m->scratch = NULL;
}

static tg_wgsl_memory wgsl_lone_argument(tg_wgsl *w, int32_t argument, bool vectors) {
    wgsl_lone_module *m = wgsl_lone_of(w);
    tg_wgsl_memory memory = {.first = 0};
    if (m->used[argument] && !m->wide[argument] && vectors) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "an argument as vec4s after its elements");
    memory.by_call = m->wide[argument] && !vectors;
    m->single[argument] = m->single[argument] || memory.by_call;
    m->used[argument] = true;
    m->wide[argument] = m->wide[argument] || vectors;
    snprintf(memory.name, sizeof memory.name, "a%d", (int)argument);
    return memory;
}

static tg_wgsl_memory wgsl_lone_scratch(tg_wgsl *w, const char *type) {
    wgsl_lone_module *m = wgsl_lone_of(w);
    if (m->scratch != NULL && strcmp(m->scratch, type) != 0) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "scratch of two types");
    m->scratch = type;
    return (tg_wgsl_memory){.name = "scratch"};
}

static const char *wgsl_lone_array(tg_wgsl *w, const char *name, const tg_wgsl_array *array) {
    char type[48];
    tg_wgsl_element_type(array, type, sizeof type);
    tg_text_add(&wgsl_lone_of(w)->arrays, "var<workgroup> %s: array<%s, %lld>;\n", name, type, (long long)array->count);
    return name;
}

/* ---------------------------------------------------------------- the module */

/* Declares what the stage has used, and lists it. */
static int32_t wgsl_lone_bindings(tg_wgsl *w, tg_text_buffer *text, int32_t *bindings) {
    const wgsl_lone_module *m = wgsl_lone_of(w);
    int32_t count = 0;
    for (int32_t i = 0; i < w->kernel->argument_count; i++) {
        if (!m->used[i]) continue;
        const int64_t elements = tg_wgsl_count(w, i);
        const char *type = m->wide[i] ? "vec4<f32>" : tg_dtype_row(w->kernel->arguments[i].dtype)->wgsl_storage;
        tg_text_add(text, "@group(0) @binding(%d) var<storage, read_write> a%d: array<%s, %lld>;\n", (int)count, (int)i, type,
                    (long long)(m->wide[i] ? elements / 4 : elements));
        if (m->single[i]) tg_text_add(text, "fn at_a%d(i: i32) -> f32 { return a%d[i >> 2u][i & 3]; }\n", (int)i, (int)i);
        bindings[count++] = i;
    }
    if (m->scratch != NULL) {
        tg_text_add(text, "@group(0) @binding(%d) var<storage, read_write> scratch: array<%s, %lld>;\n", (int)count, m->scratch,
                    (long long)w->scratch_words);
        bindings[count++] = TG_WGSL_SCRATCH;
    }
    return count;
}

static void wgsl_lone_write(tg_wgsl *w, tg_text_buffer *text, tg_wgsl_stage *stage, int32_t *bindings, int64_t workgroups, int32_t size) {
    const tg_text_buffer *arrays = &wgsl_lone_of(w)->arrays;
    tg_wgsl_comment(w, text);
    tg_wgsl_enable(text, w->f16, w->matrices);
    stage->binding_count = wgsl_lone_bindings(w, text, bindings);
    stage->bindings = bindings;
    tg_wgsl_define_helpers(w, text);
    tg_text_bytes(text, w->functions.data, w->functions.length);
    tg_text_bytes(text, arrays->data, arrays->length);
    tg_wgsl_main_head(w, text, stage->groups, workgroups, size, "group");
    tg_text_bytes(text, w->main.data, w->main.length);
    tg_text_add(text, "}\n");
}

static void wgsl_lone_end(tg_wgsl *w, int64_t workgroups, int32_t size) {
    wgsl_lone_module *m = wgsl_lone_of(w);
    tg_wgsl_stage *stage = &m->stages[w->stage_count];
    int32_t *bindings = TG_NEW(w->arena, int32_t, w->kernel->argument_count + 1);
    if (bindings == NULL || m->arrays.failed) {
        w->status = TG_ERROR_MEMORY;
        return;
    }
    if (!tg_wgsl_spread(w, workgroups, stage->groups) || size > w->limits->invocations)
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "more workgroups than the device can launch");
    tg_text_buffer text;
    tg_text_init(&text, w->arena->ctx);
    wgsl_lone_write(w, &text, stage, bindings, workgroups, size);
    if (stage->binding_count > w->limits->storage_buffers) tg_wgsl_fail(w, TG_ERROR_LIMIT, "more buffers than the device can bind");
    stage->length = text.length;
    stage->source = text.failed ? NULL : tg_arena_copy(w->arena, text.data, text.length + 1);
    if (stage->source == NULL && w->status == TG_OK) w->status = TG_ERROR_MEMORY;
    tg_text_free(&text);
}

/* ---------------------------------------------------------------- the kernel */

static tg_status wgsl_lone_print(tg_wgsl *w, wgsl_lone_module *m, tg_wgsl_kernel *out) {
    m->resolver = (tg_wgsl_resolver){wgsl_lone_begin, wgsl_lone_argument, wgsl_lone_scratch, wgsl_lone_array, wgsl_lone_end};
    m->used = TG_NEW(w->arena, bool, w->kernel->argument_count + 1);
    m->wide = TG_NEW(w->arena, bool, w->kernel->argument_count + 1);
    m->single = TG_NEW(w->arena, bool, w->kernel->argument_count + 1);
    if (m->used == NULL || m->wide == NULL || m->single == NULL) return TG_ERROR_MEMORY;
    w->resolver = &m->resolver;
    const tg_status status = tg_wgsl_print(w);
    if (status != TG_OK) return status;
    out->stage_count = w->stage_count;
    out->scratch_bytes = w->scratch_words * TG_WORD_BYTES;
    out->tuned = w->tuned ? 1 : 0;
    out->stages = tg_arena_copy(w->arena, m->stages, sizeof m->stages[0] * (size_t)w->stage_count);
    return out->stages != NULL ? TG_OK : TG_ERROR_MEMORY;
}

tg_status tg_emit_wgsl(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena, tg_wgsl_kernel *out) {
    tg_wgsl *w = tg_wgsl_open(program, limits, arena);
    wgsl_lone_module *m = w != NULL ? tg_alloc(arena->ctx, sizeof *m) : NULL;
    tg_status status = TG_ERROR_MEMORY;
    if (m != NULL) {
        w->kernel = &program->kernels[index];
        tg_text_init(&m->arrays, arena->ctx);
        status = wgsl_lone_print(w, m, out);
        tg_text_free(&m->arrays);
        tg_release(arena->ctx, m, sizeof *m);
    }
    if (w != NULL) tg_wgsl_close(w);
    return status;
}
