/* grad rules: one vector-Jacobian product for each primitive. A rule reads one forward node and the
 * cotangent of its output, and gives cotangents to the inputs that need one. Rules use graph nodes
 * only, so each gradient has a gradient. Must not know how nodes are chosen or ordered: that is
 * grad.c's. */
#ifndef TG_GRAD_RULES_H
#define TG_GRAD_RULES_H
#include "grad/assemble.h"

typedef struct tg_vjp_call {
    tg_graph *g;
    tg_node node;         /* the forward node: a copy, because making nodes moves the list */
    int32_t y;            /* its id */
    int32_t dy;           /* the cotangent of its output, same shape, f32 */
    const uint8_t *marks; /* for each forward node id: TG_VJP_REACHED, TG_VJP_WANTED */
    int32_t *cotangents;  /* for each forward node id: the sum so far, 0: none yet */
    tg_pieces pieces;     /* what waits for a forward node's turn, to be added to its sum */
    const int32_t *uses;  /* for each forward node id: marked nodes that take it or a reshape of it */
    bool failed;          /* a node could not be made; the error is recorded */
} tg_vjp_call;

enum {
    TG_VJP_REACHED = 1, /* on a path from some wrt */
    TG_VJP_WANTED = 2   /* is a wrt itself */
};

/* apply is NULL for an operation without a gradient: a path ends there. */
typedef struct tg_vjp_rule {
    void (*apply)(tg_vjp_call *call);
} tg_vjp_rule;

#define TG_OP(NAME, ...) extern const tg_vjp_rule tg_vjp_##NAME;
#include "ir/ops.def"
#undef TG_OP

/* Whether input number `input` lies on a path from a wrt. */
bool tg_vjp_needs(const tg_vjp_call *call, int input);
/* Adds `contribution` (of the shape of node `id`) to the cotangent of forward node `id`. A
 * contribution known to be zero is dropped. */
void tg_vjp_give(tg_vjp_call *call, int32_t id, int32_t contribution);
/* The same for x as the box at start[] of zeros. */
void tg_vjp_give_box(tg_vjp_call *call, int32_t id, int32_t x, const int64_t *start);
/* The same for left [B, S, R]^T right [B, S, C], in the shape of node `id`. */
void tg_vjp_give_product(tg_vjp_call *call, int32_t id, int32_t left, int32_t right);
/* The same for the sum of x over axes, in the shape of node `id`. */
void tg_vjp_give_sum(tg_vjp_call *call, int32_t id, int32_t x, uint32_t axes);
#endif
