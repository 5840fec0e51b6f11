// The modes and settings of the thread and of LibTorch that decide which kernels an operator runs, or how. A
// value; made on the calling thread in every call of a captured step, compared as a whole.
#pragma once

#include <ATen/Context.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstdint>

namespace overdrive::replay {

struct Environment {
  uint64_t included;
  uint64_t excluded;
  uint64_t settings;
  uint32_t float_control;
  int threads;
  // Kernels run on one thread there.
  bool in_parallel_region;
  at::ScalarType default_type;
  // Of an autocast that the function enters without naming them.
  at::ScalarType autocast_type;
  bool autocast_cache;
  // Casts of weights outlive the call. replay/record/kept_casts.h
  bool in_autocast_context;
  bool grad_mode;
  bool inference_mode;

  static Environment now();
  bool operator==(const Environment&) const = default;
  // Apart from modes that an operator is recorded with, as grad mode.
  bool same_settings(const Environment& other) const;
};

// Settings of LibTorch by which operators of a backward choose their kernels when it runs, whatever the forward
// has chosen by.
struct KernelSettings {
  bool deterministic, warns_only, deterministic_mkldnn, mkldnn, nnpack;
  std::array<at::Float32Precision, 3> precisions;
  at::ScalarType default_type;

  static KernelSettings now();
  bool operator==(const KernelSettings&) const = default;
  // Of the process: the setters take effect at once.
  void set() const;
};

// Has them in its scope.
class KernelSettingsScope {
 public:
  explicit KernelSettingsScope(const KernelSettings& settings) { settings.set(); }
  ~KernelSettingsScope() { before_.set(); }
  KernelSettingsScope(const KernelSettingsScope&) = delete;
  KernelSettingsScope& operator=(const KernelSettingsScope&) = delete;

 private:
  const KernelSettings before_ = KernelSettings::now();
};

// Whether the thread is inside an autocast context, switched on or off. Casts of weights are kept until the
// outermost one ends, so that a call inside sees those of another call.
bool is_in_autocast_context();

// Why a call must run eagerly although it is known: hooks on saved tensors, anomaly mode, an open forward-mode
// level, compiled autograd. Null when there is no reason.
const char* reason_to_run_eagerly();

}  // namespace overdrive::replay
