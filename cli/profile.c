/* profile: `bench WORKLOAD --profile`: what each kernel of a step takes, or on a GPU each launch,
 * the slowest first, next to the best rates that plain products, copies and sums reach on the same
 * device; and the same as a trace. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* A row of the profile: what was timed, and its place in the step. */
typedef struct profile_row {
    tg_kernel_time time;
    int launch;
} profile_row;

/* The best that was measured on the device. */
typedef struct profile_best {
    double flops_per_ms, bytes_per_ms;
} profile_best;

static int slower_first(const void *a, const void *b) {
    const profile_row *x = a, *y = b;
    if (x->time.milliseconds < y->time.milliseconds || x->time.milliseconds > y->time.milliseconds)
        return x->time.milliseconds < y->time.milliseconds ? 1 : -1;
    return (x->launch > y->launch) - (x->launch < y->launch);
}

static double total_ms(const profile_row *rows, int count) {
    double all = 0;
    for (int i = 0; i < count; i++) all += rows[i].time.milliseconds;
    return all;
}

/* ---- what the device can do */

/* A kernel of a microsecond or less tells more of the clock than of the device. */
static void note_best(const tg_kernel_time *time, profile_best *best) {
    const double ms = time->milliseconds;
    if (ms < 0.002) return;
    if (time->flops / ms > best->flops_per_ms) best->flops_per_ms = time->flops / ms;
    if (time->bytes / ms > best->bytes_per_ms) best->bytes_per_ms = time->bytes / ms;
}

/* A state becomes its own successor: each element is read once and written once. */
static tg_tensor build_copy(tg_graph *g, void *user) {
    const int64_t count = *(const int64_t *)user;
    tg_tensor a = tg_param(g, "a", TG_SHAPE(count), .frozen = TG_YES), b = tg_state(g, "b", TG_SHAPE(count), TG_F32, 0);
    tg_writeback(b, tg_mul(a, 2));
    return tg_sum_all(tg_narrow(b, 0, 0, 1));
}

/* Each element is read once. */
static tg_tensor build_rows(tg_graph *g, void *user) {
    const int64_t count = *(const int64_t *)user, rows = 4096;
    tg_tensor a = tg_param(g, "a", TG_SHAPE(rows, count / rows), .frozen = TG_YES), b = tg_state(g, "b", TG_SHAPE(rows), TG_F32, 0);
    tg_writeback(b, tg_sum(a, TG_AXES(1)));
    return tg_sum_all(tg_narrow(b, 0, 0, 1));
}

/* The time of the longest kernel or launch of a model without inputs; 0: not known. */
static double time_longest(tg_context *ctx, const cli_options *options, tg_build_fn build, void *user, profile_best *best) {
    tg_compile_options compile = {.device = options->device,
                                  .adapter = options->adapter,
                                  .seed = 1,
                                  .threads = (int)options->threads,
                                  .precision = options->precision};
    enum { MOST = 16 };
    tg_kernel_time times[MOST] = {{0}};
    tg_model *model = tg_compile(ctx, build, user, &compile);
    double longest = 0;
    if (model && tg_model_time_kernels(model, times, MOST) == TG_OK)
        for (int i = 0; i < 5; i++)
            if (tg_step(model, NULL, 0, NULL) != TG_OK) break;
    for (int i = 0; i < MOST; i++) {
        if (times[i].milliseconds > longest) longest = times[i].milliseconds;
        note_best(&times[i], best);
    }
    tg_model_destroy(model);
    tg_clear_error(ctx);
    return longest;
}

/* Small ones first: the large ones only where they take less than a tenth of a second. */
static profile_best measure_best(const cli_options *options) {
    profile_best best = {0, 0};
    tg_context *ctx = tg_context_create(NULL);
    for (int64_t n = 512; ctx && n <= 4096; n *= 2) {
        cli_product product = {n, n, n};
        if (time_longest(ctx, options, cli_build_product, &product, &best) > 12) break;
    }
    for (int64_t count = INT64_C(1) << 20; ctx && count <= INT64_C(1) << 26; count *= 8)
        if (time_longest(ctx, options, build_copy, &count, &best) > 12 || time_longest(ctx, options, build_rows, &count, &best) > 12) break;
    tg_context_destroy(ctx);
    return best;
}

/* ---- printing */

static double per_ms(double amount, double ms) { return ms > 0 ? amount / ms : 0; }

static void print_json(const profile_row *rows, int count, const profile_best *best) {
    const double all = total_ms(rows, count);
    for (int i = 0; i < count; i++) {
        const tg_kernel_time *time = &rows[i].time;
        printf("{\"launch\": %d, \"kernel\": ", rows[i].launch);
        cli_json_text(stdout, time->name);
        printf(", \"loops\": ");
        cli_json_text(stdout, time->loops);
        printf(", \"kernels\": %d, \"workgroups\": %lld, \"ms\": %.6g, \"share\": %.4g, \"flops\": %.17g, \"bytes\": %.17g", time->kernels,
               (long long)time->workgroups, time->milliseconds, per_ms(time->milliseconds, all), time->flops, time->bytes);
        printf(", \"tflops\": %.4g, \"gbps\": %.4g, \"best_tflops\": %.4g, \"best_gbps\": %.4g}\n",
               1e-9 * per_ms(time->flops, time->milliseconds), 1e-6 * per_ms(time->bytes, time->milliseconds), 1e-9 * best->flops_per_ms,
               1e-6 * best->bytes_per_ms);
    }
}

/* "12.3 (40%)": a rate, and what it is of the best. */
static const char *rate_text(char *text, size_t size, double rate, double best, double unit) {
    if (rate <= 0) snprintf(text, size, "-");
    else if (best <= 0) snprintf(text, size, "%.3g", rate * unit);
    else snprintf(text, size, "%.3g (%.0f%%)", rate * unit, 100 * rate / best);
    return text;
}

static void print_table(const profile_row *rows, int count, const profile_best *best) {
    const double all = total_ms(rows, count);
    double contractions = 0, flops = 0, bytes = 0;
    char work[32], moved[32];
    printf("%6s %10s %6s %14s %14s %4s %7s  %-28s %s\n", "launch", "us", "share", "TFLOP/s", "GB/s", "k", "groups", "loops", "kernels");
    for (int i = 0; i < count; i++) {
        const tg_kernel_time *time = &rows[i].time;
        const double ms = time->milliseconds;
        printf("%6d %10.1f %5.1f%% %14s %14s %4d %7lld  %-28s %s\n", rows[i].launch, ms * 1e3, 100 * per_ms(ms, all),
               rate_text(work, sizeof work, per_ms(time->flops, ms), best->flops_per_ms, 1e-9),
               rate_text(moved, sizeof moved, per_ms(time->bytes, ms), best->bytes_per_ms, 1e-6), time->kernels,
               (long long)time->workgroups, time->loops, time->name);
        flops += time->flops;
        bytes += time->bytes;
        if (time->flops > 0) contractions += ms;
    }
    printf("%.1f us in all, %.3g TFLOP/s and %.3g GB/s; launches with contractions %.1f us, %.3g TFLOP/s\n", all * 1e3,
           1e-9 * per_ms(flops, all), 1e-6 * per_ms(bytes, all), contractions * 1e3, 1e-9 * per_ms(flops, contractions));
    printf("best measured on this device, of plain products, copies, sums and the rows above: %.3g TFLOP/s, %.3g GB/s\n",
           1e-9 * best->flops_per_ms, 1e-6 * best->bytes_per_ms);
}

/* The format of chrome://tracing and Perfetto: one complete event for each row, one after another,
 * in microseconds. */
static int write_trace(const char *path, const char *title, const profile_row *rows, int count) {
    FILE *file = fopen(path, "w");
    double at = 0;
    if (!file) {
        cli_say("cannot write %s", path);
        return CLI_FAILED;
    }
    fprintf(
        file,
        "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"args\": {\"name\": ");
    cli_json_text(file, title);
    fprintf(file, "}}");
    for (int i = 0; i < count; i++) {
        const tg_kernel_time *time = &rows[i].time;
        fprintf(file, ",\n{\"name\": ");
        cli_json_text(file, time->name);
        fprintf(file, ", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"loops\": ",
                time->flops > 0 ? "contraction" : "other", at, time->milliseconds * 1e3);
        cli_json_text(file, time->loops);
        fprintf(file, ", \"launch\": %d, \"kernels\": %d, \"workgroups\": %lld, \"flops\": %.17g, \"bytes\": %.17g}}", rows[i].launch,
                time->kernels, (long long)time->workgroups, time->flops, time->bytes);
        at += time->milliseconds * 1e3;
    }
    fprintf(file, "\n]}\n");
    const bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed) return CLI_DONE;
    cli_say("cannot write %s", path);
    return CLI_FAILED;
}

/* ---- measuring */

static int run_steps(cli_session *session, const cli_options *options, int64_t steps) {
    for (int64_t step = 0; step < steps; step++) {
        float loss = 0;
        double milliseconds = 0;
        if (cli_session_step(session, options->seed, step + 1, &loss, &milliseconds) != TG_OK)
            return cli_context_error(session->ctx, session->example->name, CLI_FAILED);
    }
    return CLI_DONE;
}

/* On the CPU the least of many steps, on a GPU the median of few. */
static int64_t steps_wanted(const cli_options *options, const tg_model_info *info) {
    if (options->steps > 0) return options->steps;
    if (strncmp(info->device, "cpu", 3) != 0) return 20;
    return info->contraction_flops > 1e10 ? 5 : info->contraction_flops > 1e8 ? 300 : 10000;
}

static int report(const cli_session *session, const cli_options *options, profile_row *rows, int count) {
    int code = options->trace ? write_trace(options->trace, session->example->name, rows, count) : CLI_DONE;
    if (code != CLI_DONE) return code;
    profile_best best = measure_best(options);
    for (int i = 0; i < count; i++) note_best(&rows[i].time, &best);
    qsort(rows, (size_t)count, sizeof *rows, slower_first);
    (options->json ? print_json : print_table)(rows, count, &best);
    return CLI_DONE;
}

static int profile_session(cli_session *session, const cli_options *options, const tg_model_info *info) {
    tg_kernel_time *times = calloc((size_t)info->kernels + 1, sizeof *times);
    profile_row *rows = calloc((size_t)info->kernels + 1, sizeof *rows);
    int code = CLI_DONE, count = 0;
    if (!times || !rows) {
        cli_say("out of memory");
        code = CLI_FAILED;
    }
    if (code == CLI_DONE) code = run_steps(session, options, 2); /* the first are slower */
    if (code == CLI_DONE && tg_model_time_kernels(session->model, times, info->kernels) != TG_OK)
        code = cli_context_error(session->ctx, session->example->name, CLI_USAGE);
    if (code == CLI_DONE) code = run_steps(session, options, steps_wanted(options, info));
    for (; code == CLI_DONE && times[count].name; count++) rows[count] = (profile_row){times[count], count};
    if (code == CLI_DONE) code = report(session, options, rows, count);
    tg_model_time_kernels(session->model, NULL, 0);
    free(rows);
    free(times);
    return code;
}

int cli_profile(const cli_options *options) {
    tg_scale scale;
    if (options->word_count != 1 || cli_is_product(options->words[0])) {
        cli_say("bench --profile takes one example");
        return CLI_USAGE;
    }
    const tg_example *example = cli_find_example(options->words[0], &scale);
    if (!example) return CLI_USAGE;
    cli_session session;
    tg_model_info info;
    int code = cli_session_open(&session, example, options, true);
    if (code == CLI_DONE && tg_model_get_info(session.model, &info) != TG_OK)
        code = cli_context_error(session.ctx, example->name, CLI_FAILED);
    if (code == CLI_DONE) code = profile_session(&session, options, &info);
    cli_session_close(&session);
    return code;
}
