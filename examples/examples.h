/* The examples as data: what `tensorgrad train`, `bench` and `inspect` need to run any of them.
 * Each example is one readable file (mlp_sin.c, transformer_add.c, ...) that uses only the public
 * API; examples.c has the table. */
#ifndef TENSORGRAD_EXAMPLES_H
#define TENSORGRAD_EXAMPLES_H

#include "tensorgrad/tensorgrad.h"

#include <stdint.h>
#include <stdio.h>

#define TG_EXAMPLE_MAX_INPUTS 4

typedef struct tg_example_input {
    const char *name;
    tg_dtype dtype;
    tg_shape shape;
} tg_example_input;

typedef struct tg_example {
    const char *name;    /* as on the command line */
    const char *summary; /* one line */
    /* training: returns the loss. `user`: NULL, or an int64_t, the rows of a batch */
    tg_build_fn build;
    tg_build_fn forward; /* prediction, a sibling of the training model, for `evaluate` and `fit` */
    /* the recipe; its schedule does not depend on the number of steps asked for */
    tg_optimizer (*optimizer)(void);
    int64_t default_steps;
    int64_t batch; /* rows of a training batch, unless told otherwise */
    int input_count;
    /* of the training model; axis 0 is the batch's rows */
    tg_example_input inputs[TG_EXAMPLE_MAX_INPUTS];

    /* Reads the files that batches and evaluation need from `folder` (NULL: see data.h), once. NULL
     * on success, else the error. load NULL: the example reads no files. */
    const char *(*load)(const char *folder);

    /* Writes the `rows` rows of the batch of step t = 1, 2, ... Row i is a pure function of (seed,
     * t, i): the same numbers on all machines, and a resumed run continues where it stopped.
     * arrays[i] has room for them (4 bytes an element). */
    void (*fill_batch)(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);

    /* Runs `forward` (compiled from .forward) on data that the training has not seen, and prints
     * its findings on `out` (NULL: nothing). *score gets the value that score_name names. */
    /* "exact_match", "accuracy" (1 is perfect), "max_error", "held_out_loss" (0 is perfect) */
    const char *score_name;
    tg_status (*evaluate)(tg_model *forward, uint64_t seed, FILE *out, double *score);

    /* For a picture of the fit: fills x, truth and predicted (each fit_points long), x ascending.
     * NULL if the example has no picture. */
    int fit_points;
    tg_status (*fit)(tg_model *forward, float *x, float *truth, float *predicted);

    /* Of a model of any size (scale.h), whose build function is given it as user; else NULL. */
    const struct tg_scale *scale;
} tg_example;

const tg_example *tg_examples(int *count);
const tg_example *tg_example_find(const char *name); /* NULL when there is none */

/* mlp_sin.c */
tg_tensor mlp_sin_loss(tg_graph *g, void *user);
tg_tensor mlp_sin_forward(tg_graph *g, void *user);
tg_optimizer mlp_sin_optimizer(void);
void mlp_sin_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);
tg_status mlp_sin_fit(tg_model *forward, float *x, float *truth, float *predicted);
tg_status mlp_sin_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score);

/* transformer_add.c */
tg_tensor transformer_add_loss(tg_graph *g, void *user);
tg_tensor transformer_add_forward(tg_graph *g, void *user);
tg_optimizer transformer_add_optimizer(void);
void transformer_add_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);
tg_status transformer_add_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score);

/* digits_cnn.c */
tg_tensor digits_cnn_loss(tg_graph *g, void *user);
tg_tensor digits_cnn_forward(tg_graph *g, void *user);
tg_optimizer digits_cnn_optimizer(void);
const char *digits_cnn_load(const char *folder);
void digits_cnn_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);
tg_status digits_cnn_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score);

/* makemore.c */
tg_tensor makemore_loss(tg_graph *g, void *user);
tg_tensor makemore_forward(tg_graph *g, void *user);
tg_optimizer makemore_optimizer(void);
const char *makemore_load(const char *folder);
void makemore_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);
tg_status makemore_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score);

/* char_gru.c */
tg_tensor char_gru_loss(tg_graph *g, void *user);
tg_tensor char_gru_forward(tg_graph *g, void *user);
tg_optimizer char_gru_optimizer(void);
const char *char_gru_load(const char *folder);
void char_gru_batch(uint64_t seed, int64_t t, int64_t rows, void *const *arrays);
tg_status char_gru_evaluate(tg_model *forward, uint64_t seed, FILE *out, double *score);

#endif
