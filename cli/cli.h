/* cli: the command line tool. Owns options, messages and exit codes; uses the public API, the
 * examples' table and, for files, src/io. Exit status: 0 done, 1 the run failed (loss not finite,
 * disk full), 2 the command line or a named file is wrong, or the device asked for is not there. */
#ifndef TENSORGRAD_CLI_H
#define TENSORGRAD_CLI_H

#include "examples.h"
#include "scale.h"
#include "tensorgrad/tensorgrad.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_MAX_WORDS 16
#define CLI_STEPS_NOT_GIVEN (-1)
/* that of the stored curves in tests/curves, so that a plain run can be compared with them */
#define CLI_DEFAULT_SEED 5

typedef struct cli_options {
    const char *words[CLI_MAX_WORDS]; /* words that are no options: examples, workloads, files */
    int word_count;
    int64_t steps;      /* CLI_STEPS_NOT_GIVEN, or the number; only train takes 0 */
    int64_t batch;      /* 0: not given */
    int64_t save_every; /* 0: not given */
    double lr;          /* 0: not given */
    int64_t threads;
    uint64_t seed;
    bool has_seed;
    tg_device_kind device;
    tg_precision precision;
    double target_loss; /* 0: not given */
    const char *save, *load, *resume, *plot, *data, *trace;
    const char *adapter;
    bool profile;
    double seconds; /* 0: not given */
    bool dry_run;
    bool json, on_device, picture, check, check_finite, skip_non_finite, ir, kernels, plan, dot, c, wgsl, help;
} cli_options;

/* options.c (with options.h). Returns CLI_DONE or prints one line and returns CLI_USAGE. */
struct cli_command;
int cli_parse(const struct cli_command *command, int count, char **words, cli_options *out);
/* manual.c */
void cli_help(FILE *out);
void cli_help_command(FILE *out, const struct cli_command *command);

/* message.c */
/* "tensorgrad: ..." as one line on stderr. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void cli_say(const char *format, ...);
/* whose warnings go to stderr; NULL when memory runs out */
tg_context *cli_context(void);
/* says which there are; CLI_USAGE */
int cli_no_example(const char *name);
/* the context's message; returns code */
int cli_context_error(const tg_context *ctx, const char *what, int code);
void cli_json_text(FILE *out, const char *text);           /* quoted and escaped */
void cli_json_number(FILE *out, double value, int digits); /* null when not finite */
double cli_seconds(void);                                  /* monotonic */
/* the terminal's character set, by LC_ALL, LC_CTYPE, LANG */
bool cli_utf8(void);
bool cli_cursor(void); /* stdout is a terminal whose cursor can be moved: not TERM=dumb */
bool cli_colour(void); /* and colours are not switched off by NO_COLOR (no-color.org) */
int cli_columns(void); /* of the terminal that stdout is; 80 where it is none or does not say */

/* The commands. */
int command_devices(const cli_options *options);
/* check.c: `devices --check` over adapters[0 .. count). */
/* false: it takes commands and does nothing; chosen only by name */
bool cli_executes(const tg_adapter_info *adapter);
int cli_check(const tg_adapter_info *adapters, int count, const cli_options *options);
int command_train(const cli_options *options);
int command_bench(const cli_options *options);
int cli_profile(const cli_options *options); /* profile.c: `bench --profile` */
int command_inspect(const cli_options *options);
int command_tune(const cli_options *options);
int command_completion(const cli_options *options);
int command_man(const cli_options *options);

/* product.c: c[m, n] = a[m, k] b[k, n] as a workload. */
typedef struct cli_product {
    int64_t m, n, k;
} cli_product;
bool cli_is_product(const char *text); /* begins with "matmul:" */
/* "matmul:N" or, unless `square`, "matmul:MxNxK"; sizes up to 16384. CLI_USAGE after a message. */
int cli_parse_product(const char *text, bool square, cli_product *out);
tg_tensor cli_build_product(tg_graph *g, void *user); /* a tg_build_fn; user: a cli_product */

/* An example, compiled, with room for one batch. */
typedef struct cli_session {
    const tg_example *example;
    tg_context *ctx;
    tg_model *model;
    tg_optimizer optimizer; /* as compiled */
    int64_t batch;          /* rows */
    tg_scale scale;         /* of an example of any size: with these rows */
    double compile_seconds; /* opening the device included */
    void *arrays[TG_EXAMPLE_MAX_INPUTS];
    tg_feed feeds[TG_EXAMPLE_MAX_INPUTS];
} cli_session;
/* session.c. An example by name, or a model of any size, for which there is `room`. NULL after a
 * message. */
const tg_example *cli_find_example(const char *word, tg_scale *room);
/* Prints errors. Close it in each case. with_data: reads the files that the batches of
 * the example need. */
int cli_session_open(cli_session *session, const tg_example *example, const cli_options *options, bool with_data);
void cli_session_close(cli_session *session);
/* Fills the batch of step t and runs it; *milliseconds is the time of the step alone. */
tg_status cli_session_step(cli_session *session, uint64_t seed, int64_t t, float *loss, double *milliseconds);

/* A data set of the batches of `count` steps from step `first`; step t finds its batch in the
 * sequential order. NULL after a message. */
tg_dataset *cli_session_dataset(const cli_session *session, uint64_t seed, int64_t first, int64_t count);
#define CLI_DATASET_BYTES (64 << 20)
/* how many of them are kept at most */
int64_t cli_session_batches(const cli_session *session, int64_t wanted);

/* history.c: the losses of a run in bounded memory. Each `stride`-th is kept; the stride doubles
 * when the room is full. */
#define CLI_HISTORY_MAX 8192
typedef struct cli_history {
    double step[CLI_HISTORY_MAX];
    double loss[CLI_HISTORY_MAX];
    int count;
    int64_t stride;
} cli_history;
void cli_history_add(cli_history *history, int64_t step, double loss);

/* plot.c, picture.c: `fit` curves are absent when fit_count is 0. */
typedef struct cli_curves {
    const char *title;
    const cli_history *history;
    int fit_count;
    const float *x, *truth, *predicted;
} cli_curves;
/* Writes an SVG next to `path`, then renames it over `path`. Prints errors; then the old file
 * stays. */
int cli_plot(tg_context *ctx, const char *path, const cli_curves *curves);
/* at most this many columns */
void cli_picture(FILE *out, const cli_curves *curves, bool colour, int columns);

/* checkpoint.c: what a safetensors file holds. Prints one line where it cannot be read. */
/* left alone when the file has none of that name */
int cli_checkpoint_number(const char *path, const char *key, uint64_t *number);
/* The schedule in a file of training state, set by tg_model_set_lr. Left alone if the file has
 * none. */
int cli_checkpoint_schedule(const char *path, tg_lr *schedule, int64_t *start);
int cli_checkpoint_inspect(const char *path, bool json);

#endif
