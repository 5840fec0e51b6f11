#include "replay/record/environment.h"

#include "engine/base/float_modes.h"
#include "engine/base/saved_hooks_slot.h"
#include "engine/base/torch_types.h"
#include "engine/host/host_rules.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace overdrive::replay {

namespace {

constexpr std::array kPrecise{at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL};

uint64_t settings_of(const at::Context& context) {
  uint64_t bits = 0;
  for (const bool flag : {context.deterministicAlgorithms(), context.deterministicAlgorithmsWarnOnly(),
                          context.deterministicFillUninitializedMemory(), context.deterministicMkldnn(),
                          context.userEnabledMkldnn(), context.userEnabledNNPACK(),
                          context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
                          context.userEnabledMathSDP(), context.userEnabledOverrideableSDP(),
                          context.allowFP16ReductionCPU(), context.allowFP16BF16ReductionMathSDP()}) {
    bits = bits << 1 | static_cast<uint64_t>(flag);
  }
  for (const auto op : kPrecise) {
    bits = bits << 4 | static_cast<uint64_t>(context.float32Precision(at::Float32Backend::MKLDNN, op));
  }
  return bits;
}

}  // namespace

Environment Environment::now() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  return {.included = keys.included_.raw_repr(),
          .excluded = keys.excluded_.raw_repr(),
          .settings = settings_of(at::globalContext()),
          .float_control = base::float_modes(),
          .threads = at::get_num_threads(),
          .in_parallel_region = at::in_parallel_region(),
          .default_type = at::get_default_dtype_as_scalartype(),
          .autocast_type = at::autocast::get_autocast_dtype(at::kCPU),
          .autocast_cache = at::autocast::is_autocast_cache_enabled(),
          .in_autocast_context = is_in_autocast_context(),
          .grad_mode = at::GradMode::is_enabled(),
          .inference_mode = c10::InferenceMode::is_enabled()};
}

bool Environment::same_settings(const Environment& other) const {
  return settings == other.settings && float_control == other.float_control && threads == other.threads &&
         in_parallel_region == other.in_parallel_region && default_type == other.default_type;
}

KernelSettings KernelSettings::now() {
  const at::Context& context = at::globalContext();
  KernelSettings settings{.deterministic = context.deterministicAlgorithms(),
                          .warns_only = context.deterministicAlgorithmsWarnOnly(),
                          .deterministic_mkldnn = context.deterministicMkldnn(),
                          .mkldnn = context.userEnabledMkldnn(),
                          .nnpack = context.userEnabledNNPACK(),
                          .precisions = {},
                          .default_type = at::get_default_dtype_as_scalartype()};
  for (size_t i = 0; i < kPrecise.size(); ++i)
    settings.precisions[i] = context.float32Precision(at::Float32Backend::MKLDNN, kPrecise[i]);
  return settings;
}

void KernelSettings::set() const {
  const KernelSettings before = now();
  if (*this == before) return;
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, warns_only);
  context.setDeterministicMkldnn(deterministic_mkldnn);
  context.setUserEnabledMkldnn(mkldnn);
  context.setUserEnabledNNPACK(nnpack);
  if (default_type != before.default_type) at::set_default_dtype(at::scalarTypeToTypeMeta(default_type));
  for (size_t i = 0; i < kPrecise.size(); ++i) {
    if (precisions[i] != before.precisions[i])
      context.setFloat32Precision(at::Float32Backend::MKLDNN, kPrecise[i], precisions[i]);
  }
}

bool is_in_autocast_context() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting() > 0;
}

const char* reason_to_run_eagerly() {
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly mode is on";
  if (at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks()) {
    return "hooks on saved tensors are active";
  }
  if (base::SavedHooksSlot::active()) return "hooks on saved tensors are active";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0)) return "a forward-mode level is open";
  if (engine::host::compiled_autograd() == engine::host::CompiledAutograd::kOn)
    return "compiled autograd is on";
  // Casts of weights that nobody forgets: eager calls go on with those of the first one.
  if (at::autocast::is_autocast_enabled(at::kCPU) && at::autocast::is_autocast_cache_enabled() &&
      !is_in_autocast_context())
    return "autocast is on outside of a context, and keeps its casts of weights";
  return nullptr;
}

}  // namespace overdrive::replay
