// In place of ddp.cpp and process_group.cpp where LibTorch has no c10d with Gloo.
#include "examples/trainers/process_group.h"
#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

std::optional<TrainerInfo> ddp() { return std::nullopt; }

struct StoreServer::State {};
StoreServer::StoreServer() {
  TORCH_CHECK(false, "this build has no c10d with Gloo, so processes cannot train together.");
}
StoreServer::~StoreServer() = default;
uint16_t StoreServer::port() const { return 0; }

}  // namespace overdrive::trainers
