/* range: the facts about whole numbers and truth values before anything runs: two numbers between
 * which all elements are. Enough for indices that are counted, constant, clamped, taken modulo or
 * found by argmax: they need no check. Must not know kernels. */
#include "plan/plan.h"
#include "ir/dtype.h"

#include <string.h>

static const tg_plan_range any_whole = {INT32_MIN, INT32_MAX}, any_truth = {0, 1};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* i32 wraps: then anything is possible. */
static tg_plan_range between(int64_t lo, int64_t hi) { return lo < INT32_MIN || hi > INT32_MAX ? any_whole : (tg_plan_range){lo, hi}; }
static tg_plan_range both(tg_plan_range a, tg_plan_range b) { return (tg_plan_range){smaller(a.lo, b.lo), larger(a.hi, b.hi)}; }
static tg_plan_range truth(bool never, bool always) { return (tg_plan_range){always, !never}; }

static int64_t truncated_quotient(int64_t a, int64_t b) { return a / b; }
static int64_t range_product(int64_t a, int64_t b) { return a * b; }

static tg_plan_range of_corners(int64_t (*f)(int64_t, int64_t), tg_plan_range a, tg_plan_range b) {
    const int64_t p = f(a.lo, b.lo), q = f(a.lo, b.hi), r = f(a.hi, b.lo), s = f(a.hi, b.hi);
    return between(smaller(smaller(p, q), smaller(r, s)), larger(larger(p, q), larger(r, s)));
}

static tg_plan_range of_constant(const tg_node *n) {
    if (n->attr.data == NULL && !(n->attr.value >= INT32_MIN && n->attr.value <= INT32_MAX)) return any_whole;
    if (n->attr.data == NULL) return (tg_plan_range){(int64_t)n->attr.value, (int64_t)n->attr.value};
    tg_plan_range all = {INT64_MAX, INT64_MIN};
    for (int64_t i = 0; i < tg_shape_count(n->shape); i++) {
        const int64_t x = (int64_t)tg_dtype_get(n->dtype, n->attr.data, i);
        all = both(all, (tg_plan_range){x, x});
    }
    return all;
}

/* a - a / b b: the remainder, of the sign of a, when b > 0 is one number. */
static bool is_remainder(const tg_graph *g, const tg_node *n, const tg_plan_range *known, tg_plan_range *out) {
    const int32_t a = n->inputs[0];
    const tg_node *times = tg_graph_node(g, n->inputs[1]);
    if (times->op != TG_OP_MUL) return false;
    for (int side = 0; side < 2; side++) {
        const int32_t b = times->inputs[1 - side];
        const tg_node *quotient = tg_graph_node(g, times->inputs[side]);
        if (quotient->op != TG_OP_DIV || quotient->inputs[0] != a || quotient->inputs[1] != b || known[b].lo < 1) continue;
        const int64_t most = known[b].hi - 1;
        *out = (tg_plan_range){larger(smaller(known[a].lo, 0), -most), smaller(larger(known[a].hi, 0), most)};
        return true;
    }
    return false;
}

static tg_plan_range of_binary(const tg_graph *g, const tg_node *n, const tg_plan_range *known) {
    const tg_plan_range a = known[n->inputs[0]], b = known[n->inputs[1]];
    tg_plan_range out;
    switch (n->op) {
    case TG_OP_ADD: return between(a.lo + b.lo, a.hi + b.hi);
    case TG_OP_SUB: return is_remainder(g, n, known, &out) ? out : between(a.lo - b.hi, a.hi - b.lo);
    case TG_OP_MUL: return of_corners(range_product, a, b);
    case TG_OP_DIV: return b.lo > 0 || b.hi < 0 ? of_corners(truncated_quotient, a, b) : any_whole;
    case TG_OP_MIN: return (tg_plan_range){smaller(a.lo, b.lo), smaller(a.hi, b.hi)};
    case TG_OP_MAX: return (tg_plan_range){larger(a.lo, b.lo), larger(a.hi, b.hi)};
    default: return any_whole;
    }
}

/* Operands are whole numbers or truth values. */
static tg_plan_range of_truth(const tg_node *n, const tg_plan_range *known) {
    const tg_plan_range a = known[n->inputs[0]], b = known[n->inputs[n->input_count - 1]];
    const bool apart = a.hi < b.lo || b.hi < a.lo, same = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
    switch (n->op) {
    case TG_OP_LESS: return truth(a.lo >= b.hi, a.hi < b.lo);
    case TG_OP_LESS_EQUAL: return truth(a.lo > b.hi, a.hi <= b.lo);
    case TG_OP_EQUAL: return truth(apart, same);
    case TG_OP_NOT_EQUAL: return truth(same, apart);
    case TG_OP_AND: return (tg_plan_range){smaller(a.lo, b.lo), smaller(a.hi, b.hi)};
    case TG_OP_OR: return (tg_plan_range){larger(a.lo, b.lo), larger(a.hi, b.hi)};
    case TG_OP_NOT: return (tg_plan_range){1 - a.hi, 1 - a.lo};
    default: return any_truth;
    }
}

static tg_plan_range of_unary(const tg_node *n, tg_plan_range a) {
    switch (n->op) {
    case TG_OP_NEG: return between(-a.hi, -a.lo);
    case TG_OP_ABS: return between(a.lo > 0 ? a.lo : a.hi < 0 ? -a.hi : 0, larger(-a.lo, a.hi));
    case TG_OP_SIGN: return (tg_plan_range){a.lo > 0 ? 1 : a.lo == 0 ? 0 : -1, a.hi < 0 ? -1 : a.hi == 0 ? 0 : 1};
    case TG_OP_STOP_GRADIENT: return a;
    default: return any_whole;
    }
}

static tg_plan_range of_cast(const tg_graph *g, const tg_node *n, const tg_plan_range *known) {
    const tg_node *from = tg_graph_node(g, n->inputs[0]);
    const tg_plan_range a = known[n->inputs[0]];
    if (from->dtype == TG_F32)
        return from->op == TG_OP_IOTA && n->dtype == TG_I32 ? between(0, from->shape.dim[from->attr.axis] - 1) : any_whole;
    return n->dtype == TG_BOOL ? truth(a.lo == 0 && a.hi == 0, a.lo > 0 || a.hi < 0) : a;
}

static tg_plan_range of_reduction(const tg_graph *g, const tg_node *n, tg_plan_range a) {
    const tg_shape shape = tg_graph_node(g, n->inputs[0])->shape;
    int64_t count = 1;
    for (int d = 0; d < shape.rank; d++)
        if (n->attr.axes >> d & 1u) count *= shape.dim[d];
    if (n->op == TG_OP_ARGMAX || n->op == TG_OP_ARGMIN) return between(0, count - 1);
    return n->op == TG_OP_SUM ? between(a.lo * count, a.hi * count) : a;
}

static tg_plan_range of_node(const tg_graph *g, const tg_node *n, const tg_plan_range *known) {
    const tg_plan_range first = n->input_count > 0 ? known[n->inputs[0]] : any_whole, zero = {0, 0};
    const bool on_floats = n->input_count > 0 && tg_graph_node(g, n->inputs[0])->dtype == TG_F32;
    tg_plan_range all = first;
    switch (tg_op_table[n->op].class_) {
    case TG_CLASS_LEAF:
        if (n->op == TG_OP_IOTA) return between(0, n->shape.dim[n->attr.axis] - 1);
        return n->op == TG_OP_CONST ? of_constant(n) : any_whole;
    case TG_CLASS_UNARY: return of_unary(n, first);
    case TG_CLASS_BINARY: return of_binary(g, n, known);
    case TG_CLASS_COMPARE: return on_floats ? any_truth : of_truth(n, known);
    case TG_CLASS_LOGICAL: return of_truth(n, known);
    case TG_CLASS_SELECT:
        if (first.lo == first.hi) return known[n->inputs[first.lo != 0 ? 1 : 2]];
        return both(known[n->inputs[1]], known[n->inputs[2]]);
    case TG_CLASS_CAST: return of_cast(g, n, known);
    case TG_CLASS_RANDOM: return between(0, (int64_t)n->attr.value - 1);
    case TG_CLASS_REDUCE: return of_reduction(g, n, first);
    case TG_CLASS_VIEW: return n->op == TG_OP_PAD ? both(first, zero) : first;
    case TG_CLASS_JOIN:
        for (int32_t i = 1; n->op == TG_OP_CONCAT && i < n->input_count; i++) all = both(all, known[n->inputs[i]]);
        return n->op == TG_OP_CONCAT ? all : any_whole;
    case TG_CLASS_INDEX: return n->op == TG_OP_GATHER ? first : any_whole;
    default: return any_whole;
    }
}

void tg_plan_ranges(const tg_graph *g, tg_plan_range *out) {
    out[0] = any_whole;
    for (int32_t id = 1; id < (int32_t)g->nodes.count; id++) {
        const tg_node *n = tg_graph_node(g, id);
        out[id] = n->dtype == TG_F32 ? any_whole : of_node(g, n, out);
        const tg_plan_range widest = n->dtype == TG_BOOL ? any_truth : any_whole;
        if (out[id].lo < widest.lo || out[id].hi > widest.hi) out[id] = widest;
    }
}
