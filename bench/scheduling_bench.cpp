// Question: what does scheduling alone cost per node? The nodes do nothing.
#include "bench/google_bench.h"

int main(int argc, char** argv) {
  return overdrive::bench::run_graphs(argc, argv, {"chain", "ladder", "wide"});
}
