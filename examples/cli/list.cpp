// `overdrive list`: what there is to measure.
#include "bench/graph.h"
#include "examples/cli/cli.h"
#include "examples/trainers/trainer.h"

#include <iomanip>
#include <iostream>

namespace overdrive::cli {

void add_list(Program& program) {
  program.add("list", "List what can be trained and measured.", "overdrive list", [] {
    std::cout << "trainers, for `overdrive compare NAME`:\n";
    for (const trainers::TrainerInfo& info : trainers::trainers()) {
      std::cout << "  " << std::left << std::setw(16) << info.name << info.what << "; shows " << info.shows
                << '\n';
    }
    std::cout << "\ngraphs of `overdrive bench engine`:\n";
    for (const bench::GraphKind& kind : bench::graph_kinds()) {
      std::cout << "  " << std::left << std::setw(16) << kind.name << kind.what << "; sizes";
      for (int64_t size : kind.sizes) std::cout << ' ' << size;
      std::cout << '\n';
    }
    return kFine;
  });
}

}  // namespace overdrive::cli
