/* tensorgrad, ops: the operations on tensors. Elementwise, reductions, views, contractions,
 * indexing, softmax, random numbers, convolutions, pooling. Comments give the formula; [brackets]
 * give the gradient where the formula does not. */
#ifndef TENSORGRAD_OPS_H
#define TENSORGRAD_OPS_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- elementwise */

/* y = f(x), same shape. f32 unless the comment says otherwise. Gradients in [brackets]. */
#define TG_UNARY_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_tensor x)
TG_UNARY_(neg);    /* -x; f32, i32 */
TG_UNARY_(abs);    /* |x|; f32, i32   [sign(x), 0 at 0] */
TG_UNARY_(sign);   /* -1, 0 or 1; NaN stays NaN; f32, i32 [0] */
TG_UNARY_(square); /* x x; f32, i32 */
TG_UNARY_(sqrt);
TG_UNARY_(rsqrt);      /* 1 / sqrt x */
TG_UNARY_(reciprocal); /* 1 / x */
TG_UNARY_(exp);
TG_UNARY_(log);
TG_UNARY_(expm1); /* e^x - 1, accurate near 0 */
TG_UNARY_(log1p); /* log(1 + x), accurate near 0; -1 gives -infinity, less gives NaN */
TG_UNARY_(sin);   /* absolute error < 1e-6 for |x| <= 1e5 */
TG_UNARY_(cos);
TG_UNARY_(tan);   /* sin x / cos x   [1 + tan(x)^2] */
TG_UNARY_(floor); /* largest whole number <= x   [0] */
TG_UNARY_(ceil);  /* smallest whole number >= x   [0] */
TG_UNARY_(round); /* nearest whole number, halves to the even one [0] */
TG_UNARY_(tanh);
TG_UNARY_(erf);
TG_UNARY_(sigmoid);      /* 1 / (1 + e^-x), without overflow */
TG_UNARY_(softplus);     /* log(1 + e^x)   [sigmoid(x), everywhere] */
TG_UNARY_(log_sigmoid);  /* log(sigmoid(x)) = -softplus(-x)   [sigmoid(-x), everywhere] */
TG_UNARY_(hard_sigmoid); /* min(max(x / 6 + 1/2, 0), 1)   [1/6 inside, 1/12 at -3 and 3] */
TG_UNARY_(hard_swish);   /* x hard_sigmoid(x) (Howard et al. 2019) */
TG_UNARY_(silu);         /* x sigmoid(x). This and the next two: at -infinity 0 [0], at infinity
                            [1] */
TG_UNARY_(gelu);         /* x (1 + erf(x / sqrt 2)) / 2, exact form */
TG_UNARY_(gelu_tanh);    /* the tanh approximation of gelu */
TG_UNARY_(relu);         /* max(x, 0), NaN stays NaN   [1 for x > 0, else 0] */
TG_UNARY_(logical_not);  /* bool */
TG_UNARY_(stop_gradient);
#define tg_neg(...) tg_neg_at(TG_SITE, __VA_ARGS__)
#define tg_abs(...) tg_abs_at(TG_SITE, __VA_ARGS__)
#define tg_sign(...) tg_sign_at(TG_SITE, __VA_ARGS__)
#define tg_square(...) tg_square_at(TG_SITE, __VA_ARGS__)
#define tg_sqrt(...) tg_sqrt_at(TG_SITE, __VA_ARGS__)
#define tg_rsqrt(...) tg_rsqrt_at(TG_SITE, __VA_ARGS__)
#define tg_reciprocal(...) tg_reciprocal_at(TG_SITE, __VA_ARGS__)
#define tg_exp(...) tg_exp_at(TG_SITE, __VA_ARGS__)
#define tg_log(...) tg_log_at(TG_SITE, __VA_ARGS__)
#define tg_expm1(...) tg_expm1_at(TG_SITE, __VA_ARGS__)
#define tg_log1p(...) tg_log1p_at(TG_SITE, __VA_ARGS__)
#define tg_sin(...) tg_sin_at(TG_SITE, __VA_ARGS__)
#define tg_cos(...) tg_cos_at(TG_SITE, __VA_ARGS__)
#define tg_tan(...) tg_tan_at(TG_SITE, __VA_ARGS__)
#define tg_floor(...) tg_floor_at(TG_SITE, __VA_ARGS__)
#define tg_ceil(...) tg_ceil_at(TG_SITE, __VA_ARGS__)
#define tg_round(...) tg_round_at(TG_SITE, __VA_ARGS__)
#define tg_tanh(...) tg_tanh_at(TG_SITE, __VA_ARGS__)
#define tg_erf(...) tg_erf_at(TG_SITE, __VA_ARGS__)
#define tg_sigmoid(...) tg_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_softplus(...) tg_softplus_at(TG_SITE, __VA_ARGS__)
#define tg_log_sigmoid(...) tg_log_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_hard_sigmoid(...) tg_hard_sigmoid_at(TG_SITE, __VA_ARGS__)
#define tg_hard_swish(...) tg_hard_swish_at(TG_SITE, __VA_ARGS__)
#define tg_silu(...) tg_silu_at(TG_SITE, __VA_ARGS__)
#define tg_gelu(...) tg_gelu_at(TG_SITE, __VA_ARGS__)
#define tg_gelu_tanh(...) tg_gelu_tanh_at(TG_SITE, __VA_ARGS__)
#define tg_relu(...) tg_relu_at(TG_SITE, __VA_ARGS__)
#define tg_logical_not(...) tg_logical_not_at(TG_SITE, __VA_ARGS__)
#define tg_stop_gradient(...) tg_stop_gradient_at(TG_SITE, __VA_ARGS__)

/* x > 0 ? x : slope x; slope finite; NaN stays NaN. [slope at 0 and below] */
TG_API tg_tensor tg_leaky_relu_at(tg_site site, tg_tensor x, double slope);
/* x > 0 ? x : alpha (e^x - 1); alpha finite; NaN stays NaN (Clevert et al. 2016). [alpha e^x at 0
 * and below] */
TG_API tg_tensor tg_elu_at(tg_site site, tg_tensor x, double alpha);
#define tg_leaky_relu(...) tg_leaky_relu_at(TG_SITE, __VA_ARGS__)
#define tg_elu(...) tg_elu_at(TG_SITE, __VA_ARGS__)

/* y = f(a, b), broadcast. Each side is a tensor or a number; both sides have one dtype: f32 or i32
 * unless the comment says otherwise; equal and not_equal also take bool. i32 results wrap around.
 * Gradients are summed back to the shape of each operand. */
#define TG_BINARY_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_operand a, tg_operand b)
TG_BINARY_(add);
TG_BINARY_(sub);
TG_BINARY_(mul);
TG_BINARY_(div);       /* i32: truncates towards 0; by 0 gives 0; by the number 0 is
                          TG_ERROR_ARGUMENT */
TG_BINARY_(floor_div); /* floor(a / b); i32 by 0 as div [0] */
TG_BINARY_(mod);       /* a - b floor(a / b): in [0, |b|) with the sign of b, exact except for
                          one rounding. By 0: i32 gives a, f32 gives NaN. By infinity: a, or
                          infinity where the signs differ [1 of a, -floor_div(a, b) of b] */
TG_BINARY_(pow);       /* f32; 0^0 = 1; a negative base with a whole exponent has the exact sign,
                          with another exponent NaN [of the exponent: 0 where the base is not
                          over 0] */
TG_BINARY_(minimum);   /* NaN wins; a tie gives each side half of the cotangent */
TG_BINARY_(maximum);
TG_BINARY_(less); /* -> bool, no gradient; so do the next five */
TG_BINARY_(less_equal);
TG_BINARY_(greater);
TG_BINARY_(greater_equal);
TG_BINARY_(equal);
TG_BINARY_(not_equal);
TG_BINARY_(logical_and); /* bool x bool -> bool */
TG_BINARY_(logical_or);
#define tg_add(a, b) tg_add_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_sub(a, b) tg_sub_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_mul(a, b) tg_mul_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_div(a, b) tg_div_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_floor_div(a, b) tg_floor_div_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_mod(a, b) tg_mod_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_pow(a, b) tg_pow_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_minimum(a, b) tg_minimum_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_maximum(a, b) tg_maximum_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_less(a, b) tg_less_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_less_equal(a, b) tg_less_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_greater(a, b) tg_greater_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_greater_equal(a, b) tg_greater_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_equal(a, b) tg_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_not_equal(a, b) tg_not_equal_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_logical_and(a, b) tg_logical_and_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))
#define tg_logical_or(a, b) tg_logical_or_at(TG_SITE, TG_OPERAND(a), TG_OPERAND(b))

/* min(max(x, lo), hi); f32, i32. NaN stays NaN. lo > hi, or a NaN bound, is TG_ERROR_ARGUMENT.
 * Gradient as of maximum and minimum: half at a bound. */
TG_API tg_tensor tg_clamp_at(tg_site site, tg_tensor x, double lo, double hi);
#define tg_clamp(...) tg_clamp_at(TG_SITE, __VA_ARGS__)

/* condition ? a : b, all three broadcast. The side that is not taken gets gradient 0. */
TG_API tg_tensor tg_where_at(tg_site site, tg_tensor condition, tg_operand a, tg_operand b);
#define tg_where(condition, a, b) tg_where_at(TG_SITE, (condition), TG_OPERAND(a), TG_OPERAND(b))

/* float to int truncates and saturates; NaN gives 0. To bool: not 0 is true. Gradient only from f32
 * to f32. */
TG_API tg_tensor tg_cast_at(tg_site site, tg_tensor x, tg_dtype dtype);
#define tg_cast(...) tg_cast_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- reductions */

typedef struct tg_reduce_options {
    bool keepdims;
    int reserved_;
} tg_reduce_options;
#define TG_REDUCE_(name) TG_API tg_tensor tg_##name##_at(tg_site site, tg_tensor x, tg_axes axes, tg_reduce_options options)
TG_REDUCE_(sum);  /* f32, i32 */
TG_REDUCE_(mean); /* f32 */
TG_REDUCE_(max);  /* f32, i32; NaN wins [NaN for all]; tied elements share the cotangent equally */
TG_REDUCE_(min);
TG_REDUCE_(prod); /* f32, i32; multiplies halves of the axis, so a 0 does not spoil the gradient;
                     no overflow on the way to a result that fits */
TG_REDUCE_(any);  /* bool; no gradient */
TG_REDUCE_(all);  /* bool; no gradient */
#define tg_sum(...) TG_WITH_2_(tg_sum_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_mean(...) TG_WITH_2_(tg_mean_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_max(...) TG_WITH_2_(tg_max_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_min(...) TG_WITH_2_(tg_min_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_prod(...) TG_WITH_2_(tg_prod_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_any(...) TG_WITH_2_(tg_any_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_all(...) TG_WITH_2_(tg_all_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_variance_options {
    bool keepdims;
    int32_t correction; /* 0: biased; 1: Bessel's; outside 0 .. n - 1: TG_ERROR_ARGUMENT */
    int reserved_;
} tg_variance_options;
/* sum((x - mean(x))^2) / (n - correction), n: the number of elements reduced. f32. */
TG_API tg_tensor tg_variance_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options);
/* sqrt(variance) [0 where it is 0], also where the variance is beyond f32. */
TG_API tg_tensor tg_std_at(tg_site site, tg_tensor x, tg_axes axes, tg_variance_options options);
#define tg_variance(...) TG_WITH_2_(tg_variance_at, tg_variance_options, __VA_ARGS__, .reserved_ = 0)
#define tg_std(...) TG_WITH_2_(tg_std_at, tg_variance_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_norm_options {
    bool keepdims;
    double ord; /* 1, 2 or INFINITY; 0 means 2; TG_ZERO is refused */
    int reserved_;
} tg_norm_options;
/* By ord: sum |x|, sqrt(sum x^2) [0 where it is 0], or max |x|; another ord is TG_ERROR_ARGUMENT.
 * f32. Accurate wherever the result fits f32: no square overflows or vanishes. */
TG_API tg_tensor tg_norm_at(tg_site site, tg_tensor x, tg_axes axes, tg_norm_options options);
#define tg_norm(...) TG_WITH_2_(tg_norm_at, tg_norm_options, __VA_ARGS__, .reserved_ = 0)
typedef struct tg_scan_options {
    bool exclusive; /* y[i] leaves out x[i]; the first is 0 (of a product: 1) */
    bool reverse;   /* from the last element to the first */
    int reserved_;
} tg_scan_options;
/* y[i] = sum of x[j], j <= i, along one axis. f32, i32 (wraps around). Adds in blocks of up to 64
 * (an axis up to 128 is one block). */
TG_API tg_tensor tg_cumsum_at(tg_site site, tg_tensor x, int axis, tg_scan_options options);
/* y[i] = product of x[j], j <= i, along one axis. f32, i32. log2 n steps without division, so a 0
 * does not spoil the gradient; no overflow on the way to a result that fits. */
TG_API tg_tensor tg_cumprod_at(tg_site site, tg_tensor x, int axis, tg_scan_options options);
#define tg_cumsum(...) TG_WITH_2_(tg_cumsum_at, tg_scan_options, __VA_ARGS__, .reserved_ = 0)
#define tg_cumprod(...) TG_WITH_2_(tg_cumprod_at, tg_scan_options, __VA_ARGS__, .reserved_ = 0)
/* Index (i32) of the first largest or smallest element along one axis; of the first NaN, if there
 * is one. The axis is dropped unless keepdims. No gradient. */
TG_API tg_tensor tg_argmax_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options);
TG_API tg_tensor tg_argmin_at(tg_site site, tg_tensor x, int axis, tg_reduce_options options);
#define tg_argmax(...) TG_WITH_2_(tg_argmax_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
#define tg_argmin(...) TG_WITH_2_(tg_argmin_at, tg_reduce_options, __VA_ARGS__, .reserved_ = 0)
/* Short forms: mean over the last axis, kept as 1; sum over the last axis, dropped; sum of all
 * elements (rank 0). */
#define tg_mean_last(...) tg_mean_at(TG_SITE, __VA_ARGS__, TG_AXES(-1), TG_OPTIONS_(tg_reduce_options, .keepdims = true))
#define tg_sum_last(...) tg_sum_at(TG_SITE, __VA_ARGS__, TG_AXES(-1), TG_OPTIONS_(tg_reduce_options, .keepdims = false))
#define tg_sum_all(...) tg_sum_at(TG_SITE, __VA_ARGS__, TG_ALL, TG_OPTIONS_(tg_reduce_options, .keepdims = false))

/* ---------------------------------------------------------------- views and joins */

TG_API tg_tensor tg_reshape_at(tg_site site, tg_tensor x, tg_shape shape); /* one dim may be -1 */
/* y.dim[i] = x.dim[perm[i]] */
TG_API tg_tensor tg_transpose_at(tg_site site, tg_tensor x, tg_axes perm);
TG_API tg_tensor tg_swap_axes_at(tg_site site, tg_tensor x, int a, int b);
TG_API tg_tensor tg_broadcast_to_at(tg_site site, tg_tensor x, tg_shape shape);
TG_API tg_tensor tg_slice_last_range_at(tg_site site, tg_tensor x, int64_t start, int64_t end);
TG_API tg_tensor tg_narrow_at(tg_site site, tg_tensor x, int axis, int64_t start, int64_t length);
TG_API tg_tensor tg_concat_at(tg_site site, const tg_tensor *parts, int count, int axis);
/* new axis */
TG_API tg_tensor tg_stack_at(tg_site site, const tg_tensor *parts, int count, int axis);
#define tg_reshape(...) tg_reshape_at(TG_SITE, __VA_ARGS__)
#define tg_transpose(...) tg_transpose_at(TG_SITE, __VA_ARGS__)
#define tg_swap_axes(...) tg_swap_axes_at(TG_SITE, __VA_ARGS__)
#define tg_broadcast_to(...) tg_broadcast_to_at(TG_SITE, __VA_ARGS__)
#define tg_slice_last_range(...) tg_slice_last_range_at(TG_SITE, __VA_ARGS__)
#define tg_narrow(...) tg_narrow_at(TG_SITE, __VA_ARGS__)
#define tg_concat(...) tg_concat_at(TG_SITE, __VA_ARGS__)
#define tg_stack(...) tg_stack_at(TG_SITE, __VA_ARGS__)

/* drops axes of 1 element; TG_ALL: each such axis */
TG_API tg_tensor tg_squeeze_at(tg_site site, tg_tensor x, tg_axes axes);
/* A new axis of 1 element. `axis` is its number in the result. */
TG_API tg_tensor tg_expand_dims_at(tg_site site, tg_tensor x, int axis);
/* before.dim[i] elements of `value` before axis i, after.dim[i] after it; both at least 0. Any
 * dtype that can hold the value. */
TG_API tg_tensor tg_pad_at(tg_site site, tg_tensor x, tg_shape before, tg_shape after, double value);
/* reverses the axes */
TG_API tg_tensor tg_flip_at(tg_site site, tg_tensor x, tg_axes axes);
/* y[i] = x[(i - shift) mod n] */
TG_API tg_tensor tg_roll_at(tg_site site, tg_tensor x, int64_t shift, int axis);
/* axis i times.dim[i] times over: a b a b */
TG_API tg_tensor tg_tile_at(tg_site site, tg_tensor x, tg_shape times);
/* each element `times` times: a a b b */
TG_API tg_tensor tg_repeat_at(tg_site site, tg_tensor x, int64_t times, int axis);
/* Cuts an axis in n parts: out[i] gets sizes[i] elements. The sizes must add up to the axis; sizes
 * NULL: equal parts. On failure out[0..n) are poison. */
TG_API tg_status tg_split_at(tg_site site, tg_tensor x, int axis, const int64_t *sizes, int n, tg_tensor *out);
#define tg_squeeze(...) tg_squeeze_at(TG_SITE, __VA_ARGS__)
#define tg_expand_dims(...) tg_expand_dims_at(TG_SITE, __VA_ARGS__)
#define tg_pad(...) tg_pad_at(TG_SITE, __VA_ARGS__)
#define tg_flip(...) tg_flip_at(TG_SITE, __VA_ARGS__)
#define tg_roll(...) tg_roll_at(TG_SITE, __VA_ARGS__)
#define tg_tile(...) tg_tile_at(TG_SITE, __VA_ARGS__)
#define tg_repeat(...) tg_repeat_at(TG_SITE, __VA_ARGS__)
#define tg_split(...) tg_split_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- contractions, indexing */

/* [batch..., M, K] x [batch..., K, N] -> [batch..., M, N]; batch dims broadcast. [K] on the left is
 * a row, on the right a column; that axis is dropped from the result. 2 M K N flop for each batch
 * index. f32. */
TG_API tg_tensor tg_matmul_at(tg_site site, tg_tensor x, tg_tensor w);
/* The same for matrices only: at least 2 axes on both sides. */
TG_API tg_tensor tg_matmul_batched_at(tg_site site, tg_tensor a, tg_tensor b);
/* table [V, D], indices i32 [...] -> [..., D]. An index outside [0, V) is TG_ERROR_INDEX when the
 * step or run is called. */
TG_API tg_tensor tg_embedding_at(tg_site site, tg_tensor table, tg_tensor indices);
/* i32 [...] -> [..., depth] of `dtype`. An index outside [0, depth) is TG_ERROR_INDEX, as above. */
TG_API tg_tensor tg_one_hot_at(tg_site site, tg_tensor indices, int64_t depth, tg_dtype dtype);
/* x [A.., n, B..], i32 indices [I..] into the axis of n -> [A.., I.., B..]: slices of x in the
 * order of the indices. Any dtype. Gradient: scatter_add. An index outside [0, n) is
 * TG_ERROR_INDEX, as above. */
TG_API tg_tensor tg_gather_at(tg_site site, tg_tensor x, tg_tensor indices, int axis);
/* y[.., i, ..] = x[.., indices[.., i, ..], ..]. The indices have the shape of x, except along the
 * axis. Any dtype. Index errors as above. */
TG_API tg_tensor tg_take_along_axis_at(tg_site site, tg_tensor x, tg_tensor indices, int axis);
/* x, plus for each index its slice of `updates`, added to the slice of x that the index names. The
 * updates have the shape of gather(x, indices, axis). The order of additions is always the same.
 * f32. Index errors as above. */
TG_API tg_tensor tg_scatter_add_at(tg_site site, tg_tensor x, tg_tensor indices, tg_tensor updates, int axis);
typedef struct tg_sort_options {
    bool descending;
    int reserved_;
} tg_sort_options;
/* The elements of an axis in order. Stable: equal elements keep their order. NaN comes last,
 * ascending and descending; -0 comes back as 0. f32, i32. n^2 comparisons: meant for axes of up to
 * a few thousand elements. The gradient goes back to the place that each element came from. */
TG_API tg_tensor tg_sort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options);
/* The i32 positions that sort: take_along_axis(x, argsort(x, axis), axis) is sort(x, axis). No
 * gradient. */
TG_API tg_tensor tg_argsort_at(tg_site site, tg_tensor x, int axis, tg_sort_options options);
typedef struct tg_top {
    tg_tensor values, indices; /* the axis has k elements; i32 indices, no gradient */
} tg_top;
/* The k largest elements of an axis, largest first, in the order of a descending sort. k outside 1
 * .. n is TG_ERROR_ARGUMENT. */
TG_API tg_top tg_top_k_at(tg_site site, tg_tensor x, int64_t k, int axis);
/* Einstein summation, as numpy.einsum. An equation has one term of letters for each operand, an
 * ellipsis for leading axes that broadcast, and "->" with the term of the result. Without "->" the
 * result has the ellipsis and the letters that occur once, in alphabetical order. A letter twice in
 * a term is the diagonal. An axis of 1 is repeated to the size of its letter in other operands.
 * Operands are multiplied from left to right. f32. Any other equation is TG_ERROR_ARGUMENT. */
TG_API tg_tensor tg_einsum_at(tg_site site, const char *equation, const tg_tensor *operands, int count);
typedef struct tg_rope_options {
    double base;      /* a normal f32 number over 0; 0 means 10000; TG_ZERO is refused */
    bool interleaved; /* pairs are neighbours (2 i, 2 i + 1); else (i, i + D / 2) */
    tg_tensor
        /* i32, broadcast to the axes of x except the last. Left out: 0 .. T - 1, exact. Given:
         * angles are f32, |error| < position 1e-7. */
        positions;
    int reserved_;
} tg_rope_options;
/* Rotary position embedding (Su et al. 2021). x [..., T, D], D even. Pair i of position t is turned
 * by t base^(-2 i / D): (a, b) -> (a cos - b sin, b cos + a sin). */
TG_API tg_tensor tg_rope_at(tg_site site, tg_tensor x, tg_rope_options options);
#define tg_gather(...) tg_gather_at(TG_SITE, __VA_ARGS__)
#define tg_take_along_axis(...) tg_take_along_axis_at(TG_SITE, __VA_ARGS__)
#define tg_scatter_add(...) tg_scatter_add_at(TG_SITE, __VA_ARGS__)
#define tg_sort(...) TG_WITH_2_(tg_sort_at, tg_sort_options, __VA_ARGS__, .reserved_ = 0)
#define tg_argsort(...) TG_WITH_2_(tg_argsort_at, tg_sort_options, __VA_ARGS__, .reserved_ = 0)
#define tg_top_k(...) tg_top_k_at(TG_SITE, __VA_ARGS__)
#define tg_einsum(...) tg_einsum_at(TG_SITE, __VA_ARGS__)
#define tg_rope(...) TG_WITH_1_(tg_rope_at, tg_rope_options, __VA_ARGS__, .reserved_ = 0)
#define tg_matmul(...) tg_matmul_at(TG_SITE, __VA_ARGS__)
#define tg_matmul_batched(...) tg_matmul_batched_at(TG_SITE, __VA_ARGS__)
#define tg_embedding(...) tg_embedding_at(TG_SITE, __VA_ARGS__)
#define tg_one_hot(...) tg_one_hot_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- softmax family */

/* Equal finite fills (all -1e9) give equal shares. A row with only -infinity gives NaN. */
TG_API tg_tensor tg_softmax_at(tg_site site, tg_tensor x, int axis);
TG_API tg_tensor tg_log_softmax_at(tg_site site, tg_tensor x, int axis);
/* drops the axis; a row with only -infinity gives -infinity   [0] */
TG_API tg_tensor tg_logsumexp_at(tg_site site, tg_tensor x, int axis);
/* softmax over the elements where the bool mask is true; 0 elsewhere. The mask broadcasts to x. A
 * row that is all hidden is 0, and so is its gradient. */
TG_API tg_tensor tg_masked_softmax_at(tg_site site, tg_tensor x, tg_tensor mask, int axis);
/* [..., T, T]: row i sees columns 0..i */
TG_API tg_tensor tg_softmax_causal_last_at(tg_site site, tg_tensor x);
/* [..., T, T]: columns > row become fill */
TG_API tg_tensor tg_where_causal_at(tg_site site, tg_tensor x, double fill);
#define tg_softmax(...) tg_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_log_softmax(...) tg_log_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_log_softmax_last(...) tg_log_softmax_at(TG_SITE, __VA_ARGS__, -1)
#define tg_logsumexp(...) tg_logsumexp_at(TG_SITE, __VA_ARGS__)
#define tg_masked_softmax(...) tg_masked_softmax_at(TG_SITE, __VA_ARGS__)
#define tg_softmax_causal_last(...) tg_softmax_causal_last_at(TG_SITE, __VA_ARGS__)
#define tg_where_causal(...) tg_where_causal_at(TG_SITE, __VA_ARGS__)
/* The lower triangle of the last two axes, column <= row + diagonal; 0 (false) elsewhere. Any
 * dtype. Of ones (bool) it makes a mask. */
TG_API tg_tensor tg_tril_at(tg_site site, tg_tensor x, int64_t diagonal);
/* The upper triangle, column >= row + diagonal; 0 (false) elsewhere. */
TG_API tg_tensor tg_triu_at(tg_site site, tg_tensor x, int64_t diagonal);
#define tg_tril(...) tg_tril_at(TG_SITE, __VA_ARGS__)
#define tg_triu(...) tg_triu_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- random numbers */

/* Each step and each run draws new numbers, from the model's seed, the number of the step and the
 * operation's position in the trace. They are the same on each device, for any number of threads,
 * and in the forward and backward half of a step (randn and categorical: up to the last bits of log
 * and cos). tg_model_reset begins again; a checkpoint goes on. A call that is refused draws
 * nothing. Runs do not change what steps draw: the runs of a model and its siblings share a count
 * of their own. Two operations never draw the same numbers. No gradient goes through a draw. */

/* f32, uniform in [0, 1): multiples of 2^-24. */
TG_API tg_tensor tg_rand_at(tg_site site, tg_graph *g, tg_shape shape);
/* f32, normal, mean 0, standard deviation 1 (Box & Muller's formula). Always finite, |y| < 6.6. */
TG_API tg_tensor tg_randn_at(tg_site site, tg_graph *g, tg_shape shape);
/* i32, uniform in [lo, hi). TG_ERROR_ARGUMENT: an empty range, one beyond i32, or one of more than
 * 2^31 numbers. */
TG_API tg_tensor tg_rand_int_at(tg_site site, tg_graph *g, tg_shape shape, int64_t lo, int64_t hi);
/* bool, true with probability p. p is a number in [0, 1] (else TG_ERROR_ARGUMENT), or an f32 tensor
 * that broadcasts to `shape`: 1 and more is always true; 0, less, and NaN are never true. */
TG_API tg_tensor tg_bernoulli_at(tg_site site, tg_graph *g, tg_shape shape, tg_operand p);
/* i32: index i along the axis with probability softmax(logits)[i], by Gumbel's maximum. The axis is
 * dropped. f32 logits; the largest is subtracted first. A logit of -infinity is never drawn, unless
 * all are. */
TG_API tg_tensor tg_categorical_at(tg_site site, tg_tensor logits, int axis);
/* x / (1 - p) with probability 1 - p, else 0, for each element on its own. f32. p = 0 returns x and
 * draws nothing; p outside [0, 1) is TG_ERROR_ARGUMENT. [the cotangent / (1 - p) where x was kept,
 * else 0.] It drops in runs too: pass p = 0, or leave it out, in a forward model or sibling that
 * predicts. */
TG_API tg_tensor tg_dropout_at(tg_site site, tg_tensor x, double p);
#define tg_rand(...) tg_rand_at(TG_SITE, __VA_ARGS__)
#define tg_randn(...) tg_randn_at(TG_SITE, __VA_ARGS__)
#define tg_rand_int(...) tg_rand_int_at(TG_SITE, __VA_ARGS__)
#define tg_bernoulli(g, shape, p) tg_bernoulli_at(TG_SITE, (g), (shape), TG_OPERAND(p))
#define tg_categorical(...) tg_categorical_at(TG_SITE, __VA_ARGS__)
#define tg_dropout(...) tg_dropout_at(TG_SITE, __VA_ARGS__)

/* ---------------------------------------------------------------- convolutions, pooling */

/* Channels first, as in PyTorch: x [N, C, L] or [N, C, H, W]. A pair of numbers is for H and W; for
 * L its first number counts. */

typedef enum tg_padding_mode {
    TG_PADDING_SIDES = 0, /* `before` and `after` each axis */
    /* as many outputs as inputs (stride 1 only): dilation (kernel - 1) in all; the odd one comes
     * after */
    TG_PADDING_SAME
} tg_padding_mode;
typedef struct tg_padding { /* .padding = 1 is no padding; write tg_padding_all(1) */
    const void *none_;      /* NULL */
    tg_padding_mode mode;
    int64_t before[2], after[2];
} tg_padding;
TG_API tg_padding tg_padding_all(int64_t each);                   /* on every side */
TG_API tg_padding tg_padding_axes(int64_t first, int64_t second); /* on both sides of an axis */
TG_API tg_padding tg_padding_sides(int64_t before_first, int64_t after_first, int64_t before_second, int64_t after_second);
TG_API tg_padding tg_padding_same(void);
TG_API tg_padding tg_padding_valid(void); /* none */

typedef struct tg_conv_options {
    /* 0 means 1; a 0 after another number means that number. In 1-D the second number of any pair
     * must be 0 or equal the first: else TG_ERROR_ARGUMENT. */
    int64_t stride[2];
    tg_padding padding;  /* default: none */
    int64_t dilation[2]; /* as stride */
    int64_t groups;      /* 0 means 1 */
    /* transposed only: more elements at the end; must be under the stride or the dilation */
    int64_t output_padding[2];
    tg_tensor bias; /* [O], when given */
    int reserved_;
} tg_conv_options;
/* y[n, o, i] = sum over c, k of w[o, c, k] x[n, c, i stride + k dilation - padding], with x = 0
 * outside; in 2-D the same over H and W. No flip: a cross-correlation, as in PyTorch. x [N, C, L],
 * w [O, C / groups, k] -> [N, O, floor((L + padding - dilation (k - 1) - 1) / stride) + 1]. Output
 * channel o sees only the input channels of its group. 2 N O C / groups k out flop.
 * TG_ERROR_SHAPE: wrong ranks; channels that differ or do not divide into groups; a kernel larger
 * than the padded input; windows of more than 2^31 - 1 elements in all (N C out k; transposed N O L
 * k): they are a view and not stored, but are indexed in 32 bits.
 * TG_ERROR_ARGUMENT: stride, dilation or groups under 1; padding under 0. */
TG_API tg_tensor tg_conv1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
/* w [O, C / groups, kh, kw] */
TG_API tg_tensor tg_conv2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
#define tg_conv1d(...) TG_WITH_2_(tg_conv1d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
#define tg_conv2d(...) TG_WITH_2_(tg_conv2d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
/* The gradient of a convolution with respect to its input, as an operation: x[n, c, i] w[c, o, k]
 * is added to y[n, o, i stride + k dilation - padding]. x [N, C, L], w [C, O / groups, k] -> [N, O,
 * (L - 1) stride + dilation (k - 1) + 1 - padding + output_padding]. */
TG_API tg_tensor tg_conv_transpose1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
TG_API tg_tensor tg_conv_transpose2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options);
#define tg_conv_transpose1d(...) TG_WITH_2_(tg_conv_transpose1d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)
#define tg_conv_transpose2d(...) TG_WITH_2_(tg_conv_transpose2d_at, tg_conv_options, __VA_ARGS__, .reserved_ = 0)

typedef struct tg_pool_options {
    int64_t stride[2]; /* 0: the kernel; a 0 after another number means that number */
    /* less than the kernel, else TG_ERROR_ARGUMENT: a window of padding alone holds nothing */
    tg_padding padding;
    bool ceil_mode; /* a last window may reach beyond the end if it begins before the end */
    /* averages: divide by the number of elements of x alone. Default: padding counts as zeros;
     * elements beyond the padding never count. */
    bool exclude_padding;
    int reserved_;
} tg_pool_options;
/* Over each window of each channel: [N, C, L] -> [N, C, out], with out as of a convolution without
 * dilation. max: padding never wins; elements equal to the maximum share the gradient equally; NaN
 * wins. TG_ERROR_LIMIT: windows of more than 2^31 - 1 elements in all, N C out kernel. */
TG_API tg_tensor tg_max_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options);
TG_API tg_tensor tg_max_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options);
TG_API tg_tensor tg_avg_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options);
TG_API tg_tensor tg_avg_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options);
#define tg_max_pool1d(...) TG_WITH_2_(tg_max_pool1d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_max_pool2d(...) TG_WITH_3_(tg_max_pool2d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_avg_pool1d(...) TG_WITH_2_(tg_avg_pool1d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
#define tg_avg_pool2d(...) TG_WITH_3_(tg_avg_pool2d_at, tg_pool_options, __VA_ARGS__, .reserved_ = 0)
TG_API tg_tensor tg_global_avg_pool_at(tg_site site, tg_tensor x); /* [N, C, ...] -> [N, C] */
TG_API tg_tensor tg_global_max_pool_at(tg_site site, tg_tensor x);
#define tg_global_avg_pool(...) tg_global_avg_pool_at(TG_SITE, __VA_ARGS__)
#define tg_global_max_pool(...) tg_global_max_pool_at(TG_SITE, __VA_ARGS__)

typedef struct tg_upsample_options {
    int64_t factor[2]; /* 0 means 2; a 0 after another number means that number */
    /* bilinear: the first and the last element stay first and last. Default: elements are areas, as
     * in images. */
    bool align_corners;
    int reserved_;
} tg_upsample_options;
/* [N, C, H, W] -> [N, C, H factor, W factor] (or [N, C, L]). As torch.nn.functional.interpolate.
 * nearest: y[i] = x[floor(i / factor)]. bilinear: between the two nearest elements of each axis,
 * y[i] = (1 - t) x[p] + t x[p + 1] with p + t = max((i + 0.5) / factor - 0.5, 0), or with
 * align_corners i (H - 1) / (H factor - 1). After the last element the value stays that of the
 * last. */
TG_API tg_tensor tg_upsample_nearest_at(tg_site site, tg_tensor x, tg_upsample_options options);
TG_API tg_tensor tg_upsample_bilinear_at(tg_site site, tg_tensor x, tg_upsample_options options);
#define tg_upsample_nearest(...) TG_WITH_1_(tg_upsample_nearest_at, tg_upsample_options, __VA_ARGS__, .reserved_ = 0)
#define tg_upsample_bilinear(...) TG_WITH_1_(tg_upsample_bilinear_at, tg_upsample_options, __VA_ARGS__, .reserved_ = 0)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TENSORGRAD_OPS_H */
