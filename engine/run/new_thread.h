// Runs a function on a new thread in the caller's host state, and waits for it. For very deep nests
// when the user prefers threads to fresh stacks; the thread ends with the call.
#pragma once

#include <functional>

namespace overdrive::engine {

// An error of `body` comes out here. When the system refuses a thread, `body` runs on the caller.
void call_on_new_thread(const std::function<void()>& body);

}  // namespace overdrive::engine
