/* Passes: random graphs have the same values before and after (f64 reference), stay valid, and a second run changes nothing;
 * rewrites that must happen happen, those that would change a value do not; cost grows with the nodes. */
#include "support.h"

#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static support_random pass_random;

static int random_below(int n) { return (int)support_random_below(&pass_random, n); }

static tg_graph *graph_make(tg_context **ctx) {
    *ctx = tg_context_create(NULL);
    tg_graph *g = tg_graph_create(*ctx);
    assert_non_null(g);
    g->current_site = TG_SITE;
    return g;
}

static void graph_free(tg_graph *g) {
    tg_context *ctx = g->ctx;
    if (tg_error(ctx) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    tg_graph_destroy(g);
    assert_int_equal(ctx->live_blocks, 0);
    tg_context_destroy(ctx);
}

static void run_passes(tg_graph *g) {
    if (tg_pass_run(g, true) != TG_OK || tg_graph_verify(g) != TG_OK) fail_msg("%s", tg_error_message(g->ctx));
}

static const tg_node *result_node(const tg_graph *g) { return tg_graph_node(g, g->result); }

static int count_op(const tg_graph *g, tg_op op) {
    int count = 0;
    for (int64_t id = 1; id < g->nodes.count; id++) count += g->nodes.items[id].op == op;
    return count;
}

/* ---------------------------------------------------------------- values */

/* The value of leaf number `index` of its kind: the same before and after the passes. */
static double *leaf_values(const tg_node *node) {
    int64_t count = tg_shape_count(node->shape);
    double *values = calloc((size_t)count, sizeof *values);
    uint64_t state = (uint64_t)node->attr.leaf * 7919 + (uint64_t)node->op * 104729 + 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int pick = (int)(state >> 33) % 33;
        if (node->dtype == TG_F32) values[i] = pick == 0 ? 0.0 : pick == 1 ? -0.0 : (pick - 16) / 8.0;
        if (node->dtype == TG_I32) values[i] = pick % 4;
        if (node->dtype == TG_BOOL) values[i] = pick % 2;
    }
    return values;
}

typedef struct evaluation {
    double **roots;
    int64_t *counts;
    int n;
} evaluation;

/* Result and captures. */
static evaluation evaluate(const tg_graph *g) {
    evaluation e;
    double **leaves = calloc((size_t)g->nodes.count, sizeof *leaves);
    for (int64_t id = 1; id < g->nodes.count; id++) {
        const tg_node *node = &g->nodes.items[id];
        if (node->op == TG_OP_INPUT || node->op == TG_OP_PARAM || node->op == TG_OP_STATE) leaves[id] = leaf_values(node);
    }
    tg_reference *run = tg_reference_run(g, (const double *const *)leaves);
    assert_non_null(run);
    e.n = 1 + (int)g->captures.count;
    e.roots = calloc((size_t)e.n, sizeof *e.roots);
    e.counts = calloc((size_t)e.n, sizeof *e.counts);
    for (int i = 0; i < e.n; i++) {
        int32_t id = i == 0 ? g->result : g->captures.items[i - 1].node;
        e.counts[i] = tg_shape_count(tg_graph_node(g, id)->shape);
        e.roots[i] = calloc((size_t)e.counts[i], sizeof(double));
        memcpy(e.roots[i], tg_reference_value(run, id), sizeof(double) * (size_t)e.counts[i]);
    }
    tg_reference_destroy(run);
    for (int64_t id = 1; id < g->nodes.count; id++) free(leaves[id]);
    free(leaves);
    return e;
}

static void evaluation_free(evaluation *e) {
    for (int i = 0; i < e->n; i++) free(e->roots[i]);
    free(e->roots);
    free(e->counts);
}

/* NaN equals NaN, 0 does not equal -0; x^2 as x x may differ in the last bit of f64. */
static bool same_value(double a, double b) {
    if (a != a || b != b) return a != a && b != b;
    if (a == b) return a != 0 || signbit(a) == signbit(b);
    return fabs(a - b) <= 1e-13 * (fabs(a) + fabs(b));
}

static void check_same(uint64_t seed, const evaluation *a, const evaluation *b) {
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        assert_int_equal(a->counts[i], b->counts[i]);
        for (int64_t k = 0; k < a->counts[i]; k++)
            if (!same_value(a->roots[i][k], b->roots[i][k]))
                fail_msg("seed %llu, root %d, element %d: %.17g before, %.17g after", (unsigned long long)seed, i, (int)k, a->roots[i][k],
                         b->roots[i][k]);
    }
}

static char *print_graph(const tg_graph *g) {
    tg_text_buffer text;
    tg_text_init(&text, g->ctx);
    tg_graph_print(g, &text);
    char *copy = calloc(1, text.length + 1);
    assert_non_null(copy);
    if (text.length > 0) memcpy(copy, text.data, text.length);
    tg_text_free(&text);
    return copy;
}

static void print_whole(const tg_graph *g) {
    char *text = print_graph(g);
    puts(text);
    free(text);
}

/* ---------------------------------------------------------------- random graphs */

typedef struct generator {
    tg_graph *g;
    int32_t nodes[400];
    int count;
} generator;

static void keep(generator *s, int32_t id) {
    if (id == 0) fail_msg("generator: %s", tg_error_message(s->g->ctx));
    if (s->count < 400 && tg_shape_count(tg_graph_node(s->g, id)->shape) <= 4096) s->nodes[s->count++] = id;
}

static int32_t pick(generator *s, tg_dtype dtype) {
    for (;;) {
        /* recent nodes more often: longer chains */
        int back = random_below(2) ? random_below(s->count) : random_below(s->count < 8 ? s->count : 8);
        int32_t id = s->nodes[s->count - 1 - back];
        if (tg_graph_node(s->g, id)->dtype == dtype) return id;
    }
}

static tg_shape random_shape(void) {
    tg_shape shape = tg_shape_make(random_below(5), NULL);
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = 1 + random_below(3);
    return shape;
}

static double random_number(void) {
    static const double numbers[] = {0, -0.0, 1, -1, 2, 0.5, -4, 3, 0.25};
    return numbers[random_below(9)];
}

static void add_leaf(generator *s, int number) {
    char name[16];
    snprintf(name, sizeof name, "x%d", number);
    int kind = random_below(4);
    tg_shape shape = random_shape();
    if (kind == 0) keep(s, tg_ir_const(s->g, shape, TG_F32, random_number()));
    if (kind == 1) keep(s, tg_ir_input(s->g, name, shape, (tg_dtype)random_below(3)));
    if (kind == 2) keep(s, tg_ir_state(s->g, name, shape, TG_F32, 0));
    if (kind == 3 && shape.rank > 0) keep(s, tg_ir_iota(s->g, shape, (tg_dtype)random_below(2), random_below(shape.rank)));
    if (kind == 3 && shape.rank == 0) {
        float data = 3;
        keep(s, tg_ir_data(s->g, shape, TG_F32, &data));
    }
}

/* May passes find that (a part of) the f32 node is constant, and work out in f32 what is made of it? */
static bool is_fixed(const tg_graph *g, int32_t id) {
    const tg_node *node = tg_graph_node(g, id);
    if (node->op == TG_OP_CAST || node->op == TG_OP_PAD || node->op == TG_OP_PACK) return true;
    if (node->op == TG_OP_SELECT) return is_fixed(g, node->inputs[1]) || is_fixed(g, node->inputs[2]);
    if (node->op == TG_OP_INPUT || node->op == TG_OP_STATE) return false;
    for (int32_t i = 0; i < node->input_count; i++)
        if (!is_fixed(g, node->inputs[i])) return false;
    return true;
}

static void add_unary(generator *s) {
    static const tg_op ops[] = {TG_OP_NEG,        TG_OP_ABS, TG_OP_SIGN,          TG_OP_RELU, TG_OP_TANH,     TG_OP_SIGMOID, TG_OP_SQRT,
                                TG_OP_RECIPROCAL, TG_OP_NEG, TG_OP_STOP_GRADIENT, TG_OP_COS,  TG_OP_SOFTPLUS, TG_OP_ERF,     TG_OP_RSQRT,
                                TG_OP_LOG,        TG_OP_SIN};
    if (random_below(6) == 0) keep(s, tg_ir_unary(s->g, TG_OP_NOT, pick(s, TG_BOOL)));
    else if (random_below(6) == 0) keep(s, tg_ir_unary(s->g, (tg_op)(TG_OP_NEG + random_below(3)), pick(s, TG_I32)));
    else {
        int32_t x = pick(s, TG_F32);
        /* of constants only what f32 does exactly: the comparison is then exact too */
        keep(s, tg_ir_unary(s->g, ops[random_below(is_fixed(s->g, x) ? 4 : 16)], x));
    }
}

static void add_binary(generator *s) {
    static const tg_op ops[] = {TG_OP_ADD, TG_OP_SUB,  TG_OP_MUL,        TG_OP_DIV,   TG_OP_MIN,
                                TG_OP_MAX, TG_OP_LESS, TG_OP_LESS_EQUAL, TG_OP_EQUAL, TG_OP_NOT_EQUAL};
    static const tg_op logic[] = {TG_OP_AND, TG_OP_OR, TG_OP_EQUAL, TG_OP_NOT_EQUAL};
    tg_dtype dtype = (tg_dtype)(random_below(8) == 0 ? 1 + random_below(2) : 0);
    int32_t a = pick(s, dtype), b = random_below(10) == 0 ? a : pick(s, dtype);
    tg_shape out;
    if (random_below(4) == 0 && dtype != TG_BOOL)
        b = tg_ir_const(s->g, TG_SCALAR, dtype, dtype == TG_F32 ? random_number() : random_below(3) - 1);
    if (!tg_shape_broadcast(tg_graph_node(s->g, a)->shape, tg_graph_node(s->g, b)->shape, &out)) return;
    if (random_below(2) == 0) {
        int32_t turn = a;
        a = b;
        b = turn;
    }
    bool fixed = dtype == TG_F32 && is_fixed(s->g, a) && is_fixed(s->g, b);
    if (fixed) keep(s, tg_ir_binary(s->g, ops[4 + random_below(6)], a, b));
    else if (dtype == TG_F32 && !is_fixed(s->g, a) && random_below(12) == 0)
        keep(s, tg_ir_binary(s->g, TG_OP_POW, a, tg_ir_const(s->g, TG_SCALAR, TG_F32, (const double[]){-1, 1, 2, 3}[random_below(4)])));
    else keep(s, tg_ir_binary(s->g, dtype == TG_BOOL ? logic[random_below(4)] : ops[random_below(10)], a, b));
}

static void add_select(generator *s) {
    tg_dtype dtype = (tg_dtype)(random_below(4) == 0 ? 1 + random_below(2) : 0);
    int32_t c = pick(s, TG_BOOL), a = pick(s, dtype), b = pick(s, dtype);
    tg_shape out;
    if (!tg_shape_broadcast(tg_graph_node(s->g, a)->shape, tg_graph_node(s->g, b)->shape, &out)) return;
    if (!tg_shape_broadcast(tg_graph_node(s->g, c)->shape, out, &out)) return;
    keep(s, tg_ir_select(s->g, c, a, b));
}

static void add_reduce(generator *s) {
    static const tg_op ops[] = {TG_OP_SUM, TG_OP_REDUCE_MAX, TG_OP_REDUCE_MIN, TG_OP_ARGMAX, TG_OP_ARGMIN};
    int32_t x = pick(s, (tg_dtype)(random_below(6) == 0));
    tg_shape shape = tg_graph_node(s->g, x)->shape;
    if (shape.rank == 0) return;
    tg_op op = ops[random_below(5)];
    uint32_t axes = 1 + (uint32_t)random_below((1 << shape.rank) - 1);
    int64_t reduced = 1;
    for (int i = 0; i < shape.rank; i++)
        if (axes >> i & 1u) reduced *= shape.dim[i];
    /* the sum of one -0 is -0 after the passes, 0 in the reference, which starts from 0: not compared */
    if (op != TG_OP_SUM || reduced > 1) keep(s, tg_ir_reduce(s->g, op, x, axes));
}

static tg_shape random_reshape(tg_shape from) {
    tg_shape to = from;
    int64_t count = tg_shape_count(from);
    int kind = random_below(4);
    if (kind == 0) to = tg_shape_make(1, &count);
    if (kind == 1 && from.rank >= 2) { /* merge two axes */
        int at = random_below(from.rank - 1);
        to.dim[at] *= to.dim[at + 1];
        for (int i = at + 1; i + 1 < from.rank; i++) to.dim[i] = from.dim[i + 1];
        to.rank--;
    }
    if (kind == 2 && from.rank < 6) { /* insert an axis of 1 */
        int at = random_below(from.rank + 1);
        for (int i = from.rank; i > at; i--) to.dim[i] = from.dim[i - 1];
        to.dim[at] = 1;
        to.rank++;
    }
    if (kind == 3) { /* drop the axes of 1 */
        to.rank = 0;
        for (int i = 0; i < from.rank; i++)
            if (from.dim[i] != 1) to.dim[to.rank++] = from.dim[i];
    }
    return to;
}

static void add_view(generator *s) {
    int32_t x = pick(s, (tg_dtype)(random_below(5) == 0 ? 1 + random_below(2) : 0));
    tg_shape shape = tg_graph_node(s->g, x)->shape, to = shape;
    int64_t start[TG_MAX_RANK] = {0};
    int32_t perm[TG_MAX_RANK];
    switch (random_below(6)) {
    case 0: keep(s, tg_ir_reshape(s->g, x, random_reshape(shape))); break;
    case 1:
        for (int i = 0; i < shape.rank; i++) perm[i] = i;
        for (int i = shape.rank - 1; i > 0; i--) {
            int k = random_below(i + 1);
            int32_t moved = perm[i];
            perm[i] = perm[k];
            perm[k] = moved;
        }
        keep(s, tg_ir_permute(s->g, x, perm));
        break;
    case 2:
        for (int i = 0; i < shape.rank; i++)
            if (shape.dim[i] == 1) to.dim[i] = 1 + random_below(3);
        keep(s, tg_ir_broadcast(s->g, x, to));
        break;
    case 3:
        for (int i = 0; i < shape.rank; i++) {
            to.dim[i] = 1 + random_below((int)shape.dim[i]);
            start[i] = random_below((int)(shape.dim[i] - to.dim[i] + 1));
        }
        keep(s, tg_ir_slice(s->g, x, start, to));
        break;
    case 4:
        for (int i = 0; i < shape.rank; i++) {
            start[i] = random_below(3);
            to.dim[i] = shape.dim[i] + start[i] + random_below(2);
        }
        keep(s, tg_ir_pad(s->g, x, start, to));
        break;
    default: keep(s, tg_ir_flip(s->g, x, (uint32_t)random_below(1 << shape.rank))); break;
    }
}

static void add_other(generator *s) {
    int32_t x = pick(s, TG_F32), y = pick(s, TG_F32);
    tg_shape a = tg_graph_node(s->g, x)->shape, b = tg_graph_node(s->g, y)->shape;
    int kind = random_below(4);
    if (kind == 0 && a.rank > 0 && a.rank == b.rank) {
        int axis = random_below(a.rank);
        for (int i = 0; i < a.rank; i++)
            if (i != axis && a.dim[i] != b.dim[i]) return;
        int32_t parts[2] = {x, y};
        keep(s, tg_ir_concat(s->g, parts, 1 + random_below(2), axis));
    } else if (kind == 1) {
        int64_t offsets[2] = {random_below(3), 0};
        offsets[1] = offsets[0] + tg_shape_count(a) + random_below(2);
        int32_t parts[2] = {x, y};
        keep(s, tg_ir_pack(s->g, parts, offsets, 2, offsets[1] + tg_shape_count(b) + random_below(2)));
    } else if (kind == 2 && a.rank == 3) {
        const int32_t turn[3] = {0, 2, 1};
        keep(s, tg_ir_contract(s->g, x, tg_ir_permute(s->g, x, turn)));
    } else if (kind == 3) keep(s, tg_ir_cast(s->g, pick(s, (tg_dtype)random_below(3)), (tg_dtype)random_below(3)));
}

static tg_graph *random_graph(uint64_t seed, tg_context **ctx) {
    generator s = {graph_make(ctx), {0}, 0};
    pass_random.state = seed;
    s.g->current_site = TG_SITE;
    keep(&s, tg_ir_input(s.g, "f", TG_SHAPE(2, 3), TG_F32));
    keep(&s, tg_ir_input(s.g, "i", TG_SHAPE(3), TG_I32));
    keep(&s, tg_ir_input(s.g, "b", TG_SHAPE(2, 1), TG_BOOL));
    for (int i = 0; i < 5; i++) add_leaf(&s, i);
    int steps = 10 + random_below(60);
    for (int i = 0; i < steps; i++) {
        switch (random_below(8)) {
        case 0:
        case 1: add_unary(&s); break;
        case 2:
        case 3: add_binary(&s); break;
        case 4: add_select(&s); break;
        case 5: random_below(2) ? add_reduce(&s) : add_other(&s); break;
        default: add_view(&s); break;
        }
    }
    s.g->result = s.nodes[s.count - 1];
    for (int i = 0; i < 6 && i < s.count; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        tg_capture_info capture = {tg_arena_text(&s.g->arena, name), s.nodes[s.count - 1 - random_below(s.count < 30 ? s.count : 30)]};
        assert_true(tg_grow(*ctx, (void **)&s.g->captures.items, &s.g->captures.capacity, s.g->captures.count + 1, sizeof capture));
        s.g->captures.items[s.g->captures.count++] = capture;
    }
    return s.g;
}

static void test_random(void **state) {
    const char *rounds = getenv("TG_PASS_ROUNDS"), *first = getenv("TG_TEST_SEED");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1, end = seed + (rounds != NULL ? strtoull(rounds, NULL, 10) : 1500);
    (void)state;
    for (; seed < end; seed++) {
        tg_context *ctx;
        tg_graph *g = random_graph(seed, &ctx);
        evaluation before = evaluate(g);
        if (first != NULL) print_whole(g);
        run_passes(g);
        if (first != NULL) print_whole(g);
        evaluation after = evaluate(g);
        check_same(seed, &before, &after);
        char *once = print_graph(g);
        run_passes(g);
        char *twice = print_graph(g);
        if (strcmp(once, twice) != 0) fail_msg("seed %llu: not idempotent:\n%s\nthen\n%s", (unsigned long long)seed, once, twice);
        free(once);
        free(twice);
        evaluation_free(&before);
        evaluation_free(&after);
        assert_int_equal(count_op(g, TG_OP_STOP_GRADIENT), 0);
        graph_free(g);
    }
}

/* ---------------------------------------------------------------- rewrites that must, and must not, happen */

typedef struct small {
    tg_context *ctx;
    tg_graph *g;
    int32_t x;
} small;

static small small_make(tg_dtype dtype) {
    small s;
    s.g = graph_make(&s.ctx);
    s.x = tg_ir_input(s.g, "x", TG_SHAPE(2, 3), dtype);
    return s;
}

static int32_t number(small *s, double value) { return tg_ir_const(s->g, TG_SCALAR, tg_graph_node(s->g, s->x)->dtype, value); }

/* Runs the passes with `root` as the result and says what op it became. */
static tg_op becomes(small *s, int32_t root) {
    assert_true(root > 0);
    s->g->result = root;
    run_passes(s->g);
    tg_op op = result_node(s->g)->op;
    graph_free(s->g);
    return op;
}

#define BECOMES(dtype, expression, op) \
  do { \
    small s = small_make(dtype); \
    tg_graph *g = s.g; \
    int32_t x = s.x; \
    (void)g; \
    (void)x; \
    assert_int_equal(becomes(&s, (expression)), (op)); \
  } while (0)
#define BIN(op, a, b) tg_ir_binary(g, TG_OP_##op, a, b)
#define UN(op, a) tg_ir_unary(g, TG_OP_##op, a)

static void test_identities(void **state) {
    (void)state;
    BECOMES(TG_F32, BIN(MUL, x, number(&s, 1)), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(MUL, number(&s, 1), x), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(DIV, x, number(&s, 1)), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(SUB, x, number(&s, 0)), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(ADD, x, number(&s, -0.0)), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(MUL, x, number(&s, -1)), TG_OP_NEG);
    BECOMES(TG_F32, BIN(DIV, x, number(&s, 256)), TG_OP_MUL);
    BECOMES(TG_F32, BIN(POW, x, number(&s, 2)), TG_OP_MUL);
    BECOMES(TG_F32, BIN(POW, x, number(&s, 0)), TG_OP_CONST);
    BECOMES(TG_F32, UN(NEG, UN(NEG, x)), TG_OP_INPUT);
    BECOMES(TG_F32, BIN(ADD, x, UN(NEG, UN(EXP, x))), TG_OP_SUB);
    BECOMES(TG_F32, UN(STOP_GRADIENT, x), TG_OP_INPUT);
    BECOMES(TG_F32, UN(NEG, BIN(MUL, UN(NEG, x), UN(EXP, x))), TG_OP_MUL);
    BECOMES(TG_F32, tg_ir_select(g, tg_ir_const(g, TG_SCALAR, TG_BOOL, 1), x, UN(EXP, x)), TG_OP_INPUT);
    BECOMES(TG_F32, tg_ir_select(g, UN(NOT, BIN(LESS, x, x)), x, UN(EXP, x)), TG_OP_INPUT);
    BECOMES(TG_I32, BIN(ADD, x, number(&s, 0)), TG_OP_INPUT);
    BECOMES(TG_I32, BIN(MUL, x, number(&s, 0)), TG_OP_CONST);
    BECOMES(TG_I32, BIN(EQUAL, x, x), TG_OP_CONST);
    BECOMES(TG_BOOL, BIN(AND, x, number(&s, 1)), TG_OP_INPUT);
    BECOMES(TG_BOOL, BIN(OR, x, number(&s, 1)), TG_OP_CONST);
    BECOMES(TG_BOOL, tg_ir_cast(g, tg_ir_cast(g, x, TG_F32), TG_BOOL), TG_OP_INPUT);
}

static void test_kept(void **state) {
    (void)state;
    BECOMES(TG_F32, BIN(ADD, x, number(&s, 0)), TG_OP_ADD); /* -0 + 0 is 0 */
    BECOMES(TG_F32, BIN(SUB, x, number(&s, -0.0)), TG_OP_SUB);
    BECOMES(TG_F32, BIN(MUL, x, number(&s, 0)), TG_OP_MUL); /* NaN, infinity, -0 */
    BECOMES(TG_F32, BIN(SUB, x, x), TG_OP_SUB);
    BECOMES(TG_F32, BIN(DIV, x, x), TG_OP_DIV);
    BECOMES(TG_F32, BIN(NOT_EQUAL, x, x), TG_OP_NOT_EQUAL); /* the test for NaN (fault 14) */
    BECOMES(TG_F32, BIN(EQUAL, x, x), TG_OP_EQUAL);
    BECOMES(TG_F32, BIN(DIV, x, number(&s, 3)), TG_OP_DIV);
    BECOMES(TG_F32, BIN(SUB, number(&s, 0), x), TG_OP_SUB);
    BECOMES(TG_I32, BIN(DIV, x, number(&s, 2)), TG_OP_DIV); /* fault 12 */
    BECOMES(TG_I32, BIN(DIV, x, x), TG_OP_DIV);
    BECOMES(TG_F32, tg_ir_select(g, BIN(LESS_EQUAL, x, UN(EXP, x)), x, UN(EXP, x)), TG_OP_SELECT); /* B41 */
    BECOMES(TG_F32, tg_ir_reduce(g, TG_OP_SUM, tg_ir_const(g, TG_SHAPE(10), TG_F32, 0.1), 1), TG_OP_SUM);
}

static double folded(tg_dtype dtype, tg_op op, double a, double b) {
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    int32_t x = tg_ir_const(g, TG_SHAPE(2, 2), dtype, a);
    g->result = b != b ? tg_ir_unary(g, op, x) : tg_ir_binary(g, op, x, tg_ir_const(g, TG_SCALAR, dtype, b));
    run_passes(g);
    assert_int_equal(result_node(g)->op, TG_OP_CONST);
    double value = result_node(g)->attr.value;
    graph_free(g);
    return value;
}

static void test_fold(void **state) {
    (void)state;
    assert_true(folded(TG_I32, TG_OP_DIV, 7, 2) == 3);
    assert_true(folded(TG_I32, TG_OP_DIV, -7, 2) == -3);
    assert_true(folded(TG_I32, TG_OP_DIV, 7, 0) == 0);
    assert_true(folded(TG_I32, TG_OP_ADD, 2147483647, 1) == -2147483648.0);
    assert_true(folded(TG_I32, TG_OP_DIV, -2147483648.0, -1) == -2147483648.0);
    assert_true(folded(TG_I32, TG_OP_NEG, -2147483648.0, NAN) == -2147483648.0);
    assert_true(folded(TG_F32, TG_OP_ADD, 1, 1e-9) == 1);
    assert_true(folded(TG_F32, TG_OP_DIV, 1, 3) == (double)(1.0f / 3.0f));
    assert_true(folded(TG_F32, TG_OP_MUL, 3e38, 10) == INFINITY);
    assert_true(folded(TG_F32, TG_OP_POW, 0, 0) == 1);
    assert_true(isnan(folded(TG_F32, TG_OP_MIN, NAN, 2)));
    assert_true(isnan(folded(TG_F32, TG_OP_RELU, NAN, NAN)));
    assert_true(folded(TG_F32, TG_OP_SIGMOID, -1000, NAN) == 0);
    assert_true(folded(TG_F32, TG_OP_LESS, 1, 2) == 1);
}

static void test_views(void **state) {
    const int32_t turn[2] = {1, 0};
    const int64_t start[2] = {0, 1}, before[2] = {1, 2};
    (void)state;
    BECOMES(TG_F32, tg_ir_permute(g, tg_ir_permute(g, x, turn), turn), TG_OP_INPUT);
    BECOMES(TG_F32, tg_ir_reshape(g, tg_ir_reshape(g, x, TG_SHAPE(6)), TG_SHAPE(2, 3)), TG_OP_INPUT);
    BECOMES(TG_F32, tg_ir_flip(g, tg_ir_flip(g, x, 3), 3), TG_OP_INPUT);
    BECOMES(TG_F32, tg_ir_slice(g, tg_ir_pad(g, x, before, TG_SHAPE(4, 6)), before, TG_SHAPE(2, 3)), TG_OP_INPUT);
    BECOMES(TG_F32, tg_ir_slice(g, tg_ir_pad(g, x, before, TG_SHAPE(4, 6)), start, TG_SHAPE(1, 3)), TG_OP_CONST);
    BECOMES(TG_F32, tg_ir_permute(g, tg_ir_reshape(g, x, TG_SHAPE(6, 1)), turn), TG_OP_RESHAPE);
    BECOMES(TG_F32, tg_ir_reduce(g, TG_OP_SUM, tg_ir_reshape(g, x, TG_SHAPE(6, 1)), 2), TG_OP_RESHAPE);
    BECOMES(TG_F32, UN(EXP, tg_ir_broadcast(g, x, TG_SHAPE(5, 2, 3))), TG_OP_BROADCAST);
    BECOMES(TG_F32, tg_ir_reshape(g, tg_ir_broadcast(g, x, TG_SHAPE(5, 4, 2, 3)), TG_SHAPE(20, 6)), TG_OP_BROADCAST);
    BECOMES(TG_F32, tg_ir_concat(g, &x, 1, 0), TG_OP_INPUT);
    /* attention: split heads after merge heads is nothing at all */
    const int32_t heads[4] = {0, 2, 1, 3};
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    int32_t x = tg_ir_input(g, "x", TG_SHAPE(2, 4, 8, 16), TG_F32);
    int32_t merged = tg_ir_reshape(g, tg_ir_permute(g, x, heads), TG_SHAPE(2, 8, 64));
    g->result = tg_ir_permute(g, tg_ir_reshape(g, merged, TG_SHAPE(2, 8, 4, 16)), heads);
    run_passes(g);
    assert_int_equal(result_node(g)->op, TG_OP_INPUT);
    assert_int_equal(g->nodes.count, 2);
    graph_free(g);
}

/* Work is done once per distinct value: sqrt of a [4, 1] repeated to [4, 1000] takes 4 roots. */
static void test_lift(void **state) {
    (void)state;
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    int32_t x = tg_ir_input(g, "x", TG_SHAPE(4, 1), TG_F32), w = tg_ir_input(g, "w", TG_SHAPE(4, 1000), TG_F32);
    int32_t wide = tg_ir_broadcast(g, x, TG_SHAPE(4, 1000));
    int32_t sum = tg_ir_binary(g, TG_OP_ADD, wide, tg_ir_const(g, TG_SCALAR, TG_F32, 1e-5));
    g->result = tg_ir_binary(g, TG_OP_MUL, w, tg_ir_unary(g, TG_OP_RSQRT, sum));
    run_passes(g);
    for (int64_t id = 1; id < g->nodes.count; id++)
        if (g->nodes.items[id].op == TG_OP_RSQRT || g->nodes.items[id].op == TG_OP_ADD)
            assert_int_equal(tg_shape_count(g->nodes.items[id].shape), 4);
    assert_int_equal(count_op(g, TG_OP_RSQRT), 1);
    graph_free(g);
}

static void test_common(void **state) {
    (void)state;
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    int32_t x = tg_ir_input(g, "x", TG_SHAPE(3), TG_F32), y = tg_ir_input(g, "y", TG_SHAPE(3), TG_F32);
    int32_t s = tg_ir_state(g, "s", TG_SHAPE(3), TG_F32, 0), t = tg_ir_state(g, "t", TG_SHAPE(3), TG_F32, 0);
    int32_t a = tg_ir_binary(g, TG_OP_MUL, x, y), b = tg_ir_binary(g, TG_OP_MUL, y, x); /* the same product */
    int32_t c = tg_ir_binary(g, TG_OP_SUB, x, y), d = tg_ir_binary(g, TG_OP_SUB, y, x); /* not the same difference */
    int32_t e = tg_ir_binary(g, TG_OP_ADD, s, t);                                       /* two states with equal table values */
    int32_t one = tg_ir_const(g, TG_SHAPE(3), TG_F32, 0.0), other = tg_ir_const(g, TG_SHAPE(3), TG_F32, -0.0);
    int32_t f = tg_ir_binary(g, TG_OP_DIV, x, one), h = tg_ir_binary(g, TG_OP_DIV, x, other);
    int32_t parts[6] = {a, b, c, d, f, h};
    g->result = tg_ir_binary(g, TG_OP_DIV, tg_ir_concat(g, parts, 6, 0), tg_ir_concat(g, (int32_t[]){e, e, e, e, e, e}, 6, 0));
    assert_true(tg_ir_writeback(g, s, t) && tg_ir_writeback(g, t, s));
    run_passes(g);
    const tg_node *joined = tg_graph_node(g, result_node(g)->inputs[0]);
    assert_int_equal(joined->op, TG_OP_CONCAT);
    assert_int_equal(joined->inputs[0], joined->inputs[1]);
    assert_int_not_equal(joined->inputs[2], joined->inputs[3]);
    assert_int_not_equal(joined->inputs[4], joined->inputs[5]);
    assert_int_equal(count_op(g, TG_OP_STATE), 2);
    assert_int_equal(g->writebacks.items[0].destination, g->writebacks.items[1].source);
    assert_int_not_equal(g->writebacks.items[0].destination, g->writebacks.items[1].destination);
    graph_free(g);
}

static void test_tables(void **state) {
    (void)state;
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    g->current_site = tg_site_make("user.c", 5);
    int32_t unused = tg_ir_input(g, "unused", TG_SHAPE(3), TG_F32), x = tg_ir_input(g, "x", TG_SHAPE(3), TG_I32);
    int32_t w = tg_ir_param(g, "w", TG_SHAPE(4, 2), (tg_init){.kind = TG_INIT_ZEROS}, false, false);
    int32_t dead = tg_ir_unary(g, TG_OP_EXP, unused);
    (void)tg_ir_unary(g, TG_OP_EXP, dead);
    g->current_site = tg_site_make("user.c", 8);
    int32_t rows = tg_ir_gather(g, w, tg_ir_binary(g, TG_OP_MUL, x, tg_ir_const(g, TG_SCALAR, TG_I32, 1)));
    g->nodes.items[rows].name = "embedding";
    assert_true(tg_ir_check_index(g, x, 0, 4, false, 0, "embedding"));
    tg_capture_info capture = {"rows", rows};
    assert_true(tg_grow(ctx, (void **)&g->captures.items, &g->captures.capacity, 1, sizeof capture));
    g->captures.items[g->captures.count++] = capture;
    g->result = tg_ir_const(g, TG_SCALAR, TG_F32, 2);
    run_passes(g);
    assert_int_equal(count_op(g, TG_OP_EXP), 0);
    assert_int_equal(g->inputs.count, 2); /* it is still fed */
    assert_int_equal(tg_graph_node(g, g->inputs.items[0].node)->op, TG_OP_INPUT);
    const tg_node *kept = tg_graph_node(g, g->captures.items[0].node);
    assert_int_equal(kept->op, TG_OP_GATHER);
    assert_string_equal(kept->name, "embedding");
    assert_int_equal(kept->site.line, 8);
    assert_string_equal(kept->site.file, "user.c");
    assert_int_equal(tg_graph_node(g, g->checks.items[0].node)->op, TG_OP_INPUT);
    assert_int_equal(tg_pass_run(g, false), TG_OK); /* captures cost nothing unless asked for */
    assert_int_equal(count_op(g, TG_OP_GATHER), 0);
    assert_int_equal(g->captures.count, 0);
    assert_int_equal(g->params.count, 1);
    assert_int_equal(tg_graph_verify(g), TG_OK);
    graph_free(g);
}

/* ---------------------------------------------------------------- cost, allocation */

static double seconds_for(int length) {
    tg_context *ctx;
    tg_graph *g = graph_make(&ctx);
    int32_t x = tg_ir_input(g, "x", TG_SHAPE(2, 3), TG_F32), y = x;
    for (int i = 0; i < length; i++) y = tg_ir_binary(g, TG_OP_ADD, tg_ir_unary(g, TG_OP_SIN, y), tg_ir_const(g, TG_SCALAR, TG_F32, i));
    g->result = y;
    clock_t begin = clock();
    run_passes(g);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    graph_free(g);
    return seconds;
}

static void test_linear(void **state) {
    (void)state;
    double one = 1e9, many = 1e9;
    for (int i = 0; i < 3; i++) {
        double small_time = seconds_for(1000), large_time = seconds_for(16000);
        if (small_time < one) one = small_time;
        if (large_time < many) many = large_time;
    }
    if (many > 16 * 6 * (one + 0.001)) fail_msg("16 times the nodes take %.1f times as long", many / one);
}

static void test_allocation(void **state) {
    (void)state;
    for (int64_t n = 1; n < 200; n++) {
        support_allocator f = {0};
        tg_context *ctx = support_context_counting(&f);
        tg_graph *g = tg_graph_create(ctx);
        int32_t x = tg_ir_input(g, "x", TG_SHAPE(2, 3), TG_F32), y = x;
        for (int i = 0; i < 150; i++) y = tg_ir_binary(g, TG_OP_ADD, tg_ir_unary(g, TG_OP_SIN, y), tg_ir_const(g, TG_SCALAR, TG_F32, i));
        g->result = y;
        char *before = print_graph(g);
        f.calls = 0;
        f.fail_at = n;
        tg_status status = tg_pass_run(g, true);
        bool failed = f.calls >= n;
        f.fail_at = 0;
        assert_int_equal(status, failed ? TG_ERROR_MEMORY : TG_OK);
        char *after = print_graph(g);
        if (failed) assert_string_equal(before, after); /* the graph is as it was */
        free(before);
        free(after);
        tg_graph_destroy(g);
        assert_int_equal(ctx->live_blocks, 0);
        tg_context_destroy(ctx);
        if (!failed) return;
    }
    fail_msg("never ran out of allocations to fail");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities), cmocka_unit_test(test_kept),       cmocka_unit_test(test_fold),   cmocka_unit_test(test_views),
        cmocka_unit_test(test_lift),       cmocka_unit_test(test_common),     cmocka_unit_test(test_tables), cmocka_unit_test(test_random),
        cmocka_unit_test(test_linear),     cmocka_unit_test(test_allocation),
    };
    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
