/* ops: the table of primitives, one row for each line of ops.def, and the facts that follow from
 * it. Must not know graphs or shapes. */
#include "ir/op.h"

#define OPS_F32 (1u << TG_F32)
#define OPS_I32 (1u << TG_I32)
#define OPS_BOOL (1u << TG_BOOL)
#define OPS_NUMBER (OPS_F32 | OPS_I32)
#define OPS_ANY (OPS_NUMBER | OPS_BOOL)

const tg_op_info tg_op_table[TG_OP_COUNT] = {
    {"poison", 0, TG_CLASS_LEAF, OPS_F32, "no value: an operation failed"},
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, price, description, ...) \
  {text, arity, TG_CLASS_##class_, OPS_##dtypes, description},
#include "ir/ops.def"
#undef TG_OP
};

#undef OPS_F32
#undef OPS_I32
#undef OPS_BOOL
#undef OPS_NUMBER
#undef OPS_ANY

bool tg_op_is_elementwise(tg_op op) {
    if (op <= TG_OP_POISON || op >= TG_OP_COUNT) return false;
    switch (tg_op_table[op].class_) {
    case TG_CLASS_UNARY:
    case TG_CLASS_BINARY:
    case TG_CLASS_COMPARE:
    case TG_CLASS_LOGICAL:
    case TG_CLASS_SELECT:
    case TG_CLASS_CAST:
    case TG_CLASS_RANDOM: return true;
    case TG_CLASS_LEAF:
    case TG_CLASS_REDUCE:
    case TG_CLASS_VIEW:
    case TG_CLASS_JOIN:
    case TG_CLASS_CONTRACT:
    case TG_CLASS_INDEX:
    case TG_CLASS_ATTENTION: return false;
    }
    return false;
}

unsigned tg_op_dtypes(tg_op op) { return op >= TG_OP_POISON && op < TG_OP_COUNT ? tg_op_table[op].dtypes : 0; }
