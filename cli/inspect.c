/* inspect: the compiled training step of an example as numbers and text, or the tensors of a
 * checkpoint. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef struct inspect_text {
    const char *key;
    tg_text what;
    bool wanted;
} inspect_text;

static void print_shape(tg_shape shape) {
    printf("[");
    for (int axis = 0; axis < shape.rank; axis++) printf("%s%lld", axis ? ", " : "", (long long)shape.dim[axis]);
    printf("]");
}

static void print_numbers(const cli_session *session, const tg_model_info *info) {
    printf("%s: %s\n", session->example->name, session->example->summary);
    printf("  parameters       %lld\n", (long long)info->parameters);
    printf("  nodes            %d\n", info->nodes);
    printf("  kernels          %d\n", info->kernels);
    printf("  dispatches       %d\n", info->dispatches);
    printf("  program bytes    %lld\n", (long long)info->program_bytes);
    printf("  peak bytes       %lld\n", (long long)info->peak_bytes);
    printf("  workspace bytes  %lld\n", (long long)info->workspace_bytes);
    printf("  contractions     %.6g Mflop a step\n", info->contraction_flops * 1e-6);
    printf("  device           %s\n", info->device);
    for (int i = 0; i < session->example->input_count; i++) {
        printf("  input %-24s ", session->example->inputs[i].name);
        tg_shape shape = session->example->inputs[i].shape;
        shape.dim[0] = session->batch;
        print_shape(shape);
        printf("\n");
    }
    for (int i = 0; i < tg_model_param_count(session->model); i++) {
        const char *name = tg_model_param_name(session->model, i);
        tg_shape shape = TG_SCALAR;
        tg_model_param_shape(session->model, name, &shape);
        printf("  param %-24s ", name);
        print_shape(shape);
        printf("\n");
    }
}

static void print_json_head(const cli_session *session, const tg_model_info *info) {
    printf("{\"example\": ");
    cli_json_text(stdout, session->example->name);
    printf(", \"parameters\": %lld, \"nodes\": %d, \"kernels\": %d, \"dispatches\": %d, \"program_bytes\": %lld, \"peak_bytes\": %lld"
           ", \"workspace_bytes\": %lld, \"contraction_flops\": %.17g, \"device\": ",
           (long long)info->parameters, info->nodes, info->kernels, info->dispatches, (long long)info->program_bytes,
           (long long)info->peak_bytes, (long long)info->workspace_bytes, info->contraction_flops);
    cli_json_text(stdout, info->device);
    printf(", \"params\": {");
    for (int i = 0; i < tg_model_param_count(session->model); i++) {
        const char *name = tg_model_param_name(session->model, i);
        tg_shape shape = TG_SCALAR;
        tg_model_param_shape(session->model, name, &shape);
        printf("%s", i ? ", " : "");
        cli_json_text(stdout, name);
        printf(": ");
        print_shape(shape);
    }
    printf("}");
}

static int inspect_example(const tg_example *example, const cli_options *options, const inspect_text *texts, int text_count) {
    cli_session session;
    int code = cli_session_open(&session, example, options, false);
    tg_model_info info;
    if (code == CLI_DONE && tg_model_get_info(session.model, &info) != TG_OK)
        code = cli_context_error(session.ctx, example->name, CLI_FAILED);
    if (code != CLI_DONE) {
        cli_session_close(&session);
        return code;
    }
    bool any = false;
    for (int i = 0; i < text_count; i++) any = any || texts[i].wanted;
    if (options->json) print_json_head(&session, &info);
    else if (!any) print_numbers(&session, &info);
    for (int i = 0; i < text_count && code == CLI_DONE; i++) {
        if (!texts[i].wanted) continue;
        const char *text = tg_model_text(session.model, texts[i].what);
        if (!text) {
            code = cli_context_error(session.ctx, example->name, CLI_FAILED);
        } else if (options->json) {
            printf(", \"%s\": ", texts[i].key);
            cli_json_text(stdout, text);
        } else {
            fputs(text, stdout);
        }
    }
    if (options->json) printf("}\n");
    cli_session_close(&session);
    return code;
}

int command_inspect(const cli_options *options) {
    const inspect_text texts[] = {
        {"ir", TG_TEXT_IR, options->ir},       {"kernels", TG_TEXT_KERNELS, options->kernels},
        {"plan", TG_TEXT_PLAN, options->plan}, {"dot", TG_TEXT_DOT, options->dot},
        {"c", TG_TEXT_C, options->c},          {"wgsl", TG_TEXT_WGSL, options->wgsl},
    };
    const int text_count = (int)(sizeof texts / sizeof texts[0]);
    if (options->word_count != 1) {
        cli_say("inspect takes one example or checkpoint file, got %d", options->word_count);
        return CLI_USAGE;
    }
    const char *name = options->words[0];
    tg_scale scale;
    const tg_example *example = tg_scale_is(name) ? cli_find_example(name, &scale) : tg_example_find(name);
    if (tg_scale_is(name) && !example) return CLI_USAGE;
    if (example) return inspect_example(example, options, texts, text_count);
    struct stat found;
    if (stat(name, &found) != 0) {
        if (errno != ENOENT || strchr(name, '/') || strchr(name, '.')) {
            cli_say("cannot open '%s': %s", name, strerror(errno));
            return CLI_USAGE;
        }
        return cli_no_example(name);
    }
    for (int i = 0; i < text_count; i++) {
        if (!texts[i].wanted) continue;
        cli_say("inspect --%s needs an example: a checkpoint holds tensors, not a graph", texts[i].key);
        return CLI_USAGE;
    }
    return cli_checkpoint_inspect(name, options->json);
}
