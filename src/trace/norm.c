/* Normalisations: over the last axis, over groups of channels, over the batch. Composed of
 * primitives. Fusion makes a row, a group or a channel one unit of work. Must not know kernels. */
#include "trace/trace.h"

#include <math.h>

/* ---------------------------------------------------------------- making them */

static double eps_of(double eps) { return tg_value_or(eps, 1e-5); }

/* With `call` entered: checks what all layers of this file have, and opens the scope. */
static bool open_norm(tg_call *call, tg_site site, const char *op, tg_graph *g, const char *name, int64_t size, double eps) {
    if (!tg_call_enter_graph(call, site, op, g) || !tg_call_name_ok(call, name)) return false;
    call->subject = name;
    if (size < 1) {
        tg_call_fail(call, TG_ERROR_SHAPE, NULL, 0, "the size needs to be at least 1, not %lld", (long long)size);
        return false;
    }
    if (eps >= 0 && eps <= (double)FLT_MAX) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "eps is %.9g", eps);
    return false;
}

static tg_tensor norm_param(tg_site site, tg_graph *g, const char *name, int64_t size, tg_init init, tg_choice frozen) {
    return tg_param_at(site, g, name, TG_SHAPE(size), (tg_param_options){.init = init, .frozen = frozen});
}

tg_layer_norm tg_nn_layer_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_layer_norm_options options) {
    tg_call call;
    tg_layer_norm layer = {{g, 0}, {g, 0}, eps_of(options.eps)};
    if (!open_norm(&call, site, "layer_norm", g, name, dim, layer.eps) || !tg_call_push_scope(&call, name)) return layer;
    layer.g = norm_param(site, g, "g", dim, tg_init_ones(), TG_FROZEN(options));
    layer.b = norm_param(site, g, "b", dim, tg_init_zeros(), TG_FROZEN(options));
    tg_call_pop_scope(&call);
    return layer;
}

tg_rms_norm tg_nn_rms_norm_at(tg_site site, tg_graph *g, const char *name, int64_t dim, tg_rms_norm_options options) {
    tg_call call;
    tg_rms_norm layer = {{g, 0}, eps_of(options.eps)};
    if (!open_norm(&call, site, "rms_norm", g, name, dim, layer.eps) || !tg_call_push_scope(&call, name)) return layer;
    layer.g = norm_param(site, g, "g", dim, tg_init_ones(), TG_FROZEN(options));
    tg_call_pop_scope(&call);
    return layer;
}

tg_group_norm tg_nn_group_norm_at(tg_site site, tg_graph *g, const char *name, int64_t groups, int64_t channels,
                                  tg_group_norm_options options) {
    tg_call call;
    tg_group_norm layer = {{g, 0}, {g, 0}, groups, eps_of(options.eps)};
    if (!open_norm(&call, site, "group_norm", g, name, channels, layer.eps)) return layer;
    if (groups < 1 || channels % groups != 0) {
        tg_call_fail(&call, groups < 1 ? TG_ERROR_ARGUMENT : TG_ERROR_SHAPE, NULL, 0, "%lld channels do not divide into %lld groups",
                     (long long)channels, (long long)groups);
        return layer;
    }
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.g = norm_param(site, g, "g", channels, tg_init_ones(), TG_FROZEN(options));
    layer.b = norm_param(site, g, "b", channels, tg_init_zeros(), TG_FROZEN(options));
    tg_call_pop_scope(&call);
    return layer;
}

static tg_tensor norm_state(tg_site site, tg_call *call, const char *name, int64_t size, double value) {
    const char *full = tg_call_full_name(call, name);
    return full == NULL ? tg_call_poison(call) : tg_state_at(site, call->graph, full, TG_SHAPE(size), TG_F32, value);
}

tg_batch_norm tg_nn_batch_norm_at(tg_site site, tg_graph *g, const char *name, int64_t channels, tg_batch_norm_options options) {
    tg_call call;
    const double momentum = tg_value_or(options.momentum, 0.1);
    tg_batch_norm layer = {{g, 0}, {g, 0}, {g, 0}, {g, 0}, eps_of(options.eps), momentum};
    if (!open_norm(&call, site, "batch_norm", g, name, channels, layer.eps)) return layer;
    if (!(momentum >= 0 && momentum <= 1)) {
        tg_call_fail(&call, TG_ERROR_ARGUMENT, NULL, 0, "the momentum is %.9g, not in [0, 1]", momentum);
        return layer;
    }
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.g = norm_param(site, g, "g", channels, tg_init_ones(), TG_FROZEN(options));
    layer.b = norm_param(site, g, "b", channels, tg_init_zeros(), TG_FROZEN(options));
    layer.mean = norm_state(site, &call, "mean", channels, 0.0);
    layer.var = norm_state(site, &call, "var", channels, 1.0);
    tg_call_pop_scope(&call);
    return layer;
}

/* ---------------------------------------------------------------- pieces */

static int32_t norm_binary(const tg_call *call, tg_op op, int32_t a, int32_t b) { return tg_ir_binary(call->graph, op, a, b); }

static int64_t norm_count(const tg_call *call, int32_t x, uint32_t axes) {
    const tg_shape shape = tg_node_shape(call, x);
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        if ((axes >> (unsigned)i & 1u) != 0) count *= shape.dim[i];
    return count;
}

/* 1 / sqrt(x + eps) */
static int32_t norm_scale(const tg_call *call, int32_t x, int32_t eps) {
    return tg_ir_unary(call->graph, TG_OP_RSQRT, norm_binary(call, TG_OP_ADD, x, eps));
}

/* x / sqrt(mean(x^2) + eps) over the axes; `roughly` is nearly x. *mean_square: mean(x^2); may be
 * NULL. */
static int32_t rms_normalized(const tg_call *call, int32_t x, int32_t roughly, uint32_t axes, double eps, int32_t *mean_square) {
    const tg_squares squares = tg_compose_squares(call, x, roughly, axes, eps);
    const int32_t count = tg_compose_number(call, (double)norm_count(call, x, axes));
    const int32_t mean = norm_binary(call, TG_OP_DIV, squares.sum, count);
    if (mean_square != NULL) *mean_square = tg_compose_unscaled(call, squares, mean);
    /* one number for each row times x, so that the number is not computed again for each element */
    const int32_t factor = norm_binary(call, TG_OP_MUL, norm_scale(call, mean, squares.eps), squares.scale);
    return norm_binary(call, TG_OP_MUL, x, factor);
}

/* (x - mean) / sqrt(variance + eps) over the axes, with the biased variance. */
static int32_t standardized(const tg_call *call, int32_t x, uint32_t axes, double eps) {
    const tg_centred centred = tg_compose_centred(call, x, tg_compose_mean(call, x, axes), axes);
    return rms_normalized(call, centred.twice, centred.once, axes, eps, NULL);
}

static bool all_f32(const tg_call *call, const tg_tensor *operands, int count) {
    for (int i = 0; i < count; i++)
        if (!tg_call_takes(call, operands[i].id, TG_TAKES_F32)) return false;
    return true;
}

/* ---------------------------------------------------------------- over the last axis */

/* operands: x, gain and, if count is 3, bias. */
static bool enter_rows(tg_call *call, tg_site site, const char *op, const tg_tensor *operands, int count) {
    if (!tg_call_enter(call, site, op, operands, count) || !all_f32(call, operands, count)) return false;
    const int32_t ids[3] = {operands[0].id, operands[1].id, operands[count - 1].id};
    const tg_shape in = tg_node_shape(call, ids[0]), scale = tg_node_shape(call, ids[1]);
    if (in.rank >= 1 && scale.rank == 1 && tg_shape_equal(scale, tg_node_shape(call, ids[2])) && in.dim[in.rank - 1] == scale.dim[0])
        return true;
    if (count == 2)
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the last axis does not fit: %s with %s", TG_LABEL(call, ids[0]),
                     TG_LABEL(call, ids[1]));
    else
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 3, "the last axis does not fit: %s with %s and %s", TG_LABEL(call, ids[0]),
                     TG_LABEL(call, ids[1]), TG_LABEL(call, ids[2]));
    return false;
}

/* Over the last axis: (x - mean) / sqrt(var + eps) g + b, var = mean((x - mean)^2) (Ba, Kiros &
 * Hinton 2016). */
tg_tensor tg_nn_layer_norm_fwd_at(tg_site site, tg_layer_norm layer, tg_tensor x) {
    tg_call call;
    const tg_tensor operands[3] = {x, layer.g, layer.b};
    if (!enter_rows(&call, site, "layer_norm", operands, 3)) return tg_call_poison(&call);
    const int32_t y = standardized(&call, x.id, 1u << (unsigned)(tg_node_shape(&call, x.id).rank - 1), layer.eps);
    return tg_call_result(&call, norm_binary(&call, TG_OP_ADD, norm_binary(&call, TG_OP_MUL, y, layer.g.id), layer.b.id));
}

/* x / sqrt(mean(x^2) + eps) g (Zhang & Sennrich 2019). */
tg_tensor tg_nn_rms_norm_fwd_at(tg_site site, tg_rms_norm layer, tg_tensor x) {
    tg_call call;
    const tg_tensor operands[2] = {x, layer.g};
    if (!enter_rows(&call, site, "rms_norm", operands, 2)) return tg_call_poison(&call);
    const uint32_t last = 1u << (unsigned)(tg_node_shape(&call, x.id).rank - 1);
    return tg_call_result(&call, norm_binary(&call, TG_OP_MUL, rms_normalized(&call, x.id, x.id, last, layer.eps, NULL), layer.g.id));
}

/* ---------------------------------------------------------------- over channels
 * They are axis 1 of [N, C, ...]. */

static bool enter_channels(tg_call *call, tg_site site, const char *op, const tg_tensor *operands, int count) {
    if (!tg_call_enter(call, site, op, operands, count) || !all_f32(call, operands, count)) return false;
    const tg_shape in = tg_node_shape(call, operands[0].id);
    for (int i = 1; i < count; i++) {
        const tg_shape each = tg_node_shape(call, operands[i].id);
        if (in.rank >= 2 && each.rank == 1 && each.dim[0] == in.dim[1]) continue;
        const int32_t ids[2] = {operands[0].id, operands[i].id};
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "axis 1 of [N, C, ...] does not fit: %s with %s", TG_LABEL(call, ids[0]),
                     TG_LABEL(call, ids[1]));
        return false;
    }
    return true;
}

/* [C] -> [C, 1, ...], which broadcasts to x. */
static int32_t channel_column(const tg_call *call, int32_t each, int32_t x) {
    tg_shape shape = tg_node_shape(call, each);
    for (shape.rank = 1; shape.rank < tg_node_shape(call, x).rank - 1; shape.rank++) shape.dim[shape.rank] = 1;
    return tg_ir_reshape(call->graph, each, shape);
}

static int32_t gained(const tg_call *call, int32_t y, int32_t gain, int32_t bias) {
    const int32_t g = channel_column(call, gain, y), b = channel_column(call, bias, y);
    return norm_binary(call, TG_OP_ADD, norm_binary(call, TG_OP_MUL, y, g), b);
}

/* The channels of a group, with all axes after them, are one row (Wu & He 2018). */
tg_tensor tg_nn_group_norm_fwd_at(tg_site site, tg_group_norm layer, tg_tensor x) {
    tg_call call;
    const tg_tensor operands[3] = {x, layer.g, layer.b};
    if (!enter_channels(&call, site, "group_norm", operands, 3)) return tg_call_poison(&call);
    const tg_shape in = tg_node_shape(&call, x.id);
    if (layer.groups < 1 || in.dim[1] % layer.groups != 0)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "axis 1 does not divide into %lld groups: %s", (long long)layer.groups,
                            TG_LABEL(&call, x.id));
    const int64_t rows = in.dim[0] * layer.groups;
    const int32_t grouped = tg_ir_reshape(call.graph, x.id, TG_SHAPE(rows, tg_shape_count(in) / rows));
    const int32_t y = tg_ir_reshape(call.graph, standardized(&call, grouped, 2u, layer.eps), in);
    return tg_call_result(&call, gained(&call, y, layer.g.id, layer.b.id));
}

/* After the step the state becomes old + momentum (now - old). now: [1, C, 1, ...] */
static void keep_running(tg_site site, const tg_call *call, tg_tensor state, int32_t now, double momentum) {
    const int32_t flat = tg_ir_reshape(call->graph, now, tg_node_shape(call, state.id));
    const int32_t change = tg_compose_scale(call, norm_binary(call, TG_OP_SUB, flat, state.id), momentum);
    const int32_t next = norm_binary(call, TG_OP_ADD, state.id, change);
    if (next != 0) tg_writeback_at(site, state, (tg_tensor){call->graph, next});
}

/* Normalises each channel over the batch and all axes after the channels (Ioffe & Szegedy 2015). */
tg_tensor tg_nn_batch_norm_fwd_at(tg_site site, tg_batch_norm layer, tg_tensor x, bool training) {
    tg_call call;
    const tg_tensor operands[5] = {x, layer.g, layer.b, layer.mean, layer.var};
    if (!enter_channels(&call, site, "batch_norm", operands, 5)) return tg_call_poison(&call);
    tg_graph *g = call.graph;
    if (!training) {
        const int32_t centred = norm_binary(&call, TG_OP_SUB, x.id, channel_column(&call, layer.mean.id, x.id));
        const int32_t scale = norm_scale(&call, channel_column(&call, layer.var.id, x.id), tg_compose_number(&call, layer.eps));
        return tg_call_result(&call, gained(&call, norm_binary(&call, TG_OP_MUL, centred, scale), layer.g.id, layer.b.id));
    }
    const tg_shape in = tg_node_shape(&call, x.id);
    const uint32_t axes = ((1u << (unsigned)in.rank) - 1u) & ~2u;
    const int64_t count = tg_shape_count(in) / in.dim[1];
    if (count < 2)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "training needs at least 2 numbers for each channel: %s",
                            TG_LABEL(&call, x.id));
    const int32_t mean = tg_compose_mean(&call, x.id, axes);
    const tg_centred centred = tg_compose_centred(&call, x.id, mean, axes);
    int32_t variance = 0;
    const int32_t normalized = rms_normalized(&call, centred.twice, centred.once, axes, layer.eps, &variance);
    const int32_t y = gained(&call, normalized, layer.g.id, layer.b.id);
    const int32_t unbiased = tg_compose_scale(&call, variance, (double)count / (double)(count - 1));
    const tg_tensor result = tg_call_result(&call, y);
    keep_running(site, &call, layer.mean, mean, layer.momentum);
    keep_running(site, &call, layer.var, unbiased, layer.momentum);
    return g->ctx->status == TG_OK ? result : tg_call_poison(&call);
}
