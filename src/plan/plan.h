/* plan: shared by the files of this folder. A planner turns a fusion into a program: order, buffers, places. */
#ifndef TG_PLAN_H
#define TG_PLAN_H
#include "kernel/fuse.h"
#include "plan/program.h"

typedef struct tg_planner {
    tg_graph *graph;
    tg_context *ctx;
    tg_fusion fusion;
    tg_program *program;
    const tg_plan_options *options;
    tg_arena scratch;
    int32_t *outputs; /* nodes */
    int32_t output_count;
    int32_t *order; /* position -> group */
    int32_t order_count;
    int32_t *node_buffer, *item_buffer, *state_buffer; /* -1: none */
} tg_planner;

/* order.c: a total order in which every kernel finds its operands, and old states are read before they are overwritten. Moves
 * state writes to kernels of their own where that is the only way. */
tg_status tg_plan_order(tg_planner *p);
/* place.c: buffers with lifetimes, reuse in place, workspace offsets. */
tg_status tg_plan_buffers(tg_planner *p);
/* Elements of `argument`'s buffer that the kernel may touch through loads, gathers and operands: [*lo, *hi). */
void tg_kernel_read_range(const tg_kernel *kernel, int32_t argument, int64_t *lo, int64_t *hi);
/* The value that `store` writes may overwrite what argument `load` reads, element by element. */
bool tg_kernel_in_place(const tg_kernel *kernel, int32_t load_argument, const tg_instruction *store, int64_t store_offset);
#endif
