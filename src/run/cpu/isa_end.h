/* Closes what isa_begin.h opened. No include guard. */
#ifdef TG_ISA_TARGET
#  if defined(__clang__)
TG_PRAGMA(clang attribute pop)
#    undef TG_PRAGMA
#    undef TG_PRAGMA_
#  else
#    pragma GCC pop_options
#  endif
#  undef TG_ISA_TARGET
#endif
#undef TG_ISA_HELPERS
#undef VW
#undef VECTOR_BYTES
#undef TG_NAME
#undef TG_INLINE
#undef vf
#undef vi
#undef vd
#undef vf_unaligned
#undef vi_unaligned
#undef vload
#undef vstore
#undef viload
#undef vistore
#undef vset1
#undef visplat
#undef vfma
#undef vselect
#undef TG_ISA_AVX512
#undef TG_ISA_AVX2
#undef TG_ISA_NEON
#undef TG_ISA_SIMD128
#undef TG_ISA_SCALAR
