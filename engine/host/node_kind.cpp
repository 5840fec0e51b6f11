#include "engine/host/node_kind.h"

namespace overdrive::engine::host {
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
