/* layout: sizes of a tile's operands in workgroup memory. Must not know languages. */
#include "tile/layout.h"

/* Halves between the end of a line and the next: 16 bytes, so that lines that are read together
 * begin in different banks. Without it an H200 reaches half the speed. */
#define LAYOUT_PAD 8

static tg_tile_side layout_side(const tg_tile_problem *problem, const tg_tile_choice *c, bool left) {
    const tg_tile_operand *o = left ? &problem->left : &problem->right;
    tg_tile_side p = {.along_rows = o->along_rows};
    p.rows = left ? c->tile.m : c->tile.n;
    p.own_rows = left ? c->own_m : c->own_n;
    p.invocations = p.rows / p.own_rows;
    p.fetches = p.rows * c->tile.k / 4 / c->size;
    p.height = p.along_rows ? p.own_rows / 4 : p.own_rows;
    p.registers = c->tile.k / 4 * p.own_rows;
    p.k_first = !p.along_rows && o->unit == TG_TILE_UNIT_K;
    p.subgroups = left ? c->down : c->tile.across;
    p.total = left ? problem->rows : problem->columns;
    return p;
}

tg_tile_layout tg_tile_lay_out(const tg_tile_problem *problem, const tg_tile_choice *choice) {
    return (tg_tile_layout){.left = layout_side(problem, choice, true),
                            .right = layout_side(problem, choice, false),
                            .k = choice->tile.k,
                            .size = choice->size,
                            .matrices = choice->tile.across > 0};
}

int32_t tg_tile_line(const tg_tile_layout *layout, const tg_tile_side *side) {
    return (side->along_rows ? side->rows : layout->k) + LAYOUT_PAD;
}
int32_t tg_tile_halves(const tg_tile_layout *layout, const tg_tile_side *side) {
    return tg_tile_line(layout, side) * (side->along_rows ? layout->k : side->rows);
}

int32_t tg_tile_block(const tg_tile_side *side) { return side->rows / side->subgroups; }
int32_t tg_tile_matrices(const tg_tile_side *side) { return tg_tile_block(side) / TG_TILE_MATRIX; }

int32_t tg_tile_band(const tg_tile_layout *layout) { return TG_TILE_MATRIX * tg_tile_block(&layout->right); }
int32_t tg_tile_sums(const tg_tile_layout *layout) { return layout->left.subgroups * layout->right.subgroups * tg_tile_band(layout); }

int64_t tg_tile_matrix_bytes(const tg_tile_layout *layout) {
    return 2 * (int64_t)(tg_tile_halves(layout, &layout->left) + tg_tile_halves(layout, &layout->right)) +
           4 * (int64_t)tg_tile_sums(layout);
}

#undef LAYOUT_PAD
