// liboverdrive_held_off.so: preloaded by `compare --app` into the runs on stock. Its install() stands before
// the engine's own and does nothing, so that a program which installs Overdrive itself is compared with stock,
// too. At the end it tells on stderr how often that was asked for, and how many backwards ran on Overdrive all
// the same.
#include "engine/c_api.h"
#include "engine/install.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>

namespace {

std::atomic<long> asked{0};

__attribute__((destructor)) void report() {
  if (void* library = dlopen("liboverdrive.so", RTLD_NOW | RTLD_NOLOAD)) {
    const auto count = reinterpret_cast<uint64_t (*)()>(dlsym(library, "overdrive_backward_count"));
    const unsigned long long backwards = count != nullptr ? count() : 0;
    std::fprintf(stderr, "overdrive: held off {\"installs\":%ld,\"backwards\":%llu}\n", asked.load(),
                 backwards);
  }
}

}  // namespace

extern "C" int overdrive_install(void) {
  ++asked;
  return 1;
}

namespace overdrive::engine {

void install(const Options&) { ++asked; }
bool uninstall() { return true; }
ScopedInstall::ScopedInstall(const Options&) : number_(0) { ++asked; }
ScopedInstall::~ScopedInstall() = default;

}  // namespace overdrive::engine
