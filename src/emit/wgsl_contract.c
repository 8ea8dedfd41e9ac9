/* wgsl_contract: contractions in WGSL. Owns the choice of method, addressing of the operands, tiles, partial sums and the loops
 * around the epilogue. Must not know what the epilogue computes (tg_wgsl_body prints it) nor devices beyond tg_device_model.
 *
 *   direct  an invocation owns a few outputs and walks k; several "ways" of one workgroup may share the k of an output and add
 *           their sums in a tree. Small outputs, short k, matrix times vector, many tiny matrices.
 *   panels  in a chain, where few rows meet many columns: the rows lie in workgroup memory, an invocation owns a column of all of them
 *           for a part of k, so that every element of the right operand is read once.
 *   tiles   a workgroup owns a tile of outputs and walks k slice by slice: operands go through workgroup memory, the next slice is
 *           on its way in registers meanwhile, each invocation keeps its part of the tile in registers. Where the device takes halves,
 *           operands are rounded to them on their way into workgroup memory; where it has subgroup matrices, large tiles are
 *           products of those (wgsl_subgroup.c).
 * Either may split k in parts: then a first stage leaves partial sums in scratch and a second adds them, always in the same order.
 *
 * Rows and columns: `right` is the operand along whose columns neighbouring invocations lie, so that stores coalesce; it is b, or a
 * when the store is contiguous along m. A row beyond the last is computed again from the last row and not stored; only the end of k
 * is padded with zeros. */
#include "emit/wgsl.h"

#include <stdio.h>
#include <string.h>

/* The merged loops of one group as one operand walks them, outermost first. */
typedef struct wgsl_contract_axis {
    int32_t count;
    int64_t extent[TG_MAX_LOOP], stride[TG_MAX_LOOP];
} wgsl_contract_axis;

typedef enum wgsl_contract_unit { WGSL_UNIT_NONE, WGSL_UNIT_K, WGSL_UNIT_ROW } wgsl_contract_unit;

typedef struct wgsl_contract_operand {
    const char *name; /* "left", "right" */
    int32_t argument;
    int64_t offset;
    int64_t slice;                    /* elements from one slice of a chain to the next */
    wgsl_contract_axis batch, row, k; /* row: rows of left, columns of right */
    wgsl_contract_unit unit;          /* the direction in which neighbours are neighbours in memory */
    bool can_widen;                   /* four neighbours along `unit` may be one vec4 */
    bool wide;                        /* they are: offset, strides and the extent along `unit` count vec4s */
    bool along_rows;                  /* tiles: a vec4 of workgroup memory holds four rows of one k; else four k of one row */
} wgsl_contract_operand;

/* Tiles: the sizes to choose from. A row more is a variant more. */
typedef struct wgsl_contract_tile {
    int32_t m, n, thread_m, thread_n, slice; /* all powers of two, thread_m, thread_n >= 4 */
    double rate;                             /* fraction of the multiply-adds of a multiprocessor that it reaches when it is full */
    int32_t resident;                        /* workgroups on one multiprocessor at a time */
    int32_t buffers;                         /* slices in workgroup memory */
    bool by_rows, unrolled;                  /* as tg_schedule has them */
    int32_t across;                          /* of subgroup matrices: subgroups side by side along n; 0: not of those */
} wgsl_contract_tile;
static const wgsl_contract_tile wgsl_contract_tiles[] = {
    {256, 128, 16, 8, 16, 0.70, 1, 1, false, true, 0}, /* 41.9 of 60 TFLOP/s measured on an H200; 24 KiB of workgroup memory */
    {128, 128, 16, 8, 8, 0.66, 2, 1, false, true, 0},  /* 128 multiply-adds per 6 vec4 reads; 40 of 60 */
    {128, 128, 8, 8, 8, 0.45, 2, 1, false, true, 0},   /* 64 per 4; of the size of those below, for kernels side by side */
    {128, 64, 8, 4, 16, 0.42, 3, 1, false, true, 0},
    {64, 128, 4, 8, 16, 0.42, 3, 1, false, true, 0},
    {64, 64, 4, 4, 16, 0.30, 4, 1, false, true, 0}, /* 16 multiply-adds per 2 vec4 reads: workgroup memory is the limit */
    {32, 64, 4, 4, 32, 0.28, 8, 1, false, true, 0}, /* four warps: little to hide a barrier behind, so half as many */
    {32, 64, 4, 4, 16, 0.28, 8, 1, false, true, 0},
    {32, 32, 4, 4, 32, 0.25, 16, 1, false, true, 0},
    {32, 32, 4, 4, 16, 0.25, 16, 1, false, true, 0},
    {128, 128, 8, 8, 32, 1.70, 2, 1, false, false, 4}, /* of subgroup matrices: 102 TFLOP/s of f32's 60 on an H200 */
    {64, 64, 4, 4, 32, 1.23, 4, 1, false, false, 4},   /* 74 of 60 */
};

/* Sizes that a schedule may ask for beside those above: outputs of a workgroup, of an invocation. */
static const int32_t wgsl_contract_shapes[][4] = {
    {256, 128, 16, 8}, {128, 256, 8, 16}, {128, 128, 16, 8}, {128, 128, 8, 16}, {128, 128, 8, 8}, {256, 64, 16, 8}, {64, 256, 8, 16},
    {128, 64, 16, 8},  {64, 128, 8, 16},  {128, 64, 8, 8},   {64, 128, 8, 8},   {64, 64, 8, 8},   {128, 64, 8, 4},  {64, 128, 4, 8},
    {64, 64, 8, 4},    {64, 64, 4, 8},    {64, 64, 4, 4},    {64, 32, 8, 4},    {32, 64, 4, 8},   {32, 64, 4, 4},   {32, 32, 4, 4},
};

/* Direct: outputs of one invocation. */
static const int32_t wgsl_contract_blocks[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 4}, {4, 1}, {2, 2}, {2, 4}, {4, 4}};

typedef struct wgsl_contract_choice {
    wgsl_contract_tile tile; /* m 0: direct, or panels */
    int32_t panel;           /* rows of a panel; 0: no panels */
    int32_t lanes;           /* panels: columns side by side, a power of two */
    int32_t panel_k;         /* of k in workgroup memory at a time, a multiple of 4 */
    int32_t thread_m, thread_n;
    int32_t size;        /* invocations of a workgroup */
    int32_t ways;        /* direct: invocations that share an output's k */
    bool ways_first;     /* direct: neighbouring invocations are ways, not outputs */
    int64_t parts;       /* of k, by workgroups */
    int64_t part_length; /* of k, a multiple of 4, or of the slice */
    double cycles;       /* what the cost function thinks */
} wgsl_contract_choice;

typedef struct wgsl_contract_state {
    tg_wgsl *w;
    wgsl_contract_operand left, right;
    bool swapped; /* left is b: rows are n, columns are m */
    int64_t batch, rows, columns, k;
    wgsl_contract_choice choice;
    bool halves;               /* operands lie in workgroup memory as those */
    tg_wgsl_matrices matrices; /* where the tile is of those; size 0: it is not */
    int64_t scratch;           /* first word */
} wgsl_contract_state;

/* What a walk over all methods is for: the cheapest; the one that is wanted; all of them. */
typedef struct wgsl_contract_search {
    wgsl_contract_choice best; /* size 0: none yet */
    const tg_schedule *wanted;
    tg_wgsl_offers *offers;
    bool failed; /* no memory for the offers */
} wgsl_contract_search;

static int64_t wgsl_contract_ceil(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t wgsl_contract_min(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t wgsl_contract_max(int64_t x, int64_t y) { return x > y ? x : y; }
static double wgsl_contract_larger(double x, double y) { return x > y ? x : y; }
static double wgsl_contract_smaller(double x, double y) { return x < y ? x : y; }
static int wgsl_contract_log2(int64_t x) {
    int bits = 0;
    while (x >> (bits + 1)) bits++;
    return bits;
}

/* ---------------------------------------------------------------- the problem */

static wgsl_contract_axis wgsl_contract_make_axis(const tg_wgsl *w, const tg_affine *at, int32_t from, int32_t to) {
    wgsl_contract_axis axis = {0};
    for (int32_t d = from; d < to; d++) {
        const int64_t extent = w->extent[d], stride = at->stride[d];
        if (extent == 1) continue;
        if (axis.count > 0 && axis.stride[axis.count - 1] == stride * extent) {
            axis.extent[axis.count - 1] *= extent;
            axis.stride[axis.count - 1] = stride;
        } else {
            axis.extent[axis.count] = extent;
            axis.stride[axis.count++] = stride;
        }
    }
    return axis;
}

static bool wgsl_contract_is_unit(const wgsl_contract_axis *axis) { return axis->count > 0 && axis->stride[axis->count - 1] == 1; }

/* Every step but the last one of `unit` is a multiple of 4, and so is the length of that. */
static bool wgsl_contract_by_fours(const wgsl_contract_axis *axis, bool unit) {
    for (int32_t d = 0; d < axis->count; d++) {
        const bool innermost = unit && d == axis->count - 1;
        if (innermost ? axis->extent[d] % 4 != 0 : axis->stride[d] % 4 != 0) return false;
    }
    return true;
}

static wgsl_contract_operand wgsl_contract_make_operand(const tg_wgsl *w, const tg_operand_access *access, const char *name, int32_t from,
                                                        int32_t to) {
    const tg_kernel *kernel = w->kernel;
    wgsl_contract_operand o = {.name = name, .argument = access->argument, .offset = access->at.offset};
    o.slice = access->at.stride[0] * w->extent[0];
    o.batch = wgsl_contract_make_axis(w, &access->at, 0, kernel->m_begin);
    o.row = wgsl_contract_make_axis(w, &access->at, from, to);
    o.k = wgsl_contract_make_axis(w, &access->at, kernel->outer_count, kernel->loop_count);
    o.unit = wgsl_contract_is_unit(&o.k) ? WGSL_UNIT_K : wgsl_contract_is_unit(&o.row) ? WGSL_UNIT_ROW : WGSL_UNIT_NONE;
    o.can_widen = tg_wgsl_may_widen(w, o.argument) && o.unit != WGSL_UNIT_NONE && o.offset % 4 == 0 && o.slice % 4 == 0 &&
                  tg_wgsl_count(w, o.argument) % 4 == 0 && wgsl_contract_by_fours(&o.batch, false) &&
                  wgsl_contract_by_fours(&o.row, o.unit == WGSL_UNIT_ROW) && wgsl_contract_by_fours(&o.k, o.unit == WGSL_UNIT_K) &&
                  !tg_wgsl_body_touches(w, o.argument);
    return o;
}

/* Whether the first store is contiguous along m and not along n (or there is no n to be contiguous along). */
static bool wgsl_contract_swaps(const tg_kernel *kernel) {
    if (kernel->n_begin == kernel->outer_count) return kernel->n_begin > kernel->m_begin;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (kernel->body[i].op != TG_K_STORE) continue;
        const int64_t *stride = kernel->body[i].at.stride;
        return stride[kernel->outer_count - 1] != 1 && kernel->n_begin > kernel->m_begin && stride[kernel->n_begin - 1] == 1;
    }
    return false;
}

static wgsl_contract_state wgsl_contract_make(tg_wgsl *w) {
    const tg_kernel *kernel = w->kernel;
    wgsl_contract_state s = {.w = w, .swapped = wgsl_contract_swaps(kernel)};
    const int64_t m = tg_wgsl_points(w, kernel->m_begin, kernel->n_begin), n = tg_wgsl_points(w, kernel->n_begin, kernel->outer_count);
    s.batch = tg_wgsl_points(w, 0, kernel->m_begin);
    s.rows = s.swapped ? n : m;
    s.columns = s.swapped ? m : n;
    s.k = tg_wgsl_points(w, kernel->outer_count, kernel->loop_count);
    wgsl_contract_operand a = wgsl_contract_make_operand(w, &kernel->a, s.swapped ? "right" : "left", kernel->m_begin, kernel->n_begin);
    wgsl_contract_operand b = wgsl_contract_make_operand(w, &kernel->b, s.swapped ? "left" : "right", kernel->n_begin, kernel->outer_count);
    if (a.argument == b.argument) a.can_widen = b.can_widen = a.can_widen && b.can_widen;
    s.left = s.swapped ? b : a;
    s.right = s.swapped ? a : b;
    return s;
}

static void wgsl_contract_narrow_axis(wgsl_contract_axis *axis, bool unit) {
    for (int32_t d = 0; d < axis->count; d++) {
        if (unit && d == axis->count - 1) axis->extent[d] /= 4;
        else axis->stride[d] /= 4;
    }
}

/* From elements to vec4s. */
static void wgsl_contract_widen(wgsl_contract_operand *o) {
    wgsl_contract_narrow_axis(&o->batch, false);
    wgsl_contract_narrow_axis(&o->row, o->unit == WGSL_UNIT_ROW);
    wgsl_contract_narrow_axis(&o->k, o->unit == WGSL_UNIT_K);
    o->offset /= 4;
    o->slice /= 4;
    o->wide = true;
}

/* ---------------------------------------------------------------- the choice
 * One estimate, in cycles of one multiprocessor, by the rates of the device's model. */

#define WGSL_CONTRACT_LEAST_PROCESSORS 8 /* what a kernel counts on where many run side by side */
#define WGSL_CONTRACT_MOST_PARTS 64
#define WGSL_CONTRACT_MOST_SCRATCH (32 << 20) /* bytes; a binding holds 128 MiB */
/* A sum is one chain of additions up to so many; then it is added to a total and starts anew, so that the error stays that of
 * a few hundred additions (relative 1e-6 at K = 4096). Larger blocks have no registers for totals: their chains are longer, so that
 * the totals may lie in memory meanwhile. */
#define WGSL_CONTRACT_CHAIN 512
#define WGSL_CONTRACT_LONG_CHAIN 4096
#define WGSL_CONTRACT_MOST_TOTALS 32
#define WGSL_CONTRACT_SHORT_BODY 16 /* instructions of an epilogue that may be printed once for each output */

static int64_t wgsl_contract_processors(const tg_wgsl *w) {
    const int32_t all = w->limits->rates->processors;
    if (w->frame.slices > 0) return 1;
    if (w->frame.share <= 1) return all;
    return wgsl_contract_max(all / w->frame.share, WGSL_CONTRACT_LEAST_PROCESSORS);
}

static int64_t wgsl_contract_outputs(const wgsl_contract_state *s) { return s->batch * s->rows * s->columns; }

static double wgsl_contract_parts_cost(const wgsl_contract_state *s, int64_t parts) {
    const tg_device_rates *rates = s->w->limits->rates;
    if (parts == 1) return 0.0;
    return rates->next_stage + 8.0 * (double)(wgsl_contract_outputs(s) * parts) / rates->traffic + rates->read_wait * (double)parts / 4.0;
}

static double wgsl_contract_tile_cost(const wgsl_contract_state *s, const wgsl_contract_choice *c) {
    const tg_device_rates *rates = s->w->limits->rates;
    const wgsl_contract_tile *tile = &c->tile;
    const int64_t groups = s->batch * wgsl_contract_ceil(s->rows, tile->m) * wgsl_contract_ceil(s->columns, tile->n) * c->parts;
    const int64_t each = wgsl_contract_ceil(groups, wgsl_contract_processors(s->w));
    const int64_t resident = wgsl_contract_min(each, tile->resident), slices = wgsl_contract_ceil(c->part_length, tile->slice);
    const double work = (double)tile->m * tile->n * tile->slice / (rates->lanes * tile->rate);
    const double wait = tile->slice > 16 ? 2.0 * rates->slice_wait : rates->slice_wait; /* for twice the reads */
    const double slice = wgsl_contract_larger((double)resident * work, wait);
    /* a last round that is not full is shorter, but not in proportion: whole rounds when there are few */
    const double rounds = (double)wgsl_contract_ceil(each, resident);
    const double finish = (double)tile->m * tile->n / rates->lanes * rates->tile_finish;
    return rounds * ((double)slices * slice + rates->tile_start + (double)resident * finish) + wgsl_contract_parts_cost(s, c->parts);
}

/* Cycles that a warp's fetch of four k of one row takes of a multiprocessor: four loads with their addresses, or one of a vec4.
 * Lanes that lie along k want k contiguous. Lanes along columns share the left row and want the right columns contiguous; where
 * they are fewer than a warp, the warp holds several ways, each at its own k. */
static double wgsl_contract_fetch_cost(const tg_device_rates *rates, const wgsl_contract_operand *o, const wgsl_contract_choice *c,
                                       bool is_left) {
    const tg_device_fetch *fetch = o->can_widen && o->unit == WGSL_UNIT_K ? &rates->wide : &rates->words;
    const double together = fetch->together, scattered = fetch->scattered;
    if (c->ways_first) return o->unit == WGSL_UNIT_K ? fetch->neighbours : scattered;
    const double lanes = (double)wgsl_contract_min(32, c->size / c->ways), ways = 32.0 / lanes;
    if (o->unit == WGSL_UNIT_K) return is_left ? together : together + scattered * lanes / 32.0;
    if (is_left || o->unit == WGSL_UNIT_ROW || o->row.count == 0) return wgsl_contract_smaller(together * ways, scattered);
    return scattered;
}

static double wgsl_contract_direct_cost(const wgsl_contract_state *s, const wgsl_contract_choice *c) {
    const tg_device_rates *rates = s->w->limits->rates;
    const int64_t cells = s->batch * wgsl_contract_ceil(s->rows, c->thread_m) * wgsl_contract_ceil(s->columns, c->thread_n);
    const int64_t groups = wgsl_contract_ceil(cells, c->size / c->ways) * c->parts;
    const int64_t each = wgsl_contract_ceil(groups, wgsl_contract_processors(s->w)) * wgsl_contract_ceil(c->size, 32); /* warps */
    const int64_t resident = s->w->frame.slices > 0 ? wgsl_contract_ceil(c->size, 32) : rates->warps;
    const int64_t rounds = wgsl_contract_ceil(each, resident);
    const int64_t steps = wgsl_contract_ceil(c->part_length, (int64_t)4 * c->ways);
    const double left = wgsl_contract_fetch_cost(rates, &s->left, c, true), right = wgsl_contract_fetch_cost(rates, &s->right, c, false);
    const double step = c->thread_m * left + c->thread_n * right + rates->multiply_add * c->thread_m * c->thread_n;
    const double tree = c->ways > 1 ? rates->barrier * (2.0 + wgsl_contract_log2(c->ways)) : 0.0;
    const double walk = wgsl_contract_larger((double)each * step, (double)rounds * rates->read_wait);
    return (double)steps * walk + (double)each * rates->warp_start + (double)rounds * (tree + 2.0 * rates->read_wait) +
           wgsl_contract_parts_cost(s, c->parts);
}

/* Fits the parts to whole steps of `step`; says whether that many parts are worth looking at. */
static bool wgsl_contract_cut(const wgsl_contract_state *s, wgsl_contract_choice *c, int64_t parts, int64_t step) {
    c->part_length = wgsl_contract_ceil(wgsl_contract_ceil(s->k, parts), step) * step;
    c->parts = wgsl_contract_max(wgsl_contract_ceil(s->k, c->part_length), 1);
    if (parts == 1) return true;
    return s->w->frame.slices == 0 && c->parts > 1 && s->k >= 4 * step * parts &&
           wgsl_contract_outputs(s) * c->parts <= WGSL_CONTRACT_MOST_SCRATCH / 4;
}

static tg_schedule wgsl_contract_schedule(const wgsl_contract_choice *c) {
    tg_schedule schedule = {.rows = c->thread_m, .columns = c->thread_n, .size = c->size, .parts = (int32_t)c->parts};
    if (c->tile.m > 0) {
        schedule.kind = TG_SCHEDULE_TILES;
        schedule.tile_m = c->tile.m;
        schedule.tile_n = c->tile.n;
        schedule.slice = c->tile.slice;
        schedule.buffers = c->tile.buffers;
        schedule.by_rows = c->tile.by_rows;
        schedule.unrolled = c->tile.unrolled;
    } else {
        schedule.kind = TG_SCHEDULE_DIRECT;
        schedule.ways = c->ways;
        schedule.ways_first = c->ways_first;
    }
    return schedule;
}

static void wgsl_contract_offer(const wgsl_contract_state *s, wgsl_contract_search *search, const wgsl_contract_choice *c) {
    if (search->offers != NULL) {
        if (!tg_wgsl_add_offer(s->w, wgsl_contract_schedule(c), c->cycles)) search->failed = true;
        return;
    }
    if (search->wanted != NULL) {
        const tg_schedule schedule = wgsl_contract_schedule(c);
        if (tg_schedule_equal(&schedule, search->wanted)) search->best = *c;
        return;
    }
    if (search->best.size == 0 || c->cycles < search->best.cycles) search->best = *c;
}

/* Of workgroups of `size`, which have as many subgroups below one another as they need to be full. */
static tg_wgsl_matrices wgsl_contract_make_matrices(const wgsl_contract_state *s, const wgsl_contract_tile *tile, int32_t size) {
    tg_wgsl_matrices m = {.slice = tile->slice, .size = size};
    const int32_t down = size / s->w->limits->matrix_subgroup / tile->across;
    m.left = (tg_wgsl_half){"left", tile->m, tile->m * tile->slice / 4 / size, s->left.along_rows, down};
    m.right = (tg_wgsl_half){"right", tile->n, tile->n * tile->slice / 4 / size, s->right.along_rows, tile->across};
    return m;
}

/* They need a module of their own. */
static bool wgsl_contract_matrices_fit(const wgsl_contract_state *s, const wgsl_contract_tile *tile, int32_t size) {
    const tg_device_model *limits = s->w->limits;
    if (!limits->f16 || limits->matrix_subgroup == 0 || !tg_wgsl_is_lone(s->w) || size > limits->invocations) return false;
    const tg_wgsl_matrices m = wgsl_contract_make_matrices(s, tile, size);
    if (m.left.subgroups == 0 || tile->m / m.left.subgroups % TG_WGSL_MATRIX != 0 || tile->n / tile->across % TG_WGSL_MATRIX != 0)
        return false;
    return tg_wgsl_matrix_bytes(&m) <= limits->workgroup_bytes;
}

/* What the printed text takes for granted, and what the device has. */
static bool wgsl_contract_tile_fits(const wgsl_contract_state *s, const wgsl_contract_tile *tile, int32_t size) {
    const int32_t bytes = (tile->m + tile->n) * tile->slice * (s->w->limits->f16 ? 2 : 4) * tile->buffers;
    if (tile->across > 0) return wgsl_contract_matrices_fit(s, tile, size);
    if (size > s->w->limits->invocations || bytes > tg_wgsl_workgroup_bytes(s->w, true)) return false;
    if (!tg_wgsl_is_lone(s->w) && size != s->w->frame.size) return false;
    return size >= 64 && tile->m / tile->thread_m >= 8 && tile->n / tile->thread_n >= 8 && tile->m * tile->slice / 4 % size == 0 &&
           tile->n * tile->slice / 4 % size == 0;
}

/* Beside others the text of all counts, and it has not been measured there. */
static bool wgsl_contract_may_unroll(const wgsl_contract_state *s, const wgsl_contract_choice *c) {
    return tg_wgsl_is_lone(s->w) && (c->parts > 1 || s->w->kernel->body_count <= WGSL_CONTRACT_SHORT_BODY);
}

static bool wgsl_contract_wants_all(const wgsl_contract_search *search) { return search->wanted != NULL || search->offers != NULL; }

static void wgsl_contract_try_tile(const wgsl_contract_state *s, const wgsl_contract_tile *tile, wgsl_contract_search *search) {
    wgsl_contract_choice c = {.tile = *tile, .thread_m = tile->thread_m, .thread_n = tile->thread_n, .ways = 1};
    c.size = tile->m / tile->thread_m * (tile->n / tile->thread_n);
    if (!wgsl_contract_tile_fits(s, tile, c.size)) return;
    for (int64_t parts = 1; parts <= WGSL_CONTRACT_MOST_PARTS; parts *= 2) {
        if (!wgsl_contract_cut(s, &c, parts, tile->slice)) continue;
        c.tile.unrolled = tile->unrolled && wgsl_contract_may_unroll(s, &c);
        if (c.tile.unrolled != tile->unrolled && wgsl_contract_wants_all(search)) continue; /* the same as without */
        c.cycles = wgsl_contract_tile_cost(s, &c);
        wgsl_contract_offer(s, search, &c);
    }
}

/* Whether four k of the left operand can be walked in either order: they are not four rows already, as wgsl_contract_choose decides. */
static bool wgsl_contract_has_orders(const wgsl_contract_state *s) {
    const bool right_by_k = !(s->right.can_widen && s->right.unit == WGSL_UNIT_ROW);
    return !right_by_k && !(s->left.can_widen && s->left.unit == WGSL_UNIT_ROW);
}

/* Every tile of one shape that a schedule may ask for. Rates and residents by those measured, and by registers. */
static void wgsl_contract_try_shape(const wgsl_contract_state *s, const int32_t shape[4], wgsl_contract_search *search) {
    const int32_t outputs = shape[2] * shape[3], size = shape[0] * shape[1] / outputs;
    wgsl_contract_tile tile = {.m = shape[0], .n = shape[1], .thread_m = shape[2], .thread_n = shape[3]};
    tile.rate = outputs >= 128 ? 0.64 : outputs >= 64 ? 0.45 : outputs >= 32 ? 0.42 : 0.28;
    tile.resident = (int32_t)wgsl_contract_max(65536 / (size * (outputs + 64)), 1);
    for (tile.slice = 8; tile.slice <= 32; tile.slice *= 2)
        for (int i = 0; i < 8; i++) {
            tile.buffers = i & 1 ? 2 : 1;
            tile.by_rows = (i & 2) != 0;
            tile.unrolled = (i & 4) != 0;
            if (tile.by_rows && !wgsl_contract_has_orders(s)) continue;
            wgsl_contract_try_tile(s, &tile, search);
        }
}

/* Not in a chain, whose workgroups are larger where they may be, and whose panels take the workgroup memory where not. */
static void wgsl_contract_try_tiles(const wgsl_contract_state *s, wgsl_contract_search *search) {
    if (s->w->limits->slow_barriers || s->w->frame.slices > 0) return;
    if (wgsl_contract_wants_all(search)) {
        for (size_t i = 0; i < sizeof wgsl_contract_shapes / sizeof wgsl_contract_shapes[0]; i++)
            wgsl_contract_try_shape(s, wgsl_contract_shapes[i], search);
        return;
    }
    for (size_t i = 0; i < sizeof wgsl_contract_tiles / sizeof wgsl_contract_tiles[0]; i++)
        if (tg_wgsl_is_lone(s->w) || wgsl_contract_tiles[i].m < 256) wgsl_contract_try_tile(s, &wgsl_contract_tiles[i], search);
}

static void wgsl_contract_try_ways(const wgsl_contract_state *s, wgsl_contract_choice c, wgsl_contract_search *search) {
    const int64_t bytes = (int64_t)4 * c.thread_m * c.thread_n * c.size;
    for (c.ways = 1; c.ways <= c.size; c.ways *= 2) {
        if (c.ways > 1 && (s->w->limits->slow_barriers || s->k < (int64_t)4 * c.ways || bytes > tg_wgsl_workgroup_bytes(s->w, false) ||
                           c.thread_m * c.thread_n > 4))
            break;
        for (int64_t parts = 1; parts <= WGSL_CONTRACT_MOST_PARTS; parts *= 2) {
            if (!wgsl_contract_cut(s, &c, parts, (int64_t)4 * c.ways)) continue;
            for (int first = 0; first < (c.ways >= 8 ? 2 : 1); first++) {
                c.ways_first = first == 1;
                c.cycles = wgsl_contract_direct_cost(s, &c);
                wgsl_contract_offer(s, search, &c);
            }
        }
    }
}

static void wgsl_contract_try_direct(const wgsl_contract_state *s, wgsl_contract_search *search) {
    for (size_t i = 0; i < sizeof wgsl_contract_blocks / sizeof wgsl_contract_blocks[0]; i++) {
        wgsl_contract_choice c = {.thread_m = wgsl_contract_blocks[i][0], .thread_n = wgsl_contract_blocks[i][1]};
        if (c.thread_m > s->rows || c.thread_n > s->columns) continue;
        c.size = s->w->frame.size;
        if (c.size > 0) wgsl_contract_try_ways(s, c, search);
        else
            for (c.size = 64; c.size <= wgsl_contract_min(256, s->w->limits->invocations); c.size *= 4)
                wgsl_contract_try_ways(s, c, search);
    }
}

#define WGSL_CONTRACT_PANEL_COLUMNS 12 /* with fewer, most invocations would only help to add */

/* Panels, where they apply: every element of the right operand once from memory, the left ones from workgroup memory, is always
 * better than what the direct method reads. */
static bool wgsl_contract_try_panels(const wgsl_contract_state *s, wgsl_contract_choice *choice) {
    const tg_wgsl *w = s->w;
    const int64_t vectors = tg_wgsl_workgroup_bytes(w, true) / 16;
    if (w->frame.slices == 0 || w->limits->slow_barriers || s->batch != 1 || s->columns < WGSL_CONTRACT_PANEL_COLUMNS || s->k < 8 ||
        s->k > 4 * WGSL_CONTRACT_CHAIN)
        return false;
    wgsl_contract_choice c = {.thread_m = 1, .thread_n = 1, .size = w->frame.size, .parts = 1};
    const int64_t panels = wgsl_contract_ceil(s->rows, w->frame.panel);
    c.panel = (int32_t)wgsl_contract_ceil(s->rows, panels);
    c.lanes = 1;
    while (c.lanes < s->columns && c.lanes < c.size) c.lanes *= 2;
    for (c.ways = c.size / c.lanes; c.ways > 1 && 4 * c.ways > s->k;) c.ways /= 2;
    c.part_length = wgsl_contract_ceil(s->k, 4) * 4;
    c.panel_k = (int32_t)wgsl_contract_min(c.part_length, vectors / c.panel * 4);
    if ((int64_t)c.size * wgsl_contract_ceil(c.panel, 4) > vectors || c.panel_k < 4 * c.ways) return false;
    *choice = c;
    return true;
}

static void wgsl_contract_walk(const wgsl_contract_state *s, wgsl_contract_search *search) {
    wgsl_contract_try_direct(s, search); /* first: of equals, the simpler one */
    wgsl_contract_try_tiles(s, search);
}

static const char *wgsl_contract_class(const wgsl_contract_operand *o) {
    static const char *const names[3][2] = {{"scattered", "scattered"}, {"k", "4k"}, {"row", "4row"}};
    return names[o->unit][o->can_widen ? 1 : 0];
}

/* What schedules of this contraction are looked up by: its extents, how its operands lie, and how much there is to do at an output. */
static void wgsl_contract_key(const wgsl_contract_state *s, char key[TG_WGSL_KEY]) {
    const int32_t body = s->w->kernel->body_count;
    snprintf(key, TG_WGSL_KEY, "contract %lldx%lldx%lldx%lld %s %s %s", (long long)s->batch, (long long)s->rows, (long long)s->columns,
             (long long)s->k, wgsl_contract_class(&s->left), wgsl_contract_class(&s->right),
             body <= 2                          ? "stored"
             : body <= WGSL_CONTRACT_SHORT_BODY ? "short"
                                                : "long");
}

/* A lone kernel may be laid out as the device's table says, where that is a way at all. Tables are of f32. */
static bool wgsl_contract_take_tuned(wgsl_contract_state *s) {
    char key[TG_WGSL_KEY];
    if (s->w->limits->schedules == NULL || s->w->limits->f16 || !tg_wgsl_is_lone(s->w)) return false;
    wgsl_contract_key(s, key);
    wgsl_contract_search search = {.wanted = tg_schedule_find(s->w->limits->schedules, key)};
    if (search.wanted == NULL) return false;
    wgsl_contract_walk(s, &search);
    if (search.best.size == 0) return false;
    s->choice = search.best;
    s->w->tuned = true;
    return true;
}

static void wgsl_contract_choose(wgsl_contract_state *s) {
    wgsl_contract_search search = {.wanted = NULL};
    if (!wgsl_contract_take_tuned(s) && !wgsl_contract_try_panels(s, &s->choice)) {
        wgsl_contract_walk(s, &search);
        s->choice = search.best;
    }
    const bool tiles = s->choice.tile.m > 0;
    s->halves = tiles && s->w->limits->f16;
    wgsl_contract_operand *both[2] = {&s->left, &s->right};
    bool wide[2];
    for (int i = 0; i < 2; i++) wide[i] = both[i]->can_widen && (tiles || both[i]->unit == WGSL_UNIT_K);
    if (s->left.argument == s->right.argument) wide[0] = wide[1] = wide[0] && wide[1];
    for (int i = 0; i < 2; i++) {
        if (wide[i]) wgsl_contract_widen(both[i]);
        both[i]->along_rows = wide[i] && both[i]->unit == WGSL_UNIT_ROW;
    }
    if (s->choice.tile.across > 0) s->matrices = wgsl_contract_make_matrices(s, &s->choice.tile, s->choice.size);
}

static bool wgsl_contract_of_matrices(const wgsl_contract_state *s) { return s->matrices.size > 0; }

/* ---------------------------------------------------------------- small things to print */

#define WGSL_CONTRACT_TEXT 160

/* sum over the axis's loops of stride * index, from the flat number `x` (an operand that binds tighter than /) */
static void wgsl_contract_offset(tg_text_buffer *text, const wgsl_contract_axis *axis, const char *x, bool first) {
    int64_t below = 1;
    for (int32_t d = 0; d < axis->count; d++) below *= axis->extent[d];
    for (int32_t d = 0; d < axis->count; d++) {
        below /= axis->extent[d];
        const int64_t stride = axis->stride[d], size = stride < 0 ? -stride : stride;
        if (stride == 0) continue;
        tg_text_add(text, "%s", first ? (stride < 0 ? "-" : "") : stride < 0 ? " - " : " + ");
        first = false;
        tg_text_add(text, "%s", x);
        if (below > 1) tg_text_add(text, " / %lld", (long long)below);
        if (d > 0) tg_text_add(text, " %% %lld", (long long)axis->extent[d]);
        if (size != 1) tg_text_add(text, " * %lld", (long long)size);
    }
    if (first) tg_text_add(text, "0");
}

/* let left_0 = address of row `row` at k = 0; `row` counts vec4s for an operand wide along rows */
static void wgsl_contract_row(wgsl_contract_state *s, const wgsl_contract_operand *o, int32_t i, const char *row) {
    tg_text_buffer *text = &s->w->main;
    tg_wgsl_start(s->w);
    tg_text_add(text, "let %s_%d = %s_base", o->name, (int)i, o->name);
    wgsl_contract_offset(text, &o->row, row, false);
    tg_text_add(text, ";");
    tg_wgsl_newline(s->w);
}

static void wgsl_contract_base(wgsl_contract_state *s, const wgsl_contract_operand *o) {
    tg_text_buffer *text = &s->w->main;
    tg_wgsl_use(s->w, o->argument);
    if (o->wide) s->w->wide[o->argument] = true;
    tg_wgsl_start(s->w);
    tg_text_add(text, "let %s_base = ", o->name);
    tg_wgsl_slice(s->w, o->slice);
    tg_text_add(text, "%lld", (long long)o->offset);
    if (o->batch.count > 0) wgsl_contract_offset(text, &o->batch, "batch", false);
    tg_text_add(text, ";");
    tg_wgsl_newline(s->w);
}

/* ---------------------------------------------------------------- fetching operands */

/* What the callers know of k: every fetch is within it, every fetch of four is within it or beyond it, or neither. */
typedef enum wgsl_contract_end { WGSL_END_EXACT, WGSL_END_FOURS, WGSL_END_ANY } wgsl_contract_end;

static wgsl_contract_end wgsl_contract_end_of(const wgsl_contract_state *s, int64_t step) {
    if (s->k % step == 0 && s->choice.part_length % step == 0 && s->k % s->choice.part_length % step == 0) return WGSL_END_EXACT;
    return s->k % 4 == 0 ? WGSL_END_FOURS : WGSL_END_ANY;
}

static void wgsl_contract_element(tg_text_buffer *text, const wgsl_contract_operand *o, const char *k) {
    tg_text_add(text, "a%d[row", (int)o->argument);
    wgsl_contract_offset(text, &o->k, k, false);
    tg_text_add(text, "]");
}

static void wgsl_contract_fetch_scalars(tg_text_buffer *text, const wgsl_contract_state *s, const wgsl_contract_operand *o,
                                        wgsl_contract_end end) {
    static const char *const k[4] = {"k", "(k + 1)", "(k + 2)", "(k + 3)"};
    const bool guarded = end == WGSL_END_ANY && (s->choice.tile.m > 0 || s->k > 4); /* direct, at most four: the only step, k = 0 */
    tg_text_add(text, "    var v = vec4<f32>();\n");
    for (int i = 0; i < 4; i++) {
        if (end == WGSL_END_ANY && !guarded && i >= s->k) break;
        tg_text_add(text, "    ");
        if (guarded) tg_text_add(text, "if (k + %d < k_end) { ", i);
        tg_text_add(text, "v.%c = ", "xyzw"[i]);
        wgsl_contract_element(text, o, k[i]);
        tg_text_add(text, guarded ? "; }\n" : ";\n");
    }
    tg_text_add(text, "    return v;\n}\n");
}

/* fn fetch_left(row, k, k_end): four k of one row from k on, or one k of four rows. k is a multiple of 4, or any. */
static void wgsl_contract_fetch(wgsl_contract_state *s, const wgsl_contract_operand *o, wgsl_contract_end end) {
    tg_text_buffer *text = &s->w->globals;
    tg_text_add(text, "// %s at address row, from k on; 0 beyond k_end\n", o->along_rows ? "four rows" : "four k of the row");
    tg_text_add(text, "fn fetch_%s(row: i32, k: i32, k_end: i32) -> vec4<f32> {\n", o->name);
    const bool whole = end != WGSL_END_EXACT && (o->along_rows || end == WGSL_END_FOURS);
    if (whole) tg_text_add(text, "    if (k >= k_end) { return vec4<f32>(); }\n");
    if (!o->wide) {
        wgsl_contract_fetch_scalars(text, s, o, end);
        return;
    }
    tg_text_add(text, "    return ");
    wgsl_contract_element(text, o, o->along_rows ? "k" : "(k / 4)");
    tg_text_add(text, ";\n}\n");
}

/* ---------------------------------------------------------------- after the sums */

/* How a stage that holds `m` x `n` sums an invocation names things; i and j are i32 variables (absent where there is one). */
typedef struct wgsl_contract_points {
    int32_t m, n;
    const char *row, *column, *sum;
    bool row_guard, column_guard;
} wgsl_contract_points;

static void wgsl_contract_point(wgsl_contract_state *s, const wgsl_contract_points *p, bool partial) {
    tg_wgsl *w = s->w;
    const tg_kernel *kernel = w->kernel;
    if (partial) {
        tg_wgsl_line(w, "scratch[%lld + ((part * %lld + batch) * %lld + row) * %lld + column] = %s;", (long long)s->scratch,
                     (long long)s->batch, (long long)s->rows, (long long)s->columns, p->sum);
        return;
    }
    tg_wgsl_decode(w, s->swapped ? "row" : "column", kernel->n_begin, kernel->outer_count);
    tg_wgsl_decode(w, s->swapped ? "column" : "row", kernel->m_begin, kernel->n_begin);
    tg_wgsl_line(w, "let acc = %s;", p->sum);
    w->accumulator = "acc";
    tg_wgsl_body(w, TG_PLACE_ELEMENT);
}

static void wgsl_contract_open(tg_wgsl *w, char index, int32_t count) {
    if (count > 1) tg_wgsl_line(w, "for (var %c = 0; %c < %d; %c++) {", index, index, (int)count, index);
    else tg_wgsl_line(w, "{");
}

/* What an invocation does once before its points. `batch` is a variable in scope. */
static void wgsl_contract_prepare_finish(wgsl_contract_state *s, bool partial) {
    tg_wgsl *w = s->w;
    if (partial) tg_wgsl_use_scratch(w, "f32");
    else {
        tg_wgsl_decode(w, "batch", 0, w->kernel->m_begin);
        tg_wgsl_body(w, TG_PLACE_TOP);
    }
}

/* The epilogue, or the stores of a partial sum, at each of these points. */
static void wgsl_contract_finish_points(wgsl_contract_state *s, const wgsl_contract_points *p, bool partial) {
    tg_wgsl *w = s->w;
    wgsl_contract_open(w, 'i', p->m);
    tg_wgsl_line(w, "let row = %s;", p->row);
    if (p->row_guard) tg_wgsl_line(w, "if (row < %lld) {", (long long)s->rows);
    wgsl_contract_open(w, 'j', p->n);
    tg_wgsl_line(w, "let column = %s;", p->column);
    if (p->column_guard) tg_wgsl_line(w, "if (column < %lld) {", (long long)s->columns);
    wgsl_contract_point(s, p, partial);
    for (int i = 0; i < 2 + p->row_guard + p->column_guard; i++) tg_wgsl_line(w, "}");
}

static void wgsl_contract_finish(wgsl_contract_state *s, const wgsl_contract_points *p, bool partial) {
    wgsl_contract_prepare_finish(s, partial);
    wgsl_contract_finish_points(s, p, partial);
}

/* let k_begin, k_end of this part */
static void wgsl_contract_range(const wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    if (c->parts == 1) {
        tg_wgsl_line(s->w, "let k_begin = 0;");
        tg_wgsl_line(s->w, "let k_end = %lld;", (long long)s->k);
        return;
    }
    tg_wgsl_line(s->w, "let k_begin = part * %lld;", (long long)c->part_length);
    tg_wgsl_line(s->w, "let k_end = min(k_begin + %lld, %lld);", (long long)c->part_length, (long long)s->k);
}

/* Invocations that share an output add their sums in a tree; the first of them ends up with it. */
static void wgsl_contract_tree(tg_wgsl *w, int32_t ways, int32_t size, int32_t step, int32_t m, int32_t n) {
    tg_wgsl_global(w, "var<workgroup> shared_sums: array<f32, %d>;", (int)(size * m * n));
    for (int32_t i = 0; i < m * n; i++) tg_wgsl_line(w, "shared_sums[%d + t] = c%d_%d;", (int)(i * size), (int)(i / n), (int)(i % n));
    for (int32_t half = ways / 2; half > 0; half /= 2) {
        tg_wgsl_line(w, "workgroupBarrier();");
        tg_wgsl_line(w, "if (way < %d) {", (int)half);
        for (int32_t i = 0; i < m * n; i++)
            tg_wgsl_line(w, "shared_sums[%d + t] += shared_sums[%d + t];", (int)(i * size), (int)(i * size + half * step));
        tg_wgsl_line(w, "}");
    }
    for (int32_t i = 0; i < m * n; i++) tg_wgsl_line(w, "c%d_%d = shared_sums[%d + t];", (int)(i / n), (int)(i % n), (int)(i * size));
}

/* let lane, way, from t */
static void wgsl_contract_lanes(tg_wgsl *w, int32_t size, int32_t ways, bool ways_first) {
    const int32_t lanes = size / ways;
    if (ways == 1) {
        tg_wgsl_line(w, "let lane = t;");
        return;
    }
    tg_wgsl_line(w, "let lane = t %s %d;", ways_first ? "/" : "%", (int)(ways_first ? ways : lanes));
    tg_wgsl_line(w, "let way = t %s %d;", ways_first ? "%" : "/", (int)(ways_first ? ways : lanes));
}

/* ---------------------------------------------------------------- direct */

static void wgsl_contract_direct_rows(wgsl_contract_state *s, const wgsl_contract_operand *o, const char *first, int32_t count,
                                      int64_t total) {
    const int64_t apart = wgsl_contract_ceil(total, count);
    for (int32_t i = 0; i < count; i++) {
        char row[WGSL_CONTRACT_TEXT];
        if (i == 0) snprintf(row, sizeof row, "%s", first);
        else if ((i + 1) * apart <= total) snprintf(row, sizeof row, "(%s + %lld)", first, (long long)(i * apart));
        else snprintf(row, sizeof row, "min(%s + %lld, %lld)", first, (long long)(i * apart), (long long)(total - 1));
        wgsl_contract_row(s, o, i, row);
    }
}

static void wgsl_contract_direct_flush(wgsl_contract_state *s, int64_t step) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl_line(s->w, "if (k / %lld %% %d == %d) {", (long long)step, WGSL_CONTRACT_CHAIN / 4, WGSL_CONTRACT_CHAIN / 4 - 1);
    for (int32_t i = 0; i < c->thread_m * c->thread_n; i++) {
        const int row = (int)(i / c->thread_n), column = (int)(i % c->thread_n);
        tg_wgsl_line(s->w, "total%d_%d += c%d_%d;", row, column, row, column);
        tg_wgsl_line(s->w, "c%d_%d = 0.0;", row, column);
    }
    tg_wgsl_line(s->w, "}");
}

static void wgsl_contract_direct_sums(wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int64_t step = (int64_t)4 * c->ways;
    const bool totals = c->part_length > step * (WGSL_CONTRACT_CHAIN / 4);
    for (int32_t i = 0; i < c->thread_m; i++)
        for (int32_t j = 0; j < c->thread_n; j++) {
            tg_wgsl_line(w, "var c%d_%d = 0.0;", (int)i, (int)j);
            if (totals) tg_wgsl_line(w, "var total%d_%d = 0.0;", (int)i, (int)j);
        }
    tg_wgsl_line(w, "for (var k = k_begin%s; k < k_end; k += %lld) {", c->ways > 1 ? " + 4 * way" : "", (long long)step);
    for (int32_t i = 0; i < c->thread_m; i++) tg_wgsl_line(w, "let l%d = fetch_left(left_%d, k, k_end);", (int)i, (int)i);
    for (int32_t j = 0; j < c->thread_n; j++) tg_wgsl_line(w, "let r%d = fetch_right(right_%d, k, k_end);", (int)j, (int)j);
    for (int32_t i = 0; i < c->thread_m; i++)
        for (int32_t j = 0; j < c->thread_n; j++) tg_wgsl_line(w, "c%d_%d += dot(l%d, r%d);", (int)i, (int)j, (int)i, (int)j);
    if (totals) wgsl_contract_direct_flush(s, step);
    tg_wgsl_line(w, "}");
    for (int32_t i = 0; totals && i < c->thread_m * c->thread_n; i++) {
        const int row = (int)(i / c->thread_n), column = (int)(i % c->thread_n);
        tg_wgsl_line(w, "c%d_%d += total%d_%d;", row, column, row, column);
    }
}

/* An invocation's first output from `cell`; neighbouring invocations hold neighbouring columns. */
static void wgsl_contract_direct_cell(wgsl_contract_state *s, int64_t cell_rows, int64_t cell_columns) {
    tg_wgsl_line(s->w, "let first_column = cell %% %lld;", (long long)cell_columns);
    tg_wgsl_line(s->w, "let first_row = cell / %lld %% %lld;", (long long)cell_columns, (long long)cell_rows);
    tg_wgsl_line(s->w, "let batch = cell / %lld;", (long long)(cell_columns * cell_rows));
}

static void wgsl_contract_direct_finish(wgsl_contract_state *s, int64_t cell_rows, int64_t cell_columns) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    char row[WGSL_CONTRACT_TEXT] = "first_row", column[WGSL_CONTRACT_TEXT] = "first_column", sum[WGSL_CONTRACT_TEXT] = "c0_0";
    if (c->thread_m > 1) snprintf(row, sizeof row, "first_row + i * %lld", (long long)cell_rows);
    if (c->thread_n > 1) snprintf(column, sizeof column, "first_column + j * %lld", (long long)cell_columns);
    if (c->thread_m * c->thread_n > 1) {
        const char *i = c->thread_m > 1 ? "i" : "0", *j = c->thread_n > 1 ? "j" : "0";
        snprintf(sum, sizeof sum, "sums[%s * %d + %s]", i, (int)c->thread_n, j);
        tg_wgsl_start(w);
        tg_text_add(&w->main, "var sums = array<f32, %d>(", (int)(c->thread_m * c->thread_n));
        for (int32_t x = 0; x < c->thread_m * c->thread_n; x++)
            tg_text_add(&w->main, "%sc%d_%d", x ? ", " : "", (int)(x / c->thread_n), (int)(x % c->thread_n));
        tg_text_add(&w->main, ");");
        tg_wgsl_newline(w);
    }
    const wgsl_contract_points points = {
        c->thread_m, c->thread_n, row, column, sum, s->rows % c->thread_m != 0, s->columns % c->thread_n != 0};
    wgsl_contract_finish(s, &points, c->parts > 1);
}

static void wgsl_contract_direct(wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int64_t cell_rows = wgsl_contract_ceil(s->rows, c->thread_m), cell_columns = wgsl_contract_ceil(s->columns, c->thread_n);
    const int64_t cells = s->batch * cell_rows * cell_columns, groups = wgsl_contract_ceil(cells, c->size / c->ways);
    const wgsl_contract_end end = wgsl_contract_end_of(s, 4);
    wgsl_contract_fetch(s, &s->left, end);
    wgsl_contract_fetch(s, &s->right, end);
    wgsl_contract_lanes(w, c->size, c->ways, c->ways_first);
    if (c->parts > 1) tg_wgsl_line(w, "let part = group / %lld;", (long long)groups);
    if (c->parts > 1) tg_wgsl_line(w, "let own = group %% %lld * %d + lane;", (long long)groups, (int)(c->size / c->ways));
    else tg_wgsl_line(w, "let own = group * %d + lane;", (int)(c->size / c->ways));
    const bool ragged = cells % (c->size / c->ways) != 0;
    if (ragged && c->ways == 1) tg_wgsl_line(w, "if (own >= %lld) { return; }", (long long)cells);
    if (ragged && c->ways > 1) tg_wgsl_line(w, "let cell = min(own, %lld);", (long long)(cells - 1));
    else tg_wgsl_line(w, "let cell = own;");
    wgsl_contract_direct_cell(s, cell_rows, cell_columns);
    wgsl_contract_range(s);
    wgsl_contract_base(s, &s->left);
    wgsl_contract_base(s, &s->right);
    wgsl_contract_direct_rows(s, &s->left, "first_row", c->thread_m, s->rows);
    wgsl_contract_direct_rows(s, &s->right, "first_column", c->thread_n, s->columns);
    wgsl_contract_direct_sums(s);
    if (c->ways > 1) {
        wgsl_contract_tree(w, c->ways, c->size, c->ways_first ? 1 : c->size / c->ways, c->thread_m, c->thread_n);
        tg_wgsl_line(w, "if (way == 0 && own < %lld) {", (long long)cells);
    }
    wgsl_contract_direct_finish(s, cell_rows, cell_columns);
    if (c->ways > 1) tg_wgsl_line(w, "}");
    tg_wgsl_end(w, groups * c->parts, c->size);
}

/* ---------------------------------------------------------------- panels */

/* Rows [panel * rows, ..) and k [chunk, chunk + panel_k) of the left operand: panel_left[row][k / 4]. */
static void wgsl_contract_fill_panel(wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    const int32_t fours = c->panel_k / 4;
    char row[WGSL_CONTRACT_TEXT];
    tg_wgsl_line(s->w, "for (var f = t; f < %d; f += %d) {", (int)(c->panel * fours), (int)c->size);
    if (s->rows % c->panel != 0)
        snprintf(row, sizeof row, "min(panel * %d + f / %d, %lld)", (int)c->panel, (int)fours, (long long)s->rows - 1);
    else snprintf(row, sizeof row, "(panel * %d + f / %d)", (int)c->panel, (int)fours);
    wgsl_contract_row(s, &s->left, 0, row);
    tg_wgsl_line(s->w, "panel_left[f] = fetch_left(left_0, chunk + f %% %d * 4, %lld);", (int)fours, (long long)s->k);
    tg_wgsl_line(s->w, "}");
    tg_wgsl_line(s->w, "workgroupBarrier();");
}

static void wgsl_contract_panel_sums(wgsl_contract_state *s, int32_t lanes) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t fours = c->panel_k / 4;
    const bool chunks = c->panel_k < c->part_length, idle = c->ways * lanes < c->size;
    for (int32_t i = 0; i < c->panel; i++) tg_wgsl_line(w, "var c%d = 0.0;", (int)i);
    if (chunks) tg_wgsl_line(w, "for (var chunk = 0; chunk < %lld; chunk += %d) {", (long long)s->k, (int)c->panel_k);
    else tg_wgsl_line(w, "let chunk = 0;");
    wgsl_contract_fill_panel(s);
    if (idle) tg_wgsl_line(w, "if (way < %d) {", (int)c->ways);
    tg_wgsl_line(w, "for (var q = way; q < %d; q += %d) {", (int)fours, (int)c->ways);
    tg_wgsl_line(w, "let r = fetch_right(right_0, chunk + q * 4, %lld);", (long long)s->k);
    for (int32_t i = 0; i < c->panel; i++) tg_wgsl_line(w, "c%d += dot(panel_left[q + %d], r);", (int)i, (int)(i * fours));
    tg_wgsl_line(w, "}");
    if (idle) tg_wgsl_line(w, "}");
    if (!chunks) return;
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "}");
}

/* `let column` from `lane`, a name */
static void wgsl_contract_panel_column(wgsl_contract_state *s, const char *name, const char *lane, int32_t lanes) {
    if (s->columns > lanes)
        tg_wgsl_line(s->w, "let %s = group %% %lld * %d + %s;", name, (long long)wgsl_contract_ceil(s->columns, lanes), (int)lanes, lane);
    else tg_wgsl_line(s->w, "let %s = %s;", name, lane);
}

/* One output: `row`, `column` are in scope. */
static void wgsl_contract_panel_point(wgsl_contract_state *s, const char *sum, int32_t lanes) {
    const wgsl_contract_points points = {1, 1, NULL, NULL, sum, false, false};
    const bool row_guard = s->rows % s->choice.panel != 0, column_guard = s->columns % lanes != 0;
    if (row_guard || column_guard) tg_wgsl_line(s->w, "if ((row < %lld) & (column < %lld)) {", (long long)s->rows, (long long)s->columns);
    wgsl_contract_point(s, &points, false);
    if (row_guard || column_guard) tg_wgsl_line(s->w, "}");
}

static void wgsl_contract_panel_alone(wgsl_contract_state *s, int32_t lanes) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    wgsl_contract_panel_column(s, "column", "lane", lanes);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "var sums = array<f32, %d>(", (int)c->panel);
    for (int32_t i = 0; i < c->panel; i++) tg_text_add(&w->main, "%sc%d", i ? ", " : "", (int)i);
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
    tg_wgsl_line(w, "for (var i = 0; i < %d; i++) {", (int)c->panel);
    tg_wgsl_line(w, "let row = panel * %d + i;", (int)c->panel);
    wgsl_contract_panel_point(s, "sums[i]", lanes);
    tg_wgsl_line(w, "}");
}

/* Several ways: their sums go through workgroup memory, four rows a vector, and all invocations share the outputs. */
static void wgsl_contract_panel_together(wgsl_contract_state *s, int32_t lanes) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t stride = lanes * c->ways, vectors = (int32_t)wgsl_contract_ceil(c->panel, 4);
    if (c->panel_k == c->part_length) tg_wgsl_line(w, "workgroupBarrier();");
    if (stride < c->size) tg_wgsl_line(w, "if (way < %d) {", (int)c->ways);
    for (int32_t v = 0; v < vectors; v++) {
        tg_wgsl_start(w);
        tg_text_add(&w->main, "panel_left[%d + t] = vec4<f32>(", (int)(v * stride));
        for (int32_t i = 4 * v; i < 4 * v + 4; i++) {
            if (i < c->panel) tg_text_add(&w->main, "%sc%d", i > 4 * v ? ", " : "", (int)i);
            else tg_text_add(&w->main, ", 0.0");
        }
        tg_text_add(&w->main, ");");
        tg_wgsl_newline(w);
    }
    if (stride < c->size) tg_wgsl_line(w, "}");
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "for (var o = t; o < %d; o += %d) {", (int)(c->panel * lanes), (int)c->size);
    tg_wgsl_line(w, "let r = o >> %du;", wgsl_contract_log2(lanes));
    tg_wgsl_line(w, "let at = (r >> 2u) * %d + (o & %d);", (int)stride, (int)lanes - 1);
    tg_wgsl_line(w, "var sum = panel_left[at][r & 3];");
    for (int32_t way = 1; way < c->ways; way++) tg_wgsl_line(w, "sum += panel_left[at + %d][r & 3];", (int)(way * lanes));
    tg_wgsl_line(w, "let row = panel * %d + r;", (int)c->panel);
    char lane[32];
    snprintf(lane, sizeof lane, "(o & %d)", (int)lanes - 1);
    wgsl_contract_panel_column(s, "column", lane, lanes);
    wgsl_contract_panel_point(s, "sum", lanes);
    tg_wgsl_line(w, "}");
}

static void wgsl_contract_panels(wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int32_t lanes = c->lanes;
    const int64_t panels = wgsl_contract_ceil(s->rows, c->panel), blocks = wgsl_contract_ceil(s->columns, lanes);
    const wgsl_contract_end end = wgsl_contract_end_of(s, c->panel_k);
    const int64_t vectors =
        wgsl_contract_max((int64_t)c->panel * (c->panel_k / 4), c->ways > 1 ? (int64_t)c->size * wgsl_contract_ceil(c->panel, 4) : 0);
    char column[64];
    wgsl_contract_fetch(s, &s->left, end);
    wgsl_contract_fetch(s, &s->right, end);
    tg_wgsl_global(w, "var<workgroup> panel_left: array<vec4<f32>, %lld>;", (long long)vectors);
    tg_wgsl_line(w, "let lane = t & %d;", (int)lanes - 1);
    tg_wgsl_line(w, "let way = t >> %du;", wgsl_contract_log2(lanes));
    tg_wgsl_line(w, blocks > 1 ? "let panel = group / %lld;" : "let panel = group;", (long long)blocks);
    wgsl_contract_panel_column(s, "own", "lane", lanes);
    wgsl_contract_base(s, &s->left);
    wgsl_contract_base(s, &s->right);
    snprintf(column, sizeof column, s->columns % lanes != 0 ? "min(own, %lld)" : "own", (long long)s->columns - 1);
    wgsl_contract_row(s, &s->right, 0, column);
    wgsl_contract_panel_sums(s, lanes);
    tg_wgsl_body(w, TG_PLACE_TOP);
    if (c->ways > 1) wgsl_contract_panel_together(s, lanes);
    else wgsl_contract_panel_alone(s, lanes);
    tg_wgsl_end(w, panels * blocks, c->size);
}

/* ---------------------------------------------------------------- tiles */

/* One operand's part of a tile: how it is fetched and where it lies in workgroup memory, tile_left[register][invocation]. What an
 * invocation reads of a slice is a column of that, at constant registers: robust access checks one index for the whole kernel, and
 * neighbours read neighbouring vec4s.
 *   four rows of one k:  [k][row / 4], the latter split into rows / 4 of the invocation (outer) and invocations
 *   four k of one row:   [k / 4][row], likewise. Where fetching lanes lie along k, invocations are exchanged within eight by k, so
 *                        that they do not meet in a bank when they write. */
typedef struct wgsl_contract_part {
    const wgsl_contract_operand *operand;
    int32_t rows, thread_rows;
    int32_t threads;          /* along this side */
    int32_t fetches;          /* vec4s an invocation fetches per slice */
    int32_t height;           /* registers of one step: vec4s that an invocation reads for one k, or for four */
    int32_t registers, first; /* of a slice; the slice's first, where there are two slices */
    bool k_first;             /* fetching lanes lie along k */
    const char *own;          /* "x" or "y" */
    const char *tile;         /* index of the tile along this side */
    int64_t total;            /* rows there are */
} wgsl_contract_part;

static wgsl_contract_part wgsl_contract_make_part(const wgsl_contract_state *s, bool left) {
    const wgsl_contract_choice *c = &s->choice;
    wgsl_contract_part p = {.operand = left ? &s->left : &s->right, .own = left ? "y" : "x", .tile = left ? "tile_row" : "tile_column"};
    p.rows = left ? c->tile.m : c->tile.n;
    p.thread_rows = left ? c->thread_m : c->thread_n;
    p.threads = p.rows / p.thread_rows;
    p.fetches = p.rows * c->tile.slice / 4 / c->size;
    p.height = p.operand->along_rows ? p.thread_rows / 4 : p.thread_rows;
    p.registers = c->tile.slice / 4 * p.thread_rows;
    p.k_first = !p.operand->along_rows && p.operand->unit == WGSL_UNIT_K;
    p.total = left ? s->rows : s->columns;
    return p;
}

/* Declares where fetch i of this invocation comes from (left_0, left_k0) and goes to (left_to0, left_own0). */
static void wgsl_contract_plan_fetch(wgsl_contract_state *s, const wgsl_contract_part *p, int32_t i) {
    const wgsl_contract_operand *o = p->operand;
    const int32_t fours = s->choice.tile.slice / 4, rows = o->along_rows ? p->rows / 4 : p->rows;
    const int64_t last = (o->along_rows ? p->total / 4 : p->total) - 1;
    const bool ragged = p->total % p->rows != 0;
    const int32_t inner = p->k_first ? fours : rows;
    const char *name = o->name;
    char unit[32], row[WGSL_CONTRACT_TEXT];
    snprintf(unit, sizeof unit, i == 0 ? "t" : "(t + %d)", (int)(i * s->choice.size));
    tg_wgsl_line(s->w, "let %s_r%d = %s %s %d;", name, (int)i, unit, p->k_first ? ">>" : "&",
                 p->k_first ? wgsl_contract_log2(inner) : inner - 1);
    tg_wgsl_line(s->w, "let %s_q%d = %s %s %d;", name, (int)i, unit, p->k_first ? "&" : ">>",
                 p->k_first ? inner - 1 : wgsl_contract_log2(inner));
    if (ragged) snprintf(row, sizeof row, "min(%s * %d + %s_r%d, %lld)", p->tile, (int)rows, name, (int)i, (long long)last);
    else snprintf(row, sizeof row, "(%s * %d + %s_r%d)", p->tile, (int)rows, name, (int)i);
    wgsl_contract_row(s, o, i, row);
    tg_wgsl_line(s->w, "let %s_k%d = %s_q%d%s;", name, (int)i, name, (int)i, o->along_rows ? "" : " * 4");
    if (wgsl_contract_of_matrices(s)) {
        tg_wgsl_matrix_place(s->w, &s->matrices, o == &s->left ? &s->matrices.left : &s->matrices.right, i);
        return;
    }
    tg_wgsl_line(s->w, "let %s_to%d = %s_q%d * %d + (%s_r%d >> %d);", name, (int)i, name, (int)i, (int)p->height, name, (int)i,
                 wgsl_contract_log2(p->threads));
    if (p->k_first)
        tg_wgsl_line(s->w, "let %s_own%d = (%s_r%d & %d) ^ (%s_q%d * %d);", name, (int)i, name, (int)i, (int)p->threads - 1, name, (int)i,
                     8 / (int)fours);
    else tg_wgsl_line(s->w, "let %s_own%d = %s_r%d & %d;", name, (int)i, name, (int)i, (int)p->threads - 1);
}

static void wgsl_contract_plan_part(wgsl_contract_state *s, const wgsl_contract_part *p) {
    const int32_t fours = s->choice.tile.slice / 4;
    wgsl_contract_base(s, p->operand);
    for (int32_t i = 0; i < p->fetches; i++) wgsl_contract_plan_fetch(s, p, i);
    if (wgsl_contract_of_matrices(s)) return;
    for (int q = 1; p->k_first && q < fours; q++) tg_wgsl_line(s->w, "let %s%d = %s ^ %d;", p->own, q, p->own, q * 8 / (int)fours);
    tg_wgsl_global(s->w, "var<workgroup> tile_%s: array<array<vec4<%s>, %d>, %d>;", p->operand->name, s->halves ? "f16" : "f32",
                   (int)p->threads, (int)(p->registers * s->choice.tile.buffers));
}

static void wgsl_contract_fetch_part(tg_wgsl *w, const wgsl_contract_part *p, const char *let, const char *k) {
    const char *name = p->operand->name;
    for (int i = 0; i < p->fetches; i++)
        tg_wgsl_line(w, "%snext_%s%d = fetch_%s(%s_%d, %s + %s_k%d, k_end);", let, name, i, name, name, i, k, name, i);
}

static void wgsl_contract_keep_part(const wgsl_contract_state *s, const wgsl_contract_part *p) {
    const char *name = p->operand->name, *open = s->halves ? "vec4<f16>(" : "", *close = s->halves ? ")" : "";
    char first[32] = "";
    if (p->first > 0) snprintf(first, sizeof first, " + %d", (int)p->first);
    for (int i = 0; i < p->fetches; i++)
        tg_wgsl_line(s->w, "tile_%s[%s_to%d%s][%s_own%d] = %snext_%s%d%s;", name, name, i, first, name, i, open, name, i, close);
}

/* What was fetched goes into workgroup memory. */
static void wgsl_contract_keep(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right) {
    if (s->halves) tg_wgsl_halve(s->w, (int)left->fetches, (int)right->fetches);
    if (wgsl_contract_of_matrices(s)) {
        tg_wgsl_matrix_keep(s->w, &s->matrices);
        return;
    }
    wgsl_contract_keep_part(s, left);
    wgsl_contract_keep_part(s, right);
}

/* let <name><number>: register i of step `step`, a k, or the four k `q` */
static void wgsl_contract_read_as(tg_wgsl *w, const wgsl_contract_part *p, int step, int q, int i, char name, int number) {
    char own[16];
    if (p->k_first && q > 0) snprintf(own, sizeof own, "%s%d", p->own, q);
    else snprintf(own, sizeof own, "%s", p->own);
    const int from = (int)(p->first + step * p->height + i);
    tg_wgsl_line(w, w->f16 ? "let %c%d = vec4<f32>(tile_%s[%d][%s]);" : "let %c%d = tile_%s[%d][%s];", name, number, p->operand->name, from,
                 own);
}

/* let l<i> (r<i>) */
static void wgsl_contract_read_one(tg_wgsl *w, const wgsl_contract_part *p, int step, int q, int i) {
    wgsl_contract_read_as(w, p, step, q, i, p->operand->name[0], i);
}

static void wgsl_contract_read(tg_wgsl *w, const wgsl_contract_part *p, int step, int q) {
    for (int i = 0; i < p->height; i++) wgsl_contract_read_one(w, p, step, q, i);
}

static const char wgsl_contract_component[4] = {'x', 'y', 'z', 'w'};

/* let b<first>, ...: the invocation's columns of k component `k`, four a vec4, from r0, r1, ... */
static void wgsl_contract_columns(const wgsl_contract_state *s, int k, int first) {
    const char c = wgsl_contract_component[k];
    for (int j = 0; j < s->choice.thread_n / 4; j++) {
        if (s->right.along_rows) tg_wgsl_line(s->w, "let b%d = r%d;", first + j, j);
        else
            tg_wgsl_line(s->w, "let b%d = vec4<f32>(r%d.%c, r%d.%c, r%d.%c, r%d.%c);", first + j, 4 * j, c, 4 * j + 1, c, 4 * j + 2, c,
                         4 * j + 3, c);
    }
}

/* c += l r^T, of one row and one k */
static void wgsl_contract_multiply(const wgsl_contract_state *s, int row, int k, int first) {
    const bool rows = s->left.along_rows;
    const char c = wgsl_contract_component[rows ? row % 4 : k];
    for (int j = 0; j < s->choice.thread_n / 4; j++)
        tg_wgsl_line(s->w, "c%d_%d = fma(vec4<f32>(l%d.%c), b%d, c%d_%d);", row, j, rows ? row / 4 : row, c, first + j, row, j);
}

/* Four k, k by k: l for four k, or r, is in registers meanwhile. */
static void wgsl_contract_step(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right, int q) {
    tg_wgsl *w = s->w;
    if (!s->left.along_rows) wgsl_contract_read(w, left, q, q);
    if (!s->right.along_rows) wgsl_contract_read(w, right, q, q);
    for (int k = 0; k < 4; k++) {
        tg_wgsl_line(w, "{");
        if (s->left.along_rows) wgsl_contract_read(w, left, 4 * q + k, q);
        if (s->right.along_rows) wgsl_contract_read(w, right, 4 * q + k, q);
        wgsl_contract_columns(s, k, 0);
        for (int i = 0; i < s->choice.thread_m; i++) wgsl_contract_multiply(s, i, k, 0);
        tg_wgsl_line(w, "}");
    }
}

/* The invocation's columns of all four k: b0, b1, .. */
static void wgsl_contract_four_columns(const wgsl_contract_state *s, const wgsl_contract_part *right, int q) {
    const int vectors = (int)s->choice.thread_n / 4;
    if (!s->right.along_rows) wgsl_contract_read(s->w, right, q, q);
    for (int k = 0; k < 4; k++) {
        if (!s->right.along_rows) wgsl_contract_columns(s, k, k * vectors);
        for (int j = 0; s->right.along_rows && j < vectors; j++) wgsl_contract_read_as(s->w, right, 4 * q + k, q, j, 'b', k * vectors + j);
    }
}

/* Four k, row by row, where the left operand comes by four k: only one row of it is in registers, but the right one's four k are. */
static void wgsl_contract_step_by_rows(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right,
                                       int q) {
    const int vectors = (int)s->choice.thread_n / 4;
    wgsl_contract_four_columns(s, right, q);
    for (int i = 0; i < s->choice.thread_m; i++) {
        wgsl_contract_read_one(s->w, left, q, q, i);
        for (int k = 0; k < 4; k++) wgsl_contract_multiply(s, i, k, k * vectors);
    }
}

static void wgsl_contract_slice(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right) {
    if (wgsl_contract_of_matrices(s)) {
        tg_wgsl_matrix_multiply(s->w, &s->matrices);
        return;
    }
    const bool by_rows = !s->left.along_rows && (!s->right.along_rows || s->choice.tile.by_rows);
    for (int q = 0; q < s->choice.tile.slice / 4; q++) {
        tg_wgsl_line(s->w, "{");
        if (by_rows) wgsl_contract_step_by_rows(s, left, right, q);
        else wgsl_contract_step(s, left, right, q);
        tg_wgsl_line(s->w, "}");
    }
}

static int wgsl_contract_chain(const wgsl_contract_choice *c) {
    return c->thread_m * c->thread_n <= WGSL_CONTRACT_MOST_TOTALS ? WGSL_CONTRACT_CHAIN : WGSL_CONTRACT_LONG_CHAIN;
}

/* One line for each vec4 of sums. */
static void wgsl_contract_each_sum(const wgsl_contract_state *s, const char *before, const char *between, const char *after) {
    for (int i = 0; i < s->choice.thread_m; i++)
        for (int j = 0; j < s->choice.thread_n / 4; j++) {
            if (between) tg_wgsl_line(s->w, "%s%d_%d%s%d_%d%s", before, i, j, between, i, j, after);
            else tg_wgsl_line(s->w, "%s%d_%d%s", before, i, j, after);
        }
}

/* The slice at `next` of the whole part into registers, where there is one. */
static void wgsl_contract_fetch_next(tg_wgsl *w, const wgsl_contract_part *left, const wgsl_contract_part *right, int ahead) {
    char next[32];
    snprintf(next, sizeof next, "k + %d", ahead);
    tg_wgsl_line(w, "if (%s < k_end) {", next);
    wgsl_contract_fetch_part(w, left, "", next);
    wgsl_contract_fetch_part(w, right, "", next);
    tg_wgsl_line(w, "}");
}

/* Slices from k = `begin` up to `end`, while the next one, of the whole part, is on its way. */
static void wgsl_contract_tile_slices(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right,
                                      const char *begin, const char *end) {
    tg_wgsl *w = s->w;
    const int slice = (int)s->choice.tile.slice;
    tg_wgsl_line(w, "for (var k = %s; k < %s; k += %d) {", begin, end, slice);
    tg_wgsl_line(w, "workgroupBarrier();");
    wgsl_contract_keep(s, left, right);
    tg_wgsl_line(w, "workgroupBarrier();");
    wgsl_contract_fetch_next(w, left, right, slice);
    wgsl_contract_slice(s, left, right);
    tg_wgsl_line(w, "}");
}

/* The same with two slices in workgroup memory: while one is multiplied the other is written, and one barrier parts them. The first
 * one is there already. A chain ends after an even number of slices, or with the part. */
static void wgsl_contract_tile_slices_in_turn(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right,
                                              const char *begin, const char *end) {
    tg_wgsl *w = s->w;
    const int slice = (int)s->choice.tile.slice;
    const bool even = wgsl_contract_end_of(s, (int64_t)2 * slice) == WGSL_END_EXACT;
    wgsl_contract_part other_left = *left, other_right = *right;
    other_left.first = left->registers;
    other_right.first = right->registers;
    tg_wgsl_line(w, "for (var k = %s; k < %s; k += %d) {", begin, end, 2 * slice);
    wgsl_contract_fetch_next(w, left, right, slice);
    wgsl_contract_slice(s, left, right);
    wgsl_contract_keep(s, &other_left, &other_right);
    tg_wgsl_line(w, "workgroupBarrier();");
    wgsl_contract_fetch_next(w, left, right, 2 * slice);
    if (!even) tg_wgsl_line(w, "if (k + %d < %s) {", slice, end);
    wgsl_contract_slice(s, &other_left, &other_right);
    if (!even) tg_wgsl_line(w, "}");
    wgsl_contract_keep(s, left, right);
    tg_wgsl_line(w, "workgroupBarrier();");
    tg_wgsl_line(w, "}");
}

static void wgsl_contract_walk_slices(const wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right,
                                      const char *begin, const char *end) {
    if (s->choice.tile.buffers > 1) wgsl_contract_tile_slices_in_turn(s, left, right, begin, end);
    else wgsl_contract_tile_slices(s, left, right, begin, end);
}

static void wgsl_contract_tile_sums(wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right) {
    tg_wgsl *w = s->w;
    const int chain = wgsl_contract_chain(&s->choice);
    const bool matrices = wgsl_contract_of_matrices(s);
    if (matrices) tg_wgsl_matrix_declare(w, &s->matrices);
    else wgsl_contract_each_sum(s, "var c", NULL, " = vec4<f32>();");
    wgsl_contract_fetch_part(w, left, "var ", "k_begin");
    wgsl_contract_fetch_part(w, right, "var ", "k_begin");
    if (s->choice.tile.buffers > 1) {
        wgsl_contract_keep(s, left, right);
        tg_wgsl_line(w, "workgroupBarrier();");
    }
    if (matrices || s->choice.part_length <= chain) { /* matrices cannot be added: one chain, of a K of halves */
        wgsl_contract_walk_slices(s, left, right, "k_begin", "k_end");
        return;
    }
    wgsl_contract_each_sum(s, "var total", NULL, " = vec4<f32>();");
    tg_wgsl_line(w, "for (var chain = k_begin; chain < k_end; chain += %d) {", chain);
    tg_wgsl_line(w, "let chain_end = min(chain + %d, k_end);", chain);
    wgsl_contract_walk_slices(s, left, right, "chain", "chain_end");
    wgsl_contract_each_sum(s, "total", " += c", ";");
    wgsl_contract_each_sum(s, "c", NULL, " = vec4<f32>();");
    tg_wgsl_line(w, "}");
    wgsl_contract_each_sum(s, "c", " = total", ";");
}

/* Row `index` (i or j) of the invocation, in the whole problem. */
static void wgsl_contract_tile_row(const wgsl_contract_part *p, char index, char *text, size_t size) {
    if (p->operand->along_rows)
        snprintf(text, size, "%s * %d + (%c >> 2) * %d + %s * 4 + (%c & 3)", p->tile, (int)p->rows, index, 4 * (int)p->threads, p->own,
                 index);
    else snprintf(text, size, "%s * %d + %s + %c * %d", p->tile, (int)p->rows, p->own, index, (int)p->threads);
}

/* The same for a number. */
static void wgsl_contract_tile_row_of(const wgsl_contract_part *p, int index, char *text, size_t size) {
    const int threads = (int)p->threads;
    if (p->operand->along_rows)
        snprintf(text, size, "%s * %d + %s * 4 + %d", p->tile, (int)p->rows, p->own, (index >> 2) * 4 * threads + (index & 3));
    else snprintf(text, size, "%s * %d + %s + %d", p->tile, (int)p->rows, p->own, index * threads);
}

/* The epilogue of each output by itself: no array of sums, whose place is memory. */
static void wgsl_contract_tile_finish_each(wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right) {
    const wgsl_contract_choice *c = &s->choice;
    const bool partial = c->parts > 1;
    char row[WGSL_CONTRACT_TEXT], column[WGSL_CONTRACT_TEXT], sum[WGSL_CONTRACT_TEXT];
    const wgsl_contract_points points = {1, 1, row, column, sum, s->rows % c->tile.m != 0, s->columns % c->tile.n != 0};
    wgsl_contract_prepare_finish(s, partial);
    for (int i = 0; i < c->thread_m; i++)
        for (int j = 0; j < c->thread_n; j++) {
            wgsl_contract_tile_row_of(left, i, row, sizeof row);
            wgsl_contract_tile_row_of(right, j, column, sizeof column);
            snprintf(sum, sizeof sum, "c%d_%d.%c", i, j / 4, wgsl_contract_component[j % 4]);
            wgsl_contract_finish_points(s, &points, partial);
        }
}

static void wgsl_contract_tile_finish(wgsl_contract_state *s, const wgsl_contract_part *left, const wgsl_contract_part *right) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const int vectors = (int)(c->thread_n / 4);
    char row[WGSL_CONTRACT_TEXT], column[WGSL_CONTRACT_TEXT], sum[WGSL_CONTRACT_TEXT];
    wgsl_contract_tile_row(left, 'i', row, sizeof row);
    wgsl_contract_tile_row(right, 'j', column, sizeof column);
    snprintf(sum, sizeof sum, vectors > 1 ? "sums[i * %d + (j >> 2)][j & 3]" : "sums[i][j]", vectors);
    tg_wgsl_start(w);
    tg_text_add(&w->main, "var sums = array<vec4<f32>, %d>(", (int)c->thread_m * vectors);
    for (int x = 0; x < (int)c->thread_m * vectors; x++) tg_text_add(&w->main, "%sc%d_%d", x ? ", " : "", x / vectors, x % vectors);
    tg_text_add(&w->main, ");");
    tg_wgsl_newline(w);
    const wgsl_contract_points points = {c->thread_m, c->thread_n, row, column, sum, s->rows % c->tile.m != 0, s->columns % c->tile.n != 0};
    wgsl_contract_finish(s, &points, c->parts > 1);
}

/* The sums of subgroup matrices pass through workgroup memory, from where every invocation takes some. */
static void wgsl_contract_matrix_finish(wgsl_contract_state *s) {
    const wgsl_contract_tile *tile = &s->choice.tile;
    tg_wgsl *w = s->w;
    const bool partial = s->choice.parts > 1, guarded = s->rows % tile->m != 0 || s->columns % tile->n != 0;
    const wgsl_contract_points points = {1, 1, NULL, NULL, "sum", false, false};
    wgsl_contract_prepare_finish(s, partial);
    tg_wgsl_matrix_each_sum(w, &s->matrices);
    tg_wgsl_line(w, "let row = tile_row * %d + in_row;", (int)tile->m);
    tg_wgsl_line(w, "let column = tile_column * %d + in_column;", (int)tile->n);
    if (guarded) tg_wgsl_line(w, "if ((row < %lld) & (column < %lld)) {", (long long)s->rows, (long long)s->columns);
    wgsl_contract_point(s, &points, partial);
    for (int i = 0; i < 2 + guarded; i++) tg_wgsl_line(w, "}");
}

/* Which tile this workgroup owns. Bands of eight tile rows, walked column by column, keep what neighbours in time read in the
 * second-level cache. */
static void wgsl_contract_tile_place(wgsl_contract_state *s, int64_t tile_rows, int64_t tile_columns) {
    tg_wgsl *w = s->w;
    const int64_t tiles = tile_rows * tile_columns;
    if (s->choice.parts > 1) tg_wgsl_line(w, "let part = group / %lld;", (long long)(tiles * s->batch));
    tg_wgsl_line(w, "let batch = group / %lld %% %lld;", (long long)tiles, (long long)s->batch);
    tg_wgsl_line(w, "let tile = group %% %lld;", (long long)tiles);
    if (tile_rows <= 8 || tile_columns == 1) {
        tg_wgsl_line(w, "let tile_row = tile %% %lld;", (long long)tile_rows);
        tg_wgsl_line(w, "let tile_column = tile / %lld;", (long long)tile_rows);
        return;
    }
    tg_wgsl_line(w, "let band = tile / %lld;", (long long)(8 * tile_columns));
    if (tile_rows % 8 == 0) tg_wgsl_line(w, "let band_rows = 8;");
    else tg_wgsl_line(w, "let band_rows = min(8, %lld - band * 8);", (long long)tile_rows);
    tg_wgsl_line(w, "let in_band = tile - band * %lld;", (long long)(8 * tile_columns));
    tg_wgsl_line(w, "let tile_row = band * 8 + in_band %% band_rows;");
    tg_wgsl_line(w, "let tile_column = in_band / band_rows;");
}

/* let x, y: 32 neighbouring invocations lie 8 by 4, where they read the fewest different vec4s. */
static void wgsl_contract_tile_lanes(tg_wgsl *w, int32_t threads) {
    const int across = wgsl_contract_log2(threads / 8);
    tg_wgsl_line(w, "let x = (t & 7) | (((t >> 5) & %d) << 3);", (1 << across) - 1);
    tg_wgsl_line(w, "let y = ((t >> 3) & 3) | ((t >> %d) << 2);", 5 + across);
}

static void wgsl_contract_tiled(wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    tg_wgsl *w = s->w;
    const wgsl_contract_part left = wgsl_contract_make_part(s, true), right = wgsl_contract_make_part(s, false);
    const int64_t tile_rows = wgsl_contract_ceil(s->rows, c->tile.m), tile_columns = wgsl_contract_ceil(s->columns, c->tile.n);
    const wgsl_contract_end end = wgsl_contract_end_of(s, c->tile.slice);
    wgsl_contract_fetch(s, &s->left, end);
    wgsl_contract_fetch(s, &s->right, end);
    wgsl_contract_tile_place(s, tile_rows, tile_columns);
    wgsl_contract_range(s);
    w->f16 = s->halves;
    if (!wgsl_contract_of_matrices(s)) wgsl_contract_tile_lanes(w, right.threads);
    wgsl_contract_plan_part(s, &left);
    wgsl_contract_plan_part(s, &right);
    wgsl_contract_tile_sums(s, &left, &right);
    if (wgsl_contract_of_matrices(s)) wgsl_contract_matrix_finish(s);
    else if (c->tile.unrolled) wgsl_contract_tile_finish_each(s, &left, &right);
    else wgsl_contract_tile_finish(s, &left, &right);
    tg_wgsl_end(w, s->batch * tile_rows * tile_columns * c->parts, c->size);
}

/* ---------------------------------------------------------------- adding the parts */

/* An invocation per output, or `ways` that share one where outputs are few and parts many. */
static void wgsl_contract_add_parts(wgsl_contract_state *s) {
    tg_wgsl *w = s->w;
    const int64_t outputs = wgsl_contract_outputs(s), parts = s->choice.parts;
    const int32_t size = tg_wgsl_is_lone(w) ? 64 : w->frame.size, ways = outputs < 4096 && parts >= 16 && size >= 64 ? 8 : 1,
                  lanes = size / ways;
    tg_wgsl_begin(w, tg_arena_format(w->arena, "adds %lld parts", (long long)parts));
    tg_wgsl_use_scratch(w, "f32");
    wgsl_contract_lanes(w, size, ways, false);
    tg_wgsl_line(w, "let own = group * %d + lane;", (int)lanes);
    if (ways == 1 && outputs % lanes != 0) tg_wgsl_line(w, "if (own >= %lld) { return; }", (long long)outputs);
    if (ways > 1) tg_wgsl_line(w, "let cell = min(own, %lld);", (long long)(outputs - 1));
    else tg_wgsl_line(w, "let cell = own;");
    tg_wgsl_line(w, "var c0_0 = 0.0;");
    tg_wgsl_line(w, "for (var part = %s; part < %lld; part += %d) {", ways > 1 ? "way" : "0", (long long)parts, (int)ways);
    tg_wgsl_line(w, "c0_0 += scratch[%lld + part * %lld + cell];", (long long)s->scratch, (long long)outputs);
    tg_wgsl_line(w, "}");
    wgsl_contract_direct_cell(s, s->rows, s->columns);
    if (ways > 1) {
        wgsl_contract_tree(w, ways, size, lanes, 1, 1);
        tg_wgsl_line(w, "if (way == 0 && own < %lld) {", (long long)outputs);
    }
    const wgsl_contract_points points = {1, 1, "first_row", "first_column", "c0_0", false, false};
    wgsl_contract_finish(s, &points, false);
    if (ways > 1) tg_wgsl_line(w, "}");
    tg_wgsl_end(w, wgsl_contract_ceil(outputs, lanes), size);
}

/* ---------------------------------------------------------------- the kernel */

static void wgsl_contract_offer_all(wgsl_contract_state *s) {
    if (s->w->limits->f16) return; /* tables are of f32 */
    wgsl_contract_search cheapest = {.wanted = NULL}, all = {.offers = s->w->offers};
    wgsl_contract_walk(s, &cheapest);
    if (cheapest.best.size == 0) return;
    s->w->offers->chosen = wgsl_contract_schedule(&cheapest.best);
    wgsl_contract_key(s, s->w->offers->key);
    wgsl_contract_walk(s, &all);
    if (all.failed) s->w->status = TG_ERROR_MEMORY;
}

static const char *wgsl_contract_title(const wgsl_contract_state *s) {
    const wgsl_contract_choice *c = &s->choice;
    const char *wide = s->left.wide && s->right.wide   ? "vec4 reads"
                       : s->left.wide || s->right.wide ? "vec4 reads of one operand"
                                                       : "scalar reads";
    if (c->panel > 0)
        return tg_arena_format(s->w->arena, "panels of %d rows, k by %d, %d way%s, %s", (int)c->panel, (int)c->panel_k, (int)c->ways,
                               c->ways > 1 ? "s" : "", wide);
    if (c->tile.m > 0)
        return tg_arena_format(
            s->w->arena, "tiles of %d x %d, %d x %d each, k by %d%s, %s%s, %lld part%s%s%s", (int)c->tile.m, (int)c->tile.n,
            (int)c->thread_m, (int)c->thread_n, (int)c->tile.slice, c->tile.buffers > 1 ? " in turn" : "", wide,
            c->tile.across > 0 ? ", subgroup matrices of halves"
            : s->halves        ? ", halves"
                               : "",
            (long long)c->parts, c->parts > 1 ? "s" : "", c->tile.by_rows ? ", row by row" : "", c->tile.unrolled ? ", unrolled" : "");
    return tg_arena_format(s->w->arena, "direct, %d x %d each, %d way%s%s, %s, %lld part%s", (int)c->thread_m, (int)c->thread_n,
                           (int)c->ways, c->ways > 1 ? "s" : "", c->ways_first ? " side by side" : "", wide, (long long)c->parts,
                           c->parts > 1 ? "s" : "");
}

void tg_wgsl_contract(tg_wgsl *w) {
    wgsl_contract_state s = wgsl_contract_make(w);
    if (w->offers != NULL) {
        wgsl_contract_offer_all(&s);
        return;
    }
    wgsl_contract_choose(&s);
    if (s.choice.size == 0) {
        tg_wgsl_fail(w, TG_ERROR_LIMIT, "a contraction needs workgroups of 64 invocations");
        return;
    }
    if (s.choice.parts > 1) s.scratch = tg_wgsl_scratch(w, wgsl_contract_outputs(&s) * s.choice.parts);
    tg_wgsl_begin(w, wgsl_contract_title(&s));
    if (s.choice.panel > 0) wgsl_contract_panels(&s);
    else if (s.choice.tile.m > 0) wgsl_contract_tiled(&s);
    else wgsl_contract_direct(&s);
    if (s.choice.parts > 1) wgsl_contract_add_parts(&s);
}

#undef WGSL_CONTRACT_LEAST_PROCESSORS
#undef WGSL_CONTRACT_MOST_PARTS
#undef WGSL_CONTRACT_MOST_SCRATCH
#undef WGSL_CONTRACT_CHAIN
#undef WGSL_CONTRACT_LONG_CHAIN
#undef WGSL_CONTRACT_MOST_TOTALS
#undef WGSL_CONTRACT_SHORT_BODY
#undef WGSL_CONTRACT_PANEL_COLUMNS
#undef WGSL_CONTRACT_TEXT
