// Question: does the engine matter where kernels are large? It should not.
#include "bench/google_bench.h"

int main(int argc, char** argv) { return overdrive::bench::run_graphs(argc, argv, {"large_matmul"}); }
