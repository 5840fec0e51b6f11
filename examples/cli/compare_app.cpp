#include "examples/cli/compare_app.h"

#include "bench/environment.h"
#include "bench/statistics.h"
#include "examples/cli/app_run.h"
#include "examples/cli/cli.h"
#include "examples/cli/library_path.h"
#include "examples/cli/progress.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

namespace overdrive::cli {

namespace {

struct OutputDifference {
  int64_t line = 0;
  std::string stock, overdrive;
};

std::map<std::string, std::string> preloading() {
  const char* already = std::getenv("LD_PRELOAD");
  const std::string others = already != nullptr && *already != '\0' ? std::string(":") + already : "";
  return {{"LD_PRELOAD", preload_path() + others}, {"OVERDRIVE", "1"}, {"OVERDRIVE_VERBOSE", "2"}};
}

// What the preload library said at the program's end; null when it said nothing.
nlohmann::json engine_report(const std::string& err) {
  const std::string mark = "overdrive: {";
  const size_t at = err.rfind(mark);
  if (at == std::string::npos) return nullptr;
  const size_t begin = at + mark.size() - 1;
  return nlohmann::json::parse(err.substr(begin, err.find('\n', begin) - begin), nullptr,
                               /*allow_exceptions=*/false);
}

void check_that_it_ran(const std::string& program, const AppRun& run, const nlohmann::json& report) {
  if (report.is_object() && report.value("backwards", int64_t{0}) > 0) return;
  const size_t complaint = run.err.find("overdrive: not installed");
  const std::string why = complaint != std::string::npos
                              ? run.err.substr(complaint + 11, run.err.find('\n', complaint) - complaint - 11)
                              : "no backward of it ran on Overdrive (is LibTorch linked into the program?)";
  throw UsageError("\"" + program + "\" cannot be compared: " + why);
}

std::string without(std::string text, const std::vector<std::regex>& ignored) {
  for (const std::regex& expression : ignored) text = std::regex_replace(text, expression, "");
  return text;
}

std::optional<OutputDifference> first_difference(const std::string& stock, const std::string& ours) {
  if (stock == ours) return std::nullopt;
  std::istringstream a(stock), b(ours);
  OutputDifference found;
  for (;;) {
    ++found.line;
    const bool has_a = static_cast<bool>(std::getline(a, found.stock));
    const bool has_b = static_cast<bool>(std::getline(b, found.overdrive));
    if (!has_a) found.stock = "(the end)";
    if (!has_b) found.overdrive = "(the end)";
    if (!has_a || !has_b || found.stock != found.overdrive) return found;
  }
}

// All runs of both kinds, and what came of them.
class AppComparison {
 public:
  explicit AppComparison(const CompareAppArguments& arguments) : arguments_(arguments) {
    command_.push_back(arguments.program);
    command_.insert(command_.end(), arguments.arguments.begin(), arguments.arguments.end());
    for (const std::string& expression : arguments.ignore) {
      try {
        ignored_.emplace_back(expression);
      } catch (const std::regex_error&) {
        throw UsageError("--ignore \"" + expression + "\" is not a regular expression.");
      }
    }
  }

  void run() {
    const auto with_preload = preloading();
    for (int i = 0; i < arguments_.runs; ++i) {
      // Who goes first alternates, as everywhere.
      AppRun stock, ours;
      if (i % 2 == 1) ours = run_app(command_, with_preload);
      if (!interrupted()) stock = run_app(command_, {{"OVERDRIVE", "0"}});
      if (i % 2 == 0 && !interrupted()) ours = run_app(command_, with_preload);
      // A terminal sends Ctrl-C to the program, too, so this pair tells nothing.
      if (interrupted()) return;
      add(std::move(stock), std::move(ours));
    }
  }

  bool has_runs() const { return !ours_.empty(); }
  bool differs() const { return difference_ || status_differs_; }

  void print() const {
    auto row = [](const char* what, double stock, double ours, const char* pattern) {
      char text[2][32];
      std::snprintf(text[0], sizeof(text[0]), pattern, stock);
      std::snprintf(text[1], sizeof(text[1]), pattern, ours);
      std::printf("  %-24s %14s %14s   %.3f\n", what, text[0], text[1], stock > 0 ? ours / stock : 1.0);
    };
    std::printf("\n%s, %zu runs of each kind\n  %-24s %14s %14s   ratio\n", arguments_.program.c_str(),
                stock_.size(), "", "stock", "overdrive");
    row("time, s", median(stock_, &AppRun::seconds), median(ours_, &AppRun::seconds), "%.3f");
    row("processor time, s", median(stock_, &AppRun::cpu_seconds), median(ours_, &AppRun::cpu_seconds), "%.3f");
    row("peak of memory, MiB", median(stock_, &AppRun::peak_kib) / 1024,
        median(ours_, &AppRun::peak_kib) / 1024, "%.1f");
    std::printf("  %lld backwards ran on Overdrive\n",
                static_cast<long long>(report_["backwards"].get<int64_t>()));
    if (status_differs_) {
      std::printf("  exit status DIFFERS: stock %d, overdrive %d\n", stock_.back().status, ours_.back().status);
    }
    if (difference_) {
      std::printf("  output DIFFERS first in line %lld:\n    stock:     %s\n    overdrive: %s\n",
                  static_cast<long long>(difference_->line), difference_->stock.c_str(),
                  difference_->overdrive.c_str());
    } else {
      std::printf("  output: equal in every run (%zu bytes)\n", ours_.back().out.size());
    }
  }

  nlohmann::json to_json() const {
    nlohmann::json difference = nullptr;
    if (difference_) {
      difference = {
          {"line", difference_->line}, {"stock", difference_->stock}, {"overdrive", difference_->overdrive}};
    }
    return {{"app", command_},
            {"outputs_equal", !difference_},
            {"first_difference", difference},
            {"status_equal", !status_differs_},
            {"stock", runs_to_json(stock_)},
            {"overdrive", runs_to_json(ours_)},
            {"stopped", interrupted()},
            {"engine", report_},
            {"environment", bench::environment()}};
  }

 private:
  void add(AppRun stock, AppRun ours) {
    report_ = engine_report(ours.err);
    check_that_it_ran(arguments_.program, ours, report_);
    if (!differs()) {
      difference_ = first_difference(without(stock.out, ignored_), without(ours.out, ignored_));
      status_differs_ = stock.status != ours.status;
    }
    stock_.push_back(std::move(stock));
    ours_.push_back(std::move(ours));
  }

  template <typename Field>
  static double median(const std::vector<AppRun>& runs, Field AppRun::*field) {
    std::vector<double> values;
    for (const AppRun& run : runs) values.push_back(static_cast<double>(run.*field));
    return bench::median(values);
  }

  static nlohmann::json runs_to_json(const std::vector<AppRun>& runs) {
    nlohmann::json list = nlohmann::json::array();
    for (const AppRun& run : runs) {
      list.push_back({{"seconds", run.seconds},
                      {"processor_seconds", run.cpu_seconds},
                      {"peak_kib", run.peak_kib},
                      {"status", run.status}});
    }
    return list;
  }

  const CompareAppArguments& arguments_;
  std::vector<std::string> command_;
  std::vector<std::regex> ignored_;
  std::vector<AppRun> stock_, ours_;
  nlohmann::json report_;
  std::optional<OutputDifference> difference_;
  bool status_differs_ = false;
};

}  // namespace

int compare_app(const CompareAppArguments& arguments) {
  const JsonFile json(arguments.json);
  stop_on_interrupt();
  AppComparison comparison(arguments);
  comparison.run();
  if (!arguments.quiet && comparison.has_runs()) comparison.print();
  if (interrupted()) say_stopped();
  json.write(comparison.to_json());
  return comparison.differs() ? kDifferenceFound : kFine;
}

}  // namespace overdrive::cli
