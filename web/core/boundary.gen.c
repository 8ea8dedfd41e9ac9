/* Structs out of numbers, and operations by number. Written by scripts/make-boundary from web/core/boundary.def: change that. */
#include "boundary.gen.h"

#include "ops.h"

#include <stddef.h>

static tg_lr web_take_lr(web_arguments *given) {
    tg_lr s = {0};
    s.peak = web_take_number(given);
    s.kind = (tg_lr_kind)web_take_small(given);
    s.final = web_take_number(given);
    s.steps = web_take_whole(given);
    s.after_kind = (tg_lr_kind)web_take_small(given);
    s.after_peak = web_take_number(given);
    s.after_final = web_take_number(given);
    s.after_steps = web_take_whole(given);
    s.factor = web_take_number(given);
    s.initial = web_take_number(given);
    s.rise = web_take_whole(given);
    for (int i = 0; i < 6; i++) s.milestones[i] = web_take_whole(given);
    s.milestone_count = web_take_small(given);
    s.more_count = web_take_small(given);
    s.more_peaks[0] = web_take_number(given);
    s.more_steps[0] = web_take_whole(given);
    return s;
}

static tg_optimizer web_take_optimizer(web_arguments *given) {
    tg_optimizer s = {0};
    s.kind = (tg_optimizer_kind)web_take_small(given);
    s.lr = web_take_lr(given);
    s.beta1 = web_take_number(given);
    s.beta2 = web_take_number(given);
    s.eps = web_take_number(given);
    s.eps_mode = (tg_eps_mode)web_take_small(given);
    s.weight_decay = web_take_number(given);
    s.momentum = web_take_number(given);
    s.nesterov = web_take_flag(given);
    s.clip_norm = web_take_number(given);
    s.clip_value = web_take_number(given);
    s.normalize = web_take_flag(given);
    s.skip_non_finite = web_take_flag(given);
    s.accumulate = web_take_whole(given);
    s.average = web_take_number(given);
    return s;
}

static tg_param_group web_take_param_group(web_arguments *given) {
    tg_param_group s = {0};
    s.rate = web_take_number(given);
    s.weight_decay = web_take_number(given);
    s.decay = (tg_choice)web_take_small(given);
    s.frozen = web_take_flag(given);
    s.plain = web_take_flag(given);
    return s;
}

static tg_padding web_take_padding(web_arguments *given) {
    tg_padding s = {0};
    s.mode = (tg_padding_mode)web_take_small(given);
    for (int i = 0; i < 2; i++) s.before[i] = web_take_whole(given);
    for (int i = 0; i < 2; i++) s.after[i] = web_take_whole(given);
    return s;
}

static tg_compile_options web_take_compile_options(web_arguments *given) {
    tg_compile_options s = {0};
    s.optimizer = web_take_optimizer(given);
    s.seed = web_take_bits(given);
    s.device = (tg_device_kind)web_take_small(given);
    s.no_fusion = web_take_flag(given);
    s.check_finite = web_take_flag(given);
    s.precision = (tg_precision)web_take_small(given);
    s.loss_scale = web_take_number(given);
    return s;
}

static tg_train_options web_take_train_options(web_arguments *given) {
    tg_train_options s = {0};
    s.steps = web_take_whole(given);
    s.order = (tg_batch_order)web_take_small(given);
    s.seed = web_take_bits(given);
    s.steps_per_submission = web_take_whole(given);
    s.target_loss = web_take_number(given);
    s.patience = web_take_whole(given);
    return s;
}

static tg_reduce_options web_take_reduce_options(web_arguments *given) {
    tg_reduce_options s = {0};
    s.keepdims = web_take_flag(given);
    return s;
}

static tg_sort_options web_take_sort_options(web_arguments *given) {
    tg_sort_options s = {0};
    s.descending = web_take_flag(given);
    return s;
}

static tg_variance_options web_take_variance_options(web_arguments *given) {
    tg_variance_options s = {0};
    s.keepdims = web_take_flag(given);
    s.correction = web_take_small(given);
    return s;
}

static tg_scan_options web_take_scan_options(web_arguments *given) {
    tg_scan_options s = {0};
    s.exclusive = web_take_flag(given);
    s.reverse = web_take_flag(given);
    return s;
}

static tg_layer_norm web_take_layer_norm(web_arguments *given) {
    tg_layer_norm s = {0};
    s.g = web_take_optional(given);
    s.b = web_take_optional(given);
    s.eps = web_take_number(given);
    return s;
}

static tg_rms_norm web_take_rms_norm(web_arguments *given) {
    tg_rms_norm s = {0};
    s.g = web_take_optional(given);
    s.eps = web_take_number(given);
    return s;
}

static tg_recurrent web_take_recurrent(web_arguments *given) {
    tg_recurrent s = {0};
    s.Wx = web_take_optional(given);
    s.Wh = web_take_optional(given);
    s.bx = web_take_optional(given);
    s.bh = web_take_optional(given);
    s.has_bias = web_take_flag(given);
    s.relu = web_take_flag(given);
    return s;
}

static tg_recurrent_start web_take_recurrent_start(web_arguments *given) {
    tg_recurrent_start s = {0};
    s.h0 = web_take_optional(given);
    s.c0 = web_take_optional(given);
    return s;
}

static tg_lstm_states web_take_lstm_states(web_arguments *given) {
    tg_lstm_states s = {0};
    s.h = web_take_optional(given);
    s.c = web_take_optional(given);
    return s;
}

static tg_loss_options web_take_loss_options(web_arguments *given) {
    tg_loss_options s = {0};
    s.reduction = (tg_reduction)web_take_small(given);
    return s;
}

static tg_bce_options web_take_bce_options(web_arguments *given) {
    tg_bce_options s = {0};
    s.reduction = (tg_reduction)web_take_small(given);
    s.positive_weight = web_take_optional(given);
    return s;
}

static tg_conv_options web_take_conv_options(web_arguments *given) {
    tg_conv_options s = {0};
    for (int i = 0; i < 2; i++) s.stride[i] = web_take_whole(given);
    s.padding = web_take_padding(given);
    for (int i = 0; i < 2; i++) s.dilation[i] = web_take_whole(given);
    s.groups = web_take_whole(given);
    for (int i = 0; i < 2; i++) s.output_padding[i] = web_take_whole(given);
    s.bias = web_take_optional(given);
    return s;
}

static tg_pool_options web_take_pool_options(web_arguments *given) {
    tg_pool_options s = {0};
    for (int i = 0; i < 2; i++) s.stride[i] = web_take_whole(given);
    s.padding = web_take_padding(given);
    s.ceil_mode = web_take_flag(given);
    s.exclude_padding = web_take_flag(given);
    return s;
}

static tg_upsample_options web_take_upsample_options(web_arguments *given) {
    tg_upsample_options s = {0};
    for (int i = 0; i < 2; i++) s.factor[i] = web_take_whole(given);
    s.align_corners = web_take_flag(given);
    return s;
}

static tg_rope_options web_take_rope_options(web_arguments *given) {
    tg_rope_options s = {0};
    s.base = web_take_number(given);
    s.interleaved = web_take_flag(given);
    s.positions = web_take_optional(given);
    return s;
}

static tg_norm_options web_take_norm_options(web_arguments *given) {
    tg_norm_options s = {0};
    s.keepdims = web_take_flag(given);
    s.ord = web_take_number(given);
    return s;
}

static tg_cross_entropy_options web_take_cross_entropy_options(web_arguments *given) {
    tg_cross_entropy_options s = {0};
    s.reduction = (tg_reduction)web_take_small(given);
    s.label_smoothing = web_take_number(given);
    return s;
}

static tg_linear web_take_linear(web_arguments *given) {
    tg_linear s = {0};
    s.W = web_take_optional(given);
    s.b = web_take_optional(given);
    s.has_bias = web_take_flag(given);
    return s;
}

static tg_group_norm web_take_group_norm(web_arguments *given) {
    tg_group_norm s = {0};
    s.g = web_take_optional(given);
    s.b = web_take_optional(given);
    s.groups = web_take_whole(given);
    s.eps = web_take_number(given);
    return s;
}

static tg_batch_norm web_take_batch_norm(web_arguments *given) {
    tg_batch_norm s = {0};
    s.g = web_take_optional(given);
    s.b = web_take_optional(given);
    s.mean = web_take_optional(given);
    s.var = web_take_optional(given);
    s.eps = web_take_number(given);
    s.momentum = web_take_number(given);
    return s;
}

static tg_huber_options web_take_huber_options(web_arguments *given) {
    tg_huber_options s = {0};
    s.reduction = (tg_reduction)web_take_small(given);
    s.delta = web_take_number(given);
    return s;
}

static tg_kl_options web_take_kl_options(web_arguments *given) {
    tg_kl_options s = {0};
    s.reduction = (tg_reduction)web_take_small(given);
    s.log_target = web_take_flag(given);
    return s;
}

static tg_attention_mask web_take_attention_mask(web_arguments *given) {
    tg_attention_mask s = {0};
    s.causal = web_take_flag(given);
    s.mask = web_take_optional(given);
    return s;
}

tg_lr web_lr_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 21};
    return web_take_lr(&given);
}

tg_optimizer web_optimizer_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 35};
    return web_take_optimizer(&given);
}

tg_param_group web_param_group_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 5};
    return web_take_param_group(&given);
}

tg_padding web_padding_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 5};
    return web_take_padding(&given);
}

tg_compile_options web_compile_options_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 42};
    return web_take_compile_options(&given);
}

tg_train_options web_train_options_of(const double *numbers) {
    web_arguments given = {.number = numbers, .number_end = numbers + 7};
    return web_take_train_options(&given);
}

/* form: the case below. function: what that calls, where several operations share it. */
static const struct web_op_row {
    void (*function)(void);
    int32_t form;
} web_op_rows[] = {
    {(void (*)(void))tg_neg_at, 0}, /* neg */
    {(void (*)(void))tg_abs_at, 0}, /* abs */
    {(void (*)(void))tg_sign_at, 0}, /* sign */
    {(void (*)(void))tg_square_at, 0}, /* square */
    {(void (*)(void))tg_sqrt_at, 0}, /* sqrt */
    {(void (*)(void))tg_rsqrt_at, 0}, /* rsqrt */
    {(void (*)(void))tg_reciprocal_at, 0}, /* reciprocal */
    {(void (*)(void))tg_exp_at, 0}, /* exp */
    {(void (*)(void))tg_log_at, 0}, /* log */
    {(void (*)(void))tg_sin_at, 0}, /* sin */
    {(void (*)(void))tg_cos_at, 0}, /* cos */
    {(void (*)(void))tg_tanh_at, 0}, /* tanh */
    {(void (*)(void))tg_erf_at, 0}, /* erf */
    {(void (*)(void))tg_sigmoid_at, 0}, /* sigmoid */
    {(void (*)(void))tg_softplus_at, 0}, /* softplus */
    {(void (*)(void))tg_expm1_at, 0}, /* expm1 */
    {(void (*)(void))tg_log1p_at, 0}, /* log1p */
    {(void (*)(void))tg_floor_at, 0}, /* floor */
    {(void (*)(void))tg_ceil_at, 0}, /* ceil */
    {(void (*)(void))tg_round_at, 0}, /* round */
    {(void (*)(void))tg_tan_at, 0}, /* tan */
    {(void (*)(void))tg_log_sigmoid_at, 0}, /* log_sigmoid */
    {(void (*)(void))tg_hard_sigmoid_at, 0}, /* hard_sigmoid */
    {(void (*)(void))tg_hard_swish_at, 0}, /* hard_swish */
    {(void (*)(void))tg_silu_at, 0}, /* silu */
    {(void (*)(void))tg_gelu_at, 0}, /* gelu */
    {(void (*)(void))tg_gelu_tanh_at, 0}, /* gelu_tanh */
    {(void (*)(void))tg_relu_at, 0}, /* relu */
    {(void (*)(void))tg_logical_not_at, 0}, /* logical_not */
    {(void (*)(void))tg_stop_gradient_at, 0}, /* stop_gradient */
    {(void (*)(void))tg_softmax_causal_last_at, 0}, /* softmax_causal_last */
    {(void (*)(void))tg_nn_merge_heads_at, 0}, /* nn_merge_heads */
    {(void (*)(void))tg_global_avg_pool_at, 0}, /* global_avg_pool */
    {(void (*)(void))tg_global_max_pool_at, 0}, /* global_max_pool */
    {(void (*)(void))tg_add_at, 1}, /* add */
    {(void (*)(void))tg_sub_at, 1}, /* sub */
    {(void (*)(void))tg_mul_at, 1}, /* mul */
    {(void (*)(void))tg_div_at, 1}, /* div */
    {(void (*)(void))tg_floor_div_at, 1}, /* floor_div */
    {(void (*)(void))tg_mod_at, 1}, /* mod */
    {(void (*)(void))tg_pow_at, 1}, /* pow */
    {(void (*)(void))tg_minimum_at, 1}, /* minimum */
    {(void (*)(void))tg_maximum_at, 1}, /* maximum */
    {(void (*)(void))tg_less_at, 1}, /* less */
    {(void (*)(void))tg_less_equal_at, 1}, /* less_equal */
    {(void (*)(void))tg_greater_at, 1}, /* greater */
    {(void (*)(void))tg_greater_equal_at, 1}, /* greater_equal */
    {(void (*)(void))tg_equal_at, 1}, /* equal */
    {(void (*)(void))tg_not_equal_at, 1}, /* not_equal */
    {(void (*)(void))tg_logical_and_at, 1}, /* logical_and */
    {(void (*)(void))tg_logical_or_at, 1}, /* logical_or */
    {(void (*)(void))tg_matmul_at, 2}, /* matmul */
    {(void (*)(void))tg_matmul_batched_at, 2}, /* matmul_batched */
    {(void (*)(void))tg_embedding_at, 2}, /* embedding */
    {(void (*)(void))tg_nn_cross_entropy_last_at, 2}, /* nn_cross_entropy_last */
    {NULL, 3}, /* where */
    {(void (*)(void))tg_nn_attention_values_at, 2}, /* nn_attention_values */
    {(void (*)(void))tg_sum_at, 4}, /* sum */
    {(void (*)(void))tg_mean_at, 4}, /* mean */
    {(void (*)(void))tg_max_at, 4}, /* max */
    {(void (*)(void))tg_min_at, 4}, /* min */
    {(void (*)(void))tg_prod_at, 4}, /* prod */
    {(void (*)(void))tg_any_at, 4}, /* any */
    {(void (*)(void))tg_all_at, 4}, /* all */
    {(void (*)(void))tg_argmax_at, 5}, /* argmax */
    {(void (*)(void))tg_argmin_at, 5}, /* argmin */
    {(void (*)(void))tg_softmax_at, 6}, /* softmax */
    {(void (*)(void))tg_log_softmax_at, 6}, /* log_softmax */
    {(void (*)(void))tg_logsumexp_at, 6}, /* logsumexp */
    {(void (*)(void))tg_categorical_at, 6}, /* categorical */
    {(void (*)(void))tg_concat_at, 7}, /* concat */
    {(void (*)(void))tg_stack_at, 7}, /* stack */
    {(void (*)(void))tg_expand_dims_at, 6}, /* expand_dims */
    {(void (*)(void))tg_gather_at, 8}, /* gather */
    {(void (*)(void))tg_take_along_axis_at, 8}, /* take_along_axis */
    {NULL, 9}, /* scatter_add */
    {(void (*)(void))tg_masked_softmax_at, 8}, /* masked_softmax */
    {(void (*)(void))tg_reshape_at, 10}, /* reshape */
    {(void (*)(void))tg_broadcast_to_at, 10}, /* broadcast_to */
    {(void (*)(void))tg_squeeze_at, 11}, /* squeeze */
    {(void (*)(void))tg_flip_at, 11}, /* flip */
    {(void (*)(void))tg_sort_at, 12}, /* sort */
    {(void (*)(void))tg_argsort_at, 12}, /* argsort */
    {(void (*)(void))tg_variance_at, 13}, /* variance */
    {(void (*)(void))tg_std_at, 13}, /* std */
    {(void (*)(void))tg_cumsum_at, 14}, /* cumsum */
    {(void (*)(void))tg_cumprod_at, 14}, /* cumprod */
    {(void (*)(void))tg_tril_at, 15}, /* tril */
    {(void (*)(void))tg_triu_at, 15}, /* triu */
    {NULL, 16}, /* nn_layer_norm_fwd */
    {NULL, 17}, /* nn_rms_norm_fwd */
    {(void (*)(void))tg_nn_rnn_fwd_at, 18}, /* nn_rnn_fwd */
    {(void (*)(void))web_rnn_step, 19}, /* nn_rnn_step */
    {(void (*)(void))tg_nn_gru_fwd_at, 18}, /* nn_gru_fwd */
    {(void (*)(void))web_gru_step, 19}, /* nn_gru_step */
    {(void (*)(void))web_lstm_fwd, 18}, /* nn_lstm_fwd */
    {(void (*)(void))web_lstm_step, 19}, /* nn_lstm_step */
    {(void (*)(void))tg_nn_mse_at, 20}, /* nn_mse */
    {(void (*)(void))tg_nn_l1_at, 20}, /* nn_l1 */
    {NULL, 21}, /* nn_bce_with_logits */
    {(void (*)(void))tg_conv1d_at, 22}, /* conv1d */
    {(void (*)(void))tg_conv2d_at, 22}, /* conv2d */
    {(void (*)(void))tg_conv_transpose1d_at, 22}, /* conv_transpose1d */
    {(void (*)(void))tg_conv_transpose2d_at, 22}, /* conv_transpose2d */
    {(void (*)(void))tg_max_pool1d_at, 23}, /* max_pool1d */
    {(void (*)(void))tg_avg_pool1d_at, 23}, /* avg_pool1d */
    {(void (*)(void))tg_max_pool2d_at, 24}, /* max_pool2d */
    {(void (*)(void))tg_avg_pool2d_at, 24}, /* avg_pool2d */
    {(void (*)(void))tg_upsample_nearest_at, 25}, /* upsample_nearest */
    {(void (*)(void))tg_upsample_bilinear_at, 25}, /* upsample_bilinear */
    {(void (*)(void))tg_tile_at, 10}, /* tile */
    {NULL, 26}, /* clamp */
    {(void (*)(void))tg_leaky_relu_at, 27}, /* leaky_relu */
    {(void (*)(void))tg_elu_at, 27}, /* elu */
    {NULL, 28}, /* cast */
    {(void (*)(void))tg_transpose_at, 11}, /* transpose */
    {NULL, 29}, /* swap_axes */
    {NULL, 30}, /* slice_last_range */
    {NULL, 31}, /* narrow */
    {NULL, 32}, /* one_hot */
    {(void (*)(void))tg_where_causal_at, 27}, /* where_causal */
    {(void (*)(void))tg_dropout_at, 27}, /* dropout */
    {NULL, 33}, /* pad */
    {(void (*)(void))tg_roll_at, 34}, /* roll */
    {(void (*)(void))tg_repeat_at, 34}, /* repeat */
    {NULL, 35}, /* top_k */
    {NULL, 36}, /* einsum */
    {NULL, 37}, /* rope */
    {NULL, 38}, /* norm */
    {NULL, 39}, /* nn_cross_entropy */
    {(void (*)(void))tg_nn_split_heads_at, 15}, /* nn_split_heads */
    {NULL, 40}, /* nn_linear_fwd */
    {NULL, 41}, /* nn_group_norm_fwd */
    {NULL, 42}, /* nn_batch_norm_fwd */
    {NULL, 43}, /* nn_nll */
    {NULL, 44}, /* nn_huber */
    {NULL, 45}, /* nn_kl_div */
    {NULL, 46}, /* nn_attend */
    {NULL, 47}, /* nn_attention_weights */
    {NULL, 48}, /* resolve_lr */
};

tg_tensor web_call_op(web_arguments *given, int32_t op) {
    if (op < 0 || op >= (int32_t)(sizeof web_op_rows / sizeof *web_op_rows)) return web_misfit(given);
    const struct web_op_row *row = &web_op_rows[op];
    switch (row->form) {
    case 0: { /* neg abs sign ... */
        const tg_tensor x = web_take_tensor(given);
        return ((tg_tensor(*)(tg_site, tg_tensor))row->function)(given->site, x);
    }
    case 1: { /* add sub mul ... */
        const tg_operand a = web_take_either(given);
        const tg_operand b = web_take_either(given);
        return ((tg_tensor(*)(tg_site, tg_operand, tg_operand))row->function)(given->site, a, b);
    }
    case 2: { /* matmul matmul_batched embedding ... */
        const tg_tensor x = web_take_tensor(given);
        const tg_tensor w = web_take_tensor(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_tensor))row->function)(given->site, x, w);
    }
    case 3: { /* where */
        const tg_tensor condition = web_take_tensor(given);
        const tg_operand a = web_take_either(given);
        const tg_operand b = web_take_either(given);
        return tg_where_at(given->site, condition, a, b);
    }
    case 4: { /* sum mean max ... */
        const tg_tensor x = web_take_tensor(given);
        const tg_axes axes = web_take_axes(given);
        const tg_reduce_options options = web_take_reduce_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_axes, tg_reduce_options))row->function)(given->site, x, axes, options);
    }
    case 5: { /* argmax argmin */
        const tg_tensor x = web_take_tensor(given);
        const int axis = web_take_small(given);
        const tg_reduce_options options = web_take_reduce_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int, tg_reduce_options))row->function)(given->site, x, axis, options);
    }
    case 6: { /* softmax log_softmax logsumexp ... */
        const tg_tensor x = web_take_tensor(given);
        const int axis = web_take_small(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int))row->function)(given->site, x, axis);
    }
    case 7: { /* concat stack */
        const tg_tensor *parts = web_take_parts(given);
        const int axis = web_take_small(given);
        return ((tg_tensor(*)(tg_site, const tg_tensor *, int, int))row->function)(given->site, parts, given->part_count, axis);
    }
    case 8: { /* gather take_along_axis masked_softmax */
        const tg_tensor x = web_take_tensor(given);
        const tg_tensor indices = web_take_tensor(given);
        const int axis = web_take_small(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_tensor, int))row->function)(given->site, x, indices, axis);
    }
    case 9: { /* scatter_add */
        const tg_tensor x = web_take_tensor(given);
        const tg_tensor indices = web_take_tensor(given);
        const tg_tensor updates = web_take_tensor(given);
        const int axis = web_take_small(given);
        return tg_scatter_add_at(given->site, x, indices, updates, axis);
    }
    case 10: { /* reshape broadcast_to tile */
        const tg_tensor x = web_take_tensor(given);
        const tg_shape shape = web_take_shape(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_shape))row->function)(given->site, x, shape);
    }
    case 11: { /* squeeze flip transpose */
        const tg_tensor x = web_take_tensor(given);
        const tg_axes axes = web_take_axes(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_axes))row->function)(given->site, x, axes);
    }
    case 12: { /* sort argsort */
        const tg_tensor x = web_take_tensor(given);
        const int axis = web_take_small(given);
        const tg_sort_options options = web_take_sort_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int, tg_sort_options))row->function)(given->site, x, axis, options);
    }
    case 13: { /* variance std */
        const tg_tensor x = web_take_tensor(given);
        const tg_axes axes = web_take_axes(given);
        const tg_variance_options options = web_take_variance_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_axes, tg_variance_options))row->function)(given->site, x, axes, options);
    }
    case 14: { /* cumsum cumprod */
        const tg_tensor x = web_take_tensor(given);
        const int axis = web_take_small(given);
        const tg_scan_options options = web_take_scan_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int, tg_scan_options))row->function)(given->site, x, axis, options);
    }
    case 15: { /* tril triu nn_split_heads */
        const tg_tensor x = web_take_tensor(given);
        const int64_t diagonal = web_take_whole(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int64_t))row->function)(given->site, x, diagonal);
    }
    case 16: { /* nn_layer_norm_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_layer_norm layer = web_take_layer_norm(given);
        return tg_nn_layer_norm_fwd_at(given->site, layer, x);
    }
    case 17: { /* nn_rms_norm_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_rms_norm layer = web_take_rms_norm(given);
        return tg_nn_rms_norm_fwd_at(given->site, layer, x);
    }
    case 18: { /* nn_rnn_fwd nn_gru_fwd nn_lstm_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_recurrent layer = web_take_recurrent(given);
        const tg_recurrent_start start = web_take_recurrent_start(given);
        return ((tg_tensor(*)(tg_site, tg_recurrent, tg_tensor, tg_recurrent_start))row->function)(given->site, layer, x, start);
    }
    case 19: { /* nn_rnn_step nn_gru_step nn_lstm_step */
        const tg_tensor x = web_take_tensor(given);
        const tg_recurrent layer = web_take_recurrent(given);
        const tg_lstm_states before = web_take_lstm_states(given);
        return ((tg_tensor(*)(tg_site, tg_recurrent, tg_tensor, tg_lstm_states))row->function)(given->site, layer, x, before);
    }
    case 20: { /* nn_mse nn_l1 */
        const tg_tensor prediction = web_take_tensor(given);
        const tg_tensor target = web_take_tensor(given);
        const tg_loss_options options = web_take_loss_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_tensor, tg_loss_options))row->function)(given->site, prediction, target, options);
    }
    case 21: { /* nn_bce_with_logits */
        const tg_tensor logits = web_take_tensor(given);
        const tg_tensor target = web_take_tensor(given);
        const tg_bce_options options = web_take_bce_options(given);
        return tg_nn_bce_with_logits_at(given->site, logits, target, options);
    }
    case 22: { /* conv1d conv2d conv_transpose1d ... */
        const tg_tensor x = web_take_tensor(given);
        const tg_tensor w = web_take_tensor(given);
        const tg_conv_options options = web_take_conv_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_tensor, tg_conv_options))row->function)(given->site, x, w, options);
    }
    case 23: { /* max_pool1d avg_pool1d */
        const tg_tensor x = web_take_tensor(given);
        const int64_t kernel = web_take_whole(given);
        const tg_pool_options options = web_take_pool_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int64_t, tg_pool_options))row->function)(given->site, x, kernel, options);
    }
    case 24: { /* max_pool2d avg_pool2d */
        const tg_tensor x = web_take_tensor(given);
        const int64_t kernel_h = web_take_whole(given);
        const int64_t kernel_w = web_take_whole(given);
        const tg_pool_options options = web_take_pool_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int64_t, int64_t, tg_pool_options))row->function)(given->site, x, kernel_h, kernel_w, options);
    }
    case 25: { /* upsample_nearest upsample_bilinear */
        const tg_tensor x = web_take_tensor(given);
        const tg_upsample_options options = web_take_upsample_options(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, tg_upsample_options))row->function)(given->site, x, options);
    }
    case 26: { /* clamp */
        const tg_tensor x = web_take_tensor(given);
        const double lo = web_take_number(given);
        const double hi = web_take_number(given);
        return tg_clamp_at(given->site, x, lo, hi);
    }
    case 27: { /* leaky_relu elu where_causal ... */
        const tg_tensor x = web_take_tensor(given);
        const double slope = web_take_number(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, double))row->function)(given->site, x, slope);
    }
    case 28: { /* cast */
        const tg_tensor x = web_take_tensor(given);
        const tg_dtype dtype = (tg_dtype)web_take_small(given);
        return tg_cast_at(given->site, x, dtype);
    }
    case 29: { /* swap_axes */
        const tg_tensor x = web_take_tensor(given);
        const int a = web_take_small(given);
        const int b = web_take_small(given);
        return tg_swap_axes_at(given->site, x, a, b);
    }
    case 30: { /* slice_last_range */
        const tg_tensor x = web_take_tensor(given);
        const int64_t start = web_take_whole(given);
        const int64_t end = web_take_whole(given);
        return tg_slice_last_range_at(given->site, x, start, end);
    }
    case 31: { /* narrow */
        const tg_tensor x = web_take_tensor(given);
        const int axis = web_take_small(given);
        const int64_t start = web_take_whole(given);
        const int64_t length = web_take_whole(given);
        return tg_narrow_at(given->site, x, axis, start, length);
    }
    case 32: { /* one_hot */
        const tg_tensor indices = web_take_tensor(given);
        const int64_t depth = web_take_whole(given);
        const tg_dtype dtype = (tg_dtype)web_take_small(given);
        return tg_one_hot_at(given->site, indices, depth, dtype);
    }
    case 33: { /* pad */
        const tg_tensor x = web_take_tensor(given);
        const tg_shape before = web_take_shape(given);
        const tg_shape after = web_take_shape(given);
        const double value = web_take_number(given);
        return tg_pad_at(given->site, x, before, after, value);
    }
    case 34: { /* roll repeat */
        const tg_tensor x = web_take_tensor(given);
        const int64_t shift = web_take_whole(given);
        const int axis = web_take_small(given);
        return ((tg_tensor(*)(tg_site, tg_tensor, int64_t, int))row->function)(given->site, x, shift, axis);
    }
    case 35: { /* top_k */
        const tg_tensor x = web_take_tensor(given);
        const int64_t k = web_take_whole(given);
        const int axis = web_take_small(given);
        const bool indices = web_take_flag(given);
        return web_top_k(given->site, x, k, axis, indices);
    }
    case 36: { /* einsum */
        const tg_tensor *operands = web_take_parts(given);
        const char *equation = web_take_text(given);
        return tg_einsum_at(given->site, equation, operands, given->part_count);
    }
    case 37: { /* rope */
        const tg_tensor x = web_take_tensor(given);
        const tg_rope_options options = web_take_rope_options(given);
        return tg_rope_at(given->site, x, options);
    }
    case 38: { /* norm */
        const tg_tensor x = web_take_tensor(given);
        const tg_axes axes = web_take_axes(given);
        const tg_norm_options options = web_take_norm_options(given);
        return tg_norm_at(given->site, x, axes, options);
    }
    case 39: { /* nn_cross_entropy */
        const tg_tensor logits = web_take_tensor(given);
        const tg_tensor targets = web_take_tensor(given);
        const int32_t ignore = web_take_small(given);
        const tg_cross_entropy_options options = web_take_cross_entropy_options(given);
        return tg_nn_cross_entropy_at(given->site, logits, targets, ignore, options);
    }
    case 40: { /* nn_linear_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_linear layer = web_take_linear(given);
        return tg_nn_linear_fwd_at(given->site, layer, x);
    }
    case 41: { /* nn_group_norm_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_group_norm layer = web_take_group_norm(given);
        return tg_nn_group_norm_fwd_at(given->site, layer, x);
    }
    case 42: { /* nn_batch_norm_fwd */
        const tg_tensor x = web_take_tensor(given);
        const tg_batch_norm layer = web_take_batch_norm(given);
        const bool training = web_take_flag(given);
        return tg_nn_batch_norm_fwd_at(given->site, layer, x, training);
    }
    case 43: { /* nn_nll */
        const tg_tensor log_probabilities = web_take_tensor(given);
        const tg_tensor targets = web_take_tensor(given);
        const int32_t ignore = web_take_small(given);
        const tg_loss_options options = web_take_loss_options(given);
        return tg_nn_nll_at(given->site, log_probabilities, targets, ignore, options);
    }
    case 44: { /* nn_huber */
        const tg_tensor prediction = web_take_tensor(given);
        const tg_tensor target = web_take_tensor(given);
        const tg_huber_options options = web_take_huber_options(given);
        return tg_nn_huber_at(given->site, prediction, target, options);
    }
    case 45: { /* nn_kl_div */
        const tg_tensor log_prediction = web_take_tensor(given);
        const tg_tensor target = web_take_tensor(given);
        const tg_kl_options options = web_take_kl_options(given);
        return tg_nn_kl_div_at(given->site, log_prediction, target, options);
    }
    case 46: { /* nn_attend */
        const tg_tensor q = web_take_tensor(given);
        const tg_tensor k = web_take_tensor(given);
        const tg_tensor v = web_take_tensor(given);
        const tg_attention_mask options = web_take_attention_mask(given);
        return tg_nn_attend_at(given->site, q, k, v, options);
    }
    case 47: { /* nn_attention_weights */
        const tg_tensor q = web_take_tensor(given);
        const tg_tensor k = web_take_tensor(given);
        const tg_attention_mask options = web_take_attention_mask(given);
        return tg_nn_attention_weights_at(given->site, q, k, options);
    }
    case 48: { /* resolve_lr */
        const tg_tensor t = web_take_tensor(given);
        const tg_lr schedule = web_take_lr(given);
        return tg_resolve_lr_at(given->site, schedule, t);
    }
    default: return web_misfit(given);
    }
}
