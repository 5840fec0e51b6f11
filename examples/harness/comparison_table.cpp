#include "examples/harness/comparison_table.h"

#include <algorithm>
#include <cstdio>

namespace overdrive::cli {

namespace {

using trainers::Comparison;

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[512];
  std::snprintf(text, sizeof(text), pattern, args...);
  return text;
}

std::string milliseconds(const std::vector<double>& seconds) {
  return seconds.empty() ? "-" : format("%.3f", bench::median(seconds) * 1e3);
}

std::string with_interval(const bench::Interval& ratio) {
  return ratio.middle > 0 ? format("%.3f [%.3f, %.3f]", ratio.middle, ratio.lo, ratio.hi) : "-";
}

std::string kibibytes(int64_t bytes) { return bytes < 0 ? "-" : std::to_string((bytes + 512) / 1024); }

std::string where(const trainers::Difference& d) {
  return format("DIFFER first at step %lld, %s[%lld]: stock %.9g, overdrive %.9g",
                static_cast<long long>(d.step), d.parameter.c_str(), static_cast<long long>(d.element), d.stock,
                d.overdrive);
}

std::string row(const std::string& what, const std::string& stock, const std::string& ours,
                const std::string& ratio = "") {
  return format("  %-26s %14s %14s   %s\n", what.c_str(), stock.c_str(), ours.c_str(), ratio.c_str());
}

std::string count_row(const char* what, double stock, double ours) {
  return row(what, format("%.1f", stock), format("%.1f", ours));
}

std::string cost_rows(const trainers::Cost& stock, const trainers::Cost& ours) {
  std::string text =
      row("peak of tensors, KiB", kibibytes(stock.peak_tensor_bytes), kibibytes(ours.peak_tensor_bytes)) +
      row("peak of the rest, KiB", kibibytes(stock.peak_heap_bytes), kibibytes(ours.peak_heap_bytes)) +
      count_row("tensors allocated a step", stock.tensor_allocations, ours.tensor_allocations);
  if (stock.peak_heap_bytes >= 0) {
    text += count_row("other allocations a step", stock.heap_allocations, ours.heap_allocations);
  }
  return text + count_row("waits a step", stock.waits, ours.waits) +
         row("threads started", std::to_string(stock.threads_started), std::to_string(ours.threads_started));
}

}  // namespace

std::string table_of(const Comparison& result) {
  const auto& [stock, ours] = std::tie(result.stock, result.overdrive);
  const trainers::TrainerInfo& trainer = *result.trainer;
  auto number = [](double value) { return format("%.4f", value); };
  std::string text = format("\n%s: %s (seed %llu)\n", trainer.name.c_str(), trainer.what.c_str(),
                            static_cast<unsigned long long>(result.setup.seed));
  text += row("", "stock", "overdrive", "ratio [95 %]");
  text += row(trainer.quality, number(stock.quality), number(ours.quality));
  text += row("loss at the end", number(stock.losses.back()), number(ours.losses.back()));
  text += row("step, ms", milliseconds(stock.blocks.step), milliseconds(ours.blocks.step),
              with_interval(result.step_ratio));
  text += row("forward in it, ms", milliseconds(stock.blocks.forward), milliseconds(ours.blocks.forward),
              with_interval(result.forward_ratio));
  text += row("backward in it, ms", milliseconds(stock.blocks.backward), milliseconds(ours.blocks.backward),
              with_interval(result.backward_ratio));
  text += cost_rows(stock, ours);
  text += format("  %.0f nodes a backward, %.1f backwards a step\n", result.nodes_per_backward,
                 result.backwards_per_step);
  return text + "  bits: " +
         (result.difference ? where(*result.difference)
                            : "equal after each of " + std::to_string(result.steps) + " steps") +
         "\n";
}

std::string summary_of(const std::vector<Comparison>& results) {
  std::string text =
      format("\n%-14s %6s %-9s %9s %9s  %-22s %-22s %10s %10s\n", "model", "steps", "bits", "step, ms",
             "overdrive", "step ratio [95 %]", "backward ratio", "peak, KiB", "overdrive");
  for (const Comparison& result : results) {
    auto peak = [](const trainers::Cost& cost) {
      return kibibytes(cost.peak_tensor_bytes + std::max<int64_t>(0, cost.peak_heap_bytes));
    };
    text += format("%-14s %6lld %-9s %9s %9s  %-22s %-22s %10s %10s\n", result.trainer->name.c_str(),
                   static_cast<long long>(result.steps), result.difference ? "DIFFER" : "equal",
                   milliseconds(result.stock.blocks.step).c_str(),
                   milliseconds(result.overdrive.blocks.step).c_str(), with_interval(result.step_ratio).c_str(),
                   with_interval(result.backward_ratio).c_str(), peak(result.stock).c_str(),
                   peak(result.overdrive).c_str());
  }
  const auto differ =
      std::count_if(results.begin(), results.end(), [](const auto& r) { return r.difference.has_value(); });
  return text + (differ == 0
                     ? format("bits equal in all %zu\n", results.size())
                     : format("BITS DIFFER in %lld of %zu\n", static_cast<long long>(differ), results.size()));
}

}  // namespace overdrive::cli
