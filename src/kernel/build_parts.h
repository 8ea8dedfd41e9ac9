/* build_parts (private to kernel/build*.c): a kernel while it is built. build.c makes its loops and
 * its stores, build_body.c the values that are stored, build_finish.c the kernel itself. Must not
 * know how items are chosen. */
#ifndef TG_BUILD_PARTS_H
#define TG_BUILD_PARTS_H
#include "ir/dtype.h"
#include "kernel/cost.h"
#include "kernel/fuse.h"

enum { BUILD_MAX_BODY = TG_MAX_BODY + 64, BUILD_MAX_BOUNDS = 512, BUILD_MAX_ARGUMENTS = 160 };

typedef struct build_memo {
    int32_t node, instruction;
    tg_affine flat;
    int32_t bound_count, bound_begin;
} build_memo;

struct tg_builder {
    tg_fusion *f;
    const tg_domain *domain;
    const int32_t *items;
    int item_count;
    tg_loops loops;
    int32_t outer, m_begin, n_begin;
    tg_index_map reduce_map; /* of the operand of the REDUCE that shapes the loops */
    tg_affine element_flat, outer_flat;
    tg_instruction body[BUILD_MAX_BODY];
    uint32_t mask[BUILD_MAX_BODY]; /* loops an instruction depends on */
    int32_t body_count;
    build_memo memo[BUILD_MAX_BODY];
    int32_t memo_count;
    tg_bound bounds[BUILD_MAX_BOUNDS];
    int32_t bound_count;
    tg_argument arguments[BUILD_MAX_ARGUMENTS];
    int32_t argument_count;
    tg_operand_access a, b;
    tg_affine store_at[TG_MAX_BODY / 4]; /* of each item */
    int32_t depth;
    tg_build_status status;
    int32_t culprit;
    bool split;
    int32_t split_loop;
    int64_t split_factor;
};

static inline const tg_node *builder_node(const struct tg_builder *b, int32_t id) { return &b->f->graph->nodes.items[id]; }

/* ---- build_body.c. Functions that return an instruction return -1 after b->status says why there
 * is none. */
/* returns -1; the first reason stays */
int tg_build_fail(struct tg_builder *b, tg_build_status status, int32_t culprit);
/* After a push that failed: splits a loop and starts again, or asks for `culprit` to be stored. */
int tg_build_push_failed(struct tg_builder *b, tg_push push, int32_t culprit);
/* The number of the argument with that reference: the existing one, or a new one. */
int32_t tg_build_argument(struct tg_builder *b, int32_t reference, tg_dtype dtype, tg_access access);
/* Appends; fills in level and mask from the loops in `own` and from the sources. */
int tg_build_append(struct tg_builder *b, tg_instruction instruction, uint32_t own, int sources);
/* The instruction that already has this element of `node`; -1: none. */
int tg_build_memo_find(const struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map);
void tg_build_memo_add(struct tg_builder *b, int32_t node, const tg_affine *flat, const tg_index_map *map, int instruction);
/* another kernel stores it, or a leaf holds it */
bool tg_build_stored_elsewhere(const struct tg_builder *b, int32_t node);
/* one value for each outer point of a REDUCE */
bool tg_build_item_is_outer(const struct tg_builder *b, const tg_node *n);
/* The value of `node` under `map`: loaded where it is stored, else computed. */
int tg_build_value(struct tg_builder *b, int32_t node, const tg_index_map *map);
/* The same, but always computed, even if it is stored. */
int tg_build_compute(struct tg_builder *b, int32_t node, const tg_index_map *map);

/* A load of `node` under `map` as one affine access of a value that is stored elsewhere. */
int tg_build_operand(struct tg_builder *b, int32_t node, const tg_index_map *map);

/* ---- build_attention.c */
void tg_build_attention_loops(struct tg_builder *b); /* the loops of kernel/attention.h */
void tg_build_attention(struct tg_builder *b);       /* the body */

/* ---- build_finish.c */
tg_kernel *tg_build_finish(struct tg_builder *b); /* NULL recorded. Freed with tg_kernel_free */
#endif
