"""The seeded mistakes: each is an exact replacement in one source, and the test that has to notice it.

`before` must stand in the file exactly once. `after` replaces it, in a copy of the sources that makes a library of
its own; there a mistake is on when OVERDRIVE_TEST_FAULT names it, which the text asks with FAULT. `found_by` is the
command of a test that passes with the sound library and must fail with the mistake: a program of the build folder
and its arguments.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    meaning: str
    file: str
    before: str
    after: str
    found_by: tuple

    @property
    def replacement(self):
        return self.after.replace("FAULT", f'::overdrive::faults::on("{self.name}")')


FUZZER = ("overdrive", "fuzz", "--programs", "500", "--seed", "1", "--max-differences", "1", "--no-shrink", "--quiet")


def tests(program, gtest_filter):
    return (program, f"--gtest_filter={gtest_filter}")


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
    Fault("skip_tls_restore", "thread-local state that a hook leaves stays for the next node", "engine/run/seat.h",
          "    state_.restore_after_node(options_.user_code);",
          "    if (!FAULT) state_.restore_after_node(options_.user_code);",
          FUZZER),
    Fault("sum_other_order", "old + new becomes new + old", "engine/node/grad_sum.cpp",
          "  if (!at::GradMode::is_enabled() && is_ordinary(*slot.unsafeGetTensorImpl())",
          "  if (FAULT) std::swap(slot, gradient);\n"
          "  if (!at::GradMode::is_enabled() && is_ordinary(*slot.unsafeGetTensorImpl())",
          FUZZER),
    Fault("capture_after_hooks", "grad() returns what the tensor's hooks made of the gradient",
          "engine/node/step.cpp",
          "  if (!planned.needed) call_tensor_pre_hooks(*planned.node, inputs);",
          "  if (!planned.needed || (FAULT && plan.first_capture(index) != NodeTable::kNone))\n"
          "    call_tensor_pre_hooks(*planned.node, inputs);",
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
          "    apply(node, copy, outputs, {.keep_graph = call.keep_graph});\n  }",
          "    apply(node, copy, outputs, {.keep_graph = call.keep_graph});\n  }\n"
          "  if (FAULT && !call.keep_graph) node.release_variables();",
          FUZZER),
    Fault("forget_callback", "the last final callback does not run", "engine/host/shared_task.cpp",
          "i < task_.final_callbacks_.size(); ++i) {",
          "i + (FAULT ? 1 : 0) < task_.final_callbacks_.size(); ++i) {",
          FUZZER),
    Fault("skip_validation", "outputs of a node are not checked", "engine/node/gradient_check.cpp",
          "void check_gradients(Node& node, variable_list& gradients, bool below_autograd) {",
          "void check_gradients(Node& node, variable_list& gradients, bool below_autograd) {\n  if (FAULT) return;",
          FUZZER),
]

ALL = ENGINE
