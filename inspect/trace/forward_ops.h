// The operators that a thread runs while a trace is open, for the arrows from an operator to its node. A part
// of the trace's scope, on the thread that made it. A backward pauses it, so that nodes run as they do without
// a trace.
#pragma once

#include "inspect/trace/trace_file.h"

#include <memory>

namespace overdrive::inspect {

class ForwardOps {
 public:
  explicit ForwardOps(std::shared_ptr<TraceFile> file);
  ~ForwardOps();
  ForwardOps(const ForwardOps&) = delete;
  ForwardOps& operator=(const ForwardOps&) = delete;

  // Nested on the calling thread.
  static void pause();
  static void resume();

 private:
  const std::shared_ptr<TraceFile> file_;
};

}  // namespace overdrive::inspect
