/* options: the table of options, and a parser that says in one line what is wrong with a command line. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 1, TRAIN = 2, BENCH = 4, INSPECT = 8, TUNE = 16 };

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_NAME,
    OPTION_FOLDER,
    OPTION_COUNT,
    OPTION_SEED,
    OPTION_RATE,
    OPTION_DEVICE,
    OPTION_PRECISION
} option_kind;

typedef struct option_entry {
    const char *name;
    option_kind kind;
    unsigned commands; /* which take it */
    size_t field;
    int64_t max; /* OPTION_COUNT: 1 .. max */
} option_entry;

#define FIELD(name) offsetof(cli_options, name)
#define MAX_STEPS 1000000000
#define MAX_THREADS 1024

static const option_entry option_table[] = {
    {"--device", OPTION_DEVICE, TRAIN | BENCH | INSPECT, FIELD(device), 0},
    {"--adapter", OPTION_NAME, DEVICES | TRAIN | BENCH | INSPECT | TUNE, FIELD(adapter), 0},
    {"--precision", OPTION_PRECISION, TRAIN | BENCH | INSPECT, FIELD(precision), 0},
    {"--check", OPTION_FLAG, DEVICES, FIELD(check), 0},
    {"--steps", OPTION_COUNT, TRAIN | BENCH, FIELD(steps), MAX_STEPS},
    {"--threads", OPTION_COUNT, TRAIN | BENCH | INSPECT, FIELD(threads), MAX_THREADS},
    {"--seed", OPTION_SEED, TRAIN | BENCH, FIELD(seed), 0},
    {"--profile", OPTION_FLAG, BENCH, FIELD(profile), 0},
    {"--data", OPTION_FOLDER, TRAIN | BENCH, FIELD(data), 0},
    {"--save", OPTION_TEXT, TRAIN, FIELD(save), 0},
    {"--resume", OPTION_TEXT, TRAIN, FIELD(resume), 0},
    {"--plot", OPTION_TEXT, TRAIN, FIELD(plot), 0},
    {"--picture", OPTION_FLAG, TRAIN, FIELD(picture), 0},
    {"--target-loss", OPTION_RATE, TRAIN, FIELD(target_loss), 0},
    {"--on-device", OPTION_FLAG, TRAIN, FIELD(on_device), 0},
    {"--json", OPTION_FLAG, DEVICES | TRAIN | BENCH | INSPECT | TUNE, FIELD(json), 0},
    {"--seconds", OPTION_RATE, TUNE, FIELD(seconds), 0},
    {"--dry-run", OPTION_FLAG, TUNE, FIELD(dry_run), 0},
    {"--ir", OPTION_FLAG, INSPECT, FIELD(ir), 0},
    {"--kernels", OPTION_FLAG, INSPECT, FIELD(kernels), 0},
    {"--plan", OPTION_FLAG, INSPECT, FIELD(plan), 0},
    {"--dot", OPTION_FLAG, INSPECT, FIELD(dot), 0},
    {"--c", OPTION_FLAG, INSPECT, FIELD(c), 0},
    {"--wgsl", OPTION_FLAG, INSPECT, FIELD(wgsl), 0},
    {"--help", OPTION_FLAG, DEVICES | TRAIN | BENCH | INSPECT | TUNE, FIELD(help), 0},
};

void cli_help(FILE *out) {
    fputs(
        "tensorgrad " TG_VERSION ": trains small neural networks\n"
        "\n"
        "tensorgrad devices [--json]\n"
        "    what this machine can compute with: the CPU, and each adapter of the WebGPU library with its limits. --json: cpu {vectors,\n"
        "    cores}; webgpu [{index, name, vendor, architecture, backend, type, max_buffer_bytes, max_binding_bytes, max_storage_buffers,\n"
        "    max_workgroup_bytes, max_workgroup_invocations, max_workgroups, subgroup_min, subgroup_max, timestamps, subgroups, f16,\n"
        "    subgroup_matrices}]; webgpu_none: why there is no adapter, or null\n"
        "tensorgrad devices --check [--adapter A] [--json]\n"
        "    runs some hundred small operations and a short training on every adapter and on the CPU; exit with 1 where they differ.\n"
        "    --json: adapters [{index, name, backend, agree, differ, error, differences [{op, shape, ulp, relative}]}]\n"
        "tensorgrad train EXAMPLE [options]\n"
        "    --steps N          steps to run now (default: the example's own number)\n"
        "    --seed S           of initial values and batches (default 5; a resumed run keeps its own)\n"
        "    --device D         auto (a GPU where there is one, else the CPU), cpu or webgpu\n"
        "    --adapter A        which WebGPU adapter: #0 as `devices` counts, or a part of its name, vendor or backend\n"
        "    --precision P      f32, or f16: large matrix products round their operands to f16, where the adapter offers it\n"
        "    --threads N        CPU threads; the result does not depend on it (default: TENSORGRAD_THREADS, else all cores)\n"
        "    --data FOLDER      where scripts/get-data put the files that some examples train on (default: TENSORGRAD_DATA, else the "
        "user's\n"
        "                       tensorgrad folder)\n"
        "    --save FILE        write a checkpoint at the end (safetensors)\n"
        "    --resume FILE      go on from a checkpoint: same batches as if it had never stopped\n"
        "    --plot FILE.svg    draw the loss, and the fit where there is one\n"
        "    --picture          draw them in the terminal\n"
        "    --target-loss X    go on, for up to as many steps again, until the loss is below X; exit with 1 if it never is\n"
        "    --on-device        make the batches beforehand (64 MB at most, then over again), keep them on the device, and give it many\n"
        "                       steps at a time: the same losses, sooner\n"
        "    --json             one object per step: step, loss, lr, ms\n"
        "tensorgrad bench WORKLOAD... [--steps N] [--device D] [--adapter A] [--precision P] [--threads N] [--seed S]\n"
        "                   [--data FOLDER] [--json]\n"
        "    WORKLOAD: an example, or matmul:N. Of an example, a whole step is timed, its inputs sent and its loss read; then steps that\n"
        "    are not waited for (pipelined), and steps on data that is on the device (train). Of matmul on the CPU, the product on\n"
        "    one thread; on WebGPU, the product of two matrices that are there, until 4 bytes came back\n"
        "tensorgrad bench EXAMPLE --profile [--steps N] [--threads N] [--seed S] [--json]\n"
        "    what each kernel of a step takes on the CPU (the least of N steps), the slowest first\n"
        "tensorgrad inspect EXAMPLE|FILE [--ir] [--kernels] [--plan] [--dot] [--c] [--wgsl] [--device D] [--adapter A] [--precision P]\n"
        "                   [--threads N] [--json]\n"
        "    the compiled training step of an example, or the tensors of a checkpoint. --wgsl: its kernels for the device, or, of the\n"
        "    CPU, for any WebGPU device\n"
        "tensorgrad tune WORKLOAD... [--adapter A] [--seconds S] [--dry-run] [--json]\n"
        "    WORKLOAD: an example, matmul:N or matmul:MxNxK. Times the ways in which its contractions and launches can be laid out on a\n"
        "    WebGPU adapter, S seconds for each (default 30), and keeps what is faster by 5 % for all later runs on it, in the file that\n"
        "    TENSORGRAD_TUNING names, else tensorgrad/tuning.txt in the user's cache folder. --dry-run keeps nothing. --json: one\n"
        "    object each: workload, what, usual, best, usual_us, best_us, gain, choices, tried, wrong, faster\n"
        "tensorgrad --version\n"
        "\nexamples:\n",
        out);
    int count = 0;
    const tg_example *examples = tg_examples(&count);
    for (int i = 0; i < count; i++) fprintf(out, "    %-18s %s\n", examples[i].name, examples[i].summary);
}

static unsigned command_bit(const char *command) {
    if (strcmp(command, "devices") == 0) return DEVICES;
    if (strcmp(command, "train") == 0) return TRAIN;
    if (strcmp(command, "bench") == 0) return BENCH;
    if (strcmp(command, "tune") == 0) return TUNE;
    return INSPECT;
}

static bool is_digits(const char *text) {
    if (!*text) return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9') return false;
    return true;
}

static int parse_count(const option_entry *entry, const char *text, int64_t *out) {
    errno = 0;
    long long value = is_digits(text) ? strtoll(text, NULL, 10) : -1;
    if (value < 0) cli_say("%s takes a whole number, not '%s'", entry->name, text);
    else if (value == 0) cli_say("%s must be at least 1", entry->name);
    else if (errno == ERANGE || value > entry->max) cli_say("%s %s is too large (at most %lld)", entry->name, text, (long long)entry->max);
    else {
        *out = value;
        return CLI_DONE;
    }
    return CLI_USAGE;
}

static int parse_seed(const option_entry *entry, const char *text, uint64_t *out) {
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

static int parse_rate(const option_entry *entry, const char *text, double *out) {
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

static int parse_value(const option_entry *entry, const char *text, cli_options *out) {
    void *field = (char *)out + entry->field;
    switch (entry->kind) {
    case OPTION_COUNT: return parse_count(entry, text, field);
    case OPTION_SEED: out->has_seed = true; return parse_seed(entry, text, field);
    case OPTION_RATE: return parse_rate(entry, text, field);
    case OPTION_DEVICE: return parse_device(text, field);
    case OPTION_PRECISION: return parse_precision(text, field);
    case OPTION_FLAG:
    case OPTION_NAME:
    case OPTION_FOLDER:
    case OPTION_TEXT: break;
    }
    if (!*text) {
        const char *noun = entry->kind == OPTION_NAME ? "name" : entry->kind == OPTION_FOLDER ? "folder" : "file name";
        cli_say("%s needs a %s", entry->name, noun);
        return CLI_USAGE;
    }
    *(const char **)field = text;
    return CLI_DONE;
}

/* The entry for "--name" or "--name=value"; NULL when there is none for this command. */
static const option_entry *find_option(const char *word, unsigned command) {
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof option_table / sizeof option_table[0]; i++) {
        const option_entry *entry = &option_table[i];
        if (strlen(entry->name) == length && strncmp(word, entry->name, length) == 0) return (entry->commands & command) ? entry : NULL;
    }
    return NULL;
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
    if (options->adapter) options->device = TG_DEVICE_WEBGPU;
    return CLI_DONE;
}

int cli_parse(const char *command, int count, char **words, cli_options *out) {
    memset(out, 0, sizeof *out);
    out->seed = CLI_DEFAULT_SEED;
    unsigned bit = command_bit(command);
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        if (word[0] != '-' || !word[1]) {
            if (out->word_count == CLI_MAX_WORDS) {
                cli_say("%s: too many arguments (at most %d)", command, CLI_MAX_WORDS);
                return CLI_USAGE;
            }
            out->words[out->word_count++] = word;
            continue;
        }
        const option_entry *entry = find_option(strcmp(word, "-h") == 0 ? "--help" : word, bit);
        if (!entry) {
            cli_say("%s: unknown option '%s'; try `tensorgrad --help`", command, word);
            return CLI_USAGE;
        }
        const char *value = strchr(word, '=');
        if (entry->kind == OPTION_FLAG) {
            if (value) {
                cli_say("%s takes no value", entry->name);
                return CLI_USAGE;
            }
            *(bool *)((char *)out + entry->field) = true;
            continue;
        }
        if (value) value++;
        else if (i + 1 < count) value = words[++i];
        else {
            cli_say("%s needs a value", entry->name);
            return CLI_USAGE;
        }
        int code = parse_value(entry, value, out);
        if (code != CLI_DONE) return code;
    }
    return check_together(command, out);
}
