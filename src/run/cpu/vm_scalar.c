/* The tile machine's instructions compiled for no vector instructions in particular. Owns nothing else. */
#include "run/cpu/vm.h"

#include <string.h>

#define TG_ISA_SCALAR
#include "run/cpu/isa_begin.h"

#include "run/cpu/vecmath.inc"
#include "run/cpu/vm_kernels.inc"
#include "run/cpu/vm_kernels_end.inc"

#include "run/cpu/isa_end.h"
