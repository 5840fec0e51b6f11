// Tries a piece of work again and again, and lets its first, second, third ... allocation fail. An attempt
// gives the right bits or ends with the error of the memory; nothing stays behind; the next attempt is right.
// One thread. Leaves the work to the tests.
#pragma once

#include "test/stress/memory/no_memory.h"
#include "test/support/pch.h"

#include <functional>
#include <string>
#include <vector>

namespace overdrive::test {

using Tensors = std::vector<at::Tensor>;
// Made without a fault; the call that it returns is the one in which an allocation fails.
using Work = std::function<std::function<Tensors()>()>;

// Prints how many allocations were tried and how many errors came.
void sweep(const std::string& name, Memory which, const Work& work);

}  // namespace overdrive::test
