/* tune_search: times the schedules that a model's launches could have on its adapter. Each distinct
 * launch with a choice becomes a program of its own on a second device, with its own numbers, so
 * the model does not change. A schedule wins only if its results are the default's up to rounding,
 * and if it is faster by a clear margin when the two are timed in turn. Must not know kernels or
 * shaders. */
#include "run/model.h"
#include "emit/emit.h"
#include "run/tuning_table.h"
#include "run/webgpu/webgpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TUNE_SECONDS 30.0
#define TUNE_MARGIN 1.05  /* a smaller gain is noise */
#define TUNE_HOPELESS 2.0 /* slower than the default by this: not looked at twice */
#define TUNE_SAMPLE 0.008 /* seconds of one timing */
#define TUNE_REPEATS 512  /* at most, in one timing */
#define TUNE_LOOKS 3      /* timings of one schedule, each beside one of the default */
#define TUNE_DUELS 9      /* timings of the winner, likewise */
#define TUNE_FIRST 48     /* schedules looked at before the neighbours of the best */
/* largest root of the mean square of differences, over that of the values */
#define TUNE_ERROR 1e-3
#define TUNE_OUTLIER 1e-2 /* a difference of so much, over the same, */
/* share of all elements that may have it: where a sum near zero decides about something */
#define TUNE_OUTLIERS 1e-5

/* All launches of one model. */
typedef struct tune_run {
    tg_context *ctx;
    const tg_program *program;
    const tg_tune_options *options;
    const tg_schedules *stored; /* of the model's device */
    tg_device *device;
    tg_arena arena;                   /* keys */
    int64_t end;                      /* ns */
    int32_t left;                     /* launches to do, this one included */
    TG_LIST(tg_schedule_entry) found; /* of every key that was looked at; kind NONE: the default */
} tune_run;

/* One of them. */
typedef struct tune_case {
    tune_run *run;
    tg_context *ctx;
    tg_arena arena;
    tg_program program;
    tg_launch launch;
    int32_t *slots;
    const void **inputs;
    void **wanted, **got; /* per output */
    tg_wgsl_candidates candidates;
    bool *seen;           /* per choice */
    tg_executable *usual; /* the first choice: the printer's own */
    int repeats, tried, wrong;
    int32_t best;         /* of the candidates */
    double ratio;         /* of its time over the usual one's */
    double usual_seconds; /* least */
    int64_t end;          /* ns */
} tune_case;

/* ---------------------------------------------------------------- the launch as a program */

/* Elements of what a buffer holds, as the host has them. */
static size_t tune_bytes(const tg_buffer *buffer) { return (size_t)buffer->count * tg_dtype_bytes(buffer->dtype); }

static int tune_access(const tune_case *c, int32_t buffer) {
    int access = 0;
    for (int32_t k = 0; k < c->program.kernel_count; k++)
        for (int32_t a = 0; a < c->program.kernels[k].argument_count; a++)
            if (c->program.kernels[k].arguments[a].buffer == buffer) access |= (int)c->program.kernels[k].arguments[a].access;
    return access;
}

/* What it writes is read back; what it does not touch has no place. */
static tg_status tune_make_buffers(tune_case *c) {
    tg_program *p = &c->program;
    tg_buffer *buffers = tg_arena_copy(&c->arena, p->buffers, sizeof *buffers * (size_t)p->buffer_count);
    p->outputs = TG_NEW(&c->arena, tg_output, p->buffer_count + 1);
    if (buffers == NULL || p->outputs == NULL) return TG_ERROR_MEMORY;
    p->buffers = buffers;
    p->output_count = 0;
    for (int32_t b = 0; b < p->buffer_count; b++) {
        const int access = tune_access(c, b);
        if (access == 0 && buffers[b].storage == TG_STORAGE_STATE) buffers[b].storage = TG_STORAGE_WORKSPACE;
        if (access == 0) buffers[b].first = -1;
        if (access & TG_ACCESS_WRITE)
            p->outputs[p->output_count++] = (tg_output){"written", b, TG_SHAPE(buffers[b].count), buffers[b].dtype};
    }
    return TG_OK;
}

static tg_status tune_make_program(tune_case *c, int32_t launch) {
    const tg_program *whole = c->run->program;
    tg_program *p = &c->program;
    *p = *whole;
    c->launch = (tg_launch){0, whole->launches[launch].count, whole->launches[launch].slices};
    p->kernels = &whole->kernels[whole->launches[launch].first];
    p->kernel_count = c->launch.count;
    p->launches = &c->launch;
    p->launch_count = 1;
    p->computed_check_count = p->feed_check_count = p->capture_count = 0;
    return tune_make_buffers(c);
}

static tg_status tune_make_tables(tune_case *c) {
    const tg_program *p = &c->program;
    c->slots = TG_NEW(&c->arena, int32_t, p->state_count + 1);
    c->inputs = TG_NEW(&c->arena, const void *, p->input_count + 1);
    c->wanted = TG_NEW(&c->arena, void *, p->output_count + 1);
    c->got = TG_NEW(&c->arena, void *, p->output_count + 1);
    c->seen = TG_NEW(&c->arena, bool, c->candidates.count + 1);
    if (c->slots == NULL || c->inputs == NULL || c->wanted == NULL || c->got == NULL || c->seen == NULL) return TG_ERROR_MEMORY;
    for (int32_t s = 0; s < p->state_count; s++) c->slots[s] = s;
    for (int32_t o = 0; o < p->output_count; o++) {
        c->wanted[o] = tg_arena_alloc(&c->arena, tune_bytes(&p->buffers[p->outputs[o].buffer]));
        c->got[o] = tg_arena_alloc(&c->arena, tune_bytes(&p->buffers[p->outputs[o].buffer]));
        if (c->wanted[o] == NULL || c->got[o] == NULL) return TG_ERROR_MEMORY;
    }
    return TG_OK;
}

/* ---------------------------------------------------------------- its numbers */

/* f32 within [-1, 1); indices 0 to 7; any bool. */
static void tune_numbers(void *to, tg_dtype dtype, int64_t count, uint32_t seed) {
    uint32_t word = seed * 2654435769U + 1U;
    for (int64_t i = 0; i < count; i++) {
        word = word * 1664525U + 1013904223U;
        const double number = dtype == TG_F32 ? (word >> 8) / 8388608.0 - 1.0 : word >> (dtype == TG_I32 ? 29 : 31);
        tg_dtype_put(dtype, to, i, number);
    }
}

static tg_status tune_fill_inputs(tune_case *c) {
    const tg_program *p = &c->program;
    for (int32_t i = 0; i < p->input_count; i++) {
        const int64_t count = tg_shape_count(p->inputs[i].shape);
        void *data = tg_arena_alloc(&c->arena, (size_t)count * tg_dtype_bytes(p->inputs[i].dtype));
        if (data == NULL) return TG_ERROR_MEMORY;
        tune_numbers(data, p->inputs[i].dtype, count, (uint32_t)i + 1000U);
        c->inputs[i] = data;
    }
    return TG_OK;
}

/* The contents of the device before each run whose results count. */
static tg_status tune_fill(tune_case *c, tg_executable *executable) {
    tg_status status = TG_OK;
    for (int32_t b = 0; b < c->program.buffer_count && status == TG_OK; b++) {
        const tg_buffer *buffer = &c->program.buffers[b];
        if (tune_access(c, b) == 0 || (buffer->storage != TG_STORAGE_WORKSPACE && buffer->storage != TG_STORAGE_STATE)) continue;
        void *data = tg_alloc(c->ctx, tune_bytes(buffer));
        if (data == NULL) return TG_ERROR_MEMORY;
        tune_numbers(data, buffer->dtype, buffer->count, (uint32_t)b);
        status = tg_webgpu_put(c->run->device, executable, b, data);
        tg_release(c->ctx, data, tune_bytes(buffer));
    }
    return status;
}

/* Equal up to rounding, as a whole, and in all but very few elements each. Values that are not
 * finite in both count as equal. */
static bool tune_agrees(const float *got, const float *wanted, int64_t count) {
    double squares = 0.0, wanted_squares = 0.0;
    int64_t outliers = 0;
    for (int64_t i = 0; i < count; i++) wanted_squares += isfinite(wanted[i]) ? (double)wanted[i] * (double)wanted[i] : 0.0;
    const double scale = sqrt(wanted_squares / (double)count);
    for (int64_t i = 0; i < count; i++) {
        const double difference = (double)got[i] - (double)wanted[i];
        if (!isfinite(got[i]) && !isfinite(wanted[i])) continue;
        if (!(fabs(difference) <= TUNE_OUTLIER * scale)) outliers++;
        else squares += difference * difference;
    }
    return sqrt(squares / (double)count) <= TUNE_ERROR * scale && (double)outliers <= TUNE_OUTLIERS * (double)count;
}

/* Sums decide about integers and bools at their edges: only floats are compared. */
static bool tune_all_agree(const tune_case *c) {
    for (int32_t o = 0; o < c->program.output_count; o++) {
        const tg_output *output = &c->program.outputs[o];
        if (output->dtype == TG_F32 && !tune_agrees(c->got[o], c->wanted[o], tg_shape_count(output->shape))) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- timing */

/* A choice, loaded. *out NULL, with TG_OK: this device cannot have it. */
static tg_status tune_load(tune_case *c, int32_t choice, tg_executable **out) {
    const tg_schedule_entry entry = {c->candidates.key, c->candidates.items[choice]};
    const tg_schedules table = {&entry, 1};
    tg_device *device = c->run->device;
    *out = NULL;
    tg_webgpu_set_schedules(device, choice > 0 ? &table : NULL);
    tg_status status = tg_webgpu_executor.load(device, &c->program, c->slots, out);
    tg_webgpu_set_schedules(device, NULL);
    if (status == TG_OK && (choice == 0 || tg_webgpu_executor.tuned(*out) > 0)) return TG_OK;
    if (status == TG_OK) tg_webgpu_executor.unload(device, *out);
    *out = NULL;
    if (choice == 0 || status == TG_ERROR_MEMORY || tg_webgpu_executor.is_lost(device)) return status;
    tg_clear_error(c->ctx);
    return TG_OK;
}

static tg_status tune_time(tune_case *c, tg_executable *executable, double *least) {
    double seconds = 0.0;
    tg_status status = tg_webgpu_time(c->run->device, executable, c->repeats, &seconds);
    seconds /= c->repeats;
    if (status == TG_OK && (*least == 0.0 || seconds < *least)) *least = seconds;
    return status;
}

static int tune_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The usual schedule and this one in turn. *ratio: of the least times, or the median over the
 * pairs; the worse of the two. */
static tg_status tune_compare_times(tune_case *c, tg_executable *executable, int times, double *ratio) {
    double least = 0.0, usual = 0.0, ratios[TUNE_DUELS], warm = 0.0;
    tg_status status = tg_webgpu_time(c->run->device, executable, 1, &warm);
    int pairs = 0;
    while (pairs < times && status == TG_OK) {
        double one = 0.0, other = 0.0;
        status = tune_time(c, c->usual, &one);
        if (status == TG_OK) status = tune_time(c, executable, &other);
        if (status != TG_OK) return status;
        ratios[pairs++] = other / one;
        if (usual == 0.0 || one < usual) usual = one;
        if (least == 0.0 || other < least) least = other;
        if (ratios[0] > TUNE_HOPELESS) break;
    }
    if (status != TG_OK) return status;
    if (c->usual_seconds == 0.0 || usual < c->usual_seconds) c->usual_seconds = usual;
    *ratio = least / usual;
    qsort(ratios, (size_t)pairs, sizeof *ratios, tune_compare);
    if (ratios[pairs / 2] > *ratio) *ratio = ratios[pairs / 2];
    return TG_OK;
}

/* The results of one run of it, always from the same numbers, into `outputs`. */
static tg_status tune_results(tune_case *c, tg_executable *executable, void **outputs) {
    tg_status status = tune_fill(c, executable);
    return status == TG_OK ? tg_webgpu_executor.run(c->run->device, executable, c->inputs, outputs) : status;
}

/* ---------------------------------------------------------------- the search */

/* It seems to be the best: it is, if its results are correct and a second timing confirms it. */
static tg_status tune_promote(tune_case *c, int32_t choice, tg_executable *executable, double ratio) {
    double again = 0.0;
    tg_status status = tune_results(c, executable, c->got);
    if (status == TG_OK && !tune_all_agree(c)) {
        c->wrong++;
        return TG_OK;
    }
    if (status == TG_OK) status = tune_compare_times(c, executable, TUNE_LOOKS, &again);
    if (again > ratio) ratio = again;
    if (status != TG_OK || ratio >= c->ratio) return status;
    c->best = choice;
    c->ratio = ratio;
    return TG_OK;
}

/* Looks at one choice; it may become the best. */
static tg_status tune_try(tune_case *c, int32_t choice) {
    tg_executable *executable = NULL;
    double ratio = 0.0;
    if (c->seen[choice]) return TG_OK;
    c->seen[choice] = true;
    tg_status status = tune_load(c, choice, &executable);
    if (status != TG_OK || executable == NULL) return status;
    c->tried++;
    status = tune_compare_times(c, executable, TUNE_LOOKS, &ratio);
    if (status == TG_OK && ratio < c->ratio) status = tune_promote(c, choice, executable, ratio);
    tg_webgpu_executor.unload(c->run->device, executable);
    return status;
}

/* Without what rarely decides: those are tried around the best one. */
static tg_schedule tune_outline(tg_schedule schedule) {
    schedule.by_rows = schedule.unrolled = schedule.ways_first = schedule.parts = 0;
    return schedule;
}

/* Whether it is the first of its outline, which is the cheapest. */
static bool tune_is_first(const tune_case *c, int32_t choice) {
    const tg_schedule outline = tune_outline(c->candidates.items[choice]);
    for (int32_t i = 0; i < choice; i++) {
        const tg_schedule other = tune_outline(c->candidates.items[i]);
        if (tg_schedule_equal(&outline, &other)) return false;
    }
    return true;
}

static bool tune_has_time(const tune_case *c) { return tg_webgpu_now() < c->end; }

/* Schedules that differ from the best one in one field, until none of them is better. */
static tg_status tune_climb(tune_case *c) {
    tg_status status = TG_OK;
    for (int32_t i = 0; i < c->candidates.count && status == TG_OK && tune_has_time(c); i++) {
        const int32_t best = c->best;
        if (c->seen[i] || c->candidates.items[i].kind != c->candidates.items[best].kind) continue;
        if (tg_schedule_distance(&c->candidates.items[best], &c->candidates.items[i]) != 1) continue;
        status = tune_try(c, i);
        if (c->best != best) i = -1; /* around the new one */
    }
    return status;
}

/* What is known; what is near; what is cheap; and what is near the best of these. */
static tg_status tune_search(tune_case *c) {
    const tg_schedule *stored = tg_schedule_find(c->run->stored, c->candidates.key);
    tg_status status = TG_OK;
    int32_t count = c->candidates.count, first = 0;
    c->ratio = 1.0;
    c->seen[0] = true;
    for (int32_t i = 0; stored != NULL && i < count && status == TG_OK; i++)
        if (tg_schedule_equal(stored, &c->candidates.items[i])) status = tune_try(c, i);
    if (status == TG_OK) status = tune_climb(c);
    for (int32_t i = 0; i < count && first < TUNE_FIRST && status == TG_OK && tune_has_time(c); i++) {
        if (!tune_is_first(c, i)) continue;
        status = tune_try(c, i);
        first++;
    }
    return status == TG_OK ? tune_climb(c) : status;
}

/* The best one against the usual one, once more and longer. */
static tg_status tune_confirm(tune_case *c) {
    tg_executable *executable = NULL;
    if (c->best == 0) return TG_OK;
    tg_status status = tune_load(c, c->best, &executable);
    if (status == TG_OK && executable != NULL) status = tune_compare_times(c, executable, TUNE_DUELS, &c->ratio);
    if (executable != NULL) tg_webgpu_executor.unload(c->run->device, executable);
    if (status == TG_OK && (executable == NULL || c->ratio * TUNE_MARGIN > 1.0)) c->best = 0;
    return status;
}

/* ---------------------------------------------------------------- one launch, all launches */

static tg_status tune_note(tune_case *c) {
    tune_run *run = c->run;
    char own[TG_SCHEDULE_TEXT], best[TG_SCHEDULE_TEXT];
    const tg_schedule *schedule = &c->candidates.items[c->best];
    bool room = false;
    TG_LIST_ROOM(run, found, room);
    const char *key = tg_arena_text(&run->arena, c->candidates.key);
    if (!room || key == NULL) return TG_ERROR_MEMORY;
    run->found.items[run->found.count++] = (tg_schedule_entry){key, c->best > 0 ? *schedule : (tg_schedule){.kind = TG_SCHEDULE_NONE}};
    const tg_tune_result result = {
        .what = key,
        .usual = tg_schedule_print(&c->candidates.items[0], own, sizeof own),
        .best = tg_schedule_print(schedule, best, sizeof best),
        .usual_us = c->usual_seconds * 1e6,
        .best_us = c->usual_seconds * 1e6 * (c->best > 0 ? c->ratio : 1.0),
        .choices = c->candidates.count,
        .tried = c->tried,
        .wrong = c->wrong,
        .faster = c->best > 0,
    };
    if (run->options->report != NULL) run->options->report(run->options->user, &result);
    return TG_OK;
}

static tg_status tune_measure(tune_case *c) {
    double once = 0.0;
    tg_status status = tune_load(c, 0, &c->usual);
    if (status == TG_OK) status = tune_results(c, c->usual, c->wanted);
    if (status == TG_OK) status = tg_webgpu_time(c->run->device, c->usual, 1, &once);
    if (status != TG_OK) return status;
    c->repeats = once * TUNE_REPEATS > TUNE_SAMPLE ? (int)(TUNE_SAMPLE / once) + 1 : TUNE_REPEATS;
    status = tune_time(c, c->usual, &c->usual_seconds);
    if (status == TG_OK) status = tune_search(c);
    return status == TG_OK ? tune_confirm(c) : status;
}

static bool tune_is_known(const tune_run *run, const char *key) {
    for (int64_t i = 0; i < run->found.count; i++)
        if (strcmp(run->found.items[i].key, key) == 0) return true;
    return false;
}

static tg_status tune_launch(tune_run *run, int32_t launch) {
    tune_case c = {.run = run, .ctx = run->ctx};
    tg_arena_init(&c.arena, run->ctx);
    tg_status status = tg_wgsl_find_candidates(run->program, launch, tg_webgpu_executor.model(run->device), &c.arena, &c.candidates);
    if (status == TG_OK && c.candidates.count > 1 && !tune_is_known(run, c.candidates.key)) {
        const int64_t now = tg_webgpu_now();
        c.end = now + (run->end - now) / (run->left > 1 ? run->left : 1);
        status = tune_make_program(&c, launch);
        if (status == TG_OK) status = tune_make_tables(&c);
        if (status == TG_OK) status = tune_fill_inputs(&c);
        if (status == TG_OK) status = tune_measure(&c);
        if (status == TG_OK) status = tune_note(&c);
        if (c.usual != NULL) tg_webgpu_executor.unload(run->device, c.usual);
    }
    run->left--;
    tg_arena_free(&c.arena);
    return status;
}

static tg_status tune_make_states(tune_run *run) {
    tg_status status = TG_OK;
    for (int32_t s = 0; s < run->program->state_count && status == TG_OK; s++) {
        const tg_state_info *state = &run->program->states[s];
        status = tg_webgpu_executor.make_state(run->device, s, state->name, state->dtype, tg_shape_count(state->shape));
    }
    return status;
}

static tg_status tune_all(tune_run *run) {
    const double seconds = tg_value_or(run->options->seconds, TUNE_SECONDS);
    run->end = tg_webgpu_now() + (int64_t)(seconds * 1e9);
    run->left = run->program->launch_count;
    tg_status status = tune_make_states(run);
    for (int32_t l = 0; l < run->program->launch_count && status == TG_OK; l++) status = tune_launch(run, l);
    if (status != TG_OK || run->options->dry_run || run->found.count == 0) return status;
    return tg_tuning_store(run->ctx, tg_webgpu_tuning_name(run->device), run->found.items, (int32_t)run->found.count);
}

static tg_status tune_check(tg_model *model, const tg_tune_options *options) {
    char path[TG_TUNING_PATH];
    const double seconds = tg_value_or(options->seconds, TUNE_SECONDS);
    if (!(seconds > 0.0 && seconds <= 1e6))
        return tg_fail(model->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "tune: seconds must be over 0, up to 1000000, got %g", seconds);
    if (model->family->executor != &tg_webgpu_executor)
        return tg_fail(model->ctx, TG_ERROR_DEVICE, TG_SITE_NONE, "tune: the model is on %s; there is nothing to tune but WebGPU",
                       model->family->executor->describe(model->family->device));
    if (!options->dry_run && !tg_tuning_path(path))
        return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "tune: nowhere to store it: TENSORGRAD_TUNING is off, or no home folder is known");
    if (!options->dry_run && tg_webgpu_tuning_name(model->family->device)[0] == '\0')
        return tg_fail(model->ctx, TG_ERROR_STATE, TG_SITE_NONE,
                       "tune: the device does not say which adapter it is of: nothing can be stored");
    return TG_OK;
}

tg_status tg_model_tune_at(tg_site site, tg_model *model, const tg_tune_options *options) {
    const tg_tune_options none = {.seconds = 0.0};
    if (model == NULL) return TG_ERROR_ARGUMENT;
    tg_model_begin(model->ctx, site);
    if (options == NULL) options = &none;
    tg_status status = tune_check(model, options);
    if (status != TG_OK) return status;
    const tg_family *family = model->family;
    model = tg_sizes_last(model);
    tune_run run = {.ctx = model->ctx, .options = options, .stored = family->executor->model(family->device)->schedules};
    run.program = model->variants[model->training ? TG_VARIANT_STEP : TG_VARIANT_RUN]->program;
    tg_arena_init(&run.arena, model->ctx);
    tg_open_options own = family->open;
    own.alone = true; /* what is tried out may hang a device: not one that models are on */
    status = family->executor->open(model->ctx, &own, &run.device);
    if (status == TG_OK) {
        tg_webgpu_set_schedules(run.device, NULL);
        status = tune_all(&run);
    }
    if (run.device != NULL) family->executor->close(run.device);
    if (run.found.items != NULL) tg_release(model->ctx, run.found.items, (size_t)run.found.capacity * sizeof *run.found.items);
    tg_arena_free(&run.arena);
    return status;
}

#undef TUNE_SECONDS
#undef TUNE_MARGIN
#undef TUNE_HOPELESS
#undef TUNE_SAMPLE
#undef TUNE_REPEATS
#undef TUNE_LOOKS
#undef TUNE_DUELS
#undef TUNE_FIRST
#undef TUNE_ERROR
#undef TUNE_OUTLIER
#undef TUNE_OUTLIERS
