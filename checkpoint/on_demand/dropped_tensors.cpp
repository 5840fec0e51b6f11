#include "checkpoint/on_demand/dropped_tensors.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// Thrown through the region's function once nothing of it is wanted any more. Not a std::exception: a
// function that handles those must not handle this.
struct NothingLeftToDo {
  const void* capture;
};

// Whether this thread is another one than the runner of the region, so that its tensors come in no fixed order.
// A worker of a backward that the region runs is no such thread: the runner waits for it.
bool is_beside(std::thread::id runner) {
  return std::this_thread::get_id() != runner && torch::autograd::get_current_graph_task_id() == -1;
}

}  // namespace

// The hooks of the region's second run. They collect the tensors that its nodes save, which come in the order
// of the first run.
class DroppedTensors::Capture final : public hooks::SavedTensorHooks {
 public:
  Capture(const Region& region, std::vector<Expected> expected)
      : region_(region), expected_(std::move(expected)) {
    found.reserve(expected_.size());
    for (size_t i = 0; i < expected_.size(); ++i) {
      if (expected_[i].dropped) needed_ = i + 1;
    }
  }

  hooks::Packed pack(const at::Tensor& tensor, const hooks::SaveInfo&) override {
    if (is_beside(runner_)) return {.tensors = {tensor}, .state = {}};  // so there will be too few
    if (found.size() == expected_.size()) {
      ++surplus_;  // or the function went on all the same
    } else {
      compare(tensor);
      found.push_back(expected_[found.size()].dropped ? apart_from_outer_writes(tensor) : at::Tensor());
      if (region_.options().early_stop && found.size() == needed_) {
        stopped_ = true;
        throw NothingLeftToDo{this};
      }
    }
    return {.tensors = {tensor}, .state = {}};
  }
  // The function may run a backward of its own through what it has computed.
  at::Tensor unpack(hooks::Packed& packed, const hooks::UnpackInfo&) override { return packed.tensors[0]; }
  std::string name() const override { return region_.name(); }

  // The outputs, or nothing where the function was stopped.
  std::optional<Tensors> run(const Function& function, const Tensors& inputs) {
    std::optional<Tensors> outputs;
    try {
      outputs = function(inputs);
    } catch (const NothingLeftToDo& stop) {
      if (stop.capture != this) throw;
    }
    // A function that catches everything may have gone on with something else.
    return stopped_ ? std::nullopt : outputs;
  }

  // Too few are an error in any case: some node would never get its tensor.
  void check_complete() const {
    if (stopped_) return;
    TORCH_CHECK(found.size() == expected_.size() && (surplus_ == 0 || !region_.options().check_determinism),
                "The recomputation of ", region_.name(), " saved ", found.size() + surplus_,
                " tensors for its backward, the first run ", expected_.size(),
                ". A region must do the same each time it runs.");
  }

  Tensors found;

 private:
  // A wrong size would be an error in the node that asks; this one says where it comes from.
  void compare(const at::Tensor& tensor) const {
    if (!region_.options().check_determinism) return;
    const TensorSignature again(tensor, region_.options().checksum);
    const size_t index = found.size();
    const TensorSignature& first = expected_[index].signature;
    if (!(again == first)) region_.refuse("saved tensor", index, first, again);
  }

  const Region& region_;
  const std::vector<Expected> expected_;
  const std::thread::id runner_ = std::this_thread::get_id();
  size_t needed_ = 0;  // behind these, nothing was dropped
  size_t surplus_ = 0;
  bool stopped_ = false;
};

DroppedTensors::DroppedTensors(Function function, const Tensors& inputs, const Options& options)
    : region_(std::move(function), options), inputs_(inputs) {}

Tensors DroppedTensors::run(const Tensors& inputs) {
  const auto set_open = [this](bool open) {
    const base::MutexLock lock(mutex_);
    open_ = open;
    runner_ = std::this_thread::get_id();
  };
  set_open(true);
  const auto close = c10::make_scope_exit([&] { set_open(false); });
  Tensors outputs = region_.run_first(inputs, /*graph=*/true);
  const base::MutexLock lock(mutex_);
  TORCH_CHECK(
      !others_saved_, "The function of ", name(),
      " has several threads compute for it, so what they save would come in another order when it runs again. "
      "Use the form kEarly, or leave the threads out of the region.");
  return outputs;
}

bool DroppedTensors::is_open() const {
  const base::MutexLock lock(mutex_);
  return open_;
}

size_t DroppedTensors::note(const at::Tensor& tensor, bool dropped) {
  TensorSignature signature(tensor, options().checksum);
  const base::MutexLock lock(mutex_);
  others_saved_ = others_saved_ || is_beside(runner_);
  tensors_.push_back(
      {.signature = std::move(signature), .dropped = dropped, .wanted = dropped, .recomputed = {}});
  return tensors_.size() - 1;
}

std::shared_ptr<DroppedTensors::Handle> DroppedTensors::drop(const at::Tensor& tensor) {
  return std::make_shared<Handle>(shared_from_this(), note(tensor, /*dropped=*/true));
}

void DroppedTensors::pass(const at::Tensor& tensor) { note(tensor, /*dropped=*/false); }

at::Tensor DroppedTensors::take(size_t index) {
  const base::MutexLock lock(mutex_);
  at::Tensor& tensor = tensors_[index].recomputed;
  return region_.options().keep_recomputed ? tensor : std::exchange(tensor, at::Tensor());
}

void DroppedTensors::forget(size_t index) {
  at::Tensor dropped;  // without the lock
  const base::MutexLock lock(mutex_);
  tensors_[index].wanted = false;
  std::swap(dropped, tensors_[index].recomputed);
}

at::Tensor DroppedTensors::fetch(size_t index) {
  if (at::Tensor tensor = take(index); tensor.defined()) return tensor;
  uint64_t before = 0;
  {
    const base::MutexLock lock(mutex_);
    before = runs_;
  }
  Tensors made = recompute();
  at::Tensor wanted = made[index];
  if (!region_.options().keep_recomputed) made[index] = at::Tensor();
  const base::MutexLock lock(mutex_);
  if (runs_ != before) return wanted;  // another thread was faster; nodes may have fetched of its run
  ++runs_;
  for (size_t i = 0; i < made.size(); ++i) {
    if (tensors_[i].wanted) std::swap(tensors_[i].recomputed, made[i]);
  }
  return wanted;
}

std::vector<DroppedTensors::Expected> DroppedTensors::expected() const {
  const base::MutexLock lock(mutex_);
  std::vector<Expected> all;
  all.reserve(tensors_.size());
  for (const Dropped& tensor : tensors_) all.push_back({tensor.signature, tensor.dropped});
  return all;
}

Tensors DroppedTensors::recompute() const {
  const auto capture = std::make_shared<Capture>(region_, expected());
  // The scope is opened inside the modes of the first run.
  region_.run_again_within(inputs_.unpack(), [&capture](const Function& function, const Tensors& arguments) {
    const hooks::ScopedHooks scope(capture, kOfARegion);
    return capture->run(function, arguments);
  });
  capture->check_complete();
  return std::move(capture->found);
}

}  // namespace overdrive::checkpoint
