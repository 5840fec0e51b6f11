#include "engine/view_readers.h"

#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace overdrive::engine::host {
namespace {

const char* const kReaders[] = {"get_current_graph_task_nodes_in_graph",
                                "get_current_graph_task_execution_order"};

// The parts of an object's dynamic section that list the names it imports.
struct ImportTable {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  size_t count = 0;
};

// The loader has relocated these addresses already, except in the kernel's own object.
ImportTable import_table(const dl_phdr_info& info) {
  ImportTable table;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_un.d_ptr < info.dlpi_addr) continue;  // not relocated
      if (entry->d_tag == DT_SYMTAB) table.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) table.names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      // Names that an object only imports come before those that its hash covers.
      if (entry->d_tag == DT_GNU_HASH) table.count = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr)[1];
    }
  }
  return table;
}

bool contains_this_code(const dl_phdr_info& info) {
  const auto here = reinterpret_cast<uintptr_t>(&contains_this_code);
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type == PT_LOAD && here - (info.dlpi_addr + header.p_vaddr) < header.p_memsz) return true;
  }
  return false;
}

int look_for_readers(dl_phdr_info* info, size_t, void* found) {
  const ImportTable table = import_table(*info);
  if (table.symbols == nullptr || table.names == nullptr || contains_this_code(*info)) return 0;
  for (size_t i = 1; i < table.count; ++i) {
    if (table.symbols[i].st_shndx != SHN_UNDEF) continue;
    const char* name = table.names + table.symbols[i].st_name;
    for (const char* reader : kReaders) {
      if (std::strstr(name, reader) == nullptr) continue;
      *static_cast<bool*>(found) = true;
      return 1;
    }
  }
  return 0;
}

int read_load_count(dl_phdr_info* info, size_t, void* count) {
  *static_cast<uint64_t*>(count) = info->dlpi_adds;
  return 1;
}

}  // namespace

bool graph_views_have_readers() {
  static std::atomic<uint64_t> looked_at{0};  // the load count of the last search
  static std::atomic<bool> found{false};
  if (found.load(std::memory_order_acquire))
    return true;  // objects with readers may go; to serve them costs only time
  uint64_t loads = 0;
  dl_iterate_phdr(read_load_count, &loads);
  if (looked_at.load(std::memory_order_acquire) == loads) return false;
  bool any = false;
  dl_iterate_phdr(look_for_readers, &any);
  found.store(any, std::memory_order_release);
  looked_at.store(loads, std::memory_order_release);
  return any;
}

}  // namespace overdrive::engine::host
