/* feeds: the inputs of one call, checked as a whole before anything runs: names, dtypes, counts,
 * and the values of those that are used as indices or bools. Owns the messages about them. Must not
 * know programs beyond their index checks. No allocation. Cost: O(inputs x feeds), plus one pass
 * over fed bools and indices. */
#include "run/model.h"

#include <string.h>

static const char *feeds_input_name(const void *user, int64_t i) { return ((const tg_model *)user)->traced->inputs.items[i].name; }

/* NULL for an input that was fed */
static const char *feeds_missing_name(const void *user, int64_t i) {
    const tg_model *model = user;
    return model->fed[i] == NULL ? model->traced->inputs.items[i].name : NULL;
}

static int64_t feeds_find(const tg_model *model, const char *name) {
    for (int64_t i = 0; i < model->traced->inputs.count; i++)
        if (strcmp(model->traced->inputs.items[i].name, name) == 0) return i;
    return -1;
}

/* Bools are bytes: 0 or 1, so that every device may use them as they are. */
static tg_status feeds_check_bools(const tg_model *model, const char *call, const tg_feed *feed) {
    const uint8_t *bytes = feed->data;
    for (int64_t i = 0; i < feed->count; i++)
        if (bytes[i] > 1)
            return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: bool input %s: %d at position %lld is neither 0 nor 1", call,
                           feed->name, (int)bytes[i], (long long)i);
    return TG_OK;
}

static tg_input_info feeds_sized(tg_input_info input, int64_t size) {
    if (size != 0 && input.any != 0) input.shape.dim[input.any - 1] = size;
    return input;
}

/* Rows of a data set: the input's first axis is the batch. */
static tg_status feeds_check_rows(const tg_model *model, const char *call, const tg_feed *feed, const tg_input_info *input, int64_t rows) {
    char shape[TG_SHAPE_TEXT];
    const int64_t count = tg_shape_count(input->shape);
    if (input->shape.rank == 0)
        return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: input %s has no axis for the batch: feed it, the same in every step",
                       call, input->name);
    const int64_t row = count / input->shape.dim[0];
    if (row <= INT32_MAX / rows && feed->count == row * rows) return TG_OK;
    return tg_fail(model->ctx, row <= INT32_MAX / rows ? TG_ERROR_SHAPE : TG_ERROR_LIMIT, TG_SITE_NONE,
                   "%s: %lld rows for input %s%s are %lld x %lld elements, given %lld", call, (long long)rows, input->name,
                   tg_shape_text(input->shape, shape, sizeof shape), (long long)rows, (long long)row, (long long)feed->count);
}

static tg_status feeds_check_one(const tg_model *model, const char *call, const tg_feed *feed, const tg_input_info *input, int64_t rows) {
    char shape[TG_SHAPE_TEXT];
    int64_t count = tg_shape_count(input->shape);
    if (feed->dtype != input->dtype)
        return tg_fail(model->ctx, TG_ERROR_DTYPE, TG_SITE_NONE, "%s: input %s is %s, fed as %s", call, input->name,
                       tg_dtype_name(input->dtype), tg_dtype_name(feed->dtype));
    tg_status status = rows > 0 ? feeds_check_rows(model, call, feed, input, rows) : TG_OK;
    if (status != TG_OK) return status;
    if (rows == 0 && feed->count != count)
        return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: input %s%s takes %lld elements, fed %lld", call, input->name,
                       tg_shape_text(input->shape, shape, sizeof shape), (long long)count, (long long)feed->count);
    if (feed->data == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: input %s is fed from NULL", call, input->name);
    return feed->dtype == TG_BOOL ? feeds_check_bools(model, call, feed) : TG_OK;
}

tg_status tg_feeds_check_array(const tg_model *model, const char *call, const tg_feed *feed, int position, int64_t rows, int64_t size,
                               int64_t *input) {
    char names[TG_NAMES_TEXT];
    if (feed->name == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: feed %d has no name", call, position);
    *input = feeds_find(model, feed->name);
    if (*input < 0)
        return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: unknown input %.200s (inputs: %s)", call, feed->name,
                       tg_names_text(names, sizeof names, feeds_input_name, model, model->traced->inputs.count));
    const tg_input_info info = feeds_sized(model->traced->inputs.items[*input], size);
    return feeds_check_one(model, call, feed, &info, rows);
}

static tg_status feeds_take(tg_model *model, const char *call, const tg_feed *feed, int position, int64_t size) {
    int64_t input = 0;
    tg_status status = tg_feeds_check_array(model, call, feed, position, 0, size, &input);
    if (status != TG_OK) return status;
    if (model->fed[input] != NULL)
        return tg_fail(model->ctx, TG_ERROR_DUPLICATE, TG_SITE_NONE, "%s: input %s is fed twice", call, feed->name);
    model->fed[input] = feed->data;
    return TG_OK;
}

/* Those that are fed, beside the inputs that have data already. */
static tg_status feeds_take_all(tg_model *model, const char *call, const tg_feed *feeds, int n, int64_t size) {
    const int64_t inputs = model->traced->inputs.count;
    char names[TG_NAMES_TEXT];
    if (n < 0 || (feeds == NULL && n > 0)) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: %d feeds at NULL", call, n);
    for (int i = 0; i < n; i++) {
        tg_status status = feeds_take(model, call, &feeds[i], i, size);
        if (status != TG_OK) return status;
    }
    for (int64_t i = 0; i < inputs; i++)
        if (model->fed[i] == NULL)
            return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: inputs not fed: %s", call,
                           tg_names_text(names, sizeof names, feeds_missing_name, model, inputs));
    return TG_OK;
}

static tg_status feeds_check_as(tg_model *model, const char *call, const tg_feed *feeds, int n, int64_t size) {
    for (int64_t i = 0; i < model->traced->inputs.count; i++) model->fed[i] = NULL;
    return feeds_take_all(model, call, feeds, n, size);
}

tg_status tg_feeds_check(tg_model *model, const char *call, const tg_feed *feeds, int n) {
    return feeds_check_as(model, call, feeds, n, 0);
}

/* As declared: `x[?, 784]`. */
static const char *feeds_declared(const tg_input_info *input, char *buffer, size_t size) {
    tg_shape shape = input->shape;
    if (input->any != 0) shape.dim[input->any - 1] = TG_ANY;
    return tg_shape_text(shape, buffer, size);
}

static tg_status feeds_size_of(const tg_model *model, const char *call, const tg_feed *feed, const tg_input_info *input, int64_t *size) {
    char shape[TG_SHAPE_TEXT];
    const int64_t row = tg_shape_count(input->shape) / input->shape.dim[input->any - 1];
    if (feed->count > INT32_MAX)
        return tg_fail(model->ctx, TG_ERROR_LIMIT, TG_SITE_NONE, "%s: input %s%s is fed %lld elements, over the limit of 2^31 - 1", call,
                       input->name, feeds_declared(input, shape, sizeof shape), (long long)feed->count);
    *size = feed->count / row;
    if (feed->count > 0 && feed->count % row == 0) return TG_OK;
    return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: input %s%s takes a multiple of %lld elements, fed %lld", call,
                   input->name, feeds_declared(input, shape, sizeof shape), (long long)row, (long long)feed->count);
}

tg_status tg_feeds_size(tg_model *model, const char *call, const tg_feed *feeds, int n, int64_t *size) {
    const tg_input_info *first = NULL;
    char one[TG_SHAPE_TEXT], other[TG_SHAPE_TEXT];
    int64_t found = 0;
    for (int i = 0; feeds != NULL && i < n; i++) {
        const int64_t at = feeds[i].name != NULL ? feeds_find(model, feeds[i].name) : -1;
        const tg_input_info *input = at >= 0 ? &model->traced->inputs.items[at] : NULL;
        /* or said below */
        if (input == NULL || input->any == 0 || feeds[i].dtype != input->dtype) continue;
        tg_status status = feeds_size_of(model, call, &feeds[i], input, size);
        if (status != TG_OK) return status;
        if (first != NULL && *size != found)
            return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: input %s%s is fed with a size of %lld, input %s%s with %lld",
                           call, first->name, feeds_declared(first, one, sizeof one), (long long)found, input->name,
                           feeds_declared(input, other, sizeof other), (long long)*size);
        first = input;
        found = *size;
    }
    *size = found != 0 ? found : model->size;
    return feeds_check_as(model, call, feeds, n, *size);
}

tg_status tg_feeds_check_beside(tg_model *model, const tg_dataset *dataset, const tg_feed *feeds, int n) {
    for (int64_t i = 0; i < dataset->input_count; i++) {
        const tg_dataset_array *array = &dataset->arrays[i];
        model->fed[i] = array->row == 0 ? NULL : array->batch != NULL ? array->batch : (const void *)array;
    }
    return feeds_take_all(model, "train", feeds, n, 0);
}

/* lo <= value < hi, or the ignored value; the message names the first value that is neither. */
static tg_status feeds_check_indices(tg_context *ctx, const tg_feed_check *check, const int32_t *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        bool inside = values[i] >= check->lo && values[i] < check->hi;
        if (inside || (check->has_ignore && values[i] == check->ignore)) continue;
        return tg_fail(ctx, TG_ERROR_INDEX, check->site, "%s: index %d at position %lld is outside [%lld, %lld)", check->op, (int)values[i],
                       (long long)i, (long long)check->lo, (long long)check->hi);
    }
    return TG_OK;
}

tg_status tg_feeds_check_values(const tg_model *model, const tg_variant *variant, int64_t input, const void *values, int64_t count) {
    const tg_program *program = variant->program;
    tg_status status = TG_OK;
    for (int32_t i = 0; i < program->feed_check_count && status == TG_OK; i++)
        if (variant->input_index[program->feed_checks[i].input] == input)
            status = feeds_check_indices(model->ctx, &program->feed_checks[i], values, count);
    return status;
}

void tg_feeds_place(const tg_model *model, tg_variant *variant) {
    for (int32_t i = 0; i < variant->program->input_count; i++) variant->inputs[i] = model->fed[variant->input_index[i]];
}

tg_status tg_feeds_bind(tg_model *model, tg_variant *variant) {
    const tg_program *program = variant->program;
    tg_feeds_place(model, variant);
    for (int32_t i = 0; i < program->feed_check_count; i++) {
        const tg_feed_check *check = &program->feed_checks[i];
        tg_status status =
            feeds_check_indices(model->ctx, check, variant->inputs[check->input], tg_shape_count(program->inputs[check->input].shape));
        if (status != TG_OK) return status;
    }
    return TG_OK;
}
