// Runs backwards whose instructions valgrind counts (instructions_test.py): each inside of measured_backward(),
// after two that are not counted. Arguments: `stock` or `overdrive`, then pairs of a graph of `bench engine`
// and a size. Prints a line for each pair: the name, the size, how many nodes the backward runs.
#include "bench/graph.h"
#include "engine/engine.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

using namespace overdrive;

// Valgrind knows the function by its name, and collects until it returns: no jump may stand for its last call.
extern "C" [[gnu::noinline]] void measured_backward(const bench::Graph& graph) {
  graph.run();
  asm volatile("");
}

namespace {

bench::Graph build(const std::string& name, int64_t size) {
  for (const bench::GraphKind& kind : bench::graph_kinds()) {
    if (kind.name == name) return kind.build(size);
  }
  TORCH_CHECK(false, "there is no graph \"", name, "\".");
}

void run(int argc, char** argv) {
  at::set_num_threads(1);
  TORCH_CHECK(argc >= 2 && argc % 2 == 0, "arguments: stock|overdrive [GRAPH SIZE]...");
  if (argv[1] == std::string("overdrive")) install();
  for (int at = 2; at < argc; at += 2) {
    bench::Graph graph = build(argv[at], std::atoll(argv[at + 1]));
    for (int i = 0; i < 2; ++i) {
      graph.prepare();
      graph.run();
    }
    graph.prepare();
    measured_backward(graph);
    std::printf("%s %s %lld\n", argv[at], argv[at + 1], static_cast<long long>(graph.nodes()));
  }
  uninstall();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
