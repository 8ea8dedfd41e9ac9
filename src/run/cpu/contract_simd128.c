/* Contractions compiled for WebAssembly SIMD128. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#ifdef TG_HAS_SIMD128
#  define TG_ISA_SIMD128
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/contract_kernels.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_contract_no_simd128; /* a unit must not be empty */
#endif
