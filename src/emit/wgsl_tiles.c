/* wgsl_tiles: contractions by tiles: a workgroup owns a tile of outputs and walks k piece by piece.
 * tile/layout.h decides how an operand lies in workgroup memory; wgsl_subgroup.c prints products of
 * subgroup matrices. Must not know how a tile is chosen. */
#include "emit/wgsl_contract.h"

#include <stdio.h>

#define TILES_GROUP 16 /* outputs whose epilogues read before the first of them stores */

/* One operand as the text names it. */
typedef struct wgsl_tiles_operand {
    const tg_tile_operand *operand;
    const tg_tile_side *side;
    int32_t first;     /* first register of the piece, if there are two pieces */
    const char *name;  /* "left" or "right" */
    const char *array; /* in workgroup memory, as the module calls it */
    const char *own;   /* "y" or "x": the invocation along this side */
    const char *tile;  /* index of the tile along this side */
} wgsl_tiles_operand;

typedef struct wgsl_tiles {
    tg_wgsl *w;
    tg_wgsl_contraction *s;
    tg_tile_layout layout;
    wgsl_tiles_operand left, right;
    tg_wgsl_matrices matrices; /* if the layout has them */
} wgsl_tiles;

static const char wgsl_tiles_component[4] = {'x', 'y', 'z', 'w'};

/* ---------------------------------------------------------------- from where and to where */

/* let left_r0, left_q0: the row (or four of them) and the k (or four) of the tile that fetch i of
 * this invocation brings. */
static void wgsl_tiles_own_fetch(const wgsl_tiles *t, const wgsl_tiles_operand *o, int i) {
    const tg_tile_side *p = o->side;
    const int32_t inner = p->k_first ? t->layout.k / 4 : p->along_rows ? p->rows / 4 : p->rows;
    const int mask = (int)inner - 1, shift = tg_tile_log2(inner);
    char unit[32];
    snprintf(unit, sizeof unit, i == 0 ? "t" : "(t + %d)", i * (int)t->layout.size);
    tg_wgsl_line(t->w, "let %s_r%d = %s %s %d;", o->name, i, unit, p->k_first ? ">>" : "&", p->k_first ? shift : mask);
    tg_wgsl_line(t->w, "let %s_q%d = %s %s %d;", o->name, i, unit, p->k_first ? "&" : ">>", p->k_first ? mask : shift);
}

/* Declares where fetch i of this invocation comes from (left_0, left_k0) and goes to (left_to0,
 * left_own0). */
static void wgsl_tiles_plan_fetch(const wgsl_tiles *t, const wgsl_tiles_operand *o, int i) {
    const tg_tile_side *p = o->side;
    const int rows = (int)(p->along_rows ? p->rows / 4 : p->rows);
    const int64_t last = (p->along_rows ? p->total / 4 : p->total) - 1;
    const char *name = o->name;
    char row[TG_WGSL_ADDRESS];
    wgsl_tiles_own_fetch(t, o, i);
    if (p->total % p->rows != 0) snprintf(row, sizeof row, "min(%s * %d + %s_r%d, %lld)", o->tile, rows, name, i, (long long)last);
    else snprintf(row, sizeof row, "(%s * %d + %s_r%d)", o->tile, rows, name, i);
    tg_wgsl_contract_row(t->s, o->operand, i, row);
    tg_wgsl_line(t->w, "let %s_k%d = %s_q%d%s;", name, i, name, i, p->along_rows ? "" : " * 4");
    if (t->layout.matrices) {
        tg_wgsl_matrix_target(t->w, &t->layout, p, i);
        return;
    }
    tg_wgsl_line(t->w, "let %s_to%d = %s_q%d * %d + (%s_r%d >> %d);", name, i, name, i, (int)p->height, name, i,
                 tg_tile_log2(p->invocations));
    if (p->k_first)
        tg_wgsl_line(t->w, "let %s_own%d = (%s_r%d & %d) ^ (%s_q%d * %d);", name, i, name, i, (int)p->invocations - 1, name, i,
                     32 / (int)t->layout.k);
    else tg_wgsl_line(t->w, "let %s_own%d = %s_r%d & %d;", name, i, name, i, (int)p->invocations - 1);
}

static void wgsl_tiles_plan(const wgsl_tiles *t, wgsl_tiles_operand *o) {
    const tg_tile_side *p = o->side;
    const int fours = (int)t->layout.k / 4;
    tg_wgsl_contract_base(t->s, o->operand);
    for (int i = 0; i < p->fetches; i++) wgsl_tiles_plan_fetch(t, o, i);
    if (t->layout.matrices) return;
    for (int q = 1; p->k_first && q < fours; q++) tg_wgsl_line(t->w, "let %s%d = %s ^ %d;", o->own, q, o->own, q * 8 / fours);
    const tg_wgsl_array array = {t->s->choice.halves ? "f16" : "f32", true, p->invocations,
                                 (int64_t)p->registers * t->s->choice.tile.buffers};
    o->array = tg_wgsl_declare_array(t->w, o == &t->left ? "tile_left" : "tile_right", array);
}

/* ------------------------------------- a piece into registers, then into workgroup memory */

static bool wgsl_tiles_has_table(const wgsl_tiles *t) { return t->s->left_table != NULL || t->s->right_table != NULL; }

static void wgsl_tiles_fetch_side(const wgsl_tiles *t, const wgsl_tiles_operand *o, const char *let, const char *k) {
    const char *name = o->name;
    for (int i = 0; i < o->side->fetches; i++)
        tg_wgsl_line(t->w, "%snext_%s%d = %sfetch_%s(%s_%d, %s + %s_k%d, k_end);", let, name, i, t->w->prefix, name, name, i, k, name, i);
}

static void wgsl_tiles_fetch(const wgsl_tiles *t, const char *let, const char *k) {
    wgsl_tiles_fetch_side(t, &t->left, let, k);
    wgsl_tiles_fetch_side(t, &t->right, let, k);
}

/* All invocations write the blocks of the tables that k is in. */
static void wgsl_tiles_fill(const wgsl_tiles *t, const char *k) {
    if (t->s->left_table != NULL) tg_wgsl_line(t->w, "%sfill_left(t, %s);", t->w->prefix, k);
    if (t->s->right_table != NULL) tg_wgsl_line(t->w, "%sfill_right(t, %s);", t->w->prefix, k);
}

/* The same, if the piece `ahead` of k is the first of a block. */
static void wgsl_tiles_fill_next(const wgsl_tiles *t, int ahead) {
    char next[32];
    if (!wgsl_tiles_has_table(t) || t->s->problem.k <= TG_TILE_TABLE) return;
    snprintf(next, sizeof next, "k + %d", ahead);
    tg_wgsl_line(t->w, "if (((%s) & %d) == 0) {", next, TG_TILE_TABLE - 1);
    wgsl_tiles_fill(t, next);
    tg_wgsl_line(t->w, "}");
}

/* Fetches the piece `ahead` of k into registers, if the part has one. */
static void wgsl_tiles_fetch_next(const wgsl_tiles *t, int ahead) {
    char next[32];
    snprintf(next, sizeof next, "k + %d", ahead);
    tg_wgsl_line(t->w, "if (%s < k_end) {", next);
    wgsl_tiles_fetch(t, "", next);
    tg_wgsl_line(t->w, "}");
}

static void wgsl_tiles_keep_side(const wgsl_tiles *t, const wgsl_tiles_operand *o) {
    const char *name = o->name, *open = t->s->choice.halves ? "vec4<f16>(" : "", *close = t->s->choice.halves ? ")" : "";
    char first[32] = "";
    if (o->first > 0) snprintf(first, sizeof first, " + %d", (int)o->first);
    for (int i = 0; i < o->side->fetches; i++)
        tg_wgsl_line(t->w, "%s[%s_to%d%s][%s_own%d] = %snext_%s%d%s;", o->array, name, i, first, name, i, open, name, i, close);
}

/* What was fetched goes into workgroup memory. */
static void wgsl_tiles_keep(const wgsl_tiles *t) {
    if (t->s->choice.halves) tg_wgsl_halve(t->w, (int)t->left.side->fetches, (int)t->right.side->fetches);
    if (t->layout.matrices) {
        tg_wgsl_matrix_keep(t->w, &t->matrices);
        return;
    }
    wgsl_tiles_keep_side(t, &t->left);
    wgsl_tiles_keep_side(t, &t->right);
}

/* ---------------------------------------------------------------- products of a piece */

/* let <name><number>: register i of step `step`, which is a k, or the four k `q` */
static void wgsl_tiles_read_as(const wgsl_tiles *t, const wgsl_tiles_operand *o, int step, int q, int i, char name, int number) {
    char own[16];
    if (o->side->k_first && q > 0) snprintf(own, sizeof own, "%s%d", o->own, q);
    else snprintf(own, sizeof own, "%s", o->own);
    const int from = (int)(o->first + step * o->side->height + i);
    tg_wgsl_line(t->w, t->w->f16 ? "let %c%d = vec4<f32>(%s[%d][%s]);" : "let %c%d = %s[%d][%s];", name, number, o->array, from, own);
}

/* let l<i> (r<i>) */
static void wgsl_tiles_read_one(const wgsl_tiles *t, const wgsl_tiles_operand *o, int step, int q, int i) {
    wgsl_tiles_read_as(t, o, step, q, i, o->name[0], i);
}

static void wgsl_tiles_read(const wgsl_tiles *t, const wgsl_tiles_operand *o, int step, int q) {
    for (int i = 0; i < o->side->height; i++) wgsl_tiles_read_one(t, o, step, q, i);
}

static int wgsl_tiles_vectors(const wgsl_tiles *t) { return (int)t->s->choice.own_n / 4; }

/* let b<first>, ...: the invocation's columns of k component `k`, four a vec4, from r0, r1, ... */
static void wgsl_tiles_columns(const wgsl_tiles *t, int k, int first) {
    const char c = wgsl_tiles_component[k];
    for (int j = 0; j < wgsl_tiles_vectors(t); j++) {
        if (t->right.side->along_rows) tg_wgsl_line(t->w, "let b%d = r%d;", first + j, j);
        else
            tg_wgsl_line(t->w, "let b%d = vec4<f32>(r%d.%c, r%d.%c, r%d.%c, r%d.%c);", first + j, 4 * j, c, 4 * j + 1, c, 4 * j + 2, c,
                         4 * j + 3, c);
    }
}

/* c += l r^T, of one row and one k */
static void wgsl_tiles_multiply(const wgsl_tiles *t, int row, int k, int first) {
    const bool rows = t->left.side->along_rows;
    const char c = wgsl_tiles_component[rows ? row % 4 : k];
    for (int j = 0; j < wgsl_tiles_vectors(t); j++)
        tg_wgsl_line(t->w, "c%d_%d = fma(vec4<f32>(l%d.%c), b%d, c%d_%d);", row, j, rows ? row / 4 : row, c, first + j, row, j);
}

/* Four k, k by k: meanwhile l, or r, is in registers for all four k. */
static void wgsl_tiles_step(const wgsl_tiles *t, int q) {
    const bool left_rows = t->left.side->along_rows, right_rows = t->right.side->along_rows;
    if (!left_rows) wgsl_tiles_read(t, &t->left, q, q);
    if (!right_rows) wgsl_tiles_read(t, &t->right, q, q);
    for (int k = 0; k < 4; k++) {
        tg_wgsl_line(t->w, "{");
        if (left_rows) wgsl_tiles_read(t, &t->left, 4 * q + k, q);
        if (right_rows) wgsl_tiles_read(t, &t->right, 4 * q + k, q);
        wgsl_tiles_columns(t, k, 0);
        for (int i = 0; i < t->s->choice.own_m; i++) wgsl_tiles_multiply(t, i, k, 0);
        tg_wgsl_line(t->w, "}");
    }
}

/* The invocation's columns of all four k: b0, b1, .. */
static void wgsl_tiles_four_columns(const wgsl_tiles *t, int q) {
    const int vectors = wgsl_tiles_vectors(t);
    const bool right_rows = t->right.side->along_rows;
    if (!right_rows) wgsl_tiles_read(t, &t->right, q, q);
    for (int k = 0; k < 4; k++) {
        if (!right_rows) wgsl_tiles_columns(t, k, k * vectors);
        for (int j = 0; right_rows && j < vectors; j++) wgsl_tiles_read_as(t, &t->right, 4 * q + k, q, j, 'b', k * vectors + j);
    }
}

/* Four k, row by row, if the left operand comes by four k: only one row of it is in registers, but
 * all four k of the right one. */
static void wgsl_tiles_step_by_rows(const wgsl_tiles *t, int q) {
    wgsl_tiles_four_columns(t, q);
    for (int i = 0; i < t->s->choice.own_m; i++) {
        wgsl_tiles_read_one(t, &t->left, q, q, i);
        for (int k = 0; k < 4; k++) wgsl_tiles_multiply(t, i, k, k * wgsl_tiles_vectors(t));
    }
}

static void wgsl_tiles_piece(const wgsl_tiles *t) {
    if (t->layout.matrices) {
        tg_wgsl_matrix_multiply(t->w, &t->matrices);
        return;
    }
    const bool by_rows = !t->left.side->along_rows && (!t->right.side->along_rows || t->s->choice.tile.by_rows);
    for (int q = 0; q < t->layout.k / 4; q++) {
        tg_wgsl_line(t->w, "{");
        if (by_rows) wgsl_tiles_step_by_rows(t, q);
        else wgsl_tiles_step(t, q);
        tg_wgsl_line(t->w, "}");
    }
}

/* ---------------------------------------------------------------- the walk over k */

/* One line for each vec4 of sums. */
static void wgsl_tiles_each_sum(const wgsl_tiles *t, const char *before, const char *between, const char *after) {
    for (int i = 0; i < t->s->choice.own_m; i++)
        for (int j = 0; j < wgsl_tiles_vectors(t); j++) {
            if (between) tg_wgsl_line(t->w, "%s%d_%d%s%d_%d%s", before, i, j, between, i, j, after);
            else tg_wgsl_line(t->w, "%s%d_%d%s", before, i, j, after);
        }
}

/* Pieces from k = `begin` up to `end`; meanwhile the next piece of the whole part is on its way. */
static void wgsl_tiles_pieces(const wgsl_tiles *t, const char *begin, const char *end) {
    const int piece = (int)t->layout.k;
    tg_wgsl_line(t->w, "for (var k = %s; k < %s; k += %d) {", begin, end, piece);
    tg_wgsl_line(t->w, "workgroupBarrier();");
    wgsl_tiles_keep(t);
    wgsl_tiles_fill_next(t, piece);
    tg_wgsl_line(t->w, "workgroupBarrier();");
    wgsl_tiles_fetch_next(t, piece);
    wgsl_tiles_piece(t);
    tg_wgsl_line(t->w, "}");
}

/* The same with two pieces in workgroup memory: while one is multiplied the other is written, and
 * one barrier separates them. The first one is there already. A run of additions ends after an even
 * number of pieces, or with the part. */
static void wgsl_tiles_pieces_in_turn(const wgsl_tiles *t, const char *begin, const char *end) {
    const int piece = (int)t->layout.k;
    const bool even = tg_tile_end_of(&t->s->problem, &t->s->choice, (int64_t)2 * piece) == TG_TILE_END_EXACT;
    wgsl_tiles other = *t;
    other.left.first = t->left.side->registers;
    other.right.first = t->right.side->registers;
    tg_wgsl_line(t->w, "for (var k = %s; k < %s; k += %d) {", begin, end, 2 * piece);
    wgsl_tiles_fetch_next(t, piece);
    wgsl_tiles_piece(t);
    wgsl_tiles_keep(&other);
    tg_wgsl_line(t->w, "workgroupBarrier();");
    wgsl_tiles_fetch_next(t, 2 * piece);
    if (!even) tg_wgsl_line(t->w, "if (k + %d < %s) {", piece, end);
    wgsl_tiles_piece(&other);
    if (!even) tg_wgsl_line(t->w, "}");
    wgsl_tiles_keep(t);
    tg_wgsl_line(t->w, "workgroupBarrier();");
    tg_wgsl_line(t->w, "}");
}

static void wgsl_tiles_walk(const wgsl_tiles *t, const char *begin, const char *end) {
    if (t->s->choice.tile.buffers > 1) wgsl_tiles_pieces_in_turn(t, begin, end);
    else wgsl_tiles_pieces(t, begin, end);
}

static void wgsl_tiles_sums(wgsl_tiles *t) {
    tg_wgsl *w = t->w;
    const int run = (int)tg_tile_run(&t->s->choice);
    if (t->layout.matrices) t->matrices = tg_wgsl_matrix_declare(w, &t->layout);
    else wgsl_tiles_each_sum(t, "var c", NULL, " = vec4<f32>();");
    if (wgsl_tiles_has_table(t)) {
        wgsl_tiles_fill(t, "k_begin");
        tg_wgsl_line(w, "workgroupBarrier();");
    }
    wgsl_tiles_fetch(t, "var ", "k_begin");
    if (t->s->choice.tile.buffers > 1) {
        wgsl_tiles_keep(t);
        tg_wgsl_line(w, "workgroupBarrier();");
    }
    /* matrices cannot be added: one run */
    if (t->layout.matrices || t->s->choice.part_length <= run) {
        wgsl_tiles_walk(t, "k_begin", "k_end");
        return;
    }
    wgsl_tiles_each_sum(t, "var total", NULL, " = vec4<f32>();");
    tg_wgsl_line(w, "for (var chain = k_begin; chain < k_end; chain += %d) {", run);
    tg_wgsl_line(w, "let chain_end = min(chain + %d, k_end);", run);
    wgsl_tiles_walk(t, "chain", "chain_end");
    wgsl_tiles_each_sum(t, "total", " += c", ";");
    wgsl_tiles_each_sum(t, "c", NULL, " = vec4<f32>();");
    tg_wgsl_line(w, "}");
    wgsl_tiles_each_sum(t, "c", " = total", ";");
}

/* ---------------------------------------------------------------- after the sums */

/* Row `index` (i or j) of the invocation, in the whole problem. */
static void wgsl_tiles_row(const wgsl_tiles_operand *o, char index, char *text, size_t size) {
    const int rows = (int)o->side->rows, invocations = (int)o->side->invocations;
    if (o->side->along_rows)
        snprintf(text, size, "%s * %d + (%c >> 2) * %d + %s * 4 + (%c & 3)", o->tile, rows, index, 4 * invocations, o->own, index);
    else snprintf(text, size, "%s * %d + %s + %c * %d", o->tile, rows, o->own, index, invocations);
}

/* The same for a number. */
static void wgsl_tiles_row_of(const wgsl_tiles_operand *o, int index, char *text, size_t size) {
    const int rows = (int)o->side->rows, invocations = (int)o->side->invocations;
    if (o->side->along_rows)
        snprintf(text, size, "%s * %d + %s * 4 + %d", o->tile, rows, o->own, (index >> 2) * 4 * invocations + (index & 3));
    else snprintf(text, size, "%s * %d + %s + %d", o->tile, rows, o->own, index * invocations);
}

/* Output (i, j) of the invocation by number. */
static tg_wgsl_output wgsl_tiles_output(const wgsl_tiles *t, int i, int j) {
    tg_wgsl_output o;
    wgsl_tiles_row_of(&t->left, i, o.row, sizeof o.row);
    wgsl_tiles_row_of(&t->right, j, o.column, sizeof o.column);
    snprintf(o.sum, sizeof o.sum, "c%d_%d.%c", i, j / 4, wgsl_tiles_component[j % 4]);
    return o;
}

/* The epilogue of each output by itself: without an array of sums, which would lie in memory. */
static void wgsl_tiles_finish_each(const wgsl_tiles *t, bool row_guard, bool column_guard) {
    const tg_tile_choice *c = &t->s->choice;
    const bool partial = c->parts > 1;
    tg_wgsl_output group[TILES_GROUP];
    int32_t count = 0;
    tg_wgsl_contract_prepare(t->s, partial);
    for (int i = 0; i < c->own_m; i++)
        for (int j = 0; j < c->own_n; j++) {
            group[count++] = wgsl_tiles_output(t, i, j);
            if (partial || !tg_wgsl_contract_reads(t->s)) {
                const tg_wgsl_outputs one = {1, 1, group[0].row, group[0].column, group[0].sum, row_guard, column_guard};
                tg_wgsl_contract_points(t->s, &one, partial);
                count = 0;
            } else if (count == TILES_GROUP || (i + 1 == c->own_m && j + 1 == c->own_n)) {
                tg_wgsl_contract_group(t->s, group, count, row_guard, column_guard);
                count = 0;
            }
        }
}

/* A long epilogue that reads memory: the outputs of one row in a group, or four of them where texts
 * must be short. */
static void wgsl_tiles_finish_groups(const wgsl_tiles *t, bool row_guard, bool column_guard) {
    const tg_tile_choice *c = &t->s->choice;
    const int vectors = wgsl_tiles_vectors(t), together = tg_wgsl_is_lone(t->w) && c->own_n <= TILES_GROUP ? (int)c->own_n : 4;
    tg_wgsl_output group[TILES_GROUP];
    tg_wgsl_contract_prepare(t->s, false);
    tg_wgsl_line(t->w, "for (var i = 0; i < %d; i++) {", (int)c->own_m);
    for (int first = 0; first < c->own_n; first += together) {
        for (int j = first; j < first + together; j++) {
            tg_wgsl_output *o = &group[j - first];
            wgsl_tiles_row(&t->left, 'i', o->row, sizeof o->row);
            wgsl_tiles_row_of(&t->right, j, o->column, sizeof o->column);
            snprintf(o->sum, sizeof o->sum, "sums[i * %d + %d].%c", vectors, j / 4, wgsl_tiles_component[j % 4]);
        }
        tg_wgsl_contract_group(t->s, group, together, row_guard, column_guard);
    }
    tg_wgsl_line(t->w, "}");
}

static void wgsl_tiles_finish(const wgsl_tiles *t, bool row_guard, bool column_guard) {
    const tg_tile_choice *c = &t->s->choice;
    tg_wgsl *w = t->w;
    const int vectors = wgsl_tiles_vectors(t), sums = (int)c->own_m * vectors;
    char row[TG_WGSL_ADDRESS], column[TG_WGSL_ADDRESS], sum[TG_WGSL_ADDRESS];
    wgsl_tiles_row(&t->left, 'i', row, sizeof row);
    wgsl_tiles_row(&t->right, 'j', column, sizeof column);
    snprintf(sum, sizeof sum, vectors > 1 ? "sums[i * %d + (j >> 2)][j & 3]" : "sums[i][j]", vectors);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "var sums = array<vec4<f32>, %d>(", sums);
    for (int x = 0; x < sums; x++) tg_text_add(&w->main, "%sc%d_%d", x ? ", " : "", x / vectors, x % vectors);
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
    if (c->parts == 1 && tg_wgsl_contract_reads(t->s)) {
        wgsl_tiles_finish_groups(t, row_guard, column_guard);
        return;
    }
    const tg_wgsl_outputs own = {c->own_m, c->own_n, row, column, sum, row_guard, column_guard};
    tg_wgsl_contract_prepare(t->s, c->parts > 1);
    tg_wgsl_contract_points(t->s, &own, c->parts > 1);
}

/* The sums of subgroup matrices pass through workgroup memory, from where each invocation takes
 * some. */
static void wgsl_tiles_finish_matrices(const wgsl_tiles *t, bool guarded) {
    const tg_tile_problem *p = &t->s->problem;
    const bool partial = t->s->choice.parts > 1;
    tg_wgsl *w = t->w;
    tg_wgsl_contract_prepare(t->s, partial);
    tg_wgsl_matrix_each_sum(w, &t->matrices);
    tg_wgsl_line(w, "let row = tile_row * %d + in_row;", (int)t->left.side->rows);
    tg_wgsl_line(w, "let column = tile_column * %d + in_column;", (int)t->right.side->rows);
    if (guarded) tg_wgsl_line(w, "if ((row < %lld) & (column < %lld)) {", (long long)p->rows, (long long)p->columns);
    tg_wgsl_contract_point(t->s, "sum", partial);
    for (int i = 0; i < 2 + guarded; i++) tg_wgsl_line(w, "}");
}

/* ---------------------------------------------------------------- the stage */

/* Which tile this workgroup owns. Bands of eight tile rows, walked column by column, keep in the
 * second-level cache what workgroups read that run at about the same time. */
static void wgsl_tiles_locate(const wgsl_tiles *t, int64_t tile_rows, int64_t tile_columns) {
    tg_wgsl *w = t->w;
    const int64_t tiles = tile_rows * tile_columns, batch = t->s->problem.batch;
    if (t->s->choice.parts > 1) tg_wgsl_line(w, "let part = group / %lld;", (long long)(tiles * batch));
    tg_wgsl_line(w, "let batch = group / %lld %% %lld;", (long long)tiles, (long long)batch);
    tg_wgsl_line(w, "let tile = group %% %lld;", (long long)tiles);
    if (tile_rows <= 8 || tile_columns == 1) {
        tg_wgsl_line(w, "let tile_row = tile %% %lld;", (long long)tile_rows);
        tg_wgsl_line(w, "let tile_column = tile / %lld;", (long long)tile_rows);
        return;
    }
    tg_wgsl_line(w, "let band = tile / %lld;", (long long)(8 * tile_columns));
    if (tile_rows % 8 == 0) tg_wgsl_line(w, "let band_rows = 8;");
    else tg_wgsl_line(w, "let band_rows = min(8, %lld - band * 8);", (long long)tile_rows);
    tg_wgsl_line(w, "let in_band = tile - band * %lld;", (long long)(8 * tile_columns));
    tg_wgsl_line(w, "let tile_row = band * 8 + in_band %% band_rows;");
    tg_wgsl_line(w, "let tile_column = in_band / band_rows;");
}

/* let x, y: 32 neighbouring invocations lie 8 by 4: in this way they read the fewest different
 * vec4s. */
static void wgsl_tiles_lanes(tg_wgsl *w, int32_t invocations) {
    const int across = tg_tile_log2(invocations / 8);
    tg_wgsl_line(w, "let x = (t & 7) | (((t >> 5) & %d) << 3);", (1 << across) - 1);
    tg_wgsl_line(w, "let y = ((t >> 3) & 3) | ((t >> %d) << 2);", 5 + across);
}

static const char *wgsl_tiles_table(const wgsl_tiles *t, const tg_tile_operand *o, const char *name) {
    if (!tg_tile_has_table(o, &t->s->choice)) return NULL;
    return tg_wgsl_declare_array(t->w, name, (tg_wgsl_array){.scalar = "i32", .vectors = true, .count = TG_TILE_TABLE / 4});
}

void tg_wgsl_tiles(tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    tg_tile_problem *p = &s->problem;
    wgsl_tiles t = {.w = s->w, .s = s, .layout = tg_tile_lay_out(p, c)};
    t.left = (wgsl_tiles_operand){.operand = &p->left, .side = &t.layout.left, .name = "left", .own = "y", .tile = "tile_row"};
    t.right = (wgsl_tiles_operand){.operand = &p->right, .side = &t.layout.right, .name = "right", .own = "x", .tile = "tile_column"};
    const int64_t tile_rows = tg_tile_ceil(p->rows, c->tile.m), tile_columns = tg_tile_ceil(p->columns, c->tile.n);
    const bool row_guard = p->rows % c->tile.m != 0, column_guard = p->columns % c->tile.n != 0;
    const tg_tile_end end = tg_tile_end_of(p, c, c->tile.k);
    s->left_table = wgsl_tiles_table(&t, &p->left, "table_left");
    s->right_table = wgsl_tiles_table(&t, &p->right, "table_right");
    tg_wgsl_contract_fetch(s, &p->left, end);
    tg_wgsl_contract_fetch(s, &p->right, end);
    wgsl_tiles_locate(&t, tile_rows, tile_columns);
    tg_wgsl_contract_range(s);
    s->w->f16 = c->halves;
    if (!t.layout.matrices) wgsl_tiles_lanes(s->w, t.layout.right.invocations);
    wgsl_tiles_plan(&t, &t.left);
    wgsl_tiles_plan(&t, &t.right);
    wgsl_tiles_sums(&t);
    if (t.layout.matrices) wgsl_tiles_finish_matrices(&t, row_guard || column_guard);
    else if (c->tile.unrolled) wgsl_tiles_finish_each(&t, row_guard, column_guard);
    else wgsl_tiles_finish(&t, row_guard, column_guard);
    tg_wgsl_end(s->w, p->batch * tile_rows * tile_columns * c->parts, c->size);
}

#undef TILES_GROUP
