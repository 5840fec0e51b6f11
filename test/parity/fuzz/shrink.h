// Makes a program smaller while the two engines still differ on it: drops statements, in the
// middle of the list and inside bodies, and plainer versions of those that stay. The difference
// may become another one on the way.
#pragma once

#include <functional>

#include "test/parity/fuzz/program.h"

namespace overdrive::fuzz {

// `differs` is asked at most `most_tries` times.
Program shrink(const Program& program, const std::function<bool(const Program&)>& differs,
               int most_tries = 3000);

}  // namespace overdrive::fuzz
