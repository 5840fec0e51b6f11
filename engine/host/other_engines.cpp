#include "engine/host/other_engines.h"

#include "engine/host/shared_object.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace overdrive::engine::host {
namespace {

using namespace torch::autograd;

// Engine::set_compiled_autograd begins by loading the variable that it guards, which has no
// exported name. On x86-64 that load is `mov rax, [rip + offset]`.
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

}  // namespace overdrive::engine::host
