// Counts the user-space instructions that this thread retires, where the kernel and the
// processor let us. Owned by whoever measures; counts the thread that built it only.
#pragma once

#include <cstdint>
#include <optional>

namespace overdrive::bench {

class InstructionCounter {
 public:
  InstructionCounter();
  ~InstructionCounter();
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;

  bool works() const { return file_ >= 0; }
  // Instructions since the counter was built; nothing when it does not work.
  std::optional<uint64_t> read() const;

 private:
  int file_;
};

}  // namespace overdrive::bench
