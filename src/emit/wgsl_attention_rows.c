/* wgsl_attention_rows: a kernel of kind ATTENTION whose invocations each have one row of queries or
 * keys, without barriers or workgroup memory: for adapters where barriers are slow, and heads that
 * no tile fits. Must not know tiles. */
#include "emit/wgsl_attention.h"
#include "ir/dtype.h"

enum { ROWS_Q, ROWS_K, ROWS_V, ROWS_DOUT, ROWS_LSE, ROWS_DELTA, ROWS_SIZE = 64 };

static int rows_loop(const tg_wgsl *w, tg_attention_loop loop) { return (int)tg_attention_loop_of((tg_op)w->kernel->attention, loop); }

static bool rows_forward(const tg_wgsl *w) { return w->kernel->attention == TG_OP_ATTENTION; }

/* What instruction i of the body loads, as an expression of its compute type. */
static void rows_element(tg_wgsl *w, int32_t i) {
    const tg_instruction *x = &w->kernel->body[i];
    const tg_dtype_wrap load = tg_dtype_row(w->kernel->arguments[x->argument].dtype)->wgsl_load;
    const tg_wgsl_memory memory = tg_wgsl_argument(w, x->argument);
    tg_text_add(&w->main, "%s", load.before);
    tg_wgsl_open_read(&w->main, &memory);
    tg_wgsl_affine(w, &x->at);
    tg_wgsl_close_read(&w->main, &memory);
    tg_text_add(&w->main, "%s", load.after);
}

static void rows_open_loop(tg_wgsl *w, int loop) {
    tg_wgsl_line(w, "for (var i%d = 0; i%d < %lld; i%d++) {", loop, loop, (long long)w->extent[loop], loop);
}

/* name = the product of operands x and y over the width */
static void rows_product(tg_wgsl *w, const char *name, int32_t x, int32_t y) {
    tg_wgsl_line(w, "var %s = 0f;", name);
    rows_open_loop(w, rows_loop(w, TG_ATTENTION_WIDTH));
    tg_wgsl_start(w);
    tg_text_add(&w->main, "%s += ", name);
    rows_element(w, x);
    tg_text_add(&w->main, " * ");
    rows_element(w, y);
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
    tg_wgsl_line(w, "}");
}

/* sums[width] += factor times operand x */
static void rows_add(tg_wgsl *w, const char *sums, const char *factor, int32_t x) {
    const int width = rows_loop(w, TG_ATTENTION_WIDTH);
    rows_open_loop(w, width);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "%s[i%d] += %s * ", sums, width, factor);
    rows_element(w, x);
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
    tg_wgsl_line(w, "}");
}

/* Opens the loop over queries or keys that this row does not own, less those that causal order
 * hides. */
static void rows_open_others(tg_wgsl *w) {
    const bool keys = w->kernel->attention != TG_OP_ATTENTION_DKV;
    const int query = rows_loop(w, TG_ATTENTION_QUERY), key = rows_loop(w, TG_ATTENTION_KEY), other = keys ? key : query;
    const bool causal = w->kernel->causal && w->extent[key] > 1;
    if (!causal) rows_open_loop(w, other);
    else if (keys) tg_wgsl_line(w, "for (var i%d = 0; i%d <= i%d; i%d++) {", other, other, query, other);
    else tg_wgsl_line(w, "for (var i%d = i%d; i%d < %lld; i%d++) {", other, key, other, (long long)w->extent[other], other);
}

/* The statements after it are for keys that are seen: `score` is declared. */
static void rows_score(tg_wgsl *w) {
    const int32_t mask = rows_forward(w) ? ROWS_DOUT : ROWS_DELTA + 1;
    if (w->kernel->body[mask].op == TG_K_LOAD) {
        tg_wgsl_start(w);
        tg_text_add(&w->main, "if (!(");
        rows_element(w, mask);
        tg_text_add(&w->main, ")) { continue; }");
        tg_wgsl_newline(w);
    }
    rows_product(w, "score", ROWS_Q, ROWS_K);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "score *= ");
    tg_wgsl_literal(w, TG_F32, w->kernel->scale);
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
}

/* p, the weight of a key, and ds, the cotangent of its product. */
static void rows_weight(tg_wgsl *w) {
    rows_score(w);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "let p = %s(score - ", tg_wgsl_helper(w, "tg_exp"));
    rows_element(w, ROWS_LSE);
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
    rows_product(w, "dp", ROWS_DOUT, ROWS_V);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "let ds = p * (dp - ");
    rows_element(w, ROWS_DELTA);
    tg_text_add(&w->main, ") * ");
    tg_wgsl_literal(w, TG_F32, w->kernel->scale);
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
}

static void rows_sums(tg_wgsl *w, const char *name) {
    tg_wgsl_line(w, "var %s: array<f32, %lld>;", name, (long long)w->extent[rows_loop(w, TG_ATTENTION_WIDTH)]);
}

static void rows_store(tg_wgsl *w, int result, bool columns, const char *value) {
    const int out = rows_loop(w, TG_ATTENTION_OUT);
    if (columns) rows_open_loop(w, out);
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const tg_instruction *x = &w->kernel->body[i];
        if (x->op != TG_K_STORE || (int)w->kernel->body[x->src[0]].value != result) continue;
        const tg_wgsl_memory memory = tg_wgsl_argument(w, x->argument);
        tg_wgsl_start(w);
        tg_wgsl_open_write(&w->main, &memory);
        tg_wgsl_affine(w, &x->at);
        tg_wgsl_write_value(&w->main, &memory);
        if (columns) tg_text_add(&w->main, "%s[i%d]", value, out);
        else tg_text_add(&w->main, "%s", value);
        tg_wgsl_close_write(&w->main, &memory);
        tg_wgsl_newline(w);
    }
    if (columns) tg_wgsl_line(w, "}");
}

static void rows_print_forward(tg_wgsl *w) {
    const int width = rows_loop(w, TG_ATTENTION_WIDTH);
    const char *exp = tg_wgsl_helper(w, "tg_exp"), *log = tg_wgsl_helper(w, "tg_log");
    tg_wgsl_line(w, "var most = %s;", TG_WGSL_ATTENTION_LEAST);
    tg_wgsl_line(w, "var sum = 0f;");
    tg_wgsl_line(w, "var sees = false;");
    rows_sums(w, "out");
    rows_open_others(w);
    rows_score(w);
    tg_wgsl_line(w, "sees = true;");
    tg_wgsl_line(w, "if (score > most) {");
    tg_wgsl_line(w, "let fade = %s(most - score);", exp);
    tg_wgsl_line(w, "most = score;");
    tg_wgsl_line(w, "sum *= fade;");
    rows_open_loop(w, width);
    tg_wgsl_line(w, "out[i%d] *= fade;", width);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "let p = %s(score - most);", exp);
    tg_wgsl_line(w, "sum += p;");
    rows_add(w, "out", "p", ROWS_V);
    tg_wgsl_line(w, "}");
    /* all that it sees is -infinity: as softmax of such a row */
    tg_wgsl_line(w, "if (sees && sum == 0f) { sum = %s(); }", tg_wgsl_helper(w, "tg_not_a_number"));
    tg_wgsl_line(w, "let all = select(sum, 1f, sum == 0f);");
    rows_open_loop(w, width);
    tg_wgsl_line(w, "out[i%d] /= all;", width);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "let lse = select(most + %s(all), %s, sum == 0f);", log, TG_WGSL_ATTENTION_EMPTY);
    rows_store(w, 0, true, "out");
    rows_store(w, 1, false, "lse");
}

static void rows_print_dq(tg_wgsl *w) {
    rows_sums(w, "out");
    rows_open_others(w);
    rows_weight(w);
    rows_add(w, "out", "ds", ROWS_K);
    tg_wgsl_line(w, "}");
    rows_store(w, 0, true, "out");
}

static void rows_print_dkv(tg_wgsl *w) {
    rows_sums(w, "dk");
    rows_sums(w, "dv");
    rows_open_loop(w, rows_loop(w, TG_ATTENTION_GROUP));
    rows_open_others(w);
    rows_weight(w);
    rows_add(w, "dk", "ds", ROWS_Q);
    rows_add(w, "dv", "p", ROWS_DOUT);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
    rows_store(w, 0, true, "dk");
    rows_store(w, 1, true, "dv");
}

void tg_wgsl_attention_rows(tg_wgsl *w) {
    const int loops = w->kernel->outer_count - 1;
    const int64_t rows = tg_wgsl_points(w, 0, loops);
    tg_wgsl_begin(w, "one row for each invocation");
    tg_wgsl_line(w, "let row = group * %d + t;", ROWS_SIZE);
    if (rows % ROWS_SIZE != 0) tg_wgsl_line(w, "if (row >= %lld) { return; }", (long long)rows);
    tg_wgsl_decode(w, "row", 0, loops);
    if (rows_forward(w)) rows_print_forward(w);
    else if (w->kernel->attention == TG_OP_ATTENTION_DQ) rows_print_dq(w);
    else rows_print_dkv(w);
    tg_wgsl_end(w, (rows + ROWS_SIZE - 1) / ROWS_SIZE, ROWS_SIZE);
}
