/* views: normal forms of index arithmetic. Successive views of one kind are composed. Repeats move
 * outwards (the broadcast comes last). Boxes of padded or joined tensors are taken from the parts.
 * Views of one number are that number. All exact: a view moves elements and never computes. Must
 * not know elementwise operations. */
#include "pass/rewrite.h"

#include <math.h>
#include <string.h>

static tg_shape views_shape(const tg_rewrite *r, int32_t id) { return tg_rewrite_node(r, id)->shape; }

/* Whether element i of `small` is repeated along axis i in `large`. */
static bool views_repeats(tg_shape small, tg_shape large, int32_t axis) { return small.dim[axis] == 1 && large.dim[axis] != 1; }

/* ---------------------------------------------------------------- reshape */

/* Splits `from` (with its source shape before the repeat) and `to` into runs of axes with equal
 * products. If each run is wholly repeated or not repeated at all, the source can be reshaped
 * first: its shape goes to `source_to`. */
static bool views_split_repeat(tg_shape from, tg_shape source, tg_shape to, tg_shape *source_to) {
    int32_t i = 0, j = 0;
    *source_to = to;
    while (i < from.rank || j < to.rank) {
        int32_t run = j;
        int64_t left = 1, right = 1;
        bool repeated = false, plain = false;
        do {
            if (j >= to.rank || (i < from.rank && left <= right)) {
                if (i >= from.rank) return false;
                if (from.dim[i] != 1) *(source.dim[i] == 1 ? &repeated : &plain) = true;
                left *= from.dim[i++];
            } else right *= to.dim[j++];
        } while (left != right);
        if (repeated && plain) return false;
        for (int32_t k = run; k < j; k++) source_to->dim[k] = repeated ? 1 : to.dim[k];
    }
    return true;
}

static int32_t views_reshape(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    tg_shape small;
    if (tg_shape_equal(in->shape, draft->shape)) return draft->inputs[0];
    if (in->op == TG_OP_RESHAPE) return tg_pass_reshape(r, in->inputs[0], draft->shape);
    /* Literal data: the same data with another shape. */
    if (in->op == TG_OP_CONST) {
        tg_node literal = *in;
        literal.shape = draft->shape;
        return tg_rewrite_intern(r, &literal);
    }
    if (in->op != TG_OP_BROADCAST) return 0;
    if (!views_split_repeat(in->shape, views_shape(r, in->inputs[0]), draft->shape, &small)) return 0;
    return tg_pass_broadcast(r, tg_pass_reshape(r, in->inputs[0], small), draft->shape);
}

/* ---------------------------------------------------------------- permute */

/* Whether only axes of size 1 change position: then the elements stay where they are. */
static bool views_keeps_order(tg_shape from, const int32_t *perm) {
    int32_t last = -1;
    for (int32_t i = 0; i < from.rank; i++) {
        if (from.dim[perm[i]] == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

static int32_t views_permute(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    int32_t perm[TG_MAX_RANK] = {0};
    if (in->op == TG_OP_PERMUTE) {
        for (int32_t i = 0; i < draft->shape.rank; i++) perm[i] = in->attr.perm[draft->attr.perm[i]];
        return tg_pass_permute(r, in->inputs[0], perm);
    }
    if (in->op == TG_OP_BROADCAST) return tg_pass_broadcast(r, tg_pass_permute(r, in->inputs[0], draft->attr.perm), draft->shape);
    if (views_keeps_order(in->shape, draft->attr.perm)) return tg_pass_reshape(r, draft->inputs[0], draft->shape);
    return 0;
}

/* ---------------------------------------------------------------- boxes: slice, pad */

/* A box of a padded tensor: the part inside, padded by the rest of the padding. */
static int32_t views_slice_of_pad(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    tg_shape from = views_shape(r, in->inputs[0]), kept = from;
    int64_t start[TG_MAX_RANK] = {0}, before[TG_MAX_RANK] = {0};
    for (int32_t i = 0; i < from.rank; i++) {
        /* in the unpadded tensor */
        int64_t lo = draft->attr.start[i] - in->attr.start[i], hi = lo + draft->shape.dim[i];
        start[i] = lo > 0 ? lo : 0;
        before[i] = start[i] - lo;
        kept.dim[i] = (hi < from.dim[i] ? hi : from.dim[i]) - start[i];
        if (kept.dim[i] <= 0) return tg_pass_const(r, draft->shape, draft->dtype, 0.0);
    }
    return tg_pass_box(r, TG_OP_PAD, tg_pass_box(r, TG_OP_SLICE, in->inputs[0], start, kept), before, draft->shape);
}

static int32_t views_slice_of_broadcast(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    tg_shape from = views_shape(r, in->inputs[0]), kept = draft->shape;
    int64_t start[TG_MAX_RANK] = {0};
    for (int32_t i = 0; i < from.rank; i++) {
        if (views_repeats(from, in->shape, i)) kept.dim[i] = 1;
        else start[i] = draft->attr.start[i];
    }
    return tg_pass_broadcast(r, tg_pass_box(r, TG_OP_SLICE, in->inputs[0], start, kept), draft->shape);
}

/* A box inside one part of a join. */
static int32_t views_slice_of_concat(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    const int32_t axis = in->attr.axis;
    int64_t start[TG_MAX_RANK], begin = 0;
    memcpy(start, draft->attr.start, sizeof start);
    for (int32_t i = 0; i < in->input_count; i++) {
        int64_t end = begin + views_shape(r, in->inputs[i]).dim[axis];
        if (start[axis] >= begin && start[axis] + draft->shape.dim[axis] <= end) {
            start[axis] -= begin;
            return tg_pass_box(r, TG_OP_SLICE, in->inputs[i], start, draft->shape);
        }
        begin = end;
    }
    return 0;
}

static int32_t views_box_of_box(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    int64_t start[TG_MAX_RANK] = {0};
    for (int32_t i = 0; i < draft->shape.rank; i++) start[i] = draft->attr.start[i] + in->attr.start[i];
    return tg_pass_box(r, draft->op, in->inputs[0], start, draft->shape);
}

static int32_t views_box(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    if (in->op == draft->op) return views_box_of_box(r, draft, in);
    if (draft->op == TG_OP_PAD) return 0;
    if (in->op == TG_OP_PAD) return views_slice_of_pad(r, draft, in);
    if (in->op == TG_OP_BROADCAST) return views_slice_of_broadcast(r, draft, in);
    if (in->op == TG_OP_CONCAT) return views_slice_of_concat(r, draft, in);
    return 0;
}

/* ---------------------------------------------------------------- flip */

static int32_t views_flip(tg_rewrite *r, const tg_node *draft, const tg_node *in) {
    uint32_t axes = 0;
    for (int32_t i = 0; i < draft->shape.rank; i++)
        if ((draft->attr.axes >> i & 1u) && draft->shape.dim[i] != 1) axes |= 1u << i;
    if (in->op == TG_OP_FLIP) return tg_pass_masked(r, TG_OP_FLIP, in->inputs[0], axes ^ in->attr.axes, draft->shape);
    if (in->op == TG_OP_BROADCAST) {
        tg_shape small = views_shape(r, in->inputs[0]);
        return tg_pass_broadcast(r, tg_pass_masked(r, TG_OP_FLIP, in->inputs[0], axes, small), draft->shape);
    }
    return axes != draft->attr.axes ? tg_pass_masked(r, TG_OP_FLIP, draft->inputs[0], axes, draft->shape) : 0;
}

/* ---------------------------------------------------------------- windows */

/* Each element is a window of its own. */
static int32_t views_window(tg_rewrite *r, const tg_node *draft) {
    return draft->attr.window.size == 1 && draft->attr.window.stride == 1 ? tg_pass_reshape(r, draft->inputs[0], draft->shape) : 0;
}

/* ---------------------------------------------------------------- all views */

int32_t tg_pass_view(tg_rewrite *r, const tg_node *draft) {
    tg_node in = *tg_rewrite_node(r, draft->inputs[0]);
    double number;
    if (tg_pass_splat(r, draft->inputs[0], &number) && (draft->op != TG_OP_PAD || (number == 0.0 && !signbit(number))))
        return tg_pass_const(r, draft->shape, draft->dtype, number);
    switch (draft->op) {
    case TG_OP_RESHAPE: return views_reshape(r, draft, &in);
    case TG_OP_PERMUTE: return views_permute(r, draft, &in);
    case TG_OP_BROADCAST: return in.op == TG_OP_BROADCAST ? tg_pass_broadcast(r, in.inputs[0], draft->shape) : 0;
    case TG_OP_SLICE:
    case TG_OP_PAD: return views_box(r, draft, &in);
    case TG_OP_FLIP: return views_flip(r, draft, &in);
    case TG_OP_WINDOW: return views_window(r, draft);
    default: return 0;
    }
}

/* ---------------------------------------------------------------- reductions and joins
 * Only those that move elements and compute nothing. */

/* The axes that have more than one element to reduce. */
static uint32_t views_reduced_axes(tg_shape from, uint32_t axes) {
    uint32_t kept = 0;
    for (int32_t i = 0; i < from.rank; i++)
        if ((axes >> i & 1u) && from.dim[i] != 1) kept |= 1u << i;
    return kept;
}

int32_t tg_pass_reduction(tg_rewrite *r, const tg_node *draft) {
    tg_node in = *tg_rewrite_node(r, draft->inputs[0]);
    uint32_t axes = views_reduced_axes(in.shape, draft->attr.axes);
    bool extremum = draft->op == TG_OP_REDUCE_MAX || draft->op == TG_OP_REDUCE_MIN;
    double number;
    if (axes == 0) return extremum || draft->op == TG_OP_SUM ? draft->inputs[0] : tg_pass_const(r, draft->shape, TG_I32, 0.0);
    if (tg_pass_splat(r, draft->inputs[0], &number) && (extremum || (draft->op == TG_OP_SUM && number == 0.0 && !signbit(number))))
        return tg_pass_const(r, draft->shape, draft->dtype, number);
    if ((draft->op == TG_OP_ARGMAX || draft->op == TG_OP_ARGMIN) && tg_pass_splat(r, draft->inputs[0], &number))
        return tg_pass_const(r, draft->shape, TG_I32, 0.0); /* all are equal: the first wins */
    if (extremum && in.op == draft->op) return tg_pass_masked(r, draft->op, in.inputs[0], axes | in.attr.axes, draft->shape);
    if (axes == draft->attr.axes) return 0;
    tg_node again = *draft;
    again.attr.axes = axes;
    return tg_pass_make(r, &again);
}

int32_t tg_pass_join(tg_rewrite *r, const tg_node *draft) {
    double first, number;
    if (draft->op != TG_OP_CONCAT) return 0;
    if (draft->input_count == 1) return draft->inputs[0];
    if (!tg_pass_splat(r, draft->inputs[0], &first)) return 0;
    for (int32_t i = 1; i < draft->input_count; i++)
        if (!tg_pass_splat(r, draft->inputs[i], &number) || number != first || signbit(number) != signbit(first)) return 0;
    return tg_pass_const(r, draft->shape, draft->dtype, first);
}
