/* char-gru: a recurrent network learns to write like a novel (Moby Dick), one character at a time.
 *
 * In training it reads 32 pieces of 32 characters side by side, from a state of zeros, and predicts
 * each next character. When it writes, it takes one character at a time and keeps its state: the
 * same parameters in another graph, a sibling.
 *
 *   characters [B, 32] -> embedding [B, 32, 32] -> GRU (Cho et al. 2014) [B, 32, 128]
 *   -> logits [B, 32, 96]
 *
 * The last tenth of the novel is kept out of training and shows how well the network guesses. At
 * the end it writes a few lines of its own. */
#include "data.h"
#include "examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, T = 32, WIDTH = 32, HIDDEN = 128, CHARACTERS = 96, STEPS = 1500 };
enum { STREAMS = 64, READ = 200, WARM_UP = 20, WRITTEN = 320 }; /* of the evaluation */
/* characters from ' ' to ' ' count from 0; then the end of a line */
enum { FIRST = ' ', NEWLINE = CHARACTERS - 1 };

/* ---------------------------------------------------------------- the model */

typedef struct network {
    tg_tensor embedding;
    tg_recurrent gru;
    tg_linear output;
} network;

static network make(tg_graph *g) {
    network net;
    net.embedding = tg_param(g, "embedding", TG_SHAPE(CHARACTERS, WIDTH), .init = tg_init_randn(0.3));
    net.gru = tg_nn_gru(g, "gru", WIDTH, HIDDEN);
    net.output = tg_nn_linear(g, "output", HIDDEN, CHARACTERS, .init = tg_init_kaiming(1));
    return net;
}

tg_tensor char_gru_loss(tg_graph *g, void *user) {
    const int64_t rows = user != NULL ? *(const int64_t *)user : BATCH;
    tg_tensor text = tg_input(g, "text", TG_SHAPE(rows, T), TG_I32), next = tg_input(g, "next", TG_SHAPE(rows, T), TG_I32);
    network net = make(g);
    tg_tensor h = tg_nn_gru_fwd(net.gru, tg_embedding(net.embedding, text));
    return tg_nn_cross_entropy(tg_nn_linear_fwd(net.output, h), next, -1);
}

/* One step of STREAMS texts: the character and the previous state -> the new state and the logits,
 * [STREAMS, HIDDEN + CHARACTERS]. */
tg_tensor char_gru_forward(tg_graph *g, void *user) {
    (void)user;
    tg_tensor character = tg_input(g, "character", TG_SHAPE(STREAMS), TG_I32);
    tg_tensor before = tg_input(g, "state", TG_SHAPE(STREAMS, HIDDEN), TG_F32);
    network net = make(g);
    tg_tensor after = tg_nn_gru_step(net.gru, tg_embedding(net.embedding, character), before);
    tg_tensor both[] = {after, tg_nn_linear_fwd(net.output, after)};
    return tg_concat(both, 2, -1);
}

tg_optimizer char_gru_optimizer(void) { return tg_adam(.lr = tg_lr_cosine_decay(0.005, 0.0003, STEPS), .clip_norm = 1); }

/* ---------------------------------------------------------------- the data */

static struct {
    unsigned char *text; /* characters 0 to 95 */
    int64_t count, train_count;
} data;

const char *char_gru_load(const char *folder) {
    const char *problem = NULL;
    size_t size = 0;
    if (data.count > 0) return NULL;
    data.text = tg_example_read(folder, "novel.txt", &size, &problem);
    if (data.text == NULL) return problem;
    bool good = size >= 10 * STREAMS * READ;
    for (size_t i = 0; good && i < size; i++) {
        int character = data.text[i] == '\n' ? NEWLINE : data.text[i] - FIRST;
        good = character >= 0 && character < CHARACTERS;
        data.text[i] = (unsigned char)character;
    }
    if (!good) {
        free(data.text);
        data.text = NULL;
        return "novel.txt is too short, or holds more than ASCII characters and ends of lines";
    }
    data.count = (int64_t)size;
    data.train_count = data.count / 10 * 9;
    return NULL;
}

void char_gru_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    int32_t *text = arrays[0], *next = arrays[1];
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = (int64_t)(tg_example_random(seed, (uint64_t)t, (uint64_t)row) % (uint64_t)(data.train_count - T));
        for (int i = 0; i < T; i++) {
            text[row * T + i] = data.text[at + i];
            next[row * T + i] = data.text[at + i + 1];
        }
    }
}

/* ---------------------------------------------------------------- loss on the last tenth, and
 * writing */

/* What goes into a step and comes out of it. */
typedef struct stream_state {
    int32_t character[STREAMS];
    float state[STREAMS][HIDDEN];
    float out[STREAMS][HIDDEN + CHARACTERS];
} stream_state;

static tg_status read_one(tg_model *forward, stream_state *s) {
    tg_feed feeds[] = {tg_feed_i32("character", s->character, STREAMS), tg_feed_f32("state", &s->state[0][0], STREAMS * HIDDEN)};
    tg_status status = tg_run(forward, feeds, 2, s->out, STREAMS * (HIDDEN + CHARACTERS));
    for (int i = 0; i < STREAMS; i++) memcpy(s->state[i], s->out[i], sizeof s->state[i]);
    return status;
}

/* Probabilities of the next character at a temperature; returns the logarithm of that of
 * `wanted`. */
static double softmax(const float *logits, double temperature, int wanted, double *p) {
    double most = (double)logits[0], sum = 0;
    for (int i = 1; i < CHARACTERS; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < CHARACTERS; i++) sum += p[i] = exp(((double)logits[i] - most) / temperature);
    for (int i = 0; i < CHARACTERS; i++) p[i] /= sum;
    return ((double)logits[wanted] - most) / temperature - log(sum);
}

/* READ characters at STREAMS positions of the last tenth. The first WARM_UP have no past and do not
 * count. */
static tg_status held_out_loss(tg_model *forward, stream_state *s, double *loss) {
    const int64_t apart = (data.count - data.train_count - 1) / STREAMS;
    double sum = 0, p[CHARACTERS];
    for (int i = 0; i < READ; i++) {
        for (int row = 0; row < STREAMS; row++) s->character[row] = data.text[data.train_count + row * apart + i];
        tg_status status = read_one(forward, s);
        if (status != TG_OK) return status;
        for (int row = 0; i >= WARM_UP && row < STREAMS; row++)
            sum -= softmax(s->out[row] + HIDDEN, 1, data.text[data.train_count + row * apart + i + 1], p);
    }
    *loss = sum / (STREAMS * (READ - WARM_UP));
    return TG_OK;
}

static int choose(const double *p, double share) {
    for (int i = 0; i < CHARACTERS - 1; i++)
        if ((share -= p[i]) < 0) return i;
    return CHARACTERS - 1;
}

/* Goes on from a beginning; one stream of the many is looked at. */
static tg_status write_text(tg_model *forward, stream_state *s, uint64_t seed, FILE *out) {
    static const char beginning[] = "\nThe ship ";
    double p[CHARACTERS];
    memset(s, 0, sizeof *s);
    for (int i = 0; i < (int)sizeof beginning - 1 + WRITTEN; i++) {
        if (i < (int)sizeof beginning - 1) {
            s->character[0] = beginning[i] == '\n' ? NEWLINE : beginning[i] - FIRST;
        } else {
            double share = (double)(tg_example_random(seed, 1u << 30, (uint64_t)i) >> 11) / 9007199254740992.0;
            softmax(s->out[0] + HIDDEN, 0.7, 0, p);
            s->character[0] = choose(p, share);
        }
        fputc(s->character[0] == NEWLINE ? '\n' : FIRST + s->character[0], out);
        tg_status status = read_one(forward, s);
        if (status != TG_OK) return status;
    }
    fputc('\n', out);
    return TG_OK;
}

tg_status char_gru_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score) {
    stream_state *s = calloc(1, sizeof *s);
    if (s == NULL) return TG_ERROR_MEMORY;
    tg_status status = held_out_loss(forward, s, score);
    if (status == TG_OK && out != NULL) {
        status = write_text(forward, s, seed, out);
        fprintf(out, "loss on the last tenth of the novel: %.3f a character, %.2f bits (guessing blindly: %.3f)\n", *score,
                *score / log(2.0), log((double)CHARACTERS));
    }
    free(s);
    return status;
}

/* ---------------------------------------------------------------- as a program of its own */

#ifdef TG_EXAMPLE_MAIN
static int fail(const tg_context *ctx) {
    tg_site site = tg_error_site(ctx);
    fprintf(stderr, "%s:%d: %s\n", site.file, site.line, tg_error_message(ctx));
    return 1;
}

int main(int argc, char **argv) {
    const char *problem = char_gru_load(argc > 1 ? argv[1] : NULL);
    if (problem != NULL) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    tg_context *ctx = tg_context_create(NULL);
    if (ctx == NULL) return 1;
    tg_compile_options options = {.optimizer = char_gru_optimizer(), .seed = 1};
    tg_model *model = tg_compile(ctx, char_gru_loss, NULL, &options);
    tg_model *forward = model != NULL ? tg_compile_sibling(model, char_gru_forward, NULL) : NULL;
    if (forward == NULL) return fail(ctx);

    int32_t text[BATCH * T], next[BATCH * T];
    float loss = 0;
    double held_out = 0;
    void *arrays[] = {text, next};
    tg_feed feeds[] = {tg_feed_i32("text", text, BATCH * T), tg_feed_i32("next", next, BATCH * T)};
    for (int t = 1; t <= STEPS; t++) {
        char_gru_batch(options.seed, t, BATCH, arrays);
        if (tg_step(model, feeds, 2, &loss) != TG_OK) return fail(ctx);
        if (t % 100 == 0) printf("step %4d  loss %.4f\n", t, (double)loss);
    }
    if (char_gru_evaluate(forward, options.seed, stdout, &held_out) != TG_OK) return fail(ctx);
    tg_model_destroy(model); /* and its sibling */
    tg_context_destroy(ctx);
    return 0;
}
#endif
