#include "engine/c_api.h"

#include "engine/install.h"
#include "engine/keep_memory.h"
#include "engine/stats.h"

#include <c10/util/Exception.h>

#include <cstdio>

namespace {

using namespace overdrive;

// A plain array: a string would have a destructor, and a caller's may run after it.
constinit thread_local char last_error[512] = "";

void set_last_error(const char* text) { std::snprintf(last_error, sizeof last_error, "%s", text); }

// Runs f for a caller that knows no exceptions; on one, keeps its text and returns `failed`.
template <typename Result, typename F>
Result without_throwing(Result failed, F&& f) {
  try {
    set_last_error("");
    return f();
  } catch (const c10::Error& error) {
    set_last_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("an exception of an unknown type");
  }
  return failed;
}

}  // namespace

extern "C" {

int overdrive_install(void) {
  return without_throwing(0, [] {
    engine::install();
    return 1;
  });
}

int overdrive_uninstall(void) {
  return without_throwing(0, [] {
    const bool done = engine::uninstall();
    if (!done) set_last_error("another engine was installed on top of Overdrive");
    return done ? 1 : 0;
  });
}

int overdrive_installed(void) {
  return without_throwing(0, [] { return engine::installed() ? 1 : 0; });
}

uint64_t overdrive_backward_count(void) {
  return without_throwing(uint64_t{0}, [] { return engine::stats().backwards; });
}

int overdrive_stats_json(char* buffer, size_t size) {
  return without_throwing(-1, [&] { return std::snprintf(buffer, size, "%s", engine::stats_json().c_str()); });
}

int overdrive_keep_memory(size_t bytes) {
  return without_throwing(0, [bytes] {
    const bool done = engine::keep_memory(bytes);
    if (!done) set_last_error("malloc is not glibc's in this process");
    return done ? 1 : 0;
  });
}

const char* overdrive_last_error(void) { return last_error; }
}
