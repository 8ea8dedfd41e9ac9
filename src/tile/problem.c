/* problem: operands and axes of a contraction, from the kernel IR. Must not know methods or
 * devices. */
#include "tile/problem.h"

static void problem_add_loop(tg_tile_axis *axis, int64_t extent, int64_t stride) {
    if (extent == 1) return;
    if (axis->count > 0 && axis->stride[axis->count - 1] == stride * extent) {
        axis->extent[axis->count - 1] *= extent;
        axis->stride[axis->count - 1] = stride;
    } else {
        axis->extent[axis->count] = extent;
        axis->stride[axis->count++] = stride;
    }
}

static tg_tile_axis problem_axis(const int64_t *extent, const tg_affine *at, int32_t from, int32_t to) {
    tg_tile_axis axis = {0};
    for (int32_t d = from; d < to; d++) problem_add_loop(&axis, extent[d], at->stride[d]);
    return axis;
}

/* How many neighbours lie together; 0: none. */
static int64_t problem_neighbours(const tg_tile_axis *axis) {
    const int32_t last = axis->count - 1;
    return axis->count > 0 && (axis->stride[last] == 1 || axis->stride[last] == -1) ? axis->extent[last] : 0;
}

static tg_tile_unit problem_unit(const tg_tile_axis *row, const tg_tile_axis *k) {
    const int64_t rows = problem_neighbours(row), ks = problem_neighbours(k);
    if (ks > 0 && (ks >= 4 || ks >= rows)) return TG_TILE_UNIT_K;
    return rows > 0 ? TG_TILE_UNIT_ROW : TG_TILE_UNIT_NONE;
}

/* Each stride is a multiple of 4; of the unit axis all but the last one, which is 1 and whose length
 * is a multiple. */
static bool problem_by_fours(const tg_tile_axis *axis, bool unit) {
    for (int32_t d = 0; d < axis->count; d++) {
        const bool innermost = unit && d == axis->count - 1;
        if (innermost ? axis->extent[d] % 4 != 0 || axis->stride[d] != 1 : axis->stride[d] % 4 != 0) return false;
    }
    return true;
}

static bool problem_can_widen(const tg_tile_operand *o) {
    return o->unit != TG_TILE_UNIT_NONE && o->offset % 4 == 0 && o->slice % 4 == 0 && problem_by_fours(&o->batch, false) &&
           problem_by_fours(&o->row, o->unit == TG_TILE_UNIT_ROW) && problem_by_fours(&o->k, o->unit == TG_TILE_UNIT_K);
}

/* Loops [from, to) are its rows. */
static tg_tile_operand problem_operand(const tg_kernel *kernel, const int64_t *extent, const tg_operand_access *access, int32_t from,
                                       int32_t to, bool fours) {
    tg_tile_operand o = {.argument = access->argument, .offset = access->at.offset};
    o.slice = access->at.stride[0] * extent[0];
    o.batch = problem_axis(extent, &access->at, 0, kernel->m_begin);
    o.row = problem_axis(extent, &access->at, from, to);
    o.k = problem_axis(extent, &access->at, kernel->outer_count, kernel->loop_count);
    o.unit = problem_unit(&o.row, &o.k);
    o.can_widen = fours && problem_can_widen(&o);
    return o;
}

/* Is the first store contiguous along m and not along n? Or is there no n? */
static bool problem_swaps(const tg_kernel *kernel) {
    if (kernel->n_begin == kernel->outer_count) return kernel->n_begin > kernel->m_begin;
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (kernel->body[i].op != TG_K_STORE) continue;
        const int64_t *stride = kernel->body[i].at.stride;
        return stride[kernel->outer_count - 1] != 1 && kernel->n_begin > kernel->m_begin && stride[kernel->n_begin - 1] == 1;
    }
    return false;
}

static int64_t problem_points(const int64_t *extent, int32_t from, int32_t to) {
    int64_t points = 1;
    for (int32_t d = from; d < to; d++) points *= extent[d];
    return points;
}

/* The batches side by side in the columns, if they share the left operand. */
static void problem_fold_batch(tg_tile_problem *p) {
    tg_tile_operand *right = &p->right;
    for (int32_t d = 0; d < p->left.batch.count; d++)
        if (p->left.batch.stride[d] != 0) return;
    if (p->batch == 1) return;
    tg_tile_axis row = right->batch;
    for (int32_t d = 0; d < right->row.count; d++) problem_add_loop(&row, right->row.extent[d], right->row.stride[d]);
    p->folded = p->columns;
    p->columns *= p->batch;
    p->batch = 1;
    right->row = row;
    right->batch = p->left.batch = (tg_tile_axis){0};
}

tg_tile_problem tg_tile_problem_make(const tg_kernel *kernel, int32_t slices, bool a_fours, bool b_fours) {
    tg_tile_problem p = {.swapped = problem_swaps(kernel), .body = kernel->body_count};
    int64_t extent[TG_MAX_LOOP];
    for (int32_t d = 0; d < TG_MAX_LOOP; d++) extent[d] = kernel->extent[d];
    if (slices > 0) extent[0] /= slices;
    const int64_t m = problem_points(extent, kernel->m_begin, kernel->n_begin);
    const int64_t n = problem_points(extent, kernel->n_begin, kernel->outer_count);
    p.batch = problem_points(extent, 0, kernel->m_begin);
    p.rows = p.swapped ? n : m;
    p.columns = p.swapped ? m : n;
    p.k = problem_points(extent, kernel->outer_count, kernel->loop_count);
    tg_tile_operand a = problem_operand(kernel, extent, &kernel->a, kernel->m_begin, kernel->n_begin, a_fours);
    tg_tile_operand b = problem_operand(kernel, extent, &kernel->b, kernel->n_begin, kernel->outer_count, b_fours);
    if (a.argument == b.argument) a.can_widen = b.can_widen = a.can_widen && b.can_widen;
    p.left = p.swapped ? b : a;
    p.right = p.swapped ? a : b;
    problem_fold_batch(&p);
    return p;
}

bool tg_tile_even_fours(const tg_tile_operand *operand) {
    return operand->k.count <= 1 || operand->k.extent[operand->k.count - 1] % 4 == 0;
}

int64_t tg_tile_outputs(const tg_tile_problem *problem) { return problem->batch * problem->rows * problem->columns; }

static void problem_widen_axis(tg_tile_axis *axis, bool unit) {
    for (int32_t d = 0; d < axis->count; d++) {
        if (unit && d == axis->count - 1) axis->extent[d] /= 4;
        else axis->stride[d] /= 4;
    }
}

void tg_tile_widen(tg_tile_operand *operand) {
    problem_widen_axis(&operand->batch, false);
    problem_widen_axis(&operand->row, operand->unit == TG_TILE_UNIT_ROW);
    problem_widen_axis(&operand->k, operand->unit == TG_TILE_UNIT_K);
    operand->offset /= 4;
    operand->slice /= 4;
    operand->wide = true;
    operand->along_rows = operand->unit == TG_TILE_UNIT_ROW;
}
