/* Einstein summation: reads the equation, takes diagonals and sums of labels that one operand alone
 * has, and multiplies the operands pair by pair, left to right, each pair as one contraction
 * [B, M, K] x [B, K, N]. Must not know how a contraction is tiled. */
#include "trace/trace.h"

#include <string.h>

/* A label is a letter (a .. z, A .. Z: 0 .. 51) or an axis of the ellipsis, counted from the last
 * one (52 ..). */
enum { EINSUM_LETTERS = 52, EINSUM_LABELS = EINSUM_LETTERS + TG_MAX_RANK };

typedef struct einsum_term {
    int32_t id;
    /* number of labels; of the output, until its ellipsis is known: without the ellipsis */
    int rank;
    int label[TG_MAX_RANK];
} einsum_term;

typedef struct einsum {
    tg_call call;
    const char *equation;
    int64_t dim[EINSUM_LABELS]; /* 0: not seen */
    /* operands still to come that have the label, plus one if the output has it */
    int uses[EINSUM_LABELS];
    int ellipsis; /* axes of "...", the most of any operand */
    einsum_term out;
} einsum;

static char einsum_letter(int label) { return (char)(label < 26 ? 'a' + label : 'A' + label - 26); }

static int einsum_label(char c) {
    if (c >= 'a' && c <= 'z') return c - 'a';
    if (c >= 'A' && c <= 'Z') return c - 'A' + 26;
    return -1;
}

/* The axis with the label, from axis `from` on; -1: none. */
static int einsum_find(const einsum_term *term, int label, int from) {
    for (int i = from; i < term->rank; i++)
        if (term->label[i] == label) return i;
    return -1;
}

/* ---------------------------------------------------------------- reading */

static bool einsum_refuse(const einsum *e, const char *why, char c) {
    if (c != '\0') tg_call_fail(&e->call, TG_ERROR_ARGUMENT, NULL, 0, "%s '%c' in \"%s\"", why, c, e->equation);
    else tg_call_fail(&e->call, TG_ERROR_ARGUMENT, NULL, 0, "%s in \"%s\"", why, e->equation);
    return false;
}

/* Reads labels up to a comma, an arrow or the end. *dots: the position of the ellipsis among them;
 * -1: none. */
static bool einsum_read_term(const einsum *e, const char **at, int labels[TG_MAX_RANK], int *count, int *dots) {
    *count = 0;
    *dots = -1;
    for (; **at != '\0' && **at != ',' && **at != '-'; ++*at) {
        if (**at == ' ') continue;
        if (**at == '.') {
            if ((*at)[1] != '.' || (*at)[2] != '.') return einsum_refuse(e, "a dot that is no ellipsis", '\0');
            if (*dots >= 0) return einsum_refuse(e, "two ellipses in one term", '\0');
            *dots = *count;
            *at += 2;
            continue;
        }
        if (einsum_label(**at) < 0) return einsum_refuse(e, "neither label, comma, ellipsis nor arrow:", **at);
        if (*count == TG_MAX_RANK) return einsum_refuse(e, "a term of more than 8 labels", '\0');
        labels[(*count)++] = einsum_label(**at);
    }
    return true;
}

/* Gives each axis its label. The ellipsis becomes the axes that no letter names. An axis of 1 is
 * repeated to the size its label has in other operands, but not to that of the same label within
 * one operand, which is a diagonal. */
static bool einsum_label_axes(einsum *e, einsum_term *term, int number, const int *labels, int count, int dots) {
    tg_shape shape = tg_node_shape(&e->call, term->id);
    int open = shape.rank - count;
    if (open < 0 || (dots < 0 && open > 0)) {
        tg_call_fail(&e->call, TG_ERROR_SHAPE, &term->id, 1, "operand %d has %d axes for %d labels in \"%s\": %s", number, (int)shape.rank,
                     count, e->equation, TG_LABEL(&e->call, term->id));
        return false;
    }
    if (open > e->ellipsis) e->ellipsis = open;
    term->rank = shape.rank;
    for (int i = 0; i < shape.rank; i++) {
        bool named = i < dots || dots < 0 || i >= dots + open;
        term->label[i] = named ? labels[dots < 0 || i < dots ? i : i - open] : EINSUM_LETTERS + dots + open - 1 - i;
        int64_t *dim = &e->dim[term->label[i]];
        const int before = einsum_find(term, term->label[i], 0);
        const bool diagonal = before < i && shape.dim[before] != shape.dim[i];
        if (!diagonal && (*dim == 0 || *dim == 1)) *dim = shape.dim[i];
        else if (diagonal || (*dim != shape.dim[i] && shape.dim[i] != 1)) {
            if (named)
                tg_call_fail(&e->call, TG_ERROR_SHAPE, &term->id, 1, "label %c is %lld before and %lld in operand %d of \"%s\": %s",
                             einsum_letter(term->label[i]), (long long)*dim, (long long)shape.dim[i], number, e->equation,
                             TG_LABEL(&e->call, term->id));
            else
                tg_call_fail(&e->call, TG_ERROR_SHAPE, &term->id, 1,
                             "the axes of the ellipsis do not broadcast in operand %d of \"%s\": %s", number, e->equation,
                             TG_LABEL(&e->call, term->id));
            return false;
        }
    }
    return true;
}

static bool einsum_out_append(einsum *e, int label) {
    if (e->out.rank == TG_MAX_RANK) return einsum_refuse(e, "a result of more than 8 axes", '\0');
    e->out.label[e->out.rank++] = label;
    return true;
}

static bool einsum_out_dots(einsum *e) {
    for (int i = e->ellipsis - 1; i >= 0; i--)
        if (!einsum_out_append(e, EINSUM_LETTERS + i)) return false;
    return true;
}

/* Reads the labels after an arrow. Without an arrow: the ellipsis, then each letter that occurs
 * once, in alphabetical order (A before a, as in NumPy). */
static bool einsum_read_output(einsum *e, const char *at, const int *occurs) {
    if (*at == '\0') {
        if (!einsum_out_dots(e)) return false;
        for (int i = 0; i < EINSUM_LETTERS; i++) {
            int label = i < 26 ? i + 26 : i - 26;
            if (occurs[label] == 1 && !einsum_out_append(e, label)) return false;
        }
        return true;
    }
    int labels[TG_MAX_RANK], count = 0, dots = -1;
    if (at[0] != '-' || at[1] != '>') return einsum_refuse(e, "a dash that is no arrow", '\0');
    at += 2;
    if (!einsum_read_term(e, &at, labels, &count, &dots)) return false;
    if (*at != '\0') return einsum_refuse(e, "behind the result:", *at);
    if (dots < 0 && e->ellipsis > 0) return einsum_refuse(e, "the result lacks the ellipsis that an operand has", '\0');
    for (int i = 0; i <= count; i++) {
        if (i == dots && !einsum_out_dots(e)) return false;
        if (i == count) break;
        if (occurs[labels[i]] == 0) return einsum_refuse(e, "no operand has the label", einsum_letter(labels[i]));
        for (int j = 0; j < i; j++)
            if (labels[j] == labels[i]) return einsum_refuse(e, "twice in the result: the label", einsum_letter(labels[i]));
        if (!einsum_out_append(e, labels[i])) return false;
    }
    return true;
}

/* Reads the operands' terms and then the result's. */
static bool einsum_read(einsum *e, einsum_term *terms, int count) {
    const char *at = e->equation;
    int occurs[EINSUM_LETTERS] = {0};
    for (int i = 0; i < count; i++) {
        int labels[TG_MAX_RANK], length = 0, dots = -1;
        if (i > 0 && *at != ',') {
            tg_call_fail(&e->call, TG_ERROR_ARGUMENT, NULL, 0, "\"%s\" has %d terms for %d operands", e->equation, i, count);
            return false;
        }
        if (i > 0) at++;
        if (!einsum_read_term(e, &at, labels, &length, &dots) || !einsum_label_axes(e, &terms[i], i, labels, length, dots)) return false;
        for (int k = 0; k < length; k++) occurs[labels[k]]++;
    }
    if (*at == ',') {
        tg_call_fail(&e->call, TG_ERROR_ARGUMENT, NULL, 0, "\"%s\" has more terms than the %d operands", e->equation, count);
        return false;
    }
    if (!einsum_read_output(e, at, occurs)) return false;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < terms[i].rank; k++) e->uses[terms[i].label[k]]++;
    for (int k = 0; k < e->out.rank; k++) e->uses[e->out.label[k]]++;
    return true;
}

/* ---------------------------------------------------------------- one operand */

/* Brings the axes into the order of `labels`. */
static void einsum_permute(const einsum *e, einsum_term *term, const int *labels) {
    int32_t perm[TG_MAX_RANK] = {0};
    for (int i = 0; i < term->rank; i++) perm[i] = einsum_find(term, labels[i], 0);
    term->id = tg_ir_permute(e->call.graph, term->id, perm);
    for (int i = 0; i < term->rank; i++) term->label[i] = labels[i];
}

/* Two axes of one label become their diagonal: the first column of rows that are one element
 * longer. Only views. */
static void einsum_diagonal(einsum *e, einsum_term *term, int first, int second) {
    tg_graph *g = e->call.graph;
    tg_shape shape = tg_node_shape(&e->call, term->id), out = {0, {0}};
    int32_t perm[TG_MAX_RANK] = {0}, at = 0;
    int label = term->label[first], kept = 0;
    int64_t n = shape.dim[first], rows = tg_shape_count(shape) / n / n;
    for (int i = 0; i < term->rank; i++) {
        if (i == first || i == second) continue;
        perm[at++] = i;
        out.dim[out.rank++] = shape.dim[i];
        term->label[kept++] = term->label[i];
    }
    perm[at++] = first;
    perm[at] = second;
    out.dim[out.rank++] = n;
    term->label[kept] = label;
    term->rank--;
    e->uses[label]--;
    int32_t flat = tg_ir_reshape(g, tg_ir_permute(g, term->id, perm), tg_shape_make(2, (const int64_t[]){rows, n * n}));
    flat = tg_ir_pad(g, flat, (const int64_t[]){0, 0}, tg_shape_make(2, (const int64_t[]){rows, n * (n + 1)}));
    int32_t square = tg_ir_reshape(g, flat, tg_shape_make(3, (const int64_t[]){rows, n, n + 1}));
    int32_t column = tg_ir_slice(g, square, (const int64_t[]){0, 0, 0}, tg_shape_make(3, (const int64_t[]){rows, n, 1}));
    term->id = tg_ir_reshape(g, column, out);
}

/* Takes diagonals first; then sums over the labels that no other operand and not the output has. */
static void einsum_reduce(einsum *e, einsum_term *term) {
    for (int i = 0; i < term->rank && term->id != 0; i++) {
        int again = einsum_find(term, term->label[i], i + 1);
        if (again < 0) continue;
        einsum_diagonal(e, term, i, again);
        i = -1;
    }
    uint32_t axes = 0;
    int kept = 0;
    if (term->id == 0) return;
    for (int i = 0; i < term->rank; i++) {
        if (e->uses[term->label[i]] == 1) {
            axes |= 1u << (unsigned)i;
            e->uses[term->label[i]] = 0;
        } else term->label[kept++] = term->label[i];
    }
    if (axes == 0) return;
    term->rank = kept;
    term->id = tg_compose_drop_axes(&e->call, tg_ir_reduce(e->call.graph, TG_OP_SUM, term->id, axes), axes);
}

/* ---------------------------------------------------------------- two operands */

/* The labels of a pair, by their role in the contraction. */
typedef struct einsum_groups {
    int batch[2 * TG_MAX_RANK], left[TG_MAX_RANK], right[TG_MAX_RANK], inner[TG_MAX_RANK];
    int batches, lefts, rights, inners;
} einsum_groups;

static void einsum_group(const einsum *e, const einsum_term *a, const einsum_term *b, einsum_groups *s) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < a->rank; i++) {
        int label = a->label[i];
        if (einsum_find(b, label, 0) < 0) s->left[s->lefts++] = label;
        else if (e->uses[label] == 2) s->inner[s->inners++] = label; /* only these two have it */
        else s->batch[s->batches++] = label;
    }
    for (int i = 0; i < b->rank; i++)
        if (einsum_find(a, b->label[i], 0) < 0) s->right[s->rights++] = b->label[i];
}

static int64_t einsum_product(const einsum *e, const int *labels, int count) {
    int64_t product = 1;
    for (int i = 0; i < count; i++) product *= e->dim[labels[i]];
    return product;
}

/* The term as [first, second, third]: its axes in the order of the three groups, axes of 1 repeated
 * to the size of their label. */
static int32_t einsum_as_matrices(const einsum *e, einsum_term term, const int *const *groups, const int *counts) {
    int order[2 * TG_MAX_RANK], rank = 0;
    int64_t dims[3];
    for (int k = 0; k < 3; k++) {
        dims[k] = einsum_product(e, groups[k], counts[k]);
        for (int i = 0; i < counts[k]; i++) order[rank++] = groups[k][i];
    }
    einsum_permute(e, &term, order);
    if (term.id == 0) return 0;
    tg_shape wide = tg_node_shape(&e->call, term.id);
    for (int i = 0; i < rank; i++) wide.dim[i] = e->dim[order[i]];
    return tg_ir_reshape(e->call.graph, tg_ir_broadcast(e->call.graph, term.id, wide), tg_shape_make(3, dims));
}

static bool einsum_pair(einsum *e, einsum_term *a, einsum_term b) {
    tg_graph *g = e->call.graph;
    einsum_groups s;
    einsum_group(e, a, &b, &s);
    einsum_term out = {0, s.batches + s.lefts + s.rights, {0}};
    tg_shape shape = {out.rank, {0}};
    if (out.rank > TG_MAX_RANK) return einsum_refuse(e, "more than 8 axes between two operands", '\0');
    for (int i = 0; i < out.rank; i++) {
        out.label[i] = i < s.batches ? s.batch[i] : i < s.batches + s.lefts ? s.left[i - s.batches] : s.right[i - s.batches - s.lefts];
        shape.dim[i] = e->dim[out.label[i]];
    }
    int64_t batch = einsum_product(e, s.batch, s.batches), m = einsum_product(e, s.left, s.lefts);
    int64_t n = einsum_product(e, s.right, s.rights), k = einsum_product(e, s.inner, s.inners);
    if (!tg_call_shape_ok(&e->call, shape) || !tg_call_shape_ok(&e->call, tg_shape_make(3, (const int64_t[]){batch, m, k})) ||
        !tg_call_shape_ok(&e->call, tg_shape_make(3, (const int64_t[]){batch, k, n})))
        return false;
    int32_t left = einsum_as_matrices(e, *a, (const int *const[]){s.batch, s.left, s.inner}, (const int[]){s.batches, s.lefts, s.inners});
    int32_t right = einsum_as_matrices(e, b, (const int *const[]){s.batch, s.inner, s.right}, (const int[]){s.batches, s.inners, s.rights});
    if (left == 0 || right == 0) return false;
    /* without a sum, or without rows and columns: elementwise work, which fuses */
    int32_t product;
    if (k == 1) product = tg_ir_binary(g, TG_OP_MUL, left, right); /* [B, M, 1] [B, 1, N] */
    else if (m == 1 && n == 1) {
        right = tg_ir_reshape(g, right, tg_shape_make(3, (const int64_t[]){batch, 1, k}));
        product = tg_ir_reduce(g, TG_OP_SUM, tg_ir_binary(g, TG_OP_MUL, left, right), 4u);
    } else product = tg_ir_contract(g, left, right);
    out.id = tg_ir_reshape(g, product, shape);
    for (int i = 0; i < s.batches; i++) e->uses[s.batch[i]]--; /* two operands became one */
    for (int i = 0; i < s.inners; i++) e->uses[s.inner[i]] = 0;
    *a = out;
    return out.id != 0;
}

/* ---------------------------------------------------------------- all of them */

static int32_t einsum_compose(einsum *e, einsum_term *terms, int count) {
    if (!einsum_read(e, terms, count)) return 0;
    for (int i = 0; i < count; i++) {
        einsum_reduce(e, &terms[i]);
        if (terms[i].id == 0 || (i > 0 && !einsum_pair(e, &terms[0], terms[i]))) return 0;
    }
    einsum_permute(e, &terms[0], e->out.label);
    if (terms[0].id == 0) return 0;
    tg_shape wide = tg_node_shape(&e->call, terms[0].id);
    for (int i = 0; i < wide.rank; i++) wide.dim[i] = e->dim[e->out.label[i]];
    return tg_ir_broadcast(e->call.graph, terms[0].id, wide);
}

tg_tensor tg_einsum_at(tg_site site, const char *equation, const tg_tensor *operands, int count) {
    einsum e = {.equation = equation};
    if (!tg_call_enter(&e.call, site, "einsum", operands, operands == NULL ? 0 : count)) return tg_call_poison(&e.call);
    if (equation == NULL) return tg_call_fail(&e.call, TG_ERROR_ARGUMENT, NULL, 0, "the equation is NULL");
    for (int i = 0; i < count; i++)
        if (!tg_call_takes(&e.call, operands[i].id, TG_TAKES_F32)) return tg_call_poison(&e.call);
    size_t bytes = (size_t)count * sizeof(einsum_term);
    einsum_term *terms = tg_alloc(e.call.graph->ctx, bytes);
    if (terms == NULL) return tg_call_poison(&e.call);
    memset(terms, 0, bytes);
    for (int i = 0; i < count; i++) terms[i].id = operands[i].id;
    int32_t result = einsum_compose(&e, terms, count);
    tg_release(e.call.graph->ctx, terms, bytes);
    return tg_call_result(&e.call, result);
}
