/* inspect: a model as numbers and as text. Reads the main variant: the step of a training model,
 * the run of any other. Must not change anything. */
#include "run/model.h"

#include "emit/emit.h"

#include <stdio.h>
#include <string.h>

static const tg_variant *inspect_main(const tg_model *model) { return model->variants[model->training ? TG_VARIANT_STEP : TG_VARIANT_RUN]; }

tg_status tg_model_get_info_at(tg_site site, tg_model *model, tg_model_info *info) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    model = tg_sizes_last(model);
    if (info == NULL) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "get_info: info is NULL");
    const tg_family *family = model->family;
    const tg_program *program = inspect_main(model)->program;
    int64_t parameters = 0;
    for (int i = 0; i < family->layout.count; i++)
        if (!family->layout.entries[i].frozen) parameters += family->layout.entries[i].count;
    info->parameters = parameters;
    info->nodes = program->node_count;
    info->kernels = program->kernel_count;
    info->dispatches = family->executor->dispatches(inspect_main(model)->executable);
    info->tuned = family->executor->tuned != NULL ? family->executor->tuned(inspect_main(model)->executable) : 0;
    info->program_bytes = tg_program_bytes(program);
    info->peak_bytes = tg_program_peak_bytes(program);
    info->workspace_bytes = program->workspace_bytes;
    info->contraction_flops = program->contraction_flops;
    info->device = family->executor->describe(family->device);
    info->adapter = family->executor->adapter(family->device);
    info->precision = tg_family_precision(family);
    return TG_OK;
}

tg_shape tg_model_output_shape(const tg_model *model) {
    return model != NULL ? tg_graph_node(model->last->traced, model->last->traced->result)->shape : tg_shape_make(0, NULL);
}

tg_dtype tg_model_output_dtype(const tg_model *model) {
    return model != NULL ? tg_graph_node(model->traced, model->traced->result)->dtype : TG_F32;
}

/* A program planned for the CPU keeps bools in bytes, and may bind more than a GPU does: it is
 * planned again. */
static tg_status inspect_wgsl(const tg_model *model, const tg_variant *variant, tg_text_buffer *text) {
    const tg_executor *executor = model->family->executor;
    if (executor->wgsl) return tg_emit_wgsl_text(variant->program, executor->model(model->family->device), text);
    tg_plan_options options = {.device = &tg_device_guaranteed, .no_fusion = model->no_fusion};
    tg_program *program = tg_program_make(variant->graph, &options);
    if (program == NULL) return model->ctx->status;
    tg_status status = tg_emit_wgsl_text(program, &tg_device_guaranteed, text);
    tg_program_destroy(program, model->ctx);
    return status;
}

/* Facts that a program does not know: how its states begin, and where the parameters are in
 * them. */
static tg_status inspect_c(const tg_model *model, const tg_variant *variant, tg_text_buffer *text) {
    const tg_layout *layout = &model->family->layout;
    tg_text_add(text, "/* Before the first call, states are 0 unless the list below says otherwise; tg.parameters and tg.average hold the\n"
                      " * parameters, " TG_RANDOM_STATE
                      " bits of the seed, which a checkpoint has. Of tg.parameters, tg.gradients, tg.m and the\n"
                      " * like each parameter has its part, in row-major order:\n");
    for (int i = 0; i < layout->count; i++) {
        const tg_layout_entry *entry = &layout->entries[i];
        char shape[TG_SHAPE_TEXT];
        tg_text_add(text, " *   ");
        tg_emit_c_noted(text, entry->name);
        tg_text_add(text, " f32%s: %lld elements from %lld\n", tg_shape_text(entry->shape, shape, sizeof shape), (long long)entry->count,
                    (long long)entry->offset);
    }
    tg_text_add(text, " */\n");
    return tg_emit_c(variant->program, text);
}

static tg_status inspect_print(const tg_model *model, tg_text what, tg_text_buffer *text) {
    const tg_variant *variant = inspect_main(model);
    switch (what) {
    case TG_TEXT_IR: tg_graph_print(variant->graph, text); return TG_OK;
    case TG_TEXT_KERNELS: tg_program_print_kernels(variant->program, text); return TG_OK;
    case TG_TEXT_PLAN: tg_program_print(variant->program, text); return TG_OK;
    case TG_TEXT_DOT: tg_graph_print_dot(variant->graph, text); return TG_OK;
    case TG_TEXT_C: return inspect_c(model, variant, text);
    case TG_TEXT_WGSL: return inspect_wgsl(model, variant, text);
    }
    return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "text: there is no text %d", (int)what);
}

const char *tg_model_text_at(tg_site site, tg_model *model, tg_text what) {
    if (model == NULL) return NULL;
    tg_model_begin(model->ctx, site);
    tg_text_clear(&model->text);
    if (inspect_print(tg_sizes_last(model), what, &model->text) != TG_OK || model->text.failed) return NULL;
    return model->text.data != NULL ? model->text.data : "";
}

/* "1024 | 256 | 64": the groups of a kernel's loops; "1" of one that has none. */
static void inspect_loops(const tg_kernel *kernel, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "%s", kernel->loop_count == 0 ? "1" : "");
    for (int32_t d = 0; d < kernel->loop_count; d++) {
        const bool contracts = kernel->kind == TG_KERNEL_CONTRACT;
        const bool starts = d == kernel->outer_count || (contracts && (d == kernel->m_begin || d == kernel->n_begin));
        const int written = snprintf(text + used, size - used, "%s%lld", d > 0 ? (starts ? " | " : " ") : "", (long long)kernel->extent[d]);
        if (written < 0 || (size_t)written >= size - used) return;
        used += (size_t)written;
    }
}

static double inspect_points(const tg_kernel *kernel) {
    double points = 1;
    for (int32_t d = 0; d < kernel->loop_count; d++) points *= (double)kernel->extent[d];
    return points;
}
static bool inspect_has_argument(const tg_program *program, int32_t first, int32_t end, const tg_argument *argument) {
    for (int32_t k = first; k < end; k++)
        for (int32_t i = 0; i < program->kernels[k].argument_count; i++) {
            const tg_argument *other = &program->kernels[k].arguments[i];
            if (other == argument) return false;
            if (other->buffer == argument->buffer && (argument->access & ~other->access) == 0) return true;
        }
    return false;
}
/* Each buffer of the launch is read once and written once, but no more of it than the kernel has
 * points. */
static double inspect_bytes(const tg_program *program, const tg_launch *launch) {
    double bytes = 0;
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = &program->kernels[k];
        const double points = inspect_points(kernel);
        for (int32_t i = 0; i < kernel->argument_count; i++) {
            const tg_argument *argument = &kernel->arguments[i];
            const double count = (double)program->buffers[argument->buffer].count;
            const double item = (double)tg_program_element_bytes(program, argument->dtype);
            if (inspect_has_argument(program, launch->first, k + 1, argument)) continue;
            bytes += (argument->access == TG_ACCESS_READ_WRITE ? 2 : 1) * item * (count < points ? count : points);
        }
    }
    return bytes;
}
/* All but the name, which is still being written, and what the executor notes. */
static tg_kernel_time inspect_time(const tg_program *program, const tg_launch *launch) {
    const tg_kernel *most = &program->kernels[launch->first];
    tg_kernel_time time = {.kernels = launch->count, .bytes = inspect_bytes(program, launch)};
    for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
        const tg_kernel *kernel = &program->kernels[k];
        time.flops += kernel->flops;
        if (kernel->flops > most->flops || (kernel->flops >= most->flops && inspect_points(kernel) > inspect_points(most))) most = kernel;
    }
    inspect_loops(most, time.loops, sizeof time.loops);
    return time;
}
/* What is timed by itself: a launch of the program, or kernel i. */
static tg_launch inspect_timed(const tg_model *model, const tg_program *program, int32_t i) {
    return model->family->executor->wgsl ? program->launches[i] : (tg_launch){i, 1, 0};
}
static tg_status inspect_times(tg_model *model, const tg_program *program, tg_kernel_time *times, int count) {
    tg_text_buffer *names = &model->timed_names;
    tg_text_clear(names);
    for (int i = 0; i < count; i++) {
        const tg_launch launch = inspect_timed(model, program, i);
        times[i] = inspect_time(program, &launch);
        for (int32_t k = 0; k < launch.count; k++) tg_text_add(names, "%s%s", k > 0 ? ", " : "", program->kernels[launch.first + k].name);
        tg_text_bytes(names, "", 1);
    }
    if (names->failed) return TG_ERROR_MEMORY;
    const char *name = names->data;
    for (int i = 0; i < count; i++) {
        times[i].name = name;
        name += strlen(name) + 1;
    }
    return TG_OK;
}

tg_status tg_model_time_kernels_at(tg_site site, tg_model *model, tg_kernel_time *times, int count) {
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_enter(model, site);
    if (count < 0) return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "time_kernels: the count is %d", count);
    model = tg_sizes_last(model);
    const tg_variant *variant = inspect_main(model);
    const tg_family *family = model->family;
    if (family->executor->time_kernels == NULL)
        return tg_fail(model->ctx, TG_ERROR_UNSUPPORTED, TG_SITE_NONE, "time_kernels: there is no clock on this home");
    tg_status status = TG_OK;
    for (tg_model *each = model->root; each != NULL; each = each->next) { /* another size's come to their end */
        if (each->owner != model->owner || !each->timed) continue;
        (void)family->executor->time_kernels(family->device, inspect_main(each)->executable, NULL, 0);
        each->timed = false;
    }
    const int most = family->executor->wgsl ? variant->program->launch_count : variant->program->kernel_count;
    if (count > most) count = most;
    if (times != NULL) status = inspect_times(model, variant->program, times, count);
    if (status == TG_OK) status = family->executor->time_kernels(family->device, variant->executable, times, count);
    model->timed = status == TG_OK && times != NULL;
    return status;
}
