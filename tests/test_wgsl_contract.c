/* Contractions in WGSL: which method is chosen for which shape, when operands are read as vec4,
 * that the printed text keeps within the guaranteed limits and is the same each time; and, on a
 * WebGPU device, every method with every form of operand (transposed, permuted, broadcast,
 * reversed) and ragged sizes against sums in f64, twice, bit for bit; tiles of halves, where the
 * adapter offers them, against sums of operands rounded here. Kernels are made by hand, so that the
 * strides are those of the case and do not depend on fusion. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "emit/emit.h"
#include "run/webgpu/webgpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One letter a loop; an operand's layout is row-major over its letters and has stride 0 along the others. */
typedef struct contraction {
    const char *batch, *m, *n, *k;
    int64_t extent[8]; /* in the order of batch, m, n, k */
    const char *a, *b, *y;
    enum { PLAIN = 0, REVERSED = 1, IN_PLACE = 2, SHARED = 4 } how; /* a's m backwards; y += ..; b is a's buffer */
    const char *method;                                             /* that the first stage's comment must name, or NULL */
} contraction;

enum { SCHEDULES = 4 }; /* of each layout run on a device: a software one takes a second for the larger ones */
enum { A, B, BIAS, Y, BUFFERS, Z = BUFFERS };

typedef struct handmade {
    tg_kernel kernels[2]; /* the contraction; in a launch of two, another one */
    tg_launch launch;
    tg_program program;
    tg_buffer buffers[BUFFERS + 1];
    tg_argument arguments[BUFFERS], second_arguments[BUFFERS];
    tg_instruction body[4], second_body[4];
    tg_input_info inputs[3];
    tg_state_info state;
    tg_output output;
    tg_affine y;
} handmade;

static int64_t lay_out(const char *letters, const int64_t *extent, const char *layout, tg_affine *at) {
    int64_t stride = 1;
    for (size_t i = strlen(layout); i-- > 0;) {
        const int d = (int)(strchr(letters, layout[i]) - letters);
        at->stride[d] = stride;
        stride *= extent[d];
    }
    return stride;
}

static void make_kernel(handmade *h, const contraction *c) {
    char letters[16];
    tg_kernel *kernel = &h->kernels[0];
    snprintf(letters, sizeof letters, "%s%s%s%s", c->batch, c->m, c->n, c->k);
    kernel->kind = TG_KERNEL_CONTRACT;
    kernel->name = "contract";
    kernel->loop_count = (int32_t)strlen(letters);
    memcpy(kernel->extent, c->extent, sizeof c->extent);
    kernel->m_begin = (int32_t)strlen(c->batch);
    kernel->n_begin = kernel->m_begin + (int32_t)strlen(c->m);
    kernel->outer_count = kernel->n_begin + (int32_t)strlen(c->n);
    h->buffers[A].count = lay_out(letters, c->extent, c->a, &kernel->a.at);
    h->buffers[B].count = lay_out(letters, c->extent, c->b, &kernel->b.at);
    h->buffers[BIAS].count = h->buffers[Y].count = lay_out(letters, c->extent, c->y, &h->y);
    kernel->a.argument = A;
    kernel->b.argument = c->how == SHARED ? A : B;
    for (int d = kernel->m_begin; c->how == REVERSED && d < kernel->n_begin; d++) {
        kernel->a.at.offset += kernel->a.at.stride[d] * (c->extent[d] - 1);
        kernel->a.at.stride[d] *= -1;
    }
}

/* y = sum + bias, or y = sum + y: then y is a state that holds the bias before each run. */
static void make_body(handmade *h, const contraction *c) {
    const int32_t read = c->how == IN_PLACE ? Y : BIAS;
    h->body[0] = (tg_instruction){.op = TG_K_ACC, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT};
    h->body[1] = (tg_instruction){.op = TG_K_LOAD, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT, .argument = read, .at = h->y};
    h->body[2] = (tg_instruction){.op = TG_OP_ADD, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT, .src = {0, 1}};
    h->body[3] = (tg_instruction){.op = TG_K_STORE, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT, .src = {2}, .argument = Y, .at = h->y};
    h->kernels[0].body = h->body;
    h->kernels[0].body_count = 4;
    h->kernels[0].arguments = h->arguments;
    h->kernels[0].argument_count = BUFFERS;
}

static int64_t blocks(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static void make(handmade *h, const contraction *c) {
    static const char *const names[BUFFERS] = {"a", "b", "bias", "y"};
    memset(h, 0, sizeof *h);
    make_kernel(h, c);
    make_body(h, c);
    for (int32_t i = 0; i < BUFFERS; i++) {
        h->arguments[i] = (tg_argument){.buffer = i,
                                        .dtype = TG_F32,
                                        .access = i != Y               ? TG_ACCESS_READ
                                                  : c->how == IN_PLACE ? TG_ACCESS_READ_WRITE
                                                                       : TG_ACCESS_WRITE};
        h->buffers[i].storage = i != Y ? TG_STORAGE_INPUT : c->how == IN_PLACE ? TG_STORAGE_STATE : TG_STORAGE_WORKSPACE;
        h->buffers[i].slot = i == Y ? 0 : i;
        h->buffers[i].name = names[i];
        h->buffers[i].last = 1;
        if (i == Y) continue;
        h->inputs[i] = (tg_input_info){names[i], TG_SHAPE(h->buffers[i].count), TG_F32, 0, 0};
        h->buffers[i].offset = h->program.input_block_bytes;
        h->program.input_block_bytes += blocks(h->buffers[i].count * 4);
    }
    const int64_t input_block_bytes = h->program.input_block_bytes;
    h->launch = (tg_launch){0, 1, 0};
    h->state = (tg_state_info){"y", TG_SHAPE(h->buffers[Y].count), TG_F32, 0.0, 0};
    h->output = (tg_output){"result", Y, TG_SHAPE(h->buffers[Y].count), TG_F32};
    h->program = (tg_program){.buffers = h->buffers,
                              .buffer_count = BUFFERS,
                              .kernels = h->kernels,
                              .kernel_count = 1,
                              .launches = &h->launch,
                              .launch_count = 1,
                              .input_block_bytes = input_block_bytes,
                              .inputs = h->inputs,
                              .input_count = 3,
                              .outputs = &h->output,
                              .output_count = 1,
                              .states = &h->state,
                              .state_count = c->how == IN_PLACE,
                              .in_words = true,
                              .workspace_bytes = blocks(h->buffers[Y].count * 4)};
}

/* A second kernel in the same launch, whose result z is the output. Beside: the same contraction. In a chain: z = y + bias. */
static void join(handmade *h, int32_t slices) {
    tg_kernel *second = &h->kernels[1];
    *second = h->kernels[0];
    memcpy(h->second_arguments, h->arguments, sizeof h->arguments);
    memcpy(h->second_body, h->body, sizeof h->body);
    h->buffers[Z] = h->buffers[Y];
    h->buffers[Z].offset = h->program.workspace_bytes;
    h->program.workspace_bytes *= 2;
    h->program.buffer_count++;
    h->program.kernel_count++;
    h->launch = (tg_launch){0, 2, slices};
    h->output.buffer = Z;
    second->body = h->second_body;
    second->arguments = h->second_arguments;
    h->second_arguments[Y].buffer = Z;
    if (slices == 0) return;
    second->kind = TG_KERNEL_MAP;
    second->name = "add";
    second->loop_count = second->outer_count;
    h->second_arguments[A].buffer = Y; /* no contraction any more: argument A is what it loads */
    h->second_body[0] = (tg_instruction){.op = TG_K_LOAD, .dtype = TG_F32, .level = TG_LEVEL_ELEMENT, .argument = A, .at = h->y};
}

/* ---------------------------------------------------------------- as printed */

/* What is printed for. The second: an adapter with f16, the third: with subgroup matrices too. */
static const tg_device_model with_halves = {
    .invocations = 256, .workgroup_bytes = 16384, .groups = 65535, .storage_buffers = 8, .f16 = true, .rates = &tg_h200_rates};
static const tg_device_model with_matrices = {.invocations = 1024,
                                              .workgroup_bytes = 49152,
                                              .groups = 65535,
                                              .storage_buffers = 8,
                                              .f16 = true,
                                              .matrix_subgroup = 32,
                                              .rates = &tg_h200_rates};
static const tg_device_model *printed_for = &tg_device_guaranteed;

typedef struct printed_contraction {
    tg_context *ctx;
    tg_arena arena;
    handmade made;
    tg_wgsl_kernel wgsl;
} printed_contraction;

static void print_contraction(printed_contraction *p, const contraction *c) {
    p->ctx = support_context();
    tg_arena_init(&p->arena, p->ctx);
    make(&p->made, c);
    if (tg_emit_wgsl(&p->made.program, 0, printed_for, &p->arena, &p->wgsl) != TG_OK) fail_msg("%s", tg_error_message(p->ctx));
}

static void printed_free(printed_contraction *p) {
    tg_arena_free(&p->arena);
    tg_context_destroy(p->ctx);
}

/* Bytes of var<workgroup> arrays: `array<f32, N>`, `array<vec4<f32>, N>` or `array<array<vec4<f32>, M>, N>`; of f16 half of it. */
static int64_t shared_bytes(const char *source) {
    int64_t bytes = 0;
    for (const char *at = strstr(source, "var<workgroup>"); at; at = strstr(at + 1, "var<workgroup>")) {
        const char *end = strchr(at, ';');
        int64_t size = 4;
        for (const char *c = at; c < end; c++) {
            if (strncmp(c, "vec4<", 5) == 0) size *= 4;
            if (strncmp(c, "f16", 3) == 0) size /= 2;
            if (*c == ',') size *= strtoll(c + 1, NULL, 10);
        }
        bytes += size;
    }
    return bytes;
}

static int64_t launched(const tg_wgsl_stage *stage) { return (int64_t)stage->groups[0] * stage->groups[1] * stage->groups[2]; }

/* A module enables what it uses, before all else but comments, and nothing more. */
static void check_enabled(const char *source) {
    const bool f16 = strstr(source, "f16>") != NULL, matrices = strstr(source, "subgroup_matrix_result") != NULL;
    const char *first = source;
    while (strncmp(first, "//", 2) == 0) first = strchr(first, '\n') + 1;
    assert_int_equal(strstr(source, "enable f16;\n") != NULL, f16);
    assert_int_equal(strstr(source, "enable chromium_experimental_subgroup_matrix;\n") != NULL, matrices);
    assert_int_equal(strstr(source, "@builtin(subgroup_id)") != NULL, matrices);
    if (f16) assert_int_equal(strncmp(first, matrices ? "diagnostic(off, " : "enable f16;", 11), 0);
}

static void check_printed(const contraction *c) {
    printed_contraction p, again;
    print_contraction(&p, c);
    print_contraction(&again, c);
    assert_int_equal(p.wgsl.stage_count, again.wgsl.stage_count);
    assert_in_range(p.wgsl.stage_count, 1, 2);
    assert_int_equal(p.wgsl.stage_count == 2, p.wgsl.scratch_bytes > 0);
    for (int32_t s = 0; s < p.wgsl.stage_count; s++) {
        const tg_wgsl_stage *stage = &p.wgsl.stages[s];
        assert_string_equal(stage->source, again.wgsl.stages[s].source);
        assert_in_range(shared_bytes(stage->source), 0, printed_for->workgroup_bytes);
        assert_in_range(launched(stage), 1, INT32_MAX);
        for (int d = 0; d < 3; d++) assert_in_range(stage->groups[d], 1, printed_for->groups);
        const char *size = strstr(stage->source, "@workgroup_size(");
        assert_non_null(size);
        assert_in_range(strtol(size + 16, NULL, 10), 1, printed_for->invocations);
        check_enabled(stage->source);
        /* an early return would leave others waiting */
        const char *leave = strstr(stage->source, "return; }");
        if (leave && strstr(stage->source, "workgroupBarrier")) assert_non_null(strstr(stage->source, "if (group >= "));
    }
    if (c->method && !strstr(p.wgsl.stages[0].source, c->method)) fail_msg("no '%s' in\n%.300s", c->method, p.wgsl.stages[0].source);
    printed_free(&again);
    printed_free(&p);
}

/* The shapes that the choice is about. A change of the cost function that moves one of these should know that it does. */
static const contraction chosen[] = {
    {"", "m", "n", "k", {4096, 4096, 4096}, "mk", "kn", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1 part"},
    {"", "m", "n", "k", {4096, 4096, 4096}, "km", "nk", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1 part"},
    {"", "m", "n", "k", {993, 993, 993}, "mk", "kn", "mn", PLAIN, "tiles of"},
    {"", "m", "n", "k", {512, 512, 512}, "mk", "kn", "mn", PLAIN, "tiles of"},
    /* small layers: one stage, an invocation for an output or a few of them for one */
    {"", "m", "n", "k", {256, 64, 64}, "mk", "kn", "mn", PLAIN, "direct"},
    {"", "m", "n", "k", {64, 64, 256}, "km", "kn", "mn", PLAIN, "direct"},
    {"", "m", "n", "k", {33, 31, 1}, "mk", "kn", "mn", PLAIN, "direct, 1 x 1 each, 1 way"},
    /* weight gradients: small output, long k */
    {"", "m", "n", "k", {64, 64, 8192}, "km", "kn", "mn", PLAIN, "parts"},
    {"", "m", "n", "k", {16, 48, 4096}, "km", "kn", "mn", PLAIN, "parts"},
    /* a vector on either side, and two of them */
    {"", "", "n", "k", {4096, 4096}, "k", "kn", "n", PLAIN, "ways"},
    {"", "m", "", "k", {4096, 4096}, "mk", "k", "m", PLAIN, "ways"},
    {"", "", "", "k", {1 << 20}, "k", "k", "", PLAIN, "256 ways"},
    /* attention: matrices too small for a tile each */
    {"bB", "m", "n", "k", {4, 256, 12, 12, 16}, "bmBk", "bnBk", "bBmn", PLAIN, "direct"},
    {"bB", "m", "n", "k", {4, 256, 12, 16, 12}, "bBmk", "bkBn", "bmBn", PLAIN, "direct"},
    /* more workgroups than one dimension takes */
    {"b", "m", "n", "k", {1 << 22, 3, 5, 2}, "bmk", "bkn", "bmn", PLAIN, "direct"},
    {"b", "m", "n", "k", {70000, 64, 64, 64}, "bmk", "bkn", "bmn", PLAIN, "tiles of 64 x 64"},
};

static void test_choice(void **state) {
    (void)state;
    for (int i = 0; i < SUPPORT_COUNT(chosen); i++) check_printed(&chosen[i]);
}

static bool reads_vectors(const contraction *c, int argument) {
    char text[64];
    printed_contraction p;
    print_contraction(&p, c);
    snprintf(text, sizeof text, " a%d: array<vec4<f32>, %lld>;", argument, (long long)(p.made.buffers[argument].count / 4));
    const bool wide = strstr(p.wgsl.stages[0].source, text) != NULL;
    printed_free(&p);
    return wide;
}

static void test_vectors(void **state) {
    (void)state;
    contraction c = {"", "m", "n", "k", {1024, 1024, 1024}, "mk", "kn", "mn", PLAIN, NULL};
    assert_true(reads_vectors(&c, A) && reads_vectors(&c, B));
    c.a = "km";
    c.b = "nk";
    assert_true(reads_vectors(&c, A) && reads_vectors(&c, B));
    /* what is contiguous must be a multiple of four, or a row begins off a vector */
    c.extent[0] = 1022;
    assert_true(!reads_vectors(&c, A) && reads_vectors(&c, B));
    c.extent[0] = 1024;
    c.extent[2] = 1022;
    assert_true(reads_vectors(&c, A) && !reads_vectors(&c, B));
    /* backwards along what is contiguous there is no vector; backwards across it there is */
    c.extent[2] = 1024;
    c.how = REVERSED;
    assert_false(reads_vectors(&c, A));
    c.a = "mk";
    assert_true(reads_vectors(&c, A));
    /* one buffer, one type */
    c = (contraction){"", "m", "n", "k", {1024, 1024, 1024}, "mk", "nk", "mn", SHARED, NULL};
    assert_true(reads_vectors(&c, A));
}

static void test_the_epilogue_reads_elements_of_an_operand_of_vectors(void **state) {
    (void)state;
    const contraction c = {"", "m", "n", "k", {4096, 4096, 256}, "mk", "kn", "mn", PLAIN, NULL};
    printed_contraction p = {.ctx = support_context()};
    tg_arena_init(&p.arena, p.ctx);
    make(&p.made, &c);
    p.made.body[1].argument = A; /* residual: sum + a */
    assert_int_equal(tg_emit_wgsl(&p.made.program, 0, &tg_device_guaranteed, &p.arena, &p.wgsl), TG_OK);
    assert_non_null(strstr(p.wgsl.stages[0].source, " a0: array<vec4<f32>, 262144>;"));
    assert_non_null(strstr(p.wgsl.stages[0].source, "fn at_a0(i: i32) -> f32 { return a0[i >> 2u][i & 3]; }"));
    assert_non_null(strstr(p.wgsl.stages[0].source, " = at_a0("));
    assert_non_null(strstr(p.wgsl.stages[0].source, " a1: array<vec4<f32>, 262144>;"));
    printed_free(&p);
}

/* ---------------------------------------------------------------- schedules */

static void check_limits_of(const tg_wgsl_kernel *printed) {
    for (int32_t s = 0; s < printed->stage_count; s++) {
        const char *source = printed->stages[s].source, *size = strstr(source, "@workgroup_size(");
        assert_in_range(shared_bytes(source), 0, tg_device_guaranteed.workgroup_bytes);
        assert_non_null(size);
        assert_in_range(strtol(size + 16, NULL, 10), 1, tg_device_guaranteed.invocations);
    }
    assert_in_range(printed->scratch_bytes, 0, INT64_C(128) << 20);
}

static void print_with(printed_contraction *p, const char *key, const tg_schedule *schedule, tg_wgsl_kernel *printed) {
    const tg_schedule_entry entry = {key, *schedule};
    const tg_schedules table = {&entry, 1};
    tg_device_model limits = tg_device_guaranteed;
    limits.schedules = &table;
    if (tg_emit_wgsl_launch(&p->made.program, 0, &limits, &p->arena, printed) != TG_OK) fail_msg("%s", tg_error_message(p->ctx));
}

/* Each is followed, differs from the others in what is printed, and keeps within the limits. */
static void check_schedules(const contraction *c, int32_t least) {
    printed_contraction p;
    print_contraction(&p, c);
    tg_wgsl_candidates choices;
    assert_int_equal(tg_wgsl_find_candidates(&p.made.program, 0, &tg_device_guaranteed, &p.arena, &choices), TG_OK);
    assert_true(choices.count >= least);
    const char **sources = calloc((size_t)choices.count, sizeof *sources);
    assert_non_null(sources);
    for (int32_t i = 0; i < choices.count; i++) {
        tg_wgsl_kernel printed;
        print_with(&p, choices.key, &choices.items[i], &printed);
        assert_int_equal(printed.tuned, 1);
        check_limits_of(&printed);
        sources[i] = printed.stages[0].source;
        for (int32_t j = 0; j < i; j++) assert_string_not_equal(sources[i], sources[j]);
    }
    assert_string_equal(sources[0], p.wgsl.stages[0].source); /* the first is the printer's own */
    free(sources);
    printed_free(&p);
}

static void test_every_schedule_is_printed(void **state) {
    (void)state;
    const contraction large = {"", "m", "n", "k", {4096, 4096, 4096}, "mk", "kn", "mn", PLAIN, NULL};
    const contraction odd = {"b", "m", "n", "k", {3, 131, 260, 71}, "bmk", "bnk", "bmn", PLAIN, NULL};
    const contraction vector = {"", "", "n", "k", {4096, 4096}, "k", "kn", "n", PLAIN, NULL};
    check_schedules(&large, 100);
    check_schedules(&odd, 100);
    check_schedules(&vector, 10);
}

static void test_what_a_table_may_not_say(void **state) {
    (void)state;
    const contraction c = {"", "m", "n", "k", {256, 256, 256}, "mk", "kn", "mn", PLAIN, NULL};
    static const char *const foreign[] = {
        "direct rows=1 columns=1 size=96 ways=1 ways_first=0 parts=1",                                   /* no power of two */
        "direct rows=1 columns=1 size=1024 ways=1 ways_first=0 parts=1",                                 /* too many invocations */
        "direct rows=9 columns=9 size=64 ways=1 ways_first=0 parts=1",                                   /* no such block */
        "direct rows=1 columns=1 size=64 ways=64 ways_first=0 parts=9999",                               /* scratch */
        "direct rows=0 columns=0 size=0 ways=0 ways_first=0 parts=0",                                    /* nothing at all */
        "tiles tile_m=128 tile_n=128 rows=16 columns=8 slice=32 buffers=2 by_rows=0 unrolled=0 parts=1", /* workgroup memory */
        "tiles tile_m=64 tile_n=64 rows=4 columns=4 slice=8 buffers=1 by_rows=0 unrolled=0 parts=1",     /* half a fetch each */
        "tiles tile_m=9999 tile_n=9999 rows=9999 columns=9999 slice=9999 buffers=99 by_rows=9 unrolled=9 parts=9", /* anything */
        "chain size=256 panel=8",
        "beside size=256 overlap=2",
    };
    printed_contraction p;
    print_contraction(&p, &c);
    tg_wgsl_candidates choices;
    assert_int_equal(tg_wgsl_find_candidates(&p.made.program, 0, &tg_device_guaranteed, &p.arena, &choices), TG_OK);
    for (int i = 0; i < SUPPORT_COUNT(foreign); i++) {
        tg_schedule schedule;
        tg_wgsl_kernel printed;
        assert_true(tg_schedule_parse(foreign[i], strlen(foreign[i]), &schedule));
        print_with(&p, choices.key, &schedule, &printed);
        assert_int_equal(printed.tuned, 0);
        assert_string_equal(printed.stages[0].source, p.wgsl.stages[0].source);
    }
    /* right, but of another contraction */
    tg_wgsl_kernel printed;
    print_with(&p, "contract 1x256x256x255 k 4row stored", &choices.items[1], &printed);
    assert_int_equal(printed.tuned, 0);
    printed_free(&p);
}

/* Launches of two: other workgroup sizes, other panels, other numbers of parts. */
static void test_schedules_of_launches(void **state) {
    (void)state;
    const contraction c = {"", "m", "n", "k", {64, 64, 512}, "mk", "kn", "mn", PLAIN, NULL};
    for (int32_t slices = 0; slices <= 4; slices += 4) {
        printed_contraction p;
        print_contraction(&p, &c);
        join(&p.made, slices);
        tg_wgsl_candidates choices;
        tg_wgsl_kernel own, printed;
        assert_int_equal(tg_emit_wgsl_launch(&p.made.program, 0, &tg_device_guaranteed, &p.arena, &own), TG_OK);
        assert_int_equal(tg_wgsl_find_candidates(&p.made.program, 0, &tg_device_guaranteed, &p.arena, &choices), TG_OK);
        assert_in_range(choices.count, 4, 64);
        int different = 0;
        for (int32_t i = 0; i < choices.count; i++) {
            print_with(&p, choices.key, &choices.items[i], &printed);
            assert_int_equal(printed.tuned, 1);
            check_limits_of(&printed);
            different += strcmp(printed.stages[0].source, own.stages[0].source) != 0;
            if (i == 0) assert_int_equal(different, 0);
        }
        assert_true(different >= 3);
        /* not one of the choices */
        tg_schedule foreign = choices.items[0];
        foreign.size = 192;
        print_with(&p, choices.key, &foreign, &printed);
        assert_int_equal(printed.tuned, 0);
        assert_string_equal(printed.stages[0].source, own.stages[0].source);
        printed_free(&p);
    }
}

/* ---------------------------------------------------------------- on a device */

/* The nearest half, of finite values over the largest that one. */
static double half_of(double x) {
    if (!isfinite(x) || x == 0.0) return x;
    const double most = 65504.0, step = ldexp(1.0, (ilogb(x) > -14 ? ilogb(x) : -14) - 10);
    return fabs(x) > most ? copysign(most, x) : nearbyint(x / step) * step;
}

static bool rounds; /* the reference does what tiles of halves do */

static bool in_halves(const contraction *c) {
    printed_contraction p;
    print_contraction(&p, c);
    const bool is = strstr(p.wgsl.stages[0].source, "halves, ") != NULL;
    printed_free(&p);
    return is;
}
static double operand_of(float x) { return rounds ? half_of((double)x) : (double)x; }

static double value_of(int buffer, int64_t i) {
    const int64_t x = (i * 7919 + buffer * 104729 + (i >> 9) * 31) % 2003;
    return (double)(float)((double)x / 1001.0 - 1.0);
}

/* Offsets of the points of loops [from, to), row-major. */
static int64_t *points_of(const tg_kernel *kernel, const tg_affine *at, int32_t from, int32_t to, int64_t offset, int64_t *count) {
    *count = 1;
    for (int32_t d = from; d < to; d++) *count *= kernel->extent[d];
    int64_t *points = malloc(sizeof *points * (size_t)*count);
    assert_non_null(points);
    for (int64_t i = 0; i < *count; i++) {
        int64_t rest = i;
        points[i] = offset;
        for (int32_t d = to - 1; d >= from; d--) {
            points[i] += at->stride[d] * (rest % kernel->extent[d]);
            rest /= kernel->extent[d];
        }
    }
    return points;
}

static void sum_in_f64(const handmade *h, float *const *data, double *want) {
    const tg_kernel *kernel = &h->kernels[0];
    const int32_t outer = kernel->outer_count, all = kernel->loop_count;
    int64_t outputs, k;
    int64_t *a = points_of(kernel, &kernel->a.at, 0, outer, kernel->a.at.offset, &outputs);
    int64_t *b = points_of(kernel, &kernel->b.at, 0, outer, kernel->b.at.offset, &outputs);
    int64_t *y = points_of(kernel, &h->y, 0, outer, 0, &outputs);
    int64_t *ak = points_of(kernel, &kernel->a.at, outer, all, 0, &k), *bk = points_of(kernel, &kernel->b.at, outer, all, 0, &k);
    const float *left = data[A], *right = data[kernel->b.argument];
    for (int64_t i = 0; i < outputs; i++) {
        double sum = (double)data[BIAS][y[i]];
        for (int64_t j = 0; j < k; j++) sum += operand_of(left[a[i] + ak[j]]) * operand_of(right[b[i] + bk[j]]);
        want[y[i]] = sum;
    }
    free(a), free(b), free(y), free(ak), free(bk);
}

/* Largest error and the root of the mean square, both over the root of the mean square of what is wanted. */
static void errors_of(const float *got, const double *want, int64_t count, double *largest, double *mean) {
    double squares = 0.0, wanted = 0.0;
    *largest = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - want[i]);
        if (!(error <= *largest)) *largest = error; /* NaN too */
        squares += error * error;
        wanted += want[i] * want[i];
    }
    *largest /= sqrt(wanted / (double)count);
    *mean = sqrt(squares / wanted);
}

/* Slices into which y and the first loop can be cut, each of at least `rows` points of it; 0: none. */
static int32_t slices_of(const handmade *h, const contraction *c, int64_t rows) {
    const int64_t extent = h->kernels[0].extent[0], count = h->buffers[Y].count;
    if (h->kernels[0].outer_count == 0 || c->how == IN_PLACE || h->y.stride[0] * extent != count) return 0;
    for (int64_t slices = extent / rows < 512 ? extent / rows : 512; slices > 1; slices--)
        if (extent % slices == 0) return (int32_t)slices;
    return 0;
}

static void run_twice(tg_context *ctx, tg_device *device, const handmade *h, float *const *data, float *const *got) {
    tg_executable *executable = NULL;
    const void *inputs[3] = {data[A], data[B], data[BIAS]};
    const int32_t slots[1] = {0};
    const int64_t states = h->program.state_count > 0 ? h->buffers[Y].count : 0;
    if (states > 0 && tg_webgpu_executor.make_state(device, 0, "y", TG_F32, states) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    if (tg_webgpu_executor.load(device, &h->program, slots, &executable) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    for (int run = 0; run < 2; run++) {
        void *outputs[1] = {got[run]};
        if (states > 0 && tg_webgpu_executor.write_state(device, 0, 0, data[BIAS], states) != TG_OK) fail_msg("%s", tg_error_message(ctx));
        if (tg_webgpu_executor.run(device, executable, inputs, outputs) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    }
    tg_webgpu_executor.unload(device, executable);
}

enum { ALONE, BESIDE, CHAIN, TUNED };

/* The two kernels are one source, unless that needs more than a device guarantees. Says whether it has tiles of halves. */
static bool check_joined(tg_context *ctx, const handmade *h) {
    tg_arena arena;
    tg_wgsl_kernel printed;
    tg_arena_init(&arena, ctx);
    assert_int_equal(tg_emit_wgsl_launch(&h->program, 0, printed_for, &arena, &printed), TG_OK);
    assert_non_null(strstr(printed.stages[0].source, h->launch.slices > 0 ? "// a chain of 2 kernels" : "// 2 kernels side by side"));
    for (int32_t s = 0; s < printed.stage_count; s++) {
        assert_in_range(shared_bytes(printed.stages[s].source), 0, printed_for->workgroup_bytes);
        assert_in_range(printed.stages[s].binding_count, 1, 3);
        check_enabled(printed.stages[s].source);
    }
    const bool halved = strstr(printed.stages[0].source, "halves, ") != NULL;
    tg_arena_free(&arena);
    return halved;
}

/* y, or z of a joint launch, on the device, twice. */
static void compare_on_device(tg_context *ctx, tg_device *device, const contraction *c, int joint, int32_t slices) {
    handmade h;
    float *data[3], *got[2];
    make(&h, c);
    const int64_t outputs = h.buffers[Y].count;
    for (int i = 0; i < 3; i++) {
        data[i] = malloc(sizeof(float) * (size_t)h.buffers[i].count);
        assert_non_null(data[i]);
        for (int64_t j = 0; j < h.buffers[i].count; j++) data[i][j] = (float)value_of(i, j);
    }
    for (int i = 0; i < 2; i++) assert_non_null(got[i] = malloc(sizeof(float) * (size_t)outputs));
    double *want = malloc(sizeof(double) * (size_t)outputs), largest, mean;
    assert_non_null(want);
    if (joint == BESIDE || joint == CHAIN) {
        join(&h, slices);
        rounds = check_joined(ctx, &h);
    } else rounds = in_halves(c);
    sum_in_f64(&h, data, want);
    for (int64_t i = 0; joint == CHAIN && i < outputs; i++) want[i] += (double)data[BIAS][i];
    run_twice(ctx, device, &h, data, got);
    errors_of(got[0], want, outputs, &largest, &mean);
    const bool same = memcmp(got[0], got[1], sizeof(float) * (size_t)outputs) == 0;
    for (int i = 0; i < 3; i++) free(data[i]);
    for (int i = 0; i < 2; i++) free(got[i]);
    free(want);
    if (!same || !(mean < 1.5e-6) || !(largest < 1e-5))
        fail_msg("[%s | %s | %s | %s] from %s, %s to %s, first loop %lld, %s: error %g, mean %g, runs %s", c->batch, c->m, c->n, c->k, c->a,
                 c->b, c->y, (long long)c->extent[0],
                 joint == ALONE    ? "alone"
                 : joint == BESIDE ? "side by side"
                 : joint == CHAIN  ? "in a chain"
                                   : "by a schedule",
                 largest, mean, same ? "equal" : "DIFFER");
}

/* Alone; and, if `joined`, in launches of two. */
static void check_on_device(tg_context *ctx, tg_device *device, const contraction *c, bool joined) {
    handmade h;
    check_printed(c);
    make(&h, c);
    compare_on_device(ctx, device, c, ALONE, 0);
    if (!joined) return;
    if (h.program.input_block_bytes > INT64_C(128) << 20) return; /* more than one binding holds: a planner does not join such */
    if (c->how != IN_PLACE) compare_on_device(ctx, device, c, BESIDE, 0);
    for (int64_t rows = 1; rows <= 16; rows += 10) {
        const int32_t slices = slices_of(&h, c, rows);
        if (slices > 0) compare_on_device(ctx, device, c, CHAIN, slices);
    }
}

/* Every `each`-th case is joined with others too: a software device takes seconds for each of these launches. */
static void check_all(const contraction *cases, int count, int each) {
    support_need_webgpu();
    tg_device *device = NULL;
    tg_context *ctx = support_context();
    if (tg_webgpu_executor.open(ctx, &(tg_open_options){.threads = 1}, &device) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    for (int i = 0; i < count; i++) check_on_device(ctx, device, &cases[i], i % each == 0);
    tg_webgpu_executor.close(device);
    tg_context_destroy(ctx);
}

static void test_tiles(void **state) {
    (void)state;
    static const contraction cases[] = {
        {"", "m", "n", "k", {1153, 1153, 17}, "mk", "kn", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, scalar"},
        {"", "m", "n", "k", {1284, 1028, 36}, "mk", "kn", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1"},
        {"", "m", "n", "k", {1028, 1284, 41}, "km", "kn", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1"},
        {"", "m", "n", "k", {1284, 1028, 36}, "mk", "nk", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1"},
        {"", "m", "n", "k", {1028, 1284, 44}, "km", "nk", "mn", PLAIN, "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads, 1"},
        {"b",
         "m",
         "n",
         "k",
         {132, 127, 124, 31},
         "bkm",
         "bkn",
         "bmn",
         IN_PLACE,
         "tiles of 128 x 128, 16 x 8 each, k by 8, vec4 reads of one"},
        {"", "m", "n", "k", {1000, 700, 68}, "mk", "kn", "mn", PLAIN, "tiles of 128 x 64, 8 x 4 each, k by 16, vec4 reads, 1"},
        {"", "m", "n", "k", {60, 9000, 68}, "km", "nk", "mn", PLAIN, "tiles of 64 x 128, 4 x 8 each, k by 16, vec4 reads, 1"},
        {"", "m", "n", "k", {577, 641, 33}, "mk", "nk", "mn", REVERSED, "tiles of 64 x 64, 4 x 4 each, k by 16, scalar"},
        {"b", "m", "n", "k", {132, 63, 63, 31}, "bkm", "kn", "mbn", PLAIN, "tiles of 64 x 64"},
        {"", "m", "n", "k", {640, 640, 65}, "km", "kn", "nm", PLAIN, "tiles of 64 x 64, 4 x 4 each, k by 16, vec4 reads, 1"},
        {"", "m", "n", "k", {512, 512, 64}, "mk", "kn", "mn", PLAIN, "tiles of 32 x 64, 4 x 4 each, k by 32, vec4 reads, 1"},
        /* a sum longer than one chain of additions */
        {"b", "m", "n", "k", {132, 64, 64, 520}, "bmk", "bnk", "bmn", PLAIN, "tiles of 64 x 64, 4 x 4 each, k by 16, vec4 reads, 1"},
        {"", "m", "n", "k", {513, 513, 33}, "mk", "nk", "mn", PLAIN, "tiles of 32 x 32, 4 x 4 each, k by 16, scalar"},
        {"", "mM", "nN", "kK", {8, 64, 64, 8, 4, 16}, "MmkK", "NkKn", "mMNn", PLAIN, "tiles of"},
        {"", "m", "n", "k", {64, 64, 8200}, "km", "kn", "mn", PLAIN, "parts"},
    };
    check_all(cases, SUPPORT_COUNT(cases), 5);
}

static void test_direct(void **state) {
    (void)state;
    static const contraction cases[] = {
        {"", "", "n", "k", {993, 1024}, "k", "nk", "n", PLAIN, "ways, vec4 reads"},
        {"", "", "n", "k", {993, 1023}, "k", "kn", "n", PLAIN, "ways"},
        {"", "m", "", "k", {4097, 993}, "mk", "k", "m", PLAIN, "ways"},
        {"", "", "", "k", {65537}, "k", "k", "", PLAIN, "256 ways"},
        {"", "m", "n", "k", {16, 48, 4096}, "km", "kn", "mn", PLAIN, "parts"},
        {"", "m", "n", "k", {33, 31, 4099}, "km", "kn", "mn", IN_PLACE, "parts"},
        {"", "m", "n", "k", {3, 2, 30001}, "mk", "nk", "mn", PLAIN, "direct"},
        {"bB", "m", "n", "k", {4, 256, 12, 12, 16}, "bmBk", "bnBk", "bBmn", PLAIN, "direct"},
        {"bB", "m", "n", "k", {4, 256, 11, 16, 11}, "bBmk", "bkBn", "bmBn", PLAIN, "direct"},
        {"b", "m", "n", "k", {8, 33, 31, 17}, "bmk", "kn", "bmn", PLAIN, "direct"}, /* b has no batch */
        {"b", "m", "n", "k", {9, 31, 33, 65}, "mk", "bkn", "bmn", PLAIN, "direct"},
        {"b", "mM", "nN", "kK", {2, 5, 6, 4, 8, 3, 8}, "mbkMK", "kNKn", "bnmNM", PLAIN, "direct"},
        {"b", "mM", "nN", "kK", {2, 7, 4, 7, 4, 8, 16}, "bMkmK", "NbKnk", "bmnMN", PLAIN, "direct"},
        {"", "m", "n", "k", {65, 33, 31}, "mk", "kn", "mn", REVERSED, "direct"},
        {"", "m", "n", "k", {64, 64, 32}, "mk", "nk", "mn", SHARED, "direct"}, /* x x^T */
        {"b", "m", "n", "k", {70000, 3, 5, 2}, "bmk", "bkn", "bmn", PLAIN, "direct"},
        {"b", "m", "n", "k", {1 << 20, 1, 8, 3}, "bmk", "bkn", "bmn", PLAIN, "direct"},
    };
    check_all(cases, SUPPORT_COUNT(cases), 3);
}

/* Operands as windows have them: loops of k with few taps, whose offsets are in tables or come by
 * fours; and batches that share the left operand, side by side in the columns of one tile. */
static void test_windows(void **state) {
    (void)state;
    static const contraction cases[] = {
        {"b", "m", "hw", "kpq", {33, 64, 9, 7, 30, 3, 3}, "mkpq", "bkhpqw", "bmhw", PLAIN, "offsets in tables"},
        {"b", "m", "hw", "kpq", {33, 60, 9, 7, 30, 3, 3}, "kmpq", "bkhpwq", "bmhw", PLAIN, "offsets in tables"},
        {"bg", "m", "hw", "kpq", {9, 4, 36, 7, 11, 12, 5, 5}, "gmkpq", "bgkhpqw", "bgmhw", PLAIN, NULL},
        {"b", "m", "hw", "kpq", {65, 36, 9, 11, 5, 3, 3}, "mkpq", "bkhpqw", "bmhw", REVERSED, NULL},
        {"b", "m", "n", "kK", {132, 64, 67, 65, 4}, "mkK", "kbKn", "bmn", PLAIN, "tiles of"},
        {"", "m", "kpq", "bhw", {64, 8, 3, 3, 40, 7, 9}, "bmhw", "bkhpwq", "mkpq", PLAIN, "parts"},
        {"b", "m", "hw", "kpq", {5, 8, 5, 7, 3, 3, 3}, "mkpq", "bkhpqw", "bmhw", PLAIN, "direct"},
        {"b", "m", "hw", "kpq", {65, 36, 4, 4, 9, 3, 3}, "mkpq", "bkhpqw", "bmhw", REVERSED, NULL},
    };
    check_all(cases, SUPPORT_COUNT(cases), 5);
}

/* Layers of a few tokens, as a chain has them: weights as they lie, and transposed. */
static void test_panels(void **state) {
    (void)state;
    static const contraction cases[] = {
        {"", "m", "n", "k", {64, 64, 64}, "mk", "kn", "mn", PLAIN, NULL},
        {"", "m", "n", "k", {48, 256, 64}, "mk", "nk", "mn", PLAIN, NULL},
        {"", "m", "n", "k", {64, 20, 516}, "mk", "nk", "mn", PLAIN, NULL},
        {"", "m", "n", "k", {60, 300, 71}, "mk", "kn", "mn", PLAIN, NULL},
        {"", "mM", "n", "kK", {16, 8, 64, 4, 16}, "mkMK", "kKn", "mMn", PLAIN, NULL},
    };
    check_all(cases, SUPPORT_COUNT(cases), 1);
}

/* Every size that sits at an edge of a tile, a vector or a step, against some others. */
static void test_edges(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 31, 33, 63, 65, 127, 129};
    static const char *const layouts[4][2] = {{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}};
    contraction cases[SUPPORT_COUNT(sizes) * 4];
    const int count = SUPPORT_COUNT(sizes);
    for (int i = 0; i < count * 4; i++) {
        const int64_t m = sizes[i % count], n = sizes[(i * 3 + i / count) % count], k = sizes[(i * 7 + 2 * (i / count)) % count];
        const char *const *layout = layouts[i / 3 % 4];
        cases[i] = (contraction){"", "m", "n", "k", {m, n, k}, layout[0], layout[1], i % 5 == 0 ? "nm" : "mn", PLAIN, NULL};
    }
    check_all(cases, count * 4, 10);
}

/* Schedules from cheap to dear, others for each of four layouts. */
static void test_schedules_are_right(void **state) {
    (void)state;
    support_need_webgpu();
    static const char *const layouts[4][2] = {{"mk", "kn"}, {"km", "nk"}, {"mk", "nk"}, {"km", "kn"}};
    tg_device *device = NULL;
    tg_context *ctx = support_context();
    if (tg_webgpu_executor.open(ctx, &(tg_open_options){.threads = 1}, &device) != TG_OK) fail_msg("%s", tg_error_message(ctx));
    for (int l = 0; l < 4; l++) {
        const contraction c = {"", "m", "n", "k", {132, 67, l % 2 ? 72 : 41}, layouts[l][0], layouts[l][1], "mn", PLAIN, NULL};
        printed_contraction p;
        tg_wgsl_candidates choices;
        print_contraction(&p, &c);
        assert_int_equal(tg_wgsl_find_candidates(&p.made.program, 0, tg_webgpu_executor.model(device), &p.arena, &choices), TG_OK);
        for (int j = 0; j < SCHEDULES; j++) {
            const int32_t i = (choices.count * (4 * j + l) / (4 * SCHEDULES) + j) % choices.count;
            const tg_schedule_entry entry = {choices.key, choices.items[i]};
            const tg_schedules table = {&entry, 1};
            tg_webgpu_set_schedules(device, &table);
            compare_on_device(ctx, device, &c, TUNED, 0);
            tg_webgpu_set_schedules(device, NULL);
        }
        printed_free(&p);
    }
    tg_webgpu_executor.close(device);
    tg_context_destroy(ctx);
}

/* ---------------------------------------------------------------- halves */

static const contraction halves[] = {
    {"", "m", "n", "k", {1153, 1153, 17}, "mk", "kn", "mn", PLAIN, "scalar reads, halves, 1 part"},
    {"", "m", "n", "k", {1028, 1284, 41}, "km", "kn", "mn", PLAIN, "vec4 reads, halves, 1 part"},
    {"", "m", "n", "k", {1284, 1028, 36}, "mk", "nk", "mn", PLAIN, "vec4 reads, halves, 1 part"},
    {"b", "m", "n", "k", {132, 127, 124, 31}, "bkm", "bkn", "bmn", IN_PLACE, "vec4 reads of one operand, halves"},
    {"", "m", "n", "k", {577, 641, 33}, "mk", "nk", "mn", REVERSED, "scalar reads, halves"},
    {"", "m", "n", "k", {640, 640, 65}, "km", "kn", "nm", PLAIN, "vec4 reads, halves"},
    {"", "mM", "nN", "kK", {8, 64, 64, 8, 4, 16}, "MmkK", "NkKn", "mMNn", PLAIN, "halves"},
    {"", "m", "n", "k", {256, 256, 8200}, "km", "kn", "mn", PLAIN, "parts"},
};
/* With matrices: the same, by the larger tile and the smaller one, and where they do not help. */
static const contraction matrices[] = {
    {"",
     "m",
     "n",
     "k",
     {4096, 4096, 4096},
     "mk",
     "kn",
     "mn",
     PLAIN,
     "tiles of 128 x 128, 8 x 8 each, k by 32, vec4 reads, subgroup matrices"},
    {"", "m", "n", "k", {512, 512, 512}, "mk", "kn", "mn", PLAIN, "tiles of 64 x 64, 4 x 4 each, k by 32, vec4 reads, subgroup matrices"},
    {"", "m", "n", "k", {1537, 1665, 97}, "mk", "kn", "mn", PLAIN, "scalar reads, subgroup matrices of halves, 1 part"},
    {"", "m", "n", "k", {1664, 1540, 100}, "km", "kn", "mn", PLAIN, "vec4 reads, subgroup matrices of halves, 1 part"},
    {"", "m", "n", "k", {1540, 1664, 100}, "mk", "nk", "mn", PLAIN, "vec4 reads, subgroup matrices of halves, 1 part"},
    {"", "m", "n", "k", {1540, 1664, 100}, "km", "nk", "nm", PLAIN, "vec4 reads, subgroup matrices of halves, 1 part"},
    {"b", "m", "n", "k", {132, 127, 124, 131}, "bkm", "bkn", "bmn", IN_PLACE, "subgroup matrices of halves"},
    {"", "m", "n", "k", {577, 641, 133}, "mk", "nk", "mn", REVERSED, "subgroup matrices of halves"},
    {"", "mM", "nN", "kK", {8, 64, 64, 8, 16, 16}, "MmkK", "NkKn", "mMNn", PLAIN, "subgroup matrices of halves"},
    {"", "m", "n", "k", {256, 256, 8200}, "km", "kn", "mn", PLAIN, "subgroup matrices of halves"},
    {"", "m", "n", "k", {33, 31, 17}, "mk", "kn", "mn", PLAIN, "direct"},
    {"bB", "m", "n", "k", {4, 256, 12, 12, 16}, "bmBk", "bnBk", "bBmn", PLAIN, "direct"},
};

static void test_halves_as_printed(void **state) {
    (void)state;
    printed_for = &with_halves;
    for (int i = 0; i < SUPPORT_COUNT(halves); i++) check_printed(&halves[i]);
    printed_for = &with_matrices;
    for (int i = 0; i < SUPPORT_COUNT(matrices); i++) check_printed(&matrices[i]);
    printed_for = &tg_device_guaranteed;
}

/* A device that uses halves; NULL where none is offered. */
static tg_device *open_with_halves(tg_context *ctx) {
    tg_device *device = NULL;
    if (tg_webgpu_executor.open(ctx, &(tg_open_options){.threads = 1, .f16 = true}, &device) != TG_OK)
        fail_msg("%s", tg_error_message(ctx));
    printed_for = tg_webgpu_executor.model(device);
    if (printed_for->f16) return device;
    print_message("the adapter offers no f16, or is a processor: nothing of halves was run\n");
    tg_webgpu_executor.close(device);
    return NULL;
}

static void test_halves(void **state) {
    (void)state;
    support_need_webgpu();
    tg_context *ctx = support_context();
    tg_device *device = open_with_halves(ctx);
    const contraction *cases = printed_for->matrix_subgroup > 0 ? matrices : halves;
    const int count = printed_for->matrix_subgroup > 0 ? SUPPORT_COUNT(matrices) : SUPPORT_COUNT(halves);
    for (int i = 0; device != NULL && i < count; i++) {
        if (cases[i].extent[0] == 4096) continue; /* the reference takes a minute */
        contraction c = cases[i];
        c.method = NULL; /* the device's limits are its own */
        assert_int_equal(in_halves(&c), i < 8 || (printed_for->matrix_subgroup > 0 && i < 10));
        check_on_device(ctx, device, &c, cases == halves && i % 3 == 1); /* beside others there are no matrices */
    }
    printed_for = &tg_device_guaranteed;
    if (device != NULL) tg_webgpu_executor.close(device);
    tg_context_destroy(ctx);
}

/* What halves cannot hold: a row each of the left operand, all else 1 / 8, k = 32. */
static void test_beyond_halves(void **state) {
    (void)state;
    static const struct {
        float value;
        double sum; /* with 31 times 1 / 64 more */
    } rows[] = {
        {65504.0f, 8188.0},
        {65519.0f, 8188.0},
        {65520.0f, 8188.0},
        {1e6f, 8188.0},
        {-3e38f, -8188.0},
        {INFINITY, INFINITY},
        {-INFINITY, -INFINITY},
        {NAN, NAN},
        {0.1f, 0.0999755859375 / 8},
        {1.00048828125f, 1.0 / 8},
        {1.00146484375f, 1.001953125 / 8},
        {6e-8f, 0.0},
        {0.0f, 0.0},
    };
    const contraction c = {"", "m", "n", "k", {640, 640, 32}, "mk", "kn", "mn", PLAIN, NULL};
    support_need_webgpu();
    tg_context *ctx = support_context();
    tg_device *device = open_with_halves(ctx);
    handmade h;
    make(&h, &c);
    float *data[3], *got[2];
    for (int i = 0; i < 3; i++) assert_non_null(data[i] = calloc((size_t)h.buffers[i].count, sizeof(float)));
    for (int i = 0; i < 2; i++) assert_non_null(got[i] = malloc(sizeof(float) * (size_t)h.buffers[Y].count));
    for (int64_t i = 0; i < h.buffers[A].count; i++) data[A][i] = 0.125f;
    for (int64_t i = 0; i < h.buffers[B].count; i++) data[B][i] = 0.125f;
    for (int r = 0; r < SUPPORT_COUNT(rows); r++) data[A][(int64_t)r * 32 * 41 % (640 * 32) + r] = rows[r].value;
    if (device != NULL) {
        assert_true(in_halves(&c));
        run_twice(ctx, device, &h, data, got);
    }
    for (int r = 0; device != NULL && r < SUPPORT_COUNT(rows); r++) {
        const float sum = got[1][(int64_t)r * 41 % 640 * 640 + 7 * r];
        const double want = rows[r].sum + 31.0 / 64;
        if (isnan(want) ? !isnan(sum) : isinf(want) ? (double)sum != want : !(fabs((double)sum - want) <= 2e-7 * fabs(want)))
            fail_msg("row with %g: the sum is %.9g, not %.9g", (double)rows[r].value, (double)sum, want);
    }
    for (int i = 0; i < 3; i++) free(data[i]);
    for (int i = 0; i < 2; i++) free(got[i]);
    printed_for = &tg_device_guaranteed;
    if (device != NULL) tg_webgpu_executor.close(device);
    tg_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_the_epilogue_reads_elements_of_an_operand_of_vectors),
                                       cmocka_unit_test(test_every_schedule_is_printed),
                                       cmocka_unit_test(test_what_a_table_may_not_say),
                                       cmocka_unit_test(test_schedules_of_launches),
                                       cmocka_unit_test(test_schedules_are_right),
                                       cmocka_unit_test(test_tiles),
                                       cmocka_unit_test(test_direct),
                                       cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_panels),
                                       cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_halves_as_printed),
                                       cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_beyond_halves)};
    return cmocka_run_group_tests_name("wgsl_contract", tests, NULL, NULL);
}
