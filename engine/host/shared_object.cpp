#include "engine/host/shared_object.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>

namespace overdrive::engine::host {
namespace {

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

}  // namespace

SharedObject shared_object_of(const void* address) {
  SharedObject object;
  object.inside = address;
  dl_iterate_phdr(visit, &object);
  return object;
}

const void* exported_vtable(const char* symbol) {
  auto* start = static_cast<const char*>(dlsym(RTLD_DEFAULT, symbol));
  return start == nullptr ? nullptr : start + 2 * sizeof(void*);
}

}  // namespace overdrive::engine::host
