/* launch: how the kernels of one launch (tg_launch) are laid out together, and lists of the
 * schedules that a table may name. Owns the rule that chooses for launches of several kernels. Must
 * not know what the kernels compute or how they are written. */
#ifndef TG_TILE_LAUNCH_H
#define TG_TILE_LAUNCH_H
#include "kernel/device_model.h"
#include "plan/program.h"
#include "tile/schedule.h"

#define TG_TILE_KEY 128 /* room for the key of a schedule */

/* The frame that kernels of one launch share so that they fit together. All 0: a lone kernel. */
typedef struct tg_tile_frame {
    int32_t size;   /* invocations of each workgroup; 0: the best for the kernel */
    int32_t slices; /* of the chain; 0: no chain */
    int32_t share;  /* kernels that share the device at the same time */
    int32_t panel;  /* in a chain: most rows of a panel */
} tg_tile_frame;

/* What one kernel may take of a device: all, or what a launch of several kernels leaves it. */
typedef struct tg_tile_room {
    const tg_device_model *device;
    tg_tile_frame frame;
} tg_tile_room;

/* What one kernel may take of the workgroup memory for values of one type: the kernels of a launch
 * share the same arrays, one set for each type. */
int32_t tg_tile_workgroup_bytes(const tg_tile_room *room, bool vectors);

/* A schedule that a table may name for one launch; `order` is the order in which it was found. */
typedef struct tg_tile_candidate {
    tg_schedule schedule;
    double cycles; /* expected; 0: no estimate */
    int64_t order;
} tg_tile_candidate;
typedef struct tg_tile_candidates {
    char key[TG_TILE_KEY];
    tg_schedule chosen; /* by the rule */
    tg_tile_candidate *items;
    int64_t count, capacity;
} tg_tile_candidates;

/* TG_ERROR_MEMORY recorded; then nothing was added. */
tg_status tg_tile_add_candidate(tg_tile_candidates *candidates, tg_context *ctx, tg_schedule schedule, double cycles);
/* Cheapest first; of equals, in the order found. */
void tg_tile_sort_candidates(tg_tile_candidates *candidates);
void tg_tile_free_candidates(tg_tile_candidates *candidates, tg_context *ctx);

/* ---- launches of several kernels */

/* By the rule. */
tg_schedule tg_tile_launch_choose(const tg_launch *launch, const tg_device_model *device);
/* The entry of the device's table, if it is one of the schedules listed; else NULL. */
const tg_schedule *tg_tile_launch_find(const tg_program *program, const tg_launch *launch, const tg_device_model *device);
/* Adds each schedule, with the key and the choice of the rule. TG_ERROR_MEMORY recorded. */
tg_status tg_tile_launch_list(const tg_program *program, const tg_launch *launch, const tg_device_model *device, tg_context *ctx,
                              tg_tile_candidates *candidates);
/* The key of a launch's schedules: "chain of 77 kernels 128 slices 1a2b3c4d"; the number is a hash
 * of all kinds and extents. */
void tg_tile_launch_key(const tg_program *program, const tg_launch *launch, char key[TG_TILE_KEY]);
/* The frame that a schedule of kind CHAIN or BESIDE gives each kernel of the launch. */
tg_tile_frame tg_tile_launch_frame(const tg_launch *launch, const tg_schedule *schedule);

#endif
