// The version of LibTorch as a value, and the rule for versions that go together. No state; any thread. Plain
// C++, because the preload library asks before it loads an object that needs LibTorch.
#pragma once

#include <cstdint>

// Note [Which LibTorch runs]: TORCH_VERSION in a header is the version of Overdrive's build. The
// libtorch_cpu.so of the process may have another version, and aoti_torch_abi_version() tells it. This function
// belongs to the C interface that LibTorch keeps stable: every release since 2.10 exports it, and extensions
// call it. Rejected: caffe2::GetBuildOptions() and at::show_config() (C++ signatures, text to parse, and a
// build flag as version), version.py of the Python package (a process may have no Python), and the file name of
// the library (no version in it). A LibTorch without the symbol is older than every version that Overdrive
// supports.
//
// liboverdrive.so refers to the symbol weakly, and the preload library uses dlsym. So an old LibTorch gives a
// message instead of a symbol lookup error.

namespace overdrive::engine {

struct HostVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend constexpr bool operator==(const HostVersion&, const HostVersion&) = default;
};

// From the result of aoti_torch_abi_version(): one byte each for major, minor, patch, then tags.
constexpr HostVersion version_from_abi(uint64_t abi) {
  return {static_cast<int>(abi >> 56 & 0xff), static_cast<int>(abi >> 48 & 0xff),
          static_cast<int>(abi >> 40 & 0xff)};
}

// From text such as "2.13.0", "2.13.0+cpu" or "2.14.0a0+git". Text after the numbers is ignored.
constexpr HostVersion version_from_text(const char* text) {
  int numbers[3] = {};
  for (int& number : numbers) {
    while (*text >= '0' && *text <= '9') number = number * 10 + (*text++ - '0');
    if (*text++ != '.') break;
  }
  return {numbers[0], numbers[1], numbers[2]};
}

// Overdrive reads internals of LibTorch. They may change with a minor version and do not change within one.
constexpr bool runs_in(HostVersion built_for, HostVersion running) {
  return built_for.major == running.major && built_for.minor == running.minor;
}

}  // namespace overdrive::engine
