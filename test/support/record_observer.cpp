#include "test/support/record_observer.h"

#include <atomic>

namespace overdrive::test {

namespace {
// A RecordFunction callback is a plain function: it finds its observer here. One at a time.
std::atomic<RecordObserver*> current{nullptr};
}  // namespace

struct RecordObserver::Context final : at::ObserverContext {
  explicit Context(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

RecordObserver::RecordObserver(Scope scope, bool inputs) {
  TORCH_CHECK(current.exchange(this) == nullptr, "only one RecordObserver at a time");
  auto callback =
      at::RecordFunctionCallback(&RecordObserver::enter, &RecordObserver::leave).needsInputs(inputs);
  if (scope == Scope::kBackwardOnly) callback.scopes({at::RecordScope::BACKWARD_FUNCTION});
  handle_ = at::addGlobalCallback(callback);
}

RecordObserver::~RecordObserver() {
  at::removeCallback(handle_);
  current = nullptr;
}

std::unique_ptr<at::ObserverContext> RecordObserver::enter(const at::RecordFunction& range) {
  auto* self = current.load();
  if (!self) return nullptr;
  std::ostringstream line;
  line << range.name() << " seq=" << range.seqNr() << " forward_thread=" << range.forwardThreadId()
       << " scope=" << static_cast<int>(range.scope());
#ifdef NDEBUG  // otherwise the header looks at a flag that LibTorch, built with it, does not set
  for (const auto& input : range.inputs()) {
    line << " " << input.tagKind();
    if (input.isTensor() && input.toTensor().defined()) line << input.toTensor().sizes();
  }
#endif
  std::lock_guard lock(self->mutex_);
  self->events_.push_back({true, range.name(), line.str()});
  return std::make_unique<Context>(range.name());
}

void RecordObserver::leave(const at::RecordFunction&, at::ObserverContext* context) {
  auto* self = current.load();
  if (!self || !context) return;
  std::lock_guard lock(self->mutex_);
  self->events_.push_back({false, static_cast<Context*>(context)->name_, ""});
}

std::vector<std::string> RecordObserver::ranges(const std::string& except) const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  size_t depth = 0;
  for (const auto& event : events_) {
    if (!except.empty() && event.name.ends_with(except)) continue;
    if (!event.begin) {
      --depth;
    } else {
      lines.push_back(std::string(2 * depth++, ' ') + event.line);
    }
  }
  return lines;
}

int RecordObserver::count(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(events_.begin(), events_.end(),
                                        [&](const Event& event) { return event.begin && event.name == name; }));
}

}  // namespace overdrive::test
