// Settings of the process that decide bits, as a text: a step file has those of its writer. Any thread.
#pragma once

#include <string>

namespace overdrive::replay {

std::string settings_now();

}  // namespace overdrive::replay
