#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad {

namespace op_cases {

at::Tensor fixed(at::IntArrayRef sizes) {
  int64_t count = c10::multiply_integers(sizes);
  return at::sin(at::arange(1, count + 1, at::kDouble)).view(sizes);
}

at::Tensor indices(std::initializer_list<int64_t> values) {
  std::vector<at::Tensor> numbers;
  for (int64_t value : values) numbers.push_back(at::full({}, value, at::kLong));
  return at::stack(numbers);
}

}  // namespace op_cases

std::vector<OpCase> op_table() {
  std::vector<OpCase> table;
  for (auto cases : {&op_cases::elementwise, &op_cases::reductions, &op_cases::products,
                     &op_cases::linear_algebra, &op_cases::indexing, &op_cases::networks, &op_cases::losses,
                     &op_cases::sampling, &op_cases::views_and_in_place}) {
    for (OpCase& op : cases()) table.push_back(std::move(op));
  }
  return table;
}

}  // namespace overdrive::forward_ad
