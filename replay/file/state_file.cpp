#include "replay/file/state_file.h"

#include "replay/file/pickled_tensors.h"

#include <ATen/core/Dict.h>
#include <caffe2/serialize/inline_container.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <algorithm>
#include <cstring>

namespace overdrive::replay {

std::string state_to_bytes(const NamedState& state) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& [name, tensor] : state) dict.insert(name, tensor.contiguous());
  std::string data, file;
  // LibTorch's pickle_save() notes the types of lists and dicts by a function that Python counts as unsafe.
  torch::jit::Pickler pickler([&](const char* bytes, size_t size) { data.append(bytes, size); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* bytes, size_t size) {
    file.append(static_cast<const char*>(bytes), size);
    return size;
  });
  writer.writeRecord("data.pkl", data.data(), data.size());
  size_t i = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const auto written = torch::jit::getWriteableTensorData(tensor);
    writer.writeRecord("data/" + std::to_string(i++), written.data(), written.sizeInBytes());
  }
  writer.writeEndOfFile();
  return file;
}

namespace {

// The bytes of a file, as LibTorch's reader of archives wants them.
class Archive final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Archive(const std::string& bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t at, void* to, size_t size, const char* /*what*/) const override {
    if (at >= bytes_.size()) return 0;
    const size_t there = std::min<size_t>(size, bytes_.size() - at);
    std::memcpy(to, bytes_.data() + at, there);
    return there;
  }

 private:
  const std::string& bytes_;
};

std::string_view text_in(const std::tuple<at::DataPtr, size_t>& record) {
  return {static_cast<const char*>(std::get<0>(record).get()), std::get<1>(record)};
}

}  // namespace

NamedState state_from_bytes(const std::string& bytes) {
  caffe2::serialize::PyTorchStreamReader reader(std::make_shared<Archive>(bytes));
  // A record that is not packed is as long as it says, or LibTorch throws; a packed one could be anything.
  const auto record = [&](const std::string& name) {
    TORCH_CHECK(reader.hasRecord(name) && reader.getRecordSize(name) <= bytes.size(),
                "it is no file of torch.save(), or a packed one.");
    return reader.getRecord(name);
  };
  if (reader.hasRecord("byteorder"))
    TORCH_CHECK(text_in(record("byteorder")) == "little", "its numbers are big endian.");
  const auto pickle = record("data.pkl");
  return pickled_tensors(text_in(pickle), [&](const std::string& key) {
    auto [data, size] = record("data/" + key);
    return c10::Storage(c10::Storage::use_byte_size_t(), size, std::move(data), nullptr, false);
  });
}

}  // namespace overdrive::replay
