/* contract_choose: how a contraction on the CPU is computed, from its extents and strides: which
 * operand comes first, what is copied, the blocks, and the split in parts. Must not know values. */
#include "run/cpu/contract_choice.h"

#include <string.h>

/* Sizes in elements. A panel of b (CONTRACT_K_BLOCK x 2 vectors) stays in L1 or nearly so, a chunk
 * of a in half of L2. */
#define CONTRACT_K_BLOCK 512
#define CONTRACT_ROW_CHUNK CONTRACT_MOST_ROWS
#define CONTRACT_COLUMN_FLOATS 262144 /* of a packed block of b */
#define CONTRACT_COLUMN_CHUNK 512     /* when k has several blocks */
#define CONTRACT_SINK_FLOATS 16384    /* handed to a sink at once */
/* unfinished sums of a sink's blocks, when k has several blocks */
#define CONTRACT_STRIP_FLOATS 131072
#define CONTRACT_MAX_PARTS 64
#define CONTRACT_KEEP_FLOATS 262144 /* of a copy of a that stays from batch to batch */
#define CONTRACT_TURN_K 128         /* a shorter k is not worth turning blocks back */
/* multiply-adds of one batch, below which the work done once for each batch counts */
#define CONTRACT_TINY 8192
#define CONTRACT_GROUP_FLOATS 1024 /* of several batches, handed to a sink at once */

/* ---------------------------------------------------------------- offsets */

/* Drops loops of extent 1 and joins neighbours that one stride covers. Returns the number of loops
 * left. */
static int32_t contract_coalesce(const int64_t *extent, const int64_t *stride, int32_t dims, int64_t *out_extent, int64_t *out_stride) {
    int32_t count = 0;
    for (int32_t d = 0; d < dims; ++d) {
        if (extent[d] == 1) continue;
        if (count > 0 && out_stride[count - 1] == stride[d] * extent[d]) {
            out_extent[count - 1] *= extent[d];
            out_stride[count - 1] = stride[d];
        } else {
            out_extent[count] = extent[d];
            out_stride[count++] = stride[d];
        }
    }
    return count;
}

static bool contract_make_axis(tg_arena *arena, const tg_kernel *kernel, const tg_affine *at, int32_t from, int32_t to,
                               contract_axis *axis) {
    int64_t extent[TG_MAX_LOOP], stride[TG_MAX_LOOP];
    int32_t dims = contract_coalesce(kernel->extent + from, at->stride + from, to - from, extent, stride);
    axis->total = contract_extent(kernel, from, to);
    axis->run = dims > 0 ? extent[dims - 1] : 1;
    axis->stride = dims > 0 ? stride[dims - 1] : 0;
    axis->runs = NULL;
    if (dims < 2) return true;
    int64_t runs = axis->total / axis->run;
    int64_t *table = TG_NEW(arena, int64_t, runs);
    if (table == NULL) return false;
    for (int64_t i = 0; i < runs; ++i) table[i] = contract_unravel(extent, stride, dims - 1, i);
    axis->runs = table;
    return true;
}

/* ---------------------------------------------------------------- choosing */

const tg_contract_ops *tg_contract_ops_of(tg_isa isa, int64_t columns) {
    (void)columns;
#if defined(TG_HAS_X86)
    /* Eight columns fill an AVX2 vector but half of an AVX-512 one, whose wider loads and stores
     * cost more. */
    if (isa == TG_ISA_AVX512_) return columns <= 8 ? &tg_contract_ops_avx2 : &tg_contract_ops_avx512;
    if (isa == TG_ISA_AVX2_) return &tg_contract_ops_avx2;
#elif defined(TG_HAS_NEON)
    if (isa == TG_ISA_NEON_) return &tg_contract_ops_neon;
#endif
    (void)isa;
#if defined(TG_HAS_SIMD128)
    return &tg_contract_ops_simd128;
#else
    return &tg_contract_ops_scalar;
#endif
}

static void contract_swap_operands(tg_contraction *c) {
    contract_operand operand = c->a;
    c->a = c->b;
    c->b = operand;
    int64_t count = c->m;
    c->m = c->n;
    c->n = count;
    c->swapped = !c->swapped;
}

/* Matrix times vector: a dot product per row where the matrix is contiguous along k, else one row
 * of results at a time. */
static void contract_choose_orientation(tg_contraction *c) {
    bool long_k = c->k >= 8;
    bool a_dots = long_k && contract_one_run(&c->a.k) && contract_contiguous(&c->a.k);
    bool b_dots = long_k && contract_one_run(&c->b.k) && contract_contiguous(&c->b.k);
    if (c->n == 1 && a_dots) {
        c->dot = true;
    } else if (c->m == 1 && b_dots && !(c->n > 1 && contract_contiguous(&c->b.free))) {
        contract_swap_operands(c);
        c->dot = true;
    } else if (c->n == 1 && c->m > 1) {
        contract_swap_operands(c);
    }
}

/* Both operands lie along k, so b would be packed by transposing it, for few rows each. The
 * transposed product packs a instead, for more rows. */
static void contract_choose_turn(tg_contraction *c) {
    if (c->dot || c->swapped || c->m < 2 || c->n < 2 * c->m || c->k < CONTRACT_TURN_K) return;
    if (!contract_contiguous(&c->a.k) || !contract_contiguous(&c->b.k) || c->b.k.run < 8 || c->a.k.run < 8) return;
    if (!contract_one_run(&c->a.free) || (contract_contiguous(&c->b.free) && contract_one_run(&c->b.free))) return;
    contract_swap_operands(c);
    c->turns = true;
}

/* Strides that map many rows to the same few cache sets. */
static bool contract_stride_collides(int64_t stride) { return stride >= 512 && stride % 256 == 0; }

static void contract_choose_a(tg_contraction *c, int64_t columns) {
    if (contract_one_run(&c->a.free) && contract_one_run(&c->a.k)) {
        bool collides = contract_stride_collides(c->a.free.stride) || contract_stride_collides(c->a.k.stride);
        c->a_mode = CONTRACT_A_IN_PLACE;
        if (!(collides && c->m >= 64 && columns >= 256)) return;
    }
    c->a_mode = contract_contiguous(&c->a.k) && c->a.k.run >= 8 ? CONTRACT_A_COPY_ROWS : CONTRACT_A_COPY_TILES;
}

static void contract_choose_b(tg_contraction *c, int64_t rows) {
    if (contract_contiguous(&c->b.free) && contract_one_run(&c->b.free)) {
        bool in_place = contract_one_run(&c->b.k) && (rows <= 96 || c->n < 2 * c->ops->width);
        if (contract_stride_collides(c->b.k.stride) && rows > 32) in_place = false;
        c->b_mode = in_place ? CONTRACT_B_IN_PLACE : CONTRACT_B_ROWS;
    } else {
        bool columns = contract_contiguous(&c->b.k) && contract_one_run(&c->b.free) && c->b.k.run >= 4;
        c->b_mode = columns ? CONTRACT_B_COLUMNS : CONTRACT_B_GATHER;
    }
}

/* Rows x columns of parts for one batch: least repeated packing (a part packs its own rows of a and
 * columns of b; a copied element costs about as much as 8 multiply-adds of a vector unit of
 * `width`), then the better balance. */
static void contract_choose_grid(tg_contraction *c, int64_t wanted) {
    int64_t panel = 2 * c->ops->width;
    int64_t most_rows = contract_max(1, c->m / 32), most_columns = contract_max(1, contract_ceil(c->n, panel) / 2);
    double best = -1;
    for (int64_t rows = 1; rows <= contract_min(wanted, most_rows); ++rows) {
        int64_t columns = contract_min(wanted / rows, most_columns);
        double largest = (double)contract_ceil(c->m, rows) * (double)contract_round_up(contract_ceil(c->n, columns), panel);
        double work = largest * (double)c->k / (2.0 * c->ops->width);
        double packing = (double)c->k * (.2 * (double)c->m / (double)rows + .4 * (double)c->n / (double)columns);
        double cost = work + packing;
        if (best < 0 || cost < best) {
            best = cost;
            c->row_parts = rows;
            c->column_parts = columns;
        }
    }
}

static int64_t contract_power_of_two(int64_t x) {
    while ((x & (x - 1)) > 0) x &= x - 1;
    return x;
}

/* Few results of a long k: with parts of k nothing is packed twice. Adding them must cost little
 * beside reading the operands. */
static void contract_choose_parts_of_k(tg_contraction *c, int64_t parts) {
    c->k_parts = 1;
    c->part_k = c->k;
    if (c->batches > 1 || c->dot || c->m < 2 || c->n < 2) return;
    const int64_t wanted = parts;
    while (parts > 1 && (parts * CONTRACT_K_BLOCK > c->k || 4 * c->m * c->n * parts > c->k * (c->m + c->n))) parts /= 2;
    if (parts < 2 || 2 * parts < wanted) return;
    c->part_k = contract_ceil(c->k, parts);
    c->k_parts = contract_ceil(c->k, c->part_k);
}

static void contract_choose_parts(tg_contraction *c, int64_t limit) {
    /* Multiply-adds; finishing and handing on an element costs about as much as 16. */
    double work = (double)c->batches * (double)c->m * (double)c->n * (double)(c->k + 16);
    double wanted = work < 2.4e6 ? work / 3e5 : 8 + work / 8e6;
    int64_t parts = wanted < 1 ? 1 : wanted > CONTRACT_MAX_PARTS ? CONTRACT_MAX_PARTS : (int64_t)wanted;
    contract_choose_parts_of_k(c, contract_power_of_two(parts)); /* whatever the limit: it decides about bits */
    /* a power of two, so that kernels of the same rows are cut at the same ones */
    parts = contract_power_of_two(contract_min(parts, limit));
    c->limit = contract_min(c->k_parts, parts);
    if (c->k_parts > 1) parts = 1;
    c->batch_parts = contract_min(c->batches, parts);
    c->row_parts = c->column_parts = 1;
    if (c->batches < parts) contract_choose_grid(c, parts / c->batches);
}

static void contract_choose_blocks(tg_contraction *c) {
    int64_t panel = 2 * c->ops->width, rows = contract_part_rows(c), columns = contract_part_columns(c);
    c->k_block = contract_ceil(c->part_k, contract_ceil(c->part_k, CONTRACT_K_BLOCK));
    bool one_block = c->k_block >= c->k;
    int64_t chunk = contract_max(1, CONTRACT_COLUMN_FLOATS / c->k_block / panel) * panel;
    c->column_chunk = contract_min(contract_round_up(columns, panel), chunk);
    if (!one_block) c->column_chunk = contract_min(c->column_chunk, contract_round_up(CONTRACT_COLUMN_CHUNK, panel));
    c->row_chunk = CONTRACT_ROW_CHUNK;
    if (one_block) c->row_chunk = contract_min(CONTRACT_ROW_CHUNK, contract_max(16, CONTRACT_SINK_FLOATS / c->column_chunk));
    c->row_chunk = contract_min(rows, contract_ceil(rows, contract_ceil(rows, c->row_chunk)));
    c->strip = one_block
                   ? rows
                   : contract_min(rows, contract_max(c->row_chunk, CONTRACT_STRIP_FLOATS / c->column_chunk / c->row_chunk * c->row_chunk));
}

/* Tiny products, of one panel and one block of k, run in a loop with little other work. */
static void contract_choose_group(tg_contraction *c) {
    if (c->dot || c->swapped || c->batches < 2 || c->n < 2 || c->n > 2 * c->ops->width || c->k > c->k_block) return;
    if (c->m * c->n * c->k > CONTRACT_TINY || c->a_mode != CONTRACT_A_IN_PLACE || c->row_parts * c->column_parts > 1) return;
    c->group = contract_max(1, CONTRACT_GROUP_FLOATS / (c->m * c->n));
}

/* Does each batch read the same a? Then its copy is made once, if all of it is small. */
static void contract_choose_keep(tg_contraction *c) {
    bool shared = c->batches > 1 && c->a_mode != CONTRACT_A_IN_PLACE;
    for (int32_t d = 0; d < c->batch_dims; ++d) shared = shared && (c->batch_extent[d] == 1 || c->a.batch_stride[d] == 0);
    const int64_t chunks = contract_ceil(contract_part_rows(c), c->row_chunk) * contract_ceil(c->k, c->k_block);
    c->keeps_a = shared && chunks * c->a_floats <= CONTRACT_KEEP_FLOATS;
    c->a_chunk_floats = c->a_floats;
    if (c->keeps_a) c->a_floats *= chunks;
}

static void contract_choose_scratch(tg_contraction *c) {
    int64_t width = c->ops->width;
    if (c->dot) {
        c->b_floats = contract_contiguous(&c->b.k) && contract_one_run(&c->b.k) ? 0 : c->k;
        c->sum_floats = c->row_chunk = contract_min(c->m, 4096);
        return;
    }
    if (c->group > 0) {
        c->b_floats = c->k * contract_round_up(c->n, width);
        c->sum_floats = c->group * c->m * c->n;
        return;
    }
    int64_t columns = c->b_mode == CONTRACT_B_IN_PLACE ? 2 * width : contract_min(c->column_chunk, contract_round_up(c->n, width));
    c->b_floats = c->k_block * columns;
    int64_t rows = c->k_block < c->k ? c->strip : c->row_chunk;
    c->sum_floats = rows * contract_min(c->column_chunk, contract_round_up(c->n, width));
    if (c->turns) c->turned_floats = c->row_chunk * contract_min(c->column_chunk, c->n);
    if (c->a_mode == CONTRACT_A_COPY_ROWS) c->a_floats = c->row_chunk * (c->k_block + width);
    if (c->a_mode == CONTRACT_A_COPY_TILES) c->a_floats = (contract_ceil(c->row_chunk, c->ops->max_rows[1]) + 1) * c->k_block * 16;
    contract_choose_keep(c);
}

static void contract_name_method(tg_contraction *c) {
    static const char *const a_names[] = {"a in place", "a rows copied", "a packed"};
    static const char *const b_names[] = {"b in place", "b packed", "b transposed", "b gathered"};
    const char *pieces[3] = {c->dot         ? "dot products"
                             : c->group > 0 ? "tiny batch, "
                                            : "",
                             c->dot ? "" : a_names[c->a_mode], c->dot ? "" : b_names[c->b_mode]};
    size_t length = 0;
    for (int i = 0; i < 3; ++i) {
        if (i == 2 && !c->dot) memcpy(c->method + length, ", ", 2), length += 2;
        memcpy(c->method + length, pieces[i], strlen(pieces[i]));
        length += strlen(pieces[i]);
    }
    if (c->turns) memcpy(c->method + length, ", turned", 8), length += 8;
    if (c->k_parts > 1) memcpy(c->method + length, ", k in parts", 12);
}

static bool contract_read_operands(tg_arena *arena, const tg_kernel *kernel, tg_contraction *c) {
    int32_t outer = kernel->outer_count, loops = kernel->loop_count;
    c->batch_dims = kernel->m_begin;
    memcpy(c->batch_extent, kernel->extent, sizeof c->batch_extent);
    memcpy(c->a.batch_stride, kernel->a.at.stride, sizeof c->a.batch_stride);
    memcpy(c->b.batch_stride, kernel->b.at.stride, sizeof c->b.batch_stride);
    c->a.offset = kernel->a.at.offset;
    c->b.offset = kernel->b.at.offset;
    c->batches = contract_extent(kernel, 0, kernel->m_begin);
    c->m = contract_extent(kernel, kernel->m_begin, kernel->n_begin);
    c->n = contract_extent(kernel, kernel->n_begin, outer);
    c->k = contract_extent(kernel, outer, loops);
    return contract_make_axis(arena, kernel, &kernel->a.at, kernel->m_begin, kernel->n_begin, &c->a.free) &&
           contract_make_axis(arena, kernel, &kernel->b.at, kernel->n_begin, outer, &c->b.free) &&
           contract_make_axis(arena, kernel, &kernel->a.at, outer, loops, &c->a.k) &&
           contract_make_axis(arena, kernel, &kernel->b.at, outer, loops, &c->b.k);
}

static bool contract_kernel_is_sound(const tg_kernel *kernel) {
    if (kernel->kind != TG_KERNEL_CONTRACT || kernel->m_begin < 0 || kernel->m_begin > kernel->n_begin ||
        kernel->n_begin > kernel->outer_count || kernel->outer_count > kernel->loop_count || kernel->loop_count > TG_MAX_LOOP)
        return false;
    for (int32_t d = 0; d < kernel->loop_count; ++d) {
        if (kernel->extent[d] < 1) return false;
        if (d >= kernel->n_begin && d < kernel->outer_count && kernel->extent[d] > 1 && kernel->a.at.stride[d] != 0) return false;
        if (d >= kernel->m_begin && d < kernel->n_begin && kernel->extent[d] > 1 && kernel->b.at.stride[d] != 0) return false;
    }
    return true;
}

tg_contraction *tg_contraction_make_limited(tg_arena *arena, const tg_kernel *kernel, tg_isa isa, int max_parts) {
    if (!contract_kernel_is_sound(kernel)) {
        (void)TG_INTERNAL(arena->ctx, "contraction: the kernel's loop groups or operand strides are inconsistent");
        return NULL;
    }
    tg_contraction *c = TG_NEW(arena, tg_contraction, 1);
    if (c == NULL || !contract_read_operands(arena, kernel, c)) return NULL;
    contract_choose_orientation(c);
    contract_choose_turn(c);
    c->ops = tg_contract_ops_of(isa, c->dot ? contract_max(16, c->k) : c->n);
    contract_choose_parts(c, max_parts);
    contract_choose_a(c, contract_part_columns(c));
    contract_choose_b(c, contract_part_rows(c));
    contract_choose_blocks(c);
    contract_choose_group(c);
    contract_choose_scratch(c);
    contract_name_method(c);
    if (c->k_parts > 1) c->partials = TG_NEW(arena, float, c->k_parts * c->m * c->n);
    return c->k_parts > 1 && c->partials == NULL ? NULL : c;
}

tg_contraction *tg_contraction_make(tg_arena *arena, const tg_kernel *kernel, tg_isa isa) {
    return tg_contraction_make_limited(arena, kernel, isa, CONTRACT_MAX_PARTS);
}

int tg_contraction_parts(const tg_contraction *c) { return (int)(c->limit * c->batch_parts * c->row_parts * c->column_parts); }

bool tg_contraction_finishes(const tg_contraction *c) { return c->k_parts > 1; }

size_t tg_contraction_scratch(const tg_contraction *c) {
    int64_t floats = contract_round_up(c->a_floats, 16) + contract_round_up(c->b_floats, 16) + contract_round_up(c->sum_floats, 16) +
                     contract_round_up(c->turned_floats, 16);
    return (size_t)(floats + CONTRACT_HEADER_FLOATS) * sizeof(float);
}

bool tg_contraction_is_tiny(const tg_contraction *c) { return c->group > 0; }

const char *tg_contraction_method(const tg_contraction *c) { return c->method; }

#undef CONTRACT_K_BLOCK
#undef CONTRACT_ROW_CHUNK
#undef CONTRACT_COLUMN_FLOATS
#undef CONTRACT_COLUMN_CHUNK
#undef CONTRACT_SINK_FLOATS
#undef CONTRACT_STRIP_FLOATS
#undef CONTRACT_MAX_PARTS
#undef CONTRACT_KEEP_FLOATS
#undef CONTRACT_TURN_K
#undef CONTRACT_TINY
#undef CONTRACT_GROUP_FLOATS
