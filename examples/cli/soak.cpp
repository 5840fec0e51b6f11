// `overdrive soak`: threads, nested backwards, exceptions, switching and forks, compared with stock.
#include "test/stress/soak/soak.h"

#include "bench/environment.h"
#include "examples/cli/cli.h"
#include "examples/harness/progress.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

struct SoakArguments {
  soak::SoakOptions options;
  std::string json;
  bool quiet = false;
};

nlohmann::json to_json(const soak::RoundResult& round) {
  return {{"round", round.round},
          {"programs", round.programs},
          {"switches", round.switches},
          {"forks", round.forks},
          {"resident_kib", round.after.resident_kib},
          {"threads", round.after.threads},
          {"files", round.after.files},
          {"live_graphs", round.after.live_graphs},
          {"failures", round.failures}};
}

void print_round(const nlohmann::json& round) {
  auto number = [&](const char* name) { return round[name].get<long long>(); };
  std::printf(
      "round %lld: %lld programs, %lld switches, %lld forks; %lld KiB, %lld threads, %lld files, %lld graphs\n",
      number("round"), number("programs"), number("switches"), number("forks"), number("resident_kib"),
      number("threads"), number("files"), number("live_graphs"));
  for (const auto& failure : round["failures"])
    std::printf("  FAILED: %s\n", failure.get<std::string>().c_str());
  std::fflush(stdout);
}

int run_soak(SoakArguments arguments) {
  arguments.options.stop = interrupted;
  JsonFile file(arguments.json);
  at::set_num_threads(1);
  nlohmann::json rounds = nlohmann::json::array();
  stop_on_interrupt();
  const auto failures = soak::run(arguments.options, [&](const soak::RoundResult& result) {
    rounds.push_back(to_json(result));
    if (!arguments.quiet) print_round(rounds.back());
  });
  if (interrupted()) say_stopped();
  file.write({{"rounds", rounds},
              {"failures", failures},
              {"environment", bench::environment()},
              {"stopped", interrupted()}});
  return failures.empty() ? kFine : kDifferenceFound;
}

}  // namespace

void add_soak(Program& program) {
  auto arguments = std::make_shared<SoakArguments>();
  CLI::App* command = program.add("soak", "Run everything at once, for long, and compare with stock.",
                                  "overdrive soak --minutes 2", [arguments] { return run_soak(*arguments); });
  command->add_option("--minutes", arguments->options.minutes, "How long.")
      ->check(above_zero())
      ->capture_default_str();
  command->add_option("--seed", arguments->options.seed, "Seed of the programs.")
      ->check(zero_or_above())
      ->capture_default_str();
  command->add_option("--threads", arguments->options.threads, "Threads that run programs.")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--json", arguments->json, "Write every round to this file.");
  command->add_flag("--quiet", arguments->quiet, "Print nothing.");
}

}  // namespace overdrive::cli
