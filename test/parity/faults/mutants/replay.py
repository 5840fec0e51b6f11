"""Seeded mistakes in replay/, for `make mutate`."""
from fault import Fault, tests

STEPS = tests("replay_tests", "*Capture.*:*CaptureModels.*")
GUARDS = tests("replay_tests", "*CaptureGuards.*:*CaptureOutside.*:*CaptureInputs.*")
REFUSALS = tests("replay_tests", "*CaptureRefusals.*:*Capture.*")
OPTIMIZERS = tests("replay_tests", "*CaptureOptimizers.*")

REPLAY = [
    Fault("touching_lives", "memory is given away in the operator that uses it last", "replay/plan/memory_plan.cpp",
          "      if (other.first <= life.last && life.first <= other.last)",
          "      if (other.first <= life.last && (FAULT ? life.first < other.last : life.first <= other.last))", STEPS),
    Fault("numbers_not_taken_back", "a snapshot leaves generators where they are", "replay/bind/snapshot.cpp",
          "    target.set_state(generator.state);", "    if (!FAULT) target.set_state(generator.state);", STEPS),
    Fault("mode_of_matrices", "a product's transposed factor has the other leading dimension", "replay/lean/products.cpp",
          "ldb = b.stride(plain_b ? column : row),", "ldb = b.stride(plain_b != FAULT ? column : row),",
          tests("replay_tests", "*CaptureLean.*")),
    Fault("any_rounding", "modes of floating point are not looked at", "replay/record/environment.cpp",
          "  return _mm_getcsr() & ~0x3fu;", "  return FAULT ? 0 : _mm_getcsr() & ~0x3fu;", GUARDS,
          "a replay computes in the modes of its thread; the guard is for numbers that the program computes by itself"),
    Fault("removed_hook", "a hook that is taken away is not noticed", "replay/guard/hook_looks.cpp",
          "[](const auto& hook) { return !hook; });", "[](const auto& hook) { return !hook && !FAULT; });", GUARDS),
    Fault("replay_keeps_versions", "a replay raises no version", "replay/guard/outside_guard.cpp",
          "      watched_[i].tensor->bump_version();", "      if (!FAULT) watched_[i].tensor->bump_version(); else break;",
          tests("replay_tests", "*Capture*", "--gtest_fail_fast")),
    Fault("rate_of_next_step", "Adagrad's rate decays one step early", "replay/guard/optimizer_rules.cpp",
          "static_cast<double>(step - 1) * options.lr_decay()", "static_cast<double>(step - (FAULT ? 0 : 1)) * options.lr_decay()",
          OPTIMIZERS),
    Fault("half_a_step_stays", "a replay that throws is not taken back", "replay/run/replay_run.cpp",
          "      undo_.restore();", "      if (!FAULT) undo_.restore();", STEPS),
    Fault("count_two_steps", "an optimizer's step counts twice", "replay/run/optimizer_numbers.cpp",
          "replay::steps_of(kind_, *parameter.state) + 1);", "replay::steps_of(kind_, *parameter.state) + (FAULT ? 2 : 1));",
          OPTIMIZERS),
    Fault("beyond_an_input", "a step may read beyond the elements of an input", "replay/record/recorder_values.cpp",
          "  if (end > 0 && (begin < 0 || end > span.end || begin % element != 0)) {",
          "  if (end > 0 && !FAULT && (begin < 0 || end > span.end || begin % element != 0)) {", GUARDS,
          "the first replay is compared and refuses the step, too"),
    Fault("kept_tensor", "a tensor that lives on after one call only is no difference", "replay/record/compare.cpp",
          "    if (x.lives != y.lives)", "    if (x.lives != y.lives && !FAULT)", REFUSALS,
          "the second recording looks for memory that is still held, and refuses it, too"),
    Fault("moved_memory", "an operator that gives a tensor other memory is recorded", "replay/record/refusals.cpp",
          "  if (engine::facts_of(name).moves_memory) {", "  if (engine::facts_of(name).moves_memory && !FAULT) {", REFUSALS,
          "the recorder looks at the memory after each operator, and refuses it, too"),
    Fault("two_calls_at_once", "a captured step may be called while it runs", "replay/captured_function.cpp",
          "    TORCH_CHECK(is_first_, \"A captured step was called",
          "    TORCH_CHECK(FAULT || is_first_, \"A captured step was called", GUARDS),
    Fault("input_keeps_version", "an input that a replay changes keeps its version", "replay/entry.cpp",
          "i < program.input_bumps[memory.input]; ++i) input", "i < program.input_bumps[memory.input] && !FAULT; ++i) input",
          tests("replay_tests", "*Capture*", "--gtest_fail_fast")),
]
