#include "examples/harness/app_comparison.h"

#include "bench/environment.h"
#include "bench/statistics.h"
#include "bench/support/text.h"
#include "engine/c_api.h"
#include "examples/harness/ending.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace overdrive::harness {

namespace {

using bench::fitted;
using bench::format;
using bench::TextTable;

using bench::ProgramRun;

std::string library_beside(const char* name) {
  const auto path = std::filesystem::absolute(library_path()).parent_path() / name;
  if (!std::filesystem::exists(path)) throw UsageError("the library " + path.string() + " is not there.");
  return path.string();
}

// The variables under which a run preloads `library`, before what it preloads anyway.
std::map<std::string, std::string> preloading(const char* library, const char* on) {
  const char* already = std::getenv("LD_PRELOAD");
  auto variables = bench::preloading(library_beside(library), already != nullptr ? already : "");
  // Both kinds run with glibc's own memory settings: what others give is not the engine's.
  variables.insert({{"OVERDRIVE", on}, {"OVERDRIVE_VERBOSE", "2"}, {"OVERDRIVE_KEEP_MEMORY", "0"}});
  return variables;
}

// What a library of ours said at the program's end, behind `mark`; null when it said nothing.
nlohmann::json said_behind(const std::string& mark, const std::string& err) {
  const size_t at = err.rfind(mark + "{");
  if (at == std::string::npos) return nullptr;
  const size_t begin = at + mark.size();
  return nlohmann::json::parse(err.substr(begin, err.find('\n', begin) - begin), nullptr,
                               /*allow_exceptions=*/false);
}

int64_t number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
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

template <typename Field>
double median(const std::vector<ProgramRun>& runs, Field ProgramRun::*field) {
  std::vector<double> values;
  for (const ProgramRun& run : runs) values.push_back(static_cast<double>(run.*field));
  return bench::median(values);
}

nlohmann::json runs_to_json(const std::vector<ProgramRun>& runs) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProgramRun& run : runs) {
    list.push_back({{"seconds", run.seconds},
                    {"processor_seconds", run.cpu_seconds},
                    {"peak_kib", run.peak_kib},
                    {"status", run.status}});
  }
  return list;
}

}  // namespace

std::string library_path() {
  Dl_info about{};
  if (dladdr(reinterpret_cast<void*>(&overdrive_installed), &about) == 0) return "unknown";
  return about.dli_fname;
}

AppComparison::AppComparison(std::vector<std::string> command, const std::vector<std::string>& ignore)
    : command_(std::move(command)) {
  for (const std::string& expression : ignore) {
    try {
      ignored_.emplace_back(expression);
    } catch (const std::regex_error&) {
      throw UsageError("--ignore \"" + expression + "\" is not a regular expression.");
    }
  }
}

void AppComparison::run(int runs) {
  const bench::ProgramCall on_stock{command_, preloading("liboverdrive_held_off.so", "0")};
  const bench::ProgramCall on_ours{command_, preloading("liboverdrive_autoload.so", "1")};
  for (int i = 0; i < runs; ++i) {
    // Who goes first alternates, as everywhere.
    ProgramRun stock, ours;
    if (i % 2 == 1) ours = run_program(on_ours);
    if (!interrupted()) stock = run_program(on_stock);
    if (i % 2 == 0 && !interrupted()) ours = run_program(on_ours);
    // A terminal sends Ctrl-C to the program, too, so this pair tells nothing.
    if (interrupted()) return;
    add(std::move(stock), std::move(ours));
  }
}

void AppComparison::check_that_it_ran(const ProgramRun& stock, const ProgramRun& ours) {
  const std::string cannot = "\"" + command_[0] + "\" cannot be compared: ";
  report_ = said_behind("overdrive: ", ours.err);
  held_off_ = said_behind("overdrive: held off ", stock.err);
  if (number_in(held_off_, "backwards") > 0) {
    throw UsageError(cannot +
                     "it installs Overdrive by itself, in a way that cannot be held off, so its run on "
                     "stock ran " +
                     std::to_string(number_in(held_off_, "backwards")) +
                     " backwards on Overdrive. Take its install() out.");
  }
  if (number_in(report_, "backwards") > 0) return;
  const size_t complaint = ours.err.find("overdrive: not installed");
  throw UsageError(cannot +
                   (complaint != std::string::npos
                        ? ours.err.substr(complaint + 11, ours.err.find('\n', complaint) - complaint - 11)
                        : "no backward of it ran on Overdrive (is LibTorch linked into the program?)"));
}

std::string AppComparison::counted(std::string text) const {
  for (const std::regex& expression : ignored_) text = std::regex_replace(text, expression, "");
  return text;
}

void AppComparison::add(ProgramRun stock, ProgramRun ours) {
  check_that_it_ran(stock, ours);
  const std::string stock_text = counted(stock.out), our_text = counted(ours.out);
  for (const std::string& text : {stock_text, our_text})
    compared_output_ |= text.find_first_not_of(" \n") != std::string::npos;
  if (!differs()) {
    difference_ = first_difference(stock_text, our_text);
    status_differs_ = stock.status != ours.status;
  }
  stock_.push_back(std::move(stock));
  ours_.push_back(std::move(ours));
}

std::string AppComparison::text() const {
  const TextTable table({{"", -26}, {"stock", 14}, {"overdrive", 14}, {"  ratio", 7}});
  std::string text = format("\n%s, %zu runs of each kind\n", command_[0].c_str(), stock_.size()) + table.head();
  const auto row = [&](const char* what, double stock, double ours, const char* pattern) {
    text += table.row({std::string("  ") + what, format(pattern, stock), format(pattern, ours),
                       format("  %.3f", stock > 0 ? ours / stock : 1.0)});
  };
  row("time, s", median(stock_, &ProgramRun::seconds), median(ours_, &ProgramRun::seconds), "%.3f");
  row("processor time, s", median(stock_, &ProgramRun::cpu_seconds), median(ours_, &ProgramRun::cpu_seconds),
      "%.3f");
  row("peak of memory, MiB", median(stock_, &ProgramRun::peak_kib) / 1024,
      median(ours_, &ProgramRun::peak_kib) / 1024, "%.1f");
  text +=
      format("  %lld backwards ran on Overdrive\n", static_cast<long long>(number_in(report_, "backwards")));
  if (number_in(held_off_, "installs") > 0)
    text += fitted("  the program installs Overdrive itself; in its runs on stock that was held off");
  if (status_differs_) {
    text +=
        format("  exit status DIFFERS: stock %d, overdrive %d\n", stock_.back().status, ours_.back().status);
  }
  if (difference_) {
    text += "  output DIFFERS first in line " + std::to_string(difference_->line) +
            ":\n    stock:     " + difference_->stock + "\n    overdrive: " + difference_->overdrive + "\n";
  } else if (compared_output_) {
    text += format("  output: equal in every run (%zu bytes)\n", ours_.back().out.size());
  } else {
    text += "  output: nothing to compare\n";
  }
  return text;
}

nlohmann::json AppComparison::to_json() const {
  nlohmann::json difference = nullptr;
  if (difference_) {
    difference = {
        {"line", difference_->line}, {"stock", difference_->stock}, {"overdrive", difference_->overdrive}};
  }
  return {{"app", command_},
          {"outputs_equal", !difference_},
          {"compared_output", compared_output_},
          {"first_difference", difference},
          {"status_equal", !status_differs_},
          {"stock", runs_to_json(stock_)},
          {"overdrive", runs_to_json(ours_)},
          {"stopped", interrupted()},
          {"installs_held_off", number_in(held_off_, "installs")},
          {"engine", report_},
          {"environment", bench::environment()}};
}

}  // namespace overdrive::harness
