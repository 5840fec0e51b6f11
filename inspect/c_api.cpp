#include "inspect/c_api.h"

#include "engine/base/c_error.h"
#include "inspect/trace/trace.h"

#include <memory>

struct overdrive_trace {
  overdrive::inspect::Trace trace;
};

extern "C" {

overdrive_trace* overdrive_trace_begin(const char* file, int forward, int live_bytes) {
  return overdrive::base::without_throwing<overdrive_trace*>(nullptr, [&] {
    TORCH_CHECK(file != nullptr, "the file of a trace is missing.");
    return new overdrive_trace{
        overdrive::inspect::Trace(file, {.forward = forward != 0, .live_bytes = live_bytes != 0})};
  });
}

int overdrive_trace_end(overdrive_trace* trace) {
  const std::unique_ptr<overdrive_trace> ended(trace);
  return overdrive::base::without_throwing(0, [&] {
    TORCH_CHECK(ended != nullptr, "a trace is missing.");
    ended->trace.close();
    return 1;
  });
}
}
