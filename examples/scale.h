/* scale: models of any size, to see how cost grows: "gpt:L6,D384,H6,T256,B64,V65", "mlp:W64,N4,B16384",
 * "conv:C32,B64", "gru:H128,T64,B32". Keys that are left out have a default. Owns the models, their
 * optimisers and their batches; must not know who measures them. */
#ifndef TENSORGRAD_EXAMPLES_SCALE_H
#define TENSORGRAD_EXAMPLES_SCALE_H

#include "examples.h"

#include <stdbool.h>

#define TG_SCALE_KEYS 6
#define TG_SCALE_NAME 96

typedef struct tg_scale_key {
    char letter;      /* 0: there is none */
    const char *what; /* "layers" */
    int64_t usual, most;
} tg_scale_key;

typedef struct tg_scale_family {
    const char *name; /* "gpt" */
    const char *summary;
    tg_scale_key keys[TG_SCALE_KEYS];
    int rows; /* the key that is the rows of a batch */
} tg_scale_family;

/* A family with its sizes, as an example. The example points to this struct, which must not move;
 * it has no `forward`, no score and no `fill_batch`: see tg_example_fill. */
typedef struct tg_scale {
    const tg_scale_family *family;
    int64_t size[TG_SCALE_KEYS];
    char name[TG_SCALE_NAME];
    tg_example example;
} tg_scale;

const tg_scale_family *tg_scale_families(int *count);
/* begins with the name of a family and a colon, or is one */
bool tg_scale_is(const char *text);
/* False: `problem` says why, and lists the keys. */
bool tg_scale_parse(const char *text, tg_scale *out, char *problem, size_t room);
/* "L6, D384": each key with its default, as one list. */
void tg_scale_keys_text(const tg_scale_family *family, char *text, size_t room);

/* What example->build is given for a batch of `rows`: `rows` itself, or a scale with that many. `copy`
 * must live as long as the model's building. */
void *tg_example_user(const tg_example *example, int64_t *rows, tg_scale *copy);
/* example->fill_batch, or its like for a scale. */
void tg_example_fill(const tg_example *example, uint64_t seed, int64_t t, int64_t rows, void *const *arrays);

#endif
