/* Footprint: launches, kernels and peak bytes of the training steps of models of real sizes (those of
 * `make bench`), planned without one for a GPU with the guaranteed limits that binds as much as a
 * large one does. The figures are exact, so that a change of the rules shows here: one that makes them better edits its lines. */
#include "support.h"

#include "optim/optim.h"
#include "pass/pass.h"
#include "scale.h"

#include <stdlib.h>
#include <string.h>

typedef struct footprint {
    const char *name;
    int launches, kernels;
    int64_t peak_bytes;
} footprint;

static const footprint footprint_table[] = {
    {"gpt:L4,D128,H4,T64,B12,V65", 48, 176, 43604388},
    {"gpt:L6,D256,H8,T128,B32,V65", 129, 256, 556471716},
    {"gpt:L6,D384,H6,T256,B64,V65", 219, 256, 3001032612},
    {"gpt:L12,D768,H12,T1024,B1,V50257", 327, 496, 2977918372},
    {"mlp:W64,N4,B256", 4, 23, 742820},
    {"mlp:W64,N4,B16384", 11, 23, 26093988},
    {"mlp:W64,N4,B262144", 18, 23, 347285924},
    {"mlp:W128,N6,B65536", 25, 31, 239099300},
    {"mlp:W1024,N3,B4096", 13, 19, 100976036},
    {"conv:C32,B64", 21, 36, 61741732},
    {"conv:C32,B512", 28, 36, 443970980},
    {"conv:C64,B256", 28, 36, 441040292},
    {"gru:H128,T64,B32", 10, 457, 19017892},
    {"gru:H256,T128,B64", 17, 905, 146956452},
};

/* The graph of a training step, as compiling makes it, without a device. */
static tg_status training_graph(tg_graph *g, const tg_optimizer *optimizer, tg_arena *arena, tg_layout *layout) {
    tg_watch watch;
    tg_status status = tg_mark_params(g, TG_SITE_NONE, optimizer);
    if (status == TG_OK) status = tg_layout_make(g, arena, layout);
    if (status == TG_OK) status = tg_append_training(g, g->result, optimizer, layout, 1, &watch);
    if (status == TG_OK) status = tg_flatten_params(g, layout);
    return status == TG_OK ? tg_pass_run(g, false) : status;
}

static footprint measure(tg_context *ctx, const tg_scale *scale) {
    tg_device_model device = tg_device_guaranteed;
    device.max_binding_bytes = (INT64_C(1) << 32) - 4;
    const tg_plan_options plan = {.device = &device};
    const tg_optimizer optimizer = scale->example.optimizer();
    tg_graph *g = tg_trace(ctx, scale->example.build, (void *)(uintptr_t)scale, NULL);
    tg_arena arena;
    tg_layout layout;
    if (g == NULL) fail_msg("%s: %s", scale->name, tg_error_message(ctx));
    tg_arena_init(&arena, ctx);
    tg_program *program = training_graph(g, &optimizer, &arena, &layout) == TG_OK ? tg_program_make(g, &plan) : NULL;
    if (program == NULL || tg_program_check(program, ctx) != TG_OK) fail_msg("%s: %s", scale->name, tg_error_message(ctx));
    const footprint found = {scale->name, program->launch_count, program->kernel_count, tg_program_peak_bytes(program)};
    tg_program_destroy(program, ctx);
    tg_graph_destroy(g);
    tg_arena_free(&arena);
    return found;
}

static void sizes_have_their_footprint(void **state) {
    (void)state;
    int changed = 0;
    for (int i = 0; i < SUPPORT_COUNT(footprint_table); i++) {
        const footprint *want = &footprint_table[i];
        tg_context *ctx = support_context();
        tg_scale scale;
        char problem[512];
        if (!tg_scale_parse(want->name, &scale, problem, sizeof problem)) fail_msg("%s: %s", want->name, problem);
        const footprint got = measure(ctx, &scale);
        if (got.launches != want->launches || got.kernels != want->kernels || got.peak_bytes != want->peak_bytes) {
            print_message("{\"%s\", %d, %d, %lld}, was %d, %d, %lld\n", got.name, got.launches, got.kernels, (long long)got.peak_bytes,
                          want->launches, want->kernels, (long long)want->peak_bytes);
            changed++;
        }
        tg_context_destroy(ctx);
    }
    if (changed > 0)
        fail_msg("%d of %d are not what they were; the lines above are what they are now", changed, SUPPORT_COUNT(footprint_table));
}

/* ---------------------------------------------------------------- names of sizes */

static void refuses(const char *text, const char *says) {
    tg_scale scale;
    char problem[512] = "";
    if (tg_scale_parse(text, &scale, problem, sizeof problem)) fail_msg("%s is taken", text);
    if (strstr(problem, says) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", text, problem, says);
}

static void sizes_are_read(void **state) {
    (void)state;
    tg_scale scale;
    char problem[512];
    assert_true(tg_scale_parse("gpt:V7,L1", &scale, problem, sizeof problem));
    const int64_t want[TG_SCALE_KEYS] = {1, 128, 4, 64, 12, 7};
    assert_memory_equal(scale.size, want, sizeof want);
    assert_int_equal(scale.example.batch, 12);
    assert_true(scale.example.scale == &scale);
    assert_string_equal(scale.example.name, "gpt:V7,L1");
    assert_true(tg_scale_parse("mlp", &scale, problem, sizeof problem) && tg_scale_parse("conv:", &scale, problem, sizeof problem));
    assert_true(tg_scale_is("gru:H") && !tg_scale_is("grus") && !tg_scale_is("gr:H1") && !tg_scale_is(""));
    refuses("gpt:Q3", "'Q3'");
    refuses("gpt:Q3", "L layers (4), D width (128)");
    refuses("mlp:W", "W width (64)");
    refuses("mlp:W0", "N hidden layers (4)");
    refuses("mlp:W64,", "W64,");
    refuses("mlp:W64,N3,W32", "'W32'");
    refuses("mlp:Q3,N3", "'Q3'");
    refuses("mlp:W64;N3", "W64;N3");
    refuses("conv:C999999999999999999999", "C channels");
    refuses("gru:H-1", "H-1");
    refuses("gru:,", "H width");
    refuses("gpt:D130,H4", "multiple of the heads");
}

/* Batches are the same for the same seed and step, stay inside the vocabulary, and a step learns. */
static void sizes_train(void **state) {
    (void)state;
    static const char *const names[] = {"gpt:L1,D32,H2,T8,B4,V11", "mlp:W16,N2,B64", "conv:C4,B4", "gru:H8,T4,B4"};
    for (int n = 0; n < SUPPORT_COUNT(names); n++) {
        tg_context *ctx = support_context();
        tg_scale scale, copy;
        char problem[512];
        assert_true(tg_scale_parse(names[n], &scale, problem, sizeof problem));
        const tg_example *example = &scale.example;
        int64_t rows = 2 * example->batch;
        const tg_compile_options options = {.optimizer = example->optimizer(), .seed = 1, .device = TG_DEVICE_CPU, .threads = 1};
        tg_model *model = tg_compile(ctx, example->build, tg_example_user(example, &rows, &copy), &options);
        if (model == NULL) fail_msg("%s: %s", names[n], tg_error_message(ctx));
        void *arrays[2];
        tg_feed feeds[2];
        for (int i = 0; i < 2; i++) {
            tg_shape shape = example->inputs[i].shape;
            shape.dim[0] = rows;
            arrays[i] = calloc((size_t)tg_shape_count(shape), 4);
            feeds[i] = tg_feed_make_(example->inputs[i].name, example->inputs[i].dtype, arrays[i], tg_shape_count(shape));
        }
        float first = 0, loss = 0;
        tg_example_fill(example, 3, 1, rows, arrays);
        for (int step = 0; step < 30; step++)
            if (tg_step(model, feeds, 2, step == 0 ? &first : &loss) != TG_OK) fail_msg("%s: %s", names[n], tg_error_message(ctx));
        if (!(loss < first)) fail_msg("%s: the loss goes from %g to %g", names[n], (double)first, (double)loss);
        for (int i = 0; i < 2; i++) free(arrays[i]);
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_their_footprint),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(sizes_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
