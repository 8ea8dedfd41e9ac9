/* draw: which rows of a data set make the batch of a step. The rule is beside tg_batch_order in the
 * public header; draw.c has it for the host, emit/wgsl_draw.c prints the same rule for a GPU, so
 * that all platforms draw alike. Must not know models. */
#ifndef TG_DRAW_H
#define TG_DRAW_H
#include "base/base.h"

typedef struct tg_draw {
    tg_batch_order order;
    uint64_t seed;
    int64_t step; /* steps made before */
    int64_t rows, batch;
} tg_draw;
/* The fourth counter word of what is drawn from the seed here; no other use of a seed has it.
 * "rows" */
#define TG_DRAW_TAG 0x726F7773u
/* The row of a data set that is row i of the batch. */
int64_t tg_draw_row(const tg_draw *draw, int64_t i);

/* ---- on a GPU: what the kernel of tg_emit_wgsl_draw reads and writes */
#define TG_DRAW_WORDS 8
void tg_draw_control(const tg_draw *draw, uint32_t words[TG_DRAW_WORDS]);
/* The most steps of a submission: what is counted must fit in a word. */
int64_t tg_draw_most_steps(int64_t batch);

#endif
