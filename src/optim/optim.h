/* optim: learning-rate schedules and optimisers as graph nodes, and the flat layout of
 * parameters. A training graph has four rank-1 f32 states with one layout: "tg.parameters",
 * "tg.gradients" and, as the optimiser needs, "tg.m", "tg.v"; and the i32 rank-0 state
 * "tg.step". Knows graph and grad. */
#ifndef TG_OPTIM_H
#define TG_OPTIM_H
#include "grad/grad.h"

#define TG_FLAT_ALIGN 64 /* elements: 256 bytes, WebGPU's offset alignment */

typedef struct tg_layout_entry {
    const char *name;
    tg_shape shape;
    int64_t offset, count;
    bool decay, frozen, matrix;
} tg_layout_entry;
/* A run of the flat buffers that is trained alike. */
typedef struct tg_layout_segment {
    int64_t end; /* begins where the one before ends, or at 0 */
    double rate; /* factor of the schedule's rate */
    bool decay;  /* by weight_decay, or the optimiser's where that is under 0 */
    double weight_decay;
} tg_layout_segment;
/* Order: matrices (those that Muon updates as matrices), then the other trained parameters, then
 * the frozen ones; in each first those that decay; then by group; inside a group in the order of
 * the graph. */
typedef struct tg_layout {
    tg_layout_entry *entries; /* in trace order */
    int count;
    tg_layout_segment *segments; /* of [0, trained_end) */
    int segment_count;
    int64_t total;       /* elements of the flat buffers */
    int64_t matrix_end;  /* [0, matrix_end): matrices */
    int64_t trained_end; /* [0, trained_end): trained; the rest is frozen */
} tg_layout;

/* Writes what the optimiser's kind, filter and groups give to g's parameters into their marks;
 * layouts are made from these. Without groups the marks of earlier groups stay. Errors: a group
 * without a parameter; then some are marked. optimizer may be NULL. */
tg_status tg_mark_params(tg_graph *g, tg_site site, const tg_optimizer *optimizer);
/* The same in steps: forget all groups, then mark those of one that no group has yet. */
void tg_unmark_params(tg_graph *g);
tg_status tg_mark_group(tg_graph *g, tg_site site, const tg_param_group *group);
bool tg_param_is_frozen(const tg_param_info *param); /* declared so, or by its group */

/* From the flags of g's params. Every offset and end is a multiple of TG_FLAT_ALIGN; the gaps stay
 * 0. A graph without parameters has total = TG_FLAT_ALIGN, so that the flat states always exist.
 * Memory in `arena`, names too. */
tg_status tg_layout_make(const tg_graph *g, tg_arena *arena, tg_layout *out);
/* The node of a flat state, f32 [total]; made if need be. 0 recorded. */
int32_t tg_flat_state(tg_graph *g, const char *name, int64_t total);
const tg_layout_entry *tg_layout_find(const tg_layout *layout, const char *name);

/* Rewrites every PARAM node of g in place into reshape(slice(STATE "tg.parameters")), and parameter
 * writebacks (user-made optimisers) into one writeback of that state. After it no PARAM node is
 * left; the table of parameters stays, with node 0. Unknown names (sibling graphs) are
 * TG_ERROR_NOT_FOUND listing the known ones; a different shape is TG_ERROR_SHAPE; a parameter
 * written by both the optimiser and the user is TG_ERROR_DUPLICATE. On an error no node is
 * rewritten.
 *
 * Writebacks to flat states: a PACK whose destination is "tg.parameters" or another flat state
 * means: store each piece in its range and leave the holes as they are. (The states are 0 where no
 * piece is ever stored, so the holes of "tg.gradients" are 0 and those of "tg.parameters" keep
 * their values: frozen, or not written by the user's optimiser.) */
tg_status tg_flatten_params(tg_graph *g, const tg_layout *layout);
/* The same, but a PARAM that is not frozen becomes its part of the STATE "tg.average"; nothing may
 * write parameters. */
tg_status tg_flatten_averages(tg_graph *g, const tg_layout *layout);

/* What a graph knows of its own step, if a clipped, normalized or skipping optimiser looks at all
 * gradients: bools of rank 0; 0 if nothing is looked at. */
typedef struct tg_watch {
    /* every gradient is finite; with accumulation, their sum since the last update */
    int32_t gradients;
    /* so is the loss: else a skipping optimiser writes nothing but "tg.gradients" */
    int32_t step;
} tg_watch;
bool tg_optimizer_watches(const tg_optimizer *optimizer);

/* loss (rank 0 f32) -> gradients of all unfrozen params packed as PACK written back to
 * "tg.gradients" (as they are, before accumulation and clipping), then the update of
 * optimizer->kind over the flat tensors, written back. Call before tg_flatten_params; it uses PARAM
 * nodes for the gradient and creates the flat states: "tg.m", "tg.v", "tg.accumulated",
 * "tg.average" as they are needed. Kind NONE (or NULL): gradients only, nothing more in a graph
 * that already has an optimiser appended; "tg.step" exists for the other kinds only, and counts
 * steps, not updates. A parameter that the loss does not use has gradient 0, and decays if its flag
 * says so. With frozen parameters the update covers [0, trained_end) only and is written back as a
 * PACK. The rate is read from the state "tg.lr" so that a new schedule needs no recompilation.
 * Cotangents are those of scale * loss and gradients are divided by `scale`, a power of two: 1
 * where nothing on the way rounds to less than f32. *watch gets nodes (NULL: not wanted). */
tg_status tg_append_training(tg_graph *g, int32_t loss, const tg_optimizer *optimizer, const tg_layout *layout, double scale,
                             tg_watch *watch);

/* The schedule as numbers in the f32 state "tg.lr", [TG_LR_STATE] (their names: lr.c); the last two
 * are start mod 2^20 and 1 + start / 2^20. All zeros (how the state begins, and begins again after
 * a reset): the optimiser's own schedule, which the graph holds as a constant. tg_lr_encode fills
 * it for a schedule that starts counting after `start` steps. All tg_lr kinds are evaluated from it
 * in the step. */
#define TG_LR_STATE (10 + 2 * TG_LR_WARMUPS + TG_LR_MILESTONES)
/* TG_ERROR_ARGUMENT with `what` in the message for a negative, infinite or NaN rate, no steps, an
 * unknown kind or a warm-up after a warm-up. */
tg_status tg_lr_check(tg_context *ctx, tg_site site, const char *what, tg_lr schedule);
bool tg_lr_moves(tg_lr schedule); /* a checked one is not 0 throughout */
/* TG_ERROR_ARGUMENT for options outside their range, or that its kind does not take, and for a rate
 * of 0 throughout. NULL is fine. */
tg_status tg_optimizer_check(tg_context *ctx, tg_site site, const tg_optimizer *optimizer);
/* Converts the numbers of older versions, which knew one warm-up, [TG_LR_STATE_BEFORE], to those of
 * now. */
#define TG_LR_STATE_BEFORE (12 + TG_LR_MILESTONES)
void tg_lr_upgrade(const float before[TG_LR_STATE_BEFORE], float out[TG_LR_STATE]);
void tg_lr_encode(tg_lr schedule, int64_t start, float out[TG_LR_STATE]);
/* The schedule that has these numbers (a constant for a decay from a rate to the same), for
 * tg_lr_value. False where no schedule has them: then the optimiser's own is in force. Numbers of a
 * file may be any finite ones. */
bool tg_lr_decode(const float in[TG_LR_STATE], tg_lr *schedule, int64_t *start);
/* encoded numbers [TG_LR_STATE], i32 rank 0: steps taken -> rank-0 f32. An update is `accumulate`
 * steps. */
int32_t tg_lr_nodes(tg_graph *g, int32_t lr_state, int32_t t, int64_t accumulate);
/* i32 rank 0, from 1: the update that step number `steps` belongs to: (steps - 1) / accumulate +
 * 1. */
int32_t tg_lr_updates(tg_graph *g, int32_t steps, int64_t accumulate);
#endif
