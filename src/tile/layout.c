/* layout: sizes and places of a tile's operands in workgroup memory. Must not know languages. */
#include "tile/layout.h"

/* Halves between the end of a line and the next: 16 bytes, so that lines that are read together
 * begin in different banks. An H200 reaches half without. */
#define LAYOUT_PAD 8

static tg_tile_part layout_part(const tg_tile_problem *problem, const tg_tile_choice *c, bool left) {
    const tg_tile_operand *o = left ? &problem->left : &problem->right;
    tg_tile_part p = {.along_rows = o->along_rows};
    p.rows = left ? c->tile.m : c->tile.n;
    p.thread_rows = left ? c->thread_m : c->thread_n;
    p.threads = p.rows / p.thread_rows;
    p.fetches = p.rows * c->tile.slice / 4 / c->size;
    p.height = p.along_rows ? p.thread_rows / 4 : p.thread_rows;
    p.registers = c->tile.slice / 4 * p.thread_rows;
    p.k_first = !p.along_rows && o->unit == TG_TILE_UNIT_K;
    p.subgroups = left ? c->down : c->tile.across;
    p.total = left ? problem->rows : problem->columns;
    return p;
}

tg_tile_layout tg_tile_lay_out(const tg_tile_problem *problem, const tg_tile_choice *choice) {
    return (tg_tile_layout){.left = layout_part(problem, choice, true),
                            .right = layout_part(problem, choice, false),
                            .slice = choice->tile.slice,
                            .size = choice->size,
                            .matrices = choice->tile.across > 0};
}

int32_t tg_tile_line(const tg_tile_layout *layout, const tg_tile_part *part) {
    return (part->along_rows ? part->rows : layout->slice) + LAYOUT_PAD;
}
int32_t tg_tile_halves(const tg_tile_layout *layout, const tg_tile_part *part) {
    return tg_tile_line(layout, part) * (part->along_rows ? layout->slice : part->rows);
}

int32_t tg_tile_block(const tg_tile_part *part) { return part->rows / part->subgroups; }
int32_t tg_tile_matrices(const tg_tile_part *part) { return tg_tile_block(part) / TG_TILE_MATRIX; }

int32_t tg_tile_band(const tg_tile_layout *layout) { return TG_TILE_MATRIX * tg_tile_block(&layout->right); }
int32_t tg_tile_sums(const tg_tile_layout *layout) { return layout->left.subgroups * layout->right.subgroups * tg_tile_band(layout); }

int64_t tg_tile_matrix_bytes(const tg_tile_layout *layout) {
    return 2 * (int64_t)(tg_tile_halves(layout, &layout->left) + tg_tile_halves(layout, &layout->right)) +
           4 * (int64_t)tg_tile_sums(layout);
}

#undef LAYOUT_PAD
