// The packers of saved tensors that `--save-tensors` knows by name. Plain functions.
#pragma once

#include "hooks/hooks.h"

#include <string>
#include <vector>

namespace overdrive::cli {

std::vector<std::string> packer_names();
// Of one of those names; null for "plain". Throws what making it throws.
hooks::HooksPtr packer_named(const std::string& name);

}  // namespace overdrive::cli
