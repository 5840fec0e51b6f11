#include "engine/host/host.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace overdrive::engine::host {
namespace {

using namespace torch::autograd;

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

struct SharedObject {
  const void* inside = nullptr;  // the request: the object that contains this address
  Range all;                     // its loaded segments
  Range tls;                     // its thread-local block on the asking thread
};

int visit(dl_phdr_info* info, size_t, void* out) {
  auto& object = *static_cast<SharedObject*>(out);
  Range all{UINTPTR_MAX, 0};
  size_t tls_size = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      all.begin = std::min<uintptr_t>(all.begin, info->dlpi_addr + header.p_vaddr);
      all.end = std::max<uintptr_t>(all.end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
    } else if (header.p_type == PT_TLS) {
      tls_size = header.p_memsz;
    }
  }
  if (all.begin >= all.end || !all.contains(object.inside)) return 0;
  object.all = all;
  if (info->dlpi_tls_data != nullptr) {
    const auto begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
    object.tls = {begin, begin + tls_size};
  }
  return 1;
}

SharedObject shared_object_of(const void* address) {
  SharedObject object;
  object.inside = address;
  dl_iterate_phdr(visit, &object);
  return object;
}

const void* vtable_of(const void* object) { return *static_cast<const void* const*>(object); }

// An exported vtable as objects point to it: past the offset-to-top and the type information.
const void* exported_vtable(const char* symbol) {
  auto* start = static_cast<const char*>(dlsym(RTLD_DEFAULT, symbol));
  return start == nullptr ? nullptr : start + 2 * sizeof(void*);
}

struct HostTypes {
  const void* accumulate_grad = exported_vtable("_ZTVN5torch8autograd14AccumulateGradE");
  const void* copy_slices = exported_vtable("_ZTVN5torch8autograd10CopySlicesE");
  Range libtorch = shared_object_of(accumulate_grad).all;
};

const HostTypes& host_types() {
  static const HostTypes types;
  return types;
}

// The first instruction of Engine::set_compiled_autograd loads the variable of compiled autograd, which has no
// exported name. On x86-64 this instruction is `mov rax, [rip + offset]`.
std::atomic<void*>* find_compiled_autograd() {
#if defined(__x86_64__)
  const auto* code = reinterpret_cast<const unsigned char*>(&Engine::set_compiled_autograd);
  static constexpr unsigned char kEndBranch[] = {0xf3, 0x0f, 0x1e, 0xfa};
  if (std::memcmp(code, kEndBranch, sizeof kEndBranch) == 0) code += sizeof kEndBranch;
  static constexpr unsigned char kLoad[] = {0x48, 0x8b, 0x05};
  if (std::memcmp(code, kLoad, sizeof kLoad) != 0) return nullptr;
  int32_t offset;
  std::memcpy(&offset, code + sizeof kLoad, sizeof offset);
  const auto* variable = code + sizeof kLoad + sizeof offset + offset;
  const bool plausible = shared_object_of(code).all.contains(variable) &&
                         reinterpret_cast<uintptr_t>(variable) % alignof(void*) == 0;
  return plausible ? reinterpret_cast<std::atomic<void*>*>(const_cast<unsigned char*>(variable)) : nullptr;
#else
  return nullptr;
#endif
}

std::atomic<void*>* compiled_autograd() {
  static std::atomic<void*>* const variable = find_compiled_autograd();
  return variable;
}

}  // namespace

GraphTask* current_graph_task() {
  // The one exported accessor that returns an address inside the task.
  const auto* member = get_current_graph_task_nodes_in_graph();
  if (member == nullptr) return nullptr;
  auto* address = reinterpret_cast<char*>(const_cast<std::unordered_set<Node*>*>(member));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return reinterpret_cast<GraphTask*>(address - offsetof(GraphTask, nodes_in_graph_));
#pragma GCC diagnostic pop
}

bool compiled_autograd_is_visible() { return compiled_autograd() != nullptr; }

bool compiled_autograd_is_on() {
  const auto* variable = compiled_autograd();
  return variable != nullptr && variable->load(std::memory_order_relaxed) != nullptr;
}

bool is_python_engine(const Engine& engine) {
  Dl_info info;
  return dladdr(vtable_of(&engine), &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "libtorch_python") != nullptr;
}

bool runs_on_caller(c10::DeviceType type) {
  return type == c10::kCPU || type == c10::kMeta || type == c10::kLazy;
}

bool has_device_with_queue() {
  for (size_t i = 0; i < std::size(c10::impl::device_guard_impl_registry); ++i) {
    if (c10::impl::device_guard_impl_registry[i].load(std::memory_order_acquire) != nullptr &&
        !runs_on_caller(static_cast<c10::DeviceType>(i))) {
      return true;
    }
  }
  return false;
}

bool may_wait_for_leaf(const c10::Stream& caller, const c10::Stream& leaf) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  const bool leaf_records = leaf.is_capturing();
  if (caller == leaf || caller.is_capturing() == leaf_records) return true;
  TORCH_CHECK(
      at::globalContext().overrideStaleCaptureStream(),
      "During CUDA graph capture, autograd tried to synchronize streams across the capture boundary (leaf "
      "stream ",
      leaf.id(), " on device ", static_cast<int>(leaf.device_index()),
      leaf_records ? " is capturing but the caller's stream is not"
                   : " is not capturing but the caller's stream is",
      "), which would invalidate the capture. A common cause is an autograd leaf from warmup holding a "
      "stale stream. Either run warmup on the capture stream, delete references to the autograd graph "
      "(e.g. `del loss`) before capture, call backward() with the capturing stream current, or call "
      "torch.autograd.graph.set_override_stale_capture_stream(True).");
  TORCH_WARN_ONCE(
      "Skipping the end-of-backward sync between a leaf stream and the caller's current stream because exactly "
      "one of them is capturing a CUDA graph (see torch.autograd.graph.set_override_stale_capture_stream).");
  return false;
#else
  return true;
#endif
}

NodeKind kind_of(const Node& node) {
  const HostTypes& types = host_types();
  const void* vtable = vtable_of(&node);
  if (vtable == types.accumulate_grad) return NodeKind::kAccumulateGrad;
  if (vtable == types.copy_slices || !types.libtorch.contains(vtable)) return NodeKind::kForeign;
  return NodeKind::kHost;
}

namespace {

constexpr ptrdiff_t kUnknown = -1;
constexpr ptrdiff_t kNotThere = -2;
std::atomic<ptrdiff_t> current_node_offset{kUnknown};

// A node that is never part of a run.
struct Probe : Node {
  Probe() : Node(/*sequence_nr=*/uint64_t{0}) {}
  variable_list apply(variable_list&&) override { return {}; }
};

// Writes a probe to `place` and compares it with the node that the host reads.
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
  const Range tls = shared_object_of(host_types().accumulate_grad).tls;
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
