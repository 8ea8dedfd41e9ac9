/* vm_run: drives a translated kernel over its tiles and parts. Owns the order of tiles, passes and
 * partial sums; allocates nothing. Sums of parts are combined in the parts' order, so a result
 * never depends on the number of threads. Must not know what an instruction does. */
#include "run/cpu/vm.h"

#include <string.h>

typedef struct run_job {
    tg_vm_kernel *kernel;
    void *const *argument;
    char *const *scratch;
    int64_t tile; /* split reductions: the outer tile */
    int32_t pass; /* split reductions: which pass; == passes: the element stores */
} run_job;

static int64_t run_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t run_round(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* ---- frames: a worker's scratch is [frame, pointers, rows, streams, tables | registers |
 * contraction's scratch] */

static tg_vm_frame *run_frame(const run_job *job, int worker) {
    const tg_vm_kernel *k = job->kernel;
    char *at = job->scratch[worker];
    tg_vm_frame *f = (tg_vm_frame *)(void *)at;
    at += run_round(sizeof *f);
    f->ptr = (void **)(void *)at;
    at += run_round((size_t)k->slot_count * sizeof(void *));
    f->row = (int64_t *)(void *)at;
    at += run_round((size_t)k->slot_count * sizeof(int64_t));
    f->stream = (tg_vm_cursor *)(void *)at;
    at += run_round((size_t)k->stream_count * sizeof(tg_vm_cursor));
    f->tables = (int64_t *)(void *)at;
    f->argument = job->argument;
    f->registers = job->scratch[worker] + k->frame_bytes;
    f->inner_base = f->row0 = f->col0 = 0;
    f->first = true;
    f->shape[TG_VM_FULL] = (tg_vm_shape){0, 0};
    for (int32_t s = 0; s < k->slot_count; ++s) {
        const tg_vm_slot *slot = &k->slots[s];
        f->row[s] = slot->row;
        f->ptr[s] = slot->storage == TG_VM_REGISTER ? f->registers + slot->offset
                    : slot->storage == TG_VM_SHARED ? k->shared + slot->offset
                                                    : NULL;
    }
    for (int32_t s = 0; s < k->stream_count; ++s) f->stream[s].col = k->streams[s].col;
    for (int32_t d = 0; d < k->loops.outside_count; ++d) f->outside[d] = 0;
    return f;
}
static void run_set_shape(tg_vm_frame *f, const tg_vm_kernel *k, int64_t rows, int64_t cols) {
    if (f->shape[TG_VM_FULL].rows == rows && f->shape[TG_VM_FULL].cols == cols) return;
    f->shape[TG_VM_ONE] = (tg_vm_shape){1, 1};
    f->shape[TG_VM_PER_ROW] = (tg_vm_shape){1, rows};
    f->shape[TG_VM_PER_COL] = (tg_vm_shape){1, cols};
    f->shape[TG_VM_FULL] = (tg_vm_shape){rows, cols};
    f->shape[TG_VM_FLAT] = cols == k->tile_cols ? (tg_vm_shape){1, rows * cols} : (tg_vm_shape){rows, cols};
    f->shape[TG_VM_DOWN] = (tg_vm_shape){rows, 1};
}
static void run_split_index(int64_t flat, const int64_t *extent, int32_t count, int64_t *index) {
    for (int32_t d = count - 1; d > 0; --d) {
        index[d] = flat % extent[d];
        flat /= extent[d];
    }
    if (count > 0) index[0] = flat;
}

/* ---- placing: stream bases, row tables and in-place operands for the tile at (row0, col0) */

/* table[r] = offset of row row0 + r, for a stream whose rows are not evenly spaced. Runs along the
 * last row loop. */
static void run_fill_table(const tg_vm_loops *loops, const tg_vm_stream *stream, const int64_t *start, int64_t offset, int64_t rows,
                           int64_t *table) {
    int64_t index[TG_MAX_LOOP];
    const int32_t last = loops->row_count - 1;
    for (int32_t d = 0; d <= last; ++d) index[d] = start[d];
    for (int64_t r = 0; r < rows;) {
        int64_t run = run_smaller(loops->row_extent[last] - index[last], rows - r), step = stream->row_stride[last];
        for (int64_t j = 0; j < run; ++j) table[r + j] = offset + j * step;
        r += run;
        index[last] += run;
        offset += run * step;
        for (int32_t d = last; d > 0 && index[d] == loops->row_extent[d]; --d) {
            offset += stream->row_stride[d - 1] - index[d] * stream->row_stride[d];
            index[d] = 0;
            ++index[d - 1];
        }
    }
}
static void run_place(const tg_vm_kernel *k, tg_vm_frame *f, const tg_vm_segment *segment) {
    const tg_vm_loops *loops = &k->loops;
    const int64_t rows = f->shape[TG_VM_FULL].rows;
    int64_t row_index[TG_MAX_LOOP];
    if (segment->tables) run_split_index(f->row0, loops->row_extent, loops->row_count, row_index);
    for (int32_t j = 0; j < segment->stream_count; ++j) {
        const int32_t s = segment->streams[j];
        const tg_vm_stream *stream = &k->streams[s];
        tg_vm_cursor *now = &f->stream[s];
        int64_t base = stream->offset + f->col0 * stream->col;
        for (int32_t d = 0; d < loops->outside_count; ++d) base += f->outside[d] * stream->outside_stride[d];
        now->row = stream->row;
        now->table = NULL;
        if (stream->affine) {
            base += f->row0 * stream->row;
        } else {
            for (int32_t d = 0; d < loops->row_count; ++d) base += row_index[d] * stream->row_stride[d];
            if (rows > 1) {
                int64_t *table = f->tables + (int64_t)s * k->tile_rows;
                run_fill_table(loops, stream, row_index, base, rows, table);
                now->table = table;
            }
        }
        now->base = base;
    }
    for (int32_t j = 0; j < segment->direct_count; ++j) {
        const tg_vm_direct *direct = &segment->directs[j];
        f->ptr[direct->slot] = (char *)f->argument[direct->argument] + f->stream[direct->stream].base * TG_LANE_BYTES;
    }
}
static void run_code(const tg_vm_segment *segment, tg_vm_frame *f) {
    for (const tg_vm_code *code = segment->code, *end = code + segment->code_count; code < end; ++code) code->fn(code, f);
}
static void run_segment(const tg_vm_kernel *k, tg_vm_frame *f, const tg_vm_segment *segment) {
    if (segment->code_count == 0) return;
    run_place(k, f, segment);
    run_code(segment, f);
}
static void run_prologue(const run_job *job) {
    const tg_vm_kernel *k = job->kernel;
    if (k->prologue.code_count == 0) return;
    tg_vm_frame *f = run_frame(job, 0);
    run_set_shape(f, k, 1, 1);
    run_segment(k, f, &k->prologue);
}
/* Values that are the same in every tile, for the largest tile there is. */
static void run_setup(const tg_vm_kernel *k, tg_vm_frame *f) {
    if (k->setup.code_count == 0) return;
    run_set_shape(f, k, run_smaller(k->tile_rows, k->loops.rows), k->loops.cols);
    run_segment(k, f, &k->setup);
}
/* Part `part` of `parts` nearly equal ranges of [0, count). */
static int64_t run_range(int64_t count, int part, int parts) { return count * part / parts; }

/* ---- maps */

static void run_map_part(void *user, int part, int worker) {
    const run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    tg_vm_frame *f = run_frame(job, worker);
    run_setup(k, f);
    const int64_t row_tiles = (k->loops.rows + k->tile_rows - 1) / k->tile_rows, col_tiles = k->tiles / row_tiles;
    int64_t tile = run_range(k->tiles, part, k->parts);
    const int64_t end = run_range(k->tiles, part + 1, k->parts);
    int64_t row_tile = tile / col_tiles, col_tile = tile % col_tiles;
    for (; tile < end; ++tile) {
        f->row0 = row_tile * k->tile_rows;
        f->col0 = col_tile * k->tile_cols;
        run_set_shape(f, k, run_smaller(k->tile_rows, k->loops.rows - f->row0), run_smaller(k->tile_cols, k->loops.cols - f->col0));
        run_segment(k, f, &k->body);
        if (++col_tile == col_tiles) col_tile = 0, ++row_tile;
    }
}

/* ---- reductions */

/* Sets the outer half of the tile's place: ROWS its rows, COLUMNS its columns and outside loops.
 * Returns its extent. */
static int64_t run_outer_tile(const tg_vm_kernel *k, tg_vm_frame *f, int64_t tile) {
    const tg_vm_loops *loops = &k->loops;
    if (k->mode == TG_VM_ROWS) {
        f->row0 = tile * k->tile_rows;
        return run_smaller(k->tile_rows, loops->rows - f->row0);
    }
    const int64_t col_tiles = (loops->cols + k->tile_cols - 1) / k->tile_cols;
    f->col0 = tile % col_tiles * k->tile_cols;
    run_split_index(tile / col_tiles, loops->outside_extent, loops->outside_count, f->outside);
    return run_smaller(k->tile_cols, loops->cols - f->col0);
}
static void run_outer_segment(const tg_vm_kernel *k, tg_vm_frame *f, const tg_vm_segment *segment, int64_t extent) {
    if (k->mode == TG_VM_ROWS) run_set_shape(f, k, extent, 1);
    else run_set_shape(f, k, 1, extent);
    if (k->mode == TG_VM_ROWS) f->col0 = 0;
    else f->row0 = 0;
    run_segment(k, f, segment);
}
/* Tiles of the inner loops under one outer tile. */
static int64_t run_inner_units(const tg_vm_kernel *k) {
    if (k->mode == TG_VM_COLUMNS) return (k->loops.rows + k->tile_rows - 1) / k->tile_rows;
    return k->loops.outside * ((k->loops.cols + k->tile_cols - 1) / k->tile_cols);
}
/* The segment over inner tiles [begin, end), in order. */
static void run_inner(const tg_vm_kernel *k, tg_vm_frame *f, const tg_vm_segment *segment, int64_t extent, int64_t begin, int64_t end) {
    const tg_vm_loops *loops = &k->loops;
    if (segment->code_count == 0) return;
    f->first = true;
    for (int64_t unit = begin; unit < end; ++unit, f->first = false) {
        if (k->mode == TG_VM_COLUMNS) {
            f->row0 = f->inner_base = unit * k->tile_rows;
            run_set_shape(f, k, run_smaller(k->tile_rows, loops->rows - f->row0), extent);
        } else {
            const int64_t pieces = (loops->cols + k->tile_cols - 1) / k->tile_cols, outside = unit / pieces;
            f->col0 = unit % pieces * k->tile_cols;
            f->inner_base = outside * loops->cols + f->col0;
            if (loops->outside_count > 0) run_split_index(outside, loops->outside_extent, loops->outside_count, f->outside);
            run_set_shape(f, k, extent, run_smaller(k->tile_cols, loops->cols - f->col0));
        }
        run_segment(k, f, segment);
    }
}
static void run_whole_tile(const tg_vm_kernel *k, tg_vm_frame *f, int64_t extent) {
    f->inner_base = 0;
    if (k->mode == TG_VM_ROWS) f->col0 = 0, run_set_shape(f, k, extent, k->loops.cols);
    else f->row0 = 0, run_set_shape(f, k, k->loops.rows, extent);
    run_segment(k, f, &k->body);
}
static void run_reduce_part(void *user, int part, int worker) {
    const run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    tg_vm_frame *f = run_frame(job, worker);
    run_setup(k, f);
    const int64_t end = run_range(k->tiles, part + 1, k->parts), units = run_inner_units(k);
    for (int64_t tile = run_range(k->tiles, part, k->parts); tile < end; ++tile) {
        const int64_t extent = run_outer_tile(k, f, tile);
        if (k->passes == 0) {
            run_whole_tile(k, f, extent);
            continue;
        }
        for (int32_t pass = 0; pass < k->passes; ++pass) {
            run_outer_segment(k, f, &k->outer[pass], extent);
            run_inner(k, f, &k->pass[pass], extent, 0, units);
        }
        run_outer_segment(k, f, &k->outer[k->passes], extent);
        run_inner(k, f, &k->body, extent, 0, units);
        run_outer_segment(k, f, &k->last, extent);
    }
}

/* A part of one pass of a split reduction. Values kept across passes come from the last block of
 * `partials`; accumulators go to the part's own. */
static void run_split_part(void *user, int part, int worker) {
    const run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    tg_vm_frame *f = run_frame(job, worker);
    const size_t kept = (size_t)(k->kept_end - k->kept_begin);
    char *own = f->registers + k->kept_begin;
    const int64_t extent = run_outer_tile(k, f, job->tile), units = run_inner_units(k);
    const tg_vm_segment *segment = job->pass < k->passes ? &k->pass[job->pass] : &k->body;
    memcpy(own, k->partials + (size_t)k->split_parts * kept, kept);
    run_inner(k, f, segment, extent, run_range(units, part, k->split_parts), run_range(units, part + 1, k->split_parts));
    if (job->pass < k->passes) memcpy(k->partials + (size_t)part * kept, own, kept);
}
/* Accumulators of parts 1, 2, .. into those of part 0, in order. */
static void run_merge(const tg_vm_kernel *k, tg_vm_frame *f, const tg_vm_segment *segment, int64_t extent) {
    const size_t kept = (size_t)(k->kept_end - k->kept_begin);
    if (k->mode == TG_VM_ROWS) run_set_shape(f, k, extent, 1);
    else run_set_shape(f, k, 1, extent);
    memcpy(f->registers + k->kept_begin, k->partials, kept);
    for (int32_t part = 1; part < k->split_parts; ++part) {
        for (int32_t s = 0; s < k->merge_slot_count; ++s)
            f->ptr[k->merge_slots[s]] = k->partials + (size_t)part * kept + k->merge_offsets[s];
        run_code(segment, f);
    }
}
static void run_split(run_job *job, tg_pool *pool) {
    const tg_vm_kernel *k = job->kernel;
    const size_t kept = (size_t)(k->kept_end - k->kept_begin);
    char *shared = k->partials + (size_t)k->split_parts * kept;
    for (job->tile = 0; job->tile < k->tiles; ++job->tile) {
        for (job->pass = 0; job->pass <= k->passes; ++job->pass) {
            tg_vm_frame *f = run_frame(job, 0);
            const int64_t extent = run_outer_tile(k, f, job->tile);
            if (job->pass > 0) run_merge(k, f, &k->merge[job->pass - 1], extent);
            run_outer_segment(k, f, &k->outer[job->pass], extent);
            memcpy(shared, f->registers + k->kept_begin, kept);
            if (job->pass < k->passes || k->body.code_count > 0) tg_pool_run(pool, run_split_part, job, k->split_parts);
        }
        tg_vm_frame *f = run_frame(job, 0);
        const int64_t extent = run_outer_tile(k, f, job->tile);
        memcpy(f->registers + k->kept_begin, shared, kept);
        run_outer_segment(k, f, &k->last, extent);
    }
}

/* ---- scatters: a part owns columns and adds rows in order */

static void run_clear(const tg_vm_kernel *k, const run_job *job, int64_t col0, int64_t cols) {
    for (int32_t i = 0; i < k->source->body_count; ++i) {
        const tg_instruction *scatter = &k->source->body[i];
        if (scatter->op != TG_K_SCATTER) continue;
        const int64_t step = k->loops.col_lead >= 0 ? scatter->at.stride[k->loops.col_lead] : 1;
        float *at = (float *)job->argument[scatter->argument] + scatter->at.offset;
        for (int64_t row = 0; row < scatter->rows; ++row, at += scatter->row_stride) {
            if (step == 1) memset(at + col0, 0, (size_t)cols * sizeof(float));
            else
                for (int64_t c = col0; c < col0 + cols; ++c) at[c * step] = 0;
        }
    }
}
static void run_scatter_part(void *user, int part, int worker) {
    const run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    tg_vm_frame *f = run_frame(job, worker);
    for (int64_t tile = run_range(k->tiles, part, k->parts); tile < run_range(k->tiles, part + 1, k->parts); ++tile) {
        f->col0 = tile * k->tile_cols;
        const int64_t cols = run_smaller(k->tile_cols, k->loops.cols - f->col0);
        run_clear(k, job, f->col0, cols);
        for (f->row0 = 0; f->row0 < k->loops.rows; f->row0 += k->tile_rows) {
            run_set_shape(f, k, run_smaller(k->tile_rows, k->loops.rows - f->row0), cols);
            run_segment(k, f, &k->body);
        }
    }
}

/* ---- contractions: the epilogue runs on each finished block, [rows x cols] at (m0, n0), tile by
 * tile */

/* Columns are one m loop, n has one point: the block's column is copied so that lanes are
 * adjacent. */
static void run_epilogue_tile(const tg_vm_kernel *k, tg_vm_frame *f, float *acc, int64_t ld, int64_t rows, int64_t cols) {
    run_set_shape(f, k, rows, cols);
    if (k->loops.turned) {
        float *lanes = (float *)(void *)(f->registers + k->register_bytes) - k->tile_cols;
        if (ld != 1) {
            for (int64_t j = 0; j < cols; ++j) lanes[j] = acc[j * ld];
            acc = lanes;
        }
    }
    f->ptr[k->acc_slot] = acc;
    f->row[k->acc_slot] = ld;
    run_segment(k, f, &k->body);
}
/* Block columns [along0, along0 + along) are flat over (outside n loops, columns): one run of
 * columns at a time. */
static void run_block(void *user, int worker, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols, float *acc, int64_t ld) {
    const run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    const tg_vm_loops *loops = &k->loops;
    tg_vm_frame *f = (tg_vm_frame *)(void *)job->scratch[worker];
    run_split_index(batch, loops->outside_extent, loops->batch_outside, f->outside);
    const int64_t down0 = loops->turned ? 0 : m0, down = loops->turned ? 1 : rows, col_step = loops->turned ? ld : 1;
    const int64_t along0 = loops->turned ? m0 : n0, along = loops->turned ? rows : cols;
    for (int64_t j = 0; j < along;) {
        const int64_t flat = along0 + j, position = flat < loops->cols ? flat : flat % loops->cols;
        const int64_t run = run_smaller(run_smaller(loops->cols - position, along - j), k->tile_cols);
        if (loops->outside_count > loops->batch_outside)
            run_split_index(flat / loops->cols, loops->outside_extent + loops->batch_outside, loops->outside_count - loops->batch_outside,
                            f->outside + loops->batch_outside);
        f->col0 = position;
        for (int64_t i = 0; i < down; i += k->tile_rows) {
            f->row0 = down0 + i;
            run_epilogue_tile(k, f, acc + i * ld + j * col_step, ld, run_smaller(k->tile_rows, down - i), run);
        }
        j += run;
    }
}
/* NULL: there is an epilogue. */
static float *run_direct(const run_job *job) {
    const tg_vm_kernel *k = job->kernel;
    return k->acc_slot < 0 ? (float *)job->argument[k->direct_argument] + k->direct_offset : NULL;
}
static void run_contract_part(void *user, int part, int worker) {
    run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    const tg_kernel *source = k->source;
    tg_vm_frame *f = run_frame(job, worker);
    const float *a = job->argument[source->a.argument], *b = job->argument[source->b.argument];
    tg_contraction_run(k->contraction, part, worker, a, b, run_direct(job), k->direct_batch, k->direct_row, run_block, job,
                       f->registers + k->register_bytes);
}
static void run_finish_part(void *user, int part, int worker) {
    run_job *job = user;
    const tg_vm_kernel *k = job->kernel;
    tg_vm_frame *f = run_frame(job, worker);
    tg_contraction_finish(k->contraction, part, worker, run_direct(job), k->direct_batch, k->direct_row, run_block, job,
                          f->registers + k->register_bytes);
}

/* ---- attention */

static void run_attention_part(void *user, int part, int worker) {
    const run_job *job = user;
    tg_cpu_attention_run(job->kernel->attention, part, job->argument, job->scratch[worker]);
}

/* ---- the whole */

static void run_parts(tg_pool *pool, tg_part_fn fn, run_job *job, int parts, bool alone) {
    if (!alone) tg_pool_run(pool, fn, job, parts);
    else
        for (int part = 0; part < parts; ++part) fn(job, part, 0);
}
void tg_vm_run(tg_vm_kernel *kernel, void *const *argument, tg_pool *pool, char *const *scratch) {
    run_job job = {.kernel = kernel, .argument = argument, .scratch = scratch};
    if (kernel->attention != NULL) {
        run_parts(pool, run_attention_part, &job, tg_cpu_attention_parts(kernel->attention), kernel->parts == 1);
        return;
    }
    run_prologue(&job);
    switch (kernel->mode) {
    case TG_VM_MAP: run_parts(pool, run_map_part, &job, kernel->parts, kernel->parts == 1); break;
    case TG_VM_SCATTERING: run_parts(pool, run_scatter_part, &job, kernel->parts, kernel->parts == 1); break;
    case TG_VM_EPILOGUE:
        for (int worker = 0; worker < tg_pool_threads(pool); ++worker)
            tg_contraction_begin(scratch[worker] + kernel->frame_bytes + kernel->register_bytes);
        run_parts(pool, run_contract_part, &job, tg_contraction_parts(kernel->contraction), kernel->parts == 1);
        if (tg_contraction_finishes(kernel->contraction))
            run_parts(pool, run_finish_part, &job, tg_contraction_parts(kernel->contraction), kernel->parts == 1);
        break;
    case TG_VM_ROWS:
    case TG_VM_COLUMNS:
        if (kernel->split_parts > 0) run_split(&job, pool);
        else run_parts(pool, run_reduce_part, &job, kernel->parts, kernel->parts == 1);
        break;
    }
}
