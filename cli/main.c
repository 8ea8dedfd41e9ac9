/* main: picks the command, and makes sure that what was printed also arrived. */
#include "cli.h"

#include <errno.h>
#include <string.h>

typedef struct cli_command {
    const char *name;
    int (*run)(const cli_options *options);
} cli_command;

static const cli_command commands[] = {
    {"devices", command_devices}, {"train", command_train}, {"bench", command_bench}, {"inspect", command_inspect}, {"tune", command_tune},
};

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        cli_say("no command; try `tensorgrad --help`");
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        cli_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tensorgrad %s\n", tg_version());
        return CLI_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        cli_options options;
        int code = cli_parse(argv[1], argc - 2, argv + 2, &options);
        if (code != CLI_DONE) return code;
        if (options.help) {
            cli_help(stdout);
            return CLI_DONE;
        }
        return commands[i].run(&options);
    }
    cli_say("unknown %s '%s'; there are devices, train, bench, inspect, tune", argv[1][0] == '-' ? "option" : "command", argv[1]);
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    int code = run_command(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("cannot write the output: %s", strerror(errno));
        if (code == CLI_DONE) code = CLI_FAILED;
    }
    return code;
}
