/* norm: the length of a tensor whose elements may be at either end of f32, as graph nodes. Must not
 * know optimisers. */
#include "optim/update.h"

#include <math.h>

static int32_t norm_square_sum(tg_graph *g, int32_t x, double factor, uint32_t axes) {
    int32_t part = factor == 1.0 ? x : tg_ir_binary(g, TG_OP_MUL, x, tg_ir_const(g, TG_SCALAR, TG_F32, factor));
    return tg_ir_reduce(g, TG_OP_SUM, tg_ir_binary(g, TG_OP_MUL, part, part), axes);
}

int32_t tg_norm_huge(tg_graph *g, int32_t x, uint32_t axes) { return norm_square_sum(g, x, ldexp(1.0, -88), axes); }

/* For a finite x the sum is under 2^111. Compilers cannot fold this comparison away, because there
 * are f32 numbers over its limit. */
int32_t tg_norm_finite(tg_graph *g, int32_t huge) {
    int32_t small = tg_ir_binary(g, TG_OP_LESS, huge, tg_ir_const(g, TG_SCALAR, TG_F32, ldexp(1.0, 112)));
    return tg_ir_binary(g, TG_OP_AND, small, tg_ir_binary(g, TG_OP_EQUAL, huge, huge));
}

/* Makes all sums in one pass over x. J. L. Blue, ACM TOMS 4, 1978. With up to 2^31 elements: a sum
 * of plain squares from 2^-60 to 2^120 has lost nothing, and where one of the other
 * two sums is used, it has neither overflowed nor lost anything. */
tg_norm tg_norm_append(tg_graph *g, int32_t x, uint32_t axes, bool tiny) {
    const double small = ldexp(1.0, -88), large = ldexp(1.0, 88);
    tg_norm norm;
    int32_t sum = norm_square_sum(g, x, 1.0, axes), unit = tg_ir_const(g, TG_SCALAR, TG_F32, 1.0);
    /* Infinity and NaN do not fit. */
    int32_t fits = tg_ir_binary(g, TG_OP_LESS_EQUAL, sum, tg_ir_const(g, TG_SCALAR, TG_F32, ldexp(1.0, 120)));
    if (tiny) {
        int32_t is_tiny = tg_ir_binary(g, TG_OP_LESS, sum, tg_ir_const(g, TG_SCALAR, TG_F32, ldexp(1.0, -60)));
        sum = tg_ir_select(g, is_tiny, norm_square_sum(g, x, large, axes), sum);
        unit = tg_ir_select(g, is_tiny, tg_ir_const(g, TG_SCALAR, TG_F32, large), unit);
    }
    norm.huge = tg_norm_huge(g, x, axes);
    norm.norm = tg_ir_unary(g, TG_OP_SQRT, tg_ir_select(g, fits, sum, norm.huge));
    norm.unit = tg_ir_select(g, fits, unit, tg_ir_const(g, TG_SCALAR, TG_F32, small));
    return norm;
}
