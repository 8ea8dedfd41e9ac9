/* The table of examples. */
#include "examples.h"

#include <string.h>

/* Batch shapes are those of the inputs in each example's own file; a step refuses feeds of another
 * size. */
static const tg_example table[] = {
    {
        .name = "mlp-sin",
        .summary = "y = sin x on [-pi, pi]: 1-64-64-1, ReLU, mean squared error, Adam",
        .build = mlp_sin_loss,
        .forward = mlp_sin_forward,
        .optimizer = mlp_sin_optimizer,
        .default_steps = 1000,
        .batch = 256,
        .input_count = 2,
        .inputs = {{"x", TG_F32, {2, {256, 1}}}, {"y", TG_F32, {2, {256, 1}}}},
        .fill_batch = mlp_sin_batch,
        .score_name = "max_error",
        .evaluate = mlp_sin_evaluate,
        .fit_points = 256,
        .fit = mlp_sin_fit,
    },
    {
        .name = "transformer-add",
        .summary = "two-digit addition: 3 layers, 64 wide, 4 heads, masked cross entropy, AdamW",
        .build = transformer_add_loss,
        .forward = transformer_add_forward,
        .optimizer = transformer_add_optimizer,
        .default_steps = 1500,
        .batch = 128,
        .input_count = 2,
        .inputs = {{"tokens", TG_I32, {2, {128, 8}}}, {"targets", TG_I32, {2, {128, 8}}}},
        .fill_batch = transformer_add_batch,
        .score_name = "exact_match",
        .evaluate = transformer_add_evaluate,
    },
    {
        .name = "digits-cnn",
        .summary = "handwritten digits (MNIST): two convolutions, dropout, cross entropy, AdamW",
        .build = digits_cnn_loss,
        .forward = digits_cnn_forward,
        .optimizer = digits_cnn_optimizer,
        .default_steps = 1500,
        .batch = 64,
        .input_count = 2,
        .inputs = {{"image", TG_F32, {4, {64, 1, 28, 28}}}, {"digit", TG_I32, {1, {64}}}},
        .load = digits_cnn_load,
        .fill_batch = digits_cnn_batch,
        .score_name = "accuracy",
        .evaluate = digits_cnn_evaluate,
    },
    {
        .name = "makemore",
        .summary = "makes up first names: the last 8 letters, embedding 24, hidden layer 256, dropout, AdamW",
        .build = makemore_loss,
        .forward = makemore_forward,
        .optimizer = makemore_optimizer,
        .default_steps = 3000,
        .batch = 128,
        .input_count = 2,
        .inputs = {{"letters", TG_I32, {2, {128, 8}}}, {"next", TG_I32, {1, {128}}}},
        .load = makemore_load,
        .fill_batch = makemore_batch,
        .score_name = "held_out_loss",
        .evaluate = makemore_evaluate,
    },
    {
        .name = "char-gru",
        .summary = "writes like a novel: characters, embedding 32, GRU 128, 32 steps unrolled, Adam with clipping",
        .build = char_gru_loss,
        .forward = char_gru_forward,
        .optimizer = char_gru_optimizer,
        .default_steps = 1500,
        .batch = 32,
        .input_count = 2,
        .inputs = {{"text", TG_I32, {2, {32, 32}}}, {"next", TG_I32, {2, {32, 32}}}},
        .load = char_gru_load,
        .fill_batch = char_gru_batch,
        .score_name = "held_out_loss",
        .evaluate = char_gru_evaluate,
    },
};

const tg_example *tg_examples(int *count) {
    if (count != NULL) *count = (int)(sizeof table / sizeof table[0]);
    return table;
}

const tg_example *tg_example_find(const char *name) {
    for (size_t i = 0; name != NULL && i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}
