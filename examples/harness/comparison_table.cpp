#include "examples/harness/comparison.h"

#include "bench/support/text.h"

#include <algorithm>

namespace overdrive::harness {

namespace {

using bench::fitted;
using bench::format;
using bench::TextTable;
using bench::with_interval;

std::string milliseconds(const std::vector<double>& seconds) {
  return seconds.empty() ? "-" : format("%.3f", bench::median(seconds) * 1e3);
}

std::string text_of(const bench::Interval& ratio) {
  return ratio.middle > 0 ? with_interval(ratio.middle, ratio.lo, ratio.hi) : "-";
}

std::string kibibytes(int64_t bytes) { return bytes < 0 ? "-" : std::to_string((bytes + 512) / 1024); }

std::string quotient(double stock, double ours) {
  return stock > 0 && ours >= 0 ? format("  %.3f", ours / stock) : "";
}

std::string where(const Difference& d) {
  return format("DIFFER first at step %lld, %s[%lld]: stock %.9g, overdrive %.9g",
                static_cast<long long>(d.step), d.parameter.c_str(), static_cast<long long>(d.element), d.stock,
                d.overdrive);
}

// The rows of one model.
class Rows {
 public:
  explicit Rows(const Comparison& result) : stock_(result.stock), ours_(result.overdrive) {}

  void add(const std::string& what, const std::string& stock, const std::string& ours,
           const std::string& ratio = "") {
    text_ += table_.row({"  " + what, stock, ours, ratio});
  }
  void times(const char* what, std::vector<double> Times::*times, const bench::Interval& ratio) {
    add(what, milliseconds(stock_.blocks.*times), milliseconds(ours_.blocks.*times), "  " + text_of(ratio));
  }
  void bytes(const char* what, int64_t Cost::*bytes) {
    add(what, kibibytes(stock_.*bytes), kibibytes(ours_.*bytes),
        quotient(static_cast<double>(stock_.*bytes), static_cast<double>(ours_.*bytes)));
  }
  void count(const char* what, double Cost::*count) {
    add(what, format("%.1f", stock_.*count), format("%.1f", ours_.*count),
        quotient(stock_.*count, ours_.*count));
  }
  std::string text() const { return table_.head() + text_; }

 private:
  const Cost &stock_, &ours_;
  const TextTable table_{{{"", -28}, {"stock", 14}, {"overdrive", 14}, {"  ratio [95 %]", 0}}};
  std::string text_;
};

}  // namespace

std::string table_of(const Comparison& result) {
  const auto& [stock, ours] = std::tie(result.stock, result.overdrive);
  const TrainerInfo& trainer = *result.trainer;
  const auto number = [](double value) { return format("%.4f", value); };
  Rows rows(result);
  rows.add(trainer.quality, number(stock.quality), number(ours.quality));
  rows.add("loss at the end", number(stock.losses.back()), number(ours.losses.back()));
  rows.times("step, ms", &Times::step, result.step_ratio);
  rows.times("forward in it, ms", &Times::forward, result.forward_ratio);
  rows.times("backward in it, ms", &Times::backward, result.backward_ratio);
  rows.bytes("peak of tensors, KiB", &Cost::peak_tensor_bytes);
  rows.bytes("peak of the rest, KiB", &Cost::peak_heap_bytes);
  rows.count("tensors allocated a step", &Cost::tensor_allocations);
  if (stock.peak_heap_bytes >= 0) rows.count("other allocations a step", &Cost::heap_allocations);
  rows.count("waits a step", &Cost::waits);
  rows.add("threads started", std::to_string(stock.threads_started), std::to_string(ours.threads_started));
  return "\n" +
         fitted(format("%s: %s (seed %llu)", trainer.name.c_str(), trainer.what.c_str(),
                       static_cast<unsigned long long>(result.setup.seed))) +
         rows.text() +
         format("  %.0f nodes a backward, %.1f backwards a step\n", result.nodes_per_backward,
                result.backwards_per_step) +
         fitted("  bits: " + (result.difference
                                  ? where(*result.difference)
                                  : "equal after each of " + std::to_string(result.steps) + " steps"));
}

std::string summary_of(const std::vector<Comparison>& results) {
  const TextTable table({{"model", -14},
                         {"steps", 6},
                         {"bits", -9},
                         {"step, ms", 9},
                         {"overdrive", 9},
                         {" step ratio [95 %]", -23},
                         {"backward ratio", -22},
                         {"peak, KiB", 10},
                         {"overdrive", 10}});
  std::string text = "\n" + table.head();
  for (const Comparison& result : results) {
    const auto peak = [](const Cost& cost) {
      return kibibytes(cost.peak_tensor_bytes + std::max<int64_t>(0, cost.peak_heap_bytes));
    };
    text += table.row({result.trainer->name, std::to_string(result.steps),
                       result.difference ? "DIFFER" : "equal", milliseconds(result.stock.blocks.step),
                       milliseconds(result.overdrive.blocks.step), " " + text_of(result.step_ratio),
                       text_of(result.backward_ratio), peak(result.stock), peak(result.overdrive)});
  }
  const auto differ =
      std::count_if(results.begin(), results.end(), [](const auto& r) { return r.difference.has_value(); });
  return text + (differ == 0
                     ? format("bits equal in all %zu\n", results.size())
                     : format("BITS DIFFER in %lld of %zu\n", static_cast<long long>(differ), results.size()));
}

}  // namespace overdrive::harness
