#include "examples/data/burgers.h"

#include "examples/data/data_files.h"

#include <sstream>

namespace overdrive::data {

Burgers load_burgers() {
  std::istringstream file(read_file("burgers.csv"));
  std::string line;
  std::getline(file, line);
  TORCH_CHECK(line == "t,x,u", "burgers.csv should begin with the line \"t,x,u\".");
  std::vector<float> numbers;
  while (std::getline(file, line)) {
    std::istringstream columns(line);
    std::array<char, 2> commas{};
    std::array<float, 3> row{};
    columns >> row[0] >> commas[0] >> row[1] >> commas[1] >> row[2];
    const bool is_row = columns && commas[0] == ',' && commas[1] == ',' && (columns >> std::ws).eof();
    TORCH_CHECK(is_row, "burgers.csv has a line that is not t,x,u: \"", line.substr(0, 80), "\".");
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  TORCH_CHECK(!numbers.empty(), "burgers.csv has no numbers.");
  const auto table = torch::tensor(numbers).view({-1, 3});
  return {table.narrow(1, 0, 1).contiguous(), table.narrow(1, 1, 1).contiguous(),
          table.narrow(1, 2, 1).contiguous()};
}

}  // namespace overdrive::data
