/* place: see plan.h. Lifetimes come from the order and the launches. A result takes over the buffer
 * of a dying operand if the kernel and its launch allow it. Within a chain, a place goes from one
 * dead buffer to the next of its size. The rest is placed first-fit, largest first. */
#include "ir/dtype.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define PLACE_ALIGN 256

static int32_t add_buffer(tg_planner *p, tg_storage storage, const tg_node *n, int32_t node, int32_t slot) {
    tg_program *program = p->program;
    tg_buffer *b = &program->buffers[program->buffer_count];
    *b = (tg_buffer){
        .storage = storage, .dtype = n->dtype, .count = tg_shape_count(n->shape), .slot = slot, .node = node, .first = -1, .last = -1};
    if (n->name) b->name = tg_arena_text(&program->arena, n->name);
    return program->buffer_count++;
}

static int32_t leaf_buffer(tg_planner *p, int32_t node) {
    const tg_node *n = &p->graph->nodes.items[node];
    int32_t *slot = n->op == TG_OP_STATE ? &p->state_buffer[n->attr.leaf] : &p->node_buffer[node];
    if (*slot < 0) {
        tg_storage storage = n->op == TG_OP_STATE ? TG_STORAGE_STATE : n->op == TG_OP_INPUT ? TG_STORAGE_INPUT : TG_STORAGE_CONSTANT;
        *slot = add_buffer(p, storage, n, node, n->op == TG_OP_CONST ? 0 : n->attr.leaf);
    }
    return *slot;
}

static int32_t state_buffer_of(tg_planner *p, int32_t state) {
    if (p->state_buffer[state] < 0) {
        const tg_state_info *s = &p->graph->states.items[state];
        p->state_buffer[state] = add_buffer(p, TG_STORAGE_STATE, &p->graph->nodes.items[s->node], s->node, state);
    }
    return p->state_buffer[state];
}

/* The buffer whose parts are the operands of a CONCAT. */
static int32_t whole_buffer(tg_planner *p, int32_t whole) {
    if (p->node_buffer[whole] < 0) p->node_buffer[whole] = add_buffer(p, TG_STORAGE_WORKSPACE, &p->graph->nodes.items[whole], whole, 0);
    return p->node_buffer[whole];
}

/* The buffer of a kernel's unresolved argument. */
static int32_t argument_buffer(tg_planner *p, int32_t reference) {
    tg_fusion *f = &p->fusion;
    const int32_t whole = tg_fusion_whole_of(f, reference);
    if (whole >= 0) return whole_buffer(p, whole);
    const int32_t item = tg_reference_is_item(reference) ? tg_reference_item(reference) : f->item_of[reference];
    if (item < 0) return f->pack_state[reference] >= 0 ? state_buffer_of(p, f->pack_state[reference]) : leaf_buffer(p, reference);
    const tg_item *x = &f->items.items[item];
    if (x->state >= 0) return state_buffer_of(p, x->state);
    if (p->item_buffer[item] < 0) p->item_buffer[item] = add_buffer(p, TG_STORAGE_WORKSPACE, &p->graph->nodes.items[x->node], x->node, 0);
    return p->item_buffer[item];
}

int32_t tg_plan_state_of(const tg_planner *p, int32_t reference) {
    const tg_fusion *f = &p->fusion;
    const int32_t item = tg_reference_is_item(reference) ? tg_reference_item(reference) : f->item_of[reference];
    if (item >= 0) return f->items.items[item].state;
    if (f->pack_state[reference] >= 0) return f->pack_state[reference];
    const tg_node *n = &p->graph->nodes.items[reference];
    return n->op == TG_OP_STATE ? n->attr.leaf : -1;
}

/* What a reference's element 0 is in its buffer. */
static int64_t argument_offset(const tg_planner *p, int32_t reference) {
    const tg_fusion *f = &p->fusion;
    int32_t item = tg_reference_is_item(reference) ? tg_reference_item(reference) : f->item_of[reference];
    return item >= 0 && f->items.items[item].state >= 0 ? f->items.items[item].state_offset : 0;
}

static void touch(tg_buffer *b, int32_t position) {
    if (b->first < 0) b->first = position;
    b->last = position;
}

static int32_t output_buffer(tg_planner *p, int i) {
    int32_t node = tg_strip_reshape(p->graph, p->outputs[i]), item = tg_fusion_output_item(&p->fusion, node);
    return argument_buffer(p, item >= 0 ? tg_reference_of_item(item) : node);
}

static const tg_kernel *kernel_at(const tg_planner *p, int32_t position) { return p->fusion.groups.items[p->order[position]].kernel; }

static void make_buffers(tg_planner *p) {
    for (int32_t k = 0; k < p->order_count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        for (int32_t i = 0; i < kernel->argument_count; i++)
            touch(&p->program->buffers[argument_buffer(p, kernel->arguments[i].reference)], k);
    }
    for (int i = 0; i < p->output_count; i++) touch(&p->program->buffers[output_buffer(p, i)], p->order_count);
}

/* ---- in place */

/* Are all accesses that a chain makes to the buffer sliced? */
static bool sliced_in(tg_planner *p, const tg_launch *launch, int32_t buffer) {
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        for (int32_t i = 0; i < kernel->argument_count; i++)
            if (argument_buffer(p, kernel->arguments[i].reference) == buffer &&
                !tg_kernel_sliced(kernel, i, p->program->buffers[buffer].count, launch->slices))
                return false;
    }
    return true;
}

static bool touched_beside(tg_planner *p, const tg_launch *launch, int32_t position, int32_t buffer) {
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        for (int32_t i = 0; i < kernel->argument_count && k != position; i++)
            if (argument_buffer(p, kernel->arguments[i].reference) == buffer) return true;
    }
    return false;
}

/* Does the launch let the kernel at `position` write over the buffer that it reads last? */
static bool launch_allows(tg_planner *p, int32_t position, int32_t buffer) {
    const tg_launch *launch = &p->program->launches[p->launch_of[position]];
    return launch->slices > 0 ? sliced_in(p, launch, buffer) : !touched_beside(p, launch, position, buffer);
}

static void reuse_operand(tg_planner *p, int32_t position, const tg_kernel *kernel, const tg_instruction *store, bool *taken) {
    int32_t reference = kernel->arguments[store->argument].reference;
    int32_t item = tg_reference_item(reference), out = p->item_buffer[item];
    tg_program *program = p->program;
    if (out < 0 || p->fusion.items.items[item].state >= 0 || program->buffers[out].first != position) return;
    for (int32_t i = 0; i < kernel->argument_count; i++) {
        int32_t node = kernel->arguments[i].reference;
        if (node < 0 || taken[i]) continue;
        int32_t source = p->fusion.item_of[node];
        if (source < 0 || p->fusion.items.items[source].state >= 0) continue;
        tg_buffer *in = &program->buffers[p->item_buffer[source]];
        if (in->last != position || in->count != program->buffers[out].count || in->dtype != program->buffers[out].dtype) continue;
        bool shared = false; /* another argument already resolves to the same buffer */
        for (int32_t j = 0; j < kernel->argument_count; j++)
            shared = shared || (j != i && argument_buffer(p, kernel->arguments[j].reference) == p->item_buffer[source]);
        if (shared || !tg_kernel_in_place(kernel, i, store, 0) || !launch_allows(p, position, p->item_buffer[source])) continue;
        taken[i] = true;
        in->last = program->buffers[out].last;
        program->buffers[out].first = program->buffers[out].last = -1; /* empty from now on */
        p->item_buffer[item] = p->item_buffer[source];
        return;
    }
}

static bool reuse_in_place(tg_planner *p) {
    for (int32_t k = 0; k < p->order_count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        bool *taken = TG_NEW(&p->scratch, bool, kernel->argument_count + 1);
        if (!taken) return false;
        for (int32_t i = 0; i < kernel->body_count; i++)
            if (kernel->body[i].op == TG_K_STORE) reuse_operand(p, k, kernel, &kernel->body[i], taken);
    }
    return true;
}

/* ---- places: a place holds one buffer, or several that follow each other in a chain. It is named
 * after the first of them. */

typedef struct buffer_places {
    int32_t *place;        /* buffer -> place */
    int32_t *first, *last; /* place -> launches between which it is taken */
    int32_t *idle;         /* scratch: buffers that died in a chain, whose place is free */
} buffer_places;

static int64_t padded_bytes(const tg_program *program, const tg_buffer *b) {
    const int64_t bytes = b->count * tg_program_element_bytes(program, b->dtype);
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static bool same_size(const tg_program *program, const tg_buffer *a, const tg_buffer *b) {
    return a->count == b->count && tg_program_element_bytes(program, a->dtype) == tg_program_element_bytes(program, b->dtype);
}

static bool needs_place(const tg_buffer *b) { return b->storage == TG_STORAGE_WORKSPACE && b->first >= 0; }

static bool make_places(tg_planner *p, buffer_places *places) {
    const tg_program *program = p->program;
    const int32_t n = program->buffer_count;
    places->place = TG_NEW(&p->scratch, int32_t, n + 1);
    places->first = TG_NEW(&p->scratch, int32_t, n + 1);
    places->last = TG_NEW(&p->scratch, int32_t, n + 1);
    places->idle = TG_NEW(&p->scratch, int32_t, n + 1);
    if (!places->place || !places->first || !places->last || !places->idle) return false;
    for (int32_t i = 0; i < n; i++) {
        places->place[i] = i;
        if (!needs_place(&program->buffers[i])) continue;
        places->first[i] = p->launch_of[program->buffers[i].first];
        places->last[i] = p->launch_of[program->buffers[i].last];
    }
    return true;
}

static void take_place(buffer_places *places, int32_t buffer, int32_t place) {
    places->place[buffer] = place;
    if (places->last[buffer] > places->last[place]) places->last[place] = places->last[buffer];
}

/* A buffer that the kernel at `position` is the first to touch takes over the place that fell idle
 * last. */
static int32_t take_idle(tg_planner *p, buffer_places *places, int32_t buffer, int32_t idle) {
    const tg_program *program = p->program;
    for (int32_t i = idle - 1; i >= 0; i--) {
        if (!same_size(program, &program->buffers[places->idle[i]], &program->buffers[buffer])) continue;
        take_place(places, buffer, places->place[places->idle[i]]);
        memmove(&places->idle[i], &places->idle[i + 1], sizeof(int32_t) * (size_t)(idle - 1 - i));
        return idle - 1;
    }
    return idle;
}

static void share_places_in(tg_planner *p, buffer_places *places, const tg_launch *launch) {
    const tg_program *program = p->program;
    int32_t idle = 0;
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        for (int32_t i = 0; i < kernel->argument_count; i++) {
            const int32_t buffer = argument_buffer(p, kernel->arguments[i].reference);
            if (needs_place(&program->buffers[buffer]) && program->buffers[buffer].first == k && places->place[buffer] == buffer)
                idle = take_idle(p, places, buffer, idle);
        }
        for (int32_t i = 0; i < kernel->argument_count; i++) {
            const int32_t buffer = argument_buffer(p, kernel->arguments[i].reference);
            bool again = false; /* named by two arguments */
            for (int32_t j = 0; j < i; j++) again = again || argument_buffer(p, kernel->arguments[j].reference) == buffer;
            if (!again && needs_place(&program->buffers[buffer]) && program->buffers[buffer].last == k && sliced_in(p, launch, buffer))
                places->idle[idle++] = buffer;
        }
    }
}

/* ---- offsets */

/* Lowest offset at which place b fits among the `count` placed so far, which are in the order of
 * their offsets. */
static int64_t first_fit(const tg_program *program, const buffer_places *places, const int32_t *placed, int count, int32_t b) {
    int64_t offset = 0, size = padded_bytes(program, &program->buffers[b]);
    for (int i = 0; i < count && program->buffers[placed[i]].offset < offset + size; i++) {
        const int32_t o = placed[i];
        const tg_buffer *other = &program->buffers[o];
        const bool together = places->first[o] <= places->last[b] && places->first[b] <= places->last[o];
        const int64_t end = other->offset + padded_bytes(program, other);
        if (together && end > offset) offset = end;
    }
    return offset;
}

static void place_behind(const tg_program *program, int32_t *placed, int count, int32_t b) {
    int at = count, low = 0;
    while (low < at) { /* the first that begins after it */
        const int middle = low + (at - low) / 2;
        if (program->buffers[placed[middle]].offset <= program->buffers[b].offset) low = middle + 1;
        else at = middle;
    }
    memmove(&placed[at + 1], &placed[at], sizeof(int32_t) * (size_t)(count - at));
    placed[at] = b;
}

/* Large ones first; of the same size, in their own order. */
typedef struct place_size {
    int64_t bytes;
    int32_t buffer;
} place_size;

static int compare_sizes(const void *a, const void *b) {
    const place_size *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static bool place_workspace(tg_planner *p, const buffer_places *places) {
    tg_program *program = p->program;
    int32_t *placed = TG_NEW(&p->scratch, int32_t, program->buffer_count + 1), count = 0;
    place_size *sizes = TG_NEW(&p->scratch, place_size, program->buffer_count + 1);
    if (!placed || !sizes) return false;
    for (int32_t i = 0; i < program->buffer_count; i++)
        if (places->place[i] == i && needs_place(&program->buffers[i]))
            sizes[count++] = (place_size){padded_bytes(program, &program->buffers[i]), i};
    qsort(sizes, (size_t)count, sizeof *sizes, compare_sizes);
    for (int32_t i = 0; i < count; i++) {
        tg_buffer *b = &program->buffers[sizes[i].buffer];
        b->offset = first_fit(program, places, placed, i, sizes[i].buffer);
        place_behind(program, placed, i, sizes[i].buffer);
        if (b->offset + sizes[i].bytes > program->workspace_bytes) program->workspace_bytes = b->offset + sizes[i].bytes;
    }
    for (int32_t i = 0; i < program->buffer_count; i++) program->buffers[i].offset = program->buffers[places->place[i]].offset;
    return true;
}

/* Every input has room in the block of inputs, read or not. */
static bool place_inputs(tg_planner *p) {
    tg_program *program = p->program;
    int64_t *at = TG_NEW(&p->scratch, int64_t, program->input_count + 1);
    if (!at) return false;
    for (int32_t i = 0; i < program->input_count; i++) {
        const tg_buffer input = {.dtype = program->inputs[i].dtype, .count = tg_shape_count(program->inputs[i].shape)};
        at[i] = program->input_block_bytes;
        program->input_block_bytes += padded_bytes(program, &input);
    }
    for (int32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].storage == TG_STORAGE_INPUT) program->buffers[i].offset = at[program->buffers[i].slot];
    return true;
}

static void place_constants(tg_program *program) {
    for (int32_t i = 0; i < program->buffer_count; i++) {
        tg_buffer *b = &program->buffers[i];
        if (b->storage != TG_STORAGE_CONSTANT) continue;
        b->offset = program->constant_block_bytes;
        program->constant_block_bytes += padded_bytes(program, b);
    }
}

/* ---- final kernels */

static void move_access(tg_affine *at, int64_t offset) { at->offset += offset; }

static bool finish_arguments(tg_planner *p, tg_kernel *kernel) {
    tg_argument *merged = TG_NEW(&p->program->arena, tg_argument, kernel->argument_count + 1);
    int32_t *at = TG_NEW(&p->scratch, int32_t, kernel->argument_count + 1), count = 0;
    int64_t *offset = TG_NEW(&p->scratch, int64_t, kernel->argument_count + 1);
    if (!merged || !at || !offset) return false;
    for (int32_t i = 0; i < kernel->argument_count; i++) {
        const int32_t buffer = argument_buffer(p, kernel->arguments[i].reference);
        int32_t j = 0;
        offset[i] = argument_offset(p, kernel->arguments[i].reference);
        while (j < count && merged[j].buffer != buffer) j++;
        if (j == count)
            merged[count++] = (tg_argument){.buffer = buffer, .dtype = kernel->arguments[i].dtype, .access = kernel->arguments[i].access};
        else merged[j].access = (tg_access)(merged[j].access | kernel->arguments[i].access);
        at[i] = j;
    }
    for (int32_t i = 0; i < kernel->body_count; i++) {
        tg_instruction *x = &kernel->body[i];
        if (x->op != TG_K_LOAD && x->op != TG_K_GATHER && x->op != TG_K_STORE && x->op != TG_K_SCATTER) continue;
        move_access(&x->at, offset[x->argument]);
        x->argument = at[x->argument];
    }
    if (kernel->kind == TG_KERNEL_CONTRACT) {
        tg_operand_access *operands[2] = {&kernel->a, &kernel->b};
        for (int i = 0; i < 2; i++) {
            move_access(&operands[i]->at, offset[operands[i]->argument]);
            operands[i]->argument = at[operands[i]->argument];
        }
    }
    kernel->arguments = merged;
    kernel->argument_count = count;
    return true;
}

static bool copy_kernel(tg_planner *p, const tg_kernel *from, tg_kernel *to) {
    tg_arena *arena = &p->program->arena;
    *to = *from;
    to->name = tg_arena_text(arena, from->name);
    to->body = tg_arena_copy(arena, from->body, sizeof(tg_instruction) * (size_t)from->body_count);
    to->nodes = tg_arena_copy(arena, from->nodes, sizeof(int32_t) * (size_t)from->node_count);
    if (!to->name || !to->body || !to->nodes) return false;
    for (int32_t i = 0; i < to->body_count; i++) {
        tg_instruction *x = &to->body[i];
        if (x->bound_count == 0) continue;
        x->bounds = tg_arena_copy(arena, x->bounds, sizeof(tg_bound) * (size_t)x->bound_count);
        if (!x->bounds) return false;
    }
    return finish_arguments(p, to);
}

static bool finish_kernels(tg_planner *p) {
    p->program->kernels = TG_NEW(&p->program->arena, tg_kernel, p->order_count + 1);
    if (!p->program->kernels) return false;
    p->program->kernel_count = p->order_count;
    for (int32_t k = 0; k < p->order_count; k++) {
        tg_kernel *kernel = &p->program->kernels[k];
        if (!copy_kernel(p, kernel_at(p, k), kernel)) return false;
        const bool alone = p->program->launches[p->launch_of[k]].count == 1;
        if (alone && tg_plan_most_bound(p, kernel_at(p, k)) > 0 && !tg_plan_bind_states(p, kernel, k)) return false;
        p->program->contraction_flops += p->program->kernels[k].flops;
    }
    return true;
}

/* Constants live as long as the program, and are kept in the form of host memory, for any
 * device. */
static bool copy_constants(tg_planner *p) {
    tg_program *program = p->program;
    for (int32_t i = 0; i < program->buffer_count; i++) {
        tg_buffer *b = &program->buffers[i];
        if (b->storage != TG_STORAGE_CONSTANT) continue;
        const size_t bytes = (size_t)b->count * tg_dtype_bytes(b->dtype);
        b->data = tg_arena_copy(&program->arena, p->graph->nodes.items[b->node].attr.data, bytes);
        if (!b->data) return false;
        program->constant_bytes += (int64_t)bytes;
    }
    return true;
}

/* ---- the whole */

static bool make_maps(tg_planner *p) {
    tg_program *program = p->program;
    size_t items = (size_t)p->fusion.items.count, nodes = (size_t)p->graph->nodes.count, states = (size_t)p->graph->states.count;
    p->node_buffer = TG_NEW(&p->scratch, int32_t, nodes + 1);
    p->item_buffer = TG_NEW(&p->scratch, int32_t, items + 1);
    p->state_buffer = TG_NEW(&p->scratch, int32_t, states + 1);
    p->launch_of = TG_NEW(&p->scratch, int32_t, p->order_count + 1);
    size_t bound = 1; /* ranges of states */
    for (int32_t k = 0; k < p->order_count; k++) bound += (size_t)tg_plan_most_bound(p, kernel_at(p, k));
    if (!program->buffers) program->buffers = TG_NEW(&program->arena, tg_buffer, items + nodes + states + bound);
    if (!p->node_buffer || !p->item_buffer || !p->state_buffer || !p->launch_of || !program->buffers) return false;
    program->buffer_count = 0;
    program->workspace_bytes = program->input_block_bytes = program->constant_block_bytes = 0;
    for (size_t i = 0; i < nodes; i++) p->node_buffer[i] = -1;
    for (size_t i = 0; i < items; i++) p->item_buffer[i] = -1;
    for (size_t i = 0; i < states; i++) p->state_buffer[i] = -1;
    for (int32_t i = 0; i < program->launch_count; i++)
        for (int32_t k = 0; k < program->launches[i].count; k++) p->launch_of[program->launches[i].first + k] = i;
    p->launch_of[p->order_count] = program->launch_count;
    return true;
}

static bool blocks_fit(tg_planner *p) {
    const tg_program *program = p->program;
    const int64_t most = p->options->device->max_binding_bytes;
    if (program->workspace_bytes > most || program->input_block_bytes > most || program->constant_block_bytes > most) return false;
    for (int32_t k = 0; k < p->order_count; k++) {
        const tg_kernel *kernel = kernel_at(p, k);
        for (int32_t i = 0; i < kernel->argument_count && program->launches[p->launch_of[k]].count > 1; i++) {
            const int32_t state = tg_plan_state_of(p, kernel->arguments[i].reference);
            if (state < 0) continue;
            const tg_state_info *s = &program->states[state];
            if (tg_shape_count(s->shape) * tg_program_element_bytes(program, s->dtype) > most) return false;
        }
    }
    return true;
}

tg_status tg_plan_places(tg_planner *p, bool *fits) {
    buffer_places places;
    if (!make_maps(p)) return p->ctx->status;
    make_buffers(p);
    if ((!p->options->no_fusion && !reuse_in_place(p)) || !make_places(p, &places)) return p->ctx->status;
    for (int32_t i = 0; i < p->program->launch_count; i++)
        if (p->program->launches[i].slices > 0) share_places_in(p, &places, &p->program->launches[i]);
    if (!place_workspace(p, &places) || !place_inputs(p)) return p->ctx->status;
    place_constants(p->program);
    *fits = blocks_fit(p);
    return TG_OK;
}

tg_status tg_plan_kernels(tg_planner *p) {
    for (int i = 0; i < p->output_count; i++) p->program->outputs[i].buffer = output_buffer(p, i);
    return copy_constants(p) && finish_kernels(p) ? TG_OK : p->ctx->status;
}
