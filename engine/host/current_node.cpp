#include "engine/host/current_node.h"

#include "engine/host/shared_object.h"

#include <atomic>

namespace overdrive::engine::host {
namespace {

constexpr ptrdiff_t kUnknown = -1;
constexpr ptrdiff_t kNotThere = -2;
std::atomic<ptrdiff_t> current_node_offset{kUnknown};

NodeBits* place_at(const Range& tls, ptrdiff_t offset) {
  return reinterpret_cast<NodeBits*>(tls.begin + static_cast<uintptr_t>(offset));
}

std::vector<ptrdiff_t> all_places(const Range& tls) {
  std::vector<ptrdiff_t> all;
  for (uintptr_t at = tls.begin; at + sizeof(NodeBits) <= tls.end; at += sizeof(void*))
    all.push_back(static_cast<ptrdiff_t>(at - tls.begin));
  return all;
}

}  // namespace

void CurrentNodeSearch::look(base::Node& current) {
  const Range tls = libtorch_object().tls;
  if (!has_looked_ && tls.begin != 0) places_ = all_places(tls);
  has_looked_ = true;
  const NodeBits wanted = bits_of(current);
  std::erase_if(places_, [&](ptrdiff_t offset) { return !(*place_at(tls, offset) == wanted); });
}

void CurrentNodeSearch::finish() const {
  current_node_offset.store(places_.size() == 1 ? places_.front() : kNotThere, std::memory_order_release);
}

bool CurrentNodeSearch::is_over() { return current_node_offset.load(std::memory_order_acquire) != kUnknown; }

NodeBits* current_node_place(base::Node& frame) {
  const ptrdiff_t offset = current_node_offset.load(std::memory_order_acquire);
  const Range tls = offset < 0 ? Range() : libtorch_object().tls;
  if (tls.begin == 0) return nullptr;
  NodeBits* const place = place_at(tls, offset);
  return *place == bits_of(frame) ? place : nullptr;
}

}  // namespace overdrive::engine::host
