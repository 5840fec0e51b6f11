// The door to inspect/: what happens inside a backward.
//
//   auto hooks = overdrive::on_backward({.begin = ..., .after_node = ...});  // while it lives
#pragma once

#include "inspect/on_backward.h"

namespace overdrive {

using inspect::BackwardHooks;
using inspect::BackwardScope;
using inspect::on_backward;

}  // namespace overdrive
