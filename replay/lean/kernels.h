// LibTorch's table of kernels, with the macros that its own build has on this processor. Included by the
// families alone. Empty where that build has other tables (replay/CMakeLists.txt): nothing is lean there.
#pragma once

#ifdef OVERDRIVE_LEAN_KERNELS
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
#endif
