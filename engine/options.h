// What a user can ask of the engine, and the same through OVERDRIVE_* variables.
// Plain values: copied at install(), never changed by the engine.
#pragma once

#include "engine/base/export.h"

#include <string>
#include <vector>

namespace overdrive::engine {

// Which threads run a backward's nodes.
enum class Threads {
  kAuto,    // the calling thread, and one worker per device when several devices take part
  kCaller,  // only ever the calling thread
  kDevice,  // one worker per device, also when only one takes part
};

// Whether get_current_graph_task_nodes_in_graph() and _execution_order() are served.
enum class GraphViews {
  kAuto,  // when a node has a hook or is of a type from outside LibTorch
  kOn,
  kOff,
};

// What a nested backward does when the thread's stack runs low.
enum class Deep {
  kStacks,   // goes on, on a fresh stack of the same thread
  kThreads,  // goes on, on another thread, as stock does
};

// Whether every backward is run inside a stock GraphTask.
enum class Frame {
  kAuto,  // left out where nothing could notice
  kAlways,
};

struct Options {
  Threads threads = Threads::kAuto;            // OVERDRIVE_THREADS=auto|caller|device
  GraphViews graph_views = GraphViews::kAuto;  // OVERDRIVE_GRAPH_VIEWS=auto|on|off
  Deep deep = Deep::kStacks;                   // OVERDRIVE_DEEP=stacks|threads
  Frame frame = Frame::kAuto;                  // OVERDRIVE_FRAME=auto|always
  bool exact_current_node = true;              // OVERDRIVE_CURRENT_NODE=0|1
  bool own_nodes = true;                       // OVERDRIVE_OWN_NODES=0|1
  int check_every = 0;                         // OVERDRIVE_CHECK=n: run every n-th backward on stock too
  bool verbose = false;                        // OVERDRIVE_VERBOSE=0|1

  // The defaults, changed by the environment. A bad value throws c10::Error and
  // names the variable, the value and what is allowed.
  OVERDRIVE_API static Options from_environment();

  friend bool operator==(const Options&, const Options&) = default;
};

// One row per OVERDRIVE_* variable, for `overdrive env` and the documentation test.
struct Variable {
  const char* name;
  const char* allowed;
  const char* meaning;
};
OVERDRIVE_API const std::vector<Variable>& environment_variables();

}  // namespace overdrive::engine
