#include "examples/data/text.h"

#include "examples/data/data_files.h"

#include <array>
#include <set>

namespace overdrive::data {

Text load_text() {
  const std::string book = read_file("alice.txt");
  constexpr size_t kLeastCharacters = 10'000;
  TORCH_CHECK(book.size() >= kLeastCharacters, "alice.txt has ", book.size(), " characters; at least ",
              kLeastCharacters, " are needed to train and to test.");
  const std::set<char> used(book.begin(), book.end());
  Text text;
  text.characters.assign(used.begin(), used.end());
  std::array<int64_t, 256> number{};
  for (size_t i = 0; i < text.characters.size(); ++i)
    number[static_cast<unsigned char>(text.characters[i])] = i;
  std::vector<int64_t> numbers;
  numbers.reserve(book.size());
  for (char c : book) numbers.push_back(number[static_cast<unsigned char>(c)]);
  const auto all = torch::tensor(numbers, torch::kInt64);
  const int64_t train = all.size(0) / 10 * 9;
  text.train = all.narrow(0, 0, train).clone();
  text.test = all.narrow(0, train, all.size(0) - train).clone();
  return text;
}

std::string Text::decode(const torch::Tensor& numbers) const {
  std::string result;
  for (int64_t i = 0; i < numbers.numel(); ++i) result += characters.at(numbers[i].item<int64_t>());
  return result;
}

}  // namespace overdrive::data
