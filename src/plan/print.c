/* print: programs as text for people and for tests that pin them: the plan (buffers, order) and the
 * kernel IR. */
#include "plan/program.h"
#include "ir/dtype.h"

#include <string.h>

static const char *const storage_names[] = {"workspace", "input", "state", "constant"};
static const char *const kind_names[] = {"map", "reduce", "contract", "scatter_add", "attention"};
static const char *const level_names[] = {"uniform", "outer", "element"};

static void print_buffer(const tg_program *program, int32_t i, tg_text_buffer *text) {
    const tg_buffer *b = &program->buffers[i];
    if (b->storage == TG_STORAGE_WORKSPACE && b->first < 0) return;
    tg_text_add(text, "b%d %s %s[%lld]", (int)i, storage_names[b->storage], tg_dtype_name(b->dtype), (long long)b->count);
    if (b->storage == TG_STORAGE_WORKSPACE) tg_text_add(text, " at %lld", (long long)b->offset);
    if (b->storage == TG_STORAGE_INPUT) tg_text_add(text, " %s", program->inputs[b->slot].name);
    else if (b->storage == TG_STORAGE_STATE) tg_text_add(text, " %s", program->states[b->slot].name);
    else if (b->name) tg_text_add(text, " %s", b->name);
    tg_text_add(text, ", kernels %d to %d\n", (int)b->first, (int)b->last);
}

/* A heading before the first kernel of a launch of several. */
static void print_launch(const tg_program *program, int32_t kernel, tg_text_buffer *text) {
    for (int32_t i = 0; i < program->launch_count; i++) {
        const tg_launch *l = &program->launches[i];
        if (l->first != kernel || l->count < 2) continue;
        tg_text_add(text, "launch %d: kernels %d to %d, ", (int)i, (int)l->first, (int)(l->first + l->count - 1));
        if (l->slices > 0) tg_text_add(text, "chain of %d slices\n", (int)l->slices);
        else tg_text_add(text, "side by side\n");
    }
}

void tg_program_print(const tg_program *program, tg_text_buffer *text) {
    tg_text_add(text, "workspace %lld bytes, states %lld, inputs %lld, constants %lld\n", (long long)program->workspace_bytes,
                (long long)program->state_bytes, (long long)program->input_bytes, (long long)program->constant_bytes);
    for (int32_t i = 0; i < program->buffer_count; i++) print_buffer(program, i, text);
    for (int32_t k = 0; k < program->kernel_count; k++) {
        const tg_kernel *kernel = &program->kernels[k];
        print_launch(program, k, text);
        tg_text_add(text, "k%d %s %s:", (int)k, kind_names[kernel->kind], kernel->name);
        for (int32_t i = 0; i < kernel->argument_count; i++)
            tg_text_add(text, " %sb%d",
                        kernel->arguments[i].access == TG_ACCESS_READ    ? ""
                        : kernel->arguments[i].access == TG_ACCESS_WRITE ? "="
                                                                         : "*",
                        (int)kernel->arguments[i].buffer);
        tg_text_add(text, "\n");
    }
    for (int32_t i = 0; i < program->output_count; i++)
        tg_text_add(text, "output %s: b%d\n", program->outputs[i].name, (int)program->outputs[i].buffer);
}

static void print_affine(const tg_affine *a, tg_text_buffer *text) {
    bool first = true;
    for (int k = 0; k < TG_MAX_LOOP; k++) {
        if (a->stride[k] == 0) continue;
        tg_text_add(text, "%s", first ? "" : " + ");
        if (a->stride[k] != 1) tg_text_add(text, "%lld ", (long long)a->stride[k]);
        tg_text_add(text, "i%d", k);
        first = false;
    }
    if (first || a->offset != 0) tg_text_add(text, "%s%lld", first ? "" : " + ", (long long)a->offset);
}

static void print_bounds(const tg_instruction *x, tg_text_buffer *text) {
    for (int32_t i = 0; i < x->bound_count; i++) {
        tg_text_add(text, "%s%lld <= ", i == 0 ? " if " : " and ", (long long)x->bounds[i].lo);
        print_affine(&x->bounds[i].at, text);
        tg_text_add(text, " < %lld", (long long)x->bounds[i].hi);
    }
}

static const char *operation_name(int32_t op) {
    static const char *const own[] = {"load", "gather", "index", "inside", "acc", "store", "scatter"};
    return op < TG_OP_COUNT ? tg_op_table[op].name : own[op - TG_OP_COUNT];
}

static void print_instruction(const tg_kernel *k, int32_t i, tg_text_buffer *text) {
    const tg_instruction *x = &k->body[i];
    bool memory = x->op == TG_K_LOAD || x->op == TG_K_GATHER || x->op == TG_K_STORE || x->op == TG_K_SCATTER;
    tg_text_add(text, "  %%%d %s %s = %s", (int)i, level_names[x->level], tg_dtype_name(x->dtype), operation_name(x->op));
    if (x->op == TG_OP_CONST) {
        tg_text_add(text, " ");
        tg_text_number(text, x->value);
    }
    for (int s = 0; s < 3; s++)
        if (x->src[s] >= 0) tg_text_add(text, " %%%d", (int)x->src[s]);
    if (memory) {
        tg_text_add(text, " b%d[", (int)k->arguments[x->argument].buffer);
        if (x->op == TG_K_GATHER || x->op == TG_K_SCATTER) tg_text_add(text, "%lld row + ", (long long)x->row_stride);
        print_affine(&x->at, text);
        tg_text_add(text, "]");
    } else if (x->op == TG_K_INDEX) {
        tg_text_add(text, " ");
        print_affine(&x->at, text);
    }
    print_bounds(x, text);
    tg_text_add(text, "\n");
}

static void print_loops(const tg_kernel *k, tg_text_buffer *text) {
    tg_text_add(text, "[");
    for (int d = 0; d < k->loop_count; d++) {
        bool divider = d == k->outer_count || (k->kind == TG_KERNEL_CONTRACT && (d == k->m_begin || d == k->n_begin));
        tg_text_add(text, "%s%lld", divider ? " | " : d > 0 ? " " : "", (long long)k->extent[d]);
    }
    tg_text_add(text, "]");
}

void tg_program_print_kernels(const tg_program *program, tg_text_buffer *text) {
    for (int32_t i = 0; i < program->kernel_count; i++) {
        const tg_kernel *k = &program->kernels[i];
        print_launch(program, i, text);
        tg_text_add(text, "k%d %s %s ", (int)i, kind_names[k->kind], k->name);
        print_loops(k, text);
        tg_text_add(text, "\n");
        if (k->kind == TG_KERNEL_CONTRACT) {
            tg_text_add(text, "  a = b%d[", (int)k->arguments[k->a.argument].buffer);
            print_affine(&k->a.at, text);
            tg_text_add(text, "], b = b%d[", (int)k->arguments[k->b.argument].buffer);
            print_affine(&k->b.at, text);
            tg_text_add(text, "]\n");
        }
        for (int32_t j = 0; j < k->body_count; j++) print_instruction(k, j, text);
    }
}
