#include "inspect/cost/step_recorder.h"

#include "engine/operators/tensors_in.h"
#include "engine/plan/plan.h"
#include "hooks/packers/quantise.h"
#include "inspect/graph/saved_tensors.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <utility>

namespace overdrive::inspect {
namespace {

bool is_parameter(const at::Tensor& tensor) {
  return (tensor.is_leaf() && tensor.requires_grad()) ||
         (tensor.is_view() && tensor._base().is_leaf() && tensor._base().requires_grad());
}

RecordedSave read(const at::Tensor& tensor) {
  RecordedSave save;
  if (!tensor.defined() || !tensor.has_storage() || tensor.is_nested() ||
      tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides())
    return save;
  save.memory = tensor.storage().data_ptr().get();
  save.geometry = c10::str(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  save.elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) save.elements *= tensor.stride(i) == 0 ? 1 : tensor.size(i);
  save.bytes = save.elements * static_cast<int64_t>(tensor.itemsize());
  save.int8_takes = tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
                    save.bytes >= hooks::QuantiseOptions().min_bytes && !is_parameter(tensor);
  return save;
}

std::vector<RecordedNode> read(const engine::Plan& plan, uint32_t run, size_t first) {
  std::vector<RecordedNode> nodes(plan.nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    base::Node& node = *plan.nodes[i].node;
    RecordedNode& one = nodes[i];
    one.name = node.name();
    one.sequence = node.sequence_nr();
    one.leaf =
        dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr || one.sequence == UINT64_MAX;
    one.run = run;
    for (uint32_t edge = 0; edge < plan.num_edges(i); ++edge) {
      const uint32_t target = plan.targets[plan.nodes[i].first_edge + edge];
      if (target != engine::NodeTable::kNone) one.next.push_back(static_cast<uint32_t>(first + target));
    }
    if (one.leaf) continue;
    for (const at::Tensor& tensor : saved_tensors_of(node.getptr()).tensors) {
      RecordedSave save = read(tensor);
      if (save.memory != nullptr) one.saved.push_back(std::move(save));
    }
  }
  return nodes;
}

}  // namespace

void StepRecorder::op_begins(const at::RecordFunction& op) {
  RecordedOp one;
  one.name = op.name();
  one.first_sequence = at::sequence_number::peek();
  const auto note = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) one.memory.push_back(tensor.storage().data_ptr().get());
  };
  engine::for_each_input(op, note);
  one.begin = AllocationLog::position();
  const base::MutexLock lock(mutex_);
  if (record_ != nullptr) record_->ops.push_back(std::move(one));
}

void StepRecorder::op_ends() {
  const size_t position = AllocationLog::position();
  const base::MutexLock lock(mutex_);
  if (record_ == nullptr || record_->ops.empty()) return;
  record_->ops.back().end = position;
  record_->ops.back().end_sequence = at::sequence_number::peek();
}

size_t StepRecorder::run_begins(const engine::RunFacts& facts) {
  size_t first = 0;
  uint32_t run = 0;
  {
    const base::MutexLock lock(mutex_);
    if (record_ == nullptr) return 0;
    first = record_->nodes.size();
    run = static_cast<uint32_t>(record_->run_begins.size());
    record_->run_begins.push_back(AllocationLog::position());
    record_->nodes.resize(first + facts.plan.nodes.size());  // kept for this run
  }
  std::vector<RecordedNode> nodes = read(facts.plan, run, first);
  const base::MutexLock lock(mutex_);
  if (record_ != nullptr)
    std::move(nodes.begin(), nodes.end(), record_->nodes.begin() + static_cast<std::ptrdiff_t>(first));
  return first;
}

void StepRecorder::node_begins(size_t place) {
  const size_t position = AllocationLog::position();
  const base::MutexLock lock(mutex_);
  if (record_ != nullptr && place < record_->nodes.size()) record_->nodes[place].begin = position;
}

void StepRecorder::node_ends(size_t place) {
  const size_t position = AllocationLog::position();
  const base::MutexLock lock(mutex_);
  if (record_ != nullptr && place < record_->nodes.size()) record_->nodes[place].end = position;
}

void StepRecorder::stop() {
  const base::MutexLock lock(mutex_);
  record_ = nullptr;
}

}  // namespace overdrive::inspect
