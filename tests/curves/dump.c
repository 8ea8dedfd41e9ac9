/* dump: writes an example's, or a curve model's, initial parameters and its first batches as one safetensors file, so that another
 * framework can start from the same numbers. usage: curves_dump EXAMPLE SEED STEPS FILE */
#include "curve_models.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 256

typedef struct dump {
    tg_context *ctx;
    tg_model *model;
    tg_file_item items[MAX_ITEMS];
    char names[MAX_ITEMS][128];
    int count;
} dump;

/* Room for one more tensor; the caller fills it. */
static void *add_item(dump *to, const char *kind, const char *name, tg_dtype dtype, tg_shape shape) {
    if (to->count == MAX_ITEMS) return NULL;
    void *data = calloc((size_t)tg_shape_count(shape), 4);
    snprintf(to->names[to->count], sizeof to->names[0], "%s:%s", kind, name);
    to->items[to->count] = (tg_file_item){.name = to->names[to->count], .dtype = dtype, .shape = shape, .data = data};
    if (data) to->count++;
    return data;
}

static tg_status add_parameters(dump *to) {
    for (int i = 0; i < tg_model_param_count(to->model); i++) {
        const char *name = tg_model_param_name(to->model, i);
        tg_shape shape = TG_SCALAR;
        tg_status status = tg_model_param_shape(to->model, name, &shape);
        float *data = status == TG_OK ? add_item(to, "param", name, TG_F32, shape) : NULL;
        if (!data) return status == TG_OK ? TG_ERROR_MEMORY : status;
        status = tg_param_download(to->model, name, data, tg_shape_count(shape));
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

/* Batches of steps 1 .. steps, stacked: [steps, ...]. */
static tg_status add_batches(dump *to, const tg_example *example, uint64_t seed, int steps) {
    char *stacks[TG_EXAMPLE_MAX_INPUTS] = {0};
    for (int i = 0; i < example->input_count; i++) {
        const tg_example_input *input = &example->inputs[i];
        tg_shape shape = {.rank = input->shape.rank + 1, .dim = {steps}};
        memcpy(&shape.dim[1], input->shape.dim, sizeof(int64_t) * (size_t)input->shape.rank);
        stacks[i] = add_item(to, "batch", input->name, input->dtype, shape);
        if (!stacks[i]) return TG_ERROR_MEMORY;
    }
    for (int t = 0; t < steps; t++) {
        void *arrays[TG_EXAMPLE_MAX_INPUTS];
        for (int i = 0; i < example->input_count; i++)
            arrays[i] = stacks[i] + 4 * (size_t)t * (size_t)tg_shape_count(example->inputs[i].shape);
        example->fill_batch(seed, t + 1, example->batch, arrays);
    }
    return TG_OK;
}

int main(int argc, char **argv) {
    static dump to;
    const tg_example *example = argc == 5 ? tg_example_find(argv[1]) : NULL;
    if (argc == 5 && !example) example = curve_model_find(argv[1]);
    if (!example) {
        fprintf(stderr, "usage: curves_dump EXAMPLE SEED STEPS FILE\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[2], NULL, 10);
    int steps = atoi(argv[3]);
    to.ctx = tg_context_create(NULL);
    tg_compile_options options = {.optimizer = example->optimizer(), .seed = seed};
    to.model = to.ctx ? tg_compile(to.ctx, example->build, NULL, &options) : NULL;
    tg_status status = to.model ? add_parameters(&to) : TG_ERROR_INTERNAL;
    if (status == TG_OK) status = add_batches(&to, example, seed, steps);
    if (status == TG_OK) status = tg_safetensors_save(to.ctx, argv[4], to.items, to.count, NULL, 0);
    if (status != TG_OK) fprintf(stderr, "curves_dump: %s\n", to.ctx ? tg_error_message(to.ctx) : "out of memory");
    tg_model_destroy(to.model);
    tg_context_destroy(to.ctx);
    for (int i = 0; i < to.count; i++) free((void *)(uintptr_t)to.items[i].data);
    return status == TG_OK ? 0 : 1;
}
