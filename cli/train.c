/* train: runs an example, shows how it goes, saves and draws what came of it. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

typedef struct training {
    const cli_options *options;
    cli_session session;
    tg_model *forward; /* sibling, owned by the model */
    uint64_t seed;
    int64_t first, last; /* steps of this run: first .. last */
    int64_t limit;       /* last may become that, until the target is reached */
    bool bar;            /* stdout is a terminal */
    double began, drawn; /* seconds */
    int64_t printed;     /* the step of the last line or bar */
    float loss;
    double step_ms;
    cli_history *history;
} training;

/* ---------------------------------------------------------------- what a step shows */

static int terminal_width(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

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
    int width = terminal_width() - length - 3;
    width = width > 40 ? 40 : width;
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

static double rate_at(const training *run, int64_t t) { return tg_lr_value(run->session.optimizer.lr, t); }

static void print_line(training *run, int64_t t) {
    int64_t every = (run->last - run->first + 1) / 20;
    if (every < 1) every = 1;
    if (t != run->first && t != run->last && t % every != 0) return;
    printf("step %lld/%lld  loss %.6g  lr %.4g  %.3g ms/step\n", (long long)t, (long long)run->last, (double)run->loss, rate_at(run, t),
           1e3 * (cli_seconds() - run->began) / (double)(t - run->first + 1));
    fflush(stdout);
}

static void print_json_step(const training *run, int64_t t) {
    printf("{\"step\": %lld, \"loss\": ", (long long)t);
    cli_json_number(stdout, (double)run->loss, 9);
    printf(", \"lr\": ");
    cli_json_number(stdout, rate_at(run, t), 9);
    printf(", \"ms\": %.4g", run->step_ms);
}

static void show_step(training *run, int64_t t) {
    if (run->options->json) {
        print_json_step(run, t);
        if (t != run->last) printf("}\n"); /* the last line waits for the score */
    } else if (run->bar) {
        draw_bar(run, t);
    } else {
        print_line(run, t);
    }
}

/* ---------------------------------------------------------------- before */

/* The folder of a file to be written must be there: better said before hours of training than after. */
static int check_target(const char *option, const char *path) {
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) { /* it would be replaced */
        cli_say("%s: '%s' is not a regular file", option, path);
        return CLI_USAGE;
    }
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

static int check_options(const cli_options *options, const tg_example **example) {
    if (options->word_count != 1) {
        cli_say("train takes one example, got %d", options->word_count);
        return CLI_USAGE;
    }
    *example = tg_example_find(options->words[0]);
    if (!*example) return cli_no_example(options->words[0]);
    if (options->json && options->picture) {
        cli_say("--json and --picture exclude each other");
        return CLI_USAGE;
    }
    int code = options->save ? check_target("--save", options->save) : CLI_DONE;
    if (code == CLI_DONE && options->plot) code = check_target("--plot", options->plot);
    return code;
}

static int prepare(training *run, const tg_example *example) {
    cli_options options = *run->options;
    if (options.resume && !options.has_seed) {
        int code = cli_checkpoint_seed(options.resume, &options.seed);
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
    if (options.resume && tg_model_load(model, options.resume) != TG_OK) {
        cli_say("%s", tg_error_message(run->session.ctx));
        return CLI_USAGE;
    }
    run->forward = tg_compile_sibling(model, example->forward, NULL);
    if (!run->forward) return cli_context_error(run->session.ctx, example->name, CLI_FAILED);
    int64_t done = tg_model_step_count(model);
    int64_t steps = options.steps ? options.steps : example->default_steps;
    if (done > INT32_MAX - steps) {
        cli_say("--steps %lld on top of the %lld of the checkpoint is too large (at most %d together)", (long long)steps, (long long)done,
                INT32_MAX);
        return CLI_USAGE;
    }
    run->first = done + 1;
    run->last = done + steps;
    /* Adam at a constant rate has spikes: with a target the run goes on until it does not end in one */
    run->limit = options.target_loss > 0 ? run->last + steps : run->last;
    return CLI_DONE;
}

static void print_start(const training *run) {
    tg_model_info info;
    if (run->options->json || tg_model_get_info(run->session.model, &info) != TG_OK) return;
    printf("%s on %s: %lld parameters, %d kernels a step, steps %lld to %lld\n", run->session.example->name, info.device,
           (long long)info.parameters, info.kernels, (long long)run->first, (long long)run->last);
}

/* ---------------------------------------------------------------- during and after */

static int run_steps(training *run) {
    run->began = cli_seconds();
    for (int64_t t = run->first; t <= run->last; t++) {
        tg_status status = cli_session_step(&run->session, run->seed, t, &run->loss, &run->step_ms);
        if (status == TG_OK || status == TG_ERROR_NOT_FINITE) {
            if (t == run->last && t < run->limit && !((double)run->loss < run->options->target_loss)) run->last++;
            if (interrupted || status != TG_OK) run->last = t; /* stops after this step, keeping what it did */
            cli_history_add(run->history, t, (double)run->loss);
            show_step(run, t);
        }
        if (status == TG_OK) continue;
        if (run->options->json && status == TG_ERROR_NOT_FINITE) printf("}\n");
        char what[64];
        snprintf(what, sizeof what, "step %lld", (long long)t);
        return cli_context_error(run->session.ctx, what, CLI_FAILED);
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
    if ((interrupted || !isfinite(loss)) && run->last > made) run->last = made;
    cli_history_add(run->history, step, (double)loss);
    show_step(run, step);
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
        options.steps = run->last - tg_model_step_count(run->session.model);
        tg_status status = tg_train(run->session.model, dataset, &options, NULL, NULL);
        if (status == TG_OK) continue;
        if (run->options->json && status == TG_ERROR_NOT_FINITE) printf("}\n");
        code = cli_context_error(run->session.ctx, "train", CLI_FAILED);
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
        printf("}\n");
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
    if (run->options->picture) cli_picture(stdout, &curves, run->bar);
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
    if (options->save && tg_model_save(run->session.model, options->save) != TG_OK) {
        if (options->json) printf("}\n");
        cli_say("%s", tg_error_message(run->session.ctx));
        return CLI_FAILED;
    }
    code = show_score(run);
    if (code == CLI_DONE && (options->picture || options->plot)) code = draw(run);
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
        cli_say("interrupted after step %lld", (long long)run->last);
        code = CLI_FAILED;
    }
    return code;
}

int command_train(const cli_options *options) {
    training run = {.options = options};
    const tg_example *example = NULL;
    int code = check_options(options, &example);
    if (code != CLI_DONE) return code;
    run.bar = !options->json && isatty(STDOUT_FILENO);
    code = prepare(&run, example);
    if (code == CLI_DONE) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = on_interrupt;
        action.sa_flags = (int)SA_RESETHAND; /* a second one ends the program at once */
        sigaction(SIGINT, &action, NULL);
        print_start(&run);
        code = options->on_device ? run_on_device(&run) : run_steps(&run);
    }
    if (code == CLI_DONE) code = finish(&run);
    cli_session_close(&run.session);
    free(run.history);
    return code;
}
