/* grad: vector-Jacobian products, one rule per primitive, as new nodes of the same graph. Knows the
 * graph, nothing below. */
#ifndef TG_GRAD_H
#define TG_GRAD_H
#include "ir/graph.h"

/* Does a gradient pass the operation at all? */
bool tg_grad_has_rule(tg_op op);

/* Appends to `g` the cotangents of wrt[0..n) given `cotangent` (same shape as y; 0 means ones) of
 * y; out[i] is never 0 on success (zeros constant where y does not depend on wrt[i]). Only nodes on
 * a path from some wrt to y are visited. */
tg_status tg_grad_append(tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n, int32_t *out);
#endif
