// One line per trainer file: what registry.cpp puts in order. Private to this folder.
#pragma once

#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

TrainerInfo digits_mlp();
TrainerInfo digits_cnn();
TrainerInfo lstm();
TrainerInfo rl_many_small();
TrainerInfo deq();
TrainerInfo wgan_gp();
TrainerInfo newton_cg();
TrainerInfo pinn();
TrainerInfo transformer();
TrainerInfo pipeline();
// Nothing where LibTorch has no c10d with Gloo.
std::optional<TrainerInfo> ddp();

}  // namespace overdrive::trainers
