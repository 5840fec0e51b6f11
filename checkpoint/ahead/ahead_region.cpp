#include "checkpoint/ahead/ahead_region.h"

#include "engine/base/ahead_result.h"
#include "engine/base/job_thread.h"
#include "engine/base/no_destructor.h"
#include "engine/base/stream_mark.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/graph_task.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <functional>
#include <system_error>
#include <utility>

namespace overdrive::checkpoint {

namespace {

using torch::autograd::get_current_graph_task_id;

// The next stream for a recomputation on the device, in turn. A region's gradient is made on the stream of its
// recomputation, so `count` regions in a row have different ones: the next recomputation overlaps the gradient
// under way. Memory that is freed on one stream is not used on another, so each of them costs memory.
c10::Stream next_stream(c10::Device device, size_t count) {
  constexpr size_t kMostStreams = 4;
  static base::NoDestructor<std::array<base::SideStreams, kMostStreams>> streams;
  static std::atomic<size_t> turn{0};
  const size_t index = turn.fetch_add(1, std::memory_order_relaxed) % std::min(count, kMostStreams);
  return (*streams)[index].of(device);
}

// The device of all tensors, if it is the CPU or has streams.
std::optional<c10::Device> common_device(const Tensors& inputs, const Tensors& outputs) {
  std::optional<c10::Device> common;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      if (common && *common != tensor.device()) return std::nullopt;
      common = tensor.device();
    }
  }
  const bool known = common && (common->is_cpu() || at::getAccelerator() == common->type());
  return known ? common : std::nullopt;
}

}  // namespace

// One recomputation, ordered by one backward.
class AheadRegion::Order {
 public:
  explicit Order(std::function<TapePtr()> make) : make_(std::move(make)) { tape_.announce(); }

  bool is_of_this_backward() const { return graph_task_ == get_current_graph_task_id(); }

  void run() { tape_.run(make_); }
  void run_elsewhere() {
    // An order of a parent process belongs to its backwards.
    if (process_ != ::getpid() || !tape_.is_announced()) return;
    surroundings_.take_over();
    run();
  }

  // The tape, or null. Whatever frees it or goes on with it comes after it on the streams.
  TapePtr take() {
    TapePtr tape = tape_.take().result;
    if (tape) tape->wait();
    return tape;
  }

 private:
  // Settings that decide the bits of a result beside the modes of a region: threads inside an operation,
  // rounding, denormals. And the number of the next node, so that nodes made elsewhere come after older nodes.
  class Surroundings {
   public:
    Surroundings() : threads_(at::get_num_threads()), next_node_(at::sequence_number::peek()) {
      std::fegetenv(&floating_point_);
    }
    // Makes this thread like the one that the object was made on. For good: the thread has no others.
    void take_over() const {
      std::fesetenv(&floating_point_);
      if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
      while (at::sequence_number::peek() < next_node_) at::sequence_number::get_and_increment();
    }

   private:
    int threads_;
    uint64_t next_node_;
    std::fenv_t floating_point_{};
  };

  const std::function<TapePtr()> make_;
  const int graph_task_ = get_current_graph_task_id();
  const int process_ = ::getpid();
  const Surroundings surroundings_;
  base::AheadResult<TapePtr> tape_;
};

AheadRegion::AheadRegion(const Region& region, const SavedInputs& inputs) : region_(region), inputs_(inputs) {}

AheadRegion::~AheadRegion() {
  try {
    call_off();
  } catch (const std::exception&) {  // of a device that is broken, and will say so
  }
}

void AheadRegion::note_first_run(const Tensors& inputs, const Tensors& outputs) {
  if (reach() == 0) return;
  if (!inputs_.have_hooks()) device_ = common_device(inputs, outputs);
  if (device_) first_run_ = base::StreamMark::here(*device_);
}

AheadRegion::Where AheadRegion::where() const {
  // Without its random numbers, nobody knows whether the region draws any. Values that it writes for a while to
  // tensors from outside are for no other thread.
  if (!device_ || !region_.options().preserve_rng || region_.writes_to_tensors()) return Where::kInItsTurn;
  // The worker of a device must not set the CPU's generator back: the calling thread may be drawing.
  if (!device_->is_cpu()) return region_.draws_on_cpu() ? Where::kInItsTurn : Where::kOnItsThread;
  return region_.draws_random_numbers() ? Where::kOnItsThread : Where::kAnywhere;
}

std::shared_ptr<AheadRegion::Order> AheadRegion::order() {
  auto order = std::make_shared<Order>([this] { return make_tape(); });
  std::shared_ptr<Order> other;
  {
    const base::MutexLock lock(mutex_);
    if (order_ && order_->is_of_this_backward()) return nullptr;
    other = std::exchange(order_, order);
  }
  if (other) other->take();  // of a backward that failed, or of one on another thread
  return order;
}

void AheadRegion::begin_elsewhere() {
  const std::shared_ptr<Order> ordered = order();
  if (ordered == nullptr) return;
  static base::JobThread& thread = base::JobThread::of_process("overdrive-ahead");
  try {
    thread.push([ordered] { ordered->run_elsewhere(); });
  } catch (const std::system_error&) {  // no thread: the node will do it in its turn
  }
}

void AheadRegion::run_here() {
  if (const std::shared_ptr<Order> ordered = order()) ordered->run();
}

TapePtr AheadRegion::take() {
  std::shared_ptr<Order> order;
  {
    const base::MutexLock lock(mutex_);
    order.swap(order_);
  }
  if (order == nullptr) return nullptr;
  TapePtr tape = order->take();
  return order->is_of_this_backward() ? std::move(tape) : nullptr;
}

void AheadRegion::call_off() { take(); }

// On a device, on a stream of its own that waits for what the first run read, and not for the gradients under
// way.
TapePtr AheadRegion::make_tape() const {
  const Tensors inputs = inputs_.unpack();
  if (device_->is_cpu()) return std::make_shared<Tape>(region_, inputs);
  const c10::StreamGuard aside(next_stream(*device_, static_cast<size_t>(reach()) + 1));
  first_run_.wait();
  for (const at::Tensor& input : inputs) {
    if (input.defined()) base::note_use_here(input);
  }
  auto tape = std::make_shared<Tape>(region_, inputs);
  tape->note_stream(*device_);
  return tape;
}

}  // namespace overdrive::checkpoint
