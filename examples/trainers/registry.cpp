#include "examples/trainers/registry.h"

namespace overdrive::trainers {

const std::vector<TrainerInfo>& trainers() {
  static const auto* all = [] {
    auto* list = new std::vector<TrainerInfo>{digits_mlp(), digits_cnn(), lstm(), rl_many_small(), deq(),
                                              wgan_gp(),    newton_cg(),  pinn(), transformer(),   pipeline()};
    if (const auto distributed = ddp()) list->push_back(*distributed);
    return list;
  }();
  return *all;
}

std::vector<const TrainerInfo*> find_trainers(const std::string& name) {
  std::vector<const TrainerInfo*> found;
  for (const TrainerInfo& info : trainers()) {
    if (info.name == name || info.group == name) found.push_back(&info);
  }
  return found;
}

}  // namespace overdrive::trainers
