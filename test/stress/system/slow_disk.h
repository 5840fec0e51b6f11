// A disk that takes its time: functions that run before each pwrite() and pread() of the process, on the thread
// that calls. Changed while no file is read or written. Defines functions that stand before the C library's, so
// one source of a program includes this header.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <functional>

namespace overdrive::test {

struct SlowDisk {
  std::function<void()> before_write, before_read;
};
inline SlowDisk slow_disk;

template <typename Function>
Function* real_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace overdrive::test

extern "C" ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  static auto* const real = overdrive::test::real_function<decltype(pwrite)>("pwrite");
  if (overdrive::test::slow_disk.before_write) overdrive::test::slow_disk.before_write();
  return real(file, from, bytes, at);
}

extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  static auto* const real = overdrive::test::real_function<decltype(pread)>("pread");
  if (overdrive::test::slow_disk.before_read) overdrive::test::slow_disk.before_read();
  return real(file, to, bytes, at);
}
