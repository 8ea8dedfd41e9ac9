/* The tile machine below the planner: kernels made by hand and at random, run on every ISA of this machine with 1, 2 and 3
 * threads, against an interpreter of kernel IR in f64 that visits one point at a time. */
#include "support.h"

#include "run/cpu/vm.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels made by hand */

enum { MAX_BODY = 64, MAX_ARGUMENTS = 8, MAX_TEST_BOUNDS = 4 };

typedef struct hand {
    tg_kernel kernel;
    tg_instruction body[MAX_BODY];
    tg_argument arguments[MAX_ARGUMENTS];
    tg_bound bounds[MAX_BODY][MAX_TEST_BOUNDS];
    int64_t count[MAX_ARGUMENTS]; /* elements */
    void *data[MAX_ARGUMENTS];
} hand;

static hand *hand_new(tg_kernel_kind kind, int outer, int inner, const int64_t *extents) {
    hand *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->kernel.kind = kind;
    h->kernel.name = "by_hand";
    h->kernel.loop_count = outer + inner;
    h->kernel.outer_count = outer;
    memcpy(h->kernel.extent, extents, sizeof(int64_t) * (size_t)(outer + inner));
    h->kernel.body = h->body;
    h->kernel.arguments = h->arguments;
    return h;
}
static size_t dtype_bytes(tg_dtype dtype) { return dtype == TG_BOOL ? 1 : 4; }
static int hand_argument(hand *h, tg_dtype dtype, tg_access access, int64_t count) {
    int a = h->kernel.argument_count++;
    h->arguments[a] = (tg_argument){.buffer = a, .dtype = dtype, .access = access};
    h->count[a] = count;
    h->data[a] = malloc((size_t)count * dtype_bytes(dtype)); /* exact: the sanitizer sees every byte beyond */
    assert_non_null(h->data[a]);
    memset(h->data[a], 0, (size_t)count * dtype_bytes(dtype));
    return a;
}
static void hand_free(hand *h) {
    for (int a = 0; a < h->kernel.argument_count; ++a) free(h->data[a]);
    free(h);
}
static tg_instruction *hand_add(hand *h, int op, tg_dtype dtype, tg_level level) {
    assert_true(h->kernel.body_count < MAX_BODY);
    tg_instruction *instruction = &h->body[h->kernel.body_count];
    instruction->op = op;
    instruction->dtype = dtype;
    instruction->level = level;
    instruction->bounds = h->bounds[h->kernel.body_count];
    ++h->kernel.body_count;
    return instruction;
}
static int hand_last(const hand *h) { return h->kernel.body_count - 1; }
static tg_affine affine(int64_t offset, int count, const int64_t *strides) {
    tg_affine at = {.offset = offset};
    for (int d = 0; d < count; ++d) at.stride[d] = strides[d];
    return at;
}
static tg_level hand_affine_level(const hand *h, const tg_affine *at) {
    tg_level level = TG_LEVEL_UNIFORM;
    for (int d = 0; d < h->kernel.loop_count; ++d) {
        if (at->stride[d] == 0 || h->kernel.extent[d] == 1) continue;
        tg_level here = h->kernel.kind == TG_KERNEL_REDUCE && d < h->kernel.outer_count ? TG_LEVEL_OUTER : TG_LEVEL_ELEMENT;
        if (here > level) level = here;
    }
    return level;
}
static int hand_load(hand *h, int argument, tg_affine at) {
    tg_instruction *load = hand_add(h, TG_K_LOAD, h->arguments[argument].dtype, hand_affine_level(h, &at));
    load->argument = argument;
    load->at = at;
    return hand_last(h);
}
static void hand_bound(hand *h, tg_affine at, int64_t lo, int64_t hi) {
    tg_instruction *last = &h->body[hand_last(h)];
    h->bounds[hand_last(h)][last->bound_count++] = (tg_bound){at, lo, hi};
    tg_level level = hand_affine_level(h, &at);
    if (level > last->level) last->level = level;
}
static int hand_const(hand *h, tg_dtype dtype, double value) {
    hand_add(h, TG_OP_CONST, dtype, TG_LEVEL_UNIFORM)->value = value;
    return hand_last(h);
}
static int hand_op(hand *h, int op, tg_dtype dtype, int a, int b, int c) {
    int sources[3] = {a, b, c};
    tg_instruction *instruction = hand_add(h, op, dtype, TG_LEVEL_UNIFORM);
    for (int k = 0; k < 3; ++k) {
        if (sources[k] < 0) continue;
        instruction->src[k] = sources[k];
        if (h->body[sources[k]].level > instruction->level) instruction->level = h->body[sources[k]].level;
    }
    return hand_last(h);
}
static int hand_unary(hand *h, int op, int a) { return hand_op(h, op, h->body[a].dtype, a, -1, -1); }
static int hand_binary(hand *h, int op, int a, int b) {
    bool compares = op == TG_OP_LESS || op == TG_OP_LESS_EQUAL || op == TG_OP_EQUAL || op == TG_OP_NOT_EQUAL;
    return hand_op(h, op, compares ? TG_BOOL : h->body[a].dtype, a, b, -1);
}
static int hand_reduce(hand *h, int op, int a) {
    bool arg = op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
    int r = hand_op(h, op, arg ? TG_I32 : h->body[a].dtype, a, -1, -1);
    h->body[r].level = TG_LEVEL_OUTER;
    return r;
}
static void hand_store(hand *h, int argument, tg_affine at, int value) {
    tg_level level = hand_affine_level(h, &at);
    hand_op(h, TG_K_STORE, h->arguments[argument].dtype, value, -1, -1);
    tg_instruction *store = &h->body[hand_last(h)];
    if (level > store->level) store->level = level;
    if (h->kernel.kind == TG_KERNEL_REDUCE && store->level == TG_LEVEL_UNIFORM) store->level = TG_LEVEL_OUTER;
    if (h->kernel.kind != TG_KERNEL_REDUCE) store->level = TG_LEVEL_ELEMENT;
    store->argument = argument;
    store->at = at;
}

/* ---- the oracle */

static double argument_get(const hand *h, int a, int64_t i) {
    assert_true(i >= 0 && i < h->count[a]);
    switch (h->arguments[a].dtype) {
    case TG_F32: return (double)((float *)h->data[a])[i];
    case TG_I32: return (double)((int32_t *)h->data[a])[i];
    default: return (double)((uint8_t *)h->data[a])[i];
    }
}
static void argument_set(hand *h, int a, int64_t i, double value) {
    assert_true(i >= 0 && i < h->count[a]);
    switch (h->arguments[a].dtype) {
    case TG_F32: ((float *)h->data[a])[i] = (float)value; break;
    case TG_I32: ((int32_t *)h->data[a])[i] = (int32_t)value; break;
    default: ((uint8_t *)h->data[a])[i] = value != 0; break;
    }
}
static int64_t at_point(const tg_affine *at, const int64_t *index, int count) {
    int64_t sum = at->offset;
    for (int d = 0; d < count; ++d) sum += at->stride[d] * index[d];
    return sum;
}
static double wrap_i32(int64_t x) { return (double)(int32_t)(uint32_t)(uint64_t)x; }
static double worse(double a, double b, bool want_max) {
    if (isnan(a) || isnan(b)) return NAN;
    return want_max ? (a > b ? a : b) : (a < b ? a : b);
}
static double to_i32(double x) { return isnan(x) ? 0 : x >= 2147483647.0 ? 2147483647.0 : x <= -2147483648.0 ? -2147483648.0 : trunc(x); }
static double oracle_unary(int op, tg_dtype dtype, double x) {
    switch (op) {
    case TG_OP_NEG: return dtype == TG_I32 ? wrap_i32(-(int64_t)x) : -x;
    case TG_OP_ABS: return dtype == TG_I32 ? wrap_i32(llabs((long long)x)) : fabs(x);
    case TG_OP_SIGN: return x > 0 ? 1 : x < 0 ? -1 : isnan(x) ? x : 0;
    case TG_OP_SQRT: return sqrt(x);
    case TG_OP_RSQRT: return 1 / sqrt(x);
    case TG_OP_RECIPROCAL: return 1 / x;
    case TG_OP_EXP: return exp(x);
    case TG_OP_LOG: return log(x);
    case TG_OP_SIN: return sin(x);
    case TG_OP_COS: return cos(x);
    case TG_OP_TANH: return tanh(x);
    case TG_OP_ERF: return erf(x);
    case TG_OP_SIGMOID: return 1 / (1 + exp(-x));
    case TG_OP_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case TG_OP_EXPM1: return expm1(x);
    case TG_OP_LOG1P: return log1p(x);
    case TG_OP_FLOOR: return floor(x);
    case TG_OP_CEIL: return ceil(x);
    case TG_OP_ROUND: return nearbyint(x);
    case TG_OP_RELU: return x <= 0 ? 0 : x;
    case TG_OP_NOT: return x == 0;
    case TG_OP_STOP_GRADIENT: return x;
    default: fail_msg("no oracle for op %d", op); return 0;
    }
}
/* f32: what is left of |b| is rounded, but not up to |b| */
static double oracle_mod(double a, double b) {
    const float size = fabsf((float)b), rest = fmodf(fabsf((float)a), size), turned = size - rest;
    if (!(rest > 0) || signbit(a) == signbit(b)) return (double)copysignf(rest, (float)b);
    return (double)copysignf(turned == size && size < INFINITY ? nextafterf(size, 0) : turned, (float)b);
}
static double oracle_binary(int op, tg_dtype dtype, double a, double b) {
    bool whole = dtype == TG_I32;
    switch (op) {
    case TG_OP_ADD: return whole ? wrap_i32((int64_t)a + (int64_t)b) : a + b;
    case TG_OP_SUB: return whole ? wrap_i32((int64_t)a - (int64_t)b) : a - b;
    case TG_OP_MUL: return whole ? wrap_i32((int64_t)a * (int64_t)b) : a * b;
    case TG_OP_DIV: return !whole ? a / b : b == 0 ? 0 : wrap_i32((int64_t)a / (int64_t)b);
    case TG_OP_POW: return pow(a, b);
    case TG_OP_MOD: return oracle_mod(a, b);
    case TG_OP_MIN: return worse(a, b, false);
    case TG_OP_MAX: return worse(a, b, true);
    case TG_OP_LESS: return a < b;
    case TG_OP_LESS_EQUAL: return a <= b;
    case TG_OP_EQUAL: return a == b;
    case TG_OP_NOT_EQUAL: return a != b;
    case TG_OP_AND: return a != 0 && b != 0;
    case TG_OP_OR: return a != 0 || b != 0;
    default: fail_msg("no oracle for op %d", op); return 0;
    }
}
static bool oracle_inside(const tg_instruction *instruction, const int64_t *index, int loops) {
    for (int b = 0; b < instruction->bound_count; ++b) {
        int64_t at = at_point(&instruction->bounds[b].at, index, loops);
        if (at < instruction->bounds[b].lo || at >= instruction->bounds[b].hi) return false;
    }
    return true;
}
/* Value of instruction i at a point; value[] holds those before it. Reductions are not for this function. */
static double oracle_point(hand *h, int i, const int64_t *index, const double *value, double acc) {
    const tg_instruction *instruction = &h->body[i];
    int loops = h->kernel.loop_count;
    double a = value[instruction->src[0]], b = value[instruction->src[1]], c = value[instruction->src[2]];
    switch (instruction->op) {
    case TG_OP_CONST: return instruction->dtype == TG_F32 ? (double)(float)instruction->value : instruction->value;
    case TG_K_LOAD:
        return oracle_inside(instruction, index, loops) ? argument_get(h, instruction->argument, at_point(&instruction->at, index, loops))
                                                        : 0;
    case TG_K_GATHER: {
        if (!oracle_inside(instruction, index, loops)) return 0;
        int64_t row = a < 0 ? 0 : a >= (double)instruction->rows ? instruction->rows - 1 : (int64_t)a;
        return argument_get(h, instruction->argument, row * instruction->row_stride + at_point(&instruction->at, index, loops));
    }
    case TG_K_INDEX: return (double)at_point(&instruction->at, index, loops);
    case TG_K_INSIDE: return oracle_inside(instruction, index, loops);
    case TG_K_ACC: return acc;
    case TG_OP_SELECT: return a != 0 ? b : c;
    case TG_OP_CAST: return instruction->dtype == TG_I32 ? to_i32(a) : instruction->dtype == TG_BOOL ? (double)(a != 0) : a;
    default: {
        tg_dtype from = h->body[instruction->src[0]].dtype;
        double r =
            tg_op_table[instruction->op].arity == 1 ? oracle_unary(instruction->op, from, a) : oracle_binary(instruction->op, from, a, b);
        return instruction->dtype == TG_F32 ? (double)(float)r : r;
    }
    }
}
static void oracle_effect(hand *h, const tg_instruction *instruction, const int64_t *index, const double *value) {
    int64_t at = at_point(&instruction->at, index, h->kernel.loop_count);
    if (instruction->op == TG_K_STORE) {
        argument_set(h, instruction->argument, at, value[instruction->src[0]]);
    } else if (value[instruction->src[0]] >= 0 && value[instruction->src[0]] < (double)instruction->rows) {
        at += (int64_t)value[instruction->src[0]] * instruction->row_stride;
        argument_set(h, instruction->argument, at, argument_get(h, instruction->argument, at) + value[instruction->src[1]]);
    }
}
static bool oracle_next(const hand *h, int64_t *index, int begin, int end) {
    for (int d = end - 1; d >= begin; --d) {
        if (++index[d] < h->kernel.extent[d]) return true;
        index[d] = 0;
    }
    return false;
}
static int64_t extent_product(const hand *h, int begin, int end) {
    int64_t product = 1;
    for (int d = begin; d < end; ++d) product *= h->kernel.extent[d];
    return product;
}
static bool is_reduction(int op) { return op >= TG_OP_SUM && op <= TG_OP_ARGMIN; }
static bool is_effect(int op) { return op == TG_K_STORE || op == TG_K_SCATTER; }
static double oracle_reduce(int op, tg_dtype dtype, const double *row, int64_t count) {
    double best = row[0], sum = 0;
    int64_t where = 0;
    for (int64_t j = 0; j < count; ++j) {
        sum += row[j];
        bool better = op == TG_OP_REDUCE_MAX || op == TG_OP_ARGMAX ? row[j] > best : row[j] < best;
        if (better || (isnan(row[j]) && !isnan(best))) best = row[j], where = j;
    }
    if (op == TG_OP_SUM) return dtype == TG_I32 ? wrap_i32((int64_t)sum) : sum;
    return op == TG_OP_ARGMAX || op == TG_OP_ARGMIN ? (double)where : best;
}
/* REDUCE: for each outer point, every instruction over all inner points before the next. */
static void oracle_run_reduce(hand *h) {
    int outer = h->kernel.outer_count, loops = h->kernel.loop_count;
    int64_t inner = extent_product(h, outer, loops), index[TG_MAX_LOOP] = {0};
    double *rows = malloc(sizeof(double) * (size_t)inner * MAX_BODY);
    assert_non_null(rows);
    do {
        for (int i = 0; i < h->kernel.body_count; ++i) {
            const tg_instruction *instruction = &h->body[i];
            double *row = rows + i * inner;
            if (is_reduction(instruction->op)) {
                double r = oracle_reduce(instruction->op, instruction->dtype, rows + instruction->src[0] * inner, inner);
                for (int64_t j = 0; j < inner; ++j) row[j] = r;
                continue;
            }
            for (int64_t j = 0; j < inner; ++j) {
                double value[MAX_BODY];
                for (int k = 0; k < i; ++k) value[k] = rows[k * inner + j];
                if (is_effect(instruction->op)) oracle_effect(h, instruction, index, value);
                else row[j] = oracle_point(h, i, index, value, 0);
                oracle_next(h, index, outer, loops);
            }
        }
    } while (oracle_next(h, index, 0, outer));
    free(rows);
}
static double oracle_product(hand *h, const int64_t *point) {
    int64_t index[TG_MAX_LOOP];
    memcpy(index, point, sizeof index);
    double sum = 0;
    int outer = h->kernel.outer_count, loops = h->kernel.loop_count;
    for (int d = outer; d < loops; ++d) index[d] = 0;
    do
        sum += argument_get(h, h->kernel.a.argument, at_point(&h->kernel.a.at, index, loops)) *
               argument_get(h, h->kernel.b.argument, at_point(&h->kernel.b.at, index, loops));
    while (oracle_next(h, index, outer, loops));
    return sum;
}
static void oracle_run(hand *h) {
    int64_t index[TG_MAX_LOOP] = {0};
    int loops = h->kernel.kind == TG_KERNEL_CONTRACT ? h->kernel.outer_count : h->kernel.loop_count;
    if (h->kernel.kind == TG_KERNEL_REDUCE) {
        oracle_run_reduce(h);
        return;
    }
    for (int i = 0; i < h->kernel.body_count; ++i)
        if (h->body[i].op == TG_K_SCATTER) memset(h->data[h->body[i].argument], 0, 4 * (size_t)h->count[h->body[i].argument]);
    do {
        double value[MAX_BODY] = {0}, acc = h->kernel.kind == TG_KERNEL_CONTRACT ? (double)(float)oracle_product(h, index) : 0;
        for (int late = 0; late < 2; ++late) /* loads of memory written in place come first */
            for (int i = 0; i < h->kernel.body_count; ++i) {
                if (is_effect(h->body[i].op) != (late == 1)) continue;
                if (late == 1) oracle_effect(h, &h->body[i], index, value);
                else value[i] = oracle_point(h, i, index, value, acc);
            }
    } while (oracle_next(h, index, 0, loops));
}

/* ---- running on the tile machine */

static int machine_isas(tg_isa *isas) {
    int count = 0;
    tg_isa best = tg_cpu_isa();
    isas[count++] = TG_ISA_SCALAR_;
    if (best == TG_ISA_AVX2_ || best == TG_ISA_AVX512_) isas[count++] = TG_ISA_AVX2_;
    if (best != TG_ISA_SCALAR_ && best != TG_ISA_AVX2_) isas[count++] = best;
    return count;
}

typedef struct machine {
    tg_context *ctx;
    tg_pool *pool[4];
} machine; /* pool[t]: t threads */

static int machine_setup(void **state) {
    machine *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->ctx = support_context();
    for (int t = 1; t <= 3; ++t) m->pool[t] = tg_pool_create(m->ctx, t);
    *state = m;
    return 0;
}
static int machine_teardown(void **state) {
    machine *m = *state;
    for (int t = 1; t <= 3; ++t) tg_pool_destroy(m->pool[t], m->ctx);
    assert_int_equal(m->ctx->live_blocks, 0);
    tg_context_destroy(m->ctx);
    free(m);
    return 0;
}
static void find_aliases(const hand *h, bool *aliased) {
    for (int a = 0; a < h->kernel.argument_count; ++a) aliased[a] = h->arguments[a].access == TG_ACCESS_READ_WRITE;
}
static void machine_run(machine *m, hand *h, tg_isa isa, int threads, void *const *data) {
    tg_arena arena;
    tg_arena_init(&arena, m->ctx);
    bool aliased[MAX_ARGUMENTS];
    find_aliases(h, aliased);
    tg_vm_kernel *kernel = tg_vm_make(&arena, &h->kernel, aliased, isa);
    if (kernel == NULL) fail_msg("%s", tg_error_message(m->ctx));
    char *scratch[3];
    for (int w = 0; w < 3; ++w) {
        scratch[w] = tg_arena_alloc(&arena, tg_vm_scratch(kernel) + 256);
        memset(scratch[w], 0x7e, tg_vm_scratch(kernel)); /* what was never written is a large number */
    }
    int64_t calls = m->ctx->alloc_calls;
    tg_vm_run(kernel, data, m->pool[threads], scratch);
    tg_vm_run(kernel, data, NULL, scratch); /* the second run sees the first one's leftovers */
    assert_int_equal(m->ctx->alloc_calls, calls);
    tg_arena_free(&arena);
}
static bool has_in_place(const hand *h) {
    for (int a = 0; a < h->kernel.argument_count; ++a)
        if (h->arguments[a].access == TG_ACCESS_READ_WRITE) return true;
    return false;
}
static void machine_run_once(machine *m, hand *h, tg_isa isa, int threads, void *const *data) {
    tg_arena arena;
    tg_arena_init(&arena, m->ctx);
    bool aliased[MAX_ARGUMENTS];
    find_aliases(h, aliased);
    tg_vm_kernel *kernel = tg_vm_make(&arena, &h->kernel, aliased, isa);
    if (kernel == NULL) fail_msg("%s", tg_error_message(m->ctx));
    char *scratch[3];
    for (int w = 0; w < 3; ++w) scratch[w] = tg_arena_alloc(&arena, tg_vm_scratch(kernel) + 256);
    tg_vm_run(kernel, data, m->pool[threads], scratch);
    tg_arena_free(&arena);
}

static double get_at(const void *data, tg_dtype dtype, int64_t i) {
    return dtype == TG_F32   ? (double)((const float *)data)[i]
           : dtype == TG_I32 ? (double)((const int32_t *)data)[i]
                             : (double)((const uint8_t *)data)[i];
}
static void describe(const hand *h) {
    printf("kind %d m %d n %d outer %d extents", (int)h->kernel.kind, h->kernel.m_begin, h->kernel.n_begin, h->kernel.outer_count);
    for (int d = 0; d < h->kernel.loop_count; ++d) printf(" %lld", (long long)h->kernel.extent[d]);
    printf("\n");
    for (int i = 0; i < h->kernel.body_count; ++i) {
        const tg_instruction *instruction = &h->body[i];
        printf("%3d op %d dtype %d level %d src %d %d %d arg %d at %lld:", i, instruction->op, (int)instruction->dtype,
               (int)instruction->level, instruction->src[0], instruction->src[1], instruction->src[2], instruction->argument,
               (long long)instruction->at.offset);
        for (int d = 0; d < h->kernel.loop_count; ++d) printf(" %lld", (long long)instruction->at.stride[d]);
        if (instruction->bound_count > 0) printf(" bounds %d", instruction->bound_count);
        if (instruction->op == TG_OP_CONST) printf(" value %g", instruction->value);
        printf("\n");
    }
}
/* Runs everywhere; every written argument must agree with the oracle within `relative` (of max(1, |want|)), and all thread
 * counts of one ISA bit for bit. */
static void check_hand(machine *m, hand *h, double relative) {
    int arguments = h->kernel.argument_count;
    void *before[MAX_ARGUMENTS], *want[MAX_ARGUMENTS], *got[MAX_ARGUMENTS], *one[MAX_ARGUMENTS];
    for (int a = 0; a < arguments; ++a) {
        size_t bytes = (size_t)h->count[a] * dtype_bytes(h->arguments[a].dtype);
        before[a] = malloc(bytes), got[a] = malloc(bytes), one[a] = malloc(bytes);
        memcpy(before[a], h->data[a], bytes);
    }
    oracle_run(h);
    for (int a = 0; a < arguments; ++a) want[a] = h->data[a];
    tg_isa isas[4];
    int isa_count = machine_isas(isas);
    for (int k = 0; k < isa_count; ++k)
        for (int threads = 1; threads <= 3; ++threads) {
            for (int a = 0; a < arguments; ++a) memcpy(got[a], before[a], (size_t)h->count[a] * dtype_bytes(h->arguments[a].dtype));
            (has_in_place(h) ? machine_run_once : machine_run)(m, h, isas[k], threads, got);
            for (int a = 0; a < arguments; ++a) {
                size_t bytes = (size_t)h->count[a] * dtype_bytes(h->arguments[a].dtype);
                if (threads == 1) memcpy(one[a], got[a], bytes);
                else if (memcmp(one[a], got[a], bytes) != 0)
                    fail_msg("%d threads change argument %d on %s", threads, a, tg_isa_name(isas[k]));
                for (int64_t i = 0; i < h->count[a]; ++i) {
                    double x = get_at(got[a], h->arguments[a].dtype, i), y = get_at(want[a], h->arguments[a].dtype, i);
                    if ((isnan(x) && isnan(y)) || x == y || fabs(x - y) <= relative * fmax(1, fabs(y))) continue;
                    describe(h);
                    fail_msg("%s, %d threads: argument %d element %lld of %lld is %.9g, not %.9g", tg_isa_name(isas[k]), threads, a,
                             (long long)i, (long long)h->count[a], x, y);
                }
            }
        }
    for (int a = 0; a < arguments; ++a) {
        memcpy(h->data[a], before[a], (size_t)h->count[a] * dtype_bytes(h->arguments[a].dtype));
        free(before[a]), free(got[a]), free(one[a]);
    }
}

/* ---- accuracy of elementwise functions */

typedef struct accuracy {
    int op;
    double ulp, absolute;
    double lo, hi;
} accuracy;
static const accuracy accuracies[] = {
    {TG_OP_EXP, 1, 0, -104, 89},      {TG_OP_EXP, 1, 0, -1, 1},
    {TG_OP_LOG, 2, 0, 0, 3},          {TG_OP_LOG, 2, 0, 0, 1e30},
    {TG_OP_LOG, 2, 0, 0.9, 1.1},      {TG_OP_SIN, 0, 2e-7, -1e5, 1e5},
    {TG_OP_COS, 0, 2e-7, -1e5, 1e5},  {TG_OP_SIN, 2, 0, -1.5, 1.5},
    {TG_OP_COS, 0, 2e-7, -10, 10},    {TG_OP_TANH, 4, 0, -10, 10},
    {TG_OP_TANH, 4, 0, -1, 1},        {TG_OP_ERF, 0, 2e-7, -5, 5},
    {TG_OP_ERF, 4, 0, -1, 1},         {TG_OP_SIGMOID, 4, 0, -80, 80},
    {TG_OP_SIGMOID, 4, 0, -2, 2},     {TG_OP_SOFTPLUS, 4, 0, -80, 80},
    {TG_OP_SOFTPLUS, 4, 0, -2, 2},    {TG_OP_SQRT, 0.5001, 0, 0, 100},
    {TG_OP_RSQRT, 1.5, 0, 0, 100},    {TG_OP_RECIPROCAL, 0.5001, 0, -100, 100},
    {TG_OP_NEG, 0, 0, -10, 10},       {TG_OP_ABS, 0, 0, -10, 10},
    {TG_OP_SIGN, 0, 0, -10, 10},      {TG_OP_RELU, 0, 0, -10, 10},
    {TG_OP_EXPM1, 4, 0, -20, 89},     {TG_OP_EXPM1, 4, 0, -1, 1},
    {TG_OP_EXPM1, 2, 0, -1e-6, 1e-6}, {TG_OP_LOG1P, 4, 0, -0.999, 3},
    {TG_OP_LOG1P, 4, 0, -0.1, 0.1},   {TG_OP_LOG1P, 2, 0, -1e-6, 1e-6},
    {TG_OP_LOG1P, 4, 0, 0, 1e30},     {TG_OP_FLOOR, 0, 0, -10, 10},
    {TG_OP_CEIL, 0, 0, -1e7, 1e7},    {TG_OP_ROUND, 0, 0, -4, 4},
};
static const float specials[] = {0.0f,           -0.0f,   1.0f,     -1.0f,    1e-45f,    -1e-45f,   1e-39f, -1e-39f,
                                 1.1754944e-38f, FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, NAN,       0.5f,   -0.5f,
                                 2.0f,           -2.0f,   3.0f,     -3.0f,    88.7f,     88.72284f, 88.9f,  -88.9f,
                                 -103.9f,        -104.5f, 1000.0f,  -1000.0f, 1e-8f,     1e10f,     0.625f};

enum { SAMPLES = 4099 };

static hand *elementwise_1d(int op, int operands, tg_dtype in, tg_dtype out) {
    int64_t n = SAMPLES, one = 1;
    hand *h = hand_new(TG_KERNEL_MAP, 1, 0, &n);
    int load[3];
    for (int k = 0; k < operands; ++k) load[k] = hand_load(h, hand_argument(h, in, TG_ACCESS_READ, n), affine(0, 1, &one));
    int y = hand_op(h, op, out, load[0], operands > 1 ? load[1] : -1, operands > 2 ? load[2] : -1);
    hand_store(h, hand_argument(h, out, TG_ACCESS_WRITE, n), affine(0, 1, &one), y);
    return h;
}
static void check_close(const char *what, tg_isa isa, double x, double y, double got, double want, double ulp, double absolute) {
    if (isnan(want) ? isnan(got) : got == want) return;
    if (!isnan(want) && (fabs(got - want) <= absolute || support_ulp(got, want) <= ulp)) return;
    fail_msg("%s on %s: f(%.9g, %.9g) is %.9g, not %.9g (%.3g ulp)", what, tg_isa_name(isa), x, y, got, want, support_ulp(got, want));
}
static void test_unary_accuracy(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(11));
    tg_isa isas[4];
    int isa_count = machine_isas(isas);
    for (int c = 0; c < SUPPORT_COUNT(accuracies); ++c) {
        const accuracy *row = &accuracies[c];
        hand *h = elementwise_1d(row->op, 1, TG_F32, TG_F32);
        float *x = h->data[0], *y = h->data[1];
        for (int i = 0; i < SAMPLES; ++i)
            x[i] = i < SUPPORT_COUNT(specials) ? specials[i] : support_random_float(&random, row->lo, row->hi);
        for (int k = 0; k < isa_count; ++k) {
            machine_run(m, h, isas[k], 1, h->data);
            for (int i = 0; i < SAMPLES; ++i) {
                double want = oracle_unary(row->op, TG_F32, (double)x[i]);
                bool special = i < SUPPORT_COUNT(specials);
                if (special && (row->op == TG_OP_SIN || row->op == TG_OP_COS) && fabsf(x[i]) > 1e6f) {
                    assert_true(isinf(x[i]) || isnan(x[i]) ? isnan(y[i]) : fabsf(y[i]) <= 1.0001f);
                    continue;
                }
                check_close(tg_op_table[row->op].name, isas[k], (double)x[i], 0, (double)y[i], (double)(float)want,
                            special ? fmax(row->ulp, 4) : row->ulp, special ? fmax(row->absolute, 1.2e-38) : row->absolute);
            }
        }
        hand_free(h);
    }
}
static void test_sigmoid_is_bounded(void **state) {
    machine *m = *state;
    hand *h = elementwise_1d(TG_OP_SIGMOID, 1, TG_F32, TG_F32);
    float *x = h->data[0], *y = h->data[1];
    const float in[] = {-1000, -88.9f, 0, 88.9f, 1000}, want[] = {0, 0, 0.5f, 1, 1};
    memcpy(x, in, sizeof in);
    tg_isa isas[4];
    for (int k = machine_isas(isas) - 1; k >= 0; --k) {
        machine_run(m, h, isas[k], 1, h->data);
        for (int i = 0; i < 5; ++i) assert_true(fabsf(y[i] - want[i]) < 1e-38f);
    }
    hand_free(h);
}
static void test_pow(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(12));
    hand *h = elementwise_1d(TG_OP_POW, 2, TG_F32, TG_F32);
    float *x = h->data[0], *y = h->data[1], *z = h->data[2];
    const float exponents[] = {0,     -0.0f, 1,        2,        3,     -1,       -2,        -3,  0.5f,
                               -0.5f, 2.5f,  16777215, 16777216, 1e30f, INFINITY, -INFINITY, NAN, 1.0f / 3};
    int i = 0;
    for (int a = 0; a < SUPPORT_COUNT(specials); ++a)
        for (int b = 0; b < SUPPORT_COUNT(exponents); ++b, ++i) x[i] = specials[a], y[i] = exponents[b];
    for (; i < SAMPLES; ++i) x[i] = support_random_float(&random, 0, 20), y[i] = i % 2 ? support_random_float(&random, -20, 20) : 2.5f;
    tg_isa isas[4];
    for (int k = machine_isas(isas) - 1; k >= 0; --k) {
        machine_run(m, h, isas[k], 1, h->data);
        for (i = 0; i < SAMPLES; ++i) {
            double want = (double)(float)pow((double)x[i], (double)y[i]);
            check_close("pow", isas[k], (double)x[i], (double)y[i], (double)z[i], want, 1, 1e-44);
            if (want == 0) assert_int_equal(!!signbit(z[i]), !!signbit(want));
        }
    }
    hand_free(h);
}
static void test_mod(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(14));
    hand *h = elementwise_1d(TG_OP_MOD, 2, TG_F32, TG_F32);
    float *x = h->data[0], *y = h->data[1], *z = h->data[2];
    int i = 0;
    for (int a = 0; a < SUPPORT_COUNT(specials); ++a)
        for (int b = 0; b < SUPPORT_COUNT(specials) && i < SAMPLES; ++b, ++i) x[i] = specials[a], y[i] = specials[b];
    for (; i < SAMPLES; ++i) { /* quotients of all sizes */
        x[i] = ldexpf(support_random_float(&random, -2, 2), (int)support_random_float(&random, -148, 127));
        y[i] = ldexpf(support_random_float(&random, -2, 2), (int)support_random_float(&random, -148, 127));
        if (i % 3 == 0) y[i] = x[i] * support_random_float(&random, -1e-3f, 1e-3f);
        if (i % 5 == 0) x[i] = roundf(support_random_float(&random, 0, 1e3f)) * y[i];
    }
    tg_isa isas[4];
    for (int k = machine_isas(isas) - 1; k >= 0; --k) {
        machine_run(m, h, isas[k], 1, h->data);
        for (i = 0; i < SAMPLES; ++i) {
            const double want = oracle_mod((double)x[i], (double)y[i]);
            check_close("mod", isas[k], (double)x[i], (double)y[i], (double)z[i], want, 0, 0);
            if (want == 0) assert_int_equal(!!signbit(z[i]), !!signbit(want));
        }
    }
    hand_free(h);
}
static void test_constant_powers(void **state) {
    machine *m = *state;
    static const double exponents[] = {0, 1, 2, 3, -1, 0.5, 2.5, -2};
    int64_t n = 300, one = 1;
    for (int e = 0; e < SUPPORT_COUNT(exponents); ++e) {
        hand *h = hand_new(TG_KERNEL_MAP, 1, 0, &n);
        int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 1, &one));
        int y = hand_binary(h, TG_OP_POW, x, hand_const(h, TG_F32, exponents[e]));
        hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, n), affine(0, 1, &one), y);
        for (int i = 0; i < n; ++i)
            ((float *)h->data[0])[i] = i < SUPPORT_COUNT(specials) && fabsf(specials[i]) < 100 ? specials[i] : (float)i * 0.01f;
        check_hand(m, h, 1e-6);
        hand_free(h);
    }
}
static void test_float_pairs(void **state) {
    machine *m = *state;
    static const int ops[] = {TG_OP_ADD, TG_OP_SUB,  TG_OP_MUL,        TG_OP_DIV,   TG_OP_MIN,
                              TG_OP_MAX, TG_OP_LESS, TG_OP_LESS_EQUAL, TG_OP_EQUAL, TG_OP_NOT_EQUAL};
    for (int o = 0; o < SUPPORT_COUNT(ops); ++o) {
        hand *h = elementwise_1d(ops[o], 2, TG_F32, o < 6 ? TG_F32 : TG_BOOL);
        for (int i = 0; i < SAMPLES; ++i) {
            ((float *)h->data[0])[i] = specials[i % SUPPORT_COUNT(specials)];
            ((float *)h->data[1])[i] = specials[i / SUPPORT_COUNT(specials) % SUPPORT_COUNT(specials)];
        }
        check_hand(m, h, 0);
        hand_free(h);
    }
}
static const int32_t whole_specials[] = {0, 1, -1, 2, -2, 3, 7, -7, INT32_MAX, INT32_MIN, INT32_MIN + 1, 46341, -46341, 65536, 1000000007};
static void test_whole_numbers(void **state) {
    machine *m = *state;
    static const int ops[] = {TG_OP_ADD,        TG_OP_SUB,   TG_OP_MUL,       TG_OP_DIV, TG_OP_MIN, TG_OP_MAX, TG_OP_LESS,
                              TG_OP_LESS_EQUAL, TG_OP_EQUAL, TG_OP_NOT_EQUAL, TG_OP_NEG, TG_OP_ABS, TG_OP_SIGN};
    for (int o = 0; o < SUPPORT_COUNT(ops); ++o) {
        hand *h = elementwise_1d(ops[o], o < 10 ? 2 : 1, TG_I32, o >= 6 && o < 10 ? TG_BOOL : TG_I32);
        for (int k = 0; k < (o < 10 ? 2 : 1); ++k)
            for (int i = 0; i < SAMPLES; ++i)
                ((int32_t *)h->data[k])[i] =
                    whole_specials[(k == 0 ? i : i / SUPPORT_COUNT(whole_specials)) % SUPPORT_COUNT(whole_specials)];
        check_hand(m, h, 0);
        hand_free(h);
    }
}
static void test_truths(void **state) {
    machine *m = *state;
    static const int ops[] = {TG_OP_AND, TG_OP_OR, TG_OP_EQUAL, TG_OP_NOT_EQUAL, TG_OP_NOT};
    for (int o = 0; o < SUPPORT_COUNT(ops); ++o) {
        hand *h = elementwise_1d(ops[o], o < 4 ? 2 : 1, TG_BOOL, TG_BOOL);
        for (int k = 0; k < (o < 4 ? 2 : 1); ++k)
            for (int i = 0; i < SAMPLES; ++i) ((uint8_t *)h->data[k])[i] = (uint8_t)(i >> k & 1);
        check_hand(m, h, 0);
        hand_free(h);
    }
    for (int dtype = TG_F32; dtype <= TG_BOOL; ++dtype) {
        int64_t n = SAMPLES, one = 1;
        hand *h = hand_new(TG_KERNEL_MAP, 1, 0, &n);
        int c = hand_load(h, hand_argument(h, TG_BOOL, TG_ACCESS_READ, n), affine(0, 1, &one));
        int a = hand_load(h, hand_argument(h, (tg_dtype)dtype, TG_ACCESS_READ, n), affine(0, 1, &one));
        int b = hand_load(h, hand_argument(h, (tg_dtype)dtype, TG_ACCESS_READ, n), affine(0, 1, &one));
        int y = hand_op(h, TG_OP_SELECT, (tg_dtype)dtype, c, a, b);
        hand_store(h, hand_argument(h, (tg_dtype)dtype, TG_ACCESS_WRITE, n), affine(0, 1, &one), y);
        for (int i = 0; i < SAMPLES; ++i) {
            argument_set(h, 0, i, i % 3 == 0);
            argument_set(h, 1, i, dtype == TG_F32 ? (double)specials[i % SUPPORT_COUNT(specials)] : i % 2);
            argument_set(h, 2, i, -i);
        }
        check_hand(m, h, 0);
        hand_free(h);
    }
}
static void test_casts(void **state) {
    machine *m = *state;
    static const float floats[] = {-1.7f,     1.7f, -0.0f,         3e9f,          -3e9f,          NAN,    INFINITY,
                                   -INFINITY, 0.5f, 2147483520.0f, 2147483648.0f, -2147483648.0f, 1e-45f, 0.0f};
    for (int from = TG_F32; from <= TG_BOOL; ++from)
        for (int to = TG_F32; to <= TG_BOOL; ++to) {
            hand *h = elementwise_1d(TG_OP_CAST, 1, (tg_dtype)from, (tg_dtype)to);
            for (int i = 0; i < SAMPLES; ++i)
                argument_set(h, 0, i,
                             from == TG_F32   ? (double)floats[i % SUPPORT_COUNT(floats)]
                             : from == TG_I32 ? whole_specials[i % SUPPORT_COUNT(whole_specials)]
                                              : i % 2);
            check_hand(m, h, 0);
            hand_free(h);
        }
}
/* where(x > 0, x, c) gives back c's bits. */
static void test_constants_keep_their_bits(void **state) {
    machine *m = *state;
    const float constants[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 1e-45f, -0.0f, 1e-39f};
    int64_t n = 21, one = 1;
    for (int c = 0; c < SUPPORT_COUNT(constants); ++c) {
        hand *h = hand_new(TG_KERNEL_MAP, 1, 0, &n);
        int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 1, &one));
        int positive = hand_binary(h, TG_OP_LESS, hand_const(h, TG_F32, 0), x);
        int y = hand_op(h, TG_OP_SELECT, TG_F32, positive, x, hand_const(h, TG_F32, (double)constants[c]));
        hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, n), affine(0, 1, &one), y);
        for (int i = 0; i < n; ++i) ((float *)h->data[0])[i] = -1;
        tg_isa isas[4];
        for (int k = machine_isas(isas) - 1; k >= 0; --k) {
            machine_run(m, h, isas[k], 1, h->data);
            for (int i = 0; i < n; ++i) assert_memory_equal(&((float *)h->data[1])[i], &constants[c], 4);
        }
        hand_free(h);
    }
}

/* ---- reductions */

static const int reductions[] = {TG_OP_SUM, TG_OP_REDUCE_MAX, TG_OP_REDUCE_MIN, TG_OP_ARGMAX, TG_OP_ARGMIN};

/* Multiples of 1/4 in [-4, 4): exact under a few sums and products. */
static void fill_quarters(hand *h, int a, support_random *random) {
    for (int64_t i = 0; i < h->count[a]; ++i) {
        int64_t x = support_random_below(random, 32) - 16;
        argument_set(h, a, i,
                     h->arguments[a].dtype == TG_F32   ? (double)x / 4
                     : h->arguments[a].dtype == TG_I32 ? (double)x
                                                       : (double)(x & 1));
    }
}
/* outer x inner, reduced along contiguous memory or across it. */
static void check_reduction(machine *m, support_random *random, int op, tg_dtype dtype, int64_t outer, int64_t inner, bool across,
                            bool with_nan) {
    int64_t extents[2] = {outer, inner}, along[2] = {inner, 1}, down[2] = {1, outer}, out[2] = {1, 0};
    hand *h = hand_new(TG_KERNEL_REDUCE, 1, 1, extents);
    int x = hand_load(h, hand_argument(h, dtype, TG_ACCESS_READ, outer * inner), affine(0, 2, across ? down : along));
    h->body[x].level = TG_LEVEL_ELEMENT;
    int y = hand_reduce(h, op, x);
    hand_store(h, hand_argument(h, h->body[y].dtype, TG_ACCESS_WRITE, outer), affine(0, 2, out), y);
    fill_quarters(h, 0, random);
    if (with_nan)
        for (int64_t k = 0; k < 3; ++k) argument_set(h, 0, support_random_below(random, outer * inner), NAN);
    check_hand(m, h, 1e-6);
    hand_free(h);
}
static void test_reductions(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(13));
    static const int64_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 2049};
    for (int s = 0; s < SUPPORT_COUNT(sizes); ++s)
        for (int o = 0; o < SUPPORT_COUNT(reductions); ++o)
            for (int across = 0; across < 2; ++across)
                for (int outer = 1; outer <= 70; outer += 23) {
                    check_reduction(m, &random, reductions[o], TG_F32, outer, sizes[s], across, (s + o) % 3 == 0);
                    if (outer == 24) check_reduction(m, &random, reductions[o], TG_I32, outer, sizes[s], across, false);
                }
}
static void test_large_reductions(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(14));
    for (int o = 0; o < SUPPORT_COUNT(reductions); ++o)
        for (int across = 0; across < 2; ++across) {
            check_reduction(m, &random, reductions[o], TG_F32, 3, 70001, across, o == 1);
            check_reduction(m, &random, reductions[o], TG_F32, 1, 400009, across, o == 3);
            check_reduction(m, &random, reductions[o], TG_I32, 1, 400009, across, false);
            check_reduction(m, &random, reductions[o], TG_F32, 64, 8191, across, false);
        }
}
static void test_smallest_whole_number(void **state) {
    machine *m = *state;
    for (int o = 0; o < SUPPORT_COUNT(reductions); ++o)
        for (int64_t n = 2; n <= 40; n += 19) {
            int64_t stride = 1, zero = 0;
            hand *h = hand_new(TG_KERNEL_REDUCE, 0, 1, &n);
            int x = hand_load(h, hand_argument(h, TG_I32, TG_ACCESS_READ, n), affine(0, 1, &stride));
            int y = hand_reduce(h, reductions[o], x);
            hand_store(h, hand_argument(h, TG_I32, TG_ACCESS_WRITE, 1), affine(0, 1, &zero), y);
            for (int64_t i = 0; i < n; ++i) argument_set(h, 0, i, INT32_MIN);
            check_hand(m, h, 0);
            hand_free(h);
        }
}
/* 0.1 summed 4,000,000 times (every rounding of equal terms has the same sign): a few ulp, where one f32 chain is off by
 * percents. */
static void test_long_sums_are_accurate(void **state) {
    machine *m = *state;
    int64_t n = 4000000, stride = 1, zero = 0;
    hand *h = hand_new(TG_KERNEL_REDUCE, 0, 1, &n);
    int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 1, &stride));
    hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, 1), affine(0, 1, &zero), hand_reduce(h, TG_OP_SUM, x));
    for (int64_t i = 0; i < n; ++i) ((float *)h->data[0])[i] = 0.1f;
    double want = (double)0.1f * (double)n;
    tg_isa isas[4];
    for (int k = machine_isas(isas) - 1; k >= 0; --k) {
        float one = 0;
        for (int threads = 1; threads <= 3; ++threads) {
            machine_run(m, h, isas[k], threads, h->data);
            float got = *(float *)h->data[1];
            if (threads == 1) one = got;
            assert_memory_equal(&one, &got, 4);
            assert_true(support_ulp((double)got, want) <= 8);
        }
    }
    for (int64_t i = 0; i < n; ++i) ((float *)h->data[0])[i] = 1;
    machine_run(m, h, tg_cpu_isa(), 2, h->data);
    assert_true(*(float *)h->data[1] == 4000000.0f);
    hand_free(h);
}

/* softmax: max, exp(x - max), sum, quotient; along the last loop or across. */
static void check_softmax(machine *m, int64_t outer, int64_t inner, bool across, bool log_sum) {
    int64_t extents[2] = {outer, inner}, along[2] = {inner, 1}, down[2] = {1, outer}, rows[2] = {1, 0};
    support_random random = support_random_make(support_seed(15));
    hand *h = hand_new(TG_KERNEL_REDUCE, 1, 1, extents);
    tg_affine at = affine(0, 2, across ? down : along);
    int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, outer * inner), at);
    int e = hand_unary(h, TG_OP_EXP, hand_binary(h, TG_OP_SUB, x, hand_reduce(h, TG_OP_REDUCE_MAX, x)));
    int s = hand_reduce(h, TG_OP_SUM, e);
    hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, outer * inner), at, hand_binary(h, TG_OP_DIV, e, s));
    if (log_sum) hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, outer), affine(0, 2, rows), hand_unary(h, TG_OP_LOG, s));
    for (int64_t i = 0; i < outer * inner; ++i) ((float *)h->data[0])[i] = support_random_float(&random, -5, 5);
    check_hand(m, h, 2e-6);
    hand_free(h);
}
static void test_softmax(void **state) {
    machine *m = *state;
    static const int64_t sizes[] = {2, 7, 8, 12, 16, 65, 600, 5000, 40000};
    for (int s = 0; s < SUPPORT_COUNT(sizes); ++s)
        for (int across = 0; across < 2; ++across) {
            check_softmax(m, 1, sizes[s], across, true);
            check_softmax(m, sizes[s] > 1000 ? 3 : 37, sizes[s], across, s % 2 == 0);
        }
}
/* Row i of a T x T block sees columns 0..i; the mask is the same in every tile. A bias per column besides. */
static void test_causal_softmax(void **state) {
    machine *m = *state;
    static const int64_t lengths[] = {3, 8, 16, 31, 40};
    for (int s = 0; s < SUPPORT_COUNT(lengths); ++s) {
        int64_t n = lengths[s], extents[3] = {77, n, n}, all[3] = {n * n, n, 1}, row[3] = {0, 1, 0}, col[3] = {0, 0, 1};
        support_random random = support_random_make(support_seed(19));
        hand *h = hand_new(TG_KERNEL_REDUCE, 2, 1, extents);
        int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, 77 * n * n), affine(0, 3, all));
        int b = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 3, col));
        tg_affine row_at = affine(0, 3, row), col_at = affine(0, 3, col);
        hand_add(h, TG_K_INDEX, TG_I32, TG_LEVEL_OUTER)->at = row_at;
        int i = hand_last(h);
        hand_add(h, TG_K_INDEX, TG_I32, TG_LEVEL_ELEMENT)->at = col_at;
        int seen = hand_binary(h, TG_OP_LESS_EQUAL, hand_last(h), i);
        int y = hand_op(h, TG_OP_SELECT, TG_F32, seen, hand_binary(h, TG_OP_ADD, x, b), hand_const(h, TG_F32, -1e9));
        int e = hand_unary(h, TG_OP_EXP, hand_binary(h, TG_OP_SUB, y, hand_reduce(h, TG_OP_REDUCE_MAX, y)));
        e = hand_op(h, TG_OP_SELECT, TG_F32, seen, e, hand_const(h, TG_F32, 0));
        hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, 77 * n * n), affine(0, 3, all),
                   hand_binary(h, TG_OP_DIV, e, hand_reduce(h, TG_OP_SUM, e)));
        for (int a = 0; a < 2; ++a)
            for (int64_t k = 0; k < h->count[a]; ++k) ((float *)h->data[a])[k] = support_random_float(&random, -3, 3);
        check_hand(m, h, 2e-6);
        hand_free(h);
    }
}
/* Normalisation in place: x <- (x - mean) rsqrt(var + eps) g + b. */
static void test_normalise_in_place(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(16));
    static const int64_t sizes[] = {3, 64, 100, 6000};
    for (int s = 0; s < SUPPORT_COUNT(sizes); ++s) {
        int64_t n = sizes[s], extents[2] = {23, n}, along[2] = {n, 1}, bias[2] = {0, 1};
        hand *h = hand_new(TG_KERNEL_REDUCE, 1, 1, extents);
        tg_affine at = affine(0, 2, along);
        int x = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ_WRITE, 23 * n), at);
        int scale = hand_const(h, TG_F32, 1.0 / (double)n);
        int d = hand_binary(h, TG_OP_SUB, x, hand_binary(h, TG_OP_MUL, hand_reduce(h, TG_OP_SUM, x), scale));
        int v = hand_binary(h, TG_OP_MUL, hand_reduce(h, TG_OP_SUM, hand_binary(h, TG_OP_MUL, d, d)), scale);
        int r = hand_unary(h, TG_OP_RSQRT, hand_binary(h, TG_OP_ADD, v, hand_const(h, TG_F32, 1e-5)));
        int g = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 2, bias));
        int b = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, n), affine(0, 2, bias));
        int y = hand_binary(h, TG_OP_ADD, hand_binary(h, TG_OP_MUL, hand_binary(h, TG_OP_MUL, d, r), g), b);
        hand_store(h, 0, at, y);
        for (int a = 0; a < 3; ++a)
            for (int64_t i = 0; i < h->count[a]; ++i) ((float *)h->data[a])[i] = support_random_float(&random, -2, 3);
        check_hand(m, h, 1e-4); /* three nearly equal values: their variance has few digits */
        hand_free(h);
    }
}

/* ---- random kernels */

typedef struct random_access {
    tg_affine at;
    int64_t count;
    bool bounded;
    tg_affine bound_at;
    int64_t lo, hi;
} random_access;

/* A buffer with the loops in `mask` as axes, in random order, sometimes padded, flipped, broadcast or read past its edge. */
static random_access make_access(const hand *h, support_random *random, uint32_t mask, bool plain, bool may_bound) {
    int axes[TG_MAX_LOOP], count = 0;
    for (int d = 0; d < h->kernel.loop_count; ++d)
        if (mask >> d & 1) axes[count++] = d;
    if (!plain && support_random_below(random, 3) == 0)
        for (int k = count - 1; k > 0; --k) {
            int j = (int)support_random_below(random, k + 1), t = axes[k];
            axes[k] = axes[j], axes[j] = t;
        }
    random_access access = {.count = 1};
    int bounded = may_bound && count > 0 && support_random_below(random, 3) == 0 ? (int)support_random_below(random, count) : -1;
    for (int k = count - 1; k >= 0; --k) {
        int64_t extent = h->kernel.extent[axes[k]], size = extent + (plain ? 0 : support_random_below(random, 4) == 0);
        if (k == bounded) { /* the memory holds `held` places from `before` on */
            int64_t held = 1 + support_random_below(random, extent), before = support_random_below(random, extent - held + 1);
            access.bounded = true;
            access.bound_at = (tg_affine){.offset = -before};
            access.bound_at.stride[axes[k]] = 1;
            access.lo = 0, access.hi = size = held;
            access.at.offset -= before * access.count;
            access.at.stride[axes[k]] = access.count;
        } else if (!plain && support_random_below(random, 6) == 0) {
            access.at.offset += (extent - 1) * access.count;
            access.at.stride[axes[k]] = -access.count;
        } else {
            access.at.stride[axes[k]] = access.count;
        }
        access.count *= size;
    }
    return access;
}
static int random_load(hand *h, support_random *random, tg_dtype dtype) {
    uint32_t all = (1u << h->kernel.loop_count) - 1u,
             mask = support_random_below(random, 2) ? all : (uint32_t)support_random_bits(random) & all;
    if (h->kernel.kind == TG_KERNEL_CONTRACT) mask &= (1u << h->kernel.outer_count) - 1u;
    random_access access = make_access(h, random, mask, support_random_below(random, 2) != 0, true);
    int load = hand_load(h, hand_argument(h, dtype, TG_ACCESS_READ, access.count), access.at);
    if (access.bounded) hand_bound(h, access.bound_at, access.lo, access.hi);
    return load;
}
static int random_of(const hand *h, support_random *random, tg_dtype dtype) {
    for (int tries = 0; tries < 200; ++tries) {
        int i = (int)support_random_below(random, h->kernel.body_count);
        if (h->body[i].dtype == dtype && !is_effect(h->body[i].op)) return i;
    }
    return -1;
}
static void random_operation(hand *h, support_random *random) {
    static const int binaries[] = {TG_OP_ADD, TG_OP_SUB, TG_OP_MUL, TG_OP_MIN, TG_OP_MAX, TG_OP_ADD, TG_OP_SUB};
    static const int unaries[] = {TG_OP_NEG, TG_OP_ABS, TG_OP_RELU, TG_OP_SIGN};
    static const int compares[] = {TG_OP_LESS, TG_OP_LESS_EQUAL, TG_OP_EQUAL, TG_OP_NOT_EQUAL};
    int a = random_of(h, random, TG_F32), b = random_of(h, random, TG_F32), c;
    if (a < 0 || b < 0) return;
    switch (support_random_below(random, 8)) {
    case 0: hand_unary(h, unaries[support_random_below(random, 4)], a); break;
    case 1: hand_binary(h, compares[support_random_below(random, 4)], a, b); break;
    case 2:
        c = random_of(h, random, TG_BOOL);
        if (c >= 0) hand_op(h, TG_OP_SELECT, TG_F32, c, a, support_random_below(random, 2) ? b : hand_const(h, TG_F32, 0));
        break;
    case 3: {
        tg_affine at = {.offset = support_random_below(random, 5) - 2};
        int outer = h->kernel.kind == TG_KERNEL_CONTRACT ? h->kernel.outer_count : h->kernel.loop_count;
        if (outer > 0) at.stride[support_random_below(random, outer)] = support_random_below(random, 3) - 1;
        if (support_random_below(random, 2)) {
            hand_add(h, TG_K_INDEX, TG_F32, hand_affine_level(h, &at))->at = at;
        } else {
            hand_add(h, TG_K_INSIDE, TG_BOOL, TG_LEVEL_UNIFORM);
            hand_bound(h, at, -1, 3);
        }
        break;
    }
    case 4: hand_op(h, TG_OP_MUL, TG_F32, a, hand_const(h, TG_F32, 0.5), -1); break;
    default: hand_binary(h, binaries[support_random_below(random, 7)], a, b); break;
    }
}
static void random_store(hand *h, support_random *random, int value, uint32_t mask) {
    tg_dtype dtype = h->body[value].dtype;
    random_access access = make_access(h, random, mask, support_random_below(random, 3) != 0, false);
    hand_store(h, hand_argument(h, dtype, TG_ACCESS_WRITE, access.count), access.at, value);
}
static int64_t random_extent(support_random *random) {
    static const int64_t extents[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33, 64};
    return extents[support_random_below(random, SUPPORT_COUNT(extents))];
}
static void random_extents(support_random *random, int64_t *extents, int count, int64_t most) {
    int64_t product = 1;
    for (int d = 0; d < count; ++d) {
        extents[d] = random_extent(random);
        while (product * extents[d] > most) extents[d] = (extents[d] + 1) / 2;
        product *= extents[d];
        if (product >= most) most = product;
    }
}
static void fill_all(hand *h, support_random *random) {
    for (int a = 0; a < h->kernel.argument_count; ++a) fill_quarters(h, a, random);
}
static hand *random_map(support_random *random) {
    int64_t extents[TG_MAX_LOOP];
    int loops = (int)support_random_below(random, 5);
    random_extents(random, extents, loops, 4000);
    hand *h = hand_new(TG_KERNEL_MAP, loops, 0, extents);
    for (int k = 0; k < 3; ++k) random_load(h, random, k == 2 && support_random_below(random, 2) ? TG_BOOL : TG_F32);
    for (int k = (int)support_random_below(random, 12); k >= 0; --k) random_operation(h, random);
    uint32_t all = (1u << loops) - 1u;
    random_store(h, random, hand_last(h), all);
    int other = random_of(h, random, TG_F32);
    if (other >= 0) random_store(h, random, other, all);
    return h;
}
static hand *random_reduce(support_random *random) {
    int64_t extents[TG_MAX_LOOP];
    int outer = (int)support_random_below(random, 4), inner = 1 + (int)support_random_below(random, 3);
    random_extents(random, extents, outer + inner, 6000);
    if (support_random_below(random, 12) == 0) extents[outer + inner - 1] *= 30;
    hand *h = hand_new(TG_KERNEL_REDUCE, outer, inner, extents);
    uint32_t all = (1u << (outer + inner)) - 1u, outside = (1u << outer) - 1u;
    random_access access = make_access(h, random, all, false, false);
    hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, access.count), access.at);
    h->body[0].level = TG_LEVEL_ELEMENT;
    for (int k = 0; k < 2; ++k) random_load(h, random, TG_F32);
    int stages = 1 + (int)support_random_below(random, 3), last = -1;
    for (int s = 0; s < stages; ++s) {
        for (int k = (int)support_random_below(random, 5); k > 0; --k) random_operation(h, random);
        int v = random_of(h, random, TG_F32);
        while (v >= 0 && h->body[v].level != TG_LEVEL_ELEMENT) v = h->body[0].op == TG_K_LOAD ? 0 : -1;
        int op = reductions[support_random_below(random, SUPPORT_COUNT(reductions))];
        last = hand_reduce(h, op, v);
        if (h->body[last].dtype == TG_I32) last = hand_op(h, TG_OP_CAST, TG_F32, last, -1, -1);
        if (h->body[v].level == TG_LEVEL_ELEMENT && op == TG_OP_SUM)
            last = hand_op(h, TG_OP_MUL, TG_F32, last, hand_const(h, TG_F32, 0.0625), -1);
    }
    random_store(h, random, last, outside);
    if (support_random_below(random, 2)) {
        for (int k = (int)support_random_below(random, 5); k > 0; --k) random_operation(h, random);
        int v = random_of(h, random, TG_F32);
        if (v >= 0) random_store(h, random, v, all);
    }
    return h;
}
static hand *random_contract(support_random *random) {
    int64_t extents[TG_MAX_LOOP];
    int batch = (int)support_random_below(random, 3), rows = (int)support_random_below(random, 3),
        cols = (int)support_random_below(random, 3);
    int inner = 1 + (int)support_random_below(random, 2), outer = batch + rows + cols;
    random_extents(random, extents, outer + inner, 20000);
    hand *h = hand_new(TG_KERNEL_CONTRACT, outer, inner, extents);
    h->kernel.m_begin = batch, h->kernel.n_begin = batch + rows;
    uint32_t all = (1u << (outer + inner)) - 1u, m = ((1u << rows) - 1u) << batch, n = ((1u << cols) - 1u) << (batch + rows);
    random_access a = make_access(h, random, all & ~n, false, false), b = make_access(h, random, all & ~m, false, false);
    h->kernel.a = (tg_operand_access){hand_argument(h, TG_F32, TG_ACCESS_READ, a.count), a.at};
    h->kernel.b = (tg_operand_access){hand_argument(h, TG_F32, TG_ACCESS_READ, b.count), b.at};
    h->kernel.flops = 2 * (double)extent_product(h, 0, outer + inner);
    hand_add(h, TG_K_ACC, TG_F32, TG_LEVEL_ELEMENT);
    if (support_random_below(random, 3)) {
        for (int k = 0; k < 2; ++k) random_load(h, random, TG_F32);
        for (int k = (int)support_random_below(random, 5); k > 0; --k) random_operation(h, random);
        hand_binary(h, TG_OP_ADD, 0, hand_last(h) > 0 && h->body[hand_last(h)].dtype == TG_F32 ? hand_last(h) : 0);
    }
    random_store(h, random, hand_last(h), (1u << outer) - 1u);
    return h;
}
static hand *random_scatter(support_random *random) {
    int64_t extents[TG_MAX_LOOP];
    int n = 1 + (int)support_random_below(random, 2);
    random_extents(random, extents, n + 1, 4000);
    hand *h = hand_new(TG_KERNEL_SCATTER_ADD, n + 1, 0, extents);
    h->kernel.m_begin = n;
    uint32_t places = (1u << n) - 1u;
    random_access where = make_access(h, random, places, true, false);
    int index = hand_load(h, hand_argument(h, TG_I32, TG_ACCESS_READ, where.count), where.at);
    int value = random_load(h, random, TG_F32);
    for (int k = (int)support_random_below(random, 4); k > 0; --k) {
        random_operation(h, random);
        if (h->body[hand_last(h)].dtype == TG_F32) value = hand_last(h);
    }
    int64_t rows = 1 + support_random_below(random, 9), depth = extents[n];
    tg_affine at = {0};
    at.stride[n] = 1;
    int out = hand_argument(h, TG_F32, TG_ACCESS_WRITE, rows * depth);
    hand_op(h, TG_K_SCATTER, TG_F32, index, value, -1);
    tg_instruction *scatter = &h->body[hand_last(h)];
    scatter->level = TG_LEVEL_ELEMENT;
    scatter->argument = out;
    scatter->at = at;
    scatter->row_stride = depth;
    scatter->rows = rows;
    return h;
}
static void check_random(machine *m, hand *(*make)(support_random *), uint64_t seed, int count) {
    seed = support_seed(seed);
    for (int c = 0; c < count; ++c) {
        support_random random = support_random_make(seed + (uint64_t)c);
        hand *h = make(&random);
        fill_all(h, &random);
        if (getenv("TG_TEST_VERBOSE") != NULL) printf("seed %llu\n", (unsigned long long)(seed + (uint64_t)c)), describe(h), fflush(stdout);
        check_hand(m, h, 1e-5);
        hand_free(h);
    }
}
static int random_count(int standard) { return support_env_int("TG_TEST_COUNT", SUPPORT_SANITIZED ? standard / 4 : standard); }
static void test_random_maps(void **state) { check_random(*state, random_map, 1000, random_count(1500)); }
static void test_random_reductions(void **state) { check_random(*state, random_reduce, 5000, random_count(1500)); }
static void test_random_contractions(void **state) { check_random(*state, random_contract, 9000, random_count(400)); }
static void test_random_scatters(void **state) { check_random(*state, random_scatter, 12000, random_count(400)); }

/* ---- indexing */

static void test_gather(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(17));
    for (int form = 0; form < 4; ++form) {
        int64_t extents[2] = {50, 37}, by_row[2] = {1, 0}, by_col[2] = {0, 1}, both[2] = {37, 1}, place[2] = {0, 1};
        hand *h = hand_new(TG_KERNEL_MAP, 2, 0, extents);
        int index = hand_load(h, hand_argument(h, TG_I32, TG_ACCESS_READ, 50 * 37),
                              affine(0, 2,
                                     form == 0   ? by_row
                                     : form == 1 ? by_col
                                                 : both));
        tg_instruction *gather = hand_add(h, TG_K_GATHER, TG_F32, TG_LEVEL_ELEMENT);
        gather->src[0] = index;
        gather->argument = hand_argument(h, TG_F32, TG_ACCESS_READ, 9 * 37);
        gather->at = affine(0, 2, place);
        gather->row_stride = 37;
        gather->rows = 9;
        if (form == 3) hand_bound(h, affine(0, 2, place), 3, 30);
        hand_store(h, hand_argument(h, TG_F32, TG_ACCESS_WRITE, 50 * 37), affine(0, 2, both), hand_last(h));
        fill_all(h, &random); /* some indices are out of range: clamped */
        check_hand(m, h, 0);
        hand_free(h);
    }
}
/* Row 2 gets 4096 ones. */
static void test_scatter_of_many_duplicates(void **state) {
    machine *m = *state;
    int64_t extents[2] = {4096, 5}, by_row[2] = {1, 0}, both[2] = {5, 1}, place[2] = {0, 1};
    hand *h = hand_new(TG_KERNEL_SCATTER_ADD, 2, 0, extents);
    h->kernel.m_begin = 1;
    int index = hand_load(h, hand_argument(h, TG_I32, TG_ACCESS_READ, 4096), affine(0, 2, by_row));
    int value = hand_load(h, hand_argument(h, TG_F32, TG_ACCESS_READ, 4096 * 5), affine(0, 2, both));
    hand_op(h, TG_K_SCATTER, TG_F32, index, value, -1);
    tg_instruction *scatter = &h->body[hand_last(h)];
    scatter->level = TG_LEVEL_ELEMENT;
    scatter->argument = hand_argument(h, TG_F32, TG_ACCESS_WRITE, 15);
    scatter->at = affine(0, 2, place);
    scatter->row_stride = 5, scatter->rows = 3;
    for (int i = 0; i < 4096; ++i) argument_set(h, 0, i, 2);
    for (int i = 0; i < 4096 * 5; ++i) argument_set(h, 1, i, 1);
    check_hand(m, h, 0);
    hand_free(h);
}
/* Adam on one flat buffer: three results in place, one load used after its own store in the body. */
static void test_in_place_update(void **state) {
    machine *m = *state;
    support_random random = support_random_make(support_seed(18));
    int64_t n = 3001, one = 1;
    hand *h = hand_new(TG_KERNEL_MAP, 1, 0, &n);
    tg_affine at = affine(0, 1, &one);
    int p = hand_argument(h, TG_F32, TG_ACCESS_READ_WRITE, n), a = hand_argument(h, TG_F32, TG_ACCESS_READ_WRITE, n);
    int b = hand_argument(h, TG_F32, TG_ACCESS_READ_WRITE, n), gradient = hand_argument(h, TG_F32, TG_ACCESS_READ, n);
    int lp = hand_load(h, p, at), la = hand_load(h, a, at), lb = hand_load(h, b, at), g = hand_load(h, gradient, at);
    int na = hand_binary(h, TG_OP_ADD, hand_binary(h, TG_OP_MUL, la, hand_const(h, TG_F32, 0.75)), g);
    hand_store(h, a, at, na);
    int nb = hand_binary(h, TG_OP_ADD, hand_binary(h, TG_OP_MUL, lb, hand_const(h, TG_F32, 0.5)), hand_binary(h, TG_OP_MUL, g, g));
    hand_store(h, b, at, nb);
    hand_store(h, p, at, hand_binary(h, TG_OP_SUB, hand_binary(h, TG_OP_ADD, lp, la), hand_binary(h, TG_OP_MUL, na, nb)));
    int copy = hand_argument(h, TG_F32, TG_ACCESS_WRITE, n);
    hand_store(h, copy, at, lp); /* the old value */
    fill_all(h, &random);
    check_hand(m, h, 1e-6);
    hand_free(h);
}
/* Every allocation of a translation fails in turn: an error, nothing leaks. */
static void test_failing_allocations(void **state) {
    (void)state;
    for (int64_t n = 1; n < 400; ++n) {
        support_random random = support_random_make(7);
        hand *h = random_reduce(&random);
        support_allocator allocator = {0};
        tg_context *ctx = support_context_counting(&allocator);
        assert_non_null(ctx);
        int64_t before = allocator.live_blocks;
        allocator.fail_at = allocator.calls + n;
        tg_arena arena;
        tg_arena_init(&arena, ctx);
        tg_vm_kernel *kernel = tg_vm_make(&arena, &h->kernel, NULL, TG_ISA_SCALAR_);
        tg_status status = tg_error(ctx);
        tg_arena_free(&arena);
        assert_int_equal(allocator.live_blocks, before);
        assert_int_equal(kernel == NULL, status == TG_ERROR_MEMORY);
        tg_context_destroy(ctx);
        hand_free(h);
        if (kernel != NULL) return;
    }
    fail_msg("no end of allocations");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_accuracy),
        cmocka_unit_test(test_sigmoid_is_bounded),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_mod),
        cmocka_unit_test(test_constant_powers),
        cmocka_unit_test(test_float_pairs),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_truths),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_constants_keep_their_bits),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_large_reductions),
        cmocka_unit_test(test_smallest_whole_number),
        cmocka_unit_test(test_long_sums_are_accurate),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_causal_softmax),
        cmocka_unit_test(test_normalise_in_place),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scatter_of_many_duplicates),
        cmocka_unit_test(test_in_place_update),
        cmocka_unit_test(test_random_maps),
        cmocka_unit_test(test_random_reductions),
        cmocka_unit_test(test_random_contractions),
        cmocka_unit_test(test_random_scatters),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, machine_setup, machine_teardown);
}
