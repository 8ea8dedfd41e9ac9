/* divide: the floor of a quotient, for the public operation and for the gradient of MOD. Must not
 * know either. */
#include "ir/graph.h"

/* floor(a / b). The rounded quotient may be a whole number though a / b is not, or (WebGPU) the
 * other way round. Then its fraction is off by nearly 1 from that of the exact remainder, and the
 * floor is corrected by 1. At an infinite b, with a of the other sign, that fraction is NaN: one
 * less than the floor is right, of +0 and -0 alike. */
int32_t tg_ir_floor_quotient(tg_graph *g, int32_t a, int32_t b) {
    const int32_t half = tg_ir_const(g, TG_SCALAR, TG_F32, 0.5), one = tg_ir_const(g, TG_SCALAR, TG_F32, 1.0);
    const int32_t quotient = tg_ir_binary(g, TG_OP_DIV, a, b), down = tg_ir_unary(g, TG_OP_FLOOR, quotient);
    const int32_t seen = tg_ir_binary(g, TG_OP_SUB, quotient, down);
    const int32_t part = tg_ir_binary(g, TG_OP_DIV, tg_ir_binary(g, TG_OP_MOD, a, b), b);
    const int32_t holds = tg_ir_binary(g, TG_OP_LESS_EQUAL, tg_ir_binary(g, TG_OP_SUB, part, half), seen);
    const int32_t short_of = tg_ir_binary(g, TG_OP_LESS, tg_ir_binary(g, TG_OP_ADD, part, half), seen);
    const int32_t raised = tg_ir_select(g, short_of, tg_ir_binary(g, TG_OP_ADD, down, one), down);
    return tg_ir_select(g, holds, raised, tg_ir_binary(g, TG_OP_SUB, down, one));
}
