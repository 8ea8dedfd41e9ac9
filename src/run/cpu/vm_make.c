/* vm_make: translates a kernel's body into tile code, once, at load. Decides tile sizes, which loads and stores work on
 * memory in place, register assignment, passes of reductions, the split of work into parts, superinstructions. Everything
 * depends on the kernel alone, so results never depend on the number of threads. Must not know how tiles are driven. */
#include "run/cpu/vm.h"

#include <string.h>

/* What a value varies with. */
enum { MAKER_ONE = 0, MAKER_ROW = 1, MAKER_COL = 2, MAKER_FULL = 3, MAKER_CLASSES = 4 };

/* Lanes of a full tile: registers of 2 KiB, so that a dozen fit the first-level cache; long bodies get half. */
/* Rows shorter than MAKER_SHORT_ROW run as one long row; a value per row is spread over a tile for that. */
enum { MAKER_SHORT_ROW = 32, MAKER_LANES = 512, MAKER_LONG_BODY = 48, MAKER_LONGEST_KEPT_ROW = 4096, MAKER_KEPT_LANES = 1 << 16 };
/* Measured: nanoseconds of one lane of one cheap instruction; work worth waking a thread for, and of one part. */
static const double maker_lane_ns = 0.04, maker_split_ns = 30000, maker_part_ns = 15000, maker_most_parts = 32;

typedef struct maker_value {
    int32_t source;  /* itself, or the value it is another name of */
    int32_t class_;
    tg_level level;
    int32_t depth;   /* reductions on the longest path below it */
    int32_t slot;    /* -1: none in this segment */
    bool kept;       /* its slot lives across segments */
    int32_t accumulator, accumulator_value; /* REDUCE in passes */
    /* of the segment being made */
    bool listed, fused;
    int32_t uses, last;
    int32_t forward; /* the STORE that it writes for, or -1 */
    int32_t spread;  /* slot of a full tile of this value per row, or -1 */
} maker_value;

typedef struct maker_slot_use { int32_t slot; int32_t offset; } maker_slot_use;

typedef struct maker {
    tg_arena *arena;
    tg_context *ctx;
    const tg_kernel *kernel;
    const bool *aliased;
    tg_vm_kernel *out;
    bool failed;
    maker_value *values;
    int32_t *list; /* body positions of the segment being made */
    int32_t list_count;
    int32_t present; /* MAKER_ROW, MAKER_COL: axes with more than one point */
    int32_t outer_class; /* class of REDUCE's outer values */
    size_t register_top, register_most, shared_top;
    TG_LIST(tg_vm_code) codes;
    TG_LIST(tg_vm_slot) slots;
    TG_LIST(tg_vm_stream) streams;
    TG_LIST(tg_vm_direct) directs;
    TG_LIST(int32_t) segment_streams;
    TG_LIST(maker_slot_use) merged; /* slots of the other side of merges */
    struct { int32_t *items; int64_t count, capacity; } free_slots[MAKER_CLASSES];
    bool prologue;
} maker;

#define MAKER_PUSH(m, list, value)                                                                                    \
    do {                                                                                                              \
        if ((m)->list.count >= (m)->list.capacity &&                                                                  \
            !tg_grow((m)->ctx, (void **)&(m)->list.items, &(m)->list.capacity, (m)->list.count + 1, sizeof *(m)->list.items)) \
            (m)->failed = true;                                                                                       \
        else                                                                                                          \
            (m)->list.items[(m)->list.count++] = (value);                                                             \
    } while (0)
#define MAKER_DROP(m, list) tg_release((m)->ctx, (m)->list.items, (size_t)(m)->list.capacity * sizeof *(m)->list.items)

static bool maker_is_reduction(int32_t op) {
    return op == TG_OP_SUM || op == TG_OP_REDUCE_MAX || op == TG_OP_REDUCE_MIN || op == TG_OP_ARGMAX || op == TG_OP_ARGMIN;
}
static bool maker_is_arg(int32_t op) { return op == TG_OP_ARGMAX || op == TG_OP_ARGMIN; }
static bool maker_is_load(int32_t op) { return op == TG_K_LOAD || op == TG_K_GATHER; }
static bool maker_is_effect(int32_t op) { return op == TG_K_STORE || op == TG_K_SCATTER; }

static int32_t maker_operand_count(int32_t op) {
    switch (op) {
    case TG_OP_CONST: case TG_K_LOAD: case TG_K_INDEX: case TG_K_INSIDE: case TG_K_ACC: return 0;
    case TG_K_GATHER: case TG_K_STORE: return 1;
    case TG_K_SCATTER: return 2;
    default: return op > 0 && op < TG_OP_COUNT ? tg_op_table[op].arity : 0;
    }
}
static int32_t maker_source(const maker *m, const tg_instruction *instruction, int k) {
    return m->values[instruction->src[k]].source;
}
static bool maker_is_constant(const maker *m, int32_t v, double value) {
    const tg_instruction *instruction = &m->kernel->body[v];
    return instruction->op == TG_OP_CONST && instruction->value >= value && instruction->value <= value;
}

/* ---- streams, slots, code */

static bool maker_same_stream(const tg_vm_stream *a, const tg_vm_stream *b, const tg_vm_loops *loops) {
    if (a->offset != b->offset || a->col != b->col) return false;
    for (int32_t d = 0; d < loops->row_count; ++d)
        if (a->row_stride[d] != b->row_stride[d]) return false;
    for (int32_t d = 0; d < loops->outside_count; ++d)
        if (a->outside_stride[d] != b->outside_stride[d]) return false;
    return true;
}
static int32_t maker_stream(maker *m, const tg_affine *at) {
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, at, &stream);
    for (int64_t s = 0; s < m->streams.count; ++s)
        if (maker_same_stream(&m->streams.items[s], &stream, &m->out->loops)) return (int32_t)s;
    MAKER_PUSH(m, streams, stream);
    return m->failed ? 0 : (int32_t)m->streams.count - 1;
}
static void maker_use_stream(maker *m, int32_t stream) {
    for (int64_t k = 0; k < m->segment_streams.count; ++k)
        if (m->segment_streams.items[k] == stream) return;
    MAKER_PUSH(m, segment_streams, stream);
}
static bool maker_row_varies(const maker *m, const tg_vm_stream *stream) {
    for (int32_t d = 0; d < m->out->loops.row_count; ++d)
        if (stream->row_stride[d] != 0) return true;
    return false;
}
static int32_t maker_affine_class(const maker *m, const tg_affine *at) {
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, at, &stream);
    return (maker_row_varies(m, &stream) ? MAKER_ROW : 0) | (stream.col != 0 ? MAKER_COL : 0);
}

static int32_t maker_slot(maker *m, tg_vm_place place, int64_t offset, int64_t row) {
    tg_vm_slot slot = {place, offset, row};
    MAKER_PUSH(m, slots, slot);
    return m->failed ? 0 : (int32_t)m->slots.count - 1;
}
static int64_t maker_class_lanes(const maker *m, int32_t class_) {
    int64_t lanes = 1;
    if (class_ & MAKER_ROW) lanes *= m->out->tile_rows;
    if (class_ & MAKER_COL) lanes *= m->out->tile_cols;
    return lanes;
}
static int64_t maker_class_row(const maker *m, int32_t class_) {
    return class_ == MAKER_FULL ? m->out->tile_cols : class_ == MAKER_ROW ? 1 : 0;
}
static int32_t maker_new_register(maker *m, int32_t class_, size_t lane_bytes) {
    size_t bytes = ((size_t)maker_class_lanes(m, class_) * lane_bytes + 63) & ~(size_t)63;
    int32_t slot = maker_slot(m, TG_VM_REGISTER, (int64_t)m->register_top, maker_class_row(m, class_));
    m->register_top += bytes + 64; /* staggered, so that equal offsets in two registers are not equal modulo 4 KiB */
    if (m->register_top > m->register_most) m->register_most = m->register_top;
    return slot;
}
static int32_t maker_register(maker *m, int32_t class_) {
    if (m->prologue) {
        int32_t slot = maker_slot(m, TG_VM_SHARED, (int64_t)m->shared_top, 0);
        m->shared_top += 4;
        return slot;
    }
    if (m->free_slots[class_].count > 0) return m->free_slots[class_].items[--m->free_slots[class_].count];
    return maker_new_register(m, class_, 4);
}
static void maker_free_register(maker *m, int32_t class_, int32_t slot) {
    if (slot < 0 || m->prologue || m->failed || m->slots.items[slot].place != TG_VM_REGISTER) return;
    MAKER_PUSH(m, free_slots[class_], slot);
}
static int32_t maker_constant(maker *m, tg_dtype dtype, double value) {
    int32_t bits = 0;
    float number = (float)value;
    if (dtype == TG_F32) memcpy(&bits, &number, 4);
    else if (dtype == TG_BOOL) bits = -(int32_t)(value > 0 || value < 0 || value != value);
    else bits = (int32_t)value;
    int32_t slot = maker_slot(m, TG_VM_SHARED, (int64_t)m->shared_top, 0);
    memcpy(m->out->shared + m->shared_top, &bits, 4);
    m->shared_top += 4;
    return slot;
}
static int32_t maker_direct(maker *m, int32_t argument, int32_t stream, int32_t class_) {
    for (int64_t k = 0; k < m->directs.count; ++k) {
        const tg_vm_direct *direct = &m->directs.items[k];
        if (direct->argument == argument && direct->stream == stream) return direct->slot;
    }
    if (m->failed) return 0;
    int64_t row = class_ == MAKER_FULL ? m->streams.items[stream].row : class_ == MAKER_ROW ? 1 : 0;
    tg_vm_direct direct = {maker_slot(m, TG_VM_DIRECT, 0, row), argument, stream};
    MAKER_PUSH(m, directs, direct);
    maker_use_stream(m, stream);
    return direct.slot;
}

static void maker_emit(maker *m, int32_t fn, int32_t out, int32_t a, int32_t b, int32_t c, int32_t extent, const tg_vm_access *access) {
    tg_vm_code code = {m->out->table->fn[fn], out, a, b, c, extent, access};
    MAKER_PUSH(m, codes, code);
}

/* Slot of a value that an instruction of this segment reads. */
static int32_t maker_read(maker *m, int32_t v) {
    maker_value *value = &m->values[v];
    if (value->slot < 0 && m->kernel->body[v].op == TG_OP_CONST) {
        value->slot = maker_constant(m, m->kernel->body[v].dtype, m->kernel->body[v].value);
        value->kept = true;
    }
    if (value->slot < 0) m->failed = true;
    return value->slot < 0 ? 0 : value->slot;
}

/* ---- extents and variants of elementwise code */

static int32_t maker_class_extent(int32_t class_) {
    return class_ == MAKER_FULL ? TG_VM_FULL : class_ == MAKER_ROW ? TG_VM_PER_ROW : class_ == MAKER_COL ? TG_VM_PER_COL : TG_VM_ONE;
}
/* How memory is walked for a value of a class. */
static int32_t maker_walk_extent(int32_t class_) {
    return class_ == MAKER_ROW ? TG_VM_DOWN : maker_class_extent(class_);
}
/* Does an operand of class `operand` stay the same along the lanes of a result of class `result`? */
static bool maker_is_splat(int32_t operand, int32_t result) {
    int32_t lane = result & MAKER_COL ? MAKER_COL : result & MAKER_ROW;
    return lane != 0 && (operand & lane) == 0;
}
/* FULL code runs as one long row when every operand's rows are adjacent. */
static int32_t maker_extent(const maker *m, int32_t class_, const int32_t *operands, const int32_t *slots, int count, int32_t out) {
    if (class_ != MAKER_FULL || m->failed) return maker_class_extent(class_);
    if (m->slots.items[out].row != m->out->tile_cols) return TG_VM_FULL;
    for (int k = 0; k < count; ++k) {
        if (m->values[operands[k]].class_ != MAKER_ONE && m->slots.items[slots[k]].row != m->out->tile_cols) return TG_VM_FULL;
    }
    return TG_VM_FLAT;
}

/* ---- the segment being made: uses, fusion of pairs, stores done by their producer */

static void maker_count_uses(maker *m) {
    const tg_instruction *body = m->kernel->body;
    for (int32_t i = 0; i < m->kernel->body_count; ++i) m->values[i].last = m->values[i].spread = -1;
    for (int32_t p = 0; p < m->list_count; ++p) {
        maker_value *value = &m->values[m->list[p]];
        value->listed = true, value->fused = false, value->uses = 0, value->last = -1, value->forward = -1;
        if (!value->kept) value->slot = -1;
    }
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *instruction = &body[m->list[p]];
        for (int k = 0; k < maker_operand_count(instruction->op); ++k) ++m->values[maker_source(m, instruction, k)].uses;
    }
}

/* May v, an operand of `user`, be computed inside it? */
static bool maker_can_fuse(const maker *m, int32_t v, int32_t user, int32_t op, int32_t other_op) {
    const maker_value *value = &m->values[v];
    int32_t v_op = m->kernel->body[v].op;
    if (m->prologue) return false; /* uses elsewhere are not counted */
    return value->listed && !value->kept && !value->fused && value->uses == 1 && (v_op == op || v_op == other_op) &&
           value->class_ == m->values[user].class_ && v != user;
}
static bool maker_all_f32(const maker *m, const tg_instruction *instruction) {
    for (int k = 0; k < maker_operand_count(instruction->op); ++k)
        if (m->kernel->body[maker_source(m, instruction, k)].dtype != TG_F32) return false;
    return true;
}
/* The operand of instruction i that becomes part of it, or -1: a b + c, a b - c, c - a b, (a < b) ? c : 0. */
static int32_t maker_fusable(const maker *m, int32_t i) {
    const tg_instruction *instruction = &m->kernel->body[i];
    if ((instruction->op == TG_OP_ADD || instruction->op == TG_OP_SUB) && instruction->dtype == TG_F32)
        for (int k = 0; k < 2; ++k)
            if (maker_can_fuse(m, maker_source(m, instruction, k), i, TG_OP_MUL, TG_OP_MUL)) return maker_source(m, instruction, k);
    if (instruction->op == TG_OP_SELECT && maker_is_constant(m, maker_source(m, instruction, 2), 0)) {
        double zero = m->kernel->body[maker_source(m, instruction, 2)].value;
        int32_t condition = maker_source(m, instruction, 0);
        if (!__builtin_signbit(zero) && maker_can_fuse(m, condition, i, TG_OP_LESS, TG_OP_LESS_EQUAL) &&
            maker_all_f32(m, &m->kernel->body[condition]))
            return condition;
    }
    return -1;
}
static void maker_fuse_pairs(maker *m) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        int32_t v = maker_fusable(m, m->list[p]);
        if (v >= 0) m->values[v].fused = true;
    }
}

static void maker_touch(maker *m, int32_t v, int32_t position) {
    m->values[v].last = position;
    if (!m->values[v].fused) return;
    const tg_instruction *instruction = &m->kernel->body[v];
    for (int k = 0; k < maker_operand_count(instruction->op); ++k) m->values[maker_source(m, instruction, k)].last = position;
}
static void maker_find_last_uses(maker *m) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        if (m->values[m->list[p]].fused) continue;
        const tg_instruction *instruction = &m->kernel->body[m->list[p]];
        for (int k = 0; k < maker_operand_count(instruction->op); ++k) maker_touch(m, maker_source(m, instruction, k), p);
    }
}

static bool maker_is_aliased(const maker *m, int32_t argument) { return m->aliased != NULL && m->aliased[argument]; }

static bool maker_feeds_store(const maker *m, int32_t v) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->kernel->body[i].op == TG_K_STORE && maker_source(m, &m->kernel->body[i], 0) == v) return true;
    return false;
}
/* Can instruction i, a LOAD, be read where it lies? */
static bool maker_is_direct(const maker *m, int32_t i) {
    const tg_instruction *load = &m->kernel->body[i];
    if (load->op != TG_K_LOAD || load->bound_count > 0 || load->dtype == TG_BOOL || m->prologue) return false;
    if (maker_is_aliased(m, load->argument) &&
        ((m->kernel->kind == TG_KERNEL_REDUCE && load->level == TG_LEVEL_OUTER) || maker_feeds_store(m, i)))
        return false;
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, &load->at, &stream);
    switch (m->values[i].class_) {
    case MAKER_FULL: return stream.col == 1 && stream.affine;
    case MAKER_COL: return stream.col == 1;
    case MAKER_ROW: return stream.row == 1 && stream.affine;
    default: return true;
    }
}
/* The class a store covers. */
static int32_t maker_store_class(const maker *m, const tg_instruction *store) {
    if (m->prologue) return MAKER_ONE;
    return m->kernel->kind == TG_KERNEL_REDUCE && store->level < TG_LEVEL_ELEMENT ? m->outer_class : MAKER_FULL;
}
/* Every read of memory that is also written happens at or before list position `position`. */
static bool maker_reads_done(const maker *m, int32_t position) {
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *load = &m->kernel->body[m->list[p]];
        if (!maker_is_load(load->op) || !maker_is_aliased(m, load->argument)) continue;
        if ((maker_is_direct(m, m->list[p]) ? m->values[m->list[p]].last : p) > position) return false;
    }
    return true;
}
/* May the producer (at list position p) of a STORE's value write to memory itself? */
static bool maker_can_forward(const maker *m, int32_t i, int32_t p, const tg_instruction *store) {
    const maker_value *value = &m->values[i];
    int32_t op = m->kernel->body[i].op;
    if (!value->listed || value->kept || value->fused || value->forward >= 0 || op == TG_OP_CONST || op == TG_K_ACC) return false;
    if (store->dtype == TG_BOOL || store->bound_count > 0 || maker_is_direct(m, i)) return false;
    int32_t covered = maker_store_class(m, store) & m->present;
    if ((value->class_ & m->present) != covered) return false;
    tg_vm_stream stream;
    tg_vm_make_stream(&m->out->loops, &store->at, &stream);
    if (!stream.affine || (value->class_ & MAKER_COL ? stream.col : stream.row) != 1) return false;
    if (value->class_ == MAKER_FULL && stream.row != m->out->tile_cols && m->out->tile_rows > 1 && value->uses > 1) return false;
    return !maker_is_aliased(m, store->argument) || maker_reads_done(m, p);
}
static int32_t maker_list_position(const maker *m, int32_t i) {
    for (int32_t p = 0; p < m->list_count; ++p)
        if (m->list[p] == i) return p;
    return m->list_count;
}
static void maker_forward_stores(maker *m) {
    if (m->prologue) return;
    for (int32_t p = 0; p < m->list_count; ++p) {
        const tg_instruction *store = &m->kernel->body[m->list[p]];
        if (store->op != TG_K_STORE) continue;
        int32_t v = maker_source(m, store, 0);
        if (maker_can_forward(m, v, maker_list_position(m, v), store)) m->values[v].forward = m->list[p];
    }
}

/* ---- one instruction */

static int32_t maker_output(maker *m, int32_t i) {
    maker_value *value = &m->values[i];
    if (value->kept && value->slot >= 0) return value->slot;
    if (value->forward >= 0) {
        const tg_instruction *store = &m->kernel->body[value->forward];
        value->slot = maker_direct(m, store->argument, maker_stream(m, &store->at), value->class_);
    } else {
        value->slot = maker_register(m, value->class_);
    }
    if (m->prologue) value->kept = true;
    return value->slot;
}
static void maker_release_value(maker *m, int32_t v, int32_t position) {
    maker_value *value = &m->values[v];
    if (value->last == position && value->spread >= 0) {
        maker_free_register(m, MAKER_FULL, value->spread);
        value->spread = -1;
    }
    if (!value->listed || value->kept || value->last != position || value->slot < 0) return;
    maker_free_register(m, value->class_, value->slot);
    value->last = -2; /* once */
}
static void maker_release_operands(maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    for (int k = 0; k < maker_operand_count(instruction->op); ++k) {
        int32_t v = maker_source(m, instruction, k);
        if (m->values[v].fused && m->values[v].listed) maker_release_operands(m, v, position);
        else maker_release_value(m, v, position);
    }
}

static const tg_vm_access *maker_access(maker *m, const tg_instruction *instruction) {
    tg_vm_access *access = TG_NEW(m->arena, tg_vm_access, 1);
    tg_vm_bound_code *bounds = NULL;
    if (instruction->bound_count > 0) bounds = TG_NEW(m->arena, tg_vm_bound_code, instruction->bound_count);
    if (access == NULL || (instruction->bound_count > 0 && bounds == NULL)) {
        m->failed = true;
        return NULL;
    }
    for (int32_t k = 0; k < instruction->bound_count; ++k) {
        bounds[k] = (tg_vm_bound_code){maker_stream(m, &instruction->bounds[k].at), instruction->bounds[k].lo, instruction->bounds[k].hi};
        maker_use_stream(m, bounds[k].stream);
    }
    *access = (tg_vm_access){.argument = instruction->argument, .bound_count = instruction->bound_count, .bounds = bounds,
                             .row_stride = instruction->row_stride, .rows = instruction->rows};
    if (instruction->op != TG_K_INSIDE) {
        access->stream = maker_stream(m, &instruction->at);
        maker_use_stream(m, access->stream);
    }
    return access;
}

static void maker_load(maker *m, int32_t i) {
    const tg_instruction *load = &m->kernel->body[i];
    maker_value *value = &m->values[i];
    if (maker_is_direct(m, i)) {
        int32_t slot = maker_direct(m, load->argument, maker_stream(m, &load->at), value->class_);
        if (!value->kept) {
            value->slot = slot;
            return;
        }
        maker_emit(m, TG_VM_copy, value->slot, slot, 0, 0, maker_class_extent(value->class_), NULL);
        return;
    }
    const tg_vm_access *access = maker_access(m, load);
    int32_t fn = load->op == TG_K_INDEX ? (load->dtype == TG_F32 ? TG_VM_index_f : TG_VM_index_i)
               : load->op == TG_K_INSIDE ? TG_VM_inside
               : load->dtype == TG_BOOL ? TG_VM_load_bool : TG_VM_load;
    maker_emit(m, fn, maker_output(m, i), 0, 0, 0, maker_walk_extent(value->class_), access);
}
static void maker_gather(maker *m, int32_t i) {
    const tg_instruction *gather = &m->kernel->body[i];
    int32_t index = maker_source(m, gather, 0), class_ = m->values[i].class_;
    int32_t slot = maker_read(m, index), varies = !maker_is_splat(m->values[index].class_, class_) && class_ != MAKER_ONE;
    const tg_vm_access *access = maker_access(m, gather);
    maker_emit(m, gather->dtype == TG_BOOL ? TG_VM_gather_bool : TG_VM_gather, maker_output(m, i), slot, 0, varies,
               maker_walk_extent(class_), access);
}
static void maker_store(maker *m, int32_t i) {
    const tg_instruction *store = &m->kernel->body[i];
    int32_t v = maker_source(m, store, 0), class_ = maker_store_class(m, store);
    if (m->values[v].listed && m->values[v].forward == i) return;
    int32_t slot = maker_read(m, v), extent = maker_walk_extent(class_);
    bool splat = class_ == MAKER_ROW ? true : !(m->values[v].class_ & MAKER_COL) && class_ != MAKER_ONE;
    int32_t step = m->values[v].class_ & MAKER_ROW ? 1 : 0; /* of a value per row */
    static const int32_t fns[2][2] = {{TG_VM_store, TG_VM_store_spread}, {TG_VM_store_bool, TG_VM_store_bool_spread}};
    maker_emit(m, fns[store->dtype == TG_BOOL][splat], 0, slot, 0, step, extent, maker_access(m, store));
}
static void maker_scatter(maker *m, int32_t i) {
    const tg_instruction *scatter = &m->kernel->body[i];
    int32_t index = maker_source(m, scatter, 0), value = maker_source(m, scatter, 1);
    int32_t varies = (m->values[index].class_ & MAKER_COL ? 1 : 0) | (m->values[value].class_ & MAKER_COL ? 2 : 0);
    maker_emit(m, m->kernel->body[value].dtype == TG_I32 ? TG_VM_scatter_i : TG_VM_scatter_f, 0, maker_read(m, index),
               maker_read(m, value), varies, TG_VM_FULL, maker_access(m, scatter));
}

static int32_t maker_unary_fn(int32_t op, tg_dtype from, tg_dtype to) {
    bool f = from == TG_F32;
    switch (op) {
    case TG_OP_NEG: return f ? TG_VM_neg_f : TG_VM_neg_i;
    case TG_OP_ABS: return f ? TG_VM_abs_f : TG_VM_abs_i;
    case TG_OP_SIGN: return f ? TG_VM_sign_f : TG_VM_sign_i;
    case TG_OP_RELU: return f ? TG_VM_relu_f : TG_VM_relu_i;
    case TG_OP_SQRT: return TG_VM_sqrt;
    case TG_OP_RSQRT: return TG_VM_rsqrt;
    case TG_OP_RECIPROCAL: return TG_VM_reciprocal;
    case TG_OP_EXP: return TG_VM_exp;
    case TG_OP_LOG: return TG_VM_log;
    case TG_OP_SIN: return TG_VM_sin;
    case TG_OP_COS: return TG_VM_cos;
    case TG_OP_TANH: return TG_VM_tanh;
    case TG_OP_ERF: return TG_VM_erf;
    case TG_OP_SIGMOID: return TG_VM_sigmoid;
    case TG_OP_SOFTPLUS: return TG_VM_softplus;
    case TG_OP_NOT: return TG_VM_not;
    case TG_OP_CAST:
        if (from == to) return TG_VM_copy;
        if (from == TG_F32) return to == TG_I32 ? TG_VM_f_to_i : TG_VM_f_to_b;
        if (from == TG_I32) return to == TG_F32 ? TG_VM_i_to_f : TG_VM_i_to_b;
        return to == TG_F32 ? TG_VM_b_to_f : TG_VM_b_to_i;
    default: return -1;
    }
}
static int32_t maker_binary_fn(int32_t op, tg_dtype from) {
    bool f = from == TG_F32;
    switch (op) {
    case TG_OP_ADD: return f ? TG_VM_add_f : TG_VM_add_i;
    case TG_OP_SUB: return f ? TG_VM_sub_f : TG_VM_sub_i;
    case TG_OP_MUL: return f ? TG_VM_mul_f : TG_VM_mul_i;
    case TG_OP_DIV: return f ? TG_VM_div_f : TG_VM_div_i;
    case TG_OP_POW: return TG_VM_pow_f;
    case TG_OP_MIN: return f ? TG_VM_min_f : TG_VM_min_i;
    case TG_OP_MAX: return f ? TG_VM_max_f : TG_VM_max_i;
    case TG_OP_LESS: return f ? TG_VM_less_f : TG_VM_less_i;
    case TG_OP_LESS_EQUAL: return f ? TG_VM_less_equal_f : TG_VM_less_equal_i;
    case TG_OP_EQUAL: return f ? TG_VM_equal_f : TG_VM_equal_i;
    case TG_OP_NOT_EQUAL: return f ? TG_VM_not_equal_f : TG_VM_not_equal_i;
    case TG_OP_AND: return TG_VM_and;
    case TG_OP_OR: return TG_VM_or;
    default: return -1;
    }
}

/* A full tile that holds a value of each row in all columns. */
static int32_t maker_spread(maker *m, int32_t v) {
    maker_value *value = &m->values[v];
    if (value->spread < 0) {
        value->spread = maker_register(m, MAKER_FULL);
        maker_emit(m, TG_VM_spread, value->spread, maker_read(m, v), 0, 0, TG_VM_FULL, NULL);
    }
    return value->spread;
}
/* Elementwise code over `count` operand values; fn is the variant in which all operands vary. */
static void maker_elementwise(maker *m, int32_t i, int32_t position, int32_t fn, const int32_t *operands, int count) {
    int32_t class_ = m->values[i].class_, slots[3] = {0, 0, 0}, mask = 0;
    const bool spreads = class_ == MAKER_FULL && m->out->tile_cols < MAKER_SHORT_ROW && m->out->mode != TG_VM_EPILOGUE;
    for (int k = 0; k < count; ++k) {
        slots[k] = maker_read(m, operands[k]);
        if (spreads && m->values[operands[k]].class_ == MAKER_ROW) slots[k] = maker_spread(m, operands[k]);
        else if (maker_is_splat(m->values[operands[k]].class_, class_)) mask |= 1 << k;
    }
    maker_release_operands(m, i, position);
    int32_t out = maker_output(m, i);
    int32_t extent = maker_extent(m, class_, operands, slots, count, out);
    maker_emit(m, fn + mask, out, slots[0], slots[1], slots[2], extent, NULL);
}
static void maker_unary(maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    int32_t v = maker_source(m, instruction, 0);
    int32_t fn = maker_unary_fn(instruction->op, m->kernel->body[v].dtype, instruction->dtype);
    if (fn < 0) m->failed = true;
    else maker_elementwise(m, i, position, fn, &v, 1);
}
/* x^c for the constants that are cheaper otherwise; -1: none. */
static int32_t maker_constant_power(double c) {
    if (c >= 1 && c <= 1) return TG_VM_copy;
    if (c >= 2 && c <= 2) return TG_VM_square;
    if (c >= 3 && c <= 3) return TG_VM_cube;
    if (c >= -1 && c <= -1) return TG_VM_reciprocal;
    return -1;
}
static void maker_binary(maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    int32_t operands[2] = {maker_source(m, instruction, 0), maker_source(m, instruction, 1)};
    const tg_instruction *right = &m->kernel->body[operands[1]];
    if (instruction->op == TG_OP_POW && right->op == TG_OP_CONST && maker_constant_power(right->value) >= 0) {
        maker_elementwise(m, i, position, maker_constant_power(right->value), operands, 1);
        return;
    }
    int32_t fn = maker_binary_fn(instruction->op, m->kernel->body[operands[0]].dtype);
    if (fn < 0) m->failed = true;
    else maker_elementwise(m, i, position, fn, operands, 2);
}
/* Is operand k computed inside the instruction? */
static bool maker_is_fused(const maker *m, const tg_instruction *instruction, int k) {
    const maker_value *value = &m->values[maker_source(m, instruction, k)];
    return value->listed && value->fused;
}
static void maker_multiply_add(maker *m, int32_t i, int32_t position) {
    const tg_instruction *sum = &m->kernel->body[i];
    int32_t left = maker_source(m, sum, 0), right = maker_source(m, sum, 1);
    bool product_left = maker_is_fused(m, sum, 0);
    const tg_instruction *product = &m->kernel->body[product_left ? left : right];
    int32_t operands[3] = {maker_source(m, product, 0), maker_source(m, product, 1), product_left ? right : left};
    int32_t fn = sum->op == TG_OP_ADD ? TG_VM_fma : product_left ? TG_VM_fms : TG_VM_fnma;
    maker_elementwise(m, i, position, fn, operands, 3);
}
static void maker_select(maker *m, int32_t i, int32_t position) {
    const tg_instruction *select = &m->kernel->body[i];
    int32_t operands[3] = {maker_source(m, select, 0), maker_source(m, select, 1), maker_source(m, select, 2)};
    int32_t fn = TG_VM_select;
    if (maker_is_fused(m, select, 0)) {
        const tg_instruction *compare = &m->kernel->body[operands[0]];
        fn = compare->op == TG_OP_LESS ? TG_VM_less_select : TG_VM_less_equal_select;
        operands[2] = operands[1];
        operands[0] = maker_source(m, compare, 0), operands[1] = maker_source(m, compare, 1);
    }
    maker_elementwise(m, i, position, fn, operands, 3);
}

enum { MAKER_REDUCE_ROW, MAKER_REDUCE_COL, MAKER_REDUCE_FOLD, MAKER_REDUCE_MERGE };
static int32_t maker_reduction_fn(int32_t op, tg_dtype from, int32_t form) {
    bool f = from == TG_F32;
    switch (op) {
    case TG_OP_SUM: return (f ? TG_VM_sum_f_row : TG_VM_sum_i_row) + form;
    case TG_OP_REDUCE_MAX: return (f ? TG_VM_max_f_row : TG_VM_max_i_row) + form;
    case TG_OP_REDUCE_MIN: return (f ? TG_VM_min_f_row : TG_VM_min_i_row) + form;
    case TG_OP_ARGMAX: return (f ? TG_VM_argmax_f_row : TG_VM_argmax_i_row) + form;
    default: return (f ? TG_VM_argmin_f_row : TG_VM_argmin_i_row) + form;
    }
}
static void maker_reduction(maker *m, int32_t i) {
    const tg_instruction *reduce = &m->kernel->body[i];
    maker_value *value = &m->values[i];
    int32_t v = maker_source(m, reduce, 0), source = maker_read(m, v), spread = -1;
    tg_dtype from = m->kernel->body[v].dtype;
    if ((m->values[v].class_ & m->present) != m->present) {
        spread = maker_register(m, MAKER_FULL);
        maker_emit(m, TG_VM_spread, spread, source, 0, m->values[v].class_ & MAKER_COL ? 1 : 0, TG_VM_FULL, NULL);
        source = spread;
    }
    int32_t form = m->out->mode == TG_VM_ROWS ? MAKER_REDUCE_ROW : MAKER_REDUCE_COL;
    int32_t fn = maker_reduction_fn(reduce->op, from, form), extent = maker_class_extent(m->outer_class);
    int32_t best = maker_is_arg(reduce->op) ? maker_register(m, m->outer_class) : 0;
    if (m->out->passes == 0) {
        maker_emit(m, fn, maker_output(m, i), source, 0, best, extent, NULL);
    } else {
        int32_t part = maker_register(m, m->outer_class);
        maker_emit(m, fn, part, source, 0, best, extent, NULL);
        maker_emit(m, maker_reduction_fn(reduce->op, from, MAKER_REDUCE_FOLD), value->accumulator, part, best,
                   value->accumulator_value, extent, NULL);
        maker_free_register(m, m->outer_class, part);
    }
    if (maker_is_arg(reduce->op)) maker_free_register(m, m->outer_class, best);
    maker_free_register(m, MAKER_FULL, spread);
}

static void maker_instruction(maker *m, int32_t i, int32_t position) {
    const tg_instruction *instruction = &m->kernel->body[i];
    maker_value *value = &m->values[i];
    if (value->fused || value->source != i || instruction->op == TG_OP_CONST) return;
    int32_t op = instruction->op;
    if (op == TG_K_LOAD || op == TG_K_INDEX || op == TG_K_INSIDE) maker_load(m, i);
    else if (op == TG_K_GATHER) maker_gather(m, i);
    else if (op == TG_K_STORE) maker_store(m, i);
    else if (op == TG_K_SCATTER) maker_scatter(m, i);
    else if (op == TG_K_ACC) value->slot = m->out->acc_slot;
    else if (maker_is_reduction(op)) maker_reduction(m, i);
    else if (op == TG_OP_SELECT) maker_select(m, i, position);
    else if (maker_operand_count(op) == 1) maker_unary(m, i, position);
    else if (maker_is_fused(m, instruction, 0) || maker_is_fused(m, instruction, 1)) maker_multiply_add(m, i, position);
    else maker_binary(m, i, position);
    maker_release_operands(m, i, position);
    if (value->uses == 0 && value->forward < 0 && !maker_is_effect(op) && value->slot >= 0 && !value->kept)
        maker_free_register(m, value->class_, value->slot);
}

/* ---- segments */

static void maker_list_add(maker *m, int32_t i) { m->list[m->list_count++] = i; }

static void maker_finish_segment(maker *m, tg_vm_segment *segment) {
    if (m->failed) return;
    segment->code_count = (int32_t)m->codes.count;
    segment->stream_count = (int32_t)m->segment_streams.count;
    segment->direct_count = (int32_t)m->directs.count;
    for (int64_t k = 0; k < m->segment_streams.count; ++k)
        if (!m->streams.items[m->segment_streams.items[k]].affine) segment->tables = true;
    if (m->codes.count > 0)
        segment->code = tg_arena_copy(m->arena, m->codes.items, sizeof(tg_vm_code) * (size_t)m->codes.count);
    if (m->segment_streams.count > 0)
        segment->streams = tg_arena_copy(m->arena, m->segment_streams.items, sizeof(int32_t) * (size_t)m->segment_streams.count);
    if (m->directs.count > 0)
        segment->directs = tg_arena_copy(m->arena, m->directs.items, sizeof(tg_vm_direct) * (size_t)m->directs.count);
    if ((m->codes.count > 0 && segment->code == NULL) || (m->segment_streams.count > 0 && segment->streams == NULL) ||
        (m->directs.count > 0 && segment->directs == NULL))
        m->failed = true;
}
static void maker_begin_segment(maker *m) {
    m->codes.count = m->directs.count = m->segment_streams.count = 0;
    for (int c = 0; c < MAKER_CLASSES; ++c) m->free_slots[c].count = 0;
    m->register_top = (size_t)m->out->kept_end;
}
/* Makes the code of the listed instructions, after code that may already be there. */
static void maker_segment(maker *m, tg_vm_segment *segment) {
    maker_count_uses(m);
    maker_fuse_pairs(m);
    maker_find_last_uses(m);
    maker_forward_stores(m);
    for (int32_t p = 0; p < m->list_count && !m->failed; ++p) maker_instruction(m, m->list[p], p);
    maker_finish_segment(m, segment);
    for (int32_t p = 0; p < m->list_count; ++p) m->values[m->list[p]].listed = false;
    m->list_count = 0;
}

static void maker_prologue(maker *m) {
    maker_begin_segment(m);
    m->prologue = true;
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->values[i].level == TG_LEVEL_UNIFORM && m->kernel->body[i].op != TG_OP_CONST) maker_list_add(m, i);
    maker_segment(m, &m->out->prologue);
    m->prologue = false;
}
/* Everything that is not uniform, stores to memory that is also read last. */
static void maker_straight(maker *m) {
    maker_begin_segment(m);
    const tg_instruction *body = m->kernel->body;
    for (int late = 0; late < 2; ++late)
        for (int32_t i = 0; i < m->kernel->body_count; ++i) {
            bool after = body[i].op == TG_K_STORE && maker_is_aliased(m, body[i].argument);
            if (m->values[i].level != TG_LEVEL_UNIFORM && after == (late == 1)) maker_list_add(m, i);
        }
    maker_segment(m, &m->out->body);
}

/* Marks instruction i and the ELEMENT instructions below it. */
static void maker_need(const maker *m, bool *needed, int32_t i) {
    for (needed[i] = true; i >= 0; --i) {
        if (!needed[i]) continue;
        const tg_instruction *instruction = &m->kernel->body[i];
        for (int k = 0; k < maker_operand_count(instruction->op); ++k) {
            int32_t v = maker_source(m, instruction, k);
            if (m->values[v].level == TG_LEVEL_ELEMENT) needed[v] = true;
        }
    }
}
static void maker_list_needed(maker *m, const bool *needed) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (needed[i]) maker_list_add(m, i);
}

static void maker_keep_values(maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        maker_value *value = &m->values[i];
        if (value->level != TG_LEVEL_OUTER || value->source != i) continue;
        if (maker_is_effect(instruction->op) || instruction->op == TG_OP_CONST) continue;
        value->slot = maker_new_register(m, value->class_, 4);
        value->kept = true;
        if (!maker_is_reduction(instruction->op)) continue;
        bool wide = instruction->op == TG_OP_SUM && instruction->dtype == TG_F32;
        value->accumulator = wide ? maker_new_register(m, m->outer_class, 8) : value->slot;
        value->accumulator_value = maker_is_arg(instruction->op) ? maker_new_register(m, m->outer_class, 4) : 0;
    }
    m->out->kept_end = (int64_t)m->register_top;
}
/* OUTER instructions of one depth; sums of that depth are narrowed first. */
static void maker_outer_stage(maker *m, int32_t depth) {
    maker_begin_segment(m);
    int32_t extent = maker_class_extent(m->outer_class);
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        const maker_value *value = &m->values[i];
        if (value->level != TG_LEVEL_OUTER || value->depth != depth || maker_is_effect(instruction->op)) continue;
        if (!maker_is_reduction(instruction->op)) maker_list_add(m, i);
        else if (value->accumulator != value->slot)
            maker_emit(m, TG_VM_finish_sum, value->slot, value->accumulator, 0, 0, extent, NULL);
    }
    maker_segment(m, &m->out->outer[depth]);
}
static int32_t maker_merge_slot(maker *m, int32_t accumulator) {
    int64_t offset = m->slots.items[accumulator].offset;
    maker_slot_use use = {maker_slot(m, TG_VM_DIRECT, 0, 0), (int32_t)(offset - m->out->kept_begin)};
    MAKER_PUSH(m, merged, use);
    return use.slot;
}
static void maker_merge_stage(maker *m, int32_t depth) {
    maker_begin_segment(m);
    int32_t extent = maker_class_extent(m->outer_class);
    for (int32_t i = 0; i < m->kernel->body_count && !m->failed; ++i) {
        const tg_instruction *reduce = &m->kernel->body[i];
        const maker_value *value = &m->values[i];
        if (!maker_is_reduction(reduce->op) || value->depth != depth + 1) continue;
        int32_t a = maker_merge_slot(m, value->accumulator);
        int32_t b = maker_is_arg(reduce->op) ? maker_merge_slot(m, value->accumulator_value) : 0;
        tg_dtype from = m->kernel->body[maker_source(m, reduce, 0)].dtype;
        maker_emit(m, maker_reduction_fn(reduce->op, from, MAKER_REDUCE_MERGE), value->accumulator, a, b,
                   value->accumulator_value, extent, NULL);
    }
    maker_finish_segment(m, &m->out->merge[depth]);
}
static void maker_pass(maker *m, int32_t depth, bool *needed) {
    maker_begin_segment(m);
    memset(needed, 0, sizeof(bool) * (size_t)m->kernel->body_count);
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (maker_is_reduction(m->kernel->body[i].op) && m->values[i].depth == depth + 1) maker_need(m, needed, i);
    maker_list_needed(m, needed);
    maker_segment(m, &m->out->pass[depth]);
}
static void maker_passes(maker *m) {
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
        maker_outer_stage(m, depth);
        if (depth == out->passes) break;
        maker_pass(m, depth, needed);
        if (out->split_parts > 0) maker_merge_stage(m, depth);
    }
    maker_begin_segment(m);
    memset(needed, 0, sizeof(bool) * (size_t)kernel->body_count);
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].op == TG_K_STORE && m->values[i].level == TG_LEVEL_ELEMENT) maker_need(m, needed, i);
    for (int late = 0; late < 2; ++late)
        for (int32_t i = 0; i < kernel->body_count; ++i)
            if (needed[i] && (kernel->body[i].op == TG_K_STORE) == (late == 1)) maker_list_add(m, i);
    maker_segment(m, &out->body);
    maker_begin_segment(m);
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].op == TG_K_STORE && m->values[i].level == TG_LEVEL_OUTER) maker_list_add(m, i);
    maker_segment(m, &out->last);
}

/* ---- analysis before code */

static int32_t maker_memory_class(const maker *m, const tg_instruction *instruction) {
    int32_t class_ = instruction->op == TG_K_INSIDE ? MAKER_ONE : maker_affine_class(m, &instruction->at);
    for (int32_t k = 0; k < instruction->bound_count; ++k) class_ |= maker_affine_class(m, &instruction->bounds[k].at);
    return class_;
}
static bool maker_is_rename(const maker *m, const tg_instruction *instruction) {
    if (instruction->op == TG_OP_STOP_GRADIENT) return true;
    return instruction->op == TG_OP_CAST && m->kernel->body[maker_source(m, instruction, 0)].dtype == instruction->dtype;
}
static void maker_analyse(maker *m) {
    const tg_kernel *kernel = m->kernel;
    tg_vm_loops *loops = &m->out->loops;
    m->present = (loops->rows > 1 ? MAKER_ROW : 0) | (loops->cols > 1 ? MAKER_COL : 0);
    m->outer_class = m->out->mode == TG_VM_ROWS ? MAKER_ROW : m->out->mode == TG_VM_COLUMNS ? MAKER_COL : MAKER_FULL;
    for (int32_t i = 0; i < kernel->body_count; ++i) {
        const tg_instruction *instruction = &kernel->body[i];
        maker_value *value = &m->values[i];
        *value = (maker_value){.source = i, .slot = -1, .forward = -1, .last = -1};
        for (int k = 0; k < maker_operand_count(instruction->op); ++k) {
            int32_t v = maker_source(m, instruction, k);
            value->class_ |= m->values[v].class_;
            if (m->values[v].depth > value->depth) value->depth = m->values[v].depth;
        }
        if (maker_is_rename(m, instruction)) value->source = maker_source(m, instruction, 0);
        if (maker_is_load(instruction->op) || instruction->op == TG_K_INDEX || instruction->op == TG_K_INSIDE)
            value->class_ |= maker_memory_class(m, instruction);
        if (instruction->op == TG_K_ACC) value->class_ = MAKER_FULL;
        if (maker_is_reduction(instruction->op)) value->class_ = m->outer_class, ++value->depth;
        value->level = instruction->level;
        if (maker_is_effect(instruction->op) && kernel->kind != TG_KERNEL_REDUCE && maker_affine_class(m, &instruction->at) != MAKER_ONE)
            value->level = TG_LEVEL_ELEMENT; /* one value for many places */
        if (value->level == TG_LEVEL_UNIFORM) value->class_ = MAKER_ONE;
    }
}

static int32_t maker_depth(const maker *m) {
    int32_t depth = 0;
    for (int32_t i = 0; i < m->kernel->body_count; ++i)
        if (m->values[i].depth > depth) depth = m->values[i].depth;
    return depth;
}
/* Does a second pass over a row have to compute anything again? */
static bool maker_recomputes(const maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        if (instruction->op == TG_K_STORE && instruction->level == TG_LEVEL_ELEMENT) return true;
        if (m->values[i].depth > 1) return true;
    }
    return false;
}
static int64_t maker_smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t maker_larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t maker_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* `total` columns in equal pieces of at most `most`, multiples of 16. */
static int64_t maker_piece(int64_t total, int64_t most) {
    if (total <= most) return total;
    int64_t pieces = maker_divide_up(total, most);
    return maker_smaller(most, (maker_divide_up(total, pieces) + 15) / 16 * 16);
}
/* Some access walks memory along the rows: square tiles keep its cache lines. */
static bool maker_is_transposing(const maker *m) {
    for (int32_t i = 0; i < m->kernel->body_count; ++i) {
        const tg_instruction *instruction = &m->kernel->body[i];
        if (instruction->op != TG_K_LOAD && instruction->op != TG_K_STORE) continue;
        tg_vm_stream stream;
        tg_vm_make_stream(&m->out->loops, &instruction->at, &stream);
        int32_t last = m->out->loops.row_count - 1;
        if (last >= 0 && (stream.col > 4 || stream.col < -4) && stream.row_stride[last] >= -2 && stream.row_stride[last] <= 2 &&
            stream.row_stride[last] != 0)
            return true;
    }
    return false;
}
static void maker_choose_tile(maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_vm_loops *loops = &out->loops;
    int64_t lanes = m->kernel->body_count > MAKER_LONG_BODY ? MAKER_LANES / 2 : MAKER_LANES;
    int32_t depth = (int32_t)maker_larger(1, maker_depth(m));
    bool recompute = maker_recomputes(m);
    int64_t kept = maker_smaller(MAKER_LONGEST_KEPT_ROW, MAKER_KEPT_LANES / (m->kernel->body_count + 1));
    if (!recompute || kept < lanes) kept = lanes;
    out->passes = 0;
    switch (out->mode) {
    case TG_VM_ROWS:
        if (loops->outside == 1 && loops->cols <= kept) {
            out->tile_cols = loops->cols;
        } else {
            out->passes = depth;
            out->tile_cols = maker_piece(loops->cols, lanes);
        }
        break;
    case TG_VM_COLUMNS:
        out->tile_cols = maker_piece(loops->cols, 64);
        if (loops->rows * out->tile_cols > lanes && recompute) {
            int64_t fitting = maker_larger(lanes, 4 * MAKER_LANES) / loops->rows;
            if (fitting >= 16) out->tile_cols = maker_smaller(loops->cols, fitting / 16 * 16);
        }
        if (loops->rows * out->tile_cols > maker_larger(lanes, recompute ? 4 * MAKER_LANES : 0)) out->passes = depth;
        else lanes = maker_larger(lanes, loops->rows * out->tile_cols);
        break;
    case TG_VM_EPILOGUE: out->tile_cols = maker_piece(loops->cols, 64); break;
    case TG_VM_MAP: case TG_VM_SCATTERING:
        out->tile_cols = maker_piece(loops->cols, lanes);
        if (maker_is_transposing(m)) out->tile_cols = maker_piece(loops->cols, 32);
        break;
    }
    out->tile_rows = maker_smaller(loops->rows, maker_larger(1, lanes / out->tile_cols));
}

static double maker_instruction_price(const tg_instruction *instruction) {
    switch (instruction->op) {
    case TG_OP_EXP: case TG_OP_LOG: case TG_OP_TANH: case TG_OP_SIGMOID: return 6;
    case TG_OP_SIN: case TG_OP_COS: case TG_OP_ERF: case TG_OP_SOFTPLUS: return 12;
    case TG_OP_POW: return 40;
    case TG_OP_DIV: case TG_OP_SQRT: case TG_OP_RSQRT: case TG_OP_RECIPROCAL: return 4;
    case TG_K_GATHER: return 10;
    case TG_OP_CONST: return 0;
    default: return 1;
    }
}
/* Nanoseconds, roughly; every point pays every instruction that is not uniform. */
static double maker_estimate(const tg_kernel *kernel) {
    double points = 1, price = 0;
    for (int32_t d = 0; d < (kernel->kind == TG_KERNEL_CONTRACT ? kernel->outer_count : kernel->loop_count); ++d)
        points *= (double)kernel->extent[d];
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].level == TG_LEVEL_ELEMENT) price += maker_instruction_price(&kernel->body[i]);
    return points * price * maker_lane_ns + kernel->flops / 100;
}
static int32_t maker_part_count(double ns, int64_t most) {
    if (ns < maker_split_ns || most < 2) return 1;
    double parts = ns / maker_part_ns;
    if (parts > maker_most_parts) parts = maker_most_parts;
    return (int32_t)maker_smaller((int64_t)parts, most);
}
static void maker_choose_parts(maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_vm_loops *loops = &out->loops;
    int64_t row_tiles = maker_divide_up(loops->rows, out->tile_rows), col_tiles = maker_divide_up(loops->cols, out->tile_cols);
    double ns = maker_estimate(m->kernel);
    int64_t units = 0; /* tiles of one reduction */
    switch (out->mode) {
    case TG_VM_MAP: out->tiles = row_tiles * col_tiles; break;
    case TG_VM_ROWS: out->tiles = row_tiles; units = loops->outside * col_tiles; break;
    case TG_VM_COLUMNS: out->tiles = loops->outside * col_tiles; units = row_tiles; break;
    case TG_VM_SCATTERING: out->tiles = col_tiles; break;
    case TG_VM_EPILOGUE: out->tiles = 1; break;
    }
    out->parts = maker_part_count(ns, out->tiles);
    if (out->passes > 0 && out->tiles <= 2 && units >= 16) {
        out->split_parts = maker_part_count(ns / (double)out->tiles, units / 8);
        if (out->split_parts < 2) out->split_parts = 0;
        else out->parts = 1;
    }
}
/* A large scatter is cut along its columns; rows of the table would repeat the body's work. */
static void maker_narrow_scatter(maker *m) {
    tg_vm_kernel *out = m->out;
    int32_t parts = maker_part_count(2 * maker_estimate(m->kernel), out->loops.cols / 16);
    if (parts > 1) out->tile_cols = maker_piece(out->loops.cols, maker_divide_up(out->loops.cols, parts));
}

/* ---- contractions */

/* Is the body STORE(ACC) into rows of adjacent columns? */
static bool maker_direct_contraction(maker *m) {
    tg_vm_kernel *out = m->out;
    const tg_kernel *kernel = m->kernel;
    const tg_instruction *store = NULL;
    for (int32_t i = 0; i < kernel->body_count; ++i) {
        const tg_instruction *instruction = &kernel->body[i];
        if (instruction->op == TG_K_ACC) continue;
        if (instruction->op != TG_K_STORE || store != NULL || kernel->body[maker_source(m, instruction, 0)].op != TG_K_ACC) return false;
        store = instruction;
    }
    const tg_vm_loops *loops = &out->loops;
    if (store == NULL || store->bound_count > 0 || store->dtype != TG_F32 || maker_is_aliased(m, store->argument)) return false;
    if (loops->outside_count > loops->batch_outside || loops->batch_outside > 1) return false;
    tg_vm_stream stream;
    tg_vm_make_stream(loops, &store->at, &stream);
    if ((stream.col != 1 && loops->cols > 1 && !loops->turned) || !stream.affine) return false;
    out->direct_argument = store->argument;
    out->direct_offset = stream.offset;
    out->direct_batch = loops->batch_outside > 0 ? stream.outside_stride[0] : 0;
    out->direct_row = loops->turned ? stream.col : stream.row;
    return true;
}
static void maker_contraction(maker *m, tg_isa isa) {
    tg_vm_kernel *out = m->out;
    out->contraction = tg_contraction_make(m->arena, m->kernel, isa);
    if (out->contraction == NULL) {
        m->failed = true;
        return;
    }
    out->parts = m->kernel->flops >= 2e6 ? tg_contraction_parts(out->contraction) : 1;
    out->acc_slot = maker_direct_contraction(m) ? -1 : maker_slot(m, TG_VM_DIRECT, 0, -1); /* rows apart by the block's own stride */
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
    case TG_ISA_SIMD128_: return &tg_vm_table_simd128;
#endif
    default: return &tg_vm_table_scalar;
    }
}
static size_t maker_round(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static void maker_copy_tables(maker *m) {
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
static void maker_count_scratch(maker *m) {
    tg_vm_kernel *out = m->out;
    out->frame_bytes = maker_round(sizeof(tg_vm_frame)) + maker_round((size_t)out->slot_count * sizeof(void *)) +
                       maker_round((size_t)out->slot_count * sizeof(int64_t)) +
                       maker_round((size_t)out->stream_count * sizeof(tg_vm_place_now)) +
                       maker_round((size_t)out->stream_count * (size_t)out->tile_rows * sizeof(int64_t));
    out->register_bytes = maker_round(m->register_most) + maker_round((size_t)out->tile_cols * sizeof(float));
    out->scratch_bytes = out->frame_bytes + out->register_bytes;
    if (out->contraction != NULL) out->scratch_bytes += maker_round(tg_contraction_scratch(out->contraction));
    if (out->split_parts > 0) {
        out->partials = tg_arena_alloc(m->arena, (size_t)(out->split_parts + 1) * (size_t)(out->kept_end - out->kept_begin));
        if (out->partials == NULL) m->failed = true;
    }
}
static void maker_translate(maker *m, tg_isa isa) {
    tg_vm_kernel *out = m->out;
    tg_vm_affine_use *uses = tg_alloc(m->ctx, sizeof *uses * (size_t)(tg_vm_affine_count(m->kernel) + 1));
    if (uses == NULL) {
        m->failed = true;
        return;
    }
    tg_vm_shape_loops(m->kernel, uses, &out->mode, &out->loops);
    tg_release(m->ctx, uses, sizeof *uses * (size_t)(tg_vm_affine_count(m->kernel) + 1));
    maker_analyse(m);
    maker_choose_tile(m);
    if (out->mode == TG_VM_SCATTERING) maker_narrow_scatter(m);
    maker_choose_parts(m);
    if (m->kernel->kind == TG_KERNEL_CONTRACT) maker_contraction(m, isa);
    maker_prologue(m);
    if (out->passes > 0) maker_passes(m);
    else if (out->contraction == NULL || out->acc_slot >= 0) maker_straight(m);
    if (!m->failed) maker_copy_tables(m);
    if (!m->failed) maker_count_scratch(m);
}

tg_vm_kernel *tg_vm_make(tg_arena *arena, const tg_kernel *kernel, const bool *aliased, tg_isa isa) {
    maker m = {.arena = arena, .ctx = arena->ctx, .kernel = kernel, .aliased = aliased};
    m.out = TG_NEW(arena, tg_vm_kernel, 1);
    m.values = TG_NEW(arena, maker_value, kernel->body_count + 1);
    m.list = TG_NEW(arena, int32_t, kernel->body_count + 1);
    char *shared = tg_arena_alloc(arena, (size_t)kernel->body_count * 12 + 64);
    if (m.out == NULL || m.values == NULL || m.list == NULL || shared == NULL) return NULL;
    m.out->source = kernel;
    m.out->table = maker_table(isa);
    m.out->shared = shared;
    m.out->acc_slot = -1;
    maker_translate(&m, isa);
    MAKER_DROP(&m, codes);
    MAKER_DROP(&m, slots);
    MAKER_DROP(&m, streams);
    MAKER_DROP(&m, directs);
    MAKER_DROP(&m, segment_streams);
    MAKER_DROP(&m, merged);
    for (int c = 0; c < MAKER_CLASSES; ++c) MAKER_DROP(&m, free_slots[c]);
    if (!m.failed) return m.out;
    if (arena->ctx->status == TG_OK) TG_INTERNAL(arena->ctx, "a kernel that the tile machine cannot translate");
    return NULL;
}

size_t tg_vm_scratch(const tg_vm_kernel *kernel) { return kernel->scratch_bytes; }

#undef MAKER_PUSH
#undef MAKER_DROP
