/* manual: --help, the manual page and the completions of shells, all printed from the tables in
 * options.c and of the examples. */
#include "options.h"

#include <string.h>

enum { LINE = 110, OPTION_COLUMN = 25 };

/* Breaks lines at spaces. All lines except the first are indented; the first begins at that column.
 * '\n' ends a paragraph. */
static void print_wrapped(FILE *out, const char *text, int indent) {
    int column = indent;
    while (*text) {
        size_t length = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)length > LINE) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)length, text);
        column += (int)length;
        text += length;
        if (*text == '\n') {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        if (*text) text++;
    }
    fputc('\n', out);
}

static void print_option(FILE *out, const cli_option *option) {
    int wrote = fprintf(out, "    %s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
    fprintf(out, "%*s", wrote < OPTION_COLUMN ? OPTION_COLUMN - wrote : 1, "");
    print_wrapped(out, option->help, OPTION_COLUMN);
}

static void print_examples(FILE *out) {
    int count = 0;
    const tg_example *examples = tg_examples(&count);
    for (int i = 0; i < count; i++) fprintf(out, "    %-18s %s\n", examples[i].name, examples[i].summary);
}

/* Models of any size, for the commands that measure. */
static void print_scales(FILE *out) {
    int count = 0;
    const tg_scale_family *families = tg_scale_families(&count);
    for (int i = 0; i < count; i++) {
        char keys[256];
        tg_scale_keys_text(&families[i], keys, sizeof keys);
        fprintf(out, "    %-18s %s: %s\n", families[i].name, keys, families[i].summary);
    }
}

static bool takes_scales(const cli_command *command) { return (command->bit & (CLI_BENCH | CLI_INSPECT | CLI_TUNE)) != 0; }
static bool takes_examples(const cli_command *command) { return (command->bit & (CLI_TRAIN | CLI_BENCH | CLI_INSPECT | CLI_TUNE)) != 0; }

void cli_help_command(FILE *out, const cli_command *command) {
    int count = 0;
    const cli_option *options = cli_option_table(&count);
    fprintf(out, "tensorgrad %s%s%s [options]: %s\n", command->name, command->words[0] ? " " : "", command->words, command->summary);
    if (command->about[0]) {
        fputs("\n    ", out);
        print_wrapped(out, command->about, 4);
    }
    fputs("\noptions:\n", out);
    for (int i = 0; i < count; i++)
        if (options[i].commands & command->bit) print_option(out, &options[i]);
    if (!takes_examples(command)) return;
    fputs("\nexamples:\n", out);
    print_examples(out);
    if (!takes_scales(command)) return;
    fputs("\nmodels of any size, as gpt:L6,D384; their keys, and what they are if left out:\n", out);
    print_scales(out);
}

void cli_help(FILE *out) {
    int count = 0;
    const cli_command *commands = cli_command_table(&count);
    fputs("tensorgrad " TG_VERSION ": trains small neural networks\n\ncommands (`tensorgrad COMMAND --help` lists the options of each):\n",
          out);
    for (int i = 0; i < count; i++) {
        char call[64];
        snprintf(call, sizeof call, "%s %s", commands[i].name, commands[i].words);
        fprintf(out, "    %-24s %s\n", call, commands[i].summary);
    }
    fputs("    --version\n    --help\n\nexamples:\n", out);
    print_examples(out);
    fputs("\nexit status: 0 done, 1 the run failed, 2 the command line or a named file is wrong\n", out);
}

/* ---------------------------------------------------------------- the manual page */

/* In troff a backslash, and a dot or quote at the beginning of a line, are commands. "\-" is a
 * hyphen that can be copied. */
static void man_text(FILE *out, const char *text) {
    bool begins = true;
    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\'')) fputs("\\&", out);
        if (*text == '\\') fputs("\\e", out);
        else if (*text == '-') fputs("\\-", out);
        else fputc(*text, out);
        begins = *text == '\n';
    }
}

static void man_option(FILE *out, const cli_option *option) {
    fputs(".TP\n\\fB", out);
    man_text(out, option->name);
    fputs("\\fR", out);
    if (option->value) fprintf(out, " \\fI%s\\fR", option->value);
    fputc('\n', out);
    man_text(out, option->help);
    fputc('\n', out);
}

static void man_command(FILE *out, const cli_command *command) {
    int count = 0;
    const cli_option *options = cli_option_table(&count);
    fprintf(out, ".SS \"tensorgrad %s%s%s\"\n", command->name, command->words[0] ? " " : "", command->words);
    man_text(out, command->summary);
    fputs(".\n", out);
    if (command->about[0]) {
        fputs(".PP\n", out);
        man_text(out, command->about);
        fputc('\n', out);
    }
    for (int i = 0; i < count; i++)
        if ((options[i].commands & command->bit) && strcmp(options[i].name, "--help") != 0) man_option(out, &options[i]);
}

static void man_environment(FILE *out) {
    static const char *const variables[][2] = {
        {"TENSORGRAD_THREADS", "CPU threads, unless an option says otherwise"},
        {"TENSORGRAD_WEBGPU_LIB", "the WebGPU library"},
        {"TENSORGRAD_ADAPTER", "the WebGPU adapter, as --adapter names it"},
        {"TENSORGRAD_DATA", "the folder of the files that some examples train on"},
        {"TENSORGRAD_TUNING", "the file that `tune` writes and all WebGPU devices read; off: none"},
        {"NO_COLOR", "if set and not empty: no colours"},
        {"TERM", "dumb, or not set: plain lines instead of a progress bar"},
    };
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        fprintf(out, ".TP\n.B %s\n", variables[i][0]);
        man_text(out, variables[i][1]);
        fputc('\n', out);
    }
}

int command_man(const cli_options *options) {
    if (options->word_count != 0) {
        cli_say("man takes no argument, got '%s'", options->words[0]);
        return CLI_USAGE;
    }
    int count = 0;
    const cli_command *commands = cli_command_table(&count);
    fputs(".TH TENSORGRAD 1 \"\" \"tensorgrad " TG_VERSION "\" \"User Commands\"\n.SH NAME\ntensorgrad \\- trains small neural networks\n"
          ".SH SYNOPSIS\n",
          stdout);
    for (int i = 0; i < count; i++) printf(".B tensorgrad %s\n.RI \"%s\" \" \" [ options ]\n.br\n", commands[i].name, commands[i].words);
    fputs(".SH COMMANDS\n", stdout);
    for (int i = 0; i < count; i++) man_command(stdout, &commands[i]);
    fputs(".SH EXAMPLES TO TRAIN\n", stdout);
    int example_count = 0;
    const tg_example *examples = tg_examples(&example_count);
    for (int i = 0; i < example_count; i++) {
        fputs(".TP\n.B ", stdout);
        man_text(stdout, examples[i].name);
        fputc('\n', stdout);
        man_text(stdout, examples[i].summary);
        fputc('\n', stdout);
    }
    man_environment(stdout);
    fputs(".SH \"EXIT STATUS\"\n0 done, 1 the run failed (loss not finite, disk full, interrupted), 2 the command line or a named file is "
          "wrong, or there is no such device.\n",
          stdout);
    return CLI_DONE;
}

/* ---------------------------------------------------------------- completions */

/* The values an option may have, as words; "" where any file or text will do. */
static const char *values_of(const cli_option *option) {
    switch (option->kind) {
    case CLI_DEVICE: return "auto cpu webgpu";
    case CLI_PRECISION: return "f32 f16";
    case CLI_FLAG:
    case CLI_FILE:
    case CLI_FOLDER:
    case CLI_NAME:
    case CLI_COUNT:
    case CLI_SEED:
    case CLI_NUMBER: break;
    }
    return "";
}

static void print_words(const cli_command *command) {
    if (command->bit == CLI_COMPLETION) printf("bash zsh fish");
    if (!takes_examples(command)) return;
    int count = 0;
    const tg_example *examples = tg_examples(&count);
    for (int i = 0; i < count; i++) printf("%s%s", i ? " " : "", examples[i].name);
    if (takes_scales(command)) printf(" gpt: mlp: conv: gru:");
    if (command->bit & (CLI_BENCH | CLI_TUNE)) printf(" matmul:512");
}

static void print_options_of(const cli_command *command) {
    int count = 0;
    const cli_option *options = cli_option_table(&count);
    for (int i = 0; i < count; i++)
        if (options[i].commands & command->bit) printf(" %s", options[i].name);
}

static void print_command_names(void) {
    int count = 0;
    const cli_command *commands = cli_command_table(&count);
    for (int i = 0; i < count; i++) printf("%s%s", i ? " " : "", commands[i].name);
}

/* Of options of all commands: each name once. */
static bool is_repeated(const cli_option *options, int i) {
    for (int j = 0; j < i; j++)
        if (strcmp(options[j].name, options[i].name) == 0) return true;
    return false;
}

static void bash_values(void) {
    int count = 0;
    const cli_option *options = cli_option_table(&count);
    printf("    case \"$before\" in\n");
    for (int i = 0; i < count; i++) {
        if (options[i].kind == CLI_FLAG || is_repeated(options, i)) continue;
        const char *values = values_of(&options[i]);
        if (options[i].kind == CLI_FILE) printf("        %s) COMPREPLY=($(compgen -f -- \"$word\")); return;;\n", options[i].name);
        else if (options[i].kind == CLI_FOLDER) printf("        %s) COMPREPLY=($(compgen -d -- \"$word\")); return;;\n", options[i].name);
        else printf("        %s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return;;\n", options[i].name, values);
    }
    printf("    esac\n");
}

static void complete_bash(void) {
    int count = 0;
    const cli_command *commands = cli_command_table(&count);
    printf("_tensorgrad() {\n    local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"");
    print_command_names();
    printf(" --help --version\" -- \"$word\")); return; fi\n");
    bash_values();
    printf("    case \"${COMP_WORDS[1]}\" in\n");
    for (int i = 0; i < count; i++) {
        printf("        %s) COMPREPLY=($(compgen -W \"", commands[i].name);
        print_words(&commands[i]);
        print_options_of(&commands[i]);
        printf("\" -- \"$word\")%s);;\n", commands[i].bit == CLI_INSPECT ? " $(compgen -f -- \"$word\")" : "");
    }
    printf("    esac\n}\ncomplete -o filenames -F _tensorgrad tensorgrad\n");
}

/* zsh takes what bash takes, by its own emulation. */
static void complete_zsh(void) {
    printf("#compdef tensorgrad\nautoload -Uz bashcompinit && bashcompinit\n");
    complete_bash();
}

static void fish_text(const char *text) {
    fputc('\'', stdout);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', stdout);
        fputc(*text, stdout);
    }
    fputc('\'', stdout);
}

static void fish_option(const cli_command *command, const cli_option *option) {
    printf("complete -c tensorgrad -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name + 2);
    if (option->kind == CLI_FILE || option->kind == CLI_FOLDER) printf(" -r -F");
    else if (option->kind != CLI_FLAG) printf(" -x -a '%s'", values_of(option));
    printf(" -d ");
    fish_text(option->help);
    fputc('\n', stdout);
}

static void complete_fish(void) {
    int count = 0, option_count = 0;
    const cli_command *commands = cli_command_table(&count);
    const cli_option *options = cli_option_table(&option_count);
    for (int i = 0; i < count; i++) {
        printf("complete -c tensorgrad -n __fish_use_subcommand -f -a %s -d ", commands[i].name);
        fish_text(commands[i].summary);
        printf("\ncomplete -c tensorgrad -n '__fish_seen_subcommand_from %s' %s-a '", commands[i].name,
               commands[i].bit == CLI_INSPECT ? "" : "-f ");
        print_words(&commands[i]);
        printf("'\n");
        for (int j = 0; j < option_count; j++)
            if (options[j].commands & commands[i].bit) fish_option(&commands[i], &options[j]);
    }
}

int command_completion(const cli_options *options) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", complete_bash}, {"zsh", complete_zsh}, {"fish", complete_fish}};
    const char *wanted = options->word_count == 1 ? options->words[0] : "";
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].shell, wanted) != 0) continue;
        shells[i].print();
        return CLI_DONE;
    }
    cli_say("completion takes bash, zsh or fish, not '%s'", wanted);
    return CLI_USAGE;
}
