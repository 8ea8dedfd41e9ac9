/* contract_ops: what one instruction set contributes to contractions: register-tiled micro-kernels,
 * packing of the second operand, dot products. One table per ISA, made by contract_kernels.inc.
 * Must not know blocking, parts or kernels. */
#ifndef TG_CONTRACT_OPS_H
#define TG_CONTRACT_OPS_H
#include "run/cpu/isa.h"

#define TG_CONTRACT_MAX_ROWS 14

/* c[R, cols] (add: +)= a[R, k] b[k, cols], R and the vectors per row fixed by the function. a's
 * element (r, p) is at r row_stride + p k_stride. b's row p is at p b_stride and holds whole
 * vectors. c's row r is at r c_stride; of its last vector only `last` floats (1 .. width) are read
 * or written. Each element is one chain of multiply-adds over p. */
typedef void (*tg_contract_tile_fn)(int64_t k, const float *a, int64_t row_stride, int64_t k_stride, const float *b, int64_t b_stride,
                                    float *c, int64_t c_stride, bool add, int32_t last);

typedef struct tg_contract_ops {
    int32_t width; /* floats per vector */
    /* of a tile of one vector per row, of two */
    int32_t max_rows[2];
    tg_contract_tile_fn tile[2][TG_CONTRACT_MAX_ROWS + 1]; /* [vectors - 1][rows] */
    /* to[p * padded + j] = from[p * k_stride + j] for j < cols, 0 for cols <= j < padded. padded:
     * width or 2 width. */
    void (*pack_rows)(float *to, int64_t padded, const float *from, int64_t k_stride, int64_t k, int64_t cols);
    /* to[p * padded + j] = from[j * column_stride + p]: the transposing copy of columns that are
     * contiguous along k. */
    void (*pack_columns)(float *to, int64_t padded, const float *from, int64_t column_stride, int64_t k, int64_t cols);
    /* y[r * y_stride] = sum_p a[r * row_stride + p] x[p], r < rows */
    void (*dot)(int64_t rows, int64_t k, const float *a, int64_t row_stride, const float *x, float *y, int64_t y_stride);
} tg_contract_ops;

extern const tg_contract_ops tg_contract_ops_scalar;
#ifdef TG_HAS_X86
extern const tg_contract_ops tg_contract_ops_avx2, tg_contract_ops_avx512;
#elif defined(TG_HAS_NEON)
extern const tg_contract_ops tg_contract_ops_neon;
#elif defined(TG_HAS_SIMD128)
extern const tg_contract_ops tg_contract_ops_simd128;
#endif
#endif
