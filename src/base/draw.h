/* draw: which rows of a data set make the batch of a step. The rule is described at tg_batch_order
 * in the public header. draw.c computes it on the host, emit/wgsl_draw.c prints it for a GPU, so
 * all platforms draw the same rows. Must not know models. */
#ifndef TG_DRAW_H
#define TG_DRAW_H
#include "base/base.h"

typedef struct tg_draw {
    tg_batch_order order;
    uint64_t seed;
    int64_t step; /* steps made before this one */
    int64_t rows, batch;
} tg_draw;
/* "rows" in ASCII: the fourth counter word of draws from the seed. No other use of a seed has this
 * word. */
#define TG_DRAW_TAG 0x726F7773u
/* Row i of the batch is this row of the data set. */
int64_t tg_draw_row(const tg_draw *draw, int64_t i);

/* ---- on a GPU: what the kernel of tg_emit_wgsl_draw reads and writes */
#define TG_DRAW_WORDS 8
void tg_draw_control(const tg_draw *draw, uint32_t words[TG_DRAW_WORDS]);
/* The most steps of one submission: the numbers that the kernel counts must fit in a word. */
int64_t tg_draw_most_steps(int64_t batch);

#endif
