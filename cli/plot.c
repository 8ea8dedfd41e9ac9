/* plot: the loss, and the fit if there is one, as one SVG file without script, font or outside
 * reference. */
#include "cli.h"

#include "io/file.h"

#include <float.h>
#include <math.h>

#define PANEL_WIDTH 480.0
#define PANEL_HEIGHT 300.0
#define MARGIN_LEFT 70.0
#define MARGIN_TOP 40.0
#define MARGIN_BOTTOM 50.0
#define MARGIN_RIGHT 20.0

typedef struct panel {
    double left; /* of the frame, in pixels */
    double x_low, x_high, y_low, y_high;
} panel;

static double place_x(const panel *p, double x) { return p->left + (x - p->x_low) / (p->x_high - p->x_low) * PANEL_WIDTH; }
static double place_y(const panel *p, double y) { return MARGIN_TOP + (p->y_high - y) / (p->y_high - p->y_low) * PANEL_HEIGHT; }

static void grow(double value, double *low, double *high) {
    if (!isfinite(value)) return;
    if (value < *low) *low = value;
    if (value > *high) *high = value;
}

static void settle(double *low, double *high) {
    if (*low > *high) *low = 0, *high = 1;
    if (*high - *low < 1e-9) *low -= 0.5, *high += 0.5;
}

/* 1, 2 or 5 times a power of ten, so that about five multiples are between the two. */
enum { MAX_TICKS = 12 };
static double tick_step(double low, double high) {
    double raw = (high - low) / 5, power = pow(10, floor(log10(raw))), digits = raw / power;
    return power * (digits < 1.5 ? 1 : digits < 3.5 ? 2 : digits < 7.5 ? 5 : 10);
}

/* whole: x counts something, and so do its marks. */
static void add_frame(tg_text_buffer *svg, const panel *p, const char *title, const char *x_name, bool whole) {
    tg_text_add(svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#888\"/>\n", p->left, MARGIN_TOP,
                PANEL_WIDTH, PANEL_HEIGHT);
    tg_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"15\" text-anchor=\"middle\">%s</text>\n", p->left + PANEL_WIDTH / 2,
                MARGIN_TOP - 14, title);
    tg_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", p->left + PANEL_WIDTH / 2,
                MARGIN_TOP + PANEL_HEIGHT + 38, x_name);
    double step = tick_step(p->x_low, p->x_high);
    if (whole && step < 1) step = 1;
    for (int i = 0; i < MAX_TICKS; i++) {
        double x = (ceil(p->x_low / step) + i) * step;
        if (x > p->x_high) break;
        tg_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.4g</text>\n", place_x(p, x), MARGIN_TOP + PANEL_HEIGHT + 18,
                    x);
    }
}

static void add_y_label(tg_text_buffer *svg, const panel *p, double y, double shown) {
    tg_text_add(svg, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", p->left, p->left + PANEL_WIDTH,
                place_y(p, y), place_y(p, y));
    tg_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", p->left - 8, place_y(p, y) + 4, shown);
}

/* y may hold NaN: the line breaks there. */
static void add_line(tg_text_buffer *svg, const panel *p, const double *x, const double *y, int count, const char *style) {
    tg_text_add(svg, "<path fill=\"none\" stroke-linecap=\"round\" %s d=\"", style);
    bool pen = false;
    for (int i = 0; i < count; i++) {
        if (!isfinite(y[i])) {
            pen = false;
            continue;
        }
        tg_text_add(svg, "%c%.1f %.1f", pen ? 'L' : 'M', place_x(p, x[i]), place_y(p, y[i]));
        /* a point alone: a line of no length, of which the round ends are seen */
        if (!pen && (i + 1 == count || !isfinite(y[i + 1]))) tg_text_add(svg, "h0");
        pen = true;
    }
    tg_text_add(svg, "\"/>\n");
}

/* log10 of the losses against the step; a line at every power of ten. values: room for the
 * history. */
static void add_loss(tg_text_buffer *svg, const cli_history *history, double *values) {
    panel p = {
        .left = MARGIN_LEFT, .x_low = history->step[0], .x_high = history->step[history->count - 1], .y_low = DBL_MAX, .y_high = -DBL_MAX};
    for (int i = 0; i < history->count; i++) {
        values[i] = history->loss[i] > 0 ? log10(history->loss[i]) : (double)NAN;
        grow(values[i], &p.y_low, &p.y_high);
    }
    settle(&p.x_low, &p.x_high);
    if (p.y_low > p.y_high) p.y_low = p.y_high = 0;
    p.y_low = floor(p.y_low);
    p.y_high = ceil(p.y_high);
    settle(&p.y_low, &p.y_high); /* every loss the same power of ten */
    for (double power = ceil(p.y_low); power <= p.y_high; power++) add_y_label(svg, &p, power, pow(10, power));
    add_frame(svg, &p, "loss", "step", true);
    add_line(svg, &p, history->step, values, history->count,
             history->count > 1 ? "stroke=\"#06c\" stroke-width=\"1.2\"" : "stroke=\"#06c\" stroke-width=\"6\"");
}

/* values: room for three times the fit's points. */
static void add_fit(tg_text_buffer *svg, const cli_curves *curves, double *values) {
    int count = curves->fit_count;
    double *x = values, *truth = values + count, *model = values + 2 * count;
    panel p = {
        .left = 2 * MARGIN_LEFT + PANEL_WIDTH + MARGIN_RIGHT, .x_low = DBL_MAX, .x_high = -DBL_MAX, .y_low = DBL_MAX, .y_high = -DBL_MAX};
    for (int i = 0; i < count; i++) {
        x[i] = (double)curves->x[i];
        truth[i] = (double)curves->truth[i];
        model[i] = (double)curves->predicted[i];
        grow(x[i], &p.x_low, &p.x_high);
        grow(truth[i], &p.y_low, &p.y_high);
        grow(model[i], &p.y_low, &p.y_high);
    }
    settle(&p.x_low, &p.x_high);
    settle(&p.y_low, &p.y_high);
    double step = tick_step(p.y_low, p.y_high);
    for (int i = 0; i < MAX_TICKS; i++) {
        double y = (ceil(p.y_low / step) + i) * step;
        if (y <= p.y_high) add_y_label(svg, &p, y, y);
    }
    add_frame(svg, &p, "fit (blue) and truth (dashed)", "x", false);
    add_line(svg, &p, x, truth, count, "stroke=\"#c60\" stroke-width=\"2\" stroke-dasharray=\"6 4\"");
    add_line(svg, &p, x, model, count, "stroke=\"#06c\" stroke-width=\"1.5\"");
}

static void add_picture(tg_text_buffer *svg, const cli_curves *curves, double *values) {
    bool fit = curves->fit_count > 0;
    double panel_width = MARGIN_LEFT + PANEL_WIDTH + MARGIN_RIGHT;
    tg_text_add(svg,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                fit ? 2 * panel_width : panel_width, MARGIN_TOP + PANEL_HEIGHT + MARGIN_BOTTOM, curves->title);
    if (curves->history->count) add_loss(svg, curves->history, values);
    if (fit) add_fit(svg, curves, values);
    tg_text_add(svg, "</svg>\n");
}

int cli_plot(tg_context *ctx, const char *path, const cli_curves *curves) {
    size_t room = (size_t)curves->history->count + 3 * (size_t)curves->fit_count + 1;
    double *values = tg_alloc(ctx, room * sizeof *values);
    if (!values) return cli_context_error(ctx, "plot", CLI_FAILED);
    tg_text_buffer svg;
    tg_text_init(&svg, ctx);
    add_picture(&svg, curves, values);
    tg_file_writer writer;
    bool good = !svg.failed && tg_file_begin(&writer, ctx, "plot", path) == TG_OK;
    if (good) {
        good = tg_file_put(&writer, svg.data, svg.length) == TG_OK;
        if (good) good = tg_file_commit(&writer) == TG_OK;
        else tg_file_abandon(&writer);
    }
    tg_text_free(&svg);
    tg_release(ctx, values, room * sizeof *values);
    if (good) return CLI_DONE;
    cli_say("%s", tg_error_message(ctx));
    return CLI_FAILED;
}
