/* wgsl_panels: contractions of a chain in which few rows meet many columns: the rows of the left
 * operand lie in workgroup memory, an invocation owns a column of all of them for a part of k. Must
 * not know how many of each, which src/tile decides. */
#include "emit/wgsl_contract.h"

#include <stdio.h>

/* Rows [panel * rows, ..) and k [chunk, chunk + panel_k) of the left operand, into the array
 * `rows`: [row][k / 4]. */
static void wgsl_panels_fill(tg_wgsl_contraction *s, const char *rows) {
    const tg_tile_choice *c = &s->choice;
    const int32_t fours = c->panel_k / 4;
    char row[TG_WGSL_ADDRESS];
    tg_wgsl_line(s->w, "for (var f = t; f < %d; f += %d) {", (int)(c->panel * fours), (int)c->size);
    if (s->problem.rows % c->panel != 0)
        snprintf(row, sizeof row, "min(panel * %d + f / %d, %lld)", (int)c->panel, (int)fours, (long long)s->problem.rows - 1);
    else snprintf(row, sizeof row, "(panel * %d + f / %d)", (int)c->panel, (int)fours);
    tg_wgsl_contract_row(s, &s->problem.left, 0, row);
    tg_wgsl_line(s->w, "%s[f] = %sfetch_left(left_0, chunk + f %% %d * 4, %lld);", rows, s->w->prefix, (int)fours, (long long)s->problem.k);
    tg_wgsl_line(s->w, "}");
    tg_wgsl_line(s->w, "workgroupBarrier();");
}

static void wgsl_panels_sums(tg_wgsl_contraction *s, const char *rows, int32_t lanes) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t fours = c->panel_k / 4;
    const bool chunks = c->panel_k < c->part_length, idle = c->ways * lanes < c->size;
    for (int32_t i = 0; i < c->panel; i++) tg_wgsl_line(w, "var c%d = 0.0;", (int)i);
    if (chunks) tg_wgsl_line(w, "for (var chunk = 0; chunk < %lld; chunk += %d) {", (long long)s->problem.k, (int)c->panel_k);
    else tg_wgsl_line(w, "let chunk = 0;");
    wgsl_panels_fill(s, rows);
    if (idle) tg_wgsl_line(w, "if (way < %d) {", (int)c->ways);
    tg_wgsl_line(w, "for (var q = way; q < %d; q += %d) {", (int)fours, (int)c->ways);
    tg_wgsl_line(w, "let r = %sfetch_right(right_0, chunk + q * 4, %lld);", w->prefix, (long long)s->problem.k);
    for (int32_t i = 0; i < c->panel; i++) tg_wgsl_line(w, "c%d += dot(%s[q + %d], r);", (int)i, rows, (int)(i * fours));
    tg_wgsl_line(w, "}");
    if (idle) tg_wgsl_line(w, "}");
    if (!chunks) return;
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "}");
}

/* `let column` from `lane`, a name */
static void wgsl_panels_column(tg_wgsl_contraction *s, const char *name, const char *lane, int32_t lanes) {
    if (s->problem.columns > lanes)
        tg_wgsl_line(s->w, "let %s = group %% %lld * %d + %s;", name, (long long)tg_tile_ceil(s->problem.columns, lanes), (int)lanes, lane);
    else tg_wgsl_line(s->w, "let %s = %s;", name, lane);
}

/* One output: `row`, `column` are in scope. */
static void wgsl_panels_point(tg_wgsl_contraction *s, const char *sum, int32_t lanes) {
    const tg_tile_problem *p = &s->problem;
    const bool guarded = p->rows % s->choice.panel != 0 || p->columns % lanes != 0;
    if (guarded) tg_wgsl_line(s->w, "if ((row < %lld) & (column < %lld)) {", (long long)p->rows, (long long)p->columns);
    tg_wgsl_contract_point(s, sum, false);
    if (guarded) tg_wgsl_line(s->w, "}");
}

static void wgsl_panels_alone(tg_wgsl_contraction *s, int32_t lanes) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    wgsl_panels_column(s, "column", "lane", lanes);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "var sums = array<f32, %d>(", (int)c->panel);
    for (int32_t i = 0; i < c->panel; i++) tg_text_add(&w->main, "%sc%d", i ? ", " : "", (int)i);
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
    tg_wgsl_line(w, "for (var i = 0; i < %d; i++) {", (int)c->panel);
    tg_wgsl_line(w, "let row = panel * %d + i;", (int)c->panel);
    wgsl_panels_point(s, "sums[i]", lanes);
    tg_wgsl_line(w, "}");
}

/* Several ways: their sums replace the rows in the array `sums`, four in a vector, and all
 * invocations share the outputs. */
static void wgsl_panels_together(tg_wgsl_contraction *s, const char *sums, int32_t lanes) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t stride = lanes * c->ways, vectors = (int32_t)tg_tile_ceil(c->panel, 4);
    if (c->panel_k == c->part_length) tg_wgsl_line(w, "workgroupBarrier();");
    if (stride < c->size) tg_wgsl_line(w, "if (way < %d) {", (int)c->ways);
    for (int32_t v = 0; v < vectors; v++) {
        tg_wgsl_start(w);
        tg_text_add(&w->main, "%s[%d + t] = vec4<f32>(", sums, (int)(v * stride));
        for (int32_t i = 4 * v; i < 4 * v + 4; i++) {
            if (i < c->panel) tg_text_add(&w->main, "%sc%d", i > 4 * v ? ", " : "", (int)i);
            else tg_text_add(&w->main, ", 0.0");
        }
        tg_text_add(&w->main, ");");
        tg_wgsl_newline(w);
    }
    if (stride < c->size) tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "for (var o = t; o < %d; o += %d) {", (int)(c->panel * lanes), (int)c->size);
    tg_wgsl_line(w, "let r = o >> %du;", tg_tile_log2(lanes));
    tg_wgsl_line(w, "let at = (r >> 2u) * %d + (o & %d);", (int)stride, (int)lanes - 1);
    tg_wgsl_line(w, "var sum = %s[at][r & 3];", sums);
    for (int32_t way = 1; way < c->ways; way++) tg_wgsl_line(w, "sum += %s[at + %d][r & 3];", sums, (int)(way * lanes));
    tg_wgsl_line(w, "let row = panel * %d + r;", (int)c->panel);
    char lane[32];
    snprintf(lane, sizeof lane, "(o & %d)", (int)lanes - 1);
    wgsl_panels_column(s, "column", lane, lanes);
    wgsl_panels_point(s, "sum", lanes);
    tg_wgsl_line(w, "}");
}

void tg_wgsl_panels(tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t lanes = c->lanes;
    const int64_t panels = tg_tile_ceil(s->problem.rows, c->panel), blocks = tg_tile_ceil(s->problem.columns, lanes);
    const tg_tile_end end = tg_tile_end_of(&s->problem, c, c->panel_k);
    const int64_t vectors =
        tg_tile_max((int64_t)c->panel * (c->panel_k / 4), c->ways > 1 ? (int64_t)c->size * tg_tile_ceil(c->panel, 4) : 0);
    char column[64];
    tg_wgsl_contract_fetch(s, &s->problem.left, end);
    tg_wgsl_contract_fetch(s, &s->problem.right, end);
    const char *rows = tg_wgsl_declare_array(w, "panel_left", (tg_wgsl_array){.scalar = "f32", .vectors = true, .count = vectors});
    tg_wgsl_line(w, "let lane = t & %d;", (int)lanes - 1);
    tg_wgsl_line(w, "let way = t >> %du;", tg_tile_log2(lanes));
    tg_wgsl_line(w, blocks > 1 ? "let panel = group / %lld;" : "let panel = group;", (long long)blocks);
    wgsl_panels_column(s, "own", "lane", lanes);
    tg_wgsl_contract_base(s, &s->problem.left);
    tg_wgsl_contract_base(s, &s->problem.right);
    snprintf(column, sizeof column, s->problem.columns % lanes != 0 ? "min(own, %lld)" : "own", (long long)s->problem.columns - 1);
    tg_wgsl_contract_row(s, &s->problem.right, 0, column);
    wgsl_panels_sums(s, rows, lanes);
    tg_wgsl_body(w, TG_PHASE_TOP);
    if (c->ways > 1) wgsl_panels_together(s, rows, lanes);
    else wgsl_panels_alone(s, lanes);
    tg_wgsl_end(w, panels * blocks, c->size);
}
