/* cost: the expected time of a laid-out contraction, in cycles of one processor of the device. Owns
 * the formulas; the rates are the device's. Pure functions. Must not know which choices there
 * are. */
#ifndef TG_TILE_COST_H
#define TG_TILE_COST_H
#include "tile/choice.h"

/* Of a choice of method DIRECT or TILES, with the time to add the parts. Reads only the sizes of
 * the choice, not `cycles`. */
double tg_tile_cost(const tg_tile_problem *problem, const tg_tile_room *room, const tg_tile_choice *choice);

/* x / y, rounded up; x >= 0, y > 0. */
static inline int64_t tg_tile_ceil(int64_t x, int64_t y) { return (x + y - 1) / y; }
static inline int64_t tg_tile_min(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t tg_tile_max(int64_t x, int64_t y) { return x > y ? x : y; }
/* The largest n such that 2^n <= x; x > 0. */
static inline int tg_tile_log2(int64_t x) {
    int bits = 0;
    while (x >> (bits + 1)) bits++;
    return bits;
}

#endif
