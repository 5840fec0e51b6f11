// The tensors in a pickle of Python's torch.save() or of torch::save(), by name. A reader of its own, because a
// state_dict() is more than LibTorch's reader takes, and because nothing of a file may run: a class is a name,
// an object the dict of its attributes, and what is no tensor is left out. A function of bytes; any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace overdrive::replay {

// The bytes of a storage by its key in the file.
using StorageByKey = std::function<c10::Storage(const std::string& key)>;

// Names of what lies in another dict begin with the name of that dict: "model.0.weight". Throws where the bytes
// are no such pickle.
std::vector<std::pair<std::string, at::Tensor>> pickled_tensors(std::string_view pickle,
                                                                const StorageByKey& storage);

}  // namespace overdrive::replay
