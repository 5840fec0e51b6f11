// The entry to inspect/: what happens inside a backward.
//
//   overdrive::Trace trace("f.json");                                       // while it lives
//   std::cout << overdrive::profile(step) << overdrive::memory_timeline(step);
//   auto hooks = overdrive::on_backward({.begin = ..., .after_node = ...});  // while it lives
//   file << overdrive::to_html(overdrive::graph(loss));
//   overdrive::StopScope scope(token);       // token.cancel() stops loss.backward() between two nodes
//   overdrive::NanWatch watch;               // watch.first() names the first node that makes a NaN
//   catch (const std::exception& error) { log << overdrive::error_note(error); }
#pragma once

#include "inspect/cancel.h"
#include "inspect/cost/memory_timeline.h"
#include "inspect/cost/profile.h"
#include "inspect/errors/error_note.h"
#include "inspect/graph/graph.h"
#include "inspect/graph/predicted_order.h"
#include "inspect/nan/nan_watch.h"
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
using inspect::to_html;
using inspect::to_json;
using inspect::Trace;
using inspect::TraceOptions;

}  // namespace overdrive
