/* wgsl_reduce: reductions of rows. A row is one outer point; `sharers` invocations share it. Each
 * walks every sharers-th inner point, and a fixed tree in workgroup memory joins their results. A
 * body with reductions of reductions walks the row once for each depth and computes again what a
 * sweep needs. Few long rows are split: a stage for each depth leaves the parts' results in
 * scratch, where the following stages join them, always in the same order. Sums over the rows of a
 * large matrix are split too: a part's workgroup has neighbouring columns. Must not know what is
 * reduced beyond the five operations. */
#include "emit/wgsl.h"

#include <stdio.h>

/* How a kernel is laid out; all numbers are powers of two except the counts. */
typedef struct wgsl_rows {
    tg_wgsl *w;
    int64_t rows, length; /* outer and inner points */
    int32_t size;         /* invocations of a workgroup */
    int32_t sharers;      /* of them on one row */
    /* neighbouring invocations are on neighbouring rows, not on neighbouring points of a row */
    bool across;
    int64_t parts;  /* of a row, each by a workgroup of its own; 1: not split */
    int32_t bundle; /* split and across: rows of a workgroup; else 1 */
    int64_t chunk;  /* points of a part */
    /* an invocation adds enough points that it also sums what rounding loses, in lost<i> */
    bool exact;
    /* per body instruction that reduces: first word of its parts' results (of arg, positions follow
     * the values) */
    int64_t *scratch;
} wgsl_rows;

#define WGSL_ROWS_SERIAL 1024    /* most points that one invocation adds */
#define WGSL_ROWS_PLAIN 4        /* points that one invocation adds without summing what is lost */
#define WGSL_ROWS_SPLIT 8192     /* points: shorter rows are left to one workgroup */
#define WGSL_ROWS_WORKGROUPS 256 /* wanted of a split kernel */
#define WGSL_ROWS_CHUNK 2048     /* least points of a part: 8 for each invocation */
/* Columns: bundles of rows that lie side by side in memory, and their parts. On an H200 the sums of
 * [16384, 384] took 74 us with 2 columns for each workgroup. */
#define WGSL_ROWS_BUNDLE 32
#define WGSL_ROWS_BUNDLES 1024    /* workgroups wanted */
#define WGSL_ROWS_EACH 16         /* least points of an invocation */
#define WGSL_ROWS_LARGE (1 << 20) /* points: below, the second stage costs more than it saves */

/* ---------------------------------------------------------------- layout */

/* Does the access depend on the row? */
static bool wgsl_rows_varies(const tg_kernel *kernel, const tg_affine *at) {
    for (int32_t d = 0; d < kernel->outer_count; d++)
        if (at->stride[d] != 0 && kernel->extent[d] > 1) return true;
    return false;
}

/* Do most loads of the body run along the last inner loop, or along the last outer one? */
static bool wgsl_rows_across(const tg_wgsl *w) {
    const tg_kernel *kernel = w->kernel;
    int inner = kernel->loop_count - 1, outer = kernel->outer_count - 1, along = 0, across = 0;
    while (inner > kernel->outer_count && w->extent[inner] == 1) inner--;
    while (outer > 0 && w->extent[outer] == 1) outer--;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const tg_instruction *in = &kernel->body[i];
        if ((in->op != TG_K_LOAD && in->op != TG_K_STORE) || w->body[i].phase != TG_PHASE_ELEMENT) continue;
        /* all rows read the same there, or all points of a row */
        if (outer >= 0 && inner >= kernel->outer_count && (in->at.stride[inner] == 0 || !wgsl_rows_varies(kernel, &in->at))) continue;
        if (inner >= kernel->outer_count && in->at.stride[inner] == 1) along++;
        else if (outer >= 0 && in->at.stride[outer] == 1) across++;
    }
    return across > along;
}

/* In a chain one workgroup has all rows: it gives each row as many invocations as it can,
 * down to one point for each. On an H200 a step of transformer-add took 1.1 times as long with four
 * points for each, 1.4 times with eight: longer code costs more there than a longer tree, since
 * each instruction runs once. */
static int32_t wgsl_rows_sharers_in_chain(const wgsl_rows *r) {
    int32_t sharers = 1;
    while (r->rows * sharers < r->size && sharers * 2 <= r->length && sharers * 2 <= r->size) sharers *= 2;
    return sharers;
}

/* Enough invocations to fill the device, but each with some points of its own; along a row at least
 * what one memory transaction fetches; and no sum in one variable that is long enough for its
 * rounding to show. */
static int32_t wgsl_rows_sharers(const wgsl_rows *r) {
    const bool spread = !r->w->limits->slow_barriers;
    if (spread && r->w->frame.slices > 0) return wgsl_rows_sharers_in_chain(r);
    int64_t least = !spread || r->across ? 1 : r->length >= 32 ? 32 : r->length >= 16 ? 8 : 1;
    int64_t busy = r->w->limits->rates->busy_invocations;
    int32_t sharers = 1;
    if (r->w->frame.share > 1) busy /= r->w->frame.share;
    if (least < r->length / WGSL_ROWS_SERIAL) least = r->length / WGSL_ROWS_SERIAL;
    while (sharers * 2 <= r->size && sharers * 2 <= r->length) {
        const bool idle = spread && r->rows * sharers < busy && r->length / sharers >= 8;
        if (sharers >= least && !idle) break;
        sharers *= 2;
    }
    return sharers;
}

static void wgsl_rows_split(wgsl_rows *r) {
    if (r->w->frame.slices > 0 || r->length < WGSL_ROWS_SPLIT || r->rows * 2 > WGSL_ROWS_WORKGROUPS || r->w->sweeps == 0) return;
    int64_t parts = WGSL_ROWS_WORKGROUPS / r->rows;
    if (parts > r->length / WGSL_ROWS_CHUNK) parts = r->length / WGSL_ROWS_CHUNK;
    r->chunk = (r->length + parts - 1) / parts;
    r->parts = (r->length + r->chunk - 1) / r->chunk;
    r->sharers = r->size;
    r->across = false;
}

/* Many long rows whose neighbours are neighbours in memory, for one reduction of each point. */
static void wgsl_rows_bundle(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    const int32_t sharers = r->size / WGSL_ROWS_BUNDLE;
    if (!r->across || r->w->frame.slices > 0 || w->limits->slow_barriers || w->sweeps != 1 || sharers < 2) return;
    if (r->rows < WGSL_ROWS_BUNDLE || r->rows * r->length < WGSL_ROWS_LARGE || tg_body_want(w->kernel, w->body, 0, true)) return;
    const int64_t bundles = (r->rows + WGSL_ROWS_BUNDLE - 1) / WGSL_ROWS_BUNDLE, most = r->length / (sharers * WGSL_ROWS_EACH);
    int64_t parts = WGSL_ROWS_BUNDLES / bundles < most ? WGSL_ROWS_BUNDLES / bundles : most;
    if (parts < 2) return;
    r->chunk = (r->length + parts - 1) / parts;
    r->parts = (r->length + r->chunk - 1) / r->chunk;
    r->bundle = WGSL_ROWS_BUNDLE;
    r->sharers = sharers;
}

/* ---------------------------------------------------------------- one reduction */

static bool wgsl_rows_is_arg(int32_t op) { return op == TG_OP_ARGMAX || op == TG_OP_ARGMIN; }
static bool wgsl_rows_largest(int32_t op) { return op == TG_OP_REDUCE_MAX || op == TG_OP_ARGMAX; }
static tg_dtype wgsl_rows_dtype(const tg_wgsl *w, int32_t i) { return w->kernel->body[w->kernel->body[i].src[0]].dtype; }
static const char *wgsl_rows_type(const tg_wgsl *w, int32_t i) { return wgsl_rows_dtype(w, i) == TG_F32 ? "f32" : "i32"; }

/* A sum of floats over enough points that its rounding shows. */
static bool wgsl_rows_is_exact(const wgsl_rows *r, int32_t i) {
    return r->exact && r->w->kernel->body[i].op == TG_OP_SUM && wgsl_rows_dtype(r->w, i) == TG_F32;
}

static void wgsl_rows_declare(wgsl_rows *r, int32_t i) {
    tg_wgsl *w = r->w;
    const int32_t op = w->kernel->body[i].op;
    const bool real = wgsl_rows_dtype(w, i) == TG_F32, largest = wgsl_rows_largest(op);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "var r%d: %s = ", (int)i, wgsl_rows_type(w, i));
    if (op == TG_OP_SUM) tg_text_add(&w->main, real ? "0f" : "0");
    else if (real) tg_text_add(&w->main, "%s%s()", largest ? "-" : "", tg_wgsl_helper(w, "tg_inf"));
    else tg_text_add(&w->main, largest ? "i32(-2147483648)" : "i32(2147483647)");
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
    if (wgsl_rows_is_arg(op)) tg_wgsl_line(w, "var at%d: i32 = 2147483647;", (int)i);
}

/* Lines that join a value (and, for arg, its position) into the variables `into` and `into_at`. */
static void wgsl_rows_join(wgsl_rows *r, int32_t i, const char *into, const char *into_at, const char *value, const char *value_at) {
    tg_wgsl *w = r->w;
    const int32_t op = w->kernel->body[i].op;
    const bool real = wgsl_rows_dtype(w, i) == TG_F32, largest = wgsl_rows_largest(op);
    if (op == TG_OP_SUM) tg_wgsl_line(w, "%s = %s + %s;", into, into, value);
    else if (wgsl_rows_is_arg(op)) {
        const char *better = real ? (largest ? "tg_larger" : "tg_smaller") : (largest ? "tg_larger_i32" : "tg_smaller_i32");
        tg_wgsl_line(w, "if (%s(%s, %s, %s, %s)) {", tg_wgsl_helper(w, better), value, value_at, into, into_at);
        tg_wgsl_line(w, "%s = %s;", into, value);
        tg_wgsl_line(w, "%s = %s;", into_at, value_at);
        tg_wgsl_line(w, "}");
    } else {
        const char *name = tg_wgsl_helper(w, real ? (largest ? "tg_max" : "tg_min") : largest ? "tg_max_i32" : "tg_min_i32");
        tg_wgsl_line(w, "%s = %s(%s, %s);", into, name, into, value);
    }
}

/* The tree of reduction i over r->sharers values from `slot` on, in workgroup memory: `values` and,
 * for arg, `positions`. */
static void wgsl_rows_climb(wgsl_rows *r, int32_t i, const char *values, const char *positions) {
    tg_wgsl *w = r->w;
    char mine[64], other[64], mine_at[64], other_at[64];
    snprintf(mine, sizeof mine, "%s[slot]", values);
    snprintf(other, sizeof other, "%s[slot + h%d]", values, (int)i);
    snprintf(mine_at, sizeof mine_at, "%s[slot]", positions);
    snprintf(other_at, sizeof other_at, "%s[slot + h%d]", positions, (int)i);
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "for (var h%d = %d; h%d > 0; h%d = h%d >> 1u) {", (int)i, (int)r->sharers / 2, (int)i, (int)i, (int)i);
    tg_wgsl_line(w, "if (lane_of_row < h%d) {", (int)i);
    wgsl_rows_join(r, i, mine, mine_at, other, other_at);
    tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "}");
}

/* An array of an element for each invocation, called <letter><i>. */
static const char *wgsl_rows_array(wgsl_rows *r, char letter, int32_t i, const char *type) {
    char name[16];
    snprintf(name, sizeof name, "%c%d", letter, (int)i);
    const char *kept = tg_arena_text(r->w->arena, name);
    if (kept == NULL) r->w->status = TG_ERROR_MEMORY;
    return tg_wgsl_declare_array(r->w, kept != NULL ? kept : "", (tg_wgsl_array){.scalar = type, .count = r->size});
}

/* Joins the results of reduction i, in r<i>, into one, v<i>, that all invocations of the row have.
 * All invocations come here. */
static void wgsl_rows_tree(wgsl_rows *r, int32_t i, bool named) {
    tg_wgsl *w = r->w;
    const bool arg = wgsl_rows_is_arg(w->kernel->body[i].op);
    if (r->sharers > 1) {
        const char *values = wgsl_rows_array(r, 's', i, wgsl_rows_type(w, i));
        const char *positions = arg ? wgsl_rows_array(r, 'p', i, "i32") : "";
        tg_wgsl_line(w, "%s[slot] = r%d;", values, (int)i);
        if (arg) tg_wgsl_line(w, "%s[slot] = at%d;", positions, (int)i);
        wgsl_rows_climb(r, i, values, positions);
        tg_wgsl_line(w, "r%d = %s[slot - lane_of_row];", (int)i, values);
        if (arg) tg_wgsl_line(w, "at%d = %s[slot - lane_of_row];", (int)i, positions);
    }
    if (named) tg_wgsl_line(w, arg ? "let v%d = at%d;" : "let v%d = r%d;", (int)i, (int)i);
}

/* ---------------------------------------------------------------- sweeps */

/* Opens the loop over this invocation's points of the row (or of its part), and decodes them. */
static void wgsl_rows_open_loop(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    if (r->parts == 1) tg_wgsl_line(w, "for (var n = lane_of_row; n < %lld; n += %d) {", (long long)r->length, (int)r->sharers);
    else tg_wgsl_line(w, "for (var n = begin + lane_of_row; n < end; n += %d) {", (int)r->sharers);
    tg_wgsl_decode(w, "n", w->kernel->outer_count, w->kernel->loop_count);
}

static void wgsl_rows_add_exactly(wgsl_rows *r, int32_t i, int value) {
    tg_wgsl *w = r->w;
    const char *keep = tg_wgsl_helper(w, "tg_keep"), *lost = tg_wgsl_helper(w, "tg_lost");
    tg_wgsl_line(w, "let sum%d = %s(r%d + v%d);", (int)i, keep, (int)i, value);
    tg_wgsl_line(w, "lost%d = lost%d + %s(r%d, v%d, sum%d);", (int)i, (int)i, lost, (int)i, value, (int)i);
    tg_wgsl_line(w, "r%d = sum%d;", (int)i, (int)i);
}

static void wgsl_rows_accumulate(wgsl_rows *r, int32_t i) {
    char into[32], into_at[32], value[32];
    if (wgsl_rows_is_exact(r, i)) {
        wgsl_rows_add_exactly(r, i, (int)r->w->kernel->body[i].src[0]);
        return;
    }
    snprintf(into, sizeof into, "r%d", (int)i);
    snprintf(into_at, sizeof into_at, "at%d", (int)i);
    snprintf(value, sizeof value, "v%d", (int)r->w->kernel->body[i].src[0]);
    wgsl_rows_join(r, i, into, into_at, value, "n");
}

/* r<i> of each reduction of this depth, over the invocation's own points. */
static void wgsl_rows_walk(wgsl_rows *r, int32_t sweep) {
    tg_wgsl *w = r->w;
    const tg_kernel *kernel = w->kernel;
    (void)tg_body_want(kernel, w->body, sweep, false);
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (!tg_body_reduces_in(kernel, w->body, i, sweep)) continue;
        wgsl_rows_declare(r, i);
        if (wgsl_rows_is_exact(r, i)) tg_wgsl_line(w, "var lost%d = 0f;", (int)i);
    }
    wgsl_rows_open_loop(r);
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (w->body[i].wanted && w->body[i].phase == TG_PHASE_ELEMENT) tg_wgsl_instruction(w, i);
        if (tg_body_reduces_in(kernel, w->body, i, sweep)) wgsl_rows_accumulate(r, i);
    }
    tg_wgsl_line(w, "}");
    for (int32_t i = 0; i < kernel->body_count; i++)
        if (tg_body_reduces_in(kernel, w->body, i, sweep) && wgsl_rows_is_exact(r, i))
            tg_wgsl_line(w, "r%d = %s(r%d, lost%d);", (int)i, tg_wgsl_helper(w, "tg_regain"), (int)i, (int)i);
}

/* The result of part q of the row; the results begin at word `first` of the scratch. */
static const char *wgsl_rows_part(wgsl_rows *r, int64_t first) {
    return tg_wgsl_read_scratch(r->w, "u32", "%lld + row * %lld + q", (long long)first, (long long)r->parts);
}

/* Reads r<i> of each reduction of this depth from the parts' results; each invocation takes every
 * size-th part. */
static void wgsl_rows_gather_parts(wgsl_rows *r, int32_t sweep) {
    tg_wgsl *w = r->w;
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        if (!tg_body_reduces_in(w->kernel, w->body, i, sweep)) continue;
        const bool arg = wgsl_rows_is_arg(w->kernel->body[i].op);
        char into[32], into_at[32], value[32], value_at[32];
        snprintf(into, sizeof into, "r%d", (int)i);
        snprintf(into_at, sizeof into_at, "at%d", (int)i);
        snprintf(value, sizeof value, "q%d", (int)i);
        snprintf(value_at, sizeof value_at, "k%d", (int)i);
        wgsl_rows_declare(r, i);
        tg_wgsl_line(w, "for (var q = t; q < %lld; q += %d) {", (long long)r->parts, (int)r->size);
        tg_wgsl_line(w, "let q%d = bitcast<%s>(%s);", (int)i, wgsl_rows_type(w, i), wgsl_rows_part(r, r->scratch[i]));
        if (arg) tg_wgsl_line(w, "let k%d = bitcast<i32>(%s);", (int)i, wgsl_rows_part(r, r->scratch[i] + r->rows * r->parts));
        wgsl_rows_join(r, i, into, into_at, value, value_at);
        tg_wgsl_line(w, "}");
    }
}

static void wgsl_rows_trees(wgsl_rows *r, int32_t sweep, bool named) {
    for (int32_t i = 0; i < r->w->kernel->body_count; i++)
        if (tg_body_reduces_in(r->w->kernel, r->w->body, i, sweep)) wgsl_rows_tree(r, i, named);
}

/* OUTER values that become possible after `sweep` sweeps, or (effects) all OUTER stores. */
static void wgsl_rows_outer(wgsl_rows *r, int32_t sweep, bool effects) {
    tg_wgsl *w = r->w;
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const tg_body_info *info = &w->body[i];
        const int32_t op = w->kernel->body[i].op;
        if (!info->live || info->phase != TG_PHASE_OUTER || tg_body_is_reduction(op)) continue;
        if (tg_body_is_effect(op) == effects && (effects || info->depth == sweep)) tg_wgsl_instruction(w, i);
    }
}

/* Are there stores of OUTER level? With `in_place`: over a buffer that the kernel also reads? */
static bool wgsl_rows_has_outer_stores(const tg_wgsl *w, bool in_place) {
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const tg_instruction *in = &w->kernel->body[i];
        if (!tg_body_is_effect(in->op) || w->body[i].phase != TG_PHASE_OUTER) continue;
        if (!in_place || (w->kernel->arguments[in->argument].access & TG_ACCESS_READ)) return true;
    }
    return false;
}

static void wgsl_rows_store_elements(wgsl_rows *r, const char *row_exists) {
    tg_wgsl *w = r->w;
    if (!tg_body_want(w->kernel, w->body, 0, true)) return;
    if (row_exists != NULL) tg_wgsl_line(w, "if (%s) {", row_exists);
    wgsl_rows_open_loop(r);
    for (int32_t i = 0; i < w->kernel->body_count; i++)
        if (w->body[i].wanted && w->body[i].phase == TG_PHASE_ELEMENT) tg_wgsl_instruction(w, i);
    tg_wgsl_line(w, "}");
    if (row_exists != NULL) tg_wgsl_line(w, "}");
}

static void wgsl_rows_store_outer(wgsl_rows *r, const char *row_exists) {
    tg_wgsl *w = r->w;
    if (!wgsl_rows_has_outer_stores(w, false)) return;
    const char *part = r->parts > 1 ? " & (part == 0)" : "";
    if (row_exists != NULL) tg_wgsl_line(w, "if ((lane_of_row == 0) & %s%s) {", row_exists, part);
    else tg_wgsl_line(w, "if ((lane_of_row == 0)%s) {", part);
    wgsl_rows_outer(r, 0, true);
    tg_wgsl_line(w, "}");
}

/* ---------------------------------------------------------------- kernels that are one stage */

/* Declares the row of this invocation, and its number among the sharers. Rows past the last
 * one repeat it and store nothing; the result is the condition for a store, NULL if there are no
 * such rows. */
static const char *wgsl_rows_declare_row(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    const int32_t together = r->size / r->sharers;
    const bool whole = r->rows % together == 0;
    if (r->sharers == 1) {
        tg_wgsl_line(w, "let lane_of_row = 0;");
        tg_wgsl_line(w, whole ? "let row = group * %d + t;" : "let own = group * %d + t;", (int)r->size);
    } else {
        if (r->across) tg_wgsl_line(w, "let lane_of_row = t / %d;", (int)together);
        else tg_wgsl_line(w, "let lane_of_row = t %% %d;", (int)r->sharers);
        tg_wgsl_line(w, r->across ? "let row_of_group = t %% %d;" : "let row_of_group = t / %d;",
                     r->across ? (int)together : (int)r->sharers);
        tg_wgsl_line(w, "let slot = row_of_group * %d + lane_of_row;", (int)r->sharers);
        tg_wgsl_line(w, "let %s = group * %d + row_of_group;", whole ? "row" : "own", (int)together);
    }
    if (whole) return NULL;
    tg_wgsl_line(w, "let exists = own < %lld;", (long long)r->rows);
    tg_wgsl_line(w, "let row = min(own, %lld);", (long long)r->rows - 1);
    return "exists";
}

static void wgsl_rows_whole(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    tg_wgsl_begin(w, NULL);
    const char *exists = wgsl_rows_declare_row(r);
    tg_wgsl_decode(w, "row", 0, w->kernel->outer_count);
    tg_wgsl_body(w, TG_PHASE_TOP);
    wgsl_rows_outer(r, 0, false);
    for (int32_t sweep = 1; sweep <= w->sweeps; sweep++) {
        wgsl_rows_walk(r, sweep);
        wgsl_rows_trees(r, sweep, true);
        wgsl_rows_outer(r, sweep, false);
    }
    wgsl_rows_store_elements(r, exists);
    wgsl_rows_store_outer(r, exists);
    const int32_t together = r->size / r->sharers;
    tg_wgsl_end(w, (r->rows + together - 1) / together, r->size);
}

/* ---------------------------------------------------------------- kernels that are split */

static void wgsl_rows_place_part(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    if (r->bundle == 1) {
        tg_wgsl_line(w, "let lane_of_row = t;");
        tg_wgsl_line(w, "let slot = t;");
        tg_wgsl_line(w, "let row = group / %lld;", (long long)r->parts);
    } else {
        tg_wgsl_line(w, "let lane_of_row = t / %d;", (int)r->bundle);
        tg_wgsl_line(w, "let slot = t %% %d * %d + lane_of_row;", (int)r->bundle, (int)r->sharers);
        tg_wgsl_line(w, "let own = group / %lld * %d + t %% %d;", (long long)r->parts, (int)r->bundle, (int)r->bundle);
        tg_wgsl_line(w, "let row = min(own, %lld);", (long long)r->rows - 1);
    }
    tg_wgsl_line(w, "let part = group %% %lld;", (long long)r->parts);
    tg_wgsl_line(w, "let begin = part * %lld;", (long long)r->chunk);
    tg_wgsl_line(w, "let end = min(begin + %lld, %lld);", (long long)r->chunk, (long long)r->length);
}

/* All up to and including the reductions of depth `known`, which are in scratch. */
static void wgsl_rows_known(wgsl_rows *r, int32_t known) {
    tg_wgsl *w = r->w;
    tg_wgsl_decode(w, "row", 0, w->kernel->outer_count);
    tg_wgsl_body(w, TG_PHASE_TOP);
    wgsl_rows_outer(r, 0, false);
    for (int32_t sweep = 1; sweep <= known; sweep++) {
        wgsl_rows_gather_parts(r, sweep);
        wgsl_rows_trees(r, sweep, true);
        wgsl_rows_outer(r, sweep, false);
    }
}

static void wgsl_rows_leave(wgsl_rows *r, int32_t sweep) {
    tg_wgsl *w = r->w;
    char value[40];
    if (r->bundle == 1) tg_wgsl_line(w, "if (t == 0) {");
    else tg_wgsl_line(w, "if (lane_of_row == 0 && own < %lld) {", (long long)r->rows);
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        if (!tg_body_reduces_in(w->kernel, w->body, i, sweep)) continue;
        const int parts = (int)r->parts;
        snprintf(value, sizeof value, "bitcast<u32>(r%d)", (int)i);
        tg_wgsl_write_scratch(w, "u32", value, "%lld + row * %d + part", (long long)r->scratch[i], parts);
        if (!wgsl_rows_is_arg(w->kernel->body[i].op)) continue;
        snprintf(value, sizeof value, "bitcast<u32>(at%d)", (int)i);
        tg_wgsl_write_scratch(w, "u32", value, "%lld + row * %d + part", (long long)(r->scratch[i] + r->rows * r->parts), parts);
    }
    tg_wgsl_line(w, "}");
}

static void wgsl_rows_part_stage(wgsl_rows *r, int32_t sweep) {
    tg_wgsl *w = r->w;
    tg_wgsl_begin(w, tg_arena_format(w->arena, "depth %d of %lld parts a row", (int)sweep, (long long)r->parts));
    wgsl_rows_place_part(r);
    wgsl_rows_known(r, sweep - 1);
    wgsl_rows_walk(r, sweep);
    wgsl_rows_trees(r, sweep, false);
    wgsl_rows_leave(r, sweep);
    tg_wgsl_end(w, (r->rows + r->bundle - 1) / r->bundle * r->parts, r->size);
}

static void wgsl_rows_last_stage(wgsl_rows *r, bool elements, bool outer) {
    tg_wgsl *w = r->w;
    tg_wgsl_begin(w, tg_arena_format(w->arena, "joins %lld parts a row", (long long)r->parts));
    if (elements) wgsl_rows_place_part(r);
    else {
        tg_wgsl_line(w, "let lane_of_row = t;");
        tg_wgsl_line(w, "let slot = t;");
        tg_wgsl_line(w, "let row = group;");
        tg_wgsl_line(w, "let part = 0;");
    }
    wgsl_rows_known(r, w->sweeps);
    if (elements) wgsl_rows_store_elements(r, NULL);
    if (outer) wgsl_rows_store_outer(r, NULL);
    tg_wgsl_end(w, elements ? r->rows * r->parts : r->rows, r->size);
}

/* A value that one part of a row overwrites may be read by the others: such stores get a stage of
 * their own. */
static void wgsl_rows_last_stages(wgsl_rows *r) {
    const bool elements = tg_body_want(r->w->kernel, r->w->body, 0, true);
    const bool apart = elements && wgsl_rows_has_outer_stores(r->w, true);
    if (elements) wgsl_rows_last_stage(r, true, !apart);
    if (!elements || apart) wgsl_rows_last_stage(r, false, true);
}

static void wgsl_rows_in_parts(wgsl_rows *r) {
    tg_wgsl *w = r->w;
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        if (!w->body[i].live || !tg_body_is_reduction(w->kernel->body[i].op)) continue;
        r->scratch[i] = tg_wgsl_scratch(w, r->rows * r->parts * (wgsl_rows_is_arg(w->kernel->body[i].op) ? 2 : 1));
    }
    for (int32_t sweep = 1; sweep <= w->sweeps; sweep++) wgsl_rows_part_stage(r, sweep);
    /* from here on a workgroup has one row */
    r->sharers = r->size;
    wgsl_rows_last_stages(r);
}

/* Words of workgroup memory for each invocation: each reduction has an array of its own for its
 * tree. */
static int32_t wgsl_rows_words(const tg_wgsl *w) {
    int32_t words = 0;
    for (int32_t i = 0; i < w->kernel->body_count; i++)
        if (w->body[i].live && tg_body_is_reduction(w->kernel->body[i].op)) words += wgsl_rows_is_arg(w->kernel->body[i].op) ? 2 : 1;
    return words;
}

void tg_wgsl_reduce(tg_wgsl *w) {
    wgsl_rows r = {.w = w, .size = 256};
    r.rows = tg_wgsl_points(w, 0, w->kernel->outer_count);
    r.length = tg_wgsl_points(w, w->kernel->outer_count, w->kernel->loop_count);
    r.scratch = TG_NEW(w->arena, int64_t, w->kernel->body_count + 1);
    if (r.scratch == NULL) {
        w->status = TG_ERROR_MEMORY;
        return;
    }
    /* small: more workgroups, each smaller */
    if (r.rows * r.length < 16384 && r.length <= 64) r.size = 64;
    if (w->frame.size > 0) r.size = w->frame.size;
    const int32_t budget = tg_wgsl_workgroup_bytes(w, false) / TG_WORD_BYTES;
    while (tg_wgsl_is_lone(w) && wgsl_rows_words(w) * r.size > budget) r.size /= 2;
    r.across = wgsl_rows_across(w);
    r.sharers = wgsl_rows_words(w) * r.size <= budget ? wgsl_rows_sharers(&r) : 1;
    r.bundle = 1;
    r.parts = 1;
    r.chunk = r.length;
    if (r.sharers > 1) wgsl_rows_bundle(&r);
    if (r.bundle == 1 && (r.sharers > 1 || tg_wgsl_is_lone(w))) wgsl_rows_split(&r);
    r.exact = r.chunk > r.sharers * WGSL_ROWS_PLAIN;
    if (r.parts > 1) wgsl_rows_in_parts(&r);
    else wgsl_rows_whole(&r);
}

#undef WGSL_ROWS_SERIAL
#undef WGSL_ROWS_PLAIN
#undef WGSL_ROWS_SPLIT
#undef WGSL_ROWS_WORKGROUPS
#undef WGSL_ROWS_CHUNK
#undef WGSL_ROWS_BUNDLE
#undef WGSL_ROWS_BUNDLES
#undef WGSL_ROWS_EACH
#undef WGSL_ROWS_LARGE
