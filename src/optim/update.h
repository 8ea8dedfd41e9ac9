/* update (private to src/optim): an optimiser being appended to a graph, after the gradients and
 * the clock: append.c fills it, update.c turns it into nodes. */
#ifndef TG_UPDATE_H
#define TG_UPDATE_H
#include "optim/optim.h"

typedef struct tg_update {
    tg_graph *g;
    const tg_layout *layout;
    tg_optimizer optimizer; /* defaults filled in */
    double scale;           /* of cotangents */
    int32_t gradient;       /* [trained_end], accumulated and clipped */
    int32_t time;           /* f32 rank 0: 1 in the first update */
    int32_t rate;           /* f32 rank 0 */
    int32_t steps;          /* i32 rank 0: made with this one */
    int32_t applies;        /* bool rank 0: this step updates; 0: every step does */
    tg_watch watch;
    int32_t loss;
} tg_update;

/* norm = ||unit x|| over `axes`, whose dims become 1. unit is the power of two for which no square
 * is lost: 1 for ordinary elements, where the norm has the bits of the plain formula; 2^-88 for
 * huge ones; and with `tiny` 2^88 for tiny ones (else a norm under 2^-30 may come out too small).
 * Infinite or NaN exactly where x is somewhere. */
typedef struct tg_norm {
    int32_t norm, unit;
    int32_t huge; /* sum of (2^-88 x)^2: under 2^120 for every finite x */
} tg_norm;
/* bool: no element of x is infinite or NaN, from norm.huge or a square like it. */
int32_t tg_norm_finite(tg_graph *g, int32_t huge);
/* sum of (2^-88 x)^2 over `axes`; tg_norm_append makes the same node. */
int32_t tg_norm_huge(tg_graph *g, int32_t x, uint32_t axes);
tg_norm tg_norm_append(tg_graph *g, int32_t x, uint32_t axes, bool tiny); /* nodes 0: recorded */

int32_t tg_update_state(const tg_update *u, const char *name); /* f32 [total]; 0 recorded */
/* [total] or [trained_end] -> elements [offset, offset + count) */
int32_t tg_update_cut(const tg_update *u, int32_t flat, int64_t offset, int64_t count);
/* The update of u's kind, written back to the parameters and the optimiser's states. false
 * recorded. */
bool tg_update_append(const tg_update *u);
#endif
