// Notes every operator that reaches the backend on this thread, below autograd, while a function runs eagerly.
// The caller owns the recorder and the Program that it fills; one per thread at a time. A boxed fallback of the
// dispatcher calls the recorder; the fallback is registered on first use and stays. Compares nothing, and
// refuses only steps that one run shows to be impossible.
#pragma once

#include "replay/record/environment.h"
#include "replay/record/passed_numbers.h"
#include "replay/record/program.h"

#include <functional>
#include <unordered_map>
#include <unordered_set>

namespace overdrive::replay {

// Results without a graph, as a whole step returns them.
inline void detach_all(std::vector<at::Tensor>& results) {
  for (at::Tensor& result : results) {
    if (result.defined()) result = result.detach();
  }
}

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

class Recorder {
 public:
  // The leaves of an earlier recording, if there is one.
  Recorder(Program& program, const std::vector<LeafGradient>& leaves);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The recorder of this thread, or null.
  static Recorder* active();
  // Whether operators of this thread are left out of the recording until the next call.
  static void pause(bool paused);

  // Runs the function on the inputs and notes its operators. Returns the function's results, detached.
  std::vector<at::Tensor> run(const Function& function, const std::vector<at::Tensor>& inputs);

  // The first reason stays.
  void refuse(Refusal refusal);
  // Is called with the reasons of each recording, on its thread; null: nothing is. One for the process.
  static void on_refusal(void (*listener)(const char* reason));
  // Is called with each operator that a recording of this thread notes, before the operator runs; null: nothing
  // is.
  static void on_operator(void (*listener)(const char* name));

  // A function runs apart, as an operator of the recording.
  std::vector<at::Tensor> apart(const std::shared_ptr<ApartFunction>& function,
                                const std::vector<at::Tensor>& inputs);

  // From here on the operators are those of a part's backward, or of one more from other gradients. The
  // function has made the outputs, and the backward begins with the gradients.
  void begin_backward(size_t outputs, const std::vector<at::Tensor>& gradients);

  // Why numbers of the function may change unseen; empty: they are all looked at in every call.
  void note_unseen_numbers(std::string reason) { program_.unseen_numbers = std::move(reason); }
  // Whether a leaf that the operators used has a gradient that they made.
  bool leaves_new_gradient() const;
  // Tensors that live on. One of them is taken as the owner of memory that operators saw through a passing copy
  // alone, as data() makes it.
  void note_owners(const std::vector<at::Tensor>& tensors);

  // Whether a tensor was there before the call and an operator was given it.
  bool knows_outside(const at::Tensor& tensor) const;
  // The same of one that may have died since, of those whose addresses are kept.
  bool knew_outside(const void* tensor) const {
    return outside_seen_.contains(static_cast<const c10::TensorImpl*>(tensor));
  }
  // No tensor of the call gets the address of one of these.
  void keep_addresses(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) kept_addresses_.emplace_back(tensor.getIntrusivePtr());
  }

  // Whether an operator of the recording was given the tensor's memory, or has made it.
  bool uses_memory_of(const at::Tensor& tensor) const;

  // Whether an operator of the recording has made the tensor's memory.
  bool has_made(const at::Tensor& tensor) const;

  // A tensor that any operator was given, composite ones included.
  void note_given(const at::Tensor& tensor);
  PassedNumbers& passed_numbers() { return passed_numbers_; }
  // An operator was called under autocast.
  void note_autocast() { program_.uses_autocast = true; }
  // Weights whose kept casts are among the inputs.
  void note_weights(const std::vector<KeptCast>& casts);
  // For the fallback.
  void operator_called(const c10::OperatorHandle& handle, c10::DispatchKeySet next, c10::Stack& stack);

 private:
  // Why an operator that has not run yet cannot be in the recording; empty when it can.
  std::string refusal_before(const std::string& name, bool answers) const;
  void call_operator(const Operator& op, c10::DispatchKeySet next, c10::Stack& stack);
  void finish(const std::vector<at::Tensor>& results);
  // Whether autocast has casts of weights after the call.
  bool keeps_casts() const;
  void note_cast(const Operator& op, const c10::IValue& operand);
  void note_cast_from_before(const at::Tensor& tensor);
  void add_cast(const at::Tensor& weight, at::ScalarType type);
  // What an operator of the forward is given, under autocast.
  void note_uses(at::ArrayRef<c10::IValue> arguments);
  void refuse_late_casts();
  void check_casts();
  // Whether a backward of a part uses what another one has made: each must be able to run alone.
  bool backwards_meet() const;
  // Whether a tensor from outside is one that the graph of a part has made: a view, or a saved tensor.
  bool is_of_graph(size_t outside) const;
  // A wrapped number that the graph of a part keeps, as that of a product does.
  bool is_saved_number(int memory) const;
  bool note_result(const at::Tensor& result, bool is_output);

  // recorder_values.cpp
  Argument argument(const c10::IValue& value, const std::string& name, std::vector<bool>* fresh);
  int value(const at::Tensor& tensor, const std::string& name, bool result, bool* fresh = nullptr);
  int memory(const at::Tensor& tensor, bool result, bool* fresh);
  // Whether the operator under way has the float from the program, and its backward with it.
  bool is_passed(double number);
  void note_input(const at::Tensor& input, int index);
  int input_memory(const at::Tensor& tensor, bool result);
  int64_t offset_of(const at::Tensor& tensor, int memory, const std::string& name);
  void note_outside(const at::Tensor& tensor, int value);

  // recorder_writes.cpp
  void note_writes(Operator& op);
  void note_host_values(const Operator& op);
  void note_lifted(const Operator& op);
  // Whether the operator writes to an array that was lifted in the call, or the program has done so.
  void check_arrays(const Operator& op);
  // The same at the end. A tensor on an array must not live on.
  void check_arrays_left();
  void note_asked_storages(const Operator& op);
  void check_memory(const Operator& op);

  Program& program_;
  const std::vector<LeafGradient>& leaves_;
  const bool is_in_autocast_context_ = is_in_autocast_context();
  // When the call began.
  Environment environment_;
  uint64_t foreign_before_ = 0;
  // Of a weight: how often the forward uses it as it is, in all and before it uses the cast that autocast
  // keeps.
  struct WeightUses {
    int all = 0;
    std::optional<int> before_cast = std::nullopt;
  };
  std::unordered_map<const c10::TensorImpl*, WeightUses> weight_uses_;
  std::vector<const c10::TensorImpl*> weights_of_casts_;
  std::unordered_map<const c10::StorageImpl*, int> memories_;
  std::unordered_map<std::string, int> values_;
  std::unordered_set<const c10::TensorImpl*> outside_seen_;
  // Leaves from outside that required a gradient when the call first used them.
  std::vector<WeakTensor> required_;
  // The memory of the gradients that such leaves had then.
  std::unordered_set<const c10::StorageImpl*> gradients_before_;
  bool switches_off_a_leaf() const;
  // Of each input's memory: the bytes of its storage that the input's elements span.
  struct Span {
    const c10::StorageImpl* storage;
    size_t begin;
    size_t end;
    int memory;
  };
  std::vector<Span> spans_;
  void adopt_passing_copies();
  void find_owners();
  bool has_owner(int memory) const;
  bool holds_all(const Span& span, int memory) const;
  void adopt(const Span& span, int memory);
  // The memory of the inputs and of what operators returned on their memory. The references keep the addresses
  // from being used again.
  std::unordered_map<const c10::TensorImpl*, int> of_inputs_;
  std::vector<WeakTensor> kept_addresses_;
  // Views that operators returned on memory from outside. The graph of a part keeps them, and the program need
  // not.
  std::unordered_set<const c10::TensorImpl*> views_of_outside_;
  // Of the operator under way: whether it only makes views, which may have such bits.
  bool takes_lazy_bits_ = false;
  // Of a part: how many tensors from outside the forward saw. The backward sees saved ones under other names.
  size_t outside_of_forward_ = 0;
  // Whether an array was lifted.
  bool any_array_ = false;
  PassedNumbers passed_numbers_;
  // By storage.
  std::unordered_map<const c10::StorageImpl*, WeakTensor> owners_;
  // By storage, kept so that no address is used again.
  std::unordered_map<const c10::StorageImpl*, std::pair<WeakStorage, WeakTensor>> given_;
  // The operator whose results are noted.
  const Operator* noted_ = nullptr;
};

}  // namespace overdrive::replay
