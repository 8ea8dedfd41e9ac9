/* Layers, composed of primitives: their gradients need no code and fusion makes them fast. Must not
 * know kernels. */
#include "trace/trace.h"

#include <stdio.h>

/* ---------------------------------------------------------------- linear */

tg_linear tg_nn_linear_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, tg_linear_options options) {
    tg_call call;
    tg_linear layer = {{g, 0}, {options.no_bias ? NULL : g, 0}, !options.no_bias};
    if (!tg_call_enter_graph(&call, site, "linear", g) || !tg_call_name_ok(&call, name)) return layer;
    call.subject = name;
    if (in < 1 || out < 1) {
        tg_call_fail(&call, TG_ERROR_SHAPE, NULL, 0, "both sizes need to be at least 1: %lld -> %lld", (long long)in, (long long)out);
        return layer;
    }
    tg_param_options weight = {.init = tg_init_given(&options.init) ? options.init : tg_init_kaiming(0.0), .frozen = TG_FROZEN(options)};
    tg_param_options bias = {.init = tg_init_zeros(), .frozen = weight.frozen};
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.W = tg_param_at(site, g, "W", tg_shape_make(2, (const int64_t[]){in, out}), weight);
    if (layer.has_bias) layer.b = tg_param_at(site, g, "b", tg_shape_make(1, &out), bias);
    tg_call_pop_scope(&call);
    return layer;
}

static bool check_linear(const tg_call *call, const tg_linear *layer, int32_t x) {
    int32_t ids[2] = {x, layer->W.id};
    if (!tg_call_takes(call, x, TG_TAKES_F32) || !tg_call_takes(call, layer->W.id, TG_TAKES_F32)) return false;
    tg_shape in = tg_node_shape(call, x), weight = tg_node_shape(call, layer->W.id);
    if (in.rank < 1 || weight.rank != 2) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the input needs at least 1 axis and W needs 2: %s x %s", TG_LABEL(call, x),
                     TG_LABEL(call, ids[1]));
        return false;
    }
    int64_t inner = in.dim[in.rank - 1];
    if (inner != weight.dim[0]) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "inner dimensions differ: %s x %s (%lld != %lld)", TG_LABEL(call, x),
                     TG_LABEL(call, ids[1]), (long long)inner, (long long)weight.dim[0]);
        return false;
    }
    in.dim[in.rank - 1] = weight.dim[1];
    return tg_call_shape_ok(call, in);
}

static bool check_bias(const tg_call *call, const tg_linear *layer) {
    if (!layer->has_bias) return true;
    tg_shape weight = tg_node_shape(call, layer->W.id);
    int32_t pair[2] = {layer->W.id, layer->b.id};
    tg_shape bias = tg_node_shape(call, pair[1]);
    if (!tg_call_takes(call, pair[1], TG_TAKES_F32)) return false;
    if (bias.rank == 1 && bias.dim[0] == weight.dim[1]) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, pair, 2, "the bias %s does not fit %s", TG_LABEL(call, pair[1]), TG_LABEL(call, pair[0]));
    return false;
}

/* y[..., out] = x[..., in] W[in, out] + b[out]. 2 M in out flop. */
tg_tensor tg_nn_linear_fwd_at(tg_site site, tg_linear layer, tg_tensor x) {
    tg_call call;
    tg_tensor operands[3] = {x, layer.W, layer.b};
    if (!tg_call_enter(&call, site, "linear", operands, layer.has_bias ? 3 : 2) || !check_linear(&call, &layer, x.id) ||
        !check_bias(&call, &layer))
        return tg_call_poison(&call);
    int32_t y = tg_compose_matmul(&call, x.id, layer.W.id);
    if (layer.has_bias) y = tg_ir_binary(call.graph, TG_OP_ADD, y, layer.b.id);
    return tg_call_result(&call, y);
}

/* ---------------------------------------------------------------- embedding */

tg_embedding_table tg_nn_embedding_at(tg_site site, tg_graph *g, const char *name, int64_t count, int64_t dim,
                                      tg_embedding_options options) {
    tg_call call;
    tg_embedding_table layer = {{g, 0}};
    if (!tg_call_enter_graph(&call, site, "embedding", g) || !tg_call_name_ok(&call, name)) return layer;
    call.subject = name;
    if (count < 1 || dim < 1) {
        tg_call_fail(&call, TG_ERROR_SHAPE, NULL, 0, "both sizes need to be at least 1: %lld rows of %lld", (long long)count,
                     (long long)dim);
        return layer;
    }
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.W = tg_param_at(site, g, "W", tg_shape_make(2, (const int64_t[]){count, dim}),
                          (tg_param_options){.init = options.init, .frozen = TG_FROZEN(options)});
    tg_call_pop_scope(&call);
    return layer;
}

tg_tensor tg_nn_embedding_fwd_at(tg_site site, tg_embedding_table layer, tg_tensor indices) {
    return tg_embedding_at(site, layer.W, indices);
}

/* ---------------------------------------------------------------- heads */

/* The axes [..., a, b, d] with a and b exchanged. */
static void nn_swap_before_last(int32_t rank, int32_t perm[TG_MAX_RANK]) {
    for (int32_t i = 0; i < TG_MAX_RANK; i++) perm[i] = i;
    perm[rank - 3] = rank - 2;
    perm[rank - 2] = rank - 3;
}

tg_tensor tg_nn_split_heads_at(tg_site site, tg_tensor x, int64_t heads) {
    tg_call call;
    int32_t perm[TG_MAX_RANK];
    if (!tg_call_enter(&call, site, "split_heads", &x, 1)) return tg_call_poison(&call);
    tg_shape in = tg_node_shape(&call, x.id), split = in;
    if (in.rank < 2)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "needs 2 axes at least, [..., T, H d]: %s", TG_LABEL(&call, x.id));
    if (heads < 1 || in.dim[in.rank - 1] % heads != 0)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "the last axis does not divide into %lld heads: %s", (long long)heads,
                            TG_LABEL(&call, x.id));
    split.rank = in.rank + 1;
    split.dim[in.rank - 1] = heads;
    if (in.rank < TG_MAX_RANK) split.dim[in.rank] = in.dim[in.rank - 1] / heads;
    if (!tg_call_shape_ok(&call, split)) return tg_call_poison(&call);
    nn_swap_before_last(split.rank, perm);
    return tg_call_result(&call, tg_ir_permute(call.graph, tg_ir_reshape(call.graph, x.id, split), perm));
}

tg_tensor tg_nn_merge_heads_at(tg_site site, tg_tensor x) {
    tg_call call;
    int32_t perm[TG_MAX_RANK];
    if (!tg_call_enter(&call, site, "merge_heads", &x, 1)) return tg_call_poison(&call);
    tg_shape in = tg_node_shape(&call, x.id), merged = in;
    if (in.rank < 3)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "needs 3 axes at least, [..., H, T, d]: %s", TG_LABEL(&call, x.id));
    merged.rank = in.rank - 1;
    merged.dim[in.rank - 3] = in.dim[in.rank - 2];
    merged.dim[in.rank - 2] = in.dim[in.rank - 3] * in.dim[in.rank - 1];
    nn_swap_before_last(in.rank, perm);
    return tg_call_result(&call, tg_ir_reshape(call.graph, tg_ir_permute(call.graph, x.id, perm), merged));
}

/* ---------------------------------------------------------------- MLP */

tg_mlp tg_nn_mlp_at(tg_site site, tg_graph *g, const char *name, const int64_t *sizes, int count, tg_mlp_options options) {
    tg_call call;
    tg_mlp mlp = {.count = 0, .activation = options.activation, .activate_last = options.activate_last};
    for (int i = 0; i < TG_MLP_LAYERS; i++) mlp.layers[i] = (tg_linear){{g, 0}, {g, 0}, !options.no_bias};
    mlp.count = 1; /* of a failed one, whose parameters are poison */
    if (!tg_call_enter_graph(&call, site, "mlp", g) || !tg_call_name_ok(&call, name)) return mlp;
    call.subject = name;
    if (sizes == NULL || count < 2) {
        tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "%d sizes given: at least 2 are needed, of the input and the output",
                     sizes == NULL ? 0 : count);
        return mlp;
    }
    if (count > TG_MLP_LAYERS + 1) {
        tg_call_fail(&call, TG_ERROR_LIMIT, NULL, 0, "%d sizes given: more than %d layers", count, TG_MLP_LAYERS);
        return mlp;
    }
    if (!tg_call_push_scope(&call, name)) return mlp;
    mlp.count = count - 1;
    for (int i = 0; i < mlp.count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        mlp.layers[i] = tg_nn_linear_at(site, g, number, sizes[i], sizes[i + 1],
                                        (tg_linear_options){.no_bias = options.no_bias, .init = options.init, .frozen = options.frozen});
    }
    tg_call_pop_scope(&call);
    return mlp;
}

tg_tensor tg_nn_mlp_fwd_at(tg_site site, tg_mlp mlp, tg_tensor x) {
    /* A struct that tg_nn_mlp did not make. */
    if (mlp.count < 1 || mlp.count > TG_MLP_LAYERS) {
        tg_call call;
        if (!tg_call_enter(&call, site, "mlp", &x, 1)) return tg_call_poison(&call);
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "%d layers: 1 to %d are possible: %s", mlp.count, TG_MLP_LAYERS,
                            TG_LABEL(&call, x.id));
    }
    for (int i = 0; i < mlp.count; i++) {
        x = tg_nn_linear_fwd_at(site, mlp.layers[i], x);
        if (i == mlp.count - 1 && !mlp.activate_last) break;
        x = mlp.activation != NULL ? mlp.activation(site, x) : tg_relu_at(site, x);
    }
    return x;
}
