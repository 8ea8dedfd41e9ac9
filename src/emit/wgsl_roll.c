/* wgsl_roll: see wgsl_roll.h. Two kernels are compared instruction by instruction; what may differ
 * is where an argument's elements lie, by the same number of words for all accesses to it. */
#include "emit/wgsl_roll.h"

#include <string.h>

/* Two kernels of a chain, and what they are compared by. */
typedef struct roll_pair {
    const tg_program *program;
    const tg_kernel *x, *y;
    int64_t turns; /* from x to y */
    int64_t *words;
    bool *known; /* words[i] is */
} roll_pair;

/* y's element for x's, in one argument. */
static bool roll_same_step(const roll_pair *p, int32_t argument, const tg_affine *a, const tg_affine *b) {
    const tg_buffer *from = &p->program->buffers[p->x->arguments[argument].buffer];
    const tg_buffer *to = &p->program->buffers[p->y->arguments[argument].buffer];
    const int64_t apart = (to->offset - from->offset) / TG_WORD_BYTES + b->offset - a->offset;
    if (!p->known[argument]) {
        p->words[argument] = apart;
        p->known[argument] = true;
    }
    return p->words[argument] * p->turns == apart && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

static bool roll_same_affine(const tg_affine *a, const tg_affine *b) {
    return a->offset == b->offset && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

static bool roll_same_instruction(const roll_pair *p, const tg_instruction *a, const tg_instruction *b) {
    if (a->op != b->op || a->dtype != b->dtype || a->level != b->level || a->bound_count != b->bound_count || a->stream != b->stream ||
        memcmp(a->src, b->src, sizeof a->src) != 0 || memcmp(&a->value, &b->value, sizeof a->value) != 0 || a->rows != b->rows ||
        a->row_stride != b->row_stride)
        return false;
    for (int32_t i = 0; i < a->bound_count; i++)
        if (a->bounds[i].lo != b->bounds[i].lo || a->bounds[i].hi != b->bounds[i].hi ||
            !roll_same_affine(&a->bounds[i].at, &b->bounds[i].at))
            return false;
    if (a->op != TG_K_LOAD && a->op != TG_K_GATHER && a->op != TG_K_STORE && a->op != TG_K_SCATTER) return roll_same_affine(&a->at, &b->at);
    return a->argument == b->argument && roll_same_step(p, a->argument, &a->at, &b->at);
}

static bool roll_same_arguments(const roll_pair *p) {
    if (p->x->argument_count != p->y->argument_count) return false;
    for (int32_t i = 0; i < p->x->argument_count; i++) {
        const tg_argument *a = &p->x->arguments[i], *b = &p->y->arguments[i];
        const tg_buffer *from = &p->program->buffers[a->buffer], *to = &p->program->buffers[b->buffer];
        if (a->dtype != b->dtype || a->access != b->access || from->storage != to->storage || from->dtype != to->dtype) return false;
        if (from->storage == TG_STORAGE_STATE && from->slot != to->slot) return false;
        if (from->count != to->count || tg_program_element_bytes(p->program, from->dtype) != TG_WORD_BYTES) return false;
    }
    return true;
}

static bool roll_same_kernel(const roll_pair *p) {
    const tg_kernel *x = p->x, *y = p->y;
    if (x->kind != y->kind || x->loop_count != y->loop_count || x->outer_count != y->outer_count || x->m_begin != y->m_begin ||
        x->n_begin != y->n_begin || x->body_count != y->body_count || !roll_same_arguments(p) ||
        memcmp(x->extent, y->extent, sizeof x->extent[0] * (size_t)x->loop_count) != 0)
        return false;
    for (int32_t i = 0; i < x->body_count; i++)
        if (!roll_same_instruction(p, &x->body[i], &y->body[i])) return false;
    if (x->kind != TG_KERNEL_CONTRACT) return true;
    return x->a.argument == y->a.argument && x->b.argument == y->b.argument && roll_same_step(p, x->a.argument, &x->a.at, &y->a.at) &&
           roll_same_step(p, x->b.argument, &x->b.at, &y->b.at);
}

/* A vec4 stays one: its step is whole vec4s, and the other kernel reads vec4s too. */
static bool roll_same_vectors(const roll_pair *p, const bool *x, const bool *y) {
    for (int32_t i = 0; i < p->x->argument_count; i++)
        if (x[i] != y[i] || (x[i] && p->words[i] % 4 != 0)) return false;
    return true;
}

/* How often kernels [at, at + period) are there in a row; their steps into out->words. */
static int32_t roll_count_turns(const tg_program *program, const tg_launch *launch, bool *const *vectors, tg_wgsl_roll *out,
                                bool *const *known) {
    int32_t turns = 1;
    for (; out->first + (turns + 1) * out->period <= launch->count; turns++)
        for (int32_t j = 0; j < out->period; j++) {
            const int32_t one = out->first + j, other = one + turns * out->period;
            const roll_pair p = {.program = program,
                                 .x = &program->kernels[launch->first + one],
                                 .y = &program->kernels[launch->first + other],
                                 .turns = turns,
                                 .words = out->words[j],
                                 .known = known[j]};
            if (!roll_same_kernel(&p) || !roll_same_vectors(&p, vectors[one], vectors[other])) return turns;
        }
    return turns;
}

bool tg_wgsl_find_roll(const tg_program *program, const tg_launch *launch, int32_t at, bool *const *vectors, tg_arena *arena,
                       tg_wgsl_roll *out) {
    bool *known[TG_WGSL_LONGEST_PERIOD];
    for (int32_t period = 1; period <= TG_WGSL_LONGEST_PERIOD && at + TG_WGSL_FEWEST_TURNS * period <= launch->count; period++) {
        *out = (tg_wgsl_roll){.first = at, .period = period};
        for (int32_t j = 0; j < period; j++) {
            const int32_t arguments = program->kernels[launch->first + at + j].argument_count;
            out->words[j] = TG_NEW(arena, int64_t, arguments + 1);
            known[j] = TG_NEW(arena, bool, arguments + 1);
            if (!out->words[j] || !known[j]) return false;
        }
        out->turns = roll_count_turns(program, launch, vectors, out, known);
        if (out->turns >= TG_WGSL_FEWEST_TURNS) return true;
    }
    *out = (tg_wgsl_roll){.first = at, .period = 1, .turns = 1};
    return true;
}
