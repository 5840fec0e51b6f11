// Lets very deep recursion go on: runs a function on a new stack of the same thread. Uses no
// LibTorch. Stacks nest strictly, last in first out; each is unmapped when its function returns.
#pragma once

#include <functional>

namespace overdrive::engine {

// True when the calling thread has little of its current stack left: an eighth of it.
bool stack_is_low();

// Calls `body` on a new stack. An error of the body comes out on the old one. Throws std::bad_alloc when
// the system gives no memory for the stack.
void call_on_fresh_stack(const std::function<void()>& body);

}  // namespace overdrive::engine
