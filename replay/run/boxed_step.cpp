#include "replay/run/boxed_step.h"

#include "engine/base/no_destructor.h"
#include "replay/record/compare.h"

#include <ATen/core/List.h>

#include <cstring>
#include <unordered_map>

namespace overdrive::replay {

namespace {

constexpr size_t kAlignment = 64;
constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

using Overloads = std::unordered_map<std::string, std::vector<c10::OperatorHandle>>;

const Overloads& out_overloads() {
  static base::NoDestructor<Overloads> all([] {
    Overloads result;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      const auto handle = dispatcher.findSchema(name);
      if (!handle || handle->schema().arguments().empty() || !handle->schema().arguments().back().is_out())
        continue;
      result[name.name].push_back(*handle);
    }
    return result;
  }());
  return *all;
}

// The overload that takes the same arguments, and one more for each result.
std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  const auto& wanted = schema.arguments();
  const auto found = out_overloads().find(schema.name());
  if (found == out_overloads().end()) return std::nullopt;
  for (const c10::OperatorHandle& candidate : found->second) {
    const auto& offered = candidate.schema().arguments();
    if (offered.size() != wanted.size() + schema.returns().size()) continue;
    const bool same =
        std::equal(wanted.begin(), wanted.end(), offered.begin(), [](const auto& a, const auto& b) {
          return a.name() == b.name() && *a.type() == *b.type() && !b.is_out();
        });
    const bool rest = std::all_of(offered.begin() + static_cast<int64_t>(wanted.size()), offered.end(),
                                  [](const auto& argument) { return argument.is_out(); });
    if (same && rest && candidate.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return candidate;
  }
  return std::nullopt;
}

// The same elements; bytes when both lie alike without gaps. A program of a file may expect other looks.
void copy_values(const at::Tensor& to, const at::Tensor& from) {
  TORCH_CHECK(to.sizes() == from.sizes() && to.scalar_type() == from.scalar_type(),
              "an operator made a tensor of other sizes or another type than it was recorded with.");
  if (to.strides() == from.strides() && to.sizes() == from.sizes() && to.is_non_overlapping_and_dense()) {
    if (to.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
  } else {
    to.copy_(from);
  }
}

// A tensor's answer is its form.
bool same_answer(const BoundProgram& bound, const Argument& out, const c10::IValue& now) {
  if (out.kind == Argument::Kind::kConstant) return now.isTensor() || same_constant(now, out.constant);
  return !out.is_tensor() || bound.tensor(out.values[0]).sizes() == now.toTensor().sizes();
}

bool all_are_fresh_tensors(const Operator& op) {
  for (const Argument& out : op.out) {
    if (!out.is_tensor()) return false;
  }
  return std::find(op.fresh.begin(), op.fresh.end(), false) == op.fresh.end();
}

}  // namespace

BoxedStep::BoxedStep(const BoundProgram& bound, const Operator& op)
    : bound_(bound), op_(op), form_(Form::kCopied), handle_(op.handle) {
  for (const Argument& argument : op.in) arguments_.push_back(made(argument));
  const bool any_fresh = std::find(op.fresh.begin(), op.fresh.end(), true) != op.fresh.end();
  if (op.handle.schema().is_mutable() && !any_fresh) {
    form_ = Form::kInPlace;
  } else if (op.writes.empty() && !op.out.empty() && !op.answers && all_are_fresh_tensors(op) &&
             !op.handle.hasTag(at::Tag::nondeterministic_seeded)) {
    if (const auto out = out_form(op.handle)) {
      form_ = Form::kOut;
      handle_ = *out;
      for (const Argument& result : op.out) arguments_.emplace_back(bound.tensor(result.values[0]));
    }
  }
}

c10::IValue BoxedStep::made(const Argument& argument) const {
  const auto tensor = [&](int value) { return value < 0 ? at::Tensor() : bound_.tensor(value); };
  if (argument.kind == Argument::Kind::kConstant) return argument.constant;
  if (argument.kind == Argument::Kind::kTensor) return tensor(argument.values[0]);
  if (argument.kind == Argument::Kind::kTensors) {
    c10::List<at::Tensor> list;
    for (const int value : argument.values) list.push_back(tensor(value));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const int value : argument.values) {
    list.push_back(value < 0 ? std::optional<at::Tensor>() : std::optional<at::Tensor>(tensor(value)));
  }
  return list;
}

void BoxedStep::protect_lists() {
  for (size_t i = 0; i < op_.in.size(); ++i) {
    const Argument& argument = op_.in[i];
    if (!arguments_[i].isList() || argument.kind == Argument::Kind::kConstant) continue;
    const auto given = arguments_[i].toListRef();
    for (size_t k = 0; k < given.size(); ++k) {
      const int value = argument.values[k];
      const bool kept = value < 0 ? !given[k].isTensor() || !given[k].toTensor().defined()
                                  : given[k].isTensor() && given[k].toTensor().is_same(bound_.tensor(value));
      copies_lists_ |= !kept;
    }
  }
}

void BoxedStep::do_as(const BoxedStep& tried) {
  if (tried.form_ == Form::kCopied && form_ != Form::kCopied) use_copies();
  copies_lists_ = tried.copies_lists_;
}

bool BoxedStep::keeps_results_in_place() {
  // No more memory than the result needs, and a storage that refuses to grow: some forms use a result for more.
  std::vector<std::string> memories(op_.out.size());
  c10::Stack trial = arguments_;
  for (size_t i = 0; i < op_.out.size(); ++i) {
    const at::Tensor& result = bound_.tensor(op_.out[i].values[0]);
    const size_t bytes = bound_.program().values[op_.out[i].values[0]].end();
    memories[i].resize(bytes + kAlignment);
    auto* begin = memories[i].data();
    begin += (kAlignment - reinterpret_cast<uintptr_t>(begin) % kAlignment) % kAlignment;
    auto copy = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(begin, at::kCPU), nullptr, false),
        c10::DispatchKeySet(c10::DispatchKey::CPU), result.dtype());
    copy.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(),
                                                      result.storage_offset());
    trial[op_.in.size() + i] = copy;
  }
  const c10::Stack given = trial;
  // A form that warns resizes its results on the way, and would say so in every replay.
  struct Counter final : c10::WarningHandler {
    int count = 0;
    void process(const c10::Warning&) override { ++count; }
  } warnings;
  const c10::WarningUtils::WarningHandlerGuard counted(&warnings);
  try {
    handle_.redispatchBoxed(kCpu, &trial);
  } catch (const std::exception&) {
    return false;
  }
  if (warnings.count > 0) return false;
  for (size_t i = 0; i < op_.out.size(); ++i) {
    const at::Tensor &result = given[op_.in.size() + i].toTensor(),
                     &wanted = bound_.tensor(op_.out[i].values[0]);
    if (result.sizes() != wanted.sizes() || result.strides() != wanted.strides() ||
        result.storage_offset() != wanted.storage_offset()) {
      return false;
    }
  }
  return true;
}

void BoxedStep::use_copies() {
  arguments_.resize(op_.in.size());
  handle_ = op_.handle;
  form_ = Form::kCopied;
}

void BoxedStep::run() {
  stack_ = arguments_;
  for (size_t i = 0; copies_lists_ && i < op_.in.size(); ++i) {
    if (stack_[i].isList() && op_.in[i].kind != Argument::Kind::kConstant) stack_[i] = made(op_.in[i]);
  }
  handle_.redispatchBoxed(kCpu, &stack_);
  if (form_ == Form::kCopied) store_results();
  stack_.clear();
}

// Results that were there before the operator are views of its arguments: nothing is copied.
void BoxedStep::store_results() {
  size_t place = 0;
  for (size_t i = 0; i < stack_.size(); ++i) {
    const Argument& out = op_.out[i];
    if (!same_answer(bound_, out, stack_[i])) throw OtherAnswer(op_);
    if (out.kind == Argument::Kind::kConstant) {
      place += stack_[i].isTensor() ? 1 : 0;
    } else if (out.is_tensor()) {
      if (op_.fresh[place++]) copy_values(bound_.tensor(out.values[0]), stack_[i].toTensor());
    } else {
      const std::vector<at::Tensor> tensors = stack_[i].toTensorVector();
      for (size_t k = 0; k < tensors.size(); ++k) {
        if (op_.fresh[place++]) copy_values(bound_.tensor(out.values[k]), tensors[k]);
      }
    }
  }
}

Step boxed_step(const BoundProgram& bound, const Operator& op) {
  return Step([](Step::State& state) { static_cast<BoxedStep&>(state).run(); },
              std::make_unique<BoxedStep>(bound, op));
}

}  // namespace overdrive::replay
