#include "hooks/c_api.h"

#include "engine/base/c_error.h"
#include "hooks/hooks.h"

#include <string_view>

struct overdrive_hooks {
  overdrive::hooks::HooksPtr hooks;
};

struct overdrive_hooks_scope {
  overdrive::hooks::ScopedHooks scope;
};

namespace {

using namespace overdrive::hooks;

// `make` returns the hooks of a new packer.
template <typename Make>
overdrive_hooks* new_packer(Make&& make) {
  return overdrive::base::without_throwing<overdrive_hooks*>(nullptr,
                                                             [&] { return new overdrive_hooks{make()}; });
}

const HooksPtr& part(const overdrive_hooks* packer) {
  TORCH_CHECK(packer != nullptr, "a packer is missing.");
  return packer->hooks;
}

// One of two words.
template <typename Value>
Value choose(const char* option, std::string_view word, std::string_view first, Value value,
             std::string_view second, Value other) {
  TORCH_CHECK(word == first || word == second, "quantise() was given ", option, " = \"", word,
              "\"; it takes \"", first, "\" and \"", second, "\".");
  return word == first ? value : other;
}

}  // namespace

extern "C" {

overdrive_hooks* overdrive_hooks_keep(void) {
  return new_packer([] { return keep(); });
}

overdrive_hooks* overdrive_hooks_quantise(const char* type, const char* rounding, int64_t block, uint64_t seed,
                                          int64_t min_bytes) {
  return new_packer([&] {
    QuantiseOptions options;
    options.type = choose("type", type, "int8", QuantisedType::kInt8, "bfloat16", QuantisedType::kBFloat16);
    options.rounding =
        choose("rounding", rounding, "nearest", Rounding::kNearest, "stochastic", Rounding::kStochastic);
    options.block = block;
    options.seed = seed;
    options.min_bytes = min_bytes;
    return quantise(options);
  });
}

overdrive_hooks* overdrive_hooks_spill_to_disk(const char* folder, int64_t min_bytes, int64_t max_waiting_bytes,
                                               int drop_cached) {
  return new_packer([&] {
    return spill_to_disk({.folder = folder,
                          .min_bytes = min_bytes,
                          .max_waiting_bytes = max_waiting_bytes,
                          .drop_cached = drop_cached != 0});
  });
}

overdrive_hooks* overdrive_hooks_offload_to_cpu(int64_t min_bytes) {
  return new_packer([&] { return offload_to_cpu({.min_bytes = min_bytes}); });
}

overdrive_hooks* overdrive_hooks_compose(const overdrive_hooks* first, const overdrive_hooks* second) {
  return new_packer([&] { return compose(part(first), part(second)); });
}

overdrive_hooks* overdrive_hooks_min_bytes(int64_t bytes, const overdrive_hooks* hooks) {
  return new_packer([&] { return min_bytes(bytes, part(hooks)); });
}

overdrive_hooks* overdrive_hooks_schedulable(const overdrive_hooks* hooks) {
  return new_packer([&] { return schedulable(part(hooks)); });
}

void overdrive_hooks_free(overdrive_hooks* hooks) { delete hooks; }

overdrive_hooks_scope* overdrive_hooks_enter(const overdrive_hooks* hooks, int skip_parameters, int share,
                                             int check_in_place) {
  return overdrive::base::without_throwing<overdrive_hooks_scope*>(nullptr, [&] {
    const HookOptions options{
        .skip_parameters = skip_parameters != 0, .share = share != 0, .check_in_place = check_in_place != 0};
    return new overdrive_hooks_scope{ScopedHooks(hooks == nullptr ? nullptr : hooks->hooks, options)};
  });
}

void overdrive_hooks_leave(overdrive_hooks_scope* scope) { delete scope; }
}
