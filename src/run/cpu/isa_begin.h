/* Opens one ISA's compilation (see isa.h). No include guard: a one-file build opens and closes
 * several in turn. Defines: VW (floats per vector), vf, vi (float and int32 vectors), vd (double
 * vector of VW/2), TG_NAME(f) -> f_avx2 and so on, vload, vstore, vset1, vfma(a, b, c) = a b + c,
 * visplat, vselect(mask, a, b), TG_INLINE. Loads and stores are unaligned. */
#if defined(TG_ISA_AVX512)
#  include <immintrin.h>
#  define VW 16
#  define TG_NAME(f) f##_avx512
#  define TG_ISA_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2"
#elif defined(TG_ISA_AVX2)
#  include <immintrin.h>
#  define VW 8
#  define TG_NAME(f) f##_avx2
#  define TG_ISA_TARGET "avx2,fma,f16c,bmi2"
#elif defined(TG_ISA_NEON)
#  include <arm_neon.h>
#  define VW 4
#  define TG_NAME(f) f##_neon
#elif defined(TG_ISA_SIMD128)
#  include <wasm_simd128.h>
#  define VW 4
#  define TG_NAME(f) f##_simd128
#else
#  define VW 4
#  define TG_NAME(f) f##_scalar
#endif

#ifdef TG_ISA_TARGET
#  if defined(__clang__)
#    define TG_PRAGMA_(x) _Pragma(#    x)
#    define TG_PRAGMA(x) TG_PRAGMA_(x)
TG_PRAGMA(clang attribute push(__attribute__((target(TG_ISA_TARGET))), apply_to = function))
#  else
#    pragma GCC push_options
#    if defined(TG_ISA_AVX512)
#      pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")
#    else
#      pragma GCC target("avx2,fma,f16c,bmi2")
#    endif
#  endif
#endif

#define TG_INLINE static inline __attribute__((always_inline, unused))
#define VECTOR_BYTES (TG_LANE_BYTES * VW)
#define vf TG_NAME(tg_vf)
#define vi TG_NAME(tg_vi)
#define vd TG_NAME(tg_vd)
#define vf_unaligned TG_NAME(tg_vfu)
#define vi_unaligned TG_NAME(tg_viu)
typedef float vf __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double vd __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef float vf_unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(TG_LANE_BYTES), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(VECTOR_BYTES), aligned(TG_LANE_BYTES), may_alias));

#define vload TG_NAME(tg_vload)
#define vstore TG_NAME(tg_vstore)
#define viload TG_NAME(tg_viload)
#define vistore TG_NAME(tg_vistore)
#define vset1 TG_NAME(tg_vset1)
#define visplat TG_NAME(tg_visplat)
#define vfma TG_NAME(tg_vfma)
#define vselect TG_NAME(tg_vselect)
/* A one-file build opens an ISA once per shared source: the helpers are defined the first time. */
#if defined(TG_ISA_AVX512)
#  ifndef TG_ISA_HELPERS_AVX512
#    define TG_ISA_HELPERS_AVX512
#    define TG_ISA_HELPERS
#  endif
#elif defined(TG_ISA_AVX2)
#  ifndef TG_ISA_HELPERS_AVX2
#    define TG_ISA_HELPERS_AVX2
#    define TG_ISA_HELPERS
#  endif
#elif defined(TG_ISA_NEON)
#  ifndef TG_ISA_HELPERS_NEON
#    define TG_ISA_HELPERS_NEON
#    define TG_ISA_HELPERS
#  endif
#elif defined(TG_ISA_SIMD128)
#  ifndef TG_ISA_HELPERS_SIMD128
#    define TG_ISA_HELPERS_SIMD128
#    define TG_ISA_HELPERS
#  endif
#else
#  ifndef TG_ISA_HELPERS_SCALAR
#    define TG_ISA_HELPERS_SCALAR
#    define TG_ISA_HELPERS
#  endif
#endif
#ifdef TG_ISA_HELPERS
TG_INLINE vf vload(const float *p) { return *(const vf_unaligned *)p; }
TG_INLINE void vstore(float *p, vf v) { *(vf_unaligned *)p = v; }
TG_INLINE vi viload(const int32_t *p) { return *(const vi_unaligned *)p; }
TG_INLINE void vistore(int32_t *p, vi v) { *(vi_unaligned *)p = v; }
TG_INLINE vf vset1(float x) { return x - (vf){0}; }
TG_INLINE vi visplat(int32_t x) { return x - (vi){0}; }
TG_INLINE vf vfma(vf a, vf b, vf c) {
#  if defined(TG_ISA_AVX512)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#  elif defined(TG_ISA_AVX2)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#  elif defined(TG_ISA_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#  elif defined(__wasm_relaxed_simd__)
    return (vf)wasm_f32x4_relaxed_madd((v128_t)a, (v128_t)b, (v128_t)c);
#  else
    return a * b + c;
#  endif
}
/* mask lanes are 0 or -1 */
TG_INLINE vf vselect(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
#endif
