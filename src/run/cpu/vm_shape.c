/* vm_shape: how a kernel's loops become rows, columns and outside loops of tiles. Merges loops that
 * every access walks as one, orders them by the strides of stores, and picks as columns the loop
 * along which most memory is contiguous. Depends on extents and strides only. Must not know
 * instructions' arithmetic or ISAs. */
#include "run/cpu/vm.h"

int32_t tg_vm_affine_count(const tg_kernel *kernel) {
    int32_t count = 0;
    for (int32_t i = 0; i < kernel->body_count; ++i) count += 1 + kernel->body[i].bound_count;
    return count;
}

static bool shape_touches_memory(const tg_instruction *instruction) {
    switch (instruction->op) {
    case TG_K_LOAD:
    case TG_K_GATHER:
    case TG_K_STORE:
    case TG_K_SCATTER: return true;
    default: return false;
    }
}

static int32_t shape_collect(const tg_kernel *kernel, tg_vm_affine_use *uses) {
    int32_t count = 0;
    for (int32_t i = 0; i < kernel->body_count; ++i) {
        const tg_instruction *instruction = &kernel->body[i];
        bool memory = shape_touches_memory(instruction);
        if (memory || instruction->op == TG_K_INDEX) uses[count++] = (tg_vm_affine_use){instruction, &instruction->at, memory};
        for (int32_t b = 0; b < instruction->bound_count; ++b)
            uses[count++] = (tg_vm_affine_use){instruction, &instruction->bounds[b].at, false};
    }
    return count;
}

/* A group of loops that may be merged among themselves: kernel loop numbers, innermost last. After
 * merging, each is a run of loops with the strides of the last. */
typedef struct shape_group {
    int32_t count;
    int32_t loop[TG_MAX_LOOP];
    int64_t extent[TG_MAX_LOOP];
} shape_group;

static void shape_fill(shape_group *group, const tg_kernel *kernel, int32_t begin, int32_t end) {
    group->count = 0;
    for (int32_t d = begin; d < end; ++d)
        if (kernel->extent[d] != 1) {
            group->loop[group->count] = d;
            group->extent[group->count++] = kernel->extent[d];
        }
}

static int64_t shape_magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Stable: larger strides of `at` further out. Loops that `at` does not walk stay before the one
 * they preceded. */
static void shape_sort(shape_group *group, const tg_affine *at) {
    for (int32_t i = 1; i < group->count; ++i)
        for (int32_t j = i; j > 0; --j) {
            int64_t outer = shape_magnitude(at->stride[group->loop[j - 1]]), inner = shape_magnitude(at->stride[group->loop[j]]);
            if (outer == 0 || inner == 0 || outer >= inner) break;
            int32_t loop = group->loop[j];
            int64_t extent = group->extent[j];
            group->loop[j] = group->loop[j - 1], group->extent[j] = group->extent[j - 1];
            group->loop[j - 1] = loop, group->extent[j - 1] = extent;
        }
}

static bool shape_walks_as_one(const tg_vm_affine_use *uses, int32_t count, int32_t outer, int32_t inner, int64_t inner_extent) {
    for (int32_t u = 0; u < count; ++u)
        if (uses[u].at->stride[outer] != uses[u].at->stride[inner] * inner_extent) return false;
    return true;
}

static void shape_merge(shape_group *group, const tg_vm_affine_use *uses, int32_t count) {
    int32_t kept = 0;
    for (int32_t d = 0; d < group->count; ++d) {
        if (kept > 0 && shape_walks_as_one(uses, count, group->loop[kept - 1], group->loop[d], group->extent[d])) {
            group->loop[kept - 1] = group->loop[d];
            group->extent[kept - 1] *= group->extent[d];
        } else {
            group->loop[kept] = group->loop[d];
            group->extent[kept++] = group->extent[d];
        }
    }
    group->count = kept;
}

/* Price per element of running columns along `loop`: contiguous 1, the same element 0.2, anything
 * else a gather; a short row pays its start on few elements. */
static double shape_price(const tg_vm_affine_use *uses, int32_t count, int32_t loop, int64_t extent) {
    double price = 0;
    int32_t accesses = 0;
    for (int32_t u = 0; u < count; ++u) {
        if (!uses[u].is_access || uses[u].instruction->level == TG_LEVEL_UNIFORM) continue;
        int64_t stride = uses[u].at->stride[loop];
        bool store = uses[u].instruction->op == TG_K_STORE;
        price += stride == 0 ? 0.2 : stride == 1 ? 1 : stride == -1 ? 3 : store ? 8 : 5;
        ++accesses;
    }
    return price + (2.0 * accesses + 4) * 4.0 / (double)extent;
}

/* Position in the group of the cheapest column loop; the last one wins ties. -1 for an empty
 * group. */
static int32_t shape_cheapest(const shape_group *group, const tg_vm_affine_use *uses, int32_t count, double *price) {
    int32_t best = -1;
    for (int32_t d = group->count - 1; d >= 0; --d) {
        double p = shape_price(uses, count, group->loop[d], group->extent[d]);
        if (best < 0 || p < *price) best = d, *price = p;
    }
    return best;
}

static void shape_add_row(tg_vm_loops *loops, int32_t loop, int64_t extent) {
    loops->row_lead[loops->row_count] = loop;
    loops->row_extent[loops->row_count++] = extent;
    loops->rows *= extent;
}
static void shape_add_outside(tg_vm_loops *loops, int32_t loop, int64_t extent) {
    loops->outside_lead[loops->outside_count] = loop;
    loops->outside_extent[loops->outside_count++] = extent;
    loops->outside *= extent;
}
static void shape_set_col(tg_vm_loops *loops, const shape_group *group, int32_t position) {
    if (position < 0) return;
    loops->col_lead = group->loop[position];
    loops->cols = group->extent[position];
}
static void shape_add_rows_except(tg_vm_loops *loops, const shape_group *group, int32_t position) {
    for (int32_t d = 0; d < group->count; ++d)
        if (d != position) shape_add_row(loops, group->loop[d], group->extent[d]);
}
static void shape_add_outside_except(tg_vm_loops *loops, const shape_group *group, int32_t position) {
    for (int32_t d = 0; d < group->count; ++d)
        if (d != position) shape_add_outside(loops, group->loop[d], group->extent[d]);
}

/* The access whose strides order the loops: the first store, else the first load (at a level at
 * least `level`). */
static const tg_affine *shape_leader(const tg_vm_affine_use *uses, int32_t count, tg_level level) {
    const tg_affine *load = NULL;
    for (int32_t u = 0; u < count; ++u) {
        if (!uses[u].is_access || uses[u].instruction->level < level) continue;
        if (uses[u].instruction->op == TG_K_STORE) return uses[u].at;
        if (load == NULL && uses[u].instruction->op == TG_K_LOAD) load = uses[u].at;
    }
    return load;
}

static void shape_map(const tg_kernel *kernel, const tg_vm_affine_use *uses, int32_t count, tg_vm_loops *loops) {
    shape_group all;
    shape_fill(&all, kernel, 0, kernel->loop_count);
    const tg_affine *leader = shape_leader(uses, count, TG_LEVEL_OUTER);
    if (leader != NULL) shape_sort(&all, leader);
    shape_merge(&all, uses, count);
    double price = 0;
    int32_t col = shape_cheapest(&all, uses, count, &price);
    shape_set_col(loops, &all, col);
    shape_add_rows_except(loops, &all, col);
}

static bool shape_counts_positions(const tg_kernel *kernel) {
    for (int32_t i = 0; i < kernel->body_count; ++i)
        if (kernel->body[i].op == TG_OP_ARGMAX || kernel->body[i].op == TG_OP_ARGMIN) return true;
    return false;
}

static tg_vm_mode shape_reduce(const tg_kernel *kernel, const tg_vm_affine_use *uses, int32_t count, tg_vm_loops *loops) {
    shape_group outer, inner;
    shape_fill(&outer, kernel, 0, kernel->outer_count);
    shape_fill(&inner, kernel, kernel->outer_count, kernel->loop_count);
    const tg_affine *leader = shape_leader(uses, count, TG_LEVEL_OUTER);
    if (leader != NULL) shape_sort(&outer, leader);
    /* The flat position that ARGMAX and ARGMIN give is in the loops' own order. */
    leader = shape_leader(uses, count, TG_LEVEL_ELEMENT);
    if (leader != NULL && !shape_counts_positions(kernel)) shape_sort(&inner, leader);
    shape_merge(&outer, uses, count);
    shape_merge(&inner, uses, count);
    double rows_price = 0, cols_price = 0;
    int32_t last = inner.count - 1;
    if (last >= 0) rows_price = shape_price(uses, count, inner.loop[last], inner.extent[last]);
    int32_t col = shape_cheapest(&outer, uses, count, &cols_price);
    if (last >= 0 && (col < 0 || rows_price <= cols_price)) {
        shape_set_col(loops, &inner, last);
        shape_add_rows_except(loops, &outer, -1);
        shape_add_outside_except(loops, &inner, last);
        return TG_VM_ROWS;
    }
    shape_set_col(loops, &outer, col);
    shape_add_rows_except(loops, &inner, -1);
    shape_add_outside_except(loops, &outer, col);
    return TG_VM_COLUMNS;
}

/* rows_of_batches: blocks are rows of several batches, so batch loops are row loops. */
static void shape_epilogue(const tg_kernel *kernel, const tg_vm_affine_use *uses, int32_t count, bool rows_of_batches, tg_vm_loops *loops) {
    shape_group batch, m, n;
    const int32_t rows_begin = rows_of_batches ? 0 : kernel->m_begin;
    shape_fill(&batch, kernel, 0, rows_begin);
    shape_fill(&m, kernel, rows_begin, kernel->n_begin);
    shape_fill(&n, kernel, kernel->n_begin, kernel->outer_count);
    shape_merge(&batch, uses, count);
    shape_merge(&m, uses, count);
    shape_merge(&n, uses, count);
    shape_add_outside_except(loops, &batch, -1);
    loops->batch_outside = loops->outside_count;
    loops->turned = n.count == 0 && m.count > 0;
    const shape_group *along = loops->turned ? &m : &n, *down = loops->turned ? &n : &m;
    shape_add_outside_except(loops, along, along->count - 1);
    shape_set_col(loops, along, along->count - 1);
    shape_add_rows_except(loops, down, -1);
}

static void shape_scatter(const tg_kernel *kernel, const tg_vm_affine_use *uses, int32_t count, tg_vm_loops *loops) {
    shape_group n;
    int32_t d = kernel->m_begin;
    shape_fill(&n, kernel, 0, d);
    shape_merge(&n, uses, count);
    shape_add_rows_except(loops, &n, -1);
    if (d < kernel->loop_count && kernel->extent[d] != 1) loops->col_lead = d, loops->cols = kernel->extent[d];
}

void tg_vm_shape_loops(const tg_kernel *kernel, bool rows_of_batches, tg_vm_affine_use *uses, tg_vm_mode *mode, tg_vm_loops *loops) {
    int32_t count = shape_collect(kernel, uses);
    *loops = (tg_vm_loops){.rows = 1, .cols = 1, .outside = 1, .col_lead = -1};
    switch (kernel->kind) {
    case TG_KERNEL_MAP:
        shape_map(kernel, uses, count, loops);
        *mode = TG_VM_MAP;
        break;
    case TG_KERNEL_REDUCE: *mode = shape_reduce(kernel, uses, count, loops); break;
    case TG_KERNEL_CONTRACT:
        shape_epilogue(kernel, uses, count, rows_of_batches, loops);
        *mode = TG_VM_EPILOGUE;
        break;
    case TG_KERNEL_SCATTER_ADD:
        shape_scatter(kernel, uses, count, loops);
        *mode = TG_VM_SCATTERING;
        break;
    case TG_KERNEL_ATTENTION: break; /* has no tiles */
    }
}

void tg_vm_make_stream(const tg_vm_loops *loops, const tg_affine *at, tg_vm_stream *out) {
    *out = (tg_vm_stream){.offset = at->offset, .affine = true};
    if (loops->col_lead >= 0) out->col = at->stride[loops->col_lead];
    for (int32_t d = 0; d < loops->outside_count; ++d) out->outside_stride[d] = at->stride[loops->outside_lead[d]];
    for (int32_t d = 0; d < loops->row_count; ++d) {
        out->row_stride[d] = at->stride[loops->row_lead[d]];
        if (d > 0 && out->row_stride[d - 1] != out->row_stride[d] * loops->row_extent[d]) out->affine = false;
        out->row = out->row_stride[d];
    }
    if (!out->affine) out->row = 0;
}
