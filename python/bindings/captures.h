// A captured step whose function is one of Python's. Owned by Python through a Held; one thread at a time, as a
// CapturedStep. A graph of a part may outlive it, and is then an error where it would run the function once
// more.
#pragma once

#include "python/bindings/bindings.h"
#include "replay/captured_function.h"

#include <cstdint>
#include <memory>

namespace overdrive::python {

// Numbers of a call in memory of Python, which writes them before it: a call by the bindings would take a
// twentieth of a replay.
struct CallNumbers {
  int64_t variant;   // the set of values that the function reads; each has recordings of its own
  int64_t closed;    // CapturedFunction::limit()
  int64_t count;     // of the numbers that the function is given
  double values[1];  // as many as the function may be given
};

class Capture {
 public:
  // Both are alive as long as this is.
  Capture(int (*function)(), const CallNumbers* numbers, CaptureOptions options, bool is_part);
  ~Capture() { *function_ = nullptr; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  const std::shared_ptr<int (*)()> function_;  // null when this is gone

 public:
  replay::CapturedFunction step;
};

using CapturePtr = HeldPtr<Capture>;

}  // namespace overdrive::python
