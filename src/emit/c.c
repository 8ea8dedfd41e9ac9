/* emit/c: kernel IR as plain C11 loops that people can read: an oracle for the executors, and an
 * export. Each body instruction is one `const` local; a kernel with reductions walks its inner
 * loops once for each depth of reduction and computes again what a sweep needs. i32 wraps; NaN
 * follows the rules of the operations. Must not look at the graph. */
#include "emit/c.h"

#include <string.h>

/* ---------------------------------------------------------------- names */

/* `name` with '_' for everything except letters and digits, so that it may be part of an
 * identifier. */
static void emit_c_safe(tg_text_buffer *text, const char *name) {
    for (; name && *name; name++) {
        const bool plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || (*name >= '0' && *name <= '9');
        tg_text_add(text, "%c", plain ? *name : '_');
    }
}

void tg_emit_c_noted(tg_text_buffer *text, const char *name) {
    for (; *name; name++) tg_text_add(text, "%c", *name == '*' || *name == '\\' || (unsigned char)*name < ' ' ? '_' : *name);
}

/* The name by which the user knows a buffer: an input or a state, else the value that is computed
 * into it first. NULL: it has no name. */
const char *tg_c_buffer_name(const tg_program *program, int32_t buffer) {
    const tg_buffer *b = &program->buffers[buffer];
    return b->storage == TG_STORAGE_INPUT   ? program->inputs[b->slot].name
           : b->storage == TG_STORAGE_STATE ? program->states[b->slot].name
                                            : b->name;
}

void tg_c_kernel_name(tg_text_buffer *text, const tg_program *program, int32_t i) {
    tg_text_add(text, "tg_kernel_%d_", (int)i);
    emit_c_safe(text, program->kernels[i].name);
}

/* ---------------------------------------------------------------- the file */

static bool emit_c_constant_used(const tg_program *program, int32_t buffer) {
    for (int32_t i = 0; i < program->kernel_count; i++)
        for (int32_t a = 0; a < program->kernels[i].argument_count; a++)
            if (program->kernels[i].arguments[a].buffer == buffer) return true;
    return false;
}

static void emit_c_constant(tg_text_buffer *text, const tg_buffer *buffer, int32_t index) {
    tg_text_add(text, "static const %s tg_constant_%d[%lld] = {", tg_c_memory_type(buffer->dtype), (int)index, (long long)buffer->count);
    for (int64_t i = 0; i < buffer->count; i++) {
        tg_text_add(text, "%s", i == 0 ? "" : i % 12 == 0 ? ",\n    " : ", ");
        tg_c_literal(text, buffer->dtype, tg_dtype_get(buffer->dtype, buffer->data, i));
    }
    tg_text_add(text, "};\n");
}

static const char *emit_c_storage_name(tg_storage storage) {
    switch (storage) {
    case TG_STORAGE_WORKSPACE: return "workspace";
    case TG_STORAGE_INPUT: return "input";
    case TG_STORAGE_STATE: return "state";
    case TG_STORAGE_CONSTANT: break;
    }
    return "constant";
}

static void emit_c_buffer(tg_c_file *file, int32_t i) {
    tg_text_buffer *text = file->text;
    const tg_program *program = file->program;
    const tg_buffer *b = &program->buffers[i];
    const char *name = tg_c_buffer_name(program, i);
    if (b->storage == TG_STORAGE_WORKSPACE && b->first < 0) return; /* another buffer replaces it */
    tg_text_add(text, " *   [%d] %s, %lld x %s", (int)i, emit_c_storage_name(b->storage), (long long)b->count, tg_c_memory_type(b->dtype));
    if (b->storage == TG_STORAGE_WORKSPACE) tg_text_add(text, " at byte %lld", (long long)b->offset);
    if (name && *name) {
        tg_text_add(text, ": ");
        tg_emit_c_noted(text, name);
    }
    if (b->storage == TG_STORAGE_STATE && program->states[b->slot].value != 0.0) {
        tg_text_add(text, ", at first ");
        tg_c_literal(text, b->dtype, program->states[b->slot].value);
    }
    tg_text_add(text, "\n");
}

static void emit_c_output(tg_c_file *file, const tg_output *output) {
    tg_text_add(file->text, " *   [%d] ", (int)output->buffer);
    tg_emit_c_noted(file->text, output->name);
    tg_text_add(file->text, "\n");
}

static void emit_c_head(tg_c_file *file) {
    tg_text_buffer *text = file->text;
    const tg_program *program = file->program;
    tg_text_add(
        text,
        "/* %d kernels, which tg_emitted_run(buffers) calls in order. buffers[i] points at the caller's memory: inputs to be filled\n"
        " * before a call; states, which keep what a call writes; workspace, of its own or at these bytes of one block of %lld. Of\n"
        " * constants and of numbers not listed it is not read:\n",
        (int)program->kernel_count, (long long)program->workspace_bytes);
    for (int32_t i = 0; i < program->buffer_count; i++) emit_c_buffer(file, i);
    tg_text_add(text, " * After a call these hold (an index check: not 0 where an index was out of range):\n");
    for (int32_t i = 0; i < program->output_count; i++) emit_c_output(file, &program->outputs[i]);
    tg_text_add(text, " */\n#include <math.h>\n#include <stdint.h>\n\n");
}

static void emit_c_tail(tg_c_file *file) {
    tg_text_buffer *text = file->text;
    tg_text_add(text, "void tg_emitted_run(void *const *buffers);\nvoid tg_emitted_run(void *const *buffers) {\n");
    for (int32_t i = 0; i < file->program->kernel_count; i++) {
        tg_text_add(text, "    ");
        tg_c_kernel_name(text, file->program, i);
        tg_text_add(text, "(buffers);\n");
    }
    tg_text_add(text, "    (void)buffers;\n}\n");
}

/* The kernels are printed first, into a text of their own, because they decide which helpers the
 * file needs. */
static tg_status emit_c_body(tg_c_file *file) {
    for (int32_t i = 0; i < file->program->kernel_count; i++) {
        const tg_status status = tg_c_print_kernel(file, i);
        if (status != TG_OK) return status;
    }
    return file->text->failed ? TG_ERROR_MEMORY : TG_OK;
}

static void emit_c_all(tg_c_file *file, const tg_text_buffer *kernels) {
    const tg_program *program = file->program;
    emit_c_head(file);
    tg_c_helpers(file);
    for (int32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].storage == TG_STORAGE_CONSTANT && emit_c_constant_used(program, i))
            emit_c_constant(file->text, &program->buffers[i], i);
    tg_text_add(file->text, "\n");
    if (kernels->data) tg_text_bytes(file->text, kernels->data, kernels->length);
    emit_c_tail(file);
}

tg_status tg_emit_c(const tg_program *program, tg_text_buffer *text) {
    tg_text_buffer kernels;
    tg_text_init(&kernels, text->ctx);
    const size_t bytes = sizeof(int32_t) * (size_t)(program->buffer_count + 1);
    tg_c_file file = {.program = program, .text = &kernels, .writer = tg_alloc(text->ctx, bytes)};
    tg_status status = TG_ERROR_MEMORY;
    if (file.writer) {
        memset(file.writer, -1, bytes);
        status = emit_c_body(&file);
    }
    file.text = text;
    if (status == TG_OK) {
        emit_c_all(&file, &kernels);
        if (text->failed) status = TG_ERROR_MEMORY;
    }
    if (file.writer) tg_release(text->ctx, file.writer, bytes);
    tg_text_free(&kernels);
    return status;
}
