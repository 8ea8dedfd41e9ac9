/* contract_choice (private to run/cpu): a contraction with all choices that contract_choose.c made
 * for it, as contract.c runs it, and the addresses of the elements of its operands. */
#ifndef TG_CONTRACT_CHOICE_H
#define TG_CONTRACT_CHOICE_H
#include "run/cpu/contract.h"
#include "run/cpu/contract_ops.h"

enum { CONTRACT_HEADER_FLOATS = 16 }; /* of a worker's scratch */
enum { CONTRACT_MOST_ROWS = 128 };    /* of a chunk of rows that is copied */
enum { CONTRACT_MOST_PANEL = 32 };    /* columns of a panel, rows of a tile */

/* The offsets of one group of loops in one operand: runs of `run` steps of `stride`; runs[i] is
 * where run i begins. */
typedef struct contract_axis {
    int64_t total, run, stride;
    const int64_t *runs; /* NULL: one run, at 0 */
} contract_axis;

typedef struct contract_operand {
    int64_t offset;
    int64_t batch_stride[TG_MAX_LOOP];
    contract_axis free; /* rows of a, columns of b */
    contract_axis k;
} contract_operand;

typedef enum contract_a_mode { CONTRACT_A_IN_PLACE, CONTRACT_A_COPY_ROWS, CONTRACT_A_COPY_TILES } contract_a_mode;
typedef enum contract_b_mode { CONTRACT_B_IN_PLACE, CONTRACT_B_ROWS, CONTRACT_B_COLUMNS, CONTRACT_B_GATHER } contract_b_mode;

struct tg_contraction {
    const tg_contract_ops *ops;
    contract_operand a, b; /* exchanged when `swapped` */
    int32_t batch_dims;
    int64_t batch_extent[TG_MAX_LOOP];
    int64_t batches, m, n, k; /* of the possibly exchanged problem */
    int64_t group;            /* tiny: batches that a sink gets at once; else 0 */
    /* computes the transposed product; its blocks are turned back unless m is 1, or n is 1 and
     * `dot` */
    bool swapped;
    bool turns;
    bool dot; /* n is 1, a is contiguous along k */
    contract_a_mode a_mode;
    contract_b_mode b_mode;
    bool keeps_a; /* all batches share a: its copy stays from batch to batch */
    /* Few results of a long k: k in this many parts, whose results lie in `partials`, one m x n after
     * another, and are added in order. 1: not. `limit` parts are run at most. */
    int64_t k_parts, part_k, limit;
    float *partials;
    int64_t k_block, column_chunk, row_chunk, strip;
    int64_t batch_parts, row_parts, column_parts;
    int64_t a_chunk_floats;
    /* scratch: copies of a, of b, unfinished blocks, a turned block */
    int64_t a_floats, b_floats, sum_floats, turned_floats;
    char method[64];
};

static inline int64_t contract_min(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t contract_max(int64_t x, int64_t y) { return x > y ? x : y; }
static inline int64_t contract_ceil(int64_t x, int64_t y) { return (x + y - 1) / y; }
static inline int64_t contract_round_up(int64_t x, int64_t y) { return contract_ceil(x, y) * y; }

static inline int64_t contract_extent(const tg_kernel *kernel, int32_t from, int32_t to) {
    int64_t count = 1;
    for (int32_t d = from; d < to; ++d) count *= kernel->extent[d];
    return count;
}

/* Offset of row-major index `flat` over `dims` loops. */
/* The micro-kernels for results of so many columns. */
const tg_contract_ops *tg_contract_ops_of(tg_isa isa, int64_t columns);

static inline int64_t contract_unravel(const int64_t *extent, const int64_t *stride, int32_t dims, int64_t flat) {
    int64_t offset = 0;
    for (int32_t d = dims - 1; d >= 0; --d) {
        offset += stride[d] * (flat % extent[d]);
        flat /= extent[d];
    }
    return offset;
}

static inline int64_t contract_at(const contract_axis *axis, int64_t i) {
    if (axis->runs == NULL) return i * axis->stride;
    return axis->runs[i / axis->run] + i % axis->run * axis->stride;
}

/* Steps from i on that one stride walks, at most `limit`. */
static inline int64_t contract_run_length(const contract_axis *axis, int64_t i, int64_t limit) {
    if (axis->runs == NULL) return limit;
    return contract_min(axis->run - i % axis->run, limit);
}

/* A position on an axis, which moves from run to run without dividing. */
typedef struct contract_cursor {
    const contract_axis *axis;
    int64_t run, step;
} contract_cursor;

static inline contract_cursor contract_seek(const contract_axis *axis, int64_t i) {
    if (axis->runs == NULL) return (contract_cursor){axis, 0, i};
    return (contract_cursor){axis, i / axis->run, i % axis->run};
}
static inline int64_t contract_here(const contract_cursor *at) {
    return (at->axis->runs != NULL ? at->axis->runs[at->run] : 0) + at->step * at->axis->stride;
}
/* Steps that one stride walks from here, at most `limit`; goes beyond them. */
static inline int64_t contract_next_run(contract_cursor *at, int64_t limit) {
    int64_t steps = at->axis->runs != NULL ? contract_min(at->axis->run - at->step, limit) : limit;
    at->step += steps;
    if (at->axis->runs != NULL && at->step == at->axis->run) at->run++, at->step = 0;
    return steps;
}

static inline bool contract_contiguous(const contract_axis *axis) { return axis->total == 1 || axis->stride == 1; }
static inline bool contract_one_run(const contract_axis *axis) { return axis->runs == NULL; }

/* Of one part. */
static inline int64_t contract_part_rows(const tg_contraction *c) { return contract_ceil(c->m, c->row_parts); }
static inline int64_t contract_part_columns(const tg_contraction *c) {
    int64_t panel = 2 * c->ops->width;
    return contract_min(c->n, contract_ceil(contract_ceil(c->n, panel), c->column_parts) * panel);
}
#endif
