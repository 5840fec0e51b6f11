#include "inspect/forward_stack.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <c10/util/Exception.h>

#include <typeinfo>

namespace overdrive::inspect {
namespace {

// LibTorch tells the stack as a warning and in no other way.
struct Collector final : c10::WarningHandler {
  void process(const c10::Warning& warning) override { text += warning.msg(); }
  std::string text;
};

}  // namespace

std::string forward_stack_of(base::Node& node) {
  torch::autograd::AnomalyMetadata* metadata = node.metadata();
  if (metadata == nullptr || typeid(*metadata) != typeid(torch::autograd::AnomalyMetadata)) return "";
  Collector collector;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&collector);
    metadata->print_stack(node.name());
  }
  return collector.text.find("No forward pass information") == std::string::npos ? collector.text : "";
}

}  // namespace overdrive::inspect
