/* contract: batched matrix products on the CPU. Packs and runs the choice of contract_choose.c.
 * Must not know the epilogue (finished blocks go to a sink) nor the instruction set (contract_ops).
 * One loop nest serves all shapes: columns in chunks, k in blocks, rows in chunks, then register
 * tiles. The first operand is read in place if its rows and its k each have one stride, the
 * second if its columns are contiguous and few rows use them; else a block is copied first. The
 * value of an element depends only on its operands and K: within a block of k it is one run of
 * multiply-adds, and blocks are added in order. So parts, threads and tiles never change a
 * result. */
#include "run/cpu/contract_choice.h"

#include <string.h>

/* ---------------------------------------------------------------- running */

/* The b in the worker's copy, when k has one block: that of one column chunk. Parts of the same
 * columns find it packed. And the a, if it is kept: from row `row` on. */
typedef struct contract_packed {
    const float *b;
    int64_t column;
    const float *a;
    int64_t row;
    bool wide; /* in tiles of two vectors a row */
} contract_packed;

void tg_contraction_begin(void *scratch) { *(contract_packed *)scratch = (contract_packed){NULL, 0, NULL, 0, false}; }

/* The data of one part. Rows and columns are those of the possibly exchanged problem. */
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
    float *partial;         /* of this part of k; NULL: k has one part */
    int64_t k_begin, k_end; /* of this part */
    int64_t row0;           /* first row of this part */
    bool a_ready;           /* the copies of its rows of a are there */
    float *a_copy, *b_copy, *sums, *turned;
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

/* Adjacent columns: where they begin, and how many they are. */
typedef struct contract_segment {
    int64_t offset, columns;
} contract_segment;

/* Returns how many segments columns [n0, n0 + cols) are. */
static int contract_find_segments(const contract_axis *axis, int64_t n0, int64_t cols, contract_segment *out) {
    contract_cursor at = contract_seek(axis, n0);
    int count = 0;
    for (int64_t j = 0; j < cols; j += out[count++].columns) {
        out[count].offset = contract_here(&at);
        out[count].columns = contract_next_run(&at, axis->stride == 1 ? cols - j : 1);
    }
    return count;
}

/* Segments of columns, one after another: to[p * padded + j] */
static void contract_gather_columns(float *to, int64_t padded, const float *from, int64_t k_stride, int64_t run,
                                    const contract_segment *segments, int count) {
    int64_t j = 0;
    for (int i = 0; i < count; j += segments[i++].columns)
        contract_copy_box(to + j, padded, from + segments[i].offset, k_stride, run, segments[i].columns);
    for (; j < padded; ++j)
        for (int64_t p = 0; p < run; ++p) to[p * padded + j] = 0;
}

/* Columns [n0, n0 + cols) of k's [k0, k0 + kc) in a panel of `padded` columns. */
static void contract_pack_panel(const contract_job *job, float *to, int64_t padded, int64_t k0, int64_t kc, int64_t n0, int64_t cols) {
    const tg_contraction *c = job->c;
    const contract_axis *k_axis = &c->b.k, *n_axis = &c->b.free;
    contract_segment segments[CONTRACT_MOST_PANEL];
    const int count = c->b_mode == CONTRACT_B_GATHER ? contract_find_segments(n_axis, n0, cols, segments) : 0;
    contract_cursor at = contract_seek(k_axis, k0);
    for (int64_t k = 0, run; k < kc; k += run, to += run * padded) {
        const float *from = job->b + contract_here(&at);
        run = contract_next_run(&at, kc - k);
        if (c->b_mode == CONTRACT_B_COLUMNS) {
            c->ops->pack_columns(to, padded, from + n0 * n_axis->stride, n_axis->stride, run, cols);
        } else if (c->b_mode != CONTRACT_B_GATHER) {
            c->ops->pack_rows(to, padded, from + n0, k_axis->stride, run, cols);
        } else if (count == 1) {
            c->ops->pack_rows(to, padded, from + segments[0].offset, k_axis->stride, run, cols);
        } else {
            contract_gather_columns(to, padded, from, k_axis->stride, run, segments, count);
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
    job->packed->b = job->b;
    job->packed->column = n0;
    for (int64_t j = 0; j < cols; j += panel) {
        int64_t count = contract_min(panel, cols - j);
        contract_pack_panel(job, job->b_copy + j * kc, contract_round_up(count, width), k0, kc, n0 + j, count);
    }
}

/* Rows [m0, m0 + rows): to[r * stride + p] */
static void contract_copy_rows(const contract_job *job, float *to, int64_t stride, int64_t m0, int64_t rows, int64_t k0, int64_t kc) {
    const contract_axis *m_axis = &job->c->a.free;
    int64_t row[CONTRACT_MOST_ROWS];
    contract_cursor down = contract_seek(m_axis, m0), at = contract_seek(&job->c->a.k, k0);
    for (int64_t r = 0; r < rows; ++r) {
        row[r] = contract_here(&down);
        contract_next_run(&down, 1);
    }
    for (int64_t k = 0, run; k < kc; k += run) {
        const float *from = job->a + contract_here(&at);
        run = contract_next_run(&at, kc - k);
        for (int64_t r = 0; r < rows; ++r) contract_copy_box(to + r * stride + k, 0, from + row[r], 0, 1, run);
    }
}

/* One tile's rows: to[p * padded + r] */
static void contract_copy_tile(const contract_job *job, float *to, int64_t padded, int64_t m0, int64_t rows, int64_t k0, int64_t kc) {
    const contract_axis *k_axis = &job->c->a.k, *m_axis = &job->c->a.free;
    contract_segment segments[CONTRACT_MOST_PANEL];
    const int count = contract_find_segments(m_axis, m0, rows, segments);
    contract_cursor at = contract_seek(k_axis, k0);
    for (int64_t k = 0, run; k < kc; k += run) {
        const float *from = job->a + contract_here(&at);
        float *run_to = to + k * padded;
        run = contract_next_run(&at, kc - k);
        if (count == 1) job->c->ops->pack_rows(run_to, padded, from + segments[0].offset, k_axis->stride, run, rows);
        for (int i = 0; count > 1 && i < count; run_to += segments[i++].columns)
            contract_copy_box(run_to, padded, from + segments[i].offset, k_axis->stride, run, segments[i].columns);
    }
}

/* The addresses of a for the tiles of a chunk of rows. A tile of h rows is followed by the next one
 * h * tile_row_stride + tile_stride further on. */
typedef struct contract_rows {
    const float *base;
    int64_t tile_row_stride, tile_stride, row_stride, k_stride, tiles, height, taller;
} contract_rows;

/* `rows` in tiles of nearly equal height: the first `taller` have one row more. */
static contract_rows contract_rows_of_a(const contract_job *job, int64_t m0, int64_t rows, int64_t cols, int64_t k0, int64_t kc) {
    const tg_contraction *c = job->c;
    contract_rows a_rows;
    float *copy = job->a_copy;
    if (c->keeps_a) copy += ((m0 - job->row0) / c->row_chunk * contract_ceil(c->k, c->k_block) + k0 / c->k_block) * c->a_chunk_floats;
    a_rows.tiles = contract_ceil(rows, c->ops->max_rows[cols > c->ops->width]);
    a_rows.height = rows / a_rows.tiles;
    a_rows.taller = rows % a_rows.tiles;
    if (c->a_mode == CONTRACT_A_IN_PLACE) {
        a_rows.base = job->a + m0 * c->a.free.stride + k0 * c->a.k.stride;
        a_rows.row_stride = a_rows.tile_row_stride = c->a.free.stride;
        a_rows.k_stride = c->a.k.stride;
        a_rows.tile_stride = 0;
    } else if (c->a_mode == CONTRACT_A_COPY_ROWS) {
        a_rows.base = copy;
        a_rows.row_stride = a_rows.tile_row_stride = kc + c->ops->width;
        a_rows.k_stride = 1;
        a_rows.tile_stride = 0;
        if (!job->a_ready) contract_copy_rows(job, copy, a_rows.row_stride, m0, rows, k0, kc);
    } else {
        a_rows.base = copy;
        a_rows.row_stride = 1;
        a_rows.tile_row_stride = 0;
        a_rows.k_stride = contract_round_up(c->ops->max_rows[cols > c->ops->width], c->ops->width);
        a_rows.tile_stride = kc * a_rows.k_stride;
        for (int64_t i = 0, row = 0, height; !job->a_ready && i < a_rows.tiles; ++i, row += height) {
            height = a_rows.height + (i < a_rows.taller);
            contract_copy_tile(job, copy + i * a_rows.tile_stride, a_rows.k_stride, m0 + row, height, k0, kc);
        }
    }
    return a_rows;
}

/* out[rows, cols] (add: +)= a[rows, kc] b[kc, cols] */
static void contract_chunk(const contract_job *job, int64_t m0, int64_t rows, int64_t n0, int64_t cols, int64_t k0, int64_t kc, float *out,
                           int64_t out_stride, bool add) {
    const tg_contraction *c = job->c;
    int64_t width = c->ops->width;
    contract_rows a_rows = contract_rows_of_a(job, m0, rows, cols, k0, kc);
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
        const tg_contract_tile_fn *tile = c->ops->tile[vectors - 1] + a_rows.height;
        int32_t last = (int32_t)(count - (vectors - 1) * width);
        float *to = out + j;
        const float *a = a_rows.base;
        for (int64_t i = 0; i < a_rows.tiles; ++i) {
            int64_t taller = i < a_rows.taller, height = a_rows.height + taller;
            tile[taller](kc, a, a_rows.row_stride, a_rows.k_stride, b, b_stride, to, out_stride, add, last);
            a += height * a_rows.tile_row_stride + a_rows.tile_stride;
            to += height * out_stride;
        }
    }
}

/* The block of the product from a block of the transposed one. */
static void contract_emit_turned(const contract_job *job, int64_t m0, int64_t rows, int64_t n0, int64_t cols, const float *sums,
                                 int64_t stride) {
    float *to = job->direct != NULL ? job->direct + n0 * job->row_stride + m0 : job->turned;
    const int64_t to_stride = job->direct != NULL ? job->row_stride : rows;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) to[j * to_stride + i] = sums[i * stride + j];
    if (job->direct == NULL) job->sink(job->user, job->worker, job->batch, n0, cols, m0, rows, to, to_stride);
}

static void contract_emit(const contract_job *job, int64_t m0, int64_t rows, int64_t n0, int64_t cols, float *sums, int64_t stride) {
    if (job->c->turns) {
        contract_emit_turned(job, m0, rows, n0, cols, sums, stride);
    } else if (!job->c->swapped && job->direct != NULL) {
        contract_copy_box(job->direct + m0 * job->row_stride + n0, job->row_stride, sums, stride, rows, cols);
    } else if (!job->c->swapped) {
        job->sink(job->user, job->worker, job->batch, m0, rows, n0, cols, sums, stride);
        /* one row of the transposed product is one column of the product */
    } else if (job->direct == NULL) {
        job->sink(job->user, job->worker, job->batch, n0, cols, m0, rows, sums, 1);
    } else {
        for (int64_t j = 0; j < cols; ++j) job->direct[(n0 + j) * job->row_stride] = sums[j];
    }
}

/* Where tiles may write without a copy of their block: the output, or the sums of a part of k. NULL:
 * nowhere. */
typedef struct contract_target {
    float *base;
    int64_t stride;
} contract_target;

static contract_target contract_in_place(const contract_job *job) {
    const tg_contraction *c = job->c;
    if (job->partial != NULL) return (contract_target){job->partial, c->n};
    if (c->turns || (c->swapped && job->row_stride != 1)) return (contract_target){NULL, 0};
    return (contract_target){job->direct, job->row_stride};
}

/* Rows [m0, m1) of columns [n0, n0 + cols). */
static void contract_strip(contract_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t cols) {
    const tg_contraction *c = job->c;
    const contract_target target = contract_in_place(job);
    bool in_place = target.base != NULL, one_block = c->k_block >= c->k;
    int64_t out_stride = in_place ? target.stride : contract_round_up(cols, c->ops->width);
    for (int64_t k0 = job->k_begin; k0 < job->k_end; k0 += c->k_block) {
        int64_t kc = contract_min(c->k_block, job->k_end - k0);
        contract_pack_b(job, k0, kc, n0, cols);
        for (int64_t row = m0; row < m1; row += c->row_chunk) {
            int64_t rows = contract_min(c->row_chunk, m1 - row);
            float *out = in_place ? target.base + row * out_stride + n0 : job->sums + (one_block ? 0 : row - m0) * out_stride;
            contract_chunk(job, row, rows, n0, cols, k0, kc, out, out_stride, k0 > job->k_begin);
            if (!in_place && k0 + kc == c->k) contract_emit(job, row, rows, n0, cols, out, out_stride);
        }
    }
}

static void contract_matrix(contract_job *job, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const tg_contraction *c = job->c;
    int64_t strip = contract_in_place(job).base != NULL ? m1 - m0 : c->strip;
    contract_packed *packed = job->packed;
    job->row0 = m0;
    for (int64_t n = n0, cols; n < n1; n += cols) {
        cols = contract_min(c->column_chunk, n1 - n);
        const bool wide = cols > c->ops->width;
        job->a_ready = c->keeps_a && packed->a == job->a && packed->row == m0 && packed->wide == wide;
        for (int64_t m = m0; m < m1; m += strip) contract_strip(job, m, contract_min(m + strip, m1), n, cols);
        packed->a = job->a;
        packed->row = m0;
        packed->wide = wide;
    }
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

/* Batches from job->batch to `end`, each one panel of columns. A sink gets the rows of `group` of
 * them at once. */
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

static contract_job contract_make_job(const tg_contraction *c, int worker, float *direct, const int64_t *batch_stride, int64_t row_stride,
                                      tg_block_sink sink, void *user, void *scratch) {
    contract_job job = {.c = c, .worker = worker, .row_stride = row_stride, .sink = sink, .user = user, .packed = scratch, .k_end = c->k};
    job.a_copy = (float *)scratch + CONTRACT_HEADER_FLOATS;
    job.b_copy = job.a_copy + contract_round_up(c->a_floats, 16);
    job.sums = job.b_copy + contract_round_up(c->b_floats, 16);
    job.turned = job.sums + contract_round_up(c->sum_floats, 16);
    job.direct = direct;
    job.direct_stride = batch_stride;
    return job;
}

/* Parts [first, last) of k, each to its own sums. */
static void contract_run_parts_of_k(contract_job *job, int64_t first, int64_t last) {
    const tg_contraction *c = job->c;
    for (int64_t p = first; p < last; ++p) {
        job->partial = c->partials + p * c->m * c->n;
        job->k_begin = p * c->part_k;
        job->k_end = contract_min(job->k_begin + c->part_k, c->k);
        contract_matrix(job, 0, c->m, 0, c->n);
    }
}

void tg_contraction_run(const tg_contraction *c, int part, int worker, const float *a, const float *b, float *direct,
                        const int64_t *batch_stride, int64_t row_stride, tg_block_sink sink, void *user, void *scratch) {
    contract_job job = contract_make_job(c, worker, direct, batch_stride, row_stride, sink, user, scratch);
    job.a = (c->swapped ? b : a) + c->a.offset;
    job.b = (c->swapped ? a : b) + c->b.offset;
    if (c->k_parts > 1) {
        contract_run_parts_of_k(&job, c->k_parts * part / c->limit, c->k_parts * (part + 1) / c->limit);
        return;
    }
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

void tg_contraction_finish(const tg_contraction *c, int part, int worker, float *direct, const int64_t *batch_stride, int64_t row_stride,
                           tg_block_sink sink, void *user, void *scratch) {
    if (c->k_parts < 2) return;
    contract_job job = contract_make_job(c, worker, direct, batch_stride, row_stride, sink, user, scratch);
    const int64_t end = c->m * (part + 1) / c->limit, most = contract_min(c->column_chunk, c->n);
    for (int64_t m0 = c->m * part / c->limit, rows; m0 < end; m0 += rows) {
        rows = contract_min(c->row_chunk, end - m0);
        for (int64_t n0 = 0, cols; n0 < c->n; n0 += cols) {
            cols = contract_min(most, c->n - n0);
            for (int64_t i = 0; i < rows; ++i) {
                const float *from = c->partials + (m0 + i) * c->n + n0;
                float *to = job.sums + i * cols;
                contract_copy_box(to, 0, from, 0, 1, cols);
                for (int64_t p = 1; p < c->k_parts; ++p)
                    for (int64_t j = 0; j < cols; ++j) to[j] += from[p * c->m * c->n + j];
            }
            contract_emit(&job, m0, rows, n0, cols, job.sums, cols);
        }
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
