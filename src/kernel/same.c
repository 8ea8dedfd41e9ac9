/* same: see same.h. Compares field by field: padding and pointers mean nothing. */
#include "kernel/same.h"

#include "base/base.h"

#include <string.h>

static bool same_strides(const tg_affine *a, const tg_affine *b) { return memcmp(a->stride, b->stride, sizeof a->stride) == 0; }
static bool same_affine(const tg_affine *a, const tg_affine *b) { return a->offset == b->offset && same_strides(a, b); }

static bool same_instruction(const tg_instruction *a, const tg_instruction *b, bool memory) {
    if (a->op != b->op || a->dtype != b->dtype || a->level != b->level || a->bound_count != b->bound_count || a->stream != b->stream ||
        memcmp(a->src, b->src, sizeof a->src) != 0 || memcmp(&a->value, &b->value, sizeof a->value) != 0 || a->rows != b->rows ||
        a->row_stride != b->row_stride)
        return false;
    for (int32_t i = 0; i < a->bound_count; i++)
        if (a->bounds[i].lo != b->bounds[i].lo || a->bounds[i].hi != b->bounds[i].hi || !same_affine(&a->bounds[i].at, &b->bounds[i].at))
            return false;
    return memory ? a->argument == b->argument && same_strides(&a->at, &b->at) : same_affine(&a->at, &b->at);
}

static bool same_kind(const tg_kernel *x, const tg_kernel *y) {
    if (x->kind != y->kind || x->loop_count != y->loop_count || x->outer_count != y->outer_count || x->m_begin != y->m_begin ||
        x->n_begin != y->n_begin || x->body_count != y->body_count || x->argument_count != y->argument_count)
        return false;
    if (x->kind == TG_KERNEL_ATTENTION &&
        (x->attention != y->attention || x->causal != y->causal || x->scale < y->scale || x->scale > y->scale))
        return false;
    if (x->kind == TG_KERNEL_CONTRACT && (x->a.argument != y->a.argument || x->b.argument != y->b.argument ||
                                          !same_strides(&x->a.at, &y->a.at) || !same_strides(&x->b.at, &y->b.at)))
        return false;
    return memcmp(x->extent, y->extent, sizeof x->extent[0] * (size_t)x->loop_count) == 0;
}

bool tg_kernel_same_work(const tg_kernel *x, const tg_kernel *y) {
    int32_t argument;
    if (!same_kind(x, y)) return false;
    for (int32_t i = 0; i < x->argument_count; i++)
        if (x->arguments[i].dtype != y->arguments[i].dtype || x->arguments[i].access != y->arguments[i].access) return false;
    for (int32_t i = 0; i < x->body_count; i++)
        if (!same_instruction(&x->body[i], &y->body[i], tg_kernel_access(x, i, &argument) != NULL)) return false;
    return true;
}

uint64_t tg_kernel_hash(const tg_kernel *kernel) {
    const int32_t counts[] = {(int32_t)kernel->kind, kernel->loop_count, kernel->outer_count, kernel->body_count, kernel->argument_count};
    uint64_t hash = tg_hash(0, counts, sizeof counts);
    hash = tg_hash(hash, kernel->extent, sizeof kernel->extent[0] * (size_t)kernel->loop_count);
    for (int32_t i = 0; i < tg_kernel_access_count(kernel); i++) {
        int32_t argument;
        const tg_affine *at = tg_kernel_access(kernel, i, &argument);
        if (at) hash = tg_hash(hash, at, sizeof *at);
        else hash = tg_hash(hash, &kernel->body[i].op, sizeof kernel->body[i].op);
    }
    return hash;
}
