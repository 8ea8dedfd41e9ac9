/* choice: how a contraction is laid out on a GPU: the method, its sizes, and their expected cost.
 * Owns the sizes to choose from and the rule that chooses, by cost or by a table of schedules. Pure
 * functions. Must not know how a kernel is written in any language, or what the epilogue computes.
 *
 *   direct  an invocation owns a few outputs and walks k; several "ways" of one workgroup may share
 *           the k of an output and add their sums in a tree. For small outputs, short k, matrix
 *           times vector, many tiny matrices.
 *   panels  in a chain, where few rows meet many columns: the rows lie in workgroup memory, an
 *           invocation owns a column of all of them for a part of k, so that each element of the
 *           right operand is read once.
 *   tiles   a workgroup owns a tile of outputs and walks k piece by piece: operands go through
 *           workgroup memory; meanwhile the next piece is on its way in registers; each invocation
 *           keeps its outputs of the tile in registers. If the device has f16, operands are rounded
 *           to halves on their way into workgroup memory; if it has subgroup matrices, large tiles
 *           are products of those.
 * Direct and tiles may split k in parts: then a first stage leaves partial sums in scratch and a
 * second adds them, always in the same order. A row beyond the last is computed again from the last
 * row and not stored; only the end of k is padded with zeros. */
#ifndef TG_TILE_CHOICE_H
#define TG_TILE_CHOICE_H
#include "tile/launch.h"
#include "tile/problem.h"

typedef enum tg_tile_method { TG_TILE_NONE, TG_TILE_DIRECT, TG_TILE_PANELS, TG_TILE_TILES } tg_tile_method;

typedef struct tg_tile_size {
    int32_t m, n, own_m, own_n, k; /* powers of two; own_m, own_n >= 4; k at a time */
    double rate;                   /* fraction of the multiply-adds of a full processor */
    int32_t resident;              /* workgroups on one processor at a time */
    int32_t buffers;               /* pieces of k in workgroup memory */
    bool by_rows, unrolled;        /* as in tg_schedule */
    int32_t across;                /* subgroup matrices: subgroups side by side; else 0 */
} tg_tile_size;

typedef struct tg_tile_choice {
    tg_tile_method method;
    int32_t size;         /* invocations of a workgroup */
    int32_t own_m, own_n; /* rows, columns of an invocation; of panels 1 */
    int64_t parts;        /* of k, by workgroups */
    int64_t part_length;  /* of k, a multiple of 4, or of the tile's k */
    tg_tile_size tile;    /* tiles; else 0 */
    int32_t panel;        /* panels: rows of one */
    int32_t lanes;        /* panels: columns side by side, a power of two */
    int32_t panel_k;      /* panels: of k in workgroup memory at a time, a multiple of 4 */
    int32_t ways;         /* direct, panels: invocations that share an output's k */
    bool ways_first;      /* direct: neighbouring invocations are ways, not outputs */
    int32_t down;         /* subgroup matrices: subgroups one below another; else 0 */
    bool halves;          /* tiles: operands lie in workgroup memory as halves */
    bool tables;          /* tiles: see tg_tile_has_table */
    bool tuned;           /* from the device's table */
    double cycles;        /* expected, of one processor; panels: no estimate */
} tg_tile_choice;

/* *out: the entry of the device's table, if the contraction is alone and the entry is one of the
 * choices; panels where they apply; else the cheapest. False: nothing fits the room. Walks a few
 * hundred choices at most, a few thousand with a table. */
bool tg_tile_choose(const tg_tile_problem *problem, const tg_tile_room *room, tg_tile_choice *out);

/* Expected microseconds of a contraction that has the device to itself, its launch not counted: of
 * the choice that the rule makes. For kernels of kind CONTRACT. */
double tg_tile_time_alone(const tg_kernel *kernel, const tg_device_model *device);

/* The operands as the choice reads them: as vectors where that is possible and the method gains by
 * it. */
tg_tile_problem tg_tile_read(const tg_tile_problem *problem, const tg_tile_choice *choice);

/* The fields of a choice that a table may name. Panels have none. */
tg_schedule tg_tile_schedule(const tg_tile_choice *choice);

/* The key of schedules for this contraction: its extents, how its operands lie, and how long the
 * epilogue is. */
void tg_tile_key(const tg_tile_problem *problem, char key[TG_TILE_KEY]);

/* Adds each choice to `candidates`, with the key and the choice of the rule. Adds none if nothing
 * fits, and none with f16: tuning tables are for f32. TG_ERROR_MEMORY recorded. */
tg_status tg_tile_list_candidates(const tg_tile_problem *problem, const tg_tile_room *room, tg_context *ctx,
                                  tg_tile_candidates *candidates);

/* ---- what a printer asks of a choice */

/* A sum is one run of additions up to this many k; then it is added to a total and starts again, so
 * that the error stays that of a few hundred additions (relative 1e-6 at K = 4096). Blocks of many
 * outputs have no registers for totals: their runs are longer, so that the totals may lie in memory
 * meanwhile. */
int32_t tg_tile_run(const tg_tile_choice *choice);

/* Tiles of a lone kernel: the offsets of an operand whose four k are uneven (windows whose last axis
 * has no multiple of four taps) are worked out once for all rows, TG_TILE_TABLE k at a time, in a
 * table in workgroup memory. The operand as the choice reads it. */
#define TG_TILE_TABLE 256
bool tg_tile_has_table(const tg_tile_operand *operand, const tg_tile_choice *choice);

/* How k ends, if it is fetched in steps of `step` from the begin of a part. EXACT: each fetch is
 * within the part. FOURS: each fetch of four is within it or beyond it. ANY: neither. */
typedef enum tg_tile_end { TG_TILE_END_EXACT, TG_TILE_END_FOURS, TG_TILE_END_ANY } tg_tile_end;
tg_tile_end tg_tile_end_of(const tg_tile_problem *problem, const tg_tile_choice *choice, int64_t step);

#endif
