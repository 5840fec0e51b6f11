// The stack of the calling thread at one moment: Python's frames where the thread runs a Python program, else
// the addresses of C++ frames, whose names are looked up when somebody reads them. A value; any thread may read
// and destroy it. Leaves to its users which moment it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch {
struct CapturedTraceback;
}

namespace overdrive::inspect {

class CallStack {
 public:
  enum class Language { kCpp, kAny };

  // Empty where the processor's stacks cannot be read. kAny takes the GIL on a thread of Python's.
  static CallStack here(Language language);
  bool empty() const { return addresses_.empty() && python_ == nullptr; }

  // A line for each frame of the program, innermost first; all frames where none is of the program. The first
  // reading of C++ frames takes a second or more in a program with large debug information. Of Python's frames
  // it takes the GIL.
  std::string text() const;

 private:
  std::vector<void*> addresses_;
  std::shared_ptr<torch::CapturedTraceback> python_;
};

}  // namespace overdrive::inspect
