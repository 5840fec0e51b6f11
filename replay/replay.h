// The door to the replay folder: a training step that is recorded once and replayed with the same bits.
//
//   auto step = overdrive::capture([&](at::Tensor x, at::Tensor y) {
//     optimizer.zero_grad();
//     auto loss = loss_of(model->forward(x), y);
//     loss.backward();
//     optimizer.step();
//     return loss;
//   }, {.optimizer = &optimizer, .modules = {model.ptr()}});
//   for (auto& batch : data) losses += step(batch.x, batch.y);
//
// capture.h has the options, the counters and explain().
#pragma once

#include "replay/capture.h"
