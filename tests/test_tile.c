/* Tiling without a device: the strides of operands, which schedule is chosen for which shape and
 * its expected cost, what a tuning table may name, where a tile is in workgroup memory, how several
 * kernels of a launch are laid out. The choices are fixed here because they decide what is printed,
 * and with it the order of summation. */
#include "support.h"

#include "tile/choice.h"
#include "tile/cost.h"
#include "tile/layout.h"

#include <stdlib.h>
#include <string.h>

/* One letter a loop; an operand is row-major over its letters and has stride 0 along the others. */
typedef struct shape {
    const char *batch, *m, *n, *k;
    int64_t extent[8]; /* in the order of batch, m, n, k */
    const char *a, *b, *y;
} shape;

static tg_device_model small(void) { return tg_device_guaranteed; }

/* What an H200 has. */
static tg_device_model large(void) {
    tg_device_model device = tg_device_guaranteed;
    device.invocations = 1024;
    device.workgroup_bytes = 49152;
    return device;
}

static tg_affine lay_out(const char *letters, const int64_t *extent, const char *layout) {
    tg_affine at = {0};
    int64_t stride = 1;
    for (size_t i = strlen(layout); i-- > 0;) {
        const int d = (int)(strchr(letters, layout[i]) - letters);
        at.stride[d] = stride;
        stride *= extent[d];
    }
    return at;
}

typedef struct contraction {
    tg_kernel kernel;
    tg_instruction body[2];
} contraction;

/* y = a b, stored as it is. */
static void make(contraction *c, const shape *s) {
    char letters[16];
    snprintf(letters, sizeof letters, "%s%s%s%s", s->batch, s->m, s->n, s->k);
    *c = (contraction){.kernel = {.kind = TG_KERNEL_CONTRACT, .name = "contract"}};
    tg_kernel *kernel = &c->kernel;
    kernel->loop_count = (int32_t)strlen(letters);
    memcpy(kernel->extent, s->extent, sizeof s->extent);
    kernel->m_begin = (int32_t)strlen(s->batch);
    kernel->n_begin = kernel->m_begin + (int32_t)strlen(s->m);
    kernel->outer_count = kernel->n_begin + (int32_t)strlen(s->n);
    kernel->a = (tg_operand_access){0, lay_out(letters, s->extent, s->a)};
    kernel->b = (tg_operand_access){1, lay_out(letters, s->extent, s->b)};
    c->body[0] = (tg_instruction){.op = TG_K_ACC, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT};
    c->body[1] = (tg_instruction){.op = TG_K_STORE, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT, .argument = 2};
    c->body[1].at = lay_out(letters, s->extent, s->y);
    kernel->body = c->body;
    kernel->body_count = 2;
}

static tg_tile_problem problem_of(const shape *s, int32_t slices) {
    contraction c;
    make(&c, s);
    return tg_tile_problem_make(&c.kernel, slices, true, true);
}

static shape product(int64_t m, int64_t n, int64_t k) { return (shape){"", "m", "n", "k", {m, n, k}, "mk", "kn", "mn"}; }

static tg_tile_choice choice_of(const tg_tile_problem *problem, const tg_tile_room *room) {
    tg_tile_choice choice;
    assert_true(tg_tile_choose(problem, room, &choice));
    return choice;
}

/* ---------------------------------------------------------------- the problem */

static void operands_and_axes(void **state) {
    (void)state;
    const shape rows = {"b", "m", "n", "k", {2, 8, 12, 16}, "bmk", "bkn", "bmn"};
    const tg_tile_problem p = problem_of(&rows, 0);
    assert_false(p.swapped);
    assert_int_equal(p.batch, 2);
    assert_int_equal(p.rows, 8);
    assert_int_equal(p.columns, 12);
    assert_int_equal(p.k, 16);
    assert_int_equal(tg_tile_outputs(&p), 192);
    assert_int_equal(p.left.unit, TG_TILE_UNIT_K);
    assert_int_equal(p.right.unit, TG_TILE_UNIT_ROW);
    assert_true(p.left.can_widen && p.right.can_widen);
    assert_int_equal(p.right.k.count, 1);
    assert_int_equal(p.right.k.stride[0], 12);
    /* the result is contiguous along m: b takes the rows */
    const shape columns = {"b", "m", "n", "k", {2, 8, 12, 16}, "bmk", "bkn", "bnm"};
    const tg_tile_problem q = problem_of(&columns, 0);
    assert_true(q.swapped);
    assert_int_equal(q.rows, 12);
    assert_int_equal(q.left.argument, 1);
    assert_int_equal(q.right.argument, 0);
    /* matrix times vector: m takes the columns */
    const shape vector = {"", "m", "", "k", {8, 16}, "mk", "k", "m"};
    assert_true(problem_of(&vector, 0).swapped);
}

/* Loops that are one walk are one axis; others are not. */
static void loops_are_merged(void **state) {
    (void)state;
    const shape whole = {"", "mo", "n", "kl", {4, 6, 8, 4, 3}, "mokl", "kln", "mon"};
    const tg_tile_problem p = problem_of(&whole, 0);
    assert_int_equal(p.left.row.count, 1);
    assert_int_equal(p.left.row.extent[0], 24);
    assert_int_equal(p.left.k.count, 1);
    assert_int_equal(p.left.k.extent[0], 12);
    const shape apart = {"", "mo", "n", "kl", {4, 6, 8, 4, 3}, "mkol", "kln", "mon"};
    const tg_tile_problem q = problem_of(&apart, 0);
    assert_int_equal(q.left.row.count, 2);
    assert_int_equal(q.left.k.count, 2);
    assert_int_equal(q.left.unit, TG_TILE_UNIT_K);
    assert_false(q.left.can_widen); /* three neighbours */
}

/* Taps of three next to each other are fewer neighbours than the columns of a row. Batches that
 * share the left operand are columns. */
static void operands_of_windows(void **state) {
    (void)state;
    const shape forward = {"b", "m", "hw", "kpq", {5, 8, 9, 7, 10, 3, 3}, "mkpq", "bkhpqw", "bmhw"};
    tg_tile_problem p = problem_of(&forward, 0);
    assert_int_equal(p.batch, 1);
    assert_int_equal(p.folded, 63);
    assert_int_equal(p.columns, 5 * 63);
    assert_int_equal(p.right.row.count, 3);
    assert_int_equal(p.right.batch.count, 0);
    assert_int_equal(p.right.unit, TG_TILE_UNIT_ROW);
    assert_int_equal(p.left.unit, TG_TILE_UNIT_K);
    assert_false(tg_tile_even_fours(&p.right));
    assert_true(tg_tile_even_fours(&p.left));
    const shape windows = {"b", "m", "hw", "kpq", {5, 8, 9, 7, 10, 3, 3}, "mkpq", "bkhwpq", "bmhw"};
    assert_int_equal(problem_of(&windows, 0).right.unit, TG_TILE_UNIT_K); /* nine */
    const shape rows = {"", "m", "hw", "kq", {8, 9, 7, 10, 3}, "mkq", "khqw", "mhw"};
    contraction c;
    make(&c, &rows);
    c.kernel.b.at.stride[4] = 1; /* q: three neighbours, against w: seven */
    assert_int_equal(tg_tile_problem_make(&c.kernel, 0, true, true).right.unit, TG_TILE_UNIT_ROW);
    c.kernel.a.at.stride[4] = -1;
    p = tg_tile_problem_make(&c.kernel, 0, true, true);
    assert_int_equal(p.left.unit, TG_TILE_UNIT_K); /* neighbours backwards are no vector */
    assert_false(p.left.can_widen);
    const shape own = {"b", "m", "n", "k", {5, 8, 9, 16}, "bmk", "bkn", "bmn"};
    assert_int_equal(problem_of(&own, 0).folded, 0);
    /* the table is for a lone kernel with one piece in workgroup memory */
    p = problem_of(&forward, 0);
    tg_tile_choice choice = {.method = TG_TILE_TILES, .tables = true};
    assert_true(tg_tile_has_table(&p.right, &choice));
    assert_false(tg_tile_has_table(&p.left, &choice));
    choice.tables = false;
    assert_false(tg_tile_has_table(&p.right, &choice));
}

static void operands_as_vectors(void **state) {
    (void)state;
    const shape s = product(8, 12, 16);
    contraction c;
    make(&c, &s);
    assert_false(tg_tile_problem_make(&c.kernel, 0, false, true).left.can_widen);
    assert_true(tg_tile_problem_make(&c.kernel, 0, false, true).right.can_widen);
    c.kernel.a.at.offset = 2;
    assert_false(tg_tile_problem_make(&c.kernel, 0, true, true).left.can_widen);
    c.kernel.a.at.offset = 8;
    tg_tile_problem p = tg_tile_problem_make(&c.kernel, 0, true, true);
    tg_tile_widen(&p.left);
    tg_tile_widen(&p.right);
    assert_int_equal(p.left.offset, 2);
    assert_int_equal(p.left.row.stride[0], 4);
    assert_int_equal(p.left.k.extent[0], 4);
    assert_int_equal(p.left.k.stride[0], 1);
    assert_false(p.left.along_rows);
    assert_int_equal(p.right.row.extent[0], 3);
    assert_int_equal(p.right.k.stride[0], 3);
    assert_true(p.right.along_rows);
    /* one buffer for both: both or none */
    c.kernel.b.argument = 0;
    const tg_tile_problem shared = tg_tile_problem_make(&c.kernel, 0, true, false);
    assert_false(shared.left.can_widen || shared.right.can_widen);
}

static void a_slice_of_a_chain(void **state) {
    (void)state;
    const shape s = product(64, 16, 32);
    const tg_tile_problem p = problem_of(&s, 8);
    assert_int_equal(p.rows, 8);
    assert_int_equal(p.left.slice, 8 * 32);
    assert_int_equal(p.right.slice, 0);
}

/* ---------------------------------------------------------------- pinned choices */

/* The schedule on a device of the guaranteed limits, and of an H200's where that is another one. */
typedef struct pinned {
    shape shape;
    const char *key, *small, *large;
} pinned;

static const pinned pins[] = {
    {{"", "m", "n", "k", {4096, 4096, 4096}, "mk", "kn", "mn"},
     "contract 1x4096x4096x4096 4k 4row stored",
     "tiles tile_m=128 tile_n=128 rows=16 columns=8 slice=8 buffers=1 by_rows=0 unrolled=1 parts=1",
     "tiles tile_m=256 tile_n=128 rows=16 columns=8 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1"},
    {{"", "m", "n", "k", {4096, 4096, 4096}, "mk", "nk", "mn"},
     "contract 1x4096x4096x4096 4k 4k stored",
     "tiles tile_m=128 tile_n=128 rows=16 columns=8 slice=8 buffers=1 by_rows=0 unrolled=1 parts=1",
     "tiles tile_m=256 tile_n=128 rows=16 columns=8 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1"},
    {{"", "m", "n", "k", {4096, 4096, 4096}, "km", "kn", "mn"},
     "contract 1x4096x4096x4096 4row 4row stored",
     "tiles tile_m=128 tile_n=128 rows=16 columns=8 slice=8 buffers=1 by_rows=0 unrolled=1 parts=1",
     "tiles tile_m=256 tile_n=128 rows=16 columns=8 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1"},
    {{"", "m", "n", "k", {1024, 1024, 1024}, "mk", "kn", "nm"},
     "contract 1x1024x1024x1024 4row 4k stored",
     "tiles tile_m=128 tile_n=128 rows=16 columns=8 slice=8 buffers=1 by_rows=0 unrolled=1 parts=2",
     NULL},
    {{"", "m", "n", "k", {1024, 1024, 3}, "mk", "kn", "mn"},
     "contract 1x1024x1024x3 k 4row stored",
     "direct rows=4 columns=4 size=64 ways=1 ways_first=0 parts=1",
     NULL},
    {{"", "m", "n", "k", {256, 256, 256}, "mk", "kn", "mn"},
     "contract 1x256x256x256 4k 4row stored",
     "tiles tile_m=32 tile_n=64 rows=4 columns=4 slice=16 buffers=1 by_rows=0 unrolled=1 parts=4",
     NULL},
    {{"", "m", "n", "k", {64, 64, 65536}, "mk", "kn", "mn"},
     "contract 1x64x64x65536 4k 4row stored",
     "tiles tile_m=32 tile_n=64 rows=4 columns=4 slice=32 buffers=1 by_rows=0 unrolled=1 parts=64",
     NULL},
    /* convolutions of 3 x 3: forward, and the gradient of the weights */
    {{"b", "m", "hw", "kpq", {512, 64, 15, 15, 64, 3, 3}, "mkpq", "bkhpqw", "bmhw"},
     "contract 1x64x115200x576 4k row stored",
     "tiles tile_m=64 tile_n=256 rows=8 columns=16 slice=8 buffers=1 by_rows=0 unrolled=1 parts=1",
     NULL},
    {{"b", "m", "hw", "kpq", {512, 32, 31, 31, 32, 3, 3}, "mkpq", "bkhpqw", "bmhw"},
     "contract 1x32x492032x288 4k row stored",
     "tiles tile_m=32 tile_n=64 rows=4 columns=4 slice=32 buffers=1 by_rows=0 unrolled=1 parts=1",
     "tiles tile_m=32 tile_n=256 rows=4 columns=16 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1"},
    {{"", "m", "kpq", "bhw", {64, 64, 3, 3, 256, 16, 15}, "bmhw", "bkphqw", "mkpq"},
     "contract 1x64x576x61440 4k k stored",
     "tiles tile_m=64 tile_n=64 rows=8 columns=8 slice=16 buffers=1 by_rows=0 unrolled=1 parts=117",
     NULL},
    {{"", "m", "n", "k", {64, 64, 512}, "mk", "kn", "mn"},
     "contract 1x64x64x512 4k 4row stored",
     "direct rows=4 columns=1 size=64 ways=8 ways_first=0 parts=1",
     NULL},
    {{"", "m", "n", "k", {100, 10, 784}, "mk", "kn", "mn"},
     "contract 1x100x10x784 4k row stored",
     "direct rows=4 columns=1 size=64 ways=64 ways_first=0 parts=1",
     NULL},
    {{"", "m", "n", "k", {784, 128, 100}, "km", "kn", "mn"},
     "contract 1x784x128x100 4row 4row stored",
     "tiles tile_m=32 tile_n=32 rows=4 columns=4 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1",
     NULL},
    {{"b", "m", "n", "k", {3, 131, 260, 71}, "bmk", "bnk", "bmn"},
     "contract 3x131x260x71 k k stored",
     "tiles tile_m=32 tile_n=64 rows=4 columns=4 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1",
     NULL},
    {{"b", "m", "n", "k", {512, 16, 16, 64}, "bmk", "bnk", "bmn"},
     "contract 512x16x16x64 4k 4k stored",
     "direct rows=4 columns=4 size=64 ways=1 ways_first=0 parts=1",
     NULL},
    {{"bc", "m", "n", "k", {32, 8, 64, 64, 64}, "bmck", "bnck", "bcmn"},
     "contract 256x64x64x64 4k 4k stored",
     "tiles tile_m=64 tile_n=64 rows=4 columns=4 slice=16 buffers=1 by_rows=0 unrolled=1 parts=1",
     NULL},
    {{"", "mo", "n", "kl", {32, 28, 64, 3, 3}, "mokl", "kln", "mon"},
     "contract 1x896x64x9 k 4row stored",
     "direct rows=2 columns=4 size=64 ways=1 ways_first=0 parts=1",
     NULL},
    {{"", "", "n", "k", {4096, 4096}, "k", "kn", "n"},
     "contract 1x1x4096x4096 4k 4row stored",
     "direct rows=1 columns=4 size=256 ways=8 ways_first=0 parts=4",
     NULL},
    {{"", "m", "", "k", {4096, 4096}, "mk", "k", "m"},
     "contract 1x1x4096x4096 4k 4k stored",
     "direct rows=1 columns=4 size=64 ways=64 ways_first=0 parts=1",
     NULL},
    {{"", "", "", "k", {100000}, "k", "k", ""},
     "contract 1x1x1x100000 4k 4k stored",
     "direct rows=1 columns=1 size=256 ways=256 ways_first=0 parts=14",
     NULL},
    {{"", "m", "n", "k", {8, 4096, 4096}, "mk", "kn", "mn"},
     "contract 1x8x4096x4096 4k 4row stored",
     "direct rows=4 columns=4 size=64 ways=1 ways_first=0 parts=8",
     NULL},
    {{"", "m", "n", "k", {2000, 36, 1000}, "mk", "nk", "mn"},
     "contract 1x2000x36x1000 4k 4k stored",
     "tiles tile_m=128 tile_n=64 rows=8 columns=4 slice=16 buffers=1 by_rows=0 unrolled=1 parts=8",
     NULL},
    {{"", "m", "n", "k", {4, 12, 8}, "mk", "kn", "mn"},
     "contract 1x4x12x8 4k 4row stored",
     "direct rows=1 columns=1 size=64 ways=2 ways_first=0 parts=1",
     NULL},
};

static void check_pin(const pinned *pin, tg_device_model device, const char *expected) {
    const tg_tile_room room = {.device = &device};
    const tg_tile_problem problem = problem_of(&pin->shape, 0);
    const tg_tile_choice choice = choice_of(&problem, &room);
    const tg_schedule schedule = tg_tile_schedule(&choice);
    char key[TG_TILE_KEY], text[TG_SCHEDULE_TEXT];
    tg_tile_key(&problem, key);
    assert_string_equal(key, pin->key);
    assert_string_equal(tg_schedule_print(&schedule, text, sizeof text), expected);
    assert_true(choice.cycles == tg_tile_cost(&problem, &room, &choice));
    assert_false(choice.tuned || choice.halves);
}

static void choices_are_pinned(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(pins); i++) {
        check_pin(&pins[i], small(), pins[i].small);
        check_pin(&pins[i], large(), pins[i].large != NULL ? pins[i].large : pins[i].small);
    }
}

/* Where barriers are slow, nothing goes through workgroup memory. */
static void slow_barriers(void **state) {
    (void)state;
    tg_device_model device = small();
    device.slow_barriers = true;
    for (int i = 0; i < SUPPORT_COUNT(pins); i++) {
        const tg_tile_problem problem = problem_of(&pins[i].shape, 0);
        const tg_tile_choice choice = choice_of(&problem, &(tg_tile_room){.device = &device});
        assert_int_equal(choice.method, TG_TILE_DIRECT);
        assert_int_equal(choice.ways, 1);
    }
}

static void what_fits_nowhere(void **state) {
    (void)state;
    const shape s = product(64, 64, 64);
    const tg_tile_problem problem = problem_of(&s, 0);
    tg_device_model device = small();
    tg_tile_choice choice;
    device.invocations = 32;
    assert_false(tg_tile_choose(&problem, &(tg_tile_room){.device = &device}, &choice));
    assert_int_equal(choice.method, TG_TILE_NONE);
}

/* ---------------------------------------------------------------- costs */

/* Twice the work never costs less, and where work is all there is, about twice. (Four k may: from
 * there on they are read as vectors.) */
static void check_growth(const char *what, shape from, int d, int doublings) {
    tg_device_model device = large();
    const tg_tile_room room = {.device = &device};
    double before = 0.0, ratio = 0.0;
    for (int i = 0; i <= doublings; i++, from.extent[d] *= 2) {
        const tg_tile_problem problem = problem_of(&from, 0);
        const tg_tile_choice choice = choice_of(&problem, &room);
        if (choice.cycles < before)
            fail_msg("%s, %lld: %g cycles, half of it takes %g", what, (long long)from.extent[d], choice.cycles, before);
        ratio = choice.cycles / before;
        before = choice.cycles;
    }
    if (ratio < 1.9 || ratio > 2.1) fail_msg("%s: the last doubling takes %g times as long", what, ratio);
}

static void cost_grows_with_work(void **state) {
    (void)state;
    check_growth("rows", product(1, 1024, 1024), 0, 14);
    check_growth("columns", product(1024, 1, 1024), 1, 14);
    check_growth("k", product(1024, 1024, 4), 2, 14);
    check_growth("k of a few outputs", product(16, 16, 16), 2, 20);
    check_growth("batch", (shape){"b", "m", "n", "k", {1, 64, 64, 64}, "bmk", "bnk", "bmn"}, 0, 14);
    check_growth("rows of a vector", (shape){"", "m", "", "k", {1, 4096}, "mk", "k", "m"}, 0, 16);
}

/* The same layout of more work costs more, and less of the device costs more. */
static void cost_of_one_layout(void **state) {
    (void)state;
    tg_device_model device = large();
    tg_tile_room room = {.device = &device};
    const shape s = product(2048, 2048, 2048), longer = product(2048, 2048, 4096);
    const tg_tile_problem problem = problem_of(&s, 0), more = problem_of(&longer, 0);
    tg_tile_choice choice = choice_of(&problem, &room);
    assert_int_equal(choice.method, TG_TILE_TILES);
    assert_int_equal(choice.parts, 1);
    choice.part_length = 4096;
    assert_true(tg_tile_cost(&more, &room, &choice) > 1.8 * choice.cycles);
    choice.part_length = 2048;
    room.frame.share = 4;
    assert_true(tg_tile_cost(&problem, &room, &choice) > 3.0 * choice.cycles);
}

/* ---------------------------------------------------------------- candidates and tables */

static void check_fits(const tg_schedule *s, const tg_device_model *device) {
    assert_in_range(s->size, 64, device->invocations);
    assert_in_range(s->parts, 1, 256);
    if (s->kind != TG_SCHEDULE_TILES) return;
    assert_in_range((s->tile_m + s->tile_n) * s->tile_k * 4 * s->buffers, 1, device->workgroup_bytes);
    assert_int_equal(s->tile_m / s->rows * (s->tile_n / s->columns), s->size);
}

/* Every candidate fits, differs from the others, and is followed by a table that names it. */
static void check_candidates(shape s, int64_t least) {
    tg_context *ctx = support_context();
    tg_device_model device = large();
    const tg_tile_room room = {.device = &device};
    const tg_tile_problem problem = problem_of(&s, 0);
    tg_tile_candidates candidates = {.count = 0};
    assert_int_equal(tg_tile_list_candidates(&problem, &room, ctx, &candidates), TG_OK);
    assert_true(candidates.count >= least);
    int chosen = 0;
    for (int64_t i = 0; i < candidates.count; i++) {
        const tg_schedule_entry entry = {candidates.key, candidates.items[i].schedule};
        const tg_schedules table = {&entry, 1};
        device.schedules = &table;
        const tg_tile_choice choice = choice_of(&problem, &room);
        const tg_schedule followed = tg_tile_schedule(&choice);
        assert_true(choice.tuned);
        assert_true(tg_schedule_equal(&followed, &entry.schedule));
        assert_true(choice.cycles == candidates.items[i].cycles);
        check_fits(&entry.schedule, &device);
        chosen += tg_schedule_equal(&candidates.chosen, &entry.schedule);
        for (int64_t j = 0; j < i; j++) assert_false(tg_schedule_equal(&entry.schedule, &candidates.items[j].schedule));
    }
    assert_int_equal(chosen, 1);
    tg_tile_sort_candidates(&candidates);
    for (int64_t i = 1; i < candidates.count; i++) assert_true(candidates.items[i - 1].cycles <= candidates.items[i].cycles);
    tg_tile_free_candidates(&candidates, ctx);
    tg_context_destroy(ctx);
}

static void candidates_are_followed(void **state) {
    (void)state;
    check_candidates(product(1024, 1024, 1024), 100);
    check_candidates(product(131, 260, 71), 100);
    check_candidates((shape){"", "", "n", "k", {4096, 4096}, "k", "kn", "n"}, 10);
}

/* What is not listed is not followed; nor is a table of another key, of a kernel that is not
 * alone, or with halves. */
static void tables_that_are_ignored(void **state) {
    (void)state;
    const shape s = product(256, 256, 256);
    const tg_tile_problem problem = problem_of(&s, 0);
    tg_device_model device = large();
    tg_tile_room room = {.device = &device};
    tg_schedule_entry entry = {"contract 1x256x256x256 4k 4row stored", tg_tile_schedule(&(tg_tile_choice){.method = TG_TILE_DIRECT})};
    const tg_schedules table = {&entry, 1};
    device.schedules = &table;
    assert_false(choice_of(&problem, &room).tuned); /* of no size at all */
    entry.schedule = (tg_schedule){.kind = TG_SCHEDULE_DIRECT, .size = 64, .rows = 1, .columns = 1, .ways = 1, .parts = 1};
    assert_true(choice_of(&problem, &room).tuned);
    room.frame = (tg_tile_frame){.size = 256, .share = 2};
    assert_false(choice_of(&problem, &room).tuned);
    room.frame = (tg_tile_frame){.size = 0};
    device.f16 = true;
    assert_false(choice_of(&problem, &room).tuned);
    device.f16 = false;
    entry.key = "contract 1x256x256x255 4k 4row stored";
    assert_false(choice_of(&problem, &room).tuned);
}

static void candidates_without_memory(void **state) {
    (void)state;
    const shape s = product(64, 64, 64);
    const tg_tile_problem problem = problem_of(&s, 0);
    tg_device_model device = small();
    for (int64_t at = 2;; at++) {
        support_allocator allocator = {.fail_at = at};
        tg_context *ctx = support_context_counting(&allocator);
        if (ctx == NULL) continue;
        tg_tile_candidates candidates = {.count = 0};
        const tg_status status = tg_tile_list_candidates(&problem, &(tg_tile_room){.device = &device}, ctx, &candidates);
        const bool reached = allocator.calls >= at;
        tg_tile_free_candidates(&candidates, ctx);
        tg_context_destroy(ctx);
        assert_int_equal(allocator.live_blocks, 0);
        assert_int_equal(status, reached ? TG_ERROR_MEMORY : TG_OK);
        if (!reached) break;
    }
}

/* ---------------------------------------------------------------- layouts */

/* Every vector of a piece is fetched once, and what is fetched is what is read. */
static void tiles_in_workgroup_memory(void **state) {
    (void)state;
    tg_device_model device = large();
    const tg_tile_room room = {.device = &device};
    const char *const operands[][2] = {{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}};
    for (int i = 0; i < SUPPORT_COUNT(operands); i++) {
        const shape s = {"", "m", "n", "k", {1024, 512, 256}, operands[i][0], operands[i][1], "mn"};
        const tg_tile_problem problem = problem_of(&s, 0);
        const tg_tile_choice choice = choice_of(&problem, &room);
        assert_int_equal(choice.method, TG_TILE_TILES);
        const tg_tile_problem read = tg_tile_read(&problem, &choice);
        const tg_tile_layout layout = tg_tile_lay_out(&read, &choice);
        const tg_tile_side *const parts[] = {&layout.left, &layout.right};
        assert_int_equal(layout.left.invocations * layout.right.invocations, layout.size);
        for (int side = 0; side < 2; side++) {
            const tg_tile_side *p = parts[side];
            assert_int_equal(p->along_rows, operands[i][side][0] == 'k');
            assert_int_equal(p->fetches * layout.size * 4, p->rows * layout.k);
            assert_int_equal(p->registers * p->invocations * 4, p->rows * layout.k);
            assert_int_equal(p->height * (p->along_rows ? layout.k : layout.k / 4), p->registers);
            assert_int_equal(p->total, side == 0 ? 1024 : 512);
        }
    }
}

static void tiles_of_halves(void **state) {
    (void)state;
    const shape s = product(4096, 4096, 4096);
    const tg_tile_problem problem = problem_of(&s, 0);
    tg_device_model device = large();
    device.f16 = true;
    const tg_tile_room room = {.device = &device};
    tg_tile_choice choice = choice_of(&problem, &room);
    assert_true(choice.halves);
    assert_int_equal(choice.down, 0);
    device.matrix_subgroup = 32;
    choice = choice_of(&problem, &room);
    assert_int_equal(choice.tile.m, 128);
    assert_int_equal(choice.tile.across, 4);
    assert_int_equal(choice.down, 2);
    const tg_tile_problem read = tg_tile_read(&problem, &choice);
    const tg_tile_layout layout = tg_tile_lay_out(&read, &choice);
    assert_true(layout.matrices);
    assert_int_equal(tg_tile_block(&layout.left), 64);
    assert_int_equal(tg_tile_matrices(&layout.right), 2);
    assert_int_equal(tg_tile_line(&layout, &layout.left), 32 + 8);
    assert_int_equal(tg_tile_halves(&layout, &layout.right), (128 + 8) * 32);
    assert_int_equal(tg_tile_sums(&layout), 8 * 16 * 32);
    assert_in_range(tg_tile_matrix_bytes(&layout), 1, device.workgroup_bytes);
    /* less memory: smaller tiles, then none of matrices */
    device.workgroup_bytes = 32768;
    assert_int_equal(choice_of(&problem, &room).tile.m, 64);
    device.workgroup_bytes = 8192;
    assert_int_equal(choice_of(&problem, &room).down, 0);
}

static void ends_and_runs(void **state) {
    (void)state;
    const shape s = product(64, 64, 1000);
    tg_tile_problem p = problem_of(&s, 0);
    tg_tile_choice c = {.method = TG_TILE_TILES, .part_length = 1000, .own_m = 4, .own_n = 8};
    assert_int_equal(tg_tile_end_of(&p, &c, 8), TG_TILE_END_EXACT);
    assert_int_equal(tg_tile_end_of(&p, &c, 16), TG_TILE_END_FOURS);
    c.part_length = 512; /* the last part is shorter, by no whole step of 16 */
    assert_int_equal(tg_tile_end_of(&p, &c, 16), TG_TILE_END_FOURS);
    assert_int_equal(tg_tile_end_of(&p, &c, 8), TG_TILE_END_EXACT);
    p.k = 1001;
    assert_int_equal(tg_tile_end_of(&p, &c, 8), TG_TILE_END_ANY);
    assert_int_equal(tg_tile_run(&c), 512);
    c.own_m = 16;
    assert_int_equal(tg_tile_run(&c), 4096);
}

/* ---------------------------------------------------------------- launches */

static void panels_in_a_chain(void **state) {
    (void)state;
    tg_device_model device = large();
    const tg_tile_room room = {.device = &device, .frame = {.size = 512, .slices = 16, .share = 1, .panel = 8}};
    const shape s = product(160, 64, 64), narrow = product(160, 8, 64);
    tg_tile_problem problem = problem_of(&s, 16);
    const tg_tile_choice c = choice_of(&problem, &room);
    assert_int_equal(c.method, TG_TILE_PANELS);
    assert_int_equal(c.panel, 5); /* ten rows in two panels */
    assert_int_equal(c.lanes, 64);
    assert_int_equal(c.ways, 8);
    assert_int_equal(c.panel_k, 64);
    assert_int_equal(tg_tile_schedule(&c).kind, TG_SCHEDULE_NONE);
    problem = problem_of(&narrow, 16);
    const tg_tile_choice direct = choice_of(&problem, &room);
    assert_int_equal(direct.method, TG_TILE_DIRECT);
    assert_int_equal(direct.size, 512);
    assert_int_equal(direct.parts, 1);
}

typedef struct joined {
    contraction kernels[3];
    tg_kernel list[3];
    tg_program program;
} joined;

static void join(joined *j) {
    const shape s = product(64, 64, 64);
    for (int i = 0; i < 3; i++) {
        make(&j->kernels[i], &s);
        j->list[i] = j->kernels[i].kernel;
    }
    j->program = (tg_program){.kernels = j->list, .kernel_count = 3};
}

static void check_launch(const joined *j, tg_launch launch, const tg_device_model *device, const char *expected, int64_t listed) {
    tg_context *ctx = support_context();
    const tg_schedule schedule = tg_tile_launch_choose(&launch, device);
    char text[TG_SCHEDULE_TEXT];
    assert_string_equal(tg_schedule_print(&schedule, text, sizeof text), expected);
    tg_tile_candidates candidates = {.count = 0};
    assert_int_equal(tg_tile_launch_list(&j->program, &launch, device, ctx, &candidates), TG_OK);
    assert_int_equal(candidates.count, listed);
    assert_true(tg_schedule_equal(&candidates.chosen, &schedule));
    for (int64_t i = 0; i < candidates.count; i++) {
        const tg_schedule_entry entry = {candidates.key, candidates.items[i].schedule};
        const tg_schedules table = {&entry, 1};
        tg_device_model tuned = *device;
        tuned.schedules = &table;
        assert_ptr_equal(tg_tile_launch_find(&j->program, &launch, &tuned), &entry.schedule);
        tuned.invocations = 64;
        assert_null(tg_tile_launch_find(&j->program, &launch, &tuned));
    }
    tg_tile_free_candidates(&candidates, ctx);
    tg_context_destroy(ctx);
}

static void launches_of_several(void **state) {
    (void)state;
    joined j;
    join(&j);
    tg_device_model guaranteed = small(), h200 = large(), slow = small();
    slow.slow_barriers = true;
    const tg_launch chain = {0, 3, 16}, beside = {0, 3, 0};
    check_launch(&j, chain, &guaranteed, "chain size=256 panel=8", 6);
    check_launch(&j, chain, &h200, "chain size=512 panel=8", 12);
    check_launch(&j, chain, &slow, "chain size=4 panel=8", 0);
    check_launch(&j, beside, &guaranteed, "beside size=256 overlap=2", 8);
    check_launch(&j, beside, &h200, "beside size=256 overlap=2", 8);
    check_launch(&j, beside, &slow, "beside size=64 overlap=2", 0);
    const tg_schedule side = tg_tile_launch_choose(&beside, &h200), in_turn = tg_tile_launch_choose(&chain, &h200);
    assert_int_equal(tg_tile_launch_frame(&beside, &side).share, 2); /* three, two at a time */
    assert_int_equal(tg_tile_launch_frame(&chain, &in_turn).share, 1);
    assert_int_equal(tg_tile_launch_frame(&chain, &in_turn).slices, 16);
    /* the key is of kinds and extents */
    char key[TG_TILE_KEY], other[TG_TILE_KEY];
    tg_tile_launch_key(&j.program, &chain, key);
    assert_non_null(strstr(key, "chain of 3 kernels 16 slices "));
    j.list[2].extent[1] = 65;
    tg_tile_launch_key(&j.program, &chain, other);
    assert_string_not_equal(key, other);
}

/* One set of arrays a type serves all kernels of a launch. */
static void workgroup_memory(void **state) {
    (void)state;
    tg_device_model device = small();
    tg_tile_room room = {.device = &device};
    assert_int_equal(tg_tile_workgroup_bytes(&room, true), 16384);
    room.frame.size = 256;
    assert_int_equal(tg_tile_workgroup_bytes(&room, true), 8192);
    assert_int_equal(tg_tile_workgroup_bytes(&room, false), 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_and_axes),
        cmocka_unit_test(loops_are_merged),
        cmocka_unit_test(operands_as_vectors),
        cmocka_unit_test(operands_of_windows),
        cmocka_unit_test(a_slice_of_a_chain),
        cmocka_unit_test(choices_are_pinned),
        cmocka_unit_test(slow_barriers),
        cmocka_unit_test(what_fits_nowhere),
        cmocka_unit_test(cost_grows_with_work),
        cmocka_unit_test(cost_of_one_layout),
        cmocka_unit_test(candidates_are_followed),
        cmocka_unit_test(tables_that_are_ignored),
        cmocka_unit_test(candidates_without_memory),
        cmocka_unit_test(tiles_in_workgroup_memory),
        cmocka_unit_test(tiles_of_halves),
        cmocka_unit_test(ends_and_runs),
        cmocka_unit_test(panels_in_a_chain),
        cmocka_unit_test(launches_of_several),
        cmocka_unit_test(workgroup_memory),
    };
    return cmocka_run_group_tests_name("tile", tests, NULL, NULL);
}
