/* fuse_parts (private to kernel/fuse*.c): what the files of fusion use of each other. fuse.c finds
 * the live nodes, fuse_store.c decides which are stored, fuse_group.c makes items and groups,
 * fuse_alone.c makes a kernel for each, fuse_order.c keeps them in order, fuse_join.c joins them.
 * Must not know who calls fusion. */
#ifndef TG_FUSE_PARTS_H
#define TG_FUSE_PARTS_H
#include "kernel/cost.h"
#include "kernel/fuse.h"

static inline const tg_node *fuse_node(const tg_fusion *f, int32_t id) { return &f->graph->nodes.items[id]; }
static inline tg_op_class fuse_class(const tg_fusion *f, int32_t id) { return tg_op_table[fuse_node(f, id)->op].class_; }

static inline bool fuse_leaf_storage(const tg_node *n) {
    return n->op == TG_OP_INPUT || n->op == TG_OP_STATE || (n->op == TG_OP_CONST && n->attr.data != NULL);
}

static inline int32_t fuse_primary_loads(const tg_kernel *k, int32_t node) {
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].reference == node) return 1;
    return 0;
}

static inline void fuse_count_loads(tg_fusion *f, const tg_kernel *k, int32_t by) {
    for (int32_t i = 0; i < k->argument_count; i++)
        if (k->arguments[i].reference >= 0) f->load_count[k->arguments[i].reference] += by;
}

/* A walk over nodes below or above others: each node is pushed once. */
static inline void fuse_start_walk(tg_fusion *f) {
    f->walk_count = 0;
    f->epoch++;
}

static inline bool fuse_push_once(tg_fusion *f, int32_t node) {
    if (f->seen[node] == f->epoch) return false;
    f->seen[node] = f->epoch;
    f->walk[f->walk_count++] = node;
    f->ctx->work++;
    return true;
}

static inline int fuse_compare_ids(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* ---- fuse_store.c */
/* it gets stored, unless a leaf or the state of a pack holds it */
void tg_fuse_realise(tg_fusion *f, int32_t node);
/* Neither stored nor a leaf, and more than a view: each kernel that reads it computes it. */
bool tg_fuse_is_recomputed(const tg_fusion *f, int32_t id);
/* Sets f->realised. users, only_user: as find_users sets them; afterwards both, and cost, are
 * scratch. */
void tg_fuse_decide_stored(tg_fusion *f, int32_t *users, int32_t *only_user, int32_t *cost);
void tg_fuse_realise_writebacks(tg_fusion *f);

/* ---- fuse_whole.c */
/* Sets f->whole, and stores the parts. users, only_user: as find_users sets them. False recorded. */
bool tg_fuse_find_wholes(tg_fusion *f, const int32_t *users, const int32_t *only_user);
/* The parts of a whole as items; false recorded. */
bool tg_fuse_add_parts(tg_fusion *f, int32_t whole);

/* ---- fuse_group.c */
int32_t tg_fuse_add_item(tg_fusion *f, int32_t node, bool copy); /* its number; -1 recorded */
/* of one item; its number; -1 recorded */
int32_t tg_fuse_add_group(tg_fusion *f, int32_t item);
/* Can the two share a loop nest? If so, *out is it. */
bool tg_fuse_join_domains(const tg_fusion *f, const tg_domain *a, const tg_domain *b, tg_domain *out);
void tg_fuse_give_state(tg_fusion *f, int32_t item, int32_t state, int64_t offset);
void tg_fuse_leave_state(tg_fusion *f, int32_t item);
/* the state it goes to */
int32_t tg_fuse_writeback_state(const tg_fusion *f, const tg_writeback_info *w);
/* Items of all stored values, writebacks and outputs, each in a group of its own, without kernels.
 * False recorded. */
bool tg_fuse_make_items(tg_fusion *f, const int32_t *outputs, int output_count);

/* ---- fuse_alone.c */
/* Makes a kernel for each group. Values that must be stored for that get items and groups. */
tg_status tg_fuse_build_each(tg_fusion *f);

/* ---- fuse_order.c */
typedef struct fuse_scratch {
    bool *stored;
    int32_t *seen, epoch; /* by group: walks over groups */
    int32_t *stack, *dependencies, *joint;
    int dependency_room;
    /* groups, each after those it needs; group.rank is the index in it */
    int32_t *order;
    int32_t *shifted; /* a range of it, while it changes */
    /* by node: groups that read it, ascending, as of the begin of the sweep */
    int32_t *readers, *reader_begin;
    int32_t *near, near_count; /* groups that may be joined with the current one */
    int32_t sweep;
} fuse_scratch;

bool tg_fuse_make_scratch(tg_fusion *f, fuse_scratch *s); /* in f's arena; false recorded */
/* True once for each group in a walk; s->epoch++ begins a walk. */
bool tg_fuse_first_seen(fuse_scratch *s, int32_t group);
/* Into s->dependencies; returns how many. */
int tg_fuse_dependencies_of(const tg_fusion *f, int32_t group, fuse_scratch *s);
/* TG_ERROR_INTERNAL: they wait for each other */
tg_status tg_fuse_order_groups(tg_fusion *f, fuse_scratch *s);
/* Does `from` need `target`, by a path of at least two steps? Also true if the search would take
 * too long. */
bool tg_fuse_depends_on(const tg_fusion *f, int32_t from, int32_t target, fuse_scratch *s);
/* Two groups become one, `kept`. */
void tg_fuse_join_ranks(tg_fusion *f, int32_t kept, int32_t gone, fuse_scratch *s);

/* ---- fuse_join.c */
/* Joins what can be joined, unless fusion is off; then drops stores that nobody reads. */
tg_status tg_fuse_join_groups(tg_fusion *f);
/* Builds a group's kernel (again), with stores for values that are pinned or read outside it. */
tg_status tg_fuse_rebuild_group(tg_fusion *f, tg_group *group);
#endif
