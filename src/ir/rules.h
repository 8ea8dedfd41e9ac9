/* rules: the shape rule of each primitive, for building, verifying and reading graphs. Part of ir:
 * knows the graph, and must not know what uses graphs. A rule records nothing; it writes a message
 * for its caller to record. */
#ifndef TG_IR_RULES_H
#define TG_IR_RULES_H

#include "ir/dtype.h"
#include "ir/graph.h"

#define TG_RULE_MESSAGE 640
#define TG_NODE_TEXT 256
#define TG_MAX_COUNT INT64_C(2147483647) /* elements of one tensor */

/* `node` is a draft or a finished node. A rule reads its op, inputs and attributes. It reads its
 * shape and dtype only if the inputs do not determine them (leaves, reshape, broadcast, slice, pad,
 * pack, the rows of scatter_add, cast). */
typedef struct tg_rule {
    const tg_graph *g;
    const tg_node *node;
    tg_shape shape; /* what the node must have */
    tg_dtype dtype;
    char message[TG_RULE_MESSAGE]; /* the reason for a refusal, without the op's name */
} tg_rule;

/* Checks op, arity, input ids (1 .. before - 1), dtypes and shapes; fills shape and dtype. */
tg_status tg_rule_apply(tg_rule *rule, const tg_graph *g, const tg_node *node, int32_t before);

/* TG_OK, TG_ERROR_SHAPE (a dim under 1) or TG_ERROR_LIMIT (rank or number of elements), with the
 * size in message. */
tg_status tg_shape_check(tg_shape shape, char *message, size_t size);

/* TG_OK if two operands of an elementwise op broadcast; fills their common shape. Else the reason:
 * "shapes do not broadcast: x[2] and y[3] (2 != 3)". */
tg_status tg_broadcast_check(const tg_graph *g, int32_t a, int32_t b, tg_shape *out, char *message, size_t size);
/* Checks the dtypes of an elementwise op's operands, before they are broadcast. */
tg_status tg_operands_check(const tg_graph *g, tg_op op, const int32_t *inputs, int count, char *message, size_t size);

/* Checks all rules of a whole graph: TG_OK, TG_ERROR_INTERNAL with the reason in message, or
 * TG_ERROR_MEMORY, the only one that is recorded. O(nodes + inputs + names). */
tg_status tg_graph_check(const tg_graph *g, char *message, size_t size);
/* Whether the kind and scale of an initial value are in range. */
bool tg_init_valid(tg_init init);

#endif
