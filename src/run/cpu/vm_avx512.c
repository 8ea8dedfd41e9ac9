/* The tile machine's instructions compiled for AVX-512. Owns nothing else. */
#include "run/cpu/vm.h"

#include <float.h>
#include <string.h>

#ifdef TG_HAS_X86
#  define TG_ISA_AVX512
#  include "run/cpu/isa_begin.h"

#  include "run/cpu/vecmath.inc"
#  include "run/cpu/attention_kernels.inc"
#  include "run/cpu/vm_kernels.inc"
#  include "run/cpu/vm_kernels_end.inc"

#  include "run/cpu/isa_end.h"
#else
typedef int tg_vm_no_avx512; /* a unit must not be empty */
#endif
