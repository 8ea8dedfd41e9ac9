/* c_kernel: one kernel as a C function: a comment, its loops, and where in them each instruction is
 * computed. Must not know how an instruction is spelled. */
#include "emit/c.h"

/* ---------------------------------------------------------------- loops */

void tg_c_open_loop(tg_c_kernel *k, int d) {
    tg_c_indent(k);
    tg_text_add(k->file->text, "for (int64_t i%d = 0; i%d < %lld; i%d++) {\n", d, d, (long long)k->kernel->extent[d], d);
    k->indent++;
}

static void emit_c_open_loops(tg_c_kernel *k, int begin, int end) {
    for (int d = begin; d < end; d++) tg_c_open_loop(k, d);
}

void tg_c_close_loops(tg_c_kernel *k, int count) {
    for (int i = 0; i < count; i++) {
        k->indent--;
        tg_c_indent(k);
        tg_text_add(k->file->text, "}\n");
    }
}

/* ---------------------------------------------------------------- what is computed where */

static void emit_c_at_top(tg_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->notes[i].live && k->notes[i].phase == TG_PHASE_TOP) tg_c_instruction(k, i);
}

static void emit_c_elements(tg_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->notes[i].live && k->notes[i].phase == TG_PHASE_ELEMENT) tg_c_instruction(k, i);
}

/* ---------------------------------------------------------------- reductions */

static bool emit_c_reduces_in(const tg_c_kernel *k, int32_t i, int32_t sweep) { return tg_body_reduces_in(k->kernel, k->notes, i, sweep); }

static void emit_c_declare_accumulator(tg_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    tg_text_buffer *text = k->file->text;
    const tg_dtype from = k->kernel->body[in->src[0]].dtype;
    const bool real = from == TG_F32, largest = in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_ARGMAX;
    tg_c_indent(k);
    if (in->op == TG_OP_SUM) {
        tg_text_add(text, "%s r%d = 0;\n", real ? "double" : "uint32_t", (int)i);
        return;
    }
    const char *start = real ? (largest ? "-INFINITY" : "INFINITY") : (largest ? "INT32_MIN" : "INT32_MAX");
    tg_text_add(text, "%s r%d = %s;\n", tg_c_type(real ? TG_F32 : TG_I32), (int)i, start);
    if (in->op != TG_OP_ARGMAX && in->op != TG_OP_ARGMIN) return;
    tg_c_indent(k);
    tg_text_add(text, "int32_t at%d = 0;\n", (int)i);
}

/* Row-major position within the inner loops. */
static void emit_c_inner_position(tg_c_kernel *k) {
    tg_affine at = {0, {0}};
    int64_t stride = 1;
    for (int d = k->kernel->loop_count - 1; d >= k->kernel->outer_count; d--) {
        at.stride[d] = stride;
        stride *= k->kernel->extent[d];
    }
    tg_c_affine(k, &at);
}

static void emit_c_accumulate(tg_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    tg_text_buffer *text = k->file->text;
    const int32_t v = in->src[0];
    const bool real = k->kernel->body[v].dtype == TG_F32;
    const bool largest = in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_ARGMAX;
    tg_c_indent(k);
    if (in->op == TG_OP_SUM) {
        tg_text_add(text, "r%d += %sv%d;\n", (int)i, real ? "(double)" : "(uint32_t)", (int)v);
    } else if (in->op == TG_OP_REDUCE_MAX || in->op == TG_OP_REDUCE_MIN) {
        const char *helper = real ? (largest ? "tg_max_f32" : "tg_min_f32") : (largest ? "tg_max_i32" : "tg_min_i32");
        tg_c_use_helpers(k->file, helper);
        tg_text_add(text, "r%d = %s(r%d, v%d);\n", (int)i, helper, (int)i, (int)v);
    } else {
        tg_text_add(text, "if (v%d %c r%d", (int)v, largest ? '>' : '<', (int)i);
        if (real) tg_text_add(text, " || (v%d != v%d && r%d == r%d)", (int)v, (int)v, (int)i, (int)i);
        tg_text_add(text, ") { r%d = v%d; at%d = (int32_t)(", (int)i, (int)v, (int)i);
        emit_c_inner_position(k);
        tg_text_add(text, "); }\n");
    }
}

static void emit_c_finish_reduction(tg_c_kernel *k, int32_t i) {
    const tg_instruction *in = &k->kernel->body[i];
    const bool position = in->op == TG_OP_ARGMAX || in->op == TG_OP_ARGMIN;
    tg_c_indent(k);
    tg_text_add(k->file->text, "const %s v%d = (%s)%s%d;\n", tg_c_type(in->dtype), (int)i, tg_c_type(in->dtype), position ? "at" : "r",
                (int)i);
}

static void emit_c_sweep(tg_c_kernel *k, int32_t sweep, bool stores) {
    const tg_kernel *kernel = k->kernel;
    if (!tg_body_want(kernel, k->notes, sweep, stores)) return;
    for (int32_t i = 0; i < kernel->body_count && !stores; i++)
        if (emit_c_reduces_in(k, i, sweep)) emit_c_declare_accumulator(k, i);
    emit_c_open_loops(k, kernel->outer_count, kernel->loop_count);
    for (int32_t i = 0; i < kernel->body_count; i++) {
        if (k->notes[i].wanted && k->notes[i].phase == TG_PHASE_ELEMENT) tg_c_instruction(k, i);
        if (!stores && emit_c_reduces_in(k, i, sweep)) emit_c_accumulate(k, i);
    }
    tg_c_close_loops(k, kernel->loop_count - kernel->outer_count);
    for (int32_t i = 0; i < kernel->body_count && !stores; i++)
        if (emit_c_reduces_in(k, i, sweep)) emit_c_finish_reduction(k, i);
}

/* OUTER values that become possible after `sweep` sweeps, or (effects) all OUTER stores. */
static void emit_c_outer(tg_c_kernel *k, int32_t sweep, bool effects) {
    for (int32_t i = 0; i < k->kernel->body_count; i++) {
        const tg_body_info *note = &k->notes[i];
        const int32_t op = k->kernel->body[i].op;
        if (!note->live || note->phase != TG_PHASE_OUTER || tg_body_is_reduction(op)) continue;
        if (tg_body_is_effect(op) == effects && (effects || note->depth == sweep)) tg_c_instruction(k, i);
    }
}

static void emit_c_reduce(tg_c_kernel *k) {
    emit_c_open_loops(k, 0, k->kernel->outer_count);
    emit_c_outer(k, 0, false);
    for (int32_t sweep = 1; sweep <= k->sweeps; sweep++) {
        emit_c_sweep(k, sweep, false);
        emit_c_outer(k, sweep, false);
    }
    emit_c_sweep(k, 0, true);
    emit_c_outer(k, 0, true);
    tg_c_close_loops(k, k->kernel->outer_count);
}

/* ---------------------------------------------------------------- the other kinds */

static void emit_c_map(tg_c_kernel *k) {
    emit_c_open_loops(k, 0, k->kernel->loop_count);
    emit_c_elements(k);
    tg_c_close_loops(k, k->kernel->loop_count);
}

static void emit_c_contract(tg_c_kernel *k) {
    const tg_kernel *kernel = k->kernel;
    tg_text_buffer *text = k->file->text;
    emit_c_open_loops(k, 0, kernel->outer_count);
    tg_c_indent(k);
    tg_text_add(text, "double acc = 0;\n");
    emit_c_open_loops(k, kernel->outer_count, kernel->loop_count);
    tg_c_indent(k);
    tg_text_add(text, "acc += (double)a%d[", (int)kernel->a.argument);
    tg_c_affine(k, &kernel->a.at);
    tg_text_add(text, "] * (double)a%d[", (int)kernel->b.argument);
    tg_c_affine(k, &kernel->b.at);
    tg_text_add(text, "];\n");
    tg_c_close_loops(k, kernel->loop_count - kernel->outer_count);
    emit_c_elements(k);
    tg_c_close_loops(k, kernel->outer_count);
}

/* Clears what the SCATTER instructions add to: each row, over the loops that the address depends
 * on. */
static void emit_c_clear(tg_c_kernel *k, const tg_instruction *in) {
    int opened = 1;
    tg_c_indent(k);
    tg_text_add(k->file->text, "for (int64_t row = 0; row < %lld; row++) {\n", (long long)in->rows);
    k->indent++;
    for (int d = 0; d < k->kernel->loop_count; d++) {
        if (in->at.stride[d] == 0) continue;
        tg_c_open_loop(k, d);
        opened++;
    }
    tg_c_indent(k);
    tg_text_add(k->file->text, "a%d[row * %lld + ", (int)in->argument, (long long)in->row_stride);
    tg_c_affine(k, &in->at);
    tg_text_add(k->file->text, "] = 0;\n");
    tg_c_close_loops(k, opened);
}

static void emit_c_scatter(tg_c_kernel *k) {
    for (int32_t i = 0; i < k->kernel->body_count; i++)
        if (k->kernel->body[i].op == TG_K_SCATTER) emit_c_clear(k, &k->kernel->body[i]);
    emit_c_map(k);
}

/* ---------------------------------------------------------------- one kernel */

static bool emit_c_argument_used(const tg_c_kernel *k, int32_t argument) {
    if (k->kernel->kind == TG_KERNEL_CONTRACT && (k->kernel->a.argument == argument || k->kernel->b.argument == argument)) return true;
    if (k->kernel->kind == TG_KERNEL_ATTENTION) return true;
    for (int32_t i = 0; i < k->kernel->body_count; i++) {
        const tg_instruction *in = &k->kernel->body[i];
        const bool touches = in->op == TG_K_LOAD || in->op == TG_K_GATHER || tg_body_is_effect(in->op);
        if (touches && k->notes[i].live && in->argument == argument) return true;
    }
    return false;
}

/* The value in a buffer: "[3] hidden". If a kernel used the memory again, so that its value has
 * another meaning now: "[3] by kernel 8". */
static void emit_c_value(tg_c_file *file, int32_t buffer, int32_t index) {
    const char *name = tg_c_buffer_name(file->program, buffer);
    tg_text_add(file->text, "[%d]", (int)buffer);
    if (file->writer[buffer] == index) tg_text_add(file->text, " in place");
    else if (file->writer[buffer] >= 0) tg_text_add(file->text, " by kernel %d", (int)file->writer[buffer]);
    else if (name && *name) {
        tg_text_add(file->text, " ");
        tg_emit_c_noted(file->text, name);
    }
}

/* ": reads [1] x, [2] w" or "; writes [3] hidden"; nothing if there are none. */
static void emit_c_touched(tg_c_kernel *k, int32_t index, const char *verb, tg_access but) {
    bool any = false;
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        if (argument->access == but || !emit_c_argument_used(k, i)) continue;
        tg_text_add(k->file->text, "%s ", any ? "," : verb);
        emit_c_value(k->file, argument->buffer, index);
        any = true;
    }
}

/* Notes the buffers that kernel `index` uses again for a value of another meaning: memory that an
 * earlier kernel wrote and this one updates. */
static void emit_c_overwrites(tg_c_kernel *k, int32_t index) {
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        const tg_buffer *buffer = &k->file->program->buffers[argument->buffer];
        if (buffer->storage == TG_STORAGE_WORKSPACE && argument->access == TG_ACCESS_READ_WRITE && buffer->first < index)
            k->file->writer[argument->buffer] = index;
    }
}

static void emit_c_comment(tg_c_kernel *k, int32_t index) {
    tg_text_buffer *text = k->file->text;
    tg_text_add(text, "/* ");
    tg_kernel_summary(k->kernel, text);
    tg_text_add(text, "\n * kernel %d", (int)index);
    emit_c_touched(k, index, ": reads", TG_ACCESS_WRITE);
    emit_c_overwrites(k, index);
    emit_c_touched(k, index, "; writes", TG_ACCESS_READ);
    tg_text_add(text, " */\n");
}

static void emit_c_arguments(tg_c_kernel *k) {
    tg_text_buffer *text = k->file->text;
    bool any = false;
    for (int32_t i = 0; i < k->kernel->argument_count; i++) {
        const tg_argument *argument = &k->kernel->arguments[i];
        const tg_buffer *buffer = &k->file->program->buffers[argument->buffer];
        if (!emit_c_argument_used(k, i)) continue;
        const bool constant = buffer->storage == TG_STORAGE_CONSTANT;
        const char *qualifier = argument->access == TG_ACCESS_READ ? "const " : "";
        any = any || !constant;
        tg_c_indent(k);
        tg_text_add(text, "%s%s *const a%d = ", qualifier, tg_c_memory_type(argument->dtype), (int)i);
        tg_text_add(text, constant ? "tg_constant_%d;\n" : "buffers[%d];\n", (int)argument->buffer);
    }
    if (any) return;
    tg_c_indent(k);
    tg_text_add(text, "(void)buffers;\n");
}

static void emit_c_function(tg_c_kernel *k, int32_t index) {
    k->sweeps = tg_body_analyse(k->kernel, k->notes);
    emit_c_comment(k, index);
    tg_text_add(k->file->text, "static void ");
    tg_c_kernel_name(k->file->text, k->file->program, index);
    tg_text_add(k->file->text, "(void *const *buffers) {\n");
    k->indent = 1;
    emit_c_arguments(k);
    emit_c_at_top(k);
    switch (k->kernel->kind) {
    case TG_KERNEL_MAP: emit_c_map(k); break;
    case TG_KERNEL_REDUCE: emit_c_reduce(k); break;
    case TG_KERNEL_CONTRACT: emit_c_contract(k); break;
    case TG_KERNEL_SCATTER_ADD: emit_c_scatter(k); break;
    case TG_KERNEL_ATTENTION: tg_c_attention(k); break;
    }
    tg_text_add(k->file->text, "}\n\n");
}

tg_status tg_c_print_kernel(tg_c_file *file, int32_t index) {
    const tg_kernel *kernel = &file->program->kernels[index];
    tg_c_kernel k = {file, kernel, NULL, 0, 0};
    const size_t bytes = sizeof *k.notes * (size_t)(kernel->body_count > 0 ? kernel->body_count : 1);
    k.notes = tg_alloc(file->text->ctx, bytes);
    if (!k.notes) return TG_ERROR_MEMORY;
    emit_c_function(&k, index);
    tg_release(file->text->ctx, k.notes, bytes);
    return file->bad ? TG_INTERNAL(file->text->ctx, "emit_c: an operation or type that has no spelling") : TG_OK;
}
