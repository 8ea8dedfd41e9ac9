/* session: an example compiled for training, with its batch arrays. */
#include "cli.h"

#include "ir/dtype.h"

#include <stdlib.h>
#include <string.h>

const tg_example *cli_find_example(const char *word, tg_scale *room) {
    char problem[512];
    if (!tg_scale_is(word)) {
        const tg_example *example = tg_example_find(word);
        if (!example) (void)cli_no_example(word);
        return example;
    }
    if (tg_scale_parse(word, room, problem, sizeof problem)) return &room->example;
    cli_say("%s: %s", word, problem);
    return NULL;
}

static bool make_arrays(cli_session *session) {
    const tg_example *example = session->example;
    for (int i = 0; i < example->input_count; i++) {
        const tg_example_input *input = &example->inputs[i];
        tg_shape shape = input->shape;
        shape.dim[0] = session->batch;
        int64_t count = tg_shape_count(shape);
        if (count < 1) return false;
        session->arrays[i] = calloc((size_t)count, 4);
        if (!session->arrays[i]) return false;
        session->feeds[i] = tg_feed_make_(input->name, input->dtype, session->arrays[i], count);
    }
    return true;
}

/* The schedule of the same shape whose peak is `peak`. */
static tg_lr scaled_to(tg_lr schedule, double peak) {
    const double factor = peak / schedule.peak;
    schedule.peak = peak;
    schedule.final *= factor;
    schedule.initial *= factor;
    schedule.after_peak *= factor;
    schedule.after_final *= factor;
    for (int i = 0; i < TG_LR_WARMUPS - 1; i++) schedule.more_peaks[i] *= factor;
    return schedule;
}

int cli_session_open(cli_session *session, const tg_example *example, const cli_options *options, bool with_data) {
    memset(session, 0, sizeof *session);
    session->example = example;
    session->batch = options->batch ? options->batch : example->batch;
    session->ctx = cli_context();
    if (!session->ctx || !make_arrays(session)) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    const char *problem = with_data && example->load ? example->load(options->data) : NULL;
    if (problem) {
        cli_say("%s: %s", example->name, problem);
        return CLI_USAGE;
    }
    session->optimizer = example->optimizer();
    if (options->lr > 0) session->optimizer.lr = scaled_to(session->optimizer.lr, options->lr);
    tg_compile_options compile = {0};
    if (options->skip_non_finite) session->optimizer.skip_non_finite = true;
    compile.optimizer = session->optimizer;
    compile.seed = options->seed;
    compile.device = options->device;
    compile.adapter = options->adapter;
    compile.check_finite = options->check_finite;
    compile.threads = (int)options->threads;
    compile.precision = options->precision;
    const double start = cli_seconds();
    session->model = tg_compile(session->ctx, example->build, tg_example_user(example, &session->batch, &session->scale), &compile);
    session->compile_seconds = cli_seconds() - start;
    if (session->model) return CLI_DONE;
    return cli_context_error(session->ctx, example->name, tg_error(session->ctx) == TG_ERROR_DEVICE ? CLI_USAGE : CLI_FAILED);
}

void cli_session_close(cli_session *session) {
    tg_model_destroy(session->model);
    tg_context_destroy(session->ctx);
    for (int i = 0; i < TG_EXAMPLE_MAX_INPUTS; i++) free(session->arrays[i]);
    memset(session, 0, sizeof *session);
}

static size_t batch_bytes(const cli_session *session, int i) {
    return (size_t)session->feeds[i].count * tg_dtype_bytes(session->feeds[i].dtype);
}

/* Batch t of the example is where step t, counted from 1, reads it: see TG_BATCH_SEQUENTIAL. */
static void fill_rows(const cli_session *session, uint64_t seed, int64_t first, int64_t count, void *const *rows) {
    void *at[TG_EXAMPLE_MAX_INPUTS];
    for (int64_t t = first; t < first + count; t++) {
        for (int i = 0; i < session->example->input_count; i++)
            at[i] = (char *)rows[i] + (size_t)((t - 1) % count) * batch_bytes(session, i);
        tg_example_fill(session->example, seed, t, session->batch, at);
    }
}

tg_dataset *cli_session_dataset(const cli_session *session, uint64_t seed, int64_t first, int64_t count) {
    const tg_example *example = session->example;
    void *rows[TG_EXAMPLE_MAX_INPUTS] = {NULL};
    tg_feed arrays[TG_EXAMPLE_MAX_INPUTS];
    tg_dataset *dataset = NULL;
    bool room = true;
    for (int i = 0; i < example->input_count; i++) {
        arrays[i] = session->feeds[i];
        arrays[i].count *= count;
        arrays[i].data = rows[i] = calloc((size_t)count, batch_bytes(session, i));
        room = room && rows[i] != NULL;
    }
    if (room) {
        fill_rows(session, seed, first, count, rows);
        dataset = tg_dataset_create(session->model, arrays, example->input_count, count * session->batch);
        if (!dataset) (void)cli_context_error(session->ctx, example->name, CLI_FAILED);
    } else {
        cli_say("out of memory");
    }
    for (int i = 0; i < example->input_count; i++) free(rows[i]);
    return dataset;
}

int64_t cli_session_batches(const cli_session *session, int64_t wanted) {
    size_t bytes = 1;
    for (int i = 0; i < session->example->input_count; i++) bytes += batch_bytes(session, i);
    const int64_t most = (int64_t)(CLI_DATASET_BYTES / bytes);
    return wanted < most ? wanted : most > 1 ? most : 1;
}

tg_status cli_session_step(cli_session *session, uint64_t seed, int64_t t, float *loss, double *milliseconds) {
    tg_example_fill(session->example, seed, t, session->batch, session->arrays);
    double start = cli_seconds();
    tg_status status = tg_step(session->model, session->feeds, session->example->input_count, loss);
    *milliseconds = 1e3 * (cli_seconds() - start);
    return status;
}
