// What soak.cpp and process_state.cpp share. Private to this folder.
#pragma once

#include "test/stress/soak/soak.h"

namespace overdrive::soak {

ProcessState process_state();

// What of `now` is more than `before` allows; nothing when the process is as it was.
std::vector<std::string> growth(const ProcessState& before, const ProcessState& now);

}  // namespace overdrive::soak
