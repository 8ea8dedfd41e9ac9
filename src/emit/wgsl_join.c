/* wgsl_join: several kernels as one dispatch. Each is printed by the printer of its kind, for a
 * workgroup size that all share; here its statements become a function, and the resolver makes what
 * they name fit into one module:
 *   arguments   words of a block: element e of argument 3 is bitcast<f32>(workspace[1024 + (e)])
 *   functions   begin with the kernel's number: k3_
 *   arrays      of workgroup memory: the n-th array of a type is the same for all kernels
 * Side by side, the workgroup's number selects the function. In a chain a workgroup is a slice,
 * which goes through the functions of all kernels, with barriers between them. Kernels that repeat
 * (wgsl_roll.h) are printed once and called in a loop; `turn` counts its rounds. Kernels in several
 * stages share modules: one has all first stages, the next one all second stages. Must not know
 * what the kernels compute. */
#include "emit/wgsl.h"
#include "emit/wgsl_roll.h"
#include "ir/dtype.h"

#include <stdio.h>
#include <string.h>

#define WGSL_JOIN_MAX_BLOCKS 64            /* bindings of one stage */
#define WGSL_JOIN_MAX_ARRAYS 24            /* in workgroup memory */
#define WGSL_JOIN_MOST_SCRATCH (128 << 20) /* bytes: every device can bind as many */
#define WGSL_JOIN_TYPE 32

typedef struct wgsl_join_block {
    int32_t binding; /* as tg_wgsl_stage.bindings */
    bool wide;       /* bound as vec4s; only read */
} wgsl_join_block;

typedef struct wgsl_join_array {
    tg_wgsl_array array; /* as long as the longest that a kernel asked for */
    char type[WGSL_JOIN_TYPE];
    const char *name;
    bool taken; /* by the kernel that is being printed */
} wgsl_join_array;

/* A module: one stage of each kernel that has enough stages. */
typedef struct wgsl_join_stage {
    wgsl_join_block blocks[WGSL_JOIN_MAX_BLOCKS];
    int32_t block_count;
    wgsl_join_array arrays[WGSL_JOIN_MAX_ARRAYS];
    int32_t array_count;
    int32_t kernel_count; /* printed into it */
    int64_t workgroups;
    bool f16;
    tg_text_buffer functions, calls;
} wgsl_join_stage;

typedef struct wgsl_join_module {
    tg_wgsl_resolver resolver;
    bool **vectors;        /* per kernel and argument: read as vec4s, in the kernel's first stage */
    int64_t scratch_words; /* of the kernels printed before */
    wgsl_join_stage *stages[TG_WGSL_MAX_STAGES];
    int32_t stage_count;
    wgsl_join_stage *stage; /* being printed */
    bool shares;            /* it has arrays in workgroup memory */
    tg_wgsl_roll roll;      /* that the kernel being printed begins or is in; 1 turn: it is alone */
    int32_t in_roll;        /* its number in it */
    bool rolls;             /* some kernels repeat */
    char prefix[16];
} wgsl_join_module;

static wgsl_join_module *wgsl_join_of(tg_wgsl *w) { return (wgsl_join_module *)w->resolver; }

/* ---------------------------------------------------------------- blocks */

const char *tg_wgsl_block_name(int32_t binding, char *text, size_t size) {
    switch (binding) {
    case TG_WGSL_SCRATCH: return "scratch";
    case TG_WGSL_WORKSPACE: return "workspace";
    case TG_WGSL_INPUTS: return "inputs";
    case TG_WGSL_CONSTANTS: return "constants";
    default: snprintf(text, size, "state%d", (int)TG_WGSL_STATE_SLOT(binding)); return text;
    }
}

static int64_t wgsl_join_block_words(tg_wgsl *w, int32_t binding) {
    const tg_program *program = w->program;
    switch (binding) {
    case TG_WGSL_SCRATCH: return wgsl_join_of(w)->scratch_words;
    case TG_WGSL_WORKSPACE: return program->workspace_bytes / TG_WORD_BYTES;
    case TG_WGSL_INPUTS: return program->input_block_bytes / TG_WORD_BYTES;
    case TG_WGSL_CONSTANTS: return program->constant_block_bytes / TG_WORD_BYTES;
    default: return tg_shape_count(program->states[TG_WGSL_STATE_SLOT(binding)].shape);
    }
}

int32_t tg_wgsl_block_of(const tg_buffer *buffer) {
    switch (buffer->storage) {
    case TG_STORAGE_WORKSPACE: return TG_WGSL_WORKSPACE;
    case TG_STORAGE_INPUT: return TG_WGSL_INPUTS;
    case TG_STORAGE_CONSTANT: return TG_WGSL_CONSTANTS;
    case TG_STORAGE_STATE: return TG_WGSL_STATE(buffer->slot);
    }
    return TG_WGSL_SCRATCH;
}

static int32_t wgsl_join_block_of(const tg_wgsl *w, const tg_kernel *kernel, int32_t argument) {
    return tg_wgsl_block_of(&w->program->buffers[kernel->arguments[argument].buffer]);
}

bool tg_wgsl_may_widen(const tg_wgsl *w, int32_t argument) {
    if (tg_wgsl_is_lone(w)) return true;
    const int32_t block = wgsl_join_block_of(w, w->kernel, argument);
    for (int32_t k = 0; k < w->launch->count; k++) {
        const tg_kernel *kernel = &w->program->kernels[w->launch->first + k];
        for (int32_t a = 0; a < kernel->argument_count; a++)
            if ((kernel->arguments[a].access & TG_ACCESS_WRITE) && wgsl_join_block_of(w, kernel, a) == block) return false;
    }
    return true;
}

/* Does some kernel read the block as vec4s in this stage? */
static bool wgsl_join_is_wide(tg_wgsl *w, int32_t binding) {
    const wgsl_join_module *m = wgsl_join_of(w);
    for (int32_t k = 0; k < w->launch->count && w->stage_count == 0; k++) {
        const tg_kernel *kernel = &w->program->kernels[w->launch->first + k];
        for (int32_t a = 0; a < kernel->argument_count; a++)
            if (m->vectors[k][a] && wgsl_join_block_of(w, kernel, a) == binding) return true;
    }
    return false;
}

/* Binds the block once; returns whether as vec4s. */
static bool wgsl_join_bind(tg_wgsl *w, int32_t binding) {
    wgsl_join_stage *s = wgsl_join_of(w)->stage;
    for (int32_t i = 0; i < s->block_count; i++)
        if (s->blocks[i].binding == binding) return s->blocks[i].wide;
    if (s->block_count == WGSL_JOIN_MAX_BLOCKS || s->block_count == w->limits->storage_buffers) {
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "kernels of one launch that bind too many buffers");
        return false;
    }
    wgsl_join_block *block = &s->blocks[s->block_count++];
    *block = (wgsl_join_block){binding, wgsl_join_is_wide(w, binding)};
    return block->wide;
}

/* ---------------------------------------------------------------- what a kernel names */

static void wgsl_join_set_name(tg_wgsl_memory *memory, int32_t binding) {
    char text[sizeof memory->name];
    snprintf(memory->name, sizeof memory->name, "%s", tg_wgsl_block_name(binding, text, sizeof text));
}

static tg_wgsl_memory wgsl_join_argument(tg_wgsl *w, int32_t argument, bool vectors) {
    const wgsl_join_module *m = wgsl_join_of(w);
    tg_wgsl_memory memory = {.first = 0};
    if (w->status != TG_OK) return memory;
    const tg_argument *a = &w->kernel->arguments[argument];
    const int32_t binding = wgsl_join_block_of(w, w->kernel, argument);
    const bool wide = wgsl_join_bind(w, binding);
    const char *type = tg_dtype_row(a->dtype)->wgsl_storage;
    wgsl_join_set_name(&memory, binding);
    if (vectors && !wide) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "vec4s that were not planned");
    memory.first = w->program->buffers[a->buffer].offset / (vectors ? 4 * TG_WORD_BYTES : TG_WORD_BYTES);
    if (m->roll.turns > 1) memory.step = m->roll.words[m->in_roll][argument] / (vectors ? 4 : 1);
    memory.cast = vectors ? "vec4<f32>" : strcmp(type, "u32") != 0 ? type : NULL;
    memory.by_call = wide && !vectors;
    return memory;
}

static tg_wgsl_memory wgsl_join_scratch(tg_wgsl *w, const char *type) {
    tg_wgsl_memory memory = {.name = "scratch"};
    if (w->status != TG_OK) return memory;
    (void)wgsl_join_bind(w, TG_WGSL_SCRATCH);
    memory.first = wgsl_join_of(w)->scratch_words;
    memory.cast = strcmp(type, "u32") != 0 ? type : NULL;
    return memory;
}

/* "shared_vec4f32_0": the `ordinal`-th array of a type. */
static const char *wgsl_join_array_name(tg_wgsl *w, const tg_wgsl_array *a, int32_t ordinal) {
    const char *vectors = a->vectors ? "vec4" : "";
    const char *name = a->inner > 0 ? tg_arena_format(w->arena, "shared_array%s%s%lld_%d", vectors, a->scalar, (long long)a->inner, ordinal)
                                    : tg_arena_format(w->arena, "shared_%s%s_%d", vectors, a->scalar, ordinal);
    if (name == NULL) w->status = TG_ERROR_MEMORY;
    return name != NULL ? name : "";
}

/* The first array of the type that the kernel has not taken yet, made as long as the kernel
 * needs. */
static const char *wgsl_join_array_for(tg_wgsl *w, const char *name, const tg_wgsl_array *array) {
    wgsl_join_module *m = wgsl_join_of(w);
    wgsl_join_stage *s = m->stage;
    char type[WGSL_JOIN_TYPE];
    int32_t ordinal = 0;
    if (w->status != TG_OK) return name;
    m->shares = true;
    tg_wgsl_element_type(array, type, sizeof type);
    for (int32_t i = 0; i < s->array_count; i++) {
        wgsl_join_array *each = &s->arrays[i];
        if (strcmp(each->type, type) != 0) continue;
        ordinal++;
        if (each->taken) continue;
        each->taken = true;
        if (each->array.count < array->count) each->array.count = array->count;
        return each->name;
    }
    if (s->array_count == WGSL_JOIN_MAX_ARRAYS) {
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "too many arrays in workgroup memory");
        return name;
    }
    wgsl_join_array *added = &s->arrays[s->array_count++];
    *added = (wgsl_join_array){.array = *array, .name = wgsl_join_array_name(w, array, ordinal), .taken = true};
    memcpy(added->type, type, sizeof type);
    return added->name;
}

/* ---------------------------------------------------------------- a kernel's stage */

static wgsl_join_stage *wgsl_join_make_stage(tg_wgsl *w) {
    wgsl_join_module *m = wgsl_join_of(w);
    wgsl_join_stage *s = TG_NEW(w->arena, wgsl_join_stage, 1);
    if (s == NULL) {
        w->status = TG_ERROR_MEMORY;
        return NULL;
    }
    tg_text_init(&s->functions, w->arena->ctx);
    tg_text_init(&s->calls, w->arena->ctx);
    m->stages[m->stage_count++] = s;
    return s;
}

static void wgsl_join_begin(tg_wgsl *w) {
    wgsl_join_module *m = wgsl_join_of(w);
    m->stage = w->stage_count < m->stage_count ? m->stages[w->stage_count] : wgsl_join_make_stage(w);
    if (m->stage == NULL) return;
    for (int32_t i = 0; i < m->stage->array_count; i++) m->stage->arrays[i].taken = false;
    m->shares = false;
    snprintf(m->prefix, sizeof m->prefix, "k%d_", (int)m->stage->kernel_count);
    w->prefix = m->prefix;
}

/* Workgroups [first, first + workgroups) are this kernel's. */
static void wgsl_join_call_beside(wgsl_join_stage *s, int64_t workgroups) {
    tg_text_add(&s->calls, "    %sif (group < %lld) { k%d(group - %lld, t); }\n", s->workgroups > 0 ? "else " : "",
                (long long)(s->workgroups + workgroups), (int)s->kernel_count, (long long)s->workgroups);
}

static void wgsl_join_call_in_chain(const wgsl_join_module *m, wgsl_join_stage *s, int64_t workgroups) {
    const int number = (int)s->kernel_count;
    const bool rolled = m->roll.turns > 1, shares = m->shares;
    if (rolled && m->in_roll == 0) tg_text_add(&s->calls, "    for (var i = 0; i < %d; i++) {\n    turn = i;\n", (int)m->roll.turns);
    if (number > 0 || rolled) tg_text_add(&s->calls, "    storageBarrier();\n");
    if (workgroups == 1) tg_text_add(&s->calls, "    k%d(0, t, slice);\n", number);
    else {
        tg_text_add(&s->calls, "    for (var group = 0; group < %lld; group++) {\n        k%d(group, t, slice);\n", (long long)workgroups,
                    number);
        if (shares) tg_text_add(&s->calls, "        workgroupBarrier();\n");
        tg_text_add(&s->calls, "    }\n");
    }
    if (shares && workgroups == 1) tg_text_add(&s->calls, "    workgroupBarrier();\n");
    if (rolled && m->in_roll == m->roll.period - 1) tg_text_add(&s->calls, "    }\n");
}

/* The kernel's functions, and its statements as function k<number>. */
static void wgsl_join_end(tg_wgsl *w, int64_t workgroups, int32_t size) {
    wgsl_join_module *m = wgsl_join_of(w);
    wgsl_join_stage *s = m->stage;
    const bool chain = w->launch->slices > 0;
    if (size != w->frame.size) tg_wgsl_fail(w, TG_ERROR_LIMIT, "a workgroup of another size than the launch's");
    if (w->matrices) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "subgroup matrices beside other kernels");
    tg_wgsl_comment(w, &s->functions);
    tg_text_bytes(&s->functions, w->functions.data, w->functions.length);
    tg_text_add(&s->functions, "fn k%d(group: i32, t: i32%s) {\n", (int)s->kernel_count, chain ? ", slice: i32" : "");
    tg_text_bytes(&s->functions, w->main.data, w->main.length);
    tg_text_add(&s->functions, "}\n");
    if (chain) wgsl_join_call_in_chain(m, s, workgroups);
    else wgsl_join_call_beside(s, workgroups);
    s->workgroups += workgroups;
    s->f16 = s->f16 || w->f16;
    s->kernel_count++;
}

/* ---------------------------------------------------------------- modules */

static void wgsl_join_declare(tg_wgsl *w, const wgsl_join_stage *s, tg_text_buffer *text) {
    char name[32];
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->block_count; i++) {
        const wgsl_join_block *block = &s->blocks[i];
        const char *called = tg_wgsl_block_name(block->binding, name, sizeof name);
        const int64_t words = wgsl_join_block_words(w, block->binding);
        tg_text_add(text, "@group(0) @binding(%d) var<storage, read_write> %s: array<%s, %lld>;\n", (int)i, called,
                    block->wide ? "vec4<u32>" : "u32", (long long)(block->wide ? words / 4 : words));
        if (block->wide) tg_text_add(text, "fn at_%s(i: i32) -> u32 { return %s[i >> 2u][i & 3]; }\n", called, called);
    }
    for (int32_t i = 0; i < s->array_count; i++) {
        const wgsl_join_array *a = &s->arrays[i];
        tg_text_add(text, "var<workgroup> %s: array<%s, %lld>;\n", a->name, a->type, (long long)a->array.count);
        bytes += tg_wgsl_array_bytes(&a->array);
    }
    if (bytes > w->limits->workgroup_bytes) tg_wgsl_fail(w, TG_ERROR_LIMIT, "kernels of one launch that share too much workgroup memory");
}

static void wgsl_join_write(tg_wgsl *w, const wgsl_join_stage *s, tg_wgsl_stage *stage, tg_text_buffer *text) {
    const tg_launch *launch = w->launch;
    const bool chain = launch->slices > 0;
    const int64_t workgroups = chain ? launch->slices : s->workgroups;
    if (!tg_wgsl_spread(w, workgroups, stage->groups)) tg_wgsl_fail(w, TG_ERROR_LIMIT, "more workgroups than the device can launch");
    if (chain) tg_text_add(text, "// a chain of %d kernels, %d slices\n", (int)launch->count, (int)launch->slices);
    else tg_text_add(text, "// %d kernels side by side\n", (int)launch->count);
    tg_wgsl_enable(text, s->f16, false);
    if (wgsl_join_of(w)->rolls) tg_text_add(text, "var<private> turn: i32;\n");
    wgsl_join_declare(w, s, text);
    tg_wgsl_define_helpers(w, text);
    tg_text_bytes(text, s->functions.data, s->functions.length);
    tg_wgsl_main_head(w, text, stage->groups, workgroups, w->frame.size, chain ? "slice" : "group");
    tg_text_bytes(text, s->calls.data, s->calls.length);
    tg_text_add(text, "}\n");
}

static tg_status wgsl_join_finish(tg_wgsl *w, const wgsl_join_stage *s, tg_wgsl_stage *stage) {
    int32_t *bindings = TG_NEW(w->arena, int32_t, s->block_count + 1);
    if (bindings == NULL || s->functions.failed || s->calls.failed) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < s->block_count; i++) bindings[i] = s->blocks[i].binding;
    stage->bindings = bindings;
    stage->binding_count = s->block_count;
    tg_text_buffer text;
    tg_text_init(&text, w->arena->ctx);
    wgsl_join_write(w, s, stage, &text);
    stage->length = text.length;
    stage->source = text.failed ? NULL : tg_arena_copy(w->arena, text.data, text.length + 1);
    tg_text_free(&text);
    return w->status != TG_OK ? w->status : stage->source != NULL ? TG_OK : TG_ERROR_MEMORY;
}

/* ---------------------------------------------------------------- the launch */

/* Asks each kernel what it will read as vec4s, because that decides how the others read the same
 * block. */
static tg_status wgsl_join_plan(tg_wgsl *w) {
    wgsl_join_module *m = wgsl_join_of(w);
    m->vectors = TG_NEW(w->arena, bool *, w->launch->count);
    if (m->vectors == NULL) return TG_ERROR_MEMORY;
    for (int32_t k = 0; k < w->launch->count; k++) {
        w->kernel = &w->program->kernels[w->launch->first + k];
        m->vectors[k] = TG_NEW(w->arena, bool, w->kernel->argument_count + 1);
        if (m->vectors[k] == NULL) return TG_ERROR_MEMORY;
        const tg_status status = tg_wgsl_plan_vectors(w, m->vectors[k]);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static tg_status wgsl_join_print(tg_wgsl *w) {
    wgsl_join_module *m = wgsl_join_of(w);
    for (int32_t k = 0; k < w->launch->count; k += m->roll.period * m->roll.turns) {
        m->roll = (tg_wgsl_roll){.first = k, .period = 1, .turns = 1};
        if (w->launch->slices > 0 && !tg_wgsl_find_roll(w->program, w->launch, k, m->vectors, w->arena, &m->roll)) return TG_ERROR_MEMORY;
        m->rolls = m->rolls || m->roll.turns > 1;
        for (m->in_roll = 0; m->in_roll < m->roll.period; m->in_roll++) {
            w->kernel = &w->program->kernels[w->launch->first + k + m->in_roll];
            const tg_status status = tg_wgsl_print(w);
            if (status != TG_OK) return status;
            m->scratch_words += w->scratch_words;
        }
    }
    if (m->scratch_words > WGSL_JOIN_MOST_SCRATCH / TG_WORD_BYTES)
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "kernels of one launch that need too much scratch");
    if (w->launch->slices > 0 && m->stage_count > 1) return TG_INTERNAL(w->arena->ctx, "a kernel of a chain in several stages");
    return w->status;
}

static tg_status wgsl_join_all(tg_wgsl *w, tg_wgsl_kernel *out) {
    const wgsl_join_module *m = wgsl_join_of(w);
    tg_status status = wgsl_join_plan(w);
    if (status == TG_OK) status = wgsl_join_print(w);
    if (status != TG_OK) return status;
    out->stages = TG_NEW(w->arena, tg_wgsl_stage, m->stage_count + 1);
    if (out->stages == NULL) return TG_ERROR_MEMORY;
    for (int32_t s = 0; s < m->stage_count && status == TG_OK; s++) status = wgsl_join_finish(w, m->stages[s], &out->stages[s]);
    out->stage_count = m->stage_count;
    out->scratch_bytes = m->scratch_words * TG_WORD_BYTES;
    return status;
}

tg_status tg_wgsl_join(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, const tg_schedule *schedule,
                       tg_arena *arena, tg_wgsl_kernel *out) {
    tg_wgsl *w = tg_wgsl_open(program, limits, arena);
    if (w == NULL) return TG_ERROR_MEMORY;
    wgsl_join_module m = {.resolver = {wgsl_join_begin, wgsl_join_argument, wgsl_join_scratch, wgsl_join_array_for, wgsl_join_end}};
    w->resolver = &m.resolver;
    w->launch = launch;
    w->frame = tg_tile_launch_frame(launch, schedule);
    const tg_status status = wgsl_join_all(w, out);
    for (int32_t s = 0; s < m.stage_count; s++) {
        tg_text_free(&m.stages[s]->functions);
        tg_text_free(&m.stages[s]->calls);
    }
    tg_wgsl_close(w);
    return status;
}

#undef WGSL_JOIN_MAX_BLOCKS
#undef WGSL_JOIN_MAX_ARRAYS
#undef WGSL_JOIN_MOST_SCRATCH
#undef WGSL_JOIN_TYPE
