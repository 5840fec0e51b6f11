// The pack units of a scope that wait: saved, but not yet given to their hook. One per scope; any thread. A
// unit is packed when nobody but units holds its storage any more (the last use of the tensor is over, so the
// memory is free at once), or when more waits than the schedule allows; a backward that comes first uses
// the tensor as it is. Packs on the thread that looks, which is one that saves.
#pragma once

#include "engine/base/mutex.h"
#include "hooks/memory/pack_unit.h"
#include "hooks/memory/shared_units.h"

#include <memory>
#include <vector>

namespace overdrive::hooks {

class Pending {
 public:
  explicit Pending(const Schedule& schedule) : schedule_(schedule) {}

  // `tensor` is what the unit was made of, and `info` what is known of it. It takes the place of `smaller`,
  // which have the tensor's storage.
  void add(const at::Tensor& tensor, const std::shared_ptr<PackUnit>& unit, const SharedUnits::Units& smaller,
           const SaveInfo& info) OVERDRIVE_EXCLUDES(mutex_);
  // A node that a tensor which is being saved came from: units that were saved for this one or for those right
  // before it learn what it is called.
  void meet(const base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  // Packs what need not or may not wait any longer, but for what the node of `now` saved: its operator is not
  // done with it, and may write to it (filled_later.h). Throws the first error of a pack(), after all of them.
  void look(const SaveInfo& now) OVERDRIVE_EXCLUDES(mutex_);

 private:
  // What waits of one storage. Held weakly: a unit belongs to its graph, a storage to who uses it.
  struct Waiting {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t bytes;
    std::vector<std::weak_ptr<PackUnit>> units;
  };
  // A unit, by the number of a node that nobody has met.
  struct Nameless {
    uint64_t thread;
    uint64_t sequence_nr;
    std::weak_ptr<PackUnit> unit;
  };
  struct Met {
    std::shared_ptr<PackUnit> unit;
    const base::Node* node;
  };
  using Units = std::vector<std::shared_ptr<PackUnit>>;
  static constexpr size_t kMostNameless = 16;
  static constexpr size_t kMostVisited = 16;
  void look_at(const base::Node& node, std::vector<Met>& met) OVERDRIVE_REQUIRES(mutex_);
  // What is in use by an operator stays, and `in_use` has it, too.
  static void move_units(Waiting& from, const SaveInfo& now, Units& to, Units& in_use);
  Units take_due(const SaveInfo& now) OVERDRIVE_EXCLUDES(mutex_);

  const Schedule schedule_;
  base::Mutex mutex_;
  std::vector<Waiting> waiting_ OVERDRIVE_GUARDED_BY(mutex_);    // oldest first
  std::vector<Nameless> nameless_ OVERDRIVE_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace overdrive::hooks
