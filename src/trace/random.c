/* Random numbers as operations: uniform, normal, integers, coins, categories, dropout. All use
 * tg_ir_draw, so that an element is the same wherever it is computed. Must not know where keys come
 * from. */
#include "trace/trace.h"

/* Uniform in [0, 1): exact multiples of 2^-24. */
static int32_t random_unit(const tg_call *call, tg_shape shape) {
    int32_t bits = tg_ir_draw(call->graph, shape, INT64_C(1) << 24);
    return tg_compose_scale(call, tg_ir_cast(call->graph, bits, TG_F32), 0x1p-24);
}

/* -log u, with u uniform in (0, 1] from 31 bits; f32 keeps small u apart. Never infinite. */
static int32_t random_exponential(const tg_call *call, tg_shape shape) {
    tg_graph *g = call->graph;
    int32_t bits = tg_ir_cast(g, tg_ir_draw(g, shape, INT64_C(1) << 31), TG_F32);
    int32_t unit = tg_compose_scale(call, tg_ir_binary(g, TG_OP_ADD, bits, tg_compose_number(call, 1.0)), 0x1p-31);
    return tg_ir_unary(g, TG_OP_NEG, tg_ir_unary(g, TG_OP_LOG, unit));
}

/* bool: true with probability p, which is rounded to a multiple of 2^-31. */
static int32_t random_coin(const tg_call *call, tg_shape shape, double p) {
    /* the largest draw that gives true; -1: none does */
    const double last = (double)(int64_t)(p * 2147483648.0 + 0.5) - 1;
    int32_t bits = tg_ir_draw(call->graph, shape, INT64_C(1) << 31);
    return tg_ir_binary(call->graph, TG_OP_LESS_EQUAL, bits, tg_ir_const(call->graph, TG_SCALAR, TG_I32, last));
}

static bool enter_random(tg_call *call, tg_site site, const char *name, tg_graph *g, tg_shape shape) {
    return tg_call_enter_graph(call, site, name, g) && tg_call_shape_ok(call, shape);
}

tg_tensor tg_rand_at(tg_site site, tg_graph *g, tg_shape shape) {
    tg_call call;
    if (!enter_random(&call, site, "rand", g, shape)) return tg_call_poison(&call);
    return tg_call_result(&call, random_unit(&call, shape));
}

/* sqrt(-2 log u) cos(2 pi v) (Box & Muller 1958). */
tg_tensor tg_randn_at(tg_site site, tg_graph *g, tg_shape shape) {
    tg_call call;
    if (!enter_random(&call, site, "randn", g, shape)) return tg_call_poison(&call);
    int32_t radius = tg_ir_unary(g, TG_OP_SQRT, tg_compose_scale(&call, random_exponential(&call, shape), 2.0));
    int32_t turn = tg_ir_unary(g, TG_OP_COS, tg_compose_scale(&call, random_unit(&call, shape), 6.283185307179586));
    return tg_call_result(&call, tg_ir_binary(g, TG_OP_MUL, radius, turn));
}

tg_tensor tg_rand_int_at(tg_site site, tg_graph *g, tg_shape shape, int64_t lo, int64_t hi) {
    tg_call call;
    if (!enter_random(&call, site, "rand_int", g, shape)) return tg_call_poison(&call);
    if (lo < INT32_MIN || lo > INT32_MAX || hi < INT32_MIN || hi > (int64_t)INT32_MAX + 1)
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "[%lld, %lld) goes beyond i32", (long long)lo, (long long)hi);
    if (lo >= hi) return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "[%lld, %lld) is empty", (long long)lo, (long long)hi);
    if (hi - lo > INT64_C(1) << 31)
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "[%lld, %lld) holds more than 2^31 numbers", (long long)lo, (long long)hi);
    int32_t least = tg_ir_const(g, TG_SCALAR, TG_I32, (double)lo);
    int32_t drawn = tg_ir_draw(g, shape, hi - lo);
    return tg_call_result(&call, lo == 0 ? drawn : tg_ir_binary(g, TG_OP_ADD, drawn, least));
}

/* Checks probabilities whose shape broadcasts to the result's, and draws. */
static tg_tensor random_coins(const tg_call *call, tg_shape shape, int32_t p) {
    tg_graph *g = call->graph;
    tg_shape joined;
    if (!tg_call_takes(call, p, TG_TAKES_F32)) return tg_call_poison(call);
    if (!tg_shape_broadcast(tg_node_shape(call, p), shape, &joined) || !tg_shape_equal(joined, shape))
        return tg_call_fail(call, TG_ERROR_SHAPE, &p, 1, "the probabilities %s do not broadcast to %s", TG_LABEL(call, p),
                            TG_SHAPE_LABEL(shape));
    return tg_call_result(call, tg_ir_binary(g, TG_OP_LESS, random_unit(call, shape), p));
}

tg_tensor tg_bernoulli_at(tg_site site, tg_graph *g, tg_shape shape, tg_operand p) {
    tg_call call;
    if (!p.is_number) {
        if (!tg_call_enter(&call, site, "bernoulli", &p.tensor, 1) || !tg_call_shape_ok(&call, shape)) return tg_call_poison(&call);
        if (g != p.tensor.graph) return tg_call_fail(&call, TG_ERROR_TRACE, NULL, 0, "the probabilities are of another trace");
        return random_coins(&call, shape, p.tensor.id);
    }
    if (!enter_random(&call, site, "bernoulli", g, shape)) return tg_call_poison(&call);
    if (!(p.number >= 0 && p.number <= 1))
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "the probability is %.9g, not in [0, 1]", p.number);
    return tg_call_result(&call, random_coin(&call, shape, p.number));
}

/* The largest of logits + g, g = -log(-log u) (Gumbel 1954), has index i with probability
 * softmax(logits)[i]. */
tg_tensor tg_categorical_at(tg_site site, tg_tensor logits, int axis) {
    tg_call call;
    int along = 0;
    if (!tg_call_enter(&call, site, "categorical", &logits, 1) || !tg_call_takes(&call, logits.id, TG_TAKES_F32))
        return tg_call_poison(&call);
    tg_graph *g = call.graph;
    tg_shape shape = tg_node_shape(&call, logits.id);
    if (!tg_call_axis(&call, logits.id, shape.rank, axis, &along)) return tg_call_poison(&call);
    const uint32_t axes = 1u << (unsigned)along;
    /* u in (0, 1), both ends excluded: 23 bits plus one half */
    int32_t bits = tg_ir_cast(g, tg_ir_draw(g, shape, INT64_C(1) << 23), TG_F32);
    int32_t unit = tg_compose_scale(&call, tg_ir_binary(g, TG_OP_ADD, bits, tg_compose_number(&call, 0.5)), 0x1p-23);
    int32_t wait = tg_ir_unary(g, TG_OP_LOG, tg_ir_unary(g, TG_OP_NEG, tg_ir_unary(g, TG_OP_LOG, unit)));
    /* subtract the maximum first: beside a large logit the noise would be rounded away */
    int32_t shifted = tg_ir_binary(g, TG_OP_SUB, logits.id, tg_compose_finite_maximum(&call, logits.id, axes));
    int32_t best = tg_ir_reduce(g, TG_OP_ARGMAX, tg_ir_binary(g, TG_OP_SUB, shifted, wait), axes);
    return tg_call_result(&call, tg_compose_drop_axes(&call, best, axes));
}

/* x / (1 - p) with probability 1 - p, else 0 (Srivastava et al. 2014; scaled while training). */
tg_tensor tg_dropout_at(tg_site site, tg_tensor x, double p) {
    tg_call call;
    if (!tg_call_enter(&call, site, "dropout", &x, 1) || !tg_call_takes(&call, x.id, TG_TAKES_F32)) return tg_call_poison(&call);
    if (!(p >= 0 && p < 1))
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "p is %.9g, not in [0, 1): %s", p, TG_LABEL(&call, x.id));
    if (p == 0) return x;
    int32_t kept = random_coin(&call, tg_node_shape(&call, x.id), 1 - p);
    int32_t scaled = tg_compose_scale(&call, x.id, 1 / (1 - p));
    return tg_call_result(&call, tg_ir_select(call.graph, kept, scaled, tg_compose_number(&call, 0.0)));
}
