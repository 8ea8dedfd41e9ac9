/* train: runs an example, shows how it goes, saves and draws what came of it. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include "io/file.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- signals */

static volatile sig_atomic_t interrupted; /* the signal that asked for the end; 0: none did */

static void on_interrupt(int number) { interrupted = number; }

/* SIGPIPE: the reader of the output has gone. It comes again with each line, so it stays caught. */
static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { END_SIGNALS = sizeof end_signals / sizeof end_signals[0] };

/* The first signal ends the run after the step under way; a second one ends the program at once. A
 * signal that was ignored when the program began (nohup, a background job) stays ignored. */
static void catch_signals(void) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    for (int i = 0; i < END_SIGNALS; i++) {
        action.sa_flags = end_signals[i] == SIGPIPE ? 0 : (int)SA_RESETHAND;
        if (sigaction(end_signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN && end_signals[i] != SIGPIPE) continue;
        sigaction(end_signals[i], &action, NULL);
    }
}

static const char *interrupted_by(void) {
    switch (interrupted) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return "SIGPIPE: nobody reads the output";
    }
}

typedef struct training {
    const cli_options *options;
    cli_session session;
    tg_model *forward; /* sibling, owned by the model */
    uint64_t seed;
    int64_t first, last; /* steps of this run: first .. last */
    int64_t limit;       /* last may become that, until the target is reached */
    /* the steps before the schedule began, and the later steps that it does not count because they
     * were skipped */
    int64_t lr_began;
    int64_t skipped;     /* of the steps of this run */
    bool last_skipped;   /* so was the last one */
    bool open;           /* the last line of JSON waits for the score */
    bool bar;            /* stdout is a terminal with a cursor */
    double began, drawn; /* seconds */
    int64_t printed;     /* the step of the last line or bar */
    float loss;
    double step_ms;
    cli_history *history;
} training;

/* ---------------------------------------------------------------- what a step shows */

static void draw_bar(training *run, int64_t t) {
    double now = cli_seconds();
    if (t != run->last && now - run->drawn < 0.1) return;
    run->drawn = now;
    double done = (double)(t - run->first + 1), all = (double)(run->last - run->first + 1);
    double rate = done / (now - run->began + 1e-9);
    long left = (long)((all - done) / rate + 0.5);
    char text[160];
    int length = snprintf(text, sizeof text, " %lld/%lld  loss %-10.4g %7.4g steps/s  ETA %ld:%02ld", (long long)t, (long long)run->last,
                          (double)run->loss, rate, left / 60, left % 60);
    int columns = cli_columns() - 1; /* some terminals wrap in the last one */
    int width = columns - length - 2;
    width = width > 40 ? 40 : width;
    if (length > columns) text[columns < 0 ? 0 : columns] = '\0';
    bool utf8 = cli_utf8();
    printf("\r");
    if (width > 4) {
        int full = (int)(done / all * width);
        printf("[");
        for (int i = 0; i < width; i++) fputs(i < full ? (utf8 ? "\u2588" : "#") : (utf8 ? "\u2591" : "."), stdout);
        printf("]");
    }
    printf("%s\033[K%s", text, t == run->last ? "\n" : "");
    fflush(stdout);
}

static double rate_at(const training *run, int64_t t) { return tg_lr_value(run->session.optimizer.lr, t - run->lr_began); }

static void print_line(training *run, int64_t t) {
    int64_t every = (run->last - run->first + 1) / 20;
    if (every < 1) every = 1;
    if (t != run->first && t != run->last && t % every != 0) return;
    printf("step %lld/%lld  loss %.6g  lr %.4g  %.3g ms/step\n", (long long)t, (long long)run->last, (double)run->loss, rate_at(run, t),
           1e3 * (cli_seconds() - run->began) / (double)(t - run->first + 1));
    fflush(stdout);
}

static void print_json_step(training *run, int64_t t) {
    printf("{\"step\": %lld, \"loss\": ", (long long)t);
    cli_json_number(stdout, (double)run->loss, 9);
    printf(", \"lr\": ");
    cli_json_number(stdout, rate_at(run, t), 9);
    printf(", \"ms\": %.4g%s", run->step_ms, run->last_skipped ? ", \"skipped\": true" : "");
    run->open = t == run->last;
    if (!run->open) printf("}\n");
}

static void end_json(training *run) {
    if (run->open) printf("}\n");
    run->open = false;
}

static void show_step(training *run, int64_t t) {
    if (run->options->json) {
        print_json_step(run, t);
    } else if (run->bar) {
        draw_bar(run, t);
    } else {
        print_line(run, t);
    }
}

/* A step has been made. One that was skipped is none to the schedule. */
static void note_step(training *run, int64_t t, bool skipped) {
    run->last_skipped = skipped;
    cli_history_add(run->history, t, (double)run->loss);
    show_step(run, t);
    if (!skipped) return;
    run->skipped++;
    run->lr_began++;
}

/* After the first one, and at the end how many. */
static void tell_first_skipped(const training *run, int64_t before) {
    if (before != 0 || run->skipped == 0) return;
    if (run->bar) printf("\n");
    cli_say("%s", tg_error_message(run->session.ctx));
}

static int tell_skipped(const training *run) {
    if (run->skipped == 0) return CLI_DONE;
    cli_say("%lld of %lld steps were skipped: loss or gradient not finite%s", (long long)run->skipped,
            (long long)(run->last - run->first + 1), run->last_skipped ? "; the last one too" : "");
    return run->last_skipped ? CLI_FAILED : CLI_DONE;
}

/* ---------------------------------------------------------------- before */

/* The folder of a file to be written must exist: check before hours of training, not after. */
static int check_folder(const char *option, const char *path) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    char *folder = malloc(length + 2);
    if (!folder) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    memcpy(folder, path, length);
    memcpy(folder + length, length ? "" : ".", length ? 1 : 2);
    int code = CLI_DONE;
    if (access(folder, W_OK) != 0) {
        cli_say("%s: cannot write to '%s': %s", option, path, strerror(errno));
        code = CLI_USAGE;
    }
    free(folder);
    return code;
}

/* Writes the file that a symbolic link names. */
static int check_target(tg_context *ctx, const char *option, const char *path) {
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) { /* it would be replaced */
        cli_say("%s: '%s' is not a regular file", option, path);
        return CLI_USAGE;
    }
    char *target = NULL;
    if (tg_file_target(ctx, option, path, &target) != TG_OK) {
        cli_say("%s", tg_error_message(ctx));
        return CLI_USAGE;
    }
    int code = check_folder(option, target);
    tg_release(ctx, target, strlen(target) + 1);
    return code;
}

static bool ends_in_svg(const char *path) {
    const size_t length = strlen(path);
    return length >= 4 && strcasecmp(path + length - 4, ".svg") == 0;
}

static int check_targets(const cli_options *options) {
    if (options->plot && !ends_in_svg(options->plot)) {
        cli_say("--plot writes SVG: '%s' does not end in .svg", options->plot);
        return CLI_USAGE;
    }
    tg_context *ctx = cli_context();
    if (!ctx) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    int code = options->save ? check_target(ctx, "--save", options->save) : CLI_DONE;
    if (code == CLI_DONE && options->plot) code = check_target(ctx, "--plot", options->plot);
    tg_context_destroy(ctx);
    return code;
}

/* Options that say something about each other. */
static int check_pairs(const cli_options *options) {
    const char *problem = NULL;
    if (options->json && options->picture) problem = "--json and --picture exclude each other";
    if (options->load && options->resume) problem = "--load and --resume exclude each other: --resume loads too";
    if (options->check_finite && options->skip_non_finite)
        problem = "--check-finite and --skip-non-finite exclude each other: the first ends the run before such a step";
    if (options->save_every && !options->save) problem = "--save-every needs --save";
    if (options->steps == 0) {
        if (options->save_every) problem = "--save-every needs steps: --steps 0 makes none";
        if (options->target_loss > 0) problem = "--target-loss needs steps: --steps 0 makes none";
        if (options->on_device) problem = "--on-device needs steps: --steps 0 makes none";
        if (options->lr > 0) problem = "--lr needs steps: --steps 0 makes none";
        if (options->check_finite) problem = "--check-finite needs steps: --steps 0 makes none";
        if (options->skip_non_finite) problem = "--skip-non-finite needs steps: --steps 0 makes none";
    }
    if (!problem) return CLI_DONE;
    cli_say("%s", problem);
    return CLI_USAGE;
}

static int check_options(const cli_options *options, const tg_example **example) {
    if (options->word_count != 1) {
        cli_say("train takes one example, got %d", options->word_count);
        return CLI_USAGE;
    }
    *example = tg_example_find(options->words[0]);
    if (!*example) return cli_no_example(options->words[0]);
    int code = check_pairs(options);
    return code == CLI_DONE ? check_targets(options) : code;
}

/* --resume: all of the file; --load: its parameters and states. */
static int begin_from_file(training *run, const cli_options *options) {
    const char *path = options->resume ? options->resume : options->load;
    tg_model *model = run->session.model;
    tg_status status = path ? tg_model_load(model, path) : TG_OK;
    if (status == TG_OK && options->load) status = tg_model_reset_optimizer(model);
    if (status != TG_OK) {
        cli_say("%s", tg_error_message(run->session.ctx));
        return CLI_USAGE;
    }
    if (!options->resume) return CLI_DONE;
    if (!(options->lr > 0)) {
        uint64_t skipped = 0;
        int64_t start = 0;
        int code = cli_checkpoint_number(path, "skipped", &skipped);
        if (code == CLI_DONE) code = cli_checkpoint_schedule(path, &run->session.optimizer.lr, &start);
        run->lr_began = (int64_t)skipped + start; /* the load has checked them */
        return code;
    }
    run->lr_began = tg_model_step_count(model);
    if (tg_model_set_lr(model, run->session.optimizer.lr) == TG_OK) return CLI_DONE;
    return cli_context_error(run->session.ctx, "--lr", CLI_FAILED);
}

static int prepare(training *run, const tg_example *example) {
    cli_options options = *run->options;
    if (options.resume && !options.has_seed) {
        int code = cli_checkpoint_number(options.resume, "seed", &options.seed);
        if (code != CLI_DONE) return code;
    }
    run->seed = options.seed;
    run->history = calloc(1, sizeof *run->history);
    if (!run->history) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    int code = cli_session_open(&run->session, example, &options, true);
    if (code != CLI_DONE) return code;
    tg_model *model = run->session.model;
    code = begin_from_file(run, &options);
    if (code != CLI_DONE) return code;
    run->forward = tg_compile_sibling(model, example->forward, NULL);
    if (!run->forward) return cli_context_error(run->session.ctx, example->name, CLI_FAILED);
    int64_t done = tg_model_step_count(model);
    int64_t steps = options.steps >= 0 ? options.steps : example->default_steps;
    if (done > INT32_MAX - steps) {
        cli_say("--steps %lld on top of the %lld of the checkpoint is too large (at most %d together)", (long long)steps, (long long)done,
                INT32_MAX);
        return CLI_USAGE;
    }
    run->first = done + 1;
    run->last = done + steps;
    /* Adam at a constant rate has spikes. With a target the run goes on until it ends outside a
     * spike. */
    run->limit = options.target_loss > 0 ? run->last + steps : run->last;
    return CLI_DONE;
}

static void print_start(const training *run) {
    tg_model_info info;
    if (run->options->json || tg_model_get_info(run->session.model, &info) != TG_OK) return;
    printf("%s on %s: %lld parameters, %d kernels a step, ", run->session.example->name, info.device, (long long)info.parameters,
           info.kernels);
    if (run->last < run->first) printf("no step: as it is after %lld\n", (long long)run->last);
    else printf("steps %lld to %lld\n", (long long)run->first, (long long)run->last);
}

/* ---------------------------------------------------------------- during and after */

/* No signal ends the program while a file is written: it would leave a partial file next to it. */
static int save(training *run) {
    sigset_t all, before;
    sigemptyset(&all);
    for (int i = 0; i < END_SIGNALS; i++) sigaddset(&all, end_signals[i]);
    sigprocmask(SIG_BLOCK, &all, &before);
    tg_status status = tg_model_save(run->session.model, run->options->save);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status == TG_OK ? CLI_DONE : CLI_FAILED;
}

/* finish() saves the last step. A disk that is full for a while must not end a run of hours. */
static void save_now_and_then(training *run, int64_t t) {
    if (run->options->save_every == 0 || t % run->options->save_every != 0 || t >= run->last) return;
    if (save(run) == CLI_DONE) return;
    if (run->bar) printf("\n");
    cli_say("step %lld: %s", (long long)t, tg_error_message(run->session.ctx));
}

/* --steps 0: what a step would be told, without making one. */
static int run_no_step(training *run) {
    cli_session *session = &run->session;
    const int64_t t = run->first;
    session->example->fill_batch(run->seed, t, session->batch, session->arrays);
    double start = cli_seconds();
    if (tg_run(session->model, session->feeds, session->example->input_count, &run->loss, 1) != TG_OK)
        return cli_context_error(session->ctx, session->example->name, CLI_FAILED);
    run->step_ms = 1e3 * (cli_seconds() - start);
    if (run->options->json) print_json_step(run, run->last);
    else printf("loss %.6g on the batch of step %lld\n", (double)run->loss, (long long)t);
    return CLI_DONE;
}

/* The message of a loss that is not finite names its step. With --check-finite the call site is in
 * the example that made the value. */
static int step_failed(const training *run, const char *what) {
    const tg_site site = tg_error_site(run->session.ctx);
    if (tg_error(run->session.ctx) != TG_ERROR_NOT_FINITE) return cli_context_error(run->session.ctx, what, CLI_FAILED);
    if (run->options->check_finite && site.file && site.line > 0)
        cli_say("%.200s:%d: %s", site.file, (int)site.line, tg_error_message(run->session.ctx));
    else cli_say("%s", tg_error_message(run->session.ctx));
    return CLI_FAILED;
}

static int run_steps(training *run) {
    run->began = cli_seconds();
    for (int64_t t = run->first; t <= run->last; t++) {
        tg_status status = cli_session_step(&run->session, run->seed, t, &run->loss, &run->step_ms);
        if (tg_model_step_count(run->session.model) == t) { /* made: --check-finite refuses some */
            const int64_t before = run->skipped;
            const bool skipped = status == TG_ERROR_NOT_FINITE && run->options->skip_non_finite;
            if (skipped) status = TG_OK;
            if (t == run->last && t < run->limit && !((double)run->loss < run->options->target_loss)) run->last++;
            /* stops after this step, keeping what it did */
            if (interrupted || status != TG_OK) run->last = t;
            note_step(run, t, skipped);
            tell_first_skipped(run, before);
        }
        if (status == TG_OK) {
            save_now_and_then(run, t);
            continue;
        }
        end_json(run);
        char what[64];
        snprintf(what, sizeof what, "step %lld", (long long)t);
        return step_failed(run, what);
    }
    return CLI_DONE;
}

/* Of the steps made since, each is shown; the last line is of the last step made. */
static bool on_step(void *user, int64_t step, float loss) {
    training *run = user;
    const int64_t made = tg_model_step_count(run->session.model);
    run->loss = loss;
    run->step_ms = 1e3 * (cli_seconds() - run->began) / (double)(made - run->first + 1);
    if (step == run->last && step < run->limit && !((double)loss < run->options->target_loss)) run->last++;
    const bool skipped = !isfinite(loss) && run->options->skip_non_finite;
    if ((interrupted || (!isfinite(loss) && !skipped)) && run->last > made) run->last = made;
    note_step(run, step, skipped);
    return step < run->last;
}

static int run_on_device(training *run) {
    const int64_t batches = cli_session_batches(&run->session, run->limit - run->first + 1);
    tg_dataset *dataset = cli_session_dataset(&run->session, run->seed, run->first, batches);
    if (!dataset) return CLI_FAILED;
    int code = CLI_DONE;
    tg_train_options options = {.order = TG_BATCH_SEQUENTIAL, .progress = on_step, .progress_user = run};
    run->began = cli_seconds();
    while (code == CLI_DONE && tg_model_step_count(run->session.model) < run->last) {
        const int64_t made = tg_model_step_count(run->session.model), every = run->options->save_every;
        options.steps = run->last - made;
        if (every && options.steps > every - made % every) options.steps = every - made % every;
        const int64_t before = run->skipped;
        tg_status status = tg_train(run->session.model, dataset, &options, NULL, NULL);
        if (status == TG_ERROR_NOT_FINITE && run->options->skip_non_finite) {
            tell_first_skipped(run, before);
            status = TG_OK;
        }
        if (status == TG_OK) {
            save_now_and_then(run, tg_model_step_count(run->session.model));
            continue;
        }
        end_json(run);
        code = step_failed(run, "train");
    }
    tg_dataset_destroy(dataset);
    return code;
}

static int show_score(training *run) {
    const tg_example *example = run->session.example;
    bool json = run->options->json;
    double score = 0;
    tg_status status = TG_OK;
    if (example->evaluate) status = example->evaluate(run->forward, run->seed, json ? NULL : stdout, &score);
    if (json) {
        if (status == TG_OK && example->evaluate) {
            printf(", \"%s\": ", example->score_name);
            cli_json_number(stdout, score, 9);
        }
        end_json(run);
    }
    return status == TG_OK ? CLI_DONE : cli_context_error(run->session.ctx, "evaluation", CLI_FAILED);
}

static int draw(training *run) {
    const tg_example *example = run->session.example;
    cli_curves curves = {.title = example->name, .history = run->history};
    int code = CLI_DONE;
    float *points = NULL;
    if (example->fit) {
        size_t count = (size_t)example->fit_points;
        points = calloc(3 * count, sizeof *points);
        if (!points) {
            cli_say("out of memory");
            return CLI_FAILED;
        }
        if (example->fit(run->forward, points, points + count, points + 2 * count) != TG_OK) {
            code = cli_context_error(run->session.ctx, "fit", CLI_FAILED);
        } else {
            curves.fit_count = example->fit_points;
            curves.x = points;
            curves.truth = points + count;
            curves.predicted = points + 2 * count;
        }
    }
    if (run->options->picture) cli_picture(stdout, &curves, cli_colour(), cli_columns());
    if (run->options->plot) {
        int plotted = cli_plot(run->session.ctx, run->options->plot, &curves);
        code = code == CLI_DONE ? plotted : code;
    }
    free(points);
    return code;
}

static int finish(training *run) {
    const cli_options *options = run->options;
    int code = CLI_DONE;
    /* saved first: whatever fails later, the training is kept */
    if (options->save && save(run) != CLI_DONE) {
        end_json(run);
        cli_say("%s", tg_error_message(run->session.ctx));
        return CLI_FAILED;
    }
    code = show_score(run);
    if (code == CLI_DONE && (options->picture || options->plot)) code = draw(run);
    const int skipped = tell_skipped(run);
    if (code == CLI_DONE) code = skipped;
    if (code == CLI_DONE && options->target_loss > 0) {
        bool reached = (double)run->loss < options->target_loss;
        if (!options->json) {
            printf("last loss %.3g is %s %g, %.3g steps/s\n", (double)run->loss, reached ? "below" : "not below", options->target_loss,
                   (double)(run->last - run->first + 1) / (cli_seconds() - run->began));
        }
        if (!reached) {
            cli_say("the last loss %g is not below %g", (double)run->loss, options->target_loss);
            code = CLI_FAILED;
        }
    }
    if (code == CLI_DONE && interrupted) {
        cli_say("interrupted after step %lld (%s)%s", (long long)run->last, interrupted_by(), options->save ? "; saved" : "");
        code = CLI_FAILED;
    }
    return code;
}

int command_train(const cli_options *options) {
    training run = {.options = options};
    const tg_example *example = NULL;
    int code = check_options(options, &example);
    if (code != CLI_DONE) return code;
    run.bar = !options->json && cli_cursor();
    code = prepare(&run, example);
    if (code == CLI_DONE) {
        catch_signals();
        print_start(&run);
        code = run.last < run.first ? run_no_step(&run) : options->on_device ? run_on_device(&run) : run_steps(&run);
    }
    if (code == CLI_DONE) code = finish(&run);
    cli_session_close(&run.session);
    free(run.history);
    return code;
}
