// What can be seen of tensors, errors and thread-local state, as text. Looking leaves no trace:
// no op is dispatched for a dense tensor, nothing is kept alive, no copy-on-write storage is
// written to. Any thread.
#pragma once

#include <exception>
#include <string>
#include <unordered_map>
#include <vector>

#include "test/parity/fuzz/torch.h"

namespace overdrive::fuzz {

// One run of a program as one engine shows it.
struct Observation {
  std::vector<std::string> lines;
  // The most bytes that tensors took at once, one number a top-level backward; compared by "not above".
  std::vector<int64_t> peaks;
};

// Type, sizes, strides, flags, version, grad_fn and a hash of the bits.
std::string describe(const Tensor& t);

// Names storages by the order in which they are shown, so that text says who shares with whom.
// Only for tensors that all live while it does: addresses are used again.
class StorageNames {
 public:
  std::string name(const Tensor& t);

 private:
  std::unordered_map<const void*, size_t> names_;
};

// Type and message: msg() of a c10::Error (what() has a backtrace), what() of another.
std::string describe(const std::exception_ptr& error);

// Everything of the thread's state that a node or hook could leave changed.
std::string thread_state();

}  // namespace overdrive::fuzz
