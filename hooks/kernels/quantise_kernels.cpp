#include "hooks/kernels/quantise_kernels.inl"

namespace overdrive::hooks {

#ifdef OVERDRIVE_AVX2_KERNELS
extern const QuantiseKernels kAvx2Kernels;
#endif

namespace {
constexpr QuantiseKernels kPortable{"portable", to_int8, from_int8, to_bfloat16, from_bfloat16};
}

const QuantiseKernels& portable_quantise_kernels() { return kPortable; }

const QuantiseKernels& quantise_kernels() {
#ifdef OVERDRIVE_AVX2_KERNELS
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) return kAvx2Kernels;
#endif
  return kPortable;
}

}  // namespace overdrive::hooks
