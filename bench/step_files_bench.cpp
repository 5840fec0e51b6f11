#include "bench/benchmark.h"
#include "bench/capture_models.h"
#include "bench/statistics.h"
#include "replay/file/step_file.h"
#include "replay/replay.h"

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace overdrive::bench {

namespace {

using Tensors = std::vector<at::Tensor>;

double thread_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + 1e-3 * static_cast<double>(now.tv_nsec);
}

template <typename Call>
double microseconds_of(int calls, const Call& call) {
  const double begin = thread_microseconds();
  for (int i = 0; i < calls; ++i) call();
  return (thread_microseconds() - begin) / calls;
}

// The same looks, other values: a step that never saw other ones is not saved.
Tensors others(const Tensors& inputs) {
  Tensors result;
  for (const at::Tensor& input : inputs) {
    result.push_back(input.is_floating_point() ? input + 0.01 * torch::randn_like(input)
                                               : torch::randint_like(input, input.max().item<int64_t>() + 1));
  }
  return result;
}

// In a folder of its own, which goes with it.
class OwnFile {
 public:
  OwnFile() : folder_(std::filesystem::temp_directory_path() / c10::str("overdrive-bench-", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~OwnFile() { std::filesystem::remove_all(folder_); }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  std::string path() const { return (folder_ / "step.od").string(); }
  uint64_t bytes() const { return std::filesystem::file_size(path()); }

 private:
  std::filesystem::path folder_;
};

// From the start of load_step() to the end of the first call, in milliseconds.
double load_to_first_replay(const std::string& path, const Tensors& inputs) {
  const auto begin = std::chrono::steady_clock::now();
  Step step = load_step(path);
  step(inputs);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

nlohmann::json row_of(const CaptureModelKind& kind, const Options& options) {
  torch::manual_seed(3);
  CaptureModel model = kind.build();
  CapturedStep captured([&model](const Tensors& inputs) { return Tensors{model.step(inputs)}; },
                        {.optimizer = model.optimizer.get(), .constant_modes = true, .always = true});
  for (int i = 0; i < 8; ++i) captured.call(others(model.inputs));
  const OwnFile file;
  nlohmann::json row{{"model", kind.name}};
  try {
    captured.save(file.path(), {.values = false});
    row["bytes_without_values"] = file.bytes();
    captured.save(file.path());
  } catch (const c10::Error& error) {
    row["refusal"] = error.what_without_backtrace();
    return row;
  }
  const Tensors inputs = others(model.inputs);
  std::vector<double> loads;
  for (int i = 0; i < (options.quick ? 1 : 5); ++i) loads.push_back(load_to_first_replay(file.path(), inputs));
  Step loaded = load_step(file.path());
  torch::manual_seed(5);
  const at::Tensor of_file = loaded(inputs).at(0);
  torch::manual_seed(5);
  const at::Tensor of_capture = captured.call(inputs).at(0);
  const bool same_bits =
      of_file.nbytes() == of_capture.nbytes() &&
      std::memcmp(of_file.const_data_ptr(), of_capture.const_data_ptr(), of_file.nbytes()) == 0;

  const int rounds = options.quick ? 2 : options.rounds;
  const auto by_capture = [&] { captured.call(inputs); };
  const auto by_file = [&] { loaded(inputs); };
  const int calls = options.quick ? 2 : std::max(2, static_cast<int>(5'000 / microseconds_of(4, by_capture)));
  std::vector<double> of_captured, of_loaded;
  for (int round = 0; round < rounds; ++round) {
    of_captured.push_back(microseconds_of(calls, by_capture));
    of_loaded.push_back(microseconds_of(calls, by_file));
  }
  const double best_captured = *std::min_element(of_captured.begin(), of_captured.end());
  const double best_loaded = *std::min_element(of_loaded.begin(), of_loaded.end());
  row.update({{"bytes", file.bytes()},
              {"load_ms", median(loads)},
              {"captured_us", best_captured},
              {"loaded_us", best_loaded},
              {"ratio", best_loaded / best_captured},
              {"same_bits", same_bits}});
  return row;
}

// A row for each model: bytes of the file, with values and without; load_ms, from load_step() to the end of the
// first call; captured_us and loaded_us, the best round of each, and their ratio; same_bits; or the refusal.
void step_files_bench(const Options& options, const OnRow& on_row) {
  for (const CaptureModelKind& kind : capture_models()) {
    if (!options.types.empty() &&
        std::find(options.types.begin(), options.types.end(), kind.name) == options.types.end())
      continue;
    if (options.quick && options.types.empty() && &kind != &capture_models().front()) break;
    on_row(row_of(kind, options));
    options.check_stop();
  }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const CaptureModelKind& kind : capture_models()) result.push_back(kind.name);
  return result;
}

const TextTable& step_files_table() {
  static const TextTable columns({{"model", -14},
                                  {"without values", 14},
                                  {"bytes", 10},
                                  {"load ms", 9},
                                  {"captured us", 11},
                                  {"loaded us", 10},
                                  {"ratio", 7},
                                  {"", 0}});
  return columns;
}

std::string row_as_text(const nlohmann::json& row) {
  if (row.contains("refusal"))
    return row["model"].get<std::string>() + ": " + row["refusal"].get<std::string>() + "\n";
  return step_files_table().row({row["model"], std::to_string(row["bytes_without_values"].get<uint64_t>()),
                                 std::to_string(row["bytes"].get<uint64_t>()), cell(row, "load_ms", "%.1f"),
                                 cell(row, "captured_us", "%.1f"), cell(row, "loaded_us", "%.1f"),
                                 cell(row, "ratio", "%.3f"),
                                 row["same_bits"].get<bool>() ? "  same bits" : "  OTHER BITS"});
}

}  // namespace

Benchmark step_files_benchmark() {
  return {.name = "step-files",
          .what = "Time steps that were loaded from a file beside the captured steps that wrote it.",
          .lists = {{.head = step_files_table().head(), .text = row_as_text}},
          .measure = measured_by(step_files_bench),
          .types = names(),
          .rounds = "--rounds"};
}

}  // namespace overdrive::bench
