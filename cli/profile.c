/* profile: `bench EXAMPLE --profile`: what each kernel of a step takes, the slowest first. */
#include "cli.h"

#include <stdlib.h>

static int slower_first(const void *a, const void *b) {
    const tg_kernel_time *x = a, *y = b;
    return (x->milliseconds < y->milliseconds) - (x->milliseconds > y->milliseconds);
}

static void print_json(const tg_kernel_time *times, int count) {
    for (int i = 0; i < count; i++) {
        printf("{\"kernel\": ");
        cli_json_text(stdout, times[i].name);
        printf(", \"loops\": ");
        cli_json_text(stdout, times[i].loops);
        printf(", \"ms\": %.6g, \"flops\": %.17g}\n", times[i].milliseconds, times[i].flops);
    }
}

static void print_table(const tg_kernel_time *times, int count) {
    double all = 0, contractions = 0, flops = 0;
    for (int i = 0; i < count; i++) {
        all += times[i].milliseconds;
        flops += times[i].flops;
        if (times[i].flops > 0) contractions += times[i].milliseconds;
    }
    printf("%9s %6s %9s  %-28s %s\n", "us", "share", "GFLOP/s", "loops", "kernel");
    for (int i = 0; i < count; i++) {
        char rate[32] = "-";
        if (times[i].flops > 0 && times[i].milliseconds > 0)
            snprintf(rate, sizeof rate, "%.1f", times[i].flops * 1e-6 / times[i].milliseconds);
        printf("%9.1f %5.1f%% %9s  %-28s %s\n", times[i].milliseconds * 1e3, all > 0 ? 100 * times[i].milliseconds / all : 0, rate,
               times[i].loops, times[i].name);
    }
    printf("the least time of each kernel, %.1f us in all; contractions %.1f us, %.1f GFLOP/s\n", all * 1e3, contractions * 1e3,
           contractions > 0 ? flops * 1e-6 / contractions : 0);
}

static int run_steps(cli_session *session, const cli_options *options, int64_t steps) {
    for (int64_t step = 0; step < steps; step++) {
        float loss = 0;
        double milliseconds = 0;
        if (cli_session_step(session, options->seed, step + 1, &loss, &milliseconds) != TG_OK)
            return cli_context_error(session->ctx, session->example->name, CLI_FAILED);
    }
    return CLI_DONE;
}

static int profile_session(cli_session *session, const cli_options *options, const tg_model_info *info) {
    tg_kernel_time *times = calloc((size_t)info->kernels + 1, sizeof *times);
    if (!times) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    int code = CLI_DONE;
    if (tg_model_time_kernels(session->model, times, info->kernels) != TG_OK)
        code = cli_context_error(session->ctx, session->example->name, CLI_USAGE);
    if (code == CLI_DONE)
        code = run_steps(session, options, options->steps > 0 ? options->steps : info->contraction_flops > 1e8 ? 300 : 10000);
    tg_model_time_kernels(session->model, NULL, 0);
    qsort(times, (size_t)info->kernels, sizeof *times, slower_first);
    if (code == CLI_DONE && options->json) print_json(times, info->kernels);
    else if (code == CLI_DONE) print_table(times, info->kernels);
    free(times);
    return code;
}

int cli_profile(const cli_options *options) {
    const tg_example *example = options->word_count == 1 ? tg_example_find(options->words[0]) : NULL;
    if (!example) {
        cli_say("bench --profile takes one example");
        return CLI_USAGE;
    }
    cli_options on = *options;
    if (on.device == TG_DEVICE_AUTO) on.device = TG_DEVICE_CPU;
    cli_session session;
    tg_model_info info;
    int code = cli_session_open(&session, example, &on, true);
    if (code == CLI_DONE && tg_model_get_info(session.model, &info) != TG_OK)
        code = cli_context_error(session.ctx, example->name, CLI_FAILED);
    if (code == CLI_DONE) code = profile_session(&session, options, &info);
    cli_session_close(&session);
    return code;
}
