// The door to inspect/: what happens inside a backward.
//
//   overdrive::Trace trace("f.json");                                       // while it lives
//   std::cout << overdrive::profile(step) << overdrive::memory_timeline(step);
//   auto hooks = overdrive::on_backward({.begin = ..., .after_node = ...});  // while it lives
#pragma once

#include "inspect/cost/memory_timeline.h"
#include "inspect/cost/profile.h"
#include "inspect/on_backward.h"
#include "inspect/trace/trace.h"

namespace overdrive {

using inspect::BackwardHooks;
using inspect::BackwardInfo;
using inspect::BackwardScope;
using inspect::memory_timeline;
using inspect::MemoryKind;
using inspect::MemoryTimeline;
using inspect::NodeInfo;
using inspect::on_backward;
using inspect::profile;
using inspect::Profile;
using inspect::Trace;
using inspect::TraceOptions;

}  // namespace overdrive
