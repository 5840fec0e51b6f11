#include "examples/harness/comparison.h"

#include "bench/support/tensor_bytes.h"
#include "bench/support/text.h"
#include "examples/harness/ending.h"
#include "examples/trainers/checkpoint_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

namespace overdrive::harness {

namespace {

using bench::format;
using bench::TextTable;

using trainers::Checkpointing;

struct Weighed {
  int64_t peak;
  std::string parameters;
};

// The most bytes of activations alive at once: memory that a step allocated, the gradients of parameters left
// out, which live with and without checkpointing.
int64_t activations_peak(const std::vector<bench::TensorBytes::Change>& changes,
                         const std::vector<torch::Tensor>& parameters) {
  std::unordered_map<const void*, size_t> last;  // allocation of an address
  for (size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].bytes > 0) last[changes[i].memory] = i;
  }
  std::vector<bool> is_gradient(changes.size());
  for (const torch::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    const auto made = last.find(parameter.grad().storage().mutable_data());
    if (made != last.end()) is_gradient[made->second] = true;
  }
  std::unordered_map<const void*, int64_t> alive;  // what was there before the step is not
  int64_t held = 0, peak = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto& change = changes[i];
    if (change.bytes > 0 && !is_gradient[i]) {
      held += alive[change.memory] = change.bytes;
    } else if (const auto gone = alive.find(change.memory); change.bytes < 0 && gone != alive.end()) {
      held -= gone->second;
      alive.erase(gone);
    }
    peak = std::max(peak, held);
  }
  return peak;
}

// The second of two steps: the first makes what stays, gradients and the optimizer's state.
Weighed weigh(const trainers::TrainerInfo& info, trainers::Setup setup,
              const std::optional<Checkpointing>& checkpointing) {
  setup.checkpointing = checkpointing;
  const auto trainer = make_trainer(info, setup);
  trainers::Meter meter;
  trainer->step(meter);
  constexpr size_t kMostChanges = 1'000'000;
  int64_t peak = 0;
  {
    const bench::TensorBytes counted(kMostChanges);
    trainer->step(meter);
    peak = activations_peak(counted.changes(), trainer->parameters());
  }
  return {peak, trainers::digest_of(*trainer).parameters};
}

}  // namespace

Checkpointing parse_checkpointing(const std::string& text) {
  if (text == "sqrt") return {};
  const std::string revolve = "revolve:";
  const std::string count = text.starts_with(revolve) ? text.substr(revolve.size()) : "";
  const bool is_number = !count.empty() && count.size() < 7 &&
                         count.find_first_not_of("0123456789") == std::string::npos && std::stoll(count) > 0;
  if (!is_number) throw UsageError("--checkpoint is sqrt or revolve:K with K snapshots, not \"" + text + "\".");
  return {.snapshots = std::stoll(count)};
}

std::string name_of(const Checkpointing& checkpointing) {
  return checkpointing.snapshots == 0 ? "sqrt" : "revolve:" + std::to_string(checkpointing.snapshots);
}

nlohmann::json checkpoint_table(const trainers::TrainerInfo& info, const trainers::Setup& setup) {
  const Weighed plain = weigh(info, setup, std::nullopt);
  nlohmann::json rows = nlohmann::json::array();
  const auto add = [&](const std::string& name, const Weighed& row) {
    rows.push_back({{"checkpoint", name},
                    {"peak_bytes", row.peak},
                    {"of_plain", static_cast<double>(row.peak) / static_cast<double>(plain.peak)},
                    {"same_bits", row.parameters == plain.parameters}});
  };
  add("none", plain);
  std::vector<Checkpointing> ways{{}, {.snapshots = 1}, {.snapshots = 2}};
  const Checkpointing& chosen = *setup.checkpointing;
  if (chosen.snapshots > 2) ways.push_back(chosen);
  for (const Checkpointing& way : ways) add(name_of(way), weigh(info, setup, way));
  return rows;
}

std::string text_of_checkpoint_table(const nlohmann::json& rows) {
  const TextTable table(
      {{"checkpoint", -12}, {"activations' peak", 18}, {"of plain", 9}, {" parameters", -11}});
  std::string text = table.head();
  for (const nlohmann::json& row : rows) {
    text += table.row({row["checkpoint"], format("%.2f MiB", row["peak_bytes"].get<double>() / (1 << 20)),
                       format("%.3f", row["of_plain"].get<double>()),
                       row["same_bits"].get<bool>() ? " equal" : " DIFFERENT"});
  }
  return text;
}

}  // namespace overdrive::harness
