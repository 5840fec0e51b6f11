#include "inspect/graph/graph.h"

#include "engine/native_nodes/native_nodes.h"
#include "engine/plan/serial_order.h"
#include "inspect/graph/repeated_blocks.h"
#include "inspect/graph/root_group.h"
#include "inspect/graph/saved_tensors.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <unordered_map>
#include <unordered_set>

namespace overdrive::inspect {
namespace {

using torch::autograd::AccumulateGrad;

TensorLook look_of(c10::SymIntArrayRef sizes, c10::ScalarType dtype, c10::Device device) {
  TensorLook look{{}, c10::toString(dtype), device.str(), static_cast<int64_t>(c10::elementSize(dtype))};
  for (const c10::SymInt& size : sizes) {
    look.shape.push_back(size.maybe_as_int().value_or(-1));
    look.bytes *= std::max<int64_t>(look.shape.back(), 0);
  }
  return look;
}

TensorLook look_of(const at::Tensor& tensor) {
  return look_of(tensor.is_nested() ? c10::SymIntArrayRef() : tensor.sym_sizes(), tensor.scalar_type(),
                 tensor.device());
}

TensorLook look_of(const torch::autograd::InputMetadata& metadata) {
  const auto dtype = c10::typeMetaToScalarType(metadata.options().dtype());
  if (metadata.is_nested_tensor()) return look_of(c10::SymIntArrayRef(), dtype, metadata.device());
  return look_of(metadata.shape_as_dim_vector(), dtype, metadata.device());
}

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// As it was when the tensor was saved. Tensor::grad_fn() would make a node for a view whose base has changed.
base::NodePtr maker_of(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? base::NodePtr() : meta->grad_fn_;
}

class Reader {
 public:
  Reader(const std::vector<at::Tensor>& tensors, const LeafNames& names) : group_(tensors) {
    for (const auto& [name, tensor] : names) names_.emplace(tensor.unsafeGetTensorImpl(), name);
  }

  Graph read() {
    plan_.build({group_.root().get(), group_.has_several(), {}, true, engine::native_nodes::number_of});
    // The node that stands for several roots is the caller's doing, and not a part of the graph.
    skipped_ = group_.has_several() ? 1 : 0;
    result_.nodes.resize(plan_.nodes.size() - skipped_);
    for (const base::Edge& edge : group_.roots()) {
      result_.roots.push_back(plan_.find(edge.function.get()) - skipped_);
    }
    for (uint32_t i = skipped_; i < plan_.nodes.size(); ++i) read_node(i);
    read_order();
    for (const uint32_t node : in_order_) read_saved(node);
    result_.blocks = blocks();
    return std::move(result_);
  }

 private:
  void read_node(uint32_t index) {
    const engine::PlannedNode& planned = plan_.nodes[index];
    const base::Node& node = *planned.node;
    const uint32_t number = index - skipped_;
    GraphNode& read = result_.nodes[number];
    read.name = node.name();
    read.sequence_nr = node.sequence_nr();
    read.own = planned.native != 0 && !planned.foreign;
    for (uint32_t i = 0; i < node.num_inputs(); ++i) read.gradients.push_back(look_of(node.input_metadata(i)));
    if (const auto* leaf = dynamic_cast<const AccumulateGrad*>(&node)) {
      read.leaf = true;
      read.saved_state = SavedState::kKnown;
      const auto name = names_.find(leaf->variable.unsafeGetTensorImpl());
      if (name != names_.end()) read.leaf_name = name->second;
      if (const void* memory = memory_of(leaf->variable)) leaves_.emplace(memory, number);
    }
    for (uint32_t i = 0; i < plan_.num_edges(index); ++i) {
      const uint32_t target = plan_.targets[planned.first_edge + i];
      if (target == engine::NodeTable::kNone) continue;
      result_.edges.push_back({number, target - skipped_, i, node.next_edge(i).input_nr});
    }
    numbers_.emplace(&node, number);
  }

  void read_order() {
    for (const uint32_t index : engine::serial_order(plan_)) {
      if (index < skipped_) continue;
      GraphNode& node = result_.nodes[index - skipped_];
      node.order = static_cast<uint32_t>(in_order_.size());
      in_order_.push_back(index - skipped_);
      if (!node.leaf) result_.run_order.push_back(index - skipped_);
    }
  }

  void read_saved(uint32_t number) {
    GraphNode& read = result_.nodes[number];
    if (read.leaf) return;
    const SavedTensors saved = saved_tensors_of(node_pointer(number));
    read.saved_state = saved.state;
    for (const at::Tensor& tensor : saved.tensors) {
      SavedLook look{look_of(tensor), Owner::kNoGraph, -1, false};
      find_owner(tensor, look);
      const void* memory = memory_of(tensor);
      look.first_holder = memory != nullptr && holders_.insert(memory).second;
      if (look.first_holder && look.owner != Owner::kLeaf) {
        read.held_bytes += static_cast<int64_t>(tensor.storage().nbytes());
      }
      read.saved.push_back(std::move(look));
    }
  }

  void find_owner(const at::Tensor& tensor, SavedLook& look) const {
    const auto leaf = leaves_.find(memory_of(tensor));
    if (leaf != leaves_.end()) {
      look.owner = Owner::kLeaf;
      look.owner_node = static_cast<int32_t>(leaf->second);
    } else if (const base::NodePtr maker = maker_of(tensor)) {
      look.owner = Owner::kNode;
      const auto number = numbers_.find(maker.get());
      if (number != numbers_.end()) look.owner_node = static_cast<int32_t>(number->second);
    } else if (tensor.requires_grad()) {
      look.owner = Owner::kLeaf;
    }
  }

  base::NodePtr node_pointer(uint32_t number) const { return plan_.nodes[number + skipped_].node->getptr(); }

  // Nodes are alike when their names and the looks of their gradients are.
  std::vector<RepeatedBlock> blocks() const {
    std::unordered_map<std::string, uint32_t> labels;
    std::vector<uint32_t> sequence;
    for (const uint32_t number : result_.run_order) {
      const GraphNode& node = result_.nodes[number];
      std::string label = node.name;
      for (const TensorLook& look : node.gradients) {
        label += ' ' + look.dtype;
        for (const int64_t size : look.shape) label += ',' + std::to_string(size);
      }
      sequence.push_back(labels.emplace(label, static_cast<uint32_t>(labels.size())).first->second);
    }
    std::vector<RepeatedBlock> blocks;
    for (const Repetition& found : find_repetitions(sequence)) {
      blocks.push_back({found.first, found.period, found.count});
    }
    return blocks;
  }

  const RootGroup group_;
  engine::Plan plan_;
  uint32_t skipped_ = 0;
  Graph result_;
  std::vector<uint32_t> in_order_;
  std::unordered_map<const at::TensorImpl*, std::string> names_;
  std::unordered_map<const void*, uint32_t> leaves_;  // by the memory of their tensors
  std::unordered_map<const base::Node*, uint32_t> numbers_;
  std::unordered_set<const void*> holders_;
};

}  // namespace

int64_t Graph::held_bytes() const {
  int64_t bytes = 0;
  for (const GraphNode& node : nodes) bytes += node.held_bytes;
  return bytes;
}

Graph graph(const std::vector<at::Tensor>& tensors, const LeafNames& names) {
  return Reader(tensors, names).read();
}

Graph graph(const at::Tensor& tensor, const LeafNames& names) {
  return graph(std::vector<at::Tensor>{tensor}, names);
}

}  // namespace overdrive::inspect
