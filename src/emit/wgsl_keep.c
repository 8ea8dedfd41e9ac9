/* wgsl_keep: which operands a compiler must not see through. WGSL lets it assume that NaN and
 * infinity do not occur and that sums are exact, and many compilers do: for them x 0 is 0, and (x +
 * 1e8) - 1e8 and (x y) / y are x. An operand that could take part in such an identity is printed as
 * tg_keep(v), the same bits combined with a word that is 0 when the kernel runs: numbers, and
 * results of arithmetic that meet one of their own operands again. Owns that choice. Must not know
 * how instructions are printed. */
#include "emit/wgsl.h"

/* instructions looked at below an operand; if there are more, operands are assumed to meet */
#define KEEP_REACH 24

static bool keep_joins(int32_t op) { return op == TG_OP_ADD || op == TG_OP_SUB || op == TG_OP_MUL || op == TG_OP_DIV; }
static bool keep_compares(int32_t op) { return op == TG_OP_LESS || op == TG_OP_LESS_EQUAL; }
static bool keep_inverts(int32_t op) {
    return op == TG_OP_NEG || op == TG_OP_RECIPROCAL || op == TG_OP_SQRT || op == TG_OP_RSQRT || op == TG_OP_ABS;
}
/* -floor(-(-x)) is -floor(x) to a compiler that sees it whole. */
static bool keep_rounds(int32_t op) { return op == TG_OP_FLOOR || op == TG_OP_CEIL || op == TG_OP_ROUND; }
static bool keep_is_arithmetic(int32_t op) { return keep_joins(op) || keep_inverts(op) || keep_rounds(op); }

/* An operand and all that its arithmetic is made of, numbers too: once kept, they are like other
 * operands. */
typedef struct keep_terms {
    int32_t items[KEEP_REACH];
    int count;
    bool more;
} keep_terms;

static bool keep_has(const keep_terms *terms, int32_t i) {
    for (int k = 0; k < terms->count; k++)
        if (terms->items[k] == i) return true;
    return false;
}

static void keep_add(keep_terms *terms, int32_t i) {
    if (keep_has(terms, i)) return;
    if (terms->count == KEEP_REACH) terms->more = true;
    else terms->items[terms->count++] = i;
}

static keep_terms keep_terms_of(const tg_kernel *kernel, int32_t i) {
    keep_terms terms = {.count = 0};
    keep_add(&terms, i);
    for (int at = 0; at < terms.count; at++) {
        const tg_instruction *in = &kernel->body[terms.items[at]];
        for (int k = 0; keep_is_arithmetic(in->op) && k < tg_body_arity(in->op); k++) keep_add(&terms, in->src[k]);
    }
    return terms;
}

static bool keep_meet(const tg_kernel *kernel, int32_t a, int32_t b) {
    const keep_terms first = keep_terms_of(kernel, a), second = keep_terms_of(kernel, b);
    if (first.more || second.more) return true;
    for (int k = 0; k < first.count; k++)
        if (keep_has(&second, first.items[k])) return true;
    return false;
}

/* (x a) b must not become x (a b): if x is very large or small, a b may leave f32 though the result
 * does not. */
static bool keep_scales(int32_t op) { return op == TG_OP_MUL || op == TG_OP_DIV; }

bool tg_wgsl_keeps(const tg_wgsl *w, const tg_instruction *in, int operand) {
    const tg_kernel *kernel = w->kernel;
    const int32_t source = in->src[operand], op = kernel->body[source].op;
    if (kernel->body[source].dtype != TG_F32) return false;
    if (keep_inverts(in->op)) return in->op != TG_OP_ABS && keep_is_arithmetic(op);
    if (keep_compares(in->op)) return operand == 0 || op == TG_OP_CONST;
    if (!keep_joins(in->op)) return false;
    if (op == TG_OP_CONST) return true;
    if (keep_scales(in->op) && keep_scales(op) && in->src[0] != in->src[1]) return true;
    /* if both were kept, they would be the same again */
    if (in->src[0] == in->src[1]) return operand == 1 && in->op != TG_OP_ADD;
    return keep_is_arithmetic(op) && keep_meet(kernel, in->src[0], in->src[1]);
}

#undef KEEP_REACH
