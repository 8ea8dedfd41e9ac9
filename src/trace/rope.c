/* Rotary position embedding. Must not know attention. */
#include "trace/trace.h"

#include <math.h>

/* Checks x [..., T, D], D even. positions: 0, or the tensor of positions. */
static bool check_rope(const tg_call *call, int32_t x, int32_t positions, double base) {
    int32_t ids[2] = {x, positions};
    tg_shape shape = tg_node_shape(call, x), out;
    if (!tg_call_takes(call, x, TG_TAKES_F32)) return false;
    if (shape.rank < 2 || shape.dim[shape.rank - 1] % 2 != 0) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "needs [..., T, D] with an even D: %s", TG_LABEL(call, x));
        return false;
    }
    if (!tg_is_normal(base)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "the base %.9g is not over 0 and finite: %s", base, TG_LABEL(call, x));
        return false;
    }
    if (positions == 0) return true;
    if (!tg_call_takes(call, positions, TG_TAKES_I32)) return false;
    shape.rank--;
    if (tg_shape_broadcast(shape, tg_node_shape(call, positions), &out) && tg_shape_equal(out, shape)) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the positions do not broadcast to all axes but the last: %s at %s", TG_LABEL(call, x),
                 TG_LABEL(call, positions));
    return false;
}

/* base^(-2 i / D) */
static double rope_frequency(double base, int64_t i, int64_t half) { return pow(base, -(double)i / (double)half); }

/* [T, D / 2] of cos (or sin) of t base^(-2 i / D), computed in f64. */
static int32_t rope_table(const tg_call *call, int64_t length, int64_t half, double base, bool sine) {
    size_t bytes = (size_t)(length * half) * sizeof(float);
    float *table = tg_alloc(call->graph->ctx, bytes);
    if (table == NULL) return 0;
    for (int64_t i = 0; i < half; i++) {
        double frequency = rope_frequency(base, i, half);
        for (int64_t t = 0; t < length; t++) table[t * half + i] = (float)(sine ? sin((double)t * frequency) : cos((double)t * frequency));
    }
    int32_t made = tg_ir_data(call->graph, tg_shape_make(2, (const int64_t[]){length, half}), TG_F32, table);
    tg_release(call->graph->ctx, table, bytes);
    return made;
}

/* [..., T, D / 2]: positions times frequencies, in f32. */
static int32_t rope_angles(const tg_call *call, int32_t positions, int64_t half, double base) {
    tg_graph *g = call->graph;
    size_t bytes = (size_t)half * sizeof(float);
    float *frequency = tg_alloc(g->ctx, bytes);
    if (frequency == NULL) return 0;
    for (int64_t i = 0; i < half; i++) frequency[i] = (float)rope_frequency(base, i, half);
    int32_t row = tg_ir_data(g, tg_shape_make(1, &half), TG_F32, frequency);
    tg_release(g->ctx, frequency, bytes);
    tg_shape column = tg_node_shape(call, positions);
    if (column.rank == TG_MAX_RANK) return 0; /* x has one axis more */
    column.dim[column.rank++] = 1;
    return tg_ir_binary(g, TG_OP_MUL, tg_ir_reshape(g, tg_ir_cast(g, positions, TG_F32), column), row);
}

/* One tensor [..., T, D / 2] of the pairs' first or second elements: a half of the last axis, or if
 * `interleaved` its even or odd positions. */
static int32_t rope_part(const tg_call *call, int32_t x, int which, bool interleaved) {
    tg_graph *g = call->graph;
    tg_shape shape = tg_node_shape(call, x), part = shape;
    int64_t half = shape.dim[shape.rank - 1] / 2, start[TG_MAX_RANK] = {0};
    part.dim[shape.rank - 1] = half;
    if (!interleaved) {
        start[shape.rank - 1] = which * half;
        return tg_ir_slice(g, x, start, part);
    }
    int64_t rows = tg_shape_count(shape) / 2;
    int32_t pairs = tg_ir_reshape(g, x, tg_shape_make(2, (const int64_t[]){rows, 2}));
    int32_t column = tg_ir_slice(g, pairs, (const int64_t[]){0, which}, tg_shape_make(2, (const int64_t[]){rows, 1}));
    return tg_ir_reshape(g, column, part);
}

static int32_t rope_join(const tg_call *call, int32_t first, int32_t second, tg_shape shape, bool interleaved) {
    tg_graph *g = call->graph;
    int32_t parts[2] = {first, second};
    if (!interleaved) return tg_ir_concat(g, parts, 2, shape.rank - 1);
    tg_shape column = tg_shape_make(2, (const int64_t[]){tg_shape_count(shape) / 2, 1});
    for (int i = 0; i < 2; i++) parts[i] = tg_ir_reshape(g, parts[i], column);
    return tg_ir_reshape(g, tg_ir_concat(g, parts, 2, 1), shape);
}

tg_tensor tg_rope_at(tg_site site, tg_tensor x, tg_rope_options options) {
    tg_call call;
    const bool given = options.positions.graph != NULL;
    tg_tensor operands[2] = {x, options.positions};
    const double base = tg_value_or(options.base, 10000.0);
    if (!tg_call_enter(&call, site, "rope", operands, given ? 2 : 1)) return tg_call_poison(&call);
    if (!check_rope(&call, x.id, given ? options.positions.id : 0, base)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    tg_shape shape = tg_node_shape(&call, x.id);
    int64_t length = shape.dim[shape.rank - 2], half = shape.dim[shape.rank - 1] / 2;
    int32_t angles = given ? rope_angles(&call, options.positions.id, half, base) : 0;
    int32_t cosine = given ? tg_ir_unary(g, TG_OP_COS, angles) : rope_table(&call, length, half, base, false);
    int32_t sine = given ? tg_ir_unary(g, TG_OP_SIN, angles) : rope_table(&call, length, half, base, true);
    int32_t a = rope_part(&call, x.id, 0, options.interleaved), b = rope_part(&call, x.id, 1, options.interleaved);
    int32_t left = tg_ir_binary(g, TG_OP_MUL, a, cosine), right = tg_ir_binary(g, TG_OP_MUL, b, cosine);
    left = tg_ir_binary(g, TG_OP_SUB, left, tg_ir_binary(g, TG_OP_MUL, b, sine));
    right = tg_ir_binary(g, TG_OP_ADD, right, tg_ir_binary(g, TG_OP_MUL, a, sine));
    return tg_call_result(&call, rope_join(&call, left, right, shape, options.interleaved));
}
