#include "engine/python_entry/linker_slot.h"

#include "engine/base/imports.h"
#include "engine/base/loaded_objects.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace overdrive::engine {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_AARCH64_GLOB_DAT;
#else
#error "Overdrive knows the relocations of x86-64 and aarch64 only."
#endif

struct ReadOnlyQuestion {
  const link_map* object;
  uintptr_t place;
  bool answer = false;
};

int ask_read_only(dl_phdr_info* info, size_t, void* data) {
  auto& question = *static_cast<ReadOnlyQuestion*>(data);
  if (info->dlpi_addr != question.object->l_addr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_GNU_RELRO) continue;
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (question.place >= begin && question.place < begin + header.p_memsz) question.answer = true;
  }
  return 1;
}

bool is_read_only(const link_map& object, void** place) {
  ReadOnlyQuestion question{&object, reinterpret_cast<uintptr_t>(place)};
  base::look_at_loaded_objects(ask_read_only, &question);
  return question.answer;
}

}  // namespace

link_map* find_loaded_object(const char* name) {
  link_map* object = nullptr;
  base::visit_loaded_objects([&](const char* path) {
    const char* slash = std::strrchr(path, '/');
    const char* file = slash == nullptr ? path : slash + 1;
    if (std::strncmp(file, name, std::strlen(name)) != 0) return false;
    void* const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &object) == 0;
  });
  return object;
}

std::vector<LinkerSlot> find_linker_slots(const link_map& object, const char* symbol) {
  std::vector<LinkerSlot> slots;
  base::visit_imports(object.l_ld, object.l_addr, [&](const base::Import& import) {
    if (std::strcmp(import.name, symbol) != 0) return false;
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(import.relocation.r_info));
    slots.push_back({reinterpret_cast<void**>(object.l_addr + import.relocation.r_offset),
                     type == kJumpSlot || type == kGlobalData});
    return false;
  });
  return slots;
}

bool replace_linker_slot(const link_map& object, void** place, void* expected, void* replacement) {
  const bool read_only = is_read_only(object, place);
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page_size - 1));
  if (read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return false;
  const bool done = __atomic_compare_exchange_n(place, &expected, replacement, /*weak=*/false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_ACQUIRE);
  // Should this fail, the page stays writable, which harms nothing.
  if (read_only) mprotect(page, page_size, PROT_READ);
  if (!done) errno = 0;
  return done;
}

}  // namespace overdrive::engine
