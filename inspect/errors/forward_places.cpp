#include "inspect/errors/forward_places.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/operators/forward_observer.h"
#include "engine/run/watchers.h"
#include "inspect/errors/call_stack.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace overdrive::inspect {
namespace {

// The nodes that a thread made between two moments.
struct Place {
  enum class By { kOperator, kBackward, kNobodyBefore };
  uint64_t thread = 0;
  uint64_t first = 0, end = 0;  // numbers of the nodes
  By by = By::kOperator;
  std::string op;   // of kNobodyBefore: the next operator, whose stack it is
  CallStack stack;  // not of kBackward
};

// A ring. A place is destroyed outside of the lock.
class Places {
 public:
  static Places& get() {
    static base::NoDestructor<Places> instance;
    return *instance;
  }
  void add(Place place) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (places_.size() < kMost) {
      places_.push_back(std::move(place));
    } else {
      std::swap(places_[next_], place);
      next_ = (next_ + 1) % kMost;
    }
  }
  std::optional<Place> find(const base::Node& node) OVERDRIVE_EXCLUDES(mutex_) {
    const uint64_t number = node.sequence_nr(), thread = node.thread_id();
    const base::MutexLock lock(mutex_);
    const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
      return place.thread == thread && place.first <= number && number < place.end;
    });
    return found == places_.end() ? std::nullopt : std::optional(*found);
  }

 private:
  static constexpr size_t kMost = 65'536;
  base::ProcessMutex mutex_{"forward places"};
  std::vector<Place> places_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t next_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // the oldest of a full ring
};

std::atomic<bool> places_wanted{false};

// A plain value, as the observer in it.
struct PlacedThread {
  engine::ForwardObserver observer;
  int depth = 0;       // operators inside each other
  uint64_t known = 0;  // nodes with a number below it have their place, or are too old for one
};
thread_local PlacedThread placed_thread;

struct FirstOfOp final : at::ObserverContext {
  const uint64_t number = at::sequence_number::peek();
};

void add_place(uint64_t first, uint64_t end, Place::By by, const char* op) {
  const bool has_stack = by != Place::By::kBackward;
  Places::get().add({at::RecordFunction::currentThreadId(), first, end, by, op,
                     has_stack ? CallStack::here(CallStack::Language::kAny) : CallStack()});
}

// The outermost operator is the one that the program called.
std::unique_ptr<at::ObserverContext> place_begins(const at::RecordFunction& op) {
  PlacedThread& thread = placed_thread;
  if (thread.depth++ != 0) return nullptr;
  auto first = std::make_unique<FirstOfOp>();
  if (thread.observer.is_on() && thread.known < first->number) {
    add_place(thread.known, first->number, Place::By::kNobodyBefore, op.name());
  }
  return first;
}

// Only an operator that made a node pays for the stack, which is still that of its call.
void place_ends(const at::RecordFunction&, at::ObserverContext* context) {
  PlacedThread& thread = placed_thread;
  --thread.depth;
  if (context == nullptr) return;
  const uint64_t first = static_cast<FirstOfOp*>(context)->number, end = at::sequence_number::peek();
  thread.known = end;
  if (first != end) add_place(first, end, Place::By::kOperator, "");
}

void match_wanted(PlacedThread& thread) {
  const bool on = places_wanted.load(std::memory_order_acquire);
  if (on == thread.observer.is_on() || thread.observer.is_paused()) return;
  if (on) {
    thread.observer.start(at::RecordFunctionCallback(&place_begins, &place_ends));
    thread.depth = 0;
    thread.known = at::sequence_number::peek();
  } else {
    thread.observer.stop();
  }
}

// Nodes run as they do without a record, and the nodes that they make have no place in a forward.
class PlacelessRun final : public engine::RunWatch {
 public:
  PlacelessRun() { placed_thread.observer.pause(); }
  ~PlacelessRun() override {
    PlacedThread& thread = placed_thread;
    thread.observer.resume();
    if (thread.observer.is_paused() || !thread.observer.is_on()) return;
    const uint64_t end = at::sequence_number::peek();
    if (end != begin_) add_place(begin_, end, Place::By::kBackward, "");
    thread.known = end;
  }

 private:
  const uint64_t begin_ = at::sequence_number::peek();
};

class PlaceWatcher final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts&) override {
    match_wanted(placed_thread);
    const engine::ForwardObserver& observer = placed_thread.observer;
    return observer.is_on() || observer.is_paused() ? std::make_unique<PlacelessRun>() : nullptr;
  }
};

}  // namespace

void record_forward_places(bool on) {
  if (on) {
    [[maybe_unused]] static const bool kAdded = (engine::add_watcher(std::make_shared<PlaceWatcher>()), true);
  }
  places_wanted.store(on, std::memory_order_release);
  match_wanted(placed_thread);
}

std::string forward_place_of(const base::Node& node) {
  const std::optional<Place> place = Places::get().find(node);
  if (!place.has_value() || place->by == Place::By::kBackward) return "";
  const std::string lines = place->stack.text();
  if (lines.empty()) return "";
  const bool after = place->by == Place::By::kNobodyBefore;
  return (after ? "Traceback of the next operator of the forward, " + place->op : "Traceback of forward call") +
         ":\n" + lines;
}

}  // namespace overdrive::inspect
