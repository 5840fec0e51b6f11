// The part of a pack unit that is about fetching before a node asks.
#include "hooks/memory/pack_unit.h"

#include "engine/base/auxiliary_span.h"
#include "engine/base/counters.h"
#include "hooks/interface/hook_calls.h"

#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <utility>

namespace overdrive::hooks {
namespace counts {
static constinit base::Counter ahead_hits{"ahead_hits"};
static constinit base::Counter ahead_waits{"ahead_waits"};
static constinit base::Counter ahead_misses{"ahead_misses"};
static constinit base::Counter ahead_unused{"ahead_unused"};
static constinit base::Counter ahead_bytes{"ahead_bytes"};
}  // namespace counts

Prefetch::Announced PackUnit::announce_fetch() {
  if (prefetch_ == nullptr) return Prefetch::Announced::kNo;
  at::Tensor alive;
  {
    const base::MutexLock lock(mutex_);
    if (!is_packed_) return Prefetch::Announced::kNo;
    alive = still_alive();
  }
  const Prefetch::Announced announced = prefetch_->announce();
  if (announced != Prefetch::Announced::kToBeRun || !alive.defined()) return announced;
  prefetch_->have({std::move(alive), base::StreamMark::here(memory_.device())});
  return Prefetch::Announced::kComing;
}

void PackUnit::passed_fetch() {
  if (prefetch_ != nullptr) prefetch_->passed();
}

void PackUnit::expect_unpack() {
  if (prefetch_ == nullptr || !prefetch_->is_announced()) return;
  {
    const base::MutexLock lock(mutex_);
    if (!is_packed_) return;
  }
  const InsideHook inside;
  try {
    memory_.hooks().expect(packed_);
  } catch (...) {  // expect() is a hint only; an error that matters comes again from unpack()
  }
}

void PackUnit::fetch_ahead(base::NodePtr node) {
  if (prefetch_ == nullptr) return;
  if (!node) return forget_fetched();
  prefetch_->run([&]() -> Fetched {
    const base::NodePtr held = std::move(node);
    return unpack_ahead(*held);
  });
}

// On a stream beside the program's, which goes on meanwhile.
Fetched PackUnit::unpack_ahead(base::Node& node) {
  {
    const base::MutexLock lock(mutex_);
    if (!is_packed_) return {};
  }
  base::AuxiliarySpanScope span([this] {
    return base::AuxiliarySpan{.kind = base::AuxiliarySpan::Kind::kFetch,
                               .name = memory_.hooks().name(),
                               .bytes = memory_.bytes(),
                               .link = base::next_link()};
  });
  const std::optional<c10::Device> device = memory_.accelerator();
  const c10::OptionalStreamGuard stream(device ? std::optional(base::side_stream(*device)) : std::nullopt);
  const c10::NoGradGuard no_grad;
  at::Tensor memory = unpack(&node);
  for (const at::Tensor& part : packed_.tensors) {
    if (part.defined()) base::note_use_here(part);
  }
  base::count(counts::ahead_bytes, static_cast<int64_t>(memory.nbytes()));
  const uint64_t link = span.work() != nullptr ? span.work()->link : 0;
  return {std::move(memory), base::StreamMark::here(memory_.device()), link};
}

void PackUnit::forget_fetched() {
  if (prefetch_ != nullptr && prefetch_->forget()) base::count(counts::ahead_unused);
}

at::Tensor PackUnit::take_fetched() {
  if (prefetch_ == nullptr) return {};
  base::AuxiliarySpanScope span([this] {
    return base::AuxiliarySpan{
        .kind = base::AuxiliarySpan::Kind::kUnpack, .name = memory_.hooks().name(), .bytes = memory_.bytes()};
  });
  Prefetch::Taken taken = prefetch_->take();
  switch (taken.came) {
    case Prefetch::Came::kNot:
      base::count(counts::ahead_misses);
      break;
    case Prefetch::Came::kInTime:
      base::count(counts::ahead_hits);
      break;
    case Prefetch::Came::kLate:
      base::count(counts::ahead_waits);
      break;
  }
  if (base::AuxiliarySpan* work = span.work()) work->link = taken.result.link;
  if (!taken.result) span.drop();  // the node's own unpack follows
  if (taken.result) {
    taken.result.ready.wait();
    base::note_use_here(taken.result.tensor);
  }
  return std::move(taken.result.tensor);
}

}  // namespace overdrive::hooks
