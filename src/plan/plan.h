/* plan: shared by the files of this folder. A planner turns a fusion into a program: order,
 * buffers, places. */
#ifndef TG_PLAN_H
#define TG_PLAN_H
#include "kernel/fuse.h"
#include "plan/program.h"

/* Groups: `before` must run before `after`. item: the state write that asks for it, or -1 when
 * `after` reads what `before` makes. */
typedef struct tg_plan_edge {
    int32_t before, after, item;
} tg_plan_edge;

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
    /* between the groups of the order; may repeat */
    TG_LIST(tg_plan_edge) edges;
    /* position -> launch; one more, for the end */
    int32_t *launch_of;
    int32_t *node_buffer, *item_buffer, *state_buffer; /* -1: none */
} tg_planner;

/* lo <= every element <= hi */
typedef struct tg_plan_range {
    int64_t lo, hi;
} tg_plan_range;
/* range.c: the range of each i32 and bool node of g, as far as it can be known before anything
 * runs. O(nodes + literal data) */
void tg_plan_ranges(const tg_graph *g, tg_plan_range *out);

/* order.c: a total order in which each kernel finds its operands, and old states are read before
 * they are overwritten. Moves state writes to kernels of their own if that is the only way. */
tg_status tg_plan_order(tg_planner *p);
/* launch.c: kernels that start together: program->launches, and p->order along with them, which
 * `joined` says to have changed. */
tg_status tg_plan_launches(tg_planner *p, bool *joined);
/* Every kernel alone, in the order there is. */
tg_status tg_plan_launches_apart(tg_planner *p);
/* place.c: buffers with lifetimes, reuse in place, offsets. *fits: all that launches of several
 * kernels bind (tg_launch) is within the limit of the device. Forgets the result of an earlier
 * call. */
tg_status tg_plan_places(tg_planner *p, bool *fits);
/* place.c: the program's kernels, constants and outputs, once the places are settled. */
tg_status tg_plan_kernels(tg_planner *p);
/* bind.c: in a kernel that is launched alone, each range of a state that it touches becomes a
 * buffer, up to the device's max_arguments; accesses count from its beginning. Only for devices
 * that bind (in_words). False recorded. */
bool tg_plan_bind_states(tg_planner *p, tg_kernel *kernel, int32_t position);
/* The most buffers that makes, of a kernel whose arguments are references; 0: it touches no
 * state. */
int32_t tg_plan_most_bound(const tg_planner *p, const tg_kernel *kernel);
/* Elements of `argument`'s buffer that the kernel may touch through loads, gathers and operands:
 * [*lo, *hi). */
void tg_kernel_read_range(const tg_kernel *kernel, int32_t argument, int64_t *lo, int64_t *hi);
/* The value that `store` writes may overwrite what argument `load` reads, element by element. */
bool tg_kernel_in_place(const tg_kernel *kernel, int32_t load_argument, const tg_instruction *store, int64_t store_offset);
/* Do all accesses of `argument`, a buffer of `count` elements, keep to slice s of it while loop 0
 * keeps to block s? (tg_launch) */
bool tg_kernel_sliced(const tg_kernel *kernel, int32_t argument, int64_t count, int32_t slices);
/* State in which an unresolved argument lives, or -1. */
int32_t tg_plan_state_of(const tg_planner *p, int32_t reference);
#endif
