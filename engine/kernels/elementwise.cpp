#include "engine/kernels/elementwise.inl"

namespace overdrive::kernels {

template <typename T>
const Loops<T>& avx2_loops();  // in elementwise_avx2.cpp, where the processor's family has AVX2

template <typename T>
const Loops<T>& portable_loops() {
  return kLoops<T>;
}

template <typename T>
const Loops<T>& loops() {
#ifdef OVERDRIVE_AVX2_KERNELS
  static const Loops<T>& widest = __builtin_cpu_supports("avx2") ? avx2_loops<T>() : kLoops<T>;
  return widest;
#else
  return kLoops<T>;
#endif
}

template const Loops<float>& portable_loops();
template const Loops<double>& portable_loops();
template const Loops<float>& loops();
template const Loops<double>& loops();

}  // namespace overdrive::kernels
