#include "replay/part/part_form.h"

#include "replay/record/program.h"
#include "replay/record/refusals.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// Each has operators and memory of its own. The part's function runs once more for the others.
constexpr size_t kMostForms = 6;
// A form that backwards have met and no recording has. More of them are forgotten.
constexpr size_t kMostMet = 16;
// A recording costs as much as so many backwards that run the function once more.
constexpr uint64_t kMissesOfAForm = 8;
// Where no recorded form comes, so many others are met before the next recording, which has all of them.
constexpr uint64_t kMissesInTurn = 3;
// Of forms that come and do not come again.
constexpr uint64_t kMostRecordings = 8;
constexpr uint64_t kMostUnused = 3;

bool same(const std::optional<InputSignature>& a, const std::optional<InputSignature>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->sizes == b->sizes && a->strides == b->strides && a->type == b->type && a->keys == b->keys &&
         a->requires_grad == b->requires_grad && a->views_require_grad == b->views_require_grad &&
         a->alignment == b->alignment;
}

bool same(const PartForm& a, const PartForm& b) {
  return a.wanted == b.wanted &&
         std::equal(a.signatures.begin(), a.signatures.end(), b.signatures.begin(), b.signatures.end(),
                    [](const auto& x, const auto& y) { return same(x, y); });
}

InputSignature dense_signature(const at::Tensor& output) {
  return InputSignature({at::empty(output.sizes(), at::TensorOptions(output.scalar_type()))}, 0);
}

// A tensor that looks so.
at::Tensor made(const InputSignature& signature) {
  const size_t element = c10::elementSize(signature.type);
  const size_t bytes = end_of(signature.sizes, signature.strides, signature.alignment / element, element);
  const at::TensorOptions options = at::TensorOptions(signature.type);
  const at::Tensor memory = at::empty({static_cast<int64_t>(bytes / element)}, options);
  return memory.as_strided(signature.sizes, signature.strides, signature.alignment / element);
}

// As far as it may be one of these outputs.
PartForm fitted(PartForm form, const std::vector<at::Tensor>& outputs, const std::vector<bool>& differentiable,
                size_t uses) {
  if (form.wanted.size() != uses) form.wanted.assign(uses, true);
  form.signatures.resize(outputs.size());
  form.placeholders.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!differentiable[i]) form.signatures[i].reset();
    if (form.signatures[i] && form.signatures[i]->sizes != outputs[i].sizes())
      form.signatures[i] = dense_signature(outputs[i]);
  }
  return form;
}

}  // namespace

bool is_ordinary(const at::Tensor& gradient) { return refusal_of(gradient, "").empty(); }

bool PartForm::fits(const std::vector<at::Tensor>& gradients, const std::vector<bool>& those_wanted) const {
  if (those_wanted != wanted || gradients.size() != signatures.size()) return false;
  for (size_t i = 0; i < signatures.size(); ++i) {
    if (signatures[i].has_value() != gradients[i].defined()) return false;
    if (signatures[i] && !(is_ordinary(gradients[i]) && signatures[i]->fits(gradients[i]))) return false;
  }
  return true;
}

int index_of_form(const PartForms& forms, const std::vector<at::Tensor>& gradients,
                  const std::vector<bool>& wanted) {
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].fits(gradients, wanted)) return static_cast<int>(i);
  }
  return -1;
}

MetForms::MetForms() : generator_(at::detail::createCPUGenerator(20261123)) {}

std::shared_ptr<GradientSignatures> MetForms::begin_call(size_t outputs) {
  auto signatures = std::make_shared<GradientSignatures>(outputs);
  if (recorded_) return signatures;
  if (first_calls_.size() == kMostMet) first_calls_.erase(first_calls_.begin());
  first_calls_.push_back(signatures);
  return signatures;
}

void MetForms::hit(size_t form) {
  ++hits_;
  ++uses_[form].hits;
}

MetForms::Wish MetForms::missed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted) {
  ++misses_;
  auto known = std::find_if(met_.begin(), met_.end(),
                            [&](const Met& each) { return each.form.fits(gradients, wanted); });
  if (known == met_.end()) {
    if (met_.size() == kMostMet) {
      met_.erase(std::min_element(met_.begin(), met_.end(),
                                  [](const Met& a, const Met& b) { return a.count < b.count; }));
    }
    PartForm form{.signatures = GradientSignatures(gradients.size()), .wanted = wanted, .placeholders = {}};
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) form.signatures[i] = InputSignature({gradients[i].detach()}, 0);
    }
    known = met_.insert(met_.end(), {std::move(form), 0});
  }
  ++known->count;
  const bool in_turn = misses_ > hits_ && misses_ >= kMissesInTurn;
  if (is_wished_ || (!in_turn && known->count < kMissesOfAForm)) return Wish::kNothing;
  is_wished_ = true;
  if (++recordings_ <= kMostRecordings) return Wish::kRecording;
  return misses_ > hits_ ? Wish::kRefusal : Wish::kNothing;
}

MetForms::Wish MetForms::missed_extraordinary() {
  ++misses_;
  return misses_ > hits_ && ++recordings_ > kMostRecordings ? Wish::kRefusal : Wish::kNothing;
}

std::vector<MetForms::Met> MetForms::candidates(const std::vector<at::Tensor>& outputs,
                                                const std::vector<bool>& differentiable, size_t uses) const {
  std::vector<Met> all;
  const auto add = [&](const PartForm& given, uint64_t count, uint64_t unused = 0) {
    PartForm form = fitted(given, outputs, differentiable, uses);
    const auto known =
        std::find_if(all.begin(), all.end(), [&](const Met& each) { return same(each.form, form); });
    known == all.end() ? all.push_back({std::move(form), count, unused}) : void(known->count += count);
  };
  for (size_t i = 0; i < uses_.size(); ++i) {
    const uint64_t unused = uses_[i].hits > 0 ? 0 : uses_[i].unused + 1;
    // What was frequent long ago need not be so now.
    if (unused < kMostUnused) add((*recorded_)[i], uses_[i].count / 2 + uses_[i].hits, unused);
  }
  for (const Met& each : met_) add(each.form, each.count);
  for (const auto& signatures : first_calls_) {
    const bool any =
        std::any_of(signatures->begin(), signatures->end(), [](const auto& each) { return each.has_value(); });
    if (any) add({.signatures = *signatures, .wanted = {}, .placeholders = {}}, 1);
  }
  std::stable_sort(all.begin(), all.end(), [](const Met& a, const Met& b) { return a.count > b.count; });
  if (all.size() > kMostForms) all.resize(kMostForms);
  return all;
}

std::shared_ptr<const PartForms> MetForms::choose(const std::vector<at::Tensor>& outputs,
                                                  const std::vector<bool>& differentiable, size_t uses,
                                                  bool any_seen) {
  std::vector<Met> all = candidates(outputs, differentiable, uses);
  if (all.empty()) {
    GradientSignatures signatures(outputs.size());
    for (size_t i = 0; i < outputs.size() && !any_seen; ++i) {
      if (differentiable[i]) signatures[i] = dense_signature(outputs[i]);
    }
    all.push_back(
        {fitted({.signatures = signatures, .wanted = {}, .placeholders = {}}, outputs, differentiable, uses),
         0});
  }
  auto forms = std::make_shared<PartForms>();
  uses_.clear();
  for (Met& each : all) {
    each.form.placeholders.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (each.form.signatures[i]) each.form.placeholders[i] = made(*each.form.signatures[i]);
    }
    forms->push_back(std::move(each.form));
    uses_.push_back({each.count, 0, each.unused});
  }
  recorded_ = std::move(forms);
  met_.clear();
  first_calls_.clear();
  hits_ = misses_ = 0;
  is_wished_ = false;
  return recorded_;
}

void MetForms::refill() {
  if (!recorded_) return;
  for (const PartForm& form : *recorded_) {
    for (const at::Tensor& placeholder : form.placeholders) {
      if (!placeholder.defined()) continue;
      // Elements of an expanded gradient share memory.
      const auto count = static_cast<int64_t>(placeholder.storage().nbytes() / placeholder.element_size());
      const auto type = at::isComplexType(placeholder.scalar_type()) ? at::kComplexDouble : at::kDouble;
      const at::Tensor numbers = at::empty({count}, at::TensorOptions(type)).normal_(0, 1, generator_);
      at::empty({0}, placeholder.options()).set_(placeholder.storage(), 0, {count}, {1}).copy_(numbers);
    }
  }
}

bool MetForms::is_placeholder(const c10::TensorImpl* tensor) const {
  return std::any_of(recorded_->begin(), recorded_->end(), [&](const PartForm& form) {
    return std::any_of(form.placeholders.begin(), form.placeholders.end(),
                       [&](const at::Tensor& each) { return each.unsafeGetTensorImpl() == tensor; });
  });
}

}  // namespace overdrive::replay
