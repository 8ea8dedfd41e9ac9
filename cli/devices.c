/* devices: what this machine can compute with. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <string.h>
#include <unistd.h>

#define MAX_ADAPTERS 32

typedef struct reason {
    char text[1024];
} reason;

/* Why there is no library, or what else tg_adapters logs. */
static void keep_reason(void *user, tg_log_level level, const char *message) {
    (void)level;
    snprintf(((reason *)user)->text, sizeof((reason *)user)->text, "%s", message);
}

bool cli_executes(const tg_adapter_info *adapter) { return strcmp(adapter->backend, "null") != 0; }

static const char *yes_no(bool value) { return value ? "true" : "false"; }

static void print_adapter(int number, const tg_adapter_info *a) {
    printf("webgpu  #%d %s (%s, %s%s%s)%s\n", number, a->name, a->type, a->backend, a->architecture[0] ? ", " : "", a->architecture,
           cli_executes(a) ? "" : ": executes nothing, used only where it is named");
    printf("        buffers up to %lld MiB, bound up to %lld MiB, %d a kernel; workgroups of %d with %d bytes, %d a dimension\n",
           (long long)(a->max_buffer_bytes >> 20), (long long)(a->max_binding_bytes >> 20), a->max_storage_buffers,
           a->max_workgroup_invocations, a->max_workgroup_bytes, a->max_workgroups);
    printf("        subgroups %s", a->subgroups ? "of " : "no");
    if (a->subgroups && a->subgroup_max) printf("%d to %d", a->subgroup_min, a->subgroup_max);
    else if (a->subgroups) printf("unknown size");
    printf(", timestamps %s, f16 %s, subgroup matrices %s\n", a->timestamps ? "yes" : "no", a->f16 ? "yes" : "no",
           a->subgroup_matrices ? "yes" : "no");
}

static void print_adapter_json(int number, const tg_adapter_info *a) {
    const struct {
        const char *key, *text;
    } texts[] = {
        {"name", a->name}, {"vendor", a->vendor}, {"architecture", a->architecture}, {"backend", a->backend}, {"type", a->type},
    };
    printf("%s{\"index\": %d", number ? ", " : "", number);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        printf(", \"%s\": ", texts[i].key);
        cli_json_text(stdout, texts[i].text);
    }
    printf(", \"max_buffer_bytes\": %lld, \"max_binding_bytes\": %lld, \"max_storage_buffers\": %d, \"max_workgroup_bytes\": %d"
           ", \"max_workgroup_invocations\": %d, \"max_workgroups\": %d, \"subgroup_min\": %d, \"subgroup_max\": %d"
           ", \"timestamps\": %s, \"subgroups\": %s, \"f16\": %s, \"subgroup_matrices\": %s, \"executes\": %s}",
           (long long)a->max_buffer_bytes, (long long)a->max_binding_bytes, a->max_storage_buffers, a->max_workgroup_bytes,
           a->max_workgroup_invocations, a->max_workgroups, a->subgroup_min, a->subgroup_max, yes_no(a->timestamps), yes_no(a->subgroups),
           yes_no(a->f16), yes_no(a->subgroup_matrices), yes_no(cli_executes(a)));
}

static void print_devices(const tg_adapter_info *adapters, int count, long cores, const char *why, bool json) {
    if (!json) {
        printf("cpu     %s, %ld core%s\n", tg_cpu_name(), cores, cores == 1 ? "" : "s");
        for (int i = 0; i < count; i++) print_adapter(i, &adapters[i]);
        if (count == 0) printf("webgpu  none: %s\n", why);
        return;
    }
    printf("{\"cpu\": {\"vectors\": ");
    cli_json_text(stdout, tg_cpu_name());
    printf(", \"cores\": %ld}, \"webgpu\": [", cores);
    for (int i = 0; i < count; i++) print_adapter_json(i, &adapters[i]);
    printf("], \"webgpu_none\": ");
    if (count == 0) cli_json_text(stdout, why);
    else printf("null");
    printf("}\n");
}

int command_devices(const cli_options *options) {
    if (options->word_count) {
        cli_say("devices takes no argument, but got '%s'", options->words[0]);
        return CLI_USAGE;
    }
    reason why = {""};
    const tg_context_options context_options = {.log = keep_reason, .log_user = &why};
    tg_context *ctx = tg_context_create(&context_options);
    tg_adapter_info adapters[MAX_ADAPTERS];
    int count = 0;
    if (!ctx) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    int code = tg_adapters(ctx, adapters, MAX_ADAPTERS, &count) == TG_OK ? CLI_DONE : cli_context_error(ctx, "devices", CLI_FAILED);
    tg_context_destroy(ctx);
    if (code != CLI_DONE) return code;
    if (count > MAX_ADAPTERS) count = MAX_ADAPTERS;
    if (count == 0 && !why.text[0]) snprintf(why.text, sizeof why.text, "the library offers no adapter");
    if (options->check && count == 0) {
        cli_say("devices --check: no WebGPU adapter: %s", why.text);
        return CLI_USAGE;
    }
    if (options->check) return cli_check(adapters, count, options);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    print_devices(adapters, count, cores < 1 ? 1 : cores, why.text, options->json);
    return CLI_DONE;
}
