// Question: how much of a backward of small kernels is the engine?
#include "bench/google_bench.h"

int main(int argc, char** argv) {
  return overdrive::bench::run_graphs(argc, argv, {"scale_chain", "relu_matmul", "lstm", "one_node"});
}
