/* optim: learning-rate schedules and optimisers as graph nodes, and the flat layout of parameters. A training graph has
 * four rank-1 f32 states with one layout: "tg.parameters", "tg.gradients" and, as the optimiser needs, "tg.m", "tg.v";
 * and the i32 rank-0 state "tg.step". Knows graph and grad. */
#ifndef TG_OPTIM_H
#define TG_OPTIM_H
#include "grad/grad.h"

#define TG_FLAT_ALIGN 64 /* elements: 256 bytes, WebGPU's offset alignment */

typedef struct tg_layout_entry {
    const char *name;
    tg_shape shape;
    int64_t offset, count;
    bool decay, frozen;
} tg_layout_entry;
/* Order: decayed, then not decayed, then frozen; inside a group as traced. */
typedef struct tg_layout {
    tg_layout_entry *entries; /* in trace order */
    int count;
    int64_t total;       /* elements of the flat buffers */
    int64_t decay_end;   /* [0, decay_end): decayed */
    int64_t trained_end; /* [decay_end, trained_end): trained without decay; the rest frozen */
} tg_layout;

/* From g's params, with the filter applied. Every offset and end is a multiple of TG_FLAT_ALIGN; the gaps stay 0. A graph
 * without parameters has total = TG_FLAT_ALIGN, so that the flat states always exist. optimizer may be NULL. Memory in
 * `arena`, names too. */
tg_status tg_layout_make(const tg_graph *g, const tg_optimizer *optimizer, tg_arena *arena, tg_layout *out);
const tg_layout_entry *tg_layout_find(const tg_layout *layout, const char *name);

/* Rewrites every PARAM node of g in place into reshape(slice(STATE "tg.parameters")), and parameter writebacks (user-made
 * optimisers) into one writeback of that state. After it no PARAM node is left; the table of parameters stays, with node 0.
 * Unknown names (sibling graphs) are TG_ERROR_NOT_FOUND listing the known ones; a different shape is TG_ERROR_SHAPE; a
 * parameter written by both the optimiser and the user is TG_ERROR_DUPLICATE. On an error no node is rewritten.
 *
 * Writebacks to flat states: a PACK whose destination is "tg.parameters" or another flat state means: store each piece in its
 * range and leave the holes as they are. (The states are 0 where no piece is ever stored, so the holes of "tg.gradients"
 * are 0 and those of "tg.parameters" keep their values: frozen, or not written by the user's optimiser.) */
tg_status tg_flatten_params(tg_graph *g, const tg_layout *layout);

/* loss (rank 0 f32) -> gradients of all unfrozen params packed as PACK written back to "tg.gradients" (before clipping), then
 * the update of optimizer->kind over the flat tensors, written back. Call before tg_flatten_params; it uses PARAM nodes for
 * the gradient and creates the flat states. Kind NONE (or NULL): gradients only, nothing more in a graph that already has an
 * optimiser appended; "tg.step" exists for the other kinds only. A parameter that the loss does not use has gradient 0, and
 * decays if its flag says so. With frozen parameters the update covers [0, trained_end) only and is written back as a PACK of
 * that one piece. The rate is read from the state "tg.lr" so that a new schedule needs no recompilation. */
tg_status tg_append_training(tg_graph *g, int32_t loss, const tg_optimizer *optimizer, const tg_layout *layout);

/* The schedule as numbers in the f32 state "tg.lr", [TG_LR_STATE]: kind, peak, final, steps, after_kind, after_peak,
 * after_final, after_steps, start mod 2^20, 1 + start / 2^20. All zeros (how the state begins, and begins again after a reset):
 * the optimiser's own schedule, which the graph holds as a constant. tg_lr_encode fills it for a schedule that starts counting
 * after `start` steps. All tg_lr kinds are evaluated from it in the step. */
#define TG_LR_STATE 10
/* TG_ERROR_ARGUMENT with `what` in the message for a negative, infinite or NaN rate, no steps, an unknown kind or a warm-up
 * after a warm-up. */
tg_status tg_lr_check(tg_context *ctx, tg_site site, const char *what, tg_lr schedule);
/* TG_ERROR_ARGUMENT for options outside their range. NULL is fine. */
tg_status tg_optimizer_check(tg_context *ctx, tg_site site, const tg_optimizer *optimizer);
void tg_lr_encode(tg_lr schedule, int64_t start, float out[TG_LR_STATE]);
int32_t tg_lr_nodes(tg_graph *g, int32_t lr_state, int32_t t); /* encoded numbers [TG_LR_STATE], i32 rank 0 -> rank-0 f32 */
#endif
