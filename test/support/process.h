// What the operating system knows about this process, and threads with small stacks.
// Everything here is joined or gone when the call returns.
#pragma once

#include <functional>

namespace overdrive::test {

int thread_count();  // from /proc/self/task

// Runs `body` on a thread of its own with a stack of `bytes` beside its thread-locals, and joins it. Rethrows.
void on_stack_of(size_t bytes, const std::function<void()>& body);

}  // namespace overdrive::test
