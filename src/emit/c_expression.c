/* c_expression: one instruction of kernel IR in C: literals, addresses, bounds, operations and the
 * small functions that they call. Must not know loops. */
#include "emit/c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small functions that printed code may call; printed only if they are used. */
typedef struct emit_c_helper {
    const char *name, *text;
} emit_c_helper;
static const emit_c_helper emit_c_helpers[] = {
    {"tg_sign_f32", "static float tg_sign_f32(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x != x ? x : 0.0f; }"},
    {"tg_sigmoid_f32", "static float tg_sigmoid_f32(float x) {\n"
                       "    const double e = exp(-fabs((double)x));\n"
                       "    return (float)(x >= 0 ? 1.0 / (1.0 + e) : x < 0 ? e / (1.0 + e) : e / 2.0);\n}"},
    {"tg_softplus_f32", "static float tg_softplus_f32(float x) {\n"
                        "    return x != x ? x : (float)((x > 0 ? (double)x : 0.0) + log1p(exp(-fabs((double)x))));\n}"},
    {"tg_min_f32", "static float tg_min_f32(float a, float b) { return a != a || a <= b ? a : b; }"},
    {"tg_max_f32", "static float tg_max_f32(float a, float b) { return a != a || a >= b ? a : b; }"},
    {"tg_mod_f32", "static float tg_mod_f32(float a, float b) {\n"
                   "    const float size = fabsf(b), rest = fmodf(fabsf(a), size), turned = size - rest;\n"
                   "    if (!(rest > 0) || !signbit(a) == !signbit(b)) return copysignf(rest, b);\n"
                   "    return copysignf(turned == size && size < INFINITY ? nextafterf(size, 0) : turned, b);\n}"},
    {"tg_add_i32", "static int32_t tg_add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }"},
    {"tg_sub_i32", "static int32_t tg_sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }"},
    {"tg_mul_i32", "static int32_t tg_mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }"},
    {"tg_div_i32", "static int32_t tg_div_i32(int32_t a, int32_t b) {\n"
                   "    return b == 0 ? 0 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;\n}"},
    {"tg_min_i32", "static int32_t tg_min_i32(int32_t a, int32_t b) { return a < b ? a : b; }"},
    {"tg_max_i32", "static int32_t tg_max_i32(int32_t a, int32_t b) { return a > b ? a : b; }"},
    {"tg_to_i32", "static int32_t tg_to_i32(float x) { /* truncates, saturates, NaN is 0 */\n"
                  "    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x <= -2147483648.0f ? INT32_MIN : (int32_t)x;\n}"},
    {"tg_random", "static int32_t tg_random(int32_t index, int32_t key0, int32_t key1, uint32_t stream, uint32_t bound) {\n"
                  "    uint32_t a = (uint32_t)index, b = 0, c = stream, d = 0, k = (uint32_t)key0, l = (uint32_t)key1;\n"
                  "    for (int round = 0; round < 10; round++) { /* Philox 4x32 */\n"
                  "        const uint64_t left = (uint64_t)0xD2511F53u * a, right = (uint64_t)0xCD9E8D57u * c;\n"
                  "        a = (uint32_t)(right >> 32) ^ b ^ k;\n"
                  "        b = (uint32_t)right;\n"
                  "        c = (uint32_t)(left >> 32) ^ d ^ l;\n"
                  "        d = (uint32_t)left;\n"
                  "        k += 0x9E3779B9u;\n"
                  "        l += 0xBB67AE85u;\n"
                  "    }\n"
                  "    return (int32_t)(((uint64_t)a * bound + ((uint64_t)b * bound >> 32)) >> 32);\n}"},
    {"tg_row", "static int64_t tg_row(int32_t index, int64_t rows) { return index < 0 ? 0 : index >= rows ? rows - 1 : index; }"},
};
_Static_assert(sizeof emit_c_helpers / sizeof emit_c_helpers[0] == TG_C_HELPERS, "one flag for each helper");

/* ---------------------------------------------------------------- types */

/* A load and a store convert by assignment. */
const char *tg_c_type(tg_dtype dtype) { return tg_dtype_row(dtype)->c_compute; }
const char *tg_c_memory_type(tg_dtype dtype) { return tg_dtype_row(dtype)->c_storage; }

/* ---------------------------------------------------------------- literals */

/* The shortest of %.1g .. %.9g that reads back as the same float. */
static void emit_c_float(tg_text_buffer *text, float value) {
    char digits[64] = "";
    if (isnan(value)) tg_text_add(text, "NAN");
    else if (isinf(value)) tg_text_add(text, value > 0 ? "INFINITY" : "-INFINITY");
    else {
        for (int precision = 1; precision <= 9; precision++) {
            snprintf(digits, sizeof digits, "%.*g", precision, (double)value);
            if (strtof(digits, NULL) == value) break;
        }
        for (char *c = digits; *c; c++)
            if (*c == ',') *c = '.'; /* a locale's decimal comma */
        tg_text_add(text, strpbrk(digits, ".e") ? "%sf" : "%s.0f", digits);
    }
}

void tg_c_literal(tg_text_buffer *text, tg_dtype dtype, double value) {
    if (dtype == TG_F32) emit_c_float(text, (float)value);
    else if (dtype == TG_BOOL) tg_text_add(text, "%d", value != 0.0);
    else if (value <= -2147483648.0) tg_text_add(text, "INT32_MIN");
    else tg_text_add(text, "%lld", (long long)value);
}

/* ---------------------------------------------------------------- index arithmetic */

void tg_c_indent(tg_c_kernel *k) { tg_text_add(k->file->text, "%*s", 4 * k->indent, ""); }

/* offset + sum stride * i, over loops [0, loop_count) */
void tg_c_affine(tg_c_kernel *k, const tg_affine *at) {
    tg_text_buffer *text = k->file->text;
    bool any = false;
    for (int d = 0; d < k->kernel->loop_count; d++) {
        const int64_t stride = at->stride[d];
        if (stride == 0) continue;
        const int64_t size = stride < 0 ? -stride : stride;
        tg_text_add(text, "%s", any ? (stride < 0 ? " - " : " + ") : (stride < 0 ? "-" : ""));
        if (size != 1) tg_text_add(text, "%lld * ", (long long)size);
        tg_text_add(text, "i%d", d);
        any = true;
    }
    if (!any) tg_text_add(text, "%lld", (long long)at->offset);
    else if (at->offset > 0) tg_text_add(text, " + %lld", (long long)at->offset);
    else if (at->offset < 0) tg_text_add(text, " - %lld", -(long long)at->offset);
}

/* (lo <= at && at < hi && ...) */
static void emit_c_bounds(tg_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    for (int i = 0; i < in->bound_count; i++) {
        const tg_bound *bound = &in->bounds[i];
        tg_text_add(text, "%s%lld <= ", i ? " && " : "", (long long)bound->lo);
        tg_c_affine(k, &bound->at);
        tg_text_add(text, " && ");
        tg_c_affine(k, &bound->at);
        tg_text_add(text, " < %lld", (long long)bound->hi);
    }
    if (in->bound_count == 0) tg_text_add(text, "1");
}

/* ---------------------------------------------------------------- one instruction */

void tg_c_use_helpers(tg_c_file *file, const char *spelling) {
    for (int i = 0; i < TG_C_HELPERS; i++)
        if (strstr(spelling, emit_c_helpers[i].name)) file->used[i] = true;
}

/* Prints `pattern` with %1 %2 %3 replaced by the instruction's operands. */
static void emit_c_pattern(tg_c_kernel *k, const tg_instruction *in, const char *pattern) {
    tg_c_use_helpers(k->file, pattern);
    for (const char *c = pattern; *c; c++) {
        if (c[0] == '%' && c[1] >= '1' && c[1] <= '3') tg_text_add(k->file->text, "v%d", (int)in->src[*++c - '1']);
        else tg_text_add(k->file->text, "%c", *c);
    }
}

static void emit_c_cast(tg_c_kernel *k, const tg_instruction *in) {
    const tg_dtype from = k->kernel->body[in->src[0]].dtype, to = in->dtype;
    const char *truncated = from == TG_F32 ? "tg_to_i32(%1)" : "(int32_t)%1";
    emit_c_pattern(k, in, to == from ? "%1" : to == TG_BOOL ? "%1 != 0" : to == TG_F32 ? "(float)%1" : truncated);
}

static void emit_c_random(tg_c_kernel *k, const tg_instruction *in) {
    tg_c_use_helpers(k->file, "tg_random");
    tg_text_add(k->file->text, "tg_random(v%d, v%d, v%d, %ldu, %.0fu)", (int)in->src[0], (int)in->src[1], (int)in->src[2], (long)in->stream,
                in->value);
}

/* How an elementwise op is spelled for operands of f32, i32 and bool, as ops.def has it, or the
 * function that prints it. */
typedef struct emit_c_spelling {
    const char *f32, *i32, *boolean;
    void (*own)(tg_c_kernel *k, const tg_instruction *in);
} emit_c_spelling;

#define EMIT_C_NONE \
  { NULL, NULL, NULL, NULL }
#define EMIT_C_F32(f) \
  { f, NULL, NULL, NULL }
#define EMIT_C_NUMBER(f, i) \
  { f, i, NULL, NULL }
#define EMIT_C_BOOL(b) \
  { NULL, NULL, b, NULL }
#define EMIT_C_ANY(f, i, b) \
  { f, i, b, NULL }
#define EMIT_C_SAME(all) \
  { all, all, all, NULL }
#define EMIT_C_OWN(name) \
  { NULL, NULL, NULL, emit_c_##name }

static const emit_c_spelling emit_c_spellings[TG_OP_COUNT] = {
    EMIT_C_NONE, /* poison */
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, price, description, c, wgsl, vm) EMIT_C_##c,
#include "ir/ops.def"
#undef TG_OP
};

#undef EMIT_C_NONE
#undef EMIT_C_F32
#undef EMIT_C_NUMBER
#undef EMIT_C_BOOL
#undef EMIT_C_ANY
#undef EMIT_C_SAME
#undef EMIT_C_OWN

static void emit_c_elementwise(tg_c_kernel *k, const tg_instruction *in) {
    if (in->op >= TG_OP_COUNT) {
        k->file->bad = true;
        return;
    }
    /* the type of the operands decides the spelling; for SELECT, the type of its branches */
    const tg_dtype from = k->kernel->body[in->src[in->op == TG_OP_SELECT ? 1 : 0]].dtype;
    const emit_c_spelling *s = &emit_c_spellings[in->op];
    const char *pattern = from == TG_F32 ? s->f32 : from == TG_I32 ? s->i32 : s->boolean;
    if (s->own != NULL) s->own(k, in);
    else if (pattern != NULL) emit_c_pattern(k, in, pattern);
    else k->file->bad = true;
}

static void emit_c_load(tg_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    if (in->bound_count > 0) {
        emit_c_bounds(k, in);
        tg_text_add(text, " ? ");
    }
    tg_text_add(text, "a%d[", (int)in->argument);
    if (in->op == TG_K_GATHER) {
        tg_c_use_helpers(k->file, "tg_row");
        tg_text_add(text, "tg_row(v%d, %lld) * %lld + ", (int)in->src[0], (long long)in->rows, (long long)in->row_stride);
    }
    tg_c_affine(k, &in->at);
    tg_text_add(text, in->bound_count > 0 ? "] : 0" : "]");
}

static void emit_c_expression(tg_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    switch (in->op) {
    case TG_OP_CONST: tg_c_literal(text, in->dtype, in->value); return;
    case TG_K_LOAD:
    case TG_K_GATHER: emit_c_load(k, in); return;
    case TG_K_INSIDE: emit_c_bounds(k, in); return;
    case TG_K_ACC: tg_text_add(text, "(float)acc"); return;
    case TG_K_INDEX:
        tg_text_add(text, "(%s)(", tg_c_type(in->dtype));
        tg_c_affine(k, &in->at);
        tg_text_add(text, ")");
        return;
    default: emit_c_elementwise(k, in);
    }
}

static void emit_c_store(tg_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    tg_c_indent(k);
    if (in->bound_count > 0) {
        tg_text_add(text, "if (");
        emit_c_bounds(k, in);
        tg_text_add(text, ") ");
    }
    tg_text_add(text, "a%d[", (int)in->argument);
    if (in->op == TG_K_SCATTER) {
        tg_c_use_helpers(k->file, "tg_row");
        tg_text_add(text, "tg_row(v%d, %lld) * %lld + ", (int)in->src[0], (long long)in->rows, (long long)in->row_stride);
    }
    tg_c_affine(k, &in->at);
    if (in->op == TG_K_SCATTER) tg_text_add(text, "] += v%d;\n", (int)in->src[1]);
    else tg_text_add(text, "] = v%d;\n", (int)in->src[0]);
}

void tg_c_instruction(tg_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    if (tg_body_is_effect(in->op)) {
        emit_c_store(k, in);
        return;
    }
    tg_c_indent(k);
    tg_text_add(k->file->text, "const %s v%d = ", tg_c_type(in->dtype), (int)i);
    emit_c_expression(k, in);
    tg_text_add(k->file->text, ";\n");
}

void tg_c_helpers(const tg_c_file *file) {
    for (int i = 0; i < TG_C_HELPERS; i++)
        if (file->used[i]) tg_text_add(file->text, "%s\n", emit_c_helpers[i].text);
}
