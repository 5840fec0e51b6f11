#include "examples/data/digits.h"

#include "examples/data/data_files.h"

namespace overdrive::data {

namespace {

// The byte tensor of an IDX file (see README.md).
torch::Tensor read_idx(const std::string& name) {
  const std::string file = read_file(name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  TORCH_CHECK(file.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 && bytes[3] > 0 &&
                  file.size() >= 4 + 4 * size_t{bytes[3]},
              name, " is not an IDX file of bytes.");
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int i = 0; i < bytes[3]; ++i) {
    const auto* d = bytes + 4 + 4 * i;
    shape.push_back(int64_t{d[0]} << 24 | int64_t{d[1]} << 16 | int64_t{d[2]} << 8 | int64_t{d[3]});
    elements *= shape.back();
  }
  const size_t header = 4 + 4 * shape.size();
  TORCH_CHECK(static_cast<int64_t>(file.size() - header) == elements, name, " should hold ", elements,
              " bytes of data and holds ", file.size() - header, ".");
  return torch::from_blob(const_cast<char*>(file.data()) + header, shape, torch::kUInt8).clone();
}

}  // namespace

Digits load_digits() {
  const auto images = read_idx("digits-images.idx3-ubyte").unsqueeze(1).to(torch::kFloat32) / 16;
  const auto labels = read_idx("digits-labels.idx1-ubyte").to(torch::kInt64);
  TORCH_CHECK(images.size(0) == labels.size(0), "there are ", images.size(0), " digit images but ",
              labels.size(0), " labels.");
  const auto is_test = torch::arange(labels.size(0)).remainder(5).eq(0);
  const auto train = torch::nonzero(~is_test).squeeze(1);
  const auto test = torch::nonzero(is_test).squeeze(1);
  return {{images.index_select(0, train), labels.index_select(0, train)},
          {images.index_select(0, test), labels.index_select(0, test)}};
}

}  // namespace overdrive::data
