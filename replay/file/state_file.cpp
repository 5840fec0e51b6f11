#include "replay/file/state_file.h"

#include <ATen/core/Dict.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>

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

// An OrderedDict with attributes, as state_dict() returns one, is more than LibTorch's reader takes.
c10::IValue read_dict(const std::string& bytes) {
  try {
    return torch::jit::pickle_load({bytes.begin(), bytes.end()});
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

NamedState state_from_bytes(const std::string& bytes) {
  const c10::IValue read = read_dict(bytes);
  TORCH_CHECK(read.isGenericDict(),
              "it holds no plain dict of tensors; write one: torch.save(dict(model.state_dict()), path).");
  NamedState state;
  for (const auto& entry : read.toGenericDict()) {
    TORCH_CHECK(entry.key().isString() && entry.value().isTensor(),
                "it holds something else than tensors by name.");
    state.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  }
  return state;
}

}  // namespace overdrive::replay
