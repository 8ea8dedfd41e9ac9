/* draw: which rows of a data set make the batch of a step, and the kernel that puts them there on a GPU. The rule is beside
 * tg_batch_order in the public header; both forms of it are in draw.c, so that all homes draw alike. Must not know models. */
#ifndef TG_DRAW_H
#define TG_DRAW_H
#include "emit/emit.h"

typedef struct tg_draw {
    tg_batch_order order;
    uint64_t seed;
    int64_t step; /* steps made before */
    int64_t rows, batch;
} tg_draw;
/* The row of a data set that is row i of the batch. */
int64_t tg_draw_row(const tg_draw *draw, int64_t i);

/* ---- on a GPU: one dispatch before each step of a submission. Words are of 4 bytes, a bool is one. */
typedef struct tg_draw_array {
    int64_t from, to; /* words: where the rows begin in the data, where the batch begins in the block of inputs */
    int64_t row;      /* words */
} tg_draw_array;
/* What the kernel binds, in this order, all read_write. */
enum {
    TG_DRAW_NOW,     /* TG_DRAW_WORDS words: what tg_draw_control gives; word 0 counts the steps of this submission from 0 */
    TG_DRAW_AFTER,   /* the same, of which word 0 is written: the NOW of the next step. So the two take turns */
    TG_DRAW_INPUTS,  /* the executable's block of inputs */
    TG_DRAW_LOSS,    /* 1 word: the loss of the step before */
    TG_DRAW_HISTORY, /* word i gets the loss of step i of this submission, in the draw of step i + 1 */
    TG_DRAW_DATA,
    TG_DRAW_BINDINGS
};
#define TG_DRAW_WORDS 8
void tg_draw_control(const tg_draw *draw, uint32_t words[TG_DRAW_WORDS]);
/* The most steps of a submission: what is counted must fit in a word. */
int64_t tg_draw_most_steps(int64_t batch);
/* Into arena. bindings of the stage are left NULL. */
tg_status tg_emit_wgsl_draw(const tg_draw_array *arrays, int32_t count, int64_t rows, int64_t batch, const tg_device_model *limits,
                            tg_arena *arena, tg_wgsl_stage *out);
#endif
