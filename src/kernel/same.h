/* same: whether two kernels are one: the steps of a recurrence, the blocks of a network. Must not
 * know what is made of it. */
#ifndef TG_KERNEL_SAME_H
#define TG_KERNEL_SAME_H
#include "kernel/kernel.h"

/* Do they do the same work? All is equal except which buffers the arguments are, and the offsets at
 * which loads, gathers, stores, scatters and operands begin. Cost: linear in the bodies. */
bool tg_kernel_same_work(const tg_kernel *x, const tg_kernel *y);
/* Kernels of the same work and the same offsets have the same hash. */
uint64_t tg_kernel_hash(const tg_kernel *kernel);

/* Access number i of a kernel, body first, then the operands of a contraction: where it begins, and
 * its argument. NULL: the instruction does not touch memory. */
static inline const tg_affine *tg_kernel_access(const tg_kernel *kernel, int32_t i, int32_t *argument) {
    if (i >= kernel->body_count) {
        const tg_operand_access *operand = i == kernel->body_count ? &kernel->a : &kernel->b;
        *argument = operand->argument;
        return &operand->at;
    }
    const tg_instruction *x = &kernel->body[i];
    *argument = x->argument;
    return x->op == TG_K_LOAD || x->op == TG_K_GATHER || x->op == TG_K_STORE || x->op == TG_K_SCATTER ? &x->at : NULL;
}
static inline int32_t tg_kernel_access_count(const tg_kernel *kernel) {
    return kernel->body_count + (kernel->kind == TG_KERNEL_CONTRACT ? 2 : 0);
}
#endif
