/* attention: what a kernel of kind ATTENTION says, taken apart for executors and printers. Its loops
 * have fixed meanings; B batches, Hk heads of keys, G heads of queries for each of them, T queries,
 * S keys, heads d wide:
 *   ATTENTION, ATTENTION_DQ   [B Hk G T d | S d]
 *   ATTENTION_DKV             [B Hk S d | G T d]
 * The last loop is the width of the operands, the other d that of the results. The body has loads of
 * q, k, v (ATTENTION_DQ, _DKV: do, lse, delta too; then the mask if there is one), which have no
 * bounds, an ACC for each result, and a store for each. The formulas are in ir/attention.h.
 * Must not know graphs. */
#ifndef TG_KERNEL_ATTENTION_H
#define TG_KERNEL_ATTENTION_H
#include "kernel/kernel.h"

/* An operand or result: element offset + batch b + kv_head h + group g + row r + column c of its
 * argument. Rows are queries or keys, columns the width; for the mask rows are queries and columns
 * keys. */
typedef struct tg_attention_access {
    int32_t argument; /* -1: there is none */
    int64_t offset, batch, kv_head, group, row, column;
} tg_attention_access;

typedef struct tg_attention_kernel {
    tg_op op;
    int64_t batches, kv_heads, groups, queries, keys, width;
    bool causal;
    double scale;
    tg_attention_access q, k, v, dout, lse, delta, mask;
    /* ATTENTION: o, lse; ATTENTION_DQ: dq; ATTENTION_DKV: dk, dv */
    tg_attention_access out[2];
} tg_attention_kernel;

/* The loop that runs over: batches, heads of keys, groups, queries, keys, the width of results, the
 * width of operands. */
typedef enum tg_attention_loop {
    TG_ATTENTION_BATCH,
    TG_ATTENTION_KV_HEAD,
    TG_ATTENTION_GROUP,
    TG_ATTENTION_QUERY,
    TG_ATTENTION_KEY,
    TG_ATTENTION_OUT,
    TG_ATTENTION_WIDTH,
    TG_ATTENTION_LOOPS
} tg_attention_loop;
int32_t tg_attention_loop_of(tg_op op, tg_attention_loop loop);

/* kernel: of kind ATTENTION. */
tg_attention_kernel tg_attention_read(const tg_kernel *kernel);
/* Of its products: 2, 3 or 4 of 2 B H T S d each, half of them if it is causal. */
double tg_attention_flops(const tg_kernel *kernel);

#endif
