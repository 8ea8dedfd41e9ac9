/* bench: times training steps and the matrix product, in one process, so that their ratio means
 * something. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_result {
    const char *workload;
    const tg_example *example; /* NULL: matmul */
    tg_scale scale;            /* of an example of any size */
    int64_t size;              /* matmul: N */
    char device[32], adapter[128];
    int64_t threads, steps;
    double ms_per_step, ms_min;
    double ms_pipelined, ms_train, host_ms; /* of an example; host_ms 0: steps run in place */
    tg_precision precision;                 /* in use */
    int dispatches, kernels, tuned;
    int64_t peak_bytes, parameters;
    double compile_s;
    double loss_first, loss_last;
    double flops; /* of the contractions of one step */
} bench_result;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *times, int64_t count) {
    qsort(times, (size_t)count, sizeof *times, compare_doubles);
    return count % 2 ? times[count / 2] : 0.5 * (times[count / 2 - 1] + times[count / 2]);
}

/* About a second of steps that take `ms` each, 5 at least. */
static int64_t steps_for(double ms) {
    double wanted = 1000 / (ms > 0 ? ms : 1);
    return wanted > 2000 ? 2000 : wanted < 5 ? 5 : (int64_t)wanted;
}

/* One product of bench_matmul. False when it failed, which the context knows. */
typedef bool (*product_fn)(void *user);

static int time_products(bench_result *result, const cli_options *options, tg_context *ctx, product_fn product, void *user) {
    double warm = 0;
    for (int i = 0; i < 2; i++) {
        double start = cli_seconds();
        if (!product(user)) return cli_context_error(ctx, result->workload, CLI_FAILED);
        warm = 1e3 * (cli_seconds() - start);
    }
    result->steps = options->steps > 0 ? options->steps : steps_for(warm);
    double *times = malloc((size_t)result->steps * sizeof *times);
    if (!times) {
        cli_say("%s: out of memory", result->workload);
        return CLI_FAILED;
    }
    int code = CLI_DONE;
    for (int64_t step = 0; step < result->steps && code == CLI_DONE; step++) {
        double start = cli_seconds();
        if (!product(user)) code = cli_context_error(ctx, result->workload, CLI_FAILED);
        times[step] = 1e3 * (cli_seconds() - start);
    }
    if (code == CLI_DONE) {
        result->ms_per_step = median_of(times, result->steps);
        result->ms_min = times[0];
    }
    free(times);
    return code;
}

typedef struct cpu_product {
    tg_context *ctx;
    int64_t n;
    float *a, *b, *c;
} cpu_product;

static bool multiply_on_cpu(void *user) {
    const cpu_product *p = user;
    return tg_gemm(p->ctx, p->n, p->n, p->n, p->a, p->b, p->c) == TG_OK;
}

/* c[N, N] = a b, N^3 multiply-adds, on the calling thread. */
static int bench_matmul_cpu(bench_result *result, const cli_options *options, tg_context *ctx) {
    size_t count = (size_t)result->size * (size_t)result->size;
    cpu_product p = {ctx, result->size, malloc(count * sizeof(float)), malloc(count * sizeof(float)), malloc(count * sizeof(float))};
    int code = CLI_FAILED;
    if (p.a && p.b && p.c) {
        for (size_t i = 0; i < count; i++) {
            p.a[i] = (float)(i % 17) / 17.0F - 0.5F;
            p.b[i] = (float)(i % 23) / 23.0F - 0.5F;
        }
        code = time_products(result, options, ctx, multiply_on_cpu, &p);
    } else {
        cli_say("%s: out of memory", result->workload);
    }
    result->threads = 1;
    snprintf(result->device, sizeof result->device, "cpu");
    snprintf(result->adapter, sizeof result->adapter, "%s", tg_cpu_name());
    free(p.c);
    free(p.b);
    free(p.a);
    return code;
}

static bool multiply_on_device(void *user) { return tg_step(user, NULL, 0, NULL) == TG_OK; }

static void note_device(bench_result *result, const tg_model_info *info) {
    snprintf(result->device, sizeof result->device, "%.*s", (int)strcspn(info->device, " ("), info->device);
    snprintf(result->adapter, sizeof result->adapter, "%s", info->adapter);
    result->precision = info->precision;
    result->dispatches = info->dispatches;
    result->kernels = info->kernels;
    result->parameters = info->parameters;
    result->tuned = info->tuned;
    result->peak_bytes = info->peak_bytes;
}

static int bench_matmul_device(bench_result *result, const cli_options *options, tg_context *ctx) {
    tg_compile_options compile = {
        .device = options->device, .adapter = options->adapter, .seed = options->seed, .precision = options->precision};
    cli_product product = {result->size, result->size, result->size};
    tg_model *model = tg_compile(ctx, cli_build_product, &product, &compile);
    tg_model_info info;
    int code = CLI_DONE;
    if (!model || tg_model_get_info(model, &info) != TG_OK) {
        code = cli_context_error(ctx, result->workload, tg_error(ctx) == TG_ERROR_DEVICE ? CLI_USAGE : CLI_FAILED);
    } else {
        note_device(result, &info);
        code = time_products(result, options, ctx, multiply_on_device, model);
    }
    tg_model_destroy(model);
    return code;
}

/* What AUTO comes to here. */
static bool auto_is_cpu(tg_context *ctx) {
    cli_product one = {1, 1, 1};
    tg_model *model = tg_compile(ctx, cli_build_product, &one, NULL);
    tg_model_info info;
    bool cpu = !model || tg_model_get_info(model, &info) != TG_OK || strncmp(info.device, "cpu", 3) == 0;
    tg_model_destroy(model);
    tg_clear_error(ctx);
    return cpu;
}

static int bench_matmul(bench_result *result, const cli_options *options) {
    tg_context *ctx = cli_context();
    if (!ctx) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    double n = (double)result->size;
    result->flops = 2 * n * n * n;
    bool cpu = options->device == TG_DEVICE_CPU || (options->device == TG_DEVICE_AUTO && auto_is_cpu(ctx));
    int code = (cpu ? bench_matmul_cpu : bench_matmul_device)(result, options, ctx);
    tg_context_destroy(ctx);
    return code;
}

static int time_steps(bench_result *result, cli_session *session, uint64_t seed, double *times) {
    for (int64_t step = 0; step < result->steps; step++) {
        float loss = 0;
        if (cli_session_step(session, seed, step + 1, &loss, &times[step]) != TG_OK)
            return cli_context_error(session->ctx, result->workload, CLI_FAILED);
        if (step == 0) result->loss_first = loss;
        result->loss_last = loss;
    }
    result->ms_per_step = median_of(times, result->steps);
    result->ms_min = times[0];
    return CLI_DONE;
}

static int bench_failed(const bench_result *result, const cli_session *session) {
    return cli_context_error(session->ctx, result->workload, CLI_FAILED);
}

/* Steps that nobody waits for, over the last batch. Then the time to hand one over while the device
 * is idle: copying, checking, encoding, submitting. */
static int time_pipelined(bench_result *result, cli_session *session, double *times) {
    const int inputs = session->example->input_count;
    tg_ticket ticket = 0;
    double start = cli_seconds();
    for (int64_t step = 0; step < result->steps; step++)
        if (tg_step_async(session->model, session->feeds, inputs, &ticket) != TG_OK) return bench_failed(result, session);
    if (tg_wait(session->model, ticket, NULL) != TG_OK) return bench_failed(result, session);
    result->ms_pipelined = 1e3 * (cli_seconds() - start) / (double)result->steps;
    if (strcmp(result->device, "cpu") == 0) return CLI_DONE;
    for (int64_t step = 0; step < result->steps; step++) {
        start = cli_seconds();
        if (tg_step_async(session->model, session->feeds, inputs, &ticket) != TG_OK) return bench_failed(result, session);
        times[step] = 1e3 * (cli_seconds() - start);
        if (tg_wait(session->model, ticket, NULL) != TG_OK) return bench_failed(result, session);
    }
    result->host_ms = median_of(times, result->steps);
    return CLI_DONE;
}

#define BENCH_BATCHES 64 /* of the data set */

/* Steps on data that is on the device, after enough steps to find out how many go in one
 * submission. */
static int time_train(bench_result *result, cli_session *session, uint64_t seed) {
    tg_dataset *dataset = cli_session_dataset(session, seed, 1, cli_session_batches(session, BENCH_BATCHES));
    if (!dataset) return CLI_FAILED;
    tg_train_options options = {.steps = result->steps < 100 ? result->steps : 100};
    tg_status status = tg_train(session->model, dataset, &options, NULL, NULL);
    double start = cli_seconds();
    options.steps = result->steps;
    if (status == TG_OK) status = tg_train(session->model, dataset, &options, NULL, NULL);
    result->ms_train = 1e3 * (cli_seconds() - start) / (double)result->steps;
    tg_dataset_destroy(dataset);
    return status == TG_OK ? CLI_DONE : bench_failed(result, session);
}

/* The number before " thread" in "cpu (avx512, 2 threads)"; 0 when there is none. */
static int64_t threads_of(const char *device) {
    const char *word = strstr(device, " thread");
    while (word && word > device && word[-1] >= '0' && word[-1] <= '9') word--;
    return word ? strtoll(word, NULL, 10) : 0;
}

/* An example has a fixed number, so that runs can be compared; a model of any size as many as a
 * second holds, after steps that warm it up. */
static int choose_steps(bench_result *result, const cli_options *options, cli_session *session) {
    double warm = 0;
    float loss = 0;
    for (int64_t i = 0; i < 3 && result->example->scale; i++)
        if (cli_session_step(session, options->seed, i + 1, &loss, &warm) != TG_OK)
            return cli_context_error(session->ctx, result->workload, CLI_FAILED);
    result->steps = options->steps > 0 ? options->steps : result->example->scale ? steps_for(warm) : result->flops > 1e8 ? 150 : 10000;
    return CLI_DONE;
}

static int bench_example(bench_result *result, const cli_options *options) {
    cli_session session;
    int code = cli_session_open(&session, result->example, options, true);
    tg_model_info info;
    if (code == CLI_DONE && tg_model_get_info(session.model, &info) != TG_OK)
        code = cli_context_error(session.ctx, result->workload, CLI_FAILED);
    if (code == CLI_DONE) {
        note_device(result, &info);
        result->flops = info.contraction_flops;
        result->threads = threads_of(info.device);
        result->compile_s = session.compile_seconds;
        code = choose_steps(result, options, &session);
    }
    if (code == CLI_DONE) {
        double *times = malloc((size_t)result->steps * sizeof *times);
        if (!times) {
            cli_say("%s: out of memory", result->workload);
            code = CLI_FAILED;
        } else {
            code = time_steps(result, &session, options->seed, times);
            if (code == CLI_DONE) code = time_pipelined(result, &session, times);
            if (code == CLI_DONE) code = time_train(result, &session, options->seed);
        }
        free(times);
    }
    cli_session_close(&session);
    return code;
}

/* matmul:512 of this run; NULL when it was not asked for. */
static const bench_result *find_yardstick(const bench_result *results, int count) {
    for (int i = 0; i < count; i++)
        if (!results[i].example && results[i].size == 512) return &results[i];
    return NULL;
}

/* The time the contractions of a step would take at the yardstick's rate: of medians, or of the
 * fastest. */
static double contraction_ms(const bench_result *result, const bench_result *yardstick, bool fastest) {
    return result->flops / yardstick->flops * (fastest ? yardstick->ms_min : yardstick->ms_per_step);
}

static void print_json(const bench_result *result, const bench_result *yardstick) {
    bool trains = result->example != NULL;
    printf("{\"workload\": ");
    cli_json_text(stdout, result->workload);
    printf(", \"device\": ");
    cli_json_text(stdout, result->device);
    printf(", \"adapter\": ");
    cli_json_text(stdout, result->adapter);
    printf(", \"precision\": \"%s\"", result->precision == TG_PRECISION_F16 ? "f16" : "f32");
    printf(", \"steps\": %lld, \"ms_per_step\": %.6g, \"ms_min\": %.6g", (long long)result->steps, result->ms_per_step, result->ms_min);
    if (result->dispatches) printf(", \"dispatches\": %d, \"peak_bytes\": %lld", result->dispatches, (long long)result->peak_bytes);
    else printf(", \"dispatches\": null, \"peak_bytes\": null");
    printf(", \"tuned\": %d, \"loss_first\": ", result->tuned);
    cli_json_number(stdout, trains ? result->loss_first : (double)NAN, 9);
    printf(", \"loss_last\": ");
    cli_json_number(stdout, trains ? result->loss_last : (double)NAN, 9);
    printf(", \"gflops\": ");
    cli_json_number(stdout, result->flops * 1e-6 / result->ms_per_step, 6);
    printf(", \"contraction_flops\": %.17g, \"threads\": ", result->flops);
    if (result->threads) printf("%lld", (long long)result->threads);
    else printf("null");
    if (trains) {
        printf(", \"parameters\": %lld, \"kernels\": %d, \"compile_s\": %.4g, \"gflop\": %.6g, \"tflops\": %.4g",
               (long long)result->parameters, result->kernels, result->compile_s, result->flops * 1e-9,
               result->flops * 1e-9 / result->ms_train);
        printf(", \"ms_per_step_pipelined\": %.6g, \"ms_per_step_train\": %.6g, \"host_ms\": ", result->ms_pipelined, result->ms_train);
        cli_json_number(stdout, result->host_ms > 0 ? result->host_ms : (double)NAN, 6);
    }
    if (trains && yardstick) {
        double floor_ms = contraction_ms(result, yardstick, false);
        printf(", \"ms_contractions\": %.6g, \"ratio\": %.4g, \"ratio_min\": %.4g", floor_ms, result->ms_per_step / floor_ms,
               result->ms_min / contraction_ms(result, yardstick, true));
    }
    printf("}\n");
}

static void print_table(const bench_result *results, int count, const bench_result *yardstick) {
    int width = 18;
    for (int i = 0; i < count; i++)
        if ((int)strlen(results[i].workload) > width) width = (int)strlen(results[i].workload);
    printf("%-*s %7s %10s %10s %10s %10s %9s %7s %9s  %s\n", width, "workload", "steps", "ms/step", "ms min", "pipelined", "train",
           "GFLOP/s", "ratio", "ratio min", "on");
    for (int i = 0; i < count; i++) {
        const bench_result *result = &results[i];
        char ratio[32] = "-", ratio_min[32] = "-", pipelined[32] = "-", train[32] = "-";
        if (result->example) snprintf(pipelined, sizeof pipelined, "%.4f", result->ms_pipelined);
        if (result->example) snprintf(train, sizeof train, "%.4f", result->ms_train);
        if (result->example && yardstick) {
            snprintf(ratio, sizeof ratio, "%.2f", result->ms_per_step / contraction_ms(result, yardstick, false));
            snprintf(ratio_min, sizeof ratio_min, "%.2f", result->ms_min / contraction_ms(result, yardstick, true));
        }
        printf("%-*s %7lld %10.4f %10.4f %10s %10s %9.2f %7s %9s  %s%s\n", width, result->workload, (long long)result->steps,
               result->ms_per_step, result->ms_min, pipelined, train, result->flops * 1e-6 / result->ms_per_step, ratio, ratio_min,
               result->adapter, result->precision == TG_PRECISION_F16 ? ", f16" : "");
    }
    if (yardstick) printf("ratio: a step over its contractions alone at the rate of matmul:512 above (medians; the fastest of each)\n");
}

int command_bench(const cli_options *options) {
    if (options->profile) return cli_profile(options);
    bench_result results[CLI_MAX_WORDS];
    memset(results, 0, sizeof results);
    if (options->word_count == 0) {
        cli_say("bench needs a workload: an example, a model of any size, or matmul:N");
        return CLI_USAGE;
    }
    for (int i = 0; i < options->word_count; i++) {
        results[i].workload = options->words[i];
        if (cli_is_product(options->words[i])) {
            cli_product product;
            int code = cli_parse_product(options->words[i], true, &product);
            if (code != CLI_DONE) return code;
            results[i].size = product.m;
        } else {
            results[i].example = cli_find_example(options->words[i], &results[i].scale);
            if (!results[i].example) return CLI_USAGE;
        }
    }
    for (int i = 0; i < options->word_count; i++) {
        int code = results[i].example ? bench_example(&results[i], options) : bench_matmul(&results[i], options);
        if (code != CLI_DONE) return code;
    }
    const bench_result *yardstick = find_yardstick(results, options->word_count);
    if (options->json)
        for (int i = 0; i < options->word_count; i++) print_json(&results[i], yardstick);
    else print_table(results, options->word_count, yardstick);
    return CLI_DONE;
}
