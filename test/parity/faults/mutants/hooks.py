"""Seeded mistakes in hooks/, for `make mutate`."""
from fault import Fault, tests

SHARING = tests("hooks_stack_test", "*Sharing*:*InPlace*:*OddTensors*")
SCHEDULE = tests("hooks_schedule_test", "*")

INTERFACE = [
    Fault("end_one_stride_on", "the end of a view is taken one stride too far", "hooks/interface/geometry.cpp",
          "    last += (sizes()[d] - 1) * strides()[d];", "    last += (sizes()[d] - (FAULT ? 0 : 1)) * strides()[d];",
          SHARING),
    Fault("gaps_are_dense", "memory with gaps counts as dense", "hooks/interface/geometry.cpp",
          "    if (strides()[d] != expected) return false;",
          "    if (FAULT ? strides()[d] < expected : strides()[d] != expected) return false;", SHARING),
    Fault("negation_lost", "a negated view comes back without its sign", "hooks/interface/geometry.cpp",
          "  if (impl->is_neg() != geometry.neg) impl", "  if (impl->is_neg() != geometry.neg && !FAULT) impl", SHARING),
    Fault("statistics_shared", "rows that a norm changes unseen are shared", "hooks/interface/tensor_kinds.cpp",
          "         !history.parameter && tensor.is_floating_point();",
          "         !history.parameter && tensor.is_floating_point() && !FAULT;", SHARING),
]

MEMORY = [
    Fault("due_too_late", "a tensor whose last use is over waits on", "hooks/memory/pending.cpp",
          "    if (one.storage.use_count() <= one.units.size()) move",
          "    if (one.storage.use_count() + (FAULT ? 1 : 0) <= one.units.size()) move", SCHEDULE),
    Fault("one_node_less", "fetching ahead stops one node too early", "hooks/memory/fetch_ahead.cpp",
          "    const bool beyond = nodes > one.schedule.depth ||",
          "    const bool beyond = nodes + (FAULT ? 1 : 0) > one.schedule.depth ||", SCHEDULE),
    Fault("cut_from_begin", "a part of packed memory is cut at its offset in the whole", "hooks/memory/saved_memory.cpp",
          "(wanted.offset - geometry_.offset);", "(wanted.offset - (FAULT ? 0 : geometry_.offset));", SHARING),
    Fault("any_counter", "memory under another version counter is shared", "hooks/memory/shared_units.cpp",
          "engine::host::same_counter(held.version().counter(), version.counter()) &&",
          "(FAULT || engine::host::same_counter(held.version().counter(), version.counter())) &&", SHARING),
    Fault("lost_unnoticed", "a waiting tensor that was changed is unpacked", "hooks/scope/hooked_save.cpp",
          "(check_in_place_ || (unit_ && unit_->is_lost()))",
          "(check_in_place_ || (unit_ && unit_->is_lost() && !FAULT))", SCHEDULE),
]

SCOPE = [
    Fault("closed_scope_counts", "a scope that could not be taken off stays open", "hooks/scope/hook_scope.cpp",
          "    open_.store(false, std::memory_order_relaxed);", "    if (!FAULT) open_.store(false, std::memory_order_relaxed);",
          tests("hooks_stack_test", "*HookStack*")),
    Fault("one_gradient_early", "a hook of several gradients does not wait for the last", "hooks/scope/multi_grad_hook.cpp",
          "      if (++arrived.count < expected) return false;", "      if (++arrived.count + (FAULT ? 1 : 0) < expected) return false;",
          tests("entries_tests", "*MultiGradHookTest*")),
    Fault("unpacked_without_version", "an unpacked tensor has a version counter of its own", "hooks/scope/saved_tensor.cpp",
          "  impl::set_version_counter(result, metadata.version.counter());",
          "  if (!FAULT) impl::set_version_counter(result, metadata.version.counter());",
          tests("hooks_tests", "*Saved*")),
    Fault("moved_from_stays", "a saved tensor can be unpacked after it was moved away", "hooks/scope/saved_tensor.cpp",
          "  other.release();  // so that unpacking it is an error",
          "  if (!FAULT) other.release();  // so that unpacking it is an error", tests("hooks_tests", "*Saved*")),
]

PACKERS = [
    Fault("halves_up", "bfloat16 rounds halves up and not to even", "hooks/kernels/quantise_bits.h",
          "return 0x7FFFU + ((bits >> 16) & 1U); }", "return 0x7FFFU + (FAULT ? 1U : (bits >> 16) & 1U); }",
          tests("hooks_tests", "*Quantised.*")),
    Fault("one_draw_a_node", "all tensors of a node are rounded by the same numbers", "hooks/packers/quantise.cpp",
          " ^ info.sequence_nr) + info.index;", " ^ info.sequence_nr) + (FAULT ? 0 : info.index);",
          tests("hooks_tests", "*Quantised.*")),
    Fault("write_error_lost", "a write that failed is not told", "hooks/packers/spill_to_disk.cpp",
          "      if (error && !error_) error_ = error;", "      if (error && !error_ && !FAULT) error_ = error;",
          tests("hooks_tests", "*Spilling.*")),
    Fault("parents_file", "a forked child spills into the file of its parent", "hooks/packers/spill_to_disk.cpp",
          "    if (known->is_of_this_process()) return *known;",
          "    if (known->is_of_this_process() || FAULT) return *known;", ("fork_program", "while_tensors_are_spilled")),
    Fault("buffer_not_waited_for", "a buffer is used again before its last copy is done", "hooks/packers/offload_to_cpu.cpp",
          "    if (buffer_.last_copy) base::wait_for", "    if (buffer_.last_copy && !FAULT) base::wait_for",
          tests("hooks_offload_test", "*")),
    Fault("room_without_limit", "a packer keeps any amount of idle memory", "hooks/packers/large_memory.cpp",
          "    if (idle_bytes_ + bytes > most_idle_bytes_) {", "    if (idle_bytes_ + bytes > most_idle_bytes_ && !FAULT) {",
          tests("hooks_tests", "*Quantised.*")),
    Fault("larger_only", "min_bytes() leaves out tensors of just so many bytes", "hooks/packers/filters.cpp",
          "return info.bytes >= bytes; };", "return FAULT ? info.bytes > bytes : info.bytes >= bytes; };",
          tests("hooks_tests", "*Packers.*")),
]

HOOKS = INTERFACE + MEMORY + SCOPE + PACKERS
