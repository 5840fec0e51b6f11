#include "bench/environment.h"

#include "engine/engine.h"

#include <ATen/Parallel.h>
#include <sys/utsname.h>

#include <cstdlib>
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

}  // namespace

nlohmann::json environment() {
  double load[1] = {0};
  const bool has_load = getloadavg(load, 1) == 1;
  return {{"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"threads", at::get_num_threads()},
          {"torch", engine::running_torch()},
          {"torch_built_for", engine::built_for_torch()},
          {"compiler", __VERSION__},
          {"build_type", OVERDRIVE_BUILD_TYPE},
          {"kernel", kernel()},
          {"load_average", has_load ? nlohmann::json(load[0]) : nlohmann::json(nullptr)},
          {"time", now()}};
}

}  // namespace overdrive::bench
