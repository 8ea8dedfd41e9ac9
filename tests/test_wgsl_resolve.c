/* Names in printed WGSL: the memory decides the text of an access, whatever the index and the value
 * look like. Printers spell no name of an argument, the scratch, a function or a shared array
 * themselves: a third resolver with names unlike any others shows it. The text of a module that two
 * kernels share is exact. Needs no GPU. */
#include "support.h"

#include "emit/wgsl.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- the text of an access */

static void check_access(const tg_wgsl_memory *memory, const char *read, const char *written) {
    static const char index[] = "scratch[a0[i[1]] + fn(2)]", value[] = "a1[0]; a2[0] = return";
    tg_context *ctx = support_context();
    tg_text_buffer text;
    tg_text_init(&text, ctx);
    tg_wgsl_open_read(&text, memory);
    tg_text_add(&text, "%s", index);
    tg_wgsl_close_read(&text, memory);
    assert_string_equal(text.data, read);
    tg_text_clear(&text);
    tg_wgsl_open_write(&text, memory);
    tg_text_add(&text, "%s", index);
    tg_wgsl_write_value(&text, memory);
    tg_text_add(&text, "%s", value);
    tg_wgsl_close_write(&text, memory);
    if (written != NULL) assert_string_equal(text.data, written);
    tg_text_free(&text);
    tg_context_destroy(ctx);
}

static void an_access_keeps_its_index_and_value(void **state) {
    (void)state;
    const tg_wgsl_memory plain = {.name = "a3"}, confusing = {.name = "scratch", .first = 8};
    const tg_wgsl_memory words = {.name = "workspace", .first = 1024, .cast = "f32"}, start = {.name = "inputs", .cast = "i32"};
    const tg_wgsl_memory component = {.name = "inputs", .first = 64, .cast = "f32", .by_call = true};
    const tg_wgsl_memory vectors = {.name = "inputs", .first = 16, .cast = "vec4<f32>"};
    check_access(&plain, "a3[scratch[a0[i[1]] + fn(2)]]", "a3[scratch[a0[i[1]] + fn(2)]] = a1[0]; a2[0] = return;");
    check_access(&confusing, "scratch[8 + (scratch[a0[i[1]] + fn(2)])]",
                 "scratch[8 + (scratch[a0[i[1]] + fn(2)])] = a1[0]; a2[0] = return;");
    check_access(&words, "bitcast<f32>(workspace[1024 + (scratch[a0[i[1]] + fn(2)])])",
                 "workspace[1024 + (scratch[a0[i[1]] + fn(2)])] = bitcast<u32>(a1[0]; a2[0] = return);");
    check_access(&start, "bitcast<i32>(inputs[scratch[a0[i[1]] + fn(2)]])",
                 "inputs[scratch[a0[i[1]] + fn(2)]] = bitcast<u32>(a1[0]; a2[0] = return);");
    check_access(&component, "bitcast<f32>(at_inputs(64 + (scratch[a0[i[1]] + fn(2)])))", NULL);
    check_access(&vectors, "bitcast<vec4<f32>>(inputs[16 + (scratch[a0[i[1]] + fn(2)])])", NULL);
}

static void arrays_know_their_type_and_size(void **state) {
    (void)state;
    static const struct {
        tg_wgsl_array array;
        const char *type;
        int64_t bytes;
    } cases[] = {
        {{"f32", false, 0, 10}, "f32", 40},          {{"f16", false, 0, 10}, "f16", 20},
        {{"i32", true, 0, 3}, "vec4<i32>", 48},      {{"f16", true, 16, 5}, "array<vec4<f16>, 16>", 640},
        {{"f32", false, 7, 2}, "array<f32, 7>", 56},
    };
    for (int i = 0; i < SUPPORT_COUNT(cases); i++) {
        char type[48];
        tg_wgsl_element_type(&cases[i].array, type, sizeof type);
        assert_string_equal(type, cases[i].type);
        assert_int_equal(tg_wgsl_array_bytes(&cases[i].array), cases[i].bytes);
    }
}

/* ---------------------------------------------------------------- programs */

typedef struct made {
    tg_context *ctx;
    tg_graph *graph;
    tg_program *program;
    tg_arena arena;
} made;

static made make(tg_build_fn build, void *user, bool joins) {
    made m = {.ctx = support_context()};
    const support_case c = {.build = build, .build_user = user};
    tg_arena_init(&m.arena, m.ctx);
    m.graph = support_trace(m.ctx, &c);
    assert_non_null(m.graph);
    assert_int_equal(tg_pass_run(m.graph, true), TG_OK);
    tg_device_model device = tg_device_guaranteed;
    device.joins = joins;
    m.program = tg_program_make(m.graph, &(tg_plan_options){.device = &device, .captures = true});
    assert_non_null(m.program);
    return m;
}

static void made_free(made *m) {
    tg_arena_free(&m->arena);
    tg_program_destroy(m->program, m->ctx);
    tg_graph_destroy(m->graph);
    tg_context_destroy(m->ctx);
}

static tg_tensor input(tg_graph *g, const char *name, tg_shape shape) { return tg_input(g, name, shape, TG_F32); }

/* Rows and arguments of the largest, whole and in parts; bools; gathers, and sums into a small
 * table and a large one. */
static tg_tensor build_rows(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(30, 70)), line = input(g, "line", TG_SHAPE(3, 100003));
    const tg_tensor i = tg_input(g, "i", TG_SHAPE(4096), TG_I32), c = input(g, "c", TG_SHAPE(4096, 8));
    const tg_tensor tables[2] = {input(g, "small", TG_SHAPE(20, 8)), input(g, "large", TG_SHAPE(100000, 8))};
    for (int t = 0; t < 2; t++) {
        tg_tensor dt;
        tg_vjp(tg_embedding(tables[t], i), c, &tables[t], 1, &dt);
        tg_capture(t == 0 ? "d_small" : "d_large", dt);
    }
    tg_capture("best", tg_argmax(x, -1));
    tg_capture("soft", tg_softmax(x, -1));
    tg_capture("mask", tg_where(tg_less(x, 0.5), tg_floor(x), x));
    tg_capture("less", tg_less(x, 0.25));
    tg_capture("long", tg_argmax(line, -1));
    return tg_softmax(line, -1);
}

typedef struct product {
    int64_t m, n, k;
} product;
static tg_tensor build_product(tg_graph *g, void *user) {
    const product *p = user;
    return tg_tanh(tg_matmul(input(g, "a", TG_SHAPE(p->m, p->k)), input(g, "b", TG_SHAPE(p->k, p->n))));
}

/* ---------------------------------------------------------------- a third resolver
 * Its names hold a character that no printer prints: an argument is @3@, the scratch @s@,
 * fetch_left @f@fetch_left and the array tile_left @tile_left@. */

#define MOST_ARRAYS 16
typedef struct marker {
    tg_wgsl_resolver resolver;
    const tg_wgsl_kernel *lone; /* NULL, or the kernel's own modules, to compare with */
    const char *arrays[MOST_ARRAYS];
    int array_count;
    int stages, accesses;
} marker;

static marker *marker_of(tg_wgsl *w) { return (marker *)w->resolver; }

static void marker_begin(tg_wgsl *w) {
    marker_of(w)->array_count = 0;
    memset(w->helper, 0, sizeof w->helper);
    w->prefix = "@f@";
}

static tg_wgsl_memory marker_argument(tg_wgsl *w, int32_t argument, bool vectors) {
    tg_wgsl_memory memory = {.first = 0};
    (void)vectors;
    assert_in_range(argument, 0, w->kernel->argument_count - 1);
    snprintf(memory.name, sizeof memory.name, "@%d@", (int)argument);
    marker_of(w)->accesses++;
    return memory;
}

static tg_wgsl_memory marker_scratch(tg_wgsl *w, const char *type) {
    (void)type;
    assert_true(w->scratch_words > 0);
    marker_of(w)->accesses++;
    return (tg_wgsl_memory){.name = "@s@"};
}

static const char *marker_array(tg_wgsl *w, const char *name, const tg_wgsl_array *array) {
    marker *m = marker_of(w);
    assert_true(m->array_count < MOST_ARRAYS && array->count > 0);
    for (int i = 0; i < m->array_count; i++) assert_string_not_equal(m->arrays[i], name);
    m->arrays[m->array_count++] = name;
    return tg_arena_format(w->arena, "@%s@", name);
}

/* The text without its marks, under the names that a lone kernel has. */
static char *unmarked(tg_wgsl *w, const char *text) {
    const size_t room = 3 * strlen(text) + 1; /* "@s@" grows to "scratch" */
    char *plain = tg_arena_alloc(w->arena, room), *to = plain;
    for (const char *c = text; *c;) {
        if (*c != '@') {
            *to++ = *c++;
            continue;
        }
        const size_t length = strcspn(++c, "@");
        assert_true(c[length] == '@');
        if (*c >= '0' && *c <= '9') to += sprintf(to, "a%.*s", (int)length, c);
        else if (strncmp(c, "s@", 2) == 0) to += sprintf(to, "scratch");
        else if (strncmp(c, "f@", 2) != 0) to += sprintf(to, "%.*s", (int)length, c);
        c += length + 1;
    }
    *to = '\0';
    return plain;
}

/* Outside marks there is no name that only a resolver may give. */
static void check_marked(const marker *m, const char *text) {
    for (const char *c = text; *c; c++) {
        if (*c == '@') {
            c += 1 + strcspn(c + 1, "@");
            if (strncmp(c, "@fetch_", 7) == 0) c += 7;
            continue;
        }
        if (strncmp(c, "//", 2) == 0) c += strcspn(c, "\n");
        if (strncmp(c, "scratch", 7) == 0 || strncmp(c, "fetch_", 6) == 0) fail_msg("a printer's own name: %.40s", c);
        const size_t digits = *c == 'a' ? strspn(c + 1, "0123456789") : 0;
        if (digits > 0 && c[1 + digits] == '[') fail_msg("a printer's own argument: %.40s", c);
        for (int i = 0; i < m->array_count; i++) {
            const size_t length = strlen(m->arrays[i]);
            if (strncmp(c, m->arrays[i], length) == 0 && c[length] == '[') fail_msg("a printer's own array: %.40s", c);
        }
    }
}

static void marker_end(tg_wgsl *w, int64_t workgroups, int32_t size) {
    marker *m = marker_of(w);
    assert_true(workgroups > 0 && size > 0);
    m->stages++;
    check_marked(m, w->main.data);
    if (w->functions.length > 0) check_marked(m, w->functions.data);
    if (m->lone == NULL) return;
    assert_true(w->stage_count < m->lone->stage_count);
    const char *source = m->lone->stages[w->stage_count].source;
    assert_non_null(strstr(source, unmarked(w, w->main.data)));
    if (w->functions.length > 0) assert_non_null(strstr(source, unmarked(w, w->functions.data)));
}

/* Prints every kernel of a program with marks, alone (compared with its own module) or as a part
 * of its launch. */
static marker print_marked(made *m, const tg_device_model *limits, int32_t launch_size) {
    marker marks = {.resolver = {marker_begin, marker_argument, marker_scratch, marker_array, marker_end}};
    for (int32_t l = 0; l < m->program->launch_count; l++) {
        const tg_launch *launch = &m->program->launches[l];
        for (int32_t k = launch->first; k < launch->first + launch->count; k++) {
            tg_wgsl_kernel lone = {0};
            tg_wgsl *w = tg_wgsl_open(m->program, limits, &m->arena);
            assert_non_null(w);
            w->kernel = &m->program->kernels[k];
            w->resolver = &marks.resolver;
            if (launch_size > 0) {
                w->launch = launch;
                w->frame = (tg_tile_frame){launch_size, launch->slices, 1, 8};
            } else assert_int_equal(tg_emit_wgsl(m->program, k, limits, &m->arena, &lone), TG_OK);
            marks.lone = launch_size > 0 ? NULL : &lone;
            if (tg_wgsl_print(w) != TG_OK) fail_msg("%s", tg_error_message(m->ctx));
            if (launch_size == 0) assert_int_equal(w->stage_count, lone.stage_count);
            tg_wgsl_close(w);
        }
    }
    return marks;
}

static const tg_device_model large = {
    .invocations = 1024, .workgroup_bytes = 49152, .groups = 65535, .storage_buffers = 10, .rates = &tg_h200_rates};
static const tg_device_model with_matrices = {.invocations = 1024,
                                              .workgroup_bytes = 49152,
                                              .groups = 65535,
                                              .storage_buffers = 10,
                                              .rates = &tg_h200_rates,
                                              .f16 = true,
                                              .matrix_subgroup = 32};

static void rows_maps_and_tables_spell_no_name(void **state) {
    (void)state;
    made m = make(build_rows, NULL, false);
    const marker marks = print_marked(&m, &tg_device_guaranteed, 0);
    assert_true(marks.stages > m.program->kernel_count && marks.accesses > 2 * marks.stages);
    made_free(&m);
}

static void contractions_spell_no_name(void **state) {
    (void)state;
    static const product products[] = {{3, 5, 7}, {1, 1000, 512}, {64, 64, 64}, {16, 16, 20000}, {1024, 1024, 1024}, {1000, 999, 513}};
    const tg_device_model *const limits[] = {&tg_device_guaranteed, &large, &with_matrices};
    int parts = 0;
    for (int i = 0; i < SUPPORT_COUNT(products); i++)
        for (int d = 0; d < SUPPORT_COUNT(limits); d++) {
            product p = products[i];
            made m = make(build_product, &p, false);
            const marker marks = print_marked(&m, limits[d], 0);
            parts += marks.stages - m.program->kernel_count;
            made_free(&m);
        }
    assert_true(parts > 0); /* sums through scratch are among them */
}

static tg_tensor build_chain(tg_graph *g, void *user) {
    (void)user;
    tg_tensor x = input(g, "x", TG_SHAPE(64, 64));
    for (int i = 0; i < 6; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        x = tg_softmax(tg_matmul(x, input(g, name, TG_SHAPE(64, 64))), -1);
    }
    return x;
}

static void kernels_of_a_chain_spell_no_name(void **state) {
    (void)state;
    made m = make(build_chain, NULL, true);
    assert_int_equal(m.program->launch_count, 1);
    assert_true(m.program->launches[0].slices > 0);
    const marker marks = print_marked(&m, &large, 256);
    assert_int_equal(marks.stages, m.program->kernel_count);
    made_free(&m);
}

/* ---------------------------------------------------------------- a module that kernels share */

/* A product reads the rows of x as vec4s, a map reads their elements; the names of tensors reach
 * comments only. */
static tg_tensor build_beside(tg_graph *g, void *user) {
    (void)user;
    const tg_tensor x = input(g, "x", TG_SHAPE(4, 8)), mask = tg_input(g, "a0[0] = scratch[1]; fn", TG_SHAPE(4, 8), TG_BOOL);
    tg_capture("signed", tg_where(mask, x, tg_neg(x)));
    tg_capture("fn a0[1] = 2;", tg_logical_not(mask));
    return tg_matmul(x, tg_transpose(input(g, "scratch", TG_SHAPE(4, 8)), TG_AXES(1, 0)));
}

static const char shared_module[] =
    "// 2 kernels side by side\n"
    "@group(0) @binding(0) var<storage, read_write> inputs: array<vec4<u32>, 48>;\n"
    "fn at_inputs(i: i32) -> u32 { return inputs[i >> 2u][i & 3]; }\n"
    "@group(0) @binding(1) var<storage, read_write> workspace: array<u32, 192>;\n"
    "var<workgroup> shared_f32_0: array<f32, 256>;\n"
    "// map over [32]: neg select not\n"
    "fn k0(group: i32, t: i32) {\n"
    "    let point = group * 256 + t;\n"
    "    if (point >= 32) { return; }\n"
    "    let i0 = point;\n"
    "    let v0: bool = at_inputs(64 + (i0)) != 0u;\n"
    "    let v1: f32 = bitcast<f32>(at_inputs(i0));\n"
    "    let v2: f32 = -v1;\n"
    "    let v3: f32 = select(v2, v1, v0);\n"
    "    let v4: bool = !v0;\n"
    "    workspace[i0] = bitcast<u32>(v3);\n"
    "    workspace[64 + (i0)] = select(0u, 1u, v4);\n"
    "}\n"
    "// contract over [4, 4 | 8]:; direct, 1 x 1 each, 2 ways, vec4 reads, 1 part\n"
    "// four k of the row at address row, from k on; 0 beyond k_end\n"
    "fn k1_fetch_left(row: i32, k: i32, k_end: i32) -> vec4<f32> {\n"
    "    return bitcast<vec4<f32>>(inputs[row + (k / 4)]);\n"
    "}\n"
    "// four k of the row at address row, from k on; 0 beyond k_end\n"
    "fn k1_fetch_right(row: i32, k: i32, k_end: i32) -> vec4<f32> {\n"
    "    return bitcast<vec4<f32>>(inputs[32 + (row + (k / 4))]);\n"
    "}\n"
    "fn k1(group: i32, t: i32) {\n"
    "    let lane = t % 128;\n"
    "    let way = t / 128;\n"
    "    let own = group * 128 + lane;\n"
    "    let cell = min(own, 15);\n"
    "    let first_column = cell % 4;\n"
    "    let first_row = cell / 4 % 4;\n"
    "    let batch = cell / 16;\n"
    "    let k_begin = 0;\n"
    "    let k_end = 8;\n"
    "    let left_base = 0;\n"
    "    let right_base = 0;\n"
    "    let left_0 = left_base + first_row * 2;\n"
    "    let right_0 = right_base + first_column * 2;\n"
    "    var c0_0 = 0.0;\n"
    "    for (var k = k_begin + 4 * way; k < k_end; k += 8) {\n"
    "        let l0 = k1_fetch_left(left_0, k, k_end);\n"
    "        let r0 = k1_fetch_right(right_0, k, k_end);\n"
    "        c0_0 += dot(l0, r0);\n"
    "    }\n"
    "    shared_f32_0[0 + t] = c0_0;\n"
    "    workgroupBarrier();\n"
    "    if (way < 1) {\n"
    "        shared_f32_0[0 + t] += shared_f32_0[128 + t];\n"
    "    }\n"
    "    c0_0 = shared_f32_0[0 + t];\n"
    "    if (way == 0 && own < 16) {\n"
    "        {\n"
    "            let row = first_row;\n"
    "            {\n"
    "                let column = first_column;\n"
    "                let i1 = column;\n"
    "                let i0 = row;\n"
    "                let acc = c0_0;\n"
    "                let v0: f32 = acc;\n"
    "                workspace[128 + (4 * i0 + i1)] = bitcast<u32>(v0);\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "@compute @workgroup_size(256)\n"
    "fn main(@builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) workgroup: vec3<u32>) {\n"
    "    let t = i32(local_index);\n"
    "    let group = i32(workgroup.x);\n"
    "    if (group < 1) { k0(group - 0, t); }\n"
    "    else if (group < 2) { k1(group - 1, t); }\n"
    "}\n";

static void a_shared_module_is_exactly_so(void **state) {
    (void)state;
    made m = make(build_beside, NULL, true);
    tg_wgsl_kernel launch;
    assert_int_equal(m.program->launch_count, 1);
    assert_int_equal(tg_emit_wgsl_launch(m.program, 0, &tg_device_guaranteed, &m.arena, &launch), TG_OK);
    assert_int_equal(launch.stage_count, 1);
    assert_string_equal(launch.stages[0].source, shared_module);
    made_free(&m);
}

static void every_failing_allocation_is_an_error(void **state) {
    (void)state;
    made m = make(build_beside, NULL, true);
    int64_t failed = 0;
    for (bool reached = true; reached;) {
        support_allocator allocator = {.fail_at = failed + 1};
        tg_context *ctx = support_context_counting(&allocator);
        tg_status status = TG_ERROR_MEMORY;
        if (ctx != NULL) {
            tg_arena arena;
            tg_wgsl_kernel launch;
            tg_arena_init(&arena, ctx);
            status = tg_emit_wgsl_launch(m.program, 0, &tg_device_guaranteed, &arena, &launch);
            if (status == TG_OK) assert_string_equal(launch.stages[0].source, shared_module);
            tg_arena_free(&arena);
            tg_context_destroy(ctx);
        }
        reached = allocator.calls > failed;
        assert_int_equal(status, reached ? TG_ERROR_MEMORY : TG_OK);
        assert_int_equal(allocator.live_blocks, 0);
        assert_false(allocator.size_mismatch);
        failed += reached;
    }
    assert_true(failed > 5);
    made_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_keeps_its_index_and_value),  cmocka_unit_test(arrays_know_their_type_and_size),
        cmocka_unit_test(rows_maps_and_tables_spell_no_name),   cmocka_unit_test(contractions_spell_no_name),
        cmocka_unit_test(kernels_of_a_chain_spell_no_name),     cmocka_unit_test(a_shared_module_is_exactly_so),
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("wgsl_resolve", tests, NULL, NULL);
}
