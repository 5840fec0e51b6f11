#include "inspect/errors/forward_frames.h"

#include <torch/csrc/autograd/function.h>

namespace overdrive::inspect {

std::unique_ptr<torch::autograd::AnomalyMetadata> ForwardFrames::make() {
  return std::make_unique<ForwardFrames>();
}

void ForwardFrames::store_stack() {
  stack_ = CallStack::here(CallStack::Language::kCpp);
  if (stack_.empty()) AnomalyMetadata::store_stack();  // the host has another way
}

void ForwardFrames::assign_parent(const base::NodePtr& parent) {
  parent_ = parent;
  AnomalyMetadata::assign_parent(parent);
}

void ForwardFrames::print_stack(const std::string& node_name) {
  if (stack_.empty()) return AnomalyMetadata::print_stack(node_name);
  TORCH_WARN("Error detected in ", node_name, ". Traceback of forward call that caused the error:\n", text());
  for (auto parent = parent_; parent != nullptr;) {
    auto* of_parent = dynamic_cast<ForwardFrames*>(parent->metadata());
    TORCH_WARN("\n\nPrevious calculation was induced by ", parent->name(),
               ". Traceback of forward call that induced the previous calculation:\n",
               of_parent != nullptr ? of_parent->text() : "  (not recorded)\n");
    parent = of_parent != nullptr ? of_parent->parent_ : nullptr;
  }
}

}  // namespace overdrive::inspect
