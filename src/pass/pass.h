/* pass: turns a graph into a smaller equal graph. Must not know gradients, kernels or devices. */
#ifndef TG_PASS_H
#define TG_PASS_H
#include "ir/graph.h"

/* Folds constants; brings views into normal form (composes them, moves them through elementwise
 * work if that removes nodes, drops identities); applies exact algebra (x*1; x+0 only where the
 * sign of zero survives; --x; select of a constant condition; broadcast of broadcast; but not SUM
 * of a broadcast constant, which is not exact); drops STOP_GRADIENT; joins common subexpressions;
 * removes dead nodes. Roots: result, captures (if keep_captures), writebacks, checks. Rewrites g in
 * place: nodes are renumbered and all tables follow. Changes no value except by f32 rounding of
 * scalar constants; a sum over axes of size 1 becomes its operand (so the sum of one -0 is -0).
 * Leaves with a table entry always stay; without keep_captures the table of captures is emptied. A
 * second run changes nothing. On an error g is unchanged. Cost: near-linear in nodes. */
tg_status tg_pass_run(tg_graph *g, bool keep_captures);
#endif
