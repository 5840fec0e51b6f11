#include "engine/host/current_node.h"

#include "engine/host/shared_object.h"

#include <atomic>
#include <cstddef>

namespace overdrive::engine::host {
namespace {

using namespace torch::autograd;

constexpr ptrdiff_t kUnknown = -1;
constexpr ptrdiff_t kNotThere = -2;
std::atomic<ptrdiff_t> current_node_offset{kUnknown};

// A node that nobody can mistake for a run's.
struct Probe : Node {
  Probe() : Node(/*sequence_nr=*/uint64_t{0}) {}
  variable_list apply(variable_list&&) override { return {}; }
};

// Writes a probe to `place` and asks the host what it reads.
bool is_current_node(NodeBits* place, Node& frame) {
  const base::NodePtr probe = base::make_node<Probe>();
  *place = bits_of(*probe);
  const bool seen = get_current_node().get() == probe.get();
  *place = bits_of(frame);
  return seen && get_current_node().get() == &frame;
}

ptrdiff_t search_current_node(const Range& tls, Node& frame) {
  const NodeBits wanted = bits_of(frame);
  for (uintptr_t at = tls.begin; at + sizeof(wanted) <= tls.end; at += sizeof(void*)) {
    auto* place = reinterpret_cast<NodeBits*>(at);
    if (*place == wanted && is_current_node(place, frame)) return static_cast<ptrdiff_t>(at - tls.begin);
  }
  return kNotThere;
}

}  // namespace

NodeBits* find_current_node_place(Node& frame) {
  ptrdiff_t offset = current_node_offset.load(std::memory_order_acquire);
  if (offset == kNotThere) return nullptr;
  const Range tls = libtorch_object().tls;
  if (tls.begin == 0) return nullptr;
  if (offset == kUnknown) {
    offset = search_current_node(tls, frame);
    current_node_offset.store(offset, std::memory_order_release);
    if (offset == kNotThere) return nullptr;
  }
  auto* place = reinterpret_cast<NodeBits*>(tls.begin + static_cast<uintptr_t>(offset));
  return *place == bits_of(frame) ? place : nullptr;
}

}  // namespace overdrive::engine::host
