/* devices: what this machine can compute with. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <unistd.h>

int command_devices(const cli_options *options) {
    if (options->word_count) {
        cli_say("devices takes no argument, but got '%s'", options->words[0]);
        return CLI_USAGE;
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) cores = 1;
    if (options->json) {
        printf("{\"cpu\": {\"vectors\": ");
        cli_json_text(stdout, tg_cpu_name());
        printf(", \"cores\": %ld}, \"webgpu\": []}\n", cores);
    } else {
        printf("cpu     %s, %ld core%s\n", tg_cpu_name(), cores, cores == 1 ? "" : "s");
        printf("webgpu  not in this build\n");
    }
    return CLI_DONE;
}
