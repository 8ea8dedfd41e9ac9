/* rules: the shape rule of each primitive, shared by building, verifying and reading graphs. Part
 * of ir: knows the graph and nothing above it. A rule records nothing; it writes a message for its
 * caller to record. */
#ifndef TG_IR_RULES_H
#define TG_IR_RULES_H

#include "ir/dtype.h"
#include "ir/graph.h"

#define TG_RULE_MESSAGE 640
#define TG_NODE_TEXT 256
#define TG_MAX_COUNT INT64_C(2147483647) /* elements of one tensor */

/* `node` is a draft or a finished node: op, inputs and attributes are read from it; its shape and
 * dtype only where the inputs do not determine them (leaves, reshape, broadcast, slice, pad, pack,
 * the rows of scatter_add, cast). */
typedef struct tg_rule {
    const tg_graph *g;
    const tg_node *node;
    tg_shape shape; /* what the node must have */
    tg_dtype dtype;
    char message[TG_RULE_MESSAGE]; /* why not, without the op's name */
} tg_rule;

/* Checks op, arity, input ids (1 .. before - 1), element types and shapes; fills shape and
 * dtype. */
tg_status tg_rule_apply(tg_rule *rule, const tg_graph *g, const tg_node *node, int32_t before);

/* TG_OK, TG_ERROR_SHAPE (a dimension under 1) or TG_ERROR_LIMIT (rank or element count), with the
 * size in message. */
tg_status tg_shape_check(tg_shape shape, char *message, size_t size);

/* Why two operands of an elementwise op cannot meet: "shapes do not broadcast: x[2] and y[3] (2 !=
 * 3)"; TG_OK when they can. Fills the broadcast shape. */
tg_status tg_broadcast_check(const tg_graph *g, int32_t a, int32_t b, tg_shape *out, char *message, size_t size);
/* Element types of an elementwise op's operands, before they are broadcast. */
tg_status tg_operands_check(const tg_graph *g, tg_op op, const int32_t *inputs, int count, char *message, size_t size);

/* Applies all rules to a whole graph. TG_ERROR_INTERNAL with the reason in message, TG_ERROR_MEMORY
 * (recorded), or TG_OK; nothing else is recorded. O(nodes + inputs + names). */
tg_status tg_graph_check(const tg_graph *g, char *message, size_t size);
/* Whether kind and scale of an initial value are in range. */
bool tg_init_valid(tg_init init);

#endif
