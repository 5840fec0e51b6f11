#include "examples/trainers/process_group.h"

#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace overdrive::trainers {

namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr const char* kLoopback = "127.0.0.1";

}  // namespace

c10::intrusive_ptr<c10d::Store> make_store_of_this_process() { return c10::make_intrusive<c10d::HashStore>(); }

struct StoreServer::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer() : state_(std::make_unique<State>()) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  state_->store = c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
}
StoreServer::~StoreServer() = default;
uint16_t StoreServer::port() const { return state_->store->getPort(); }

c10::intrusive_ptr<c10d::Store> join_store(uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = kPatience;
  return c10::make_intrusive<c10d::TCPStore>(kLoopback, options);
}

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                          int rank, int world) {
  using c10d::ProcessGroup;
  auto options = c10d::ProcessGroupGloo::Options::create(kPatience);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kLoopback));
  options->threads = 1;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
  auto group = c10::make_intrusive<ProcessGroup>(store, rank, world);
  group->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO,
                    c10::intrusive_ptr<c10d::Backend>(std::move(gloo)));
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

void leave_together(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world) {
  std::vector<std::string> everyone;
  for (int i = 0; i < world; ++i) everyone.push_back("left/" + std::to_string(i));
  store->set(everyone[static_cast<size_t>(rank)], std::vector<uint8_t>{1});
  store->wait(everyone, kPatience);
}

}  // namespace overdrive::trainers
