// A random program as data: a list of statements over numbered slots of tensors. Made by the
// generator, run by the interpreter, cut by the shrinker, printed as C++. Plain values without
// threads. Knows nothing of engines, and holds no tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace overdrive::fuzz {

enum class What : uint8_t {
  kLeaf,        // to = a new tensor: from is empty; shape, layout, dtype, k (values), flag (requires grad)
  kOp,          // to, to+1, … = the op `name` of `from`; `body` runs in the backward of a custom Function
  kHook,        // puts a hook of kind `hook` on from[0]; `body` runs in it, slot `to` is its gradient
  kRemoveHook,  // takes the hook with id k away
  kBackward,    // a backward or grad; see BackwardCall
  kThrow,       // throws; k chooses the type
  kCallback,    // Engine::queue_callback with `body`
  kMode,        // leaves a piece of thread-local state changed; k chooses which
  kWarn,        // TORCH_WARN
  kDrop,        // from[0] = Tensor(): may drop the last owner of a graph
  kClearGrad,   // from[0].mutable_grad() = Tensor()
  kQuery,       // logs what the free functions say about the running graph task
  kSwitch,      // uninstalls and installs again, or the other way round
};

inline constexpr int kThrows = 8;

enum class HookKind : uint8_t { kTensor, kRetainsGrad, kNodePre, kNodePost, kPostAccumulate, kCount_ };
const char* hook_name(HookKind kind);

// What a hook gives back: nothing (a copy of what it got), an undefined tensor, or a slot.
enum class Gives : uint8_t { kNothing, kUndefined, kSlot };

enum class Entry : uint8_t { kTensorBackward, kBackward, kGrad, kExecute };

enum class Flag : int8_t { kDefault = -1, kNo = 0, kYes = 1 };

// Slots that stand for no tensor in a list of root gradients.
inline constexpr int kNoSlot = -1;

struct BackwardCall {
  Entry entry = Entry::kBackward;
  std::vector<int> gradients;  // of the roots; kNoSlot is an undefined one; empty: none given
  std::vector<int> inputs;     // slots; empty: everything (not for kGrad)
  Flag keep_graph = Flag::kDefault;
  bool create_graph = false;
  bool allow_unused = true;
};

struct Statement {
  What what = What::kOp;
  int id = 0;    // stays when others are dropped
  int lane = 0;  // the thread that runs it: 0 is the program's own, 1 to 3 helpers
  int to = kNoSlot;
  std::vector<int> from;
  std::string name;
  int64_t k = 0;
  // kLeaf
  int shape = 0, layout = 0, dtype = 0;
  bool flag = false;
  // kHook
  HookKind hook = HookKind::kTensor;
  Gives gives = Gives::kNothing;
  int given = kNoSlot;
  // kBackward
  BackwardCall call;
  std::vector<Statement> body;
};

// How the interpreter looks on; a hook changes what an engine may leave out, so most programs
// are run with few or none.
struct Watch {
  bool pre_hooks = false;  // on every node, each logging
  bool post_hooks = false;
  bool events = false;    // a RecordFunction callback
  bool anomaly = false;   // anomaly mode, with its look for NaNs, in backwards
  bool traced = false;    // in the forward too, where it takes a traceback a node: slow
  bool lifetimes = true;  // which gradients seen so far are still alive, at every hook
  bool any_node_hook() const { return pre_hooks || post_hooks; }
};

struct Program {
  uint64_t seed = 0;
  Watch watch;
  std::vector<Statement> statements;
  int slots = 0;  // one above the largest slot
  bool uses_lanes() const;
};

// Statements in all, those of bodies included.
int size_of(const std::vector<Statement>& statements);

}  // namespace overdrive::fuzz
