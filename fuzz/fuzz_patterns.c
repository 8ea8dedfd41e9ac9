/* fuzz_patterns: "pattern\nname": patterns of parameter groups against a matcher that tries
 * everything. */
#include "fuzz.h"

#include "ir/graph.h"
#include "optim/optim.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 24 };

/* table[i][j]: the last i letters of the pattern match the last j of the name. */
static bool matches(const char *pattern, const char *name) {
    bool table[LONGEST + 1][LONGEST + 1];
    const size_t rows = strlen(pattern), columns = strlen(name);
    for (size_t i = 0; i <= rows; i++)
        for (size_t j = 0; j <= columns; j++) {
            const char letter = i > 0 ? pattern[rows - i] : '\0';
            if (i == 0) table[i][j] = j == 0;
            else if (letter == '*') table[i][j] = table[i - 1][j] || (j > 0 && table[i][j - 1]);
            else table[i][j] = j > 0 && (letter == '?' || letter == name[columns - j]) && table[i - 1][j - 1];
        }
    return table[rows][columns];
}

static void copy_text(char *to, const uint8_t *from, size_t length) {
    if (length > LONGEST) length = LONGEST;
    /* few letters: only the positions of stars and letters matter */
    for (size_t i = 0; i < length; i++) to[i] = "ab.*?"[from[i] % 5];
    to[length] = '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *line = memchr(data, '\n', size);
    if (line == NULL || size < 3) return 0;
    char pattern[LONGEST + 1], name[LONGEST + 1];
    copy_text(pattern, data, (size_t)(line - data));
    copy_text(name, line + 1, size - (size_t)(line - data) - 1);
    if (pattern[0] == '\0' || name[0] == '\0') return 0;
    tg_context *ctx = fuzz_context();
    tg_graph *g = tg_graph_create(ctx);
    if (tg_ir_param(g, name, TG_SHAPE(1), tg_init_zeros(), false, false) != 0) {
        const tg_param_group group = {.pattern = pattern, .rate = 2};
        tg_unmark_params(g);
        const tg_status status = tg_mark_group(g, TG_SITE_NONE, &group);
        fuzz_check_status(ctx, status, "group");
        if ((status == TG_OK) != matches(pattern, name)) fuzz_fail("\"%s\" and \"%s\": status %d", pattern, name, (int)status);
    }
    tg_graph_destroy(g);
    fuzz_context_done(ctx);
    return 0;
}
