/* device_open: opens the device of a family as the options and the environment ask, and sets the
 * precision of its contractions. Must not know states, programs or files. */
#include "run/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DEVICE_THREADS_MAX 1024
#define DEVICE_LOSS_SCALE 4096.0
#define DEVICE_LOSS_SCALE_MAX 16777216.0

static void device_log(const tg_context *ctx, const char *message) {
    if (ctx->log != NULL) ctx->log(ctx->log_user, TG_LOG_WARNING, message);
}

/* TENSORGRAD_THREADS as a number; 0: not set, or no number, which is logged. */
static int device_threads_from_environment(const tg_context *ctx) {
    const char *text = getenv("TENSORGRAD_THREADS");
    if (text == NULL || text[0] == '\0') return 0;
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno == 0 && *end == '\0' && value >= 1 && value <= DEVICE_THREADS_MAX) return (int)value;
    device_log(ctx, "TENSORGRAD_THREADS is not a whole number from 1 to 1024: ignored");
    return 0;
}

static tg_status device_threads(tg_context *ctx, int asked, int *threads) {
    if (asked < 0 || asked > DEVICE_THREADS_MAX)
        return tg_fail(ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: threads is %d, outside 0 .. %d", asked, DEVICE_THREADS_MAX);
    *threads = asked > 0 ? asked : device_threads_from_environment(ctx);
    if (*threads == 0) *threads = tg_cpu_count();
    return TG_OK;
}

/* TENSORGRAD_ADAPTER is used when no adapter is named. Copied: a lost device is opened again long
 * after the call. */
static tg_status device_keep_adapter(tg_family *family, const tg_compile_options *options) {
    const char *name = options->adapter != NULL && options->adapter[0] != '\0' ? options->adapter : getenv("TENSORGRAD_ADAPTER");
    if (name == NULL || name[0] == '\0') return TG_OK;
    family->open.adapter = tg_arena_text(&family->arena, name);
    return family->open.adapter != NULL ? TG_OK : TG_ERROR_MEMORY;
}

/* AUTO: a real GPU or the CPU. Without a GPU the reason is logged; it is no error. */
static tg_status device_open_auto(tg_family *family, tg_open_options *open) {
    tg_context *ctx = family->ctx;
    char reason[512];
    open->real_gpu = true;
    family->executor = &tg_webgpu_executor;
    tg_status status = family->executor->open(ctx, open, &family->device);
    if (status == TG_OK || status == TG_ERROR_MEMORY) return status;
    snprintf(reason, sizeof reason, "no GPU, the CPU is used: %.400s", ctx->message);
    if (ctx->log != NULL) ctx->log(ctx->log_user, TG_LOG_INFO, reason);
    tg_clear_error(ctx);
    family->executor = &tg_cpu_executor;
    return family->executor->open(ctx, open, &family->device);
}

/* What is asked of contractions; what comes of it, the device says. */
static tg_status device_keep_precision(tg_family *family, const tg_compile_options *options) {
    const double scale = tg_value_or(options->loss_scale, DEVICE_LOSS_SCALE);
    int exponent = 0;
    if (options->precision != TG_PRECISION_F32 && options->precision != TG_PRECISION_F16)
        return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: there is no precision %d", (int)options->precision);
    if (!(scale >= 1.0 && scale <= DEVICE_LOSS_SCALE_MAX) || frexp(scale, &exponent) != 0.5)
        return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: loss_scale must be a power of two from 1 to 2^24, got %g",
                       scale);
    family->open.f16 = options->precision == TG_PRECISION_F16;
    family->loss_scale = scale;
    return TG_OK;
}

tg_precision tg_family_precision(const tg_family *family) {
    return family->executor->model(family->device)->f16 ? TG_PRECISION_F16 : TG_PRECISION_F32;
}

double tg_family_loss_scale(const tg_family *family) { return tg_family_precision(family) == TG_PRECISION_F16 ? family->loss_scale : 1.0; }

static void device_say_precision(const tg_family *family) {
    char text[320];
    if (!family->open.f16 || tg_family_precision(family) == TG_PRECISION_F16) return;
    snprintf(text, sizeof text, "precision f16 is not offered by %.200s: contractions stay f32",
             family->executor->describe(family->device));
    device_log(family->ctx, text);
}

static tg_status device_choose(tg_family *family, const tg_compile_options *options) {
    tg_open_options *open = &family->open;
    tg_status status = device_threads(family->ctx, options->threads, &open->threads);
    if (status == TG_OK) status = device_keep_precision(family, options);
    if (status == TG_OK) status = device_keep_adapter(family, options);
    if (status != TG_OK) return status;
    /* the struct is the caller's for the call only; the handles stay */
    if (options->webgpu != NULL) {
        family->foreign = *options->webgpu;
        open->foreign = &family->foreign;
    }
    switch (options->device) {
    case TG_DEVICE_AUTO:
        if (options->webgpu == NULL) return device_open_auto(family, open);
        family->executor = &tg_webgpu_executor;
        break;
    case TG_DEVICE_CPU:
        if (options->webgpu != NULL)
            return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE,
                           "compile: a WebGPU device is given, but the device asked for is the CPU");
        family->executor = &tg_cpu_executor;
        break;
    case TG_DEVICE_WEBGPU: family->executor = &tg_webgpu_executor; break;
    default: return tg_fail(family->ctx, TG_ERROR_ARGUMENT, TG_SITE_NONE, "compile: there is no device kind %d", (int)options->device);
    }
    return family->executor->open(family->ctx, open, &family->device);
}

tg_status tg_family_open(tg_family *family, const tg_compile_options *options) {
    tg_status status = device_choose(family, options);
    if (status == TG_OK) device_say_precision(family);
    return status;
}

#undef DEVICE_THREADS_MAX
#undef DEVICE_LOSS_SCALE
#undef DEVICE_LOSS_SCALE_MAX
