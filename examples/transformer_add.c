/* transformer-add: a small transformer learns to add two-digit numbers, "ab+cd=efg", one character
 * at a time.
 *
 * The model sees the first eight of the nine characters and predicts, at each position, the next
 * one. Only the three digits of the sum count in the loss: nobody can foresee the question. 1,000
 * of the 10,000 sums are kept out of training. At the end they show whether the model has learned
 * to add or only to remember.
 *
 *   tokens [B, 8] -> token + position embedding [B, 8, 64]
 *     3 x { x + attention(LayerNorm(x)), x + MLP(LayerNorm(x)) }   4 heads of 16; ReLU, 64-256-64
 *   -> LayerNorm -> logits [B, 8, 12] by the token embedding once more (tied head) */
#include "data.h"
#include "examples.h"

#include <math.h>
#include <string.h>

enum { BATCH = 128, TEST_BATCH = 250, T = 8, VOCABULARY = 12, LAYERS = 3, D = 64, HEADS = 4 };
enum { PLUS = 10, EQUALS = 11 }; /* tokens; the digits are their own */
/* position of '=', which predicts the first digit of the sum */
enum { ANSWER = 5, ANSWER_DIGITS = 3 };
enum { IGNORE = -1 }; /* target of a position that does not count */
enum { SUMS = 10000, HELD_OUT = 1000 };
/* Large enough next to what the first layers add. With 0.02 the model learns half as fast, and the
 * rate of 0.005 makes the first steps so wild that rounding alone separates two runs. */
static const double EMBEDDING_STD = 0.2;

/* ---------------------------------------------------------------- the model */

/* x [B, T, D] -> [B, T, D]: every position gathers from itself and those before it. */
static tg_tensor attention(tg_graph *g, tg_tensor x, int layer) {
    tg_linear query = tg_nn_linear(g, "q", D, D), key = tg_nn_linear(g, "k", D, D);
    tg_linear value = tg_nn_linear(g, "v", D, D), output = tg_nn_linear(g, "o", D, D);
    tg_tensor q = tg_nn_split_heads(tg_nn_linear_fwd(query, x), HEADS); /* [B, H, T, d] */
    tg_tensor k = tg_nn_split_heads(tg_nn_linear_fwd(key, x), HEADS);
    tg_tensor v = tg_nn_split_heads(tg_nn_linear_fwd(value, x), HEADS);
    /* [B, H, T, T] */
    tg_tensor scores = tg_mul(tg_matmul_batched(q, tg_swap_axes(k, -1, -2)), 1 / sqrt((double)(D / HEADS)));
    char name[32];
    snprintf(name, sizeof name, "layers.%d.attn", layer);
    tg_tensor weights = tg_capture(name, tg_softmax_causal_last(scores));
    return tg_nn_linear_fwd(output, tg_nn_merge_heads(tg_matmul_batched(weights, v)));
}

static tg_tensor mlp(tg_graph *g, tg_tensor x) {
    tg_linear up = tg_nn_linear(g, "up", D, 4 * D), down = tg_nn_linear(g, "down", 4 * D, D);
    return tg_nn_linear_fwd(down, tg_relu(tg_nn_linear_fwd(up, x)));
}

static tg_tensor norm(tg_graph *g, const char *name, tg_tensor x) { return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, name, D), x); }

/* One layer. Its parameters are layers.0.ln1.g, layers.0.attn.q.W, layers.0.mlp.up.W, ... */
static tg_tensor block(tg_graph *g, tg_tensor x, int layer) {
    tg_scope_pushf(g, "layers.%d", layer);
    tg_tensor h = norm(g, "ln1", x);
    tg_scope_push(g, "attn");
    x = tg_add(x, attention(g, h, layer));
    tg_scope_pop(g);
    h = norm(g, "ln2", x);
    tg_scope_push(g, "mlp");
    x = tg_add(x, mlp(g, h));
    tg_scope_pop(g);
    tg_scope_pop(g);
    return x;
}

/* tokens i32 [B, T] -> logits [B, T, VOCABULARY]. */
static tg_tensor network(tg_graph *g, tg_tensor tokens) {
    tg_tensor token_table = tg_param(g, "tokenEmbedding", TG_SHAPE(VOCABULARY, D), .init = tg_init_randn(EMBEDDING_STD));
    tg_tensor position_table = tg_param(g, "positionEmbedding", TG_SHAPE(T, D), .init = tg_init_randn(EMBEDDING_STD));
    tg_tensor x = tg_add(tg_embedding(token_table, tokens), position_table);
    for (int layer = 0; layer < LAYERS; layer++) x = block(g, x, layer);
    return tg_matmul(norm(g, "lnFinal", x), tg_swap_axes(token_table, 0, 1));
}

tg_tensor transformer_add_loss(tg_graph *g, void *user) {
    const int64_t rows = user != NULL ? *(const int64_t *)user : BATCH;
    tg_tensor tokens = tg_input(g, "tokens", TG_SHAPE(rows, T), TG_I32);
    tg_tensor targets = tg_input(g, "targets", TG_SHAPE(rows, T), TG_I32);
    return tg_nn_cross_entropy(network(g, tokens), targets, IGNORE);
}

/* The likeliest next token at each position, i32 [TEST_BATCH, T]. */
tg_tensor transformer_add_forward(tg_graph *g, void *user) {
    (void)user;
    return tg_argmax(network(g, tg_input(g, "tokens", TG_SHAPE(TEST_BATCH, T), TG_I32)), -1);
}

tg_optimizer transformer_add_optimizer(void) { return tg_adam(.lr = tg_lr_linear_decay(0.005, 0.0005, 1500), .weight_decay = 0.01); }

/* ---------------------------------------------------------------- the data */

/* The sums 100 a + b in an order that depends on the seed: a Feistel network on the two halves, so
 * each sum comes once. The first HELD_OUT sums are for testing. */
static int sum_at(uint64_t seed, int place) {
    int a = place / 100, b = place % 100;
    for (uint64_t round = 0; round < 6; round++) {
        int mixed = (a + (int)(tg_example_random(seed, round, (uint64_t)b) % 100)) % 100;
        a = b;
        b = mixed;
    }
    return 100 * a + b;
}

/* "ab+cd=efg" as nine tokens. */
static void spell(int sum, int32_t text[T + 1]) {
    int a = sum / 100, b = sum % 100, total = a + b;
    const int32_t spelt[T + 1] = {a / 10, a % 10, PLUS, b / 10, b % 10, EQUALS, total / 100, total / 10 % 10, total % 10};
    memcpy(text, spelt, sizeof spelt);
}

void transformer_add_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    int32_t *tokens = arrays[0], *targets = arrays[1], text[T + 1];
    for (int64_t row = 0; row < rows; row++) {
        int place = HELD_OUT + (int)(tg_example_random(seed, (uint64_t)t + 1000, (uint64_t)row) % (SUMS - HELD_OUT));
        spell(sum_at(seed, place), text);
        for (int i = 0; i < T; i++) {
            tokens[row * T + i] = text[i];
            targets[row * T + i] = i >= ANSWER ? text[i + 1] : IGNORE;
        }
    }
}

/* ---------------------------------------------------------------- exact match on the held-out
 * sums */

/* Answers the questions of one test batch greedily: each digit is fed back before the next is asked
 * for. The positions after it hold zeros, which causal attention does not read. */
static tg_status answer(tg_model *forward, int32_t tokens[TEST_BATCH][T], int32_t digits[TEST_BATCH][ANSWER_DIGITS]) {
    static const int64_t count = TEST_BATCH * T;
    int32_t next[TEST_BATCH][T];
    tg_feed feed = tg_feed_i32("tokens", &tokens[0][0], count);
    for (int digit = 0; digit < ANSWER_DIGITS; digit++) {
        tg_status status = tg_run(forward, &feed, 1, next, count);
        if (status != TG_OK) return status;
        for (int row = 0; row < TEST_BATCH; row++) {
            digits[row][digit] = next[row][ANSWER + digit];
            if (ANSWER + digit + 1 < T) tokens[row][ANSWER + digit + 1] = digits[row][digit];
        }
    }
    return TG_OK;
}

static char character(int32_t token) { return "0123456789+="[token]; }

static void print_mistake(FILE *out, const int32_t text[T + 1], const int32_t digits[ANSWER_DIGITS]) {
    fputs("  wrong: ", out);
    for (int i = 0; i <= ANSWER; i++) fputc(character(text[i]), out);
    for (int i = 0; i < ANSWER_DIGITS; i++) fputc(character(digits[i]), out);
    fputc('\n', out);
}

tg_status transformer_add_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score) {
    int32_t tokens[TEST_BATCH][T], digits[TEST_BATCH][ANSWER_DIGITS], texts[TEST_BATCH][T + 1];
    int right = 0, shown = 0;
    for (int first = 0; first < HELD_OUT; first += TEST_BATCH) {
        for (int row = 0; row < TEST_BATCH; row++) {
            spell(sum_at(seed, first + row), texts[row]);
            for (int i = 0; i < T; i++) tokens[row][i] = i <= ANSWER ? texts[row][i] : 0;
        }
        tg_status status = answer(forward, tokens, digits);
        if (status != TG_OK) return status;
        for (int row = 0; row < TEST_BATCH; row++) {
            bool exact = memcmp(digits[row], &texts[row][ANSWER + 1], sizeof digits[row]) == 0;
            right += exact;
            if (!exact && out != NULL && shown++ < 3) print_mistake(out, texts[row], digits[row]);
        }
    }
    *score = (double)right / (double)HELD_OUT;
    if (out != NULL) fprintf(out, "held-out sums exactly right: %d of %d (%.1f %%)\n", right, HELD_OUT, 100 * *score);
    return TG_OK;
}

/* ---------------------------------------------------------------- as a program of its own */

#ifdef TG_EXAMPLE_MAIN
static int fail(const tg_context *ctx) {
    tg_site site = tg_error_site(ctx);
    fprintf(stderr, "%s:%d: %s\n", site.file, site.line, tg_error_message(ctx));
    return 1;
}

int main(void) {
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    tg_compile_options options = {.optimizer = transformer_add_optimizer(), .seed = 1};
    tg_model *model = tg_compile(ctx, transformer_add_loss, NULL, &options);
    tg_model *forward = model != NULL ? tg_compile_sibling(model, transformer_add_forward, NULL) : NULL;
    if (forward == NULL) return fail(ctx);

    int32_t tokens[BATCH * T], targets[BATCH * T];
    float loss = 0;
    void *arrays[] = {tokens, targets};
    tg_feed feeds[] = {tg_feed_i32("tokens", tokens, BATCH * T), tg_feed_i32("targets", targets, BATCH * T)};
    for (int t = 1; t <= 1500; t++) {
        transformer_add_batch(options.seed, t, BATCH, arrays);
        if (tg_step(model, feeds, 2, &loss) != TG_OK) return fail(ctx);
        if (t % 100 == 0) printf("step %4d  loss %.6f\n", t, (double)loss);
    }

    double exact = 0;
    if (transformer_add_evaluate(forward, options.seed, stdout, &exact) != TG_OK) return fail(ctx);
    tg_model_destroy(model); /* and its sibling */
    tg_context_destroy(ctx);
    return 0;
}
#endif
