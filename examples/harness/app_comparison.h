// `overdrive compare --app PROGRAM -- ARGUMENTS`: any LibTorch program, as it is and with the preload library.
#pragma once

#include <string>
#include <vector>

namespace overdrive::cli {

struct CompareAppArguments {
  std::string program;
  std::vector<std::string> arguments;
  int runs = 3;                     // of each kind, in turns
  std::vector<std::string> ignore;  // regular expressions: what they match in the output does not count
  std::string json;
  bool quiet = false;
};

// Gives the exit status: 1 when what the program prints, or its exit status, differs.
int compare_app(const CompareAppArguments& arguments);

}  // namespace overdrive::cli
