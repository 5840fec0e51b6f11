#include "examples/trainers/checkpoint_file.h"

#include "bench/output_file.h"
#include "examples/trainers/archive_file.h"

#include <torch/serialize.h>

#include <cstdio>
#include <filesystem>
#include <tuple>
#include <vector>

namespace overdrive::trainers {

void save_checkpoint(const std::string& path, const TrainerInfo& info, const Trainer& trainer,
                     int64_t steps_done) {
  torch::serialize::OutputArchive archive;
  archive.write("trainer", c10::IValue(info.name));
  archive.write("dtype", c10::IValue(c10::toString(trainer.setup().dtype)));
  archive.write("steps_done", c10::IValue(steps_done));
  torch::serialize::OutputArchive model(archive.compilation_unit());
  trainer.save(model);
  archive.write("model", model);

  std::string bytes;
  archive.save_to([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  bench::OutputFile(path).write(bytes);
}

namespace {

// LibTorch gives a tensor of a module whatever shape and type the archive has.
using Signature = std::tuple<std::string, std::vector<int64_t>, c10::ScalarType>;

std::vector<Signature> signatures_of(const Trainer& trainer) {
  std::vector<Signature> signatures;
  for (const auto& tensors : {trainer.named_parameters(), trainer.named_buffers()}) {
    for (const auto& tensor : tensors) {
      signatures.emplace_back(tensor.key(), tensor.value().sizes().vec(), tensor.value().scalar_type());
    }
  }
  return signatures;
}

}  // namespace

int64_t load_checkpoint(const std::string& path, const TrainerInfo& info, Trainer& trainer) {
  TORCH_CHECK(std::filesystem::exists(path), "there is no checkpoint ", path, ".");
  check_archive(path, "a checkpoint of this program");
  torch::serialize::InputArchive archive;
  c10::IValue name, dtype, steps_done;
  try {
    archive.load_from(path, trainer.setup().device);
    archive.read("trainer", name);
    archive.read("dtype", dtype);
    archive.read("steps_done", steps_done);
  } catch (const std::exception&) {
    TORCH_CHECK(false, path, " is not a checkpoint of this program.");
  }
  TORCH_CHECK(name.isString() && dtype.isString() && steps_done.isInt() && steps_done.toInt() >= 0, path,
              " is not a checkpoint of this program.");
  TORCH_CHECK(name.toStringRef() == info.name, path, " is a checkpoint of ", name.toStringRef(), ", not of ",
              info.name, ".");
  const char* wanted = c10::toString(trainer.setup().dtype);
  TORCH_CHECK(dtype.toStringRef() == wanted, path, " is a checkpoint in ", dtype.toStringRef(), ", not in ",
              wanted, ".");
  try {
    torch::serialize::InputArchive model;
    archive.read("model", model);
    const std::vector<Signature> before = signatures_of(trainer);
    trainer.load(model);
    TORCH_CHECK(signatures_of(trainer) == before, "a tensor in it has another shape or type.");
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, path, " does not fit this ", info.name, ": ", error.msg());
  } catch (const std::exception& error) {
    TORCH_CHECK(false, path, " does not fit this ", info.name, ": ", error.what());
  }
  return steps_done.toInt();
}

namespace {

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const torch::Tensor& tensor) {
    const auto values = tensor.detach().to(torch::kCPU).contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.const_data_ptr());
    for (size_t i = 0; i < values.nbytes(); ++i) state_ = (state_ ^ bytes[i]) * 0x100000001b3;
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(state_));
    return digits;
  }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

Digest digest_of(const Trainer& trainer) {
  Hash parameters, gradients;
  for (const auto& parameter : trainer.parameters()) {
    parameters.add(parameter);
    gradients.add(parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter));
  }
  return {parameters.text(), gradients.text()};
}

}  // namespace overdrive::trainers
