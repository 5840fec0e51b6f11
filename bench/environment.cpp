#include "bench/environment.h"

#include "engine/engine.h"

#include <ATen/Parallel.h>
#include <sys/utsname.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace overdrive::bench {

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string kernel() {
  utsname about{};
  if (uname(&about) != 0) return "unknown";
  return std::string(about.sysname) + " " + about.release + " " + about.machine;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// To two digits; below 0 where the system does not tell.
double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? std::round(load * 100) / 100 : -1;
}
// When the program began: later this process itself is a part of it.
const double load_at_start = load_average();

std::string compiler() {
#ifdef __clang__
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  return "GCC " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
}

}  // namespace

nlohmann::json environment() {
  return {{"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"threads", at::get_num_threads()},
          {"torch", engine::running_torch()},
          {"torch_built_for", engine::built_for_torch()},
          {"compiler", compiler()},
          {"build_type", OVERDRIVE_BUILD_TYPE},
          {"kernel", kernel()},
          {"load_average", load_at_start >= 0 ? nlohmann::json(load_at_start) : nlohmann::json(nullptr)},
          {"time", now()}};
}

}  // namespace overdrive::bench
