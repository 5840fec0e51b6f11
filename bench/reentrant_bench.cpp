// Question: what does a backward inside a backward cost per level?
#include "bench/google_bench.h"

int main(int argc, char** argv) { return overdrive::bench::run_graphs(argc, argv, {"reentrant"}); }
