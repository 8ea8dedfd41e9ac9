/* Attention: scaled dot products of heads, their weighted sums, and the layer that makes queries,
 * keys and values. Composed of public operations, so it fuses as they do, except for long rows
 * without captures: they are one primitive. Must not know kernels. */
#include "ir/attention.h"
#include "trace/trace.h"

#include <math.h>

/* ---------------------------------------------------------------- of heads */

/* Heads [B, H, T, d] as rows for Hk heads of keys: [B, Hk, H / Hk T, d]. Head h uses the keys of
 * head h Hk / H. */
static tg_tensor rows_beside(tg_site site, tg_tensor heads, int64_t kv_heads) {
    tg_shape shape = tg_tensor_shape(heads);
    if (shape.dim[1] == kv_heads) return heads;
    shape.dim[2] *= shape.dim[1] / kv_heads;
    shape.dim[1] = kv_heads;
    return tg_reshape_at(site, heads, shape);
}

/* Checks [B, H, T, d] against [B, Hk, S, d]: Hk divides H; if `last`, d is the same. */
static bool check_heads(const tg_call *call, int32_t left, int32_t right, bool last) {
    const int32_t ids[2] = {left, right};
    const tg_shape a = tg_node_shape(call, left), b = tg_node_shape(call, right);
    for (int i = 0; i < 2; i++)
        if (!tg_call_takes(call, ids[i], TG_TAKES_F32)) return false;
    const bool fits = a.rank == 4 && b.rank == 4 && a.dim[0] == b.dim[0] && a.dim[1] % b.dim[1] == 0;
    if (fits && (last ? a.dim[3] == b.dim[3] : a.dim[3] == b.dim[2])) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "needs [B, H, T, %s] by [B, Hk, S, d], Hk dividing H: %s by %s", last ? "d" : "S",
                 TG_LABEL(call, left), TG_LABEL(call, right));
    return false;
}

static bool check_mask(const tg_call *call, const tg_attention_mask *options, int32_t q, tg_shape scores) {
    const int32_t ids[2] = {options->mask.id, q};
    tg_shape out;
    if (options->causal && scores.dim[2] != scores.dim[3]) {
        tg_call_fail(call, TG_ERROR_SHAPE, &q, 1, "causal attention needs as many keys as queries: %lld and %lld", (long long)scores.dim[3],
                     (long long)scores.dim[2]);
        return false;
    }
    if (options->mask.graph == NULL) return true;
    if (!tg_call_takes(call, ids[0], TG_TAKES_BOOL)) return false;
    if (tg_shape_broadcast(scores, tg_node_shape(call, ids[0]), &out) && tg_shape_equal(out, scores)) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the mask does not broadcast to %s: %s beside %s", TG_SHAPE_LABEL(scores),
                 TG_LABEL(call, ids[0]), TG_LABEL(call, q));
    return false;
}

tg_tensor tg_nn_attention_weights_at(tg_site site, tg_tensor q, tg_tensor k, tg_attention_mask options) {
    tg_call call;
    const bool masked = options.mask.graph != NULL;
    const tg_tensor operands[3] = {q, k, options.mask};
    if (!tg_call_enter(&call, site, "attention", operands, masked ? 3 : 2) || !check_heads(&call, q.id, k.id, true))
        return tg_call_poison(&call);
    const tg_shape queries = tg_node_shape(&call, q.id), keys = tg_node_shape(&call, k.id);
    const tg_shape shape = TG_SHAPE(queries.dim[0], queries.dim[1], queries.dim[2], keys.dim[2]);
    if (!tg_call_shape_ok(&call, shape) || !check_mask(&call, &options, q.id, shape)) return tg_call_poison(&call);
    tg_tensor scores = tg_matmul_batched_at(site, rows_beside(site, q, keys.dim[1]), tg_swap_axes_at(site, k, -1, -2));
    if (queries.dim[1] != keys.dim[1]) scores = tg_reshape_at(site, scores, shape);
    scores = tg_mul_at(site, tg_operand_tensor_(scores), tg_operand_number_(1 / sqrt((double)queries.dim[3])));
    if (!masked) return options.causal ? tg_softmax_causal_last_at(site, scores) : tg_softmax_at(site, scores, -1);
    tg_tensor mask = options.mask;
    if (options.causal) {
        const tg_tensor all = tg_full_at(site, call.graph, TG_SHAPE(shape.dim[2], shape.dim[3]), 1.0, TG_BOOL);
        mask = tg_logical_and_at(site, tg_operand_tensor_(mask), tg_operand_tensor_(tg_tril_at(site, all, 0)));
    }
    return tg_masked_softmax_at(site, scores, mask, -1);
}

tg_tensor tg_nn_attention_values_at(tg_site site, tg_tensor weights, tg_tensor v) {
    tg_call call;
    const tg_tensor operands[2] = {weights, v};
    if (!tg_call_enter(&call, site, "attention", operands, 2) || !check_heads(&call, weights.id, v.id, false)) return tg_call_poison(&call);
    const tg_shape shape = tg_node_shape(&call, weights.id), values = tg_node_shape(&call, v.id);
    const tg_tensor out = tg_matmul_batched_at(site, rows_beside(site, weights, values.dim[1]), v);
    if (shape.dim[1] == values.dim[1]) return out;
    return tg_reshape_at(site, out, TG_SHAPE(shape.dim[0], shape.dim[1], shape.dim[2], values.dim[3]));
}

/* ---------------------------------------------------------------- both at once */

/* From how many scores of a head on the two products and the softmax are one operation, and the
 * heads that it is made for: 16, 32, .. 128 wide. Fewer scores cost little to store, and their kernels join others. */
enum { ATTEND_SCORES = 64 * 64, ATTEND_NARROWEST = 16, ATTEND_WIDEST = 128 };

static bool attends_at_once(tg_shape q, tg_shape k) {
    return q.dim[2] * k.dim[2] >= ATTEND_SCORES && q.dim[3] >= ATTEND_NARROWEST && q.dim[3] <= ATTEND_WIDEST &&
           q.dim[3] % ATTEND_NARROWEST == 0;
}

/* Operands as tg_nn_attend takes them. */
static bool enter_attend(tg_call *call, tg_site site, tg_tensor q, tg_tensor k, tg_tensor v, const tg_attention_mask *options) {
    const tg_tensor operands[4] = {q, k, v, options->mask};
    if (!tg_call_enter(call, site, "attention", operands, options->mask.graph != NULL ? 4 : 3)) return false;
    if (!check_heads(call, q.id, k.id, true) || !check_heads(call, q.id, v.id, true)) return false;
    const tg_shape queries = tg_node_shape(call, q.id), keys = tg_node_shape(call, k.id);
    const tg_shape scores = TG_SHAPE(queries.dim[0], queries.dim[1], queries.dim[2], keys.dim[2]);
    if (!tg_shape_equal(keys, tg_node_shape(call, v.id))) {
        const int32_t ids[2] = {k.id, v.id};
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "keys and values need one shape: %s and %s", TG_LABEL(call, k.id), TG_LABEL(call, v.id));
        return false;
    }
    return tg_call_shape_ok(call, scores) && check_mask(call, options, q.id, scores);
}

tg_tensor tg_nn_attend_at(tg_site site, tg_tensor q, tg_tensor k, tg_tensor v, tg_attention_mask options) {
    tg_call call;
    if (!enter_attend(&call, site, q, k, v, &options)) return tg_call_poison(&call);
    const tg_shape queries = tg_node_shape(&call, q.id), keys = tg_node_shape(&call, k.id);
    if (!attends_at_once(queries, keys)) return tg_nn_attention_values_at(site, tg_nn_attention_weights_at(site, q, k, options), v);
    int32_t operands[4] = {q.id, k.id, v.id, 0};
    int count = 3;
    if (options.mask.graph != NULL)
        operands[count++] =
            tg_ir_broadcast(call.graph, options.mask.id, TG_SHAPE(queries.dim[0], queries.dim[1], queries.dim[2], keys.dim[2]));
    const double scale = 1 / sqrt((double)queries.dim[3]);
    const int32_t both = tg_ir_attention(call.graph, TG_OP_ATTENTION, operands, count, options.causal, scale);
    return tg_call_result(&call, tg_ir_attention_out(call.graph, both, tg_attention_shape_of(queries, keys), 0));
}

/* ---------------------------------------------------------------- the layer */

static bool check_attention(const tg_call *call, int64_t dim, int64_t heads, int64_t kv_heads, int64_t context, double rope_base) {
    if (dim < 1 || heads < 1 || kv_heads < 1) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "sizes need to be at least 1: %lld in %lld heads, %lld of keys", (long long)dim,
                     (long long)heads, (long long)kv_heads);
        return false;
    }
    if (context < 1 || context > INT32_MAX) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the context needs to be at least 1 number, not %lld", (long long)context);
        return false;
    }
    if (dim % heads != 0) {
        tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "%lld does not divide into %lld heads", (long long)dim, (long long)heads);
        return false;
    }
    if (heads % kv_heads != 0) {
        tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "%lld heads do not divide among %lld of keys", (long long)heads, (long long)kv_heads);
        return false;
    }
    if (rope_base != 0.0 && !tg_is_normal(rope_base)) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "the rope base is %.9g, not over 0 and finite", rope_base);
        return false;
    }
    if (rope_base == 0.0 || dim / heads % 2 == 0) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "rope needs heads of an even size, not %lld", (long long)(dim / heads));
    return false;
}

tg_attention tg_nn_attention_at(tg_site site, tg_graph *g, const char *name, int64_t dim, int64_t heads, tg_attention_options options) {
    tg_call call;
    const tg_linear none = {{g, 0}, {g, 0}, !options.no_bias};
    const int64_t kv_heads = options.kv_heads == 0 ? heads : options.kv_heads, context = options.context == 0 ? dim : options.context;
    tg_attention layer = {none, none, none, none, heads, kv_heads, options.causal, options.rope_base};
    if (!tg_call_enter_graph(&call, site, "attention", g) || !tg_call_name_ok(&call, name)) return layer;
    call.subject = name;
    if (!check_attention(&call, dim, heads, kv_heads, context, options.rope_base) || !tg_call_push_scope(&call, name)) return layer;
    const tg_linear_options linear = {.no_bias = options.no_bias, .init = options.init, .frozen = options.frozen};
    const int64_t kv_dim = dim / heads * kv_heads;
    layer.q = tg_nn_linear_at(site, g, "q", dim, dim, linear);
    layer.k = tg_nn_linear_at(site, g, "k", context, kv_dim, linear);
    layer.v = tg_nn_linear_at(site, g, "v", context, kv_dim, linear);
    layer.o = tg_nn_linear_at(site, g, "o", dim, dim, linear);
    tg_call_pop_scope(&call);
    return layer;
}

static tg_tensor heads_of(tg_site site, tg_linear layer, tg_tensor x, int64_t heads) {
    return tg_nn_split_heads_at(site, tg_nn_linear_fwd_at(site, layer, x), heads);
}

tg_tensor tg_nn_attention_fwd_at(tg_site site, tg_attention layer, tg_tensor x, tg_attention_inputs inputs) {
    const tg_tensor context = inputs.context.graph == NULL ? x : inputs.context;
    tg_tensor q = heads_of(site, layer.q, x, layer.heads), k = heads_of(site, layer.k, context, layer.kv_heads);
    const tg_tensor v = heads_of(site, layer.v, context, layer.kv_heads);
    if (layer.rope_base != 0.0) {
        q = tg_rope_at(site, q, (tg_rope_options){.base = layer.rope_base});
        k = tg_rope_at(site, k, (tg_rope_options){.base = layer.rope_base});
    }
    const tg_attention_mask mask = {.causal = layer.causal, .mask = inputs.mask};
    tg_tensor heads;
    if (inputs.capture == NULL) heads = tg_nn_attend_at(site, q, k, v, mask);
    else heads = tg_nn_attention_values_at(site, tg_capture_at(site, inputs.capture, tg_nn_attention_weights_at(site, q, k, mask)), v);
    return tg_nn_linear_fwd_at(site, layer.o, tg_nn_merge_heads_at(site, heads));
}
