/* optim: learning-rate schedules and optimisers as graph nodes, and the flat layout of parameters.
 * A training graph has four rank-1 f32 states of one layout: "tg.parameters", "tg.gradients" and,
 * if the optimiser needs them, "tg.m" and "tg.v"; and the i32 rank-0 state "tg.step". Knows graph
 * and grad. Must not know kernels or devices. */
#ifndef TG_OPTIM_H
#define TG_OPTIM_H
#include "grad/grad.h"

#define TG_FLAT_ALIGN 64 /* elements: 256 bytes, the offset alignment of WebGPU */

typedef struct tg_layout_entry {
    const char *name;
    tg_shape shape;
    int64_t offset, count;
    bool decay, frozen, matrix;
} tg_layout_entry;
/* A range of the flat buffers whose elements are trained alike. */
typedef struct tg_layout_segment {
    /* It begins where the segment before it ends, the first at 0. */
    int64_t end;
    double rate; /* factor of the schedule's rate */
    bool decay;  /* by weight_decay, or by the optimiser's if weight_decay is negative */
    double weight_decay;
} tg_layout_segment;
/* Order of the flat buffers: matrices (those that Muon updates as such), other trained parameters,
 * frozen ones. Within each: parameters that decay, then the others. Then by group, and within a
 * group in trace order. */
typedef struct tg_layout {
    tg_layout_entry *entries; /* in trace order */
    int count;
    tg_layout_segment *segments; /* of [0, trained_end) */
    int segment_count;
    int64_t total;       /* elements of the flat buffers */
    int64_t matrix_end;  /* [0, matrix_end): matrices */
    int64_t trained_end; /* [0, trained_end): trained; the rest is frozen */
} tg_layout;

/* Writes into the marks of g's parameters what the optimiser's kind, filter and groups say of them.
 * Layouts are made from the marks. Without groups the marks of earlier groups stay. Error: a group
 * without parameters; some parameters are marked then. optimizer may be NULL. */
tg_status tg_mark_params(tg_graph *g, tg_site site, const tg_optimizer *optimizer);
/* The same in steps: forget all groups, then mark the parameters of one group that no other group
 * has marked. */
void tg_unmark_params(tg_graph *g);
tg_status tg_mark_group(tg_graph *g, tg_site site, const tg_param_group *group);
bool tg_param_is_frozen(const tg_param_info *param); /* frozen as declared, or by its group */

/* Makes a layout from the flags of g's parameters. Each offset and end is a multiple of
 * TG_FLAT_ALIGN; the gaps stay 0. A graph without parameters has total = TG_FLAT_ALIGN, so that the
 * flat states always exist. Memory is in `arena`, names too. */
tg_status tg_layout_make(const tg_graph *g, tg_arena *arena, tg_layout *out);
/* The node of a flat state, f32 [total]; made if need be. 0 after recording an error. */
int32_t tg_flat_state(tg_graph *g, const char *name, int64_t total);
const tg_layout_entry *tg_layout_find(const tg_layout *layout, const char *name);

/* Rewrites each PARAM node of g in place into reshape(slice(STATE "tg.parameters")), and the
 * writebacks of parameters (user-made optimisers) into one writeback of that state. No PARAM node
 * is left after it; the table of parameters stays, with node 0. An unknown name (sibling graphs) is
 * TG_ERROR_NOT_FOUND, which lists the known ones. Another shape is TG_ERROR_SHAPE. A parameter that
 * both the optimiser and the user write is TG_ERROR_DUPLICATE. On an error no node is rewritten.
 *
 * Writebacks to flat states: a PACK written to "tg.parameters" or another flat state means: store
 * each piece in its range, and leave the holes as they are. (A state is 0 where no piece is ever
 * stored. So the holes of "tg.gradients" are 0, and those of "tg.parameters" keep their values:
 * frozen parameters, or parameters that the user's optimiser does not write.) */
tg_status tg_flatten_params(tg_graph *g, const tg_layout *layout);
/* The same, but a PARAM that is not frozen becomes its part of the STATE "tg.average". Parameters
 * must not be written. */
tg_status tg_flatten_averages(tg_graph *g, const tg_layout *layout);

/* What a graph knows of its own step if the optimiser looks at all gradients anyway: if it clips,
 * normalizes or skips. Bools of rank 0; 0 if nothing is computed. */
typedef struct tg_watch {
    /* all gradients are finite; with accumulation, their sum since the last update is */
    int32_t gradients;
    /* that, and the loss is finite: else a skipping optimiser writes only "tg.gradients" */
    int32_t step;
} tg_watch;
bool tg_optimizer_watches(const tg_optimizer *optimizer);

/* Appends the training step: loss (rank 0 f32) -> gradients of all unfrozen parameters, packed and
 * written back to "tg.gradients" as they are before accumulation and clipping; then the update of
 * optimizer->kind over the flat tensors, written back. Call before tg_flatten_params: it uses PARAM
 * nodes for the gradient. It creates the flat states "tg.m", "tg.v", "tg.accumulated", "tg.average"
 * as they are needed. Kind NONE (or NULL): gradients only, and nothing in a graph that already has
 * an optimiser. "tg.step" exists for the other kinds only, and counts steps, not updates. A
 * parameter that the loss does not use has gradient 0, and decays if its flag says so. With frozen
 * parameters the update covers only [0, trained_end) and is written back as a PACK. The rate is
 * read from the state "tg.lr", so a new schedule needs no recompilation. Cotangents are those of
 * scale * loss, and gradients are divided by `scale`, a power of two: 1 if no dtype on the way
 * rounds to less than f32. *watch gets nodes; watch may be NULL. */
tg_status tg_append_training(tg_graph *g, int32_t loss, const tg_optimizer *optimizer, const tg_layout *layout, double scale,
                             tg_watch *watch);

/* The schedule as numbers in the f32 state "tg.lr", [TG_LR_STATE] (lr.c names them). The last two
 * are start mod 2^20 and 1 + start / 2^20. All zeros, as the state begins and as it is after a
 * reset, mean the optimiser's own schedule, which the graph holds as a constant. tg_lr_encode fills
 * the numbers for a schedule that starts counting after `start` steps. The step evaluates all kinds
 * of tg_lr from them. */
#define TG_LR_STATE (10 + 2 * TG_LR_WARMUPS + TG_LR_MILESTONES)
/* TG_ERROR_ARGUMENT, with `what` in the message, for a rate that is negative, infinite or NaN, for
 * no steps, an unknown kind, or a warm-up that follows a warm-up. */
tg_status tg_lr_check(tg_context *ctx, tg_site site, const char *what, tg_lr lr);
bool tg_lr_moves(tg_lr lr); /* whether a checked schedule is not 0 throughout */
/* TG_ERROR_ARGUMENT for options that are out of range, or that the kind does not take, and for a
 * rate of 0 throughout. NULL is fine. */
tg_status tg_optimizer_check(tg_context *ctx, tg_site site, const tg_optimizer *optimizer);
/* Converts numbers in the form [TG_LR_STATE_BEFORE] of versions with at most one warm-up. */
#define TG_LR_STATE_BEFORE (12 + TG_LR_MILESTONES)
void tg_lr_upgrade(const float before[TG_LR_STATE_BEFORE], float out[TG_LR_STATE]);
void tg_lr_encode(tg_lr lr, int64_t start, float out[TG_LR_STATE]);
/* The schedule with these numbers, for tg_lr_value (a decay between equal rates becomes a
 * constant). False if they are all zeros or not of a schedule: the optimiser's own is in force
 * then. The numbers of a file may be any finite ones. */
bool tg_lr_decode(const float in[TG_LR_STATE], tg_lr *lr, int64_t *start);
/* Encoded numbers [TG_LR_STATE] and steps taken (i32 rank 0) -> rate (f32 rank 0). An update is
 * `accumulate` steps. */
int32_t tg_lr_nodes(tg_graph *g, int32_t lr_state, int32_t t, int64_t accumulate);
/* The number, from 1 on, of the update that step number `steps` belongs to:
 * (steps - 1) / accumulate + 1. i32 rank 0. */
int32_t tg_lr_updates(tg_graph *g, int32_t steps, int64_t accumulate);
#endif
