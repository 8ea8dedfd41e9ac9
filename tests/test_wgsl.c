/* Printed WGSL: what a driver and the executor rely on (bindings, sized arrays, launches, one
 * definition of each helper, no builtin that is too inaccurate), splitting of long reductions,
 * spreading of large grids over dimensions, determinism, every failing allocation. Only the last
 * tests need a GPU: they run what only large sizes reach, split reductions and chained scatters. */
#define _XOPEN_SOURCE 700
#include "support.h"

#include "emit/emit.h"
#include "examples.h"
#include "pass/pass.h"
#include "run/executor.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- a case as printed kernels */

typedef struct printed {
    tg_context *ctx;
    tg_graph *graph;
    tg_program *program;
    tg_arena arena;
    tg_wgsl_kernel *kernels;
} printed;

static tg_status print_all(printed *p) {
    p->kernels = TG_NEW(&p->arena, tg_wgsl_kernel, p->program->kernel_count + 1);
    if (p->kernels == NULL) return TG_ERROR_MEMORY;
    for (int32_t k = 0; k < p->program->kernel_count; k++) {
        const tg_status status = tg_emit_wgsl(p->program, k, &tg_device_guaranteed, &p->arena, &p->kernels[k]);
        if (status != TG_OK) return status;
    }
    return TG_OK;
}

static printed print_case(tg_build_fn build, void *user, bool no_fusion) {
    printed p = {.ctx = support_context()};
    const support_case c = {build, user, NULL, NULL};
    tg_arena_init(&p.arena, p.ctx);
    p.graph = support_trace(p.ctx, &c);
    assert_non_null(p.graph);
    assert_int_equal(tg_pass_run(p.graph, true), TG_OK);
    const tg_plan_options options = {.device = &tg_device_guaranteed, .no_fusion = no_fusion, .captures = true};
    p.program = tg_program_make(p.graph, &options);
    assert_non_null(p.program);
    assert_int_equal(tg_program_check(p.program, p.ctx), TG_OK);
    if (print_all(&p) != TG_OK) fail_msg("%s", tg_error_message(p.ctx));
    return p;
}

static void print_free(printed *p) {
    tg_arena_free(&p->arena);
    tg_program_destroy(p->program, p->ctx);
    tg_graph_destroy(p->graph);
    tg_context_destroy(p->ctx);
}

static int count_text(const char *text, const char *what) {
    int count = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) count++;
    return count;
}

static bool in_comment(const char *text, const char *at) {
    while (at > text && at[-1] != '\n' && !(at[0] == '/' && at[1] == '/')) at--;
    return at[0] == '/' && at[1] == '/';
}

/* `call`, "sin(", not as a part of tg_sin( and not in a comment. */
static bool has_call(const char *text, const char *call) {
    for (const char *at = strstr(text, call); at; at = strstr(at + 1, call))
        if ((at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) && !in_comment(text, at)) return true;
    return false;
}

/* ---------------------------------------------------------------- what every stage must be */

static void check_bindings(const printed *p, int32_t k, const tg_wgsl_stage *stage) {
    const tg_kernel *kernel = &p->program->kernels[k];
    assert_in_range(stage->binding_count, 1, tg_device_guaranteed.storage_buffers);
    for (int32_t b = 0; b < stage->binding_count; b++) {
        char declared[80], name[16] = "scratch", used[24];
        if (stage->bindings[b] != TG_WGSL_SCRATCH) snprintf(name, sizeof name, "a%d", (int)stage->bindings[b]);
        snprintf(declared, sizeof declared, "@binding(%d) var<storage, read_write> %s: array<", (int)b, name);
        snprintf(used, sizeof used, "%s[", name);
        assert_int_equal(count_text(stage->source, declared), 1);
        assert_non_null(strstr(stage->source, used)); /* drivers drop what is not used */
        if (stage->bindings[b] == TG_WGSL_SCRATCH) {
            assert_true(p->kernels[k].scratch_bytes > 0);
            continue;
        }
        assert_in_range(stage->bindings[b], 0, kernel->argument_count - 1);
        for (int32_t other = 0; other < b; other++) assert_int_not_equal(stage->bindings[other], stage->bindings[b]);
    }
    char beyond[32];
    snprintf(beyond, sizeof beyond, "@binding(%d)", (int)stage->binding_count);
    assert_null(strstr(stage->source, beyond));
}

static void check_helpers(const char *source) {
    static const char *const rough[] = {"tanh", "sin", "cos", "tan", "exp", "exp2", "log", "log2", "pow", "fma", "f64"};
    for (int i = 0; i < SUPPORT_COUNT(rough); i++) {
        char call[16];
        snprintf(call, sizeof call, "%s(", rough[i]);
        if (has_call(source, call)) fail_msg("%s in\n%s", call, source);
    }
    for (const char *at = strstr(source, "fn tg_"); at; at = strstr(at + 1, "fn tg_")) {
        char head[64];
        const size_t length = strcspn(at, "(") + 1;
        assert_in_range(length, 1, sizeof head - 1);
        memcpy(head, at, length);
        head[length] = '\0';
        if (count_text(source, head) != 1) fail_msg("%s twice in\n%s", head, source);
    }
}

/* Workgroup memory that a source declares. */
static int64_t workgroup_bytes(const char *source) {
    int64_t bytes = 0;
    for (const char *at = strstr(source, "var<workgroup>"); at; at = strstr(at + 1, "var<workgroup>")) {
        const char *type = strstr(at, "array<"), *count = strchr(type, ',');
        bytes += strtoll(count + 1, NULL, 10) * (strncmp(type, "array<vec4<", 11) == 0 ? 16 : 4);
    }
    return bytes;
}

/* What hides numbers from compilers is 0 only if as many workgroups are launched as the text says. */
static void check_zero(const tg_wgsl_stage *stage) {
    char want[64];
    snprintf(want, sizeof want, "tg_zero_word = launched.x ^ %du;", (int)stage->groups[0]);
    const int declared = count_text(stage->source, "var<private> tg_zero_word: u32;");
    assert_true(declared <= 1);
    assert_int_equal(count_text(stage->source, want), declared);
}

static void check_stages(const printed *p) {
    for (int32_t k = 0; k < p->program->kernel_count; k++) {
        assert_true(p->kernels[k].stage_count >= 1);
        for (int32_t s = 0; s < p->kernels[k].stage_count; s++) {
            const tg_wgsl_stage *stage = &p->kernels[k].stages[s];
            assert_int_equal(strlen(stage->source), stage->length);
            assert_memory_equal(stage->source, "// ", 3);
            assert_int_equal(count_text(stage->source, "fn main("), 1);
            for (int d = 0; d < 3; d++) assert_in_range(stage->groups[d], 1, tg_device_guaranteed.groups);
            assert_true(workgroup_bytes(stage->source) <= tg_device_guaranteed.workgroup_bytes);
            check_bindings(p, k, stage);
            check_helpers(stage->source);
            check_zero(stage);
        }
    }
}

/* ---------------------------------------------------------------- cases */

static tg_tensor input(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_F32); }

static tg_tensor build_everything(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(5, 7)), y = input(g, "y", TG_SHAPE(7, 3)), b = tg_input(g, "b", TG_SHAPE(5, 7), TG_BOOL);
    const tg_tensor i = tg_input(g, "i", TG_SHAPE(4), TG_I32), table = input(g, "t", TG_SHAPE(6, 3));
    const tg_tensor z = tg_where(b, tg_add(tg_tanh(x), tg_erf(x)), tg_pow(tg_abs(x), tg_sin(x)));
    tg_tensor dt;
    const tg_tensor e = tg_embedding(table, i), wrt[1] = {table};
    tg_vjp(e, input(g, "c", TG_SHAPE(4, 3)), wrt, 1, &dt);
    tg_capture("dt", dt);
    tg_capture("best", tg_argmax(z, -1));
    tg_capture("soft", tg_softmax(z, -1));
    tg_capture("mask", tg_less(z, 0.5));
    return tg_matmul(z, y);
}
static void every_stage_is_well_formed(void **state) {
    (void)state;
    for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
        printed p = print_case(build_everything, NULL, no_fusion);
        check_stages(&p);
        print_free(&p);
    }
}

static tg_tensor build_twins(tg_graph *g, void *user) {
    (void)user;
    tg_capture("first", tg_tanh(input(g, "x", TG_SHAPE(33))));
    return tg_tanh(input(g, "y", TG_SHAPE(33)));
}
static void equal_kernels_have_equal_sources(void **state) {
    (void)state;
    printed p = print_case(build_twins, NULL, true);
    assert_int_equal(p.program->kernel_count, 2);
    assert_string_equal(p.kernels[0].stages[0].source, p.kernels[1].stages[0].source);
    assert_int_not_equal(p.program->kernels[0].arguments[0].buffer, p.program->kernels[1].arguments[0].buffer);
    print_free(&p);
}

typedef struct sizes {
    int64_t rows, length;
    int reduction; /* 0 sum, 1 softmax, 2 argmax */
} sizes;
static tg_tensor build_rows(tg_graph *g, void *user) {
    const sizes *s = user;
    const tg_tensor x = input(g, "x", TG_SHAPE(s->rows, s->length));
    return s->reduction == 0 ? tg_sum(x, TG_AXES(-1)) : s->reduction == 1 ? tg_softmax(x, -1) : tg_argmax(x, -1);
}
static void expect_stages(int64_t rows, int64_t length, int reduction, int stages) {
    sizes s = {rows, length, reduction};
    printed p = print_case(build_rows, &s, false);
    check_stages(&p);
    int found = 0;
    for (int32_t k = 0; k < p.program->kernel_count; k++) {
        found += p.kernels[k].stage_count;
        assert_int_equal(p.kernels[k].scratch_bytes > 0, p.kernels[k].stage_count > 1);
    }
    if (found != stages) fail_msg("[%d | %d] in %d stages of %d kernels", (int)rows, (int)length, found, (int)p.program->kernel_count);
    print_free(&p);
}
static void few_long_rows_are_split(void **state) {
    (void)state;
    expect_stages(4096, 64, 0, 1);
    expect_stages(1, 4096, 0, 1);
    expect_stages(1, 1000000, 0, 2); /* parts, then their sum */
    expect_stages(3, 100003, 2, 2);
    expect_stages(2, 500000, 1, 4); /* the largest; then the sum of exponentials and the result */
    expect_stages(100000, 20000, 0, 1);
}

static tg_tensor build_wide(tg_graph *g, void *user) {
    const int64_t *count = user;
    return tg_tanh(input(g, "x", TG_SHAPE(*count)));
}
static void large_grids_are_folded(void **state) {
    (void)state;
    int64_t count = INT64_C(256) * 65535 * 3 + 5;
    printed p = print_case(build_wide, &count, false);
    const tg_wgsl_stage *stage = &p.kernels[0].stages[0];
    assert_true((int64_t)stage->groups[0] * stage->groups[1] * stage->groups[2] * 256 >= count);
    assert_int_equal(stage->groups[1], 4);
    assert_non_null(strstr(stage->source, "workgroup.y"));
    check_stages(&p);
    print_free(&p);
    count = 256 * 65535;
    p = print_case(build_wide, &count, false);
    assert_int_equal(p.kernels[0].stages[0].groups[0], 65535);
    assert_int_equal(p.kernels[0].stages[0].groups[1], 1);
    print_free(&p);
}

static void narrower_devices_are_refused(void **state) {
    (void)state;
    int64_t count = 1000000;
    printed p = print_case(build_wide, &count, false);
    tg_device_model limits = tg_device_guaranteed;
    limits.groups = 8;
    tg_wgsl_kernel kernel;
    assert_int_equal(tg_emit_wgsl(p.program, 0, &limits, &p.arena, &kernel), TG_ERROR_LIMIT);
    assert_non_null(strstr(tg_error_message(p.ctx), "tanh"));
    print_free(&p);
}

static tg_tensor build_constants(tg_graph *g, void *user) {
    (void)user;
    const float values[] = {3.402823466e38F, -3.402823466e38F, 1e-45F, 1e30F, 0.1F, -0.0F};
    tg_tensor y = input(g, "x", TG_SHAPE(3));
    for (int i = 0; i < SUPPORT_COUNT(values); i++) y = tg_minimum(tg_maximum(y, (double)values[i]), -1.0);
    return tg_where(tg_less(y, 0.0), tg_full(g, TG_SHAPE(3), (double)INFINITY, TG_F32), tg_full(g, TG_SHAPE(3), (double)NAN, TG_F32));
}
static void literals_lie_within_the_range_of_f32(void **state) {
    (void)state;
    printed p = print_case(build_constants, NULL, false);
    check_stages(&p);
    const char *source = p.kernels[0].stages[0].source;
    assert_null(strstr(source, "e+38"));
    assert_non_null(strstr(source, "tg_inf()"));
    print_free(&p);
}

static tg_tensor build_identities(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(3)), y = input(g, "y", TG_SHAPE(3));
    const tg_tensor back = tg_sub(tg_add(x, y), y);                          /* a sum meets its operand */
    return tg_add(tg_mul(tg_tanh(back), 0.0), tg_mul(tg_exp(x), tg_sin(y))); /* a number; two that have nothing in common */
}
static void numbers_and_sums_that_cancel_are_hidden(void **state) {
    (void)state;
    printed p = print_case(build_identities, NULL, false);
    check_stages(&p);
    const char *source = p.kernels[0].stages[0].source;
    const char *main = strstr(source, "fn main(");
    assert_int_equal(count_text(main, "tg_keep("), 2);
    assert_non_null(strstr(main, "launched.x ^ 1u"));
    print_free(&p);
}

/* Gradients of tables that are small enough for partial tables, 16 MiB of them each, and do not need each other. */
static tg_tensor build_tables(tg_graph *g, void *user) {
    enum { TABLES = 12 };
    tg_tensor sum = tg_full(g, TG_SCALAR, 0.0, TG_F32), tables[TABLES], gradients[TABLES];
    (void)user;
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "rows%d", i);
        tg_tensor rows = tg_input(g, name, TG_SHAPE(4096), TG_I32);
        snprintf(name, sizeof name, "table%d", i);
        tables[i] = tg_input(g, name, TG_SHAPE(1000, 64), TG_F32);
        sum = tg_add(sum, tg_mean(tg_square(tg_embedding(tables[i], rows)), TG_ALL));
    }
    if (tg_grad(sum, tables, TABLES, gradients) != TG_OK) return sum;
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "gradient%d", i);
        tg_capture(name, gradients[i]);
    }
    return sum;
}

/* No planner would start such long kernels together; whoever does gets them one by one. */
static void scratch_of_a_launch_fits_a_binding(void **state) {
    (void)state;
    printed p = print_case(build_tables, NULL, false);
    tg_kernel scatters[16];
    int32_t count = 0;
    int64_t together = 0;
    for (int32_t k = 0; k < p.program->kernel_count && count < SUPPORT_COUNT(scatters); k++) {
        if (p.program->kernels[k].kind != TG_KERNEL_SCATTER_ADD) continue;
        scatters[count++] = p.program->kernels[k];
        together += p.kernels[k].scratch_bytes;
    }
    assert_true(together > INT64_C(128) << 20); /* or this tests nothing */
    tg_program program = *p.program;
    tg_launch all = {0, count, 0};
    tg_wgsl_kernel launch;
    program.kernels = scatters;
    program.kernel_count = count;
    program.launches = &all;
    program.launch_count = 1;
    assert_int_equal(tg_emit_wgsl_launch(&program, 0, &tg_device_guaranteed, &p.arena, &launch), TG_OK);
    assert_in_range(launch.scratch_bytes, 1, INT64_C(128) << 20);
    assert_int_equal(launch.stage_count, 2 * count);
    print_free(&p);
}

static void schedules_as_text(void **state) {
    (void)state;
    static const char *const good[] = {
        "direct rows=1 columns=4 size=256 ways=8 ways_first=1 parts=64",
        "tiles tile_m=128 tile_n=64 rows=8 columns=4 slice=16 buffers=2 by_rows=1 unrolled=0 parts=1",
        "chain size=512 panel=8",
        "beside size=128 overlap=4",
    };
    static const char *const bad[] = {
        "",
        "none",
        "tile",
        "tiles",
        "tiles ",
        "direct rows=1",
        "direct rows=1 columns=4 size=256 ways=8 ways_first=1",
        "direct rows=1 columns=4 size=256 ways=8 ways_first=1 parts=64 ",
        "direct rows=1 columns=4 size=256 ways=8 ways_first=1 parts=",
        "direct rows=1 columns=4 size=256 ways=8 ways_first=1 parts=64 parts=64",
        "chain size=512 panel=-8",
        "chain size=512 panel=8x",
        "chain size=512  panel=8",
        "chain size=10000 panel=8",
        "chain size=99999999999999999999 panel=8",
        "chain size=512 overlap=8",
        "Chain size=512 panel=8",
        "chain size=512\tpanel=8",
        "chains size=512 panel=8",
        "chain sizes=512 panel=8",
    };
    char text[TG_SCHEDULE_TEXT];
    tg_schedule schedule, again;
    for (int i = 0; i < SUPPORT_COUNT(good); i++) {
        assert_true(tg_schedule_parse(good[i], strlen(good[i]), &schedule));
        assert_string_equal(tg_schedule_print(&schedule, text, sizeof text), good[i]);
        assert_true(tg_schedule_equal(&schedule, &schedule));
        for (int j = 0; j < i; j++)
            assert_true(tg_schedule_parse(good[j], strlen(good[j]), &again) && !tg_schedule_equal(&schedule, &again));
        for (size_t room = 1; room < 20; room++) assert_true(strlen(tg_schedule_print(&schedule, text, room)) < room);
    }
    const tg_schedule kept = schedule;
    for (int i = 0; i < SUPPORT_COUNT(bad); i++) {
        assert_false(tg_schedule_parse(bad[i], strlen(bad[i]), &schedule));
        assert_true(tg_schedule_equal(&schedule, &kept));
    }
    assert_false(tg_schedule_parse(good[0], strlen(good[0]) - 10, &schedule)); /* no NUL where it ends */
    assert_true(tg_schedule_parse("chain panel=8 size=512", 22, &schedule));   /* any order */
    const tg_schedule_entry items[] = {{"a", kept}, {"b", kept}, {"a", schedule}};
    const tg_schedules table = {items, 3};
    assert_ptr_equal(tg_schedule_find(&table, "a"), &items[2].schedule);
    assert_ptr_equal(tg_schedule_find(&table, "b"), &items[1].schedule);
    assert_null(tg_schedule_find(&table, "c"));
    assert_null(tg_schedule_find(NULL, "a"));
}

static void texts_are_deterministic(void **state) {
    (void)state;
    printed p = print_case(build_everything, NULL, false), q = print_case(build_everything, NULL, false);
    for (int32_t k = 0; k < p.program->kernel_count; k++)
        for (int32_t s = 0; s < p.kernels[k].stage_count; s++)
            assert_string_equal(p.kernels[k].stages[s].source, q.kernels[k].stages[s].source);
    print_free(&p);
    print_free(&q);
}

static void every_failing_allocation_is_an_error(void **state) {
    (void)state;
    printed p = print_case(build_everything, NULL, false);
    for (int64_t at = 1;; at++) {
        support_allocator allocator = {.fail_at = at};
        tg_context *ctx = support_context_counting(&allocator);
        if (ctx == NULL) continue;
        tg_text_buffer text;
        tg_text_init(&text, ctx);
        const tg_status status = tg_emit_wgsl_text(p.program, &tg_device_guaranteed, &text);
        tg_text_free(&text);
        const bool reached = allocator.calls >= at;
        tg_context_destroy(ctx);
        assert_int_equal(allocator.live_blocks, 0);
        if (!reached) {
            assert_int_equal(status, TG_OK);
            break;
        }
        assert_int_equal(status, TG_ERROR_MEMORY);
    }
    print_free(&p);
}

/* Dispatches of a training step with the guaranteed limits. */
static void examples_print(void **state) {
    (void)state;
    const struct {
        const char *name;
        int stages;
    } pinned[] = {{"mlp-sin", 4}, {"transformer-add", 7}};
    for (int i = 0; i < SUPPORT_COUNT(pinned); i++) {
        const tg_example *example = tg_example_find(pinned[i].name);
        tg_context *ctx = support_context();
        const tg_compile_options options = {.optimizer = example->optimizer(), .device = TG_DEVICE_CPU, .threads = 1};
        tg_model *model = tg_compile(ctx, example->build, NULL, &options);
        assert_non_null(model);
        const char *text = tg_model_text(model, TG_TEXT_WGSL);
        if (!text) fail_msg("%s: %s", pinned[i].name, tg_error_message(ctx));
        assert_int_equal(count_text(text, "// launch "), pinned[i].stages);
        assert_int_equal(count_text(text, "@compute"), pinned[i].stages);
        tg_model_destroy(model);
        tg_context_destroy(ctx);
    }
}

/* ---------------------------------------------------------------- on a device */

static void check_on_webgpu(const char *what, tg_build_fn build, void *user, support_fill_fn fill, support_tolerance tolerance) {
    const support_case c = {build, user, fill, NULL};
    support_outputs want, got;
    if (!support_run_reference(&c, 1, &want)) fail_msg("%s: %s", what, want.message);
    if (!support_run_webgpu(&c, &(support_options){0}, &got)) fail_msg("%s: %s", what, got.message);
    const bool same = support_outputs_equal(what, &got, &want, tolerance);
    support_outputs_free(&want);
    support_outputs_free(&got);
    assert_true(same);
}

static void split_rows_are_right(void **state) {
    (void)state;
    support_need_webgpu();
    for (int reduction = 0; reduction < 3; reduction++) {
        sizes s = {2, 20011, reduction};
        check_on_webgpu("split rows", build_rows, &s, NULL, (support_tolerance){64, 1e-7, 1e-5});
    }
}

/* Gradient of a table that is too large to be compared element by element: rows hit often, once and never. */
static tg_tensor build_scatter(tg_graph *g, void *user) {
    const int64_t *rows = user;
    const tg_tensor table = input(g, "table", TG_SHAPE(*rows, 16)), index = tg_input(g, "index", TG_SHAPE(2, 1031), TG_I32);
    const tg_tensor y = tg_embedding(table, index), wrt[1] = {table};
    tg_tensor d;
    tg_vjp(y, tg_input(g, "cotangent", TG_SHAPE(2, 1031, 16), TG_F32), wrt, 1, &d);
    return d;
}
static void fill_scatter(void *user, const char *name, tg_shape shape, tg_dtype dtype, double *out, int64_t count) {
    support_fill_default(user, name, shape, dtype, out, count);
    for (int64_t i = 0; i < count && dtype == TG_I32; i++) out[i] = (double)(i % 3 == 0 ? 7 : i % 5 == 0 ? i % 11 : (i * 37) % 9000);
}
static void chained_scatters_are_right(void **state) {
    (void)state;
    int64_t rows = 9001;
    printed p = print_case(build_scatter, &rows, false);
    check_stages(&p);
    assert_int_equal(p.kernels[0].stage_count, 4);
    print_free(&p);
    support_need_webgpu();
    check_on_webgpu("chained scatter", build_scatter, &rows, fill_scatter,
                    (support_tolerance){64, 1e-4, 1e-5}); /* 700 f32 values in a row */
}

/* 24 sums of one row: their trees must fit in the guaranteed workgroup memory. */
static tg_tensor build_many_sums(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(3, 2100)), size = tg_abs(x);
    tg_tensor total = tg_sum(x, TG_AXES(1));
    for (int k = 1; k < 24; k++) total = tg_add(total, tg_sqrt(tg_abs(tg_sum(tg_mul(tg_add(x, (double)k), size), TG_AXES(1)))));
    return total;
}
static void many_reductions_fit_in_workgroup_memory(void **state) {
    (void)state;
    printed p = print_case(build_many_sums, NULL, false);
    check_stages(&p);
    print_free(&p);
    support_need_webgpu();
    check_on_webgpu("many sums", build_many_sums, NULL, NULL, (support_tolerance){64, 1e-3, 1e-5});
}

/* Split rows whose elements need the value that the row's own state had before it is overwritten in place. */
static tg_tensor build_running_mean(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(16, 16384)), m = tg_state(g, "m", TG_SHAPE(16), TG_F32, 0.0);
    const tg_tensor mean = tg_div(tg_sum(x, TG_AXES(1)), 16384.0);
    tg_writeback(m, tg_add(tg_mul(m, 0.9), tg_mul(mean, 0.1)));
    return tg_mul(tg_sub(x, tg_reshape(mean, TG_SHAPE(16, 1))), tg_reshape(tg_add(m, 1.0), TG_SHAPE(16, 1)));
}
static void split_rows_keep_what_other_parts_read(void **state) {
    (void)state;
    support_need_webgpu();
    check_on_webgpu("running mean", build_running_mean, NULL, NULL, (support_tolerance){64, 1e-5, 1e-5});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_is_well_formed),
        cmocka_unit_test(equal_kernels_have_equal_sources),
        cmocka_unit_test(few_long_rows_are_split),
        cmocka_unit_test(large_grids_are_folded),
        cmocka_unit_test(narrower_devices_are_refused),
        cmocka_unit_test(literals_lie_within_the_range_of_f32),
        cmocka_unit_test(numbers_and_sums_that_cancel_are_hidden),
        cmocka_unit_test(scratch_of_a_launch_fits_a_binding),
        cmocka_unit_test(schedules_as_text),
        cmocka_unit_test(texts_are_deterministic),
        cmocka_unit_test(every_failing_allocation_is_an_error),
        cmocka_unit_test(examples_print),
        cmocka_unit_test(split_rows_are_right),
        cmocka_unit_test(chained_scatters_are_right),
        cmocka_unit_test(many_reductions_fit_in_workgroup_memory),
        cmocka_unit_test(split_rows_keep_what_other_parts_read),
    };
    return cmocka_run_group_tests_name("wgsl", tests, NULL, NULL);
}
