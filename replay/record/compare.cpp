#include "replay/record/compare.h"

#include "replay/record/refusals.h"

#include <ATen/core/Generator.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <sstream>

namespace overdrive::replay {

namespace {

using c10::str;

constexpr const char* kHostValue =
    "; make it an input, a tensor that is changed in place, or tell the step: an optimizer by .optimizer, "
    "another number by watch().";

constexpr const char* kOtherGradient =
    " adds to a gradient that was there before the call, another one in each call; take it away before the "
    "call, or keep it: zero_grad(false), in each step that leaves it.";

constexpr const char* kFilledByHand =
    " is filled through a pointer, with other values in each call; make it an input. LibTorch itself does so "
    "in RReLU() "
    "in training and in pack_padded_sequence(enforce_sorted=False): leave that activation out of the captured "
    "function, "
    "and give sequences that are sorted by their lengths.";

// Memory that has no values of an operator's, and gets them by hand.
bool filled_by_hand(const std::string& name, const Memory& memory) {
  return memory.origin == Origin::kMade && memory.host_filled >= 0 && name.starts_with("aten::empty");
}

Refusal argument_difference(const Operator& x, const Operator& y, size_t i) {
  const Argument &a = x.in[i], &b = y.in[i];
  const std::string& name = x.handle.schema().arguments()[i].name();
  if (a.kind != b.kind || a.values != b.values) {
    return {str("Argument ", name, " of ", x.name,
                " is another tensor in each call; keep one tensor and copy into it."),
            x.name};
  }
  if (a.kind == Argument::Kind::kConstant && !same_constant(a.constant, b.constant)) {
    return {str("Argument ", name, " of ", x.name, " varies: ", text_of(a.constant), ", then ",
                text_of(b.constant), kHostValue),
            x.name};
  }
  return "";
}

// Of an operator that tells the program something of its data, when it tells something else.
Refusal answer_difference(const Program& a, const Program& b, const Operator& x, const Operator& y) {
  for (size_t k = 0; k < std::min(x.out.size(), y.out.size()); ++k) {
    const Argument &was = x.out[k], &is = y.out[k];
    if (was.kind == Argument::Kind::kConstant && !same_constant(was.constant, is.constant)) {
      return {str(title_of_answer(x.name), " gave the program ", text_of(was.constant), " in one call and ",
                  text_of(is.constant), " in the next; return the tensor and read it outside."),
              x.name};
    }
    if (!was.is_tensor() || !is.is_tensor() || was.values[0] < 0 || is.values[0] < 0) continue;
    const auto &sizes = a.values[was.values[0]].sizes, &now = b.values[is.values[0]].sizes;
    if (sizes == now) continue;
    return {
        str("The sizes of ", x.name, "'s result depend on data: ", at::IntArrayRef(sizes), " in one call and ",
            at::IntArrayRef(now), " in the next; use a form of fixed size (where, a product with a mask)."),
        x.name};
  }
  return "";
}

Refusal operator_difference(const Program& a, const Program& b, const MayDiffer& may_differ) {
  const size_t count = std::min(a.operators.size(), b.operators.size());
  for (size_t i = 0; i < count; ++i) {
    const Operator &x = a.operators[i], &y = b.operators[i];
    if (x.name != y.name || x.in.size() != y.in.size()) {
      return {str("Operator ", i, " was ", x.name, " in one call and ", y.name,
                  " in the next; the function must do the same in every call."),
              y.name};
    }
    for (size_t k = 0; k < x.in.size(); ++k) {
      if (may_differ(i, k)) continue;
      if (Refusal other = argument_difference(x, y, k); !other.empty()) return other;
    }
    if (x.answers) {
      if (Refusal other = answer_difference(a, b, x, y); !other.empty()) return other;
    }
    for (size_t k = 0; k < x.out.size(); ++k) {
      if (x.out[k].kind != y.out[k].kind || x.out[k].values != y.out[k].values ||
          (x.out[k].kind == Argument::Kind::kConstant &&
           !same_constant(x.out[k].constant, y.out[k].constant))) {
        return {str("The result of ", x.name, " has other sizes or other memory in each call."), x.name};
      }
    }
    if (x.vanishes != y.vanishes || x.grad_mode != y.grad_mode || x.fresh != y.fresh || x.writes != y.writes) {
      return {str(x.name, " ran in another mode in each call."), x.name};
    }
  }
  if (a.operators.size() != b.operators.size()) {
    return str("One call has ", a.operators.size(), " operators and the next ", b.operators.size(),
               "; the function must do the same in every call.");
  }
  return "";
}

// A number that is wrapped in a tensor is made for one operator. Memory that looks like one and was there in
// the recording before is state.
Refusal carried_state(const Program& a, const Program& b) {
  for (size_t i = 0; i < b.memories.size(); ++i) {
    const Memory& now = b.memories[i];
    if (now.origin != Origin::kConstant || b.is_wrapped(static_cast<int>(i))) continue;
    if (std::any_of(a.memories.begin(), a.memories.end(),
                    [&](const Memory& before) { return before.raw == now.raw; })) {
      const std::string& name = b.operators[std::max(now.first, 0)].name;
      return {str(name,
                  " reads a tensor that the function replaces in each call by another one; keep one tensor and "
                  "copy "
                  "into it."),
              name};
    }
  }
  return "";
}

Refusal memory_difference(const Program& a, const Program& b) {
  if (Refusal other = carried_state(a, b); !other.empty()) return other;
  for (size_t i = 0; i < a.memories.size(); ++i) {
    const Memory &x = a.memories[i], &y = b.memories[i];
    const std::string& name = a.operators[std::max(x.first, 0)].name;
    if (x.origin != y.origin || (x.bytes != y.bytes && x.origin != Origin::kInput) || x.written != y.written ||
        x.input != y.input || x.host_filled != y.host_filled) {
      return {str(name, " uses memory of another kind or size in each call."), name};
    }
    if (x.origin == Origin::kOutside && x.raw != y.raw) {
      if (b.is_gradient(static_cast<int>(i))) {
        return {str(name, kOtherGradient), name, RefusalKind::kGradientReplaced};
      }
      return {str(name,
                  " uses a tensor that was there before the call, another one in each call; "
                  "keep one tensor and copy into it."),
              name, RefusalKind::kReplaced};
    }
    if (x.lives != y.lives)
      return {str("A tensor of ", name, " lives on after one call, but not after the other."), name};
    if ((x.origin == Origin::kConstant || x.host_filled >= 0) && y.number < 0 && x.constant != y.constant) {
      return {filled_by_hand(name, x) ? str(name, "'s memory", kFilledByHand)
                                      : str("A number that ", name, " is given varies", kHostValue),
              name};
    }
  }
  return "";
}

Refusal value_difference(const Program& a, const Program& b) {
  for (size_t i = 0; i < a.values.size(); ++i) {
    const Value &x = a.values[i], &y = b.values[i];
    if (x.memory != y.memory || x.offset != y.offset || x.sizes != y.sizes || x.strides != y.strides ||
        x.type != y.type || x.wrapped != y.wrapped || x.requires_grad != y.requires_grad) {
      const std::string& name = a.operators[std::max(a.memory_of(static_cast<int>(i)).first, 0)].name;
      return {str("A tensor of ", name, " has other sizes or strides in each call."), name};
    }
  }
  return "";
}

Refusal version_difference(const Program& a, const Program& b) {
  if (a.outside.size() != b.outside.size()) return "Other tensors from before the call are used in each call.";
  for (size_t i = 0; i < a.outside.size(); ++i) {
    const OutsideTensor &x = a.outside[i], &y = b.outside[i];
    const bool same_change =
        !x.lives || !y.lives || x.version_after - x.version_before == y.version_after - y.version_before;
    if (x.value != y.value || !same_change) {
      return "A tensor from before the call is changed another number of times in each call.";
    }
  }
  return a.input_bumps == b.input_bumps ? "" : "An input is changed another number of times in each call.";
}

}  // namespace

Refusal first_difference(const Program& a, const Program& b, const MayDiffer& may_differ) {
  if (Refusal other = operator_difference(a, b, may_differ); !other.empty()) return other;
  if (a.memories.size() != b.memories.size() || a.values.size() != b.values.size()) {
    return "The calls use another number of tensors.";
  }
  if (Refusal other = memory_difference(a, b); !other.empty()) return other;
  if (Refusal other = value_difference(a, b); !other.empty()) return other;
  if (Refusal other = version_difference(a, b); !other.empty()) return other;
  const auto same_function = [](const auto& x, const auto& y) { return x->identity == y->identity; };
  if (!std::equal(a.aparts.begin(), a.aparts.end(), b.aparts.begin(), b.aparts.end(), same_function))
    return "Another function runs apart in each call.";
  if (a.backwards != b.backwards || a.outputs != b.outputs)
    return "The outputs have a graph in one call and none, or another one, in the next.";
  if (a.result_versions != b.result_versions)
    return "A result is changed another number of times in each call.";
  return a.results == b.results ? "" : "The function returns another tensor in each call.";
}

bool answers_differ(const Program& a, const Program& b) {
  for (size_t i = 0; i < std::min(a.operators.size(), b.operators.size()); ++i) {
    const Operator &x = a.operators[i], &y = b.operators[i];
    if (x.name != y.name) return false;
    if (x.answers && !answer_difference(a, b, x, y).empty()) return true;
  }
  return false;
}

bool comparable(const c10::IValue& value) {
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!comparable(element)) return false;
    }
    return true;
  }
  if (value.isTensor()) return !value.toTensor().defined() || value.toTensor()._is_zerotensor();
  return value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isComplexDouble() ||
         value.isString() || value.isDevice() || value.isGenerator();
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!same_constant(x[i], y[i])) return false;
    }
    return true;
  }
  if (a.isTensor() && b.isTensor()) {
    const at::Tensor &x = a.toTensor(), &y = b.toTensor();
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type();
  }
  if (a.isNone() && b.isNone()) return true;
  if (a.isBool() && b.isBool()) return a.toBool() == b.toBool();
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isDouble() && b.isDouble()) return same_bits(a.toDouble(), b.toDouble());
  if (a.isComplexDouble() && b.isComplexDouble()) return same_bits(a.toComplexDouble(), b.toComplexDouble());
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isDevice() && b.isDevice()) return a.toDevice() == b.toDevice();
  if (a.isGenerator() && b.isGenerator()) return a.toGenerator() == b.toGenerator();
  return false;
}

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << std::setprecision(17);
  if (value.isGenerator()) {
    text << "a generator";
  } else if (value.isTensor()) {
    text << "no tensor";
  } else if (value.isDouble()) {
    text << value.toDouble();
  } else if (value.isList()) {
    const char* comma = "";
    text << "[";
    for (const c10::IValue& element : value.toListRef()) text << std::exchange(comma, ", ") << text_of(element);
    text << "]";
  } else if (comparable(value)) {
    text << value;
  } else {
    text << "a value of kind " << value.tagKind();
  }
  return text.str();
}

}  // namespace overdrive::replay
