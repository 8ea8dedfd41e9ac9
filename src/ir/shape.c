/* shape: shapes and axes as values: makes, counts, compares, broadcasts and refuses them. Must not
 * know nodes or graphs. */
#include "ir/rules.h"

#include <stdio.h>
#include <string.h>

tg_shape tg_shape_make(int32_t rank, const int64_t *dims) {
    tg_shape shape;
    memset(&shape, 0, sizeof shape);
    shape.rank = rank;
    for (int32_t i = 0; dims && i < rank && i < TG_MAX_RANK; i++) shape.dim[i] = dims[i];
    return shape;
}

tg_axes tg_axes_make(int32_t count, const int32_t *axes) {
    tg_axes made;
    memset(&made, 0, sizeof made);
    made.count = count;
    for (int32_t i = 0; axes && i < count && i < TG_MAX_RANK; i++) made.axis[i] = axes[i];
    return made;
}

int64_t tg_shape_count(tg_shape shape) {
    if (shape.rank < 0 || shape.rank > TG_MAX_RANK) return -1;
    int64_t count = 1;
    for (int32_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 1 || shape.dim[i] > TG_MAX_COUNT / count) return -1;
        count *= shape.dim[i];
    }
    return count;
}

bool tg_shape_equal(tg_shape a, tg_shape b) {
    if (a.rank != b.rank) return false;
    for (int32_t i = 0; i < a.rank && i < TG_MAX_RANK; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

bool tg_shape_broadcast(tg_shape a, tg_shape b, tg_shape *out) {
    if (a.rank < 0 || b.rank < 0 || a.rank > TG_MAX_RANK || b.rank > TG_MAX_RANK) return false;
    tg_shape result = tg_shape_make(a.rank > b.rank ? a.rank : b.rank, NULL);
    for (int32_t i = 1; i <= result.rank; i++) { /* from the last axis */
        const int64_t left = i <= a.rank ? a.dim[a.rank - i] : 1, right = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (left != right && left != 1 && right != 1) return false;
        result.dim[result.rank - i] = left == 1 ? right : left;
    }
    *out = result;
    return true;
}

/* Writes why a shape is too large. All its dims are positive. */
static void shape_say_too_large(tg_shape shape, char *message, size_t size) {
    char text[TG_SHAPE_TEXT];
    (void)tg_shape_text(shape, text, sizeof text);
    uint64_t count = 1;
    bool known = true;
    for (int32_t i = 0; i < shape.rank; i++) {
        known = known && count <= UINT64_MAX / (uint64_t)shape.dim[i];
        count = known ? count * (uint64_t)shape.dim[i] : UINT64_MAX;
    }
    (void)snprintf(message, size, "shape %s has %s%llu elements, over the limit of %lld", text, known ? "" : "more than ",
                   (unsigned long long)count, (long long)TG_MAX_COUNT);
}

tg_status tg_shape_check(tg_shape shape, char *message, size_t size) {
    if (shape.rank < 0) {
        (void)snprintf(message, size, "rank %d is negative", (int)shape.rank);
        return TG_ERROR_SHAPE;
    }
    char text[TG_SHAPE_TEXT];
    (void)tg_shape_text(shape, text, sizeof text);
    if (shape.rank > TG_MAX_RANK) {
        (void)snprintf(message, size, "shape %s has rank %d, over the limit of %d", text, (int)shape.rank, TG_MAX_RANK);
        return TG_ERROR_LIMIT;
    }
    for (int32_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] >= 1) continue;
        (void)snprintf(message, size, "shape %s has a dimension under 1 (axis %d is %lld)", text, (int)i, (long long)shape.dim[i]);
        return TG_ERROR_SHAPE;
    }
    if (tg_shape_count(shape) >= 0) return TG_OK;
    shape_say_too_large(shape, message, size);
    return TG_ERROR_LIMIT;
}
