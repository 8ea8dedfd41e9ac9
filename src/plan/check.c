/* check: reads a program as an adversary. Shares no code with the planner: it replays the kernels over an ownership map of the
 * workspace (who wrote each block last) and enumerates index ranges by itself. */
#include "plan/program.h"

#include <string.h>

#define CHECK_BLOCK 256
#define CHECK_MAX_POINTS 200000

typedef struct program_check {
    const tg_program *program;
    tg_context *ctx;
    int32_t *owner; /* buffer id + 1 that last wrote each workspace block; 0: nobody */
    int64_t blocks;
} program_check;

static tg_status check_fail(const program_check *c, int32_t kernel, const char *what) {
    const char *name = kernel >= 0 && kernel < c->program->kernel_count ? c->program->kernels[kernel].name : "the end";
    return tg_fail(c->ctx, TG_ERROR_INTERNAL, TG_SITE_NONE, "program check: kernel %d (%s): %s", (int)kernel, name, what);
}

static int64_t check_bytes(const program_check *c, const tg_buffer *b) { return b->count * tg_program_element_bytes(c->program, b->dtype); }

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

static bool next_point(const tg_kernel *k, int64_t *index) {
    for (int d = k->loop_count - 1; d >= 0; d--) {
        if (++index[d] < k->extent[d]) return true;
        index[d] = 0;
    }
    return false;
}

/* Lowest and highest element an access touches. Bounded ones are walked point by point when that is affordable. */
static bool access_range(const tg_kernel *k, const tg_instruction *x, const tg_affine *at, int64_t *lo, int64_t *hi) {
    int64_t points = 1;
    *lo = *hi = at->offset;
    for (int d = 0; d < k->loop_count; d++) {
        int64_t reach = at->stride[d] * (k->extent[d] - 1);
        if (reach < 0) *lo += reach;
        else *hi += reach;
        points = points > CHECK_MAX_POINTS ? points : points * k->extent[d];
    }
    if (!x || x->bound_count == 0) return true;
    if (points > CHECK_MAX_POINTS) return false;
    int64_t index[TG_MAX_LOOP] = {0};
    *lo = INT64_MAX;
    *hi = INT64_MIN;
    do {
        if (!bounds_hold(x, index, k->loop_count)) continue;
        int64_t v = affine_at(at, index, k->loop_count);
        if (v < *lo) *lo = v;
        if (v > *hi) *hi = v;
    } while (next_point(k, index));
    return *lo <= *hi;
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
        if (c->program->buffers[k->arguments[x->argument].buffer].dtype != x->dtype)
            return check_fail(c, kernel, "dtype differs from the buffer's");
        bool writes = x->op == TG_K_STORE || x->op == TG_K_SCATTER;
        if (!(k->arguments[x->argument].access & (writes ? TG_ACCESS_WRITE : TG_ACCESS_READ)))
            return check_fail(c, kernel, "access not declared");
    }
    int64_t extra = x->op == TG_K_GATHER || x->op == TG_K_SCATTER ? (x->rows - 1) * x->row_stride : 0;
    return check_access(c, kernel, x, x->argument, &x->at, extra);
}

/* A store over a buffer that the kernel also reads must be at the very element that was read. */
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
        for (int64_t block = b->offset / CHECK_BLOCK; block * CHECK_BLOCK < b->offset + check_bytes(c, b); block++)
            if (c->owner[block] != k->arguments[i].buffer + 1)
                return check_fail(c, kernel, "reads a buffer that is not there any more, or not yet");
    }
    return TG_OK;
}

static void own_writes(program_check *c, int32_t kernel) {
    const tg_kernel *k = &c->program->kernels[kernel];
    for (int32_t i = 0; i < k->argument_count; i++) {
        const tg_buffer *b = &c->program->buffers[k->arguments[i].buffer];
        if (b->storage != TG_STORAGE_WORKSPACE || !(k->arguments[i].access & TG_ACCESS_WRITE)) continue;
        for (int64_t block = b->offset / CHECK_BLOCK; block * CHECK_BLOCK < b->offset + check_bytes(c, b); block++)
            c->owner[block] = k->arguments[i].buffer + 1;
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
        if (b->storage != TG_STORAGE_WORKSPACE) continue;
        for (int64_t block = b->offset / CHECK_BLOCK; block * CHECK_BLOCK < b->offset + check_bytes(c, b); block++)
            if (c->owner[block] != out->buffer + 1) return check_fail(c, -1, "an output was overwritten");
    }
    return TG_OK;
}

tg_status tg_program_check(const tg_program *program, tg_context *ctx) {
    program_check c = {program, ctx, NULL, program->workspace_bytes / CHECK_BLOCK + 1};
    size_t bytes = sizeof(int32_t) * (size_t)c.blocks;
    c.owner = tg_alloc(ctx, bytes);
    if (!c.owner) return ctx->status;
    tg_status status = TG_OK;
    for (int32_t k = 0; k < program->kernel_count && status == TG_OK; k++) status = check_kernel(&c, k);
    if (status == TG_OK) status = check_outputs(&c);
    tg_release(ctx, c.owner, bytes);
    return status;
}
