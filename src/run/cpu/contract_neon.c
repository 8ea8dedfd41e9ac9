/* Contractions compiled for NEON. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#ifdef TG_HAS_NEON
#  define TG_ISA_NEON
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/contract_kernels.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_contract_no_neon; /* a unit must not be empty */
#endif
