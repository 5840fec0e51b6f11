// The machine and the versions a figure belongs to. A number without them is not a result.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace overdrive::bench {

// processor, cores, threads, torch, torch_built_for, compiler, build_type, kernel, load_average, time.
nlohmann::json environment();

}  // namespace overdrive::bench
