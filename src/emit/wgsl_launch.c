/* wgsl_launch: several kernels as one dispatch. Each is printed by the printer of its kind as it is alone, but with a given workgroup
 * size; here its text becomes a function, and what it names at module scope is made to fit:
 *   buffers     words of a block: a3[e] is bitcast<f32>(workspace[1024 + (e)])
 *   functions   get the kernel's number in front
 *   workgroup memory   one set of arrays for all kernels, the n-th array of a type being the same for each
 * Side by side, the workgroup's number selects the function. In a chain a workgroup is a slice, which goes through the functions of
 * all kernels, waiting between them. Must not know what the kernels compute. */
#include "emit/wgsl.h"

#include <stdio.h>
#include <string.h>

#define LAUNCH_MAX_BLOCKS 64 /* bindings of one stage */
#define LAUNCH_MOST_SCRATCH (128 << 20) /* bytes: what every device binds */
#define LAUNCH_MAX_SHARED 24            /* arrays in workgroup memory */
#define LAUNCH_NAME 48
#define LAUNCH_TYPE 32
#define LAUNCH_ARRAY "var<workgroup> " /* how an array in workgroup memory begins */

typedef struct launch_block {
    int32_t binding; /* as tg_wgsl_stage.bindings */
    int64_t words;
    bool wide; /* bound as vec4s; only read */
} launch_block;

typedef struct launch_shared {
    char type[LAUNCH_TYPE]; /* "f32", "array<vec4<f32>, 16>" */
    int32_t count;
} launch_shared;

/* A name of a part's module scope and what becomes of it. */
typedef struct launch_name {
    char from[LAUNCH_NAME], to[LAUNCH_NAME];
} launch_name;

typedef struct launch_join {
    tg_wgsl *w;
    const tg_launch *launch;
    tg_wgsl_part *parts; /* of all kernels, all stages */
    int32_t part_count, stage_count;
    int64_t scratch_words;

    /* the stage being joined */
    launch_block blocks[LAUNCH_MAX_BLOCKS];
    int32_t block_count;
    launch_shared shared[LAUNCH_MAX_SHARED];
    int32_t shared_count;
    launch_name names[LAUNCH_MAX_SHARED]; /* of the part being renamed */
    int32_t name_count;
    const tg_wgsl_part *part;
    int32_t stage;
    bool f16;
    tg_text_buffer functions, calls;
} launch_join;

/* ---------------------------------------------------------------- blocks */

static const char *launch_block_name(int32_t binding, char *text, size_t size) {
    switch (binding) {
    case TG_WGSL_SCRATCH: return "scratch";
    case TG_WGSL_WORKSPACE: return "workspace";
    case TG_WGSL_INPUTS: return "inputs";
    case TG_WGSL_CONSTANTS: return "constants";
    default: snprintf(text, size, "state%d", (int)TG_WGSL_STATE_SLOT(binding)); return text;
    }
}

static int64_t launch_block_words(const launch_join *j, int32_t binding) {
    const tg_program *program = j->w->program;
    switch (binding) {
    case TG_WGSL_SCRATCH: return j->scratch_words;
    case TG_WGSL_WORKSPACE: return program->workspace_bytes / 4;
    case TG_WGSL_INPUTS: return program->input_block_bytes / 4;
    case TG_WGSL_CONSTANTS: return program->constant_block_bytes / 4;
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

bool tg_wgsl_may_widen(const tg_wgsl *w, int32_t argument) {
    if (tg_wgsl_is_lone(w)) return true;
    const tg_program *program = w->program;
    const int32_t block = tg_wgsl_block_of(&program->buffers[w->kernel->arguments[argument].buffer]);
    for (int32_t k = 0; k < w->launch->count; k++) {
        const tg_kernel *kernel = &program->kernels[w->launch->first + k];
        for (int32_t a = 0; a < kernel->argument_count; a++)
            if ((kernel->arguments[a].access & TG_ACCESS_WRITE) &&
                tg_wgsl_block_of(&program->buffers[kernel->arguments[a].buffer]) == block)
                return false;
    }
    return true;
}

/* Some part of this stage reads the block as vec4s. */
static bool launch_is_wide(const launch_join *j, int32_t binding) {
    for (int32_t p = 0; p < j->part_count; p++) {
        const tg_wgsl_part *part = &j->parts[p];
        for (int32_t a = 0; a < part->kernel->argument_count && part->stage == j->stage; a++)
            if (part->wide[a] && tg_wgsl_block_of(&j->w->program->buffers[part->kernel->arguments[a].buffer]) == binding) return true;
    }
    return false;
}

/* Binds the block once; says whether as vec4s. */
static bool launch_bind(launch_join *j, int32_t binding) {
    for (int32_t i = 0; i < j->block_count; i++)
        if (j->blocks[i].binding == binding) return j->blocks[i].wide;
    if (j->block_count == LAUNCH_MAX_BLOCKS || j->block_count == j->w->limits->storage_buffers) {
        tg_wgsl_fail(j->w, TG_ERROR_LIMIT, "kernels of one launch that bind too many buffers");
        return false;
    }
    launch_block *block = &j->blocks[j->block_count++];
    *block = (launch_block){binding, launch_block_words(j, binding), launch_is_wide(j, binding)};
    return block->wide;
}

/* ---------------------------------------------------------------- names of a part */

static bool launch_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool launch_is_word(char c) { return launch_is_letter(c) || (c >= '0' && c <= '9'); }
static size_t launch_word(const char *text) {
    size_t length = 0;
    while (launch_is_word(text[length])) length++;
    return length;
}

/* The number that `length` digits make. */
static int launch_number(const char *digits, size_t length) {
    int number = 0;
    for (size_t i = 0; i < length; i++) number = number * 10 + (digits[i] - '0');
    return number;
}
static size_t launch_digits(const char *text) {
    size_t length = 0;
    while (length < 9 && text[length] >= '0' && text[length] <= '9') length++;
    return length;
}

static void launch_add_name(launch_join *j, const char *name, size_t length, const char *to) {
    if (j->name_count == LAUNCH_MAX_SHARED || length >= LAUNCH_NAME) {
        tg_wgsl_fail(j->w, TG_ERROR_LIMIT, "too many names in one kernel");
        return;
    }
    launch_name *n = &j->names[j->name_count++];
    snprintf(n->from, sizeof n->from, "%.*s", (int)length, name);
    snprintf(n->to, sizeof n->to, "%s", to);
}

/* "shared_vec4f32_0": the `ordinal`-th array of a type */
static void launch_shared_name(char name[LAUNCH_NAME], const char *type, int32_t ordinal) {
    char kind[LAUNCH_TYPE];
    size_t letters = 0;
    for (const char *c = type; *c; c++)
        if (launch_is_word(*c)) kind[letters++] = *c;
    kind[letters] = '\0';
    snprintf(name, LAUNCH_NAME, "shared_%s_%d", kind, (int)ordinal);
}

/* How many arrays of a type stand among the first `count`: which of its type the next one is. */
static int32_t launch_ordinal(const launch_shared *shared, int32_t count, const char *type) {
    int32_t ordinal = 0;
    for (int32_t i = 0; i < count; i++) ordinal += strcmp(shared[i].type, type) == 0;
    return ordinal;
}

/* Bytes of one element of an array of `type`, which may be an array of a type without arrays in it; f16 takes two, all else four. */
static int64_t launch_type_bytes(const char *type) {
    const char *comma = strchr(type, ',');
    const int count = comma != NULL ? launch_number(comma + 2, launch_digits(comma + 2)) : 1;
    return (strstr(type, "vec4") != NULL ? 4 : 1) * (strstr(type, "f16") != NULL ? 2 : 4) * (int64_t)count;
}

/* The `ordinal`-th array of a type, at least `count` long. */
static void launch_share(launch_join *j, const char *name, size_t length, const char *type, int32_t ordinal, int32_t count) {
    char to[LAUNCH_NAME];
    launch_shared_name(to, type, ordinal);
    launch_add_name(j, name, length, to);
    for (int32_t i = 0, seen = 0; i < j->shared_count; i++) {
        if (strcmp(j->shared[i].type, type) != 0 || seen++ != ordinal) continue;
        if (j->shared[i].count < count) j->shared[i].count = count;
        return;
    }
    if (j->shared_count == LAUNCH_MAX_SHARED) {
        tg_wgsl_fail(j->w, TG_ERROR_LIMIT, "too many arrays in workgroup memory");
        return;
    }
    launch_shared *s = &j->shared[j->shared_count++];
    snprintf(s->type, sizeof s->type, "%s", type);
    s->count = count;
}

/* "var<workgroup> NAME: array<TYPE, COUNT>;", from NAME on; TYPE may be an array itself. */
static void launch_read_array(launch_join *j, const char *line, launch_shared *own, int32_t *own_count) {
    char type[LAUNCH_TYPE] = "";
    const size_t length = launch_word(line);
    const char *open = strchr(line, '<'), *comma = NULL;
    for (const char *c = line; *c && *c != ';'; c++)
        if (*c == ',') comma = c;
    const size_t digits = comma != NULL && comma[1] == ' ' ? launch_digits(comma + 2) : 0;
    if (open == NULL || comma < open || (size_t)(comma - open) > sizeof type || digits == 0) {
        tg_wgsl_fail(j->w, TG_ERROR_INTERNAL, "an array in workgroup memory that cannot be shared");
        return;
    }
    memcpy(type, open + 1, (size_t)(comma - open - 1));
    const int32_t ordinal = launch_ordinal(own, *own_count, type);
    snprintf(own[*own_count].type, sizeof own->type, "%s", type);
    (*own_count)++;
    launch_share(j, line, length, type, ordinal, launch_number(comma + 2, digits));
}

static bool launch_is_array(const char *line) { return strncmp(line, LAUNCH_ARRAY, sizeof LAUNCH_ARRAY - 1) == 0; }

/* Finds what the part declares at module scope. Says whether it uses workgroup memory. */
static bool launch_find_names(launch_join *j, int32_t number) {
    launch_shared own[LAUNCH_MAX_SHARED];
    int32_t own_count = 0;
    j->name_count = 0;
    for (const char *line = j->part->globals; *line && j->w->status == TG_OK;) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, "fn ", 3) == 0) {
            char to[LAUNCH_NAME];
            const size_t length = launch_word(line + 3);
            snprintf(to, sizeof to, "k%d_%.*s", (int)number, (int)length, line + 3);
            launch_add_name(j, line + 3, length, to);
        } else if (launch_is_array(line)) {
            if (own_count == LAUNCH_MAX_SHARED) tg_wgsl_fail(j->w, TG_ERROR_LIMIT, "too many arrays in workgroup memory");
            else launch_read_array(j, line + sizeof LAUNCH_ARRAY - 1, own, &own_count);
        }
        if (end == NULL) break;
        line = end + 1;
    }
    return own_count > 0;
}

/* ---------------------------------------------------------------- rewriting a part's text */

static void launch_rewrite(launch_join *j, tg_text_buffer *out, const char *from, const char *end);

/* The bracket that closes the one at `open`. */
static const char *launch_closing(const char *open, const char *end) {
    int depth = 0;
    for (const char *c = open; c < end; c++) {
        if (*c == '[') depth++;
        if (*c == ']' && --depth == 0) return c;
    }
    return end;
}

/* How a part uses memory: elements of a type from a word of a block on. */
typedef struct launch_view {
    int32_t binding;
    int64_t first; /* word */
    const char *type;
    bool wide; /* the part counts vec4s */
} launch_view;

/* first + (e), e being what stands in [from, end) */
static void launch_index(launch_join *j, tg_text_buffer *out, int64_t first, const char *from, const char *end) {
    if (first != 0) tg_text_add(out, "%lld + (", (long long)first);
    launch_rewrite(j, out, from, end);
    if (first != 0) tg_text_add(out, ")");
}

static void launch_read(launch_join *j, tg_text_buffer *out, const launch_view *v, const char *from, const char *end) {
    char name[32];
    const bool component = launch_bind(j, v->binding) && !v->wide;
    const char *block = launch_block_name(v->binding, name, sizeof name);
    const bool plain = strcmp(v->type, "u32") == 0;
    if (!plain) tg_text_add(out, v->wide ? "bitcast<vec4<%s>>(" : "bitcast<%s>(", v->type);
    tg_text_add(out, component ? "at_%s(" : "%s[", block);
    launch_index(j, out, v->wide ? v->first / 4 : v->first, from, end);
    tg_text_add(out, component ? ")" : "]");
    if (!plain) tg_text_add(out, ")");
}

/* Rewrites NAME[e], at `open` the bracket, as words of a block; returns where to go on. */
static const char *launch_access(launch_join *j, tg_text_buffer *out, const char *open, const char *end, const launch_view *v) {
    char name[32];
    const char *close = launch_closing(open, end);
    if (strncmp(close, "] = ", 4) != 0) {
        launch_read(j, out, v, open + 1, close);
        return close + 1;
    }
    (void)launch_bind(j, v->binding);
    const bool plain = strcmp(v->type, "u32") == 0;
    const char *value = close + 4, *semicolon = value;
    while (semicolon < end && *semicolon != ';') semicolon++;
    tg_text_add(out, "%s[", launch_block_name(v->binding, name, sizeof name));
    launch_index(j, out, v->first, open + 1, close);
    tg_text_add(out, plain ? "] = " : "] = bitcast<u32>(");
    launch_rewrite(j, out, value, semicolon);
    if (!plain) tg_text_add(out, ")");
    return semicolon;
}

/* Rewrites a word that is followed by '[' and names memory; returns where to go on, NULL when it does not. */
static const char *launch_memory(launch_join *j, tg_text_buffer *out, const char *word, size_t length, const char *end) {
    const tg_wgsl_part *part = j->part;
    if (word + length >= end || word[length] != '[') return NULL;
    if (length == 7 && strncmp(word, "scratch", 7) == 0)
        return launch_access(j, out, word + length, end, &(launch_view){TG_WGSL_SCRATCH, part->scratch, part->scratch_type, false});
    if (word[0] != 'a' || length < 2 || launch_digits(word + 1) + 1 != length) return NULL;
    const int argument = launch_number(word + 1, length - 1);
    if (argument >= part->kernel->argument_count || !part->used[argument]) return NULL;
    const tg_buffer *buffer = &j->w->program->buffers[part->kernel->arguments[argument].buffer];
    return launch_access(j, out, word + length, end,
                         &(launch_view){tg_wgsl_block_of(buffer), buffer->offset / 4,
                                        tg_wgsl_memory_type(part->kernel->arguments[argument].dtype), part->wide[argument]});
}

static const char *launch_renamed(const launch_join *j, const char *word, size_t length) {
    for (int32_t i = 0; i < j->name_count; i++)
        if (strlen(j->names[i].from) == length && strncmp(j->names[i].from, word, length) == 0) return j->names[i].to;
    return NULL;
}

static void launch_rewrite(launch_join *j, tg_text_buffer *out, const char *from, const char *end) {
    for (const char *at = from; at < end;) {
        const bool starts = launch_is_letter(*at) && (at == from || (!launch_is_word(at[-1]) && at[-1] != '.'));
        if (!starts) {
            tg_text_bytes(out, at++, 1);
            continue;
        }
        const size_t length = launch_word(at);
        const char *behind = launch_memory(j, out, at, length, end), *to = behind ? NULL : launch_renamed(j, at, length);
        if (to != NULL) tg_text_add(out, "%s", to);
        else if (behind == NULL) tg_text_bytes(out, at, length);
        at = behind != NULL ? behind : at + length;
    }
}

/* ---------------------------------------------------------------- functions */

/* The part's functions and its main as function k<number>. */
static void launch_print_function(launch_join *j, int32_t number) {
    tg_text_buffer *out = &j->functions;
    for (const char *line = j->part->globals; *line;) {
        const char *end = strchr(line, '\n');
        end = end != NULL ? end + 1 : line + strlen(line);
        if (strncmp(line, "//", 2) == 0) tg_text_bytes(out, line, (size_t)(end - line));
        else if (!launch_is_array(line)) launch_rewrite(j, out, line, end);
        line = end;
    }
    tg_text_add(out, "fn k%d(group: i32, t: i32%s) {\n", (int)number, j->launch->slices > 0 ? ", slice: i32" : "");
    launch_rewrite(j, out, j->part->main, j->part->main + strlen(j->part->main));
    tg_text_add(out, "}\n");
}

/* Workgroups [first, first + workgroups) do this part. */
static void launch_call_beside(launch_join *j, int32_t number, int64_t first) {
    tg_text_add(&j->calls, "    %sif (group < %lld) { k%d(group - %lld, t); }\n", first > 0 ? "else " : "",
                (long long)(first + j->part->workgroups), (int)number, (long long)first);
}

static void launch_call_in_chain(launch_join *j, int32_t number, bool shares) {
    const long long groups = (long long)j->part->workgroups;
    if (number > 0) tg_text_add(&j->calls, "    storageBarrier();\n");
    if (groups == 1) tg_text_add(&j->calls, "    k%d(0, t, slice);\n", (int)number);
    else {
        tg_text_add(&j->calls, "    for (var group = 0; group < %lld; group++) {\n        k%d(group, t, slice);\n", groups, (int)number);
        if (shares) tg_text_add(&j->calls, "        workgroupBarrier();\n");
        tg_text_add(&j->calls, "    }\n");
    }
    if (shares && groups == 1) tg_text_add(&j->calls, "    workgroupBarrier();\n");
}

/* ---------------------------------------------------------------- stages */

static void launch_declare(launch_join *j, tg_text_buffer *text) {
    char name[32];
    for (int32_t i = 0; i < j->block_count; i++) {
        const launch_block *block = &j->blocks[i];
        const char *called = launch_block_name(block->binding, name, sizeof name);
        tg_text_add(text, "@group(0) @binding(%d) var<storage, read_write> %s: array<%s, %lld>;\n", (int)i, called,
                    block->wide ? "vec4<u32>" : "u32", (long long)(block->wide ? block->words / 4 : block->words));
        if (block->wide) tg_text_add(text, "fn at_%s(i: i32) -> u32 { return %s[i >> 2u][i & 3]; }\n", called, called);
    }
    int64_t bytes = 0;
    for (int32_t i = 0; i < j->shared_count; i++) {
        const launch_shared *s = &j->shared[i];
        char shared[LAUNCH_NAME];
        launch_shared_name(shared, s->type, launch_ordinal(j->shared, i, s->type));
        tg_text_add(text, "var<workgroup> %s: array<%s, %d>;\n", shared, s->type, (int)s->count);
        bytes += (int64_t)s->count * launch_type_bytes(s->type);
    }
    if (bytes > j->w->limits->workgroup_bytes)
        tg_wgsl_fail(j->w, TG_ERROR_LIMIT, "kernels of one launch that share too much workgroup memory");
}

static tg_status launch_write_stage(launch_join *j, tg_wgsl_stage *stage, int64_t workgroups) {
    tg_wgsl *w = j->w;
    tg_text_buffer text;
    int32_t *bindings = TG_NEW(w->arena, int32_t, j->block_count + 1);
    if (bindings == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < j->block_count; i++) bindings[i] = j->blocks[i].binding;
    stage->bindings = bindings;
    stage->binding_count = j->block_count;
    if (!tg_wgsl_fold(w, workgroups, stage->groups)) tg_wgsl_fail(w, TG_ERROR_LIMIT, "more workgroups than the device can launch");
    tg_text_init(&text, w->arena->ctx);
    if (j->launch->slices > 0) tg_text_add(&text, "// a chain of %d kernels, %d slices\n", (int)j->launch->count, (int)j->launch->slices);
    else tg_text_add(&text, "// %d kernels side by side\n", (int)j->launch->count);
    tg_wgsl_enable(&text, j->f16, false);
    launch_declare(j, &text);
    tg_wgsl_define_helpers(w, &text);
    tg_text_bytes(&text, j->functions.data, j->functions.length);
    tg_wgsl_main_head(w, &text, stage->groups, workgroups, w->frame.size, j->launch->slices > 0 ? "slice" : "group");
    tg_text_bytes(&text, j->calls.data, j->calls.length);
    tg_text_add(&text, "}\n");
    stage->length = text.length;
    stage->source = text.failed ? NULL : tg_arena_copy(w->arena, text.data, text.length + 1);
    tg_text_free(&text);
    return w->status != TG_OK ? w->status : stage->source != NULL ? TG_OK : TG_ERROR_MEMORY;
}

static tg_status launch_join_stage(launch_join *j, int32_t stage, tg_wgsl_stage *out) {
    int64_t workgroups = 0;
    int32_t number = 0;
    j->stage = stage;
    j->block_count = j->shared_count = 0;
    j->f16 = false;
    tg_text_clear(&j->functions);
    tg_text_clear(&j->calls);
    for (int32_t p = 0; p < j->part_count && j->w->status == TG_OK; p++) {
        j->part = &j->parts[p];
        if (j->part->stage != stage) continue;
        j->f16 = j->f16 || j->part->f16;
        const bool shares = launch_find_names(j, number);
        launch_print_function(j, number);
        if (j->launch->slices > 0) launch_call_in_chain(j, number, shares);
        else launch_call_beside(j, number, workgroups);
        workgroups += j->part->workgroups;
        number++;
    }
    if (j->w->status != TG_OK) return j->w->status;
    if (j->functions.failed || j->calls.failed) return TG_ERROR_MEMORY;
    return launch_write_stage(j, out, j->launch->slices > 0 ? j->launch->slices : workgroups);
}

/* Prints every kernel into parts. */
static tg_status launch_print_parts(launch_join *j) {
    tg_wgsl *w = j->w;
    j->parts = TG_NEW(w->arena, tg_wgsl_part, j->launch->count * (int64_t)TG_WGSL_MAX_STAGES);
    if (j->parts == NULL) return TG_ERROR_MEMORY;
    for (int32_t k = 0; k < j->launch->count; k++) {
        w->kernel = &w->program->kernels[j->launch->first + k];
        tg_status status = tg_wgsl_print(w);
        if (status != TG_OK) return status;
        for (int32_t s = 0; s < w->stage_count; s++) {
            w->parts[s].scratch = j->scratch_words;
            j->parts[j->part_count++] = w->parts[s];
        }
        if (w->stage_count > j->stage_count) j->stage_count = w->stage_count;
        j->scratch_words += w->scratch_words;
    }
    if (j->scratch_words > LAUNCH_MOST_SCRATCH / 4) tg_wgsl_fail(w, TG_ERROR_LIMIT, "kernels of one launch that need too much scratch");
    if (j->launch->slices > 0 && j->stage_count > 1) return TG_INTERNAL(w->arena->ctx, "a kernel of a chain in several stages");
    return w->status;
}

static tg_status launch_print_joined(launch_join *j, tg_wgsl_kernel *out) {
    tg_status status = launch_print_parts(j);
    if (status != TG_OK) return status;
    out->stages = TG_NEW(j->w->arena, tg_wgsl_stage, j->stage_count + 1);
    if (out->stages == NULL) return TG_ERROR_MEMORY;
    for (int32_t s = 0; s < j->stage_count && status == TG_OK; s++) status = launch_join_stage(j, s, &out->stages[s]);
    out->stage_count = j->stage_count;
    out->scratch_bytes = j->scratch_words * 4;
    return status;
}

/* ---------------------------------------------------------------- all of it */

static tg_status launch_joined(const tg_program *program, const tg_launch *launch, const tg_device_model *limits,
                               const tg_schedule *schedule, tg_arena *arena, tg_wgsl_kernel *out) {
    tg_wgsl *w = tg_wgsl_open(program, limits, arena);
    if (w == NULL) return TG_ERROR_MEMORY;
    launch_join *j = tg_alloc(arena->ctx, sizeof *j);
    tg_status status = TG_ERROR_MEMORY;
    if (j != NULL) {
        j->w = w;
        j->launch = launch;
        w->launch = launch;
        w->frame = tg_tile_launch_frame(launch, schedule);
        tg_text_init(&j->functions, arena->ctx);
        tg_text_init(&j->calls, arena->ctx);
        status = launch_print_joined(j, out);
        tg_text_free(&j->functions);
        tg_text_free(&j->calls);
        tg_release(arena->ctx, j, sizeof *j);
    }
    tg_wgsl_close(w);
    return status;
}

/* ---------------------------------------------------------------- one kernel after another */

static tg_status launch_alone(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out) {
    *out = (tg_wgsl_kernel){.stages = TG_NEW(arena, tg_wgsl_stage, launch->count * (int64_t)TG_WGSL_MAX_STAGES)};
    if (out->stages == NULL) return TG_ERROR_MEMORY;
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        tg_wgsl_kernel one;
        tg_status status = tg_emit_wgsl(program, k, limits, arena, &one);
        if (status != TG_OK) return status;
        if (one.scratch_bytes > out->scratch_bytes) out->scratch_bytes = one.scratch_bytes;
        out->tuned |= one.tuned;
        for (int32_t s = 0; s < one.stage_count; s++) {
            tg_wgsl_stage *stage = &out->stages[out->stage_count++];
            int32_t *bindings = TG_NEW(arena, int32_t, one.stages[s].binding_count + 1);
            if (bindings == NULL) return TG_ERROR_MEMORY;
            *stage = one.stages[s];
            for (int32_t b = 0; b < stage->binding_count; b++) {
                bindings[b] = stage->bindings[b];
                if (bindings[b] >= 0) bindings[b] = program->kernels[k].arguments[bindings[b]].buffer;
            }
            stage->bindings = bindings;
        }
    }
    return TG_OK;
}

/* Joined by the table's schedule, or by our own; TG_ERROR_LIMIT, nothing recorded: it does not fit. */
static tg_status launch_try_joined(const tg_program *program, const tg_launch *launch, const tg_device_model *limits, tg_arena *arena,
                                   tg_wgsl_kernel *out) {
    const tg_schedule *tuned = tg_tile_launch_find(program, launch, limits), own = tg_tile_launch_choose(launch, limits);
    tg_status status = TG_ERROR_LIMIT;
    if (tuned != NULL) {
        status = launch_joined(program, launch, limits, tuned, arena, out);
        out->tuned = 1;
        if (status != TG_ERROR_LIMIT) return status;
        tg_clear_error(arena->ctx);
    }
    status = launch_joined(program, launch, limits, &own, arena, out);
    out->tuned = 0;
    if (status == TG_ERROR_LIMIT) tg_clear_error(arena->ctx);
    return status;
}

tg_status tg_emit_wgsl_launch(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                              tg_wgsl_kernel *out) {
    const tg_launch *launch = &program->launches[index];
    if (launch->count > 1) {
        tg_status status = launch_try_joined(program, launch, limits, arena, out);
        if (status != TG_ERROR_LIMIT) return status;
    }
    return launch_alone(program, launch, limits, arena, out);
}

/* ---------------------------------------------------------------- what a table might say */

static tg_status launch_collect(tg_wgsl *w, const tg_launch *launch) {
    if (launch->count == 1) {
        w->kernel = &w->program->kernels[launch->first];
        return w->kernel->kind == TG_KERNEL_CONTRACT ? tg_wgsl_print(w) : TG_OK;
    }
    return tg_tile_launch_offer_all(w->program, launch, w->limits, w->arena->ctx, w->offers);
}

/* The chosen one first, then the others by what they are expected to take. */
static tg_status launch_sort_choices(tg_tile_offers *offers, tg_arena *arena, tg_wgsl_choices *out) {
    tg_tile_sort_offers(offers);
    out->key = tg_arena_text(arena, offers->key);
    out->items = TG_NEW(arena, tg_schedule, offers->count + 1);
    if (out->key == NULL || out->items == NULL) return TG_ERROR_MEMORY;
    out->items[out->count++] = offers->chosen;
    for (int64_t i = 0; i < offers->count; i++)
        if (!tg_schedule_equal(&offers->items[i].schedule, &offers->chosen)) out->items[out->count++] = offers->items[i].schedule;
    return TG_OK;
}

tg_status tg_wgsl_find_choices(const tg_program *program, int32_t index, const tg_device_model *limits, tg_arena *arena,
                               tg_wgsl_choices *out) {
    tg_tile_offers offers = {.count = 0};
    memset(out, 0, sizeof *out);
    tg_wgsl *w = tg_wgsl_open(program, limits, arena);
    if (w == NULL) return TG_ERROR_MEMORY;
    w->offers = &offers;
    tg_status status = launch_collect(w, &program->launches[index]);
    if (status == TG_OK && offers.count > 0) status = launch_sort_choices(&offers, arena, out);
    tg_tile_free_offers(&offers, arena->ctx);
    tg_wgsl_close(w);
    return status;
}

static void launch_text_stages(const tg_program *program, int32_t index, const tg_wgsl_kernel *printed, tg_text_buffer *text) {
    const tg_launch *launch = &program->launches[index];
    char name[32];
    for (int32_t s = 0; s < printed->stage_count; s++) {
        const tg_wgsl_stage *stage = &printed->stages[s];
        tg_text_add(text, "// launch %d (%s%s), stage %d of %d: %d x %d x %d workgroups; bound:", (int)index,
                    program->kernels[launch->first].name, launch->count > 1 ? ", ..." : "", (int)s + 1, (int)printed->stage_count,
                    (int)stage->groups[0], (int)stage->groups[1], (int)stage->groups[2]);
        for (int32_t b = 0; b < stage->binding_count; b++) {
            if (stage->bindings[b] < 0) tg_text_add(text, " %s", launch_block_name(stage->bindings[b], name, sizeof name));
            else tg_text_add(text, " %d", (int)stage->bindings[b]);
        }
        tg_text_add(text, "\n%s\n", stage->source);
    }
}

tg_status tg_emit_wgsl_text(const tg_program *program, const tg_device_model *limits, tg_text_buffer *text) {
    tg_status status = TG_OK;
    for (int32_t i = 0; i < program->launch_count && status == TG_OK; i++) {
        tg_arena arena;
        tg_wgsl_kernel printed;
        tg_arena_init(&arena, text->ctx);
        status = tg_emit_wgsl_launch(program, i, limits, &arena, &printed);
        if (status == TG_OK) launch_text_stages(program, i, &printed, text);
        tg_arena_free(&arena);
    }
    return status != TG_OK || !text->failed ? status : TG_ERROR_MEMORY;
}

#undef LAUNCH_MAX_BLOCKS
#undef LAUNCH_MOST_SCRATCH
#undef LAUNCH_MAX_SHARED
#undef LAUNCH_NAME
#undef LAUNCH_TYPE
#undef LAUNCH_ARRAY
