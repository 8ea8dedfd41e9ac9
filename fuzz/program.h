/* program: a model made of bytes, through the public API only, as a user's build function would
 * make it. Must not know how it is used.
 * While `tame`, each value stays within [-1, 1] and no operation enlarges an error (sums are means,
 * products are halved, quotients are of 1 + x^2), so all correct executors agree to about 1e-4.
 * Wild programs take any operations and options. */
#ifndef TENSORGRAD_FUZZ_PROGRAM_H
#define TENSORGRAD_FUZZ_PROGRAM_H

#include "fuzz.h"

#define PROGRAM_TENSORS 48
#define PROGRAM_INPUTS 3
#define PROGRAM_PARAMS 3
#define PROGRAM_ELEMENTS 4096 /* of one tensor, while tame: no program is slow */

typedef struct program {
    fuzz_reader bytes; /* what is left of them when it is built */
    bool tame;
    /* a refused operation is left out; else it ends the program, and compiling fails */
    bool forgives;
    /* filled by building */
    bool smooth; /* no operation whose gradient jumps: gradients agree too */
    /* nothing depends on the last bit of a float (comparisons, casts, sorting of computed
     * values) */
    bool exact;
    bool random; /* draws random numbers */
    tg_tensor tensors[PROGRAM_TENSORS];
    int count;
    tg_shape input_shape[PROGRAM_INPUTS];
    tg_dtype input_dtype[PROGRAM_INPUTS];
    int inputs, params;
} program;

/* From the first bytes: what it is; the others: its operations. */
program program_make(const uint8_t *data, size_t size);
/* tg_build_fn; user: a program, which it fills. Equal bytes, equal traces. The loss is rank 0;
 * program_forward's result is not. */
tg_tensor program_loss(tg_graph *g, void *user);
tg_tensor program_forward(tg_graph *g, void *user);
/* Data for input i, within [-1, 1], indices within [0, 4): `room` elements at most. The number of
 * elements; -1 where there is no room. */
int64_t program_data(const program *p, int i, uint32_t seed, void *data, int64_t room);

#endif
