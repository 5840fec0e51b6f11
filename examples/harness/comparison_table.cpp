#include "examples/harness/comparison.h"

#include "bench/support/text.h"

#include <algorithm>
#include <functional>

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
  return format("DIFFER first at step %lld, %s[%lld]: stock %.9g, %s %.9g", static_cast<long long>(d.step),
                d.parameter.c_str(), static_cast<long long>(d.element), d.stock,
                d.captured ? "captured" : "overdrive", d.overdrive);
}

// The rows of one model; with two columns more where a copy had captured steps.
class Rows {
 public:
  explicit Rows(const Comparison& result)
      : stock_(result.stock),
        ours_(result.overdrive),
        captured_(result.captured ? &*result.captured : nullptr),
        table_(captured_ ? TextTable{{{"", -28},
                                      {"stock", 10},
                                      {"overdrive", 10},
                                      {"  ratio [95 %]", -24},
                                      {"captured", 10},
                                      {"  ratio [95 %]", 0}}}
                         : TextTable{{{"", -28}, {"stock", 14}, {"overdrive", 14}, {"  ratio [95 %]", 0}}}) {}

  void add(const std::string& what, const std::string& stock, const std::string& ours,
           const std::string& ratio = "", const std::string& captured = "",
           const std::string& captured_ratio = "") {
    if (captured_) {
      text_ += table_.row({"  " + what, stock, ours, ratio, captured, captured_ratio});
    } else {
      text_ += table_.row({"  " + what, stock, ours, ratio});
    }
  }
  // Of what every copy has.
  void numbers(const char* what, const std::function<double(const Cost&)>& of) {
    const auto text = [&](const Cost& cost) { return format("%.4f", of(cost)); };
    add(what, text(stock_), text(ours_), "", captured_ ? text(captured_->cost) : "");
  }
  void steps(const bench::Interval& ratio) {
    add("step, ms", milliseconds(stock_.blocks.step), milliseconds(ours_.blocks.step), "  " + text_of(ratio),
        captured_ ? milliseconds(captured_->cost.blocks.step) : "",
        captured_ ? "  " + text_of(captured_->step_ratio) : "");
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
  const CapturedCopy* captured_;
  const TextTable table_;
  std::string text_;
};

}  // namespace

// How much of the third copy was replayed.
std::string captured_text(const Comparison& result) {
  if (!result.wanted_capture) return "";
  if (!result.captured) return fitted("  captured: not, because " + result.trainer->not_captured);
  const CapturedCopy& copy = *result.captured;
  std::string text = format("  captured: %llu of %llu calls were replayed",
                            static_cast<unsigned long long>(copy.report.replayed),
                            static_cast<unsigned long long>(copy.report.calls));
  if (!copy.report.refusal.empty()) text += "; refused: " + copy.report.refusal;
  return fitted(text);
}

std::string table_of(const Comparison& result) {
  const auto& [stock, ours] = std::tie(result.stock, result.overdrive);
  const TrainerInfo& trainer = *result.trainer;
  Rows rows(result);
  rows.numbers(trainer.quality.c_str(), [](const Cost& cost) { return cost.quality; });
  rows.numbers("loss at the end", [](const Cost& cost) { return cost.losses.back(); });
  rows.steps(result.step_ratio);
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
         captured_text(result) +
         fitted("  bits: " + (result.difference
                                  ? where(*result.difference)
                                  : "equal after each of " + std::to_string(result.steps) + " steps"));
}

std::string summary_of(const std::vector<Comparison>& results) {
  std::vector<bench::Column> columns{{"model", -14},          {"steps", 6},      {"bits", -9},
                                     {"step, ms", 9},         {"overdrive", 9},  {" step ratio [95 %]", -23},
                                     {"backward ratio", -22}, {"peak, KiB", 10}, {"overdrive", 10}};
  const bool any_captured =
      std::any_of(results.begin(), results.end(), [](const auto& r) { return r.captured.has_value(); });
  if (any_captured) columns.push_back({" step ratio, captured", -23});
  const TextTable table(std::move(columns));
  std::string text = "\n" + table.head();
  for (const Comparison& result : results) {
    const auto peak = [](const Cost& cost) {
      return kibibytes(cost.peak_tensor_bytes + std::max<int64_t>(0, cost.peak_heap_bytes));
    };
    std::vector<std::string> cells{result.trainer->name,
                                   std::to_string(result.steps),
                                   result.difference ? "DIFFER" : "equal",
                                   milliseconds(result.stock.blocks.step),
                                   milliseconds(result.overdrive.blocks.step),
                                   " " + text_of(result.step_ratio),
                                   text_of(result.backward_ratio),
                                   peak(result.stock),
                                   peak(result.overdrive)};
    if (any_captured) cells.push_back(result.captured ? " " + text_of(result.captured->step_ratio) : " -");
    text += table.row(cells);
  }
  const auto differ =
      std::count_if(results.begin(), results.end(), [](const auto& r) { return r.difference.has_value(); });
  return text + (differ == 0
                     ? format("bits equal in all %zu\n", results.size())
                     : format("BITS DIFFER in %lld of %zu\n", static_cast<long long>(differ), results.size()));
}

}  // namespace overdrive::harness
