/* scale: see scale.h. The data is made up, and a model can learn it: the next token is a function of
 * the token; targets are a function of the inputs. */
#include "scale.h"

#include "data.h"

#include <stdlib.h>
#include <string.h>

enum { GPT_LAYERS, GPT_WIDTH, GPT_HEADS, GPT_LENGTH, GPT_BATCH, GPT_VOCABULARY };
enum { MLP_WIDTH, MLP_HIDDEN, MLP_BATCH };
enum { CONV_CHANNELS, CONV_BATCH };
enum { GRU_WIDTH, GRU_LENGTH, GRU_BATCH };
enum { GPT, MLP, CONV, GRU, FAMILIES };
enum { MLP_INPUTS = 2, MLP_OUTPUTS = 3, IMAGE = 32, COLOURS = 3, CLASSES = 10, GRU_INPUTS = 32 };
#define MOST (INT64_C(1) << 24)

static const tg_scale_family families[FAMILIES] = {
    [GPT] = {"gpt",
             "GPT: pre-norm blocks, causal attention, gelu MLP of 4 widths, tied head, AdamW with norm clipping",
             {{'L', "layers", 4, 1024},
              {'D', "width", 128, MOST},
              {'H', "heads", 4, 1024},
              {'T', "length", 64, MOST},
              {'B', "batch", 12, MOST},
              {'V', "vocabulary", 65, MOST}},
             GPT_BATCH},
    [MLP] = {"mlp",
             "MLP from 2 inputs to 3 outputs, ReLU, mean squared error, Adam",
             {{'W', "width", 64, MOST}, {'N', "hidden layers", 4, 1024}, {'B', "batch", 16384, MOST}},
             MLP_BATCH},
    [CONV] = {"conv",
              "four 3 x 3 convolutions of C, C, 2C, 2C channels on 32 x 32, two poolings, cross entropy, Adam",
              {{'C', "channels", 32, 65536}, {'B', "batch", 64, MOST}},
              CONV_BATCH},
    [GRU] = {"gru",
             "a GRU on 32 inputs, mean squared error of all its states, Adam",
             {{'H', "width", 128, 65536}, {'T', "length", 64, 65536}, {'B', "batch", 32, MOST}},
             GRU_BATCH},
};

/* ---------------------------------------------------------------- the models */

static tg_tensor normed(tg_graph *g, const char *name, int64_t width, tg_tensor x) {
    return tg_nn_layer_norm_fwd(tg_nn_layer_norm(g, name, width), x);
}

static tg_tensor gpt_block(tg_graph *g, const int64_t *size, int64_t layer, tg_tensor x) {
    const int64_t width = size[GPT_WIDTH];
    const tg_init init = tg_init_randn(0.02);
    tg_scope_pushf(g, "h.%lld", (long long)layer);
    tg_attention attention = tg_nn_attention(g, "attn", width, size[GPT_HEADS], .causal = true, .init = init);
    x = tg_add(x, tg_nn_attention_fwd(attention, normed(g, "ln1", width, x)));
    tg_linear up = tg_nn_linear(g, "up", width, 4 * width, .init = init), down = tg_nn_linear(g, "down", 4 * width, width, .init = init);
    x = tg_add(x, tg_nn_linear_fwd(down, tg_gelu_tanh(tg_nn_linear_fwd(up, normed(g, "ln2", width, x)))));
    tg_scope_pop(g);
    return x;
}

static tg_tensor gpt_loss(tg_graph *g, void *user) {
    const int64_t *size = ((const tg_scale *)user)->size;
    const tg_shape shape = TG_SHAPE(size[GPT_BATCH], size[GPT_LENGTH]);
    tg_tensor tokens = tg_input(g, "tokens", shape, TG_I32), targets = tg_input(g, "targets", shape, TG_I32);
    tg_tensor words = tg_param(g, "wte", TG_SHAPE(size[GPT_VOCABULARY], size[GPT_WIDTH]));
    tg_tensor positions = tg_param(g, "wpe", TG_SHAPE(size[GPT_LENGTH], size[GPT_WIDTH]));
    tg_tensor x = tg_add(tg_embedding(words, tokens), positions);
    for (int64_t layer = 0; layer < size[GPT_LAYERS]; layer++) x = gpt_block(g, size, layer, x);
    return tg_nn_cross_entropy(tg_matmul(normed(g, "lnf", size[GPT_WIDTH], x), tg_swap_axes(words, 0, 1)), targets, -1);
}

static tg_tensor mlp_loss(tg_graph *g, void *user) {
    const int64_t *size = ((const tg_scale *)user)->size;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(size[MLP_BATCH], MLP_INPUTS), TG_F32);
    tg_tensor y = tg_input(g, "y", TG_SHAPE(size[MLP_BATCH], MLP_OUTPUTS), TG_F32);
    for (int64_t layer = 0; layer < size[MLP_HIDDEN]; layer++) {
        char name[32];
        snprintf(name, sizeof name, "l%lld", (long long)layer);
        x = tg_relu(tg_nn_linear_fwd(tg_nn_linear(g, name, layer > 0 ? size[MLP_WIDTH] : MLP_INPUTS, size[MLP_WIDTH]), x));
    }
    const tg_linear out = tg_nn_linear(g, "out", size[MLP_WIDTH], MLP_OUTPUTS);
    x = tg_nn_linear_fwd(out, x);
    return tg_nn_mse(x, y);
}

static tg_tensor conv_layer(tg_graph *g, const char *name, int64_t from, int64_t to, tg_tensor x) {
    return tg_relu(tg_nn_conv2d_fwd(tg_nn_conv2d(g, name, from, to, 3, 3, .padding = tg_padding_same()), x));
}

static tg_tensor conv_loss(tg_graph *g, void *user) {
    const int64_t *size = ((const tg_scale *)user)->size;
    const int64_t rows = size[CONV_BATCH], c = size[CONV_CHANNELS], pixels = (IMAGE / 4) * (IMAGE / 4);
    tg_tensor x = tg_input(g, "x", TG_SHAPE(rows, COLOURS, IMAGE, IMAGE), TG_F32), y = tg_input(g, "y", TG_SHAPE(rows), TG_I32);
    x = tg_max_pool2d(conv_layer(g, "c2", c, c, conv_layer(g, "c1", COLOURS, c, x)), 2, 2);
    x = tg_max_pool2d(conv_layer(g, "c4", 2 * c, 2 * c, conv_layer(g, "c3", c, 2 * c, x)), 2, 2);
    x = tg_reshape(x, TG_SHAPE(rows, 2 * c * pixels));
    const tg_linear out = tg_nn_linear(g, "out", 2 * c * pixels, CLASSES);
    x = tg_nn_linear_fwd(out, x);
    return tg_nn_cross_entropy(x, y, -1);
}

static tg_tensor gru_loss(tg_graph *g, void *user) {
    const int64_t *size = ((const tg_scale *)user)->size;
    tg_tensor x = tg_input(g, "x", TG_SHAPE(size[GRU_BATCH], size[GRU_LENGTH], GRU_INPUTS), TG_F32);
    tg_tensor y = tg_input(g, "y", TG_SHAPE(size[GRU_BATCH], size[GRU_LENGTH], size[GRU_WIDTH]), TG_F32);
    const tg_recurrent layer = tg_nn_gru(g, "r", GRU_INPUTS, size[GRU_WIDTH]);
    x = tg_nn_gru_fwd(layer, x);
    return tg_nn_mse(x, y);
}

static tg_optimizer gpt_optimizer(void) { return tg_adamw(.lr = tg_lr_constant(3e-4), .weight_decay = 0.1, .clip_norm = 1); }
static tg_optimizer plain_optimizer(void) { return tg_adam(.lr = tg_lr_constant(1e-3)); }

/* ---------------------------------------------------------------- the data */

/* In [0, 1), a function of (seed, t, i). */
static float number(uint64_t seed, int64_t t, int64_t i) {
    return (float)(tg_example_random(seed, (uint64_t)t, (uint64_t)i) >> 40) / 16777216.0F;
}

static void fill_gpt(const tg_scale *scale, uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    const int64_t vocabulary = scale->size[GPT_VOCABULARY];
    int32_t *tokens = arrays[0], *targets = arrays[1];
    for (int64_t i = 0; i < rows * scale->size[GPT_LENGTH]; i++) {
        tokens[i] = (int32_t)(tg_example_random(seed, (uint64_t)t, (uint64_t)i) % (uint64_t)vocabulary);
        targets[i] = (int32_t)(((int64_t)tokens[i] * 7 + 3) % vocabulary);
    }
}

static void fill_mlp(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    float *x = arrays[0], *y = arrays[1];
    for (int64_t i = 0; i < rows; i++) {
        const float a = number(seed, t, 2 * i), b = number(seed, t, 2 * i + 1);
        x[2 * i] = a;
        x[2 * i + 1] = b;
        y[3 * i] = a * b;
        y[3 * i + 1] = 0.5F * (a + b);
        y[3 * i + 2] = a * a;
    }
}

/* An image is noise around a brightness, which is its class. */
static void fill_conv(uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    enum { PIXELS = COLOURS * IMAGE * IMAGE };
    float *x = arrays[0];
    int32_t *y = arrays[1];
    for (int64_t row = 0; row < rows; row++) {
        y[row] = (int32_t)(tg_example_random(seed, (uint64_t)t, (uint64_t)(row * (PIXELS + 1))) % CLASSES);
        for (int64_t i = 0; i < PIXELS; i++)
            x[row * PIXELS + i] = 0.1F * (float)y[row] + 0.5F * (number(seed, t, row * (PIXELS + 1) + 1 + i) - 0.5F);
    }
}

/* The target at each position is half of one of the inputs there. */
static void fill_gru(const tg_scale *scale, uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    const int64_t width = scale->size[GRU_WIDTH];
    float *x = arrays[0], *y = arrays[1];
    for (int64_t i = 0; i < rows * scale->size[GRU_LENGTH]; i++) {
        for (int64_t j = 0; j < GRU_INPUTS; j++) x[i * GRU_INPUTS + j] = number(seed, t, i * GRU_INPUTS + j);
        for (int64_t j = 0; j < width; j++) y[i * width + j] = 0.5F * x[i * GRU_INPUTS + j % GRU_INPUTS];
    }
}

void tg_example_fill(const tg_example *example, uint64_t seed, int64_t t, int64_t rows, void *const *arrays) {
    const tg_scale *scale = example->scale;
    if (scale == NULL) example->fill_batch(seed, t, rows, arrays);
    else if (scale->family == &families[GPT]) fill_gpt(scale, seed, t, rows, arrays);
    else if (scale->family == &families[MLP]) fill_mlp(seed, t, rows, arrays);
    else if (scale->family == &families[CONV]) fill_conv(seed, t, rows, arrays);
    else fill_gru(scale, seed, t, rows, arrays);
}

void *tg_example_user(const tg_example *example, int64_t *rows, tg_scale *copy) {
    if (example->scale == NULL) return rows;
    *copy = *example->scale;
    copy->size[copy->family->rows] = *rows;
    return copy;
}

/* ---------------------------------------------------------------- from text */

const tg_scale_family *tg_scale_families(int *count) {
    *count = FAMILIES;
    return families;
}

static const tg_scale_family *family_of(const char *text) {
    const size_t length = strcspn(text, ":");
    for (int i = 0; i < FAMILIES; i++)
        if (strlen(families[i].name) == length && strncmp(families[i].name, text, length) == 0) return &families[i];
    return NULL;
}

bool tg_scale_is(const char *text) { return family_of(text) != NULL; }

void tg_scale_keys_text(const tg_scale_family *family, char *text, size_t room) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < TG_SCALE_KEYS && family->keys[i].letter && used < room; i++) {
        const tg_scale_key *key = &family->keys[i];
        const int more =
            snprintf(text + used, room - used, "%s%c %s (%lld)", i > 0 ? ", " : "", key->letter, key->what, (long long)key->usual);
        used += more > 0 ? (size_t)more : 0;
    }
}

/* Reads "L6" at *at, and a comma after it. False: that is no key with a number, or it was given
 * before. */
static bool read_key(const tg_scale_family *family, const char **at, int64_t *size, bool *given) {
    int k = 0;
    while (k < TG_SCALE_KEYS && family->keys[k].letter && family->keys[k].letter != **at) k++;
    if (k == TG_SCALE_KEYS || !family->keys[k].letter || (*at)[1] < '0' || (*at)[1] > '9') return false;
    char *end = NULL;
    const long long value = strtoll(*at + 1, &end, 10);
    if (value < 1 || value > family->keys[k].most || (*end && *end != ',') || (*end == ',' && !end[1])) return false;
    if (given[k]) return false;
    given[k] = true;
    size[k] = value;
    *at = *end ? end + 1 : end;
    return true;
}

/* Inputs, name and functions of a scale whose sizes are known. */
static void complete(tg_scale *scale) {
    const int64_t *size = scale->size, rows = size[scale->family->rows];
    tg_example *e = &scale->example;
    *e = (tg_example){.name = scale->name,
                      .summary = scale->family->summary,
                      .batch = rows,
                      .input_count = 2,
                      .optimizer = plain_optimizer,
                      .scale = scale};
    if (scale->family == &families[GPT]) {
        e->build = gpt_loss;
        e->optimizer = gpt_optimizer;
        e->inputs[0] = (tg_example_input){"tokens", TG_I32, TG_SHAPE(rows, size[GPT_LENGTH])};
        e->inputs[1] = (tg_example_input){"targets", TG_I32, TG_SHAPE(rows, size[GPT_LENGTH])};
    } else if (scale->family == &families[MLP]) {
        e->build = mlp_loss;
        e->inputs[0] = (tg_example_input){"x", TG_F32, TG_SHAPE(rows, MLP_INPUTS)};
        e->inputs[1] = (tg_example_input){"y", TG_F32, TG_SHAPE(rows, MLP_OUTPUTS)};
    } else if (scale->family == &families[CONV]) {
        e->build = conv_loss;
        e->inputs[0] = (tg_example_input){"x", TG_F32, TG_SHAPE(rows, COLOURS, IMAGE, IMAGE)};
        e->inputs[1] = (tg_example_input){"y", TG_I32, TG_SHAPE(rows)};
    } else {
        e->build = gru_loss;
        e->inputs[0] = (tg_example_input){"x", TG_F32, TG_SHAPE(rows, size[GRU_LENGTH], GRU_INPUTS)};
        e->inputs[1] = (tg_example_input){"y", TG_F32, TG_SHAPE(rows, size[GRU_LENGTH], size[GRU_WIDTH])};
    }
}

bool tg_scale_parse(const char *text, tg_scale *out, char *problem, size_t room) {
    char keys[256];
    bool given[TG_SCALE_KEYS] = {false};
    memset(out, 0, sizeof *out);
    out->family = family_of(text);
    if (out->family == NULL || strlen(text) >= sizeof out->name) {
        snprintf(problem, room, "no family of models, or too long");
        return false;
    }
    tg_scale_keys_text(out->family, keys, sizeof keys);
    for (int i = 0; i < TG_SCALE_KEYS; i++) out->size[i] = out->family->keys[i].usual;
    const char *at = text + strlen(out->family->name);
    if (*at == ':') at++;
    while (*at)
        if (!read_key(out->family, &at, out->size, given)) {
            size_t length = strcspn(at, ",");
            if (at[length] == ',' && !at[length + 1]) length++; /* what is wrong may be the comma */
            snprintf(problem, room,
                     "'%.*s' is no key with a whole number in its range, or is there twice; keys, and what they are if left out: %s",
                     (int)length, at, keys);
            return false;
        }
    if (out->family == &families[GPT] && out->size[GPT_WIDTH] % out->size[GPT_HEADS] != 0) {
        snprintf(problem, room, "the width D%lld is no multiple of the heads H%lld", (long long)out->size[GPT_WIDTH],
                 (long long)out->size[GPT_HEADS]);
        return false;
    }
    snprintf(out->name, sizeof out->name, "%s", text);
    complete(out);
    return true;
}

#undef MOST
