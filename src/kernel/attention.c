/* attention: see attention.h. Must not know graphs. */
#include "kernel/attention.h"

int32_t tg_attention_loop_of(tg_op op, tg_attention_loop loop) {
    static const int32_t of_queries[TG_ATTENTION_LOOPS] = {0, 1, 2, 3, 5, 4, 6}, of_keys[TG_ATTENTION_LOOPS] = {0, 1, 4, 5, 2, 3, 6};
    return op == TG_OP_ATTENTION_DKV ? of_keys[loop] : of_queries[loop];
}

static tg_attention_access attention_access(tg_op op, const tg_instruction *x, tg_attention_loop row, tg_attention_loop column) {
    tg_attention_access a = {.argument = x->argument, .offset = x->at.offset};
    a.batch = x->at.stride[tg_attention_loop_of(op, TG_ATTENTION_BATCH)];
    a.kv_head = x->at.stride[tg_attention_loop_of(op, TG_ATTENTION_KV_HEAD)];
    a.group = x->at.stride[tg_attention_loop_of(op, TG_ATTENTION_GROUP)];
    a.row = x->at.stride[tg_attention_loop_of(op, row)];
    a.column = x->at.stride[tg_attention_loop_of(op, column)];
    return a;
}

tg_attention_kernel tg_attention_read(const tg_kernel *kernel) {
    const tg_op op = (tg_op)kernel->attention;
    tg_attention_kernel a = {.op = op, .causal = kernel->causal, .scale = kernel->scale, .mask.argument = -1};
    int64_t *const sizes[TG_ATTENTION_LOOPS] = {&a.batches, &a.kv_heads, &a.groups, &a.queries, &a.keys, &a.width, &a.width};
    tg_attention_access *const loads[6] = {&a.q, &a.k, &a.v, &a.dout, &a.lse, &a.delta};
    const int32_t count = op == TG_OP_ATTENTION ? 3 : 6;
    for (int i = 0; i < TG_ATTENTION_LOOPS; i++) *sizes[i] = kernel->extent[tg_attention_loop_of(op, (tg_attention_loop)i)];
    for (int32_t i = 0; i < count; i++) {
        const tg_attention_loop row = i == 1 || i == 2 ? TG_ATTENTION_KEY : TG_ATTENTION_QUERY;
        *loads[i] = attention_access(op, &kernel->body[i], row, TG_ATTENTION_WIDTH);
    }
    if (kernel->body[count].op == TG_K_LOAD) a.mask = attention_access(op, &kernel->body[count], TG_ATTENTION_QUERY, TG_ATTENTION_KEY);
    a.out[1].argument = -1;
    for (int32_t i = count; i < kernel->body_count; i++) {
        const tg_instruction *x = &kernel->body[i];
        if (x->op != TG_K_STORE) continue;
        const tg_attention_loop row = op == TG_OP_ATTENTION_DKV ? TG_ATTENTION_KEY : TG_ATTENTION_QUERY;
        a.out[kernel->body[x->src[0]].value > 0 ? 1 : 0] = attention_access(op, x, row, TG_ATTENTION_OUT);
    }
    return a;
}

double tg_attention_flops(const tg_kernel *kernel) {
    const tg_attention_kernel a = tg_attention_read(kernel);
    const double products = a.op == TG_OP_ATTENTION ? 2 : a.op == TG_OP_ATTENTION_DQ ? 3 : 4;
    const double rows = (double)a.batches * (double)a.kv_heads * (double)a.groups * (double)a.queries;
    return products * 2 * rows * (double)a.keys * (double)a.width * (a.causal ? 0.5 : 1);
}
