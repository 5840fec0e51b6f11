// Work beside the nodes of a backward, for a trace: packing, unpacking, second runs, micro-batches, waits of
// streams. A part of the trace's scope. Work of every thread goes into every open trace. Leaves to the lower
// folders what such work is (engine/base/auxiliary_span.h).
#pragma once

#include "inspect/trace/trace_file.h"

#include <memory>

namespace overdrive::inspect {

class SideTrace {
 public:
  explicit SideTrace(std::shared_ptr<TraceFile> file);
  ~SideTrace();
  SideTrace(const SideTrace&) = delete;
  SideTrace& operator=(const SideTrace&) = delete;

 private:
  const std::shared_ptr<TraceFile> file_;
};

}  // namespace overdrive::inspect
