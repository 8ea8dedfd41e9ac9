/* wgsl: kernel IR as WGSL: the writer that all kinds of kernel share, instructions as expressions,
 * what modules have in common, and maps. Everything is bound read_write and sized; offsets and
 * extents are constants in the source, so that equal kernels have equal sources. Index arithmetic
 * is i32. A bool is a u32, 0 or 1, in memory. Must not look at the graph or at devices. */
#include "emit/wgsl.h"
#include "emit/wgsl_attention.h"
#include "ir/dtype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- failing, counting */

void tg_wgsl_fail(tg_wgsl *w, tg_status status, const char *what) {
    if (w->status != TG_OK) return;
    w->status = tg_fail(w->arena->ctx, status, TG_SITE_NONE, "wgsl: kernel %s: %s", w->kernel->name, what);
}

int64_t tg_wgsl_points(const tg_wgsl *w, int begin, int end) {
    int64_t points = 1;
    for (int d = begin; d < end; d++) points *= w->extent[d];
    return points;
}

int64_t tg_wgsl_count(const tg_wgsl *w, int32_t argument) { return w->program->buffers[w->kernel->arguments[argument].buffer].count; }

/* ---------------------------------------------------------------- lines */

static void wgsl_indent(tg_wgsl *w) { tg_text_add(&w->main, "%*s", 4 * w->indent, ""); }

void tg_wgsl_line(tg_wgsl *w, const char *format, ...) {
    char small[512];
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    char *line = length < (int)sizeof small ? small : tg_arena_alloc(w->arena, (size_t)length + 1);
    if (line != NULL && line != small) vsnprintf(line, (size_t)length + 1, format, again);
    va_end(again);
    if (line == NULL || length < 0) {
        w->main.failed = true;
        return;
    }
    if (line[0] == '}' && w->indent > 0) w->indent--;
    wgsl_indent(w);
    tg_text_add(&w->main, "%s\n", line);
    if (length > 0 && line[length - 1] == '{') w->indent++;
}

void tg_wgsl_start(tg_wgsl *w) { wgsl_indent(w); }

/* A line begun by hand may close or open a block as well. */
void tg_wgsl_newline(tg_wgsl *w) {
    if (w->main.length > 0 && w->main.data[w->main.length - 1] == '{') w->indent++;
    tg_text_add(&w->main, "\n");
}

/* ---------------------------------------------------------------- index arithmetic */

static bool wgsl_affine_terms(tg_wgsl *w, const tg_affine *at, int begin, int end) {
    bool any = false;
    for (int d = begin; d < end; d++) {
        const int64_t stride = at->stride[d], size = stride < 0 ? -stride : stride;
        if (stride == 0 || w->index[d] == NULL) continue;
        tg_text_add(&w->main, "%s", any ? (stride < 0 ? " - " : " + ") : (stride < 0 ? "-" : ""));
        if (size != 1) tg_text_add(&w->main, "%lld * ", (long long)size);
        tg_text_add(&w->main, "%s", w->index[d]);
        any = true;
    }
    return any;
}

void tg_wgsl_affine_over(tg_wgsl *w, const tg_affine *at, int begin, int end, bool offset) {
    const bool any = wgsl_affine_terms(w, at, begin, end);
    if (!offset || (any && at->offset == 0)) return;
    if (!any) tg_text_add(&w->main, "%lld", (long long)at->offset);
    else tg_text_add(&w->main, " %c %lld", at->offset < 0 ? '-' : '+', (long long)(at->offset < 0 ? -at->offset : at->offset));
}

void tg_wgsl_affine(tg_wgsl *w, const tg_affine *at) { tg_wgsl_affine_over(w, at, 0, w->kernel->loop_count, true); }

void tg_wgsl_bounds(tg_wgsl *w, const tg_bound *bounds, int count) {
    for (int i = 0; i < count; i++) {
        tg_text_add(&w->main, "%s(", i ? " & " : "");
        tg_wgsl_affine(w, &bounds[i].at);
        tg_text_add(&w->main, " >= %lld) & (", (long long)bounds[i].lo);
        tg_wgsl_affine(w, &bounds[i].at);
        tg_text_add(&w->main, " < %lld)", (long long)bounds[i].hi);
    }
    if (count == 0) tg_text_add(&w->main, "true");
}

int32_t tg_wgsl_workgroup_bytes(const tg_wgsl *w, bool vectors) {
    const tg_tile_room room = {w->limits, w->frame};
    return tg_tile_workgroup_bytes(&room, vectors);
}

void tg_wgsl_slice(tg_wgsl *w, int64_t step) {
    if (w->frame.slices > 0 && step != 0) tg_text_add(&w->main, "slice * %lld + ", (long long)step);
}

void tg_wgsl_decode(tg_wgsl *w, const char *flat, int begin, int end) {
    int64_t below = tg_wgsl_points(w, begin, end);
    bool first = true;
    for (int d = begin; d < end; d++) {
        if (w->extent[d] == 1) continue;
        below /= w->extent[d];
        tg_wgsl_start(w);
        tg_text_add(&w->main, "let i%d = ", d);
        if (d == 0) tg_wgsl_slice(w, w->extent[0]);
        tg_text_add(&w->main, "%s", flat);
        if (below != 1) tg_text_add(&w->main, " / %lld", (long long)below);
        if (!first) tg_text_add(&w->main, " %% %lld", (long long)w->extent[d]);
        tg_text_add(&w->main, ";");
        tg_wgsl_newline(w);
        first = false;
    }
}

/* ---------------------------------------------------------------- literals */

/* The shortest decimal that reads back as the same float. The largest float has none of nine digits
 * within f32's range, and WGSL requires the decimal itself to be in that range. */
static void wgsl_float(tg_text_buffer *text, float value) {
    char digits[64] = "";
    if (fabsf(value) == FLT_MAX) {
        tg_text_add(text, "%s0x1.fffffep+127f", value < 0 ? "-" : "");
        return;
    }
    for (int precision = 1; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
        if (strtof(digits, NULL) == value) break;
    }
    for (char *c = digits; *c; c++)
        if (*c == ',') *c = '.'; /* a locale's decimal comma */
    tg_text_add(text, "%sf", digits);
}

void tg_wgsl_literal(tg_wgsl *w, tg_dtype dtype, double value) {
    if (dtype == TG_BOOL) tg_text_add(&w->main, "%s", value != 0.0 ? "true" : "false");
    else if (dtype == TG_I32) tg_text_add(&w->main, "i32(%lld)", (long long)value);
    else if (isnan((float)value)) tg_text_add(&w->main, "%s()", tg_wgsl_helper(w, "tg_not_a_number"));
    else if (isinf((float)value)) tg_text_add(&w->main, "%s%s()", value < 0 ? "-" : "", tg_wgsl_helper(w, "tg_inf"));
    else wgsl_float(&w->main, (float)value);
}

/* ---------------------------------------------------------------- memory */

int64_t tg_wgsl_scratch(tg_wgsl *w, int64_t words) {
    const int64_t first = w->scratch_words;
    w->scratch_words += (words + 3) / 4 * 4;
    return first;
}

bool tg_wgsl_body_writes(const tg_wgsl *w, int32_t argument) {
    for (int32_t i = 0; i < w->kernel->body_count; i++) {
        const tg_instruction *in = &w->kernel->body[i];
        if (tg_body_is_effect(in->op) && w->body[i].live && in->argument == argument) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- instructions */

static void wgsl_operand(tg_wgsl *w, const tg_instruction *in, int operand) {
    if (tg_wgsl_keeps(w, in, operand)) tg_text_add(&w->main, "%s(v%d)", tg_wgsl_helper(w, "tg_keep"), (int)in->src[operand]);
    else tg_text_add(&w->main, "v%d", (int)in->src[operand]);
}

static void wgsl_pattern(tg_wgsl *w, const tg_instruction *in, const char *pattern) {
    tg_wgsl_use_helpers(w, pattern);
    for (const char *c = pattern; *c; c++) {
        if (c[0] == '%' && c[1] >= '1' && c[1] <= '3') wgsl_operand(w, in, *++c - '1');
        else tg_text_add(&w->main, "%c", *c);
    }
}

static void wgsl_cast(tg_wgsl *w, const tg_instruction *in) {
    const tg_dtype from = w->kernel->body[in->src[0]].dtype, to = in->dtype;
    const char *pattern = from == TG_F32 ? "tg_to_i32(%1)" : "i32(%1)";
    if (to == from) pattern = "%1";
    /* NaN is true */
    else if (to == TG_BOOL) pattern = from == TG_F32 ? "(bitcast<u32>(%1) << 1u) != 0u" : "%1 != 0";
    else if (to == TG_F32) pattern = "f32(%1)";
    wgsl_pattern(w, in, pattern);
}

static void wgsl_random(tg_wgsl *w, const tg_instruction *in) {
    tg_text_add(&w->main, "%s(v%d, v%d, v%d, %ldu, %.0fu)", tg_wgsl_helper(w, "tg_random"), (int)in->src[0], (int)in->src[1],
                (int)in->src[2], (long)in->stream, in->value);
}

/* Devices may divide by multiplying with 1 / y, and some take infinity / infinity for 0. So a
 * quotient by infinity is a product with 0. A plain quotient is safe by another known number of up
 * to 2^126; beyond that, where 1 / y may be taken for 0, and by an unknown number it is not. */
static void wgsl_divide(tg_wgsl *w, const tg_instruction *in) {
    const tg_instruction *by = &w->kernel->body[in->src[1]];
    const bool known = by->op == TG_OP_CONST;
    if (in->dtype == TG_I32) wgsl_pattern(w, in, "tg_div_i32(%1, %2)");
    else if (known && isinf(by->value))
        tg_text_add(&w->main, "v%d * %s(%s)", (int)in->src[0], tg_wgsl_helper(w, "tg_keep"), by->value > 0 ? "0f" : "-0f");
    else if (known && !(fabs(by->value) > 0x1p126)) wgsl_pattern(w, in, "%1 / %2");
    else wgsl_pattern(w, in, "tg_div(%1, %2)");
}

/* How an elementwise op is spelled for operands of f32, i32 and bool, as ops.def has it, or the
 * function that prints it. */
typedef struct wgsl_spelling {
    const char *f32, *i32, *boolean;
    void (*own)(tg_wgsl *w, const tg_instruction *in);
} wgsl_spelling;

#define WGSL_NONE \
  { NULL, NULL, NULL, NULL }
#define WGSL_F32(f) \
  { f, NULL, NULL, NULL }
#define WGSL_NUMBER(f, i) \
  { f, i, NULL, NULL }
#define WGSL_BOOL(b) \
  { NULL, NULL, b, NULL }
#define WGSL_ANY(f, i, b) \
  { f, i, b, NULL }
#define WGSL_SAME(all) \
  { all, all, all, NULL }
#define WGSL_OWN(name) \
  { NULL, NULL, NULL, wgsl_##name }

static const wgsl_spelling wgsl_spellings[TG_OP_COUNT] = {
    WGSL_NONE, /* poison */
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, price, description, c, wgsl, vm) WGSL_##wgsl,
#include "ir/ops.def"
#undef TG_OP
};

#undef WGSL_NONE
#undef WGSL_F32
#undef WGSL_NUMBER
#undef WGSL_BOOL
#undef WGSL_ANY
#undef WGSL_SAME
#undef WGSL_OWN

static void wgsl_elementwise(tg_wgsl *w, const tg_instruction *in) {
    const wgsl_spelling *s = in->op < TG_OP_COUNT ? &wgsl_spellings[in->op] : &wgsl_spellings[TG_OP_POISON];
    /* the type of the operands decides the spelling; for SELECT, the type of its branches */
    const tg_dtype from = w->kernel->body[in->src[in->op == TG_OP_SELECT ? 1 : 0]].dtype;
    const char *pattern = from == TG_F32 ? s->f32 : from == TG_I32 ? s->i32 : s->boolean;
    if (s->own != NULL) s->own(w, in);
    else if (pattern != NULL) wgsl_pattern(w, in, pattern);
    else tg_wgsl_fail(w, TG_ERROR_INTERNAL, "an operation or type that has no spelling");
}

static void wgsl_address(tg_wgsl *w, const tg_instruction *in) {
    if (in->op == TG_K_GATHER || in->op == TG_K_SCATTER)
        tg_text_add(&w->main, "clamp(v%d, 0, %lld) * %lld + ", (int)in->src[0], (long long)in->rows - 1, (long long)in->row_stride);
    tg_wgsl_affine(w, &in->at);
}

/* An element of an argument, or 0 where a bound fails: select(0f, a3[clamp(address, 0, 511)], b5).
 * Then what is read lies near what the neighbours read: were it always the first element, all
 * processors would wait for one line of a cache. In a chain it is the first element of the slice,
 * which no other workgroup writes: a3[select(slice * 64 + 0, address, b5)]. */
static void wgsl_load(tg_wgsl *w, int32_t i) {
    const tg_instruction *in = &w->kernel->body[i];
    const tg_wgsl_memory memory = tg_wgsl_argument(w, in->argument);
    const tg_dtype_info *dtype = tg_dtype_row(w->kernel->arguments[in->argument].dtype);
    const bool guarded = in->bound_count > 0, chained = guarded && w->frame.slices > 0;
    tg_text_buffer *text = &w->main;
    tg_text_add(text, "%s", dtype->wgsl_load.before);
    if (guarded) tg_text_add(text, "select(%s, ", dtype->wgsl_zero);
    tg_wgsl_open_read(text, &memory);
    if (chained) {
        tg_text_add(text, "select(");
        tg_wgsl_slice(w, tg_wgsl_count(w, in->argument) / w->frame.slices);
        tg_text_add(text, "0, ");
    } else if (guarded) tg_text_add(text, "clamp(");
    wgsl_address(w, in);
    if (chained) tg_text_add(text, ", b%d)", (int)i);
    else if (guarded) tg_text_add(text, ", 0, %lld)", (long long)tg_wgsl_count(w, in->argument) - 1);
    tg_wgsl_close_read(text, &memory);
    if (guarded) tg_text_add(text, ", b%d)", (int)i);
    tg_text_add(text, "%s", dtype->wgsl_load.after);
}

static void wgsl_expression(tg_wgsl *w, int32_t i) {
    const tg_instruction *in = &w->kernel->body[i];
    switch (in->op) {
    case TG_OP_CONST: tg_wgsl_literal(w, in->dtype, in->value); return;
    case TG_K_LOAD:
    case TG_K_GATHER: wgsl_load(w, i); return;
    case TG_K_INSIDE: tg_wgsl_bounds(w, in->bounds, in->bound_count); return;
    case TG_K_ACC: tg_text_add(&w->main, "%s", w->accumulator != NULL ? w->accumulator : "0f"); return;
    case TG_K_INDEX:
        tg_text_add(&w->main, "%s(", tg_dtype_row(in->dtype)->wgsl_compute);
        tg_wgsl_affine(w, &in->at);
        tg_text_add(&w->main, ")");
        return;
    default: wgsl_elementwise(w, in);
    }
}

void tg_wgsl_store(tg_wgsl *w, int32_t i, const char *value) {
    const tg_instruction *in = &w->kernel->body[i];
    const tg_dtype_wrap stored = tg_dtype_row(w->kernel->arguments[in->argument].dtype)->wgsl_store;
    const tg_wgsl_memory memory = tg_wgsl_argument(w, in->argument);
    tg_wgsl_start(w);
    if (in->bound_count > 0) {
        tg_text_add(&w->main, "if (");
        tg_wgsl_bounds(w, in->bounds, in->bound_count);
        tg_text_add(&w->main, ") { ");
    }
    tg_wgsl_open_write(&w->main, &memory);
    wgsl_address(w, in);
    tg_wgsl_write_value(&w->main, &memory);
    tg_text_add(&w->main, "%s%s%s", stored.before, value, stored.after);
    tg_wgsl_close_write(&w->main, &memory);
    if (in->bound_count > 0) tg_text_add(&w->main, " }");
    tg_wgsl_newline(w);
}

void tg_wgsl_instruction(tg_wgsl *w, int32_t i) {
    const tg_instruction *in = &w->kernel->body[i];
    if (in->op == TG_K_SCATTER) return; /* the scatter printer prints it */
    if (in->op == TG_K_STORE) {
        char value[16];
        snprintf(value, sizeof value, "v%d", (int)in->src[0]);
        tg_wgsl_store(w, i, value);
        return;
    }
    if ((in->op == TG_K_LOAD || in->op == TG_K_GATHER) && in->bound_count > 0) {
        tg_wgsl_start(w);
        tg_text_add(&w->main, "let b%d = ", (int)i);
        tg_wgsl_bounds(w, in->bounds, in->bound_count);
        tg_text_add(&w->main, ";");
        tg_wgsl_newline(w);
    }
    tg_wgsl_start(w);
    tg_text_add(&w->main, "let v%d: %s = ", (int)i, tg_dtype_row(in->dtype)->wgsl_compute);
    wgsl_expression(w, i);
    tg_text_add(&w->main, ";");
    tg_wgsl_newline(w);
}

void tg_wgsl_body(tg_wgsl *w, tg_phase phase) {
    for (int32_t i = 0; i < w->kernel->body_count; i++)
        if (w->body[i].live && w->body[i].phase == phase) tg_wgsl_instruction(w, i);
}

/* ---------------------------------------------------------------- stages */

void tg_wgsl_comment(const tg_wgsl *w, tg_text_buffer *text) {
    tg_text_add(text, "// ");
    tg_kernel_summary(w->kernel, text);
    if (w->what != NULL) tg_text_add(text, "; %s", w->what);
    tg_text_add(text, "\n");
}

void tg_wgsl_begin(tg_wgsl *w, const char *what) {
    static const char *const names[TG_MAX_LOOP] = {"i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8", "i9", "i10", "i11"};
    tg_text_clear(&w->functions);
    tg_text_clear(&w->main);
    w->what = what;
    w->indent = 1;
    for (int d = 0; d < TG_MAX_LOOP; d++) w->index[d] = d < w->kernel->loop_count && w->extent[d] > 1 ? names[d] : NULL;
    if (w->frame.slices > 0 && w->extent[0] == 1) w->index[0] = "slice";
    w->accumulator = NULL;
    w->prefix = "";
    w->f16 = w->matrices = false;
    if (w->stage_count == TG_WGSL_MAX_STAGES) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "too many stages");
    else w->resolver->begin(w);
}

/* Workgroups in up to three dimensions, with as few too many as possible. */
bool tg_wgsl_spread(const tg_wgsl *w, int64_t workgroups, int32_t groups[3]) {
    const int64_t most = w->limits->groups;
    int64_t x = workgroups, y = 1, z = 1;
    if (x > most) {
        y = (workgroups + most - 1) / most;
        if (y > most) {
            z = (y + most - 1) / most;
            y = (y + z - 1) / z;
        }
        x = (workgroups + y * z - 1) / (y * z);
    }
    groups[0] = (int32_t)x;
    groups[1] = (int32_t)y;
    groups[2] = (int32_t)z;
    return z <= most;
}

void tg_wgsl_enable(tg_text_buffer *text, bool f16, bool matrices) {
    /* compilers cannot know what is uniform in a subgroup but not in a workgroup, such as its
     * number */
    if (matrices) tg_text_add(text, "diagnostic(off, chromium.subgroup_matrix_uniformity);\n");
    if (f16) tg_text_add(text, "enable f16;\n");
    if (matrices) tg_text_add(text, "enable chromium_experimental_subgroup_matrix;\n");
}

/* `index` is the name of the workgroup's number, "group" or "slice". */
void tg_wgsl_main_head(const tg_wgsl *w, tg_text_buffer *text, const int32_t groups[3], int64_t workgroups, int32_t size,
                       const char *index) {
    const bool zero = tg_wgsl_has_helper(w, "tg_zero");
    tg_text_add(text, "@compute @workgroup_size(%d)\n", (int)size);
    tg_text_add(text, "fn main(@builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) workgroup: vec3<u32>%s%s) {\n",
                zero ? ", @builtin(num_workgroups) launched: vec3<u32>" : "", w->matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
    if (zero) tg_text_add(text, "    tg_zero_word = launched.x ^ %du;\n", (int)groups[0]);
    tg_text_add(text, "    let t = i32(local_index);\n");
    if (groups[1] == 1) {
        tg_text_add(text, "    let %s = i32(workgroup.x);\n", index);
        return;
    }
    if (groups[2] == 1) tg_text_add(text, "    let %s = i32(workgroup.x + %du * workgroup.y);\n", index, (int)groups[0]);
    else
        tg_text_add(text, "    let %s = i32(workgroup.x + %du * (workgroup.y + %du * workgroup.z));\n", index, (int)groups[0],
                    (int)groups[1]);
    if ((int64_t)groups[0] * groups[1] * groups[2] != workgroups)
        tg_text_add(text, "    if (%s >= %lld) { return; }\n", index, (long long)workgroups);
}

void tg_wgsl_end(tg_wgsl *w, int64_t workgroups, int32_t size) {
    if (w->indent != 1) tg_wgsl_fail(w, TG_ERROR_INTERNAL, "blocks that do not close");
    if (w->status == TG_OK && (w->functions.failed || w->main.failed)) w->status = TG_ERROR_MEMORY;
    if (w->status == TG_OK) w->resolver->end(w, workgroups, size);
    if (w->status == TG_OK) w->stage_count++;
}

/* ---------------------------------------------------------------- maps */

#define WGSL_MAP_SMALL 16384 /* points; with fewer, workgroups of 64 keep more of the device busy */
#define WGSL_MAP_ONCE 16     /* instructions for all points that are worth sharing */
#define WGSL_MAP_BUSY 4      /* times the invocations that keep a device busy: they wait for memory */
#define WGSL_MAP_MOST 16     /* points of one invocation */

/* Points of one invocation. A body that computes much once for all points (the rate and the other
 * numbers of an optimiser) does so once for several, if there are more points than keep the device
 * busy. */
static int64_t wgsl_map_points(const tg_wgsl *w, int64_t points) {
    int32_t once = 0;
    for (int32_t i = 0; i < w->kernel->body_count; i++) once += w->body[i].live && w->body[i].phase == TG_PHASE_TOP;
    if (once < WGSL_MAP_ONCE || !tg_wgsl_is_lone(w) || w->limits->rates == NULL) return 1;
    const int64_t each = points / ((int64_t)WGSL_MAP_BUSY * w->limits->rates->busy_invocations);
    return each < 1 ? 1 : each > WGSL_MAP_MOST ? WGSL_MAP_MOST : each;
}

void tg_wgsl_map(tg_wgsl *w) {
    const int64_t points = tg_wgsl_points(w, 0, w->kernel->loop_count), each = wgsl_map_points(w, points);
    const int32_t size = w->frame.size > 0 ? w->frame.size : points < WGSL_MAP_SMALL ? 64 : 256;
    const bool guarded = points % (size * each) != 0;
    tg_wgsl_begin(w, NULL);
    if (each > 1) {
        tg_wgsl_body(w, TG_PHASE_TOP);
        tg_wgsl_line(w, "for (var i = 0; i < %d; i++) {", (int)each);
        tg_wgsl_line(w, "let point = (group * %d + i) * %d + t;", (int)each, (int)size);
    } else tg_wgsl_line(w, "let point = group * %d + t;", (int)size);
    if (guarded) tg_wgsl_line(w, "if (point >= %lld) { return; }", (long long)points);
    tg_wgsl_decode(w, "point", 0, w->kernel->loop_count);
    if (each == 1) tg_wgsl_body(w, TG_PHASE_TOP);
    tg_wgsl_body(w, TG_PHASE_ELEMENT);
    if (each > 1) tg_wgsl_line(w, "}");
    tg_wgsl_end(w, (points + size * each - 1) / (size * each), size);
}

#undef WGSL_MAP_SMALL
#undef WGSL_MAP_ONCE
#undef WGSL_MAP_BUSY
#undef WGSL_MAP_MOST

/* ---------------------------------------------------------------- one kernel, all kernels */

static void wgsl_dispatch(tg_wgsl *w) {
    switch (w->kernel->kind) {
    case TG_KERNEL_MAP: tg_wgsl_map(w); return;
    case TG_KERNEL_REDUCE: tg_wgsl_reduce(w); return;
    case TG_KERNEL_CONTRACT: tg_wgsl_contract(w); return;
    case TG_KERNEL_SCATTER_ADD: tg_wgsl_scatter(w); return;
    case TG_KERNEL_ATTENTION:
        if (tg_wgsl_attention_fits(w)) tg_wgsl_attention_tiles(w);
        else tg_wgsl_attention_rows(w);
        return;
    }
    tg_wgsl_fail(w, TG_ERROR_INTERNAL, "a kind of kernel that has no printer");
}

/* What all printers need to know of w->kernel. */
static bool wgsl_prepare(tg_wgsl *w) {
    w->body = TG_NEW(w->arena, tg_body_info, w->kernel->body_count + 1);
    if (w->body == NULL) {
        w->status = TG_ERROR_MEMORY;
        return false;
    }
    w->sweeps = tg_body_analyse(w->kernel, w->body);
    memcpy(w->extent, w->kernel->extent, sizeof w->extent);
    if (w->frame.slices > 0) w->extent[0] /= w->frame.slices;
    w->stage_count = 0;
    w->scratch_words = 0;
    return true;
}

tg_status tg_wgsl_print(tg_wgsl *w) {
    if (wgsl_prepare(w)) wgsl_dispatch(w);
    return w->status;
}

tg_status tg_wgsl_plan_vectors(tg_wgsl *w, bool *vectors) {
    if (w->kernel->kind == TG_KERNEL_CONTRACT && wgsl_prepare(w)) tg_wgsl_contract_vectors(w, vectors);
    return w->status;
}

tg_status tg_wgsl_list_candidates(tg_wgsl *w, tg_tile_candidates *candidates) {
    if (w->kernel->kind == TG_KERNEL_CONTRACT && wgsl_prepare(w)) tg_wgsl_contract_candidates(w, candidates);
    return w->status;
}

tg_wgsl *tg_wgsl_open(const tg_program *program, const tg_device_model *limits, tg_arena *arena) {
    tg_wgsl *w = tg_alloc(arena->ctx, sizeof *w);
    if (w == NULL) return NULL;
    w->program = program;
    w->limits = limits;
    w->arena = arena;
    tg_text_init(&w->functions, arena->ctx);
    tg_text_init(&w->main, arena->ctx);
    return w;
}

void tg_wgsl_close(tg_wgsl *w) {
    tg_text_free(&w->functions);
    tg_text_free(&w->main);
    tg_release(w->arena->ctx, w, sizeof *w);
}
