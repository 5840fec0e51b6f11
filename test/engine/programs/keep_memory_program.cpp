// Takes page faults, and prints how many: `blocks` by malloc() alone, with keep_memory() called and undone in
// between; `mlp stock|overdrive` by training steps, after which it prints what stats() tells; `faults [MiB]`
// beside small steps, after keep_memory(MiB), and again without the engine; `refused` by an install() that
// fails; `given_back [asked]` with and without the engine.
#include "engine/engine.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

long faults_so_far() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

long resident_mib() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096 / static_cast<long>(kMiB);
}

// Blocks that lie side by side, all written to, freed from the last to the first. A list that grew between them
// would leave a small block there, and all below it would stay.
void use_blocks(size_t count) {
  static char* blocks[256];
  for (size_t i = 0; i < count; ++i) {
    auto* block = static_cast<char*>(std::malloc(kMiB));
    for (size_t at = 0; at < kMiB; at += 4096) static_cast<volatile char*>(block)[at] = 1;
    blocks[i] = block;
  }
  while (count > 0) std::free(blocks[--count]);
}

long faults_of_blocks() {
  for (int i = 0; i < 3; ++i) use_blocks(8);
  const long before = faults_so_far();
  for (int i = 0; i < 10; ++i) use_blocks(8);
  return (faults_so_far() - before) / 10;
}

int blocks() {
  std::printf("untouched %ld\n", faults_of_blocks());
  const bool glibc = overdrive::keep_memory(64 * kMiB);
  std::printf("set %d limit %llu\n", glibc,
              static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  std::printf("kept %ld\n", faults_of_blocks());
  const long before = resident_mib();
  use_blocks(256);
  std::printf("more %ld\n", resident_mib() - before);
  // Another thread has heaps of 64 MiB, which have to go while the thread lives.
  std::thread([] {
    const long at_first = resident_mib();
    use_blocks(256);
    std::printf("in_thread %ld\n", resident_mib() - at_first);
  }).join();
  overdrive::keep_memory(0);
  std::printf("undone %ld limit %llu\n", faults_of_blocks(),
              static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  return 0;
}

// A plain MLP whose gradients are dropped after each step.
int mlp(const std::string& engine) {
  at::set_num_threads(1);
  if (engine == "overdrive") overdrive::install();
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(512, 512));
    net->push_back(torch::nn::Tanh());
  }
  const auto x = torch::randn({64, 512}), y = torch::randn({64, 512});
  const auto step = [&] {
    torch::mse_loss(net->forward(x), y).backward();
    for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad().reset();
  };
  for (int i = 0; i < 40; ++i) step();
  const long before = faults_so_far();
  for (int i = 0; i < 20; ++i) step();
  std::printf("a step %ld limit %llu\n", (faults_so_far() - before) / 20,
              static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  return 0;
}

// Backwards beside which the process takes page faults that no heap can save it, after the program has chosen
// how much memory to keep (none said: nothing was chosen).
int faults(const char* mebibytes) {
  if (mebibytes != nullptr) overdrive::keep_memory(std::strtoull(mebibytes, nullptr, 10) * kMiB);
  overdrive::install();
  const auto x = torch::ones({2}, torch::requires_grad());
  constexpr size_t kPages = 256;
  for (int i = 0; i < 100; ++i) {
    void* const fresh =
        mmap(nullptr, kPages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < kPages; ++page) static_cast<volatile char*>(fresh)[page * 4096] = 1;
    munmap(fresh, kPages * 4096);
    (x * 2).sum().backward();
  }
  const auto limit = static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes);
  overdrive::uninstall();
  std::printf("limit %llu without %llu\n", limit,
              static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  return 0;
}

// install() that fails, after which glibc's heap is as it was.
int refused() {
  bool failed = false;
  try {
    overdrive::install(overdrive::Options{.keep_memory_mib = 64});
  } catch (const std::exception&) {
    failed = true;
  }
  std::printf("failed %d installed %d limit %llu\n", failed, overdrive::installed(),
              static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  return 0;
}

// What stays goes with the engine. `asked`: but for what the program has asked for.
int given_back(bool asked) {
  if (asked) overdrive::keep_memory(32 * kMiB);
  for (int i = 0; i < 2; ++i) {
    overdrive::install(overdrive::Options{.keep_memory_mib = 64});
    const long kept = faults_of_blocks();
    const auto limit = static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes);
    overdrive::uninstall();
    std::printf("kept %ld limit %llu back %ld limit %llu\n", kept, limit, faults_of_blocks(),
                static_cast<unsigned long long>(overdrive::stats().keep_memory_bytes));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "blocks";
  if (mode == "refused") return refused();
  if (mode == "given_back") return given_back(argc > 2);
  if (mode == "faults") return faults(argc > 2 ? argv[2] : nullptr);
  return mode == "mlp" && argc == 3 ? mlp(argv[2]) : blocks();
}
