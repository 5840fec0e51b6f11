#include "replay/file/settings.h"

#include <ATen/Context.h>
#include <c10/util/StringUtil.h>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace overdrive::replay {

namespace {

// Whether denormals are zeros, and how results are rounded.
unsigned float_modes() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;  // the low six bits are flags that arithmetic raises
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<unsigned>(control);
#endif
}

}  // namespace

std::string settings_now() {
  const at::Context& context = at::globalContext();
  const auto precision = [&](at::Float32Op op) {
    return static_cast<int>(context.float32Precision(at::Float32Backend::MKLDNN, op));
  };
  return c10::str("deterministic ", context.deterministicAlgorithms(), ", oneDNN ", context.userEnabledMkldnn(),
                  ", precision ", precision(at::Float32Op::CONV), ' ', precision(at::Float32Op::RNN), ' ',
                  precision(at::Float32Op::MATMUL), ", float modes ", float_modes());
}

}  // namespace overdrive::replay
