// The place where the forward made a node, as frames of the program with file and line: the metadata of anomaly
// mode under OVERDRIVE_ERRORS=full. Keeps the addresses of the forward's stack, and looks for their names when
// somebody wants to read them. Owned by its node; made on the forward's thread, read on the backward's. Leaves
// the text around the frames as the host has it.
#pragma once

#include "engine/base/torch_types.h"
#include "inspect/errors/call_stack.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <memory>
#include <string>

namespace overdrive::inspect {

class ForwardFrames final : public torch::autograd::AnomalyMetadata {
 public:
  void store_stack() override;
  void print_stack(const std::string& node_name) override;
  void assign_parent(const base::NodePtr& parent) override;

  // As CallStack::text(); "" where nothing was stored.
  std::string text() const { return stack_.text(); }

  static std::unique_ptr<torch::autograd::AnomalyMetadata> make();

 private:
  CallStack stack_;
  base::NodePtr parent_;
};

}  // namespace overdrive::inspect
