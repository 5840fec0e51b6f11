// The cost of nodes by type: profile() runs the step once and returns a table that prints
// itself in 60 columns. One at a time in the process; the backwards of every thread are counted. Native nodes
// stay native nodes, and results are stock's.
#pragma once

#include "engine/base/export.h"

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace overdrive::inspect {

struct Profile {  // What profile() returns.
  // The nodes of one type. Time is that of the threads that ran them.
  struct Type {
    std::string name;
    uint64_t count = 0;
    uint64_t own_nodes = 0;    // of them, run by the engine itself
    double total_seconds = 0;  // with the backwards nested in them
    double own_seconds = 0;    // without
    int64_t bytes = 0;         // of the gradients that they returned
    double peak_share = 0;     // of the bytes alive at the peak, those that they allocated
  };
  struct Node {  // One node that took long.
    std::string name;
    uint64_t sequence_nr = 0;  // UINT64_MAX of a leaf
    double own_seconds = 0;
    int64_t bytes = 0;
  };

  double seconds = 0;           // of the step
  double backward_seconds = 0;  // of its backwards, without nested ones again
  double engine_seconds = 0;    // of backward_seconds, outside of all nodes of the calling thread
  uint64_t backwards = 0;
  uint64_t nodes = 0;
  int64_t peak_bytes = 0;     // of CPU tensors, beyond what was alive before the step
  std::vector<Type> types;    // the dearest first
  std::vector<Node> dearest;  // the ten with the longest own time
};

OVERDRIVE_API Profile profile(const std::function<void()>& step);  // An error of the step reaches the caller.
OVERDRIVE_API std::ostream& operator<<(std::ostream& out, const Profile& profile);  // The table.
OVERDRIVE_API std::string to_json(const Profile& profile);                          // With every field.
// One page that needs no network.
OVERDRIVE_API std::string to_html(const Profile& profile, const std::string& title = "step");

}  // namespace overdrive::inspect
