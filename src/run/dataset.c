/* dataset: rows for the inputs of a model, checked once as a whole. They are on the device with the
 * kernel that draws batches from them, or on the host if the device gains nothing. Must not know
 * what the batches are for. */
#include "run/model.h"

#include <string.h>

/* ---------------------------------------------------------------- checks */

static tg_status dataset_check_call(const tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch) {
    tg_context *ctx = model->ctx;
    if (!model->training) return tg_fail(ctx, TG_ERROR_STATE, TG_SITE_NONE, "dataset: this is a forward model: it cannot be trained");
    if (rows < 1 || rows > INT32_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "dataset: rows is %lld, outside 1 .. 2^31 - 1", (long long)rows);
    if (batch < 0) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "dataset: batch is %lld, under 0", (long long)batch);
    if (n < 1 || arrays == NULL) return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "dataset: no arrays");
    return TG_OK;
}

/* The batch is the first axis of all inputs listed. */
static tg_status dataset_check_batch(tg_dataset *dataset, const tg_input_info *input) {
    char shape[TG_SHAPE_TEXT];
    if (dataset->batch == 0) dataset->batch = input->shape.dim[0];
    if (dataset->batch == input->shape.dim[0]) return TG_OK;
    return tg_fail(dataset->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "dataset: input %s%s takes batches of %lld rows, those before it of %lld",
                   input->name, tg_shape_text(input->shape, shape, sizeof shape), (long long)input->shape.dim[0],
                   (long long)dataset->batch);
}

/* The batch asked for and that of the inputs: the size of TG_ANY may be on another axis than the
 * first. */
static bool dataset_has_batch(const tg_dataset *dataset, int64_t batch) {
    if (batch == 0 || batch == dataset->batch) return true;
    tg_fail(dataset->ctx, TG_ERROR_SHAPE, TG_SITE_NONE, "dataset: batches of %lld rows are asked for, the inputs listed take %lld",
            (long long)batch, (long long)dataset->batch);
    return false;
}

static tg_status dataset_check_values(const tg_model *model, int64_t input, const tg_feed *feed) {
    tg_status status = TG_OK;
    const tg_variant *variants[] = {model->variants[TG_VARIANT_STEP], model->variants[TG_VARIANT_CHECK]};
    for (int i = 0; i < 2 && status == TG_OK; i++)
        if (variants[i] != NULL) status = tg_feeds_check_values(model, variants[i], input, feed->data, feed->count);
    return status;
}

static tg_status dataset_take(tg_dataset *dataset, const tg_feed *feed, int position) {
    const tg_model *model = dataset->model;
    int64_t i = 0;
    tg_status status = tg_feeds_check_array(model, "dataset", feed, position, dataset->rows, 0, &i);
    if (status != TG_OK) return status;
    const tg_input_info *input = &model->traced->inputs.items[i];
    tg_dataset_array *array = &dataset->arrays[i];
    if (array->row != 0) return tg_fail(dataset->ctx, TG_ERROR_DUPLICATE, TG_SITE_NONE, "dataset: input %s is given twice", feed->name);
    status = dataset_check_batch(dataset, input);
    if (status == TG_OK) status = dataset_check_values(model, i, feed);
    array->row = tg_shape_count(input->shape) / input->shape.dim[0];
    array->given = feed->data;
    return status;
}

/* ---------------------------------------------------------------- where the rows lie */

static size_t dataset_bytes(const tg_dataset *dataset, int64_t input, int64_t rows) {
    return (size_t)(dataset->arrays[input].row * rows) * tg_dtype_bytes(dataset->model->traced->inputs.items[input].dtype);
}

static tg_status dataset_keep_on_host(tg_dataset *dataset) {
    for (int64_t i = 0; i < dataset->input_count; i++) {
        tg_dataset_array *array = &dataset->arrays[i];
        if (array->row == 0) continue;
        array->rows = tg_alloc(dataset->ctx, dataset_bytes(dataset, i, dataset->rows));
        array->batch = tg_alloc(dataset->ctx, dataset_bytes(dataset, i, dataset->batch));
        if (array->rows == NULL || array->batch == NULL) return TG_ERROR_MEMORY;
        memcpy(array->rows, array->given, dataset_bytes(dataset, i, dataset->rows));
    }
    return TG_OK;
}

static tg_status dataset_put_on_device(tg_dataset *dataset, const tg_variant *variant) {
    const tg_family *family = dataset->model->family;
    const tg_program *program = variant->program;
    const size_t bytes = (size_t)(program->input_count + 1) * sizeof(tg_feeder_array);
    tg_feeder_array *arrays = tg_alloc(dataset->ctx, bytes);
    tg_feeder_options options = {arrays, 0, dataset->rows, dataset->batch};
    if (arrays == NULL) return TG_ERROR_MEMORY;
    for (int32_t i = 0; i < program->input_count; i++) {
        const tg_dataset_array *array = &dataset->arrays[variant->input_index[i]];
        if (array->row != 0) arrays[options.count++] = (tg_feeder_array){i, array->given, array->row};
    }
    tg_status status = family->executor->make_feeder(family->device, variant->executable, &options, &dataset->feeder);
    tg_release(dataset->ctx, arrays, bytes);
    return status;
}

/* For a model that computes indices the host looks at them before each step: then more than one
 * step at a time gains nothing. */
static tg_status dataset_place(tg_dataset *dataset) {
    tg_model *model = dataset->model;
    const tg_variant *variant = tg_model_variant(model, TG_VARIANT_STEP);
    if (variant == NULL) return model->ctx->status;
    if (model->family->executor->make_feeder == NULL || model->variants[TG_VARIANT_CHECK] != NULL || model->check_finite)
        return dataset_keep_on_host(dataset);
    return dataset_put_on_device(dataset, variant);
}

void tg_dataset_fill(const tg_dataset *dataset, const tg_draw *draw) {
    for (int64_t i = 0; i < dataset->input_count; i++) {
        const tg_dataset_array *array = &dataset->arrays[i];
        if (array->row == 0) continue;
        const size_t bytes = dataset_bytes(dataset, i, 1);
        for (int64_t row = 0; row < dataset->batch; row++)
            memcpy((char *)array->batch + (size_t)row * bytes, (const char *)array->rows + (size_t)tg_draw_row(draw, row) * bytes, bytes);
    }
}

/* ---------------------------------------------------------------- life */

static void dataset_release(tg_dataset *dataset) {
    const tg_family *family = dataset->model->family;
    if (dataset->feeder != NULL) family->executor->drop_feeder(family->device, dataset->feeder);
    for (int64_t i = 0; dataset->arrays != NULL && i < dataset->input_count; i++) {
        tg_dataset_array *array = &dataset->arrays[i];
        if (array->rows != NULL) tg_release(dataset->ctx, array->rows, dataset_bytes(dataset, i, dataset->rows));
        if (array->batch != NULL) tg_release(dataset->ctx, array->batch, dataset_bytes(dataset, i, dataset->batch));
        array->rows = array->batch = NULL;
    }
    dataset->feeder = NULL;
}

static void dataset_free(tg_dataset *dataset) {
    if (dataset->arrays != NULL) tg_release(dataset->ctx, dataset->arrays, (size_t)(dataset->input_count + 1) * sizeof *dataset->arrays);
    tg_release(dataset->ctx, dataset, sizeof *dataset);
}

static tg_status dataset_make(tg_dataset *dataset, const tg_feed *arrays, int n) {
    dataset->arrays = tg_alloc(dataset->ctx, (size_t)(dataset->input_count + 1) * sizeof *dataset->arrays);
    if (dataset->arrays == NULL) return TG_ERROR_MEMORY;
    tg_status status = TG_OK;
    for (int i = 0; i < n && status == TG_OK; i++) status = dataset_take(dataset, &arrays[i], i);
    return status == TG_OK ? dataset_place(dataset) : status;
}

static tg_dataset *dataset_create(tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch) {
    tg_dataset *dataset = tg_alloc(model->ctx, sizeof *dataset);
    if (dataset == NULL) return NULL;
    dataset->ctx = model->ctx;
    dataset->model = model;
    dataset->rows = rows;
    dataset->input_count = model->traced->inputs.count;
    if (dataset_make(dataset, arrays, n) == TG_OK && dataset_has_batch(dataset, batch)) {
        dataset->next = model->datasets;
        model->datasets = dataset;
        return dataset;
    }
    dataset_release(dataset);
    dataset_free(dataset);
    return NULL;
}

tg_dataset *tg_dataset_create_batch_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows, int64_t batch) {
    if (model == NULL) return NULL;
    tg_model_enter(model, site);
    if (dataset_check_call(model, arrays, n, rows, batch) != TG_OK) return NULL;
    if (model->size != 0) {
        const int64_t size = batch > 0 ? batch : model->size;
        int64_t input;
        for (int i = 0; i < n; i++)
            if (tg_feeds_check_array(model, "dataset", &arrays[i], i, rows, size, &input) != TG_OK) return NULL;
        model = tg_sizes_get(model, size);
    }
    return model != NULL ? dataset_create(model, arrays, n, rows, batch) : NULL;
}

tg_dataset *tg_dataset_create_at(tg_site site, tg_model *model, const tg_feed *arrays, int n, int64_t rows) {
    return tg_dataset_create_batch_at(site, model, arrays, n, rows, 0);
}

void tg_dataset_destroy(tg_dataset *dataset) {
    if (dataset == NULL) return;
    if (dataset->model != NULL) {
        tg_dataset **at = &dataset->model->datasets;
        while (*at != dataset) at = &(*at)->next;
        *at = dataset->next;
        tg_tickets_settle(dataset->model->family);
        dataset_release(dataset);
    }
    dataset_free(dataset);
}

void tg_datasets_leave(tg_model *model, bool destroyed) {
    for (tg_dataset *dataset = model->datasets; dataset != NULL; dataset = dataset->next) {
        dataset->lost = dataset->lost || dataset->feeder != NULL;
        if (destroyed || dataset->feeder != NULL) dataset_release(dataset);
        if (destroyed) dataset->model = NULL;
    }
    if (destroyed) model->datasets = NULL;
}
