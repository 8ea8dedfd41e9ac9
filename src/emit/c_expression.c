/* c_expression: what one instruction of kernel IR is in C: literals, addresses, bounds, operations and the small functions that they call.
 * Must not know loops. */
#include "emit/c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small functions the printed code may call; printed only when used. */
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

/* How an elementwise operation is spelt per type. %1 %2 %3 are the operands; NULL: the type does not occur. */
typedef struct emit_c_spelling {
    int op;
    const char *f32, *i32, *boolean;
} emit_c_spelling;
static const emit_c_spelling emit_c_spellings[] = {
    {TG_OP_NEG, "-%1", "tg_sub_i32(0, %1)", NULL},
    {TG_OP_ABS, "fabsf(%1)", "%1 < 0 ? tg_sub_i32(0, %1) : %1", NULL},
    {TG_OP_SIGN, "tg_sign_f32(%1)", "(%1 > 0) - (%1 < 0)", NULL},
    {TG_OP_SQRT, "sqrtf(%1)", NULL, NULL},
    {TG_OP_RSQRT, "(float)(1.0 / sqrt((double)%1))", NULL, NULL},
    {TG_OP_RECIPROCAL, "1.0f / %1", NULL, NULL},
    {TG_OP_EXP, "expf(%1)", NULL, NULL},
    {TG_OP_LOG, "logf(%1)", NULL, NULL},
    {TG_OP_SIN, "sinf(%1)", NULL, NULL},
    {TG_OP_COS, "cosf(%1)", NULL, NULL},
    {TG_OP_TANH, "(float)tanh((double)%1)", NULL, NULL},
    {TG_OP_ERF, "(float)erf((double)%1)", NULL, NULL},
    {TG_OP_SIGMOID, "tg_sigmoid_f32(%1)", NULL, NULL},
    {TG_OP_SOFTPLUS, "tg_softplus_f32(%1)", NULL, NULL},
    {TG_OP_EXPM1, "(float)expm1((double)%1)", NULL, NULL},
    {TG_OP_LOG1P, "(float)log1p((double)%1)", NULL, NULL},
    {TG_OP_FLOOR, "floorf(%1)", NULL, NULL},
    {TG_OP_CEIL, "ceilf(%1)", NULL, NULL},
    {TG_OP_ROUND, "rintf(%1)", NULL, NULL},
    {TG_OP_RELU, "%1 > 0 || %1 != %1 ? %1 : 0.0f", "%1 > 0 ? %1 : 0", NULL},
    {TG_OP_NOT, NULL, NULL, "!%1"},
    {TG_OP_STOP_GRADIENT, "%1", "%1", "%1"},
    {TG_OP_ADD, "%1 + %2", "tg_add_i32(%1, %2)", NULL},
    {TG_OP_SUB, "%1 - %2", "tg_sub_i32(%1, %2)", NULL},
    {TG_OP_MUL, "%1 * %2", "tg_mul_i32(%1, %2)", NULL},
    {TG_OP_DIV, "%1 / %2", "tg_div_i32(%1, %2)", NULL},
    {TG_OP_POW, "(float)pow((double)%1, (double)%2)", NULL, NULL},
    {TG_OP_MOD, "tg_mod_f32(%1, %2)", NULL, NULL},
    {TG_OP_MIN, "tg_min_f32(%1, %2)", "tg_min_i32(%1, %2)", NULL},
    {TG_OP_MAX, "tg_max_f32(%1, %2)", "tg_max_i32(%1, %2)", NULL},
    {TG_OP_LESS, "%1 < %2", "%1 < %2", "%1 < %2"}, /* comparisons: by the operands' type */
    {TG_OP_LESS_EQUAL, "%1 <= %2", "%1 <= %2", "%1 <= %2"},
    {TG_OP_EQUAL, "%1 == %2", "%1 == %2", "%1 == %2"},
    {TG_OP_NOT_EQUAL, "%1 != %2", "%1 != %2", "%1 != %2"},
    {TG_OP_AND, NULL, NULL, "%1 && %2"},
    {TG_OP_OR, NULL, NULL, "%1 || %2"},
    {TG_OP_SELECT, "%1 ? %2 : %3", "%1 ? %2 : %3", "%1 ? %2 : %3"},
};

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

static const char *emit_c_cast(tg_dtype from, tg_dtype to) {
    if (to == from) return "%1";
    if (to == TG_BOOL) return "%1 != 0";
    if (to == TG_F32) return "(float)%1";
    return from == TG_F32 ? "tg_to_i32(%1)" : "(int32_t)%1";
}

static void emit_c_elementwise(tg_c_kernel *k, const tg_instruction *in) {
    /* the type that decides the spelling: the operands', which for SELECT are the branches */
    const tg_dtype from = k->kernel->body[in->src[in->op == TG_OP_SELECT ? 1 : 0]].dtype;
    if (in->op == TG_OP_CAST) {
        emit_c_pattern(k, in, emit_c_cast(from, in->dtype));
        return;
    }
    for (size_t i = 0; i < sizeof emit_c_spellings / sizeof emit_c_spellings[0]; i++) {
        const emit_c_spelling *s = &emit_c_spellings[i];
        const char *pattern = s->op != in->op ? NULL : from == TG_F32 ? s->f32 : from == TG_I32 ? s->i32 : s->boolean;
        if (!pattern) continue;
        emit_c_pattern(k, in, pattern);
        return;
    }
    k->file->bad = true;
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
    case TG_OP_RANDOM:
        tg_c_use_helpers(k->file, "tg_random");
        tg_text_add(text, "tg_random(v%d, v%d, v%d, %ldu, %.0fu)", (int)in->src[0], (int)in->src[1], (int)in->src[2], (long)in->stream,
                    in->value);
        return;
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
