// The exact solution of Burgers' equation on a grid, to check a learned one against. Plain values, read anew by
// each call; safe from any thread.
#pragma once

#include <torch/torch.h>

#include <numbers>

namespace overdrive::data {

// u_t + u u_x = kBurgersViscosity u_xx for x in [-1, 1], with u(0, x) = -sin(pi x) and u = 0 at both ends.
constexpr double kBurgersViscosity = 0.05 / std::numbers::pi;

struct Burgers {
  torch::Tensor t, x, u;  // float columns [n, 1]
};

// Throws c10::Error when the file is missing or damaged.
Burgers load_burgers();

}  // namespace overdrive::data
