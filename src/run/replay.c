/* replay: see replay.h. Owns the layout of what is replayed, and the messages about limits. Must
 * not know who replays it. */
#include "run/replay.h"

#include "emit/emit.h"
#include "ir/dtype.h"
#include "kernel/same.h"

#include <stdio.h>
#include <string.h>

#define REPLAY_MOST_DISPATCHES 65536 /* of one submission of a feeder */
#define REPLAY_GROWS 16              /* most runs, as a multiple of the submission before */
/* a submission may grow again if it should then take less than `slow` divided by this */
#define REPLAY_FAST 2

typedef struct replay_making {
    tg_context *ctx;
    tg_replay *replay;
    const tg_program *program;
    const int32_t *state_slots;
    const tg_replay_limits *limits;
    tg_wgsl_kernel *printed; /* per launch */
} replay_making;

static int64_t replay_align(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

const char *const tg_replay_names[TG_REPLAY_BLOCKS] = {
    "the workspace", "the scratch", "the inputs", "the constants", "the data set", "the state of a data set", "the losses"};

/* ---------------------------------------------------------------- limits */

tg_status tg_replay_check_buffer(tg_context *ctx, int64_t max_buffer_bytes, const char *what, int64_t bytes) {
    if (bytes <= max_buffer_bytes) return TG_OK;
    return tg_fail(ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "webgpu: %s needs %lld bytes, over this device's maxBufferSize of %lld", what,
                   (long long)bytes, (long long)max_buffer_bytes);
}

const char *tg_replay_state_name(char text[TG_REPLAY_NAME], const char *name, int64_t count) {
    snprintf(text, TG_REPLAY_NAME, "%.80s, %lld elements,", name, (long long)count);
    return text;
}

/* kernel: NULL if its name does not help a reader. */
static tg_status replay_check_binding(tg_context *ctx, const tg_replay_limits *limits, const char *what, const char *kernel,
                                      int64_t bytes) {
    if (bytes <= limits->max_binding_bytes) return TG_OK;
    return tg_fail(ctx, TG_ERROR_LIMIT, TG_SITE_NONE,
                   "webgpu: %s%s%s%s needs %lld bytes, over this device's maxStorageBufferBindingSize of %lld", what,
                   kernel != NULL ? " (kernel " : "", kernel != NULL ? kernel : "", kernel != NULL ? ")" : "", (long long)bytes,
                   (long long)limits->max_binding_bytes);
}

static const char *replay_binding_name(const tg_program *program, int32_t binding) {
    switch (binding) {
    case TG_WGSL_SCRATCH: return tg_replay_names[TG_REPLAY_SCRATCH];
    case TG_WGSL_WORKSPACE: return tg_replay_names[TG_REPLAY_WORKSPACE];
    case TG_WGSL_INPUTS: return tg_replay_names[TG_REPLAY_INPUTS];
    case TG_WGSL_CONSTANTS: return tg_replay_names[TG_REPLAY_CONSTANTS];
    default: break;
    }
    if (binding < 0) return program->states[TG_WGSL_STATE_SLOT(binding)].name;
    return program->buffers[binding].name != NULL ? program->buffers[binding].name : "an intermediate result";
}

/* Checks the sizes of the buffers that are made. */
static tg_status replay_check_blocks(const replay_making *m) {
    tg_status status = TG_OK;
    for (int b = 0; b < TG_REPLAY_OWN && status == TG_OK; b++)
        status = tg_replay_check_buffer(m->ctx, m->limits->max_buffer_bytes, tg_replay_names[b], m->replay->bytes[b]);
    if (status == TG_OK) status = tg_replay_check_buffer(m->ctx, m->limits->max_buffer_bytes, "the outputs", m->replay->readback_bytes);
    return status;
}

/* ---------------------------------------------------------------- places */

static int64_t replay_bytes_of(const tg_program *program, tg_dtype dtype, int64_t count) {
    return count * tg_program_element_bytes(program, dtype);
}

static int32_t replay_slot(const replay_making *m, int32_t slot) {
    return slot >= 0 && slot < m->program->state_count && m->state_slots[slot] >= 0 ? TG_REPLAY_STATES + m->state_slots[slot]
                                                                                    : TG_REPLAY_NOWHERE;
}
static tg_status replay_place(const replay_making *m, const tg_buffer *buffer, tg_replay_slice *place) {
    static const int32_t blocks[] = {TG_REPLAY_WORKSPACE, TG_REPLAY_INPUTS, TG_REPLAY_NOWHERE, TG_REPLAY_CONSTANTS};
    const tg_program *program = m->program;
    int64_t room = 0;
    *place = (tg_replay_slice){TG_REPLAY_NOWHERE, buffer->offset, replay_bytes_of(program, buffer->dtype, buffer->count)};
    switch (buffer->storage) {
    case TG_STORAGE_WORKSPACE:
        if (buffer->first < 0) return TG_OK; /* another replaces it */
        room = program->workspace_bytes;
        break;
    case TG_STORAGE_INPUT:
        if (buffer->slot < 0 || buffer->slot >= program->input_count) return TG_INTERNAL(m->ctx, "a program input out of range");
        room = program->input_block_bytes;
        break;
    case TG_STORAGE_STATE:
        place->block = replay_slot(m, buffer->slot);
        if (place->block == TG_REPLAY_NOWHERE) return TG_INTERNAL(m->ctx, "a program state that the device does not have");
        room = replay_bytes_of(program, program->states[buffer->slot].dtype, tg_shape_count(program->states[buffer->slot].shape));
        break;
    case TG_STORAGE_CONSTANT: room = program->constant_block_bytes; break;
    }
    if (buffer->offset < 0 || buffer->offset > room - place->bytes || buffer->offset % TG_REPLAY_ALIGN != 0)
        return TG_INTERNAL(m->ctx, "a program buffer outside its block");
    if (buffer->storage != TG_STORAGE_STATE) place->block = blocks[buffer->storage];
    return TG_OK;
}
/* Only inputs that some kernel reads are sent. */
static tg_status replay_place_inputs(const replay_making *m) {
    const tg_program *program = m->program;
    tg_replay *replay = m->replay;
    for (int32_t i = 0; i < program->input_count; i++) replay->input_offset[i] = -1;
    for (int32_t k = 0; k < program->kernel_count; k++)
        for (int32_t a = 0; a < program->kernels[k].argument_count; a++) {
            const int32_t b = program->kernels[k].arguments[a].buffer;
            if (b < 0 || b >= program->buffer_count) return TG_INTERNAL(m->ctx, "a kernel argument without a buffer");
            if (program->buffers[b].storage != TG_STORAGE_INPUT) continue;
            replay->input_offset[program->buffers[b].slot] = program->buffers[b].offset;
            replay->bytes[TG_REPLAY_INPUTS] = program->input_block_bytes;
        }
    for (int32_t b = 0; b < program->buffer_count; b++)
        if (program->buffers[b].storage == TG_STORAGE_INPUT && replay->input_offset[program->buffers[b].slot] < 0)
            replay->places[b].block = TG_REPLAY_NOWHERE;
    return TG_OK;
}
static tg_status replay_place_outputs(const replay_making *m) {
    const tg_program *program = m->program;
    tg_replay *replay = m->replay;
    for (int32_t i = 0; i < program->output_count; i++) {
        const tg_output *output = &program->outputs[i];
        if (output->buffer < 0 || output->buffer >= program->buffer_count) return TG_INTERNAL(m->ctx, "an output without a buffer");
        const tg_buffer *buffer = &program->buffers[output->buffer];
        if (tg_shape_count(output->shape) > buffer->count) return TG_INTERNAL(m->ctx, "an output larger than its buffer");
        if (buffer->storage == TG_STORAGE_INPUT || buffer->storage == TG_STORAGE_CONSTANT)
            return TG_INTERNAL(m->ctx, "an output that no kernel writes");
        replay->readback_offset[i] = replay->readback_bytes;
        replay->readback_bytes += replay_align(replay_bytes_of(program, output->dtype, tg_shape_count(output->shape)), 16);
    }
    return TG_OK;
}
static tg_status replay_place_all(const replay_making *m) {
    const tg_program *program = m->program;
    tg_replay *replay = m->replay;
    tg_status status = TG_OK;
    replay->places = TG_NEW(&replay->arena, tg_replay_slice, program->buffer_count + 1);
    replay->input_offset = TG_NEW(&replay->arena, int64_t, program->input_count + 1);
    replay->readback_offset = TG_NEW(&replay->arena, int64_t, program->output_count + 1);
    if (replay->places == NULL || replay->input_offset == NULL || replay->readback_offset == NULL) return TG_ERROR_MEMORY;
    replay->bytes[TG_REPLAY_WORKSPACE] = program->workspace_bytes;
    replay->bytes[TG_REPLAY_CONSTANTS] = program->constant_block_bytes;
    for (int32_t b = 0; b < program->buffer_count && status == TG_OK; b++)
        status = replay_place(m, &program->buffers[b], &replay->places[b]);
    if (status == TG_OK) status = replay_place_inputs(m);
    return status == TG_OK ? replay_place_outputs(m) : status;
}

/* ---------------------------------------------------------------- stages */

tg_replay_source tg_replay_source_of(const char *text, size_t length, int32_t binding_count, const char *label) {
    return (tg_replay_source){text, length, tg_hash((uint64_t)binding_count, text, length), binding_count, label};
}
bool tg_replay_same_source(const tg_replay_source *a, const tg_replay_source *b) {
    return a->hash == b->hash && a->length == b->length && a->binding_count == b->binding_count && memcmp(a->text, b->text, a->length) == 0;
}
static int32_t replay_source(tg_replay *replay, const tg_wgsl_stage *stage, const char *label) {
    const tg_replay_source source = tg_replay_source_of(stage->source, stage->length, stage->binding_count, label);
    for (int32_t s = 0; s < replay->source_count; s++)
        if (tg_replay_same_source(&replay->sources[s], &source)) return s;
    replay->sources[replay->source_count] = source;
    return replay->source_count++;
}
/* The memory that a binding of the printer names. */
static tg_replay_slice replay_slice(const replay_making *m, int32_t binding, int64_t scratch_bytes) {
    const tg_program *program = m->program;
    const tg_replay *replay = m->replay;
    switch (binding) {
    case TG_WGSL_SCRATCH: return (tg_replay_slice){TG_REPLAY_SCRATCH, 0, scratch_bytes};
    case TG_WGSL_WORKSPACE: return (tg_replay_slice){TG_REPLAY_WORKSPACE, 0, replay->bytes[TG_REPLAY_WORKSPACE]};
    case TG_WGSL_INPUTS: return (tg_replay_slice){TG_REPLAY_INPUTS, 0, replay->bytes[TG_REPLAY_INPUTS]};
    case TG_WGSL_CONSTANTS: return (tg_replay_slice){TG_REPLAY_CONSTANTS, 0, replay->bytes[TG_REPLAY_CONSTANTS]};
    default: break;
    }
    if (binding >= 0) return binding < program->buffer_count ? replay->places[binding] : (tg_replay_slice){TG_REPLAY_NOWHERE, 0, 0};
    const int32_t slot = TG_WGSL_STATE_SLOT(binding), block = replay_slot(m, slot);
    if (block == TG_REPLAY_NOWHERE) return (tg_replay_slice){TG_REPLAY_NOWHERE, 0, 0};
    const tg_state_info *state = &program->states[slot];
    return (tg_replay_slice){block, 0, replay_bytes_of(program, state->dtype, tg_shape_count(state->shape))};
}
static tg_status replay_bind(const replay_making *m, const tg_wgsl_stage *printed, int64_t scratch_bytes, tg_replay_stage *stage) {
    tg_replay_slice *slices = TG_NEW(&m->replay->arena, tg_replay_slice, printed->binding_count + 1);
    if (slices == NULL) return TG_ERROR_MEMORY;
    if (printed->binding_count > m->limits->model->storage_buffers) return TG_INTERNAL(m->ctx, "a kernel that binds too many buffers");
    tg_status status = TG_OK;
    for (int32_t i = 0; i < printed->binding_count && status == TG_OK; i++) {
        slices[i] = replay_slice(m, printed->bindings[i], scratch_bytes);
        if (slices[i].block == TG_REPLAY_NOWHERE || slices[i].bytes <= 0) return TG_INTERNAL(m->ctx, "a stage binds nothing");
        status =
            replay_check_binding(m->ctx, m->limits, replay_binding_name(m->program, printed->bindings[i]), stage->label, slices[i].bytes);
    }
    stage->slices = slices;
    return status;
}
static tg_status replay_add_launch(const replay_making *m, int32_t launch) {
    tg_replay *replay = m->replay;
    const tg_wgsl_kernel *printed = &m->printed[launch];
    const char *label = m->program->kernels[m->program->launches[launch].first].name;
    for (int32_t s = 0; s < printed->stage_count; s++) {
        const tg_wgsl_stage *from = &printed->stages[s];
        tg_replay_stage *stage = &replay->stages[replay->stage_count++];
        *stage = (tg_replay_stage){.binding_count = from->binding_count, .bindings = from->bindings, .label = label, .launch = launch};
        memcpy(stage->groups, from->groups, sizeof stage->groups);
        stage->source = replay_source(replay, from, label);
        tg_status status = replay_bind(m, from, printed->scratch_bytes, stage);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}
/* Kernels launched alone, by hash: what is printed for one is printed for all that do the same work
 * at the same offsets of buffers of the same lengths. */
typedef struct replay_printed {
    int32_t *bucket, *next; /* launch + 1; 0: none */
    uint64_t *hash;         /* by launch */
    int32_t buckets;        /* a power of two */
} replay_printed;

static const tg_kernel *replay_kernel(const tg_program *program, int32_t launch) {
    return &program->kernels[program->launches[launch].first];
}

static bool replay_prints_same(const tg_program *program, const tg_kernel *x, const tg_kernel *y) {
    if (!tg_kernel_same_work(x, y)) return false;
    for (int32_t i = 0; i < tg_kernel_access_count(x); i++) {
        int32_t argument;
        const tg_affine *a = tg_kernel_access(x, i, &argument), *b = tg_kernel_access(y, i, &argument);
        if (a != NULL && a->offset != b->offset) return false;
    }
    for (int32_t i = 0; i < x->argument_count; i++)
        if (program->buffers[x->arguments[i].buffer].count != program->buffers[y->arguments[i].buffer].count) return false;
    return true;
}

static int32_t replay_same_binding(const tg_kernel *from, const tg_kernel *to, int32_t binding) {
    for (int32_t i = 0; i < from->argument_count && binding >= 0; i++)
        if (from->arguments[i].buffer == binding) return to->arguments[i].buffer;
    return binding;
}

/* What was printed for launch `from`, with the buffers of launch `to`. */
static tg_status replay_print_again(replay_making *m, int32_t from, int32_t to) {
    tg_wgsl_kernel *again = &m->printed[to];
    *again = m->printed[from];
    again->stages = tg_arena_copy(&m->replay->texts, again->stages, sizeof *again->stages * (size_t)again->stage_count);
    for (int32_t s = 0; again->stages != NULL && s < again->stage_count; s++) {
        const int32_t count = again->stages[s].binding_count;
        int32_t *bindings = TG_NEW(&m->replay->texts, int32_t, count + 1);
        if (bindings == NULL) return TG_ERROR_MEMORY;
        for (int32_t b = 0; b < count; b++)
            bindings[b] = replay_same_binding(replay_kernel(m->program, from), replay_kernel(m->program, to), again->stages[s].bindings[b]);
        again->stages[s].bindings = bindings;
    }
    return again->stages != NULL ? TG_OK : TG_ERROR_MEMORY;
}

static tg_status replay_print_launch(replay_making *m, replay_printed *known, int32_t launch) {
    const tg_program *program = m->program;
    if (program->launches[launch].count == 1) {
        const tg_kernel *kernel = replay_kernel(program, launch);
        known->hash[launch] = tg_kernel_hash(kernel);
        int32_t *bucket = &known->bucket[known->hash[launch] & (uint64_t)(known->buckets - 1)];
        for (int32_t i = *bucket; i > 0; i = known->next[i - 1])
            if (known->hash[i - 1] == known->hash[launch] && replay_prints_same(program, replay_kernel(program, i - 1), kernel))
                return replay_print_again(m, i - 1, launch);
        known->next[launch] = *bucket;
        *bucket = launch + 1;
    }
    return tg_emit_wgsl_launch(program, launch, m->limits->model, &m->replay->texts, &m->printed[launch]);
}

static tg_status replay_print(replay_making *m) {
    tg_replay *replay = m->replay;
    int32_t stages = 0;
    tg_status status = TG_OK;
    m->printed = TG_NEW(&replay->texts, tg_wgsl_kernel, m->program->launch_count + 1);
    replay_printed known = {.buckets = 16};
    while (known.buckets < m->program->launch_count) known.buckets *= 2;
    known.bucket = TG_NEW(&replay->texts, int32_t, known.buckets);
    known.next = TG_NEW(&replay->texts, int32_t, m->program->launch_count + 1);
    known.hash = TG_NEW(&replay->texts, uint64_t, m->program->launch_count + 1);
    if (m->printed == NULL || known.bucket == NULL || known.next == NULL || known.hash == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < m->program->launch_count && status == TG_OK; i++) {
        const tg_wgsl_kernel *printed = &m->printed[i];
        status = replay_print_launch(m, &known, i);
        stages += printed->stage_count;
        replay->tuned += printed->tuned;
        if (printed->scratch_bytes > replay->bytes[TG_REPLAY_SCRATCH]) replay->bytes[TG_REPLAY_SCRATCH] = printed->scratch_bytes;
    }
    if (status != TG_OK) return status;
    replay->stages = TG_NEW(&replay->arena, tg_replay_stage, stages + 1);
    replay->sources = TG_NEW(&replay->arena, tg_replay_source, stages + 1);
    if (replay->stages == NULL || replay->sources == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < m->program->launch_count && status == TG_OK; i++) status = replay_add_launch(m, i);
    return status;
}

tg_status tg_replay_make(tg_context *ctx, const tg_program *program, const int32_t *state_slots, const tg_replay_limits *limits,
                         tg_replay *out) {
    replay_making m = {.ctx = ctx, .replay = out, .program = program, .state_slots = state_slots, .limits = limits};
    memset(out, 0, sizeof *out);
    out->program = program;
    tg_arena_init(&out->arena, ctx);
    tg_arena_init(&out->texts, ctx);
    tg_status status = replay_place_all(&m);
    if (status == TG_OK) status = replay_print(&m);
    return status == TG_OK ? replay_check_blocks(&m) : status;
}
void tg_replay_note_workgroups(const tg_replay *replay, tg_kernel_time *times, int32_t count) {
    for (int32_t s = 0; s < replay->stage_count; s++) {
        const tg_replay_stage *stage = &replay->stages[s];
        const int64_t groups = (int64_t)stage->groups[0] * stage->groups[1] * stage->groups[2];
        if (stage->launch < count && groups > times[stage->launch].workgroups) times[stage->launch].workgroups = groups;
    }
}
tg_replay_slice tg_replay_output(const tg_replay *replay, int32_t i) {
    const tg_output *output = &replay->program->outputs[i];
    tg_replay_slice slice = replay->places[output->buffer];
    slice.bytes = replay_bytes_of(replay->program, output->dtype, tg_shape_count(output->shape));
    return slice;
}
void tg_replay_drop_texts(tg_replay *replay) {
    for (int32_t s = 0; s < replay->source_count; s++) replay->sources[s].text = NULL;
    for (int32_t s = 0; s < replay->stage_count; s++) replay->stages[s].bindings = NULL;
    tg_arena_free(&replay->texts);
}
void tg_replay_free(tg_replay *replay) {
    tg_arena_free(&replay->arena);
    tg_arena_free(&replay->texts);
    memset(replay, 0, sizeof *replay);
}

/* ---------------------------------------------------------------- a data set */

/* Inputs that no kernel of the program reads are not drawn. *count gets the number of `drawn`. */
static void replay_lay_out(const tg_replay *replay, const tg_feeder_options *options, tg_replay_feeder *feeder, tg_draw_array *drawn,
                           int32_t *count) {
    int64_t at = 0; /* words */
    for (int32_t i = 0; i < options->count; i++) {
        const tg_feeder_array *array = &options->arrays[i];
        const int64_t to = replay->input_offset[array->input];
        feeder->given[array->input] = true;
        feeder->arrays[i] = (tg_replay_array){.from = to >= 0 ? at * TG_WORD_BYTES : -1, .count = array->row * options->rows};
        if (to < 0) continue;
        drawn[(*count)++] = (tg_draw_array){at, to / TG_WORD_BYTES, array->row};
        at += replay_align(feeder->arrays[i].count, TG_REPLAY_ALIGN / TG_WORD_BYTES);
    }
    /* the kernel counts words in 32 bits, and binds at least one */
    feeder->bytes[TG_REPLAY_DATA] = at > UINT32_MAX ? INT64_MAX : at > 0 ? at * TG_WORD_BYTES : TG_WORD_BYTES;
    feeder->bytes[TG_REPLAY_CONTROL] = INT64_C(2) * TG_REPLAY_ALIGN;
    feeder->bytes[TG_REPLAY_HISTORY] = TG_MOST_STEPS * TG_WORD_BYTES;
}
static tg_status replay_bind_draw(const tg_replay *replay, tg_replay_feeder *feeder) {
    const int64_t inputs = replay->bytes[TG_REPLAY_INPUTS];
    feeder->loss = replay->places[replay->program->outputs[0].buffer];
    feeder->loss.bytes = TG_WORD_BYTES;
    for (int turn = 0; turn < 2; turn++) {
        tg_replay_slice *slices = feeder->turns[turn] = TG_NEW(&feeder->arena, tg_replay_slice, TG_DRAW_BINDINGS);
        if (slices == NULL) return TG_ERROR_MEMORY;
        slices[TG_DRAW_NOW] = (tg_replay_slice){TG_REPLAY_CONTROL, turn * TG_REPLAY_ALIGN, TG_DRAW_WORDS * TG_WORD_BYTES};
        slices[TG_DRAW_AFTER] = (tg_replay_slice){TG_REPLAY_CONTROL, (1 - turn) * TG_REPLAY_ALIGN, TG_DRAW_WORDS * TG_WORD_BYTES};
        slices[TG_DRAW_INPUTS] = (tg_replay_slice){TG_REPLAY_INPUTS, 0, inputs > 0 ? inputs : TG_WORD_BYTES};
        slices[TG_DRAW_LOSS] = feeder->loss;
        slices[TG_DRAW_HISTORY] = (tg_replay_slice){TG_REPLAY_HISTORY, 0, feeder->bytes[TG_REPLAY_HISTORY]};
        slices[TG_DRAW_DATA] = (tg_replay_slice){TG_REPLAY_DATA, 0, feeder->bytes[TG_REPLAY_DATA]};
    }
    return TG_OK;
}
tg_status tg_replay_make_feeder(tg_context *ctx, const tg_replay *replay, const tg_feeder_options *options, const tg_replay_limits *limits,
                                tg_replay_feeder *out) {
    int32_t count = 0;
    memset(out, 0, sizeof *out);
    tg_arena_init(&out->arena, ctx);
    out->given = TG_NEW(&out->arena, bool, replay->program->input_count + 1);
    out->arrays = TG_NEW(&out->arena, tg_replay_array, options->count + 1);
    tg_draw_array *drawn = TG_NEW(&out->arena, tg_draw_array, options->count + 1);
    if (out->given == NULL || out->arrays == NULL || drawn == NULL) return TG_ERROR_MEMORY;
    replay_lay_out(replay, options, out, drawn, &count);
    tg_status status = replay_bind_draw(replay, out);
    if (status == TG_OK) status = replay_check_binding(ctx, limits, tg_replay_names[TG_REPLAY_DATA], NULL, out->bytes[TG_REPLAY_DATA]);
    if (status == TG_OK)
        status = replay_check_binding(ctx, limits, "a batch with the inputs beside it", NULL, replay->bytes[TG_REPLAY_INPUTS]);
    if (status == TG_OK)
        status = tg_replay_check_buffer(ctx, limits->max_buffer_bytes, tg_replay_names[TG_REPLAY_DATA], out->bytes[TG_REPLAY_DATA]);
    if (status != TG_OK) return status;
    tg_wgsl_stage stage;
    status = tg_emit_wgsl_draw(drawn, count, options->rows, options->batch, limits->model, &out->arena, &stage);
    if (status != TG_OK) return status;
    out->draw = tg_replay_source_of(stage.source, stage.length, stage.binding_count, "draw a batch");
    memcpy(out->groups, stage.groups, sizeof out->groups);
    return TG_OK;
}
void tg_replay_free_feeder(tg_replay_feeder *feeder) {
    tg_arena_free(&feeder->arena);
    memset(feeder, 0, sizeof *feeder);
}

/* ---------------------------------------------------------------- pacing */

tg_pace tg_pace_make(int32_t stages) { return (tg_pace){.stages = stages, .per_submission = stages, .runs = 1}; }

int32_t tg_pace_end(const tg_pace *pace, int32_t begin) {
    return pace->stages - begin > pace->per_submission ? begin + pace->per_submission : pace->stages;
}
void tg_pace_took(tg_pace *pace, int32_t dispatches, int64_t nanoseconds, int64_t slow) {
    const int32_t grown = dispatches > pace->stages / 2 ? pace->stages : dispatches * 2;
    if (nanoseconds > slow && dispatches > 1) {
        const double fits = (double)dispatches * (double)slow / (double)nanoseconds;
        pace->per_submission = fits < 1 ? 1 : (int32_t)fits;
    } else if (dispatches == pace->per_submission && dispatches < pace->stages &&
               (double)nanoseconds * grown < (double)slow / REPLAY_FAST * dispatches) {
        pace->per_submission = grown;
    }
}
static int64_t replay_clamp(int64_t x, int64_t most) { return x < 1 ? 1 : x < most ? x : most; }

int64_t tg_pace_runs(const tg_pace *pace, int64_t most, bool exact) {
    most = replay_clamp(REPLAY_MOST_DISPATCHES / (pace->stages + 1), most);
    if (pace->per_submission < pace->stages) return 1;
    return exact ? most : replay_clamp(pace->runs, most);
}
void tg_pace_ran(tg_pace *pace, int64_t count, int64_t nanoseconds, int64_t busy) {
    const int64_t each = nanoseconds / count + 1, grown = count * REPLAY_GROWS;
    pace->runs = busy / each < grown ? busy / each : grown;
}

#undef REPLAY_MOST_DISPATCHES
#undef REPLAY_GROWS
#undef REPLAY_FAST
