#include "engine/c_api.h"

#include "engine/base/c_error.h"
#include "engine/install.h"
#include "engine/keep_memory.h"
#include "engine/options.h"
#include "engine/stats.h"

#include <cstdio>

namespace {

using namespace overdrive;
using base::set_last_error;
using base::without_throwing;

}  // namespace

extern "C" {

int overdrive_check_environment(void) {
  return without_throwing(0, [] {
    engine::Options::from_environment();
    return 1;
  });
}

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
    if (!done) base::set_last_error("malloc is not glibc's in this process");
    return done ? 1 : 0;
  });
}

int overdrive_stats_summary(char* buffer, size_t size) {
  return without_throwing(-1,
                          [&] { return std::snprintf(buffer, size, "%s", engine::stats_summary().c_str()); });
}

void overdrive_reset_stats(void) {
  without_throwing(0, [] {
    engine::reset_stats();
    return 0;
  });
}

const char* overdrive_last_error(void) { return base::last_error(); }
}
