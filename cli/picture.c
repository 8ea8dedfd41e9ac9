/* picture: the fit and the loss as characters: braille dots on a UTF-8 terminal, plain dots on
 * others. */
#include "cli.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_COLUMNS 64
#define LEAST_COLUMNS 16
/* left of the canvas, and one free at the right: some terminals wrap there */
#define LABEL_COLUMNS 13
#define ROWS 12
#define DOT_ROWS (4 * ROWS) /* a braille cell is 2 dots wide, 4 high */

typedef struct canvas {
    int columns;
    unsigned char model[ROWS][MOST_COLUMNS]; /* braille dots */
    bool truth[ROWS][MOST_COLUMNS];
    double x_low, x_high, y_low, y_high;
} canvas;

static int dot_of(double value, double low, double high, int dots) {
    double place = (value - low) / (high - low);
    return (int)(place * (dots - 1) + 0.5);
}

static void put_dot(canvas *to, int column, int row, bool truth) {
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (column < 0 || column >= 2 * to->columns || row < 0 || row >= DOT_ROWS) return;
    int from_top = DOT_ROWS - 1 - row;
    if (truth) to->truth[from_top / 4][column / 2] = true;
    else to->model[from_top / 4][column / 2] |= bit[from_top % 4][column % 2];
}

/* A curve through (x, y); each dot column is joined to the one before. */
static void put_curve(canvas *to, const double *x, const double *y, int count, bool truth) {
    int last_column = 0, last_row = 0;
    for (int i = 0; i < count; i++) {
        if (!isfinite(y[i])) continue;
        int column = dot_of(x[i], to->x_low, to->x_high, 2 * to->columns), row = dot_of(y[i], to->y_low, to->y_high, DOT_ROWS);
        int steps = i ? abs(column - last_column) : 0;
        if (i && abs(row - last_row) > steps) steps = abs(row - last_row);
        for (int s = 0; s <= steps; s++) {
            double part = steps ? (double)s / steps : 1;
            put_dot(to, (int)lround(last_column + part * (column - last_column)), (int)lround(last_row + part * (row - last_row)), truth);
        }
        last_column = column;
        last_row = row;
    }
}

static void print_cell(FILE *out, unsigned char dots, bool truth, bool utf8, bool colour) {
    if (!dots && !truth) {
        fputc(' ', out);
        return;
    }
    if (colour) fputs(dots ? "\033[36m" : "\033[33m", out);
    if (!utf8) fputc(dots ? (truth ? '#' : '*') : '.', out);
    else if (!dots) fputs("\u00b7", out);
    else fprintf(out, "%c%c%c", 0xE2, 0xA0 | (dots >> 6), 0x80 | (dots & 0x3F)); /* U+2800 + dots */
    if (colour) fputs("\033[0m", out);
}

/* top and bottom label the y axis; left and right the x axis. */
static void print_canvas(FILE *out, const canvas *from, const char *top, const char *bottom, const char *left, const char *right,
                         bool colour) {
    bool utf8 = cli_utf8();
    for (int row = 0; row < ROWS; row++) {
        fprintf(out, "%10s %s", row == 0 ? top : row == ROWS - 1 ? bottom : "", utf8 ? "\u2502" : "|");
        for (int column = 0; column < from->columns; column++)
            print_cell(out, from->model[row][column], from->truth[row][column], utf8, colour);
        fputc('\n', out);
    }
    fprintf(out, "%10s %s", "", utf8 ? "\u2514" : "+");
    for (int column = 0; column < from->columns; column++) fputs(utf8 ? "\u2500" : "-", out);
    fprintf(out, "\n%12s%-*s%s\n", "", from->columns - (int)strlen(right), left, right);
}

static void widen(double value, double *low, double *high) {
    if (!isfinite(value)) return;
    if (value < *low) *low = value;
    if (value > *high) *high = value;
}

static void give_room(double *low, double *high) {
    if (*low > *high) *low = 0, *high = 1;
    if (*high - *low < 1e-9) *low -= 0.5, *high += 0.5;
}

static canvas *new_canvas(int columns) {
    canvas *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->columns = columns;
    made->x_low = made->y_low = DBL_MAX;
    made->x_high = made->y_high = -DBL_MAX;
    return made;
}

static void picture_fit(FILE *out, const cli_curves *curves, bool colour, int columns) {
    int count = curves->fit_count;
    double *values = malloc(3 * (size_t)count * sizeof *values);
    canvas *to = new_canvas(columns);
    if (values && to) {
        double *x = values, *truth = values + count, *model = values + 2 * count;
        for (int i = 0; i < count; i++) {
            x[i] = (double)curves->x[i];
            truth[i] = (double)curves->truth[i];
            model[i] = (double)curves->predicted[i];
            widen(x[i], &to->x_low, &to->x_high);
            widen(truth[i], &to->y_low, &to->y_high);
            widen(model[i], &to->y_low, &to->y_high);
        }
        give_room(&to->x_low, &to->x_high);
        give_room(&to->y_low, &to->y_high);
        put_curve(to, x, truth, count, true);
        put_curve(to, x, model, count, false);
        char top[32], bottom[32], left[32], right[32];
        snprintf(top, sizeof top, "%.3g", to->y_high);
        snprintf(bottom, sizeof bottom, "%.3g", to->y_low);
        snprintf(left, sizeof left, "%.3g", to->x_low);
        snprintf(right, sizeof right, "%.3g", to->x_high);
        bool utf8 = cli_utf8();
        fprintf(out, "\n%11s %s: what it learned (%s) over the truth (%s)\n", "", curves->title,
                utf8 ? "\u2812\u2812" : "*, # on the truth", utf8 ? "\u00b7" : ".");
        print_canvas(out, to, top, bottom, left, right, colour);
    }
    free(to);
    free(values);
}

static void picture_loss(FILE *out, const cli_curves *curves, bool colour, int columns) {
    const cli_history *history = curves->history;
    double *logs = malloc(((size_t)history->count + 1) * sizeof *logs);
    canvas *to = new_canvas(columns);
    if (logs && to && history->count) {
        for (int i = 0; i < history->count; i++) {
            logs[i] = log10(history->loss[i] > 1e-30 ? history->loss[i] : 1e-30);
            widen(logs[i], &to->y_low, &to->y_high);
        }
        to->x_low = history->step[0];
        to->x_high = history->step[history->count - 1];
        give_room(&to->x_low, &to->x_high);
        give_room(&to->y_low, &to->y_high);
        put_curve(to, history->step, logs, history->count, false);
        char top[32], bottom[32], left[32], right[48];
        snprintf(top, sizeof top, "%.2g", pow(10, to->y_high));
        snprintf(bottom, sizeof bottom, "%.2g", pow(10, to->y_low));
        snprintf(left, sizeof left, "%.0f", history->step[0]);
        snprintf(right, sizeof right, "step %.0f", history->step[history->count - 1]);
        fprintf(out, "\n%11s %s: loss, logarithmic\n", "", curves->title);
        print_canvas(out, to, top, bottom, left, right, colour);
    }
    free(to);
    free(logs);
}

void cli_picture(FILE *out, const cli_curves *curves, bool colour, int columns) {
    columns -= LABEL_COLUMNS;
    columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns;
    if (curves->fit_count) picture_fit(out, curves, colour, columns);
    picture_loss(out, curves, colour, columns);
    fputc('\n', out);
}
