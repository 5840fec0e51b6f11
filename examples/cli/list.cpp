// `overdrive list`: what there is to measure.
#include "bench/graph.h"
#include "examples/cli/cli.h"

#include <iomanip>
#include <iostream>

namespace overdrive::cli {

void add_list(Program& program) {
  program.add("list", "List the graphs that can be measured.", "overdrive list", [] {
    std::cout << "graphs of `overdrive bench engine`:\n";
    for (const bench::GraphKind& kind : bench::graph_kinds()) {
      std::cout << "  " << std::left << std::setw(14) << kind.name << kind.what << "; sizes";
      for (int64_t size : kind.sizes) std::cout << ' ' << size;
      std::cout << '\n';
    }
    return kFine;
  });
}

}  // namespace overdrive::cli
