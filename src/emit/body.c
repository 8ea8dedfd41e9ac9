/* body: see body.h. */
#include "emit/body.h"

bool tg_body_is_reduction(int32_t op) {
    return op == TG_OP_SUM || op == TG_OP_REDUCE_MAX || op == TG_OP_REDUCE_MIN || op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
}

bool tg_body_is_effect(int32_t op) { return op == TG_K_STORE || op == TG_K_SCATTER; }

int tg_body_arity(int32_t op) {
    if (op == TG_K_GATHER || op == TG_K_STORE) return 1;
    if (op == TG_K_SCATTER) return 2;
    return op < TG_OP_COUNT && op != TG_OP_CONST ? tg_op_table[op].arity : 0;
}

static void body_find_live(const tg_kernel *kernel, tg_body_info *info) {
    for (int32_t i = kernel->body_count - 1; i >= 0; i--) {
        const tg_instruction *in = &kernel->body[i];
        if (tg_body_is_effect(in->op)) info[i].live = 1;
        if (!info[i].live) continue;
        for (int s = 0; s < tg_body_arity(in->op); s++) info[in->src[s]].live = 1;
    }
}

static void body_find_one(const tg_kernel *kernel, tg_body_info *info, int32_t i) {
    const tg_instruction *in = &kernel->body[i];
    tg_body_info *note = &info[i];
    const bool reduction = tg_body_is_reduction(in->op);
    bool hoist = in->level == TG_LEVEL_UNIFORM && !tg_body_is_effect(in->op) && in->op != TG_K_ACC && !reduction;
    for (int s = 0; s < tg_body_arity(in->op); s++) {
        const tg_body_info *source = &info[in->src[s]];
        if (source->phase != TG_PHASE_TOP) hoist = false;
        if (source->depth > note->depth) note->depth = source->depth;
    }
    if (reduction) note->depth++;
    if (hoist) note->phase = TG_PHASE_TOP;
    else if (kernel->kind != TG_KERNEL_REDUCE) note->phase = TG_PHASE_ELEMENT;
    else note->phase = reduction || in->level != TG_LEVEL_ELEMENT ? TG_PHASE_OUTER : TG_PHASE_ELEMENT;
}

int32_t tg_body_analyse(const tg_kernel *kernel, tg_body_info *info) {
    int32_t sweeps = 0;
    body_find_live(kernel, info);
    for (int32_t i = 0; i < kernel->body_count; i++) {
        body_find_one(kernel, info, i);
        if (info[i].depth > sweeps) sweeps = info[i].depth;
    }
    return sweeps;
}

bool tg_body_reduces_in(const tg_kernel *kernel, const tg_body_info *info, int32_t i, int32_t sweep) {
    return info[i].live && tg_body_is_reduction(kernel->body[i].op) && info[i].depth == sweep;
}

bool tg_body_is_element_store(const tg_kernel *kernel, const tg_body_info *info, int32_t i) {
    return tg_body_is_effect(kernel->body[i].op) && info[i].phase == TG_PHASE_ELEMENT;
}

bool tg_body_want(const tg_kernel *kernel, tg_body_info *info, int32_t sweep, bool stores) {
    bool any = false;
    for (int32_t i = 0; i < kernel->body_count; i++) info[i].wanted = 0;
    for (int32_t i = kernel->body_count - 1; i >= 0; i--) {
        const bool target = stores ? tg_body_is_element_store(kernel, info, i) : tg_body_reduces_in(kernel, info, i, sweep);
        if (target && stores) info[i].wanted = 1;
        any = any || target;
        if (!target && (!info[i].wanted || info[i].phase != TG_PHASE_ELEMENT)) continue;
        const tg_instruction *in = &kernel->body[i];
        for (int s = 0; s < tg_body_arity(in->op); s++) info[in->src[s]].wanted = 1;
    }
    return any;
}

static const char *body_kind_name(tg_kernel_kind kind) {
    switch (kind) {
    case TG_KERNEL_MAP: return "map";
    case TG_KERNEL_REDUCE: return "reduce";
    case TG_KERNEL_CONTRACT: return "contract";
    case TG_KERNEL_ATTENTION: return "attention";
    case TG_KERNEL_SCATTER_ADD: break;
    }
    return "scatter_add";
}

/* Does an earlier instruction have the same operation? The summary names each operation once. */
static bool body_named_before(const tg_kernel *kernel, int32_t i) {
    for (int32_t j = 0; j < i; j++)
        if (kernel->body[j].op == kernel->body[i].op) return true;
    return false;
}

void tg_kernel_summary(const tg_kernel *kernel, tg_text_buffer *text) {
    tg_text_add(text, "%s over [", body_kind_name(kernel->kind));
    for (int d = 0; d < kernel->loop_count; d++) {
        const char *separator = d == 0 ? "" : d == kernel->outer_count ? " | " : ", ";
        tg_text_add(text, "%s%lld", separator, (long long)kernel->extent[d]);
    }
    tg_text_add(text, "]:");
    for (int32_t i = 0; i < kernel->body_count; i++) {
        const int32_t op = kernel->body[i].op;
        if (op >= TG_OP_COUNT || op == TG_OP_CONST || body_named_before(kernel, i)) continue;
        tg_text_add(text, " %s", tg_op_table[op].name);
    }
}
