/* rewrite (private to src/pass): a graph being rebuilt node by node. Every node goes through
 * tg_pass_make, which applies the first rule that fits and makes the result again, so that what
 * comes out is in normal form; equal nodes are made once. Rules must not look at the uses of a
 * node: then one forward walk is enough, and a second one changes nothing. */
#ifndef TG_PASS_REWRITE_H
#define TG_PASS_REWRITE_H
#include "ir/dtype.h"
#include "ir/graph.h"

typedef struct tg_rewrite {
    tg_graph *g;            /* its arena and context; its nodes are the old ones */
    TG_LIST(tg_node) nodes; /* the new ones; 0 is poison */
    int32_t *table;         /* hash table of new ids, open addressing, 0 is empty */
    int64_t table_size;     /* a power of two */
    tg_site site;           /* of the old node being rewritten */
    bool failed;            /* out of memory, recorded */
} tg_rewrite;

/* ---- intern.c */
tg_status tg_rewrite_begin(tg_rewrite *r, tg_graph *g);
void tg_rewrite_end(tg_rewrite *r); /* releases what is still held */
/* The new node equal to draft (inputs are new ids), made when there is none. 0 on failure. */
int32_t tg_rewrite_intern(tg_rewrite *r, const tg_node *draft);
static inline const tg_node *tg_rewrite_node(const tg_rewrite *r, int32_t id) { return &r->nodes.items[id]; }

/* ---- pass.c: applies rules, then interns. 0 only on failure (r->failed) */
int32_t tg_pass_make(tg_rewrite *r, const tg_node *draft);
int32_t tg_pass_const(tg_rewrite *r, tg_shape shape, tg_dtype dtype, double value);
int32_t tg_pass_unary(tg_rewrite *r, tg_op op, int32_t x);
/* one shape */
int32_t tg_pass_binary(tg_rewrite *r, tg_op op, tg_dtype dtype, int32_t a, int32_t b);
int32_t tg_pass_select(tg_rewrite *r, int32_t condition, int32_t a, int32_t b);
int32_t tg_pass_reshape(tg_rewrite *r, int32_t x, tg_shape shape);
/* same rank */
int32_t tg_pass_broadcast(tg_rewrite *r, int32_t x, tg_shape shape);
/* SLICE, PAD */
int32_t tg_pass_box(tg_rewrite *r, tg_op op, int32_t x, const int64_t *start, tg_shape shape);
int32_t tg_pass_permute(tg_rewrite *r, int32_t x, const int32_t *perm);
/* REDUCE, FLIP; keeps x's dtype */
int32_t tg_pass_masked(tg_rewrite *r, tg_op op, int32_t x, uint32_t axes, tg_shape shape);

/* Is the node one number everywhere? */
bool tg_pass_splat(const tg_rewrite *r, int32_t id, double *value);
/* The number as a node of this dtype holds it. */
double tg_pass_round(tg_dtype dtype, double value);

/* ---- rules: the id of an equal, simpler node; 0 when none fits (or r->failed) */
int32_t tg_pass_fold(tg_rewrite *r, const tg_node *draft);      /* elementwise on numbers */
int32_t tg_pass_algebra(tg_rewrite *r, const tg_node *draft);   /* elementwise identities */
int32_t tg_pass_lift(tg_rewrite *r, const tg_node *draft);      /* elementwise of broadcasts */
int32_t tg_pass_view(tg_rewrite *r, const tg_node *draft);      /* views */
int32_t tg_pass_reduction(tg_rewrite *r, const tg_node *draft); /* reductions */
int32_t tg_pass_join(tg_rewrite *r, const tg_node *draft);      /* concat */
#endif
