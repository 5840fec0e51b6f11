#include "replay/bind/probe_numbers.h"
#include "replay/bind/share.h"
#include "replay/passes/operator_kind.h"
#include "replay/run/boxed_step.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

namespace overdrive::replay {

namespace {

// What a share gives its operator in the place of some arguments, and what that touches.
struct GivenPart {
  std::vector<std::pair<size_t, c10::IValue>> arguments = {};
  Touched touched = {};

  void add(size_t argument, const at::Tensor& tensor, bool is_written) {
    arguments.emplace_back(argument, tensor);
    touch(tensor, is_written);
  }
  void touch(const at::Tensor& tensor, bool is_written) {
    if (tensor.numel() == 0) return;
    std::vector<int64_t> strides(tensor.strides().begin(), tensor.strides().end());
    for (int64_t& stride : strides) stride *= static_cast<int64_t>(tensor.element_size());
    (is_written ? touched.writes : touched.reads)
        .push_back(hull(tensor.const_data_ptr(), tensor.sizes().data(), strides.data(), strides.size(),
                        tensor.element_size()));
  }
};

at::Tensor rows_of(const at::Tensor& tensor, int64_t begin, int64_t end) {
  at::DimVector sizes(tensor.sizes());
  sizes[0] = end - begin;
  auto rows = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  rows.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, tensor.strides(),
                                                    tensor.storage_offset() + begin * tensor.stride(0));
  return rows;
}

std::string_view name_of(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  return name.substr(0, name.find('.'));
}

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether a place of the outermost dimension in the result is made of the same place in all tensors that it is
// given. `grain`: rows that no cut may part.
bool is_made_by_rows(const Operator& op, const std::vector<at::Tensor>& tensors, int64_t& grain) {
  const std::string_view name = name_of(op.name);
  const at::Tensor& out = tensors.back();
  const auto has_rows = [&](const at::Tensor& each) { return each.dim() > 0 && each.size(0) == out.size(0); };
  if (out.dim() == 0 || out.numel() == 0 || !std::all_of(tensors.begin(), tensors.end(), has_rows))
    return false;
  grain = 1;
  if (name == "bmm") return true;
  if (is_among(name, {"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"})) {
    const int64_t dim = op.in[tensors.size() - 1].constant.toInt();
    return dim > 0 || (dim < 0 && dim + out.dim() > 0);
  }
  const bool is_loop = is_loop_over_elements(op) || is_among(name, {"elu", "elu_backward", "softplus"});
  const int64_t row = out.numel() / out.size(0);
  grain = kShareGrain / std::gcd(row, kShareGrain);
  return is_loop && std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& each) {
           return each.is_contiguous() && each.sizes() == out.sizes();
         });
}

bool begins_a_line(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kShareAlignment == 0;
}

// Rows of all tensors that an operator is given, and of its result, which an out= form is given last.
class ByRows {
 public:
  ByRows(const BoundProgram& bound, const Operator& op) {
    if (op.out.size() != 1) return;
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i].kind == Argument::Kind::kConstant) continue;
      if (!op.in[i].is_tensor() || op.in[i].values[0] < 0) return;
      tensors_.push_back(bound.tensor(op.in[i].values[0]));
      places_.push_back(i);
    }
    if (tensors_.empty()) return;
    tensors_.push_back(bound.tensor(op.out[0].values[0]));
    places_.push_back(op.in.size());
    const auto can_be_tried = [](const at::Tensor& each) {
      return each.scalar_type() == at::kFloat && begins_a_line(each);
    };
    can_be_divided_ =
        std::all_of(tensors_.begin(), tensors_.end(), can_be_tried) && is_made_by_rows(op, tensors_, grain_);
  }

  // None where other numbers than those of now would have other bits in parts.
  std::vector<GivenPart> parts(int count, const c10::OperatorHandle& handle,
                               const c10::Stack& arguments) const {
    if (!can_be_divided_) return {};
    const std::vector<int64_t> bounds = share_bounds(tensors_.back().size(0), grain_, count);
    if (bounds.size() < 3 || !have_same_bits(bounds, handle, arguments)) return {};
    return parts_of(tensors_, bounds);
  }

 private:
  std::vector<GivenPart> parts_of(const std::vector<at::Tensor>& tensors,
                                  const std::vector<int64_t>& bounds) const {
    std::vector<GivenPart> parts;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      GivenPart& part = parts.emplace_back();
      for (size_t k = 0; k < tensors.size(); ++k)
        part.add(places_[k], rows_of(tensors[k], bounds[i], bounds[i + 1]), k + 1 == tensors.size());
    }
    return parts;
  }

  // Tries the operator on numbers of all kinds, in other memory. Note [Shares of a product]
  bool have_same_bits(const std::vector<int64_t>& bounds, const c10::OperatorHandle& handle,
                      const c10::Stack& arguments) const {
    std::vector<at::Tensor> whole, divided;
    for (const at::Tensor& each : tensors_)
      whole.push_back(at::empty_strided(each.sizes(), each.strides(), each.options()));
    divided = whole;
    divided.back() = at::empty_strided(whole.back().sizes(), whole.back().strides(), whole.back().options());
    const auto run = [&](const GivenPart& part) {
      c10::Stack stack = arguments;
      for (const auto& [place, argument] : part.arguments) stack[place] = argument;
      handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    };
    const auto same_for = [&](ProbeNumbers kind, std::mt19937_64& random) {
      for (const at::Tensor& each : whole) {
        std::generate_n(each.mutable_data_ptr<float>(), each.storage().nbytes() / sizeof(float),
                        [&] { return probe_number(kind, random); });
      }
      const size_t bytes = whole.back().storage().nbytes();
      std::memcpy(divided.back().mutable_data_ptr(), whole.back().const_data_ptr(), bytes);
      run(parts_of(whole, {0, bounds.back()})[0]);
      for (const GivenPart& part : parts_of(divided, bounds)) run(part);
      return std::memcmp(whole.back().const_data_ptr(), divided.back().const_data_ptr(), bytes) == 0;
    };
    std::mt19937_64 random(11);
    for (const ProbeNumbers kind : kAllProbeNumbers) {
      for (int i = probe_rounds(kind, whole.back().numel()); i-- > 0;) {
        if (!same_for(kind, random)) return false;
      }
    }
    return true;
  }

  std::vector<at::Tensor> tensors_;
  // Among the arguments.
  std::vector<size_t> places_;
  int64_t grain_ = 1;
  bool can_be_divided_ = false;
};

// Where to cut a list of tensors, so that each part has about as many elements.
std::vector<size_t> cuts_of(const std::vector<at::Tensor>& tensors, int count) {
  int64_t all = 0, seen = 0;
  for (const at::Tensor& tensor : tensors) all += tensor.numel();
  std::vector<size_t> cuts{0};
  for (size_t i = 0; i < tensors.size(); ++i) {
    seen += tensors[i].numel();
    const auto share = static_cast<int64_t>(cuts.size());
    if (seen >= all * share / count && share < count && i + 1 < tensors.size()) cuts.push_back(i + 1);
  }
  cuts.push_back(tensors.size());
  return cuts;
}

// Parameters with their state, of an update of all parameters. A parameter's arithmetic sees no other one's.
std::vector<GivenPart> by_parameters(const BoundProgram& bound, const Operator& op, int count) {
  const auto tensors_of = [&](const Argument& argument) {
    std::vector<at::Tensor> tensors;
    for (const int value : argument.values) tensors.push_back(bound.tensor(value));
    return tensors;
  };
  const std::vector<size_t> cuts = cuts_of(tensors_of(op.in[0]), count);
  std::vector<GivenPart> parts(cuts.size() - 1);
  for (size_t k = 0; k < op.in.size(); ++k) {
    const Argument& argument = op.in[k];
    const auto* alias = op.handle.schema().arguments()[k].alias_info();
    const std::vector<at::Tensor> tensors = tensors_of(argument);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (argument.is_tensor()) parts[i].touch(tensors[0], alias && alias->isWrite());
      if (argument.kind != Argument::Kind::kTensors || tensors.empty()) continue;
      if (tensors.size() != cuts.back()) return {};
      c10::List<at::Tensor> some;
      for (size_t m = cuts[i]; m < cuts[i + 1]; ++m) {
        some.push_back(tensors[m]);
        parts[i].touch(tensors[m], alias && alias->isWrite());
      }
      parts[i].arguments.emplace_back(k, some);
    }
  }
  return parts;
}

}  // namespace

std::vector<Share> BoxedStep::shares(int count) const {
  std::vector<GivenPart> parts;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (form_ == Form::kOut && !copies_lists_) parts = ByRows(bound_, op_).parts(count, handle_, arguments_);
  if (form_ == Form::kInPlace && (op_.name == "overdrive::adam_" || op_.name == "overdrive::sgd_"))
    parts = by_parameters(bound_, op_, count);
  std::vector<Share> shares;
  for (GivenPart& part : parts) {
    Step step = step_of([this, arguments = std::move(part.arguments), stack = c10::Stack()]() mutable {
      stack = arguments_;  // also the numbers of this call
      for (const auto& [place, argument] : arguments) stack[place] = argument;
      handle_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
      stack.clear();
    });
    shares.push_back({std::move(step), std::move(part.touched)});
  }
  return shares;
}

}  // namespace overdrive::replay
