/* fuse: which values are stored and which are recomputed, and which stored values share a kernel.
 * Owns that choice; build.c makes one kernel of a choice. Knows the graph; must not know buffers,
 * liveness or devices (except tg_device_model).
 *
 * An item is a value that is stored; a group is the set of items that one kernel makes. The
 * arguments of a kernel are references to nodes and items until the planner gives them buffers. */
#ifndef TG_FUSE_H
#define TG_FUSE_H
#include "kernel/access.h"
#include "kernel/device_model.h"

/* A box of the buffer of node `whole`, a CONCAT. */
typedef struct tg_part {
    int32_t node, whole; /* node: what fills it, of as many elements */
    tg_shape shape;      /* along the axes of the whole */
    int64_t start[TG_MAX_RANK];
} tg_part;

typedef struct tg_item {
    int32_t node;
    int32_t group;
    /* stores a value that also lives elsewhere (a leaf, or a second destination) */
    bool copy;
    bool pinned;          /* a program output or a state: stored even if no kernel reads it */
    int32_t state;        /* index in the graph's states, or -1: a buffer of its own */
    int64_t state_offset; /* elements */
    const tg_part *part;  /* where it is written; NULL: a state, or a buffer of its own */
    int32_t next;         /* the next item of its state or of its whole, or -1 */
} tg_item;

typedef struct tg_domain {
    tg_kernel_kind kind;
    int64_t elements; /* points of the loop nest (contractions: of the result) */
    int64_t rows;     /* REDUCE: outer points; else = elements */
    /* REDUCE: the reduced axes are the last ones, so points are in row-major order */
    bool trailing;
    /* the REDUCE, CONTRACT, SCATTER_ADD or ATTENTION node that shapes the loops; 0 for MAP */
    int32_t node;
} tg_domain;

typedef struct tg_group {
    TG_LIST(int32_t) items; /* ascending node id */
    tg_domain domain;
    tg_kernel *kernel;
    bool merged_away;
    int32_t merged_into;
    int32_t rank;    /* in an order in which each group comes after those it needs */
    int32_t changed; /* the last sweep of joins that changed it */
} tg_group;

typedef struct tg_fusion {
    tg_graph *graph;
    tg_context *ctx;
    tg_arena arena;                /* freed with the fusion */
    const tg_device_model *device; /* borrowed */
    bool no_fusion;
    int32_t node_count;
    bool *live;
    bool *realised;       /* node has a primary item */
    int32_t *item_of;     /* node -> primary item, or -1 */
    int32_t *pack_state;  /* PACK node -> state it is written to, or -1 */
    int32_t *load_count;  /* node -> groups whose kernel reads it */
    int32_t *output_copy; /* node -> copy made for an output, or -1 */
    int32_t *state_items; /* state -> its items, linked by next; -1 */
    /* CONCAT node whose kernels write its parts straight into its buffer. It has a buffer, no item
     * and no kernel */
    bool *whole;
    int32_t *whole_items;   /* such a node -> the items of its parts, linked by next; -1 */
    bool *nested;           /* CONCAT node whose parts are parts of those that take it */
    TG_LIST(tg_part) boxes; /* scratch */
    /* live nodes that take a node: [user_begin[node], user_begin[node + 1]) */
    int32_t *users;
    int32_t *user_begin;
    int32_t *seen, epoch;        /* node -> the last walk that met it */
    int32_t *walk, walk_count;   /* nodes of the current walk */
    int32_t *inlined;            /* scratch */
    int32_t *fresh, fresh_count; /* nodes that are stored from the next round on */
    TG_LIST(tg_item) items;
    TG_LIST(tg_group) groups;
    struct tg_builder *builder;
} tg_fusion;

typedef enum tg_build_status {
    TG_BUILD_OK,
    TG_BUILD_STORE,   /* node `culprit` must be stored first */
    TG_BUILD_LARGE,   /* body or argument list too long */
    TG_BUILD_REFUSED, /* these items cannot share a kernel */
    TG_BUILD_FAILED   /* out of memory: recorded */
} tg_build_status;

/* One kernel for `items` (ascending node id); the caller frees it. Only items that `stored` (a
 * parallel array) marks get a store. */
tg_build_status tg_build_kernel(tg_fusion *f, const int32_t *items, int count, const bool *stored, const tg_domain *domain, tg_kernel **out,
                                int32_t *culprit);
/* one that tg_build_kernel made; NULL is fine */
void tg_kernel_free(tg_context *ctx, tg_kernel *kernel);
struct tg_builder *tg_builder_create(tg_arena *arena);

/* The node under reshapes: same elements in the same order. */
int32_t tg_strip_reshape(const tg_graph *g, int32_t node);
/* A buffer holds this node's value: input, state, literal data, or an item. */
bool tg_has_storage(const tg_fusion *f, int32_t node);

/* The CONCAT node whose buffer a reference of an argument means, or -1. */
int32_t tg_fusion_whole_of(const tg_fusion *f, int32_t reference);
/* Does `group` write a part of what node `whole` holds? */
bool tg_fusion_writes_part(const tg_fusion *f, int32_t group, int32_t whole);

/* Fuses everything that the outputs (nodes whose value must be in a buffer at the end) and the
 * writebacks need. The source of a writeback must not be a STATE leaf itself. After an error, too,
 * call tg_fusion_free. */
tg_status tg_fuse(tg_fusion *f, tg_graph *g, const tg_device_model *device, bool no_fusion, const int32_t *outputs, int output_count);
/* Sends the item's value to its state through a kernel of its own, so that the group it was in need
 * not wait for readers of the state's old value. Adds and rebuilds groups. */
tg_status tg_fusion_redirect(tg_fusion *f, int32_t item);
/* Groups whose values `group` reads, into out (at most `capacity` are written). Returns how many
 * there are. May repeat groups. */
int tg_fusion_dependencies(const tg_fusion *f, int32_t group, int32_t *out, int capacity);
void tg_fusion_free(tg_fusion *f);
/* The item that holds the value of output `node`: the primary item of the stripped node, or the
 * copy made for it; -1: the state of a PACK, or the buffer of a CONCAT whose parts are stored in
 * place. */
int32_t tg_fusion_output_item(const tg_fusion *f, int32_t node);
#endif
