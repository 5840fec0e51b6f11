// A hook for saved tensors: an object with pack() and unpack(), called for tensors that operators save for
// their backward. Made and owned by the program, and shared with every graph that was built under it, so it
// lives until the last of those is gone. Any thread may call it, several at once. Leaves to hook_stack.h when
// it is called, and for which tensors; Note [What a hook may do] has the rules.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace torch::autograd {
struct Node;
}

namespace overdrive::hooks {

// The result of pack(): tensors that stand for the saved one, and anything else.
struct Packed {
  // Of one tensor: Packed::of(tensor.to(at::kHalf), tensor.dtype()).
  static Packed of(at::Tensor tensor, std::any state = {}) {
    Packed packed;
    packed.tensors.push_back(std::move(tensor));
    packed.state = std::move(state);
    return packed;
  }

  c10::SmallVector<at::Tensor, 2> tensors;  // most hooks make one or two: no memory of their own
  std::any state;
};

// Facts about a tensor when an operator saves it. Thread and number are those of the node that is being made.
// They are right for nearly all nodes and wrong for operators that build several (an in-place operator on a
// view), so they are good for a guess ahead and never for a decision.
struct SaveInfo {
  uint64_t id = 0;           // counts the saves of a scope, from 1
  uint64_t thread = 0;       // as in Node::thread_id()
  uint64_t sequence_nr = 0;  // as in Node::sequence_nr()
  uint32_t index = 0;        // among the saves of that node, from 0
  int64_t bytes = 0;         // of memory: elements that the tensor repeats count once
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool parameter = false;  // a leaf that requires grad, or a view of one
  // The node that is being made, if the tensor is an output of it. Valid inside pack() only.
  const torch::autograd::Node* node = nullptr;
  // Its name, for a late pack(). Valid inside pack() only.
  const std::string* node_name = nullptr;
  // The name of that node, or "": see Note [When an op is known].
  OVERDRIVE_API std::string op() const;
};

// The times of the calls of a hook that bears a schedule, see schedulable().
struct Schedule {
  // The tensors that may wait to be packed. A tensor is packed when only the graph holds its memory, or when
  // more than this waits; a backward uses a waiting tensor as it is. 0: tensors are packed when they are saved.
  int64_t window_tensors = 64;
  int64_t window_bytes = int64_t{64} << 20;
  // A thread unpacks for so many of the nodes that come next, and so many bytes of tensors as they were. 0
  // nodes: tensors are unpacked when their nodes ask.
  int depth = 3;
  int64_t ahead_bytes = int64_t{256} << 20;
};

struct UnpackInfo {  // Facts for unpack().
  // The node that wants its tensor, alive until unpack() returns. For an early unpack() the node of SaveInfo.
  // Null when a saved tensor is looked at outside of a backward.
  torch::autograd::Node* node = nullptr;
  const SaveInfo& save;
};

struct HookOptions {  // Of a scope of hooks.
  // Leaves that require grad, and views of them, stay in memory anyhow: they are kept, not packed.
  bool skip_parameters = true;
  // Memory that is saved twice is packed once.
  bool share = true;
  // A tensor that was changed in place after it was saved is an error when it is unpacked, as it is without
  // hooks. (Stock gives up this check for hooks.)
  bool check_in_place = true;
};

// Note [What a hook may do]
// pack() gets a tensor without history that shares memory and version counter with the saved one: a hook may
// keep it without keeping a graph alive, and may not change it. pack() runs without grad mode on the thread of
// the operator, in all other modes of the operator. unpack() runs in the modes of the node that asks, on its
// thread, each time it asks, and returns a tensor of the sizes, type and device that pack() was given; strides
// are put right afterwards. Several nodes may share one Packed, so unpack() may run on two threads at once for
// it, and must leave it usable. Tensors that a hook itself saves are not packed.
//
// A hook with a schedule promises more: pack() and unpack() depend on nothing but their arguments, so they may
// be called early, late, on another thread, or not at all. A late pack() runs on the thread of a later save, in
// its modes. An early unpack() runs on a thread of ours, without grad mode, on the tensor's device and in no
// other mode; when it throws, the node calls it again.
//
// Note [When an op is known]
// LibTorch asks for hooks with a tensor alone: a SavedVariable is made of the tensor and of whether it is an
// output, and put into its node afterwards. An output of the node leads to the node; an input does not, and
// neither does anything else that the making of a node leaves behind. So SaveInfo::op() knows the operator of
// an output only. Rejected: a RecordFunction callback, which every operator of the thread would pay for, saving
// or not.
class OVERDRIVE_API SavedTensorHooks {
 public:
  SavedTensorHooks() = default;
  virtual ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  virtual Packed pack(const at::Tensor& tensor, const SaveInfo& info) = 0;  // The Note has the rules.
  virtual at::Tensor unpack(Packed& packed, const UnpackInfo& info) = 0;    // The Note has the rules.

  // Under a schedule: the unpack() of `packed` is in line. For work that needs no thread of ours, such as a
  // read by the system. On any thread, perhaps while the same is unpacked; must not wait.
  virtual void expect(const Packed& packed);

  // Whether to pack this tensor; others are kept as they are. The tensor is the program's own, not to be kept.
  virtual bool wants(const at::Tensor& tensor, const SaveInfo& info);

  // Promises that unpack() returns the very bits. Then views of packed memory are cut out of it. Otherwise only
  // tensors of equal geometry share it.
  virtual bool lossless() const;

  // The schedule of this hook, asked when a scope opens. None: every call is made when it is due.
  virtual std::optional<Schedule> schedule() const;

  // For messages. The type's name unless overridden.
  virtual std::string name() const;
};

using HooksPtr = std::shared_ptr<SavedTensorHooks>;

using PackFunction = std::function<Packed(const at::Tensor&, const SaveInfo&)>;
using UnpackFunction = std::function<at::Tensor(Packed&, const UnpackInfo&)>;

struct HookTraits {  // What make_hooks() cannot read off two functions.
  std::string name = "the program's hook";
  bool lossless = false;
};

// A hook made of two functions.
OVERDRIVE_API HooksPtr make_hooks(PackFunction pack, UnpackFunction unpack, HookTraits traits = {});

}  // namespace overdrive::hooks
