/* choice: the walk over all layouts of a contraction. Must not know languages. */
#include "tile/cost.h"
#include "tile/layout.h"

#include <stdio.h>

#define CHOICE_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CHOICE_RUN 512
#define CHOICE_LONG_RUN 4096
#define CHOICE_MOST_TOTALS 32 /* outputs of an invocation that have registers for totals */
#define CHOICE_MOST_PARTS 256
#define CHOICE_MOST_SCRATCH (32 << 20) /* bytes; a binding holds 128 MiB */
#define CHOICE_SHORT_BODY 16           /* of an epilogue that may be printed for each output */
#define CHOICE_PANEL_COLUMNS 12        /* with fewer, most invocations would only help to add */

/* Tiles: the sizes that the rule chooses from. */
static const tg_tile_size choice_tiles[] = {
    {256, 128, 16, 8, 16, 0.70, 1, 1, false, true, 0}, /* 41.9 of 60 TFLOP/s on an H200; 24 KiB */
    {128, 128, 16, 8, 8, 0.66, 2, 1, false, true, 0},  /* 128 multiply-adds per 6 reads; 40 of 60 */
    {128, 128, 8, 8, 8, 0.45, 2, 1, false, true, 0},   /* 64 per 4; kernels side by side have it */
    {128, 64, 8, 4, 16, 0.42, 3, 1, false, true, 0},
    {64, 128, 4, 8, 16, 0.42, 3, 1, false, true, 0},
    {64, 64, 4, 4, 16, 0.30, 4, 1, false, true, 0}, /* 16 per 2: workgroup memory is the limit */
    {32, 64, 4, 4, 32, 0.28, 8, 1, false, true, 0}, /* four warps hide little: half the barriers */
    {32, 64, 4, 4, 16, 0.28, 8, 1, false, true, 0},
    {32, 32, 4, 4, 32, 0.25, 16, 1, false, true, 0},
    {32, 32, 4, 4, 16, 0.25, 16, 1, false, true, 0},
    {128, 128, 8, 8, 32, 1.70, 2, 1, false, false, 4}, /* matrices: 102 TFLOP/s, f32 has 60 */
    {64, 64, 4, 4, 32, 1.23, 4, 1, false, false, 4},   /* 74 of 60 */
};

/* Tiles of windows: the operand is fetched word by word, so that larger tiles gain less. Rates from
 * convolutions of 3 x 3 on an H200: forward 29 to 39 TFLOP/s, gradients of weights 20 to 37. */
static const tg_tile_size choice_window_tiles[] = {
    {64, 256, 8, 16, 8, 0.47, 2, 1, false, true, 0}, {128, 128, 16, 8, 8, 0.46, 2, 1, false, true, 0},
    {64, 64, 8, 8, 16, 0.45, 8, 1, false, true, 0},  {32, 256, 4, 16, 16, 0.44, 3, 1, false, true, 0},
    {64, 32, 8, 4, 16, 0.42, 10, 1, false, true, 0}, {32, 64, 4, 4, 32, 0.38, 8, 1, false, true, 0},
    {32, 32, 4, 4, 32, 0.37, 16, 1, false, true, 0}, {32, 32, 4, 4, 16, 0.33, 16, 1, false, true, 0},
};

/* Sizes that a schedule may ask for: outputs of a workgroup, of an invocation. */
static const int32_t choice_shapes[][4] = {
    {256, 128, 16, 8}, {128, 256, 8, 16}, {128, 128, 16, 8}, {128, 128, 8, 16}, {128, 128, 8, 8}, {256, 64, 16, 8},
    {64, 256, 8, 16},  {128, 64, 16, 8},  {64, 128, 8, 16},  {128, 64, 8, 8},   {64, 128, 8, 8},  {64, 64, 8, 8},
    {128, 64, 8, 4},   {64, 128, 4, 8},   {64, 64, 8, 4},    {64, 64, 4, 8},    {64, 64, 4, 4},   {64, 32, 8, 4},
    {32, 64, 4, 8},    {32, 64, 4, 4},    {32, 32, 4, 4},    {32, 256, 4, 16},  {32, 128, 4, 8},
};

/* Direct: outputs of one invocation. */
static const int32_t choice_blocks[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 4}, {4, 1}, {2, 2}, {2, 4}, {4, 4}};

/* A walk over all choices. It looks for the cheapest one, or for the wanted one, or lists them
 * all. */
typedef struct choice_search {
    const tg_tile_problem *problem;
    const tg_tile_room *room;
    const tg_schedule *wanted;
    tg_tile_candidates *candidates;
    tg_context *ctx;     /* of the candidates */
    tg_tile_choice best; /* method NONE: none yet */
    tg_status status;    /* of the candidates */
} choice_search;

static bool choice_wants_all(const choice_search *s) { return s->wanted != NULL || s->candidates != NULL; }
static bool choice_is_lone(const choice_search *s) { return s->room->frame.size == 0; }

tg_schedule tg_tile_schedule(const tg_tile_choice *c) {
    tg_schedule schedule = {.rows = c->own_m, .columns = c->own_n, .size = c->size, .parts = (int32_t)c->parts};
    switch (c->method) {
    case TG_TILE_TILES:
        schedule.kind = TG_SCHEDULE_TILES;
        schedule.tile_m = c->tile.m;
        schedule.tile_n = c->tile.n;
        schedule.tile_k = c->tile.k;
        schedule.buffers = c->tile.buffers;
        schedule.by_rows = c->tile.by_rows;
        schedule.unrolled = c->tile.unrolled;
        return schedule;
    case TG_TILE_DIRECT:
        schedule.kind = TG_SCHEDULE_DIRECT;
        schedule.ways = c->ways;
        schedule.ways_first = c->ways_first;
        return schedule;
    default: return (tg_schedule){.kind = TG_SCHEDULE_NONE};
    }
}

static void choice_visit(choice_search *s, const tg_tile_choice *c) {
    if (s->candidates != NULL) {
        if (s->status == TG_OK) s->status = tg_tile_add_candidate(s->candidates, s->ctx, tg_tile_schedule(c), c->cycles);
        return;
    }
    if (s->wanted != NULL) {
        const tg_schedule schedule = tg_tile_schedule(c);
        if (tg_schedule_equal(&schedule, s->wanted)) s->best = *c;
        return;
    }
    if (s->best.method == TG_TILE_NONE || c->cycles < s->best.cycles) s->best = *c;
}

/* Fits the parts to whole steps of `step`. Returns whether that many parts are worth a look. */
static bool choice_cut(const choice_search *s, tg_tile_choice *c, int64_t parts, int64_t step) {
    const int64_t k = s->problem->k;
    c->part_length = tg_tile_ceil(tg_tile_ceil(k, parts), step) * step;
    c->parts = tg_tile_max(tg_tile_ceil(k, c->part_length), 1);
    if (parts == 1) return true;
    return s->room->frame.slices == 0 && c->parts > 1 && k >= 4 * step * parts &&
           tg_tile_outputs(s->problem) * c->parts <= CHOICE_MOST_SCRATCH / TG_WORD_BYTES;
}

/* ---------------------------------------------------------------- tiles */

static int32_t choice_table_bytes(const choice_search *s, const tg_tile_choice *c) {
    const tg_tile_problem p = tg_tile_read(s->problem, c);
    const int32_t tables = (int32_t)tg_tile_has_table(&p.left, c) + (int32_t)tg_tile_has_table(&p.right, c);
    return tables * TG_TILE_TABLE * 4;
}

/* Matrices need a module of their own. */
static bool choice_matrices_fit(const choice_search *s, const tg_tile_choice *c) {
    const tg_device_model *device = s->room->device;
    if (c->down == 0 || !choice_is_lone(s) || c->size > device->invocations) return false;
    const tg_tile_layout layout = tg_tile_lay_out(s->problem, c);
    if (tg_tile_block(&layout.left) % TG_TILE_MATRIX != 0 || tg_tile_block(&layout.right) % TG_TILE_MATRIX != 0) return false;
    return tg_tile_matrix_bytes(&layout) + choice_table_bytes(s, c) <= device->workgroup_bytes;
}

/* What the printed text relies on, and the limits of the device. */
static bool choice_tile_fits(const choice_search *s, const tg_tile_choice *c) {
    const tg_device_model *device = s->room->device;
    const tg_tile_size *tile = &c->tile;
    const int32_t size = c->size, pieces = (tile->m + tile->n) * tile->k * (device->f16 ? 2 : 4) * tile->buffers;
    const int32_t bytes = pieces + choice_table_bytes(s, c);
    if (tile->across > 0) return choice_matrices_fit(s, c);
    if (size > device->invocations || bytes > tg_tile_workgroup_bytes(s->room, true)) return false;
    if (!choice_is_lone(s) && size != s->room->frame.size) return false;
    return size >= 64 && tile->m / tile->own_m >= 8 && tile->n / tile->own_n >= 8 && tile->m * tile->k / 4 % size == 0 &&
           tile->n * tile->k / 4 % size == 0;
}

/* Not in a launch of several kernels: there the length of all texts counts, and unrolling has not
 * been measured. */
static bool choice_may_unroll(const choice_search *s, const tg_tile_choice *c) {
    return choice_is_lone(s) && (c->parts > 1 || s->problem->body <= CHOICE_SHORT_BODY);
}

/* The tiles of one size with k in this many parts. */
static void choice_try_parts(choice_search *s, tg_tile_choice c, const tg_tile_size *tile, int64_t parts) {
    if (!choice_cut(s, &c, parts, tile->k)) return;
    c.tile.unrolled = tile->unrolled && choice_may_unroll(s, &c);
    /* the same as without unrolling */
    if (c.tile.unrolled != tile->unrolled && choice_wants_all(s)) return;
    c.cycles = tg_tile_cost(s->problem, s->room, &c);
    choice_visit(s, &c);
}

/* As many parts as fill the whole device `rounds` times: with powers of two alone, the last round
 * may leave most processors idle. 0: that many are tried anyway, or do not fit k. */
static int64_t choice_fill(const choice_search *s, const tg_tile_size *tile, int64_t rounds) {
    const tg_tile_problem *p = s->problem;
    const int64_t tiles = p->batch * tg_tile_ceil(p->rows, tile->m) * tg_tile_ceil(p->columns, tile->n);
    const int64_t parts = rounds * s->room->device->rates->processors * tile->resident / tiles;
    tg_tile_choice filled = {.parts = 0}, power = {.parts = 0};
    int64_t above = 1;
    if (!choice_is_lone(s) || parts > CHOICE_MOST_PARTS || (parts & (parts - 1)) == 0) return 0;
    while (above < parts) above *= 2;
    (void)choice_cut(s, &power, above, tile->k);
    return choice_cut(s, &filled, parts, tile->k) && filled.parts == parts && power.parts != parts ? parts : 0;
}

static void choice_try_tile(choice_search *s, const tg_tile_size *tile) {
    const tg_device_model *device = s->room->device;
    tg_tile_choice c = {.method = TG_TILE_TILES, .tile = *tile, .own_m = tile->own_m, .own_n = tile->own_n, .ways = 1};
    c.size = tile->m / tile->own_m * (tile->n / tile->own_n);
    c.halves = device->f16;
    c.tables = choice_is_lone(s) && tile->buffers == 1;
    /* as many subgroups below one another as fill the workgroup */
    if (tile->across > 0 && device->f16 && device->matrix_subgroup > 0) c.down = c.size / device->matrix_subgroup / tile->across;
    if (!choice_tile_fits(s, &c)) return;
    for (int64_t parts = 1; parts <= CHOICE_MOST_PARTS; parts *= 2) choice_try_parts(s, c, tile, parts);
    for (int64_t rounds = 1; rounds <= 3; rounds++) {
        const int64_t parts = choice_fill(s, tile, rounds);
        if (parts > 0) choice_try_parts(s, c, tile, parts);
    }
}

/* Can four k of the left operand be walked in either order? The right one must come by rows, and
 * the left one must not. */
static bool choice_has_orders(const tg_tile_problem *p) {
    const bool left_by_rows = p->left.can_widen && p->left.unit == TG_TILE_UNIT_ROW;
    const bool right_by_rows = p->right.can_widen && p->right.unit == TG_TILE_UNIT_ROW;
    return right_by_rows && !left_by_rows;
}

/* Each tile of one shape that a schedule may ask for. Rates and residents are estimated from
 * the measured ones and from registers. */
static void choice_try_shape(choice_search *s, const int32_t shape[4]) {
    const int32_t outputs = shape[2] * shape[3], size = shape[0] * shape[1] / outputs;
    tg_tile_size tile = {.m = shape[0], .n = shape[1], .own_m = shape[2], .own_n = shape[3]};
    tile.rate = outputs >= 128 ? 0.64 : outputs >= 64 ? 0.45 : outputs >= 32 ? 0.42 : 0.28;
    tile.resident = (int32_t)tg_tile_max(65536 / (size * (outputs + 64)), 1);
    for (tile.k = 8; tile.k <= 32; tile.k *= 2)
        for (int i = 0; i < 8; i++) {
            tile.buffers = i & 1 ? 2 : 1;
            tile.by_rows = (i & 2) != 0;
            tile.unrolled = (i & 4) != 0;
            if (tile.by_rows && !choice_has_orders(s->problem)) continue;
            choice_try_tile(s, &tile);
        }
}

/* Lone, with columns or k in several loops that cannot be read as vectors. Their rates are for f32. */
static bool choice_has_windows(const choice_search *s) {
    const tg_tile_operand *right = &s->problem->right;
    return choice_is_lone(s) && !s->room->device->f16 && !right->can_widen && (right->row.count > 1 || right->k.count > 1);
}

/* Not in a chain: its workgroups are larger where that is possible; elsewhere its panels take the
 * workgroup memory. */
static void choice_try_tiles(choice_search *s) {
    if (s->room->device->slow_barriers || s->room->frame.slices > 0) return;
    if (choice_wants_all(s)) {
        for (size_t i = 0; i < CHOICE_COUNT(choice_shapes); i++) choice_try_shape(s, choice_shapes[i]);
        return;
    }
    const bool windows = choice_has_windows(s);
    for (size_t i = 0; windows && i < CHOICE_COUNT(choice_window_tiles); i++) choice_try_tile(s, &choice_window_tiles[i]);
    for (size_t i = 0; i < CHOICE_COUNT(choice_tiles); i++) {
        if (windows && choice_tiles[i].across == 0) continue;
        if (choice_is_lone(s) || choice_tiles[i].m < 256) choice_try_tile(s, &choice_tiles[i]);
    }
}

/* ---------------------------------------------------------------- direct */

/* Several ways add their sums in a tree in workgroup memory. */
static bool choice_ways_fit(const choice_search *s, const tg_tile_choice *c) {
    const int64_t outputs = (int64_t)c->own_m * c->own_n;
    if (c->ways == 1) return true;
    return !s->room->device->slow_barriers && s->problem->k >= (int64_t)4 * c->ways &&
           4 * outputs * c->size <= tg_tile_workgroup_bytes(s->room, false) && outputs <= 4;
}

static void choice_try_ways(choice_search *s, tg_tile_choice c) {
    for (c.ways = 1; c.ways <= c.size && choice_ways_fit(s, &c); c.ways *= 2)
        for (int64_t parts = 1; parts <= CHOICE_MOST_PARTS; parts *= 2) {
            if (!choice_cut(s, &c, parts, (int64_t)4 * c.ways)) continue;
            for (int first = 0; first < (c.ways >= 8 ? 2 : 1); first++) {
                c.ways_first = first == 1;
                c.cycles = tg_tile_cost(s->problem, s->room, &c);
                choice_visit(s, &c);
            }
        }
}

static void choice_try_direct(choice_search *s) {
    for (size_t i = 0; i < CHOICE_COUNT(choice_blocks); i++) {
        tg_tile_choice c = {.method = TG_TILE_DIRECT, .own_m = choice_blocks[i][0], .own_n = choice_blocks[i][1]};
        if (c.own_m > s->problem->rows || c.own_n > s->problem->columns) continue;
        c.size = s->room->frame.size;
        if (c.size > 0) choice_try_ways(s, c);
        else
            for (c.size = 64; c.size <= tg_tile_min(256, s->room->device->invocations); c.size *= 4) choice_try_ways(s, c);
    }
}

/* ---------------------------------------------------------------- panels */

/* Panels, where they apply. Each element of the right operand is read once from memory, and the
 * left ones from workgroup memory: always better than what the direct method reads. */
static bool choice_take_panels(const tg_tile_problem *p, const tg_tile_room *room, tg_tile_choice *out) {
    const int64_t vectors = tg_tile_workgroup_bytes(room, true) / 16;
    if (room->frame.slices == 0 || room->device->slow_barriers || p->batch != 1 || p->columns < CHOICE_PANEL_COLUMNS || p->k < 8 ||
        p->k > 4 * CHOICE_RUN)
        return false;
    tg_tile_choice c = {.method = TG_TILE_PANELS, .own_m = 1, .own_n = 1, .size = room->frame.size, .parts = 1};
    const int64_t panels = tg_tile_ceil(p->rows, room->frame.panel);
    c.panel = (int32_t)tg_tile_ceil(p->rows, panels);
    c.lanes = 1;
    while (c.lanes < p->columns && c.lanes < c.size) c.lanes *= 2;
    for (c.ways = c.size / c.lanes; c.ways > 1 && 4 * c.ways > p->k;) c.ways /= 2;
    c.part_length = tg_tile_ceil(p->k, 4) * 4;
    c.panel_k = (int32_t)tg_tile_min(c.part_length, vectors / c.panel * 4);
    if ((int64_t)c.size * tg_tile_ceil(c.panel, 4) > vectors || c.panel_k < 4 * c.ways) return false;
    *out = c;
    return true;
}

/* ---------------------------------------------------------------- the rule */

static void choice_walk(choice_search *s) {
    choice_try_direct(s); /* first: of equals, the simpler one */
    choice_try_tiles(s);
}

static bool choice_take_tuned(const tg_tile_problem *problem, const tg_tile_room *room, tg_tile_choice *out) {
    char key[TG_TILE_KEY];
    if (room->device->schedules == NULL || room->device->f16 || room->frame.size != 0) return false;
    tg_tile_key(problem, key);
    choice_search s = {.problem = problem, .room = room, .wanted = tg_schedule_find(room->device->schedules, key)};
    if (s.wanted == NULL) return false;
    choice_walk(&s);
    if (s.best.method == TG_TILE_NONE) return false;
    *out = s.best;
    out->tuned = true;
    return true;
}

bool tg_tile_choose(const tg_tile_problem *problem, const tg_tile_room *room, tg_tile_choice *out) {
    if (choice_take_tuned(problem, room, out) || choice_take_panels(problem, room, out)) return true;
    choice_search s = {.problem = problem, .room = room};
    choice_walk(&s);
    *out = s.best;
    return out->method != TG_TILE_NONE;
}

double tg_tile_time_alone(const tg_kernel *kernel, const tg_device_model *device) {
    const tg_tile_problem problem = tg_tile_problem_make(kernel, 0, true, true);
    const tg_tile_room room = {.device = device};
    choice_search s = {.problem = &problem, .room = &room};
    choice_walk(&s);
    return s.best.cycles / device->rates->clock;
}

tg_status tg_tile_list_candidates(const tg_tile_problem *problem, const tg_tile_room *room, tg_context *ctx,
                                  tg_tile_candidates *candidates) {
    choice_search cheapest = {.problem = problem, .room = room};
    choice_search all = {.problem = problem, .room = room, .candidates = candidates, .ctx = ctx, .status = TG_OK};
    if (room->device->f16) return TG_OK;
    choice_walk(&cheapest);
    if (cheapest.best.method == TG_TILE_NONE) return TG_OK;
    candidates->chosen = tg_tile_schedule(&cheapest.best);
    tg_tile_key(problem, candidates->key);
    choice_walk(&all);
    return all.status;
}

tg_tile_problem tg_tile_read(const tg_tile_problem *problem, const tg_tile_choice *choice) {
    tg_tile_problem p = *problem;
    const bool tiles = choice->method == TG_TILE_TILES;
    bool left = p.left.can_widen && (tiles || p.left.unit == TG_TILE_UNIT_K);
    bool right = p.right.can_widen && (tiles || p.right.unit == TG_TILE_UNIT_K);
    if (p.left.argument == p.right.argument) left = right = left && right;
    if (left) tg_tile_widen(&p.left);
    if (right) tg_tile_widen(&p.right);
    return p;
}

/* ---------------------------------------------------------------- keys */

static const char *choice_class(const tg_tile_operand *o) {
    static const char *const names[3][2] = {{"scattered", "scattered"}, {"k", "4k"}, {"row", "4row"}};
    return names[o->unit][o->can_widen ? 1 : 0];
}

void tg_tile_key(const tg_tile_problem *p, char key[TG_TILE_KEY]) {
    const char *epilogue = p->body <= 2 ? "stored" : p->body <= CHOICE_SHORT_BODY ? "short" : "long";
    snprintf(key, TG_TILE_KEY, "contract %lldx%lldx%lldx%lld %s %s %s", (long long)p->batch, (long long)p->rows, (long long)p->columns,
             (long long)p->k, choice_class(&p->left), choice_class(&p->right), epilogue);
}

/* ---------------------------------------------------------------- what a printer asks */

int32_t tg_tile_run(const tg_tile_choice *choice) {
    return choice->own_m * choice->own_n <= CHOICE_MOST_TOTALS ? CHOICE_RUN : CHOICE_LONG_RUN;
}

bool tg_tile_has_table(const tg_tile_operand *operand, const tg_tile_choice *choice) {
    return choice->tables && !operand->wide && !tg_tile_even_fours(operand);
}

tg_tile_end tg_tile_end_of(const tg_tile_problem *problem, const tg_tile_choice *choice, int64_t step) {
    const int64_t k = problem->k, part = choice->part_length;
    if (k % step == 0 && part % step == 0 && k % part % step == 0) return TG_TILE_END_EXACT;
    return k % 4 == 0 ? TG_TILE_END_FOURS : TG_TILE_END_ANY;
}

#undef CHOICE_COUNT
#undef CHOICE_RUN
#undef CHOICE_LONG_RUN
#undef CHOICE_MOST_TOTALS
#undef CHOICE_MOST_PARTS
#undef CHOICE_MOST_SCRATCH
#undef CHOICE_SHORT_BODY
#undef CHOICE_PANEL_COLUMNS
