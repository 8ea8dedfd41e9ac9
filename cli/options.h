/* options: the tables of commands and of the options that each takes. Parsing, --help, the man page
 * and the completions of shells all read these; no other file names an option. */
#ifndef TENSORGRAD_CLI_OPTIONS_H
#define TENSORGRAD_CLI_OPTIONS_H

#include "cli.h"

#include <stddef.h>

enum { CLI_DEVICES = 1, CLI_TRAIN = 2, CLI_BENCH = 4, CLI_INSPECT = 8, CLI_TUNE = 16, CLI_COMPLETION = 32, CLI_MAN = 64 };

typedef enum cli_option_kind {
    CLI_FLAG,
    CLI_FILE,
    CLI_FOLDER,
    CLI_NAME,
    CLI_COUNT, /* a whole number, least .. most */
    CLI_SEED,
    CLI_NUMBER, /* above 0 */
    CLI_DEVICE,
    CLI_PRECISION
} cli_option_kind;

typedef struct cli_option {
    const char *name;  /* "--steps" */
    const char *value; /* name of its value in help: "N"; NULL for a flag */
    cli_option_kind kind;
    unsigned commands; /* commands that take it. A name has one row for each of its meanings */
    size_t field;      /* of cli_options */
    int64_t least, most;
    const char *help; /* what it does, one paragraph */
} cli_option;

typedef struct cli_command {
    const char *name;
    unsigned bit;
    const char *words;   /* arguments besides options: "EXAMPLE"; "" for none */
    const char *summary; /* a line */
    const char *about;   /* a paragraph or more, split by '\n' */
    int (*run)(const cli_options *options);
} cli_command;

const cli_option *cli_option_table(int *count);
const cli_command *cli_command_table(int *count);
const cli_command *cli_command_find(const char *name); /* NULL when there is none */

#endif
