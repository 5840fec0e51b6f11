// The forms in which gradients come to a part: those of the present recording, each with a backward of its own,
// and those that backwards have met. Owned by a PartFunction, whose mutex guards it. A form belongs to the
// recording and to the nodes of its calls.
#pragma once

#include "replay/guard/input_signature.h"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace overdrive::replay {

// Of each output; none where no gradient arrives.
using GradientSignatures = std::vector<std::optional<InputSignature>>;

struct PartForm {
  GradientSignatures signatures;
  // Of each use, whether its gradient is wanted.
  std::vector<bool> wanted;
  // Where a backward puts the gradients of the outputs before it runs the part's.
  std::vector<at::Tensor> placeholders;

  bool fits(const std::vector<at::Tensor>& gradients, const std::vector<bool>& those_wanted) const;
};
using PartForms = std::vector<PartForm>;

// The form that fits; -1: none.
int index_of_form(const PartForms& forms, const std::vector<at::Tensor>& gradients,
                  const std::vector<bool>& wanted);
// Whether a replay can have it. Of a sparse one and a conjugated view the bytes do not tell what they are.
bool is_ordinary(const at::Tensor& gradient);

class MetForms {
 public:
  MetForms();

  // A call before the first recording, whose gradients fill what is returned.
  std::shared_ptr<GradientSignatures> begin_call(size_t outputs);

  // What a form that is not recorded asks for.
  enum class Wish : uint8_t {
    kNothing,    // the function runs once more in the backward
    kRecording,  // the next call is recorded with this form, too
    kRefusal,    // forms change too often: the part is eager for good
  };
  void hit(size_t form);
  Wish missed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted);
  // A form that cannot be recorded.
  Wish missed_extraordinary();

  // The forms of the next recording, the most frequent ones first. `any_seen`: whether a backward was seen.
  std::shared_ptr<const PartForms> choose(const std::vector<at::Tensor>& outputs,
                                          const std::vector<bool>& differentiable, size_t uses, bool any_seen);
  // Those of the last recording, if there is one.
  const std::shared_ptr<const PartForms>& recorded() const { return recorded_; }
  // Other numbers in the placeholders: what was the same in two recordings would be taken for a constant.
  void refill();
  bool is_placeholder(const c10::TensorImpl* tensor) const;

 private:
  struct Met {
    PartForm form;
    uint64_t count;
    // Recordings in turn that had it for nothing.
    uint64_t unused = 0;
  };
  std::vector<Met> candidates(const std::vector<at::Tensor>& outputs, const std::vector<bool>& differentiable,
                              size_t uses) const;

  std::shared_ptr<const PartForms> recorded_;
  // Of each recorded form.
  struct Use {
    uint64_t count;
    uint64_t hits;
    uint64_t unused;
  };
  std::vector<Use> uses_;
  // Met since, without placeholders.
  std::vector<Met> met_;
  std::vector<std::shared_ptr<GradientSignatures>> first_calls_;
  // Since the last recording.
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  uint64_t recordings_ = 0;
  // The next call is recorded already: one backward over many calls misses many times before it.
  bool is_wished_ = false;
  at::Generator generator_;
};

}  // namespace overdrive::replay
