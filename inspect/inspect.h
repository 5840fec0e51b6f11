// The door to inspect/: what happens inside a backward.
//
//   auto hooks = overdrive::on_backward({.begin = ..., .after_node = ...});  // while it lives
//   file << overdrive::to_html(overdrive::graph(loss));
//   overdrive::StopScope scope(token);       // token.cancel() stops loss.backward() between two nodes
//   overdrive::NanWatch watch;               // watch.first() names the first node that makes a NaN
//   catch (const std::exception& error) { log << overdrive::error_note(error); }
#pragma once

#include "inspect/cancel.h"
#include "inspect/error_note.h"
#include "inspect/graph/graph.h"
#include "inspect/graph/predicted_order.h"
#include "inspect/nan_watch.h"
#include "inspect/on_backward.h"

namespace overdrive {

using inspect::BackwardHooks;
using inspect::BackwardScope;
using inspect::on_backward;

}  // namespace overdrive
