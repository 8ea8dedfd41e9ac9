/* vm: kernel IR as a linear program over tiles that live in the first-level cache. Owns the
 * executable form of a kernel and the interface between its makers (vm_shape.c, vm_tile.c,
 * vm_code.c, vm_make.c), its instruction set (vm_kernels.inc, once per ISA) and its driver
 * (vm_run.c). Must not know programs, buffers or models: arguments come as pointers.
 *
 * A tile is `rows` x `cols` points. Columns run along one loop; rows along the flat index of
 * several others; loops that are neither are `outside` and fixed while a tile runs. A value of a
 * tile varies with rows, with columns, with both or with neither (its class) and takes 1, rows,
 * cols or rows x cols lanes of 4 bytes (bool: 0 or -1). */
#ifndef TG_VM_H
#define TG_VM_H

#include "kernel/kernel.h"
#include "run/cpu/attention.h"
#include "run/cpu/contract.h"
#include "run/cpu/isa.h"

/* ---- the instruction set. X(name, operand type, result type): f float lanes, i int32 lanes. vm_math.def has those that are functions of
 * vecmath.inc. */
/* clang-format off */
#define TG_VM_UNARY(X) \
    X(copy, i, i) X(neg_f, f, f) X(neg_i, i, i) X(abs_f, f, f) X(abs_i, i, i) X(sign_f, f, f) X(sign_i, i, i) \
    X(sqrt, f, f) X(rsqrt, f, f) X(reciprocal, f, f) X(sin, f, f) X(cos, f, f) X(round, f, f) X(relu_f, f, f) X(relu_i, i, i) X(not, i, i) \
    X(square, f, f) X(cube, f, f) X(f_to_i, f, i) X(f_to_b, f, i) X(i_to_f, i, f) X(i_to_b, i, i) X(b_to_f, i, f) \
    X(b_to_i, i, i)
/* Each in three variants: both operands vary along a row, only the second (_sv), only the first
 * (_vs). */
#define TG_VM_BINARY(X) \
    X(add_f, f, f) X(sub_f, f, f) X(mul_f, f, f) X(div_f, f, f) X(pow_f, f, f) X(mod_f, f, f) X(min_f, f, f) X(max_f, f, f) \
    X(less_f, f, i) X(less_equal_f, f, i) X(equal_f, f, i) X(not_equal_f, f, i) \
    X(add_i, i, i) X(sub_i, i, i) X(mul_i, i, i) X(div_i, i, i) X(min_i, i, i) X(max_i, i, i) \
    X(less_i, i, i) X(less_equal_i, i, i) X(equal_i, i, i) X(not_equal_i, i, i) X(and, i, i) X(or, i, i)
/* Each in eight variants: bit k set when operand k does not vary along a row. fma: a b + c, fms: a
 * b - c, fnma: c - a b, less_select: a < b ? c : 0, less_equal_select: a <= b ? c : 0. X(name,
 * types of the operands, result type) */
#define TG_VM_TERNARY(X) \
    X(select, i, i, i, i) X(fma, f, f, f, f) X(fms, f, f, f, f) X(fnma, f, f, f, f) X(less_select, f, f, i, i) \
    X(less_equal_select, f, f, i, i)
/* Each over the columns (_row: one result per row) and over the rows (_col: one result per column),
 * combined into an accumulator (_accumulate), and one accumulator into another (_merge).
 * X(name, operand type, 1 for an index) */
#define TG_VM_REDUCTION(X) \
    X(sum_f, f, 0) X(sum_i, i, 0) X(max_f, f, 0) X(max_i, i, 0) X(min_f, f, 0) X(min_i, i, 0) \
    X(argmax_f, f, 1) X(argmax_i, i, 1) X(argmin_f, f, 1) X(argmin_i, i, 1)

typedef enum tg_vm_fn_id {
#define TG_VM_X(name, ta, tr) TG_VM_##name,
    TG_VM_UNARY(TG_VM_X)
#undef TG_VM_X
#define TG_VM_X(name) TG_VM_##name,
#include "run/cpu/vm_math.def"
#undef TG_VM_X
#define TG_VM_X(name, ta, tr) TG_VM_##name, TG_VM_##name##_sv, TG_VM_##name##_vs,
    TG_VM_BINARY(TG_VM_X)
#undef TG_VM_X
#define TG_VM_X(name, ta, tb, tc, tr) \
    TG_VM_##name, TG_VM_##name##_1, TG_VM_##name##_2, TG_VM_##name##_3, \
    TG_VM_##name##_4, TG_VM_##name##_5, TG_VM_##name##_6, TG_VM_##name##_7,
    TG_VM_TERNARY(TG_VM_X)
#undef TG_VM_X
#define TG_VM_X(name, t, with_index) TG_VM_##name##_row, TG_VM_##name##_col, TG_VM_##name##_accumulate, TG_VM_##name##_merge,
    TG_VM_REDUCTION(TG_VM_X)
#undef TG_VM_X
    TG_VM_random,     /* operands as a ternary's, in code->splat what varies */
    TG_VM_finish_sum, /* f64 accumulator -> f32 */
    TG_VM_spread,     /* one value per row, or per column, or one -> a full tile */
    TG_VM_load, TG_VM_load_bool, TG_VM_gather, TG_VM_gather_bool, TG_VM_index_i, TG_VM_index_f, TG_VM_inside,
    TG_VM_store, TG_VM_store_spread, TG_VM_store_bool, TG_VM_store_bool_spread,
    TG_VM_scatter_f, TG_VM_scatter_i,
    TG_VM_FN_COUNT
} tg_vm_fn_id;
/* clang-format on */

typedef struct tg_vm_code tg_vm_code;
typedef struct tg_vm_frame tg_vm_frame;
typedef void (*tg_vm_fn)(const tg_vm_code *code, tg_vm_frame *frame);

typedef struct tg_vm_table {
    tg_vm_fn fn[TG_VM_FN_COUNT];
    tg_attention_ops attention;
} tg_vm_table;
#ifdef TG_HAS_X86
extern const tg_vm_table tg_vm_table_avx512, tg_vm_table_avx2;
#endif
#ifdef TG_HAS_NEON
extern const tg_vm_table tg_vm_table_neon;
#endif
#ifdef TG_HAS_SIMD128
/* and no other: what runs WebAssembly SIMD was told so at compile time */
extern const tg_vm_table tg_vm_table_simd128;
#else
extern const tg_vm_table tg_vm_table_scalar;
#endif

/* ---- addresses */

/* Element offset of a tile's point (r, c): base + row part(r) + c col. The row part is r row when
 * `affine`, else a table made for each tile. */
typedef struct tg_vm_stream {
    int64_t offset, col, row;
    bool affine;
    int64_t row_stride[TG_MAX_LOOP]; /* per row loop */
    int64_t outside_stride[TG_MAX_LOOP];
} tg_vm_stream;
typedef struct tg_vm_bound_code {
    int32_t stream;
    int64_t lo, hi;
} tg_vm_bound_code;
typedef struct tg_vm_access {
    int32_t argument, stream;
    int32_t bound_count;
    const tg_vm_bound_code *bounds;
    int64_t row_stride, rows; /* GATHER, SCATTER; RANDOM: stream, bound */
} tg_vm_access;

/* ---- code */

/* How many rows and lanes per row an instruction covers. */
typedef enum tg_vm_extent {
    TG_VM_ONE,     /* 1 x 1 */
    TG_VM_PER_ROW, /* 1 x rows: a value per row, as a flat vector */
    TG_VM_PER_COL, /* 1 x cols */
    TG_VM_FULL,    /* rows x cols */
    TG_VM_FLAT,    /* rows x cols, as one vector when the tile's columns fill its pitch */
    TG_VM_DOWN,    /* rows x 1: a value per row, for addressing */
    TG_VM_EXTENTS
} tg_vm_extent;

struct tg_vm_code {
    tg_vm_fn fn;
    int32_t out, a, b, c; /* slots */
    int32_t extent;
    /* bit k: operand k does not vary along a row (what the variant of fn says too) */
    int32_t splat;
    const tg_vm_access *access;
};

/* Where a slot's lanes are. */
typedef enum tg_vm_storage {
    TG_VM_REGISTER, /* worker's scratch + offset bytes */
    TG_VM_SHARED,   /* kernel's shared block + offset bytes */
    TG_VM_DIRECT    /* set for each tile: an argument's memory, or the contraction's block */
} tg_vm_storage;
typedef struct tg_vm_slot {
    tg_vm_storage storage;
    int64_t offset;
    int64_t row;
} tg_vm_slot;
typedef struct tg_vm_direct {
    int32_t slot, argument, stream;
} tg_vm_direct;

/* Straight-line code with the streams and direct slots it uses. */
typedef struct tg_vm_segment {
    const tg_vm_code *code;
    const int32_t *streams;
    const tg_vm_direct *directs;
    int32_t code_count, stream_count, direct_count;
    bool tables; /* some stream has a table */
} tg_vm_segment;

typedef enum tg_vm_mode {
    TG_VM_MAP, /* every tile: body */
    /* REDUCE, rows are outer, columns the last inner loop, outside the other inner loops */
    TG_VM_ROWS,
    /* REDUCE, columns are an outer loop, rows are inner, outside the other outer loops */
    TG_VM_COLUMNS,
    TG_VM_EPILOGUE, /* CONTRACT */
    TG_VM_SCATTERING
} tg_vm_mode;

typedef struct tg_vm_loops {
    int32_t row_count, outside_count;
    int64_t row_extent[TG_MAX_LOOP]; /* outermost first */
    int64_t outside_extent[TG_MAX_LOOP];
    int64_t rows, cols, outside; /* products */
    /* kernel loop that gives the stride of the (merged) loop */
    int32_t row_lead[TG_MAX_LOOP], outside_lead[TG_MAX_LOOP], col_lead; /* col_lead -1: no loop */
    /* EPILOGUE: the first ones of outside are batch loops, the rest outer n loops */
    int32_t batch_outside;
    bool turned; /* EPILOGUE with one column: columns are m, rows n */
} tg_vm_loops;

typedef struct tg_vm_kernel {
    const tg_kernel *source;
    const tg_vm_table *table;
    tg_vm_mode mode;
    tg_vm_loops loops;
    int64_t tile_rows, tile_cols;
    tg_vm_slot *slots;
    tg_vm_stream *streams;
    int32_t slot_count, stream_count;
    tg_vm_segment setup;                /* once per part: what is the same in every tile */
    tg_vm_segment prologue, body, last; /* last: stores once per outer point, REDUCE in passes */
    /* REDUCE in passes: outer[0], pass[0], outer[1], pass[1] .. outer[passes], body (element
     * stores), last */
    int32_t passes;                      /* 0: the whole row fits in a tile, or no REDUCE */
    tg_vm_segment *outer, *pass, *merge; /* merge: combines slots of merge_slots into accumulators */
    int64_t kept_begin, kept_end;        /* bytes of a worker's registers that live across passes */
    const int32_t *merge_slots;
    const int64_t *merge_offsets; /* relative to kept_begin */
    int32_t merge_slot_count;
    int32_t split_parts; /* > 0: the inner loops are split in this many parts, combined in order */
    char *partials;      /* split_parts x (kept_end - kept_begin) */
    char *shared;        /* constants and uniform values */
    int32_t parts;       /* of everything else; 1: the calling thread */
    int64_t tiles;
    size_t register_bytes, frame_bytes, scratch_bytes;
    tg_cpu_attention *attention; /* ATTENTION: all that there is, with parts and scratch_bytes */
    /* CONTRACT */
    tg_contraction *contraction;
    int32_t acc_slot; /* -1: direct */
    int32_t direct_argument;
    int64_t direct_offset, direct_row;
    const int64_t *direct_batch; /* per batch loop of the source kernel */
} tg_vm_kernel;

/* ---- running */

typedef struct tg_vm_shape {
    int64_t rows, cols;
} tg_vm_shape;
typedef struct tg_vm_cursor {
    int64_t base, row, col;
    const int64_t *table;
} tg_vm_cursor;

/* A worker's view of one kernel's tile. */
struct tg_vm_frame {
    void **ptr;           /* [slot] first lane */
    int64_t *row;         /* [slot] lanes from row to row */
    tg_vm_cursor *stream; /* [stream] */
    int64_t *tables;      /* [stream][tile_rows] */
    void *const *argument;
    char *registers;
    tg_vm_shape shape[TG_VM_EXTENTS];
    int64_t row0, col0; /* tile's origin */
    int64_t outside[TG_MAX_LOOP];
    int64_t inner_base; /* flat index, over the inner loops, of the origin */
    bool first;         /* first tile of an accumulation */
};

/* Makes the executable form in `arena`; the source kernel stays referenced. aliased[a]: argument
 * a's memory is written by this kernel and also read through a or another argument. NULL recorded.
 * Cost: proportional to the body, no search. */
tg_vm_kernel *tg_vm_make(tg_arena *arena, const tg_kernel *kernel, const bool *aliased, tg_isa isa);
size_t tg_vm_scratch(const tg_vm_kernel *kernel); /* bytes each worker needs, 64-byte aligned */
/* argument[i]: first element of kernel argument i. scratch[w]: worker w's. Allocates nothing. Same
 * bits for any pool. */
void tg_vm_run(tg_vm_kernel *kernel, void *const *argument, tg_pool *pool, char *const *scratch);

/* ---- shared between vm_shape.c and vm_make.c */

/* Calls visit for every affine of the kernel's body (accesses and bounds). */
typedef struct tg_vm_affine_use {
    const tg_instruction *instruction;
    const tg_affine *at;
    bool is_access; /* memory is touched at it (not a bound, not INDEX) */
} tg_vm_affine_use;
int32_t tg_vm_affine_count(const tg_kernel *kernel);
/* Merges loops, chooses mode, rows and columns. uses: tg_vm_affine_count entries. rows_of_batches:
 * see tg_contraction_is_tiny. */
void tg_vm_shape_loops(const tg_kernel *kernel, bool rows_of_batches, tg_vm_affine_use *uses, tg_vm_mode *mode, tg_vm_loops *loops);
void tg_vm_make_stream(const tg_vm_loops *loops, const tg_affine *at, tg_vm_stream *out);

#endif
