// A thread of ours on which Python code may run, as a hook or a Python function in the graph. Such a thread
// keeps one Python thread state for as long as it lives, as the host's device threads do: threading.local() and
// tracing functions last from one backward to the next. Made and destroyed by the thread, which does not hold
// the GIL in between. Python's functions are looked up by name: no header of Python's is used.
#pragma once

namespace overdrive::engine::python_entry {

class PythonThread {
 public:
  // Does nothing in a process where Python does not run.
  PythonThread();
  // Takes the GIL. Whoever waits for the end of the thread must not hold it.
  ~PythonThread();
  PythonThread(const PythonThread&) = delete;
  PythonThread& operator=(const PythonThread&) = delete;

 private:
  int before_ = 0;         // what PyGILState_Ensure() returned
  void* state_ = nullptr;  // the thread's, while others may run; null: there is none
};

}  // namespace overdrive::engine::python_entry
