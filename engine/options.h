// The options of the engine, with an OVERDRIVE_* variable for each. Plain values: install() copies them, and
// the engine never changes them.
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

// How much of stock's surroundings every backward has.
enum class Exact {
  kAuto,    // all that anything in the process could notice
  kAlways,  // all: a stock GraphTask with its lists of nodes, and new threads for very deep nests
};

// What an error out of a backward tells beyond stock's text.
enum class Errors {
  kPlain,  // nothing: overdrive::error_note() has it
  kNote,   // what() ends with a note: the node, the way to it, the gradients that fit it
  // And with the forward's stack, where anomaly mode recorded it, the backward that released a node, and the
  // operator that changed a saved tensor in place.
  kFull,
};

// Whether backwards look for the first NaN or infinity.
enum class Nan {
  kOff,
  kFirst,  // the first of the process is told to LibTorch's warning handler
};

struct Options {                     // What install() takes.
  Threads threads = Threads::kAuto;  // OVERDRIVE_THREADS=auto|caller|device
  Exact exact = Exact::kAuto;        // OVERDRIVE_EXACT=auto|always
  bool own_nodes = true;             // OVERDRIVE_NATIVE_NODES=0|1
  int check_every = 0;               // OVERDRIVE_CHECK=n: run every n-th backward on stock too
  int keep_memory_mib = -1;          // OVERDRIVE_KEEP_MEMORY=MiB|0, see keep_memory.h; -1: ours to decide
  Errors errors = Errors::kPlain;    // OVERDRIVE_ERRORS=plain|note|full
  Nan nan = Nan::kOff;               // OVERDRIVE_NAN=off|first
  bool verbose = false;              // OVERDRIVE_VERBOSE=0|1|2

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
OVERDRIVE_API const std::vector<Variable>& environment_variables();  // Lives as long as the process.
// A sentence for each variable that is set, is named as ours are and is none of them, with the nearest.
OVERDRIVE_API std::vector<std::string> unknown_environment_variables();

}  // namespace overdrive::engine
