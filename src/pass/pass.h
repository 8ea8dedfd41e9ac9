/* pass: graph to smaller equal graph. Knows the graph only. */
#ifndef TG_PASS_H
#define TG_PASS_H
#include "ir/graph.h"

/* Fold constants, canonicalise views (compose, push through elementwise where it removes nodes,
 * drop identities), algebra that is exact (x*1, x+0 only where the sign of zero survives, --x,
 * select of a constant condition, broadcast of broadcast, SUM of a broadcast constant is not exact
 * and stays), drop STOP_GRADIENT, common subexpressions, dead nodes. Roots: result, captures (when
 * keep_captures), writebacks, checks. Rewrites g in place: nodes are renumbered and every table
 * follows. Never changes a value except by f32 rounding of scalar constants; a sum over axes of
 * size 1 is its operand (so the sum of one -0 is -0). Leaves with a table entry always stay;
 * without keep_captures the table of captures is emptied. Running it again changes nothing. On an
 * error g is unchanged. Cost: near-linear in nodes. */
tg_status tg_pass_run(tg_graph *g, bool keep_captures);
#endif
