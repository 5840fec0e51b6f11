// The random numbers that a region drew: the states of the generators that it moved, as they were before.
// Owned by the region, written by its first run and read by later ones. Which region moved a generator is
// found by comparing; who else draws at the same time is not our business.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/core/Generator.h>

#include <mutex>
#include <vector>

namespace overdrive::checkpoint {

class RngState {
 public:
  RngState() = default;

  // The CPU's generator and those of the tensors' devices, as they are now.
  static RngState of_devices_in_use(const std::vector<at::Tensor>& tensors);

  // Forgets the generators that are still where they were.
  void keep_what_moved();
  bool empty() const { return generators_.empty(); }
  // Whether the CPU's is among those that are left.
  bool has_cpu() const;

 private:
  friend class RngReplay;
  struct State {
    at::Device device;
    at::Generator generator;
    at::Tensor state;
  };
  void add(const at::Device& device);

  std::vector<State> generators_;
};

// Whether anybody has drawn from the CPU's generator since this was made.
class RngWatch {
 public:
  bool have_moved() const;

 private:
  RngState before_ = RngState::of_devices_in_use({});
};

// Puts the generators where they were, for the length of a scope. One thread at a time: they are the
// process's, and two that replay at once would get each other's numbers.
class RngReplay {
 public:
  explicit RngReplay(const RngState& state);
  ~RngReplay();
  RngReplay(const RngReplay&) = delete;
  RngReplay& operator=(const RngReplay&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> alone_;
  std::vector<RngState::State> outer_;
};

}  // namespace overdrive::checkpoint
