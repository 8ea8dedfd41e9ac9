/* op: the primitives by number, and what the table ops.def says of each. Kernels, printers and
 * executors name operations by these numbers too. Must not know graphs. */
#ifndef TG_OP_H
#define TG_OP_H

#include "base/base.h"

typedef enum tg_op {
    TG_OP_POISON = 0,
#define TG_OP(NAME, ...) TG_OP_##NAME,
#include "ir/ops.def"
#undef TG_OP
    TG_OP_COUNT
} tg_op;

typedef enum tg_op_class {
    TG_CLASS_LEAF,
    TG_CLASS_UNARY,
    TG_CLASS_BINARY,
    TG_CLASS_COMPARE,
    TG_CLASS_LOGICAL,
    TG_CLASS_SELECT,
    TG_CLASS_CAST,
    TG_CLASS_RANDOM,
    TG_CLASS_REDUCE,
    TG_CLASS_VIEW,
    TG_CLASS_JOIN,
    TG_CLASS_CONTRACT,
    TG_CLASS_INDEX,
    TG_CLASS_ATTENTION
} tg_op_class;

typedef struct tg_op_info {
    const char *name;
    int arity;
    tg_op_class class_;
    unsigned dtypes; /* see tg_op_dtypes */
    const char *description;
} tg_op_info;
extern const tg_op_info tg_op_table[TG_OP_COUNT];

/* true for UNARY BINARY COMPARE LOGICAL SELECT CAST RANDOM */
bool tg_op_is_elementwise(tg_op op);
/* The element types that `op` takes for every operand, as a mask of 1 << dtype (SELECT: of its
 * branches). */
unsigned tg_op_dtypes(tg_op op);

#endif
