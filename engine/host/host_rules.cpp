#include "engine/host/host_rules.h"

#include "engine/base/imports.h"
#include "engine/base/loaded_objects.h"
#include "engine/host/shared_object.h"

#include <dlfcn.h>
#include <link.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace overdrive::engine::host {
namespace {

using namespace torch::autograd;

// Engine::set_compiled_autograd begins by loading the variable that it guards, which has no exported name.
#if defined(__x86_64__)
// The first instruction is `mov rax, [rip + offset]`.
const void* loaded_first(const unsigned char* code) {
  static constexpr unsigned char kEndBranch[] = {0xf3, 0x0f, 0x1e, 0xfa};
  if (std::memcmp(code, kEndBranch, sizeof kEndBranch) == 0) code += sizeof kEndBranch;
  static constexpr unsigned char kLoad[] = {0x48, 0x8b, 0x05};
  if (std::memcmp(code, kLoad, sizeof kLoad) != 0) return nullptr;
  int32_t offset;
  std::memcpy(&offset, code + sizeof kLoad, sizeof offset);
  return code + sizeof kLoad + sizeof offset + offset;
}
#elif defined(__aarch64__)
// After registers were saved: `adrp x, page`, `add x, x, offset`, `ldar y, [x]`.
const void* loaded_first(const unsigned char* code) {
  constexpr int kSaves = 8;
  for (int i = 0; i < kSaves; ++i, code += sizeof(uint32_t)) {
    uint32_t word[3];
    std::memcpy(word, code, sizeof word);
    const uint32_t x = word[0] & 31;
    const bool loads = (word[0] & 0x9f000000) == 0x90000000 &&
                       (word[1] & 0xffc003ff) == (0x91000000 | x << 5 | x) &&
                       (word[2] & 0xffffffe0) == (0xc8dffc00 | x << 5);
    if (!loads) continue;
    // 21 bits with a sign: 19 in the middle of the word, the lowest two near its top.
    const int32_t pages =
        static_cast<int32_t>((word[0] & 0x00ffffe0) << 8 | (word[0] & 0x60000000) >> 18) >> 11;
    const uintptr_t page = reinterpret_cast<uintptr_t>(code) & ~uintptr_t{0xfff};
    return reinterpret_cast<const void*>(page + static_cast<intptr_t>(pages) * 0x1000 +
                                         (word[1] >> 10 & 0xfff));
  }
  return nullptr;
}
#endif

using Variable = std::atomic<void*>;

Variable* find_compiled_autograd() {
  return static_cast<Variable*>(
      variable_loaded_by(reinterpret_cast<const void*>(&Engine::set_compiled_autograd)));
}
std::atomic<Variable*>& compiled_autograd_variable() {
  static std::atomic<Variable*> variable{find_compiled_autograd()};
  return variable;
}

}  // namespace

void* variable_loaded_by(const void* function) {
  const void* const variable = loaded_first(static_cast<const unsigned char*>(function));
  const bool plausible = shared_object_of(function).all.contains(variable) &&
                         reinterpret_cast<uintptr_t>(variable) % alignof(void*) == 0;
  return plausible ? const_cast<void*>(variable) : nullptr;
}

CompiledAutograd compiled_autograd() {
  const Variable* variable = compiled_autograd_variable().load(std::memory_order_relaxed);
  if (variable == nullptr) return CompiledAutograd::kUnknown;
  return variable->load(std::memory_order_relaxed) == nullptr ? CompiledAutograd::kOff : CompiledAutograd::kOn;
}

void disregard_compiled_autograd(bool disregard) {
  compiled_autograd_variable().store(disregard ? nullptr : find_compiled_autograd(), std::memory_order_relaxed);
}

// Each install() asks, and dladdr() looks through all symbols of a library: a millisecond for LibTorch's.
bool is_python_engine(const Engine& engine) {
  static std::atomic<const void*> known_pythons{nullptr};
  const void* const vtable = vtable_of(&engine);
  if (vtable == vtable_of(&Engine::get_base_engine())) return false;
  if (vtable == known_pythons.load(std::memory_order_relaxed)) return true;
  Dl_info info;
  const bool is_pythons = dladdr(vtable, &info) != 0 && info.dli_fname != nullptr &&
                          std::strstr(info.dli_fname, "libtorch_python") != nullptr;
  if (is_pythons) known_pythons.store(vtable, std::memory_order_relaxed);
  return is_pythons;
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

namespace {

const char* const kReaders[] = {"get_current_graph_task_nodes_in_graph",
                                "get_current_graph_task_execution_order"};

bool is_reader(const char* name) {
  for (const char* reader : kReaders) {
    if (std::strstr(name, reader) != nullptr) return true;
  }
  return false;
}

// Overdrive itself does not count.
int look_for_readers(dl_phdr_info* info, size_t, void* found) {
  const auto here = reinterpret_cast<uintptr_t>(&look_for_readers);
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && here - begin < header.p_memsz) return 0;
    if (header.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
  }
  auto& any = *static_cast<bool*>(found);
  any = dynamic != nullptr && base::visit_imports(dynamic, info->dlpi_addr, [](const base::Import& import) {
          return import.symbol.st_shndx == SHN_UNDEF && is_reader(import.name);
        });
  return any ? 1 : 0;
}

std::atomic<bool> disregarded{false};

int read_load_count(dl_phdr_info* info, size_t, void* count) {
  *static_cast<uint64_t*>(count) = info->dlpi_adds;
  return 1;
}

}  // namespace

void disregard_readers(bool disregard) { disregarded.store(disregard, std::memory_order_relaxed); }

bool task_tables_have_readers() {
  if (disregarded.load(std::memory_order_relaxed)) return false;
  static std::atomic<uint64_t> looked_at{0};  // the load count of the last search
  static std::atomic<bool> found{false};
  if (found.load(std::memory_order_acquire)) return true;  // a reader that was unloaded costs only time
  uint64_t loads = 0;
  overdrive::base::look_at_loaded_objects(read_load_count, &loads);
  if (looked_at.load(std::memory_order_acquire) == loads) return false;
  bool any = false;
  overdrive::base::look_at_loaded_objects(look_for_readers, &any);
  found.store(any, std::memory_order_release);
  looked_at.store(loads, std::memory_order_release);
  return any;
}

}  // namespace overdrive::engine::host
