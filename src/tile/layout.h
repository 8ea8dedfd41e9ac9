/* layout: where the operands of a tile lie in workgroup memory, piece of k by piece. Pure
 * functions. Must not know languages: tile[register][invocation] is an array that a printer spells.
 *
 * An invocation fetches a vector of four k of one row, or of four rows of one k. Without subgroup
 * matrices an operand lies as tile[register][invocation along this side]. An invocation reads a
 * column of that for each piece, at constant registers: robust access checks one index for the
 * whole kernel, and neighbours read neighbouring vectors.
 *   four rows of one k:  [k][row / 4], the latter split into rows / 4 of the invocation (outer) and
 *                        invocations
 *   four k of one row:   [k / 4][row], likewise. Where fetching invocations lie along k, they are
 *                        exchanged within eight by k, so that they do not meet in a bank when they
 *                        write.
 * Subgroup matrices of TG_TILE_MATRIX rows, columns and k are read from arrays of scalars: an
 * operand lies as halves, [row][k], or [k][row] if vectors hold four rows, in lines of
 * tg_tile_line. A subgroup has a block of the tile, in registers until the end; then the sums pass
 * through workgroup memory, band by band of TG_TILE_MATRIX rows of each block. */
#ifndef TG_TILE_LAYOUT_H
#define TG_TILE_LAYOUT_H
#include "tile/choice.h"

#define TG_TILE_MATRIX 16

/* One operand of a tile. Rows are columns for the right operand. */
typedef struct tg_tile_side {
    int32_t rows, own_rows; /* of the tile, of an invocation */
    int32_t invocations;    /* along this side */
    int32_t fetches;        /* vectors that an invocation fetches per piece */
    int32_t height;         /* vectors that an invocation reads for one k, or for four */
    int32_t registers;      /* of a piece */
    bool along_rows;        /* a vector holds four rows of one k */
    bool k_first;           /* fetching invocations lie along k */
    int32_t subgroups;      /* subgroup matrices: subgroups along this side; else 0 */
    int64_t total;          /* rows of the whole operand */
} tg_tile_side;

typedef struct tg_tile_layout {
    tg_tile_side left, right;
    int32_t k, size; /* k at a time; invocations of the workgroup */
    bool matrices;   /* products of subgroup matrices */
} tg_tile_layout;

/* Of a choice of method TILES, and the problem as the choice reads it (tg_tile_read). */
tg_tile_layout tg_tile_lay_out(const tg_tile_problem *problem, const tg_tile_choice *choice);

/* ---- subgroup matrices. Counts of values, not bytes, except where the name says so. */

/* Halves from one line of an operand to the next, and of all its lines. */
int32_t tg_tile_line(const tg_tile_layout *layout, const tg_tile_side *side);
int32_t tg_tile_halves(const tg_tile_layout *layout, const tg_tile_side *side);
/* Rows of a subgroup's block, and matrices side by side in them. */
int32_t tg_tile_block(const tg_tile_side *side);
int32_t tg_tile_matrices(const tg_tile_side *side);
/* Sums of a band of one block, and of all blocks: as many are in workgroup memory at a time. */
int32_t tg_tile_band(const tg_tile_layout *layout);
int32_t tg_tile_sums(const tg_tile_layout *layout);
/* Bytes of workgroup memory: both operands and the sums. */
int64_t tg_tile_matrix_bytes(const tg_tile_layout *layout);

#endif
