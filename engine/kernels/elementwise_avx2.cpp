// Compiled with AVX2 on, see engine/CMakeLists.txt.
#include "engine/kernels/elementwise.inl"

namespace overdrive::kernels {

template <typename T>
const Loops<T>& avx2_loops() {
  return kLoops<T>;
}
template const Loops<float>& avx2_loops();
template const Loops<double>& avx2_loops();

}  // namespace overdrive::kernels
