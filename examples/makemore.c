/* makemore: reads first names and makes up new ones, one letter at a time.
 *
 * A network of embedded letters and one hidden layer (Bengio et al. 2003) sees the last eight
 * letters and predicts the next. In training, dropout hides a fifth of the hidden layer. One name
 * in ten is kept out of training: its letters show how well the network guesses names that it has
 * not seen. It shows the made-up names that are in neither part.
 *
 *   letters [B, 8] -> embedding [B, 8, 24] -> hidden [B, 256], tanh -> dropout
 *   -> logits [B, 27]   27: the end, and a to z */
#include "data.h"
#include "examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 128, TEST_BATCH = 256, CONTEXT = 8, LETTERS = 27, WIDTH = 24, HIDDEN = 256, STEPS = 3000 };
enum { END = 0 }; /* before a name, and after it; a is 1 */

/* ---------------------------------------------------------------- the model */

/* letters i32 [B, CONTEXT] -> logits [B, LETTERS]. */
static tg_tensor network(tg_graph *g, tg_tensor letters, int64_t batch, double dropout) {
    tg_tensor table = tg_param(g, "embedding", TG_SHAPE(LETTERS, WIDTH), .init = tg_init_randn(0.3));
    tg_linear hidden = tg_nn_linear(g, "hidden", CONTEXT * WIDTH, HIDDEN, .init = tg_init_kaiming(1));
    tg_linear output = tg_nn_linear(g, "output", HIDDEN, LETTERS, .init = tg_init_kaiming(0.3));
    tg_tensor x = tg_reshape(tg_embedding(table, letters), TG_SHAPE(batch, CONTEXT * WIDTH));
    return tg_nn_linear_fwd(output, tg_dropout(tg_tanh(tg_nn_linear_fwd(hidden, x)), dropout));
}

tg_tensor makemore_loss(tg_graph *g, void *user) {
    const int64_t rows = user != NULL ? *(const int64_t *)user : BATCH;
    tg_tensor letters = tg_input(g, "letters", TG_SHAPE(rows, CONTEXT), TG_I32);
    tg_tensor next = tg_input(g, "next", TG_SHAPE(rows), TG_I32);
    return tg_nn_cross_entropy(network(g, letters, rows, 0.2), next, -1);
}

/* Logarithms of the probabilities of the next letter, [TEST_BATCH, LETTERS]. */
tg_tensor makemore_forward(tg_graph *g, void *user) {
    (void)user;
    tg_tensor letters = tg_input(g, "letters", TG_SHAPE(TEST_BATCH, CONTEXT), TG_I32);
    return tg_log_softmax_last(network(g, letters, TEST_BATCH, 0));
}

tg_optimizer makemore_optimizer(void) { return tg_adam(.lr = tg_lr_cosine_decay(0.003, 0.0001, STEPS), .weight_decay = 0.01); }

/* ---------------------------------------------------------------- the data */

/* A letter of a name, and the text of all names. letters[at - CONTEXT .. at) are the letters before
 * it, of this name only. */
typedef struct place {
    int32_t name, letter; /* number of the name, position in it; END comes after the last letter */
} place;
static struct {
    char *text; /* the file, a 0 after each name */
    const char **names;
    /* positions of letters; train has room for all, held_out comes after it */
    place *train, *held_out;
    int64_t name_count, train_count, held_out_count;
} data;

static bool held_out(int32_t name) { return tg_example_random(0, 17, (uint64_t)name) % 10 == 0; }

/* Splits the text into names. false: it holds something else. */
static bool split_names(size_t size) {
    int64_t lines = 0, letters = 0;
    for (size_t i = 0; i < size; i++) {
        char c = data.text[i];
        if (c == '\n') lines++;
        else if (c < 'a' || c > 'z') return false;
        letters++;
    }
    if (lines < 10 || data.text[size - 1] != '\n') return false;
    data.names = calloc((size_t)lines, sizeof *data.names);
    data.train = calloc((size_t)letters, sizeof *data.train);
    if (data.names == NULL || data.train == NULL) return false;
    for (char *at = data.text; data.name_count < lines; at = strchr(at, 0) + 1) {
        *strchr(at, '\n') = 0;
        data.names[data.name_count++] = at;
    }
    return true;
}

/* Appends the positions of one part to those already there; returns how many. */
static int64_t add_places(place *to, bool wanted) {
    int64_t count = 0;
    for (int32_t name = 0; name < data.name_count; name++)
        for (int32_t i = 0; held_out(name) == wanted && i <= (int32_t)strlen(data.names[name]); i++) to[count++] = (place){name, i};
    return count;
}

const char *makemore_load(const char *folder) {
    const char *problem = NULL;
    size_t size = 0;
    if (data.train_count > 0) return NULL;
    data.text = (char *)tg_example_read(folder, "names.txt", &size, &problem);
    if (data.text == NULL) return problem;
    bool good = split_names(size);
    if (good) {
        data.train_count = add_places(data.train, false);
        data.held_out = data.train + data.train_count;
        data.held_out_count = add_places(data.held_out, true);
        good = data.train_count > 0 && data.held_out_count > 0;
    }
    if (good) return NULL;
    free(data.text);
    free(data.names);
    free(data.train);
    memset(&data, 0, sizeof data);
    return "names.txt does not hold names of the letters a to z, one a line, or too few of them";
}

/* The letter at the position; END after the last. */
static int32_t letter_at(place at) {
    char c = data.names[at.name][at.letter];
    return c == 0 ? END : c - 'a' + 1;
}

/* What is seen there: the letters before, END where the name has not begun. */
static void read_context(place at, int32_t *letters) {
    for (int32_t i = 0; i < CONTEXT; i++) {
        int32_t from = at.letter - CONTEXT + i;
        letters[i] = from < 0 ? END : letter_at((place){at.name, from});
    }
}

void makemore_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    int32_t *letters = arrays[0], *next = arrays[1];
    for (int64_t row = 0; row < rows; row++) {
        place at = data.train[tg_example_random(seed, (uint64_t)t, (uint64_t)row) % (uint64_t)data.train_count];
        read_context(at, letters + (size_t)row * CONTEXT);
        next[row] = letter_at(at);
    }
}

/* ---------------------------------------------------------------- loss on names kept out, and new
 * names */

static tg_status held_out_loss(tg_model *forward, double *loss) {
    int32_t letters[TEST_BATCH][CONTEXT];
    static float log_p[TEST_BATCH][LETTERS];
    tg_feed feed = tg_feed_i32("letters", &letters[0][0], TEST_BATCH * CONTEXT);
    double sum = 0;
    for (int64_t first = 0; first < data.held_out_count; first += TEST_BATCH) {
        int64_t rows = data.held_out_count - first < TEST_BATCH ? data.held_out_count - first : TEST_BATCH;
        for (int64_t row = 0; row < TEST_BATCH; row++) read_context(data.held_out[row < rows ? first + row : 0], letters[row]);
        tg_status status = tg_run(forward, &feed, 1, log_p, TEST_BATCH * LETTERS);
        if (status != TG_OK) return status;
        for (int64_t row = 0; row < rows; row++) sum -= (double)log_p[row][letter_at(data.held_out[first + row])];
    }
    *loss = sum / (double)data.held_out_count;
    return TG_OK;
}

/* A letter by its probability; share in [0, 1). */
static int32_t choose(const float *log_p, double share) {
    for (int32_t letter = 0; letter < LETTERS - 1; letter++) {
        share -= exp((double)log_p[letter]);
        if (share < 0) return letter;
    }
    return LETTERS - 1;
}

/* Draws TEST_BATCH names at once, up to 15 letters each. */
static tg_status make_names(tg_model *forward, uint64_t seed, char names[TEST_BATCH][16]) {
    int32_t letters[TEST_BATCH][CONTEXT] = {{0}};
    static float log_p[TEST_BATCH][LETTERS];
    bool ended[TEST_BATCH] = {false};
    tg_feed feed = tg_feed_i32("letters", &letters[0][0], TEST_BATCH * CONTEXT);
    memset(names, 0, sizeof(char[TEST_BATCH][16]));
    for (int i = 0; i < 15; i++) {
        tg_status status = tg_run(forward, &feed, 1, log_p, TEST_BATCH * LETTERS);
        if (status != TG_OK) return status;
        for (int row = 0; row < TEST_BATCH; row++) {
            double share = (double)(tg_example_random(seed, 1u << 30, (uint64_t)(row * 16 + i)) >> 11) / 9007199254740992.0;
            int32_t letter = choose(log_p[row], share);
            ended[row] = ended[row] || letter == END;
            if (!ended[row]) names[row][i] = (char)('a' + letter - 1);
            memmove(letters[row], letters[row] + 1, sizeof(int32_t[CONTEXT - 1]));
            letters[row][CONTEXT - 1] = ended[row] ? END : letter;
        }
    }
    return TG_OK;
}

static bool is_known(const char *name) {
    for (int64_t i = 0; i < data.name_count; i++)
        if (strcmp(data.names[i], name) == 0) return true;
    return false;
}

tg_status makemore_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score) {
    static char names[TEST_BATCH][16];
    tg_status status = held_out_loss(forward, score);
    if (status == TG_OK && out != NULL) status = make_names(forward, seed, names);
    if (status != TG_OK || out == NULL) return status;
    int known = 0, shown = 0;
    fprintf(out, "made up:");
    for (int row = 0; row < TEST_BATCH; row++) {
        bool seen = is_known(names[row]);
        known += seen;
        if (!seen && shown < 20) fprintf(out, "%s%s", shown++ == 0 ? " " : ", ", names[row]);
    }
    fprintf(out, "\nof %d names drawn %d are real ones; loss on names kept out: %.3f a letter (guessing blindly: %.3f)\n", TEST_BATCH,
            known, *score, log((double)LETTERS));
    return TG_OK;
}

/* ---------------------------------------------------------------- as a program of its own */

#ifdef TG_EXAMPLE_MAIN
static int fail(const tg_context *ctx) {
    tg_site site = tg_error_site(ctx);
    fprintf(stderr, "%s:%d: %s\n", site.file, site.line, tg_error_message(ctx));
    return 1;
}

int main(int argc, char **argv) {
    const char *problem = makemore_load(argc > 1 ? argv[1] : NULL);
    if (problem != NULL) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    tg_compile_options options = {.optimizer = makemore_optimizer(), .seed = 1};
    tg_model *model = tg_compile(ctx, makemore_loss, NULL, &options);
    tg_model *forward = model != NULL ? tg_compile_sibling(model, makemore_forward, NULL) : NULL;
    if (forward == NULL) return fail(ctx);

    int32_t letters[BATCH * CONTEXT], next[BATCH];
    float loss = 0;
    double held_out = 0;
    void *arrays[] = {letters, next};
    tg_feed feeds[] = {tg_feed_i32("letters", letters, BATCH * CONTEXT), tg_feed_i32("next", next, BATCH)};
    for (int t = 1; t <= STEPS; t++) {
        makemore_batch(options.seed, t, BATCH, arrays);
        if (tg_step(model, feeds, 2, &loss) != TG_OK) return fail(ctx);
        if (t % 500 != 0) continue;
        if (makemore_evaluate(forward, options.seed, NULL, &held_out) != TG_OK) return fail(ctx);
        printf("step %4d  loss %.4f  of names kept out %.4f\n", t, (double)loss, held_out);
    }
    if (makemore_evaluate(forward, options.seed, stdout, &held_out) != TG_OK) return fail(ctx);
    tg_model_destroy(model); /* and its sibling */
    tg_context_destroy(ctx);
    return 0;
}
#endif
