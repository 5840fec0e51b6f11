// Values that were the same in all recorded calls: inputs, and small memory that the program only reads. The
// host may have read them through a pointer, as lengths of sequences or an accessor, and then what it made of
// them is a constant of the program. Owned by a Recording; one thread at a time. Compares bytes; the recording
// decides what another value means. Leaves out inputs that the function writes, parameters, and larger memory
// from outside.
#pragma once

#include "replay/record/program.h"

#include <vector>

namespace overdrive::replay {

class ValueGuards {
 public:
  ValueGuards() = default;
  // After the second recorded call, with its buffers.
  ValueGuards(const Program& program, const std::vector<at::Tensor>& buffers);

  // Drops what differs now: a recording with these values is the same program. Right before or after that call.
  void settle(const std::vector<at::Tensor>& inputs);
  // The same doubts, by what another recording of the program has seen.
  void renew(const Program& program, const std::vector<at::Tensor>& buffers);

  // What differs now, as the begin of a sentence; null when all is as it was. The guard has found memory from
  // outside in its place.
  const char* difference(const std::vector<at::Tensor>& inputs) const;
  // Whether the input's buffer holds its values already, once difference() has found nothing.
  bool holds(size_t input) const { return input < inputs_.size() && inputs_[input].defined(); }
  // Whether memory of the program was the same in all recorded calls.
  bool holds_outside(int memory) const;

 private:
  // Memory that no operator of the program names: a composite operator was given it.
  static constexpr int kGiven = -1;
  struct Outside {
    int memory;
    WeakStorage weak;
    const void* address;
    std::string bytes;

    bool same() const;
  };

  void forget(const at::Tensor& buffer);

  // Of each input in turn, its values in the recording; undefined where there is no doubt.
  std::vector<at::Tensor> inputs_;
  std::vector<Outside> outside_;
};

}  // namespace overdrive::replay
