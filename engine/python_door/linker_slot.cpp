#include "engine/python_door/linker_slot.h"

#include <dlfcn.h>
#include <elf.h>
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

// What the object's dynamic section says of its relocations.
struct Tables {
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};  // for calls, for data
  size_t bytes[2] = {0, 0};
};

Tables tables_of(const link_map& object) {
  Tables found;
  // The loader has made addresses of what the file has as offsets.
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto address = static_cast<uintptr_t>(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_STRTAB:
        found.names = reinterpret_cast<const char*>(address);
        break;
      case DT_SYMTAB:
        found.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_JMPREL:
        found.tables[0] = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_PLTRELSZ:
        found.bytes[0] = entry->d_un.d_val;
        break;
      case DT_RELA:
        found.tables[1] = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_RELASZ:
        found.bytes[1] = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return found;
}

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
  dl_iterate_phdr(ask_read_only, &question);
  return question.answer;
}

}  // namespace

link_map* find_loaded_object(const char* name) {
  link_map* object = nullptr;
  void* program = dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return nullptr;
  const bool listed = dlinfo(program, RTLD_DI_LINKMAP, &object) == 0;
  dlclose(program);
  if (!listed) return nullptr;
  for (; object != nullptr; object = object->l_next) {
    const char* slash = std::strrchr(object->l_name, '/');
    const char* file = slash == nullptr ? object->l_name : slash + 1;
    if (std::strncmp(file, name, std::strlen(name)) == 0) return object;
  }
  return nullptr;
}

std::vector<LinkerSlot> find_linker_slots(const link_map& object, const char* symbol) {
  std::vector<LinkerSlot> slots;
  const Tables found = tables_of(object);
  if (found.names == nullptr || found.symbols == nullptr) return slots;
  for (int which : {0, 1}) {
    const ElfW(Rela)* table = found.tables[which];
    for (size_t i = 0; table != nullptr && i < found.bytes[which] / sizeof *table; ++i) {
      const auto number = ELF64_R_SYM(table[i].r_info);
      if (number == 0 || std::strcmp(found.names + found.symbols[number].st_name, symbol) != 0) continue;
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(table[i].r_info));
      slots.push_back({reinterpret_cast<void**>(object.l_addr + table[i].r_offset),
                       type == kJumpSlot || type == kGlobalData});
    }
  }
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
