/* message: one-line errors, JSON scraps, the clock. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

void cli_say(const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++) /* one line, whatever a file or an argument holds */
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    fflush(stdout);
    fprintf(stderr, "tensorgrad: %s\n", text);
}

static void warn(void *user, tg_log_level level, const char *message) {
    (void)user;
    if (level >= TG_LOG_WARNING) cli_say("warning: %s", message);
}

tg_context *cli_context(void) {
    const tg_context_options options = {.log = warn};
    return tg_context_create(&options);
}

int cli_no_example(const char *name) {
    char known[512] = "";
    int count = 0;
    const tg_example *examples = tg_examples(&count);
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof known; i++) {
        int wrote = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", examples[i].name);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    cli_say("unknown example '%s'; there are %s", name, known);
    return CLI_USAGE;
}

int cli_context_error(const tg_context *ctx, const char *what, int code) {
    const char *message = tg_error_message(ctx);
    if (!message || !message[0]) message = tg_status_name(tg_error(ctx));
    cli_say("%s: %s", what, message);
    return code;
}

void cli_json_text(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
        else if (*c == '\n') fputs("\\n", out);
        else if (*c < ' ') fprintf(out, "\\u%04x", *c);
        else fputc(*c, out);
    }
    fputc('"', out);
}

void cli_json_number(FILE *out, double value, int digits) {
    if (isfinite(value)) fprintf(out, "%.*g", digits, value);
    else fputs("null", out);
}

double cli_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool cli_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (!value || !value[0]) continue;
        return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "utf-8") || strstr(value, "UTF8");
    }
    return false;
}

bool cli_cursor(void) {
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
}

bool cli_colour(void) {
    const char *refused = getenv("NO_COLOR");
    return cli_cursor() && !(refused && refused[0]);
}

int cli_columns(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}
