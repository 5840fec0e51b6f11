#include "inspect/graph/saved_tensors.h"

#include "engine/host/saved_variable.h"
#include "engine/host/shared_object.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <c10/util/Type.h>

#include <string_view>

namespace overdrive::inspect {
namespace {

namespace dynamo = torch::dynamo::autograd;

// The visitor is defined for LibTorch's nodes and for its template of custom functions. A node of Python wants
// the GIL, and a node of another library may not know the visitor.
bool has_visitor(const base::Node& node) {
  switch (engine::host::kind_of(node)) {
    case engine::host::NodeKind::kHost:
      return true;
    case engine::host::NodeKind::kAccumulateGrad:
      return false;
    case engine::host::NodeKind::kForeign:
      break;
  }
  return std::string_view(c10::demangle(typeid(node).name())).starts_with("torch::autograd::CppNode<");
}

// The errors of unpack() have no types of their own.
SavedState state_described_by(const c10::Error& error) {
  const std::string_view text = error.msg();
  const auto says = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (says("a second time")) return SavedState::kReleased;
  if (says("modified by an inplace operation")) return SavedState::kChanged;
  if (says("saved tensor hooks")) return SavedState::kPacked;
  return SavedState::kUnknown;
}

}  // namespace

SavedTensors saved_tensors_of(const base::NodePtr& node) {
  SavedTensors result;
  if (!has_visitor(*node)) return result;
  const std::scoped_lock lock(engine::host::mutex_of(*node));
  dynamo::AutogradCompilerCall call(dynamo::SizeInput::STATIC);
  dynamo::NodeCall node_call(0, node);
  dynamo::CompiledNodeArgs visitor(call, node_call);
  try {
    node->compiled_args(visitor);
    result.state = SavedState::kKnown;
    if (!call.sv_to_hooks.empty()) result.state = SavedState::kPacked;
  } catch (const c10::Error& error) {
    result.state = state_described_by(error);
  } catch (const std::exception&) {  // of a type that does not know the visitor
    result.state = SavedState::kUnknown;
  }
  result.tensors = std::move(call.tensor_args.inputs);
  return result;
}

}  // namespace overdrive::inspect
