/* Contractions compiled for any processor. Owns nothing else. */
#include "run/cpu/contract_ops.h"

#define TG_ISA_SCALAR
#include "run/cpu/isa_begin.h"

#include "run/cpu/contract_kernels.inc"

#include "run/cpu/isa_end.h"
