/* options: the tables of commands and options, and a parser that reports each error of a command
 * line in one line. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(cli_options, name)
#define MAX_STEPS 1000000000
#define MAX_THREADS 1024
#define MAX_BATCH 65536

#define ON_DEVICE (CLI_TRAIN | CLI_BENCH | CLI_INSPECT)

static const cli_option option_table[] = {
    {"--steps", "N", CLI_COUNT, CLI_TRAIN, FIELD(steps), 0, MAX_STEPS,
     "steps to run now (default: the example's own number); 0 evaluates without training"},
    {"--steps", "N", CLI_COUNT, CLI_BENCH, FIELD(steps), 1, MAX_STEPS, "steps to time (default: enough for a second or two)"},
    {"--batch", "N", CLI_COUNT, ON_DEVICE, FIELD(batch), 1, MAX_BATCH, "rows of a batch (default: the example's own number)"},
    {"--lr", "X", CLI_NUMBER, CLI_TRAIN, FIELD(lr), 0, 0,
     "peak learning rate; the example's schedule keeps its shape. With --resume the "
     "schedule begins again at the first step"},
    {"--seed", "S", CLI_SEED, CLI_TRAIN | CLI_BENCH, FIELD(seed), 0, 0,
     "seed of initial values and batches (default 5; a resumed run keeps its own)"},
    {"--device", "D", CLI_DEVICE, ON_DEVICE, FIELD(device), 0, 0, "auto (a GPU if there is one, else the CPU), cpu or webgpu"},
    {"--adapter", "A", CLI_NAME, CLI_DEVICES | ON_DEVICE | CLI_TUNE, FIELD(adapter), 0, 0,
     "which WebGPU adapter: #0 as `devices` counts, or a part of its name, vendor or backend"},
    {"--precision", "P", CLI_PRECISION, ON_DEVICE, FIELD(precision), 0, 0,
     "f32, or f16: large matrix products round their operands to f16 if the adapter offers "
     "it"},
    {"--threads", "N", CLI_COUNT, ON_DEVICE, FIELD(threads), 1, MAX_THREADS,
     "CPU threads; the result does not depend on it (default: TENSORGRAD_THREADS, else all cores)"},
    {"--data", "FOLDER", CLI_FOLDER, CLI_TRAIN | CLI_BENCH, FIELD(data), 0, 0,
     "folder of the files that some examples train on, where scripts/get-data put them "
     "(default: TENSORGRAD_DATA, else the user's tensorgrad folder)"},
    {"--save", "FILE", CLI_FILE, CLI_TRAIN, FIELD(save), 0, 0,
     "write a checkpoint (safetensors) at the end, and when a signal ends the run. The old "
     "file stays until the new one is complete; a symbolic link stays a link; the file "
     "keeps its mode"},
    {"--save-every", "N", CLI_COUNT, CLI_TRAIN, FIELD(save_every), 1, MAX_STEPS, "also write it after each N steps"},
    {"--load", "FILE", CLI_FILE, CLI_TRAIN, FIELD(load), 0, 0,
     "begin with the parameters and states of a file; training starts at step 1. With "
     "--steps 0: evaluate them"},
    {"--resume", "FILE", CLI_FILE, CLI_TRAIN, FIELD(resume), 0, 0,
     "continue from a checkpoint, with the batches of a run that never stopped"},
    {"--plot", "FILE.svg", CLI_FILE, CLI_TRAIN, FIELD(plot), 0, 0, "draw the loss, and the fit if there is one, as SVG"},
    {"--picture", NULL, CLI_FLAG, CLI_TRAIN, FIELD(picture), 0, 0, "draw them in the terminal"},
    {"--check-finite", NULL, CLI_FLAG, CLI_TRAIN, FIELD(check_finite), 0, 0,
     "look at all values before each step (slow); if a loss or gradient is not finite, "
     "name the first operation that made such a value"},
    {"--skip-non-finite", NULL, CLI_FLAG, CLI_TRAIN, FIELD(skip_non_finite), 0, 0,
     "a step whose loss or gradient is not finite changes nothing, and the run continues "
     "with the next batch; exit with 1 if the last step is such a step"},
    {"--target-loss", "X", CLI_NUMBER, CLI_TRAIN, FIELD(target_loss), 0, 0,
     "continue for up to as many steps again until the loss is below X; exit with 1 if it "
     "never is"},
    {"--on-device", NULL, CLI_FLAG, CLI_TRAIN, FIELD(on_device), 0, 0,
     "make the batches first (at most 64 MB at a time), keep them on the device, and give "
     "it many steps at a time: the same losses, sooner"},
    {"--check", NULL, CLI_FLAG, CLI_DEVICES, FIELD(check), 0, 0,
     "run a few hundred small operations and a short training on each adapter and on the "
     "CPU; exit with 1 if they differ"},
    {"--profile", NULL, CLI_FLAG, CLI_BENCH, FIELD(profile), 0, 0,
     "for one example: the time of each kernel of a step (CPU: the least of N steps) or each launch "
     "(GPU: the median of N steps), the slowest first, with its rates and the best of the device"},
    {"--trace", "FILE.json", CLI_FILE, CLI_BENCH, FIELD(trace), 0, 0,
     "with --profile: also write the step as a trace, which Perfetto and chrome://tracing show"},
    {"--ir", NULL, CLI_FLAG, CLI_INSPECT, FIELD(ir), 0, 0, "print the graph after the passes"},
    {"--kernels", NULL, CLI_FLAG, CLI_INSPECT, FIELD(kernels), 0, 0, "print the fused kernels"},
    {"--plan", NULL, CLI_FLAG, CLI_INSPECT, FIELD(plan), 0, 0, "print the buffers and their offsets"},
    {"--dot", NULL, CLI_FLAG, CLI_INSPECT, FIELD(dot), 0, 0, "print the graph for Graphviz"},
    {"--c", NULL, CLI_FLAG, CLI_INSPECT, FIELD(c), 0, 0, "print the step as a C program"},
    {"--wgsl", NULL, CLI_FLAG, CLI_INSPECT, FIELD(wgsl), 0, 0, "print the kernels for the device; on the CPU, for any WebGPU device"},
    {"--seconds", "S", CLI_NUMBER, CLI_TUNE, FIELD(seconds), 0, 0, "time to spend on each workload (default 30)"},
    {"--dry-run", NULL, CLI_FLAG, CLI_TUNE, FIELD(dry_run), 0, 0, "store nothing"},
    {"--json", NULL, CLI_FLAG, CLI_DEVICES, FIELD(json), 0, 0,
     "one object. The list: cpu {vectors, cores}; webgpu [{index, name, vendor, architecture, backend, type, max_buffer_bytes, "
     "max_binding_bytes, max_storage_buffers, max_workgroup_bytes, max_workgroup_invocations, max_workgroups, subgroup_min, subgroup_max, "
     "timestamps, subgroups, f16, subgroup_matrices, executes}]; webgpu_none: why there is no adapter, or null. One that executes nothing "
     "is used only where --adapter names it. --check: adapters [{index, name, "
     "backend, agree, differ, error, differences [{op, shape, ulp, relative}]}]"},
    {"--json", NULL, CLI_FLAG, CLI_TRAIN, FIELD(json), 0, 0,
     "one object for each step: step, loss, lr, ms, and skipped (true) if it was; the last "
     "also has the score"},
    {"--json", NULL, CLI_FLAG, CLI_BENCH, FIELD(json), 0, 0,
     "one object for each workload: workload, device, adapter, steps, ms_per_step "
     "(median), ms_min, dispatches, peak_bytes, loss_first, loss_last, gflops and more"},
    {"--json", NULL, CLI_FLAG, CLI_INSPECT, FIELD(json), 0, 0,
     "one object: parameters, nodes, kernels, dispatches, program_bytes, peak_bytes and "
     "more; for a checkpoint its tensors"},
    {"--json", NULL, CLI_FLAG, CLI_TUNE, FIELD(json), 0, 0,
     "one object each: workload, what, usual, best, usual_us, best_us, gain, choices, tried, wrong, faster"},
    {"--help", NULL, CLI_FLAG, ~0U, FIELD(help), 0, 0, "print this"},
};

static const cli_command command_table[] = {
    {"devices", CLI_DEVICES, "", "what this machine can compute with", "The CPU, and each adapter of the WebGPU library with its limits.",
     command_devices},
    {"train", CLI_TRAIN, "EXAMPLE", "train an example, show the progress, save and draw the result",
     "When interrupted (SIGINT, SIGTERM, SIGHUP, or a reader of its output that went "
     "away), it finishes the current step, saves and ends. A second signal ends it at "
     "once.",
     command_train},
    {"bench", CLI_BENCH, "WORKLOAD...", "time steps of examples, and matrix products",
     "WORKLOAD: an example, a model of any size (gpt:L6,D384,H6,T256,B64,V65), or matmul:N. An "
     "example or model: times whole steps, inputs sent and loss read; then steps without "
     "waiting (pipelined), and steps on data that is on the device (train). matmul: on the CPU the product on one thread; on WebGPU the "
     "product "
     "of two matrices on the device, until 4 bytes are back.",
     command_bench},
    {"inspect", CLI_INSPECT, "EXAMPLE|FILE", "the compiled training step of an example, or the tensors of a checkpoint",
     "EXAMPLE: also a model of any size (mlp:W64,N4,B16384).", command_inspect},
    {"tune", CLI_TUNE, "WORKLOAD...", "time layouts of kernels on a WebGPU adapter, keep the fastest",
     "WORKLOAD: an example, a model of any size, matmul:N or matmul:MxNxK. A layout that is faster by 5 % is "
     "kept for all later runs on that adapter, in the file that TENSORGRAD_TUNING names, "
     "else tensorgrad/tuning.txt in the user's cache folder.",
     command_tune},
    {"completion", CLI_COMPLETION, "bash|zsh|fish", "print the completions for a shell",
     "For example: source <(tensorgrad completion bash)", command_completion},
    {"man", CLI_MAN, "", "print the manual page (troff)", "For example: tensorgrad man | man -l -", command_man},
};

const cli_option *cli_option_table(int *count) {
    *count = (int)(sizeof option_table / sizeof option_table[0]);
    return option_table;
}

const cli_command *cli_command_table(int *count) {
    *count = (int)(sizeof command_table / sizeof command_table[0]);
    return command_table;
}

const cli_command *cli_command_find(const char *name) {
    for (size_t i = 0; i < sizeof command_table / sizeof command_table[0]; i++)
        if (strcmp(command_table[i].name, name) == 0) return &command_table[i];
    return NULL;
}

static bool is_digits(const char *text) {
    if (!*text) return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9') return false;
    return true;
}

static int parse_count(const cli_option *entry, const char *text, int64_t *out) {
    errno = 0;
    long long value = is_digits(text) ? strtoll(text, NULL, 10) : -1;
    if (value < 0) cli_say("%s takes a whole number, not '%s'", entry->name, text);
    else if (value < entry->least) cli_say("%s must be at least %lld", entry->name, (long long)entry->least);
    else if (errno == ERANGE || value > entry->most)
        cli_say("%s %s is too large (at most %lld)", entry->name, text, (long long)entry->most);
    else {
        *out = value;
        return CLI_DONE;
    }
    return CLI_USAGE;
}

static int parse_seed(const cli_option *entry, const char *text, uint64_t *out) {
    errno = 0;
    unsigned long long value = is_digits(text) ? strtoull(text, NULL, 10) : 0;
    if (!is_digits(text)) cli_say("%s takes a whole number, not '%s'", entry->name, text);
    else if (errno == ERANGE) cli_say("%s %s is too large (at most 2^64 - 1)", entry->name, text);
    else {
        *out = value;
        return CLI_DONE;
    }
    return CLI_USAGE;
}

static int parse_number(const cli_option *entry, const char *text, double *out) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0) {
        cli_say("%s takes a number above 0, not '%s'", entry->name, text);
        return CLI_USAGE;
    }
    *out = value;
    return CLI_DONE;
}

static int parse_device(const char *text, tg_device_kind *out) {
    if (strcmp(text, "auto") == 0) *out = TG_DEVICE_AUTO;
    else if (strcmp(text, "cpu") == 0) *out = TG_DEVICE_CPU;
    else if (strcmp(text, "webgpu") == 0) *out = TG_DEVICE_WEBGPU;
    else {
        cli_say("--device takes auto, cpu or webgpu, not '%s'", text);
        return CLI_USAGE;
    }
    return CLI_DONE;
}

static int parse_precision(const char *text, tg_precision *out) {
    if (strcmp(text, "f32") == 0) *out = TG_PRECISION_F32;
    else if (strcmp(text, "f16") == 0) *out = TG_PRECISION_F16;
    else {
        cli_say("--precision takes f32 or f16, not '%s'", text);
        return CLI_USAGE;
    }
    return CLI_DONE;
}

static int parse_value(const cli_option *entry, const char *text, cli_options *out) {
    void *field = (char *)out + entry->field;
    switch (entry->kind) {
    case CLI_COUNT: return parse_count(entry, text, field);
    case CLI_SEED: out->has_seed = true; return parse_seed(entry, text, field);
    case CLI_NUMBER: return parse_number(entry, text, field);
    case CLI_DEVICE: return parse_device(text, field);
    case CLI_PRECISION: return parse_precision(text, field);
    case CLI_FLAG:
    case CLI_NAME:
    case CLI_FOLDER:
    case CLI_FILE: break;
    }
    if (!*text) {
        const char *noun = entry->kind == CLI_NAME ? "name" : entry->kind == CLI_FOLDER ? "folder" : "file name";
        cli_say("%s needs a %s", entry->name, noun);
        return CLI_USAGE;
    }
    *(const char **)field = text;
    return CLI_DONE;
}

/* The entry for "--name" or "--name=value"; NULL when there is none for this command. */
static const cli_option *find_option(const char *word, unsigned command) {
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof option_table / sizeof option_table[0]; i++) {
        const cli_option *entry = &option_table[i];
        if ((entry->commands & command) && strlen(entry->name) == length && strncmp(word, entry->name, length) == 0) return entry;
    }
    return NULL;
}

/* The number of letters to insert, remove or change to turn one word into another. Words over 31
 * letters are cut. */
static int edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int row[32];
    if (a_length > 31) a_length = 31;
    if (b_length > 31) b_length = 31;
    for (size_t j = 0; j <= b_length; j++) row[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int best = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[b_length];
}

/* The option of the command that is spelt most like the word; NULL when none is near. */
static const char *nearest_option(const char *word, unsigned command) {
    const char *nearest = NULL;
    size_t length = strcspn(word, "=");
    int least = 3;
    for (size_t i = 0; i < sizeof option_table / sizeof option_table[0]; i++) {
        const cli_option *entry = &option_table[i];
        if (!(entry->commands & command)) continue;
        int distance = edit_distance(word, length, entry->name, strlen(entry->name));
        if (distance >= least) continue;
        least = distance;
        nearest = entry->name;
    }
    return nearest;
}

static int no_such_option(const cli_command *command, const char *word) {
    const char *near = nearest_option(word, command->bit);
    if (near) cli_say("%s: unknown option '%s'; did you mean %s? (`tensorgrad %s --help`)", command->name, word, near, command->name);
    else cli_say("%s: unknown option '%s'; try `tensorgrad %s --help`", command->name, word, command->name);
    return CLI_USAGE;
}

/* What one option says about another. An adapter that was named is the device that is meant. */
static int check_together(const char *command, cli_options *options) {
    if (options->adapter && options->device == TG_DEVICE_CPU) {
        cli_say("--adapter names a WebGPU adapter, but the device asked for is the CPU");
        return CLI_USAGE;
    }
    if (options->adapter && strcmp(command, "devices") == 0 && !options->check) {
        cli_say("devices --adapter needs --check: the list is of all adapters");
        return CLI_USAGE;
    }
    if (options->trace && !options->profile) {
        cli_say("--trace needs --profile");
        return CLI_USAGE;
    }
    if (options->adapter) options->device = TG_DEVICE_WEBGPU;
    return CLI_DONE;
}

/* Takes the option at words[*i], and its value, which may be the next word. */
static int take_option(const cli_command *command, int count, char **words, int *i, cli_options *out) {
    const char *word = words[*i];
    const cli_option *entry = find_option(strcmp(word, "-h") == 0 ? "--help" : word, command->bit);
    if (!entry) return no_such_option(command, word);
    const char *value = strchr(word, '=');
    if (entry->kind == CLI_FLAG) {
        if (value) {
            cli_say("%s takes no value", entry->name);
            return CLI_USAGE;
        }
        *(bool *)((char *)out + entry->field) = true;
        return CLI_DONE;
    }
    if (value) value++;
    else if (*i + 1 < count) value = words[++*i];
    else {
        cli_say("%s needs a value", entry->name);
        return CLI_USAGE;
    }
    return parse_value(entry, value, out);
}

int cli_parse(const cli_command *command, int count, char **words, cli_options *out) {
    memset(out, 0, sizeof *out);
    out->seed = CLI_DEFAULT_SEED;
    out->steps = CLI_STEPS_NOT_GIVEN;
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        if (word[0] != '-' || !word[1]) {
            if (out->word_count == CLI_MAX_WORDS) {
                cli_say("%s: too many arguments (at most %d)", command->name, CLI_MAX_WORDS);
                return CLI_USAGE;
            }
            out->words[out->word_count++] = word;
            continue;
        }
        int code = take_option(command, count, words, &i, out);
        if (code != CLI_DONE) return code;
    }
    return check_together(command->name, out);
}
