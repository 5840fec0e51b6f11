// `overdrive soak`: threads, nested backwards, exceptions, switching and forks, compared with stock.
#include "test/stress/soak/soak.h"

#include "bench/environment.h"
#include "bench/support/text.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

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

std::string text_of_round(const nlohmann::json& round) {
  const auto number = [&](const char* name) { return round[name].get<long long>(); };
  std::string text = bench::fitted(bench::format(
      "round %lld: %lld programs, %lld switches, %lld forks; %lld KiB, %lld threads, %lld files, %lld graphs",
      number("round"), number("programs"), number("switches"), number("forks"), number("resident_kib"),
      number("threads"), number("files"), number("live_graphs")));
  for (const auto& failure : round["failures"]) text += "  FAILED: " + failure.get<std::string>() + "\n";
  return text;
}

int run_soak(soak::SoakOptions options, const Output& output) {
  options.stop = interrupted;
  const JsonFile file(output.json);
  at::set_num_threads(1);
  nlohmann::json rounds = nlohmann::json::array();
  harness::stop_on_interrupt();
  const auto failures = soak::run(options, [&](const soak::RoundResult& result) {
    rounds.push_back(to_json(result));
    output.print(text_of_round(rounds.back()));
  });
  file.write({{"rounds", rounds},
              {"failures", failures},
              {"environment", bench::environment()},
              {"stopped", interrupted()}});
  return harness::ending(!failures.empty());
}

}  // namespace

void add_soak(Program& program) {
  auto options = std::make_shared<soak::SoakOptions>();
  auto output = std::make_shared<Output>();
  CLI::App* command =
      program.add(program.app, "soak", "Run everything at once, for long, and compare with stock.",
                  "overdrive soak --minutes 2", [=] { return run_soak(*options, *output); });
  option(*command, "--minutes", options->minutes, "How long.", above_zero());
  option(*command, "--seed", options->seed, "Seed of the programs.", zero_or_above());
  option(*command, "--threads", options->threads, "Threads that run programs.", CLI::Range(1, 256));
  output->add_to(*command);
}

}  // namespace overdrive::cli
