/* wgsl_scatter: table[index(n)] += value(n), without atomics and always added in the same order. A
 * small table is summed by one invocation for each table element and chunk of n, which compares all
 * indices of its chunk. For a large table that would be too much work: there each n finds the next
 * n with the same index, and the first n of each such list walks the list. Must not know where
 * indices come from. */
#include "emit/wgsl.h"

#include <stdio.h>

typedef struct wgsl_adds {
    tg_wgsl *w;
    int32_t at;            /* the SCATTER instruction */
    int64_t points, width; /* n; elements of a row */
    int64_t rows;
    const char *type; /* of a value */
    bool real;        /* it is a float */
    char value[16];   /* its name */
    bool *index;      /* per body instruction: the row depends on it */
} wgsl_adds;

/* comparisons; a millisecond of a large GPU. More are left to lists */
#define WGSL_ADDS_SMALL (INT64_C(1) << 28)
#define WGSL_ADDS_CHUNK 64                   /* least points that an invocation compares */
#define WGSL_ADDS_SCRATCH (INT64_C(4) << 20) /* words of partial tables */
#define WGSL_ADDS_TILE 256                   /* indices compared from workgroup memory at a time */

static const tg_instruction *wgsl_adds_instruction(const wgsl_adds *s) { return &s->w->kernel->body[s->at]; }

/* The lines that give the row; then, called again with `index` false, the other values. Both only
 * once in a block. */
static void wgsl_adds_values(const wgsl_adds *s, bool index) {
    for (int32_t i = 0; i < s->w->kernel->body_count; i++) {
        const tg_body_info *info = &s->w->body[i];
        if (!info->live || info->phase != TG_PHASE_ELEMENT || s->index[i] != index) continue;
        if (!tg_body_is_effect(s->w->kernel->body[i].op)) tg_wgsl_instruction(s->w, i);
    }
}

static void wgsl_adds_find_index(wgsl_adds *s) {
    const tg_kernel *kernel = s->w->kernel;
    s->index[wgsl_adds_instruction(s)->src[0]] = true;
    for (int32_t i = s->at - 1; i >= 0; i--)
        for (int k = 0; s->index[i] && k < tg_body_arity(kernel->body[i].op); k++) s->index[kernel->body[i].src[k]] = true;
}

/* table[row * stride + at(d)] with the row spelled `row`. */
static void wgsl_adds_store(const wgsl_adds *s, const char *row, const char *value) {
    tg_wgsl *w = s->w;
    const tg_instruction *in = wgsl_adds_instruction(s);
    const tg_wgsl_memory table = tg_wgsl_argument(w, in->argument);
    tg_wgsl_start(w);
    tg_wgsl_open_write(&w->main, &table);
    tg_text_add(&w->main, "%s * %lld + ", row, (long long)in->row_stride);
    tg_wgsl_affine_over(w, &in->at, w->kernel->m_begin, w->kernel->loop_count, true);
    tg_wgsl_write_value(&w->main, &table);
    tg_text_add(&w->main, "%s", value);
    tg_wgsl_close_write(&w->main, &table);
    tg_wgsl_newline(w);
}

/* `var sum`, to which values are added one after another; for a float `lost` sums what rounding
 * loses. */
static void wgsl_adds_open_sum(const wgsl_adds *s) {
    tg_wgsl_line(s->w, "var sum: %s = 0;", s->type);
    if (s->real) tg_wgsl_line(s->w, "var lost = 0f;");
}
static void wgsl_adds_add(const wgsl_adds *s, const char *value) {
    tg_wgsl *w = s->w;
    if (!s->real) {
        tg_wgsl_line(w, "sum = sum + %s;", value);
        return;
    }
    tg_wgsl_line(w, "let next_sum = %s(sum + %s);", tg_wgsl_helper(w, "tg_keep"), value);
    tg_wgsl_line(w, "lost = lost + %s(sum, %s, next_sum);", tg_wgsl_helper(w, "tg_lost"), value);
    tg_wgsl_line(w, "sum = next_sum;");
}
static void wgsl_adds_close_sum(const wgsl_adds *s) {
    if (s->real) tg_wgsl_line(s->w, "sum = %s(sum, lost);", tg_wgsl_helper(s->w, "tg_regain"));
}

static void wgsl_adds_decode_width(const wgsl_adds *s, const char *flat) {
    tg_wgsl_decode(s->w, flat, s->w->kernel->m_begin, s->w->kernel->loop_count);
}

static int32_t wgsl_adds_size(const wgsl_adds *s) { return tg_wgsl_is_lone(s->w) ? 64 : s->w->frame.size; }
/* One invocation for each element. */
static void wgsl_adds_end(const wgsl_adds *s, int64_t count) {
    const int32_t size = wgsl_adds_size(s);
    tg_wgsl_end(s->w, (count + size - 1) / size, size);
}
/* `let element = ...` below `count`, one for each invocation. */
static void wgsl_adds_element(const wgsl_adds *s, int64_t count) {
    const int32_t size = wgsl_adds_size(s);
    tg_wgsl_line(s->w, "let element = group * %d + t;", (int)size);
    if (count % size != 0) tg_wgsl_line(s->w, "if (element >= %lld) { return; }", (long long)count);
}

/* ---------------------------------------------------------------- small tables */

static void wgsl_adds_chunks(const wgsl_adds *s, int64_t parts, int64_t scratch) {
    tg_wgsl *w = s->w;
    const int64_t table = s->rows * s->width, chunk = (s->points + parts - 1) / parts;
    tg_wgsl_begin(w, parts > 1 ? tg_arena_format(w->arena, "%lld parts", (long long)parts) : NULL);
    wgsl_adds_element(s, table * parts);
    tg_wgsl_line(w, "let row = element / %lld %% %lld;", (long long)s->width, (long long)s->rows);
    tg_wgsl_line(w, "let column = element %% %lld;", (long long)s->width);
    wgsl_adds_decode_width(s, "column");
    tg_wgsl_body(w, TG_PHASE_TOP);
    tg_wgsl_line(w, "let begin = element / %lld * %lld;", (long long)table, (long long)chunk);
    wgsl_adds_open_sum(s);
    tg_wgsl_line(w, "for (var n = begin; n < min(begin + %lld, %lld); n += 1) {", (long long)chunk, (long long)s->points);
    tg_wgsl_decode(w, "n", 0, w->kernel->m_begin);
    wgsl_adds_values(s, true);
    tg_wgsl_line(w, "if (v%d == row) {", (int)wgsl_adds_instruction(s)->src[0]);
    wgsl_adds_values(s, false);
    wgsl_adds_add(s, s->value);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
    wgsl_adds_close_sum(s);
    if (parts > 1) tg_wgsl_write_scratch(w, s->type, "sum", "%lld + element", (long long)scratch);
    else wgsl_adds_store(s, "row", "sum");
    wgsl_adds_end(s, table * parts);
}

static void wgsl_adds_join(const wgsl_adds *s, int64_t parts, int64_t scratch) {
    tg_wgsl *w = s->w;
    const int64_t table = s->rows * s->width;
    tg_wgsl_begin(w, tg_arena_format(w->arena, "adds %lld parts", (long long)parts));
    wgsl_adds_element(s, table);
    tg_wgsl_line(w, "let row = element / %lld;", (long long)s->width);
    tg_wgsl_line(w, "let column = element %% %lld;", (long long)s->width);
    wgsl_adds_decode_width(s, "column");
    wgsl_adds_open_sum(s);
    tg_wgsl_line(w, "for (var q = 0; q < %lld; q += 1) {", (long long)parts);
    tg_wgsl_line(w, "let part = %s;", tg_wgsl_read_scratch(w, s->type, "%lld + q * %lld + element", (long long)scratch, (long long)table));
    wgsl_adds_add(s, "part");
    tg_wgsl_line(w, "}");
    wgsl_adds_close_sum(s);
    wgsl_adds_store(s, "row", "sum");
    wgsl_adds_end(s, table);
}

static void wgsl_adds_small(const wgsl_adds *s) {
    const int64_t table = s->rows * s->width;
    int64_t parts = s->points / WGSL_ADDS_CHUNK;
    if (parts > 64) parts = 64;
    if (parts > WGSL_ADDS_SCRATCH / table) parts = WGSL_ADDS_SCRATCH / table;
    if (parts < 2) {
        wgsl_adds_chunks(s, 1, 0);
        return;
    }
    const int64_t scratch = tg_wgsl_scratch(s->w, table * parts);
    wgsl_adds_chunks(s, parts, scratch);
    wgsl_adds_join(s, parts, scratch);
}

/* ---------------------------------------------------------------- large tables */

/* Scratch: the row of each n (-1: outside the table), then for each n the next of its list (the
 * number of points: none), then whether it is the first of its list. */

static void wgsl_adds_rows(const wgsl_adds *s, int64_t scratch) {
    tg_wgsl *w = s->w;
    char value[96];
    tg_wgsl_begin(w, "rows");
    wgsl_adds_element(s, s->points);
    tg_wgsl_decode(w, "element", 0, w->kernel->m_begin);
    tg_wgsl_body(w, TG_PHASE_TOP);
    wgsl_adds_values(s, true);
    const int row = (int)wgsl_adds_instruction(s)->src[0];
    snprintf(value, sizeof value, "select(-1, v%d, (v%d >= 0) & (v%d < %lld))", row, row, row, (long long)s->rows);
    tg_wgsl_write_scratch(w, "i32", value, "%lld + element", (long long)scratch);
    wgsl_adds_end(s, s->points);
}

static void wgsl_adds_clear(const wgsl_adds *s) {
    tg_wgsl *w = s->w;
    tg_wgsl_begin(w, "clears the table");
    wgsl_adds_element(s, s->rows * s->width);
    tg_wgsl_line(w, "let row = element / %lld;", (long long)s->width);
    tg_wgsl_line(w, "let column = element %% %lld;", (long long)s->width);
    wgsl_adds_decode_width(s, "column");
    wgsl_adds_store(s, "row", "0");
    wgsl_adds_end(s, s->rows * s->width);
}

/* The row of point `n`; -1 if there is no such point. */
static const char *wgsl_adds_row_of(const wgsl_adds *s, int64_t scratch, const char *n) {
    const char *row = tg_wgsl_read_scratch(s->w, "i32", "%lld + min(%s, %lld)", (long long)scratch, n, (long long)s->points - 1);
    const char *text = tg_arena_format(s->w->arena, "select(-1, %s, %s < %lld)", row, n, (long long)s->points);
    if (text == NULL) s->w->status = TG_ERROR_MEMORY;
    return text != NULL ? text : "";
}

static void wgsl_adds_list(const wgsl_adds *s, int64_t scratch) {
    tg_wgsl *w = s->w;
    tg_wgsl_begin(w, "chains of equal rows");
    const char *tile = tg_wgsl_declare_array(w, "tile", (tg_wgsl_array){.scalar = "i32", .count = WGSL_ADDS_TILE});
    tg_wgsl_line(w, "let n = group * %d + t;", WGSL_ADDS_TILE);
    tg_wgsl_line(w, "let mine = %s;", wgsl_adds_row_of(s, scratch, "n"));
    tg_wgsl_line(w, "var next: i32 = %lld;", (long long)s->points);
    tg_wgsl_line(w, "var first: i32 = 1;");
    tg_wgsl_line(w, "for (var start = 0; start < %lld; start += %d) {", (long long)s->points, WGSL_ADDS_TILE);
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "%s[t] = %s;", tile, wgsl_adds_row_of(s, scratch, "start + t"));
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "for (var k = 0; k < %d; k += 1) {", WGSL_ADDS_TILE);
    tg_wgsl_line(w, "if (%s[k] == mine) {", tile);
    tg_wgsl_line(w, "if (start + k < n) { first = 0; }");
    tg_wgsl_line(w, "if (start + k > n) { next = min(next, start + k); }");
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "if (n < %lld) {", (long long)s->points);
    tg_wgsl_write_scratch(w, "i32", "next", "%lld + n", (long long)(scratch + s->points));
    tg_wgsl_write_scratch(w, "i32", "select(0, first, mine >= 0)", "%lld + n", (long long)(scratch + 2 * s->points));
    tg_wgsl_line(w, "}");
    tg_wgsl_end(w, (s->points + WGSL_ADDS_TILE - 1) / WGSL_ADDS_TILE, WGSL_ADDS_TILE);
}

static void wgsl_adds_walk(const wgsl_adds *s, int64_t scratch) {
    tg_wgsl *w = s->w;
    tg_wgsl_begin(w, "adds along chains");
    wgsl_adds_element(s, s->points * s->width);
    tg_wgsl_line(w, "let head = element / %lld;", (long long)s->width);
    tg_wgsl_line(w, "let column = element %% %lld;", (long long)s->width);
    tg_wgsl_line(w, "if (%s == 0) { return; }", tg_wgsl_read_scratch(w, "i32", "%lld + head", (long long)(scratch + 2 * s->points)));
    wgsl_adds_decode_width(s, "column");
    tg_wgsl_body(w, TG_PHASE_TOP);
    wgsl_adds_open_sum(s);
    tg_wgsl_line(w, "for (var n = head; n < %lld; n = %s) {", (long long)s->points,
                 tg_wgsl_read_scratch(w, "i32", "%lld + n", (long long)(scratch + s->points)));
    tg_wgsl_decode(w, "n", 0, w->kernel->m_begin);
    wgsl_adds_values(s, true); /* a value may use instructions of the row */
    wgsl_adds_values(s, false);
    wgsl_adds_add(s, s->value);
    tg_wgsl_line(w, "}");
    wgsl_adds_close_sum(s);
    tg_wgsl_line(w, "let row = %s;", tg_wgsl_read_scratch(w, "i32", "%lld + head", (long long)scratch));
    wgsl_adds_store(s, "row", "sum");
    wgsl_adds_end(s, s->points * s->width);
}

static void wgsl_adds_large(const wgsl_adds *s) {
    const int64_t scratch = tg_wgsl_scratch(s->w, s->points * 3);
    wgsl_adds_rows(s, scratch);
    wgsl_adds_clear(s);
    wgsl_adds_list(s, scratch);
    wgsl_adds_walk(s, scratch);
}

/* ---------------------------------------------------------------- the kernel */

static void wgsl_adds_one(tg_wgsl *w, int32_t at) {
    wgsl_adds s = {.w = w, .at = at};
    s.points = tg_wgsl_points(w, 0, w->kernel->m_begin);
    s.width = tg_wgsl_points(w, w->kernel->m_begin, w->kernel->loop_count);
    s.rows = w->kernel->body[at].rows;
    s.real = w->kernel->body[w->kernel->body[at].src[1]].dtype != TG_I32;
    s.type = s.real ? "f32" : "i32";
    snprintf(s.value, sizeof s.value, "v%d", (int)w->kernel->body[at].src[1]);
    s.index = TG_NEW(w->arena, bool, w->kernel->body_count + 1);
    if (s.index == NULL) {
        w->status = TG_ERROR_MEMORY;
        return;
    }
    wgsl_adds_find_index(&s);
    const double comparisons = (double)s.points * (double)s.width * (double)s.rows;
    if (comparisons <= (double)WGSL_ADDS_SMALL && s.rows * s.width <= WGSL_ADDS_SCRATCH) wgsl_adds_small(&s);
    else wgsl_adds_large(&s);
}

void tg_wgsl_scatter(tg_wgsl *w) {
    bool stores = false;
    for (int32_t i = 0; i < w->kernel->body_count; i++) stores = stores || w->kernel->body[i].op == TG_K_STORE;
    if (stores) tg_wgsl_map(w); /* what else the kernel stores; the map leaves scatters out */
    for (int32_t i = 0; i < w->kernel->body_count; i++)
        if (w->kernel->body[i].op == TG_K_SCATTER) wgsl_adds_one(w, i);
}

#undef WGSL_ADDS_SMALL
#undef WGSL_ADDS_CHUNK
#undef WGSL_ADDS_SCRATCH
#undef WGSL_ADDS_TILE
