"""Seeded mistakes in checkpoint/, for `make mutate`."""
from fault import Fault, tests

REGION = tests("checkpoint_test", "*Values.*:*State.*:*Determinism*:*Captured.*:*OuterWrites*:*Early*:*Dependency*")
AHEAD = tests("checkpoint_test", "*RunAhead.*:*OuterWrites*")
ON_DEMAND = tests("checkpoint_test", "*OnDemand*:*Policies.*:*Values.*")
CHAIN = tests("checkpoint_test", "*Schedule.*:*Sequential.*")
PIPELINE = tests("checkpoint_pipeline_test", "*")

CHECKPOINT = [
    Fault("written_input", "a region may write to its inputs", "checkpoint/region/region.cpp",
          "        base::version_of(inputs[i]) == versions[i], \"The function of \"",
          "        FAULT || base::version_of(inputs[i]) == versions[i], \"The function of \"", REGION),
    Fault("any_second_run", "a second run may give other outputs", "checkpoint/region/region.cpp",
          "    if (!(again == outputs_[i])) refuse", "    if (!(again == outputs_[i]) && !FAULT) refuse", REGION),
    Fault("writes_raise_version", "a write that is undone leaves its version", "checkpoint/region/outer_writes.cpp",
          "    c10::VariableVersion(noted->first).set_version(noted->second);",
          "    if (!FAULT) c10::VariableVersion(noted->first).set_version(noted->second);", REGION),
    Fault("last_to_leave", "the last of several second runs leaves a value from the middle",
          "checkpoint/region/outer_writes.cpp",
          "is_last ? found->second.value : value);", "is_last && !FAULT ? found->second.value : value);", REGION),
    Fault("gradient_of_neighbour", "an input without a gradient takes the place of the next", "checkpoint/region/tape.cpp",
          "    if (wanted) ++next;", "    if (wanted || FAULT) ++next;", REGION),
    Fault("flag_stays_up", "is_recomputing() stays true after a second run", "checkpoint/region/run_state.cpp",
          "  tls_recomputing = recomputing_;", "  if (!FAULT) tls_recomputing = recomputing_;", REGION),
    Fault("cache_of_casts_stays", "casts that autocast kept in a region outlive it", "checkpoint/region/run_state.cpp",
          "  if (autocast::decrement_nesting() == 0) autocast", "  if (autocast::decrement_nesting() == 0 && !FAULT) autocast",
          REGION),
    Fault("token_of_any_device", "a token of another device is used", "checkpoint/region/dependency.cpp",
          "    if (known.device == device && known", "    if ((known.device == device || FAULT) && known", PIPELINE),
    Fault("ahead_whatever_is_set", "a region that writes from outside runs ahead", "checkpoint/ahead/ahead_region.cpp",
          "|| region_.writes_to_tensors()) return", "|| (region_.writes_to_tensors() && !FAULT)) return", AHEAD),
    Fault("ahead_without_wait", "a run ahead does not wait for what the first run read",
          "checkpoint/ahead/ahead_region.cpp",
          "  first_run_.wait();", "  if (!FAULT) first_run_.wait();", PIPELINE),
    Fault("shared_output_changed", "an output that shares memory may be changed", "checkpoint/early/segment.cpp",
          "  shared_outputs_.check(region_.name());", "  if (!FAULT) shared_outputs_.check(region_.name());", REGION),
    Fault("kept_once", "what a region shall keep goes with its first reader", "checkpoint/on_demand/dropped_tensors.cpp",
          "  return region_.options().keep_recomputed ? tensor", "  return region_.options().keep_recomputed && !FAULT ? tensor",
          ON_DEMAND),
    Fault("hold_what_is_done", "tensors of nodes that are gone are kept", "checkpoint/on_demand/dropped_tensors.cpp",
          "    if (tensors_[i].wanted) std::swap", "    if (tensors_[i].wanted || FAULT) std::swap", ON_DEMAND,
          "memory of a part of the graph that the program let go, until the rest goes"),
    Fault("closed_region_drops", "a region that is closed drops tensors of others", "checkpoint/on_demand/on_demand.cpp",
          "    if (!dropped_->is_open()) return false;", "    if (!dropped_->is_open() && !FAULT) return false;", ON_DEMAND),
    Fault("snapshot_too_far", "the next state is kept one repetition too far", "checkpoint/chain/schedule.cpp",
          "reach(snapshots, repeats - 2)", "reach(snapshots, repeats - (FAULT ? 0 : 2))", CHAIN),
    Fault("last_segment_twice", "the last segment of a chain runs again", "checkpoint/chain/sequential.cpp",
          "    if (end == layers.size() && begin > 0) return", "    if (end == layers.size() && begin > 0 && !FAULT) return", CHAIN),
    Fault("states_stay", "states of a chain stay until its backward ends", "checkpoint/chain/sequential.cpp",
          "      if (last_run_) snapshot.state.release();", "      if (last_run_ && !FAULT) snapshot.state.release();", CHAIN),
    Fault("last_but_one_kept", "the last but one micro-batch is not checkpointed either", "checkpoint/pipeline/pipeline.cpp",
          "    for (size_t i = 0; i + 1 < parts.size(); ++i) parts", "    for (size_t i = 0; i + (FAULT ? 2 : 1) < parts.size(); ++i) parts",
          PIPELINE),
    Fault("copy_without_wait", "a copy to the next stage does not wait for its source", "checkpoint/pipeline/pipeline.cpp",
          "  base::wait_for(aside, c10::impl", "  if (!FAULT) base::wait_for(aside, c10::impl", PIPELINE),
]
