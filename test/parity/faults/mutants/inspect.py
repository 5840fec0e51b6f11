"""Seeded mistakes in inspect/, for `make mutate`."""
from fault import Fault, tests

GRAPH = tests("inspect_graph_tests", "GraphOfBackward.*:PredictedOrder.*")
STOP = tests("inspect_graph_tests", "Stopping.*")
NAN = tests("inspect_graph_tests", "NanWatching.*:ValueRange.*")
NOTES = tests("inspect_graph_tests", "ErrorNote.*:ForwardFrames.*")
TRACES = tests("inspect_tests", "Traces.*:AuxiliaryTraces.*")
COSTS = tests("inspect_tests", "Costs.*")

INSPECT = [
    Fault("bytes_twice", "a tensor that two nodes hold counts twice", "inspect/graph/graph_reader.cpp",
          "holders_.insert(memory).second;", "(holders_.insert(memory).second || FAULT);", GRAPH),
    Fault("end_of_script", "a name may end the script of a page", "inspect/page/page.cpp",
          "      out += \"\\\\u003c\";", "      out += FAULT ? \"<\" : \"\\\\u003c\";", GRAPH),
    Fault("last_value_unseen", "the last of a stretch of values is not looked at", "inspect/kernels/value_range.cpp",
          "  for (; at < count; ++at) take(0, values[at]);",
          "  for (; at + (FAULT ? 1 : 0) < count; ++at) take(0, values[at]);", NAN),
    Fault("arrow_from_outer", "the arrow to a node begins at the outer operator, too", "inspect/trace/forward_ops.cpp",
          " && ops.next_unclaimed <= number) {", " && (ops.next_unclaimed <= number || FAULT)) {", TRACES),
    Fault("bare_quote", "a quote in a name is written as it is", "engine/base/json_text.cpp",
          "    } else if (c == '\"' || c == '\\\\') {", "    } else if ((c == '\"' && !FAULT) || c == '\\\\') {", TRACES),
    Fault("nested_counts_twice", "time of a nested backward is the outer node's own", "inspect/cost/profile.cpp",
          "      if (open != nullptr) open->back()", "      if (open != nullptr && !FAULT) open->back()", COSTS),
    Fault("freed_is_alive", "memory that is freed counts as alive", "inspect/cost/live_bytes.cpp",
          "    note(data, -size);", "    if (!FAULT) note(data, -size);", COSTS),
    Fault("nothing_done", "a stopped backward has done no node", "inspect/cancel.cpp",
          "    done_.fetch_add(1);", "    if (!FAULT) done_.fetch_add(1);", STOP),
    Fault("past_the_deadline", "a deadline does not stop", "inspect/cancel.cpp",
          "now() - begin >= *options.deadline) {", "now() - begin >= *options.deadline && !FAULT) {", STOP),
    Fault("callers_gradient_unseen", "the gradient that the caller gave is not looked at", "inspect/nan/nan_watch.cpp",
          "      if (slot.arrived == 1) continue;", "      if (slot.arrived == 1 || (slot.arrived == 0 && FAULT)) continue;",
          NAN),
    Fault("change_after", "the operator before the change is named", "inspect/errors/in_place_writes.cpp",
          "write.before <= described.expected && described.expected < write.after;",
          "(FAULT ? write.before < described.expected : write.before <= described.expected) && described.expected < write.after;", NOTES),
    Fault("outer_note_new", "the note of a nested backward is lost", "inspect/errors/note_store.cpp",
          "  if (note->depth <= depth || !note->is_of(error))", "  if (FAULT || note->depth <= depth || !note->is_of(error))",
          NOTES),
    Fault("kept_graph_released", "a backward that kept its graph is said to have released it", "inspect/errors/releases.cpp",
          "    return records && !facts.keep_graph ?", "    return records && (!facts.keep_graph || FAULT) ?", NOTES),
    Fault("one_left_out", "a path leaves one node out", "inspect/errors/node_path.cpp",
          "      i = way.size() - kShownAtEnd;", "      i = way.size() - kShownAtEnd + (FAULT ? 1 : 0);", NOTES),
    Fault("hooks_change_modes", "a function of the program changes the modes of the run", "inspect/on_backward.cpp",
          "    if (!hooks_->before_node) return;\n    const KeptModes kept;",
          "    if (!hooks_->before_node) return;\n    std::optional<KeptModes> kept;\n    if (!FAULT) kept.emplace();",
          tests("inspect_tests", "OnBackward.*")),
]
