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
TrainerInfo transformer();

}  // namespace overdrive::trainers
