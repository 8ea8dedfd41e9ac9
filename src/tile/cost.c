/* cost: estimates of direct contractions and tiles. Must not know languages. */
#include "tile/cost.h"

#define COST_LEAST_PROCESSORS 8 /* processors that a kernel counts on where many run side by side */

#define COST_LEAST_SHARED 32 /* rows, columns of a result whose operands are read again and again */

/* A chain's workgroup has one processor to itself. */
static int64_t cost_processors(const tg_tile_room *room) {
    const int32_t all = room->device->rates->processors;
    if (room->frame.slices > 0) return 1;
    if (room->frame.share <= 1) return all;
    return tg_tile_max(all / room->frame.share, COST_LEAST_PROCESSORS);
}

/* A second stage that adds the partial sums. */
static double cost_of_parts(const tg_tile_problem *p, const tg_device_rates *rates, int64_t parts) {
    if (parts == 1) return 0.0;
    return rates->next_stage + 8.0 * (double)(tg_tile_outputs(p) * parts) / rates->traffic + rates->read_wait * (double)parts / 4.0;
}

static double cost_of_tiles(const tg_tile_problem *p, const tg_tile_room *room, const tg_tile_choice *c) {
    const tg_device_rates *rates = room->device->rates;
    const tg_tile_size *tile = &c->tile;
    const int64_t groups = p->batch * tg_tile_ceil(p->rows, tile->m) * tg_tile_ceil(p->columns, tile->n) * c->parts;
    const int64_t each = tg_tile_ceil(groups, cost_processors(room));
    const int64_t resident = tg_tile_min(each, tile->resident), pieces = tg_tile_ceil(c->part_length, tile->k);
    const double work = (double)tile->m * tile->n * tile->k / (rates->lanes * tile->rate);
    /* longer pieces: twice the reads */
    const double wait = tile->k > 16 ? 2.0 * rates->slice_wait : rates->slice_wait;
    const double piece = fmax((double)resident * work, wait);
    /* a last round that is not full is shorter, but not in proportion: whole rounds if there are
     * few */
    const double rounds = (double)tg_tile_ceil(each, resident);
    const double finish = (double)tile->m * tile->n / rates->lanes * rates->tile_finish;
    return rounds * ((double)pieces * piece + rates->tile_start + (double)resident * finish) + cost_of_parts(p, rates, c->parts);
}

/* Cycles that a warp's fetch of four k of one row takes of a processor: four loads with their
 * addresses, or one of a vector. Lanes that lie along k want k contiguous. Lanes along columns
 * share the left row and want the right columns contiguous; where they are fewer than a warp, the
 * warp holds several ways, each at its own k. */
static double cost_of_fetch(const tg_device_rates *rates, const tg_tile_operand *o, const tg_tile_choice *c, bool is_left) {
    const bool along_k = o->unit == TG_TILE_UNIT_K;
    const tg_device_fetch *fetch = o->can_widen && along_k ? &rates->wide : &rates->words;
    if (c->ways_first) return along_k ? fetch->neighbours : fetch->scattered;
    const double lanes = (double)tg_tile_min(32, c->size / c->ways), ways = 32.0 / lanes;
    if (along_k) return is_left ? fetch->together : fetch->together + fetch->scattered * lanes / 32.0;
    if (is_left || o->unit == TG_TILE_UNIT_ROW || o->row.count == 0) return fmin(fetch->together * ways, fetch->scattered);
    return fetch->scattered;
}

static double cost_of_direct(const tg_tile_problem *p, const tg_tile_room *room, const tg_tile_choice *c) {
    const tg_device_rates *rates = room->device->rates;
    const int64_t cells = p->batch * tg_tile_ceil(p->rows, c->own_m) * tg_tile_ceil(p->columns, c->own_n);
    const int64_t groups = tg_tile_ceil(cells, c->size / c->ways) * c->parts;
    const int64_t warps = tg_tile_ceil(c->size, 32), each = tg_tile_ceil(groups, cost_processors(room)) * warps;
    const int64_t resident = room->frame.slices > 0 ? warps : rates->warps;
    const int64_t rounds = tg_tile_ceil(each, resident);
    const int64_t steps = tg_tile_ceil(c->part_length, (int64_t)4 * c->ways);
    /* few rows or columns: most of what is read is read once, and nothing is shared */
    const bool shares = room->frame.slices == 0 && tg_tile_min(p->rows, p->columns) >= COST_LEAST_SHARED;
    const double crowded = shares ? rates->crowded : 1.0;
    const double left = crowded * cost_of_fetch(rates, &p->left, c, true), right = crowded * cost_of_fetch(rates, &p->right, c, false);
    const double step = c->own_m * left + c->own_n * right + rates->multiply_add * c->own_m * c->own_n;
    const double tree = c->ways > 1 ? rates->barrier * (2.0 + tg_tile_log2(c->ways)) : 0.0;
    const double walk = fmax((double)each * step, (double)rounds * rates->read_wait);
    return (double)steps * walk + (double)each * rates->warp_start + (double)rounds * (tree + 2.0 * rates->read_wait) +
           cost_of_parts(p, rates, c->parts);
}

double tg_tile_cost(const tg_tile_problem *problem, const tg_tile_room *room, const tg_tile_choice *choice) {
    return choice->method == TG_TILE_TILES ? cost_of_tiles(problem, room, choice) : cost_of_direct(problem, room, choice);
}

#undef COST_LEAST_PROCESSORS
#undef COST_LEAST_SHARED
