#include "engine/host/shared_object.h"

#include "engine/base/loaded_objects.h"

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
  overdrive::base::look_at_loaded_objects(visit, &object);
  return object;
}

const void* exported_vtable(const char* symbol) {
  auto* start = static_cast<const char*>(dlsym(RTLD_DEFAULT, symbol));
  return start == nullptr ? nullptr : start + 2 * sizeof(void*);
}

namespace {

struct HostTypes {
  const void* accumulate_grad = exported_vtable("_ZTVN5torch8autograd14AccumulateGradE");
  const void* copy_slices = exported_vtable("_ZTVN5torch8autograd10CopySlicesE");
  Range libtorch = shared_object_of(accumulate_grad).all;
};

const HostTypes& host_types() {
  static const HostTypes types;
  return types;
}

}  // namespace

NodeKind kind_of(const base::Node& node) {
  const HostTypes& types = host_types();
  const void* vtable = vtable_of(&node);
  if (vtable == types.accumulate_grad) return NodeKind::kAccumulateGrad;
  if (vtable == types.copy_slices || !types.libtorch.contains(vtable)) return NodeKind::kForeign;
  return NodeKind::kHost;
}

SharedObject libtorch_object() { return shared_object_of(host_types().accumulate_grad); }

}  // namespace overdrive::engine::host
