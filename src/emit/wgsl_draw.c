/* wgsl_draw: the kernel that copies a batch of a data set's rows into the inputs, by the rule of
 * base/draw.h. Must not know models. */
#include "base/draw.h"
#include "emit/emit.h"

#define DRAW_SIZE 64 /* invocations of a workgroup */

static const char draw_head[] = "// draws a batch\n"
                                "@group(0) @binding(0) var<storage, read_write> now: array<u32, 8>;\n"
                                "@group(0) @binding(1) var<storage, read_write> following: array<u32, 8>;\n"
                                "@group(0) @binding(2) var<storage, read_write> inputs: array<u32>;\n"
                                "@group(0) @binding(3) var<storage, read_write> loss: array<u32>;\n"
                                "@group(0) @binding(4) var<storage, read_write> history: array<u32>;\n"
                                "@group(0) @binding(5) var<storage, read_write> data: array<u32>;\n"
                                "\n"
                                "fn high_word(a: u32, b: u32) -> u32 { // of the product\n"
                                "    let a0 = a & 0xffffu; let a1 = a >> 16u; let b0 = b & 0xffffu; let b1 = b >> 16u;\n"
                                "    let low = a1 * b0 + ((a0 * b0) >> 16u);\n"
                                "    let middle = a0 * b1 + (low & 0xffffu);\n"
                                "    return a1 * b1 + (low >> 16u) + (middle >> 16u);\n"
                                "}\n"
                                "fn philox(counter: vec4<u32>, first_key: vec2<u32>) -> u32 {\n"
                                "    var c = counter;\n"
                                "    var key = first_key;\n"
                                "    for (var round = 0; round < 10; round++) {\n"
                                "        c = vec4<u32>(high_word(0xCD9E8D57u, c.z) ^ c.y ^ key.x, 0xCD9E8D57u * c.z,\n"
                                "                      high_word(0xD2511F53u, c.x) ^ c.w ^ key.y, 0xD2511F53u * c.x);\n"
                                "        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);\n"
                                "    }\n"
                                "    return c.x;\n"
                                "}\n";

static void draw_row_function(tg_text_buffer *text, int64_t rows, int64_t batch) {
    tg_text_add(text,
                "fn row_of(i: u32) -> u32 {\n"
                "    let t = now[0];\n"
                "    if (now[1] != 0u) { return (now[2] + t * %lldu + i) %% %lldu; }\n"
                "    let step = now[3] + t;\n"
                "    let carry = select(0u, 1u, step < t);\n"
                "    let word = philox(vec4<u32>(i, step, now[4] + carry, %uu), vec2<u32>(now[5], now[6]));\n"
                "    return high_word(word, %lldu);\n"
                "}\n\n",
                (long long)batch, (long long)rows, (unsigned)TG_DRAW_TAG, (long long)rows);
}

static void draw_main(tg_text_buffer *text, const tg_draw_array *arrays, int32_t count, int64_t batch, int64_t invocations) {
    int64_t total = 0, first = 0;
    for (int32_t i = 0; i < count; i++) total += batch * arrays[i].row;
    tg_text_add(text,
                "@compute @workgroup_size(%d)\n"
                "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
                "    if (id.x == 0u) {\n"
                "        following[0] = now[0] + 1u;\n"
                "        if (now[0] > 0u) { history[now[0] - 1u] = loss[0]; }\n"
                "    }\n"
                "    for (var e = id.x; e < %lldu; e += %lldu) {\n",
                DRAW_SIZE, (long long)total, (long long)invocations);
    for (int32_t i = 0; i < count; i++) {
        const tg_draw_array *a = &arrays[i];
        tg_text_add(text,
                    "        if (e >= %lldu && e < %lldu) {\n"
                    "            let at = e - %lldu;\n"
                    "            let row = at / %lldu;\n"
                    "            inputs[%lldu + at] = data[%lldu + row_of(row) * %lldu + (at - row * %lldu)];\n"
                    "        }\n",
                    (long long)first, (long long)(first + batch * a->row), (long long)first, (long long)a->row, (long long)a->to,
                    (long long)a->from, (long long)a->row, (long long)a->row);
        first += batch * a->row;
    }
    tg_text_add(text, "    }\n}\n");
}

tg_status tg_emit_wgsl_draw(const tg_draw_array *arrays, int32_t count, int64_t rows, int64_t batch, const tg_device_model *limits,
                            tg_arena *arena, tg_wgsl_stage *out) {
    int64_t total = 1;
    for (int32_t i = 0; i < count; i++) total += batch * arrays[i].row;
    int64_t groups = (total + DRAW_SIZE - 1) / DRAW_SIZE;
    if (groups > limits->groups) groups = limits->groups;
    tg_text_buffer text;
    tg_text_init(&text, arena->ctx);
    tg_text_bytes(&text, draw_head, sizeof draw_head - 1);
    draw_row_function(&text, rows, batch);
    draw_main(&text, arrays, count, batch, groups * DRAW_SIZE);
    char *source = text.failed ? NULL : tg_arena_copy(arena, text.data, text.length + 1);
    *out = (tg_wgsl_stage){.source = source, .length = text.length, .groups = {(int32_t)groups, 1, 1}, .binding_count = TG_DRAW_BINDINGS};
    tg_text_free(&text);
    return source != NULL ? TG_OK : TG_ERROR_MEMORY;
}

#undef DRAW_SIZE
