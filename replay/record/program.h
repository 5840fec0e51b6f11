// A recorded step: its operators in order, the memory that they touch, and the values that lie in it. Plain
// data. Made by a Recorder, owned by one Recording, used by one thread at a time. Holds weak
// references only until bind() adopts it, so that a recording changes no use count that LibTorch looks at.
#pragma once

#include "engine/base/torch_types.h"
#include "replay/record/refusal.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::replay {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

enum class Origin : uint8_t {
  kMade,      // by an operator of the step
  kInput,     // an input's: in a replay its buffer
  kOutside,   // it was there before the call
  kConstant,  // a number of the program, wrapped in a tensor for one operator
  kGone,      // from outside, died in the call, and no operator of a replay touches it
};

// One storage, or the elements of one input. Two tensors are the same value when they are the same elements of
// the same memory. Offsets in an input count from its first element, wherever that lies.
struct Memory {
  WeakStorage weak;
  c10::StorageImpl* raw;
  Origin origin;
  size_t bytes;
  const void* address;
  // Operators that use it.
  int first = -1;
  int last = -1;
  bool written = false;
  // Whether it lives on after the call.
  bool lives = false;
  // Of small memory that was not made here, and of memory that the program filled: the bytes at first sight.
  std::string constant = {};
  // The operator before which the program wrote the bytes through a pointer, as torch::tensor() does; or -1.
  int host_filled = -1;
  // Whether it is the program's array, as NumPy's, to which the program may write at any time.
  bool is_array = false;
  // Whether an operator has given it values.
  bool has_values = false;
  // Of a first recording: whether a leaf had it as its gradient at the end.
  bool is_left_as_gradient = false;
  int input = -1;
  // Of a wrapped number: as in Argument.
  bool is_passed = false;
  int number = -1;
};

// Bytes from the begin of a memory to the last element of a tensor in it; 0 when the tensor is empty.
size_t end_of(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, size_t element);

struct Value {
  int memory;
  int64_t offset;
  c10::DimVector sizes;
  c10::DimVector strides;
  at::ScalarType type;
  bool wrapped;

  // From the begin of the memory to the last element.
  size_t end() const { return end_of(sizes, strides, offset, c10::elementSize(type)); }

  // Kernels below autograd may look: a convolution chooses by it.
  bool requires_grad;
};

struct Argument {
  enum class Kind : uint8_t { kConstant, kTensor, kTensors, kOptionalTensors };
  Kind kind = Kind::kConstant;
  c10::IValue constant = {};
  // Index of a value; -1 for an undefined tensor.
  c10::SmallVector<int, 1> values = {};
  // Whether the constant is a float that the operator has from the program (passed_numbers.h).
  bool is_passed = false;
  // Which of the call's numbers the constant is; -1: the same in every call.
  int number = -1;

  bool is_tensor() const { return kind == Kind::kTensor; }
};

struct Operator {
  c10::OperatorHandle handle;
  // With the overload: "aten::add.Tensor".
  std::string name;
  std::vector<Argument> in = {};
  std::vector<Argument> out = {};
  // Of each returned tensor in turn: whether its memory appeared with this operator.
  std::vector<bool> fresh = {};
  // Memories that it changes in place.
  c10::SmallVector<int, 2> writes = {};
  bool grad_mode = false;
  bool in_backward = false;
  // A view, or memory and no more: nothing is left of it in a replay.
  bool vanishes = false;
  // It tells the program something of its data: a number, or by the sizes of its result. A replay asks again.
  bool answers = false;
};

// A tensor that was there before the call, as operators saw it.
struct OutsideTensor {
  WeakTensor weak;
  c10::TensorImpl* raw;
  int value;
  // At first sight, and after the call.
  int64_t version_before;
  int64_t version_after = 0;
  // Whether it lived when the recording ended.
  bool lives = false;
};

// A leaf and its gradient before and after the call; -1 in the table of memories means undefined.
struct LeafGradient {
  WeakTensor leaf;
  c10::TensorImpl* raw;
  // Whether the leaf required one.
  bool required = true;
  bool defined_before = false;
  c10::TensorImpl* before = nullptr;
  // Keeps the address of `before` from being that of another tensor.
  std::optional<WeakTensor> kept_address = {};
  std::optional<WeakTensor> after = {};
  // Whether two recordings that are equal had a gradient here and had none, and left it alone: it may come and
  // go.
  bool may_be_any = false;
  // When the call was over: who held the new gradient, and its memory, beside leaves and results.
  size_t held = 0;
  size_t memory_held = 0;

  // Whether the call leaves the gradient as it is, or leaves none where none was.
  bool is_left_alone() const {
    return before == (after ? after->_unsafe_get_target() : nullptr) && defined_before == after.has_value();
  }
};

// A function of tensors that runs in the middle of a step, in its replays too.
struct ApartFunction {
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> call;
  // What two recordings know it by.
  const void* identity;
  // Whether it may still be called.
  bool is_there = true;
};

// A leaf in another type, which autocast keeps. Note [Casts that autocast keeps].
struct KeptCast {
  WeakTensor weight;
  at::ScalarType type;
};

struct Program {
  std::vector<Memory> memories;
  std::vector<Value> values;
  std::vector<Operator> operators;
  std::vector<OutsideTensor> outside;
  // Tensors from outside that a composite operator was given, as tensor_split(), and no operator of the
  // recording.
  std::vector<WeakTensor> given = {};
  // Tensors that the function may look at beside its operators: their sizes, whether they require a gradient,
  // and have one.
  std::vector<WeakTensor> leaves = {};
  std::vector<LeafGradient> gradients;
  // Whether no leaf of an earlier recording had a gradient at the first operator: zero_grad() had taken them.
  bool gradients_cleared = false;
  // Values that the function returned; -1 for an undefined tensor.
  std::vector<int> results;
  // How often they were changed in place.
  std::vector<int64_t> result_versions;
  // The tensors that the function was given. The references keep the addresses from being used again.
  std::vector<WeakTensor> inputs;
  // How often each input was written, as its version counter tells.
  std::vector<int64_t> input_bumps;
  // Whether an input's memory was used through a tensor that is no input and was made of none.
  bool input_aliased = false;
  // Inputs whose storage begins with them, and must: as_strided() counts from there.
  std::vector<int> begin_of_storage = {};
  // Inputs of which forward mode asked how large their storage is, and how large it was.
  std::vector<std::pair<int, size_t>> asked_storages = {};
  // Of a part: the operator with which its backward begins, and how many of the results are the function's. The
  // others are gradients. -1 and 0: a whole step.
  int backward_begins = -1;
  size_t outputs = 0;
  // Where each backward of a part begins: one for each form of gradients, from the forward's end, as if the
  // others were not. The results have the gradients of one after those of the other.
  std::vector<int> backwards = {};
  // Whether operators ran under autocast. Its casts are operators of the recording.
  bool uses_autocast = false;
  // Functions that run apart, in the order of their operators.
  std::vector<std::shared_ptr<ApartFunction>> aparts = {};
  // Casts that autocast has kept, or keeps from now on, and that no input is.
  std::vector<KeptCast> kept_casts = {};
  // Whether the function used the weight of one before, so that its gradients are added in another order.
  bool has_late_cast = false;
  // Why a number of the program may be another one later without anybody's notice; empty: whoever recorded the
  // function looks at all of them in every call.
  std::string unseen_numbers = "a replay would not see when the number changes";
  // Why it cannot be replayed; empty when it can.
  Refusal refusal;

  bool is_part() const { return backward_begins >= 0; }
  // Of a part: 0 in the forward, i + 1 in the backward i.
  int segment_of(int op) const;
  // The operators of the backward i end before this one.
  int end_of_backward(size_t i) const;
  size_t gradients_of_each() const;
  // Whether the function returned the memory, or it is a gradient of a part.
  bool is_result(int memory) const;
  // Of a part: the only operator that touches the memory of a gradient, which it makes in the backward; -1:
  // there is none, or other results lie there.
  int only_maker(int memory) const;
  // The last operator before which the memory must keep its bytes.
  int last_use(int memory) const;
  const Memory& memory_of(int value) const { return memories[values[value].memory]; }
  // Whether a number of the program's, and none of the call's, reaches what the operator writes, in it or in
  // the arithmetic before it: p.lerp_(q, rate), p.sub_(rate * gradient), p.copy_(p - rate * gradient).
  // program_numbers.cpp
  bool changes_by_a_number(size_t op) const;
  // Whether what the operator leaves in the memory is made of what was in it.
  bool carries_on(size_t op, int memory) const;
  // Whether the memory is that of a parameter's gradient before the call.
  bool is_gradient(int memory) const;
  // Whether the memory is of a number that LibTorch wrapped for one operator.
  bool is_wrapped(int memory) const;
  bool uses_random_numbers() const;
  // Whether a tensor of the argument lies in the memory.
  bool touches(const Argument& argument, int memory) const;
  // Whether the tensor lies in memory that is no input's.
  bool uses_memory_of(const at::Tensor& tensor) const;
  // Whether an operator that is replayed reads or writes it.
  bool is_used(int memory) const;
  // From the begin of the memory to the last element of any value; what lies behind is nobody's.
  size_t used_bytes(int memory) const;
  bool writes_inputs() const;
  // Whether the memory lives on as a gradient that the step makes.
  bool is_new_gradient(const Memory& memory) const;

 private:
  struct Arithmetic;
  bool has_number(const Operator& op) const;
  bool is_number(int value) const;
  void follow(int value, size_t before, Arithmetic& found) const;
};

}  // namespace overdrive::replay
