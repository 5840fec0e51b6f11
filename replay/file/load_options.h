// How a step file is read, and what a state is told by. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace overdrive {

struct LoadOptions {  // What load_step() takes.
  // Whether the call that the file holds is made, on copies, and its bits compared with the writer's.
  bool check = true;
  // Other bits, as another processor or LibTorch may give them, are a warning and no error.
  bool accept_other_bits = false;
  // Bytes that the tensors of the file, and one of its programs, may take.
  uint64_t most_memory = uint64_t{16} << 30;
};

struct LoadedState {  // Names that load_state() did not find in the file, and those that the step does not
                      // have.
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
};

}  // namespace overdrive
