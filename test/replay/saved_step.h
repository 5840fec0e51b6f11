// A captured step that goes through a file: where it lies, and what is compared with the program's own tensors.
#pragma once

#include "replay/file/step_file.h"
#include "replay/replay.h"
#include "test/support/pch.h"

#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::test {

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// A path of its own, which is removed with the test.
class FilePath {
 public:
  explicit FilePath(const std::string& name = "step.od")
      : folder_(std::filesystem::temp_directory_path() / c10::str("overdrive-step-", ::getpid(), "-", next())) {
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / name).string();
  }
  ~FilePath() { std::filesystem::remove_all(folder_); }
  FilePath(const FilePath&) = delete;
  FilePath& operator=(const FilePath&) = delete;
  operator const std::string&() const { return path_; }

 private:
  static int next() {
    static int last = 0;
    return last++;
  }
  std::filesystem::path folder_;
  std::string path_;
};

// Where a loaded step differs from the parameters, gradients and buffers of a model. Empty: nowhere.
inline std::string difference(const Step& loaded, const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : loaded.named_tensors()) named[name] = tensor;
  const auto compare = [&](const std::string& name, const at::Tensor& tensor) -> std::string {
    if (!named.contains(name)) return "there is no " + name;
    return same_bits(named[name], tensor) ? "" : name + " differs";
  };
  for (const auto& each : model.named_parameters()) {
    if (std::string text = compare(each.key(), each.value()); !text.empty()) return text;
    if (each.value().grad().defined() && named.contains(each.key() + ".grad")) {
      if (std::string text = compare(each.key() + ".grad", each.value().grad()); !text.empty()) return text;
    }
  }
  for (const auto& each : model.named_buffers()) {
    if (std::string text = compare(each.key(), each.value()); !text.empty()) return text;
  }
  return "";
}

// OVERDRIVE_TEST_SAVE_STEPS=1 (test/configs/): a call that would be replayed is answered by the step out of a
// file, too. Empty where the variable is not set, or the step refuses to be written.
class Twin {
 public:
  Twin(const CapturedStep& step, const std::vector<at::Tensor>& inputs) {
    if (std::getenv("OVERDRIVE_TEST_SAVE_STEPS") == nullptr) return;
    const FilePath path;
    try {
      step.save(path);
    } catch (const c10::Error& error) {
      std::cout << "not written: " << error.what_without_backtrace() << std::endl;
      return;
    }
    std::cout << "loaded" << std::endl;
    loaded_.emplace(load_step(path));
    result_ = (*loaded_)(inputs).at(0);
  }
  // Where the call of the file differs from the program's. Empty: nowhere.
  std::string difference(const at::Tensor& result, const torch::nn::Module* model) const {
    if (!loaded_) return "";
    if (!same_bits(result, result_)) return "the result of the file differs";
    return model == nullptr ? "" : test::difference(*loaded_, *model);
  }

 private:
  std::optional<Step> loaded_;
  at::Tensor result_;
};

}  // namespace overdrive::test
