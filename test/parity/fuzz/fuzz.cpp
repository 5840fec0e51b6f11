#include "test/parity/fuzz/fuzz.h"

#include <chrono>
#include <cstdio>
#include <fstream>

#include "test/parity/fuzz/compare.h"
#include "test/parity/fuzz/generator.h"
#include "test/parity/fuzz/last_words.h"
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
    return finish();
  }

 private:
  bool wants_more(int64_t i) const {
    if (static_cast<int>(reports_.size()) >= options_.max_differences) return false;
    return options_.minutes > 0 ? Clock::now() < end_ : i < options_.programs;
  }

  void one(uint64_t seed) {
    const LastWords words(seed);
    stock().enter();
    const Program program = generate(seed);
    Reached reached;
    const auto difference = compare(program, stock(), ours(), &reached);
    coverage_.add(reached);
    if (!options_.quiet && coverage_.programs() % 1000 == 0) {
      std::printf("%lld programs, %zu differences\n", static_cast<long long>(coverage_.programs()),
                  reports_.size());
    }
    if (difference) tell(program, *difference);
  }

  void tell(const Program& program, Difference difference) {
    Program small = program;
    if (options_.shrink) {
      small = shrink(program, [](const Program& p) { return compare(p, stock(), ours()).has_value(); });
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
    const auto empty =
        coverage_.programs() >= kProgramsForTable ? coverage_.empty_cells() : std::vector<std::string>();
    if (!options_.quiet) std::printf("\n%s\n", coverage_.table().c_str());
    for (const std::string& cell : empty) std::printf("No program reached %s.\n", cell.c_str());
    std::printf("%lld programs from seed %llu: %zu differ, %zu cells of the table are empty.\n",
                static_cast<long long>(coverage_.programs()), static_cast<unsigned long long>(options_.seed),
                reports_.size(), empty.size());
    write_json(empty);
    return reports_.empty() && empty.empty() ? 0 : 1;
  }

  void write_json(const std::vector<std::string>& empty) const {
    if (options_.json.empty()) return;
    std::ofstream out(options_.json);
    out << "{\"programs\": " << coverage_.programs() << ", \"seed\": " << options_.seed
        << ", \"differing_seeds\": [";
    for (size_t i = 0; i < reports_.size(); ++i) out << (i ? ", " : "") << reports_[i].seed;
    out << "], \"empty_cells\": [";
    for (size_t i = 0; i < empty.size(); ++i) out << (i ? ", \"" : "\"") << empty[i] << "\"";
    out << "]}\n";
    TORCH_CHECK(out.good(), "cannot write ", options_.json);
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
