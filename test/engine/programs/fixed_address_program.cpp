// Prints whether malloc is glibc's, in a program at a fixed address that takes the addresses of malloc and its
// like, as Debian's Python does. Without LibTorch.
#include "engine/base/glibc_heap.h"

#include <cstdio>
#include <cstdlib>

namespace {
void* (*volatile allocate)(size_t) = &std::malloc;
void (*volatile give_back)(void*) = &std::free;
}  // namespace

int main() {
  give_back(allocate(1));
  std::puts(overdrive::base::malloc_is_glibcs() ? "glibc's" : "another");
}
