#include "engine/c_api.h"

#include "engine/install.h"
#include "engine/stats.h"

#include <cstdio>

using namespace overdrive;

extern "C" {

int overdrive_install(void) try {
  engine::install();
  return engine::installed();
} catch (...) {
  return 0;
}
int overdrive_uninstall(void) try { return engine::uninstall(); } catch (...) {
  return 0;
}
int overdrive_installed(void) try { return engine::installed(); } catch (...) {
  return 0;
}
uint64_t overdrive_backward_count(void) try { return engine::stats().backwards; } catch (...) {
  return 0;
}
int overdrive_stats_json(char* buffer, size_t size) try {
  return std::snprintf(buffer, size, "%s", engine::stats_json().c_str());
} catch (...) {
  return -1;
}
const char* overdrive_last_error(void) { return ""; }
}
