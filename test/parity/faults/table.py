"""The seeded mistakes that the suite runs (parity_faults_test). mutants/ has those of `make mutate`, which runs
both."""
from fault import Fault, tests

FUZZER = ("overdrive", "fuzz", "--programs", "500", "--seed", "1", "--max-differences", "1", "--no-shrink", "--quiet")


ENGINE = [
    Fault("swap_hooks", "two hooks of one kind run in the other order", "engine/node/node_call.cpp",
          "  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, gradients);",
          "  if (FAULT) std::swap(node.post_hooks().front(), node.post_hooks().back());\n"
          "  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, gradients);",
          FUZZER),
    Fault("drop_tie_rule", "equal sequence numbers are ordered by index", "engine/run/run.cpp",
          "  const uint64_t sequence_nr = node->sequence_nr();",
          "  uint64_t sequence_nr = node->sequence_nr();\n  if (FAULT && sequence_nr == UINT64_MAX) sequence_nr -= index;",
          FUZZER),
    Fault("skip_tls_restore", "thread-local state that a hook leaves stays for the next node", "engine/run/thread_run_state.h",
          "    state_.restore_after_node(options_.user_code && !ran_native);",
          "    if (!FAULT) state_.restore_after_node(options_.user_code && !ran_native);",
          FUZZER),
    Fault("sum_other_order", "old + new becomes new + old", "engine/node/grad_sum.cpp",
          "  if (!at::GradMode::is_enabled() && is_ordinary(*slot.unsafeGetTensorImpl())",
          "  if (FAULT) std::swap(slot, gradient);\n"
          "  if (!at::GradMode::is_enabled() && is_ordinary(*slot.unsafeGetTensorImpl())",
          FUZZER),
    Fault("capture_after_hooks", "grad() returns what the tensor's hooks made of the gradient",
          "engine/node/step.cpp",
          "  if (!planned.needed) {\n    show_views(inputs);",
          "  if (!planned.needed || (FAULT && plan.first_capture(index) != NodeTable::kNone)) {\n    show_views(inputs);",
          FUZZER),
    Fault("lose_undefined", "an undefined gradient becomes zeros", "engine/run/run.cpp",
          "  if (!planned.may_run) return;",
          "  if (!planned.may_run) return;\n"
          "  if (FAULT && !gradient.defined()) gradient = planned.node->input_metadata(edge.input_nr).zeros_like();",
          FUZZER),
    Fault("keep_gradient", "a gradient lives on after its last use", "engine/node/step.h",
          "inputs.push_back(std::move(slots[i]));",
          "inputs.push_back(FAULT ? at::Tensor(slots[i]) : std::move(slots[i]));",
          FUZZER),
    Fault("release_too_early", "a node's variables are released before its post-hooks", "engine/node/node_call.cpp",
          "    apply(node, native, copy, outputs, call, /*hooked=*/true);\n  }",
          "    apply(node, native, copy, outputs, call, /*hooked=*/true);\n  }\n"
          "  if (FAULT && !call.keep_graph) node.release_variables();",
          FUZZER),
    Fault("forget_callback", "the last final callback does not run", "engine/host/shared_task.cpp",
          "i < task_->final_callbacks_.size(); ++i) {",
          "i + (FAULT ? 1 : 0) < task_->final_callbacks_.size(); ++i) {",
          FUZZER),
    Fault("skip_validation", "outputs of a node are not checked", "engine/node/node_call.cpp",
          "void check_gradients(Node& node, variable_list& gradients, bool below_autograd) {",
          "void check_gradients(Node& node, variable_list& gradients, bool below_autograd) {\n  if (FAULT) return;",
          FUZZER),
]

DEVICES = [
    Fault("skip_leaf_wait", "the caller's streams do not wait for the leaves'", "engine/devices/device_run.cpp",
          "  streams_.wait_for_leaves();",
          "  if (!FAULT) streams_.wait_for_leaves();",
          tests("engine_contract_devices_test", "Streams*")),
    Fault("skip_gradient_wait", "a node does not wait for the streams of its gradients",
          "engine/devices/device_run.cpp",
          "  if (sums != nullptr) wait_for_gradients(node, stream, *sums);",
          "  if (sums != nullptr && !FAULT) wait_for_gradients(node, stream, *sums);",
          tests("engine_contract_devices_test", "Stream*")),
    Fault("leave_streams", "streams that a node left current stay so for the caller",
          "engine/devices/device_run.cpp",
          "  streams_.restore();",
          "  if (!FAULT) streams_.restore();",
          tests("engine_contract_devices_test", "Stream*")),
]

HOOKS = [
    Fault("skip_version", "a tensor that was changed after it was saved is not noticed",
          "engine/host/version_check.h",
          "return counter_.current_version() == saved_; }",
          "return FAULT || counter_.current_version() == saved_; }",
          tests("hooks_tests", "Spilling.ATensorThatIsChangedIsAnError")),
    Fault("read_elsewhere", "a spilled tensor is read from the next byte on", "hooks/packers/spill_file.cpp",
          "  char* next = static_cast<char*>(to);",
          "  char* next = static_cast<char*>(to);\n  if (FAULT) ++at;",
          tests("hooks_tests", "Spilling.BringsBackTheBits")),
    Fault("readable_file", "others may read the file of spilled tensors", "hooks/packers/spill_file.cpp",
          "O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, kOwnersAlone);",
          "O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, FAULT ? 0644 : kOwnersAlone);",
          tests("hooks_tests", "Spilling.LeavesNothingBehind*")),
]

FORWARD_AD = [
    Fault("half_a_product_rule", "the tangent of a product lacks its second term",
          "forward_ad/rules/elementwise_rules.cpp",
          "return {x.value * y.value, x.tangent * y.value + x.value * y.tangent};",
          "return {x.value * y.value, x.tangent * y.value + (FAULT ? 0 : 1) * (x.value * y.tangent)};",
          tests("forward_ad_drivers_test", "Drivers.*:*Rules*")),
    Fault("other_random_numbers", "each run for a Jacobian draws other random numbers",
          "forward_ad/drivers/jacobian.cpp",
          "    numbers.restore();  // a run by vmap may have drawn, and then failed",
          "    if (!FAULT) numbers.restore();  // a run by vmap may have drawn, and then failed",
          tests("forward_ad_drivers_test", "Drivers.EachRunForAJacobian*")),
]

CHECKPOINT = [
    Fault("draw_anew", "a recomputation draws other random numbers", "checkpoint/region/region.cpp",
          "    if (states.empty()) return;",
          "    if (states.empty() || FAULT) return;",
          tests("checkpoint_test", "*State.DropoutHasTheSameMask*")),
    Fault("other_default_dtype", "a recomputation runs in the default dtype of the backward",
          "checkpoint/region/run_state.cpp",
          "  if (state.default_dtype_ != outer_default_dtype_) c10::set_default_dtype(state.default_dtype_);",
          "  if (state.default_dtype_ != outer_default_dtype_ && !FAULT) c10::set_default_dtype(state.default_dtype_);",
          tests("checkpoint_test", "*State.DefaultDtypeIsThatOfTheForward*")),
    Fault("skip_a_layer", "a chain goes back from the state before the right one", "checkpoint/chain/sequential.cpp",
          "    for (size_t layer = begin; layer < end; ++layer) state = chain_.run(layer, state, /*first=*/false);",
          "    for (size_t layer = begin; layer + (FAULT ? 1 : 0) < end; ++layer)\n"
          "      state = chain_.run(layer, state, /*first=*/false);",
          tests("checkpoint_test", "Sequential.WithRevolveIsThePlainChain*")),
    Fault("keep_outer_writes", "running statistics take part in the recomputation",
          "checkpoint/region/region.cpp",
          "  if (!writes_.empty()) undoing.emplace(writes_);",
          "  if (!writes_.empty() && !FAULT) undoing.emplace(writes_);",
          tests("checkpoint_test", "*OuterWritesTest.OfNormalisation*")),
]

REPLAY = [
    Fault("identity_by_address", "memory that is used again is taken for the tensor that lay there before",
          "replay/record/recorder_values.cpp",
          "  const auto [known, added] = memories_.emplace(storage, static_cast<int>(program_.memories.size()));\n"
          "  if (fresh) *fresh = added;",
          "  const auto* key = FAULT ? static_cast<const c10::StorageImpl*>(storage->data()) : storage;\n"
          "  const auto [known, added] = memories_.emplace(key, static_cast<int>(program_.memories.size()));\n"
          "  if (fresh) *fresh = added;",
          tests("replay_tests", "Capture.AccumulatesOverSmallBatches")),
    Fault("short_life", "the memory of a tensor is given away before its last use", "replay/passes/memory_needs.cpp",
          "      lifetimes.push_back({memory.first, last_uses[i], memory.bytes});",
          "      lifetimes.push_back({memory.first, FAULT ? memory.first : last_uses[i], memory.bytes});",
          tests("replay_tests", "Capture.TrainsAsEagerDoes")),
    Fault("room_too_early", "temporary values lie in a gradient that is made already", "replay/passes/memory_needs.cpp",
          "      rooms.push_back({memory.first, memory.bytes});",
          "      rooms.push_back({FAULT ? memory.last + 1 + (1 << 20) : memory.first, memory.bytes});",
          tests("replay_tests", "Capture.TrainsAsEagerDoes")),
    Fault("skip_requires_grad", "a parameter that stops requiring a gradient is not noticed",
          "replay/guard/outside_guard.cpp",
          "  if (tensor->requires_grad() != requires_grad) return kOtherFlag;\n  if (requires_grad && HookSignature",
          "  if (!FAULT && tensor->requires_grad() != requires_grad) return kOtherFlag;\n  if (requires_grad && HookSignature",
          tests("replay_tests", "CaptureGuards.ParametersThatStopRequiringAGradient")),
    Fault("skip_hooks", "a hook that is added to a parameter is not noticed", "replay/guard/outside_guard.cpp",
          "  if (requires_grad && HookSignature::of(*tensor) != hooks)",
          "  if (!FAULT && requires_grad && HookSignature::of(*tensor) != hooks)",
          tests("replay_tests", "CaptureOutside.AHookThatIsAddedToAParameter")),
    Fault("skip_shared_memory", "an input that shares memory with a tensor that is changed is replayed",
          "replay/guard/shared_memory.cpp",
          "    if (meets_outside(range)) return false;",
          "    if (!FAULT && meets_outside(range)) return false;",
          tests("replay_tests", "Capture.ReachesAnInputAlsoThroughTheTensorItself")),
    Fault("bake_in_numbers", "the numbers of an optimizer stay those of the recording",
          "replay/optimizers/optimizer_numbers.cpp",
          "    set(parameter, found->second);",
          "    if (!FAULT) set(parameter, found->second);",
          tests("replay_tests", "CaptureOptimizers.Adam")),
    Fault("wrong_direct", "a direct function leaves the last element out, and falls back", "replay/direct/copies.cpp",
          "  void operator()(int64_t begin, int64_t end) const { std::fill(to + begin, to + end, value); }",
          "  void operator()(int64_t begin, int64_t end) const { std::fill(to + begin, to + end - (FAULT ? 1 : 0), value); }",
          tests("replay_tests", "CaptureDirect.*")),
    Fault("direct_unchecked", "a direct function does nothing and is not compared; the replay as a whole is",
          "replay/run/replay_run.cpp",
          "  (*direct)();\n  if (boxed.first_difference(boxed.now()) >= 0) {",
          "  if (!FAULT) (*direct)();\n  if (!FAULT && boxed.first_difference(boxed.now()) >= 0) {",
          tests("replay_tests", "CaptureDirect.*")),
]

SUITE = ENGINE + DEVICES + HOOKS + FORWARD_AD + CHECKPOINT + REPLAY
