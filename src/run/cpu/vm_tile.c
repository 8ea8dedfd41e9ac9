/* vm_tile: what each value of a kernel varies with, and from that the size of tiles, whether rows
 * are kept or passed over again, and the split into parts. Depends on the kernel alone, never on
 * the number of threads. Must not know code. */
#include "run/cpu/vm_make.h"

/* Lanes of a full tile: registers of 2 KiB, so that a dozen fit the first-level cache; long bodies
 * get half, short epilogues twice that. */
enum { TILE_LANES = 512, TILE_LONG_BODY = 64, TILE_SHORT_BODY = 8, TILE_LONGEST_KEPT_ROW = 4096, TILE_KEPT_LANES = 1 << 16 };
/* Measured: nanoseconds of one lane of one cheap instruction; work worth dealing out, and of one
 * part. Dealing out costs some 2000 ns, but what one core does alone, the other has to fetch again
 * afterwards: kernels of a chain are split alike, or none is. */
static const double tile_lane_ns = 0.04, tile_split_ns = 8000, tile_part_ns = 4000, tile_most_parts = 32;

/* ---- classes, levels, depths */

static bool tile_row_varies(const tg_vm_maker *m, const tg_vm_stream *stream) {
    for (int32_t d = 0; d < m->out->loops.row_count; ++d)
        if (stream->row_stride[d] != 0) return true;
    return false;
}
static int32_t tile_affine_class(const tg_vm_maker *m, const tg_affine *at) {
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, at, &stream);
    return (tile_row_varies(m, &stream) ? TG_VM_CLASS_ROW : 0) | (stream.col != 0 ? TG_VM_CLASS_COL : 0);
}
static int32_t tile_memory_class(const tg_vm_maker *m, const tg_instruction *instruction) {
    int32_t class_ = instruction->op == TG_K_INSIDE ? TG_VM_CLASS_ONE : tile_affine_class(m, &instruction->at);
    for (int32_t k = 0; k < instruction->bound_count; ++k) class_ |= tile_affine_class(m, &instruction->bounds[k].at);
    return class_;
}
static bool tile_is_rename(const tg_vm_maker *m, const tg_instruction *instruction) {
    if (instruction->op == TG_OP_STOP_GRADIENT) return true;
    return instruction->op == TG_OP_CAST && m->kernel->body[tg_vm_source(m, instruction, 0)].dtype == instruction->dtype;
}
void tg_vm_analyse(tg_vm_maker *m) {
    const tg_kernel *kernel = m->kernel;
    tg_vm_loops *loops = &m->out->loops;
    m->present = (loops->rows > 1 ? TG_VM_CLASS_ROW : 0) | (loops->cols > 1 ? TG_VM_CLASS_COL : 0);
    m->outer_class = m->out->mode == TG_VM_ROWS ? TG_VM_CLASS_ROW : m->out->mode == TG_VM_COLUMNS ? TG_VM_CLASS_COL : TG_VM_CLASS_FULL;
    for (int32_t i = 0; i < kernel->body_count; ++i) {
        const tg_instruction *instruction = &kernel->body[i];
        tg_vm_value *value = &m->values[i];
        *value = (tg_vm_value){.source = i, .slot = -1, .forward = -1, .last = -1, .spread = -1, .steady_spread = -1};
        for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) {
            int32_t v = tg_vm_source(m, instruction, k);
            value->class_ |= m->values[v].class_;
            if (m->values[v].depth > value->depth) value->depth = m->values[v].depth;
        }
        if (tile_is_rename(m, instruction)) value->source = tg_vm_source(m, instruction, 0);
        if (tg_vm_is_load(instruction->op) || instruction->op == TG_K_INDEX || instruction->op == TG_K_INSIDE)
            value->class_ |= tile_memory_class(m, instruction);
        if (instruction->op == TG_K_ACC) value->class_ = TG_VM_CLASS_FULL;
        if (tg_vm_is_reduction(instruction->op)) value->class_ = m->outer_class, ++value->depth;
        value->level = instruction->level;
        if (tg_vm_is_effect(instruction->op) && kernel->kind != TG_KERNEL_REDUCE &&
            tile_affine_class(m, &instruction->at) != TG_VM_CLASS_ONE)
            value->level = TG_LEVEL_ELEMENT; /* one value for many places */
        if (value->level == TG_LEVEL_UNIFORM) value->class_ = TG_VM_CLASS_ONE;
    }
}

/* ---- sizes */

/* Rows after which the stream's offsets repeat, up to a constant; 1: they do not depend on rows. */
static int64_t tile_period(const tg_vm_maker *m, const tg_affine *at) {
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, at, &stream);
    int64_t period = 1, product = 1;
    for (int32_t d = m->out->loops.row_count - 1; d >= 0; --d) {
        product *= m->out->loops.row_extent[d];
        if (stream.row_stride[d] != 0) period = product;
    }
    return period;
}
int64_t tg_vm_instruction_period(const tg_vm_maker *m, const tg_instruction *instruction) {
    int64_t longest = instruction->op == TG_K_INSIDE ? 1 : tile_period(m, &instruction->at);
    for (int32_t k = 0; k < instruction->bound_count; ++k) {
        int64_t period = tile_period(m, &instruction->bounds[k].at);
        if (period > longest) longest = period;
    }
    return longest;
}

/* Whole periods in a tile, if one fits. */
static int64_t tile_fit_period(const tg_vm_maker *m, int64_t rows) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        if (!tg_vm_is_position(m->kernel->body[i].op)) continue;
        int64_t period = tg_vm_instruction_period(m, &m->kernel->body[i]);
        if (period > 1 && period <= rows) return rows - rows % period;
    }
    return rows;
}
static int32_t tile_depth(const tg_vm_maker *m) {
    int32_t depth = 0;
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->values[i].depth > depth) depth = m->values[i].depth;
    return depth;
}

/* Does a second pass over a row have to compute anything again? */
static bool tile_recomputes(const tg_vm_maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        if (instruction->op == TG_K_STORE && instruction->level == TG_LEVEL_ELEMENT) return true;
        if (m->values[i].depth > 1) return true;
    }
    return false;
}

/* `total` columns in equal pieces of at most `most`, multiples of 16. */
static int64_t tile_piece(int64_t total, int64_t most) {
    if (total <= most) return total;
    int64_t pieces = tg_vm_divide_up(total, most);
    return tg_vm_smaller(most, (tg_vm_divide_up(total, pieces) + 15) / 16 * 16);
}

/* Some access walks memory along the rows: square tiles keep its cache lines. */
static bool tile_is_transposing(const tg_vm_maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        if (instruction->op != TG_K_LOAD && instruction->op != TG_K_STORE) continue;
        tg_vm_stream stream;
        tg_vm_make_stream(&m->out->loops, &instruction->at, &stream);
        int32_t last = m->out->loops.row_count - 1;
        if (last >= 0 && (stream.col > 4 || stream.col < -4) && stream.row_stride[last] >= -2 && stream.row_stride[last] <= 2 &&
            stream.row_stride[last] != 0)
            return true;
    }
    return false;
}

/* Instructions that run in every tile. */
static int32_t tile_code_length(const tg_vm_maker *m) {
    int32_t count = 0;
    for (int32_t i = 0; i < m->kernel->body_count; ++i) count += m->values[i].level != TG_LEVEL_UNIFORM;
    return count;
}
void tg_vm_choose_tile(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_vm_loops *loops = &out->loops;
    int64_t lanes = tile_code_length(m) > TILE_LONG_BODY ? TILE_LANES / 2 : TILE_LANES;
    int32_t depth = (int32_t)tg_vm_larger(1, tile_depth(m));
    bool recompute = tile_recomputes(m);
    int64_t kept = tg_vm_smaller(TILE_LONGEST_KEPT_ROW, TILE_KEPT_LANES / (m->kernel->body_count + 1));
    if (!recompute || kept < lanes) kept = lanes;
    out->passes = 0;
    switch (out->mode) {
    case TG_VM_ROWS:
        if (loops->outside == 1 && loops->cols <= kept) {
            out->tile_cols = loops->cols;
        } else {
            out->passes = depth;
            out->tile_cols = tile_piece(loops->cols, lanes);
        }
        break;
    case TG_VM_COLUMNS:
        out->tile_cols = tile_piece(loops->cols, 64);
        if (loops->rows * out->tile_cols > lanes && recompute) {
            int64_t fitting = tg_vm_larger(lanes, 4 * TILE_LANES) / loops->rows;
            if (fitting >= 16) out->tile_cols = tg_vm_smaller(loops->cols, fitting / 16 * 16);
        }
        if (loops->rows * out->tile_cols > tg_vm_larger(lanes, recompute ? 4 * TILE_LANES : 0)) out->passes = depth;
        else lanes = tg_vm_larger(lanes, loops->rows * out->tile_cols);
        break;
    case TG_VM_EPILOGUE:
        out->tile_cols = tile_piece(loops->cols, tile_is_transposing(m) ? 64 : 256);
        if (tile_code_length(m) <= TILE_SHORT_BODY) lanes = 2 * TILE_LANES;
        break;
    case TG_VM_MAP:
    case TG_VM_SCATTERING:
        out->tile_cols = tile_piece(loops->cols, lanes);
        if (tile_is_transposing(m)) out->tile_cols = tile_piece(loops->cols, 32);
        break;
    }
    out->tile_rows = tile_fit_period(m, tg_vm_smaller(loops->rows, tg_vm_larger(1, lanes / out->tile_cols)));
}

/* ---- parts */

static const uint8_t tile_prices[TG_OP_COUNT] = {
    0, /* poison */
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, price, ...) price,
#include "ir/ops.def"
#undef TG_OP
};
static double tile_instruction_price(const tg_instruction *instruction) {
    if (instruction->op == TG_K_GATHER) return tile_prices[TG_OP_GATHER];
    return instruction->op < TG_OP_COUNT ? tile_prices[instruction->op] : 1;
}

/* Nanoseconds, roughly; every point pays every instruction that is not uniform. */
static double tile_estimate(const tg_kernel *kernel) {
    double points = 1, price = 0;
    for (int32_t d = 0; d < (kernel->kind == TG_KERNEL_CONTRACT ? kernel->outer_count : kernel->loop_count); ++d)
        points *= (double)kernel->extent[d];
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].level == TG_LEVEL_ELEMENT) price += tile_instruction_price(&kernel->body[i]);
    return points * price * tile_lane_ns + kernel->flops / 100;
}
static int32_t tile_part_count(double ns, int64_t most) {
    if (ns < tile_split_ns || most < 2) return 1;
    double parts = ns / tile_part_ns;
    if (parts > tile_most_parts) parts = tile_most_parts;
    return (int32_t)tg_vm_power_below(tg_vm_smaller((int64_t)parts, most));
}

/* A large scatter is cut along its columns; rows of the table would repeat the body's work. */
static void tile_narrow_scatter(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    int32_t parts = tile_part_count(2 * tile_estimate(m->kernel), out->loops.cols / 16);
    if (parts > 1) out->tile_cols = tile_piece(out->loops.cols, tg_vm_divide_up(out->loops.cols, parts));
}
void tg_vm_choose_parts(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    if (out->mode == TG_VM_SCATTERING) tile_narrow_scatter(m);
    const tg_vm_loops *loops = &out->loops;
    int64_t row_tiles = tg_vm_divide_up(loops->rows, out->tile_rows), col_tiles = tg_vm_divide_up(loops->cols, out->tile_cols);
    double ns = tile_estimate(m->kernel);
    int64_t units = 0; /* tiles of one reduction */
    switch (out->mode) {
    case TG_VM_MAP: out->tiles = row_tiles * col_tiles; break;
    case TG_VM_ROWS:
        out->tiles = row_tiles;
        units = loops->outside * col_tiles;
        break;
    case TG_VM_COLUMNS:
        out->tiles = loops->outside * col_tiles;
        units = row_tiles;
        break;
    case TG_VM_SCATTERING: out->tiles = col_tiles; break;
    case TG_VM_EPILOGUE: out->tiles = 1; break;
    }
    out->parts = tile_part_count(ns, out->tiles);
    if (out->passes > 0 && out->tiles <= 2 && units >= 16) {
        out->split_parts = tile_part_count(ns / (double)out->tiles, units / 8);
        if (out->split_parts < 2) out->split_parts = 0;
        else out->parts = 1;
    }
}
