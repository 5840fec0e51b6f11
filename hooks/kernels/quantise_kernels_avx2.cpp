// Compiled with AVX2 on, see CMakeLists.txt.
#include "hooks/kernels/quantise_kernels.inl"

namespace overdrive::hooks {

extern const QuantiseKernels kAvx2Kernels;
const QuantiseKernels kAvx2Kernels{"AVX2", to_int8, from_int8, to_bfloat16, from_bfloat16};

}  // namespace overdrive::hooks
