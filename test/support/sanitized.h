// Whether the process runs under a sanitizer. The address sanitizer sees the library alone, so the macros that
// tell of it are not set where tests are compiled; its runtime is in the process all the same.
#pragma once

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace overdrive::test {

inline bool sanitized() { return &__asan_init != nullptr || &__tsan_init != nullptr; }

}  // namespace overdrive::test
