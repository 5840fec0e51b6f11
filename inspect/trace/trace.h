// A trace of the process's backwards in a file that chrome://tracing and ui.perfetto.dev open. The scope object
// owns it; any number may be open at once, and backwards of every thread go into each. Leaves results as they
// are, and native nodes stay native nodes. docs/guide/inspecting.md says what an event holds.
#pragma once

#include "engine/base/export.h"

#include <memory>
#include <string>

namespace overdrive::inspect {

struct TraceOptions {  // What a trace holds beside nodes.
  // The operators that this thread runs outside a backward are traced too, with an arrow to the node of each.
  bool forward = true;
  // Every node tells how many bytes of CPU tensors are alive after it, of those that were allocated under a
  // trace. The first trace with it begins, and the last one ends, while no other thread allocates tensors.
  bool live_bytes = true;
};

class OVERDRIVE_API Trace {  // While it lives, every backward of the process goes into its file.
 public:
  // "%p" in `file` becomes the number of the process. Throws c10::Error when the file cannot be written, or
  // when Overdrive is not installed.
  explicit Trace(std::string file, TraceOptions options = {});
  // As close(), but an error of the disk is a warning.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Ends the file, on the thread that made the scope. Throws c10::Error when the disk refused a part of it: the
  // file then ends before that part.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace overdrive::inspect
