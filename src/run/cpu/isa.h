/* isa: which vector instructions this machine has, chosen once at run time, and how one source is
 * compiled for each. A file NAME_ISA.c defines TG_ISA_<ISA> and includes run/cpu/isa_begin.h, the
 * shared NAME.inc, run/cpu/isa_end.h. Only files for ISAs that the target architecture can have
 * contain code (the others are empty units). */
#ifndef TG_ISA_H
#define TG_ISA_H
#include "base/base.h"

typedef enum tg_isa { TG_ISA_SCALAR_ = 0, TG_ISA_AVX2_ = 1, TG_ISA_AVX512_ = 2, TG_ISA_NEON_ = 3, TG_ISA_SIMD128_ = 4 } tg_isa;

enum { TG_LANE_BYTES = 4 }; /* of one lane of a vector: an f32, an i32, or a bool as 0 or -1 */

/* The best one here; the environment variable TENSORGRAD_ISA (scalar, avx2, avx512) may lower it,
 * never raise it. */
tg_isa tg_cpu_isa(void);
const char *tg_isa_name(tg_isa isa);

#if defined(__x86_64__) || defined(_M_X64)
#  define TG_HAS_X86 1
#elif defined(__aarch64__)
#  define TG_HAS_NEON 1
#elif defined(__wasm_simd128__)
#  define TG_HAS_SIMD128 1
#endif
#endif
