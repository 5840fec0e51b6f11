// The version of LibTorch as a value, and the rule for which ones go together. Plain C++ for the
// preload library's sake, which asks before it loads anything that needs LibTorch. No state.
#pragma once

#include <cstdint>

// Note [Which LibTorch runs]: a header's TORCH_VERSION is the version Overdrive was built for; what counts is
// the libtorch_cpu.so that the process has. That one says its version through aoti_torch_abi_version(), which
// belongs to the C interface that LibTorch promises to keep stable: every release since 2.10 exports it, and
// extensions built against that interface call it, so it cannot quietly go. Considered instead:
// caffe2::GetBuildOptions() and at::show_config() (C++ signatures, and text to be parsed; their
// TORCH_VERSION is a build flag), the Python package's version.py (there may be no Python), the
// file name of the library (it has none). A LibTorch without the symbol is older than all that
// Overdrive can be built for.
//
// The symbol is referenced weakly from liboverdrive.so, and by dlsym from the preload library, so
// that an old LibTorch gives a message and not a symbol lookup error.

namespace overdrive::engine {

struct HostVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend constexpr bool operator==(const HostVersion&, const HostVersion&) = default;
};

// From what aoti_torch_abi_version() returns: one byte each for major, minor, patch, then tags.
constexpr HostVersion version_from_abi(uint64_t abi) {
  return {static_cast<int>(abi >> 56 & 0xff), static_cast<int>(abi >> 48 & 0xff),
          static_cast<int>(abi >> 40 & 0xff)};
}

// From text such as "2.13.0", "2.13.0+cpu" or "2.14.0a0+git": what follows the numbers is ignored.
constexpr HostVersion version_from_text(const char* text) {
  int numbers[3] = {};
  for (int& number : numbers) {
    while (*text >= '0' && *text <= '9') number = number * 10 + (*text++ - '0');
    if (*text++ != '.') break;
  }
  return {numbers[0], numbers[1], numbers[2]};
}

// Overdrive reads insides of its host that may change with any minor version and do not change
// within one.
constexpr bool runs_in(HostVersion built_for, HostVersion running) {
  return built_for.major == running.major && built_for.minor == running.minor;
}

}  // namespace overdrive::engine
