/* Contractions compiled for any processor. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#ifndef TG_HAS_SIMD128
#  define TG_ISA_SCALAR
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/contract_kernels.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_contract_scalar_unused; /* a unit must not be empty */
#endif
