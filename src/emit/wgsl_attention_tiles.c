/* wgsl_attention_tiles: a kernel of kind ATTENTION by tiles. A workgroup owns 64 rows, of queries or
 * (ATTENTION_DKV) of keys, and walks over tiles of 64 of the others. An invocation has 8 rows by 4
 * columns of a tile of scores, and 8 rows of its columns of the results. Where that makes too few
 * workgroups, all rows are half as many. Operands pass through
 * workgroup memory in pieces: 16 of the width for scores, 16 of the others for results, so that all
 * of it is within 16 KiB. Must not know adapters. */
#include "emit/wgsl_attention.h"
#include "ir/dtype.h"

#include <stdio.h>

enum {
    TILES_SIZE = 128,  /* invocations: 16 along x, the columns, and 8 along y, the rows */
    TILES_BLOCK = 64,  /* columns of a tile; rows of a workgroup if that makes enough workgroups */
    TILES_ROWS = 8,    /* then of an invocation: y, y + 8, ... */
    TILES_ROUNDS = 2,  /* enough: so many for each processor */
    TILES_COLUMNS = 4, /* of an invocation in a tile of scores: x, x + 16, ... */
    TILES_PIECE = 16,
    TILES_WIDEST = 128,
    TILES_BYTES = 16384,
    TILES_TEXT = 128
};

/* An operand as the text names it. */
typedef struct tiles_operand {
    const tg_attention_access *access;
    const char *name; /* base_<name> is where its head begins */
    bool wide;        /* read as vec4s */
} tiles_operand;

typedef struct tiles {
    tg_wgsl *w;
    tg_attention_kernel a;
    bool keys;                     /* rows are keys */
    int64_t rows, others;          /* of a head: rows of workgroups, columns of tiles */
    int own, block;                /* rows of an invocation, of a workgroup */
    tiles_operand first, second;   /* rows of the scores' product, of the product of do and v */
    tiles_operand across, against; /* the same for the columns */
    bool vectors;                  /* an invocation's columns of the results are vec4s */
    int groups;                    /* how many: x, x + 16, ...; else of single columns */
    const char *left, *right, *values;
} tiles;

static const char tiles_component[4] = {'x', 'y', 'z', 'w'};

/* ---------------------------------------------------------------- reading */

/* May all accesses to the argument read it as vec4s? */
static bool tiles_fours(const tg_wgsl *w, int32_t argument) {
    if (!tg_wgsl_may_widen(w, argument) || tg_wgsl_count(w, argument) % 4 != 0) return false;
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const tg_instruction *x = &w->kernel->body[i];
        if (x->op == TG_K_ACC || x->argument != argument) continue;
        const int width = (int)tg_attention_loop_of((tg_op)w->kernel->attention, TG_ATTENTION_WIDTH);
        if (x->op != TG_K_LOAD || x->dtype != TG_F32 || x->at.stride[width] != 1 || x->at.offset % 4 != 0) return false;
        for (int d = 0; d < w->kernel->loop_count; d++)
            if (d != width && w->kernel->extent[d] > 1 && x->at.stride[d] % 4 != 0) return false;
    }
    return tg_dtype_row(w->kernel->arguments[argument].dtype)->compute == TG_F32;
}

static tiles_operand tiles_take(const tg_wgsl *w, const tg_attention_access *access, const char *name) {
    return (tiles_operand){access, name, tiles_fours(w, access->argument)};
}

/* One element, as an expression. */
static void tiles_element(tg_wgsl *w, const tg_attention_access *access, const char *at) {
    const tg_dtype_wrap load = tg_dtype_row(w->kernel->arguments[access->argument].dtype)->wgsl_load;
    const tg_wgsl_memory memory = tg_wgsl_argument(w, access->argument);
    tg_text_add(&w->main, "%s", load.before);
    tg_wgsl_open_read(&w->main, &memory);
    tg_text_add(&w->main, "%s", at);
    tg_wgsl_close_read(&w->main, &memory);
    tg_text_add(&w->main, "%s", load.after);
}

/* <name> = the four columns from element `at` on */
static void tiles_read(const tiles *t, const char *name, const tiles_operand *o, const char *at) {
    tg_wgsl *w = t->w;
    char text[4 * TILES_TEXT];
    tg_wgsl_start(w);
    tg_text_add(&w->main, "%s = ", name);
    if (o->wide) {
        const tg_wgsl_memory memory = tg_wgsl_argument_vectors(w, o->access->argument);
        tg_wgsl_open_read(&w->main, &memory);
        tg_text_add(&w->main, "(%s) / 4", at);
        tg_wgsl_close_read(&w->main, &memory);
    } else {
        tg_text_add(&w->main, "vec4<f32>(");
        for (int i = 0; i < 4; i++) {
            snprintf(text, sizeof text, "%s + %lld", at, (long long)(i * o->access->column));
            if (i > 0) tg_text_add(&w->main, ", ");
            tiles_element(w, o->access, text);
        }
        tg_text_add(&w->main, ")");
    }
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
}

/* let base_<name>: where the head begins */
static void tiles_base(const tiles *t, const tg_attention_access *x, const char *name) {
    tg_wgsl_line(t->w, "let base_%s = %lld + batch * %lld + kv_head * %lld + member * %lld;", name, (long long)x->offset,
                 (long long)x->batch, (long long)x->kv_head, (long long)x->group);
}

/* "min(i, last)", or i where it is never more, counted in blocks of 64 */
static void tiles_clamp(char *text, size_t size, const char *index, int64_t count) {
    if (count % TILES_BLOCK == 0) snprintf(text, size, "(%s)", index);
    else snprintf(text, size, "min(%s, %lld)", index, (long long)count - 1);
}

/* ---------------------------------------------------------------- products */

/* let <name>0, <name>1: where the rows begin that this invocation fetches for a tile of scores */
static void tiles_fetched_rows(const tiles *t, const char *name, const tiles_operand *o, const char *from, int64_t count, int fetches) {
    char row[TILES_TEXT], index[TILES_TEXT / 2];
    for (int i = 0; i < fetches; i++) {
        snprintf(index, sizeof index, "%s + fetch_row + %d", from, i * TILES_BLOCK / 2);
        tiles_clamp(row, sizeof row, index, count);
        tg_wgsl_line(t->w, "let %s%d = base_%s + %s * %lld + fetch_k * %lld;", name, i, o->name, row, (long long)o->access->row,
                     (long long)(4 * o->access->column));
    }
}

/* How many rows an invocation fetches of those of the workgroup: one of 32, two of 64. */
static int tiles_row_fetches(const tiles *t) { return t->block * 2 / TILES_BLOCK; }

static void tiles_fetch_piece(const tiles *t, const char *let, const tiles_operand *rows, const tiles_operand *columns, const char *k) {
    static const char *const names[4] = {"l0", "l1", "r0", "r1"};
    char name[16], at[TILES_TEXT];
    for (int i = 0; i < 4; i++) {
        const tiles_operand *o = i < 2 ? rows : columns;
        if (i < 2 && i >= tiles_row_fetches(t)) continue;
        snprintf(name, sizeof name, "%s%s", let, names[i]);
        snprintf(at, sizeof at, "%s%d + %s * %lld", i < 2 ? "row_at" : "column_at", i & 1, k, (long long)o->access->column);
        tiles_read(t, name, o, at);
    }
}

/* sums<i> += rows times columns, of four k */
static void tiles_multiply(const tiles *t, char sums) {
    tg_wgsl *w = t->w;
    tg_wgsl_line(w, "for (var q = 0; q < %d; q++) {", TILES_PIECE / 4);
    tg_wgsl_line(w, "let yq = q * %d + (y ^ (q * 2));", t->block);
    tg_wgsl_line(w, "let xq = q * %d + (x ^ (q * 2));", TILES_BLOCK);
    for (int j = 0; j < TILES_COLUMNS; j++) tg_wgsl_line(w, "let n%d = %s[xq + %d];", j, t->right, 16 * j);
    for (int k = 0; k < 4; k++) {
        const char c = tiles_component[k];
        tg_wgsl_line(w, "let b%d = vec4<f32>(n0.%c, n1.%c, n2.%c, n3.%c);", k, c, c, c, c);
    }
    for (int i = 0; i < t->own; i++) {
        tg_wgsl_line(w, "let m%d = %s[yq + %d];", i, t->left, 8 * i);
        for (int k = 0; k < 4; k++)
            tg_wgsl_line(w, "%c%d = fma(vec4<f32>(m%d.%c), b%d, %c%d);", sums, i, i, tiles_component[k], k, sums, i);
    }
    tg_wgsl_line(w, "}");
}

/* sums<i>, declared here: rows of the workgroup times those of the tile, over the width. */
static void tiles_scores(const tiles *t, char sums, const tiles_operand *rows, const tiles_operand *columns) {
    tg_wgsl *w = t->w;
    for (int i = 0; i < t->own; i++) tg_wgsl_line(w, "var %c%d = vec4<f32>();", sums, i);
    tg_wgsl_line(w, "{");
    tiles_fetched_rows(t, "row_at", rows, "row0", t->rows, tiles_row_fetches(t));
    tiles_fetched_rows(t, "column_at", columns, "column0", t->others, 2);
    tiles_fetch_piece(t, "var ", rows, columns, "0");
    tg_wgsl_line(w, "for (var k = 0; k < %lld; k += %d) {", (long long)t->a.width, TILES_PIECE);
    tg_wgsl_line(w, "workgroupBarrier();");
    for (int i = 0; i < tiles_row_fetches(t); i++) tg_wgsl_line(w, "%s[row_to + %d] = l%d;", t->left, i * TILES_BLOCK / 2, i);
    for (int i = 0; i < 2; i++) tg_wgsl_line(w, "%s[column_to + %d] = r%d;", t->right, i * TILES_BLOCK / 2, i);
    tg_wgsl_line(w, "workgroupBarrier();");
    if (t->a.width > TILES_PIECE) {
        tg_wgsl_line(w, "if (k < %lld) {", (long long)t->a.width - TILES_PIECE);
        tiles_fetch_piece(t, "", rows, columns, "(k + 16)");
        tg_wgsl_line(w, "}");
    }
    tiles_multiply(t, sums);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
}

/* How many vec4s of 16 rows of the width an invocation fetches. */
static int tiles_value_fetches(const tiles *t) { return ((int)t->a.width * TILES_PIECE / 4 + TILES_SIZE - 1) / TILES_SIZE; }

/* v<i>: rows [16 piece, 16 piece + 16) of the tile, as they lie */
static void tiles_fetch_values(const tiles *t, const char *let, const tiles_operand *o, int piece) {
    char name[16], at[2 * TILES_TEXT], row[TILES_TEXT], index[TILES_TEXT / 2];
    for (int i = 0; i < tiles_value_fetches(t); i++) {
        snprintf(name, sizeof name, "%sv%d", let, i);
        snprintf(index, sizeof index, "column0 + %d + value_row%d", piece * TILES_PIECE, i);
        tiles_clamp(row, sizeof row, index, t->others);
        snprintf(at, sizeof at, "base_%s + %s * %lld + value_k%d * %lld", o->name, row, (long long)o->access->row, i,
                 (long long)(4 * o->access->column));
        tiles_read(t, name, o, at);
    }
}

/* What was fetched, and a piece of the factors, into workgroup memory. */
static void tiles_keep_values(const tiles *t, char factors, int piece) {
    tg_wgsl *w = t->w;
    const int units = (int)t->a.width * TILES_PIECE / 4;
    for (int i = 0; i < t->own; i++)
        tg_wgsl_line(w, "%s[(x >> 2u) * %d + y + %d][x & 3] = %c%d.%c;", t->left, t->block, 8 * i, factors, i, tiles_component[piece]);
    for (int i = 0; i < tiles_value_fetches(t); i++) {
        const bool guarded = (i + 1) * TILES_SIZE > units;
        if (guarded) tg_wgsl_line(w, "if (t < %d) {", units - i * TILES_SIZE);
        if (t->vectors) tg_wgsl_line(w, "%s[t + %d] = v%d;", t->right, i * TILES_SIZE, i);
        for (int k = 0; k < 4 && !t->vectors; k++)
            tg_wgsl_line(w, "%s[(t + %d) * 4 + %d] = v%d.%c;", t->values, i * TILES_SIZE, k, i, tiles_component[k]);
        if (guarded) tg_wgsl_line(w, "}");
    }
}

/* sums<i>_<g> += factors times what lies in workgroup memory */
static void tiles_multiply_values(const tiles *t, char sums) {
    tg_wgsl *w = t->w;
    tg_wgsl_line(w, "for (var q = 0; q < %d; q++) {", TILES_PIECE / 4);
    for (int i = 0; i < t->own; i++) tg_wgsl_line(w, "let m%d = %s[q * %d + y + %d];", i, t->left, t->block, 8 * i);
    for (int k = 0; k < 4; k++) {
        tg_wgsl_line(w, "{");
        for (int g = 0; g < t->groups; g++)
            tg_wgsl_line(w, "let n%d = %s[(q * 4 + %d) * %lld + x + %d];", g, t->vectors ? t->right : t->values, k,
                         (long long)(t->vectors ? t->a.width / 4 : t->a.width), 16 * g);
        for (int i = 0; i < t->own; i++)
            for (int g = 0; g < t->groups; g++)
                tg_wgsl_line(w, t->vectors ? "%c%d_%d = fma(vec4<f32>(m%d.%c), n%d, %c%d_%d);" : "%c%d_%d = fma(m%d.%c, n%d, %c%d_%d);",
                             sums, i, g, i, tiles_component[k], g, sums, i, g);
        tg_wgsl_line(w, "}");
    }
    tg_wgsl_line(w, "}");
}

/* sums += factors, one of an invocation's four columns after the other, times rows of the tile. */
static void tiles_add(const tiles *t, char sums, char factors, const tiles_operand *o) {
    tg_wgsl_line(t->w, "{");
    tiles_fetch_values(t, "var ", o, 0);
    for (int piece = 0; piece < TILES_BLOCK / TILES_PIECE; piece++) {
        tg_wgsl_line(t->w, "workgroupBarrier();");
        tiles_keep_values(t, factors, piece);
        tg_wgsl_line(t->w, "workgroupBarrier();");
        if (piece + 1 < TILES_BLOCK / TILES_PIECE) tiles_fetch_values(t, "", o, piece + 1);
        tiles_multiply_values(t, sums);
    }
    tg_wgsl_line(t->w, "}");
}

static void tiles_declare_sums(const tiles *t, char sums) {
    for (int i = 0; i < t->own; i++)
        for (int g = 0; g < t->groups; g++) tg_wgsl_line(t->w, "var %c%d_%d = %s();", sums, i, g, t->vectors ? "vec4<f32>" : "f32");
}

/* ---------------------------------------------------------------- scores */

static bool tiles_hides(const tiles *t) { return t->a.causal || t->a.mask.argument >= 0 || t->others % TILES_BLOCK != 0; }

/* let seen: which of row i's four columns it sees */
static void tiles_seen(const tiles *t, int i) {
    tg_wgsl *w = t->w;
    char row[TILES_TEXT], column[TILES_TEXT], at[4 * TILES_TEXT], index[TILES_TEXT / 2];
    tg_wgsl_line(w, "let row = row0 + y + %d;", 8 * i);
    tg_wgsl_line(w, "var seen = vec4<bool>(true);");
    if (t->a.causal) tg_wgsl_line(w, t->keys ? "seen = seen & (vec4<i32>(row) <= column);" : "seen = seen & (column <= vec4<i32>(row));");
    if (t->others % TILES_BLOCK != 0) tg_wgsl_line(w, "seen = seen & (column < vec4<i32>(%lld));", (long long)t->others);
    if (t->a.mask.argument < 0) return;
    tiles_clamp(row, sizeof row, "row", t->rows);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "seen = seen & vec4<bool>(");
    for (int j = 0; j < TILES_COLUMNS; j++) {
        snprintf(index, sizeof index, "column.%c", tiles_component[j]);
        tiles_clamp(column, sizeof column, index, t->others);
        snprintf(at, sizeof at, "base_mask + %s * %lld + %s * %lld", row, (long long)(t->keys ? t->a.mask.column : t->a.mask.row), column,
                 (long long)(t->keys ? t->a.mask.row : t->a.mask.column));
        if (j > 0) tg_text_add(&w->main, ", ");
        tiles_element(w, &t->a.mask, at);
    }
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
}

static void tiles_scale(const tiles *t) {
    tg_wgsl_start(t->w);
    tg_text_add(&t->w->main, "const scale = ");
    tg_wgsl_literal(t->w, TG_F32, t->a.scale);
    tg_text_add(&t->w->main, ";");
    tg_wgsl_newline(t->w);
}

/* <name> = e^<name>, each component */
static void tiles_exp(const tiles *t, const char *name) {
    const char *exp = tg_wgsl_helper(t->w, "tg_exp");
    tg_wgsl_line(t->w, "%s = vec4<f32>(%s(%s.x), %s(%s.y), %s(%s.z), %s(%s.w));", name, exp, name, exp, name, exp, name, exp, name);
}

/* One number of each row from each invocation, in the array `left`: 16 of them a row. */
static void tiles_share(const tiles *t, const char *value) {
    tg_wgsl_line(t->w, "workgroupBarrier();");
    for (int i = 0; i < t->own; i++) tg_wgsl_line(t->w, "%s[(y + %d) * 4 + (x >> 2u)][x & 3] = %s%d;", t->left, 8 * i, value, i);
    tg_wgsl_line(t->w, "workgroupBarrier();");
}

/* Scores become weights, with the maximum and the sum of the rows so far. A score that is seen is
 * never less than LOST, and one that is not is LEAST, which its bits tell: NaN is seen. */
static void tiles_weigh(const tiles *t, const char *most, const char *fade) {
    tg_wgsl *w = t->w;
    char name[16];
    if (tiles_hides(t)) tg_wgsl_line(w, "let column = vec4<i32>(column0 + x) + vec4<i32>(0, 16, 32, 48);");
    for (int i = 0; i < t->own; i++) {
        tg_wgsl_line(w, "c%d *= scale;", i);
        tg_wgsl_line(w, "c%d = select(c%d, vec4<f32>(%s), c%d < vec4<f32>(%s));", i, i, TG_WGSL_ATTENTION_LOST, i, TG_WGSL_ATTENTION_LOST);
        if (!tiles_hides(t)) continue;
        tg_wgsl_line(w, "{");
        tiles_seen(t, i);
        tg_wgsl_line(w, "c%d = select(vec4<f32>(%s), c%d, seen);", i, TG_WGSL_ATTENTION_LEAST, i);
        tg_wgsl_line(w, "}");
    }
    for (int i = 0; i < t->own; i++) tg_wgsl_line(w, "let top%d = max(max(c%d.x, c%d.y), max(c%d.z, c%d.w));", i, i, i, i, i);
    tiles_share(t, "top");
    tg_wgsl_line(w, "if (t < %d) {", t->block);
    tg_wgsl_line(w, "let top = max(max(%s[t * 4], %s[t * 4 + 1]), max(%s[t * 4 + 2], %s[t * 4 + 3]));", t->left, t->left, t->left, t->left);
    tg_wgsl_line(w, "let before = %s[t];", most);
    tg_wgsl_line(w, "let now = max(before, max(max(top.x, top.y), max(top.z, top.w)));");
    tg_wgsl_line(w, "%s[t] = now;", most);
    tg_wgsl_line(w, "%s[t] = %s(before - now);", fade, tg_wgsl_helper(w, "tg_exp"));
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "workgroupBarrier();");
    for (int i = 0; i < t->own; i++) {
        tg_wgsl_line(w, "{");
        if (tiles_hides(t))
            tg_wgsl_line(w, "let seen = bitcast<vec4<u32>>(c%d) != bitcast<vec4<u32>>(vec4<f32>(%s));", i, TG_WGSL_ATTENTION_LEAST);
        tg_wgsl_line(w, "c%d -= %s[y + %d];", i, most, 8 * i);
        snprintf(name, sizeof name, "c%d", i);
        tiles_exp(t, name);
        if (tiles_hides(t)) tg_wgsl_line(w, "c%d = select(vec4<f32>(), c%d, seen);", i, i);
        tg_wgsl_line(w, "let f = %s[y + %d];", fade, 8 * i);
        tg_wgsl_line(w, "sum%d = sum%d * f + ((c%d.x + c%d.y) + (c%d.z + c%d.w));", i, i, i, i, i, i);
        for (int g = 0; g < t->groups; g++) tg_wgsl_line(w, "o%d_%d *= f;", i, g);
        tg_wgsl_line(w, "}");
    }
}

/* Products c and e become weights and cotangents: of rows of queries e is left in c. */
static void tiles_weigh_back(const tiles *t) {
    tg_wgsl *w = t->w;
    if (tiles_hides(t)) tg_wgsl_line(w, "let column = vec4<i32>(column0 + x) + vec4<i32>(0, 16, 32, 48);");
    for (int i = 0; i < t->own; i++) {
        tg_wgsl_line(w, "{");
        if (t->keys) tg_wgsl_line(w, "var p = c%d * scale - lse;", i);
        else tg_wgsl_line(w, "var p = c%d * scale - lse%d;", i, i);
        tiles_exp(t, "p");
        if (tiles_hides(t)) {
            tiles_seen(t, i);
            tg_wgsl_line(w, "p = select(vec4<f32>(), p, seen);");
        }
        if (t->keys) {
            tg_wgsl_line(w, "e%d = p * (e%d - delta) * scale;", i, i);
            tg_wgsl_line(w, "c%d = p;", i);
        } else tg_wgsl_line(w, "c%d = p * (e%d - delta%d) * scale;", i, i, i);
        tg_wgsl_line(w, "}");
    }
}

/* let <name><i> of each row, or let <name> of the four columns: numbers of queries */
static void tiles_query_numbers(const tiles *t, const tg_attention_access *x, const char *name) {
    tg_wgsl *w = t->w;
    char row[TILES_TEXT], at[2 * TILES_TEXT], index[TILES_TEXT / 2];
    for (int i = 0; i < (t->keys ? TILES_COLUMNS : t->own); i++) {
        snprintf(index, sizeof index, t->keys ? "column0 + x + %d" : "row0 + y + %d", (t->keys ? 16 : 8) * i);
        tiles_clamp(row, sizeof row, index, t->a.queries);
        snprintf(at, sizeof at, "base_%s + %s * %lld", name, row, (long long)x->row);
        tg_wgsl_start(w);
        tg_text_add(&w->main, "let %s%s%d = ", name, t->keys ? "_" : "", i);
        tiles_element(w, x, at);
        tg_text_add(&w->main, ";");
        tg_wgsl_newline(w);
    }
    if (t->keys) tg_wgsl_line(w, "let %s = vec4<f32>(%s_0, %s_1, %s_2, %s_3);", name, name, name, name, name);
}

/* ---------------------------------------------------------------- results */

static void tiles_write(tg_wgsl *w, const tg_attention_access *out, const char *at, const char *value) {
    const tg_wgsl_memory memory = tg_wgsl_argument(w, out->argument);
    tg_wgsl_write(w, &memory, at, value);
}

/* Row i of the sums, times `factor` if there is one, where there is such a row. */
static void tiles_store_row(const tiles *t, const tg_attention_access *out, const char *name, char sums, int i, const char *factor) {
    char at[2 * TILES_TEXT], value[TILES_TEXT];
    tg_wgsl_line(t->w, "let at = base_%s + (row0 + y + %d) * %lld;", name, 8 * i, (long long)out->row);
    for (int g = 0; g < t->groups; g++)
        for (int k = 0; k < (t->vectors ? 4 : 1); k++) {
            if (t->vectors) snprintf(at, sizeof at, "at + ((x + %d) * 4 + %d) * %lld", 16 * g, k, (long long)out->column);
            else snprintf(at, sizeof at, "at + (x + %d) * %lld", 16 * g, (long long)out->column);
            if (t->vectors) snprintf(value, sizeof value, "%c%d_%d.%c%s", sums, i, g, tiles_component[k], factor);
            else snprintf(value, sizeof value, "%c%d_%d%s", sums, i, g, factor);
            tiles_write(t->w, out, at, value);
        }
}

static void tiles_open_row(const tiles *t, int i) {
    if (t->rows % t->block != 0) tg_wgsl_line(t->w, "if (row0 + y + %d < %lld) {", 8 * i, (long long)t->rows);
    else tg_wgsl_line(t->w, "{");
}

static void tiles_store(const tiles *t, const tg_attention_access *out, const char *name, char sums) {
    tiles_base(t, out, name);
    for (int i = 0; i < t->own; i++) {
        tiles_open_row(t, i);
        tiles_store_row(t, out, name, sums, i, "");
        tg_wgsl_line(t->w, "}");
    }
}

static void tiles_store_forward(const tiles *t, const char *most) {
    tg_wgsl *w = t->w;
    char at[TILES_TEXT];
    tiles_share(t, "sum");
    tiles_base(t, &t->a.out[0], "out");
    tiles_base(t, &t->a.out[1], "lse");
    for (int i = 0; i < t->own; i++) {
        tiles_open_row(t, i);
        tg_wgsl_line(w, "let part = (%s[(y + %d) * 4] + %s[(y + %d) * 4 + 1]) + (%s[(y + %d) * 4 + 2] + %s[(y + %d) * 4 + 3]);", t->left,
                     8 * i, t->left, 8 * i, t->left, 8 * i, t->left, 8 * i);
        tg_wgsl_line(w, "let total = (part.x + part.y) + (part.z + part.w);");
        tg_wgsl_line(w, "let empty = total == 0f;");
        tg_wgsl_line(w, "let lost = %s[y + %d] == %s;", most, 8 * i, TG_WGSL_ATTENTION_LOST);
        tg_wgsl_line(w, "let all = select(select(total, 1f, empty), %s(), lost);", tg_wgsl_helper(w, "tg_not_a_number"));
        tiles_store_row(t, &t->a.out[0], "out", 'o', i, " / all");
        tg_wgsl_line(w, "if (x == 0) {");
        tg_wgsl_line(w, "let lse = select(%s[y + %d] + %s(all), %s, empty);", most, 8 * i, tg_wgsl_helper(w, "tg_log"),
                     TG_WGSL_ATTENTION_EMPTY);
        snprintf(at, sizeof at, "base_lse + (row0 + y + %d) * %lld", 8 * i, (long long)t->a.out[1].row);
        tiles_write(w, &t->a.out[1], at, "lse");
        tg_wgsl_line(w, "}");
        tg_wgsl_line(w, "}");
    }
}

/* ---------------------------------------------------------------- the stage */

static int64_t tiles_blocks(const tiles *t) { return (t->rows + t->block - 1) / t->block; }
static int64_t tiles_heads(const tiles *t) { return t->a.batches * t->a.kv_heads * (t->keys ? 1 : t->a.groups); }

/* Which head and block this workgroup owns: those with the most work first. */
static void tiles_locate(const tiles *t) {
    tg_wgsl *w = t->w;
    tg_wgsl_line(w, "let head = group %% %lld;", (long long)tiles_heads(t));
    if (t->a.causal && !t->keys)
        tg_wgsl_line(w, "let row0 = (%lld - group / %lld) * %d;", (long long)tiles_blocks(t) - 1, (long long)tiles_heads(t), t->block);
    else tg_wgsl_line(w, "let row0 = group / %lld * %d;", (long long)tiles_heads(t), t->block);
    if (!t->keys) tg_wgsl_line(w, "let member = head %% %lld;", (long long)t->a.groups);
    tg_wgsl_line(w, "let kv_head = head / %lld %% %lld;", (long long)(t->keys ? 1 : t->a.groups), (long long)t->a.kv_heads);
    tg_wgsl_line(w, "let batch = head / %lld;", (long long)(t->a.kv_heads * (t->keys ? 1 : t->a.groups)));
}

/* Where an invocation works and what it fetches. 32 neighbours lie 8 by 4: in this way they read the
 * fewest different vec4s. */
static void tiles_lanes(const tiles *t) {
    tg_wgsl *w = t->w;
    tg_wgsl_line(w, "let x = (t & 7) | (((t >> 5u) & 1) << 3u);");
    tg_wgsl_line(w, "let y = ((t >> 3u) & 3) | ((t >> 6u) << 2u);");
    tg_wgsl_line(w, "let fetch_row = t >> 2u;");
    tg_wgsl_line(w, "let fetch_k = t & 3;");
    tg_wgsl_line(w, "let row_to = fetch_k * %d + (fetch_row ^ (fetch_k * 2));", t->block);
    tg_wgsl_line(w, "let column_to = fetch_k * %d + (fetch_row ^ (fetch_k * 2));", TILES_BLOCK);
    for (int i = 0; i < tiles_value_fetches(t); i++) {
        tg_wgsl_line(w, "let value_row%d = min((t + %d) / %lld, %d);", i, i * TILES_SIZE, (long long)t->a.width / 4, TILES_PIECE - 1);
        tg_wgsl_line(w, "let value_k%d = (t + %d) %% %lld;", i, i * TILES_SIZE, (long long)t->a.width / 4);
    }
}

static void tiles_open_columns(const tiles *t) {
    if (!t->a.causal) tg_wgsl_line(t->w, "for (var column0 = 0; column0 < %lld; column0 += %d) {", (long long)t->others, TILES_BLOCK);
    else if (t->keys)
        tg_wgsl_line(t->w, "for (var column0 = row0 / %d * %d; column0 < %lld; column0 += %d) {", TILES_BLOCK, TILES_BLOCK,
                     (long long)t->others, TILES_BLOCK);
    else tg_wgsl_line(t->w, "for (var column0 = 0; column0 <= row0; column0 += %d) {", TILES_BLOCK);
}

static void tiles_bases(const tiles *t) {
    tiles_base(t, &t->a.q, "q");
    tiles_base(t, &t->a.k, "k");
    tiles_base(t, &t->a.v, "v");
    if (t->a.mask.argument >= 0) tiles_base(t, &t->a.mask, "mask");
    if (t->a.op == TG_OP_ATTENTION) return;
    tiles_base(t, &t->a.dout, "dout");
    tiles_base(t, &t->a.lse, "lse");
    tiles_base(t, &t->a.delta, "delta");
}

static void tiles_forward(const tiles *t) {
    tg_wgsl *w = t->w;
    const tg_wgsl_array numbers = {.scalar = "f32", .count = TILES_BLOCK};
    const char *most = tg_wgsl_declare_array(w, "row_most", numbers), *fade = tg_wgsl_declare_array(w, "row_fade", numbers);
    tiles_bases(t);
    tiles_declare_sums(t, 'o');
    for (int i = 0; i < t->own; i++) tg_wgsl_line(w, "var sum%d = 0f;", i);
    tg_wgsl_line(w, "if (t < %d) { %s[t] = %s; }", t->block, most, TG_WGSL_ATTENTION_LEAST);
    tiles_open_columns(t);
    tiles_scores(t, 'c', &t->first, &t->across);
    tiles_weigh(t, most, fade);
    tiles_add(t, 'o', 'c', &t->against);
    tg_wgsl_line(w, "}");
    tiles_store_forward(t, most);
}

static void tiles_dq(const tiles *t) {
    tiles_bases(t);
    tiles_declare_sums(t, 'o');
    tiles_query_numbers(t, &t->a.lse, "lse");
    tiles_query_numbers(t, &t->a.delta, "delta");
    tiles_open_columns(t);
    tiles_scores(t, 'c', &t->first, &t->across);
    tiles_scores(t, 'e', &t->second, &t->against);
    tiles_weigh_back(t);
    tiles_add(t, 'o', 'c', &t->across);
    tg_wgsl_line(t->w, "}");
    tiles_store(t, &t->a.out[0], "out", 'o');
}

static void tiles_dkv(const tiles *t) {
    tiles_declare_sums(t, 'o');
    tiles_declare_sums(t, 'u');
    tg_wgsl_line(t->w, "for (var member = 0; member < %lld; member++) {", (long long)t->a.groups);
    tiles_bases(t);
    tiles_open_columns(t);
    tiles_scores(t, 'c', &t->first, &t->across);
    tiles_scores(t, 'e', &t->second, &t->against);
    tiles_query_numbers(t, &t->a.lse, "lse");
    tiles_query_numbers(t, &t->a.delta, "delta");
    tiles_weigh_back(t);
    tiles_add(t, 'u', 'c', &t->against);
    tiles_add(t, 'o', 'e', &t->across);
    tg_wgsl_line(t->w, "}");
    tg_wgsl_line(t->w, "}");
    tg_wgsl_line(t->w, "let member = 0;");
    tiles_store(t, &t->a.out[0], "dk", 'o');
    tiles_store(t, &t->a.out[1], "dv", 'u');
}

/* Fewer rows for each workgroup where those of 64 would leave processors idle. */
static void tiles_choose_rows(tiles *t) {
    const tg_device_rates *rates = t->w->limits->rates;
    t->own = TILES_ROWS;
    t->block = TILES_BLOCK;
    if (rates == NULL || tiles_heads(t) * tiles_blocks(t) >= (int64_t)TILES_ROUNDS * rates->processors) return;
    t->own = TILES_ROWS / 2;
    t->block = TILES_BLOCK / 2;
}

/* Which operand is on which side. */
static void tiles_take_sides(tiles *t) {
    const tiles_operand q = tiles_take(t->w, &t->a.q, "q"), k = tiles_take(t->w, &t->a.k, "k"), v = tiles_take(t->w, &t->a.v, "v");
    tiles_operand dout = {NULL, NULL, false};
    if (t->a.op != TG_OP_ATTENTION) dout = tiles_take(t->w, &t->a.dout, "dout");
    t->first = t->keys ? k : q;
    t->across = t->keys ? q : k;
    t->second = t->keys ? v : dout;
    t->against = t->keys ? dout : v;
}

bool tg_wgsl_attention_fits(const tg_wgsl *w) {
    const tg_attention_kernel a = tg_attention_read(w->kernel);
    const tg_device_model *limits = w->limits;
    return tg_wgsl_is_lone(w) && !limits->slow_barriers && limits->invocations >= TILES_SIZE &&
           tg_wgsl_workgroup_bytes(w, true) >= TILES_BYTES && a.width % TILES_PIECE == 0 && a.width <= TILES_WIDEST;
}

void tg_wgsl_attention_tiles(tg_wgsl *w) {
    tiles t = {.w = w, .a = tg_attention_read(w->kernel)};
    t.keys = t.a.op == TG_OP_ATTENTION_DKV;
    t.rows = t.keys ? t.a.keys : t.a.queries;
    t.others = t.keys ? t.a.queries : t.a.keys;
    t.vectors = t.a.width % TILES_BLOCK == 0;
    t.groups = (int)t.a.width / (t.vectors ? 64 : 16);
    tiles_choose_rows(&t);
    tiles_take_sides(&t);
    tg_wgsl_begin(w, t.block == TILES_BLOCK ? "tiles of 64 by 64" : "tiles of 32 by 64");
    const int64_t most = t.vectors && 4 * t.a.width > 256 ? 4 * t.a.width : 256;
    t.left = tg_wgsl_declare_array(w, "tile_left", (tg_wgsl_array){.scalar = "f32", .vectors = true, .count = 256});
    t.right = tg_wgsl_declare_array(w, "tile_right", (tg_wgsl_array){.scalar = "f32", .vectors = true, .count = most});
    if (!t.vectors) t.values = tg_wgsl_declare_array(w, "tile_values", (tg_wgsl_array){.scalar = "f32", .count = TILES_PIECE * t.a.width});
    tiles_locate(&t);
    tiles_lanes(&t);
    tiles_scale(&t);
    if (t.a.op == TG_OP_ATTENTION) tiles_forward(&t);
    else if (t.a.op == TG_OP_ATTENTION_DQ) tiles_dq(&t);
    else tiles_dkv(&t);
    tg_wgsl_end(w, tiles_heads(&t) * tiles_blocks(&t), TILES_SIZE);
}
