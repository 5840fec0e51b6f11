#include "inspect/errors/in_place_writes.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/operators/forward_observer.h"
#include "engine/operators/tensors_in.h"
#include "engine/run/watchers.h"

#include <ATen/core/DimVector.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace overdrive::inspect {
namespace {

// The tensor may be gone when an error asks, so its looks are kept. Their text costs more than a change of a
// small tensor, so it is made for an error only.
struct Write {
  c10::VariableVersion counter;
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;  // a node that saved the tensor keeps it
  uint32_t before, after;
  std::string type;
  std::optional<at::DimVector> sizes;  // none of a nested tensor
  std::string op;

  // "[torch.FloatTensor [2, 3]]", as in the error.
  std::string looks() const {
    return c10::str("[", type, " ", sizes.has_value() ? c10::str(at::IntArrayRef(*sizes)) : "", "]");
  }
};

// The facts about the tensor in stock's error.
struct Description {
  std::string text;
  unsigned version = 0, expected = 0;
};

class Writes {
 public:
  static Writes& get() {
    static base::NoDestructor<Writes> instance;
    return *instance;
  }
  void add(Write write) OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (writes_.size() == kMost) writes_.pop_front();
    writes_.push_back(std::move(write));
  }
  // The first operator that changed a tensor of the version described, for each tensor that fits. A view of the
  // tensor has other looks and the same counter, and counts where no tensor looks as described.
  std::vector<std::string> find(const Description& described) OVERDRIVE_EXCLUDES(mutex_) {
    std::vector<std::string> alike, others;
    const base::MutexLock lock(mutex_);
    for (const Write& write : writes_) {
      const bool is_first = write.before <= described.expected && described.expected < write.after;
      if (!is_first || write.memory.expired() || write.counter.current_version() != described.version) continue;
      auto& found = described.text.find(write.looks()) != std::string::npos ? alike : others;
      if (std::find(found.begin(), found.end(), write.op) == found.end()) found.push_back(write.op);
    }
    return alike.empty() ? others : alike;
  }

 private:
  static constexpr size_t kMost = 4096;
  base::ProcessMutex mutex_{"in-place writes"};
  std::deque<Write> writes_ OVERDRIVE_GUARDED_BY(mutex_);
};

// A plain value, as the observer in it.
struct RecordedThread {
  engine::ForwardObserver observer;
  int depth = 0;  // operators inside each other
};
thread_local RecordedThread recorded_thread;

struct Inputs final : at::ObserverContext {
  std::vector<std::pair<at::Tensor, uint32_t>> tensors;  // with their versions
};

void note_tensor(Inputs& inputs, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) return;
  inputs.tensors.emplace_back(tensor, tensor.unsafeGetTensorImpl()->version_counter().current_version());
}

// The outermost operator is the one that the program called.
std::unique_ptr<at::ObserverContext> notes_versions(const at::RecordFunction& op) {
  auto inputs = std::make_unique<Inputs>();
  if (recorded_thread.depth == 0)
    engine::for_each_input(op, [&](const at::Tensor& tensor) { note_tensor(*inputs, tensor); });
  ++recorded_thread
        .depth;  // the last, because LibTorch goes on after an error, and the end has no context then
  return inputs;
}

void compares_versions(const at::RecordFunction& op, at::ObserverContext* context) {
  if (context == nullptr) return;
  --recorded_thread.depth;
  for (const auto& [tensor, before] : static_cast<Inputs*>(context)->tensors) {
    const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
    const uint32_t after = counter.current_version();
    if (after == before || !tensor.has_storage()) continue;
    std::optional<at::DimVector> sizes;
    if (!tensor.is_nested()) sizes.emplace(tensor.sizes());
    Writes::get().add({counter, tensor.storage().getWeakStorageImpl(), before, after, tensor.toString(),
                       std::move(sizes), op.name()});
  }
}

// Nodes run as they do without a record.
class PausedRun final : public engine::RunWatch {
 public:
  PausedRun() { recorded_thread.observer.pause(); }
  ~PausedRun() override { recorded_thread.observer.resume(); }
};

class PausingWatcher final : public engine::Watcher {
 public:
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts&) override {
    const engine::ForwardObserver& observer = recorded_thread.observer;
    return observer.is_on() || observer.is_paused() ? std::make_unique<PausedRun>() : nullptr;
  }
};

bool read_description(const std::exception& error, Description& described) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return false;
  described.text = of_torch->msg();
  if (described.text.find("has been modified by an inplace operation") == std::string::npos) return false;
  const size_t at = described.text.find("is at version ");
  return at != std::string::npos &&
         std::sscanf(described.text.c_str() + at, "is at version %u; expected version %u", &described.version,
                     &described.expected) == 2;
}

}  // namespace

void record_in_place_writes(bool on) {
  RecordedThread& thread = recorded_thread;
  if (on == thread.observer.is_on() || thread.observer.is_paused()) return;
  if (on) {
    [[maybe_unused]] static const bool kAdded = (engine::add_watcher(std::make_shared<PausingWatcher>()), true);
    thread.observer.start(at::RecordFunctionCallback(&notes_versions, &compares_versions).needsInputs(true));
    thread.depth = 0;
  } else {
    thread.observer.stop();
  }
}

std::string writer_of(const std::exception& error) {
  Description described;
  if (!read_description(error, described)) return "";
  const std::vector<std::string> found = Writes::get().find(described);
  if (found.empty()) return "";
  std::string text = "the tensor was changed by ";
  for (size_t i = 0; i < found.size() && i < 4; ++i) text += (i == 0 ? "" : " or ") + found[i];
  return found.size() > 4 ? text + " or another operator" : text;
}

}  // namespace overdrive::inspect
