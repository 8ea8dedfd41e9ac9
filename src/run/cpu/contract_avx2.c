/* Contractions compiled for AVX2. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#ifdef TG_HAS_X86
#  define TG_ISA_AVX2
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/contract_kernels.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_contract_no_avx2; /* a unit must not be empty */
#endif
