#include "forward_ad/rules/rules.h"

#include "engine/base/no_destructor.h"
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <vector>

namespace overdrive::forward_ad::rules {
namespace {
std::unique_ptr<torch::Library> new_table() {
  return std::make_unique<torch::Library>(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
}

// Kept for good: the dispatcher may be asked while the process ends.
struct Registration {
  torch::Library fallback{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
  std::unique_ptr<torch::Library> table = new_table();
  std::vector<std::unique_ptr<torch::Library>> repairs_in_use;

  Registration() {
    engine::keys::claim(kKey);
    fallback.fallback(torch::CppFunction::makeFallthrough());
    add_product_rules(*table);
    add_elementwise_rules(*table);
    add_activation_rules(*table);
    add_side_by_side_rules(*table);
    add_loss_rules(*table);
    add_attention_rules(*table);
    add_sampling_rules(*table);
    for (const Repair& repair : repairs()) {
      repairs_in_use.push_back(new_table());
      repair.add(*repairs_in_use.back());
    }
    const std::vector<bool> found = faults_found(repairs());
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) repairs_in_use[i].reset();
    }
  }
};

bool are_registered() {
  static const bool registered = [] {
    try {
      static base::NoDestructor<Registration> registration;
      return true;
    } catch (const c10::Error& error) {
      TORCH_WARN("Forward mode does without Overdrive's own rules: ", error.msg());
      return false;
    }
  }();
  return registered;
}

}  // namespace

IncludedHere::IncludedHere() : were_included_(are_included_here()) {
  if (!were_included_ && are_registered()) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

IncludedHere::~IncludedHere() {
  if (!were_included_) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

bool are_included_here() { return c10::impl::tls_is_dispatch_key_included(kKey); }

}  // namespace overdrive::forward_ad::rules
