// `overdrive list`: what there is to measure.
#include "bench/graph.h"
#include "bench/support/text.h"
#include "examples/cli/cli.h"
#include "examples/trainers/trainer.h"

namespace overdrive::cli {

void add_list(Program& program) {
  program.add(program.app, "list", "List what can be trained and measured.", "overdrive list", [] {
    const auto line = [](const std::string& name, const std::string& what) {
      return bench::fitted(bench::format("  %-16s", name.c_str()) + what);
    };
    std::string text = "trainers, for `overdrive compare NAME`:\n";
    for (const trainers::TrainerInfo& info : trainers::trainers())
      text += line(info.name, info.what + "; shows " + info.shows);
    text += "\ngraphs of `overdrive bench engine`:\n";
    for (const bench::GraphKind& kind : bench::graph_kinds()) {
      std::string sizes;
      for (const int64_t size : kind.sizes) sizes += " " + std::to_string(size);
      text += line(kind.name, kind.what + "; sizes" + sizes);
    }
    Output().print(text);
    return kFine;
  });
}

}  // namespace overdrive::cli
