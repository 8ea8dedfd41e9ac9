/* contract: batched matrix products on the CPU. Owns the choice of method, packing, blocking and the split in parts. Must
 * not know the epilogue (finished blocks go to a sink) nor the instruction set (contract_ops).
 *
 * One loop nest serves every shape: columns in chunks, k in blocks, rows in chunks, then register tiles. The first operand
 * is read in place whenever its rows and its k each have one stride, the second whenever its columns are contiguous and
 * few rows use them; else a block is copied first. An element's value depends only on its operands and K: within a block
 * of k it is one chain of multiply-adds, blocks are added in order. So parts, threads and tiles never change a result. */
#include "run/cpu/contract.h"
#include "run/cpu/contract_ops.h"

#include <string.h>

/* Sizes in elements. A panel of b (CONTRACT_K_BLOCK x 2 vectors) stays in L1 or nearly so, a chunk of a in half of L2. */
#define CONTRACT_K_BLOCK 512
#define CONTRACT_ROW_CHUNK 128
#define CONTRACT_COLUMN_FLOATS 262144 /* of a packed block of b */
#define CONTRACT_COLUMN_CHUNK 512     /* when k has several blocks */
#define CONTRACT_SINK_FLOATS 16384    /* handed to a sink at once */
#define CONTRACT_STRIP_FLOATS 131072  /* unfinished sums of a sink's blocks, when k has several blocks */
#define CONTRACT_MAX_PARTS 64
#define CONTRACT_HEADER_FLOATS 16  /* of a worker's scratch */
#define CONTRACT_TINY 8192         /* multiply-adds of one batch, below which what is done once per batch counts */
#define CONTRACT_GROUP_FLOATS 1024 /* of several batches, handed to a sink at once */

/* The offsets of one group of loops in one operand: runs of `run` steps of `stride`; runs[i] is where run i begins. */
typedef struct contract_axis {
    int64_t total, run, stride;
    const int64_t *runs; /* NULL: one run, at 0 */
} contract_axis;

typedef struct contract_operand {
    int64_t offset;
    int64_t batch_stride[TG_MAX_LOOP];
    contract_axis free; /* rows of a, columns of b */
    contract_axis k;
} contract_operand;

typedef enum contract_a_mode { CONTRACT_A_IN_PLACE, CONTRACT_A_COPY_ROWS, CONTRACT_A_COPY_TILES } contract_a_mode;
typedef enum contract_b_mode { CONTRACT_B_IN_PLACE, CONTRACT_B_ROWS, CONTRACT_B_COLUMNS, CONTRACT_B_GATHER } contract_b_mode;

struct tg_contraction {
    const tg_contract_ops *ops;
    contract_operand a, b; /* exchanged when `swapped` */
    int32_t batch_dims;
    int64_t batch_extent[TG_MAX_LOOP];
    int64_t batches, m, n, k; /* of the possibly exchanged problem */
    int64_t group;            /* tiny: batches that a sink gets at once; else 0 */
    bool swapped;             /* computes the transposed product; then m is 1, or n is 1 and `dot` */
    bool dot;                 /* n is 1, a is contiguous along k */
    contract_a_mode a_mode;
    contract_b_mode b_mode;
    int64_t k_block, column_chunk, row_chunk, strip;
    int64_t batch_parts, row_parts, column_parts;
    int64_t a_floats, b_floats, sum_floats; /* scratch: copies of a, of b, unfinished blocks */
    char method[64];
};

static int64_t contract_min(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t contract_max(int64_t x, int64_t y) { return x > y ? x : y; }
static int64_t contract_ceil(int64_t x, int64_t y) { return (x + y - 1) / y; }
static int64_t contract_round_up(int64_t x, int64_t y) { return contract_ceil(x, y) * y; }

/* ---------------------------------------------------------------- offsets */

static int64_t contract_extent(const tg_kernel *kernel, int32_t from, int32_t to) {
    int64_t count = 1;
    for (int32_t d = from; d < to; ++d) count *= kernel->extent[d];
    return count;
}

/* Offset of row-major index `flat` over `dims` loops. */
static int64_t contract_unravel(const int64_t *extent, const int64_t *stride, int32_t dims, int64_t flat) {
    int64_t offset = 0;
    for (int32_t d = dims - 1; d >= 0; --d) {
        offset += stride[d] * (flat % extent[d]);
        flat /= extent[d];
    }
    return offset;
}

/* Drops loops of extent 1 and joins neighbours that one stride walks. Returns the loops left. */
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

static int64_t contract_at(const contract_axis *axis, int64_t i) {
    if (axis->runs == NULL) return i * axis->stride;
    return axis->runs[i / axis->run] + i % axis->run * axis->stride;
}

/* Steps from i on that one stride walks, at most `limit`. */
static int64_t contract_run_length(const contract_axis *axis, int64_t i, int64_t limit) {
    if (axis->runs == NULL) return limit;
    return contract_min(axis->run - i % axis->run, limit);
}

static bool contract_contiguous(const contract_axis *axis) { return axis->total == 1 || axis->stride == 1; }
static bool contract_one_run(const contract_axis *axis) { return axis->runs == NULL; }

/* ---------------------------------------------------------------- choosing */

static const tg_contract_ops *contract_ops_of(tg_isa isa, int64_t columns) {
    (void)columns;
#if defined(TG_HAS_X86)
    /* Eight columns fill an AVX2 vector but half of an AVX-512 one, whose wider loads and stores cost more. */
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

/* Matrix times vector: a dot product per row where the matrix is contiguous along k, else one row of results at a time. */
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

/* Rows x columns of parts for one batch: least repeated packing (a part packs its own rows of a and columns of b; a copied
 * element costs about as much as 8 multiply-adds of a vector unit of `width`), then the better balance. */
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

static void contract_choose_parts(tg_contraction *c, int64_t limit) {
    /* Multiply-adds; finishing and handing on an element costs about as much as 16. */
    double work = (double)c->batches * (double)c->m * (double)c->n * (double)(c->k + 16);
    double wanted = work < 2.4e6 ? work / 3e5 : 8 + work / 8e6;
    int64_t parts = wanted < 1 ? 1 : wanted > CONTRACT_MAX_PARTS ? CONTRACT_MAX_PARTS : (int64_t)wanted;
    parts = contract_min(parts, limit);
    while ((parts & (parts - 1)) > 0) parts &= parts - 1; /* a power of two, so that kernels of the same rows are cut at the same ones */
    c->batch_parts = contract_min(c->batches, parts);
    c->row_parts = c->column_parts = 1;
    if (c->batches < parts) contract_choose_grid(c, parts / c->batches);
}

static int64_t contract_part_rows(const tg_contraction *c) { return contract_ceil(c->m, c->row_parts); }
static int64_t contract_part_columns(const tg_contraction *c) {
    int64_t panel = 2 * c->ops->width;
    return contract_min(c->n, contract_ceil(contract_ceil(c->n, panel), c->column_parts) * panel);
}

static void contract_choose_blocks(tg_contraction *c) {
    int64_t panel = 2 * c->ops->width, rows = contract_part_rows(c), columns = contract_part_columns(c);
    c->k_block = contract_ceil(c->k, contract_ceil(c->k, CONTRACT_K_BLOCK));
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

/* Tiny products, of one panel and one block of k, run by a loop that does little else. */
static void contract_choose_group(tg_contraction *c) {
    if (c->dot || c->swapped || c->batches < 2 || c->n < 2 || c->n > 2 * c->ops->width || c->k > c->k_block) return;
    if (c->m * c->n * c->k > CONTRACT_TINY || c->a_mode != CONTRACT_A_IN_PLACE || c->row_parts * c->column_parts > 1) return;
    c->group = contract_max(1, CONTRACT_GROUP_FLOATS / (c->m * c->n));
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
    if (c->a_mode == CONTRACT_A_COPY_ROWS) c->a_floats = c->row_chunk * (c->k_block + width);
    if (c->a_mode == CONTRACT_A_COPY_TILES) c->a_floats = (contract_ceil(c->row_chunk, c->ops->max_rows[1]) + 1) * c->k_block * 16;
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
    c->ops = contract_ops_of(isa, c->dot ? contract_max(16, c->k) : c->n);
    contract_choose_parts(c, max_parts);
    contract_choose_a(c, contract_part_columns(c));
    contract_choose_b(c, contract_part_rows(c));
    contract_choose_blocks(c);
    contract_choose_group(c);
    contract_choose_scratch(c);
    contract_name_method(c);
    return c;
}

tg_contraction *tg_contraction_make(tg_arena *arena, const tg_kernel *kernel, tg_isa isa) {
    return tg_contraction_make_limited(arena, kernel, isa, CONTRACT_MAX_PARTS);
}

int tg_contraction_parts(const tg_contraction *c) { return (int)(c->batch_parts * c->row_parts * c->column_parts); }

size_t tg_contraction_scratch(const tg_contraction *c) {
    int64_t floats = contract_round_up(c->a_floats, 16) + contract_round_up(c->b_floats, 16) + contract_round_up(c->sum_floats, 16);
    return (size_t)(floats + CONTRACT_HEADER_FLOATS) * sizeof(float);
}

bool tg_contraction_is_tiny(const tg_contraction *c) { return c->group > 0; }

const char *tg_contraction_method(const tg_contraction *c) { return c->method; }

/* ---------------------------------------------------------------- running */

/* Which b the worker's copy holds, when k has one block: of one column chunk. Parts of the same columns find it packed. */
typedef struct contract_packed {
    const float *b;
    int64_t column;
} contract_packed;

void tg_contraction_begin(void *scratch) { *(contract_packed *)scratch = (contract_packed){NULL, 0}; }

/* What one part works with. Rows and columns are those of the possibly exchanged problem. */
typedef struct contract_job {
    const tg_contraction *c;
    int worker;
    int64_t batch;
    int64_t index[TG_MAX_LOOP]; /* of this batch */
    const float *a, *b;         /* of this batch */
    float *direct;              /* of this batch; NULL: sink */
    const int64_t *direct_stride;
    int64_t row_stride;
    tg_block_sink sink;
    void *user;
    float *a_copy, *b_copy, *sums;
    contract_packed *packed;
} contract_job;

/* `rows` rows of `cols` adjacent numbers. */
static void contract_copy_box(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t cols) {
    for (; rows > 0; --rows, to += to_stride, from += from_stride) {
        int64_t j = 0;
        for (; j + 8 <= cols; j += 8) memcpy(to + j, from + j, 8 * sizeof(float));
        for (; j < cols; ++j) to[j] = from[j];
    }
}

/* Columns of several runs: each run of adjacent columns at once, or column by column. */
static void contract_gather_columns(const contract_job *job, float *to, int64_t padded, const float *from, int64_t k_stride, int64_t run,
                                    int64_t n0, int64_t cols) {
    const contract_axis *n_axis = &job->c->b.free;
    int64_t j = 0;
    for (int64_t next; j < cols; j = next) {
        const float *column = from + contract_at(n_axis, n0 + j);
        int64_t adjacent = n_axis->stride == 1 ? contract_run_length(n_axis, n0 + j, cols - j) : 1;
        next = j + adjacent;
        contract_copy_box(to + j, padded, column, k_stride, run, adjacent);
    }
    for (; j < padded; ++j)
        for (int64_t p = 0; p < run; ++p) to[p * padded + j] = 0;
}

/* Columns [n0, n0 + cols) of k's [k0, k0 + kc) in a panel of `padded` columns. */
static void contract_pack_panel(const contract_job *job, float *to, int64_t padded, int64_t k0, int64_t kc, int64_t n0, int64_t cols) {
    const tg_contraction *c = job->c;
    const contract_axis *k_axis = &c->b.k, *n_axis = &c->b.free;
    for (int64_t k = 0, run; k < kc; k += run, to += run * padded) {
        run = contract_run_length(k_axis, k0 + k, kc - k);
        const float *from = job->b + contract_at(k_axis, k0 + k);
        if (c->b_mode == CONTRACT_B_COLUMNS) {
            c->ops->pack_columns(to, padded, from + n0 * n_axis->stride, n_axis->stride, run, cols);
        } else if (c->b_mode != CONTRACT_B_GATHER) {
            c->ops->pack_rows(to, padded, from + n0, k_axis->stride, run, cols);
        } else {
            contract_gather_columns(job, to, padded, from, k_axis->stride, run, n0, cols);
        }
    }
}

static void contract_pack_b(contract_job *job, int64_t k0, int64_t kc, int64_t n0, int64_t cols) {
    const tg_contraction *c = job->c;
    int64_t width = c->ops->width, panel = 2 * width;
    if (c->b_mode == CONTRACT_B_IN_PLACE) {
        int64_t tail = cols % panel;
        if (tail % width != 0) contract_pack_panel(job, job->b_copy, contract_round_up(tail, width), k0, kc, n0 + cols - tail, tail);
        return;
    }
    if (kc == c->k && job->packed->b == job->b && job->packed->column == n0) return;
    *job->packed = (contract_packed){job->b, n0};
    for (int64_t j = 0; j < cols; j += panel) {
        int64_t count = contract_min(panel, cols - j);
        contract_pack_panel(job, job->b_copy + j * kc, contract_round_up(count, width), k0, kc, n0 + j, count);
    }
}

/* Rows [m0, m0 + rows): to[r * stride + p] */
static void contract_copy_rows(const contract_job *job, float *to, int64_t stride, int64_t m0, int64_t rows, int64_t k0, int64_t kc) {
    const contract_axis *k_axis = &job->c->a.k, *m_axis = &job->c->a.free;
    for (int64_t r = 0; r < rows; ++r) {
        const float *from = job->a + contract_at(m_axis, m0 + r);
        for (int64_t k = 0, run; k < kc; k += run) {
            run = contract_run_length(k_axis, k0 + k, kc - k);
            memcpy(to + r * stride + k, from + contract_at(k_axis, k0 + k), (size_t)run * sizeof(float));
        }
    }
}

/* One tile's rows: to[p * padded + r] */
static void contract_copy_tile(const contract_job *job, float *to, int64_t padded, int64_t m0, int64_t rows, int64_t k0, int64_t kc) {
    const contract_axis *k_axis = &job->c->a.k, *m_axis = &job->c->a.free;
    bool contiguous = m_axis->stride == 1 && contract_run_length(m_axis, m0, rows) == rows;
    for (int64_t k = 0, run; k < kc; k += run) {
        run = contract_run_length(k_axis, k0 + k, kc - k);
        const float *from = job->a + contract_at(k_axis, k0 + k);
        if (contiguous) {
            job->c->ops->pack_rows(to + k * padded, padded, from + contract_at(m_axis, m0), k_axis->stride, run, rows);
            continue;
        }
        for (int64_t r = 0, adjacent; r < rows; r += adjacent) {
            adjacent = m_axis->stride == 1 ? contract_run_length(m_axis, m0 + r, rows - r) : 1;
            contract_copy_box(to + k * padded + r, padded, from + contract_at(m_axis, m0 + r), k_axis->stride, run, adjacent);
        }
    }
}

/* Where the tiles of a chunk of rows find their a: tile i, at row `row` of the chunk. */
typedef struct contract_rows {
    const float *base;
    int64_t row_step, tile_step, row_stride, k_stride, tiles, height, taller;
} contract_rows;

/* `rows` in tiles of nearly equal height: the first `taller` have one row more. */
static contract_rows contract_place_a(const contract_job *job, int64_t m0, int64_t rows, int64_t cols, int64_t k0, int64_t kc) {
    const tg_contraction *c = job->c;
    contract_rows place;
    place.tiles = contract_ceil(rows, c->ops->max_rows[cols > c->ops->width]);
    place.height = rows / place.tiles;
    place.taller = rows % place.tiles;
    if (c->a_mode == CONTRACT_A_IN_PLACE) {
        place.base = job->a + m0 * c->a.free.stride + k0 * c->a.k.stride;
        place.row_stride = place.row_step = c->a.free.stride;
        place.k_stride = c->a.k.stride;
        place.tile_step = 0;
    } else if (c->a_mode == CONTRACT_A_COPY_ROWS) {
        place.base = job->a_copy;
        place.row_stride = place.row_step = kc + c->ops->width;
        place.k_stride = 1;
        place.tile_step = 0;
        contract_copy_rows(job, job->a_copy, place.row_stride, m0, rows, k0, kc);
    } else {
        place.base = job->a_copy;
        place.row_stride = 1;
        place.row_step = 0;
        place.k_stride = contract_round_up(c->ops->max_rows[cols > c->ops->width], c->ops->width);
        place.tile_step = kc * place.k_stride;
        for (int64_t i = 0, row = 0, height; i < place.tiles; ++i, row += height) {
            height = place.height + (i < place.taller);
            contract_copy_tile(job, job->a_copy + i * place.tile_step, place.k_stride, m0 + row, height, k0, kc);
        }
    }
    return place;
}

/* out[rows, cols] (add: +)= a[rows, kc] b[kc, cols] */
static void contract_chunk(const contract_job *job, int64_t m0, int64_t rows, int64_t n0, int64_t cols, int64_t k0, int64_t kc, float *out,
                           int64_t out_stride, bool add) {
    const tg_contraction *c = job->c;
    int64_t width = c->ops->width;
    contract_rows place = contract_place_a(job, m0, rows, cols, k0, kc);
    for (int64_t j = 0, count; j < cols; j += count) {
        count = contract_min(2 * width, cols - j);
        int64_t vectors = contract_ceil(count, width);
        const float *b = job->b_copy + j * kc;
        int64_t b_stride = vectors * width;
        if (c->b_mode == CONTRACT_B_IN_PLACE) {
            bool tail = count % width != 0;
            b = tail ? job->b_copy : job->b + n0 + j + k0 * c->b.k.stride;
            b_stride = tail ? b_stride : c->b.k.stride;
        }
        const tg_contract_tile_fn *tile = c->ops->tile[vectors - 1] + place.height;
        int32_t last = (int32_t)(count - (vectors - 1) * width);
        float *to = out + j;
        const float *a = place.base;
        for (int64_t i = 0; i < place.tiles; ++i) {
            int64_t taller = i < place.taller, height = place.height + taller;
            tile[taller](kc, a, place.row_stride, place.k_stride, b, b_stride, to, out_stride, add, last);
            a += height * place.row_step + place.tile_step;
            to += height * out_stride;
        }
    }
}

static void contract_emit(const contract_job *job, int64_t m0, int64_t rows, int64_t n0, int64_t cols, float *sums, int64_t stride) {
    if (!job->c->swapped) {
        job->sink(job->user, job->worker, job->batch, m0, rows, n0, cols, sums, stride);
    } else if (job->direct == NULL) { /* one row of the transposed product is one column of the product */
        job->sink(job->user, job->worker, job->batch, n0, cols, m0, rows, sums, 1);
    } else {
        for (int64_t j = 0; j < cols; ++j) job->direct[(n0 + j) * job->row_stride] = sums[j];
    }
}

/* Tiles may write the output itself. */
static bool contract_in_place(const contract_job *job) { return job->direct != NULL && (!job->c->swapped || job->row_stride == 1); }

/* Rows [m0, m1) of columns [n0, n0 + cols). */
static void contract_strip(contract_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t cols) {
    const tg_contraction *c = job->c;
    bool in_place = contract_in_place(job);
    bool one_block = c->k_block >= c->k;
    int64_t out_stride = in_place ? job->row_stride : contract_round_up(cols, c->ops->width);
    for (int64_t k0 = 0; k0 < c->k; k0 += c->k_block) {
        int64_t kc = contract_min(c->k_block, c->k - k0);
        contract_pack_b(job, k0, kc, n0, cols);
        for (int64_t row = m0; row < m1; row += c->row_chunk) {
            int64_t rows = contract_min(c->row_chunk, m1 - row);
            float *out = in_place ? job->direct + row * out_stride + n0 : job->sums + (one_block ? 0 : row - m0) * out_stride;
            contract_chunk(job, row, rows, n0, cols, k0, kc, out, out_stride, k0 > 0);
            if (!in_place && k0 + kc == c->k) contract_emit(job, row, rows, n0, cols, out, out_stride);
        }
    }
}

static void contract_matrix(contract_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const tg_contraction *c = job->c;
    int64_t strip = contract_in_place(job) ? m1 - m0 : c->strip;
    for (int64_t n = n0; n < n1; n += c->column_chunk)
        for (int64_t m = m0; m < m1; m += strip)
            contract_strip(job, m, contract_min(m + strip, m1), n, contract_min(c->column_chunk, n1 - n));
}

/* Results [m0, m1) of a matrix times a vector. */
static void contract_vector(contract_job *job, int64_t m0, int64_t m1) {
    const tg_contraction *c = job->c;
    const contract_axis *rows = &c->a.free;
    const float *x = job->b;
    if (c->b_floats > 0) {
        for (int64_t k = 0; k < c->k; ++k) job->b_copy[k] = job->b[contract_at(&c->b.k, k)];
        x = job->b_copy;
    }
    bool in_place = job->direct != NULL;
    int64_t step = in_place && !c->swapped ? job->row_stride : 1;
    for (int64_t m = m0, count; m < m1; m += count) {
        count = contract_min(c->row_chunk, m1 - m);
        float *y = in_place ? job->direct + m * step : job->sums;
        for (int64_t r = 0, run; r < count; r += run) {
            run = contract_run_length(rows, m + r, count - r);
            c->ops->dot(run, c->k, job->a + contract_at(rows, m + r), rows->stride, x, y + r * step, step);
        }
        if (in_place) continue;
        if (c->swapped) job->sink(job->user, job->worker, job->batch, 0, 1, m, count, y, count);
        else job->sink(job->user, job->worker, job->batch, m, count, 0, 1, y, 1);
    }
}

/* ---------------------------------------------------------------- batches */

static void contract_move(contract_job *job, int32_t dim, int64_t steps) {
    job->index[dim] += steps;
    job->a += steps * job->c->a.batch_stride[dim];
    job->b += steps * job->c->b.batch_stride[dim];
    if (job->direct != NULL) job->direct += steps * job->direct_stride[dim];
}

static void contract_go_to(contract_job *job, int64_t batch) {
    job->batch = batch;
    for (int32_t d = job->c->batch_dims - 1; d >= 0; --d) {
        contract_move(job, d, batch % job->c->batch_extent[d]);
        batch /= job->c->batch_extent[d];
    }
}

static void contract_next_batch(contract_job *job) {
    if (++job->batch == job->c->batches) return;
    for (int32_t d = job->c->batch_dims - 1; d >= 0; --d) {
        if (job->index[d] + 1 < job->c->batch_extent[d]) {
            contract_move(job, d, 1);
            return;
        }
        contract_move(job, d, -job->index[d]);
    }
}

/* Batches from job->batch to `end`, each one panel of columns. A sink gets the rows of `group` of them at once. */
static void contract_tiny(contract_job *job, int64_t end) {
    const tg_contraction *c = job->c;
    const int64_t width = c->ops->width, vectors = contract_ceil(c->n, width), padded = vectors * width;
    const int64_t tiles = contract_ceil(c->m, c->ops->max_rows[vectors - 1]), height = c->m / tiles, taller = c->m % tiles;
    const tg_contract_tile_fn *tile = c->ops->tile[vectors - 1] + height;
    const int32_t last = (int32_t)(c->n - (vectors - 1) * width);
    const bool packs = c->b_mode != CONTRACT_B_IN_PLACE || last < width;
    const int64_t out_stride = job->direct != NULL ? job->row_stride : c->n;
    for (int64_t first = job->batch; job->batch < end; first = job->batch) {
        const int64_t group_end = contract_min(first + c->group, end);
        for (float *to = job->sums; job->batch < group_end; to += c->m * c->n, contract_next_batch(job)) {
            if (packs && job->packed->b != job->b) contract_pack_panel(job, job->b_copy, padded, 0, c->k, 0, c->n);
            job->packed->b = job->b;
            const float *a = job->a, *b = packs ? job->b_copy : job->b;
            float *out = job->direct != NULL ? job->direct : to;
            for (int64_t i = 0; i < tiles; ++i) {
                const int64_t more = i < taller;
                tile[more](c->k, a, c->a.free.stride, c->a.k.stride, b, packs ? padded : c->b.k.stride, out, out_stride, false, last);
                a += (height + more) * c->a.free.stride;
                out += (height + more) * out_stride;
            }
        }
        if (job->direct == NULL) job->sink(job->user, job->worker, 0, first * c->m, (job->batch - first) * c->m, 0, c->n, job->sums, c->n);
    }
}

void tg_contraction_run(const tg_contraction *c, int part, int worker, const float *a, const float *b, float *direct,
                        const int64_t *batch_stride, int64_t row_stride, tg_block_sink sink, void *user, void *scratch) {
    contract_job job = {.c = c, .worker = worker, .row_stride = row_stride, .sink = sink, .user = user, .packed = scratch};
    job.a_copy = (float *)scratch + CONTRACT_HEADER_FLOATS;
    job.b_copy = job.a_copy + contract_round_up(c->a_floats, 16);
    job.sums = job.b_copy + contract_round_up(c->b_floats, 16);
    job.a = (c->swapped ? b : a) + c->a.offset;
    job.b = (c->swapped ? a : b) + c->b.offset;
    job.direct = direct;
    job.direct_stride = batch_stride;
    int64_t column_part = part % c->column_parts, row_part = part / c->column_parts % c->row_parts;
    int64_t batch_part = part / c->column_parts / c->row_parts;
    int64_t rows = contract_part_rows(c), columns = contract_part_columns(c);
    int64_t m0 = contract_min(row_part * rows, c->m), m1 = contract_min(m0 + rows, c->m);
    int64_t n0 = contract_min(column_part * columns, c->n), n1 = contract_min(n0 + columns, c->n);
    int64_t end = c->batches * (batch_part + 1) / c->batch_parts;
    contract_go_to(&job, c->batches * batch_part / c->batch_parts);
    if (c->group > 0) {
        contract_tiny(&job, end);
        return;
    }
    for (; job.batch < end; contract_next_batch(&job)) {
        if (c->dot) contract_vector(&job, m0, m1);
        else contract_matrix(&job, m0, m1, n0, n1);
    }
}

/* ---------------------------------------------------------------- the naive version */

static float contract_element(const tg_kernel *kernel, const float *a, const float *b) {
    const int64_t *extent = kernel->extent + kernel->outer_count;
    int32_t dims = kernel->loop_count - kernel->outer_count;
    int64_t count = contract_extent(kernel, kernel->outer_count, kernel->loop_count);
    double sum = 0;
    for (int64_t k = 0; k < count; ++k)
        sum += (double)a[contract_unravel(extent, kernel->a.at.stride + kernel->outer_count, dims, k)] *
               (double)b[contract_unravel(extent, kernel->b.at.stride + kernel->outer_count, dims, k)];
    return (float)sum;
}

void tg_contraction_naive(const tg_kernel *kernel, const float *a, const float *b, float *out) {
    int64_t count = contract_extent(kernel, 0, kernel->outer_count);
    for (int64_t i = 0; i < count; ++i)
        out[i] = contract_element(kernel,
                                  a + kernel->a.at.offset + contract_unravel(kernel->extent, kernel->a.at.stride, kernel->outer_count, i),
                                  b + kernel->b.at.offset + contract_unravel(kernel->extent, kernel->b.at.stride, kernel->outer_count, i));
}

#undef CONTRACT_K_BLOCK
#undef CONTRACT_ROW_CHUNK
#undef CONTRACT_COLUMN_FLOATS
#undef CONTRACT_COLUMN_CHUNK
#undef CONTRACT_SINK_FLOATS
#undef CONTRACT_STRIP_FLOATS
#undef CONTRACT_MAX_PARTS
#undef CONTRACT_HEADER_FLOATS
#undef CONTRACT_TINY
#undef CONTRACT_GROUP_FLOATS
