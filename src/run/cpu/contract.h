/* contract: batched matrix products on the CPU. Owns packing, micro-kernels, blocking and the
 * choice among them. Gets the loop nest and operand accesses of a CONTRACT kernel; must not know
 * its epilogue: it hands finished blocks to a sink. */
#ifndef TG_CONTRACT_H
#define TG_CONTRACT_H
#include "kernel/kernel.h"
#include "run/cpu/isa.h"

/* A finished block: acc[i * ld + j], i in [0, rows), j in [0, cols), is the contraction at flat
 * batch index `batch`, flat m index m0 + i, flat n index n0 + j (flat = row-major over the group's
 * dims). The sink may overwrite acc. */
typedef void (*tg_block_sink)(void *user, int worker, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols, float *acc,
                              int64_t ld);

typedef struct tg_contraction tg_contraction;

/* Chooses the method from extents and strides and makes its offset tables in `arena`. NULL
 * recorded. Offsets are separable (off = batch part + m part + k part), so any affine operand
 * works; contiguous ones are fast. Large ones are packed, small ones are not; many tiny batches
 * share one part. */
tg_contraction *tg_contraction_make(tg_arena *arena, const tg_kernel *kernel, tg_isa isa);
/* The same in at most max_parts parts (a caller with one thread wants 1: least packing). The
 * results are the same bits. */
tg_contraction *tg_contraction_make_limited(tg_arena *arena, const tg_kernel *kernel, tg_isa isa, int max_parts);
/* depends on the extents only; results never on threads */
int tg_contraction_parts(const tg_contraction *c);
/* bytes each worker needs, 64-byte aligned */
size_t tg_contraction_scratch(const tg_contraction *c);
/* Many products of few elements each: the sink gets rows of several batches at once, as rows m0 =
 * batch * M + m of batch 0; a block's rows are then adjacent (ld = N). */
bool tg_contraction_is_tiny(const tg_contraction *c);
/* Call it for each worker's scratch before the first part of a run: parts of one worker share its
 * packed copies. */
void tg_contraction_begin(void *scratch);
/* Part `part`. When direct is not NULL, results go to direct[sum_d batch_stride[d] i_d + m *
 * row_stride + n], d over the kernel's batch loops (no sink then). a and b point at element 0 of
 * the operands' buffers. K = 0 cannot happen. */
void tg_contraction_run(const tg_contraction *c, int part, int worker, const float *a, const float *b, float *direct,
                        const int64_t *batch_stride, int64_t row_stride, tg_block_sink sink, void *user, void *scratch);
/* Call it for each part after all of them have run, in any order, before what they make is read: it
 * adds the parts of a long k, in their order, and hands them to `direct` or to the sink, as above.
 * Does nothing where k is in one part. */
void tg_contraction_finish(const tg_contraction *c, int part, int worker, float *direct, const int64_t *batch_stride, int64_t row_stride,
                           tg_block_sink sink, void *user, void *scratch);
/* Whether it does anything. */
bool tg_contraction_finishes(const tg_contraction *c);
/* "packed 12x32", "unpacked", "tiny batch": for plans and tests */
const char *tg_contraction_method(const tg_contraction *c);

/* The naive triple loop, summed in double, for tests. */
void tg_contraction_naive(const tg_kernel *kernel, const float *a, const float *b, float *out /* [batch, m, n] contiguous */);
#endif
