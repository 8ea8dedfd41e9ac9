/* fuse_parts (private to kernel/fuse*.c): what the parts of fusion have of each other. fuse.c decides what lives, fuse_store.c what is
 * stored, fuse_group.c makes items and groups, fuse_alone.c a kernel for each, fuse_order.c keeps them in order, fuse_join.c joins them. */
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

/* A walk over what lies below or above nodes: every node is pushed once. */
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
void tg_fuse_realise(tg_fusion *f, int32_t node); /* it gets stored, unless it is where a leaf or a pack is */
/* Neither stored nor a leaf, and more than a view: each kernel that reads it computes it. */
bool tg_fuse_is_recomputed(const tg_fusion *f, int32_t id);
/* Sets f->realised. users, only_user: as find_users leaves them; both and cost are scratch after that. */
void tg_fuse_decide_stored(tg_fusion *f, int32_t *users, int32_t *only_user, int32_t *cost);
void tg_fuse_realise_writebacks(tg_fusion *f);

/* ---- fuse_group.c */
int32_t tg_fuse_add_item(tg_fusion *f, int32_t node, bool copy); /* its number; -1 recorded */
int32_t tg_fuse_add_group(tg_fusion *f, int32_t item);           /* of one item; its number; -1 recorded */
/* Can the two share a loop nest? *out is it. */
bool tg_fuse_join_domains(const tg_fusion *f, const tg_domain *a, const tg_domain *b, tg_domain *out);
void tg_fuse_give_state(tg_fusion *f, int32_t item, int32_t state, int64_t offset);
void tg_fuse_leave_state(tg_fusion *f, int32_t item);
int32_t tg_fuse_writeback_state(const tg_fusion *f, const tg_writeback_info *w); /* where it goes */
/* Items of all stored values, writebacks and outputs, each in a group of its own, without kernels. False recorded. */
bool tg_fuse_make_items(tg_fusion *f, const int32_t *outputs, int output_count);

/* ---- fuse_alone.c */
/* A kernel for every group. Values that have to be stored for that get items and groups. */
tg_status tg_fuse_build_each(tg_fusion *f);

/* ---- fuse_order.c */
typedef struct fuse_scratch {
    bool *stored;
    int32_t *seen, epoch; /* by group: walks over groups */
    int32_t *stack, *dependencies, *joint;
    int dependency_room;
    /* groups, each after what it needs; group.place is the inverse */
    int32_t *order;
    int32_t *shifted;                /* a stretch of it, while it changes */
    int32_t *readers, *reader_begin; /* by node: groups that read it, ascending, as they were when the sweep began */
    int32_t *near, near_count;       /* groups that may be joined with the one at hand */
    int32_t sweep;
} fuse_scratch;

bool tg_fuse_make_scratch(tg_fusion *f, fuse_scratch *s); /* in f's arena; false recorded */
/* Once in each walk: s->epoch++ begins one. */
bool tg_fuse_first_seen(fuse_scratch *s, int32_t group);
/* Into s->dependencies; how many. */
int tg_fuse_dependencies_of(const tg_fusion *f, int32_t group, fuse_scratch *s);
tg_status tg_fuse_order_groups(tg_fusion *f, fuse_scratch *s); /* TG_ERROR_INTERNAL: they wait for each other */
/* Is `target` among what `from` needs, by a path of at least two steps? Yes, too, where that is too far to see. */
bool tg_fuse_depends_on(const tg_fusion *f, int32_t from, int32_t target, fuse_scratch *s);
/* Two groups become one, `kept`. */
void tg_fuse_join_places(tg_fusion *f, int32_t kept, int32_t gone, fuse_scratch *s);

/* ---- fuse_join.c */
/* Joins what can be joined, unless there is to be no fusion; then drops stores that nobody reads. */
tg_status tg_fuse_join_groups(tg_fusion *f);
/* Builds a group's kernel (anew), with stores for what someone outside it reads. */
tg_status tg_fuse_rebuild_group(tg_fusion *f, tg_group *group);
#endif
