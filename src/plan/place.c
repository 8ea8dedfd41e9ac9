/* place: see plan.h. Lifetimes come from the order; a result takes over a dying operand's buffer where the kernel allows it;
 * what remains is placed first-fit, largest first. */
#include "plan/plan.h"

#include <string.h>

#define PLACE_ALIGN 256

/* Of constants as they are kept: one byte a bool, whatever the device needs. */
static int64_t element_bytes(tg_dtype dtype) { return dtype == TG_BOOL ? 1 : 4; }

static int32_t add_buffer(tg_planner *p, tg_storage storage, const tg_node *n, int32_t node, int32_t slot) {
    tg_program *program = p->program;
    tg_buffer *b = &program->buffers[program->buffer_count];
    *b = (tg_buffer){
        .storage = storage, .dtype = n->dtype, .count = tg_shape_count(n->shape), .slot = slot, .node = node, .first = -1, .last = -1};
    if (n->name) b->name = tg_arena_text(&program->arena, n->name);
    return program->buffer_count++;
}

static bool leaf_buffer(tg_planner *p, int32_t node) {
    const tg_node *n = &p->graph->nodes.items[node];
    int32_t *slot = n->op == TG_OP_STATE ? &p->state_buffer[n->attr.index] : &p->node_buffer[node];
    if (*slot < 0) {
        tg_storage storage = n->op == TG_OP_STATE ? TG_STORAGE_STATE : n->op == TG_OP_INPUT ? TG_STORAGE_INPUT : TG_STORAGE_CONSTANT;
        *slot = add_buffer(p, storage, n, node, n->op == TG_OP_CONST ? 0 : n->attr.index);
        if (n->op == TG_OP_CONST) {
            size_t bytes = (size_t)(tg_shape_count(n->shape) * element_bytes(n->dtype));
            void *copy = tg_arena_copy(&p->program->arena, n->attr.data, bytes);
            if (!copy) return false;
            p->program->buffers[*slot].data = copy;
            p->program->constant_bytes += (int64_t)bytes;
        }
    }
    p->node_buffer[node] = *slot;
    return true;
}

static int32_t state_buffer_of(tg_planner *p, int32_t state) {
    if (p->state_buffer[state] < 0) {
        const tg_state_info *s = &p->graph->states.items[state];
        p->state_buffer[state] = add_buffer(p, TG_STORAGE_STATE, &p->graph->nodes.items[s->node], s->node, state);
    }
    return p->state_buffer[state];
}

/* The buffer behind a kernel's unresolved argument. */
static bool argument_buffer(tg_planner *p, int32_t reference, int32_t *out) {
    tg_fusion *f = &p->fusion;
    int32_t item = reference < 0 ? -(reference + 1) : f->item_of[reference];
    if (item >= 0) {
        tg_item *x = &f->items.items[item];
        if (x->state >= 0) *out = state_buffer_of(p, x->state);
        else {
            if (p->item_buffer[item] < 0)
                p->item_buffer[item] = add_buffer(p, TG_STORAGE_WORKSPACE, &p->graph->nodes.items[x->node], x->node, 0);
            *out = p->item_buffer[item];
        }
        return true;
    }
    if (f->pack_state[reference] >= 0) *out = state_buffer_of(p, f->pack_state[reference]);
    else {
        if (!leaf_buffer(p, reference)) return false;
        *out = p->node_buffer[reference];
    }
    return true;
}

/* What a reference's element 0 is in its buffer. */
static int64_t argument_offset(const tg_planner *p, int32_t reference) {
    const tg_fusion *f = &p->fusion;
    int32_t item = reference < 0 ? -(reference + 1) : f->item_of[reference];
    return item >= 0 && f->items.items[item].state >= 0 ? f->items.items[item].state_offset : 0;
}

static void touch(tg_buffer *b, int32_t position) {
    if (b->first < 0) b->first = position;
    b->last = position;
}

static bool output_buffer(tg_planner *p, int i, int32_t *out) {
    int32_t node = tg_strip_reshape(p->graph, p->outputs[i]), item = tg_fusion_output_item(&p->fusion, node);
    return argument_buffer(p, item >= 0 ? -(item + 1) : node, out);
}

static bool make_buffers(tg_planner *p) {
    for (int32_t k = 0; k < p->order_count; k++) {
        const tg_kernel *kernel = p->fusion.groups.items[p->order[k]].kernel;
        for (int32_t i = 0; i < kernel->argument_count; i++) {
            int32_t buffer;
            if (!argument_buffer(p, kernel->arguments[i].buffer, &buffer)) return false;
            touch(&p->program->buffers[buffer], k);
        }
    }
    for (int i = 0; i < p->output_count; i++) {
        int32_t buffer;
        if (!output_buffer(p, i, &buffer)) return false;
        touch(&p->program->buffers[buffer], p->order_count);
    }
    return true;
}

/* Once no buffer changes hands any more. */
static bool set_outputs(tg_planner *p) {
    for (int i = 0; i < p->output_count; i++)
        if (!output_buffer(p, i, &p->program->outputs[i].buffer)) return false;
    return true;
}

/* ---- in place */

static void reuse_operand(tg_planner *p, int32_t position, const tg_kernel *kernel, const tg_instruction *store, bool *taken) {
    int32_t reference = kernel->arguments[store->argument].buffer;
    int32_t item = -(reference + 1), out = p->item_buffer[item];
    tg_program *program = p->program;
    if (out < 0 || p->fusion.items.items[item].state >= 0 || program->buffers[out].first != position) return;
    for (int32_t i = 0; i < kernel->argument_count; i++) {
        int32_t node = kernel->arguments[i].buffer;
        if (node < 0 || taken[i]) continue;
        int32_t source = p->fusion.item_of[node];
        if (source < 0 || p->fusion.items.items[source].state >= 0) continue;
        tg_buffer *in = &program->buffers[p->item_buffer[source]];
        if (in->last != position || in->count != program->buffers[out].count || in->dtype != program->buffers[out].dtype) continue;
        bool shared = false; /* another argument already resolves to the same buffer */
        for (int32_t j = 0; j < kernel->argument_count; j++) {
            int32_t other;
            shared = shared || (j != i && argument_buffer(p, kernel->arguments[j].buffer, &other) && other == p->item_buffer[source]);
        }
        if (shared || !tg_kernel_in_place(kernel, i, store, 0)) continue;
        taken[i] = true;
        in->last = program->buffers[out].last;
        program->buffers[out].first = program->buffers[out].last = -1; /* empty from now on */
        p->item_buffer[item] = p->item_buffer[source];
        return;
    }
}

static bool reuse_in_place(tg_planner *p) {
    for (int32_t k = 0; k < p->order_count; k++) {
        const tg_kernel *kernel = p->fusion.groups.items[p->order[k]].kernel;
        bool *taken = TG_NEW(&p->scratch, bool, kernel->argument_count + 1);
        if (!taken) return false;
        for (int32_t i = 0; i < kernel->body_count; i++)
            if (kernel->body[i].op == TG_K_STORE) reuse_operand(p, k, kernel, &kernel->body[i], taken);
    }
    return true;
}

/* ---- offsets */

static int64_t padded_bytes(const tg_program *program, const tg_buffer *b) {
    const int64_t bytes = b->count * tg_program_element_bytes(program, b->dtype);
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static bool alive_together(const tg_buffer *a, const tg_buffer *b) { return a->first <= b->last && b->first <= a->last; }

/* Lowest offset at which b fits among the `count` buffers placed so far. */
static int64_t first_fit(const tg_program *program, const int32_t *placed, int count, const tg_buffer *b) {
    int64_t offset = 0, size = padded_bytes(program, b);
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++) {
            const tg_buffer *other = &program->buffers[placed[i]];
            if (!alive_together(other, b) || other->offset + padded_bytes(program, other) <= offset || offset + size <= other->offset)
                continue;
            offset = other->offset + padded_bytes(program, other);
            moved = true;
        }
    }
    return offset;
}

static bool place_workspace(tg_planner *p) {
    tg_program *program = p->program;
    int32_t *placed = TG_NEW(&p->scratch, int32_t, program->buffer_count + 1), count = 0;
    bool *done = TG_NEW(&p->scratch, bool, program->buffer_count + 1);
    if (!placed || !done) return false;
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i < program->buffer_count; i++) {
            const tg_buffer *b = &program->buffers[i];
            if (done[i] || b->storage != TG_STORAGE_WORKSPACE || b->first < 0) continue;
            if (best < 0 || padded_bytes(program, b) > padded_bytes(program, &program->buffers[best])) best = i;
        }
        if (best < 0) return true;
        tg_buffer *b = &program->buffers[best];
        b->offset = first_fit(program, placed, count, b);
        const int64_t end = b->offset + padded_bytes(program, b);
        if (end > program->workspace_bytes) program->workspace_bytes = end;
        placed[count++] = best;
        done[best] = true;
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
        int32_t buffer, j = 0;
        if (!argument_buffer(p, kernel->arguments[i].buffer, &buffer)) return false;
        offset[i] = argument_offset(p, kernel->arguments[i].buffer);
        while (j < count && merged[j].buffer != buffer) j++;
        if (j == count) merged[count++] = (tg_argument){buffer, kernel->arguments[i].dtype, kernel->arguments[i].access};
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
        if (!copy_kernel(p, p->fusion.groups.items[p->order[k]].kernel, &p->program->kernels[k])) return false;
        p->program->contraction_flops += p->program->kernels[k].flops;
    }
    return true;
}

static bool make_maps(tg_planner *p) {
    size_t items = (size_t)p->fusion.items.count, nodes = (size_t)p->graph->nodes.count, states = (size_t)p->graph->states.count;
    p->node_buffer = TG_NEW(&p->scratch, int32_t, nodes + 1);
    p->item_buffer = TG_NEW(&p->scratch, int32_t, items + 1);
    p->state_buffer = TG_NEW(&p->scratch, int32_t, states + 1);
    p->program->buffers = TG_NEW(&p->program->arena, tg_buffer, items + nodes + states + 1);
    if (!p->node_buffer || !p->item_buffer || !p->state_buffer || !p->program->buffers) return false;
    for (size_t i = 0; i < nodes; i++) p->node_buffer[i] = -1;
    for (size_t i = 0; i < items; i++) p->item_buffer[i] = -1;
    for (size_t i = 0; i < states; i++) p->state_buffer[i] = -1;
    return true;
}

tg_status tg_plan_buffers(tg_planner *p) {
    if (make_maps(p) && make_buffers(p) && (p->options->no_fusion || reuse_in_place(p)) && set_outputs(p) && place_workspace(p) &&
        finish_kernels(p))
        return TG_OK;
    return p->ctx->status != TG_OK ? p->ctx->status : TG_INTERNAL(p->ctx, "planning stopped without a reason");
}
