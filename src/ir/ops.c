/* ops: the table of primitives, one row for each line of ops.def, and the facts that follow from
 * it. Must not know graphs or shapes. */
#include "ir/op.h"

#define OPS_CLASS(class_) TG_CLASS_##class_

const tg_op_info tg_op_table[TG_OP_COUNT] = {
    {"poison", 0, TG_CLASS_LEAF, "no value: an operation failed"},
#define TG_OP(NAME, text, arity, class_, description) {text, arity, OPS_CLASS(class_), description},
#include "ir/ops.def"
#undef TG_OP
};

#undef OPS_CLASS

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
    case TG_CLASS_INDEX: return false;
    }
    return false;
}

unsigned tg_op_dtypes(tg_op op) {
    const unsigned f32 = 1u << TG_F32, i32 = 1u << TG_I32, boolean = 1u << TG_BOOL;
    switch (op) {
    case TG_OP_NEG:
    case TG_OP_ABS:
    case TG_OP_SIGN:
    case TG_OP_ADD:
    case TG_OP_SUB:
    case TG_OP_MUL:
    case TG_OP_DIV:
    case TG_OP_MIN:
    case TG_OP_MAX:
    case TG_OP_LESS:
    case TG_OP_LESS_EQUAL:
    case TG_OP_SUM:
    case TG_OP_REDUCE_MAX:
    case TG_OP_REDUCE_MIN:
    case TG_OP_ARGMAX:
    case TG_OP_ARGMIN:
    case TG_OP_IOTA: return f32 | i32;
    case TG_OP_RANDOM: return i32;
    case TG_OP_NOT:
    case TG_OP_AND:
    case TG_OP_OR: return boolean;
    case TG_OP_INPUT:
    case TG_OP_STATE:
    case TG_OP_CONST:
    case TG_OP_EQUAL:
    case TG_OP_NOT_EQUAL:
    case TG_OP_SELECT:
    case TG_OP_CAST:
    case TG_OP_STOP_GRADIENT:
    case TG_OP_RESHAPE:
    case TG_OP_PERMUTE:
    case TG_OP_BROADCAST:
    case TG_OP_SLICE:
    case TG_OP_PAD:
    case TG_OP_FLIP:
    case TG_OP_WINDOW:
    case TG_OP_CONCAT: return f32 | i32 | boolean;
    default: return f32;
    }
}
