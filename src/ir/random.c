/* random: draws as graph nodes. Element i of a draw is a pure function of the run's key, the draw's
 * stream and i. So it does not matter where, how often or in what order it is computed. Must not
 * know seeds: the owner of the state sets its first value. */
#include "ir/rules.h"

#include <string.h>

/* The state and the writeback that advances it, made if need be; 0: failed. */
static int32_t random_state(tg_graph *g) {
    const int32_t made = tg_ir_find_state(g, TG_RANDOM_STATE);
    if (made != 0) return made;
    const tg_shape words = TG_SHAPE(TG_RANDOM_WORDS);
    const int32_t state = tg_ir_state(g, TG_RANDOM_STATE, words, TG_I32, 0);
    const int32_t one = tg_ir_const(g, TG_SCALAR, TG_I32, 1);
    const int32_t word = tg_ir_iota(g, words, TG_I32, 0);
    const int32_t step = tg_ir_binary(g, TG_OP_SUB, one, word); /* [1, 0] */
    const int32_t next = tg_ir_binary(g, TG_OP_ADD, state, step);
    return next != 0 && tg_ir_writeback(g, state, next) ? state : 0;
}

/* One more than the largest stream in use; -1: none is left. */
static int32_t random_stream(const tg_graph *g) {
    int32_t stream = -1;
    for (int64_t id = 1; id < g->nodes.count; id++) {
        const tg_node *node = &g->nodes.items[id];
        if (node->op == TG_OP_RANDOM && node->attr.stream > stream) stream = node->attr.stream;
    }
    return stream < INT32_MAX ? stream + 1 : -1;
}

static int32_t random_key(tg_graph *g, int32_t state, int64_t word) {
    return tg_ir_reshape(g, tg_ir_slice(g, state, &word, TG_SHAPE(1)), TG_SCALAR);
}

int32_t tg_ir_draw(tg_graph *g, tg_shape shape, int64_t bound) {
    char message[TG_RULE_MESSAGE];
    const char *name = g->current_op != NULL ? g->current_op : tg_op_table[TG_OP_RANDOM].name;
    const tg_status status = tg_shape_check(shape, message, sizeof message);
    const int32_t stream = random_stream(g);
    if (status != TG_OK || stream < 0) {
        (void)tg_fail(g->ctx, status != TG_OK ? status : TG_ERROR_LIMIT, g->current_site, "%s: %s", name,
                      status != TG_OK ? message : "no stream is left");
        return 0;
    }
    const int32_t state = random_state(g);
    if (state == 0) return 0;
    const int32_t key0 = random_key(g, state, 0), key1 = random_key(g, state, 1);
    const int32_t flat = tg_ir_iota(g, TG_SHAPE(tg_shape_count(shape)), TG_I32, 0);
    return tg_ir_random(g, tg_ir_reshape(g, flat, shape), key0, key1, stream, bound);
}
