#include "examples/data/digits.h"

#include "examples/data/data_files.h"

namespace overdrive::data {

namespace {

// The byte tensor of an IDX file (see README.md).
torch::Tensor read_idx(const std::string& name, size_t dimensions) {
  const std::string file = read_file(name);
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  TORCH_CHECK(file.size() >= 4 + 4 * dimensions && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 &&
                  bytes[3] == dimensions,
              name, " is not an IDX file of bytes with ", dimensions, " dimensions.");
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int i = 0; i < bytes[3]; ++i) {
    const auto* d = bytes + 4 + 4 * i;
    shape.push_back(int64_t{d[0]} << 24 | int64_t{d[1]} << 16 | int64_t{d[2]} << 8 | int64_t{d[3]});
    TORCH_CHECK(shape.back() > 0 && !__builtin_mul_overflow(elements, shape.back(), &elements), name,
                " has a dimension ", i, " of ", shape.back(), ", which cannot be.");
  }
  const size_t header = 4 + 4 * shape.size();
  TORCH_CHECK(static_cast<int64_t>(file.size() - header) == elements, name, " should hold ", elements,
              " bytes of data and holds ", file.size() - header, ".");
  return torch::from_blob(const_cast<char*>(file.data()) + header, shape, torch::kUInt8).clone();
}

}  // namespace

Digits load_digits() {
  const auto images = read_idx("digits-images.idx3-ubyte", 3).unsqueeze(1).to(torch::kFloat32) / 16;
  const auto labels = read_idx("digits-labels.idx1-ubyte", 1).to(torch::kInt64);
  TORCH_CHECK(images.size(0) == labels.size(0), "there are ", images.size(0), " digit images but ",
              labels.size(0), " labels.");
  TORCH_CHECK(images.size(0) >= 5 && images.size(2) == 8 && images.size(3) == 8,
              "digits-images.idx3-ubyte should hold at least 5 images of 8x8 points, and holds ",
              images.size(0), " of ", images.size(2), "x", images.size(3), ".");
  TORCH_CHECK(labels.max().item<int64_t>() < 10, "digits-labels.idx1-ubyte has a label ",
              labels.max().item<int64_t>(), "; labels are 0 to 9.");
  const auto is_test = torch::arange(labels.size(0)).remainder(5).eq(0);
  const auto train = torch::nonzero(~is_test).squeeze(1);
  const auto test = torch::nonzero(is_test).squeeze(1);
  return {{images.index_select(0, train), labels.index_select(0, train)},
          {images.index_select(0, test), labels.index_select(0, test)}};
}

}  // namespace overdrive::data
