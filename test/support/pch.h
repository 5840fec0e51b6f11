// What nearly every test includes; parsed once. Not torch/torch.h: what it has of modules, optimisers and data
// would be instantiated again for every test, at three seconds each. Who needs those includes them.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <torch/csrc/autograd/engine.h>
