// How often does a step fault memory in that the heap gave back? Each model and engine in a process of its own
// (`overdrive bench faults`), because a heap remembers all that was in it.
#include "bench/benchmark.h"
#include "bench/support/program_run.h"

#include <c10/util/Exception.h>

namespace overdrive::bench {

nlohmann::json measure_page_faults(const std::string& model, int64_t steps,
                                   const std::vector<std::string>& engines,
                                   const std::function<void()>& check_stop) {
  nlohmann::json row{{"model", model}};
  for (const std::string& engine : engines) {
    const ProgramRun run = run_program({.arguments = {"/proc/self/exe", "bench", "faults", model, "--engine",
                                                      engine, "--steps", std::to_string(steps)}});
    check_stop();  // a terminal sends Ctrl-C to that program, too
    TORCH_CHECK(run.status == 0, "the process of model ", model, " failed: ", run.err);
    const auto told = nlohmann::json::parse(run.out);
    row[engine + "_faults"] = told["faults"];
    row[engine + "_peak_kib"] = run.peak_kib;
    row[engine + "_milliseconds"] = told["milliseconds"];
    row[engine + "_keep_memory_bytes"] = told["keep_memory_bytes"];
  }
  return row;
}

}  // namespace overdrive::bench
