// How the calling thread computes with floats.
#pragma once

#include <cstdint>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace overdrive::base {

// Whether denormals are zeros, and how results are rounded.
inline uint32_t float_modes() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;  // the low six bits are flags that arithmetic raises
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return static_cast<uint32_t>(control);
#endif
}

}  // namespace overdrive::base
