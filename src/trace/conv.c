/* Convolutions, poolings and upsampling over the last one or two axes of [N, C, L] or [N, C, H, W],
 * and the convolution layers. All are composed of windows (ir/convolve.c, reductions over windows)
 * and views. Must not know how windows are read. */
#include "trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONV_LEAD = 2 }; /* axes N and C */

/* The windows along the axes of one call. */
typedef struct conv_windows {
    int count;
    tg_window window[2];
    int64_t before[2], after[2]; /* padding */
    int64_t out[2];              /* windows */
} conv_windows;

/* ---------------------------------------------------------------- padding */

tg_padding tg_padding_all(int64_t each) { return (tg_padding){.before = {each, each}, .after = {each, each}}; }
tg_padding tg_padding_axes(int64_t first, int64_t second) { return (tg_padding){.before = {first, second}, .after = {first, second}}; }
tg_padding tg_padding_sides(int64_t before_first, int64_t after_first, int64_t before_second, int64_t after_second) {
    return (tg_padding){.before = {before_first, before_second}, .after = {after_first, after_second}};
}
tg_padding tg_padding_same(void) { return (tg_padding){.mode = TG_PADDING_SAME}; }
tg_padding tg_padding_valid(void) { return tg_padding_all(0); }

/* One number, or "2 x 3", for messages. */
#define PAIR_TEXT 64
static const char *pair_text(const int64_t *numbers, int count, char *text) {
    if (count == 1) snprintf(text, PAIR_TEXT, "%lld", (long long)numbers[0]);
    else snprintf(text, PAIR_TEXT, "%lld x %lld", (long long)numbers[0], (long long)numbers[1]);
    return text;
}
#define PAIR_LABEL(numbers, count) pair_text((numbers), (count), (char[PAIR_TEXT]){0})

/* With one axis, the second number of a pair must be 0 or equal the first. */
static bool check_second(const tg_call *call, int32_t x, const char *what, const int64_t *given, int count) {
    if (count == 2 || given[1] == 0 || given[1] == given[0]) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "%s has a second number, %lld, and there is one axis: %s", what, (long long)given[1],
                 TG_LABEL(call, x));
    return false;
}

/* Reads a number for each axis. A second number of 0 means the first; a first number of 0 means
 * `otherwise`. Each must be at least 1. */
static bool read_numbers(const tg_call *call, int32_t x, const char *what, const int64_t *given, int count, const int64_t *otherwise,
                         int64_t *numbers) {
    if (!check_second(call, x, what, given, count)) return false;
    for (int i = 0; i < count; i++) {
        numbers[i] = given[i] != 0 ? given[i] : i == 1 && given[0] != 0 ? given[0] : otherwise[i];
        if (numbers[i] >= 1 && numbers[i] <= INT32_MAX) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "%s needs to be at least 1, not %lld: %s", what, (long long)numbers[i],
                     TG_LABEL(call, x));
        return false;
    }
    return true;
}

static bool padding_ok(const tg_call *call, const tg_padding *padding) {
    if (padding->none_ != NULL) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, call->operands, call->operand_count > 0,
                     "the padding is none: tg_padding_all(1) is one on every side, tg_padding_same() is 'same'");
        return false;
    }
    if (padding->mode == TG_PADDING_SAME || padding->mode == TG_PADDING_SIDES) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, call->operands, call->operand_count > 0, "%d is no kind of padding", (int)padding->mode);
    return false;
}

static bool read_padding(const tg_call *call, int32_t x, const tg_padding *padding, conv_windows *w) {
    if (!padding_ok(call, padding)) return false;
    if (!check_second(call, x, "padding", padding->before, w->count) || !check_second(call, x, "padding", padding->after, w->count))
        return false;
    for (int i = 0; i < w->count; i++) {
        const int64_t whole = tg_window_span(w->window[i]) - 1;
        w->before[i] = padding->mode == TG_PADDING_SAME ? whole / 2 : padding->before[i];
        w->after[i] = padding->mode == TG_PADDING_SAME ? whole - whole / 2 : padding->after[i];
        if (padding->mode == TG_PADDING_SAME && w->window[i].stride != 1) {
            tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "padding 'same' needs stride 1, not %lld: %s", (long long)w->window[i].stride,
                         TG_LABEL(call, x));
            return false;
        }
        if (w->before[i] >= 0 && w->after[i] >= 0 && w->before[i] <= INT32_MAX && w->after[i] <= INT32_MAX) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "padding needs to be at least 0, not %lld and %lld: %s", (long long)w->before[i],
                     (long long)w->after[i], TG_LABEL(call, x));
        return false;
    }
    return true;
}

/* Counts the windows that fit. ceil: one more if elements are left over, provided that it begins in
 * the input or in the padding before it. */
static bool count_windows(const tg_call *call, int32_t x, bool ceil, conv_windows *w) {
    const tg_shape shape = tg_node_shape(call, x);
    for (int i = 0; i < w->count; i++) {
        const int64_t length = shape.dim[CONV_LEAD + i], padded = length + w->before[i] + w->after[i];
        const int64_t span = tg_window_span(w->window[i]), stride = w->window[i].stride;
        if (span > padded) {
            tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "the kernel covers %lld, more than the %lld of axis %d with its padding: %s",
                         (long long)span, (long long)padded, CONV_LEAD + i, TG_LABEL(call, x));
            return false;
        }
        w->out[i] = (padded - span) / stride + 1;
        if (!ceil || (padded - span) % stride == 0 || w->out[i] * stride >= length + w->before[i]) continue;
        w->out[i]++;
        w->after[i] += w->out[i] * stride - stride + span - padded;
    }
    return true;
}

/* Windows are a view, and a view has a shape. So all their elements, taps included, are counted,
 * though they are stored nowhere. `planes`: images times channels; at: the number of windows along
 * each axis. */
static bool windows_fit(const tg_call *call, int32_t x, int64_t planes, const int64_t *at, const conv_windows *w) {
    int64_t count = planes, taps[2] = {0, 0};
    bool fits = count <= INT32_MAX;
    for (int i = 0; i < w->count; i++) {
        taps[i] = w->window[i].size;
        for (int k = 0; k < 2; k++) {
            const int64_t factor = k == 0 ? at[i] : taps[i];
            fits = fits && count <= INT32_MAX / factor;
            if (fits) count *= factor;
        }
    }
    if (fits) return true;
    tg_call_fail(call, TG_ERROR_LIMIT, &x, 1,
                 "%lld planes of %s windows of %s hold more than 2147483647 elements in all, however few are stored: %s", (long long)planes,
                 PAIR_LABEL(at, w->count), PAIR_LABEL(taps, w->count), TG_LABEL(call, x));
    return false;
}

static int32_t pad_spatial(const tg_call *call, int32_t x, int lead, const conv_windows *w) {
    if (x == 0) return 0;
    tg_shape shape = tg_node_shape(call, x);
    int64_t before[TG_MAX_RANK] = {0};
    for (int i = 0; i < w->count; i++) {
        before[lead + i] = w->before[i];
        shape.dim[lead + i] += w->before[i] + w->after[i];
    }
    return tg_ir_pad(call->graph, x, before, shape);
}

/* ---------------------------------------------------------------- convolutions */

/* What the operands of a convolution say, checked. */
typedef struct conv_sizes {
    int64_t n, groups, in, out; /* all channels, of all groups */
    conv_windows windows;
    int32_t bias; /* 0: none */
} conv_sizes;

static bool check_ranks(const tg_call *call, const int32_t *ids, int count) {
    const int rank = CONV_LEAD + count;
    for (int i = 0; i < 2; i++)
        if (!tg_call_takes(call, ids[i], TG_TAKES_F32)) return false;
    if (tg_node_shape(call, ids[0]).rank == rank && tg_node_shape(call, ids[1]).rank == rank) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "needs %d axes, %s by %s: %s by %s", rank, count == 1 ? "[N, C, L]" : "[N, C, H, W]",
                 count == 1 ? "[O, C, k]" : "[O, C, kh, kw]", TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]));
    return false;
}

static bool check_bias_of_conv(const tg_call *call, const int32_t *ids, tg_tensor bias, int64_t out) {
    if (bias.graph == NULL) return true;
    if (!tg_call_takes(call, bias.id, TG_TAKES_F32)) return false;
    const tg_shape shape = tg_node_shape(call, bias.id);
    if (shape.rank == 1 && shape.dim[0] == out) return true;
    const int32_t pair[2] = {ids[1], bias.id};
    tg_call_fail(call, TG_ERROR_SHAPE, pair, 2, "the bias needs %lld elements, one for each channel: %s with %s", (long long)out,
                 TG_LABEL(call, bias.id), TG_LABEL(call, ids[1]));
    return false;
}

/* transposed: w is [in, out / groups, taps...], else [out, in / groups, taps...]. */
static bool read_channels(const tg_call *call, const int32_t *ids, const tg_conv_options *options, bool transposed, conv_sizes *s) {
    const tg_shape x = tg_node_shape(call, ids[0]), w = tg_node_shape(call, ids[1]);
    s->groups = options->groups == 0 ? 1 : options->groups;
    s->n = x.dim[0];
    s->in = x.dim[1];
    if (s->groups < 1) {
        tg_call_fail(call, TG_ERROR_ARGUMENT, ids, 2, "groups need to be at least 1, not %lld: %s by %s", (long long)s->groups,
                     TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]));
        return false;
    }
    /* the other count of channels that the groups divide */
    const int64_t divided = transposed ? s->in : w.dim[0];
    if (s->in % s->groups != 0 || divided % s->groups != 0) {
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "channels do not divide into %lld groups: %s by %s", (long long)s->groups,
                     TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]));
        return false;
    }
    s->out = transposed ? w.dim[1] * s->groups : w.dim[0];
    const int64_t wanted = transposed ? s->in : s->in / s->groups, have = transposed ? w.dim[0] : w.dim[1];
    if (wanted == have) return true;
    tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "channels differ: %s by %s in %lld group%s (%lld != %lld)", TG_LABEL(call, ids[0]),
                 TG_LABEL(call, ids[1]), (long long)s->groups, s->groups == 1 ? "" : "s", (long long)wanted, (long long)have);
    return false;
}

static bool read_conv(const tg_call *call, const int32_t *ids, const tg_conv_options *options, int count, bool transposed, conv_sizes *s) {
    const int64_t one[2] = {1, 1};
    int64_t stride[2], dilation[2];
    memset(s, 0, sizeof *s);
    s->windows.count = count;
    if (!check_ranks(call, ids, count) || !read_channels(call, ids, options, transposed, s)) return false;
    if (!read_numbers(call, ids[0], "the stride", options->stride, count, one, stride)) return false;
    if (!read_numbers(call, ids[0], "the dilation", options->dilation, count, one, dilation)) return false;
    for (int i = 0; i < count; i++)
        s->windows.window[i] = (tg_window){tg_node_shape(call, ids[1]).dim[CONV_LEAD + i], stride[i], dilation[i]};
    s->bias = options->bias.graph != NULL ? options->bias.id : 0;
    return check_bias_of_conv(call, ids, options->bias, s->out) && read_padding(call, ids[0], &options->padding, &s->windows);
}

/* x [N, C, ...] -> [N, G, C / G, ...] */
static int32_t open_groups(const tg_call *call, int32_t x, int64_t groups) {
    if (x == 0) return 0;
    tg_shape shape = tg_node_shape(call, x);
    for (int i = shape.rank++; i > 1; i--) shape.dim[i] = shape.dim[i - 1];
    shape.dim[1] = groups;
    shape.dim[2] /= groups;
    return tg_ir_reshape(call->graph, x, shape);
}

/* w [G R, S, taps...] -> [1, G, R, S, taps...] */
static int32_t open_weight(const tg_call *call, int32_t w, int64_t groups) {
    const tg_shape from = tg_node_shape(call, w);
    tg_shape shape = tg_shape_make(3, (const int64_t[]){1, groups, from.dim[0] / groups});
    for (int i = 1; i < from.rank; i++) shape.dim[shape.rank++] = from.dim[i];
    return tg_ir_reshape(call->graph, w, shape);
}

/* y [N, G, O / G, ...] -> [N, O, ...], with the bias */
static tg_tensor finish_conv(const tg_call *call, int32_t y, const conv_sizes *s) {
    if (y == 0) return tg_call_poison(call);
    const tg_shape open = tg_node_shape(call, y);
    tg_shape shape = tg_shape_make(2, (const int64_t[]){s->n, s->out}), column = tg_shape_make(2, (const int64_t[]){s->out, 1});
    for (int i = 3; i < open.rank; i++) shape.dim[shape.rank++] = open.dim[i];
    for (column.rank = 2; column.rank < shape.rank - 1; column.rank++) column.dim[column.rank] = 1;
    y = tg_ir_reshape(call->graph, y, shape);
    if (s->bias != 0) y = tg_ir_binary(call->graph, TG_OP_ADD, y, tg_ir_reshape(call->graph, s->bias, column));
    return tg_call_result(call, y);
}

static bool enter_conv(tg_call *call, tg_site site, const char *name, tg_tensor x, tg_tensor w, tg_tensor bias) {
    const tg_tensor operands[3] = {x, w, bias};
    return tg_call_enter(call, site, name, operands, bias.graph == NULL ? 2 : 3);
}

static bool check_plain(const tg_call *call, const int32_t *ids, const tg_conv_options *options) {
    if (options->output_padding[0] == 0 && options->output_padding[1] == 0) return true;
    tg_call_fail(call, TG_ERROR_ARGUMENT, ids, 2, "output_padding belongs to a transposed convolution: %s by %s", TG_LABEL(call, ids[0]),
                 TG_LABEL(call, ids[1]));
    return false;
}

static bool conv_shape_ok(const tg_call *call, const conv_sizes *s, const int64_t *out) {
    tg_shape shape = tg_shape_make(2, (const int64_t[]){s->n, s->out});
    for (int i = 0; i < s->windows.count; i++) shape.dim[shape.rank++] = out[i];
    return tg_call_shape_ok(call, shape);
}

static tg_tensor conv_at(tg_site site, const char *name, tg_tensor x, tg_tensor w, tg_conv_options options, int count) {
    tg_call call;
    conv_sizes s;
    const int32_t ids[2] = {x.id, w.id};
    if (!enter_conv(&call, site, name, x, w, options.bias) || !check_plain(&call, ids, &options)) return tg_call_poison(&call);
    if (!read_conv(&call, ids, &options, count, false, &s) || !count_windows(&call, x.id, false, &s.windows)) return tg_call_poison(&call);
    if (!conv_shape_ok(&call, &s, s.windows.out) || !windows_fit(&call, x.id, s.n * s.in, s.windows.out, &s.windows))
        return tg_call_poison(&call);
    const int32_t columns = pad_spatial(&call, open_groups(&call, x.id, s.groups), CONV_LEAD + 1, &s.windows);
    const int32_t y = tg_ir_convolve(call.graph, columns, open_weight(&call, w.id, s.groups), s.windows.window, count);
    return finish_conv(&call, y, &s);
}

tg_tensor tg_conv1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options) {
    return conv_at(site, "conv1d", x, w, options, 1);
}
tg_tensor tg_conv2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options) {
    return conv_at(site, "conv2d", x, w, options, 2);
}

/* Computes the lengths of the result: (in - 1) stride - padding + span + output_padding. */
static bool read_transposed(const tg_call *call, const int32_t *ids, const tg_conv_options *options, conv_sizes *s) {
    if (!check_second(call, ids[0], "output_padding", options->output_padding, s->windows.count)) return false;
    int64_t in[2];
    for (int i = 0; i < s->windows.count; i++) {
        const tg_window w = s->windows.window[i];
        const int64_t extra = options->output_padding[i], length = in[i] = tg_node_shape(call, ids[0]).dim[CONV_LEAD + i];
        if (extra < 0 || (extra > 0 && extra >= w.stride && extra >= w.dilation)) {
            tg_call_fail(call, TG_ERROR_ARGUMENT, ids, 2,
                         "output_padding needs to be at least 0 and under the stride or the dilation, not %lld: %s by %s", (long long)extra,
                         TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]));
            return false;
        }
        s->windows.out[i] = (length - 1) * w.stride + tg_window_span(w) - s->windows.before[i] - s->windows.after[i] + extra;
        if (s->windows.out[i] >= 1) continue;
        tg_call_fail(call, TG_ERROR_SHAPE, ids, 2, "the padding leaves %lld elements of axis %d: %s by %s", (long long)s->windows.out[i],
                     CONV_LEAD + i, TG_LABEL(call, ids[0]), TG_LABEL(call, ids[1]));
        return false;
    }
    return conv_shape_ok(call, s, s->windows.out) && windows_fit(call, ids[0], s->n * s->out, in, &s->windows);
}

/* y [N, G, C, whole...] -> the part that the padding leaves, filled up with output_padding to the
 * wanted length. */
static int32_t crop_transposed(const tg_call *call, int32_t y, const conv_windows *w) {
    if (y == 0) return 0;
    int64_t start[TG_MAX_RANK] = {0};
    const int64_t none[TG_MAX_RANK] = {0};
    tg_shape whole = tg_node_shape(call, y);
    for (int i = 0; i < w->count; i++) {
        start[CONV_LEAD + 1 + i] = w->before[i];
        if (whole.dim[CONV_LEAD + 1 + i] < w->before[i] + w->out[i]) whole.dim[CONV_LEAD + 1 + i] = w->before[i] + w->out[i];
    }
    y = tg_ir_pad(call->graph, y, none, whole);
    for (int i = 0; i < w->count; i++) whole.dim[CONV_LEAD + 1 + i] = w->out[i];
    return tg_ir_slice(call->graph, y, start, whole);
}

static tg_tensor conv_transpose_at(tg_site site, const char *name, tg_tensor x, tg_tensor w, tg_conv_options options, int count) {
    tg_call call;
    conv_sizes s;
    const int32_t ids[2] = {x.id, w.id};
    if (!enter_conv(&call, site, name, x, w, options.bias)) return tg_call_poison(&call);
    if (!read_conv(&call, ids, &options, count, true, &s) || !read_transposed(&call, ids, &options, &s)) return tg_call_poison(&call);
    const int32_t open = open_groups(&call, x.id, s.groups);
    const int32_t y = tg_ir_convolve_back(call.graph, open, open_weight(&call, w.id, s.groups), s.windows.window, count);
    return finish_conv(&call, crop_transposed(&call, y, &s.windows), &s);
}

tg_tensor tg_conv_transpose1d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options) {
    return conv_transpose_at(site, "conv_transpose1d", x, w, options, 1);
}
tg_tensor tg_conv_transpose2d_at(tg_site site, tg_tensor x, tg_tensor w, tg_conv_options options) {
    return conv_transpose_at(site, "conv_transpose2d", x, w, options, 2);
}

/* ---------------------------------------------------------------- pooling */

static bool read_pool(const tg_call *call, int32_t x, const int64_t *kernel, const tg_pool_options *options, int count, conv_windows *w) {
    int64_t stride[2];
    memset(w, 0, sizeof *w);
    w->count = count;
    if (!tg_call_takes(call, x, TG_TAKES_F32)) return false;
    if (tg_node_shape(call, x).rank != CONV_LEAD + count) {
        tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "needs %d axes, %s: %s", CONV_LEAD + count, count == 1 ? "[N, C, L]" : "[N, C, H, W]",
                     TG_LABEL(call, x));
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (kernel[i] >= 1 && kernel[i] <= INT32_MAX) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "the kernel needs to be at least 1, not %s: %s", PAIR_LABEL(kernel, count),
                     TG_LABEL(call, x));
        return false;
    }
    if (!read_numbers(call, x, "the stride", options->stride, count, kernel, stride)) return false;
    for (int i = 0; i < count; i++) w->window[i] = (tg_window){kernel[i], stride[i], 1};
    if (!read_padding(call, x, &options->padding, w)) return false;
    for (int i = 0; i < count; i++) {
        if (w->before[i] < kernel[i] && w->after[i] < kernel[i]) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, &x, 1, "padding %lld needs to be under the kernel %s: a window would hold nothing else: %s",
                     (long long)(w->before[i] < kernel[i] ? w->after[i] : w->before[i]), PAIR_LABEL(kernel, count), TG_LABEL(call, x));
        return false;
    }
    return true;
}

/* Counts the windows and checks that they fit. */
static bool count_pooled(const tg_call *call, int32_t x, bool ceil, conv_windows *w) {
    const tg_shape shape = tg_node_shape(call, x);
    return count_windows(call, x, ceil, w) && windows_fit(call, x, shape.dim[0] * shape.dim[1], w->out, w);
}

static bool pads(const conv_windows *w) {
    for (int i = 0; i < w->count; i++)
        if (w->before[i] + w->after[i] != 0) return true;
    return false;
}

/* x [N, C, ...], padded -> one number for each window. The taps of the windows are the last
 * axes. */
static tg_tensor reduce_windows(const tg_call *call, tg_op op, int32_t x, const conv_windows *w, int32_t divisor) {
    for (int i = 0; i < w->count; i++) x = tg_ir_window(call->graph, x, CONV_LEAD + i, w->window[i]);
    const uint32_t taps = ((1u << w->count) - 1u) << (CONV_LEAD + w->count);
    int32_t y = tg_ir_reduce(call->graph, op, x, taps);
    if (y != 0) y = tg_compose_drop_axes(call, y, taps);
    if (divisor != 0) y = tg_ir_binary(call->graph, TG_OP_DIV, y, divisor);
    return tg_call_result(call, y);
}

/* Elements of the padding are -infinity, so they never win. Each window has an element of x, since
 * the padding is smaller than the kernel. */
static tg_tensor max_pool_at(tg_site site, const char *name, tg_tensor x, const int64_t *kernel, tg_pool_options options, int count) {
    tg_call call;
    conv_windows w;
    if (!tg_call_enter(&call, site, name, &x, 1) || !read_pool(&call, x.id, kernel, &options, count, &w)) return tg_call_poison(&call);
    if (!count_pooled(&call, x.id, options.ceil_mode, &w)) return tg_call_poison(&call);
    int32_t padded = pad_spatial(&call, x.id, CONV_LEAD, &w);
    if (pads(&w)) {
        const int32_t inside = pad_spatial(&call, tg_ir_const(call.graph, tg_node_shape(&call, x.id), TG_BOOL, 1.0), CONV_LEAD, &w);
        padded = tg_ir_select(call.graph, inside, padded, tg_ir_const(call.graph, tg_shape_make(0, NULL), TG_F32, -(double)INFINITY));
    }
    return reduce_windows(&call, TG_OP_REDUCE_MAX, padded, &w, 0);
}

tg_tensor tg_max_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options) {
    return max_pool_at(site, "max_pool1d", x, &kernel, options, 1);
}
tg_tensor tg_max_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options) {
    return max_pool_at(site, "max_pool2d", x, (const int64_t[]){kernel_h, kernel_w}, options, 2);
}

/* How many taps of window o lie in [lo, hi), positions counted from the first element of the
 * padding. */
static int64_t taps_within(tg_window w, int64_t o, int64_t lo, int64_t hi) {
    const int64_t first = o * w.stride > lo ? o * w.stride : lo, last = o * w.stride + w.size < hi ? o * w.stride + w.size : hi;
    return last - first;
}

/* `count` items of `each` bytes; NULL after recording an error. */
static void *conv_table(const tg_call *call, int64_t count, size_t each) {
    if ((uint64_t)count <= (uint64_t)PTRDIFF_MAX / each) return tg_alloc(call->graph->ctx, (size_t)count * each);
    tg_call_fail(call, TG_ERROR_MEMORY, NULL, 0, "a table of %lld rows is more than memory holds", (long long)count);
    return NULL;
}

/* f32 [out...]: how many elements each window counts; rank 0 if that is the same for all. asked:
 * the padding before ceil_mode enlarged it. */
static int32_t window_sizes(const tg_call *call, const tg_shape shape, const conv_windows *asked, const conv_windows *w, bool exclude) {
    const int64_t rows = w->out[0], columns = w->count == 2 ? w->out[1] : 1, count = rows * columns;
    float *sizes = conv_table(call, count, sizeof *sizes);
    bool same = true;
    if (sizes == NULL) return 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at[2] = {i / columns, i % columns};
        int64_t size = 1;
        for (int d = 0; d < w->count; d++) {
            const int64_t lo = exclude ? asked->before[d] : 0, length = shape.dim[CONV_LEAD + d] + asked->before[d];
            size *= taps_within(w->window[d], at[d], lo, exclude ? length : length + asked->after[d]);
        }
        sizes[i] = (float)size;
        same = same && sizes[i] == sizes[0];
    }
    const int32_t made =
        same ? tg_compose_number(call, (double)sizes[0]) : tg_ir_data(call->graph, tg_shape_make(w->count, w->out), TG_F32, sizes);
    tg_release(call->graph->ctx, sizes, (size_t)count * sizeof *sizes);
    return made;
}

static tg_tensor avg_pool_at(tg_site site, const char *name, tg_tensor x, const int64_t *kernel, tg_pool_options options, int count) {
    tg_call call;
    conv_windows w;
    if (!tg_call_enter(&call, site, name, &x, 1) || !read_pool(&call, x.id, kernel, &options, count, &w)) return tg_call_poison(&call);
    const conv_windows asked = w;
    if (!count_pooled(&call, x.id, options.ceil_mode, &w)) return tg_call_poison(&call);
    const int32_t divisor = window_sizes(&call, tg_node_shape(&call, x.id), &asked, &w, options.exclude_padding);
    if (divisor == 0) return tg_call_poison(&call);
    return reduce_windows(&call, TG_OP_SUM, pad_spatial(&call, x.id, CONV_LEAD, &w), &w, divisor);
}

tg_tensor tg_avg_pool1d_at(tg_site site, tg_tensor x, int64_t kernel, tg_pool_options options) {
    return avg_pool_at(site, "avg_pool1d", x, &kernel, options, 1);
}
tg_tensor tg_avg_pool2d_at(tg_site site, tg_tensor x, int64_t kernel_h, int64_t kernel_w, tg_pool_options options) {
    return avg_pool_at(site, "avg_pool2d", x, (const int64_t[]){kernel_h, kernel_w}, options, 2);
}

/* [N, C, ...] -> [N, C] */
static tg_tensor global_pool_at(tg_site site, const char *name, tg_tensor x, bool mean) {
    tg_call call;
    if (!tg_call_enter(&call, site, name, &x, 1) || !tg_call_takes(&call, x.id, TG_TAKES_F32)) return tg_call_poison(&call);
    const tg_shape shape = tg_node_shape(&call, x.id);
    if (shape.rank <= CONV_LEAD)
        return tg_call_fail(&call, TG_ERROR_SHAPE, &x.id, 1, "needs axes behind [N, C]: %s", TG_LABEL(&call, x.id));
    const uint32_t axes = ((1u << (unsigned)shape.rank) - 1u) & ~((1u << CONV_LEAD) - 1u);
    const int32_t y = mean ? tg_compose_mean(&call, x.id, axes) : tg_ir_reduce(call.graph, TG_OP_REDUCE_MAX, x.id, axes);
    return y == 0 ? tg_call_poison(&call) : tg_call_result(&call, tg_compose_drop_axes(&call, y, axes));
}

tg_tensor tg_global_avg_pool_at(tg_site site, tg_tensor x) { return global_pool_at(site, "global_avg_pool", x, true); }
tg_tensor tg_global_max_pool_at(tg_site site, tg_tensor x) { return global_pool_at(site, "global_max_pool", x, false); }

/* ---------------------------------------------------------------- upsampling */

static bool read_factors(const tg_call *call, int32_t x, const tg_upsample_options *options, int *count, int64_t *factor) {
    const int64_t two[2] = {2, 2};
    if (!tg_call_takes(call, x, TG_TAKES_F32)) return false;
    *count = tg_node_shape(call, x).rank - CONV_LEAD;
    if (*count == 1 || *count == 2) return read_numbers(call, x, "the factor", options->factor, *count, two, factor);
    tg_call_fail(call, TG_ERROR_SHAPE, &x, 1, "needs 3 or 4 axes, [N, C, L] or [N, C, H, W]: %s", TG_LABEL(call, x));
    return false;
}

static bool upsampled_shape_ok(const tg_call *call, tg_shape shape, int count, const int64_t *factor) {
    for (int i = 0; i < count; i++) shape.dim[CONV_LEAD + i] *= factor[i];
    return tg_call_shape_ok(call, shape);
}

/* Repeats each element `factor` times along each axis: a repeat between reshapes. */
tg_tensor tg_upsample_nearest_at(tg_site site, tg_tensor x, tg_upsample_options options) {
    tg_call call;
    int count = 0;
    int64_t factor[2];
    if (!tg_call_enter(&call, site, "upsample_nearest", &x, 1)) return tg_call_poison(&call);
    if (!read_factors(&call, x.id, &options, &count, factor)) return tg_call_poison(&call);
    if (options.align_corners)
        return tg_call_fail(&call, TG_ERROR_ARGUMENT, &x.id, 1, "align_corners belongs to upsample_bilinear: %s", TG_LABEL(&call, x.id));
    const tg_shape in = tg_node_shape(&call, x.id);
    if (!upsampled_shape_ok(&call, in, count, factor)) return tg_call_poison(&call);
    tg_shape open = tg_shape_make(CONV_LEAD, in.dim), wide = open, out = in;
    for (int i = 0; i < count; i++) {
        open.dim[open.rank++] = wide.dim[wide.rank++] = in.dim[CONV_LEAD + i];
        open.dim[open.rank++] = 1;
        wide.dim[wide.rank++] = factor[i];
        out.dim[CONV_LEAD + i] *= factor[i];
    }
    const int32_t repeated = tg_ir_broadcast(call.graph, tg_ir_reshape(call.graph, x.id, open), wide);
    return tg_call_result(&call, tg_ir_reshape(call.graph, repeated, out));
}

/* The position of output o of `out` among `in` elements. */
static double source_position(int64_t o, int64_t in, int64_t out, bool align_corners) {
    if (align_corners) return out == 1 ? 0.0 : (double)o * (double)(in - 1) / (double)(out - 1);
    const double at = ((double)o + 0.5) * (double)in / (double)out - 0.5;
    return at < 0.0 ? 0.0 : at;
}

/* Rows `at` of x along `axis`. The axis moves to the front and back again. */
static int32_t rows_along(const tg_call *call, int32_t x, int axis, int32_t at) {
    int32_t front[TG_MAX_RANK] = {axis}, back[TG_MAX_RANK] = {0};
    tg_shape shape = tg_node_shape(call, x);
    for (int i = 0, next = 1; i < shape.rank; i++)
        if (i != axis) front[next++] = i;
    for (int i = 0; i < shape.rank; i++) back[front[i]] = i;
    int32_t turned = tg_ir_permute(call->graph, x, front);
    if (turned == 0 || at == 0) return 0;
    shape = tg_node_shape(call, turned);
    turned = tg_ir_reshape(call->graph, turned, TG_SHAPE(shape.dim[0], tg_shape_count(shape) / shape.dim[0]));
    shape.dim[0] = tg_node_shape(call, at).dim[0];
    return tg_ir_permute(call->graph, tg_ir_reshape(call->graph, tg_ir_gather(call->graph, turned, at), shape), back);
}

/* (1 - t) x[low] + t x[low + 1] along one axis. After the last element, the last is used. */
static int32_t interpolate(const tg_call *call, int32_t x, int axis, int64_t factor, bool align_corners) {
    if (x == 0 || factor == 1) return x;
    tg_graph *g = call->graph;
    const int64_t in = tg_node_shape(call, x).dim[axis], out = in * factor;
    const size_t each = 4 * sizeof(float);
    /* weights of low, weights of low + 1, then the two lists of positions */
    float *weights = conv_table(call, out, each);
    if (weights == NULL) return 0;
    int32_t *rows = (int32_t *)(void *)(weights + 2 * out);
    for (int64_t o = 0; o < out; o++) {
        const double at = source_position(o, in, out, align_corners), low = floor(at);
        rows[o] = (int32_t)low;
        rows[out + o] = (int32_t)low + 1 < in ? (int32_t)low + 1 : (int32_t)in - 1;
        weights[out + o] = (float)(at - low);
        weights[o] = 1.0f - weights[out + o];
    }
    int32_t sides[2];
    tg_shape column = tg_shape_make(1, &out);
    for (column.rank = 1; column.rank < tg_node_shape(call, x).rank - axis; column.rank++) column.dim[column.rank] = 1;
    for (int side = 0; side < 2; side++) {
        const int32_t at = tg_ir_data(g, TG_SHAPE(out), TG_I32, rows + side * out);
        const int32_t weight = tg_ir_data(g, column, TG_F32, weights + side * out);
        sides[side] = tg_ir_binary(g, TG_OP_MUL, weight, rows_along(call, x, axis, at));
    }
    tg_release(g->ctx, weights, (size_t)out * each);
    return tg_ir_binary(g, TG_OP_ADD, sides[0], sides[1]);
}

tg_tensor tg_upsample_bilinear_at(tg_site site, tg_tensor x, tg_upsample_options options) {
    tg_call call;
    int count = 0;
    int64_t factor[2];
    if (!tg_call_enter(&call, site, "upsample_bilinear", &x, 1)) return tg_call_poison(&call);
    if (!read_factors(&call, x.id, &options, &count, factor)) return tg_call_poison(&call);
    if (!upsampled_shape_ok(&call, tg_node_shape(&call, x.id), count, factor)) return tg_call_poison(&call);
    int32_t y = x.id;
    for (int i = 0; i < count; i++) y = interpolate(&call, y, CONV_LEAD + i, factor[i], options.align_corners);
    return tg_call_result(&call, y);
}

/* ---------------------------------------------------------------- layers */

/* Unless another value is asked for, std = gain / sqrt(fan_in), fan_in being the numbers that one
 * output adds up. A gain of 0 means sqrt 2. */
static tg_init conv_init(tg_init init, double fan_in) {
    if (tg_init_given(&init) && init.kind != TG_INIT_KAIMING) return init;
    /* refused later, as it was given */
    if (!(init.scale >= 0.0 && init.scale <= 1e30)) return init;
    init.kind = TG_INIT_RANDN;
    init.scale = (tg_given(init.scale) ? init.scale : sqrt(2.0)) / sqrt(fan_in);
    return init;
}

/* Checks the options by themselves. Whether they fit an input is checked when there is one. */
static bool check_layer(const tg_call *call, const tg_conv_layer_options *o) {
    const int64_t *const strides[2] = {o->stride, o->dilation}, *const sides[3] = {o->padding.before, o->padding.after, o->output_padding};
    const char *const steps[2] = {"the stride", "the dilation"}, *const edges[3] = {"padding", "padding", "output_padding"};
    for (int k = 0; k < 4; k++) {
        const int64_t *step = strides[k / 2], n = step[k % 2];
        if (n >= 0 && n <= INT32_MAX) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%s needs to be at least 1, not %lld", steps[k / 2], (long long)n);
        return false;
    }
    for (int k = 0; k < 6; k++) {
        const int64_t n = sides[k / 2][k % 2];
        if (n >= 0 && n <= INT32_MAX) continue;
        tg_call_fail(call, TG_ERROR_ARGUMENT, NULL, 0, "%s needs to be at least 0, not %lld", edges[k / 2], (long long)n);
        return false;
    }
    return padding_ok(call, &o->padding);
}

static tg_conv make_layer(tg_site site, const char *op, tg_graph *g, const char *name, const int64_t *channels, const int64_t *kernel,
                          int count, tg_conv_layer_options options, bool transposed) {
    tg_call call;
    tg_conv layer = {.W = {g, 0}, .b = {options.no_bias ? NULL : g, 0}, .has_bias = !options.no_bias};
    layer.options = (tg_conv_options){.padding = options.padding, .groups = options.groups};
    memcpy(layer.options.stride, options.stride, sizeof options.stride);
    memcpy(layer.options.dilation, options.dilation, sizeof options.dilation);
    memcpy(layer.options.output_padding, options.output_padding, sizeof options.output_padding);
    if (!tg_call_enter_graph(&call, site, op, g) || !tg_call_name_ok(&call, name)) return layer;
    call.subject = name;
    const int64_t groups = options.groups == 0 ? 1 : options.groups;
    bool whole = channels[0] >= 1 && channels[1] >= 1;
    for (int i = 0; i < count; i++) whole = whole && kernel[i] >= 1;
    if (!whole) {
        tg_call_fail(&call, TG_ERROR_SHAPE, NULL, 0, "channels and kernel need to be at least 1: %lld -> %lld, %s", (long long)channels[0],
                     (long long)channels[1], PAIR_LABEL(kernel, count));
        return layer;
    }
    if (groups < 1 || channels[0] % groups != 0 || channels[1] % groups != 0) {
        tg_call_fail(&call, groups < 1 ? TG_ERROR_ARGUMENT : TG_ERROR_SHAPE, NULL, 0,
                     "channels do not divide into %lld groups: %lld -> %lld", (long long)groups, (long long)channels[0],
                     (long long)channels[1]);
        return layer;
    }
    if (!check_layer(&call, &options)) return layer;
    tg_shape shape = tg_shape_make(2, transposed ? (const int64_t[]){channels[0], channels[1] / groups}
                                                 : (const int64_t[]){channels[1], channels[0] / groups});
    double fan_in = (double)(channels[0] / groups), steps = 1;
    for (int i = 0; i < count; i++) {
        shape.dim[shape.rank++] = kernel[i];
        fan_in *= (double)kernel[i];
        steps *= (double)(options.stride[i] > 0 ? options.stride[i] : i == 1 && options.stride[0] > 0 ? options.stride[0] : 1);
    }
    if (transposed && fan_in >= steps) fan_in = floor(fan_in / steps);
    const tg_param_options weight = {.init = conv_init(options.init, fan_in), .frozen = TG_FROZEN(options)},
                           bias = {.init = tg_init_zeros(), .frozen = weight.frozen};
    if (!tg_call_push_scope(&call, name)) return layer;
    layer.W = tg_param_at(site, g, "W", shape, weight);
    if (layer.has_bias) layer.b = tg_param_at(site, g, "b", tg_shape_make(1, &channels[1]), bias);
    tg_call_pop_scope(&call);
    return layer;
}

tg_conv tg_nn_conv1d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel,
                        tg_conv_layer_options options) {
    return make_layer(site, "conv1d", g, name, (const int64_t[]){in, out}, &kernel, 1, options, false);
}
tg_conv tg_nn_conv2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h, int64_t kernel_w,
                        tg_conv_layer_options options) {
    return make_layer(site, "conv2d", g, name, (const int64_t[]){in, out}, (const int64_t[]){kernel_h, kernel_w}, 2, options, false);
}
tg_conv tg_nn_conv_transpose2d_at(tg_site site, tg_graph *g, const char *name, int64_t in, int64_t out, int64_t kernel_h, int64_t kernel_w,
                                  tg_conv_layer_options options) {
    return make_layer(site, "conv_transpose2d", g, name, (const int64_t[]){in, out}, (const int64_t[]){kernel_h, kernel_w}, 2, options,
                      true);
}

static tg_conv_options layer_options(const tg_conv *layer) {
    tg_conv_options options = layer->options;
    options.bias = layer->has_bias ? layer->b : (tg_tensor){NULL, 0};
    return options;
}

tg_tensor tg_nn_conv1d_fwd_at(tg_site site, tg_conv layer, tg_tensor x) { return tg_conv1d_at(site, x, layer.W, layer_options(&layer)); }
tg_tensor tg_nn_conv2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x) { return tg_conv2d_at(site, x, layer.W, layer_options(&layer)); }
tg_tensor tg_nn_conv_transpose2d_fwd_at(tg_site site, tg_conv layer, tg_tensor x) {
    return tg_conv_transpose2d_at(site, x, layer.W, layer_options(&layer));
}
