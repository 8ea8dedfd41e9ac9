/* c_attention: a kernel of kind ATTENTION as plain loops in C: one row of queries or keys at a time,
 * its sums in doubles. Must not know other kinds of kernel. */
#include "emit/c.h"
#include "kernel/attention.h"

enum { C_Q, C_K, C_V, C_DOUT, C_LSE, C_DELTA };

static int c_attention_loop(const tg_c_kernel *k, tg_attention_loop loop) {
    return (int)tg_attention_loop_of((tg_op)k->kernel->attention, loop);
}

static bool c_attention_forward(const tg_c_kernel *k) { return k->kernel->attention == TG_OP_ATTENTION; }

static void c_attention_line(tg_c_kernel *k, const char *line) {
    tg_c_indent(k);
    tg_text_add(k->file->text, "%s\n", line);
}

/* a3[12 * i0 + ...], what instruction i touches */
static void c_attention_element(tg_c_kernel *k, int32_t i) {
    tg_text_add(k->file->text, "a%d[", (int)k->kernel->body[i].argument);
    tg_c_affine(k, &k->kernel->body[i].at);
    tg_text_add(k->file->text, "]");
}

/* `name` += the product of operands x and y, summed over the width. */
static void c_attention_product(tg_c_kernel *k, const char *name, int32_t x, int32_t y) {
    tg_c_indent(k);
    tg_text_add(k->file->text, "double %s = 0;\n", name);
    tg_c_open_loop(k, c_attention_loop(k, TG_ATTENTION_WIDTH));
    tg_c_indent(k);
    tg_text_add(k->file->text, "%s += (double)", name);
    c_attention_element(k, x);
    tg_text_add(k->file->text, " * (double)");
    c_attention_element(k, y);
    tg_text_add(k->file->text, ";\n");
    tg_c_close_loops(k, 1);
}

/* sums[width] += factor times operand x */
static void c_attention_add(tg_c_kernel *k, const char *sums, const char *factor, int32_t x) {
    const int width = c_attention_loop(k, TG_ATTENTION_WIDTH);
    tg_c_open_loop(k, width);
    tg_c_indent(k);
    tg_text_add(k->file->text, "%s[i%d] += %s * (double)", sums, width, factor);
    c_attention_element(k, x);
    tg_text_add(k->file->text, ";\n");
    tg_c_close_loops(k, 1);
}

/* The next statements of the loop's body are for keys that are seen; then `score` is declared. */
static void c_attention_score(tg_c_kernel *k) {
    const int32_t mask = c_attention_forward(k) ? C_DOUT : C_DELTA + 1;
    const int query = c_attention_loop(k, TG_ATTENTION_QUERY), key = c_attention_loop(k, TG_ATTENTION_KEY);
    if (k->kernel->causal) {
        tg_c_indent(k);
        tg_text_add(k->file->text, "if (i%d > i%d) continue;\n", key, query);
    }
    if (k->kernel->body[mask].op == TG_K_LOAD) {
        tg_c_indent(k);
        tg_text_add(k->file->text, "if (!");
        c_attention_element(k, mask);
        tg_text_add(k->file->text, ") continue;\n");
    }
    c_attention_product(k, "score", C_Q, C_K);
    tg_c_indent(k);
    tg_text_add(k->file->text, "score *= %.17g;\n", k->kernel->scale);
}

/* p, the weight of a key, and ds, the cotangent of its product. */
static void c_attention_weight(tg_c_kernel *k) {
    c_attention_score(k);
    tg_c_indent(k);
    tg_text_add(k->file->text, "const double p = exp(score - (double)");
    c_attention_element(k, C_LSE);
    tg_text_add(k->file->text, ");\n");
    c_attention_product(k, "dp", C_DOUT, C_V);
    tg_c_indent(k);
    tg_text_add(k->file->text, "const double ds = %.17g * p * (dp - (double)", k->kernel->scale);
    c_attention_element(k, C_DELTA);
    tg_text_add(k->file->text, ");\n");
}

static void c_attention_sums(tg_c_kernel *k, const char *name) {
    tg_c_indent(k);
    tg_text_add(k->file->text, "double %s[%lld] = {0};\n", name, (long long)k->kernel->extent[c_attention_loop(k, TG_ATTENTION_WIDTH)]);
}

/* Stores result number `result`: for each of its columns, if there are any. */
static void c_attention_store(tg_c_kernel *k, int result, bool columns, const char *value) {
    const int out = c_attention_loop(k, TG_ATTENTION_OUT);
    if (columns) tg_c_open_loop(k, out);
    for (int32_t i = 0; i < k->kernel->body_count; i++) {
        const tg_instruction *x = &k->kernel->body[i];
        if (x->op != TG_K_STORE || (int)k->kernel->body[x->src[0]].value != result) continue;
        tg_c_indent(k);
        c_attention_element(k, i);
        if (columns) tg_text_add(k->file->text, " = (float)%s[i%d];\n", value, out);
        else tg_text_add(k->file->text, " = (float)(%s);\n", value);
    }
    if (columns) tg_c_close_loops(k, 1);
}

static void c_attention_row_forward(tg_c_kernel *k) {
    const int key = c_attention_loop(k, TG_ATTENTION_KEY), width = c_attention_loop(k, TG_ATTENTION_WIDTH);
    c_attention_line(k, "double most = -3.4028234663852886e38, sum = 0;");
    c_attention_line(k, "int sees = 0;");
    c_attention_sums(k, "out");
    tg_c_open_loop(k, key);
    c_attention_score(k);
    c_attention_line(k, "sees = 1;");
    c_attention_line(k, "most = score > most ? score : most;");
    tg_c_close_loops(k, 1);
    tg_c_open_loop(k, key);
    c_attention_score(k);
    c_attention_line(k, "const double p = exp(score - most);");
    c_attention_line(k, "sum += p;");
    c_attention_add(k, "out", "p", C_V);
    tg_c_close_loops(k, 1);
    c_attention_line(k, "if (sees && sum == 0) sum = NAN; /* sees -infinity alone */");
    tg_c_open_loop(k, width);
    tg_c_indent(k);
    tg_text_add(k->file->text, "out[i%d] /= sum == 0 ? 1 : sum;\n", width);
    tg_c_close_loops(k, 1);
    c_attention_store(k, 0, true, "out");
    c_attention_store(k, 1, false, "sum == 0 ? 1e38 : most + log(sum)");
}

static void c_attention_row_dq(tg_c_kernel *k) {
    c_attention_sums(k, "out");
    tg_c_open_loop(k, c_attention_loop(k, TG_ATTENTION_KEY));
    c_attention_weight(k);
    c_attention_add(k, "out", "ds", C_K);
    tg_c_close_loops(k, 1);
    c_attention_store(k, 0, true, "out");
}

static void c_attention_row_dkv(tg_c_kernel *k) {
    c_attention_sums(k, "dk");
    c_attention_sums(k, "dv");
    tg_c_open_loop(k, c_attention_loop(k, TG_ATTENTION_GROUP));
    tg_c_open_loop(k, c_attention_loop(k, TG_ATTENTION_QUERY));
    c_attention_weight(k);
    c_attention_add(k, "dk", "ds", C_Q);
    c_attention_add(k, "dv", "p", C_DOUT);
    tg_c_close_loops(k, 2);
    c_attention_store(k, 0, true, "dk");
    c_attention_store(k, 1, true, "dv");
}

void tg_c_attention(tg_c_kernel *k) {
    const int rows = k->kernel->outer_count - 1;
    for (int d = 0; d < rows; d++) tg_c_open_loop(k, d);
    if (c_attention_forward(k)) c_attention_row_forward(k);
    else if (k->kernel->attention == TG_OP_ATTENTION_DQ) c_attention_row_dq(k);
    else c_attention_row_dkv(k);
    tg_c_close_loops(k, rows);
}
