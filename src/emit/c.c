/* emit/c: kernel IR as plain C11 loops that a person can read. An oracle for the executors, and an export. Every body
 * instruction is one `const` local; a kernel with reductions walks its inner loops once per depth of reduction,
 * computing again what a pass needs. i32 wraps; NaN follows the rules of the operations. Must not look at the graph. */
#include "emit/emit.h"
#include "ir/dtype.h"
#include "emit/places.h"

#include <float.h>
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
#define EMIT_C_HELPERS ((int)(sizeof emit_c_helpers / sizeof emit_c_helpers[0]))

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

/* One file in the making. */
typedef struct emit_c_file {
    const tg_program *program;
    tg_text_buffer *text;
    int32_t *writer; /* per buffer: the kernel so far that overwrote in place what the buffer is named after; -1: none */
    bool used[EMIT_C_HELPERS];
    bool bad; /* an instruction this printer does not know */
} emit_c_file;

typedef struct emit_c_kernel {
    emit_c_file *file;
    const tg_kernel *kernel;
    tg_placed *notes; /* per body instruction */
    int32_t passes;   /* depth of the deepest reduction */
    int indent;
} emit_c_kernel;

/* ---------------------------------------------------------------- types */

/* A load and a store convert by assignment. */
static const char *emit_c_type(tg_dtype dtype) { return tg_dtype_row(dtype)->c_compute; }
static const char *emit_c_memory_type(tg_dtype dtype) { return tg_dtype_row(dtype)->c_storage; }

/* ---------------------------------------------------------------- literals and names */

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

static void emit_c_literal(tg_text_buffer *text, tg_dtype dtype, double value) {
    if (dtype == TG_F32) emit_c_float(text, (float)value);
    else if (dtype == TG_BOOL) tg_text_add(text, "%d", value != 0.0);
    else if (value <= -2147483648.0) tg_text_add(text, "INT32_MIN");
    else tg_text_add(text, "%lld", (long long)value);
}

/* `name` with everything but letters and digits as '_', so that it may stand in an identifier. */
static void emit_c_safe(tg_text_buffer *text, const char *name) {
    for (; name && *name; name++) {
        const bool plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || (*name >= '0' && *name <= '9');
        tg_text_add(text, "%c", plain ? *name : '_');
    }
}

void tg_emit_c_noted(tg_text_buffer *text, const char *name) {
    for (; *name; name++) tg_text_add(text, "%c", *name == '*' || *name == '\\' || (unsigned char)*name < ' ' ? '_' : *name);
}

/* What the user knows a buffer by: an input or a state, else the value that is computed into it first. NULL: it has no name. */
static const char *emit_c_buffer_name(const tg_program *program, int32_t buffer) {
    const tg_buffer *b = &program->buffers[buffer];
    return b->storage == TG_STORAGE_INPUT   ? program->inputs[b->slot].name
           : b->storage == TG_STORAGE_STATE ? program->states[b->slot].name
                                            : b->name;
}

static void emit_c_kernel_name(tg_text_buffer *text, const tg_program *program, int32_t i) {
    tg_text_add(text, "tg_kernel_%d_", (int)i);
    emit_c_safe(text, program->kernels[i].name);
}

static void emit_c_indent(emit_c_kernel *k) { tg_text_add(k->file->text, "%*s", 4 * k->indent, ""); }

/* ---------------------------------------------------------------- index arithmetic */

/* offset + sum stride * i, over loops [0, loop_count) */
static void emit_c_affine(emit_c_kernel *k, const tg_affine *at) {
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
static void emit_c_bounds(emit_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    for (int i = 0; i < in->bound_count; i++) {
        const tg_bound *bound = &in->bounds[i];
        tg_text_add(text, "%s%lld <= ", i ? " && " : "", (long long)bound->lo);
        emit_c_affine(k, &bound->at);
        tg_text_add(text, " && ");
        emit_c_affine(k, &bound->at);
        tg_text_add(text, " < %lld", (long long)bound->hi);
    }
    if (in->bound_count == 0) tg_text_add(text, "1");
}

static void emit_c_open_loop(emit_c_kernel *k, int d) {
    emit_c_indent(k);
    tg_text_add(k->file->text, "for (int64_t i%d = 0; i%d < %lld; i%d++) {\n", d, d, (long long)k->kernel->extent[d], d);
    k->indent++;
}

static void emit_c_open_loops(emit_c_kernel *k, int begin, int end) {
    for (int d = begin; d < end; d++) emit_c_open_loop(k, d);
}

static void emit_c_close_loops(emit_c_kernel *k, int count) {
    for (int i = 0; i < count; i++) {
        k->indent--;
        emit_c_indent(k);
        tg_text_add(k->file->text, "}\n");
    }
}

/* ---------------------------------------------------------------- one instruction */

static void emit_c_use_helpers(emit_c_file *file, const char *spelling) {
    for (int i = 0; i < EMIT_C_HELPERS; i++)
        if (strstr(spelling, emit_c_helpers[i].name)) file->used[i] = true;
}

/* Prints `pattern` with %1 %2 %3 replaced by the instruction's operands. */
static void emit_c_pattern(emit_c_kernel *k, const tg_instruction *in, const char *pattern) {
    emit_c_use_helpers(k->file, pattern);
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

static void emit_c_elementwise(emit_c_kernel *k, const tg_instruction *in) {
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

static void emit_c_load(emit_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    if (in->bound_count > 0) {
        emit_c_bounds(k, in);
        tg_text_add(text, " ? ");
    }
    tg_text_add(text, "a%d[", (int)in->argument);
    if (in->op == TG_K_GATHER) {
        emit_c_use_helpers(k->file, "tg_row");
        tg_text_add(text, "tg_row(v%d, %lld) * %lld + ", (int)in->src[0], (long long)in->rows, (long long)in->row_stride);
    }
    emit_c_affine(k, &in->at);
    tg_text_add(text, in->bound_count > 0 ? "] : 0" : "]");
}

static void emit_c_expression(emit_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    switch (in->op) {
    case TG_OP_CONST: emit_c_literal(text, in->dtype, in->value); return;
    case TG_OP_RANDOM:
        emit_c_use_helpers(k->file, "tg_random");
        tg_text_add(text, "tg_random(v%d, v%d, v%d, %ldu, %.0fu)", (int)in->src[0], (int)in->src[1], (int)in->src[2], (long)in->stream,
                    in->value);
        return;
    case TG_K_LOAD:
    case TG_K_GATHER: emit_c_load(k, in); return;
    case TG_K_INSIDE: emit_c_bounds(k, in); return;
    case TG_K_ACC: tg_text_add(text, "(float)acc"); return;
    case TG_K_INDEX:
        tg_text_add(text, "(%s)(", emit_c_type(in->dtype));
        emit_c_affine(k, &in->at);
        tg_text_add(text, ")");
        return;
    default: emit_c_elementwise(k, in);
    }
}

static void emit_c_store(emit_c_kernel *k, const tg_instruction *in) {
    tg_text_buffer *text = k->file->text;
    emit_c_indent(k);
    if (in->bound_count > 0) {
        tg_text_add(text, "if (");
        emit_c_bounds(k, in);
        tg_text_add(text, ") ");
    }
    tg_text_add(text, "a%d[", (int)in->argument);
    if (in->op == TG_K_SCATTER) {
        emit_c_use_helpers(k->file, "tg_row");
        tg_text_add(text, "tg_row(v%d, %lld) * %lld + ", (int)in->src[0], (long long)in->rows, (long long)in->row_stride);
    }
    emit_c_affine(k, &in->at);
    if (in->op == TG_K_SCATTER) tg_text_add(text, "] += v%d;\n", (int)in->src[1]);
    else tg_text_add(text, "] = v%d;\n", (int)in->src[0]);
}

static void emit_c_instruction(emit_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    if (tg_body_is_effect(in->op)) {
        emit_c_store(k, in);
        return;
    }
    emit_c_indent(k);
    tg_text_add(k->file->text, "const %s v%d = ", emit_c_type(in->dtype), (int)i);
    emit_c_expression(k, in);
    tg_text_add(k->file->text, ";\n");
}

/* ---------------------------------------------------------------- what is computed where */

static void emit_c_at_top(emit_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->notes[i].live && k->notes[i].place == TG_PLACE_TOP) emit_c_instruction(k, i);
}

static void emit_c_elements(emit_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->notes[i].live && k->notes[i].place == TG_PLACE_ELEMENT) emit_c_instruction(k, i);
}

/* ---------------------------------------------------------------- reductions */

static bool emit_c_reduces_in(const emit_c_kernel *k, int32_t i, int32_t pass) {
    return tg_places_reduces_in(k->kernel, k->notes, i, pass);
}

static void emit_c_declare_accumulator(emit_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    tg_text_buffer *text = k->file->text;
    const tg_dtype from = k->kernel->body[in->src[0]].dtype;
    const bool real = from == TG_F32, largest = in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_ARGMAX;
    emit_c_indent(k);
    if (in->op == TG_OP_SUM) {
        tg_text_add(text, "%s r%d = 0;\n", real ? "double" : "uint32_t", (int)i);
        return;
    }
    const char *start = real ? (largest ? "-INFINITY" : "INFINITY") : (largest ? "INT32_MIN" : "INT32_MAX");
    tg_text_add(text, "%s r%d = %s;\n", emit_c_type(real ? TG_F32 : TG_I32), (int)i, start);
    if (in->op != TG_OP_ARGMAX && in->op != TG_OP_ARGMIN) return;
    emit_c_indent(k);
    tg_text_add(text, "int32_t at%d = 0;\n", (int)i);
}

/* Row-major position within the inner loops. */
static void emit_c_inner_position(emit_c_kernel *k) {
    tg_affine at = {0, {0}};
    int64_t stride = 1;
    for (int d = k->kernel->loop_count - 1; d >= k->kernel->outer_count; d--) {
        at.stride[d] = stride;
        stride *= k->kernel->extent[d];
    }
    emit_c_affine(k, &at);
}

static void emit_c_accumulate(emit_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    tg_text_buffer *text = k->file->text;
    const int32_t v = in->src[0];
    const bool real = k->kernel->body[v].dtype == TG_F32;
    const bool largest = in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_ARGMAX;
    emit_c_indent(k);
    if (in->op == TG_OP_SUM) {
        tg_text_add(text, "r%d += %sv%d;\n", (int)i, real ? "(double)" : "(uint32_t)", (int)v);
    } else if (in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_REDUCE_MIN) {
        const char *helper = real ? (largest ? "tg_max_f32" : "tg_min_f32") : (largest ? "tg_max_i32" : "tg_min_i32");
        emit_c_use_helpers(k->file, helper);
        tg_text_add(text, "r%d = %s(r%d, v%d);\n", (int)i, helper, (int)i, (int)v);
    } else {
        tg_text_add(text, "if (v%d %c r%d", (int)v, largest ? '>' : '<', (int)i);
        if (real) tg_text_add(text, " || (v%d != v%d && r%d == r%d)", (int)v, (int)v, (int)i, (int)i);
        tg_text_add(text, ") { r%d = v%d; at%d = (int32_t)(", (int)i, (int)v, (int)i);
        emit_c_inner_position(k);
        tg_text_add(text, "); }\n");
    }
}

static void emit_c_finish_reduction(emit_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    const bool position = in->op == TG_OP_ARGMAX || in->op == TG_OP_ARGMIN;
    emit_c_indent(k);
    tg_text_add(k->file->text, "const %s v%d = (%s)%s%d;\n", emit_c_type(in->dtype), (int)i, emit_c_type(in->dtype), position ? "at" : "r",
                (int)i);
}

static void emit_c_pass(emit_c_kernel *k, int32_t pass, bool stores) {
    const tg_kernel *kernel = k->kernel;
    if (!tg_places_want(kernel, k->notes, pass, stores)) return;
    for (int32_t i = 0; i < kernel->body_count && !stores; i++)
        if (emit_c_reduces_in(k, i, pass)) emit_c_declare_accumulator(k, i);
    emit_c_open_loops(k, kernel->outer_count, kernel->loop_count);
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (k->notes[i].wanted && k->notes[i].place == TG_PLACE_ELEMENT) emit_c_instruction(k, i);
        if (!stores && emit_c_reduces_in(k, i, pass)) emit_c_accumulate(k, i);
    }
    emit_c_close_loops(k, kernel->loop_count - kernel->outer_count);
    for (int32_t i = 0; i < kernel->body_count && !stores; i++)
        if (emit_c_reduces_in(k, i, pass)) emit_c_finish_reduction(k, i);
}

/* Values (effects false) or stores (true) of outer level that become possible after `pass` passes. */
static void emit_c_outer(emit_c_kernel *k, int32_t pass, bool effects) {
    for (int32_t i = 0; i < k->kernel->body_count; i++) {
        const tg_placed *note = &k->notes[i];
        const int32_t op = k->kernel->body[i].op;
        if (!note->live || note->place != TG_PLACE_OUTER || tg_body_is_reduction(op)) continue;
        if (tg_body_is_effect(op) == effects && (effects || note->depth == pass)) emit_c_instruction(k, i);
    }
}

static void emit_c_reduce(emit_c_kernel *k) {
    emit_c_open_loops(k, 0, k->kernel->outer_count);
    emit_c_outer(k, 0, false);
    for (int32_t pass = 1; pass <= k->passes; pass++) {
        emit_c_pass(k, pass, false);
        emit_c_outer(k, pass, false);
    }
    emit_c_pass(k, 0, true);
    emit_c_outer(k, 0, true);
    emit_c_close_loops(k, k->kernel->outer_count);
}

/* ---------------------------------------------------------------- the other kinds */

static void emit_c_map(emit_c_kernel *k) {
    emit_c_open_loops(k, 0, k->kernel->loop_count);
    emit_c_elements(k);
    emit_c_close_loops(k, k->kernel->loop_count);
}

static void emit_c_contract(emit_c_kernel *k) {
    const tg_kernel *kernel = k->kernel;
    tg_text_buffer *text = k->file->text;
    emit_c_open_loops(k, 0, kernel->outer_count);
    emit_c_indent(k);
    tg_text_add(text, "double acc = 0;\n");
    emit_c_open_loops(k, kernel->outer_count, kernel->loop_count);
    emit_c_indent(k);
    tg_text_add(text, "acc += (double)a%d[", (int)kernel->a.argument);
    emit_c_affine(k, &kernel->a.at);
    tg_text_add(text, "] * (double)a%d[", (int)kernel->b.argument);
    emit_c_affine(k, &kernel->b.at);
    tg_text_add(text, "];\n");
    emit_c_close_loops(k, kernel->loop_count - kernel->outer_count);
    emit_c_elements(k);
    emit_c_close_loops(k, kernel->outer_count);
}

/* Clears what the SCATTER instructions add to: every row, over the loops that their address depends on. */
static void emit_c_clear(emit_c_kernel *k, const tg_instruction *in) {
    int opened = 1;
    emit_c_indent(k);
    tg_text_add(k->file->text, "for (int64_t row = 0; row < %lld; row++) {\n", (long long)in->rows);
    k->indent++;
    for (int d = 0; d < k->kernel->loop_count; d++) {
        if (in->at.stride[d] == 0) continue;
        emit_c_open_loop(k, d);
        opened++;
    }
    emit_c_indent(k);
    tg_text_add(k->file->text, "a%d[row * %lld + ", (int)in->argument, (long long)in->row_stride);
    emit_c_affine(k, &in->at);
    tg_text_add(k->file->text, "] = 0;\n");
    emit_c_close_loops(k, opened);
}

static void emit_c_scatter(emit_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->kernel->body[i].op == TG_K_SCATTER) emit_c_clear(k, &k->kernel->body[i]);
    emit_c_map(k);
}

/* ---------------------------------------------------------------- one kernel */

static bool emit_c_argument_used(const emit_c_kernel *k, int32_t argument) {
    if (k->kernel->kind == TG_KERNEL_CONTRACT && (k->kernel->a.argument == argument || k->kernel->b.argument == argument)) return true;
    for (int32_t i = 0; i < k->kernel->body_count; i++) {
        const tg_instruction *in = &k->kernel->body[i];
        const bool touches = in->op == TG_K_LOAD || in->op == TG_K_GATHER || tg_body_is_effect(in->op);
        if (touches && k->notes[i].live && in->argument == argument) return true;
    }
    return false;
}

/* The value in a buffer, "[3] hidden". Of memory that a kernel used again, whose value has another meaning now: "[3] by kernel 8". */
static void emit_c_value(emit_c_file *file, int32_t buffer, int32_t index) {
    const char *name = emit_c_buffer_name(file->program, buffer);
    tg_text_add(file->text, "[%d]", (int)buffer);
    if (file->writer[buffer] == index) tg_text_add(file->text, " in place");
    else if (file->writer[buffer] >= 0) tg_text_add(file->text, " by kernel %d", (int)file->writer[buffer]);
    else if (name && *name) {
        tg_text_add(file->text, " ");
        tg_emit_c_noted(file->text, name);
    }
}

/* ": reads [1] x, [2] w" or "; writes [3] hidden"; nothing where the kernel does not. */
static void emit_c_touched(emit_c_kernel *k, int32_t index, const char *verb, tg_access but) {
    bool any = false;
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        if (argument->access == but || !emit_c_argument_used(k, i)) continue;
        tg_text_add(k->file->text, "%s ", any ? "," : verb);
        emit_c_value(k->file, argument->buffer, index);
        any = true;
    }
}

/* Notes the buffers that kernel `index` uses again for a value of another meaning: memory that an earlier one wrote, updated. */
static void emit_c_overwrites(emit_c_kernel *k, int32_t index) {
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        const tg_buffer *buffer = &k->file->program->buffers[argument->buffer];
        if (buffer->storage == TG_STORAGE_WORKSPACE && argument->access == TG_ACCESS_READ_WRITE && buffer->first < index)
            k->file->writer[argument->buffer] = index;
    }
}

static void emit_c_comment(emit_c_kernel *k, int32_t index) {
    tg_text_buffer *text = k->file->text;
    tg_text_add(text, "/* ");
    tg_kernel_summary(k->kernel, text);
    tg_text_add(text, "\n * kernel %d", (int)index);
    emit_c_touched(k, index, ": reads", TG_ACCESS_WRITE);
    emit_c_overwrites(k, index);
    emit_c_touched(k, index, "; writes", TG_ACCESS_READ);
    tg_text_add(text, " */\n");
}

static void emit_c_arguments(emit_c_kernel *k) {
    tg_text_buffer *text = k->file->text;
    bool any = false;
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        const tg_buffer *buffer = &k->file->program->buffers[argument->buffer];
        if (!emit_c_argument_used(k, i)) continue;
        const bool constant = buffer->storage == TG_STORAGE_CONSTANT;
        const char *qualifier = argument->access == TG_ACCESS_READ ? "const " : "";
        any = any || !constant;
        emit_c_indent(k);
        tg_text_add(text, "%s%s *const a%d = ", qualifier, emit_c_memory_type(argument->dtype), (int)i);
        tg_text_add(text, constant ? "tg_constant_%d;\n" : "buffers[%d];\n", (int)argument->buffer);
    }
    if (any) return;
    emit_c_indent(k);
    tg_text_add(text, "(void)buffers;\n");
}

static void emit_c_function(emit_c_kernel *k, int32_t index) {
    k->passes = tg_places_find(k->kernel, k->notes);
    emit_c_comment(k, index);
    tg_text_add(k->file->text, "static void ");
    emit_c_kernel_name(k->file->text, k->file->program, index);
    tg_text_add(k->file->text, "(void *const *buffers) {\n");
    k->indent = 1;
    emit_c_arguments(k);
    emit_c_at_top(k);
    switch (k->kernel->kind) {
    case TG_KERNEL_MAP: emit_c_map(k); break;
    case TG_KERNEL_REDUCE: emit_c_reduce(k); break;
    case TG_KERNEL_CONTRACT: emit_c_contract(k); break;
    case TG_KERNEL_SCATTER_ADD: emit_c_scatter(k); break;
    }
    tg_text_add(k->file->text, "}\n\n");
}

static tg_status emit_c_one_kernel(emit_c_file *file, int32_t index) {
    const tg_kernel *kernel = &file->program->kernels[index];
    emit_c_kernel k = {file, kernel, NULL, 0, 0};
    const size_t bytes = sizeof *k.notes * (size_t)(kernel->body_count > 0 ? kernel->body_count : 1);
    k.notes = tg_alloc(file->text->ctx, bytes);
    if (!k.notes) return TG_ERROR_MEMORY;
    emit_c_function(&k, index);
    tg_release(file->text->ctx, k.notes, bytes);
    return file->bad ? TG_INTERNAL(file->text->ctx, "emit_c: an operation or type that has no spelling") : TG_OK;
}

/* ---------------------------------------------------------------- the file */

static bool emit_c_constant_used(const tg_program *program, int32_t buffer) {
    for (int32_t i = 0; i < program->kernel_count; i++)
        for (int32_t a = 0; a < program->kernels[i].argument_count; a++)
            if (program->kernels[i].arguments[a].buffer == buffer) return true;
    return false;
}

static void emit_c_constant(tg_text_buffer *text, const tg_buffer *buffer, int32_t index) {
    tg_text_add(text, "static const %s tg_constant_%d[%lld] = {", emit_c_memory_type(buffer->dtype), (int)index, (long long)buffer->count);
    for (int64_t i = 0; i < buffer->count; i++) {
        tg_text_add(text, "%s", i == 0 ? "" : i % 12 == 0 ? ",\n    " : ", ");
        emit_c_literal(text, buffer->dtype, tg_dtype_get(buffer->dtype, buffer->data, i));
    }
    tg_text_add(text, "};\n");
}

static const char *emit_c_storage_name(tg_storage storage) {
    switch (storage) {
    case TG_STORAGE_WORKSPACE: return "workspace";
    case TG_STORAGE_INPUT: return "input";
    case TG_STORAGE_STATE: return "state";
    case TG_STORAGE_CONSTANT: break;
    }
    return "constant";
}

static void emit_c_buffer(emit_c_file *file, int32_t i) {
    tg_text_buffer *text = file->text;
    const tg_program *program = file->program;
    const tg_buffer *b = &program->buffers[i];
    const char *name = emit_c_buffer_name(program, i);
    if (b->storage == TG_STORAGE_WORKSPACE && b->first < 0) return; /* another buffer took its place */
    tg_text_add(text, " *   [%d] %s, %lld x %s", (int)i, emit_c_storage_name(b->storage), (long long)b->count,
                emit_c_memory_type(b->dtype));
    if (b->storage == TG_STORAGE_WORKSPACE) tg_text_add(text, " at byte %lld", (long long)b->offset);
    if (name && *name) {
        tg_text_add(text, ": ");
        tg_emit_c_noted(text, name);
    }
    if (b->storage == TG_STORAGE_STATE && program->states[b->slot].value != 0.0) {
        tg_text_add(text, ", at first ");
        emit_c_literal(text, b->dtype, program->states[b->slot].value);
    }
    tg_text_add(text, "\n");
}

static void emit_c_output(emit_c_file *file, const tg_output *output) {
    tg_text_add(file->text, " *   [%d] ", (int)output->buffer);
    tg_emit_c_noted(file->text, output->name);
    tg_text_add(file->text, "\n");
}

static void emit_c_head(emit_c_file *file) {
    tg_text_buffer *text = file->text;
    const tg_program *program = file->program;
    tg_text_add(
        text,
        "/* %d kernels, which tg_emitted_run(buffers) calls in order. buffers[i] points at the caller's memory: inputs to be filled\n"
        " * before a call; states, which keep what a call writes; workspace, of its own or at these bytes of one block of %lld. Of\n"
        " * constants and of numbers not listed it is not read:\n",
        (int)program->kernel_count, (long long)program->workspace_bytes);
    for (int32_t i = 0; i < program->buffer_count; i++) emit_c_buffer(file, i);
    tg_text_add(text, " * After a call these hold (an index check: not 0 where an index was out of range):\n");
    for (int32_t i = 0; i < program->output_count; i++) emit_c_output(file, &program->outputs[i]);
    tg_text_add(text, " */\n#include <math.h>\n#include <stdint.h>\n\n");
}

static void emit_c_tail(emit_c_file *file) {
    tg_text_buffer *text = file->text;
    tg_text_add(text, "void tg_emitted_run(void *const *buffers);\nvoid tg_emitted_run(void *const *buffers) {\n");
    for (int32_t i = 0; i < file->program->kernel_count; i++) {
        tg_text_add(text, "    ");
        emit_c_kernel_name(text, file->program, i);
        tg_text_add(text, "(buffers);\n");
    }
    tg_text_add(text, "    (void)buffers;\n}\n");
}

/* The kernels are printed first, into a text of their own, because they decide which helpers the file needs. */
static tg_status emit_c_body(emit_c_file *file) {
    for (int32_t i = 0; i < file->program->kernel_count; i++) {
        const tg_status status = emit_c_one_kernel(file, i);
        if (status != TG_OK) return status;
    }
    return file->text->failed ? TG_ERROR_MEMORY : TG_OK;
}

static void emit_c_all(emit_c_file *file, const tg_text_buffer *kernels) {
    const tg_program *program = file->program;
    emit_c_head(file);
    for (int i = 0; i < EMIT_C_HELPERS; i++)
        if (file->used[i]) tg_text_add(file->text, "%s\n", emit_c_helpers[i].text);
    for (int32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].storage == TG_STORAGE_CONSTANT && emit_c_constant_used(program, i))
            emit_c_constant(file->text, &program->buffers[i], i);
    tg_text_add(file->text, "\n");
    if (kernels->data) tg_text_bytes(file->text, kernels->data, kernels->length);
    emit_c_tail(file);
}

tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text) {
    tg_text_buffer kernels;
    tg_text_init(&kernels, text->ctx);
    const size_t bytes = sizeof(int32_t) * (size_t)(program->buffer_count + 1);
    emit_c_file file = {.program = program, .text = &kernels, .writer = tg_alloc(text->ctx, bytes)};
    tg_status status = TG_ERROR_MEMORY;
    if (file.writer) {
        memset(file.writer, -1, bytes);
        status = emit_c_body(&file);
    }
    file.text = text;
    if (status == TG_OK) {
        emit_c_all(&file, &kernels);
        if (text->failed) status = TG_ERROR_MEMORY;
    }
    if (file.writer) tg_release(text->ctx, file.writer, bytes);
    tg_text_free(&kernels);
    return status;
}

#undef EMIT_C_HELPERS
