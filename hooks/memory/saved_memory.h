// Memory that is given to a hook: its place in its storage, its version when it was saved, and its way through
// the hook and back. Owned by a saved tensor, or by the PackUnit that several share. Has no locks and never
// changes, so any thread may use it. Leaves the result of pack() to its owner.
#pragma once

#include "engine/host/version_check.h"
#include "hooks/interface/geometry.h"
#include "hooks/interface/saved_tensor_hooks.h"

#include <optional>

namespace overdrive::hooks {

class SavedMemory {
 public:
  // Of `source`: a tensor without history, conjugation or negation, of this geometry and at this version.
  SavedMemory(HooksPtr hooks, const at::Tensor& source, const Geometry& geometry,
              engine::host::VersionCheck version, const SaveInfo& info);

  const Geometry& geometry() const { return geometry_; }
  const SaveInfo& info() const { return info_; }
  // All tensors that share the memory were saved at it.
  const engine::host::VersionCheck& version() const { return version_; }
  caffe2::TypeMeta dtype() const { return dtype_; }
  c10::Device device() const { return device_; }
  std::optional<c10::Device> accelerator() const {
    return device_.is_cpu() ? std::nullopt : std::optional(device_);
  }
  int64_t bytes() const { return geometry_.numel() * static_cast<int64_t>(dtype_.itemsize()); }
  SavedTensorHooks& hooks() const { return *hooks_; }

  // Whether a tensor of this geometry can be cut out of the result of unpack().
  bool contains(const Geometry& other) const;
  bool holds_exactly(const Geometry& other) const;
  // An empty tensor of this type, for messages.
  at::Tensor looks() const;

  // Inside a hook (InsideHook) and without grad mode. Throws the error of the hook, and one when it changed its
  // input.
  Packed pack(const at::Tensor& source, const SaveInfo& info) const;
  // All of the memory, checked. `node` may be null, see UnpackInfo.
  at::Tensor unpack(Packed& packed, base::Node* node) const;
  // A part of it (null: all) with the version counter of the memory.
  at::Tensor cut(at::Tensor whole, const Geometry* part) const;

 private:
  const HooksPtr hooks_;
  const Geometry geometry_;
  const SaveInfo info_;
  const caffe2::TypeMeta dtype_;
  const c10::Device device_;
  const engine::host::VersionCheck version_;
};

}  // namespace overdrive::hooks
