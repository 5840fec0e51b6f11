#include "test/parity/fuzz/print_cpp.h"

#include <cctype>
#include <set>

#include "test/parity/fuzz/ops.h"
#include "test/parity/fuzz/printed_support.h"

namespace overdrive::fuzz {
namespace {

std::string slot_text(int i) { return i == kNoSlot ? "Tensor()" : "t" + std::to_string(i); }

std::string list_text(const std::vector<int>& slots) {
  std::string text = "{";
  for (size_t i = 0; i < slots.size(); ++i) text += (i ? ", " : "") + slot_text(slots[i]);
  return text + "}";
}

// Puts operands in the place of the letters a, b, c and k of an op's text.
std::string fill_in(const std::string& text, const std::vector<int>& from, int64_t k) {
  const auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool alone =
        (i == 0 || !part_of_name(text[i - 1])) && (i + 1 == text.size() || !part_of_name(text[i + 1]));
    const auto which = static_cast<size_t>(c - 'a');
    if (alone && c == 'k') {
      out += std::to_string(k);
    } else if (alone && c >= 'a' && c <= 'c' && which < from.size()) {
      out += slot_text(from[which]);
    } else {
      out += c;
    }
  }
  return out;
}

const char* flag_text(Flag flag) {
  return flag == Flag::kDefault ? "std::nullopt" : flag == Flag::kYes ? "true" : "false";
}

const char* bool_text(bool b) { return b ? "true" : "false"; }

std::string throw_text(int64_t k) {
  constexpr const char* kTexts[] = {"TORCH_CHECK(false, \"thrown by the program\")",
                                    "throw std::runtime_error(\"thrown by the program\")",
                                    "throw std::bad_alloc()",
                                    "TORCH_CHECK_INDEX(false, \"thrown by the program\")",
                                    "throw std::out_of_range(\"thrown by the program\")",
                                    "TORCH_CHECK_NOT_IMPLEMENTED(false, \"thrown by the program\")",
                                    "throw std::logic_error(\"thrown by the program\")",
                                    "throw Thrown{7}"};
  return std::string(kTexts[k % kThrows]) + ";";
}

std::string mode_text(int64_t k) {
  constexpr const char* kTexts[] = {
      "at::GradMode::set_enabled(!at::GradMode::is_enabled())",
      "c10::AutogradState::get_tls_state().set_fw_grad_mode(false)",
      "c10::AutogradState::get_tls_state().set_inference_mode(true)",
      "c10::AutogradState::get_tls_state().set_multithreading_enabled(false)",
      "c10::AutogradState::get_tls_state().set_view_replay_enabled(true)",
      "at::autocast::set_autocast_enabled(at::kCPU, true)",
      "c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode, true)",
      "c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::Negative, true)",
      "c10::WarningUtils::set_warning_handler(new c10::WarningHandler)",
      "at::SavedTensorDefaultHooks::disable(\"by the program\", false)"};
  return std::string(kTexts[k % 10]) + ";";
}

class Printer {
 public:
  std::string statements(const std::vector<Statement>& list, const std::string& indent) {
    std::string text;
    for (const Statement& s : list) {
      const std::string body = statement(s, indent);
      text += s.lane == 0 ? indent + body + "\n"
                          : indent + "on_thread(" + std::to_string(s.lane) + ", [&] { " + body + " });\n";
    }
    return text;
  }
  const std::set<int>& slots() const { return slots_; }

 private:
  std::string use(int slot) {
    if (slot != kNoSlot) slots_.insert(slot);
    return slot_text(slot);
  }
  std::string use(const std::vector<int>& list) {
    for (int slot : list) use(slot);
    return list_text(list);
  }

  std::string statement(const Statement& s, const std::string& indent) {
    use(s.from);
    switch (s.what) {
      case What::kLeaf:
        return use(s.to) + " = " + leaf_text(s.shape, s.layout, s.dtype, s.k, s.flag) + ";";
      case What::kOp:
        return op(s, indent);
      case What::kHook:
        return hook(s, indent);
      case What::kRemoveHook:
        return "remove_hook(" + std::to_string(s.k) + ");";
      case What::kBackward:
        return backward(s);
      case What::kThrow:
        return throw_text(s.k);
      case What::kCallback:
        return "attempt([&] { Engine::get_default_engine().queue_callback([&] {\n" + inner(s, indent) + indent +
               "}); });";
      case What::kMode:
        return mode_text(s.k);
      case What::kWarn:
        return "TORCH_WARN(\"warned\");";
      case What::kDrop:
        return use(s.from.at(0)) + " = Tensor();";
      case What::kClearGrad:
        return use(s.from.at(0)) + ".mutable_grad() = Tensor();";
      case What::kQuery:
        return "torch::autograd::get_current_graph_task_execution_order();";
      case What::kSwitch:
        return "overdrive::installed() ? (void)overdrive::uninstall() : overdrive::install();";
    }
    return "";
  }

  std::string inner(const Statement& s, const std::string& indent) { return statements(s.body, indent + "  "); }

  std::string op(const Statement& s, const std::string& indent) {
    const Op& row = ops()[op_index(s.name)];
    std::string text;
    if (row.group == Group::kFunction && (s.to != kNoSlot || !s.body.empty())) {
      text += "bodies[" + std::to_string(s.id) + "] = [&](variable_list& g) {\n" + inner(s, indent) + indent +
              "};\n" + indent;
    }
    const std::string call = fill_in(row.text, s.from, row.group == Group::kFunction ? s.id : s.k);
    if (row.results == 1) return text + "attempt([&] { " + use(s.to) + " = " + call + "; });";
    return text + "attempt([&] { variable_list r = " + call + "; " + use(s.to) + " = r.at(0); " +
           use(s.to + 1) + " = r.at(1); });";
  }

  // The body of a hook that got `g` and gives back a tensor.
  std::string hook_body(const Statement& s, const std::string& indent) {
    const std::string in = indent + "  ";
    std::string text = in + "show(\"hook " + std::to_string(s.id) + "\", g);\n";
    if (s.to != kNoSlot) text += in + use(s.to) + " = g;\n";
    text += inner(s, indent);
    const std::string given = s.gives == Gives::kUndefined ? "Tensor()"
                              : s.gives == Gives::kNothing ? "g"
                              : s.what == What::kHook && s.hook == HookKind::kNodePre
                                  ? "pre_hook_result(" + use(s.given) + ", g)"
                                  : use(s.given);
    return text + in + "return " + given + ";\n" + indent;
  }

  std::string hook(const Statement& s, const std::string& indent) {
    const std::string target = use(s.from.at(0));
    if (s.hook == HookKind::kRetainsGrad) return "retain_grad(" + target + ");";
    const std::string lambda = "[&](Tensor g) -> Tensor {\n" + hook_body(s, indent) + "}";
    const std::string id = std::to_string(s.id);
    switch (s.hook) {
      case HookKind::kTensor:
        return "tensor_hook(" + id + ", " + target + ", " + lambda + ");";
      case HookKind::kNodePre:
        return "node_pre_hook(" + id + ", " + target + ", " + lambda + ");";
      case HookKind::kNodePost:
        return "node_post_hook(" + id + ", " + target + ", " + lambda + ");";
      default:
        return "post_accumulate_hook(" + id + ", " + target + ", " + lambda + ");";
    }
  }

  std::string backward(const Statement& s) {
    const BackwardCall& call = s.call;
    std::string text;
    const std::string roots = use(s.from), gradients = use(call.gradients), inputs = use(call.inputs);
    const std::string keep = flag_text(call.keep_graph), create = bool_text(call.create_graph);
    const std::string first = call.gradients.empty() ? "Tensor()" : use(call.gradients[0]);
    switch (call.entry) {
      case Entry::kTensorBackward:
        text = use(s.from.at(0)) + ".backward(" + first + ", " + keep + ", " + create +
               (call.inputs.empty() ? ");" : ", at::TensorList(variable_list" + inputs + "));");
        break;
      case Entry::kBackward:
        text = "torch::autograd::backward(" + roots + ", " + gradients + ", " + keep + ", " + create + ", " +
               inputs + ");";
        break;
      case Entry::kGrad:
        text = "auto r = torch::autograd::grad(" + roots + ", " + inputs + ", " + gradients + ", " + keep +
               ", " + create + ", " + bool_text(call.allow_unused) + ");";
        for (size_t i = 0; s.to != kNoSlot && i < call.inputs.size(); ++i) {
          text += " show(\"grad\", " + use(s.to + static_cast<int>(i)) + " = r.at(" + std::to_string(i) + "));";
        }
        break;
      case Entry::kExecute:
        text = "execute(" + roots + ", " + gradients + ", " +
               (call.keep_graph == Flag::kDefault ? create : std::string(keep)) + ", " + create + ", " +
               inputs + ");";
        break;
    }
    return "attempt([&] { " + text + " });";
  }

  std::set<int> slots_;
};

std::string commented(const std::string& text) { return "//   " + text.substr(0, 600) + "\n"; }

}  // namespace

std::string print_cpp(const Program& program, const Difference& difference) {
  return "// Made small from what follows. After\n" + commented(difference.before) + "// stock shows\n" +
         commented(difference.left) + "// and Overdrive\n" + commented(difference.right) + print_cpp(program);
}

std::string print_cpp(const Program& program) {
  Printer printer;
  const std::string body = printer.statements(program.statements, "  ");
  std::string text = "// The graph fuzzer's seed " + std::to_string(program.seed) + ".\n";
  if (program.watch.pre_hooks) text += "// Every node had a logging pre-hook.\n";
  if (program.watch.post_hooks) text += "// Every node had a logging post-hook.\n";
  if (program.watch.events) text += "// A RecordFunction callback listened.\n";
  text += printed_includes();
  text += printed_definitions();
  text += printed_support();
  text += "void program() {\n  at::manual_seed(" + std::to_string(program.seed) + ");\n";
  if (program.watch.anomaly) text += "  AnomalyMode::set_enabled(true, /*check_nan=*/true);\n";
  for (int slot : printer.slots()) text += "  Tensor " + slot_text(slot) + ";\n";
  text += body;
  for (int slot : printer.slots())
    text += "  show_all(\"" + slot_text(slot) + "\", " + slot_text(slot) + ");\n";
  return text + "}\n" + printed_main();
}

}  // namespace overdrive::fuzz
