/* wgsl_roll: see wgsl_roll.h. Two kernels that do the same work (kernel/same.h) may differ in
 * where an argument's elements lie, by the same number of words for all accesses to it. */
#include "emit/wgsl_roll.h"

#include "kernel/same.h"

/* Two kernels of a chain, and what they are compared by. */
typedef struct roll_pair {
    const tg_program *program;
    const tg_kernel *x, *y;
    int64_t turns; /* from x to y */
    int64_t *words;
    bool *known; /* words[i] is */
} roll_pair;

/* Is the access of y as many steps beyond that of x as all others of its argument? */
static bool roll_same_step(const roll_pair *p, int32_t argument, const tg_affine *a, const tg_affine *b) {
    const tg_buffer *from = &p->program->buffers[p->x->arguments[argument].buffer];
    const tg_buffer *to = &p->program->buffers[p->y->arguments[argument].buffer];
    const int64_t apart = (to->offset - from->offset) / TG_WORD_BYTES + b->offset - a->offset;
    if (!p->known[argument]) {
        p->words[argument] = apart;
        p->known[argument] = true;
    }
    return p->words[argument] * p->turns == apart;
}

static bool roll_same_blocks(const roll_pair *p) {
    for (int32_t i = 0; i < p->x->argument_count; i++) {
        const tg_buffer *from = &p->program->buffers[p->x->arguments[i].buffer], *to = &p->program->buffers[p->y->arguments[i].buffer];
        if (from->storage != to->storage || from->dtype != to->dtype || from->count != to->count) return false;
        if (from->storage == TG_STORAGE_STATE && from->slot != to->slot) return false;
        if (tg_program_element_bytes(p->program, from->dtype) != TG_WORD_BYTES) return false;
    }
    return true;
}

static bool roll_same_kernel(const roll_pair *p) {
    if (!tg_kernel_same_work(p->x, p->y) || !roll_same_blocks(p)) return false;
    for (int32_t i = 0; i < tg_kernel_access_count(p->x); i++) {
        int32_t argument;
        const tg_affine *a = tg_kernel_access(p->x, i, &argument), *b = tg_kernel_access(p->y, i, &argument);
        if (a && !roll_same_step(p, argument, a, b)) return false;
    }
    return true;
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
