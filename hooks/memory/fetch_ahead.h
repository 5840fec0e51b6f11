// Unpacks tensors that a backward will ask for next, while it still runs other nodes. A table of the process
// knows the units of every node that saved under a schedule; one FetchAhead follows one run of the engine; one
// thread of the process unpacks. Any thread. Leaves to a unit what its node gets.
//
// Note [Whose tensor it is]: a tensor is noted for the node that took the last sequence number of its thread.
// That is a hint: operators that build several nodes may have another. The order of the nodes is a guess as
// well. Neither decides anything: a node gets its tensor from its own unit, which unpacks it then and there
// when no thread did before. A wrong guess costs an unpack.
#pragma once

#include "engine/node/run_watch.h"
#include "hooks/memory/pack_unit.h"

#include <memory>
#include <vector>

namespace overdrive::hooks {

// From now on a backward through the node of `info` fetches the unit ahead, as the schedule says.
void fetch_ahead_for(const SaveInfo& info, const Schedule& schedule, const std::shared_ptr<PackUnit>& unit);

// The engine calls this at the beginning of a run. Null when no node of the plan has anything to fetch.
std::unique_ptr<engine::RunWatch> fetch_ahead_in(const engine::Plan& plan) noexcept;

// A unit that a node of the run will ask for.
struct Wanted {
  uint32_t place;  // of the node in the order of the run
  // Weak, and reset when the run comes to the node, because the engine then frees it.
  base::WeakNodePtr node;
  std::weak_ptr<PackUnit> unit;
  Schedule schedule;
  bool started = false;  // the unit was told that the node will ask
};

class FetchAhead final : public engine::RunWatch {
 public:
  // `places`: of each node of the plan; `wanted`: by place.
  FetchAhead(std::vector<uint32_t> places, std::vector<Wanted> wanted)
      : places_(std::move(places)), wanted_(std::move(wanted)) {}
  // Drops tensors that were fetched and not used.
  ~FetchAhead() override;

  void may_go_on(uint32_t node) override;

 private:
  static constexpr size_t kNotNow = SIZE_MAX;
  struct Candidate {
    size_t index;  // in wanted_, or kNotNow
    std::shared_ptr<PackUnit> unit;
    base::WeakNodePtr node;
  };
  using Units = std::vector<std::shared_ptr<PackUnit>>;
  Units passed_by(uint32_t place) OVERDRIVE_EXCLUDES(mutex_);
  std::vector<Candidate> within_reach(uint32_t place) OVERDRIVE_EXCLUDES(mutex_);
  void start(const std::vector<Candidate>& candidates) OVERDRIVE_EXCLUDES(mutex_);

  const std::vector<uint32_t> places_;
  base::Mutex mutex_;
  std::vector<Wanted> wanted_ OVERDRIVE_GUARDED_BY(mutex_);
  size_t next_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // the first that the run has not come to
  size_t done_ OVERDRIVE_GUARDED_BY(mutex_) = 0;  // the first that it is not past
};

}  // namespace overdrive::hooks
