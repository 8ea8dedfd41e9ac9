/* kernel: the IR between graph and executors. A kernel is a loop nest and a straight-line body over
 * it; executors walk it, printers print it. Knows operations; must not know graphs or devices.
 *
 * Loops are split in groups by kind of kernel:
 *   MAP          [outer...]                   body runs at each point
 *   REDUCE       [outer... | inner...]        inner loops are reduced; see levels
 *   CONTRACT     [batch... m... n... | k...]  body is the epilogue, runs at each (batch, m, n);
 *                                             inner = loops of k
 *   SCATTER_ADD  [n... D]                     out[index * D + d] += value, out cleared first, in
 *                                             the order of n; n = loops [0, m_begin), D the one
 *                                             after, absent if its extent is 1. An index outside
 *                                             the table is clamped or skipped: index checks refuse
 *                                             such a step before it runs
 *   ATTENTION    the loops and the body of kernel/attention.h: loads of the operands, stores of the
 *                results, and nothing between that an executor need compute
 * Every memory access is affine in the loop indices (plus a gathered row), so views never run.
 *
 * Body: SSA in order; each instruction has a level:
 *   UNIFORM  the same for each point: evaluate once
 *   OUTER    depends on outer indices (or is a finished reduction): once for each outer point
 *   ELEMENT  depends on inner indices too (REDUCE), or on any index (MAP, CONTRACT epilogue,
 *            SCATTER_ADD)
 * In MAP, CONTRACT and SCATTER_ADD nothing is OUTER. In a REDUCE, a REDUCE_* instruction takes an
 * ELEMENT value and gives an OUTER one, which later ELEMENT instructions may use. Executors split
 * the body in sweeps over the inner loops, one for each depth of reduction, and recompute what they
 * need (a pure function of loads), or keep the row. A store of level OUTER happens once for each
 * outer point, of level ELEMENT at each point. */
#ifndef TG_KERNEL_H
#define TG_KERNEL_H

#include "ir/op.h"

#define TG_MAX_LOOP 12

typedef enum tg_kernel_kind {
    TG_KERNEL_MAP,
    TG_KERNEL_REDUCE,
    TG_KERNEL_CONTRACT,
    TG_KERNEL_SCATTER_ADD,
    TG_KERNEL_ATTENTION
} tg_kernel_kind;
typedef enum tg_level { TG_LEVEL_UNIFORM, TG_LEVEL_OUTER, TG_LEVEL_ELEMENT } tg_level;

/* offset + sum_d stride[d] * i[d], in elements */
typedef struct tg_affine {
    int64_t offset;
    int64_t stride[TG_MAX_LOOP];
} tg_affine;
/* lo <= at(i) < hi */
typedef struct tg_bound {
    tg_affine at;
    int64_t lo, hi;
} tg_bound;

/* The operation of a body instruction: an elementwise tg_op (UNARY, BINARY, COMPARE, LOGICAL,
 * SELECT, CAST, RANDOM), CONST, a reduction tg_op (SUM, REDUCE_MAX, REDUCE_MIN, ARGMAX, ARGMIN:
 * src[0] ELEMENT -> OUTER), or one of these. */
enum {
    TG_K_LOAD = TG_OP_COUNT, /* argument[at]; 0 where a bound fails (memory is not touched then) */
    /* argument[clamp(src[0], 0, rows - 1) * row_stride + at]; src[0] is i32; bounds as LOAD */
    TG_K_GATHER,
    TG_K_INDEX,  /* i32 (or f32 if dtype says so): the value of `at` */
    TG_K_INSIDE, /* bool: all bounds hold */
    TG_K_ACC,    /* CONTRACT: the contraction's value at (batch, m, n). ATTENTION: result `value` */
    TG_K_STORE,  /* argument[at] = src[0]; argument's access is WRITE */
    /* SCATTER_ADD: src[0] i32 row, src[1] value; argument[row * row_stride + at] += value */
    TG_K_SCATTER,
    TG_K_COUNT
};

typedef struct tg_instruction {
    int32_t op;
    tg_dtype dtype; /* of the result (STORE: of the value): the compute dtype */
    tg_level level;
    int32_t src[3];
    int32_t argument; /* LOAD, GATHER, STORE, SCATTER */
    tg_affine at;
    int64_t row_stride, rows; /* GATHER, SCATTER */
    int32_t bound_count;
    const tg_bound *bounds;
    double value;   /* CONST: the number. RANDOM: the bound. ACC of ATTENTION: which result, 0 or 1 */
    int32_t stream; /* RANDOM */
} tg_instruction;

typedef enum tg_access { TG_ACCESS_READ = 1, TG_ACCESS_WRITE = 2, TG_ACCESS_READ_WRITE = 3 } tg_access;
/* One buffer that a kernel touches. Kernels in place name the buffer once, READ_WRITE: then each
 * load that meets the overwritten range is at the affine of the store that overwrites it. */
typedef struct tg_argument {
    union {
        int32_t reference; /* in fusion and planning: a node or an item, see tg_reference_of_item */
        int32_t buffer;    /* in a program: its position in the list of buffers */
    };
    tg_dtype dtype; /* of its elements as they are stored; loads and stores convert */
    tg_access access;
} tg_argument;

/* A reference of 0 or more is the node whose value is read; a negative one is an item
 * (kernel/fuse.h) that is written. */
static inline int32_t tg_reference_of_item(int32_t item) { return -(item + 1); }
static inline bool tg_reference_is_item(int32_t reference) { return reference < 0; }
static inline int32_t tg_reference_item(int32_t reference) { return -(reference + 1); }

typedef struct tg_operand_access {
    int32_t argument;
    tg_affine at;
} tg_operand_access;

typedef struct tg_kernel {
    tg_kernel_kind kind;
    const char *name; /* "softmax_sum_3": the ops it fuses, for people */
    int32_t loop_count;
    int64_t extent[TG_MAX_LOOP];
    int32_t outer_count; /* loops [outer_count, loop_count) are inner */
    /* CONTRACT: loops [0, m_begin) batch, [m_begin, n_begin) m, [n_begin, outer_count) n, then k. a
     * and b have stride 0 on the loops they lack. Any group may be empty (extent 1). */
    int32_t m_begin, n_begin;
    tg_operand_access a, b;
    int32_t attention; /* ATTENTION: which of its operations, a tg_op */
    bool causal;       /* ATTENTION: query t sees keys 0 .. t */
    double scale;      /* ATTENTION: factor of the scores */
    tg_instruction *body;
    int32_t body_count;
    tg_argument *arguments;
    int32_t argument_count;
    const int32_t *nodes; /* graph nodes computed here, for messages */
    int32_t node_count;
    /* CONTRACT: 2 B M N K. ATTENTION: of its products, half of them if it is causal. Else 0 */
    double flops;
    size_t bytes; /* of the block that holds all of it, if a builder made it; else 0 */
} tg_kernel;

#endif
