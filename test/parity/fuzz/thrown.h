// An error that is no std::exception, for programs that throw one.
#pragma once

namespace overdrive::fuzz {

struct Thrown {
  int value;
};

}  // namespace overdrive::fuzz
