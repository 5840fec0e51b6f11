// A LibTorch program that knows nothing of Overdrive: it runs a backward in a static constructor
// and one in main, and prints the type of the engine each time.
//   autoload_program                   as it is
//   autoload_program dlopen LIBRARY    loads, and closes, LIBRARY in between
//   autoload_program quick_exit        leaves by quick_exit()
//   autoload_program count             asks the C function for the count, as another language would
#include "test/support/pch.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

namespace {

void backward(const char* when) {
  auto x = torch::ones({2}, torch::requires_grad());
  (x * 3).sum().backward();
  const bool right = torch::equal(x.grad(), torch::full({2}, 3.0));
  std::printf("%s: %s%s\n", when, typeid(torch::autograd::Engine::get_default_engine()).name(),
              right ? "" : " WRONG");
  std::fflush(stdout);
}

const bool before_main = (backward("static constructor"), true);

}  // namespace

int main(int argc, char** argv) {
  backward("main");
  if (argc == 3 && std::strcmp(argv[1], "dlopen") == 0) {
    void* library = dlopen(argv[2], RTLD_NOW);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    backward("after dlopen");
    dlclose(library);
    backward("after dlclose");
  }
  if (argc == 2 && std::strcmp(argv[1], "quick_exit") == 0) std::quick_exit(0);
  if (argc == 2 && std::strcmp(argv[1], "count") == 0) {
    const auto count = reinterpret_cast<uint64_t (*)()>(dlsym(RTLD_DEFAULT, "overdrive_backward_count"));
    if (!count) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    std::printf("count: %d\n", static_cast<int>(count()));
  }
  return 0;
}
