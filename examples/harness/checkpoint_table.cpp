#include "examples/harness/checkpoint_table.h"

#include "bench/activation_bytes.h"
#include "examples/cli/cli.h"
#include "examples/trainers/digest.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

namespace overdrive::cli {

namespace {

using trainers::Checkpointing;

struct Weighed {
  int64_t peak;
  std::string parameters;
};

// The second of two steps: the first makes what stays, gradients and the optimizer's state.
Weighed weigh(const trainers::TrainerInfo& info, trainers::Setup setup,
              const std::optional<Checkpointing>& checkpointing) {
  setup.checkpointing = checkpointing;
  const auto trainer = make_trainer(info, setup);
  trainers::Meter meter;
  trainer->step(meter);
  const int64_t peak = bench::ActivationBytes::peak_of([&] { trainer->step(meter); }, trainer->parameters());
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

void print_checkpoint_table(const nlohmann::json& table) {
  std::printf("%-12s %18s %9s  %s\n", "checkpoint", "activations' peak", "of plain", "parameters");
  for (const nlohmann::json& row : table) {
    std::printf("%-12s %14.2f MiB %9.3f  %s\n", row["checkpoint"].get<std::string>().c_str(),
                row["peak_bytes"].get<double>() / (1 << 20), row["of_plain"].get<double>(),
                row["same_bits"].get<bool>() ? "equal" : "DIFFERENT");
  }
}

}  // namespace overdrive::cli
