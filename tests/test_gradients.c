/* Gradients: every public operation and layer that has one, and the primitives with no public name. In f64 on the
 * reference, under a random cotangent: central differences element by element, and <J v, u> = <v, J' u> for random
 * directions; then the f32 gradient of the CPU executor against the f64 gradient graph; then gradients of gradients.
 * Ends by checking that no differentiable primitive of ops.def was left out. On WebGPU (see support_home): the f32 parts. */
#include "ir/attention.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WRT 7
#define STEP 1e-5

typedef struct wrt_list {
    tg_tensor items[MAX_WRT];
    int count;
} wrt_list;
typedef enum domain { ANY, POSITIVE, INDICES } domain;

typedef struct gradient_case {
    const char *name;
    tg_tensor (*build)(tg_graph *g, wrt_list *w);
    domain values;
    bool smooth; /* gradients of gradients are checked too */
} gradient_case;

/* ---------------------------------------------------------------- building */

static tg_tensor in(tg_graph *g, wrt_list *w, const char *name, tg_shape shape) {
    const tg_tensor x = tg_input(g, name, shape, TG_F32);
    w->items[w->count++] = x;
    return x;
}
static tg_tensor also(wrt_list *w, tg_tensor x) {
    w->items[w->count++] = x;
    return x;
}
static tg_tensor wrap(tg_graph *g, int32_t id) { return (tg_tensor){g, id}; }
#define A in(g, w, "a", TG_SHAPE(3, 5))
#define B in(g, w, "b", TG_SHAPE(3, 5))

#define BUILD(name, ...) \
  static tg_tensor build_##name(tg_graph *g, wrt_list *w) { __VA_ARGS__ }
#define BUILD_UNARY(name) BUILD(name, return tg_##name(A);)

BUILD_UNARY(neg)
BUILD_UNARY(abs)
BUILD_UNARY(sign)
BUILD_UNARY(square)
BUILD_UNARY(sqrt)
BUILD_UNARY(rsqrt)
BUILD_UNARY(reciprocal)
BUILD_UNARY(exp)
BUILD_UNARY(log)
BUILD_UNARY(sin)
BUILD_UNARY(cos)
BUILD_UNARY(tanh)
BUILD_UNARY(erf)
BUILD_UNARY(sigmoid)
BUILD_UNARY(softplus)
BUILD_UNARY(silu)
BUILD_UNARY(expm1)
BUILD_UNARY(log1p)
BUILD_UNARY(floor)
BUILD_UNARY(ceil)
BUILD_UNARY(round)
BUILD_UNARY(tan)
BUILD_UNARY(log_sigmoid)
BUILD_UNARY(hard_sigmoid)
BUILD_UNARY(hard_swish)
BUILD(leaky_relu, return tg_leaky_relu(A, 0.1);)
BUILD(elu, return tg_elu(A, 1.5);)
BUILD_UNARY(gelu)
BUILD_UNARY(gelu_tanh)
BUILD_UNARY(relu)
BUILD(stop_gradient, tg_tensor a = A; return tg_mul(a, tg_add(tg_mul(tg_stop_gradient(tg_full(g, TG_SHAPE(5), 2.0, TG_F32)), a), 1.0));)

#define BUILD_BINARY(name) \
  BUILD(name, tg_tensor a = A; return tg_##name(a, B);) \
  BUILD(name##_row, tg_tensor a = A; return tg_##name(a, in(g, w, "b", TG_SHAPE(5)));) \
  BUILD(name##_outer, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 1, 3)); return tg_##name(a, in(g, w, "b", TG_SHAPE(4, 1)));) \
  BUILD(name##_scalar, tg_tensor a = in(g, w, "a", TG_SCALAR); return tg_##name(a, B);) \
  BUILD(name##_number, return tg_##name(A, 1.25);) \
  BUILD(name##_of_number, return tg_##name(1.25, A);) \
  BUILD(name##_self, tg_tensor a = A; return tg_##name(a, tg_mul(a, a));)

BUILD_BINARY(add)
BUILD_BINARY(sub)
BUILD_BINARY(mul)
BUILD_BINARY(div)
BUILD_BINARY(pow)
BUILD_BINARY(mod)
BUILD(floor_div, tg_tensor a = A; return tg_mul(tg_floor_div(a, 0.5), a);)
BUILD_BINARY(minimum)
BUILD_BINARY(maximum)

BUILD(pow_square, return tg_pow(A, 2.0);)
BUILD(pow_cube, return tg_pow(A, 3.0);)
BUILD(clamp, return tg_clamp(A, -0.75, 0.5);)
BUILD(where, tg_tensor a = A; return tg_where(tg_input(g, "c", TG_SHAPE(3, 5), TG_BOOL), a, in(g, w, "b", TG_SHAPE(3, 1)));)
BUILD(where_less, tg_tensor a = A, b = B; return tg_where(tg_less(a, b), tg_mul(a, b), tg_sub(a, 2.0));)
BUILD(cast, tg_tensor a = A; return tg_mul(tg_cast(a, TG_F32), tg_cast(tg_less(a, 0.5), TG_F32));)
BUILD(ir_select, tg_tensor a = A; tg_tensor c = tg_input(g, "c", TG_SHAPE(3, 5), TG_BOOL);
      return wrap(g, tg_ir_select(g, c.id, a.id, B.id));)

#define CUBE in(g, w, "a", TG_SHAPE(2, 3, 4))
#define BUILD_REDUCTION(name) \
  BUILD(name##_all, return tg_##name(CUBE, TG_ALL);) \
  BUILD(name##_first, return tg_##name(CUBE, TG_AXES(0));) \
  BUILD(name##_middle, return tg_##name(CUBE, TG_AXES(1), .keepdims = true);) \
  BUILD(name##_ends, return tg_##name(CUBE, TG_AXES(0, -1));) \
  BUILD(name##_used, tg_tensor a = CUBE; return tg_mul(a, tg_##name(a, TG_AXES(-1), .keepdims = true));)
BUILD_REDUCTION(sum)
BUILD_REDUCTION(mean)
BUILD_REDUCTION(max)
BUILD_REDUCTION(min)
BUILD_REDUCTION(prod)
BUILD_REDUCTION(norm)
BUILD_REDUCTION(std)
BUILD(variance_all, return tg_variance(CUBE, TG_ALL, .correction = 1);)
BUILD(variance_middle, return tg_variance(CUBE, TG_AXES(1), .keepdims = true);)
BUILD(norm_1, return tg_norm(CUBE, TG_AXES(1), .ord = 1);)
BUILD(norm_largest, return tg_norm(CUBE, TG_AXES(0, 2), .ord = (double)INFINITY);)
BUILD(cumsum, return tg_cumsum(CUBE, 1);)
BUILD(cumsum_back, tg_tensor a = CUBE; return tg_mul(a, tg_cumsum(a, 0, .exclusive = true, .reverse = true));)
BUILD(cumsum_blocks, return tg_cumsum(in(g, w, "a", TG_SHAPE(131)), 0);)
BUILD(cumprod, return tg_cumprod(in(g, w, "a", TG_SHAPE(2, 5)), -1);)
BUILD(cumprod_back, return tg_cumprod(CUBE, 1, .exclusive = true, .reverse = true);)
BUILD(mean_last, return tg_mean_last(CUBE);)
BUILD(sum_last, return tg_sum_last(CUBE);)
BUILD(sum_everything, return tg_sum_all(CUBE);)
BUILD(variance, tg_tensor a = CUBE; return tg_mean_last(tg_square(tg_sub(a, tg_mean_last(a))));)

BUILD(reshape, return tg_reshape(CUBE, TG_SHAPE(4, -1));)
BUILD(transpose, return tg_transpose(CUBE, TG_AXES(2, 0, 1));)
BUILD(swap_axes, return tg_swap_axes(CUBE, 0, -1);)
BUILD(broadcast_to, return tg_broadcast_to(in(g, w, "a", TG_SHAPE(3, 1)), TG_SHAPE(2, 3, 4));)
BUILD(slice_last_range, return tg_slice_last_range(CUBE, 1, 3);)
BUILD(narrow, return tg_narrow(CUBE, 1, 1, 2);)
BUILD(squeeze, return tg_squeeze(in(g, w, "a", TG_SHAPE(1, 3, 1, 2)), TG_AXES(0, 2));)
BUILD(expand_dims, return tg_expand_dims(CUBE, 1);)
BUILD(pad, return tg_pad(CUBE, TG_SHAPE(0, 1, 2), TG_SHAPE(1, 0, 1), 0.5);)
BUILD(flip, return tg_flip(CUBE, TG_AXES(0, 2));)
BUILD(roll, tg_tensor a = CUBE; return tg_mul(a, tg_roll(a, -1, 1));)
BUILD(tile, return tg_tile(CUBE, TG_SHAPE(2, 1, 3));)
BUILD(repeat, return tg_repeat(CUBE, 3, 1);)
BUILD(split, tg_tensor parts[2]; tg_split(CUBE, 1, ((const int64_t[]){2, 1}), 2, parts); return tg_mul(parts[0], parts[1]);)
BUILD(matmul_vectors, tg_tensor a = in(g, w, "a", TG_SHAPE(4));
      return tg_matmul(a, tg_expand_dims(tg_matmul(in(g, w, "b", TG_SHAPE(2, 4, 4)), a), -1));)
BUILD(narrow_twice, tg_tensor a = CUBE; return tg_mul(tg_narrow(a, 1, 0, 2), tg_narrow(a, 1, 1, 2));)

/* Slices of one tensor: side by side, with gaps, over each other, in a grid with a hole, around a centre that no plane separates. */
static tg_tensor weighted_box(tg_tensor x, int64_t row, int64_t rows, int64_t column, int64_t columns, double by) {
    return tg_sum(tg_mul(tg_square(tg_narrow(tg_narrow(x, 0, row, rows), 1, column, columns)), by), TG_ALL);
}
static tg_tensor weighted_boxes(tg_tensor x, const int64_t (*boxes)[4], int count) {
    tg_tensor y = tg_sum(tg_mul(x, 0.1), TG_ALL);
    for (int i = 0; i < count; i++)
        y = tg_add(y, tg_sin(weighted_box(x, boxes[i][0], boxes[i][1], boxes[i][2], boxes[i][3], 0.3 + 0.1 * i)));
    return y;
}
#define BOXES(rows, columns, ...) \
  static const int64_t boxes[][4] = {__VA_ARGS__}; \
  return weighted_boxes(in(g, w, "a", TG_SHAPE(rows, columns)), boxes, SUPPORT_COUNT(boxes));
BUILD(slices_side_by_side, BOXES(3, 8, {0, 3, 4, 4}, {0, 3, 0, 2}, {0, 3, 2, 2}))
BUILD(slices_with_gaps, BOXES(9, 2, {1, 2, 0, 2}, {7, 1, 0, 2}, {4, 1, 0, 2}))
BUILD(slices_over_each_other, BOXES(7, 2, {0, 3, 0, 2}, {1, 3, 0, 2}, {2, 3, 0, 2}, {3, 3, 0, 2}, {4, 3, 0, 2}, {4, 3, 0, 2}))
BUILD(slices_in_a_grid, BOXES(4, 5, {0, 2, 0, 2}, {2, 2, 3, 2}, {0, 2, 2, 3}, {2, 2, 0, 2}))
BUILD(slices_around_a_centre, BOXES(3, 3, {0, 1, 0, 2}, {0, 2, 2, 1}, {2, 1, 1, 2}, {1, 2, 0, 1}, {1, 1, 1, 1}))
BUILD(slices_of_slices, tg_tensor a = tg_narrow(in(g, w, "a", TG_SHAPE(8, 2)), 0, 1, 6); tg_tensor y = tg_sin(tg_narrow(a, 0, 0, 2));
      for (int i = 1; i < 3; i++) y = tg_mul(y, tg_sin(tg_narrow(a, 0, 2 * i, 2))); return y;)
BUILD(slices_of_the_middle_axis, tg_tensor a = in(g, w, "a", TG_SHAPE(4, 3, 2)); tg_tensor y = tg_narrow(a, 1, 0, 1);
      for (int i = 1; i < 3; i++) y = tg_mul(y, tg_sin(tg_narrow(a, 1, i, 1))); return y;)

/* One weight in many products: their gradients are one product, the bias's one sum. */
static tg_tensor repeated_layer(tg_tensor x, tg_tensor m, tg_tensor b, int times) {
    for (int i = 0; i < times; i++) x = tg_tanh(tg_add(tg_matmul(x, m), b));
    return x;
}
BUILD(weight_used_often, tg_tensor x = in(g, w, "a", TG_SHAPE(3, 2)); tg_tensor m = in(g, w, "b", TG_SHAPE(2, 2));
      return repeated_layer(x, m, in(g, w, "v", TG_SHAPE(2)), 9);)
BUILD(weight_used_often_and_alone, tg_tensor x = in(g, w, "a", TG_SHAPE(2, 1, 2)); tg_tensor m = in(g, w, "b", TG_SHAPE(2, 2));
      return tg_add(repeated_layer(x, m, in(g, w, "v", TG_SHAPE(1, 2)), 8), tg_sum(tg_square(m), TG_AXES(0)));)
BUILD(long_gru, tg_tensor x = in(g, w, "a", TG_SHAPE(2, 10, 2)); tg_recurrent l = tg_nn_gru(g, "l", 2, 2); also(w, l.Wx); also(w, l.Wh);
      also(w, l.bx); also(w, l.bh); return tg_nn_gru_fwd(l, x);)
BUILD(long_lstm, tg_tensor x = in(g, w, "a", TG_SHAPE(2, 9, 2)); tg_recurrent l = tg_nn_lstm(g, "l", 2, 2); also(w, l.Wx); also(w, l.Wh);
      also(w, l.bx); also(w, l.bh); return tg_nn_lstm_fwd(l, x, .h0 = in(g, w, "h", TG_SHAPE(2, 2))).h;)
BUILD(concat, tg_tensor a = A; tg_tensor parts[3] = {a, in(g, w, "b", TG_SHAPE(2, 5)), a}; return tg_concat(parts, 3, 0);)
BUILD(stack, tg_tensor a = A; tg_tensor parts[3] = {a, B, a}; return tg_stack(parts, 3, 1);)
BUILD(ir_pad, tg_tensor a = A; return wrap(g, tg_ir_pad(g, a.id, (const int64_t[]){1, 2}, TG_SHAPE(6, 9)));)
BUILD(ir_flip, return wrap(g, tg_ir_flip(g, CUBE.id, 5u));)
BUILD(ir_window, tg_tensor y = wrap(g, tg_ir_window(g, in(g, w, "a", TG_SHAPE(2, 9, 2)).id, 1, (tg_window){3, 2, 2})); return tg_mul(y, y);)
BUILD(ir_fold, tg_tensor y = wrap(g, tg_ir_fold(g, in(g, w, "a", TG_SHAPE(2, 4, 2, 3)).id, 1, (tg_window){3, 2, 2}, 13));
      return tg_mul(y, y);)
BUILD(ir_pack, tg_tensor a = A; tg_tensor b = in(g, w, "b", TG_SHAPE(7)); const int32_t parts[2] = {a.id, b.id};
      return wrap(g, tg_ir_pack(g, parts, (const int64_t[]){2, 20}, 2, 30));)

BUILD(matmul, tg_tensor a = in(g, w, "a", TG_SHAPE(3, 4)); return tg_matmul(a, in(g, w, "b", TG_SHAPE(4, 5)));)
BUILD(matmul_leading, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 2, 3, 4)); return tg_matmul(a, in(g, w, "b", TG_SHAPE(4, 2)));)
BUILD(matmul_square, tg_tensor a = in(g, w, "a", TG_SHAPE(3, 3)); return tg_matmul(a, tg_swap_axes(a, 0, 1));)
BUILD(matmul_batched, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 3, 4)); return tg_matmul_batched(a, in(g, w, "b", TG_SHAPE(2, 4, 2)));)
BUILD(matmul_batched_over, tg_tensor a = in(g, w, "a", TG_SHAPE(1, 3, 1)); return tg_matmul_batched(a, in(g, w, "b", TG_SHAPE(2, 1, 5)));)
BUILD(matmul_batched_under, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 1, 3, 2));
      return tg_matmul_batched(a, in(g, w, "b", TG_SHAPE(3, 2, 2)));)
BUILD(embedding, tg_tensor a = in(g, w, "a", TG_SHAPE(4, 3)); return tg_embedding(a, tg_input(g, "i", TG_SHAPE(2, 5), TG_I32));)
BUILD(embedding_computed, tg_tensor a = in(g, w, "a", TG_SHAPE(4, 3)); tg_tensor i = tg_input(g, "i", TG_SHAPE(6), TG_I32);
      return tg_embedding(tg_tanh(a), tg_minimum(tg_add(i, 1.0), 3.0));)
BUILD(gather, return tg_gather(CUBE, tg_input(g, "i", TG_SHAPE(2, 2), TG_I32), 2);)
BUILD(gather_first, return tg_gather(in(g, w, "a", TG_SHAPE(4, 2)), tg_input(g, "i", TG_SHAPE(3), TG_I32), 0);)
BUILD(take_along_axis, return tg_take_along_axis(in(g, w, "a", TG_SHAPE(2, 4, 3)), tg_input(g, "i", TG_SHAPE(2, 2, 3), TG_I32), 1);)
BUILD(scatter_add, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 4)); tg_tensor b = in(g, w, "b", TG_SHAPE(2, 3));
      return tg_scatter_add(a, tg_input(g, "i", TG_SHAPE(3), TG_I32), tg_mul(b, b), 1);)
BUILD(sort, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 5)); return tg_mul(a, tg_sort(a, 1));)
BUILD(sort_down, return tg_sort(in(g, w, "a", TG_SHAPE(4, 2)), 0, .descending = true);)
BUILD(top_k, tg_tensor a = CUBE; return tg_top_k(tg_mul(a, a), 2, 2).values;)
BUILD(einsum_batch, tg_tensor parts[3] = {in(g, w, "a", TG_SHAPE(2, 3, 4)), in(g, w, "b", TG_SHAPE(2, 4, 2)), in(g, w, "v", TG_SHAPE(3))};
      return tg_einsum("bij,bjk,i->kb", parts, 3);)
BUILD(einsum_diagonal, tg_tensor a = in(g, w, "a", TG_SHAPE(3, 2, 3)); tg_tensor parts[2] = {a, in(g, w, "b", TG_SHAPE(2, 1, 3))};
      return tg_einsum("i...i,...ji->...i", parts, 2);)
BUILD(einsum_shared, tg_tensor parts[2] = {in(g, w, "a", TG_SHAPE(2, 3, 4)), in(g, w, "b", TG_SHAPE(4, 2))};
      return tg_einsum("bij,jk->bik", parts, 2);)
BUILD(rope, return tg_rope(in(g, w, "a", TG_SHAPE(2, 3, 4)), .base = 100);)
BUILD(rope_pairs, tg_tensor a = in(g, w, "a", TG_SHAPE(3, 6));
      return tg_rope(a, .interleaved = true, .positions = tg_input(g, "i", TG_SHAPE(3), TG_I32));)
BUILD(ir_scatter_add, tg_tensor i = tg_input(g, "i", TG_SHAPE(6), TG_I32);
      return wrap(g, tg_ir_scatter_add(g, i.id, in(g, w, "a", TG_SHAPE(6, 2)).id, 4));)

BUILD(dropout, return tg_dropout(tg_exp(A), 0.4);)
BUILD(dropout_twice, tg_tensor a = A; return tg_dropout(tg_mul(tg_dropout(a, 0.5), a), 0.25);)
BUILD(masked_noise, tg_tensor a = A; tg_tensor b = B; tg_tensor keep = tg_bernoulli(g, TG_SHAPE(3, 5), 0.6);
      return tg_where(keep, tg_add(a, tg_mul(b, tg_randn(g, TG_SHAPE(3, 5)))), tg_mul(b, tg_rand(g, TG_SHAPE(5))));)

#define IMAGE in(g, w, "a", TG_SHAPE(2, 2, 5, 6))
#define KERNEL(...) in(g, w, "b", TG_SHAPE(__VA_ARGS__))
BUILD(conv1d, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 4, 7)); tg_tensor b = KERNEL(6, 2, 3);
      return tg_conv1d(a, b, .groups = 2, .stride = {2}, .padding = tg_padding_sides(2, 1, 0, 0), .bias = in(g, w, "c", TG_SHAPE(6)));)
BUILD(conv2d, tg_tensor a = IMAGE; return tg_conv2d(a, KERNEL(3, 2, 3, 2));)
BUILD(conv2d_same, tg_tensor a = IMAGE; return tg_tanh(tg_conv2d(a, KERNEL(2, 1, 2, 3), .groups = 2, .padding = tg_padding_same()));)
BUILD(conv2d_strided, tg_tensor a = IMAGE;
      return tg_conv2d(a, KERNEL(2, 2, 3, 2), .stride = {2, 3}, .dilation = {1, 2}, .padding = tg_padding_all(1));)
BUILD(conv2d_twice, tg_tensor a = IMAGE; tg_tensor b = KERNEL(2, 2, 2, 2); return tg_conv2d(tg_tanh(tg_conv2d(a, b)), b);)
BUILD(conv_transpose1d, tg_tensor a = in(g, w, "a", TG_SHAPE(2, 2, 4));
      return tg_conv_transpose1d(a, KERNEL(2, 3, 3), .stride = {2}, .padding = tg_padding_all(1), .output_padding = {1});)
BUILD(conv_transpose2d, tg_tensor a = IMAGE;
      return tg_conv_transpose2d(a, KERNEL(2, 1, 2, 3), .groups = 2, .padding = tg_padding_axes(0, 1));)
BUILD(conv_transpose2d_strided, tg_tensor a = in(g, w, "a", TG_SHAPE(1, 2, 3, 2));
      return tg_conv_transpose2d(a, KERNEL(2, 2, 3, 2), .stride = {2, 3}, .dilation = {2, 1});)
BUILD(max_pool1d, return tg_max_pool1d(in(g, w, "a", TG_SHAPE(2, 2, 7)), 3, .stride = {2}, .padding = tg_padding_all(1));)
BUILD(max_pool2d, return tg_max_pool2d(IMAGE, 2, 2, .ceil_mode = true);)
BUILD(max_pool2d_over, tg_tensor y = tg_max_pool2d(in(g, w, "a", TG_SHAPE(1, 2, 4, 3)), 3, 2, .stride = {1}, .padding = tg_padding_all(1));
      return tg_mul(y, y);)
BUILD(avg_pool1d, return tg_avg_pool1d(in(g, w, "a", TG_SHAPE(2, 2, 7)), 3, .padding = tg_padding_all(1), .exclude_padding = true);)
BUILD(avg_pool2d, tg_tensor y = tg_avg_pool2d(IMAGE, 3, 2, .stride = {2, 1}, .padding = tg_padding_all(1)); return tg_mul(y, y);)
BUILD(global_avg_pool, return tg_global_avg_pool(IMAGE);)
BUILD(global_max_pool, return tg_global_max_pool(IMAGE);)
BUILD(upsample_nearest, tg_tensor y = tg_upsample_nearest(IMAGE, .factor = {2, 3}); return tg_mul(y, y);)
BUILD(upsample_bilinear, tg_tensor y = tg_upsample_bilinear(IMAGE, .factor = {2, 3}); return tg_mul(y, y);)
BUILD(upsample_bilinear_aligned, return tg_upsample_bilinear(in(g, w, "a", TG_SHAPE(2, 1, 4)), .factor = {3}, .align_corners = true);)
BUILD(conv_layers, tg_conv l = tg_nn_conv2d(g, "l", 2, 3, 3, 2, .stride = {1, 2}); also(w, l.W); also(w, l.b);
      tg_conv t = tg_nn_conv_transpose2d(g, "t", 3, 2, 2, 2, .stride = {2}, .no_bias = true); also(w, t.W);
      tg_conv o = tg_nn_conv1d(g, "o", 2, 2, 3, .padding = tg_padding_same()); also(w, o.W);
      tg_tensor y = tg_nn_conv_transpose2d_fwd(t, tg_tanh(tg_nn_conv2d_fwd(l, IMAGE)));
      return tg_nn_conv1d_fwd(o, tg_reshape(y, TG_SHAPE(2, 2, -1)));)

#define SQUARES in(g, w, "a", TG_SHAPE(2, 4, 4))
BUILD(softmax, return tg_softmax(CUBE, -1);)
BUILD(softmax_middle, return tg_softmax(CUBE, 1);)
BUILD(log_softmax, return tg_log_softmax(CUBE, -1);)
BUILD(log_softmax_first, return tg_log_softmax(CUBE, 0);)
BUILD(logsumexp, return tg_logsumexp(CUBE, 1);)
BUILD(masked_softmax, tg_tensor a = CUBE; return tg_masked_softmax(a, tg_input(g, "m", TG_SHAPE(2, 1, 4), TG_BOOL), -1);)
BUILD(masked_softmax_first, tg_tensor a = CUBE; return tg_masked_softmax(a, tg_input(g, "m", TG_SHAPE(3, 4), TG_BOOL), 0);)
BUILD(tril, return tg_tril(CUBE, 1);)
BUILD(triu, return tg_triu(CUBE, -1);)
BUILD(softmax_causal_last, return tg_softmax_causal_last(SQUARES);)
BUILD(where_causal, return tg_where_causal(SQUARES, -3.0);)
BUILD(capture, return tg_capture("kept", tg_exp(A));)

BUILD(linear, tg_linear l = tg_nn_linear(g, "l", 4, 3); also(w, l.W); also(w, l.b); return tg_nn_linear_fwd(l, CUBE);)
BUILD(linear_no_bias, tg_linear l = tg_nn_linear(g, "l", 4, 3, .no_bias = true); also(w, l.W); return tg_nn_linear_fwd(l, CUBE);)
BUILD(layer_norm, tg_layer_norm l = tg_nn_layer_norm(g, "n", 4); also(w, l.g); also(w, l.b); return tg_nn_layer_norm_fwd(l, CUBE);)
BUILD(rms_norm, tg_rms_norm l = tg_nn_rms_norm(g, "n", 4); also(w, l.g); return tg_nn_rms_norm_fwd(l, CUBE);)
BUILD(group_norm, tg_group_norm l = tg_nn_group_norm(g, "n", 2, 4); also(w, l.g); also(w, l.b);
      return tg_nn_group_norm_fwd(l, in(g, w, "a", TG_SHAPE(2, 4, 3)));)
BUILD(batch_norm, tg_batch_norm l = tg_nn_batch_norm(g, "n", 3); also(w, l.g); also(w, l.b); return tg_nn_batch_norm_fwd(l, CUBE, true);)
BUILD(batch_norm_rows, tg_batch_norm l = tg_nn_batch_norm(g, "n", 5); also(w, l.g); also(w, l.b); return tg_nn_batch_norm_fwd(l, A, true);)
BUILD(batch_norm_running, tg_batch_norm l = tg_nn_batch_norm(g, "pn", 3); also(w, l.g); also(w, l.b);
      return tg_nn_batch_norm_fwd(l, CUBE, false);)

/* What the primitive of attention gives, o and the log-sum-exp both under the cotangent. */
static tg_tensor packed_attention(tg_graph *g, wrt_list *w, bool causal, bool masked) {
    const tg_tensor q = in(g, w, "a", TG_SHAPE(2, 4, 3, 2)), k = in(g, w, "b", TG_SHAPE(2, 2, 3, 2)),
                    v = in(g, w, "v", TG_SHAPE(2, 2, 3, 2));
    int32_t inputs[4] = {q.id, k.id, v.id, 0};
    if (masked) inputs[3] = tg_ir_broadcast(g, tg_input(g, "m", TG_SHAPE(3, 3), TG_BOOL).id, TG_SHAPE(2, 4, 3, 3));
    const int32_t packed = tg_ir_attention(g, TG_OP_ATTENTION, inputs, masked ? 4 : 3, causal, 0.7);
    /* a row that sees nothing has a log-sum-exp without a gradient */
    return wrap(g, masked ? tg_ir_attention_out(g, packed, (tg_attention_shape){2, 2, 2, 3, 3, 2}, 0) : packed);
}
BUILD(ir_attention, return packed_attention(g, w, false, false);)
BUILD(ir_attention_causal, return packed_attention(g, w, true, false);)
BUILD(ir_attention_masked, return packed_attention(g, w, true, true);)
static tg_tensor attention_back(tg_graph *g, wrt_list *w, tg_op op) {
    static const char *const names[6] = {"a", "b", "v", "d", "l", "e"};
    const tg_shape q = TG_SHAPE(1, 2, 3, 2), k = TG_SHAPE(1, 1, 3, 2), row = TG_SHAPE(1, 2, 3, 1), shapes[6] = {q, k, k, q, row, row};
    int32_t inputs[6];
    for (int i = 0; i < 6; i++) inputs[i] = in(g, w, names[i], shapes[i]).id;
    return wrap(g, tg_ir_attention(g, op, inputs, 6, true, 0.7));
}
BUILD(ir_attention_dq, return attention_back(g, w, TG_OP_ATTENTION_DQ);)
BUILD(ir_attention_dkv, return attention_back(g, w, TG_OP_ATTENTION_DKV);)
BUILD(grouped_attention, tg_tensor q = in(g, w, "a", TG_SHAPE(2, 4, 3, 2)); tg_tensor k = in(g, w, "b", TG_SHAPE(2, 2, 3, 2));
      tg_tensor v = in(g, w, "v", TG_SHAPE(2, 2, 3, 2)); return tg_nn_attention_values(tg_nn_attention_weights(q, k, .causal = true), v);)
BUILD(masked_attention, tg_tensor q = in(g, w, "a", TG_SHAPE(1, 2, 3, 2)); tg_tensor k = in(g, w, "b", TG_SHAPE(1, 1, 4, 2));
      tg_tensor v = in(g, w, "v", TG_SHAPE(1, 1, 4, 2));
      return tg_nn_attention_values(tg_nn_attention_weights(q, k, .mask = tg_input(g, "m", TG_SHAPE(3, 4), TG_BOOL)), v);)
BUILD(attention_layer, tg_tensor x = in(g, w, "a", TG_SHAPE(2, 3, 4));
      tg_attention l = tg_nn_attention(g, "l", 4, 2, .causal = true, .rope_base = 100); also(w, l.q.W); also(w, l.k.W); also(w, l.v.W);
      also(w, l.o.W); also(w, l.o.b); return tg_nn_attention_fwd(l, x);)
BUILD(mlp_layer, tg_tensor x = A;
      tg_mlp l = tg_nn_mlp(g, "l", ((const int64_t[]){5, 3, 4}), 3, .activation = tg_tanh_at, .activate_last = true);
      also(w, l.layers[0].W); also(w, l.layers[1].b); return tg_nn_mlp_fwd(l, x);)

#define SERIES in(g, w, "a", TG_SHAPE(2, 4, 3))
#define CELL(kind) \
  tg_tensor x = SERIES; \
  tg_recurrent l = tg_nn_##kind(g, "l", 3, 2); \
  also(w, l.Wx); \
  also(w, l.Wh); \
  also(w, l.bx); \
  also(w, l.bh);
BUILD(rnn, CELL(rnn) return tg_nn_rnn_fwd(l, x, .h0 = in(g, w, "h", TG_SHAPE(2, 2)));)
BUILD(gru, CELL(gru) return tg_nn_gru_fwd(l, x, .h0 = in(g, w, "h", TG_SHAPE(2, 2)));)
BUILD(gru_from_zeros, CELL(gru) return tg_nn_gru_fwd(l, x);)
BUILD(gru_step, CELL(gru) tg_tensor h = in(g, w, "h", TG_SHAPE(2, 2));
      return tg_nn_gru_step(l, tg_reshape(tg_narrow(x, 1, 2, 1), TG_SHAPE(2, 3)), h);)
BUILD(lstm, CELL(lstm) tg_tensor h = in(g, w, "h", TG_SHAPE(2, 2));
      tg_lstm_states s = tg_nn_lstm_fwd(l, x, .h0 = h, .c0 = in(g, w, "c", TG_SHAPE(2, 2))); return tg_add(s.h, tg_sin(s.c));)
BUILD(lstm_from_zeros, CELL(lstm) return tg_nn_lstm_fwd(l, x).h;)
BUILD(split_heads, return tg_nn_split_heads(in(g, w, "a", TG_SHAPE(2, 3, 4)), 2);)
BUILD(split_heads_of_a_matrix, return tg_nn_split_heads(in(g, w, "a", TG_SHAPE(3, 4)), 2);)
BUILD(merge_heads_to_a_matrix, return tg_nn_merge_heads(in(g, w, "a", TG_SHAPE(2, 3, 2)));)
BUILD(merge_heads, return tg_nn_merge_heads(in(g, w, "a", TG_SHAPE(2, 2, 3, 2)));)
BUILD(cross_entropy_last, tg_tensor a = CUBE; return tg_nn_cross_entropy_last(a, tg_input(g, "i", TG_SHAPE(2, 3), TG_I32));)
BUILD(cross_entropy, tg_tensor a = CUBE; return tg_nn_cross_entropy(a, tg_input(g, "i", TG_SHAPE(2, 3), TG_I32), 2);)
BUILD(mse, tg_tensor a = A; return tg_nn_mse(a, B);)
BUILD(bce_with_logits, tg_tensor a = A; return tg_nn_bce_with_logits(a, B);)

BUILD(cross_entropy_smoothed, tg_tensor a = CUBE;
      return tg_nn_cross_entropy(a, tg_input(g, "i", TG_SHAPE(2, 3), TG_I32), 2, .label_smoothing = .2, .reduction = TG_REDUCTION_SUM);)
BUILD(cross_entropy_each, tg_tensor a = CUBE;
      return tg_nn_cross_entropy(a, tg_input(g, "i", TG_SHAPE(2, 3), TG_I32), 2, .label_smoothing = .1, .reduction = TG_REDUCTION_NONE);)
BUILD(nll, tg_tensor a = CUBE; return tg_nn_nll(tg_log_softmax(a, -1), tg_input(g, "i", TG_SHAPE(2, 3), TG_I32), 2);)
BUILD(mse_sum, tg_tensor a = A; return tg_nn_mse(a, B, .reduction = TG_REDUCTION_SUM);)
BUILD(l1, tg_tensor a = A; return tg_nn_l1(a, B, .reduction = TG_REDUCTION_NONE);)
BUILD(huber, tg_tensor a = A; return tg_nn_huber(a, B, .delta = .7);)
BUILD(bce_weighted, tg_tensor a = A; tg_tensor b = B;
      return tg_nn_bce_with_logits(a, b, .positive_weight = in(g, w, "v", TG_SHAPE(5)), .reduction = TG_REDUCTION_NONE);)
BUILD(kl_div, tg_tensor a = A; return tg_nn_kl_div(a, B, .reduction = TG_REDUCTION_NONE);)
BUILD(kl_div_log, tg_tensor a = A; return tg_nn_kl_div(a, B, .log_target = true);)

BUILD(attention, tg_tensor q = in(g, w, "a", TG_SHAPE(2, 3, 2)); tg_tensor k = in(g, w, "b", TG_SHAPE(2, 3, 2));
      tg_tensor v = in(g, w, "v", TG_SHAPE(2, 3, 2));
      return tg_matmul_batched(tg_softmax_causal_last(tg_mul(tg_matmul_batched(q, tg_swap_axes(k, -1, -2)), 0.7)), v);)
BUILD(mlp, tg_linear l1 = tg_nn_linear(g, "l1", 5, 6); tg_linear l2 = tg_nn_linear(g, "l2", 6, 2); also(w, l1.W); also(w, l1.b);
      also(w, l2.W); return tg_nn_linear_fwd(l2, tg_tanh(tg_nn_linear_fwd(l1, A)));)

#define CASE(name, ...) \
  { #name, build_##name, __VA_ARGS__ }
#define BINARY_CASES(name, values, smooth) \
  CASE(name, values, smooth), CASE(name##_row, values, false), CASE(name##_outer, values, smooth), CASE(name##_scalar, values, false), \
      CASE(name##_number, values, false), CASE(name##_of_number, values, false), CASE(name##_self, values, smooth)
#define REDUCTION_CASES(name, smooth) \
  CASE(name##_all, ANY, false), CASE(name##_first, ANY, false), CASE(name##_middle, ANY, false), CASE(name##_ends, ANY, smooth), \
      CASE(name##_used, ANY, smooth)

static const gradient_case cases[] = {CASE(neg, ANY, false),
                                      CASE(abs, ANY, false),
                                      CASE(sign, ANY, false),
                                      CASE(square, ANY, true),
                                      CASE(sqrt, POSITIVE, true),
                                      CASE(rsqrt, POSITIVE, true),
                                      CASE(reciprocal, POSITIVE, true),
                                      CASE(exp, ANY, true),
                                      CASE(log, POSITIVE, true),
                                      CASE(sin, ANY, true),
                                      CASE(cos, ANY, true),
                                      CASE(tanh, ANY, true),
                                      CASE(erf, ANY, true),
                                      CASE(sigmoid, ANY, true),
                                      CASE(softplus, ANY, true),
                                      CASE(expm1, ANY, true),
                                      CASE(log1p, POSITIVE, true),
                                      CASE(floor, ANY, false),
                                      CASE(ceil, ANY, false),
                                      CASE(round, ANY, false),
                                      CASE(tan, ANY, true),
                                      CASE(log_sigmoid, ANY, true),
                                      CASE(hard_sigmoid, ANY, false),
                                      CASE(hard_swish, ANY, true),
                                      CASE(leaky_relu, ANY, false),
                                      CASE(elu, ANY, true),
                                      CASE(silu, ANY, true),
                                      CASE(gelu, ANY, true),
                                      CASE(gelu_tanh, ANY, true),
                                      CASE(relu, ANY, false),
                                      CASE(stop_gradient, ANY, false),
                                      BINARY_CASES(add, ANY, false),
                                      BINARY_CASES(sub, ANY, false),
                                      BINARY_CASES(mul, ANY, true),
                                      BINARY_CASES(div, POSITIVE, true),
                                      BINARY_CASES(pow, POSITIVE, true),
                                      BINARY_CASES(mod, POSITIVE, false),
                                      CASE(floor_div, ANY, false),
                                      BINARY_CASES(minimum, ANY, false),
                                      BINARY_CASES(maximum, ANY, false),
                                      CASE(pow_square, ANY, true),
                                      CASE(pow_cube, ANY, true),
                                      CASE(clamp, ANY, false),
                                      CASE(where, ANY, false),
                                      CASE(where_less, ANY, true),
                                      CASE(cast, ANY, false),
                                      CASE(ir_select, ANY, false),
                                      REDUCTION_CASES(sum, false),
                                      REDUCTION_CASES(mean, true),
                                      REDUCTION_CASES(max, true),
                                      REDUCTION_CASES(min, true),
                                      REDUCTION_CASES(prod, true),
                                      REDUCTION_CASES(norm, true),
                                      REDUCTION_CASES(std, true),
                                      CASE(variance_all, ANY, true),
                                      CASE(variance_middle, ANY, false),
                                      CASE(norm_1, ANY, false),
                                      CASE(norm_largest, ANY, false),
                                      CASE(cumsum, ANY, false),
                                      CASE(cumsum_back, ANY, true),
                                      CASE(cumsum_blocks, ANY, false),
                                      CASE(cumprod, ANY, true),
                                      CASE(cumprod_back, ANY, true),
                                      CASE(mean_last, ANY, false),
                                      CASE(sum_last, ANY, false),
                                      CASE(sum_everything, ANY, false),
                                      CASE(variance, ANY, true),
                                      CASE(reshape, ANY, false),
                                      CASE(transpose, ANY, false),
                                      CASE(swap_axes, ANY, false),
                                      CASE(broadcast_to, ANY, false),
                                      CASE(slice_last_range, ANY, false),
                                      CASE(narrow, ANY, false),
                                      CASE(squeeze, ANY, false),
                                      CASE(expand_dims, ANY, false),
                                      CASE(pad, ANY, false),
                                      CASE(flip, ANY, false),
                                      CASE(roll, ANY, true),
                                      CASE(tile, ANY, false),
                                      CASE(repeat, ANY, false),
                                      CASE(split, ANY, true),
                                      CASE(matmul_vectors, ANY, true),
                                      CASE(narrow_twice, ANY, true),
                                      CASE(slices_side_by_side, ANY, true),
                                      CASE(slices_with_gaps, ANY, true),
                                      CASE(slices_over_each_other, ANY, true),
                                      CASE(slices_in_a_grid, ANY, true),
                                      CASE(slices_around_a_centre, ANY, true),
                                      CASE(slices_of_slices, ANY, true),
                                      CASE(slices_of_the_middle_axis, ANY, true),
                                      CASE(weight_used_often, ANY, true),
                                      CASE(weight_used_often_and_alone, ANY, true),
                                      CASE(long_gru, ANY, false),
                                      CASE(long_lstm, ANY, false),
                                      CASE(concat, ANY, false),
                                      CASE(stack, ANY, false),
                                      CASE(ir_pad, ANY, false),
                                      CASE(ir_flip, ANY, false),
                                      CASE(ir_window, ANY, true),
                                      CASE(ir_fold, ANY, true),
                                      CASE(ir_pack, ANY, false),
                                      CASE(matmul, ANY, true),
                                      CASE(matmul_leading, ANY, false),
                                      CASE(matmul_square, ANY, true),
                                      CASE(matmul_batched, ANY, true),
                                      CASE(matmul_batched_over, ANY, true),
                                      CASE(matmul_batched_under, ANY, false),
                                      CASE(embedding, INDICES, false),
                                      CASE(embedding_computed, INDICES, true),
                                      CASE(gather, INDICES, false),
                                      CASE(gather_first, INDICES, false),
                                      CASE(take_along_axis, INDICES, false),
                                      CASE(scatter_add, INDICES, true),
                                      CASE(sort, ANY, true),
                                      CASE(sort_down, ANY, false),
                                      CASE(top_k, ANY, true),
                                      CASE(einsum_batch, ANY, true),
                                      CASE(einsum_diagonal, ANY, true),
                                      CASE(einsum_shared, ANY, true),
                                      CASE(rope, ANY, false),
                                      CASE(rope_pairs, INDICES, false),
                                      CASE(ir_scatter_add, INDICES, false),
                                      CASE(dropout, ANY, true),
                                      CASE(dropout_twice, ANY, true),
                                      CASE(masked_noise, ANY, false),
                                      CASE(conv1d, ANY, true),
                                      CASE(conv2d, ANY, true),
                                      CASE(conv2d_same, ANY, true),
                                      CASE(conv2d_strided, ANY, true),
                                      CASE(conv2d_twice, ANY, true),
                                      CASE(conv_transpose1d, ANY, true),
                                      CASE(conv_transpose2d, ANY, true),
                                      CASE(conv_transpose2d_strided, ANY, true),
                                      CASE(max_pool1d, ANY, false),
                                      CASE(max_pool2d, ANY, false),
                                      CASE(max_pool2d_over, ANY, true),
                                      CASE(avg_pool1d, ANY, false),
                                      CASE(avg_pool2d, ANY, true),
                                      CASE(global_avg_pool, ANY, false),
                                      CASE(global_max_pool, ANY, false),
                                      CASE(upsample_nearest, ANY, true),
                                      CASE(upsample_bilinear, ANY, true),
                                      CASE(upsample_bilinear_aligned, ANY, false),
                                      CASE(conv_layers, ANY, false),
                                      CASE(softmax, ANY, true),
                                      CASE(softmax_middle, ANY, true),
                                      CASE(log_softmax, ANY, true),
                                      CASE(log_softmax_first, ANY, false),
                                      CASE(logsumexp, ANY, true),
                                      CASE(masked_softmax, ANY, true),
                                      CASE(masked_softmax_first, ANY, false),
                                      CASE(tril, ANY, false),
                                      CASE(triu, ANY, false),
                                      CASE(softmax_causal_last, ANY, true),
                                      CASE(where_causal, ANY, false),
                                      CASE(capture, ANY, true),
                                      CASE(linear, ANY, true),
                                      CASE(linear_no_bias, ANY, false),
                                      CASE(layer_norm, ANY, true),
                                      CASE(ir_attention, ANY, true),
                                      CASE(ir_attention_causal, ANY, true),
                                      CASE(ir_attention_masked, ANY, false),
                                      CASE(ir_attention_dq, ANY, true),
                                      CASE(ir_attention_dkv, ANY, true),
                                      CASE(grouped_attention, ANY, true),
                                      CASE(masked_attention, ANY, false),
                                      CASE(attention_layer, ANY, false),
                                      CASE(mlp_layer, ANY, true),
                                      CASE(rms_norm, ANY, true),
                                      CASE(group_norm, ANY, true),
                                      CASE(batch_norm, ANY, true),
                                      CASE(batch_norm_rows, ANY, false),
                                      CASE(batch_norm_running, POSITIVE, false),
                                      CASE(rnn, ANY, false),
                                      CASE(gru, ANY, false),
                                      CASE(gru_from_zeros, ANY, false),
                                      CASE(gru_step, ANY, true),
                                      CASE(lstm, ANY, false),
                                      CASE(lstm_from_zeros, ANY, false),
                                      CASE(split_heads, ANY, false),
                                      CASE(merge_heads, ANY, false),
                                      CASE(split_heads_of_a_matrix, ANY, false),
                                      CASE(merge_heads_to_a_matrix, ANY, false),
                                      CASE(cross_entropy_last, INDICES, true),
                                      CASE(cross_entropy, INDICES, true),
                                      CASE(mse, ANY, true),
                                      CASE(bce_with_logits, ANY, true),
                                      CASE(cross_entropy_smoothed, INDICES, true),
                                      CASE(cross_entropy_each, INDICES, false),
                                      CASE(nll, INDICES, false),
                                      CASE(mse_sum, ANY, false),
                                      CASE(l1, ANY, false),
                                      CASE(huber, ANY, false),
                                      CASE(bce_weighted, ANY, true),
                                      CASE(kl_div, POSITIVE, true),
                                      CASE(kl_div_log, ANY, true),
                                      CASE(attention, ANY, true),
                                      CASE(mlp, ANY, true)};

/* f32 inputs stay away from 0, where several of these have a kink; indices are rows of the small tables above. */
static void fill_gradients(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    const gradient_case *c = user;
    support_fill_default(NULL, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TG_I32) out[i] = fabs(out[i]) > 3 ? 3 : fabs(out[i]);
        if (dtype != TG_F32) continue;
        if (fabs(out[i]) < 0.05) out[i] = 0.06;
        if (c->values == POSITIVE && strncmp(name, "cot", 3) != 0) out[i] = 0.3 + fabs(out[i]);
    }
}

/* ---------------------------------------------------------------- graphs with gradients */

typedef struct built {
    const gradient_case *c;
    bool second;
    int forward_nodes;
    wrt_list wrt;
    tg_tensor scalar, grads[MAX_WRT];
} built;

/* scalar = <y, cot>; grads of it. second: scalar = sum_i <grad_i, direction_i> of that, and its gradients. */
static tg_tensor build_gradients(tg_graph *g, void *user) {
    built *b = user;
    char name[32];
    memset(&b->wrt, 0, sizeof b->wrt);
    const tg_tensor y = b->c->build(g, &b->wrt);
    if (y.id == 0) return y;
    b->forward_nodes = (int)g->nodes.count;
    tg_tensor cot = tg_input(g, "cot", tg_tensor_shape(y), TG_F32);
    b->scalar = tg_sum_all(tg_mul(y, cot));
    tg_vjp(y, cot, b->wrt.items, b->wrt.count, b->grads);
    if (b->second) {
        b->scalar = tg_zeros(g, TG_SCALAR);
        for (int i = 0; i < b->wrt.count; i++) {
            snprintf(name, sizeof name, "cot%d", i);
            const tg_tensor direction = tg_input(g, name, tg_tensor_shape(b->grads[i]), TG_F32);
            b->scalar = tg_add(b->scalar, tg_sum_all(tg_mul(b->grads[i], direction)));
        }
        tg_grad(b->scalar, b->wrt.items, b->wrt.count, b->grads);
    }
    for (int i = 0; i < b->wrt.count; i++) {
        snprintf(name, sizeof name, "grad %d", i);
        tg_capture(name, b->grads[i]);
    }
    return b->scalar;
}

typedef struct leaves {
    const tg_graph *graph;
    double **data;
} leaves;

static leaves leaves_make(const tg_graph *g, const gradient_case *c) {
    leaves l = {g, calloc((size_t)g->nodes.count, sizeof(double *))};
    assert_non_null(l.data);
    for (int32_t id = 1; id < g->nodes.count; id++) {
        const tg_node *n = &g->nodes.items[id];
        if (n->op != TG_OP_INPUT && n->op != TG_OP_PARAM && n->op != TG_OP_STATE) continue;
        const char *name = n->op == TG_OP_INPUT   ? g->inputs.items[n->attr.leaf].name
                           : n->op == TG_OP_PARAM ? g->params.items[n->attr.leaf].name
                                                  : g->states.items[n->attr.leaf].name;
        const int64_t count = tg_shape_count(n->shape);
        l.data[id] = malloc(sizeof(double) * (size_t)count);
        assert_non_null(l.data[id]);
        fill_gradients((void *)(uintptr_t)c, name, n->shape, n->dtype, l.data[id], count);
        for (int64_t i = 0; i < count && n->dtype == TG_F32; i++) l.data[id][i] = (double)(float)l.data[id][i];
    }
    return l;
}

static void leaves_free(leaves *l) {
    for (int64_t i = 0; i < l->graph->nodes.count; i++) free(l->data[i]);
    free(l->data);
}

static double scalar_at(const leaves *l, int32_t scalar) {
    tg_reference *r = tg_reference_run(l->graph, (const double *const *)l->data);
    assert_non_null(r);
    const double value = tg_reference_value(r, scalar)[0];
    tg_reference_destroy(r);
    return value;
}

static bool close_enough(const char *what, double got, double want, double scale) {
    if (fabs(got - want) <= 2e-6 * (1.0 + fabs(want) + scale)) return true;
    fprintf(stderr, "%s: gradient %.9g, by differences %.9g\n", what, got, want);
    return false;
}

static bool check_elements(const leaves *l, const built *b, const tg_reference *r) {
    bool same = true;
    char what[160];
    for (int i = 0; i < b->wrt.count; i++) {
        const int32_t x = b->wrt.items[i].id;
        const double *grad = tg_reference_value(r, b->grads[i].id);
        const int64_t count = tg_shape_count(tg_tensor_shape(b->wrt.items[i]));
        assert_true(tg_shape_equal(tg_tensor_shape(b->wrt.items[i]), tg_tensor_shape(b->grads[i])));
        for (int64_t k = 0; k < count; k++) {
            const double kept = l->data[x][k];
            l->data[x][k] = kept + STEP;
            const double above = scalar_at(l, b->scalar.id);
            l->data[x][k] = kept - STEP;
            const double below = scalar_at(l, b->scalar.id);
            l->data[x][k] = kept;
            snprintf(what, sizeof what, "%s%s: input %d[%lld]", b->c->name, b->second ? ", second" : "", i, (long long)k);
            same = close_enough(what, grad[k], (above - below) / (2 * STEP), 0.0) && same;
        }
    }
    return same;
}

/* <J v, u> = <v, J' u>: the cotangent u is inside the scalar, so both sides are its derivative along v. */
static bool check_adjoint(const leaves *l, const built *b, const tg_reference *r, support_random *random) {
    double along = 0.0, scale = 0.0, *direction[MAX_WRT];
    for (int i = 0; i < b->wrt.count; i++) {
        const int64_t count = tg_shape_count(tg_tensor_shape(b->wrt.items[i]));
        direction[i] = malloc(sizeof(double) * (size_t)count);
        assert_non_null(direction[i]);
        for (int64_t k = 0; k < count; k++) {
            direction[i][k] = support_random_uniform(random, -1.0, 1.0);
            const double term = direction[i][k] * tg_reference_value(r, b->grads[i].id)[k];
            along += term;
            scale += fabs(term);
        }
    }
    double value[2];
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < b->wrt.count; i++)
            for (int64_t k = 0; k < tg_shape_count(tg_tensor_shape(b->wrt.items[i])); k++)
                l->data[b->wrt.items[i].id][k] += (side == 0 ? 1.0 : -2.0) * STEP * direction[i][k];
        value[side] = scalar_at(l, b->scalar.id);
    }
    for (int i = 0; i < b->wrt.count; i++) {
        for (int64_t k = 0; k < tg_shape_count(tg_tensor_shape(b->wrt.items[i])); k++)
            l->data[b->wrt.items[i].id][k] += STEP * direction[i][k];
        free(direction[i]);
    }
    char what[160];
    snprintf(what, sizeof what, "%s%s: along a random direction", b->c->name, b->second ? ", second" : "");
    return close_enough(what, along, (value[0] - value[1]) / (2 * STEP), scale);
}

static bool on_webgpu(void) { return support_home_now() == SUPPORT_WEBGPU; }

static bool used[TG_OP_COUNT];

static bool check_f64(const gradient_case *c, bool second) {
    tg_context *ctx = support_context();
    built b = {.c = c, .second = second};
    const support_case traced = {build_gradients, &b, NULL, NULL};
    tg_graph *g = support_trace(ctx, &traced);
    if (!g) fail_msg("%s: %s", c->name, tg_error_message(ctx));
    for (int i = 0; i < b.forward_nodes; i++) used[g->nodes.items[i].op] = true;
    assert_int_equal(tg_graph_verify(g), TG_OK);
    leaves l = leaves_make(g, c);
    tg_reference *r = tg_reference_run(g, (const double *const *)l.data);
    assert_non_null(r);
    support_random random = support_random_make(support_seed(7));
    bool same = check_elements(&l, &b, r);
    for (int i = 0; i < 3; i++) same = check_adjoint(&l, &b, r, &random) && same;
    tg_reference_destroy(r);
    leaves_free(&l);
    tg_graph_destroy(g);
    tg_context_destroy(ctx);
    return same;
}

static double largest(const support_outputs *outputs) {
    double most = 0.0;
    for (int i = 0; i < outputs->count; i++)
        for (int64_t k = 0; k < outputs->items[i].count; k++) most = fmax(most, fabs(outputs->items[i].data[k]));
    return most;
}

static bool check_f32(const gradient_case *c, bool second, bool no_fusion) {
    built b = {.c = c, .second = second};
    const support_case traced = {build_gradients, &b, fill_gradients, (void *)(uintptr_t)c};
    support_outputs want, got;
    char what[128];
    if (!support_run_reference(&traced, 1, &want)) fail_msg("%s: reference: %s", c->name, want.message);
    support_run_home(&traced, &(support_options){.no_fusion = no_fusion}, &got);
    snprintf(what, sizeof what, "%s%s%s", c->name, second ? ", second" : "", no_fusion ? ", not fused" : "");
    const bool same = support_outputs_equal(what, &got, &want, (support_tolerance){8.0, 2e-6 * (1.0 + largest(&want)), 2e-5});
    support_outputs_free(&want);
    support_outputs_free(&got);
    return same;
}

static void test_first(void **state) {
    const gradient_case *c = *state;
    bool same = on_webgpu() || check_f64(c, false);
    same = check_f32(c, false, false) && same;
    same = check_f32(c, false, true) && same;
    assert_true(same);
}

static void test_second(void **state) {
    const gradient_case *c = *state;
    bool same = on_webgpu() || check_f64(c, true);
    same = check_f32(c, true, false) && same;
    assert_true(same);
}

/* ---------------------------------------------------------------- what has none */

static bool has_gradient(tg_op op) {
    switch (tg_op_table[op].class_) {
    case TG_CLASS_LEAF:
    case TG_CLASS_COMPARE:
    case TG_CLASS_LOGICAL:
    case TG_CLASS_RANDOM: return false;
    case TG_CLASS_REDUCE: return op != TG_OP_ARGMAX && op != TG_OP_ARGMIN;
    default: return true;
    }
}

static void test_every_primitive_was_checked(void **state) {
    (void)state;
    if (on_webgpu()) return; /* by the f64 part, which is not run again there */
    bool all = true;
    for (int op = 1; op < TG_OP_COUNT; op++) {
        if (!has_gradient((tg_op)op) || used[op]) continue;
        fprintf(stderr, "%s: no gradient case\n", tg_op_table[op].name);
        all = false;
    }
    assert_true(all);
}

/* f(stop(x)) has gradient 0, and only the other path counts in x * stop(x). */
static tg_tensor build_stopped(tg_graph *g, void *user) {
    (void)user;
    tg_tensor grads[2];
    const tg_tensor x[2] = {tg_input(g, "a", TG_SHAPE(4), TG_F32), tg_input(g, "b", TG_SHAPE(3), TG_F32)};
    const tg_tensor loss = tg_add(tg_sum_all(tg_mul(x[0], tg_stop_gradient(x[0]))), tg_sum_all(tg_exp(tg_stop_gradient(x[1]))));
    tg_grad(loss, x, 2, grads);
    tg_capture("stopped", grads[1]);
    tg_capture("difference", tg_sub(grads[0], x[0]));
    return loss;
}

static void test_stop_gradient(void **state) {
    (void)state;
    const support_case c = {build_stopped, NULL, NULL, NULL};
    support_outputs got;
    if (!support_run_home(&c, &(support_options){0}, &got)) fail_msg("%s", got.message);
    for (int i = 0; i < 3; i++) assert_true(support_outputs_find(&got, "stopped")->data[i] == 0.0);
    for (int i = 0; i < 4; i++) assert_true(support_outputs_find(&got, "difference")->data[i] == 0.0);
    support_outputs_free(&got);
}

typedef enum mistake { LOSS_OF_RANK_1, LOSS_OF_I32, WRT_OF_I32, COTANGENT_SHAPE, THROUGH_ARGMAX_ONLY, MISTAKES } mistake;

static tg_tensor build_mistake(tg_graph *g, void *user) {
    const tg_tensor x = tg_input(g, "x", TG_SHAPE(4), TG_F32), i = tg_input(g, "i", TG_SHAPE(4), TG_I32);
    tg_tensor out[1];
    switch (*(const mistake *)user) {
    case LOSS_OF_RANK_1: tg_grad(tg_exp(x), &x, 1, out); break;
    case LOSS_OF_I32: tg_grad(tg_sum_all(i), &x, 1, out); break;
    case WRT_OF_I32: tg_grad(tg_sum_all(tg_mul(x, tg_cast(i, TG_F32))), &i, 1, out); break;
    case COTANGENT_SHAPE: tg_vjp(tg_exp(x), tg_ones(g, TG_SHAPE(2)), &x, 1, out); break;
    case THROUGH_ARGMAX_ONLY: tg_vjp(tg_argmax(x, 0), tg_argmax(x, 0), &x, 1, out); break;
    case MISTAKES: break;
    }
    return tg_sum_all(x);
}

static void test_mistakes(void **state) {
    (void)state;
    for (mistake m = LOSS_OF_RANK_1; m < MISTAKES; m++) {
        tg_context *ctx = support_context();
        tg_tensor result;
        tg_graph *g = tg_trace(ctx, build_mistake, &m, &result);
        if (tg_error(ctx) == TG_OK) fail_msg("mistake %d was accepted", (int)m);
        assert_string_not_equal(tg_error_message(ctx), "");
        if (g) tg_graph_destroy(g);
        tg_context_destroy(ctx);
    }
}

int main(void) {
    const int refused = support_home_refuses("gradients");
    if (refused) return refused;
    static struct CMUnitTest tests[2 * SUPPORT_COUNT(cases) + 4];
    static char names[2 * SUPPORT_COUNT(cases)][64];
    size_t count = 0;
    for (int second = 0; second < 2; second++)
        for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
            if (second && !cases[i].smooth) continue;
            snprintf(names[count], sizeof names[count], "%s%s", cases[i].name, second ? ", second" : "");
            tests[count] = (struct CMUnitTest){names[count], second ? test_second : test_first, NULL, NULL, (void *)(uintptr_t)&cases[i]};
            count++;
        }
    tests[count++] = (struct CMUnitTest){"every primitive was checked", test_every_primitive_was_checked, NULL, NULL, NULL};
    tests[count++] = (struct CMUnitTest){"stop_gradient", test_stop_gradient, NULL, NULL, NULL};
    tests[count++] = (struct CMUnitTest){"mistakes", test_mistakes, NULL, NULL, NULL};
    return _cmocka_run_group_tests("gradients", tests, count, NULL, NULL);
}
