// Compiled with AVX2 on, see CMakeLists.txt.
#include "hooks/packers/quantise_kernels.inl"

namespace overdrive::hooks {

extern const QuantiseKernels quantise_kernels_avx2;
const QuantiseKernels quantise_kernels_avx2{"AVX2", to_int8, from_int8, to_bfloat16, from_bfloat16};

}  // namespace overdrive::hooks
