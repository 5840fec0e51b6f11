// The pack units of a scope that wait: saved, but not yet given to their hook. One per scope; any thread. A
// unit is packed when only units hold its storage (the last use of the tensor is over, so the memory is free at
// once), or when more waits than the schedule allows. A backward that comes first uses the tensor as it is.
// Packs on the thread that looks, which is one that saves.
#pragma once

#include "engine/base/mutex.h"
#include "hooks/memory/pack_unit.h"

#include <memory>
#include <vector>

namespace overdrive::hooks {

class Pending {
 public:
  explicit Pending(const Schedule& schedule) : schedule_(schedule) {}

  // `unit` was made of `tensor`.
  void add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit) OVERDRIVE_EXCLUDES(mutex_);
  // Packs what need not or may not wait any longer. Tensors of the node of `now` stay, because its operator may
  // still write to them (fills_what_it_saved in tensor_kinds.h). Throws the first error of a pack(), after all
  // of them.
  void look(const SaveInfo& now) OVERDRIVE_EXCLUDES(mutex_);

 private:
  // The waiting units of one storage. Held weakly: a unit belongs to its graph, a storage to its users.
  struct Waiting {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t bytes;
    std::vector<std::weak_ptr<PackUnit>> units;
  };
  using Units = std::vector<std::shared_ptr<PackUnit>>;
  // Units that an operator still uses stay, and are put into `in_use` too.
  static void move_units(Waiting& from, const SaveInfo& now, Units& to, Units& in_use);
  Units take_due(const SaveInfo& now) OVERDRIVE_EXCLUDES(mutex_);

  const Schedule schedule_;
  base::Mutex mutex_;
  std::vector<Waiting> waiting_ OVERDRIVE_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace overdrive::hooks
