// `overdrive replay NAME`: a captured step of one of the benchmarks' models as text, or its lanes as a page.
#include "replay/replay.h"
#include "bench/capture_models.h"
#include "bench/support/text.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace overdrive::cli {

namespace {

struct ReplayArguments {
  std::string name;
  std::string out;
  int lanes = kAutoLanes;
  Output output;
};

// Until the operators are timed, shares proven, and lanes tried and noted.
constexpr int kCalls = 60;

std::vector<bench::CaptureModelKind> models() {
  std::vector<bench::CaptureModelKind> all = bench::models_for_lanes();
  for (const bench::CaptureModelKind& kind : bench::capture_models()) {
    const auto has_its_name = [&](const auto& other) { return other.name == kind.name; };
    if (std::none_of(all.begin(), all.end(), has_its_name)) all.push_back(kind);
  }
  return all;
}

bench::CaptureModelKind model_named(const std::string& name) {
  std::string names;
  for (const bench::CaptureModelKind& kind : models()) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "\"" : ", \"") + kind.name + "\"";
  }
  throw UsageError("there is no model \"" + name + "\"; there are " + names + ".");
}

int replay(const ReplayArguments& arguments) {
  const bench::CaptureModelKind kind = model_named(arguments.name);
  if (arguments.lanes == 1 && !arguments.out.empty())
    throw UsageError("with --lanes 1 there are no lanes to draw; leave it out, or ask for 2 or more.");
  const bench::OutputFile file(arguments.out);
  at::set_num_threads(1);  // or the step has one lane
  torch::manual_seed(1);
  bench::CaptureModel model = kind.build();
  CapturedStep step(
      [&](const std::vector<at::Tensor>& inputs) { return std::vector<at::Tensor>{model.step(inputs)}; },
      {.optimizer = model.optimizer.get(), .constant_modes = true, .lanes = arguments.lanes, .always = true});
  for (int i = 0; i < kCalls; ++i) step.call(model.inputs);
  if (!step.refusal().empty()) throw UsageError(kind.name + " is not replayed: " + step.refusal());
  if (arguments.out.empty()) {
    arguments.output.print(step.explain());
    return kFine;
  }
  file.write(arguments.out.ends_with(".html") ? step.lanes_page(kind.name) : step.lanes_json());
  const std::string text = step.explain();
  const size_t line = text.find("lanes: ");
  const std::string lanes =
      line == std::string::npos ? "one lane" : text.substr(line, text.find('\n', line) - line);
  arguments.output.print(bench::fitted(kind.name + ": " + lanes + "; " + arguments.out));
  return kFine;
}

}  // namespace

void add_replay(Program& program) {
  auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command = program.add(program.app, "replay", "Show a captured step, or draw the lanes that run it.",
                                  "overdrive replay \"ensemble 8x64\" -o lanes.html",
                                  [arguments] { return replay(*arguments); });
  command->add_option("name", arguments->name, "A model of `bench lanes` or `bench capture`.")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("--lanes", arguments->lanes,
                   "At most so many lanes run the step; 0: as many as help. Others are simulated.")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command
      ->add_option(
          "-o,--out", arguments->out,
          "Draw the lanes into this file: .html for a page, or .json. Without it the operators are printed.")
      ->check(CLI::Validator(
          [](const std::string& path) -> std::string {
            if (path.ends_with(".html") || path.ends_with(".json")) return "";
            return "\"" + path + "\" ends neither with .html nor with .json";
          },
          ""));
  command->add_flag("--quiet", arguments->output.quiet, "Print nothing but errors.");
}

}  // namespace overdrive::cli
