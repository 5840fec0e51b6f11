// What nearly every test includes; parsed once.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <torch/csrc/autograd/engine.h>
