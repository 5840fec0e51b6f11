#include "forward_ad/rules/rules.h"

#include "engine/base/no_destructor.h"
#include "forward_ad/rules/rule_support.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace overdrive::forward_ad::rules {

namespace {

// Kept for good: the dispatcher may be asked while the process ends.
struct Registration {
  torch::Library fallback{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
  torch::Library table{torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__};

  Registration() {
    fallback.fallback(torch::CppFunction::makeFallthrough());
    add_product_rules(table);
    add_elementwise_rules(table);
    add_activation_rules(table);
    add_in_place_rules(table);
    add_side_by_side_rules(table);
    add_loss_rules(table);
    add_norm_rules(table);
    add_attention_rules(table);
    add_distance_rules(table);
    add_linear_algebra_rules(table);
    add_reduction_rules(table);
    add_sampling_rules(table);
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

bool include_here() {
  bool included = are_included_here();
  if (!included && are_registered()) c10::impl::tls_set_dispatch_key_included(kKey, true);
  return included;
}

void restore_here(bool were_included) noexcept {
  if (!were_included) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

bool are_included_here() { return c10::impl::tls_is_dispatch_key_included(kKey); }

}  // namespace overdrive::forward_ad::rules
