/* update (private to src/optim): an optimiser that is being appended to a graph, after the
 * gradients and the clock. append.c fills it, update.c turns it into nodes. Must not know how the
 * flat buffers are stored. */
#ifndef TG_UPDATE_H
#define TG_UPDATE_H
#include "optim/optim.h"

typedef struct tg_update {
    tg_graph *g;
    const tg_layout *layout;
    tg_optimizer optimizer; /* defaults filled in */
    double scale;           /* factor of cotangents */
    int32_t gradient;       /* [trained_end], accumulated and clipped */
    int32_t time;           /* f32 rank 0: 1 in the first update */
    int32_t rate;           /* f32 rank 0 */
    int32_t steps;          /* i32 rank 0: steps made, this one included */
    int32_t applies;        /* bool rank 0: whether this step updates; 0: each step does */
    tg_watch watch;
    int32_t loss;
} tg_update;

/* norm = ||unit x|| over `axes`, whose dims become 1. unit is a power of two with which no square
 * is lost: 1 for ordinary elements, where the norm has the bits of the plain formula; 2^-88 for
 * huge ones; and, if `tiny`, 2^88 for tiny ones (without `tiny` a norm under 2^-30 may come out
 * smaller). Infinite or NaN exactly if an element of x is. */
typedef struct tg_norm {
    int32_t norm, unit;
    int32_t huge; /* sum of (2^-88 x)^2: under 2^120 for each finite x */
} tg_norm;
/* bool: no element of x is infinite or NaN. From norm.huge or a square like it. */
int32_t tg_norm_finite(tg_graph *g, int32_t huge);
/* sum of (2^-88 x)^2 over `axes`; the same node that tg_norm_append makes. */
int32_t tg_norm_huge(tg_graph *g, int32_t x, uint32_t axes);
/* nodes are 0 after recording an error */
tg_norm tg_norm_append(tg_graph *g, int32_t x, uint32_t axes, bool tiny);

/* f32 [total]; 0 after recording an error */
int32_t tg_update_state(const tg_update *u, const char *name);
/* [total] or [trained_end] -> elements [offset, offset + count). */
int32_t tg_update_cut(const tg_update *u, int32_t flat, int64_t offset, int64_t count);
/* Appends the update of u's kind, with writebacks to the parameters and the optimiser's states.
 * false after recording an error. */
bool tg_update_append(const tg_update *u);
#endif
