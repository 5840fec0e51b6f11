#include "inspect/trace/trace_run.h"

#include "engine/host/shared_object.h"
#include "inspect/cost/gradient_bytes.h"
#include "inspect/cost/live_bytes.h"
#include "inspect/trace/forward_ops.h"

#include <c10/util/ApproximateClock.h>

namespace overdrive::inspect {
namespace {

uint64_t ticks() { return static_cast<uint64_t>(c10::getApproximateTime()); }

const void* vtable_of(const base::Node& node) { return *reinterpret_cast<const void* const*>(&node); }

}  // namespace

TraceRun::TraceRun(std::shared_ptr<TraceFile> file, const engine::RunFacts& facts, bool live_bytes)
    : file_(std::move(file)),
      plan_(facts.plan),
      number_(facts.number),
      begin_(ticks()),
      live_bytes_(live_bytes),
      nodes_(facts.plan.nodes.size()),
      arrived_(std::make_unique<std::atomic<uint64_t>[]>(nodes_)) {
  arrived_[0].store(begin_, std::memory_order_relaxed);
  ForwardOps::pause();
}

TraceRun::~TraceRun() { ForwardOps::resume(); }

// A type of LibTorch's has one name. Another type may give each node its own.
uint32_t TraceRun::name_of(RecordRing& ring, const base::Node& node) const {
  const void* const vtable = vtable_of(node);
  RecordRing::KnownType& known = ring.types[(reinterpret_cast<uintptr_t>(vtable) >> 5) % ring.types.size()];
  if (known.vtable == vtable) return known.name;
  const uint32_t name = file_->name_number(ring, node.name());
  if (engine::host::kind_of(node) != engine::host::NodeKind::kForeign) known = {vtable, name};
  return name;
}

void TraceRun::before_node(const engine::NodeFacts& facts) {
  const base::Node& node = facts.node;
  RecordRing& ring = file_->ring();
  ring.open.push_back({.backward = number_, .index = facts.index, .record = {}});
  TraceRecord& record = ring.open.back().record;
  record.sequence = node.sequence_nr();
  record.forward_thread = node.thread_id();
  record.name = name_of(ring, node);
  record.bytes_in = bytes_of(facts.inputs);
  if (node.num_inputs() != 0 && !node.input_metadata(0).was_default_constructed()) {
    const c10::Device device = node.input_metadata(0).device();
    record.device = static_cast<int8_t>(device.type());
    record.device_index = device.index();
  }
  const uint64_t arrived = arrived_[facts.index].load(std::memory_order_relaxed);
  record.begin = ticks();
  record.wait = arrived != 0 && arrived < record.begin ? record.begin - arrived : 0;
}

void TraceRun::after_node(const engine::NodeFacts& facts, const base::variable_list& outputs, bool native) {
  const uint64_t now = ticks();
  finish(file_->ring(), facts.index, now, bytes_of(outputs), native, false);
}

void TraceRun::node_failed(const engine::NodeFacts& facts) noexcept {
  try {
    finish(file_->ring(), facts.index, ticks(), 0, false, true);
  } catch (...) {  // memory: the error of the node matters more than its place in the trace
  }
}

void TraceRun::finish(RecordRing& ring, uint32_t index, uint64_t now, int64_t bytes_out, bool native,
                      bool failed) const {
  // Above it lie nodes whose before_node() threw here.
  while (!ring.open.empty()) {
    const RecordRing::Open open = ring.open.back();
    ring.open.pop_back();
    if (open.backward != number_ || open.index != index) continue;
    TraceRecord record = open.record;
    record.end = now;
    record.bytes_out = bytes_out;
    record.native = native;
    record.failed = failed;
    if (live_bytes_) record.live = LiveBytes::now();
    file_->push(ring, record);
    break;
  }
  const uint32_t first = plan_.nodes[index].first_edge;
  for (uint32_t edge = first, last = first + plan_.num_edges(index); edge != last; ++edge) {
    const uint32_t target = plan_.targets[edge];
    if (target < nodes_) arrived_[target].store(now, std::memory_order_relaxed);
  }
}

void TraceRun::end(const std::exception_ptr& error) {
  RecordRing& ring = file_->ring();
  while (!ring.open.empty() && ring.open.back().backward == number_) ring.open.pop_back();
  TraceRecord record{.begin = begin_,
                     .end = ticks(),
                     .bytes_in = static_cast<int64_t>(nodes_),
                     .bytes_out = static_cast<int64_t>(number_),
                     .kind = TraceRecord::Kind::kBackward,
                     .failed = error != nullptr};
  record.name = file_->name_number(ring, "backward");
  file_->push(ring, record);
  file_->flush_now_and_then(record.end);
}

}  // namespace overdrive::inspect
