// What every benchmark, trainer and command includes; parsed once.
#pragma once
#include <torch/torch.h>

#include <torch/csrc/autograd/engine.h>
#include <nlohmann/json.hpp>
