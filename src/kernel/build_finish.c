/* build_finish: the finished kernel in a block of its own. Drops loops of extent 1 and merges
 * neighbours that every access treats as one. Must not know how loops and values are chosen. */
#include "kernel/attention.h"
#include "kernel/build_parts.h"

#include <stdio.h>
#include <string.h>

typedef void (*affine_visit)(tg_affine *a, int32_t loop, void *user);

static void visit_affines(tg_kernel *kernel, int32_t loop, affine_visit visit, void *user) {
    for (int32_t i = 0; i < kernel->body_count; i++) {
        visit(&kernel->body[i].at, loop, user);
        for (int32_t j = 0; j < kernel->body[i].bound_count; j++) visit((tg_affine *)(uintptr_t)&kernel->body[i].bounds[j].at, loop, user);
    }
    if (kernel->kind == TG_KERNEL_CONTRACT) {
        visit(&kernel->a.at, loop, user);
        visit(&kernel->b.at, loop, user);
    }
}

struct merge_question {
    int64_t inner;
    bool mergeable;
};

static void ask_mergeable(tg_affine *a, int32_t loop, void *user) {
    struct merge_question *q = user;
    if (a->stride[loop] != a->stride[loop + 1] * q->inner) q->mergeable = false;
}

static void drop_stride(tg_affine *a, int32_t loop, void *user) {
    (void)user;
    for (int k = loop; k + 1 < TG_MAX_LOOP; k++) a->stride[k] = a->stride[k + 1];
    a->stride[TG_MAX_LOOP - 1] = 0;
}

static void drop_loop(tg_kernel *kernel, int32_t loop) {
    visit_affines(kernel, loop, drop_stride, NULL);
    for (int k = loop; k + 1 < kernel->loop_count; k++) kernel->extent[k] = kernel->extent[k + 1];
    kernel->loop_count--;
    if (loop < kernel->m_begin) kernel->m_begin--;
    if (loop < kernel->n_begin) kernel->n_begin--;
    if (loop < kernel->outer_count) kernel->outer_count--;
}

static void coalesce_loops(tg_kernel *kernel) {
    for (int k = kernel->loop_count - 1; k >= 0; k--)
        if (kernel->extent[k] == 1) drop_loop(kernel, k);
    for (int k = kernel->loop_count - 2; k >= 0; k--) {
        if (k + 1 == kernel->m_begin || k + 1 == kernel->n_begin || k + 1 == kernel->outer_count) continue;
        struct merge_question q = {kernel->extent[k + 1], true};
        visit_affines(kernel, k, ask_mergeable, &q);
        if (!q.mergeable) continue;
        int64_t merged = kernel->extent[k] * kernel->extent[k + 1];
        drop_loop(kernel, k);
        kernel->extent[k] = merged;
    }
}

/* Rotates loops [begin, end): those from `middle` on come first. */
struct loop_rotation {
    int32_t begin, middle, end;
};
static void rotate_strides(int64_t *of_loop, const struct loop_rotation *r) {
    int64_t kept[TG_MAX_LOOP];
    memcpy(kept, of_loop, sizeof kept);
    const int32_t moved = r->end - r->middle;
    for (int32_t k = r->begin; k < r->end; k++) of_loop[k] = kept[k < r->begin + moved ? k - r->begin + r->middle : k - moved];
}
static void rotate_affine(tg_affine *a, int32_t loop, void *user) {
    (void)loop;
    rotate_strides(a->stride, user);
}

/* A contraction whose stores are all contiguous along m and not along n becomes its transpose: the
 * operands change sides. The products and their order stay the same. */
static void turn_contraction(tg_kernel *kernel) {
    const int32_t m = kernel->n_begin - 1, n = kernel->outer_count - 1;
    if (kernel->kind != TG_KERNEL_CONTRACT || m < kernel->m_begin || n < kernel->n_begin) return;
    for (int32_t i = 0; i < kernel->body_count; i++)
        if (kernel->body[i].op == TG_K_STORE && (kernel->body[i].at.stride[m] != 1 || kernel->body[i].at.stride[n] == 1)) return;
    struct loop_rotation r = {kernel->m_begin, kernel->n_begin, kernel->outer_count};
    visit_affines(kernel, 0, rotate_affine, &r);
    rotate_strides(kernel->extent, &r);
    kernel->n_begin = kernel->m_begin + r.end - r.middle;
    const tg_operand_access a = kernel->a;
    kernel->a = kernel->b;
    kernel->b = a;
}

/* ---- the kernel in one block */

static void kernel_name(const struct tg_builder *b, char *name, size_t size) {
    size_t used = 0;
    int32_t last = 0;
    name[0] = 0;
    for (int32_t i = 0; i < b->body_count; i++) {
        int32_t op = b->body[i].op == TG_K_ACC       ? (int32_t)builder_node(b, b->domain->node)->op
                     : b->body[i].op == TG_K_GATHER  ? (int32_t)TG_OP_GATHER
                     : b->body[i].op == TG_K_SCATTER ? (int32_t)TG_OP_SCATTER_ADD
                                                     : b->body[i].op;
        if (op >= TG_OP_COUNT || op == TG_OP_CONST || op == last) continue;
        last = op;
        size_t length = strlen(tg_op_table[op].name);
        if (used + length + 8 > size) {
            snprintf(name + used, size - used, "_etc");
            return;
        }
        snprintf(name + used, size - used, "%s%s", used > 0 ? "_" : "", tg_op_table[op].name);
        used += length + (used > 0 ? 1 : 0);
    }
    if (used == 0) snprintf(name, size, "copy");
}

/* A kernel and all it points to, in one block. */
typedef struct kernel_block {
    tg_kernel kernel;
    char name[72];
} kernel_block;

static size_t padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

static tg_kernel *make_block(const struct tg_builder *b) {
    size_t bounds = 0;
    for (int32_t i = 0; i < b->body_count; i++) bounds += (size_t)b->body[i].bound_count;
    const size_t body_at = padded(sizeof(kernel_block)), bounds_at = body_at + padded(sizeof(tg_instruction) * (size_t)b->body_count);
    const size_t arguments_at = bounds_at + padded(sizeof(tg_bound) * bounds);
    const size_t nodes_at = arguments_at + padded(sizeof(tg_argument) * (size_t)b->argument_count);
    const size_t bytes = nodes_at + sizeof(int32_t) * (size_t)(b->item_count + b->memo_count);
    kernel_block *block = tg_alloc(b->f->ctx, bytes);
    if (!block) return NULL;
    char *base = (char *)block;
    tg_kernel *kernel = &block->kernel;
    tg_bound *kept = (tg_bound *)(void *)(base + bounds_at);
    kernel->bytes = bytes;
    kernel->name = block->name;
    kernel->body = (tg_instruction *)(void *)(base + body_at);
    kernel->arguments = (tg_argument *)(void *)(base + arguments_at);
    kernel->nodes = (int32_t *)(void *)(base + nodes_at);
    kernel_name(b, block->name, sizeof block->name);
    memcpy(kernel->body, b->body, sizeof(tg_instruction) * (size_t)b->body_count);
    memcpy(kernel->arguments, b->arguments, sizeof(tg_argument) * (size_t)b->argument_count);
    for (int32_t i = 0; i < b->body_count; i++) {
        tg_instruction *x = &kernel->body[i];
        if (x->bound_count == 0) continue;
        memcpy(kept, x->bounds, sizeof(tg_bound) * (size_t)x->bound_count);
        x->bounds = kept;
        kept += x->bound_count;
    }
    return kernel;
}

void tg_kernel_free(tg_context *ctx, tg_kernel *kernel) {
    if (kernel) tg_release(ctx, kernel, kernel->bytes);
}

/* Its loops have fixed meanings and stay as they are. */
static void finish_attention(const struct tg_builder *b, tg_kernel *kernel) {
    const tg_node *n = builder_node(b, b->domain->node);
    kernel->attention = (int32_t)n->op;
    kernel->causal = n->attr.causal;
    kernel->scale = n->attr.value;
    kernel->flops = tg_attention_flops(kernel);
}

tg_kernel *tg_build_finish(struct tg_builder *b) {
    tg_kernel *kernel = make_block(b);
    if (!kernel) return NULL;
    int32_t *nodes = (int32_t *)kernel->nodes;
    kernel->kind = b->domain->kind;
    kernel->loop_count = b->loops.count;
    kernel->outer_count = b->outer;
    kernel->m_begin = b->m_begin;
    kernel->n_begin = b->n_begin;
    kernel->a = b->a;
    kernel->b = b->b;
    kernel->body_count = b->body_count;
    kernel->argument_count = b->argument_count;
    memcpy(kernel->extent, b->loops.extent, sizeof(int64_t) * (size_t)b->loops.count);
    for (int32_t i = 0; i < b->memo_count; i++) {
        tg_op_class c = tg_op_table[builder_node(b, b->memo[i].node)->op].class_;
        if (!tg_build_stored_elsewhere(b, b->memo[i].node) && c != TG_CLASS_LEAF && c != TG_CLASS_VIEW)
            nodes[kernel->node_count++] = b->memo[i].node;
    }
    if (kernel->node_count == 0)
        for (int i = 0; i < b->item_count; i++) nodes[kernel->node_count++] = b->f->items.items[b->items[i]].node;
    if (kernel->kind == TG_KERNEL_CONTRACT) {
        kernel->flops = 2.0;
        for (int k = 0; k < kernel->loop_count; k++) kernel->flops *= (double)kernel->extent[k];
    }
    if (kernel->kind == TG_KERNEL_ATTENTION) {
        finish_attention(b, kernel);
        return kernel;
    }
    coalesce_loops(kernel);
    turn_contraction(kernel);
    return kernel;
}
