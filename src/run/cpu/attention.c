/* attention: see attention.h. A part has a block of queries of one head and walks over blocks of
 * keys, or (ATTENTION_DKV) a block of keys and walks over blocks of queries of the heads that use
 * them. Causal blocks that nothing is seen of are left out. Blocks are copied into panels that the
 * micro-kernels of contractions read. Must not know instruction sets. */
#include "run/cpu/attention.h"
#include "run/cpu/contract_choice.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ATTEND_BLOCK = 64 }; /* queries and keys of a block: a multiple of each panel's width */

struct tg_cpu_attention {
    tg_attention_kernel a;
    const tg_contract_ops *ops;
    const tg_attention_ops *rows;
    int64_t panel;       /* columns of a panel of keys */
    int64_t slice, wide; /* columns of a panel of the width, and of all its panels */
    int64_t blocks;      /* of queries or keys that a head has */
};

/* A worker's copies and sums. */
typedef struct attend_room {
    float *keys, *values;   /* k^T, v^T in panels: [panels][width][panel] */
    float *first, *second;  /* rows in panels: [panels][ATTEND_BLOCK][slice] */
    float *scores, *others; /* [ATTEND_BLOCK][ATTEND_BLOCK] */
    float *sums, *more;     /* [ATTEND_BLOCK][wide] */
    float most[ATTEND_BLOCK], sum[ATTEND_BLOCK];
} attend_room;

/* One part while it runs. */
typedef struct attend_job {
    const tg_cpu_attention *c;
    void *const *argument;
    attend_room *room;
    int64_t batch, kv_head, group;
} attend_job;

static int64_t attend_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t attend_round(int64_t a, int64_t to) { return (a + to - 1) / to * to; }

/* Element (row, column 0) of an operand, in floats or bytes. */
static int64_t attend_at(const attend_job *job, const tg_attention_access *x, int64_t row) {
    return x->offset + x->batch * job->batch + x->kv_head * job->kv_head + x->group * job->group + x->row * row;
}
static float *attend_floats(const attend_job *job, const tg_attention_access *x, int64_t row) {
    return (float *)job->argument[x->argument] + attend_at(job, x, row);
}

/* ---------------------------------------------------------------- copies and products */

/* Rows [row, row + count) of x, transposed: columns of panels. */
static void attend_transpose(const attend_job *job, const tg_attention_access *x, int64_t row, int64_t count, float *to) {
    const tg_cpu_attention *c = job->c;
    const float *from = attend_floats(job, x, row);
    for (int64_t j = 0; j < count; j += c->panel, to += c->panel * c->a.width) {
        const int64_t columns = attend_smaller(c->panel, count - j);
        if (x->column == 1) {
            c->ops->pack_columns(to, c->panel, from + j * x->row, x->row, c->a.width, columns);
            continue;
        }
        for (int64_t k = 0; k < c->a.width; ++k)
            for (int64_t i = 0; i < c->panel; ++i) to[k * c->panel + i] = i < columns ? from[(j + i) * x->row + k * x->column] : 0;
    }
}

/* Rows [row, row + count) of x as they are, in panels of columns. */
static void attend_copy(const attend_job *job, const tg_attention_access *x, int64_t row, int64_t count, float *to) {
    const tg_cpu_attention *c = job->c;
    const float *from = attend_floats(job, x, row);
    for (int64_t j = 0; j < c->a.width; j += c->slice, to += c->slice * ATTEND_BLOCK) {
        const int64_t columns = attend_smaller(c->slice, c->a.width - j);
        if (x->column == 1) {
            c->ops->pack_rows(to, c->slice, from + j, x->row, count, columns);
            continue;
        }
        for (int64_t k = 0; k < count; ++k)
            for (int64_t i = 0; i < c->slice; ++i) to[k * c->slice + i] = i < columns ? from[k * x->row + (j + i) * x->column] : 0;
    }
}

/* c [rows, columns] (add: +)= a [rows, k] times panels of b, each `panel` columns. a's element (r, p)
 * is at r row_stride + p k_stride. */
typedef struct attend_matrix {
    const float *at;
    int64_t row_stride, k_stride;
} attend_matrix;
static void attend_product(const tg_cpu_attention *c, int64_t rows, int64_t columns, int64_t k, attend_matrix a, const float *b,
                           int64_t panel, int64_t panel_floats, float *out, int64_t stride, bool add) {
    const int vectors = panel == c->ops->width ? 1 : 2;
    const int64_t most = c->ops->max_rows[vectors - 1];
    for (int64_t j = 0; j < columns; j += panel, b += panel_floats)
        for (int64_t r = 0; r < rows; r += most)
            c->ops->tile[vectors - 1][attend_smaller(most, rows - r)](k, a.at + r * a.row_stride, a.row_stride, a.k_stride, b, panel,
                                                                      out + r * stride + j, stride, add, c->ops->width);
}

/* out [count queries from t on, keys] = rows of x times panels of keys or values. */
static void attend_scores(const attend_job *job, const tg_attention_access *x, int64_t t, int64_t count, const float *panels, int64_t keys,
                          float *out) {
    const tg_cpu_attention *c = job->c;
    const attend_matrix a = {attend_floats(job, x, t), x->row, x->column};
    attend_product(c, count, attend_round(keys, c->panel), c->a.width, a, panels, c->panel, c->panel * c->a.width, out, ATTEND_BLOCK,
                   false);
}

/* sums [rows, width] += a times k rows in panels. */
static void attend_add(const tg_cpu_attention *c, int64_t rows, int64_t k, attend_matrix a, const float *panels, float *sums) {
    attend_product(c, rows, c->wide, k, a, panels, c->slice, c->slice * ATTEND_BLOCK, sums, c->wide, true);
}

/* ---------------------------------------------------------------- rows of scores */

/* How many of the `keys` keys from s on query t sees, its mask aside. */
static int64_t attend_seen(const tg_cpu_attention *c, int64_t t, int64_t s, int64_t keys) {
    if (!c->a.causal) return keys;
    const int64_t seen = t - s + 1;
    return seen < 0 ? 0 : attend_smaller(seen, keys);
}

static const uint8_t *attend_mask(const attend_job *job, int64_t t, int64_t s) {
    const tg_attention_access *mask = &job->c->a.mask;
    if (mask->argument < 0) return NULL;
    return (const uint8_t *)job->argument[mask->argument] + attend_at(job, mask, t) + s * mask->column;
}

/* The scores of rows [t, t + rows) over the keys from s on become weights; others becomes their
 * cotangents. */
static void attend_weigh_back(const attend_job *job, int64_t t, int64_t rows, int64_t s, int64_t keys) {
    const tg_cpu_attention *c = job->c;
    const tg_attention_kernel *a = &c->a;
    const attend_room *room = job->room;
    attend_scores(job, &a->q, t, rows, room->keys, keys, room->scores);
    attend_scores(job, &a->dout, t, rows, room->values, keys, room->others);
    for (int64_t r = 0; r < rows; ++r)
        c->rows->cotangents(room->scores + r * ATTEND_BLOCK, room->others + r * ATTEND_BLOCK, attend_round(keys, c->panel),
                            attend_seen(c, t + r, s, keys), attend_mask(job, t + r, s), a->mask.column, (float)a->scale,
                            *attend_floats(job, &a->lse, t + r), *attend_floats(job, &a->delta, t + r));
}

static void attend_store(const attend_job *job, const tg_attention_access *out, int64_t row, const float *sums, float factor) {
    float *to = attend_floats(job, out, row);
    for (int64_t i = 0; i < job->c->a.width; ++i) to[i * out->column] = sums[i] * factor;
}

/* Does row t see a key? */
static bool attend_sees(const attend_job *job, int64_t t) {
    const tg_attention_kernel *a = &job->c->a;
    const int64_t seen = attend_seen(job->c, t, 0, a->keys);
    const uint8_t *mask = attend_mask(job, t, 0);
    for (int64_t i = 0; i < seen; ++i)
        if (mask == NULL || mask[i * a->mask.column] != 0) return true;
    return false;
}

/* ---------------------------------------------------------------- parts */

static void attend_forward(const attend_job *job, int64_t t, int64_t rows) {
    const tg_cpu_attention *c = job->c;
    const tg_attention_kernel *a = &c->a;
    attend_room *room = job->room;
    const int64_t end = a->causal ? attend_smaller(a->keys, t + rows) : a->keys;
    memset(room->sums, 0, sizeof(float) * (size_t)(rows * c->wide));
    for (int64_t r = 0; r < rows; ++r) room->most[r] = -FLT_MAX, room->sum[r] = 0;
    for (int64_t s = 0; s < end; s += ATTEND_BLOCK) {
        const int64_t keys = attend_smaller(ATTEND_BLOCK, end - s), padded = attend_round(keys, c->panel);
        attend_transpose(job, &a->k, s, keys, room->keys);
        attend_copy(job, &a->v, s, keys, room->first);
        attend_scores(job, &a->q, t, rows, room->keys, keys, room->scores);
        for (int64_t r = 0; r < rows; ++r) {
            const float fade = c->rows->weights(room->scores + r * ATTEND_BLOCK, padded, attend_seen(c, t + r, s, keys),
                                                attend_mask(job, t + r, s), a->mask.column, (float)a->scale, &room->most[r], &room->sum[r]);
            for (int64_t i = 0; fade != 1 && i < c->wide; ++i) room->sums[r * c->wide + i] *= fade;
        }
        attend_add(c, rows, keys, (attend_matrix){room->scores, ATTEND_BLOCK, 1}, room->first, room->sums);
    }
    for (int64_t r = 0; r < rows; ++r) {
        const bool empty = room->sum[r] == 0;
        if (empty && attend_sees(job, t + r)) { /* -infinity alone: as softmax of such a row */
            attend_store(job, &a->out[0], t + r, room->sums + r * c->wide, NAN);
            *attend_floats(job, &a->out[1], t + r) = NAN;
            continue;
        }
        attend_store(job, &a->out[0], t + r, room->sums + r * c->wide, empty ? 0 : 1 / room->sum[r]);
        *attend_floats(job, &a->out[1], t + r) = empty ? 1e38f : room->most[r] + logf(room->sum[r]);
    }
}

static void attend_dq(const attend_job *job, int64_t t, int64_t rows) {
    const tg_cpu_attention *c = job->c;
    const tg_attention_kernel *a = &c->a;
    const attend_room *room = job->room;
    const int64_t end = a->causal ? attend_smaller(a->keys, t + rows) : a->keys;
    memset(room->sums, 0, sizeof(float) * (size_t)(rows * c->wide));
    for (int64_t s = 0; s < end; s += ATTEND_BLOCK) {
        const int64_t keys = attend_smaller(ATTEND_BLOCK, end - s);
        attend_transpose(job, &a->k, s, keys, room->keys);
        attend_transpose(job, &a->v, s, keys, room->values);
        attend_copy(job, &a->k, s, keys, room->first);
        attend_weigh_back(job, t, rows, s, keys);
        attend_add(c, rows, keys, (attend_matrix){room->others, ATTEND_BLOCK, 1}, room->first, room->sums);
    }
    for (int64_t r = 0; r < rows; ++r) attend_store(job, &a->out[0], t + r, room->sums + r * c->wide, 1);
}

static void attend_dkv(attend_job *job, int64_t s, int64_t keys) {
    const tg_cpu_attention *c = job->c;
    const tg_attention_kernel *a = &c->a;
    const attend_room *room = job->room;
    memset(room->sums, 0, sizeof(float) * (size_t)(keys * c->wide));
    memset(room->more, 0, sizeof(float) * (size_t)(keys * c->wide));
    attend_transpose(job, &a->k, s, keys, room->keys);
    attend_transpose(job, &a->v, s, keys, room->values);
    for (job->group = 0; job->group < a->groups; ++job->group)
        for (int64_t t = a->causal ? s : 0; t < a->queries; t += ATTEND_BLOCK) {
            const int64_t rows = attend_smaller(ATTEND_BLOCK, a->queries - t);
            attend_copy(job, &a->q, t, rows, room->first);
            attend_copy(job, &a->dout, t, rows, room->second);
            attend_weigh_back(job, t, rows, s, keys);
            attend_add(c, keys, rows, (attend_matrix){room->others, 1, ATTEND_BLOCK}, room->first, room->sums);
            attend_add(c, keys, rows, (attend_matrix){room->scores, 1, ATTEND_BLOCK}, room->second, room->more);
        }
    for (int64_t r = 0; r < keys; ++r) {
        attend_store(job, &a->out[0], s + r, room->sums + r * c->wide, 1);
        attend_store(job, &a->out[1], s + r, room->more + r * c->wide, 1);
    }
}

/* Lays the room out in a worker's scratch; returns its bytes. scratch NULL: only counts. */
static size_t attend_lay_out(const tg_cpu_attention *c, char *scratch) {
    const size_t header = (sizeof(attend_room) + 63) & ~(size_t)63;
    const int64_t sizes[8] = {ATTEND_BLOCK * c->a.width,   ATTEND_BLOCK * c->a.width,   ATTEND_BLOCK * c->wide, ATTEND_BLOCK * c->wide,
                              ATTEND_BLOCK * ATTEND_BLOCK, ATTEND_BLOCK * ATTEND_BLOCK, ATTEND_BLOCK * c->wide, ATTEND_BLOCK * c->wide};
    attend_room *room = (attend_room *)(void *)scratch;
    size_t at = header;
    for (int i = 0; i < 8; ++i) {
        float *where = scratch != NULL ? (float *)(void *)(scratch + at) : NULL;
        at += ((size_t)sizes[i] * sizeof(float) + 63) & ~(size_t)63;
        if (scratch == NULL) continue;
        float **const all[8] = {&room->keys,   &room->values, &room->first, &room->second,
                                &room->scores, &room->others, &room->sums,  &room->more};
        *all[i] = where;
    }
    return at;
}

void tg_cpu_attention_run(const tg_cpu_attention *c, int part, void *const *argument, void *scratch) {
    const tg_attention_kernel *a = &c->a;
    attend_job job = {.c = c, .argument = argument, .room = scratch};
    int64_t rest = part;
    (void)attend_lay_out(c, scratch);
    const int64_t block = rest % c->blocks * ATTEND_BLOCK;
    rest /= c->blocks;
    if (a->op != TG_OP_ATTENTION_DKV) {
        job.group = rest % a->groups;
        rest /= a->groups;
    }
    job.kv_head = rest % a->kv_heads;
    job.batch = rest / a->kv_heads;
    if (a->op == TG_OP_ATTENTION) attend_forward(&job, block, attend_smaller(ATTEND_BLOCK, a->queries - block));
    else if (a->op == TG_OP_ATTENTION_DQ) attend_dq(&job, block, attend_smaller(ATTEND_BLOCK, a->queries - block));
    else attend_dkv(&job, block, attend_smaller(ATTEND_BLOCK, a->keys - block));
}

int tg_cpu_attention_parts(const tg_cpu_attention *c) {
    const tg_attention_kernel *a = &c->a;
    return (int)(a->batches * a->kv_heads * (a->op == TG_OP_ATTENTION_DKV ? 1 : a->groups) * c->blocks);
}

size_t tg_cpu_attention_scratch(const tg_cpu_attention *c) { return attend_lay_out(c, NULL); }

tg_cpu_attention *tg_cpu_attention_make(tg_arena *arena, const tg_kernel *kernel, tg_isa isa, const tg_attention_ops *rows) {
    tg_cpu_attention *c = TG_NEW(arena, tg_cpu_attention, 1);
    if (c == NULL) return NULL;
    c->a = tg_attention_read(kernel);
    c->ops = tg_contract_ops_of(isa, ATTEND_BLOCK);
    c->rows = rows;
    c->panel = 2 * c->ops->width;
    c->slice = c->a.width > c->ops->width ? c->panel : c->ops->width;
    c->wide = attend_round(c->a.width, c->slice);
    c->blocks = attend_round(c->a.op == TG_OP_ATTENTION_DKV ? c->a.keys : c->a.queries, ATTEND_BLOCK) / ATTEND_BLOCK;
    return c;
}
