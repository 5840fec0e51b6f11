// LibTorch's table of kernels, with the macros that its own build has on this processor. Included by the
// families alone. Empty where that build has other tables (replay/CMakeLists.txt): nothing is direct there.
#pragma once

#ifdef OVERDRIVE_DIRECT_KERNELS
#if defined(__x86_64__)
#ifndef HAVE_AVX512_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif
#ifndef HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX2_CPU_DEFINITION
#endif
#elif defined(__aarch64__) && !defined(HAVE_SVE_CPU_DEFINITION)
#define HAVE_SVE_CPU_DEFINITION
#endif

#include <ATen/TensorIterator.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Copy.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

namespace overdrive::replay {

// The function that LibTorch's table has for this processor. Its own calls look it up each time, which costs as
// much as the arithmetic of a small tensor.
template <typename Function, typename Name>
Function chosen(at::native::DispatchStub<Function, Name>& /*stub*/) {
  using Stub = at::native::DispatchStub<Function, Name>;
  at::native::DispatchStubImpl table;
  return reinterpret_cast<Function>(table.get_call_ptr(at::kCPU, reinterpret_cast<void*>(Stub::DEFAULT)
#ifdef HAVE_AVX512_CPU_DEFINITION
                                                                     ,
                                                       reinterpret_cast<void*>(Stub::AVX512)
#endif
#ifdef HAVE_AVX2_CPU_DEFINITION
                                                           ,
                                                       reinterpret_cast<void*>(Stub::AVX2)
#endif
#ifdef HAVE_SVE_CPU_DEFINITION
                                                           ,
                                                       reinterpret_cast<void*>(Stub::SVE128),
                                                       reinterpret_cast<void*>(Stub::SVE256)
#endif
                                                           ));
}

}  // namespace overdrive::replay
#endif
