/* main: picks the command, and makes sure that what was printed also arrived. */
#define _POSIX_C_SOURCE 200809L
#include "options.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

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
    const cli_command *command = cli_command_find(argv[1]);
    if (command) {
        cli_options options;
        int code = cli_parse(command, argc - 2, argv + 2, &options);
        if (code != CLI_DONE) return code;
        if (!options.help) return command->run(&options);
        cli_help_command(stdout, command);
        return CLI_DONE;
    }
    cli_say("unknown %s '%s'; there are devices, train, bench, inspect, tune, completion, man", argv[1][0] == '-' ? "option" : "command",
            argv[1]);
    return CLI_USAGE;
}

int main(int argc, char **argv) {
#ifdef SIGXFSZ
    /* a file that reached its size limit is then an error of the write, which cleans up */
    (void)signal(SIGXFSZ, SIG_IGN);
#endif
    int code = run_command(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        /* a reader that went away was reported already, if it ended the run */
        const int reason = errno;
        if (reason != EPIPE || code == CLI_DONE) cli_say("cannot write the output: %s", strerror(reason));
        if (code == CLI_DONE) code = CLI_FAILED;
    }
    return code;
}
