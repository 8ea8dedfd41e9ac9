/* problem: a contraction as a tiling sees it: out[batch, row, column] = epilogue(sum over k of
 * left[batch, row, k] * right[batch, column, k]). Owns how the operands lie in memory: axes, which
 * of them are contiguous, and whether four neighbours may be read at once. Must not know how the
 * work is divided, devices or languages.
 *
 * `right` is the operand whose columns neighbouring invocations own, so that their stores are
 * neighbours too: b, or a if the store is contiguous along m. */
#ifndef TG_TILE_PROBLEM_H
#define TG_TILE_PROBLEM_H
#include "kernel/kernel.h"

/* The loops of one group (batch, row or k) as one operand walks them, outermost first; loops that
 * form one walk are merged. */
typedef struct tg_tile_axis {
    int32_t count;
    int64_t extent[TG_MAX_LOOP], stride[TG_MAX_LOOP];
} tg_tile_axis;

/* The axis along which neighbours are neighbours in memory, in either direction; of two, the one
 * where a run of neighbours holds four, or the longer run. */
typedef enum tg_tile_unit { TG_TILE_UNIT_NONE, TG_TILE_UNIT_K, TG_TILE_UNIT_ROW } tg_tile_unit;

typedef struct tg_tile_operand {
    int32_t argument; /* of the kernel */
    int64_t offset;
    int64_t slice;              /* elements from one slice of a chain to the next */
    tg_tile_axis batch, row, k; /* row: rows of left, columns of right */
    tg_tile_unit unit;
    bool can_widen;  /* four neighbours along `unit` may be read as one vector */
    bool wide;       /* they are: offset, slice, strides, the extent along `unit` count vectors */
    bool along_rows; /* wide, and a vector holds four rows of one k; else four k of one row */
} tg_tile_operand;

typedef struct tg_tile_problem {
    tg_tile_operand left, right;
    bool swapped; /* left is b: rows are n, columns are m */
    int64_t batch, rows, columns, k;
    /* If all batches share the left operand, they lie side by side in the columns: `columns` counts
     * those of all batches, `batch` is 1, and this is the columns of one. Else 0. */
    int64_t folded;
    int32_t body; /* instructions of the epilogue */
} tg_tile_problem;

/* The problem of a kernel of kind CONTRACT; of one slice, if it is in a chain of `slices` (else 0).
 * a_fours, b_fours: the buffer of the operand may be read four elements at a time. No operand is
 * wide yet. O(loops + body) */
tg_tile_problem tg_tile_problem_make(const tg_kernel *kernel, int32_t slices, bool a_fours, bool b_fours);

/* Are four k from a multiple of four on the same stride apart? Then one of their addresses gives the
 * others. */
bool tg_tile_even_fours(const tg_tile_operand *operand);

/* Elements of the result. */
int64_t tg_tile_outputs(const tg_tile_problem *problem);

/* Makes an operand wide that can be. */
void tg_tile_widen(tg_tile_operand *operand);

#endif
