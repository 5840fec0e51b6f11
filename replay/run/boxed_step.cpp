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

// The same elements; bytes when both lie alike without gaps. A program of a file may expect another signature.
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
  const auto looks_as = [&](int value, const at::Tensor& tensor) {
    if (value < 0 || !tensor.defined()) return value < 0 && !tensor.defined();
    return bound.tensor(value).sizes() == tensor.sizes() &&
           bound.tensor(value).scalar_type() == tensor.scalar_type();
  };
  if (out.is_tensor()) return looks_as(out.values[0], now.toTensor());
  if (out.kind != Argument::Kind::kTensors) return true;
  const std::vector<at::Tensor> tensors = now.toTensorVector();
  return std::equal(out.values.begin(), out.values.end(), tensors.begin(), tensors.end(), looks_as);
}

bool is_undefined(const Argument& out) {
  return out.kind == Argument::Kind::kConstant && out.constant.isTensor() && !out.constant.toTensor().defined();
}

bool all_are_fresh_tensors(const Operator& op) {
  for (size_t i = 0; i < op.out.size(); ++i) {
    if (!is_undefined(op.out[i]) && (!op.out[i].is_tensor() || !op.fresh[i])) return false;
  }
  return op.fresh.size() == op.out.size();
}

bool all_are_defined(const Operator& op) { return std::none_of(op.out.begin(), op.out.end(), is_undefined); }

const void* begin_of(const at::Tensor& tensor) { return tensor.storage().data(); }

}  // namespace

BoxedStep::BoxedStep(const BoundProgram& bound, const Operator& op)
    : bound_(bound), op_(op), form_(Form::kCopied), handle_(op.handle) {
  for (const Argument& argument : op.in) arguments_.push_back(made(argument));
  const bool any_fresh = std::find(op.fresh.begin(), op.fresh.end(), true) != op.fresh.end();
  if (op.handle.schema().is_mutable() && !any_fresh) {
    form_ = Form::kInPlace;
  } else if (op.writes.empty() && !op.out.empty() && !op.answers && all_are_fresh_tensors(op) &&
             !op.handle.hasTag(at::Tag::nondeterministic_seeded)) {
    makes_new_tensors_ = true;
    const auto out = all_are_defined(op) ? out_form(op.handle) : std::nullopt;
    if (!out) return;
    form_ = Form::kOut;
    handle_ = *out;
    for (const Argument& result : op.out) arguments_.emplace_back(bound.tensor(result.values[0]));
  }
}

BoxedStep::~BoxedStep() {
  if (borrowed_ && borrowed_->load(std::memory_order_acquire) != 0) (void)borrowed_.release();
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
  if (tried.form_ != Form::kOut && form_ == Form::kOut) use_copies();
  copies_lists_ = tried.copies_lists_;
  if (tried.form_ == Form::kBorrowed) use_borrowed_storage(tried.allocations_);
}

bool BoxedStep::has_generated_form() const {
  return form_ == Form::kOut && !handle_.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

void BoxedStep::choose_form() {
  const bool is_generated = has_generated_form();
  if (form_ == Form::kOut && !is_generated && !keeps_results_in_place()) use_copies();
  if ((form_ == Form::kCopied || is_generated) && lends_memory()) return;
  if (is_generated && !keeps_results_in_place()) use_copies();
}

void BoxedStep::put_result_in(size_t result, at::Tensor tensor) {
  if (form_ == Form::kBorrowed) {
    targets_[result] = std::move(tensor);
  } else {
    arguments_[op_.in.size() + result] = std::move(tensor);
  }
}

bool BoxedStep::lies_on_an_operand(const at::Tensor& result) const {
  const auto* begin = static_cast<const char*>(begin_of(result));
  const char* end = begin + result.storage().nbytes();
  const auto meets = [&](int value) {
    if (value < 0) return false;
    const auto* first = static_cast<const char*>(begin_of(bound_.tensor(value)));
    return first < end && begin < first + bound_.tensor(value).storage().nbytes();
  };
  return std::any_of(op_.in.begin(), op_.in.end(), [&](const Argument& argument) {
    return std::any_of(argument.values.begin(), argument.values.end(), meets);
  });
}

bool BoxedStep::lends_memory() {
  if (!makes_new_tensors_) return false;
  std::vector<std::optional<Allocation>> found(op_.out.size());
  c10::Stack trial;
  for (const Argument& argument : op_.in) trial.push_back(made(argument));
  const AllocationLog log;
  try {
    op_.handle.redispatchBoxed(kCpu, &trial);
  } catch (const std::exception&) {
    return false;
  }
  bool any = false;
  for (size_t i = 0; i < op_.out.size(); ++i) {
    if (is_undefined(op_.out[i])) continue;
    const at::Tensor &result = trial[i].toTensor(), &wanted = bound_.tensor(op_.out[i].values[0]);
    if (!result.defined() || result.use_count() > 1 || result.storage().use_count() > 1) return false;
    if (result.strides() != wanted.strides() || result.storage().nbytes() != wanted.storage().nbytes())
      continue;
    if (result.storage_offset() != wanted.storage_offset() || lies_on_an_operand(wanted)) continue;
    found[i] = log.of(begin_of(result));
    any |= found[i].has_value();
  }
  if (any) use_borrowed_storage(std::move(found));
  return any;
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

void BoxedStep::use_borrowed_storage(std::vector<std::optional<Allocation>> allocations) {
  use_copies();
  form_ = Form::kBorrowed;
  allocations_ = std::move(allocations);
  targets_.clear();
  for (const Argument& out : op_.out)
    targets_.push_back(is_undefined(out) ? at::Tensor() : bound_.tensor(out.values[0]));
  if (!borrowed_) borrowed_ = std::make_unique<BorrowedStorage::Count>(0);
}

void BoxedStep::run_on_borrowed_storage() {
  BorrowedStorage::Places places;
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (!allocations_[i] || targets_[i].storage().nbytes() != allocations_[i]->bytes) continue;
    places.push_back({*allocations_[i], targets_[i].storage().unsafeGetStorageImpl()->mutable_data()});
  }
  {
    const BorrowedStorage borrowed(places, *borrowed_);
    handle_.redispatchBoxed(kCpu, &stack_);
  }
  store_borrowed_results(places);
  stack_.clear();
  TORCH_CHECK(borrowed_->load(std::memory_order_acquire) == 0, op_.name, " keeps memory of its result.");
}

// As a rule each result lies where it was wanted. Where one does not, it may lie where another one is wanted.
void BoxedStep::store_borrowed_results(const BorrowedStorage::Places& places) {
  std::vector<size_t> elsewhere;
  for (size_t i = 0; i < stack_.size(); ++i) {
    if (!same_answer(bound_, op_.out[i], stack_[i])) throw OtherAnswer(op_);
    if (is_undefined(op_.out[i])) continue;
    const at::Tensor &result = stack_[i].toTensor(), &target = targets_[i];
    if (begin_of(result) == begin_of(target) && result.strides() == target.strides() &&
        result.storage_offset() == target.storage_offset() && result.scalar_type() == target.scalar_type())
      continue;
    elsewhere.push_back(i);
    if (std::any_of(places.begin(), places.end(),
                    [&](const auto& each) { return each.memory == begin_of(result); }))
      stack_[i] = result.clone();
  }
  for (const size_t i : elsewhere) copy_values(targets_[i], stack_[i].toTensor());
}

void BoxedStep::run() {
  stack_ = arguments_;
  for (size_t i = 0; copies_lists_ && i < op_.in.size(); ++i) {
    if (stack_[i].isList() && op_.in[i].kind != Argument::Kind::kConstant) stack_[i] = made(op_.in[i]);
  }
  if (form_ == Form::kBorrowed) return run_on_borrowed_storage();
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
