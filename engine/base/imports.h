// The imports of a loaded object: each use of a function or a variable of another object has a relocation with
// its name. Reads the loader's tables, no LibTorch. No state; any thread, while the object stays loaded.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace overdrive::base {

struct Import {
  const char* name;
  const ElfW(Sym) & symbol;
  const ElfW(Rela) & relocation;
};

// Calls `visit` with each import of the object that has this dynamic section, calls first, until `visit`
// returns true. Returns whether it did. `begin`: the object's lowest address. The loader has made addresses of
// the offsets in the file, except in the kernel's own object.
template <typename Visit>
bool visit_imports(const ElfW(Dyn) * dynamic, uintptr_t begin, Visit&& visit) {
  const char* names = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela) * tables[2] = {};  // of calls, of data
  size_t bytes[2] = {};
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_PLTRELSZ) bytes[0] = entry->d_un.d_val;
    if (entry->d_tag == DT_RELASZ) bytes[1] = entry->d_un.d_val;
    const auto address = static_cast<uintptr_t>(entry->d_un.d_ptr);
    if (address < begin) continue;
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(address);
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (entry->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(address);
    if (entry->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(address);
  }
  if (names == nullptr || symbols == nullptr) return false;
  for (const int which : {0, 1}) {
    for (size_t i = 0; tables[which] != nullptr && i < bytes[which] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)& relocation = tables[which][i];
      const size_t number = ELF64_R_SYM(relocation.r_info);  // 0: an address inside the object itself
      if (number == 0) continue;
      if (visit(Import{names + symbols[number].st_name, symbols[number], relocation})) return true;
    }
  }
  return false;
}

}  // namespace overdrive::base
