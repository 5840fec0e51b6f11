#include "python/bindings/bindings.h"

#include "checkpoint/chain/schedule.h"
#include "hooks/hooks.h"

#include <string>

namespace overdrive::python {
namespace {

using hooks::HooksPtr;
using Packer = HeldPtr<HooksPtr>;
using Scope = HeldPtr<hooks::ScopedHooks>;

Packer quantise(const std::string& type, const std::string& rounding, int64_t block, int64_t seed,
                int64_t min_bytes) {
  using hooks::QuantisedType, hooks::Rounding;
  hooks::QuantiseOptions options;
  options.type = one_of<QuantisedType>(
      "quantise", "type", type, {{"int8", QuantisedType::kInt8}, {"bfloat16", QuantisedType::kBFloat16}});
  options.rounding = one_of<Rounding>("quantise", "rounding", rounding,
                                      {{"nearest", Rounding::kNearest}, {"stochastic", Rounding::kStochastic}});
  options.block = block;
  options.seed = static_cast<uint64_t>(seed);
  options.min_bytes = min_bytes;
  return hold<HooksPtr>([&] { return hooks::quantise(options); });
}

Packer spill_to_disk(const std::string& folder, int64_t min_bytes, int64_t max_waiting_bytes,
                     bool drop_cached) {
  return hold<HooksPtr>([&] {
    return hooks::spill_to_disk({.folder = folder,
                                 .min_bytes = min_bytes,
                                 .max_waiting_bytes = max_waiting_bytes,
                                 .drop_cached = drop_cached});
  });
}

Scope enter(const std::optional<Packer>& packer, bool skip_parameters, bool share, bool check_in_place) {
  const hooks::HookOptions options{
      .skip_parameters = skip_parameters, .share = share, .check_in_place = check_in_place};
  return hold<hooks::ScopedHooks>(
      [&] { return hooks::ScopedHooks(packer.has_value() ? **packer.value() : nullptr, options); });
}

struct Schedule : torch::CustomClassHolder {};

}  // namespace

void add_hooks(torch::Library& library) {
  library.class_<Schedule>("Schedule").def_static("next_snapshot", &checkpoint::next_snapshot);
  library.class_<Packer::element_type>("Packer")
      .def_static("keep", [] { return hold<HooksPtr>(hooks::keep); })
      .def_static("quantise", &quantise)
      .def_static("spill_to_disk", &spill_to_disk)
      .def_static("offload_to_cpu",
                  [](int64_t min_bytes) {
                    return hold<HooksPtr>([&] { return hooks::offload_to_cpu({.min_bytes = min_bytes}); });
                  })
      .def_static("compose",
                  [](const Packer& first, const Packer& second) {
                    return hold<HooksPtr>([&] { return hooks::compose(**first, **second); });
                  })
      .def_static("min_bytes",
                  [](int64_t bytes, const Packer& packer) {
                    return hold<HooksPtr>([&] { return hooks::min_bytes(bytes, **packer); });
                  })
      .def_static("schedulable", [](const Packer& packer) {
        return hold<HooksPtr>([&] { return hooks::schedulable(**packer); });
      });
  // Left on the thread that entered it, the innermost first.
  library.class_<Scope::element_type>("PackerScope")
      .def_static("enter", &enter)
      .def_static("leave", [](const Scope& scope) { scope->take(); });
}

}  // namespace overdrive::python
