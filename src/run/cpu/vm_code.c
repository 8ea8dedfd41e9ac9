/* vm_code: turns a list of a kernel's instructions into tile code. Owns slots and registers, which
 * loads and stores work on memory in place, superinstructions, variants. Must not know why the
 * instructions were listed. */
#include "ir/dtype.h"
#include "run/cpu/vm_make.h"

#include <string.h>

/* ---- streams, slots, code */

static bool code_same_stream(const tg_vm_stream *a, const tg_vm_stream *b, const tg_vm_loops *loops) {
    if (a->offset != b->offset || a->col != b->col) return false;
    for (int32_t d = 0; d < loops->row_count; ++d)
        if (a->row_stride[d] != b->row_stride[d]) return false;
    for (int32_t d = 0; d < loops->outside_count; ++d)
        if (a->outside_stride[d] != b->outside_stride[d]) return false;
    return true;
}
static int32_t code_stream(tg_vm_maker *m, const tg_affine *at) {
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, at, &stream);
    for (int64_t s = 0; s < m->streams.count; ++s)
        if (code_same_stream(&m->streams.items[s], &stream, &m->out->loops)) return (int32_t)s;
    TG_VM_PUSH(m, streams, stream);
    return m->failed ? 0 : (int32_t)m->streams.count - 1;
}
static void code_use_stream(tg_vm_maker *m, int32_t stream) {
    for (int64_t k = 0; k < m->segment_streams.count; ++k)
        if (m->segment_streams.items[k] == stream) return;
    TG_VM_PUSH(m, segment_streams, stream);
}
int32_t tg_vm_new_slot(tg_vm_maker *m, tg_vm_storage storage, int64_t offset, int64_t row) {
    tg_vm_slot slot = {storage, offset, row};
    TG_VM_PUSH(m, slots, slot);
    return m->failed ? 0 : (int32_t)m->slots.count - 1;
}
static int64_t code_class_lanes(const tg_vm_maker *m, int32_t class_) {
    int64_t lanes = 1;
    if (class_ & TG_VM_CLASS_ROW) lanes *= m->out->tile_rows;
    if (class_ & TG_VM_CLASS_COL) lanes *= m->out->tile_cols;
    return lanes;
}
static int64_t code_class_row(const tg_vm_maker *m, int32_t class_) {
    return class_ == TG_VM_CLASS_FULL ? m->out->tile_cols : class_ == TG_VM_CLASS_ROW ? 1 : 0;
}
int32_t tg_vm_new_register(tg_vm_maker *m, int32_t class_, size_t lane_bytes) {
    size_t bytes = ((size_t)code_class_lanes(m, class_) * lane_bytes + 63) & ~(size_t)63;
    int32_t slot = tg_vm_new_slot(m, TG_VM_REGISTER, (int64_t)m->register_top, code_class_row(m, class_));
    /* staggered, so that equal offsets in two registers are not equal modulo 4 KiB */
    m->register_top += bytes + 64;
    if (m->register_top > m->register_most) m->register_most = m->register_top;
    return slot;
}
static int32_t code_register(tg_vm_maker *m, int32_t class_) {
    if (m->prologue) {
        int32_t slot = tg_vm_new_slot(m, TG_VM_SHARED, (int64_t)m->shared_top, 0);
        m->shared_top += 4;
        return slot;
    }
    if (m->free_slots[class_].count > 0) return m->free_slots[class_].items[--m->free_slots[class_].count];
    return tg_vm_new_register(m, class_, 4);
}
static void code_free_register(tg_vm_maker *m, int32_t class_, int32_t slot) {
    if (slot < 0 || m->prologue || m->failed || m->slots.items[slot].storage != TG_VM_REGISTER) return;
    TG_VM_PUSH(m, free_slots[class_], slot);
}
static int32_t code_constant(tg_vm_maker *m, tg_dtype dtype, double value) {
    int32_t bits = 0;
    float number = (float)value;
    if (dtype == TG_F32) memcpy(&bits, &number, 4);
    else if (dtype == TG_BOOL) bits = -(int32_t)(value > 0 || value < 0 || value != value);
    else bits = (int32_t)value;
    int32_t slot = tg_vm_new_slot(m, TG_VM_SHARED, (int64_t)m->shared_top, 0);
    memcpy(m->out->shared + m->shared_top, &bits, 4);
    m->shared_top += 4;
    return slot;
}
static int32_t code_direct(tg_vm_maker *m, int32_t argument, int32_t stream, int32_t class_) {
    for (int64_t k = 0; k < m->directs.count; ++k) {
        const tg_vm_direct *direct = &m->directs.items[k];
        if (direct->argument == argument && direct->stream == stream) return direct->slot;
    }
    if (m->failed) return 0;
    int64_t row = class_ == TG_VM_CLASS_FULL ? m->streams.items[stream].row : class_ == TG_VM_CLASS_ROW ? 1 : 0;
    tg_vm_direct direct = {tg_vm_new_slot(m, TG_VM_DIRECT, 0, row), argument, stream};
    TG_VM_PUSH(m, directs, direct);
    code_use_stream(m, stream);
    return direct.slot;
}
/* Which operands the variant takes not to vary along a row. */
static int32_t code_splat(int32_t fn) {
    if (fn >= TG_VM_add_f && fn <= TG_VM_or_vs) return (fn - TG_VM_add_f) % 3;
    return fn >= TG_VM_select && fn <= TG_VM_less_equal_select_7 ? (fn - TG_VM_select) % 8 : 0;
}
void tg_vm_emit(tg_vm_maker *m, int32_t fn, int32_t out, int32_t a, int32_t b, int32_t c, int32_t extent, const tg_vm_access *access) {
    tg_vm_code code = {m->out->table->fn[fn], out, a, b, c, extent, code_splat(fn), access};
    TG_VM_PUSH(m, codes, code);
}

/* Slot of a value that an instruction of this segment reads. */
static int32_t code_read(tg_vm_maker *m, int32_t v) {
    tg_vm_value *value = &m->values[v];
    if (value->slot < 0 && m->kernel->body[v].op == TG_OP_CONST) {
        value->slot = code_constant(m, m->kernel->body[v].dtype, m->kernel->body[v].value);
        value->kept = true;
    }
    if (value->slot < 0) m->failed = true;
    return value->slot < 0 ? 0 : value->slot;
}

/* ---- extents and variants of elementwise code */

/* How memory is walked for a value of a class. */
static int32_t code_walk_extent(int32_t class_) { return class_ == TG_VM_CLASS_ROW ? TG_VM_DOWN : tg_vm_class_extent(class_); }

/* Does an operand of class `operand` stay the same along the lanes of a result of class
 * `result`? */
static bool code_is_splat(int32_t operand, int32_t result) {
    int32_t lane = result & TG_VM_CLASS_COL ? TG_VM_CLASS_COL : result & TG_VM_CLASS_ROW;
    return lane != 0 && (operand & lane) == 0;
}

/* FULL code runs as one long row when every operand's rows are adjacent. */
static int32_t code_extent(const tg_vm_maker *m, int32_t class_, const int32_t *operands, const int32_t *slots, int count, int32_t out) {
    if (class_ != TG_VM_CLASS_FULL || m->failed) return tg_vm_class_extent(class_);
    if (m->slots.items[out].row != m->out->tile_cols) return TG_VM_FULL;
    for (int k = 0; k < count; ++k) {
        if (m->values[operands[k]].class_ != TG_VM_CLASS_ONE && m->slots.items[slots[k]].row != m->out->tile_cols) return TG_VM_FULL;
    }
    return TG_VM_FLAT;
}

/* ---- the segment being made: uses, fusion of pairs, stores done by their producer */

static void code_count_uses(tg_vm_maker *m) {
    const tg_instruction *body = m->kernel->body;
    for (int32_t i = 0; i < m->kernel->body_count; ++i) m->values[i].last = m->values[i].spread = -1;
    for (int32_t p = 0; p < m->list_count; ++p) {
        tg_vm_value *value = &m->values[m->list[p]];
        value->listed = true, value->fused = false, value->uses = 0, value->last = -1, value->forward = -1;
        if (!value->kept) value->slot = -1;
    }
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *instruction = &body[m->list[p]];
        for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) ++m->values[tg_vm_source(m, instruction, k)].uses;
    }
}

/* May v, an operand of `user`, be computed inside it? */
static bool code_can_fuse(const tg_vm_maker *m, int32_t v, int32_t user, int32_t op, int32_t other_op) {
    const tg_vm_value *value = &m->values[v];
    int32_t v_op = m->kernel->body[v].op;
    if (m->prologue) return false; /* uses elsewhere are not counted */
    return value->listed && !value->kept && !value->fused && value->uses == 1 && (v_op == op || v_op == other_op) &&
           value->class_ == m->values[user].class_ && v != user;
}
static bool code_all_f32(const tg_vm_maker *m, const tg_instruction *instruction) {
    for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k)
        if (m->kernel->body[tg_vm_source(m, instruction, k)].dtype != TG_F32) return false;
    return true;
}

static bool code_is_constant(const tg_vm_maker *m, int32_t v, double value) {
    const tg_instruction *instruction = &m->kernel->body[v];
    return instruction->op == TG_OP_CONST && instruction->value >= value && instruction->value <= value;
}
/* The operand of instruction i that becomes part of it, or -1: a b + c, a b - c, c - a b, (a < b) ?
 * c : 0. */
static int32_t code_fusable(const tg_vm_maker *m, int32_t i) {
    const tg_instruction *instruction = &m->kernel->body[i];
    if ((instruction->op == TG_OP_ADD || instruction->op == TG_OP_SUB) && instruction->dtype == TG_F32)
        for (int k = 0; k < 2; ++k)
            if (code_can_fuse(m, tg_vm_source(m, instruction, k), i, TG_OP_MUL, TG_OP_MUL)) return tg_vm_source(m, instruction, k);
    if (instruction->op == TG_OP_SELECT && code_is_constant(m, tg_vm_source(m, instruction, 2), 0)) {
        double zero = m->kernel->body[tg_vm_source(m, instruction, 2)].value;
        int32_t condition = tg_vm_source(m, instruction, 0);
        if (!__builtin_signbit(zero) && code_can_fuse(m, condition, i, TG_OP_LESS, TG_OP_LESS_EQUAL) &&
            code_all_f32(m, &m->kernel->body[condition]))
            return condition;
    }
    return -1;
}
static void code_fuse_pairs(tg_vm_maker *m) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        int32_t v = code_fusable(m, m->list[p]);
        if (v >= 0) m->values[v].fused = true;
    }
}
static void code_touch(tg_vm_maker *m, int32_t v, int32_t position) {
    m->values[v].last = position;
    if (!m->values[v].fused) return;
    const tg_instruction *instruction = &m->kernel->body[v];
    for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) m->values[tg_vm_source(m, instruction, k)].last = position;
}
static void code_find_last_uses(tg_vm_maker *m) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        if (m->values[m->list[p]].fused) continue;
        const tg_instruction *instruction = &m->kernel->body[m->list[p]];
        for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) code_touch(m, tg_vm_source(m, instruction, k), p);
    }
}
static bool code_feeds_store(const tg_vm_maker *m, int32_t v) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->kernel->body[i].op == TG_K_STORE && tg_vm_source(m, &m->kernel->body[i], 0) == v) return true;
    return false;
}

/* Do elements of its argument have the same form in memory as in a lane? */
static bool code_in_lanes(const tg_vm_maker *m, const tg_instruction *access) {
    return tg_dtype_is_word(m->kernel->arguments[access->argument].dtype);
}

/* Can instruction i, a LOAD, be read in place? */
static bool code_is_direct(const tg_vm_maker *m, int32_t i) {
    const tg_instruction *load = &m->kernel->body[i];
    if (load->op != TG_K_LOAD || load->bound_count > 0 || !code_in_lanes(m, load) || m->prologue) return false;
    if (tg_vm_is_aliased(m, load->argument) &&
        ((m->kernel->kind == TG_KERNEL_REDUCE && load->level == TG_LEVEL_OUTER) || code_feeds_store(m, i)))
        return false;
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, &load->at, &stream);
    switch (m->values[i].class_) {
    case TG_VM_CLASS_FULL: return stream.col == 1 && stream.affine;
    case TG_VM_CLASS_COL: return stream.col == 1;
    case TG_VM_CLASS_ROW: return stream.row == 1 && stream.affine;
    default: return true;
    }
}

/* The class a store covers. */
static int32_t code_store_class(const tg_vm_maker *m, const tg_instruction *store) {
    if (m->prologue) return TG_VM_CLASS_ONE;
    return m->kernel->kind == TG_KERNEL_REDUCE && store->level < TG_LEVEL_ELEMENT ? m->outer_class : TG_VM_CLASS_FULL;
}

/* Every read of memory that is also written happens at or before list position `position`. */
static bool code_reads_done(const tg_vm_maker *m, int32_t position) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *load = &m->kernel->body[m->list[p]];
        if (!tg_vm_is_load(load->op) || !tg_vm_is_aliased(m, load->argument)) continue;
        if ((code_is_direct(m, m->list[p]) ? m->values[m->list[p]].last : p) > position) return false;
    }
    return true;
}

/* May the producer (at list position p) of a STORE's value write to memory itself? */
static bool code_can_forward(const tg_vm_maker *m, int32_t i, int32_t p, const tg_instruction *store) {
    const tg_vm_value *value = &m->values[i];
    int32_t op = m->kernel->body[i].op;
    if (!value->listed || value->kept || value->fused || value->forward >= 0 || op == TG_OP_CONST || op == TG_K_ACC) return false;
    if (!code_in_lanes(m, store) || store->bound_count > 0 || code_is_direct(m, i)) return false;
    int32_t covered = code_store_class(m, store) & m->present;
    if ((value->class_ & m->present) != covered) return false;
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, &store->at, &stream);
    if (!stream.affine || (value->class_ & TG_VM_CLASS_COL ? stream.col : stream.row) != 1) return false;
    if (value->class_ == TG_VM_CLASS_FULL && stream.row != m->out->tile_cols && m->out->tile_rows > 1 && value->uses > 1) return false;
    return !tg_vm_is_aliased(m, store->argument) || code_reads_done(m, p);
}
static int32_t code_list_position(const tg_vm_maker *m, int32_t i) {
    for (int32_t p = 0; p < m->list_count; ++p)
        if (m->list[p] == i) return p;
    return m->list_count;
}
static void code_forward_stores(tg_vm_maker *m) {
    if (m->prologue) return;
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *store = &m->kernel->body[m->list[p]];
        if (store->op != TG_K_STORE) continue;
        int32_t v = tg_vm_source(m, store, 0);
        if (code_can_forward(m, v, code_list_position(m, v), store)) m->values[v].forward = m->list[p];
    }
}

/* ---- one instruction */

static int32_t code_output(tg_vm_maker *m, int32_t i) {
    tg_vm_value *value = &m->values[i];
    if (value->kept && value->slot >= 0) return value->slot;
    if (value->forward >= 0) {
        const tg_instruction *store = &m->kernel->body[value->forward];
        value->slot = code_direct(m, store->argument, code_stream(m, &store->at), value->class_);
    } else {
        value->slot = code_register(m, value->class_);
    }
    if (m->prologue) value->kept = true;
    return value->slot;
}
static void code_release_value(tg_vm_maker *m, int32_t v, int32_t position) {
    tg_vm_value *value = &m->values[v];
    if (value->last == position && value->spread >= 0) {
        code_free_register(m, TG_VM_CLASS_FULL, value->spread);
        value->spread = -1;
    }
    if (!value->listed || value->kept || value->last != position || value->slot < 0) return;
    code_free_register(m, value->class_, value->slot);
    value->last = -2; /* once */
}
static void code_release_operands(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    for (int k = 0; k < tg_vm_operand_count(instruction->op); ++k) {
        int32_t v = tg_vm_source(m, instruction, k);
        if (m->values[v].fused && m->values[v].listed) code_release_operands(m, v, position);
        else code_release_value(m, v, position);
    }
}
static const tg_vm_access *code_access(tg_vm_maker *m, const tg_instruction *instruction) {
    tg_vm_access *access = TG_NEW(m->arena, tg_vm_access, 1);
    tg_vm_bound_code *bounds = NULL;
    if (instruction->bound_count > 0) bounds = TG_NEW(m->arena, tg_vm_bound_code, instruction->bound_count);
    if (access == NULL || (instruction->bound_count > 0 && bounds == NULL)) {
        m->failed = true;
        return NULL;
    }
    for (int32_t k = 0; k < instruction->bound_count; ++k) {
        bounds[k] = (tg_vm_bound_code){code_stream(m, &instruction->bounds[k].at), instruction->bounds[k].lo, instruction->bounds[k].hi};
        code_use_stream(m, bounds[k].stream);
    }
    *access = (tg_vm_access){.argument = instruction->argument,
                             .bound_count = instruction->bound_count,
                             .bounds = bounds,
                             .row_stride = instruction->row_stride,
                             .rows = instruction->rows};
    if (instruction->op != TG_K_INSIDE) {
        access->stream = code_stream(m, &instruction->at);
        code_use_stream(m, access->stream);
    }
    return access;
}
static void code_load(tg_vm_maker *m, int32_t i) {
    const tg_instruction *load = &m->kernel->body[i];
    tg_vm_value *value = &m->values[i];
    if (code_is_direct(m, i)) {
        int32_t slot = code_direct(m, load->argument, code_stream(m, &load->at), value->class_);
        if (!value->kept) {
            value->slot = slot;
            return;
        }
        tg_vm_emit(m, TG_VM_copy, value->slot, slot, 0, 0, tg_vm_class_extent(value->class_), NULL);
        return;
    }
    const tg_vm_access *access = code_access(m, load);
    int32_t fn = load->op == TG_K_INDEX    ? (load->dtype == TG_F32 ? TG_VM_index_f : TG_VM_index_i)
                 : load->op == TG_K_INSIDE ? TG_VM_inside
                 : code_in_lanes(m, load)  ? TG_VM_load
                                           : TG_VM_load_bool;
    tg_vm_emit(m, fn, code_output(m, i), 0, 0, 0, code_walk_extent(value->class_), access);
}
static void code_gather(tg_vm_maker *m, int32_t i) {
    const tg_instruction *gather = &m->kernel->body[i];
    int32_t index = tg_vm_source(m, gather, 0), class_ = m->values[i].class_;
    int32_t slot = code_read(m, index), varies = !code_is_splat(m->values[index].class_, class_) && class_ != TG_VM_CLASS_ONE;
    const tg_vm_access *access = code_access(m, gather);
    tg_vm_emit(m, code_in_lanes(m, gather) ? TG_VM_gather : TG_VM_gather_bool, code_output(m, i), slot, 0, varies, code_walk_extent(class_),
               access);
}
static void code_store(tg_vm_maker *m, int32_t i) {
    const tg_instruction *store = &m->kernel->body[i];
    int32_t v = tg_vm_source(m, store, 0), class_ = code_store_class(m, store);
    if (m->values[v].listed && m->values[v].forward == i) return;
    int32_t slot = code_read(m, v), extent = code_walk_extent(class_);
    bool splat = class_ == TG_VM_CLASS_ROW ? true : !(m->values[v].class_ & TG_VM_CLASS_COL) && class_ != TG_VM_CLASS_ONE;
    int32_t step = m->values[v].class_ & TG_VM_CLASS_ROW ? 1 : 0; /* of a value per row */
    static const int32_t fns[2][2] = {{TG_VM_store_bool, TG_VM_store_bool_spread}, {TG_VM_store, TG_VM_store_spread}};
    tg_vm_emit(m, fns[code_in_lanes(m, store)][splat], 0, slot, 0, step, extent, code_access(m, store));
}
static void code_scatter(tg_vm_maker *m, int32_t i) {
    const tg_instruction *scatter = &m->kernel->body[i];
    int32_t index = tg_vm_source(m, scatter, 0), value = tg_vm_source(m, scatter, 1);
    int32_t varies = (m->values[index].class_ & TG_VM_CLASS_COL ? 1 : 0) | (m->values[value].class_ & TG_VM_CLASS_COL ? 2 : 0);
    tg_vm_emit(m, m->kernel->body[value].dtype == TG_I32 ? TG_VM_scatter_i : TG_VM_scatter_f, 0, code_read(m, index), code_read(m, value),
               varies, TG_VM_FULL, code_access(m, scatter));
}
/* A full tile that holds a value of each row in all columns. */
static int32_t code_spread(tg_vm_maker *m, int32_t v) {
    tg_vm_value *value = &m->values[v];
    if (value->spread < 0) {
        value->spread = code_register(m, TG_VM_CLASS_FULL);
        tg_vm_emit(m, TG_VM_spread, value->spread, code_read(m, v), 0, 0, TG_VM_FULL, NULL);
    }
    return value->spread;
}

/* Elementwise code over `count` operand values; fn is the variant in which all operands vary, or
 * one that is told. */
static void code_elementwise(tg_vm_maker *m, int32_t i, int32_t position, int32_t fn, const int32_t *operands, int count) {
    int32_t class_ = m->values[i].class_, slots[3] = {0, 0, 0}, mask = 0;
    const bool spreads = class_ == TG_VM_CLASS_FULL && m->out->tile_cols < TG_VM_SHORT_ROW && m->out->mode != TG_VM_EPILOGUE;
    for (int k = 0; k < count; ++k) {
        slots[k] = code_read(m, operands[k]);
        if (spreads && m->values[operands[k]].steady_spread >= 0) slots[k] = m->values[operands[k]].steady_spread;
        else if (spreads && m->values[operands[k]].class_ == TG_VM_CLASS_ROW) slots[k] = code_spread(m, operands[k]);
        else if (code_is_splat(m->values[operands[k]].class_, class_)) mask |= 1 << k;
    }
    code_release_operands(m, i, position);
    int32_t out = code_output(m, i);
    int32_t extent = code_extent(m, class_, operands, slots, count, out);
    tg_vm_emit(m, fn == TG_VM_random ? fn : fn + mask, out, slots[0], slots[1], slots[2], extent, NULL);
    if (fn == TG_VM_random && !m->failed) m->codes.items[m->codes.count - 1].splat = mask;
}
static void code_random(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *random = &m->kernel->body[i];
    int32_t operands[3] = {tg_vm_source(m, random, 0), tg_vm_source(m, random, 1), tg_vm_source(m, random, 2)};
    tg_vm_access *access = TG_NEW(m->arena, tg_vm_access, 1);
    if (access == NULL) {
        m->failed = true;
        return;
    }
    *access = (tg_vm_access){.row_stride = random->stream, .rows = (int64_t)random->value};
    code_elementwise(m, i, position, TG_VM_random, operands, 3);
    if (!m->failed) m->codes.items[m->codes.count - 1].access = access;
}
static void code_cast(tg_vm_maker *m, int32_t i, int32_t position) {
    static const int32_t fns[TG_DTYPE_COUNT][TG_DTYPE_COUNT] = {
        [TG_F32] = {[TG_F32] = TG_VM_copy, [TG_I32] = TG_VM_f_to_i, [TG_BOOL] = TG_VM_f_to_b},
        [TG_I32] = {[TG_F32] = TG_VM_i_to_f, [TG_I32] = TG_VM_copy, [TG_BOOL] = TG_VM_i_to_b},
        [TG_BOOL] = {[TG_F32] = TG_VM_b_to_f, [TG_I32] = TG_VM_b_to_i, [TG_BOOL] = TG_VM_copy},
    };
    const tg_instruction *cast = &m->kernel->body[i];
    const int32_t v = tg_vm_source(m, cast, 0);
    code_elementwise(m, i, position, fns[m->kernel->body[v].dtype][cast->dtype], &v, 1);
}

/* x^c for the constants that are cheaper otherwise; -1: none. */
static int32_t code_constant_power(double c) {
    if (c >= 1 && c <= 1) return TG_VM_copy;
    if (c >= 2 && c <= 2) return TG_VM_square;
    if (c >= 3 && c <= 3) return TG_VM_cube;
    if (c >= -1 && c <= -1) return TG_VM_reciprocal;
    return -1;
}

/* Is operand k computed inside the instruction? */
static bool code_is_fused(const tg_vm_maker *m, const tg_instruction *instruction, int k) {
    const tg_vm_value *value = &m->values[tg_vm_source(m, instruction, k)];
    return value->listed && value->fused;
}
static void code_multiply_add(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *sum = &m->kernel->body[i];
    int32_t left = tg_vm_source(m, sum, 0), right = tg_vm_source(m, sum, 1);
    bool product_left = code_is_fused(m, sum, 0);
    const tg_instruction *product = &m->kernel->body[product_left ? left : right];
    int32_t operands[3] = {tg_vm_source(m, product, 0), tg_vm_source(m, product, 1), product_left ? right : left};
    int32_t fn = sum->op == TG_OP_ADD ? TG_VM_fma : product_left ? TG_VM_fms : TG_VM_fnma;
    code_elementwise(m, i, position, fn, operands, 3);
}
static void code_select(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *select = &m->kernel->body[i];
    int32_t operands[3] = {tg_vm_source(m, select, 0), tg_vm_source(m, select, 1), tg_vm_source(m, select, 2)};
    int32_t fn = TG_VM_select;
    if (code_is_fused(m, select, 0)) {
        const tg_instruction *compare = &m->kernel->body[operands[0]];
        fn = compare->op == TG_OP_LESS ? TG_VM_less_select : TG_VM_less_equal_select;
        operands[2] = operands[1];
        operands[0] = tg_vm_source(m, compare, 0), operands[1] = tg_vm_source(m, compare, 1);
    }
    code_elementwise(m, i, position, fn, operands, 3);
}

/* The instruction of an elementwise op for operands of f32, i32 and bool, as ops.def has it (-1:
 * none), or the function that makes its code. */
typedef struct code_op {
    int32_t f32, i32, boolean;
    void (*own)(tg_vm_maker *m, int32_t i, int32_t position);
} code_op;

#define CODE_NONE \
  { -1, -1, -1, NULL }
#define CODE_F32(f) \
  { TG_VM_##f, -1, -1, NULL }
#define CODE_MATH(f) \
  { TG_VM_##f, -1, -1, NULL }
#define CODE_NUMBER(f, i) \
  { TG_VM_##f, TG_VM_##i, -1, NULL }
#define CODE_BOOL(b) \
  { -1, -1, TG_VM_##b, NULL }
#define CODE_ANY(f, i, b) \
  { TG_VM_##f, TG_VM_##i, TG_VM_##b, NULL }
#define CODE_OWN(name) \
  { -1, -1, -1, code_##name }

static const code_op code_ops[TG_OP_COUNT] = {
    CODE_NONE, /* poison */
#define TG_OP(NAME, text, arity, class_, dtypes, shape, cost, price, description, c, wgsl, vm) CODE_##vm,
#include "ir/ops.def"
#undef TG_OP
};

#undef CODE_NONE
#undef CODE_F32
#undef CODE_MATH
#undef CODE_NUMBER
#undef CODE_BOOL
#undef CODE_ANY
#undef CODE_OWN

static void code_of_table(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    const code_op *op = &code_ops[instruction->op];
    if (op->own != NULL) {
        op->own(m, i, position);
        return;
    }
    const int count = tg_vm_operand_count(instruction->op);
    const int32_t operands[2] = {tg_vm_source(m, instruction, 0), count > 1 ? tg_vm_source(m, instruction, 1) : 0};
    const tg_dtype from = m->kernel->body[operands[0]].dtype;
    const tg_instruction *right = &m->kernel->body[operands[1]];
    const int32_t fn = from == TG_F32 ? op->f32 : from == TG_I32 ? op->i32 : op->boolean;
    const int32_t power = instruction->op == TG_OP_POW && right->op == TG_OP_CONST ? code_constant_power(right->value) : -1;
    if (power >= 0) code_elementwise(m, i, position, power, operands, 1);
    else if (fn >= 0) code_elementwise(m, i, position, fn, operands, count);
    else m->failed = true;
}

int32_t tg_vm_reduction_fn(int32_t op, tg_dtype from, int32_t form) {
    bool f = from == TG_F32;
    switch (op) {
    case TG_OP_SUM: return (f ? TG_VM_sum_f_row : TG_VM_sum_i_row) + form;
    case TG_OP_REDUCE_MAX: return (f ? TG_VM_max_f_row : TG_VM_max_i_row) + form;
    case TG_OP_REDUCE_MIN: return (f ? TG_VM_min_f_row : TG_VM_min_i_row) + form;
    case TG_OP_ARGMAX: return (f ? TG_VM_argmax_f_row : TG_VM_argmax_i_row) + form;
    default: return (f ? TG_VM_argmin_f_row : TG_VM_argmin_i_row) + form;
    }
}
static void code_reduction(tg_vm_maker *m, int32_t i) {
    const tg_instruction *reduce = &m->kernel->body[i];
    tg_vm_value *value = &m->values[i];
    int32_t v = tg_vm_source(m, reduce, 0), source = code_read(m, v), spread = -1;
    tg_dtype from = m->kernel->body[v].dtype;
    if ((m->values[v].class_ & m->present) != m->present) {
        spread = code_register(m, TG_VM_CLASS_FULL);
        tg_vm_emit(m, TG_VM_spread, spread, source, 0, m->values[v].class_ & TG_VM_CLASS_COL ? 1 : 0, TG_VM_FULL, NULL);
        source = spread;
    }
    int32_t form = m->out->mode == TG_VM_ROWS ? TG_VM_FORM_ROW : TG_VM_FORM_COL;
    int32_t fn = tg_vm_reduction_fn(reduce->op, from, form), extent = tg_vm_class_extent(m->outer_class);
    int32_t best = tg_vm_is_arg(reduce->op) ? code_register(m, m->outer_class) : 0;
    if (m->out->passes == 0) {
        tg_vm_emit(m, fn, code_output(m, i), source, 0, best, extent, NULL);
    } else {
        int32_t part = code_register(m, m->outer_class);
        tg_vm_emit(m, fn, part, source, 0, best, extent, NULL);
        tg_vm_emit(m, tg_vm_reduction_fn(reduce->op, from, TG_VM_FORM_ACCUMULATE), value->accumulator, part, best, value->accumulator_value,
                   extent, NULL);
        code_free_register(m, m->outer_class, part);
    }
    if (tg_vm_is_arg(reduce->op)) code_free_register(m, m->outer_class, best);
    code_free_register(m, TG_VM_CLASS_FULL, spread);
}
static void code_instruction(tg_vm_maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    tg_vm_value *value = &m->values[i];
    if (value->fused || value->source != i || instruction->op == TG_OP_CONST) return;
    int32_t op = instruction->op;
    if (op == TG_K_LOAD || op == TG_K_INDEX || op == TG_K_INSIDE) code_load(m, i);
    else if (op == TG_K_GATHER) code_gather(m, i);
    else if (op == TG_K_STORE) code_store(m, i);
    else if (op == TG_K_SCATTER) code_scatter(m, i);
    else if (op == TG_K_ACC) value->slot = m->out->acc_slot;
    else if (tg_vm_is_reduction(op)) code_reduction(m, i);
    else if (tg_vm_operand_count(op) == 2 && (code_is_fused(m, instruction, 0) || code_is_fused(m, instruction, 1)))
        code_multiply_add(m, i, position);
    else code_of_table(m, i, position);
    code_release_operands(m, i, position);
    if (value->uses == 0 && value->forward < 0 && !tg_vm_is_effect(op) && value->slot >= 0 && !value->kept)
        code_free_register(m, value->class_, value->slot);
}

/* ---- segments */

void tg_vm_finish_segment(tg_vm_maker *m, tg_vm_segment *segment) {
    if (m->failed) return;
    segment->code_count = (int32_t)m->codes.count;
    segment->stream_count = (int32_t)m->segment_streams.count;
    segment->direct_count = (int32_t)m->directs.count;
    for (int64_t k = 0; k < m->segment_streams.count; ++k)
        if (!m->streams.items[m->segment_streams.items[k]].affine) segment->tables = true;
    if (m->codes.count > 0) segment->code = tg_arena_copy(m->arena, m->codes.items, sizeof(tg_vm_code) * (size_t)m->codes.count);
    if (m->segment_streams.count > 0)
        segment->streams = tg_arena_copy(m->arena, m->segment_streams.items, sizeof(int32_t) * (size_t)m->segment_streams.count);
    if (m->directs.count > 0) segment->directs = tg_arena_copy(m->arena, m->directs.items, sizeof(tg_vm_direct) * (size_t)m->directs.count);
    if ((m->codes.count > 0 && segment->code == NULL) || (m->segment_streams.count > 0 && segment->streams == NULL) ||
        (m->directs.count > 0 && segment->directs == NULL))
        m->failed = true;
}
void tg_vm_begin_segment(tg_vm_maker *m) {
    m->codes.count = m->directs.count = m->segment_streams.count = 0;
    for (int c = 0; c < TG_VM_CLASSES; ++c) m->free_slots[c].count = 0;
    m->register_top = (size_t)m->out->kept_end;
}

/* Makes the code of the listed instructions, after code that may already be there. */
void tg_vm_make_segment(tg_vm_maker *m, tg_vm_segment *segment) {
    code_count_uses(m);
    code_fuse_pairs(m);
    code_find_last_uses(m);
    code_forward_stores(m);
    for (int32_t p = 0; p < m->list_count && !m->failed; ++p) {
        code_instruction(m, m->list[p], p);
        const tg_vm_value *value = &m->values[m->list[p]];
        if (segment == &m->out->setup && value->steady_spread >= 0)
            tg_vm_emit(m, TG_VM_spread, value->steady_spread, value->slot, 0, 1, TG_VM_FULL, NULL);
    }
    tg_vm_finish_segment(m, segment);
    for (int32_t p = 0; p < m->list_count; ++p) m->values[m->list[p]].listed = false;
    m->list_count = 0;
}
