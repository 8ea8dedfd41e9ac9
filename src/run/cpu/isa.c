/* isa: finds out at run time which vector instructions the processor and the operating system
 * offer. Owns the environment variable TENSORGRAD_ISA. Must not know what the instructions are used
 * for. */
#include "run/cpu/isa.h"

#include <stdlib.h>
#include <string.h>

static const char *const isa_names[] = {"scalar", "avx2", "avx512", "neon", "simd128"};

const char *tg_isa_name(tg_isa isa) { return (unsigned)isa < sizeof isa_names / sizeof isa_names[0] ? isa_names[isa] : "scalar"; }

/* What the hardware can do. The built-in also asks XGETBV whether the system saves the wide
 * registers. */
static tg_isa isa_detect(void) {
#if defined(TG_HAS_X86) && defined(__GNUC__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    return avx512 ? TG_ISA_AVX512_ : avx2 ? TG_ISA_AVX2_ : TG_ISA_SCALAR_;
#elif defined(TG_HAS_NEON)
    return TG_ISA_NEON_;
#elif defined(TG_HAS_SIMD128)
    return TG_ISA_SIMD128_;
#else
    return TG_ISA_SCALAR_;
#endif
}

tg_isa tg_cpu_isa(void) {
    tg_isa best = isa_detect();
    const char *wish = getenv("TENSORGRAD_ISA");
    if (wish == NULL || best == TG_ISA_SIMD128_) return best; /* there is no other code then */
    if (strcmp(wish, "scalar") == 0) return TG_ISA_SCALAR_;
    if (strcmp(wish, "avx2") == 0 && best == TG_ISA_AVX512_) return TG_ISA_AVX2_;
    return best;
}
