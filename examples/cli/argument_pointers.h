// The strings as the system's calls that start a program want them: pointers, the last one null. They point
// into `strings`.
#pragma once

#include <string>
#include <vector>

namespace overdrive::cli {

inline std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace overdrive::cli
