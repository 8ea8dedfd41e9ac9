/* feeds: the inputs of one call, checked as a whole before anything runs: names, dtypes, counts, and the values of those that
 * are used as indices or bools. Owns the messages about them. Must not know programs beyond their index checks. No
 * allocation. Cost: O(inputs x feeds), plus one pass over fed bools and indices. */
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

static tg_status feeds_check_one(const tg_model *model, const char *call, const tg_feed *feed, const tg_input_info *input) {
    char shape[TG_SHAPE_TEXT];
    int64_t count = tg_shape_count(input->shape);
    if (feed->dtype != input->dtype)
        return tg_fail(model->ctx, TG_ERROR_DTYPE, TG_SITE_NONE, "%s: input %s is %s, fed as %s", call, input->name,
                       tg_dtype_name(input->dtype), tg_dtype_name(feed->dtype));
    if (feed->count != count)
        return tg_fail(model->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "%s: input %s%s takes %lld elements, fed %lld", call, input->name,
                       tg_shape_text(input->shape, shape, sizeof shape), (long long)count, (long long)feed->count);
    if (feed->data == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: input %s is fed from NULL", call, input->name);
    return feed->dtype == TG_BOOL ? feeds_check_bools(model, call, feed) : TG_OK;
}

static tg_status feeds_take(tg_model *model, const char *call, const tg_feed *feed, int position) {
    char names[TG_NAMES_TEXT];
    if (feed->name == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: feed %d has no name", call, position);
    int64_t input = feeds_find(model, feed->name);
    if (input < 0)
        return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: unknown input %.200s (inputs: %s)", call, feed->name,
                       tg_names_text(names, sizeof names, feeds_input_name, model, model->traced->inputs.count));
    if (model->fed[input] != NULL)
        return tg_fail(model->ctx, TG_ERROR_DUPLICATE, TG_SITE_NONE, "%s: input %s is fed twice", call, feed->name);
    tg_status status = feeds_check_one(model, call, feed, &model->traced->inputs.items[input]);
    if (status == TG_OK) model->fed[input] = feed->data;
    return status;
}

tg_status tg_feeds_check(tg_model *model, const char *call, const tg_feed *feeds, int n) {
    const int64_t inputs = model->traced->inputs.count;
    char names[TG_NAMES_TEXT];
    if (n < 0 || (feeds == NULL && n > 0)) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "%s: %d feeds at NULL", call, n);
    for (int64_t i = 0; i < inputs; i++) model->fed[i] = NULL;
    for (int i = 0; i < n; i++) {
        tg_status status = feeds_take(model, call, &feeds[i], i);
        if (status != TG_OK) return status;
    }
    for (int64_t i = 0; i < inputs; i++)
        if (model->fed[i] == NULL)
            return tg_fail(model->ctx, TG_ERROR_NOT_FOUND, TG_SITE_NONE, "%s: inputs not fed: %s", call,
                           tg_names_text(names, sizeof names, feeds_missing_name, model, inputs));
    return TG_OK;
}

/* lo <= value < hi, or the ignored value: the first that is not is named. */
static tg_status feeds_check_indices(const tg_variant *variant, tg_context *ctx, const tg_feed_check *check) {
    const int32_t *values = variant->inputs[check->input];
    const int64_t count = tg_shape_count(variant->program->inputs[check->input].shape);
    for (int64_t i = 0; i < count; i++) {
        bool inside = values[i] >= check->lo && values[i] < check->hi;
        if (inside || (check->has_ignore && values[i] == check->ignore)) continue;
        return tg_fail(ctx, TG_ERROR_INDEX, check->site, "%s: index %d at position %lld is outside [%lld, %lld)", check->op, (int)values[i],
                       (long long)i, (long long)check->lo, (long long)check->hi);
    }
    return TG_OK;
}

tg_status tg_feeds_bind(tg_model *model, tg_variant *variant) {
    const tg_program *program = variant->program;
    for (int32_t i = 0; i < program->input_count; i++) variant->inputs[i] = model->fed[variant->input_index[i]];
    for (int32_t i = 0; i < program->feed_check_count; i++) {
        tg_status status = feeds_check_indices(variant, model->ctx, &program->feed_checks[i]);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}
