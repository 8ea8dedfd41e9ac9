/* The tile machine's instructions compiled for no vector instructions in particular. Owns nothing
 * else. */
#include "run/cpu/vm.h"

#ifndef TG_HAS_SIMD128
#  include <float.h>
#  include <string.h>

#  define TG_ISA_SCALAR
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/vecmath.inc"
#  include "run/cpu/attention_kernels.inc"
#  include "run/cpu/vm_kernels.inc"
#  include "run/cpu/vm_kernels_end.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_vm_scalar_unused; /* a unit must not be empty */
#endif
