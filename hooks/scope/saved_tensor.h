// A tensor that a program's own node saves for its backward, under the rules that LibTorch's SavedVariable
// follows for its nodes: no reference cycle, errors for tensors changed or detached in place, history and
// forward tangents as they were. A member of the node; the node's thread packs and unpacks it, one at a time.
// Call release() in the node's release_variables(). Leaves hooks to hook_stack.h.
#pragma once

#include "engine/base/export.h"
#include "hooks/interface/saved_tensor_hooks.h"

#include <memory>
#include <optional>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace overdrive::hooks {

// The role of the tensor for the node that saves it.
enum class SavedAs {
  kInput,          // or anything that the node did not make
  kOutput,         // the node made it: saving it as it is would make the node own itself
  kInPlaceOnView,  // an output that the node wrote into a view, whose history leads elsewhere
};

class OVERDRIVE_API SavedTensor {  // A member of a node. Moves, and is never copied.
 public:
  // Nothing was saved: unpacks to an undefined tensor.
  SavedTensor();
  explicit SavedTensor(const at::Tensor& tensor, SavedAs as = SavedAs::kInput);
  explicit SavedTensor(const std::optional<at::Tensor>& tensor, SavedAs as = SavedAs::kInput);
  SavedTensor(SavedTensor&&) noexcept;
  SavedTensor& operator=(SavedTensor&&) noexcept;
  ~SavedTensor();

  // The tensor as it was saved, the same object where that is possible. `owner` is the node that saved it.
  // Without an owner an output cannot be unpacked, and errors do not name the node.
  at::Tensor unpack(torch::autograd::Node& owner) const { return unpack_for(&owner); }
  at::Tensor unpack() const { return unpack_for(nullptr); }

  // Packs the tensor now, by a hook of its own. Only once, and not when it was saved in a scope of hooks.
  void register_hooks(HooksPtr hooks);
  void register_hooks(std::unique_ptr<torch::autograd::SavedVariableHooks> hooks);
  bool has_hooks() const { return hooks_ != nullptr; }

  // Lets the tensor go. Unpacking it from here on is the error of a second backward.
  void release();

 private:
  struct Metadata;

  at::Tensor unpack_for(torch::autograd::Node* owner) const;
  at::Tensor call_unpack(torch::autograd::Node* owner) const;
  void pack(std::unique_ptr<torch::autograd::SavedVariableHooks> hooks, const at::Tensor& tensor);
  void note_metadata(const at::Tensor& tensor);
  void check_may_register() const;
  void check_version(const torch::autograd::Node* producer) const;

  enum class State : uint8_t {
    kNothing,   // no tensor was saved
    kOriginal,  // the tensor itself
    kDetached,  // its elements without its graph: an output must not keep its own node
    kPacked,    // what a hook made of it
    kReleased,  // by a backward
  };

  State state_ = State::kNothing;
  SavedAs as_ = SavedAs::kInput;
  bool is_leaf_ = false;
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  at::Tensor tensor_;                   // kOriginal: what was saved; kDetached: without its history
  std::unique_ptr<Metadata> metadata_;  // what has to be put back, if anything
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_;
};

}  // namespace overdrive::hooks
