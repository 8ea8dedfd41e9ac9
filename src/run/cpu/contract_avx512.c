/* Contractions compiled for AVX-512. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#ifdef TG_HAS_X86
#  define TG_ISA_AVX512
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/contract_kernels.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_contract_no_avx512; /* a unit must not be empty */
#endif
