// Several ranks that sum tensors with each other: c10d's process group over Gloo, on the loopback. A group is
// owned by one rank and used by its thread. Knows nothing of models and engines.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace overdrive::trainers {

// Where ranks find each other. In one process, for ranks that are threads of it:
c10::intrusive_ptr<c10d::Store> make_store_of_this_process();
// Between processes: who starts them serves a store, on a port that the system chooses, and they join it.
class StoreServer {
 public:
  // Throws c10::Error when this LibTorch has no c10d.
  StoreServer();
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
c10::intrusive_ptr<c10d::Store> join_store(uint16_t port);

// Returns when all `world` ranks of the store have called it. A rank that does not answer for 20 s, or is gone,
// is an error in all that wait for it.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                          int rank, int world);

// Returns when all ranks have called it: none may close its connections while another still reads from them.
void leave_together(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world);

}  // namespace overdrive::trainers
