/* wgsl_direct: contractions without tiles: an invocation owns a few outputs and walks k; several
 * ways of one workgroup may share the k of an output. Must not know how many of each, which
 * src/tile decides. */
#include "emit/wgsl_contract.h"

#include <stdio.h>

static void wgsl_direct_rows(tg_wgsl_contraction *s, const tg_tile_operand *o, const char *first, int32_t count, int64_t total) {
    const int64_t apart = tg_tile_ceil(total, count);
    for (int32_t i = 0; i < count; i++) {
        char row[TG_WGSL_ADDRESS];
        if (i == 0) snprintf(row, sizeof row, "%s", first);
        else if ((i + 1) * apart <= total) snprintf(row, sizeof row, "(%s + %lld)", first, (long long)(i * apart));
        else snprintf(row, sizeof row, "min(%s + %lld, %lld)", first, (long long)(i * apart), (long long)(total - 1));
        tg_wgsl_contract_row(s, o, i, row);
    }
}

/* At the end of each run of additions the sums are added to the totals. */
static void wgsl_direct_flush(tg_wgsl_contraction *s, int64_t step) {
    const tg_tile_choice *c = &s->choice;
    const int run = tg_tile_run(c) / 4;
    tg_wgsl_line(s->w, "if (k / %lld %% %d == %d) {", (long long)step, run, run - 1);
    for (int32_t i = 0; i < c->own_m * c->own_n; i++) {
        const int row = (int)(i / c->own_n), column = (int)(i % c->own_n);
        tg_wgsl_line(s->w, "total%d_%d += c%d_%d;", row, column, row, column);
        tg_wgsl_line(s->w, "c%d_%d = 0.0;", row, column);
    }
    tg_wgsl_line(s->w, "}");
}

static void wgsl_direct_sums(tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int64_t step = (int64_t)4 * c->ways;
    const bool totals = c->part_length > step * (tg_tile_run(c) / 4);
    for (int32_t i = 0; i < c->own_m; i++)
        for (int32_t j = 0; j < c->own_n; j++) {
            tg_wgsl_line(w, "var c%d_%d = 0.0;", (int)i, (int)j);
            if (totals) tg_wgsl_line(w, "var total%d_%d = 0.0;", (int)i, (int)j);
        }
    tg_wgsl_line(w, "for (var k = k_begin%s; k < k_end; k += %lld) {", c->ways > 1 ? " + 4 * way" : "", (long long)step);
    for (int32_t i = 0; i < c->own_m; i++) tg_wgsl_line(w, "let l%d = %sfetch_left(left_%d, k, k_end);", (int)i, w->prefix, (int)i);
    for (int32_t j = 0; j < c->own_n; j++) tg_wgsl_line(w, "let r%d = %sfetch_right(right_%d, k, k_end);", (int)j, w->prefix, (int)j);
    for (int32_t i = 0; i < c->own_m; i++)
        for (int32_t j = 0; j < c->own_n; j++) tg_wgsl_line(w, "c%d_%d += dot(l%d, r%d);", (int)i, (int)j, (int)i, (int)j);
    if (totals) wgsl_direct_flush(s, step);
    tg_wgsl_line(w, "}");
    for (int32_t i = 0; totals && i < c->own_m * c->own_n; i++) {
        const int row = (int)(i / c->own_n), column = (int)(i % c->own_n);
        tg_wgsl_line(w, "c%d_%d += total%d_%d;", row, column, row, column);
    }
}

static void wgsl_direct_finish(tg_wgsl_contraction *s, int64_t cell_rows, int64_t cell_columns) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    char row[TG_WGSL_ADDRESS] = "first_row", column[TG_WGSL_ADDRESS] = "first_column", sum[TG_WGSL_ADDRESS] = "c0_0";
    if (c->own_m > 1) snprintf(row, sizeof row, "first_row + i * %lld", (long long)cell_rows);
    if (c->own_n > 1) snprintf(column, sizeof column, "first_column + j * %lld", (long long)cell_columns);
    if (c->own_m * c->own_n > 1) {
        const char *i = c->own_m > 1 ? "i" : "0", *j = c->own_n > 1 ? "j" : "0";
        snprintf(sum, sizeof sum, "sums[%s * %d + %s]", i, (int)c->own_n, j);
        tg_wgsl_start(w);
        tg_text_add(&w->main, "var sums = array<f32, %d>(", (int)(c->own_m * c->own_n));
        for (int32_t x = 0; x < c->own_m * c->own_n; x++)
            tg_text_add(&w->main, "%sc%d_%d", x ? ", " : "", (int)(x / c->own_n), (int)(x % c->own_n));
        tg_text_add(&w->main, ");");
        tg_wgsl_newline(w);
    }
    const bool row_guard = s->problem.rows % c->own_m != 0, column_guard = s->problem.columns % c->own_n != 0;
    const tg_wgsl_outputs own = {c->own_m, c->own_n, row, column, sum, row_guard, column_guard};
    tg_wgsl_contract_prepare(s, c->parts > 1);
    tg_wgsl_contract_points(s, &own, c->parts > 1);
}

/* let cell: the block of outputs of this invocation; lanes that are left over repeat the last
 * block. */
static void wgsl_direct_own(const tg_wgsl_contraction *s, int64_t cells, int32_t lanes) {
    const tg_tile_choice *c = &s->choice;
    const long long groups = tg_tile_ceil(cells, lanes);
    const bool ragged = cells % lanes != 0;
    tg_wgsl_contract_lanes(s->w, c->size, c->ways, c->ways_first);
    if (c->parts > 1) {
        tg_wgsl_line(s->w, "let part = group / %lld;", groups);
        tg_wgsl_line(s->w, "let own = group %% %lld * %d + lane;", groups, (int)lanes);
    } else tg_wgsl_line(s->w, "let own = group * %d + lane;", (int)lanes);
    if (ragged && c->ways == 1) tg_wgsl_line(s->w, "if (own >= %lld) { return; }", (long long)cells);
    if (ragged && c->ways > 1) tg_wgsl_line(s->w, "let cell = min(own, %lld);", (long long)(cells - 1));
    else tg_wgsl_line(s->w, "let cell = own;");
}

void tg_wgsl_direct(tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    const tg_tile_problem *p = &s->problem;
    tg_wgsl *w = s->w;
    const int32_t lanes = c->size / c->ways;
    const int64_t cell_rows = tg_tile_ceil(p->rows, c->own_m), cell_columns = tg_tile_ceil(p->columns, c->own_n);
    const int64_t cells = p->batch * cell_rows * cell_columns;
    const tg_tile_end end = tg_tile_end_of(p, c, 4);
    tg_wgsl_contract_fetch(s, &p->left, end);
    tg_wgsl_contract_fetch(s, &p->right, end);
    wgsl_direct_own(s, cells, lanes);
    tg_wgsl_contract_cell(s, cell_rows, cell_columns);
    tg_wgsl_contract_range(s);
    tg_wgsl_contract_base(s, &p->left);
    tg_wgsl_contract_base(s, &p->right);
    wgsl_direct_rows(s, &p->left, "first_row", c->own_m, p->rows);
    wgsl_direct_rows(s, &p->right, "first_column", c->own_n, p->columns);
    wgsl_direct_sums(s);
    if (c->ways > 1) {
        tg_wgsl_contract_tree(w, c->ways, c->size, c->ways_first ? 1 : lanes, c->own_m, c->own_n);
        tg_wgsl_line(w, "if (way == 0 && own < %lld) {", (long long)cells);
    }
    wgsl_direct_finish(s, cell_rows, cell_columns);
    if (c->ways > 1) tg_wgsl_line(w, "}");
    tg_wgsl_end(w, tg_tile_ceil(cells, lanes) * c->parts, c->size);
}
