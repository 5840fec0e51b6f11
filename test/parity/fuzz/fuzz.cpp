#include "test/parity/fuzz/fuzz.h"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/parity/fuzz/last_words.h"
#include "test/parity/fuzz/ops.h"
#include "test/parity/fuzz/print_cpp.h"
#include "test/parity/fuzz/shrink.h"

namespace overdrive::fuzz {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kProgramsForTable = 2000;

struct Report {
  std::string text;
  uint64_t seed;
};

class Fuzzer {
 public:
  explicit Fuzzer(const FuzzOptions& options)
      : options_(options),
        end_(Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options.minutes * 60e3))) {}

  int run() {
    prepare();
    for (int64_t i = 0; wants_more(i); ++i) one(options_.seed + static_cast<uint64_t>(i));
    if (options_.minutes <= 0 && options_.programs >= kProgramsForTable && !is_plain(options_.seed))
      go_after_empty_cells();
    return finish();
  }

 private:
  bool wants_more(int64_t i) const {
    if (options_.stop() || static_cast<int>(reports_.size()) >= options_.max_differences) return false;
    return options_.minutes > 0 ? Clock::now() < end_ : i < options_.programs;
  }

  // Some cells are rare. Which op a seed features is known, so a few more programs find them.
  void go_after_empty_cells() {
    const uint64_t turn = ops().size();
    uint64_t next = options_.seed + static_cast<uint64_t>(options_.programs);
    next += turn - next % turn;
    for (int64_t more = options_.programs / 4; more > 0; next += turn) {
      const std::vector<size_t> missing = coverage_.ops_with_empty_cells();
      if (missing.empty()) return;
      for (const size_t op : missing) {
        if (more-- <= 0 || !wants_more(-1)) return;
        one(next + op);
      }
    }
  }

  void one(uint64_t seed) {
    const LastWords words(seed);
    stock().enter();
    const Program program = generate(seed);
    Reached reached;
    const auto difference = compare(program, stock(), ours(), &reached);
    coverage_.add(reached);
    // An early sign of life, then one a minute or so.
    if (!options_.quiet && (coverage_.programs() == 50 || coverage_.programs() % 1000 == 0)) {
      std::printf("%lld programs, %zu differences\n", static_cast<long long>(coverage_.programs()),
                  reports_.size());
      std::fflush(stdout);
    }
    if (difference) tell(program, *difference);
  }

  void tell(const Program& program, Difference difference) {
    Program small = program;
    if (options_.shrink) {
      small = shrink(program, [this](const Program& p) {
        return !options_.stop() && compare(p, stock(), ours()).has_value();
      });
      if (auto again = compare(small, stock(), ours())) difference = *again;
    }
    const std::string text = print_cpp(small, difference);
    std::printf("Program %llu differs. After\n  %s\nstock shows\n  %s\nand Overdrive\n  %s\n",
                static_cast<unsigned long long>(program.seed), difference.before.c_str(),
                difference.left.c_str(), difference.right.c_str());
    if (options_.findings.empty()) {
      std::printf("%s\n", text.c_str());
    } else {
      std::ofstream(options_.findings + "/" + std::to_string(program.seed) + ".cpp") << text;
    }
    std::fflush(stdout);
    reports_.push_back({text, program.seed});
  }

  int finish() {
    // Plain programs leave most of the table empty.
    const bool settled =
        coverage_.programs() >= kProgramsForTable && !options_.stop() && !is_plain(options_.seed);
    const auto empty = settled ? coverage_.empty_cells() : std::vector<std::string>();
    if (!options_.quiet) std::printf("\n%s\n", coverage_.table().c_str());
    for (const std::string& cell : empty) std::printf("No program reached %s.\n", cell.c_str());
    std::printf("%lld programs from seed %llu: %zu differ, %zu cells of the table are empty.\n",
                static_cast<long long>(coverage_.programs()), static_cast<unsigned long long>(options_.seed),
                reports_.size(), empty.size());
    if (options_.report) options_.report(report_of(empty));
    return reports_.empty() && empty.empty() ? 0 : 1;
  }

  std::string report_of(const std::vector<std::string>& empty) const {
    std::ostringstream out;
    out << "{\"programs\": " << coverage_.programs() << ", \"seed\": " << options_.seed
        << ", \"differing_seeds\": [";
    for (size_t i = 0; i < reports_.size(); ++i) out << (i ? ", " : "") << reports_[i].seed;
    out << "], \"empty_cells\": [";
    for (size_t i = 0; i < empty.size(); ++i) out << (i ? ", \"" : "\"") << empty[i] << "\"";
    out << "], \"stopped\": " << (options_.stop() ? "true" : "false") << "}\n";
    return out.str();
  }

  const FuzzOptions options_;
  const Clock::time_point end_;
  Coverage coverage_;
  std::vector<Report> reports_;
};

}  // namespace

int run(const FuzzOptions& options) { return Fuzzer(options).run(); }

std::string program_of(uint64_t seed) {
  prepare();
  stock().enter();
  return print_cpp(generate(seed));
}

}  // namespace overdrive::fuzz
