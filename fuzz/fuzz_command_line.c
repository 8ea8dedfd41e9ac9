/* fuzz_command_line: words of a command line, separated by zeros, through the parser of the tool.
 * It accepts them without a message, or refuses them with exactly one. Linked with cli/options.c
 * only: no command runs. */
#include "fuzz.h"

#include "options.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int messages;

void cli_say(const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    messages++;
}

/* What the table of commands names. */
#define NEVER_RUN(name) \
  int name(const cli_options *options) { \
    (void)options; \
    return CLI_FAILED; \
  }
NEVER_RUN(command_devices)
NEVER_RUN(command_train)
NEVER_RUN(command_bench)
NEVER_RUN(command_inspect)
NEVER_RUN(command_tune)
NEVER_RUN(command_completion)
NEVER_RUN(command_man)

enum { WORDS = 24 };

/* A byte over 127 means a whole word, so that the fuzzer need not spell the options. */
static const char *known_word(uint8_t byte) {
    static const char *const values[] = {"1", "0", "mlp-sin", "cpu", "f16", "-1", "1e9", "", "nan", "99999999999999999999"};
    int count = 0;
    const cli_option *options = cli_option_table(&count);
    const int i = byte - 128, plain = (int)(sizeof values / sizeof values[0]);
    return i < plain ? values[i] : options[(i - plain) % count].name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    int commands = 0, count = 0;
    const cli_command *table = cli_command_table(&commands);
    const cli_command *command = &table[data[0] % commands];
    char *copy = malloc(size + 1), *words[WORDS];
    memcpy(copy, data, size);
    copy[size] = '\0';
    for (size_t at = 1; at < size && count < WORDS; at++) {
        if ((uint8_t)copy[at] >= 128) {
            words[count++] = (char *)(uintptr_t)known_word((uint8_t)copy[at]);
            copy[at] = '\0';
            continue;
        }
        const size_t length = strcspn(copy + at, "\x01");
        words[count++] = copy + at;
        if (at + length < size) copy[at + length] = '\0';
        at += length;
    }
    cli_options options;
    messages = 0;
    const int code = cli_parse(command, count, words, &options);
    if (code != CLI_DONE && code != CLI_USAGE) fuzz_fail("code %d", code);
    if ((code == CLI_USAGE) != (messages == 1)) fuzz_fail("code %d with %d messages", code, messages);
    if (code == CLI_DONE && options.word_count > CLI_MAX_WORDS) fuzz_fail("too many words");
    free(copy);
    return 0;
}
