/* vm_make: what the parts of the translation share. vm_make.c lists which instructions run when,
 * vm_tile.c decides classes, tile sizes and parts, vm_code.c turns a list of instructions into
 * code. A segment is made by: tg_vm_begin_segment, perhaps tg_vm_emit, tg_vm_list for each
 * instruction, tg_vm_make_segment. */
#ifndef TG_VM_MAKE_H
#define TG_VM_MAKE_H

#include "run/cpu/vm.h"

/* What a value varies with. */
enum { TG_VM_CLASS_ONE = 0, TG_VM_CLASS_ROW = 1, TG_VM_CLASS_COL = 2, TG_VM_CLASS_FULL = 3, TG_VM_CLASSES = 4 };
/* Rows shorter than this run as one long row; a value per row is spread over a tile for that. */
enum { TG_VM_SHORT_ROW = 32 };
/* Of a reduction's code, in the order of TG_VM_REDUCTION's names. */
enum { TG_VM_FORM_ROW, TG_VM_FORM_COL, TG_VM_FORM_ACCUMULATE, TG_VM_FORM_MERGE };

typedef struct tg_vm_value {
    int32_t source; /* itself, or the value it is another name of */
    int32_t class_;
    tg_level level;
    int32_t depth;                          /* reductions on the longest path below it */
    int32_t slot;                           /* -1: none in this segment */
    bool kept;                              /* its slot lives across segments */
    int32_t accumulator, accumulator_value; /* REDUCE in passes */
    /* of the segment being made */
    bool listed, fused;
    int32_t uses, last;
    int32_t forward;       /* the STORE that it writes for, or -1 */
    int32_t spread;        /* slot of a full tile of this value per row, or -1 */
    int32_t steady_spread; /* the same of a value per column, made once per part */
    bool steady;           /* the same in every tile */
} tg_vm_value;

typedef struct tg_vm_merged_slot {
    int32_t slot;
    int32_t offset;
} tg_vm_merged_slot;

typedef struct tg_vm_maker {
    tg_arena *arena;
    tg_context *ctx;
    const tg_kernel *kernel;
    const bool *aliased;
    tg_vm_kernel *out;
    bool failed;
    tg_vm_value *values;
    int32_t *list; /* body positions of the segment being made */
    int32_t list_count;
    int32_t present;     /* TG_VM_CLASS_ROW, TG_VM_CLASS_COL: axes with more than one point */
    int32_t outer_class; /* class of REDUCE's outer values */
    size_t register_top, register_most, shared_top;
    TG_LIST(tg_vm_code) codes;
    TG_LIST(tg_vm_slot) slots;
    TG_LIST(tg_vm_stream) streams;
    TG_LIST(tg_vm_direct) directs;
    TG_LIST(int32_t) segment_streams;
    TG_LIST(tg_vm_merged_slot) merged; /* slots of the other side of merges */
    struct {
        int32_t *items;
        int64_t count, capacity;
    } free_slots[TG_VM_CLASSES];
    bool prologue;
} tg_vm_maker;

#define TG_VM_PUSH(m, list, value) \
  do { \
    if ((m)->list.count >= (m)->list.capacity && \
        !tg_grow((m)->ctx, (void **)&(m)->list.items, &(m)->list.capacity, (m)->list.count + 1, sizeof *(m)->list.items)) \
      (m)->failed = true; \
    else (m)->list.items[(m)->list.count++] = (value); \
  } while (0)

static inline bool tg_vm_is_reduction(int32_t op) {
    return op == TG_OP_SUM || op == TG_OP_REDUCE_MAX || op == TG_OP_REDUCE_MIN || op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
}
static inline bool tg_vm_is_arg(int32_t op) { return op == TG_OP_ARGMAX || op == TG_OP_ARGMIN; }
static inline bool tg_vm_is_load(int32_t op) { return op == TG_K_LOAD || op == TG_K_GATHER; }
static inline bool tg_vm_is_effect(int32_t op) { return op == TG_K_STORE || op == TG_K_SCATTER; }
static inline bool tg_vm_is_position(int32_t op) { return op == TG_K_INDEX || op == TG_K_INSIDE; }
static inline int32_t tg_vm_operand_count(int32_t op) {
    switch (op) {
    case TG_OP_CONST:
    case TG_K_LOAD:
    case TG_K_INDEX:
    case TG_K_INSIDE:
    case TG_K_ACC: return 0;
    case TG_K_GATHER:
    case TG_K_STORE: return 1;
    case TG_K_SCATTER: return 2;
    default: return op > 0 && op < TG_OP_COUNT ? tg_op_table[op].arity : 0;
    }
}
static inline int32_t tg_vm_source(const tg_vm_maker *m, const tg_instruction *instruction, int k) {
    return m->values[instruction->src[k]].source;
}
static inline bool tg_vm_is_aliased(const tg_vm_maker *m, int32_t argument) { return m->aliased != NULL && m->aliased[argument]; }
static inline void tg_vm_list(tg_vm_maker *m, int32_t i) { m->list[m->list_count++] = i; }
static inline int32_t tg_vm_class_extent(int32_t class_) {
    return class_ == TG_VM_CLASS_FULL  ? TG_VM_FULL
           : class_ == TG_VM_CLASS_ROW ? TG_VM_PER_ROW
           : class_ == TG_VM_CLASS_COL ? TG_VM_PER_COL
                                       : TG_VM_ONE;
}
static inline int64_t tg_vm_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t tg_vm_larger(int64_t a, int64_t b) { return a > b ? a : b; }
/* The largest power of two that is at most n, at least 1: with it, parts begin at the same share of
 * the rows in each kernel. */
static inline int64_t tg_vm_power_below(int64_t n) {
    while ((n & (n - 1)) > 0) n &= n - 1;
    return n < 1 ? 1 : n;
}
static inline int64_t tg_vm_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- vm_tile.c */
void tg_vm_analyse(tg_vm_maker *m);      /* class, level, depth of every value */
void tg_vm_choose_tile(tg_vm_maker *m);  /* tile_rows, tile_cols, passes */
void tg_vm_choose_parts(tg_vm_maker *m); /* tiles, parts, split_parts */
/* The number of rows after which the offsets and bounds of instruction i repeat; 1: the same in all
 * rows. */
int64_t tg_vm_instruction_period(const tg_vm_maker *m, const tg_instruction *instruction);

/* ---- vm_code.c. After a failed allocation m->failed is set, and these calls have no effect. */
int32_t tg_vm_new_slot(tg_vm_maker *m, tg_vm_storage storage, int64_t offset, int64_t row);
int32_t tg_vm_new_register(tg_vm_maker *m, int32_t class_, size_t lane_bytes); /* never reused */
void tg_vm_emit(tg_vm_maker *m, int32_t fn, int32_t out, int32_t a, int32_t b, int32_t c, int32_t extent, const tg_vm_access *access);
int32_t tg_vm_reduction_fn(int32_t op, tg_dtype from, int32_t form);
void tg_vm_begin_segment(tg_vm_maker *m);
/* code of the listed instructions, after what was emitted */
void tg_vm_make_segment(tg_vm_maker *m, tg_vm_segment *segment);
void tg_vm_finish_segment(tg_vm_maker *m, tg_vm_segment *segment); /* only what was emitted */

#endif
