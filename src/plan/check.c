/* check: reads a program as an adversary. Shares no code with the planner: it replays the kernels
 * over an ownership map of the workspace (which buffer began to be written there last) and
 * enumerates index ranges by itself, also for launches. */
#include "plan/program.h"

#include <stdlib.h>
#include <string.h>

#define CHECK_BLOCK 256 /* bytes: offsets are multiples of it */
#define CHECK_MAX_POINTS 200000

typedef struct program_check {
    const tg_program *program;
    tg_context *ctx;
    /* bytes of the workspace where a buffer begins or ends, ascending: from each to the next is a
     * segment, and a buffer is whole segments */
    int64_t *cuts;
    int32_t cut_count;
    int32_t *owner;  /* by segment: buffer + 1 that took it last; 0: nobody */
    int32_t *writer; /* by segment: buffer + 1 that the chain looked at writes; 0: none */
    uint8_t *held;   /* by buffer */
    uint8_t *used;   /* by buffer: how the chain looked at uses it */
} program_check;

/* A buffer takes its blocks when it is written for the first time, and is lost when another takes
 * one of them. */
enum { CHECK_NOT_WRITTEN, CHECK_HELD, CHECK_LOST };

static tg_status check_fail(const program_check *c, int32_t kernel, const char *what) {
    const char *name = kernel >= 0 && kernel < c->program->kernel_count ? c->program->kernels[kernel].name : "the end";
    return tg_fail(c->ctx, TG_ERROR_INTERNAL, TG_SITE_NONE, "program check: kernel %d (%s): %s", (int)kernel, name, what);
}

static int64_t check_bytes(const program_check *c, const tg_buffer *b) { return b->count * tg_program_element_bytes(c->program, b->dtype); }

static int compare_cuts(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void find_cuts(program_check *c) {
    int32_t count = 0, kept = 0;
    for (int32_t i = 0; i < c->program->buffer_count; i++) {
        const tg_buffer *b = &c->program->buffers[i];
        if (b->storage != TG_STORAGE_WORKSPACE) continue;
        c->cuts[count++] = b->offset;
        c->cuts[count++] = b->offset + check_bytes(c, b);
    }
    qsort(c->cuts, (size_t)count, sizeof *c->cuts, compare_cuts);
    for (int32_t i = 0; i < count; i++)
        if (i == 0 || c->cuts[i] != c->cuts[i - 1]) c->cuts[kept++] = c->cuts[i];
    c->cut_count = kept;
}

static int32_t first_segment(const program_check *c, const tg_buffer *b) {
    int32_t low = 0, high = c->cut_count;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (c->cuts[middle] < b->offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int64_t affine_at(const tg_affine *a, const int64_t *index, int count) {
    int64_t v = a->offset;
    for (int k = 0; k < count; k++) v += a->stride[k] * index[k];
    return v;
}

static bool bounds_hold(const tg_instruction *x, const int64_t *index, int count) {
    for (int32_t i = 0; i < x->bound_count; i++) {
        int64_t v = affine_at(&x->bounds[i].at, index, count);
        if (v < x->bounds[i].lo || v >= x->bounds[i].hi) return false;
    }
    return true;
}

/* The next point while loop 0 stays below `end`; the others count from 0. */
static bool next_point(const tg_kernel *k, int64_t *index, int64_t end) {
    for (int d = k->loop_count - 1; d >= 0; d--) {
        if (++index[d] < (d == 0 ? end : k->extent[d])) return true;
        index[d] = 0;
    }
    return false;
}

static int64_t extent_of_first(const tg_kernel *k) { return k->loop_count > 0 ? k->extent[0] : 1; }

/* Do all bounds that depend on loop d alone hold where loop d is at `index`? */
static bool bounds_allow(const tg_kernel *k, const tg_instruction *x, int d, int64_t index) {
    for (int32_t i = 0; x && i < x->bound_count; i++) {
        const tg_bound *bound = &x->bounds[i];
        bool alone = true;
        for (int other = 0; other < k->loop_count; other++)
            alone = alone && (other == d || bound->at.stride[other] == 0 || k->extent[other] == 1);
        const int64_t v = bound->at.offset + bound->at.stride[d] * index;
        if (alone && (v < bound->lo || v >= bound->hi)) return false;
    }
    return true;
}

/* Lowest and highest element an access touches while loop 0 is in [begin, end), as far as bounds on
 * one loop each tell. */
static void access_reach(const tg_kernel *k, const tg_instruction *x, const tg_affine *at, int64_t begin, int64_t end, int64_t *lo,
                         int64_t *hi) {
    *lo = *hi = at->offset;
    for (int d = 0; d < k->loop_count; d++) {
        int64_t first = d == 0 ? begin : 0, last = (d == 0 ? end : k->extent[d]) - 1;
        while (first <= last && !bounds_allow(k, x, d, first)) first++;
        while (first <= last && !bounds_allow(k, x, d, last)) last--;
        if (first > last) {
            *lo = INT64_MAX;
            *hi = INT64_MIN;
            return;
        }
        *lo += at->stride[d] * (at->stride[d] > 0 ? first : last);
        *hi += at->stride[d] * (at->stride[d] > 0 ? last : first);
    }
}

/* The same, exactly: bounded ones are walked point by point when that is affordable. False: it may
 * touch nothing (then *lo > *hi), or less than that. */
static bool access_range_in(const tg_kernel *k, const tg_instruction *x, const tg_affine *at, int64_t begin, int64_t end, int64_t *lo,
                            int64_t *hi) {
    int64_t points = 1;
    access_reach(k, x, at, begin, end, lo, hi);
    if (!x || x->bound_count == 0) return true;
    for (int d = 0; d < k->loop_count; d++) points = points > CHECK_MAX_POINTS ? points : points * k->extent[d];
    if (points > CHECK_MAX_POINTS || *lo > *hi) return false;
    int64_t index[TG_MAX_LOOP] = {begin};
    *lo = INT64_MAX;
    *hi = INT64_MIN;
    do {
        if (!bounds_hold(x, index, k->loop_count)) continue;
        int64_t v = affine_at(at, index, k->loop_count);
        if (v < *lo) *lo = v;
        if (v > *hi) *hi = v;
    } while (next_point(k, index, end));
    return *lo <= *hi;
}

static bool access_range(const tg_kernel *k, const tg_instruction *x, const tg_affine *at, int64_t *lo, int64_t *hi) {
    return access_range_in(k, x, at, 0, extent_of_first(k), lo, hi);
}

static tg_status check_access(const program_check *c, int32_t kernel, const tg_instruction *x, int32_t argument, const tg_affine *at,
                              int64_t extra) {
    const tg_kernel *k = &c->program->kernels[kernel];
    if (argument < 0 || argument >= k->argument_count) return check_fail(c, kernel, "argument out of range");
    int64_t lo, hi;
    if (!access_range(k, x, at, &lo, &hi)) return TG_OK;
    if (lo < 0 || hi + extra >= c->program->buffers[k->arguments[argument].buffer].count)
        return check_fail(c, kernel, "access outside its buffer");
    return TG_OK;
}

static tg_status check_instruction(const program_check *c, int32_t kernel, int32_t i) {
    const tg_kernel *k = &c->program->kernels[kernel];
    const tg_instruction *x = &k->body[i];
    for (int s = 0; s < 3; s++) {
        if (x->src[s] < 0) continue;
        if (x->src[s] >= i) return check_fail(c, kernel, "an instruction uses a later one");
        if (x->op != TG_K_STORE && x->level < k->body[x->src[s]].level &&
            !(x->op < TG_OP_COUNT && tg_op_table[x->op].class_ == TG_CLASS_REDUCE))
            return check_fail(c, kernel, "an instruction's level is below its operand's");
    }
    if (x->op != TG_K_LOAD && x->op != TG_K_GATHER && x->op != TG_K_STORE && x->op != TG_K_SCATTER) return TG_OK;
    if (x->argument >= 0 && x->argument < k->argument_count) {
        if (tg_dtype_row(c->program->buffers[k->arguments[x->argument].buffer].dtype)->compute != x->dtype)
            return check_fail(c, kernel, "dtype differs from the buffer's");
        bool writes = x->op == TG_K_STORE || x->op == TG_K_SCATTER;
        if (!(k->arguments[x->argument].access & (writes ? TG_ACCESS_WRITE : TG_ACCESS_READ)))
            return check_fail(c, kernel, "access not declared");
    }
    int64_t extra = x->op == TG_K_GATHER || x->op == TG_K_SCATTER ? (x->rows - 1) * x->row_stride : 0;
    return check_access(c, kernel, x, x->argument, &x->at, extra);
}

/* A store over a buffer that the kernel also reads must be at the element that was read. */
static tg_status check_overwrites(const program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    for (int32_t i = 0; i < k->body_count; i++) {
        const tg_instruction *s = &k->body[i];
        if (s->op != TG_K_STORE || c->program->buffers[k->arguments[s->argument].buffer].storage == TG_STORAGE_STATE) continue;
        if (k->kind == TG_KERNEL_CONTRACT && (k->a.argument == s->argument || k->b.argument == s->argument))
            return check_fail(c, kernel, "a contraction overwrites its operand");
        for (int32_t j = 0; j < k->body_count; j++) {
            const tg_instruction *l = &k->body[j];
            if ((l->op != TG_K_LOAD && l->op != TG_K_GATHER) || l->argument != s->argument) continue;
            if (l->op == TG_K_GATHER || memcmp(&l->at, &s->at, sizeof l->at) != 0 || j > i)
                return check_fail(c, kernel, "a buffer is overwritten out of step with its reads");
        }
    }
    return TG_OK;
}

static tg_status check_reads(program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    for (int32_t i = 0; i < k->argument_count; i++) {
        const tg_buffer *b = &c->program->buffers[k->arguments[i].buffer];
        if (b->storage != TG_STORAGE_WORKSPACE || !(k->arguments[i].access & TG_ACCESS_READ)) continue;
        if (c->held[k->arguments[i].buffer] != CHECK_HELD)
            return check_fail(c, kernel, "reads a buffer that is not there any more, or not yet");
    }
    return TG_OK;
}

static void own_writes(program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    for (int32_t i = 0; i < k->argument_count; i++) {
        const tg_buffer *b = &c->program->buffers[k->arguments[i].buffer];
        const int32_t buffer = k->arguments[i].buffer;
        if (b->storage != TG_STORAGE_WORKSPACE || !(k->arguments[i].access & TG_ACCESS_WRITE)) continue;
        if (c->held[buffer] != CHECK_NOT_WRITTEN) continue;
        c->held[buffer] = CHECK_HELD;
        for (int32_t s = first_segment(c, b); s < c->cut_count && c->cuts[s] < b->offset + check_bytes(c, b); s++) {
            if (c->owner[s] != 0) c->held[c->owner[s] - 1] = CHECK_LOST;
            c->owner[s] = buffer + 1;
        }
    }
}

/* Two arguments of one kernel must not share memory: each buffer is named once. */
static tg_status check_aliases(const program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    for (int32_t i = 0; i < k->argument_count; i++)
        for (int32_t j = 0; j < i; j++) {
            const tg_buffer *x = &c->program->buffers[k->arguments[i].buffer], *y = &c->program->buffers[k->arguments[j].buffer];
            bool writes = ((k->arguments[i].access | k->arguments[j].access) & TG_ACCESS_WRITE) != 0;
            if (k->arguments[i].buffer == k->arguments[j].buffer) return check_fail(c, kernel, "names a buffer twice");
            if (!writes || x->storage != y->storage) continue;
            if (x->storage == TG_STORAGE_STATE && x->slot == y->slot) return check_fail(c, kernel, "names a state twice");
            if (x->storage == TG_STORAGE_WORKSPACE && x->offset < y->offset + check_bytes(c, y) &&
                y->offset < x->offset + check_bytes(c, x))
                return check_fail(c, kernel, "writes over another of its arguments");
        }
    return TG_OK;
}

static tg_status check_kernel(program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    tg_status status = TG_OK;
    if (k->loop_count > TG_MAX_LOOP || k->outer_count > k->loop_count || k->m_begin > k->n_begin || k->n_begin > k->outer_count)
        return check_fail(c, kernel, "loop groups out of order");
    for (int32_t i = 0; i < k->argument_count && status == TG_OK; i++) {
        const tg_argument *a = &k->arguments[i];
        if (a->buffer < 0 || a->buffer >= c->program->buffer_count) return check_fail(c, kernel, "buffer out of range");
        const tg_buffer *b = &c->program->buffers[a->buffer];
        if (b->storage == TG_STORAGE_WORKSPACE && (b->offset < 0 || b->offset + check_bytes(c, b) > c->program->workspace_bytes))
            return check_fail(c, kernel, "buffer outside the workspace");
        if ((b->storage == TG_STORAGE_INPUT || b->storage == TG_STORAGE_CONSTANT) && (a->access & TG_ACCESS_WRITE))
            return check_fail(c, kernel, "writes to an input");
    }
    for (int32_t i = 0; i < k->body_count && status == TG_OK; i++) status = check_instruction(c, kernel, i);
    if (k->kind == TG_KERNEL_CONTRACT && status == TG_OK) status = check_access(c, kernel, NULL, k->a.argument, &k->a.at, 0);
    if (k->kind == TG_KERNEL_CONTRACT && status == TG_OK) status = check_access(c, kernel, NULL, k->b.argument, &k->b.at, 0);
    if (status == TG_OK) status = check_aliases(c, kernel);
    if (status == TG_OK) status = check_overwrites(c, kernel);
    if (status == TG_OK) status = check_reads(c, kernel);
    if (status == TG_OK) own_writes(c, kernel);
    return status;
}

static tg_status check_outputs(const program_check *c) {
    for (int32_t i = 0; i < c->program->output_count; i++) {
        const tg_output *out = &c->program->outputs[i];
        if (out->buffer < 0 || out->buffer >= c->program->buffer_count) return check_fail(c, -1, "output without a buffer");
        const tg_buffer *b = &c->program->buffers[out->buffer];
        if (b->storage == TG_STORAGE_INPUT || b->storage == TG_STORAGE_CONSTANT)
            return check_fail(c, -1, "an output that no kernel writes");
        if (b->storage != TG_STORAGE_WORKSPACE) continue;
        if (c->held[out->buffer] != CHECK_HELD) return check_fail(c, -1, "an output was overwritten");
    }
    return TG_OK;
}

/* ---- launches */

/* One way in which a kernel touches an argument. */
typedef struct kernel_access {
    const tg_instruction *x; /* NULL: an operand of the contraction */
    const tg_affine *at;
} kernel_access;

/* Access number i of a kernel's, whatever the argument: body first, then operands. at NULL: not an
 * access. */
static kernel_access access_number(const tg_kernel *k, int32_t i, int32_t *argument) {
    if (i >= k->body_count) {
        const tg_operand_access *operand = i == k->body_count ? &k->a : &k->b;
        *argument = operand->argument;
        return (kernel_access){NULL, &operand->at};
    }
    const tg_instruction *x = &k->body[i];
    const bool memory = x->op == TG_K_LOAD || x->op == TG_K_GATHER || x->op == TG_K_STORE || x->op == TG_K_SCATTER;
    *argument = x->argument;
    return (kernel_access){x, memory ? &x->at : NULL};
}

static int32_t access_count(const tg_kernel *k) { return k->body_count + (k->kind == TG_KERNEL_CONTRACT ? 2 : 0); }

static bool access_writes(kernel_access access) { return access.x && (access.x->op == TG_K_STORE || access.x->op == TG_K_SCATTER); }

/* Elements that an access may touch while loop 0 is in [begin, end): from *lo to *hi. False:
 * none. */
static bool touched_elements(const tg_kernel *k, kernel_access access, int64_t begin, int64_t end, int64_t *lo, int64_t *hi) {
    const tg_instruction *x = access.x;
    if (!access_range_in(k, x, access.at, begin, end, lo, hi) && *lo > *hi) return false;
    if (x && (x->op == TG_K_GATHER || x->op == TG_K_SCATTER)) {
        const int64_t rows = (x->rows - 1) * x->row_stride;
        if (rows < 0) *lo += rows;
        else *hi += rows;
    }
    return true;
}

static bool share_bytes(const program_check *c, const tg_buffer *a, const tg_buffer *b) {
    return a->storage == TG_STORAGE_WORKSPACE && b->storage == TG_STORAGE_WORKSPACE && a->offset < b->offset + check_bytes(c, b) &&
           b->offset < a->offset + check_bytes(c, a);
}

/* Marks the elements of a buffer that a store writes, or says whether one of them is marked. */
static bool mark_elements(const tg_kernel *k, const tg_affine *at, uint8_t *marks, bool ask) {
    int64_t index[TG_MAX_LOOP] = {0};
    tg_kernel moving = *k; /* only the loops that move the store */
    for (int d = 0; d < k->loop_count; d++)
        if (at->stride[d] == 0) moving.extent[d] = 1;
    do {
        uint8_t *mark = &marks[affine_at(at, index, k->loop_count)];
        if (ask && *mark) return true;
        if (!ask) *mark = 1;
    } while (next_point(&moving, index, extent_of_first(&moving)));
    return false;
}

/* Do two kernels touch an element in common, of one buffer that both only write? Element by
 * element: they may write every other row. Where there are too many, the answer is no. */
static bool write_same(const program_check *c, const tg_kernel *x, int32_t i, const tg_kernel *y, int32_t j) {
    const int64_t count = c->program->buffers[x->arguments[i].buffer].count;
    uint8_t *marks = count > CHECK_MAX_POINTS ? NULL : tg_alloc(c->ctx, (size_t)count);
    bool same = false;
    if (!marks) return false;
    for (int side = 0; side < 2; side++) {
        const tg_kernel *k = side == 0 ? x : y;
        for (int32_t n = 0; n < access_count(k) && !same; n++) {
            int32_t argument;
            const kernel_access access = access_number(k, n, &argument);
            if (access.at && argument == (side == 0 ? i : j)) same = mark_elements(k, access.at, marks, side == 1);
        }
    }
    tg_release(c->ctx, marks, (size_t)count);
    return same;
}

/* Ranges are compared, not whole states: kernels side by side may write parts of one state. */
static bool share_elements(const program_check *c, const tg_kernel *x, int32_t i, const tg_kernel *y, int32_t j) {
    const tg_buffer *a = &c->program->buffers[x->arguments[i].buffer], *b = &c->program->buffers[y->arguments[j].buffer];
    if (a->storage != TG_STORAGE_STATE || b->storage != TG_STORAGE_STATE || a->slot != b->slot) return false;
    const int64_t from = a->offset / tg_program_element_bytes(c->program, a->dtype) -
                         /* of a's element 0, counted in b */
                         b->offset / tg_program_element_bytes(c->program, b->dtype);
    for (int32_t n = 0; n < access_count(x); n++) {
        int32_t argument;
        int64_t a_lo, a_hi, b_lo, b_hi;
        const kernel_access one = access_number(x, n, &argument);
        if (!one.at || argument != i || !touched_elements(x, one, 0, extent_of_first(x), &a_lo, &a_hi)) continue;
        for (int32_t m = 0; m < access_count(y); m++) {
            const kernel_access other = access_number(y, m, &argument);
            if (!other.at || argument != j || (!access_writes(one) && !access_writes(other))) continue;
            if (!touched_elements(y, other, 0, extent_of_first(y), &b_lo, &b_hi)) continue;
            if (a_lo + from <= b_hi && b_lo <= a_hi + from) return true;
        }
    }
    return false;
}

/* Of two kernels that run at once, neither may write what the other touches. */
static tg_status check_beside(const program_check *c, int32_t one, int32_t other) {
    const tg_kernel *x = &c->program->kernels[one], *y = &c->program->kernels[other];
    for (int32_t i = 0; i < x->argument_count; i++)
        for (int32_t j = 0; j < y->argument_count; j++) {
            const unsigned access = x->arguments[i].access | y->arguments[j].access;
            if (!(access & TG_ACCESS_WRITE)) continue;
            if (x->arguments[i].buffer == y->arguments[j].buffer && access == (unsigned)TG_ACCESS_WRITE &&
                c->program->buffers[x->arguments[i].buffer].storage == TG_STORAGE_WORKSPACE) {
                if (write_same(c, x, i, y, j)) return check_fail(c, other, "writes what a kernel beside it does");
            } else if (share_bytes(c, &c->program->buffers[x->arguments[i].buffer], &c->program->buffers[y->arguments[j].buffer]) ||
                       share_elements(c, x, i, y, j))
                return check_fail(c, other, "writes or reads what a kernel beside it does");
        }
    return TG_OK;
}

static bool stays_in_slices(const tg_kernel *k, kernel_access access, int64_t count, int32_t slices) {
    const int64_t block = extent_of_first(k) / slices, slice = count / slices;
    for (int64_t s = 0; s < slices; s++) {
        int64_t lo, hi;
        if (touched_elements(k, access, s * block, (s + 1) * block, &lo, &hi) && (lo < s * slice || hi >= (s + 1) * slice)) return false;
    }
    return true;
}

/* How a chain uses each buffer. */
enum { CHAIN_READS = 1, CHAIN_WRITES = 2, CHAIN_BY_SLICES = 4 };

typedef tg_status (*chain_visit)(program_check *c, const tg_launch *l, int32_t kernel, int32_t argument);

/* Calls `visit` for each argument of each kernel of the chain. */
static tg_status visit_chain(program_check *c, const tg_launch *l, chain_visit visit) {
    tg_status status = TG_OK;
    for (int32_t n = l->first; n < l->first + l->count; n++)
        for (int32_t i = 0; i < c->program->kernels[n].argument_count && status == TG_OK; i++) status = visit(c, l, n, i);
    return status;
}

static void mark_writer(program_check *c, const tg_buffer *b, int32_t writer) {
    for (int32_t s = first_segment(c, b); s < c->cut_count && c->cuts[s] < b->offset + check_bytes(c, b); s++) c->writer[s] = writer;
}

static tg_status chain_notes_use(program_check *c, const tg_launch *l, int32_t kernel, int32_t argument) {
    const tg_argument *a = &c->program->kernels[kernel].arguments[argument];
    const tg_buffer *b = &c->program->buffers[a->buffer];
    c->used[a->buffer] |= CHAIN_READS;
    if (!(a->access & TG_ACCESS_WRITE) || (c->used[a->buffer] & CHAIN_WRITES)) return TG_OK;
    if (b->storage != TG_STORAGE_WORKSPACE) return check_fail(c, l->first, "a chain writes to a state");
    c->used[a->buffer] |= CHAIN_WRITES | CHAIN_BY_SLICES;
    mark_writer(c, b, a->buffer + 1);
    return TG_OK;
}

/* What shares memory with a buffer that the chain writes must have its place and size. */
static tg_status chain_compares_places(program_check *c, const tg_launch *l, int32_t kernel, int32_t argument) {
    const int32_t buffer = c->program->kernels[kernel].arguments[argument].buffer;
    const tg_buffer *b = &c->program->buffers[buffer];
    if (b->storage != TG_STORAGE_WORKSPACE) return TG_OK;
    for (int32_t s = first_segment(c, b); s < c->cut_count && c->cuts[s] < b->offset + check_bytes(c, b); s++) {
        if (c->writer[s] == 0 || c->writer[s] == buffer + 1) continue;
        const tg_buffer *o = &c->program->buffers[c->writer[s] - 1];
        if (b->offset != o->offset || b->count != o->count || check_bytes(c, b) != check_bytes(c, o))
            return check_fail(c, l->first, "memory changes hands in a chain, and its slices with it");
        c->used[buffer] |= CHAIN_BY_SLICES;
    }
    return TG_OK;
}

static tg_status chain_stays_in_slices(program_check *c, const tg_launch *l, int32_t kernel, int32_t argument) {
    const tg_kernel *k = &c->program->kernels[kernel];
    const int32_t buffer = k->arguments[argument].buffer;
    const int64_t count = c->program->buffers[buffer].count;
    if (!(c->used[buffer] & CHAIN_BY_SLICES)) return TG_OK;
    if (count % l->slices != 0) return check_fail(c, l->first, "a buffer does not divide into the slices of its chain");
    for (int32_t i = 0; i < access_count(k); i++) {
        int32_t of;
        const kernel_access access = access_number(k, i, &of);
        if (access.at && of == argument && !stays_in_slices(k, access, count, l->slices))
            return check_fail(c, kernel, "leaves the slice of its chain");
    }
    return TG_OK;
}

static tg_status chain_forgets_use(program_check *c, const tg_launch *l, int32_t kernel, int32_t argument) {
    const int32_t buffer = c->program->kernels[kernel].arguments[argument].buffer;
    (void)l;
    if (c->used[buffer] & CHAIN_WRITES) mark_writer(c, &c->program->buffers[buffer], 0);
    c->used[buffer] = 0;
    return TG_OK;
}

static tg_status check_chain(program_check *c, const tg_launch *l) {
    static const chain_visit visits[] = {chain_notes_use, chain_compares_places, chain_stays_in_slices, chain_forgets_use};
    tg_status status = TG_OK;
    for (int32_t n = l->first; n < l->first + l->count && status == TG_OK; n++) {
        const tg_kernel *k = &c->program->kernels[n];
        if (k->kind == TG_KERNEL_SCATTER_ADD || k->kind == TG_KERNEL_ATTENTION || k->outer_count < 1 || k->extent[0] % l->slices != 0)
            status = check_fail(c, n, "cannot be cut into the slices of its chain");
    }
    for (size_t i = 0; i < sizeof visits / sizeof visits[0] && status == TG_OK; i++) status = visit_chain(c, l, visits[i]);
    return status;
}

static tg_status check_coverage(const program_check *c) {
    int32_t next = 0;
    for (int32_t i = 0; i < c->program->launch_count; i++) {
        const tg_launch *l = &c->program->launches[i];
        if (l->first != next || l->count < 1 || l->count > c->program->kernel_count - next || l->slices < 0)
            return check_fail(c, next, "is in no launch, or in two");
        next += l->count;
    }
    return next == c->program->kernel_count ? TG_OK : check_fail(c, next, "is in no launch");
}

static tg_status check_launches(program_check *c) {
    tg_status status = check_coverage(c);
    for (int32_t i = 0; i < c->program->launch_count && status == TG_OK; i++) {
        const tg_launch *l = &c->program->launches[i];
        if (l->slices > 0) status = check_chain(c, l);
        for (int32_t x = l->first; x < l->first + l->count && l->slices == 0; x++)
            for (int32_t y = l->first; y < x && status == TG_OK; y++) status = check_beside(c, y, x);
    }
    return status;
}

/* Inputs and constants have a place of their own in their block; an input may have several
 * buffers. */
static tg_status check_blocks(const program_check *c) {
    for (int32_t i = 0; i < c->program->buffer_count; i++) {
        const tg_buffer *b = &c->program->buffers[i];
        if (b->storage != TG_STORAGE_INPUT && b->storage != TG_STORAGE_CONSTANT) continue;
        const bool input = b->storage == TG_STORAGE_INPUT;
        const int64_t end = input ? c->program->input_block_bytes : c->program->constant_block_bytes;
        if (b->offset < 0 || b->offset % CHECK_BLOCK != 0 || b->offset + check_bytes(c, b) > end)
            return check_fail(c, -1, "an input or a constant is outside its block");
        for (int32_t j = 0; j < i; j++) {
            const tg_buffer *o = &c->program->buffers[j];
            if (o->storage != b->storage || (input && o->slot == b->slot && o->offset == b->offset)) continue;
            if (b->offset < o->offset + check_bytes(c, o) && o->offset < b->offset + check_bytes(c, b))
                return check_fail(c, -1, "inputs or constants overlap");
        }
    }
    return TG_OK;
}

tg_status tg_program_check(const tg_program *program, tg_context *ctx) {
    program_check c = {.program = program, .ctx = ctx};
    const size_t cuts = 2 * (size_t)program->buffer_count + 1;
    const size_t bytes = (sizeof(int64_t) + 2 * sizeof(int32_t)) * cuts + 2 * (size_t)program->buffer_count;
    c.cuts = tg_alloc(ctx, bytes);
    if (!c.cuts) return ctx->status;
    c.owner = (int32_t *)(void *)(c.cuts + cuts);
    c.writer = c.owner + cuts;
    c.held = (uint8_t *)(c.writer + cuts);
    c.used = c.held + program->buffer_count;
    find_cuts(&c);
    tg_status status = TG_OK;
    for (int32_t k = 0; k < program->kernel_count && status == TG_OK; k++) status = check_kernel(&c, k);
    if (status == TG_OK) status = check_outputs(&c);
    if (status == TG_OK) status = check_launches(&c);
    if (status == TG_OK) status = check_blocks(&c);
    tg_release(ctx, c.cuts, bytes);
    return status;
}
