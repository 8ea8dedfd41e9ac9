/* vm_make: translates a kernel, once, at load: which instructions run once, per part, per outer
 * point, in which pass over the inner loops, and how a contraction hands over its blocks.
 * Everything depends on the kernel alone. Must not know how tiles are driven. */
#include "run/cpu/vm_make.h"

#include <string.h>

#define MAKER_DROP(m, list) tg_release((m)->ctx, (m)->list.items, (size_t)(m)->list.capacity * sizeof *(m)->list.items)

/* ---- what is the same in every tile: masks and other functions of the position */

static bool maker_is_steady(const tg_vm_maker *m, int32_t i) {
    const tg_instruction *instruction = &m->kernel->body[i];
    if (m->values[i].level == TG_LEVEL_UNIFORM || m->values[i].source != i) return false;
    if (tg_vm_is_position(instruction->op)) return m->out->tile_rows % tg_vm_instruction_period(m, instruction) == 0;
    if (instruction->op >= TG_OP_COUNT || !tg_op_is_elementwise((tg_op)instruction->op)) return false;
    for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) {
        const tg_vm_value *value = &m->values[tg_vm_source(m, instruction, k)];
        if (!value->steady && value->level != TG_LEVEL_UNIFORM) return false;
    }
    return true;
}

/* A load per column that full tiles of short rows use: copied to every row once. */
static bool maker_wants_steady_spread(const tg_vm_maker *m, int32_t i) {
    const tg_instruction *load = &m->kernel->body[i];
    if (load->op != TG_K_LOAD || m->values[i].class_ != TG_VM_CLASS_COL || m->out->tile_cols >= TG_VM_SHORT_ROW || m->out->tile_rows < 2)
        return false;
    return m->kernel->arguments[load->argument].access == TG_ACCESS_READ && !tg_vm_is_aliased(m, load->argument) &&
           tg_vm_instruction_period(m, load) == 1;
}
static void maker_setup(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    if (out->passes > 0 || (out->mode != TG_VM_MAP && out->mode != TG_VM_ROWS)) return;
    if (out->tile_cols != out->loops.cols || out->tiles <= out->parts) return;
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        tg_vm_value *value = &m->values[i];
        value->steady = maker_is_steady(m, i);
        if (value->steady || maker_wants_steady_spread(m, i)) tg_vm_list(m, i);
        if (value->steady) value->slot = tg_vm_new_register(m, value->class_, 4), value->kept = true;
        else if (maker_wants_steady_spread(m, i)) value->steady_spread = tg_vm_new_register(m, TG_VM_CLASS_FULL, 4);
    }
    out->kept_end = (int64_t)m->register_top;
    tg_vm_begin_segment(m);
    tg_vm_make_segment(m, &out->setup);
}

/* ---- the segments of a kernel */

static void maker_prologue(tg_vm_maker *m) {
    tg_vm_begin_segment(m);
    m->prologue = true;
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->values[i].level == TG_LEVEL_UNIFORM && m->kernel->body[i].op != TG_OP_CONST) tg_vm_list(m, i);
    tg_vm_make_segment(m, &m->out->prologue);
    m->prologue = false;
}

/* Everything that is not uniform, stores to memory that is also read last. */
static void maker_straight(tg_vm_maker *m) {
    tg_vm_begin_segment(m);
    const tg_instruction *body = m->kernel->body;
    for (int late = 0; late < 2; ++late)
        for (int32_t i = 0; i < m->kernel->body_count; ++i) {
            bool after = body[i].op == TG_K_STORE && tg_vm_is_aliased(m, body[i].argument);
            if (m->values[i].level != TG_LEVEL_UNIFORM && !m->values[i].steady && after == (late == 1)) tg_vm_list(m, i);
        }
    tg_vm_make_segment(m, &m->out->body);
}

/* Marks instruction i and the ELEMENT instructions below it. */
static void maker_need(const tg_vm_maker *m, bool *needed, int32_t i) {
    for (needed[i] = true; i >= 0; --i) {
        if (!needed[i]) continue;
        const tg_instruction *instruction = &m->kernel->body[i];
        for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) {
            int32_t v = tg_vm_source(m, instruction, k);
            if (m->values[v].level == TG_LEVEL_ELEMENT) needed[v] = true;
        }
    }
}
static void maker_list_needed(tg_vm_maker *m, const bool *needed) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (needed[i]) tg_vm_list(m, i);
}
static void maker_keep_values(tg_vm_maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        tg_vm_value *value = &m->values[i];
        if (value->level != TG_LEVEL_OUTER || value->source != i) continue;
        if (tg_vm_is_effect(instruction->op) || instruction->op == TG_OP_CONST) continue;
        value->slot = tg_vm_new_register(m, value->class_, 4);
        value->kept = true;
        if (!tg_vm_is_reduction(instruction->op)) continue;
        bool wide = instruction->op == TG_OP_SUM && instruction->dtype == TG_F32;
        value->accumulator = wide ? tg_vm_new_register(m, m->outer_class, 8) : value->slot;
        value->accumulator_value = tg_vm_is_arg(instruction->op) ? tg_vm_new_register(m, m->outer_class, 4) : 0;
    }
    m->out->kept_end = (int64_t)m->register_top;
}

/* OUTER instructions of one depth; sums of that depth are narrowed first. */
static void maker_outer_segment(tg_vm_maker *m, int32_t depth) {
    tg_vm_begin_segment(m);
    int32_t extent = tg_vm_class_extent(m->outer_class);
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        const tg_vm_value *value = &m->values[i];
        if (value->level != TG_LEVEL_OUTER || value->depth != depth || tg_vm_is_effect(instruction->op)) continue;
        if (!tg_vm_is_reduction(instruction->op)) tg_vm_list(m, i);
        else if (value->accumulator != value->slot) tg_vm_emit(m, TG_VM_finish_sum, value->slot, value->accumulator, 0, 0, extent, NULL);
    }
    tg_vm_make_segment(m, &m->out->outer[depth]);
}
static int32_t maker_merge_slot(tg_vm_maker *m, int32_t accumulator) {
    int64_t offset = m->slots.items[accumulator].offset;
    tg_vm_merged_slot use = {tg_vm_new_slot(m, TG_VM_DIRECT, 0, 0), (int32_t)(offset - m->out->kept_begin)};
    TG_VM_PUSH(m, merged, use);
    return use.slot;
}
static void maker_merge_segment(tg_vm_maker *m, int32_t depth) {
    tg_vm_begin_segment(m);
    int32_t extent = tg_vm_class_extent(m->outer_class);
    for (int32_t i = 0; i < m->kernel->body_count && !m->failed; ++i) {
        const tg_instruction *reduce = &m->kernel->body[i];
        const tg_vm_value *value = &m->values[i];
        if (!tg_vm_is_reduction(reduce->op) || value->depth != depth + 1) continue;
        int32_t a = maker_merge_slot(m, value->accumulator);
        int32_t b = tg_vm_is_arg(reduce->op) ? maker_merge_slot(m, value->accumulator_value) : 0;
        tg_dtype from = m->kernel->body[tg_vm_source(m, reduce, 0)].dtype;
        tg_vm_emit(m, tg_vm_reduction_fn(reduce->op, from, TG_VM_FORM_MERGE), value->accumulator, a, b, value->accumulator_value, extent,
                   NULL);
    }
    tg_vm_finish_segment(m, &m->out->merge[depth]);
}
static void maker_pass(tg_vm_maker *m, int32_t depth, bool *needed) {
    tg_vm_begin_segment(m);
    memset(needed, 0, sizeof(bool) * (size_t)m->kernel->body_count);
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (tg_vm_is_reduction(m->kernel->body[i].op) && m->values[i].depth == depth + 1) maker_need(m, needed, i);
    maker_list_needed(m, needed);
    tg_vm_make_segment(m, &m->out->pass[depth]);
}
static void maker_passes(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_kernel *kernel = m->kernel;
    bool *needed = TG_NEW(m->arena, bool, kernel->body_count + 1);
    out->outer = TG_NEW(m->arena, tg_vm_segment, out->passes + 1);
    out->pass = TG_NEW(m->arena, tg_vm_segment, out->passes);
    out->merge = TG_NEW(m->arena, tg_vm_segment, out->passes);
    if (needed == NULL || out->outer == NULL || out->pass == NULL || out->merge == NULL) {
        m->failed = true;
        return;
    }
    maker_keep_values(m);
    for (int32_t depth = 0; depth <= out->passes && !m->failed; ++depth) {
        maker_outer_segment(m, depth);
        if (depth == out->passes) break;
        maker_pass(m, depth, needed);
        if (out->split_parts > 0) maker_merge_segment(m, depth);
    }
    tg_vm_begin_segment(m);
    memset(needed, 0, sizeof(bool) * (size_t)kernel->body_count);
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].op == TG_K_STORE && m->values[i].level == TG_LEVEL_ELEMENT) maker_need(m, needed, i);
    for (int late = 0; late < 2; ++late)
        for (int32_t i = 0; i < kernel->body_count; ++i)
            if (needed[i] && (kernel->body[i].op == TG_K_STORE) == (late == 1)) tg_vm_list(m, i);
    tg_vm_make_segment(m, &out->body);
    tg_vm_begin_segment(m);
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].op == TG_K_STORE && m->values[i].level == TG_LEVEL_OUTER) tg_vm_list(m, i);
    tg_vm_make_segment(m, &out->last);
}

/* ---- contractions */

/* Do the m loops walk `at` as one, of stride *row? */
static bool maker_rows_are_even(const tg_kernel *kernel, const tg_affine *at, int64_t *row) {
    int64_t next = 0;
    for (int32_t d = kernel->n_begin - 1; d >= kernel->m_begin; --d) {
        if (kernel->extent[d] == 1) continue;
        if (next == 0) *row = at->stride[d];
        else if (at->stride[d] != next) return false;
        next = at->stride[d] * kernel->extent[d];
    }
    return true;
}

/* Is the body STORE(ACC) into rows of adjacent columns? */
static bool maker_direct_contraction(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_kernel *kernel = m->kernel;
    const tg_instruction *store = NULL;
    for (int32_t i = 0; i < kernel->body_count; ++i) {
        const tg_instruction *instruction = &kernel->body[i];
        if (instruction->op == TG_K_ACC) continue;
        if (instruction->op != TG_K_STORE || store != NULL || kernel->body[tg_vm_source(m, instruction, 0)].op != TG_K_ACC) return false;
        store = instruction;
    }
    const tg_vm_loops *loops = &out->loops;
    if (store == NULL || store->bound_count > 0 || store->dtype != TG_F32 || tg_vm_is_aliased(m, store->argument)) return false;
    if (loops->outside_count > loops->batch_outside) return false;
    tg_vm_stream stream;
    tg_vm_make_stream(loops, &store->at, &stream);
    if (stream.col != 1 && loops->cols > 1 && !loops->turned) return false;
    int64_t row = 0;
    if (!maker_rows_are_even(kernel, &store->at, &row)) return false;
    out->direct_argument = store->argument;
    out->direct_offset = stream.offset;
    out->direct_batch = store->at.stride;
    out->direct_row = loops->turned ? stream.col : row;
    return true;
}
/* The number of operations that is worth splitting, about 20 us: measured on two cores that share
 * no cache, products of 12 us got slower. Operations of a tiny product take longer. */
static const double maker_split_flops = 4e6, maker_tiny_price = 4;
static void maker_contraction(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    const double price = m->kernel->flops * (tg_contraction_is_tiny(out->contraction) ? maker_tiny_price : 1);
    out->parts = price >= maker_split_flops ? tg_contraction_parts(out->contraction) : 1;
    if (maker_direct_contraction(m)) return;
    int64_t row = -1; /* apart by the block's own stride */
    if (tg_contraction_is_tiny(out->contraction)) {
        row = 1;
        for (int32_t d = m->kernel->n_begin; d < m->kernel->outer_count; ++d) row *= m->kernel->extent[d];
    }
    out->acc_slot = tg_vm_new_slot(m, TG_VM_DIRECT, 0, row);
}

/* ---- the whole */

static const tg_vm_table *maker_table(tg_isa isa) {
    switch (isa) {
#ifdef TG_HAS_X86
    case TG_ISA_AVX512_: return &tg_vm_table_avx512;
    case TG_ISA_AVX2_: return &tg_vm_table_avx2;
#endif
#ifdef TG_HAS_NEON
    case TG_ISA_NEON_: return &tg_vm_table_neon;
#endif
#ifdef TG_HAS_SIMD128
    default: return &tg_vm_table_simd128;
#else
    default: return &tg_vm_table_scalar;
#endif
    }
}
static size_t maker_round(size_t bytes) { return (bytes + 63) & ~(size_t)63; }
static void maker_copy_tables(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    out->slot_count = (int32_t)m->slots.count;
    out->stream_count = (int32_t)m->streams.count;
    out->slots = TG_NEW(m->arena, tg_vm_slot, m->slots.count + 1);
    out->streams = TG_NEW(m->arena, tg_vm_stream, m->streams.count + 1);
    int32_t *slots = TG_NEW(m->arena, int32_t, m->merged.count + 1);
    int64_t *offsets = TG_NEW(m->arena, int64_t, m->merged.count + 1);
    if (out->slots == NULL || out->streams == NULL || slots == NULL || offsets == NULL) {
        m->failed = true;
        return;
    }
    if (m->slots.count > 0) memcpy(out->slots, m->slots.items, sizeof(tg_vm_slot) * (size_t)m->slots.count);
    if (m->streams.count > 0) memcpy(out->streams, m->streams.items, sizeof(tg_vm_stream) * (size_t)m->streams.count);
    for (int64_t k = 0; k < m->merged.count; ++k) slots[k] = m->merged.items[k].slot, offsets[k] = m->merged.items[k].offset;
    out->merge_slots = slots, out->merge_offsets = offsets;
    out->merge_slot_count = (int32_t)m->merged.count;
}
static void maker_count_scratch(tg_vm_maker *m) {
    tg_vm_kernel *out = m->out;
    out->frame_bytes = maker_round(sizeof(tg_vm_frame)) + maker_round((size_t)out->slot_count * sizeof(void *)) +
                       maker_round((size_t)out->slot_count * sizeof(int64_t)) +
                       maker_round((size_t)out->stream_count * sizeof(tg_vm_cursor)) +
                       maker_round((size_t)out->stream_count * (size_t)out->tile_rows * sizeof(int64_t));
    out->register_bytes = maker_round(m->register_most) + maker_round((size_t)out->tile_cols * sizeof(float));
    out->scratch_bytes = out->frame_bytes + out->register_bytes;
    if (out->contraction != NULL) out->scratch_bytes += maker_round(tg_contraction_scratch(out->contraction));
    if (out->split_parts > 0) {
        out->partials = tg_arena_alloc(m->arena, (size_t)(out->split_parts + 1) * (size_t)(out->kept_end - out->kept_begin));
        if (out->partials == NULL) m->failed = true;
    }
}
static void maker_attention(tg_vm_maker *m, tg_isa isa) {
    tg_vm_kernel *out = m->out;
    out->attention = tg_cpu_attention_make(m->arena, m->kernel, isa, &out->table->attention);
    m->failed = out->attention == NULL;
    if (m->failed) return;
    out->parts = m->kernel->flops >= maker_split_flops ? tg_cpu_attention_parts(out->attention) : 1;
    out->scratch_bytes = maker_round(tg_cpu_attention_scratch(out->attention));
}
static void maker_translate(tg_vm_maker *m, tg_isa isa) {
    tg_vm_kernel *out = m->out;
    tg_vm_affine_use *uses = tg_alloc(m->ctx, sizeof *uses * (size_t)(tg_vm_affine_count(m->kernel) + 1));
    if (uses == NULL) {
        m->failed = true;
        return;
    }
    if (m->kernel->kind == TG_KERNEL_CONTRACT) out->contraction = tg_contraction_make(m->arena, m->kernel, isa);
    m->failed = m->kernel->kind == TG_KERNEL_CONTRACT && out->contraction == NULL;
    tg_vm_shape_loops(m->kernel, out->contraction != NULL && tg_contraction_is_tiny(out->contraction), uses, &out->mode, &out->loops);
    tg_release(m->ctx, uses, sizeof *uses * (size_t)(tg_vm_affine_count(m->kernel) + 1));
    if (m->failed) return;
    tg_vm_analyse(m);
    tg_vm_choose_tile(m);
    tg_vm_choose_parts(m);
    if (out->contraction != NULL) maker_contraction(m);
    maker_prologue(m);
    maker_setup(m);
    if (out->passes > 0) maker_passes(m);
    else if (out->contraction == NULL || out->acc_slot >= 0) maker_straight(m);
    if (!m->failed) maker_copy_tables(m);
    if (!m->failed) maker_count_scratch(m);
}
tg_vm_kernel *tg_vm_make(tg_arena *arena, const tg_kernel *kernel, const bool *aliased, tg_isa isa) {
    tg_vm_maker m = {.arena = arena, .ctx = arena->ctx, .kernel = kernel, .aliased = aliased};
    m.out = TG_NEW(arena, tg_vm_kernel, 1);
    m.values = TG_NEW(arena, tg_vm_value, kernel->body_count + 1);
    m.list = TG_NEW(arena, int32_t, kernel->body_count + 1);
    char *shared = tg_arena_alloc(arena, (size_t)kernel->body_count * 12 + 64);
    if (m.out == NULL || m.values == NULL || m.list == NULL || shared == NULL) return NULL;
    m.out->source = kernel;
    m.out->table = maker_table(isa);
    m.out->shared = shared;
    m.out->acc_slot = -1;
    if (kernel->kind == TG_KERNEL_ATTENTION) maker_attention(&m, isa);
    else maker_translate(&m, isa);
    MAKER_DROP(&m, codes);
    MAKER_DROP(&m, slots);
    MAKER_DROP(&m, streams);
    MAKER_DROP(&m, directs);
    MAKER_DROP(&m, segment_streams);
    MAKER_DROP(&m, merged);
    for (int c = 0; c < TG_VM_CLASSES; ++c) MAKER_DROP(&m, free_slots[c]);
    if (!m.failed) return m.out;
    if (arena->ctx->status == TG_OK) TG_INTERNAL(arena->ctx, "a kernel that the tile machine cannot translate");
    return NULL;
}
size_t tg_vm_scratch(const tg_vm_kernel *kernel) { return kernel->scratch_bytes; }

#undef MAKER_DROP
