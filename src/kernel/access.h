/* access: affine arithmetic over loop indices, and how views turn an access of their result into an
 * access of their operand. Pure functions. Must not know fusion. */
#ifndef TG_ACCESS_H
#define TG_ACCESS_H
#include "ir/graph.h"
#include "kernel/kernel.h"

#define TG_MAX_BOUNDS 12

typedef struct tg_loops {
    int32_t count;
    int64_t extent[TG_MAX_LOOP];
} tg_loops;

/* Which element of a tensor a loop point touches: one affine for each axis, and bounds: where one
 * does not hold, there is no element. */
typedef struct tg_index_map {
    int32_t rank;
    int32_t bound_count;
    tg_affine index[TG_MAX_RANK];
    tg_bound bounds[TG_MAX_BOUNDS];
} tg_index_map;

typedef enum tg_push_status {
    TG_PUSH_OK,
    TG_PUSH_SPLIT, /* would be affine if loop `loop` were split into (extent / factor, factor) */
    TG_PUSH_NO     /* not affine, or too many bounds: the operand must be stored */
} tg_push_status;
typedef struct tg_push {
    tg_push_status status;
    int32_t loop;
    int64_t factor;
} tg_push;

tg_affine tg_affine_constant(int64_t value);
tg_affine tg_affine_loop(int32_t loop);
void tg_affine_add(tg_affine *sum, const tg_affine *term, int64_t factor);
/* Ignores strides of loops with extent 1. */
bool tg_affine_equal(const tg_affine *a, const tg_affine *b, const tg_loops *loops);
void tg_affine_range(const tg_affine *a, const tg_loops *loops, int64_t *lowest, int64_t *highest);
uint32_t tg_affine_loops(const tg_affine *a, const tg_loops *loops); /* bit k: depends on loop k */
/* Row-major over loops [begin, end). */
tg_affine tg_affine_row_major(const tg_loops *loops, int32_t begin, int32_t end);
void tg_affine_split(tg_affine *a, int32_t loop, int64_t factor, int32_t loop_count);

/* Row-major element offset in a contiguous tensor of `shape`. */
tg_affine tg_map_offset(const tg_index_map *map, tg_shape shape);
/* The index map of `shape` whose row-major offset is `flat`. */
tg_push tg_map_from_flat(const tg_affine *flat, tg_shape shape, const tg_loops *loops, tg_index_map *out);
/* map: an access of the result of view `node` (RESHAPE PERMUTE BROADCAST SLICE PAD FLIP WINDOW);
 * *out: the access of its operand, of shape `from`. */
tg_push tg_map_push(const tg_node *node, tg_shape from, const tg_index_map *map, const tg_loops *loops, tg_index_map *out);
/* map: an access of the result of FOLD `node`; *out: the access of the elements of its operand that
 * tap `tap` adds, with bounds that hold where there are any. *never: there are none. */
tg_push tg_map_fold(const tg_node *node, tg_shape from, int64_t tap, const tg_index_map *map, const tg_loops *loops, tg_index_map *out,
                    bool *never);
/* Adds lo <= at < hi unless it is always true. False: no room. */
bool tg_map_bound(tg_index_map *map, const tg_affine *at, int64_t lo, int64_t hi, const tg_loops *loops);
#endif
