// What the function of a part does with the gradients of leaves, beside what its graph gives them: zero_grad()
// takes them away without an operator, and others read them. Owned by the part's function. The thread of the
// calls writes, under the part's lock; a backward on any thread reads under it.
#pragma once

#include "replay/record/recorder.h"

#include <string>
#include <vector>

namespace overdrive::replay {

class PartGradients {
 public:
  // A gradient before a call of the function. Held weakly, so that the function finds it as it would.
  struct Before {
    WeakTensor leaf;
    std::optional<WeakTensor> gradient;
    int64_t version = 0;
  };
  class PutBack;

  // The leaves that a first recording knows. What was seen before counts no more.
  void learn(const Program& program);

  // Around a recorded call of the function. Returns why the part cannot be replayed; empty when it can.
  std::vector<Before> before(const std::vector<at::Tensor>& inputs) const;
  std::string note(const std::vector<Before>& before, const Recorder& recorder);

  // Whether a leaf has a gradient, or has none, and no recorded call was seen to meet it so.
  bool is_unseen(const std::vector<at::Tensor>& inputs) const;
  // Whether each leaf has a gradient, or none, as in the last recorded call. Elsewhere zero_grad() runs other
  // operators, which make nothing.
  bool are_as_noted() const;
  // Why a replay would use another gradient than the function, or null.
  const char* difference() const;
  // A replay does as the function does.
  void take_away() const;

 private:
  struct Leaf {
    WeakTensor weak;
    c10::TensorImpl* raw;
    // What recorded calls have met.
    bool had_one = false;
    bool had_none = false;
    // What the last one has met.
    bool has_one = false;
    bool is_taken = false;
    // That the operators were given, or that the function changes.
    std::optional<WeakTensor> used = {};
  };
  std::string note(const Before& before, const Recorder& recorder, Leaf& leaf) const;

  std::vector<Leaf> leaves_;
  // Of each input that is a leaf: whether a recorded call has met a gradient there.
  std::vector<bool> inputs_had_one_;
};

// Gradients as they were, at the end of the scope: a function that runs once more takes none away, and what it
// writes goes to copies.
class PartGradients::PutBack {
 public:
  PutBack(const PartGradients& gradients, const std::vector<at::Tensor>& inputs);
  ~PutBack();
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

}  // namespace overdrive::replay
