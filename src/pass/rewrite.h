/* rewrite (private to src/pass): a graph that is rebuilt node by node. Each node goes through
 * tg_pass_make, which applies the first rule that fits and makes its result in the same way, so
 * that the new graph is in normal form. Equal nodes are made once. Rules must not look at the uses
 * of a node: then one forward walk is enough, and a second one changes nothing. */
#ifndef TG_PASS_REWRITE_H
#define TG_PASS_REWRITE_H
#include "ir/dtype.h"
#include "ir/graph.h"

typedef struct tg_rewrite {
    tg_graph *g;            /* gives the arena and the context; its nodes are the old ones */
    TG_LIST(tg_node) nodes; /* the new nodes; 0 is poison */
    int32_t *table;         /* hash table of new ids, open addressing, 0 is empty */
    int64_t table_size;     /* a power of two */
    tg_site site;           /* of the old node that is being rewritten */
    bool failed;            /* out of memory, recorded */
} tg_rewrite;

/* ---- intern.c: the list of new nodes */
tg_status tg_rewrite_begin(tg_rewrite *r, tg_graph *g);
void tg_rewrite_end(tg_rewrite *r); /* releases what the rewrite still holds */
/* The new node that equals draft, whose inputs are new ids; made if there is none. 0 on failure. */
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
int32_t tg_pass_broadcast(tg_rewrite *r, int32_t x, tg_shape shape); /* same rank */
/* SLICE, PAD */
int32_t tg_pass_box(tg_rewrite *r, tg_op op, int32_t x, const int64_t *start, tg_shape shape);
int32_t tg_pass_permute(tg_rewrite *r, int32_t x, const int32_t *perm);
/* REDUCE, FLIP; keeps x's dtype */
int32_t tg_pass_masked(tg_rewrite *r, tg_op op, int32_t x, uint32_t axes, tg_shape shape);

/* Whether the node is one number everywhere; *value: the number. */
bool tg_pass_splat(const tg_rewrite *r, int32_t id, double *value);
/* The number as a node of this dtype holds it. */
double tg_pass_round(tg_dtype dtype, double value);

/* ---- rules: each returns the id of an equal, simpler node; 0 when it does not fit (or
 * r->failed) */
int32_t tg_pass_constant(tg_rewrite *r, const tg_node *draft);  /* elementwise on numbers */
int32_t tg_pass_algebra(tg_rewrite *r, const tg_node *draft);   /* elementwise identities */
int32_t tg_pass_lift(tg_rewrite *r, const tg_node *draft);      /* elementwise of broadcasts */
int32_t tg_pass_view(tg_rewrite *r, const tg_node *draft);      /* views */
int32_t tg_pass_reduction(tg_rewrite *r, const tg_node *draft); /* reductions */
int32_t tg_pass_join(tg_rewrite *r, const tg_node *draft);      /* concat */
#endif
