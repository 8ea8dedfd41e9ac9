/* body: the phase in which each instruction of a kernel's body is computed, and its sweep over
 * the inner loops. Both printers ask this before they print. Must not know any language. */
#ifndef TG_EMIT_BODY_H
#define TG_EMIT_BODY_H

#include "kernel/kernel.h"

typedef enum tg_phase {
    TG_PHASE_TOP, /* before all loops */
    /* once for each outer point, after `depth` sweeps over the inner loops (REDUCE only) */
    TG_PHASE_OUTER,
    TG_PHASE_ELEMENT /* at each point (REDUCE: in each sweep that needs it) */
} tg_phase;

typedef struct tg_body_info {
    uint8_t phase;
    uint8_t live;   /* some store depends on it */
    uint8_t wanted; /* by the sweep last asked for */
    /* reductions before it can be computed; of a reduction: its own sweep, from 1 */
    int32_t depth;
} tg_body_info;

bool tg_body_is_reduction(int32_t op);
bool tg_body_is_effect(int32_t op); /* STORE, SCATTER */
int tg_body_arity(int32_t op);
/* Fills info[body_count], zeroed by the caller; returns the depth of the deepest reduction. */
int32_t tg_body_analyse(const tg_kernel *kernel, tg_body_info *info);
/* Is instruction i a reduction that ends in `sweep`? Is it a store of ELEMENT level? */
bool tg_body_reduces_in(const tg_kernel *kernel, const tg_body_info *info, int32_t i, int32_t sweep);
bool tg_body_is_element_store(const tg_kernel *kernel, const tg_body_info *info, int32_t i);
/* Marks as wanted the ELEMENT instructions that `sweep` needs: those under its reductions or,
 * with `stores`, under the ELEMENT stores (and these). Returns whether the sweep has anything to
 * do. */
bool tg_body_want(const tg_kernel *kernel, tg_body_info *info, int32_t sweep, bool stores);

/* "reduce over [3 | 37]: exp sum": kind, extents, the operations fused. */
void tg_kernel_summary(const tg_kernel *kernel, tg_text_buffer *text);

#endif
