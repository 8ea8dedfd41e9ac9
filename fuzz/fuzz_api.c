/* fuzz_api: bytes become a model through the public API. It is traced, compiled in two ways, run
 * and trained on the CPU. Tame programs (see program.h) must give the results of the f64 reference,
 * fused and not fused, and the same gradients. Each program must give the same bits again from its
 * own bytes, must be printable in all forms, and must give its memory back. */
#include "program.h"

#include "ir/dtype.h"
#include "ir/graph.h"
#include "run/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4 * 16 * PROGRAM_ELEMENTS, STEPS = 2, LONGEST = 400 };

typedef struct driver {
    tg_context *ctx;
    program p;
    tg_optimizer optimizer;
    tg_feed feeds[PROGRAM_INPUTS];
    void *data[PROGRAM_INPUTS];
    bool fed; /* there was room for all */
} driver;

static void make_feeds(driver *d) {
    static const char *const names[] = {"a", "b", "c"};
    d->fed = true;
    for (int i = 0; i < d->p.inputs; i++) {
        d->data[i] = malloc(MOST * 4);
        const int64_t count = program_data(&d->p, i, 7, d->data[i], MOST);
        d->fed = d->fed && count > 0;
        d->feeds[i] = (tg_feed){names[i], d->p.input_dtype[i], d->data[i], count};
    }
}

/* Wild programs try every field; tame ones a plain rate. */
static tg_optimizer any_optimizer(driver *d, fuzz_reader *r) {
    if (d->p.tame) return tg_sgd(.lr = tg_lr_constant(0.01));
    tg_optimizer o = tg_adam(.lr = tg_lr_constant(fabs(fuzz_number(r))));
    o.kind = (tg_optimizer_kind)fuzz_below(r, 9);
    if (fuzz_chance(r, 3)) o.beta1 = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.beta2 = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.eps = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.weight_decay = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.momentum = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.clip_norm = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.clip_value = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.average = fuzz_number(r);
    if (fuzz_chance(r, 3)) o.accumulate = fuzz_whole(r, 1, 3);
    o.normalize = fuzz_chance(r, 4);
    o.nesterov = fuzz_chance(r, 4);
    return o;
}

static tg_model *compile(driver *d, bool fused, bool training) {
    const tg_compile_options options = {.optimizer = d->optimizer, .seed = 3, .device = TG_DEVICE_CPU, .threads = 1, .no_fusion = !fused};
    tg_clear_error(d->ctx);
    tg_model *model =
        training ? tg_compile(d->ctx, program_loss, &d->p, &options) : tg_compile_forward(d->ctx, program_forward, &d->p, &options);
    if (model == NULL) fuzz_check_status(d->ctx, tg_error(d->ctx) != TG_OK ? tg_error(d->ctx) : TG_ERROR_INTERNAL, "compile");
    return model;
}

static void print_all(driver *d, tg_model *model) {
    for (int text = TG_TEXT_IR; text <= TG_TEXT_WGSL; text++) {
        if (tg_model_text(model, (tg_text)text) != NULL) continue;
        fuzz_check_status(d->ctx, tg_error(d->ctx), "text");
        if (tg_error(d->ctx) == TG_OK) fuzz_fail("no text %d and no error", text);
    }
}

static bool close_to(double got, double want, double tolerance) {
    if (isnan(got) || isnan(want) || isinf(got) || isinf(want)) return isnan(got) == isnan(want) && isinf(got) == isinf(want);
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

/* ---------------------------------------------------------------- forward: against f64 */

/* The parameters are those of the compiled model. Returned: destroy; NULL where memory ran out. */
static tg_reference *reference(driver *d, tg_graph *g, tg_model *model, double **leaves) {
    for (int64_t i = 0; i < g->inputs.count; i++) {
        const int32_t node = g->inputs.items[i].node;
        for (int f = 0; f < d->p.inputs; f++) {
            if (strcmp(d->feeds[f].name, g->inputs.items[i].name) != 0) continue;
            leaves[node] = calloc((size_t)d->feeds[f].count, sizeof(double));
            for (int64_t j = 0; j < d->feeds[f].count; j++) leaves[node][j] = tg_dtype_get(d->feeds[f].dtype, d->data[f], j);
        }
    }
    for (int64_t i = 0; i < g->params.count; i++) {
        tg_shape shape;
        const char *name = g->params.items[i].name;
        if (tg_model_param_shape(model, name, &shape) != TG_OK) fuzz_fail("parameter %s is lost", name);
        const int64_t count = tg_shape_count(shape);
        float *values = calloc((size_t)count, sizeof *values);
        if (tg_param_download(model, name, values, count) != TG_OK) fuzz_fail("%s", tg_error_message(d->ctx));
        leaves[g->params.items[i].node] = calloc((size_t)count, sizeof(double));
        for (int64_t j = 0; j < count; j++) leaves[g->params.items[i].node][j] = (double)values[j];
        free(values);
    }
    return tg_reference_run(g, (const double *const *)leaves);
}

static void compare_with_reference(driver *d, tg_model *model, const float *got, int64_t count) {
    tg_tensor result;
    tg_graph *g = tg_trace(d->ctx, program_forward, &d->p, &result);
    if (g == NULL) return;
    double **leaves = calloc((size_t)g->nodes.count, sizeof *leaves);
    tg_reference *r = reference(d, g, model, leaves);
    const double *want = r != NULL ? tg_reference_value(r, result.id) : NULL;
    for (int64_t i = 0; want != NULL && i < count; i++)
        if (!close_to((double)got[i], want[i], 1e-4))
            fuzz_fail("element %lld is %.9g, the reference says %.9g", (long long)i, (double)got[i], want[i]);
    for (int64_t i = 0; i < g->nodes.count; i++) free(leaves[i]);
    free(leaves);
    tg_reference_destroy(r);
    tg_graph_destroy(g);
}

/* The same model from the bytes of its graph. */
static tg_model *through_bytes(driver *d) {
    tg_tensor result;
    tg_graph *g = tg_trace(d->ctx, program_forward, &d->p, &result);
    if (g == NULL) return NULL;
    tg_text_buffer bytes;
    tg_text_init(&bytes, d->ctx);
    const tg_compile_options options = {.seed = 3, .device = TG_DEVICE_CPU, .threads = 1};
    tg_model *model = NULL;
    if (tg_graph_write(g, &bytes) == TG_OK) model = tg_compile_bytes(d->ctx, bytes.data, bytes.length, &options, false);
    tg_text_free(&bytes);
    tg_graph_destroy(g);
    return model;
}

static tg_status run_once(driver *d, tg_model *model, void *out, int64_t count) {
    const tg_status status = tg_run(model, d->feeds, d->p.inputs, out, count);
    fuzz_check_status(d->ctx, status, "run");
    return status;
}

static void drive_forward(driver *d) {
    tg_model *fused = compile(d, true, false);
    if (fused == NULL) return;
    make_feeds(d);
    const int64_t count = tg_shape_count(tg_model_output_shape(fused));
    const bool f32 = tg_model_output_dtype(fused) == TG_F32;
    float *one = calloc((size_t)count, 4), *two = calloc((size_t)count, 4), *three = calloc((size_t)count, 4);
    print_all(d, fused);
    if (d->fed && run_once(d, fused, one, count) == TG_OK) {
        tg_model *plain = compile(d, false, false), *again = through_bytes(d);
        if (again == NULL || run_once(d, again, three, count) != TG_OK)
            fuzz_fail("does not run from its bytes: %s", tg_error_message(d->ctx));
        if (memcmp(one, three, (size_t)count * tg_dtype_bytes(tg_model_output_dtype(fused))) != 0) fuzz_fail("from bytes: other bits");
        if (plain == NULL && tg_error(d->ctx) != TG_ERROR_MEMORY) fuzz_fail("compiles fused only: %s", tg_error_message(d->ctx));
        if (plain != NULL && d->p.tame && d->p.exact && f32) {
            if (run_once(d, plain, two, count) != TG_OK) fuzz_fail("runs fused only: %s", tg_error_message(d->ctx));
            for (int64_t i = 0; i < count; i++)
                if (!close_to((double)one[i], (double)two[i], 1e-4))
                    fuzz_fail("element %lld: %.9g fused, %.9g not", (long long)i, (double)one[i], (double)two[i]);
            if (!d->p.random) compare_with_reference(d, fused, one, count);
        }
        tg_model_destroy(plain);
        tg_model_destroy(again);
    }
    free(one);
    free(two);
    free(three);
    tg_model_destroy(fused);
}

/* ---------------------------------------------------------------- training: fused against not
 * fused */

static void compare_gradients(driver *d, tg_model *a, tg_model *b) {
    for (int i = 0; i < tg_model_param_count(a); i++) {
        const char *name = tg_model_param_name(a, i);
        tg_shape shape;
        if (tg_model_param_shape(a, name, &shape) != TG_OK) fuzz_fail("parameter %s is lost", name);
        const int64_t count = tg_shape_count(shape);
        float *x = calloc((size_t)count, 4), *y = calloc((size_t)count, 4);
        if (tg_param_grad_download(a, name, x, count) != TG_OK || tg_param_grad_download(b, name, y, count) != TG_OK)
            fuzz_fail("gradients of %s: %s", name, tg_error_message(d->ctx));
        for (int64_t j = 0; j < count; j++)
            if (!close_to((double)x[j], (double)y[j], 1e-3))
                fuzz_fail("gradient %s[%lld]: %.9g fused, %.9g not", name, (long long)j, (double)x[j], (double)y[j]);
        free(x);
        free(y);
    }
}

static tg_status step_once(driver *d, tg_model *model, float *loss) {
    const tg_status status = tg_step(model, d->feeds, d->p.inputs, loss);
    fuzz_check_status(d->ctx, status, "step");
    return status;
}

static void drive_training(driver *d, fuzz_reader *r) {
    d->optimizer = any_optimizer(d, r);
    tg_model *fused = compile(d, true, true);
    if (fused == NULL) return;
    make_feeds(d);
    tg_model *plain = compile(d, false, true);
    if (plain == NULL && tg_error(d->ctx) != TG_ERROR_MEMORY) fuzz_fail("compiles fused only: %s", tg_error_message(d->ctx));
    print_all(d, fused);
    bool going = d->fed && plain != NULL;
    for (int step = 0; going && step < STEPS; step++) {
        float one = 0, two = 0;
        const tg_status a = step_once(d, fused, &one), b = step_once(d, plain, &two);
        if (d->p.tame && a != b) fuzz_fail("step: status %d fused, %d not", (int)a, (int)b);
        going = a == TG_OK && b == TG_OK;
        if (!going || !d->p.tame || !d->p.exact) continue;
        if (!close_to((double)one, (double)two, 1e-4)) fuzz_fail("loss %.9g fused, %.9g not", (double)one, (double)two);
        if (d->p.smooth) compare_gradients(d, fused, plain);
        else going = false; /* from here on the two may part */
    }
    tg_model_destroy(plain);
    tg_model_destroy(fused);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4 || size > LONGEST) return 0;
    driver d = {.ctx = fuzz_context()};
    fuzz_reader options = {data + size / 2, size - size / 2};
    d.p = program_make(data + 1, size - 1);
    if (data[0] & 1) drive_training(&d, &options);
    else drive_forward(&d);
    for (int i = 0; i < PROGRAM_INPUTS; i++) free(d.data[i]);
    fuzz_context_done(d.ctx);
    return 0;
}
