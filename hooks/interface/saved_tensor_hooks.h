// What happens to a tensor that an op saves for its backward: an object with pack() and unpack(). Made
// and owned by the program, shared with every graph that was built under it, so it lives until the last
// of those is gone. Any thread may call it, several at once. When it is called, and for which tensors,
// is the business of hook_stack.h; what the backward may rely on is in Note [What a hook may do].
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

namespace torch::autograd {
struct Node;
}

namespace overdrive::hooks {

// What pack() made of a tensor: tensors that stand for it, and anything else.
struct Packed {
  c10::SmallVector<at::Tensor, 2> tensors;  // most hooks make one or two: no memory of their own
  std::any state;
};

// What is known of a tensor when an op saves it. Thread and number are those of the node that is being
// made: right for nearly all nodes, wrong for ops that build several (an in-place op on a view), so they
// are good for a guess ahead and never for a decision.
struct SaveInfo {
  uint64_t id = 0;           // counts the saves of a scope, from 1
  uint64_t shared_with = 0;  // the id of an earlier save of the same memory; 0: there is none
  uint64_t thread = 0;       // as in Node::thread_id()
  uint64_t sequence_nr = 0;  // as in Node::sequence_nr()
  uint32_t index = 0;        // among the saves of that node, from 0
  int64_t bytes = 0;         // of memory: elements that the tensor repeats count once
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool parameter = false;  // a leaf that requires grad, or a view of one
  // The node that is being made, where that is known: when the tensor is an output of it. Valid inside
  // pack() only.
  const torch::autograd::Node* node = nullptr;
  // Its name, where a late pack() knows no more than that. Valid inside pack() only.
  const std::string* node_name = nullptr;
  // The name of that node, or "": see Note [When an op is known].
  OVERDRIVE_API std::string op() const;
};

// When the calls of a hook that does not mind may be made, see schedulable().
struct Schedule {
  // What may wait to be packed. A tensor is packed when nothing but the graph holds its memory, or when more
  // than this waits; a backward uses what still waits as it is. 0: tensors are packed when they are saved.
  int64_t window_tensors = 64;
  int64_t window_bytes = int64_t{64} << 20;
  // How far ahead of the node that runs a thread unpacks: for so many of the nodes that come next, and bytes
  // (of tensors as they were). 0 nodes: tensors are unpacked when their nodes ask.
  int depth = 3;
  int64_t ahead_bytes = int64_t{256} << 20;
};

struct UnpackInfo {
  // The node that wants its tensor, alive until unpack() returns; fetched ahead, the node that the tensor was
  // put down for, see SaveInfo. Null only when an op's tensor is looked at outside of a backward.
  torch::autograd::Node* node = nullptr;
  const SaveInfo& save;
};

// Note [What a hook may do]
// pack() gets a tensor without history that shares memory and version counter with the one that was
// saved: a hook may keep it without keeping a graph alive. It may not change it. It runs without grad
// mode on the thread of the op, in all other modes of the op. unpack() runs in the modes of the node
// that asks, on its thread, each time it asks, and gives back a tensor of the sizes, type and device
// that pack() was given; strides are put right afterwards. Packed tensors may be shared by several
// nodes, so unpack() may run on two threads at once for one Packed, and must leave it usable. What hooks
// themselves save is not packed.
//
// A hook with a schedule promises more: pack() and unpack() are functions of what they are given, so they may
// be called early, late, on another thread, or not at all. A late pack() runs on the thread of a later save,
// in its modes, and knows of the node its name at most. An early unpack() runs on a thread of ours, without
// grad mode, on the tensor's device and otherwise in no mode at all; when it throws it is called again, by the
// node.
//
// Note [When an op is known]
// LibTorch tells whoever saves a tensor nothing of the node that it is saved for: a SavedVariable is made of
// the tensor and of whether it is an output, and put into the node afterwards. An output of the node leads to
// it; an input does not. Nor does anything else: the node exists by then, but only a local variable of the op's
// own code points to it. Its constructor leaves a number behind, the thread's counter gone up by one; its edges
// tell the inputs' nodes that they have a parent, but not which. (A RecordFunction callback would know the
// operator, but every op of the thread would pay for it, saving or not. The hook for new nodes of LibTorch 2.14
// is called when all tensors have been saved. In anomaly mode the engine is asked for the node's metadata, but
// from the constructor of the base class, when the node has no name yet.) Later the node can be met: whatever
// is computed from the op's results has it in its history. So a pack() that comes late knows the name for
// inputs too, when one of the tensors saved since then led to the node.
class DecisionCache;

class OVERDRIVE_API SavedTensorHooks {
 public:
  SavedTensorHooks();
  virtual ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  virtual Packed pack(const at::Tensor& tensor, const SaveInfo& info) = 0;
  virtual at::Tensor unpack(Packed& packed, const UnpackInfo& info) = 0;

  // Under a schedule: unpack() of this is in line. For what goes on without a thread of ours, such as a read
  // that the system begins. On any thread, perhaps while the same is unpacked; must not wait.
  virtual void expect(const Packed& packed);

  // Whether to pack this tensor at all; others are kept as they are. It is the program's own tensor, not to
  // be kept.
  virtual bool wants(const at::Tensor& tensor, const SaveInfo& info);
  // A hook whose wants() depends on nothing but this key and the tensor's type, device, sizes and bytes is
  // asked once for each of those. Without a key it is asked every time.
  virtual std::optional<uint64_t> cache_key() const;

  // Promises that unpack() gives back the very bits. Then tensors that share memory are packed once.
  // Otherwise only those of equal geometry are.
  virtual bool lossless() const;

  // The schedule that this hook bears; none: every call is made when it is due. Asked when a scope opens.
  virtual std::optional<Schedule> schedule() const;

  // For messages. The type's name unless overridden.
  virtual std::string name() const;

 private:
  friend class HookScope;
  const std::unique_ptr<DecisionCache> decisions_;  // what wants() answered, see cache_key()
};

using HooksPtr = std::shared_ptr<SavedTensorHooks>;

using PackFunction = std::function<Packed(const at::Tensor&, const SaveInfo&)>;
using UnpackFunction = std::function<at::Tensor(Packed&, const UnpackInfo&)>;

struct HookTraits {
  std::string name = "the program's hook";
  bool lossless = false;
};

// A hook made of two functions.
OVERDRIVE_API HooksPtr make_hooks(PackFunction pack, UnpackFunction unpack, HookTraits traits = {});

}  // namespace overdrive::hooks
