/* wgsl_contract: what the printers of contractions share: the contraction being printed, addresses
 * of its operands, partial sums, and the loops around the epilogue. Each method has one printer:
 * wgsl_direct.c, wgsl_panels.c, wgsl_tiles.c; wgsl_subgroup.c prints the products of tiles of
 * halves. src/tile decides how a contraction is laid out. Must not know what the epilogue computes
 * (tg_wgsl_body prints it). */
#ifndef TG_WGSL_CONTRACT_H
#define TG_WGSL_CONTRACT_H
#include "emit/wgsl.h"
#include "tile/cost.h"
#include "tile/layout.h"

#define TG_WGSL_ADDRESS 160 /* room for an index as text */

typedef struct tg_wgsl_contraction {
    tg_wgsl *w;
    tg_tile_problem problem; /* as the choice reads it */
    tg_tile_choice choice;
    int64_t scratch; /* first word of the partial sums */
    /* tables of the operands, if the choice has them: offsets of four k, TG_TILE_TABLE k at a time */
    const char *left_table, *right_table;
} tg_wgsl_contraction;

/* ---- methods: each prints one stage, which has begun already. */
void tg_wgsl_direct(tg_wgsl_contraction *s);
void tg_wgsl_panels(tg_wgsl_contraction *s);
void tg_wgsl_tiles(tg_wgsl_contraction *s);

/* ---- operands, called "left" and "right" */
const char *tg_wgsl_side(const tg_wgsl_contraction *s, const tg_tile_operand *o);
/* let left_base: address of the operand at row 0 and k = 0; `batch` is in scope. */
void tg_wgsl_contract_base(tg_wgsl_contraction *s, const tg_tile_operand *o);
/* let left_<i>: address of row `row` at k = 0; `row` counts vec4s for an operand along rows. */
void tg_wgsl_contract_row(tg_wgsl_contraction *s, const tg_tile_operand *o, int32_t i, const char *row);
/* fn fetch_left(row, k, k_end), at module scope: four k of one row from k on, or one k of four
 * rows, from the address `row`; 0 beyond k_end. k is a multiple of 4, or any. With a table also
 * fn fill_left(t, k): all invocations write the block of the table that k is in. */
void tg_wgsl_contract_fetch(tg_wgsl_contraction *s, const tg_tile_operand *o, tg_tile_end end);
/* let k_begin, k_end of this part */
void tg_wgsl_contract_range(const tg_wgsl_contraction *s);

/* ---- invocations that share an output */
/* let lane, way, from t */
void tg_wgsl_contract_lanes(tg_wgsl *w, int32_t size, int32_t ways, bool ways_first);
/* `ways` invocations, `step` apart, each with m x n sums c<i>_<j>, add them in a tree; the first of
 * them gets the total. */
void tg_wgsl_contract_tree(tg_wgsl *w, int32_t ways, int32_t size, int32_t step, int32_t m, int32_t n);

/* ---- after the sums */
/* The names in a stage that holds `m` x `n` sums for each invocation; i and j are i32 variables
 * (absent if there is one). */
typedef struct tg_wgsl_outputs {
    int32_t m, n;
    const char *row, *column, *sum;
    bool row_guard, column_guard;
} tg_wgsl_outputs;
/* What an invocation does once before its points. `batch` is in scope. partial: sums go to scratch,
 * else to the epilogue. */
void tg_wgsl_contract_prepare(tg_wgsl_contraction *s, bool partial);
/* The epilogue, or the store of a partial sum, at one output: `row`, `column` are in scope. */
void tg_wgsl_contract_point(tg_wgsl_contraction *s, const char *sum, bool partial);
/* The same at each of these points, in a loop. */
void tg_wgsl_contract_points(tg_wgsl_contraction *s, const tg_wgsl_outputs *p, bool partial);
/* Does the epilogue read memory at each output? */
bool tg_wgsl_contract_reads(const tg_wgsl_contraction *s);
/* One output of a group, as text. */
typedef struct tg_wgsl_output {
    char row[TG_WGSL_ADDRESS], column[TG_WGSL_ADDRESS], sum[TG_WGSL_ADDRESS];
} tg_wgsl_output;
/* The epilogue of a group of outputs: all are computed before the first is stored, so that no read
 * waits for a write before it (a compiler must take two writable buffers for the same memory). */
void tg_wgsl_contract_group(tg_wgsl_contraction *s, const tg_wgsl_output *outputs, int32_t count, bool row_guard, bool column_guard);
/* let first_row, first_column, batch: an invocation's first output, from `cell`; neighbours hold
 * neighbouring columns. */
void tg_wgsl_contract_cell(tg_wgsl_contraction *s, int64_t cell_rows, int64_t cell_columns);

/* ---- tiles of halves (wgsl_subgroup.c). A piece of an operand is fetched as vec4<f32>s into
 * next_left0, next_left1, ... (next_right0, ...). */
/* Lines that bring the fetched vec4s, the given number of each operand, within the range of
 * halves. */
void tg_wgsl_halve(tg_wgsl *w, int left, int right);
/* Products of subgroup matrices: the tile, and its arrays as the module calls them. */
typedef struct tg_wgsl_matrices {
    const tg_tile_layout *layout;
    const char *left, *right, *sums;
} tg_wgsl_matrices;
/* arrays, and sums of 0 */
tg_wgsl_matrices tg_wgsl_matrix_declare(tg_wgsl *w, const tg_tile_layout *m);
/* let left_to<i>: where fetch i goes; its row and k in the tile, in vec4s, are called left_r<i> and
 * left_q<i> */
void tg_wgsl_matrix_target(tg_wgsl *w, const tg_tile_layout *m, const tg_tile_side *operand, int32_t i);
/* Writes what was fetched to workgroup memory; multiplies the piece that is there. */
void tg_wgsl_matrix_keep(tg_wgsl *w, const tg_wgsl_matrices *m);
void tg_wgsl_matrix_multiply(tg_wgsl *w, const tg_wgsl_matrices *m);
/* Opens a block that runs once for each sum of the tile, over all invocations: `let in_row`, `let
 * in_column`, its position in the tile, and `let sum`. Closed by two lines "}". */
void tg_wgsl_matrix_each_sum(tg_wgsl *w, const tg_wgsl_matrices *m);

#endif
