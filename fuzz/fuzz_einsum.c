/* fuzz_einsum: equations of any characters over shapes that often fit. An accepted equation is run
 * and compared with a sum over all values of all letters. A refused one has a message. */
#include "fuzz.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OPERANDS = 3, TEXT = 32, LETTERS = 4, MOST = 256 };

typedef struct equation {
    char text[TEXT];
    int operands;
    tg_shape shape[OPERANDS];
} equation;

static tg_tensor build(tg_graph *g, void *user) {
    static const char *const names[] = {"a", "b", "c"};
    const equation *e = user;
    tg_tensor operands[OPERANDS];
    for (int i = 0; i < e->operands; i++) operands[i] = tg_input(g, names[i], e->shape[i], TG_F32);
    return tg_einsum(e->text, operands, e->operands);
}

/* Mostly letters a to d, commas, arrows, dots; the sizes of letters 2, 3, 1, 2, so that most
 * equations fit. */
static void make(fuzz_reader *r, equation *e) {
    static const char alphabet[] = "abcdabcdabcd,,->.. zA";
    const int length = fuzz_below(r, TEXT - 4);
    int at = 0;
    for (int i = 0; i < length && at < TEXT - 4; i++) {
        const int choice = fuzz_below(r, (int)sizeof alphabet + 1);
        if (choice == 14) at += 2, memcpy(e->text + at - 2, "->", 2);
        else if (choice == 16) at += 3, memcpy(e->text + at - 3, "...", 3);
        else if (choice < (int)sizeof alphabet - 1) e->text[at++] = alphabet[choice];
        else e->text[at++] = (char)(1 + fuzz_below(r, 127));
    }
    e->operands = 1 + fuzz_below(r, OPERANDS);
    const char *term = e->text;
    for (int i = 0; i < e->operands; i++) {
        tg_shape *shape = &e->shape[i];
        for (; *term && *term != ',' && *term != '-'; term++)
            if (*term >= 'a' && *term <= 'd' && shape->rank < 6) shape->dim[shape->rank++] = (int64_t)(uint8_t) "\2\3\1\2"[*term - 'a'];
        if (*term == ',') term++;
        if (fuzz_chance(r, 8) && shape->rank < 6) shape->dim[shape->rank++] = 2;
        if (fuzz_chance(r, 16) && shape->rank > 0) shape->rank--;
    }
}

static float element(int operand, int64_t i) { return (float)((int)((i * 7 + operand * 3) % 5) - 2); }

/* Plain equations only: letters a to d, one arrow, no letter of the result that no term has. *want:
 * the sum of all elements of the result, each times its position, so that an axis in a wrong
 * position shows. */
static bool reference(const equation *e, double *want, int64_t *count) {
    const char *arrow = strstr(e->text, "->");
    if (arrow == NULL || strspn(e->text, "abcd,->") != strlen(e->text)) return false;
    static const int sizes[LETTERS] = {2, 3, 1, 2};
    *count = 1;
    for (const char *c = arrow + 2; *c; c++) *count *= sizes[*c - 'a'];
    if (*count > MOST) return false;
    *want = 0;
    bool used[LETTERS] = {false};
    for (const char *c = e->text; c < arrow; c++)
        if (*c != ',') used[*c - 'a'] = true;
    for (int value = 0; value < 12; value++) {
        const int at[LETTERS] = {value % 2, value / 2 % 3, 0, value / 6};
        bool counts = true; /* a letter that does not occur has one value */
        for (int l = 0; l < LETTERS; l++) counts = counts && (used[l] || at[l] == 0);
        if (!counts) continue;
        double product = 1;
        const char *term = e->text;
        for (int i = 0; i < e->operands; i++, term++) {
            int64_t place = 0;
            for (; term < arrow && *term != ','; term++) place = place * sizes[*term - 'a'] + at[*term - 'a'];
            product *= (double)element(i, place);
        }
        int64_t place = 0;
        for (const char *c = arrow + 2; *c; c++) place = place * sizes[*c - 'a'] + at[*c - 'a'];
        *want += product * (double)(place + 1);
    }
    return true;
}

static void run(tg_context *ctx, tg_model *model, const equation *e) {
    static const char *const names[] = {"a", "b", "c"};
    static float data[OPERANDS][MOST], out[MOST];
    tg_feed feeds[OPERANDS];
    for (int i = 0; i < e->operands; i++) {
        const int64_t count = tg_shape_count(e->shape[i]);
        if (count > MOST) return;
        for (int64_t j = 0; j < count; j++) data[i][j] = element(i, j);
        feeds[i] = tg_feed_f32(names[i], data[i], count);
    }
    const int64_t count = tg_shape_count(tg_model_output_shape(model));
    if (count > MOST) return;
    if (tg_run(model, feeds, e->operands, out, MOST) != TG_OK) fuzz_fail("%s: %s", e->text, tg_error_message(ctx));
    double want = 0, got = 0;
    int64_t wanted_count = 0;
    if (!reference(e, &want, &wanted_count)) return;
    if (count != wanted_count) fuzz_fail("%s: %lld elements, not %lld", e->text, (long long)count, (long long)wanted_count);
    for (int64_t i = 0; i < count; i++) got += (double)out[i] * (double)(i + 1);
    if (fabs(got - want) > 1e-3 * (1 + fabs(want))) fuzz_fail("%s: %g, not %g", e->text, got, want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_reader r = {data, size};
    equation e;
    memset(&e, 0, sizeof e);
    make(&r, &e);
    tg_context *ctx = fuzz_context();
    const tg_compile_options options = {.device = TG_DEVICE_CPU, .threads = 1};
    tg_model *model = tg_compile_forward(ctx, build, &e, &options);
    if (model == NULL) {
        fuzz_check_status(ctx, tg_error(ctx) != TG_OK ? tg_error(ctx) : TG_ERROR_INTERNAL, "einsum");
    } else {
        run(ctx, model, &e);
    }
    tg_model_destroy(model);
    fuzz_context_done(ctx);
    return 0;
}
