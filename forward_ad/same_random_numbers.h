// A function that is run several times for one result must be one function: each run is to
// draw the same random numbers. Notes where the generators of LibTorch are that it may use,
// the CPU's and those of its inputs' devices, and goes back there. Owned by who runs the
// function, used by one thread at a time; what other threads draw meanwhile is not its
// business. Private.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace overdrive::forward_ad {

class SameRandomNumbers {
 public:
  explicit SameRandomNumbers(const std::vector<at::Tensor>& inputs);

  // After the first run: forgets the generators that it has not used.
  void keep_what_moved();
  // Before each run after the first.
  void rewind() const;

 private:
  friend class DrawnAgain;
  struct Start {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Start> starts_;
};

// A run in between: at its end the generators are where they were.
class DrawnAgain {
 public:
  explicit DrawnAgain(const SameRandomNumbers& numbers);
  ~DrawnAgain();
  DrawnAgain(const DrawnAgain&) = delete;
  DrawnAgain& operator=(const DrawnAgain&) = delete;

 private:
  SameRandomNumbers before_;
};

}  // namespace overdrive::forward_ad
