/* wgsl_contract: contractions in WGSL: the stage of the chosen method, the stage that adds partial
 * sums, and what all methods share. src/tile decides on the method and its sizes. Must not know
 * what the epilogue computes, nor devices. */
#include "emit/wgsl_contract.h"

#include <stdio.h>

/* ---------------------------------------------------------------- operands */

const char *tg_wgsl_side(const tg_wgsl_contraction *s, const tg_tile_operand *o) { return o == &s->problem.left ? "left" : "right"; }

/* sum over the axis's loops of stride * index, from the flat number `x` (an operand that binds
 * tighter than /) */
static void wgsl_contract_offset(tg_text_buffer *text, const tg_tile_axis *axis, const char *x, bool first) {
    int64_t below = 1;
    for (int32_t d = 0; d < axis->count; d++) below *= axis->extent[d];
    for (int32_t d = 0; d < axis->count; d++) {
        below /= axis->extent[d];
        const int64_t stride = axis->stride[d], size = stride < 0 ? -stride : stride;
        if (stride == 0) continue;
        tg_text_add(text, "%s", first ? (stride < 0 ? "-" : "") : stride < 0 ? " - " : " + ");
        first = false;
        tg_text_add(text, "%s", x);
        if (below > 1) tg_text_add(text, " / %lld", (long long)below);
        if (d > 0) tg_text_add(text, " %% %lld", (long long)axis->extent[d]);
        if (size != 1) tg_text_add(text, " * %lld", (long long)size);
    }
    if (first) tg_text_add(text, "0");
}

void tg_wgsl_contract_row(tg_wgsl_contraction *s, const tg_tile_operand *o, int32_t i, const char *row) {
    tg_text_buffer *text = &s->w->main;
    const char *name = tg_wgsl_side(s, o);
    tg_wgsl_start(s->w);
    tg_text_add(text, "let %s_%d = %s_base", name, (int)i, name);
    wgsl_contract_offset(text, &o->row, row, false);
    tg_text_add(text, ";");
    tg_wgsl_newline(s->w);
}

void tg_wgsl_contract_base(tg_wgsl_contraction *s, const tg_tile_operand *o) {
    tg_text_buffer *text = &s->w->main;
    tg_wgsl_start(s->w);
    tg_text_add(text, "let %s_base = ", tg_wgsl_side(s, o));
    tg_wgsl_slice(s->w, o->slice);
    tg_text_add(text, "%lld", (long long)o->offset);
    if (o->batch.count > 0) wgsl_contract_offset(text, &o->batch, "batch", false);
    tg_text_add(text, ";");
    tg_wgsl_newline(s->w);
}

static void wgsl_contract_element(tg_wgsl *w, const tg_tile_operand *o, const char *k) {
    const tg_wgsl_memory memory = o->wide ? tg_wgsl_argument_vectors(w, o->argument) : tg_wgsl_argument(w, o->argument);
    tg_text_buffer *text = &w->functions;
    tg_wgsl_open_read(text, &memory);
    tg_text_add(text, "row");
    wgsl_contract_offset(text, &o->k, k, false);
    tg_wgsl_close_read(text, &memory);
}

/* Element i of four k: from its own division of k, which is at most `last` (0: no need to ask), from
 * `at`, the address of the first, or from `at`, those of all four. */
static void wgsl_contract_scalar(tg_wgsl *w, const tg_tile_operand *o, int i, bool tabled, bool even, int64_t last) {
    const tg_wgsl_memory memory = tg_wgsl_argument(w, o->argument);
    tg_text_buffer *text = &w->functions;
    if (!tabled && !even) {
        char k[64];
        if (last > 0) snprintf(k, sizeof k, "min(k + %d, %lld)", i, (long long)last);
        else snprintf(k, sizeof k, i > 0 ? "(k + %d)" : "k", i);
        wgsl_contract_element(w, o, k);
        return;
    }
    tg_wgsl_open_read(text, &memory);
    if (tabled) tg_text_add(text, "at.%c", "xyzw"[i]);
    else tg_text_add(text, i == 0 ? "at" : "at + %lld", (long long)(i * o->k.stride[o->k.count - 1]));
    tg_wgsl_close_read(text, &memory);
}

static void wgsl_contract_fetch_scalars(const tg_wgsl_contraction *s, const tg_tile_operand *o, tg_tile_end end) {
    tg_text_buffer *text = &s->w->functions;
    const char *table = o == &s->problem.left ? s->left_table : s->right_table;
    /* with one loop of k nothing is divided */
    const bool even = o->k.count > 1 && tg_tile_even_fours(o);
    /* up to four k without tiles: k = 0 is the only step */
    const bool guarded = end == TG_TILE_END_ANY && (s->choice.method == TG_TILE_TILES || s->problem.k > 4);
    /* tables repeat the last k, so there all four are read, with no branch between the reads */
    const bool selects = guarded && (s->left_table != NULL || s->right_table != NULL);
    if (table != NULL) tg_text_add(text, "    let at = row + %s[(k & %d) >> 2u];\n", table, TG_TILE_TABLE - 1);
    if (even) {
        tg_text_add(text, "    let at = row");
        wgsl_contract_offset(text, &o->k, "k", false);
        tg_text_add(text, ";\n");
    }
    tg_text_add(text, "    var v = vec4<f32>();\n");
    for (int i = 0; i < 4; i++) {
        if (end == TG_TILE_END_ANY && !guarded && i >= s->problem.k) break;
        tg_text_add(text, "    ");
        if (guarded && !selects) tg_text_add(text, "if (k + %d < k_end) { ", i);
        tg_text_add(text, selects ? "v.%c = select(0.0, " : "v.%c = ", "xyzw"[i]);
        wgsl_contract_scalar(s->w, o, i, table != NULL, even, selects ? s->problem.k - 1 : 0);
        if (selects) tg_text_add(text, ", k + %d < k_end);\n", i);
        else tg_text_add(text, guarded ? "; }\n" : ";\n");
    }
    tg_text_add(text, "    return v;\n}\n");
}

/* Entries beyond the last k repeat it. */
static void wgsl_contract_fill(const tg_wgsl_contraction *s, const tg_tile_operand *o, const char *table) {
    tg_text_buffer *text = &s->w->functions;
    const int fours = TG_TILE_TABLE / 4;
    tg_text_add(text, "// offsets of %d k in the operand\n", TG_TILE_TABLE);
    tg_text_add(text, "fn %sfill_%s(t: i32, k: i32) {\n", s->w->prefix, tg_wgsl_side(s, o));
    tg_text_add(text, "    for (var e = t; e < %d; e += %d) {\n", fours, (int)s->choice.size);
    tg_text_add(text, "        let q = min((k & %d) + 4 * e + vec4<i32>(0, 1, 2, 3), vec4<i32>(%lld));\n", -TG_TILE_TABLE,
                (long long)s->problem.k - 1);
    tg_text_add(text, "        %s[e] = ", table);
    wgsl_contract_offset(text, &o->k, "q", true);
    tg_text_add(text, ";\n    }\n}\n");
}

void tg_wgsl_contract_fetch(tg_wgsl_contraction *s, const tg_tile_operand *o, tg_tile_end end) {
    tg_text_buffer *text = &s->w->functions;
    const char *table = o == &s->problem.left ? s->left_table : s->right_table;
    if (table != NULL) wgsl_contract_fill(s, o, table);
    tg_text_add(text, "// %s at address row, from k on; 0 beyond k_end\n", o->along_rows ? "four rows" : "four k of the row");
    tg_text_add(text, "fn %sfetch_%s(row: i32, k: i32, k_end: i32) -> vec4<f32> {\n", s->w->prefix, tg_wgsl_side(s, o));
    const bool whole = end != TG_TILE_END_EXACT && (o->along_rows || end == TG_TILE_END_FOURS);
    if (whole) tg_text_add(text, "    if (k >= k_end) { return vec4<f32>(); }\n");
    if (!o->wide) {
        wgsl_contract_fetch_scalars(s, o, end);
        return;
    }
    tg_text_add(text, "    return ");
    wgsl_contract_element(s->w, o, o->along_rows ? "k" : "(k / 4)");
    tg_text_add(text, ";\n}\n");
}

void tg_wgsl_contract_range(const tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    if (c->parts == 1) {
        tg_wgsl_line(s->w, "let k_begin = 0;");
        tg_wgsl_line(s->w, "let k_end = %lld;", (long long)s->problem.k);
        return;
    }
    tg_wgsl_line(s->w, "let k_begin = part * %lld;", (long long)c->part_length);
    tg_wgsl_line(s->w, "let k_end = min(k_begin + %lld, %lld);", (long long)c->part_length, (long long)s->problem.k);
}

/* ------------------------------------------------------- invocations that share an output */

void tg_wgsl_contract_tree(tg_wgsl *w, int32_t ways, int32_t size, int32_t step, int32_t m, int32_t n) {
    const char *sums = tg_wgsl_declare_array(w, "shared_sums", (tg_wgsl_array){.scalar = "f32", .count = (int64_t)size * m * n});
    for (int32_t i = 0; i < m * n; i++) tg_wgsl_line(w, "%s[%d + t] = c%d_%d;", sums, (int)(i * size), (int)(i / n), (int)(i % n));
    for (int32_t half = ways / 2; half > 0; half /= 2) {
        tg_wgsl_line(w, "workgroupBarrier();");
        tg_wgsl_line(w, "if (way < %d) {", (int)half);
        for (int32_t i = 0; i < m * n; i++)
            tg_wgsl_line(w, "%s[%d + t] += %s[%d + t];", sums, (int)(i * size), sums, (int)(i * size + half * step));
        tg_wgsl_line(w, "}");
    }
    for (int32_t i = 0; i < m * n; i++) tg_wgsl_line(w, "c%d_%d = %s[%d + t];", (int)(i / n), (int)(i % n), sums, (int)(i * size));
}

void tg_wgsl_contract_lanes(tg_wgsl *w, int32_t size, int32_t ways, bool ways_first) {
    const int32_t lanes = size / ways;
    if (ways == 1) {
        tg_wgsl_line(w, "let lane = t;");
        return;
    }
    tg_wgsl_line(w, "let lane = t %s %d;", ways_first ? "/" : "%", (int)(ways_first ? ways : lanes));
    tg_wgsl_line(w, "let way = t %s %d;", ways_first ? "%" : "/", (int)(ways_first ? ways : lanes));
}

/* ---------------------------------------------------------------- after the sums */

/* The loops' indices from `row` and `column`. */
static void wgsl_contract_decode(tg_wgsl_contraction *s) {
    const tg_kernel *kernel = s->w->kernel;
    const tg_tile_problem *p = &s->problem;
    const char *column = "column";
    if (p->folded > 0) {
        tg_wgsl_line(s->w, "let of_batch = column / %lld;", (long long)p->folded);
        tg_wgsl_line(s->w, "let in_batch = column %% %lld;", (long long)p->folded);
        tg_wgsl_decode(s->w, "of_batch", 0, kernel->m_begin);
        column = "in_batch";
    }
    tg_wgsl_decode(s->w, p->swapped ? "row" : column, kernel->n_begin, kernel->outer_count);
    tg_wgsl_decode(s->w, p->swapped ? column : "row", kernel->m_begin, kernel->n_begin);
}

void tg_wgsl_contract_point(tg_wgsl_contraction *s, const char *sum, bool partial) {
    tg_wgsl *w = s->w;
    const tg_tile_problem *p = &s->problem;
    if (partial) {
        tg_wgsl_write_scratch(w, "f32", sum, "%lld + ((part * %lld + batch) * %lld + row) * %lld + column", (long long)s->scratch,
                              (long long)p->batch, (long long)p->rows, (long long)p->columns);
        return;
    }
    wgsl_contract_decode(s);
    tg_wgsl_line(w, "let acc = %s;", sum);
    w->accumulator = "acc";
    tg_wgsl_body(w, TG_PHASE_ELEMENT);
}

static void wgsl_contract_open(tg_wgsl *w, char index, int32_t count) {
    if (count > 1) tg_wgsl_line(w, "for (var %c = 0; %c < %d; %c++) {", index, index, (int)count, index);
    else tg_wgsl_line(w, "{");
}

void tg_wgsl_contract_prepare(tg_wgsl_contraction *s, bool partial) {
    if (partial) return;
    if (s->problem.folded == 0) tg_wgsl_decode(s->w, "batch", 0, s->w->kernel->m_begin);
    tg_wgsl_body(s->w, TG_PHASE_TOP);
}

void tg_wgsl_contract_points(tg_wgsl_contraction *s, const tg_wgsl_outputs *p, bool partial) {
    tg_wgsl *w = s->w;
    wgsl_contract_open(w, 'i', p->m);
    tg_wgsl_line(w, "let row = %s;", p->row);
    if (p->row_guard) tg_wgsl_line(w, "if (row < %lld) {", (long long)s->problem.rows);
    wgsl_contract_open(w, 'j', p->n);
    tg_wgsl_line(w, "let column = %s;", p->column);
    if (p->column_guard) tg_wgsl_line(w, "if (column < %lld) {", (long long)s->problem.columns);
    tg_wgsl_contract_point(s, p->sum, partial);
    for (int i = 0; i < 2 + p->row_guard + p->column_guard; i++) tg_wgsl_line(w, "}");
}

bool tg_wgsl_contract_reads(const tg_wgsl_contraction *s) {
    const tg_wgsl *w = s->w;
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const int32_t op = w->kernel->body[i].op;
        if (w->body[i].live && w->body[i].phase == TG_PHASE_ELEMENT && (op == TG_K_LOAD || op == TG_K_GATHER)) return true;
    }
    return false;
}

/* Calls `visit` for each live store of the epilogue. */
static void wgsl_contract_each_store(tg_wgsl *w, int32_t output, void (*visit)(tg_wgsl *w, int32_t i, const char *name)) {
    char name[32];
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        if (!w->body[i].live || w->kernel->body[i].op != TG_K_STORE) continue;
        snprintf(name, sizeof name, "stored%d_%d", (int)i, (int)output);
        visit(w, i, name);
    }
}

static void wgsl_contract_declare(tg_wgsl *w, int32_t i, const char *name) {
    const tg_dtype dtype = w->kernel->body[w->kernel->body[i].src[0]].dtype;
    tg_wgsl_line(w, "var %s: %s;", name, tg_dtype_row(dtype)->wgsl_compute);
}

static void wgsl_contract_set(tg_wgsl *w, int32_t i, const char *name) {
    tg_wgsl_line(w, "%s = v%d;", name, (int)w->kernel->body[i].src[0]);
}

/* What an output beyond the last reads is read of the last, and not stored. */
static void wgsl_contract_compute(tg_wgsl_contraction *s, const tg_wgsl_output *o, int32_t output, bool row_guard, bool column_guard) {
    tg_wgsl *w = s->w;
    tg_wgsl_line(w, "{");
    if (row_guard) tg_wgsl_line(w, "let row = min(%s, %lld);", o->row, (long long)s->problem.rows - 1);
    else tg_wgsl_line(w, "let row = %s;", o->row);
    if (column_guard) tg_wgsl_line(w, "let column = min(%s, %lld);", o->column, (long long)s->problem.columns - 1);
    else tg_wgsl_line(w, "let column = %s;", o->column);
    wgsl_contract_decode(s);
    tg_wgsl_line(w, "let acc = %s;", o->sum);
    w->accumulator = "acc";
    for (int32_t i = 0; i < w->kernel->body_count; i++)
        if (w->body[i].live && w->body[i].phase == TG_PHASE_ELEMENT && w->kernel->body[i].op != TG_K_STORE) tg_wgsl_instruction(w, i);
    wgsl_contract_each_store(w, output, wgsl_contract_set);
    tg_wgsl_line(w, "}");
}

static void wgsl_contract_store(tg_wgsl_contraction *s, const tg_wgsl_output *o, int32_t output, bool row_guard, bool column_guard) {
    tg_wgsl *w = s->w;
    tg_wgsl_line(w, "{");
    tg_wgsl_line(w, "let row = %s;", o->row);
    tg_wgsl_line(w, "let column = %s;", o->column);
    if (row_guard) tg_wgsl_line(w, "if (row < %lld) {", (long long)s->problem.rows);
    if (column_guard) tg_wgsl_line(w, "if (column < %lld) {", (long long)s->problem.columns);
    wgsl_contract_decode(s);
    wgsl_contract_each_store(w, output, tg_wgsl_store);
    for (int i = 0; i < 1 + row_guard + column_guard; i++) tg_wgsl_line(w, "}");
}

void tg_wgsl_contract_group(tg_wgsl_contraction *s, const tg_wgsl_output *outputs, int32_t count, bool row_guard, bool column_guard) {
    tg_wgsl_line(s->w, "{");
    for (int32_t i = 0; i < count; i++) wgsl_contract_each_store(s->w, i, wgsl_contract_declare);
    for (int32_t i = 0; i < count; i++) wgsl_contract_compute(s, &outputs[i], i, row_guard, column_guard);
    for (int32_t i = 0; i < count; i++) wgsl_contract_store(s, &outputs[i], i, row_guard, column_guard);
    tg_wgsl_line(s->w, "}");
}

void tg_wgsl_contract_cell(tg_wgsl_contraction *s, int64_t cell_rows, int64_t cell_columns) {
    tg_wgsl_line(s->w, "let first_column = cell %% %lld;", (long long)cell_columns);
    tg_wgsl_line(s->w, "let first_row = cell / %lld %% %lld;", (long long)cell_columns, (long long)cell_rows);
    tg_wgsl_line(s->w, "let batch = cell / %lld;", (long long)(cell_columns * cell_rows));
}

/* ---------------------------------------------------------------- adding the parts */

/* One invocation for each output, or `ways` that share one if outputs are few and parts many. */
static void wgsl_contract_add_parts(tg_wgsl_contraction *s) {
    tg_wgsl *w = s->w;
    const int64_t outputs = tg_tile_outputs(&s->problem), parts = s->choice.parts;
    const int32_t size = tg_wgsl_is_lone(w) ? 64 : w->frame.size, ways = outputs < 65536 && parts >= 16 && size >= 64 ? 8 : 1,
                  lanes = size / ways;
    tg_wgsl_begin(w, tg_arena_format(w->arena, "adds %lld parts", (long long)parts));
    tg_wgsl_contract_lanes(w, size, ways, false);
    tg_wgsl_line(w, "let own = group * %d + lane;", (int)lanes);
    if (ways == 1 && outputs % lanes != 0) tg_wgsl_line(w, "if (own >= %lld) { return; }", (long long)outputs);
    if (ways > 1) tg_wgsl_line(w, "let cell = min(own, %lld);", (long long)(outputs - 1));
    else tg_wgsl_line(w, "let cell = own;");
    tg_wgsl_line(w, "var c0_0 = 0.0;");
    tg_wgsl_line(w, "for (var part = %s; part < %lld; part += %d) {", ways > 1 ? "way" : "0", (long long)parts, (int)ways);
    const char *sum = tg_wgsl_read_scratch(w, "f32", "%lld + part * %lld + cell", (long long)s->scratch, (long long)outputs);
    tg_wgsl_line(w, "c0_0 += %s;", sum);
    tg_wgsl_line(w, "}");
    tg_wgsl_contract_cell(s, s->problem.rows, s->problem.columns);
    if (ways > 1) {
        tg_wgsl_contract_tree(w, ways, size, lanes, 1, 1);
        tg_wgsl_line(w, "if (way == 0 && own < %lld) {", (long long)outputs);
    }
    const tg_wgsl_outputs one = {1, 1, "first_row", "first_column", "c0_0", false, false};
    tg_wgsl_contract_prepare(s, false);
    tg_wgsl_contract_points(s, &one, false);
    if (ways > 1) tg_wgsl_line(w, "}");
    tg_wgsl_end(w, tg_tile_ceil(outputs, lanes), size);
}

/* ---------------------------------------------------------------- the kernel */

static const char *wgsl_contract_title(const tg_wgsl_contraction *s) {
    const tg_tile_choice *c = &s->choice;
    const tg_tile_size *tile = &c->tile;
    tg_arena *arena = s->w->arena;
    const bool left = s->problem.left.wide, right = s->problem.right.wide;
    const char *wide = left && right ? "vec4 reads" : left || right ? "vec4 reads of one operand" : "scalar reads";
    const char *ways = c->ways > 1 ? "s" : "", *parts = c->parts > 1 ? "s" : "";
    const char *halves = tile->across > 0 ? ", subgroup matrices of halves" : c->halves ? ", halves" : "";
    const bool tables = tg_tile_has_table(&s->problem.left, c) || tg_tile_has_table(&s->problem.right, c);
    if (c->method == TG_TILE_PANELS)
        return tg_arena_format(arena, "panels of %d rows, k by %d, %d way%s, %s", (int)c->panel, (int)c->panel_k, (int)c->ways, ways, wide);
    if (c->method == TG_TILE_TILES)
        return tg_arena_format(arena, "tiles of %d x %d, %d x %d each, k by %d%s, %s%s%s, %lld part%s%s%s", (int)tile->m, (int)tile->n,
                               (int)c->own_m, (int)c->own_n, (int)tile->k, tile->buffers > 1 ? " in turn" : "", wide,
                               tables ? ", offsets in tables" : "", halves, (long long)c->parts, parts, tile->by_rows ? ", row by row" : "",
                               tile->unrolled ? ", unrolled" : "");
    return tg_arena_format(arena, "direct, %d x %d each, %d way%s%s, %s, %lld part%s", (int)c->own_m, (int)c->own_n, (int)c->ways, ways,
                           c->ways_first ? " side by side" : "", wide, (long long)c->parts, parts);
}

/* May the operand's buffer be read as vec4s? The epilogue may read single elements of it. */
static bool wgsl_contract_fours(const tg_wgsl *w, const tg_operand_access *operand) {
    return tg_wgsl_may_widen(w, operand->argument) && tg_wgsl_count(w, operand->argument) % 4 == 0 &&
           !tg_wgsl_body_writes(w, operand->argument);
}

static tg_tile_problem wgsl_contract_problem(const tg_wgsl *w) {
    const tg_kernel *kernel = w->kernel;
    return tg_tile_problem_make(kernel, w->frame.slices, wgsl_contract_fours(w, &kernel->a), wgsl_contract_fours(w, &kernel->b));
}

/* False: nothing fits. */
static bool wgsl_contract_choose(tg_wgsl_contraction *s) {
    const tg_tile_problem problem = wgsl_contract_problem(s->w);
    const tg_tile_room room = {s->w->limits, s->w->frame};
    if (!tg_tile_choose(&problem, &room, &s->choice)) return false;
    s->problem = tg_tile_read(&problem, &s->choice);
    return true;
}

void tg_wgsl_contract_vectors(tg_wgsl *w, bool *vectors) {
    tg_wgsl_contraction s = {.w = w};
    if (!wgsl_contract_choose(&s)) return;
    vectors[s.problem.left.argument] = s.problem.left.wide;
    vectors[s.problem.right.argument] = s.problem.right.wide;
}

void tg_wgsl_contract_candidates(tg_wgsl *w, tg_tile_candidates *candidates) {
    const tg_tile_problem problem = wgsl_contract_problem(w);
    const tg_tile_room room = {w->limits, w->frame};
    const tg_status status = tg_tile_list_candidates(&problem, &room, w->arena->ctx, candidates);
    if (status != TG_OK) w->status = status;
}

void tg_wgsl_contract(tg_wgsl *w) {
    tg_wgsl_contraction s = {.w = w};
    if (!wgsl_contract_choose(&s)) {
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "a contraction needs workgroups of 64 invocations");
        return;
    }
    w->tuned = w->tuned || s.choice.tuned;
    if (s.choice.parts > 1) s.scratch = tg_wgsl_scratch(w, tg_tile_outputs(&s.problem) * s.choice.parts);
    tg_wgsl_begin(w, wgsl_contract_title(&s));
    switch (s.choice.method) {
    case TG_TILE_PANELS: tg_wgsl_panels(&s); break;
    case TG_TILE_TILES: tg_wgsl_tiles(&s); break;
    default: tg_wgsl_direct(&s); break;
    }
    if (s.choice.parts > 1) wgsl_contract_add_parts(&s);
}
