#include "inspect/errors/forward_stack.h"

#include "inspect/errors/forward_frames.h"
#include "inspect/errors/forward_places.h"

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

// "" where anomaly mode recorded nothing, and of a Python program, whose stack only Python can print.
std::string anomaly_stack_of(base::Node& node) {
  torch::autograd::AnomalyMetadata* metadata = node.metadata();
  if (const auto* frames = dynamic_cast<const ForwardFrames*>(metadata)) {
    const std::string text = frames->text();
    return text.empty() ? "" : "Traceback of forward call:\n" + text;
  }
  if (metadata == nullptr || typeid(*metadata) != typeid(torch::autograd::AnomalyMetadata)) return "";
  Collector collector;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&collector);
    metadata->print_stack(node.name());
  }
  // Without a recorded stack the warning is its headline alone, or says so.
  const size_t last = collector.text.find_last_not_of(" \n");
  const bool empty = last == std::string::npos || collector.text[last] == ':' ||
                     collector.text.find("No forward pass information") != std::string::npos;
  return empty ? "" : collector.text;
}

}  // namespace

std::string forward_stack_of(base::Node& node) {
  std::string stack = anomaly_stack_of(node);
  if (stack.empty()) stack = forward_place_of(node);
  if (!stack.empty() && stack.back() == '\n') stack.pop_back();
  return stack;
}

}  // namespace overdrive::inspect
