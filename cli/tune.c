/* tune: finds the best layout of the contractions and launches of workloads on a WebGPU adapter,
 * and keeps it. */
#include "cli.h"

#include <string.h>

typedef struct tune_output {
    const cli_options *options;
    const char *workload;
    int count; /* of this workload */
} tune_output;

static void print_json(const tune_output *out, const tg_tune_result *result) {
    printf("{\"workload\": ");
    cli_json_text(stdout, out->workload);
    printf(", \"what\": ");
    cli_json_text(stdout, result->what);
    printf(", \"usual\": ");
    cli_json_text(stdout, result->usual);
    printf(", \"best\": ");
    cli_json_text(stdout, result->best);
    printf(", \"usual_us\": %.6g, \"best_us\": %.6g, \"gain\": %.4g, \"choices\": %d, \"tried\": %d, \"wrong\": %d, \"faster\": %s}\n",
           result->usual_us, result->best_us, result->usual_us / result->best_us, result->choices, result->tried, result->wrong,
           result->faster ? "true" : "false");
}

static void report(void *user, const tg_tune_result *result) {
    tune_output *out = user;
    out->count++;
    if (out->options->json) print_json(out, result);
    else {
        printf("%-50s %10.1f %10.1f %6.2f  %d of %d tried%s\n", result->what, result->usual_us, result->best_us,
               result->usual_us / result->best_us, result->tried, result->choices, result->wrong > 0 ? ", some of them WRONG" : "");
        printf("    usual  %s\n", result->usual);
        if (result->faster) printf("    best   %s\n", result->best);
    }
    fflush(stdout);
}

static void print_head(const char *workload, const char *device) {
    printf("%-50s %10s %10s %6s\n", "what", "usual, us", "best, us", "gain");
    printf("%s on %s\n", workload, device);
}

static int tune_model(tg_context *ctx, tg_model *model, const char *workload, const cli_options *options) {
    tune_output out = {options, workload, 0};
    const tg_tune_options tune = {.seconds = options->seconds, .dry_run = options->dry_run, .report = report, .user = &out};
    tg_model_info info;
    if (!model || tg_model_get_info(model, &info) != TG_OK)
        return cli_context_error(ctx, workload, tg_error(ctx) == TG_ERROR_DEVICE ? CLI_USAGE : CLI_FAILED);
    if (!options->json) print_head(workload, info.device);
    if (tg_model_tune(model, &tune) != TG_OK)
        return cli_context_error(ctx, workload,
                                 tg_error(ctx) == TG_ERROR_STATE || tg_error(ctx) == TG_ERROR_FORMAT ? CLI_USAGE : CLI_FAILED);
    if (!options->json && out.count == 0) printf("    nothing here has a choice\n");
    return CLI_DONE;
}

static int tune_product(const char *word, cli_product *product, const cli_options *options) {
    tg_context *ctx = cli_context();
    if (!ctx) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    const tg_compile_options compile = {.device = TG_DEVICE_WEBGPU, .adapter = options->adapter, .seed = CLI_DEFAULT_SEED};
    tg_model *model = tg_compile(ctx, cli_build_product, product, &compile);
    int code = tune_model(ctx, model, word, options);
    tg_model_destroy(model);
    tg_context_destroy(ctx);
    return code;
}

static int tune_example(const tg_example *example, const cli_options *options) {
    cli_session session;
    int code = cli_session_open(&session, example, options, false);
    if (code == CLI_DONE) code = tune_model(session.ctx, session.model, example->name, options);
    cli_session_close(&session);
    return code;
}

int command_tune(const cli_options *given) {
    cli_options options = *given;
    cli_product products[CLI_MAX_WORDS];
    const tg_example *examples[CLI_MAX_WORDS];
    tg_scale scales[CLI_MAX_WORDS];
    int code = CLI_DONE;
    options.device = TG_DEVICE_WEBGPU;
    if (options.word_count == 0) {
        cli_say("tune needs a workload: an example, a model of any size, matmul:N or matmul:MxNxK");
        return CLI_USAGE;
    }
    for (int i = 0; i < options.word_count; i++) {
        examples[i] = NULL;
        if (cli_is_product(options.words[i])) code = cli_parse_product(options.words[i], false, &products[i]);
        else if (!(examples[i] = cli_find_example(options.words[i], &scales[i]))) code = CLI_USAGE;
        if (code != CLI_DONE) return code;
    }
    for (int i = 0; i < options.word_count && code == CLI_DONE; i++)
        code = examples[i] ? tune_example(examples[i], &options) : tune_product(options.words[i], &products[i], &options);
    return code;
}
