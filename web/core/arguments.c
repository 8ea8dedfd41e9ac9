/* arguments: see arguments.h. Must not know an operation. */
#include "arguments.h"

#include "core.h"

#include <math.h>

/* ---------------------------------------------------------------- numbers and operands by themselves */

int64_t web_whole(double x) { return x >= -9007199254740992.0 && x <= 9007199254740992.0 && x == floor(x) ? (int64_t)x : INT64_MIN; }

int32_t web_small(double x) {
    int64_t whole = web_whole(x);
    return whole < INT32_MIN || whole > INT32_MAX ? INT32_MIN : (int32_t)whole;
}

tg_shape web_shape_of(const double *dims, int32_t rank) {
    tg_shape shape = {.rank = rank};
    for (int32_t i = 0; i < rank && i < TG_MAX_RANK; i++) shape.dim[i] = web_whole(dims[i]);
    return shape;
}

tg_tensor web_tensor(const web_operand *operand) { return web_tensor_of(operand->graph, operand->id); }

tg_operand web_either(const web_operand *operand) {
    return operand->id == WEB_NUMBER ? tg_operand_number_(operand->number) : tg_operand_tensor_(web_tensor(operand));
}

tg_tensor *web_tensors(const web_operand *operands, int32_t count) {
    tg_tensor *tensors = tg_alloc(web_context, sizeof *tensors * (size_t)count);
    for (int32_t i = 0; tensors != NULL && i < count; i++) tensors[i] = web_tensor(&operands[i]);
    return tensors;
}

void web_release_tensors(tg_tensor *tensors, int32_t count) { tg_release(web_context, tensors, sizeof *tensors * (size_t)count); }

/* ---------------------------------------------------------------- one after another */

tg_tensor web_misfit(web_arguments *a) {
    if (!a->is_misfit)
        tg_fail(web_context, TG_ERROR_INTERNAL, TG_SITE_NONE,
                "fault in tensorgrad, please report it: an operation called with what it does not take");
    a->is_misfit = true;
    return (tg_tensor){NULL, 0};
}

tg_tensor web_take_tensor(web_arguments *a) {
    if (a->operand == a->operand_end || a->operand->id == WEB_NUMBER) return web_misfit(a);
    return web_tensor(a->operand++);
}

tg_tensor web_take_optional(web_arguments *a) {
    if (a->operand == a->operand_end) return (tg_tensor){NULL, 0};
    if (a->operand->graph != 0 || a->operand->id != 0) return web_take_tensor(a);
    a->operand++;
    return (tg_tensor){NULL, 0};
}

tg_operand web_take_either(web_arguments *a) {
    if (a->operand == a->operand_end) return tg_operand_tensor_(web_misfit(a));
    return web_either(a->operand++);
}

const tg_tensor *web_take_parts(web_arguments *a) {
    const int32_t count = (int32_t)(a->operand_end - a->operand);
    a->parts = web_tensors(a->operand, count);
    if (a->parts != NULL) a->part_count = count;
    a->operand = a->operand_end;
    return a->parts;
}

double web_take_number(web_arguments *a) {
    if (a->number != a->number_end) return *a->number++;
    web_misfit(a);
    return 0.0;
}

bool web_take_flag(web_arguments *a) { return web_take_number(a) != 0.0; }
int64_t web_take_whole(web_arguments *a) { return web_whole(web_take_number(a)); }
int32_t web_take_small(web_arguments *a) { return web_small(web_take_number(a)); }

uint64_t web_take_bits(web_arguments *a) {
    const uint64_t low = (uint64_t)web_take_whole(a);
    return low | (uint64_t)web_take_whole(a) << 32;
}

tg_shape web_take_shape(web_arguments *a) {
    tg_shape shape = {.rank = web_take_small(a)};
    for (int32_t i = 0; i < shape.rank && !a->is_misfit; i++) {
        const int64_t dim = web_take_whole(a);
        if (i < TG_MAX_RANK) shape.dim[i] = dim;
    }
    return shape;
}

tg_axes web_take_axes(web_arguments *a) {
    tg_axes axes = {.count = web_take_small(a)};
    for (int32_t i = 0; i < axes.count && !a->is_misfit; i++) {
        const int32_t axis = web_take_small(a);
        if (i < TG_MAX_RANK) axes.axis[i] = axis;
    }
    return axes;
}

const char *web_take_text(web_arguments *a) {
    const int32_t length = web_take_small(a);
    if (length < 0 || length > a->number_end - a->number) {
        web_misfit(a);
        return "";
    }
    a->text = tg_alloc(web_context, (size_t)length + 1);
    for (int32_t i = 0; i < length; i++) {
        const double c = web_take_number(a);
        if (a->text != NULL) a->text[i] = c > 0.0 && c < 127.0 ? (char)c : '?';
    }
    if (a->text == NULL) return "";
    a->text_bytes = (size_t)length + 1;
    a->text[length] = '\0';
    return a->text;
}

bool web_arguments_end(web_arguments *a) {
    if (a->operand != a->operand_end || a->number != a->number_end) web_misfit(a);
    if (a->parts != NULL) web_release_tensors(a->parts, a->part_count);
    if (a->text != NULL) tg_release(web_context, a->text, a->text_bytes);
    return !a->is_misfit;
}
