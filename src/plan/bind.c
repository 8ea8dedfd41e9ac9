/* bind: what a kernel alone binds of the states that it reads: the ranges that it touches, each
 * from its own beginning. So the same work on other parameters is the same kernel, and equal blocks
 * of a network share their code; and a state may be longer than a binding, if what each kernel
 * touches is not. Must not know places or launches. */
#include "plan/plan.h"

#include <string.h>

#define BIND_ALIGN 256 /* bytes: WebGPU's minStorageBufferOffsetAlignment at most */

/* Elements [lo, hi) of a state. */
typedef struct bind_range {
    int64_t lo, hi;
} bind_range;

enum { BIND_MOST = 32 };

/* Access number i of a kernel, body first: NULL if it is none. */
static tg_affine *bind_access(tg_kernel *kernel, int32_t i, int32_t **argument, int64_t *beyond) {
    *beyond = 0;
    if (i >= kernel->body_count) {
        tg_operand_access *operand = i == kernel->body_count ? &kernel->a : &kernel->b;
        *argument = &operand->argument;
        return &operand->at;
    }
    tg_instruction *x = &kernel->body[i];
    const bool by_row = x->op == TG_K_GATHER || x->op == TG_K_SCATTER;
    *argument = &x->argument;
    if (by_row) *beyond = (x->rows - 1) * x->row_stride;
    return by_row || x->op == TG_K_LOAD || x->op == TG_K_STORE ? &x->at : NULL;
}

static int32_t bind_access_count(const tg_kernel *kernel) { return kernel->body_count + (kernel->kind == TG_KERNEL_CONTRACT ? 2 : 0); }

/* The range of an access within a state of `count` elements: from a multiple of `align` on, and
 * whole vec4s. */
static bind_range bind_touched(const tg_kernel *kernel, const tg_affine *at, int64_t beyond, int64_t count, int64_t align) {
    tg_loops loops = {.count = kernel->loop_count};
    bind_range r;
    memcpy(loops.extent, kernel->extent, sizeof loops.extent);
    tg_affine_range(at, &loops, &r.lo, &r.hi);
    if (beyond < 0) r.lo += beyond;
    else r.hi += beyond;
    r.lo = r.lo < 0 ? 0 : r.lo / align * align; /* bounds may keep it from what lies outside */
    r.hi = (r.hi / 4 + 1) * 4;
    if (r.hi > count) r.hi = count;
    return r;
}

/* Adds a range; those that overlap become one. */
static void bind_add(bind_range *ranges, int32_t *count, bind_range r) {
    for (int32_t i = 0; i < *count;) {
        if (r.lo >= ranges[i].hi || ranges[i].lo >= r.hi) {
            i++;
            continue;
        }
        if (ranges[i].lo < r.lo) r.lo = ranges[i].lo;
        if (ranges[i].hi > r.hi) r.hi = ranges[i].hi;
        ranges[i] = ranges[--*count];
        i = 0;
    }
    ranges[(*count)++] = r;
}

static bind_range bind_all(const bind_range *ranges, int32_t count) {
    bind_range all = ranges[0];
    for (int32_t i = 1; i < count; i++) {
        if (ranges[i].lo < all.lo) all.lo = ranges[i].lo;
        if (ranges[i].hi > all.hi) all.hi = ranges[i].hi;
    }
    return all;
}

/* The ranges of a state that the kernel's argument needs; at most `most` of them, and one if the
 * kernel writes it. */
static int32_t bind_ranges(tg_kernel *kernel, int32_t argument, int64_t count, int64_t align, int32_t most, bind_range *ranges) {
    int32_t found = 0, *of;
    int64_t beyond;
    for (int32_t i = 0; i < bind_access_count(kernel); i++) {
        const tg_affine *at = bind_access(kernel, i, &of, &beyond);
        if (!at || *of != argument) continue;
        bind_add(ranges, &found, bind_touched(kernel, at, beyond, count, align));
        if (found < BIND_MOST - 1) continue;
        ranges[0] = bind_all(ranges, found);
        found = 1;
    }
    if (found > 1 && (found > most || kernel->arguments[argument].access != TG_ACCESS_READ)) {
        ranges[0] = bind_all(ranges, found);
        found = 1;
    }
    return found;
}

/* The kernel's argument binds ranges[number] of its state, as argument `bound`. */
static void bind_move(tg_kernel *kernel, int32_t argument, int32_t bound, int64_t count, int64_t align, bind_range range) {
    int32_t *of;
    int64_t beyond;
    for (int32_t i = 0; i < bind_access_count(kernel); i++) {
        tg_affine *at = bind_access(kernel, i, &of, &beyond);
        if (!at || *of != argument) continue;
        const bind_range touched = bind_touched(kernel, at, beyond, count, align);
        if (touched.lo < range.lo || touched.hi > range.hi) continue;
        at->offset -= range.lo;
        *of = bound;
    }
}

int32_t tg_plan_most_bound(const tg_planner *p, const tg_kernel *kernel) {
    int32_t states = 0;
    for (int32_t i = 0; i < kernel->argument_count; i++) states += tg_plan_state_of(p, kernel->arguments[i].reference) >= 0;
    return states == 0 || !p->options->device->in_words ? 0 : p->options->device->max_arguments;
}

bool tg_plan_bind_states(tg_planner *p, tg_kernel *kernel, int32_t position) {
    tg_program *program = p->program;
    const int32_t arguments = kernel->argument_count, most = p->options->device->max_arguments;
    tg_argument *grown = TG_NEW(&program->arena, tg_argument, most > arguments ? most : arguments);
    if (!grown) return false;
    memcpy(grown, kernel->arguments, sizeof *grown * (size_t)arguments);
    kernel->arguments = grown;
    for (int32_t i = 0; i < arguments; i++) {
        bind_range ranges[BIND_MOST];
        const tg_buffer whole = program->buffers[grown[i].buffer];
        const int64_t bytes = tg_program_element_bytes(program, whole.dtype), align = BIND_ALIGN / bytes;
        if (whole.storage != TG_STORAGE_STATE) continue;
        const int32_t count = bind_ranges(kernel, i, whole.count, align, most - kernel->argument_count + 1, ranges);
        for (int32_t n = count - 1; n >= 0; n--) {
            const int32_t bound = n == 0 ? i : kernel->argument_count++;
            grown[bound] = grown[i];
            grown[bound].buffer = program->buffer_count++;
            program->buffers[grown[bound].buffer] = whole;
            tg_buffer *part = &program->buffers[grown[bound].buffer];
            part->offset = ranges[n].lo * bytes;
            part->count = ranges[n].hi - ranges[n].lo;
            part->first = part->last = position;
            bind_move(kernel, i, bound, whole.count, align, ranges[n]);
        }
    }
    return true;
}
