// `overdrive graph NAME`: the graph of a trainer's largest backward, as a page, as JSON or for Graphviz.
#include "inspect/graph/graph.h"
#include "engine/engine.h"
#include "inspect/trace/trace.h"

#include "bench/support/text.h"
#include "examples/cli/cli.h"
#include "examples/cli/training_options.h"

#include <ATen/Parallel.h>

#include <optional>

namespace overdrive::cli {

namespace {

struct GraphArguments : TrainingOptions {
  std::string out;
  std::string trace;
};

inspect::LeafNames names_of(const trainers::Trainer& trainer) {
  inspect::LeafNames names;
  for (const auto& parameter : trainer.named_parameters())
    names.emplace_back(parameter.key(), parameter.value());
  return names;
}

// One step is taken, and the graph of its backward with most nodes is kept. With a trace, its nodes have times.
inspect::Graph largest_graph(const trainers::TrainerInfo& info, const trainers::Setup& setup,
                             const std::string& trace_file) {
  const auto trainer = make_trainer(info, setup);
  const inspect::LeafNames names = names_of(*trainer);
  inspect::Graph largest;
  trainers::Meter meter;
  meter.look_at_roots([&](const torch::Tensor& root) {
    inspect::Graph read = graph(root, names);
    if (read.nodes.size() > largest.nodes.size()) largest = std::move(read);
  });
  std::optional<inspect::Trace> trace;
  if (!trace_file.empty()) {
    install();
    trace.emplace(trace_file);
  }
  trainer->step(meter);
  if (trace) trace->close();
  if (largest.nodes.empty()) {
    throw UsageError(info.name + " builds its graphs inside derivatives of its own, where none can be drawn.");
  }
  if (trace) add_times(largest, trace_file);
  return largest;
}

std::string drawn(const inspect::Graph& graph, const std::string& path, const std::string& name) {
  if (path.ends_with(".html")) return to_html(graph, name);
  if (path.ends_with(".json")) return to_json(graph);
  return to_dot(graph);
}

int draw(const GraphArguments& arguments) {
  const auto selection = find_or_complain(arguments.name);
  if (selection.size() != 1)
    throw UsageError("graph draws one trainer; \"" + arguments.name + "\" are several.");
  const bench::OutputFile file(arguments.out);
  at::set_num_threads(arguments.threads);
  const inspect::Graph graph = largest_graph(*selection[0], arguments.setup, arguments.trace);
  file.write(drawn(graph, arguments.out, selection[0]->name));
  arguments.output.print(bench::format("%s: %zu nodes, %zu edges, %lld bytes held; %s\n",
                                       selection[0]->name.c_str(), graph.nodes.size(), graph.edges.size(),
                                       static_cast<long long>(graph.held_bytes()), arguments.out.c_str()));
  return kFine;
}

}  // namespace

void add_graph(Program& program) {
  auto arguments = std::make_shared<GraphArguments>();
  CLI::App* command =
      program.add(program.app, "graph", "Draw the graph of a model's backward.",
                  "overdrive graph transformer -o transformer.html", [arguments] { return draw(*arguments); });
  add_model_options(*command, *arguments);
  command->add_flag("--quiet", arguments->output.quiet, "Print nothing but errors.");
  command
      ->add_option("--trace", arguments->trace,
                   "Write a trace of the step here too, and colour the page by its times.")
      ->type_name("FILE");
  command->add_option("-o,--out", arguments->out, "The file: .html for a page, .json, or .dot for Graphviz.")
      ->required()
      ->check(CLI::Validator(
          [](const std::string& path) -> std::string {
            for (const char* ending : {".html", ".json", ".dot"}) {
              if (path.ends_with(ending)) return "";
            }
            return "\"" + path + "\" ends neither with .html nor with .json nor with .dot";
          },
          ""));
}

}  // namespace overdrive::cli
