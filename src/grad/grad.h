/* grad: vector-Jacobian products, one rule for each primitive, as new nodes of the same graph.
 * Knows the graph. Must not know optimisers, passes or devices. */
#ifndef TG_GRAD_H
#define TG_GRAD_H
#include "ir/graph.h"

/* Whether the operation passes a gradient on at all. */
bool tg_grad_has_rule(tg_op op);

/* Appends to `g` the cotangents of wrt[0..n), given the cotangent of y: `cotangent`, same shape as
 * y; 0 means ones. On success out[i] is never 0: it is a constant of zeros if y does not depend on
 * wrt[i]. Visits only nodes on a path from some wrt to y. */
tg_status tg_grad_append(tg_graph *g, int32_t y, int32_t cotangent, const int32_t *wrt, int n, int32_t *out);
#endif
