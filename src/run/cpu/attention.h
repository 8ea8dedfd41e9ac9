/* attention: kernels of kind ATTENTION on the CPU, a block of queries or keys at a time; no score
 * outlives its block. Its products are those of contract_ops. Must not know programs or threads. */
#ifndef TG_CPU_ATTENTION_H
#define TG_CPU_ATTENTION_H
#include "base/base.h"
#include "kernel/attention.h"
#include "run/cpu/isa.h"

/* What one instruction set does with a row of products, `padded` of them, a multiple of its vectors.
 * The row sees its first `seen`, less those whose mask is 0; mask: NULL, or `step` bytes apart. */
typedef struct tg_attention_ops {
    /* row: products -> weights e^(scale product - most), 0 where the row does not see. *most is the
     * maximum so far, *sum the sum of the weights so far. Returns e^(old - new maximum), the factor
     * for what was added before. */
    float (*weights)(float *row, int64_t padded, int64_t seen, const uint8_t *mask, int64_t step, float scale, float *most, float *sum);
    /* p: products of q and k -> weights; dp: those of do and v -> scale p (dp - delta). */
    void (*cotangents)(float *p, float *dp, int64_t padded, int64_t seen, const uint8_t *mask, int64_t step, float scale, float lse,
                       float delta);
} tg_attention_ops;

typedef struct tg_cpu_attention tg_cpu_attention;
/* In `arena`; NULL recorded. */
tg_cpu_attention *tg_cpu_attention_make(tg_arena *arena, const tg_kernel *kernel, tg_isa isa, const tg_attention_ops *rows);
size_t tg_cpu_attention_scratch(const tg_cpu_attention *attention); /* bytes each worker needs */
int tg_cpu_attention_parts(const tg_cpu_attention *attention);
/* Part `part`: argument[i] is the first element of kernel argument i. Parts write other elements;
 * the same bits in any order. */
void tg_cpu_attention_run(const tg_cpu_attention *attention, int part, void *const *argument, void *scratch);

#endif
